// What openapi.json says, to read.

const api = await (await fetch("openapi.json")).json();

function element(name, ...content) {
  const made = document.createElement(name);
  made.append(...content);
  return made;
}

function panel(title, ...content) {
  const made = element("section", element("h2", title), ...content);
  made.className = "panel";
  return made;
}

function table(head, rows) {
  const [top, body] = [[head], rows].map((lines, i) =>
    lines.map((line) => element("tr", ...line.map((cell) => element(i ? "td" : "th", cell)))),
  );
  const made = element("div", element("table", element("thead", ...top), element("tbody", ...body)));
  made.className = "wide";
  made.tabIndex = 0; // where it is too wide, the keyboard scrolls it
  return made;
}

function resolved(schema) {
  return schema.$ref ? api.components.schemas[schema.$ref.split("/").at(-1)] : schema;
}

function kindOf(schema) {
  const { type, enum: words, anyOf, items, minimum, maximum, default: value } = resolved(schema);
  const list = items && `list of ${kindOf(items)}`;
  const kinds = words?.join(", ") ?? anyOf?.map(kindOf).join(" or ") ?? list ?? type;
  const limits = [minimum, maximum].filter((limit) => Math.abs(limit) < Number.MAX_SAFE_INTEGER);
  const range = ["", `, ${limits[0]} or more`, ` from ${limits.join(" to ")}`][limits.length];
  return kinds + range + (value === undefined || value === "" ? "" : ` (default: ${value})`);
}

function fieldsOf({ requestBody }) {
  return Object.entries(requestBody?.content ?? {}).flatMap(([type, { schema }]) => {
    const { properties, required = [] } = resolved(schema);
    const rows = Object.entries(properties).map(([name, field]) => {
      const needed = required.includes(name) ? " (needed)" : "";
      return [element("code", name), kindOf(field), (field.description ?? "") + needed];
    });
    return [element("p", `Body: ${type}`), table(["field", "value", "meaning"], rows)];
  });
}

const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => [`${method.toUpperCase()} ${path}`, operation]),
);
const { 200: _, ...answers } = operations[0][1].responses;
const errors = Object.entries(answers).map(([status, { description }]) => [status, description]);
const key = api.components.securitySchemes ? ' -H "Authorization: Bearer KEY"' : "";
const example = `curl ${new URL("v1/audio/speech", document.baseURI)} -o hello.mp3${key} \\
    -H "Content-Type: application/json" -d '{"model": "tts-1", "voice": "alloy", "input": "Hello."}'`;
document.getElementById("about").textContent = api.info.description;
document.getElementById("api").append(
  element("pre", element("code", example)),
  ...operations.map(([title, operation]) =>
    panel(element("code", title), element("p", operation.description), ...fieldsOf(operation)),
  ),
  panel(
    "Errors",
    element("p", element("code", '{"error": {"message", "type", "param", "code"}}')),
    table(["status", "when"], errors),
  ),
);

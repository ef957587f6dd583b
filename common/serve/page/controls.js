// Fields for the server's controls; those that the chosen models do not have are hidden and not sent.

const UNITS = { HZ: "Hz" };
const FINE = 10; // up to this a step is small

export class ControlFields {
  // `controls`: the server's rows; `letter` makes ids different.
  constructor(place, controls, letter, onChange) {
    this.onChange = onChange;
    this.fields = controls.map((control) => field(control, letter, () => this.#changed()));
    place.append(...this.fields.map(({ row }) => row));
  }

  offer(names) {
    for (const { control, row } of this.fields) row.hidden = !names.includes(control.name);
    this.#changed();
  }

  // Lists what a field of text may be.
  suggest(name, words) {
    const { list } = this.fields.find(({ control }) => control.name === name);
    list.replaceChildren(...words.map((word) => new Option(word, word)));
  }

  // Name and value of those that are not as the server has them.
  get values() {
    const changed = this.fields.filter(({ row, read, control }) => !row.hidden && read() !== control.default);
    return Object.fromEntries(changed.map(({ control, read }) => [control.name, read()]));
  }

  set values(values) {
    for (const { control, write } of this.fields) write(values[control.name] ?? control.default);
    this.#changed();
  }

  // Marks the field that an error is about; whether there is one.
  mark(name) {
    let found = false;
    for (const { control, input } of this.fields) {
      const wrong = control.name === name;
      if (wrong) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
      found ||= wrong;
    }
    return found;
  }

  #changed() {
    this.mark(null);
    this.onChange();
  }
}

function field(control, letter, onChange) {
  const row = document.createElement("div");
  const label = document.createElement("label");
  const input = document.createElement("input");
  const help = document.createElement("p");
  input.id = `${letter}-${control.name}`;
  input.name = control.name;
  label.htmlFor = input.id;
  help.id = `${input.id}-help`;
  help.className = "help";
  help.textContent = control.help;
  input.setAttribute("aria-describedby", help.id);
  input.addEventListener("input", onChange);
  const words = (control.negated ?? control.name).replaceAll("_", " ");
  label.textContent = UNITS[control.unit] ? `${words} (${UNITS[control.unit]})` : words;
  const { read, write } = FIELDS[control.kind](input, control);
  write(control.default);
  row.className = control.kind;
  if (control.kind === "switch") row.append(input, label, help);
  else row.append(label, input, help);
  if (control.kind !== "text") return { control, row, input, read, write };
  const list = document.createElement("datalist");
  list.id = `${input.id}-list`;
  input.setAttribute("list", list.id);
  row.append(list);
  return { control, row, input, list, read, write };
}

const FIELDS = { switch: asSwitch, integer: asNumber, number: asNumber, text: asText };

function asSwitch(input, { negated }) {
  input.type = "checkbox";
  return {
    read: () => input.checked !== Boolean(negated),
    write: (value) => {
      input.checked = Boolean(value) !== Boolean(negated);
    },
  };
}

function asText(input, control) {
  input.type = "text";
  input.placeholder = control.default;
  return {
    read: () => (input.value === "" ? control.default : input.value),
    write: (value) => {
      input.value = value === control.default ? "" : value;
    },
  };
}

// An empty field is as the server, or the voice, has it.
function asNumber(input, control) {
  input.type = "number";
  if (control.low !== null) input.min = control.low;
  if (control.high !== null) input.max = control.high;
  input.step = control.kind === "integer" ? 1 : control.high <= FINE ? 0.05 : 5;
  input.placeholder = control.default ?? "the voice's";
  return {
    read: () => (input.value === "" ? control.default : Number(input.value)),
    write: (value) => {
      input.value = value ?? "";
    },
  };
}

// Fields for the server's controls; those that the chosen models do not have are hidden and not sent.

const UNITS = { HZ: " (Hz)" };
const FINE = 10; // up to this a step is small
const SLIDING = 4; // a narrower range is a slider

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
    for (const { control, input } of this.fields) input.ariaInvalid = String(control.name === name);
    return this.fields.some(({ control }) => control.name === name);
  }

  #changed() {
    this.mark(null);
    for (const { row, input } of this.fields) {
      const output = row.querySelector("output");
      if (output) output.value = input.value;
    }
    this.onChange();
  }
}

function field(control, letter, onChange) {
  const made = ["div", "label", "input", "p"].map((name) => document.createElement(name));
  const [row, label, input, help] = made;
  input.id = label.htmlFor = `${letter}-${control.name}`;
  help.id = `${input.id}-help`;
  help.className = "help";
  // The model is chosen above, and the field shows its default.
  help.textContent = control.help.replace(/^\w+: |default: [^;)]*(; )?/g, "").replace(" ()", "");
  input.setAttribute("aria-describedby", help.id);
  input.addEventListener("input", onChange);
  label.textContent = (control.negated ?? control.name).replaceAll("_", " ") + (UNITS[control.unit] ?? "");
  row.append(label, input, help);
  const { read, write } = FIELDS[control.kind](input, control);
  if (input.type === "range") label.append(" ", document.createElement("output"));
  write(control.default);
  return { control, row, input, read, write };
}

const FIELDS = { switch: asSwitch, integer: asNumber, number: asNumber };

function asSwitch(input, { negated }) {
  input.type = "checkbox";
  return {
    read: () => input.checked !== Boolean(negated),
    write: (value) => (input.checked = Boolean(value) !== Boolean(negated)),
  };
}

// An empty field is as the server, or the voice, has it.
function asNumber(input, control) {
  const slides = control.default !== null && control.high !== null && control.high - control.low < SLIDING;
  input.type = slides ? "range" : "number";
  input.min = control.low ?? "";
  input.max = control.high ?? "";
  input.step = control.kind === "integer" ? 1 : control.high <= FINE ? 0.05 : 5;
  input.placeholder = control.default ?? "the voice's";
  return {
    read: () => (input.value === "" ? control.default : Number(input.value)),
    write: (value) => (input.value = value ?? ""),
  };
}

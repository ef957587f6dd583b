// The speaker of a voice that has several, or a mix of two: "emma:0.3,heart:0.7".

export class Speakers {
  constructor({ speakers, speaker, other, share, mix }) {
    Object.assign(this, { place: speakers, first: speaker, second: other, share, mix, names: [] });
    for (const field of [speaker, other, share]) field.addEventListener("input", () => this.#changed());
  }

  offer(names) {
    const before = this.value;
    this.names = names;
    this.place.hidden = !names.length;
    this.first.replaceChildren(...names.map((name) => new Option(name)));
    this.second.replaceChildren(new Option("nobody", ""), ...names.map((name) => new Option(name)));
    this.value = before;
  }

  // Undefined for the first one, whom the server takes by itself.
  get value() {
    const [first, second] = [this.first.value, this.second.value];
    const share = Number(this.share.value);
    if (second && second !== first) return `${first}:${(1 - share).toFixed(2)},${second}:${share.toFixed(2)}`;
    return first === this.names[0] ? undefined : first || undefined;
  }

  set value(value) {
    const [first, second = []] = String(value ?? "").split(",").map((part) => part.split(":"));
    this.first.value = first[0];
    if (!this.first.value) this.first.selectedIndex = 0;
    this.second.value = this.names.includes(second[0]) ? second[0] : "";
    this.share.value = second[1] ?? 0.5;
    this.#changed();
  }

  #changed() {
    const mixed = this.value?.includes(":");
    const share = Math.round(100 * this.share.value);
    const words = `${100 - share}\u00a0% ${this.first.value}, ${share}\u00a0% ${this.second.value}`;
    this.share.disabled = !mixed;
    this.mix.textContent = mixed ? words : "";
  }
}

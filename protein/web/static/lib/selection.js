// The selected trials, which all pages share. In the address: sel=pong:1-4.7,breakout:3 (names are percent-encoded).

/** Returns a map from sweep to a set of numbers. */
export function parse(text) {
  const found = new Map();
  for (const part of text ? text.split(",") : []) {
    const at = part.lastIndexOf(":");
    if (at < 0) continue;
    let name = part.slice(0, at);
    try { name = decodeURIComponent(name); } catch { /* an address that somebody typed */ }
    const numbers = new Set();
    for (const range of part.slice(at + 1).split(".")) {
      const [from, to = from] = range.split("-").map(Number);
      if (!Number.isInteger(from) || !Number.isInteger(to) || to - from > 1e6) continue;
      for (let i = from; i <= to; i++) numbers.add(i);
    }
    if (numbers.size) found.set(name, numbers);
  }
  return found;
}

/** Returns the text for a map from sweep to numbers. */
export function format(selected) {
  const parts = [];
  for (const [name, numbers] of selected) {
    const sorted = [...numbers].sort((a, b) => a - b);
    const ranges = [];
    for (let i = 0; i < sorted.length;) {
      let j = i;
      while (j + 1 < sorted.length && sorted[j + 1] === sorted[j] + 1) j++;
      ranges.push(i === j ? `${sorted[i]}` : `${sorted[i]}-${sorted[j]}`);
      i = j + 1;
    }
    if (ranges.length) parts.push(`${encodeURIComponent(name)}:${ranges.join(".")}`);
  }
  return parts.join(",");
}

/** The selection of a `State`. Every change goes through the state, so that pages hear of it as of any key. */
export class Selection {
  constructor(state) {
    this.state = state;
  }

  get all() {
    const text = this.state.get("sel");
    if (text !== this.text) {
      this.text = text;
      this.parsed = parse(text);
    }
    return this.parsed;
  }

  get size() {
    let total = 0;
    for (const numbers of this.all.values()) total += numbers.size;
    return total;
  }

  has(sweep, number) {
    return this.all.get(sweep)?.has(number) ?? false;
  }

  /** The selected trials as [sweep, number] pairs. */
  pairs() {
    return [...this.all].flatMap(([name, numbers]) => [...numbers].sort((a, b) => a - b).map((one) => [name, one]));
  }

  /** Selects exactly these [sweep, number] pairs. */
  set(pairs) {
    const selected = new Map();
    for (const [sweep, number] of pairs) add(selected, sweep, number);
    this.state.set({ sel: format(selected) });
  }

  /** Adds (`on`) or removes pairs. */
  change(pairs, on) {
    const selected = new Map([...this.all].map(([name, numbers]) => [name, new Set(numbers)]));
    for (const [sweep, number] of pairs) {
      if (on) add(selected, sweep, number);
      else selected.get(sweep)?.delete(number);
    }
    this.state.set({ sel: format(selected) });
  }

  toggle(sweep, number) {
    this.change([[sweep, number]], !this.has(sweep, number));
  }

  clear() {
    this.state.set({ sel: "" });
  }
}

function add(selected, sweep, number) {
  if (!selected.has(sweep)) selected.set(sweep, new Set());
  selected.get(sweep).add(number);
}

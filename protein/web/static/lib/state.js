// The page's state lives in the address behind "#", so that a link or a reload shows the same view:
//   #/table?sweep=pong&filter=score%20%3E%2010&sort=-score&sel=pong:1-4.7
// Keys may repeat (`sweep`). `sel` holds the selected trials, see lib/selection.js.

/** What the address says: {page, path, values}. `path` are the parts behind the page's name, decoded; `page` may be "". Overview was Sweep once. */
export function parse(hash) {
  const text = hash.replace(/^#\/?/, "");
  const [path, query = ""] = splitOnce(text, "?");
  const [page = "", ...rest] = path.split("/").map(decoded);
  return { page: page === "sweep" ? "overview" : page, path: rest, values: new URLSearchParams(query) };
}

/** Returns an address behind "#". */
export function format(page, values, path = []) {
  const query = [...values].map(([key, value]) => `${key}=${encoded(value)}`).join("&");
  return `#/${[page, ...path].map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

export class State {
  constructor(listener, place = window) {
    this.place = place;
    this.listener = listener;
    Object.assign(this, parse(place.location.hash));
    place.addEventListener("hashchange", () => this.read());
  }

  /** One value of a key; `otherwise` where it is not in the address. */
  get(key, otherwise = "") {
    return this.values.get(key) ?? otherwise;
  }

  getAll(key) {
    return this.values.getAll(key);
  }

  get sweeps() {
    return this.getAll("sweep");
  }

  /**
   * Changes some keys. A value may be an array; "", null and [] remove the key.
   * Each change is a step of the browser's back button, unless `replace`.
   */
  set(changes, { replace = true, silent = false } = {}) {
    const before = format(this.page, this.values, this.path);
    const values = new URLSearchParams(this.values);
    for (const [key, value] of Object.entries(changes)) {
      values.delete(key);
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== "" && one !== null && one !== undefined && one !== false) values.append(key, String(one));
      }
    }
    const after = format(this.page, values, this.path);
    if (after === before) return;
    this.values = values;
    this.place.history[replace ? "replaceState" : "pushState"](null, "", after);
    if (!silent) this.listener(Object.keys(changes), this);
  }

  /** The address of a page with the present sweeps and selection, and what is given. */
  link(page, changes = {}, path = []) {
    const values = new URLSearchParams();
    for (const key of ["sweep", "sel", "filter"]) for (const one of this.getAll(key)) values.append(key, one);
    for (const [key, value] of Object.entries(changes)) {
      values.delete(key);
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== "" && one !== null && one !== undefined) values.append(key, String(one));
      }
    }
    return format(page, values, path);
  }

  go(page, changes = {}, path = []) {
    this.place.location.hash = this.link(page, changes, path);
  }

  read() {
    const found = parse(this.place.location.hash);
    const keys = new Set([...this.values.keys(), ...found.values.keys()]);
    const changed = [...keys].filter((key) => this.getAll(key).join("\n") !== found.values.getAll(key).join("\n"));
    if (found.page !== this.page || found.path.join("/") !== this.path.join("/")) changed.push("page");
    Object.assign(this, found);
    if (changed.length) this.listener(changed, this);
  }
}

// Readable addresses: only what would end a value, or confuse a mail program, is encoded.
function encoded(value) {
  return encodeURIComponent(value).replace(/%3A/g, ":").replace(/%2C/g, ",").replace(/%2F/g, "/");
}
function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}
function splitOnce(text, sign) {
  const at = text.indexOf(sign);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

// A table of any number of rows, of which only those in sight exist. Rows come in windows from a `source`.
//
//   const grid = new Grid(root, {
//     label, rowHeight: 30, signal,
//     load: (offset, limit) => Promise<{total, rows}>,   // `rows` are whatever `drawRow` takes
//     drawRow: (row, index) => <tr>, rowState: (row, index) => text,   // a row is drawn anew when it or its state changes
//     headers: () => <tr>, headState: () => text, widths: () => [pixels],
//     above: () => [<tr>],   // rows that stay below the head
//   });
//   grid.reset()      // other rows: from the top, or with {stay: true} at the same place; then rebuild()
//   grid.refresh()    // the same rows, perhaps changed: what is in sight is asked for again
//   grid.redraw()     // the same rows, whose states may have changed
//   grid.rebuild()    // other columns: everything is drawn again
//
// Elements that stay the same are not touched, so that news do not take the focus, or a click that has begun.
//
// The element <table> keeps its meaning for screen readers: aria-rowcount tells how many rows there are in truth.

import { fill, h } from "./dom.js";

const AROUND = 12; // rows drawn above and below what is in sight
const PART = 100; // rows that are asked for at once
const MAX_PARTS = 60; // kept; those that are far away are dropped

export class Grid {
  constructor(root, options) {
    this.options = { rowHeight: 31, ...options };
    this.parts = new Map(); // part -> rows, or null while they are asked for
    this.total = 0;
    this.generation = 0;
    this.elements = new Map(); // row -> {element, state}
    this.body = h("tbody");
    this.head = h("thead");
    this.columns = h("colgroup");
    this.table = h("table", { class: "grid", "aria-label": options.label }, this.columns, this.head, this.body);
    this.room = h("div", { class: "grid-room", tabindex: "0", role: "region", "aria-label": options.label }, this.table);
    root.append(this.room);
    this.room.addEventListener("scroll", () => this.#soon(), { passive: true, signal: options.signal });
    const watcher = new ResizeObserver(() => this.#soon());
    watcher.observe(this.room);
    options.signal?.addEventListener("abort", () => watcher.disconnect());
  }

  /** The row of an index, if it is loaded. */
  row(index) {
    return this.parts.get(Math.floor(index / PART))?.[index % PART];
  }

  /**
   * Returns after the rows in sight are there: the first ones, or with `stay` those at the same place. Throws what `load`
   * throws. Until then, and where it throws, the rows of before stay, unless they are to be dropped: `keep` is false.
   */
  async reset({ stay = false, keep = false } = {}) {
    const wanted = [...(stay ? this.#partsInSight() : [0])];
    this.generation += 1;
    const { generation } = this;
    if (!keep) this.parts.clear();
    this.drawn = "";
    const found = await Promise.all(wanted.map((part) => this.options.load(part * PART, PART, true)));
    if (generation !== this.generation) return;
    this.parts = new Map(found.map((one, i) => [wanted[i], one.rows]));
    this.total = found.at(-1).total;
    if (!stay) this.room.scrollTop = 0;
  }

  /** Returns where a row of this key is now; -1 where it is not loaded. */
  place(key) {
    for (const [part, rows] of this.parts) {
      const found = rows?.findIndex((row) => row.key === key) ?? -1;
      if (found >= 0) return part * PART + found;
    }
    return -1;
  }

  /** Asks again for what is in sight, and forgets the rest. The rows in sight stay there; `moved` is called before they are drawn. */
  async refresh(moved = () => {}) {
    const { rowHeight } = this.options;
    const first = Math.ceil(this.room.scrollTop / rowHeight);
    const key = this.room.scrollTop > 0 ? this.row(first)?.key : undefined;
    const wanted = this.#partsInSight();
    this.generation += 1;
    await Promise.all([...wanted].map((part) => this.#ask(part, true)));
    for (const part of [...this.parts.keys()]) if (!wanted.has(part)) this.parts.delete(part);
    const now = key === undefined ? -1 : this.place(key);
    const top = this.room.scrollTop + (now >= 0 ? (now - first) * rowHeight : 0);
    this.room.scrollTop = top;
    moved();
    this.redraw();
    this.room.scrollTop = top; // again: before, a table with new rows was not high enough to scroll to its end
    this.#draw();
  }

  rebuild() {
    this.elements.clear();
    this.headDrawn = null;
    const widths = this.options.widths();
    fill(this.columns, widths.map((width) => h("col", { style: { width: `${width}px` } })));
    this.table.style.width = `${widths.reduce((sum, one) => sum + one, 0)}px`;
    this.redraw();
  }

  redraw() {
    this.drawn = "";
    const now = this.options.headState();
    if (now !== this.headDrawn) {
      this.headDrawn = now;
      const focused = this.head.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
      const before = this.head.offsetHeight;
      fill(this.head, this.options.headers(), this.options.above?.() ?? []);
      // Where somebody has scrolled, the rows in sight stay where they are when rows come above them.
      if (before && this.room.scrollTop > 0) this.room.scrollTop += this.head.offsetHeight - before;
      if (focused) this.head.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    }
    this.#draw();
  }

  /** Scrolls as little as needed so that a row is in sight. */
  show(index) {
    const { rowHeight } = this.options;
    const headHeight = this.head.offsetHeight;
    const top = index * rowHeight;
    const high = this.room.clientHeight - headHeight;
    if (top < this.room.scrollTop) this.room.scrollTop = top;
    else if (top + rowHeight > this.room.scrollTop + high) this.room.scrollTop = top + rowHeight - high;
    this.#draw();
  }

  #sight() {
    const { rowHeight } = this.options;
    const high = Math.max(this.room.clientHeight, 300);
    const first = Math.max(0, Math.min(this.total - 1, Math.floor(this.room.scrollTop / rowHeight)) - AROUND);
    return { first, last: Math.min(this.total, Math.ceil((this.room.scrollTop + high) / rowHeight) + AROUND) };
  }

  #partsInSight() {
    const { first, last } = this.#sight();
    const found = new Set();
    for (let part = Math.floor(first / PART); part <= Math.floor(Math.max(first, last - 1) / PART); part++) found.add(part);
    return found;
  }

  #soon() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.#draw(); });
  }

  #draw() {
    const { first, last } = this.#sight();
    let missing = false;
    for (let part = Math.floor(first / PART); part * PART < last; part++) {
      if (!this.parts.has(part)) this.#ask(part).then(() => this.redrawSoon(), (error) => this.options.failed?.(error));
      if (!this.parts.get(part)) missing = true;
    }
    const now = `${this.generation} ${first} ${last} ${missing}`;
    if (now === this.drawn) return;
    this.drawn = missing ? "" : now;
    const { rowHeight } = this.options;
    const columns = this.columns.childElementCount;
    const gap = (rows) => h("tr", { class: "gap", "aria-hidden": "true", style: { height: `${rows * rowHeight}px` } }, h("td", { colspan: columns }));
    const rows = [];
    for (let index = first; index < last; index++) {
      const row = this.row(index);
      rows.push(row ? this.#element(row, index) : h("tr", { class: "waiting" }, h("td", { colspan: columns, text: "…" })));
    }
    if (this.elements.size > 3 * rows.length + 300) this.elements.clear();
    arrange(this.body, [first > 0 ? gap(first) : null, ...rows, last < this.total ? gap(this.total - last) : null].filter(Boolean));
    this.table.setAttribute("aria-rowcount", this.total + 1);
  }

  #element(row, index) {
    const state = `${index} ${this.options.rowState(row, index)}`;
    const known = this.elements.get(row);
    if (known?.state === state) return known.element;
    const element = this.options.drawRow(row, index);
    this.elements.set(row, { element, state });
    return element;
  }

  redrawSoon() {
    this.drawn = "";
    this.#soon();
  }

  async #ask(part, keep = false) {
    const { generation } = this;
    if (!keep) this.parts.set(part, null);
    try {
      const found = await this.options.load(part * PART, PART, keep);
      if (generation !== this.generation) return;
      this.total = found.total;
      this.parts.set(part, found.rows);
    } catch (error) {
      if (this.parts.get(part) === null) this.parts.delete(part);
      throw error;
    }
    for (const far of this.parts.keys()) {
      if (this.parts.size <= MAX_PARTS) break;
      if (Math.abs(far - part) > 5) this.parts.delete(far);
    }
  }
}

/** Gives an element these children; those that are in place already are not touched. */
function arrange(parent, wanted) {
  const keep = new Set(wanted);
  const children = [...parent.children];
  if (!children.some((child) => keep.has(child))) {
    parent.replaceChildren(...wanted);
    return;
  }
  for (const child of children) if (!keep.has(child)) child.remove();
  wanted.forEach((child, i) => { if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null); });
}

// The table of all trials: sort, filter, group, choose and pin columns, select rows for the other pages, annotate.
// In the address: filter, sort, column (repeated), pin (repeated), group, plain (without bars), view, and sel.

import { ApiError } from "../lib/api.js";
import { columnChooser } from "../lib/columns.js";
import { columnChoices, select, tick } from "../lib/controls.js";
import { debounced, fill, h, stateOf } from "../lib/dom.js";
import { save } from "../lib/export.js";
import { filterField } from "../lib/filter.js";
import { counted, title, toTheRight, whole } from "../lib/format.js";
import { Grid } from "../lib/grid.js";
import { annotations } from "../lib/annotations.js";
import { headText, tableCells, widthsOf } from "../lib/table-cells.js";
import { groupTable } from "./table-groups.js";
import { savedViews } from "./table-views.js";

const DEFAULT_SORT = "-number";
const MAX_SELECTED = 5000;
const BOX_WIDTH = 38;
// What is shown unless columns are chosen; the parameters that differ stand between the two.
const FIRST = ["sweep", "number", "state", "score", "cost_seconds", "predicted_score"];
const LAST = ["tags", "note", "started_at"];
const SCORES = ["score", "predicted_score", "predicted_score_low", "predicted_score_high"];
const MAX_SPECIAL = 3; // sweeps whose recommended and initial configs stand above the rows
const FIT_MS = 60_000; // between two fits of the model for them
const AGAIN_MS = 1500; // until it is asked again for what is being computed
const ROWS_AHEAD = 100; // as lib/grid.js asks for at first
const ALWAYS = ["state", "end", "reason", "excluded"]; // asked for even where they are not shown: rows look by them

export async function render(root, context) {
  const { api, state, selection, signal, keys, notice, sweeps } = context;
  let known = { version: "", schema: "", columns: [] }; // of the last answer
  let shownKeys = []; // columns that are shown
  let askedKeys = []; // columns of the rows: those, and others behind them
  let rowsByKey = new Map(); // rows of that version
  let ahead = null; // gives the first rows, where they were asked for early
  let round = 0; // counts what was asked for anew: an answer to an earlier question is not used
  let focus = 0; // the row of the keyboard
  let anchor = 0; // where a selection with shift began
  let moved = false; // whether somebody has put them there
  let on = []; // the keys of their rows
  let widths = new Map();
  let measured = false; // whether there were rows when the widths were measured
  let places = new Map(); // of shown columns: {column, left, last}
  let scales = {}; // key of a column -> its range, and where the best trials lie
  let scaleCount = 0; // counts other ones
  let special = []; // the rows of the recommended and the initial config
  let askingSpecial = false;
  let fitted = -Infinity; // when a new fit of the model was asked for

  const lower = () => state.sweeps.every((name) => sweeps.find((one) => one.name === name)?.direction === "minimize");
  const cells = tableCells({ state, asked: () => askedKeys, interrupted: context.interrupted, lower, scale: (key) => (state.get("plain") ? null : scales[key]) });
  const countLine = h("span", { class: "counted muted", role: "status" });
  const filter = filterField({
    value: state.get("filter"), columns: () => known.columns,
    changed: (text) => state.set({ filter: text }),
  });
  const chooser = columnChooser({
    columns: () => known.columns, shown: () => shownKeys, pinned: () => pinned(),
    choose: (chosen) => state.set({ column: chosen }), pin: (chosen) => state.set({ pin: chosen.length ? chosen : "none" }),
    reset: () => state.set({ column: "", pin: "" }),
  });
  const grouping = select("Group by", [["", "no column"]], "", (key) => state.set({ group: key }));
  const bars = tick("Bars", !state.get("plain"), (on) => state.set({ plain: on ? "" : "1" }));
  bars.root.title = "How far along its column each number is, better scores further; green and thick in the range of the best tenth";
  const views = savedViews({ state, columns: () => known.columns, notice });
  const groups = groupTable({ state, open: (rule) => state.set({ group: "", filter: state.get("filter") ? `(${state.get("filter")}) and ${rule}` : rule }, { replace: false }) });
  const csvButton = h("button", { type: "button", class: "button quiet", text: "Save CSV", title: "All trials that match, in this order, with these columns", onclick: saveCsv });
  const bar = h("div", { class: "table-bar" }, filter.root, countLine, h("span", { class: "space" }), api.live ? grouping.root : null, api.live ? bars.root : null, api.live ? views.root : null, chooser.root, csvButton);
  const chosenBar = h("div", { class: "chosen-bar", role: "toolbar", "aria-label": "Selected trials" });
  const room = h("div", { class: "table-room" });
  root.append(bar, chosenBar, room);
  const notes = annotations({ ...context, refresh: () => refresh() });

  const grid = new Grid(room, {
    label: "Trials", rowHeight: 31, signal, load, drawRow, headers, widths: columnWidths,
    failed: (error) => { if (error.status !== 0) show(error); }, // the shell says that the server is gone; what is known stays
    rowState: (row, index) => `${selection.has(row.sweep, row.number)} ${index === focus} ${scaleCount}`,
    headState: () => [state.get("sort"), boxState(), scaleCount, ...shownKeys, ...pinned(), ...special.map((row) => `${row.key} ${row.what} ${row.values} ${selection.has(row.sweep, row.number)}`)].join("\n"),
    above: () => special.map((row, i) => drawRow(row, null, i)),
  });
  room.append(groups.root);

  async function load(offset, limit, fresh) {
    const mine = round;
    const { version, schema } = known;
    const base = rowsByKey; // of that version: what an answer leaves out is as it is here
    const again = fresh && base.size ? { known: version, schema } : {};
    const asked = { sweep: state.sweeps, filter: state.get("filter"), sort: state.get("sort", DEFAULT_SORT), offset, limit, column: [...shownKeys, ...ALWAYS.filter((key) => !shownKeys.includes(key))] };
    let found = (await ahead?.(asked)) ?? await api.get("/table", { ...asked, ...again }, { signal });
    let rows = taken(found, base);
    if (!rows) {
      found = await api.get("/table", asked, { signal });
      rows = taken(found, new Map());
    }
    if (mine !== round) throw new DOMException("other rows were asked for meanwhile", "AbortError");
    // Rows of another version may have changed since: they are forgotten, and asked for again when they are needed.
    if (found.version !== known.version) rowsByKey = new Map();
    for (const row of rows) rowsByKey.set(row.key, row);
    const first = !known.columns.length;
    known = { version: found.version, schema: found.schema, columns: found.columns ?? known.columns };
    if (first) filter.offer();
    askedKeys = found.shown;
    const other = JSON.stringify(found.scales ?? {}) !== JSON.stringify(scales);
    if (other) { scales = found.scales ?? {}; scaleCount += 1; }
    fill(countLine, counts(found));
    return { total: found.matching, rows };
  }

  /** The rows of an answer; null where one has not changed and is not among those of before. */
  function taken(found, base) {
    const curves = new Map(found.curves); // of those that run
    const rows = found.keys.map(([place, number], i) => {
      const key = `${number} ${found.sweeps[place]}`;
      const before = base.get(key); // the same object, so that the row is not drawn again
      return found.rows[i] ? { sweep: found.sweeps[place], number, values: found.rows[i], key, curve: curves.get(i) } : before;
    });
    return rows.includes(undefined) ? null : rows;
  }

  function counts({ matching, total }) {
    return matching === total ? counted(total, "trial") : `${whole(matching)} of ${counted(total, "trial")}`;
  }

  /**
   * Asks for the first rows while their columns are not known yet: for all of them. Returns what gives this answer to the
   * same question, once, and null to any other.
   */
  function askAhead() {
    const early = { sweep: state.sweeps, filter: state.get("filter"), sort: state.get("sort", DEFAULT_SORT), offset: 0, limit: ROWS_AHEAD };
    const answer = api.get("/table", early, { signal }).catch(() => null); // asked again, it says why
    return async ({ column, ...asked }) => {
      ahead = null;
      const found = JSON.stringify(asked) === JSON.stringify(early) ? await answer : null;
      const places = column.map((key) => found?.shown.indexOf(key) ?? -1);
      return places.includes(-1) ? null : { ...found, shown: column, rows: found.rows.map((row) => places.map((place) => row[place])) };
    };
  }

  /** Everything anew: other sweeps, filter, order or columns; `stay`: at the same place, as only columns are others. */
  async function reset({ stay = false } = {}) {
    rowsByKey = new Map();
    const mine = round += 1;
    try {
      if (!known.columns.length) {
        const early = api.live && !state.get("group") ? askAhead() : null; // together with the names of the columns
        const found = await api.get("/table", { sweep: state.sweeps, limit: 0 }, { signal });
        if (!found.total) return empty();
        ahead = early;
        known = { ...known, columns: found.columns };
        filter.offer();
      }
      if (mine !== round) return undefined;
      const before = shownKeys.join("\n");
      drawGrouping();
      if (state.get("group") && api.live) {
        await drawGroups();
        if (mine === round) { filter.fault(null); show(null); }
        return undefined;
      }
      shownKeys = columnsAsked();
      const same = before === shownKeys.join("\n");
      if (!same) special = [];
      await grid.reset({ stay, keep: same }); // while somebody types a filter, the last good rows stay
      if (mine !== round) return undefined;
      // The same columns keep their widths, or get wider: another order or filter makes none narrower.
      measure({ keep: measured && before === shownKeys.join("\n") });
      places = placesOf();
      filter.fault(null);
      show(null);
      grid.rebuild();
      askSpecial();
    } catch (error) {
      show(error);
    }
    drawChosen();
    return undefined;
  }

  const refresh = async () => {
    if (!known.columns.length || (grid.room.hidden && !grid.total)) return reset();
    try {
      if (state.get("group") && api.live) return await drawGroups();
      rememberRows();
      // New trials come above: the keys go on with the trials that they are on. They may move while the rows are fetched.
      await grid.refresh(() => {
        if (!moved) return;
        const [at, from] = on;
        if (at !== undefined && grid.place(at) >= 0) focus = grid.place(at);
        if (from !== undefined && grid.place(from) >= 0) anchor = grid.place(from);
      });
      // A first tag, or a first metric, brings its column.
      if (columnsAsked().join("\n") !== shownKeys.join("\n")) return reset({ stay: true });
      if (measure({ keep: true })) {
        places = placesOf();
        grid.rebuild();
      }
      show(null);
      askSpecial();
    } catch (error) {
      if (error.status !== 0) show(error); // the shell says that the server is gone; what is known stays
    }
    return undefined;
  };

  function empty() {
    grid.room.hidden = true;
    bar.hidden = true;
    emptyState.replaceWith(emptyState = stateOf("empty", "This sweep has no trial yet.", "The first one appears here as soon as it starts."));
    emptyState.hidden = false;
  }

  let emptyState = h("div", { hidden: true });
  room.append(emptyState);
  function show(error) {
    if (error?.name === "AbortError") return;
    bar.hidden = false;
    if (error instanceof ApiError && error.message.startsWith("filter")) {
      filter.fault(error.message);
      return;
    }
    const isGrouped = Boolean(state.get("group")) && api.live;
    const none = !error && !isGrouped && grid.total === 0;
    grid.room.hidden = Boolean(error) || none || isGrouped;
    groups.root.hidden = Boolean(error) || !isGrouped;
    chooser.root.hidden = isGrouped;
    bars.root.hidden = isGrouped;
    const next = error ? stateOf("error", error.message, h("button", { class: "button", type: "button", text: "Try again", onclick: () => reset() }))
      : none ? stateOf("empty", "No trial matches this filter.", h("button", { class: "button", type: "button", text: "Clear the filter", onclick: () => filter.set("") }))
        : h("div", { hidden: true });
    emptyState.replaceWith(next);
    emptyState = next;
    if (error && !(error instanceof ApiError)) console.error(error);
  }

  // Groups, and the rows above

  function drawGrouping() {
    const choices = columnChoices(known.columns, title).map((one) => ({ ...one, choices: [...one.choices] }));
    const listed = choices.flatMap((one) => one.choices.map(([key]) => key));
    const further = known.columns.filter((one) => ["state", "kind", "tags", "excluded", "reason", "sweep"].includes(one.key) && !one.empty && !listed.includes(one.key)).map((one) => [one.key, title(one)]);
    grouping.set([["", "no column"], ...choices, ...(further.length ? [{ group: "trial", choices: further }] : [])], state.get("group"));
  }

  async function drawGroups() {
    const by = state.get("group");
    const found = await api.get("/table/groups", { sweep: state.sweeps, filter: state.get("filter"), by }, { signal });
    if (by !== state.get("group")) return;
    fill(countLine, counts(found));
    groups.draw(found, columnOf(by));
  }

  const hasSpecial = () => api.live && state.sweeps.length <= MAX_SPECIAL;

  /** The rows of the recommended and the initial config, as soon as they are known. */
  async function askSpecial() {
    if (!hasSpecial() || askingSpecial) return;
    askingSpecial = true;
    try {
      const asked = [...askedKeys];
      const fresh = performance.now() - fitted > FIT_MS;
      const found = await api.get("/table/pinned", { sweep: state.sweeps, column: asked, fresh: fresh && 1 }, { signal });
      if (fresh) fitted = performance.now();
      if (found.shown.join("\n") === askedKeys.join("\n")) {
        special = found.rows.map((row) => ({ ...row, key: `${row.number} ${row.sweep}` }));
        if (measure({ keep: true })) { places = placesOf(); grid.rebuild(); } else grid.redraw();
      }
      if (found.state === "computing") setTimeout(() => { if (!signal.aborted) askSpecial(); }, AGAIN_MS);
    } catch (error) {
      if (error.name !== "AbortError" && error.status === undefined) console.error(error); // without these rows the table is whole
    } finally {
      askingSpecial = false;
    }
  }

  // Columns

  function columnsAsked() {
    const existing = new Map(known.columns.map((one) => [one.key, one]));
    const chosen = state.getAll("column").filter((key) => existing.has(key));
    if (chosen.length) return ordered(chosen);
    const wanted = (key) => existing.has(key) && !existing.get(key).empty && (key !== "sweep" || state.sweeps.length > 1);
    const tags = (key) => !(["tags"].includes(key) && existing.get(key)?.constant);
    const params = known.columns.filter((one) => one.group === "params" && !one.constant && !one.empty).map((one) => one.key);
    return ordered([...FIRST.filter(wanted), ...params, ...LAST.filter((key) => wanted(key) && tags(key))]);
  }

  function pinned() {
    const given = state.getAll("pin");
    if (given[0] === "none") return [];
    return given.length ? given : ["sweep", "number"];
  }

  function ordered(list) {
    const first = pinned().filter((key) => list.includes(key));
    return [...first, ...list.filter((key) => !first.includes(key))];
  }

  const columnOf = (key) => known.columns.find((one) => one.key === key) || { key, title: key, kind: "text", group: "trial" };

  /** Widths from the texts of the first rows. `keep`: no column gets narrower. Returns whether one got wider. */
  function measure({ keep }) {
    const rows = [...special, ...Array.from({ length: Math.min(60, grid.total) }, (_, i) => grid.row(i)).filter(Boolean)];
    measured = measured || rows.length > 0;
    const before = widths;
    widths = widthsOf(shownKeys.map(columnOf), rows, cells.text, hasSpecial());
    if (keep) for (const [key, width] of widths) widths.set(key, Math.max(width, before.get(key) || 0));
    return [...widths].some(([key, width]) => width > (before.get(key) || 0));
  }

  function columnWidths() {
    return [BOX_WIDTH, ...shownKeys.map((key) => widths.get(key) || 110)];
  }

  /** Each shown column, the offset at which it sticks if it is pinned, and whether it is the last such one. */
  function placesOf() {
    const sticking = pinned().filter((one) => shownKeys.includes(one));
    let left = BOX_WIDTH;
    return new Map(shownKeys.map((key) => {
      const at = sticking.includes(key) ? left : undefined;
      if (at !== undefined) left += widths.get(key) || 110;
      return [key, { column: columnOf(key), left: at, last: key === sticking.at(-1) }];
    }));
  }

  function place(element, key) {
    const { left, last } = places.get(key);
    if (left !== undefined) {
      element.classList.add("stuck");
      element.style.left = `${left}px`;
      if (last) element.classList.add("last-stuck");
    }
    return element;
  }

  // Sorting

  function sortKeys() {
    return state.get("sort", DEFAULT_SORT).split(",").map((key) => ({ key: key.replace(/^-/, "").replaceAll("%2C", ",").replaceAll("%25", "%"), down: key.startsWith("-") }));
  }

  function sortBy(key, further) {
    const now = sortKeys();
    const before = now.find((one) => one.key === key);
    const numeric = toTheRight(columnOf(key)) && !(SCORES.includes(key) && lower()); // a score's best first
    const next = !before ? { key, down: numeric } : before.down === numeric ? { key, down: !numeric } : null;
    const list = further ? [...now.filter((one) => one.key !== key), ...(next ? [next] : [])] : next ? [next] : [];
    state.set({ sort: list.slice(-4).map((one) => (one.down ? "-" : "") + one.key.replaceAll("%", "%25").replaceAll(",", "%2C")).join(",") });
  }

  function boxState() {
    return !selection.size || !grid.total ? "none" : selection.size === grid.total ? "all" : "some";
  }

  function headers() {
    const sorted = sortKeys();
    const box = h("input", { type: "checkbox", "aria-label": "Select all trials that match", onchange: (event) => selectAll(event.target.checked) });
    box.checked = boxState() === "all";
    box.indeterminate = boxState() === "some";
    return h("tr", { "aria-rowindex": 1 }, h("th", { class: "box stuck", style: { left: "0px" } }, box), shownKeys.map((key) => {
      const column = columnOf(key);
      const at = sorted.findIndex((one) => one.key === key);
      const sign = at < 0 ? "" : sorted[at].down ? "↓" : "↑";
      const head = h("th", { class: toTheRight(column) ? "number" : "", scope: "col", "aria-sort": at < 0 ? null : sorted[at].down ? "descending" : "ascending" },
        h("button", { type: "button", dataset: { key }, title: `${column.key}: sort; with Shift, sort by it next`, onclick: (event) => sortBy(key, event.shiftKey) },
          h("span", { class: "head-text" }, headText(column).section ? h("span", { class: "section", text: headText(column).section }) : null, headText(column).name),
          sign ? h("span", { class: "sign", "aria-hidden": "true", text: sign + (sorted.length > 1 ? at + 1 : "") }) : null));
      return place(head, key);
    }));
  }

  // Rows

  /** A row of the table; `above`: one that stays below the head, as which of them. */
  function drawRow(row, index, above) {
    const chosen = selection.has(row.sweep, row.number);
    const excluded = cells.value(row, "excluded") === true;
    const box = h("input", { type: "checkbox", tabindex: "-1", "aria-label": `Select trial ${row.number} of ${row.sweep}`, checked: chosen });
    const line = h("tr", { class: `${chosen ? "chosen" : ""}${index === focus ? " focus" : ""}${excluded ? " excluded" : ""}${above === undefined ? "" : " above"}`, "aria-rowindex": above === undefined ? index + 2 : null,
      dataset: above === undefined ? { index, number: row.number, sweep: row.sweep } : {}, style: above === undefined ? {} : { "--above": above } },
    h("td", { class: "box stuck", style: { left: "0px" } }, box),
    shownKeys.map((key, i) => place(cells.draw(places.get(key).column, row.values[i], row), key)));
    if (above === undefined) line.addEventListener("click", (event) => clicked(event, index, row));
    else box.addEventListener("change", () => selection.toggle(row.sweep, row.number));
    return line;
  }

  // Selection

  function clicked(event, index, row) {
    if (event.target.closest("a, button")) return;
    if (getSelection().toString() && !event.shiftKey) return; // a text is being marked
    focus = index;
    moved = true;
    if (event.shiftKey) {
      getSelection().removeAllRanges();
      selectRange(anchor, index);
    } else {
      anchor = index;
      selection.toggle(row.sweep, row.number);
    }
    rememberRows();
    grid.redraw();
  }

  function rememberRows() {
    on = [focus, anchor].map((index) => grid.row(index)?.key);
  }

  /** Selects from one row to another one, also where they are not loaded. */
  async function selectRange(from, to) {
    const [first, last] = [Math.min(from, to), Math.max(from, to)];
    const found = await names(first, Math.min(last - first + 1, MAX_SELECTED));
    if (found) selection.change(found, true);
  }

  async function selectAll(on) {
    if (!on) { selection.clear(); return; }
    const found = await names(0, MAX_SELECTED);
    if (!found) { grid.redraw(); return; }
    selection.set(found);
    if (grid.total > MAX_SELECTED) notice(`The first ${whole(MAX_SELECTED)} trials are selected. More at once is not possible; a filter makes them fewer.`, { key: "many", seconds: 8 });
  }

  /** The trials at these places, as [sweep, number] pairs; null where the server does not tell. */
  async function names(offset, limit) {
    try {
      const found = await api.get("/trials", { sweep: state.sweeps, filter: state.get("filter"), sort: state.get("sort", DEFAULT_SORT), offset, limit }, { signal });
      return found.keys.map(([at, number]) => [found.sweeps[at], number]);
    } catch (error) {
      if (error.name !== "AbortError") notice(`Not selected: ${error.message}`, { kind: "error", key: "selected", seconds: 8 });
      return null;
    }
  }

  function drawChosen() {
    const count = selection.size;
    chosenBar.classList.toggle("open", count > 0);
    if (!count) { fill(chosenBar); return; }
    const link = (page, text) => h("a", { class: "button", href: state.link(page), text });
    fill(chosenBar, h("strong", { text: `${whole(count)} selected` }),
      link("curves", "Curves"), link("compare", "Compare"), link("front", "Front"), link("parameters", "Parameters"), h("span", { class: "divider" }),
      notes.buttons(), h("span", { class: "space" }),
      h("button", { type: "button", class: "button quiet", text: "Clear", title: "Select nothing (Escape)", onclick: () => selection.clear() }));
  }

  // Keyboard

  function move(by, extend) {
    if (!grid.total) return;
    const before = focus;
    focus = Math.max(0, Math.min(grid.total - 1, focus + by));
    moved = true;
    if (extend) { selectRange(anchor, focus); } else if (before !== focus) anchor = focus;
    rememberRows();
    grid.show(focus);
    grid.redraw();
    grid.room.focus({ preventScroll: true });
  }

  const page = () => Math.max(1, Math.floor(grid.room.clientHeight / 31) - 2);
  if (api.live) keys.bind("/", "filter", () => filter.input.focus(), signal);
  keys.bind("j", "next trial (also ↓)", () => move(1), signal);
  keys.bind("k", "trial before (also ↑)", () => move(-1), signal);
  for (const [key, by] of [["ArrowDown", () => 1], ["ArrowUp", () => -1], ["PageDown", page], ["PageUp", () => -page()], ["Home", () => -Infinity], ["End", () => Infinity]]) {
    keys.bind(key, "", () => move(by()), signal);
    keys.bind(`Shift+${key}`, "", () => move(by(), true), signal);
  }
  keys.bind("Space", "select or unselect the trial (with ⇧ and arrows: several)", () => {
    const row = grid.row(focus);
    anchor = focus;
    rememberRows();
    if (row) selection.toggle(row.sweep, row.number);
  }, signal);
  keys.bind("a", "select all trials that match", () => selectAll(true), signal);
  keys.bind("Escape", "select nothing", () => selection.clear(), signal);
  keys.bind("Enter", "open the trial", () => {
    const row = grid.row(focus);
    if (row) state.go("trial", {}, [row.sweep, row.number]);
  }, signal);
  notes.bindKeys(() => grid.row(focus));

  async function saveCsv() {
    csvButton.disabled = true;
    try {
      const asked = { sweep: state.sweeps, filter: state.get("filter"), sort: state.get("sort", DEFAULT_SORT), column: shownKeys };
      const response = await fetch(api.url("/table.csv", asked), { signal });
      if (!response.ok) throw new ApiError((await response.json()).error, response.status);
      save(`${state.sweeps.join("_")}.csv`, await response.blob());
    } catch (error) {
      if (error.name !== "AbortError") notice(`The table could not be saved: ${error.message}`, { kind: "error", key: "csv" });
    } finally {
      csvButton.disabled = false;
    }
  }

  const changedSoon = debounced(() => { if (!signal.aborted) refresh(); }, 200);
  // Not awaited: until a page has been returned, a change of the address builds it anew, under the fingers of who is typing.
  reset().then(() => {
    if (!signal.aborted && document.activeElement === document.body) grid.room.focus({ preventScroll: true });
  });
  return {
    update: changedSoon,
    stateChanged(changed) {
      if (changed.includes("filter")) filter.set(state.get("filter"), false);
      if (changed.includes("plain")) {
        bars.input.checked = !state.get("plain");
        scaleCount += 1;
        grid.redraw();
      }
      if (changed.some((key) => ["filter", "sort", "column", "pin", "group"].includes(key))) {
        if (changed.includes("filter")) { focus = 0; anchor = 0; }
        reset({ stay: !changed.includes("filter") && !changed.includes("sort") });
      } else if (changed.includes("sel")) {
        grid.redraw();
        drawChosen();
      }
    },
  };
}

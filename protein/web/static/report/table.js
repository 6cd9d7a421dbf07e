// The table of a report: sorted, cut and compared in the browser, as protein/web/pages/table.py and compare.py do it on
// the server.

import { ApiError } from "../lib/api.js";
import { csvCell } from "../lib/export.js";

// Fields that identify a trial or only say when it ran, as in protein/web/pages/compare.py.
const NOT_COMPARED = new Set(["sweep", "number", "predicted_score_low", "predicted_score_high", "predicted_cost_seconds_low", "predicted_cost_seconds_high",
  "started_at", "finished_at", "note", "tags", "suggest_seconds", "lost_seconds", "continued_seconds"]);
const MAX_OFFERED = 20; // as in protein/web/pages/table.py
const PROVENANCE = [["version", "version of protein"], ["git_commit", "git commit"], ["machine", "machine"]];

/** One table of the trials of several: the columns of all, and null where a sweep has no such column. */
export function joined(tables) {
  if (tables.length === 1) return tables[0];
  const columns = new Map();
  for (const table of tables) for (const one of table.columns) columns.set(one.key, columns.has(one.key) ? common(columns.get(one.key), one) : one);
  const keys = [...columns.keys()];
  const rows = tables.flatMap((table) => {
    const places = keys.map((key) => table.columns.findIndex((one) => one.key === key));
    return table.rows.map((row) => places.map((place) => (place < 0 ? null : row[place])));
  });
  const sweeps = tables.flatMap((table) => table.sweeps);
  const numbers = tables.flatMap((table) => table.keys.map(([at, number]) => [sweeps.indexOf(table.sweeps[at]), number]));
  const described = [...columns.values()].map((one, i) => {
    const values = rows.map((row) => row[i]);
    const present = values.filter((value) => value !== null);
    const same = present.length === values.length && present.every((value) => JSON.stringify(value) === JSON.stringify(present[0]));
    return { ...one, empty: !present.length, constant: present.length > 0 && same };
  });
  return { columns: described, rows, keys: numbers, sweeps };
}

function common(one, other) {
  const numeric = [one.kind, other.kind].every((kind) => ["number", "integer"].includes(kind));
  const few = [one, other].every((column) => column.empty || column.words.length); // else they are too many to be offered
  const all = few ? [...new Set([...one.words, ...other.words])].sort() : [];
  const words = all.length <= MAX_OFFERED ? all : [];
  return { ...one, words, kind: one.kind === other.kind ? one.kind : numeric ? "number" : "mixed" };
}

/** The answer of /table: some rows in an order. */
export function window(table, { sort = "-number", offset = 0, limit = 200, column }) {
  const order = ordered(table, sort);
  const shown = column === undefined || !column.length ? table.columns.map((one) => one.key) : [column].flat();
  const places = shown.map((key) => placeOf(table, key, "column"));
  const part = order.slice(Number(offset), Number(offset) + Number(limit));
  return {
    version: "report", total: order.length, matching: order.length, offset: Number(offset), schema: "report", columns: table.columns, shown, sweeps: table.sweeps,
    keys: part.map((i) => table.keys[i]), rows: part.map((i) => places.map((place) => table.rows[i][place])), curves: [], // nothing runs
  };
}

/** The answer of /table.csv, as a text. */
export function csvOf(table, { sort = "-number", column }) {
  const { shown, rows } = window(table, { sort, column, limit: Infinity });
  const times = new Set(table.columns.filter((one) => one.kind === "time").map((one) => shown.indexOf(one.key)));
  const text = (value, i) => (times.has(i) && typeof value === "number" ? new Date(1000 * value).toISOString().slice(0, 23).replace("T", " ") : Array.isArray(value) ? value.join(" ") : value);
  return [shown, ...rows].map((row) => row.map((value, i) => csvCell(text(value, i))).join(",")).join("\r\n") + "\r\n";
}

/** The answer of /compare: the selected trials side by side. `chosen`: sweep -> set of numbers. */
export function sideBySide(table, trials, chosen) {
  const wanted = [...chosen].flatMap(([name, numbers]) => [...numbers].map((number) => [name, number]));
  const placeIn = ([name, number]) => table.keys.findIndex(([place, one]) => table.sweeps[place] === name && one === number);
  const pairs = wanted.filter((pair) => placeIn(pair) >= 0);
  const missing = wanted.filter((pair) => placeIn(pair) < 0).map(([sweep, number]) => ({ sweep, number }));
  const rows = pairs.map((pair) => table.rows[placeIn(pair)]);
  const found = table.columns.map((column, i) => ({ ...column, values: rows.map((row) => row[i]) }))
    .filter((one) => !NOT_COMPARED.has(one.key) && one.values.some((value) => value !== null));
  const about = { group: "provenance", kind: "text", empty: false };
  const record = ([name, number]) => trials[name]?.[number]?.trial;
  for (const [key, title] of PROVENANCE) found.push({ ...about, key: `provenance.${key}`, title, values: pairs.map((pair) => record(pair)?.provenance[key] ?? null) });
  found.push({ ...about, key: "provenance.seed", title: "seed", values: pairs.map((pair) => record(pair)?.seed ?? null) });
  const rowsShown = found.map((one) => ({ ...one, differs: one.values.some((value) => JSON.stringify(value) !== JSON.stringify(one.values[0])) }));
  return { version: "", trials: pairs.map(([sweep, number]) => ({ sweep, number, plays: false, here: null, has_log: false })), left_out: 0, missing, rows: rowsShown };
}

/** The answer of /scatter: two or three columns of the trials that have the first two. `axes`: how each is drawn. */
export function scatterOf(table, axes, { x = "cost_seconds", y = "score", color, limit = 5000 }) {
  const places = Object.fromEntries(Object.entries({ x, y, color }).filter(([, key]) => key).map(([what, key]) => [what, placeOf(table, key, what)]));
  const rows = ordered(table, "number").filter((i) => table.rows[i][places.x] !== null && table.rows[i][places.y] !== null).slice(0, Number(limit));
  const drawn = Object.fromEntries(Object.entries(places).map(([what, place]) => {
    const { key, kind } = table.columns[place];
    const values = rows.map((i) => table.rows[i][place]);
    return [what, { ...axisOf(axes[key] || { key, kind, scale: "choices", choices: [...new Set(values)].filter((value) => value !== null).sort() }, values), values }];
  }));
  const state = placeOf(table, "state", "column");
  return {
    version: "", total: rows.length, state: rows.map((i) => table.rows[i][state]), ...drawn,
    trials: { sweep: { words: table.sweeps, codes: rows.map((i) => table.keys[i][0]) }, number: rows.map((i) => table.keys[i][1]) },
  };
}

/** An axis that ends where these values end, or the range that was searched; the kept one holds those of all sweeps. */
function axisOf(kept, values) {
  const axis = { ...kept, absent: values.includes(null) };
  const known = values.filter((value) => typeof value === "number").concat(axis.searched || []);
  if (axis.low === undefined || !known.length) return axis;
  return { ...axis, low: Math.min(...known), high: Math.max(...known) };
}

/** Places of the rows, sorted by keys between commas; "-" before one sorts downwards. Missing is last. */
function ordered(table, sort) {
  const keys = sort.split(",").filter(Boolean).map((key) => {
    const name = key.replace(/^-/, "").replaceAll("%2C", ",").replaceAll("%25", "%");
    return { place: placeOf(table, name, "sort"), down: key.startsWith("-") };
  });
  const rows = table.keys.map((_, i) => i);
  return rows.sort((a, b) => {
    for (const { place, down } of keys) {
      const found = compared(table.rows[a][place], table.rows[b][place], down);
      if (found) return found;
    }
    return a - b;
  });
}

function compared(a, b, down) {
  const [left, right] = [sortable(a), sortable(b)];
  if (left === null || right === null) return (left === null) - (right === null);
  if (typeof left !== typeof right) return typeof left === "number" ? -1 : 1;
  const found = left < right ? -1 : left > right ? 1 : 0;
  return down ? -found : found;
}

function sortable(value) {
  if (value === null || value === "nan") return null;
  if (value === "inf" || value === "-inf") return value === "inf" ? Infinity : -Infinity;
  if (typeof value === "boolean") return Number(value);
  return Array.isArray(value) ? value.join(" ") : value;
}

function placeOf(table, key, what) {
  const place = table.columns.findIndex((one) => one.key === key);
  if (place < 0) throw new ApiError(`${what}: there is no column '${key}'`, 400);
  return place;
}

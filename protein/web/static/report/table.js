// The table of a report: sorted, cut and compared in the browser, as protein/web/pages/table.py and compare.py do it on
// the server.

import { ApiError } from "../lib/api.js";

// Fields that identify a trial or only say when it ran, as in protein/web/pages/compare.py.
const NOT_COMPARED = new Set(["sweep", "number", "predicted_score_low", "predicted_score_high", "predicted_cost_seconds_low", "predicted_cost_seconds_high",
  "started_at", "finished_at", "note", "tags", "suggest_seconds", "continued_seconds"]);
const PROVENANCE = [["version", "version of protein"], ["git_commit", "git commit"], ["machine", "machine"]];

/** The answer of /table: some rows of these sweeps in an order. */
export function window(table, { sweep, sort = "-number", offset = 0, limit = 200, column }) {
  const order = ordered(table, sweep, sort);
  const shown = column === undefined || !column.length ? table.columns.map((one) => one.key) : [column].flat();
  const places = shown.map((key) => placeOf(table, key, "column"));
  const part = order.slice(Number(offset), Number(offset) + Number(limit));
  return {
    version: "report", total: order.length, matching: order.length, offset: Number(offset), schema: "report", columns: table.columns, shown, sweeps: table.sweeps,
    keys: part.map((i) => table.keys[i]), rows: part.map((i) => places.map((place) => table.rows[i][place])),
  };
}

/** The answer of /table.csv, as a text. */
export function csvOf(table, { sweep, sort = "-number", column }) {
  const { shown, rows } = window(table, { sweep, sort, column, limit: Infinity });
  return [shown, ...rows].map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

/** The answer of /compare: the selected trials side by side. `chosen`: sweep -> set of numbers. */
export function sideBySide(table, trials, chosen) {
  const pairs = [...chosen].flatMap(([name, numbers]) => [...numbers].map((number) => [name, number]));
  if (!pairs.length) throw new ApiError("no trial is selected; select two or more in the table", 400);
  const rows = pairs.map(([name, number]) => {
    const at = table.keys.findIndex(([place, one]) => table.sweeps[place] === name && one === number);
    if (at < 0) throw new ApiError(`sweep '${name}' has no trial ${number} in this report`, 404);
    return table.rows[at];
  });
  const found = table.columns.map((column, i) => ({ ...column, values: rows.map((row) => row[i]) }))
    .filter((one) => !NOT_COMPARED.has(one.key) && one.values.some((value) => value !== null));
  const about = { group: "provenance", kind: "text", empty: false };
  const record = ([name, number]) => trials[name]?.[number]?.trial;
  for (const [key, title] of PROVENANCE) found.push({ ...about, key: `provenance.${key}`, title, values: pairs.map((pair) => record(pair)?.provenance[key] ?? null) });
  found.push({ ...about, key: "provenance.seed", title: "seed", values: pairs.map((pair) => record(pair)?.seed ?? null) });
  const rowsShown = found.map((one) => ({ ...one, differs: one.values.some((value) => JSON.stringify(value) !== JSON.stringify(one.values[0])) }));
  return { version: "", trials: pairs.map(([sweep, number]) => ({ sweep, number })), rows: rowsShown };
}

/** The answer of /scatter: two or three columns of the trials that have the first two. `axes`: how each is drawn. */
export function scatterOf(table, axes, { sweep, x = "cost_seconds", y = "score", color, limit = 5000 }) {
  const names = [sweep].flat();
  const places = Object.fromEntries(Object.entries({ x, y, color }).filter(([, key]) => key).map(([what, key]) => [what, placeOf(table, key, what)]));
  const rows = ordered(table, names, "number").filter((i) => table.rows[i][places.x] !== null && table.rows[i][places.y] !== null).slice(0, Number(limit));
  const drawn = Object.fromEntries(Object.entries(places).map(([what, place]) => {
    const { key, kind } = table.columns[place];
    const values = rows.map((i) => table.rows[i][place]);
    return [what, { ...(axes[key] || { key, kind, scale: "choices", choices: [...new Set(values)].sort() }), values }];
  }));
  const state = placeOf(table, "state", "column");
  return {
    version: "", total: rows.length, state: rows.map((i) => table.rows[i][state]), ...drawn,
    trials: { sweep: { words: table.sweeps, codes: rows.map((i) => table.keys[i][0]) }, number: rows.map((i) => table.keys[i][1]) },
  };
}

/** Places of the rows of these sweeps, sorted by keys between commas; "-" before one sorts downwards. Missing is last. */
function ordered(table, sweep, sort) {
  const names = new Set([sweep].flat());
  const keys = sort.split(",").filter(Boolean).map((key) => {
    const name = key.replace(/^-/, "").replaceAll("%2C", ",").replaceAll("%25", "%");
    return { place: placeOf(table, name, "sort"), down: key.startsWith("-") };
  });
  const rows = table.keys.map((_, i) => i).filter((i) => names.has(table.sweeps[table.keys[i][0]]));
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

function csvCell(value) {
  if (value === null || value === undefined) return "";
  const text = Array.isArray(value) ? value.join(" ") : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

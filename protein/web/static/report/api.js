// The data of a report: what `ServerApi` (lib/api.js) asks the server for, answered from what the file carries along.
//
// `data` has
//   about    {name, written_at, version}: what the bar says
//   answers  address -> answer, for what is kept as the server gave it
//   refused  address -> the line with which the server has refused an answer
//   tables   sweep -> the answer of /table with all of its columns and trials
//   curves   sweep -> the answer of /curves for all of its trials
//   trials   sweep -> number -> the answer of /trial, without its curves
//   fronts   sweep -> the answer of /front for it
//   maps     sweep -> answers of /map for some pairs of parameters, without the trials, which those of /slices are
//   axes     key of a column -> how /scatter draws it
// What nothing here answers is an `ApiError` in one line, which pages show.

import { ApiError, address } from "../lib/api.js";
import { parse } from "../lib/selection.js";
import { csvOf, joined, scatterOf, sideBySide, window as rowsOf } from "./table.js";

const NOT_HELD = "this report does not hold that; look at the sweep with protein view";

/** Starts the page of a report (report/boot.js). */
export async function start(data) {
  globalThis.proteinApi = new ReportApi(data);
  await import("../app.js");
}

class ReportApi {
  live = false; // no news, and nothing can be changed

  constructor(data) {
    this.data = data;
    this.about = data.about;
    this.kept = {
      "/table": (asked) => rowsOf(this.table(asked.sweep), asked),
      "/trials": (asked) => {
        const { matching, sweeps, keys } = rowsOf(this.table(asked.sweep), { limit: Infinity, ...asked });
        return { matching, sweeps, keys };
      },
      "/front": (asked) => ({ version: "", sweeps: list(asked.sweep).map((name) => this.held(data.fronts[name])) }),
      "/front/config": (asked) => ({ params: this.params(asked.sweep, asked.number) }),
      "/front/within": (asked) => this.within(asked),
      "/curves": (asked) => this.curves(asked),
      "/trial": (asked) => this.trial(asked.sweep, Number(asked.number)),
      "/trial/log": () => { throw new ApiError("a report does not carry the trials' logs", 404); },
      "/trial/played": () => ({ state: "none", error: "" }),
      "/map": (asked) => this.map(asked),
      "/scatter": (asked) => scatterOf(this.table(asked.sweep), data.axes, asked),
      "/compare": (asked) => this.compare(parse(asked.sel)),
    };
  }

  async get(path, params = {}) {
    const asked = address(path, params);
    if (asked in this.data.answers) return this.data.answers[asked];
    if (asked in this.data.refused) throw new ApiError(this.data.refused[asked], 400);
    if (!(path in this.kept)) throw new ApiError(NOT_HELD, 404);
    if (params.filter) throw new ApiError("filter: a report cannot filter; do it with protein view", 400);
    return this.kept[path](params);
  }

  async post() {
    throw new ApiError("a report cannot be changed; use protein view", 403);
  }

  /** An address for a download: of the table, which is all that can be downloaded as a file of its own. */
  url(path, params = {}) {
    if (path !== "/table.csv") return "";
    return URL.createObjectURL(new Blob([csvOf(this.table(params.sweep), params)], { type: "text/csv" }));
  }

  watch() {
    return () => {};
  }

  /** The trials of one sweep, or of several below each other. */
  table(names) {
    return joined(list(names).map((name) => this.held(this.data.tables[name])));
  }

  compare(chosen) {
    if (!chosen.size) throw new ApiError("no trial is selected; select two or more in the table", 400);
    return sideBySide(this.table([...chosen.keys()]), this.data.trials, chosen);
  }

  held(answer) {
    if (answer === undefined) throw new ApiError(NOT_HELD, 404);
    return answer;
  }

  trial(sweep, number) {
    const kept = this.held(this.data.trials[sweep]?.[number]);
    const curves = new Map((this.data.curves[sweep]?.curves || []).map((one) => [one.number, one]));
    const run = kept.run.length ? kept.run.map((one) => one.number).filter((one) => one <= number) : [number];
    const drawn = run.map((one) => curves.get(one)).filter((one) => one?.value.length);
    return { ...kept, curves: drawn.map((one) => ({ number: one.number, num_points: one.points, steps: one.steps, seconds: one.own_seconds ?? one.seconds, value: one.value })) };
  }

  /** A map holds for both ways round: what lies across and what lies up can change places. */
  map({ sweep, x, y, seconds, at }) {
    const [name] = list(sweep);
    const slices = this.data.answers[address("/slices", { sweep: name })];
    const all = this.data.maps[name] || [];
    const same = all.find((one) => one.x.name === x && one.y.name === y);
    const turned = all.find((one) => one.x.name === y && one.y.name === x);
    if (seconds || at || !slices?.trials || !(same || turned)) throw new ApiError(`this report holds the maps of ${this.mapped(all)}; the others are in protein view`, 404);
    const found = same || turned;
    const trials = { ...slices.trials, closeness: found.closeness };
    if (same) return { ...same, trials };
    const grids = Object.fromEntries(["value", "low", "high", "cost_seconds", "valid"].map((key) => [key, transposed(turned[key])]));
    return { ...turned, ...grids, x: turned.y, y: turned.x, trials };
  }

  mapped(all) {
    return [...new Set(all.flatMap((one) => [one.x.name, one.y.name]))].join(", ") || "no parameters";
  }

  params(sweep, number) {
    const { columns, rows, sweeps, keys } = this.table(sweep);
    const at = keys.findIndex(([place, one]) => sweeps[place] === sweep && one === Number(number));
    if (at < 0) throw new ApiError(`sweep '${sweep}' has no such trial`, 400);
    const found = {};
    columns.forEach((column, i) => { if (column.group === "params" && rows[at][i] !== null) found[column.title] = rows[at][i]; });
    return found;
  }

  within({ sweep, least_cost: leastCost = -Infinity, most_cost: mostCost = Infinity, least_score: leastScore = -Infinity, most_score: mostScore = Infinity }) {
    const { columns, rows, sweeps, keys } = this.table(sweep);
    const place = (key) => columns.findIndex((one) => one.key === key);
    const [cost, score] = [place("run_seconds"), place("score")];
    const inside = (value, low, high) => typeof value === "number" && value >= low && value <= high;
    const numbers = keys.filter(([at], i) => sweeps[at] === sweep && inside(rows[i][cost], leastCost, mostCost) && inside(rows[i][score], leastScore, mostScore)).map(([, number]) => number);
    return { total: numbers.length, numbers };
  }

  /** As `protein/web/pages/curves.py` picks them. */
  curves({ sweep, pick = "best", sel = "", limit = 12, metric, group }) {
    if (metric) throw new ApiError("a report holds curves of the score alone", 404);
    const names = list(sweep);
    const { columns, rows, sweeps, keys } = this.table(names);
    const place = (key) => columns.findIndex((one) => one.key === key);
    const [scoreAt, startAt, excludedAt] = ["score", "started_at", "excluded"].map(place);
    const held = new Map(names.map((name) => [name, new Set(this.data.curves[name]?.curves.map((one) => one.number))]));
    const all = keys.map(([at, number], i) => ({ sweep: sweeps[at], number, row: rows[i] })).filter((one) => held.get(one.sweep).has(one.number));
    const quality = qualities(all, scoreAt, this.data.fronts);
    const best = all.filter((one) => quality.has(one) && !one.row[excludedAt]).sort((a, b) => quality.get(b) - quality.get(a) || a.number - b.number);
    const chosen = parse(sel);
    const wanted = {
      best: () => best,
      spread: () => spread(best),
      newest: () => all.toSorted((a, b) => (b.row[startAt] ?? 0) - (a.row[startAt] ?? 0) || b.number - a.number),
      selected: () => names.flatMap((name) => [...(chosen.get(name) || [])].map((number) => all.find((one) => one.sweep === name && one.number === number)).filter(Boolean)),
    }[pick]();
    const shown = wanted.slice(0, Number(limit));
    const found = shown.map((one) => this.data.curves[one.sweep]?.curves.find((curve) => curve.number === one.number)).filter(Boolean);
    const at = group ? place(group) : -1;
    const drawn = new Set(found.map((one) => `${one.number} ${one.sweep}`));
    return {
      version: "", total: wanted.length, metrics: [], curves: found,
      group: at < 0 ? null : { key: group, kind: columns[at].kind, values: shown.filter((one) => drawn.has(`${one.number} ${one.sweep}`)).map((one) => one.row[at]) },
    };
  }
}

/** For each trial with a score: 1 for the best one of its sweep, 1/2 for the second, 1/3 for the third, ... */
function qualities(all, scoreAt, fronts) {
  const found = new Map();
  for (const name of new Set(all.map((one) => one.sweep))) {
    const sign = fronts[name]?.direction === "minimize" ? -1 : 1;
    const scored = all.filter((one) => one.sweep === name && typeof one.row[scoreAt] === "number");
    scored.sort((a, b) => sign * (b.row[scoreAt] - a.row[scoreAt]));
    scored.forEach((one, i) => found.set(one, 1 / (1 + i)));
  }
  return found;
}

/** An order whose first few are spread evenly, for every first few: by the reversed bits of the position. */
function spread(items) {
  if (items.length <= 2) return items;
  const bits = Math.ceil(Math.log2(items.length));
  const reversed = Array.from({ length: 2 ** bits }, (_, i) => {
    let value = 0;
    for (let bit = 0; bit < bits; bit++) value |= ((i >> bit) & 1) << (bits - 1 - bit);
    return value;
  });
  return [...new Set([0, items.length - 1, ...reversed.filter((i) => i < items.length)])].map((i) => items[i]);
}

function transposed(rows) {
  return rows[0].map((_, i) => rows.map((row) => row[i]));
}

function list(value) {
  return Array.isArray(value) ? value : [value];
}

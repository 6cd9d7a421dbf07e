// Chosen trials side by side: what differs, and by how much from a reference.

import { throttled, tick as box } from "../lib/controls.js";
import { fill, h, stateOf } from "../lib/dom.js";
import { csv, saveMenu } from "../lib/export.js";
import { cell, clock, difference, number, seconds, tick, title } from "../lib/format.js";
import { TIME_STEPS, lines } from "../lib/lines.js";
import { game } from "../lib/game.js";
import { log } from "../lib/log.js";
import { stage } from "../lib/player.js";
import { scoreAxis } from "../lib/scales.js";
import { format } from "../lib/selection.js";
import { colors, onTheme } from "../lib/theme.js";

const MOST = 24;
const WATCHED = 4; // trials whose agents and logs stand side by side
const GROUPS = [["trial", "Result"], ["params", "Parameters"], ["metrics", "Final figures"], ["timings", "Times"], ["provenance", "Where it ran"]];
const ORDER = ["score", "cost_seconds", "run_seconds", "steps", "state", "end", "reason"];
const LOWER_IS_BETTER = new Set(["cost_seconds", "run_seconds"]);

export async function compareTrials(root, tools, context) {
  const { api, state, selection, signal, sweeps } = context;
  let found = null;
  let plot = null;
  let playing = new AbortController(); // ends the games that are shown
  signal.addEventListener("abort", () => playing.abort(), { once: true });
  let asked = 0; // an answer to an earlier question is not used
  const all = box("all rows", state.get("rows") === "all", (on) => state.set({ rows: on ? "all" : "" }));
  const table = h("div", { class: "side-by-side", tabindex: "0", role: "region", "aria-label": "Trials side by side" });
  const note = h("p", { class: "chart-note", role: "status" });
  const chartRoom = h("div", {});
  onTheme(() => drawCurves(), signal);
  context.keys.bind("a", "all rows, or only those that differ", () => { if (found) all.input.click(); }, signal);
  await load();

  async function load() {
    const mine = asked += 1;
    if (!selection.size) return empty();
    const pairs = selection.pairs();
    const sent = api.live ? pairs : pairs.slice(0, MOST); // the server takes the best
    const answer = await api.get("/compare", { sel: pairs.length > MOST && api.live ? format(byName(pairs)) : asText(sent) }, { signal });
    if (mine !== asked) return undefined;
    const missing = (answer.missing || []).map((one) => [one.sweep, one.number]);
    if (!answer.trials.length) return empty(missing);
    found = answer;
    const cost = found.rows.find((row) => row.key === "cost_seconds");
    found.rows = found.rows.filter((row) => row.key !== "run_seconds" || different(row.values, cost?.values));
    fill(tools, all.root, saveMenu(() => "comparison", { csv: () => asCsv() }));
    fill(root, h("section", { class: "chart-card", "aria-label": "Trials" }, h("div", { class: "chart-head" }, note), table),
      h("section", { class: "chart-card", "aria-label": "Their curves" }, h("div", { class: "chart-head" }, h("h2", { text: "Their learning curves" })), chartRoom));
    found.more = api.live ? answer.left_out : pairs.length - sent.length;
    if (missing.length) root.prepend(gone(missing));
    draw();
    if (found.trials.length <= WATCHED && found.trials.some((one) => one.plays || one.has_log)) root.append(watched(found.trials));
    const points = Math.min(4000, 2 * Math.max(300, chartRoom.clientWidth));
    const { curves } = await api.get("/curves", { sweep: [...new Set(found.trials.map((one) => one.sweep))], pick: "selected", sel: asText(found.trials.map((one) => [one.sweep, one.number])), limit: MOST, points }, { signal });
    if (mine !== asked) return undefined;
    found.curves = curves;
    await drawCurves();
    return undefined;
  }

  /** A few trials beside each other: the agent at play, and the log. */
  function watched(trials) {
    const several = new Set(trials.map((one) => one.sweep)).size > 1;
    return h("section", { class: "chart-card", "aria-label": "Side by side" }, h("div", { class: "chart-head" }, h("h2", { text: "At play, and their logs" })),
      games(trials.filter((one) => one.here), several),
      h("div", { class: "watched" }, trials.map(({ sweep, number, plays, here, has_log: logs }) => {
        const box = logs ? log(api, { sweep, number }, { runs: () => false, signal }) : null;
        return h("div", {}, h("h3", { text: name({ sweep, number }, several) }), plays && !here ? stage(api, { sweep, number }, signal) : null,
          box ? [h("div", { class: "toolbar" }, box.head), box.root] : h("p", { class: "muted", text: "It left no log." }));
      })));
  }

  /** The agents that can play in the page, those of one environment in one player: they play the same games. */
  function games(trials, several) {
    const envs = new Map();
    playing.abort();
    playing = new AbortController();
    for (const one of trials) envs.set(one.here, [...(envs.get(one.here) || []), { ...one, env: one.here, title: name(one, several) }]);
    return [...envs.values()].map((some) => game(api, some, playing.signal));
  }

  /** Says which of the selected trials are not there, and offers to leave them out. */
  function gone(missing) {
    const [name, number] = missing[0];
    return h("p", { class: "note-line", role: "status" }, missing.length === 1 ? `Sweep ${name} has no trial ${number}. ` : `${missing.length} of the selected trials are not there: trial ${number} of ${name} is the first. `,
      h("button", { type: "button", class: "button", text: missing.length === 1 ? "Leave it out" : "Leave them out", onclick: () => selection.change(missing, false) }));
  }

  function empty(missing = []) {
    found = null;
    plot = null;
    fill(tools);
    if (missing.length) {
      fill(root, gone(missing));
      return;
    }
    fill(root, stateOf("empty", "No trial is selected.", "Select rows in the table, or points on the front. They stand side by side here.",
      h("div", { class: "toolbar" }, h("button", { type: "button", class: "button", text: "Compare the best five", onclick: selectBest }),
        h("a", { class: "button", href: state.link("table"), text: "Go to the table" }))));
  }

  /** Selects the best measured trials of the first chosen sweep. */
  async function selectBest() {
    const [name] = state.sweeps;
    const minimize = sweeps.find((one) => one.name === name)?.direction === "minimize";
    const answer = await api.get("/table", { sweep: name, sort: minimize ? "score" : "-score", column: ["state", "score", "excluded"], limit: 200 }, { signal });
    const at = (key) => answer.shown.indexOf(key);
    const best = answer.rows.map((row, i) => [row, answer.keys[i][1]])
      .filter(([row]) => row[at("state")] === "complete" && row[at("score")] !== null && !row[at("excluded")]).slice(0, 5);
    if (best.length) {
      state.set({ ref: `${name}:${best[0][1]}` }, { silent: true });
      selection.set(best.map(([, number]) => [name, number]));
    } else context.notice(`No trial of ${name} is complete yet.`, { key: "best", seconds: 6 });
  }

  function reference() {
    const wanted = state.get("ref");
    const place = found.trials.findIndex((one) => `${one.sweep}:${one.number}` === wanted);
    return place < 0 ? 0 : place;
  }

  function draw() {
    const ref = reference();
    const several = new Set(found.trials.map((one) => one.sweep)).size > 1;
    const several2 = found.trials.length > 1;
    const every = state.get("rows") === "all" || !several2;
    const groups = GROUPS.map(([group, name]) => [name, ordered(found.rows.filter((row) => row.group === group && (every || row.differs)))])
      .filter(([, rows]) => rows.length);
    const same = found.rows.filter((row) => !row.differs).length;
    fill(note, found.trials.length === 1 ? "One trial is selected. Select more to see what differs."
      : [`${found.trials.length} trials against `, h("strong", { text: name(found.trials[ref], several) }), ". ",
        every ? "" : `${same} ${same === 1 ? "row is" : "rows are"} the same in all of them.`],
    found.more > 0 ? ` ${api.live ? `The best ${MOST}` : `The first ${MOST}`} of ${found.more + MOST} selected ones are shown.` : null);
    const head = h("tr", {}, h("th", { scope: "col", class: "row-name", text: "field" }), found.trials.map((one, i) => h("th", { scope: "col", class: i === ref ? "reference" : "" },
      h("a", { href: state.link("trial", {}, [one.sweep, String(one.number)]), text: several ? `${one.sweep} ${one.number}` : `trial ${one.number}` }),
      h("button", { type: "button", class: "mini", "aria-pressed": String(i === ref), title: "Compare the others with this one",
        text: i === ref ? "reference" : "make reference", onclick: () => state.set({ ref: `${one.sweep}:${one.number}` }) }),
      h("button", { type: "button", class: "mini", title: "Take it out of the comparison", "aria-label": `Take trial ${one.number} out`, text: "×",
        onclick: () => selection.toggle(one.sweep, one.number) }))));
    fill(table, h("table", { class: "compare" }, h("thead", {}, head), groups.map(([group, rows]) => h("tbody", {},
      h("tr", { class: "group" }, h("th", { scope: "rowgroup", class: "row-name", text: group }), h("td", { colspan: found.trials.length })),
      rows.map((row) => h("tr", { class: row.differs ? "differs" : "" }, h("th", { scope: "row", class: "row-name", text: title(row) }),
        row.values.map((value, i) => h("td", { class: i === ref ? "reference" : "", title: typeof value === "string" && value.length > 40 ? value : null },
          h("span", { class: row.group === "params" && i !== ref && different(value, row.values[ref]) ? "value changed" : "value", text: cell(row, value) }),
          i === ref ? null : [" ", change(row, value, row.values[ref])]))))))));
  }

  function name(one, several) {
    return several ? `${one.sweep} ${one.number}` : `trial ${one.number}`;
  }

  /** By how much a number differs from the reference: a factor where it is far from 1, else a difference. */
  function change(row, value, base) {
    const [x, y] = [number(value), number(base)];
    if (row.group === "provenance" || typeof value === "boolean" || x === null || y === null || x === y || !Number.isFinite(x) || !Number.isFinite(y)) return null;
    const factor = x / y;
    if (!Number.isFinite(factor) && y !== 0) return null; // too far apart for a number
    const asFactor = row.key !== "score" && row.key !== "predicted_score" && x > 0 && y > 0 && (factor >= 1.1 || factor <= 0.9);
    const plus = x > y ? "+" : "−";
    const amount = Math.abs(x - y);
    const text = asFactor ? `×${Math.abs(Math.log10(factor)) < 4 ? Number(factor.toPrecision(2)) : tick(Number(factor.toPrecision(2)))}` : `${plus}${/_seconds/.test(row.key) ? seconds(amount) : difference(amount, x)}`;
    return h("span", { class: `delta ${judged(row, x > y)}`, text });
  }

  function judged(row, higher) {
    if (LOWER_IS_BETTER.has(row.key)) return higher ? "bad" : "good";
    if (row.key !== "score") return "";
    const minimize = sweeps.find((one) => one.name === found.trials[0].sweep)?.direction === "minimize";
    return higher !== minimize ? "good" : "bad";
  }

  async function drawCurves() {
    if (!found?.curves) return;
    const drawn = found.curves.filter((one) => one.value.length);
    if (!drawn.length) {
      plot = null;
      fill(chartRoom, h("p", { class: "chart-note", text: "None of them has reported points of a learning curve." }));
      return;
    }
    const theme = colors();
    const several = new Set(found.trials.map((one) => one.sweep)).size > 1;
    const ref = found.trials[reference()];
    const series = drawn.map((one) => {
      const place = found.trials.findIndex((trial) => trial.sweep === one.sweep && trial.number === one.number);
      const isRef = one.sweep === ref.sweep && one.number === ref.number;
      return { key: `${one.sweep}/${one.number}`, label: name(one, several), color: isRef ? theme.text : theme.series[place % theme.series.length], width: isRef ? 2.2 : 1.5,
        x: one.seconds, y: one.value };
    });
    const options = { name: "curves of the compared trials", height: 260, signal, series, x: { label: "seconds of training", format: clock, incrs: TIME_STEPS },
      y: { ...scoreAxis([...new Set(found.trials.map((one) => one.sweep))].map((name) => sweeps.find((one) => one.name === name))), format: tick }, onClick: (one) => { const [sweep, trial] = split(one.key); state.go("trial", {}, [sweep, trial]); } };
    if (plot && chartRoom.contains(plot.room)) plot.set(options);
    else {
      fill(chartRoom);
      plot = await lines(chartRoom, options);
    }
    chartRoom.querySelector(".legend-row")?.remove();
    chartRoom.append(h("div", { class: "legend-row" }, series.map((one) => h("span", { class: "swatch-name" },
      h("span", { class: "line-swatch", style: { background: one.color } }), one.label))));
  }

  function asCsv() {
    const shown = state.get("rows") === "all" ? found.rows : found.rows.filter((row) => row.differs);
    return csv(["field", ...found.trials.map((one) => `${one.sweep} ${one.number}`)], shown.map((row) => [row.key, ...row.values]));
  }

  const soon = throttled(() => load().catch(report), 2000, signal);
  function report(error) {
    if (error.name !== "AbortError") context.notice(error.message, { kind: "warn", key: "compare" });
  }
  return {
    update: ({ numbers }) => { if (found?.trials.some((one) => numbers[one.sweep] === null || numbers[one.sweep]?.includes(one.number))) soon(); },
    async stateChanged(keys) {
      if (keys.includes("sel") || keys.includes("sweep")) await load().catch(report);
      else if (found) { draw(); await drawCurves(); }
    },
  };
}

function ordered(rows) {
  const place = (row) => { const i = ORDER.indexOf(row.key); return i < 0 ? ORDER.length : i; };
  return rows.map((row, i) => [row, i]).sort(([a, i], [b, j]) => place(a) - place(b) || i - j).map(([row]) => row);
}

function different(a, b) {
  return JSON.stringify(a) !== JSON.stringify(b);
}

function byName(pairs) {
  const found = new Map();
  for (const [name, one] of pairs) found.set(name, [...(found.get(name) || []), one]);
  return found;
}

/** The selection in its own order, as `format` does not keep it. */
function asText(pairs) {
  return [...byName(pairs)].map(([name, all]) => `${encodeURIComponent(name)}:${all.join(".")}`).join(",");
}

function split(key) {
  const at = key.lastIndexOf("/");
  return [key.slice(0, at), key.slice(at + 1)];
}

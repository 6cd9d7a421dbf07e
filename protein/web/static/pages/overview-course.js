// The lower part of the page Overview: how a sweep went, as a whole.

import { fill, h, stateOf } from "../lib/dom.js";
import { chart, chartCard, tip } from "../lib/echart.js";
import { percent, score, seconds, sentence, time } from "../lib/format.js";
import { Asking, follower } from "../lib/slow.js";
import { calibrationOption, historyOption, progressOption, timelineOption } from "../lib/sweep-charts.js";
import { commandLine, ENDS, KINDS, STATES, stateMark, trialLink } from "../lib/trials.js";

const PARTS = [
  ["front", "on the measured front", "series-1"], ["dominated_cheap", "cheap, and beaten by a cheaper trial: the price of searching", "series-6"],
  ["dominated_expensive", "expensive, and beaten by a cheaper trial: much of it is usual with noisy scores", "series-2"],
  ["cut_short", "cut short", "series-5"], ["failed", "failed", "series-7"], ["excluded", "excluded", "series-10"], ["running", "not finished yet", "series-3"],
  ["lost", "undone by interruptions, and spent again", "series-4"],
];

/** Draws how a sweep went into an element. Returns what brings it up to date. */
export function course(root, context) {
  const { api, state, signal, notice } = context;
  const name = state.sweeps[0];
  let found = null;
  const slow = {};
  const asking = new Asking();
  const rooms = {};
  const charts = {};
  // While the sweep runs, bars grow, and it may end.
  const followRunning = follower(() => found.life === "runs", async () => { await load(); draw(); }, signal);
  root.append(stateOf("loading", "Reading how the sweep went"));
  update();
  return { update };

  async function update() {
    try {
      await load();
    } catch (error) {
      if (error.name !== "AbortError") notice(error.message, { kind: "warn", key: "course", seconds: 8 });
      return;
    }
    if (signal.aborted) return;
    if (!rooms.timeline) build();
    draw();
    ask();
    followRunning();
  }

  async function load() {
    found = await api.get("/sweep", { sweep: name }, { signal });
  }

  function ask() {
    for (const [what, work] of [["outlook", drawOutlook], ["calibration", drawCalibration]]) {
      asking.whenReady(what, api, `/sweep/${what}`, { sweep: name }, signal, (answer) => { slow[what] = answer; work(); })
        .catch((error) => { if (error.name !== "AbortError") notice(error.message, { kind: "warn", key: what, seconds: 8 }); });
    }
  }

  function build() {
    for (const room of ["timeline", "history", "progress", "spending", "ends", "outlook", "calibration", "kinds", "facts"]) rooms[room] = h("div", { class: `room-${room}` });
    fill(root, h("h2", { class: "course-head", text: "How it went" }),
      rooms.timeline, h("div", { class: "sweep-grid" }, h("div", { class: "stack" }, rooms.history, rooms.progress, rooms.calibration, rooms.facts),
        h("div", { class: "stack" }, rooms.outlook, rooms.spending, rooms.ends, rooms.kinds)));
  }

  function draw() {
    drawTimeline();
    drawHistory();
    drawProgress();
    drawSpending();
    drawEnds();
    drawFacts();
  }

  async function drawn(key, title, make, height, more = {}) {
    if (charts[key]) {
      charts[key].set(make);
      if (height && charts[key].room.style.height !== `${height}px`) {
        charts[key].room.style.height = `${height}px`;
        charts[key].instance.resize();
      }
      return charts[key];
    }
    if (charts[key] === null) return null;
    charts[key] = null; // it is being made
    fill(rooms[key]);
    charts[key] = await chartCard(title, { root: rooms[key], name: `${key} of ${name}`, option: make, signal, height, notMerge: true, ...more });
    return charts[key];
  }

  async function drawTimeline() {
    const { timeline } = found;
    if (!timeline.bars.length) return fill(rooms.timeline, h("section", { class: "card" }, stateOf("empty", "No trial has been started yet.")));
    const made = await drawn("timeline", "When trials ran", (theme) => timelineOption(found, theme, (bar) => tip(bar.count > 1 ? `${bar.count} trials from ${bar.number}` : `trial ${bar.number}`, [
      ["state", bar.state === "pruned" ? "cut short" : bar.state], ...(bar.score === null ? [] : [["score", score(bar.score)]]), ["took", seconds(bar.end - bar.start)], ["started", time(bar.start)], ["process", bar.process || ""]])),
      Math.min(420, 88 + 22 * Math.max(1, timeline.lanes)), { csv: () => ({ header: ["worker", "first_trial", "trials", "state", "start", "end", "process"],
        rows: timeline.bars.map((bar) => [bar.lane, bar.number, bar.count, bar.state, bar.start, bar.end, bar.process]) }) });
    if (made && !made.listens) {
      made.listens = true;
      made.instance.on("click", (event) => { if (event.data?.bar) state.go("trial", {}, [name, String(event.data.bar.number)]); });
    }
    return undefined;
  }

  async function drawHistory() {
    const { history } = found;
    if (!history.number.length) return fill(rooms.history);
    const made = await drawn("history", "Score of each trial", (theme) => historyOption(found, theme, (i) => tip(`trial ${history.number[i]}`, [["state", STATES[history.state[i]]], ["score", score(history.score[i])]])), 280, {
      csv: () => ({ header: ["trial", "state", "score"], rows: history.number.map((number, i) => [number, history.state[i], history.score[i]]) }) });
    if (made && !made.listens) {
      made.listens = true;
      made.instance.on("click", (event) => { if (event.data?.i !== undefined) state.go("trial", {}, [name, String(found.history.number[event.data.i])]); });
    }
    return undefined;
  }

  async function drawProgress() {
    const { progress } = found;
    if (!progress.at.length) return fill(rooms.progress, card("Budget over time", h("p", { class: "muted", text: "No trial has ended yet." })));
    await drawn("progress", "Budget and best measured score over time", (theme) => progressOption(found, theme), 280, {
      csv: () => ({ header: ["finished_at", "trials", "spent_seconds", "best_measured"], rows: progress.at.map((at, i) => [at, progress.trials[i], progress.spent[i], progress.best[i]]) }) });
    return undefined;
  }

  function drawSpending() {
    const spent = found.spending;
    const parts = PARTS.filter(([key]) => spent[key] > 0);
    fill(rooms.spending, card("Where the budget went",
      spent.total > 0 ? h("div", { class: "shares", role: "img", "aria-label": parts.map(([key, title]) => `${title}: ${percent(spent[key] / spent.total)}`).join("; ") },
        parts.map(([key, title, color]) => h("span", { class: `share ${color}`, title: `${title}: ${percent(spent[key] / spent.total)}`, style: { flexGrow: String(1000 * spent[key] / spent.total) } }))) : h("p", { class: "muted", text: "Nothing was spent yet." }),
      h("table", { class: "facts" }, h("tbody", {}, parts.map(([key, title, color]) => h("tr", {}, h("th", { scope: "row" }, h("span", { class: `swatch ${color}`, "aria-hidden": "true" }), title),
        h("td", { class: "number", text: seconds(spent[key]) }), h("td", { class: "number muted", text: percent(spent[key] / spent.total) }))))),
      spent.expensive_above === null ? null : h("p", { class: "hint-line muted", text: `Expensive: over ${seconds(spent.expensive_above)}, the median of the trials that were trained to their end. Beaten: one of these cost no more and scored no worse.` })));
  }

  function drawEnds() {
    const failures = found.ends.filter((one) => one.end !== "complete");
    fill(rooms.ends, card("How trials ended", h("table", { class: "facts" },
      h("thead", {}, h("tr", {}, h("th", { text: "end" }), h("th", { class: "number", text: "trials" }), h("th", { class: "number", text: "cost" }))),
      h("tbody", {}, found.ends.map((one) => h("tr", {}, h("th", { scope: "row" }, stateMark(one.state, one.end.replaceAll("_", " ")), one.end === "complete" ? null : h("div", { class: "faint end-text" }, ENDS[one.end],
        one.teaches ? "" : "; the engine learns nothing from it", one.reasons.map(([reason, number]) => h("div", { class: "reason-line", title: reason, text: `${number > 1 ? `${number} times: ` : ""}${reason}` })),
        h("div", {}, "trials ", one.numbers.slice(-6).map((number, i) => [i ? ", " : "", trialLink(state, name, number)]), one.count > 6 ? " and earlier ones" : ""))),
        h("td", { class: "number", text: String(one.count) }), h("td", { class: "number", text: seconds(one.seconds) }))))),
      failures.length ? null : h("p", { class: "hint-line muted", text: found.ends.length ? "All trials were trained to their end." : "No trial has ended yet." })));
  }

  function drawOutlook() {
    const answer = slow.outlook;
    const head = "Is more training worth it?";
    if (answer.state === "failed") return fill(rooms.outlook, card(head, h("p", { class: "muted", text: sentence(answer.error) })));
    if (!answer.value) {
      return fill(rooms.outlook, card(head, answer.state === "computing" ? stateOf("loading", "The outlook is being computed.")
        : h("p", { class: "muted", text: found.method === "protein" ? "It needs eight different configs that were trained to their end." : "There is an outlook for sweeps of the method protein alone." })));
    }
    const gain = (rise) => h("span", { class: "faint", text: ` (0 to ${score(rise.high)})` });
    const better = found.direction === "minimize" ? "lower" : "higher";
    return fill(rooms.outlook, card(head, h("table", { class: "facts outlook" },
      h("thead", {}, h("tr", {}, h("th", { text: "next" }), h("th", { class: "number", text: `best score ${better} by` }), h("th", { class: "number", text: `front ${better} by` }))),
      h("tbody", {}, answer.value.spans.map((span) => h("tr", {}, h("th", { scope: "row", text: `${span.name} of training` }),
        h("td", { class: "number" }, answer.value.highest ? "it is the best possible score" : [score(span.best.expected), gain(span.best)]), h("td", { class: "number" }, score(span.front.expected), gain(span.front)))))),
      h("p", { class: "hint-line muted", text: "Expected gains of the true score, with 80 % intervals. Most short spans find nothing better. A few find much." }),
      answer.state === "computing" ? h("p", { class: "hint-line muted" }, h("span", { class: "spinner small", "aria-hidden": "true" }), "It is being computed again.") : null));
  }

  async function drawCalibration() {
    const answer = slow.calibration;
    const title = "How good the predictions were";
    if (!answer.value && charts.calibration) return undefined; // what is shown stays: the server has begun anew
    if (!answer.value) return fill(rooms.calibration, card(title, answer.state === "failed" ? h("p", { class: "muted", text: sentence(answer.error) }) : stateOf("loading", "The predictions are being compared.")));
    const parts = ["score", "cost"].filter((one) => answer.value[one].forecasts.number.length);
    if (!parts.length) return fill(rooms.calibration, card(title, h("p", { class: "muted", text: found.method === "protein" ? "Nothing was predicted yet. The first trials are the initial design, which needs no model." : `The method ${found.method} predicts nothing.` })));
    if (!charts.calibration) {
      charts.calibration = { grid: h("div", { class: "calibration" }) };
      fill(rooms.calibration, h("section", { class: "chart-card", "aria-label": title }, h("div", { class: "chart-head" }, h("h2", { text: title })), charts.calibration.grid));
    }
    for (const one of parts) {
      if (!charts.calibration[one]) {
        charts.calibration[one] = {}; // another answer may come while the chart is made
        const cell = h("div", {}, h("p", { class: "verdict" }));
        charts.calibration.grid.append(cell);
        const made = await chart(cell, { name: `predicted ${one} of ${name}`, option: (theme) => calibrationOption(slow.calibration.value[one], one, found, theme, describe(one)), signal, height: 250, notMerge: true,
          csv: () => { const all = slow.calibration.value[one].forecasts; return { header: Object.keys(all), rows: all.number.map((_, i) => Object.values(all).map((column) => column[i])) }; } });
        made.instance.on("click", (event) => { if (event.data?.number !== undefined) state.go("trial", {}, [name, String(event.data.number)]); });
        charts.calibration[one] = { made, cell };
        cell.append(h("div", { class: "cell-foot" }, made.menu));
      }
    }
    for (const one of parts) {
      const of = answer.value[one];
      const held = charts.calibration[one];
      if (!held?.made) continue;
      held.made.set((theme) => calibrationOption(of, one, found, theme, describe(one)));
      fill(held.cell.querySelector(".verdict"), sentence(of.verdict));
    }
    return undefined;
  }

  function describe(what) {
    const format = what === "score" ? score : seconds;
    return (all, i) => tip(`trial ${all.number[i]}`, [["measured", format(all.measured[i])], ["predicted", `${format(all.predicted[i])} (${format(all.low[i])} to ${format(all.high[i])})`]]);
  }

  function drawFacts() {
    const origin = found.provenance;
    const kinds = Object.entries(found.kinds).sort((a, b) => b[1] - a[1]);
    fill(rooms.kinds, card("Where configs came from", h("table", { class: "facts" }, h("tbody", {}, kinds.map(([kind, number]) => h("tr", {}, h("th", { scope: "row", text: KINDS[kind] || kind }), h("td", { class: "number", text: String(number) })))))));
    fill(rooms.facts, card("The sweep", h("table", { class: "facts plain" }, h("tbody", {}, [
        ["created", time(found.created_at)], ["searched values", String(found.parameters)], ["wall clock", seconds(found.wall_seconds)],
        ["the engine's own work", `${seconds(found.engine_seconds)}${found.spent_seconds > 0 ? `, ${percent(found.engine_seconds / found.spent_seconds, 1)} of the training` : ""}`], ["seed", String(found.seed)],
        ...(found.warm_start.length ? [["learns from", found.warm_start.join(", ")]] : []),
        ["version", origin.version], ["commit", origin.git_commit || "none"], ["machine", origin.machine],
      ].map(([key, value]) => h("tr", {}, h("th", { scope: "row", class: "muted", text: key }), h("td", { class: "break", text: value }))))),
      commandLine(found.command, "The same in a terminal")));
  }
}

function card(title, ...content) {
  return h("section", { class: "card sweep-card", "aria-label": title }, h("h2", { text: title }), content);
}

// Learning curves over each other: of the selected trials, or of the best, the newest, or some from best to worst. Further
// metrics stand beside the first, over the same x. Means of groups are drawn with a band of one standard deviation.

import { columnChoices, segments, select, slider, throttled, tick as box } from "../lib/controls.js";
import { fill, h, stateOf } from "../lib/dom.js";
import { cell, clock, count, counted, numbers, param, percent, score, seconds, tick, title } from "../lib/format.js";
import { endsOf, lines, TIME_STEPS, uplot } from "../lib/lines.js";
import { coloring, ramp, rampCss } from "../lib/coloring.js";
import { scoreAxisOf } from "../lib/scales.js";
import { colors, onTheme } from "../lib/theme.js";
import { unfinished } from "../lib/trials.js";

const FEW = 12; // curves that are shown until more are asked for
const STEPS = [12, 50, 200, 500];
const MOST_CHARTS = 6;
const PARTS = 4; // of a parameter with many values: groups of about as many trials each
const MEAN_POINTS = 300; // of the mean of a group
const FETCHED = ["pick", "n", "metric", "also", "group", "filter", "sel"]; // keys of the address that change what is asked for
const AXES = {
  steps: { label: "steps", format: count },
  seconds: { label: "seconds of training", format: clock, incrs: TIME_STEPS },
  fraction: { label: "share of the run", format: (value) => percent(value) },
};

export async function render(root, context) {
  const { api, state, selection, signal } = context;
  let found = null; // the server's answer for the first chart
  let charts = []; // {metric, found, plot, root, room, menu, title}, the first chart first
  let asked = 0;
  let unscored = false; // no trial has a score yet
  const notes = h("p", { class: "chart-note", role: "status" });
  const legend = h("div", { class: "curve-legend" });
  const room = h("div", { class: "curve-room" });
  const bar = h("div", { class: "toolbar" });
  const card = h("section", { class: "chart-card", "aria-label": "Learning curves" },
    h("div", { class: "chart-head" }, notes), room, legend);
  root.append(h("h1", { class: "visually-hidden", text: "Learning curves" }), bar, card);

  // The first trial may run for hours before there is a best one.
  const pick = () => state.get("pick") || (selection.size ? "selected" : unscored ? "newest" : "best");
  const limit = () => Math.min(Math.max(Number(state.get("n")) || FEW, 1), 500);
  const axis = () => (AXES[state.get("x")] ? state.get("x") : "steps");
  const smooth = () => Math.min(Math.max(Number(state.get("smooth")) || 0, 0), 0.99);

  const picks = segments("Which trials", [["best", "Best"], ["newest", "Newest"], ["spread", "Best to worst"], ["selected", "Selected"]],
    pick(), (value) => state.set({ pick: value }));
  const xs = segments("Horizontal axis", [["steps", "Steps"], ["seconds", "Seconds"], ["fraction", "Share"]], axis(),
    (value) => state.set({ x: value === "steps" ? "" : value }));
  const metric = select("Show", [["", "score"]], state.get("metric"), (value) => state.set({ metric: value }));
  const also = select("beside it", [["", "no more"]], "", (value) => state.set({ also: [...further(), value] }));
  const group = select("Colour", [["", "each its own"]], state.get("group"), (value) => state.set({ group: value }));
  const smoothing = slider("Smooth", { min: 0, max: 0.98, step: 0.02, value: smooth(), text: (value) => (value ? percent(value) : "off"),
    change: (value) => state.set({ smooth: value || "" }) });
  const logX = box("log x", state.get("logx") === "1", (on) => state.set({ logx: on ? 1 : "" }));
  const logY = box("log y", state.get("logy") === "1", (on) => state.set({ logy: on ? 1 : "" }));
  const means = box("mean ± spread", state.get("mean") === "1", (on) => state.set({ mean: on ? 1 : "" }));
  bar.append(picks.root, xs.root, metric.root, also.root, group.root, means.root, smoothing.root, logX.root, logY.root);

  context.keys.bind("x", "curves over steps, seconds or share", () => {
    const all = Object.keys(AXES);
    const next = all[(all.indexOf(axis()) + 1) % all.length];
    state.set({ x: next === "steps" ? "" : next });
  }, signal);
  context.keys.bind("l", "logarithmic values", () => { logY.input.checked = !logY.input.checked; state.set({ logy: logY.input.checked ? 1 : "" }); }, signal);
  context.keys.bind("m", "more curves", () => { const n = STEPS.find((one) => one > limit()); if (n && found.total > limit()) state.set({ n }); }, signal);
  let columns = [];
  const prepared = Promise.all([uplot(), api.get("/table", { sweep: state.sweeps, limit: 0 }, { signal }).then((answer) => {
    columns = answer.columns;
    group.set([["", "each its own"], ...columnChoices(columns, title)], state.get("group"));
  })]); // asked for together with the curves
  prepared.catch(() => {}); // it is awaited there
  onTheme(() => draw(), signal);
  await load();

  function further() {
    return [...new Set(state.getAll("also"))].filter((one) => one !== state.get("metric")).slice(0, MOST_CHARTS - 1);
  }

  async function load() {
    const mine = ++asked;
    const began = performance.now();
    const width = Math.max(300, room.clientWidth || root.clientWidth || 800);
    const shown = [state.get("metric"), ...further()];
    const curves = (which) => Promise.all(shown.map((one, i) => api.get("/curves", {
      sweep: state.sweeps, pick: which, sel: which === "selected" ? state.get("sel") : "", filter: state.get("filter"), limit: limit(),
      metric: one === "score" ? "" : one, group: state.get("group"), points: Math.min(4000, 2 * Math.ceil(width / 100) * 100),
    }, { signal }).catch((error) => {
      if (i && error.status >= 400 && error.status < 500) return null; // a link names a metric that is gone
      throw error;
    })));
    const usual = !state.get("pick") && !selection.size;
    let answers = await curves(usual ? "best" : pick());
    const young = usual && !answers[0].total;
    if (young) answers = await curves("newest");
    await prepared;
    if (mine !== asked || signal.aborted) return;
    unscored = young;
    [found] = answers;
    const known = found.metrics.map((name) => [name, name]);
    metric.set([["", "score"], ...known], state.get("metric"));
    const more = [...(state.get("metric") ? [["score", "score"]] : []), ...known].filter(([name]) => !shown.includes(name));
    also.set([["", further().length ? `${further().length} more` : "no more"], ...(shown.length < MOST_CHARTS ? more : [])], "");
    also.root.hidden = !known.length;
    const none = { ...found, curves: found.curves.map((one) => ({ ...one, steps: [], seconds: [], value: [] })) };
    arrange(shown, answers.map((answer) => answer || none));
    await draw();
    root.dataset.drawnMs = String(Math.round(performance.now() - began));
  }

  /** What a step of all shown trials is called. */
  function unit() {
    const all = new Set(found.curves.map((one) => one.unit || AXES.steps.label));
    return all.size === 1 ? [...all][0] : AXES.steps.label;
  }

  /** Makes a place for each chart; those that stay keep theirs. */
  function arrange(shown, answers) {
    const before = charts;
    charts = shown.map((metric, i) => {
      const kept = (i ? before.slice(1).find((one) => one.metric === metric) : before[0]) || placeOf(metric, i);
      kept.title.textContent = metric || "score";
      return Object.assign(kept, { metric, found: answers[i] });
    });
    for (const one of before) if (!charts.includes(one)) one.plot?.remove();
    room.classList.toggle("two-charts", charts.length > 1);
    if (charts.length !== room.children.length || charts.some((one, i) => room.children[i] !== one.root)) fill(room, charts.map((one) => one.root));
  }

  function placeOf(metric, i) {
    const menu = h("span", {});
    const inside = h("div", {});
    const away = h("button", { type: "button", class: "mini", text: "×", "aria-label": `Take the chart of ${metric} away`, onclick: () => state.set({ also: further().filter((one) => one !== metric) }) });
    const name = h("h2", {});
    const head = h("div", { class: "chart-head" }, name, i ? away : null, h("span", { class: "space" }), menu);
    return { metric, plot: null, room: inside, menu, title: name, root: h("div", {}, head, inside) };
  }

  async function draw() {
    if (!found) return;
    picks.set(pick());
    xs.set(axis());
    const name = unit();
    xs.root.querySelector("[data-value=steps]").textContent = name[0].toUpperCase() + name.slice(1);
    drawNotes();
    const made = charts.map((one) => series(one.found));
    const ends = charts.length > 1 ? endsOf(made.flatMap((one) => one.drawn)) : null;
    for (const [i, one] of charts.entries()) await drawChart(one, made[i], ends);
    if (found.curves.some((one) => one.value.length)) drawLegend(made[0]);
    else fill(legend);
    root.dataset.curves = String(found.curves.some((one) => one.value.length) ? found.curves.length : 0);
    root.dataset.points = String(found.curves.reduce((sum, one) => sum + one.value.length, 0));
  }

  async function drawChart(one, made, ends) {
    const { metric } = one;
    const values = made.drawn.flatMap((curve) => curve.y);
    const log = state.get("logy") === "1";
    const empty = !values.length ? nothing(one) : log && !values.some((value) => value > 0)
      ? stateOf("empty", `No value of ${metric || "score"} is above 0.`, "A logarithmic axis has no place for them.") : null;
    if (empty) {
      one.plot?.remove();
      one.plot = null;
      fill(one.menu);
      fill(one.room, empty);
      return;
    }
    const options = {
      name: `curves of ${state.sweeps.join(", ")}${metric ? `, ${metric}` : ""}`, signal,
      height: charts.length > 1 ? 270 : Math.max(300, Math.min(560, window.innerHeight - 360)),
      series: made.drawn, x: { ...AXES[axis()], ...(axis() === "steps" ? { label: unit() } : {}), log: state.get("logx") === "1", ends },
      y: { ...valueAxis(metric), format: tick, log },
      onHover: (curve) => light(curve?.trial), onClick: (curve) => { if (curve.trial) open(curve.trial); }, describe: (curve, index) => describe(curve, index, metric),
      onZoom: (part) => { for (const other of charts) if (other !== one) other.plot?.zoomX(part); },
    };
    if (one.plot) one.plot.set(options);
    else {
      fill(one.room);
      one.plot = await lines(one.room, options);
      fill(one.menu, one.plot.menu);
    }
  }

  /** Of a metric nobody knows which direction is better. */
  function valueAxis(metric) {
    return metric && metric !== "score" ? { label: metric } : scoreAxisOf(context);
  }

  function series(found) {
    const theme = colors();
    const many = found.curves.length > FEW;
    const byGroup = found.group && found.group.key === state.get("group");
    const values = byGroup ? numbersOr(found.group) : found.curves.map((one) => (typeof one.score === "number" ? one.score : null));
    const colored = byGroup || many ? coloring(values, theme.series, { kind: byGroup ? found.group.kind : "number", faint: theme.faint }) : null;
    const smoothBy = smooth();
    const drawn = [];
    const mean = state.get("mean") === "1";
    const trials = found.curves.map((one, i) => {
      const color = colored ? colored.of(values[i]) : seriesColor(theme, i);
      const trial = { ...one, color, grouped: byGroup ? values[i] : undefined, key: keyOf(one) };
      const x = along(one);
      const y = smoothBy ? smoothed(one.value, smoothBy) : one.value;
      if (smoothBy && !many && !mean) drawn.push({ key: `${trial.key}/raw`, label: `${name(one)}, as measured`, color: faded(color), width: 1, x, y: one.value, trial });
      drawn.push({ key: trial.key, label: name(one), color: mean ? faded(color) : color, width: many || mean ? 1 : 1.6, x, y, trial });
      return trial;
    });
    // What is drawn last lies above the others: the best one.
    const order = new Map(drawn.map((one, i) => [one, i]));
    drawn.sort((a, b) => a.key.endsWith("/raw") - b.key.endsWith("/raw") || order.get(b) - order.get(a));
    drawn.sort((a, b) => b.key.endsWith("/raw") - a.key.endsWith("/raw"));
    const groups = mean ? meansOf(drawn, byGroup ? found.group.kind : null, theme) : [];
    return { drawn: [...drawn, ...groups], trials, colored, many, groups };
  }

  /** A curve for each group, with its band. */
  function meansOf(drawn, kind, theme) {
    const parts = kind === null ? [{ label: "all shown", curves: drawn }] : groupsOf(drawn.filter((one) => one.y.length), (one) => one.trial.grouped, kind, shownValue);
    return parts.map(({ label, curves, share }, i) => {
      const mean = meanOf(curves.filter((one) => one.y.length));
      return { key: `mean/${label}`, label: `${label}: mean of ${counted(curves.length, "curve")}`, color: share === undefined ? theme.series[i % theme.series.length] : ramp(share), width: 2.4, ...mean };
    }).filter((one) => one.x.length);
  }

  function along(one) {
    if (axis() === "seconds") return one.seconds;
    if (axis() === "steps") return one.steps;
    const last = one.steps.at(-1) || 1;
    return one.steps.map((value) => value / last);
  }

  function drawNotes() {
    const { total } = found;
    const shown = found.curves.length;
    const what = { selected: "selected trials", best: "trials, the best first", newest: "trials, the newest first", spread: "trials, from best to worst" }[pick()];
    const more = STEPS.filter((n) => n > limit() && (n <= total || STEPS[STEPS.indexOf(n) - 1] < total));
    const without = found.curves.filter((one) => !one.value.length).length;
    fill(notes, !shown ? null : total > shown ? `${shown} of ${count(total)} ${what}` : `${shown} ${what}`,
      without ? `; ${without} without a curve` : null,
      more.length && total > limit() ? [" · show ", more.slice(0, 2).map((n, i) => [i ? ", " : "", h("button", { type: "button", class: "link",
        text: n >= total ? `all ${total}` : String(n), onclick: () => state.set({ n }) })])] : null,
      limit() > FEW ? [" · ", h("button", { type: "button", class: "link", text: "show 12", onclick: () => state.set({ n: "" }) })] : null);
  }

  function nothing({ metric, found }) {
    if (pick() === "selected" && !selection.size) {
      return stateOf("empty", "No trial is selected.", "Select rows in the table, draw a box on the front, or brush the parameters. Their curves appear here.",
        h("button", { type: "button", class: "button", text: "Show the best ones", onclick: () => state.set({ pick: "best" }) }));
    }
    if (metric && metric !== "score") return stateOf("empty", `No curve has ${metric}.`);
    if (found.curves.some((one) => one.points > 0)) return stateOf("empty", "These trials have no curve of the score.", `${unit() === "steps" ? "No episode ended" : "No score was measured"} while they trained. Show another field instead: the list at the top has all of them.`);
    if (pick() === "selected" || state.get("filter")) return stateOf("empty", "These trials have no curve.", "They have reported no points, or the filter leaves none of them.");
    if (["best", "spread"].includes(pick())) {
      if (found.curves.length) return stateOf("empty", "These trials have no curve.", "They have reported no points while they ran.");
      return stateOf("empty", "No trial has a score yet.", "The best trials are those whose final score is the best.",
        h("button", { type: "button", class: "button", text: "Show the newest ones", onclick: () => state.set({ pick: "newest" }) }));
    }
    return stateOf("empty", "No trial has reported points of a learning curve.", "Points that a trial reports while it trains appear here by themselves.");
  }

  function drawLegend({ trials: all, colored, groups }) {
    const trials = all.filter((one) => one.value.length);
    const about = state.get("group") && found.group ? groupTitle() : "score";
    const scale = colored && !Array.isArray(colored.legend)
      ? h("div", { class: "ramp-legend" }, h("span", { text: `${about} ` }), h("span", { text: shownValue(colored.legend.low) }),
        h("span", { class: "ramp", style: { background: rampCss() }, "aria-hidden": "true" }), h("span", { text: shownValue(colored.legend.high) }))
      : colored ? h("div", { class: "ramp-legend" }, h("span", { text: about }), colored.legend.map(([text, color]) => h("span", { class: "swatch-name" }, swatch(color), text)))
        : null;
    if (groups.length) {
      fill(legend, h("div", { class: "legend-row" }, groups.map((one) => h("span", { class: "swatch-name" }, swatch(one.color), one.label)),
        h("span", { class: "muted", text: "bands: one standard deviation; a mean ends where fewer than half of its curves go on" })));
      return;
    }
    const chips = trials.length > 2 * FEW ? null : h("ul", { class: "chips", "aria-label": "Curves" }, trials.map((one) => h("li", {},
      h("button", { type: "button", class: "chip", dataset: { key: one.key }, title: "Open this trial", onclick: () => open(one),
        onmouseenter: () => light(one), onmouseleave: () => light(null), onfocus: () => light(one), onblur: () => light(null) },
      swatch(one.color), h("span", { text: name(one) }),
      h("span", { class: "muted", text: one.grouped !== undefined ? shownValue(one.grouped) : unfinished(one) ? one.state : one.score === null ? one.state : score(one.score) })))));
    fill(legend, scale, chips);
  }

  function groupTitle() {
    const column = columns.find((one) => one.key === found.group.key);
    return column ? title(column) : found.group.key;
  }
  function shownValue(value) {
    const column = state.get("group") && found.group ? columns.find((one) => one.key === found.group.key) : null;
    return column ? cell(column, value) : score(value);
  }
  function name(one) {
    return state.sweeps.length > 1 ? `${one.sweep} ${one.number}` : `trial ${one.number}`;
  }
  function light(one) {
    for (const { plot } of charts) plot?.highlight(one ? one.key : null);
    for (const chip of legend.querySelectorAll(".chip")) chip.classList.toggle("lit", Boolean(one) && chip.dataset.key === one.key);
  }
  function open(one) {
    state.go("trial", {}, [one.sweep, String(one.number)]);
  }
  function describe(one, index, metric) {
    const { trial } = one;
    const place = [[AXES[axis()].label, AXES[axis()].format(one.x[index])], [metric || "score", score(one.y[index])]];
    if (!trial) return [one.label, [...place, ["one standard deviation", `${score(one.band.low[index])} to ${score(one.band.high[index])}`], ["curves here", String(one.count[index])]]];
    const more = [["final score", unfinished(trial) ? trial.state : score(trial.score)], ["cost", seconds(trial.cost_seconds)]];
    if (trial.grouped !== undefined) more.unshift([groupTitle(), shownValue(trial.grouped)]);
    return [one.label, [...place, ...more]];
  }

  const soon = throttled(() => load().catch(report), 1500, signal);
  function report(error) {
    if (error.name !== "AbortError") context.notice(error.message, { kind: "warn", key: "curves" });
  }
  return {
    update: () => soon(),
    stateChanged(keys) {
      const again = keys.some((key) => FETCHED.includes(key) && (key !== "sel" || pick() === "selected" || !state.get("pick")));
      return (again ? load() : draw()).catch(report);
    },
  };
}

function numbersOr(group) {
  return ["number", "integer", "time"].includes(group.kind) ? numbers(group.values) : group.values.map((one) => (one === null ? null : param(one)));
}

function keyOf(one) {
  return `${one.sweep}/${one.number}`;
}

function swatch(color) {
  return h("span", { class: "line-swatch", style: { background: color }, "aria-hidden": "true" });
}

/**
 * The mean of some curves and its band of one standard deviation: {x, y, band: {low, high}, count}. Between two points a
 * curve is the line through them; beyond its ends it is not counted. The mean ends where fewer than half go on.
 */
export function meanOf(curves, most = MEAN_POINTS) {
  const usable = curves.map((one) => one.x.map((x, i) => [x, one.y[i]]).filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y))).filter((one) => one.length);
  const made = { x: [], y: [], band: { low: [], high: [] }, count: [] };
  let places = [...new Set(usable.flat().map(([x]) => x))].sort((a, b) => a - b);
  if (places.length > most) {
    const [low, high] = [places[0], places[places.length - 1]];
    places = Array.from({ length: most }, (_, i) => low + ((high - low) * i) / (most - 1));
  }
  const next = usable.map(() => 0); // of each curve the first point at or behind the place
  for (const x of places) {
    const values = [];
    usable.forEach((points, k) => {
      while (next[k] < points.length && points[next[k]][0] < x) next[k] += 1;
      const [at, before] = [points[next[k]], points[next[k] - 1]];
      if (at && (at[0] === x || before)) values.push(at[0] === x ? at[1] : before[1] + ((at[1] - before[1]) * (x - before[0])) / (at[0] - before[0]));
    });
    if (!values.length || values.length < usable.length / 2) continue;
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const spread = values.length > 1 ? Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1)) : 0;
    made.x.push(x);
    made.y.push(mean);
    made.band.low.push(mean - spread);
    made.band.high.push(mean + spread);
    made.count.push(values.length);
  }
  return made;
}

/**
 * Curves by their value: each value is a group, in the order of the first curves. Of numbers with many values, `PARTS`
 * groups of about as many curves, the lowest first, each with its share from 0 to 1.
 */
export function groupsOf(curves, valueOf, kind, text) {
  const numeric = ["number", "integer", "time"].includes(kind);
  const groups = new Map();
  for (const one of curves) groups.set(valueOf(one), [...(groups.get(valueOf(one)) || []), one]);
  const known = [...groups].filter(([value]) => value !== null && value !== undefined && value === value);
  const none = [...groups].filter(([value]) => !known.some(([other]) => other === value)).flatMap(([, of]) => of);
  const rest = none.length ? [{ label: "no value", curves: none }] : [];
  if (numeric) known.sort(([a], [b]) => a - b);
  if (!numeric || known.length <= PARTS) return [...known.map(([value, of]) => ({ label: text(value), curves: of })), ...rest];
  const total = known.reduce((sum, [, of]) => sum + of.length, 0);
  const parts = [];
  let seen = 0;
  for (const [value, of] of known) { // equal values stay together
    const at = Math.min(PARTS - 1, Math.floor((PARTS * seen) / total));
    parts[at] = parts[at] ? { ...parts[at], to: value, curves: [...parts[at].curves, ...of] } : { from: value, to: value, curves: [...of] };
    seen += of.length;
  }
  const filled = parts.filter(Boolean);
  return [...filled.map(({ from, to, curves: of }, i) => ({ label: from === to ? text(from) : `${text(from)} to ${text(to)}`, curves: of, share: filled.length > 1 ? i / (filled.length - 1) : 1 })), ...rest];
}

/** An exponential mean, without the pull towards its first value. */
export function smoothed(values, weight) {
  let mean = 0;
  let total = 0;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return value;
    mean = weight * mean + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return mean / total;
  });
}

/** The colours of the theme, and then the same again, darker or lighter. */
function seriesColor({ series, text }, i) {
  const color = series[i % series.length];
  return i < series.length ? color : `color-mix(in srgb, ${color} 55%, ${text})`;
}

function faded(color) {
  return `color-mix(in srgb, ${color} 28%, transparent)`;
}

// Learning curves over each other: of the selected trials, or of the best, the newest, or some from best to worst.

import { columnChoices, segments, select, slider, throttled, tick as box } from "../lib/controls.js";
import { fill, h, stateOf } from "../lib/dom.js";
import { cell, clock, count, numbers, param, percent, score, seconds, tick, title } from "../lib/format.js";
import { TIME_STEPS, lines } from "../lib/lines.js";
import { coloring, rampCss } from "../lib/coloring.js";
import { colors, onTheme } from "../lib/theme.js";
import { unfinished } from "../lib/trials.js";

const FEW = 12; // curves that are shown until more are asked for
const STEPS = [12, 50, 200, 500];
const FETCHED = ["pick", "n", "metric", "group", "filter", "sel"]; // keys of the address that change what is asked for
const AXES = {
  steps: { label: "steps", format: count },
  seconds: { label: "seconds of training", format: clock, incrs: TIME_STEPS },
  fraction: { label: "share of the run", format: (value) => percent(value) },
};

export async function render(root, context) {
  const { api, state, selection, signal } = context;
  let found = null; // the server's answer
  let plot = null;
  let asked = 0;
  let unscored = false; // no trial has a score yet
  const notes = h("p", { class: "chart-note", role: "status" });
  const legend = h("div", { class: "curve-legend" });
  const room = h("div", { class: "curve-room" });
  const menuRoom = h("span", {});
  const bar = h("div", { class: "toolbar" });
  const card = h("section", { class: "chart-card", "aria-label": "Learning curves" },
    h("div", { class: "chart-head" }, notes, h("span", { class: "space" }), menuRoom), room, legend);
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
  const group = select("Colour", [["", "each its own"]], state.get("group"), (value) => state.set({ group: value }));
  const smoothing = slider("Smooth", { min: 0, max: 0.98, step: 0.02, value: smooth(), text: (value) => (value ? percent(value) : "off"),
    change: (value) => state.set({ smooth: value || "" }) });
  const logX = box("log x", state.get("logx") === "1", (on) => state.set({ logx: on ? 1 : "" }));
  const logY = box("log y", state.get("logy") === "1", (on) => state.set({ logy: on ? 1 : "" }));
  bar.append(picks.root, xs.root, metric.root, group.root, smoothing.root, logX.root, logY.root);

  context.keys.bind("x", "curves over steps, seconds or share", () => {
    const all = Object.keys(AXES);
    const next = all[(all.indexOf(axis()) + 1) % all.length];
    state.set({ x: next === "steps" ? "" : next });
  }, signal);
  context.keys.bind("l", "logarithmic values", () => { logY.input.checked = !logY.input.checked; state.set({ logy: logY.input.checked ? 1 : "" }); }, signal);
  context.keys.bind("m", "more curves", () => { const n = STEPS.find((one) => one > limit()); if (n && found.total > limit()) state.set({ n }); }, signal);
  const columns = (await api.get("/table", { sweep: state.sweeps, limit: 0 }, { signal })).columns;
  group.set([["", "each its own"], ...columnChoices(columns, title)], state.get("group"));
  onTheme(() => draw(), signal);
  await load();

  async function load() {
    const mine = ++asked;
    const began = performance.now();
    const width = Math.max(300, room.clientWidth || root.clientWidth || 800);
    const curves = (which) => api.get("/curves", {
      sweep: state.sweeps, pick: which, sel: which === "selected" ? state.get("sel") : "", filter: state.get("filter"), limit: limit(),
      metric: state.get("metric"), group: state.get("group"), points: Math.min(4000, 2 * Math.ceil(width / 100) * 100),
    }, { signal });
    const usual = !state.get("pick") && !selection.size;
    let answer = await curves(usual ? "best" : pick());
    const none = usual && !answer.total;
    if (none) answer = await curves("newest");
    if (mine !== asked || signal.aborted) return;
    unscored = none;
    found = answer;
    metric.set([["", "score"], ...found.metrics.map((name) => [name, name])], state.get("metric"));
    await draw();
    root.dataset.drawnMs = String(Math.round(performance.now() - began));
  }

  /** What a step of all shown trials is called. */
  function unit() {
    const all = new Set(found.curves.map((one) => one.unit || AXES.steps.label));
    return all.size === 1 ? [...all][0] : AXES.steps.label;
  }

  async function draw() {
    if (!found) return;
    picks.set(pick());
    xs.set(axis());
    const name = unit();
    xs.root.querySelector("[data-value=steps]").textContent = name[0].toUpperCase() + name.slice(1);
    drawNotes();
    if (!found.curves.some((one) => one.value.length)) {
      plot?.room.remove();
      plot = null;
      fill(menuRoom);
      fill(legend);
      fill(room, nothing());
      root.dataset.curves = "0";
      return;
    }
    const made = series();
    const options = {
      name: `curves of ${state.sweeps.join(", ")}`, height: Math.max(300, Math.min(560, window.innerHeight - 330)), signal,
      series: made.drawn, x: { ...AXES[axis()], ...(axis() === "steps" ? { label: unit() } : {}), log: state.get("logx") === "1" },
      y: { label: state.get("metric") || "score", format: tick, log: state.get("logy") === "1" },
      onHover: (one) => light(one?.trial), onClick: (one) => open(one.trial), describe,
    };
    if (plot) plot.set(options);
    else {
      fill(room);
      plot = await lines(room, options);
      fill(menuRoom, plot.menu);
    }
    drawLegend(made);
    root.dataset.curves = String(found.curves.length);
    root.dataset.points = String(found.curves.reduce((sum, one) => sum + one.value.length, 0));
  }

  function series() {
    const theme = colors();
    const many = found.curves.length > FEW;
    const byGroup = found.group && found.group.key === state.get("group");
    const values = byGroup ? numbersOr(found.group) : found.curves.map((one) => (typeof one.score === "number" ? one.score : null));
    const colored = byGroup || many ? coloring(values, theme.series, { kind: byGroup ? found.group.kind : "number", faint: theme.faint }) : null;
    const smoothBy = smooth();
    const drawn = [];
    const trials = found.curves.map((one, i) => {
      const color = colored ? colored.of(values[i]) : seriesColor(theme, i);
      const trial = { ...one, color, grouped: byGroup ? values[i] : undefined, key: keyOf(one) };
      const x = along(one);
      const y = smoothBy ? smoothed(one.value, smoothBy) : one.value;
      if (smoothBy && !many) drawn.push({ key: `${trial.key}/raw`, label: `${name(one)}, as measured`, color: faded(color), width: 1, x, y: one.value, trial });
      drawn.push({ key: trial.key, label: name(one), color, width: many ? 1 : 1.6, x, y, trial });
      return trial;
    });
    // What is drawn last lies above the others: the best one.
    const order = new Map(drawn.map((one, i) => [one, i]));
    drawn.sort((a, b) => a.key.endsWith("/raw") - b.key.endsWith("/raw") || order.get(b) - order.get(a));
    drawn.sort((a, b) => b.key.endsWith("/raw") - a.key.endsWith("/raw"));
    return { drawn, trials, colored, many };
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

  function nothing() {
    if (pick() === "selected" && !selection.size) {
      return stateOf("empty", "No trial is selected.", "Select rows in the table, draw a box on the front, or brush the parameters. Their curves appear here.",
        h("button", { type: "button", class: "button", text: "Show the best ones", onclick: () => state.set({ pick: "best" }) }));
    }
    if (state.get("metric")) return stateOf("empty", `No curve has ${state.get("metric")}.`);
    if (found.curves.some((one) => one.points > 0)) return stateOf("empty", "These trials have no curve of the score.", `${unit() === "steps" ? "No episode ended" : "No score was measured"} while they trained. Show another field instead: the list at the top has all of them.`);
    if (pick() === "selected" || state.get("filter")) return stateOf("empty", "These trials have no curve.", "They failed before their first measurement, or the filter leaves none of them.");
    if (["best", "spread"].includes(pick())) {
      return stateOf("empty", "No trial has a score yet.", "The best trials are those whose final score is the best.",
        h("button", { type: "button", class: "button", text: "Show the newest ones", onclick: () => state.set({ pick: "newest" }) }));
    }
    return stateOf("empty", "There is no learning curve yet.", "A trial reports its first points within seconds of its start. They appear here by themselves.");
  }

  function drawLegend({ trials, colored, many }) {
    const about = state.get("group") && found.group ? groupTitle() : "score";
    const scale = colored && !Array.isArray(colored.legend)
      ? h("div", { class: "ramp-legend" }, h("span", { text: `${about} ` }), h("span", { text: shownValue(colored.legend.low) }),
        h("span", { class: "ramp", style: { background: rampCss() }, "aria-hidden": "true" }), h("span", { text: shownValue(colored.legend.high) }))
      : colored ? h("div", { class: "ramp-legend" }, h("span", { text: about }), colored.legend.map(([text, color]) => h("span", { class: "swatch-name" }, swatch(color), text)))
        : null;
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
    plot?.highlight(one ? one.key : null);
    for (const chip of legend.querySelectorAll(".chip")) chip.classList.toggle("lit", Boolean(one) && chip.dataset.key === one.key);
  }
  function open(one) {
    state.go("trial", {}, [one.sweep, String(one.number)]);
  }
  function describe(one, index) {
    const { trial } = one;
    const place = [[AXES[axis()].label, AXES[axis()].format(one.x[index])], [state.get("metric") || "score", score(one.y[index])]];
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

// Parallel coordinates: a line for each trial. A stroke along an axis selects the trials that pass through it.

import { nothingYet } from "../lib/controls.js";
import { fill, h } from "../lib/dom.js";
import { chart } from "../lib/echart.js";
import { clock, count, numbers, param, power, score, tick } from "../lib/format.js";
import { coloring, rampCss, shortNames } from "../lib/coloring.js";
import { isLog, powerTicks, scoreAxisOf } from "../lib/scales.js";

const ABSENT = "no value"; // of a parameter that is not active in a trial
const HEAD = 16; // pixels: the height of a parameter's name
const ROOM = 0.14; // of an axis, below its range, for these
const TITLES = { cost_seconds: "cost", score: "score" };

export async function parallelCard(context, tools, room) {
  const { api, state, selection, signal } = context;
  let found = await load();
  const body = room();
  const note = h("p", { class: "chart-note", role: "status" });
  const ramp = h("div", { class: "ramp-legend" });
  body.append(ramp);
  let brushing = false;
  let order = []; // which trial each drawn line is of
  const phone = window.innerWidth < 700;
  const made = await chart(body, { name: `parallel coordinates of ${state.sweeps.join(", ")}`, option, signal, height: phone ? 90 + 54 * found.axes.length : 420,
    csv: () => ({ header: ["sweep", "trial", ...found.axes.map((one) => one.key)],
      rows: found.trials.number.map((number, i) => [nameOf(i), number, ...found.axes.map((one) => one.values[i])]) }) });
  fill(tools, note, h("span", { class: "space" }), made.menu);
  made.instance.on("axisareaselected", () => {
    const series = made.instance.getModel().getSeriesByIndex(0);
    const active = series.getRawIndicesByActiveState("active");
    const all = active.length === 0 || active.length === found.trials.number.length;
    brushing = true;
    selection.set(all ? [] : active.map((i) => [nameOf(order[i]), found.trials.number[order[i]]]));
    brushing = false;
    say();
  });
  redraw();

  function load() {
    return api.get("/parallel", { sweep: state.sweeps, filter: state.get("filter"), limit: 1000 }, { signal }).then((answer) => {
      if (answer.trials.number.length) return answer;
      throw nothingYet(state.get("filter") ? "No trial with a score matches the filter." : "No trial has a score yet. Lines appear here with the first one.");
    });
  }

  function nameOf(i) {
    return found.trials.sweep.words[found.trials.sweep.codes[i]];
  }

  function option(theme) {
    const short = shortNames(found.axes.map((one) => one.key.replace(/^params\./, "")));
    const scores = numbers(found.axes.find((one) => one.key === "score").values);
    const better = scoreAxisOf(context);
    const ranked = rank(scores, better.inverse);
    // Heads stand aslant, the steeper the closer the axes are, so that none lies over the next.
    const apart = ((body.clientWidth || 900) - 100) / Math.max(found.axes.length - 1, 1);
    const slope = Math.min(80, Math.max(18, (Math.asin(Math.min(1, HEAD / apart)) * 180) / Math.PI));
    const above = 16 + Math.round(150 * Math.sin((slope * Math.PI) / 180));
    const turned = (one) => one.key === "score" && better.inverse;
    const colors = coloring(ranked, theme.series, { faint: theme.faint });
    const chosen = selection.size > 0 && !brushing;
    // The best lie above the others, and the selected above all.
    order = ranked.map((_, i) => i).sort((a, b) => (chosen ? is(a) - is(b) : 0) || ranked[a] - ranked[b]);
    const dense = Math.min(1, 60 / Math.sqrt(found.trials.number.length + 1) / 6);
    const data = order.map((i) => ({
      value: found.axes.map((one) => valueAt(one, one.values[i])),
      lineStyle: chosen && !is(i) ? { color: theme.line, opacity: 0.6, width: 1 } : { color: colors.of(ranked[i]), opacity: chosen ? 0.95 : 0.25 + 0.65 * Math.max(dense, ranked[i] ** 4), width: chosen ? 1.8 : 1.2 },
    }));
    return {
      parallel: phone ? { layout: "vertical", left: 26, right: 30, top: 34, bottom: 30 } : { left: 44, right: 56, top: above, bottom: 22 },
      parallelAxis: found.axes.map((one, dim) => ({
        dim, z: 5, name: TITLES[one.key] || short[one.key.replace(/^params\./, "")], inverse: turned(one), nameLocation: phone !== turned(one) ? "start" : "end", nameGap: phone ? 6 : 14,
        type: one.scale === "choices" ? "category" : isLog(one) ? "log" : "value", logBase: one.scale === "pow2" ? 2 : 10,
        ...(one.scale === "choices" ? { data: [...(one.absent ? [ABSENT] : []), ...one.choices.map((value) => String(param(value)))] } : { min: lowest(one), max: one.high, scale: true }),
        nameTextStyle: phone ? { color: theme.text, fontSize: 12, textBorderColor: theme.surface, textBorderWidth: 3, align: "left", verticalAlign: "bottom", padding: [0, 0, 10, 0] }
          : { color: theme.text, fontSize: 12, align: "left", padding: [0, 0, 0, 0] },
        nameRotate: phone ? 0 : slope, nameTruncate: { maxWidth: 150 },
        axisLine: { lineStyle: { color: theme.muted } }, axisTick: { lineStyle: { color: theme.line }, ...ticks(one).axisTick }, minorTick: { show: false },
        axisLabel: { color: theme.text, fontSize: 11, textBorderColor: theme.surface, textBorderWidth: 3, hideOverlap: true, showMinLabel: true, showMaxLabel: true, formatter: (value) => axisText(one, value), ...ticks(one).axisLabel },
        splitLine: { show: false },
        areaSelectStyle: { width: 18, borderWidth: 1, borderColor: theme.accent, color: theme.accent, opacity: 0.2 },
      })),
      series: [{ type: "parallel", progressive: 0, data, inactiveOpacity: 0.04, activeOpacity: 0.95, lineStyle: { width: 1.2 },
        emphasis: { lineStyle: { width: 2.4, opacity: 1 } } }],
    };
  }

  function is(i) {
    return selection.has(nameOf(i), found.trials.number[i]) ? 1 : 0;
  }

  function redraw() {
    made.set(option);
    say();
    const scores = numbers(found.axes.find((one) => one.key === "score").values);
    const low = Math.min(...scores);
    const high = Math.max(...scores);
    const { label, inverse: minimize } = scoreAxisOf(context);
    fill(ramp, h("span", { text: label }), h("span", { text: score(minimize ? high : low) }), h("span", { class: "ramp", style: { background: rampCss() } }), h("span", { text: score(minimize ? low : high) }),
      h("span", { text: "by rank. Drag along an axis to select trials; click it to undo." }));
    body.dataset.lines = String(found.trials.number.length);
  }

  function say() {
    const shown = found.trials.number.length;
    fill(note, `${count(shown)}${shown < found.total ? ` of ${count(found.total)}` : ""} trial${found.total === 1 ? "" : "s"} with a score`,
      selection.size ? [`, ${selection.size} selected · `, h("button", { type: "button", class: "link", text: "clear", onclick: () => { clear(); selection.clear(); } }),
        " · ", h("a", { href: state.link("curves", { pick: "selected" }), text: "their curves" })] : null);
  }

  /** Takes away what was stroked along the axes. */
  function clear() {
    made.instance.clear();
    made.instance.setOption({});
    redraw();
  }

  return {
    async refresh() { found = await load(); redraw(); },
    selected() {
      if (brushing) return;
      if (selection.size) redraw();
      else clear(); // what was stroked along the axes selects nothing any more
    },
  };
}

/** Each score's share of the others that it beats, 0 to 1: one far outlier does not take all colours. */
export function rank(scores, minimize) {
  const order = scores.map((_, i) => i).sort((a, b) => (minimize ? scores[b] - scores[a] : scores[a] - scores[b]));
  const found = new Array(scores.length);
  order.forEach((i, place) => { found[i] = scores.length > 1 ? place / (scores.length - 1) : 1; });
  return found;
}

/** Where an axis begins: below its range where some trials have no value, so that their lines have a place there. */
function lowest(one) {
  if (!one.absent) return one.low;
  return isLog(one) ? one.low * (one.low / one.high) ** ROOM : one.low - ROOM * (one.high - one.low || 1);
}

/** Ticks of powers of two, and one for the trials that have no value. */
function ticks(one) {
  const found = powerTicks(one.scale, one.low, one.high);
  for (const of of one.absent ? [found.axisTick, found.axisLabel] : []) of.customValues?.unshift(lowest(one));
  return found;
}

/** Where a trial's line meets an axis. */
function valueAt(one, value) {
  if (one.scale === "choices") return value === null ? ABSENT : String(param(value));
  return value === null ? lowest(one) : value;
}

function axisText(one, value) {
  if (one.scale === "choices") return String(value).slice(0, 16);
  if (one.absent && value < one.low * (1 - 1e-9 * Math.sign(one.low))) return Math.abs(value / lowest(one) - 1) < 1e-6 ? ABSENT : "";
  if (one.scale === "pow2") return power(value);
  return one.key.endsWith("_seconds") ? clock(value) : tick(Number(Number(value).toPrecision(3)));
}

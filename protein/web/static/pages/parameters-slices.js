// The engine's model along each parameter, through one config: what it expects, how sure it is, and the trials.

import { answered } from "../lib/controls.js";
import { fill, h } from "../lib/dom.js";
import { chart } from "../lib/echart.js";
import { estimate, param, power, score, seconds, tick } from "../lib/format.js";
import { shortNames } from "../lib/coloring.js";
import { isLog, powerTicks, scoreAxisOf, scoreEnds } from "../lib/scales.js";
import { patient } from "../lib/slow.js";

const HEIGHT = 176; // of one slice
const LEAST_WIDTH = 250;

export async function slicesCard(context, tools, room) {
  const { api, state, selection, signal, showEnds } = context;
  let found = await load();
  const body = room();
  const note = h("p", { class: "chart-note" });
  const controls = anchorControls(context, () => found);
  const chartRoom = h("div", {});
  body.append(note, chartRoom);
  let columns = 1;
  const made = await chart(chartRoom, { name: `the model's slices of ${state.sweeps[0]}`, option, signal, height: 300, csv: table });
  fill(tools, h("span", { class: "space" }), controls, made.menu);
  made.instance.on("click", (event) => { if (event.seriesName?.startsWith("trials") && event.data) state.go("trial", {}, [state.sweeps[0], String(event.data.number)]); });
  const watcher = new ResizeObserver(() => { if (columnsNow() !== columns) redraw(); });
  watcher.observe(chartRoom);
  signal.addEventListener("abort", () => watcher.disconnect());
  redraw();

  function load() {
    return patient(api, "/slices", { sweep: state.sweeps, seconds: state.get("seconds"), at: state.get("at") }, signal).then(answered);
  }
  function columnsNow() {
    return Math.max(1, Math.min(5, Math.floor((chartRoom.clientWidth || 900) / LEAST_WIDTH)));
  }

  function redraw() {
    columns = columnsNow();
    const rows = Math.ceil(found.slices.length / columns);
    made.room.style.height = `${rows * HEIGHT + 12}px`;
    made.instance.resize();
    made.set(option);
    showEnds(found.range_ends);
    const through = found.anchor.number === null ? "the best expected config" : `trial ${found.anchor.number}`;
    fill(note, `Each slice goes through ${through}${costText()}, and moves one parameter. `,
      `Line: expected true ${scoreAxisOf(context).label}. Band: its 80 % interval. Dots: trials, the fainter the further they are from the slice. `,
      `The model has learnt from ${found.num_scores} scores.`, found.inactive.length ? ` Not active in this config: ${found.inactive.join(", ")}.` : null, found.basis === "score model" ? null : h("span", { class: "warn-text", text: ` ${found.basis}.` }));
    body.dataset.slices = String(found.slices.length);
  }

  function costText() {
    if (!found.seconds) return "";
    if (found.cost_parameter) return ` at a cost of ${seconds(found.seconds)}: ${found.cost_parameter} follows`;
    return found.anchor.number === null ? ` for ${seconds(found.seconds)} or less` : "";
  }

  function option(theme) {
    const short = shortNames(found.slices.map((one) => one.name));
    const ends = new Map(found.range_ends.map((one) => [one.name, one]));
    // All slices share one vertical scale: only so can they be compared. It is that of the lines and bands. Dots beyond
    // it, and the few places at which a line falls far below all others, are left out.
    const { inverse } = scoreAxisOf(context);
    const values = found.slices.flatMap((one) => ["low", "high"].flatMap((end) => one.estimates[end].filter((_, k) => one.valid[k])));
    const [low, high] = scoreEnds(values, inverse);
    const room = (high - low) * 0.05;
    const shown = [...found.slices].sort((a, b) => b.reach - a.reach);
    const width = 100 / columns;
    const grids = shown.map((_, i) => ({
      left: `${(i % columns) * width + (columns === 1 ? 11 : 3.4)}%`, width: `${width - (columns === 1 ? 14 : 4.6)}%`,
      top: Math.floor(i / columns) * HEIGHT + 30, height: HEIGHT - 64,
    }));
    return {
      grid: grids,
      tooltip: { trigger: "item", formatter: (event) => describe(event, shown) },
      title: shown.map((one, i) => ({ text: short[one.name] + (ends.has(one.name) ? " ⚑" : ""), left: grids[i].left, top: grids[i].top - 26,
        textStyle: { color: ends.has(one.name) ? theme.warn : theme.text, fontSize: 12.5, fontWeight: 600 } })),
      xAxis: shown.map((one, i) => ({ gridIndex: i, ...xAxis(one.axis), splitLine: { show: false }, axisLabel: { fontSize: 11, formatter: (value) => axisText(one.axis, value), ...xAxis(one.axis).axisLabel }, splitNumber: 3 })),
      yAxis: shown.map((_, i) => ({ gridIndex: i, type: "value", inverse, min: low - room, max: high + room, splitNumber: 3, axisLine: { show: false }, axisTick: { show: false },
        axisLabel: { fontSize: 11, formatter: (value) => (value < low - room * 0.9 || value > high + room * 0.9 ? "" : tick(Number(value.toPrecision(3)))) } })),
      series: shown.flatMap((one, i) => seriesOf(one, i, theme, [low - room, high + room])),
    };
  }

  function seriesOf(one, i, theme, [least, most]) {
    const at = { xAxisIndex: i, yAxisIndex: i };
    const x = one.axis.values.map((value) => place(one.axis, value));
    const { value, low, high } = one.estimates;
    const choices = one.axis.scale === "choices";
    const good = (list) => list.map((y, k) => [x[k], one.valid[k] ? y : null]);
    const trials = found.trials.number.map((number, k) => ({
      number, value: [place(one.axis, found.trials.params[one.name]?.[k]), found.trials.score[k]], close: one.closeness[k],
    })).filter((dot) => dot.value[0] !== null && dot.value[1] >= least && dot.value[1] <= most && dot.close > 0.02)
      .sort((a, b) => a.close - b.close);
    const band = choices
      ? { type: "custom", name: "interval", ...at, silent: true, z: 1, data: x.map((place_, k) => [place_, low[k], high[k]]), renderItem: errorBar(theme.series[0]), encode: { x: 0, y: [1, 2] } }
      : { type: "custom", name: "interval", ...at, silent: true, z: 1, clip: true, data: [0], renderItem: bandOf(good(low), good(high), theme.series[0]) };
    return [
      { type: "scatter", name: `trials of ${one.name}`, ...at, z: 2, symbolSize: (_, event) => (isSelected(event.data) ? 8 : 4.5), clip: true,
        data: trials.map((dot) => ({ ...dot, itemStyle: isSelected(dot) ? { color: theme.accent, opacity: 1, borderColor: theme.surface, borderWidth: 1 }
          : { color: theme.muted, opacity: 0.08 + 0.6 * dot.close ** 2 } })) },
      band,
      { type: "line", name: `model of ${one.name}`, ...at, z: 3, data: good(value), showSymbol: choices, symbolSize: 7, lineStyle: { width: choices ? 0 : 2, color: theme.series[0] },
        itemStyle: { color: theme.series[0] }, connectNulls: false, triggerLineEvent: true,
        markLine: { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: theme.muted, type: [3, 3], width: 1 },
          data: [{ xAxis: choices ? String(param(one.here)) : one.here }] } },
    ];
  }

  function isSelected(dot) {
    return selection.size > 0 && selection.has(state.sweeps[0], dot.number);
  }

  function describe(event, shown) {
    const one = shown.find((slice) => event.seriesName?.endsWith(` of ${slice.name}`));
    if (!one) return "";
    if (event.data?.number !== undefined) {
      const k = found.trials.number.indexOf(event.data.number);
      return box(`trial ${event.data.number}`, [[one.name, param(found.trials.params[one.name][k])], ["score", score(found.trials.score[k])]]);
    }
    const k = event.dataIndex ?? 0;
    return box(one.name, [["value", param(one.axis.values[k])], ["expected", estimate({ value: one.estimates.value[k], low: one.estimates.low[k], high: one.estimates.high[k] })],
      ["cost", seconds(one.cost_seconds[k])]]);
  }

  function table() {
    return { header: ["parameter", "value", "expected score", "low", "high", "cost in seconds"],
      rows: found.slices.flatMap((one) => one.axis.values.map((value, k) => [one.name, value, one.estimates.value[k], one.estimates.low[k], one.estimates.high[k], one.cost_seconds[k]])) };
  }

  return { async refresh() { found = await load(); redraw(); }, selected: () => made.set(option), fitting: () => found.fitting };
}

/** Which config slices and maps go through, and at which cost: both in the address. */
export function anchorControls({ state }, found) {
  const cost = h("input", { class: "input short", type: "text", inputmode: "decimal", placeholder: "any", "aria-label": "Cost in seconds of training", value: state.get("seconds"),
    onchange: () => state.set({ seconds: Number(cost.value) > 0 ? cost.value.trim() : "" }) });
  const at = h("input", { class: "input short", type: "text", inputmode: "numeric", placeholder: "best", "aria-label": "Trial that slices go through", value: state.get("at"),
    onchange: () => state.set({ at: /^\d+$/.test(at.value.trim()) ? at.value.trim() : "" }) });
  return h("div", { class: "toolbar" }, h("label", { class: "field" }, h("span", { class: "field-label", text: "through trial" }), at),
    found().cost_parameter || state.get("seconds") ? h("label", { class: "field" }, h("span", { class: "field-label", text: "at cost" }), cost, h("span", { class: "muted", text: "s" })) : null);
}

/** How an axis of the model is drawn by ECharts. */
export function xAxis(axis) {
  if (axis.scale === "choices") return { type: "category", data: axis.values.map((value) => String(param(value))) };
  const log = isLog(axis) && axis.values[0] > 0;
  const [min, max] = [axis.values[0], axis.values.at(-1)];
  return { type: log ? "log" : "value", logBase: 10, min, max, ...powerTicks(axis.scale, min, max) };
}

/** Where a value lies along such an axis; null where it has no place. */
export function place(axis, value) {
  if (value === null || value === undefined) return null;
  return axis.scale === "choices" ? String(param(value)) : Number(value);
}

export function axisText(axis, value) {
  if (axis.scale === "choices") return String(value).slice(0, 12);
  return axis.scale === "pow2" ? power(value) : tick(Number(Number(value).toPrecision(3)));
}

export function box(title, rows) {
  return h("div", { class: "tip-body" }, h("strong", { text: title }), h("table", {}, rows.map(([label, text]) => h("tr", {}, h("td", { class: "muted", text: label }), h("td", { text })))));
}

function bandOf(low, high, color) {
  return (_, api) => {
    const points = [...low, ...[...high].reverse()].filter(([, y]) => y !== null).map((point) => api.coord(point));
    return { type: "polygon", shape: { points }, style: { fill: color, opacity: 0.16 } };
  };
}

function errorBar(color) {
  return (_, api) => {
    const [x, y0] = api.coord([api.value(0), api.value(1)]);
    const [, y1] = api.coord([api.value(0), api.value(2)]);
    return { type: "rect", shape: { x: x - 7, y: y1, width: 14, height: y0 - y1, r: 3 }, style: { fill: color, opacity: 0.22 } };
  };
}

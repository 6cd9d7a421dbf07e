// Any two fields of the trials against each other, coloured by a third. A drawn box selects.

import { columnChoices, nothingYet, select } from "../lib/controls.js";
import { fill, h } from "../lib/dom.js";
import { chart } from "../lib/echart.js";
import { cell, clock, count, numbers, param, power, tick, time, title } from "../lib/format.js";
import { coloring, rampCss } from "../lib/coloring.js";
import { isLog, powerTicks, scoreAxisOf } from "../lib/scales.js";
import { box } from "./parameters-slices.js";

export async function scatterCard(context, tools, room) {
  const { api, state, selection, signal } = context;
  const columns = (await api.get("/table", { sweep: state.sweeps, limit: 0 }, { signal })).columns;
  const keys = () => {
    const x = known(state.get("x"), "cost_seconds");
    return { x, y: known(state.get("y"), "score", x), color: known(state.get("color"), firstParam()) };
  };
  const offered = () => columnChoices(columns, title).flatMap((group) => group.choices.map(([key]) => key));
  if (offered().length < 2) throw nothingYet("No two fields differ between trials yet.");
  let found = await load();
  const body = room();
  const choices = columnChoices(columns, title);
  const lists = {
    x: select("across", choices, keys().x, (value) => state.set({ x: value })),
    y: select("up", choices, keys().y, (value) => state.set({ y: value })),
    color: select("colour", choices, keys().color, (value) => state.set({ color: value })),
  };
  const note = h("p", { class: "chart-note", role: "status" });
  const legend = h("div", { class: "ramp-legend" });
  body.append(legend);
  let drawing = false;
  const boxButton = h("button", { type: "button", class: "button quiet", "aria-pressed": "false", text: "Draw a box to select", onclick: () => cursor(!drawing) });
  const made = await chart(body, { name: "scatter", option, signal, height: 380,
    csv: () => ({ header: ["sweep", "trial", found.x.key, found.y.key, found.color?.key || "colour"],
      rows: found.trials.number.map((number, i) => [nameOf(i), number, found.x.values[i], found.y.values[i], found.color?.values[i] ?? null]) }) });
  body.append(note);
  fill(tools, h("span", { class: "space" }), lists.x.root, lists.y.root, lists.color.root, boxButton, made.menu);
  made.instance.on("click", (event) => { if (event.data?.place !== undefined && !drawing) state.go("trial", {}, [nameOf(event.data.place), String(found.trials.number[event.data.place])]); });
  made.instance.on("brushEnd", (event) => {
    const area = event.areas?.[0];
    if (!area) return;
    const [[x0, x1], [y0, y1]] = area.coordRange;
    const inside = found.trials.number.map((_, i) => i).filter((i) => within(position(found.x, i), x0, x1) && within(position(found.y, i), y0, y1));
    made.instance.dispatchAction({ type: "brush", areas: [] });
    cursor(false);
    selection.set(inside.map((i) => [nameOf(i), found.trials.number[i]]));
  });
  redraw();

  function load() {
    const { x, y, color } = keys();
    return api.get("/scatter", { sweep: state.sweeps, x, y, color, filter: state.get("filter"), limit: 5000 }, { signal });
  }
  function known(key, otherwise, other = "") {
    const all = offered();
    return all.includes(key) ? key : all.includes(otherwise) ? otherwise : all.find((one) => one !== other); // failed trials have no score
  }
  function firstParam() {
    return columns.find((one) => one.group === "params" && one.kind !== "text")?.key || "score";
  }
  function nameOf(i) {
    return found.trials.sweep.words[found.trials.sweep.codes[i]];
  }
  function column(key) {
    return columns.find((one) => one.key === key);
  }
  function position(axis, i) {
    const value = axis.values[i];
    if (axis.scale === "choices") return axis.choices.map((one) => String(param(one))).indexOf(String(param(value)));
    return typeof value === "number" ? value : null;
  }
  function cursor(on) {
    drawing = on;
    boxButton.setAttribute("aria-pressed", String(on));
    made.instance.dispatchAction({ type: "takeGlobalCursor", key: "brush", brushOption: on ? { brushType: "rect", brushMode: "single" } : { brushType: false } });
  }

  function axis(one) {
    const of = column(one.key) || { key: one.key, title: one.key };
    const name = title(of);
    const text = (value) => (one.scale === "pow2" ? power(value) : of.kind === "time" ? (one.high - one.low < 86400 ? time(value).slice(11) : time(value).slice(5, 16)) : /_seconds$/.test(one.key) ? clock(value) : tick(Number(value.toPrecision(4))));
    if (one.scale === "choices") return { type: "category", name, data: one.choices.map((value) => String(param(value))), splitLine: { show: false } };
    const log = isLog(one);
    const ticks = powerTicks(one.scale, one.low, one.high);
    const room = log ? 1 : (one.high - one.low || 1) * 0.03;
    return { type: log ? "log" : "value", name, min: log ? one.low / 1.08 : one.low - room, max: log ? one.high * 1.08 : one.high + room,
      ...ticks, axisLabel: { showMinLabel: log, showMaxLabel: log, formatter: text, ...ticks.axisLabel } };
  }

  /** Better scores are at the top. */
  function better(key) {
    if (!["score", "predicted_score"].includes(key)) return {};
    const { label, inverse } = scoreAxisOf(context, title(column(key) || { key, title: key }));
    return { name: label, inverse };
  }

  function option(theme) {
    const colors = colored(theme);
    const chosen = selection.size > 0;
    const data = found.trials.number.map((_, i) => {
      const on = chosen && selection.has(nameOf(i), found.trials.number[i]);
      return { place: i, value: [position(found.x, i), position(found.y, i)], symbolSize: on ? 10 : 7,
        itemStyle: { color: colors ? colors.of(shown(i)) : theme.series[0], opacity: chosen && !on ? 0.18 : 0.85, borderColor: on ? theme.text : theme.surface, borderWidth: on ? 1.6 : 0.6 } };
    }).filter((dot) => dot.value[0] !== null && dot.value[1] !== null);
    if (chosen) data.sort((a, b) => a.itemStyle.opacity - b.itemStyle.opacity);
    return {
      grid: { left: 66, right: 18, top: 12, bottom: 52 },
      brush: { toolbox: [], xAxisIndex: 0, yAxisIndex: 0, throttleType: "debounce", throttleDelay: 100, brushStyle: { color: theme.accent, opacity: 0.14, borderColor: theme.accent, borderWidth: 1 }, outOfBrush: { colorAlpha: 1 } },
      toolbox: { show: false },
      tooltip: { trigger: "item", formatter: (event) => describe(event.data?.place) },
      xAxis: axis(found.x), yAxis: { ...axis(found.y), ...better(found.y.key), nameGap: 50 },
      series: [{ type: "scatter", data, progressive: 0, large: false }],
    };
  }

  function shown(i) {
    return ["number", "integer", "time"].includes(found.color.kind) ? numbers([found.color.values[i]])[0] : found.color.values[i] === null ? null : param(found.color.values[i]);
  }
  function colored(theme) {
    if (!found.color) return null;
    return coloring(found.trials.number.map((_, i) => shown(i)), theme.series, { kind: found.color.kind, faint: theme.faint });
  }
  function describe(i) {
    if (i === undefined) return "";
    const rows = [found.x, found.y, found.color].filter(Boolean).map((one) => [title(column(one.key) || { key: one.key, title: one.key }), cell(column(one.key) || {}, one.values[i])]);
    const name = state.sweeps.length > 1 ? `${nameOf(i)} ${found.trials.number[i]}` : `trial ${found.trials.number[i]}`;
    return box(name, [...rows, ["state", found.state[i]]]);
  }

  function redraw() {
    made.set(option);
    const colors = colored({ series: made.instance.getOption().color, faint: "#888888" });
    const about = found.color && (column(found.color.key) || { key: found.color.key, title: found.color.key });
    fill(legend, !colors ? null : Array.isArray(colors.legend)
      ? [title(about), colors.legend.map(([text, color]) => h("span", { class: "swatch-name" }, h("span", { class: "line-swatch", style: { background: color } }), text))]
      : [h("span", { text: title(about) }), h("span", { text: cell(about, colors.legend.low) }), h("span", { class: "ramp", style: { background: rampCss() } }), h("span", { text: cell(about, colors.legend.high) })]);
    say();
    body.dataset.dots = String(found.trials.number.length);
  }

  function say() {
    const dots = found.trials.number.length;
    if (!dots) return fill(note, "No trial has both fields.");
    return fill(note, `${count(dots)}${dots < found.total ? ` of ${count(found.total)}` : ""} ${found.total === 1 ? "trial" : "trials"}`, selection.size ? `, ${selection.size} selected` : "", ". A click opens a trial.");
  }

  return {
    async refresh() {
      for (const [which, list] of Object.entries(lists)) list.set(choices, keys()[which]);
      found = await load();
      redraw();
    },
    selected: redraw,
  };
}

function within(value, a, b) {
  return value !== null && value >= Math.min(a, b) && value <= Math.max(a, b);
}

// The engine's model over two parameters: what it expects, and how unsure it is, side by side.

import { answered, select } from "../lib/controls.js";
import { fill, h } from "../lib/dom.js";
import { chart } from "../lib/echart.js";
import { estimate, param, score, seconds } from "../lib/format.js";
import { ramp, rampCss, shortNames } from "../lib/coloring.js";
import { patient } from "../lib/slow.js";
import { axisText, box, place, xAxis } from "./parameters-slices.js";

export async function mapCard(context, tools, room) {
  const { api, state, selection, signal, sweeps } = context;
  const names = (await patient(api, "/slices", { sweep: state.sweeps, seconds: state.get("seconds"), at: state.get("at") }, signal).then(answered)).slices
    .sort((a, b) => b.reach - a.reach).map((one) => one.name);
  if (names.length < 2) throw Object.assign(new Error("the sweep has one parameter, and a map needs two"), { status: 400 });
  const chosen = () => {
    const x = names.includes(state.get("mapx")) ? state.get("mapx") : names.find((one) => one !== state.get("mapy"));
    const y = names.includes(state.get("mapy")) && state.get("mapy") !== x ? state.get("mapy") : names.find((one) => one !== x);
    return [x, y];
  };
  let found = await load();
  const body = room();
  const short = shortNames(names);
  const choices = names.map((name) => [name, short[name]]);
  const x = select("across", choices, chosen()[0], (value) => state.set({ mapx: value, mapy: chosen()[1] === value ? chosen()[0] : chosen()[1] }));
  const y = select("up", choices, chosen()[1], (value) => state.set({ mapy: value, mapx: chosen()[0] === value ? chosen()[1] : chosen()[0] }));
  const legend = h("div", { class: "ramp-legend" });
  const chartRoom = h("div", {});
  body.append(legend, chartRoom);
  const narrow = () => (chartRoom.clientWidth || 900) < 640;
  const made = await chart(chartRoom, { name: `the model of ${state.sweeps[0]} over two parameters`, option, signal, height: narrow() ? 720 : 400, csv: table });
  fill(tools, h("span", { class: "space" }), x.root, y.root, made.menu);
  made.instance.on("click", (event) => { if (event.data?.number !== undefined) state.go("trial", {}, [state.sweeps[0], String(event.data.number)]); });
  redraw();

  function load() {
    const [nameX, nameY] = chosen();
    return patient(api, "/map", { sweep: state.sweeps, x: nameX, y: nameY, seconds: state.get("seconds"), at: state.get("at") }, signal).then(answered);
  }

  function ranges() {
    const flat = (rows) => rows.flatMap((row, j) => row.filter((_, i) => found.valid[j][i]));
    const values = flat(found.value);
    const widths = flat(found.high.map((row, j) => row.map((high, i) => (high - found.low[j][i]) / 2)));
    return { low: Math.min(...values), high: Math.max(...values), least: Math.min(...widths), most: Math.max(...widths) };
  }

  function option(theme) {
    const { low, high, least, most } = ranges();
    const minimize = sweeps.find((one) => one.name === state.sweeps[0])?.direction === "minimize";
    const share = (value) => (high > low ? (minimize ? high - value : value - low) / (high - low) : 0.5);
    const split = narrow();
    const grids = split
      ? [{ left: 58, right: 14, top: 30, height: 270 }, { left: 58, right: 14, top: 390, height: 270 }]
      : [{ left: "5%", width: "42%", top: 30, bottom: 50 }, { left: "55%", width: "42%", top: 30, bottom: 50 }];
    const cells = [];
    found.value.forEach((row, j) => row.forEach((value, i) => { if (found.valid[j][i]) cells.push([i, j]); }));
    const dots = found.trials.number.map((number, k) => ({
      number, value: [place(axisOf("x"), found.trials.params[found.x.name][k]), place(axisOf("y"), found.trials.params[found.y.name][k])], close: found.trials.closeness[k], score: found.trials.score[k],
    })).filter((dot) => dot.close > 0.02 && dot.value[0] !== null && dot.value[1] !== null);
    const map = (i, color) => [
      { type: "custom", name: "model", xAxisIndex: i, yAxisIndex: i, data: cells, z: 1, clip: true, renderItem: cellOf(color), encode: { x: -1, y: -1 } },
      { type: "scatter", name: "trials", xAxisIndex: i, yAxisIndex: i, z: 3, clip: true, data: dots.map((dot) => ({ ...dot, symbolSize: isSelected(dot) ? 10 : 4 + 4 * dot.close,
        itemStyle: { color: isSelected(dot) ? theme.accent : "transparent", opacity: isSelected(dot) ? 1 : 0.15 + 0.85 * dot.close, borderColor: theme.page, borderWidth: 1.4 } })) },
      { type: "scatter", name: "here", xAxisIndex: i, yAxisIndex: i, z: 4, silent: true, symbol: "path://M-1,-8L1,-8L1,-1L8,-1L8,1L1,1L1,8L-1,8L-1,1L-8,1L-8,-1L-1,-1Z", symbolSize: 15,
        itemStyle: { color: theme.text, borderColor: theme.surface, borderWidth: 1.2 }, data: [[place(axisOf("x"), found.x.here), place(axisOf("y"), found.y.here)]] },
    ];
    return {
      grid: grids,
      tooltip: { trigger: "item", formatter: describe },
      title: ["expected score", "uncertainty: half the 80 % interval"].map((text, i) => ({ text, left: grids[i].left, top: grids[i].top - 26, textStyle: { color: theme.muted, fontSize: 12.5, fontWeight: 400 } })),
      xAxis: [0, 1].map((i) => ({ gridIndex: i, ...xAxis(found.x), name: short[found.x.name], splitLine: { show: false }, axisLabel: { formatter: (value) => axisText(found.x, value), ...xAxis(found.x).axisLabel } })),
      yAxis: [0, 1].map((i) => ({ gridIndex: i, ...xAxis(found.y), name: short[found.y.name], nameGap: 46, splitLine: { show: false }, axisLabel: { formatter: (value) => axisText(found.y, value), ...xAxis(found.y).axisLabel } })),
      series: [...map(0, (i, j) => ramp(share(found.value[j][i]))),
        ...map(1, (i, j) => ramp(most > least ? ((found.high[j][i] - found.low[j][i]) / 2 - least) / (most - least) : 0.5))],
    };
  }

  function axisOf(which) {
    return found[which];
  }

  /** A cell reaches half-way to its neighbours. */
  function cellOf(color) {
    return (params, api) => {
      const [i, j] = [api.value(0), api.value(1)];
      const [left, right] = edges(found.x, i, (value) => api.coord([value, place(found.y, found.y.values[0])])[0], () => api.size([1, 1])[0]);
      const [bottom, top] = edges(found.y, j, (value) => api.coord([place(found.x, found.x.values[0]), value])[1], () => -api.size([1, 1])[1]);
      const { x, y, width, height } = params.coordSys;
      const [x0, x1] = [Math.max(left, x), Math.min(right, x + width)];
      const [y0, y1] = [Math.max(top, y), Math.min(bottom, y + height)];
      return { type: "rect", shape: { x: x0, y: y0, width: x1 - x0 + 0.6, height: y1 - y0 + 0.6 }, style: { fill: color(i, j) } };
    };
  }

  function edges(axis, k, at, size) {
    const here = at(place(axis, axis.values[k]));
    if (axis.scale === "choices") return [here - size() / 2, here + size() / 2];
    const before = k > 0 ? at(axis.values[k - 1]) : here;
    const after = k < axis.values.length - 1 ? at(axis.values[k + 1]) : here;
    return [(here + before) / 2, (here + after) / 2];
  }

  function describe(event) {
    if (event.data?.number !== undefined) {
      return box(`trial ${event.data.number}`, [[found.x.name, param(found.trials.params[found.x.name][found.trials.number.indexOf(event.data.number)])],
        [found.y.name, param(found.trials.params[found.y.name][found.trials.number.indexOf(event.data.number)])], ["score", score(event.data.score)]]);
    }
    if (!Array.isArray(event.data) || event.seriesName !== "model") return "";
    const [i, j] = event.data;
    return box("model", [[found.x.name, param(found.x.values[i])], [found.y.name, param(found.y.values[j])],
      ["expected", estimate({ value: found.value[j][i], low: found.low[j][i], high: found.high[j][i] })], ["cost", seconds(found.cost_seconds[j][i])]]);
  }

  function isSelected(dot) {
    return selection.size > 0 && selection.has(state.sweeps[0], dot.number);
  }

  function redraw() {
    made.set(option);
    const { low, high, least, most } = ranges();
    const minimize = sweeps.find((one) => one.name === state.sweeps[0])?.direction === "minimize";
    fill(legend, h("span", { text: "score" }), h("span", { text: score(minimize ? high : low) }), h("span", { class: "ramp", style: { background: rampCss() } }), h("span", { text: score(minimize ? low : high) }),
      h("span", { text: `· uncertainty ${score(least)} to ${score(most)} · cross: the config that the map goes through · rings: trials` }));
    body.dataset.map = `${found.x.name}|${found.y.name}`;
  }

  function table() {
    return { header: [found.x.name, found.y.name, "expected score", "low", "high", "cost in seconds"],
      rows: found.value.flatMap((row, j) => row.map((value, i) => [found.x.values[i], found.y.values[j], value, found.low[j][i], found.high[j][i], found.cost_seconds[j][i]])) };
  }

  return {
    async refresh() {
      const [nameX, nameY] = chosen();
      x.set(choices, nameX);
      y.set(choices, nameY);
      found = await load();
      redraw();
    },
    selected: () => made.set(option),
    fitting: () => found.fitting,
  };
}

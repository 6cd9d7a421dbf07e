// The charts of how a sweep went: trials on a time line, budget and best score over time, predicted against measured.

import { score, seconds, tick } from "./format.js";
import { duration, durationAxis, evenAxis, place, scoreAxis, scoreEnds, short } from "./scales.js";
import { stateColor } from "./trials.js";

/** Wall-clock times without the spans in which nothing ran: each of them becomes a short piece with a mark. */
export function compressed(gaps, begin, end) {
  const left = gaps.reduce((sum, [from, to]) => sum + to - from, 0);
  const piece = gaps.length ? (end - begin - left) * Math.min(0.03, 0.3 / gaps.length) : 0;
  const at = (moment) => {
    let shift = 0;
    for (const [from, to] of gaps) {
      if (moment >= to) shift += to - from - piece;
      else if (moment > from) return from - begin - shift + ((moment - from) / (to - from)) * piece;
    }
    return moment - begin - shift;
  };
  return { at, marks: gaps.map(([from, to]) => ({ at: at(from) + piece / 2, width: piece, seconds: to - from })), length: at(end) };
}

export function timelineOption(found, theme, describe) {
  const { bars, lanes, gaps } = found.timeline;
  const begin = Math.min(...bars.map((bar) => bar.start));
  const end = Math.max(...bars.map((bar) => bar.end));
  const line = compressed(gaps, begin, end);
  const data = bars.map((bar) => ({ value: [line.at(bar.start), line.at(bar.end), bar.lane], bar }));
  return {
    grid: { left: 64, right: 16, top: 10, bottom: 42 },
    tooltip: { trigger: "item", formatter: (one) => (one.data?.bar ? describe(one.data.bar) : "") },
    xAxis: evenAxis(line.length, { name: gaps.length ? "time since the start, without the time in which nothing ran" : "time since the start" }),
    yAxis: { type: "category", data: Array.from({ length: lanes }, (_, i) => (lanes > 12 && i % 4 ? "" : `worker ${i + 1}`)), inverse: true, nameGap: 0, axisTick: { show: false }, axisLine: { show: false }, splitLine: { show: false },
      axisLabel: { fontSize: 11.5 } },
    series: [{
      type: "custom", data, encode: { x: [0, 1], y: 2 }, clip: true, cursor: "pointer",
      renderItem: (params, api) => {
        const [x0, y] = api.coord([api.value(0), api.value(2)]);
        const [x1] = api.coord([api.value(1), api.value(2)]);
        const height = Math.min(18, Math.max(3, api.size([0, 1])[1] * 0.72));
        const width = Math.max(1.2, x1 - x0 - (x1 - x0 > 4 ? 1 : 0));
        return { type: "rect", shape: { x: x0, y: y - height / 2, width, height, r: width > 6 ? 2.5 : 0 },
          style: { fill: stateColor(data[params.dataIndex].bar.state, theme), opacity: 0.75 }, emphasis: { style: { opacity: 1 } } };
      },
      markLine: { silent: true, symbol: "none", animation: false, lineStyle: { color: theme.faint, type: "dotted" },
        data: line.marks.map((mark) => ({ xAxis: mark.at, label: { formatter: `${short(mark.seconds)} off`, color: theme.faint, fontSize: 11, position: "insideEndTop" } })) },
    }],
  };
}

export function progressOption(found, theme) {
  const { progress, max_cost_seconds: budget } = found;
  const begin = Math.min(...found.timeline.bars.map((bar) => bar.start));
  const line = compressed(found.timeline.gaps, begin, Math.max(...found.timeline.bars.map((bar) => bar.end)));
  const at = progress.at.map((moment) => line.at(moment));
  const total = progress.spent[progress.spent.length - 1];
  const { label, inverse } = scoreAxis([found], "best measured score");
  const best = progress.best.map((value, i) => [at[i], value]).filter(([, value]) => value !== null);
  return {
    grid: { left: 62, right: 62, top: 36, bottom: 48 }, legend: {},
    tooltip: { trigger: "axis", formatter: (all) => all.map((one) => `${one.seriesName}: ${one.seriesName === "spent" ? seconds(one.value[1]) : score(one.value[1])}`).join(", ") },
    xAxis: evenAxis(line.length, { name: "time since the start" }),
    yAxis: [
      evenAxis(budget && budget < 3 * total ? Math.max(budget, total) : total * 1.05, { name: "spent" }),
      { type: "value", name: label, scale: true, splitNumber: 4, position: "right", nameRotate: 270, splitLine: { show: false }, inverse, axisLabel: { formatter: tick } },
    ],
    series: [
      { type: "line", name: "spent", data: [[0, 0], ...progress.spent.map((value, i) => [at[i], value])], showSymbol: false, lineStyle: { width: 2, color: theme.series[0] }, itemStyle: { color: theme.series[0] }, areaStyle: { opacity: 0.07, color: theme.series[0] },
        ...(budget ? { markLine: { silent: true, symbol: "none", animation: false, lineStyle: { color: theme.muted, type: "dashed" }, label: { formatter: `budget ${short(budget)}`, color: theme.muted, position: "insideStartTop" }, data: [{ yAxis: budget }] } } : {}) },
      { type: "line", name: "best measured score", yAxisIndex: 1, step: "end", data: best.length ? [...best, [line.length, best[best.length - 1][1]]] : [], showSymbol: false, lineStyle: { width: 2, color: theme.series[1] }, itemStyle: { color: theme.series[1] } },
    ],
  };
}

/** Score against trial number, with the best measured score so far. A few far worse ones stand at the edge. */
export function historyOption({ history, direction }, theme, describe) {
  const { label, inverse } = scoreAxis([{ direction }]);
  const ends = scoreEnds(history.score.filter((value) => value !== null), inverse);
  const span = ends[1] - ends[0];
  const [low, high] = inverse ? [ends[0] - 0.05 * span, ends[1] + 0.1 * span] : [ends[0] - 0.1 * span, ends[1] + 0.05 * span];
  const worst = inverse ? high - 0.04 * span : low + 0.04 * span; // where those stand that have no score, or a far worse one
  const last = history.number.reduce((a, b) => Math.max(a, b), 0);
  const size = history.number.length > 1500 ? 3 : history.number.length > 300 ? 5 : 7;
  const beyond = (value) => (inverse ? value > high : value < low);
  const group = (name, wanted, style) => ({ type: "scatter", name, symbolSize: size, cursor: "pointer", z: 3, ...style,
    data: history.number.flatMap((number, i) => (wanted(i) ? [{ i, value: [number, history.score[i] === null || beyond(history.score[i]) ? worst : history.score[i]],
      ...(history.score[i] !== null && beyond(history.score[i]) ? { symbol: "triangle", symbolRotate: 180 } : {}) }] : [])) });
  const best = history.best.number.map((number, i) => [number, history.best.score[i]]);
  const scored = (state) => (i) => !history.excluded[i] && history.score[i] !== null && history.state[i] === state;
  const series = [
    group("trials", scored("complete"), { itemStyle: { color: theme.faint, opacity: 0.7 } }),
    group("cut short", scored("pruned"), { itemStyle: { color: "transparent", borderColor: theme.warn, borderWidth: 1.4 } }),
    group("excluded", (i) => history.excluded[i] && history.score[i] !== null, { symbol: "diamond", itemStyle: { color: "transparent", borderColor: theme.faint, borderWidth: 1, borderType: "dotted" } }),
    group("failed", (i) => history.score[i] === null, { symbol: "path://M-4,-4L4,4M-4,4L4,-4", symbolKeepAspect: true, itemStyle: { color: "transparent", borderColor: theme.bad, borderWidth: 1.6 } }),
    { type: "line", name: "best measured so far", step: "end", z: 4, silent: true, showSymbol: best.length < 2, symbolSize: 4, lineStyle: { width: 2, color: theme.series[1] }, itemStyle: { color: theme.series[1] },
      data: best.length ? [...best, [last, best[best.length - 1][1]]] : [] },
  ].filter((one) => one.data.length);
  return {
    grid: { left: 62, right: 16, top: 36, bottom: 46 },
    legend: { data: series.map(({ name, type, symbol = "circle" }) => (type === "scatter" ? { name, icon: symbol } : { name })) },
    tooltip: { trigger: "item", formatter: (one) => (one.data?.i === undefined ? "" : describe(one.data.i)) },
    xAxis: { type: "value", name: "trial", min: -0.5 - 0.02 * last, max: last + 0.5 + 0.02 * last, minInterval: 1, axisLabel: { showMinLabel: false, showMaxLabel: false, formatter: (value) => (Number.isInteger(value) ? String(value) : "") } },
    yAxis: { type: "value", name: label, inverse, min: low, max: high, splitNumber: 4, axisLabel: { showMinLabel: false, showMaxLabel: false, formatter: tick, ...(history.score.some((value) => value !== null) ? {} : { show: false }) } },
    series,
  };
}

/** Measured values against predicted ones, with the predicted intervals. On the diagonal the prediction was right. */
export function calibrationOption(of, what, sweep, theme, describe) {
  const all = of.forecasts;
  const log = what === "cost";
  const plain = (value) => (log ? place(value) : value);
  const measured = all.measured.map(plain);
  const [low, high] = [measured.reduce((a, b) => Math.min(a, b)), measured.reduce((a, b) => Math.max(a, b))];
  const room = (high - low || 1) * 0.25; // a prediction far from all that was measured stands at the edge
  const ends = [low - room, high + room];
  const to = (value) => Math.min(ends[1], Math.max(ends[0], plain(value)));
  // Both axes of scores are turned where lower is better: the best are at the top right.
  const axis = (words, more) => {
    if (log) return { ...durationAxis(duration(ends[0]), duration(ends[1])), name: words, ...more };
    const { label, inverse } = scoreAxis([sweep], words);
    return { type: "value", min: ends[0], max: ends[1], name: label, inverse, splitNumber: 4, axisLabel: { showMinLabel: false, showMaxLabel: false }, ...more };
  };
  const inside = all.measured.map((value, i) => value >= all.low[i] && value <= all.high[i]);
  return {
    grid: { left: 62, right: 14, top: 32, bottom: 46 }, legend: {},
    tooltip: { trigger: "item", formatter: (one) => (one.data?.i === undefined ? "" : describe(all, one.data.i)) },
    xAxis: axis(`predicted ${what}`, { splitNumber: 3 }), yAxis: axis(`measured ${what}`),
    series: [
      { type: "line", silent: true, showSymbol: false, data: [[ends[0], ends[0]], [ends[1], ends[1]]], lineStyle: { color: theme.muted, width: 1, type: "dashed" }, z: 1 },
      { type: "custom", silent: true, z: 1, clip: true, encode: { x: [0, 1], y: 2 }, data: all.number.map((_, i) => [to(all.low[i]), to(all.high[i]), to(all.measured[i])]),
        renderItem: (params, api) => {
          const [a, y] = api.coord([api.value(0), api.value(2)]);
          const [b] = api.coord([api.value(1), api.value(2)]);
          return { type: "line", shape: { x1: a, y1: y, x2: b, y2: y }, style: { stroke: inside[params.dataIndex] ? theme.faint : theme.warn, lineWidth: 1, opacity: all.number.length > 300 ? 0.18 : 0.4 } };
        } },
      ...[["in the 80 % interval", true, theme.series[0]], ["outside", false, theme.warn]].map(([name, wanted, color]) => ({
        type: "scatter", name, symbolSize: all.number.length > 300 ? 4 : 6, itemStyle: { color, opacity: 0.8 }, cursor: "pointer",
        data: all.number.map((number, i) => ({ value: [to(all.predicted[i]), to(all.measured[i])], number, i })).filter(({ i }) => inside[i] === wanted) })),
    ],
  };
}

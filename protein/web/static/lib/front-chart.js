// The chart of score against cost: ECharts' option for some sweeps, their fronts and their predictions. The report uses
// it, too. x values are places on an axis of durations (scales.js). All stands on one clock: trials at what they would have
// cost if no other program had had their cores, as the expected front does. A faint tail reaches to the measured cost.

import { score, seconds } from "./format.js";
import { durationAxis, LEAST, place, scoreAxis, short } from "./scales.js";

const TAIL = 1.02; // a measured cost that is higher by this factor has a tail
const MAX_PREDICTIONS = 1500; // lines; of more only those of the front are drawn

/**
 * `sweeps` and `expected` as the server gives them; `layers`: a set of expected, measured, predicted; `chosen`: the best
 * config of each sweep for the limit `under`; `zoom`: [x0, x1, y0, y1], or not four numbers; `formatter`: of the tooltip.
 */
export function frontOption({ sweeps, expected, layers, theme, selection, under, chosen, zoom, formatter }) {
  const drawn = sweeps.flatMap((sweep) => sweep.points.score.map((value, i) => [sweep.points.calm_seconds[i], value])).filter(([cost]) => cost !== null);
  const ends = sweeps.flatMap((sweep) => (expected.get(sweep.name)?.value?.front || []).map((one) => Math.max(one.cost_seconds, LEAST)));
  const waited = sweeps.flatMap((sweep) => tails(sweep).map((i) => sweep.points.run_seconds[i]));
  const costs = [...drawn.map(([cost]) => cost), ...ends, ...waited].map((cost) => Math.max(cost, LEAST));
  const scored = drawn.filter(([, value]) => value !== null).map(([cost]) => Math.max(cost, LEAST));
  const scores = drawn.map(([, value]) => value).filter((value) => value !== null);
  // The axis begins at the cheapest score. A trial that failed at once would leave half of it empty, so it stands at its end.
  let [low, high] = [least(scored.length ? [...scored, ...ends] : costs, 1), most(costs, 10)];
  const stretch = Math.max(1.06, (high / low) ** 0.03);
  [low, high] = high / low < 1.3 ? [low / 1.3, high * 1.3] : [low / stretch, high * stretch];
  const [bottom, top] = room(least(scores, 0), most(scores, 1));
  const zoomed = zoom.length === 4 && zoom.every(Number.isFinite);
  const axis = zoomed ? durationAxis(10 ** zoom[0], 10 ** zoom[1]) : durationAxis(low, high);
  const edge = zoomed ? zoom[1] : place(high);
  const begin = zoomed ? -Infinity : place(low);
  const { label, inverse } = scoreAxis(sweeps);
  const floor = inverse ? (zoomed ? zoom[3] : top) : zoomed ? zoom[2] : bottom;
  const several = sweeps.length > 1;
  const series = [];
  sweeps.forEach((sweep, k) => {
    const color = several ? theme.series[k % theme.series.length] : theme.series[0];
    const name = (text) => (several ? `${sweep.name}: ${text}` : text);
    const front = expected.get(sweep.name)?.value?.front || [];
    if (tails(sweep).length) series.push(tailLines(sweep, theme, name));
    if (layers.has("predicted")) series.push(...predictions(sweep, theme, name));
    series.push(...points(sweep, theme, several ? color : null, [begin, floor], name, selection));
    if (layers.has("measured") && sweep.front.length) series.push(measured(sweep, several ? color : theme.series[1], edge, name, several));
    if (layers.has("expected") && front.length) series.push(...steps(sweep, front, color, edge, name));
  });
  const picked = (chosen || []).filter(({ one }) => one);
  if (picked.length) series.push(stars(picked, sweeps, theme));
  if (under !== null && under !== undefined) {
    series.push({ type: "line", name: "limit", data: [], silent: true, markLine: { symbol: "none", silent: true, animation: false,
      lineStyle: { color: theme.muted, type: "dashed" }, label: { formatter: `under ${short(under)}`, color: theme.muted, position: "insideEndTop" }, data: [{ xAxis: place(under) }] } });
  }
  return {
    grid: { left: 64, right: 22, top: several ? 40 : 36, bottom: 52 },
    legend: { data: legend(series), selectedMode: true },
    tooltip: { trigger: "item", formatter, enterable: false },
    xAxis: { ...axis, name: waited.length ? "cost: seconds of training without other programs; tails: as measured" : "cost: seconds of training" },
    yAxis: { type: "value", name: label, min: zoomed ? zoom[2] : bottom, max: zoomed ? zoom[3] : top, inverse, axisLabel: { show: scores.length > 0 } },
    series,
  };
}

/**
 * A zoom, [x0, x1, y0, y1], on the best quarter of the scores of trials that were trained to their end; null where there
 * are too few. Of the costs it has those of these trials, and of the expected front among them.
 */
export function nearBest(sweeps, expected) {
  const { inverse: minimize } = scoreAxis(sweeps);
  const good = []; // [score, cost] of trials
  const expectedOnes = []; // of the expected fronts: the better end of the interval, and the cost
  for (const sweep of sweeps) {
    sweep.points.score.forEach((value, i) => {
      if (value === null || sweep.points.state[i] !== "complete" || sweep.points.excluded[i]) return;
      good.push([value, sweep.points.calm_seconds[i]]);
    });
    expectedOnes.push(...(expected.get(sweep.name)?.value?.front || []).map((one) => [minimize ? one.score.low : one.score.high, one.cost_seconds]));
  }
  if (good.length < 8) return null;
  good.sort(([a], [b]) => (minimize ? a - b : b - a)); // the best first
  const worst = good[Math.ceil(good.length / 4)][0];
  const shown = [...good, ...expectedOnes].filter(([value]) => (minimize ? value <= worst : value >= worst));
  const [bottom, top] = [least(shown.map(([value]) => value)), most(shown.map(([value]) => value))];
  if (!(top > bottom)) return null;
  const costs = shown.map(([, cost]) => Math.max(cost, LEAST));
  return [place(least(costs) / 1.06), place(most(costs) * 1.06), ...room(bottom, top)].map((one) => Number(one.toPrecision(6)));
}

/** The trials in a box of cost and score: of a thinned sweep the server knows them all. */
export async function numbersIn(api, sweep, [leastCost, mostCost], [leastScore, mostScore], signal) {
  if (!sweep.left_out) {
    const { points } = sweep;
    return points.number.filter((_, i) => points.score[i] !== null && points.calm_seconds[i] >= leastCost && points.calm_seconds[i] <= mostCost
      && points.score[i] >= leastScore && points.score[i] <= mostScore).map((number) => [sweep.name, number]);
  }
  const answer = await api.get("/front/within", { sweep: sweep.name, least_cost: leastCost, most_cost: mostCost, least_score: leastScore, most_score: mostScore }, { signal });
  return answer.numbers.map((number) => [sweep.name, number]);
}

/** Trials without a score are drawn at the score `floor`, and not before the place `begin`. */
function points(sweep, theme, color, [begin, floor], name, selection) {
  const { points: all } = sweep;
  const onFront = new Set(sweep.front);
  const groups = { complete: [], pruned: [], failed: [], excluded: [] };
  all.number.forEach((number, i) => {
    const group = all.excluded[i] ? "excluded" : groups[all.state[i]] ? all.state[i] : null;
    if (!group) return;
    const failed = all.score[i] === null;
    const x = place(all.calm_seconds[i] ?? 0);
    const chosen = selection?.has(sweep.name, number);
    groups[group].push({
      value: failed ? [Math.max(x, begin), floor] : [x, all.score[i]], trial: [sweep.name, number],
      ...(chosen ? { itemStyle: { borderColor: theme["select"] && theme.text, borderWidth: 2, opacity: 1 }, symbolSize: 11 } : {}),
      ...(onFront.has(number) && !chosen ? { itemStyle: { opacity: 1 } } : {}),
    });
  });
  const many = all.number.length > 1500;
  const size = many ? 4 : all.number.length > 300 ? 6 : 8;
  const plain = color || theme.faint;
  const style = {
    complete: { symbol: "circle", symbolSize: size, itemStyle: { color: plain, opacity: many ? 0.45 : 0.62 } },
    pruned: { symbol: "circle", symbolSize: size, itemStyle: { color: "transparent", borderColor: color || theme.warn, borderWidth: 1.4, opacity: many ? 0.5 : 0.9 } },
    failed: { symbol: "path://M-4,-4L4,4M-4,4L4,-4", symbolSize: size, symbolKeepAspect: true, itemStyle: { color: "transparent", borderColor: color || theme.bad, borderWidth: 1.6, opacity: 0.9 } },
    excluded: { symbol: "diamond", symbolSize: size, itemStyle: { color: "transparent", borderColor: theme.faint, borderWidth: 1, borderType: "dotted" } },
  };
  const words = { complete: "trials", pruned: "cut short", failed: "failed", excluded: "excluded" };
  return Object.entries(groups).filter(([, data]) => data.length).map(([group, data]) => ({
    type: "scatter", name: name(words[group]), data, ...style[group], large: false, z: 3, emphasis: { scale: 1.5 }, cursor: "pointer",
  }));
}

/** The trials whose measured cost has much of other programs' time in it. */
function tails({ points: all }) {
  return all.number.map((_, i) => i).filter((i) => all.score[i] !== null && all.run_seconds[i] > TAIL * Math.max(all.calm_seconds[i], LEAST));
}

function tailLines(sweep, theme, name) {
  const { points: all } = sweep;
  const shown = tails(sweep);
  return { type: "lines", coordinateSystem: "cartesian2d", name: name("measured cost"), silent: true, zlevel: 0, z: 1, clip: true, lineStyle: { color: theme.faint, width: 1, opacity: shown.length > 300 ? 0.15 : 0.3, curveness: 0 },
    data: shown.map((i) => ({ coords: [[place(all.calm_seconds[i]), all.score[i]], [place(all.run_seconds[i]), all.score[i]]] })) };
}

function measured(sweep, color, edge, name, several) {
  const { points: all } = sweep;
  const at = new Map(all.number.map((number, i) => [number, i]));
  const data = sweep.front.filter((number) => at.has(number)).map((number) => {
    const i = at.get(number);
    return { value: [place(all.calm_seconds[i]), all.score[i]], trial: [sweep.name, number] };
  });
  if (data.length) data.push({ value: [edge, data[data.length - 1].value[1]], symbol: "none" });
  return { type: "line", name: name("measured front"), step: "end", data, symbol: "circle", symbolSize: 7, showAllSymbol: true, z: 4, cursor: "pointer",
    lineStyle: { color, width: 1.3, type: several ? "dotted" : "dashed" }, itemStyle: { color }, triggerLineEvent: false };
}

function steps(sweep, front, color, edge, name) {
  const rows = front.map((one) => [place(one.cost_seconds), one.score.value, one.score.low, one.score.high]);
  const last = rows[rows.length - 1];
  const all = [...rows, [Math.max(edge, last[0]), ...last.slice(1)]];
  const data = front.map((one, i) => ({
    value: [rows[i][0], rows[i][1]], trial: undefined,
    tip: [`expected under ${short(one.cost_seconds)}`, [["expected score", `${score(one.score.value)} (${score(one.score.low)} to ${score(one.score.high)})`],
      ["expected cost", seconds(one.cost_seconds)], [one.trials.length > 1 ? "trials" : "trial", one.trials.slice(0, 8).join(", ")], ["measured", one.measured.slice(0, 8).map(score).join(", ")]]],
  }));
  data.push({ value: [all[all.length - 1][0], last[1]], symbol: "none" });
  return [
    { type: "custom", name: name("80 % interval"), silent: true, z: 1, data: all.map(([x, , low, high]) => [x, low, high]), encode: { x: 0, y: [] }, clip: true,
      itemStyle: { color }, renderItem: (params, api) => (params.dataIndex === 0 ? band(all, api, color) : null) },
    { type: "line", name: name("expected front"), step: "end", data, symbol: "circle", symbolSize: 5, z: 5, lineStyle: { color, width: 2.2 }, itemStyle: { color } },
  ];
}

/** A staircase with its interval, as one polygon. */
function band(rows, api, color) {
  const upper = [];
  const lower = [];
  rows.forEach(([x, , low, high], i) => {
    if (i) {
      upper.push(api.coord([x, rows[i - 1][3]]));
      lower.push(api.coord([x, rows[i - 1][2]]));
    }
    upper.push(api.coord([x, high]));
    lower.push(api.coord([x, low]));
  });
  return { type: "polygon", shape: { points: [...upper, ...lower.reverse()] }, style: { fill: color, opacity: 0.13 } };
}

function predictions(sweep, theme, name) {
  const { points: all } = sweep;
  const onFront = new Set(sweep.front);
  const known = all.number.map((_, i) => i).filter((i) => all.predicted_score[i] !== null && all.predicted_cost_seconds[i] !== null && all.score[i] !== null);
  const shown = known.length > MAX_PREDICTIONS ? known.filter((i) => onFront.has(all.number[i])) : known;
  // A cost was predicted as it would be measured: it is moved as the trial itself is.
  const calm = (i) => (all.run_seconds[i] > 0 ? all.calm_seconds[i] / all.run_seconds[i] : 1);
  const ends = shown.map((i) => [[place(calm(i) * (all.predicted_cost_seconds[i] + (all.continued_seconds[i] || 0))), all.predicted_score[i]], [place(all.calm_seconds[i]), all.score[i]]]);
  return [
    { type: "lines", coordinateSystem: "cartesian2d", name: name("predicted"), silent: true, zlevel: 0, z: 2, data: ends.map((coords) => ({ coords })),
      lineStyle: { color: theme.faint, width: 1, opacity: 0.45, curveness: 0 } },
    { type: "scatter", name: name("predicted"), symbol: "diamond", symbolSize: 6, z: 2, itemStyle: { color: "transparent", borderColor: theme.muted, borderWidth: 1 },
      data: shown.map((i, k) => ({ value: ends[k][0], trial: [sweep.name, all.number[i]] })) },
  ];
}

function stars(picked, sweeps, theme) {
  return { type: "scatter", name: "best for the limit", symbol: "path://M0,-10L2.6,-3.4L9.6,-3.1L4.2,1.3L6,8.1L0,4.2L-6,8.1L-4.2,1.3L-9.6,-3.1L-2.6,-3.4Z", symbolSize: 19, z: 8,
    data: picked.map(({ sweep, one }) => ({
      value: [place(one.cost_seconds), one.score.value], trial: [sweep.name, one.trials[0]],
      itemStyle: { color: sweeps.length > 1 ? theme.series[sweeps.indexOf(sweep) % theme.series.length] : theme.series[0], borderColor: theme.surface, borderWidth: 1.5 },
    })) };
}

function legend(series) {
  const hidden = /(^|: )(80 % interval|limit|best for the limit|measured cost)$/;
  return [...new Set(series.map((one) => one.name))].filter((name) => !hidden.test(name)).map((name) => {
    const of = series.find((one) => one.name === name);
    return of.type === "scatter" ? { name, icon: of.symbol } : { name };
  });
}

function least(values, otherwise) {
  return values.length ? values.reduce((a, b) => Math.min(a, b)) : otherwise;
}
function most(values, otherwise) {
  return values.length ? values.reduce((a, b) => Math.max(a, b)) : otherwise;
}
/** The ends of an axis a little beyond the values, at round numbers. */
function room(low, high) {
  const span = high - low || Math.abs(high) * 0.2 || 1;
  const step = 10 ** Math.floor(Math.log10(span));
  const unit = span / step < 2 ? step / 5 : span / step < 5 ? step / 2 : step;
  return [Math.floor((low - span * 0.02) / unit) * unit, Math.ceil((high + span * 0.02) / unit) * unit].map((one) => Number(one.toPrecision(12)));
}

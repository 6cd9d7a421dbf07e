// Axes of scores, of powers of two and of durations. Better is up on every axis of scores. Of durations a chart's axis has the decimal logarithm of the seconds, so that its marks can stand at round
// durations: 1s, 2s, 5s, 10s, 30s, 1m, 5m, 1h.

import { seconds } from "./format.js";

/**
 * What an axis of scores of some sweeps says, and whether it is turned around: where lower is better, the lowest score is
 * at the top. Sweeps of both directions share an axis that is not turned, and whose name says so. `words` name the score.
 */
export function scoreAxis(sweeps, words = "score") {
  const lower = sweeps.filter((sweep) => sweep?.direction === "minimize");
  const inverse = lower.length > 0 && lower.length === sweeps.length;
  const which = inverse ? "" : lower.length === 1 ? ` for ${lower[0].name}` : ` for ${lower.length} of the sweeps`;
  return { label: lower.length ? `${words} (lower is better${which})` : words, inverse };
}

/** The same of the sweeps that a page shows. */
export function scoreAxisOf({ sweeps, state }, words) {
  return scoreAxis(state.sweeps.map((name) => sweeps.find((one) => one.name === name)), words);
}

/**
 * The ends of an axis of scores. A few that are far worse than all others would leave no room for these: the worst tenth,
 * if the rest takes less than an eighth of the axis. Then it ends before them. As `score_bounds` in view/figures/style.py.
 */
export function scoreEnds(values, lowerIsBetter = false) {
  const best = values.filter(Number.isFinite).sort((a, b) => (lowerIsBetter ? a - b : b - a)); // the best first
  if (!best.length) return [0, 1];
  const [first, last] = [best[0], best[best.length - 1]];
  const margin = Math.max(Math.abs(first) * 0.1, 1);
  if (first === last) return [first - margin, first + margin];
  const least = best[best.length - 1 - Math.ceil(FEW * (best.length - 1))];
  const rest = Math.abs(first - least);
  const end = rest > 0 && Math.abs(first - last) > FAR * rest ? least - (first - least) : last;
  return end < first ? [end, first] : [first, end];
}

const [FAR, FEW] = [8, 0.1];

/** Ticks of an axis of powers of two from `low` to `high`: powers of two at even distances. */
export function powersOfTwo(low, high) {
  const [first, last] = [Math.ceil(Math.log2(low) - 1e-9), Math.floor(Math.log2(high) + 1e-9)];
  const step = Math.max(1, Math.ceil((last - first) / (MOST_POWERS - 1)));
  return Array.from({ length: Math.max(0, Math.floor((last - first) / step) + 1) }, (_, i) => 2 ** (first + i * step));
}

const MOST_POWERS = 6;

/** Whether an axis as the server describes it is logarithmic. */
export function isLog({ scale }) {
  return scale === "log" || scale === "pow2";
}

/** ECharts' settings of the ticks of an axis of powers of two; of another one nothing. */
export function powerTicks(scale, low, high) {
  const customValues = scale === "pow2" && low > 0 ? powersOfTwo(low, high) : [];
  if (!customValues.length) return { axisTick: {}, axisLabel: {} };
  return { logBase: 2, axisTick: { customValues }, axisLabel: { customValues } };
}

export const LEAST = 1e-3; // seconds: costs below count as this, as in protein/engine/pareto.py
const ROUND = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000, 86400, 172800, 432000, 864000];

/** The place of a duration on a logarithmic axis. */
export function place(value) {
  return Math.log10(Math.max(value, LEAST));
}

/** The duration at a place of a logarithmic axis. */
export function duration(at) {
  return 10 ** at;
}

/** Round durations within [low, high] seconds, at most `most`, as seconds. */
export function roundDurations(low, high, most = 9) {
  const found = [];
  for (let decade = Math.floor(Math.log10(low)); decade < 0; decade++) found.push(10 ** decade, 2 * 10 ** decade, 5 * 10 ** decade);
  found.push(...ROUND);
  for (let size = 8.64e6; size <= high; size *= 10) found.push(size, 2 * size, 5 * size);
  let inside = found.filter((one) => one >= low * 0.999 && one <= high * 1.001);
  while (inside.length > most) inside = thinner(inside);
  return inside.length >= 2 ? inside : even(low, high);
}

/** An ECharts axis for places of durations from `low` to `high` seconds. */
export function durationAxis(low, high, more = {}) {
  const marks = roundDurations(low, high).map(place);
  return {
    type: "value", min: Math.log10(low), max: Math.log10(high), minorTick: { show: false }, ...more,
    axisTick: { customValues: marks }, splitLine: { show: true },
    axisLabel: { customValues: marks, formatter: (at) => short(duration(at)), ...more.axisLabel },
  };
}

/** An ECharts axis of durations from 0, linear, with marks at round ones. */
export function evenAxis(length, more = {}) {
  const steps = [0.1, 0.2, 0.5, ...ROUND.flatMap((one) => [one]), 900, 10800, 43200].sort((a, b) => a - b);
  const step = steps.find((one) => length / one <= 8) || 864000 * Math.ceil(length / 8 / 864000);
  const marks = [];
  for (let one = 0; one <= length; one += step) marks.push(one);
  return { type: "value", min: 0, max: length || 1, ...more, axisTick: { customValues: marks },
    axisLabel: { customValues: marks, formatter: short, ...more.axisLabel } };
}

/** A round duration without needless parts: 1m, not 1m00s. */
export function short(value) {
  return seconds(value).replace(/(\.\d*?)0+s$/, "$1s").replace(/\.s$/, "s").replace(/^(\d+[dhm])0+[hms]$/, "$1");
}

function thinner(marks) {
  // Keeps 1 and 5 (or 1 and 3) of each decade, then every second mark.
  const main = marks.filter((one) => [1, 10, 60, 600, 3600, 36000, 86400, 864000].includes(one) || Number.isInteger(Math.round(1e6 * Math.log10(one)) / 1e6));
  return main.length >= 3 && main.length < marks.length ? main : marks.filter((_, i) => i % 2 === 0);
}

function even(low, high) {
  const step = 10 ** Math.floor(Math.log10((high - low) / 2 || low / 2));
  const found = [];
  for (let one = Math.ceil(low / step) * step; one <= high; one += step) found.push(one);
  return found.length > 9 ? found.filter((_, i) => i % Math.ceil(found.length / 6) === 0) : found;
}

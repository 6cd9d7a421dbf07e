// Axes of durations. A chart's axis has the decimal logarithm of the seconds, so that its marks can stand at round
// durations: 1s, 2s, 5s, 10s, 30s, 1m, 5m, 1h.

import { seconds } from "./format.js";

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
    type: "value", min: place(low), max: place(high), minorTick: { show: false }, ...more,
    axisTick: { customValues: marks }, splitLine: { show: true },
    axisLabel: { customValues: marks, formatter: (at) => short(duration(at)), ...more.axisLabel },
  };
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
// Colours that stand for values, and short names of parameters.

import { MISSING, param } from "./format.js";
import { theme } from "./theme.js";

// From low to high. The high end stands out most, on a light and on a dark ground, and the order holds without colours.
const RAMPS = {
  light: ["#b9d3c6", "#6fb0c4", "#3a78b8", "#33459f", "#3c1361"],
  dark: ["#37466b", "#3b7fb0", "#45b7ae", "#a5dd8a", "#fdf0a0"],
};

/** A colour for a share from 0 to 1. */
export function ramp(share) {
  const stops = RAMPS[theme()] || RAMPS.light;
  const at = Math.min(Math.max(Number.isFinite(share) ? share : 0, 0), 1) * (stops.length - 1);
  const below = Math.min(Math.floor(at), stops.length - 2);
  return mixed(stops[below], stops[below + 1], at - below);
}

/** The ramp as a CSS gradient, from left to right. */
export function rampCss() {
  return `linear-gradient(90deg, ${(RAMPS[theme()] || RAMPS.light).join(", ")})`;
}

/**
 * Colours for a list of values: numbers along the ramp (by their logarithm where they span decades), others one by one.
 * Returns {of(value), legend: {low, high} | [[text, colour]], log}.
 */
export function coloring(values, series, { kind = "number", faint = "#888" } = {}) {
  const numeric = ["number", "integer", "time"].includes(kind);
  if (!numeric) {
    const distinct = [...new Set(values.filter((one) => one !== null).map(String))].sort();
    const place = new Map(distinct.map((one, i) => [one, series[i % series.length]]));
    return { of: (value) => (value === null || value === undefined ? faint : place.get(String(value)) || faint),
      legend: distinct.map((one) => [one, place.get(one)]), share: () => null };
  }
  const finite = values.filter((one) => typeof one === "number" && Number.isFinite(one));
  let low = Infinity;
  let high = -Infinity;
  for (const one of finite) { if (one < low) low = one; if (one > high) high = one; }
  const log = low > 0 && high / low > 30;
  const [from, to] = log ? [Math.log(low), Math.log(high)] : [low, high];
  const share = (value) => (to > from ? ((log ? Math.log(value) : value) - from) / (to - from) : 0.5);
  const usable = (value) => typeof value === "number" && Number.isFinite(value) && !(log && value <= 0);
  return { of: (value) => (usable(value) ? ramp(share(value)) : faint), legend: { low, high, log }, share };
}

/** Names without what they share with their group, where that stays unique: "learning_rate" for "train.learning_rate". */
export function shortNames(names) {
  const last = names.map((name) => name.slice(name.lastIndexOf(".") + 1));
  const counts = new Map();
  for (const one of last) counts.set(one, (counts.get(one) || 0) + 1);
  return Object.fromEntries(names.map((name, i) => [name, counts.get(last[i]) > 1 ? name : last[i]]));
}

/** A config as rows for a box at the pointer. */
export function configRows(params) {
  return Object.entries(params).map(([name, value]) => [name, value === undefined ? MISSING : param(value)]);
}

function mixed(from, to, share) {
  const part = (color, i) => parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16);
  const one = (i) => Math.round(part(from, i) + share * (part(to, i) - part(from, i)));
  return `rgb(${one(0)}, ${one(1)}, ${one(2)})`;
}

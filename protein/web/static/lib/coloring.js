// Colours that stand for values, and short names of parameters.

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

function mixed(from, to, share) {
  const part = (color, i) => parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16);
  const one = (i) => Math.round(part(from, i) + share * (part(to, i) - part(from, i)));
  return `rgb(${one(0)}, ${one(1)}, ${one(2)})`;
}

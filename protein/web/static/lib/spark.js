// A small curve of scores without axes: better is up. A second one, for comparison, stands behind it.

const WIDTH = 220;
const HEIGHT = 44;

/** Returns the picture of a curve {seconds, score}; `other` may be null. `lower`: whether a lower score is better. */
export function spark(curve, other, { label, lower = false }) {
  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", role: "img", "aria-label": label, preserveAspectRatio: "none" });
  const drawn = [[other, "behind"], [curve, "front"]].filter(([one]) => one && one.score.length);
  const xs = drawn.flatMap(([one]) => one.seconds);
  const ys = drawn.flatMap(([one]) => one.score).filter(Number.isFinite);
  if (!ys.length) return svg;
  const most = Math.max(...xs) || 1;
  const [low, high] = [Math.min(...ys), Math.max(...ys)];
  const up = (value) => (high > low ? (value - low) / (high - low) : 0.5);
  for (const [one, cls] of drawn) {
    const points = one.score.map((value, i) => [3 + (WIDTH - 6) * (one.seconds[i] / most), 3 + (HEIGHT - 6) * (lower ? up(value) : 1 - up(value))]).filter((point) => point.every(Number.isFinite));
    if (points.length === 1) svg.append(element("circle", { cx: points[0][0], cy: points[0][1], r: 2.5, class: cls }));
    else svg.append(element("polyline", { points: points.map((point) => point.map((x) => x.toFixed(1)).join(",")).join(" "), class: cls }));
  }
  return svg;
}

function element(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

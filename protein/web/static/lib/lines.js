// Many curves in one chart, by uPlot: each curve has its own x values, and hundreds are drawn in one go.
//
//   const made = await lines(root, {
//     name: "curves of pong", signal, height: 420,
//     series: [{ key: "pong/17", label: "trial 17", color: "#2f5fd0", width: 1.5, dash: [], x: [...], y: [...],
//                band: { low: [...], high: [...] } }],          // x increases; a null in y is a gap; band is optional
//     x: { label: "steps", log: false, format: (value) => text, incrs: [...] },
//                                                   // incrs: distances that ticks may have; TIME_STEPS for seconds
//     y: { label: "score", log: false, format, inverse: false },   // inverse: low values are at the top (`scoreAxis`)
//                                                   // both: ends: [low, high] of the axis while it is not zoomed
//     steps: false,                                 // whether a value holds until the next one: a staircase
//     onHover: (series | null, index) => {}, onClick: (series, index) => {}, onZoom: ([low, high] | null) => {},   // of x
//     describe: (series, index) => [title, [[label, text], ...]],   // of the box at the pointer; there is a usual one
//   });
//   made.set({ series, x, y });       // other curves or axes
//   made.highlight(key | null);       // draws one curve above the others
//   made.zoomX([low, high] | null);   // shows a part of x, or all of it: of charts that share it
//   made.remove();                    // takes the chart away
//   made.menu                         // the "Save" menu: PNG, SVG, CSV
//
// Dragging zooms, a double click shows everything again. `set` keeps a zoom while the axes say the same.

import { h } from "./dom.js";
import { csv, saveMenu } from "./export.js";
import { score, tick } from "./format.js";
import { svgOfLines } from "./lines-svg.js";
import { colors, onTheme } from "./theme.js";

let library = null;

/** Returns uPlot, which is loaded once: it is a plain script. */
export function uplot() {
  library ??= new Promise((resolve, reject) => {
    if (window.uPlot) return resolve(window.uPlot);
    const script = h("script", { src: new URL("../vendor/uPlot.iife.min.js", import.meta.url).href });
    script.onload = () => resolve(window.uPlot);
    script.onerror = () => reject(new Error("uPlot could not be loaded"));
    document.head.append(script);
    return undefined;
  });
  return library;
}

// Distances between ticks of a duration: 1, 2 and 5 of each unit, and what clocks have.
export const TIME_STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600,
  7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000];

const POINT = 2.5; // pixels: radius of a point that has no neighbour, so no line
const NEAR = 24; // pixels: how near to a curve the pointer counts as on it

/** Draws curves into an element. See above. */
export async function lines(root, options) {
  const UPlot = await uplot();
  const gone = new AbortController();
  const signal = AbortSignal.any([gone.signal, ...(options.signal ? [options.signal] : [])]);
  let now = { x: {}, y: {}, height: 380, ...options };
  let plot = null;
  let lit = null; // the key of the highlighted curve
  let zoom = {}; // by axis: the ends that were dragged
  let all = false; // whether somebody has asked for everything, also what lies beyond `y.ends`
  let pointed = null; // {series, index} at the pointer
  const room = h("div", { class: "chart lines", role: "img", "aria-label": now.name, style: { height: `${now.height}px` } });
  const box = h("div", { class: "tip", hidden: true });
  room.append(box);
  root.append(room);

  function build() {
    plot?.destroy();
    const theme = colors();
    const room1 = bandRange(now.series);
    const range = (which, log) => (_, low, high) => {
      // All curves are shown: so are their bands. A part that somebody has zoomed into stays as it is.
      if (now[which].ends && !zoom[which] && !(which === "y" && all)) return rangeOf(...now[which].ends, log, which === "x");
      const whole = which === "y" && low <= room1.low && high >= room1.high;
      return whole ? rangeOf(Math.min(low, room1.bandLow), Math.max(high, room1.bandHigh), log) : rangeOf(low, high, log, which === "x");
    };
    plot = new UPlot({
      mode: 2, width: Math.max(200, room.clientWidth), height: now.height, padding: [10, 14, 0, 0], legend: { show: false },
      scales: {
        x: { time: false, distr: now.x.log ? 3 : 1, range: range("x", now.x.log), auto: true },
        y: { distr: now.y.log ? 3 : 1, range: range("y", now.y.log), auto: true, dir: now.y.inverse ? -1 : 1 },
      },
      axes: [axis(theme, now.x, { size: 32 }), axis(theme, now.y, { size: 56 })],
      cursor: { points: { show: false }, drag: { x: true, y: true, uni: 30 }, dataIdx: () => null, x: false, y: false },
      series: [null, ...now.series.map((one) => ({
        facets: [{ scale: "x", auto: true, sorted: 1 }, { scale: "y", auto: true }],
        stroke: one.color, width: one.width ?? 1.4, paths: path, label: one.label,
      }))],
      hooks: { draw: [drawAbove], setCursor: [follow], setSelect: [keepZoom] },
    }, [null, ...now.series.map((one) => clean(one, now))], room);
    plot.over.addEventListener("click", () => { if (pointed) now.onClick?.(pointed.series, pointed.index); });
    plot.over.addEventListener("mouseleave", () => point(null));
    plot.over.addEventListener("dblclick", () => { zoom = {}; all = true; now.onZoom?.(null); }, true); // before uPlot asks for the ranges
    for (const [which, ends] of Object.entries(zoom)) if (ends) plot.setScale(which, { min: ends[0], max: ends[1] });
  }

  function keepZoom(u) {
    const { left, top, width, height } = u.select; // as wide or as high as the chart: this axis is not zoomed
    if (width > 0 && width < u.over.clientWidth) {
      zoom.x = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
      now.onZoom?.(zoom.x);
    }
    if (height > 0 && height < u.over.clientHeight) zoom.y = [u.posToVal(top + height, "y"), u.posToVal(top, "y")].sort((a, b) => a - b);
  }

  function axis(theme, given, more) {
    return {
      stroke: theme.muted, font: `12px ${getComputedStyle(document.body).fontFamily}`, label: given.label, labelSize: 18, labelGap: 2, gap: 6,
      labelFont: `12px ${getComputedStyle(document.body).fontFamily}`,
      grid: { stroke: theme.grid, width: 1 }, ticks: { stroke: theme.line, width: 1, size: 5 }, border: { show: true, stroke: theme.line, width: 1 },
      ...(given.incrs ? { incrs: given.incrs } : {}),
      values: (_, values) => values.map((value) => (value === null || value === undefined ? "" : (given.format || tick)(value))), ...more,
    };
  }

  /** One curve as a path: uPlot's own paths need x values that all curves share. */
  function path(u, index) {
    return { stroke: pathOf(u, u.data[index]), fill: null, clip: null, band: null, gaps: null, flags: 3 };
  }

  function pathOf(u, [xs, ys]) {
    const found = new Path2D();
    let drawing = false;
    for (let i = 0; i < xs.length; i++) {
      if (ys[i] === null || xs[i] === null) { drawing = false; continue; }
      const x = u.valToPos(xs[i], "x", true);
      const y = u.valToPos(ys[i], "y", true);
      if (drawing && now.steps) found.lineTo(x, u.valToPos(ys[i - 1], "y", true));
      if (drawing) found.lineTo(x, y);
      else found.moveTo(x, y);
      if (!drawing && (ys[i + 1] ?? null) === null) { // a point alone has no line: a dot
        found.moveTo(x + POINT * devicePixelRatio, y);
        found.arc(x, y, POINT * devicePixelRatio, 0, 7);
      }
      drawing = true;
    }
    return found;
  }

  function drawAbove(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    now.series.forEach((one) => { if (one.band) drawBand(u, ctx, one); });
    const shown = pointed?.series ?? now.series.find((one) => one.key === lit);
    if (shown) {
      const data = u.data[now.series.indexOf(shown) + 1];
      ctx.lineJoin = "round";
      for (const [stroke, width] of [[colors().surface, 5.5], [shown.color, 2.8]]) {
        ctx.strokeStyle = stroke;
        ctx.lineWidth = width * devicePixelRatio;
        ctx.stroke(pathOf(u, data));
      }
      if (pointed) {
        ctx.fillStyle = shown.color;
        ctx.beginPath();
        ctx.arc(u.valToPos(data[0][pointed.index], "x", true), u.valToPos(data[1][pointed.index], "y", true), 4 * devicePixelRatio, 0, 7);
        ctx.fill();
      }
    }
    ctx.restore();
  }

  function drawBand(u, ctx, one) {
    const points = (values) => values.flatMap((value, i) => [...(now.steps && i ? [values[i - 1]] : []), value]
      .map((height) => [u.valToPos(one.x[i], "x", true), u.valToPos(height, "y", true)]));
    const around = [...points(one.band.low), ...points(one.band.high).reverse()].filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));
    ctx.globalAlpha = 0.14;
    ctx.fillStyle = one.color;
    ctx.beginPath();
    around.forEach(([x, y], i) => (i ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
    ctx.fill();
    ctx.globalAlpha = 1;
  }

  /** Finds the curve at the pointer: on each curve the point with the nearest x, then the one that is nearest to it. */
  function follow(u) {
    const { left, top } = u.cursor;
    if (left === null || left < 0) return point(null);
    const wanted = u.posToVal(left, "x");
    let best = null;
    let nearest = NEAR;
    now.series.forEach((series, k) => {
      const [xs, ys] = u.data[k + 1];
      if (!xs.length) return;
      for (const index of around(xs, wanted)) {
        if (ys[index] === null) continue;
        const distance = Math.hypot(u.valToPos(xs[index], "x") - left, u.valToPos(ys[index], "y") - top);
        const height = between(u, xs, ys, index, left, top);
        const found = Math.min(distance, height);
        if (found < nearest) { nearest = found; best = { series, index }; }
      }
    });
    return point(best);
  }

  function point(found) {
    if (found?.series === pointed?.series && found?.index === pointed?.index) return;
    pointed = found;
    now.onHover?.(found?.series ?? null, found?.index ?? -1);
    plot.redraw(false);
    box.hidden = !found;
    plot.over.style.cursor = found && now.onClick ? "pointer" : "";
    if (!found) return;
    const [title, rows] = (now.describe || usual)(found.series, found.index);
    box.replaceChildren(h("strong", { text: title }), h("table", {}, rows.map(([label, text]) =>
      h("tr", {}, h("td", { class: "muted", text: label }), h("td", { text })))));
    const x = plot.valToPos(found.series.x[found.index], "x") + plot.over.offsetLeft;
    const y = plot.valToPos(found.series.y[found.index], "y") + plot.over.offsetTop;
    const toLeft = x + box.offsetWidth + 18 > room.clientWidth;
    box.style.left = `${Math.max(0, toLeft ? x - box.offsetWidth - 14 : x + 14)}px`;
    box.style.top = `${Math.max(0, Math.min(y - 12, room.clientHeight - box.offsetHeight))}px`;
  }

  function usual(series, index) {
    return [series.label, [[now.x.label || "x", (now.x.format || tick)(series.x[index])], [now.y.label || "y", (now.y.format || score)(series.y[index])]]];
  }

  build();
  const watcher = new ResizeObserver(() => {
    if (room.clientWidth > 0 && Math.abs(room.clientWidth - plot.width) > 1) plot.setSize({ width: room.clientWidth, height: now.height });
  });
  watcher.observe(room);
  onTheme(build, signal);
  signal.addEventListener("abort", () => { watcher.disconnect(); plot.destroy(); });

  const menu = saveMenu(() => now.name, {
    png: () => png(plot.ctx.canvas),
    svg: () => svgOfLines(plot, now, colors()),
    csv: () => csv(["curve", now.x.label || "x", now.y.label || "y"],
      now.series.flatMap((one) => one.x.map((x, i) => [one.label, x, one.y[i]]))),
  });
  return {
    get plot() { return plot; },
    room, menu,
    set(changes) {
      const before = meaning(now);
      now = { ...now, ...changes };
      if (meaning(now) !== before) [zoom, all] = [{}, false];
      pointed = null;
      box.hidden = true;
      build();
    },
    remove() {
      gone.abort();
      room.remove();
    },
    zoomX(ends) {
      zoom.x = ends ?? undefined;
      build();
    },
    highlight(key) { if (lit !== key) { lit = key; plot.redraw(false); } },
  };
}

/** What the axes say. */
function meaning({ x, y }) {
  return JSON.stringify([x.label, x.log, y.label, y.log, y.inverse]);
}

/** What cannot be drawn, for which a logarithmic axis has no place, becomes a gap. */
function clean(one, { x, y }) {
  const good = (value, log) => (typeof value === "number" && Number.isFinite(value) && (!log || value > 0) ? value : null);
  return [one.x.map((value) => good(value, x.log)), one.y.map((value) => good(value, y.log))];
}

/** The lowest and highest values of all curves, and of their bands. */
function bandRange(series) {
  const found = { low: Infinity, high: -Infinity, bandLow: Infinity, bandHigh: -Infinity };
  for (const one of series) {
    for (const value of one.band ? one.y : []) {
      if (value < found.low) found.low = value;
      if (value > found.high) found.high = value;
    }
    for (const value of one.band?.low || []) if (value < found.bandLow) found.bandLow = value;
    for (const value of one.band?.high || []) if (value > found.bandHigh) found.bandHigh = value;
  }
  return found;
}

/** The lowest and highest x of some curves, null where they have none: the axis that charts of them share. */
export function endsOf(series) {
  let [low, high] = [Infinity, -Infinity];
  for (const one of series) for (const x of one.x) if (Number.isFinite(x)) { low = Math.min(low, x); high = Math.max(high, x); }
  return low <= high ? [low, high] : null;
}

/** The ends of an axis, a little beyond the values. Steps and seconds are `along` the axis, and none are below 0. */
export function rangeOf(low, high, log, along = false) {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return log ? [1, 10] : [0, 1];
  if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.03, high * (high / low) ** 0.03];
  const room = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.03;
  return [along && low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

/** The places of the values on both sides of `wanted`. */
function around(xs, wanted) {
  let low = 0;
  let high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 ? [low - 1, low] : [low];
}

/** How far the pointer is above or below the line between two neighbouring points. */
function between(u, xs, ys, index, left, top) {
  const next = index + 1;
  if (next >= xs.length || ys[next] === null || ys[index] === null) return Infinity;
  const [x0, x1] = [u.valToPos(xs[index], "x"), u.valToPos(xs[next], "x")];
  if (left < x0 || left > x1 || x1 === x0) return Infinity;
  const [y0, y1] = [u.valToPos(ys[index], "y"), u.valToPos(ys[next], "y")];
  return Math.abs(y0 + ((y1 - y0) * (left - x0)) / (x1 - x0) - top);
}

function png(canvas) {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext("2d");
  context.fillStyle = colors().surface;
  context.fillRect(0, 0, copy.width, copy.height);
  context.drawImage(canvas, 0, 0);
  return new Promise((resolve) => copy.toBlob(resolve, "image/png"));
}

// Charts by Apache ECharts: themed, resized, saved as PNG, SVG and CSV. The library is loaded with the first chart.
//
//   const made = await chart(root, {
//     name: "front of pong",                  // of saved files, and for screen readers
//     option: (colors) => ({ ... }),          // ECharts' option; called again when the theme changes
//     csv: () => ({ header: [...], rows: [...] }),   // what the chart shows, as a table
//     height: 340, signal,
//   });
//   made.set((colors) => ({ ... }));          // another option; what is selected or zoomed stays
//   made.instance.on("click", ...);           // ECharts' own object
//   made.menu                                 // the "Save" menu, to be placed in a head

import { h, stateOf } from "./dom.js";
import { csv, saveMenu } from "./export.js";
import { tick } from "./format.js";
import { colors, onTheme } from "./theme.js";

let library = null;
let ready = false; // whether it has been loaded

/** Returns ECharts, which is loaded once. */
export function echarts() {
  library ??= import("../vendor/echarts.esm.min.js").then((loaded) => { ready = true; return loaded; });
  return library;
}

/** Draws a chart into an element. See above. */
export async function chart(root, { name, option, csv: table, height = 340, signal, notMerge = false }) {
  const waiting = ready ? null : stateOf("loading", "Loading the chart"); // the library is large
  if (waiting) root.append(waiting);
  const lib = await echarts().finally(() => waiting?.remove());
  const room = h("div", { class: "chart", role: "img", "aria-label": name, style: { height: `${height}px` } });
  root.append(room);
  const instance = lib.init(room, null, { renderer: "canvas" });
  let make = option;
  const draw = (clear) => instance.setOption(themed(make(colors()), colors()), { notMerge: clear });
  draw(true);
  const watcher = new ResizeObserver(() => instance.resize());
  watcher.observe(room);
  onTheme(() => draw(true), signal);
  signal?.addEventListener("abort", () => { watcher.disconnect(); instance.dispose(); });
  const size = () => ({ width: Math.max(640, room.clientWidth), height: Math.max(360, room.clientHeight) });
  const menu = saveMenu(name, {
    png: async () => blobOf(instance.getDataURL({ type: "png", pixelRatio: 2, backgroundColor: colors().surface })),
    svg: () => svgOf(lib, themed(make(colors()), colors()), size(), colors().surface),
    ...(table ? { csv: () => { const found = table(); return csv(found.header, found.rows); } } : {}),
  });
  return { instance, room, menu, set(next) { make = next; draw(notMerge); } };
}

/** Returns a card with a title, the chart's menu and the chart in it; `extra` are further elements of the head. */
export async function chartCard(title, options, extra = []) {
  const head = h("div", { class: "chart-head" }, h("h2", { text: title }), extra, h("span", { class: "space" }));
  const card = h("section", { class: "chart-card", "aria-label": title }, head);
  options.root?.append(card);
  const made = await chart(card, options);
  head.append(made.menu);
  return { ...made, card, head };
}

/** Fills in what all charts share: type, axes, grid and the box that follows the pointer. */
export function themed(option, theme) {
  const font = getComputedStyle(document.body).fontFamily;
  const axis = (one) => ({
    nameTextStyle: { color: theme.muted, fontFamily: font }, nameLocation: "middle", nameGap: 30,
    axisLine: { show: true, lineStyle: { color: theme.line } }, axisTick: { lineStyle: { color: theme.line } },
    minorSplitLine: { show: false },
    ...one,
    axisLabel: { color: theme.muted, fontFamily: font, hideOverlap: true, ...(one.type === "category" ? {} : { formatter: tick }), ...one.axisLabel },
    splitLine: { lineStyle: { color: theme.grid }, ...one.splitLine },
  });
  const all = (value, work) => (value === undefined ? undefined : Array.isArray(value) ? value.map(work) : work(value));
  return {
    animation: false,
    backgroundColor: "transparent",
    color: theme.series,
    textStyle: { fontFamily: font, color: theme.text },
    ...option,
    ...(option.grid === undefined && option.xAxis !== undefined
      ? { grid: { left: 58, right: 20, top: option.legend ? 36 : 14, bottom: 48 } } : {}),
    xAxis: all(option.xAxis, axis),
    yAxis: all(option.yAxis, (one) => axis({ nameGap: 44, ...one })),
    legend: all(option.legend, (one) => ({ textStyle: { color: theme.text, fontFamily: font }, inactiveColor: theme.faint,
      icon: "roundRect", itemWidth: 12, itemHeight: 8, top: 0, type: "scroll", pageTextStyle: { color: theme.muted }, ...one })),
    tooltip: all(option.tooltip, (one) => ({ backgroundColor: theme.surface, borderColor: theme.line, confine: true, transitionDuration: 0,
      textStyle: { color: theme.text, fontFamily: font, fontSize: 12.5 }, ...one })),
  };
}

/** Returns a tooltip's content: texts are escaped. `rows`: [label, text] pairs. */
export function tip(title, rows) {
  const root = h("div", {}, h("strong", { text: title }),
    h("table", {}, rows.map(([label, text]) => h("tr", {}, h("td", { class: "muted", text: label }), h("td", { text })))));
  root.className = "tip-body";
  return root;
}

function svgOf(lib, option, size, background) {
  const instance = lib.init(null, null, { renderer: "svg", ssr: true, ...size });
  instance.setOption({ ...option, backgroundColor: background });
  const text = instance.renderToSVGString();
  instance.dispose();
  return text;
}

async function blobOf(url) {
  const [, data] = url.split(",");
  return new Blob([Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0))], { type: "image/png" });
}

// Saving what is seen: charts as PNG and SVG, tables as CSV. Everything is made in the browser.

import { popover, h } from "./dom.js";

/** Saves a text or a Blob under a name. */
export function save(name, content, type = "text/plain") {
  const blob = content instanceof Blob ? content : new Blob([content], { type: `${type};charset=utf-8` });
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: fileName(name) });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** Returns rows (arrays of plain values) as CSV; null is an empty cell. */
export function csv(header, rows) {
  return [header, ...rows].map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

/** Returns a value as a cell. A text that a spreadsheet would take for a formula stands behind an apostrophe. */
export function csvCell(value) {
  let text = value === null || value === undefined ? "" : String(value);
  const number = typeof value !== "string" || /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$|^-inf$/i.test(text);
  if (!number && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * A small menu that saves a chart or a table.
 * `kinds`: {png: () => Blob | Promise, svg: () => text, csv: () => text}; those that are given are offered.
 */
export function saveMenu(name, kinds) {
  const types = { png: "image/png", svg: "image/svg+xml", csv: "text/csv" };
  const menu = popover("Save", (panel, close) => {
    for (const [kind, make] of Object.entries(kinds)) {
      panel.append(h("button", { type: "button", class: "menu-item", text: kind.toUpperCase(), onclick: async () => {
        close();
        const made = await make();
        if (made !== null && made !== undefined) save(`${typeof name === "function" ? name() : name}.${kind}`, made, types[kind]);
      } }));
    }
  }, { cls: "quiet", title: "Save as a file" });
  return menu.root;
}

function fileName(name) {
  return name.replace(/[^\p{L}\p{N}._-]+/gu, "_").slice(0, 120) || "protein";
}

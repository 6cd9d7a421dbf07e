// The cells of the table of trials: their texts, their elements, the widths of their columns.

import { h } from "./dom.js";
import { MISSING, cell, param, title, toTheRight } from "./format.js";
import { unfinished } from "./trials.js";

const SAMPLE = 60; // rows whose texts decide a width

/**
 * Returns {text(column, given, row), draw(column, given, row), value(row, key)}. `asked()`: the keys of the columns that
 * rows have values of.
 */
export function tableCells({ state, asked, interrupted }) {
  function draw(column, given, row) {
    const shown = text(column, given, row);
    const kind = toTheRight(column) ? "number" : "";
    if (column.key === "number") {
      return h("td", { class: "number" }, h("a", { href: state.link("trial", {}, [row.sweep, row.number]), text: given }));
    }
    if (column.key === "state") {
      const gone = interrupted(row.sweep, row.number);
      return h("td", { title: gone ? "its process is gone; start the sweep again to go on" : value(row, "reason") || null }, h("span", { class: `dot-state ${gone ? "failed" : given}`, "aria-hidden": "true" }), shown);
    }
    if (column.key === "tags") return h("td", {}, (given || []).map((tag) => h("span", { class: "tag", text: tag })));
    if (column.key === "score" && given === null) return h("td", { class: `${kind} no-score${unfinished({ state: value(row, "state") }) ? " unfinished" : ""}`, title: value(row, "reason") || null, text: shown });
    const short = column.group === "params" && typeof given === "number" && param(given) !== shown;
    const unusual = typeof given === "string" && ["nan", "inf", "-inf"].includes(given) && kind;
    return h("td", { class: `${kind}${given === null ? " faint" : ""}${unusual ? " warn-text" : ""}`, title: shown.length > 24 ? shown : short ? param(given) : null, text: shown });
  }

  function text(column, given, row) {
    if (column.key === "state") return interrupted(row.sweep, row.number) ? "interrupted" : ends(value(row, "end") || given);
    if (column.key === "score" && given === null) return value(row, "state") === "failed" ? ends(value(row, "end")) : MISSING;
    // Four digits of a parameter are enough here; the whole number is in the row's title, the trial's page and the CSV.
    if (column.group === "params" && column.kind === "number" && typeof given === "number") return param(given, 4);
    return cell(column, given);
  }

  /** A value of a row, if its column was asked for. */
  function value(row, key) {
    const at = asked().indexOf(key);
    return at < 0 ? undefined : row.values[at];
  }

  return { text, draw, value };
}

/** The widths of columns, in pixels, from the texts of the first rows: key -> width. */
export function widthsOf(columns, rows, text) {
  const canvas = document.createElement("canvas").getContext("2d");
  const family = getComputedStyle(document.body).fontFamily;
  const widest = (font, texts) => {
    canvas.font = `${font} ${family}`;
    // The page draws all digits as wide as a 0, which a canvas does not.
    return Math.max(0, ...texts.map((one) => canvas.measureText(one.replace(/\d/g, "0")).width));
  };
  return new Map(columns.map((column, i) => {
    const longest = widest("14px", rows.slice(0, SAMPLE).map((row) => text(column, row.values[i], row)));
    const head = widest("600 13px", [headText(column).name]) + 24;
    const most = ["origin", "reason", "note"].includes(column.key) ? 320 : 230;
    return [column.key, Math.ceil(Math.min(most, Math.max(longest + (column.key === "state" ? 18 : 0), head) + 23)) /* up: a part of a pixel less cuts a text */];
  }));
}

/** A title in two lines: `train.learning_rate` is "learning_rate" below "train". */
export function headText(column) {
  const name = title(column);
  const at = column.group === "trial" ? -1 : name.lastIndexOf(".");
  return at > 0 ? { section: name.slice(0, at), name: name.slice(at + 1) } : { section: column.group === "params" ? "" : column.group === "trial" ? "" : column.group, name };
}

function ends(end) {
  return (end || "").replaceAll("_", " ");
}

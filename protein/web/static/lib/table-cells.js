// The cells of the table of trials: their texts, their elements, the widths of their columns.

import { h } from "./dom.js";
import { MISSING, cell, param, score, title, toTheRight } from "./format.js";
import { spark } from "./spark.js";
import { QUEUED, unfinished } from "./trials.js";

const SAMPLE = 60; // rows whose texts decide a width
const SPECIAL_WIDTH = 110; // pixels, of what the recommended config is called: it comes later, and moves nothing
const SPARK_WIDTH = 62; // pixels, of the curve of a running trial

/**
 * Returns {text(column, given, row), draw(column, given, row), value(row, key)}. `asked()`: the keys of the columns that
 * rows have values of.
 */
export function tableCells({ state, asked, interrupted, scale, lower }) {
  function draw(column, given, row) {
    return scaled(drawn(column, given, row), column, given);
  }

  /** A bar below a number: how far along its column's range it is, better scores further; strong where the best trials lie. */
  function scaled(element, column, given) {
    const range = scale(column.key);
    if (!range || typeof given !== "number") return element;
    const along = (value) => (range.log ? Math.log(value) : value);
    const share = Math.min(Math.max((along(given) - along(range.low)) / (along(range.high) - along(range.low)), 0), 1);
    const isScore = ["score", "predicted_score", "predicted_score_low", "predicted_score_high"].includes(column.key);
    if (!Number.isFinite(share)) return element;
    element.classList.add("scaled");
    element.style.setProperty("--share", isScore && lower() ? 1 - share : share);
    if (range.good && given >= range.good[0] && given <= range.good[1]) element.classList.add("in-good");
    return element;
  }

  function drawn(column, given, row) {
    const shown = text(column, given, row);
    const kind = toTheRight(column) ? "number" : "";
    if (column.key === "number") {
      return h("td", { class: "number" }, h("a", { href: state.link("trial", {}, [row.sweep, row.number]), text: given }));
    }
    if (column.key === "state") {
      const gone = interrupted(row.sweep, row.number);
      return h("td", { title: gone ? "its process is gone; start the sweep again to go on" : value(row, "reason") || null }, h("span", { class: `dot-state ${gone ? "failed" : given}`, "aria-hidden": "true" }), shown, row.what ? h("span", { class: "tag special", text: row.what }) : null);
    }
    if (column.key === "score" && given === null && row.curve) {
      const name = `Score so far of trial ${row.number}`;
      return h("td", { class: `${kind} so-far`, title: "score so far" }, spark({ seconds: row.curve.map((_, i) => i), score: row.curve }, null, { label: name, lower: lower() }), shown);
    }
    if (column.key === "tags") return h("td", {}, (given || []).map((tag) => h("span", { class: "tag", text: tag })));
    if (column.key === "score" && given === null) return h("td", { class: `${kind} no-score${unfinished({ state: value(row, "state") }) ? " unfinished" : ""}`, title: value(row, "reason") || null, text: shown });
    const short = column.group === "params" && typeof given === "number" && param(given) !== shown;
    const unusual = typeof given === "string" && ["nan", "inf", "-inf"].includes(given) && kind;
    return h("td", { class: `${kind}${given === null ? " faint" : ""}${unusual ? " warn-text" : ""}`, title: shown.length > 24 ? shown : short ? param(given) : null, text: shown });
  }

  function text(column, given, row) {
    if (column.key === "state") return interrupted(row.sweep, row.number) ? "interrupted" : given === "waiting" && value(row, "reason") === QUEUED ? "queued" : ends(value(row, "end") || given);
    if (column.key === "score" && given === null && row.curve) return score(row.curve.at(-1));
    if (column.key === "score" && given === null) return value(row, "state") === "failed" ? ends(value(row, "end")) : MISSING;
    // Four digits of a parameter are enough here; the whole number is in the row's title, the trial's page and the CSV.
    if (column.group === "params" && typeof given === "number") return param(given, 4);
    return cell(column, given);
  }

  /** A value of a row, if its column was asked for. */
  function value(row, key) {
    const at = asked().indexOf(key);
    return at < 0 ? undefined : row.values[at];
  }

  return { text, draw, value };
}

/** The widths of columns, in pixels, from the texts of the first rows: key -> width. `special`: some rows say what they are. */
export function widthsOf(columns, rows, text, special) {
  const canvas = document.createElement("canvas").getContext("2d");
  const family = getComputedStyle(document.body).fontFamily;
  const widest = (font, texts) => {
    canvas.font = `${font} ${family}`;
    // The page draws all digits as wide as a 0, which a canvas does not.
    return Math.max(0, ...texts.map((one) => canvas.measureText(one.replace(/\d/g, "0")).width));
  };
  return new Map(columns.map((column, i) => {
    const longest = widest("14px", rows.slice(0, SAMPLE).map((row) => text(column, row.values[i], row)));
    const beside = column.key === "state" ? 18 + (special ? SPECIAL_WIDTH : 0) : column.key === "score" && rows.some((row) => row.curve) ? SPARK_WIDTH : 0;
    const head = widest("600 13px", [headText(column).name]) + 24;
    const most = ["origin", "reason", "note"].includes(column.key) ? 320 : 230;
    return [column.key, Math.ceil(Math.min(most, Math.max(longest + beside, head) + 23)) /* up: a part of a pixel less cuts a text */];
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

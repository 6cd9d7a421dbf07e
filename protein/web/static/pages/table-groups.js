// The trials of the table by the values of a column: how many, the best score, the mean with its spread.

import { fill, h, stateOf } from "../lib/dom.js";
import { MISSING, cell, difference, param, score, seconds, title, whole } from "../lib/format.js";

const COLUMNS = [
  { key: "value", of: (one) => one.place },
  { key: "trials", of: (one) => one.count, down: true },
  { key: "failed", of: (one) => one.failed, down: true },
  { key: "best", of: (one) => one.best, better: true },
  { key: "mean ± spread", of: (one) => one.mean, better: true },
  { key: "mean cost", of: (one) => one.cost_seconds },
];

/** Returns {root, draw(found, column), shown(group, column)}. `open(filter)` is told which group's trials to show; `state` gives links. */
export function groupTable({ state, open }) {
  const root = h("div", { class: "grid-room group-room", tabindex: "0", role: "region", "aria-label": "Groups of trials", hidden: true });
  let sort = { key: "mean ± spread", down: null };
  let last = null;

  function draw(found, column) {
    last = [found, column];
    const { groups } = found;
    if (!groups.length) return fill(root, stateOf("empty", "No trial matches this filter."));
    const by = COLUMNS.find((one) => one.key === sort.key);
    const down = sort.down ?? firstDown(by, found);
    const rows = groups.map((one, place) => ({ ...one, place })).sort((a, b) => compared(by.of(a), by.of(b), down));
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    fill(root, h("table", { class: "grid groups", "aria-label": "Groups of trials" },
      h("thead", {}, h("tr", {}, COLUMNS.map((one) => {
        const sorted = one.key === sort.key;
        return h("th", { scope: "col", class: one.key === "value" ? "" : "number", "aria-sort": sorted ? (down ? "descending" : "ascending") : null },
          h("button", { type: "button", dataset: { key: one.key }, onclick: () => { sort = { key: one.key, down: sorted ? !down : firstDown(one, found) }; draw(...last); } },
            h("span", { class: "head-text", text: one.key === "value" ? title(column) : one.key }), sorted ? h("span", { class: "sign", "aria-hidden": "true", text: down ? "↓" : "↑" }) : null));
      }))),
      h("tbody", {}, rows.map((one) => h("tr", {},
        h("th", { scope: "row" }, h("button", { type: "button", class: "link", title: "Show these trials", text: shown(one, column), onclick: () => open(one.filter) })),
        h("td", { class: "number", text: whole(one.count) }),
        h("td", { class: `number${one.failed ? "" : " faint"}`, text: whole(one.failed) }),
        h("td", { class: "number" }, one.trial ? h("a", { href: state.link("trial", {}, one.trial), title: `Trial ${one.trial[1]}`, text: score(one.best) }) : MISSING),
        h("td", { class: "number", text: one.mean === null ? MISSING : one.spread === null ? `${score(one.mean)} (one trial)` : `${score(one.mean)} ± ${difference(one.spread, one.mean)}` }),
        h("td", { class: "number", text: seconds(one.cost_seconds) }))))),
    found.left_out ? h("p", { class: "hint group-hint", text: `${whole(found.left_out)} further groups are not shown. A filter makes them fewer.` }) : null);
    if (focused) root.querySelector(`button[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    return root;
  }

  return { root, draw };
}

/** What a group has in common: a value, or from which one to which one. */
function shown(group, column) {
  const texts = group.values.map((value) => (column.group === "params" ? param(value, 4) : cell(column, value)) || "none");
  return !texts.length ? "none" : texts.length === 1 || texts[0] === texts[1] ? texts[0] : `${texts[0]} to ${texts[1]}`;
}

/** Best first. */
function firstDown(column, found) {
  return column.better ? !found.lower : Boolean(column.down);
}

function compared(a, b, down) {
  if (a === null || b === null) return (a === null) - (b === null);
  return down ? b - a : a - b;
}

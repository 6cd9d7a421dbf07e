// Views of the table that a reader has saved by name: filter, order, columns, groups. The browser keeps them.

import { fill, h, popover } from "../lib/dom.js";

const STORED = "protein.views";
const KEPT = ["filter", "sort", "column", "pin", "group", "plain"];
const LISTS = ["column", "pin"];

/** Returns {root}. `columns()` are those that there are; `notice` says what of a view is left out. */
export function savedViews({ state, columns, notice }) {
  return popover("Views", (panel, close) => {
    const name = h("input", { type: "text", class: "input", maxlength: "60", placeholder: "Name of this view", "aria-label": "Name of this view", value: state.get("view") });
    const list = h("div", { class: "view-list" });
    panel.append(list, h("form", { class: "form-row", onsubmit: (event) => {
      event.preventDefault();
      const chosen = name.value.trim();
      if (!chosen) return;
      if (!write({ ...read(), [chosen]: Object.fromEntries(KEPT.map((key) => [key, LISTS.includes(key) ? state.getAll(key) : state.get(key)])) })) {
        notice("The browser does not let this page keep a view. Its address holds the same: bookmark it.", { kind: "warn", key: "views", seconds: 8 });
      }
      close();
    } }, name, h("button", { type: "submit", class: "button", text: "Save" })));
    draw();

    function draw() {
      const names = Object.keys(read()).sort();
      fill(list, names.length ? names.map((one) => h("div", { class: "column-row" },
        h("button", { type: "button", class: "menu-item", text: one, onclick: () => { close(); open(one); } }),
        h("button", { type: "button", class: "button quiet", text: "Delete", "aria-label": `Delete the view ${one}`, onclick: () => {
          const views = read();
          delete views[one];
          write(views);
          draw();
        } }))) : h("p", { class: "hint", text: "A view is the filter, the order and the columns. Save this one by a name, and come back to it in any sweep." }));
    }
  }, { cls: "quiet", title: "Saved views" });

  function open(name) {
    const view = read()[name] || {};
    const known = new Set(columns().map((one) => one.key));
    const gone = new Set();
    const there = (key) => known.has(key) || !gone.add(key);
    const changes = {};
    for (const key of KEPT) changes[key] = LISTS.includes(key) ? [view[key]].flat().filter((one) => typeof one === "string") : typeof view[key] === "string" ? view[key] : "";
    changes.column = changes.column.filter(there);
    changes.pin = changes.pin.filter((key) => key === "none" || known.has(key));
    changes.sort = changes.sort.split(",").filter((key) => key && there(key.replace(/^-/, "").replaceAll("%2C", ",").replaceAll("%25", "%"))).join(",");
    if (changes.group && !there(changes.group)) changes.group = "";
    state.set({ ...changes, view: name }, { replace: false });
    notice(gone.size ? `The view “${name}” names what this sweep does not have: ${[...gone].slice(0, 5).map((key) => key.replace(/^(params|metrics|timings)\./, "")).join(", ")}${gone.size > 5 ? " and others" : ""}. The rest of it is shown.` : "", { kind: "warn", key: "views", seconds: 10 });
  }
}

function read() {
  try {
    const found = JSON.parse(localStorage.getItem(STORED) || "{}");
    return found && typeof found === "object" && !Array.isArray(found) ? found : {};
  } catch {
    return {}; // storage may be switched off, or hold something else
  }
}

function write(views) {
  try {
    localStorage.setItem(STORED, JSON.stringify(views));
    return true;
  } catch {
    return false;
  }
}

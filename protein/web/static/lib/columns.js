// The choice of a table's columns: which are shown, and which stay in sight when the table is moved sideways.

import { fill, h, popover } from "./dom.js";
import { title } from "./format.js";

const GROUPS = { params: "Parameters", trial: "Trial", metrics: "Metrics", timings: "Timings" };

/** Returns {root}. `columns()`, `shown()` and `pinned()` are asked when it opens; the others are told. */
export function columnChooser({ columns, shown, pinned, choose, pin, reset }) {
  return popover("Columns", (panel) => {
    const search = h("input", { type: "search", class: "input", placeholder: "Find a column", "aria-label": "Find a column", oninput: list });
    const room = h("div", { class: "column-list" });
    panel.classList.add("column-panel");
    panel.append(search, room, h("div", { class: "panel-foot" },
      h("button", { type: "button", class: "button quiet", text: "Usual columns", onclick: () => { reset(); setTimeout(list, 300); } })));
    let chosen = [...shown()];
    let stuck = [...pinned()];
    list();

    function list() {
      const wanted = search.value.toLowerCase();
      chosen = [...shown()];
      stuck = [...pinned()];
      const found = columns().filter((one) => `${one.key} ${title(one)}`.toLowerCase().includes(wanted));
      fill(room, Object.entries(GROUPS).map(([group, name]) => {
        const mine = found.filter((one) => one.group === group);
        if (!mine.length) return null;
        return h("fieldset", {}, h("legend", { text: name }), mine.map(row));
      }), found.length ? null : h("p", { class: "hint", text: "No column has that in its name." }));
    }

    function row(column) {
      const name = title(column);
      const box = h("input", { type: "checkbox", checked: chosen.includes(column.key), onchange: () => {
        chosen = box.checked ? [...chosen, column.key] : chosen.filter((key) => key !== column.key);
        if (chosen.length) choose(chosen);
        else box.checked = true; // one column at least
      } });
      const pinButton = h("button", { type: "button", class: "pin", "aria-pressed": String(stuck.includes(column.key)), title: "Keep in sight", "aria-label": `Keep ${name} in sight`,
        onclick: () => {
          stuck = stuck.includes(column.key) ? stuck.filter((key) => key !== column.key) : [...stuck, column.key];
          pinButton.setAttribute("aria-pressed", String(stuck.includes(column.key)));
          pin(stuck);
        } }, h("span", { "aria-hidden": "true", class: "pin-sign" }));
      const hint = column.empty ? "no values" : column.constant ? "all the same" : "";
      return h("div", { class: "column-row" }, h("label", { class: "choice" }, box, h("span", { class: "name", text: name })), h("span", { class: "aside faint", text: hint }), pinButton);
    }
  }, { title: "Choose columns" });
}

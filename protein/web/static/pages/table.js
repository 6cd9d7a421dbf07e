// The table of all trials: see the next version.
import { h } from "../lib/dom.js";
import { cell, title } from "../lib/format.js";

export async function render(root, { api, state, signal }) {
  const found = await api.get("/table", { sweep: state.sweeps, limit: 100 }, { signal });
  const shown = found.shown.map((key) => found.columns.find((one) => one.key === key));
  root.append(h("table", {}, h("tr", {}, shown.map((one) => h("th", { text: title(one) }))),
    found.rows.map((row) => h("tr", {}, row.map((value, i) => h("td", { text: cell(shown[i], value) }))))));
}

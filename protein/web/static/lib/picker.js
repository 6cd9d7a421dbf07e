// The choice of sweeps in the bar: one, or several to look at together.

import { fill, h, popover } from "./dom.js";
import { counted, seconds } from "./format.js";

/** Returns {draw(sweeps, store), open()}. `chosen()` gives the chosen names, `choose(names)` takes new ones. */
export function sweepPicker(root, { chosen, choose }) {
  let sweeps = [];
  let store = "";
  const label = h("span", { class: "picker-label" });
  const menu = popover(label, build, { cls: "picker-button", title: "Choose sweeps (w)" });
  fill(root, menu.root);

  function build(panel, close) {
    const search = h("input", { type: "search", class: "input", placeholder: "Find a sweep", "aria-label": "Find a sweep",
      oninput: () => list() });
    const rows = h("div", { class: "picker-rows" });
    panel.append(sweeps.length > 7 ? search : "", rows,
      h("p", { class: "hint", text: "A click shows one sweep. The boxes show several together." }));
    list();
    function list() {
      const wanted = search.value.toLowerCase();
      const found = sweeps.filter((sweep) => sweep.name.toLowerCase().includes(wanted) && (wanted || !sweep.archived || chosen().includes(sweep.name)));
      fill(rows, found.slice(0, 200).map(row), found.length ? null : h("p", { class: "hint", text: "No sweep has that in its name." }));
    }
    function row(sweep) {
      const names = chosen();
      const box = h("input", { type: "checkbox", "aria-label": `Show ${sweep.name} with the others`, checked: names.includes(sweep.name),
        onchange: () => {
          const others = chosen().filter((name) => name !== sweep.name);
          if (box.checked) {
            choose([...others, sweep.name]);
            box.checked = chosen().includes(sweep.name); // there may be too many of them
          }
          else if (others.length) choose(others);
          else box.checked = true; // one at least is shown
        } });
      return h("div", { class: "picker-row" }, box,
        h("button", { type: "button", class: "menu-item", onclick: () => { choose([sweep.name]); close(); } },
          h("span", { class: "name", text: sweep.name }), h("span", { class: "aside", text: facts(sweep) })));
    }
  }

  return {
    draw(found, name = store) {
      sweeps = found;
      store = name;
      const names = chosen();
      fill(label, names.length === 1 ? names[0] : names.length ? `${names[0]} and ${names.length - 1} more` : sweeps.length ? "all sweeps" : "no sweep");
    },
    open: () => menu.open(),
  };
}

function facts(sweep) {
  if (sweep.trials === undefined) return "";
  const running = sweep.states.running ? `, ${sweep.states.running} running` : "";
  return `${counted(sweep.trials, "trial")}${running}, ${seconds(sweep.spent_seconds)} of training`;
}

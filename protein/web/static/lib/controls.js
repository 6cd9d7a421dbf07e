// Small controls above charts: one of a few, one of many, a slider, a box to tick.

import { h } from "./dom.js";

/** A row of buttons of which one is pressed. `choices`: [value, text] pairs. Returns {root, set(value)}. */
export function segments(label, choices, value, choose) {
  const buttons = choices.map(([one, text]) => h("button", { type: "button", text, "aria-pressed": String(one === value),
    dataset: { value: one }, onclick: () => { set(one); choose(one); } }));
  const root = h("div", { class: "segments", role: "group", "aria-label": label }, buttons);
  function set(chosen) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === String(chosen)));
  }
  return { root, set };
}

/** A labelled list to choose from. `choices`: [value, text] pairs or {group, choices}. Returns {root, select, set(choices, value)}. */
export function select(label, choices, value, choose) {
  const list = h("select", { class: "input", "aria-label": label, onchange: () => choose(list.value) });
  const root = h("label", { class: "field" }, h("span", { class: "field-label", text: label }), list);
  function option([one, text]) {
    return h("option", { value: one, text, selected: String(one) === String(chosen) });
  }
  let chosen = value;
  function set(given, now) {
    chosen = now;
    list.replaceChildren(...given.map((one) => (Array.isArray(one) ? option(one)
      : h("optgroup", { label: one.group }, one.choices.map(option)))));
    list.value = String(now);
  }
  set(choices, value);
  return { root, select: list, set };
}

/** A labelled slider. `text(value)` is shown beside it. */
export function slider(label, { min, max, step, value, text, change }) {
  const shown = h("span", { class: "slider-value", text: text(value) });
  const input = h("input", { type: "range", min, max, step, "aria-label": label, oninput: () => {
    shown.textContent = text(Number(input.value));
    change(Number(input.value));
  } });
  input.value = String(value);
  return { root: h("label", { class: "field" }, h("span", { class: "field-label", text: label }), input, shown), input,
    set(now) { input.value = String(now); shown.textContent = text(now); } };
}

/** A box to tick. */
export function tick(label, value, change) {
  const input = h("input", { type: "checkbox", checked: value, onchange: () => change(input.checked) });
  return { root: h("label", { class: "choice" }, input, label), input };
}

/** Columns of a table as choices in groups, for `select`: what trials have a value for. */
export function columnChoices(columns, title, { numeric = false } = {}) {
  const groups = new Map();
  for (const one of columns) {
    if (one.empty || one.constant || ["tags", "note", "sweep"].includes(one.key) && numeric) continue;
    if (numeric && !["number", "integer", "time"].includes(one.kind) && one.group !== "params") continue;
    const name = { trial: "result", params: "parameters", metrics: "metrics", timings: "timings" }[one.group] || one.group;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push([one.key, title(one)]);
  }
  return ["parameters", "result", "metrics", "timings"].filter((name) => groups.has(name))
    .map((name) => ({ group: name, choices: groups.get(name) }));
}

/** Calls `work` at most once in `milliseconds`, also for the last of several calls. Ends with the signal. */
export function throttled(work, milliseconds, signal) {
  let timer = 0;
  let last = -Infinity;
  signal?.addEventListener("abort", () => clearTimeout(timer));
  return () => {
    if (timer || signal?.aborted) return;
    const wait = Math.max(0, last + milliseconds - performance.now());
    timer = setTimeout(() => { timer = 0; last = performance.now(); work(); }, wait);
  };
}

/** Returns an answer, unless it says why there is nothing to show yet: that is thrown, for a part of a page to show. */
export function answered(found) {
  if (found.problem) throw nothingYet(found.problem);
  return found;
}

/** Something to throw where there is nothing to show, and nothing is wrong. */
export function nothingYet(line) {
  return Object.assign(new Error(line), { status: 200 });
}

// The field for a filter, with the names of columns, and behind a sign their values, to choose from while typing; and the
// error below it.

import { debounced, h } from "./dom.js";

const COMPARED = /(`[^`]+`|[\w.]+)\s*(?:==?|!=|<>|\bin\s*\((?:[^()]*,)?)\s*$/; // what stands before a value, and the column
let counter = 0;

/**
 * Returns {root, input, set(text, tell), fault(line), offer()}. `columns()` gives what may be named, `changed(text)` is
 * told. Call `offer` when there are columns for the first time: somebody may have typed before.
 */
export function filterField({ value, columns, changed }) {
  const id = `filter-${counter += 1}`;
  const list = h("ul", { class: "suggestions", id: `${id}-list`, role: "listbox", hidden: true, "aria-label": "Names of columns" });
  const error = h("p", { class: "filter-error", id: `${id}-error`, hidden: true, role: "alert" });
  const input = h("input", { type: "text", class: "input filter", value, spellcheck: "false", autocomplete: "off", autocapitalize: "off",
    placeholder: "Filter: score > 10 and state == complete", "aria-label": "Filter trials", role: "combobox", "aria-expanded": "false",
    "aria-controls": list.id, "aria-describedby": error.id, "aria-autocomplete": "list" });
  const clear = h("button", { type: "button", class: "filter-clear", "aria-label": "Clear the filter", text: "×", hidden: !value, onclick: () => { set(""); input.focus(); } });
  const root = h("div", { class: "filter-root" }, input, clear, list, error);
  const tell = debounced(() => changed(input.value.trim()), 250);
  let at = -1; // the suggestion that the keyboard is on

  input.addEventListener("input", () => { clear.hidden = !input.value; suggest(); tell(); });
  input.addEventListener("blur", () => setTimeout(() => { if (document.activeElement !== input) close(); }, 120));
  input.addEventListener("keydown", (event) => {
    const items = [...list.children];
    if (event.key === "Escape") {
      if (list.hidden) input.blur();
      close();
      event.stopPropagation();
    } else if (!list.hidden && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + items.length) % items.length;
      mark(items);
    } else if (!list.hidden && at >= 0 && (event.key === "Enter" || event.key === "Tab")) {
      event.preventDefault();
      take(items[at].dataset.name);
    } else if (event.key === "Enter") {
      close();
      changed(input.value.trim());
    }
  });

  function mark(items) {
    items.forEach((one, i) => one.setAttribute("aria-selected", i === at));
    input.setAttribute("aria-activedescendant", items[at]?.id || "");
    items[at]?.scrollIntoView({ block: "nearest" });
  }

  /** The word that is being typed, and where it begins. */
  function word() {
    const before = input.value.slice(0, input.selectionStart);
    const found = /[`\w.\-/:@\u0080-\uffff]*$/.exec(before)[0];
    return { text: found, start: before.length - found.length };
  }

  function suggest() {
    const { text, start } = word();
    const wanted = text.toLowerCase().replace(/^`/, "");
    const compared = COMPARED.exec(input.value.slice(0, start))?.[1];
    const values = columns().find((one) => one.name === compared || one.title === compared)?.words ?? [];
    const names = wanted.length < 1 && !values.length ? [] : (values.length ? values : columns().filter((one) => !one.empty).map((one) => one.name))
      .filter((name) => name.toLowerCase().includes(wanted) && name.toLowerCase() !== wanted).slice(0, values.length ? 20 : 8);
    at = -1;
    list.replaceChildren(...names.map((name, i) => h("li", { role: "option", id: `${id}-${i}`, dataset: { name }, text: name, "aria-selected": "false",
      onpointerdown: (event) => { event.preventDefault(); take(name); } })));
    list.hidden = !names.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
  }

  function take(name) {
    const { text, start } = word();
    input.setRangeText(name, start, start + text.length, "end");
    close();
    input.focus();
    tell();
  }

  function close() {
    list.hidden = true;
    at = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function fault(line) {
    error.hidden = !line;
    error.textContent = line || "";
    input.setAttribute("aria-invalid", line ? "true" : "false");
  }

  function set(text, telling = true) {
    if (document.activeElement !== input || telling) input.value = text;
    clear.hidden = !input.value;
    if (telling) changed(text);
  }

  function offer() {
    if (document.activeElement === input && input.value) suggest();
  }

  return { root, input, set, fault, offer };
}

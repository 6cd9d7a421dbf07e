// Elements without templates. Texts are always text, never HTML, so nothing in a store can become part of the page's code.

/**
 * Returns an element. `attributes`: `class`, `text`, `dataset`, `style` (an object), `on...` listeners, or attributes;
 * false, null and undefined leave one out. Children may be elements, texts, arrays of them, or nothing.
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "indeterminate") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

/** Replaces what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** A state instead of content: what is so, and what helps. `kind`: "empty", "loading" or "error". */
export function stateOf(kind, title, ...help) {
  return h("div", { class: `state ${kind}`, role: kind === "error" ? "alert" : "status" },
    kind === "loading" ? h("span", { class: "spinner", "aria-hidden": "true" }) : null,
    h("p", { class: "state-title", text: title }),
    help.map((one) => (typeof one === "string" ? h("p", { class: "state-help", text: one }) : one)));
}

/** Asks in a dialog, and returns the promise of whether `action` was chosen. */
export function confirmed(title, line, action) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { class: "dialog", "aria-label": title }, h("h2", { text: title }), h("p", { text: line }),
      h("form", { method: "dialog" }, h("button", { class: "button", value: "", text: "Cancel" }), " ", h("button", { class: "button primary", value: "yes", text: action })));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Calls the last of several calls after `milliseconds` of quiet. */
export function debounced(work, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}

/**
 * A button with a panel below it, which Escape, a click elsewhere and `close()` close.
 * `build(panel, close)` fills the panel each time it opens.
 */
export function popover(label, build, { cls = "", title = "" } = {}) {
  const panel = h("div", { class: "popover", hidden: true, role: "dialog", "aria-label": title || label });
  const button = h("button", { type: "button", class: `button ${cls}`, title: title || null, "aria-haspopup": "dialog",
    "aria-expanded": "false", onclick: () => (panel.hidden ? open() : close()) }, label);
  const root = h("div", { class: "popover-root" }, button, panel);
  const outside = (event) => { if (!root.contains(event.target)) close(false); };
  const key = (event) => { if (event.key === "Escape") { event.stopPropagation(); close(); } };
  function open() {
    fill(panel);
    build(panel, close);
    panel.hidden = false;
    button.setAttribute("aria-expanded", "true");
    document.addEventListener("pointerdown", outside, true);
    root.addEventListener("keydown", key);
    const { right, top } = panel.getBoundingClientRect();
    panel.style.setProperty("--top", `${Math.ceil(top)}px`);
    panel.classList.toggle("to-left", right > document.documentElement.clientWidth - 8);
    panel.querySelector("input, button, select, textarea, a")?.focus();
  }
  function close(back = true) {
    if (panel.hidden) return;
    panel.hidden = true;
    panel.classList.remove("to-left");
    button.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", outside, true);
    root.removeEventListener("keydown", key);
    if (back) button.focus();
  }
  return { root, button, panel, open, close };
}

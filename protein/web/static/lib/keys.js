// The keyboard: keys of the whole page and of the page that is open, and the list of them that "?" shows.

import { h } from "./dom.js";

const bound = [];

/** Binds keys such as "j", "Shift+J", "g t" (one after the other) or "/" until the signal is aborted. */
export function bind(keys, help, action, signal) {
  const one = { keys, help, action };
  bound.push(one);
  signal?.addEventListener("abort", () => bound.splice(bound.indexOf(one), 1));
}

let first = "";
let firstAt = 0;

/** Listens to the document; call it once. */
export function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target;
    if (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && target.type !== "checkbox") return;
    const key = name(event);
    // What has the focus keeps its own keys: a button is pressed by Enter and Space, an open panel has its own.
    if (target.closest("dialog, .popover") || (["Enter", "Space"].includes(key) && target.closest("button, a, input, summary"))) return;
    const pair = first && performance.now() - firstAt < 1200 ? `${first} ${key}` : "";
    first = "";
    const found = bound.findLast((one) => pair && one.keys === pair) || bound.findLast((one) => one.keys === key);
    if (found) {
      event.preventDefault();
      found.action(event);
    } else if (bound.some((one) => one.keys.startsWith(`${key} `))) {
      first = key;
      firstAt = performance.now();
    }
  });
}

function name(event) {
  const shift = event.shiftKey && event.key.length > 1 ? "Shift+" : "";
  return shift + (event.key === " " ? "Space" : event.key);
}

/** Shows all keys in a dialog. */
export function showHelp() {
  const rows = bound.filter((one) => one.help).map((one) => h("div", {},
    h("dt", {}, one.keys.split(" ").map((key) => [h("kbd", { text: key.replace("Shift+", "⇧") }), " "])),
    h("dd", { text: one.help })));
  const dialog = h("dialog", { class: "dialog", "aria-label": "Keys" }, h("h2", { text: "Keys" }), h("dl", { class: "keys" }, rows),
    h("form", { method: "dialog" }, h("button", { class: "button", text: "Close" })));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

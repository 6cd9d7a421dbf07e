// A trial's log: its end, which grows while the trial runs, and a search in the whole of it.
//
//   const { head, root } = log(api, { sweep, number }, { runs: () => true, signal });
//
// Somebody who reads further up is left there; the box follows its end only from the end.

import { debounced, fill, h } from "./dom.js";
import { bytes } from "./format.js";
import { pause } from "./slow.js";

const EACH = 1500; // milliseconds between two looks at the log of a trial that runs
const NEAR_END = 30; // pixels

export function log(api, trial, { runs, signal, cls = "" }) {
  const size = h("span", { class: "muted log-size" });
  const wanted = h("input", { type: "search", class: "input", placeholder: "Search the log", "aria-label": `Search the log of trial ${trial.number}`, maxlength: "200",
    oninput: debounced(() => show(), 250) });
  const root = h("pre", { class: `log ${cls}`, tabindex: "0", "aria-label": `Log of trial ${trial.number}` });
  let asked = 0; // an answer to an earlier question is not shown
  follow();
  return { head: [size, wanted], root };

  async function follow() {
    await show();
    while (!signal.aborted && runs()) {
      await pause(EACH, signal);
      if (!signal.aborted && root.isConnected && !wanted.value && !document.hidden) await show();
    }
    if (!signal.aborted && !wanted.value) await show(); // what it wrote last
  }

  async function show() {
    const mine = asked += 1;
    const find = wanted.value.trim();
    try {
      const found = await api.get("/trial/log", find ? { ...trial, find } : trial, { signal });
      if (mine === asked) (find ? hits : end)(found, find);
    } catch (error) {
      if (mine === asked && error.name !== "AbortError") root.textContent = error.message;
    }
  }

  function end(found) {
    const follows = root.scrollHeight - root.scrollTop - root.clientHeight < NEAR_END;
    const text = found.lines.join("\n") || "The log is empty.";
    if (text !== root.textContent) root.textContent = text;
    wanted.hidden = !found.lines.length; // there is nothing to search
    size.textContent = `${found.lines.length} lines${found.cut ? `, the end of ${bytes(found.size)}` : ""}`;
    if (follows) root.scrollTop = root.scrollHeight;
  }

  function hits({ count, found }, find) {
    size.textContent = `${count} ${count === 1 ? "line" : "lines"}${found.length < count ? `, the last ${found.length} are shown` : ""}`;
    fill(root, found.length ? found.flatMap(([line, text]) => [h("span", { class: "faint", text: `${line}  ` }), marked(text, find), "\n"]) : "No line of the log has it.");
  }
}

/** A text in which what was searched for is marked, in any case. */
function marked(text, find) {
  const parts = [];
  const [low, wanted] = [text.toLowerCase(), find.toLowerCase()];
  let at = 0;
  for (let next = low.indexOf(wanted); next >= 0 && low.length === text.length; next = low.indexOf(wanted, at)) {
    parts.push(text.slice(at, next), h("mark", { text: text.slice(next, next + wanted.length) }));
    at = next + wanted.length;
  }
  return [...parts, text.slice(at)];
}

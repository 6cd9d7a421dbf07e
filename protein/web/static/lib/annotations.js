// Tags, notes and exclusions of the selected trials. Each change can be taken back from its message.

import { fill, h, popover } from "./dom.js";
import { whole } from "./format.js";

/**
 * Returns {buttons(), bindKeys(focused)}. `refresh()` is called after a change. The trials are the selected ones;
 * for keys, where nothing is selected, the one that `focused()` gives.
 */
export function annotations({ api, state, selection, signal, keys, notice, refresh }) {
  let focused = () => null;

  function bySweep(pairs) {
    const found = new Map();
    for (const [sweep, number] of pairs) {
      if (!found.has(sweep)) found.set(sweep, []);
      found.get(sweep).push(number);
    }
    return found;
  }

  function targets() {
    const chosen = selection.pairs();
    const row = focused();
    return chosen.length || !row ? chosen : [[row.sweep, row.number]];
  }

  /** Sends a change for some trials, and says what was done. Undo brings back what each of them had before. */
  async function change(pairs, what, said) {
    if (!pairs.length) return;
    const before = [];
    try {
      for (const [sweep, numbers] of bySweep(pairs)) { // also where the page is left meanwhile
        const done = await api.post("/annotate", { sweep, numbers, ...what });
        before.push(...done.before.map((one) => ({ sweep, ...one })));
      }
      const name = pairs.length === 1 ? `Trial ${pairs[0][1]}` : `${whole(pairs.length)} trials`;
      notice(`${name} ${typeof said === "function" ? said(pairs.length === 1) : said}`, { key: "annotated", seconds: 10, action: { text: "Undo", run: () => takeBack(name, before) } });
      if (!signal.aborted) await refresh();
    } catch (error) {
      if (error.name !== "AbortError") notice(`Not changed: ${error.message}`, { kind: "error", key: "annotated" });
    }
  }

  async function takeBack(name, before) {
    try {
      for (const one of before) await api.post("/annotate", one);
      notice(`${name} as before.`, { key: "annotated", seconds: 10 });
      if (!signal.aborted) await refresh();
    } catch (error) {
      if (error.name !== "AbortError") notice(`Not taken back: ${error.message}`, { kind: "error", key: "annotated" });
    }
  }

  const exclude = (pairs) => change(pairs, { excluded: true }, (one) => `excluded. The engine learns nothing from ${one ? "it" : "them"}, and no view recommends ${one ? "it" : "them"}.`);
  const include = (pairs) => change(pairs, { excluded: false }, "included again.");

  function tagMenu() {
    return popover("Tag", (panel, close) => {
      const field = h("input", { class: "input", maxlength: "60", placeholder: "Name of a tag", "aria-label": "Name of a tag" });
      const act = (remove) => {
        const tag = field.value.trim();
        if (!tag) return;
        close();
        change(targets(), remove ? { remove_tags: [tag] } : { add_tags: [tag] }, remove ? `without the tag “${tag}”.` : `tagged “${tag}”.`);
      };
      field.addEventListener("keydown", (event) => { if (event.key === "Enter") act(false); });
      fill(panel, h("div", { class: "form-row" }, field, h("button", { type: "button", class: "button primary", text: "Add", onclick: () => act(false) }),
        h("button", { type: "button", class: "button", text: "Remove", onclick: () => act(true) })));
    }, { title: "Tags of the selected trials (l)" });
  }

  function noteMenu() {
    return popover("Note", (panel, close) => {
      const field = h("textarea", { class: "input", rows: "4", maxlength: "10000", placeholder: "What was seen", "aria-label": "Note" });
      const pairs = targets();
      if (pairs.length === 1) {
        api.get("/table", { sweep: pairs[0][0], filter: `number == ${pairs[0][1]}`, column: ["note"], limit: 1 }, { signal })
          .then((found) => { if (!field.value) field.value = found.rows[0]?.[0] || ""; }, () => {});
      }
      fill(panel, field, h("div", { class: "form-row" },
        h("span", { class: "hint", text: pairs.length > 1 ? "Replaces the notes of all selected trials." : "An empty note removes it." }),
        h("button", { type: "button", class: "button primary", text: "Save the note", onclick: () => {
          close();
          change(pairs, { note: field.value.trim() }, field.value.trim() ? "noted." : "without a note.");
        } })));
      panel.classList.add("note-panel");
    }, { title: "Note on the selected trials (n)" });
  }

  let tags = null;
  let note = null;
  return {
    buttons() {
      if (!api.live) return []; // a report cannot be changed
      tags = tagMenu();
      note = noteMenu();
      return [tags.root, note.root,
        h("button", { type: "button", class: "button", text: "Exclude", title: "The engine does not learn from them, and they are not recommended (x)", onclick: () => exclude(targets()) }),
        h("button", { type: "button", class: "button", text: "Include", title: "Take an exclusion back (i)", onclick: () => include(targets()) })];
    },
    bindKeys(find) {
      if (!api.live) return;
      focused = find;
      keys.bind("l", "tag the selected trials", () => tags?.button.isConnected && tags.open(), signal);
      keys.bind("n", "note on the selected trials", () => note?.button.isConnected && note.open(), signal);
      keys.bind("x", "exclude the selected trials from the engine", () => exclude(targets()), signal);
      keys.bind("i", "include them again", () => include(targets()), signal);
    },
  };
}

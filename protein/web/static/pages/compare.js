// Chosen trials side by side, or whole sweeps over each other.

import { segments } from "../lib/controls.js";
import { fill, h } from "../lib/dom.js";
import { compareSweeps } from "./compare-sweeps.js";
import { compareTrials } from "./compare-trials.js";

export async function render(root, context) {
  const { state, selection } = context;
  const view = () => state.get("view") || (state.sweeps.length > 1 && !selection.size ? "sweeps" : "trials");
  const tabs = segments("What to compare", [["trials", "Trials"], ["sweeps", "Sweeps"]], view(), (value) => state.set({ view: value }));
  const tools = h("div", { class: "toolbar-rest" });
  const room = h("div", { class: "compare-room" });
  root.append(h("h1", { class: "visually-hidden", text: "Compare" }), h("div", { class: "toolbar" }, tabs.root, tools), room);
  let shown = "";
  let part = null;
  let late = []; // keys of the address that changed before the part was there
  let missed = false; // whether trials changed before that, too
  let leaving = null; // aborted when its part is left: late answers must not draw over the other one
  await show();

  async function show() {
    tabs.set(view());
    if (shown !== view()) {
      shown = view();
      leaving?.abort();
      leaving = new AbortController();
      part = null;
      late = [];
      missed = false;
      fill(room);
      fill(tools);
      const signal = AbortSignal.any([context.signal, leaving.signal]);
      try {
        const made = await (shown === "trials" ? compareTrials : compareSweeps)(room, tools, { ...context, signal });
        if (signal.aborted) return;
        part = made;
        if (late.length) await part.stateChanged?.(late);
        if (missed) await part.update?.({ numbers: Object.fromEntries(state.sweeps.map((name) => [name, null])) });
      } catch (error) {
        if (error.name !== "AbortError" || context.signal.aborted) throw error;
      }
    }
  }

  return {
    update(news) {
      if (part) return part.update?.(news);
      missed = true;
      return undefined;
    },
    async stateChanged(keys) {
      const before = shown;
      await show();
      if (before !== shown) return;
      if (part) await part.stateChanged?.(keys);
      else late.push(...keys);
    },
  };
}

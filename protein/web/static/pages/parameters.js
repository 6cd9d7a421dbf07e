// What the parameters do: which matter, parallel coordinates, the engine's model along them, scatter of any fields.
// Each part loads by itself: models take seconds on the server, and the others need not wait.

import { throttled } from "../lib/controls.js";
import { fill, h, stateOf } from "../lib/dom.js";
import { sentence } from "../lib/format.js";
import { importanceCard } from "./parameters-importance.js";
import { mattersCard } from "./parameters-matters.js";
import { mapCard } from "./parameters-map.js";
import { parallelCard } from "./parameters-parallel.js";
import { scatterCard } from "./parameters-scatter.js";
import { slicesCard } from "./parameters-slices.js";

const PARTS = [
  { key: "matters", title: "What matters", card: mattersCard, wait: 20000, model: true, all: ["target"] },
  { key: "parallel", title: "Parallel coordinates", card: parallelCard, wait: 2500, all: ["filter"] },
  { key: "slices", title: "What the model expects along each parameter", card: slicesCard, wait: 20000, model: true, all: ["seconds", "at"] },
  { key: "map", title: "What it expects over two parameters", card: mapCard, wait: 20000, model: true, all: ["mapx", "mapy", "seconds", "at"] },
  { key: "scatter", title: "Any two fields", card: scatterCard, wait: 2500, all: ["filter", "x", "y", "color"] },
  { key: "importance", title: "Other measures of importance", card: importanceCard, wait: 20000, model: true, all: ["target"] },
];

export async function render(root, context) {
  const { state, signal } = context;
  const ends = h("div", { class: "range-ends", role: "status" });
  root.append(h("h1", { class: "visually-hidden", text: "Parameters" }), ends);
  const parts = PARTS.map((about) => {
    const head = h("div", { class: "chart-head" }, h("h2", { text: about.title }));
    const tools = h("div", { class: "toolbar-rest" });
    const body = h("div", { class: "part-body" });
    head.append(tools);
    const card = h("section", { class: `chart-card part-${about.key}`, "aria-label": about.title }, head, body);
    root.append(card);
    const part = { about, tools, body, made: null, loading: false, again: false };
    part.load = () => load(part);
    part.soon = throttled(part.load, about.wait, signal);
    return part;
  });
  const shared = { ...context, showEnds, ends };

  /** Loads a part, one time after the other: so a late answer never replaces a newer one. */
  async function load(part) {
    part.again = true;
    if (part.loading) return;
    part.loading = true;
    try {
      while (part.again && !signal.aborted) {
        part.again = false;
        await loadOnce(part);
      }
    } finally {
      part.loading = false;
    }
  }

  async function loadOnce(part) {
    const { about, tools, body } = part;
    if (about.model && state.sweeps.length !== 1) {
      fill(tools);
      fill(body, h("p", { class: "chart-note", text: "This is about one sweep. Choose a single one at the top left." }));
      return;
    }
    const slow = setTimeout(() => { if (!part.made) fill(body, stateOf("loading", about.key === "importance" ? "Computing the importance" : about.model ? "Fitting the model to the trials" : "Loading")); }, 250);
    try {
      if (part.made) await part.made.refresh();
      else {
        const made = await about.card(shared, tools, () => { clearTimeout(slow); fill(body); return body; });
        part.made = made;
      }
      body.dataset.state = "ready";
      if (part.made.fitting?.()) part.soon(); // the last trial's model is not there yet
    } catch (error) {
      if (signal.aborted || error.name === "AbortError") return;
      if (error.status === undefined) console.error(error);
      part.made = null;
      fill(tools);
      fill(body, h("p", { class: "chart-note", role: error.status === 200 ? "status" : "alert",
        text: sentence(error.status === undefined ? `this part has a defect: ${error.message}` : error.message) }));
      body.dataset.state = "error";
    } finally {
      clearTimeout(slow);
    }
  }

  /** Parameters whose best values lie on the end of their range: said above everything else. */
  function showEnds(found) {
    fill(ends, found.map((end) => h("p", { class: "range-end" }, h("span", { class: "flag", "aria-hidden": "true" }), sentence(end.text))));
  }

  for (const part of parts) if (part.about.model && state.sweeps.length === 1) fill(part.body, stateOf("loading", "Waiting for the model"));
  // What is quick comes first; the models one after the other, so that the first of them is there soon.
  const [quick, models] = [parts.filter((part) => !part.about.model), parts.filter((part) => part.about.model)];
  Promise.all(quick.map((part) => part.load())).then(async () => {
    for (const key of ["matters", "slices", "map", "importance"]) await models.find((part) => part.about.key === key).load();
  });

  return {
    update: () => { for (const part of parts) part.soon(); },
    stateChanged(keys) {
      for (const part of parts) {
        if (keys.some((key) => part.about.all.includes(key))) part.load();
        else if (keys.includes("sel")) part.made?.selected?.();
      }
    },
  };
}

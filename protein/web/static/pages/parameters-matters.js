// What matters: one ranked list with shares, best values and laws, and the pairs that interact.

import { answered, segments } from "../lib/controls.js";
import { fill, h } from "../lib/dom.js";
import { csv, saveMenu } from "../lib/export.js";
import { counted, percent, seconds, sentence } from "../lib/format.js";
import { patient } from "../lib/slow.js";
import { nameOf } from "../lib/trials.js";

const MOST_PAIRS = 5;

export async function mattersCard(context, tools, room) {
  const { api, state, signal } = context;
  const target = () => (state.get("target") === "cost" ? "cost" : "score");
  let found = await load();
  const body = room();
  const tabs = segments("What matters for", [["score", "for the score"], ["cost", "for the cost"]], target(), (value) => state.set({ target: value === "cost" ? "cost" : "" }));
  fill(tools, h("span", { class: "space" }), tabs.root, saveMenu(() => `what matters in ${state.sweeps[0]}`, { csv: table }));
  draw();

  function load() {
    return patient(api, "/matters", { sweep: state.sweeps, target: target() }, signal).then(answered);
  }

  function draw() {
    const all = found.parameters;
    const best = all.some((one) => one.best);
    const laws = all.some((one) => one.law);
    const values = found.best_seconds === null ? "best values" : `best values at ${seconds(found.best_seconds)}`;
    const heads = [["parameter"], ["verdict"], ["share [80 %]"], ["over the whole space", "whole"], ...(best ? [[values]] : []), ...(laws ? [["with cost", "law"]] : [])];
    fill(body,
      h("table", { class: "facts matters" }, h("thead", {}, h("tr", {}, heads.map(([text, cls = ""]) => h("th", { scope: "col", text, class: cls })))),
        h("tbody", {}, all.map((one) => h("tr", { "data-matters": one.name },
          h("th", { scope: "row" }, nameOf(one.name), noteOf(one)), h("td", {}, mark(one.verdict)), h("td", {}, bar(one.share)),
          h("td", { class: "muted whole", title: `alone ${shareText(one.alone)}, with what it does together with others ${shareText(one.whole)}`, text: shareText(one.whole) }),
          best ? h("td", { text: one.best }) : null, laws ? h("td", { class: "muted law", text: one.law }) : null)))),
      found.pairs.length ? h("p", { class: "hint-line" }, "Pairs whose best values depend on each other: ", found.pairs.slice(0, MOST_PAIRS).map((one, i) => [i ? ", " : "", nameOf(one.names[0]), " with ", nameOf(one.names[1]), ` ${shareText(one.share)}`, one.verdict === "maybe" ? " (maybe)" : ""]), ".") : null,
      h("p", { class: "chart-note" }, `From ${counted(found.num_trials, "trial")}. ${sentence(found.meaning)} `,
        all.some((one) => one.is_cost) ? "The share of the cost parameter is apart: it is of all, and those of the others add up to 100 %. " : "",
        "Over the whole space, a share is of the variance of the ", target(), " (the total Sobol index)."));
    body.dataset.parameters = all.length;
  }

  function noteOf(one) {
    if (one.is_cost) return h("span", { class: "muted", text: " (cost parameter)" });
    return one.active ? null : h("span", { class: "muted", text: " (where it is active: the best configs do not have it)" });
  }

  function table() {
    const ends = (name) => [name, `${name} low`, `${name} high`];
    return csv(["parameter", "verdict", ...ends("share"), ...ends("whole"), ...ends("alone"), "best values", "law"],
      found.parameters.map((one) => [one.name, one.verdict, ...["share", "whole", "alone"].flatMap((name) => [one[name].value, one[name].low, one[name].high]), one.best, one.law]));
  }

  return { async refresh() { tabs.set(target()); found = await load(); draw(); }, fitting: () => found.fitting };
}

function mark(verdict) {
  return h("span", { class: `verdict-mark ${verdict}`, text: verdict });
}

function bar(share) {
  return h("span", { class: "share-bar" }, h("i", { style: { width: `${100 * share.value}%` } }), h("span", { text: shareText(share) }));
}

function shareText(share) {
  return `${percent(share.value)} [${Math.round(100 * share.low)}, ${Math.round(100 * share.high)}]`;
}

// Two or more sweeps over each other: "the old algorithm against the new one, both tuned".

import { segments, throttled, tick as box } from "../lib/controls.js";
import { fill, h, popover, stateOf } from "../lib/dom.js";
import { csv, saveMenu } from "../lib/export.js";
import { clock, numbers, percent, probability, score, seconds, sentence, tick } from "../lib/format.js";
import { TIME_STEPS, lines } from "../lib/lines.js";
import { scoreAxis, scoreEnds } from "../lib/scales.js";
import { colors, onTheme } from "../lib/theme.js";

const TITLES = { best: "best config", hypervolume: "hypervolume", area: "mean of the best so far" };
const MEANING = {
  best: "the best score that the common budget has bought",
  hypervolume: "area under the front of score and log cost",
  area: "mean of the best score so far over the common budget: how soon it was found",
};
const FETCHED = ["group", "side", "reference"];

export async function compareSweeps(root, tools, context) {
  const { api, state, signal } = context;
  let found = null;
  let drawn = null; // aborted when other charts replace these
  let shownTabs = null; // what the tools offer now
  const plots = {};
  const grouped = () => state.get("group") !== "0";
  const env = () => (found.environments.some((one) => one.name === state.get("env")) ? state.get("env") : found.environments.length > 1 ? "" : found.environments[0].name);
  const group = box("seeds together", grouped(), (on) => state.set({ group: on ? "" : "0", side: [], reference: "" }));
  const sides = popover("Sides", buildSides, { title: "Which sweeps belong together" });
  onTheme(() => found && draw(), signal);
  await load();

  async function load() {
    if (state.sweeps.length < 2) {
      found = null;
      fill(tools);
      fill(root, stateOf("empty", "Choose two or more sweeps.", "Tick their boxes in the menu at the top left. Sweeps that differ in a seed at the end of their name are taken together.",
        h("button", { type: "button", class: "button", text: "Choose sweeps", onclick: () => document.querySelector(".picker-button")?.click() })));
      return;
    }
    found = await api.get("/compare-sweeps", { sweep: state.sweeps, group: grouped() ? 1 : 0, side: state.getAll("side"), reference: state.get("reference") }, { signal });
    if (found.problem) {
      const { problem } = found;
      found = null;
      fill(tools, group.root, sides.root);
      shownTabs = null;
      fill(root, stateOf("empty", "These sweeps cannot be compared.", sentence(problem)));
      return;
    }
    await draw();
  }

  function buildSides(panel, close) {
    const labels = new Map(found ? Object.entries(found.labels).flatMap(([label, names]) => names.map((name) => [name, label])) : []);
    const inputs = state.sweeps.map((name) => [name, h("input", { class: "input", value: labels.get(name) || name, "aria-label": `Side of ${name}` })]);
    panel.append(h("p", { class: "hint", text: "Sweeps with the same label are one side. Its seeds give the intervals." }),
      h("table", { class: "sides" }, inputs.map(([name, input]) => h("tr", {}, h("td", { text: name }), h("td", {}, input)))),
      h("button", { type: "button", class: "button primary", text: "Compare", onclick: () => {
        close();
        state.set({ side: inputs.map(([name, input]) => input.value.trim() || name), group: "", reference: "" });
      } }));
  }

  async function draw() {
    const theme = colors();
    const color = new Map(found.sides.map((one, i) => [one.label, theme.series[i % theme.series.length]]));
    const here = env();
    const tabsOf = [here, ...found.environments.map((one) => one.name)].join("\n");
    const tabs = found.environments.length > 1
      ? segments("Environment", [["", "all, normalised"], ...found.environments.map((one) => [one.name, one.name])], here, (value) => state.set({ env: value })).root : null;
    // Not at each update: somebody may be typing there.
    if (!tools.contains(sides.root) || tabsOf !== shownTabs) fill(tools, group.root, sides.root, tabs);
    shownTabs = tabsOf;
    const chart1 = h("div", {});
    const chart2 = h("div", {});
    fill(root, headline(color, here), figures(color, here),
      h("div", { class: "two-charts" },
        card(here ? `Best score so far, ${here}` : "Best so far, mean over environments", chart1),
        here ? card(`Front, ${here}`, chart2) : null),
      legend(color),
      found.notes.length ? h("ul", { class: "notes" }, found.notes.map((text) => h("li", { text: sentence(text) }))) : null);
    drawn?.abort(); // the charts that are replaced
    drawn = new AbortController();
    // As in the picture of `protein plot compare`: a few bad scores at the start leave room for what differs.
    const axisOf = (words, drawn) => {
      const axis = scoreAxis(found.environments.filter((one) => one.name === here), words);
      return { ...axis, format: tick, ends: scoreEnds(drawn.flatMap((one) => [...one.y, ...one.band.low, ...one.band.high]), axis.inverse) };
    };
    const [best, front] = here ? [bands(color, (one) => one.best[here]), bands(color, (one) => one.front[here])] : [bands(color, (one) => one.overall), []];
    const shared = { height: 320, steps: true, signal: AbortSignal.any([signal, drawn.signal]) };
    plots.best = await lines(chart1, here
      ? { ...shared, name: `best so far in ${here}`, series: best, x: { label: "training spent", format: clock, incrs: TIME_STEPS }, y: axisOf("best score", best) }
      : { ...shared, name: "best so far, normalised", series: best, x: { label: "share of the common budget", format: (x) => percent(x) }, y: { label: "normalised score", format: tick } });
    chart1.closest(".chart-card").querySelector(".chart-head").append(plots.best.menu);
    if (here) {
      plots.front = await lines(chart2, { ...shared, name: `fronts in ${here}`, series: front,
        x: { label: "cost of a trial", format: clock, log: true }, y: axisOf("best score up to this cost", front) });
      chart2.closest(".chart-card").querySelector(".chart-head").append(plots.front.menu);
    }
    root.dataset.sides = found.sides.map((one) => one.label).join("|");
  }

  function bands(color, of) {
    return found.sides.map((one) => {
      const band = of(one);
      const [x, y, low, high] = [band.x, band.value, band.low, band.high].map(numbers);
      const first = y.findIndex((value) => Number.isFinite(value));
      const from = first < 0 ? y.length : first;
      return { key: one.label, label: one.label, color: color.get(one.label), width: 2, x: x.slice(from), y: y.slice(from), band: { low: low.slice(from), high: high.slice(from) } };
    });
  }

  /** The best measured score of a side for the common budget, as the user knows scores; null without an environment. */
  function raw(side, here) {
    if (!here) return null;
    const limit = found.environments.find((one) => one.name === here).common_seconds;
    const { x, value } = side.best[here];
    return value.findLast((one, i) => numbers([x[i]])[0] <= limit * 1.0001 && Number.isFinite(numbers([one])[0])) ?? null;
  }

  /** The sides, the one with the best config first. */
  function ranked(here) {
    const best = (side) => (here ? side.by_environment[here] : side.figures).best.value;
    return [...found.sides].sort((a, b) => best(b) - best(a));
  }

  /** The answer to the question, in a sentence for each side but the reference; the winner is named first. */
  function headline(color, here) {
    const [base, ...others] = found.sides;
    if (!others.length) return h("p", { class: "headline", text: "All sweeps are on one side. Give them different labels to compare them." });
    const order = ranked(here);
    const only = found.environments.length === 1 ? here : ""; // the differences are over all environments
    return h("div", { class: "headline" }, others.sort((a, b) => order.indexOf(a) - order.indexOf(b)).map((side) => {
      const { value: gap, probability: chance } = found.differences[side.label].find((one) => one.figure === "best");
      const [first, second, sign] = gap.value < 0 ? [base, side, -1] : [side, base, 1];
      const [value, ...ends] = [gap.value, gap.low, gap.high].map((one) => sign * one);
      const [low, high] = ends.sort((a, b) => a - b);
      const verdict = chance === null ? (value > 0 ? "is ahead of" : "is level with") : low > 0 ? "is better than" : "is not clearly better than";
      const [one, other] = [raw(first, only), raw(second, only)];
      return h("p", {}, mark(color, first.label), h("strong", { text: first.label }), ` ${verdict} `, mark(color, second.label), h("strong", { text: second.label }),
        " in its best config: ", one === null || other === null ? "" : `score ${score(one)} instead of ${score(other)}, normalised `,
        signed(value), chance === null ? ". With one seed on a side, luck cannot be told from skill."
          : ` (${signed(low)} to ${signed(high)}). It is better with a probability of ${probability(sign > 0 ? chance : 1 - chance)}.`);
    }));
  }

  function figures(color, here) {
    const of = (side) => (here ? side.by_environment[here] : side.figures);
    const header = h("tr", {}, h("th", { scope: "col", text: here || "all environments" }), h("th", { scope: "col", class: "number", text: "seeds" }),
      here ? h("th", { scope: "col", class: "number", title: "The best measured score for the common budget, a mean over seeds", text: "best score" }) : null,
      found.figures.map((name) => h("th", { scope: "col", class: "number", title: MEANING[name], text: TITLES[name] })));
    const leader = Object.fromEntries(found.figures.map((name) => [name, Math.max(...found.sides.map((side) => of(side)[name].value))]));
    const rows = ranked(here).map((side) => h("tr", {}, h("th", { scope: "row" }, mark(color, side.label), side.label,
      side !== found.sides[0] ? h("button", { type: "button", class: "mini", text: "make reference", onclick: () => state.set({ reference: side.label }) }) : h("span", { class: "mini-note", text: "reference" })),
    h("td", { class: "number", text: here ? String(side.num_seeds[here]) : [...new Set(Object.values(side.num_seeds))].sort().join(" to ") }),
    here ? h("td", { class: "number", text: score(raw(side, here)) }) : null,
    found.figures.map((name) => {
      const { value, low, high } = of(side)[name];
      return h("td", { class: `number${value === leader[name] && found.sides.length > 1 ? " leader" : ""}` }, h("span", { text: fixed(value) }),
        high > low ? h("span", { class: "interval", text: ` ${fixed(low)} to ${fixed(high)}` }) : null);
    })));
    const save = saveMenu("comparison of sweeps", { csv: () => csv(["environment", "side", "figure", "value", "low", "high"],
      found.sides.flatMap((side) => [["all", side.figures], ...Object.entries(side.by_environment)].flatMap(([name, own]) =>
        found.figures.map((figure) => [name, side.label, figure, own[figure].value, own[figure].low, own[figure].high])))) });
    const scale = here ? found.environments.find((one) => one.name === here) : null;
    return h("section", { class: "chart-card", "aria-label": "Figures" },
      h("div", { class: "chart-head" }, h("p", { class: "chart-note", text: scale
        ? `0 is score ${score(scale.low)}, the median of all trials; 1 is ${score(scale.high)}, the best. Budget: ${seconds(scale.common_seconds)}.`
        : "0 is the median of all trials of an environment, 1 the best. Higher is better." }), h("span", { class: "space" }), save),
      h("div", { class: "scroll-x" }, h("table", { class: "side-figures" }, h("thead", {}, header), h("tbody", {}, rows))));
  }

  function legend(color) {
    return h("div", { class: "legend-row" }, found.sides.map((one) => h("span", { class: "swatch-name" }, mark(color, one.label), `${one.label} (${found.labels[one.label].join(", ")})`)),
      found.sides.some((one) => Object.values(one.num_seeds).some((n) => n > 1)) ? h("span", { class: "muted", text: "bands: 80 % intervals over seeds" }) : null);
  }

  const soon = throttled(() => load().catch(report), 5000, signal);
  function report(error) {
    if (error.name !== "AbortError") context.notice(error.message, { kind: "warn", key: "compare" });
  }
  return {
    update: () => soon(),
    async stateChanged(keys) {
      if (keys.some((key) => FETCHED.includes(key))) {
        group.input.checked = grouped();
        await load().catch(report);
      } else if (found && keys.includes("env")) await draw();
    },
  };
}

function mark(color, label) {
  return h("span", { class: "line-swatch", style: { background: color.get(label) }, "aria-hidden": "true" });
}

function card(name, room) {
  return h("section", { class: "chart-card", "aria-label": name }, h("div", { class: "chart-head" }, h("h2", { text: name }), h("span", { class: "space" })), room);
}

function fixed(value) {
  return value.toFixed(2).replace(/^-/, "−");
}

function signed(value) {
  return `${value >= 0 ? "+" : "−"}${Math.abs(value).toFixed(2)}`;
}

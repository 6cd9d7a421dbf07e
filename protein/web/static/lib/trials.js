// What pages show of a trial in the same way: its state's colour and sign, the words for ends and kinds, a config beside
// the initial one, a command to copy.

import { fill, h } from "./dom.js";
import { param } from "./format.js";

export const STATES = { complete: "complete", pruned: "cut short", failed: "failed", running: "running", waiting: "waiting", several: "several trials" };

export const ENDS = {
  complete: "trained to its end", capped: "reached the cap on one trial's cost", out_of_budget: "reached the end of the sweep's budget",
  stopped_early: "stopped early: its curve was worse than those of similar trials", interrupted: "stopped from outside: Ctrl-C, kill, or power",
  mistake: "a mistake in the training function", user_error: "the training function or the environment raised an exception",
  diverged: "a loss, a gradient or a weight was not finite", out_of_memory: "needed more memory than there is, or than is allowed",
  hung: "reported nothing for too long, or took far longer than its cap", disk: "its files could not be written",
  crashed: "its process died, or printed what cannot be read", failed: "failed for another reason",
};

export const KINDS = {
  initial_config: "the initial config, tried first", initial_design: "one of the space-filling trials at the beginning",
  warm_start: "from the front of a sweep that this one learns from", search: "the search for configs that improve the front",
  continuation: "a finished trial goes on to more steps", reevaluation: "a config is run again with a new seed, to confirm it",
  random: "a random config: the method is random search", fallback: "a random config, because the engine had none", by_hand: "by hand: a person has queued it",
};

// What the seconds beside a trial's cost are; see protein/run/machine.py for the last four.
export const TIMINGS = {
  startup: "startup, not in the cost", compile: "compiling, not in the cost", evaluation: "evaluation, not in the cost", curve: "points of its curve, not in the cost", sample: "its sample, not in the cost", wall: "on the clock", cpu: "CPU time",
  waited: "waited for a busy core", others: "CPU time of other programs",
};

const WAITS = "waiting: taken up again when the sweep runs";
export const QUEUED = "queued by hand"; // as in protein/types/ends.py

/** What a trial waits for. */
export function waits(trial) {
  return trial.reason === QUEUED ? "waiting for its first start" : WAITS;
}

/** The colour of a state, of a theme's `colors()`. */
export function stateColor(state, colors) {
  return { complete: colors.good, pruned: colors.warn, failed: colors.bad, running: colors.accent, waiting: colors.accent }[state] || colors.faint;
}

/** Whether a trial may still change. */
export function unfinished(trial) {
  return trial.state === "running" || trial.state === "waiting";
}

/** A dot and a word for a state. */
export function stateMark(state, text = STATES[state] || state) {
  return h("span", { class: `state-mark ${state}` }, h("span", { class: "state-dot", "aria-hidden": "true" }), text);
}

/** A link to a trial's page. */
export function trialLink(state, sweep, number, text = String(number)) {
  return h("a", { href: state.link("trial", {}, [sweep, number]), text });
}

/** The config of a trial: changed values first and marked, each beside the initial one. `initial` may be null. */
export function configRows(params, initial) {
  const rows = Object.entries(params).map(([name, value]) => {
    const known = initial && name in initial;
    return { name, value, initial: known ? initial[name] : undefined, changed: Boolean(known) && initial[name] !== value };
  });
  return [...rows.filter((row) => row.changed), ...rows.filter((row) => !row.changed)];
}

/** A table of `configRows`. */
export function configTable(params, initial) {
  const rows = configRows(params, initial);
  return h("table", { class: "facts config" },
    initial ? h("thead", {}, h("tr", {}, h("th", { text: "parameter" }), h("th", { class: "number", text: "value" }), h("th", { class: "number", text: "initial" }))) : null,
    h("tbody", {}, rows.map((row) => h("tr", { class: row.changed ? "changed" : null },
      h("th", { scope: "row" }, nameOf(row.name)), h("td", { class: valueClass(row.value), text: param(row.value) }),
      initial ? h("td", { class: "number muted", text: row.initial === undefined ? "" : row.changed ? param(row.initial) : "same" }) : null))));
}

/** The class of a parameter's cell: a text may be long, and goes on in the next line. */
export function valueClass(value) {
  return typeof value === "string" ? "number words" : "number";
}

/** A dotted name whose section is fainter, and which may break behind the dot. */
export function nameOf(name) {
  const at = name.lastIndexOf(".") + 1;
  return h("span", { class: "param-name", title: name }, at ? [h("span", { class: "faint", text: name.slice(0, at) }), h("wbr")] : null, name.slice(at));
}

/** A command with a button that copies it. */
export function commandLine(text, label = "") {
  const button = h("button", { type: "button", class: "button quiet copy", text: "Copy", "aria-label": `Copy the command ${text}`,
    onclick: async () => {
      const done = await copied(text);
      fill(button, done ? "Copied" : "Select it and press Ctrl+C");
      setTimeout(() => fill(button, "Copy"), 1600);
    } });
  return h("div", { class: "command" }, label ? h("span", { class: "command-label muted", text: label }) : null,
    h("div", { class: "command-line" }, h("code", { text, tabindex: "0" }), button));
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // a browser that does not allow it, as outside of https
  }
}

// The page Trial: everything about one trial. Its address is #/trial/SWEEP/NUMBER.

import { fill, h, stateOf } from "../lib/dom.js";
import { lines } from "../lib/lines.js";
import { gameBeside } from "../lib/game.js";
import { log } from "../lib/log.js";
import { player, stage } from "../lib/player.js";
import { ago, bytes, count, estimate, param, score, seconds, sentence, tick, time, whole } from "../lib/format.js";
import { scoreAxis } from "../lib/scales.js";
import { pause } from "../lib/slow.js";
import { colors, onTheme } from "../lib/theme.js";
import { commandLine, ENDS, KINDS, nameOf, stateMark, TIMINGS, trialLink, unfinished, valueClass, waits } from "../lib/trials.js";

const X_AXES = [["steps", "steps"], ["seconds", "seconds"]];
const USED = [["cores", "cores", 1], ["memory_bytes", "memory, MiB", 2 ** 20], ["gpu_memory_bytes", "GPU memory, MiB", 2 ** 20]];

export async function render(root, context) {
  const { api, state, selection, signal, notice, keys } = context;
  const [name, text] = state.path.length ? state.path : first(selection, state);
  const number = Number(text);
  if (name === undefined) {
    const sweep = state.sweeps[0];
    const front = (await api.get("/front", { sweep, points: 100 }, { signal })).sweeps[0].front;
    fill(root, stateOf("empty", "Choose a trial.", "Click one in the table or on the front.",
      front.length ? h("p", { class: "state-help" }, "Or see the best measured one: ", trialLink(state, sweep, front[front.length - 1], `trial ${front[front.length - 1]} of ${sweep}`)) : null));
    return {};
  }
  if (!Number.isInteger(number) || number < 0) {
    fill(root, stateOf("error", `“${text}” is not the number of a trial.`, h("a", { href: state.link("table"), text: "Go to the table" })));
    return {};
  }
  let found = null;
  let curve = null; // the chart
  let game = null; // which goes on where the rest is drawn again
  let usage = []; // the charts of what it uses
  const body = h("div", { class: "trial-page" });
  root.append(body);
  await load();
  if (signal.aborted) return {};
  onTheme(() => drawCurve(), signal);
  keys.bind("j", "next trial", () => go(1), signal);
  keys.bind("k", "previous trial", () => go(-1), signal);
  return {
    async update({ numbers }) {
      const changed = numbers[name];
      if (changed === undefined || (changed && !changed.includes(number) && !unfinished(found.trial))) return;
      if (body.contains(document.activeElement) && /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) return; // somebody writes
      const ran = found.trial.state === "running";
      const files = found.files.map((one) => one.name).join("\n");
      await load({ drawn: false });
      if (signal.aborted) return;
      if (ran && found.trial.state === "running" && files === found.files.map((one) => one.name).join("\n")) { // only these two grow, and what the reader has opened stays open
        body.querySelector(".figures-card").replaceWith(figures(found.trial));
        drawCurve();
        showUsage().catch(() => {});
      } else draw();
    },
    stateChanged(changed) {
      if (changed.some((key) => ["x", "metric"].includes(key))) drawCurve();
    },
  };

  async function load({ drawn = true } = {}) {
    found = await api.get("/trial", { sweep: name, number }, { signal });
    if (drawn && !signal.aborted) draw();
  }

  function go(step) {
    const next = number + step;
    if (next >= 0 && next <= found.sweep.last) state.go("trial", {}, [name, String(next)]);
  }

  function draw() {
    const { trial } = found;
    fill(body,
      heading(trial),
      h("div", { class: "trial-columns" },
        h("div", { class: "trial-main" }, figures(trial), section("Learning curve", curveHead(), h("div", { class: "curve-room" })), plays() ? section("The agent at play", [], (game ??= gameBeside(api, { env: found.sweep.env, sweep: name, number }, signal)), inTerminal()) : null, config(), logSection(), usageSection(), filesSection()),
        h("div", { class: "trial-side" }, plays() ? null : playback(), why(trial), annotations(trial), trialsOfRun(), facts(trial))));
    drawCurve();
    usage = [];
    showUsage().catch(() => {}); // the next look may find it
  }

  function heading(trial) {
    const others = found.same_config;
    return h("header", { class: "trial-head" },
      h("div", { class: "trial-step" },
        h("button", { type: "button", class: "icon", title: "Previous trial (k)", "aria-label": "Previous trial", disabled: number <= 0, text: "‹", onclick: () => go(-1) }),
        h("button", { type: "button", class: "icon", title: "Next trial (j)", "aria-label": "Next trial", disabled: number >= found.sweep.last, text: "›", onclick: () => go(1) })),
      h("h1", {}, `Trial ${number}`, h("span", { class: "muted", text: ` of ${name}` })),
      trial.interrupted ? stateMark("failed", "interrupted") : stateMark(trial.state, trial.end && trial.end !== "complete" ? trial.end.replaceAll("_", " ") : undefined),
      trial.excluded ? h("span", { class: "badge warn", text: "excluded" }) : null,
      h("span", { class: "space" }),
      others.length ? h("span", { class: "muted" }, "Same config: ", others.slice(0, 6).map((one, i) => [i ? ", " : "", trialLink(state, name, one.number)]), others.length > 6 ? ", ..." : "") : null,
      h("button", { type: "button", class: "button", "aria-pressed": selection.has(name, number) ? "true" : "false", title: "Selected trials are shown on the pages Curves and Compare",
        text: selection.has(name, number) ? "Selected" : "Select", onclick: (event) => {
          selection.toggle(name, number);
          const on = selection.has(name, number);
          event.target.setAttribute("aria-pressed", on ? "true" : "false");
          event.target.textContent = on ? "Selected" : "Select";
        } }));
  }

  function figures(trial) {
    const cells = [
      ["score", score(trial.score), trial.predicted_score ? `predicted ${estimate(trial.predicted_score)}` : trial.score === null ? "" : "nothing was predicted", found.off_by.score && `off by ${found.off_by.score}`],
      ["cost", seconds(trial.cost_seconds), trial.predicted_cost_seconds ? `predicted ${estimate(trial.predicted_cost_seconds, seconds)}` : "", found.off_by.cost && `off by ${found.off_by.cost}`],
      [unit(), count(trial.steps), `${whole(trial.steps)} ${unit() === "steps" && found.sweep.kind ? "decisions" : unit()}`, trial.cost_seconds > 0 && trial.continues === null ? `${count(trial.steps / trial.cost_seconds)} a second` : ""],
    ];
    const failure = trial.state === "failed" || trial.state === "pruned" || trial.reason || trial.interrupted;
    const how = trial.interrupted ? "interrupted: its process is gone; start the sweep again to go on" : trial.state === "waiting" ? waits(trial) : ENDS[trial.end] || trial.end || "";
    return h("section", { class: "card figures-card", "aria-label": "Result" },
      h("div", { class: "figures" }, cells.map(([label, value, ...more]) => h("div", { class: "figure" }, h("span", { class: "muted", text: label }), h("strong", { text: value }),
        more.filter(Boolean).map((line) => h("span", { class: "faint", text: line }))))),
      failure ? h("div", { class: `failure ${trial.state}` }, h("p", {}, h("strong", { text: sentence(how) })), trial.reason ? h("pre", { class: "reason", text: trial.reason }) : null) : null);
  }

  function curveHead() {
    const metrics = found.metrics;
    const axis = state.get("x", "steps");
    return [
      metrics.length ? h("select", { class: "input", "aria-label": "What the curve shows", onchange: (event) => state.set({ metric: event.target.value }) },
        ["", ...metrics].map((one) => h("option", { value: one, text: one || "score", selected: one === state.get("metric") }))) : null,
      h("div", { class: "segments", role: "group", "aria-label": "Horizontal axis" }, X_AXES.map(([one, title]) =>
        h("button", { type: "button", "aria-pressed": one === axis ? "true" : "false", text: one === "steps" ? unit() : title, onclick: (event) => {
          for (const other of event.target.parentNode.children) other.setAttribute("aria-pressed", other === event.target ? "true" : "false");
          state.set({ x: one === "steps" ? "" : one });
        } }))),
    ];
  }

  async function drawCurve() {
    const room = body.querySelector(".curve-room");
    const metric = state.get("metric");
    const axis = state.get("x", "steps");
    let curves = found.curves;
    if (metric) {
      try {
        curves = (await api.get("/trial/curve", { sweep: name, number, metric }, { signal })).curves;
      } catch (error) {
        if (error.name !== "AbortError") notice(`The curve of ${metric} cannot be shown: ${error.message}`, { kind: "warn", key: "curve", seconds: 8 });
        return;
      }
    }
    if (signal.aborted || metric !== state.get("metric") || !room.isConnected) return; // another one was asked for meanwhile
    const points = curves.flatMap((one) => one.value.map((value, i) => ({ x: one[axis][i], value, trial: one.number })));
    if (!points.length) {
      curve = null;
      room.parentNode.querySelector(".curve-menu")?.remove();
      fill(room, h("p", { class: "empty-line muted", text: metric ? `The curve has no ${metric}.` : unfinished(found.trial) ? (found.sweep.kind === "language model" ? "No score has been measured yet." : "No episode has ended yet.") : "It left no learning curve." }));
      return;
    }
    const theme = colors();
    let before = 0; // the seconds of a trial are its own, the steps those of the whole run
    const series = curves.map((one, i) => {
      const shift = axis === "seconds" ? before : 0;
      before += one.seconds.length ? one.seconds[one.seconds.length - 1] : 0;
      return { key: `${one.number}`, label: `trial ${one.number}`, color: one.number === number ? theme.series[0] : theme.series[(i % 8) + 1],
        width: one.number === number ? 2 : 1.4, x: one[axis].map((x) => x + shift), y: one.value.map((value) => (typeof value === "number" ? value : null)) };
    });
    const shown = { series, x: { label: axis === "steps" ? unit() : "seconds of training", format: axis === "steps" ? count : seconds }, y: { ...(metric ? { label: metric } : scoreAxis([found.sweep])), format: undefined } };
    if (curve?.room.isConnected) return curve.set(shown);
    fill(room);
    curve = await lines(room, { name: `curve of trial ${number} of ${name}`, signal, height: 300, ...shown });
    curve.menu.classList.add("curve-menu");
    room.parentNode.querySelector(".curve-menu")?.remove();
    room.parentNode.querySelector(".chart-head").append(curve.menu);
    return undefined;
  }

  function config() {
    const rows = [...found.params].sort((a, b) => Number(b.changed) - Number(a.changed));
    const known = rows.some((row) => row.initial !== null);
    const same = rows.filter((row) => !row.changed).length;
    return section("Config", [h("span", { class: "muted", text: known ? (same === rows.length ? "the initial config" : `${rows.length - same} of ${rows.length} searched values differ from the initial config`) : `${rows.length} searched values` })],
      h("div", { class: "scroll-x" }, h("table", { class: "facts config wide" },
        h("thead", {}, h("tr", {}, [["parameter"], ["value", "number"], known ? ["initial", "number"] : null, ["place in its range", "range-head"]].filter(Boolean).map(([title, cls]) => h("th", { class: cls, text: title })))),
        h("tbody", {}, rows.map((row) => h("tr", { class: row.changed ? "changed" : null }, h("th", { scope: "row" }, nameOf(row.name)),
          h("td", { class: valueClass(row.value), text: param(row.value) }), known ? h("td", { class: "number muted", text: row.initial === null ? "" : row.changed ? param(row.initial) : "same" }) : null,
          h("td", {}, range(row))))))),
      found.fixed.length ? h("details", { class: "fixed" }, h("summary", { text: `${found.fixed.length} fixed values` }),
        h("table", { class: "facts config" }, h("tbody", {}, found.fixed.map(([key, value]) => h("tr", {}, h("th", { scope: "row" }, nameOf(key)), h("td", { class: valueClass(value), text: param(value) })))))) : null,
      found.commands.train ? commandLine(found.commands.train, "Train exactly this config") : null);
  }

  function logSection() {
    const has = found.files.some((one) => (one.kind === "log" || one.name === "trial.log") && (one.size || unfinished(found.trial)));
    if (!has) return null;
    const { head, root } = log(api, { sweep: name, number }, { runs: () => found.trial.state === "running", signal });
    return section("Log", head, root);
  }

  function usageSection() {
    return found.files.some((one) => one.name === "usage.csv") && api.live ? section("What it uses of the machine", [], h("div", { class: "usage-room" })) : null;
  }

  async function showUsage() {
    const room = body.querySelector(".usage-room");
    if (!room) return;
    const used = await api.get("/trial/usage", { sweep: name, number }, { signal });
    const drawn = USED.filter(([key]) => used[key]?.length);
    if (signal.aborted) return;
    if (!drawn.length) return fill(room, h("p", { class: "muted", text: "Nothing was noted of it." }));
    if (usage.length !== drawn.length || !room.children.length) fill(room);
    for (const [i, [key, label, unit]] of drawn.entries()) {
      const y = used[key].map((value) => value / unit);
      const band = { low: y.map(() => 0), high: y }; // an area from 0
      const shown = { series: [{ key, label, color: colors().series[i], width: 1.5, x: used.seconds, y, band }], x: { label: i === drawn.length - 1 ? "seconds of its process" : "", format: seconds }, y: { label, format: tick } };
      if (usage[i]?.room.isConnected) usage[i].set(shown);
      else usage[i] = await lines(room, { name: `${label} of trial ${number} of ${name}`, signal, height: 130, ...shown });
    }
    return undefined;
  }

  function filesSection() {
    return section("Files", [], found.files.length ? h("table", { class: "facts files" }, h("tbody", {}, found.files.map((one) => h("tr", {},
      h("th", { scope: "row" }, one.problem ? h("span", { class: "faint", text: one.name, title: one.problem }) : h("a", { href: api.url("/trial/file", { sweep: name, number, name: one.name }), download: one.name, text: one.name })),
      h("td", { class: "muted", text: one.kind }), h("td", { class: "number muted", text: one.problem || bytes(one.size) }))))) : h("p", { class: "muted", text: "It left no files." }));
  }

  /** What a step of this sweep's trials is called. */
  function unit() {
    return found.sweep.unit || "steps";
  }

  /** What a language model has written at its end, and what it writes when asked. */
  function sample() {
    const room = h("div", {}, found.sample ? h("pre", { class: "sample", tabindex: "0", text: found.sample })
      : h("p", { class: "muted", text: unfinished(found.trial) ? "It writes a sample at its end." : "It left no sample." }));
    const prompt = h("input", { class: "input", placeholder: "Beginning of a text", "aria-label": "Beginning of a text", maxlength: "2000" });
    let seed = 0; // each time another text
    const form = h("form", { class: "tags", onsubmit: (event) => { event.preventDefault(); write(room, prompt.value, seed++); } }, prompt, h("button", { class: "button", text: "Let it write" }));
    return h("section", { class: "card" }, h("h2", { text: "What it writes" }), room,
      api.live && found.playback.possible ? form : null,
      found.commands.play ? h("details", { class: "fixed" }, h("summary", { text: "let it write more, in a terminal" }), commandLine(found.commands.play)) : null);
  }

  async function write(room, prompt, seed) {
    fill(room, stateOf("loading", "It writes."));
    try {
      await api.post("/trial/write", { sweep: name, number, prompt, seed }, { signal });
      for (;;) {
        await pause(400, signal);
        if (signal.aborted) return;
        const answer = await api.get("/trial/written", { sweep: name, number }, { signal });
        if (answer.state === "ready") return fill(room, h("pre", { class: "sample", tabindex: "0", text: answer.text }));
        if (answer.state !== "computing") return fill(room, h("p", { class: "bad", text: sentence(answer.error || "It wrote nothing.") }));
      }
    } catch (error) {
      if (error.name !== "AbortError") fill(room, h("p", { class: "bad", text: sentence(error.message) }));
    }
  }

  /** Whether its game and its agent can run in the page itself. */
  function plays() {
    return api.live && found.playback.possible && found.playback.here;
  }

  function inTerminal() {
    return found.commands.play ? h("details", { class: "fixed" }, h("summary", { text: "or in a terminal" }), commandLine(found.commands.play)) : null;
  }

  /** The agent at play: a picture among its files, or one that is made on demand from its checkpoint. */
  function playback() {
    if (found.sweep.kind === "language model") return sample();
    const shown = found.files.find((one) => one.media?.startsWith("image/") || one.media?.startsWith("video/"));
    if (shown) {
      const src = api.url("/trial/file", { sweep: name, number, name: shown.name, show: 1 });
      const room = h("div", { class: "stage" }, shown.media.startsWith("video/") ? h("video", { src, controls: true, loop: true, muted: true }) : player(src, `${shown.name} of trial ${number}`, signal));
      return h("section", { class: "card" }, h("h2", { text: "The agent at play" }), room);
    }
    if (!api.live) return null;
    if (!found.playback.possible) return h("section", { class: "card quiet-card" }, h("h2", { text: "The agent at play" }), h("p", { class: "muted", text: sentence(found.playback.problem) }));
    return h("section", { class: "card" }, h("h2", { text: "The agent at play" }), stage(api, { sweep: name, number }, signal), inTerminal());
  }

  function why(trial) {
    const { finished, best } = found.then;
    return h("section", { class: "card" }, h("h2", { text: "Why it was suggested" }),
      h("p", { text: sentence(trial.origin) }),
      h("p", { class: "muted", text: sentence(KINDS[trial.kind] || trial.kind) }),
      trial.continues !== null ? h("p", {}, "It goes on with ", trialLink(state, name, trial.continues, `trial ${trial.continues}`), `, after ${seconds(trial.continued_seconds)} of training.`) : null,
      h("p", { class: "muted" }, finished ? [`${finished} trial${finished === 1 ? " had" : "s had"} ended then`, best ? [", the best measured was ", trialLink(state, name, best.number, `trial ${best.number}`), ` with ${score(best.score)} in ${seconds(best.run_seconds)}.`] : "."] : "No trial had ended then."),
      h("p", { class: "faint", text: `Found in ${seconds(trial.suggest_seconds)}.` }));
  }

  function annotations(trial) {
    const send = async (changes) => {
      try {
        await api.post("/annotate", { sweep: name, numbers: [number], ...changes }); // also where the page is left meanwhile
        if (!signal.aborted) await load();
      } catch (error) {
        if (error.name !== "AbortError") notice(error.message, { kind: "error", key: "annotate", seconds: 8 });
      }
    };
    if (!api.live) {
      return trial.tags.length || trial.note ? h("section", { class: "card" }, h("h2", { text: "Notes" }), h("p", { class: "tags" }, trial.tags.map((tag) => h("span", { class: "badge", text: tag }))), h("p", { class: "note-text", text: trial.note })) : null;
    }
    const tag = h("input", { class: "input", placeholder: "Add a tag", "aria-label": "Add a tag", maxlength: "60", onkeydown: (event) => {
      if (event.key === "Enter" && tag.value.trim()) send({ add_tags: [tag.value.trim()] });
    } });
    const note = h("textarea", { class: "input", rows: "3", placeholder: "A note", "aria-label": "Note", maxlength: "10000", value: trial.note,
      onchange: () => send({ note: note.value }) });
    return h("section", { class: "card annotations" }, h("h2", { text: "Tags and note" }),
      h("p", { class: "tags" }, trial.tags.map((one) => h("span", { class: "badge" }, one, h("button", { type: "button", class: "badge-close", "aria-label": `Remove the tag ${one}`, text: "×", onclick: () => send({ remove_tags: [one] }) }))), tag),
      note,
      h("label", { class: "choice" }, h("input", { type: "checkbox", checked: trial.excluded, onchange: (event) => send({ excluded: event.target.checked }) }), "Exclude it from the engine"),
      h("p", { class: "faint", text: "The engine then learns nothing from it, and nothing recommends it. Its cost still counts. It is undone as easily." }));
  }

  function trialsOfRun() {
    if (!found.run.length) return null;
    return h("section", { class: "card" }, h("h2", { text: "Trials of its run" }), h("table", { class: "facts" },
      h("thead", {}, h("tr", {}, ["trial", unit(), "score", "own cost", "run cost"].map((title, i) => h("th", { class: i ? "number" : null, text: title })))),
      h("tbody", {}, found.run.map((one) => h("tr", { class: one.number === number ? "picked" : null }, h("td", {}, one.number === number ? `${one.number}` : trialLink(state, name, one.number)),
        h("td", { class: "number", text: count(one.steps) }), h("td", { class: "number", text: score(one.score) }), h("td", { class: "number", text: seconds(one.cost_seconds) }), h("td", { class: "number", text: seconds(one.run_seconds) }))))));
  }

  function facts(trial) {
    const origin = trial.provenance;
    const rows = [
      ...Object.entries(trial.timings).map(([key, value]) => [TIMINGS[key] || key, seconds(value)]),
      ...Object.entries(trial.metrics).map(([key, value]) => key === "on_gpu" ? ["device", value ? "GPU" : "CPU"] : [key, param(value)]),
      ["seed", String(trial.seed)],
      ["started", `${time(trial.started_at)}, ${ago(trial.started_at)}`],
      ["finished", trial.finished_at === null ? (trial.interrupted ? "no: its process is gone" : trial.state === "waiting" ? "not yet: it waits" : "it runs") : time(trial.finished_at)],
      ["version", origin.version], ["commit", origin.git_commit || "none"], ["machine", origin.machine], ["config hash", origin.config_hash.slice(0, 12), origin.config_hash],
    ];
    return h("section", { class: "card" }, h("h2", { text: "Times, metrics, provenance" }),
      h("table", { class: "facts plain" }, h("tbody", {}, rows.map(([key, value, full]) => h("tr", {}, h("th", { scope: "row", class: "muted", text: key }), h("td", { class: "break", text: value, title: full || null }))))),
      commandLine(found.commands.show, "The same in a terminal"));
  }
}

/** Where a value stands between the ends of its range, on the range's scale. */
function range(row) {
  if (row.choices) return h("span", { class: "choices", text: row.choices.map(param).join(", ") });
  if (row.place === undefined) return h("span", { class: "choices", text: row.low === undefined ? "" : `outside ${param(row.low)} to ${param(row.high)}` });
  const end = row.place <= 0.02 || row.place >= 0.98;
  return h("span", { class: "range", title: `${param(row.low)} to ${param(row.high)}, ${row.scale}`, role: "img",
    "aria-label": `at ${Math.round(100 * row.place)} percent of ${param(row.low)} to ${param(row.high)}` }, h("i", { class: end ? "end" : null, style: { left: `${(100 * row.place).toFixed(1)}%` } }));
}

function section(title, head, ...content) {
  return h("section", { class: "card chart-section", "aria-label": title }, h("div", { class: "chart-head" }, h("h2", { text: title }), h("span", { class: "space" }), head), content);
}

/** The one selected trial, where the address names none. */
function first(selection, state) {
  const pairs = selection.pairs().filter(([name]) => state.sweeps.includes(name));
  return pairs.length ? [pairs[0][0], String(pairs[0][1])] : [];
}

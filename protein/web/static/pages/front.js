// The page Front: score against cost of one or several sweeps, the measured and the expected front, and the best config
// for the seconds that one has.

import { fill, h, stateOf } from "../lib/dom.js";
import { dragBox } from "../lib/box.js";
import { chartCard, tip } from "../lib/echart.js";
import { param, percent, score, seconds, sentence } from "../lib/format.js";
import { frontOption, nearBest, numbersIn } from "../lib/front-chart.js";
import { duration, place, short } from "../lib/scales.js";
import { Asking } from "../lib/slow.js";
import { colors } from "../lib/theme.js";
import { commandLine, configRows, configTable, STATES, trialLink } from "../lib/trials.js";

const LAYERS = [
  ["expected", "Expected front", "The best expected true score for every cost, with its 80 % interval. Luck is left out."],
  ["measured", "Measured front", "The best measured score for every cost. Luck has put some of its trials there."],
  ["predicted", "Predictions", "A line from each trial to the score and cost that were predicted before it ran."],
];
const TIP_PARAMS = 14;
const MUCH_WAITED = 0.1; // from this share on, measured and expected costs differ visibly

export async function render(root, context) {
  const { api, state, selection, signal, notice, keys } = context;
  const found = { sweeps: [], expected: new Map() };
  const asking = new Asking();
  let made = null;
  let mode = "point"; // what dragging in the chart does

  const controls = h("div", { class: "controls" });
  const chartRoom = h("div", { class: "front-chart" });
  const side = h("aside", { class: "front-side", "aria-label": "Best config for a limit of cost" });
  const steps = h("div", { class: "front-steps" });
  const limitCard = underCard();
  root.append(h("h1", { class: "visually-hidden", text: "Front" }), h("div", { class: "front-page" }, h("div", { class: "stack" }, chartRoom, steps), side));

  await load();
  if (signal.aborted) return {};
  const nothing = () => !found.sweeps.some((sweep) => sweep.points.number.length);
  if (nothing()) {
    fill(root, stateOf("empty", "No trial has ended yet.", "The front appears with the first finished trial, by itself."));
    let page = null; // once there is something to draw
    let drawing = false;
    return {
      async update(news) {
        if (page) return page.update?.(news);
        if (drawing) return undefined;
        drawing = true;
        try {
          await load();
          if (!signal.aborted && !nothing()) page = await render(fill(root), context);
        } finally {
          drawing = false;
        }
        return undefined;
      },
      stateChanged: (changed) => page?.stateChanged?.(changed),
    };
  }
  const card = await chartCard("Score against cost", {
    root: chartRoom, name: `front of ${state.sweeps.join(", ")}`, signal, height: chartHeight(), notMerge: true,
    option: () => option(), csv: table,
  }, [controls]);
  made = card;
  drawControls();
  listen();
  drawSide();
  for (const sweep of state.sweeps) expect(sweep);

  keys.bind("e", "expected front on or off", () => toggle("expected"), signal);
  keys.bind("m", "measured front on or off", () => toggle("measured"), signal);
  keys.bind("x", "predictions on or off", () => toggle("predicted"), signal);
  keys.bind("b", "enlarge the best scores", zoomToBest, signal);
  keys.bind("z", "show everything again", () => state.set({ zoom: "" }), signal);

  return {
    async update() {
      await load();
      if (signal.aborted) return;
      redraw();
      for (const sweep of state.sweeps) expect(sweep);
    },
    stateChanged(changed) {
      if (changed.includes("sel")) drawControls();
      if (changed.some((key) => ["under", "of"].includes(key))) drawSide();
      if (changed.some((key) => ["layers", "zoom"].includes(key))) drawControls();
      redraw();
    },
  };

  async function load() {
    const answer = await api.get("/front", { sweep: state.sweeps }, { signal });
    found.sweeps = answer.sweeps;
    found.configs = new Map();
  }

  /** Asks for the expected front of a sweep, and draws it when it is there. */
  function expect(sweep) {
    asking.whenReady(sweep, api, "/expected", { sweep }, signal, (answer) => {
      found.expected.set(sweep, answer);
      redraw();
      drawSide();
    }).catch((error) => { if (error.name !== "AbortError") notice(error.message, { kind: "warn", key: "expected", seconds: 8 }); });
  }

  function layers() {
    const chosen = state.get("layers", "expected,measured").split(",");
    return new Set(chosen);
  }

  function toggle(name) {
    const now = layers();
    if (now.has(name)) now.delete(name);
    else now.add(name);
    const text = LAYERS.map(([one]) => one).filter((one) => now.has(one)).join(",");
    state.set({ layers: text === "expected,measured" ? "" : text || "none" });
  }

  function under() {
    const given = Number(state.get("under"));
    return given > 0 ? given : null;
  }

  function option() {
    return frontOption({
      sweeps: found.sweeps, expected: found.expected, layers: layers(), theme: colors(), selection, under: under(),
      chosen: chosenPoints(), zoom: state.get("zoom").split(",").map(Number), formatter: tooltip,
    });
  }

  function redraw() {
    if (!made) return;
    made.set(() => option());
  }

  function drawControls() {
    const now = layers();
    const pressed = (on) => (on ? "true" : "false");
    fill(controls,
      LAYERS.map(([name, title, help]) => h("button", { type: "button", class: "button toggle", "aria-pressed": pressed(now.has(name)), title: help,
        text: title, onclick: () => toggle(name) })),
      h("div", { class: "segments", role: "group", "aria-label": "What dragging in the chart does" },
        [["point", "Point", "Point at trials; a click opens one"], ["select", "Select", "Drag a box to select trials for the other pages"],
          ["zoom", "Zoom", "Drag a box to enlarge it; z shows everything again"]].map(([name, title, help]) =>
          h("button", { type: "button", title: help, "aria-pressed": pressed(mode === name), text: title, onclick: () => setMode(name) }))),
      selection.size ? h("button", { type: "button", class: "button quiet", text: `${selection.size} selected ×`, title: "Clear the selection", onclick: () => selection.clear() }) : null,
      !state.get("zoom") && nearBest(found.sweeps, found.expected) ? h("button", { type: "button", class: "button quiet", text: "Near the best", title: "Enlarge the best quarter of the scores (b)", onclick: zoomToBest }) : null,
      state.get("zoom") ? h("button", { type: "button", class: "button quiet", text: "Show everything", onclick: () => state.set({ zoom: "" }) }) : null);
  }

  function zoomToBest() {
    const zoom = nearBest(found.sweeps, found.expected);
    if (zoom) state.set({ zoom: zoom.join(",") });
  }

  function setMode(name) {
    mode = name;
    made.room.classList.toggle("boxing", name !== "point");
    drawControls();
  }

  function listen() {
    made.instance.on("click", (event) => {
      const at = event.data?.trial;
      if (mode === "point" && at) state.go("trial", {}, at);
    });
    dragBox({ instance: made.instance, room: made.room, active: () => mode !== "point", signal, done: boxed });
  }

  async function boxed([x0, x1], [y0, y1]) {
    if (mode === "zoom") {
      setMode("point");
      state.set({ zoom: [x0, x1, y0, y1].map((one) => Number(one.toPrecision(6))).join(",") });
      return;
    }
    const pairs = await Promise.all(found.sweeps.map((sweep) => numbersIn(api, sweep, [duration(x0), duration(x1)], [y0, y1], signal)));
    selection.set(pairs.flat());
    if (!selection.size) notice("No trial is in this box.", { key: "box", seconds: 3 });
  }

  /** The box at the pointer: the trial, what was predicted, and its config. */
  function tooltip(one, _ticket, done) {
    const at = one.data?.trial;
    if (!at) return one.data?.tip ? tip(one.data.tip[0], one.data.tip[1]) : "";
    const [name, number] = at;
    const sweep = found.sweeps.find((s) => s.name === name);
    const i = sweep.points.number.indexOf(number);
    const content = (params) => tipOf(sweep, i, params);
    if (sweep.params) return content(Object.fromEntries(Object.entries(sweep.params).map(([key, values]) => [key, values[i]])));
    const key = `${name}\n${number}`;
    if (found.configs.has(key)) return content(found.configs.get(key));
    api.get("/front/config", { sweep: name, number }, { signal }).then((answer) => {
      found.configs.set(key, answer.params);
      done?.(_ticket, content(answer.params));
    }, () => {});
    return content(null);
  }

  function tipOf(sweep, i, params) {
    const { points } = sweep;
    const rows = [["state", STATES[points.state[i]] || points.state[i]], ["score", score(points.score[i])], ["cost", seconds(points.run_seconds[i])]];
    if (points.calm_seconds[i] < 0.98 * points.run_seconds[i]) rows.push(["without other programs", seconds(points.calm_seconds[i])]);
    if (points.predicted_score[i] !== null) {
      rows.push(["predicted", `${score(points.predicted_score[i])} (${score(points.predicted_score_low[i])} to ${score(points.predicted_score_high[i])})`]);
      rows.push(["predicted cost", seconds(points.predicted_cost_seconds[i])]);
    }
    if (points.excluded[i]) rows.push(["excluded", "the engine learns nothing from it"]);
    const initial = found.expected.get(sweep.name)?.value?.initial_params;
    const config = params ? configRows(params, initial).filter((row) => row.value !== null) : [];
    for (const row of config.slice(0, TIP_PARAMS)) rows.push([row.name, `${param(row.value)}${row.changed ? ` (initial ${param(row.initial)})` : ""}`]);
    if (config.length > TIP_PARAMS) rows.push([`and ${config.length - TIP_PARAMS} more`, ""]);
    return tip(`${found.sweeps.length > 1 ? `${sweep.name}, ` : ""}trial ${points.number[i]}`, rows);
  }

  /** The best config of each sweep for the limit: what the slider says. */
  function chosenPoints() {
    const limit = under() ?? Infinity;
    return found.sweeps.map((sweep) => {
      const front = found.expected.get(sweep.name)?.value?.front || [];
      const fitting = front.filter((one) => one.cost_seconds <= limit * (1 + 1e-9));
      return { sweep, one: fitting[fitting.length - 1] || null, front };
    });
  }

  function drawSide() {
    const points = chosenPoints();
    const known = points.filter((one) => one.front.length);
    const answers = found.sweeps.map((sweep) => [sweep.name, found.expected.get(sweep.name)]);
    const waiting = answers.filter(([, answer]) => !answer || answer.state === "computing");
    if (!known.length) {
      const failed = answers.map(([, answer]) => answer).find((answer) => answer?.state === "failed");
      fill(side, h("section", { class: "card" }, failed
        ? [h("h2", { text: "No recommendation yet" }), h("p", { class: "muted", text: sentence(failed.error) })]
        : stateOf("loading", "The expected front is being computed.")));
      return;
    }
    const costs = known.flatMap((one) => one.front.map((step) => step.cost_seconds));
    const [low, high] = [Math.min(...costs), Math.max(...costs)];
    const limit = under();
    const at = limit === null ? 1 : Math.min(1, Math.max(0, (place(limit) - place(low)) / (place(high * 1.001) - place(low) || 1)));
    const picked = points.find((one) => one.sweep.name === state.get("of")) || points.find((one) => one.one) || points[0];
    drawSteps(picked);
    if (!side.contains(limitCard.root)) fill(side, limitCard.root);
    limitCard.range = { low, high };
    if (!limitCard.held) limitCard.slider.value = String(Math.round(1000 * at));
    limitCard.slider.setAttribute("aria-valuetext", limit === null ? "no limit" : `under ${short(limit)}`);
    limitCard.limit.textContent = limit === null ? "no limit" : short(limit);
    fill(limitCard.ends, h("span", { text: short(low) }), h("span", { text: short(high) }));
    fill(limitCard.rest, points.length > 1 ? chooser(points, picked) : null,
      picked.one ? answer(picked) : h("p", { class: "muted", text: picked.front.length
        ? `No config of ${picked.sweep.name} is expected to cost so little. The cheapest takes ${seconds(picked.front[0].cost_seconds)}.`
        : sentence(found.expected.get(picked.sweep.name)?.error || "Its expected front is being computed.") }),
      waiting.length ? h("p", { class: "hint waiting" }, h("span", { class: "spinner small", "aria-hidden": "true" }),
        "New trials have ended. The expected front is being computed again.") : null);
  }

  /** Makes the slider, once: one that is replaced while somebody drags it stops. */
  function underCard() {
    const made = { range: null, held: false, limit: h("output", { class: "under-limit" }), ends: h("div", { class: "under-ends faint" }), rest: h("div", { class: "under-rest" }) };
    made.slider = h("input", { type: "range", class: "under-slider", min: "0", max: "1000", step: "1", "aria-label": "Most seconds of training",
      onpointerdown: () => { made.held = true; },
      onpointerup: () => { made.held = false; },
      onpointercancel: () => { made.held = false; }, // a touch that scrolls the page
      onchange: () => { made.held = false; },
      oninput: (event) => {
        const { low, high } = made.range;
        const share = Number(event.target.value) / 1000;
        const wanted = duration(place(low) + share * (place(high * 1.001) - place(low)));
        state.set({ under: share >= 1 ? "" : Number(wanted.toPrecision(3)) });
      } });
    made.root = h("section", { class: "card under" },
      h("div", { class: "under-head" }, h("h2", { text: "Best config under" }), made.limit), made.slider, made.ends, made.rest);
    return made;
  }

  /** The expected front of the picked sweep as a table; a click on a row moves the slider there. */
  function drawSteps(picked) {
    const answer = found.expected.get(picked.sweep.name)?.value;
    if (!answer) return fill(steps);
    const mark = (one) => [one.trials.includes(answer.best) ? "best expected" : "", answer.knee !== null && one.trials.includes(answer.knee) ? "knee" : ""].filter(Boolean).join(", ");
    return fill(steps, h("section", { class: "card", "aria-label": "Expected front" },
      h("h2", { text: found.sweeps.length > 1 ? `Expected front of ${picked.sweep.name}` : "Expected front" }),
      picked.sweep.waited_share >= MUCH_WAITED ? h("p", { class: "note-line", text: `Other programs had the cores for ${percent(picked.sweep.waited_share)} of the trials' time. Trials stand at their costs without it, as the expected front does. A faint line reaches from each to its measured cost.` }) : null,
      h("div", { class: "scroll-x", tabindex: "0" }, h("table", { class: "facts steps" },
        h("thead", {}, h("tr", {}, [["cost", "number"], ["expected score", "number"], ["80 % interval", "number"], ...(answer.limits.length ? [["limits kept", "number"]] : []), ["measured", "number"], ["trial", "number"], ["choice", ""]].map(([title, cls]) => h("th", { class: cls, text: title })))),
        h("tbody", {}, picked.front.map((one) => h("tr", { class: one === picked.one ? "picked" : null },
          h("td", { class: "number" }, h("button", { type: "button", class: "link", title: "The best config under this cost", text: seconds(one.cost_seconds),
            onclick: () => state.set({ under: one === picked.front[picked.front.length - 1] ? "" : roundedUp(one.cost_seconds), of: found.sweeps.length > 1 ? picked.sweep.name : "" }) })),
          h("td", { class: "number", text: score(one.score.value) }), h("td", { class: "number muted", text: one.score.low === one.score.high ? "no spread seen" : `${score(one.score.low)} to ${score(one.score.high)}` }),
          answer.limits.length ? h("td", { class: "number", text: one.limits_kept || "not known" }) : null,
          h("td", { class: "number", text: one.measured.slice(0, 4).map(score).join(", ") + (one.measured.length > 4 ? ", ..." : "") }),
          h("td", { class: "number" }, one.trials.slice(0, 4).map((number, i) => [i ? ", " : "", trialLink(state, picked.sweep.name, number)])),
          h("td", { class: "muted step-mark", text: mark(one) }))))))));
  }

  function chooser(points, picked) {
    return h("table", { class: "facts chooser" }, h("thead", {}, h("tr", {}, h("th", { text: "sweep" }), h("th", { class: "number", text: "expected score" }), h("th", { class: "number", text: "cost" }))),
      h("tbody", {}, points.map(({ sweep, one }, i) => h("tr", { class: sweep === picked.sweep ? "picked" : null },
        h("td", {}, h("button", { type: "button", class: "link", "aria-pressed": sweep === picked.sweep ? "true" : "false", onclick: () => state.set({ of: sweep.name }) },
          h("span", { class: `swatch series-${(i % 10) + 1}`, "aria-hidden": "true" }), sweep.name)),
        h("td", { class: "number", text: one ? score(one.score.value) : "–" }), h("td", { class: "number", text: one ? seconds(one.cost_seconds) : "–" })))));
  }

  function answer({ sweep, one }) {
    const value = found.expected.get(sweep.name).value;
    const knee = value.knee !== null && one.trials.includes(value.knee);
    const best = one.trials.includes(value.best);
    return [
      h("p", { class: "big-answer" }, h("strong", { text: score(one.score.value) }), h("span", { class: "muted", text: one.score.low === one.score.high ? "" : ` ${score(one.score.low)} to ${score(one.score.high)}` })),
      h("p", { class: "muted", text: `expected score${best ? ", the best of the sweep" : knee ? ", the knee of the front" : ""}, in ${seconds(one.cost_seconds)} of training` }),
      one.limits_kept ? h("p", {}, `Keeps ${value.limits.join(" and ")} with ${one.limits_kept}`) : null,
      h("p", {}, one.trials.length > 1 ? "Trials " : "Trial ", one.trials.slice(0, 8).map((number, i) => [i ? ", " : "", trialLink(state, sweep.name, number)]),
        h("span", { class: "muted", text: `, measured ${one.measured.slice(0, 8).map(score).join(", ")}` })),
      one.train ? commandLine(one.train, "Train it") : null,
      commandLine(one.write, one.train ? "Keep it as a config file" : "See it in the terminal"),
      best && value.notes.length ? value.notes.map((note) => h("p", { class: "note-line", text: sentence(note) })) : null,
      value.changes.length ? h("p", { class: "note-line" }, h("span", { class: "warn-text", text: "Since then: " }), value.changes.join("; "), ".") : null,
      h("h3", { text: "Its config" }), configTable(one.params, value.initial_params),
      value.ladder && best ? commandLine(value.ladder, "Write the front as a family of config files") : null,
    ];
  }

  function table() {
    const header = ["sweep", "trial", "state", "score", "cost_seconds", "predicted_score", "predicted_cost_seconds", "measured_front", "expected_front"];
    const rows = found.sweeps.flatMap((sweep) => {
      const measured = new Set(sweep.front);
      const expected = new Set((found.expected.get(sweep.name)?.value?.front || []).flatMap((one) => one.trials));
      return sweep.points.number.map((number, i) => [sweep.name, number, sweep.points.state[i], sweep.points.score[i], sweep.points.run_seconds[i],
        sweep.points.predicted_score[i], sweep.points.predicted_cost_seconds[i], measured.has(number), expected.has(number)]);
    });
    return { header, rows };
  }
}

/** A duration of three digits that is not below a cost: what the limit has to be for the config of this cost. */
function roundedUp(cost) {
  const near = Number(cost.toPrecision(3));
  return near >= cost ? near : Number((near + 10 ** (Math.floor(Math.log10(cost)) - 2)).toPrecision(3));
}

function chartHeight() {
  return Math.max(320, Math.min(640, window.innerHeight - 210));
}

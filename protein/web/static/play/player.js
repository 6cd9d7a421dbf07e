// A game on a canvas, played by a policy, by whoever looks at it, or by both in turn; or several beside each other.
//
//   const player = mount(element, {
//     players: [{ title: "60 s", note: "score 20.4", open: async () => ({ world, policy, rival }), // policies may be null
//                 instead: () => element }],   // what is shown below the reason, where it cannot be played
//     seed: 0,          // several players play the same games
//     human: false,     // whether a person begins, as the first player
//     signal,           // ends it
//   });
//
// Nothing moves in a tab that is hidden, nor where the element is out of sight, and where the reader wants less motion it
// begins as a picture that waits. Keys work while the focus is inside.

import { fill, h } from "../lib/dom.js";
import { draw } from "./draw.js";
import { DIRECTIONS, Match } from "./match.js";
import { Policy } from "./policy.js";
import { World } from "./world.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16];
const BUSY = 10; // milliseconds of a picture that computing may take; a game that needs more goes slower
const LONGEST = 0.1; // seconds of game that one picture makes up for
const SWIPE = 24; // CSS pixels
const CODES = { ArrowUp: "up", ArrowRight: "right", ArrowDown: "down", ArrowLeft: "left", KeyW: "up", KeyD: "right", KeyS: "down", KeyA: "left" };
const SIGNS = { up: "↑", right: "→", down: "↓", left: "←" };
const figure = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 0 });

/** Returns a world, and the policies that play it or null, of their files, which are bytes or texts in base64. */
export async function opened({ wasm, policy, rival, frameSkip = 1 }) {
  const [agent, other] = [policy, rival].map((file) => (file ? Policy.parse(bytes(file)) : null));
  return { world: await World.load(bytes(wasm), { frameSkip: (agent ?? other)?.frameSkip ?? frameSkip }), policy: agent, rival: other };
}

/** Returns the bytes of a file, which may be a text in base64. */
export function bytes(file) {
  return typeof file === "string" ? Uint8Array.from(atob(file), (sign) => sign.charCodeAt(0)) : file;
}

/** Shows players in an element. See above. Returns `{ matches, focus, close }`. */
export function mount(root, { players, seed = 0, human = false, signal }) {
  const ending = new AbortController();
  signal?.addEventListener("abort", () => ending.abort(), { once: true });
  let [plays, speed, last, asked, seen] = [!matchMedia("(prefers-reduced-motion: reduce)").matches, 1, 0, 0, true];
  let [wanted, reached, since] = [0, 0, 0]; // frames of the last second
  const down = new Map(); // what the keys that are held mean, by their place

  const toggle = h("button", { type: "button", class: "button", title: "P", onclick: () => go(!plays) });
  const seedRoom = h("input", { class: "input play-seed", type: "number", min: "0", max: String(2 ** 53 - 1), step: "1", value: String(seed), "aria-label": "Seed of the games", onkeydown: (event) => { if (event.key === "Enter") restart(); } });
  const pace = h("select", { class: "input", "aria-label": "Speed", onchange: () => { speed = Number(pace.value); } },
    SPEEDS.map((one) => h("option", { value: String(one), text: `×${one}`, selected: one === 1 })));
  const slower = h("span", { class: "muted play-slower" });
  const best = h("label", { class: "choice", title: "Else it draws each action from its probabilities, as in training" },
    h("input", { type: "checkbox", onchange: (event) => { for (const { match } of stages) if (match) match.greedy = event.target.checked; } }), "only its best action");
  const said = h("p", { class: "muted play-said", role: "status" });
  const stages = players.map((player) => stage(player, { alone: players.length === 1, wake, said: (words) => { said.textContent = words; }, failed: () => { keys.hidden = stages.every(({ stopped }) => stopped); } }));
  const keys = h("div", { class: "play-keys", role: "group", "aria-label": "Playback" }, toggle,
    h("button", { type: "button", class: "button", title: ". (full stop)", text: "Step", onclick: step }),
    h("button", { type: "button", class: "button", title: "R", text: "Restart", onclick: restart }),
    h("label", { class: "choice" }, "seed", seedRoom), pace, slower, best);
  fill(root, h("div", { class: "play", onkeydown: pressed, onkeyup: released, onfocusout: (event) => { if (!event.currentTarget.contains(event.relatedTarget)) for (const { match } of stages) match?.releaseAll(); } },
    h("div", { class: "play-stages" }, stages.map((one) => one.room)), keys, said));
  for (const one of stages) one.open(seed, human && one === stages[0]).then(() => {
    best.hidden = !stages.some(({ match }) => match?.policy);
    best.firstChild.checked = stages.some(({ match }) => match?.greedy);
  });

  const watcher = new ResizeObserver(() => wake());
  const eye = new IntersectionObserver((found) => { seen = found.at(-1).isIntersecting; wake(); });
  for (const one of stages) watcher.observe(one.view);
  eye.observe(root);
  document.addEventListener("visibilitychange", () => wake(), { signal: ending.signal });
  ending.signal.addEventListener("abort", () => { watcher.disconnect(); eye.disconnect(); cancelAnimationFrame(asked); asked = 0; });
  go(plays);
  return { get matches() { return stages.map(({ match }) => match); }, focus: () => stages[0].view.focus(), close: () => ending.abort() };

  function go(on) {
    plays = on;
    toggle.textContent = on ? "Pause" : "Play";
    wake();
  }

  /** Asks for the next picture, where there may be one. */
  function wake() {
    if (asked || ending.signal.aborted || document.hidden || !seen) return;
    last = 0;
    asked = requestAnimationFrame(picture);
  }

  function picture(now) {
    asked = 0;
    const passed = last ? Math.min(LONGEST, (now - last) / 1000) : 0;
    last = now;
    const until = performance.now() + BUSY;
    for (const [i, one] of stages.entries()) {
      if (!one.match) continue;
      try {
        const frames = plays && !one.stopped ? passed * speed * one.match.game.framesPerSecond : 0;
        // Each may compute for its share of the time. What it does not reach is left out.
        const share = performance.now() + (until - performance.now()) / (stages.length - i);
        const moved = frames ? one.match.advance(frames, () => performance.now() > share) : 0;
        if (i === 0) [wanted, reached] = [wanted + frames, reached + moved];
        one.show();
      } catch (error) {
        one.fail(error);
      }
    }
    if (now - since > 1000) {
      const rate = wanted > 20 && !stages[0].match?.human ? reached / wanted : 1;
      slower.textContent = rate < 0.85 ? `this browser reaches ×${figure.format(Number((speed * rate).toPrecision(2)))}` : "";
      [wanted, reached, since] = [0, 0, now];
    }
    if (plays && stages.some((one) => one.match && !one.stopped) && !document.hidden && seen) asked = requestAnimationFrame(picture);
  }

  function step() {
    go(false);
    for (const one of stages) one.try((match) => match.step());
    wake();
  }

  function restart() {
    const given = seedRoom.valueAsNumber;
    const right = Number.isSafeInteger(given) && given >= 0;
    seedRoom.setAttribute("aria-invalid", String(!right));
    said.textContent = right ? "" : "A seed is a whole number from 0 on.";
    if (!right) return;
    for (const one of stages) one.try((match) => match.restart(given));
    wake();
  }

  /** The player that keys are meant for: the one with the focus, else one that a person plays, else the first. */
  function meant() {
    return stages.find((one) => one.match && one.room.contains(document.activeElement)) || stages.find((one) => one.match?.human) || stages.find((one) => one.match);
  }

  /** What a key means. Shift and Caps Lock change nothing, but where a layout has digits on them. */
  function meaning({ code, key }) {
    return CODES[code] || (key.length === 1 ? key.toLowerCase() : key);
  }

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox") return;
    const one = meant();
    const key = meaning(event);
    if (one?.match.knows(key)) {
      one.take(true);
      down.set(event.code, key);
      one.match.press(key, event.repeat);
      wake();
    } else if (event.key === "Escape" && one?.match.human && one.match.policy) one.take(false);
    else if (key === "p") go(!plays);
    else if (key === ".") step();
    else if (key === "r") restart();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function released(event) {
    const key = down.get(event.code) ?? meaning(event); // what it was when it went down
    down.delete(event.code);
    for (const { match } of stages) match?.release(key);
  }
}

/** One player: its canvas, its figures, and its actions. */
function stage({ title, note, open, instead }, { alone, wake, said, failed }) {
  const canvas = h("canvas", { role: "img", "aria-label": "the game" });
  const words = h("p", { class: "play-words" });
  const view = h("div", { class: "play-view", tabindex: "0", role: "group", "aria-label": title || "The game" }, canvas, words);
  const score = h("strong", { text: "–" });
  const ended = h("span", { class: "muted play-ended" });
  const value = h("strong", { text: "–" });
  const history = h("canvas", { class: "play-history", "aria-hidden": "true" });
  const actions = h("div", { class: "play-actions", role: "group", "aria-label": "Actions" });
  const taking = h("button", { type: "button", class: "button", disabled: true, text: "Take over", onclick: () => { self.take(!self.match.human); view.focus(); } });
  const figures = h("div", { class: "play-figures" }, h("div", {}, h("span", { class: "muted", text: "score" }), score), h("div", { class: "play-value" }, h("span", { class: "muted", text: "value" }), value, history), taking, ended);
  const room = h("section", { class: "play-stage", "aria-label": title || "Player" },
    alone && !title ? null : h("div", { class: "play-title" }, h("h3", { text: title }), note ? h("span", { class: "muted", text: note }) : null), view, figures, actions);
  let [rows, seen, drawn, counted] = [[], -1, 0, -1];
  const self = { room, view, match: null, stopped: false, open: begin, show, take, fail, try: attempt };
  tell("Loading the game.");
  return self;

  function tell(line, bad = false) {
    words.textContent = line;
    words.hidden = !line;
    if (bad) words.setAttribute("role", "alert");
    words.classList.toggle("bad", bad);
  }

  /** Says why it cannot go on, in place of the game. */
  function fail(error) {
    self.stopped = true;
    self.match = null;
    canvas.hidden = true;
    taking.disabled = true;
    const line = String(error?.message || error);
    tell(`It cannot be played here: ${line}${/[.!?]$/.test(line) ? "" : "."}`, true);
    for (const one of [figures, actions]) one.hidden = true;
    if (instead) room.append(instead());
    failed();
  }

  function attempt(work) {
    try {
      if (self.match) work(self.match);
    } catch (error) {
      fail(error);
    }
  }

  async function begin(seed, human) {
    try {
      const { world, policy, rival } = await open();
      self.match = new Match(world, policy, { seed, rival });
      self.match.human ||= human;
      const { match } = self;
      canvas.setAttribute("aria-label", `${world.name}: ${world.description || "the game"}`);
      view.setAttribute("aria-label", `${[title, world.name].filter(Boolean).join(", ")}. ${handling(match)}`);
      view.style.setProperty("--aspect", match.game.size[0] / match.game.size[1]);
      room.querySelector(".play-value").hidden = !policy;
      taking.hidden = !policy;
      taking.disabled = false;
      list(match);
      touch(match);
      tell("");
      if (match.human) take(true, true);
      show(); // also where nobody sees it yet
      wake();
    } catch (error) {
      fail(error);
    }
  }

  /** A person takes over, or hands back. */
  function take(on, first = false) {
    const { match } = self;
    if (!match || (!on && !match.policy)) return;
    if (match.human !== on || first) said(!on ? "The agent plays." : match.policy ? `You play${title ? ` ${title}` : ""}. Escape hands back.` : "You play.");
    match.human = on;
    if (!on) match.releaseAll();
    taking.textContent = on ? "Hand back" : "Take over";
    taking.setAttribute("aria-pressed", String(on));
    room.classList.toggle("human", on);
    wake();
  }

  /** The rows of the actions: their names, keys, and what the policy would do. */
  function list(match) {
    rows = [];
    const first = match.game.actions.map((_, i) => match.game.actions.slice(0, i).reduce((sum, { length }) => sum + length, 0)); // of its probabilities
    fill(actions, match.game.actions.map((component, i) => h("div", { class: "play-component" }, placed(component).map(({ name, key, action }) => {
      const input = `${i}:${action}`;
      const share = h("span", { class: "play-share" });
      const press = (on) => { if (on) { take(true); match.press(input); } else match.release(input); wake(); };
      const button = h("button", { type: "button", class: "play-action", onpointerdown: (event) => { event.target.setPointerCapture?.(event.pointerId); press(true); }, onpointerup: () => press(false), onpointercancel: () => press(false),
        onclick: (event) => { if (event.detail === 0) { press(true); press(false); } } }, // detail 0: by the keyboard
        h("span", { class: "play-fill" }), key && !match.game.steer ? h("kbd", { text: SIGNS[key] || key }) : null, h("span", { class: "play-name", text: name }), share);
      rows.push({ component: i, action, first: first[i], button, share });
      return button;
    }), match.world.continuousActions ? h("span", { class: "play-mean", role: "img", "aria-label": "the action" }, h("i")) : null)),
    match.game.steer ? h("p", { class: "muted", text: "The arrow keys choose the direction." }) : null);
  }

  function touch(match) {
    let [at, held] = [null, []];
    const used = DIRECTIONS.filter((key) => match.knows(key));
    const hold = (wanted) => {
      for (const key of held.filter((one) => !wanted.includes(one))) match.release(key);
      for (const key of wanted.filter((one) => !held.includes(one))) match.press(key);
      held = wanted;
      wake();
    };
    view.addEventListener("pointerdown", (event) => {
      view.focus({ preventScroll: true });
      if (!self.match || !match.human || !used.length) return;
      event.preventDefault();
      view.setPointerCapture(event.pointerId);
      at = [event.clientX, event.clientY];
      if (!match.queues) hold(toward(event, used));
    });
    view.addEventListener("pointermove", (event) => {
      if (!at) return;
      if (!match.queues) return hold(toward(event, used));
      const [dx, dy] = [event.clientX - at[0], event.clientY - at[1]];
      if (Math.max(Math.abs(dx), Math.abs(dy)) < SWIPE) return;
      swipe(dx, dy);
      at = [event.clientX, event.clientY];
    });
    const end = (event) => {
      if (at && match.queues && event.type === "pointerup" && Math.hypot(event.clientX - at[0], event.clientY - at[1]) < 4) {
        const { left, top, width, height } = view.getBoundingClientRect();
        swipe(event.clientX - left - width / 2, event.clientY - top - height / 2);
      }
      at = null;
      hold([]);
    };
    for (const type of ["pointerup", "pointercancel"]) view.addEventListener(type, end);

    function swipe(dx, dy) {
      const key = Math.abs(dx) > Math.abs(dy) ? (dx > 0 ? "right" : "left") : dy > 0 ? "down" : "up";
      if (used.includes(key)) match.press(key);
      match.release(key);
      wake();
    }
  }

  /** The directions from the middle of the game to where it is pressed. */
  function toward(event, used) {
    const { left, top, width, height } = view.getBoundingClientRect();
    const [x, y] = [(event.clientX - left) / width - 0.5, (event.clientY - top) / height - 0.5];
    const near = used.length > 2 ? 0.12 : 0; // with four directions there is a middle
    return [y < -near ? "up" : y > near ? "down" : "", x > near ? "right" : x < -near ? "left" : ""].filter((key) => used.includes(key));
  }

  function show() {
    const { match } = self;
    const ratio = devicePixelRatio || 1;
    const { clientWidth, clientHeight } = view;
    if (!clientWidth || !clientHeight) return;
    const fits = fit(canvas, clientWidth * ratio, clientHeight * ratio);
    if (fits && seen === match.seen && !match.before) return; // the picture is there
    seen = match.seen;
    draw(canvas.getContext("2d"), match.game, match.picture(), match.world.observation.subarray(0, match.world.observationSize), canvas.width, canvas.height, match.agent);
    score.textContent = figure.format(match.score);
    const { length } = match.scores;
    if (length !== counted) {
      counted = length;
      ended.textContent = length ? `${length} ${length === 1 ? "game has" : "games have"} ended, mean score ${figure.format(match.scores.reduce((sum, one) => sum + one, 0) / length)}` : "the first game";
    }
    if (match.decisions === drawn) return;
    drawn = match.decisions;
    if (match.said) value.textContent = figure.format(Number(match.said.values[match.agent].toPrecision(3)));
    shares(match);
    if (match.values.length) line(history, match.values, ratio);
  }

  /** What the policy would do, and what is done. */
  function shares(match) {
    const { world, said: answer, agent } = match;
    const [taken, part] = [world.actions.subarray(agent * world.actionComponents), answer?.probabilities.subarray((agent * answer.probabilities.length) / world.agents)];
    for (const { component, action, first, button, share } of rows) {
      const chosen = world.continuousActions ? (action ? 1 : -1) * taken[component] > 0.02 : taken[component] === action;
      button.classList.toggle("taken", chosen && match.decisions > 0);
      if (!answer || world.continuousActions) continue;
      button.style.setProperty("--part", part[first + action].toFixed(3));
      share.textContent = percent.format(part[first + action]);
    }
    if (world.continuousActions) {
      for (const [component, room] of [...actions.querySelectorAll(".play-mean")].entries()) {
        const turned = placed(match.game.actions[component])[0].action === 1; // the greater one stands on the left
        const place = (Math.max(-1, Math.min(1, (turned ? -1 : 1) * world.actions[component])) + 1) * 50;
        room.style.setProperty("--at", `${place.toFixed(1)}%`);
        room.setAttribute("aria-label", `action ${figure.format(Number(world.actions[component].toFixed(2)))}, between -1 and 1`);
      }
    }
  }
}

/** How a game is played, in words for a screen reader. */
function handling(match) {
  const own = match.game.actions.flat().filter(([, key]) => key);
  const keys = match.game.steer ? "The arrow keys choose the direction." : own.length ? `Keys: ${own.map(([name, key]) => `${SIGNS[key] ? `arrow ${key}` : key}, ${name}`).join("; ")}.` : "";
  return `${keys} ${match.policy ? "A key takes over, Escape hands back." : ""}`.trim();
}

/** A component's actions in the order in which they stand in the page: what is left of another one is on its left. */
function placed(component) {
  const places = [undefined, "left", "up", "down", "right"];
  return component.map(([name, key], action) => ({ name, key, action, place: places.includes(key) ? places.indexOf(key) : places.length })).sort((one, other) => one.place - other.place);
}

/** Gives a canvas a size in pixels. Returns whether it had it, with what is drawn on it. */
function fit(canvas, width, height) {
  const [wide, high] = [Math.max(1, Math.round(width)), Math.max(1, Math.round(height))];
  if (canvas.width === wide && canvas.height === high) return true;
  Object.assign(canvas, { width: wide, height: high }); // which clears it
  return false;
}

/** The line of the last values, between the least and the greatest of them. */
function line(canvas, values, ratio) {
  fit(canvas, canvas.clientWidth * ratio, canvas.clientHeight * ratio);
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  const low = Math.min(...values);
  const range = Math.max(...values) - low || 1;
  context.clearRect(0, 0, width, height);
  context.strokeStyle = getComputedStyle(canvas).color;
  context.lineWidth = 1.5 * ratio;
  context.lineJoin = "round";
  context.beginPath();
  for (const [i, value] of values.entries()) context.lineTo((i / 239) * width, height - 2 - ((value - low) / range) * (height - 4));
  context.stroke();
}

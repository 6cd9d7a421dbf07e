// A policy that learns while one looks at it: in a worker, so that the picture never waits. The game that is shown is always
// played by the newest policy. What runs in the worker is `learner.js`.

import { fill, h } from "../lib/dom.js";
import { bytes, mount, opened } from "./player.js";
import { Policy } from "./policy.js";

const AHEAD = 2; // batches that are asked for: while the page draws, the worker has the next one
const grouped = new Intl.NumberFormat("en");

/** Begins a lesson in an element: what `lesson` of `protein/web/play.py` returns, of a world. Returns `{ close }`. */
export function learn(root, { wasm, worker: script, learner, settings, frameSkip, title, seed }) {
  const [line, room] = [h("p", {}), h("div", {})];
  const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  let [goes, waiting, worker] = [true, 0, null];
  const toggle = h("button", { type: "button", class: "button", onclick: () => { goes = !goes; ask(); } });
  const again = h("button", { type: "button", class: "button", text: "Start again", title: "From other random weights", onclick: () => { seed += 1; begin(); } });
  fill(root, h("div", { class: "play" }, h("div", { class: "play-title" }, line, toggle, again), room));
  let first = null;
  const begun = new Promise((ready) => { first = ready; });
  const player = mount(room, { players: [{ title, note: "", open: async () => ({ ...(await opened({ wasm, frameSkip })), policy: await begun }) }], seed });
  begin();
  return { close: () => { worker?.terminate(); player.close(); } };

  function begin() {
    worker?.terminate();
    [goes, waiting, worker] = [true, 1, null];
    toggle.hidden = true; // until the worker has loaded: `see` shows it
    line.textContent = "It begins to learn.";
    if (!globalThis.Worker) return fail("this browser has no workers, in which a page learns");
    try {
      worker = new Worker(address);
    } catch (error) {
      return fail(error.message);
    }
    const own = worker;
    worker.onmessage = ({ data }) => { if (own === worker) see(data); };
    worker.onerror = ({ message }) => fail(message || "this browser does not start a worker");
    worker.postMessage({ learner: bytes(learner), wasm: bytes(wasm), settings, frameSkip, seed });
  }

  function see({ error, steps, score, progress, seconds, games, about, layers }) {
    if (error) return fail(error);
    waiting -= 1;
    const policy = new Policy(about, layers);
    policy.seed(steps);
    first(policy);
    for (const match of player.matches) if (match) match.policy = policy;
    if (steps) line.textContent = `${grouped.format(steps)} steps, ${seconds.toFixed(1)} s of learning: ${score === null ? "no game has ended yet" : `the last ${games} games score ${score.toFixed(2)} on average`}.`;
    toggle.hidden = progress >= 1;
    if (progress < 1) ask();
  }

  function ask() {
    toggle.textContent = goes ? "Pause learning" : "Go on learning";
    for (; goes && worker && waiting < AHEAD; waiting += 1) worker.postMessage({});
  }

  /** Says why it does not learn. Whoever looks may play. */
  function fail(reason) {
    worker?.terminate();
    worker = null;
    toggle.hidden = true;
    line.textContent = `It cannot be learnt here: ${reason}.`;
    first(null);
  }
}

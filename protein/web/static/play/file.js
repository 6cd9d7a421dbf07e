// What a file of `protein play` does: it shows the player with the games and the policies that the file carries.

import { fill, h } from "../lib/dom.js";
import { Learner } from "./learner.js";
import { mount, opened } from "./player.js";

const BUSY = 12; // milliseconds of learning at a time; then the page may draw
const grouped = new Intl.NumberFormat("en");

/** Shows what `protein/web/play.py` has put together (report/boot.js). */
export function start({ players, worlds, seed, human, greedy, lesson }) {
  const root = document.getElementById("player");
  if (lesson) return learn(root, { ...lesson, wasm: worlds[players[0].env], title: players[0].title, seed });
  const open = async (env, policy) => {
    const found = await opened({ wasm: worlds[env], policy });
    if (greedy && found.policy) found.policy.greedy = true;
    return found;
  };
  const player = mount(root, {
    players: players.map(({ env, title, note, policy }) => ({ title, note, open: () => open(env, policy) })),
    seed,
    human,
  });
  if (human) player.focus();
}

/** A policy that learns while one looks at it: the game that is shown is always played by the newest one. */
async function learn(root, { wasm, learner: file, settings, frameSkip, title, seed }) {
  const world = async () => (await opened({ wasm, frameSkip })).world;
  const learner = await Learner.load(Uint8Array.from(atob(file), (sign) => sign.charCodeAt(0)), await world(), settings, seed);
  const [line, room] = [h("p", { role: "status" }), h("div", {})];
  let [goes, runs, seconds] = [true, false, 0];
  const toggle = h("button", { type: "button", class: "button", text: "Pause learning", onclick: () => {
    goes = !goes;
    toggle.textContent = goes ? "Pause learning" : "Go on learning";
    if (goes) run();
  } });
  fill(root, h("div", { class: "play" }, h("div", { class: "play-title" }, line, toggle), room));
  const player = mount(room, { players: [{ title, note: "", open: async () => ({ world: await world(), policy: learner.policy() }) }], seed });
  run();

  async function run() {
    if (runs) return; // the batch that it was paused in has not ended
    runs = true;
    while (goes && learner.progress < 1) {
      let began = performance.now();
      for (const _ of learner.batch()) {
        if (performance.now() - began < BUSY) continue;
        seconds += (performance.now() - began) / 1000;
        await new Promise((ready) => setTimeout(ready));
        began = performance.now();
      }
      seconds += (performance.now() - began) / 1000;
      for (const match of player.matches) if (match) match.policy = learner.policy();
      const score = learner.score === null ? "no game has ended yet" : `the last ${learner.scores.length} games score ${learner.score.toFixed(2)} on average`;
      line.textContent = `${grouped.format(learner.steps)} steps, ${seconds.toFixed(1)} s of learning: ${score}.`;
    }
    runs = false;
    if (learner.progress >= 1) toggle.hidden = true;
  }
}

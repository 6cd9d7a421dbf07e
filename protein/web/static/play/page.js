// A page of games by itself: what `protein play` opens, and the gallery. It asks for nothing: all that it needs is in it.
//
//   <script type="application/json" id="games">{"title": "...", "text": "...", "human": false, "games": [
//     {"name": "pong", "wasm": BASE64, "policies": [{"title": "10 s", "note": "score 19.8", "policy": BASE64}]}]}</script>
//
// Where a game has several policies, the reader chooses which play beside each other. The address says which game.

import { fill, h } from "../lib/dom.js";
import { followSystem } from "../lib/theme.js";
import { draw, look } from "./draw.js";
import { mount, opened } from "./player.js";

const [WIDE, HIGH] = [240, 200]; // pixels of a game's small picture
const BEFORE = 60; // decisions before it

followSystem();
show(document.getElementById("main"), JSON.parse(document.getElementById("games").textContent));

function show(root, { title, text, human, games }) {
  const [rooms, about] = [h("div", {}), h("p", { class: "muted" })];
  const links = games.map(({ name }) => h("a", { href: `#${name}` }, h("canvas", { width: WIDE, height: HIGH, "aria-hidden": "true" }), name));
  let [player, shown] = [null, null];
  fill(root, h("div", { class: "games" }, h("h1", { text: title }), text ? h("p", { text }) : null,
    games.length > 1 ? h("nav", { "aria-label": "Games" }, h("ul", { class: "games-list" }, links.map((link) => h("li", {}, link)))) : null, about, rooms));
  addEventListener("hashchange", choose);
  choose();
  if (games.length > 1) pictures();

  function choose() {
    const game = games.find(({ name }) => `#${name}` === location.hash) || games[0];
    if (game === shown) return;
    shown = game;
    for (const [i, link] of links.entries()) link.toggleAttribute("aria-current", games[i] === game);
    about.textContent = "";
    opened({ wasm: game.wasm }).then(({ world }) => { if (shown === game) about.textContent = `${world.name}: ${world.description}. Solved at a mean score of ${world.solvedScore}.`; }, () => {}); // the player says why not
    const { policies } = game;
    const chosen = new Set(policies.length ? [policies[0], policies.at(-1)] : []);
    const room = h("div", {});
    const boxes = policies.length > 1 ? h("fieldset", { class: "games-choice" }, h("legend", { text: "Trained for" }), policies.map((policy) => h("label", { class: "choice" },
      h("input", { type: "checkbox", checked: chosen.has(policy), onchange: (event) => { if (event.target.checked) chosen.add(policy); else chosen.delete(policy); start(); } }), policy.title))) : null;
    fill(rooms, h("div", { class: "play" }, boxes, room));
    start();

    /** The chosen policies begin the same game; a person alone, where none is chosen. */
    function start() {
      player?.close();
      const agents = policies.filter((policy) => chosen.has(policy));
      const players = (agents.length ? agents : [{ title: "" }]).map(({ title: name, note, policy }) => ({ title: policies.length > 1 ? name : "", note, open: () => opened({ wasm: game.wasm, policy }) }));
      player = mount(room, { players, human: Boolean(human) });
      if (human) player.focus();
    }
  }

  /** A small picture of each game, when there is time for it. */
  async function pictures() {
    for (const [i, { wasm, policies }] of games.entries()) {
      await new Promise((ready) => (globalThis.requestIdleCallback || setTimeout)(ready));
      try {
        const { world, policy } = await opened({ wasm, policy: policies.at(-1)?.policy });
        for (let step = 0; policy && step < BEFORE; step += 1) world.step(policy.act(world.observation).actions);
        draw(links[i].firstChild.getContext("2d"), look(world), world.state(), world.observation, WIDE, HIGH);
      } catch { /* the player of this game says why */ }
    }
  }
}

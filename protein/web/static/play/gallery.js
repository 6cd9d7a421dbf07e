// The gallery: every game with several policies, of which the reader chooses those that play beside each other. It asks
// for nothing: all that it needs is in it. The address says which game.
//
//   start({ text: "...", teacher, games: [   // `teacher` and `lesson` of `protein/web/play.py`
//     { name: "pong", wasm: BASE64, policies: [{ title: "10 s", note: "score 19.8", policy: BASE64 }],
//       lesson }] })                         // null: the page cannot learn this game

import { fill, h } from "../lib/dom.js";
import { followSystem } from "../lib/theme.js";
import { GAMES, draw, look } from "./draw.js";
import { learn } from "./lesson.js";
import { mount, opened } from "./player.js";

const [WIDE, HIGH] = [240, 200]; // pixels of a game's small picture
const BEFORE = 60; // decisions before it

/** Shows what `scripts/gallery.py` has put together (report/boot.js). */
export function start({ text, teacher, games }) {
  followSystem();
  const [name, rooms, about] = [h("h2", {}), h("div", {}), h("p", { class: "muted" })];
  const links = games.map((game) => h("a", { href: `#${game.name}` }, h("canvas", { width: WIDE, height: HIGH, "aria-hidden": "true" }), game.name));
  let [player, lesson, shown] = [null, null, null];
  fill(document.getElementById("games"), h("p", { text }), h("nav", { "aria-label": "Games" }, h("ul", { class: "games-list" }, links.map((link) => h("li", {}, link)))), h("div", {}, name, about), rooms);
  addEventListener("hashchange", choose);
  choose();
  pictures();

  function choose() {
    const game = games.find((one) => `#${one.name}` === location.hash) || games[0];
    if (game === shown) return;
    shown = game;
    lesson?.close();
    lesson = null;
    for (const [i, link] of links.entries()) link.toggleAttribute("aria-current", games[i] === game);
    name.textContent = game.name;
    about.textContent = "";
    opened({ wasm: game.wasm }).then(({ world }) => { if (shown === game) about.textContent = `${world.description[0].toUpperCase()}${world.description.slice(1)}.${look(world).sides ? " The scores of policies are ratings against scripts, of which one that plays at random has 0." : ` Solved at a mean score of ${world.solvedScore}.`}`; }, () => {}); // the player says why not
    const { policies } = game;
    const chosen = new Set([policies[0], policies.at(-1)]);
    const [room, school] = [h("div", {}), h("div", {})];
    const here = h("input", { type: "checkbox", onchange: () => {
      lesson?.close();
      lesson = here.checked ? learn(school, { ...teacher, ...game.lesson, wasm: game.wasm, title: "in this page", seed: 0 }) : fill(school) && null;
    } });
    const rival = h("select", { class: "input", onchange: () => begin() }, h("option", { value: "", text: "itself" }), policies.map(({ title }, i) => h("option", { value: String(i), text: `${title} of training` })));
    fill(rooms, h("div", { class: "play" }, h("fieldset", { class: "games-choice" }, h("legend", { text: "Trained for" }), policies.map((policy) => h("label", { class: "choice" },
      h("input", { type: "checkbox", checked: chosen.has(policy), onchange: (event) => { if (event.target.checked) chosen.add(policy); else chosen.delete(policy); begin(); } }), policy.title)),
      game.lesson ? h("label", { class: "choice", title: "It begins with random play" }, here, "in this page, now") : null), GAMES[game.name]?.sides ? h("label", { class: "choice" }, h("span", { class: "muted", text: "Against" }), rival) : null, room, school));
    begin();

    /** The chosen policies begin the same games; a person alone, where none is chosen. */
    function begin() {
      player?.close();
      const agents = policies.filter((policy) => chosen.has(policy));
      player = mount(room, { players: (agents.length ? agents : [{}]).map(({ title, note, policy }) => ({ title, note, open: () => opened({ wasm: game.wasm, policy, rival: policies[rival.value]?.policy }) })) });
    }
  }

  /** A small picture of each game, when there is time for it. */
  async function pictures() {
    for (const [i, { wasm, policies }] of games.entries()) {
      await new Promise((ready) => (globalThis.requestIdleCallback || setTimeout)(ready, { timeout: 200 }));
      try {
        const { world, policy } = await opened({ wasm, policy: policies.at(-1).policy });
        for (let step = 0; step < BEFORE; step += 1) world.step(policy.act(world.observation).actions);
        const [game, state] = [look(world), world.state()];
        draw(links[i].firstChild.getContext("2d"), game, state, world.observation, WIDE, HIGH, game.follow?.(state, 0, world.agents));
      } catch { /* the player of this game says why */ }
    }
  }
}

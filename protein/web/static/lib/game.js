// The agents of trials at play in the page itself. What plays, and how, is in ../play; the server sends the policy.

import { fill, h } from "./dom.js";
import { score, seconds } from "./format.js";
import { stage } from "./player.js";

/**
 * Returns an element in which the agents of some trials play the same games beside each other.
 * `trials`: `{ env, sweep, number, title, note }`, all of one environment. One that cannot play here says why, and plays an episode on the server.
 */
export function game(api, trials, signal) {
  const room = h("div", {});
  import("../play/player.js").then(({ mount, opened }) => {
    if (signal.aborted) return;
    mount(room, { signal, players: trials.map(({ env, sweep, number, title, note }) => ({
      title, note, instead: () => stage(api, { sweep, number }, signal),
      open: async () => {
        const [wasm, policy] = await Promise.all([file("/play/world", { env }), file("/play/policy", { sweep, number })]);
        return opened({ wasm, policy });
      },
    })) });
  }).catch((error) => { fill(room, h("p", { class: "bad", text: error.message })); });
  return room;

  async function file(path, params) {
    const answer = await fetch(api.url(path, params), { signal });
    if (!answer.ok) throw new Error((await answer.json()).error);
    return answer.arrayBuffer();
  }
}

/** The same with a choice of a second agent: one of the front, cheaper or more expensive. */
export function gameBeside(api, { env, sweep, number }, signal) {
  const room = h("div", { class: "play" });
  let playing = new AbortController();
  const choice = h("select", { class: "input", onchange: () => begin(choice.value === "" ? [] : [Number(choice.value)]) }, h("option", { value: "", text: "nobody" }));
  const label = h("label", { class: "field", hidden: true }, h("span", { class: "field-label", text: "Beside it, in the same games" }), choice);
  signal.addEventListener("abort", () => playing.abort(), { once: true });
  const known = new Map(); // what each has cost and scored, by its number
  api.get("/front", { sweep, points: 100 }, { signal }).then(({ sweeps: [{ front, points }] }) => {
    points.number.forEach((one, i) => known.set(one, `score ${score(points.score[i])}, ${seconds(points.calm_seconds[i])} of training`));
    const others = front.filter((one) => one !== number);
    choice.append(...others.map((one) => h("option", { value: String(one), text: `trial ${one}: ${known.get(one) || ""}` })));
    label.hidden = !others.length;
  }, () => {}); // without it there is no choice
  begin([]);
  return h("div", { class: "play" }, label, room);

  function begin(others) {
    playing.abort();
    playing = new AbortController();
    const numbers = [number, ...others];
    fill(room, game(api, numbers.map((one) => ({ env, sweep, number: one, title: others.length ? `trial ${one}` : "", note: others.length ? known.get(one) : "" })), playing.signal));
  }
}

// What a file of `protein play` does: it unpacks the games and the policies that it carries, and shows the player.

import { mount } from "./player.js";
import { Policy } from "./policy.js";
import { World } from "./world.js";

/** Shows what `protein/web/play.py` has put together (report/boot.js). */
export function start({ players, worlds, seed, human, greedy }) {
  mount(document.getElementById("player"), {
    players: players.map(({ env, title, note, policy }) => ({ title, note, open: () => opened(worlds[env], policy, greedy) })),
    seed,
    human,
  });
}

async function opened(world, file, greedy) {
  const policy = file && Policy.parse(unpacked(file));
  if (policy && greedy) policy.greedy = true;
  return { world: await World.load(unpacked(world), { frameSkip: policy?.frameSkip ?? 1 }), policy };
}

function unpacked(text) {
  return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
}

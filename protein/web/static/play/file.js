// What a file of `protein play` does: it shows the player with the games and the policies that the file carries.

import { mount, opened } from "./player.js";

/** Shows what `protein/web/play.py` has put together (report/boot.js). */
export function start({ players, worlds, seed, human, greedy }) {
  const open = async (env, policy) => {
    const found = await opened({ wasm: worlds[env], policy });
    if (greedy && found.policy) found.policy.greedy = true;
    return found;
  };
  const player = mount(document.getElementById("player"), {
    players: players.map(({ env, title, note, policy }) => ({ title, note, open: () => open(env, policy) })),
    seed,
    human,
  });
  if (human) player.focus();
}

// What a file of `protein play` does: it shows the player with the games and the policies that the file carries.

import { learn } from "./lesson.js";
import { mount, opened } from "./player.js";

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

"""Games with their policies in one HTML file, which plays them: `protein play`. It needs no server and no network."""

import base64
import dataclasses
import html
from collections.abc import Sequence

from protein.envs_c import spec, worlds
from protein.web.packing import html_of, packed

MAX_BYTES = 1_000_000  # what a mail carries without a thought


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """A game, and who plays it.

    Attributes:
        env: the game's name.
        title: of the policy, in a few words.
        note: what is known of it, in a line.
        policy: the file of `protein.trainer.export`; None: only a person plays.
    """

    env: str
    title: str
    note: str
    policy: bytes | None


def document(players: Sequence[Player], *, title: str, seed: int = 0, human: bool = False, greedy: bool = False) -> str:
    """Returns the HTML of a file. Players beside each other play games of the same seeds.

    Args:
        players: one, or several.
        title: of the file.
        seed: of the first game.
        human: whether a person begins, and not the policy.
        greedy: takes only the most probable action; else as the policies' own runs say.

    Raises:
        NoWorldError: a game is none that a page can play.
    """
    about = "; ".join(spec(env).description for env in dict.fromkeys(one.env for one in players))
    data = {
        "seed": seed,
        "human": human,
        "greedy": greedy,
        "worlds": {one.env: _text(worlds.read(one.env)) for one in players},
        "players": [
            {"env": one.env, "title": one.title, "note": one.note, "policy": one.policy and _text(one.policy)}
            for one in players
        ],
    }
    body = (
        f"<main id='main' class='play-file'><h1>{html.escape(title)}</h1><h2>{html.escape(about)}</h2>"
        "<div id='notices' role='status'></div>"
        "<div id='player'><noscript><p>This page needs JavaScript.</p></noscript></div></main>"
    )
    return html_of(
        packed(["play/file.js"], styles=["css/base.css", "play/play.css"]),
        data,
        start="play/file.js",
        title=title,
        body=body,
        fails="This browser cannot play this game (ERROR).",
        kind="play-alone",
        wasm=True,
    )


def _text(file: bytes) -> str:
    return base64.b64encode(file).decode()

"""Games with their policies in one HTML file, which plays them: `protein play`. It needs no server and no network."""

import base64
import dataclasses
import html
import re
from collections.abc import Sequence
from typing import Any

from protein.envs_c import spec, worlds
from protein.errors import UsageError
from protein.trainer.config import RunConfig
from protein.web.packing import STATIC, html_of, packed

# What a page does not do: these have to be as they are without a config.
_PLAIN_POLICY = ("encoder", "recurrence", "num_layers", "activation", "separate_value", "module", "value_bins")
_PLAIN_TRAIN = (
    "optimizer",
    "lr_schedule",
    "warmup_fraction",
    "weight_decay",
    "reward_clip",
    "target_kl",
    "target_entropy",
    "ent_coef_final",
    "normalize_advantages",
    "accumulation_steps",
)
_LEARNT = (
    "horizon",
    "minibatch_size",
    "update_epochs",
    "total_timesteps",
    "learning_rate",
    "gamma",
    "gae_lambda",
    "clip_coef",
    "vf_coef",
    "ent_coef",
    "max_grad_norm",
    "beta1",
    "beta2",
    "adam_eps",
)
MAX_BYTES = 1_000_000  # what a mail carries without a thought
WAITS = (  # in place of the player, until it is there
    "<noscript><p>This page needs JavaScript.</p></noscript>"
    "<p>Loading. If this stays, the file has been cut short: get it again.</p>"
)


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


def document(
    players: Sequence[Player],
    *,
    title: str,
    seed: int = 0,
    human: bool = False,
    greedy: bool = False,
    config: RunConfig | None = None,
) -> str:
    """Returns the HTML of a file. Players beside each other play games of the same seeds.

    Args:
        players: one, or several.
        title: of the file.
        seed: of the first game.
        human: whether a person begins, and not the policy.
        greedy: takes only the most probable action; else as the policies' own runs say.
        config: of a run that the page learns itself, of the one player; None: it learns nothing.

    Raises:
        UsageError: the config is none that a page can learn.
        NoWorldError: a game is none that a page can play.
    """
    about = "; ".join(spec(env).description for env in dict.fromkeys(one.env for one in players))
    data = {
        "seed": seed,
        "human": human,
        "greedy": greedy,
        "lesson": None if config is None else {**lesson(config), **teacher()},
        "worlds": {one.env: _text(worlds.read(one.env)) for one in players},
        "players": [
            {"env": one.env, "title": one.title, "note": one.note, "policy": one.policy and _text(one.policy)}
            for one in players
        ],
    }
    body = (
        f"<main id='main' class='play-file'><h1>{html.escape(title)}</h1><h2>{html.escape(about)}</h2>"
        "<div id='notices' role='status'></div>"
        f"<div id='player'>{WAITS}</div></main>"
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


def lesson(config: RunConfig) -> dict[str, Any]:
    """Returns what `static/play/lesson.js` needs of a config, beside the teacher.

    Raises:
        UsageError: it asks for what a page does not do.
    """
    name, policy, train = config.env.name, config.policy, config.train
    about, plain = spec(name), RunConfig()
    if about.agents_per_env > 1 or len(about.action_sizes) != 1:
        raise UsageError(f"a page learns games of one agent with one choice, and {name} is none; give another game")
    for section, given, usual, fields in (
        ("policy", policy, plain.policy, _PLAIN_POLICY),
        ("train", train, plain.train, _PLAIN_TRAIN),
    ):
        for field in fields:
            if getattr(given, field) != getattr(usual, field):
                raise UsageError(
                    f"a page learns with {section}.{field} of {getattr(usual, field)} alone, and the config of {name}"
                    f" has {getattr(given, field)}; give another game"
                )
    samples = config.env.num_envs * train.horizon
    if policy.hidden_size % 16 or config.env.num_envs % 4 or train.minibatch_size % 4 or samples % train.minibatch_size:
        raise UsageError(
            f"a page learns in whole minibatches with a multiple of 16 units and of 4 games, and the config of {name}"
            f" has {policy.hidden_size} units, {config.env.num_envs} games and {samples:,} samples in minibatches of"
            f" {train.minibatch_size:,}; give another game"
        )
    return {
        "frameSkip": config.env.frame_skip,
        "settings": {
            "hidden_size": policy.hidden_size,
            "num_envs": config.env.num_envs,
            **{field: getattr(train, field) for field in _LEARNT},
        },
    }


def teacher() -> dict[str, str]:
    """Returns what learns in a page, for all games."""
    # A worker of a file that was opened by itself can load no module: it is one plain script.
    modules = "\n".join((STATIC / "play" / one).read_text(encoding="utf-8") for one in ("world.js", "learner.js"))
    return {
        "worker": re.sub(r"^(import .*|export )", "", modules, flags=re.MULTILINE),
        "learner": _text((STATIC / "play" / "learner.wasm").read_bytes()),
    }


def _text(file: bytes) -> str:
    return base64.b64encode(file).decode()

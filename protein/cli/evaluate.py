"""`protein eval`: plays episodes with a checkpoint."""

import dataclasses
import os

from protein.cli.arguments import Eval
from protein.cli.output import print_json
from protein.cli.parse import Command
from protein.errors import UsageError
from protein.view import tables, text

_MOST_ENVS = {"gym": 32, "gym-async": os.cpu_count() or 1}  # by kind: Python objects, and processes, are dear


def run(command: Command) -> int:
    arguments: Eval = command.arguments
    if arguments.checkpoint is None:
        raise UsageError("eval needs a checkpoint; give --checkpoint FILE, which protein train prints at its end")
    if arguments.episodes < 1:
        raise UsageError(f"--episodes {arguments.episodes} is below the limit of 1; play at least one")
    if arguments.seed < 0:
        raise UsageError(f"--seed {arguments.seed} is below the limit of 0; use 0 or more")
    from trainer import checkpoint as checkpoints  # torch takes seconds to import: what is wrong is said before
    from trainer.evaluate import evaluate

    env = arguments.environment or checkpoints.read(arguments.checkpoint).config.env.name
    result = evaluate(
        arguments.checkpoint,
        env=env,
        episodes=arguments.episodes,
        num_envs=_num_envs(arguments.episodes, env),
        seed=arguments.seed,
        greedy=arguments.greedy,
    )
    if arguments.json:
        print_json({"env": env, "checkpoint": str(arguments.checkpoint), **dataclasses.asdict(result)})
        return 0
    error = result.score_std / result.episodes**0.5
    tables.make_console().print(
        f"score {text.score(result.score)} +- {text.score(error)} (mean of {result.episodes} episodes of {env},"
        f" deviation {text.score(result.score_std)}) in {text.seconds(result.seconds)}",
        soft_wrap=True,
    )
    return 0


def _num_envs(episodes: int, env: str) -> int:
    """Returns the most environments, up to a number that its kind can bear, that share the episodes evenly."""
    most = _MOST_ENVS.get(env.partition(":")[0], 256)
    return next(count for count in range(min(most, episodes), 0, -1) if episodes % count == 0)

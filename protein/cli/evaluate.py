"""`protein eval`: plays episodes with a checkpoint."""

import dataclasses

from protein.cli.arguments import Eval
from protein.cli.output import print_json
from protein.cli.parse import Command
from protein.errors import UsageError
from protein.view import tables, text


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
        num_envs=_num_envs(arguments.episodes),
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


def _num_envs(episodes: int) -> int:
    """Returns the most environments, 256 at most, that share the episodes evenly."""
    return next(count for count in range(min(256, episodes), 0, -1) if episodes % count == 0)

"""`protein eval` of a language model: its loss on validation text, or with `--prompt` a text that it writes."""

import dataclasses
from pathlib import Path
from typing import Any

from rich.text import Text

from protein.cli.arguments.search import EvalArguments
from protein.cli.output import print_json
from protein.errors import UsageError
from protein.trainer.kinds import Config
from protein.view import tables, text
from protein.view.printing import cleaned

TOKENS = 256  # that are written


def run(arguments: EvalArguments, checkpoint: Path, config: Config) -> int:
    """Carries it out.

    Args:
        arguments: of the command, checked as far as they mean the same for an agent.
        checkpoint: of a language model.
        config: of its run.
    """
    _check(arguments, config)
    if arguments.prompt is None:
        return _measure(arguments, checkpoint, config)
    from protein.trainer.language.sample import sample

    temperature = 0.0 if arguments.greedy else arguments.temperature
    given: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    written = sample(checkpoint, arguments.prompt, tokens=arguments.tokens or TOKENS, seed=arguments.seed, **given)
    if arguments.json:
        print_json({"env": config.subject, "checkpoint": str(checkpoint), "prompt": arguments.prompt, "text": written})
    else:
        tables.make_console().print(Text(cleaned(written)), soft_wrap=True)
    return 0


def _check(arguments: EvalArguments, config: Config) -> None:
    """Raises `UsageError` for a flag that means nothing for a language model, or for a value out of range."""
    for name, given in (
        ("--episodes", arguments.episodes is not None),
        ("--render", arguments.render),
        ("--gif", arguments.gif is not None),
    ):
        if given:
            raise UsageError(
                f"{name} is for agents, and {arguments.checkpoint} is a language model's; use --prompt TEXT"
            )
    if arguments.environment not in (None, config.subject):
        raise UsageError(
            f"--env {arguments.environment} contradicts {arguments.checkpoint}, which was trained on"
            f" '{config.subject}'; drop --env"
        )
    if arguments.tokens is not None and arguments.tokens < 1:
        raise UsageError(f"--tokens {arguments.tokens} is below the limit of 1; use 1 or more")
    if arguments.temperature is not None and arguments.temperature < 0:
        raise UsageError(f"--temperature {arguments.temperature:g} is below the limit of 0; use 0 or more")
    if arguments.prompt is None and (arguments.greedy or arguments.temperature is not None):
        name = "--greedy" if arguments.greedy else "--temperature"
        raise UsageError(f"{name} says how to write; give --prompt TEXT, too")
    if arguments.prompt is not None and arguments.hellaswag is not None:
        raise UsageError(f"--hellaswag {arguments.hellaswag} measures, and --prompt writes; give one of the two")


def _measure(arguments: EvalArguments, checkpoint: Path, config: Config) -> int:
    from protein.trainer.language.evaluate import evaluate

    found = evaluate(checkpoint, tokens=arguments.tokens or 0, questions=arguments.hellaswag)
    if arguments.json:
        print_json(
            {
                "env": config.subject,
                "checkpoint": str(checkpoint),
                "score": found.score,
                **dataclasses.asdict(found),
            }
        )
        return 0
    metrics = {"bits_per_byte": found.bits_per_byte, "loss": found.nats_per_token}
    tables.make_console().print(
        f"score {text.score(found.score)}: {text.loss(metrics)}, over {found.tokens:,} tokens of {config.subject} in"
        f" {text.seconds(found.seconds)}",
        soft_wrap=True,
    )
    if found.hellaswag is not None:
        tables.make_console().print(
            f"HellaSwag: {100 * found.hellaswag:.1f} % right; guessing gets 25 %", soft_wrap=True
        )
    return 0

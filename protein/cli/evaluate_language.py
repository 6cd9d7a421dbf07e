"""`protein eval` of a language model: its loss on validation text, or with `--prompt` a text that it writes."""

import dataclasses
from pathlib import Path
from typing import Any

from rich.text import Text

from protein.cli.arguments import EvalArguments
from protein.cli.output import Progress, print_json
from protein.errors import UsageError
from protein.trainer.language.config import LanguageConfig, subject_of_path
from protein.view import tables, text
from protein.view.text import cleaned

TOKENS = 256  # that are written


def run(arguments: EvalArguments, checkpoint: Path, config: LanguageConfig | None) -> int:
    """Carries it out.

    Args:
        arguments: of the command, checked as far as they mean the same for an agent.
        checkpoint: of a language model.
        config: of its run; None: it is a folder of released weights.
    """
    _check(arguments, config)
    if arguments.prompt is not None:
        return _write(arguments, checkpoint, arguments.prompt, config)
    if config is None and arguments.data is None:
        return _ask(arguments, checkpoint)
    return _measure(arguments, checkpoint, config)


def _write(arguments: EvalArguments, checkpoint: Path, prompt: str, config: LanguageConfig | None) -> int:
    from protein.trainer.language.sample import sample

    temperature = 0.0 if arguments.greedy else arguments.temperature
    given: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    tokens = arguments.tokens or TOKENS
    written = sample(
        checkpoint, prompt, data=arguments.data or "", tokens=tokens, seed=arguments.seed, progress=Progress(), **given
    )
    if arguments.json:
        env = _subject(arguments, config)
        print_json({"env": env, "checkpoint": str(checkpoint), "prompt": prompt, "text": written})
    else:
        tables.make_console().print(Text(cleaned(written)), soft_wrap=True)
    return 0


def _subject(arguments: EvalArguments, config: LanguageConfig | None) -> str | None:
    """Returns the name of the text; None: there is none."""
    if arguments.data is not None:
        return subject_of_path(arguments.data)
    return None if config is None else config.subject


def _ask(arguments: EvalArguments, checkpoint: Path) -> int:
    """Asks HellaSwag's questions of released weights, for which no text is named."""
    if arguments.hellaswag is None or arguments.tokens is not None:
        raise UsageError(
            f"{checkpoint} holds weights and no text to measure them on; give --data FOLDER, tokens that protein data"
            f" tokenize FILES --tokenizer {checkpoint} --into FOLDER has made"
            + ("" if arguments.tokens is not None else ", or --prompt TEXT")
        )
    from protein.trainer.language.evaluate import ask

    share = ask(checkpoint, arguments.hellaswag, progress=Progress())
    if arguments.json:
        print_json({"env": None, "checkpoint": str(checkpoint), "hellaswag": share})
    else:
        tables.make_console().print(hellaswag_line(share), soft_wrap=True)
    return 0


def hellaswag_line(share: float) -> str:
    """Returns the line about HellaSwag's questions of which the share was answered right."""
    return f"HellaSwag: {100 * share:.1f} % right; guessing gets 25 %"


def _check(arguments: EvalArguments, config: LanguageConfig | None) -> None:
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
    if config is None and arguments.environment is not None:
        raise UsageError(f"{arguments.checkpoint} holds weights alone; drop --env, and give --data FOLDER")
    if config is not None and arguments.environment not in (None, config.subject):
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


def _measure(arguments: EvalArguments, checkpoint: Path, config: LanguageConfig | None) -> int:
    from protein.trainer.language.evaluate import evaluate

    found = evaluate(
        checkpoint,
        data=arguments.data or "",
        tokens=arguments.tokens or 0,
        questions=arguments.hellaswag,
        progress=Progress(),
    )
    subject = _subject(arguments, config)
    if arguments.json:
        print_json(
            {
                "env": subject,
                "checkpoint": str(checkpoint),
                "score": found.score,
                **dataclasses.asdict(found),
            }
        )
        return 0
    metrics = {"bits_per_byte": found.bits_per_byte, "loss": found.nats_per_token}
    tables.make_console().print(
        f"score {text.score(found.score)}: {text.loss(metrics)}, over {found.tokens:,} tokens of {subject} in"
        f" {text.seconds(found.seconds)}",
        soft_wrap=True,
    )
    if found.hellaswag is not None:
        tables.make_console().print(hellaswag_line(found.hellaswag), soft_wrap=True)
    return 0

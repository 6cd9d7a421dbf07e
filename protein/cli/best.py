"""`protein best`: what a sweep recommends, as text, JSON or TOML, and the commands that train it."""

from pathlib import Path
from typing import Any

from rich.text import Text

from protein.api import stores
from protein.api.reading import readable
from protein.api.recommended import (
    BEST,
    KNEE,
    NO_KNEE,
    Choice,
    Recommendation,
    duration_above,
    recommendation,
    stored_values,
)
from protein.cli.arguments import BestArguments
from protein.cli.output import print_json, writing
from protein.cli.parse import Command
from protein.config.layers import unflatten
from protein.config.write import to_toml
from protein.errors import UsageError
from protein.space import Space
from protein.types import SweepRecord
from protein.view import commands, data, tables


def run(command: Command) -> int:
    arguments: BestArguments = command.arguments
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        known = readable(store, sweep)
        found = recommendation(sweep, known.trials, arguments.under, known.sample)
    if arguments.toml is not None:
        if not found.trains:
            raise UsageError(f"sweep '{sweep.spec.name}' ran {sweep.spec.env}, which has no config file; use --json")
        _write(sweep, found.chosen, arguments.toml)
    training = _training_commands(sweep, found, arguments) if found.trains else {}
    if arguments.json:
        _print_json(sweep, found, training)
    else:
        _print(sweep, found, training, arguments.toml)
    return 0


def _training_commands(sweep: SweepRecord, found: Recommendation, arguments: BestArguments) -> dict[str, str]:
    """Returns the commands that train the answers, by the answer's name; the chosen one comes last."""

    def train(under: str | None) -> str:
        limit = [] if under is None else ["--under", under]
        words = ["train", "--env", sweep.spec.env, "--from", sweep.spec.name, *limit]
        return commands.command(*words, *stores.store_words(arguments.store))

    lines = {BEST: train(None)}
    if found.knee is not None:
        lines[KNEE] = train(duration_above(found.knee.contender.expected_cost_seconds))
    if found.under is not None:
        lines[found.under.name] = train(arguments.under)
    return {name: lines[name] for name in sorted(lines, key=lambda name: name == found.chosen.name)}


def _rows(found: Recommendation) -> list[Choice]:
    return [choice for choice in (found.best, found.under, found.knee) if choice is not None]


def _print_json(sweep: SweepRecord, found: Recommendation, training: dict[str, str]) -> None:
    chosen = found.chosen
    record = {**data.trial(chosen.trial, curve=False), **_json(chosen), "command": training.get(chosen.name)}
    answers = [
        {"params": dict(row.trial.params), **_json(row), "command": training.get(row.name)} for row in _rows(found)
    ]
    print_json({"sweep": sweep.spec.name, **record, "answers": answers, "notes": found.notes()})


def _json(choice: Choice) -> dict[str, Any]:
    """Returns what is expected of a recommended config, and how that is known."""
    contender = choice.contender
    return {
        "answer": choice.name,
        "expected_score": data.estimate(contender.score),
        "expected_cost_seconds": contender.expected_cost_seconds,
        "trials": [trial.number for trial in choice.trials],
        "measured": list(contender.measured),
        "basis": contender.basis,
    }


def _print(sweep: SweepRecord, found: Recommendation, training: dict[str, str], toml: Path | None) -> None:
    console = tables.make_console()
    chosen, rows = found.chosen, _rows(found)
    head = f"trial {chosen.trial.number} of sweep '{sweep.spec.name}', {chosen.name}: expected {chosen.phrase()}"
    console.print(Text(head, style="bold"), soft_wrap=True)
    console.print(f"tried as: {chosen.trial.origin}\n", soft_wrap=True)
    names = [choice.name for choice in rows]
    console.print(tables.answers(names, [choice.contender for choice in rows], [c.trials for c in rows], console.width))
    console.print(f"\nscores are expected true scores, by the {chosen.contender.basis}", soft_wrap=True)
    if found.knee is None:
        console.print(NO_KNEE, soft_wrap=True)
    for note in found.notes():
        console.print(note, soft_wrap=True)
    console.print()
    console.print(tables.params(chosen.trial.params))
    if toml is not None:
        console.print(f"\nconfig: {toml}", soft_wrap=True)
    for name, line in training.items():
        console.print(f"\n{name}, train it with\n  {line}", soft_wrap=True)


def _write(sweep: SweepRecord, choice: Choice, path: Path) -> None:
    trial = choice.trial
    origin = (
        f"trial {trial.number} of sweep '{sweep.spec.name}', {choice.name}: expected {choice.phrase()}"
        f" on {trial.provenance.machine}"
    )
    content = to_toml(unflatten(stored_values(sweep.spec, trial)), Space.from_dict(sweep.spec.space), origin)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

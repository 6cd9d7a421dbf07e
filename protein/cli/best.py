"""`protein best`: what a sweep recommends, as text, JSON or config files, and the commands that train it."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from protein import files
from protein.analysis.range_end import RangeEnd
from protein.api import command_sweep, stores
from protein.api.answers import Answers
from protein.api.found_config import found_config, rung_path
from protein.api.recommended import (
    BEST,
    KNEE,
    NO_KNEE,
    Choice,
    Recommendation,
    duration_above,
    too_expensive,
)
from protein.cli.arguments.results import BestArguments
from protein.cli.output import print_json, working, writing
from protein.cli.parse import Command
from protein.errors import UsageError
from protein.types import SweepRecord
from protein.units import parse_duration
from protein.view import commands, data, tables


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A config file that was written: whose config it holds, and what may make its figures wrong here."""

    path: Path
    choice: Choice
    changes: tuple[str, ...]
    command: str


def run(command: Command) -> int:
    arguments: BestArguments = command.arguments
    with working("computing what is expected"), stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        answers = Answers(store, sweep)
        found, ends = answers.recommendation(arguments.under), answers.range_ends()
    written = _write(sweep, found, arguments)
    training = _training_commands(sweep, found, arguments)
    if arguments.json:
        _print_json(sweep, found, training, written, ends)
    else:
        _print(sweep, found, training, written, ends)
    return 0


def _training_commands(sweep: SweepRecord, found: Recommendation, arguments: BestArguments) -> dict[str, str]:
    """Returns the commands that train the answers, by the answer's name; the chosen one comes last.

    A sweep over a function has none.
    """
    if command_sweep.runs_command(sweep.spec.config):
        answers = sorted(_rows(found), key=lambda choice: choice.name == found.chosen.name)
        return {choice.name: command_sweep.command_line(sweep.spec, choice.trial) for choice in answers}
    if not found.trains:
        return {}

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


def _print_json(
    sweep: SweepRecord,
    found: Recommendation,
    training: dict[str, str],
    written: list[Written],
    ends: Sequence[RangeEnd],
) -> None:
    chosen = found.chosen
    record = {**data.trial(chosen.trial, curve=False), **_json(chosen), "command": training.get(chosen.name)}
    answers = [
        {"params": dict(row.trial.params), **_json(row), "command": training.get(row.name)} for row in _rows(found)
    ]
    files = [
        {"path": str(one.path), "trial": one.choice.trial.number, "changes": list(one.changes), "command": one.command}
        for one in written
    ]
    said = {"notes": found.notes(), "range_ends": [_plain(end) for end in ends]}
    print_json({"sweep": sweep.spec.name, **record, "answers": answers, **said, "written": files})


def _plain(end: RangeEnd) -> dict[str, Any]:
    return {
        "name": end.name,
        "end": end.end,
        "bound": end.bound,
        "best_value": end.best_value,
        "probability": end.probability,
        "text": end.text(),
    }


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


def _print(
    sweep: SweepRecord,
    found: Recommendation,
    training: dict[str, str],
    written: list[Written],
    ends: Sequence[RangeEnd],
) -> None:
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
    for note in (*found.notes(), *(end.text() for end in ends)):
        console.print(note, soft_wrap=True)
    console.print()
    console.print(tables.params(chosen.trial.params))
    for name, line in training.items():
        verb = "train" if found.trains else "run"
        console.print(Text(f"\n{name}, {verb} it with\n  {line}"), soft_wrap=True)
    for one in written:
        console.print(f"\nconfig: {one.path}, {one.choice.name}: expected {one.choice.phrase()}", soft_wrap=True)
        for change in one.changes:
            console.print(f"  note: {change}", soft_wrap=True)
        console.print(f"  {one.command}", soft_wrap=True)


def _write(sweep: SweepRecord, found: Recommendation, arguments: BestArguments) -> list[Written]:
    """Writes what `--write` and `--ladder` ask for: all files, or none where one of them cannot be made."""
    chosen: list[tuple[Path, Choice]] = []
    if arguments.ladder is not None:
        if arguments.under is not None:
            raise UsageError(f"--ladder {arguments.ladder} has limits of its own; drop --under {arguments.under}")
        for limit in arguments.ladder.split(","):
            choice = found.affordable(parse_duration(limit, "--ladder"))
            if choice is None:
                raise too_expensive(sweep.spec.name, found.front[0].contender, limit.strip(), "begin the --ladder with")
            choice = dataclasses.replace(choice, name=f"best under {limit.strip()}")
            path = rung_path(arguments.write, sweep.spec.name, limit)
            if path in [other for other, _ in chosen]:
                raise UsageError(f"--ladder {arguments.ladder} would write {path} twice; give each limit once")
            chosen.append((path, choice))
    elif arguments.write is not None:
        chosen.append((arguments.write, found.chosen))
    written = []
    for path, choice in chosen:
        command = commands.command("train", "--config", str(path))
        config = found_config(sweep, choice, path)
        written.append((config.content, Written(path=path, choice=choice, changes=config.changes, command=command)))
    with contextlib.ExitStack() as all_or_none:
        for content, one in written:
            all_or_none.enter_context(writing(one.path))
            unfinished = all_or_none.enter_context(files.replacing(one.path))
            unfinished.write_text(content, encoding="utf-8")
    return [one for _, one in written]

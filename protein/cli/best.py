"""`protein best`: what a sweep recommends, as text, JSON or TOML, and the commands that train it."""

import shlex
from pathlib import Path
from typing import Any

from rich.text import Text

from protein.api import stores
from protein.api.recommended import Choice, duration_above, recommendation
from protein.cli.arguments import Best
from protein.cli.output import print_json, writing
from protein.cli.parse import Command
from protein.cli.train import stored_values
from protein.config.layers import unflatten
from protein.config.write import to_toml
from protein.errors import UsageError
from protein.space import Space
from protein.sweep.job import runs_trainer
from protein.types import SweepRecord
from protein.view import data, tables


def run(command: Command) -> int:
    arguments: Best = command.arguments
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        found = recommendation(sweep, store.trials(sweep.id), arguments.under)
    trains = runs_trainer(sweep.spec.config)
    if arguments.toml is not None:
        if not trains:
            raise UsageError(f"sweep '{sweep.spec.name}' ran {sweep.spec.env}, which has no config file; use --json")
        _write(sweep, found.chosen, arguments.toml)
    chosen = found.chosen
    rows = [choice for choice in (found.best, found.under, found.knee) if choice is not None]
    commands = {
        "best at all": _train(sweep, arguments.store, None),
        "knee": _train(sweep, arguments.store, duration_above(found.knee.contender.expected_cost_seconds)),
    }
    if found.under is not None:
        commands[found.under.name] = _train(sweep, arguments.store, arguments.under)
    if not trains:
        commands = {}
    if arguments.json:
        record = {**data.trial(chosen.trial, curve=False), **_json(chosen), "command": commands.get(chosen.name)}
        answers = [{"params": dict(row.trial.params), **_json(row), "command": commands.get(row.name)} for row in rows]
        print_json({"sweep": sweep.spec.name, **record, "answers": answers})
        return 0
    console = tables.make_console()
    head = f"trial {chosen.trial.number} of sweep '{sweep.spec.name}', {chosen.name}: expected {chosen.phrase()}"
    console.print(Text(head, style="bold"), soft_wrap=True)
    console.print(f"tried as: {chosen.trial.origin}\n", soft_wrap=True)
    names = [choice.name for choice in rows]
    console.print(tables.answers(names, [choice.contender for choice in rows], [c.trials for c in rows], console.width))
    console.print(f"\ntrue scores as expected by the {chosen.contender.basis}", soft_wrap=True)
    if (note := found.luck()) is not None:
        console.print(note, soft_wrap=True)
    console.print()
    console.print(tables.params(chosen.trial.params))
    if arguments.toml is not None:
        console.print(f"\nconfig: {arguments.toml}", soft_wrap=True)
    for name in sorted(commands, key=lambda name: name == chosen.name):  # what was asked for stands last
        console.print(f"\n{name}, train it with\n  {commands[name]}", soft_wrap=True)
    return 0


def _train(sweep: SweepRecord, store: str | None, under: str | None) -> str:
    words = ["protein", "train", "--env", sweep.spec.env, "--from", sweep.spec.name]
    words += [] if under is None else ["--under", under]
    return shlex.join(words + stores.store_words(store))


def _json(choice: Choice) -> dict[str, Any]:
    """What is expected of a recommended config, and how that is known."""
    contender = choice.contender
    return {
        "answer": choice.name,
        "expected_score": data.estimate(contender.score),
        "expected_cost_seconds": contender.expected_cost_seconds,
        "trials": [trial.number for trial in choice.trials],
        "measured": list(contender.measured),
        "basis": contender.basis,
    }


def _write(sweep: SweepRecord, choice: Choice, path: Path) -> None:
    trial = choice.trial
    origin = (
        f"trial {trial.number} of sweep '{sweep.spec.name}', {choice.name}: expected {choice.phrase()}"
        f" on {trial.provenance.machine}"
    )
    content = to_toml(unflatten(stored_values(sweep, trial)), Space.from_dict(sweep.spec.space), origin)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

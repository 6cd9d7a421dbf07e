"""`protein best`: a sweep's best config, as text, JSON or TOML, and the command that trains it."""

import shlex
from pathlib import Path

from rich.text import Text

from protein.cli import stores
from protein.cli.arguments import Best
from protein.cli.output import print_json, writing
from protein.cli.parse import Command
from protein.cli.train import stored_values
from protein.config.layers import unflatten
from protein.config.write import to_toml
from protein.space import Space
from protein.types import SweepRecord, TrialRecord
from protein.view import data, tables, text


def run(command: Command) -> int:
    arguments: Best = command.arguments
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        trial = stores.choose(store.trials(sweep.id), sweep.spec.name, arguments.under)
    if arguments.toml is not None:
        _write(sweep, trial, arguments.toml)
    words = ["protein", "train", "--env", sweep.spec.env, "--from", sweep.spec.name]
    words += [] if arguments.under is None else ["--under", arguments.under]
    train = shlex.join(words + stores.store_words(arguments.store))
    if arguments.json:
        print_json({"sweep": sweep.spec.name, **data.trial(trial, curve=False), "command": train})
        return 0
    console = tables.make_console()
    head = f"trial {trial.number} of sweep '{sweep.spec.name}': score {text.score(trial.score)}"
    console.print(Text(f"{head} in {text.seconds(trial.cost_seconds)}", style="bold"), soft_wrap=True)
    console.print(f"{trial.origin}{_predicted(trial)}\n", soft_wrap=True)
    console.print(tables.params(trial.params))
    if arguments.toml is not None:
        console.print(f"\nconfig: {arguments.toml}", soft_wrap=True)
    console.print(f"\ntrain it with\n  {train}", soft_wrap=True)
    return 0


def _predicted(trial: TrialRecord) -> str:
    if trial.predicted_score is None or trial.predicted_cost_seconds is None:
        return ""
    cost = text.seconds(trial.predicted_cost_seconds.value)
    return f" (predicted: score {text.score(trial.predicted_score.value)} in {cost})"


def _write(sweep: SweepRecord, trial: TrialRecord, path: Path) -> None:
    origin = (
        f"trial {trial.number} of sweep '{sweep.spec.name}': score {text.score(trial.score)}"
        f" in {text.seconds(trial.cost_seconds)} on {trial.provenance.machine}"
    )
    content = to_toml(unflatten(stored_values(sweep, trial)), Space.from_dict(sweep.spec.space), origin)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

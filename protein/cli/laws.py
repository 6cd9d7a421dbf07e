"""`protein laws`: each parameter's best value as a function of cost, and the config to try at a larger cost."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from protein import files
from protein.api import stores
from protein.api.recommended import base_layers
from protein.cli.arguments import LawsArguments
from protein.cli.output import print_json, working, writing
from protein.cli.parse import Command
from protein.columns import cell
from protein.config.layers import flag, flatten
from protein.config.write import to_toml
from protein.engine.results import MEANING, Matters
from protein.errors import UsageError
from protein.space import Categorical, Space
from protein.types import SweepRecord, TrialRecord, runs_trainer
from protein.units import format_duration, parse_duration
from protein.view import commands, tables, text
from protein.view import laws as views

if TYPE_CHECKING:
    from protein.engine.laws import Laws, Plan

MAX_WIDTH = 110
_FAR = 30.0  # times the largest trial's cost, from where on a plan says how far that is from all trials


def run(command: Command) -> int:
    from protein.api.answers import Answers  # late: it loads the engine

    arguments: LawsArguments = command.arguments
    at = None if arguments.at is None else parse_duration(arguments.at, "--at")
    if arguments.write is not None and at is None:
        raise UsageError(
            f"--write {arguments.write} needs the cost that the config is for; give it with --at, as in 8h"
        )
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        trains = runs_trainer(sweep.spec.config)
        if arguments.write is not None and not trains:
            raise UsageError(f"sweep '{sweep.spec.name}' ran {sweep.spec.env}, which has no config file; use --json")
        trials = store.trials(sweep.id, curves=False, last_points=True)
        answers = Answers(store, sweep)
        with working("computing the laws"):
            laws, known = answers.laws(), answers.matters()
    if at is not None and at < laws.cheapest_seconds:
        least = format_duration(_rounded_up(laws.cheapest_seconds))
        raise UsageError(
            f"--at {arguments.at} is below {text.seconds(laws.cheapest_seconds)}, where the laws of sweep"
            f" '{sweep.spec.name}' begin; give --at {least} or more"
        )
    plan = None if at is None else laws.plan(at)
    seconds = views.TEN_TIMES * laws.largest_seconds if at is None else at
    train = None if plan is None or not trains else _training_command(sweep, plan, arguments)
    if arguments.write is not None and plan is not None:
        _write(sweep, plan, arguments.write)
    if arguments.png is not None:
        title = f"{sweep.spec.name}: best values over cost, with 80 % intervals; dashed: the largest trial"
        with writing(arguments.png):
            views.write_picture(laws, trials, seconds, title, arguments.png)
    if arguments.json:
        _print_json(sweep, laws, known, seconds, plan, train)
    else:
        _print(sweep, laws, known, trials, seconds, plan, train, arguments)
    return 0


def _training_command(sweep: SweepRecord, plan: "Plan", arguments: LawsArguments) -> str:
    """Returns the command that trains a plan's config."""
    if arguments.write is not None:
        return commands.command("train", "--config", str(arguments.write))
    words = [word for name, value in plan.params.items() for word in (flag(name), str(cell(value)))]
    store = stores.store_words(arguments.store)
    return commands.command("train", "--env", sweep.spec.env, "--from", sweep.spec.name, *words, *store)


def _write(sweep: SweepRecord, plan: "Plan", path: Path) -> None:
    space = Space.from_dict(sweep.spec.space)
    name = space.cost_parameter
    values = {**flatten(sweep.spec.config), **plan.params}
    data = space.to_dict()
    for fields in data["parameters"]:
        if fields["name"] == name:  # the plan's value may be beyond the range, which has to hold it
            fields["high"] = max(fields["high"], values[fields["name"]])
    head = [
        f"laws of sweep '{sweep.spec.name}' at a cost of {text.seconds(plan.seconds)}, {_distance(plan)}",
        "This is a forecast: no trial was run at this cost.",
        f"train it with: {shlex.join([commands.NAME, 'train', '--config', str(path)])}",
        "Values that are not listed are those of the config files below this one.",
    ]
    content = to_toml(values, Space.from_dict(data), base_layers(sweep.spec), head, found="by the laws")
    with writing(path):
        files.replace_file(path, content.encode())


def _print_json(
    sweep: SweepRecord, laws: "Laws", known: Matters, seconds: float, plan: "Plan | None", train: str | None
) -> None:
    found: dict[str, Any] | None = None
    if plan is not None:
        found = {
            "seconds": plan.seconds,
            "times_largest": plan.times_largest,
            "params": dict(plan.params),
            "held": list(plan.held),
            "constrained": list(plan.constrained),
            "values": {name: views.plain_value(value) for name, value in plan.values.items()},
            "command": train,
        }
    print_json(
        {
            "sweep": sweep.spec.name,
            "cheapest_seconds": laws.cheapest_seconds,
            "largest_seconds": laws.largest_seconds,
            "laws": views.plain(laws, known, views.costs_between(laws, seconds)),
            "plan": found,
        }
    )


def _print(
    sweep: SweepRecord,
    laws: "Laws",
    known: Matters,
    trials: list[TrialRecord],
    seconds: float,
    plan: "Plan | None",
    train: str | None,
    arguments: LawsArguments,
) -> None:
    console = tables.make_console()
    console.print(views.table(laws, known, seconds, console.width))
    lines = views.strips(laws, seconds, min(console.width, MAX_WIDTH))
    if lines:
        console.print("\n" + "\n".join(lines), soft_wrap=True)
        console.print(views.LEGEND, soft_wrap=True)
    if not known.problem:
        console.print(f"\n{MEANING}", soft_wrap=True)
    told = sum(law.known for law in laws.laws)
    taught = sum(trial.state.finished and trial.score is not None and not trial.excluded for trial in trials)
    console.print(
        f"\nfrom {taught} trials that cost up to {text.seconds(laws.largest_seconds)}; the data tell the best value"
        f" of {told} of {len(laws.laws)} parameters",
        soft_wrap=True,
    )
    if arguments.png is not None:
        console.print(f"plot: {arguments.png}", soft_wrap=True)
    if plan is None:
        words = ["laws", sweep.spec.name, "--at", format_duration(_two_digits(seconds))]
        line = commands.command(*words, *stores.store_words(arguments.store))
        console.print(f"the config to try at a larger cost:\n  {line}", soft_wrap=True)
        return
    _print_plan(console, laws, plan, train, arguments)


def _print_plan(console: Console, laws: "Laws", plan: "Plan", train: str | None, arguments: LawsArguments) -> None:
    from protein.engine.laws import CHECKED_TIMES  # late: it loads the engine

    console.print(f"\nconfig to try at {arguments.at}, {_distance(plan)}:\n", soft_wrap=True)
    console.print(tables.params(plan.params))
    steps = laws.space.cost_parameter
    console.print("\nit is the recommended config (see protein best), moved along the laws", soft_wrap=True)
    kept = [
        law.name
        for law in laws.laws
        if law.name in plan.params and not law.followed and law.name not in plan.constrained
    ]
    if kept:
        console.print(f"the same as in the recommended config: {', '.join(kept)}", soft_wrap=True)
    if plan.held:
        limit = text.seconds(CHECKED_TIMES * laws.largest_seconds)
        console.print(
            f"held at the value for {limit}, {CHECKED_TIMES:g} times the cost of the largest trial, because the data do"
            f" not tell the trend: {', '.join(plan.held)}",
            soft_wrap=True,
        )
    if plan.constrained:
        console.print(f"changed so that the constraints hold: {', '.join(plan.constrained)}", soft_wrap=True)
    if steps is not None and plan.values[steps].at_end == "beyond":
        console.print(f"{steps} is beyond the range that the sweep has searched", soft_wrap=True)
    ends = [
        name
        for name, value in plan.values.items()
        if value.at_end in ("low", "high") and value.known and not isinstance(laws.space.parameter(name), Categorical)
    ]
    if ends:
        console.print(f"at the end of the range, which may be too narrow: {', '.join(ends)}", soft_wrap=True)
    if plan.times_largest > _FAR:
        console.print(
            "no trial comes near this cost; a sweep at a cost in between would make the laws safer", soft_wrap=True
        )
    if arguments.write is not None:
        console.print(f"config: {arguments.write}", soft_wrap=True)
    if train is not None:
        console.print(f"\ntrain it with\n  {train}", soft_wrap=True)


def _distance(plan: "Plan") -> str:
    if plan.times_largest <= 1.0:
        return "within the trials' range of cost"
    times = float(f"{plan.times_largest:.3g}")
    shown = f"{times:,.0f}" if times >= 100.0 else f"{times:g}"  # 1,690 and not 1.69e+03
    return f"{shown} times the cost of the largest trial"


def _two_digits(seconds: float) -> float:
    return float(f"{seconds:.2g}")


def _rounded_up(seconds: float) -> float:
    """Returns a duration of two digits that is at least as long."""
    shown = _two_digits(seconds)
    return shown if shown >= seconds else _two_digits(1.05 * seconds)

"""`protein sweep`: creates a sweep or resumes the one of this name, runs it, and says what came of it."""

import contextlib
import dataclasses
import functools
import json
import re
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from protein import envs_c
from protein.api import source as priors
from protein.api import stores
from protein.api.recommended import recommendation
from protein.cli import INTERRUPTED_CODE
from protein.cli.arguments import Sweep
from protein.cli.devices import require_device
from protein.cli.output import writing
from protein.cli.parse import Command
from protein.cli.signals import caught
from protein.config.layers import Layers, display_path, flatten
from protein.config.resolve import file_name, find_env, load, make_space, start_params
from protein.config.settings import SweepConfig
from protein.engine import pareto
from protein.engine.settings import EngineSettings
from protein.errors import ConfigError, UsageError
from protein.ports import Store, SweepStatus
from protein.space import Space
from protein.sweep import provenance
from protein.sweep import source as prior
from protein.sweep.backends.local import LocalBackend
from protein.sweep.job import runs_trainer
from protein.sweep.loop import LoopSettings, run_sweep
from protein.sweep.methods import make_designer
from protein.trainer import environments
from protein.trainer.config import check_batch
from protein.types import SweepRecord, SweepSpec, TrialRecord
from protein.units import format_duration, parse_duration, parse_size
from protein.view import data, tables, text
from protein.view.plots import write_pareto
from protein.view.scatter import LEGEND, scatter
from protein.view.terminal import make_watcher

NAME_LENGTH = 64
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_LENGTH - 1}}}")
_PLOT_HEIGHT = 16
_MIN_WALL_SECONDS = 1.0  # the engine's share of less is noise


def run(command: Command) -> int:
    arguments: Sweep = command.arguments
    budget = None if arguments.max_cost is None else parse_duration(arguments.max_cost, "--max-cost")
    spec, settings = _define(arguments, command.values)
    space = Space.from_dict(spec.space)
    start = {name: value for name, value in flatten(spec.config).items() if name in space.names}
    design = functools.partial(
        make_designer,
        spec.method,
        space,
        start,
        seed=spec.seed,
        settings=EngineSettings(early_stopping=settings.early_stopping),
    )
    designer = design()  # before anything is created: a mistake leaves nothing behind
    _check_cap(arguments, budget, settings.max_trial_cost_seconds)
    console = tables.make_console()
    stop = threading.Event()
    with (
        _resumable(console, command),
        caught(stop),
        stores.opened(arguments.store, create=arguments.prior is None) as store,
    ):
        spec = dataclasses.replace(spec, warm_start=priors.of_sweep(store, spec.name, arguments.prior, space))
        if spec.warm_start:
            designer = design(warm_start=prior.observations(spec.warm_start))
        sweep, created = _create_or_resume(store, spec, budget)
        budget = sweep.max_cost_seconds if budget is None else budget
        trials = store.trials(sweep.id)
        _announce(console, sweep, trials, space, budget, created=created)
        with make_watcher(console) as watcher:
            status = run_sweep(
                sweep,
                designer=designer,
                store=store,
                backend=LocalBackend(),
                settings=LoopSettings(
                    directory=stores.artifact_directory(stores.url(arguments.store), spec.name),
                    workers=settings.workers,
                    max_cost_seconds=budget,
                    max_trial_seconds=settings.max_trial_cost_seconds,
                    max_trials=arguments.max_trials,
                    max_memory_bytes=settings.max_trial_memory_bytes,
                ),
                listener=watcher,
                stop=stop,
            )
    _conclude(console, status, arguments)
    if stop.is_set():
        _print_resume(console, command)
        return INTERRUPTED_CODE
    if budget is not None and status.spent_seconds >= budget and len(status.trials) == len(trials):
        _print_larger(console, budget, status.spent_seconds, command)
    return 0


@contextlib.contextmanager
def _resumable(console: Console, command: Command) -> Iterator[None]:
    """Says how to go on when a second Ctrl-C has killed the sweep at once."""
    try:
        yield
    except KeyboardInterrupt:
        _print_resume(console, command)
        raise


def _print_resume(console: Console, command: Command) -> None:
    console.print(f"\ninterrupted; go on with\n  {shlex.join(['protein', *command.words])}", soft_wrap=True)


def _define(arguments: Sweep, values: Mapping[str, Any]) -> tuple[SweepSpec, SweepConfig]:
    """Returns what defines the sweep, and how it is run here and now."""
    env = find_env(arguments.environment, arguments.config, envs_c.names())
    layers = load(env, config_file=arguments.config, flags=values)
    config = layers.run_config()
    check_batch(config, environments.spec(env).agents_per_env)
    require_device(config.train.device)
    settings = _settings(arguments, layers)
    space = make_space(layers)
    name = file_name(env)[:NAME_LENGTH] if arguments.name is None else arguments.name
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name '{name}' must be 1 to {NAME_LENGTH} letters, digits, dots, dashes or underscores; choose another"
        )
    assert set(start_params(layers)) == set(space.names)
    nested = config.to_dict()
    spec = SweepSpec(
        name=name,
        env=env,
        method=settings.method,
        seed=settings.seed,
        space=space.to_dict(),
        config=nested,
        provenance=provenance.collect(nested),
    )
    return spec, settings


def _settings(arguments: Sweep, layers: Layers) -> SweepConfig:
    """Returns the config files' sweep settings with those of the flags put in."""
    changes: dict[str, Any] = {
        "workers": arguments.workers,
        "method": arguments.method,
        "seed": arguments.seed,
        "early_stopping": arguments.early_stopping,
        "max_trial_cost_seconds": arguments.max_trial_cost
        and parse_duration(arguments.max_trial_cost, "--max-trial-cost"),
        "max_trial_memory_bytes": arguments.max_trial_memory
        and parse_size(arguments.max_trial_memory, "--max-trial-memory"),
    }
    try:
        return dataclasses.replace(layers.sweep, **{key: value for key, value in changes.items() if value is not None})
    except ConfigError as error:
        raise UsageError(f"--{error}") from error


def _check_cap(arguments: Sweep, budget: float | None, cap: float | None) -> None:
    if arguments.max_trials is not None and arguments.max_trials < 1:
        raise UsageError(f"--max-trials {arguments.max_trials} is below the limit of 1; use 1 or more")
    if arguments.max_trial_cost is not None and budget is not None and cap is not None and budget < cap:
        raise UsageError(
            f"--max-cost {arguments.max_cost} is smaller than one trial may cost, --max-trial-cost"
            f" {arguments.max_trial_cost}; raise the budget or lower the cap"
        )


def _create_or_resume(store: Store, spec: SweepSpec, budget: float | None) -> tuple[SweepRecord, bool]:
    """Returns the sweep as it is stored, and whether it is new. Raises `UsageError` when the stored one differs."""
    stored = store.find_sweep(spec.name)
    if stored is None:
        return store.create_sweep(spec, budget), True
    if not runs_trainer(stored.spec.config):
        raise UsageError(
            f"sweep '{spec.name}' ran {stored.spec.env}, a function of somebody's own, and goes on where that is"
            " called; choose another --name"
        )
    differences = _differences(stored.spec, spec)
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise UsageError(
            f"sweep '{spec.name}' exists with {', '.join(differences[:3])}{more}; choose another --name, or leave those"
            " as they were"
        )
    return stored, False


def _differences(stored: SweepSpec, wanted: SweepSpec) -> list[str]:
    """Returns what differs between two definitions of a sweep, each as `name = stored (now wanted)`."""
    found = []
    for name in ("env", "method", "seed"):
        before, after = getattr(stored, name), getattr(wanted, name)
        if before != after:
            found.append(f"{name} = {before} (now {after})")
    old, new = _by_name(stored), _by_name(wanted)
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return found + [f"{name} = {old.get(name, 'unset')} (now {new.get(name, 'unset')})" for name in changed]


def _by_name(spec: SweepSpec) -> dict[str, str]:
    """Returns every value of a sweep's run config, and its range if it has one, as text that can be compared."""
    spec = dataclasses.replace(spec, **json.loads(json.dumps({"space": spec.space, "config": spec.config})))
    found = {name: str(value) for name, value in flatten(spec.config).items()}
    for parameter in Space.from_dict(spec.space).parameters:
        fields = dataclasses.asdict(parameter)
        swept = fields["choices"] if "choices" in fields else [fields["low"], fields["high"], fields["scale"]]
        found[parameter.name] += f" swept over {' '.join(map(str, swept))}"
    found["constraints"] = "; ".join(spec.space["constraints"]) or "none"
    found["cost_parameter"] = str(spec.space["cost_parameter"])
    return found


def _announce(
    console: Console,
    sweep: SweepRecord,
    trials: Sequence[TrialRecord],
    space: Space,
    budget: float | None,
    *,
    created: bool,
) -> None:
    limit = "no budget set" if budget is None else f"budget {text.seconds(budget)}"
    if created:
        line = f"sweep '{sweep.spec.name}': values swept: {len(space.names)}, {limit}"
        if sweep.spec.warm_start:
            source = sweep.spec.warm_start
            line += f"; begins from {len(source['trials'])} trials of sweep '{source['sweep']}'"
    else:
        spent = text.seconds(data.spent_seconds(trials))
        line = f"sweep '{sweep.spec.name}' goes on, trials so far: {len(trials)}, {spent} spent, {limit}"
    console.print(Text(line), soft_wrap=True)


def _print_larger(console: Console, budget: float, spent_seconds: float, command: Command) -> None:
    """Says how to go on with a sweep that had nothing left to spend."""
    words = [*_without_max_cost(command.words), "--max-cost", format_duration(2 * budget)]
    console.print(
        f"\nthe budget of {text.seconds(budget)} is spent ({text.seconds(spent_seconds)}); go on with a larger one:\n"
        f"  {shlex.join(['protein', *words])}",
        soft_wrap=True,
    )


def _without_max_cost(words: Sequence[str]) -> list[str]:
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        given = word.replace("_", "-")
        if given == "--max-cost":
            next(rest, None)
        elif not given.startswith("--max-cost="):
            kept.append(word)
    return kept


def _conclude(console: Console, status: SweepStatus, arguments: Sweep) -> None:
    """Prints the summary, draws the front, and prints the command that trains the best config."""
    spec, trials = status.sweep.spec, status.trials
    of = data.counts(trials)
    counted = ", ".join(of.ends()) or "none finished"
    ended = f"; {status.ended}" if status.ended and not status.stopping else ""  # of Ctrl-C the last line tells
    line = f"\nsweep '{spec.name}': {counted}; {text.seconds(status.spent_seconds)} spent{ended}"
    console.print(Text(line, style="bold"), soft_wrap=True)
    if status.elapsed_seconds >= _MIN_WALL_SECONDS and of.finished:
        share = status.engine_seconds / status.elapsed_seconds
        console.print(
            f"the engine took {text.seconds(status.engine_seconds)} of {text.seconds(status.elapsed_seconds)}"
            f" of wall clock ({share:.1%})"
        )
    front = pareto.front(trials)
    if not front:
        console.print("no trial was trained to its end, so there is no front yet")
        return
    width = min(console.width, 110)
    console.print("\n" + "\n".join(scatter(trials, width - 1, _PLOT_HEIGHT)), soft_wrap=True)
    console.print(text.shorten(LEGEND, width) + "\n", soft_wrap=True)
    console.print(tables.front(front, pareto.knee(trials), console.width))
    path = stores.artifact_directory(stores.url(arguments.store), spec.name) / "pareto.png"
    title = f"{spec.name}: {of.finished} trials, {text.seconds(status.spent_seconds)} of training"
    try:
        with writing(path):
            write_pareto(trials, title, path)
        console.print(f"\nplot: {display_path(path)}", soft_wrap=True)
    except UsageError as error:  # the results are in the store; a picture is no reason to fail
        console.print(f"\nno plot: {error}", soft_wrap=True)
    train = ["protein", "train", "--env", spec.env, "--from", spec.name, *stores.store_words(arguments.store)]
    found = recommendation(status.sweep, trials)
    best = found.best
    if (note := found.luck()) is not None:
        console.print(note, soft_wrap=True)
    console.print(
        f"train the best config (trial {best.trial.number}, expected {best.phrase()}):\n  {shlex.join(train)}",
        soft_wrap=True,
    )

"""`protein train`: one training run, from config files or from the best trial of a sweep."""

import itertools
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from protein import envs_c
from protein.api import stores
from protein.api.recommended import recommendation
from protein.cli import INTERRUPTED_CODE
from protein.cli.arguments import Train
from protein.cli.devices import require_device
from protein.cli.output import require_file, writing
from protein.cli.parse import Command
from protein.cli.signals import caught
from protein.config.layers import flatten
from protein.config.resolve import file_name, find_env, load
from protein.errors import UsageError
from protein.sweep.job import runs_trainer
from protein.trainer import environments
from protein.trainer.config import RunConfig, check_batch, check_processes
from protein.trainer.events import Event, EventSink, JsonLines
from protein.trainer.launch import check_launch, launch
from protein.types import SweepRecord, TrialRecord
from protein.view import tables, text
from protein.view.training import TrainingState, make_watcher

RUNS = Path("runs") / "train"
MEASUREMENTS = "measurements.jsonl"


def run(command: Command) -> int:
    arguments: Train = command.arguments
    console = tables.make_console()
    config = _config(arguments, command.values, console)
    watched = arguments.profile or arguments.trace is not None
    check_launch(arguments.nproc, watched=watched)
    check_processes(config, arguments.nproc)
    check_batch(config, environments.spec(config.env.name).agents_per_env, arguments.nproc)
    require_device(config.train.device)
    copy = arguments.checkpoint
    for flag, path in (("--checkpoint", copy), ("--trace", arguments.trace)):
        if path is not None:  # found out now, not after an hour of training
            require_file(flag, path)
    with writing(RUNS):
        directory = _new_directory(file_name(config.env.name))
    stop = threading.Event()
    console.print(
        f"training {config.env.name} for {config.train.total_timesteps:,} steps into {directory}", soft_wrap=True
    )
    state = TrainingState(
        env=config.env.name,
        total_steps=config.train.total_timesteps,
        max_seconds=config.train.max_seconds,
        evaluation_episodes=config.eval.episodes,
    )
    with (
        caught(stop),
        make_watcher(console, state, stop) as watcher,
        _Recorder(directory / MEASUREMENTS, watcher) as report,
    ):
        if arguments.nproc > 1:
            result = launch(config, arguments.nproc, directory=directory, report=report, stop=stop)
        else:
            from protein.trainer.machine.precision import (
                resolve_device,  # torch takes seconds to import: what is wrong is said before
            )
            from protein.trainer.machine.profile import Profiler
            from protein.trainer.machine.stopwatch import Stopwatch
            from protein.trainer.run import run as run_training

            device, traced = resolve_device(config.train.device), arguments.trace is not None
            stopwatch = Stopwatch(device, exact=watched, trace=traced)
            profiler = Profiler(stopwatch, report)
            result = run_training(config, directory=directory, report=profiler, stop=stop, stopwatch=stopwatch)
    assert result.checkpoint is not None
    where = result.checkpoint
    if copy is not None:
        from protein.trainer.machine import checkpoint as checkpoints

        checkpoints.replace_file(copy, where.read_bytes())
        where = copy
    if report.error is not None:
        console.print(f"{directory / MEASUREMENTS} is incomplete: {report.error.strerror}", soft_wrap=True)
    if arguments.profile:
        console.print("\n".join(profiler.profile().lines()), soft_wrap=True)
    if arguments.trace is not None:
        with writing(arguments.trace):
            stopwatch.write_trace(arguments.trace)
        console.print(
            f"trace: {arguments.trace}; open it at https://ui.perfetto.dev or chrome://tracing", soft_wrap=True
        )
    trained = f"{result.steps:,} steps in {text.seconds(result.elapsed_seconds)} of training"
    if result.interrupted:
        console.print(f"interrupted after {trained}; checkpoint: {where}", soft_wrap=True)
        return INTERRUPTED_CODE
    console.print(f"{trained}; checkpoint: {where}", soft_wrap=True)
    spread, episodes = result.metrics.get("score_std"), result.metrics.get("evaluation_episodes", 0.0)
    console.print(f"score {text.score(result.score)} (deviation {text.score(spread)}, {episodes:.0f} new episodes)")
    console.print(f"play more episodes with\n  protein eval --checkpoint {where}", soft_wrap=True)
    return 0


def _config(arguments: Train, values: Mapping[str, Any], console: Console) -> RunConfig:
    known = envs_c.names()
    if arguments.from_ is None:
        if arguments.under is not None:
            raise UsageError(f"--under {arguments.under} chooses among a sweep's trials; name the sweep with --from")
        env = find_env(arguments.environment, arguments.config, known)
        return load(env, config_file=arguments.config, flags=values).run_config()
    if arguments.config is not None:
        raise UsageError(
            f"--config {arguments.config} would be overruled by --from {arguments.from_}, which brings a whole config;"
            " drop one of the two, or override single values with their flags"
        )
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.from_)
        if not runs_trainer(sweep.spec.config):
            raise UsageError(
                f"sweep '{sweep.spec.name}' ran {sweep.spec.env}, a function of somebody's own, which protein train"
                f" does not know; see its params with protein best {sweep.spec.name}"
            )
        choice = recommendation(sweep, store.trials(sweep.id), arguments.under).chosen
    if arguments.environment not in (None, sweep.spec.env):
        raise UsageError(
            f"--env {arguments.environment} contradicts --from {sweep.spec.name}, a sweep of '{sweep.spec.env}';"
            " drop --env or name another sweep"
        )
    env = find_env(sweep.spec.env, None, known)
    trial = choice.trial
    console.print(
        f"trial {trial.number} of sweep '{sweep.spec.name}', {choice.name}: expected {choice.phrase()}", soft_wrap=True
    )
    source = f"trial {trial.number} of sweep '{sweep.spec.name}'"
    return load(env, stored=stored_values(sweep, trial), stored_source=source, flags=values).run_config()


def stored_values(sweep: SweepRecord, trial: TrialRecord) -> dict[str, Any]:
    """Returns the run config that a stored trial had, by dotted name; its seed is the trial's own."""
    return {**flatten(sweep.spec.config), **trial.params, "train.seed": trial.seed}


def _new_directory(env: str) -> Path:
    """Returns a new folder, `runs/train/<env>-<date>`, made now."""
    stem = f"{env}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in itertools.count(1):
        path = RUNS / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")


class _Recorder:
    """Hands a run's events on, and writes them down beside its checkpoint, one JSON object a line.

    What cannot be written any more, on a disk that has filled up, does not end the training: `error` says so then.
    """

    def __init__(self, path: Path, report: EventSink) -> None:
        self.error: OSError | None = None
        self._report = report
        with writing(path):
            self._stream = path.open("w", encoding="utf-8")
        self._write = JsonLines(self._stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        try:
            self._stream.close()
        except OSError as error:
            self.error = error

    def __call__(self, event: Event) -> None:
        if self.error is None:
            try:
                self._write(event)
            except OSError as error:
                self.error = error
        self._report(event)

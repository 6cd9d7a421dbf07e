"""`protein train`: one training run, in this process, from config files or from the best trial of a sweep."""

import itertools
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

import envs_c
from protein.cli import INTERRUPTED_CODE, stores
from protein.cli.arguments import Train
from protein.cli.output import writing
from protein.cli.parse import Command
from protein.cli.signals import caught
from protein.config.layers import flatten
from protein.config.resolve import find_env, load
from protein.errors import UsageError
from protein.types import SweepRecord, TrialRecord
from protein.view import tables, text
from trainer.config import RunConfig, check_batch

RUNS = Path("runs") / "train"


def run(command: Command) -> int:
    arguments: Train = command.arguments
    console = tables.make_console()
    config = _config(arguments, command.values, console)
    check_batch(config, envs_c.spec(config.env.name).agents_per_env)
    copy = arguments.checkpoint
    if copy is not None:  # found out now, not after an hour of training
        _require_file(copy)
    with writing(RUNS):
        directory = _new_directory(config.env.name)
    stop = threading.Event()
    console.print(
        f"training {config.env.name} for {config.train.total_timesteps:,} steps into {directory}", soft_wrap=True
    )
    with caught(stop), _Watcher(console, config) as watcher:
        from trainer import checkpoint as checkpoints  # torch takes seconds to import: what is wrong is said before
        from trainer.run import run as run_training

        result = run_training(config, directory=directory, report=watcher, stop=stop)
    assert result.checkpoint is not None
    where = result.checkpoint
    if copy is not None:
        checkpoints.replace_file(copy, where.read_bytes())
        where = copy
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
        trial = stores.choose(store.trials(sweep.id), sweep.spec.name, arguments.under)
    if arguments.environment not in (None, sweep.spec.env):
        raise UsageError(
            f"--env {arguments.environment} contradicts --from {sweep.spec.name}, a sweep of '{sweep.spec.env}';"
            " drop --env or name another sweep"
        )
    env = find_env(sweep.spec.env, None, known)
    console.print(
        f"trial {trial.number} of sweep '{sweep.spec.name}': score {text.score(trial.score)}"
        f" in {text.seconds(trial.cost_seconds)}",
        soft_wrap=True,
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


def _require_file(path: Path) -> None:
    """Raises `UsageError` when a file cannot be written at `path`; makes its folder."""
    if path.is_dir():
        raise UsageError(f"--checkpoint {path} is a folder; give the path of a file")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = path.parent / f".{path.name}.probe"
        probe.touch()
        probe.unlink()


class _Watcher:
    """Receives a run's events: one line that is redrawn on a terminal, a line each anywhere else."""

    def __init__(self, console: Console, config: RunConfig) -> None:
        self._console, self._total = console, config.train.total_timesteps
        self._progress: Progress | None = None
        self._task = TaskID(0)
        if console.is_terminal and not console.is_dumb_terminal:
            self._progress = Progress(
                BarColumn(bar_width=None),
                TextColumn("{task.percentage:>3.0f}%  {task.fields[figures]}"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
                expand=True,
            )

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
            self._task = self._progress.add_task("", total=self._total, figures="starting")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "start":
            line = f"{event['parameters']:,} parameters on {event['device']}, threads: {event['threads']}"
            self._console.print(f"{line}, ready in {text.seconds(event['startup_seconds'])}")
        elif event["event"] == "measurement":
            self._measure(event)

    def _measure(self, event: Mapping[str, Any]) -> None:
        steps, seconds = event["steps"], event["elapsed_seconds"]
        rate = steps / seconds if seconds > 0 else 0.0
        figures = f"score {text.score(event['score'])}  {text.count(round(rate))} steps/s"
        if self._progress is not None:
            done = steps >= self._total
            self._progress.update(self._task, completed=steps, figures="evaluating" if done else figures)
            return
        left = max(self._total - steps, 0) / rate if rate else None
        self._console.print(
            f"{steps:,} of {self._total:,} steps, {figures}, {text.seconds(seconds)}, {text.seconds(left)} left"
        )

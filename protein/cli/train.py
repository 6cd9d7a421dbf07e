"""`protein train`: one training run, from config files or from what a sweep recommends."""

import textwrap
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from protein import envs_c
from protein.api import stores
from protein.api.answers import Answers
from protein.api.recommended import config_changes, stored_values
from protein.api.training import (
    MEASUREMENTS,
    Interrupted,
    Recorder,
    Trained,
    check_data,
    interrupted_run,
    require_device,
    run_directory,
    train,
    with_checkpoints,
)
from protein.cli import INTERRUPTED_CODE
from protein.cli.arguments import TrainArguments
from protein.cli.output import require_file, writing
from protein.cli.parse import Command
from protein.cli.signals import caught
from protein.config.layers import flag, flatten
from protein.config.resolve import find_env, load, require_subject
from protein.errors import UsageError
from protein.spelling import counted
from protein.trainer.config import RunConfig
from protein.trainer.errors import DiskError
from protein.trainer.events import RunResult
from protein.trainer.kinds import PPO, Config, kind_of, kind_of_config
from protein.trainer.language.config import LanguageConfig
from protein.trainer.launch import check_launch
from protein.types import runs_trainer
from protein.view import commands, tables, text
from protein.view.text import MAX_TEXT, cleaned
from protein.view.training import TrainingState, make_watcher


def run(command: Command) -> int:
    arguments: TrainArguments = command.arguments
    console = tables.make_console()
    before = None if arguments.resume is None else interrupted_run(arguments.resume)
    if before is None:
        config = _config(arguments, command.values, console)
    else:
        config = _resumed_config(arguments, before, command.values)
    _check(arguments, config)
    with run_directory(config, before) as directory:
        trained, incomplete = _trained(arguments, config, directory, before, console)
    if incomplete:
        console.print(incomplete, soft_wrap=True)
    return _conclude(arguments, config, directory, trained, console)


def _trained(
    arguments: TrainArguments, config: Config, directory: Path, before: Interrupted | None, console: Console
) -> tuple[Trained, str]:
    """Returns what was trained, and in a line what of the measurements could not be kept; "": all were."""
    kind, steps = kind_of_config(config), config.total_steps
    resumed = f", from {kind.unit.removesuffix('s')} {before.steps:,} on" if before else ""
    console.print(f"training {config.subject} for {steps:,} {kind.unit} into {directory}{resumed}", soft_wrap=True)
    stop = threading.Event()
    state = TrainingState(
        env=config.subject,
        total_steps=steps,
        max_seconds=config.train.max_seconds,
        unit=kind.unit,
        held_out=kind.held_out,
        score_means=kind.score_means,
        evaluation=f"{config.eval.episodes:,} {kind.held_out}" if isinstance(config, RunConfig) else kind.held_out,
    )
    measurements = directory / MEASUREMENTS
    with (
        caught(stop),
        make_watcher(console, state, stop) as watcher,
        Recorder(measurements, watcher, resumed_steps=before.steps if before else None) as report,
    ):
        trained = train(
            config,
            directory=directory,
            report=report,
            stop=stop,
            num_processes=arguments.nproc,
            exact_times=arguments.profile or arguments.trace is not None,
            trace=arguments.trace is not None,
            resume=before.checkpoint if before else None,
        )
    return trained, "" if report.error is None else f"{measurements} is incomplete: {report.error.strerror}"


def _conclude(arguments: TrainArguments, config: Config, directory: Path, trained: Trained, console: Console) -> int:
    """Writes what was asked for beside the run's folder, says how the run ended, and returns the exit code."""
    kind, result = kind_of_config(config), trained.result
    where = result.checkpoint
    assert where is not None
    if arguments.checkpoint is not None:
        from protein.trainer.machine import checkpoint as checkpoints

        try:
            checkpoints.replace_file(arguments.checkpoint, where.read_bytes())
        except DiskError as error:
            raise UsageError(f"{error}; the run's own checkpoint is {where}") from error
        where = arguments.checkpoint
    if arguments.profile and trained.profile is not None:
        console.print("\n".join(trained.profile.lines()), soft_wrap=True)
    if arguments.trace is not None and trained.stopwatch is not None:
        with writing(arguments.trace):
            trained.stopwatch.write_trace(arguments.trace)
        console.print(
            f"trace: {arguments.trace}; open it at https://ui.perfetto.dev or chrome://tracing", soft_wrap=True
        )
    done = f"{result.steps:,} {kind.unit} in {text.seconds(result.elapsed_seconds)} of training"
    if result.interrupted:
        console.print(f"interrupted after {done}; checkpoint: {where}", soft_wrap=True)
        console.print(f"go on with\n  {commands.command('train', '--resume', str(directory))}", soft_wrap=True)
        return INTERRUPTED_CODE
    console.print(f"{done}; checkpoint: {where}", soft_wrap=True)
    for line in agents_end(result, where, config) if kind is PPO else language_end(result, where, config):
        console.print(line, soft_wrap=True, markup=False)
    return 0


def agents_end(result: RunResult, checkpoint: Path, config: Config) -> list[str]:
    """Returns what is said at the end of an agent's training: its score, and what to do next."""
    assert isinstance(config, RunConfig)
    trusted = ["--env", config.env.name] if ":" in config.env.name or config.policy.module else []
    spread, episodes = result.metrics.get("score_std"), result.metrics.get("evaluation_episodes", 0.0)
    played = counted(round(episodes), "new episode")
    return [
        f"score {text.score(result.score)} (standard deviation {text.score(spread)}, {played})",
        f"play more episodes with\n  {commands.command('eval', '--checkpoint', str(checkpoint), *trusted)}",
    ]


def language_end(result: RunResult, checkpoint: Path, config: Config) -> list[str]:
    """Returns what is said at the end of a language model's training: its score, its sample, and what to do next."""
    tokens = result.metrics.get("evaluation_tokens", 0.0)
    lines = [f"score {text.score(result.score)}: {text.loss(result.metrics)}, over {tokens:,.0f} tokens"]
    if "hellaswag" in result.metrics:
        lines.append(text.hellaswag(result.metrics["hellaswag"]))
    limited = isinstance(config, LanguageConfig) and config.train.schedule_end == "tokens"
    if limited and result.steps < config.total_steps and config.train.lr_schedule != "constant":
        share = result.steps / config.total_steps
        lines.append(
            f"--train.max-seconds {config.train.max_seconds:g} ended it after {share:.0%} of"
            " its tokens, before the step size had fallen; with --train.total-tokens"
            f" {_rounded(result.steps)} it fits the time, and most often scores higher"
        )
    if result.sample:
        lines.append(f"it writes\n{textwrap.indent(cleaned(result.sample, MAX_TEXT), '  ', lambda _: True)}")
    more = commands.command("eval", "--checkpoint", str(checkpoint), "--prompt", commands.PROMPT)
    return [*lines, f"let it write more with\n  {more}"]


def _rounded(number: int) -> int:
    """Returns a number with its first two digits, the others 0."""
    unit: int = 10 ** max(len(str(number)) - 2, 0)
    return max(number // unit, 1) * unit


def _check(arguments: TrainArguments, config: Config) -> None:
    """Finds, before anything is created, what the run would fail for. Raises `UsageError` or a `TrainerError`."""
    check_launch(arguments.nproc, watched=arguments.profile or arguments.trace is not None)
    config.check_processes(arguments.nproc)
    check_data(config, arguments.nproc, resumes=arguments.resume is not None)
    require_device(config.train.device)
    if isinstance(config, RunConfig) and config.selfplay.on:
        from protein.trainer.environments import spec  # these take a moment to import
        from protein.trainer.environments.sides import require_sides

        require_sides(config.env.name, spec(config.env.name, config.env.args))
    for name, path in (("--checkpoint", arguments.checkpoint), ("--trace", arguments.trace)):
        if path is not None:
            require_file(name, path)


def _resumed_config(arguments: TrainArguments, before: Interrupted, values: Mapping[str, Any]) -> Config:
    """Returns the config of a run that goes on: that of its checkpoint, changed by the flags that were given.

    Raises:
        UsageError: other flags name another config; or the run has finished.
    """
    for name, given in (("--from", arguments.from_), ("--config", arguments.config), ("--under", arguments.under)):
        if given is not None:
            raise UsageError(f"{name} {given} contradicts --resume, which takes the run's own config; drop one of them")
    kind = kind_of(before.config)
    own = kind.config.from_dict(before.config)
    env = own.subject
    if arguments.environment not in (None, env):
        raise UsageError(f"--env {arguments.environment} contradicts --resume {arguments.resume}, a run of '{env}'")
    source = f"the checkpoint {before.checkpoint}"
    layers = load(
        find_env(env, None, envs_c.names()), stored=flatten(before.config), stored_source=source, flags=values
    )
    config = layers.run_config()
    train = config.train
    if before.unmeasured and (config.total_steps, train.max_seconds) == (own.total_steps, own.train.max_seconds):
        return config  # what is left may be the evaluation alone
    if before.steps >= config.total_steps:
        raise UsageError(
            f"--resume {arguments.resume}: the run has made its {before.steps:,} {kind.unit}; to train on, give more"
            f" with {flag(kind.total_steps)}"
        )
    if train.max_seconds and before.elapsed_seconds >= train.max_seconds:
        raise UsageError(
            f"--resume {arguments.resume}: the run has reached its limit of {train.max_seconds:g} s; to train on, give"
            " more with --train.max-seconds"
        )
    return config


def _config(arguments: TrainArguments, values: Mapping[str, Any], console: Console) -> Config:
    """Returns the config of the run; prints which trial it comes from, if any."""
    if arguments.from_ is not None:
        return _recommended_config(arguments, arguments.from_, values, console)
    if arguments.under is not None:
        raise UsageError(f"--under {arguments.under} chooses among a sweep's trials; name the sweep with --from")
    env = find_env(arguments.environment, arguments.config, envs_c.names(), flags=values)
    layers = load(env, config_file=arguments.config, flags=values)
    config = with_checkpoints(layers, arguments.store, values, for_sweep=False).run_config()
    require_subject(arguments.environment, config)
    return config


def _recommended_config(
    arguments: TrainArguments, sweep_name: str, values: Mapping[str, Any], console: Console
) -> Config:
    if arguments.config is not None:
        raise UsageError(
            f"--config {arguments.config} would be overruled by --from {sweep_name}, which brings a whole config;"
            " drop one of the two, or override single values with their flags"
        )
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, sweep_name)
        if not runs_trainer(sweep.spec.config):
            raise UsageError(
                f"sweep '{sweep.spec.name}' ran {sweep.spec.env}, which protein train cannot run;"
                f" see its params with protein best {sweep.spec.name}"
            )
        choice = Answers(store, sweep).recommendation(arguments.under).chosen
    if arguments.environment not in (None, sweep.spec.env):
        raise UsageError(
            f"--env {arguments.environment} contradicts --from {sweep.spec.name}, a sweep of '{sweep.spec.env}';"
            " drop --env or name another sweep"
        )
    env = find_env(sweep.spec.env, None, envs_c.names())
    source = f"trial {choice.trial.number} of sweep '{sweep.spec.name}'"
    console.print(f"{source}, {choice.name}: expected {choice.phrase()}", soft_wrap=True)
    for change in config_changes(sweep.spec, choice, load(env)):
        console.print(f"note: {change}", soft_wrap=True)
    stored = stored_values(sweep.spec, choice.trial)
    layers = load(env, stored=stored, stored_source=source, flags=values)
    return with_checkpoints(layers, arguments.store, values, for_sweep=False).run_config()

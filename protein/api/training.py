"""One training run of `protein train`: what it would fail for, found before it begins, and the training itself."""

import dataclasses
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from protein.trainer import environments, kinds
from protein.trainer.config import RunConfig, check_batch
from protein.trainer.events import EventSink, RunResult
from protein.trainer.language.config import LanguageConfig
from protein.trainer.launch import launch

if TYPE_CHECKING:  # these load torch, which takes seconds
    from protein.trainer.machine.profile import Profile
    from protein.trainer.machine.stopwatch import Stopwatch

_SMALL_NETWORK = 10_000  # width times layers: some hundred million parameters, which any machine holds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A finished training run. Without a stopwatch where several processes trained, with a profile if asked for."""

    result: RunResult
    profile: "Profile | None"
    stopwatch: "Stopwatch | None"


def require_device(name: str) -> None:
    """Raises `trainer.errors.ConfigError` where the device does not exist; `auto` and `cpu` always do."""
    if name not in ("auto", "cpu"):
        from protein.trainer.machine.precision import resolve_device  # torch takes seconds to import

        resolve_device(name)


def check_data(config: kinds.Config, processes: int = 1, *, resumes: bool = False, device: str | None = None) -> None:
    """Finds, before anything is made, what a run would fail for because of what it learns from or begins with.

    Args:
        config: of the run.
        processes: that train together.
        resumes: it goes on from a checkpoint of its own, whatever it began with.
        device: where a network of the user's own is tried out; None: on that of the config.

    Raises:
        UsageError, trainer.errors.TrainerError: there is no such environment or text, it does not fit the config, or
            the user's network cannot be trained.
    """
    if isinstance(config, RunConfig):
        spec = environments.spec(config.env.name, config.env.args)
        has_memory = _has_memory(config, spec, device or config.train.device)
        check_batch(config, spec.agents_per_env, processes, has_memory=has_memory)
        return
    from protein.trainer.language.data.corpus import open_corpus  # loads numpy

    corpus, length = open_corpus(config.data.path), config.model.sequence_length
    corpus.train.require_rows(length, config.train.batch_tokens // length)
    corpus.validation.require_rows(length, 1)
    _check_memory(config, corpus.vocab_size)
    if config.eval.hellaswag:
        from protein.trainer.language.data.hellaswag import read_questions  # loads torch

        read_questions(Path(config.eval.hellaswag))
    if config.model.init_from and not resumes:
        from protein.trainer.language.trained import require_released  # loads torch

        require_released(config.model, corpus.tokenizer)


def _has_memory(config: RunConfig, spec: environments.EnvSpec, device: str) -> bool:
    """Returns whether a run's policy has a memory; a network of the user's own is tried out for that.

    Raises:
        trainer.errors.ConfigError: it cannot be trained.
    """
    if not config.policy.module:
        return config.policy.recurrence != "none"
    from protein.trainer.machine.precision import resolve_device  # loads torch
    from protein.trainer.ppo.trial import try_out

    return try_out(config, spec, resolve_device(device)).state_size > 0


def _check_memory(config: LanguageConfig, vocab_size: int) -> None:
    """Raises `trainer.errors.OutOfMemoryError` where the network alone is larger than what is free."""
    if config.model.width * config.model.num_layers < _SMALL_NETWORK:  # most are, and to see it loads torch
        return
    from protein.trainer.language.micro_batch import estimated_parameters, free_bytes, require_memory
    from protein.trainer.machine.precision import resolve_device

    free = free_bytes(resolve_device(config.train.device))
    require_memory(estimated_parameters(config.model, vocab_size), 0, config.model, free)


def train(
    config: kinds.Config,
    *,
    directory: Path,
    report: EventSink,
    stop: threading.Event,
    num_processes: int = 1,
    exact_times: bool = False,
    trace: bool = False,
    resume: Path | None = None,
) -> Trained:
    """Trains until the config's end, or until `stop` is set.

    Args:
        config: the run.
        directory: where its checkpoints go.
        report: is called with each event.
        stop: ends the run in order.
        num_processes: that train together.
        exact_times: wait for the device at each step, so that times are exact; slower on a GPU.
        trace: keep the last intervals for `Stopwatch.write_trace`.
        resume: a checkpoint of this run, which was interrupted.
    """
    if num_processes > 1:
        result = launch(config, num_processes, directory=directory, report=report, stop=stop, resume=resume)
        return Trained(result=result, profile=None, stopwatch=None)
    # Imported here because torch takes seconds: mistakes are reported before.
    from protein.trainer.machine.precision import resolve_device
    from protein.trainer.machine.profile import Profiler
    from protein.trainer.machine.stopwatch import Stopwatch
    from protein.trainer.run import run

    stopwatch = Stopwatch(resolve_device(config.train.device), exact=exact_times, trace=trace)
    profiler = Profiler(stopwatch, report)
    result = run(config, directory=directory, report=profiler, stop=stop, stopwatch=stopwatch, resume=resume)
    return Trained(result=result, profile=profiler.profile() if exact_times else None, stopwatch=stopwatch)

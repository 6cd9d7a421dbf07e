"""One training run from start to finish: `run` sets the machine up, trains, and reports errors.

The parts and the loop of each kind of run are in `trainer.ppo.training` and `trainer.language.training`.
"""

import contextlib
import math
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .config import RunConfig
from .errors import CheckpointError, ConfigError, LostProcessError, OutOfMemoryError, TrainerError, with_reason
from .events import ON_GPU, EventSink, RunResult, failed, ignore
from .kinds import LANGUAGE, Config, Kind, kind_of_config
from .machine import checkpoint as checkpoints
from .machine import pauses
from .machine.distributed import ALONE, World
from .machine.precision import (
    Arithmetic,
    Choice,
    found_devices,
    keep_freed_memory,
    prepare_backward_passes,
    resolve_device,
    resolve_threads,
)
from .machine.precision_table import precisions_of
from .machine.stopwatch import Stopwatch
from .progress import RunContext
from .users_code import back_here

if TYPE_CHECKING:
    from .language.training import LanguageTraining
    from .ppo.training import Training


def run(
    config: Config,
    *,
    directory: Path | None,
    report: EventSink,
    stop: threading.Event | None = None,
    resume: Path | None = None,
    continue_from: Path | None = None,
    started: float | None = None,
    stopwatch: Stopwatch | None = None,
    world: World = ALONE,
    speed: float = 1.0,
    gpu_given: bool = False,
) -> RunResult:
    """Trains, writes the checkpoint, evaluates. What is reported: see `protein.trainer.events`.

    Args:
        config: the run; validated here.
        directory: where the checkpoint goes, created if missing; None: no checkpoint.
        report: receives each event.
        stop: when set, the run writes its checkpoint and ends as interrupted.
        resume: a checkpoint to continue from; with the same config the result equals that of an uninterrupted run.
        continue_from: the checkpoint of a shorter run that this one goes on with. The steps count from that run's first
            one, the clock from here. The result is that of a longer run in one go (see `Progress.go_on`). With
            `resume`, too: an interrupted run that had gone on with that shorter run.
        started: `time.perf_counter()` at the process's start, for the start-up time; None: now.
        stopwatch: where the time of training is booked; None: a new one. Measurements have its sums.
        world: the processes that train together, all of which call this with the same config. All but the first report
            nothing, and their results have no score.
        speed: how fast the run's clock goes, for one second of this machine. On a machine twice as fast as the
            reference machine it is 2: the costs, limits and checkpoints of both are then in the same seconds.
        gpu_given: somebody has given this run a GPU: with `train.device` "auto" it takes that without a measurement.

    Raises:
        TrainerError: the run failed; the event `failed` has been reported.
    """
    training: Training | LanguageTraining | None = None
    kind = kind_of_config(config)
    started = time.perf_counter() if started is None else started
    # The user's environments may go to another working directory while they are made.
    directory, resume, continue_from = (path and path.absolute() for path in (directory, resume, continue_from))
    if not world.is_first:
        report = ignore
    try:
        config.validate()
        _check_speed(speed)
        config.check_processes(world.size)
        keep_freed_memory()
        threads = max(1, resolve_threads(config.train.threads) // world.local_size)
        before = _chosen_in(resume or continue_from)
        chosen = _device_of(config, threads, before.get("device"), world, gpu_given)
        device = world.device(chosen.device)
        precisions, products = None, config.train.precision
        if isinstance(config, RunConfig):
            precisions = precisions_of(config, device, processes=world.size, before=before.get("precisions"))
            products = precisions.products
        with back_here(), pauses.watched(), Arithmetic(device, threads, products) as arithmetic:
            prepare_backward_passes(device)
            stopwatch = stopwatch or Stopwatch(device)
            stopwatch.work_on(device)
            context = RunContext(
                device=device,
                threads=threads,
                arithmetic=arithmetic,
                directory=directory,
                report=report,
                stop=stop or threading.Event(),
                stopwatch=stopwatch,
                world=world,
                speed=speed,
                precisions=precisions,
                notes=chosen.notes,
                timings={} if chosen.seconds is None else {"device": chosen.seconds},
                metrics={ON_GPU: float(device.type != "cpu")} if len(found_devices()) > 1 else {},
            )
            training = _training_of(kind)(config, context)
            try:
                if continue_from is not None:
                    training.progress.go_on(continue_from, training.restore)
                if resume is not None:
                    training.progress.resume(resume, training.restore)
                return training.run(started)
            finally:
                training.close()
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, torch.AcceleratorError) and not isinstance(error, torch.OutOfMemoryError):
            lost = TrainerError(
                f"the device failed, train.device '{config.train.device}': {str(error).splitlines()[0]}: see what the"
                " system says of it, and resume the run there, or with train.device 'cpu'"
            )
            _fail(lost, training, report, world)
            raise lost from error
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocate memory" not in str(error):
            _fail(TrainerError(f"{type(error).__name__}: {error}"), training, report, world)
            raise
        failure: TrainerError = OutOfMemoryError(f"out of memory: lower {kind.memory}")
        _fail(failure, training, report, world)
        raise failure from error
    except LostProcessError as error:
        words = world.read_failure() if world.is_first else None
        failure = with_reason(**words) if words else error
        _fail(failure, training, report, world)
        raise failure from error
    except TrainerError as error:
        _fail(error, training, report, world)
        raise
    except Exception as error:  # a user's environment may raise anything; its traceback goes to stderr
        _fail(TrainerError(f"{type(error).__name__}: {error}"), training, report, world)
        raise


def _training_of(kind: Kind) -> Any:
    """Returns the class of a kind's training; the other kind's parts are not loaded."""
    if kind is LANGUAGE:
        from .language.training import LanguageTraining

        return LanguageTraining
    from .ppo.training import Training

    return Training


def _chosen_in(checkpoint: Path | None) -> Mapping[str, Any]:
    """Returns what was chosen for the run of a checkpoint; nothing where it cannot be read, as the run will say."""
    if checkpoint is not None:
        with contextlib.suppress(CheckpointError):
            return checkpoints.read(checkpoint, prefix="none/").details
    return {}


def _device_of(config: Config, threads: int, before: str | None, world: World, gpu_given: bool) -> Choice:
    """Returns the device of a run: of PPO, with "auto", the one that is faster."""
    if isinstance(config, RunConfig):
        from .ppo.device import choose

        return choose(config, threads=threads, before=before, gpu_given=gpu_given, processes=world.size)
    return Choice(device=resolve_device(config.train.device))


def _check_speed(speed: float) -> None:
    if not 0.0 < speed < math.inf:
        raise ConfigError(
            f"the speed of the clock must be above 0 and finite, got {speed:g}: 1 is that of this machine"
        )


def _fail(error: TrainerError, training: "Training | LanguageTraining | None", report: EventSink, world: World) -> None:
    """Reports that the run has failed, or tells the process that reports."""
    if not world.is_first and not isinstance(error, LostProcessError):
        world.tell_failure(error.reason, str(error))
    steps, seconds = (training.progress.steps, training.progress.spent_seconds) if training else (0, 0.0)
    report(failed(error.reason, str(error), steps, seconds))

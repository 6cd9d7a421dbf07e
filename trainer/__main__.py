"""The command line of one run: `python -m protein.trainer --config FILE --directory DIR [--train.learning-rate 1e-3
...]`.

It writes JSON lines to stdout and nothing else. What libraries print goes to stderr, and so does the table of
`--profile`. `--resume CHECKPOINT` goes on with an interrupted run, `--continue-from CHECKPOINT` with a finished one, to
more steps. `--trace FILE` writes the last moments of the run for ui.perfetto.dev or chrome://tracing. Exit codes: 0, 1
(the work failed), 2 (bad usage), 130 (interrupted by SIGINT or SIGTERM, after writing the checkpoint).

With `--nproc N` it trains with N processes of this machine. Under torchrun it is one of several processes, and the
first one reports. With `--speed S` the clock of costs and limits goes S times as fast as this machine's, and
`--gpu-given` makes `train.device` "auto" a GPU: see `protein.trainer.run.run`.
"""

import sys
import time

_STARTED = time.perf_counter()

if __name__ == "__main__":  # until `main` takes the signals, Ctrl-C ends the program, without a traceback
    sys.excepthook = lambda kind, *rest: None if kind is KeyboardInterrupt else sys.__excepthook__(kind, *rest)

import argparse  # noqa: E402
import contextlib  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import threading  # noqa: E402
import traceback  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402

from protein import files  # noqa: E402

from . import kinds  # noqa: E402
from .errors import TrainerError, UsersCodeError  # noqa: E402
from .events import EventSink, JsonLines, failed, ignore  # noqa: E402
from .launch import check_launch, exit_at_once, is_reporting, launch, under_torchrun  # noqa: E402


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m protein.trainer", add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--continue-from", type=Path)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--nproc", type=int, default=1)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--gpu-given", action="store_true")
    ours, overrides = parser.parse_known_args(arguments)
    stop = threading.Event()
    # Before torch is imported, which takes seconds, so that a signal in that time ends the run in order.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    # Read by OpenMP when torch loads it. Otherwise its threads spin while they wait. Where other programs use the
    # cores, spinning threads take them from the threads that they wait for, and training takes 100 times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Events get a descriptor of their own, and from here on prints go to stderr.
    try:
        with os.fdopen(os.dup(1), "w", encoding="utf-8") as stream:
            os.dup2(2, 1)
            return _train(ours, overrides, JsonLines(stream) if is_reporting() else ignore, stop)
    except TrainerError as error:
        if isinstance(error, UsersCodeError) and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)  # for the trial's log: the message has only its last line
        if is_reporting():
            print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        print("error: the reader of the events closed its end: stopped", file=sys.stderr)
        return 1
    except OSError as error:
        if ours.trace is None or error.filename != str(ours.trace):
            raise
        print(f"error: --trace {ours.trace} cannot be written ({error.strerror}): give another path", file=sys.stderr)
        return 2


def _with_flags(base: kinds.Config, overrides: list[str]) -> kinds.Config:
    """Returns a config with the settings that flags name. Ends the process where a flag is wrong, or asks for help."""
    import tyro  # to read flags takes it a fifth of a second, which the trials of a sweep, without flags, save

    config: kinds.Config = tyro.cli(
        type(base),
        default=base,
        args=overrides,
        prog="python -m protein.trainer [--config FILE] [--directory DIR] [--resume CHECKPOINT] "
        "[--continue-from CHECKPOINT] [--nproc N] [--profile] [--trace FILE]",
        description="Trains one agent or language model, reporting JSON lines.",
    )
    return config


def _train(ours: argparse.Namespace, overrides: list[str], report: EventSink, stop: threading.Event) -> int:
    several = ours.nproc > 1
    watched = ours.profile or ours.trace is not None
    try:
        kind = kinds.kind_of_flags(overrides) or kinds.PPO
        base: kinds.Config = kinds.load(ours.config) if ours.config else kind.config()
        config = _with_flags(base, overrides) if overrides else base
        config.validate()
        check_launch(ours.nproc, watched=watched)
        if not several:
            from .machine.precision import (
                resolve_device,  # torch is imported here, so that mistakes above are reported at once
            )

            device = resolve_device(config.train.device)
    except TrainerError as error:
        report(failed(error.reason, str(error)))
        raise
    if several:
        result = launch(
            config,
            ours.nproc,
            directory=ours.directory,
            report=report,
            stop=stop,
            resume=ours.resume,
            continue_from=ours.continue_from,
            started=_STARTED,
            speed=ours.speed,
        )
        return 130 if result.interrupted else 0

    from .machine.distributed import ALONE, connect
    from .machine.stopwatch import Profiler, Stopwatch
    from .run import run

    if ours.trace is not None:
        with _naming(ours.trace):
            files.require_replaceable(ours.trace)
    stopwatch = Stopwatch(device, exact=watched, trace=ours.trace is not None)
    profiler = Profiler(stopwatch, report)
    result = run(
        config,
        directory=ours.directory,
        report=profiler,
        stop=stop,
        resume=ours.resume,
        continue_from=ours.continue_from,
        started=_STARTED,
        stopwatch=stopwatch,
        world=connect() if under_torchrun() else ALONE,
        speed=ours.speed,
        gpu_given=ours.gpu_given,
    )
    if ours.profile:
        print("\n".join(profiler.profile().lines()), file=sys.stderr)
    if ours.trace is not None:
        with _naming(ours.trace):
            stopwatch.write_trace(ours.trace)
    return 130 if result.interrupted else 0


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Lets errors of writing a file name that file; they name the unfinished one beside it, or none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if under_torchrun():
        exit_at_once(code)
    sys.exit(code)

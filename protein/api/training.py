"""One run of `protein train`: what it would fail for, found before it begins, the training itself, and its folder.

What is read from the folder to go on: the config, the measurements, the checkpoint. One process at a time trains in it
and holds a lock on the run's config file. The system takes the lock back when the process ends, in whatever way.
"""

import contextlib
import dataclasses
import fcntl
import itertools
import json
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from protein import files
from protein.api import stores
from protein.config.layers import Layers
from protein.config.resolve import file_name
from protein.envs_c import EnvSpec
from protein.errors import ProteinError, StoreMissing, UsageError, remedy
from protein.names import is_name
from protein.sweep import resuming
from protein.trainer import environments, kinds
from protein.trainer.config import RunConfig, check_batch
from protein.trainer.errors import TrainerError
from protein.trainer.events import Event, EventSink, JsonLines, RunResult, read_line
from protein.trainer.language.config import LanguageConfig
from protein.trainer.launch import launch
from protein.types import TrialRecord

if TYPE_CHECKING:  # these load torch, which takes seconds
    from protein.trainer.machine.stopwatch import Profile, Stopwatch

RUNS = Path("runs") / "train"
INIT_FROM = "policy.init_from"
MEASUREMENTS = "measurements.jsonl"
CONFIG_FILE = "config.json"  # can be given back to --config
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
        if config.policy.init_from and not resumes:
            from protein.trainer.ppo.state import read_beginning  # loads torch

            read_beginning(Path(config.policy.init_from), config, spec)
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


def with_checkpoints(layers: Layers, store_url: str | None, flags: Collection[str], *, for_sweep: bool) -> Layers:
    """Returns layers in which `policy.init_from` names files, and the network's settings are those of these files.

    What has a flag stays as it is, and then the file may not fit. The network is not searched.

    Args:
        layers: in which it may name runs and sweeps, also as choices.
        store_url: of the store of the sweeps; None: the usual one.
        flags: the dotted names of the settings that have a flag.
        for_sweep: the layers are of a sweep, whose definition may not change.

    Raises:
        UsageError: there is no such checkpoint, or it is not an agent's.
    """
    if layers.kind is not kinds.PPO:
        return layers
    setting = layers.settings[INIT_FROM]
    named = [name for name in (setting.value, *setting.range.get("choices", ())) if isinstance(name, str) and name]
    if not named:
        return layers
    files = {name: str(_checkpoint(name, store_url, for_sweep=for_sweep)) for name in named}
    swept = {
        key: [files.get(one, one) if isinstance(one, str) else one for one in given]
        if isinstance(given, list)
        else given
        for key, given in setting.range.items()  # of the choices, and of a belief in one of them
    }
    placed = dataclasses.replace(setting, value=files.get(setting.value, setting.value), range=swept)
    layers = dataclasses.replace(layers, settings={**layers.settings, INIT_FROM: placed})
    first = files[named[0]]
    header = resuming.checkpoint_header(Path(first))
    network = None if header is None else header.get("config", {}).get("policy")
    if not isinstance(network, Mapping):
        what = "no whole checkpoint" if header is None else "of no agent, as it has no [policy]"
        raise UsageError(f"{INIT_FROM}: {first} is {what}; name another one")
    # Code of a user's own is not loaded because a file names it: the config has to name it, too.
    left_out = {INIT_FROM, "policy.module", *flags}
    taken = {f"policy.{name}": value for name, value in network.items()}
    known = {name: value for name, value in taken.items() if name in layers.settings and name not in left_out}
    return layers.with_values(known, first)


def _checkpoint(name: str, store_url: str | None, *, for_sweep: bool) -> Path:
    """Returns the checkpoint that a path, a run's folder, or a sweep and its trial name. Raises `UsageError`."""
    from protein.api.answers import Answers  # loads the engine

    path = Path(name)
    path = path / resuming.TRAINERS_FILE if path.is_dir() else path
    if path.is_file():
        return path.absolute()
    sweep_name, _, number = name.rpartition("/")
    by_trial = bool(sweep_name) and number.isdecimal()
    unknown = f"{INIT_FROM}: {name} is no checkpoint and no run's folder"
    if not is_name(sweep_name if by_trial else name):
        raise UsageError(f"{unknown}; check its path")
    try:
        with stores.opened(store_url) as store:
            sweep = stores.find(store, sweep_name if by_trial else name)
            if by_trial:
                trials: Sequence[TrialRecord] = [stores.find_trial(store, sweep, int(number))]
            else:
                trials = Answers(store, sweep).recommendation(None).chosen.trials  # all of them runs of one config
    except StoreMissing as error:
        shown, what = stores.shown(store_url), "trial" if by_trial else "sweep"
        raise UsageError(
            f"{unknown}; and it is no {what}, as there is no store {shown}: name that of the sweep with --store"
        ) from error
    except ProteinError as error:
        raise UsageError(f"{unknown}; and {error}") from error
    folder = stores.artifact_directory(stores.url(store_url), sweep.spec.name)
    left = {trial.number: resuming.located(trial, folder).artifact("checkpoint") for trial in trials}
    found = {number: Path(path) for number, path in left.items() if path is not None and Path(path).is_file()}
    trial_name = f"{sweep.spec.name}/{next(iter(found or left))}"
    if not found:
        raise UsageError(f"{INIT_FROM}: trial {trial_name} has left no checkpoint; name another one")
    if for_sweep and not by_trial:
        raise UsageError(
            f"{INIT_FROM}: the trial that sweep '{name}' recommends may become another one; name the trial, which is"
            f" now {trial_name}"
        )
    return next(iter(found.values())).absolute()


def _has_memory(config: RunConfig, spec: EnvSpec, device: str) -> bool:
    """Returns whether a run's policy has a memory; a network of the user's own is tried out for that.

    Raises:
        trainer.errors.ConfigError: it cannot be trained.
    """
    if not config.policy.module:
        return config.policy.recurrence != "none"
    from protein.trainer.machine.precision import resolve_device  # loads torch
    from protein.trainer.ppo.trainable import try_out

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
    from protein.trainer.machine.stopwatch import Profiler, Stopwatch
    from protein.trainer.run import run

    stopwatch = Stopwatch(resolve_device(config.train.device), exact=exact_times, trace=trace)
    profiler = Profiler(stopwatch, report)
    result = run(config, directory=directory, report=profiler, stop=stop, stopwatch=stopwatch, resume=resume)
    return Trained(result=result, profile=profiler.profile() if exact_times else None, stopwatch=stopwatch)


@contextlib.contextmanager
def run_directory(config: kinds.Config, before: "Interrupted | None") -> Iterator[Path]:
    """Yields the folder of a run: that of the interrupted run `before`, if it has one, else a new one.

    A new folder goes again where the run fails before its training begins.

    Raises:
        UsageError: it cannot be written; or another process trains in it.
    """
    if before is not None and before.directory is not None:
        with _locked(before.directory):
            yield before.directory
        return
    with files.no_new_folder(RUNS):
        directory = new_directory(config)
        try:
            with _locked(directory):
                yield directory
        except BaseException:
            if not _has_begun(directory):
                shutil.rmtree(directory, ignore_errors=True)
            raise


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Holds the lock of a run's folder. Raises `UsageError` where another process holds it."""
    with contextlib.ExitStack() as stack:
        try:
            fcntl.flock(stack.enter_context((directory / CONFIG_FILE).open()), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{directory}: another process trains this run now; wait for its end, or end it") from None
        except OSError:
            pass  # a file system without locks
        yield


def _has_begun(directory: Path) -> bool:
    return (directory / resuming.TRAINERS_FILE).exists() or _has_event(directory, "start")


def _has_event(directory: Path, kind: str) -> bool:
    """Whether a run's file of measurements has an event of this kind."""
    try:
        with (directory / MEASUREMENTS).open(encoding="utf-8") as lines:
            return any(read_line(line)["event"] == kind for line in lines)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def new_directory(config: kinds.Config) -> Path:
    """Makes a new folder, `runs/train/<env>-<date>`, and writes the config into it.

    Raises:
        UsageError: it cannot be written.
    """
    stem = f"{file_name(config.subject)}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        for number in itertools.count(1):
            path = RUNS / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            files.replace_file(path / CONFIG_FILE, (json.dumps(config.to_dict(), indent=1) + "\n").encode())
            return path
    except OSError as error:
        reason = error.strerror or error
        also = remedy(error)
        raise UsageError(
            f"{RUNS} cannot be written ({reason}); work in another folder{f' or {also}' if also else ''}"
        ) from error
    raise AssertionError("unreachable")


class Recorder:
    """Passes a run's events on, and writes them to a file beside its checkpoint, one JSON object per line.

    An event that cannot be written, as on a full disk, does not end the training: `error` holds what went wrong.
    """

    def __init__(self, path: Path, report: EventSink, *, resumed_steps: int | None = None) -> None:
        """Opens the file.

        Args:
            path: of the file.
            report: is called with each event.
            resumed_steps: where an interrupted run goes on: the events up to there stay. None: the run is new.
        """
        self.error: OSError | None = None
        self._report = report
        self._stream: TextIO | None = None
        try:
            if resumed_steps is not None:
                _keep_events(path, resumed_steps)
            self._stream = path.open("w" if resumed_steps is None else "a", encoding="utf-8")
            self._write = JsonLines(self._stream)
        except OSError as error:
            self.error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        try:
            if self._stream is not None:
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """A run that can be resumed. `directory` is its folder; None where the checkpoint lies elsewhere, as a copy.

    `unmeasured`: it has not ended with a score, so even where all steps are made the evaluation is to be made yet.
    """

    checkpoint: Path
    directory: Path | None
    config: Mapping[str, Any]  # of the run, nested
    steps: int
    elapsed_seconds: float
    unmeasured: bool = False


def interrupted_run(given: Path) -> Interrupted:
    """Returns an interrupted run from its folder or its checkpoint.

    Raises:
        UsageError: there is none, or its checkpoint is damaged.
    """
    checkpoint = given / resuming.TRAINERS_FILE if given.is_dir() else given
    if not checkpoint.is_file():
        what = "holds no checkpoint, so nothing can be resumed from it" if given.is_dir() else "does not exist"
        raise UsageError(f"--resume {given} {what}; give the folder of a run in {RUNS}, or its checkpoint")
    run = resuming.checkpoint_header(checkpoint)
    try:
        if run is None:
            raise ValueError
        folder = checkpoint.parent
        directory = folder if (folder / CONFIG_FILE).is_file() else None
        return Interrupted(
            checkpoint=checkpoint,
            directory=directory,
            unmeasured=directory is not None and not _has_event(directory, "result"),
            config=kinds.read(run["config"]).to_dict(),
            steps=int(run["steps"]),
            elapsed_seconds=float(run["elapsed_seconds"]),
        )
    except (KeyError, TypeError, ValueError, TrainerError) as error:
        raise UsageError(
            f"--resume {given}: {checkpoint.name} is damaged or no checkpoint of this program; give another run"
        ) from error


def _keep_events(path: Path, steps: int) -> None:
    """Drops from a run's file the events beyond `steps`, which come again, and those of its end."""
    kept = []
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # the last line may be half a line
                event = read_line(line)
                if event["event"] == "start" or (event["event"] == "measurement" and event["steps"] <= steps):
                    kept.append(line + "\n")
    files.replace_file(path, "".join(kept).encode())

"""The node's side of a fleet: a slot runs one trial at a time, on the node where it is.

A slot hands the trial to the backend that runs trials on one machine, so limits, quarantine and logs are the same code.
It lives across trials and keeps that backend's warm processes. The controller (the process of `protein sweep`, with
`protein.run.fleet`) reaches it through Ray or through files; this module knows neither. The messages between the two
are here; beside them a slot is sent a `protein.ports.Job`, and sends the events of its trial.

Where the machines share no folder for the sweep's artifacts, files are copied through a URL (`Copies`). The trial then
works in a folder of its node. Paths are translated on the way in and out, so the controller sees only its own. Files
are copied while the trial runs, some seconds after they were written, so that another machine can go on from them when
this one dies. When its disk is full, another machine may have room: the trial is given back, as after its death.
A full disk that all machines share is the sweep's own affair.
"""

import contextlib
import dataclasses
import importlib.metadata
import os
import platform
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protein.errors import FULL, TrialFailed, UsageError
from protein.ports import Backend, Finished, Job, TrialProgress
from protein.run import lease, speed
from protein.run.machine import can_measure
from protein.run.process import joined
from protein.run.served import AwayError, GoneError, ServedFiles
from protein.types import PREEMPTED, Artifact, Machine, Resources, Trial, TrialEnd
from protein.urls import without_password

BATCH_SECONDS = 0.1  # reports are collected for so long before they are sent; the end of a trial is sent at once
COPY_SECONDS = 5.0  # how often a running trial's folder is looked through
FULL_SECONDS = 600.0  # after which a full disk is tried again: a quota shows no room
MORE_ROOM = 1.25  # times what was free when the trial began that has filled a disk: then there is room again
_SCRATCH = "protein-trials-"  # what the names of slots' own folders begin with
_OWNER = "owner"  # a file there: whose folder it is, one process a line, as `protein.run.lease` names them
_PART = ".part"  # ends the name of a file that is being written
_WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci"})  # a file there is seen when it is whole
_Signature = tuple[int, int, int]  # of a file: when it was written, in ns, its size in bytes, and its inode


class Copies:
    """The folders of a sweep's trials under a URL, one a trial, as in the folder of artifacts.

    Any file system that fsspec knows will do: `s3://bucket/runs`, `gs://...`, `sftp://...`. Workers that have joined
    through a `protein serve` copy to that.
    """

    def __init__(self, url: str | ServedFiles) -> None:
        """Connects.

        Raises:
            UsageError: fsspec is not installed, does not know the kind of URL, or lacks a package for it.
        """
        self._files: Any
        if isinstance(url, ServedFiles):
            self._files, self._root, self._whole = url, "", True
            return
        shown = without_password(url)
        try:
            import fsspec
        except ImportError as error:
            raise UsageError(f"artifacts at {shown} need fsspec, which is not installed: pip install fsspec") from error
        try:
            self._files, path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(f"artifacts cannot be kept at {shown}: {error}") from error
        self._root = path.rstrip("/")
        protocol = self._files.protocol
        self._whole = not _WHOLE.isdisjoint({protocol} if isinstance(protocol, str) else protocol)

    def has(self, name: str) -> bool:
        """Whether there is a file or a folder of this name."""
        self._files.invalidate_cache()
        return bool(self._files.exists(f"{self._root}/{name}"))

    def put(self, file: Path, name: str) -> None:
        """Copies a file there. A reader sees the file that was there before, or the whole new one."""
        target = f"{self._root}/{name}"
        self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
        if self._whole:
            self._files.put_file(str(file), target)
        else:
            self._files.put_file(str(file), target + _PART)
            self._files.mv(target + _PART, target)

    def fetch(self, name: str, directory: Path) -> None:
        """Copies the folder of this name here, if there is one. Other files that are here stay."""
        self._files.invalidate_cache()
        folder = f"{self._root}/{name}"
        if not self._files.exists(folder):
            return
        for path, facts in self._files.find(folder, detail=True).items():
            inner = path[path.index(f"{folder}/") + len(folder) + 1 :]
            target = directory / inner
            if inner.endswith(_PART) or ".." in Path(inner).parts or not _is_plain(directory, target.parent):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(target.name + _PART)
            part.unlink(missing_ok=True)  # a link would be followed
            self._files.get_file(path, str(part))
            if facts.get("size") in (None, part.stat().st_size):
                part.replace(target)
            else:
                part.unlink()

    def remove(self, name: str) -> None:
        """Removes the folder of this name, if there is one."""
        self._files.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            self._files.rm(f"{self._root}/{name}", recursive=True)


class Copier:
    """Copies one trial's folder to its place under the URL, in a thread, until `finish`.

    Attributes:
        directory: the folder here.
        name: of the folder under the URL.
    """

    def __init__(self, copies: Copies, directory: Path, name: str, *, every_seconds: float = COPY_SECONDS) -> None:
        self.directory, self.name = directory, name
        self._copies, self._every_seconds = copies, every_seconds
        self._seen: dict[Path, _Signature] = {}
        self._copied: dict[Path, _Signature] = signatures(directory)  # they were fetched from there
        self._problem = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="copies of a trial's files", daemon=True)
        self._thread.start()

    def finish(self) -> str:
        """Copies what has changed and ends the thread. Returns why files could not be copied; "": they were."""
        self._end.set()
        self._thread.join()
        self._copy(signatures(self.directory))
        return self._problem

    def _run(self) -> None:
        while not self._end.wait(self._every_seconds):
            self._look()

    def _look(self) -> None:
        """Copies the files that are whole: a checkpoint that is written more often than this looks is one, too.

        A file that changes between two looks is being written, unless another one has replaced it.
        """
        before, self._seen = self._seen, signatures(self.directory)
        self._copy({path: one for path, one in self._seen.items() if path in before and _is_whole(before[path], one)})

    def _copy(self, files: dict[Path, _Signature]) -> None:
        self._problem = ""
        for path, signature in files.items():
            if self._copied.get(path) == signature:
                continue
            try:
                self._copies.put(path, f"{self.name}/{path.relative_to(self.directory)}")
            except FileNotFoundError:  # it was removed in the meantime
                continue
            except Exception as error:  # of whichever package stands behind the URL; the trial goes on
                self._problem = f"{path.name!r} could not be copied: {' '.join(str(error).split())[:300]}"
                if isinstance(error, AwayError | GoneError):  # each further file would wait, or go, in vain
                    return
            else:
                self._copied[path] = signature


def mirror(copies: Copies, name: str, directory: Path) -> str:
    """Fetches a folder as `Copies.fetch`. Returns why that failed, in words; "": it is done."""
    try:
        copies.fetch(name, directory)
    except Exception as error:  # of whichever package stands behind the URL
        return f"the files of trial {name} could not be fetched: {' '.join(str(error).split())[:300]}"
    return ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Calibrating:
    """How nodes find out how fast they are (`protein.run.speed`)."""

    threads: int  # of one trial
    device: str
    known: tuple[Machine, ...]  # of the store; the first one is the reference


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlotSettings:
    """What the controller tells every slot once."""

    make_backend: Callable[[], Backend]  # the backend of one machine
    artifacts: Path  # the folder of the sweep's artifacts, one folder a trial, as the controller names it
    probe: str  # name of a file that the controller has put there (`put_probe`)
    artifacts_url: str | None = None  # where artifacts are copied through; None: the folder is shared by all machines
    search_path: tuple[str, ...] = ()  # the controller's `sys.path`
    gpus_per_trial: int = 0
    calibrating: Calibrating | None = None  # None: all machines are taken to be equally fast
    working_directory: str = ""  # the controller's; used where the node has it, too

    def knowing(self, machine: Machine) -> "SlotSettings":
        """Returns the settings for nodes that are told from now on: they know another machine."""
        if self.calibrating is None or machine in self.calibrating.known:
            return self
        known = (*self.calibrating.known, machine)
        return dataclasses.replace(self, calibrating=dataclasses.replace(self.calibrating, known=known))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a node says of itself before it gets a trial."""

    host: str
    version: str  # of this package
    shares_artifacts: bool  # whether it sees the controller's folder, or reaches the URL
    machine: Machine | None = None  # its calibration; None: there is none
    problem: str = ""  # why it could not be calibrated, in words
    niceness: int = 0  # of its processes: where other programs run, a higher one gets less of the cores


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """To a slot: end the trial."""

    trial: Trial
    end: TrialEnd
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """To a slot: end."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """From a slot: it can take trials."""

    facts: Facts
    seconds_left: float | None  # until the slot ends by itself; None: it does not


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """From a slot: it lives."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """From a slot: it takes no more trials."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """From a slot: it has ended. It is its last message. `why`: what has failed, in words; "": it was to end."""

    why: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """From a slot: what a person should know."""

    text: str


def version() -> str:
    """Returns the version of this package here."""
    return importlib.metadata.version("protein-sweep")


def put_probe(artifacts: Path, url: str | None = None) -> str:
    """Puts a file where artifacts are kept, by which nodes see whether they reach that. Returns its name.

    Raises:
        UsageError: it cannot be put there.
    """
    name = f".shared-{secrets.token_hex(8)}"
    try:
        artifacts.mkdir(parents=True, exist_ok=True)
        (artifacts / name).write_text("protein looks whether other machines see this file\n")
        if url is not None:
            Copies(url).put(artifacts / name, name)
    except UsageError:
        raise
    except Exception as error:  # of whichever package stands behind the URL
        place = str(artifacts) if url is None else without_password(url)
        raise UsageError(f"artifacts cannot be kept at {place}: {' '.join(str(error).split())[:300]}") from error
    return name


def remove_probe(artifacts: Path, name: str, url: str | None = None) -> None:
    """Removes what `put_probe` has put."""
    (artifacts / name).unlink(missing_ok=True)
    if url is not None:
        with contextlib.suppress(Exception):
            Copies(url).remove(name)


def copies_of(settings: SlotSettings, served: ServedFiles | None = None) -> Copies | None:
    """Returns where a slot copies its files: through the sweep's URL, or else its own server; None: nowhere."""
    place = settings.artifacts_url or served
    return None if place is None else Copies(place)


def facts(settings: SlotSettings, served: ServedFiles | None = None, *, calibrate: bool = True) -> Facts:
    """Returns what the controller wants to know of this node. A calibration takes some ten seconds, once a node."""
    if (copies := copies_of(settings, served)) is None:
        shared = (settings.artifacts / settings.probe).is_file()
    else:
        shared = copies.has(settings.probe)
    machine, problem = _machine(settings.calibrating) if calibrate and shared else (None, "")
    return Facts(
        host=platform.node(),
        version=version(),
        shares_artifacts=shared,
        machine=machine,
        problem=problem,
        niceness=os.getpriority(os.PRIO_PROCESS, 0),
    )


def _machine(calibrating: Calibrating | None) -> tuple[Machine | None, str]:
    if calibrating is None:
        return None, ""
    here = speed.machine_facts(threads=calibrating.threads, device=calibrating.device)
    if (known := speed.find_calibration(calibrating.known, here)) is not None:
        return known, ""
    lines: list[str] = []
    try:
        return speed.measure_speed(here, log=lines.append), " ".join(lines)
    except TrialFailed as error:
        return None, str(error)


class Slot:
    """Runs one trial at a time. One thread may call it."""

    def __init__(self, settings: SlotSettings, served: ServedFiles | None = None) -> None:
        _use_paths_of_sweep(settings)
        self._settings = settings
        self._backend = settings.make_backend()
        self._copies = copies_of(settings, served)
        self._scratch: Path | None = None  # this slot's own folder, where artifacts are copied
        self._copier: Copier | None = None  # of the running trial
        self._notes: list[Note] = []  # for the next poll
        self._told_of_memory = False
        self._free = 0  # bytes of this slot's own disk, when its last trial began
        self._full_at: float | None = None  # when that trial has filled it, on the monotonic clock; None: it has not

    @property
    def is_full(self) -> bool:
        """Whether its own disk has no room for a trial: one has filled it, and no more is free than at its start."""
        if self._full_at is None or time.monotonic() - self._full_at > FULL_SECONDS:
            return False
        return _scratch_disk()[1] <= MORE_ROOM * self._free

    def start(self, job: Job) -> None:
        """Starts a trial; the one before must have finished."""
        job = dataclasses.replace(job, resources=self._resources(job))
        if job.resources.max_gpu_memory_bytes is not None and not can_measure() and not self._told_of_memory:
            self._told_of_memory = True
            why = "GPU memory cannot be measured (NVML), so --max-trial-gpu-memory is not kept"
            self._notes.append(Note(text=f"{platform.node()}: {why}"))
        if self._copies is None:
            self._backend.start(job)
            return
        self._free = _scratch_disk()[1]
        try:
            self._backend.start(self._brought_here(job, self._copies))
        except OSError as error:
            if error.errno in FULL:
                self._fill()
                if self._scratch is not None:  # what has come so far would take the room
                    shutil.rmtree(self._scratch, ignore_errors=True)
                    self._scratch = None
            raise

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        self._backend.stop(trial, end, reason)

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished | Note | Leaving]:
        """Waits for news, and then a moment more for further news, unless the trial has ended.

        The end of a trial that has filled this slot's own disk is followed by `Leaving`.
        """
        events = self._backend.poll(timeout_seconds)
        until = time.monotonic() + BATCH_SECONDS
        while events and not isinstance(events[-1], Finished) and (rest := until - time.monotonic()) > 0:
            events += self._backend.poll(rest)
        news = [self._sent_back(event) if isinstance(event, Finished) else event for event in joined(events)]
        notes, self._notes = self._notes, []
        is_filled = self._full_at is not None and any(isinstance(one, Finished) for one in news)
        return [*notes, *news, *([Leaving()] if is_filled else [])]

    def close(self) -> None:
        """Kills what still runs. What the trial has left is copied."""
        self._backend.close()
        if self._copier is not None:
            self._copier.finish()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _fill(self) -> None:
        """Takes note that this slot's own disk is full."""
        self._full_at = time.monotonic()
        why = f"the disk of its {_scratch_disk()[0]} is full"
        remedy = "free some space there, or set TMPDIR to a folder on a larger one"
        self._notes.append(Note(text=f"{platform.node()} gets no trial for now: {why}; {remedy}"))

    def _resources(self, job: Job) -> Resources:
        """Returns what the trial may use here; cores and GPUs of the controller's machine mean nothing."""
        gpus: tuple[str, ...] = ()
        # The ones that this process was given. Without the variable it was given all that it sees, or GPUs of AMD.
        if self._settings.gpus_per_trial and (given := os.environ.get("CUDA_VISIBLE_DEVICES")):
            gpus = tuple(given.split(",")[: self._settings.gpus_per_trial])
        return Resources(gpus=gpus, max_gpu_memory_bytes=job.resources.max_gpu_memory_bytes)

    def _brought_here(self, job: Job, copies: Copies) -> Job:
        """Returns the job with paths of this node, after what it goes on from was fetched."""
        if self._scratch is None:
            self._scratch = new_scratch()
        name = name_of(job, self._settings)
        here = {job.directory: self._scratch / name}
        shutil.rmtree(here[job.directory], ignore_errors=True)
        # Under a URL, what another sweep has left under this name is not this trial's. A server has the sweep's own
        # folder, which was cleared when the trial began, and in which the sweep counts its attempts.
        if job.resumes is None and self._settings.artifacts_url is not None:
            copies.remove(name)
        else:
            copies.fetch(name, here[job.directory])
        continues = job.continues
        if continues is not None and continues.is_relative_to(self._settings.artifacts):
            # The folder of its trial: all trials' folders lie equally deep.
            parts = continues.relative_to(self._settings.artifacts).parts[: len(Path(name).parts)]
            here[self._settings.artifacts.joinpath(*parts)] = self._scratch / "continued"
            shutil.rmtree(self._scratch / "continued", ignore_errors=True)
            copies.fetch("/".join(parts), self._scratch / "continued")
        self._copier = Copier(copies, here[job.directory], name)
        return moved_job(job, here)

    def _sent_back(self, event: Finished) -> Finished:
        """Returns the end of a trial as the controller needs it, with its paths, after the files were copied."""
        if event.outcome.end is TrialEnd.DISK:  # its reason asks for space
            end, reason = TrialEnd.DISK, f"{event.outcome.reason} on {platform.node()}"
            if self._copies is not None:  # the trial has written on this machine's own
                self._fill()
                end, reason = TrialEnd.INTERRUPTED, PREEMPTED + reason
            event = dataclasses.replace(event, outcome=dataclasses.replace(event.outcome, end=end, reason=reason))
        copier, self._copier = self._copier, None
        if copier is None:
            return event
        if problem := copier.finish():
            self._notes.append(Note(text=f"trial {event.trial.number}: {problem}"))
        shutil.rmtree(copier.directory, ignore_errors=True)
        return moved_end(event, {copier.directory: self._settings.artifacts / copier.name})


def name_of(job: Job, settings: SlotSettings) -> str:
    """Returns what a trial's folder is called among the copies: as in the folder of artifacts."""
    return job.directory.relative_to(settings.artifacts).as_posix()


def new_scratch() -> Path:
    """Makes a folder for files of this process. Those of processes that were killed here are removed.

    Containers may share a node, and do not see each other.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            owners = set((folder / _OWNER).read_text().splitlines())
            if owners and len(lease.dead_owners(owners)) == len(owners):
                shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_SCRATCH))
    own_scratch(folder)
    return folder


def _scratch_disk() -> tuple[Path, int]:
    """Returns the folder in which slots have their own, and how many bytes are free on its disk."""
    folder = Path(tempfile.gettempdir())
    return folder, shutil.disk_usage(folder).free


def own_scratch(folder: Path) -> None:
    """Keeps such a folder while this process lives, too."""
    with (folder / _OWNER).open("a") as file:
        file.write(f"{lease.current_owner()}\n")


def moved(path: Path, folders: dict[Path, Path]) -> Path:
    """Returns a path below one of these folders as it is below the folder that stands for it."""
    for old, new in folders.items():
        with contextlib.suppress(ValueError):
            return new / path.relative_to(old.resolve() if path.is_relative_to(old.resolve()) else old)
    return path


def moved_job(job: Job, folders: dict[Path, Path]) -> Job:
    """Returns a job with the paths of another machine, as `moved`."""
    return dataclasses.replace(
        job,
        directory=moved(job.directory, folders),
        continues=None if job.continues is None else moved(job.continues, folders),
        resumes=None if job.resumes is None else moved(job.resumes, folders),
    )


def moved_end(event: Finished, folders: dict[Path, Path]) -> Finished:
    """Returns the end of a trial with the paths of another machine, as `moved`."""
    artifacts = tuple(Artifact(kind=one.kind, path=str(moved(Path(one.path), folders))) for one in event.artifacts)
    return dataclasses.replace(event, artifacts=artifacts)


def _use_paths_of_sweep(settings: SlotSettings) -> None:
    """Makes Python search the same folders as the controller does, as far as this node has them."""
    sys.path += [folder for folder in settings.search_path if folder not in sys.path and Path(folder).exists()]
    with contextlib.suppress(OSError):
        os.chdir(settings.working_directory)


def _is_plain(directory: Path, folder: Path) -> bool:
    """Whether a folder is in a directory, and no symbolic link leads to it from there."""
    if not folder.is_relative_to(directory):
        return False
    return not any(place.is_symlink() for place in (folder, *folder.parents) if place.is_relative_to(directory))


def _is_whole(before: _Signature, now: _Signature) -> bool:
    return now == before or now[2] != before[2]


def signatures(directory: Path) -> dict[Path, _Signature]:
    """Returns the files in a folder, and in those below it, but no links."""
    found = {}
    for path in sorted(directory.rglob("*")):
        with contextlib.suppress(OSError):
            if path.is_file() and not path.is_symlink():
                facts = path.stat()
                found[path] = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
    return found

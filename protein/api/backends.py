"""Where the trials of a sweep run, as the flags of `protein sweep` name it: this machine, or others.

The others are nodes of a Ray cluster, jobs of Slurm, or workers that join through a folder.

The trials themselves are run by the backend of one machine, in all of them (see `protein.run.slot`).
"""

import contextlib
import dataclasses
import functools
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from protein.errors import UsageError
from protein.names import folder_name
from protein.ports import Backend
from protein.run import slurm
from protein.run.command import SILENCE_SECONDS, CommandBackend
from protein.run.fleet import Fleet, Transport
from protein.run.folder import FolderTransport
from protein.run.function import ImportedFunction
from protein.run.machine import Slots
from protein.run.ray import Needs, RayTransport
from protein.run.slot import Calibrating, Copies, SlotSettings, mirror, put_probe, remove_probe
from protein.run.trainer import TrainerBackend
from protein.types import Machine, Resources, SweepSpec, runs_trainer
from protein.urls import without_password

KINDS = ("local", "ray", "slurm", "folder")
MAX_WORKERS = 10_000  # of a sweep on other machines, where no number is given: as many as they have room for


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where trials run and their files are kept, as the user gives it.

    Attributes:
        backend: "local", "ray", "ray:ADDRESS", "slurm", "folder" or "folder:DIR".
        artifacts: a folder or a URL; None: the folder beside the store.
        trial_cores: of one trial; None: one.
        gpus_per_trial: None: none.
        resources: custom resources of Ray that one trial needs, as JSON.
        slurm_options: for `sbatch`, as in "--partition=gpu --time=4:00:00".
    """

    backend: str = "local"
    artifacts: str | None = None
    trial_cores: int | None = None
    gpus_per_trial: int | None = None
    resources: str | None = None
    slurm_options: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS or (self.address is not None and self.kind not in ("ray", "folder")):
            known = "local, ray, ray:HOST:PORT, slurm or folder:DIR"
            raise UsageError(f"--backend '{self.backend}' is unknown: use {known}")
        if self.kind == "folder" and self.address is not None and self.artifacts is not None:
            raise UsageError(f"--backend {self.backend}: files are kept in that folder; leave --artifacts out")
        if self.trial_cores is not None and self.trial_cores < 1:
            raise UsageError(f"--trial-cores {self.trial_cores} is below the limit of 1; use 1 or more")
        if self.trial_cores is not None and not self.is_remote:
            raise UsageError("--trial-cores is for other machines: use it with --backend ray, slurm or folder")
        if self.resources is not None and self.kind != "ray":
            instead = ", or give --slurm-options" if self.kind == "slurm" else ""
            raise UsageError(f"--resources is for Ray: use it with --backend ray{instead}")
        if self.slurm_options is not None and self.kind != "slurm":
            raise UsageError("--slurm-options is for Slurm: use it with --backend slurm")
        if self.url is not None and self.kind != "ray":
            shown = without_password(self.url)
            raise UsageError(f"--artifacts {shown}: a URL is for --backend ray; without it, give a folder")

    @property
    def kind(self) -> str:
        return self.backend.partition(":")[0]

    @property
    def address(self) -> str | None:
        return self.backend.partition(":")[2] or None

    @property
    def is_remote(self) -> bool:
        return self.kind != "local"

    @property
    def url(self) -> str | None:
        """The URL through which artifacts are copied; None: they are kept in a folder."""
        return self.artifacts if self.artifacts is not None and "://" in self.artifacts else None

    @property
    def folder(self) -> Path | None:
        """The folder of `artifacts`; None: they are beside the store."""
        if self.kind == "folder" and self.address is not None:
            return Path(self.address).expanduser()
        return None if self.artifacts is None or self.url is not None else Path(self.artifacts)

    def directory(self, default: Path) -> Path:
        """Returns the folder of a sweep's artifacts; `default` is the one beside the store."""
        return default if self.folder is None else self.folder.absolute() / default.name

    def slots(self, workers: int | None, *, max_gpu_memory_bytes: int | None = None) -> Slots:
        """Returns the places for trials on other machines. Their number is the cluster's to say, but for Slurm."""
        if workers is None:
            workers = 1 if self.kind == "slurm" else MAX_WORKERS
        cores = self.trial_cores or 1
        return _RemoteSlots(workers=workers, cores_per_trial=cores, max_gpu_memory_bytes=max_gpu_memory_bytes)

    def words(self) -> str:
        """Returns the name of the place for a message."""
        if self.kind == "slurm":
            return "Slurm"
        if self.kind == "folder":
            return "workers that join through a folder"
        return f"the Ray cluster at {self.address}" if self.address else "the Ray cluster of this machine"

    def check(self) -> None:
        """Looks whether trials can run there, as far as that is known before anything is made.

        Raises:
            UsageError: they cannot.
        """
        if self.kind == "ray" and importlib.util.find_spec("ray") is None:
            raise UsageError("--backend ray needs Ray, which is not installed: pip install 'protein-sweep[ray]'")
        if self.kind == "ray":
            _resources(self.resources)
        if self.kind == "slurm":
            options = slurm.parse_options(self.slurm_options or "")
            slurm.check(slurm.resources(self.trial_cores or 1, self.gpus_per_trial or 0, options))

    def fetch(self, spec: SweepSpec, directory: Path, numbers: list[int], note: Callable[[str], None]) -> None:
        """Fetches the files of trials that may be taken up again, where another machine has run the sweep before."""
        if self.url is None or not numbers:
            return
        copies = Copies(self.url_of(spec))
        for number in numbers:
            name = f"{number:04d}"
            if problem := mirror(copies, name, directory / name):
                note(problem)

    def url_of(self, spec: SweepSpec) -> str:
        """Returns the URL of a sweep's artifacts."""
        assert self.url is not None
        return f"{self.url.rstrip('/')}/{folder_name(spec.name)}"


class _RemoteSlots(Slots):
    def __init__(self, *, workers: int, cores_per_trial: int, max_gpu_memory_bytes: int | None) -> None:
        super().__init__(workers=workers, max_gpu_memory_bytes=max_gpu_memory_bytes)
        self._cores_per_trial = cores_per_trial

    def threads(self, resources: Resources) -> int:
        return self._cores_per_trial


@contextlib.contextmanager
def connected(
    place: Place,
    spec: SweepSpec,
    directory: Path,
    *,
    workers: int,
    silence_seconds: float | None,
    function: str | None = None,
    note: Callable[[str], None],
    machines: Sequence[Machine] | None,
    on_machine: Callable[[Machine], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[Fleet]:
    """Connects to other machines, and closes that at the end.

    Args:
        place: where they are.
        spec: of the sweep.
        directory: of its artifacts.
        workers: how many trials run at once.
        silence_seconds: a command that prints nothing for so long hangs; None: the default.
        function: the name by which other machines import the function that is swept; None: no function is.
        note: called with what a person should know, as one line.
        machines: that the store knows; None: machines are not calibrated.
        on_machine: called with each machine that was calibrated.
        should_stop: whether to give up connecting; there is then room for no trial.

    Raises:
        UsageError: there is no such place, it cannot run trials, or it does not see the artifacts.
    """
    url = None if place.url is None else place.url_of(spec)
    new = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    settings = SlotSettings(
        make_backend=_on_one_machine(spec, silence_seconds, function),
        artifacts=directory,
        probe=put_probe(directory, url),
        artifacts_url=url,
        gpus_per_trial=place.gpus_per_trial or 0,
        calibrating=None if machines is None else _calibrating(place, spec, machines),
        search_path=tuple(sys.path),
        working_directory=str(Path.cwd()),
    )
    try:
        transport = _transport(place, spec, workers, should_stop)
        with contextlib.closing(Fleet(transport, settings, note=note, on_machine=on_machine)) as fleet:
            yield fleet
    finally:
        remove_probe(directory, settings.probe, url)
        with contextlib.suppress(OSError):  # they are kept where there is something in them
            for folder in new:
                folder.rmdir()


def _on_one_machine(spec: SweepSpec, silence_seconds: float | None, function: str | None) -> Callable[[], Backend]:
    """Returns what makes the backend of one machine; it is sent there."""
    if function is not None:
        return functools.partial(ImportedFunction, function, spec.direction)
    if runs_trainer(spec.config):
        return TrainerBackend
    return functools.partial(CommandBackend, spec.direction, silence_seconds=silence_seconds or SILENCE_SECONDS)


def _calibrating(place: Place, spec: SweepSpec, machines: Sequence[Machine]) -> Calibrating:
    train = spec.config.get("train", {"threads": 0, "device": "cpu"})
    threads = train["threads"] or place.trial_cores or 1
    return Calibrating(threads=threads, device=train["device"], known=tuple(machines))


def _transport(place: Place, spec: SweepSpec, workers: int, should_stop: Callable[[], bool]) -> Transport:
    cores = place.trial_cores or 1
    if place.kind == "slurm":
        options = slurm.parse_options(place.slurm_options or "")
        return slurm.SlurmTransport(spec.name, workers=workers, cores=cores, options=options)
    if place.kind == "folder":
        return FolderTransport(spec.name)
    needs = Needs(cores=cores, gpus=place.gpus_per_trial or 0, resources=_resources(place.resources))
    return RayTransport(place.address, needs, should_stop=should_stop)


def _resources(text: str | None) -> Mapping[str, float]:
    """Returns what `--resources` asks for, by name. Raises `UsageError` where it is no JSON object of numbers."""
    if text is None:
        return {}
    example = """as in --resources '{"A100": 1}'"""
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--resources {text} is not JSON ({error}); give names and numbers, {example}") from error
    if not isinstance(given, dict) or not all(
        isinstance(amount, int | float) and not isinstance(amount, bool) and amount > 0 for amount in given.values()
    ):
        raise UsageError(f"--resources {text} must give a number above 0 for each name, {example}")
    for name in given:
        if name in ("CPU", "GPU"):
            flag = {"CPU": "--trial-cores", "GPU": "--gpus-per-trial"}[name]
            raise UsageError(f"--resources cannot give {name}; use {flag}")
    return {str(name): float(amount) for name, amount in given.items()}

"""Every backend of trials, for the contract of all of them."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import folder_workers
import pytest
import ray_clusters
import slurm_cluster
from backend_trials import TRIAL, behave
from patience import PATIENCE_SECONDS
from ray_clusters import RayCluster

from protein.ports import Backend
from protein.run.command import CommandBackend
from protein.run.fleet import Fleet
from protein.run.function import FunctionBackend, FunctionProcesses
from protein.run.process import ProcessBackend
from protein.run.ray import Needs, RayTransport
from protein.run.trainer import TrainerBackend
from protein.types import Direction

QUICK_BY_URL = (
    "test_a_trial_goes_on_from_what_another_one_has_left",
    "test_a_process_tells_what_was_no_training_and_leaves_its_files",
    "test_a_trial_stopped_early_ends_in_order_with_its_last_score_and_what_it_spent",
)


@pytest.fixture
def local() -> Iterator[TrainerBackend]:
    backend = TrainerBackend(entry=TRIAL, preload=(), silence_seconds=PATIENCE_SECONDS)
    yield backend
    backend.close()


@pytest.fixture
def function() -> Iterator[FunctionBackend]:
    backend = FunctionBackend(behave, Direction.MAXIMIZE)
    server = threading.Thread(target=backend.serve, args=(threading.Event(),))
    server.start()
    yield backend
    backend.close()
    server.join(PATIENCE_SECONDS)
    assert not server.is_alive(), "close ends whatever still runs"


@pytest.fixture
def command() -> Iterator[CommandBackend]:
    backend = CommandBackend(Direction.MAXIMIZE, silence_seconds=PATIENCE_SECONDS)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def remote(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One for all tests here: it lives as long as a sweep does, and its trials know nothing of each other.

    At the end it gives the nodes' cores back, which tests of other files need.
    """
    backend = ray_clusters.backend(ray_cluster.address, tmp_path_factory.getbasetemp())
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def remote_command(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """As `remote`, for commands of the user's."""
    make = functools.partial(CommandBackend, Direction.MAXIMIZE, silence_seconds=PATIENCE_SECONDS)
    settings = ray_clusters.settings(tmp_path_factory.getbasetemp(), make_backend=make)
    backend = Fleet(RayTransport(ray_cluster.address, Needs()), settings)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def in_slurm(slurm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Trials of the trainer in a job of Slurm; one backend for all tests here, as above."""
    backend = slurm_cluster.backend(tmp_path_factory.getbasetemp(), slurm_cluster.trainer)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def command_in_slurm(slurm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    backend = slurm_cluster.backend(tmp_path_factory.getbasetemp(), slurm_cluster.command)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def in_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Trials of the trainer in a worker that has joined through a folder; one backend for all tests here, as above."""
    with folder_workers.backend(tmp_path_factory.getbasetemp(), slurm_cluster.trainer) as backend:
        yield backend


@pytest.fixture(scope="module")
def by_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """As `in_folder`, in a worker that does not see the folder, and has joined by the URL of its server."""
    artifacts = tmp_path_factory.getbasetemp() / "served"
    with folder_workers.backend(artifacts, slurm_cluster.trainer, served=True) as backend:
        yield backend


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """In the folder of artifacts, from which alone files are served."""
    if not is_by_url(request.node):
        return tmp_path
    folder = tmp_path.parent / "served" / tmp_path.name
    folder.mkdir(parents=True)
    return folder


def is_by_url(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    return any(isinstance(value, str) and value == "by_url" for value in item.callspec.params.values())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a worker does is tested by the folder. By the URL, some of that is enough for each run of the tests."""
    for item in items:
        if is_by_url(item) and getattr(item, "originalname", "") not in QUICK_BY_URL:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(
    params=["local", "command", "remote", "remote_command", "in_slurm", "command_in_slurm", "in_folder", "by_url"]
)
def process(request: pytest.FixtureRequest) -> Backend:
    """A backend whose trials are processes."""
    backend: Backend = request.getfixturevalue(request.param)
    return backend


@contextlib.contextmanager
def processes(start_method: Literal["fork", "spawn"]) -> Iterator[FunctionProcesses]:
    stop = threading.Event()
    backend = FunctionProcesses(behave, Direction.MAXIMIZE, stop, start_method=start_method)
    server = threading.Thread(target=backend.serve, args=(stop,))
    server.start()
    yield backend
    backend.close()
    server.join(PATIENCE_SECONDS)
    assert not server.is_alive(), "close ends whatever still runs"


@pytest.fixture
def forked() -> Iterator[FunctionProcesses]:
    with processes("fork") as backend:
        yield backend


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> Iterator[FunctionProcesses]:
    """Its server loads nothing large, as in a program that has not: other tests have loaded torch here."""
    monkeypatch.setattr("protein.run.function._HEAVY", ())
    with processes("spawn") as backend:
        yield backend


@pytest.fixture(params=["local", "command"])
def process_here(request: pytest.FixtureRequest) -> Backend:
    """A backend whose trials are processes of this machine, whose patience a test can patch."""
    backend: Backend = request.getfixturevalue(request.param)
    return backend


@pytest.fixture(params=["local", "forked", "spawned", "command"])
def watched(request: pytest.FixtureRequest) -> ProcessBackend:
    """A backend of each kind of trial that is a process of this machine: the trainer, a function and a command."""
    backend: ProcessBackend = request.getfixturevalue(request.param)
    return backend


@pytest.fixture(params=["local", "remote", "in_slurm", "in_folder", "by_url"])
def trainers(request: pytest.FixtureRequest) -> Backend:
    """A backend whose trials are processes of the trainer."""
    backend: Backend = request.getfixturevalue(request.param)
    return backend


@pytest.fixture(
    params=[
        "local",
        "function",
        "forked",
        "spawned",
        "command",
        "remote",
        "remote_command",
        "in_slurm",
        "command_in_slurm",
        "in_folder",
        "by_url",
    ]
)
def backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.getfixturevalue(request.param)
    return backend

"""Nodes of a Ray cluster that die, join, or cannot be used. What every backend must do is in tests/contracts."""

import functools
import itertools
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray_clusters
from patience import PATIENCE_SECONDS
from ray_clusters import RayCluster

from protein.errors import UsageError
from protein.ports import Finished, Job, TrialProgress
from protein.run.command import CommandBackend, CommandSettings
from protein.run.fleet import Fleet
from protein.run.ray import Needs, RayTransport
from protein.types import Direction, Trial, TrialEnd

ROOT = Path(__file__).parents[3]
ASSETS = ROOT / "tests" / "assets"

Start = Callable[..., Fleet]


@pytest.fixture
def start(ray_cluster: RayCluster, tmp_path: Path) -> Iterator[Start]:
    """Makes backends that are closed after the test."""
    made: list[Fleet] = []

    def make(*, notes: list[str] | None = None, slot: dict[str, Any] | None = None, **needs: Any) -> Fleet:
        settings = ray_clusters.settings(tmp_path, **(slot or {}))
        note = (lambda line: None) if notes is None else notes.append
        made.append(Fleet(RayTransport(ray_cluster.address, Needs(**needs)), settings, note=note))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


def job(folder: Path, number: int = 0, **train: object) -> Job:
    params: Any = train
    trial = Trial(id=100 + number, sweep_id=1, number=number, params=params, seed=0, owner="test")
    config = {"train": train, "seed": 0, "max_seconds": None}
    return Job(trial=trial, config=config, directory=folder / f"{number:04d}", max_seconds=None, max_memory_bytes=None)


def wait(backend: Fleet, until: Callable[[TrialProgress | Finished], bool]) -> Any:
    """Returns the first event of this kind."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for event in backend.poll(0.2):
            if until(event):
                return event
    raise AssertionError("no such event has come")


def driver_of(backend: Fleet) -> "subprocess.Popen[bytes]":
    assert isinstance(backend._transport, RayTransport)
    return backend._transport._driver._process


def is_end(event: object) -> bool:
    return isinstance(event, Finished)


def is_point(event: object) -> bool:
    return isinstance(event, TrialProgress) and bool(event.measurements)


def wait_for_slots(backend: Fleet, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while backend.num_slots() != count:
        assert time.monotonic() < deadline, f"{backend.num_slots()} slots, not {count}"
        backend.poll(0.2)


@pytest.mark.slow
def test_a_dead_nodes_trial_is_preempted_and_goes_on_on_a_node_that_joins(
    ray_cluster: RayCluster, start: Start, tmp_path: Path
) -> None:
    node = ray_cluster.add(1, doomed=1)
    notes: list[str] = []
    backend = start(notes=notes, resources={"doomed": 1})
    wait_for_slots(backend, 1)
    started = time.monotonic()
    backend.start(job(tmp_path, behaviour="hang"))
    wait(backend, is_point)
    ray_cluster.kill(node)
    outcome = wait(backend, is_end).outcome
    assert outcome.end is TrialEnd.INTERRUPTED
    # The server of trials dies with its node, and may be missed before the node is. Then it is also known how long the
    # trial ran after its last report, of .1 s.
    assert re.fullmatch(r"preempted: (node .*|the server of trials) died", outcome.reason)
    assert 0.1 <= outcome.cost_seconds <= time.monotonic() - started
    assert outcome.steps == 1
    wait_for_slots(backend, 0)
    ray_cluster.add(1, doomed=1)
    wait_for_slots(backend, 1)
    backend.start(job(tmp_path, 1))
    assert wait(backend, is_end).outcome.end is TrialEnd.COMPLETE


@pytest.mark.slow
def test_trials_of_a_killed_sweep_end_themselves(ray_cluster: RayCluster, tmp_path: Path) -> None:
    """The sweep is killed as a power cut would do it: nobody tells the nodes."""
    program = f"""
import sys
sys.path[:0] = {[str(ROOT), str(ROOT / "tests" / "support")]!r}
import tests.protein.run.test_ray as tests
tests.sweep_that_is_killed({ray_cluster.address!r}, {str(tmp_path)!r})
"""
    sweep = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert sweep.stdout is not None
    assert sweep.stdout.readline() == "it runs\n"
    assert len(trials_in(tmp_path)) == 1
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    sweep.stdout.close()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while trials_in(tmp_path):
        assert time.monotonic() < deadline, "the trial of a dead sweep lives on"
        time.sleep(0.2)


def sweep_that_is_killed(address: str, folder: str) -> None:
    make = functools.partial(CommandBackend, Direction.MAXIMIZE)
    backend = Fleet(RayTransport(address, Needs()), ray_clusters.settings(Path(folder), make_backend=make))
    words = [sys.executable, "-S", "-c", "print(1, flush=True); import time; time.sleep(600)", f"{folder}/{{lr}}"]
    command = CommandSettings(text=shlex.join(words), params="placeholders", fixed={})
    trial = Trial(id=1, sweep_id=1, number=0, params={"lr": 0.5}, seed=0, owner="test")
    config = {"seed": 0, "max_seconds": None, "command": command.to_dict()}
    backend.start(
        Job(trial=trial, config=config, directory=Path(folder) / "0000", max_seconds=None, max_memory_bytes=None)
    )
    while not trials_in(Path(folder)):
        backend.poll(0.2)
    print("it runs", flush=True)
    time.sleep(600)


def trials_in(folder: Path) -> list[int]:
    """Returns the processes of trials that have the folder on their command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if f"{folder}/0.5" in words and "-S" in words and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


@pytest.mark.slow
def test_a_lost_connection_preempts_trials_and_the_next_one_connects_again(start: Start, tmp_path: Path) -> None:
    notes: list[str] = []
    backend = start(notes=notes)
    backend.start(job(tmp_path, behaviour="hang"))
    wait(backend, is_point)
    os.kill(driver_of(backend).pid, signal.SIGKILL)
    outcome = wait(backend, is_end).outcome
    assert (outcome.end, outcome.steps) == (TrialEnd.INTERRUPTED, 1)
    assert outcome.reason == "preempted: the connection to the Ray cluster was lost"
    assert backend.num_slots() >= 1
    backend.start(job(tmp_path, 1))
    assert wait(backend, is_end).outcome.end is TrialEnd.COMPLETE
    assert "the connection to the Ray cluster was lost; connecting again" in notes


@pytest.mark.slow
def test_trials_are_placed_where_their_resources_are(start: Start, tmp_path: Path) -> None:
    notes: list[str] = []
    backend = start(notes=notes, resources={"A100": 1})
    wait_for_slots(backend, 1)
    backend.start(job(tmp_path))
    assert wait(backend, is_end).outcome.end is TrialEnd.COMPLETE
    late = TrialProgress(trial=job(tmp_path).trial, measurements=())
    backend._take(backend._slots[0], late)
    assert backend.poll(0.0) == []
    assert notes[1:] == ["a late report of trial 0 was ignored: it runs elsewhere or has ended"]
    assert re.fullmatch(r"the Ray cluster at [\d.:]+ is used: .*1 node with \d cores?, 1 A100.*", notes[0])


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        (
            {"resources": {"TPU": 1}},
            r"a trial needs 1 of TPU, and no node of the Ray cluster has more than 0; the cluster at [\d.:]+ has .*"
            r"1 A100.*; lower --trial-cores, --gpus-per-trial or --resources, add a node, or give --backend ray:HOST",
        ),
        ({"gpus": 1}, "a trial needs 1 of GPUs, and no node"),
        ({"cores": 64}, r"a trial needs 64 of cores, and no node .* has more than \d+"),
    ],
)
def test_a_resource_that_no_node_has_is_said_at_once(start: Start, needs: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        start(**needs)


def test_a_node_with_another_version_of_protein_is_not_used_and_says_why(
    ray_cluster: RayCluster, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's Python finds facts of another release first."""
    facts = tmp_path / "old" / "protein_sweep-0.0.9.dist-info" / "METADATA"
    facts.parent.mkdir(parents=True)
    facts.write_text("Metadata-Version: 2.1\nName: protein-sweep\nVersion: 0.0.9\n")
    monkeypatch.setenv("PYTHONPATH", f"{facts.parent.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    node = ray_cluster.add(1, outdated=1)
    monkeypatch.undo()
    with pytest.raises(
        UsageError, match=r"^node .* is not used: it has protein 0.0.9, and this machine .*; install the same version$"
    ):
        start(resources={"outdated": 1})
    ray_cluster.kill(node)


@pytest.mark.slow
def test_a_slots_process_that_dies_gives_its_trial_back_with_rays_reason(start: Start, tmp_path: Path) -> None:
    backend = start(resources={"A100": 1})
    backend.start(job(tmp_path, behaviour="hang"))
    wait(backend, is_point)
    ours = psutil.Process().children(recursive=True)  # other clusters of this machine have slots, too
    slots = [process for process in ours if "ray::Slot" in " ".join(process.cmdline())]
    assert len(slots) == 1
    slots[0].kill()
    reason = wait(backend, is_end).outcome.reason
    assert re.match(
        r"preempted: the worker process on node .* died: .*worker process has died\. Worker exit type: ", reason
    )
    assert "\n" not in reason


def test_a_sweep_that_is_stopped_while_it_connects_ends_at_once(tmp_path: Path) -> None:
    """Here nobody ever answers, as on a cluster that is too busy."""
    ray_clusters.require_ray()
    with socket.create_server(("", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        asked = itertools.count()
        transport = RayTransport(address, Needs(), should_stop=lambda: next(asked) == 3)
        backend = Fleet(transport, ray_clusters.settings(tmp_path))
    assert backend.num_slots() == 0
    assert transport._driver._process.returncode is not None
    backend.close()


def test_a_folder_that_is_not_shared_is_said_at_once(ray_cluster: RayCluster, tmp_path: Path) -> None:
    """Nodes on this machine see every folder, so the file by which they would see it is named wrongly."""
    settings = ray_clusters.settings(tmp_path)
    (tmp_path / settings.probe).unlink()
    with pytest.raises(
        UsageError, match=r"does not see the folder of artifacts, .*; give --artifacts a folder that all"
    ):
        Fleet(RayTransport(ray_cluster.address, Needs()), settings)


@pytest.mark.slow
def test_another_version_of_python_is_one_clear_line(ray_cluster: RayCluster, tmp_path: Path) -> None:
    from ray._common.usage import usage_constants
    from ray._private.ray_constants import KV_NAMESPACE_CLUSTER
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # it is compiled

    client = GcsClient(address=ray_cluster.address)
    key, space = usage_constants.CLUSTER_METADATA_KEY, KV_NAMESPACE_CLUSTER
    kept = client.internal_kv_get(key, space)
    client.internal_kv_put(key, kept.replace(b'"python_version": "3.', b'"python_version": "2.'), True, space)
    try:
        with pytest.raises(
            UsageError, match=r"cannot use the Ray cluster at '.*': Version mismatch: .*Python: 2\."
        ) as raised:
            ray_clusters.backend(ray_cluster.address, tmp_path)
    finally:
        client.internal_kv_put(key, kept, True, space)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "there is no Ray cluster at 127.0.0.1:1 .*; start one with ray start --head"),
        ("ray://head:10001", "'ray://head:10001' is no address of a Ray cluster: give HOST:PORT"),
        ("head", "'head' is no address of a Ray cluster: give HOST:PORT"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_clear_line(tmp_path: Path, address: str, message: str) -> None:
    ray_clusters.require_ray()
    with pytest.raises(UsageError, match=message):
        ray_clusters.backend(address, tmp_path)

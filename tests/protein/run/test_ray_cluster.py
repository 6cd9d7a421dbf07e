"""What a person reads of a Ray cluster: its nodes, and Ray's errors, in one line each."""

import importlib.metadata
import multiprocessing
import platform
import time
from pathlib import Path

import pytest
import ray_clusters

from protein.ports import Job
from protein.run.ray_messages import Connect, Needs
from protein.types import Trial

ray_clusters.require_ray()

from protein.run import ray_cluster, ray_fleet  # noqa: E402 (they import Ray)

# As Ray 2.60 says it.
ABOUT = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: _SlotActor\n\tactor_id: b27c4c6\n"
    "\tpid: 16344\n\tnamespace: 3965e56b-52bf\n\tip: 192.0.2.2\n"
)
CRASHED = (
    ABOUT + "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail:"
    " Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the"
    " process was killed by the OOM killer due to high memory usage, (2) ray stop --force was called"
)
NODE_DIED = (
    ABOUT + "The actor died because its node has died. Node Id: 639329\n\tthe actor's node was terminated unexpectedly:"
    " health check failed due to missing too many heartbeats"
)
INIT = (
    "The actor died because of an error raised in its creation task, \x1b[36mray::A.__init__()\x1b[39m (pid=15775)\n"
    '           ^^^^^^\n  File "/x/t.py", line 13, in __init__\n    raise ValueError("a")\n            ^^^^^^\n'
    "ValueError: no such thing\nsecond line"
)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            CRASHED,
            "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail:"
            " Worker unexpectedly exits with a connection error code 2. End of file.",
        ),
        (
            NODE_DIED,
            "The actor died because its node has died. Node Id: 639329 the actor's node was terminated unexpectedly:"
            " health check failed due to missing too many heartbeats",
        ),
        (INIT, "ValueError: no such thing second line"),
        (
            "The actor died unexpectedly before finishing this task.",
            "The actor died unexpectedly before finishing this task.",
        ),
        ("x" * 1000, "x" * ray_cluster.MAX_REASON),
        (ValueError(), "ValueError"),
    ],
)
def test_an_error_of_rays_is_one_line_with_its_reason(error: object, line: str) -> None:
    assert ray_cluster.in_one_line(error) == line


def test_what_nodes_have_is_counted_and_said_without_what_all_nodes_have() -> None:
    plain = {"memory": 1e9, "object_store_memory": 1e8, "node:192.0.2.2": 1.0}
    found: list[dict[str, float]] = [
        {"CPU": 8.0, "GPU": 1.0, "A100": 1.0},
        {"CPU": 1.0},
        {"CPU": 8.0, "GPU": 1.0, "A100": 1.0},
        {},
    ]
    nodes = [{"Resources": plain | one} for one in found]
    words = "2 nodes with 8 cores, 1 GPU, 1 A100, 1 node with 1 core and 1 node with no cores"
    assert ray_cluster.nodes_in_words(nodes) == words
    assert ray_cluster.nodes_in_words(nodes[1:2]) == "1 node with 1 core"
    assert ray_cluster.nodes_in_words([]) == "no node"


def test_a_node_is_asked_for_its_version_before_anything_else() -> None:
    here = importlib.metadata.version("protein-sweep")
    host = platform.node()
    assert ray_cluster.asked(here, max, 1, 2)() == (host, 2)
    problem = f"it has protein {here}, and this machine 0.0.0; install the same version"
    assert ray_cluster.asked("0.0.0", max, 1, 2)() == (host, problem)


def test_a_node_without_protein_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    _, problem = ray_cluster.asked("1.2.3", max, 1, 2)()
    assert problem.startswith("protein is not installed there, for ")
    assert problem.endswith("; this machine has protein 1.2.3")


def test_a_trial_that_comes_while_further_nodes_are_still_asked_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep sends trials as soon as one node has answered."""
    monkeypatch.setattr(ray_cluster, "where", lambda: "head:1")
    monkeypatch.setattr(ray_fleet, "OTHERS_SECONDS", 0.1)
    monkeypatch.setattr(ray_fleet, "LOOK_SECONDS", 0.1)
    here, _there = multiprocessing.Pipe()
    fleet = ray_fleet.Fleet(here, Connect(address=None, needs=Needs(), slot=ray_clusters.settings(tmp_path)))
    fleet._names = {"first": "vm", "late": "vm"}
    fleet._hosts, fleet._asked = {"first": "vm"}, {"late": time.monotonic()}
    trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")
    job = Job(trial=trial, config={}, directory=tmp_path / "0000", max_seconds=None, max_memory_bytes=None)
    fleet.news.put((None, job))
    fleet._require_a_node({"first": {"Resources": {"CPU": 1.0}}}, {"first"})
    assert fleet._waiting == [job]

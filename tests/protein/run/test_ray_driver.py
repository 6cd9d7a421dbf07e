"""The nodes of a Ray cluster, and what a person reads of them, without a cluster; with one: `test_ray.py`."""

import importlib.metadata
import multiprocessing
import platform
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray_clusters

ray_clusters.require_ray()

import ray  # noqa: E402
from ray.exceptions import RayTaskError  # noqa: E402

from protein.errors import UsageError  # noqa: E402
from protein.ports import Finished  # noqa: E402
from protein.run import ray_driver  # noqa: E402
from protein.run.fleet import Lost  # noqa: E402
from protein.run.ray import Connect, Needs, Slots, Wanted  # noqa: E402
from protein.run.ray_driver import Cluster  # noqa: E402
from protein.run.slot import Facts, Leaving, Note  # noqa: E402
from protein.types import Outcome, Trial, TrialEnd  # noqa: E402

# As Ray 2.60 says it.
ABOUT = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: Slot\n\tactor_id: b27c4c6\n"
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
        ("x" * 1000, "x" * ray_driver.MAX_REASON),
        (ValueError(), "ValueError"),
    ],
)
def test_an_error_of_rays_is_one_line_with_its_reason(error: object, line: str) -> None:
    assert ray_driver.in_one_line(error) == line


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
    assert ray_driver.nodes_in_words(nodes) == words
    assert ray_driver.nodes_in_words(nodes[1:2]) == "1 node with 1 core"
    assert ray_driver.nodes_in_words([]) == "no node"


def test_a_node_is_asked_for_its_version_before_anything_else() -> None:
    here = importlib.metadata.version("protein-sweep")
    host = platform.node()
    assert ray_driver.asked(here, max, 1, 2)() == (host, 2)
    problem = f"it has protein {here}, and this machine 0.0.0; install the same version"
    assert ray_driver.asked("0.0.0", max, 1, 2)() == (host, problem)


def test_a_node_without_protein_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    _, problem = ray_driver.asked("1.2.3", max, 1, 2)()
    assert problem.startswith("protein is not installed there, for ")
    assert problem.endswith("; this machine has protein 1.2.3")


def facts(host: str) -> Facts:
    return Facts(host=host, version="1", shares_artifacts=True)


def test_a_trial_that_comes_while_further_nodes_are_still_asked_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep sends trials as soon as one node has answered."""
    monkeypatch.setattr(ray_driver, "where", lambda: "head:1")
    monkeypatch.setattr(ray_driver, "OTHERS_SECONDS", 0.1)
    monkeypatch.setattr(ray_driver, "LOOK_SECONDS", 0.1)
    here, _there = multiprocessing.Pipe()
    cluster = Cluster(here, Connect(address=None, needs=Needs(), slot=ray_clusters.settings(tmp_path)))
    cluster._names = {"first": "vm", "late": "vm"}
    cluster._facts, cluster._asked = {"first": facts("vm")}, {"late": time.monotonic()}
    cluster.news.put((None, Wanted(number=1)))
    cluster._require_a_node({"first": {"Resources": {"CPU": 1.0}}}, {"first"})
    assert cluster._wanted == 1


class Sent:
    """The connection to the sweep."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, message: Any) -> None:
        self.messages.append(message)


def test_a_node_that_cannot_start_a_trial_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fail trial after trial at once, as it always has room, until each has spent its attempts."""

    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    state = SimpleNamespace(available_resources_per_node=lambda: {"a": {"CPU": 1.0}, "b": {"CPU": 1.0}})
    ray = SimpleNamespace(nodes=list, kill=lambda actor: None, _private=SimpleNamespace(state=state))
    monkeypatch.setattr(ray_driver, "time", clock)
    monkeypatch.setattr(ray_driver, "ray", ray)
    monkeypatch.setattr(Cluster, "_is_gone", lambda self, node: False)
    sent: Any = Sent()
    cluster = Cluster(sent, Connect(address=None, needs=Needs(), slot=ray_clusters.settings(tmp_path)))
    cluster._names = {"a": "north", "b": "south"}
    cluster._facts = {node: facts(name) for node, name in cluster._names.items()}
    slot = ray_driver._Slot(number=7, node="a", actor=None, is_busy=True)
    cluster._slots[7] = slot

    cluster._on_answer(slot, RayTaskError("start", "", OSError(28, "No space left on device")))
    assert Note(text="node north gets no trial for 60 s: [Errno 28] No space left on device") in sent.messages
    assert (7, Lost(why="node north cannot run it: [Errno 28] No space left on device")) in sent.messages
    cluster._count_room()
    assert cluster._room == {"a": 0, "b": 1}
    cluster._tell()
    assert sent.messages[-1] == Slots(number=1)
    monkeypatch.setattr(Cluster, "_is_gone", lambda self, node: node == "a")  # and Ray goes on to list it as alive
    now[0] += ray_driver.REST_SECONDS
    cluster._count_room()
    assert cluster._room == {"a": 0, "b": 1}
    monkeypatch.setattr(Cluster, "_is_gone", lambda self, node: False)
    now[0] += ray_driver.REST_SECONDS
    cluster._count_room()
    assert cluster._room == {"a": 1, "b": 1}


def test_a_slot_without_a_trial_is_dropped_when_its_node_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for an answer of it, which would fail."""
    monkeypatch.setattr(ray_driver, "ray", SimpleNamespace(nodes=list, kill=lambda actor: None))
    sent: Any = Sent()
    cluster = Cluster(sent, Connect(address=None, needs=Needs(), slot=ray_clusters.settings(tmp_path)))
    cluster._names, cluster._facts, cluster._placed_at = {"a": "north"}, {"a": facts("north")}, time.monotonic()
    cluster._slots = {number: ray_driver._Slot(number=number, node="a", actor=None) for number in (1, 2)}
    cluster._slots[2].is_busy = True
    cluster._look()
    assert list(cluster._slots) == [2]
    assert Note(text="node north has left the cluster") in sent.messages
    assert (1, Lost(why="node north died")) in sent.messages and sent.messages[-1] == Slots(number=1)


def test_a_node_whose_disk_a_trial_has_filled_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_driver, "ray", SimpleNamespace(nodes=list, kill=lambda actor: None))
    sent: Any = Sent()
    cluster = Cluster(sent, Connect(address=None, needs=Needs(), slot=ray_clusters.settings(tmp_path)))
    cluster._names, cluster._room = {"a": "north", "b": "south"}, {"a": 3, "b": 1}
    for number, node, is_busy in ((0, "a", True), (1, "a", False), (2, "a", True), (3, "b", False)):
        cluster._slots[number] = ray_driver._Slot(number=number, node=node, actor=None, is_busy=is_busy)
    trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")
    end = Finished(trial=trial, outcome=Outcome(end=TrialEnd.INTERRUPTED, reason="preempted: no room"))
    cluster._on_answer(cluster._slots[0], [end, Leaving()])
    lost = Lost(why="the disk of node north is full")
    assert [one for one in sent.messages if not isinstance(one, Slots)] == [(0, end), (0, lost), (1, lost)]
    assert set(cluster._slots) == {2, 3} and cluster._room == {"b": 1}
    assert sent.messages[-1] == Slots(number=3) and "a" in cluster._rests


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ray's own file that names the cluster of this machine, where no process of Ray's runs."""
    file = tmp_path / "ray_current_cluster"
    monkeypatch.setattr("ray._private.utils.get_ray_address_file", lambda folder: str(file))
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", set)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def never(*given: object, **named: object) -> None:
        raise AssertionError("Ray is not asked for what does not answer: it waits for minutes")

    monkeypatch.setattr("ray.init", never)
    return file


class Others:
    """A port of this machine on which another program listens, or nobody."""

    def __init__(self, says: bytes | None) -> None:
        """`says`: what the program sends to who connects; empty: nothing; None: nobody listens."""
        self._says = says
        self._socket = socket.socket()
        self._socket.bind(("", 0))
        self.address = f"{ray.util.get_node_ip_address()}:{self._socket.getsockname()[1]}"
        if says is not None:
            self._socket.listen()
            self._thread = threading.Thread(target=self._serve, daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            if self._says:
                connection.sendall(self._says)
                connection.recv(1 << 16)
            else:
                connection.recv(1)
                while connection.recv(1 << 16):  # until the other side gives up
                    pass

    def close(self) -> None:
        self._socket.close()


SAYS = {
    "nobody": (None, "Connection refused"),
    "a web server": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "another program answers there"),
    "a mute one": (b"", "timed out"),
}


@pytest.mark.parametrize("who", SAYS)
@pytest.mark.parametrize("by", ["file", "variable", "command"])
@pytest.mark.parametrize("address", [None, "auto"])
def test_a_cluster_that_was_killed_is_told_within_seconds_whatever_names_it(
    named: Path, monkeypatch: pytest.MonkeyPatch, who: str, by: str, address: str | None
) -> None:
    monkeypatch.setattr(ray_driver, "ANSWER_SECONDS", 0.1)
    says, reason = SAYS[who]
    other = Others(says)
    if by == "file":
        named.write_text(other.address)
        remedy = (
            f"{named} names it. If it has been killed, start one with ray start --head, or give .*delete that file$"
        )
    elif by == "variable":
        monkeypatch.setenv("RAY_ADDRESS", other.address)
        remedy = "the variable RAY_ADDRESS names it. If it has been killed, start one with ray start --head, or give"
    else:
        address, remedy = other.address, "start one with ray start --head$"
    with pytest.raises(
        UsageError, match=rf"^there is no Ray cluster at {other.address} \({reason}\); {remedy}"
    ) as raised:
        ray_driver.connect(address)
    assert "\n" not in str(raised.value)
    other.close()


def test_a_variable_that_is_no_address_is_named(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(UsageError, match=r"'ray://head:10001' in the variable RAY_ADDRESS is no address of a Ray cl"):
        ray_driver.connect(None)


def test_without_any_cluster_auto_says_so(named: Path) -> None:
    with pytest.raises(UsageError, match="no Ray cluster was found on this machine: start one with ray start --head"):
        ray_driver.connect("auto")

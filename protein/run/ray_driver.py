"""The process between a sweep and Ray, which `protein.run.ray` starts: the nodes of a cluster, and actors on them.

A slot (`protein.run.slot`) is an actor that holds the resources of one trial on one node, and lives across trials. The
node is chosen here, so that it is known which one died. When the sweep's process ends, for any reason, this one ends,
and Ray then ends what it had started for it.
"""

import collections
import contextlib
import dataclasses
import itertools
import logging
import math
import os
import queue
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray._private import services, utils
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from protein.errors import ProteinError, UsageError
from protein.ports import Finished, Job
from protein.run.fleet import Lost
from protein.run.ray import Connect, Failure, Slots, Wanted
from protein.run.slot import Facts, Leaving, Note, Ready, Slot, facts, version

CONNECT_SECONDS = 5.0  # within which the head must accept a connection
ANSWER_SECONDS = 10.0  # within which it must then say which protocol it speaks
OBJECT_STORE_BYTES = 100 << 20  # of a Ray that is started here: reports are small
POLL_SECONDS = 0.5  # how long a slot waits for news of its trial before it answers
LOOK_SECONDS = 1.0  # how often nodes and their free resources are looked at
SETTLE_SECONDS = 3.0  # after which Ray's figures of free resources count a new actor
NODE_SECONDS = 600.0  # within which a node must answer what it is: it starts a process, and may calibrate itself
SLOW_SECONDS = 60.0  # after which a person is told that no node has answered yet
OTHERS_SECONDS = 5.0  # for further nodes to answer, once one can run trials
REST_SECONDS = 60.0  # for which a node that died or could not start a trial gets none: its disk may be full
CLOSE_SECONDS = 5.0  # for slots to end in order
MAX_REASON = 300  # characters of an error of Ray's that are shown
# A client's first words in HTTP/2, on which Ray's servers are built, with empty settings; and the kind of the answer.
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_HTTP2_SETTINGS = b"\x04"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r'File "[^"]+", line \d+')
_NO_RESOURCE = re.compile(r"memory$|object_store_memory$|node:")  # what every node has, beside what trials ask for
_ABOUT_THE_ACTOR = re.compile(r"(class_name|actor_id|pid|name|namespace|ip): |The actor died unexpectedly before")


def main(descriptor: int) -> None:
    """Serves the sweep at the other end of a socket until that closes it. Ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep ends this process, after its trials
    connection = Connection(descriptor)
    first = connection.recv()
    cluster, connected = Cluster(connection, first), threading.Event()
    threading.Thread(target=_listen, args=(connection, cluster.news, connected), daemon=True).start()
    code = 0
    try:
        started = connect(first.address)
        nodes = nodes_in_words(node for node in ray.nodes() if node["Alive"])
        how = "was started here, as none ran on this machine" if started else "is used"
        connection.send(Note(text=f"the Ray cluster at {where()} {how}: {nodes}"))
        cluster.find_nodes()
        connected.set()
        cluster.run()
    except ProteinError as error:
        connection.send(Failure(message=str(error)))
        code = error.exit_code
    finally:
        ray.shutdown()
    sys.exit(code)


def _listen(
    connection: Connection, news: "queue.SimpleQueue[tuple[object, object]]", connected: threading.Event
) -> None:
    """Puts the sweep's messages into the news; ends this process at once where the sweep ends before it is connected.

    That may take minutes on a busy machine, and Ray does not let itself be interrupted.
    """
    while True:
        try:
            news.put((None, connection.recv()))
        except (EOFError, OSError):
            if not connected.is_set():
                os._exit(1)
            news.put((None, None))
            return


@dataclasses.dataclass(eq=False, slots=True, kw_only=True)
class _Slot:
    number: int
    node: str  # its id
    actor: Any
    is_busy: bool = False  # with a trial


class Cluster:
    """The nodes of a cluster, and one sweep's slots there. One thread runs it; all that happens comes through `news`.

    Attributes:
        news: answers of slots and nodes, each after the one who was asked; messages of the sweep after None; and None
            twice when the sweep has closed the connection.
    """

    def __init__(self, connection: Connection, first: Connect) -> None:
        self._connection, self._needs, self._settings = connection, first.needs, first.slot
        self.news: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self._names: dict[str, str] = {}  # of all nodes that were seen, by node id
        self._facts: dict[str, Facts] = {}  # of the nodes that have answered, by node id
        self._asked: dict[str, float] = {}  # nodes that have not answered yet: when they were asked
        self._unfit: dict[str, str] = {}  # why nodes are not used, by node id
        self._rests: dict[str, float] = {}  # until when nodes get no trial, on the monotonic clock, by node id
        self._slots: dict[int, _Slot] = {}  # by their numbers
        self._numbers = itertools.count()
        self._wanted = 0  # slots
        self._room: dict[str, int] = {}  # how many more slots each node could hold, by node id
        self._placed_at = -NODE_SECONDS  # when the last slot was made, on the monotonic clock
        self._told = -1  # the number of slots that was told last

    def find_nodes(self) -> None:
        """Waits until a node can run trials. Raises `UsageError` where none can."""
        self._look(first=True)

    def run(self) -> None:
        """Serves until the sweep closes the connection."""
        looked = time.monotonic()
        while True:
            with contextlib.suppress(queue.Empty):
                source, news = self.news.get(timeout=LOOK_SECONDS)
                if source is None and news is None:
                    self._close()
                    return
                self._handle(source, news)
            if time.monotonic() - looked >= LOOK_SECONDS:
                self._look()
                looked = time.monotonic()

    def _close(self) -> None:
        if closing := [slot.actor.close.remote() for slot in self._slots.values()]:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)

    def _handle(self, source: Any, news: Any) -> None:
        if isinstance(source, _Slot):
            self._on_answer(source, news)
        elif source is not None:
            self._on_facts(source, news)
        elif isinstance(news, Wanted):
            self._wanted = news.number
            self._make_slots()
        else:
            number, message = news
            if (slot := self._slots.get(number)) is None:  # it was lost in the meantime, and the sweep is told
                return
            if isinstance(message, Job):
                slot.is_busy = True
                self._call(slot, slot.actor.start.remote(message))
            else:
                slot.actor.stop.remote(message.trial, message.end, message.reason)

    def _make_slots(self) -> None:
        while len(self._slots) < self._wanted and (slot := self._new_slot()) is not None:
            self._send((slot.number, Ready(facts=self._facts[slot.node], seconds_left=None)))
        self._tell()

    def _new_slot(self) -> _Slot | None:
        node = max(self._room, key=lambda node: self._room[node], default=None)
        if node is None or self._room[node] < 1:
            return None
        self._room[node] -= 1
        self._placed_at = time.monotonic()
        actor = (
            ray.remote(Slot)
            .options(
                num_cpus=self._needs.cores,
                num_gpus=self._needs.gpus,
                resources=dict(self._needs.resources),
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
                max_restarts=0,
            )
            .remote(self._settings)
        )
        slot = _Slot(number=next(self._numbers), node=node, actor=actor)
        self._slots[slot.number] = slot
        return slot

    def _call(self, source: Any, reference: Any) -> None:
        """Puts the result of a call, or its exception, into the news when it is there."""

        def done(future: Any) -> None:
            error = future.exception()
            self.news.put((source, future.result() if error is None else error))

        reference.future().add_done_callback(done)

    def _on_answer(self, slot: _Slot, answer: Any) -> None:
        if slot.number not in self._slots:
            return
        if isinstance(answer, RayError):  # the slot has died, or lives and could not start its trial
            self._on_lost(slot, answer)
            return
        for news in answer or []:
            if isinstance(news, Finished):
                slot.is_busy = False
            if isinstance(news, Leaving):  # the disk of its node is full
                self._rest(slot.node)
                for idle in [one for one in self._slots.values() if one.node == slot.node and not one.is_busy]:
                    self._drop(idle, f"the disk of node {self._names[slot.node]} is full")
                return
            self._send(news if isinstance(news, Note) else (slot.number, news))
        if slot.is_busy:
            self._call(slot, slot.actor.poll.remote(POLL_SECONDS))

    def _on_lost(self, slot: _Slot, error: RayError) -> None:
        host, cause = self._names[slot.node], in_one_line(getattr(error, "cause", None) or error)
        if self._is_gone(slot.node):
            why = f"node {host} died"
            self._rest(slot.node)  # Ray may go on to list it as alive
        elif isinstance(error, RayActorError):
            why = f"the worker process on node {host} died: {cause}"
        else:
            why = f"node {host} cannot run it: {cause}"
            self._rest(slot.node)
            self._send(Note(text=f"node {host} gets no trial for {REST_SECONDS:.0f} s: {cause}"))
        self._drop(slot, why)

    def _drop(self, slot: _Slot, why: str) -> None:
        """Takes a slot away."""
        del self._slots[slot.number]
        self._wanted -= slot.is_busy  # until the sweep starts another trial
        with contextlib.suppress(RayError, ValueError):  # it may live, and only not be reached: nobody waits for it now
            ray.kill(slot.actor)
        self._send((slot.number, Lost(why=why)))
        self._tell()

    def _rest(self, node: str) -> None:
        """Places no trial on a node for a while."""
        self._rests[node] = time.monotonic() + REST_SECONDS
        self._room.pop(node, None)

    def _is_gone(self, node: str) -> bool:
        """Whether a node's daemon has ended. Ray itself may take minutes to say so."""
        known = next((one for one in ray.nodes() if one["NodeID"] == node and one["Alive"]), None)
        if known is None:
            return True
        try:
            socket.create_connection((known["NodeManagerAddress"], known["NodeManagerPort"]), timeout=1.0).close()
        except OSError:
            return True
        return False

    def _look(self, *, first: bool = False) -> None:
        """Asks nodes that are new what they are, and counts the slots that more trials could have."""
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        self._names |= {node: known["NodeManagerHostname"] for node, known in alive.items()}
        for gone in [node for node in self._facts if node not in alive]:
            self._send(Note(text=f"node {self._facts.pop(gone).host} has left the cluster"))
            self._room.pop(gone, None)
        for slot in [slot for slot in self._slots.values() if slot.node not in alive and not slot.is_busy]:
            self._drop(slot, f"node {self._names[slot.node]} died")  # nobody waits for an answer of it
        fit = {node for node, known in alive.items() if self._fits(known["Resources"]) and node not in self._unfit}
        for node in fit - set(self._facts) - set(self._asked):
            self._asked[node] = time.monotonic()
            affinity = NodeAffinitySchedulingStrategy(node, soft=False)
            question = ray.remote(asked(version(), facts, self._settings))
            self._call(node, question.options(num_cpus=0, scheduling_strategy=affinity, max_retries=0).remote())
        if first:
            self._require_a_node(alive, fit)
        for node, since in list(self._asked.items()):
            if time.monotonic() - since > NODE_SECONDS:
                self._refuse(node, f"it has not answered within {NODE_SECONDS:.0f} s")
        if time.monotonic() - self._placed_at > SETTLE_SECONDS:
            self._count_room()
        self._make_slots()

    def _fits(self, resources: Mapping[str, float]) -> bool:
        return all(resources.get(name, 0.0) >= amount for name, amount in self._needs.by_name().items())

    def _count_room(self) -> None:
        free = ray._private.state.available_resources_per_node()
        for node in self._facts:
            if time.monotonic() >= self._rests.get(node, math.inf):
                del self._rests[node]
                if self._is_gone(node):
                    self._rest(node)
            counts = [free.get(node, {}).get(name, 0.0) / amount for name, amount in self._needs.by_name().items()]
            self._room[node] = 0 if node in self._rests else int(min(counts) + 1e-6)

    def _require_a_node(self, alive: Mapping[str, Mapping[str, Any]], fit: set[str]) -> None:
        """Waits until a node has answered, and a moment for others. Raises `UsageError` unless one can run trials."""
        remedy = f"; the cluster at {where()} has {nodes_in_words(alive.values())}; lower"
        remedy += " --trial-cores, --gpus-per-trial or --resources, add a node, or give --backend ray:HOST:PORT"
        for name, amount in self._needs.by_name().items():
            most = max((node["Resources"].get(name, 0.0) for node in alive.values()), default=0.0)
            if most < amount:
                what = {"CPU": "cores", "GPU": "GPUs"}.get(name, name)
                raise UsageError(
                    f"a trial needs {amount:g} of {what}, and no node of the Ray cluster has more than {most:g}{remedy}"
                )
        if not fit:
            needs = in_words(self._needs.by_name())
            raise UsageError(f"no single node of the Ray cluster has all that a trial needs ({needs}){remedy}")
        until, told = time.monotonic() + NODE_SECONDS, time.monotonic()
        while self._asked and time.monotonic() < until:
            if time.monotonic() - told > SLOW_SECONDS:
                told = time.monotonic()
                names = ", ".join(sorted({self._names[node] for node in self._asked}))
                self._send(Note(text=f"waiting for the first process on {names}; on busy machines this takes minutes"))
            with contextlib.suppress(queue.Empty):
                self._handle(*self.news.get(timeout=LOOK_SECONDS))  # once a node has answered, trials may come, too
            if self._facts:
                until = min(until, time.monotonic() + OTHERS_SECONDS)
        if not self._facts:
            why = f"within {NODE_SECONDS:.0f} s" if self._asked else "before it died"
            nobody = f"no node of the Ray cluster has answered {why}; run the same command again"
            raise UsageError(next(iter(self._unfit.values()), nobody))

    def _on_facts(self, node: str, answer: Any) -> None:
        """Takes a node into use, or refuses it."""
        if node not in self._asked:
            return
        if isinstance(answer, Exception):
            if self._is_gone(node):  # it is not there to be refused, and nobody has counted on it
                del self._asked[node]
            else:
                self._refuse(node, f"protein does not run there: {in_one_line(answer)}")
            return
        self._names[node], answer = answer
        if not isinstance(answer, Facts):
            self._refuse(node, answer)
            return
        if not answer.shares_artifacts:
            folder = self._settings.artifacts
            remedy = "give --artifacts a folder that all nodes share, or a URL such as s3://BUCKET/FOLDER"
            self._refuse(node, f"it does not see the folder of artifacts, {folder}; {remedy}")
            return
        del self._asked[node]
        self._facts[node] = answer
        if answer.niceness > os.getpriority(os.PRIO_PROCESS, 0):
            remedy = "if others use it, too, start Ray there with RAY_worker_niceness=0 in its environment"
            self._send(
                Note(text=f"node {answer.host} runs trials with low priority (nice {answer.niceness}); {remedy}")
            )
        self._send(answer)
        self._count_room()
        self._make_slots()

    def _refuse(self, node: str, why: str) -> None:
        self._asked.pop(node, None)
        self._unfit[node] = f"node {self._names[node]} is not used: {why}"
        self._send(Note(text=self._unfit[node]))

    def _tell(self) -> None:
        number = len(self._slots) + sum(self._room.values())
        if number != self._told:
            self._told = number
            self._send(Slots(number=number))

    def _send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # the sweep has gone, which `_listen` notices
            self._connection.send(message)


def connect(address: str | None) -> bool:
    """Connects this process to a Ray cluster, or starts one on this machine where `address` is None and none runs.

    Returns:
        Whether one was started.

    Raises:
        UsageError: there is none at the address, it has another version of Python or Ray, or none could be started.
    """
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL, "configure_logging": False}
    source = ""
    if address in (None, "auto"):
        found = _found()
        if found is None and address is not None:
            raise UsageError(
                "no Ray cluster was found on this machine: start one with ray start --head, or give --backend"
                " ray:HOST:PORT"
            )
        address, source = found or (None, "")
    try:
        if address is None:
            ray.init(address="local", include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, **quiet)
            return True
        _require_an_answer(address, source)
        ray.init(address=address, **quiet)
    except ProteinError:
        raise
    except (ConnectionError, RuntimeError, ValueError) as error:
        another = "; give --backend ray:HOST:PORT for another one, or leave --backend out" if source else ""
        raise UsageError(f"cannot use the Ray cluster at '{address}': {in_one_line(error)}{another}") from error
    except Exception as error:  # Ray raises nothing more exact when it cannot start
        place = "on this machine" if address is None else f"at '{address}'"
        raise UsageError(f"Ray could not be started {place}: {in_one_line(error)}") from error
    return False


def _found() -> tuple[str, str] | None:
    """Returns the address of a cluster that Ray finds by itself, and what names it; None: Ray finds none."""
    given = os.environ.get("RAY_ADDRESS", "")
    if given not in ("", "auto"):
        return None if given == "local" else (given, "the variable RAY_ADDRESS")
    try:
        address = services.canonicalize_bootstrap_address_or_die("auto")
    except ConnectionError:
        return None
    file = Path(utils.get_ray_address_file(None))  # type: ignore[attr-defined]  # where older versions have it, too
    with contextlib.suppress(OSError):
        if file.read_text().strip() == address:
            return address, str(file)
    return address, "a process of Ray's"


def _require_an_answer(address: str, source: str = "") -> None:
    """Raises `UsageError` unless a Ray cluster answers there within seconds. Ray itself would wait for minutes.

    Args:
        address: of its head.
        source: what names the address; empty: the user has given it.
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit() or not host or "/" in host:
        given = f" in {source}" if source else ""
        raise UsageError(
            f"'{address}'{given} is no address of a Ray cluster: give HOST:PORT, as ray start --head prints it"
        )
    # Ray replaces names of this machine by its number in the network, where its own servers listen.
    host, _, port = str(services.canonicalize_bootstrap_address(address)).rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS) as tried:
            if os.environ.get("RAY_USE_TLS", "0") == "0":  # a server of HTTP/2 sends its settings first
                tried.settimeout(ANSWER_SECONDS)
                tried.sendall(_HTTP2_PREFACE)
                if (tried.recv(4) or b"----")[3:] != _HTTP2_SETTINGS:
                    raise OSError("another program answers there")
        return
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    remedy = "start one with ray start --head"
    if source:
        remedy = f"{source} names it. If it has been killed, {remedy}, or give --backend ray:HOST:PORT"
        if Path(source).is_file():
            remedy += ", or delete that file"
    raise UsageError(f"there is no Ray cluster at {address} ({reason}); {remedy}")


def where() -> str:
    """Returns the address of the cluster that this process is connected to, as `HOST:PORT`."""
    return str(ray.get_runtime_context().gcs_address)


def in_words(amounts: Mapping[str, float]) -> str:
    """Returns resources, by Ray's names, for a message: "4 cores, 1 A100"."""
    found = {name: amount for name, amount in amounts.items() if amount > 0 and not _NO_RESOURCE.match(name)}
    names = sorted(found, key=lambda name: (name not in ("CPU", "GPU"), name))  # cores and GPUs first
    many = {"CPU": "cores", "GPU": "GPUs"}
    one = {"CPU": "core", "GPU": "GPU"}
    parts = [f"{found[name]:g} {(one if found[name] == 1 else many).get(name, name)}" for name in names]
    return ", ".join(parts) or "no cores"


def nodes_in_words(nodes: Iterable[Mapping[str, Any]]) -> str:
    """Returns what nodes have, as `ray.nodes()` gives them: "2 nodes with 1 core and 1 node with no cores"."""
    counts = collections.Counter(in_words(node["Resources"]) for node in nodes)
    parts = [f"{count} node{'s' if count > 1 else ''} with {what}" for what, count in counts.most_common()]
    return " and ".join(", ".join(part) for part in (parts[:-1], parts[-1:]) if part) or "no node"


def in_one_line(error: object) -> str:
    """Returns what an error of Ray's says. Where it holds a remote traceback, that is the exception at its end."""
    text = _COLOUR.sub("", str(error)).partition(" Some common causes include: ")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip(" \t^~")]
    frames = [number for number, line in enumerate(lines) if _FRAME.match(line)]
    if frames:
        lines = lines[frames[-1] + 2 :] or lines[-1:]  # after the frame comes its line of code
    else:
        lines = [line for line in lines if not _ABOUT_THE_ACTOR.match(line)] or lines[:1]
    return " ".join(" ".join(lines).split())[:MAX_REASON] or type(error).__name__


def asked(version: str, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """Returns a function for a node, which calls this one there if the node has the same version of protein.

    Functions go to a node by their name, and settings by the names of their classes. A node with another version may
    not have them, and its errors would tell nobody why. So this asks for the version first, by a function that is sent
    as a whole, and needs nothing of the node.

    Returns:
        A function that returns the node's name and the answer, or the name and a text: why there is no answer.
    """
    sent = cloudpickle.dumps((function, arguments))

    def answer() -> tuple[str, Any]:
        import importlib.metadata
        import pickle
        import platform
        import sys

        host = platform.node()
        try:
            found = importlib.metadata.version("protein-sweep")
        except importlib.metadata.PackageNotFoundError:
            return host, f"protein is not installed there, for {sys.executable}; this machine has protein {version}"
        if found != version:
            return host, f"it has protein {found}, and this machine {version}; install the same version"
        function, arguments = pickle.loads(sent)
        return host, function(*arguments)

    return answer

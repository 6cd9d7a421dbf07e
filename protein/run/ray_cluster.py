"""A Ray cluster as a whole: how to connect to it, what its nodes have, and what its errors say, in one line each.

It is used in the process of `ray_driver` alone. Where trials are placed is `ray_fleet`'s.
"""

import collections
import contextlib
import logging
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ray
from ray import cloudpickle

from protein.errors import UsageError

CONNECT_SECONDS = 5.0  # within which the head must accept a connection
OBJECT_STORE_BYTES = 100 << 20  # of a Ray that is started here: reports are small
MAX_REASON = 300  # characters of an error of Ray's that are shown
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r'File "[^"]+", line \d+')
_NO_RESOURCE = re.compile(r"memory$|object_store_memory$|node:")  # what every node has, beside what trials ask for
_ABOUT_THE_ACTOR = re.compile(r"(class_name|actor_id|pid|name|namespace|ip): |The actor died unexpectedly before")


def connect(address: str | None) -> bool:
    """Connects this process to a Ray cluster, or starts one on this machine where `address` is None and none runs.

    Returns:
        Whether one was started.

    Raises:
        UsageError: there is none at the address, it has another version of Python or Ray, or none could be started.
    """
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL, "configure_logging": False}
    if address not in (None, "auto"):
        _require_an_answer(str(address))
    where = "on this machine" if address in (None, "auto") else f"at '{address}'"
    try:
        if address is None:
            with contextlib.suppress(ConnectionError):
                ray.init(address="auto", **quiet)
                return False
            ray.init(include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, **quiet)
            return True
        ray.init(address=address, **quiet)
    except ConnectionError as error:
        raise UsageError(
            f"no Ray cluster was found {where}: start one with ray start --head, or give --backend ray:ADDRESS"
        ) from error
    except (RuntimeError, ValueError) as error:
        another = "; give --backend ray:HOST:PORT for another one, or leave --backend out" if address is None else ""
        raise UsageError(f"cannot use the Ray cluster {where}: {in_one_line(error)}{another}") from error
    except Exception as error:  # Ray raises nothing more exact when it cannot start
        raise UsageError(f"Ray could not be started {where}: {in_one_line(error)}") from error
    return False


def _require_an_answer(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not port.isdigit() or not host or "/" in host:
        raise UsageError(f"'{address}' is no address of a Ray cluster: give HOST:PORT, as ray start --head prints it")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise UsageError(
            f"there is no Ray cluster at {address} ({error.strerror or error}); start one with ray start --head"
        ) from error


def where() -> str:
    """Returns the address of the cluster that this process is connected to, as `HOST:PORT`."""
    return str(ray.get_runtime_context().gcs_address)


def in_words(amounts: Mapping[str, float]) -> str:
    """Returns resources, by Ray's names, for a message: "4 cores, 1 A100"."""
    found = {name: amount for name, amount in amounts.items() if amount > 0 and not _NO_RESOURCE.match(name)}
    many = {"CPU": "cores", "GPU": "GPUs"}
    one = {"CPU": "core", "GPU": "GPU"}
    parts = [f"{found[name]:g} {(one if found[name] == 1 else many).get(name, name)}" for name in _ordered(found)]
    return ", ".join(parts) or "no cores"


def _ordered(names: Iterable[str]) -> list[str]:
    """Returns names of resources with cores and GPUs first."""
    return sorted(names, key=lambda name: (name not in ("CPU", "GPU"), name))


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

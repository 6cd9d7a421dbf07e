"""Ray clusters of several nodes on this machine, by Ray's own utility, and backends on them.

On a machine where other programs take most of the cores, a node of Ray may take minutes to start. Ray allows for
less, in three places. A node aborts where its helper processes have not written their ports to files within 15 s, which
no setting of Ray's changes; so ports are chosen and written here (`PORTS`). It kills helpers and workers that are slow
to start, and gives workers a low priority (`SLOW_MACHINE`). And who starts a node gives up after 30 s, and leaves
behind what runs; here that is after `START_SECONDS`.
"""

import contextlib
import functools
import importlib.util
import inspect
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
from patience import PATIENCE_SECONDS

from protein.run.fleet import Fleet
from protein.run.ray import Needs, RayTransport
from protein.run.slot import SlotSettings, put_probe
from protein.run.trainer import TrainerBackend

OBJECT_STORE_BYTES = 80 << 20  # the least that Ray accepts is 75 MiB
START_SECONDS = 300.0  # for a node to be known to its head
PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
# Ray's own limits within which a node's helpers and workers must have started; it kills the node or the worker else.
SLOW_MACHINE = {
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_worker_niceness": "0",  # 15 by default: where other programs run, a worker then gets next to nothing
}
# First on the path of all of Ray's processes here: without it, importing Ray takes 1.8 s instead of .5.
QUICK_IMPORTS = str(Path(__file__).parents[1] / "assets" / "quick_imports")
if QUICK_IMPORTS not in sys.path:
    sys.path.insert(0, QUICK_IMPORTS)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [QUICK_IMPORTS, os.environ.get("PYTHONPATH")]))


def require_ray() -> None:
    """Skips the test where Ray is not installed; in CI that is a failure."""
    if importlib.util.find_spec("ray") is None:
        reason = "Ray is not installed: pip install protein-sweep[ray]"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


def free_ports(count: int) -> list[int]:
    """Returns ports of this machine that nothing listens on."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def patient(ports: Mapping[str, int]) -> Iterator[None]:
    """Makes Ray's own functions wait for a slow machine while one node is started with these ports."""
    from ray._private import services

    known: Any = services.get_node
    start: Any = services.start_raylet

    def get_node(gcs_address: str, node_id: str) -> Any:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                return known(gcs_address, node_id)
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def start_raylet(*arguments: Any, **named: Any) -> Any:
        given = inspect.signature(start).bind(*arguments, **named).arguments
        for name, port in ports.items():
            Path(given["session_dir"], f"{name}_{given['node_id']}").write_text(str(port))
        return start(*arguments, **named)

    services.get_node, services.start_raylet = get_node, start_raylet
    try:
        yield
    finally:
        services.get_node, services.start_raylet = known, start


class RayCluster:
    """A cluster whose head runs no trials. Nodes may be added and killed.

    Attributes:
        address: of the head.
    """

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        os.environ.update(SLOW_MACHINE)  # the nodes inherit them
        self._cluster = Cluster()
        # Else the head is the cluster of this machine for all users of Ray, also after it has ended.
        with mock.patch("ray._private.utils.write_ray_address"):
            self.head = self._started(num_cpus=0, include_dashboard=False, include_log_monitor=False, no_monitor=True)
        self.address: str = self.head.address

    def add(self, cores: int, **resources: float) -> Any:
        """Adds a node and returns it."""
        return self._started(num_cpus=cores, resources=resources)

    def _started(self, **node: Any) -> Any:
        ports: dict[str, Any] = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        with patient(ports):
            return self._cluster.add_node(object_store_memory=OBJECT_STORE_BYTES, **ports, **node)

    def kill_head(self) -> None:
        """Kills the head as `kill -9` does."""
        self.head.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)

    def kill(self, node: Any) -> None:
        """Kills a node's daemon as `kill -9` does."""
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """Kills all that is left: nodes that end in order would ask a head that may be dead, for minutes."""
        for node in reversed(self._cluster.list_all_nodes()):
            node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)


class NodeProcess:
    """A node as a process (`ray_node`), in a session of its own: so it gets its own share of the cores."""

    def __init__(self, address: str, cores: int, *, hidden: Path | None = None, scratch: Path | None = None) -> None:
        """Starts it, and waits until it runs.

        Args:
            address: of the head.
            cores: that trials may have there.
            hidden: a folder in which the node sees nothing; this needs root.
            scratch: where its temporary files are.
        """
        here = {} if scratch is None else {"TMPDIR": str(scratch)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ray_node", address, str(cores), *([] if hidden is None else [str(hidden)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **here, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "it runs\n"

    def kill(self) -> None:
        """Kills all of it at once, as a power cut does."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._process.kill()
        self._process.communicate()


def can_hide_folders() -> bool:
    """Whether this process may give others a file system of their own, for nodes that share no folder."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


@contextmanager
def running() -> Iterator[RayCluster]:
    require_ray()
    cluster = RayCluster()
    try:
        yield cluster
    finally:
        cluster.close()


def settings(artifacts: Path, **changes: Any) -> SlotSettings:
    """Returns settings of slots that run tests/assets/trial.py."""
    made: dict[str, Any] = {
        "make_backend": functools.partial(
            TrainerBackend, entry="trial:main", preload=(), silence_seconds=PATIENCE_SECONDS
        ),
        "artifacts": artifacts,
        "search_path": tuple(sys.path),
        "working_directory": str(Path.cwd()),
    }
    made |= changes
    return SlotSettings(**made, probe=put_probe(artifacts, made.get("artifacts_url")))


def backend(address: str, artifacts: Path, **needs: Any) -> Fleet:
    return Fleet(RayTransport(address, Needs(**needs)), settings(artifacts))

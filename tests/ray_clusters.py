"""Ray clusters of several nodes on this machine, by Ray's own utility, and backends on them."""

import functools
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protein.sweep.backends.local import LocalBackend
from protein.sweep.backends.ray import RayBackend
from protein.sweep.backends.ray_messages import Needs
from protein.sweep.backends.slot import SlotSettings, put_probe

OBJECT_STORE_BYTES = 80 << 20  # the least that Ray accepts is 75 MiB
PATIENCE_SECONDS = 120.0
NODE_TRIES = 4


def require_ray() -> None:
    """Skips the test where Ray is not installed; in CI that is a failure."""
    if importlib.util.find_spec("ray") is None:
        reason = "Ray is not installed: pip install protein-sweep[ray]"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


class RayCluster:
    """A cluster whose head runs no trials. Nodes may be added and killed.

    Attributes:
        address: of the head.
    """

    def __init__(self) -> None:
        self._cluster: Any = None
        self.head = self._started(num_cpus=0, include_dashboard=False)
        self.address: str = self.head.address

    def add(self, cores: int, **resources: float) -> Any:
        """Adds a node and returns it."""
        return self._started(num_cpus=cores, resources=resources)

    def _started(self, **node: Any) -> Any:
        """Starts a node. On a busy machine Ray gives up after 30 s, so it is tried again."""
        from ray.cluster_utils import Cluster

        for tries_left in reversed(range(NODE_TRIES)):
            if self._cluster is None or not self._cluster.list_all_nodes():
                self._cluster = Cluster()
            try:
                return self._cluster.add_node(object_store_memory=OBJECT_STORE_BYTES, **node)
            except Exception as error:  # Ray raises nothing more exact
                if "timed out during startup" not in str(error) or not tries_left:
                    raise
        raise AssertionError("unreachable")

    def kill(self, node: Any) -> None:
        """Kills a node's daemon as `kill -9` does."""
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


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
            LocalBackend, entry="trial:main", preload=(), silence_seconds=PATIENCE_SECONDS
        ),
        "artifacts": artifacts,
        "search_path": tuple(sys.path),
        "working_directory": str(Path.cwd()),
    }
    made |= changes
    return SlotSettings(**made, probe=put_probe(artifacts, made.get("artifacts_url")))


def backend(address: str, artifacts: Path, **needs: Any) -> RayBackend:
    return RayBackend(address, Needs(**needs), settings(artifacts))

"""The trackers by name: which package each needs, and which extra installs it."""

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from protein.errors import UsageError
from protein.spelling import nearest
from protein.trackers.tracker import Tracker


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    module: str  # has `make(folder)`
    package: str  # that must be installed
    title: str


TRACKERS: Mapping[str, _Kind] = {
    "mlflow": _Kind(module="protein.trackers.mlflow", package="mlflow", title="MLflow"),
    "neptune": _Kind(module="protein.trackers.neptune", package="neptune", title="Neptune"),
    "wandb": _Kind(module="protein.trackers.wandb", package="wandb", title="Weights & Biases"),
    "tensorboard": _Kind(module="protein.trackers.tensorboard", package="tensorboard", title="TensorBoard"),
    "trackio": _Kind(module="protein.trackers.trackio", package="trackio", title="Trackio"),
}


def check(names: Iterable[str], flag: str = "--tracker") -> tuple[str, ...]:
    """Returns the names of trackers, each once and in order.

    Raises:
        UsageError: a name is unknown, or the tracker's package is not installed.
    """
    found: list[str] = []
    for name in names:
        if name not in TRACKERS:
            raise UsageError(f"{flag} '{name}' is no tracker{nearest(name, TRACKERS)}")
        if importlib.util.find_spec(TRACKERS[name].package) is None:
            raise UsageError(
                f"{flag} {name} needs the package {TRACKERS[name].package}, which is not installed; run"
                f" pip install 'protein-sweep[{name}]'"
            )
        if name not in found:
            found.append(name)
    return tuple(found)


def make(name: str, folder: Path) -> Tracker:
    """Returns a tracker, and imports its package, which may take seconds.

    Args:
        name: one that `check` has passed.
        folder: where it writes unless the tool's own environment variables say otherwise; it may not exist yet.
    """
    factory: Callable[[Path], Tracker] = importlib.import_module(TRACKERS[name].module).make
    return factory(folder)

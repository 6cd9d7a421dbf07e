"""One file that holds a run: weights, optimiser, random state and environments, with JSON metadata.

The file is a safetensors file, so reading one runs no code. Tensors are grouped by prefix: `policy/` (the network),
`optimizer/` (state of the optimisers, the loss scaler and the shuffling), `rollout/`, `rollout1/` and so on (each
process's environments, observations, recurrent state and action noise), `scaling/` (the moments by which observations
are normalised and rewards scaled, where they are), `snapshot/` (with overlap, the weights that
collect) and `run/` (recent scores). The metadata name the environment, the run's configuration, its steps and its
score.

Writing is atomic: a temporary file is written beside the target, flushed to the disk and renamed. After a crash there
is either the old file or the new one.
"""

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from ...envs_c import EnvSpec
from ..config import RunConfig
from ..errors import CheckpointError, ConfigError, DiskError

FORMAT = "protein-checkpoint-2"
FILE_NAME = "checkpoint.safetensors"
ACTING = ("policy/", "scaling/")  # the groups that playing needs
STABLE_FILE_NAME = "stable.safetensors"  # of the moment before the step size began to fall (schedule `wsd`)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a file holds.

    `score` is None before the first episode has finished. `first_step` is where the run's own clock began: above 0 in a
    run that goes on with a shorter one.
    """

    config: RunConfig
    observation_shape: tuple[int, ...]
    action_sizes: tuple[int, ...]  # choices of each discrete component; empty where actions are continuous
    continuous_actions: int
    steps: int
    elapsed_seconds: float
    score: float | None
    tensors: Mapping[str, torch.Tensor]
    first_step: int = 0

    def group(self, prefix: str) -> dict[str, torch.Tensor]:
        """Returns the tensors under `prefix/`, without the prefix."""
        return {name.removeprefix(prefix + "/"): t for name, t in self.tensors.items() if name.startswith(prefix + "/")}


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint atomically.

    Raises:
        DiskError: no space, no permission, no such folder.
    """
    metadata = {
        "format": FORMAT,
        "env": checkpoint.config.env.name,
        "run": json.dumps(
            {
                "config": checkpoint.config.to_dict(),
                "observation_shape": checkpoint.observation_shape,
                "action_sizes": checkpoint.action_sizes,
                "continuous_actions": checkpoint.continuous_actions,
                "steps": checkpoint.steps,
                "elapsed_seconds": checkpoint.elapsed_seconds,
                "score": checkpoint.score,
                "first_step": checkpoint.first_step,
            }
        ),
    }
    content = save({name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()}, metadata)
    replace_file(path, content)


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file so that a crash leaves the old content or the new one, never a part.

    Raises:
        DiskError: the file could not be written. The old one is unchanged, and nothing else is left.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            if temporary:
                os.unlink(temporary)  # noqa: PTH108
        raise DiskError(
            f"cannot write {path} ({len(content)} bytes): {error.strerror}: free some space, or give another directory"
        ) from error


def require_writable(directory: Path) -> None:
    """Creates the folder and writes to it once, so that a run that could not be saved fails before it trains.

    Raises:
        DiskError: the folder cannot be created or written to.
    """
    probe = directory / f".{FILE_NAME}.probe"
    replace_file(probe, b"")
    probe.unlink(missing_ok=True)


def read(path: Path, *, prefix: str | tuple[str, ...] = "") -> Checkpoint:
    """Reads a checkpoint, or of its tensors only those whose name begins with `prefix`, or with one of several.

    Raises:
        CheckpointError: the file is missing, damaged, or no checkpoint of this program.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint {path}") from error
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read {path}, it is damaged or no checkpoint: {error}") from error
    if metadata.get("format") != FORMAT:
        found = metadata.get("format", "none")
        raise CheckpointError(f"cannot use {path}: its format is '{found}', this version reads '{FORMAT}'")
    try:
        run: dict[str, Any] = json.loads(metadata["run"])
        return Checkpoint(
            config=RunConfig.from_dict(run["config"]),
            observation_shape=tuple(run["observation_shape"]),
            action_sizes=tuple(run["action_sizes"]),
            continuous_actions=run["continuous_actions"],
            steps=run["steps"],
            elapsed_seconds=run["elapsed_seconds"],
            score=run["score"],
            tensors=tensors,
            first_step=run.get("first_step", 0),  # earlier versions did not write it
        )
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise CheckpointError(f"cannot use {path}: its metadata are damaged or of another version: {error}") from error


def require_env(checkpoint: Checkpoint, path: Path, spec: EnvSpec) -> None:
    """Raises `CheckpointError` unless the checkpoint was trained on this environment, in this shape."""
    if checkpoint.config.env.name != spec.name:
        raise CheckpointError(
            f"cannot use {path}: it was trained on '{checkpoint.config.env.name}', not on '{spec.name}': "
            f"give --env {checkpoint.config.env.name} or another checkpoint"
        )
    there = (checkpoint.observation_shape, checkpoint.action_sizes, checkpoint.continuous_actions)
    here = (spec.observation_shape, spec.action_sizes, spec.continuous_actions)
    if there != here:
        raise CheckpointError(
            f"cannot use {path}: it expects (observation shape, choices, continuous actions) {there}, "
            f"'{spec.name}' now has {here}: train it again"
        )


def load_weights_(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Copies weights into a network of exactly the same shape.

    Raises:
        CheckpointError: a weight is missing, unknown or of another shape.
    """
    expected = {name: tuple(t.shape) for name, t in module.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in tensors.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise CheckpointError(
                f"cannot use {path}: the network's '{name}' has shape {found.get(name, 'none')} there and "
                f"{expected.get(name, 'none')} here: use the policy settings that it was trained with"
            )
    module.load_state_dict(dict(tensors))

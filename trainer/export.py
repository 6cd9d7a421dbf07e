"""A checkpoint's policy as one small file for pages: what acting needs, and nothing else of the run.

The file is a safetensors file, as the checkpoint is: eight bytes with the length of a JSON head, the head, the numbers.
Its metadata have the key `policy`, JSON of the network's settings and its environment's shapes. The tensors are those
of the checkpoint's groups `policy/` and `scaling/`, under their names. `protein/web/static/play/policy.js` builds the
network from them, as `protein.trainer.model.policy` does. This module does without torch, which takes seconds to load.
"""

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from protein.envs_c import spec, worlds

from .config import RunConfig
from .errors import CheckpointError, ConfigError

FORMAT = "protein-policy-1"
_ACTING = ("policy/", "scaling/observations.")


def export_policy(path: Path, *, half: bool = False) -> bytes:
    """Returns the file for the policy of a checkpoint.

    Args:
        path: of the checkpoint.
        half: weights in 16 bits, which is half the size; outputs then differ in the third digit.

    Raises:
        CheckpointError: the checkpoint cannot be read, or does not fit its environment.
        ConfigError: its environment is none that a page can play, or its network is the user's own code.
    """
    kind, run, tensors = _read(path)
    if kind != "ppo":
        raise ConfigError(f"{path} is a {kind} model's: only an agent plays; give the checkpoint of one")
    try:
        config = RunConfig.from_dict(run["config"])
        shapes = tuple(run["observation_shape"]), tuple(run["action_sizes"]), run["continuous_actions"]
        facts: dict[str, float | None] = {
            "steps": int(_finite(run["steps"])),
            "elapsed_seconds": _finite(run["elapsed_seconds"]),
            "score": None if run["score"] is None else _finite(run["score"]),
        }
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise CheckpointError(f"cannot use {path}: its metadata are damaged or of another version: {error}") from error
    try:
        worlds.require(config.env.name)
    except worlds.NoWorldError as error:
        raise ConfigError(f"{path}: {error}") from error
    if config.policy.module:
        raise ConfigError(
            f"{path} has a network of your own, {config.policy.module}, whose code a page cannot run: give a checkpoint"
            " of a built-in network"
        )
    of_env = spec(config.env.name)
    here = of_env.observation_shape, of_env.action_sizes, of_env.continuous_actions
    if shapes != here:
        raise CheckpointError(
            f"cannot use {path}: it expects (observation shape, choices, continuous actions) {shapes},"
            f" '{of_env.name}' now has {here}: train it again"
        )
    weights = {name: tensor for name, tensor in tensors.items() if name.startswith("policy/")}
    if not weights or not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise CheckpointError(
            f"cannot use {path}: its weights are not finite: give one of a training that has not diverged"
        )
    if half:
        tensors |= {name: weight.astype(np.float16) for name, weight in weights.items()}
    head = {
        "format": FORMAT,
        "env": of_env.name,
        "frameSkip": config.env.frame_skip,
        "greedy": config.eval.greedy,
        **facts,
        "observationShape": of_env.observation_shape,
        "observationHigh": of_env.observation_high if of_env.observation_dtype == "uint8" else 0,
        "actionSizes": of_env.action_sizes,
        "continuousActions": of_env.continuous_actions,
        "network": config.to_dict()["policy"],
    }
    return save(tensors, {"policy": json.dumps(head)})  # one key: the order of several is random


def _finite(number: Any) -> float:
    """Returns the value as a number. Raises `ValueError` if it is no finite number, which is all that JSON has."""
    if not isinstance(number, int | float) or not math.isfinite(number):
        raise ValueError(f"{number!r} is no finite number")
    return float(number)


def _read(path: Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Returns a checkpoint's kind, what it says of its run, and the tensors that acting needs, by name.

    `protein.trainer.machine.checkpoint` explains the file, and its checksums.
    """
    try:
        with safe_open(str(path), framework="np") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys() if name.startswith(_ACTING)}  # noqa: SIM118
        if not metadata.get("format", "").startswith("protein-checkpoint-"):
            raise ValueError("its metadata name no checkpoint")
        sums = json.loads(metadata.get("checksums", "{}"))
        for name, tensor in tensors.items():
            begun = zlib.crc32(f"torch.{tensor.dtype} {tensor.shape}".encode())
            if name in sums and sums[name] != f"{zlib.crc32(tensor.tobytes(), begun):08x}":
                raise ValueError(f"its tensor '{name}' differs from its checksum")
        return metadata.get("kind", "ppo"), json.loads(metadata["run"]), tensors
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint {path}") from error
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"cannot read {path}, it is damaged or no checkpoint: {error}: give an older or another one"
        ) from error

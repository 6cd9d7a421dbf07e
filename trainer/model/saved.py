"""A policy's checkpoint: the shared file (`protein.trainer.machine.checkpoint`), and what of it is about the policy.

Its groups are `policy/` (the network), `optimizer/` (state of the optimisers, the loss scaler and the shuffling),
`rollout/`, `rollout1/` and so on (each process's environments, observations, recurrent state and action noise),
`scaling/` (the moments by which observations are normalised and rewards scaled, where they are), `snapshot/` (with
overlap, the weights that collect) and `run/` (recent scores).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from protein.envs_c import EnvSpec

from ..config import RunConfig
from ..environments import names_module
from ..errors import CheckpointError, ConfigError
from ..machine import checkpoint as checkpoints
from ..machine.checkpoint import Checkpoint

ACTING = ("policy/", "scaling/")  # the groups that playing needs


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SavedPolicy:
    """What a file holds, with the shapes that its environment had.

    `action_sizes` are the choices of each discrete component; empty where actions are continuous.
    """

    checkpoint: Checkpoint
    config: RunConfig
    observation_shape: tuple[int, ...]
    action_sizes: tuple[int, ...]
    continuous_actions: int

    def group(self, prefix: str) -> dict[str, torch.Tensor]:
        """Returns the tensors under `prefix/`, without the prefix."""
        return self.checkpoint.group(prefix)

    def args_of(self, env: str) -> dict[str, Any]:
        """Returns the arguments for an environment: those of the run are for its own alone, others get none."""
        return self.config.env.args if env == self.config.env.name else {}


def write(
    path: Path,
    config: RunConfig,
    spec: EnvSpec,
    *,
    steps: int,
    elapsed_seconds: float,
    score: float | None,
    tensors: Mapping[str, torch.Tensor],
    first_step: int = 0,
    device: str = "cpu",
    precisions: Sequence[str] | None = None,
) -> None:
    """Writes a checkpoint atomically. The values are those of `Checkpoint`; `device` is the one that the run is on.

    `precisions`: of acting and of the update, where they were chosen; None: they were not.

    Raises:
        DiskError: no space, no permission, no such folder.
    """
    checkpoints.write(
        path,
        Checkpoint(
            kind=checkpoints.PPO,
            subject=config.env.name,
            config=config.to_dict(),
            steps=steps,
            elapsed_seconds=elapsed_seconds,
            score=score,
            tensors=tensors,
            first_step=first_step,
            details={
                "observation_shape": spec.observation_shape,
                "action_sizes": spec.action_sizes,
                "continuous_actions": spec.continuous_actions,
                "device": device,
                **({} if precisions is None else {"precisions": list(precisions)}),
            },
        ),
    )


def read(path: Path, *, prefix: str | tuple[str, ...] = "") -> SavedPolicy:
    """Reads a checkpoint, or of its tensors only those whose name begins with `prefix`, or with one of several.

    Raises:
        CheckpointError: the file is missing, damaged, no checkpoint of this program, or none of a policy.
    """
    saved = checkpoints.read(path, prefix=prefix, kind=checkpoints.PPO)
    try:
        return SavedPolicy(
            checkpoint=saved,
            config=RunConfig.from_dict(saved.config),
            observation_shape=tuple(saved.details["observation_shape"]),
            action_sizes=tuple(saved.details["action_sizes"]),
            continuous_actions=saved.details["continuous_actions"],
        )
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise checkpoints.damaged(path, error) from error


def named_code(saved: Checkpoint) -> list[str]:
    """Returns what a checkpoint names of code in Python, in words: an environment, its arguments, an own network.

    Whoever has written the file has chosen it. To play would import it, or call it with these arguments.
    """
    sections = {name: saved.config.get(name) for name in ("env", "policy")}
    env, policy = (one if isinstance(one, Mapping) else {} for one in sections.values())
    found = [name for name in dict.fromkeys((saved.subject, str(env.get("name", "")))) if names_module(name)]
    if env.get("args"):
        found.append(f"env.args {', '.join(map(str, env['args']))}")
    if policy.get("module"):
        found.append(f"policy.module {policy['module']}")
    return found


def require_env(saved: SavedPolicy, path: Path, spec: EnvSpec) -> None:
    """Raises `CheckpointError` unless the checkpoint was trained on this environment, in this shape."""
    if saved.config.env.name != spec.name:
        raise CheckpointError(
            f"cannot use {path}: it was trained on '{saved.config.env.name}', not on '{spec.name}': "
            f"give --env {saved.config.env.name} or another checkpoint"
        )
    require_form(saved, path, spec)


def require_form(saved: SavedPolicy, path: Path, spec: EnvSpec, remedy: str = "train it again") -> None:
    """Raises `CheckpointError` unless the environment has the observations and actions of the checkpoint's."""
    there = (saved.observation_shape, saved.action_sizes, saved.continuous_actions)
    here = (spec.observation_shape, spec.action_sizes, spec.continuous_actions)
    if there != here:
        raise CheckpointError(
            f"cannot use {path}: it expects (observation shape, choices, continuous actions) {there}, "
            f"'{spec.name}' {'now ' if spec.name == saved.config.env.name else ''}has {here}: {remedy}"
        )

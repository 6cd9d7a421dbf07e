"""What one trial of a sweep is run with: its seeds, its whole run config, and its folder.

Nothing is written through a symbolic link in the folder of a trial: it may lead anywhere.
"""

import contextlib
import copy
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from protein.trainer.kinds import kind_of
from protein.types import Params

CHECKPOINT_SECONDS = 10.0  # of training between a trial's checkpoints: so much is lost when the machine dies
CAP_FRACTION = 0.25  # without a cap of its own, one trial may cost this much of the sweep's budget


def trial_seed(sweep_seed: int, number: int) -> tuple[int, int]:
    """Returns the seeds of the suggestion and of the training for one trial of a sweep, both in [0, 2^31)."""
    suggest, train = np.random.SeedSequence([sweep_seed, number]).generate_state(2)
    return int(suggest) >> 1, int(train) >> 1


def runs_trainer(config: Mapping[str, Any]) -> bool:
    """Whether a sweep of this config runs our trainer, and not a function or a command of the user's."""
    return "train" in config


def trial_config(
    config: Mapping[str, Any], params: Params, *, seed: int, threads: int, max_trial_seconds: float | None
) -> dict[str, Any]:
    """Returns a sweep's run config with one trial's dotted params, seed and limits put in.

    A sweep over a function or a command has none (see `protein.api.function_sweep`, `protein.api.command_sweep`). Its
    trials get these three as they are, and how the command is run and read.
    """
    if not runs_trainer(config):
        own = {"params": dict(params), "seed": seed, "max_seconds": max_trial_seconds}
        return own | {name: config[name] for name in ("command",) if name in config}
    result: dict[str, Any] = copy.deepcopy(dict(config))
    for name, value in params.items():
        *sections, key = name.split(".")
        section = result
        for part in sections:
            section = section[part]
        section[key] = value
    train = result["train"]
    train["seed"] = seed
    train["threads"] = train["threads"] or threads
    if train.get("checkpoint_seconds"):  # 0: the user wants none
        train["checkpoint_seconds"] = min(train["checkpoint_seconds"], CHECKPOINT_SECONDS)
    if "schedule_end" in train:  # a trial is a function of its params and its seed, and of no machine's speed
        train["schedule_end"] = "tokens"
    if max_trial_seconds is not None:
        train["max_seconds"] = min(train["max_seconds"] or max_trial_seconds, max_trial_seconds)
    return result


def max_trial_seconds(config: Mapping[str, Any]) -> float | None:
    """Returns what a trial of this config (see `trial_config`) may cost; None: no limit."""
    limit: float | None = config.get("train", config)["max_seconds"]
    return limit or None


def total_steps(config: Mapping[str, Any]) -> int | None:
    """Returns the steps after which a trial of this config is trained to its end; None: that is not known."""
    section, key = kind_of(config).total_steps.split(".")
    steps: int | None = config.get(section, {}).get(key)
    return steps


def prepare_folder(directory: Path) -> None:
    """Makes the folder of a trial, where there is none yet.

    Raises:
        OSError: it cannot be made, or it is a symbolic link. The sweep's own folder above it may be one.
    """
    refuse_link(directory)
    directory.mkdir(parents=True, exist_ok=True)


def refuse_link(directory: Path) -> None:
    """Raises `OSError` where the folder of a trial is a symbolic link."""
    if directory.is_symlink():
        raise OSError(errno.ELOOP, f"it is a symbolic link to {directory.readlink()}, which nothing is written through")


def write_file(path: Path, text: str) -> None:
    """Writes a file anew. A symbolic link of this name is replaced, and not what it leads to."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)

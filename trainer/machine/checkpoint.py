"""One file that holds a run of either kind: weights, optimiser, random state and more, with JSON metadata.

The file is a safetensors file, so reading one runs no code. Tensors are grouped by prefix, such as `optimizer/`: which
groups there are is the kind's own (`protein.trainer.ppo.state`, `protein.trainer.language.state`). The metadata name
the kind of training, its subject (an environment or a text), the run's configuration, its steps and its score.

Checksums find a file that was damaged since it was written: a flipped bit in a weight would else train on unnoticed.

Writing is atomic: a temporary file is written beside the target, flushed to the disk and renamed. After a crash there
is either the old file or the new one.
"""

import dataclasses
import json
import shutil
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from protein import files

from ..errors import CheckpointError, DiskError

FORMAT = "protein-checkpoint-2"
FILE_NAME = "checkpoint.safetensors"
STABLE_FILE_NAME = "stable.safetensors"  # of the moment before the step size began to fall (schedule `wsd`)

_MIB = 1 << 20

PPO, LANGUAGE = "ppo", "language"  # kinds of training
_SECTIONS = {PPO: "[env] and [policy]", LANGUAGE: "[data] and [model]"}  # what a config of each kind has
_SUMS, _SUM = "checksums", "checksum"  # metadata: of each tensor, and of all other metadata; both are CRC-32
_OURS = ("config", "steps", "elapsed_seconds", "score", "first_step")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a file holds.

    Attributes:
        kind: of training, `PPO` or `LANGUAGE`.
        subject: the environment's or the text's name.
        config: of the run, in its nested form.
        steps: that were made.
        elapsed_seconds: of training.
        score: None where there is none yet.
        tensors: by name, with the group's prefix.
        first_step: where the run's own clock began: above 0 in a run that goes on with a shorter one.
        details: what else the kind has to know of a run, as JSON.
    """

    kind: str
    subject: str
    config: Mapping[str, Any]
    steps: int
    elapsed_seconds: float
    score: float | None
    tensors: Mapping[str, torch.Tensor]
    first_step: int = 0
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def group(self, prefix: str) -> dict[str, torch.Tensor]:
        """Returns the tensors under `prefix/`, without the prefix."""
        return {name.removeprefix(prefix + "/"): t for name, t in self.tensors.items() if name.startswith(prefix + "/")}


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint atomically.

    Raises:
        DiskError: no space, no permission, no such folder.
    """
    run = {name: getattr(checkpoint, name) for name in _OURS}
    tensors = _apart(checkpoint.tensors)
    metadata = {
        "format": FORMAT,
        "kind": checkpoint.kind,
        "env": checkpoint.subject,
        "run": json.dumps({**run, **checkpoint.details}),
        _SUMS: json.dumps({name: _sum_of(tensor) for name, tensor in tensors.items()}),
    }
    metadata[_SUM] = _sum_of_metadata(metadata)
    replace_file(path, save(tensors, metadata))


def _apart(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the tensors as the file takes them: a weight that has two names, as a tied one, is written twice."""
    found: dict[str, torch.Tensor] = {}
    places: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        found[name] = tensor.clone() if tensor.data_ptr() in places else tensor
        places.add(tensor.data_ptr())
    return found


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file so that a crash leaves the old content or the new one, never a part.

    A symbolic link in its place is replaced: it may lead anywhere.

    Raises:
        DiskError: the file could not be written. The old one is unchanged, and nothing else is left.
    """
    try:
        files.replace_file(path, content, follow_link=False)
    except OSError as error:
        raise DiskError(
            f"cannot write {path} ({len(content)} bytes): {error.strerror}: free some space, or give another directory"
        ) from error


def require_writable(directory: Path) -> None:
    """Finds out, before a run trains, whether it could be saved; makes nothing.

    Raises:
        DiskError: the folder cannot be created or written to.
    """
    try:
        files.require_replaceable(directory / FILE_NAME)
    except OSError as error:
        raise DiskError(
            f"cannot write {directory}: {error.strerror}: change its permissions, or give another directory"
        ) from error


def require_room(directory: Path, num_bytes: int) -> None:
    """Finds out, before a run trains, whether its checkpoints will fit on the disk.

    Args:
        directory: where they go; it need not exist yet.
        num_bytes: that they take together.

    Raises:
        DiskError: they will not fit.
    """
    try:
        free = shutil.disk_usage(files.nearest(directory)).free
    except OSError:  # writing says what is wrong with the disk
        return
    if num_bytes > free:
        raise DiskError(
            f"the run's checkpoints take about {num_bytes / _MIB:,.1f} MiB, and the disk of {directory} has"
            f" {free / _MIB:,.1f} MiB free: free some space, give another directory, or train a smaller network"
        )


def tensor_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Returns the bytes that tensors take in a file."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def read(path: Path, *, prefix: str | tuple[str, ...] = "", kind: str | None = None) -> Checkpoint:
    """Reads a checkpoint, or of its tensors only those whose name begins with `prefix`, or with one of several.

    Raises:
        CheckpointError: the file is missing, damaged, no checkpoint of this program, or of another `kind` of training.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118
        _require_whole(metadata, tensors, prefix)
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint {path}") from error
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"cannot read {path}, it is damaged or no checkpoint: {error}: give an older or another one"
        ) from error
    if metadata.get("format") != FORMAT:
        found = metadata.get("format", "none")
        raise CheckpointError(f"cannot use {path}: its format is '{found}', this version reads '{FORMAT}'")
    try:
        run: dict[str, Any] = json.loads(metadata["run"])
        saved = Checkpoint(
            kind=metadata.get("kind", PPO),  # earlier versions knew no other kind
            config=run["config"],
            subject=metadata["env"],
            steps=run["steps"],
            elapsed_seconds=run["elapsed_seconds"],
            score=run["score"],
            tensors=tensors,
            first_step=run.get("first_step", 0),  # earlier versions did not write it
            details={name: value for name, value in run.items() if name not in _OURS},
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise damaged(path, error) from error
    if kind is not None and saved.kind != kind:
        raise CheckpointError(
            f"cannot use {path}: it is of a run of kind '{saved.kind}' on '{saved.subject}', and '{kind}' is needed: "
            f"give a checkpoint of a config with {_SECTIONS[kind]}, or for this one a config with "
            f"{_SECTIONS.get(saved.kind, 'other sections')}"
        )
    return saved


def damaged(path: Path, error: Exception) -> CheckpointError:
    """Returns the error for metadata that cannot be read."""
    return CheckpointError(f"cannot use {path}: its metadata are damaged or of another version: {error}")


def _require_whole(
    metadata: Mapping[str, str], tensors: Mapping[str, torch.Tensor], prefix: str | tuple[str, ...]
) -> None:
    """Raises `ValueError` where a file is not what was written. The files of earlier versions have no checksums."""
    if _SUM not in metadata and _SUMS not in metadata:
        return
    others = {name: value for name, value in metadata.items() if name != _SUM}
    if metadata.get(_SUM) != _sum_of_metadata(others):
        raise ValueError("its metadata differ from their checksum")
    sums: dict[str, str] = {name: one for name, one in json.loads(metadata[_SUMS]).items() if name.startswith(prefix)}
    if sums.keys() != tensors.keys():
        raise ValueError("it lacks a tensor that was written")
    for name, tensor in tensors.items():
        if _sum_of(tensor) != sums[name]:
            raise ValueError(f"its tensor '{name}' differs from its checksum")


def _sum_of(tensor: torch.Tensor) -> str:
    """Returns a checksum over the bytes of a contiguous tensor on the CPU, its type and its shape."""
    begun = zlib.crc32(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    return f"{zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, begun):08x}"


def _sum_of_metadata(metadata: Mapping[str, str]) -> str:
    return f"{zlib.crc32(json.dumps(metadata, sort_keys=True).encode()):08x}"


def load_weights_(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Copies weights into a network of exactly the same shape.

    Raises:
        CheckpointError: a weight is missing, unknown, of another shape, or not finite.
    """
    expected = {name: tuple(t.shape) for name, t in module.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in tensors.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise CheckpointError(
                f"cannot use {path}: the network's '{name}' has shape {found.get(name, 'none')} there and "
                f"{expected.get(name, 'none')} here: use the network's settings that it was trained with"
            )
    require_finite(tensors, path)
    module.load_state_dict(dict(tensors))


def require_finite(weights: Mapping[str, torch.Tensor], path: Path) -> None:
    """Raises `CheckpointError` where a weight of a file is not finite: such a network can neither act nor learn."""
    for name, weight in weights.items():
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            bad = weight[~weight.isfinite()]
            raise CheckpointError(
                f"cannot use {path}: {len(bad):,} of the {weight.numel():,} numbers of the network's '{name}' are not"
                f" finite, the first is {float(bad[0])}: give a checkpoint of a training that has not diverged"
            )

"""What a checkpoint holds of a language model's run: weights, optimiser, place in the data; written and read back.

Its groups are `model/` (the network), `optimizer/` (state of the optimisers and the loss scaler) and `data/` (the place
in the stream of rows). All of it is the same on all processes, so a run may go on with another number of them.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import torch

from ..errors import CheckpointError, ConfigError
from ..machine import checkpoint as checkpoints
from ..machine.checkpoint import Checkpoint
from ..machine.distributed import World
from ..progress import Progress
from .config import LanguageConfig
from .data.batches import Batches
from .data.corpus import Corpus
from .data.tokenizers import digest
from .model import GPT
from .update import Updates

MODEL = "model/"  # the group that evaluation and samples need


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """A language model's checkpoint, with what its metadata say of the run.

    `tokenizer` is the digest of that of its text; "": an earlier version has written the file, which did not say.
    """

    checkpoint: Checkpoint
    config: LanguageConfig
    vocab_size: int
    micro_batch: int
    tokenizer: str


def read(path: Path, *, prefix: str | tuple[str, ...] = "") -> SavedModel:
    """Reads a checkpoint, or of its tensors only those whose name begins with `prefix`.

    Raises:
        CheckpointError: the file is missing, damaged, no checkpoint of this program, or none of a language model.
    """
    saved = checkpoints.read(path, prefix=prefix, kind=checkpoints.LANGUAGE)
    try:
        return SavedModel(
            checkpoint=saved,
            config=LanguageConfig.from_dict(saved.config),
            vocab_size=int(saved.details["vocab_size"]),
            micro_batch=int(saved.details["micro_batch"]),
            tokenizer=str(saved.details.get("tokenizer", "")),
        )
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise checkpoints.damaged(path, error) from error


def load_model(saved: SavedModel, path: Path, device: torch.device) -> GPT:
    """Returns the network with the checkpoint's weights. Raises `CheckpointError` where they do not fit."""
    model = GPT(saved.config.model, saved.vocab_size, torch.Generator())
    checkpoints.load_weights_(model, saved.checkpoint.group("model"), path)
    return model.to(device)


def require_corpus(saved: SavedModel, path: Path, corpus: Corpus) -> None:
    """Raises `CheckpointError` unless the corpus has the tokens that the network was trained with."""
    if saved.vocab_size != corpus.vocab_size:
        raise CheckpointError(
            f"cannot use {path}: its network has {saved.vocab_size:,} tokens, and the text '{corpus.name}' has"
            f" {corpus.vocab_size:,}: give the text that it was trained on"
        )
    if saved.tokenizer and saved.tokenizer != digest(corpus.tokenizer):
        raise CheckpointError(
            f"cannot use {path}: its network has learned the tokens of another tokenizer than that of the text"
            f" '{corpus.name}': give the text that it was trained on, or make the tokens with that text's tokenizer"
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LanguageState:
    """The parts of a run that change while it trains."""

    config: LanguageConfig
    corpus: Corpus
    model: GPT
    updates: Updates
    batches: Batches
    world: World

    def write(self, path: Path, progress: Progress, *, score: float | None, micro_batch: int) -> None:
        """Writes a checkpoint. All processes may call this, and the first one writes.

        Args:
            path: the file.
            progress: of the run, in tokens.
            score: the last one that was measured.
            micro_batch: rows of a forward pass.

        Raises:
            DiskError: the file cannot be written.
        """
        if not self.world.is_first:
            return
        groups: dict[str, Mapping[str, torch.Tensor]] = {
            "model": self.model.state_dict(),
            "optimizer": self.updates.optimizer.state(),
            "data": self.batches.state(),
        }
        checkpoints.write(
            path,
            Checkpoint(
                kind=checkpoints.LANGUAGE,
                subject=self.config.subject,
                config=self.config.to_dict(),
                steps=progress.steps,
                elapsed_seconds=progress.elapsed,
                score=score,
                # Copies, because tied weights and views of one vector share their memory, which the format forbids.
                tensors={f"{prefix}/{n}": t.clone() for prefix, group in groups.items() for n, t in group.items()},
                first_step=progress.first_step,
                details={
                    "vocab_size": self.corpus.vocab_size,
                    "tokenizer": digest(self.corpus.tokenizer),
                    "micro_batch": micro_batch,
                },
            ),
        )

    def num_bytes(self) -> int:
        """Returns about how large a checkpoint is, before a step is made as after it."""
        tensors = (
            *self.model.state_dict().values(),
            *self.batches.state().values(),
            *self.updates.optimizer.state().values(),
        )
        return checkpoints.tensor_bytes(tensors)

    def read_(self, path: Path) -> SavedModel:
        """Sets all parts to what a checkpoint holds, and returns it.

        Raises:
            CheckpointError: it is of another kind of training, network, seed or text.
        """
        saved = read(path)
        if saved.config.model != self.config.model:
            raise CheckpointError(
                f"cannot resume {path}: it was trained with {saved.config.model}, not with {self.config.model}: "
                "use the same [model] settings"
            )
        if saved.config.train.seed != self.config.train.seed:
            raise CheckpointError(
                f"cannot resume {path}: it was trained with train.seed = {saved.config.train.seed}, not with"
                f" {self.config.train.seed}, and the seed is the order in which the text is read: use the same seed"
            )
        require_corpus(saved, path, self.corpus)
        checkpoints.load_weights_(self.model, saved.checkpoint.group("model"), path)
        try:
            self.updates.optimizer.set_state(saved.checkpoint.group("optimizer"))
            self.batches.set_state(saved.checkpoint.group("data"))
        except (KeyError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"cannot resume {path}: its state does not fit this run: {error}") from error
        return saved

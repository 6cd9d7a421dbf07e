"""The settings of one language model's training run: frozen dataclasses with their rules.

A step is a token: `total_tokens` is what makes a run cheap or expensive.

Each field's docstring is its help text on the command line. Where it has none, it is that of `TrainSettings` in
`trainer.settings`, which has what holds for every kind of run. How strictly values are read is in
`trainer.settings`.
"""

import dataclasses
import os
from typing import Literal

from ..errors import ConfigError
from ..settings import (
    COUNT,
    POSITIVE,
    TRAIN_LIMITS,
    UNIT,
    Graphs,
    Limits,
    LRSchedule,
    OptimizerName,
    Precision,
    SectionedConfig,
    TrainSettings,
    check_choices,
    check_device,
    check_limits,
    check_open_ends,
    check_schedule,
)

BUILT_IN = "python"  # the corpus that needs no file
SUBJECT = "text/"  # begins the name of what a language model learns
MAX_WIDTH = 2**16
SAMPLE_FILE = "sample.txt"  # in a run's folder: what the model has written at its end


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The text that the model learns, as tokens."""

    path: str = "python"
    """`python` (the source text of Python's standard library, by bytes), or a folder of shards, as `protein data
    tokenize` writes it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The network, a decoder-only transformer."""

    arch: Literal["modern", "gpt2"] = "modern"
    """`gpt2` (the network of GPT-2, whose released weights can be loaded), or `modern` (rotary positions, no
    biases)."""
    num_layers: int = 4
    """Blocks of attention and feed-forward network."""
    width_ratio: float = 32.0
    """Width of the network for each layer: it is `num_layers * width_ratio`, rounded to whole heads."""
    head_size: int = 32
    """Width of one attention head."""
    sequence_length: int = 256
    """Tokens that the network sees at once, and positions that it knows."""
    init_from: str = ""
    """Weights to begin with: a folder of GPT-2's, `config.json` and `model.safetensors`, whose sizes `arch`,
    `num_layers`, `width_ratio` and `head_size` then are; empty: random ones."""

    @property
    def num_heads(self) -> int:
        """Heads of attention in each block."""
        return max(round(self.num_layers * self.width_ratio / self.head_size), 1)

    @property
    def width(self) -> int:
        """Numbers by which the network holds one token: a whole number of heads."""
        return self.num_heads * self.head_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(TrainSettings):
    """The optimiser and the machine that it runs on."""

    total_tokens: int = 1_000_000
    """Tokens to train on; rounded up to whole steps of the optimiser."""
    max_seconds: float = 0.0
    """Seconds of training after which it ends, within one micro-batch; 0: no limit."""
    seed: int = 0
    """Source of all randomness: weights and the order of the data."""
    threads: int = 0
    """Threads for PyTorch; 0: one per available core."""
    device: str = "auto"
    precision: Precision = "auto"
    """Arithmetic of the matrix products. `auto` is what was measured to be fastest on this kind of device."""
    compile: bool = False
    graphs: Graphs = "auto"
    batch_tokens: int = 2048
    """Tokens of one step of the optimiser, over all processes; a whole number of sequences."""
    micro_batch: int = 0
    """Sequences of one forward pass, on each process; their gradients are added up. 0: the most that fit the memory."""
    optimizer: OptimizerName = "muon"
    """`muon` for the blocks' matrices (and AdamW for all other parameters), or `adamw` for all."""
    learning_rate: float = 0.012
    """Largest step size of the blocks' matrices."""
    embedding_learning_rate: float = 0.01
    """Largest step size of the embedding, the output layer and all vectors, which AdamW trains."""
    lr_schedule: LRSchedule = "wsd"
    """How the step size falls over the run; `wsd` (warm-up, stable, decay): it is constant until the last
    `decay_fraction`, and then falls linearly. Runs with `constant` or `wsd` can be continued to more tokens."""
    schedule_end: Literal["nearer", "tokens"] = "nearer"
    """Where the schedule ends: at the `nearer` of `total_tokens` and `max_seconds`, so that the step size of a run that
    time ends has fallen, too; or at `total_tokens`, as in a sweep's trials, which no clock may change."""
    warmup_fraction: float = 0.02
    """Share of the run over which the step size first rises from 0."""
    decay_fraction: float = 0.4
    """Share of the run, at the end, over which the step size of `wsd` falls."""
    final_fraction: float = 0.0
    """Share of the largest step size at which it ends."""
    weight_decay: float = 0.1
    """Decoupled weight decay of the matrices, per unit of the step size. Vectors have none."""
    beta1: float = 0.9
    """Adam's decay of the gradient's running mean, and Muon's momentum."""
    beta2: float = 0.95
    adam_eps: float = 1e-10
    max_grad_norm: float = 1.0
    """Largest global norm of the gradient; a larger gradient is scaled down to it. 0: no limit."""
    checkpoint_seconds: float = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """What is measured on text that training does not see. The score is minus the bits per byte."""

    tokens: int = 131_072
    """Tokens of the validation text that the run's score is measured on; where there are fewer, all."""
    curve_points: int = 20
    """How often the score is measured on a part of the validation text during training. Its time is no cost. In short
    runs it is measured less often, but at each quarter."""
    curve_tokens: int = 16_384
    """Tokens of that part, which is about as hard as the whole."""
    hellaswag: str = ""
    """File of HellaSwag (JSON lines) to measure at the end; empty: none."""
    prompt: str = ""
    """Beginning of the sample that the run writes at its end; empty: the document's beginning."""
    sample_tokens: int = 256
    """Tokens of that sample; 0: none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageConfig(SectionedConfig):
    """Everything that defines one training run of a language model."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    eval: EvalConfig = dataclasses.field(default_factory=EvalConfig)

    def validate(self) -> None:
        """Raises `ConfigError` for a value out of range or values that contradict each other."""
        check_limits(self, _LIMITS)
        check_open_ends(
            self.train,
            above_zero=("learning_rate", "embedding_learning_rate", "adam_eps"),
            below_one=("beta1", "beta2"),
        )
        check_choices(self)
        check_schedule(self.train)
        check_device(self.train.device)
        if not self.data.path.strip():
            raise ConfigError(f"data.path is empty: give a folder of tokens, or '{BUILT_IN}' for the built-in text")
        self._check_model()
        train, length = self.train, self.model.sequence_length
        if train.batch_tokens < length:
            raise ConfigError(
                f"train.batch_tokens ({train.batch_tokens}) is smaller than one sequence, model.sequence_length "
                f"({length}): raise it or shorten the sequence"
            )
        if self.eval.tokens < length:
            raise ConfigError(
                f"eval.tokens ({self.eval.tokens}) is below one sequence, model.sequence_length ({length}): raise it"
            )
        if train.batch_tokens % length:
            raise ConfigError(
                f"train.batch_tokens ({train.batch_tokens}) must be a whole number of sequences of "
                f"model.sequence_length ({length}): give {max(train.batch_tokens // length, 1) * length}"
            )

    def _check_model(self) -> None:
        model = self.model
        if model.head_size % 2:
            raise ConfigError(
                f"model.head_size must be even, because positions turn pairs of numbers, got {model.head_size}"
            )
        wanted = model.num_layers * model.width_ratio
        if wanted < model.head_size / 2:
            raise ConfigError(
                f"model.num_layers * model.width_ratio ({wanted:g}) is the network's width, and model.head_size "
                f"({model.head_size}) does not divide it: a width has at least one head; raise model.width_ratio or "
                "lower model.head_size"
            )
        if model.width > MAX_WIDTH:
            raise ConfigError(
                f"model.num_layers * model.width_ratio must be a width of at most {MAX_WIDTH}, got {wanted:g}: lower "
                "model.width_ratio"
            )

    def check_processes(self, processes: int) -> None:
        """Raises `ConfigError` unless the sequences of a batch can be shared evenly."""
        sequences = self.train.batch_tokens // self.model.sequence_length
        if sequences % processes:
            raise ConfigError(
                f"train.batch_tokens ({self.train.batch_tokens}) holds {sequences} sequences, which {processes} "
                f"processes cannot share evenly: give a multiple of {processes} * {self.model.sequence_length} = "
                f"{processes * self.model.sequence_length}"
            )

    @property
    def subject(self) -> str:
        """What the run learns: `text/python` for the built-in text, or `text/` and the name of the data's folder."""
        return subject_of_path(self.data.path)

    @property
    def total_steps(self) -> int:
        """The steps to train for: tokens."""
        return self.train.total_tokens


def subject_of_path(path: str) -> str:
    """Returns `LanguageConfig.subject` for a `data.path`."""
    return f"{SUBJECT}{path if path == BUILT_IN else os.path.basename(os.path.abspath(path))}"  # noqa: PTH100, PTH119


_LIMITS: Limits = {
    "model": {
        "num_layers": (1, 256),
        "width_ratio": (1, MAX_WIDTH),
        "head_size": (2, 1024),
        "sequence_length": (2, 2**20),
    },
    "train": {
        **TRAIN_LIMITS,
        "total_tokens": (1, 10**15),
        "batch_tokens": COUNT,
        "micro_batch": (0, 2**20),
        "embedding_learning_rate": POSITIVE,
        "final_fraction": UNIT,
    },
    "eval": {
        "tokens": COUNT,
        "curve_points": (0, 10_000),
        "curve_tokens": COUNT,
        "sample_tokens": (0, 2**20),
    },
}

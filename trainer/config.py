"""The settings of one PPO run: frozen dataclasses with their rules. A language model's: `trainer.language.config`.

Each field's docstring is its help text on the command line. Where it has none, it is that of `TrainSettings` in
`config_rules.py`, which has what holds for every kind of run. How strictly values are read is in `config_reading.py`.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal

from .errors import ConfigError
from .settings import (
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
    UpdatePrecision,
    check_choices,
    check_device,
    check_limits,
    check_open_ends,
    check_schedule,
    read_file,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """The environment and how many copies of it are stepped together."""

    name: str = "pong"
    """Environment to train on; `protein envs` lists them."""
    num_envs: int = 1024
    """Copies of the environment that are stepped as one batch."""
    frame_skip: int = 1
    """Frames for which each action is repeated; one step is one decision."""
    double_buffer: bool = False
    """Steps one half of the environments while the policy acts on the other. Useful for slow environments."""
    workers: int = 0
    """Processes that step the environments of `gym-async:`; 0: a short measurement at the start finds how many pay."""
    args: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Keyword arguments for the environment's own constructor, by name; environments written in C take none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """The network: an encoder, perhaps a recurrent layer, and one output layer for policy and value function."""

    encoder: Literal["mlp", "cnn"] = "mlp"
    """Reads an observation: `mlp` (fully connected), or `cnn` (convolutions, for observations that are grids)."""
    channels: int = 32
    """Channels of a CNN's first convolution; each deeper one over large images has twice as many."""
    recurrence: Literal["none", "lstm", "mingru"] = "none"
    """Memory between steps: none, an LSTM, or the cheaper minimal gated recurrent unit."""
    hidden_size: int = 64
    """Units of every hidden layer and of the recurrent one."""
    num_layers: int = 2
    """Fully connected layers of the encoder."""
    activation: Literal["relu", "tanh"] = "relu"
    """What follows each fully connected layer of the encoder: `relu`, which is faster, or `tanh`, which is bounded."""
    separate_value: bool = False
    """Gives the value function an encoder of its own; for built-in policies without memory."""
    module: str = ""
    """A network of your own, `my_file:MyNet`, in place of the above, but for the sizes: see docs/own-policy.md."""
    value_bins: int = 0
    """Bins of a distributional (categorical) value head; 0: the value is one number."""
    value_limit: float = 100.0
    """The largest return, in absolute value, that a distributional value head can represent."""
    log_std_init: float = 0.0
    """Logarithm of the standard deviation that continuous actions begin with; their bounds are -1 and 1."""
    init_from: str = ""
    """Weights to begin with, and what scales observations and rewards: a checkpoint, the folder of a run, or a trial of
    a sweep, `pong/12`, whose network the above then is; empty: random ones."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(TrainSettings):
    """PPO and the machine that it runs on."""

    total_timesteps: int = 5_000_000
    """Decisions to train for, over all agents; rounded up to a whole number of vectorised steps."""
    max_seconds: float = 0.0
    """Seconds of training after which it ends, within one minibatch; 0: no limit."""
    seed: int = 0
    """Source of all randomness: weights, actions, minibatches, environments and evaluation."""
    threads: int = 0
    """Threads for PyTorch and for the environments; 0: one per available core."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:N` or `mps`. `auto`: where there is a GPU, a second's measurement at the start finds
    whether it or the CPU is faster for this run; it is remembered."""
    precision: Precision = "auto"
    """Arithmetic of the network's matrix products: `auto`, `fp32`, `tf32`, or by autocast `bf16` or `fp16`. `auto` on
    CUDA: what was fastest on such a device, or else `tf32`. `auto` elsewhere is `fp32`; but on a CPU with products of
    bfloat16, convolutions over large images use them."""
    update_precision: UpdatePrecision = "same"
    """Arithmetic of the updates alone: `same` as `precision`, or one of its values, which then is that of the rollouts
    only."""
    train_fp16: bool = False
    """Runs the updates in `fp16`, as `update_precision = "fp16"` does."""
    cpu_inference: bool = False
    """Collects with a copy of the network on the CPU while another device trains; saves small copies in every step."""
    overlap: bool = False
    """Collects the next batch during the update, with weights one update old; V-trace corrects for it. Useful where one
    of the two waits for a device or for slow environments."""
    compile: bool = False
    graphs: Graphs = "auto"
    horizon: int = 64
    """Steps that each environment takes per iteration."""
    minibatch_size: int = 8192
    """Samples per optimiser step: single ones, or whole segments of `horizon` steps where the policy has a memory. At
    most num_envs * horizon (times the agents per environment)."""
    accumulation_steps: int = 1
    """Parts into which a minibatch is split to save memory; their gradients are added up."""
    update_epochs: int = 2
    """Passes over an iteration's samples."""
    optimizer: OptimizerName = "adamw"
    """`adamw`, or `muon` for the hidden layers' matrices (and AdamW for all other parameters)."""
    learning_rate: float = 0.003
    """The optimiser's largest step size."""
    lr_schedule: LRSchedule = "cosine"
    """How the step size falls from `learning_rate` towards 0 over `total_timesteps`; `wsd` (warm-up, stable, decay): it
    is constant until the last `decay_fraction`, and then falls linearly. Runs with `constant` or `wsd` can be continued
    to more steps."""
    decay_fraction: float = 0.2
    """Share of `total_timesteps`, at the end, over which the step size of `wsd` falls."""
    warmup_fraction: float = 0.0
    """Share of `total_timesteps` over which the step size first rises from 0."""
    weight_decay: float = 0.0
    """Decoupled weight decay of matrices, per unit of the step size; biases and other vectors have none."""
    beta1: float = 0.9
    """Adam's decay of the gradient's running mean."""
    beta2: float = 0.999
    adam_eps: float = 1e-5
    gamma: float = 0.99
    """Discount factor per decision."""
    gae_lambda: float = 0.95
    """Weight of longer returns in the generalised advantage estimate."""
    clip_coef: float = 0.2
    """PPO's clip range: how far from 1 the probability ratio may move before its gradient is cut off."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    ent_coef: float = 0.01
    """Weight of the entropy bonus."""
    ent_coef_final: float = -1.0
    """Weight of the entropy bonus at the end of the run, reached along a straight line; below 0: `ent_coef`."""
    target_entropy: float = 0.0
    """Entropy of an action, in nats, that the weight of the bonus is adapted to, from `ent_coef` on; 0: it is not."""
    target_kl: float = 0.0
    """Ends an update's passes once the policy has moved this far (approximate KL divergence, in nats); 0: never."""
    normalize_observations: Literal["auto", "on", "off"] = "auto"
    """Brings each feature of the observations to mean 0 and variance 1, by running statistics. `auto`: if random play
    shows features beyond 10 or within 0.01; never images or bytes."""
    reward_scaling: Literal["auto", "return", "off"] = "auto"
    """`return`: divides rewards by the running deviation of the discounted return. `auto`: if it is above 20 in random
    play, or no reward reaches 0.01. Scores are those of the unchanged game."""
    reward_clip: float = 0.0
    """Cuts rewards off at this size, after their scaling; 0: nowhere. Scores are those of the unchanged game."""
    max_grad_norm: float = 0.5
    """Largest global norm of the gradient; a larger gradient is scaled down to it."""
    normalize_advantages: bool = True
    """Centres and scales the advantages of each iteration."""
    score_window: int = 100
    """Number of last finished episodes over which the reported training score is averaged; at least one per agent."""
    checkpoint_seconds: float = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """The evaluation after training, on episodes that training has not seen. Its mean score is the run's score."""

    episodes: int = 256
    """Episodes of agents in all; a multiple of `num_envs`, so that each environment contributes equally many."""
    num_envs: int = 256
    """Environments that play them; fewer where each has several agents."""
    greedy: bool = False
    """Takes the most probable action; otherwise actions are sampled, as in training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfPlayConfig:
    """Opponents that are the run's own past policies, for environments with sides; see docs/self-play.md."""

    on: bool = False
    """Plays against past policies of the run, and rates it by the environment's scripts: its score is that rating."""
    present_share: float = 0.5
    """Share of the environments that play against each other, where both sides learn; the others meet the pool."""
    pool_size: int = 8
    """Past policies that are kept, evenly spread over the run so far."""
    hardness: float = 1.0
    """How much rather it meets those that it seldom beats: chances are (1 - its mean result)^hardness; 0: all alike."""
    rated_games: int = 64
    """Games against scripts beside the training, which is not learnt from; their results are the training score."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(SectionedConfig):
    """Everything that defines one training run."""

    env: EnvConfig = dataclasses.field(default_factory=EnvConfig)
    policy: PolicyConfig = dataclasses.field(default_factory=PolicyConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    eval: EvalConfig = dataclasses.field(default_factory=EvalConfig)
    selfplay: SelfPlayConfig = dataclasses.field(default_factory=SelfPlayConfig)

    def validate(self) -> None:
        """Raises `ConfigError` for a value out of range or values that contradict each other."""
        check_limits(self, _LIMITS)
        check_open_ends(
            self.train,
            above_zero=("learning_rate", "clip_coef", "max_grad_norm", "adam_eps"),
            below_one=("beta1", "beta2"),
        )
        for name, argument in self.env.args.items():
            _check_argument(name, argument)
        check_choices(self)
        check_schedule(self.train)
        if self.train.target_entropy and self.train.ent_coef_final >= 0:
            raise ConfigError(
                "train.ent_coef_final and train.target_entropy both set the entropy bonus: use -1 or 0 for one of them,"
                f" got {self.train.ent_coef_final:g} and {self.train.target_entropy:g}"
            )
        if self.train.target_entropy and not self.train.ent_coef:
            raise ConfigError("train.ent_coef must be above 0 with train.target_entropy, which adapts it, got 0")
        if self.policy.module and self.train.optimizer == "muon":
            raise ConfigError(
                "train.optimizer must be adamw with policy.module, got muon, which has to know which layers are hidden"
            )
        if self.policy.value_bins == 1:
            raise ConfigError("policy.value_bins must be 0 or at least 2, got 1")
        if self.policy.separate_value and (self.policy.recurrence != "none" or self.policy.module):
            other = "policy.module" if self.policy.module else f"policy.recurrence {self.policy.recurrence}"
            raise ConfigError(f"policy.separate_value needs a built-in policy without memory, got {other}")
        if self.env.double_buffer and self.env.num_envs % 2:
            raise ConfigError(f"env.num_envs must be even with env.double_buffer, got {self.env.num_envs}")
        if self.env.double_buffer and self.selfplay.on:
            raise ConfigError("env.double_buffer must be false with selfplay.on, whose games are stepped as one batch")
        check_device(self.train.device)
        _check_precisions(self.train)
        if self.eval.episodes % self.eval.num_envs:
            raise ConfigError(
                f"eval.episodes ({self.eval.episodes}) must be a multiple of eval.num_envs ({self.eval.num_envs}), "
                "so that each environment contributes equally many"
            )

    def check_processes(self, processes: int) -> None:
        """Raises `ConfigError` unless the environments can be shared evenly."""
        if processes > 1 and self.selfplay.on:
            raise ConfigError(f"selfplay.on needs one process, whose pool it is, got {processes}: use --nproc 1")
        parts = processes * (2 if self.env.double_buffer else 1)
        if self.env.num_envs % parts:
            halves = " of two halves each (env.double_buffer)" if self.env.double_buffer else ""
            raise ConfigError(
                f"env.num_envs ({self.env.num_envs}) must be a multiple of {parts}, "
                f"so that {processes} processes{halves} share them evenly"
            )

    @property
    def subject(self) -> str:
        """What the run learns: the environment's name."""
        return self.env.name

    @property
    def total_steps(self) -> int:
        """The steps to train for."""
        return self.train.total_timesteps


def check_batch(config: RunConfig, agents_per_env: int, processes: int = 1, *, has_memory: bool) -> None:
    """Raises `ConfigError` where a minibatch is larger than an iteration's batch, or too small to be divided.

    It is separate from `validate` because the batch depends on the environment's number of agents, and a network of the
    user's own tells itself whether it has a memory. With several `processes`, each takes the same number of segments of
    a minibatch, or of samples where the policy has no memory.
    """
    agents = config.env.num_envs * agents_per_env
    batch = agents * config.train.horizon
    if config.train.minibatch_size > batch:
        raise ConfigError(
            f"train.minibatch_size ({config.train.minibatch_size}) is larger than the batch "
            f"({agents} agents * horizon {config.train.horizon} = {batch}): "
            "lower it or raise env.num_envs or train.horizon"
        )
    least, what = config.train.accumulation_steps * processes, "samples"
    if has_memory:  # a memory reads segments from their first step on
        least, what = least * config.train.horizon, f"segments of train.horizon ({config.train.horizon}) steps"
    if config.train.minibatch_size < least:
        in_each = f" in each of {processes} processes" if processes > 1 else ""
        raise ConfigError(
            f"train.minibatch_size ({config.train.minibatch_size}) is smaller than train.accumulation_steps "
            f"({config.train.accumulation_steps}) {what}{in_each}: raise it or lower one of them"
        )


def load(path: Path) -> RunConfig:
    """Reads the configuration of a PPO run from a file; see `trainer.settings.read_file`. `trainer.kinds.load`
    reads that of any run."""
    return read_file(path, RunConfig.from_dict)


_LIMITS: Limits = {
    "env": {"num_envs": (1, 2**20), "frame_skip": (1, 1000), "workers": (0, 128)},
    "policy": {
        "hidden_size": (1, 2**16),
        "num_layers": (1, 16),
        "channels": (1, 4096),
        "value_bins": (0, 4096),
        "value_limit": (1e-3, 1e9),
        "log_std_init": (-10, 2),
    },
    "train": {
        **TRAIN_LIMITS,
        "total_timesteps": (1, 10**15),
        "horizon": (1, 2**20),
        "minibatch_size": COUNT,
        "update_epochs": (1, 1000),
        "accumulation_steps": (1, 2**16),
        "gamma": UNIT,
        "gae_lambda": UNIT,
        "clip_coef": POSITIVE,
        "vf_coef": POSITIVE,
        "ent_coef": POSITIVE,
        "ent_coef_final": (-1, math.inf),
        "target_kl": POSITIVE,
        "reward_clip": POSITIVE,
        "score_window": COUNT,
    },
    "eval": {"episodes": COUNT, "num_envs": (1, 2**20)},
    "selfplay": {"present_share": UNIT, "pool_size": (2, 64), "hardness": (0, 100), "rated_games": (1, 2**16)},
}


def _check_precisions(train: TrainConfig) -> None:
    """Raises `ConfigError` for precisions that contradict each other, or that two threads cannot have at once."""
    if train.train_fp16 and train.update_precision not in ("same", "fp16"):
        raise ConfigError(
            f"train.train_fp16 and train.update_precision '{train.update_precision}' both set the update's precision:"
            " leave one of them out"
        )
    full = {train.precision, train.update_precision} - {"same", "bf16", "fp16"}
    if train.overlap and not train.train_fp16 and full in ({"fp32", "tf32"}, {"fp32", "auto"}):
        raise ConfigError(
            f"train.update_precision '{train.update_precision}' beside train.precision '{train.precision}' cannot be"
            " kept with train.overlap, where both compute at once: use one of tf32 and fp32 for both"
        )


def _check_argument(name: str, value: Any) -> None:
    """Raises `ConfigError` unless an argument of the environment is one that a TOML and a JSON file can hold."""
    if not name.isidentifier():
        raise ConfigError(f"env.args.{name} is no argument's name: use letters, digits and underscores")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"env.args.{name} must be finite, got {value}")
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        _check_argument(name, part)
    if not isinstance(value, bool | int | float | str | list | dict):
        raise ConfigError(
            f"env.args.{name} must be true, false, a number, a string, a list or a table, got "
            f"{type(value).__name__} {value!r}"
        )

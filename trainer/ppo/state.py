"""What a checkpoint holds of a run of PPO: weights, optimiser, environments, scores; written and read back.

With several processes each has environments of its own. The first process writes them all into one file, and every
process reads its own part back.
"""

import collections
import dataclasses
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from protein.envs_c import EnvSpec

from ..config import PolicyConfig, RunConfig
from ..errors import CheckpointError
from ..machine import checkpoint as checkpoints
from ..machine.checkpoint import Checkpoint
from ..machine.distributed import World
from ..machine.precision_table import Precisions, given_precisions
from ..model import saved as policies
from ..model.policy import Policy
from ..normalise import Normalizer, RewardScaler, restored
from ..progress import Progress
from .overlap import Snapshot
from .rollout import Rollout
from .update import PPO

_OF_THE_BEGINNING = ("init_from", "log_std_init")  # settings of a network that has not learnt yet


class ScoreSummary(NamedTuple):
    """The scores in the window, oldest first, their mean, and the number of all finished episodes."""

    scores: list[float]
    mean: float | None  # None before the window is full
    episodes: int


class Scores:
    """The last `window` scores of this process's episodes, and their number: the training score is their mean.

    Each process keeps its own scores, and when each was reached. The last scores of all processes are among these, so
    they need to be merged only for a report. Processes exchange nothing between reports, and all episodes count the
    same.

    The window holds at least one episode for each agent, and there is no score before it is full. Of episodes that
    begin together, the short ones end first. In most games a short episode is an early loss or a quick win, so an early
    mean would be biased.
    """

    def __init__(self, window: int, world: World, mean: Callable[[Sequence[float]], float] = statistics.fmean) -> None:
        """`mean`: what the scores of a full window make together."""
        self._window, self._world, self._mean = window, world, mean
        self._last: collections.deque[tuple[int, float]] = collections.deque(maxlen=window)  # (moment, score)
        self._episodes = 0

    def add(self, moment: int, scores: Iterable[float], episodes: int) -> None:
        """Counts `episodes`, of which `scores` are the last; `moment`, the steps of the run then, never decreases."""
        self._last.extend((moment, score) for score in scores)
        self._episodes += episodes

    def replace(self, moment: int, scores: Iterable[float], episodes: int) -> None:
        """Takes over what a checkpoint knows, in place of all that was counted, as by the run that is continued."""
        self._last.clear()
        self._episodes = 0
        self.add(moment, scores, episodes)

    def summary(self) -> ScoreSummary:
        """Returns the summary of all processes on the first one. All of them must call this."""
        gathered = self._world.gather((list(self._last), self._episodes))
        # A stable sort: those of one moment stay in the order of processes.
        merged = sorted((entry for of_one, _ in gathered for entry in of_one), key=lambda entry: entry[0])
        scores = [score for _, score in merged[-self._window :]]
        mean = self._mean(scores) if len(scores) == self._window else None
        return ScoreSummary(scores, mean, sum(count for _, count in gathered))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """The parts of a run that change while it trains; `snapshot` are the weights that act, where they are others."""

    spec: EnvSpec
    policy: Policy
    ppo: PPO
    rollout: Rollout
    snapshot: Snapshot | None
    scores: Scores
    world: World
    precisions: Precisions

    def write(self, path: Path, config: RunConfig, progress: Progress) -> None:
        """Writes a checkpoint. All processes have to call this, and the first one writes.

        Raises:
            DiskError: the file cannot be written.
        """
        recent = self.scores.summary()
        rollouts = self.world.gather(self.rollout.state())
        if not self.world.is_first:
            return
        groups = {
            "policy": self.policy.state_dict(),
            "optimizer": self.ppo.state(),
            "scaling": self.rollout.conditioning.state(),
            **{f"rollout{rank or ''}": state for rank, state in enumerate(rollouts)},
            "run": {
                "scores": torch.tensor(recent.scores, dtype=torch.float64),
                "episodes": torch.tensor(recent.episodes),
            },
        }
        if self.snapshot is not None and config.train.overlap:
            groups["snapshot"] = {"weights": self.snapshot.weights}
        policies.write(
            path,
            config,
            self.spec,
            steps=progress.steps,
            elapsed_seconds=progress.elapsed,
            score=recent.mean,
            tensors={f"{prefix}/{name}": t for prefix, group in groups.items() for name, t in group.items()},
            first_step=progress.first_step,
            device=str(next(self.policy.parameters()).device),
            precisions=None if self.precisions == given_precisions(config.train) else self.precisions,
        )

    def num_bytes(self) -> int:
        """Returns about how large a checkpoint is, before a step is made as after it."""
        rollout = checkpoints.tensor_bytes(self.rollout.state().values())
        optimizer = checkpoints.tensor_bytes(self.ppo.state().values())
        weights = checkpoints.tensor_bytes(self.policy.state_dict().values())
        return weights + optimizer + rollout * self.world.size

    def read_(self, path: Path, config: RunConfig) -> Checkpoint:
        """Sets all parts to what a checkpoint holds, for a run of this config, and returns it.

        Raises:
            CheckpointError: it is of another environment, network, number of environments or of processes.
        """
        saved, world = policies.read(path), self.world
        policies.require_env(saved, path, self.spec)
        processes = len(_rollouts(saved))
        if processes != world.size:
            raise CheckpointError(
                f"cannot resume {path} with {world.size} processes: it was written by {processes}: "
                f"use --nproc {processes}"
            )
        if saved.config.env != config.env:
            raise CheckpointError(
                f"cannot resume {path}: it was trained with {saved.config.env}, not with {config.env}: "
                "use the same [env] settings"
            )
        if saved.config.selfplay != config.selfplay:
            raise CheckpointError(
                f"cannot resume {path}: it was trained with {saved.config.selfplay}, not with {config.selfplay}: "
                "use the same [selfplay] settings"
            )
        checkpoints.load_weights_(self.policy, saved.group("policy"), path)
        _require_same_policy(saved.config.policy, config.policy, f"resume {path}")
        _require_same_treatment(saved.group("scaling"), config, f"resume {path}")
        try:
            self._condition(saved, config)
            self.ppo.set_state(saved.group("optimizer"))
            self.rollout.set_state(saved.group(_rollouts(saved)[world.rank]))
            if self.snapshot is not None:
                # With overlap the next batch uses the weights before the last update, otherwise the newest ones.
                stale = saved.group("snapshot").get("weights")
                self.snapshot.take(self.ppo.weights if stale is None else stale)
            if world.is_first:  # its scores stand for those of all processes until there are newer ones
                run = saved.group("run")
                self.scores.replace(saved.checkpoint.steps, run["scores"].tolist(), int(run["episodes"]))
        except (KeyError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"cannot resume {path}: its state does not fit this run: {error}") from error
        return saved.checkpoint

    def begin_(self, path: Path, config: RunConfig) -> str:
        """Takes over what another run has learnt: the weights, and what scales observations and rewards.

        Returns a line about it. The optimiser, the environments and all counters stay those of this run.

        Raises:
            CheckpointError: it is of another form of environment, or another network.
        """
        saved = read_beginning(path, config, self.spec)
        checkpoints.load_weights_(self.policy, saved.group("policy"), path)
        self._condition(saved, config)
        if self.snapshot is not None:
            self.snapshot.take(self.ppo.weights)
        run = saved.checkpoint
        score = "" if run.score is None else f", score {run.score:.4g}"
        return f"begins with the weights in {path}: {saved.config.env.name}, {run.steps:,} steps{score}"

    def _condition(self, saved: policies.SavedPolicy, config: RunConfig) -> None:
        """Treats observations and rewards as a checkpoint's run has. Raises `KeyError` for one that is incomplete."""
        agents, device, train = self.rollout.num_agents, self.rollout.device, config.train
        scaling = saved.group("scaling")
        self.rollout.condition(restored(scaling, agents, gamma=train.gamma, clip=train.reward_clip, device=device))


def read_beginning(path: Path, config: RunConfig, spec: EnvSpec) -> policies.SavedPolicy:
    """Returns what of a checkpoint a run of this config can begin with, on an environment of the same form.

    Raises:
        CheckpointError: it is of another form of environment, of another network, or treats its observations otherwise.
    """
    file = path / checkpoints.FILE_NAME if path.is_dir() else path
    saved = policies.read(file, prefix=policies.ACTING)
    policies.require_form(saved, file, spec, remedy="begin with a checkpoint of that form")
    _require_same_policy(saved.config.policy, config.policy, f"begin with {file}", besides=_OF_THE_BEGINNING)
    _require_same_treatment(saved.group("scaling"), config, f"begin with {file}")
    return saved


def _rollouts(saved: policies.SavedPolicy) -> list[str]:
    """Returns the names of the groups that hold each process's environments: `rollout`, `rollout1`, ..."""
    groups = {name.partition("/")[0] for name in saved.checkpoint.tensors}
    return sorted((group for group in groups if group.startswith("rollout")), key=lambda group: (len(group), group))


def _require_same_policy(was: PolicyConfig, now: PolicyConfig, what: str, besides: Collection[str] = ()) -> None:
    """Raises `CheckpointError` for another network: one of the same shapes may still be another, as with tanh."""
    for field in dataclasses.fields(PolicyConfig):
        one, other = getattr(was, field.name), getattr(now, field.name)
        if one != other and field.name not in besides:
            raise CheckpointError(
                f"cannot {what}: it was trained with policy.{field.name} {one}, not {other}: "
                "use the same [policy] settings"
            )


def _require_same_treatment(scaling: Mapping[str, torch.Tensor], config: RunConfig, what: str) -> None:
    """Raises `CheckpointError` where the run would treat observations or rewards otherwise than the one before."""
    train = config.train
    for name, option, value, on in (
        (Normalizer.NAME, "normalize_observations", train.normalize_observations, "on"),
        (RewardScaler.NAME, "reward_scaling", train.reward_scaling, "return"),
    ):
        was_on = f"{name}.count" in scaling
        if value != "auto" and (value == on) != was_on:
            raise CheckpointError(
                f"cannot {what}: it was trained with train.{option} {on if was_on else 'off'}, not {value}: "
                f"use '{on if was_on else 'off'}' or 'auto'"
            )

"""The sides of a comparison: sweeps reduced to what is compared, and which of them belong together.

Notation as in `protein.analysis.comparison`.
"""

import dataclasses
import math
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from protein.engine.gp import Array
from protein.engine.pareto import MIN_COST_SECONDS, Scored, front_indices
from protein.errors import UsageError
from protein.types import Direction, TrialState

# A hyphen in 1e-3 and the point in 0.01 begin no seed.
_SEPARATOR = r"(?:(?<!\de)[-_ /]|(?<!\d)\.)"
_SEED_SUFFIX = re.compile(rf"(?:{_SEPARATOR}(?:(?:seed|s|run|rep|r)[-_. ]?)?|seed[-_. ]?)\d+$", re.IGNORECASE)


class Ended(Scored, Protocol):
    """What a comparison needs of a trial; `TrialRecord` has it."""

    @property
    def cost_seconds(self) -> float: ...
    @property
    def finished_at(self) -> datetime | None: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """One sweep, reduced to what is compared.

    Attributes:
        name: of the sweep.
        env: its environment.
        direction: of the scores as the user knows them. They are kept here as they are stored.
        spent: `n`, seconds spent when each finished trial ended, rising; its last is what the sweep has spent.
        best: `n`, best score of complete trials by then; -infinity before the first one.
        scores, costs: `k`, of complete trials.
        ended: `k`, seconds spent when each of these ended, rising.
    """

    name: str
    env: str
    direction: Direction
    spent: Array
    best: Array
    scores: Array
    costs: Array
    ended: Array

    @classmethod
    def of(
        cls, name: str, env: str, trials: Sequence[Ended], *, direction: Direction = Direction.MAXIMIZE
    ) -> "SweepResult":
        """Returns the result of a sweep's trials, given by number. Running trials do not count.

        Raises:
            UsageError: no trial was trained to its end.
        """
        finished = [trial for trial in trials if trial.state.finished]
        ended = [math.nan if trial.finished_at is None else trial.finished_at.timestamp() for trial in finished]
        return cls.of_columns(
            name,
            env,
            complete=np.array([t.state is TrialState.COMPLETE and not t.excluded for t in finished], dtype=bool),
            score=np.array([math.nan if t.score is None else t.score for t in finished], dtype=np.float64),
            cost_seconds=np.array([trial.cost_seconds for trial in finished], dtype=np.float64),
            run_seconds=np.array([trial.run_seconds for trial in finished], dtype=np.float64),
            finished_at=np.array(ended, dtype=np.float64),
            direction=direction,
        )

    @classmethod
    def of_columns(
        cls,
        name: str,
        env: str,
        *,
        complete: NDArray[np.bool_],
        score: Array,
        cost_seconds: Array,
        run_seconds: Array,
        finished_at: Array,
        direction: Direction = Direction.MAXIMIZE,
    ) -> "SweepResult":
        """Returns the same from columns of `n` finished trials, by number.

        Args:
            name, env, direction: see above.
            complete: `n`, which were trained to their end and are not excluded.
            score: `n`, as stored; NaN where there is none.
            cost_seconds: `n`, what each has cost.
            run_seconds: `n`, what its whole run has cost.
            finished_at: `n`, when it ended, on any clock. NaN anywhere: in the order of the numbers.

        Raises:
            UsageError: no trial was trained to its end.
        """
        complete = complete & np.isfinite(score)
        if not complete.any():
            raise UsageError(f"sweep '{name}' has no complete trial yet, so it cannot be compared; give it more time")
        order = np.arange(len(score)) if np.isnan(finished_at).any() else np.argsort(finished_at, kind="stable")
        spent = np.cumsum(cost_seconds[order])
        return cls(
            name=name,
            env=env,
            direction=direction,
            spent=spent,
            best=np.maximum.accumulate(np.where(complete, score, -np.inf)[order]),
            scores=score[order][complete[order]],
            costs=np.maximum(run_seconds, MIN_COST_SECONDS)[order][complete[order]],
            ended=spent[complete[order]],
        )

    @property
    def spent_seconds(self) -> float:
        return float(self.spent[-1])

    def best_at(self, spent_seconds: Array) -> Array:
        """Returns b at `m` seconds, `m`; -infinity before the first score."""
        index = np.searchsorted(self.spent, np.asarray(spent_seconds) * (1 + 1e-12), side="right") - 1
        return np.where(index >= 0, self.best[np.maximum(index, 0)], -np.inf)

    def complete_by(self, spent_seconds: float) -> tuple[Array, Array]:
        """Returns scores and costs of the complete trials that had ended when so much was spent."""
        by_then = self.ended <= spent_seconds * (1 + 1e-12)
        return self.scores[by_then], self.costs[by_then]

    def front_at(self, cost_seconds: Array) -> Array:
        """Returns f at `m` costs in seconds, `m`; -infinity below the cheapest trial."""
        index = front_indices(self.scores, self.costs)
        position = np.searchsorted(self.costs[index], np.asarray(cost_seconds) * (1 + 1e-12), side="right") - 1
        return np.where(position >= 0, self.scores[index][np.maximum(position, 0)], -np.inf)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What is compared: sweeps under one label."""

    label: str
    sweeps: tuple[SweepResult, ...]


def without_seed(name: str) -> str:
    """Returns a sweep's name without a number at its end that may be a seed: "ppo" for "ppo-3", "ppo_s3", "ppo seed 3".

    A number that is part of a word, such as in "g2048" and "layers4", or of another number, as in "lr-0.01" and
    "lr-1e-3", is kept.
    """
    stem = _SEED_SUFFIX.sub("", name)
    return stem or name


def side_labels(sweeps: Sequence[tuple[str, str]]) -> list[str]:
    """Returns a label for each sweep, given as (name, environment): sweeps of one label make up a side.

    A label is the name without its environment and without a seed at its end: "old" for "old-pong-1" of pong and for
    "old-maze-2" of maze. A label that would stand for sweeps of one name only is that name. Where all sweeps would get
    the same label, nothing is left to compare, and each has its own name.
    """
    labels = []
    for name, env in sweeps:
        bare = re.sub(rf"(?:^|[-_. /]+){re.escape(env)}(?=$|[-_. /])", "", without_seed(name), flags=re.IGNORECASE)
        labels.append(bare.strip("-_. /") or without_seed(name))
    if len(set(labels)) == 1:
        return [name for name, _ in sweeps]
    counts = {label: labels.count(label) for label in labels}
    return [label if counts[label] > 1 else name for label, (name, _) in zip(labels, sweeps, strict=True)]

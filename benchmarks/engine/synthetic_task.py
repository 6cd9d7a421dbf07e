"""One synthetic task: how its runs go, by what is true of their configs. `synthetic.py` draws these tasks.

Notation
    u      unit coordinates, `n x d`;  S  steps;  q(u)  quality that training tends to, in [0, 1]
    tau    steps at which learning has largely happened
    score  floor + (top - floor) q g(S / tau), g the family's curve, plus noise of the evaluation
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from engine.protocol import Watch, replay, rest
from numpy.typing import NDArray

from protein.space import Space
from protein.types import Measurement, Observation, Params, TrialState

Array = NDArray[np.float64]
NUM_CURVE_POINTS = 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth:
    """What is true of n configs, `n` each."""

    quality: Array
    tau: Array
    steps: Array
    cost: Array  # seconds
    fails_at: Array  # fraction of the run at which it fails; infinite where it does not
    crash: NDArray[np.bool_]  # ends at the crash score without failing


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticTask:
    """One drawn problem."""

    name: str
    space: Space
    start: Params
    floor: float
    top: float
    noise: float  # of an evaluation, in score units
    curve: Callable[[Array], Array]  # of S / tau
    truth: Callable[[Array], Truth]  # of u
    crash_score: float = -math.inf

    @property
    def family(self) -> str:
        return self.name

    def final(self, u: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Returns noiseless final score, cost in seconds, and whether it gives a score, `n` each."""
        truth = self.truth(u)
        score = self._score(truth.quality, truth.steps / truth.tau)
        score = np.where(truth.crash, self.crash_score, score) if np.isfinite(self.crash_score) else score
        return score, truth.cost, ~np.isfinite(truth.fails_at)

    def spent(self, u: Array) -> Array:
        """Returns the seconds that runs take to their end or their failure, `n`."""
        truth = self.truth(u)
        return np.asarray(truth.cost * np.minimum(truth.fails_at, 1.0))

    def run(self, params: Params, *, seed: int, repeat: int = 0, watch: Watch | None = None) -> Observation:
        """Returns one trial's outcome; see `engine.protocol.Task`."""
        self.space.validate(params)
        u = self.space.to_unit(params)[None, :]
        truth = self.truth(u)
        again = [repeat] if repeat else []  # this keeps the first run's noise as it was before repeats existed
        rng = np.random.default_rng([seed, *np.frombuffer(u.tobytes(), dtype=np.uint32).tolist(), *again])
        end = min(float(truth.fails_at[0]), 1.0)
        fractions = end * (np.arange(NUM_CURVE_POINTS) + 1.0) / NUM_CURVE_POINTS
        steps = fractions * float(truth.steps[0])
        scores = self._course(truth, steps)
        noisy = scores + self.noise * rng.standard_normal(NUM_CURVE_POINTS)
        curve = tuple(
            Measurement(steps=int(s), elapsed_seconds=float(truth.cost[0]) * f, score=float(v))
            for s, f, v in zip(steps, fractions, noisy, strict=True)
        )
        failed = end < 1.0
        return replay(
            params,
            curve,
            score=None if failed else float(noisy[-1]),
            cost_seconds=float(truth.cost[0]) * end,
            reason="diverged" if failed else "",
            watch=watch,
        )

    def go_on(
        self,
        params: Params,
        *,
        earlier: Sequence[Observation],
        seed: int,
        repeat: int = 0,
        watch: Watch | None = None,
    ) -> Observation:
        """Returns the outcome of the rest of a run; see `engine.protocol.ContinuableTask`."""
        return rest(self.run(params, seed=seed, repeat=repeat), earlier[-1], watch)

    def true_score(self, observation: Observation) -> float:
        """Returns the noiseless score at the steps that were reached."""
        truth = self.truth(self.space.to_unit(observation.params)[None, :])
        whole = observation.state is TrialState.COMPLETE
        steps = truth.steps if whole else np.array([float(observation.curve[-1].steps)])
        return float(self._course(truth, steps)[0])

    def _course(self, truth: Truth, steps: Array) -> Array:
        """Noiseless scores of one config at `m` of its steps, `m`."""
        scores = self._score(truth.quality[0], steps / float(truth.tau[0]))
        return np.where(truth.crash[0] & (steps > 0.5 * truth.steps[0]), self.crash_score, scores)

    def _score(self, quality: Array | float, progress: Array) -> Array:
        return np.asarray(self.floor + (self.top - self.floor) * quality * self.curve(progress))

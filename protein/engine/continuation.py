"""Going on with finished trials (freeze and thaw): which of them, to how many steps, and at what price.

A trial whose training state was kept can go on to more steps. That costs only the rest of the longer run. So a
candidate of the search is either a new trial or a finished trial with a larger cost parameter. Both have the same
value (`protein.engine.acquisition`): the cost of the whole run says which levels of the front it raises, because that
is what the config costs whoever trains it later. Only the price differs.

Notation
    behind   seconds of training behind the checkpoint from which a trial goes on
    c(x)     predicted cost of the whole longer run; like `behind`, in seconds of a machine without other programs
    rest     c(x) - behind, at least `_LEAST_REST` of c(x): the price

Source: the idea is that of Swersky, Snoek and Adams, Freeze-Thaw Bayesian Optimization (2014). There curves are
extrapolated by a model of their own. Here the score model, which has the steps as an input, predicts the longer run.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from protein.engine.gp import Array
from protein.engine.history import by_whole_runs, readable
from protein.engine.pareto import front_indices
from protein.space import Space
from protein.types import Observation, Params, TrialState

LEAST_GROWTH = 1.25  # a longer run costs at least this many times what the run has cost: shorter ones show little
_LEAST_REST = 0.05  # of the predicted cost of the whole run
_SAME = 1e-9  # coordinates that differ by no more are equal


@dataclasses.dataclass(frozen=True, slots=True)
class Continuable:
    """The n trials that can be continued.

    Notation as above; `paid` is what a whole run has cost so far, on such a machine, too. That is more than `behind`
    where the checkpoint lies before the run's end.

    Attributes:
        space: it has a cost parameter, unless n is 0.
        trials: `n`, complete ones.
        x_unit: `n x d`.
        behind: `n`, seconds.
        paid: `n`, seconds.
    """

    space: Space
    trials: Sequence[Observation]
    x_unit: Array
    behind: Array
    paid: Array

    @classmethod
    def of(cls, space: Space, history: Sequence[Observation], x_running: Array) -> "Continuable":
        """Returns the trials of a sweep that can be continued, in an order that does not depend on the history's.

        The points of running trials are `r x d`. A trial is left out while one of them trains its config for longer.
        """
        able = [o for o in by_whole_runs(history) if o.resumable_seconds is not None and o.state is TrialState.COMPLETE]
        able = [o for o in able if not o.excluded]
        able = sorted((o for o in able if o.number is not None), key=lambda o: o.number or 0)
        if space.cost_index is None:
            able = []
        able, x = readable(space, able, [o.params for o in able])
        if able and len(x_running):
            free = ~_trained_for_longer(x, x_running, space.cost_index)
            able, x = [o for o, is_free in zip(able, free, strict=True) if is_free], x[free]
        behind = [(o.resumable_seconds or 0.0) * (1.0 - (o.busy_share or 0.0)) for o in able]
        paid = [o.calm_seconds for o in able]
        return cls(space, able, x, np.array(behind), np.array(paid))

    @property
    def clock_behind(self) -> Array:
        """`behind` by the clock, `n`: with the seconds that other programs took then."""
        return np.array([o.resumable_seconds or 0.0 for o in self.trials])

    def most_promising(self, mean: Array, num_most: int) -> "Continuable":
        """Returns the trials on the front of posterior means, `n`, and the best of the others, `num_most` at most."""
        front = front_indices(mean, self.paid)[::-1]
        top = np.argsort(-mean, kind="stable")
        chosen = list(dict.fromkeys([*front.tolist(), *top.tolist()]))[:num_most]
        trials = [self.trials[i] for i in chosen]
        return Continuable(self.space, trials, self.x_unit[chosen], self.behind[chosen], self.paid[chosen])

    def ladders(self, num_rungs: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
        """Returns longer runs of each trial, at jittered even steps of the cost parameter up to its highest value.

        These are valid points, `m x d`, and which of the n trials each continues, `m`.
        """
        index = self.space.cost_index
        if index is None or not len(self.trials):
            return np.empty((0, self.space.num_dims)), np.empty(0, dtype=np.intp)
        which = np.repeat(np.arange(len(self.trials)), num_rungs)
        x = self.x_unit[which]
        share = (np.tile(np.arange(num_rungs), len(self.trials)) + rng.random(len(x))) / num_rungs
        x[:, index] += share * (1.0 - x[:, index])
        x = self.space.canonical(x)
        longer = self.space.valid(x) & (x[:, index] > self.x_unit[which, index] + _SAME)
        return np.asarray(x[longer]), which[longer]

    def params(self, which: int, x: Array) -> Params:
        """Returns the params of a trial that goes on to the steps of a point, `d`."""
        name = self.space.cost_parameter
        assert name is not None
        return {**self.trials[which].params, name: self.space.from_unit(x)[name]}

    def words(self, which: int, x: Array) -> str:
        """Returns which trial would go on, as in "continuing trial 12 from 3.2M to 9M steps"."""
        name = self.space.cost_parameter
        assert name is not None
        trial = self.trials[which]
        ends = [self.trials[which].params[name], self.space.from_unit(x)[name]]
        unit = "steps" if "step" in name else name
        return f"continuing trial {trial.number} from {_count(ends[0])} to {_count(ends[1])} {unit}"


def rest_seconds(whole: Array, behind: Array) -> Array:
    """Returns the price of runs that cost `whole` seconds in all, of which those `behind` are paid, elementwise."""
    return np.asarray(np.where(behind > 0.0, np.maximum(whole - behind, _LEAST_REST * whole), whole))


def _trained_for_longer(x: Array, x_running: Array, cost_index: int | None) -> NDArray[np.bool_]:
    """Returns, for each of n points, whether a running one differs from it in a larger cost parameter alone, `n`."""
    assert cost_index is not None
    further = x_running[None, :, :] - x[:, None, :]
    longer = further[:, :, cost_index] > _SAME
    further[:, :, cost_index] = 0.0
    return np.asarray(np.any(longer & np.all(np.abs(further) <= _SAME, axis=2), axis=1))


def _count(value: float | str) -> str:
    number = float(value)
    for unit in ("", "k", "M"):
        if abs(number) < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000.0
    return f"{number:.3g}G"

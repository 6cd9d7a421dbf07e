"""What the user believes about good values: where the search looks first, until results say otherwise.

Notation
    u          unit coordinate of a parameter with a belief; c, s  the belief's centre and standard deviation there
    b(u)       how likely the belief holds a value, 1 at its centre: exp(-(u - c)^2 / 2 s^2); for a choice its
               probability over that of the favourite
    w          probability that a belief is wrong, before any result: `EngineSettings.belief_doubt`
    n          trials of the sweep that have ended;  B  `EngineSettings.belief_fade`
    u*         where the score is highest in this parameter

A belief enters the search in three places. Half of the initial design is drawn from it, and so are some candidates.
In every second suggestion the value of a candidate (see `protein.engine.acquisition`) is multiplied by

    [ (1 - w) prod_i b_i(u_i) + w ]^(B / n)

What the user holds to be impossible is thus at most 1 / w times less worth than the centres at n = B trials, however
many beliefs there are, and they fade as trials come in. The other suggestions do not know the beliefs. So there are
results from elsewhere, which a wrong belief can be told by.

A belief is tested against the results before each suggestion. The model draws functions that agree with the results,
along this parameter alone, through the best points that are known. Where each is highest is a draw of u*. Draws that
know nothing of the results show P(u*) of the model alone: the ends of a range are more often highest than its middle.
The results are

    E[ belief(u*) / P(u*) ]  over draws that agree with them

times likelier if u* is distributed as the belief says than if nothing is believed (the Bayes factor). With w, this
gives the probability that the belief is wrong. Above `EngineSettings.belief_dropped`, this suggestion ignores the
belief. Nothing is remembered: later results may bring it back. A belief about the cost parameter is not tested, since
scores rise with it nearly everywhere.

Source: Hvarfner et al., piBO: Augmenting Acquisition Functions with User Beliefs for Bayesian Optimization (2022),
equation 6, for the fading. That a belief is tested while the sweep runs is also done in DynaBO (arXiv 2511.02570), by
another test.
"""

import dataclasses

import numpy as np
from scipy.special import ndtr, ndtri

from protein.engine.gp import Array
from protein.engine.score_model import ScoreModel
from protein.engine.settings import EngineSettings
from protein.space import Categorical, Space
from protein.space.parameters import unit_belief

_MAX_SD = 100.0  # of a belief in unit coordinates: beyond it is even, and differences of the normal tails are rounding
_NUM_BINS = 16  # of a parameter's range, in which u* is looked for
_NUM_DRAWS = 256  # of functions, of each kind
_NUM_THROUGH = 6  # known points through which they are drawn
_JITTER = 1e-8


@dataclasses.dataclass(frozen=True, slots=True)
class Beliefs:
    """The beliefs of a space that has any.

    Attributes:
        space: the space.
        positions: of the parameters with a belief.
        held: those of them whose belief is not dropped.
    """

    space: Space
    positions: tuple[int, ...]
    held: tuple[int, ...]

    @classmethod
    def of(cls, space: Space) -> "Beliefs | None":
        """Returns the beliefs of a space; None where it has none."""
        positions = tuple(i for i, parameter in enumerate(space.parameters) if parameter.belief is not None)
        return cls(space, positions, positions) if positions else None

    @property
    def center(self) -> dict[int, float]:
        """The unit coordinate of each belief's centre or favourite, by the parameter's position."""
        return {i: self._number(i)[0] for i in self.positions}

    @property
    def dropped(self) -> list[str]:
        """Names of the parameters whose belief the results contradict."""
        return [self.space.names[i] for i in self.positions if i not in self.held]

    def drawn(self, x: Array) -> Array:
        """Returns points, `n x d`, with those coordinates drawn from the beliefs that are held; may be invalid.

        The coordinate that each of them has in `x` is the quantile that is taken, so evenly spread points stay so.
        """
        x = x.copy()
        for i in self.held:
            x[:, i] = self._quantile(i, x[:, i])
        return self.space.canonical(x)

    def log_weight(self, x: Array, doubt: float) -> Array:
        """Returns ln of (1 - w) prod b(u) + w over the held beliefs at `n x d` points, `n`; 0 at their centres."""
        likeness, active = np.ones(len(x)), self.space.active(x)
        for i in self.held:  # a value that does not exist is as good as the centre
            likeness *= np.where(active[:, i], self._likeness(i, x[:, i]), 1.0)
        return np.asarray(np.log((1.0 - doubt) * likeness + doubt))

    def tested(self, score: ScoreModel, x_best: Array, settings: EngineSettings, rng: np.random.Generator) -> "Beliefs":
        """Returns the beliefs without those that are more likely wrong than `belief_dropped`, given the results.

        Args:
            score: the model of the scores.
            x_best: `k x d`, points that are known to be good, best first.
            settings: of the engine.
            rng: source of randomness.
        """

        def wrong(i: int) -> float:
            right = (1.0 - settings.belief_doubt) * self.bayes_factor(i, score, x_best[:_NUM_THROUGH], rng)
            return settings.belief_doubt / (settings.belief_doubt + right)

        held = [i for i in self.positions if i == self.space.cost_index or wrong(i) <= settings.belief_dropped]
        return dataclasses.replace(self, held=tuple(held))

    def _number(self, i: int) -> tuple[float, float]:
        """Returns a belief's centre and standard deviation in unit coordinates; of a choice its bin and probability."""
        parameter = self.space.parameters[i]
        if isinstance(parameter, Categorical):
            assert parameter.belief is not None
            favourite, probability = parameter.belief
            return float(parameter.encode(np.array([parameter.numeric(favourite)]))[0]), probability
        assert parameter.belief is not None
        center, sd = unit_belief(parameter, parameter.belief)
        return min(max(center, 0.0), 1.0), min(sd, _MAX_SD)

    def _likeness(self, i: int, u: Array) -> Array:
        parameter, (center, sd) = self.space.parameters[i], self._number(i)
        if isinstance(parameter, Categorical):
            other = (1.0 - sd) / (len(parameter.choices) - 1)
            return np.asarray(np.where(parameter.decode(u) == parameter.decode(np.array([center])), 1.0, other / sd))
        return np.asarray(np.exp(-0.5 * ((u - center) / sd) ** 2))

    def _quantile(self, i: int, q: Array) -> Array:
        """Returns the coordinates, `n`, below which the belief has the shares q, `n`, of its probability."""
        parameter, (center, sd) = self.space.parameters[i], self._number(i)
        if isinstance(parameter, Categorical):
            others = np.delete(np.arange(len(parameter.choices)), int(parameter.decode(np.array([center]))[0]))
            which = np.minimum((np.maximum(q - sd, 0.0) / (1.0 - sd) * len(others)).astype(int), len(others) - 1)
            return np.asarray(np.where(q < sd, center, parameter.encode(others[which].astype(np.float64))))
        low, high = ndtr((0.0 - center) / sd), ndtr((1.0 - center) / sd)
        return np.asarray(np.clip(center + sd * ndtri(low + q * (high - low)), 0.0, 1.0))

    def _mass(self, i: int, edges: Array) -> Array:
        """Returns the belief's probability of each bin between `k + 1` edges, `k`."""
        parameter, (center, sd) = self.space.parameters[i], self._number(i)
        if isinstance(parameter, Categorical):
            middle = parameter.decode(0.5 * (edges[1:] + edges[:-1]))
            other = (1.0 - sd) / (len(parameter.choices) - 1)
            return np.asarray(np.where(middle == parameter.decode(np.array([center])), sd, other))
        below = ndtr((edges - center) / sd)
        return np.asarray(np.diff(below) / (below[-1] - below[0]))

    def bayes_factor(self, i: int, score: ScoreModel, x_best: Array, rng: np.random.Generator) -> float:
        """Returns how much likelier the results are if the belief is right than if nothing is known."""
        x_best = x_best[self.space.active(x_best)[:, i]]
        values = self.space.parameters[i].values()
        num_bins = _NUM_BINS if values is None else min(len(values), _NUM_BINS)
        edges = np.linspace(0.0, 1.0, num_bins + 1)
        x = np.repeat(x_best, num_bins, axis=0)
        x[:, i] = np.tile(0.5 * (edges[1:] + edges[:-1]), len(x_best))
        bins = np.tile(np.arange(num_bins), len(x_best))
        x = self.space.canonical(x)
        valid = self.space.valid(x) & self.space.active(x)[:, i]
        x, bins = x[valid], bins[valid]
        if not len(x):
            return 1.0
        able = np.bincount(bins, minlength=num_bins) > 0  # bins that no valid point has cannot be the best ones
        mass = np.where(able, self._mass(i, edges), 0.0)
        if not mass.sum() > 0.0:
            return 0.0
        nothing, known = (
            np.bincount(bins[np.argmax(score.draws(x, _NUM_DRAWS, rng, prior=prior), axis=1)], minlength=num_bins)
            for prior in (True, False)
        )
        share = (nothing + able) / (_NUM_DRAWS + able.sum())  # no bin is impossible because few draws missed it
        return float(known / _NUM_DRAWS @ (mass / mass.sum() / np.where(able, share, 1.0)))

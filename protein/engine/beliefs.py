"""What the user believes about good values: where the search looks first, until results say otherwise.

Notation
    u          unit coordinate of a parameter with a belief; c, s  the belief's centre and standard deviation there
    b(u)       how likely the belief holds a value, 1 at its centre: exp(-(u - c)^2 / 2 s^2); for a choice its
               probability over that of the favourite
    w          probability that a belief is wrong, by the results so far; before any it is `EngineSettings.belief_doubt`
    n          trials of the sweep that have ended;  B  `EngineSettings.belief_fade`

A belief enters the search in three places. Half of the initial design is drawn from it, and so are some candidates.
In every second suggestion the value of a candidate (see `protein.engine.acquisition`) is multiplied by

    exp( B / n  mean_i ln[ (1 - w_i) b_i(u_i) + w_i ] ),   the mean over the beliefs i

Of the sum, points that are drawn from many beliefs would have too little: e^(-k / 2) of the centre for k beliefs. What
the user holds to be impossible is thus at most 1 / w times less worth than the centres at n = B trials, however many
beliefs there are, and they fade as trials come in. The other suggestions do not know the beliefs. So there are results
from elsewhere, which a wrong belief can be told by.

A belief is tested against the results before it is followed. If it is right, the mean score over values that are drawn
from it, at the best points that are known, is higher than that over the whole range. By the score model the difference
of the two means is normally distributed. Before any result it is as likely above 0 as below. So the results make the
belief P(above 0) / P(below 0) times likelier to be right than wrong, which gives w. The more a belief is in doubt, the
less it sways. Above `EngineSettings.belief_dropped` nothing is drawn from it either, and it is said to be contradicted.
Nothing is remembered: later results may bring it back. A belief about the cost parameter is not tested, since scores
rise with it nearly everywhere.

Source: Hvarfner et al., piBO: Augmenting Acquisition Functions with User Beliefs for Bayesian Optimization (2022),
equation 6, for the fading. That a belief is tested while the sweep runs is also done in DynaBO (arXiv 2511.02570), by
another test.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from scipy.special import expit, log_ndtr, logit, ndtr, ndtri

from protein.engine.gp import Array, GaussianProcess
from protein.engine.joint_fit import model_inputs
from protein.engine.score_model import ScoreModel
from protein.engine.settings import EngineSettings
from protein.space import Categorical, Space
from protein.space.parameters import unit_belief

_MAX_SD = 100.0  # of a belief in unit coordinates: beyond it is even, and differences of the normal tails are rounding
_NUM_BEST = 12  # points at which a belief is tested
_NUM_VALUES = 6  # of the parameter, drawn from the belief and from the whole range, at each of them


@dataclasses.dataclass(frozen=True, slots=True)
class Beliefs:
    """The beliefs of a space that has any.

    Attributes:
        space: the space.
        positions: of the parameters with a belief.
        held: w of those of them whose belief is not dropped, by position.
    """

    space: Space
    positions: tuple[int, ...]
    held: Mapping[int, float]

    @classmethod
    def of(cls, space: Space, doubt: float = 0.0) -> "Beliefs | None":
        """Returns the beliefs of a space, each wrong with the probability `doubt`; None where it has none."""
        positions = tuple(i for i, parameter in enumerate(space.parameters) if parameter.belief is not None)
        return cls(space, positions, dict.fromkeys(positions, doubt)) if positions else None

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

    def log_weight(self, x: Array) -> Array:
        """Returns the mean over the held beliefs of ln of (1 - w) b(u) + w at `n x d` points, `n`; 0 at the centres."""
        total, active = np.zeros(len(x)), self.space.active(x)
        for i, wrong in self.held.items():  # a value that does not exist is as good as the centre
            total += np.where(active[:, i], np.log((1.0 - wrong) * self._likeness(i, x[:, i]) + wrong), 0.0)
        return total / max(len(self.held), 1)

    def tested(self, score: ScoreModel, x_known: Array, settings: EngineSettings) -> "Beliefs":
        """Returns the beliefs without those that are wrong with a probability above `belief_dropped`.

        Args:
            score: the model of the scores.
            x_known: `n x d`, the trials that gave a score.
            settings: of the engine.
        """
        wrong = expit(logit(settings.belief_doubt) - self.log_odds(score, x_known))
        found = zip(self.positions, wrong.tolist(), strict=True)
        return dataclasses.replace(self, held={i: one for i, one in found if one <= settings.belief_dropped})

    def log_odds(self, score: ScoreModel, x_known: Array) -> Array:
        """Returns ln of how many times likelier each belief is right than wrong by the results, as many."""
        process, log_odds = score.process, np.zeros(len(self.positions))
        assert isinstance(process, GaussianProcess)
        x_best = x_known[np.argsort(-score.mean(x_known), kind="stable")[:_NUM_BEST]]
        active = self.space.active(x_best)
        for position, i in enumerate(self.positions):
            x = np.repeat(x_best[active[:, i]], _NUM_VALUES, axis=0)
            if i == self.space.cost_index or not len(x):
                continue
            even = x.copy()
            x[:, i] = even[:, i] = np.tile((np.arange(_NUM_VALUES) + 0.5) / _NUM_VALUES, len(x) // _NUM_VALUES)
            x[:, i] = self._quantile(i, x[:, i])
            both = self.space.canonical(np.concatenate([x, even]))
            weights = np.repeat([1.0, -1.0], len(x)) / len(x)
            mean, sd = process.contrast(model_inputs(self.space, both, process), weights)
            height = mean / sd
            log_odds[position] = log_ndtr(height) - log_ndtr(-height)
        return log_odds

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

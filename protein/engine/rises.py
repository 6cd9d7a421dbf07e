"""By how much scores are expected to rise with more budget: the answer of `protein.engine.outlook`, without its models.

The expected rise grows in proportion to the budget; see there for the rates, the notation and the factors.

A highest possible score leaves the best score some room to rise. To know what is expected then, the rise needs a
distribution: it is 0 with some probability, and else exponential. The mean and the 80 % quantile determine both. With
mean m and probability p of any rise, the quantile is m / p ln(p / 0.2), and a rise R that ends at the room has the mean

    E min(R, room) = m (1 - exp(-p room / m)),

which is below p times the room, however large m is.
"""

import dataclasses
import math

import numpy as np

BEST, BEST_80 = 0.8, 1.6
FRONT, FRONT_80 = 0.9, 1.83
BEST_ANY, FRONT_ANY = 0.350, 0.610  # probability of any rise: ln(p / 0.2) / p is `BEST_80` and `FRONT_80`
_SECONDS = (1.0, 60.0, 3600.0, 86400.0)  # round durations are 1, 2, 5, 10, 20 or 30 of one of these
_COUNTS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
_HORIZONS = (1 / 10, 1 / 2)  # of what was spent


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rise:
    """An expected rise in score units, 0 or more, and the upper end of its 80 % interval, which begins at 0."""

    expected: float
    high: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is expected of more budget; see `protein.engine.outlook`. Rates are in score units per second of training.

    Attributes:
        best_per_second: of the best score.
        front_per_second: of the front.
        spent_seconds: T.
        room: what is left from the best score to the highest possible one; it rises by no more.
        front_room: the same of the front, on average over its costs.
    """

    best_per_second: float
    front_per_second: float
    spent_seconds: float
    room: float = math.inf
    front_room: float = math.inf

    def best(self, seconds: float) -> Rise:
        """Returns the rise of the best score after further `seconds` of training."""
        return _rise(seconds * self.best_per_second, BEST_80, BEST_ANY, self.room)

    def front(self, seconds: float) -> Rise:
        """Returns the rise of the front after further `seconds` of training."""
        return _rise(seconds * self.front_per_second, FRONT_80, FRONT_ANY, self.front_room)

    def horizons(self) -> tuple[float, ...]:
        """Returns the spans to tell people about, in seconds: round ones near a tenth and a half of what was spent.

        After two hours these are ten minutes and an hour, after twenty seconds two and ten seconds.
        """
        rounds = np.array([count * unit for unit in _SECONDS for count in _COUNTS])
        wanted = np.maximum([share * self.spent_seconds for share in _HORIZONS], rounds[0])
        nearest = np.argmin(np.abs(np.log(rounds[None, :] / wanted[:, None])), axis=1)
        return tuple(rounds[sorted(set(nearest.tolist()))].tolist())


def _rise(mean: float, factor: float, probability: float, room: float) -> Rise:
    """Returns the rise of a mean that holds without a limit; `factor` gives its 80 % quantile."""
    if mean <= 0.0 or math.isinf(room):
        return Rise(expected=mean, high=factor * mean)
    return Rise(expected=-mean * math.expm1(-probability * room / mean), high=min(factor * mean, room))

"""What the engine answers, as plain data: configs that could be recommended, what matters, what more budget buys.

The models that give these answers are elsewhere (`protein.engine.recommend`, `protein.engine.outlook`). So a command
that shows answers which are known already need not load them (`protein.api.answers`).

The expected rise of the score grows in proportion to the budget; `protein.engine.outlook` has the rates, the notation
and the factors.

A highest possible score leaves the best score some room to rise. To know what is expected then, the rise needs a
distribution: it is 0 with some probability, and else exponential. The mean and the 80 % quantile determine both. With
mean m and probability p of any rise, the quantile is m / p ln(p / 0.2), and a rise R that ends at the room has the mean

    E min(R, room) = m (1 - exp(-p room / m)),

which is below p times the room, however large m is.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from protein.engine import pareto
from protein.types import Estimate, Params, ParamValue

Verdict = Literal["matters", "maybe", "hardly"]
MODEL = "score model"
MATTERS = 0.05  # the share from which on a parameter matters
MEANING = (
    "a share is what moving one parameter alone over its range changes around the best configs, of what all of them"
    " change [80 % interval]; it matters with all of that from 5 % on, hardly with all of it below"
)
LIKELY, SURELY = 0.5, 0.8  # probabilities of keeping the limits; `docs/decisions/engine.md` has the choice
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A config that could be recommended to the user."""

    params: Params
    score: Estimate  # the posterior of its true score
    expected_cost_seconds: float  # mean of what its runs cost, each from its first step, without other programs
    trials: tuple[int, ...]  # positions of its complete runs among the observations, oldest first
    measured: tuple[float, ...]  # their scores
    basis: str  # where `score` comes from: `MODEL`, with what went wrong in it, or "mean of its own runs, ..."
    keeps: float | None = None  # probability that one more run keeps the sweep's limits; None: none, or not known

    @property
    def runs(self) -> int:
        """How often it was trained to its end."""
        return len(self.trials)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of a variance, from 0 to 1, with the central 80 % of what is believed of it."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """Whether the share is surely at least `MATTERS`, surely below, or neither; by whole percent, as shown."""
        low, high = round(self.low, 2), round(self.high, 2)
        return "matters" if low >= MATTERS else "hardly" if high < MATTERS else "maybe"

    def text(self) -> str:
        """Returns it as in "43 % [30, 55]"."""
        value, low, high = (round(100.0 * one) for one in (self.value, self.low, self.high))
        return f"{value} % [{low}, {high}]"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Matter:
    """How much one parameter matters; see `protein.analysis.matters`.

    Attributes:
        name: of the parameter.
        share: near the best configs.
        whole: of the variance over the whole space, with what the parameter does together with others.
        alone: the same without that.
        is_cost: whether it is the cost parameter, whose share is apart from those of the others.
        active: False where the best configs do not have it. Its share is of the best configs that do.
        best: low end, median and high end of where its best value lies (80 %); None for a categorical, for the cost,
            and where the data do not tell.
        choices: of a categorical, the probability of each choice to be the best, the likeliest first.
        law: how its best value changes with cost; "" where no change is seen.
    """

    name: str
    share: Share
    whole: Share
    alone: Share
    is_cost: bool = False
    active: bool = True
    best: tuple[ParamValue, ParamValue, ParamValue] | None = None
    choices: tuple[tuple[ParamValue, float], ...] = ()
    law: str = ""

    @property
    def verdict(self) -> Verdict:
        """What the share says: "matters", "maybe" or "hardly"."""
        return self.share.verdict


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two parameters that interact: the best value of one depends on the other. The share is near the best configs."""

    names: tuple[str, str]
    share: Share


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Matters:
    """What matters in a sweep; see `protein.analysis.matters`.

    Attributes:
        target: what it matters for.
        parameters: those that matter first, then those that may, then those that hardly do; within these by share.
        pairs: those that may interact, the largest share first.
        best_seconds: the cost for which the best values are, that of the largest trial; None where there are no laws,
            and the best values are those through the best configs.
        num_trials: with a score, which the model has learnt from.
        problem: why there is no answer, in one line; "" if there is one.
    """

    target: Literal["score", "cost"]
    parameters: tuple[Matter, ...] = ()
    pairs: tuple[Pair, ...] = ()
    best_seconds: float | None = None
    num_trials: int = 0
    problem: str = ""

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Matters":
        """Returns what `dataclasses.asdict` was given, perhaps by way of JSON."""

        def share(one: Any) -> Share:
            return Share(**one)

        parameters = [
            Matter(
                **{
                    **one,
                    **{name: share(one[name]) for name in ("share", "whole", "alone")},
                    "best": None if one["best"] is None else tuple(one["best"]),
                    "choices": tuple((choice, probability) for choice, probability in one["choices"]),
                }
            )
            for one in data["parameters"]
        ]
        pairs = [Pair(names=tuple(one["names"]), share=share(one["share"])) for one in data["pairs"]]
        return cls(**{**data, "parameters": tuple(parameters), "pairs": tuple(pairs)})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RangeEnd:
    """A parameter whose best values lie on the end of its range.

    Attributes:
        name: of the parameter.
        end: which end.
        bound: the value there.
        best_value: that of the best expected config.
        probability: that the score is highest in the end zone.
        effect: by how much the best value is better than a random one, in standard deviations of the scores.
        natural: whether nothing lies beyond, as far as the bound tells (0 and 1 of a share or a probability, 0 or 1 of
            a count). Then there is nothing to widen.
    """

    name: str
    end: Literal["low", "high"]
    bound: ParamValue
    best_value: ParamValue
    probability: float
    effect: float
    natural: bool

    def text(self) -> str:
        """Returns it as a sentence without a full stop, with what to do."""
        bound = f"{self.bound:.6g}" if isinstance(self.bound, float) else str(self.bound)
        said = f"the best values of {self.name} lie on the {self.end} end of its range ({bound})"
        if self.natural:
            return f"{said}: nothing may lie beyond it, but it could be fixed there"
        side = "below" if self.end == "low" else "above"
        return f"{said}: better ones may lie {side}, so widen the range in the next sweep"


def best(contenders: Sequence[Contender], under_seconds: float = math.inf) -> Contender | None:
    """Returns the best expected contender among those expected to cost at most `under_seconds`, if any.

    Of contenders with the same expected score, the cheapest is taken. With limits, see `recommendable`.
    """
    affordable = [one for one in recommendable(contenders) if one.expected_cost_seconds <= under_seconds]
    return max(affordable, key=lambda c: (c.score.value, -c.expected_cost_seconds), default=None)


def within_limits(keeps: Sequence[float | None]) -> list[int]:
    """Returns which of n configs may be recommended, in order, by the probabilities that they keep the limits, `n`.

    These are the ones that keep them with `SURELY`. Where there are none, they are those that more likely keep them
    than not (`LIKELY`), and else the one that is nearest to that. Where nothing is known, all may be.
    """
    for least in (SURELY, LIKELY):
        if found := [i for i, one in enumerate(keeps) if one is None or one >= least]:
            return found
    return [max(range(len(keeps)), key=lambda i: keeps[i] or 0.0)] if keeps else []


def recommendable(contenders: Sequence[Contender]) -> list[Contender]:
    """Returns the contenders that may be recommended, in order (`within_limits`)."""
    return [contenders[i] for i in within_limits([one.keeps for one in contenders])]


def expected_front(contenders: Sequence[Contender]) -> list[Contender]:
    """Returns the contenders at which the best expected score rises with cost, cheapest first; of equal ones the first.

    For every limit t at once, the last of them that costs at most t is `best(contenders, t)`. The measured front, of
    the highest score for every cost, is too good: of many noisy scores the highest is mostly a lucky one.
    """
    able = recommendable(contenders)
    index = pareto.front_indices([c.score.value for c in able], [c.expected_cost_seconds for c in able])
    return [able[i] for i in index]


def spoken_of(
    values: Sequence[float],
    costs: Sequence[float],
    measured: Sequence[float],
    keeps: Sequence[float | None] | None = None,
) -> set[int]:
    """Returns which of n contenders some question about a recommendation names, whatever its limit of cost.

    These are for every limit the best expected and the best measured one, the cheapest one, and the knee. With limits
    on measured values, they are of those that may be recommended, beside the best measured one of all.

    Args:
        values: `n`, expected scores.
        costs: `n`, expected costs in seconds.
        measured: `n`, the highest measured score of each.
        keeps: `n`, the probability that each keeps the limits; None: there are no limits.
    """
    able = list(range(len(costs))) if keeps is None else within_limits(keeps)
    kept: set[int] = set()
    if len(able) < len(costs):
        kept.add(max(range(len(costs)), key=lambda i: (measured[i], -i)))
    rising: tuple[list[float], list[float]] = ([], [])
    for i in sorted(able, key=lambda i: (costs[i], i)):
        for best, value in zip(rising, (values[i], measured[i]), strict=True):
            if not best or value >= best[-1]:  # equal ones, too: which of them is named depends on the question
                best.append(value)
                kept.add(i)
    position = pareto.knee_index([values[i] for i in able], [costs[i] for i in able])
    return kept if position is None else kept | {able[position]}


def knee(contenders: Sequence[Contender]) -> Contender | None:
    """Returns the knee of the front of expected scores and costs; None where it has none (`pareto.knee_index`)."""
    able = recommendable(contenders)
    position = pareto.knee_index([c.score.value for c in able], [c.expected_cost_seconds for c in able])
    return None if position is None else able[position]


def _rise(mean: float, factor: float, probability: float, room: float) -> Rise:
    """Returns the rise of a mean that holds without a limit; `factor` gives its 80 % quantile."""
    if mean <= 0.0 or math.isinf(room):
        return Rise(expected=mean, high=factor * mean)
    return Rise(expected=-mean * math.expm1(-probability * room / mean), high=min(factor * mean, room))

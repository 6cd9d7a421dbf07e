"""Laws out of the front: for every parameter its best value as a function of cost, also beyond the largest trial.

Notation
    t, v      cost in seconds; v is 1 at the largest trial with a score (see `protein.engine.front_model`)
    draws     S functions from the posterior of the front model. Each has its own best config at each cost, so the draws
              of a parameter's best value are samples of what is believed of it
    law       on a parameter's scale (ln for log and pow2, log-odds for logit, the value itself for linear) the best
              value is a straight line over ln t beyond the largest trial: a power law for a parameter on a log scale
    interval  the central 80 % of the draws

`protein.engine.front_model` has how the draws go on beyond the trials. The interval grows with the distance.

The cost parameter follows from the others: it is what the cost model needs to reach t. Beyond the trials, cost is taken
to be proportional to it. It alone may leave its range. For a categorical, the law is the share of the draws in which
each choice is best.

Where an interval is nearly as wide as that of a uniform distribution over the range, the data do not tell.

A plan, the config to try at a cost, is the recommended config (`protein.engine.recommend`), moved to that cost along
the most likely slopes. A parameter stays where it is if it cannot change the score, or if its slope is smaller than
half the slope's standard deviation. A slope can be worth following where the best value is not known:
`docs/decisions/engine.md` has the figures. This gave better configs than the medians of the best values, and than the
maximum of the front model.

Such a slope is a guess that pays on average, and only near the trials. Its error grows with the distance, without a
limit. So a plan follows a trend that the data do not tell (`Law.moves`) to `CHECKED_TIMES` the largest trial's cost at
most. That is as far as laws were checked against known best values (docs/benchmarks-engine.md). From there on the
parameter is held. A trend that the data tell goes on.

Only final scores count. Points of learning curves would teach which config is best half-way through a long run. Under a
learning-rate schedule that is another config than the best one of a run half as long.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protein.columns import cell
from protein.engine.front_model import LEVELS, FrontDraws, FrontModel
from protein.engine.gp import Array, single_thread
from protein.engine.history import History, complete_runs
from protein.engine.pareto import MIN_COST_SECONDS
from protein.engine.recommend import contenders
from protein.engine.results import Contender, best
from protein.errors import SpaceError, UsageError
from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.space.parameters import value_ends
from protein.types import Estimate, Observation, Params, ParamValue
from protein.validate import number

MIN_CONFIGS = 10  # that were trained to their end
_MAX_ROUNDS = 5  # of fitting a plan to the constraints
_MAX_AWAY = 4096  # from the number of steps that a cost pays for
MIN_COST_RATIO = 3.0  # of the most expensive trial to the cheapest
CHECKED_TIMES = 10.0  # the largest trial's cost, to which trends are followed that the data do not tell
UNKNOWN_WIDTH = 0.6  # intervals of at least this share of the range tell nothing; 0.8 is that of no knowledge at all
_SEED = 20  # laws are a function of the observations alone
_LN_10 = math.log(10.0)
_KNOWN_SHARE = 0.6  # of the draws, in which one choice must be the best
_QUANTILES = (0.1, 0.5, 0.9)
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BestValue:
    """What is believed of one parameter's best value at one cost.

    Attributes:
        estimate: median and 80 % interval of the raw value; None for a categorical.
        shares: of a categorical, the probability of each choice to be the best; empty for a number. A choice that is no
            number, text or truth value is the text of its JSON.
        known: False where the data do not tell.
        at_end: "low" or "high" where the median is at this end of the range, "beyond" for a cost parameter outside its
            range, "" otherwise.
        active: the probability that the best config has this parameter. All others are of the draws that have it. Where
            none has, there is no estimate, and there are no shares.
    """

    estimate: Estimate | None
    shares: Mapping[ParamValue, float]
    known: bool
    at_end: str
    active: float = 1.0

    @property
    def is_absent(self) -> bool:
        """Whether the best config is rather one without this parameter."""
        return self.active < 0.5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """How one parameter's best value changes with cost, at the largest trial and beyond.

    Attributes:
        name: of the parameter.
        kind: "power" where the value is proportional to cost^exponent (log and pow2 scales, and the cost parameter),
            "odds" where value / (1 - value) is (logit scales), "line" where `exponent` is added for each factor of 10
            in cost (linear scales), "shares" for a categorical.
        exponent: see `kind`; None for a categorical.
        effect: standard deviations of the scores that the parameter can change, near the best config of the largest
            cost.
        known: False where the data do not tell the best value.
        followed: whether a plan moves it, because the data show some trend of it; never a categorical.
    """

    name: str
    kind: Literal["power", "odds", "line", "shares"]
    exponent: Estimate | None
    effect: float
    known: bool
    followed: bool

    @property
    def moves(self) -> bool:
        """Whether the exponent's interval leaves out 0."""
        return self.known and self.exponent is not None and (self.exponent.low > 0.0 or self.exponent.high < 0.0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The config to try at a cost.

    Attributes:
        seconds: the cost.
        params: the config. The cost parameter may be outside its range.
        values: what is believed of each parameter's best value at this cost, by name.
        times_largest: the cost over that of the largest trial.
        held: names of the parameters that have the value of `CHECKED_TIMES` the largest trial's cost, and not that of
            this one, because the data do not tell their trend.
        constrained: names of the parameters that have another value than the laws give, so that the constraints hold;
            never the cost parameter. None of them is in `held`.
    """

    seconds: float
    params: Params
    values: Mapping[str, BestValue]
    times_largest: float
    held: tuple[str, ...] = ()
    constrained: tuple[str, ...] = ()


class Laws:
    """The laws of a sweep, which `Protein.laws` returns. Immutable.

    Attributes:
        space: what was searched.
        laws: one for each parameter, in the space's order.
        cheapest_seconds: cost from which on the best values are read off the trials.
        largest_seconds: predicted cost of the most expensive trial with a score; from there on the laws go on.
    """

    def __init__(self, model: FrontModel, draws: FrontDraws, anchor: Array) -> None:
        """Reads the laws off draws of the front model; `anchor` is the place of the recommended config, `d`."""
        self.space = model.space
        self.cheapest_seconds = model.seconds(LEVELS[0])
        self.largest_seconds = model.seconds(1.0)
        self._model, self._draws, self._anchor = model, draws, anchor
        here = self.values(self.largest_seconds)
        self.laws = tuple(self._law(i, here) for i in range(self.space.num_dims))

    def values(self, seconds: float) -> dict[str, BestValue]:
        """Returns what is believed of each parameter's best value at a cost, by name.

        Raises:
            UsageError: the cost is not a number of seconds, or below `cheapest_seconds`.
        """
        seconds = self._checked(seconds)
        with single_thread():
            x = self._draws.at(self._model, seconds)
            steps = self._steps(x, seconds)
        active = self.space.active(x)
        return {
            parameter.name: _best_value(parameter, x[:, i], active[:, i], known=bool(self._draws.matters[i]))
            if i != self.space.cost_index
            else _best_steps(parameter, steps)
            for i, parameter in enumerate(self.space.parameters)
        }

    def plan(self, seconds: float) -> Plan:
        """Returns the config to try at a cost, which may be far above the largest trial's.

        Raises:
            UsageError: the cost is not a number of seconds, or it is below `cheapest_seconds`. Or no config with so
                many steps satisfies the constraints.
        """
        values, seconds, index = self.values(seconds), float(seconds), self.space.cost_index
        assert index is not None
        v = self._model.level(seconds)
        nearer = min(v, self._model.level(CHECKED_TIMES * self.largest_seconds))
        moved = self._moved(v, [v if law.moves else nearer for law in self.laws])
        params, further = self.space.snap(moved), self.space.snap(self._moved(v, v))
        name = self.space.names[index]
        held = tuple(one for one in self.space.names if one != name and params.get(one) != further.get(one))
        in_range = params[name]
        for _ in range(_MAX_ROUNDS):
            with single_thread():
                x = self.space.to_unit({**params, name: in_range})
                steps = float(self._steps(x[None, :], seconds)[0])
            near = _near(self.space.parameters[index], steps)
            allowed = np.flatnonzero(self.space.satisfying(params, name, near))
            params[name] = near[allowed[0] if len(allowed) else 0]
            before, params = params, params if len(allowed) else self._allowed(params, name)
            if params == before:  # else the steps that it makes in the time may be others now
                break
        constrained = tuple(one for one in self.space.names if one != name and params.get(one) != moved.get(one))
        return Plan(
            seconds=seconds,
            params=params,
            values=values,
            times_largest=seconds / self.largest_seconds,
            held=tuple(one for one in held if one not in constrained),
            constrained=constrained,
        )

    def _moved(self, v: float, levels: float | Sequence[float]) -> Params:
        """Returns the recommended config, moved to cost `v`, whatever the constraints are.

        `levels` is how far the trend of each parameter goes.
        """
        index = self.space.cost_index
        slope = np.where(self._draws.followed, self._draws.mean_slope, 0.0)
        place = self._anchor + slope * (np.asarray(levels) - self._anchor[index])
        place[index] = min(max(v, 0.0), self._model.reach)
        return self.space.from_unit(place)

    def _allowed(self, params: Params, name: str) -> dict[str, ParamValue]:
        """Returns the nearest params that satisfy the constraints with these steps, which may be beyond their range.

        Raises `UsageError` where there are none.
        """
        others = [one for one in self.space.parameters if one.name != name]
        steps = params[name]
        refused = UsageError(f"no config with {name} {steps} satisfies the constraints; give another cost")
        if not others:
            raise refused
        try:
            space = Space(others, constraints=self.space.constraints, fixed={**self.space.fixed, name: steps})
        except SpaceError as error:
            raise refused from error
        found = {**space.snap(params), name: steps}
        return {one: found[one] for one in self.space.names if one in found}

    def _law(self, i: int, values: Mapping[str, BestValue]) -> Law:
        """Returns the law of one parameter, given the best values at the largest trial's cost."""
        parameter, model, draws = self.space.parameters[i], self._model, self._draws
        kind, effect, known = _kind(parameter), float(draws.effects[i]), values[parameter.name].known
        if isinstance(parameter, Categorical):
            return Law(name=parameter.name, kind=kind, exponent=None, effect=effect, known=known, followed=False)
        if i == self.space.cost_index:
            kind = "power"  # cost is proportional to it beyond the trials, whatever its scale
            costs = (self.largest_seconds, 10.0 * self.largest_seconds)
            steps = [self._steps(draws.at(model, cost), cost) for cost in costs]
            exponents = np.log(steps[1] / steps[0]) / _LN_10
        else:
            log_low, log_high = model.log_cost_range
            exponents = draws.slopes[:, i] / (log_high - log_low) * _scale_width(parameter)
        exponents = exponents * (_LN_10 if kind == "line" else 1.0)
        return Law(
            name=parameter.name,
            kind=kind,
            exponent=_estimate(exponents),
            effect=effect,
            known=known,
            followed=i == self.space.cost_index or bool(draws.followed[i]),
        )

    def _steps(self, x_unit: Array, seconds: float) -> Array:
        """Returns the cost parameter's values, `m`, with which configs, `m x d`, cost so much."""
        assert self.space.cost_index is not None
        coordinates, factors = self._model.cost_coordinates(x_unit, math.log(seconds))
        return np.asarray(self.space.parameters[self.space.cost_index].decode(coordinates) * factors)

    def _checked(self, seconds: float) -> float:
        if not math.isfinite(seconds := number(seconds, "a cost")):
            raise UsageError(f"a cost must be a number of seconds, got {seconds}")
        if seconds < self.cheapest_seconds * (1.0 - _ROUNDING):
            raise UsageError(
                f"a cost of {seconds:.3g} s is below {self.cheapest_seconds:.3g} s, where the laws begin; ask for that"
                " or more"
            )
        return seconds


def fit_laws(space: Space, observations: Sequence[Observation], *, known: Sequence[Contender] | None = None) -> Laws:
    """Returns the laws that a sweep's trials show.

    Args:
        space: what was searched; observations that it cannot read are left out.
        observations: of one sweep, in any state and order; scores are to be maximised.
        known: its contenders, where the caller has them; None: they are found here.

    Raises:
        UsageError: the space has no cost parameter, fewer than 10 configs were trained to their end, or their costs are
            too much alike.
    """
    index = space.cost_index
    if index is None or getattr(space.parameters[index], "low", 0) <= 0:
        said = (
            "no cost parameter" if index is None else f"a cost parameter, {space.names[index]}, that may be 0 or less"
        )
        raise UsageError(
            f"laws need a cost parameter above 0, and the space has {said}; name what makes a trial expensive, such as"
            " the number of steps, as the cost parameter"
        )
    groups, _ = complete_runs(space, observations)
    if len(groups) < MIN_CONFIGS:
        raise UsageError(
            f"laws need {MIN_CONFIGS} configs that were trained to their end, and have {len(groups)}; run more trials"
        )
    costs = [observations[i].run_seconds for group in groups for i in group]
    _check_costs(max(min(costs), MIN_COST_SECONDS), max(costs), "took", space.names[index])
    recommended = best(contenders(space, observations) if known is None else known)
    assert recommended is not None
    with single_thread(), np.errstate(all="ignore"):
        model = FrontModel.fit(space, History.of(space, observations, []))
        _check_costs(model.seconds(0.0), model.seconds(1.0), "is expected to take", space.names[index])
        draws = FrontDraws.of(model, np.random.default_rng(_SEED))
        anchor = space.to_unit(recommended.params)
        anchor[index] = min(model.level(max(recommended.expected_cost_seconds, MIN_COST_SECONDS)), 1.0)
        return Laws(model, draws, anchor)


def _check_costs(low: float, high: float, verb: str, cost_parameter: str) -> None:
    if high < MIN_COST_RATIO * low:
        raise UsageError(
            f"laws need trials of different cost: the most expensive {verb} {high:.3g} s, less than {MIN_COST_RATIO:g}"
            f" times the cheapest ({low:.3g} s); widen the range of {cost_parameter}"
        )


def _kind(parameter: Parameter) -> Literal["power", "odds", "line", "shares"]:
    if isinstance(parameter, Categorical):
        return "shares"
    kinds: dict[str, Literal["power", "odds", "line"]] = {"linear": "line", "logit": "odds"}
    return kinds.get(parameter.scale, "power")


def _scale_width(parameter: Float | Integer) -> float:
    """Returns by how much the value on its scale (natural logarithms) changes over the unit interval."""
    low, high = float(parameter.low), float(parameter.high)
    if parameter.scale == "logit":
        return math.log(high / (1.0 - high)) - math.log(low / (1.0 - low))
    if parameter.scale == "pow2":
        return (math.frexp(high)[1] - math.frexp(low)[1] + 1) * math.log(2.0)
    low, high = value_ends(parameter)
    return math.log(high / low) if parameter.scale == "log" else high - low


def _best_value(parameter: Parameter, x_unit: Array, active: NDArray[np.bool_], *, known: bool) -> BestValue:
    """Returns what coordinates of the best value, `S`, say about it, where the parameter is active, `S`."""
    share, x_unit = float(active.mean()), x_unit[active]
    if not share:
        return BestValue(estimate=None, shares={}, known=False, at_end="", active=share)
    known = known and share >= 0.5
    if isinstance(parameter, Categorical):
        counts = np.bincount(parameter.decode(x_unit).astype(int), minlength=len(parameter.choices)) / len(x_unit)
        shares = dict(zip(map(cell, parameter.choices), counts.tolist(), strict=True))
        known = bool(known and max(counts) >= _KNOWN_SHARE)
        return BestValue(estimate=None, shares=shares, known=known, at_end="", active=share)
    low, middle, high = np.quantile(x_unit, _QUANTILES).tolist()
    numbers = [float(one) for one in parameter.decode(np.array([low, middle, high]))]
    at_end = "low" if numbers[1] <= parameter.low else "high" if numbers[1] >= parameter.high else ""
    known = known and high - low < UNKNOWN_WIDTH
    estimate = Estimate(value=numbers[1], low=numbers[0], high=numbers[2])
    return BestValue(estimate=estimate, shares={}, known=known, at_end=at_end, active=share)


def _best_steps(parameter: Parameter, steps: Array) -> BestValue:
    estimate = _estimate(steps)
    assert isinstance(parameter, Float | Integer)
    beyond = "beyond" if estimate.value > parameter.high * (1.0 + _ROUNDING) else ""
    return BestValue(estimate=estimate, shares={}, known=True, at_end=beyond)


def _estimate(values: Array) -> Estimate:
    low, middle, high = np.quantile(values, _QUANTILES).tolist()
    return Estimate(value=middle, low=low, high=high)


def _near(parameter: Parameter, number: float) -> list[ParamValue]:
    """Returns values of the cost parameter by their distance from a number that may be beyond its range.

    More than one where constraints may demand a multiple of something: whole numbers up to a hundredth away.
    """
    nearest = _rounded(parameter, number)
    if not isinstance(parameter, Integer) or parameter.scale == "pow2":
        return [nearest]
    step = parameter.step or 1
    most = min(int(nearest) // 100 // step, _MAX_AWAY)
    offsets = [step * away for away in sorted(range(-most, most + 1), key=abs)]
    return [int(nearest) + offset for offset in offsets if int(nearest) + offset >= parameter.low]


def _rounded(parameter: Parameter, number: float) -> ParamValue:
    """Returns the value of the cost parameter nearest to a number that may be beyond its range."""
    assert isinstance(parameter, Float | Integer)
    number = max(number, float(parameter.low))
    if parameter.scale == "pow2":
        return parameter.raw(2.0 ** round(math.log2(number)))
    if parameter.step is not None:
        number = parameter.low + round((number - parameter.low) / parameter.step) * parameter.step
    return round(number) if isinstance(parameter, Integer) else float(f"{number:.6g}")

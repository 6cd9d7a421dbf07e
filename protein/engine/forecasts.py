"""How well the engine's predictions hold: measured values, compared with the intervals predicted before the trial.

Notation
    y            a measured score or cost, on the scale of its model: a score itself, or the logarithm of a cost
    m, l, u      the prediction on that scale: its median and the ends of its central 80 % interval
    z            (y - m) / s, in standard deviations, with s = (u - m) / 1.28 above the median and (m - l) / 1.28 below
                 it; a miss of an interval without width gives `MAX_Z`
    coverage     share of the y within [l, u], which should be 0.8
    PIT          Phi(z), the probability integral transform: even over [0, 1] when the predictions are right, highest in
                 the middle when the intervals are too wide, and at both ends when they are too narrow

Only trials that were trained to their end count. The final score of a stopped or failed trial was never measured.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, Protocol

from protein.engine.pareto import MIN_COST_SECONDS
from protein.types import Z80, Estimate, TrialState

COVERAGE = 0.8  # of the intervals
MAX_Z = 10.0
NUM_BINS = 5
NUM_PARTS = 3  # of the sweep, to see how it changes
MIN_FORECASTS = 10  # fewer tell too little about a share
_LEVEL = 0.05  # of the tests behind a verdict

Quantity = Literal["score", "cost"]


class Predicted(Protocol):
    """What the functions below need of a record; `TrialRecord` has it."""

    @property
    def state(self) -> TrialState: ...
    @property
    def score(self) -> float | None: ...
    @property
    def cost_seconds(self) -> float: ...
    @property
    def predicted_score(self) -> Estimate | None: ...
    @property
    def predicted_cost_seconds(self) -> Estimate | None: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One prediction and what was measured, in score units or seconds."""

    predicted: Estimate
    measured: float
    z: float

    @property
    def inside(self) -> bool:
        return self.predicted.low <= self.measured <= self.predicted.high


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ForecastQuality:
    """How well one model's predictions held. Everything is None or empty where nothing was predicted."""

    quantity: Quantity
    forecasts: tuple[Forecast, ...]  # in the order of the trials
    below: int  # measured below the interval
    inside: int
    above: int
    coverage: float | None
    mean_z: float | None  # below 0: less was measured than predicted
    error: float | None  # mean absolute: in score units; for costs of the logarithm, so 0.1 is about 10 %
    pit: tuple[int, ...]  # forecasts in each of `NUM_BINS` even bins of the PIT
    coverage_by_part: tuple[float, ...]  # of the first, the middle and the last third of the forecasts
    verdict: str


def z_score(predicted: Estimate, measured: float, quantity: Quantity) -> float:
    """Returns by how many standard deviations a measured value is above its prediction, within `MAX_Z`."""
    low, middle, high, y = (_scaled(v, quantity) for v in (predicted.low, predicted.value, predicted.high, measured))
    gap = y - middle
    if gap == 0.0:
        return 0.0
    sd = (high - middle if gap > 0 else middle - low) / Z80
    return math.copysign(min(abs(gap) / sd, MAX_Z) if sd > 0 else MAX_Z, gap)


def forecast_quality(records: Sequence[Predicted], quantity: Quantity) -> ForecastQuality:
    """Returns how the predictions of a sweep's scores, or of its costs, held; `records` in the order of the trials."""
    forecasts = []
    for record in records:
        predicted = record.predicted_score if quantity == "score" else record.predicted_cost_seconds
        if record.state is not TrialState.COMPLETE or predicted is None or record.score is None:
            continue
        measured = record.score if quantity == "score" else record.cost_seconds
        forecasts.append(Forecast(predicted=predicted, measured=measured, z=z_score(predicted, measured, quantity)))
    n = len(forecasts)
    below = sum(forecast.measured < forecast.predicted.low for forecast in forecasts)
    above = sum(forecast.measured > forecast.predicted.high for forecast in forecasts)
    errors = [abs(_scaled(f.measured, quantity) - _scaled(f.predicted.value, quantity)) for f in forecasts]
    pit = [0.5 * math.erfc(-forecast.z / math.sqrt(2.0)) for forecast in forecasts]
    bins = [min(int(p * NUM_BINS), NUM_BINS - 1) for p in pit]
    parts = (
        [forecasts[n * i // NUM_PARTS : n * (i + 1) // NUM_PARTS] for i in range(NUM_PARTS)] if n >= NUM_PARTS else []
    )
    return ForecastQuality(
        quantity=quantity,
        forecasts=tuple(forecasts),
        below=below,
        inside=n - below - above,
        above=above,
        coverage=(n - below - above) / n if n else None,
        mean_z=math.fsum(forecast.z for forecast in forecasts) / n if n else None,
        error=math.fsum(error / n for error in errors) if n else None,
        pit=tuple(bins.count(i) for i in range(NUM_BINS)) if n else (),
        coverage_by_part=tuple(sum(f.inside for f in part) / len(part) for part in parts),
        verdict=_verdict(forecasts, quantity),
    )


def _verdict(forecasts: Sequence[Forecast], quantity: Quantity) -> str:
    """Returns in words whether the intervals have the right width and place, as far as the numbers can tell."""
    n = len(forecasts)
    if n < MIN_FORECASTS:
        return f"{n or 'no'} predicted {quantity}{'' if n == 1 else 's'}: too few to judge ({MIN_FORECASTS} are needed)"
    inside = sum(forecast.inside for forecast in forecasts)
    share = f"{inside} of {n} within the 80 % interval"
    if binomial_p_value(inside, n, COVERAGE) >= _LEVEL:
        width = f"the {quantity} intervals are about right: {share}"
    elif inside < COVERAGE * n:
        width = f"the {quantity} intervals are too narrow: {share}"
    else:
        width = f"the {quantity} intervals are too wide: {share}"
    over = sum(forecast.z > 0 for forecast in forecasts)
    under = sum(forecast.z < 0 for forecast in forecasts)
    if over + under == 0 or binomial_p_value(over, over + under, 0.5) >= _LEVEL:
        return width
    more = {"score": ("higher", "lower"), "cost": ("more", "less")}[quantity][over < under]
    verb = "are" if quantity == "score" else "come to"
    return f"{width}; {quantity}s {verb} mostly {more} than predicted ({max(over, under)} of {over + under})"


def _scaled(value: float, quantity: Quantity) -> float:
    return value if quantity == "score" else math.log(max(value, MIN_COST_SECONDS))


def binomial_p_value(successes: int, trials: int, probability: float) -> float:
    """Returns the p-value of the exact two-sided binomial test: how likely a number is that is no likelier than this.

    `scipy.stats.binomtest` gives the same, and takes half a second to import.
    """
    count, logs = math.lgamma(trials + 1), (math.log(probability), math.log1p(-probability))
    weights = [
        count - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * logs[0] + (trials - k) * logs[1]
        for k in range(trials + 1)
    ]
    return min(1.0, math.fsum(math.exp(one) for one in weights if one <= weights[successes] + 1e-7))

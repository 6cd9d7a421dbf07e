"""Tasks whose best config is known at every cost: training runs for checking laws (see `protein.engine.laws`).

Notation
    S, t        steps and cost in seconds of a run;  T  the full cost, ten times the cap of the sweep's trials
    u_i         unit coordinate of parameter i in the space of the full cost;  u_i*(t)  its best value at cost t
    delta       u - u*;  D = sum_i w_i delta_i^2, after two pairs of coordinates were sheared against each other

A seed draws where the optimum lies, how fast it moves, and how sharp it is. In all families some parameters have an
exponent of 0, and two parameters do not matter at all.

    power     score A(S) / (1 + D), cost proportional to S. u* moves in a straight line over ln S: a power law
    tradeoff  score -ln(E + (a S^-alpha + b N^-beta) (1 + D)), cost proportional to S N. The best width N and the best
              number of steps are powers of the cost, and the best rate falls with the width
    bent      as power, but u* slows down on its way: no power law, which the intervals should survive

`recorded_law_task` gives pong and breakout through the surrogates of `engine.recorded`. There the truth is the best
score at cost T that a search of the surrogate finds. No best values are read off, because many are nearly as good.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np
from engine.protocol import Watch, replay
from engine.recorded import LIMITS, RecordedTask, make_recorded
from numpy.typing import NDArray

from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.types import Measurement, Observation, Params

Array = NDArray[np.float64]

FAMILIES = ("power", "tradeoff", "bent")
RECORDED = ("recorded-pong", "recorded-breakout")
SHARE = 0.1  # of the full cost, which no trial of the sweep may exceed
NUM_CURVE_POINTS = 8
_MAX_STEPS = 10_000_000
_SECONDS_A_STEP = 1e-4
_START_UP_SECONDS = 0.2
_RECORDED_QUANTILE = 0.75  # of the costs of the small space's random configs: the cap of the recorded sweeps' trials


@dataclasses.dataclass(frozen=True, kw_only=True)
class LawTask:
    """One drawn problem.

    Attributes:
        name: the family.
        space: what the sweep searches; its cost parameter ends at a tenth of the full one's.
        full_space: the same with the cost parameter's whole range.
        start: the initial config.
        full_seconds: T.
        noise: standard deviation of a score.
        score: noiseless scores, `n`, of `n x d` coordinates of the full space.
        cost: seconds, `n`, of the same.
        best: coordinates in the full space of the best values at cost T, of the parameters that matter.
        best_score: the best score at cost T.
        poor_score: a score that counts for nothing: of the median random config at cost T, or the lowest of the game.
        slopes: of the coordinates over ln cost along the front, at cost T.
    """

    name: str
    space: Space
    full_space: Space
    start: Params
    full_seconds: float
    noise: float
    score: Callable[[Array], Array]
    cost: Callable[[Array], Array]
    best: Mapping[str, float]
    best_score: float
    poor_score: float
    slopes: Mapping[str, float]
    recorded: RecordedTask | None = None

    @property
    def family(self) -> str:
        return self.name

    def run(self, params: Params, *, seed: int, repeat: int = 0, watch: Watch | None = None) -> Observation:
        """Returns one trial's outcome; see `engine.protocol.Task`."""
        if self.recorded is not None:
            return self.recorded.run(params, seed=seed, repeat=repeat, watch=watch)
        u = self.full_space.to_unit(params)
        rng = np.random.default_rng([seed, repeat, *np.frombuffer(u.tobytes(), dtype=np.uint32).tolist()])
        steps = float(params["steps"])
        seconds = float(self.cost(u[None, :])[0]) * math.exp(0.02 * rng.standard_normal())
        shares = (np.arange(NUM_CURVE_POINTS) + 1.0) / NUM_CURVE_POINTS
        shares = shares[shares * steps >= 1000.0]
        x = np.tile(u, (len(shares), 1))
        x[:, -1] = self.full_space.parameters[-1].encode(np.round(shares * steps))
        scores = self.score(x) + self.noise * (rng.standard_normal() + 0.3 * rng.standard_normal(len(shares)))
        curve = tuple(
            Measurement(steps=round(share * steps), elapsed_seconds=share * seconds, score=float(score))
            for share, score in zip(shares.tolist(), scores, strict=True)
        )
        return replay(params, curve, score=float(scores[-1]), cost_seconds=seconds, reason="", watch=watch)

    def true_score(self, observation: Observation) -> float:
        """Returns the noiseless score of a run to its end."""
        return float(self.score(self.full_space.to_unit(observation.params)[None, :])[0])

    def at_full_cost(self, params: Params) -> float:
        """Returns the noiseless score of a config whose cost parameter is set so that it costs T."""
        index = self.full_space.cost_index
        assert index is not None
        parameter = self.full_space.parameters[index]
        lowest = getattr(parameter, "low", 0)
        low, high = 0.0, 1.0
        for _ in range(40):  # cost rises with the cost parameter
            middle = 0.5 * (low + high)
            x = self.full_space.to_unit({**params, parameter.name: lowest})
            x[index] = middle
            low, high = (middle, high) if float(self.cost(x[None, :])[0]) < self.full_seconds else (low, middle)
        x[index] = low
        return float(self.score(x[None, :])[0])

    def normalised(self, params: Params) -> float:
        """Returns how good a config is at cost T: 1 is the best, 0 counts for nothing."""
        return (self.at_full_cost(params) - self.poor_score) / (self.best_score - self.poor_score)


def make_law_task(family: str, seed: int, noise: float) -> LawTask:
    """Returns a family's problem of a seed; `noise` is a share of the standard deviation of random configs' scores."""
    if family in RECORDED:
        return _recorded(family, seed)
    rng = np.random.default_rng([FAMILIES.index(family), seed, 77])
    task = _tradeoff(rng) if family == "tradeoff" else _moving(family, rng)
    x = task.full_space.to_unit_many(task.space.from_unit_many(task.space.sample(2000, np.random.default_rng(5))))
    at_full_cost = [task.at_full_cost(params) for params in task.full_space.from_unit_many(x[:100])]
    return dataclasses.replace(
        task, noise=noise * float(np.std(task.score(x))), poor_score=float(np.median(at_full_cost))
    )


_PARAMETERS: tuple[Parameter, ...] = (
    Float("rate", 1e-5, 1e-1, scale="log"),
    Integer("batch", 64, 16384, scale="log"),
    Float("decay", 1e-6, 1e-1, scale="log"),
    Float("clip", 0.05, 0.5),
    Float("momentum", 0.5, 0.999, scale="logit"),
    Float("dropout", 0.0, 0.6),
    Float("unused_scale", 1e-3, 1e1, scale="log"),
    Float("unused_share", 0.0, 1.0),
)
_OPTIMIZER = Categorical("optimizer", ("adam", "muon", "sgd"))
_WIDTH = Integer("width", 16, 4096, scale="log")
_MATTER = 6  # of the first parameters


def _spaces(parameters: tuple[Parameter, ...], max_steps: int) -> tuple[Space, Space]:
    small = Integer("steps", 1000, round(_MAX_STEPS * SHARE), scale="log")
    full = Integer("steps", 1000, max_steps, scale="log")
    return (
        Space([*parameters, small], cost_parameter="steps"),
        Space([*parameters, full], cost_parameter="steps"),
    )


def _sheared(delta: Array, pairs: tuple[tuple[int, int, float], ...]) -> Array:
    moved = delta.copy()
    for i, j, strength in pairs:
        moved[:, i] += strength * delta[:, j]
    return moved


def _pairs(rng: np.random.Generator) -> tuple[tuple[int, int, float], ...]:
    order = rng.permutation(_MATTER)
    return tuple((int(order[2 * k]), int(order[2 * k + 1]), float(rng.uniform(-0.5, 0.5))) for k in range(2))


def _start(space: Space, best: Array, rng: np.random.Generator) -> Params:
    """Returns a config part of the way from the middle of the space to the optimum, of low cost."""
    x = 0.5 + rng.uniform(0.0, 0.5) * (best - 0.5) + 0.1 * rng.standard_normal(space.num_dims)
    x[-1] = rng.uniform(0.35, 0.6)
    return space.snap(space.from_unit(np.clip(x, 0.02, 0.98)))


def _path(rng: np.random.Generator, moving: int) -> tuple[Array, Array]:
    """Returns the optimum at T and its slopes in a decade of cost, `_MATTER` each; the first `moving` ones move."""
    slope = np.where(np.arange(_MATTER) < moving, rng.uniform(0.05, 0.16, _MATTER) * rng.choice([-1, 1], _MATTER), 0.0)
    end = rng.uniform(0.12, 0.88, _MATTER)
    for i in range(_MATTER):
        while not 0.1 <= end[i] - 3.0 * slope[i] <= 0.9:
            end[i] = rng.uniform(0.12, 0.88)
    return end, slope


def _moving(family: str, rng: np.random.Generator) -> LawTask:
    space, full = _spaces((*_PARAMETERS, _OPTIMIZER), _MAX_STEPS)
    end, slope = _path(rng, moving=4)
    order = rng.permutation(_MATTER)
    end, slope = end[order], slope[order]
    weights = rng.uniform(0.2, 0.45, _MATTER) ** -2.0
    pairs = _pairs(rng)
    losses = rng.permutation([0.0, 0.3, 0.8])
    exponent, bend = rng.uniform(0.15, 0.35), 0.12 if family == "bent" else 0.0
    decades = math.log10(_MAX_STEPS / 1000)
    full_seconds = _START_UP_SECONDS + _SECONDS_A_STEP * _MAX_STEPS

    def score(x: Array) -> Array:
        behind = decades * (x[:, -1] - 1.0)  # decades of steps below the full run, 0 and less
        # Bent: at T the optimum moves at half the speed that it had three decades before.
        way = behind - bend * behind**2 * 0.7
        delta = x[:, :_MATTER] - (end + slope * way[:, None])
        distance = _sheared(delta, pairs) ** 2 @ weights
        optimizer = losses[_OPTIMIZER.decode(x[:, 8]).astype(int)]
        top = 1.0 - 0.8 * 10.0 ** (-exponent * (behind + decades))
        return np.asarray(top / (1.0 + distance + optimizer))

    def cost(x: Array) -> Array:
        return _START_UP_SECONDS + _SECONDS_A_STEP * full.parameters[-1].decode(x[:, -1])

    best = np.full(full.num_dims, 0.5)
    best[:_MATTER], best[-1] = end, 1.0
    names = full.names[:_MATTER]
    top = 1.0 - 0.8 * 10.0 ** (-exponent * decades)
    return LawTask(
        name=family,
        space=space,
        full_space=full,
        start=_start(space, best, rng),
        full_seconds=full_seconds,
        noise=0.0,
        score=score,
        cost=cost,
        best=dict(zip(names, end.tolist(), strict=True)),
        best_score=top,
        poor_score=0.0,
        slopes=dict(zip(names, (slope / math.log(10.0)).tolist(), strict=True)),
    )


def _tradeoff(rng: np.random.Generator) -> LawTask:
    space, full = _spaces((*_PARAMETERS, _WIDTH), 100 * _MAX_STEPS)  # a narrow network needs more steps to cost T
    width_index = full.names.index("width")
    alpha, beta = rng.uniform(0.25, 0.5, 2)
    seconds_a_unit = _SECONDS_A_STEP / 256.0  # of S N
    full_seconds = _SECONDS_A_STEP * _MAX_STEPS * 0.5
    # N* and S* at the full cost; S N is given, so a and b follow from where the optimum shall be.
    best_width = 16.0 * 256.0 ** rng.uniform(0.35, 0.75)
    best_steps = full_seconds / (seconds_a_unit * best_width)
    a = 1.0 * best_steps**alpha / alpha  # at the optimum alpha a S^-alpha = beta b N^-beta
    b = 1.0 * best_width**beta / beta
    width_exponent = alpha / (alpha + beta)  # N* ~ t^this, S* ~ t^(1 - this)
    end, _ = _path(rng, moving=0)
    # The rate falls with the width, the batch grows with the steps.
    by_width, by_steps = np.zeros(_MATTER), np.zeros(_MATTER)
    by_width[0], by_steps[1] = -rng.uniform(0.3, 0.9) / math.log(1e4), rng.uniform(0.2, 0.6) / math.log(256.0)
    while not 0.1 <= end[0] - by_width[0] * width_exponent * 7.0 <= 0.9:
        end[0] = rng.uniform(0.12, 0.88)
    while not 0.1 <= end[1] - by_steps[1] * (1.0 - width_exponent) * 7.0 <= 0.9:
        end[1] = rng.uniform(0.12, 0.88)
    weights, pairs = rng.uniform(0.2, 0.45, _MATTER) ** -2.0, _pairs(rng)

    def counts(x: Array) -> tuple[Array, Array]:
        return full.parameters[-1].decode(x[:, -1]), _WIDTH.decode(x[:, width_index])

    def score(x: Array) -> Array:
        steps, width = counts(x)
        optimum = end + by_width * np.log(width / best_width)[:, None] + by_steps * np.log(steps / best_steps)[:, None]
        distance = _sheared(x[:, :_MATTER] - optimum, pairs) ** 2 @ weights
        return np.asarray(-np.log(1.0 + (a * steps**-alpha + b * width**-beta) * (1.0 + distance)))

    def cost(x: Array) -> Array:
        steps, width = counts(x)
        return np.asarray(_START_UP_SECONDS + seconds_a_unit * steps * width)

    best = np.full(full.num_dims, 0.5)
    best[:_MATTER], best[width_index] = end, _WIDTH.encode(np.array([best_width]))[0]
    best[-1] = full.parameters[-1].encode(np.array([best_steps]))[0]
    matter = [*range(_MATTER), width_index]
    width_slope = width_exponent / math.log(4096.5 / 15.5)
    slopes = by_width * width_exponent + by_steps * (1.0 - width_exponent)
    return LawTask(
        name="tradeoff",
        space=space,
        full_space=full,
        start=_start(space, best, rng),
        full_seconds=full_seconds,
        noise=0.0,
        score=score,
        cost=cost,
        best={full.names[i]: float(best[i]) for i in matter},
        best_score=float(score(best[None, :])[0]),
        poor_score=0.0,
        slopes=dict(zip([full.names[i] for i in matter], [*slopes.tolist(), width_slope], strict=True)),
    )


def _recorded(family: str, seed: int) -> LawTask:
    task = make_recorded(family, seed)
    full, index = task.space, task.space.cost_index
    assert index is not None
    steps = full.parameters[index]
    assert isinstance(steps, Integer)
    high = max(round(steps.high * SHARE), 2 * steps.low)
    smaller = Integer(steps.name, steps.low, high, scale=steps.scale)
    space = Space(
        [smaller if i == index else p for i, p in enumerate(full.parameters)],
        cost_parameter=steps.name,
        constraints=full.constraints,
        fixed=full.fixed,
    )
    rng = np.random.default_rng(3)
    x = full.to_unit_many(space.from_unit_many(space.sample(4000, rng)))
    full_seconds = float(np.quantile(task.final(x)[1], _RECORDED_QUANTILE)) / SHARE
    start = space.snap({**task.start, steps.name: round(steps.low * (high / steps.low) ** 0.3)})
    return LawTask(
        name=family,
        space=space,
        full_space=full,
        start=start,
        full_seconds=full_seconds,
        noise=0.0,
        score=lambda x: task.final(x)[0],
        cost=lambda x: task.final(x)[1],
        best={},
        best_score=_search(task, full_seconds, rng),
        poor_score=LIMITS[family.removeprefix("recorded-")][0],
        slopes={},
        recorded=task,
    )


def _search(task: RecordedTask, seconds: float, rng: np.random.Generator) -> float:
    """Returns the best score at a cost of at most `seconds` that rounds of mutation find."""
    space = task.space
    x = space.sample(4000, rng)
    for width in 0.25 * 0.85 ** np.arange(25):
        score, cost, _ = task.final(x)
        top = x[np.argsort(-np.where(cost <= seconds, score, -np.inf))[:16]]
        base = np.repeat(top, 32, axis=0)
        step = width * rng.standard_normal(base.shape) * (rng.random(base.shape) < 0.4)
        mutants = space.canonical(np.clip(base + step, 0.0, 1.0))
        x = np.concatenate([top, mutants[space.valid(mutants)]])
    score, cost, _ = task.final(x)
    return float(np.max(score[cost <= seconds]))

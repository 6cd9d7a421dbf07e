"""Recorded training: this project's trainer on two environments, through a surrogate fitted to recorded trials.

Notation
    x    features of a config, `n x p`: its unit coordinates, and the logs of two counts that training depends on and no
         single parameter holds (gradient updates; rollouts), scaled to [0, 1]
    s    final score, within the environment's limits [a, b];  z = arcsin sqrt((s - a) / (b - a)), whose noise is even
    f    fraction of the run;  c(f) training score there, in z

Three models (see `recorded/` and `record.py` for the table they are fitted to):

    score   z of the whole run: a Gaussian process over x. The learning rate falls to 0 over a run, so half of a long
            run is not a short one: steps are a coordinate like any other
    cost    log seconds per step: a Gaussian process over x and the load of the machine, read at the load of the
            quietest tenth of the trials
    curve   c(f) - z: the kernel-weighted mean of what recorded trials with like params and like score did

Noise is estimated from the same configs trained with several seeds. One share belongs to a whole run (so a good run is
good along its whole curve), and one to each evaluation. Truth is the run without noise. The landscape of a recorded
task is fixed. Its seed draws the initial config among recorded trials, and the noise.

Models of extra trees and gradient boosting were tried for the scores and were further off. `errors` returns how far off
this model is, by 10-fold cross-validation. Because it is a Gaussian process, it may favour optimisers that model scores
by one, although their models see neither z nor the two counts.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from engine.protocol import Watch, replay, rest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from protein.engine import gp
from protein.space import Space
from protein.types import Measurement, Observation, Params, TrialState

Array = NDArray[np.float64]
TABLES = Path(__file__).resolve().parent / "recorded"
ERRORS = TABLES / "errors.json"
LIMITS = {"pong": (-21.0, 21.0), "breakout": (0.0, 72.0)}  # of a score, by the rules of the game
FAMILIES = tuple(f"recorded-{name}" for name in LIMITS)
MAX_CURVE_POINTS = 16
_FOLDS = 10
_COST_NOISE = (
    0.05  # assumed for a quiet machine; recorded costs of one config vary by .1 to .17 beside a busy one's load
)
_RUN_SD_WIDTH = 0.12  # of the kernel that smooths the between-run variance over z
_BEND = 0.05  # z over which the surrogate bends below the best that was recorded
_WIDTHS = (0.3, 0.1)  # of the curve model's kernel, in lengthscales of the score model and in z


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Surrogate:
    """What was recorded of one environment, as a function."""

    space: Space
    limits: tuple[float, float]
    z_mean: float
    z_sd: float
    score: gp.GaussianProcess
    cost_mean: float
    cost_sd: float
    cost: gp.GaussianProcess
    load: float  # at which costs are read
    x: Array  # `n x p`, of the recorded trials whose curve is known
    z: Array  # `n`, of their outcomes
    departures: Array  # `n x k`, c(f) - z at k even fractions, NaN before the first point
    first_steps: float  # before which no episode has ended, so no score is known
    point_seconds: float  # between two points of a curve
    repeated: tuple[Array, Array]  # mean and variance of z between runs of one config, for each of the repeated ones
    jitter: float  # sd of c(f) around the run's own course
    cost_noise: float  # sd of log seconds

    def final(self, u: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Returns noiseless final score, cost in seconds, and whether it gives a score, `n` each."""
        return self.to_score(self.final_z(u)), np.exp(self.log_cost(u)), np.ones(len(u), dtype=bool)

    def spent(self, u: Array) -> Array:
        """Returns the seconds that runs take, `n`."""
        return np.asarray(np.exp(self.log_cost(u)))

    def final_z(self, u: Array) -> Array:
        """Returns z of whole runs without noise, `n`, from 0 to the best recorded one, which it approaches smoothly."""
        z = self.z_mean + self.z_sd * self.score.mean(features(self.space, u))
        top = float(np.max(self.z))
        return np.maximum(top - _BEND * np.logaddexp(0.0, (top - z) / _BEND), 0.0)

    def log_cost(self, u: Array, load: Array | None = None) -> Array:
        """Returns log seconds, `n`, on a quiet machine unless its load, `n`, is given."""
        x = np.column_stack([features(self.space, u), np.full(len(u), self.load) if load is None else load])
        return np.asarray(self.cost_mean + self.cost_sd * self.cost.mean(x) + _log_steps(self.space, u))

    def course(self, u: Array, fractions: Array, z: float | None = None) -> Array:
        """Returns z along the run of one config, `1 x d`, at `m` fractions of it, without noise, `m`.

        `z` is where the run ends, unless that is the model's own estimate.
        """
        x = features(self.space, u)[0]
        z = float(self.final_z(u)[0]) if z is None else z
        far = np.sum(((self.x - x) / (_WIDTHS[0] * self.score.kernel.lengthscale)) ** 2, axis=1)
        far = far + ((self.z - z) / _WIDTHS[1]) ** 2
        known = np.isfinite(self.departures)
        weights = np.exp(-0.5 * (far - np.min(far)))[:, None] * known + 1e-12 * known
        mean = np.sum(weights * np.where(known, self.departures, 0.0), axis=0) / np.maximum(weights.sum(axis=0), 1e-300)
        at = (np.arange(len(mean)) + 1.0) / len(mean)
        return np.asarray(np.clip(z + np.interp(fractions, at, mean), 0.0, math.pi / 2))

    def run_sd(self, z: float) -> float:
        """Returns the standard deviation of z between runs of a config whose runs have mean z.

        It varies widely. Configs that always or never solve the task repeat to 0.03; the others vary much more.
        """
        mean, variance = self.repeated
        weights = np.exp(-0.5 * ((mean - z) / _RUN_SD_WIDTH) ** 2) + 1e-9
        return math.sqrt(float(weights @ variance / weights.sum()))

    def to_score(self, z: Array) -> Array:
        """Returns scores of z, `n`; noise that leaves [0, pi / 2] is reflected."""
        a, b = self.limits
        return np.asarray(a + (b - a) * np.sin(z) ** 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedTask:
    """One environment with an initial config."""

    name: str
    surrogate: Surrogate
    start: Params

    @property
    def family(self) -> str:
        return self.name

    @property
    def space(self) -> Space:
        return self.surrogate.space

    def final(self, u: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """See `Surrogate.final`."""
        return self.surrogate.final(u)

    def spent(self, u: Array) -> Array:
        """See `Surrogate.spent`."""
        return self.surrogate.spent(u)

    def run(self, params: Params, *, seed: int, repeat: int = 0, watch: Watch | None = None) -> Observation:
        """Returns one trial's outcome; see `engine.protocol.Task`."""
        return self._run(params, seed, repeat, watch, None)

    def go_on(
        self,
        params: Params,
        *,
        earlier: Sequence[Observation],
        seed: int,
        repeat: int = 0,
        watch: Watch | None = None,
    ) -> Observation:
        """Returns the outcome of the rest of a run; see `engine.protocol.ContinuableTask`.

        It has the luck that the run had from its beginning.
        """
        luck = self._rng(earlier[0].params, seed, 0).standard_normal()
        return rest(self._run(params, seed, repeat, None, luck), earlier[-1], watch)

    def _rng(self, params: Params, seed: int, repeat: int) -> np.random.Generator:
        u = self.space.to_unit(params)[None, :]
        return np.random.default_rng([seed, repeat, *np.frombuffer(u.tobytes(), dtype=np.uint32).tolist()])

    def _run(self, params: Params, seed: int, repeat: int, watch: Watch | None, luck: float | None) -> Observation:
        self.space.validate(params)
        model = self.surrogate
        u = self.space.to_unit(params)[None, :]
        rng = self._rng(params, seed, repeat)
        of_run, of_cost, of_score = rng.standard_normal(3)
        of_run = of_run if luck is None else luck
        end = float(model.final_z(u)[0])
        run_effect = model.run_sd(end) * of_run
        cost = math.exp(float(model.log_cost(u)[0]) + model.cost_noise * of_cost)
        steps = math.exp(float(_log_steps(self.space, u)[0]))
        num_points = int(np.clip(cost / model.point_seconds, 1, MAX_CURVE_POINTS))
        fractions = (np.arange(num_points) + 1.0) / num_points
        fractions = fractions[(fractions * steps >= model.first_steps) | (fractions == 1.0)]
        z = model.course(u, fractions, end) + run_effect + model.jitter * rng.standard_normal(len(fractions))
        curve = tuple(
            Measurement(steps=round(steps * f), elapsed_seconds=cost * f, score=float(s))
            for f, s in zip(fractions.tolist(), model.to_score(z), strict=True)
        )
        score = float(model.to_score(np.array(end + run_effect + model.jitter * of_score)))
        return replay(params, curve, score=score, cost_seconds=cost, reason="", watch=watch)

    def true_score(self, observation: Observation) -> float:
        """Returns the score without noise at the steps that were reached."""
        u = self.space.to_unit(observation.params)[None, :]
        if observation.state is TrialState.COMPLETE:
            return float(self.surrogate.final(u)[0][0])
        reached = observation.curve[-1].steps / math.exp(float(_log_steps(self.space, u)[0]))
        return float(self.surrogate.to_score(self.surrogate.course(u, np.array([reached])))[0])


def make_recorded(family: str, seed: int) -> RecordedTask:
    """Returns a recorded task whose initial config is a middling recorded config of moderate cost."""
    name = family.removeprefix("recorded-")
    model = surrogate(name)
    u, score, cost = _random_trials(name)
    middling = (np.abs(rank(score) - 0.5) <= 0.25) & (np.abs(rank(cost) - 0.5) <= 0.25)
    chosen = np.random.default_rng([FAMILIES.index(family), seed]).choice(np.flatnonzero(middling))
    return RecordedTask(name=family, surrogate=model, start=model.space.from_unit(u[chosen]))


@functools.cache
def surrogate(name: str) -> Surrogate:
    """Returns the surrogate of a committed table; fitted once in a process."""
    return fit_surrogate(load_table(name), LIMITS[name])


def load_table(name: str) -> dict[str, Any]:
    """Returns the arrays of a committed table (see `record.py`), its space and its unit coordinates `u` added.

    No recorded trial of either environment has failed, so there is no model of failures.
    """
    with np.load(TABLES / f"{name}.npz") as stored:
        columns: dict[str, Any] = {key: stored[key] for key in stored.files}
    assert not columns["failed"].any(), f"{name} has failed trials; the surrogate has no model for them"
    space = Space.from_dict(json.loads(str(columns["space"])))
    u = np.column_stack([p.encode(columns["params"][:, i]) for i, p in enumerate(space.parameters)])
    return {**columns, "space": space, "u": u}


def fit_surrogate(table: dict[str, Any], limits: tuple[float, float]) -> Surrogate:
    """Fits all three models to a table's rows."""
    space, u = table["space"], table["u"]
    x, z = features(space, u), to_z(table["score"], limits)
    per_step = np.log(table["cost"]) - _log_steps(space, u)
    _, config, count = np.unique(u.round(12), axis=0, return_inverse=True, return_counts=True)
    config = config.reshape(-1)
    mean_z = np.bincount(config, z) / count  # several seeds of one config are one point
    once = np.unique(config, return_index=True)[1]
    z_mean, z_sd = float(np.mean(mean_z)), float(np.std(mean_z))
    cost_mean, cost_sd = float(np.mean(per_step)), float(np.std(per_step))
    with gp.single_thread():
        score = _fit(x[once], (mean_z - z_mean) / z_sd)
        cost = _fit(np.column_stack([x, table["load"]]), (per_step - cost_mean) / cost_sd)
    departures = to_z(table["curve"].astype(np.float64), limits) - z[:, None]
    again = np.flatnonzero(count > 2)
    variance = np.array([np.var(z[config == i], ddof=1) for i in again])
    # Two evaluations of the trained policy, the training's last window and the final one, differ by twice the variance
    # of one; robustly, because in short runs that window lags behind.
    gap = departures[np.isfinite(departures[:, -1]), -1]
    jitter = 0.5 * (1.4826 * float(np.median(np.abs(gap - np.median(gap))))) ** 2
    return Surrogate(
        space=space,
        limits=limits,
        z_mean=z_mean,
        z_sd=z_sd,
        score=score,
        cost_mean=cost_mean,
        cost_sd=cost_sd,
        cost=cost,
        load=float(np.quantile(table["load"], 0.1)),
        x=x,
        z=z,
        departures=departures,
        first_steps=float(np.nanquantile(table["first"], 0.1)),
        point_seconds=float(np.median(table["cost"] / table["points"])),
        repeated=(mean_z[again], np.maximum(variance - jitter, 0.0)),
        jitter=math.sqrt(jitter),
        cost_noise=_COST_NOISE,
    )


def errors() -> dict[str, dict[str, float]]:
    """Returns how far off each committed surrogate is, and what it was fitted to (`errors.json`)."""
    found: dict[str, dict[str, float]] = json.loads(ERRORS.read_text())
    return found


def cross_validate(table: dict[str, Any], limits: tuple[float, float]) -> dict[str, float]:
    """Returns how far off the surrogate is on recorded trials whose config it was not fitted to."""
    u = table["u"]
    _, config = np.unique(u.round(12), axis=0, return_inverse=True)
    config = config.reshape(-1)
    fold = (np.random.default_rng(0).permutation(int(config.max()) + 1) % _FOLDS)[config]
    score, log_cost = np.zeros(len(u)), np.zeros(len(u))
    course = np.full(table["curve"].shape, np.nan)
    fractions = (np.arange(course.shape[1]) + 1.0) / course.shape[1]
    for k in range(_FOLDS):
        model = fit_surrogate({key: v[fold != k] if np.ndim(v) else v for key, v in table.items()}, limits)
        out = fold == k
        score[out] = model.final(u[out])[0]
        log_cost[out] = model.log_cost(u[out], table["load"][out])
        for row in np.flatnonzero(out):
            end = float(to_z(table["score"][row], limits))
            course[row] = model.to_score(model.course(u[row : row + 1], fractions, end))
    figures = {}
    for name, predicted, truth in (
        ("score", score, table["score"]),
        ("log_cost", log_cost, np.log(table["cost"])),
    ):
        error = predicted - truth
        for part, rows in (("", np.ones(len(u), dtype=bool)), ("_random", table["sweep"] == 0)):
            figures[f"{name}{part}_r2"] = 1.0 - float(np.mean(error[rows] ** 2) / np.var(truth[rows]))
            figures[f"{name}{part}_rank_correlation"] = float(spearmanr(predicted[rows], truth[rows])[0])
            figures[f"{name}{part}_rmse"] = float(np.sqrt(np.mean(error[rows] ** 2)))
    figures["curve_rmse"] = float(np.sqrt(np.nanmean((course - table["curve"]) ** 2)))
    return figures


def features(space: Space, u: Array) -> Array:
    """Returns x, `n x p`."""
    value = {p.name.removeprefix("train."): p.decode(u[:, i]) for i, p in enumerate(space.parameters)}
    updates = value["total_timesteps"] * value["update_epochs"] / value["minibatch_size"]
    rollouts = value["total_timesteps"] / value["horizon"]
    counts = [(np.log(updates) - 2.0) / 10.0, (np.log(rollouts) - 6.0) / 8.0]
    return np.column_stack([u, *counts])


def to_z(score: Array, limits: tuple[float, float]) -> Array:
    """Returns z of scores; NaN stays."""
    a, b = limits
    return np.asarray(np.arcsin(np.sqrt(np.clip((score - a) / (b - a), 0.0, 1.0))))


def _fit(x: Array, y: Array) -> gp.GaussianProcess:
    prior = gp.Prior(
        log_lengthscale=(-0.3 + 0.5 * math.log(x.shape[1] / 8.0), 1.0),
        log_outputscale=(0.0, 0.7),
        log_noise=(math.log(1e-2), 1.5),
        bias_variance=0.5,
        linear_variance=1.0,
    )
    return gp.fit(x, y, range(x.shape[1]), prior, max_points=2000)


def _log_steps(space: Space, u: Array) -> Array:
    assert space.cost_index is not None
    return np.log(space.parameters[space.cost_index].decode(u[:, space.cost_index]))


def _random_trials(name: str) -> tuple[Array, Array, Array]:
    """Unit coordinates, scores and costs of a table's random trials."""
    table = load_table(name)
    rows = table["sweep"] == 0
    return table["u"][rows], table["score"][rows], table["cost"][rows]


def rank(values: Array) -> Array:
    """Returns the share of other values that are smaller, `n`."""
    return np.asarray(np.argsort(np.argsort(values)) / (len(values) - 1))

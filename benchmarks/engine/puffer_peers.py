"""The sweep of PufferLib 3.0.0, "Protein", as a method of the comparison (`engine.fetch_pufferlib` fetches its file).

    puffer        as released: two Gaussian processes, each trained by 1,000 steps of Adam at a rate of 1e-4 before
                  every suggestion
    puffer-short  10 steps at 1e-2, so that a log hyperparameter can move as far as in the 1,000 steps: `_NUM_STEPS`

The rest is theirs, called as its own loop calls it. The first trial is the search center. Then candidates are drawn
evenly around every point of the front of score and cost, and the one with the highest (predicted score, scaled to
[0, 1]) * (1 - |target - predicted log cost, scaled to [0, 1]|) is run, with a random target in [0, 1.25].

What it knows of a trial
    cost        seconds; a candidate above `max_suggestion_cost` (here the whole budget) is not taken
    curve       up to ten means of consecutive points and the last point, each a trial with the steps it reached, if the
                space has a cost parameter: what its loop does with a run's log ("downsample")
    failure     it takes a flag and does not read it. A failed trial is told as the worst score so far, at its cost; one
                before the first score is told once there is a score, and valid uniform points are run until then
    remaining budget, noise: nothing. Of two trials with the same params the last one counts.

Spaces
    linear, log, pow2 and logit scales are its `uniform`, `log_normal`, `uniform_pow2` and `logit_normal` (evenly spaced
    ln(1 - v)); whole numbers are its `int_uniform`, on a log scale rounded ones of `log_normal`. The search center is
    the initial config, or the middle of every scale without one. Widths are its defaults: "time" for a cost parameter
    on a log scale, else "auto", a quarter of the range to either side. Where that reaches no other value (switches,
    whole numbers with few values), it is one value to either side. It has no categorical parameters: such a one is the
    index of the choice, and all choices can be drawn. It has no constraints: candidates that violate one are taken out
    before it chooses among them.

Source: the released file; README of PufferLib 3.0.
"""

import contextlib
import functools
import importlib.util
import io
import math
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyro
import torch
from engine.fetch_pufferlib import cached
from engine.protocol import Peer

from protein.engine.gp import Array, single_thread
from protein.errors import UsageError
from protein.space import Categorical, Float, Integer, Space
from protein.space.constraints import Constraint
from protein.types import Budget, Observation, Params

_NUM_STEPS = {"puffer": 1000, "puffer-short": 10}
_RATE_TIMES_STEPS = 0.1  # as released: 1,000 steps at 1e-4
_NUM_CURVE_POINTS = 10  # `downsample` of its default.ini
_LEAST_SECONDS = 1e-3


class PufferPeer(Peer):
    """One sweep."""

    budget_free = False  # the budget is the cap on a trial's cost

    def __init__(self, method: str, space: Space, start: Params | None, seed: int) -> None:
        self._space, self._start, self._seed, self._steps = space, start, seed, _NUM_STEPS[method]
        self._module = _load(self._steps)
        self._constrained = {name for text in space.constraints for name in Constraint(text).names}
        self._sweep: Any = None
        self._store: Any = None  # Pyro's parameters, which it keeps by name for the whole process
        self._early: list[Observation] = []  # failed before anything gave a score
        self._num_asked = 0

    def ask(self, history: list[Observation], budget: Budget) -> Params | None:
        seed = int(np.random.SeedSequence([self._seed, self._num_asked]).generate_state(1)[0])
        first, self._num_asked = self._num_asked == 0, self._num_asked + 1
        with single_thread(), _global_seed(seed), self._parameters(), contextlib.redirect_stdout(io.StringIO()):
            if self._sweep is None:
                self._sweep = self._new(budget)
            if first and self._start is not None:
                return self._start
            if not first and not self._sweep.success_observations:
                return self._space.from_unit(self._space.sample(1, np.random.default_rng(seed))[0])
            try:
                return self._params(self._sweep.suggest({})[0])
            except (RuntimeError, ValueError):
                # No covariance that is positive definite, or no front: two trials alike in score and cost to 1e-6
                # count as worse than each other.
                return self._params(self._sweep.hyperparameters.to_dict(self._near_the_best(), {}))

    def tell(self, observation: Observation) -> None:
        seen = self._sweep.success_observations
        if observation.score is None:
            if seen:
                self._observe(observation.params, min(o["output"] for o in seen), observation.cost_seconds, failed=True)
            else:
                self._early.append(observation)
            return
        for steps, seconds, score in self._points(observation):
            self._observe({**observation.params, **steps}, score, seconds)
        early, self._early = self._early, []
        for failed in early:
            self.tell(failed)

    def _new(self, budget: Budget) -> Any:
        spec: dict[str, Any] = {"metric": "score", "goal": "maximize"}
        center = self._space.from_unit(np.full(self._space.num_dims, 0.5)) if self._start is None else self._start
        for p in self._space.parameters:
            spec[p.name] = _spec(p, center[p.name], is_cost=p.name == self._space.cost_parameter)
        total = budget.remaining_seconds
        sweep = self._module.Protein(spec, max_suggestion_cost=math.inf if total is None else total)
        if self._space.constraints:
            sweep.hyperparameters.sample = functools.partial(self._valid, sweep.hyperparameters.sample)
        if self._steps != _NUM_STEPS["puffer"]:
            rate = _RATE_TIMES_STEPS / self._steps
            for optimizer in (sweep.score_opt, sweep.cost_opt):
                optimizer.param_groups[0]["lr"] = rate
        return sweep

    def _points(self, observation: Observation) -> list[tuple[dict[str, float], float, float]]:
        """What a trial with a score is told as: the steps, as params to change; seconds; score."""
        assert observation.score is not None
        last = (dict[str, float](), observation.cost_seconds, observation.score)
        name = self._space.cost_parameter
        curve = [(m.steps, m.elapsed_seconds, m.score) for m in observation.curve if m.score is not None]
        if name is None or len(curve) < 2:
            return [last]
        rows = np.array(curve[:-1], dtype=np.float64)
        if len(rows) > _NUM_CURVE_POINTS:
            size = len(rows) // _NUM_CURVE_POINTS
            kept = rows[-size * _NUM_CURVE_POINTS :]
            rows = kept.reshape(_NUM_CURVE_POINTS, size, 3).mean(axis=1)
        return [*(({name: row[0]}, row[1], row[2]) for row in rows.tolist() if row[0] > 0), last]

    def _observe(self, params: Params, score: float, seconds: float, failed: bool = False) -> None:
        numbers: dict[str, float] = {}
        for p in self._space.parameters:
            value = params[p.name]
            numbers[p.name] = p.numeric(value) if isinstance(p, Categorical) else float(value)
        self._sweep.observe(numbers, score, max(seconds, _LEAST_SECONDS), is_failure=failed)

    def _params(self, numbers: dict[str, float]) -> Params:
        params = {p.name: p.raw(_raw(p, numbers[p.name])) for p in self._space.parameters}
        return params if self._space.is_valid(params) else self._space.snap(params)

    def _valid(self, draw: Any, n: int, mu: Array | None = None, scale: float = 1) -> Array:
        """Its draw of candidates without those that violate a constraint, unless all of them do."""
        drawn: Array = draw(n, mu, scale)
        x = np.clip((drawn + 1.0) / 2.0, 0.0, 1.0)
        for i, p in enumerate(self._space.parameters):
            if p.name in self._constrained:
                theirs = self._sweep.hyperparameters.flat_spaces[p.name]
                numbers = np.array([_raw(p, theirs.unnormalize(v)) for v in drawn[:, i].tolist()])
                x[:, i] = p.encode(numbers)
        kept = drawn[self._space.valid(x)]
        return kept if len(kept) else drawn

    def _near_the_best(self) -> Array:
        """A candidate around the trial with the best score."""
        best = max(self._sweep.success_observations, key=lambda o: float(o["output"]))
        near: Array = self._sweep.hyperparameters.sample(1, best["input"])[0]
        return near

    @contextlib.contextmanager
    def _parameters(self) -> Iterator[None]:
        with pyro.get_param_store().scope(self._store) as self._store:
            yield


def _spec(p: Float | Integer | Categorical, center: Any, *, is_cost: bool) -> dict[str, Any]:
    """Its description of a parameter with a search center."""
    if isinstance(p, Categorical):
        most = len(p.choices) - 1
        return {"distribution": "int_uniform", "min": 0, "max": most, "mean": p.numeric(center), "scale": 2.0}
    names = {"linear": "uniform", "log": "log_normal", "logit": "logit_normal", "pow2": "uniform_pow2"}
    name, steps = names[p.scale], math.inf
    if p.scale == "pow2":
        steps = math.log2(p.high / p.low)
    elif isinstance(p, Integer):
        steps = p.high - p.low if p.scale == "linear" else math.log(p.high / p.low) / math.log1p(1.0 / p.low)
        name = "int_uniform" if p.scale == "linear" else name
    width: float | str = "auto" if 2.0 / steps <= 0.5 else 2.0 / steps
    if is_cost and p.scale == "log":
        width = "time"
    return {"distribution": name, "min": p.low, "max": p.high, "mean": center, "scale": width}


def _raw(p: Float | Integer | Categorical, number: float) -> float:
    """One of its numbers, whole where it has to be, and in range where rounding took it out."""
    if isinstance(p, Categorical):
        return float(round(number))
    return float(p.clip(number if isinstance(p, Float) else round(number)))


def _load(num_steps: int) -> Any:
    """Returns a module of its own of the released file; its fits take a number of steps.

    Of PufferLib the file uses one function, which lists a nested dict: a space here is flat. Raises `UsageError` where
    the file was not fetched.
    """
    path = cached()
    if not path.exists():
        raise UsageError(f"there is no {path}; run python benchmarks/engine/fetch_pufferlib.py")
    spec = importlib.util.spec_from_file_location("pufferlib_sweep", path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    package: Any = types.ModuleType("pufferlib")
    package.unroll_nested_dict = dict.items
    before = sys.modules.get("pufferlib")
    sys.modules["pufferlib"] = package
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["pufferlib"]
        if before is not None:
            sys.modules["pufferlib"] = before
    if num_steps != _NUM_STEPS["puffer"]:
        train = functools.partial(module.gp.util.train, num_steps=num_steps)
        util = types.SimpleNamespace(train=train)
        module.gp = types.SimpleNamespace(util=util, models=module.gp.models, kernels=module.gp.kernels)
    return module


@contextlib.contextmanager
def _global_seed(seed: int) -> Iterator[None]:
    """Seeds the three global generators that the file draws from, and puts them back."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002

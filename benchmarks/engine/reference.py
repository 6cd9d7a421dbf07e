"""The scale of a task, on which engines are compared.

Notation
    0         the median random config's noiseless final score;  1  the best known score of the whole space
    budget    a multiple of the mean cost of a random config (failed ones at the cost that they reach)
    ideal(t)  the best known score at cost <= e^t, by a search with the noiseless truth

For tasks whose truth is a formula or a model (all but the real ones): random sampling followed by rounds of mutation
of the best for each cost level, on the truth itself, which no engine may see. For real tasks: a committed table (see
`measure_real.py`). Nothing better is known. An engine may find something better; then its figures exceed 1.
"""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Protocol

import numpy as np
from engine.protocol import Task
from engine.recorded import RecordedTask, Surrogate
from engine.rl import RlTask, Table
from engine.surrogates import SurrogateTask
from engine.synthetic_task import SyntheticTask
from numpy.typing import NDArray

from protein.engine.pareto import hypervolume
from protein.space import Space

Array = NDArray[np.float64]

REAL_TABLE = Path(__file__).resolve().parent / "real_reference.json"
_NUM_RANDOM = 6000
_NUM_LEVELS = 16
_NUM_ROUNDS = 40
_NUM_MUTANTS = 32  # of each parent
_KEEP = 4  # parents at each level


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The scale of one task."""

    median: float
    best: float
    mean_cost: float
    max_cost: float  # reference cost of the hypervolume: the most expensive of the random configs
    ideal_volume: float  # hypervolume of the ideal front, normalised scores

    def normalise(self, score: Array) -> Array:
        return np.asarray((score - self.median) / (self.best - self.median))

    def volume(self, normalised: Array, costs: Array) -> float:
        """Returns the hypervolume over the ideal one."""
        return hypervolume(normalised, costs, reference_score=0.0, reference_cost=self.max_cost) / self.ideal_volume


class Searchable(Protocol):
    """A task whose truth is a formula, so that it can be searched."""

    @property
    def space(self) -> Space: ...
    def final(self, u: Array) -> tuple[Array, Array, NDArray[np.bool_]]: ...
    def spent(self, u: Array) -> Array: ...


def reference(task: Task) -> Reference:
    """Returns the scale of a task. Raises `ValueError` for a real one that `measure_real.py` has not measured."""
    if isinstance(task, SyntheticTask):
        return search(task)
    if isinstance(task, RecordedTask):
        return _of_surrogate(task.surrogate)
    if isinstance(task, RlTask):
        return _of_surrogate(task.table)
    if isinstance(task, SurrogateTask):
        return _of_surrogate(task)
    table = json.loads(REAL_TABLE.read_text())
    if task.family not in table:
        raise ValueError(f"{REAL_TABLE.name} has no '{task.family}'; run benchmarks/engine/measure_real.py")
    return Reference(**{field.name: float(table[task.family][field.name]) for field in dataclasses.fields(Reference)})


@functools.cache
def _of_surrogate(model: Surrogate | Table | SurrogateTask) -> Reference:
    return search(model)


def searchable(task: Task) -> Searchable:
    """Returns the truth of a task. Raises `ValueError` where it is no formula or model."""
    if isinstance(task, SyntheticTask | SurrogateTask):
        return task
    if isinstance(task, RecordedTask):
        return task.surrogate
    if isinstance(task, RlTask):
        return task.table
    raise ValueError(f"the truth of '{task.family}' cannot be searched")


def best_config(task: Task) -> Array:
    """Returns the unit coordinates, `d`, of the best config of a task whose truth is a formula or a model."""
    return _searched(searchable(task))[1]


def search(task: Searchable) -> Reference:
    """Searches the truth. Deterministic; a fraction of a second."""
    return _searched(task)[0]


def _searched(task: Searchable) -> tuple[Reference, Array]:
    """Returns the scale of a task and the unit coordinates, `d`, of the best config."""
    rng = np.random.default_rng(12345)
    x = task.space.sample(_NUM_RANDOM, rng)
    score, cost, ok = task.final(x)
    median, mean_cost, max_cost = float(np.median(score[ok])), float(np.mean(task.spent(x))), float(np.max(cost))
    levels = np.exp(np.linspace(np.log(np.quantile(cost, 0.01)), np.log(max_cost), _NUM_LEVELS))
    x, score, cost = x[ok], score[ok], cost[ok]
    for level_round in range(_NUM_ROUNDS):
        chosen = []
        for level in levels:
            allowed = np.flatnonzero(cost <= level)
            chosen.append(allowed[np.argsort(-score[allowed])[:_KEEP]])
        parents = np.unique(np.concatenate(chosen))
        base = np.repeat(x[parents], _NUM_MUTANTS, axis=0)
        width = 0.25 * 0.88**level_round
        step = (
            width * rng.standard_normal(base.shape) * (rng.random(base.shape) < rng.uniform(0.1, 0.7, (len(base), 1)))
        )
        mutants = task.space.canonical(np.clip(base + step, 0.0, 1.0))
        mutants = mutants[task.space.valid(mutants)]
        mutant_score, mutant_cost, mutant_ok = task.final(mutants)
        x = np.concatenate([x[parents], mutants[mutant_ok]])
        score = np.concatenate([score[parents], mutant_score[mutant_ok]])
        cost = np.concatenate([cost[parents], mutant_cost[mutant_ok]])
    best = float(np.max(score))
    normalised = (score - median) / (best - median)
    ideal = hypervolume(normalised, cost, reference_score=0.0, reference_cost=max_cost)
    scale = Reference(median=median, best=best, mean_cost=mean_cost, max_cost=max_cost, ideal_volume=ideal)
    return scale, np.asarray(x[np.argmax(score)])

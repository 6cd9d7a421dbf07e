"""Designers propose trials: `make_designer("protein", space, start)`, the baseline "random", and Optuna's samplers.

A designer is a pure function of (space, start, design seed) and of what `suggest` is given; nothing is remembered
between calls, so a sweep that is killed and resumed gets the suggestions that it would have had.
"""

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

from protein.engine.designer import ProteinDesigner, RandomDesigner
from protein.engine.settings import Recipe
from protein.errors import UsageError, nearest
from protein.space import Space
from protein.types import Observation, Params

if TYPE_CHECKING:
    from protein.optuna.designer import OptunaDesigner

_OPTUNA = "optuna:"
METHODS = ("protein", "random", "optuna:tpe", "optuna:gp", "optuna:cmaes", "optuna:nsga2", "optuna:random")


def make_designer(
    method: str,
    space: Space,
    start: Params | None,
    *,
    seed: int = 0,
    recipe: Recipe | None = None,
    prior: Sequence[Observation] = (),
) -> "ProteinDesigner | RandomDesigner | OptunaDesigner":
    """Returns a designer (see `protein.ports.Designer`).

    Args:
        method: "protein" (the cost-aware engine), "random" (uniform valid points), or "optuna:" and one of Optuna's
            samplers, as in "optuna:tpe".
        space: what to search.
        start: the user's own config, the first trial; moved into the space where it lies outside. None: no such trial.
        seed: of the space-filling initial design, which has to stay the same from trial to trial: the sweep's seed.
        recipe: settings of the engine, for measuring what each is worth; None: as shipped.
        prior: finished trials of a former sweep to begin from (see `protein.engine.warm_start`); scores to be
        maximised.

    Raises:
        UsageError: unknown method, with the nearest name; a package that the method needs is not installed; a prior
            without a scored trial in this space, or with a method that cannot use one.
    """
    if method == "protein":
        return ProteinDesigner(space, start, seed=seed, recipe=recipe or Recipe(), prior=prior)
    if prior and method in METHODS:
        raise UsageError(f"method '{method}' can make no use of a prior; drop it, or take method 'protein'")
    if method == "random":
        return RandomDesigner(space, start)
    if method in METHODS:
        _require(method, "optuna", *(["cmaes"] if method == "optuna:cmaes" else []))
        from protein.optuna.designer import OptunaDesigner

        return OptunaDesigner(method.removeprefix(_OPTUNA), space, start)
    raise UsageError(f"unknown method '{method}'{nearest(str(method), METHODS)}")


def _require(method: str, *packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"method '{method}' needs {package}, which is not installed; run pip install 'protein-sweep[optuna]'"
            )

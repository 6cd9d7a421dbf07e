"""The methods of a sweep: `make_designer("protein", space, start)`, the baseline "random", and Optuna's samplers.

A designer is a pure function of (space, start, design seed) and of the arguments of `suggest`. It remembers nothing
between calls, so a sweep that is killed and resumed gets the suggestions that it would have got without the
interruption.
"""

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

from protein.engine.designer import ProteinDesigner, RandomDesigner
from protein.engine.settings import EngineSettings
from protein.errors import UsageError
from protein.space import Space
from protein.spelling import nearest
from protein.types import Limit, Observation, Params

if TYPE_CHECKING:
    from protein.optuna.designer import OptunaDesigner

_OPTUNA = "optuna:"
USE_LIMITS = ("protein", "optuna:tpe", "optuna:gp", "optuna:nsga2")  # methods whose search keeps limits
METHODS = ("protein", "random", "optuna:tpe", "optuna:gp", "optuna:cmaes", "optuna:nsga2", "optuna:random")


def make_designer(
    method: str,
    space: Space,
    start: Params | None,
    *,
    seed: int = 0,
    settings: EngineSettings | None = None,
    warm_start: Sequence[Sequence[Observation]] = (),
    limits: Sequence[Limit] = (),
) -> "ProteinDesigner | RandomDesigner | OptunaDesigner":
    """Returns a designer (see `protein.ports.Designer`).

    Args:
        method: "protein" (the cost-aware engine), "random" (uniform valid points), or "optuna:" and one of Optuna's
            samplers, as in "optuna:tpe".
        space: what to search.
        start: the initial config, which is the first trial; moved into the space where it lies outside. None: no such
            trial; "protein" then begins in the middle of every range.
        seed: of the space-filling initial design. The design has to stay the same from trial to trial, so this is the
            sweep's seed.
        settings: of the engine, for benchmarks of single settings; None: the defaults.
        warm_start: finished trials of each source sweep to begin from (see `protein.engine.warm_start`), the most
            promising first; scores are to be maximised.
        limits: on what trials measure beside the score. Methods that cannot use them search without.

    Raises:
        UsageError: an unknown method; a package that the method needs is not installed; no source trial has a score and
            lies in this space, or the method cannot use a warm start.
    """
    if method == "protein":
        chosen = settings or EngineSettings()
        return ProteinDesigner(space, start, seed=seed, settings=chosen, warm_start=warm_start, limits=limits)
    if warm_start and method in METHODS:
        raise UsageError(f"method '{method}' cannot use a warm start; drop the warm start, or take method 'protein'")
    if method == "random":
        return RandomDesigner(space, start)
    if method in METHODS:
        _require(method, "optuna", *(["cmaes"] if method == "optuna:cmaes" else []))
        from protein.optuna.designer import OptunaDesigner

        return OptunaDesigner(method.removeprefix(_OPTUNA), space, start, limits)
    raise UsageError(f"unknown method '{method}'{nearest(str(method), METHODS)}")


def _require(method: str, *packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"method '{method}' needs {package}, which is not installed; run pip install 'protein-sweep[optuna]'"
            )

"""Designers propose trials: `make_designer("protein", space, start)` and the baseline "random".

A designer is a pure function of (space, start, design seed) and of what `suggest` is given; nothing is remembered
between calls, so a sweep that is killed and resumed gets the suggestions that it would have had.
"""

from protein.designer.recipe import Recipe
from protein.designer.suggest import ProteinDesigner, RandomDesigner
from protein.errors import UsageError, nearest
from protein.space import Space
from protein.types import Params

__all__ = ["METHODS", "ProteinDesigner", "RandomDesigner", "Recipe", "make_designer"]

METHODS = ("protein", "random")


def make_designer(
    method: str, space: Space, start: Params | None, *, seed: int = 0, recipe: Recipe | None = None
) -> ProteinDesigner | RandomDesigner:
    """Returns a designer (see `protein.ports.Designer`).

    Args:
        method: "protein" (the cost-aware engine) or "random" (uniform valid points).
        space: what to search.
        start: the user's own config, the first trial; moved into the space where it lies outside. None: no such trial.
        seed: of the space-filling initial design, which has to stay the same from trial to trial: the sweep's seed.
        recipe: settings of the engine, for measuring what each is worth; None: as shipped.

    Raises:
        UsageError: unknown method, with the nearest name.
    """
    if method == "protein":
        return ProteinDesigner(space, start, seed=seed, recipe=recipe or Recipe())
    if method == "random":
        return RandomDesigner(space, start)
    raise UsageError(f"unknown method '{method}'{nearest(method, METHODS)}")

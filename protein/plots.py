"""Pictures of stored sweeps, as figures of matplotlib. Each names one or several sweeps of a store.

    import protein

    figure = protein.plots.front("pong", "pong2")
    figure.savefig("front.svg")

A sweep is named as on the command line, or is the result of `protein.Sweep(...).run(...)`. The figures are made without
pyplot: nothing opens a window, and nothing has to be closed. `protein plot` draws the same.
"""

import dataclasses
import os
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from protein.analysis.importance import importances, of_matters
from protein.analysis.matters import Target, matters
from protein.analysis.model_maps import SweepModel
from protein.api import stores
from protein.api.function_sweep import SweepResult
from protein.api.loading import compared, sides_of
from protein.api.recommended import recommendation, stored_space
from protein.engine.results import Matters
from protein.engine.sample import sampled
from protein.errors import UsageError
from protein.ports import Store
from protein.types import Measurement, SweepRecord, TrialRecord
from protein.view import comparison as comparison_views
from protein.view.figures import curves as curve_figures
from protein.view.figures import front as front_figures
from protein.view.figures import parameters as parameter_figures
from protein.view.figures import style
from protein.view.figures.style import Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Place = str | os.PathLike[str]  # a path or URL

__all__ = ["compare", "curves", "front", "history", "importance", "parallel"]


def front(*sweeps: str | SweepResult, store: Place | None = None) -> "Figure":
    """Draws score against cost: all trials, and the Pareto front as a staircase.

    One sweep is drawn in detail, with the front that is expected beside the measured one, the recommended config and
    the knee. Several are drawn over each other, with a panel for each environment.

    Args:
        sweeps: names or results; none: the store's only sweep.
        store: a path or URL; None: that of a result, else $PROTEIN_STORE or runs/protein.db.

    Raises:
        UsageError: there is no such sweep, none of its trials has a score, or the sweeps have different directions.
        StoreError: the store cannot be read.
    """
    found = _read(sweeps, store)
    return front_figures.front(found, **(_expected(*found[0]) if len(found) == 1 else {}))


def curves(
    *sweeps: str | SweepResult,
    store: Place | None = None,
    x: curve_figures.Axis = "seconds",
    trials: Sequence[int] | None = None,
    by: str | None = None,
    log_x: bool = False,
    smooth: float = 0.0,
    mean: bool = False,
) -> "Figure":
    """Draws learning curves: those of the front in color, all others in gray behind them.

    Args:
        sweeps: names or results, of one environment; none: the store's only sweep.
        store: a path or URL; None: that of a result, else $PROTEIN_STORE or runs/protein.db.
        x: what the curves run over: "seconds" of training, "steps", or the "fraction" of the trial's run.
        trials: numbers of the trials to draw in color; None: those of the front, at most 12.
        by: a parameter; the curves of all trials are drawn in the color of its value.
        log_x: whether x is logarithmic.
        smooth: weight of the past in an exponential mean, from 0 (none) to below 1.
        mean: whether to draw the mean of each sweep, with a band of one standard deviation; with `by` the mean of each
            value of the parameter, or of four groups of values.

    Raises:
        UsageError: there is no such sweep, trial or parameter, no curve has a score, or the sweeps share no axis.
        StoreError: the store cannot be read.
    """
    found = _read(sweeps, store, curves_of=lambda records: curve_figures.needed(records, trials))
    return curve_figures.curves(found, x=x, trials=trials, by=by, log_x=log_x, smooth=smooth, mean=mean)


def history(*sweeps: str | SweepResult, store: Place | None = None) -> "Figure":
    """Draws score against the trial's number: all trials, and the best measured score so far.

    Failed trials stand below the axis. Several sweeps are drawn over each other, with a panel for each environment.

    Args:
        sweeps: names or results; none: the store's only sweep.
        store: a path or URL; None: that of a result, else $PROTEIN_STORE or runs/protein.db.

    Raises:
        UsageError: there is no such sweep, none of its trials has ended, or the sweeps have different directions.
        StoreError: the store cannot be read.
    """
    return front_figures.history(_read(sweeps, store))


def parallel(*sweeps: str | SweepResult, store: Place | None = None, params: Sequence[str] | None = None) -> "Figure":
    """Draws parallel coordinates: an axis for each parameter, then cost and score, and a line for each trial.

    Args:
        sweeps: names or results, of one environment; none: the store's only sweep.
        store: a path or URL; None: that of a result, else $PROTEIN_STORE or runs/protein.db.
        params: the parameters to draw, in this order; None: those in which trials differ, at most 10.

    Raises:
        UsageError: there is no such sweep or parameter, no trial has a score, or the sweeps share no axis.
        StoreError: the store cannot be read.
    """
    return parameter_figures.parallel(_read(sweeps, store), params=params)


def importance(
    sweep: str | SweepResult | None = None, *, store: Place | None = None, target: Target = "score"
) -> "Figure":
    """Draws which parameters matter near the best configs, beside three other methods that may disagree.

    The first is the answer of the page Parameters, a functional ANOVA of the engine's model. The others are PED-ANOVA,
    which needs Optuna, permutation importance of a random forest, which needs scikit-learn, and the length scales of
    the engine's model. What a method lacks, it says.

    Args:
        sweep: name or result; None: the store's only sweep.
        store: a path or URL; None: that of a result, else $PROTEIN_STORE or runs/protein.db.
        target: "score", or "cost" for what makes a trial cheap or expensive.

    Raises:
        UsageError: there is no such sweep, or too few of its trials have a score.
        StoreError: the store cannot be read.
    """
    [(record, trials)] = _read(() if sweep is None else (sweep,), store)
    some, sample = sampled(trials)
    observations = [trial.observation() for trial in some if trial.state.finished and not trial.excluded]
    space = stored_space(record.spec)
    others = importances(space, observations, target=target)
    try:
        first = matters(SweepModel.fit(space, observations, sample), target)
    except UsageError as error:
        first = Matters(target=target, problem=str(error))
    found = [of_matters(first), *others]
    name = style.plain(record.spec.name)
    return parameter_figures.importance(found, f"{name}: which parameters matter for the {target}, by method")


def compare(
    *sweeps: str | SweepResult,
    store: Place | None = None,
    environments: Sequence[str] = (),
    reference: str | None = None,
    each: bool = False,
) -> "Figure":
    """Draws two or more sweeps over each other: best score so far, fronts, and figures with intervals over seeds.

    Sweeps whose names differ in a seed or an environment only are one side. Where one of the names is a pattern such as
    "old-*" or a list such as "a,b", each argument is a side. All sweeps must be in one store.

    Args:
        sweeps: names or results, two sweeps at least.
        store: a path or URL; None: that of the first result, else $PROTEIN_STORE or runs/protein.db.
        environments: to compare in; none: all that the sides have in common.
        reference: the side that is drawn first; None: the first.
        each: whether every sweep is a side of its own.

    Raises:
        UsageError: there is no such sweep or environment, or a sweep has no complete trial.
        StoreError: the store cannot be read.
    """
    kept = next((sweep.store for sweep in sweeps if isinstance(sweep, SweepResult)), None)
    names = [sweep.name if isinstance(sweep, SweepResult) else sweep for sweep in sweeps]
    with stores.opened(kept if store is None else os.fspath(store)) as opened:
        sides = sides_of(opened.list_sweeps(), names, each=each)
        found = compared(opened, sides, reference=reference, environments=environments)
    return comparison_views.compare(found)


def _read(
    sweeps: Sequence[str | SweepResult],
    store: Place | None,
    *,
    curves_of: Callable[[Sequence[TrialRecord]], Collection[int]] | None = None,
) -> list[Subject]:
    """Returns the sweeps with their trials, as they are stored, each once.

    Args:
        sweeps: see `front`.
        store: see `front`.
        curves_of: returns the numbers of the trials whose curves are needed, thinned to what a picture can show; None:
            none are read, and each trial that was stopped has the last point of its curve, as the models need it.
    """
    found: dict[tuple[str | None, str | None], Subject] = {}
    for sweep in sweeps or (None,):
        name, kept = (sweep.name, sweep.store) if isinstance(sweep, SweepResult) else (sweep, None)
        where = kept if store is None else os.fspath(store)
        with stores.opened(where) as opened:
            record = stores.find(opened, name)
            trials = opened.trials(record.id, curves=False, last_points=curves_of is None)
            if curves_of is not None:
                trials = _with_curves(opened, record, trials, curves_of(trials))
            found.setdefault((where, record.spec.name), (record, trials))
    return list(found.values())


def _with_curves(
    store: Store, record: SweepRecord, trials: Sequence[TrialRecord], numbers: Collection[int]
) -> list[TrialRecord]:
    known = store.curves(record.id, numbers, curve_figures.MAX_POINTS) if numbers else {}
    curves = {
        number: tuple(
            Measurement(steps=int(steps), elapsed_seconds=float(seconds), score=float(score))
            for steps, seconds, score in zip(one.steps, one.elapsed_seconds, one.value, strict=True)
        )
        for number, one in known.items()
    }
    return [dataclasses.replace(trial, curve=curves.get(trial.number, ())) for trial in trials]


def _expected(record: SweepRecord, trials: Sequence[TrialRecord]) -> dict[str, Any]:
    """Returns what `protein best` says of a sweep, for a picture of its front; nothing where it says nothing."""
    try:
        return recommendation(record, trials).drawn()
    except UsageError:  # no trial was trained to its end, so nothing is recommended
        return {}

"""`protein show`: a sweep's trials, everything about one, or how good the engine's predictions were."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from protein.api import stores
from protein.api.answers import sweep_hindsight
from protein.api.keeping import picture
from protein.api.recommended import shown_trials
from protein.cli.arguments import ShowArguments
from protein.cli.output import print_json
from protein.cli.parse import Command
from protein.columns import MAX_CURVES
from protein.config.layers import display_path
from protein.direction import shown_trial
from protein.engine.forecasts import forecast_quality
from protein.errors import UsageError
from protein.ports import Store
from protein.spelling import counted
from protein.sweep import resuming
from protein.trainer.kinds import kind_of
from protein.types import Measurement, SweepRecord, TrialRecord
from protein.view import data, tables
from protein.view import forecasts as views
from protein.view import outlook as outlook_views

_SKETCH_POINTS = 50  # of a curve that is drawn in a dozen characters


def run(command: Command) -> int:
    arguments: ShowArguments = command.arguments
    if arguments.calibration and arguments.trial is not None:
        raise UsageError(
            f"--calibration is about the whole sweep and --trial {arguments.trial} about one trial; drop one of the two"
        )
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        if arguments.trial is not None:
            folder = stores.artifact_directory(stores.url(arguments.store), sweep.spec.name)
            stored = [resuming.located(stores.find_trial(store, sweep, arguments.trial), folder)]
        elif arguments.calibration:
            stored = store.trials(sweep.id, curves=False, last_points=True)
        else:  # a table shows each curve in a few characters
            stored = store.trials(sweep.id, curves=False)
            stored = stored if arguments.json else _with_sketches(store, sweep, stored)
    if arguments.calibration:
        return _calibration(sweep, stored, arguments)
    trials = shown_trials(sweep, stored)
    console = tables.make_console()
    if arguments.trial is None:
        if arguments.json:
            listed = [data.trial(trial, curve=False) for trial in trials]
            print_json({"sweep": data.sweep(sweep, stored), "trials": listed})
        else:
            console.print(tables.trials(trials, console.width))
        return 0
    if arguments.json:
        print_json({"sweep": sweep.spec.name, **data.trial(trials[0], curve=True)})
    else:
        console.print(tables.trial(trials[0], console.width, kind_of(sweep.spec.config).unit))
    return 0


def _with_sketches(store: Store, sweep: SweepRecord, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Returns trials with thinned curves, which are drawn in a few characters."""
    shown = []
    for first in range(0, len(trials), MAX_CURVES):
        part = trials[first : first + MAX_CURVES]
        curves = store.curves(sweep.id, [trial.number for trial in part], _SKETCH_POINTS)
        for trial in part:
            thin = curves[trial.number]
            points = zip(thin.steps.tolist(), thin.elapsed_seconds.tolist(), thin.value.tolist(), strict=True)
            curve = tuple(Measurement(steps=s, elapsed_seconds=e, score=v) for s, e, v in points)
            shown.append(dataclasses.replace(trial, curve=curve))
    return shown


def _calibration(sweep: SweepRecord, stored: Sequence[TrialRecord], arguments: ShowArguments) -> int:
    """Prints how good the predictions were and draws them; the predictions are the stored ones, not clipped."""
    name = sweep.spec.name
    trials = [shown_trial(trial, sweep.spec.direction) for trial in stored if not trial.excluded]
    score, cost = forecast_quality(trials, "score"), forecast_quality(trials, "cost")
    if not score.forecasts:
        raise UsageError(
            f"sweep '{name}' has no complete trial with a prediction yet (the first trials have none); run more trials"
        )
    path: Path | None = None
    try:  # beside a store that may only be read this fails; the figures can be told all the same
        path = picture(stores.url(arguments.store), name, "calibration.png")
        title = f"{name}: predicted and measured, {counted(len(score.forecasts), 'trial')}"
        views.write_picture(score, cost, title, path)
        plot = f"plot: {display_path(path)}"
    except UsageError as error:
        plot = f"no plot: {error}"
    except OSError as error:
        assert path is not None
        plot, path = f"no plot: {display_path(path)} cannot be written ({error.strerror or error})", None
    earlier = sweep_hindsight(sweep, stored)
    if arguments.json:
        found = {"score": views.plain(score), "cost": views.plain(cost)}
        outlooks = [outlook_views.plain_hindsight(one) for one in earlier]
        print_json({"sweep": name, **found, "outlook": outlooks, "picture": path and str(path)})
        return 0
    console = tables.make_console()
    console.print(views.table([score, cost], console.width))
    console.print(views.LEGEND)
    console.print(f"\n{score.verdict}\n{cost.verdict}", soft_wrap=True)
    if earlier:
        console.print(f"\n{outlook_views.HINDSIGHT_TITLE}", soft_wrap=True)
        console.print(outlook_views.table(earlier, console.width))
    console.print(f"\n{plot}", soft_wrap=True)
    return 0

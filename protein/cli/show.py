"""`protein show`: a sweep's trials, everything about one, or how good the engine's predictions were."""

from collections.abc import Sequence

from protein.api import stores
from protein.api.outlook import sweep_hindsight
from protein.api.recommended import shown_trials
from protein.cli.arguments import ShowArguments
from protein.cli.output import print_json, writing
from protein.cli.parse import Command
from protein.config.layers import display_path
from protein.direction import shown_trial
from protein.engine.calibration import calibration
from protein.errors import UsageError
from protein.types import SweepRecord, TrialRecord
from protein.view import calibration as views
from protein.view import data, tables
from protein.view import outlook as outlook_views


def run(command: Command) -> int:
    arguments: ShowArguments = command.arguments
    if arguments.calibration and arguments.trial is not None:
        raise UsageError(
            f"--calibration is about the whole sweep and --trial {arguments.trial} about one trial; drop one of the two"
        )
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        stored = store.trials(sweep.id)
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
    found = next((trial for trial in trials if trial.number == arguments.trial), None)
    if found is None:
        held = f"0 to {trials[-1].number}" if trials else "none yet"
        raise UsageError(f"sweep '{sweep.spec.name}' has no trial {arguments.trial}; it has {held}")
    if arguments.json:
        print_json({"sweep": sweep.spec.name, **data.trial(found, curve=True)})
    else:
        console.print(tables.trial(found, console.width))
    return 0


def _calibration(sweep: SweepRecord, stored: Sequence[TrialRecord], arguments: ShowArguments) -> int:
    """Prints how good the predictions were and draws them; the predictions are the stored ones, not clipped."""
    name = sweep.spec.name
    trials = [shown_trial(trial, sweep.spec.direction) for trial in stored if not trial.excluded]
    score, cost = calibration(trials, "score"), calibration(trials, "cost")
    if not score.forecasts:
        raise UsageError(
            f"sweep '{name}' has no complete trial with a prediction yet (the first trials have none); run more trials"
        )
    path = stores.artifact_directory(stores.url(arguments.store), name) / "calibration.png"
    with writing(path):
        views.write_picture(score, cost, f"{name}: predicted and measured, {len(score.forecasts)} trials", path)
    earlier = sweep_hindsight(sweep, stored)
    if arguments.json:
        found = {"score": views.plain(score), "cost": views.plain(cost)}
        outlooks = [outlook_views.plain_hindsight(one) for one in earlier]
        print_json({"sweep": name, **found, "outlook": outlooks, "picture": str(path)})
        return 0
    console = tables.make_console()
    console.print(views.table([score, cost], console.width))
    console.print(views.LEGEND)
    console.print(f"\n{score.verdict}\n{cost.verdict}", soft_wrap=True)
    if earlier:
        console.print(f"\n{outlook_views.HINDSIGHT_TITLE}", soft_wrap=True)
        console.print(outlook_views.table(earlier, console.width))
    console.print(f"\nplot: {display_path(path)}", soft_wrap=True)
    return 0

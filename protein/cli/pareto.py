"""`protein pareto`: a sweep's fronts, measured and expected, as tables, a plot in the terminal, and a picture."""

import collections
import dataclasses

import numpy as np

from protein.analysis.dominated import Spending, spending_of
from protein.api import stores
from protein.api.answers import Answers
from protein.api.recommended import NO_KNEE, beaten_measured_note
from protein.cli.arguments.results import ParetoArguments
from protein.cli.output import print_json, working, writing
from protein.cli.parse import Command
from protein.columns import TrialColumns
from protein.direction import shown_trial
from protein.engine import pareto
from protein.types import TrialEnd, TrialRecord, TrialState
from protein.view import data, tables, text
from protein.view.scatter import LEGEND_EXPECTED, scatter

PLOT_HEIGHT = 18
MAX_PLOT_WIDTH = 110


def run(command: Command) -> int:
    arguments: ParetoArguments = command.arguments
    with working("computing what is expected"), stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        answers = Answers(store, sweep)
        trials = answers.columns  # no object for each: of a large sweep, that took half as long as all the rest
        numbers = _front(trials)
        named = {*numbers, *_highest_cut_short(trials)}
        records = {record.number: record for record in store.trials(sweep.id, curves=False, numbers=named)}
        drawn = [] if arguments.png is None else store.trials(sweep.id, curves=False)
        found = answers.recommendation()  # the best and the knee are those that `protein best` names
    direction = sweep.spec.direction
    best_measured = records[numbers[-1]] if numbers else None
    far = _progress(trials, best_measured)
    knee = None if found.knee is None else found.knee.trial.number
    best = found.best.trial.number
    costs = (trials.cost_seconds, trials.run_seconds)
    spent_on = spending_of(trials.state, trials.score, *costs, trials.excluded, trials.lost_seconds)
    if arguments.png is not None:
        from protein.view.figures.front import front  # late: only a picture needs it
        from protein.view.figures.style import save

        figure = front([(sweep, drawn)], **found.drawn())
        with writing(arguments.png):
            save(figure, arguments.png, "png")
    shown = [shown_trial(record, direction) for record in map(records.__getitem__, numbers)]
    if arguments.json:
        points = [data.point(record) for record in shown]
        expected_points = [
            {
                "trials": [trial.number for trial in choice.trials],
                "expected_score": data.estimate(choice.contender.score),
                "expected_cost_seconds": choice.contender.expected_cost_seconds,
                "params": dict(choice.contender.params),
            }
            for choice in found.front
        ]
        print_json(
            {
                "sweep": data.sweep(sweep, far),
                "front": points,
                "expected_front": expected_points,
                "best": best,
                "knee": knee,
                "spending": {**dataclasses.asdict(spent_on), "total": spent_on.total, "share": spent_on.share},
            }
        )
        return 0
    console = tables.make_console()
    width = min(console.width, MAX_PLOT_WIDTH)
    console.print("\n".join(scatter(trials, width - 1, PLOT_HEIGHT, best=best, direction=direction)), soft_wrap=True)
    console.print(text.shorten(LEGEND_EXPECTED, width) + "\n", soft_wrap=True)
    console.print("measured front")
    console.print(tables.front(shown, console.width, found.marks()))
    console.print("\nexpected front: the same without luck, by the posterior mean of the true score")
    names = [found.marks().get(choice.trial.number, "") for choice in found.front]
    rows = [choice.contender for choice in found.front]
    console.print(tables.answers(names, rows, [choice.trials for choice in found.front], console.width))
    said = NO_KNEE if found.knee is None else f"knee: trial {knee}, expected {found.knee.phrase()}"
    line = f"{found.best.name}: trial {found.best.trial.number}, expected {found.best.phrase()}"
    beaten = beaten_measured_note(sweep, list(records.values()))
    if beaten is not None:
        line += f"\n{beaten}"
    if (slowed := found.why_cheaper()) is not None:
        line += f"\n{slowed}"
    if spent_on.num_dominated_expensive:
        line += f"\n{_dominated(spent_on)}"
    console.print(f"\n{said}\n{line}\n{stores.best_hint(sweep.spec.name, arguments.store)}", soft_wrap=True)
    if arguments.png is not None:
        console.print(f"\nplot: {arguments.png}", soft_wrap=True)
    return 0


def _front(trials: TrialColumns) -> list[int]:
    """Returns the numbers of the measured front's trials, cheapest first."""
    complete = np.array(trials.state, dtype=object) == TrialState.COMPLETE
    able = np.flatnonzero(complete & ~trials.excluded)
    front = pareto.front_indices(trials.score[able], trials.run_seconds[able])
    return [int(number) for number in trials.number[able[front]]]


def _progress(trials: TrialColumns, best: TrialRecord | None) -> data.Progress:
    waiting = sum(state is TrialState.WAITING for state in trials.state)
    spent = sum((trials.cost_seconds + trials.lost_seconds).tolist())
    return data.Progress(
        counts=data.counts_of(collections.Counter(trials.end), waiting), spent_seconds=spent, best=best
    )


def _highest_cut_short(trials: TrialColumns) -> list[int]:
    """Returns the number of the trial with the highest score among those that a limit of cost has ended, if any."""
    ends = np.array(trials.end, dtype=object)
    cut = (ends == TrialEnd.CAPPED) | (ends == TrialEnd.OUT_OF_BUDGET)
    cut = np.flatnonzero(cut & ~np.isnan(trials.score) & ~trials.excluded)
    return [int(trials.number[cut[np.argmax(trials.score[cut])]])] if len(cut) else []


def _dominated(spent_on: Spending) -> str:
    """Says how much of the budget went to expensive trials that a cheaper one beats."""
    number = spent_on.num_dominated_expensive
    who = (
        "1 expensive trial that a cheaper one beats"
        if number == 1
        else f"{number} expensive trials that cheaper ones beat"
    )
    over = text.seconds(spent_on.expensive_above)
    note = "a large share is usual where scores are noisy: one lucky trial beats many"
    return f"{100 * spent_on.share:.0f} % of the cost went to {who} (expensive: over {over}); {note}"

"""What `protein.Sweep(...).run(train)` returns."""

import dataclasses

from protein.api.answers import at_the_end
from protein.api.recommended import best_cut_short, cut_short_note
from protein.api.summary import summary
from protein.direction import shown_trial
from protein.engine import pareto
from protein.ports import SweepStatus
from protein.types import Direction, SweepRecord, TrialRecord, TrialState


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """The results of a sweep so far. Scores are as the training function returned them.

    Attributes:
        name: the sweep's, to ask `protein best NAME` and the like.
        trials: all, by number.
        best: what `protein best` recommends, the complete trial with the best expected score. It need not be the one
            that measured best, whose score noise may have raised. None where no trial is complete.
        front: the Pareto front, cheapest first: each trial measured better than all that cost less.
        summary: what was found, and what to know before using it, one sentence a line; "" where no trial is complete
            and none was stopped at a limit of cost.
        ended: why no more trials were started, in words, as in "the budget is spent", "every config of the space was
            tried" or "the limit of 20 trials is reached"; "interrupted" by Ctrl-C; with `stop_when` the gain that was
            expected.
        interrupted: whether Ctrl-C ended it.
        store: the URL of the store that holds the sweep, with which `protein.plots` finds it.
    """

    name: str
    trials: tuple[TrialRecord, ...]
    best: TrialRecord | None
    front: tuple[TrialRecord, ...]
    ended: str
    interrupted: bool
    summary: str
    store: str = dataclasses.field(repr=False)  # it may hold a password


def result_of(
    sweep: SweepRecord,
    trials: list[TrialRecord],
    direction: Direction,
    *,
    ended: SweepStatus,
    url: str,
) -> SweepResult:
    """Returns the results of a sweep whose loop has ended.

    `url` is where the store is, whatever the working directory: the function may have changed it.
    """
    best, found = None, ""
    if any(trial.state is TrialState.COMPLETE and not trial.excluded for trial in trials):
        recommended = at_the_end(sweep, trials, url)
        best = recommended.best.trial  # its score is as the function returned it
        found = "\n".join([summary(recommended), *recommended.notes()])
    elif (cut_short := best_cut_short(trials)) is not None:
        found = f"no complete trial\n{cut_short_note(shown_trial(cut_short, direction), trains=False)}"
    return SweepResult(
        name=sweep.spec.name,
        trials=tuple(shown_trial(trial, direction) for trial in trials),
        best=best,
        front=tuple(shown_trial(trial, direction) for trial in pareto.front(trials)),
        ended=ended.ended,
        interrupted=ended.stopping,
        summary=found,
        store=url,
    )

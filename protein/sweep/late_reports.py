"""Late reports: what becomes of news about a trial that was given to another process in the meantime.

A controller may be cut off, by its network or because it was stopped, for longer than its lease lasts. Then the same
command on another machine takes its trials. When the first one is back, the store refuses whatever it has to say of
them. What that was is kept in the trial's note, for a person who wonders.
"""

import contextlib

from protein.errors import ProteinError
from protein.ports import Finished, Store, TrialProgress
from protein.types import MAX_NOTE_LENGTH


def keep(store: Store, sweep_id: int, event: TrialProgress | Finished, owner: str) -> str:
    """Adds a refused report to its trial's note, after what people have written there.

    Args:
        store: which refused it.
        sweep_id: the sweep.
        event: the report.
        owner: the process that it came through.

    Returns:
        The line for people.
    """
    host, pid, _ = owner.rsplit(":", 2)
    line = f"late report of process {pid} on {host}, refused: {_in_words(event)}"
    number = event.trial.number
    with contextlib.suppress(ProteinError):  # a note is not worth an error of its own
        for trial in store.trials(sweep_id, curves=False, numbers=[number]):
            note = f"{trial.note}\n{line}".strip()
            if len(note) <= MAX_NOTE_LENGTH:
                store.annotate(sweep_id, number, note=note)
    return f"trial {number}: {line}"


def _in_words(event: TrialProgress | Finished) -> str:
    if isinstance(event, Finished):
        outcome = event.outcome
        score = "" if outcome.score is None else f" with score {outcome.score:.6g}"
        return f"it ended ({outcome.end.value}){score} after {outcome.steps:,} steps and {outcome.cost_seconds:.1f} s"
    if not event.measurements:
        return "it was still running"
    last = event.measurements[-1]
    score = "" if last.score is None else f" and score {last.score:.6g}"
    return f"it was at step {last.steps:,} with {last.elapsed_seconds:.1f} s{score}"

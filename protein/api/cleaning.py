"""Retention: which checkpoints of a sweep nothing needs any more, and deleting those.

Kept are the checkpoints of the measured and the expected front, of every answer of `protein best`, of trials that have
not ended, and of those that they continue. In a sweep that continues trials, what a finished trial can go on from is
kept, too. Logs and configs are small and stay. The store is not changed: it keeps saying where a checkpoint was, and
views say that it is gone.
"""

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from protein.api import recommended
from protein.api.sweep_folder import SweepFolder, delete, holds_files, size
from protein.engine import pareto
from protein.engine.sample import sampled
from protein.errors import UsageError
from protein.run.job import runs_trainer
from protein.sweep import resuming
from protein.types import CONTINUABLE, SweepRecord, TrialRecord

CHECKPOINT = "checkpoint"
RESUMABLE = "checkpoint"  # the folder of a trial's own in which a command keeps its state
_STAYS = ("log", "config")  # kinds of artifacts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """A file or folder that can be deleted."""

    trial: int
    path: Path
    num_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What can be deleted of a sweep, which trials keep checkpoints, and which of these only to be continued."""

    sweep: SweepRecord
    freed: Sequence[Freed]
    kept: Sequence[int]
    to_go_on: Sequence[int] = ()

    @property
    def num_bytes(self) -> int:
        return sum(one.num_bytes for one in self.freed)


def plan(sweep: SweepRecord, trials: Sequence[TrialRecord], folder: SweepFolder, *, goes_on: bool = True) -> Plan:
    """Returns what can be deleted of a sweep.

    Args:
        sweep: as it is stored; no process runs it.
        trials: all of its trials; of each curve one point is enough.
        folder: where its files are.
        goes_on: whether the sweep may get more budget, so that trials may still be continued.
    """
    needed = needed_trials(sweep, trials)
    can_continue = goes_on and _continues(sweep, trials)
    kept_paths: set[Path] = set()
    candidates: dict[Path, int] = {}
    kept: list[int] = []
    to_go_on: list[int] = []
    for trial in trials:
        whole = trial.number in needed or not trial.state.finished
        resumes = can_continue and trial.state.finished and resuming.resumable_seconds(trial) is not None
        found = list(_checkpoints(trial, folder))
        if found and (whole or resumes):
            kept.append(trial.number)
            if not whole:
                to_go_on.append(trial.number)
        for kind, path in found:
            if whole or (resumes and kind == CONTINUABLE):
                kept_paths.add(path)
            else:
                candidates.setdefault(path, trial.number)
    for trial in trials:  # a function's folder holds its log, too
        for one in trial.artifacts:
            inner = folder.inner(Path(one.path)) if one.kind in _STAYS else None
            if inner is not None:
                kept_paths.add(inner)
    freed = [
        Freed(trial=number, path=part, num_bytes=size(part))
        for path, number in candidates.items()
        for part in _without(path, kept_paths)
    ]
    freed.sort(key=lambda one: (one.trial, str(one.path)))
    distinct = [one for i, one in enumerate(freed) if not any(_within(one.path, other.path) for other in freed[:i])]
    return Plan(sweep=sweep, freed=distinct, kept=kept, to_go_on=to_go_on)


def carry_out(plan: Plan) -> Iterator[Freed]:
    """Deletes what the plan names, and yields each thing that is gone. Raises `UsageError` where one cannot be."""
    for one in plan.freed:
        try:
            delete(one.path)
        except OSError as error:
            raise UsageError(
                f"{one.path} cannot be deleted ({error.strerror or error}); what was freed before stays freed; change"
                " its permissions and run the same command again"
            ) from error
        yield one


def needed_trials(sweep: SweepRecord, trials: Sequence[TrialRecord]) -> set[int]:
    """Returns the numbers of the trials whose checkpoints people ask for, and that unfinished ones began from."""
    needed = {trial.number for trial in pareto.front([trial for trial in trials if not trial.excluded])}
    needed |= {trial.continues for trial in trials if not trial.state.finished and trial.continues is not None}
    if (cut_short := recommended.best_cut_short(trials)) is not None:
        needed.add(cut_short.number)
    try:
        some, sample = sampled(trials)
        found = recommended.recommendation(sweep, some, sample=sample)
    except UsageError:  # no trial was trained to its end: nothing is recommended
        return needed
    answers = [found.best, found.knee, found.best_measured, found.initial, *found.front]
    for answer in answers:
        needed |= {trial.number for trial in (answer.trials if answer is not None else ())}
    return needed


def _continues(sweep: SweepRecord, trials: Sequence[TrialRecord]) -> bool:
    """Whether a sweep continues finished trials.

    Our trainer says by its schedule whether a run can. Any program or function that leaves files could be able to, but
    most are not: there a trial that has continued another one tells.
    """
    if resuming.why_never_continued(sweep.spec) is not None:
        return False
    return runs_trainer(sweep.spec.config) or any(trial.continues is not None for trial in trials)


def _checkpoints(trial: TrialRecord, folder: SweepFolder) -> Iterator[tuple[str, Path]]:
    """Yields kind and place of a trial's checkpoints that are there, as far as they lie in the sweep's folder.

    A command has a folder for its state whether it writes one or not: without a file it holds no checkpoint.
    """
    for one in trial.artifacts:
        inner = folder.inner(Path(one.path)) if one.kind in (CHECKPOINT, CONTINUABLE) else None
        if inner is not None and holds_files(inner):
            yield one.kind, inner
    own = folder.inner(folder.trial(trial.number) / RESUMABLE)
    if own is not None and holds_files(own):
        yield CHECKPOINT, own


def _without(path: Path, kept: Collection[Path]) -> Iterator[Path]:
    """Yields a path, or of a folder that holds kept ones the parts that hold none."""
    if any(_within(path, one) for one in kept):
        return
    if not any(_within(one, path) for one in kept):
        yield path
        return
    for inner in sorted(path.iterdir()):
        yield from _without(inner, kept)


def _within(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents

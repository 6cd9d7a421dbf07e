"""Where a trial is in its life, and how it ended."""

from enum import StrEnum


class TrialState(StrEnum):
    """Where a trial is in its life: RUNNING -> COMPLETE | PRUNED | FAILED. A finished trial never changes.

    RUNNING -> WAITING -> RUNNING: a trial that was interrupted or preempted, and left something to go on from, waits
    until the sweep takes it up again. It has no owner and holds no worker. Its cost so far counts. A trial that a
    person has queued begins as WAITING.
    """

    RUNNING = "running"
    WAITING = "waiting"
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"

    @property
    def finished(self) -> bool:
        return self not in (TrialState.RUNNING, TrialState.WAITING)


class TrialEnd(StrEnum):
    """How a trial ended. Decisions about a finished trial read this; `reason` is text for people."""

    COMPLETE = "complete"  # trained to its end
    CAPPED = "capped"  # reached the cap on the cost of one trial
    OUT_OF_BUDGET = "out_of_budget"  # reached what was left of the sweep's budget, which was less than the cap
    STOPPED_EARLY = "stopped_early"  # its learning curve was worse than those of similar trials
    INTERRUPTED = "interrupted"  # ended from outside (Ctrl-C, `kill -9`, a power cut)
    MISTAKE = "mistake"  # in how the user's training function is written: its arguments, a result that is no number
    USER_ERROR = "user_error"  # the user's training function or environment raised an exception
    DIVERGED = "diverged"  # a loss, a gradient, a weight or the score was not finite
    OUT_OF_MEMORY = "out_of_memory"
    HUNG = "hung"  # reported nothing for too long, or took far longer than its cap allows
    DISK = "disk"  # its files could not be written
    CRASHED = "crashed"  # its process died, or what it printed could not be read
    FAILED = "failed"  # for any other reason

    @property
    def state(self) -> TrialState:
        """The state that a trial with this end is in."""
        if self is TrialEnd.COMPLETE:
            return TrialState.COMPLETE
        pruned = (TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET, TrialEnd.STOPPED_EARLY)
        return TrialState.PRUNED if self in pruned else TrialState.FAILED

    @property
    def teaches(self) -> bool:
        """Whether it tells anything about the trial's params; if not, no model learns from it."""
        return self not in (TrialEnd.INTERRUPTED, TrialEnd.MISTAKE, TrialEnd.DISK)

    @property
    def text(self) -> str:
        """What a trial's `reason` begins with: the words for this end."""
        return _END_TEXTS.get(self, self.value.replace("_", " "))


_END_TEXTS = {
    TrialEnd.COMPLETE: "",
    TrialEnd.CAPPED: "stopped at its cost cap",
    TrialEnd.OUT_OF_BUDGET: "stopped at the end of the sweep's budget",
    TrialEnd.MISTAKE: "mistake in the training function",
}
CUT_SHORT = (TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET)  # the ends of trials that a limit of cost has ended
CANCELLED = "cancelled by hand"  # the reason of a trial whose end a person has asked for
QUEUED = "queued by hand"  # the reason of a trial that waits and has never run: a person has asked for it
PREEMPTED = "preempted: "  # what the reason begins with where a trial's place to run was lost (see `ports.Backend`)


def told(state: TrialState, end: TrialEnd | None, reason: str = "") -> str:
    """Returns in a word or two how far a trial is, or how it ended: `queued`, `running`, `capped`, `user error`."""
    if end is not None:
        return end.value.replace("_", " ")
    return "queued" if state is TrialState.WAITING and reason == QUEUED else state.value


def end_of(state: TrialState, reason: str) -> TrialEnd | None:
    """Returns the end of an observation that was kept before ends were data; None for a trial that runs or waits.

    Earlier versions recognised these ends by the beginning of `reason`. Nothing else may decide by it.
    """
    if not state.finished:
        return None
    if state is TrialState.COMPLETE:
        return TrialEnd.COMPLETE
    if state is TrialState.PRUNED:
        if reason.startswith(TrialEnd.STOPPED_EARLY.text):
            return TrialEnd.STOPPED_EARLY
        return TrialEnd.OUT_OF_BUDGET if reason == TrialEnd.OUT_OF_BUDGET.text else TrialEnd.CAPPED
    if reason == TrialEnd.INTERRUPTED.text:
        return TrialEnd.INTERRUPTED
    return TrialEnd.MISTAKE if reason.startswith(TrialEnd.MISTAKE.text) else TrialEnd.FAILED


def check_end(state: TrialState, end: TrialEnd | None) -> None:
    """Raises `ValueError` unless a trial in this state can have this end."""
    expected = (TrialState.RUNNING, TrialState.WAITING) if end is None else (end.state,)
    if state not in expected:
        words = " or ".join(expected)
        raise ValueError(f"a trial that is {state} cannot have the end {end or 'none'}, which goes with {words}")

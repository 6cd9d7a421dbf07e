"""Takes a sweep over from the process that ran it before, unless that still runs.

Who owns the running trials tells whether it does (`protein.run.lease`). Two processes that run one sweep would give
the same trials twice, so the second one is refused.
"""

from collections.abc import Callable, Sequence

from protein.errors import UsageError
from protein.ports import Store
from protein.run.lease import LEASE_SECONDS, current_owner, dead_owners, is_local, living_owners
from protein.sweep import resuming, taking_up
from protein.sweep.alive import resting_owner
from protein.sweep.store_calls import StoreCalls
from protein.types import SweepRecord, TrialEnd, TrialRecord, TrialState


def take_over(
    sweep: SweepRecord, store: Store, calls: StoreCalls, *, can_wait: bool, log: Callable[[str], None]
) -> dict[int, TrialRecord]:
    """Takes over what a dead process left running, and returns all trials of the sweep by number.

    Args:
        sweep: the sweep.
        store: where it is.
        calls: that are made of the store.
        can_wait: whether the trials that were left running wait from now on; else they end as interrupted.
        log: takes a line for people.

    Raises:
        UsageError: another live process runs this sweep.
    """
    trials = calls.repeat(lambda: taking_up.read(store, sweep.id))
    running = [trial for trial in trials if trial.state is TrialState.RUNNING]
    # Before the leases are looked at: a clock that was set forward makes a living process's lease look ended.
    _refuse(sweep, living_owners(trial.owner for trial in running))
    owners = dead_owners(trial.owner for trial in running)
    waiting = [trial.number for trial in running] if can_wait else []
    calls.repeat(lambda: store.interrupt_orphans(sweep.id, owners, waiting))
    # Asked, and not the answer above: the first one may be lost, and the second names those of its own call alone.
    ran = [trial.number for trial in running]
    reread = calls.repeat(lambda: store.trials(sweep.id, numbers=ran)) if ran else []
    now = {trial.number: trial for trial in reread}
    trials = [now.get(trial.number, trial) for trial in trials]
    orphans = [n for n, one in now.items() if one.state is TrialState.WAITING or one.end is TrialEnd.INTERRUPTED]
    if orphans:
        log(resuming.interrupted(sorted(orphans), can_wait))
    _refuse(sweep, [trial.owner for trial in trials if trial.state is TrialState.RUNNING])
    return {trial.number: trial for trial in trials}


def refuse_beside(store: Store, sweep: SweepRecord) -> None:
    """Raises `UsageError` where another process runs a sweep: one that runs a trial, is between two, or is paused."""
    owners = store.live_trials(sweep.id).values()
    gone = dead_owners(owners)
    found = [owner for owner in owners if owner not in gone and owner != current_owner()]
    _refuse(sweep, found or [owner for owner in [resting_owner(store, sweep)] if owner])


def being_run(sweep: SweepRecord, owner: str) -> str:
    """Returns in words which process runs a sweep, and what to do about that."""
    host, pid, _ = owner.rsplit(":", 2)
    gone = "" if is_local(owner) else f"; if it is gone, try again in {LEASE_SECONDS:.0f} seconds"
    return (
        f"sweep '{sweep.spec.name}' is being run by process {pid} on {host}: wait for it, or end it with"
        f" protein stop {sweep.spec.name}{gone}"
    )


def _refuse(sweep: SweepRecord, owners: Sequence[str]) -> None:
    if owners:
        raise UsageError(being_run(sweep, owners[0]))

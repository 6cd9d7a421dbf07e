"""Which process runs a sweep, as far as the store and this machine tell, and in words; a second one is refused.

Two processes that run one sweep would give the same trials twice. A sweep that ends in order stores why. One that was
killed stores nothing, so its trials are asked: their owners are processes (`protein.run.lease`). Whether a process of
another machine lives is known only while it holds a lease.
"""

import dataclasses
import shlex
from collections.abc import Sequence
from enum import StrEnum

from protein.columns import SweepSummary
from protein.errors import UsageError
from protein.ports import Store
from protein.run.lease import LEASE_SECONDS, current_owner, dead_owners, is_local
from protein.types import IMPORTED, Request, SweepRecord

AGAIN = "run its command again to go on"
_VERBS = {Request.PAUSE: "pause", Request.RUN: "resume", Request.STOP: "stop"}


class Life(StrEnum):
    """Whether a process runs a sweep."""

    RUNS = "runs"
    GONE = "gone"  # it was killed: it runs no more, and has not said why. Or the sweep was copied before its end
    ENDED = "ended"  # in order; `SweepRecord.ended` says why. Or it was imported, and is never run
    NONE = "none"  # it has no trial yet
    UNKNOWN = "unknown"  # nothing tells: its last process was one of another machine, or is gone and ran no trial then


@dataclasses.dataclass(frozen=True, slots=True)
class Alive:
    """What is known of the process that runs a sweep, or that ran it last.

    Attributes:
        life: whether it runs.
        owner: the process, as trials name their owner; "": none is known. A `GONE` one without an owner is a
            copy, which no process has run.
    """

    life: Life
    owner: str = ""

    @property
    def may_run(self) -> bool:
        return self.life in (Life.RUNS, Life.NONE, Life.UNKNOWN)

    def process(self) -> str:
        """Returns the process in words, with its machine where that is another one."""
        host, pid, *_ = [*self.owner.split(":"), "?"]
        return f"process {pid}" if is_local(self.owner) else f"process {pid} on {host}"


def alive(store: Store, sweep: SweepRecord, known: SweepSummary | None = None) -> Alive:
    """Returns whether a process runs a sweep; `known` is what the store counts of it, if that was read before."""
    known = store.summaries([sweep.id])[sweep.id] if known is None else known
    owners = sorted(set(known.running.values()))
    gone = dead_owners(owners)
    live = store.live_trials(sweep.id).values() if owners else ()
    holding = [owner for owner in live if owner not in gone]
    here = [owner for owner in owners if is_local(owner) and owner not in gone]
    if holding or here:
        return Alive(Life.RUNS, (here or holding)[0])
    if sweep.ended or sweep.spec.method == IMPORTED:
        return Alive(Life.ENDED)
    if not owners:
        if sum(known.ends.values()) == len(known.queued):
            return Alive(Life.NONE)
        owners = _last_owner(store, sweep, known)
        if owners and _lives(owners[0]):
            return Alive(Life.RUNS, owners[0])
    elif gone:
        return Alive(Life.GONE, gone[0])
    return Alive(Life.UNKNOWN, owners[0] if owners else "")


def resting_owner(store: Store, sweep: SweepRecord) -> str:
    """Returns the process of this machine that runs a sweep without running a trial of it now; "": there is none.

    It is between two trials, or paused. A process that called `Sweep.run` and is this one does not count.
    """
    known = store.summaries([sweep.id])[sweep.id]
    if sweep.ended or sweep.spec.method == IMPORTED or known.running:
        return ""
    owners = _last_owner(store, sweep, known)
    return owners[0] if owners and owners[0] != current_owner() and _lives(owners[0]) else ""


def refuse_beside(store: Store, sweep: SweepRecord) -> None:
    """Raises `UsageError` where another process runs a sweep: one that runs a trial, is between two, or is paused."""
    owners = store.live_trials(sweep.id).values()
    gone = dead_owners(owners)
    found = [owner for owner in owners if owner not in gone and owner != current_owner()]
    refuse_owners(sweep, found or [owner for owner in [resting_owner(store, sweep)] if owner])


def being_run(sweep: SweepRecord, owner: str) -> str:
    """Returns in words which process runs a sweep, and what to do about that."""
    host, pid, _ = owner.rsplit(":", 2)
    gone = "" if is_local(owner) else f"; if it is gone, try again in {LEASE_SECONDS:.0f} seconds"
    return (
        f"sweep '{sweep.spec.name}' is being run by process {pid} on {host}: wait for it, or end it with"
        f" protein stop {sweep.spec.name}{gone}"
    )


def refuse_owners(sweep: SweepRecord, owners: Sequence[str]) -> None:
    """Raises `UsageError` where one of these processes runs a sweep."""
    if owners:
        raise UsageError(being_run(sweep, owners[0]))


def life_lines(sweep: SweepRecord, now: Alive, *, num_running: int) -> list[str]:
    """Returns what a person should know of a sweep beside its trials; nothing where it simply runs."""
    name = f"'{sweep.spec.name}'"
    resume = f"protein resume {shlex.quote(sweep.spec.name)}"
    paused = sweep.requested is Request.PAUSE
    if _only_read(sweep, now):
        return [f"{name} was imported, and is never run here"]
    if now.life is Life.RUNS:
        if sweep.requested is Request.STOP:
            return [f"{name} was asked to stop: {now.process()} follows within seconds"]
        if paused:
            then = "running trials go on to their end, and no other starts" if num_running else "no trial starts"
            return [f"{name} is paused: {then} until {resume} ({now.process()})"]
        return [] if num_running else [f"{name} runs, but none of its trials does now ({now.process()})"]
    found = []
    if now.life in (Life.ENDED, Life.GONE):
        why = why_not_running(sweep, now)
        found.append(f"{name} {why}" + ("" if now.life is Life.ENDED else f"; {AGAIN}"))
    elif now.life is Life.UNKNOWN:
        found.append(f"{name}: {life_unknown(now)}; {AGAIN}")
    if paused:
        found.append(f"{name} is paused: when it is run again, no trial starts until {resume}")
    elif sweep.requested is Request.STOP and now.may_run:
        found.append(f"{name} was asked to stop, and will if a process runs it")
    return found


def why_not_running(sweep: SweepRecord, now: Alive) -> str:
    """Returns how the last run of a sweep ended that no process runs now."""
    if sweep.ended:
        return f"ended: {sweep.ended}"
    return f"was killed: {now.process()} is gone" if now.owner else "was copied before its end"


def life_unknown(now: Alive) -> str:
    """Returns that it is not known whether a process runs a sweep."""
    if not now.owner:
        return "whether a process runs it is not known"
    if is_local(now.owner):
        return f"no trial runs, and {now.process()}, which ran the last one, is gone"
    return f"{now.process()} ran it last; whether it still does cannot be seen from here"


def request_answer(sweep: SweepRecord, now: Alive, wanted: Request, *, num_running: int) -> tuple[str, bool]:
    """Returns what to say to somebody who asks for a pause, to go on or for a stop, and whether that is stored."""
    name, runs = f"sweep '{sweep.spec.name}'", now.life is Life.RUNS
    resume = f"protein resume {shlex.quote(sweep.spec.name)}"
    before = sweep.requested
    if _only_read(sweep, now):
        return f"{name} was imported, and is never run here, so there is nothing to {_VERBS[wanted]}", False
    if now.life is Life.UNKNOWN:
        idle = life_unknown(now)
    elif now.may_run:
        idle = "it has no trial yet"
    else:
        idle = f"no process runs it (it {why_not_running(sweep, now)})"
    if wanted is Request.PAUSE:
        if runs:
            then = "running trials go on to their end, and no other starts" if num_running else "no trial starts"
            return f"{name} {'was paused already' if before is wanted else 'is paused'}: {then} until {resume}", True
        return f"{name} is paused, but {idle}: when it runs, no trial starts until {resume}", True
    if wanted is Request.RUN:
        if runs:
            was = {
                Request.PAUSE: "goes on: trials start again within seconds",
                Request.STOP: "is no longer asked to stop, if its process has not followed yet",
                Request.RUN: "was not paused: it runs",
            }
            return f"{name} {was[before]}", True
        was_paused = "is not paused any more" if before is Request.PAUSE else "was not paused"
        more = ", with a larger limit if it has reached one" if now.life is Life.ENDED else ""
        return f"{name} {was_paused}, but {idle}; {AGAIN}{more}", True
    if runs:
        return f"{name} is asked to stop" + (": its running trials are interrupted" if num_running else ""), True
    if now.may_run:
        return f"{name} is asked to stop: {idle}", True
    return f"{name} does not run, so there is nothing to stop: it {why_not_running(sweep, now)}", False


def ask(store: Store, sweep: SweepRecord, wanted: Request) -> str:
    """Asks the process that runs a sweep to pause, to go on or to stop, and returns what is said to that."""
    num_running = len(store.live_trials(sweep.id))
    line, is_stored = request_answer(sweep, alive(store, sweep), wanted, num_running=num_running)
    if is_stored:
        store.request(sweep.id, wanted)
    return line


def _only_read(sweep: SweepRecord, now: Alive) -> bool:
    """Whether another tool has run a sweep, so that no process here ever does; not while it is being imported."""
    return sweep.spec.method == IMPORTED and now.life is not Life.RUNS


def _last_owner(store: Store, sweep: SweepRecord, known: SweepSummary) -> list[str]:
    """Returns the owner of a sweep's last trial that does not wait, if it has one. Trials that wait have none.

    It names the process that runs the sweep also where no trial runs now.
    """
    number = known.total - 1
    while number in known.waiting:
        number -= 1
    if number < 0:
        return []
    return [trial.owner for trial in store.trials(sweep.id, curves=False, numbers=[number]) if trial.owner]


def _lives(owner: str) -> bool:
    """Whether an owner is a process of this machine that runs."""
    return is_local(owner) and not dead_owners([owner])

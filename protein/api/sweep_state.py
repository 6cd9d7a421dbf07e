"""What a sweep does now, in words: it runs, is paused, has ended or was killed. Commands and pages say it alike."""

import shlex

from protein.run.lease import is_local
from protein.sweep.ownership import Alive, Life
from protein.types import IMPORTED, Request, SweepRecord

AGAIN = "run its command again to go on"
_VERBS = {Request.PAUSE: "pause", Request.RUN: "resume", Request.STOP: "stop"}


def lines(sweep: SweepRecord, now: Alive, *, num_running: int) -> list[str]:
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
        found.append(f"{name}: {unknown(now)}; {AGAIN}")
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


def unknown(now: Alive) -> str:
    """Returns that it is not known whether a process runs a sweep."""
    if not now.owner:
        return "whether a process runs it is not known"
    if is_local(now.owner):
        return f"no trial runs, and {now.process()}, which ran the last one, is gone"
    return f"{now.process()} ran it last; whether it still does cannot be seen from here"


def answer(sweep: SweepRecord, now: Alive, wanted: Request, *, num_running: int) -> tuple[str, bool]:
    """Returns what to say to somebody who asks for a pause, to go on or for a stop, and whether that is stored.

    Args:
        sweep: as it was before.
        now: whether a process runs it.
        wanted: what is asked for.
        num_running: how many of its trials run.
    """
    name, runs = f"sweep '{sweep.spec.name}'", now.life is Life.RUNS
    resume = f"protein resume {shlex.quote(sweep.spec.name)}"
    before = sweep.requested
    if _only_read(sweep, now):
        return f"{name} was imported, and is never run here, so there is nothing to {_VERBS[wanted]}", False
    if now.life is Life.UNKNOWN:
        idle = unknown(now)
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


def _only_read(sweep: SweepRecord, now: Alive) -> bool:
    """Whether another tool has run a sweep, so that no process here ever does; not while it is being imported."""
    return sweep.spec.method == IMPORTED and now.life is not Life.RUNS

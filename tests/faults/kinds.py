"""The kinds of fault. Each is done to a running sweep at a random moment."""

import contextlib
import dataclasses
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Literal

from tests.faults.clock import library
from tests.faults.disturbed import Disturbed, Subject

STOPPED_SECONDS = 1.0
FULL_SECONDS = 2.0
HOUR = 3600
LEASE_SECONDS = 120  # of a trial

Effect = Literal["nothing", "ends", "may end"]


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One kind.

    Attributes:
        name: as in the table.
        effect: what it does: "nothing" that anybody sees; it "ends" the sweep's process; it "may end" it
            with one line that says why, if it strikes before the first trial.
        strike: does it; returns whether there was anything to do it to, and what is wrong already.
        fits: whether it can be done to a sweep of this kind here.
    """

    name: str
    effect: Effect
    strike: Callable[[Disturbed, random.Random], tuple[bool, list[str]]]
    fits: Callable[[Subject], bool] = lambda _: True


def _signal(
    number: signal.Signals, *, group: bool = False
) -> Callable[[Disturbed, random.Random], tuple[bool, list[str]]]:
    def strike(sweep: Disturbed, _: random.Random) -> tuple[bool, list[str]]:
        send = os.killpg if group else os.kill
        with contextlib.suppress(ProcessLookupError):
            send(sweep.process.pid, number)
        return True, []

    return strike


def _signal_twice(sweep: Disturbed, random: random.Random) -> tuple[bool, list[str]]:
    for _ in range(2):
        with contextlib.suppress(ProcessLookupError):
            os.kill(sweep.process.pid, signal.SIGINT)
        time.sleep(random.uniform(0.02, 0.3))
    return True, []


def _stop(sweep: Disturbed, _: random.Random) -> tuple[bool, list[str]]:
    os.kill(sweep.process.pid, signal.SIGSTOP)
    time.sleep(STOPPED_SECONDS)
    os.kill(sweep.process.pid, signal.SIGCONT)
    return True, []


def _a_trial(sweep: Disturbed, random: random.Random) -> int | None:
    found = sweep.trials()
    return random.choice(found) if found else None


def _kill_trial(sweep: Disturbed, random: random.Random) -> tuple[bool, list[str]]:
    pid = _a_trial(sweep, random)
    if pid is None:
        return False, []
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return True, []


def _stop_trial(sweep: Disturbed, random: random.Random) -> tuple[bool, list[str]]:
    pid = _a_trial(sweep, random)
    if pid is None:
        return False, []
    for number in (signal.SIGSTOP, signal.SIGCONT):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        time.sleep(STOPPED_SECONDS)
    return True, []


def _kill_server(sweep: Disturbed, _: random.Random) -> tuple[bool, list[str]]:
    pid = sweep.server()
    if pid is None:
        return False, []
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return True, []


def _stop_server(sweep: Disturbed, _: random.Random) -> tuple[bool, list[str]]:
    pid = sweep.server()
    if pid is None:
        return False, []
    for number in (signal.SIGSTOP, signal.SIGCONT):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        time.sleep(STOPPED_SECONDS)
    return True, []


def _kill_node(sweep: Disturbed, _: random.Random) -> tuple[bool, list[str]]:
    sweep.kill_node()
    return True, []


def _kill_serve(sweep: Disturbed, _: random.Random) -> tuple[bool, list[str]]:
    sweep.kill_node("serve")
    return True, []


def _kill_database(sweep: Disturbed, random: random.Random) -> tuple[bool, list[str]]:
    assert sweep.database is not None
    sweep.database.kill()
    time.sleep(random.uniform(0.0, 1.5))
    sweep.database.start()
    return True, []


def _kill_connection(sweep: Disturbed, _: random.Random) -> tuple[bool, list[str]]:
    assert sweep.database is not None
    return sweep.database.kill_one_connection(), []


def _fill_disk(sweep: Disturbed, _: random.Random) -> tuple[bool, list[str]]:
    sweep.fill_disk()
    time.sleep(FULL_SECONDS)
    sweep.empty_disk()
    return True, []


def _jump(seconds: int) -> Callable[[Disturbed, random.Random], tuple[bool, list[str]]]:
    def strike(sweep: Disturbed, _: random.Random) -> tuple[bool, list[str]]:
        sweep.clock.jump(seconds)
        return True, []

    return strike


def _rival(sweep: Disturbed, _: random.Random) -> tuple[bool, list[str]]:
    """The same command beside the sweep has to be refused, unless the sweep has ended meanwhile."""
    if not sweep.trials():
        return False, []
    code, output = sweep.run_rival()
    if sweep.process.poll() is not None:
        return True, []
    refused = code == 2 and "is being run by process" in output
    return True, [] if refused else [f"the same command beside the sweep ended with {code}: {output.strip()[-200:]!r}"]


def _rival_after_a_jump(sweep: Disturbed, random: random.Random) -> tuple[bool, list[str]]:
    """A clock that was set does not make a living sweep look dead."""
    if not sweep.trials():
        return False, []
    sweep.clock.jump(random.choice((-HOUR, 60)))
    return _rival(sweep, random)


def _has_processes(subject: Subject) -> bool:
    """Whether its trials are processes of a server on this machine."""
    return subject.kind in ("processes", "trainer") or subject.is_command


def _on_server(subject: Subject) -> bool:
    return subject.store == "postgresql"


def _has_clock(subject: Subject) -> bool:
    """Whether its clock can be set. Not on Ray, whose nodes would keep theirs."""
    return library() is not None and subject.kind != "ray"


KINDS = (
    Fault("sweep: kill -9", "ends", _signal(signal.SIGKILL)),
    Fault("sweep: SIGTERM", "ends", _signal(signal.SIGTERM)),
    Fault("sweep: SIGINT", "ends", _signal(signal.SIGINT)),
    Fault("sweep: SIGINT twice", "ends", _signal_twice),
    Fault("process group: SIGTERM", "ends", _signal(signal.SIGTERM, group=True)),
    Fault("process group: SIGINT", "ends", _signal(signal.SIGINT, group=True)),
    Fault("process group: kill -9", "ends", _signal(signal.SIGKILL, group=True)),
    Fault("sweep: SIGSTOP, SIGCONT", "nothing", _stop),
    Fault("trial: kill -9", "nothing", _kill_trial, _has_processes),
    Fault("trial: SIGSTOP, SIGCONT", "nothing", _stop_trial, _has_processes),
    Fault("server of trials: kill -9", "nothing", _kill_server, _has_processes),
    Fault("server of trials: SIGSTOP, SIGCONT", "nothing", _stop_server, _has_processes),
    Fault("Ray node: kill -9", "nothing", _kill_node, lambda subject: subject.kind == "ray"),
    Fault("worker: kill -9", "nothing", _kill_node, lambda subject: subject.kind in ("folder", "served")),
    Fault("protein serve: kill -9, start", "nothing", _kill_serve, lambda subject: subject.kind == "served"),
    Fault("database: kill -9, start", "may end", _kill_database, _on_server),
    Fault("database: one connection killed", "may end", _kill_connection, _on_server),
    Fault("full disk for 2 s", "may end", _fill_disk, lambda subject: subject.on_small_disk),
    Fault("clock an hour forward", "nothing", _jump(HOUR), _has_clock),
    Fault("clock an hour back", "nothing", _jump(-HOUR), _has_clock),
    Fault("same command beside it", "nothing", _rival, _has_processes),
    Fault("same command, clock set", "nothing", _rival_after_a_jump, lambda s: _has_clock(s) and _has_processes(s)),
)

"""What agents may start and steer, and the one budget that holds for all of it (`protein mcp`).

A person gives the allowance on the command line; no call changes it. Every call that would change something is logged
in the store (`protein.types.AgentCall`), those that are refused, too. The log is the ledger of the budget. So the
budget outlives the server: one that is started again with the same allowance goes on with what is left.

Of the budget, a sweep of an agent takes all that it was given while a process runs it, and else what it has spent.
Agents steer only sweeps that agents have started: what a person runs they read.

A sweep is started as its own process, by the command line that a person would type. So it is the same plan and the same
start (`protein.api.plan`), and it goes on when the agent or the server ends.
"""

import collections
import contextlib
import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import tomli_w

from protein import envs_c
from protein.api import by_hand, command_sweep, stores
from protein.api.definition import check_name
from protein.errors import ProteinError, StoreMissing, TrialLost, UsageError
from protein.ports import Store
from protein.run.lease import current_owner, dead_owners, is_local, owner_of
from protein.run.template import parse
from protein.spelling import counted, nearest
from protein.sweep import ownership
from protein.sweep.ownership import Life, alive
from protein.types import AgentCall, Params, Request, SweepRecord
from protein.units import format_duration
from protein.validate import is_json

TAG = "agent"  # of the sweeps that agents have started
START_SECONDS = 100.0  # that a call waits at most for a process to begin, or to end; it usually takes three
MAX_ARGUMENTS = 64 << 10  # bytes of a call's arguments as JSON
_EVERY_SECONDS = 0.05  # between two looks at a process that starts
_LAST_CALLS = 20  # that an answer names


class Refused(UsageError):
    """What is not allowed, in words of ours, of the person who allows and of the agent itself."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a person lets agents do.

    Attributes:
        folder: absolute and without links: configs, spaces and the store lie in it, and programs run in it.
        store: the person's word for the store.
        starts: environments, config files and beginnings of command lines; empty: nothing is started or steered.
        max_cost_seconds: what all sweeps of agents in this store may cost together.
        max_trials: how many trials they may have together; None: any number.
        workers: how many of their trials may run at the same time.
    """

    folder: Path
    store: str | None
    starts: tuple[str, ...] = ()
    max_cost_seconds: float = 0.0
    max_trials: int | None = None
    workers: int = 1

    def check(self) -> None:
        """Raises `Refused` where something of it cannot be."""
        if not self.folder.is_dir():
            raise Refused(f"--folder {self.folder}: there is no such folder; give the one that agents work in")
        file = stores.file(stores.url(self.store))
        if file is not None:
            inside(self.folder, file, "the store")
            inside(self.folder, stores.artifacts_root(stores.url(self.store)), "the store's folder")
        for one in self.starts:
            if is_config(one):
                if not inside(self.folder, one, "--allow-start").is_file():
                    raise Refused(f"--allow-start {one}: there is no such file in {self.folder}; check its path")
            elif not _is_environment(one) and command_sweep.INTERPRETERS.fullmatch(command_sweep.short_name(one)):
                raise Refused(
                    f"--allow-start '{one}' lets agents run any code; name the script, too, as in 'python train.py'"
                )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A sweep that an agent asks for.

    Attributes:
        run: an environment or a config file that is allowed, or a command line that begins with an allowed one.
        name: of the sweep; where an agent has started it before, it goes on.
        max_cost_seconds: what the whole sweep may cost.
        space: of a command: what is searched, as in a space file, or the path of such a file; None: not given.
        values: of an environment or a config: numbers that are fixed, by dotted name.
        max_trials: of the whole sweep; None: all that are left of the budget.
        workers: trials at the same time.
        flags: further flags of `protein sweep` with their texts.
    """

    run: str
    name: str
    max_cost_seconds: float
    space: Mapping[str, Any] | str | None = None
    values: Mapping[str, int | float | bool] = dataclasses.field(default_factory=dict)
    max_trials: int | None = None
    workers: int = 1
    flags: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What sweeps of agents have taken of their budget; what a sweep that runs was given counts as a whole."""

    seconds: float = 0.0
    trials: int = 0
    workers: int = 0


def inside(folder: Path, given: str | Path, what: str) -> Path:
    """Returns a path with its links resolved. Raises `Refused` where it does not lie in the folder."""
    path = (folder / given).resolve()
    if not path.is_relative_to(folder):
        raise Refused(f"{what} '{given}' lies outside of {folder}, where protein mcp works; give a path inside of it")
    return path


def used(store: Store, calls: Sequence[AgentCall]) -> Used:
    """Returns what the sweeps that these calls have started take of the budget."""
    sweeps = {sweep.id: sweep for sweep in store.list_sweeps()}
    named = {sweep.spec.name: sweep for sweep in sweeps.values()}
    last: dict[int | str, AgentCall] = {}
    for call in filter(_grants, calls):
        begun = named.get(call.sweep)  # by a server that was killed before it could say so
        last[begun.id if begun is not None and _is_about(call, begun) else call.sweep_id or call.sweep] = call
    known, found = store.summaries(), list[Used]()
    for key, call in last.items():
        spent, total, sweep = 0.0, 0, sweeps.get(key) if isinstance(key, int) else None
        # Of a process of another machine only the sweep's end tells that it is gone.
        runs = _lives(call) and (sweep is None or not sweep.ended or is_local(call.owner))
        if sweep is not None:
            now, numbers = alive(store, sweep, known[sweep.id]), known[sweep.id]
            elsewhere = now.life is Life.UNKNOWN and bool(now.owner) and not is_local(now.owner)
            runs = runs or now.life is Life.RUNS or elsewhere
            spent, total = numbers.spent_seconds + numbers.confirming_seconds, numbers.total
        if runs or (sweep is None and call.sweep_id is not None):  # what a removed sweep has cost is not known any more
            spent, total = max(call.max_cost_seconds or 0.0, spent), max(call.max_trials or 0, total)
        found.append(Used(seconds=spent, trials=total, workers=call.workers if runs else 0))
    seconds, trials, workers = ([getattr(one, name) for one in found] for name in ("seconds", "trials", "workers"))
    return Used(seconds=math.fsum(seconds), trials=sum(trials), workers=sum(workers))


def line(calls: Sequence[AgentCall], sweep: SweepRecord) -> str | None:
    """Returns what a person should know of agents' calls about a sweep; None: there are none."""
    own = [call for call in calls if _is_about(call, sweep) and not call.outcome.startswith(_REFUSED)]
    if not own:
        return None
    tools = collections.Counter(call.tool for call in own)
    counts = ", ".join(f"{tool} {number}" for tool, number in tools.items())
    return f"'{sweep.spec.name}' was started by an agent ({own[0].client}) through protein mcp; its calls: {counts}"


_REFUSED = "refused: "


class Agents:
    """Carries out what agents ask for, as far as the allowance goes; `client` is what an agent's program is called."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance

    def budget(self) -> dict[str, Any]:
        """Returns the allowance, what is used of it, and the last calls."""
        allowance = self._allowance
        if not allowance.starts:
            return {"writes": False, "why": _READ_ONLY}
        calls, taken = list[AgentCall](), Used()
        with contextlib.suppress(StoreMissing), stores.opened(allowance.store) as store:
            calls = store.agent_calls()
            taken = used(store, calls)
        return {
            "writes": True,
            "may_start": list(allowance.starts),
            "max_cost_seconds": allowance.max_cost_seconds,
            "used_seconds": taken.seconds,
            "left_seconds": max(allowance.max_cost_seconds - taken.seconds, 0.0),
            "max_trials": allowance.max_trials,
            "used_trials": taken.trials,
            "workers": allowance.workers,
            "busy_workers": taken.workers,
            "calls": [
                {name: getattr(call, name) for name in ("number", "tool", "sweep", "client", "outcome")}
                for call in calls[-_LAST_CALLS:]
            ],
        }

    def start(self, asked: Start, client: str) -> dict[str, Any]:
        """Starts a sweep as a process of its own, or goes on with one, and waits until it is stored.

        Raises:
            Refused: it is not allowed, or beyond the budget.
            UsageError: `protein sweep` has refused it.
        """

        def allow(store: Store, calls: Sequence[AgentCall]) -> AgentCall:
            self._words(asked)
            _wait(lambda: not _concluding(store, calls))
            sweep = store.find_sweep(asked.name)
            if sweep is not None:
                _require_own(calls, sweep)
                ownership.refuse_beside(store, sweep)
            same = [one for one in calls if one.sweep == asked.name and one.sweep_id is None and sweep is None]
            same += [one for one in calls if sweep is not None and _is_about(one, sweep)]
            if any(_grants(one) and _lives(one) for one in same):
                raise Refused(f"sweep '{asked.name}' is being run; stop_sweep ends it")
            granted = self._grant(asked, used(store, [one for one in calls if one not in same]), call)
            return granted if sweep is None else dataclasses.replace(granted, sweep_id=sweep.id)

        arguments = {name: value for name, value in dataclasses.asdict(asked).items() if value not in (None, {})}
        call = self._call(client, "start_sweep", asked.name, arguments)
        with self._logged(call, allow, create=True) as (store, call):
            log = self._beside(f"{call.number}.log")
            try:
                log.parent.mkdir(parents=True, exist_ok=True)
                process = self._spawn(self._words(asked, call), log)
            except (OSError, ValueError, UsageError) as error:  # a text that no file can hold; a link that was changed
                store.end_agent_call(call.number, "", owner="")
                reason = getattr(error, "strerror", None) or error
                raise UsageError(f"the sweep cannot be started: {reason}") from error
            try:
                owner = owner_of(process.pid)
            except psutil.NoSuchProcess:
                owner = ""
            store.end_agent_call(call.number, "", owner=owner)
            sweep, code = _begun(store, asked.name, process, owner), process.poll()
            if code and sweep is None:
                store.end_agent_call(call.number, "", owner="")
                raise UsageError(f"the sweep did not start: {_error(log, code)}")
            store.end_agent_call(call.number, "started", sweep_id=None if sweep is None else sweep.id)
            if sweep is not None:
                store.tag_sweeps([sweep.id], add_tags=[TAG])
            left = max(self._allowance.max_cost_seconds - used(store, store.agent_calls()).seconds, 0.0)
        state = "starting" if sweep is None else "runs" if code is None else "ended"
        given = {"max_cost_seconds": call.max_cost_seconds, "max_trials": call.max_trials}
        return {"sweep": asked.name, "state": state, "process": process.pid, **given, "left_seconds": left}

    def try_configs(self, name: str, points: Sequence[Params], client: str) -> dict[str, Any]:
        """Queues configs in a sweep that an agent has started. Raises as `protein.api.by_hand.queue` does."""

        def allow(store: Store, calls: Sequence[AgentCall]) -> AgentCall:
            sweep = stores.find(store, name)
            total, limit = store.summaries([sweep.id])[sweep.id].total, _require_own(calls, sweep).max_trials
            if limit is not None and total + len(points) > limit:
                raise Refused(
                    f"{counted(len(points), 'config')}, and {counted(max(limit - total, 0), 'trial')} of the {limit} of"
                    f" sweep '{name}' are left; try fewer, or give it more by start_sweep"
                )
            return dataclasses.replace(call, sweep_id=sweep.id)

        call = self._call(client, "try_configs", name, {"configs": list(points)})
        with self._logged(call, allow) as (store, call):
            sweep = stores.find(store, name)
            numbers = by_hand.queue(store, sweep, points, origin=f"by hand, by an agent ({client})")
            runs = _lives(_require_own(store.agent_calls(), sweep))  # or it is about to
            said = by_hand.queued_note(sweep, numbers, runs=runs or alive(store, sweep).life is Life.RUNS)
            store.end_agent_call(call.number, said)
        return {"trials": numbers, "note": said}

    def request(self, name: str, wanted: Request, tool: str, client: str) -> dict[str, Any]:
        """Asks a sweep that an agent has started to pause, to go on or to stop, and returns what is said to that."""

        def allow(store: Store, calls: Sequence[AgentCall]) -> AgentCall:
            sweep = stores.find(store, name)
            _require_own(calls, sweep)
            return dataclasses.replace(call, sweep_id=sweep.id)

        call = self._call(client, tool, name, {})
        with self._logged(call, allow) as (store, call):
            said = ownership.ask(store, stores.find(store, name), wanted)
            store.end_agent_call(call.number, said)
        return {"sweep": name, "note": said}

    @contextlib.contextmanager
    def _logged(
        self, call: AgentCall, allow: Callable[[Store, Sequence[AgentCall]], AgentCall], *, create: bool = False
    ) -> Iterator[tuple[Store, AgentCall]]:
        """Opens the store and logs a call before it is carried out; what it is refused for is logged, too.

        It is compared with all calls before it: where another was made in between, it is compared again.
        """
        with stores.opened(self._allowance.store, create=create) as store:
            while True:
                calls, refused = store.agent_calls(), None
                try:
                    now = allow(store, calls)
                except ProteinError as error:
                    now, refused = call, error
                now = dataclasses.replace(now, number=len(calls), made_at=datetime.now(UTC))
                with contextlib.suppress(TrialLost):
                    store.add_agent_call(now)
                    break
            try:
                if refused is not None:
                    raise refused
                yield store, now
            except ProteinError as error:
                store.end_agent_call(now.number, f"{_REFUSED}{error}")  # a process that it has started keeps its budget
                raise

    def _call(self, client: str, tool: str, sweep: str, arguments: Mapping[str, Any]) -> AgentCall:
        if not self._allowance.starts:
            raise Refused(_READ_ONLY)
        with contextlib.suppress(ValueError):  # half a character
            if is_json(arguments) and len(json.dumps([sweep, arguments], ensure_ascii=False).encode()) <= MAX_ARGUMENTS:
                now, owner = datetime.now(UTC), current_owner()
                return AgentCall(made_at=now, client=client, tool=tool, arguments=arguments, sweep=sweep, owner=owner)
        raise Refused(f"the arguments of {tool} are no JSON, or longer than {MAX_ARGUMENTS >> 10} KiB; give less")

    def _grant(self, asked: Start, others: Used, call: AgentCall) -> AgentCall:
        """Returns the call with what it takes of the budget. Raises `Refused` where less is left."""
        allowed, seconds = self._allowance, asked.max_cost_seconds
        left = allowed.max_cost_seconds - others.seconds
        if seconds > left:
            raise Refused(
                f"max_cost {format_duration(seconds)} is above the {format_duration(max(left, 0.0))} that are left of"
                f" the budget of {format_duration(allowed.max_cost_seconds)}; give less, or ask a person for a larger"
                " --max-cost of protein mcp"
            )
        trials = asked.max_trials
        if allowed.max_trials is not None:
            left_trials = allowed.max_trials - others.trials
            trials = left_trials if trials is None else trials
            if trials > left_trials or left_trials < 1:
                raise Refused(
                    f"max_trials {trials} is above the {max(left_trials, 0)} that are left of the budget of"
                    f" {allowed.max_trials} trials; give fewer, or ask a person for more --max-trials of protein mcp"
                )
        if asked.workers + others.workers > allowed.workers:
            raise Refused(
                f"workers {asked.workers} is above the {max(allowed.workers - others.workers, 0)} that are free of"
                f" {allowed.workers}; wait for another sweep, or stop it, or ask a person for more --workers of protein"
                " mcp"
            )
        return dataclasses.replace(call, max_cost_seconds=seconds, max_trials=trials, workers=asked.workers)

    def _beside(self, name: str) -> Path:
        """Returns a file of a call, beside the folders of sweeps; no sweep is called so."""
        return stores.artifacts_root(stores.url(self._allowance.store)) / f".agent-{name}"

    def _words(self, asked: Start, call: AgentCall | None = None) -> list[str]:
        """Returns the words of the command that starts a sweep; with the call that was granted, its file is made.

        Each flag and its text are one word, so that no text is taken for a flag.
        """
        check_name(asked.name, "name")
        words = [f"--name={asked.name}", f"--max-cost={asked.max_cost_seconds:.6f}s"]
        words += [] if call is None or call.max_trials is None else [f"--max-trials={call.max_trials}"]
        words += [f"--workers={asked.workers}", *(f"--{flag}={text}" for flag, text in asked.flags.items())]
        kind = self._kind(asked.run)
        if kind == "command":
            if asked.values:
                raise Refused("values are for an environment or a config; fixed values of a command stand in its space")
            if asked.space is None:
                raise Refused('a command needs a space, as in {"lr": {"min": 1e-4, "max": 0.1, "scale": "log"}}')
            return ["--command=" + asked.run, f"--space={self._space(asked.space, call)}", "--clock-counts", *words]
        if asked.space is not None or asked.flags.keys() & _OF_COMMANDS:
            raise Refused(f"space, direction and score_regex are for a command; {asked.run} has its own")
        for name, value in asked.values.items():
            section, _, key = name.partition(".")
            if not (section.isidentifier() and key.replace(".", "_").isidentifier()):
                raise Refused(f"value '{name:.80}' is no dotted name of a number, as in train.learning_rate")
            words.append(f"--{name}={value!r}")
        return [f"--{kind}={asked.run}", *words]

    def _kind(self, run: str) -> str:
        """Returns what is to be run: "env", "config" or "command". Raises `Refused` where it is not allowed."""
        allowed = self._allowance
        for one in allowed.starts:
            if is_config(one):
                if is_config(run) and inside(allowed.folder, run, "config") == inside(allowed.folder, one, "config"):
                    return "config"
            elif _is_environment(one):
                if run == one:
                    return "env"
            else:
                first, asked = parse(one, "--allow-start"), parse(run, "command")
                if asked.texts[: len(first.texts)] == first.texts:
                    if more := set(asked.variables) - set(first.variables):
                        raise Refused(f"the placeholder {{env:{min(more)}}} is not for agents; leave it out")
                    return "command"
        raise Refused(f"'{run:.200}' may not be started here{nearest(run, allowed.starts)}")

    def _space(self, space: Mapping[str, Any] | str, call: AgentCall | None) -> Path:
        """Returns the path of a space file; one that was given as a value is written beside the sweeps."""
        if isinstance(space, str):
            path = inside(self._allowance.folder, space, "space")
            if path.suffix != ".toml":
                raise Refused(f"space '{space:.200}' is no .toml file; give the ranges themselves, or such a file")
            return path
        try:
            text = tomli_w.dumps(space if isinstance(space.get("space"), Mapping) else {"space": space})
        except (TypeError, ValueError) as error:
            raise UsageError(f"the space cannot be written as TOML ({error}); TOML has no null") from error
        path = self._beside(f"{0 if call is None else call.number}.toml")
        if call is not None:
            path.write_text(text, encoding="utf-8")
        return path

    def _spawn(self, words: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
        with log.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "protein", "sweep", *words],  # -P: no module of the folder stands for ours
                cwd=self._allowance.folder,
                env={
                    **os.environ,
                    stores.VARIABLE: stores.absolute_url(self._allowance.store),
                },  # it may hold a password
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # it outlives the server, and the signals that a client sends to that
            )


_READ_ONLY = (
    "this server only reads: a person lets agents start sweeps by protein mcp --allow-start WHAT --max-cost DURATION"
)
_OF_COMMANDS = {"direction", "score-regex"}


def is_config(text: str) -> bool:
    """Whether this is the path of a config file, and no command line that ends with one."""
    program, _, more = text.partition(" ")
    return text.endswith(".toml") and not (more and shutil.which(program))


def _is_environment(text: str) -> bool:
    return text in envs_c.names() or text.startswith(("text/", "gym:", "python:"))


def _grants(call: AgentCall) -> bool:
    """Whether a call has given a sweep its budget. One that began no process has not: a person may use that name."""
    began = call.owner != "" or (call.sweep_id is not None and not call.outcome.startswith(_REFUSED))
    return call.max_cost_seconds is not None and began


def _lives(call: AgentCall) -> bool:
    """Whether a process runs what a call has started, or is about to, as far as that can be seen.

    A server may have been killed before it could say which process it has started.
    """
    age = (datetime.now(UTC) - call.made_at).total_seconds()
    return not dead_owners([call.owner]) or (not call.outcome and age < START_SECONDS)


def _is_about(call: AgentCall, sweep: SweepRecord) -> bool:
    """Whether a call is about a sweep: it knew the sweep's id, or has just begun to start one of this name."""
    if call.sweep_id is not None:
        return call.sweep_id == sweep.id
    since = (sweep.created_at - call.made_at).total_seconds()
    return call.sweep == sweep.spec.name and 0.0 <= since < START_SECONDS


def _require_own(calls: Sequence[AgentCall], sweep: SweepRecord) -> AgentCall:
    """Returns the last call that has started a sweep. Raises `Refused` where no agent has."""
    own = [call for call in calls if _grants(call) and _is_about(call, sweep)]
    if not own:
        raise Refused(f"sweep '{sweep.spec.name}' was not started by an agent: agents only read it")
    return own[-1]


def _concluding(store: Store, calls: Sequence[AgentCall]) -> bool:
    """Whether a process of a sweep that has ended lives on for a moment, to tell what was found."""
    ended = {sweep.id for sweep in store.list_sweeps() if sweep.ended}
    return any(call.sweep_id in ended and not dead_owners([call.owner]) for call in calls if _grants(call))


def _begun(store: Store, name: str, process: "subprocess.Popen[bytes]", owner: str) -> SweepRecord | None:
    """Waits until a process has run a trial of a sweep, or has ended, and returns the sweep; None: it has run none.

    A person may begin a sweep of this name meanwhile, or have one.
    """

    def found() -> SweepRecord | None:
        sweep = store.find_sweep(name)
        trials = [] if sweep is None else store.trials(sweep.id, curves=False)
        return sweep if owner and any(one.owner == owner for one in trials) else None

    _wait(lambda: process.poll() is not None or found() is not None)
    return found()


def _wait(is_over: Callable[[], bool]) -> None:
    end = time.monotonic() + START_SECONDS
    while not is_over() and time.monotonic() < end:
        time.sleep(_EVERY_SECONDS)


def _error(log: Path, code: int) -> str:
    """Returns the error with which `protein sweep` has ended. Lines of trials, which are others' texts, are none."""
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace")[-4000:].splitlines()
        if errors := [one.removeprefix("error: ") for one in lines if one.startswith("error: ")]:
            return errors[-1]
    return f"its process ended with code {code}; what it printed is in {log.name} beside the store"

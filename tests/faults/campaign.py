"""Runs sweeps under faults, checks what must hold after each one, and counts.

    python scripts/faults.py --kills 200 --seed 0

A sweep is disturbed some times, then left alone until it ends. After each fault: what was finished is unchanged, and
where the sweep's process was to end, it has, no process of it is left, and nothing printed a traceback. At the end all
the rest of `faults.checker` holds, too, and for one worker the suggestions are those of an undisturbed sweep.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import functools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults import checker, replay, scores, sweeps
from tests.faults.checker import Snapshot
from tests.faults.disturbed import Disturbed, Subject
from tests.faults.evidence import Evidence
from tests.faults.kinds import KINDS, Fault

KILLS_PER_SWEEP = 6
TRIES = 150  # to do a fault, such as one to a trial, for which a trial has to run
PATIENCE_SECONDS = 180.0  # for one stretch of a sweep that nothing disturbs
RAY_PATIENCE_SECONDS = 600.0  # on a busy machine each new process on a node of Ray takes half a minute
END_SECONDS = 30.0  # for a sweep that is told to end; a trial may take 10 s to write its checkpoint
GONE_SECONDS = 30.0  # for the last processes after it: one may be importing torch, on a busy machine
_INTERRUPTED_CODES = (130, 143)


@dataclasses.dataclass(slots=True)
class Struck:
    """One fault that was done, and what was wrong after it."""

    fault: str
    subject: str
    wrong: list[str]


@dataclasses.dataclass(slots=True)
class Report:
    """What came of one disturbed sweep."""

    subject: Subject
    faults: list[Struck]
    at_end: list[str]
    trials: int = 0
    finished: int = 0
    cost_seconds: float = 0.0
    cost_error_seconds: float = 0.0
    output: str = ""

    @property
    def wrong(self) -> list[str]:
        return [f"{one.fault}: {line}" for one in self.faults for line in one.wrong] + self.at_end


def disturb(subject: Subject, faults: Sequence[Fault], seed: int) -> Report:
    """Runs one sweep to its end under these faults, each at a random moment."""
    chance = random.Random(seed)
    report = Report(subject, [], [])
    sweep = Disturbed(subject)
    try:
        _disturb(sweep, faults, chance, report)
        if report.wrong:
            report.output = "\n".join(
                f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
                for path in sweep.outputs
                if path.stat().st_size
            )
    finally:
        sweep.close()
    return report


def _disturb(sweep: Disturbed, faults: Sequence[Fault], chance: random.Random, report: Report) -> None:
    before, runs, kills = Snapshot([], {}), 0, 0
    seen_tracebacks: set[str] = set()
    may_end = False  # for what the last fault has done to the store
    sweep.start()
    for fault in faults:
        # A third of them strike while it starts: there most has gone wrong.
        delay = chance.uniform(0.0, 1.5) if chance.random() < 0.33 else chance.uniform(1.0, 6.0)
        struck = False
        for _ in range(TRIES):
            if _ended(sweep, delay):
                break
            struck, wrong = fault.strike(sweep, chance)
            if struck:
                break
            delay = chance.uniform(0.0, 0.1)
        if not struck:
            if sweep.process.poll() is None:
                continue
            if sweep.process.returncode == 0:
                break
            code, words = sweep.process.returncode, sweep.last_line()
            if not (may_end and _is_refused(sweep)):
                report.at_end.append(f"the sweep ended by itself with {code}: {words!r:.200}")
            sweep.start()
            continue
        kills += 1
        may_end = fault.effect == "may end"
        if fault.effect == "ends" and not _ended(sweep, END_SECONDS):
            wrong.append(f"the sweep still ran {END_SECONDS:.0f} s after it")
            sweep.process.kill()
            sweep.process.wait()
        elif fault.effect != "ends" and _ended(sweep, 2.0 if may_end else 0.5):
            code, words = sweep.process.returncode, sweep.last_line()
            if code != 0 and not (may_end and _is_refused(sweep)):
                wrong.append(f"the sweep ended with {code}: {words!r:.200}")
        ended = sweep.process.poll() is not None
        if ended:
            wrong += sweep.wait_until_gone(GONE_SECONDS)
        evidence = Evidence.read(sweep.evidence_file)
        wrong += checker.run_again(before, runs, evidence)
        runs = len(evidence.attempts)  # before the snapshot: a trial that begins between the two is not in it
        now = Snapshot.read(sweep.url)
        wrong += checker.changed(before, now)
        fresh = [line for line in checker.tracebacks(sweep.outputs) if line not in seen_tracebacks]
        seen_tracebacks |= set(fresh)
        before = now
        report.faults.append(Struck(fault.name, sweep.subject.name, wrong + fresh))
        if ended:
            if sweep.process.returncode == 0:
                break
            sweep.start()
    _finish(sweep, report)
    now, evidence = Snapshot.read(sweep.url), Evidence.read(sweep.evidence_file)
    wrong = sweep.wait_until_gone(GONE_SECONDS) + checker.changed(before, now) + checker.misnumbered(now)
    wrong += [f"trial {row['number']} has not ended" for row in now.trials if row["id"] not in now.finished]
    wrong += checker.wrong_ends(now)
    wrong += [line for line in checker.tracebacks(sweep.outputs) if line not in seen_tracebacks]
    if sweep.subject.is_command:
        wrong += checker.run_again(before, runs, evidence) + checker.owned_twice(evidence)
        wrong += scores.wrong(sweep.subject.kind, now.trials, sweep.folder)
    if sweep.subject.tells_costs:
        wrong += checker.run_again(before, runs, evidence) + checker.owned_twice(evidence)
        wrong += checker.wrong_cost(now, evidence, kills)
        if sweep.subject.workers == 1 and not wrong:
            settings = functools.partial(sweeps.settings, workers=1, trials=sweep.subject.trials)
            wrong += replay.differing(sweep.url, sweeps.NAME, settings)
        report.cost_error_seconds = sum(map(abs, checker.cost_errors(now, evidence).values()))
    report.at_end += wrong
    report.trials, report.finished = len(now.trials), len(now.finished)
    report.cost_seconds = sum(row["cost_seconds"] for row in now.trials)


def _finish(sweep: Disturbed, report: Report) -> None:
    """Lets the sweep run to its end, which the same command may have to be given for once or twice."""
    patience = RAY_PATIENCE_SECONDS if sweep.subject.kind == "ray" else PATIENCE_SECONDS
    for _ in range(3):
        if not _ended(sweep, patience):
            report.at_end.append(f"the sweep did not reach its end in {patience:.0f} s")
            return
        if sweep.process.returncode == 0:
            return
        sweep.wait_until_gone(GONE_SECONDS)
        sweep.start()
    report.at_end.append(f"the same command ended three times, last with: {sweep.last_line()!r:.200}")


def _is_refused(sweep: Disturbed) -> bool:
    """Whether the sweep has ended with one line about its store or files, as it may where no trial has begun yet."""
    return sweep.process.returncode == 2 and sweep.last_line().startswith(("error: store ", "error: artifacts cannot"))


def _ended(sweep: Disturbed, seconds: float) -> bool:
    try:
        sweep.process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def plan(kills: int, seed: int, subjects: Sequence[Subject]) -> list[tuple[Subject, list[Fault], int]]:
    """Returns sweeps with the faults to do to each; of each kind about as many, `kills` in all."""
    chance = random.Random(seed)
    planned: list[tuple[Subject, list[Fault], int]] = []
    done: collections.Counter[str] = collections.Counter()
    while sum(len(faults) for _, faults, _ in planned) < kills:
        subject = dataclasses.replace(subjects[len(planned) % len(subjects)], seed=chance.randrange(1 << 16))
        fitting = [fault for fault in KINDS if fault.fits(subject)]
        chance.shuffle(fitting)
        fitting.sort(key=lambda fault: done[fault.name])  # the rarest so far first
        chosen = fitting[:KILLS_PER_SWEEP]
        chance.shuffle(chosen)
        done.update(fault.name for fault in chosen)
        planned.append((subject, chosen, chance.randrange(1 << 30)))
    return planned


def subjects(*, small_disk: bool, ray: bool = False, folder: bool = False, commands: bool = False) -> list[Subject]:
    """Returns the sweeps that are disturbed in turn; those on Ray alone if `ray`: a cluster takes half a minute.

    With `folder`, those whose workers join through a folder, or one of two by the URL of its server.

    With `commands`, those of commands that write their scores to files.
    """
    if commands:
        return [Subject(kind, "sqlite", 2, 14, 0) for kind in scores.FLAGS]
    if folder:
        return [
            Subject("folder", "sqlite", 2, 20, 0, on_small_disk=small_disk),
            Subject("folder", "postgresql", 2, 20, 0),
            Subject("served", "sqlite", 2, 20, 0, on_small_disk=small_disk),
            Subject("served", "postgresql", 2, 20, 0),
        ]
    if ray:
        return [Subject("ray", "sqlite", 2, 20, 0), Subject("ray", "postgresql", 2, 20, 0)]
    return [
        Subject("processes", "sqlite", 1, 16, 0),
        Subject("processes", "postgresql", 2, 24, 0),
        Subject("function", "sqlite", 1, 16, 0),
        Subject("processes", "sqlite", 3, 30, 0, on_small_disk=small_disk),
        Subject("processes", "postgresql", 1, 16, 0),
        Subject("trainer", "sqlite", 2, 10, 0, on_small_disk=small_disk),
        Subject("function", "postgresql", 1, 16, 0),
        Subject("trainer", "postgresql", 1, 8, 0),
    ]


def can_mount() -> bool:
    """Whether this process may mount a small file system, as for a full disk."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return False
        subprocess.run(["umount", folder], check=True)
    return True


def run(
    kills: int, seed: int, jobs: int, chosen: Sequence[Subject], only: str = "", keep: Path | None = None
) -> list[Report]:
    """Runs the campaign and prints a line for each sweep.

    Args:
        kills: how many faults, about.
        seed: of the plan and of all moments.
        jobs: sweeps at the same time.
        chosen: what is swept, in turn.
        only: only faults whose name contains this.
        keep: a file for the outputs of sweeps after which something was wrong.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell ignores it for what it runs with `&`
        signal.signal(signal.SIGINT, signal.default_int_handler)
    planned = plan(2 * kills, seed, chosen)  # a sweep that ends before its last fault leaves some to others
    if only:
        planned = [(s, [f for f in KINDS if only in f.name and f.fits(s)] * KILLS_PER_SWEEP, n) for s, _, n in planned]
        planned = [(s, f, n) for s, f, n in planned if f]
    reports: list[Report] = []
    lock, began = threading.Lock(), time.monotonic()

    def one(job: tuple[Subject, list[Fault], int]) -> None:
        with lock:
            if sum(len(report.faults) for report in reports) >= kills:
                return
        report = disturb(*job)
        with lock:
            reports.append(report)
            done = sum(len(r.faults) for r in reports)
            print(
                f"{time.monotonic() - began:6.0f} s  {done:4} faults  {report.subject.name:<32}"
                f"{report.trials:4} trials  {len(report.wrong)} wrong",
                flush=True,
            )
            for line in report.wrong:
                print(f"          {line}", flush=True)
            if keep is not None and report.wrong:
                with keep.open("a") as file:
                    file.write(f"=== {report.subject}\n{report.wrong}\n{report.output}\n")

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, planned))
    return reports


def table(reports: Sequence[Report]) -> str:
    """Returns a line for each kind of fault: how often it was done on each store, and how often something was wrong."""
    lines = ["| fault | SQLite | PostgreSQL | wrong after it |", "|---|---|---|---|"]
    struck = [(one, report.subject.store) for report in reports for one in report.faults]
    for kind in KINDS:
        mine = [(one, store) for one, store in struck if one.fault == kind.name]
        counts = collections.Counter(store for _, store in mine)
        wrong = sum(bool(one.wrong) for one, _ in mine)
        if mine:
            lines.append(f"| {kind.name} | {counts['sqlite']} | {counts['postgresql']} | {wrong} |")
    counts = collections.Counter(store for _, store in struck)
    wrong = sum(bool(one.wrong) for one, _ in struck)
    lines.append(f"| all | {counts['sqlite']} | {counts['postgresql']} | {wrong} |")
    return "\n".join(lines)


def summary(reports: Sequence[Report]) -> dict[str, Any]:
    """Returns what a campaign came to, in numbers."""
    measured = [report for report in reports if report.subject.tells_costs]
    kills = sum(len(report.faults) for report in measured)
    error = sum(report.cost_error_seconds for report in measured)
    return {
        "sweeps": len(reports),
        "faults": sum(len(report.faults) for report in reports),
        "trials": sum(report.trials for report in reports),
        "finished_trials": sum(report.finished for report in reports),
        "violations": sum(len(report.wrong) for report in reports),
        "cost_error_seconds_per_fault": round(error / max(kills, 1), 4),
        "largest_cost_error_seconds": round(max((r.cost_error_seconds for r in measured), default=0.0), 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="how many faults, about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="sweeps at the same time")
    parser.add_argument("--only", default="", help="only faults whose name contains this")
    parser.add_argument("--subject", default="", help="only sweeps whose name contains this")
    parser.add_argument("--folder", action="store_true", help="sweeps whose workers join through a folder, instead")
    parser.add_argument("--ray", action="store_true", help="sweeps on a Ray cluster of two nodes, instead")
    parser.add_argument("--commands", action="store_true", help="sweeps of commands that write files, instead")
    parser.add_argument("--name", default="faults", help="of the result")
    parser.add_argument("--no-result", action="store_true", help="only print")
    parser.add_argument("--keep", type=Path, help="a file for the outputs of sweeps after which something was wrong")
    arguments = parser.parse_args()
    found = subjects(small_disk=can_mount(), ray=arguments.ray, folder=arguments.folder, commands=arguments.commands)
    chosen = [one for one in found if arguments.subject in one.name]
    reports = run(arguments.kills, arguments.seed, arguments.jobs, chosen, arguments.only, arguments.keep)
    print(table(reports))
    total = summary(reports)
    print(json.dumps(total))
    if not arguments.no_result:
        import machine

        rows = [
            {"subject": r.subject.name, "trials": r.trials, "faults": [dataclasses.asdict(f) for f in r.faults]}
            | {"at_end": r.at_end, "cost_error_seconds": round(r.cost_error_seconds, 4)}
            for r in reports
        ]
        print(f"written: {machine.write_result(arguments.name, rows, seed=arguments.seed, **total)}")
    return 1 if total["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())

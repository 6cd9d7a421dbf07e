"""One unattended night: a sweep of our trainer on two workers, killed now and then, and a report of it.

    python scripts/night.py --hours 6

The same command is started again after each fault, as a service manager would. What happens is kept in the folder of
the night, so that the report can be made at any time, also when this program was ended: `--report`. Run again in the
same folder, it goes on with the same sweep.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import machine
import psutil

from faults import checker
from faults.campaign import END_SECONDS, GONE_SECONDS
from faults.checker import Row, Snapshot
from faults.disturbed import Disturbed, Subject
from faults.kinds import KINDS

ROOT = Path(__file__).resolve().parents[2]
NAMES = (  # of the faults, in turn
    "sweep: kill -9",
    "trial: kill -9",
    "process group: SIGTERM",
    "server of trials: kill -9",
    "sweep: SIGSTOP, SIGCONT",
    "sweep: SIGTERM",
    "process group: kill -9",
    "trial: SIGSTOP, SIGCONT",
)
QUIET_SHARE = 0.06  # of the time, at the start and at the end, without faults
LOOK_SECONDS = 1.0
PULSE_SECONDS = 600.0  # between two notes of how far the sweep is and what it takes of the machine


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    env: str
    hours: float
    workers: int
    max_trial_cost: str
    faults: int
    seed: int


class Night(Disturbed):
    """The sweep of the night, in a folder that stays."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        super().__init__(Subject("trainer", "sqlite", settings.workers, 0, settings.seed), root=folder)

    @property
    def command(self) -> list[str]:
        settings = self._settings
        budget = f"{max(round(60 * settings.hours * settings.workers), 1)}m"
        words = f"sweep --env {settings.env} --name night --max-cost {budget} --workers {settings.workers}"
        limits = f"--seed {settings.seed} --max-trial-cost {settings.max_trial_cost} --store {self.url}"
        return [sys.executable, "-m", "protein", *words.split(), *limits.split()]


class Diary:
    """What has happened, a line of JSON each, in the folder of the night."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, what: str, **facts: Any) -> None:
        line = {"what": what, "at": time.time(), **facts}
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{datetime.datetime.now(datetime.UTC):%H:%M:%S} {what} {facts or ''}", flush=True)

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.read_text().splitlines()] if self._file.exists() else []


def run(settings: Settings, folder: Path) -> None:
    """Runs the sweep until the time is over."""
    folder.mkdir(parents=True, exist_ok=True)
    night, diary, chance = Night(settings, folder), Diary(folder / "night.jsonl"), random.Random(settings.seed)
    began, length = time.monotonic(), settings.hours * 3600
    quiet = QUIET_SHARE * length
    moments = sorted(began + chance.uniform(quiet, length - quiet) for _ in range(settings.faults))
    by_name = {kind.name: kind for kind in KINDS}
    diary.write("begin", **dataclasses.asdict(settings), **machine.describe(), command=night.command[2:])
    before = Snapshot.read(night.url) if (folder / "sweep" / "protein.db").exists() else Snapshot([], {})
    done, pulse_at = 0, began + min(PULSE_SECONDS, length / 8)
    try:
        night.start()
        while time.monotonic() < began + length:
            ended = night.process.poll() is not None
            if ended and night.process.returncode == 0:
                diary.write("the sweep has reached its end", says=night.last_line())
                break
            if ended:
                diary.write("ended by itself", code=night.process.returncode, says=night.last_line())
                time.sleep(GONE_SECONDS)
                night.start()
            if done < len(moments) and time.monotonic() >= moments[done]:
                before = _strike(night, by_name[NAMES[done % len(NAMES)]].name, chance, diary, before)
                done += 1
            if time.monotonic() >= pulse_at:
                diary.write("pulse", **_pulse(night, folder))
                pulse_at += PULSE_SECONDS
            time.sleep(LOOK_SECONDS)
        diary.write("pulse", **_pulse(night, folder))
        if night.process.poll() is None:
            night.process.send_signal(signal.SIGTERM)
            night.process.wait(10 * END_SECONDS)
        wrong = night.wait_until_gone(GONE_SECONDS)
        now = Snapshot.read(night.url)
        diary.write("end", seconds=time.monotonic() - began, wrong=wrong + checker.changed(before, now))
    except Exception as error:  # the report says so, and holds what was seen until then
        diary.write("end", seconds=time.monotonic() - began, wrong=[f"the night's own program failed: {error!r:.300}"])
        traceback.print_exc()
    finally:
        night.close()


def _pulse(night: Night, folder: Path) -> dict[str, Any]:
    """Returns how far the sweep is, the memory of its process, how busy the machine is, and how much is on the disk."""
    now = Snapshot.read(night.url) if (folder / "sweep" / "protein.db").exists() else Snapshot([], {})
    memory = 0
    with contextlib.suppress(psutil.NoSuchProcess):  # it may just have been killed
        memory = psutil.Process(night.process.pid).memory_info().rss
    return {
        "finished": len(now.finished),
        "best": max((row["score"] for row in now.trials if row["state"] == "complete"), default=None),
        "spent_seconds": round(sum(map(_spent, now.trials)), 1),
        "memory_mib": round(memory / 2**20),
        "load": round(os.getloadavg()[0], 2),
        "disk_mib": round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20),
    }


def _strike(night: Night, name: str, chance: random.Random, diary: Diary, before: Snapshot) -> Snapshot:
    """Does one fault to the sweep, starts it again if it has ended, and returns the store as it is then."""
    fault = next(kind for kind in KINDS if kind.name == name)
    at_fault = Snapshot.read(night.url)
    wrong = checker.changed(before, at_fault)
    struck, more = fault.strike(night, chance)
    wrong += more
    if fault.effect == "ends":
        try:
            night.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            wrong.append(f"the sweep still ran {END_SECONDS:.0f} s after it")
            night.process.kill()
            night.process.wait()
        wrong += night.wait_until_gone(GONE_SECONDS)
        night.start()
        time.sleep(3 * LOOK_SECONDS)
    now = Snapshot.read(night.url)
    wrong += checker.changed(at_fault, now) + cheaper(at_fault, now)
    ran = [row["number"] for row in at_fault.trials if row["id"] not in at_fault.finished]
    # What is lost shows when the trials are taken up again, so it is read at the next fault, and at the end.
    diary.write("fault", name=name, struck=struck, ran=ran, lost_before_seconds=_lost(at_fault), wrong=wrong)
    return now


def cheaper(before: Snapshot, now: Snapshot) -> list[str]:
    """What a trial had cost when a fault struck it counts afterwards, too."""
    after = {row["id"]: _spent(row) for row in now.trials}
    return [
        f"trial {row['number']} costs {after.get(row['id'], 0.0):.2f} s after the fault, and {_spent(row):.2f} s before"
        for row in before.trials
        if after.get(row["id"], 0.0) < _spent(row) - 1e-6
    ]


def _spent(row: Row) -> float:
    return float(row["cost_seconds"] + row["lost_seconds"])


def _lost(now: Snapshot) -> float:
    return round(float(sum(row["lost_seconds"] for row in now.trials)), 3)


def report(folder: Path) -> str:
    """Returns the page about a night."""
    diary = Diary(folder / "night.jsonl").read()
    begins = [line for line in diary if line["what"] == "begin"]
    first, last = begins[0], diary[-1]
    now = Snapshot.read(f"sqlite:///{folder / 'sweep' / 'protein.db'}")
    outputs = [*sorted(folder.glob("*.out")), *sorted((folder / "sweep").rglob("trial.log"))]
    faults = [line for line in diary if line["what"] == "fault"]
    seconds = sum(_stretches(diary))
    checks = _checks(diary, now, outputs, seconds * first["workers"])
    scored = [row for row in now.trials if row["state"] == "complete"]
    best = max(scored, key=lambda row: row["score"], default=None)
    ends = Counter(row["ended_as"] or row["state"] for row in now.trials)
    cost, lost = sum(row["cost_seconds"] for row in now.trials), sum(row["lost_seconds"] for row in now.trials)
    kills = [line for line in faults if line["struck"]]
    lost_at = [line["lost_before_seconds"] for line in kills[1:]] + [_lost(now)]
    lines = [
        "# An unattended night",
        "",
        f"A sweep of {first['env']} on {_workers(first)} ran for {seconds / 3600:.2f} hours, and nobody looked"
        f" after it. It was disturbed {len(kills)} times at random moments, and started again by the same command. This"
        " page is written by `scripts/night.py`, and [what is promised](faults.md) is on another one.",
        "",
        f"- Machine: {first['machine']}, Python {first['python']}, commit {first['commit']}",
        f"- Began {_clock(first['at'])} UTC, ended {_clock(last['at'])} UTC",
        f"- Command: `protein {' '.join(_plain(first['command']))}`",
        "",
        "## What it came to",
        "",
        "| | |",
        "|---|---|",
        f"| trials | {len(now.trials)} |",
        *(f"| of them {end.replace('_', ' ')} | {count} |" for end, count in ends.most_common()),
        f"| cost of the trials | {cost / 3600:.2f} h |",
        f"| trained again because it was lost | {lost:.1f} s |",
        f"| what {_workers(first)} can train in that time | {seconds * first['workers'] / 3600:.2f} h |",
        f"| spent of it | {100 * (cost + lost) / max(seconds * first['workers'], 1e-9):.0f} % |",
        f"| best measured score | {'none' if best is None else format(best['score'], '.4g')} |",
        "",
        "## The front",
        "",
        "| trial | cost | score |",
        "|---|---|---|",
        *(f"| {row['number']} | {row['cost_seconds']:.1f} s | {row['score']:.4g} |" for row in _front(scored)),
        "",
        "## Hour by hour",
        "",
        "| hours | trials finished | spent | best score | memory of the sweep's process | load of the machine | disk |",
        "|---|---|---|---|---|---|---|",
        *_hours(diary),
        "",
        "## The faults",
        "",
        "| at | fault | trials that ran | seconds lost | wrong after it |",
        "|---|---|---|---|---|",
        *(
            f"| {_after(first['at'], line['at'])} | {line['name']} | {', '.join(map(str, line['ran'])) or 'none'}"
            f" | {later - line['lost_before_seconds']:.1f} | {'; '.join(line['wrong']) or 'nothing'} |"
            for line, later in zip(kills, lost_at, strict=False)
        ),
        "",
        "Seconds are lost where a trial goes on from its last checkpoint and trains again what came after it. They",
        "count against the budget, and not as the cost of the trial.",
        "",
        "## What was checked",
        "",
        *(f"- {what}: {'yes' if not wrong else '**no**: ' + '; '.join(wrong)}" for what, wrong in checks.items()),
    ]
    return "\n".join(lines) + "\n"


def _hours(diary: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a row for the last note of each hour; where the sweep had just been killed, its memory is not known."""
    began = diary[0]["at"]
    last = {int((line["at"] - began) // 3600): line for line in diary if line["what"] == "pulse"}
    return [
        f"| {_after(began, line['at'])} | {line['finished']} | {line['spent_seconds'] / 3600:.2f} h"
        f" | {'none' if line['best'] is None else format(line['best'], '.4g')}"
        f" | {str(line['memory_mib']) + ' MiB' if line['memory_mib'] else 'not known'} | {line['load']:.2f}"
        f" | {line['disk_mib']:,} MiB |"
        for line in last.values()
    ]


def _checks(
    diary: Sequence[Mapping[str, Any]], now: Snapshot, outputs: Sequence[Path], available: float
) -> dict[str, list[str]]:
    ended = [f"{line['code']}: {line['says']}" for line in diary if line["what"] == "ended by itself"]
    killed = sum(line["what"] == "fault" and line["struck"] and line["name"] == "trial: kill -9" for line in diary)
    spent = sum(map(_spent, now.trials))
    over = [f"{spent:.0f} s were spent, and the workers had {available:.0f} s"] if spent > available else []
    return {
        "Every finished trial stayed as it was, no process was left, and no cost was forgotten": [
            wrong for line in diary for wrong in line.get("wrong", [])
        ],
        "Numbers of trials have no gap, and each is there once": checker.misnumbered(now),
        "No trial has failed that was not killed itself": checker.wrong_ends(now, killed),
        "No more was spent than the workers could train in that time": over,
        "No output holds a traceback": checker.tracebacks(outputs),
        "The sweep never ended by itself": ended,
    }


def _stretches(diary: Sequence[Mapping[str, Any]]) -> list[float]:
    """Returns for how many seconds this program ran, each time."""
    found: list[list[float]] = []
    for line in diary:
        if line["what"] == "begin":
            found.append([])
        found[-1].append(line["at"])
    return [times[-1] - times[0] for times in found]


def _front(scored: Sequence[Row]) -> list[Row]:
    """Returns the trials that measured better than all that cost less, cheapest first."""
    front: list[Row] = []
    for row in sorted(scored, key=lambda row: (row["cost_seconds"], -row["score"])):
        if not front or row["score"] > front[-1]["score"]:
            front.append(row)
    return front


def _plain(command: Sequence[str]) -> list[str]:
    """Returns the words after `python -m protein`, with the store's path shortened."""
    return ["runs/night/protein.db" if word.startswith("sqlite://") else word for word in command[1:]]


def _workers(begin: Mapping[str, Any]) -> str:
    return "1 worker" if begin["workers"] == 1 else f"{begin['workers']} workers"


def _clock(at: float) -> str:
    return f"{datetime.datetime.fromtimestamp(at, datetime.UTC):%Y-%m-%d %H:%M}"


def _after(began: float, at: float) -> str:
    minutes = int(at - began) // 60
    return f"{minutes // 60}:{minutes % 60:02}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--env", default="breakout")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--max-trial-cost", default="10m")
    parser.add_argument("--faults", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "night")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "night.md")
    parser.add_argument("--report", action="store_true", help="only write the page about the night in --folder")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if not arguments.report:
        fields = (arguments.env, arguments.hours, arguments.workers, arguments.max_trial_cost)
        run(Settings(*fields, arguments.faults, arguments.seed), folder)
    arguments.page.write_text(report(folder))
    print(f"written: {arguments.page}")
    return 0

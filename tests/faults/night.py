"""One unattended night: a sweep of our trainer on two workers, killed now and then, and a report of it.

    python scripts/night.py --hours 6

The same command is started again after each fault, as a service manager would. What happens is kept in the folder of
the night, so that the report can be made at any time, also when this program was killed: `--report`.

Ctrl-C or SIGTERM ends the sweep in order and writes the report of what there is. Run again in the same folder, this
program goes on with the same sweep until it has run for `--hours` in all. The report says how many stretches it took.
"""

import argparse
import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import machine
import psutil

from protein.cli.signals import caught
from tests.faults import checker
from tests.faults.campaign import END_SECONDS, GONE_SECONDS
from tests.faults.checker import Snapshot
from tests.faults.disturbed import Disturbed, Subject
from tests.faults.kinds import KINDS
from tests.faults.night_report import Diary, lost, report, spent, stretches

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


def run(settings: Settings, folder: Path, stop: threading.Event) -> None:
    """Runs the sweep until it has run for its hours, those of earlier stretches counted, or until `stop`."""
    folder.mkdir(parents=True, exist_ok=True)
    diary = Diary(folder / "night.jsonl")
    store = folder / "sweep" / "protein.db"
    past = stretches(diary.read(), Snapshot.read(f"sqlite:///{store}") if store.exists() else None)
    length = settings.hours * 3600 - sum(stretch.seconds for stretch in past)
    if length <= 0:
        print(f"this night has had its {settings.hours:g} hours; a larger --hours goes on")
        return
    night, chance = Night(settings, folder), random.Random(settings.seed + len(past))
    began, quiet = time.monotonic(), QUIET_SHARE * length
    first = sum(line["what"] == "fault" for line in diary.read())
    wanted = max(settings.faults - first, 0)
    moments = sorted(began + chance.uniform(quiet, length - quiet) for _ in range(wanted))
    by_name = {kind.name: kind for kind in KINDS}
    diary.write("begin", **dataclasses.asdict(settings), **machine.describe(), command=night.command[2:])
    before = Snapshot.read(night.url) if store.exists() else Snapshot([], {})
    done, pulse_at, why = 0, began + min(PULSE_SECONDS, length / 8), "its time was over"
    try:
        night.start()
        while time.monotonic() < began + length:
            if stop.is_set():
                why = "it was ended by hand"
                break
            ended = night.process.poll() is not None
            if ended and night.process.returncode == 0:
                diary.write("the sweep has reached its end", says=night.last_line())
                why = "the sweep had reached its end"
                break
            if ended:
                diary.write("ended by itself", code=night.process.returncode, says=night.last_line())
                time.sleep(GONE_SECONDS)
                night.start()
            if done < len(moments) and time.monotonic() >= moments[done]:
                before = _strike(night, by_name[NAMES[(first + done) % len(NAMES)]].name, chance, diary, before)
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
        diary.write("end", why=why, seconds=time.monotonic() - began, wrong=wrong + checker.changed(before, now))
    except Exception as error:  # the report says so, and holds what was seen until then
        failed = [f"the night's own program failed: {error!r:.300}"]
        diary.write("end", why="this program failed", seconds=time.monotonic() - began, wrong=failed)
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
        "spent_seconds": round(sum(map(spent, now.trials)), 1),
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
    diary.write("fault", name=name, struck=struck, ran=ran, lost_before_seconds=lost(at_fault), wrong=wrong)
    return now


def cheaper(before: Snapshot, now: Snapshot) -> list[str]:
    """What a trial had cost when a fault struck it counts afterwards, too."""
    after = {row["id"]: spent(row) for row in now.trials}
    return [
        f"trial {row['number']} costs {after.get(row['id'], 0.0):.2f} s after the fault, and {spent(row):.2f} s before"
        for row in before.trials
        if after.get(row["id"], 0.0) < spent(row) - 1e-6
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=6.0, help="of all stretches in this folder together")
    parser.add_argument("--env", default="breakout")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--max-trial-cost", default="10m")
    parser.add_argument("--faults", type=int, default=16, help="of all stretches together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "night")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "night.md")
    parser.add_argument("--report", action="store_true", help="only write the page about the night in --folder")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if not arguments.report:
        fields = (arguments.env, arguments.hours, arguments.workers, arguments.max_trial_cost)
        stop = threading.Event()
        with caught(stop):
            run(Settings(*fields, arguments.faults, arguments.seed), folder, stop)
    if not (folder / "night.jsonl").exists():
        parser.error(f"there is no night in --folder {folder}")
    arguments.page.write_text(report(folder))
    print(f"written: {arguments.page}")
    return 0

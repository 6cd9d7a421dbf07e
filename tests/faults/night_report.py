"""The diary of an unattended night (`faults.night`), and the page that is made of it and of the sweep's store.

The night may be made of several stretches. Hours and moments count the time that it ran, without what lay between.
Where the program was killed, or the machine with it, the stretch lasts until the last sign of a trial in the store.
"""

import bisect
import contextlib
import dataclasses
import datetime
import itertools
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from protein.run.lease import LEASE_SECONDS
from tests.faults import checker
from tests.faults.checker import Row, Snapshot


class Diary:
    """What has happened, a line of JSON each, in the folder of the night."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, what: str, **facts: Any) -> None:
        line = {"what": what, "at": time.time(), **facts}
        torn = self._file.exists() and not self._file.read_bytes().endswith(b"\n")
        with self._file.open("a") as file:
            file.write("\n" * torn + json.dumps(line) + "\n")
        print(f"{datetime.datetime.now(datetime.UTC):%H:%M:%S} {what} {facts or ''}", flush=True)

    def read(self) -> list[dict[str, Any]]:
        """Returns its lines, without one that was being written when the machine died."""
        lines = []
        for line in self._file.read_text().splitlines() if self._file.exists() else []:
            with contextlib.suppress(json.JSONDecodeError):
                lines.append(json.loads(line))
        return lines


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """One run of the program of the night."""

    begin: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]
    last_sign: float = 0.0  # of a trial, where this program was killed

    @property
    def seconds(self) -> float:
        """From its begin to its last note, or to the last sign of a trial after that."""
        return float(max(self.lines[-1]["at"], self.last_sign) - self.begin["at"])

    @property
    def why_ended(self) -> str:
        last = self.lines[-1]
        if last["what"] != "end":
            after = (
                f"a trial ran until {_clock(self.last_sign)[-5:]}" if self.last_sign else "nothing is known after it"
            )
            return (
                f"no end was noted: it still runs or was killed; the last note is of {_clock(last['at'])[-5:]}, {after}"
            )
        return str(last.get("why", "its time was over"))


def stretches(diary: Sequence[Mapping[str, Any]], now: Snapshot | None = None) -> list[Stretch]:
    """Returns the runs of the program in their order; those without an end last until a trial's last sign in `now`."""
    starts = [i for i, line in enumerate(diary) if line["what"] == "begin"]
    begins = [*(diary[start]["at"] for start in starts), float("inf")]
    seen = signs(now.trials) if now is not None else []
    runs = []
    for number, (one, other) in enumerate(itertools.pairwise([*starts, len(diary)])):
        later = seen[bisect.bisect(seen, diary[other - 1]["at"]) : bisect.bisect(seen, begins[number + 1])]
        ended = diary[other - 1]["what"] == "end"
        runs.append(Stretch(diary[one], diary[one:other], 0.0 if ended or not later else later[-1]))
    return runs


def signs(trials: Sequence[Row]) -> list[float]:
    """Returns the moments, in order, at which the store was last told of each trial: its start, its end, its lease."""
    found = []
    for row in trials:
        found += [_moment(row[name]) for name in ("started_at", "finished_at") if row[name] is not None]
        if row["state"] == "running":
            found.append(_moment(row["lease_until"]) - LEASE_SECONDS)
    return sorted(found)


def _moment(stored: str) -> float:
    """Returns the seconds since 1970 of a time in a raw row of SQLite, which is in UTC."""
    return datetime.datetime.fromisoformat(stored).replace(tzinfo=datetime.UTC).timestamp()


def report(folder: Path) -> str:
    """Returns the page about a night, of which there is a diary."""
    diary = Diary(folder / "night.jsonl").read()
    store = folder / "sweep" / "protein.db"
    now = Snapshot.read(f"sqlite:///{store}") if store.exists() else Snapshot([], {})
    runs = stretches(diary, now)
    first = runs[0].begin
    outputs = [*sorted(folder.glob("*.out")), *sorted((folder / "sweep").rglob("trial.log"))]
    faults = [line for line in diary if line["what"] == "fault"]
    seconds = sum(stretch.seconds for stretch in runs)
    checks = _checks(diary, now, outputs, seconds * first["workers"])
    scored = [row for row in now.trials if row["state"] == "complete"]
    best = max(scored, key=lambda row: row["score"], default=None)
    ends = Counter(row["ended_as"] or row["state"] for row in now.trials)
    cost, again = sum(row["cost_seconds"] for row in now.trials), lost(now)
    kills = [line for line in faults if line["struck"]]
    lost_at = [line["lost_before_seconds"] for line in kills[1:]] + [lost(now)]
    lines = [
        "# An unattended night",
        "",
        f"A sweep of {first['env']} on {_workers(first)} ran for {seconds / 3600:.2f} hours{_in_stretches(runs)}, and"
        f" nobody looked after it. It was disturbed {len(kills)} times at random moments, and started again by the same"
        " command. This page is written by `scripts/night.py`, and [what is promised](faults.md) is on another one.",
        "",
        f"- Machine: {first['machine']}, Python {first['python']}",
        f"- Command: `protein {' '.join(_plain(first['command']))}`",
        "",
        "| stretch | began (UTC) | hours | commit | ended as |",
        "|---|---|---|---|---|",
        *(
            f"| {number} | {_clock(one.begin['at'])} | {one.seconds / 3600:.2f} | {one.begin['commit']}"
            f" | {one.why_ended} |"
            for number, one in enumerate(runs, 1)
        ),
        "",
        "## What it came to",
        "",
        "| | |",
        "|---|---|",
        f"| trials | {len(now.trials)} |",
        *(f"| of them {end.replace('_', ' ')} | {count} |" for end, count in ends.most_common()),
        f"| cost of the trials | {cost / 3600:.2f} h |",
        f"| trained again because it was lost | {again:.1f} s |",
        f"| what {_workers(first)} can train in that time | {seconds * first['workers'] / 3600:.2f} h |",
        f"| spent of it | {100 * (cost + again) / max(seconds * first['workers'], 1e-9):.0f} % |",
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
        *_hours(runs),
        "",
        "## The faults",
        "",
        "| at | fault | trials that ran | seconds lost | wrong after it |",
        "|---|---|---|---|---|",
        *(
            f"| {_after(_ran(runs, line['at']))} | {line['name']} | {', '.join(map(str, line['ran'])) or 'none'}"
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


def _in_stretches(runs: Sequence[Stretch]) -> str:
    return "" if len(runs) == 1 else f" in {len(runs)} stretches"


def _hours(runs: Sequence[Stretch]) -> list[str]:
    """Returns a row for the last note of each hour that it ran.

    Where the sweep had just been killed, its memory is not known.
    """
    notes = [(_ran(runs, line["at"]), line) for one in runs for line in one.lines if line["what"] == "pulse"]
    last = {int(ran // 3600): (ran, line) for ran, line in notes}
    return [
        f"| {_after(ran)} | {line['finished']} | {line['spent_seconds'] / 3600:.2f} h"
        f" | {'none' if line['best'] is None else format(line['best'], '.4g')}"
        f" | {str(line['memory_mib']) + ' MiB' if line['memory_mib'] else 'not known'} | {line['load']:.2f}"
        f" | {line['disk_mib']:,} MiB |"
        for ran, line in last.values()
    ]


def _checks(
    diary: Sequence[Mapping[str, Any]], now: Snapshot, outputs: Sequence[Path], available: float
) -> dict[str, list[str]]:
    ended = [f"{line['code']}: {line['says']}" for line in diary if line["what"] == "ended by itself"]
    paid = sum(map(spent, now.trials))
    over = [f"{paid:.0f} s were spent, and the workers had {available:.0f} s"] if paid > available else []
    return {
        "Every finished trial stayed as it was, no process was left, and no cost was forgotten": [
            wrong for line in diary for wrong in line.get("wrong", [])
        ],
        "Numbers of trials have no gap, and each is there once": checker.misnumbered(now),
        "No trial has failed": checker.wrong_ends(now),
        "No more was spent than the workers could train in that time": over,
        "No output holds a traceback": checker.tracebacks(outputs),
        "The sweep never ended by itself": ended,
    }


def _ran(runs: Sequence[Stretch], at: float) -> float:
    """Returns for how many seconds the program had run at a moment."""
    return float(sum(min(one.seconds, max(at - one.begin["at"], 0.0)) for one in runs))


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


def _after(seconds: float) -> str:
    minutes = int(seconds) // 60
    return f"{minutes // 60}:{minutes % 60:02}"


def spent(row: Row) -> float:
    """What a trial has cost, and what it lost."""
    return float(row["cost_seconds"] + row["lost_seconds"])


def lost(now: Snapshot) -> float:
    """The seconds that all trials had to train again."""
    return round(float(sum(row["lost_seconds"] for row in now.trials)), 3)

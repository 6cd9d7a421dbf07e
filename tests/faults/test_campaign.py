"""A short campaign with fixed seeds; its other half is slow. `python scripts/faults.py` runs a long one."""

import dataclasses
import os

import postgresql
import pytest

from tests.faults import campaign
from tests.faults.disturbed import Subject
from tests.faults.kinds import KINDS

ALL = campaign.subjects(small_disk=True)
_SWEEPS = (  # what is swept, and by what it is disturbed
    (
        Subject("processes", "sqlite", 1, 10, 11),
        ("sweep: kill -9", "server of trials: kill -9", "process group: SIGTERM", "clock an hour back"),
    ),
    (
        Subject("processes", "sqlite", 2, 16, 12, on_small_disk=True),
        ("process group: kill -9", "full disk for 2 s", "trial: kill -9", "same command, clock set"),
    ),
    (
        Subject("function", "sqlite", 1, 10, 13),
        ("sweep: SIGTERM", "sweep: SIGINT", "clock an hour forward", "clock an hour back"),
    ),
    (
        Subject("processes", "postgresql", 1, 10, 14),
        ("database: kill -9, start", "sweep: SIGTERM", "database: one connection killed", "same command beside it"),
    ),
    (Subject("csv", "sqlite", 2, 7, 16), ("sweep: kill -9", "server of trials: kill -9", "trial: kill -9")),
    (
        Subject("served", "sqlite", 2, 10, 17),
        ("worker: kill -9", "protein serve: kill -9, start", "sweep: kill -9", "clock an hour back"),
    ),
    (Subject("trainer", "sqlite", 2, 6, 15), ("sweep: kill -9", "trial: SIGSTOP, SIGCONT", "sweep: SIGINT twice")),
)


_QUICK = ("function", "csv")  # those on PostgreSQL are of each run, too


@pytest.mark.parametrize(
    ("subject", "names"),
    [
        pytest.param(
            subject,
            names,
            id=subject.name,
            marks=() if subject.kind in _QUICK or subject.store == "postgresql" else pytest.mark.slow,
        )
        for subject, names in _SWEEPS
    ],
)
def test_a_disturbed_sweep_loses_nothing(subject: Subject, names: tuple[str, ...]) -> None:
    if subject.on_small_disk and not campaign.can_mount():
        subject = dataclasses.replace(subject, on_small_disk=False)
    if subject.store == "postgresql":
        try:
            postgresql.find_binaries()
        except postgresql.MissingPostgresqlError as error:
            if os.environ.get("CI"):
                pytest.fail(str(error))
            pytest.skip(str(error))
    faults = [kind for kind in KINDS if kind.name in names and kind.fits(subject)]
    for attempt in range(4):  # faults strike at random moments: a sweep may end before the first one
        report = campaign.disturb(subject, faults, seed=subject.seed + 100 * attempt)
        assert report.wrong == [], report.output
        assert report.trials == report.finished == subject.trials
        if report.faults:
            return
    pytest.fail("nothing struck the sweep, four times")


def test_a_plan_does_all_kinds_about_as_often_and_is_the_same_for_a_seed() -> None:
    planned = campaign.plan(200, 0, ALL)
    done = [fault.name for _, faults, _ in planned for fault in faults]
    again = campaign.plan(200, 0, ALL)
    assert [(s, [f.name for f in faults], n) for s, faults, n in planned] == [
        (s, [f.name for f in faults], n) for s, faults, n in again
    ]
    assert 200 <= len(done) <= 206
    for kind in KINDS:
        expected = 8 if any(kind.fits(subject) for subject in ALL) else 0
        assert done.count(kind.name) >= expected, kind.name

"""One plan for every kind of sweep: whatever it may be told reaches the loop, whoever runs the trials."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from protein import Categorical, Float, Integer, Space, storage
from protein.api import plan
from protein.api.backends import Place
from protein.api.definition import Options
from protein.errors import UsageError
from protein.run.machine import Slots
from protein.sweep.stop_conditions import StopWhen
from protein.types import Machine, Provenance, SweepRecord, SweepSpec

OWN = {"start": None}
KINDS: dict[str, dict[str, Any]] = {
    "function": {"own": OWN},
    "command": {"own": OWN, "command": {"text": "true"}},
    "trainer": {"env": {"name": "pong"}, "train": {"lr_schedule": "cosine"}},
}
NOW = datetime.now(UTC)
OPTIONS = Options(
    budget_seconds=60.0,
    max_trial_seconds=7.0,
    max_trials=5,
    max_memory_bytes=1 << 30,
    stop_when=StopWhen.parse("gain < 0.5 per hour", "stop_when", method="protein"),
    until=NOW,
    on_finish="true",
    on_trouble="false",
)


def made(kind: str, options: Options, **more: Any) -> plan.Plan:
    spec = SweepSpec(
        name="s",
        env="pong",
        method="protein",
        seed=0,
        space=Space([Float("x", 0.0, 1.0)]).to_dict(),
        config=KINDS[kind],
        provenance=Provenance(version="0", git_commit="", machine="", config_hash=""),
    )
    return plan.Plan(spec=spec, options=options, store=None, url="sqlite:///s.db", slots=Slots(workers=2), **more)


def stored(one: plan.Plan) -> SweepRecord:
    return SweepRecord(id=1, spec=one.spec, max_cost_seconds=30.0, created_at=NOW)


@pytest.mark.parametrize("kind", KINDS)
def test_every_limit_reaches_the_loop(kind: str) -> None:
    one = made(kind, OPTIONS)
    settings = plan._loop_settings(one, stored(one), Path("s"), 1.0)
    assert settings.max_cost_seconds == 60.0 and settings.workers == 2 and settings.watched == [Path("s.db")]
    same = ("max_trial_seconds", "max_trials", "max_memory_bytes", "stop_when", "until", "on_finish", "on_trouble")
    assert {name: getattr(settings, name) for name in same} == {name: getattr(OPTIONS, name) for name in same}


@pytest.mark.parametrize(("keeps", "budget"), [(True, 30.0), (False, None)])
def test_a_stored_budget_holds_where_the_plan_keeps_it(keeps: bool, budget: float | None) -> None:
    one = made("function", Options(), keeps_budget=keeps)
    assert plan._loop_settings(one, stored(one), Path("s"), 1.0).max_cost_seconds == budget


@pytest.mark.parametrize(("kind", "can"), [("function", True), ("command", True), ("trainer", False)])
def test_trials_go_on_where_the_user_and_the_sweep_allow_it(kind: str, can: bool) -> None:
    assert made(kind, Options(can_continue=True)).may_continue is can
    assert not made(kind, Options(can_continue=False)).may_continue


def test_options_are_checked_and_plain() -> None:
    start = {"x": 0.5}
    options = Options(seed=3, start=start)
    assert options.start == start and options.start is not start
    for wrong in ({"seed": -1}, {"max_trials": 0}):
        with pytest.raises(UsageError, match=f"^{next(iter(wrong))} must be a whole number"):
            dataclasses.replace(options, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_there", [True, False], ids=["a store", "no store"])
@pytest.mark.parametrize("connects", [True, False])
def test_calibrations_found_before_a_plan_is_refused_are_kept_where_there_is_a_store(
    connects: bool, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(name="n", facts={}, calibration_seconds=2.0, measured_at=NOW)

    @contextlib.contextmanager
    def connected(*_: Any, on_machine: Callable[[Machine], None], **__: Any) -> Iterator[Any]:
        on_machine(machine)
        if not connects:
            raise UsageError("another node has another version")
        yield None

    url, file = f"sqlite:///{tmp_path}/s.db", tmp_path / "s.db"
    if is_there:
        storage.open_store(url).close()
    monkeypatch.setattr("protein.api.backends.connected", connected)
    one = made("command", Options(warm_start=["nobody"]), place=Place(backend="ray"))
    with pytest.raises(UsageError, match="no sweep yet" if connects else "version"):
        plan.run(dataclasses.replace(one, url=url), Mock(), threading.Event())
    assert file.exists() is is_there
    if is_there:
        with contextlib.closing(storage.open_store(url)) as store:
            assert store.machines() == [machine]


def test_a_resumed_sweep_searches_the_choices_that_it_has_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the file's list of them is read as a range today."""
    choices, steps = Categorical("n", [32, 64, 96]), Integer("n", 32, 96, step=32)
    url, one = f"sqlite:///{tmp_path}/s.db", made("command", Options())
    old = dataclasses.replace(one.spec, space=Space([choices]).to_dict())
    with contextlib.closing(storage.open_store(url)) as store:
        store.create_sweep(old, 30.0)
    searched: list[Space] = []
    monkeypatch.setattr("protein.api.plan.make_designer", lambda _, space, *args, **how: searched.append(space))
    monkeypatch.setattr("protein.api.plan.run_sweep", lambda *args, **how: None)
    now = dataclasses.replace(one.spec, space=Space([steps]).to_dict())
    plan.run(dataclasses.replace(one, spec=now, url=url), Mock(), threading.Event(), Mock())
    assert searched[-1].parameters == (choices,)

"""Where trials are placed on a Ray cluster, without a cluster; with one: `test_ray.py`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray_clusters

ray_clusters.require_ray()

from ray.exceptions import RayTaskError  # noqa: E402

from protein.ports import Finished, Job  # noqa: E402
from protein.run import ray_fleet  # noqa: E402
from protein.run.ray_fleet import Fleet  # noqa: E402
from protein.run.ray_messages import Connect, Needs, Note, Slots, Stop  # noqa: E402
from protein.types import Trial, TrialEnd  # noqa: E402

TRIAL = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")


class Sent:
    """The connection to the sweep."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, message: Any) -> None:
        self.messages.append(message)


def test_a_node_that_cannot_start_a_trial_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fail trial after trial at once, as it always has room, until each has spent its attempts."""

    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    state = SimpleNamespace(available_resources_per_node=lambda: {"a": {"CPU": 1.0}, "b": {"CPU": 1.0}})
    ray = SimpleNamespace(nodes=list, kill=lambda actor: None, _private=SimpleNamespace(state=state))
    monkeypatch.setattr(ray_fleet, "time", clock)
    monkeypatch.setattr(ray_fleet, "ray", ray)
    monkeypatch.setattr(Fleet, "_is_gone", lambda self, node: False)
    sent: Any = Sent()
    fleet = Fleet(sent, Connect(address=None, needs=Needs(), slot=ray_clusters.settings(tmp_path)))
    fleet._names = fleet._hosts = {"a": "north", "b": "south"}
    slot = ray_fleet._Slot(node="a", actor=None, trial=TRIAL)
    fleet._slots.append(slot)

    fleet._on_answer(slot, RayTaskError("start", "", OSError(28, "No space left on device")))
    assert Note(text="node north gets no trial for 60 s: [Errno 28] No space left on device") in sent.messages
    fleet._count_room()
    assert fleet._room == {"a": 0, "b": 1}
    fleet._tell()
    assert sent.messages[-1] == Slots(number=1)
    monkeypatch.setattr(Fleet, "_is_gone", lambda self, node: node == "a")  # and Ray goes on to list it as alive
    now[0] += ray_fleet.REST_SECONDS
    fleet._count_room()
    assert fleet._room == {"a": 0, "b": 1}
    monkeypatch.setattr(Fleet, "_is_gone", lambda self, node: False)
    now[0] += ray_fleet.REST_SECONDS
    fleet._count_room()
    assert fleet._room == {"a": 1, "b": 1}


def test_a_trial_that_is_ended_before_it_has_a_slot_keeps_what_its_runs_before_have_cost(tmp_path: Path) -> None:
    sent: Any = Sent()
    fleet = Fleet(sent, Connect(address=None, needs=Needs(), slot=ray_clusters.settings(tmp_path)))
    job = Job(
        trial=TRIAL,
        config={},
        directory=tmp_path,
        max_seconds=None,
        max_memory_bytes=None,
        spent_seconds=100.0,
        steps_behind=7,
    )
    fleet._handle(None, job)
    fleet._handle(None, Stop(trial=TRIAL, end=TrialEnd.OUT_OF_BUDGET, reason="no budget"))
    (finished,) = [message for message in sent.messages if isinstance(message, Finished)]
    assert (finished.outcome.cost_seconds, finished.outcome.steps) == (100.0, 7)

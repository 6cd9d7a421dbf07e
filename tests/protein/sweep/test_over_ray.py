"""Whole sweeps on Ray clusters that lose their head, their controller, or a node that shares no folder with others.

What one backend must do is in tests/contracts; nodes that die are in tests/protein/run/test_ray.py.
"""

import dataclasses
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray_clusters
import small_sweep
from patience import PATIENCE_SECONDS
from ray_clusters import NodeProcess, RayCluster

from protein import storage
from protein.engine.designer import RandomDesigner
from protein.errors import TrialLost, UsageError
from protein.ports import Backend, Finished, SweepStatus, TrialProgress
from protein.run.fleet import Fleet
from protein.run.ray import Needs, RayTransport
from protein.sweep.loop import LoopSettings, run_sweep
from protein.sweep.trials import note_late_report
from protein.types import Budget, Measurement, Outcome, Trial, TrialEnd, TrialRecord, TrialState

ASSETS = Path(__file__).parents[2] / "assets"
LEASE_SECONDS = 30.0  # shorter than in earnest, and still longer than a busy machine takes to look at it
CONNECT_SECONDS = 600.0  # for a busy machine to start a cluster's first processes


class Watching(small_sweep.Lines):
    """A listener that calls a function with the trials until that returns something."""

    def __init__(self, look: Callable[[list[TrialRecord]], object]) -> None:
        super().__init__()
        self._look: Callable[[list[TrialRecord]], object] | None = look

    def update(self, status: SweepStatus) -> None:
        if self._look is not None and self._look(list(status.trials)):
            self._look = None


def sweep(url: str, folder: Path, backend: Backend, listener: small_sweep.Lines, **train: Any) -> SweepStatus:
    """Runs the sweep of the store to two trials. Each makes four steps, with a checkpoint at each."""
    store = storage.open_store(url)
    try:
        return run_sweep(
            small_sweep.find_or_create(store, small_sweep.sweep_spec(behaviour="saves", **train), None),
            designer=RandomDesigner(small_sweep.space(), None),
            store=store,
            backend=backend,
            settings=LoopSettings(directory=folder, workers=1, max_cost_seconds=None, max_trials=2),
            listener=listener,
            stop=threading.Event(),
        )
    finally:
        store.close()


def stored(url: str) -> list[TrialRecord]:
    store = storage.open_store(url)
    try:
        record = store.find_sweep("s")
        return [] if record is None else list(store.trials(record.id))
    finally:
        store.close()


def hang_once(folder: Path, where: str) -> None:
    """Makes trial 0 hang at a step, the first time that it gets there; see tests/assets/trial.py."""
    folder.mkdir(parents=True)
    (folder / "hang-0000").write_text(where)


def has_points(count: int) -> Callable[[list[TrialRecord]], bool]:
    return lambda trials: bool(trials) and len(trials[0].curve) >= count


def check_that_all_is_there(trials: list[TrialRecord], *, unheard: int = 0) -> None:
    """Both trials are complete, and trial 0 was resumed where it was saved, so that nothing was spent twice.

    Its first points are missing, `unheard` at most, where the controller that they were told was cut off.
    """
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 2
    first, second = ([point.steps for point in trial.curve] for trial in trials)
    assert second == [1, 2, 3, 4]
    assert first == second[4 - len(first) :] and len(first) >= 4 - unheard
    for trial in trials:
        assert trial.cost_seconds == pytest.approx(float(trial.params["train.cost"]))
    assert trials[0].lost_seconds == 0.0


@pytest.mark.slow
def test_after_its_head_died_the_same_command_goes_on_on_another_cluster(
    ray_cluster: RayCluster, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "3")  # else everybody waits for the head for a minute
    folder = tmp_path / "trials"
    hang_once(folder, "2 saved")
    with ray_clusters.running() as doomed:
        doomed.add(1)

        def kill(trials: list[TrialRecord]) -> bool:
            if has_points(2)(trials):
                doomed.kill_head()
            return has_points(2)(trials)

        listener = Watching(kill)
        backend = ray_clusters.backend(doomed.address, folder)
        with pytest.raises(UsageError) as raised:
            sweep(store_url, folder, backend, listener)
    assert str(raised.value).startswith(f"the Ray cluster was lost: there is no Ray cluster at {doomed.address} (")
    assert str(raised.value).endswith("--backend ray:HOST:PORT for another cluster, to resume")
    assert "trial 0 waits to be taken up again: preempted: the connection to the Ray cluster was lost" in listener.lines
    assert [trial.state for trial in stored(store_url)] == [TrialState.WAITING]
    again = small_sweep.Lines()
    sweep(store_url, folder, ray_clusters.backend(ray_cluster.address, folder), again)
    assert "trial 0 goes on from step 2" in again.lines
    check_that_all_is_there(stored(store_url))


class CutOff:
    """A backend that is out of reach from trial 0's second report on, until it is let go. That report is then late."""

    def __init__(self, backend: Fleet) -> None:
        self._backend = backend
        self.is_cut_off, self.let_go = threading.Event(), threading.Event()
        self.num_slots, self.start, self.stop, self.close = (
            backend.num_slots,
            backend.start,
            backend.stop,
            backend.close,
        )

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        events = self._backend.poll(timeout_seconds)
        if any(isinstance(event, TrialProgress) and event.measurements[-1].steps > 1 for event in events):
            self.is_cut_off.set()
            assert self.let_go.wait(2 * CONNECT_SECONDS)
        return events


@pytest.mark.slow
def test_two_controllers_of_one_sweep_share_no_trial_and_a_late_report_is_refused_and_noted(
    ray_cluster: RayCluster, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is on another machine for the second: nobody can see there whether its process lives."""
    for name, seconds in (("LEASE_SECONDS", LEASE_SECONDS), ("RENEW_SECONDS", LEASE_SECONDS / 6)):
        monkeypatch.setattr(f"protein.sweep.trials.{name}", seconds)
    folder = tmp_path / "trials"
    hang_once(folder, "2 saved")
    refused, second, connected = (ray_clusters.backend(ray_cluster.address, folder) for _ in range(3))
    first, lines = CutOff(connected), small_sweep.Lines()
    raised: list[BaseException] = []
    owners = {threading.current_thread(): "here:2:2.00"}
    monkeypatch.setattr(
        "protein.sweep.trials.current_owner", lambda: owners.get(threading.current_thread(), "elsewhere:1:1.00")
    )

    def run_first() -> None:
        try:
            sweep(store_url, folder, first, lines)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run_first)
    thread.start()
    try:
        assert first.is_cut_off.wait(CONNECT_SECONDS)
        with pytest.raises(UsageError, match="sweep 's' is being run by process 1 on elsewhere"):
            sweep(store_url, folder, refused, small_sweep.Lines())
        time.sleep(LEASE_SECONDS)
        listener = small_sweep.Lines()
        sweep(store_url, folder, second, listener)
        assert "trial 0 was interrupted when the sweep last ended: it goes on" in listener.lines
        before = stored(store_url)
        check_that_all_is_there(before, unheard=2)
    finally:
        first.let_go.set()
        thread.join(PATIENCE_SECONDS)
    assert [type(error) for error in raised] == [TrialLost]
    after = stored(store_url)
    assert [dataclasses.replace(trial, note="") for trial in after] == before
    assert re.fullmatch(
        r"late report of process 1 on elsewhere, refused: it was at step [12] with 0\.\d s and score 0\.[12]",
        after[0].note,
    )
    assert [line for line in lines.lines if "refused" in line] == [f"trial 0: {after[0].note}"]
    store = storage.open_store(store_url)
    found = store.find_sweep("s")
    store.close()
    assert found is not None
    assert found.ended == "the limit of 2 trials is reached", "the first one says nothing of a sweep it has lost"


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Finished, "it ended (complete) with score 2 after 3 steps and 0.3 s"),
        ((), "it was still running"),
        ((Measurement(steps=1_000, elapsed_seconds=1.0, score=0.5),), "it was at step 1,000 with 1.0 s and score 0.5"),
    ],
)
def test_a_late_report_follows_what_people_have_written(store_url: str, event: Any, words: str) -> None:
    store = storage.open_store(store_url)
    record = store.create_sweep(small_sweep.sweep_spec(), None)
    trial = Trial(id=1, sweep_id=record.id, number=0, params={"train.score": 0.5, "train.cost": 0.5}, seed=0, owner="")
    suggestion = RandomDesigner(small_sweep.space(), None).suggest([], [], Budget(), 0)
    assert suggestion is not None
    store.start_trial(
        record.id,
        suggestion,
        seed=0,
        owner="b:2:1.00",
        lease_seconds=60,
        suggest_seconds=0.0,
        provenance=record.spec.provenance,
    )
    store.annotate(record.id, 0, note="mine")
    outcome = Outcome(end=TrialEnd.COMPLETE, score=2.0, steps=3, cost_seconds=0.3, reason="")
    report = (
        Finished(trial=trial, outcome=outcome) if event is Finished else TrialProgress(trial=trial, measurements=event)
    )
    line = note_late_report(store, record.id, report, "a b:1:1.00")
    assert line == f"trial 0: late report of process 1 on a b, refused: {words}"
    [kept] = store.trials(record.id)
    assert kept.note == f"mine\nlate report of process 1 on a b, refused: {words}"
    store.close()


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Adds nodes that see nothing of the controller's folder, and whose temporary files nobody else sees."""
    made: list[NodeProcess] = []
    with ray_clusters.running() as cluster:
        (tmp_path / "controller").mkdir()

        def add() -> tuple[RayCluster, NodeProcess]:
            scratch = tmp_path / f"node-{len(made)}"
            scratch.mkdir()
            made.append(NodeProcess(cluster.address, 1, hidden=tmp_path / "controller", scratch=scratch))
            return cluster, made[-1]

        try:
            yield add
        finally:
            for node in made:
                node.kill()


@pytest.mark.slow
@pytest.mark.skipif(not ray_clusters.can_hide_folders(), reason="only root may give nodes a file system of their own")
def test_artifacts_go_through_a_url_when_a_node_dies_whose_folders_nobody_shares(
    apart: Callable[[], Any], store_url: str, tmp_path: Path
) -> None:
    folder, url = tmp_path / "controller" / "trials", f"file://{tmp_path}/bucket/s"
    gate = tmp_path / "gate"
    cluster, doomed = apart()
    with pytest.raises(UsageError, match="does not see the folder of artifacts"):
        ray_clusters.backend(cluster.address, folder)
    backend = Fleet(RayTransport(cluster.address, Needs()), ray_clusters.settings(folder, artifacts_url=url))
    saved = tmp_path / "bucket" / "s" / "0000" / "checkpoint.safetensors"

    def kill(trials: list[TrialRecord]) -> bool:
        if has_points(2)(trials) and saved.exists():
            apart()
            doomed.kill()
            gate.touch()
            return True
        return False

    listener = Watching(kill)
    sweep(store_url, folder, backend, listener, waits_for=str(gate))
    assert "trial 0 waits to be taken up again: preempted: node " in "\n".join(listener.lines)
    assert "trial 0 goes on from step 2" in listener.lines
    trials = stored(store_url)
    check_that_all_is_there(trials)
    for trial in trials:  # the controller has a copy of all files
        for artifact in trial.artifacts:
            assert Path(artifact.path).is_file()
            assert folder in Path(artifact.path).parents

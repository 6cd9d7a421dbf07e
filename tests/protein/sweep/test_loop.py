"""The loop: budget, resume, kill -9, failures, and a store that refuses writes. All with real processes and SQLite."""

import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import small_sweep
import store_samples
from patience import PATIENCE_SECONDS, wait_until
from small_sweep import stored

from protein import storage
from protein.errors import TrialLost, UsageError
from protein.ports import SweepStatus
from protein.run import process
from protein.run.lease import current_owner, dead_owners, is_local, living_owners
from protein.sweep.loop import LoopSettings
from protein.types import (
    Suggestion,
    SuggestionKind,
    TrialEnd,
    TrialRecord,
    TrialState,
)

pytestmark = pytest.mark.usefixtures("warm")


def test_a_sweep_spends_its_budget_and_stores_what_it_saw(tmp_path: Path) -> None:
    listener = small_sweep.Lines()
    status = small_sweep.sweep(tmp_path, listener=listener)
    trials = stored(tmp_path)
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert all(trial.state is TrialState.COMPLETE for trial in trials)
    assert [trial.score for trial in trials] == [trial.params["train.score"] for trial in trials]
    assert all(len(trial.curve) == 3 for trial in trials)
    assert [trial.cost_seconds for trial in trials] == [trial.cost_seconds for trial in status.trials]
    assert [trial.number for trial in listener.ended] == [trial.number for trial in listener.begun]
    # With costs between 0.1 and 1 the sweep ends close to its budget, and only its last trial may cross it.
    assert status.spent_seconds >= small_sweep.BUDGET_SECONDS - 1.0
    assert sum(trial.cost_seconds for trial in trials[:-1]) < small_sweep.BUDGET_SECONDS


def test_running_a_finished_sweep_again_starts_nothing(tmp_path: Path) -> None:
    before = small_sweep.sweep(tmp_path)
    listener = small_sweep.Lines()
    after = small_sweep.sweep(tmp_path, listener=listener)
    assert listener.begun == []
    assert after.spent_seconds == before.spent_seconds


def test_the_same_seed_gives_the_same_trials_whether_interrupted_or_not(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole = small_sweep.sweep(tmp_path / "whole")

    class StopAfterTwo(small_sweep.Lines):
        def finished(self, trial: TrialRecord, status: object) -> None:
            if trial.number == 1:
                stop.set()

    stop = threading.Event()
    cut = small_sweep.sweep(tmp_path / "cut", listener=StopAfterTwo(), stop=stop)
    assert len(cut.trials) == 2
    resumed = small_sweep.sweep(tmp_path / "cut")
    assert [trial.params for trial in resumed.trials] == [trial.params for trial in whole.trials]
    assert [trial.seed for trial in resumed.trials] == [trial.seed for trial in whole.trials]


def test_on_a_stop_the_running_trial_waits_and_its_cost_counts(tmp_path: Path) -> None:
    stop = threading.Event()

    class StopAtFirstPoint(small_sweep.Lines):
        def update(self, status: SweepStatus) -> None:
            if status.trials[-1].curve:
                stop.set()

    spec = small_sweep.sweep_spec(behaviour="hang")
    status = small_sweep.sweep(tmp_path, spec=spec, listener=StopAtFirstPoint(), stop=stop)
    assert status.stopping
    [trial] = stored(tmp_path)
    assert (trial.state, trial.reason, trial.score) == (TrialState.WAITING, "interrupted", None)
    assert trial.cost_seconds >= 0.1
    assert (status.ended, status.trouble) == ("interrupted", False)


def test_kill_nine_loses_no_finished_trial_and_counts_no_cost_twice(tmp_path: Path) -> None:
    script = str(Path(small_sweep.__file__))
    process = subprocess.Popen([sys.executable, script, str(tmp_path)], start_new_session=True)
    try:
        wait_until(lambda: len(stored(tmp_path)) >= 3 and stored(tmp_path)[-1].state is TrialState.RUNNING)
        trial_processes = psutil.Process(process.pid).children(recursive=True)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = stored(tmp_path)
    finished = [trial for trial in before if trial.state.finished]
    assert len(finished) >= 2
    wait_until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in trial_processes))

    listener = small_sweep.Lines()
    after = small_sweep.sweep(tmp_path, listener=listener, spec=small_sweep.sweep_spec(sleep=0.2)).trials
    assert list(after[: len(finished)]) == finished, "a finished trial changed"
    for orphan in before[len(finished) :]:  # it left nothing, and began again
        now = after[orphan.number]
        assert (now.state, now.params, now.seed) == (TrialState.COMPLETE, orphan.params, orphan.seed)
        assert now.lost_seconds == (orphan.curve[-1].elapsed_seconds if orphan.curve else 0.0)
    assert len({trial.number for trial in after}) == len(after)
    assert any(trial.state is TrialState.COMPLETE for trial in after[len(before) :]), "the sweep went on"


def score_param(trial: TrialRecord) -> float:
    value = trial.params["train.score"]
    assert isinstance(value, float)
    return value


def test_a_trial_stopped_early_keeps_its_score_and_cost_and_the_sweep_goes_on(tmp_path: Path) -> None:
    spec, designer = (
        small_sweep.sweep_spec(behaviour="polite"),
        small_sweep.StopAtTheFirstPoint(small_sweep.space(), None),
    )
    status = small_sweep.sweep(tmp_path, spec=spec, designer=designer)
    trials = stored(tmp_path)
    stopped = [trial for trial in trials if score_param(trial) < 0.5]
    others = [trial for trial in trials if score_param(trial) >= 0.5]
    assert len(stopped) > 1 and len(others) > 1
    for trial in stopped:
        assert (trial.state, trial.reason) == (TrialState.PRUNED, "stopped early: it was asked for little")
        assert (trial.score, trial.cost_seconds, trial.steps) == (1.0, 0.25, 2)
        assert trial.end is TrialEnd.STOPPED_EARLY
    assert all(trial.state is TrialState.COMPLETE for trial in others)
    assert stopped[0].number < others[-1].number, "the sweep went on"
    assert math.isclose(status.spent_seconds, 0.25 * len(stopped) + sum(trial.cost_seconds for trial in others))


def test_a_sweep_killed_while_a_trial_was_being_stopped_goes_on(tmp_path: Path) -> None:
    script = str(Path(small_sweep.__file__))
    done = subprocess.run([sys.executable, script, str(tmp_path), "polite", "dies"], timeout=PATIENCE_SECONDS)
    assert done.returncode == -signal.SIGKILL
    cut = stored(tmp_path)[-1]
    assert cut.state is TrialState.RUNNING
    after = small_sweep.sweep(tmp_path, designer=small_sweep.StopAtTheFirstPoint(small_sweep.space(), None)).trials
    assert (after[cut.number].end, after[cut.number].params) == (TrialEnd.STOPPED_EARLY, cut.params)
    assert after[cut.number].lost_seconds == cut.curve[-1].elapsed_seconds
    assert any(trial.state is TrialState.PRUNED for trial in after[cut.number + 1 :])


@pytest.mark.parametrize("victim", ["trial", "server of trials"])
def test_a_killed_trial_ends_alone(tmp_path: Path, victim: str) -> None:
    killed: list[psutil.Process] = []
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "hang-0000").write_text("2 unsaved")  # so it has not ended, however late it is killed

    class KillFirst(small_sweep.Lines):
        def update(self, status: SweepStatus) -> None:
            trial = status.trials[-1]
            if trial.number == 0 and len(trial.curve) == 2 and not killed:
                servers = [psutil.Process(each._pid) for each in process._started if each._control]
                [server] = [each for each in servers if each.children()]  # others are those of earlier tests
                killed.extend([server] if victim == "server of trials" else server.children())
                for each in killed:
                    each.kill()

    listener = KillFirst()
    spec = small_sweep.sweep_spec(behaviour="saves")
    small_sweep.sweep(tmp_path, listener=listener, spec=spec, budget_seconds=None, max_trials=3)
    first, *others = stored(tmp_path)
    # It was not the trial's fault: it is done again, and what was lost is known.
    assert first.end is TrialEnd.COMPLETE
    assert first.lost_seconds > 0
    assert first.cost_seconds > 0
    assert others
    assert all(trial.state is TrialState.COMPLETE for trial in others)


def test_a_sweep_that_a_live_process_runs_is_refused(tmp_path: Path) -> None:
    store = storage.open_store(f"sqlite:///{tmp_path}/protein.db")
    record = small_sweep.find_or_create(store, small_sweep.sweep_spec())
    suggestion = Suggestion(params={"train.score": 0.5, "train.cost": 0.5}, kind=SuggestionKind.RANDOM, origin="test")
    store.start_trial(
        record.id,
        suggestion,
        seed=0,
        owner=current_owner(),
        lease_seconds=60.0,
        suggest_seconds=0.0,
        provenance=record.spec.provenance,
    )
    store.close()
    with pytest.raises(UsageError, match=r"is being run by process \d+ on [^:]+: wait"):
        small_sweep.sweep(tmp_path, budget_seconds=3 * small_sweep.BUDGET_SECONDS)
    assert stored(tmp_path)[0].state is TrialState.RUNNING
    store = storage.open_store(f"sqlite:///{tmp_path}/protein.db")
    found = store.find_sweep(record.spec.name)
    store.close()
    assert found is not None and found.max_cost_seconds == small_sweep.BUDGET_SECONDS  # what the live process goes by


def test_failures_in_a_row_pause_the_sweep_with_the_reason_and_it_goes_on(tmp_path: Path) -> None:
    spec = small_sweep.sweep_spec(behaviour="diverge")
    status = small_sweep.sweep(tmp_path, spec=spec, budget_seconds=None)
    assert status.trouble
    said = "10 trials in a row failed, the last one with: diverged as the loss is NaN"
    assert status.ended.startswith(said) and "all have the same reason" in status.ended
    trials = stored(tmp_path)
    assert len(trials) == 10
    assert small_sweep.sweep(tmp_path, spec=spec, budget_seconds=None, max_trials=13).trouble is False
    assert len(stored(tmp_path)) == 13
    assert all(trial.score is None and trial.cost_seconds == 0.7 for trial in trials)


def test_a_budget_smaller_than_one_trial_is_one_clear_line(tmp_path: Path) -> None:
    spec = small_sweep.sweep_spec(behaviour="capped", total_timesteps=300)
    with pytest.raises(UsageError, match=r"budget of 0\.2s is smaller than one trial.*try --max-cost [\dms.]+$"):
        small_sweep.sweep(tmp_path, spec=spec, budget_seconds=0.2)


def test_a_cap_smaller_than_one_trial_is_what_has_to_be_raised(tmp_path: Path) -> None:
    spec = small_sweep.sweep_spec(behaviour="spend", total_timesteps=10**6)
    with pytest.raises(
        UsageError, match=r"cap of 0\.3s on one trial is smaller.*try --max-trial-cost [\ddhms.]+ and --max-c"
    ):
        small_sweep.sweep(tmp_path, spec=spec, budget_seconds=0.6, max_trial_seconds=0.3)


def test_the_same_is_said_when_it_is_run_again(tmp_path: Path) -> None:
    spec = small_sweep.sweep_spec(behaviour="capped", total_timesteps=300)
    with pytest.raises(UsageError, match="smaller than one trial"):
        small_sweep.sweep(tmp_path, spec=spec, budget_seconds=0.2)
    with pytest.raises(UsageError, match="smaller than one trial"):
        small_sweep.sweep(tmp_path, spec=spec, budget_seconds=0.2)


def test_a_full_disk_ends_the_sweep_at_once_and_blames_no_params(tmp_path: Path) -> None:
    line = r"trial 0 failed, disk: no space is left; free some; then run the same command again to resume"
    with pytest.raises(UsageError, match=line):
        small_sweep.sweep(tmp_path, spec=small_sweep.sweep_spec(behaviour="full disk"))
    [trial] = stored(tmp_path)
    assert (trial.end, trial.reason, trial.cost_seconds) == (TrialEnd.DISK, "disk: no space is left; free some", 0.1)
    assert trial.end is not None and not trial.end.teaches


def test_a_trial_at_its_limit_is_left_to_its_evaluation(tmp_path: Path) -> None:
    spec = small_sweep.sweep_spec(behaviour="spend", total_timesteps=7)
    with pytest.raises(UsageError, match="smaller than one trial"):
        small_sweep.sweep(tmp_path, spec=spec, budget_seconds=0.6, max_trial_seconds=0.6)
    [trial] = stored(tmp_path)
    assert (trial.end, trial.score, trial.cost_seconds) == (TrialEnd.CAPPED, 2.0, 0.6)


def test_a_trial_that_would_reach_its_cap_long_before_its_end_is_not_trained_up_to_it(tmp_path: Path) -> None:
    spec = small_sweep.sweep_spec(behaviour="spend", total_timesteps=10**6)
    small_sweep.sweep(tmp_path, spec=spec, budget_seconds=1000.0, max_trial_seconds=60.0, max_trials=1)
    [trial] = stored(tmp_path)
    assert (trial.end, trial.score) == (TrialEnd.CAPPED, 1.0)
    assert 0.2 <= trial.cost_seconds < 30.0, "the pace is known at the second point, a tenth of a second a step"
    told = "stopped before its cost cap: at its pace it would take 100000 s, and its limit is 60 s"
    assert trial.reason == told


def test_another_process_that_starts_a_trial_in_between_ends_the_sweep(tmp_path: Path) -> None:
    class Intrude(small_sweep.Lines):
        def started(self, trial: TrialRecord) -> None:
            if trial.number == 1:
                store = storage.open_store(f"sqlite:///{tmp_path}/protein.db")
                record = small_sweep.find_or_create(store, small_sweep.sweep_spec())
                store.start_trial(
                    record.id,
                    Suggestion(
                        params={"train.score": 0.5, "train.cost": 0.5}, kind=SuggestionKind.RANDOM, origin="test"
                    ),
                    seed=0,
                    owner="elsewhere:1:1.00",
                    lease_seconds=60.0,
                    suggest_seconds=0.0,
                    provenance=record.spec.provenance,
                )
                store.close()

    with pytest.raises(TrialLost):
        small_sweep.sweep(tmp_path, listener=Intrude(), on_trouble=f"sleep 0.5; echo x; touch {tmp_path}/told")
    assert [trial.number for trial in stored(tmp_path)] == [0, 1, 2]
    assert (tmp_path / "told").exists()


def test_a_store_that_refuses_writes_for_a_while_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protein.sweep.trials.STORE_RETRY_SECONDS", 0.05)
    database = tmp_path / "protein.db"

    monkeypatch.setattr("protein.storage.database.BUSY_SECONDS", 0.2)

    class LockForTwoWrites(small_sweep.Lines):
        waited_seconds = 0.0  # as the loop's clock has it

        def started(self, trial: TrialRecord) -> None:
            super().started(trial)
            if trial.number == 1:
                self.lock = sqlite3.connect(database, isolation_level=None)
                self.lock.execute("BEGIN IMMEDIATE")

        def log(self, line: str) -> None:
            super().log(line)
            self.waited_seconds += 200.0
            if len(self.lines) == 2:
                self.lock.close()

    class NeverWaitedFor(threading.Event):
        """A signal's handler that sets the event would hang where it had interrupted a wait in the same thread."""

        def wait(self, timeout: float | None = None) -> bool:
            raise AssertionError("the loop waits for the event that a signal's handler sets")

    listener = LockForTwoWrites()
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + listener.waited_seconds, sleep=time.sleep)
    monkeypatch.setattr("protein.sweep.loop.time", clock)
    monkeypatch.setattr("protein.sweep.trials.time", clock)
    status = small_sweep.sweep(tmp_path, listener=listener, stop=NeverWaitedFor())
    assert len(listener.lines) == 2
    assert all("the store is unavailable" in line and "locked" in line for line in listener.lines)
    assert all(trial.state is TrialState.COMPLETE and len(trial.curve) == 3 for trial in stored(tmp_path))
    assert math.isclose(sum(trial.cost_seconds for trial in stored(tmp_path)), status.spent_seconds)
    assert status.elapsed_seconds >= 400.0 and status.engine_seconds < 200.0  # waiting is no work of the engine


def test_a_cap_of_its_own_goes_before_a_quarter_of_the_budget(tmp_path: Path) -> None:
    assert LoopSettings(directory=tmp_path).max_trial_seconds is None
    assert LoopSettings(directory=tmp_path, max_cost_seconds=100.0).max_trial_seconds == 25.0
    assert LoopSettings(directory=tmp_path, max_cost_seconds=100.0, max_trial_seconds=90.0).max_trial_seconds == 90.0


def test_only_a_gone_process_of_this_machine_is_dead() -> None:
    _, pid, started = current_owner().rsplit(":", 2)
    assert dead_owners([current_owner()]) == []
    assert dead_owners([f"elsewhere:{pid}:{started}"]) == []
    before = store_samples.ended_owner()  # another process that had this id before
    assert dead_owners([before, current_owner(), before]) == [before]
    assert dead_owners(["", current_owner()]) == [""], "nobody runs a copied trial"


HERE, MACHINE, BOOT, OUTERMOST = "5f0c21ab-1a363c15-4026531836", "5f0c21ab", "1a363c15", "4026531836"
OTHER_BOOT = "5f0c21ab-00000000-4026531836"


@pytest.mark.parametrize(
    ("here", "there", "local"),
    [
        (HERE, HERE, True),
        (HERE, OTHER_BOOT, True),  # before this machine was started anew
        (HERE, f"{MACHINE}-{BOOT}-4026532178", False),  # a container
        (f"{MACHINE}-{BOOT}-4026532178", HERE, False),
        (f"{MACHINE}-{BOOT}-4026532178", f"{MACHINE}-00000000-4026532178", False),  # perhaps of the same image
        (HERE, f"00000000-00000000-{OUTERMOST}", False),  # a machine with the same host name
        (f"-{BOOT}-{OUTERMOST}", f"-00000000-{OUTERMOST}", False),  # perhaps such a machine
        (HERE, "", False),  # an older store's
        ("", "", True),  # macOS
        ("", HERE, False),
    ],
)
def test_the_lease_decides_where_a_process_of_this_host_name_cannot_be_seen(
    monkeypatch: pytest.MonkeyPatch, here: str, there: str, local: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("protein.run.lease._place", lambda: there)
        gone = store_samples.ended_owner()
    monkeypatch.setattr("protein.run.lease._place", lambda: here)
    assert (dead_owners([gone]), is_local(gone)) == ([gone] if local else [], local)
    assert living_owners([gone]) == []


def test_a_sweep_of_another_container_with_this_host_name_keeps_its_trials_until_their_lease_ends(
    tmp_path: Path,
) -> None:
    store = storage.open_store(f"sqlite:///{tmp_path}/protein.db")
    record = small_sweep.find_or_create(store, small_sweep.sweep_spec())
    other = store_samples.ended_owner().partition("@")[0] + f"@{MACHINE}-{BOOT}-4026532178"
    params = {"train.score": 0.5, "train.cost": 0.5}
    store_samples.start(store, record, other, params=params, lease_seconds=60.0)
    with pytest.raises(
        UsageError, match=r"is being run by process \d+ on .*; if it is gone, try again in 120 seconds$"
    ):
        small_sweep.sweep(tmp_path)
    assert stored(tmp_path)[0].state is TrialState.RUNNING


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there are no namespaces of process ids")
def test_a_process_knows_its_place() -> None:
    machine, boot, namespace = current_owner().partition("@")[2].split("-")
    assert len(boot) == 8 and len(machine) in (0, 8)
    assert f"pid:[{namespace}]" == str(Path("/proc/self/ns/pid").readlink())

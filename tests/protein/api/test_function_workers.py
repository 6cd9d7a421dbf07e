"""A sweep over a function in several processes: `Sweep.run(train, workers=2)`."""

import gc
import math
import multiprocessing
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import types
import weakref
from pathlib import Path
from typing import Any

import psutil
import pytest
from function_sweeps import why_ended
from patience import PATIENCE_SECONDS, wait_until

from protein import Float, Integer, Report, Space, Sweep, SweepResult, storage
from protein.errors import UsageError
from protein.run import function
from protein.types import TrialEnd, TrialState

pytestmark = pytest.mark.usefixtures("warm")

SPACE = Space([Float("lr", 1e-4, 1.0, scale="log"), Integer("epochs", 1, 20, scale="log")], cost_parameter="epochs")
START: dict[str, Any] = {"lr": 0.3, "epochs": 4}


def loss(lr: float, epochs: int) -> float:
    return (math.log10(lr) + 2.0) ** 2 / 4.0 + math.exp(-epochs / 8.0)


def train(params: dict[str, Any], report: Report) -> float:
    """Costs a second an epoch, by its own word."""
    for epoch in range(1, params["epochs"] + 1):
        report(epoch, loss(params["lr"], epoch), cost_seconds=float(epoch))
    return loss(params["lr"], params["epochs"])


def run(
    folder: Path, function: Any = train, *, workers: Any = 2, max_trials: int = 6, cap: float | None = None, **more: Any
) -> SweepResult:
    sweep = Sweep(
        SPACE,
        budget=1000.0,
        max_trials=max_trials,
        max_trial_cost=cap,
        name="mine",
        direction="minimize",
        start=START,
        quiet=True,
        store=str(folder / "own.db"),
    )
    return sweep.run(function, workers=workers, **more)


@pytest.mark.parametrize(("start_method", "trials"), [("fork", 6), ("spawn", 3)])
def test_several_trials_run_at_once_with_the_same_results(tmp_path: Path, start_method: Any, trials: int) -> None:
    result = run(tmp_path, start_method=start_method, max_trials=trials)
    assert len(result.trials) == trials and not result.interrupted
    for trial in result.trials:
        assert trial.end is TrialEnd.COMPLETE
        assert trial.score == loss(float(trial.params["lr"]), int(trial.params["epochs"]))
        assert trial.cost_seconds == len(trial.curve) == trial.params["epochs"]
    assert result.trials[0].params == START


def test_what_comes_before_a_function_costs_nothing(tmp_path: Path) -> None:
    """As the imports of a program, which a process that begins anew makes again."""
    module = tmp_path / "slow_to_import.py"
    module.write_text(
        "import os, time\ntime.sleep(2.0)\n\ndef train(params, report):\n    time.sleep(0.1)\n    os._exit(3)\n"
    )
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from slow_to_import import train
from protein import Float, Space, Sweep
if __name__ == "__main__":
    space, store = Space([Float("x", 0.0, 1.0)]), {str(tmp_path / "s.db")!r}
    sweep = Sweep(space, budget=60.0, max_trials=2, name="s", store=store, quiet=True)
    sweep.run(train, workers=2, start_method="spawn")
"""
    (tmp_path / "program.py").write_text(code)
    subprocess.run([sys.executable, str(tmp_path / "program.py")], cwd=tmp_path, timeout=PATIENCE_SECONDS, check=False)
    store = storage.open_store(str(tmp_path / "s.db"))
    sweep = store.find_sweep("s")
    assert sweep is not None
    trials = store.trials(sweep.id)
    store.close()
    assert len(trials) == 2 and {trial.end for trial in trials} == {TrialEnd.CRASHED}
    assert all(trial.cost_seconds < 1.5 for trial in trials)


def test_a_function_may_end_its_own_forks(tmp_path: Path) -> None:
    """As a pool of processes does that is left before its tasks are done."""

    def forks(params: dict[str, Any], report: Report) -> float:
        pool = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60.0,))
        pool.start()
        time.sleep(0.3)
        began = time.monotonic()
        pool.terminate()
        pool.join()
        return time.monotonic() - began

    result = run(tmp_path, forks, max_trials=2)
    assert [trial.end for trial in result.trials] == [TrialEnd.COMPLETE] * 2
    assert all(trial.score is not None and trial.score < 20.0 for trial in result.trials)


def test_what_a_function_closes_over_is_freed_after_the_run(tmp_path: Path) -> None:
    class Data:
        pass

    def swept() -> "weakref.ref[Data]":
        data = Data()

        def uses(params: dict[str, Any], report: Report) -> float:
            assert data is not None
            return 0.0

        run(tmp_path, uses, max_trials=2)
        return weakref.ref(data)

    alive = swept()
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("guard", [False, True])
def test_a_function_that_no_new_process_can_load_is_told_at_once(tmp_path: Path, guard: bool) -> None:
    """From standard input there is no file to read it from; without the guard the program would sweep again."""
    program = f"""
from protein import Float, Space, Sweep
def train(params, report):
    return 1.0
{'if __name__ == "__main__":' if guard else "if True:"}
    sweep = Sweep(Space([Float("x", 0.0, 1.0)]), max_trials=4, name="s", store={str(tmp_path / "s.db")!r}, quiet=True)
    sweep.run(train, workers=2, start_method="spawn")
"""
    (tmp_path / "program.py").write_text(program)
    words, given = ([sys.executable, "-"], program) if guard else ([sys.executable, str(tmp_path / "program.py")], None)
    ran = subprocess.run(
        words, cwd=tmp_path, input=given, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert ran.returncode == 1
    assert "UsageError: " in ran.stderr.splitlines()[-1]
    if (tmp_path / "s.db").exists():
        store = storage.open_store(str(tmp_path / "s.db"))
        sweep = store.find_sweep("s")
        assert sweep is None or all(trial.end is not TrialEnd.CRASHED for trial in store.trials(sweep.id))
        store.close()


def test_a_closure_runs_in_processes_that_share_neither_memory_nor_cores(tmp_path: Path) -> None:
    seen: list[int] = []
    meeting = tmp_path / "meeting"
    meeting.mkdir()

    def together(params: dict[str, Any], report: Report) -> float:
        """Waits until another trial runs beside it; a trial alone hangs here."""
        (meeting / str(os.getpid())).write_text("")
        while len(list(meeting.iterdir())) < 2:
            time.sleep(0.01)
        seen.append(os.getpid())
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [-1]
        report(1, 1.0, cost_seconds=1.0, pid=os.getpid(), first_core=cores[0], cores=len(cores))
        return loss(params["lr"], params["epochs"])

    result = run(tmp_path, together, max_trials=2)
    assert [trial.end for trial in result.trials] == [TrialEnd.COMPLETE] * 2
    metrics = [trial.curve[0].metrics for trial in result.trials]
    assert len({each["pid"] for each in metrics} | {os.getpid()}) == 3
    assert seen == []
    if len(os.sched_getaffinity(0)) >= 2:
        assert metrics[0]["first_core"] != metrics[1]["first_core"]
        assert metrics[0]["cores"] == metrics[1]["cores"] == len(os.sched_getaffinity(0)) // 2


def test_what_happens_to_one_process_happens_to_its_trial_alone(tmp_path: Path) -> None:
    def odd(params: dict[str, Any], report: Report) -> float:
        report(1, 1.0, cost_seconds=1.0)
        number = int(report.directory.name)
        if number == 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        if number == 2:
            os._exit(3)
        if number == 3:
            raise ArithmeticError("loss is\nnan")
        if number == 4:
            return math.nan
        return loss(params["lr"], params["epochs"])

    result = run(tmp_path, odd)
    ends = {trial.number: (trial.end, trial.reason) for trial in result.trials}
    assert ends == {
        0: (TrialEnd.COMPLETE, ""),
        1: (TrialEnd.CRASHED, "killed by SIGUSR1"),
        2: (TrialEnd.CRASHED, "its process exited with code 3 before the function ended"),
        3: (TrialEnd.USER_ERROR, "ArithmeticError: loss is nan"),
        4: (TrialEnd.DIVERGED, "the score is nan"),
        5: (TrialEnd.COMPLETE, ""),
    }
    log = result.trials[3].artifact("log")
    assert log is not None and "Traceback" in Path(log).read_text()


def test_a_trial_whose_process_dies_costs_what_it_has_reported_and_the_time_since(tmp_path: Path) -> None:
    def dies(params: dict[str, Any], report: Report) -> float:
        number = int(report.directory.name)
        time.sleep(0.0 if number else 3.0)
        report(1, 1.0, cost_seconds=100.0 if number else 0.001)
        time.sleep(1.5 if number else 0.0)
        os.kill(os.getpid(), signal.SIGUSR1)
        return 1.0

    first, second = run(tmp_path, dies, max_trials=2).trials
    assert [first.end, second.end] == [TrialEnd.CRASHED] * 2
    assert first.cost_seconds < 3.0, "its clock is more than it has reported"
    assert second.cost_seconds > 100.1, "it went on after its report"


def test_a_program_that_is_ended_with_its_trial_is_no_mistake(tmp_path: Path) -> None:
    def no_score(params: dict[str, Any], report: Report) -> Any:
        if int(report.directory.name) == 0:
            return 1.0
        subprocess.run(["sleep", "600"], check=False)
        return None  # its output, which has the score, is cut short

    result = run(tmp_path, no_score, max_trials=2, cap=0.5)
    assert [trial.end for trial in result.trials] == [TrialEnd.COMPLETE, TrialEnd.CAPPED]


def test_a_function_that_reports_its_cost_ends_itself_at_the_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protein.run.process.GRACE_SECONDS", 0.3)

    def cleans_up(params: dict[str, Any], report: Report) -> float:
        try:
            report(1, 1.0, cost_seconds=1.0)
            report(1 if int(report.directory.name) else 0, 1.0, cost_seconds=100.0)  # of a point of the curve, or not
        finally:
            time.sleep(1.0)
            (report.directory / "clean").touch()
        return 1.0

    trials = run(tmp_path, cleans_up, max_trials=2, cap=50.0).trials
    assert [(trial.end, trial.cost_seconds) for trial in trials] == 2 * [(TrialEnd.CAPPED, 100.0)]
    assert len(list(tmp_path.rglob("clean"))) == 2


def test_steps_that_count_anew_keep_the_cost_and_the_score_of_the_curve(tmp_path: Path) -> None:
    def restarts(params: dict[str, Any], report: Report) -> float:
        report(10, 0.2, cost_seconds=1.0)
        report(5, 0.9, cost_seconds=90.0)
        if int(report.directory.name):
            os.kill(os.getpid(), signal.SIGUSR1)
        report(6, 0.8, cost_seconds=100.0)
        return 0.7

    capped, killed = run(tmp_path, restarts, max_trials=2, cap=100.0).trials
    assert (capped.end, killed.end) == (TrialEnd.CAPPED, TrialEnd.CRASHED)
    assert (capped.score, capped.cost_seconds) == (0.2, 100.0)
    assert killed.cost_seconds >= 90.0
    [alone] = run(tmp_path / "alone", restarts, workers=1, max_trials=1, cap=100.0).trials
    assert (alone.end, alone.score, alone.cost_seconds) == (capped.end, capped.score, capped.cost_seconds)


def test_threads_of_one_function_may_report_at_once(tmp_path: Path) -> None:
    metrics = {f"metric{i}": 0.5 for i in range(900)}  # more than a pipe takes at once

    def function(params: dict[str, Any], report: Report) -> float:
        def curve() -> None:
            for _ in range(9):
                report(1, 1.0, metrics=metrics)

        threads = [threading.Thread(target=curve) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 1.0

    result = run(tmp_path, function, max_trials=2)
    assert [(trial.end, len(trial.curve)) for trial in result.trials] == 2 * [(TrialEnd.COMPLETE, 72)]


def test_a_mistake_in_the_function_ends_the_sweep_at_once_and_is_raised(tmp_path: Path) -> None:
    def wrong(params: dict[str, Any], report: Report) -> Any:
        return "good"

    with pytest.raises(UsageError, match=r"it returned 'good' instead of a number\. Correct it") as caught:
        run(tmp_path, wrong)
    assert why_ended(str(tmp_path / "own.db")) == f"error: {caught.value}"
    assert all(trial.end is TrialEnd.COMPLETE for trial in run(tmp_path).trials[2:])


def test_an_interrupt_raised_in_the_function_ends_the_sweep_in_order(tmp_path: Path) -> None:
    def interrupted(params: dict[str, Any], report: Report) -> float:
        number = int(report.directory.name)
        if number == 3:
            raise KeyboardInterrupt
        while number > 3:  # one may have begun beside it, and runs until it is told to end
            report(1, 1.0, cost_seconds=1.0)
            time.sleep(0.01)
        return train(params, report)

    result = run(tmp_path, interrupted)
    assert result.interrupted and len(result.trials) <= 5
    assert result.trials[3].state is TrialState.WAITING
    assert len(run(tmp_path).trials) == 6


def test_an_interrupt_that_comes_with_the_first_trials_hangs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that another thread gets is raised only when the wait for something to do ends."""

    class Interrupted(queue.SimpleQueue[Any]):
        interrupts = True

        def get(self, *arguments: Any, **more: Any) -> Any:
            found = super().get(*arguments, **more)
            if Interrupted.interrupts and threading.current_thread() is threading.main_thread():
                Interrupted.interrupts = False
                raise KeyboardInterrupt
            return found

    monkeypatch.setattr(function, "queue", types.SimpleNamespace(SimpleQueue=Interrupted))
    assert run(tmp_path).interrupted


def test_a_function_sweep_goes_on_when_the_server_of_its_trials_dies(tmp_path: Path) -> None:
    marker = tmp_path / "killed"

    def kills(params: dict[str, Any], report: Report) -> float:
        report(1, 1.0, cost_seconds=1.0)
        if int(report.directory.name) == 2 and not marker.exists():
            marker.write_text("")
            psutil.Process().parent().kill()
            time.sleep(600)
        return loss(params["lr"], params["epochs"])

    result = run(tmp_path, kills)
    assert marker.exists() and not result.interrupted
    lost = [trial for trial in result.trials if trial.reason == "preempted: the server of trials died"]
    # None is lost where the server died before it could say that the trial had begun: then the trial is started again.
    assert len(lost) <= 2, [(t.number, str(t.state), t.reason) for t in result.trials]
    assert all(trial.end is TrialEnd.INTERRUPTED for trial in lost)
    assert all(trial.end is TrialEnd.COMPLETE for trial in result.trials if trial not in lost)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"workers": 0}, "workers must be a whole number, 1 or more, got 0"),
        ({"workers": "two"}, "workers must be a whole number, 1 or more, got 'two'"),
        ({"gpus": "cuda:0"}, "'cuda:0' is no id of a GPU"),
        ({"gpus": 0}, "gpus must be ids in a text, as in '0,1', or 'all', got int 0"),
        ({"start_method": "forkserver"}, "start_method must be 'fork' or 'spawn', or None for the usual one"),
        ({"start_method": "spawn"}, "the function must be at the top level of a module"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        run(tmp_path, lambda params, report: 1.0, **settings)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "own.db").exists()


PROGRAM = """
import sys, time
from protein import Float, Space, Sweep

def train(params, report):
    for step in range(6000):
        report(step, 1.0)
        time.sleep(0.02)
    return 1.0

if __name__ == "__main__":
    result = Sweep(Space([Float("lr", 0.1, 1.0)]), budget="1h", name="mine", store="own.db").run(train, workers=2)
    print("interrupted:", result.interrupted, [trial.state.value for trial in result.trials])
"""


def reported(file: Path) -> int:
    """Returns how many trials of a sweep have reported."""
    if not file.exists():
        return 0
    store = storage.open_store(str(file))
    try:
        sweep = store.find_sweep("mine")
        return 0 if sweep is None else sum(bool(trial.curve) for trial in store.trials(sweep.id))
    finally:
        store.close()


def test_ctrl_c_ends_all_trials_in_order(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if name != "PROTEIN_STORE"},
    )
    wait_until(lambda: reported(tmp_path / "own.db") == 2, "the reports of two trials")
    trials = psutil.Process(program.pid).children(recursive=True)
    os.killpg(program.pid, signal.SIGINT)
    output, errors = program.communicate(timeout=PATIENCE_SECONDS)
    assert (program.returncode, errors) == (0, "")
    assert "interrupted: True ['waiting', 'waiting']" in output
    assert not [one for one in trials if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def test_torch_computes_in_a_fork_of_a_program_that_has_used_it(tmp_path: Path) -> None:
    """A fork has none of its threads: a computation with several threads hangs in it."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.sort(torch.randn(2_000_000))
    try:

        def computes(params: dict[str, Any], report: Report) -> float:
            return float(torch.sort(torch.randn(2_000_000)).values[0])

        result = run(tmp_path, computes, max_trials=2)
    finally:
        torch.set_num_threads(before)
    assert [trial.state for trial in result.trials] == [TrialState.COMPLETE] * 2

"""Trials as processes: what their server survives, what survives it, and what a trial's processes are given."""

import dataclasses
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import language_runs
import ppo_runs
import psutil
import pytest
from patience import PATIENCE_SECONDS, left_behind, wait_until

from protein.ports import Finished, Job, TrialProgress
from protein.run import fork_server, process
from protein.run.fork_server import BoundedLog
from protein.run.function import FunctionRecord
from protein.run.process import joined
from protein.run.trainer import PRELOAD, TrainerBackend
from protein.types import Measurement, Outcome, Resources, Trial, TrialEnd

ASSETS = Path(__file__).parents[2] / "assets"
PATHS = [str(ASSETS.parent / "support"), str(ASSETS.parents[1])]


@pytest.fixture
def local() -> Iterator[TrainerBackend]:
    backend = TrainerBackend(entry="trial:main", preload=())
    yield backend
    backend.close()


def job(directory: Path, number: int = 0, **train: Any) -> Job:
    trial = Trial(id=number, sweep_id=1, number=number, params=train, seed=0, owner="test")
    return Job(
        trial=trial,
        config={"train": train, "seed": 0},
        directory=directory / str(number),
        max_seconds=None,
        max_memory_bytes=None,
    )


def wait(backend: TrainerBackend, count: int = 1) -> dict[int, Finished]:
    finished: dict[int, Finished] = {}
    until = time.monotonic() + PATIENCE_SECONDS
    while len(finished) < count:
        assert time.monotonic() < until, "the backend never reported the end"
        finished |= {event.trial.number: event for event in backend.poll(0.1) if isinstance(event, Finished)}
    return finished


def wait_for_a_point(backend: TrainerBackend) -> None:
    wait_until(lambda: backend.poll(0.1), "a report of the trial")


def server_of(backend: TrainerBackend) -> psutil.Process:
    [running, *_] = backend._running.values()
    return psutil.Process(running.pid).parent()


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# A sweep's process: it starts a trial that says nothing, forks a child of its own, and waits to be killed.
SWEEP = """
import json, os, sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from tests.protein.run.test_process import job, wait_for_a_point
from protein.run.trainer import TrainerBackend
backend = TrainerBackend(entry="trial:main", preload=())
backend.start(job(Path({folder!r}), behaviour="stubborn"))
wait_for_a_point(backend)
other = os.fork()
if other == 0:
    time.sleep(600)
[running] = backend._running.values()
print(json.dumps([running.pid, running.server_pid, other]), flush=True)
time.sleep(600)
"""


def test_nothing_of_a_sweep_outlives_its_kill(tmp_path: Path) -> None:
    """Not even where the trial hangs in silence, and where another child of the sweep lives on."""
    program = SWEEP.format(paths=[str(ASSETS), *PATHS], folder=str(tmp_path))
    sweep = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert sweep.stdout is not None
    trial, server, other = json.loads(sweep.stdout.readline())
    try:
        assert alive(trial) and alive(server)
        sweep.kill()
        sweep.wait()
        wait_until(lambda: not alive(trial), "the end of the trial")
        wait_until(lambda: not alive(server), "the end of the server of trials")
        assert alive(other)
    finally:
        os.kill(other, signal.SIGKILL)
        sweep.stdout.close()


def test_the_server_of_trials_outlives_signals_to_the_sweeps_group_and_to_itself(
    local: TrainerBackend, tmp_path: Path
) -> None:
    local.start(job(tmp_path, behaviour="hang"))
    server = server_of(local)
    assert os.getpgid(server.pid) == os.getsid(server.pid) == server.pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        server.send_signal(number)
    local.start(job(tmp_path, 1))
    assert wait(local)[1].outcome.end is TrialEnd.COMPLETE
    assert server.is_running()


def test_trials_whose_server_died_are_preempted_and_the_next_one_gets_a_new_server(
    local: TrainerBackend, tmp_path: Path
) -> None:
    began = time.monotonic()
    local.start(job(tmp_path, 0, behaviour="hang"))
    wait_for_a_point(local)
    local.start(job(tmp_path, 1, behaviour="child"))  # its child is in its group, and is not killed by the kernel
    server = server_of(local)
    wait(local)
    local.start(job(tmp_path, 2, behaviour="stubborn"))
    wait_for_a_point(local)
    server.kill()
    finished = wait(local, 2)
    for number in (0, 2):
        outcome = finished[number].outcome
        assert (outcome.end, outcome.reason) == (TrialEnd.INTERRUPTED, "preempted: the server of trials died")
        assert not outcome.end.teaches and 0.1 <= outcome.cost_seconds <= max(time.monotonic() - began, 0.1)
    local.start(job(tmp_path, 3))
    assert wait(local)[3].outcome.end is TrialEnd.COMPLETE


def test_a_trial_that_died_costs_nothing_until_the_sweep_looks(local: TrainerBackend, tmp_path: Path) -> None:
    local.start(job(tmp_path, behaviour="hang"))
    wait_for_a_point(local)
    [running] = local._running.values()
    began = running.record._started  # type: ignore[attr-defined]
    os.kill(running.pid, signal.SIGKILL)
    select.select([running.status], [], [])
    known = time.monotonic()  # the server has told of the end before
    time.sleep(0.2)  # the sweep waits for its store
    outcome = wait(local)[0].outcome
    assert (outcome.end, outcome.reason) == (TrialEnd.INTERRUPTED, "preempted: SIGKILL from outside ended it")
    assert 0.1 <= outcome.cost_seconds <= max(known - began, 0.1)


def test_a_result_that_came_before_the_server_died_counts(local: TrainerBackend, tmp_path: Path) -> None:
    local.start(job(tmp_path, behaviour="lingers"))
    [running] = local._running.values()
    wait_until(lambda: local.poll(0.1) is not None and running.record._final, "a result")  # type: ignore[attr-defined]
    server_of(local).kill()
    outcome = wait(local)[0].outcome
    assert (outcome.end, outcome.score, outcome.cost_seconds) == (TrialEnd.COMPLETE, 2.0, 0.3)


def test_a_server_that_was_stopped_is_woken(local: TrainerBackend, tmp_path: Path) -> None:
    local.start(job(tmp_path, 0, behaviour="hang"))
    server_of(local).suspend()
    local.start(job(tmp_path, 1))
    server_of(local).suspend()
    assert wait(local)[1].outcome.end is TrialEnd.COMPLETE


def test_a_server_that_dies_whenever_a_trial_starts_is_an_error_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dies_at_once.py").write_text("import os; os._exit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    backend = TrainerBackend(entry="trial:main", preload=("dies_at_once",))
    with pytest.raises(OSError, match="the server of trials has died 2 times as a trial started"):
        backend.start(job(tmp_path))
    backend.close()


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("hang", "preempted: SIGTERM from outside ended it"),
        ("polite", "preempted: a signal from outside ended it"),
    ],
)
def test_a_trial_that_a_signal_from_outside_ends_is_preempted(
    local: TrainerBackend, tmp_path: Path, behaviour: str, reason: str
) -> None:
    """A scheduler that takes the machine back sends one to every process."""
    local.start(job(tmp_path, behaviour=behaviour))
    wait_for_a_point(local)
    [running] = local._running.values()
    os.kill(running.pid, signal.SIGTERM)
    outcome = wait(local)[0].outcome
    assert (outcome.end, outcome.reason) == (TrialEnd.INTERRUPTED, reason)


def test_what_a_trial_prints_to_stderr_is_bounded_with_its_first_and_last_words(
    local: TrainerBackend, tmp_path: Path
) -> None:
    local.start(job(tmp_path, behaviour="noise"))
    assert wait(local)[0].outcome.end is TrialEnd.COMPLETE
    log = (tmp_path / "0" / "trial.log").read_bytes()
    assert len(log) <= fork_server.MAX_LOG_BYTES
    assert log.startswith(b"0....") and log.endswith(b"...\n")
    assert b"\n39." in log and b"\n20." not in log
    assert log.count(b"bytes of the log are left out here") == 1


def test_a_bounded_log_says_how_much_it_leaves_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = BoundedLog(path, max_bytes=1000, head_bytes=100, tail_bytes=100)
    written = b"".join(b"%06d\n" % number for number in range(1000))
    for at in range(0, len(written), 70):
        log.write(written[at : at + 70])
        assert path.stat().st_size <= 1000
    log.close()
    text = path.read_bytes()
    head, _, rest = text.partition(b"\n[... ")
    left_out, _, tail = rest.partition(b" bytes of the log are left out here: it may have 0 MiB ...]\n")
    assert head == written[:100] and written.endswith(tail) and len(tail) >= 100
    assert len(head) + int(left_out) + len(tail) == len(written)


def test_a_child_in_a_session_of_its_own_does_not_outlive_the_trial(local: TrainerBackend, tmp_path: Path) -> None:
    for number, behaviour in enumerate(("daemon", "hang")):
        local.start(job(tmp_path, number, behaviour=behaviour))
    assert wait(local)[0].outcome.end is TrialEnd.COMPLETE
    assert not left_behind(tmp_path), "a daemon of the trial lives on"
    assert [running.job.trial.number for running in local._running.values()] == [1], "the other trial goes on"


def test_a_file_that_is_a_symbolic_link_is_replaced_and_not_written_through(
    local: TrainerBackend, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    (tmp_path / "0").mkdir()
    for name in ("config.json", "trial.log"):
        (tmp_path / "0" / name).symlink_to(outside)
    local.start(job(tmp_path, behaviour="exit"))
    wait(local)
    assert outside.read_text() == "precious"
    assert (tmp_path / "0" / "trial.log").read_text() == "the last words\n"
    with pytest.raises(OSError):
        (tmp_path / "0" / "link").symlink_to(outside)
        BoundedLog(tmp_path / "0" / "link")


def test_time_in_which_the_sweep_was_away_counts_towards_no_limit(
    local: TrainerBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.start(dataclasses.replace(job(tmp_path, behaviour="hang"), max_seconds=3000.0))
    wait_for_a_point(local)
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 3600.0)
    local.poll(0.0)
    [running] = local._running.values()
    assert running.requested_end is None
    monkeypatch.setattr(time, "monotonic", lambda: now() + 3600.0 + 20.0)
    local.poll(0.0)
    assert 10.0 < running.run_seconds(time.monotonic()) < 100.0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux pins processes")
def test_a_trial_runs_on_its_own_cores_with_its_own_gpus(
    local: TrainerBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OF_THE_TEST", "1")  # set after the server of trials has started, perhaps
    usable = sorted(os.sched_getaffinity(0))
    for number, resources in enumerate((Resources(cores=(usable[-1],), gpus=("3", "MIG-1")), Resources())):
        one = dataclasses.replace(job(tmp_path, number, behaviour="tell"), resources=resources)
        local.start(one)
    finished = wait(local, 2)
    assert {one.outcome.end for one in finished.values()} == {TrialEnd.COMPLETE}
    pinned, free = (json.loads((tmp_path / str(number) / "told.json").read_text()) for number in (0, 1))
    assert pinned["cores"] == [usable[-1]] and free["cores"] == usable
    assert pinned["environment"] == {
        "CUDA_VISIBLE_DEVICES": "3,MIG-1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OMP_NUM_THREADS": "1",
        "OF_THE_TEST": "1",
    }
    assert free["environment"].get("CUDA_VISIBLE_DEVICES") == os.environ.get("CUDA_VISIBLE_DEVICES")
    assert (pinned["gpu_given"], free["gpu_given"]) == (True, False)
    assert pinned["directory"] == str(Path.cwd())


def test_what_trials_share_neither_touches_cuda_nor_starts_a_thread(tmp_path: Path) -> None:
    """CUDA cannot be used in a fork of a process that has used it; it reads CUDA_VISIBLE_DEVICES once."""
    backend = TrainerBackend(entry="trial:main", preload=PRELOAD)
    backend.start(job(tmp_path, behaviour="tell"))
    assert wait(backend)[0].outcome.end is TrialEnd.COMPLETE
    backend.close()
    told = json.loads((tmp_path / "0" / "told.json").read_text())
    assert told["cuda"] == {"initialized": False, "counted": False, "threads": 1}


@pytest.mark.parametrize("kind", ["ppo", "language"])
def test_a_trial_loads_nothing_of_ours_that_its_server_has_not(kind: str, tmp_path: Path) -> None:
    """And neither holds what takes most time or memory to load: torch's compiler, sympy, and the reader of flags."""
    data = language_runs.write_corpus(tmp_path / "data")
    config = ppo_runs.small(train={"total_timesteps": 512}) if kind == "ppo" else language_runs.small(data, steps=2)
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    code = (
        "import importlib, sys\n"
        "for module in sys.argv[1].split(): importlib.import_module(module)\n"
        "before, main = set(sys.modules), sys.modules['protein.trainer.__main__'].main\n"
        "assert main(['--config', sys.argv[2], '--directory', sys.argv[3]]) == 0\n"
        "new = [name for name in set(sys.modules) - before if name.startswith('protein')]\n"
        "print(*new, *{'torch._dynamo', 'sympy', 'tyro'} & set(sys.modules), file=sys.stderr)\n"
    )
    arguments = [" ".join(PRELOAD), str(tmp_path / "config.json"), str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


def test_a_trial_that_uses_too_much_gpu_memory_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "CHECK_SECONDS", 0.05)
    asked: list[set[int]] = []

    def used(pids: Any) -> int:
        asked.append(set(pids))
        return 3 * 2**30 if len(pids) > 1 else 2**30

    backend = TrainerBackend(entry="trial:main", preload=(), gpu_memory=used)
    for number, behaviour in enumerate(("hang", "family")):
        limit = Resources(max_gpu_memory_bytes=2 * 2**30)
        backend.start(dataclasses.replace(job(tmp_path, number, behaviour=behaviour), resources=limit))
    pids = {running.job.trial.number: running.pid for running in backend._running.values()}
    outcome = wait(backend)[1].outcome
    backend.close()
    assert (outcome.end, outcome.reason) == (
        TrialEnd.OUT_OF_MEMORY,
        "killed at 3.0 GiB of GPU memory, over its limit of 2.0 GiB",
    )
    assert {pids[0]} in asked and any(pids[1] in each and len(each) == 2 for each in asked)


def reporting(number: int) -> Trial:
    return Trial(id=number, sweep_id=1, number=number, params={}, seed=0, owner="me")


def report(number: int, step: int, cost_seconds: float | None = None) -> TrialProgress:
    points = (Measurement(steps=step, elapsed_seconds=float(step), score=0.5),)
    return TrialProgress(
        trial=Trial(id=number, sweep_id=1, number=number, params={}, seed=0, owner="me"),
        measurements=points,
        cost_seconds=cost_seconds,
    )


def test_neighbouring_reports_of_a_trial_are_one() -> None:
    end = Finished(
        trial=Trial(id=0, sweep_id=1, number=0, params={}, seed=0, owner="me"),
        outcome=Outcome(end=TrialEnd.COMPLETE, score=1.0, cost_seconds=9.0),
    )
    events: list[TrialProgress | Finished] = [
        report(0, 1, 1.0),
        report(0, 2, 2.0),
        report(0, 3),
        report(1, 1),
        report(0, 4),
        end,
        report(1, 2),
    ]
    found = joined(events)
    steps = [[p.steps for p in one.measurements] if isinstance(one, TrialProgress) else None for one in found]
    assert steps == [[1, 2, 3], [1], [4], None, [2]]
    assert [one.cost_seconds for one in found if isinstance(one, TrialProgress)] == [2.0, None, None, None]
    assert [one.trial.number for one in found] == [0, 1, 0, 0, 1]
    assert found[3] is end
    assert joined([]) == []


def test_a_path_among_the_places_of_modules_does_not_keep_a_trial_from_starting(
    local: TrainerBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python passes over what is no text there."""
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path])
    local.start(job(tmp_path))
    assert wait(local)[0].outcome.end is TrialEnd.COMPLETE


def test_a_child_that_hangs_in_the_kernel_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals are held back from it, as where it waits for a file system that is away."""
    monkeypatch.setattr(fork_server, "ORPHANS_SECONDS", 0.05)
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"]) as child:
        monkeypatch.setattr(fork_server, "_children", lambda: [child.pid])
        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", lambda pid, number: None)
            fork_server._kill_children(set())
        fork_server._kill_children(set())  # it is not waited for again
        assert child.poll() is None
        child.kill()
    fork_server._stuck.discard(child.pid)


def function_record(paused: float, ended_at: float) -> FunctionRecord:
    """Of a function that was called at 1 s on the clock, and was stopped for some seconds since."""
    backend: Any = SimpleNamespace(costs_are_reported=False)
    record = FunctionRecord(backend, job(Path()))
    record._began = 1.0
    record.process = SimpleNamespace(ended_at=ended_at, paused_seconds=lambda since, until: paused)  # type: ignore[assignment]
    return record


def test_a_function_that_is_stopped_between_its_clock_and_its_report_has_cost_nothing_less() -> None:
    record = function_record(paused=5.0, ended_at=math.inf)
    point = Measurement(steps=1, elapsed_seconds=0.5, score=1.0, metrics={})
    record._take_progress(TrialProgress(trial=record.job.trial, cost_seconds=0.5, measurements=(point,)), 6.5)
    assert record.last is not None and record.last.elapsed_seconds == 0.0


def test_a_function_that_has_ended_costs_nothing_more_however_late_the_sweep_looks() -> None:
    assert function_record(paused=0.0, ended_at=4.0).wall_cost(3600.0) == 3.0

"""The command line as a process: what another program reads from it, signals, exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from event_log import ONE_MEASUREMENT
from patience import PATIENCE_SECONDS

from protein.trainer.__main__ import main
from protein.trainer.events import JsonLines

pytestmark = pytest.mark.usefixtures("warm")

SMALL = {
    "env": {"num_envs": 16, "frame_skip": 16},
    "policy": {"hidden_size": 8},
    "train": {"total_timesteps": 20_000, "threads": 1, "horizon": 32, "minibatch_size": 128},
    "eval": {"episodes": 4, "num_envs": 4},
}


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "protein.trainer", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | environment,
    )


class Command:
    """Runs the command in this process, which has loaded torch: for what it writes and answers alone."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Returns the exit code, what it wrote to stdout, and what to stderr."""
        stdout, handlers = os.dup(1), {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self._capfd.readouterr()
        try:
            code = main(list(arguments))
        finally:
            sys.stdout.flush()
            os.dup2(stdout, 1)
            os.close(stdout)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        printed = self._capfd.readouterr()
        return code, printed.out, printed.err


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(capfd)


def write_config(tmp_path: Path, **train: Any) -> str:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(SMALL | {"train": SMALL["train"] | train}))
    return str(file)


def test_time_in_which_the_process_is_stopped_costs_nothing(tmp_path: Path) -> None:
    process = start("--config", write_config(tmp_path, total_timesteps=10**9, max_seconds=2.0))
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["event"] == "start"
    time.sleep(0.5)  # it is not in its first step any more: of that nothing tells how long it should take
    process.send_signal(signal.SIGSTOP)
    time.sleep(4.0)
    process.send_signal(signal.SIGCONT)
    after = time.monotonic()
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    result = json.loads(out.splitlines()[-1])
    assert process.returncode == 0, err
    assert 2.0 <= result["elapsed_seconds"] < 3.0
    assert time.monotonic() - after > 1.0  # it has trained since


def test_stdout_is_json_lines_and_flags_override_the_file(tmp_path: Path) -> None:
    flags = ["--directory", str(tmp_path / "run"), "--train.total-timesteps", "1024", "--speed", str(ONE_MEASUREMENT)]
    process = start("--config", write_config(tmp_path), *flags)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events] == ["start", "measurement", "result"]
    assert events[-1]["steps"] == 1024
    assert Path(events[-1]["checkpoint"]).is_file()
    assert events[0]["startup_seconds"] > 0


def test_a_profile_and_a_trace_add_up_to_the_training(tmp_path: Path, command: Command) -> None:
    trace = tmp_path / "trace.json"
    code, out, err = command("--config", write_config(tmp_path), "--profile", "--trace", str(trace))
    assert code == 0, err
    table = [line for line in err.splitlines() if not line.startswith("warning: ")][1:]
    rows = {line[:19].strip(): float(line[19:].split()[0]) for line in table}
    assert [json.loads(line)["event"] for line in out.splitlines()][-1] == "result"
    total = rows.pop("sum")
    assert rows.pop("wall clock") >= total > 0
    assert {"environment", "rollout forward", "update forward", "update backward", "optimizer"} <= set(rows)
    assert sum(rows.values()) == pytest.approx(total, abs=0.005)
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert sum(event["dur"] for event in events) * 1e-6 == pytest.approx(total, abs=0.005)
    named = {event["name"].replace("_", " ") for event in events}
    assert {name for name, spent in rows.items() if spent} <= named <= set(rows)


def test_a_trace_that_cannot_be_written_is_said_before_training(tmp_path: Path, command: Command) -> None:
    code, out, err = command("--config", write_config(tmp_path), "--trace", "/proc/none/trace.json")
    assert (code, out) == (2, "")
    assert err.startswith("error: --trace /proc/none/trace.json cannot be written (No such file or directory)")


def test_a_run_that_fails_leaves_no_trace_file(tmp_path: Path, command: Command) -> None:
    trace, nothing = tmp_path / "trace.json", tmp_path / "nothing.safetensors"
    code, out, err = command("--config", write_config(tmp_path), "--trace", str(trace), "--resume", str(nothing))
    assert code != 0 and "nothing.safetensors" in err and out
    assert not trace.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_in_order(tmp_path: Path, number: signal.Signals) -> None:
    config = write_config(tmp_path, total_timesteps=2_000_000)
    process = start("--config", config, "--directory", str(tmp_path / "run"))
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]  # it has begun, and trains
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    events = [json.loads(line) for line in lines + out.splitlines()]
    assert process.returncode == 130, err
    assert events[0]["event"] == "start" and events[-1]["event"] == "interrupted"
    assert {event["event"] for event in events[1:-1]} == {"measurement"}
    assert events[-1]["steps"] >= events[1]["steps"] > 0
    assert (tmp_path / "run" / "checkpoint.safetensors").is_file()


def test_it_ends_when_nobody_listens_any_more(tmp_path: Path) -> None:
    process = start("--config", write_config(tmp_path, total_timesteps=2_000_000), PYTHONWARNINGS="default")
    assert process.stdout is not None and process.stderr is not None
    try:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=PATIENCE_SECONDS) == 1
        assert process.stderr.read() == "error: the reader of the events closed its end: stopped\n"
    finally:
        process.kill()
        process.stderr.close()


def test_bad_usage_is_one_line_and_exit_code_2(tmp_path: Path, command: Command) -> None:
    code, out, err = command("--config", write_config(tmp_path, gama=0.9))
    assert code == 2
    assert err.count("\n") == 1 and err.startswith("error: ") and "did you mean 'gamma'" in err
    event = json.loads(out)
    assert (event["event"], event["reason"]) == ("failed", "config")


def test_work_that_fails_is_exit_code_1(tmp_path: Path, command: Command) -> None:
    code, out, err = command("--config", write_config(tmp_path, learning_rate=1e30))
    assert code == 1
    last = json.loads(out.splitlines()[-1])
    assert (last["event"], last["reason"]) == ("failed", "diverged")
    assert err.count("\n") == 1 and err.startswith("error: diverged at step")


def test_an_environment_that_raises_is_one_line_and_its_traceback_is_in_the_log(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "falling.py").write_text(
        "class Falling:\n"
        "    observation_shape, action_sizes = (1,), (2,)\n"
        "    def __init__(self, num_envs, **_): self.num_envs = num_envs\n"
        "    def reset(self, seed, observations): observations[:] = 0\n"
        "    def step(self, *arrays): self.lower()\n"
        "    def lower(self): raise ValueError('no\\nfloor')\n"
    )
    config = Path(write_config(tmp_path))
    config.write_text(json.dumps(json.loads(config.read_text()) | {"env": {"name": "python:falling:Falling"}}))
    code, out, err = command("--config", str(config))
    assert code == 1
    last = json.loads(out.splitlines()[-1])
    told = f"'python:falling:Falling' failed in step: ValueError: no floor ({tmp_path / 'falling.py'}, line 6)"
    assert (last["event"], last["reason"], last["message"]) == ("failed", "environment", told)
    assert err.splitlines()[-1] == f"error: {told}"
    assert ", line 5, in step" in err and ", line 6, in lower" in err, "how it came there"


@pytest.mark.usefixtures("cold")
def test_help_answers_without_loading_torch() -> None:
    code = (
        "import sys, runpy; sys.argv = ['protein.trainer', '--help']\n"
        "try: runpy.run_module('protein.trainer', run_name='__main__')\n"
        "except SystemExit: assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--train.learning-rate" in done.stdout + done.stderr


def test_numbers_that_json_lacks_become_null() -> None:
    class Stream:
        text = ""
        flushed = 0

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None:
            self.flushed += 1

    stream = Stream()
    JsonLines(stream)({"event": "x", "a": float("nan"), "b": {"c": [1.5, float("-inf")]}, "d": None})  # type: ignore[arg-type]
    assert stream.text.endswith("\n") and stream.flushed == 1
    assert json.loads(stream.text) == {"event": "x", "a": None, "b": {"c": [1.5, None]}, "d": None}

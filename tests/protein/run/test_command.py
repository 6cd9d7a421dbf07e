"""What only commands do. What every backend does is in tests/contracts/test_backends.py.

How their scores are read is in `test_command_scores.py`.
"""

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_jobs import PYTHON, command_backend, command_notes, job, outcome, python, run, wait  # noqa: F401 (fixtures)

from protein.ports import Finished, Job
from protein.run.command import CommandBackend
from protein.types import CONTINUABLE, CONTINUABLE_SECONDS, Direction, Resources, TrialEnd

ASSETS = Path(__file__).parents[2] / "assets"


def test_a_program_in_c_is_a_trial(backend: CommandBackend, tmp_path: Path) -> None:
    program = tmp_path / "report"
    subprocess.run(["cc", "-o", program, ASSETS / "report.c"], check=True)
    points, finished = run(backend, job(tmp_path, f"{program} {{rate}}", params={"rate": 0.75}))
    assert points == [(10, 0.75), (20, 0.75), (30, 0.75)]
    assert (finished.outcome.end, finished.outcome.score, finished.outcome.steps) == (TrialEnd.COMPLETE, 0.75, 30)
    assert finished.outcome.cost_seconds > 0
    assert finished.outcome.timings["cpu"] >= 0


def styled(one: Job, style: str) -> Job:
    """Returns a job whose parameters are passed in another way."""
    settings = {**one.config["command"], "params": style}
    return dataclasses.replace(one, config={**one.config, "command": settings})


def test_a_shell_script_reports_on_the_descriptor_and_gets_its_environment(
    backend: CommandBackend, tmp_path: Path
) -> None:
    points, finished = run(backend, styled(job(tmp_path, str(ASSETS / "report.sh"), params={"rate": 0.5}), "env"))
    assert (points, finished.outcome.score) == ([(1, 0.5)], 0.5)
    log = (tmp_path / "0" / "trial.log").read_text()
    assert "training with rate 0.5" in log and '"level": "info"' in log, "an object without a score is text"


def test_a_program_gets_its_parameters_as_flags_and_in_a_file(backend: CommandBackend, tmp_path: Path) -> None:
    code = """
import os, sys, json
params = json.load(open(os.environ["PROTEIN_PARAMS_FILE"]))
open("seen", "w").write(repr((sys.argv[1:], params, os.environ["PROTEIN_SEED"])))
print(json.dumps({"score": 1}))
"""
    params = {"learning_rate": 1e-05, "on": True, "name": "a b; $(c) {d}"}
    one = job(tmp_path, python(code), params=params, chdir="{directory}", fixed={"size": 3})
    for style, flag in (("flags", "--learning_rate"), ("dashes", "--learning-rate")):
        assert outcome(backend, styled(one, style)).end is TrialEnd.COMPLETE
        words = [flag, "1e-05", "--on", "True", "--name", "a b; $(c) {d}"]
        seen = (tmp_path / "0" / "seen").read_text()
        assert seen == repr((["--size", "3", *words], {"size": 3, **params}, "7"))


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_a_program_inherits_the_descriptor_for_its_reports_and_no_other(
    backend: CommandBackend, tmp_path: Path
) -> None:
    code = """
import os
print(os.environ["PROTEIN_REPORT_FD"], *os.listdir("/proc/self/fd"))
print('{"score": 1}')
"""
    assert outcome(backend, job(tmp_path, python(code))).score == 1
    report, *found = (tmp_path / "0" / "trial.log").read_text().splitlines()[0].split()
    listing = next(number for number in map(str, range(3, 99)) if number != report)  # that of /proc itself
    assert sorted(found) == sorted(["0", "1", "2", report, listing])


def test_argparse_takes_no_value_for_a_flag(backend: CommandBackend, tmp_path: Path) -> None:
    code = """
import argparse
parser = argparse.ArgumentParser()
for name in ("--x", "--y"):
    parser.add_argument(name, type=float)
print('{"score": %r}' % sum(vars(parser.parse_args()).values()))
"""
    one = styled(job(tmp_path, python(code), params={"x": -5.5e-05, "y": -1e16}), "flags")
    assert outcome(backend, one).score == -5.5e-05 - 1e16


def test_python_reports_where_a_launcher_closes_the_descriptor(backend: CommandBackend, tmp_path: Path) -> None:
    inner = (
        "import protein; protein.report(5, 0.5, loss=0.1, metrics={'run/gb': 3}); protein.report(6, None);"
        "protein.report_result(0.75, cost_seconds=4, metrics={'run/gb': 4, 'bad': float('nan')}, loss=0.2)"
    )
    words = f"[sys.executable, '-c', {inner!r}]"
    code = f"import subprocess, sys; sys.exit(subprocess.run({words}, close_fds=True).returncode)"
    points, finished = run(backend, job(tmp_path, python(code)))
    assert points == [(5, 0.5), (6, None)]
    assert (finished.outcome.score, finished.outcome.cost_seconds) == (0.75, 4.0)
    assert finished.outcome.metrics == {"run/gb": 4.0, "loss": 0.2}


def test_python_knows_its_trial(backend: CommandBackend, tmp_path: Path) -> None:
    code = (
        "import protein; t = protein.trial(); (t.checkpoint_directory / 'x').write_text('1');"
        "protein.report(1, t.params['a'] + t.seed + t.number + t.resumes)"
    )
    one = job(tmp_path, f"{PYTHON} -c {shlex.quote(code)}", 2, {"a": 0.5})
    finished = run(backend, one)[1]
    assert finished.outcome.score == 9.5
    assert (tmp_path / "2" / "checkpoint" / "x").is_file()
    again = dataclasses.replace(one, resumes=tmp_path / "2" / "checkpoint", spent_seconds=100.0)
    resumed = run(backend, again)[1].outcome
    assert resumed.score == 10.5
    assert 100.0 < resumed.cost_seconds < 160.0, "the cost is that of the whole trial"


def test_a_trial_that_resumes_gets_its_flag_and_keeps_its_checkpoint(backend: CommandBackend, tmp_path: Path) -> None:
    code = """
import sys, pathlib
files = list(pathlib.Path(sys.argv[-1]).iterdir())
print('{"score": %d}' % (10 * len(sys.argv) + len(files)))
"""
    text = f"{PYTHON} -S -c {shlex.quote(code)}".replace("{", "{{").replace("}", "}}") + " {directory}/checkpoint"
    one = job(tmp_path, text, resume="--resume {checkpoint}")
    assert outcome(backend, one).score == 20, "one argument, an empty folder"
    (tmp_path / "0" / "checkpoint" / "weights").write_text("w")
    resumed = dataclasses.replace(one, resumes=tmp_path / "0" / "checkpoint")
    assert outcome(backend, resumed).score == 41
    assert outcome(backend, one).score == 20, "what an earlier sweep has left is not its own"


@pytest.mark.parametrize(
    ("code", "settings", "end", "reason"),
    [
        ("print('hello')", {}, TrialEnd.MISTAKE, "exited without a score: it printed no line such as"),
        (
            "print('hello')",
            {"score_from": "regex", "score": "acc (.*)"},
            TrialEnd.MISTAKE,
            "exited without a score: no line matched 'acc (.*)'; its last line: hello",
        ),
        (
            "print('hello')",
            {"score_from": "csv", "score": "acc", "file": "a.csv"},
            TrialEnd.MISTAKE,
            "exited without a score: it wrote no file a.csv in its folder",
        ),
        ("print('{\"score\": NaN}')", {}, TrialEnd.DIVERGED, "its last score is nan"),
        ('print(\'{"score": "high"}\')', {}, TrialEnd.DIVERGED, "its last score is 'high', which is no number"),
        ("print('{\"score\": [1, 2]}')", {}, TrialEnd.DIVERGED, "its last score is [1, 2], which is no number"),
        (
            "print('acc: ' + 50 * 'x')",
            {"score_from": "regex", "score": "acc: (.*)"},
            TrialEnd.DIVERGED,
            f"its last score is '{40 * 'x'}...', which is no number",
        ),
        (
            "print('hello')",
            {"score_from": "regex", "score": r"acc: (\S+)"},
            TrialEnd.MISTAKE,
            r"exited without a score: no line matched 'acc: (\S+)'; its last line: hello",
        ),
        ("raise SystemExit('no such level')", {}, TrialEnd.USER_ERROR, "exited with code 1: no such level"),
        ("raise OSError(22, 'Invalid argument')", {}, TrialEnd.USER_ERROR, "exited with code 1: OSError: [Errno 22]"),
        ("raise MemoryError('1 GiB')", {}, TrialEnd.OUT_OF_MEMORY, "exited with code 1: MemoryError: 1 GiB"),
        (
            "raise OSError(28, 'No space left on device')",
            {},
            TrialEnd.DISK,
            "exited with code 1: OSError: [Errno 28] No space left on device; free some space",
        ),
        ("import os; os.kill(os.getpid(), 11)", {}, TrialEnd.CRASHED, "killed by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 40)", {}, TrialEnd.CRASHED, "killed by signal 40"),  # it has no name
        ("import os; os.kill(os.getpid(), 15)", {}, TrialEnd.INTERRUPTED, "preempted: SIGTERM from outside ended it"),
    ],
)
def test_a_command_that_fails_says_how(
    backend: CommandBackend, tmp_path: Path, code: str, settings: dict[str, Any], end: TrialEnd, reason: str
) -> None:
    found = outcome(backend, job(tmp_path, python(code), **settings))
    assert (found.end, found.score) == (end, None)
    assert found.reason.startswith(reason)
    assert "\n" not in found.reason


def test_a_score_may_be_a_text_that_is_a_number(backend: CommandBackend, tmp_path: Path) -> None:
    found = outcome(backend, job(tmp_path, python('print(\'{"score": "0.25"}\')')))  # json.dumps(..., default=str)
    assert (found.end, found.score) == (TrialEnd.COMPLETE, 0.25)


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        (
            '{"epoch": 3, "val_acc": 0.5, "note": "x"}',
            "; its last line has epoch, val_acc, and --score-regex '\"val_acc\": ([^,}]+)' would read 'val_acc' as the"
            " score",
        ),
        ("accuracy is 0.5", "; its last line: accuracy is 0.5"),
        ('{"note": "x"}', '; its last line: {"note": "x"}'),
        ("", "; it printed nothing"),
    ],
)
def test_a_program_that_prints_no_score_is_told_what_would_read_it(
    backend: CommandBackend, tmp_path: Path, line: str, rest: str
) -> None:
    found = outcome(backend, job(tmp_path, python(f"print({line!r})")))
    assert found.reason.endswith(f"read programs as they are{rest}")
    pattern = re.search("--score-regex '(.*)' would", found.reason)
    if pattern is not None:
        read = outcome(backend, job(tmp_path, python(f"print({line!r})"), 1, score_from="regex", score=pattern[1]))
        assert read.score == 0.5


def test_a_program_that_is_not_there_says_so(backend: CommandBackend, tmp_path: Path) -> None:
    found = outcome(backend, job(tmp_path, "/no/such/program"))
    assert (found.end, found.reason) == (
        TrialEnd.MISTAKE,
        "'/no/such/program' cannot be started: No such file or directory (/no/such/program)",
    )
    missing = outcome(backend, job(tmp_path, "no-such-program", 1)).reason
    assert missing.startswith("'no-such-program' cannot be started: No such file or directory"), missing
    assert "b'" not in missing, "a file's name is text"


def test_silence_ends_a_command(tmp_path: Path) -> None:
    backend = CommandBackend(Direction.MAXIMIZE, silence_seconds=0.5)
    found = outcome(backend, job(tmp_path, python("import time; time.sleep(600)")))
    backend.close()
    assert found.end is TrialEnd.HUNG
    assert found.reason.startswith("killed after 0 s without a sign of life")


def test_the_log_keeps_to_its_limit(backend: CommandBackend, tmp_path: Path) -> None:
    code = "import sys; [sys.stderr.write('x' * 1023 + '\\n') for _ in range(20 * 1024)]; print('{\"score\": 1}')"
    assert outcome(backend, job(tmp_path, python(code))).score == 1
    assert (tmp_path / "0" / "trial.log").stat().st_size <= 17 * 2**20


def test_gpu_memory_over_the_limit_ends_the_trial(tmp_path: Path) -> None:
    asked: list[int] = []

    def used_bytes(pids: Any) -> int:
        asked.extend(pids)
        return 3 << 30 if asked else 0

    backend = CommandBackend(Direction.MAXIMIZE, gpu_memory=used_bytes)
    one = job(tmp_path, python("import time; time.sleep(600)"))
    found = outcome(backend, dataclasses.replace(one, resources=Resources(max_gpu_memory_bytes=2 << 30)))
    backend.close()
    assert (found.end, found.reason) == (
        TrialEnd.OUT_OF_MEMORY,
        "killed at 3.0 GiB of GPU memory, over its limit of 2.0 GiB",
    )


def test_a_trial_keeps_to_its_cores(backend: CommandBackend, tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    code = "import os; print('{\"score\": %d}' % (100 * len(os.sched_getaffinity(0)) + min(os.sched_getaffinity(0))))"
    one = job(tmp_path, python(code))
    assert outcome(backend, dataclasses.replace(one, resources=Resources(cores=(core,)))).score == 100 + core


def test_a_link_in_the_trials_folder_is_not_written_through(backend: CommandBackend, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("kept")
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "checkpoint").symlink_to(precious)
    (tmp_path / "0" / "params.json").symlink_to(precious / "data")
    assert outcome(backend, job(tmp_path, python("print('{\"score\": 1}')"))).score == 1
    assert (precious / "data").read_text() == "kept"


def test_what_a_complete_trial_leaves_can_be_continued(backend: CommandBackend, tmp_path: Path) -> None:
    code = """
import os
path = os.environ["PROTEIN_CHECKPOINT_DIR"] + "/n"
before = len(open(path).read()) if os.path.exists(path) else 0
open(path, "w").write("x" * (before + 1))
print('{"score": %d}' % before)
"""
    finished = run(backend, job(tmp_path, python(code)))[1]
    left = next(Path(one.path) for one in finished.artifacts if one.kind == CONTINUABLE)
    assert finished.outcome.metrics[CONTINUABLE_SECONDS] == finished.outcome.cost_seconds
    more = run(backend, dataclasses.replace(job(tmp_path, python(code), 1), continues=left))[1]
    assert more.outcome.score == 1
    assert (left / "n").read_text() == "x", "what it goes on from stays as it is"


def test_the_config_of_a_trial_holds_its_words(backend: CommandBackend, tmp_path: Path) -> None:
    run(backend, job(tmp_path, "/bin/echo {a}", params={"a": 2}))
    kept = json.loads((tmp_path / "0" / "config.json").read_text())
    assert (kept["words"], kept["params"], kept["seed"]) == (["/bin/echo", "2"], {"a": 2}, 7)


def test_costs_are_in_seconds_of_the_reference_machine(backend: CommandBackend, tmp_path: Path) -> None:
    code = 'print(\'{"score": 1, "cost_seconds": 2}\'); print(\'{"score": 2, "cost_seconds": 3}\')'
    one = dataclasses.replace(job(tmp_path, python(code)), speed=4.0, spent_seconds=100.0)
    backend.start(one)
    costs: list[float] = []
    while True:
        for event in backend.poll(0.1):
            if isinstance(event, Finished):
                assert event.outcome.cost_seconds == 112.0
                assert costs == [108.0, 112.0]
                return
            costs += [point.elapsed_seconds for point in event.measurements]

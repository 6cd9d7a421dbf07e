"""`protein sweep --command` from the command line, with real programs."""

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest
import store_samples
from patience import wait_until

from protein import storage
from protein.api.command_sweep import short_name
from protein.cli import main
from protein.run import lease
from protein.run.command import CommandBackend
from protein.sweep.launching import Launcher
from protein.sweep.resuming import Place
from protein.sweep.trials import SweepTrials
from protein.types import Outcome, SuggestionKind, Trial, TrialEnd, TrialRecord, TrialState

pytestmark = pytest.mark.usefixtures("warm")

PROGRAM = """
import argparse, math
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--steps", type=int)
given = parser.parse_args()
for step in range(1, 4):
    print("step", step * given.steps, "loss:", abs(math.log10(given.lr) + 2) / step)
"""
SPACE = """
cost_parameter = "steps"
direction = "minimize"
[space]
lr = { value = 1e-4, min = 1e-5, max = 1e-1, scale = "log" }
steps = { min = 10, max = 1000, scale = "log" }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROTEIN_STORE", raising=False)
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "space.toml").write_text(SPACE)
    return tmp_path


def command(text: str = "{python} -S train.py --lr {{lr}} --steps {{steps}}") -> str:
    return text.format(python=sys.executable)


def sweep(*words: str, text: str | None = None, trials: int = 3) -> int:
    reading = ["--score-regex", r"loss: (\S+)", "--steps-regex", r"step (\d+)"]
    given = ["--command", command() if text is None else text, "--space", "space.toml", "--max-trials", str(trials)]
    return main(["sweep", *given, *reading, "--calibrate", "False", *words])


def refused(capsys: pytest.CaptureFixture[str], *words: str, text: str | None = None, trials: int = 3) -> str:
    assert sweep(*words, text=text, trials=trials) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ") and "\n" not in error
    return error


def test_a_program_that_says_nothing_any_more_fails_for_its_params(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    """Where others of the sweep have had a score, also in an earlier run; ten of them in a row end the sweep."""
    assert sweep() == 0
    (folder / "train.py").write_text("pass\n")
    assert sweep(trials=40) == 1
    store = storage.open_store("sqlite:///runs/protein.db")
    record = store.find_sweep("train")
    assert record is not None
    trials = store.trials(record.id)[3:]
    store.close()
    assert [trial.end for trial in trials] == [TrialEnd.CRASHED] * 10
    assert len({tuple(sorted(trial.params.items())) for trial in trials}) == 10
    assert "10 trials in a row failed" in capsys.readouterr().out


def test_a_refused_command_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep() == 0
    store = storage.open_store("sqlite:///runs/protein.db")
    record = store.find_sweep("train")
    assert record is not None
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        store_samples.start(store, record, lease.owner_of(process.pid))
        changed = command("{python} -S -u train.py --lr {{lr}} --steps {{steps}}")
        assert "is being run by process" in refused(capsys, "--accept-changes", text=changed, trials=5)
    finally:
        process.communicate()
    after = store.find_sweep("train")
    store.close()
    assert after is not None and after.spec.config == record.spec.config


def test_a_program_is_swept_and_every_view_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep() == 0
    out = capsys.readouterr().out
    assert re.search(r"^sweep 'train': 2 values are searched, .*; searched: lr 1e-05 to 0.1 .log., steps ", out, re.M)
    assert "trial 0: score 0.667" in out, (
        "the config of the file is the first, and scores are as the program knows them"
    )
    assert "run the recommended config (trial " in out
    assert main(["best", "train", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)
    lr, steps = best["params"]["lr"], best["params"]["steps"]
    assert best["command"] == f"{sys.executable} -S train.py --lr {lr!r} --steps {steps}"
    for words in (
        ["best", "train"],
        ["status"],
        ["status", "train"],
        ["show", "train"],
        ["show", "train", "--trial", "0"],
        ["pareto", "train"],
        ["plot", "front", "train"],
        ["plot", "curves", "train"],
        ["report", "train"],
    ):
        assert main(words) == 0, words
        assert "-0." not in capsys.readouterr().out, "a loss is shown as the program knows it"


@pytest.mark.parametrize("same_errors", [False, True], ids=["stdout", "stdout and stderr"])
def test_a_sweep_goes_on_where_nobody_reads_its_output_any_more(
    same_errors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `protein sweep ... | head -1`, which may well be started for a night; and with `2>&1`."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as out, open(os.dup(writer), "w") as errors:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", out)
        if same_errors:
            monkeypatch.setattr(sys, "stderr", errors)
        assert sweep(trials=1) == 0
    store = storage.open_store("sqlite:///runs/protein.db")
    record = store.find_sweep("train")
    assert record is not None and record.ended == "the limit of 1 trial is reached"
    assert [trial.end for trial in store.trials(record.id)] == [TrialEnd.COMPLETE]
    store.close()


def test_the_same_command_again_resumes(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep() == 0
    assert sweep(trials=4) == 0
    assert "sweep 'train' is resumed: 3 trials so far" in capsys.readouterr().out
    assert main(["show", "train", "--json"]) == 0
    assert [trial["state"] for trial in json.loads(capsys.readouterr().out)["trials"]] == ["complete"] * 4


def test_a_changed_command_is_refused_and_may_be_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(trials=1) == 0
    changed = command("{python} -S -B train.py --lr {{lr}} --steps {{steps}}")
    error = refused(capsys, text=changed)
    assert f"sweep 'train' exists with --command = {command()} (now {changed})" in error
    assert error.endswith("or go on with the new ones by --accept-changes")
    assert "--accept-exit-codes = none (now 1; 134)" in refused(capsys, "--accept-exit-codes", "134,1")
    assert sweep("--accept-changes", text=changed, trials=2) == 0
    assert sweep(text=changed, trials=3) == 0, "the new one is stored"
    capsys.readouterr()
    assert main(["best", "train"]) == 0
    assert f"{sys.executable} -S -B train.py --lr" in capsys.readouterr().out


def test_a_changed_space_is_refused_in_any_case(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep() == 0
    (folder / "space.toml").write_text(SPACE.replace("max = 1000", "max = 2000"))
    error = refused(capsys, "--accept-changes")
    assert "steps = swept from 10 to 1000 (log) (now swept from 10 to 2000 (log))" in error
    assert "--accept-changes" not in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{python} train.py --lr {{lr}}", "--command has no placeholder for the parameter 'steps'"),
        (
            "{python} train.py --lr {{lr}} --steps {{stesp}}",
            "the placeholder {stesp}, but no parameter is called so; did",
        ),
        ("awk 'BEGIN {{ print 1 }}' {{lr}} {{steps}}", "; write {{ and }} for braces of the program"),
        ("{python} train.py --lr {{lr", "a single { in '{lr'; write {{ for a brace"),
        ("{python} train.py '--lr {{lr}}", "cannot be split into words: No closing quotation"),
        ("", "--command is empty"),
        ("no-such-program --lr {{lr}} --steps {{steps}}", "there is no program 'no-such-program'"),
    ],
)
def test_a_command_that_cannot_work_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    assert message in refused(capsys, text=command(text))
    assert not (folder / "runs").exists(), "nothing is stored"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "pong"], "--env is for our trainer"),
        (["--train.learning-rate", "0.1"], "--train.learning-rate is a value of our trainer"),
        (["--score-csv", "a.csv:b"], "--score-regex and --score-csv are two ways to read the score; give one"),
        (["--params", "flgs"], "--params 'flgs' is unknown; did you mean 'flags'?"),
        (["--direction", "up"], "--direction 'up' must be maximize or minimize"),
        (["--score-range", "0"], "--score-range '0' must be LOWEST,HIGHEST, as in 0,1; leave out an end that is open"),
        (["--score-range", "0,one"], "--score-range '0,one' must be LOWEST,HIGHEST"),
        (["--score-range", "1,0"], "--score-range: the lowest score 1.0 is not below the highest 0.0; swap them"),
        (["--score-range", ","], "--score-range has two open ends, so it says nothing; leave it out"),
        (["--score-range", "nan,1"], "--score-range: nan is not a number"),
        (["--accept-exit-codes", "1,x"], "'x' must be a number from 1 to 255, as in 1,134; 0 is always accepted"),
        (["--accept-exit-codes", "256"], "'256' must be a number from 1 to 255"),
        (["--resume-flag", "--resume {chekpoint}"], "the placeholder {chekpoint}, but no parameter is called so; did"),
        (["--score-regex", "loss"], "--score-regex 'loss' has no group"),
        (["--score-regex", r"\S+"], r"--score-regex '\S+' has no group"),
        (["--score-regex", "(loss"], "--score-regex '(loss' is no regular expression"),
        (["--require", "gb <= 8 GB"], "--require 'gb <= 8 GB': '8 GB' is no number (without a unit)"),
        (["--require", "a <= 1", "--require", "a >= 2"], "--require: no value keeps both 'a <= 1' and 'a >= 2'"),
        (["--metric-regex", "gb"], "--metric-regex 'gb' must be NAME=REGEX"),
        (["--metric-regex", "gb=peak"], "--metric-regex gb= 'peak' has no group"),
        (["--metric-regex", r"score=(\S+)"], "score is no metric; --score-regex reads it"),
        (["--metric-regex", r"a=(\S+)", "--metric-regex", r"a=(\d)"], "--metric-regex gives 'a' twice"),
        (["--space", "none.toml"], "--space none.toml: no such file"),
        (["--max-silence", "soon"], "--max-silence"),
    ],
)
def test_flags_that_cannot_work_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert message in refused(capsys, *words)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("PROTEIN_SEED", "Protein sets it itself"),
        ("PATH", "the program's start depends on it"),
        ("LD_PRELOAD", "the program's start depends on it"),
        ("PYTHONPATH", "the program's start depends on it"),
    ],
)
def test_a_parameter_cannot_be_a_variable_that_has_another_meaning(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    (folder / "space.toml").write_text(f"[space]\n{name} = {{ min = 1, max = 10 }}\n")
    error = refused(capsys, "--params", "env", text="sh -c 'echo loss: 1'")
    assert error == (
        f"error: parameter '{name}' cannot be an environment variable of the program: {why}; rename it, or use"
        " --params json"
    )
    assert not (folder / "runs").exists(), "nothing is stored"
    assert sweep("--params", "env", text=f"sh -c 'echo loss: {{{name}}}'", trials=1) == 0, "a placeholder takes it"


def test_two_parameters_are_not_the_same_variable(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "space.toml").write_text("[space]\n'a.b' = { min = 1, max = 10 }\na__b = { min = 1, max = 10 }\n")
    error = refused(capsys, "--params", "env", text="sh -c 'echo loss: 1'")
    assert "parameter 'a__b' cannot be an environment variable of the program: 'a.b' is a__b, too; rename it" in error


def test_flags_of_a_command_need_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--env", "cartpole", "--score-csv", "a.csv:b"]) == 2
    assert "--score-csv goes with --command" in capsys.readouterr().err


def test_a_command_that_never_reports_ends_the_sweep_at_its_first_trial(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hooks = ["--on-trouble", "echo $PROTEIN_REASON >> told", "--on-finish", "echo finished >> told"]
    assert sweep("--score-regex", "accuracy (.*)", *hooks) == 2
    printed = capsys.readouterr()
    error = printed.err.strip()
    assert re.search(r" trial 0: failed after \S+s: exited without a score;", printed.out), printed.out
    assert "trial 0: exited without a score: no line matched 'accuracy (.*)'; its last line: step" in error
    assert error.endswith("Correct it and run the sweep again, with --accept-changes")
    assert (folder / "told").read_text() == f"{error}\n"
    assert main(["status"]) == 0
    assert error in capsys.readouterr().out, "why it ended is known later, too"
    assert sweep("--accept-changes", trials=4) == 0
    assert main(["show", "train", "--json"]) == 0
    out = capsys.readouterr().out
    assert [trial["state"] for trial in json.loads(out[out.index("{") :])["trials"]].count("complete") == 3


def test_a_budget_smaller_than_any_trial_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "slow.py").write_text("import time; time.sleep(60)")
    text = f"{sys.executable} -S slow.py {{lr}} {{steps}}"
    error = refused(capsys, "--max-cost", "0.1s", "--name", "slow", text=text, trials=100)
    said = (
        r"error: the budget of 0\.1s is smaller than one trial: (its only trial was|all \d trials were) stopped, after"
    )
    assert re.fullmatch(said + r" [\d.]+s at most; try --max-cost 1m", error), error


def test_a_script_without_its_interpreter_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, text="train.py --lr {lr} --steps {steps}")
    assert error == "error: --command: 'train.py' is a file here and no program; write 'python train.py ...'"


def test_a_sweep_file_of_wandb_says_everything(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sweep.yaml").write_text(
        "program: train.py\ncommand: ['${interpreter}', '-S', '${program}', '${args}']\nmethod: bayes\nrun_cap: 2\n"
        "metric: {name: loss, goal: minimize}\n"
        "parameters:\n  lr: {min: 0.001, max: 0.1}\n  steps: {values: [8, 16, 32]}\n"
    )
    words = ["--space", "sweep.yaml", "--score-regex", r"loss: (\S+)", "--calibrate", "False"]
    assert main(["sweep", *words]) == 0
    out = capsys.readouterr().out
    assert "note: --space sweep.yaml: 'method: bayes' is not taken over" in out
    assert "note: 2 trials at most, as the space file says (--max-trials)" in out
    first = next(line for line in out.splitlines() if line.startswith("sweep "))
    assert first.endswith("; searched: lr 0.001 to 0.1, steps 8 to 32 (pow2)")
    assert "python -S train.py --lr=0." in out
    (folder / "sweep.yaml").write_text("command: [python, train.py]\nparameters: {lr: {min: 0.1, max: 1.0}}")
    assert main(["sweep", *words]) == 2
    assert "the command of the space file passes no parameter to the program" in capsys.readouterr().err


EXAMPLES = Path(__file__).parents[3] / "examples" / "any_program"


def test_the_example_is_swept(capsys: pytest.CaptureFixture[str]) -> None:
    program = f"{sys.executable} {EXAMPLES / 'train.py'}"
    words = ["--command", program, "--space", str(EXAMPLES / "space.toml"), "--name", "sgd", "--max-trials", "2"]
    assert main(["sweep", *words, "--calibrate", "False"]) == 0
    out = capsys.readouterr().out
    assert "sweep 'sgd': 2 complete" in out
    assert f"{program} --alpha " in out


def test_a_trial_of_a_killed_sweep_goes_on_from_its_checkpoint(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "steps.toml").write_text("[space]\nrate = { min = 0.1, max = 0.2 }\nsteps = 400\n")
    program = f"{sys.executable} {EXAMPLES / 'resumable.py'}"
    words = ["sweep", "--command", program, "--space", "steps.toml", "--name", "go", "--max-trials", "1"]
    words += ["--calibrate", "False"]
    killed = subprocess.Popen([sys.executable, "-m", "protein", *words], stdout=subprocess.DEVNULL)
    checkpoint = folder / "runs" / "go" / "0000" / "checkpoint" / "state"
    wait_until(checkpoint.exists, "the trial's first checkpoint")
    time.sleep(0.5)
    killed.kill()
    killed.wait()
    assert main(words) == 0
    capsys.readouterr()
    assert main(["show", "go", "--trial", "0", "--json"]) == 0
    trial = json.loads(capsys.readouterr().out)
    assert (trial["state"], trial["steps"]) == ("complete", 400)
    steps = [point["steps"] for point in trial["curve"]]
    assert steps == sorted(steps) and steps[0] == 1, "the curve of the first process stays"


@pytest.mark.parametrize(("saves", "steps"), [(True, 10), (False, 5)])
def test_an_interrupted_program_without_steps_keeps_its_whole_curve(
    folder: Path, capsys: pytest.CaptureFixture[str], saves: bool, steps: int
) -> None:
    """Each of its two processes reports five times. Where it saves nothing, the second one begins again."""
    (folder / "one.toml").write_text("[space]\nx = { min = 0.0, max = 1.0 }\n")
    (folder / "counts.py").write_text(
        "import os, pathlib, time\n"
        "first = not pathlib.Path('reported').exists()\n"
        "for i in range(5): print('score', i + 5 * (not first), flush=True)\n"
        f"if {saves}: pathlib.Path(os.environ['PROTEIN_CHECKPOINT_DIR'], 'state').touch()\n"
        "pathlib.Path('reported').touch()\n"
        "while first: time.sleep(1)\n"
    )
    words = ["sweep", "--command", f"{sys.executable} counts.py {{x}}", "--space", "one.toml", "--name", "counts"]
    words += ["--score-regex", r"score (\d)", "--max-trials", "1", "--calibrate", "False"]
    stopped = subprocess.Popen([sys.executable, "-m", "protein", *words], stdout=subprocess.DEVNULL)
    wait_until((folder / "reported").exists, "the scores of the first process")
    stopped.terminate()
    stopped.wait()
    assert main(words) == 0
    capsys.readouterr()
    assert main(["show", "counts", "--trial", "0", "--json"]) == 0
    trial = json.loads(capsys.readouterr().out)
    assert (trial["state"], trial["steps"], trial["score"]) == ("complete", steps, 9)
    points = [(point["steps"], point["score"]) for point in trial["curve"]]
    assert points == [(i + 1, 10 - steps + i) for i in range(steps)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("python -W ignore -u train.py --lr {lr}", "train.py"),
        ("python -m rl_zoo3.train --algo ppo", "rl_zoo3.train"),
        ("env A=1 nice ./bin/fit {lr}", "fit"),
        ("uv run src/train.py", "train.py"),
        ("python -c 'print(1)'", "python"),
        ("./pong --lr {lr}", "./pong"),
        ("sh -c 'echo {lr} | fit'", "sh"),
    ],
)
def test_a_sweep_is_called_after_its_program(text: str, name: str) -> None:
    assert short_name(text) == name, "and never like one of our environments"


def test_a_folder_that_is_not_there_is_refused_before_anything_is_stored(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--chdir nowhere: there is no such folder; make it, or correct its name" in refused(
        capsys, "--chdir", "nowhere"
    )
    assert not (folder / "runs").exists()


def rival_starts_a_trial() -> int:
    """Another process starts a trial of the stored sweep, or takes up the one that waits. Returns its id."""
    parent = os.getppid()  # a process that lives and is not this one
    owner = lease.owner_of(parent)
    store = storage.open_store("sqlite:///runs/protein.db")
    record = store.find_sweep("train")
    assert record is not None
    waiting = [trial for trial in store.trials(record.id) if trial.state is TrialState.WAITING]
    if waiting:
        store.take_up_trial(record.id, waiting[0].number, owner, lease.LEASE_SECONDS, 0, 0.0)
    else:
        store_samples.start(store, record, owner, params={"lr": 0.01, "steps": 100})
    store.close()
    return parent


def test_a_sweep_that_a_process_runs_is_refused_and_not_called_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep() == 0
    capsys.readouterr()
    parent = rival_starts_a_trial()
    assert sweep(trials=5) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: sweep 'train' is being run by process {parent} on ")
    assert "resumed" not in printed.out


def test_a_sweep_whose_process_runs_no_trial_now_is_refused_too(capsys: pytest.CaptureFixture[str]) -> None:
    """As while it is paused. A second process would wait beside it, and store why the sweep has ended."""
    assert sweep() == 0
    capsys.readouterr()
    parent = rival_starts_a_trial()
    with contextlib.closing(storage.open_store("sqlite:///runs/protein.db")) as store:
        record = store.find_sweep("train")
        assert record is not None
        last = store.trials(record.id)[-1]
        handle = Trial(**{field.name: getattr(last, field.name) for field in dataclasses.fields(Trial)})
        store.finish_trial(handle, Outcome(end=TrialEnd.COMPLETE, reason="", score=0.5, cost_seconds=1.0, steps=10))
        store.set_ended(record.id, "")
    assert sweep(trials=5) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: sweep 'train' is being run by process {parent} on ")
    assert printed.out == ""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("exists", [False, True], ids=["new", "stored"])
def test_of_two_that_begin_at_once_one_is_refused_and_says_nothing_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, moment: str, exists: bool
) -> None:
    take_over, rivals = SweepTrials.take_over, []

    def beside_a_rival(self: SweepTrials, max_cost_seconds: float | None) -> None:
        if moment == "before":
            rivals.append(rival_starts_a_trial())
        take_over(self, max_cost_seconds)
        if moment == "after":
            rivals.append(rival_starts_a_trial())

    if exists:  # it has no trial yet, because it was interrupted at once
        with monkeypatch.context() as interrupted:
            interrupted.setattr(Launcher, "start", raises_interrupt)
            assert sweep() == 130
        capsys.readouterr()
    monkeypatch.setattr(SweepTrials, "take_over", beside_a_rival)
    assert sweep() == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: sweep 'train' is being run by process {rivals[0]} on ")
    assert printed.out == ""


def raises_interrupt(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def test_a_second_ctrl_c_leaves_the_counts_and_how_to_resume(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommandBackend, "poll", raises_interrupt)
    assert sweep() == 130
    printed = capsys.readouterr()
    assert printed.err == ""
    end = r"\nsweep 'train': 1 waiting; \S+s spent\n\ninterrupted; resume with\n  \S*protein sweep --command .*\n$"
    assert re.search(end, printed.out), printed.out


def test_a_waiting_trial_that_a_rival_has_taken_up_ends_the_sweep_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as interrupted:
        interrupted.setattr(CommandBackend, "poll", raises_interrupt)
        assert sweep() == 130
    capsys.readouterr()
    resume = SweepTrials.resume

    def beside_a_rival(self: SweepTrials, number: int, place: Place) -> TrialRecord | None:
        rival_starts_a_trial()
        return resume(self, number, place)

    monkeypatch.setattr(SweepTrials, "resume", beside_a_rival)
    assert sweep() == 2
    assert capsys.readouterr().err.startswith("error: sweep 'train' is being run by process ")


def test_contenders_are_run_again_on_fresh_seeds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noisy = PROGRAM.replace("/ step)", "/ step + 0.3 * (given.seed % 997 / 997))")
    (folder / "train.py").write_text(noisy.replace("given =", 'parser.add_argument("--seed", type=int)\ngiven ='))
    text = command("{python} -S train.py --seed {{seed}} --lr {{lr}} --steps {{steps}}")
    assert sweep("--method", "random", text=text, trials=6) == 0  # what it tries does not depend on costs
    capsys.readouterr()
    assert main(["best", "train", "--confirm", "2", "--max-cost", "1m", "--json"]) == 0
    printed = capsys.readouterr()
    said = json.loads(printed.out)["confirmation"]
    assert said["runs"] > 0 and said["before"]["trial"] in range(6) and 0.0 < said["sure"] <= 1.0
    assert said["verdict"].startswith("confirmed: " if said["settled"] else "not settled: ")
    assert "confirming takes about" in printed.err and "confirmation: run 2 of trial " in printed.err
    assert "their limit of memory, is not stored" in printed.err
    assert main(["best", "train", "--confirm", "2", "--max-cost", "0.001s"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("settled: ") + shown.count("confirmed: ") == 1  # once, though nothing was run
    assert shown.index("before: trial") < shown.index("now: trial") < shown.index("tried as:")
    store = storage.open_store("runs/protein.db")
    record = store.find_sweep("train")
    assert record is not None
    trials = store.trials(record.id)
    store.close()
    again = [trial for trial in trials if trial.kind is SuggestionKind.REEVALUATION]
    assert len(again) == said["runs"] and len({trial.seed for trial in trials}) == len(trials)
    # The program is gone, or the flags do not fit: one line, and nothing is lost.
    (folder / "train.py").rename(folder / "gone.py")
    for words, said in (
        (["--confirm"], r"the command of this sweep runs train\.py, which is not here .*"),
        (["--confirm", "1"], r"--confirm '1' is not a whole number from 2 on; .*"),
        (["--max-cost", "1m"], r"--max-cost 1m is what confirming may cost; it goes with --confirm"),
        (["--confirm", "--max-cost", "soon"], r"--max-cost 'soon'.*"),
    ):
        assert main(["best", "train", *words]) == 2
        assert re.fullmatch(f"error: {said}\n", capsys.readouterr().err), words

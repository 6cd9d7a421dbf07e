"""The program as a process: it trains, plays and sweeps for real, is interrupted and resumed, and loses its reader."""

import contextlib
import dataclasses
import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import tomllib
from pathlib import Path

import pytest
import tomli_w
from full_disk import largest_file
from patience import PATIENCE_SECONDS
from PIL import Image, ImageSequence
from sample_trials import fill_store
from small_runs import small_config

from protein import envs_c
from protein.cli import main
from protein.config import resolve
from protein.config.layers import flatten
from protein.config.resolve import load
from protein.trainer.config import RunConfig
from protein.trainer.model import saved as policies

pytestmark = pytest.mark.usefixtures("warm")

PROGRAM = (sys.executable, "-m", "protein")
SMALL = small_config()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROTEIN_STORE", raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # as if activated
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


@pytest.mark.usefixtures("cold")
def test_ctrl_c_while_the_program_is_loaded_is_one_line() -> None:
    program = (
        "import sys\n"
        "class CtrlC:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'protein.trainer.kinds': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, CtrlC())\n"
        "from protein.cli import main\n"
        "sys.exit(main(['status']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def test_a_program_that_was_started_without_an_output_works(folder: Path) -> None:
    line = f"{shlex.join(PROGRAM)} envs >&-; echo $? >code; {shlex.join(PROGRAM)} envs 0<&- >&- 2>&-; echo $? >>code"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    assert ((folder / "code").read_text(), done.stderr) == ("0\n0\n", "")


def start(line: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*PROGRAM, *shlex.split(line)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_gymnasium_environment_is_trained_and_played(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split("train --env gym:CartPole-v1 --config small.toml --checkpoint best.safetensors")) == 0
    assert "runs/train/gym-CartPole-v1-" in capsys.readouterr().out
    assert main(shlex.split("eval --checkpoint best.safetensors --episodes 6 --json")) == 0
    played = json.loads(capsys.readouterr().out)
    assert played["env"] == "gym:CartPole-v1"
    assert len(played["scores"]) == 6 and all(8 <= score <= 500 for score in played["scores"])


def test_play_is_watched_as_a_gif_and_in_a_terminal_until_ctrl_c(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = "train --env pendulum --config small.toml --train.total-timesteps 256 --checkpoint swing/best.safetensors"
    assert main(shlex.split(train)) == 0
    capsys.readouterr()
    assert main(shlex.split("eval --checkpoint swing/best.safetensors --gif new/seen.gif --episodes 2 --json")) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["env"], seen["episodes"], seen["gif"]) == ("pendulum", 2, "new/seen.gif")
    with Image.open("new/seen.gif") as image:
        # Two episodes of 200 frames, 20 a second; what looks the same is one picture that is shown for longer.
        assert sum(frame.info["duration"] for frame in ImageSequence.Iterator(image)) == 2 * 200 * 50
    before = Path("new/seen.gif").read_bytes()
    with largest_file(len(before) // 2):
        assert main(shlex.split("eval --checkpoint swing/best.safetensors --gif new/seen.gif --episodes 2")) == 2
    assert "new/seen.gif cannot be written (File too large)" in capsys.readouterr().err
    assert [path.read_bytes() for path in Path("new").iterdir()] == [before]
    line = "eval --checkpoint swing/best.safetensors --render"
    assert main(shlex.split(line)) == 2
    assert "--render draws in a terminal, and stdout is none; give --gif FILE" in capsys.readouterr().err
    assert main(shlex.split("eval --checkpoint swing/best.safetensors --gif new")) == 2
    assert "--gif new is a folder; give the path of a file" in capsys.readouterr().err

    terminal, there = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    settings = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    settings.pop("NO_COLOR", None)
    process = subprocess.Popen([*PROGRAM, *shlex.split(line)], stdout=there, stderr=there, env=settings)
    os.close(there)
    shown, stopped = b"", False
    with contextlib.suppress(OSError):  # of reading on when the program has closed its end
        while chunk := os.read(terminal, 1 << 16):
            shown += chunk
            if not stopped and b"step 5 " in shown:
                process.send_signal(signal.SIGINT)
                stopped = True
    os.close(terminal)
    assert process.wait(timeout=PATIENCE_SECONDS) == 130
    assert "\N{UPPER HALF BLOCK}".encode() in shown and b"38;2;255;107;107" in shown  # the rod is red
    assert b"stopped before the first episode had ended" in shown
    with Image.open("swing/pendulum.gif") as image:
        assert 2 <= getattr(image, "n_frames", 0) < 200


def test_train_writes_a_checkpoint_that_eval_plays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--checkpoint out/copy.safetensors --profile --trace out/trace.json"
    assert main(shlex.split(f"train --env pong --config small.toml {flags}")) == 0
    text = capsys.readouterr().out
    assert re.search(r"^4,096 of 4,000 steps, score .* left$|^4,\d+ of 4,000 steps", text, re.MULTILINE)
    assert re.search(r"steps in \S+ of training; checkpoint: out/copy.safetensors\n", text)
    assert re.search(r"^score -\d+\.\d+ \(standard deviation \d+\.\d+, 8 new episodes\)$", text, re.MULTILINE)
    assert re.search(r"^sum +\d+\.\d{3} +100\.0 % +[\d,.]+$", text, re.MULTILINE)
    assert "trace: out/trace.json; open it at " in text
    assert json.loads((folder / "out" / "trace.json").read_text())["otherData"] == {"dropped_intervals": 0}
    (own,) = folder.glob("runs/train/pong-*/checkpoint.safetensors")
    assert own.read_bytes() == (folder / "out" / "copy.safetensors").read_bytes()
    events = [json.loads(line) for line in (own.parent / "measurements.jsonl").read_text().splitlines()]
    assert (events[0]["event"], events[-1]["event"]) == ("start", "result")
    assert {event["event"] for event in events[1:-1]} == {"measurement"}
    assert events[-2]["steps"] == events[-1]["steps"] >= 4000

    assert main(shlex.split("eval --checkpoint out/copy.safetensors --episodes 6 --seed 3 --json")) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["env"], first["episodes"], len(first["scores"])) == ("pong", 6, 6)
    assert main(shlex.split("eval --checkpoint out/copy.safetensors --env pong --episodes 6 --seed 3 --json")) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == first["scores"]
    assert main(shlex.split("eval --checkpoint out/copy.safetensors --episodes 7")) == 0
    assert re.match(
        r"score -\S+ \+- \S+ \(mean of 7 episodes of pong, standard deviation \S+\) in \S+\n", capsys.readouterr().out
    )


def test_a_checkpoint_that_cannot_be_played_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = RunConfig.from_dict({"env": {"name": "breakout"}})
    policies.write(
        folder / "other.safetensors",
        config,
        dataclasses.replace(envs_c.spec("breakout"), observation_shape=(9,)),
        steps=0,
        elapsed_seconds=0.0,
        score=None,
        tensors={},
    )
    (folder / "text.safetensors").write_text("no checkpoint")
    for words, part in {
        "other.safetensors --env pong": "breakout",
        "other.safetensors": "breakout",
        "text.safetensors": "text.safetensors",
        "none.safetensors": "none.safetensors",
    }.items():
        assert main(shlex.split(f"eval --checkpoint {words}")) == 2
        printed = capsys.readouterr()
        assert re.fullmatch(r"error: [^\n]+\n", printed.err)
        assert part in printed.err
        assert printed.out == ""


def test_train_from_a_sweep_repeats_its_best_trial(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = "sweep --env pong --config small.toml --max-cost 20s --train.total-timesteps 2000"
    # Every range of pong.toml but gamma's is fixed, by the file or by the flag.
    with (resolve.CONFIG_DIRECTORY / "pong.toml").open("rb") as file:
        shipped = tomllib.load(file)["train"]
    own = tomllib.loads(SMALL)
    own["train"] = {key: value["value"] for key, value in shipped.items() if isinstance(value, dict)} | own["train"]
    own["train"]["gamma"] = {"value": 0.99, "min": 0.9, "max": 0.999}
    own["policy"] = {"hidden_size": 16}
    (folder / "small.toml").write_text(tomli_w.dumps(own))
    with start(sweep) as process:
        assert process.stdout is not None and process.stderr is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if re.search(r" trial 1: score ", line):
                process.send_signal(signal.SIGINT)
                break
        rest = process.stdout.read()
        assert process.wait(timeout=PATIENCE_SECONDS) == 130, process.stderr.read()
    assert seen[0] == (
        "sweep 'pong': 1 value is searched, budget 20.0s, the cap on one trial is 5.00s (a quarter of the budget;"
        " --max-trial-cost changes it); searched: train.gamma 0.9 to 0.999 (logit)\n"
    )
    assert re.match(r"\d\d:\d\d:\d\d trial 0 started: initial config\n", seen[1])
    assert rest.endswith(f"interrupted; resume with\n  protein {sweep}\n")
    assert (folder / "runs" / "pong" / "pareto.png").exists()

    assert main(["best", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)
    assert main(shlex.split("train --env pong --from pong")) == 0
    trained = capsys.readouterr().out
    score = re.search(r"^score (\S+) ", trained, re.MULTILINE)
    assert score is not None
    assert float(score[1]) == pytest.approx(best["score"], abs=0.006)
    assert f"trial {best['number']} of sweep 'pong', best expected: expected score" in trained

    assert main(shlex.split(f"{sweep} --max-trials 1")) == 0
    assert re.match(
        r"sweep 'pong' is resumed: \d+ trials? so far, \S+ of 20.0s spent, the cap on one trial is 5.00s ",
        capsys.readouterr().out,
    )


@pytest.mark.parametrize("after", ["sweep 'pong'", "trial 0 started"])
def test_a_signal_to_the_whole_group_ends_a_sweep_in_order_while_a_trial_starts(folder: Path, after: str) -> None:
    """As `timeout`, systemd and Slurm send it. The server of trials imports torch at that time."""
    words = shlex.split("sweep --env pong --config small.toml --max-cost 20s")
    with subprocess.Popen(
        [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if after in line:
                os.killpg(process.pid, signal.SIGTERM)
                break
        rest, errors = process.stdout.read(), process.stderr.read()
        assert process.wait(timeout=PATIENCE_SECONDS) == 130, errors
    assert errors == ""
    assert "interrupted; resume with" in rest


def test_a_budget_smaller_than_one_trial_is_refused_with_the_numbers(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "small.toml").write_text(small_config(400_000, 300_000, 500_000))
    assert main(shlex.split("sweep --env pong --config small.toml --max-cost 0.02s")) == 2
    assert re.fullmatch(
        r"error: the budget of 0\.02s is smaller than one trial: trial 0 was stopped at [\d.]+s, too early to"
        r" tell its pace; a first guess is [\d.m]+s?, so try --max-cost [\d.m]+s?\n",
        capsys.readouterr().err,
    )


def test_a_runs_config_file_can_be_given_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(line: str) -> str:
        """Runs the command in this process, where torch is imported and the server of trials runs."""
        assert main(shlex.split(line)) == 0
        return capsys.readouterr().out

    run("sweep --env pong --config small.toml --max-trials 2")
    trial = json.loads((folder / "runs" / "pong" / "0001" / "config.json").read_text())
    trained = run("train --config runs/pong/0001/config.json")
    assert f"training pong for {trial['train']['total_timesteps']:,} steps" in trained
    [own] = folder.glob("runs/train/pong-*/config.json")
    assert json.loads(own.read_text()) == trial
    played = json.loads(run("show --trial 1 --json"))["score"]
    assert f"score {played:.2f} (" in trained  # the same run, so the same score

    ranges = "--train.threads 1 --max-trials 1"
    for number, file in enumerate((own.relative_to(folder), "best.toml")):
        if file == "best.toml":
            run("best pong --write best.toml")
            best = json.loads(run("best pong --json"))["number"]
            ran = flatten(json.loads((folder / "runs" / "pong" / f"{best:04d}" / "config.json").read_text()))
            written = load("pong", config_file=folder / "best.toml").values()
            # The threads and the cap of a trial are the sweep's share for it, and no part of its config. Nor is how
            # often its state is saved.
            differing = {name for name in ran if ran[name] != written[name]}
            assert differing <= {"train.threads", "train.max_seconds", "train.checkpoint_seconds"}
            assert ran.keys() == written.keys()
        again = run(f"sweep --config {file} --name again-{number} {ranges}")
        assert re.match(rf"sweep 'again-{number}': 1\d values are searched, no budget set; searched: ", again)
        first = json.loads(run(f"show again-{number} --trial 0 --json"))
        wanted = flatten(trial) if number == 0 else load("pong", config_file=folder / "best.toml").values()
        for name, value in first["params"].items():
            assert value == wanted[name], name


def test_the_resume_hint_works_where_no_environment_is_active(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = str(Path(sys.executable).parent)
    folders = [name for name in os.environ["PATH"].split(os.pathsep) if name != directory]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    with start("sweep --env pong --config small.toml --max-cost 20s") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "sweep 'pong'" in line:
                process.send_signal(signal.SIGINT)
                break
        rest = process.stdout.read()
        assert process.wait(timeout=PATIENCE_SECONDS) == 130
    hint = rest.splitlines()[-1].strip()
    assert hint == f"{directory}/protein sweep --env pong --config small.toml --max-cost 20s"
    done = subprocess.run(f"{hint} --max-trials 1", shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "sweep 'pong' is resumed" in done.stdout, done.stderr


def test_a_reader_that_goes_away_is_no_error(folder: Path) -> None:
    fill_store("sqlite:///runs/protein.db")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        done = subprocess.run(
            [*PROGRAM, "show", "--json"],
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "")


def test_an_output_that_is_full_is_one_line(folder: Path) -> None:
    fill_store("sqlite:///runs/protein.db")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "show"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "error: cannot write: No space left on device; free some space\n"

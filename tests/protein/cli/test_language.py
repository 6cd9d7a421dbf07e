"""The commands with a language model: it is trained, goes on, is measured, writes, and is swept, for real but tiny."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from language_runs import write_corpus
from patience import PATIENCE_SECONDS

from protein.cli import main
from protein.storage import open_store
from protein.sweep.resuming import checkpoint_header

pytestmark = pytest.mark.usefixtures("warm")

CONFIG = """
[data]
path = "words"
[model]
num_layers = { value = 2, min = 1, max = 2, scale = "linear" }
width_ratio = 16.0
head_size = 16
sequence_length = 16
[train]
threads = 1
total_tokens = { value = 768, min = 256, max = 2048, scale = "log" }
batch_tokens = { value = 128, min = 64, max = 256, scale = "pow2" }
[eval]
tokens = 320
curve_tokens = 160
sample_tokens = 20
prompt = "aaa is"
"""


@pytest.fixture
def words(folder: Path) -> Path:
    """A working directory with a small text and the config of tiny models of it."""
    write_corpus(folder / "words")
    (folder / "words.toml").write_text(CONFIG)
    return folder


def trained(words: Path) -> Path:
    """Returns the folder of the last run of `protein train`."""
    return max((words / "runs" / "train").iterdir(), key=lambda path: path.stat().st_mtime)


def test_a_model_is_trained_measured_and_writes(words: Path, run: Run) -> None:
    said = run("train --config words.toml --train.total-tokens 1024")
    assert said.startswith("training text/words for 1,024 tokens into runs/train/text-words-")
    assert re.search(r"\n1,024 of 1,024 tokens, .* tokens/s, ", said)
    found = re.search(
        r"\nscore (-\d\.\d{3}): (\d\.\d{3}) bits per byte, \d\.\d{3} nats per token, over \d+ tokens\n", said
    )
    assert found is not None and float(found[1]) == -float(found[2])
    assert "\nit writes\n  aaa is" in said
    checkpoint = trained(words) / "checkpoint.safetensors"
    assert f"protein eval --checkpoint {checkpoint} --prompt 'def '" in said
    assert (trained(words) / "sample.txt").read_text().startswith("aaa is")
    assert run(f"eval --checkpoint {checkpoint}").startswith(f"score {found[1]}: {found[2]} bits per byte, ")
    measured = run.json(f"eval --checkpoint {checkpoint} --json --tokens 160")
    assert measured["env"] == "text/words" and measured["score"] == -measured["bits_per_byte"]
    assert run(f"eval --checkpoint {checkpoint} --prompt bbb --tokens 9").startswith("bbb")
    question = {"ctx": "aaa is 1", "endings": ["times x", "zzzz", "@@@@", "%%%%"], "label": 0}
    (words / "questions.jsonl").write_text(json.dumps(question))
    asked = run(f"eval --checkpoint {checkpoint} --hellaswag questions.jsonl").splitlines()
    assert asked[-1] == "HellaSwag: 100.0 % right; guessing gets 25 %"
    assert run.json(f"eval --checkpoint {checkpoint} --hellaswag questions.jsonl --json")["hellaswag"] == 1.0
    at_the_end = run("train --config words.toml --train.total-tokens 128 --eval.hellaswag questions.jsonl")
    assert re.search(r"\nHellaSwag: \d+\.0 % right; guessing gets 25 %\nit writes\n", at_the_end)
    once, again, other = (run(f"eval --checkpoint {checkpoint} --prompt b --seed {seed}") for seed in (1, 1, 2))
    assert once == again != other


def test_flags_of_agents_are_refused_with_a_language_model(words: Path, run: Run) -> None:
    run("train --config words.toml --train.total-tokens 128 --checkpoint model.safetensors")
    for flags, said in (
        ("--episodes 3", "--episodes is for agents, and model.safetensors is a language model's; use --prompt TEXT"),
        ("--gif x.gif", "--gif is for agents, and model.safetensors is a language model's; use --prompt TEXT"),
        ("--env pong", "--env pong contradicts model.safetensors, which was trained on 'text/words'; drop --env"),
        ("--greedy", "--greedy says how to write; give --prompt TEXT, too"),
        ("--prompt a --hellaswag x", "--hellaswag x measures, and --prompt writes; give one of the two"),
        ("--hellaswag x", "cannot read x: No such file or directory: check the path and its permissions"),
        ("--prompt a --tokens 0", "--tokens 0 is below the limit of 1; use 1 or more"),
        ("--prompt a --temperature=-1", "--temperature -1 is below the limit of 0; use 0 or more"),
    ):
        assert run.error(f"eval --checkpoint model.safetensors {flags}") == said


def test_what_cannot_be_trained_leaves_nothing_behind(words: Path, run: Run) -> None:
    for flags, said in (
        (
            "--data.path nowhere",
            "data.path 'nowhere' is no folder: give 'python', or a folder of protein data tokenize",
        ),
        (
            "--train.batch-tokens 1600000",
            " rows of 16, and one step takes 100,000: lower train.batch_tokens (now 1,600,000)",
        ),
        ("--eval.hellaswag nowhere.jsonl", "cannot read nowhere.jsonl: No such file or directory: check the path"),
        ("--eval.tokens 8", "eval.tokens (8) is below one sequence, model.sequence_length (16): raise it"),
        (
            "--model.num-layers 256 --model.width-ratio 256",
            "one sequence of 16 tokens and a network of 13,194,173,218,816 parameters need about",
        ),
        ("--model.head-size 15", "model.head_size must be even, because positions turn pairs of numbers, got 15"),
        (
            "--env text/python",
            "--env text/python contradicts words.toml, which is for 'text/words'; drop one of the two",
        ),
        ("--nproc 3", "train.batch_tokens (128) holds 8 sequences, which 3 processes cannot share evenly: "),
        (
            "--train.horizon 3",
            "'--train.horizon' is a setting of a PPO run, and this is a language model run; leave it",
        ),
    ):
        code = 1 if "layers" in flags else 2
        assert said in run.error(f"train --config words.toml {flags}", code)
        if "nproc" not in flags:
            assert said in run.error(f"sweep --config words.toml --max-trials 1 {flags}", code)
    assert run.error("train --env text/words") == (
        "--env text/words contradicts data.path, whose text is called 'text/python'; give --data.path FOLDER alone"
    )
    assert not (words / "runs").exists()


def test_a_run_at_its_limit_goes_on(words: Path, run: Run) -> None:
    run("train --config words.toml --train.total-tokens 2048 --train.max-seconds 0.001")
    directory = trained(words)
    assert "the run has reached its limit of 0.001 s" in run.error(f"train --resume {directory}")
    said = run(f"train --resume {directory} --train.max-seconds 0")
    assert re.match(r"training text/words for 2,048 tokens into \S+, from token [\d,]+ on\n", said)
    assert run.error(f"train --resume {directory}").endswith(
        "the run has made its 2,048 tokens; to train on, give more with --train.total-tokens"
    )
    assert "contradicts --resume" in run.error(f"train --resume {directory} --env pong")


def test_a_run_that_ended_in_its_last_evaluation_goes_on(words: Path, run: Run) -> None:
    """As Ctrl-C or a kill leaves it: all steps are made, and there is no score."""
    score = run("train --config words.toml --train.total-tokens 256").partition("\nscore ")[2].partition("\n")[0]
    directory = trained(words)
    events = (directory / "measurements.jsonl").read_text().splitlines(keepends=True)
    assert '"result"' in events[-1]
    (directory / "measurements.jsonl").write_text("".join(events[:-1]))
    assert f"\nscore {score}\n" in run(f"train --resume {directory}")
    assert "the run has made its 256 tokens" in run.error(f"train --resume {directory}")


def test_ctrl_c_ends_a_run_that_can_go_on(words: Path, run: Run) -> None:
    line = [sys.executable, "-m", "protein", "train", "--config", "words.toml", "--train.total-tokens", "500000"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while " tokens/s, " not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said, error = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, error) == (130, "")
    assert f"protein train --resume {trained(words).relative_to(words)}" in said
    kept = checkpoint_header(trained(words) / "checkpoint.safetensors")
    assert kept is not None and kept["config"]["train"]["total_tokens"] == 500_000
    assert "from token " in run(f"train --resume {trained(words)} --train.total-tokens {kept['steps'] + 128}")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with a finished sweep of a few trials."""
    patch = pytest.MonkeyPatch()
    words = tmp_path_factory.mktemp("swept")
    patch.chdir(words)
    patch.delenv("PROTEIN_STORE", raising=False)
    write_corpus(words / "words")
    (words / "words.toml").write_text(CONFIG)
    assert main(["sweep", "--config", "words.toml", "--max-trials", "6", "--workers", "1"]) == 0
    yield words
    patch.undo()


@pytest.fixture
def sweep(swept: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(swept)
    monkeypatch.delenv("PROTEIN_STORE", raising=False)
    return swept


def test_a_sweep_keeps_scores_steps_and_samples(sweep: Path) -> None:
    store = open_store("sqlite:///runs/protein.db")
    record = store.find_sweep("text-words")
    assert record is not None and (record.spec.name, record.spec.env) == ("text-words", "text/words")
    assert record.spec.config["data"]["path"] == str(sweep / "words")  # trials may run in another folder
    assert record.spec.space["cost_parameter"] == "train.total_tokens"
    trials = store.trials(record.id)
    store.close()
    assert [str(trial.state) for trial in trials] == ["complete"] * 6
    for trial in trials:
        total = trial.params["train.total_tokens"]
        assert isinstance(total, int) and trial.steps >= total
        assert trial.score is not None and trial.score == -trial.metrics["bits_per_byte"]
        assert Path(trial.artifact("sample") or "").read_text().startswith("aaa is")
        assert trial.artifact("continuable") is not None  # the schedule is wsd


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("status", "text-words  text/words  protein"),
        ("status text-words", "Best measured: trial "),
        ("show text-words", "initial config"),
        ("show text-words --trial 0", "bits_per_byte"),
        ("show text-words --trial 0", "\ntokens  "),
        ("pareto text-words", "best expected"),
        ("best text-words", "protein train --env text/words --from text-words"),
        ("export text-words -o out.jsonl", "written: out.jsonl"),
        ("plot front text-words -o front.png", "plot: front.png"),
        ("report text-words -o report.html", "report: report.html"),
    ],
)
def test_commands_read_such_a_sweep(sweep: Path, run: Run, line: str, words: str) -> None:
    assert words in run(line)


def test_the_best_config_is_written_and_trained(sweep: Path, run: Run) -> None:
    run("best text-words --write best.toml")
    written = (sweep / "best.toml").read_text()
    assert f'path = "{sweep / "words"}"' in written and "total_timesteps" not in written
    assert run("train --config best.toml").startswith("training text/words for ")
    said = run("train --env text/words --from text-words --train.max-seconds 60")
    assert "trial " in said and "training text/words for " in said
    assert run.error("train --env pong --from text-words") == (
        "--env pong contradicts --from text-words, a sweep of 'text/words'; drop --env or name another sweep"
    )
    assert "is a setting of a PPO run" in run.error("train --from text-words --train.horizon 8")


def test_a_sweep_goes_on_and_refuses_another_definition(sweep: Path, run: Run) -> None:
    run("sweep --config words.toml --name second --seed 1 --max-trials 1 --warm-start text-words")
    said = run("sweep --config words.toml --name second --seed 1 --max-trials 2 --warm-start text-words")
    assert said.startswith("sweep 'second' is resumed: 1 trial so far") and "from the source sweep" in said
    assert "exists with model.width_ratio = 16.0 (now 8.0)" in run.error(
        "sweep --config words.toml --name second --seed 1 --max-trials 2 --model.width-ratio 8"
    )
    assert "compared in text/words" in run("compare text-words second")


@pytest.mark.parametrize(
    ("section", "key", "choices"),
    [("data", "path", ["python", "words"]), ("model", "init_from", ["", "gpt2"]), ("eval", "hellaswag", ["", "x"])],
)
def test_what_names_files_is_not_swept(section: str, key: str, choices: list[str], words: Path, run: Run) -> None:
    swept = f'[{section}]\n{key} = {{ value = "{choices[0]}", choices = {json.dumps(choices)} }}'
    (words / "files.toml").write_text(CONFIG.replace('path = "words"\n', "").replace(f"[{section}]", swept))
    said = run.error("sweep --config files.toml --max-trials 1")
    assert said.startswith(f"files.toml: {section}.{key} names files and cannot be swept"), said
    assert not (words / "runs").exists()


def test_a_sweep_whose_text_was_made_anew_says_so(sweep: Path, run: Run) -> None:
    line = "sweep --config words.toml --name old --max-trials 1"
    data = sweep / "words" / "data.json"
    made = data.stat().st_mtime
    assert "newer" not in run(line) + run(line)
    os.utime(data, (made, time.time() + 60))
    said = run(line)
    os.utime(data, (made, made))
    assert f"the tokens in {sweep / 'words'} are newer than this sweep" in said


def test_an_agents_checkpoint_writes_nothing(words: Path, run: Run) -> None:
    small = "--env.num-envs 16 --train.horizon 16 --train.minibatch-size 128 --eval.episodes 8 --eval.num-envs 8"
    run(f"train --env cartpole {small} --train.total-timesteps 256 --train.threads 1 --checkpoint agent.safetensors")
    assert run.error("eval --checkpoint agent.safetensors --prompt x") == (
        "--prompt is for language models, and agent.safetensors is none; drop --prompt"
    )


def test_a_checkpoint_that_is_not_there_is_said_whatever_it_is_asked_for(words: Path, run: Run) -> None:
    message = "there is no checkpoint none.safetensors; protein train prints its path at its end"
    for asked in ("", " --prompt x", " --data words"):
        assert run.error(f"eval --checkpoint none.safetensors{asked}") == message


def test_events_of_a_run_are_kept(words: Path, run: Run) -> None:
    run("train --config words.toml")
    events = [json.loads(line) for line in (trained(words) / "measurements.jsonl").read_text().splitlines()]
    assert [events[0]["event"], events[-1]["event"]] == ["start", "result"]
    final: dict[str, Any] = events[-1]
    assert final["sample"].startswith("aaa is") and final["metrics"]["bits_per_byte"] == -final["score"]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_trainer_runs_alone(words: Path, processes: int) -> None:
    line = ["--config", "words.toml", "--directory", "out", "--train.total-tokens", "512", "--nproc", str(processes)]
    done = subprocess.run(
        [sys.executable, "-m", "protein.trainer", *line, "--model.num-layers", "1"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert (events[0]["env"], events[0]["processes"], events[-1]["event"]) == ("text/words", processes, "result")
    assert (words / "out" / "sample.txt").read_text().startswith("aaa is")


def test_the_trainer_refuses_settings_of_the_other_kind(words: Path) -> None:
    for line, said in (
        (["--config", "words.toml", "--train.horizon", "8"], "train.horizon"),
        (["--model.num-layers", "2", "--model.head-size", "5"], "model.head_size must be even"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "protein.trainer", *line], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 2 and said in done.stderr

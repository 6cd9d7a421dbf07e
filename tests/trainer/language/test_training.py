"""A run of a language model from start to finish: what it reports, where it stops, how it goes on."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from event_log import ONE_MEASUREMENT, EventLog
from language_data import write_bytes_corpus
from language_runs import LENGTH, ROWS, STEP, small, write_corpus
from whole_runs import StopAfter, go, same, tensors

from protein.trainer.config import RunConfig
from protein.trainer.errors import CheckpointError, ConfigError, DataError, DivergedError
from protein.trainer.language import training
from protein.trainer.language.config import LanguageConfig
from protein.trainer.language.data import preparing, tokenizers
from protein.trainer.launch import launch
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.machine import stopwatch as stopwatches
from protein.trainer.machine.stopwatch import Stopwatch
from protein.trainer.progress import Progress
from protein.trainer.run import run

pytestmark = pytest.mark.usefixtures("warm")

EVERY_STEP = 1e6  # a clock so fast that a report, a checkpoint and a point of the curve are due after every step


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("text") / "small")


def test_a_run_reports_its_start_its_curve_and_its_result(data: Path, tmp_path: Path) -> None:
    config = small(data, steps=40, eval={"curve_points": 4})
    result, events = go(config, tmp_path, speed=EVERY_STEP)
    start, *measured, end = events
    assert (start["event"], start["env"], start["steps"]) == ("start", "text/small", 0)
    assert (start["micro_batch"], start["precision"], start["device"]) == (4, "fp32", "cpu")
    assert [event["steps"] for event in measured] == [STEP * step for step in range(1, 41)]
    assert measured[0]["metrics"]["train_loss"] == pytest.approx(math.log(257), abs=0.01), "nothing is known yet"
    assert measured[-1]["metrics"]["train_loss"] < 3.0
    metrics = measured[-1]["metrics"]
    assert {f"{section}_seconds" for section in training.SECTIONS} <= metrics.keys()
    assert metrics["peak_share"] == pytest.approx(metrics["flops_per_second"] / start["peak_flops"])
    assert end["event"] == "result" and end["stopped"] == "steps" and result.steps == 40 * STEP
    assert end["score"] == -end["metrics"]["bits_per_byte"] and -4.5 < end["score"] < 0
    assert end["metrics"]["evaluation_tokens"] <= 320 and len(end["sample"]) <= 40 and result.sample == end["sample"]
    saved = checkpoints.read(tmp_path / checkpoints.FILE_NAME)
    assert (saved.kind, saved.subject, saved.steps) == (checkpoints.LANGUAGE, "text/small", 40 * STEP)


def test_the_sections_are_the_time_of_training(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And that of the curve, which is no cost: so the profile is complete, and a run's cost is not raised by it."""
    monkeypatch.setattr(training, "SHARE", 100.0)
    for module in (time, stopwatches):  # a clock that stands still while others have the core
        monkeypatch.setattr(module, "perf_counter", time.thread_time)
    stopwatch = Stopwatch(torch.device("cpu"))
    _, events = go(small(data, steps=30), speed=ONE_MEASUREMENT, stopwatch=stopwatch)
    seconds = {name: events[-2]["metrics"][f"{name}_seconds"] for name in training.SECTIONS}
    assert all(seconds[name] > 0 for name in ("data", "forward", "backward", "optimizer", "curve"))
    assert seconds["curve"] == pytest.approx(events[-1]["timings"]["curve"], rel=0.2)
    trained = sum(seconds.values()) - seconds["curve"]
    assert trained == pytest.approx(events[-1]["elapsed_seconds"] / ONE_MEASUREMENT, rel=0.1)


@pytest.mark.parametrize(("total", "steps"), [(1, 1), (STEP, 1), (STEP + 1, 2)])
def test_tokens_are_rounded_up_to_whole_steps(data: Path, total: int, steps: int) -> None:
    result, _ = go(small(data, train={"total_tokens": total}))
    assert result.steps == steps * STEP


def test_the_same_seed_gives_the_same_run(data: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        go(small(data, train={"seed": seed}), tmp_path / name)
    assert same(tensors(tmp_path / "one"), tensors(tmp_path / "two"))
    assert not same(tensors(tmp_path / "one"), tensors(tmp_path / "other"))


def test_looking_changes_nothing(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run with points of the curve, an evaluation and a sample equals the one without, bit for bit."""
    monkeypatch.setattr(training, "SHARE", 100.0)
    config = small(data, steps=12)
    seen, blind = ({"curve_points": 12, "sample_tokens": 30}, {"curve_points": 0, "sample_tokens": 0})
    _, events = go(dataclasses.replace(config, eval=small(data, eval=seen).eval), tmp_path / "seen", speed=EVERY_STEP)
    go(dataclasses.replace(config, eval=small(data, eval=blind).eval), tmp_path / "blind")
    assert sum(event.get("score") is not None for event in events[1:-1]) == 12
    assert same(tensors(tmp_path / "seen"), tensors(tmp_path / "blind"))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("cut", [2, 9, 28], ids=["at once", "in an epoch", "in the second epoch"])
def test_an_interrupted_run_that_is_resumed_equals_the_uninterrupted_one(
    optimizer: str, cut: int, data: Path, tmp_path: Path
) -> None:
    config = small(data, steps=30, train={"optimizer": optimizer, "lr_schedule": "cosine", "warmup_fraction": 0.2})
    straight, _ = go(config, tmp_path / "straight")
    # Asked twice at the start, then in each step twice (it has two micro-batches) and at its end.
    first, events = go(config, tmp_path / "cut", stop=StopAfter(1 + 3 * cut))
    assert first.interrupted and 0 < first.steps <= cut * STEP and first.score is None
    assert events[-1]["event"] == "interrupted" and events[-1]["stopped"] == "signal"
    resumed, events = go(config, tmp_path / "cut", resume=tmp_path / "cut" / checkpoints.FILE_NAME)
    assert events[0]["steps"] == first.steps
    assert (resumed.score, resumed.steps, resumed.sample) == (straight.score, straight.steps, straight.sample)
    assert same(tensors(tmp_path / "cut"), tensors(tmp_path / "straight"))


def test_a_run_that_was_killed_goes_on_from_its_checkpoint(data: Path, tmp_path: Path) -> None:
    config = small(data, steps=12, train={"checkpoint_seconds": 1e-3})
    straight, _ = go(config, tmp_path / "straight")
    (tmp_path / "run.json").write_text(json.dumps(config.to_dict()))
    code = (
        "import os, signal, sys\n"
        "from protein.trainer.__main__ import main\n"
        "from protein.trainer.language.state import LanguageState\n"
        "write = LanguageState.write\n"
        "def write_and_die(self, path, progress, **given):\n"
        "    write(self, path, progress, **given)\n"
        f"    if progress.steps >= {5 * STEP}:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "LanguageState.write = write_and_die\n"
        "main(sys.argv[1:])\n"
    )
    words = ["--config", str(tmp_path / "run.json"), "--directory", str(tmp_path / "cut"), "--speed", str(EVERY_STEP)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    died = subprocess.run([sys.executable, "-c", code, *words], env=environment, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    path = tmp_path / "cut" / checkpoints.FILE_NAME
    assert checkpoints.read(path).steps == 5 * STEP
    resumed, _ = go(config, tmp_path / "cut", resume=path)
    assert resumed.score == straight.score
    assert same(tensors(tmp_path / "cut"), tensors(tmp_path / "straight"))


@pytest.mark.parametrize(
    ("schedule", "name"), [("constant", checkpoints.FILE_NAME), ("wsd", checkpoints.STABLE_FILE_NAME)]
)
def test_a_run_that_is_continued_equals_the_longer_run_in_one_go(
    schedule: str, name: str, data: Path, tmp_path: Path
) -> None:
    def config(steps: int) -> LanguageConfig:
        train = {"lr_schedule": schedule, "warmup_fraction": 0.0, "decay_fraction": 0.5}
        return small(data, steps=steps, train=train)

    straight, _ = go(config(20), tmp_path / "straight")
    first, events = go(config(10), tmp_path / "first")
    start = tmp_path / "first" / name
    assert events[-1]["continuable"] == str(start)
    assert 0 < events[-1]["continuable_seconds"] <= first.elapsed_seconds
    continued, events = go(config(20), tmp_path / "second", continue_from=start)
    assert events[0]["steps"] == (10 if schedule == "constant" else 5) * STEP
    assert (continued.score, continued.steps) == (straight.score, straight.steps)
    assert same(tensors(tmp_path / "second"), tensors(tmp_path / "straight"))


def test_what_an_earlier_run_in_the_folder_left_is_not_taken_for_a_run_s_own(data: Path, tmp_path: Path) -> None:
    _, events = go(small(data, 3, train={"lr_schedule": "wsd", "learning_rate": 0.001}), tmp_path)
    assert Path(events[-1]["continuable"]).is_file()
    config = small(data, 8, train={"lr_schedule": "cosine", "checkpoint_seconds": 1e-3})
    interrupted, _ = go(config, tmp_path, stop=StopAfter(12))
    assert 3 * STEP <= interrupted.steps < 8 * STEP
    result, events = go(config, tmp_path, resume=tmp_path / checkpoints.FILE_NAME)
    assert result.steps == 8 * STEP and events[-1]["continuable"] is None


def test_a_cosine_run_cannot_be_continued_nor_one_that_is_long_enough(data: Path, tmp_path: Path) -> None:
    _, events = go(small(data, train={"lr_schedule": "cosine"}), tmp_path)
    assert events[-1]["continuable"] is None
    with pytest.raises(CheckpointError, match=r"it has made 768 steps; train.total_tokens must be larger, got 768"):
        go(small(data), continue_from=tmp_path / checkpoints.FILE_NAME)


@pytest.mark.parametrize("micro_batch", [1, 2, 3, 5, 8])
def test_accumulated_gradients_are_those_of_the_large_batch(micro_batch: int, data: Path, tmp_path: Path) -> None:
    """Also where the last micro-batch is smaller. AdamW's first steps are as large for a tiny gradient: plain SGD here
    would need no tolerance for it, so `adam_eps` is large."""
    train = {"optimizer": "adamw", "adam_eps": 1e-3, "weight_decay": 0.1}
    results = {}
    for rows in (micro_batch, ROWS):
        results[rows], events = go(small(data, train={**train, "micro_batch": rows}), tmp_path / str(rows))
        assert events[0]["micro_batch"] == rows
    one, whole = tensors(tmp_path / str(micro_batch)), tensors(tmp_path / str(ROWS))
    for name, tensor in whole.items():
        torch.testing.assert_close(one[name], tensor, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("optimizer", [pytest.param("adamw", marks=pytest.mark.slow), "muon"])
def test_two_processes_are_one_to_rounding(optimizer: str, data: Path, tmp_path: Path) -> None:
    train = {"optimizer": optimizer, "learning_rate": 0.002, "adam_eps": 1e-3, "micro_batch": 2}
    config = small(data, steps=8, train=train)
    alone, _ = go(config, tmp_path / "one")
    events = EventLog()
    both = launch(config, 2, directory=tmp_path / "two", report=events.record)
    assert events[0]["processes"] == 2 and [event["event"] for event in events].count("result") == 1
    assert both.steps == alone.steps
    assert both.score == pytest.approx(alone.score, rel=1e-4)
    one, two = tensors(tmp_path / "one"), tensors(tmp_path / "two")
    tolerance = 1e-3 if optimizer == "muon" else 2e-5  # Muon's products are of bfloat16 where those are fast
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-2, atol=tolerance)
    # One process goes on with the run of two: what a checkpoint holds is the same on both.
    longer = dataclasses.replace(config, train=dataclasses.replace(config.train, total_tokens=10 * STEP))
    resumed, _ = go(longer, resume=tmp_path / "two" / checkpoints.FILE_NAME)
    assert resumed.steps == 10 * STEP


def test_one_batch_is_learned_by_heart(tmp_path: Path) -> None:
    """Through the whole loop: the loss on a text that is one batch goes to nearly nothing."""
    text = bytes(range(65, 91)) + b"the quick brown fox jumps over a lazy dog" + bytes(range(97, 123))
    data = write_bytes_corpus(tmp_path / "batch", [text * 2], [text])
    config = small(
        data,
        steps=150,
        train={"learning_rate": 0.01, "embedding_learning_rate": 0.03, "micro_batch": 0},
        eval={"curve_points": 0, "tokens": 64},
    )
    _, events = go(config, speed=EVERY_STEP)
    assert events[-2]["metrics"]["train_loss"] < 0.25
    assert events[1]["metrics"]["train_loss"] > 5


def test_the_time_limit_ends_a_run_within_a_micro_batch(data: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """A clock that goes on by one second whenever it is asked: the step is given up in the middle."""
    ticks = iter(range(10_000))
    clock = type("Clock", (), {"perf_counter": staticmethod(lambda: float(next(ticks)))})
    monkeypatch.setattr("protein.trainer.progress.time", clock)
    monkeypatch.setattr("protein.trainer.language.training.time", clock)
    config = small(data, steps=10**6, train={"max_seconds": 8.0, "micro_batch": 1}, eval={"curve_points": 0})
    result, events = go(config, tmp_path)
    assert events[-1]["stopped"] == "max_seconds" and result.score is not None
    # A step has eight micro-batches, and the clock is asked before each.
    assert result.steps == 0 and result.elapsed_seconds == 9.0
    assert tensors(tmp_path)["data/position"][0] == 0, "the rows of the step that was given up come again"


def test_a_loss_that_is_not_finite_ends_the_run(data: Path, tmp_path: Path) -> None:
    events = EventLog()
    rates = {"learning_rate": 1e30, "embedding_learning_rate": 1e30, "max_grad_norm": 0.0}
    config = small(data, steps=50, model={"arch": "gpt2"}, train=rates)
    with pytest.raises(DivergedError, match=r"diverged at step \d+: .* lower train.learning_rate") as caught:
        run(config, directory=tmp_path, report=events.record)
    assert "\n" not in str(caught.value)
    assert events[-1]["event"] == "failed" and events[-1]["reason"] == "diverged"
    assert not (tmp_path / checkpoints.FILE_NAME).exists(), "no checkpoint holds such weights"


def test_a_point_of_the_curve_that_is_not_finite_ends_the_run(data: Path, tmp_path: Path) -> None:
    """A step's loss is finite, and the weights after it are not: the curve is the first to read them."""
    events = EventLog()
    config = small(data, steps=4, train={"learning_rate": 1e30, "embedding_learning_rate": 1e30})
    with pytest.raises(DivergedError, match=r"diverged at step \d+: the loss on the validation text is not finite"):
        run(config, directory=tmp_path, report=events.record)
    assert events[-1]["reason"] == "diverged"
    assert all(math.isfinite(event["score"]) for event in events if event.get("score") is not None)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_precisions_of_16_bits_train_alike(precision: str, data: Path) -> None:
    exact, _ = go(small(data, steps=3))
    result, events = go(small(data, steps=3, train={"precision": precision}))
    assert events[0]["precision"] == precision
    assert result.score == pytest.approx(exact.score, abs=0.05)


def test_the_wrong_checkpoint_is_refused(data: Path, tmp_path: Path) -> None:
    go(small(data), tmp_path / "run")
    path = tmp_path / "run" / checkpoints.FILE_NAME
    with pytest.raises(CheckpointError, match=r"use the same \[model\] settings"):
        go(small(data, model={"num_layers": 3}), resume=path)
    with pytest.raises(CheckpointError, match=r"use the same train\.optimizer"):
        go(small(data, train={"optimizer": "adamw"}), resume=path)
    with pytest.raises(CheckpointError, match=r"trained with train\.seed = 0, not with 1"):
        go(small(data, train={"seed": 1}), resume=path)
    ppo = RunConfig.from_dict({"env": {"num_envs": 8}, "train": {"threads": 1, "minibatch_size": 64}})
    with pytest.raises(CheckpointError, match="kind 'language' on 'text/small', and 'ppo' is needed") as caught:
        run(ppo, directory=None, report=EventLog().record, resume=path)
    assert "\n" not in str(caught.value)
    config = RunConfig.from_dict(
        {
            "env": {"num_envs": 8},
            "train": {"threads": 1, "minibatch_size": 64, "total_timesteps": 64},
            "eval": {"episodes": 8, "num_envs": 8},
        }
    )
    run(config, directory=tmp_path / "ppo", report=EventLog().record)
    with pytest.raises(CheckpointError, match="kind 'ppo' on 'pong', and 'language' is needed"):
        go(small(data), resume=tmp_path / "ppo" / checkpoints.FILE_NAME)


def test_a_text_smaller_than_a_batch_or_an_evaluation_is_refused(data: Path) -> None:
    with pytest.raises(ConfigError, match=r"lower train.batch_tokens \(now 16,384\)"):
        go(small(data, train={"batch_tokens": 16384}))
    with pytest.raises(ConfigError, match=r"eval.tokens \(10\) is below one sequence, model.sequence_length \(16\)"):
        go(small(data, eval={"tokens": 10}))


def test_only_positions_that_there_are_can_be_read(data: Path) -> None:
    with pytest.raises(ConfigError, match=r"smaller than one sequence, model.sequence_length \(256\)"):
        small(data, model={"sequence_length": 16 * LENGTH})


def test_auto_takes_bfloat16_where_the_processor_multiplies_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for there, expected in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr("protein.trainer.language.update.has_bf16_products", lambda _, there=there: there)
        _, events = go(small(data, steps=1, train={"precision": "auto"}))
        assert events[0]["precision"] == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
def test_a_compiled_run_compiles_nothing_on_its_clock(data: Path) -> None:
    """All shapes come before it: whole micro-batches and a smaller one, with and without documents' beginnings."""
    torch._dynamo.reset()
    plain, _ = go(small(data, steps=12, train={"micro_batch": 3}))
    counted: list[int] = []

    def follow(event: Any) -> None:
        counted.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    config = small(data, steps=12, train={"micro_batch": 3, "compile": True})
    result = run(config, directory=None, report=follow, speed=EVERY_STEP)
    assert counted[0] == counted[-1] == 4
    assert result.score == pytest.approx(plain.score, rel=1e-3)


def test_what_the_end_needs_of_the_tokenizer_is_tried_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tokenizers")
    text, folder, lines = tmp_path / "text.txt", tmp_path / "pairs", "one and two and three\n" * 400
    text.write_text(lines, encoding="utf-8")
    split, documents = preparing.Split.of(0.3, len(lines)), [preparing.Document(path=text)]
    preparing.write_folder(folder, documents, tokenizers.learn([lines.encode()], 270), split)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    result, _ = go(small(folder, steps=2))
    assert result.sample is not None, "a text without a prompt needs no package"
    for prompt in ("one", "\udcff"):
        with pytest.raises(DataError):
            go(small(folder, steps=2, eval={"prompt": prompt}), tmp_path / "run")
        assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    with pytest.raises(DataError, match="takes UTF-8, and the text has byte 0xff"):
        go(small(folder, steps=2, eval={"prompt": "\udcff"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_the_clock_stops_when_the_device_has_done_the_step(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[bool] = []
    end_step = Progress.end_step

    def end(progress: Progress) -> None:
        done.append(torch.cuda.current_stream().query())
        end_step(progress)

    monkeypatch.setattr(Progress, "end_step", end)
    go(small(data, train={"device": "cuda"}))
    assert len(done) == 6 and all(done)

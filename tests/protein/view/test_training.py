"""The dashboard of a training run: from recorded events to lines that fit the terminal, and the thread that draws."""

import dataclasses
import io
import math
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import PATIENCE_SECONDS, wait_until
from rich.console import Console

from protein.trainer.events import Event, Interrupted, Measurement, Result, Start, failed
from protein.view import tables
from protein.view.training import (
    Gpu,
    LiveWatcher,
    Machine,
    PlainWatcher,
    TrainingState,
    Usage,
    gpu_utilisation,
    line_plot,
    make_watcher,
    training_view,
)

START = Start(
    event="start",
    env="pong",
    steps=0,
    device="cpu",
    processes=1,
    threads=4,
    parameters=4996,
    startup_seconds=1.5,
    compiled=False,
    normalize_observations=False,
    scale_rewards=False,
    notes=[],
)
INTERRUPTED = Interrupted(
    event="interrupted",
    score=None,
    steps=500_000,
    elapsed_seconds=5.0,
    timings={},
    metrics={},
    checkpoint=None,
    continuable=None,
    continuable_seconds=None,
    stopped="signal",
)
USAGE = Usage(busy_cores=3.14, cores=4, memory_bytes=400 << 20, total_bytes=16 << 30, gpu=None)
SECTIONS = {"environment": 0.05, "rollout_forward": 0.3, "copy": 0.0, "update_forward": 0.25, "update_backward": 0.4}


def measurement(steps: int, seconds: float, score: float | None) -> Measurement:
    return {
        "event": "measurement",
        "steps": steps,
        "elapsed_seconds": seconds,
        "score": score,
        "metrics": {
            "policy_loss": -0.0123,
            "value_loss": 0.5,
            "entropy": 0.71,
            "clip_fraction": 0.125,
            "explained_variance": 0.875,
            "learning_rate": 0.003,
            "steps_per_second": steps / seconds,
            **{f"{name}_seconds": share * seconds for name, share in SECTIONS.items()},
        },
    }


def result(score: float = 20.5) -> Result:
    return Result(
        event="result",
        score=score,
        steps=1_000_000,
        elapsed_seconds=10.0,
        timings={},
        metrics={},
        checkpoint=None,
        continuable=None,
        continuable_seconds=None,
        stopped="steps",
    )


def begun(**settings: Any) -> TrainingState:
    return TrainingState(env="pong", total_steps=1_000_000, evaluation="256 new episodes", **settings).after(START)


def trained(count: int = 20, **settings: Any) -> TrainingState:
    """A run of which `count` twentieths are done; a second of training is 100,000 steps."""
    state = begun(usage=USAGE, **settings)
    for i in range(1, count + 1):
        state = state.after(measurement(50_000 * i, 0.5 * i, None if i < 2 else 20 - 40 * math.exp(-i / 4)))
    return state


def shown(state: TrainingState, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=500, color_system=None)
    console.print(training_view(state, width, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(10, 3), (20, 5), (40, 9), (63, 15), (64, 15), (80, 24), (200, 60)])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_the_dashboard_fits_the_terminal(width: int, height: int, count: int) -> None:
    for state in (trained(count), trained(count).after(result()), TrainingState(env="pong", total_steps=10)):
        lines = shown(state, width, height)
        assert 2 <= len(lines) < height
        assert max(map(len, lines)) <= width


def test_the_dashboard_shows_what_the_run_reports() -> None:
    lines = shown(trained(10))
    assert lines[0] == "training pong: 4,996 parameters on cpu, threads: 4, ready in 1.50s"
    assert lines[1] == "━" * 80
    assert lines[2] == " 50 %  5.00s left   500k of 1M steps in 5.00s, 100k steps/s"
    assert "score 16.72" in lines
    body = "\n".join(lines)
    assert re.search(r"^policy loss +-0\.0123  environment +5\.0 %  ━", body, re.MULTILINE)
    assert re.search(r"^clipped +12\.5 %  update backward +40\.0 %  ━━━", body, re.MULTILINE)
    assert re.search(r"^learning rate +0\.003", body, re.MULTILINE)
    assert "copy" not in body  # it has taken no time
    assert "approx" not in body and "KL" not in body  # the run did not report it
    assert lines[-1] == "cpu 3.1 of 4 cores   memory 400 MiB of 16 GiB"
    plot = [line for line in lines if "┤" in line]
    assert len(plot) >= 5
    assert plot[0].startswith("17 ┤") and plot[-1].startswith("-4 ┤")
    assert any(line.endswith("5.00s") and "└1.00s" in line for line in lines)


def test_a_small_terminal_gets_a_sparkline() -> None:
    lines = shown(trained(20), 80, 13)
    assert any(re.fullmatch(r"score 19\.73  [▁▂▃▄▅▆▇█]+", line) for line in lines)
    assert not any("┤" in line for line in lines)
    assert lines[-1].startswith("cpu ")


def test_speed_and_time_left_follow_the_measurements_and_the_clock() -> None:
    state = begun().after(measurement(100_000, 1.0, None)).after(measurement(300_000, 2.0, None))
    assert state.steps_per_second == 200_000
    assert state.left_seconds == pytest.approx(700_000 / 150_000)
    assert state.fraction == pytest.approx(0.3)
    later = dataclasses.replace(state, silent_seconds=700_000 / 150_000 / 2)
    assert later.left_seconds == pytest.approx(700_000 / 150_000 / 2)
    assert later.fraction == pytest.approx(0.65)
    late = dataclasses.replace(state, silent_seconds=60.0)  # the next measurement is overdue
    assert (late.left_seconds, late.fraction) == (0.0, 1.0)
    assert not late.trained
    short = begun(max_seconds=4.0).after(measurement(100_000, 1.0, None))
    assert (short.left_seconds, short.fraction) == (3.0, 0.25)
    assert begun().left_seconds is None and begun().fraction == 0.0


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (TrainingState(env="pong", total_steps=10), "  0 %  loading"),
        (begun(), "  0 %  waiting for the first measurement"),
        (trained(5), " 25 %  7.50s left   250k of 1M steps in 2.50s, 100k steps/s"),
        (trained(5, stopping=True), " 25 %  stopping; Ctrl-C again ends it at once   250k of 1M steps"),
        (trained(20, silent_seconds=2.0), "100 %  evaluating on 256 new episodes, 2.00s   1M of 1M steps"),
        (trained(10, max_seconds=5.0), "100 %  evaluating on 256 new episodes, 0.00s   500k of 1M steps"),
        (trained(20).after(result()), "100 %  done   1M of 1M steps"),
        (trained(10, stopping=True).after(INTERRUPTED), " 50 %  interrupted   500k"),
        (trained(10).after(failed("diverged", "loss is nan")), " 50 %  failed   500k of 1M steps"),
    ],
)
def test_the_phase_is_said(state: TrainingState, phase: str) -> None:
    assert shown(state)[2].startswith(phase)


def test_the_evaluation_has_the_last_word_on_the_score() -> None:
    assert "score 20.50 on new episodes, 19.73 in training" in shown(trained(20).after(result()))


def test_a_gpu_is_shown_where_there_is_one() -> None:
    gpu = Gpu(memory_bytes=3 << 30, total_bytes=80 << 30, utilisation=0.43)
    usage = Usage(busy_cores=1.0, cores=8, memory_bytes=1 << 30, total_bytes=64 << 30, gpu=gpu)
    assert (
        shown(
            trained(
                5,
            )
        )[-1].count("gpu")
        == 0
    )
    state = dataclasses.replace(trained(5), usage=usage)
    assert shown(state)[-1] == "cpu 1.0 of 8 cores   memory 1 GiB of 64 GiB   gpu 43 %, 3 GiB of 80 GiB"
    unknown = dataclasses.replace(gpu, utilisation=None)
    state = dataclasses.replace(state, usage=dataclasses.replace(usage, gpu=unknown))
    assert shown(state)[-1].endswith("gpu 3 GiB of 80 GiB")


def test_the_process_is_measured() -> None:
    machine = Machine()
    ends = time.process_time() + 0.1
    while time.process_time() < ends:
        pass
    usage = machine.sample("cpu")
    assert 0.0 < usage.busy_cores <= (os.cpu_count() or 1) + 1
    assert 10 << 20 < usage.memory_bytes < usage.total_bytes == psutil.virtual_memory().total
    assert usage.gpu is None


@pytest.mark.parametrize(
    ("script", "expected"),
    [("echo 43", 0.43), ("echo '[N/A]'", None), ("echo 43; exit 6", None), (None, None)],
)
def test_the_gpus_utilisation_is_what_the_driver_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, expected: float | None
) -> None:
    if script is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ntest $1 = --id=GPU-1 || exit 1\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("protein.view.training.GPU_SECONDS", PATIENCE_SECONDS)
    assert gpu_utilisation("GPU-1") == expected


def test_the_live_view_draws_from_its_own_thread_and_leaves_its_last_picture() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, height=24, color_system=None, legacy_windows=False)
    stop = threading.Event()
    state = TrainingState(env="pong", total_steps=1_000_000, evaluation="256 new episodes")
    watcher = make_watcher(console, state, stop)
    assert isinstance(watcher, LiveWatcher)
    with watcher:
        assert "loading" in file.getvalue()
        events: list[Event] = [START, *(measurement(50_000 * i, 0.5 * i, float(i)) for i in range(1, 21))]
        for event in events:
            watcher(event)
        wait_until(lambda: "evaluating on 256 new episodes" in file.getvalue())
        stop.set()
        wait_until(lambda: "stopping; Ctrl-C again ends it at once" in file.getvalue())
        watcher(result())
    last = file.getvalue().rpartition("training pong")[2]
    assert "done   1M of 1M steps" in last and "score 20.50 on new episodes" in last
    assert file.getvalue().count("\x1b[?25l") == file.getvalue().count("\x1b[?25h") == 1  # the cursor comes back


def test_without_a_terminal_each_measurement_is_one_plain_line() -> None:
    file = io.StringIO()
    state = TrainingState(env="pong", total_steps=1_000_000)
    watcher = make_watcher(tables.make_console(file), state, threading.Event())
    assert isinstance(watcher, PlainWatcher)
    with watcher:
        events: list[Event] = [START, measurement(250_000, 2.5, None), measurement(1_000_000, 10.0, 20.123), result()]
        for event in events:
            watcher(event)
    assert file.getvalue().splitlines() == [
        "4,996 parameters on cpu, threads: 4, ready in 1.50s",
        "250,000 of 1,000,000 steps, score -  100k steps/s, 2.50s, 7.50s left",
        "1,000,000 of 1,000,000 steps, score 20.12  100k steps/s, 10.0s, 0.00s left",
    ]


def test_what_was_decided_about_observations_and_rewards_is_said_at_the_start() -> None:
    file = io.StringIO()
    watcher = make_watcher(tables.make_console(file), TrainingState(env="x", total_steps=9), threading.Event())
    note = "observations are normalised: feature 3 reaches 812 in random play (limit 10)"
    decided = Start(**START | {"normalize_observations": True, "scale_rewards": True, "notes": [note]})
    watcher(decided)
    assert file.getvalue().splitlines() == [
        "4,996 parameters on cpu, threads: 4, observations normalised, rewards scaled, ready in 1.50s",
        note,
    ]


def dots(line: str) -> int:
    return sum((ord(char) - 0x2800).bit_count() for char in line if ord(char) > 0x2800)


def test_a_line_plot_is_a_line() -> None:
    rising = line_plot([(0.0, 0.0), (10.0, 100.0)], width=26, height=4)
    assert [line.partition("┤")[0] for line in rising] == ["100 ", "    ", "    ", "  0 "]
    assert all(len(line) <= 26 for line in rising)
    assert "⠈" in rising[0][-1] or "⠉" in rising[0][-1] or "⠊" in rising[0][-1]  # it ends at the top right
    assert rising[3][5] in "⣀⡠⡀"  # and begins at the bottom left
    assert sum(map(dots, rising)) >= 2 * 21  # one dot a column at least
    steep = line_plot([(0.0, 0.0), (1.0, 0.0), (1.001, 8.0), (2.0, 8.0)], width=13, height=3)
    assert all(any("⠀" < char <= "⣿" for char in line) for line in steep)  # no gap where it jumps


def test_a_line_plot_shows_the_mean_of_a_crowded_column_and_no_more_than_its_width() -> None:
    crowded = [(float(i), float(i % 2)) for i in range(4000)]
    plot = line_plot(crowded, width=30, height=3)
    assert all(len(line) == 30 for line in (line.ljust(30) for line in plot))
    assert dots(plot[0]) == dots(plot[2]) == 0 and dots(plot[1]) > 0  # the mean is one half everywhere


@pytest.mark.parametrize("points", [[(1.0, 5.0)], [(1.0, 5.0), (1.0, 5.0)], [(0.0, 5.0), (3.0, 5.0)]])
def test_a_flat_or_single_point_is_drawn(points: list[tuple[float, float]]) -> None:
    assert sum(map(dots, line_plot(points, width=20, height=3))) >= 1

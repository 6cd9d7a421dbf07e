"""Draws the learning curves of one or several runs into a PNG: score against seconds and against steps.

python scripts/learning_curves.py curves.png runs/train/pong-* LSTM=runs/train/memory-1 --threshold pong=20

A run is a folder of `protein train`, or a file with the output of `python -m protein.trainer`; `LABEL=` before it
names it in the legend, and runs of one label share a color. `--threshold ENV=SCORE`, as often as wanted, draws a dashed
line. The colors are those of Okabe and Ito, which color-blind people can tell apart.
"""

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from protein.errors import ProteinError, UsageError
from protein.trainer.events import read_line
from protein.trainer.kinds import LANGUAGE, kind_of_subject
from protein.types import Measurement
from protein.view import text
from protein.view.figures.style import COLORS, DOTS_PER_INCH, write

FILE_NAME = "measurements.jsonl"
INCHES_WIDE, INCHES_A_ROW, INCHES_AROUND = 10.0, 3.0, 0.6


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: its learning curve and, if it has ended, the score of its evaluation."""

    env: str
    label: str
    curve: tuple[Measurement, ...]
    final_score: float | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("png", type=Path)
    parser.add_argument("runs", nargs="+", metavar="[LABEL=]RUN")
    parser.add_argument("--threshold", action="append", default=[], metavar="ENV=SCORE")
    arguments = parser.parse_args()
    try:
        write_curves([_run(word) for word in arguments.runs], dict(map(_threshold, arguments.threshold)), arguments.png)
    except (ProteinError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _run(word: str) -> Run:
    label, equals, path = word.partition("=")
    return read_run(Path(path), label) if equals and not Path(word).exists() else read_run(Path(word))


def _threshold(word: str) -> tuple[str, float]:
    env, _, score = word.rpartition("=")
    try:
        return env, float(score)
    except ValueError:
        raise UsageError(f"--threshold '{word}' is not ENV=SCORE; write it like pong=20") from None


def read_run(path: Path, label: str = "") -> Run:
    """Reads a run from its folder or its file of JSON lines; `label` is the environment's name where it is empty.

    Raises:
        UsageError: there is no such file, it cannot be read, or it holds no measurement with a score.
    """
    file = path / FILE_NAME if path.is_dir() else path
    try:
        # The last line of a run that was killed may be incomplete.
        lines = [line for line in file.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
        events = [read_line(line) for line in lines]
        (env,) = {event["env"] for event in events if event["event"] == "start"}
        points = [event for event in events if event["event"] == "measurement" and event["score"] is not None]
        curve = tuple(
            Measurement(steps=point["steps"], elapsed_seconds=point["elapsed_seconds"], score=point["score"])
            for point in points
        )
        final = next((event["score"] for event in events if event["event"] == "result"), None)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read ({error.strerror or error}); give a run's folder or its file"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file} does not hold the events of one run; give a run's folder or its file") from error
    if not curve:
        raise UsageError(f"{file} holds no measurement with a score; let the run train until an episode has ended")
    return Run(env=env, label=label or env, curve=curve, final_score=final)


def write_curves(runs: Sequence[Run], thresholds: Mapping[str, float], path: Path) -> None:
    """Writes the PNG.

    Args:
        runs: at least one.
        thresholds: by environment, the score from which it counts as solved, drawn as a dashed line.
        path: the file; its folder is made.

    Raises:
        UsageError: there is a threshold for an environment without a run.
        OSError: the file cannot be written.
    """
    envs = list(dict.fromkeys(run.env for run in runs))
    if unknown := [env for env in thresholds if env not in envs]:
        raise UsageError(f"there is a threshold for '{unknown[0]}' but no run; there are runs of {', '.join(envs)}")
    # Without pyplot there is no global state and no search for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height = INCHES_A_ROW * len(envs) + INCHES_AROUND
    figure = Figure(figsize=(INCHES_WIDE, height), dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(envs), 2, squeeze=False, sharey="row")
    for row, env in zip(grid, envs, strict=True):
        of_env = [run for run in runs if run.env == env]
        _draw(row[0], of_env, thresholds.get(env), by_seconds=True)
        _draw(row[1], of_env, thresholds.get(env), by_seconds=False)
        kind = kind_of_subject(env)
        row[0].set_ylabel("score (minus bits per byte)" if kind is LANGUAGE else "score (mean of the last episodes)")
        row[0].set_title(env, loc="left", fontsize=11, fontweight="bold")
        row[0].set_xlabel("seconds of training")
        row[1].set_xlabel(kind.unit if kind is LANGUAGE else "steps (decisions of one agent)")
        row[1].legend(loc="best", fontsize=8, framealpha=0.85)
    write(figure, path)


def _draw(axes: Any, runs: Sequence[Run], threshold: float | None, *, by_seconds: bool) -> None:
    labels = list(dict.fromkeys(run.label for run in runs))
    for label, color in zip(labels, COLORS * (len(labels) // len(COLORS) + 1), strict=False):
        of_label = [run for run in runs if run.label == label]
        name = label if len(of_label) == 1 else f"{label} ({len(of_label)} runs)"
        for number, run in enumerate(of_label):
            x = [point.elapsed_seconds if by_seconds else point.steps for point in run.curve]
            y = [point.score for point in run.curve]
            axes.plot(x, y, color=color, linewidth=1.4, alpha=0.85, label="_" if number else name)
            if run.final_score is not None:
                axes.plot(x[-1], run.final_score, "o", color=color, markersize=5, markeredgecolor="white", zorder=3)
    if any(run.final_score is not None for run in runs):
        axes.plot(
            [], [], "o", color="#666666", markersize=5, label=f"evaluation on {kind_of_subject(runs[0].env).held_out}"
        )
    if threshold is not None:
        axes.axhline(threshold, color="#444444", linestyle="--", linewidth=1.1, label=f"threshold {threshold:g}")
    axes.set_xlim(left=0)
    axes.margins(y=0.08)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if not by_seconds:
        axes.xaxis.set_major_formatter(lambda value, _: text.count(round(value)))


if __name__ == "__main__":
    sys.exit(main())

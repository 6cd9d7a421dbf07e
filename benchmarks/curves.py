"""Draws learning curves, for `solve.py` and `peers/`: score against seconds of training, a panel an environment."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def draw(path: Path, runs: Sequence[Mapping[str, Any]], colors: Mapping[str, str], *, log: bool = False) -> None:
    """Writes the picture: one line a run, in the colour of its method, and the environment's goal dashed.

    Args:
        path: the file, by its ending.
        runs: each with its `environment`, `method`, `goal` and `curve`: points of (steps, seconds, score).
        colors: that of each method, in the order of the legend, which is left out for a single one.
        log: seconds on a log scale, for runs whose lengths differ by an order of magnitude.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(run["environment"] for run in runs))
    columns = min(4, len(names))
    rows = math.ceil(len(names) / columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(3.2 * columns, 2.6 * rows), squeeze=False)
    for panel, name in zip(axes.flat, names, strict=False):
        own = [run for run in runs if run["environment"] == name]
        for run in own:
            points = [point[1:] for point in run["curve"]]  # none where no episode has ended
            panel.plot([p[0] for p in points], [p[1] for p in points], color=colors[run["method"]], alpha=0.7, lw=1)
        panel.axhline(own[0]["goal"], color="black", ls="--", lw=1)
        panel.set_title(f"{name}: goal {own[0]['goal']:g}", fontsize=8)  # the dashed line
        panel.tick_params(which="both", labelsize=7)
        if log:
            panel.set_xscale("log")
    for panel in axes.flat[len(names) :]:
        panel.axis("off")
    figure.supxlabel("seconds of training" + (", log scale" if log else ""), fontsize=9)
    figure.supylabel("score, mean of the last episodes", fontsize=9)
    if len(colors) > 1:
        handles = [Line2D([], [], color=color, label=method) for method, color in colors.items()]
        figure.legend(handles=handles, loc="upper center", ncols=len(colors), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.95 if len(colors) > 1 else 1))
    figure.savefig(path, dpi=130)

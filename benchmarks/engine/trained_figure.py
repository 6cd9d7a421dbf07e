"""Draws what methods found on our own trainer: the best measured score for every cost of one trial, and every trial."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

_COLOURS = ("#c1272d", "#1f77b4", "#2ca02c", "#9467bd", "#555555")
_NAMES = {
    "protein:continuing": "protein, trials continued",
    "tpe": "Optuna TPE",
    "gp": "Optuna GPSampler",
    "puffer": "PufferLib's Protein",
}
_NUM_COSTS = 200


def draw(rows: Sequence[dict[str, Any]], ours: str, path: Path) -> None:
    """Writes the picture of one environment's rows (see `engine.train`).

    A line is the median over seeds of the best score that was measured within a cost; a band goes from the worst seed
    to the best. It begins where each seed has a complete trial. Method `ours` is red. Scores at or below 0 (minus a
    loss) are drawn from the median of all, because a loss may be as large as it likes.
    """
    rows = sorted(rows, key=lambda row: row["method"] != ours)
    figure, panel = plt.subplots(figsize=(8.0, 4.8))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    found = [point for row in rows for point in _complete(row)]
    scores = [score for _, score in found]
    for method, colour in zip(methods, _COLOURS, strict=False):
        own = [row for row in rows if row["method"] == method]
        points = [point for row in own for point in _complete(row)]
        costs_seen, scores_seen = zip(*points, strict=True)
        panel.scatter(costs_seen, scores_seen, s=9, alpha=0.35, color=colour, linewidths=0)
        longest = max(row.get("cap") or row["budget"] / 4 for row in own)
        costs = np.geomspace(min(cost for cost, _ in points), longest, _NUM_COSTS)
        best = np.array([[_best(row, cost) for cost in costs] for row in own])
        known = np.isfinite(best).all(axis=0)
        label = f"{_NAMES.get(method, method)}, {len(own)} seed{'' if len(own) == 1 else 's'}"
        panel.step(
            costs[known], np.median(best[:, known], axis=0), where="post", color=colour, linewidth=2, label=label
        )
        low, high = np.min(best[:, known], axis=0), np.max(best[:, known], axis=0)
        panel.fill_between(costs[known], low, high, step="post", color=colour, alpha=0.15, linewidth=0)
    if max(scores) <= 0:
        low, top = float(np.median(scores)), max(scores)
        bottom = low - 0.5 * (top - low)
        panel.set_ylim(bottom, top + 0.1 * (top - low))
        panel.set_xlim(left=0.8 * min(cost for cost, score in found if score >= bottom))
    panel.set_xscale("log")
    panel.set_xlabel("seconds of training of one trial")
    panel.set_ylabel("score")
    panel.legend(loc="lower right", frameon=False)
    panel.grid(alpha=0.25)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _complete(row: dict[str, Any]) -> list[tuple[float, float]]:
    """Returns (seconds, score) of the trials that were trained to their end."""
    return [(t["run_seconds"], t["score"]) for t in row["trials"] if t["state"] == "complete"]


def _best(row: dict[str, Any], cost: float) -> float:
    return max((score for seconds, score in _complete(row) if seconds <= cost), default=-math.inf)

"""Draws the comparison: best-so-far and hypervolume over the spent budget, for every method."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from engine.cells import TRACE_SHARES
from engine.report import OURS, cell_weights
from numpy.typing import NDArray

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

_NUM_RESAMPLED = 400
_PANELS = (("trace", "best so far"), ("front", "hypervolume"))
_OURS_COLOUR = "#c1272d"
_MARKED = 3  # so many peers get a band


def draw(rows: Sequence[dict[str, Any]], budgets: Sequence[float], path: Path) -> None:
    """Writes the figure (SVG or PNG by the path's ending): a row of panels for each budget that has cells."""
    rows = [row for row in rows if not row["method"].startswith(f"{OURS}:")]
    budgets = [budget for budget in budgets if any(row["budget"] == budget for row in rows)]
    if not budgets:
        raise ValueError("nothing was measured yet at these budgets; run the suite first")
    colours = _colours(rows)
    figure, axes = plt.subplots(
        len(budgets), len(_PANELS), figsize=(11.0, 4.3 * len(budgets) + 0.7), squeeze=False, sharey="col"
    )
    for budget, line in zip(budgets, axes, strict=True):
        cells = [row for row in rows if row["budget"] == budget]
        for (name, label), panel in zip(_PANELS, line, strict=True):
            _panel(panel, cells, name, budget, colours)
            panel.set_ylabel(f"{label} (1: best known)")
            panel.set_xlabel(f"spent, in mean random-trial costs (budget {budget:g})")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=7, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0.0, 0.08 if len(budgets) == 1 else 0.05, 1.0, 1.0))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _colours(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One colour for each method, the same in every panel; red is ours alone."""
    colour_map = plt.get_cmap("tab20")
    palette = [colour_map(i) for i in range(20) if i not in (6, 7)]
    peers = sorted({row["method"] for row in rows} - {OURS})
    return {OURS: _OURS_COLOUR} | {peer: palette[(2 * i + i // 9) % 18] for i, peer in enumerate(peers)}


def _panel(panel: Axes, cells: Sequence[dict[str, Any]], name: str, budget: float, colours: Mapping[str, Any]) -> None:
    """Lines are means as in `engine.report`, bands the 90 % bootstrap interval over cells."""
    curves = {method: _curves(cells, method, name) for method in sorted({row["method"] for row in cells})}
    final = sorted(curves, key=lambda m: (m != OURS, -float(curves[m][0][-1])))
    for method in sorted(curves, key=lambda m: m == OURS):
        middle, low, high = curves[method]
        colour = colours[method]
        dotted = method in ("random", "sobol")
        panel.plot(
            budget * TRACE_SHARES,
            middle,
            color="0.35" if dotted else colour,
            linewidth=2.6 if method == OURS else 1.3,
            linestyle=(":" if method == "random" else "--") if dotted else "-",
            label=method,
        )
        if method in final[: _MARKED + 1]:
            panel.fill_between(budget * TRACE_SHARES, low, high, color=colour, alpha=0.15, linewidth=0)
    panel.set_xscale("log")
    panel.set_xlim(budget * TRACE_SHARES[0], budget)
    panel.set_ylim(bottom=0.0)
    panel.grid(alpha=0.25)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _curves(cells: Sequence[dict[str, Any]], method: str, name: str) -> tuple[NDArray[np.float64], ...]:
    """Mean and band of one method, one figure for each of `TRACE_SHARES`."""
    own = [row for row in cells if row["method"] == method]
    values = np.array([row[name] for row in own]) / 1000.0
    weight = cell_weights(own)
    drawn = np.random.default_rng(0).integers(0, len(own), (_NUM_RESAMPLED, len(own)))
    resampled = np.einsum("rc,rct->rt", weight[drawn], values[drawn]) / weight[drawn].sum(axis=1)[:, None]
    low, high = np.quantile(resampled, [0.05, 0.95], axis=0)
    return weight @ values, low, high

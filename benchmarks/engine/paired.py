"""Conditions compared on the same tasks: cells that are measured once, and paired differences with intervals.

A cell is one task (family, seed) under every condition: `{"family": ..., "seed": ..., CONDITION: {FIGURE: ...}, ...}`.
Cells are lines of a JSON-lines file beside the result, so a run may be stopped and gone on with at any time.
"""

import json
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

METRICS = ("best", "volume", "area")
_NUM_DRAWS = 4000

Row = dict[str, Any]


def measure(run_cell: Callable[[Any], Row], jobs: Sequence[tuple[Any, ...]], cells: Path, processes: int) -> list[Row]:
    """Runs the jobs, (family, seed, ...), that have no cell yet, and returns the cells of all of them."""
    rows = [json.loads(line) for line in cells.read_text().splitlines()] if cells.exists() else []
    done = {(row["family"], row["seed"]) for row in rows}
    left = [job for job in jobs if (job[0], job[1]) not in done]
    with cells.open("a") as file, multiprocessing.get_context("spawn").Pool(processes) as pool:
        found: Iterable[Row] = map(run_cell, left) if processes == 1 else pool.imap_unordered(run_cell, left)
        for row in found:
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    asked = {(job[0], job[1]) for job in jobs}
    return [row for row in rows if (row["family"], row["seed"]) in asked]


def differences(rows: Sequence[Row], pairs: Iterable[tuple[str, str]]) -> list[Row]:
    """Returns a line for each (condition, base) and figure: means, their paired difference, its 90 % interval."""
    lines = []
    for condition, base in pairs:
        for metric in METRICS:
            gaps = np.array([row[condition][metric] - row[base][metric] for row in rows])
            drawn = gaps[np.random.default_rng(0).integers(0, len(gaps), (_NUM_DRAWS, len(gaps)))].mean(axis=1)
            by_family = {
                family: float(np.mean([gap for gap, row in zip(gaps, rows, strict=True) if row["family"] == family]))
                for family in dict.fromkeys(row["family"] for row in rows)
            }
            worst = min(by_family, key=lambda family: by_family[family])
            lines.append(
                {
                    "condition": condition,
                    "base": base,
                    "figure": metric,
                    "mean": round(float(np.mean([row[condition][metric] for row in rows])), 4),
                    "difference": round(float(gaps.mean()), 4),
                    "interval_90": [round(float(q), 4) for q in np.quantile(drawn, [0.05, 0.95])],
                    "worst_family": worst,
                    "worst_difference": round(by_family[worst], 4),
                }
            )
    return lines


def show(lines: Sequence[Row]) -> str:
    """Returns the lines as a table."""
    head = f"{'condition':<16}{'against':<16}{'figure':<8}{'mean':>7}{'difference':>12}  90 %            worst family"
    return "\n".join(
        [head]
        + [
            f"{line['condition']:<16}{line['base']:<16}{line['figure']:<8}{line['mean']:>7.3f}{line['difference']:>+12.3f}"
            f"  [{line['interval_90'][0]:+.3f}, {line['interval_90'][1]:+.3f}]"
            f"  {line['worst_family']} {line['worst_difference']:+.3f}"
            for line in lines
        ]
    )

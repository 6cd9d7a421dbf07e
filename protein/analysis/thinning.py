"""Fewer points of a large scatter that look the same: a point for each occupied cell, and all that stand out."""

import numpy as np
import numpy.typing as npt

from protein.engine.gp import Array

CELLS = (400, 300)  # columns and rows of the finest grid, about one for each pixel or two of a page's chart


def thinned(x: Array, y: Array, most: int, keep: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Returns which of n points to draw, in rising order: at most `most`, and those in `keep` in any case.

    The point with the lowest index stands for its cell. The grid is made coarser until the points are few enough. The
    extreme points of both axes are kept.

    Args:
        x: `n`, finite, on the scale of the axis.
        y: `n`, finite.
        most: at least 1.
        keep: indices that must be drawn.
    """
    number = len(x)
    if number <= most:
        return np.arange(number)
    ends = [int(find(values)) for values in (x, y) for find in (np.argmin, np.argmax)]
    always = np.unique(np.concatenate([np.asarray(keep, dtype=np.intp), ends]))
    columns, rows = CELLS
    while True:
        cell = _bins(x, columns) * rows + _bins(y, rows)
        _, first = np.unique(cell, return_index=True)
        chosen = np.union1d(first, always)
        if len(chosen) <= max(most, len(always)) or (columns == 1 and rows == 1):
            return chosen
        columns, rows = max(1, columns * 4 // 5), max(1, rows * 4 // 5)


def _bins(values: Array, count: int) -> npt.NDArray[np.intp]:
    low, high = float(values.min()), float(values.max())
    if not high > low:
        return np.zeros(len(values), dtype=np.intp)
    return np.minimum(((values - low) / (high - low) * count).astype(np.intp), count - 1)

"""A curve of values over time, drawn as a line of braille dots: two columns and four rows of dots a character."""

import itertools
import math
from collections.abc import Sequence

from protein.view.scatter import bounds, score_label

MIN_HEIGHT = 3
# The bit of each dot in a braille character, U+2800 and up: by column from the left, then by row from the top.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


def line_plot(points: Sequence[tuple[float, float]], width: int, height: int) -> list[str]:
    """Returns the plot as `height` lines of `width` characters, its lowest and highest value named at the left.

    Between points the line is straight. A column in which several points lie shows their mean.

    Args:
        points: (x, y) in order of x, at least one, all finite.
        width: characters, labels included.
        height: lines, at least `MIN_HEIGHT`.
    """
    low, high = bounds([y for _, y in points])
    labels = [score_label(high, high - low), score_label(low, high - low)]
    margin = max(map(len, labels)) + 2
    columns, rows = 2 * max(width - margin, 1), 4 * height
    cells = [[0] * (columns // 2) for _ in range(height)]
    before: int | None = None
    for column, value in enumerate(_levels(points, columns)):
        row = round((high - value) / (high - low) * (rows - 1))
        # Where the line is steep, the dots between this column and the one before it belong to it, too.
        for dot in _between(before, row):
            cells[dot // 4][column // 2] |= _DOTS[column % 2][dot % 4]
        before = row
    drawn = ["".join(chr(0x2800 + cell) if cell else " " for cell in line) for line in cells]
    names = [labels[0], *[""] * (height - 2), labels[1]]
    return [f"{name:>{margin - 2}} ┤{line}" for name, line in zip(names, drawn, strict=True)]


def _between(before: int | None, row: int) -> range:
    if before is None or abs(row - before) <= 1:
        return range(row, row + 1)
    return range(before + 1, row + 1) if row > before else range(row, before)


def _levels(points: Sequence[tuple[float, float]], columns: int) -> list[float]:
    """Returns a value for each column: the mean of its points, and a straight line where there are none."""
    begin, end = points[0][0], points[-1][0]
    sums, counts = [0.0] * columns, [0] * columns
    for x, y in points:
        position = (x - begin) / (end - begin) if end > begin else 0.0
        column = min(math.floor(position * columns), columns - 1)
        sums[column] += y
        counts[column] += 1
    known = [column for column in range(columns) if counts[column]]
    levels = [total / count if count else 0.0 for total, count in zip(sums, counts, strict=True)]
    for left, right in itertools.pairwise(known):
        for column in range(left + 1, right):
            share = (column - left) / (right - left)
            levels[column] = levels[left] * (1 - share) + levels[right] * share
    return levels[: known[-1] + 1] if end > begin else levels[:1]

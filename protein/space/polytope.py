"""What linear constraints leave of a space: a point that meets them, a proof that there is none, and uniform draws.

Notation
    k        number of numeric parameters that the constraints mention
    numbers  `n x k` raw values of these parameters
    x_unit   `n x k` unit coordinates of them
    a, b     inequalities, `a @ numbers <= b`, `m x k` and `m`
    e, f     equalities, `e @ numbers == f`, `p x k` and `p`

A constraint is linear in raw values, whatever the scale. With all other values given, it keeps one raw value within an
interval, and so its unit coordinate, too. Drawing that coordinate evenly from the interval, one parameter after the
other, has the distribution as its limit that rejection would have: uniform in unit coordinates (Gibbs sampling). It is
slow where constraints leave a thin slice. So half of the steps are along lines on which one of the constraints does not
change (hit-and-run); these are straight in unit coordinates where scales are linear, and only such parameters move.

Equalities leave no interval of one coordinate. There all steps are along lines in raw values, in which the points are
then uniform. Rounding takes them off again; `Space` moves them back.

Source: Smith (1984), Efficient Monte Carlo procedures for generating points uniformly distributed over bounded regions.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protein.space.constraints import Linear
from protein.space.parameters import Array, Float, Integer, value_ends

Positions = NDArray[np.signedinteger[Any]]  # of parameters

_MOST_COUNTED = 1e6  # values of a grid that the program takes for whole numbers; it cannot tell more of them apart
_TOUCHING = 1e-7  # slack that is none: what the solver takes for 0
_INFEASIBLE = 2  # the solver's word for it
_SECONDS = 10.0  # that it may take
_ROUNDING = 1e-12  # of the largest sum that a constraint can have


class Polytope:
    """The points that linear constraints leave.

    Attributes:
        names: of the parameters that they mention.
        has_equalities: whether some of them are equalities.
    """

    def __init__(self, parameters: Sequence[Float | Integer], rows: Sequence[Linear]) -> None:
        self._parameters = [one for one in parameters if any(one.name in row.coefficients for row in rows)]
        self.names = [one.name for one in self._parameters]
        self._low = np.array([float(one.low) for one in self._parameters])
        self._width = np.array([float(one.high) for one in self._parameters]) - self._low
        matrix = np.array([[row.coefficients.get(name, 0.0) for name in self.names] for row in rows])
        matrix = matrix.reshape(len(rows), len(self.names))
        right = np.array([-row.constant for row in rows])
        equal = np.array([row.kind == "==" for row in rows], dtype=bool)
        self._strict = np.array([row.kind == "<" for row in rows], dtype=bool)[~equal]
        self._a, self._b, self._e, self._f = matrix[~equal], right[~equal], matrix[equal], right[equal]
        self.has_equalities = bool(equal.any())
        self._allowed = self._b + _ROUNDING * (np.abs(self._a) @ (np.abs(self._low) + self._width) + np.abs(self._b))
        # Those whose unit coordinate is a straight line in raw values.
        self._straight = np.flatnonzero(
            [isinstance(one, Float) and one.scale == "linear" and one.step is None for one in self._parameters]
        )

    def point(self) -> Array | None:
        """Returns numbers, `k`, that meet all constraints, with most room in the inequalities; None: there are none.

        By a mixed-integer linear program. What lies within a rounding error of an end may not really meet it.
        """
        found = self._solved(np.ones(len(self._b), dtype=bool))
        if found is None or found[1] > _TOUCHING or not self._strict.any():
            return None if found is None else found[0]
        found = self._solved(self._strict)  # others may be met without any slack
        if found is None:
            return None
        are_met = (self._a @ found[0] < self._b)[self._strict].all()
        return found[0] if found[1] > _TOUCHING or are_met else None

    def _solved(self, with_slack: NDArray[np.bool_]) -> tuple[Array, float] | None:
        """Returns the numbers, `k`, with the largest slack in some inequalities, and it; None: nothing is feasible.

        The columns of the program are what numbers are made of, each from 0 to 1 or a whole number, and the slack.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp  # late: few spaces need it

        parts: list[tuple[int, float, float, bool]] = []  # parameter, number for each unit, most units, whole
        offset = self._low.copy()
        for i, one in enumerate(self._parameters):
            grid = one.step or (1 if isinstance(one, Integer) else None)
            if one.scale == "pow2":
                offset[i] = 0.0
                parts += [(i, float(value), 1.0, True) for value in one.values() or ()]
            elif grid is not None and self._width[i] / grid <= _MOST_COUNTED:
                parts.append((i, float(grid), round(self._width[i] / grid), True))
            else:
                parts.append((i, self._width[i], 1.0, False))
        made = np.zeros((len(self.names), len(parts)))
        for column, (i, number, _, _) in enumerate(parts):
            made[i, column] = number
        size = np.abs(self._a) @ (np.abs(self._low) + self._width) + np.abs(self._b) + 1e-300
        rows = np.column_stack([self._a @ made, np.where(with_slack, size, 0.0)]) / size[:, None]
        limits = [LinearConstraint(rows, -np.inf, (self._b - self._a @ offset) / size)] if len(rows) else []
        if self.has_equalities:
            size = np.abs(self._e) @ (np.abs(self._low) + self._width) + np.abs(self._f) + 1e-300
            right = (self._f - self._e @ offset) / size
            rows = np.column_stack([self._e @ made, np.zeros(len(right))]) / size[:, None]
            limits.append(LinearConstraint(rows, right, right))
        for i, one in enumerate(self._parameters):
            if one.scale == "pow2":  # one of the powers, once
                limits.append(LinearConstraint([*(float(part[0] == i) for part in parts), 0.0], 1.0, 1.0))
        most, whole = [part[2] for part in parts], [part[3] for part in parts]
        cost = np.zeros(len(parts) + 1)
        cost[-1] = -1.0
        answer = milp(
            cost,
            constraints=limits,
            bounds=Bounds(np.zeros(len(parts) + 1), [*most, 1.0]),
            integrality=np.array([*whole, False], dtype=int),
            options={"time_limit": _SECONDS},
        )
        if answer.x is None:
            unknown = (self._low + self._width / 2, math.inf)  # out of time, which proves nothing
            return None if answer.status == _INFEASIBLE else unknown
        units = np.where([*whole, False], np.round(answer.x), answer.x)
        return offset + made @ units[:-1], float(answer.x[-1])

    def encode(self, numbers: Array) -> Array:
        """Returns unit coordinates, `n x k`."""
        inside = np.clip(numbers, self._low, self._low + self._width)
        return np.clip(np.stack([p.encode(inside[:, i]) for i, p in enumerate(self._parameters)], axis=1), 0.0, 1.0)

    def decode(self, x_unit: Array) -> Array:
        """Returns numbers, `n x k`."""
        return np.stack([p.decode(x_unit[:, i]) for i, p in enumerate(self._parameters)], axis=1)

    def walked(self, x_unit: Array, num_steps: int, rng: np.random.Generator) -> Array:
        """Returns where n walks from points that meet the constraints, `n x k`, are after some steps, `n x k`."""
        if self.has_equalities:
            numbers = self.decode(x_unit)
            for _ in range(num_steps):
                direction = self._direction(np.arange(len(self.names)), rng)
                low, high = self._chord(numbers, direction, np.arange(len(self.names)))
                numbers = numbers + rng.uniform(low, high)[:, None] * direction
            return self.encode(numbers)
        x, numbers = x_unit.copy(), self.decode(x_unit)
        for step in range(num_steps):
            if step % 2 and len(self._straight) > 1:
                self._step_along(x, numbers, rng)
            else:
                self._step_across(x, numbers, int(rng.integers(len(self.names))), rng)
        return x

    def along(self, x_unit: Array, to: Array, share: Array) -> Array:
        """Returns points, `n x k`, a `share`, `n`, of the way from points that meet the constraints to others.

        Where there are equalities, the way keeps to them, and ends where an inequality ends it.
        """
        if not self.has_equalities:
            return x_unit + share[:, None] * (to - x_unit)
        numbers = self.decode(x_unit)
        way = (self.decode(to) - numbers) / self._width
        rows = self._e * self._width
        way = (way - (way @ rows.T) @ np.linalg.pinv(rows).T) * self._width
        every = np.arange(len(self.names))
        ends = [self._chord(numbers[i : i + 1], one, every)[1][0] for i, one in enumerate(way)]
        return self.encode(numbers + (share * np.clip(ends, 0.0, 1.0))[:, None] * way)

    def _direction(self, columns: Positions, rng: np.random.Generator) -> Array:
        """A random direction in raw values, `k`, in which some columns change, and no equality, nor one inequality."""
        rows = self._e
        if len(self._a) and rng.random() < 0.8:
            rows = np.concatenate([rows, self._a[rng.integers(len(self._a))][None, :]])
        size = min(len(rows) + int(rng.geometric(0.5)), len(columns))
        chosen = rng.choice(columns, size, replace=False)
        step = rng.standard_normal(size)
        if len(rows):
            scaled = rows[:, chosen] * self._width[chosen]
            step = step - np.linalg.pinv(scaled) @ (scaled @ step)
        direction = np.zeros(len(self.names))
        direction[chosen] = np.where(np.abs(step) > _ROUNDING, step, 0.0) * self._width[chosen]
        return direction

    def _chord(self, numbers: Array, direction: Array, columns: Positions) -> tuple[Array, Array]:
        """Between which multiples of a direction n points meet inequalities and ranges; 0 and 0: they cannot move."""
        moves = self._a @ direction
        room = np.concatenate(
            [
                self._b - numbers @ self._a.T,
                (self._low + self._width - numbers)[:, columns],
                (numbers - self._low)[:, columns],
            ],
            axis=1,
        )
        moves = np.concatenate([moves, direction[columns], -direction[columns]])
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.maximum(room, 0.0) / moves
        widths = self._width[columns]
        still = np.abs(moves) <= _ROUNDING * np.concatenate([np.abs(self._a) @ self._width, widths, widths])
        high = np.where(still | (moves <= 0), np.inf, ends).min(axis=1)
        low = np.where(still | (moves >= 0), -np.inf, ends).max(axis=1)
        fine = np.isfinite(low) & np.isfinite(high) & (low <= high)
        return np.where(fine, low, 0.0), np.where(fine, high, 0.0)

    def _step_along(self, x_: Array, numbers_: Array, rng: np.random.Generator) -> None:
        direction = self._direction(self._straight, rng)
        low, high = self._chord(numbers_, direction, self._straight)
        (columns,) = np.nonzero(direction)
        steps = rng.uniform(low, high)[:, None] * direction[columns] / self._width[columns]
        self._move(x_, numbers_, columns, np.clip(x_[:, columns] + steps, 0.0, 1.0))

    def _step_across(self, x_: Array, numbers_: Array, i: int, rng: np.random.Generator) -> None:
        """Draws the i-th coordinate of n points anew from what the constraints leave it."""
        parameter, own = self._parameters[i], self._a[:, i]
        rest = self._b - numbers_ @ self._a.T + numbers_[:, i : i + 1] * own
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = rest / own
        high = np.where(own > 0, bound, np.inf).min(axis=1, initial=np.inf)
        low = np.where(own < 0, bound, -np.inf).max(axis=1, initial=-np.inf)
        low, high = (np.clip(end, parameter.low, parameter.high) for end in (low, high))
        ends = [_edge(parameter, low, up=False), _edge(parameter, high, up=True)]
        drawn = rng.uniform(np.minimum(*ends), np.maximum(*ends))
        self._move(x_, numbers_, np.array([i]), drawn[:, None])

    def _move(self, x_: Array, numbers_: Array, columns: Positions, moved: Array) -> None:
        """Gives some columns of n points new coordinates where the inequalities hold with the values rounded."""
        values = np.stack([self._parameters[i].decode(moved[:, j]) for j, i in enumerate(columns)], axis=1)
        sums = numbers_ @ self._a.T + (values - numbers_[:, columns]) @ self._a[:, columns].T
        fine = np.flatnonzero((sums <= self._allowed).all(axis=1))
        x_[np.ix_(fine, columns)], numbers_[np.ix_(fine, columns)] = moved[fine], values[fine]


def _edge(parameter: Float | Integer, numbers: Array, *, up: bool) -> Array:
    """Returns the unit coordinates, `n`, where the bin of the last value before an end begins or ends.

    That is the upper end of the bin of the largest value that is not above `numbers`, or (not `up`) the lower end of
    that of the smallest one not below. Where there are no bins, it is that of the number itself.
    """
    sign = 1.0 if up else -1.0
    x = np.clip(parameter.encode(numbers), 0.0, 1.0)
    step = parameter.step or (1 if isinstance(parameter, Integer) else None)
    if parameter.scale == "pow2":
        value = parameter.decode(x)
        over = value > numbers if up else value < numbers
        edge = np.where(over, value * 2.0 ** (-sign / 2), value * 2.0 ** (sign / 2))
    elif step is not None:
        value = parameter.decode(x)
        slack = _ROUNDING * np.maximum(np.abs(numbers), step)
        over = value > numbers + slack if up else value < numbers - slack
        edge = np.clip(value + np.where(over, -sign, sign) * step / 2, *value_ends(parameter))
    else:
        return x
    return np.clip(parameter.encode(edge), 0.0, 1.0)

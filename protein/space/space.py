"""The search space: named parameters, constraints between them, and the map between raw values and the unit cube.

Notation
    d         number of parameters (`Space.num_dims`), in the order in which they were given
    params    mapping dotted name -> raw value; holds exactly the d swept parameters, never the fixed ones
    x_unit    `d` coordinates in [0, 1], one for each parameter whatever its type (`protein.space.parameters` has the
              map); designs and candidates are in these
    features  `d_features` coordinates for models: a numeric parameter keeps its unit coordinate, a categorical one
              becomes one column per choice (one-hot, scaled so that two different choices lie 1 apart)

A point is canonical when it is `to_unit` of some params: bin middles, rounded floats. For canonical points and for
the params that `from_unit` returns, round trips are exact. Only numpy is imported: the command line loads this module.
"""

import contextlib
import dataclasses
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protein.errors import SpaceError
from protein.space.constraints import Constraint, Equality
from protein.space.parameters import Array, Categorical, Float, Integer, Parameter
from protein.spelling import nearest
from protein.types import Params, ParamValue
from protein.validate import plain

__all__ = ["Categorical", "Float", "Integer", "Parameter", "Space"]

_NUM_PROBES = 1 << 14  # points drawn to decide that constraints cannot be satisfied
_MAX_DRAWS = 1 << 18  # points drawn at most to collect valid ones
_NUM_TURNS = 4  # in which equalities are solved, for another parameter each time


class Space:
    """An ordered set of parameters with constraints between them. Immutable.

    Attributes:
        parameters: the swept parameters, in order.
        names: their names.
        fixed: values that are not swept but that constraints may mention.
        cost_parameter: the parameter that makes a trial cheap or expensive (total steps), or None when unknown. A
            parameter that is fixed counts as None.
        constraints: texts of the constraints that every suggested point satisfies.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        *,
        cost_parameter: str | None = None,
        constraints: Sequence[str] = (),
        fixed: Params | None = None,
    ) -> None:
        """Raises `SpaceError` on: no or duplicated parameters, an unknown name, constraints that no point satisfies."""
        self.parameters = _listed(parameters)
        self.names = tuple(parameter.name for parameter in self.parameters)
        self.fixed: dict[str, ParamValue] = _fixed({} if fixed is None else fixed)
        self._position = {name: i for i, name in enumerate(self.names)}
        if not self.parameters:
            raise SpaceError("the space has no parameters; give at least one value a range")
        for name in self.names:
            if self.names.count(name) > 1 or name in self.fixed:
                raise SpaceError(f"parameter '{name}' is given twice; name each parameter once, swept or fixed")
        known = {*self.names, *self.fixed}
        if not isinstance(cost_parameter, str | None):
            raise SpaceError(f"cost_parameter must be the name of a parameter, got {cost_parameter!r:.80}")
        if cost_parameter is not None and cost_parameter not in known:
            raise SpaceError(f"cost parameter '{cost_parameter}' is not a parameter{nearest(cost_parameter, known)}")
        self.cost_parameter = cost_parameter if cost_parameter in self._position else None
        if isinstance(self.parameter(self.cost_parameter) if self.cost_parameter else None, Categorical):
            raise SpaceError(f"cost parameter '{cost_parameter}' is categorical; it needs a numeric range")
        if isinstance(constraints, str):
            raise SpaceError(f"constraints must be a list of texts, got the text '{constraints}'")
        if not isinstance(constraints, Iterable):
            raise SpaceError(f"constraints must be a list of texts, got {constraints!r:.80}; leave it out for none")
        self._constraints = tuple(Constraint(text) for text in constraints)
        self.constraints = tuple(constraint.text for constraint in self._constraints)
        for constraint in self._constraints:
            constraint.check_names(known)
        self._witness = self._find_witness()

    @property
    def num_dims(self) -> int:
        return len(self.parameters)

    @property
    def cost_index(self) -> int | None:
        """Position of the cost parameter among the coordinates, or None."""
        return None if self.cost_parameter is None else self._position[self.cost_parameter]

    def parameter(self, name: str) -> Parameter:
        """Returns a parameter by name. Raises `SpaceError`, with the nearest name, when there is none."""
        if name not in self._position:
            raise SpaceError(f"unknown parameter '{name}'{nearest(str(name), self.names)}")
        return self.parameters[self._position[name]]

    def default(self) -> dict[str, ParamValue]:
        """Returns the defaults; the middle of its range for a parameter that has none. May violate constraints."""
        middle = self.from_unit(np.full(self.num_dims, 0.5))
        for parameter in self.parameters:
            if parameter.default is not None:
                middle[parameter.name] = parameter.default
        return middle

    def validate(self, params: Params) -> None:
        """Raises `SpaceError` for the first unknown or missing name, value out of range, or violated constraint."""
        if not isinstance(params, Mapping):
            raise SpaceError(f"params must map names to values, as in suggestion.params, got {params!r:.80}")
        for name in params:
            self.parameter(name)
        for parameter in self.parameters:
            if parameter.name not in params:
                raise SpaceError(f"parameter '{parameter.name}' has no value; give one")
            parameter.check(params[parameter.name])
        numbers = [np.array([p.numeric(params[p.name])]) for p in self.parameters]
        for constraint in self._constraints:
            if not constraint.satisfied(self._columns(numbers), 1)[0]:
                given = {**self.fixed, **params}
                values = ", ".join(f"{name} = {given[name]!r}" for name in sorted(constraint.names))
                raise SpaceError(f"constraint '{constraint.text}' is violated by {values}; change one of them")

    def is_valid(self, params: Params) -> bool:
        """Whether `validate` accepts the params."""
        try:
            self.validate(params)
        except SpaceError:
            return False
        return True

    def key(self, params: Params) -> tuple[Any, ...]:
        """Returns what is equal for params of the same point alone. True, 1 and 1.0 are equal but different choices."""
        values = [(parameter, params.get(parameter.name)) for parameter in self.parameters]
        return tuple((type(value), value) if isinstance(p, Categorical) else value for p, value in values)

    def to_unit(self, params: Params) -> Array:
        """Returns the unit coordinates of params, `d`. Constraints are not checked; ranges are (`SpaceError`)."""
        x_unit: Array = self.to_unit_many([params])[0]
        return x_unit

    def to_unit_many(self, params: Sequence[Params]) -> Array:
        """Returns unit coordinates, `n x d`, of n params. Raises `SpaceError` on a missing or unusable value."""
        x_unit = np.empty((len(params), self.num_dims))
        for i, parameter in enumerate(self.parameters):
            if not all(parameter.name in point for point in params):
                raise SpaceError(f"parameter '{parameter.name}' has no value; give one")
            x_unit[:, i] = parameter.encode(parameter.numbers([point[parameter.name] for point in params]))
        return np.clip(x_unit, 0.0, 1.0)

    def from_unit(self, x_unit: ArrayLike) -> dict[str, ParamValue]:
        """Returns the params at unit coordinates, `d` (clipped to [0, 1])."""
        return self.from_unit_many(np.asarray(x_unit, dtype=np.float64)[None, :])[0]

    def from_unit_many(self, x_unit: ArrayLike) -> list[dict[str, ParamValue]]:
        """Returns n params at unit coordinates, `n x d` (clipped to [0, 1])."""
        columns = [
            [parameter.raw(number) for number in numbers]
            for parameter, numbers in zip(self.parameters, self._decode(x_unit), strict=True)
        ]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]

    def canonical(self, x_unit: ArrayLike) -> Array:
        """Returns the coordinates, `n x d`, that the params at `x_unit` have: bin middles, rounded floats."""
        columns = [p.encode(numbers) for p, numbers in zip(self.parameters, self._decode(x_unit), strict=True)]
        return np.clip(np.stack(columns, axis=1), 0.0, 1.0)

    def features(self, x_unit: ArrayLike) -> Array:
        """Returns model coordinates, `n x d_features`, of unit coordinates, `n x d`. See Notation."""
        x = np.asarray(x_unit, dtype=np.float64)
        columns: list[Array] = []
        for i, parameter in enumerate(self.parameters):
            if isinstance(parameter, Categorical):
                index = parameter.decode(x[:, i]).astype(int)
                columns.append(np.eye(len(parameter.choices))[index] / math.sqrt(2.0))
            else:
                columns.append(x[:, i : i + 1])
        return np.concatenate(columns, axis=1)

    def feature_groups(self) -> list[int]:
        """Returns, for each feature column, the position of its parameter, `d_features`."""
        widths = [len(p.choices) if isinstance(p, Categorical) else 1 for p in self.parameters]
        return [i for i, width in enumerate(widths) for _ in range(width)]

    def valid(self, x_unit: ArrayLike) -> NDArray[np.bool_]:
        """Returns which of n points, `n x d`, satisfy every constraint, `n`."""
        x = np.asarray(x_unit, dtype=np.float64)
        satisfied = np.ones(len(x), dtype=bool)
        if not self._constraints or not len(x):
            return satisfied
        columns = self._columns(self._decode(x))
        for constraint in self._constraints:
            satisfied &= constraint.satisfied(columns, len(x))
        return satisfied

    def satisfying(self, params: Params, name: str, values: ArrayLike) -> NDArray[np.bool_]:
        """Returns with which of n values of a parameter, even beyond its range, params satisfy the constraints."""
        numbers = np.asarray(values, dtype=np.float64)
        columns = self._columns(
            [
                numbers if one.name == name else np.full(len(numbers), one.numeric(params[one.name]))
                for one in self.parameters
            ]
        )
        satisfied = np.ones(len(numbers), dtype=bool)
        for constraint in self._constraints:
            satisfied &= constraint.satisfied(columns, len(numbers))
        return satisfied

    def sample(self, num_points: int, rng: np.random.Generator) -> Array:
        """Returns canonical uniform points that satisfy the constraints, `num_points x d`.

        Where an equality among the constraints makes valid points rare, uniform points are moved onto it: one parameter
        takes the value that the others leave it. Where valid points are too rare, it returns fewer, but at least one.
        """
        found = [np.empty((0, self.num_dims))]
        count, drawn, batch = 0, 0, max(num_points, 64)
        while count < num_points and drawn < _MAX_DRAWS:
            x = self.canonical(rng.random((batch, self.num_dims)))
            x = x[self.valid(x)]
            found.append(x)
            count, drawn, batch = count + len(x), drawn + batch, min(2 * batch, _NUM_PROBES)
            if self._equalities and not count and drawn >= _NUM_PROBES:
                break
        if self._equalities and count < num_points:
            found.append(self._solved(rng.random((num_points - count, self.num_dims))))
        points = np.concatenate(found)[:num_points]
        return points if len(points) or not num_points else self._witness[None, :].copy()

    def snap(self, params: Params) -> dict[str, ParamValue]:
        """Returns the valid params nearest to the given ones.

        Values that are in range stay as they are; others are clipped or, when unusable or missing, take the default.
        Where a constraint is then violated, the nearest valid point that a search finds is taken. Unknown names are
        dropped.
        """
        snapped = self.default()
        for parameter in self.parameters:
            value = parameter.clip(params.get(parameter.name))
            with contextlib.suppress(SpaceError):
                parameter.check(value)
                snapped[parameter.name] = value
        if self.is_valid(snapped):
            return snapped
        center = self.to_unit(snapped)
        best, rng = self._witness, np.random.default_rng(0)
        for width in (0.05, 0.1, 0.2, 0.4, 1.0):
            for num_moved in (1, 2, self.num_dims):
                moved = rng.random((2048, self.num_dims)).argsort(axis=1) < num_moved
                x = np.where(moved, center + width * rng.uniform(-1.0, 1.0, moved.shape), center)
                x = self.canonical(np.clip(x, 0.0, 1.0))
                x = x[self.valid(x)]
                if len(x):
                    nearest_x = x[np.argmin(np.abs(x - center).sum(axis=1))]
                    if np.abs(nearest_x - center).sum() < np.abs(best - center).sum():
                        best = nearest_x
        moved_to = self.from_unit(best)
        # Parameters that the search did not change keep their exact value, not its rounded form.
        same = np.abs(best - self.canonical(center[None, :])[0]) < 1e-12
        kept = {name: snapped[name] if same[i] else moved_to[name] for i, name in enumerate(self.names)}
        return kept if self.is_valid(kept) else moved_to

    def to_dict(self) -> dict[str, Any]:
        """Returns the space as JSON-able data that `from_dict` reads back to an equal space."""
        parameters = []
        for parameter in self.parameters:
            fields = dataclasses.asdict(parameter)
            if isinstance(parameter, Categorical):
                fields["choices"] = list(parameter.choices)
            parameters.append({"type": type(parameter).__name__.lower(), **fields})
        return {
            "parameters": parameters,
            "cost_parameter": self.cost_parameter,
            "constraints": list(self.constraints),
            "fixed": dict(self.fixed),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Space":
        """Raises `SpaceError` when the data does not describe a space."""
        kinds: dict[str, type[Parameter]] = {"float": Float, "integer": Integer, "categorical": Categorical}
        try:
            parameters = []
            for fields in data["parameters"]:
                kind = kinds[fields["type"]]
                parameters.append(kind(**{key: value for key, value in fields.items() if key != "type"}))
            return cls(
                parameters,
                cost_parameter=data.get("cost_parameter"),
                constraints=data.get("constraints", ()),
                fixed=data.get("fixed"),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise SpaceError(f"this is not a stored space ({error!r}); it was not written by `to_dict`") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.parameters, self.cost_parameter, self.constraints))

    def __repr__(self) -> str:
        return (
            f"Space({list(self.parameters)!r}, cost_parameter={self.cost_parameter!r}, constraints={self.constraints})"
        )

    def _decode(self, x_unit: ArrayLike) -> list[Array]:
        """Numbers (a choice's index for a categorical) of each parameter, d arrays of `n`."""
        x = np.clip(np.asarray(x_unit, dtype=np.float64), 0.0, 1.0)
        return [parameter.decode(x[:, i]) for i, parameter in enumerate(self.parameters)]

    def _columns(self, numbers: Sequence[Array]) -> dict[str, NDArray[Any]]:
        """What constraints see: an array of `n` values for each parameter, a single value for each fixed one."""
        columns: dict[str, NDArray[Any]] = {}
        for parameter, column in zip(self.parameters, numbers, strict=True):
            if isinstance(parameter, Categorical):
                choices = np.empty(len(parameter.choices), dtype=object)
                choices[:] = parameter.choices
                kinds = {type(choice) for choice in parameter.choices}
                if kinds <= {bool, int, float}:
                    choices = choices.astype(np.float64)
                columns[parameter.name] = choices[column.astype(int)]
            else:
                columns[parameter.name] = column
        for name, value in self.fixed.items():
            columns[name] = np.asarray(value if isinstance(value, str) else float(value))
        return columns

    @property
    def _equalities(self) -> list[Equality]:
        return [equality for constraint in self._constraints for equality in constraint.equalities]

    def _solved(self, x: Array) -> Array:
        """Returns canonical valid points, at most one for each of n points, `n x d`, by solving the equalities.

        Each is solved for one of its parameters, as if it were linear in that one. Later turns solve for others.
        """
        found = [x[:0]]
        for turn in range(_NUM_TURNS):
            numbers = self._decode(x)
            for names, difference in self._equalities:
                own = [self.parameters[self._position[name]] for name in names if name in self._position]
                free = [parameter for parameter in own if not isinstance(parameter, Categorical)]
                if not free:
                    continue
                parameter, columns = free[-1 - turn % len(free)], self._columns(numbers)
                i = self._position[parameter.name]
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    off = difference(columns)
                    slope = difference({**columns, parameter.name: numbers[i] + 1.0}) - off
                    value = numbers[i] - off / slope
                value = np.clip(np.where(np.isfinite(value), value, numbers[i]), parameter.low, parameter.high)
                numbers[i] = parameter.decode(parameter.encode(value))
            x = np.stack([p.encode(column) for p, column in zip(self.parameters, numbers, strict=True)], axis=1)
            x = np.clip(x, 0.0, 1.0)
            valid = self.valid(x)
            found.append(x[valid])
            x = x[~valid]
        return np.concatenate(found)

    def _find_witness(self) -> Array:
        """Returns one valid point, `d`; raises `SpaceError` when none of many random points is valid."""
        rng = np.random.default_rng(0)
        default = self.canonical(self.to_unit(self.default())[None, :])
        x = np.concatenate([default, self.canonical(rng.random((_NUM_PROBES, self.num_dims)))])
        columns, satisfied = self._columns(self._decode(x)), np.ones(len(x), dtype=bool)
        for constraint in self._constraints:
            satisfied &= constraint.satisfied(columns, len(x))
            if not satisfied.any():
                if len(solved := self._solved(x)):
                    return np.asarray(solved[0])
                raise SpaceError(
                    f"constraint '{constraint.text}' cannot be met: none of {_NUM_PROBES} points of the space meets "
                    "it (with those before it); widen a range or drop it"
                )
        return np.asarray(x[np.argmax(satisfied)])


def _listed(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
    given: Any = parameters
    if isinstance(given, Mapping | str) or not isinstance(given, Iterable):
        raise SpaceError(f"a space is given a list, as in Space([Float('lr', 1e-5, 1e-1)]), got {given!r:.80}")
    listed = tuple(given)
    for parameter in listed:
        if not isinstance(parameter, Parameter):
            raise SpaceError(f"a space is made of Float, Integer and Categorical, got {parameter!r:.80}")
    return listed


def _fixed(given: Any) -> dict[str, ParamValue]:
    if not isinstance(given, Mapping):
        raise SpaceError(f"fixed must map names to values, as in {{'env.num_envs': 16}}, got {given!r:.80}")
    fixed = {name: plain(value) for name, value in given.items()}
    for name, value in fixed.items():
        if not isinstance(value, bool | int | float | str):
            raise SpaceError(f"'{name}' is fixed to {value!r:.80}, which is no bool, number or text; give one of these")
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            raise SpaceError(f"'{name}' is fixed to a number of more than 308 digits; give a smaller one")
    return fixed

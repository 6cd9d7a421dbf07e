"""The search space: named parameters, constraints between them, and the map between raw values and the unit cube.

Notation
    d         number of parameters (`Space.num_dims`), in the order in which they were given
    params    mapping dotted name -> raw value; holds the swept parameters that are active, never the fixed ones
    active    a parameter is active at a point unless its `when` is false there, or needs one that is not active
    x_unit    `d` coordinates in [0, 1], one for each parameter whatever its type (`protein.space.parameters` has the
              map); designs and candidates are in these
    features  `d_features` coordinates for models: a numeric parameter keeps its unit coordinate, a categorical one
              becomes one column per choice (one-hot, scaled so that two different choices lie 1 apart)

A point is canonical when it is `to_unit` of some params: bin middles, rounded floats. For canonical points and for
the params that `from_unit` returns, round trips are exact. Only numpy is imported: the command line loads this module.

A parameter that is not active has no value. Its coordinate is then in the middle of its range (a categorical one's at
the first choice), whatever it was, so that points that differ in nothing that exists are one point. Conditions name
earlier parameters alone, so that one pass in order decides all of them.
"""

import contextlib
import copy
import dataclasses
import functools
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protein.errors import SpaceError
from protein.space.constraints import Condition, Constraint, Equality, Partial, Values
from protein.space.parameters import JSON_VALUE, Array, Categorical, Float, Integer, Parameter, identity
from protein.space.polytope import Polytope
from protein.spelling import nearest
from protein.types import Params, ParamValue
from protein.validate import is_json, plain

__all__ = ["Categorical", "Float", "Integer", "Parameter", "Space"]

_NUM_PROBES = 1 << 14  # points drawn to decide that constraints cannot be satisfied
_MAX_DRAWS = 1 << 18  # points drawn at most to collect valid ones
_NUM_WALKS = 256
_NUM_FIRST_STEPS, _NUM_STEPS = 60, 6  # of a walk, for each dimension: from one point, and from a walker
_NUM_HALVINGS = 6  # of a way that leads out of the valid points
_NUM_SHARES = 40  # of the way to a point that is not valid, which are tried
_NUM_ROUNDS = 4  # of walks, where other constraints leave few of their ends
_NUM_TURNS = 4  # in which equalities are solved, for another parameter each time
_NUM_LISTED = 64  # values of a parameter that are all tried
_NUM_CASES = 1 << 12  # combinations of values that are tried to decide that a condition is never or always true
_LATER_FIELDS = (
    "when",
    "step",
    "belief",
)  # of parameters; not in stored spaces that have none, so that those stay as they were
_ABSENT = object()  # no value, where None may be one


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
        self._conditions = self._read_conditions()
        self._parents = {name for condition in self._conditions.values() for name in condition.names}
        self._rest = self._resting()
        self._polytope = self._linear_part(self._constraints)
        self._witness = self._find_witness()
        self._check_conditions()
        self._num_active = float(self.num_dims)
        if self._conditions:
            points = np.random.default_rng(0).random((_NUM_CASES, self.num_dims))
            self._num_active = float(self.active(points).sum(axis=1).mean())

    @property
    def num_dims(self) -> int:
        return len(self.parameters)

    @property
    def cost_index(self) -> int | None:
        """Position of the cost parameter among the coordinates, or None."""
        return None if self.cost_parameter is None else self._position[self.cost_parameter]

    @property
    def num_active(self) -> float:
        """How many parameters a uniform point has on average: all, where none is conditional."""
        return self._num_active

    @property
    def is_conditional(self) -> bool:
        """Whether some parameters exist only under a condition."""
        return bool(self._conditions)

    def parameter(self, name: str) -> Parameter:
        """Returns a parameter by name. Raises `SpaceError`, with the nearest name, when there is none."""
        if name not in self._position:
            raise SpaceError(f"unknown parameter '{name}'{nearest(str(name), self.names)}")
        return self.parameters[self._position[name]]

    def tied(self, name: str) -> list[int]:
        """Returns the positions of a parameter and of all that constraints tie to it, also by way of others."""
        found, before = {name}, set[str]()
        while found != before:
            before = set(found)
            found.update(*(one.names for one in self._constraints if one.names & before))
        return sorted(self._position[one] for one in found if one in self._position)

    def default(self) -> dict[str, ParamValue]:
        """Returns the defaults of what is active with them. May violate constraints.

        A parameter that has none is in the middle of its range.
        """
        full = self._full_default()
        return {name: full[name] for name in self._names_active(full)}

    def validate(self, params: Params) -> None:
        """Raises `SpaceError` for the first unknown or missing name, value out of range, or violated constraint.

        A value of a parameter that is not active is refused, too.
        """
        if not isinstance(params, Mapping):
            raise SpaceError(f"params must map names to values, as in suggestion.params, got {params!r:.80}")
        for name in params:
            self.parameter(name)
        for parameter in self.parameters:
            if parameter.name in params:
                parameter.check(params[parameter.name])
            elif parameter.when is None:
                raise SpaceError(f"parameter '{parameter.name}' has no value; give one")
        numbers, active = self._read([params])
        for i in sorted(self._conditions):
            parameter = self.parameters[i]
            if active[0, i] and parameter.name not in params:
                raise SpaceError(f"parameter '{parameter.name}' has no value, and {parameter.when} holds; give one")
            if parameter.name in params and not active[0, i]:
                raise SpaceError(
                    f"parameter '{parameter.name}' has a value, but exists only when {parameter.when}; leave it out"
                )
        for constraint in self._constraints:
            if not constraint.satisfied(self._columns(numbers, active), 1)[0]:
                given = {**self.fixed, **params}
                values = ", ".join(f"{name} = {given[name]!r}" for name in sorted(constraint.names) if name in given)
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
        return tuple(_identity(parameter, params.get(parameter.name, _ABSENT)) for parameter in self.parameters)

    def to_unit(self, params: Params) -> Array:
        """Returns the unit coordinates of params, `d`. Constraints are not checked; ranges are (`SpaceError`)."""
        x_unit: Array = self.to_unit_many([params])[0]
        return x_unit

    def to_unit_many(self, params: Sequence[Params]) -> Array:
        """Returns unit coordinates, `n x d`, of n params. Values of what is not active do not count.

        Raises:
            SpaceError: a value is missing or cannot be used.
        """
        x_unit = np.empty((len(params), self.num_dims))
        numbers, active = self._read(params)
        for i, parameter in enumerate(self.parameters):
            if i in self._conditions and not all(
                parameter.name in point for point, is_active in zip(params, active[:, i], strict=True) if is_active
            ):
                raise SpaceError(f"parameter '{parameter.name}' has no value, and {parameter.when} holds; give one")
            x_unit[:, i] = parameter.encode(numbers[i])
        return self._at_rest(np.clip(x_unit, 0.0, 1.0), active)

    def from_unit(self, x_unit: ArrayLike) -> dict[str, ParamValue]:
        """Returns the params at unit coordinates, `d` (clipped to [0, 1])."""
        return self.from_unit_many(np.asarray(x_unit, dtype=np.float64)[None, :])[0]

    def from_unit_many(self, x_unit: ArrayLike) -> list[dict[str, ParamValue]]:
        """Returns n params at unit coordinates, `n x d` (clipped to [0, 1])."""
        numbers = self._decode(x_unit)
        columns = [
            [parameter.raw(number) for number in column]
            for parameter, column in zip(self.parameters, numbers, strict=True)
        ]
        rows = [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]
        if not self._conditions:
            return rows
        active = self._active(numbers)
        return [
            {name: value for (name, value), is_active in zip(row.items(), of_row, strict=True) if is_active}
            for row, of_row in zip(rows, active, strict=True)
        ]

    def canonical(self, x_unit: ArrayLike) -> Array:
        """Returns the coordinates, `n x d`, that the params at `x_unit` have: bin middles, rounded floats."""
        numbers = self._decode(x_unit)
        columns = [p.encode(column) for p, column in zip(self.parameters, numbers, strict=True)]
        x = np.clip(np.stack(columns, axis=1), 0.0, 1.0)
        return self._at_rest(x, self._active(numbers)) if self._conditions else x

    def active(self, x_unit: ArrayLike) -> NDArray[np.bool_]:
        """Returns which parameters exist at each of n points, `n x d`."""
        x = np.asarray(x_unit, dtype=np.float64)
        return self._active(self._decode(x)) if self._conditions else np.ones(x.shape, dtype=bool)

    def only_active(self, values: Params) -> dict[str, ParamValue]:
        """Returns params of values that may name more: other names, and what is not active with these.

        Raises:
            SpaceError: a value is missing, or of conditional parameters one cannot be used.
        """
        if not self._conditions and all(name in values for name in self.names):
            return {name: values[name] for name in self.names}
        active = self.active(self.to_unit(values)[None, :])[0]
        return {name: values[name] for name, is_active in zip(self.names, active, strict=True) if is_active}

    def features(self, x_unit: ArrayLike) -> Array:
        """Returns model coordinates, `n x d_features`, of unit coordinates, `n x d`. See Notation."""
        x = np.asarray(x_unit, dtype=np.float64)
        if self._conditions:
            x = self._at_rest(x, active := self.active(x))
        columns: list[Array] = []
        for i, parameter in enumerate(self.parameters):
            if isinstance(parameter, Categorical):
                index = parameter.decode(x[:, i]).astype(int)
                columns.append(np.eye(len(parameter.choices))[index] / math.sqrt(2.0))
                if i in self._conditions:
                    columns[-1] *= active[:, i : i + 1]
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
        numbers = self._decode(x)
        columns = self._columns(numbers, self._active(numbers))
        for constraint in self._constraints:
            satisfied &= constraint.satisfied(columns, len(x))
        return satisfied

    def satisfying(self, params: Params, name: str, values: ArrayLike) -> NDArray[np.bool_]:
        """Returns with which of n values of a parameter, even beyond its range, params satisfy the constraints."""
        numbers = np.asarray(values, dtype=np.float64)
        here = [[one.numeric(params[one.name]) if one.name in params else 0.0] for one in self.parameters]
        present = np.array([one.name in params or one.name == name for one in self.parameters])
        columns = self._columns(
            [
                numbers if one.name == name else np.full(len(numbers), number)
                for one, (number,) in zip(self.parameters, here, strict=True)
            ],
            np.repeat(present[None, :], len(numbers), axis=0),
        )
        satisfied = np.ones(len(numbers), dtype=bool)
        for constraint in self._constraints:
            satisfied &= constraint.satisfied(columns, len(numbers))
        return satisfied

    def sample(self, num_points: int, rng: np.random.Generator) -> Array:
        """Returns canonical uniform points that satisfy the constraints, `num_points x d`.

        Where an equality among the constraints makes valid points rare, uniform points are moved onto it: one parameter
        takes the value that the others leave it. Where linear constraints make them rare, the others are drawn by
        random walks among the points that meet these (see `protein.space.polytope`). Where valid points are still too
        rare, it returns fewer, but at least one.
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
            if self._polytope is not None and drawn >= _NUM_PROBES and count * _MAX_DRAWS < num_points * drawn:
                break  # this way they would never be enough
        if self._equalities and count < num_points:
            found.append(self._solved(rng.random((num_points - count, self.num_dims))))
        points = np.concatenate(found)[:num_points]
        if len(points) < num_points and self._polytope is not None:
            points = np.concatenate([points, self._walked(self._polytope, num_points - len(points), rng)])
        return points if len(points) or not num_points else self._witness[None, :].copy()

    def drawn_back(self, inside: Array, outside: Array, rng: np.random.Generator) -> Array:
        """Returns valid points between n valid points and n others, `n x d`: at most one of each pair, `m x d`.

        There are none without linear constraints.
        """
        found, share = [inside[:0]], rng.random(len(inside))
        for _ in range(_NUM_HALVINGS if self._polytope is not None else 0):
            x = self._between(inside, outside, share)
            valid = self.valid(x)
            found.append(x[valid])
            inside, outside, share = inside[~valid], outside[~valid], share[~valid] / 2
            if self._equalities:
                found.append(self._solved(x[~valid]))
                break
        return np.concatenate(found)

    def snap(self, params: Params) -> dict[str, ParamValue]:
        """Returns the valid params nearest to the given ones.

        Values that are in range stay as they are; others are clipped or, when unusable or missing, take the default.
        Where a constraint is then violated, the nearest valid point that a search finds is taken. Unknown names, and
        those of parameters that are not active then, are dropped.
        """
        snapped = self._full_default()
        for parameter in self.parameters:
            value = parameter.clip(params.get(parameter.name, _ABSENT))
            with contextlib.suppress(SpaceError):
                parameter.check(value)
                snapped[parameter.name] = value
        found = {name: snapped[name] for name in self._names_active(snapped)}
        if self.is_valid(found):
            return found
        center = np.clip(np.concatenate([p.encode(p.numbers([snapped[p.name]])) for p in self.parameters]), 0.0, 1.0)
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
        if best is self._witness and self._polytope is not None:
            inside = np.repeat(np.concatenate([best[None, :], self.sample(_NUM_WALKS, rng)]), _NUM_SHARES, axis=0)
            shares = np.tile(np.linspace(0.0, 1.0, _NUM_SHARES), len(inside) // _NUM_SHARES)
            near = self._mended(self._between(inside, np.repeat(center[None, :], len(inside), axis=0), shares))
            near = np.concatenate([near, best[None, :]])
            best = near[np.argmin(np.abs(near - center).sum(axis=1))]
        moved_to = self.from_unit(best)
        # Parameters that the search did not change keep their exact value, not its rounded form.
        same = np.abs(best - self.canonical(center[None, :])[0]) < 1e-12
        kept = {name: snapped[name] if same[self._position[name]] else value for name, value in moved_to.items()}
        return kept if self.is_valid(kept) else moved_to

    def to_dict(self) -> dict[str, Any]:
        """Returns the space as JSON-able data that `from_dict` reads back to an equal space."""
        parameters = []
        for parameter in self.parameters:
            fields = dataclasses.asdict(parameter)
            fields = {key: value for key, value in fields.items() if value is not None or key not in _LATER_FIELDS}
            if isinstance(parameter, Categorical):
                fields["choices"] = copy.deepcopy(list(parameter.choices))
            parameters.append({"type": type(parameter).__name__.lower(), **fields})
        return {
            "parameters": parameters,
            "cost_parameter": self.cost_parameter,
            "constraints": list(self.constraints),
            "fixed": copy.deepcopy(self.fixed),
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
        return hash((self.names, self.cost_parameter, self.constraints))  # choices may be lists, which have none

    def __repr__(self) -> str:
        return (
            f"Space({list(self.parameters)!r}, cost_parameter={self.cost_parameter!r}, constraints={self.constraints})"
        )

    def _decode(self, x_unit: ArrayLike) -> list[Array]:
        """Numbers (a choice's index for a categorical) of each parameter, d arrays of `n`."""
        x = np.clip(np.asarray(x_unit, dtype=np.float64), 0.0, 1.0)
        return [parameter.decode(x[:, i]) for i, parameter in enumerate(self.parameters)]

    def _columns(self, numbers: Sequence[Array], active: NDArray[np.bool_]) -> Values:
        """What expressions see of n points: the values of each parameter where it is active, and the fixed values."""
        columns = [self._column(i, column, active[:, i]) for i, column in enumerate(numbers)]
        return {**self._fixed_columns, **dict(zip(self.names, columns, strict=True))}

    def _column(self, i: int, numbers: Array, active: NDArray[np.bool_]) -> NDArray[Any] | Partial:
        parameter, values = self.parameters[i], numbers
        if isinstance(parameter, Categorical):
            choices = np.empty(len(parameter.choices), dtype=object)
            for position, choice in enumerate(parameter.choices):  # at once, NumPy would take lists apart
                choices[position] = choice
            kinds = {type(choice) for choice in parameter.choices}
            if kinds <= {bool, int, float}:
                choices = choices.astype(np.float64)
            values = choices[numbers.astype(int)]
        return values if active.all() else Partial(values, active)

    @property
    def _fixed_columns(self) -> dict[str, NDArray[Any] | Partial]:
        """A single value for each fixed parameter."""
        return {name: _constant(value) for name, value in self.fixed.items()}

    def _active(self, numbers: Sequence[Array]) -> NDArray[np.bool_]:
        """Which parameters are active at n points, `n x d`, given their numbers, d arrays of `n`."""
        active = np.ones((len(numbers[0]), self.num_dims), dtype=bool)
        columns = self._fixed_columns if self._conditions else {}
        for i in range(self.num_dims if self._conditions else 0):
            if i in self._conditions:
                active[:, i] = self._conditions[i].holds(columns, len(active))
            if self.names[i] in self._parents:
                columns[self.names[i]] = self._column(i, numbers[i], active[:, i])
        return active

    def _at_rest(self, x_unit: Array, active: NDArray[np.bool_]) -> Array:
        """The coordinates, `n x d`, with those that are not active in their place of rest."""
        return np.where(active, x_unit, self._rest) if self._conditions else x_unit

    def _read(self, params: Sequence[Params]) -> tuple[list[Array], NDArray[np.bool_]]:
        """The numbers of n params, d arrays of `n`, and what is active. What is absent has that of its place of rest.

        Raises `SpaceError` where a parameter without a condition is missing, or an active one has an unusable value.
        """
        numbers: list[Array] = []
        active = np.ones((len(params), self.num_dims), dtype=bool)
        columns = self._fixed_columns if self._conditions else {}
        for i, parameter in enumerate(self.parameters):
            name, condition = parameter.name, self._conditions.get(i)
            if condition is None:
                if not all(name in point for point in params):
                    raise SpaceError(f"parameter '{name}' has no value; give one")
                numbers.append(parameter.numbers([point[name] for point in params]))
            else:
                active[:, i] = condition.holds(columns, len(params))
                given = [has and name in point for point, has in zip(params, active[:, i].tolist(), strict=True)]
                column = np.full(len(params), parameter.decode(self._rest[i : i + 1])[0])
                column[given] = parameter.numbers(
                    [point[name] for point, has in zip(params, given, strict=True) if has]
                )
                numbers.append(column)
            if name in self._parents:
                columns[name] = self._column(i, numbers[i], active[:, i])
        return numbers, active

    def _full_default(self) -> dict[str, ParamValue]:
        """The defaults of all parameters, active or not; the middle of its range for one that has none."""
        return {
            p.name: p.raw(p.decode(np.array([0.5]))[0]) if p.default is None else p.default for p in self.parameters
        }

    def _names_active(self, full: Params) -> list[str]:
        """Which parameters are active where all, active or not, have these values."""
        active = self._active([np.array([p.numeric(full[p.name])]) for p in self.parameters])
        return [name for name, is_active in zip(self.names, active[0], strict=True) if is_active]

    def _resting(self) -> Array:
        """Where the coordinates of parameters are that are not active, `d`."""
        rest = [
            p.encode(np.zeros(1) if isinstance(p, Categorical) else p.decode(np.array([0.5]))) for p in self.parameters
        ]
        return np.clip(np.concatenate(rest), 0.0, 1.0)

    def _read_conditions(self) -> dict[int, Condition]:
        """Reads every `when`, by the position of its parameter. Raises `SpaceError` for one that cannot be used."""
        conditions: dict[int, Condition] = {}
        known = {*self.names, *self.fixed}
        for i, parameter in enumerate(self.parameters):
            if parameter.when is None:
                continue
            condition = Condition(parameter.when, f"parameter '{parameter.name}': when")
            condition.check_names(known)
            conditions[i] = condition
        parents = {self.names[i]: condition.names for i, condition in conditions.items()}
        for i, condition in conditions.items():
            name, start = self.names[i], f"{condition.what} '{condition.text}'"
            if circle := _circle(parents, name):
                way = " -> ".join(f"'{one}'" for one in circle)
                raise SpaceError(f"{start} makes '{name}' depend on itself ({way}); change one of these conditions")
            if name == self.cost_parameter:
                raise SpaceError(f"{start}, but the cost parameter must exist in every trial; drop its when")
            for parent in sorted(condition.names):
                if parent == self.cost_parameter:
                    raise SpaceError(
                        f"{start} depends on the cost parameter, which changes when a run is stopped early or"
                        " continued; depend on another"
                    )
                if self._position.get(parent, -1) > i:
                    raise SpaceError(f"{start} depends on '{parent}', which is listed after it; list '{parent}' first")
        return conditions

    def _ancestors(self, i: int) -> list[int]:
        """The positions of the parameters that a condition depends on, also through other conditions, in order."""
        parents = {self._position[name] for name in self._conditions[i].names if name in self._position}
        further = {one for parent in parents if parent in self._conditions for one in self._ancestors(parent)}
        return sorted(parents | further)

    def _check_conditions(self) -> None:
        """Raises `SpaceError` for a condition that is never or always true.

        Each is tried with combinations of values of what it depends on: all choices and, of a number, the ends of its
        range, the numbers in the conditions and values between these. Where all comparisons are with plain values, and
        all combinations are tried, this proves it. Otherwise uniform points are tried, too.
        """
        rng = np.random.default_rng(0)
        for i, condition in self._conditions.items():
            start = f"{condition.what} '{condition.text}'"
            for name, value in condition.equals:
                parent = self.parameters[self._position[name]] if name in self._position else None
                if isinstance(parent, Categorical) and value not in parent.choices:
                    close = nearest(str(value), [str(choice) for choice in parent.choices])
                    raise SpaceError(f"{start} compares '{name}' with {value!r}, which is none of its choices{close}")
            ancestors = self._ancestors(i)
            chain = [self._conditions[j] for j in (*ancestors, i) if j in self._conditions]
            marks = [0.0, *(number for one in chain for number in one.numbers)]
            marks += [float(value) for value in self.fixed.values() if isinstance(value, int | float)]
            values = {j: _cases(self.parameters[j], marks) for j in ancestors}
            num_cases = math.prod(len(cases) for cases in values.values())
            proven = num_cases <= _NUM_CASES and all(one.is_separable for one in chain)
            if num_cases <= _NUM_CASES:
                grid = np.meshgrid(*values.values(), indexing="ij")
                drawn = {j: axis.ravel() for j, axis in zip(values, grid, strict=True)}
            else:
                drawn = {j: rng.choice(cases, _NUM_CASES) for j, cases in values.items()}
            if not proven:
                uniform = self._decode(rng.random((_NUM_CASES, self.num_dims)))
                drawn = {j: np.concatenate([column, uniform[j]]) for j, column in drawn.items()}
            numbers = np.broadcast_arrays(
                *[drawn.get(j, rest) for j, rest in enumerate(self._decode(self._rest[None, :]))]
            )
            active = self._active(numbers)[:, i]
            if not active.any():
                tried = "" if proven else f" at any of {len(active)} points"
                raise SpaceError(f"{start} is never true{tried}; change it, or drop the parameter")
            if active.all():
                tried = "" if proven else f" at all of {len(active)} points"
                raise SpaceError(f"{start} is always true{tried}; leave it out")

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
                parameter, columns = free[-1 - turn % len(free)], self._columns(numbers, self._active(numbers))
                i = self._position[parameter.name]
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    off = difference(columns)
                    slope = difference({**columns, parameter.name: numbers[i] + 1.0}) - off
                    value = numbers[i] - off / slope
                value = np.clip(np.where(np.isfinite(value), value, numbers[i]), parameter.low, parameter.high)
                numbers[i] = parameter.decode(parameter.encode(value))
            x = np.stack([p.encode(column) for p, column in zip(self.parameters, numbers, strict=True)], axis=1)
            x = self._at_rest(np.clip(x, 0.0, 1.0), self._active(numbers))
            valid = self.valid(x)
            found.append(x[valid])
            x = x[~valid]
        return np.concatenate(found)

    def _find_witness(self) -> Array:
        """Returns one valid point, `d`; raises `SpaceError` when none of many random points is valid."""
        default = self.canonical(self.to_unit(self.default())[None, :])
        if self.valid(default).all():  # as is usual, and random points take a while
            return np.asarray(default[0])
        rng = np.random.default_rng(0)
        x = np.concatenate([default, self.canonical(rng.random((_NUM_PROBES, self.num_dims)))])
        numbers = self._decode(x)
        columns, satisfied = self._columns(numbers, self._active(numbers)), np.ones(len(x), dtype=bool)
        for constraint in self._constraints:
            satisfied &= constraint.satisfied(columns, len(x))
            if not satisfied.any():
                if len(solved := self._solved(x)):
                    return np.asarray(solved[0])
                if (point := self._linear_point()) is not None:
                    return point
                raise SpaceError(
                    f"constraint '{constraint.text}': none of {_NUM_PROBES} points of the space meets it (with those"
                    " before it), and no other was found; widen a range or drop it"
                )
        return np.asarray(x[np.argmax(satisfied)])

    def _linear_part(self, constraints: Sequence[Constraint]) -> Polytope | None:
        """What is linear in constraints on numeric parameters that always exist; None: nothing is."""
        numeric = [p for p in self.parameters if not isinstance(p, Categorical) and p.when is None]
        sometimes = {p.name for p in self.parameters if p.when is not None}  # a constraint on them may not apply
        constants = {name: float(value) for name, value in self.fixed.items() if isinstance(value, bool | int | float)}
        names = {p.name for p in numeric}
        needed = [one for one in constraints if not one.names & sometimes]
        rows = [row for one in needed for row in one.linear(constants) if row.coefficients.keys() <= names]
        return Polytope(numeric, rows) if rows else None

    def _linear_point(self) -> Array | None:
        """Returns a valid point, `d`, that linear constraints lead to; None: none was found.

        Raises `SpaceError` where there is none, with the first constraint that cannot be met with those before it.
        """
        if self._polytope is None:
            return None
        numbers = self._polytope.point()
        if numbers is None:
            for i, constraint in enumerate(self._constraints):
                part = self._linear_part(self._constraints[: i + 1])
                if part is not None and part.point() is None:
                    raise SpaceError(
                        f"constraint '{constraint.text}' cannot be met: no point of the space meets it"
                        f"{' with those before it' if i else ''}; change a range, or drop it"
                    )
            return None
        start = self._polytope.encode(numbers[None, :])
        valid = self._placed(start, np.random.default_rng(0))
        if not len(valid):  # other constraints may be met elsewhere, and an equality leaves few rounded points
            rng = np.random.default_rng(0)
            start = np.repeat(start, _NUM_WALKS, axis=0)
            valid = self._placed(self._polytope.walked(start, _NUM_FIRST_STEPS * start.shape[1], rng), rng)
        return np.asarray(valid[0]) if len(valid) else None

    def _placed(self, x_polytope: Array, rng: np.random.Generator) -> Array:
        """Returns those of n points of the polytope, `n x k`, that are valid, `m x d`, all else drawn uniformly."""
        assert self._polytope is not None
        x = rng.random((len(x_polytope), self.num_dims))
        x[:, [self._position[name] for name in self._polytope.names]] = x_polytope
        return self._mended(self.canonical(x))

    def _between(self, inside: Array, outside: Array, share: Array) -> Array:
        """Returns canonical points, `n x d`, a `share`, `n`, of the way from valid points to others.

        Their choices are those of the others.
        """
        assert self._polytope is not None
        x = inside + share[:, None] * (outside - inside)
        for i, parameter in enumerate(self.parameters):
            if isinstance(parameter, Categorical):
                x[:, i] = outside[:, i]
        own = [self._position[name] for name in self._polytope.names]
        x[:, own] = self._polytope.along(inside[:, own], outside[:, own], share)
        return self.canonical(np.clip(x, 0.0, 1.0))

    def _mended(self, x: Array) -> Array:
        """Returns those of n canonical points, `n x d`, that are valid, and others where equalities could be solved."""
        valid = self.valid(x)
        return np.concatenate([x[valid], self._solved(x[~valid])]) if self._equalities else x[valid]

    @functools.cached_property
    def _walkers(self) -> Array:
        """Points of the polytope, `n x k`, that have walked so far from where they began that they lie uniformly."""
        assert self._polytope is not None
        start = self._witness[[self._position[name] for name in self._polytope.names]]
        walkers = np.repeat(start[None, :], _NUM_WALKS, axis=0)
        return self._polytope.walked(walkers, _NUM_FIRST_STEPS * len(start), np.random.default_rng(0))

    def _walked(self, polytope: Polytope, num_points: int, rng: np.random.Generator) -> Array:
        """Returns at most `num_points` valid points, `n x d`, by walks in the polytope."""
        found, count = [np.empty((0, self.num_dims))], 0
        for _ in range(_NUM_ROUNDS):
            start = self._walkers[rng.integers(_NUM_WALKS, size=num_points)]
            found.append(self._placed(polytope.walked(start, _NUM_STEPS * start.shape[1], rng), rng))
            count += len(found[-1])
            if count >= num_points:
                break
        return np.concatenate(found)[:num_points]


def _listed(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
    given: Any = parameters
    if isinstance(given, Mapping | str) or not isinstance(given, Iterable):
        raise SpaceError(f"a space is given a list, as in Space([Float('lr', 1e-5, 1e-1)]), got {given!r:.80}")
    listed = tuple(given)
    for parameter in listed:
        if not isinstance(parameter, Parameter):
            raise SpaceError(f"a space is made of Float, Integer and Categorical, got {parameter!r:.80}")
    return listed


def _constant(value: ParamValue) -> NDArray[Any]:
    if isinstance(value, bool | int | float):
        return np.asarray(float(value))
    if isinstance(value, str):
        return np.asarray(value)
    constant = np.empty((), dtype=object)
    constant[()] = value
    return constant


def _identity(parameter: Parameter, value: Any) -> Any:
    if isinstance(parameter, Categorical):
        return _ABSENT if value is _ABSENT else identity(value)
    return value if parameter.step is None else parameter.clip(value)  # 0.30000000000000004 is 0.3 on a grid


def _fixed(given: Any) -> dict[str, ParamValue]:
    if not isinstance(given, Mapping):
        raise SpaceError(f"fixed must map names to values, as in {{'env.num_envs': 16}}, got {given!r:.80}")
    fixed = {name: plain(value) for name, value in given.items()}
    for name, value in fixed.items():
        if not is_json(value) and not isinstance(value, float):
            raise SpaceError(f"'{name}' is fixed to {value!r:.80}, which is no {JSON_VALUE}")
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            raise SpaceError(f"'{name}' is fixed to a number of more than 308 digits; give a smaller one")
    return fixed


def _cases(parameter: Parameter, marks: Sequence[float]) -> Array:
    """Returns numbers of a parameter, `n`, that cover every outcome of comparing its values with the marks."""
    values = parameter.values()
    if values is not None and len(values) <= _NUM_LISTED:
        return np.array(values, dtype=np.float64)
    assert not isinstance(parameter, Categorical)
    ends = np.unique([parameter.low, parameter.high, *(m for m in marks if parameter.low <= m <= parameter.high)])
    if isinstance(parameter, Integer) or parameter.step is not None:
        near = np.concatenate([ends + steps * (parameter.step or 1) for steps in (-1, 0, 1)])
        near = np.concatenate([np.floor(near), np.ceil(near)]) if isinstance(parameter, Integer) else near
        return np.unique([float(parameter.clip(parameter.raw(number))) for number in near])
    return np.unique(np.concatenate([ends, 0.5 * (ends[1:] + ends[:-1])]))


def _circle(parents: Mapping[str, Iterable[str]], name: str) -> list[str]:
    """Returns the way on which a name depends on itself, from it to it; empty where it does not."""
    ways = [[name]]
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        for parent in sorted(parents.get(way[-1], ())):
            if parent == name:
                return [*way, parent]
            if parent not in seen:
                seen.add(parent)
                ways.append([*way, parent])
    return []

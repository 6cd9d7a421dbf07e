"""Expressions over parameters, as text: constraints, and the conditions (`when`) under which parameters exist.

    train.minibatch_size <= env.num_envs * train.horizon
    model == 'svc' and kernel in ['rbf', 'poly']

The language is a small part of Python's expressions, parsed with `ast` and never executed as code: comparisons (also
chained), `in` and `not in` with a list of values, `is None`, `and`, `or`, `not`, `+ - * / // %`, numbers, strings,
True, False, None, lists and tables of these (`layers == [64, 64]`), and dotted names. There is no power, call, index
or attribute access, so an expression cannot run code and cannot take long.

An expression is evaluated for many points at once: every name stands for an array of `num_points` values. Numbers are
compared in float64, which is exact for integers up to 2**53.

Where Python would raise an error, an expression has no value. A division by zero, or arithmetic whose result is not
finite, makes a point invalid, also under `not`. The value of a parameter that does not exist at a point is missing: a
constraint that needs it does not apply there and is met, and a condition that needs it does not hold. As in Python,
only what is evaluated counts: `b == 0 or a / b < 2` holds where b is 0, because `or` and `and` stop as soon as their
result is known, and so does a chain of comparisons.
"""

import ast
import keyword
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protein.errors import SpaceError
from protein.spelling import nearest


class Partial(NamedTuple):
    """The values of a parameter that only some points have: `n` values, of which those `present` count, `n`."""

    value: NDArray[Any]
    present: NDArray[np.bool_]


Values = Mapping[str, NDArray[Any] | Partial]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}
_KINDS: dict[type[ast.cmpop], Literal["<=", "<", "=="]] = {
    **dict.fromkeys((ast.LtE, ast.GtE), "<="),
    **dict.fromkeys((ast.Lt, ast.Gt), "<"),
    ast.Eq: "==",
}
_LANGUAGE = "use comparisons, in [...], and, or, not, + - * / // %, numbers, strings, lists and parameter names"
_WORDS = ("and", "or", "not", "in", "is", "True", "False", "None")
_MAX_CHARACTERS = 2000  # far above any constraint that a person writes; bounds the parser's work


# Why an expression has no value at a point. The first reason that Python would meet is the one that counts.
_FINE, _FAILED, _MISSING, _UNLIKE = (np.uint8(code) for code in range(4))


class _Result(NamedTuple):
    """An expression's value for each point, or one for all, and what the `trouble` is where it has none."""

    value: Any
    trouble: Any = _FINE


_Evaluate = Callable[[Values], _Result]
# The names in an equality, and by how much its left side is larger than its right one (NaN: one of them is text).
Equality = tuple[list[str], Callable[[Values], NDArray[np.float64]]]


class Linear(NamedTuple):
    """The sum of `coefficients` times values, and a `constant`, is at most 0, below 0, or 0, as its `kind` says."""

    coefficients: Mapping[str, float]
    constant: float
    kind: Literal["<=", "<", "=="]


class Expression:
    """One parsed expression that is true or false.

    Attributes:
        text: the expression as it was given.
        what: what messages call it, as in "constraint".
        names: the parameter names that it mentions.
        numbers: the numbers that it mentions, in rising order.
        equals: names, and the plain values with which they are compared for equality.
        is_separable: every comparison is of one name with plain values, so that its truth changes at those alone.
    """

    def __init__(self, text: str, what: str) -> None:
        """Raises `SpaceError` when the text is not an expression of the language above."""
        if not isinstance(text, str):
            raise SpaceError(f"{what} {text!r} is not text; write it as a string")
        if len(text) > _MAX_CHARACTERS:
            raise SpaceError(f"{what} of {len(text)} characters is longer than {_MAX_CHARACTERS}; split it")
        self.text, self.what = text, what
        self.names: set[str] = set()
        self.equals: list[tuple[str, Any]] = []
        self.is_separable = True
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
            self._evaluate = self._compile(self._tree)
        except SyntaxError as error:
            raise SpaceError(f"{what} '{text}' does not parse ({error.msg}); {_remedy(text)}") from error
        except OverflowError as error:
            raise SpaceError(f"{what} '{text[:60]}...' has a number of more than 308 digits; shorten it") from error
        except RecursionError as error:
            raise SpaceError(f"{what} '{text[:60]}...' is nested too deeply; split it") from error
        if not isinstance(self._tree, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Name | ast.Attribute):
            raise SpaceError(f"{what} '{text}' is not a comparison; write for example 'a.b <= c.d'")
        self.numbers = sorted(
            {float(number) for node in ast.walk(self._tree) if (number := _plain_number(node)) is not None}
        )

    def __reduce__(self) -> tuple[type["Expression"], tuple[str, str]]:
        """Goes to another process as its text: what it is compiled to cannot."""
        return type(self), (self.text, self.what)

    def check_names(self, known: set[str]) -> None:
        """Raises `SpaceError` when a name is neither a parameter nor a fixed value."""
        for name in sorted(self.names - known):
            raise SpaceError(f"{self.what} '{self.text}' mentions unknown parameter '{name}'{nearest(name, known)}")

    def _judged(self, values: Values) -> tuple[NDArray[np.bool_], NDArray[np.uint8]]:
        """Returns whether it is true, and its trouble, for each point or all. Raises `SpaceError` for unlike values."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value, trouble = self._evaluate(values)
        if np.any(trouble == _UNLIKE):
            raise SpaceError(f"{self.what} '{self.text}' mixes text and numbers; compare like with like")
        return _truth(value), np.asarray(trouble)

    def _compile(self, node: ast.expr) -> _Evaluate:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as constant):
                value = (
                    float(constant)
                    if isinstance(constant, int | float) and not isinstance(constant, bool)
                    else constant
                )
                return lambda values: _Result(value)
            case ast.List() | ast.Tuple() | ast.Dict():
                choice = np.empty((), dtype=object)  # as one value: NumPy would take a list apart
                choice[()] = self._literal(node)
                return lambda values: _Result(choice)
            case ast.Name() | ast.Attribute():
                name = self._dotted(node)
                self.names.add(name)
                return lambda values: _given(values[name])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._compile(operand)
                return lambda values: _not(inner(values))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._compile(operand)
                return lambda values: _negative(inner(values))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._compile(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                self.is_separable = False
                a, b, binary = self._compile(left), self._compile(right), _BINARY[type(op)]
                return lambda values: _arithmetic(binary, a(values), b(values))
            case ast.BoolOp(op=op, values=operands):
                parts = [self._compile(part) for part in operands]
                is_and = isinstance(op, ast.And)
                return lambda values: _joined(is_and, [part(values) for part in parts])
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[listed]):
                return self._compile(self._one_of(left, listed, negated=isinstance(op, ast.NotIn)))
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(None) as none]):
                same = ast.Eq() if isinstance(op, ast.Is) else ast.NotEq()
                return self._compile(ast.Compare(left, [same], [none]))
            case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _COMPARE for op in ops):
                terms = [self._compile(term) for term in (left, *comparators)]
                for sign, one, other in zip(ops, (left, *comparators[:-1]), comparators, strict=True):
                    self._note_equality(sign, one, other)
                self.is_separable &= len({name for term in (left, *comparators) for name in self._names_in(term)}) <= 1
                compare = [_COMPARE[type(op)] for op in ops]
                return lambda values: _chain(compare, [term(values) for term in terms])
        raise self._refused(node)

    def _note_equality(self, op: ast.cmpop, *sides: ast.expr) -> None:
        if isinstance(op, ast.Eq | ast.NotEq):
            names = [self._dotted(side) for side in sides if isinstance(side, ast.Name | ast.Attribute)]
            plain = (ast.Constant, ast.List, ast.Tuple, ast.Dict)
            values = [self._literal(side) for side in sides if isinstance(side, plain)]
            self.equals += zip(names, values, strict=False)

    def _one_of(self, left: ast.expr, listed: ast.expr, *, negated: bool) -> ast.expr:
        """Returns `left in [a, b]` as `left == a or left == b`."""
        if not isinstance(listed, ast.List | ast.Tuple | ast.Set):
            raise self._refused(listed)
        if not listed.elts:
            raise SpaceError(f"{self.what} '{self.text}' has an empty list, which nothing is in; list values in it")
        for value in listed.elts:
            self._literal(value)
        equal: list[ast.expr] = [ast.Compare(left, [ast.Eq()], [value]) for value in listed.elts]
        found = equal[0] if len(equal) == 1 else ast.BoolOp(ast.Or(), equal)
        return ast.UnaryOp(ast.Not(), found) if negated else found

    def _literal(self, node: ast.expr) -> Any:
        """Returns a plain value, or a list or a table of plain values. Raises `SpaceError` for anything else."""
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as constant):
                return constant
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._literal(item) for item in items]
            case ast.Dict(keys=keys, values=items):
                names = [key.value if isinstance(key, ast.Constant) else None for key in keys]
                if all(isinstance(name, str) for name in names):
                    return {name: self._literal(item) for name, item in zip(names, items, strict=True)}
        if (number := _plain_number(node)) is not None:
            return number
        raise self._refused(node)

    def _names_in(self, node: ast.AST) -> list[str]:
        """Returns the names in an expression that `_compile` accepts, in their order."""
        if isinstance(node, ast.Name | ast.Attribute):
            return [self._dotted(node)]
        return [name for child in ast.iter_child_nodes(node) for name in self._names_in(child)]

    def _refused(self, node: ast.expr) -> SpaceError:
        return SpaceError(f"{self.what} '{self.text}' uses '{ast.unparse(node)}', which is not allowed; {_LANGUAGE}")

    def _dotted(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self._dotted(node.value)}.{node.attr}"
        raise self._refused(node)


class Constraint(Expression):
    """An expression that every valid point meets.

    Attributes:
        equalities: each `==` that every valid point meets.
    """

    def __init__(self, text: str, what: str = "constraint") -> None:
        """Raises `SpaceError` when the text is not an expression of the language above."""
        super().__init__(text, what)
        self.equalities = self._equalities(self._tree)

    def satisfied(self, values: Values, num_points: int) -> NDArray[np.bool_]:
        """Returns which points satisfy it, `num_points`. Raises `SpaceError` when it compares text with numbers."""
        truth, trouble = self._judged(values)
        return np.array(np.broadcast_to(np.where(trouble == _FINE, truth, trouble == _MISSING), (num_points,)))

    def linear(self, constants: Mapping[str, float]) -> list[Linear]:
        """Returns those comparisons that every valid point meets and that are linear, given what is constant."""
        return _linear(self._tree, constants)

    def _equalities(self, node: ast.expr) -> list[Equality]:
        match node:
            case ast.BoolOp(op=ast.And(), values=operands):
                return [found for operand in operands for found in self._equalities(operand)]
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                pairs = zip(ops, (left, *comparators[:-1]), comparators, strict=True)
                differences = [ast.BinOp(a, ast.Sub(), b) for op, a, b in pairs if isinstance(op, ast.Eq)]
                return [(self._names_in(difference), self._difference(difference)) for difference in differences]
        return []

    def _difference(self, node: ast.expr) -> Callable[[Values], NDArray[np.float64]]:
        evaluate = self._compile(node)

        def difference(values: Values) -> NDArray[np.float64]:
            value, trouble = evaluate(values)
            return np.where(trouble == _UNLIKE, np.nan, value)  # one side is text: no number can be moved towards it

        return difference


class Condition(Expression):
    """When a parameter exists (`when`)."""

    def holds(self, values: Values, num_points: int) -> NDArray[np.bool_]:
        """Returns at which points it holds, `num_points`. Raises `SpaceError` when it compares text with numbers."""
        truth, trouble = self._judged(values)
        return np.array(np.broadcast_to(truth & (trouble == _FINE), (num_points,)))


def _linear(node: ast.expr, constants: Mapping[str, float]) -> list[Linear]:
    match node:
        case ast.BoolOp(op=ast.And(), values=operands):
            return [found for operand in operands for found in _linear(operand, constants)]
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            pairs = zip(ops, (left, *comparators[:-1]), comparators, strict=True)
            return [found for op, a, b in pairs if (found := _linear_comparison(op, a, b, constants)) is not None]
    return []


def _linear_comparison(op: ast.cmpop, a: ast.expr, b: ast.expr, constants: Mapping[str, float]) -> Linear | None:
    if isinstance(op, ast.Gt | ast.GtE):
        a, b = b, a
    kind = _KINDS.get(type(op))
    total = _sum(ast.BinOp(a, ast.Sub(), b), constants)
    if kind is None or total is None or not all(map(math.isfinite, total.values())):
        return None
    coefficients = {name: factor for name, factor in total.items() if name and factor}
    return Linear(coefficients, total.get("", 0.0), kind) if coefficients else None


def _sum(node: ast.expr, constants: Mapping[str, float]) -> dict[str, float] | None:
    """Returns the coefficients of a linear expression by name, its constant by ""; None: it is not linear."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return {"": float(number)}
        case ast.Name() | ast.Attribute():
            name = ast.unparse(node)
            return {"": constants[name]} if name in constants else {name: 1.0}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
            return _scaled(_sum(operand, constants), -1.0 if isinstance(op, ast.USub) else 1.0)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as op, right=right):
            a, b = _sum(left, constants), _sum(right, constants)
            if a is None or b is None:
                return None
            if isinstance(op, ast.Add | ast.Sub):
                b = _scaled(b, -1.0 if isinstance(op, ast.Sub) else 1.0) or {}
                return {name: a.get(name, 0.0) + b.get(name, 0.0) for name in {**a, **b}}
            if isinstance(op, ast.Mult) and a.keys() == {""}:
                a, b = b, a
            if b.keys() != {""} or (isinstance(op, ast.Div) and b[""] == 0.0):
                return None
            return {name: value / b[""] if isinstance(op, ast.Div) else value * b[""] for name, value in a.items()}
    return None


def _scaled(total: dict[str, float] | None, factor: float) -> dict[str, float] | None:
    return None if total is None else {name: factor * value for name, value in total.items()}


def _remedy(text: str) -> str:
    """Returns what to do about a text that does not parse, perhaps because a parameter is called `lambda`."""
    words = [word for word in re.findall(r"\w+", text) if keyword.iskeyword(word) and word not in _WORDS]
    if words:
        return f"'{words[0]}' is a word of Python, so rename a parameter that is called so; {_LANGUAGE}"
    return _LANGUAGE


def _given(value: Any) -> _Result:
    if isinstance(value, Partial):
        return _Result(value.value, np.where(value.present, _FINE, _MISSING))
    return _Result(value)


def _plain_number(node: ast.AST) -> float | None:
    """Returns the number that a node of the tree is, with its sign; None: it is something else."""
    match node:
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=ast.Constant(value=int() | float() as number)):
            return -number if isinstance(op, ast.USub) else number
        case ast.Constant(value=int() | float() as number):
            return number
    return None


def _truth(value: Any) -> NDArray[np.bool_]:
    return np.asarray(value).astype(bool)


def _numbers(result: _Result) -> _Result:
    """Arithmetic is on numbers alone: `'a' + 1` is `_UNLIKE` here, also where numpy would build text."""
    array = np.asarray(result.value)
    if array.dtype.kind in "bif":
        return _Result(array.astype(np.float64), result.trouble)
    are_numbers = np.array([isinstance(value, bool | int | float) for value in array.flat]).reshape(array.shape)
    numbers = np.array([float(value) if isinstance(value, bool | int | float) else 0.0 for value in array.flat])
    return _Result(numbers.reshape(array.shape), _first(result.trouble, np.where(are_numbers, _FINE, _UNLIKE)))


def _first(trouble: Any, later: Any) -> Any:
    """What has happened first hides what comes after it."""
    return np.where(trouble == _FINE, later, trouble)


def _not(inner: _Result) -> _Result:
    return _Result(~_truth(inner.value), inner.trouble)


def _negative(inner: _Result) -> _Result:
    value, trouble = _numbers(inner)
    return _Result(np.negative(value), trouble)


def _arithmetic(binary: Callable[[Any, Any], Any], a: _Result, b: _Result) -> _Result:
    a, b = _numbers(a), _numbers(b)
    value = np.asarray(binary(a.value, b.value))
    failed = np.where(np.isfinite(value), _FINE, _FAILED)
    return _Result(value, _first(_first(a.trouble, b.trouble), failed))


def _joined(is_and: bool, parts: list[_Result]) -> _Result:
    """`a and b` is b where a is true, else a; `a or b` is the reverse. A part that is not reached cannot fail."""
    value, trouble = parts[0]
    for part in parts[1:]:
        reached = _truth(value) == is_and
        value = _where(reached, part.value, value)
        trouble = _first(trouble, np.where(reached, part.trouble, _FINE))
    return _Result(value, trouble)


def _chain(compare: list[Callable[[Any, Any], Any]], terms: list[_Result]) -> _Result:
    """`a <= b < c` is `a <= b and b < c`: where the first is false, c is not reached."""
    value, trouble = np.asarray(True), terms[0].trouble
    for operator, a, b in zip(compare, terms[:-1], terms[1:], strict=True):
        trouble = _first(trouble, np.where(value, b.trouble, _FINE))
        held, unlike = _compared(operator, a.value, b.value)
        trouble = _first(trouble, np.where(value, unlike, _FINE))
        value = value & held
    return _Result(value, trouble)


def _compared(operator: Callable[[Any, Any], Any], a: Any, b: Any) -> tuple[NDArray[np.bool_], Any]:
    """Returns whether a comparison holds, and `_UNLIKE` where two values have no order, as None and 3 have none."""
    try:
        return np.asarray(operator(a, b), dtype=bool), _FINE
    except TypeError:
        a, b = np.broadcast_arrays(np.asarray(a, dtype=object), np.asarray(b, dtype=object))
        held, unlike = np.zeros(a.shape, dtype=bool), np.full(a.shape, _FINE)
        for i in np.ndindex(a.shape):
            try:
                held[i] = operator(a[i], b[i])
            except TypeError:
                unlike[i] = _UNLIKE
        return held, unlike


def _where(chosen: NDArray[np.bool_], value: Any, other: Any) -> NDArray[Any]:
    """`np.where`, which would make texts of the numbers where only one of the two is text."""
    arrays = [np.asarray(value), np.asarray(other)]
    if len({array.dtype.kind in "bif" for array in arrays}) > 1:
        arrays = [array.astype(object) for array in arrays]
    return np.where(chosen, *arrays)

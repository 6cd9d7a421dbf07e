"""Validity constraints between parameters, as text: `train.minibatch_size <= env.num_envs * train.horizon`.

The language is a small part of Python's expressions, parsed with `ast` and never executed as code: comparisons (also
chained), `and`, `or`, `not`, `+ - * / // %`, numbers, strings, True, False, and dotted names. There is no power, call,
index or attribute access, so an expression cannot run code and cannot take long.

A constraint is evaluated for many points at once: every name stands for an array of `num_points` values. Numbers are
compared in float64, which is exact for integers up to 2**53.

A division by zero makes a point invalid, also under `not`, and so does arithmetic whose result is not finite. As in
Python, only what is evaluated counts: `b == 0 or a / b < 2` holds where b is 0, because `or` and `and` stop as soon as
their result is known, and so does a chain of comparisons.
"""

import ast
import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protein.errors import SpaceError
from protein.spelling import nearest

Values = Mapping[str, NDArray[Any]]

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
_LANGUAGE = "use comparisons, and, or, not, + - * / // %, numbers, strings and parameter names"
_WORDS = ("and", "or", "not", "True", "False")
_MAX_CHARACTERS = 2000  # far above any constraint that a person writes; bounds the parser's work


class _Result(NamedTuple):
    """An expression's value for each point, or one for all. Where it has `failed`, Python would raise an error."""

    value: Any
    failed: Any = np.False_


_Evaluate = Callable[[Values], _Result]
# The names in an equality, and by how much its left side is larger than its right one (NaN: one of them is text).
Equality = tuple[list[str], Callable[[Values], NDArray[np.float64]]]


class Constraint:
    """One parsed constraint.

    Attributes:
        text: the expression as it was given.
        names: the parameter names that it mentions.
        equalities: each `==` that every valid point meets.
    """

    def __init__(self, text: str) -> None:
        """Raises `SpaceError` when the text is not an expression of the language above."""
        if not isinstance(text, str):
            raise SpaceError(f"constraint {text!r} is not text; write it as a string")
        if len(text) > _MAX_CHARACTERS:
            raise SpaceError(f"constraint of {len(text)} characters is longer than {_MAX_CHARACTERS}; split it")
        self.text = text
        self.names: set[str] = set()
        try:
            tree = ast.parse(text.strip(), mode="eval")
            self._evaluate = self._compile(tree.body)
            self.equalities = self._equalities(tree.body)
        except SyntaxError as error:
            raise SpaceError(f"constraint '{text}' does not parse ({error.msg}); {_remedy(text)}") from error
        except OverflowError as error:
            raise SpaceError(f"constraint '{text[:60]}...' has a number of more than 308 digits; shorten it") from error
        except RecursionError as error:
            raise SpaceError(f"constraint '{text[:60]}...' is nested too deeply; split it") from error
        if not isinstance(tree.body, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Name | ast.Attribute):
            raise SpaceError(f"constraint '{text}' is not a comparison; write for example 'a.b <= c.d'")

    def __reduce__(self) -> tuple[type["Constraint"], tuple[str]]:
        """Goes to another process as its text: what it is compiled to cannot."""
        return Constraint, (self.text,)

    def check_names(self, known: set[str]) -> None:
        """Raises `SpaceError` when a name is neither a parameter nor a fixed value."""
        for name in sorted(self.names - known):
            raise SpaceError(f"constraint '{self.text}' mentions unknown parameter '{name}'{nearest(name, known)}")

    def satisfied(self, values: Values, num_points: int) -> NDArray[np.bool_]:
        """Returns which points satisfy it, `num_points`. Raises `SpaceError` when it compares text with numbers."""
        try:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                value, failed = self._evaluate(values)
                result = _truth(value) & ~failed
        except (TypeError, ValueError) as error:
            raise SpaceError(f"constraint '{self.text}' mixes text and numbers; compare like with like") from error
        return np.array(np.broadcast_to(result, (num_points,)))

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
            try:
                return _number(evaluate(values).value)
            except (TypeError, ValueError):  # one side is text, and no number can be moved towards it
                return np.asarray(np.nan)

        return difference

    def _names_in(self, node: ast.AST) -> list[str]:
        """Returns the names in an expression that `_compile` accepts, in their order."""
        if isinstance(node, ast.Name | ast.Attribute):
            return [self._dotted(node)]
        return [name for child in ast.iter_child_nodes(node) for name in self._names_in(child)]

    def _compile(self, node: ast.expr) -> _Evaluate:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as constant):
                value = (
                    float(constant)
                    if isinstance(constant, int | float) and not isinstance(constant, bool)
                    else constant
                )
                return lambda values: _Result(value)
            case ast.Name() | ast.Attribute():
                name = self._dotted(node)
                self.names.add(name)
                return lambda values: _Result(values[name])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._compile(operand)
                return lambda values: _not(inner(values))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._compile(operand)
                return lambda values: _negative(inner(values))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._compile(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                a, b, binary = self._compile(left), self._compile(right), _BINARY[type(op)]
                return lambda values: _arithmetic(binary, a(values), b(values))
            case ast.BoolOp(op=op, values=operands):
                parts = [self._compile(part) for part in operands]
                is_and = isinstance(op, ast.And)
                return lambda values: _joined(is_and, [part(values) for part in parts])
            case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _COMPARE for op in ops):
                terms = [self._compile(term) for term in (left, *comparators)]
                compare = [_COMPARE[type(op)] for op in ops]
                return lambda values: _chain(compare, [term(values) for term in terms])
        raise SpaceError(f"constraint '{self.text}' uses '{ast.unparse(node)}', which is not allowed; {_LANGUAGE}")

    def _dotted(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self._dotted(node.value)}.{node.attr}"
        raise SpaceError(f"constraint '{self.text}' uses '{ast.unparse(node)}', which is not allowed; {_LANGUAGE}")


def _remedy(text: str) -> str:
    """Returns what to do about a text that does not parse, perhaps because a parameter is called `lambda`."""
    words = [word for word in re.findall(r"\w+", text) if keyword.iskeyword(word) and word not in _WORDS]
    if words:
        return f"'{words[0]}' is a word of Python, so rename a parameter that is called so; {_LANGUAGE}"
    return _LANGUAGE


def _truth(value: Any) -> NDArray[np.bool_]:
    return np.asarray(value).astype(bool)


def _number(value: Any) -> NDArray[np.float64]:
    """Arithmetic is on numbers alone: `'a' + 1` is a `ValueError` here, also where numpy would build text."""
    array = np.asarray(value)
    if array.dtype.kind not in "bif":
        raise ValueError("not a number")
    return array.astype(np.float64)


def _not(inner: _Result) -> _Result:
    return _Result(~_truth(inner.value), inner.failed)


def _negative(inner: _Result) -> _Result:
    return _Result(np.negative(_number(inner.value)), inner.failed)


def _arithmetic(binary: Callable[[Any, Any], Any], a: _Result, b: _Result) -> _Result:
    value = _number(binary(_number(a.value), _number(b.value)))
    return _Result(value, a.failed | b.failed | ~np.isfinite(value))


def _joined(is_and: bool, parts: list[_Result]) -> _Result:
    """`a and b` is b where a is true, else a; `a or b` is the reverse. A part that is not reached cannot fail."""
    value, failed = parts[0]
    for part in parts[1:]:
        reached = _truth(value) == is_and
        value = _where(reached, part.value, value)
        failed = failed | (reached & part.failed)
    return _Result(value, failed)


def _chain(compare: list[Callable[[Any, Any], Any]], terms: list[_Result]) -> _Result:
    """`a <= b < c` is `a <= b and b < c`: where the first is false, c is not reached."""
    value, failed = np.asarray(True), terms[0].failed
    for operator, a, b in zip(compare, terms[:-1], terms[1:], strict=True):
        failed = failed | (value & b.failed)
        value = value & np.asarray(operator(a.value, b.value), dtype=bool)
    return _Result(value, failed)


def _where(chosen: NDArray[np.bool_], value: Any, other: Any) -> NDArray[Any]:
    """`np.where`, which would make texts of the numbers where only one of the two is text."""
    arrays = [np.asarray(value), np.asarray(other)]
    if len({array.dtype.kind in "bif" for array in arrays}) > 1:
        arrays = [array.astype(object) for array in arrays]
    return np.where(chosen, *arrays)

"""Expressions over the columns of a table of runs, such as `learning_rate < 0.1 and accuracy > 0.9`.

The grammar is a part of Python's: comparisons, `and`, `or`, `not`, `in`, the four operations, numbers, texts, lists and
`has(NAME)`. Names are those of columns, or the end of one behind a dot; one that is no Python name stands between
backticks. Python parses, and nothing is ever evaluated by it: each node has its rule here, or is refused.

A value that a run lacks makes each comparison with it false, and so does one of another type.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from instrument.suggestions import closest

#: Sections of a lineage, in the order in which a name is looked for.
_ORDER = ("run", "path", "train", "eval", "best", "best_step", "custom", "dataset")
_LONGEST = 2000
_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, several: one in several,
    ast.NotIn: lambda one, several: one not in several,
}
_GRAMMAR = "comparisons, and, or, not, in, + - * /, numbers, texts, lists and has(NAME) are known"


class WrongExpression(ValueError):
    """An expression that cannot be understood."""


class NoSuchColumn(WrongExpression):
    """A name that no run has."""


def resolve(name: str, columns: Iterable[str]) -> str:
    """The column of a name: the one that is called so, or else the shortest that ends in `.name`.

    Where several sections have one, the first of train, eval, best, best_step, custom and dataset counts.

    Raises:
        NoSuchColumn: there is none.
    """
    known = list(columns)
    if name in known:
        return name
    ends = [column for column in known if column.endswith(f".{name}")]
    if not ends:
        raise NoSuchColumn(f"no run has {name!r}{_nearest(name, known)}; there are: {', '.join(sorted(known))}")
    return min(ends, key=lambda column: (_section(column), column.count("."), column))


def _nearest(name: str, columns: list[str]) -> str:
    """The column, or end of one, that comes nearest, in a form to be put behind `name`; empty where none is near."""
    ends = {column.split(".", at)[-1] for column in columns for at in range(column.count(".") + 1)}
    near = closest(name, sorted(ends, key=lambda end: (len(end), end)))
    return f" (did you mean {near[0]!r}?)" if near else ""


def _section(column: str) -> int:
    first = column.partition(".")[0]
    return _ORDER.index(first) if first in _ORDER else len(_ORDER)


class Where:
    """An expression, parsed and checked against the `columns` that there are; called with a row it answers yes or no.

    Raises:
        WrongExpression: it cannot be understood; the message quotes what it stumbled at.
    """

    def __init__(self, text: str, columns: Iterable[str]) -> None:
        self._columns = list(columns)
        self._text, self._quoted = _without_backticks(text)
        if len(text) > _LONGEST:
            raise WrongExpression(f"the expression has {len(text)} characters; at most {_LONGEST} are read")
        try:
            self._rule = self._compile(ast.parse(self._text.strip(), mode="eval").body)
        except WrongExpression:
            raise
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise WrongExpression(f"{text!r} is no expression: {reason}; {_GRAMMAR}") from error

    def __call__(self, row: Mapping[str, Any]) -> bool:
        return bool(self._rule(row))

    def _compile(self, node: ast.AST) -> Callable[[Mapping[str, Any]], Any]:
        build = getattr(self, f"_{type(node).__name__.lower()}", None)
        if build is None:
            raise WrongExpression(f"{ast.unparse(node)!r} is not understood in an expression; {_GRAMMAR}")
        rule: Callable[[Mapping[str, Any]], Any] = build(node)
        return rule

    def _constant(self, node: ast.Constant) -> Callable[[Mapping[str, Any]], Any]:
        value = node.value
        if not isinstance(value, (str, int, float, bool)):
            raise WrongExpression(f"{ast.unparse(node)!r} is neither a number nor a text; {_GRAMMAR}")
        return lambda _: value

    def _name(self, node: ast.Name | ast.Attribute) -> Callable[[Mapping[str, Any]], Any]:
        column = self._column(node)
        return lambda row: row.get(column)

    _attribute = _name

    def _column(self, node: ast.AST) -> str:
        name = ast.unparse(node)
        if not all(isinstance(inner, (ast.Name, ast.Attribute, ast.Load)) for inner in ast.walk(node)):
            raise WrongExpression(f"{name!r} is no name; {_GRAMMAR}")
        return resolve(self._quoted.get(name, name), self._columns)

    def _list(self, node: ast.List | ast.Tuple) -> Callable[[Mapping[str, Any]], Any]:
        items = [self._compile(item) for item in node.elts]
        return lambda row: [item(row) for item in items]

    _tuple = _list

    def _boolop(self, node: ast.BoolOp) -> Callable[[Mapping[str, Any]], Any]:
        parts = [self._compile(value) for value in node.values]
        decide = all if isinstance(node.op, ast.And) else any
        return lambda row: decide(part(row) for part in parts)

    def _unaryop(self, node: ast.UnaryOp) -> Callable[[Mapping[str, Any]], Any]:
        inner = self._compile(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda row: not inner(row)
        if not isinstance(node.op, (ast.USub, ast.UAdd)):
            raise WrongExpression(f"{ast.unparse(node)!r} is not understood in an expression; {_GRAMMAR}")
        sign = -1 if isinstance(node.op, ast.USub) else 1
        return lambda row: _calculated(operator.mul, sign, inner(row))

    def _binop(self, node: ast.BinOp) -> Callable[[Mapping[str, Any]], Any]:
        operation = _OPERATIONS.get(type(node.op))
        if operation is None:
            raise WrongExpression(f"{ast.unparse(node)!r} is not understood in an expression; {_GRAMMAR}")
        left, right = self._compile(node.left), self._compile(node.right)
        return lambda row: _calculated(operation, left(row), right(row))

    def _compare(self, node: ast.Compare) -> Callable[[Mapping[str, Any]], Any]:
        if not all(type(one) in _COMPARISONS for one in node.ops):
            raise WrongExpression(f"{ast.unparse(node)!r}: `is` is not known; == compares, has(NAME) asks for a value")
        tests = [_COMPARISONS[type(one)] for one in node.ops]
        values = [self._compile(value) for value in (node.left, *node.comparators)]
        links = list(zip(tests, values, values[1:], strict=False))
        return lambda row: all(_compared(test, one(row), other(row)) for test, one, other in links)

    def _call(self, node: ast.Call) -> Callable[[Mapping[str, Any]], Any]:
        if ast.unparse(node.func) != "has" or len(node.args) != 1 or node.keywords:
            raise WrongExpression(f"{ast.unparse(node)!r}: the only function is has(NAME)")
        column = self._column(node.args[0])
        return lambda row: row.get(column) is not None


def _without_backticks(text: str) -> tuple[str, dict[str, str]]:
    """The text with a Python name for each that stands between backticks, and what they mean."""
    quoted: dict[str, str] = {}

    def placeholder(match: re.Match[str]) -> str:
        stand_in = f"_quoted{len(quoted)}_"
        quoted[stand_in] = match[1]
        return stand_in

    return re.sub(r"`([^`]*)`", placeholder, text), quoted


def _calculated(operation: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    """The number; None where one is missing or is none, or there is no result."""
    if not all(isinstance(value, (int, float)) for value in (one, other)):
        return None
    try:
        return operation(one, other)
    except (ZeroDivisionError, OverflowError):
        return None


def _compared(test: Callable[[Any, Any], bool], one: Any, other: Any) -> bool:
    if one is None or other is None:
        return False
    try:
        return bool(test(one, other))
    except TypeError:
        return False


def order(value: Any) -> tuple[int, Any]:
    """What rows are sorted by: numbers, then texts, then everything else as text; None has no place among them."""
    if isinstance(value, (int, float)):
        return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)
    return (2, value if isinstance(value, str) else str(value))

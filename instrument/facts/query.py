"""Query language over a table of runs: `learning_rate < 0.1 and accuracy > 0.9` as a predicate on rows.

The problem: users want to filter runs by any column, names of columns come out of files, and an expression may come
from an untrusted address.

The strategy: the grammar is a part of Python's, which users know: comparisons, `and`, `or`, `not`, `in`,
the four operations, numbers, texts, lists and `has(NAME)`. Names are those of columns, or the end of one behind a dot;
one that is no Python name stands between backticks. `ast` parses; each node has its rule in `Query`, or is refused. A
value that a run lacks makes each comparison with it false, and so does one of another type.

Rejected: `eval` of the checked source. A check that forgets one node hands out the interpreter. Here a node without a
rule has no meaning.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from instrument.wording import closest

#: Computes the value of a node for a row.
Rule = Callable[[Mapping[str, object]], object]
#: Sections of a lineage, in the order in which a name is looked for.
_ORDER = ("run", "path", "train", "eval", "best", "best_step", "custom", "dataset", "ran")
_LONGEST = 2000
_OPERATIONS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
Comparison = Callable[[Any, Any], bool]
_COMPARISONS: dict[type, Comparison] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, values: value in values,
    ast.NotIn: lambda value, values: value not in values,
}
_GRAMMAR = "comparisons, and, or, not, in, + - * /, numbers, texts, lists and has(NAME) are known"


class WrongExpression(ValueError):
    """An expression that cannot be understood."""


class NoSuchColumn(WrongExpression):
    """A name that no run has."""


def resolve(name: str, columns: Iterable[str]) -> str:
    """Return the column of a name: the one that has it, or else the shortest that ends in `.name`.

    If several sections have one, the first of train, eval, best, best_step, custom, dataset and ran counts.

    Raises:
        NoSuchColumn: there is none.
    """
    columns = list(columns)
    if name in columns:
        return name
    ends = [column for column in columns if column.endswith(f".{name}")]
    if not ends:
        raise NoSuchColumn(f"no run has {name!r}{_nearest(name, columns)}; there are: {', '.join(sorted(columns))}")
    return min(ends, key=lambda column: (_section(column), column.count("."), column))


def _nearest(name: str, columns: list[str]) -> str:
    """Return " (did you mean ...?)" with the nearest column or end of one, an empty text if none is near."""
    ends = {column.split(".", at)[-1] for column in columns for at in range(column.count(".") + 1)}
    near = closest(name, sorted(ends, key=lambda end: (len(end), end)))
    return f" (did you mean {near[0]!r}?)" if near else ""


def _section(column: str) -> int:
    first = column.partition(".")[0]
    return _ORDER.index(first) if first in _ORDER else len(_ORDER)


class Query:
    """A parsed expression, checked against the `columns` that exist; called with a row it returns True if it holds.

    Raises:
        WrongExpression: it cannot be understood; the message quotes the part that is not.
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

    def __call__(self, row: Mapping[str, object]) -> bool:
        return bool(self._rule(row))

    def _compile(self, node: ast.AST) -> Rule:
        build = getattr(self, f"_{type(node).__name__.lower()}", None)
        if build is None:
            raise WrongExpression(f"{ast.unparse(node)!r} is not understood in an expression; {_GRAMMAR}")
        rule: Rule = build(node)
        return rule

    def _constant(self, node: ast.Constant) -> Rule:
        value = node.value
        if not isinstance(value, (str, int, float, bool)):
            raise WrongExpression(f"{ast.unparse(node)!r} is neither a number nor a text; {_GRAMMAR}")
        return lambda _: value

    def _name(self, node: ast.Name | ast.Attribute) -> Rule:
        column = self._column(node)
        return lambda row: row.get(column)

    _attribute = _name

    def _column(self, node: ast.AST) -> str:
        name = ast.unparse(node)
        if not all(isinstance(inner, (ast.Name, ast.Attribute, ast.Load)) for inner in ast.walk(node)):
            raise WrongExpression(f"{name!r} is no name; {_GRAMMAR}")
        return resolve(self._quoted.get(name, name), self._columns)

    def _list(self, node: ast.List | ast.Tuple) -> Rule:
        items = [self._compile(item) for item in node.elts]
        return lambda row: [item(row) for item in items]

    _tuple = _list

    def _boolop(self, node: ast.BoolOp) -> Rule:
        parts = [self._compile(value) for value in node.values]
        decide = all if isinstance(node.op, ast.And) else any
        return lambda row: decide(part(row) for part in parts)

    def _unaryop(self, node: ast.UnaryOp) -> Rule:
        inner = self._compile(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda row: not inner(row)
        if not isinstance(node.op, (ast.USub, ast.UAdd)):
            raise WrongExpression(f"{ast.unparse(node)!r} is not understood in an expression; {_GRAMMAR}")
        sign = -1 if isinstance(node.op, ast.USub) else 1
        return lambda row: _calculated(operator.mul, sign, inner(row))

    def _binop(self, node: ast.BinOp) -> Rule:
        operation = _OPERATIONS.get(type(node.op))
        if operation is None:
            raise WrongExpression(f"{ast.unparse(node)!r} is not understood in an expression; {_GRAMMAR}")
        left, right = self._compile(node.left), self._compile(node.right)
        return lambda row: _calculated(operation, left(row), right(row))

    def _compare(self, node: ast.Compare) -> Rule:
        if not all(type(comparison) in _COMPARISONS for comparison in node.ops):
            raise WrongExpression(f"{ast.unparse(node)!r}: `is` is not known; == compares, has(NAME) asks for a value")
        tests = [_COMPARISONS[type(comparison)] for comparison in node.ops]
        values = [self._compile(value) for value in (node.left, *node.comparators)]
        links = list(zip(tests, values, values[1:], strict=False))
        return lambda row: all(_compared(test, left(row), right(row)) for test, left, right in links)

    def _call(self, node: ast.Call) -> Rule:
        if ast.unparse(node.func) != "has" or len(node.args) != 1 or node.keywords:
            raise WrongExpression(f"{ast.unparse(node)!r}: the only function is has(NAME)")
        column = self._column(node.args[0])
        return lambda row: row.get(column) is not None


def _without_backticks(text: str) -> tuple[str, dict[str, str]]:
    """Return the text with a Python name in the place of each quoted one, and the quoted name of each."""
    quoted: dict[str, str] = {}

    def placeholder(match: re.Match[str]) -> str:
        stand_in = f"_quoted{len(quoted)}_"
        quoted[stand_in] = match[1]
        return stand_in

    return re.sub(r"`([^`]*)`", placeholder, text), quoted


def _calculated(operation: Callable[[float, float], float], left: object, right: object) -> float | None:
    """Return the result; None if an operand is no number, or there is no result."""
    if not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
        return None
    try:
        return operation(left, right)
    except (ZeroDivisionError, OverflowError):
        return None


def _compared(test: Comparison, left: object, right: object) -> bool:
    if left is None or right is None:
        return False
    try:
        return bool(test(left, right))
    except TypeError:
        return False


def sort_key(value: object) -> tuple[int, float | str]:
    """Return the key of a value that is not None: numbers come first, then NaN, then all else by its text."""
    if isinstance(value, (int, float)):
        return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)
    return (2, value if isinstance(value, str) else str(value))

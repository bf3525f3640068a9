"""Every message that the package can raise, log or print as an error, out of its source by `ast`.

A message is its text with "…" for what is filled in. Where the text is not written at its place, it is looked for where
it is made: in a name's assignments, in what a function of the package returns, in a table. A place that shows none of
these passes on what another place, or the system, says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "instrument"

_LEVELS = {"warning", "error", "exception", "info", "debug"}
#: Function -> which argument is the text; of methods by their name alone.
_TEXT_AT: dict[str, int | None] = {
    "log.log": 1, ".note": 1, "_say": 1, "_guarded": 0, "Diagnostic": 3, ".warn_once": 1, "_warn_once": 2, "_note": 3,
    "Damage": 3, "Problem": 1, "losses.add": 0, "self._losses.add": 0, "result.notes.append": 0, "self._reader.add": 2,
    ".wrong_call": 0, "tell": 0, "job.left_out.append": 0, "self._job.left_out.append": 0, "self.left_out.append": 0,
    "left_out.append": 0, "self._damaged.append": 0, "job.leave_out": 1,
    }  # fmt: skip
#: printf's, without the spaces that would make one of "100 % of".
_PRINTF = re.compile(r"%(\(\w+\))?[-#0+]*\d*(\.\d+)?[diouxXeEfFgGcrsa]")
_FORMAT = re.compile(r"\{\w*\}")
#: Passed on to somebody who raises an error of this text, or shows it.
_PASSED_ON = {"str", "repr", "join", "escape", "strerror", "quoted", "name"}
#: A text with fewer letters is none; one with some more may be only what stands around another one.
_FEWEST_LETTERS, _WRAPPER_LETTERS = 6, 20


@dataclass(frozen=True)
class Place:
    """Where something is raised, logged or printed; `texts` are its messages."""

    file: str
    line: int
    source: str
    texts: frozenset[str]
    #: Where the expressions of the message begin and end, in lines from 1 and bytes of a line from 0.
    spans: tuple[tuple[tuple[int, int], tuple[int, int]], ...]


@dataclass
class _Module:
    file: str
    tree: ast.Module
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node

    def scopes(self, node: ast.AST) -> Iterator[ast.AST]:
        """The functions around a node, the innermost first, and the module."""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
                yield node


def plain(text: str) -> str:
    """A message as the page has it: what is filled in is one `…`, white space one space."""
    return re.sub(r"…[…]*", "…", re.sub(r"\s+", " ", text)).strip()


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def modules() -> list[_Module]:
    files = sorted(PACKAGE.rglob("*.py"))
    return [_Module(str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))) for path in files]


class Collector:
    def __init__(self, known: Iterable[_Module]) -> None:
        self._modules = list(known)
        self._functions: dict[str, list[tuple[_Module, ast.FunctionDef]]] = {}
        for module in self._modules:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.FunctionDef):
                    self._functions.setdefault(node.name, []).append((module, node))
        self._busy: set[ast.AST] = set()

    def places(self) -> Iterator[Place]:
        for module in self._modules:
            for node in ast.walk(module.tree):
                arguments = _arguments(node)
                if arguments:
                    texts = {plain(text) for one in arguments for text in self._texts(module, one)}
                    texts = {text for text in texts if " " in text and _letters(text) >= _FEWEST_LETTERS}
                    source = ast.unparse(node)
                    spans = tuple(_span(one) for one in arguments)
                    yield Place(module.file, getattr(node, "lineno", 0), source, frozenset(texts), spans)

    def _texts(self, module: _Module, node: ast.expr) -> list[str]:
        """What an expression may be as a text, as far as the source says."""
        if node in self._busy:
            return []
        self._busy.add(node)
        try:
            return self._resolved(module, node)
        finally:
            self._busy.discard(node)

    def _resolved(self, module: _Module, node: ast.expr) -> list[str]:
        match node:
            case ast.Constant(value=str(text)):
                return [_FORMAT.sub("…", _PRINTF.sub("…", text)).replace("%%", "%")]
            case ast.JoinedStr(values=values):
                parts = [str(one.value) if isinstance(one, ast.Constant) else "…" for one in values]
                text = "".join(parts)
                return [text] if _letters(text) >= _WRAPPER_LETTERS else [text, *self._inside(module, values)]
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                ends = self._texts(module, right) or ["…"]
                return [begin + end for begin in self._texts(module, left) or ["…"] for end in ends]
            case ast.BinOp(op=ast.Mod(), left=left):
                return self._texts(module, left)
            case ast.BinOp(op=ast.Mult(), left=left):
                return [*self._texts(module, left), ""]
            case ast.IfExp(body=body, orelse=orelse):
                return self._texts(module, body) + self._texts(module, orelse)
            case ast.BoolOp(values=values):
                return [text for one in values for text in self._texts(module, one)]
            case ast.Name(id=name):
                return self._named(module, node, name)
            case ast.Subscript(value=ast.Name(id=name)):
                return self._table(module, name)
            case ast.Attribute(attr=name) if name not in _PASSED_ON:
                return self._returned(name) + self._set(module, name)
            case ast.Starred(value=value):
                return self._texts(module, value)
            case ast.Call(func=ast.Attribute(value=value, attr="format" | "get"), args=arguments):
                # A table's `get` has what is taken where it lacks something behind the key.
                return self._texts(module, value) + [text for one in arguments[1:] for text in self._texts(module, one)]
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name not in _PASSED_ON:
                return self._returned(name)
        return []

    def _inside(self, module: _Module, values: list[ast.expr]) -> list[str]:
        """What a text may be that is little else than others."""
        return [
            text for one in values if isinstance(one, ast.FormattedValue) for text in self._texts(module, one.value)
        ]

    def _named(self, module: _Module, node: ast.AST, name: str) -> list[str]:
        for scope in module.scopes(node):
            values = [value for target, value in _assignments(scope) if target == name]
            texts = [text for value in values for text in self._texts(module, value)]
            if texts:
                return texts
        found = self._table(module, name) or self._given(module, node, name)
        if not found and name.isupper():  # a constant of another module
            values = [value for other in self._modules for target, value in _assignments(other.tree) if target == name]
            found = [text for value in values for text in self._texts(module, value)]
        return found

    def _set(self, module: _Module, name: str) -> list[str]:
        """What an attribute is set to in a module."""
        found = []
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                found += self._texts(module, node.value) if node.targets[0].attr == name else []
        return found

    def _given(self, module: _Module, node: ast.AST, name: str) -> list[str]:
        """What the callers of the function around a node give for its parameter: those of its module, or all of them
        where no other function has its name."""
        for scope in module.scopes(node):
            if not isinstance(scope, ast.FunctionDef) or name not in [one.arg for one in scope.args.args]:
                continue
            names = [one.arg for one in scope.args.args]
            at = names.index(name) - (names[0] == "self")
            others = self._modules if len(self._functions[scope.name]) == 1 else [module]
            return [
                text for other in others for one in _calls(other, scope.name) for text in self._at(other, one, at, name)
            ]
        return []

    def _at(self, module: _Module, call: ast.Call, at: int, name: str) -> list[str]:
        named = [keyword.value for keyword in call.keywords if keyword.arg == name]
        return [text for one in named or call.args[at : at + 1] for text in self._texts(module, one)]

    def _table(self, module: _Module, name: str) -> list[str]:
        """The texts in a dictionary of the module."""
        for target, value in _assignments(module.tree):
            if target == name and isinstance(value, ast.Dict):
                inner = [one for entry in value.values for one in ast.walk(entry)]
                return [text for one in inner if isinstance(one, ast.Constant) for text in self._texts(module, one)]
        return []

    def _returned(self, name: str) -> list[str]:
        found = []
        for module, function in self._functions.get(name, []):
            if ast.unparse(function.returns) == "str" if function.returns is not None else False:
                for node in ast.walk(function):
                    if isinstance(node, ast.Return) and node.value is not None:
                        found += self._texts(module, node.value)
        return found


def _span(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    if isinstance(node, ast.Starred):
        node = node.value
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def _calls(module: _Module, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
            yield node


def _assignments(scope: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(names)
                for one, value in zip(names, values, strict=False):
                    if isinstance(one, ast.Name):
                        yield one.id, value
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value


def _arguments(node: ast.AST) -> list[ast.expr]:
    """The expressions that are the message of a statement or call; none where it makes no message."""
    if isinstance(node, ast.Raise):
        if isinstance(node.exc, ast.Call) and ast.unparse(node.exc.func) != "AssertionError":  # of what cannot be
            return node.exc.args[:2] if ast.unparse(node.exc.func) in ("type(error)", "OSError") else node.exc.args[:1]
        return []
    if not isinstance(node, ast.Call):
        return []
    name = ast.unparse(node.func)
    if name.endswith(".set_exception") and isinstance(node.args[0], ast.Call):
        return node.args[0].args[:1]
    if name == "Row":  # of the profiler's table of states
        return [keyword.value for keyword in node.keywords if keyword.arg in ("refusal", "warning")]
    last = name.rpartition(".")[2]
    if name.startswith(("log.", "logging.")) and last in _LEVELS:
        wrapper = isinstance(node.args[0], ast.Constant) and len(str(node.args[0].value)) < 20
        return node.args if wrapper else node.args[:1]
    if last == "print" and any(keyword.arg == "file" for keyword in node.keywords):
        return node.args
    at = _TEXT_AT.get(name, _TEXT_AT.get(last, _TEXT_AT.get("." * ("." in name) + last)))
    if at is not None and node.args and isinstance(node.args[0], ast.Starred):
        return node.args[:1]
    return [node.args[at]] if at is not None and len(node.args) > at else []

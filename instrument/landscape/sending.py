"""A user's function for another process.

What stands in a script or a notebook is sent as it is, for a worker does not run the script again: the function, and
what of the script's own names it and its classes refer to. MindSpore compiles a method by its text and looks its names
up in the module that it says it is of, so the names are put into the worker's main module.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

_MAIN = "__main__"
#: Names that were put into this process's main module.
_put: set[str] = set()


def pickled(callback: Callable[[], Any]) -> bytes:
    """The function for another process.

    Raises:
        TypeError: it refers to something that cannot be sent.
    """
    import dill

    try:
        data: bytes = dill.dumps((callback, _names(callback)), recurse=True)
    except Exception as error:  # whatever dill stumbles over, the callback is what is wrong
        raise TypeError(
            f"callback_fn cannot be sent to another process ({type(error).__name__}: {error}). Make network and "
            "dataset inside of it, or compute in this process."
        ) from error
    return data


def unpickled(data: bytes) -> Callable[[], Any]:
    """The function in this process, whose main module has the names that it needs."""
    import dill

    callback, names = dill.loads(data)
    main = vars(sys.modules[_MAIN])
    for name, value in names.items():
        if name in _put or name not in main:  # an executor's worker may have had those of an earlier call
            main[name] = value
            _put.add(name)
    found: Callable[[], Any] = callback
    return found


def _names(callback: Any) -> dict[str, Any]:
    """What of the main module's names is needed, directly or by what is needed."""
    main = vars(sys.modules[_MAIN])
    found: dict[str, Any] = {}
    seen: set[int] = set()  # a method encloses its class
    waiting = [callback]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or not (getattr(value, "__module__", None) == _MAIN or _encloses_main(value)):
            continue
        seen.add(id(value))
        waiting += _inside(value)
        for name in _used(value.__code__) if isinstance(value, FunctionType) else ():
            if name in main and name not in found and not name.startswith("__"):
                found[name] = main[name]
                waiting.append(main[name])
    return found


def _inside(value: Any) -> Iterator[Any]:
    """What a function encloses; the methods and bases of a class."""
    if isinstance(value, FunctionType):
        yield from map(_content, value.__closure__ or ())
    elif isinstance(value, type):
        yield from value.__bases__
        for member in vars(value).values():
            yield inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", None) or member))


def _encloses_main(value: Any) -> bool:
    return isinstance(value, FunctionType) and value.__globals__ is vars(sys.modules[_MAIN])


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty yet
        return None


def _used(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _used(constant)

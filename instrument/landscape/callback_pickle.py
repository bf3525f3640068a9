"""Pickle the user's function for another process.

A worker does not run the script or the notebook again, so the function is sent with the names of the main module that
it and its classes refer to. MindSpore compiles a method from its source and looks its names up in the module that the
method belongs to, so the names are put into the worker's main module.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from instrument.landscape.model_parts import Callback

_MAIN = "__main__"
#: Names that were put into this process's main module.
_added_names: set[str] = set()


def pickled(callback: Callback) -> bytes:
    """Return the function and the names that it needs as bytes.

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


def unpickled(data: bytes) -> Callback:
    """Return the function, and put the names that it needs into this process's main module."""
    import dill

    callback, names = dill.loads(data)
    main = vars(sys.modules[_MAIN])
    for name, value in names.items():
        if name in _added_names or name not in main:  # an executor's worker may have had those of an earlier call
            main[name] = value
            _added_names.add(name)
    function: Callback = callback
    return function


def _names(callback: Any) -> dict[str, Any]:
    """Return the objects of the main module that a function needs, directly or through others, by name."""
    main = vars(sys.modules[_MAIN])
    needed: dict[str, Any] = {}
    seen: set[int] = set()  # a method encloses its class
    waiting = [callback]
    while waiting:
        value = waiting.pop()
        is_of_main = getattr(value, "__module__", None) == _MAIN or getattr(value, "__globals__", None) is main
        if id(value) in seen or not is_of_main:
            continue
        seen.add(id(value))
        waiting += _inside(value)
        for name in _used(value.__code__) if isinstance(value, FunctionType) else ():
            if name in main and name not in needed and not name.startswith("__"):
                needed[name] = main[name]
                waiting.append(main[name])
    return needed


def _inside(value: Any) -> Iterator[Any]:
    """Yield what a function encloses, or the methods and bases of a class."""
    if isinstance(value, FunctionType):
        yield from map(_content, value.__closure__ or ())
    elif isinstance(value, type):
        yield from value.__bases__
        for member in vars(value).values():
            yield inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", None) or member))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty yet
        return None


def _used(code: CodeType) -> Iterator[str]:
    """Yield the names that a code object, or one inside it, refers to."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _used(constant)

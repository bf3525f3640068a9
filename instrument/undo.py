"""Undo what was done so far if a block ends by an exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

Arguments = ParamSpec("Arguments")


class UndoOnError(Generic[Arguments]):
    """Call a function if the block ends by an exception, also an interrupt from the keyboard; the exception goes on.

    contextlib.ExitStack does the same, but its import takes a part of a worker's start.
    """

    def __init__(
        self, undo: Callable[Arguments, object], *arguments: Arguments.args, **options: Arguments.kwargs
    ) -> None:
        self._undo, self._arguments, self._options = undo, arguments, options

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self._undo(*self._arguments, **self._options)

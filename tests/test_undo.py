"""What was done before an exception is undone, and the exception goes on."""

from __future__ import annotations

import pytest

from instrument.undo import UndoOnError


def test_a_block_that_ends_well_is_not_undone() -> None:
    """Its function is not called."""
    done = list[int]()
    with UndoOnError(done.append, 1):
        pass
    assert done == []


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_a_block_that_raises_is_undone(error: BaseException) -> None:
    """By the innermost function first; the exception is the same."""
    done = list[int]()
    with pytest.raises(type(error)) as raised, UndoOnError(done.append, 1), UndoOnError(done.insert, 0, 2):
        raise error
    assert raised.value is error
    assert done == [2, 1]


def test_a_return_is_no_exception() -> None:
    """A function may return out of the block."""
    done = list[int]()

    def give() -> int:
        with UndoOnError(done.append, 1):
            return 5

    assert (give(), done) == (5, [])

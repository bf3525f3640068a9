"""What open recorders do in a forked child: nothing of what their parent records is any business of it.

A hook tells them, so that nobody has to ask the system for the process's number again and again.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    def abandon(self) -> None:
        """Called in a forked child, before anything else runs there."""


_open: weakref.WeakSet[Forkable] = weakref.WeakSet()


def register(object_: Forkable) -> None:
    """Call its `abandon` in each child that this process forks, until `unregister` or its end."""
    _open.add(object_)


def unregister(object_: Forkable) -> None:
    _open.discard(object_)


def _abandon_all() -> None:
    for object_ in list(_open):
        object_.abandon()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)

"""Which events are given up: those over which workers die again and again."""

from __future__ import annotations

#: An event is given up when three workers in a row crashed over it, or thirty were killed: a crash is most likely the
#: event's own fault, a SIGKILL is not, unless the system runs out of memory each time.
_FATAL, _CRASH, _KILL = 30, 10, 1


class Blame:
    """What events have been blamed for, by their sequence numbers, until they are committed."""

    def __init__(self) -> None:
        self._sums: dict[int, int] = {}

    @property
    def given_up(self) -> list[int]:
        return [sequence for sequence, blame in self._sums.items() if blame >= _FATAL]

    def lay(self, sequence: int, was_killed: bool, committed: int) -> bool:
        """A worker died of this event, or of none for 0; whether giving the event up does not help either."""
        self._sums = {event: blame for event, blame in self._sums.items() if event > committed}
        if not sequence:
            return False
        self._sums[sequence] = self._sums.get(sequence, 0) + (_KILL if was_killed else _CRASH)
        return self._sums[sequence] >= 2 * _FATAL

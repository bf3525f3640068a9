"""Find the records over which workers die again and again."""

from __future__ import annotations

#: A record that was in hand at so many deaths in a row is left out. Crashes and kills cannot be told apart: a worker is
#: no child of its trainer.
DEATHS_OF_A_RECORD = 20
#: So many deaths in a row without anything being committed end the use of workers.
DEATHS_WITHOUT_PROGRESS = 40


class Poison:
    """Counts the deaths of workers by the sequence number that they had in hand, until it is committed."""

    def __init__(self) -> None:
        self._deaths: dict[int, int] = {}
        self._committed = -1
        self._in_a_row = 0

    @property
    def is_hopeless(self) -> bool:
        """True when workers die without ever committing anything."""
        return self._in_a_row >= DEATHS_WITHOUT_PROGRESS

    @property
    def deaths_in_a_row(self) -> int:
        """Deaths since something was committed last."""
        return self._in_a_row

    def left_out(self, deaths: int = DEATHS_OF_A_RECORD) -> list[int]:
        """Return the sequence numbers that were in hand at so many deaths."""
        return [sequence for sequence, count in self._deaths.items() if count >= deaths]

    @property
    def last_suspect(self) -> int:
        """The highest number that was in hand at a death, 0 for none: up to there, records are committed singly."""
        return max(self._deaths, default=0)

    def record_death(self, in_hand: int, committed: int) -> None:
        """Count a death over a record (0: none) when everything up to `committed` had been committed."""
        self._in_a_row = self._in_a_row + 1 if committed == self._committed else 1
        self._committed = committed
        self._deaths = {sequence: count for sequence, count in self._deaths.items() if sequence > committed}
        if in_hand:
            self._deaths[in_hand] = self._deaths.get(in_hand, 0) + 1

"""JSON files that may be cut off, damaged or too large to be held as objects.

A list is read element by element through a window of text: memory does not grow with the file, a damaged element costs
itself, and a cut file its last element. Numbers with a fraction stay text, so that times keep their digits.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import TypeAlias

from instrument.trace.text import Buffer, Losses, decode

#: A value out of a JSON file.
Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

#: An element is at most this long; text is read ahead by as much.
LONGEST_ELEMENT = 1 << 18
_READ = 1 << 20
#: An error says in which line it is, for which Python looks through all of the window: of a file that is nothing but
#: errors only this many characters are worth that, and this many for each of its bytes.
_ERRORS_COST = 1 << 31
_ERRORS_COST_PER_BYTE = 64
#: `strict=False`: raw control characters inside strings do occur.
_DECODER = json.JSONDecoder(strict=False, parse_float=str, parse_constant=str)
_OBJECT_DECODER = json.JSONDecoder(strict=False)
_FILLING = re.compile(r"[\s,]*")
_START = re.compile(r"[\[{]")


class _Window:
    """The text of a buffer from `pos` on, with at least one whole element in sight."""

    def __init__(self, data: Buffer, start: int, losses: Losses) -> None:
        self._data, self._next, self._losses = data, start, losses
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.text, self.pos = "", 0
        self._cost = _ERRORS_COST + _ERRORS_COST_PER_BYTE * len(data)

    def fill(self) -> None:
        """Read on where less than an element is ahead."""
        while len(self.text) - self.pos < LONGEST_ELEMENT and self._next < len(self._data):
            block = bytes(self._data[self._next : self._next + _READ])
            self._next += len(block)
            more = self._decoder.decode(block, final=self._next >= len(self._data))
            self._losses.add("bytes that are no UTF-8", more.count("\ufffd"))
            self.text, self.pos = self.text[self.pos :] + more, 0

    def is_at_end(self) -> bool:
        return self.pos >= len(self.text) and self._next >= len(self._data)

    def skip_to(self, pos: int) -> int:
        """Go on to the next start of an element at or behind `pos`; return how many characters are left out."""
        self._cost -= self.pos
        match = _START.search(self.text, pos)
        start, self.pos = self.pos, match.start() if match else len(self.text)
        return self.pos - start

    def is_hopeless(self) -> bool:
        """Return True if so much is damaged that going on would take for ever."""
        return self._cost < 0

    def left(self) -> int:
        """Return how many bytes are left, or nearly."""
        return len(self.text) - self.pos + len(self._data) - self._next


def elements(data: Buffer, losses: Losses, key: str = "") -> Iterator[Json]:
    """Yield the elements of the list that `data` is, or of its list `key`; damaged ones are left out and counted."""
    start = _start_of_list(data, key)
    if start is None:
        losses.add(f"no list{f' named {key!r}' if key else ''}: bytes not read", len(data))
        return
    window = _Window(data, start, losses)
    while True:
        window.fill()
        window.pos = _FILLING.match(window.text, window.pos).end()  # type: ignore[union-attr] # it matches nothing, too
        if window.is_at_end():
            losses.add("the list has no end: it is cut off")
            return
        if window.is_hopeless():
            losses.add("bytes not read behind too many damaged elements", window.left())
            return
        if window.pos >= len(window.text):
            continue
        if window.text[window.pos] == "]" and _ends(window):
            return
        yield from _element(window, losses)


def _element(window: _Window, losses: Losses) -> Iterator[Json]:
    """Yield the element at the window's position, if it is one; the window is behind it afterwards."""
    try:
        element, window.pos = _DECODER.raw_decode(window.text, window.pos)
    except json.JSONDecodeError as error:
        losses.add("bytes of damaged elements", window.skip_to(max(error.pos, window.pos + 1)))
    except (RecursionError, ValueError):  # nested too deep, or a number with thousands of digits
        end = window.text.find("}", window.pos)
        losses.add("bytes of damaged elements", window.skip_to(end if end >= 0 else len(window.text)))
    else:
        yield element


def _ends(window: _Window) -> bool:
    """Return True if the bracket here ends the list: behind one of a damaged element more elements follow."""
    rest = window.text[window.pos + 1 : window.pos + 64].lstrip()
    return not rest or rest[0] == "}" or re.match(r',\s*"', rest) is not None


def _start_of_list(data: Buffer, key: str) -> int | None:
    match = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[").match(data)
    if match is None and key:
        match = re.compile(rb'"' + re.escape(key.encode()) + rb'"\s*:\s*\[').search(data)
    return match.end() if match else None


def mapping(data: Buffer, losses: Losses) -> dict[str, Json]:
    """Return the one object that `data` is; an empty one, with all its bytes counted, where it is none."""
    try:
        value: Json = _OBJECT_DECODER.decode(decode(bytes(data)).lstrip("\ufeff"))
    except (ValueError, RecursionError):
        losses.add("no JSON: bytes not read", len(data))
        return {}
    if not isinstance(value, dict):
        losses.add("no JSON object: bytes not read", len(data))
        return {}
    return value

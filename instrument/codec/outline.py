"""Locate the values in an event's payload without decoding them; the scanner of MindSpore's dialect.

Most events of a file are alike: they differ in their time, their step and their numbers only. An outline says which
bytes those are, so a reader scans one such payload and reads the same bytes of all others as columns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from instrument.codec import event, graph, histogram, image, landscape, lifecycle, scalar, tensor, text, trace, wire
from instrument.errors import CorruptMessage
from instrument.values import TRACE_KIND, Record, Scalar

Decode = Callable[[memoryview], Any]
#: Fields of an event about the recorder: kind, and its decoder.
LIFECYCLE: dict[int, tuple[str, Decode]] = {
    lifecycle.START: ("start", lifecycle.decode_start), lifecycle.END: ("end", lifecycle.decode_end),
}  # fmt: skip
_TAG = 1
_VALUE_KEY = _TAG_KEY = _TAG << 3 | wire.LENGTH_DELIMITED
#: A value with an empty tag and a number of four bytes.
_LEAST_PLAIN = 9
#: A summary may be a tensor of gigabytes: no more of it is copied to look for plain numbers.
_PART_BYTES = 1 << 15
#: The place of a value takes more memory than a small one does in a file.
MOST_VALUES = 50_000


class Place(NamedTuple):
    """A value: its encoded form is `payload[start:end]`, and `decode` makes it of those bytes.

    `decode` is None for a plain number, which is a float32 where it has four bytes and a float64 where it has eight.
    """

    kind: str
    tag: str
    start: int
    end: int
    decode: Decode | None = None


@dataclass
class Outline:
    """A payload. The time is at `wall_time_at`, the step's varint at `step_at` (start, end); None where absent.

    `places` are its values, `problems` say why others were left out. `varying` are the spans (start, end) of its
    numbers, all of them of fixed size. `is_regular` says that all values are plain numbers: payloads that agree with
    this one everywhere but in `varying`, the time and the step, all steps being of one size, have the same outline.
    """

    step: int = 0
    wall_time: float = 0.0
    wall_time_at: int | None = None
    step_at: tuple[int, int] | None = None
    places: list[Place] = field(default_factory=list)
    varying: list[tuple[int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_regular: bool = True

    def take_head(self, data: memoryview, span: wire.Span) -> None:
        """Take the time (field 1) or the step (field 2), which both dialects have; the last one counts."""
        if span[0] == 1:
            start, _ = wire.expect(span, wire.FIXED64)
            self.wall_time, self.wall_time_at = wire.double_at(data, start), start
        else:
            self.step_at = wire.expect(span, wire.VARINT)
            self.step = wire.signed(wire.read_varint(data, self.step_at[0])[0])

    def number(self, tag: str, start: int, end: int) -> None:
        """Note a plain number."""
        self.places.append(Place("scalar", tag, start, end))
        self.varying.append((start, end))

    def other(self, kind: str, tag: str, start: int, end: int, decode: Decode) -> None:
        """Note a value of any other form."""
        self.places.append(Place(kind, tag, start, end, decode))
        self.is_regular = False

    def each_value(
        self, data: memoryview, start: int, end: int, take: Callable[[memoryview, int, int], None], plain_key: int
    ) -> None:
        """Hand the values of a summary to `take`; what is none is a problem, and the others are still taken.

        The key of the field of plain numbers is `plain_key`, a byte.
        """
        start = self._take_plain(data, start, end, plain_key)
        try:
            for span in wire.spans(data, start, end):
                if len(self.places) >= MOST_VALUES:
                    raise CorruptMessage(f"an event holds more than {MOST_VALUES} values; the others are left out")
                if span[0] == 1:
                    self._take_value(data, span, take)
        except CorruptMessage as error:
            self.problem(error)

    def _take_plain(self, data: memoryview, start: int, end: int, key: int) -> int:
        """Take the values at the beginning that are a short tag and one number; return where the next one begins.

        An event may have thousands, and going through them field by field takes four times as long.
        """
        taken = -1
        while taken:
            taken = self._take_plain_part(bytes(data[start : min(end, start + _PART_BYTES)]), start, key)
            start += taken
        return start

    def _take_plain_part(self, part: bytes, start: int, key: int) -> int:
        """Take those in a part of the payload, which begins at `start`; return how many bytes they have."""
        size, position = len(part), 0
        while position + _LEAST_PLAIN <= size and len(self.places) < MOST_VALUES:
            number = position + part[position + 3] + 5
            following = number + 4
            length = following - position - 2
            if (
                following > size
                or length > 0x7F
                or part[position + 1] != length
                or part[position] != _VALUE_KEY
                or part[position + 2] != _TAG_KEY
                or part[number - 1] != key
            ):
                break
            tag = str(part[position + 4 : number - 1], "utf-8", "surrogateescape")
            self.places.append(Place("scalar", tag, start + number, start + following))
            self.varying.append((start + number, start + following))
            position = following
        return position

    def _take_value(self, data: memoryview, span: wire.Span, take: Callable[[memoryview, int, int], None]) -> None:
        try:
            take(data, *wire.expect(span, wire.LENGTH_DELIMITED))
        except CorruptMessage as error:
            self.problem(error)

    def problem(self, error: CorruptMessage) -> None:
        """Note why a value is left out."""
        self.problems.append(str(error))
        self.is_regular = False


def mindspore(data: memoryview) -> Outline:
    """Return the outline of an event of MindSpore's dialect.

    Raises:
        CorruptMessage: the payload is no event.
    """
    outline = Outline()
    for span in wire.spans(data, 0, len(data)):
        number = span[0]
        if number in (1, 2):
            outline.take_head(data, span)
        elif number == event.SUMMARY:
            start, end = wire.expect(span, wire.LENGTH_DELIMITED)
            outline.each_value(data, start, end, functools.partial(take_value, outline), PLAIN_KEY)
        elif number in OWN:
            start, end = wire.expect(span, wire.LENGTH_DELIMITED)
            kind, tag_of, decode = OWN[number]
            outline.other(kind, tag_of(data, start, end), start, end, decode)
    return outline


def _graph_name(data: memoryview, start: int, end: int) -> str:
    for span in wire.spans(data, start, end):
        if span[0] == 2:
            return wire.text_at(data, *wire.expect(span, wire.LENGTH_DELIMITED))
    return ""


def _no_name(_data: memoryview, _start: int, _end: int) -> str:
    return ""


#: Fields of an event that are values of their own: kind, where its tag comes from, and what decodes it.
OWN: dict[int, tuple[str, Callable[[memoryview, int, int], str], Decode]] = {
    event.GRAPH: ("graph", _graph_name, graph.decode),
    event.TRACE: (TRACE_KIND, _no_name, trace.decode),
    event.GAP: ("gap", _no_name, lifecycle.decode_gap),
    **{number: (kind, _no_name, decode) for number, (kind, decode) in LIFECYCLE.items()},
}
#: The key of the number of a scalar.
PLAIN_KEY = scalar.NUMBER << 3 | wire.FIXED32
#: Fields of a value that is no scalar: kind, and what decodes it.
_VALUES: dict[int, tuple[str, Decode]] = {
    event.VALUE_NUMBERS[kind]: (kind, decode)
    for kind, decode in (
        ("image", image.decode), ("tensor", tensor.decode), ("histogram", histogram.decode),
        ("landscape", landscape.decode), ("text", text.decode),
    )
}  # fmt: skip


def take_value(outline: Outline, data: memoryview, start: int, end: int) -> None:
    """Take the value of a summary that stands in `data[start:end]`.

    Raises:
        CorruptMessage: it is none.
    """
    tag: tuple[int, int] | None = None
    single: tuple[int, int] | None = None
    exact: tuple[int, int] | None = None
    other: tuple[str, Decode] | None = None
    content = (0, 0)
    for span in wire.spans(data, start, end):
        number = span[0]
        if number == _TAG:
            tag = wire.expect(span, wire.LENGTH_DELIMITED)
        elif number == scalar.NUMBER:
            single = wire.expect(span, wire.FIXED32)
        elif number == scalar.EXACT_NUMBER:
            exact = wire.expect(span, wire.FIXED64)
        elif number in _VALUES:
            other, content = _VALUES[number], wire.expect(span, wire.LENGTH_DELIMITED)
    if tag is None:
        raise CorruptMessage("a summary value has no tag")
    if single is not None:
        outline.number(wire.text_at(data, *tag), *(single if exact is None else exact))
        if exact is not None:
            outline.varying.append(single)
    elif other is not None:
        kind, decode = other
        outline.other(kind, wire.text_at(data, *tag), *content, decode)


def records(payload: memoryview) -> Iterator[Record]:
    """Iterate over the values of an event of MindSpore's dialect.

    Raises:
        CorruptMessage: the payload is no event, or one of its values is damaged.
    """
    outline = mindspore(payload)
    for place in outline.places:
        if place.kind in ("start", "end"):
            continue
        content = payload[place.start : place.end]
        value = place.decode(content) if place.decode is not None else Scalar(wire.number_in(content))
        yield Record(outline.step, outline.wall_time, place.kind, place.tag, value)
    if outline.problems:
        raise CorruptMessage(outline.problems[0])

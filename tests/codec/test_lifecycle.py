"""Start and end of a recorder: bytes and back, and what is refused."""

from __future__ import annotations

import pytest

from instrument.codec import event, lifecycle, tensorboard_event, tensorboard_outline, wire
from instrument.codec.outline import mindspore
from instrument.errors import CorruptMessage
from instrument.values import ENDED, FAILED, FINISHED, End, Start

START = Start("0123456789abcdef", 7, {"events.out.events.summary.1.0.h\udcffost_MS": 2**40, "": 0})


@pytest.mark.parametrize("start", [START, Start("x", 1, {})])
def test_a_start_comes_back(start: Start) -> None:
    """Id, number, and the files with their sizes, whatever bytes their names have."""
    payload = memoryview(lifecycle.encode_start(start))
    assert lifecycle.start_in(payload) == start
    assert lifecycle.end_in(payload) is None


@pytest.mark.parametrize("end", [End(FINISHED), End(FAILED, "ValueError: \udcff é"), End(ENDED)])
def test_an_end_comes_back(end: End) -> None:
    """Status and reason; what is no text is escaped."""
    (payload,) = lifecycle.encode_end(end, -3, 12.5)
    assert lifecycle.end_in(memoryview(payload)) == End(end.status, end.reason.replace("\udcff", "\\udcff"))


def test_a_long_reason_is_cut() -> None:
    """To 300 bytes of whole characters: an end is small, so that it is found without reading the file."""
    (payload,) = lifecycle.encode_end(End(FAILED, "a" + "é" * 10_000), 2**62, 1e9)
    end = lifecycle.end_in(memoryview(payload))
    assert end == End(FAILED, "a" + "é" * 149)
    assert len(payload) < 400


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "a start with the id '' and the number 0"),
        (wire.delimited(1, b"id"), "the number 0"),
        (wire.delimited(1, b"id") + wire.integer(2, -1), "the number -1"),
        (wire.delimited(1, b"id") + wire.integer(2, 1) + wire.delimited(3, b"") * 10_001, "more than 10000 files"),
        (b"\x0a\x7f", "field"),
    ],
)
def test_what_is_no_start_is_refused(content: bytes, reason: str) -> None:
    """Without an id or a number, with too many files, or cut off."""
    with pytest.raises(CorruptMessage) as error:
        lifecycle.start_in(memoryview(wire.delimited(lifecycle.START, content)))
    assert reason in str(error.value) or "field" in reason


@pytest.mark.parametrize("content", [b"", wire.integer(1, 0), wire.integer(1, 9)])
def test_an_unknown_status_is_refused(content: bytes) -> None:
    """It is damage, and not a run that ended well."""
    with pytest.raises(CorruptMessage, match="an end with the status"):
        lifecycle.end_in(memoryview(wire.delimited(lifecycle.END, content)))


def test_both_dialects_have_them() -> None:
    """Beside the version, or alone, they are no value of any series."""
    for version, outline in (
        (event.encode_version(1.0), mindspore),
        (
            tensorboard_event.encode_version(1.0),
            lambda data: tensorboard_outline.outline(data, tensorboard_outline.Plugins()),
        ),
    ):
        payload = memoryview(b"".join([*version, lifecycle.encode_start(START)]))
        (place,) = outline(payload).places
        assert (place.kind, place.tag) == ("start", "")
        assert place.decode is not None
        assert place.decode(payload[place.start : place.end]) == START
        (place,) = outline(memoryview(lifecycle.encode_end(End(ENDED), 1, 2.0)[0])).places
        assert place.kind == "end"

"""Values that no writer of ours makes, in whole frames: each is told when it is decoded, and the others are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from instrument.codec import tensorboard as tb
from instrument.codec import wire
from instrument.errors import CorruptMessage
from instrument.runs.run import read_run
from tests.docs.test_happen_reading import _GRID
from tests.runs.hostile import SUMMARY, TENSORBOARD, one, tensorboard, value

_HALF = bytes(17 << 20)
_NODE = wire.delimited(1, wire.delimited(1, b"x" * (1 << 20) + b"/"))
#: Kind -> the file's name, what is in it, and what is said.
VALUES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "tensor": (
        SUMMARY,
        lambda: value(8, wire.integer(2, 11) + 2 * wire.delimited(3, _HALF)),
        "a tensor's values stand in 2 pieces of more than 33554432 bytes",
    ),
    "text": (
        SUMMARY,
        lambda: value(102, wire.delimited(1, b"a") + wire.integer(2, 3)),
        "texts of dims (3,) are 1 elements",
    ),
    "tensor in pieces": (
        TENSORBOARD,
        lambda: tensorboard(tb.DT_FLOAT, [1], 2 * wire.delimited(tb.FLOAT_VAL, _HALF[: 9 << 20])),
        "more than 16777216 bytes of a tensor do not stand in one piece",
    ),
    "graph": (
        TENSORBOARD,
        lambda: one(wire.delimited(tb.GRAPH_DEF, 20 * _NODE)),
        f"a graph of {20 * len(_NODE)} bytes has too many nodes for its size",
    ),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_that_is_none(tmp_path: Path, kind: str) -> None:
    """The series is there; its point says what is wrong with it, and then `damage` has it too."""
    name, content, words = VALUES[kind]
    (tmp_path / name).write_bytes(content())
    run = read_run(tmp_path)
    kind = kind.partition(" ")[0]
    points = run.points(kind, run.tags()[kind][0])
    with pytest.raises(CorruptMessage) as error:
        points.decode(0)
    assert words in str(error.value)


def test_details_that_are_no_object(tmp_path: Path) -> None:
    """The landscape is left out, and told as damage."""
    (tmp_path / SUMMARY).write_bytes(value(10, _GRID + wire.delimited(100, b"[]")))
    run = read_run(tmp_path)
    assert run.landscapes == []
    (damage,) = run.damage
    assert damage.reason == "landscape 't': a landscape's details are no JSON object"

"""Landscapes travel as the serialised message that they are."""

from __future__ import annotations

from instrument.codec import landscape
from instrument.values import Landscape


def test_the_message_is_the_content() -> None:
    """Neither direction changes a byte."""
    data = bytes(range(256))
    assert landscape.encode(data) == [data]
    assert landscape.decode(memoryview(data)) == Landscape(data)

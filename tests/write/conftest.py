"""Sinks in a fresh directory, closed at the end of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from instrument.write.factory import open_sink
from instrument.write.sink import Sink, Target
from tests.write.build import workers

OpenSink = Callable[..., Sink]


@pytest.fixture
def sink_at(tmp_path: Path) -> Iterator[OpenSink]:
    """Open a sink in the test's directory: `sink_at(workers, ring_bytes=..., drop_when_full=..., **target options)`.

    After the test all of them are closed, and no worker may be left.
    """
    sinks: list[Sink] = []

    def open_one(count: int, **options: Any) -> Sink:
        own = {name: options.pop(name) for name in ("ring_bytes", "drop_when_full") if name in options}
        sinks.append(open_sink(Target(str(options.pop("directory", tmp_path)), **options), count, **own))
        return sinks[-1]

    yield open_one
    for sink in sinks:
        sink.close()
    assert workers(tmp_path) == []

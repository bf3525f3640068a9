"""Event files with known contents, made with the package's own encoders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from instrument.codec import event, lineage
from instrument.eventfile import frame
from instrument.values import Event, Item

SECONDS = 1_700_000_000


def framed(payload: list[bytes | memoryview]) -> bytes:
    return b"".join(frame.pack(payload))


def encoded(events: Iterable[Event]) -> list[bytes]:
    """The frames of a file: its version, then one or more for each event."""
    frames = [framed(event.encode_version(float(SECONDS)))]
    frames += [framed(payload) for one in events for payload in event.encode(one)]
    return frames


def write(
    directory: Path, events: Iterable[Event], seconds: int = SECONDS, device: int = 0, host: str = "host"
) -> Path:
    """Write a summary file and return its path; the directory is made when absent."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"events.out.events.summary.{seconds}.{device}.{host}_MS"
    path.write_bytes(b"".join(encoded(events)))
    return path


def write_lineage(
    directory: Path, messages: Iterable[tuple[str, bytes]], seconds: int = SECONDS, device: int = 0
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"events.out.events.summary.{seconds}.{device}.host_lineage"
    path.write_bytes(b"".join(framed(lineage.encode_event(kind, data, 1.0)) for kind, data in messages))
    return path


def item(kind: str, tag: str, value: float) -> Item:
    """An item of any kind that is an array or a number; `value` fills the array."""
    if kind == "scalar":
        return Item(kind, tag, value)
    shape = (1, 1, 2, 2) if kind == "image" else (4,)
    array = np.full(shape, value, np.uint8 if kind == "image" else np.float32)
    return Item(kind, tag, array, array.dtype.name)


def steps(kind: str, tag: str, numbers: Iterable[int], value: float, start: float, apart: float = 1.0) -> list[Event]:
    """One event a step, the first at the time `start`, the others `apart` seconds after each other."""
    return [Event.of(step, start + index * apart, (item(kind, tag, value),)) for index, step in enumerate(numbers)]

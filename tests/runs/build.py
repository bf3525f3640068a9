"""Event files with known contents, made with the package's own encoders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from instrument.codec import event, lifecycle, lineage
from instrument.eventfile import frame
from instrument.values import AnyItem, ArrayItem, End, Event, ScalarItem, Start

SECONDS = 1_700_000_000


def framed(payload: list[bytes | memoryview]) -> bytes:
    return b"".join(frame.pack(payload))


def encoded(events: Iterable[Event], start: Start | None = None, began: float = float(SECONDS)) -> list[bytes]:
    """The frames of a file: its version, with the start of its recorder, then one or more for each event."""
    frames = [framed([*event.encode_version(began), *([lifecycle.encode_start(start)] if start is not None else [])])]
    frames += [framed(payload) for one in events for payload in event.encode(one)]
    return frames


def write(
    directory: Path,
    events: Iterable[Event],
    seconds: int = SECONDS,
    device: int = 0,
    host: str = "host",
    start: Start | None = None,
    end: End | None = None,
) -> Path:
    """Write a summary file and return its path; the directory is made when absent.

    With a start its recorder began half a second before the first event.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"events.out.events.summary.{seconds}.{device}.{host}_MS"
    found = list(events)
    frames = encoded(found, start, found[0].wall_time - 0.5 if start is not None else float(SECONDS))
    if end is not None:
        frames.append(framed(lifecycle.encode_end(end, found[-1].step, found[-1].wall_time + 0.5)))
    path.write_bytes(b"".join(frames))
    return path


def write_lineage(
    directory: Path, messages: Iterable[tuple[str, bytes]], seconds: int = SECONDS, device: int = 0
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"events.out.events.summary.{seconds}.{device}.host_lineage"
    path.write_bytes(b"".join(framed(lineage.encode_event(kind, data, 1.0)) for kind, data in messages))
    return path


def item(kind: str, tag: str, value: float) -> AnyItem:
    """An item of any kind that is an array or a number; `value` fills the array."""
    if kind == "scalar":
        return ScalarItem(tag, value)
    shape = (1, 1, 2, 2) if kind == "image" else (4,)
    array = np.full(shape, value, np.uint8 if kind == "image" else np.float32)
    return ArrayItem(kind, tag, array, array.dtype.name)


def steps(kind: str, tag: str, numbers: Iterable[int], value: float, start: float, apart: float = 1.0) -> list[Event]:
    """One event a step, the first at the time `start`, the others `apart` seconds after each other."""
    return [Event.of(step, start + index * apart, (item(kind, tag, value),)) for index, step in enumerate(numbers)]

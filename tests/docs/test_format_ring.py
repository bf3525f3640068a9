"""docs/format.md says enough of ring files: a reader that was written from it finds what a killed recorder left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from instrument.codec.dialects import LAYOUTS
from instrument.events import ArrayItem, Event, MessageItem
from instrument.ringfile import header, locks, record
from tests.oracle import ring_files
from tests.ringfile.build import FILES, Recorder, lineage, scalar

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip


@pytest.mark.parametrize("dialect", sorted(LAYOUTS))
def test_events_that_no_file_has(tmp_path: Path, dialect: str) -> None:
    """Names, committed lengths, and every event behind them, out of two rings of which one went round its end."""
    recorder = Recorder(tmp_path, dialect, rings=2, ring_bytes=8192, export_directory="export_1")
    recorder.put(*(scalar(step) for step in range(39)))
    recorder.put(scalar(39), ring=1)
    recorder.pad(ring=1)
    recorder.commit(40)
    recorder.put(*(scalar(step) for step in range(40, 60)))
    recorder.put(lineage(60), ring=1)
    recorder.commit(5, releases=False)
    state = recorder.control.state
    ring = ring_files.read_ring(recorder.kill(), locks.boot_id())
    roles = LAYOUTS[dialect].roles
    assert ring.names == [FILES[role] for role in roles] + [""] * (4 - len(roles))
    assert (ring.lengths, ring.committed) == (state.lengths, 45)
    assert (ring.dialect, ring.export_directory, ring.damage) == (dialect, "export_1", [])
    assert [(event.number, event.step) for event in ring.events] == [(step + 1, step) for step in range(45, 61)]
    assert ring.events[0].scalars == {"loss": 45.0}
    assert [(item.kind, item.tag) for item in ring.events[-1].items] == [("custom_lineage_data", "info")]


def test_values_of_every_type(tmp_path: Path, rng: np.random.Generator) -> None:
    """Arrays of all types in both byte orders, messages, tags and aliases of any characters."""
    recorder = Recorder(tmp_path)
    arrays = {}
    for dtype in DTYPES:
        for order in "<>":
            array = (rng.integers(0, 2, (2, 3)) * 3).astype(np.dtype(dtype).newbyteorder(order))
            arrays[f"{dtype}{order}"] = array
    items = [ArrayItem("histogram", tag, array, tag[:-1]) for tag, array in arrays.items()]
    items += [ArrayItem("tensor", "b", np.ones(2, np.float32), "bfloat16"), MessageItem("gap", "", b"message")]
    aliases = {("tensor", "准"): "a\udcff"}
    recorder.put(Event(-3, 0.5, items, {"准确率": 1 / 3, "": -0.0}, aliases))
    (event,) = ring_files.read_ring(recorder.kill(), locks.boot_id()).events
    assert (event.step, event.wall_time, event.aliases) == (-3, 0.5, aliases)
    assert list(event.scalars.items()) == [("准确率", 1 / 3), ("", 0.0)]
    for item in event.items[:-2]:
        assert (item.kind, item.dtype, item.dims) == ("histogram", item.tag[:-1], [2, 3])
        assert item.value == arrays[item.tag].reshape(-1).tolist()
    assert (event.items[-2].dtype, event.items[-2].value) == ("bfloat16", [1.0, 1.0])
    assert event.items[-1].value == b"message"


def test_damage_and_missing_checksums(tmp_path: Path) -> None:
    """A damaged record is passed over; one without a checksum counts on a machine that runs on."""
    recorder = Recorder(tmp_path)
    recorder.put(scalar(1), scalar(2), scalar(3))
    recorder.put(Event(4, 4.0, [ArrayItem("tensor", "t", np.ones(5), "float64")]), sealed=False)
    recorder.memory[recorder.header.data_at + 128 + record.HEADER_BYTES] ^= 1
    path = recorder.kill()
    ring = ring_files.read_ring(path, locks.boot_id())
    assert [event.step for event in ring.events] == [1, 3, 4]
    assert ring.damage == [128]
    assert [event.step for event in ring_files.read_ring(path, bytes(range(16))).events] == [1, 3]


def test_offsets_of_the_page() -> None:
    """The page's offsets of the file's parts are those of the package."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
    assert header.slot_at(0) == 2048
    assert header.CONTROL_AT == 4096
    assert "| 4,096 | control words, 1,088 of 8 bytes |" in page

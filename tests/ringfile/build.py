"""Ring files as a recorder leaves them, made without one."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from instrument.codec.dialects import LAYOUTS
from instrument.eventfile import frame
from instrument.events import Event, MessageItem
from instrument.ringfile import commit, control, header, record
from instrument.ringfile.control import Control, State

RING_BYTES = 1 << 16
FILES = {
    "summary": "events.out.events.summary.1700000000.0.host_MS",
    "lineage": "events.out.events.summary.1700000000.0.host_lineage",
    "scalars": "events.out.tfevents.1700000000.host.5.0",
    "others": "events.out.tfevents.1700000000.host.5.1",
}


def scalar(step: int, tag: str = "loss") -> Event:
    return Event(step, 1_700_000_000.0 + step, (), {tag: float(step)})


def lineage(step: int) -> Event:
    from instrument.codec import lineage as codec

    item = MessageItem("custom_lineage_data", "info", codec.custom_message({"step": step}))
    return Event(step, 1_700_000_000.0 + step, [item], {"loss": float(step)})


class Recorder:
    """Puts events into the rings of a file, and commits the first of them to event files, as trainer and worker do."""

    def __init__(
        self, directory: Path, dialect: str = "mindspore", rings: int = 1, ring_bytes: int = RING_BYTES,
        max_file_bytes: int | None = None, export_directory: str = "", **changed: object,
    ) -> None:  # fmt: skip
        self.directory, self.layout = directory, LAYOUTS[dialect]
        made = header.of_this_process(dialect, rings, ring_bytes, max_file_bytes, export_directory)
        self.header = made._replace(**changed)  # type: ignore[arg-type]
        self.paths = tuple(str(directory / FILES[role]) for role in self.layout.roles)
        self.path, self.fd = header.create(str(directory), self.header)
        self._mapped = mmap.mmap(self.fd, self.header.file_bytes)
        self.memory = memoryview(self._mapped)
        self.control = Control(self.memory[header.CONTROL_AT :][: 8 * control.CONTROL_WORDS].cast("Q"))
        self.sequence = 0
        self._positions = [0] * rings
        self._events: list[Event] = []
        for file, path in enumerate(self.paths):
            payload = self.layout.version(file, 1.0)
            Path(path).write_bytes(b"".join(frame.pack(payload)) if payload and not file else b"")
            name = header.encode_name(os.path.basename(path))
            self.memory[header.slot_at(file) :][: len(name)] = name
        self._committer = commit.Committer(max_file_bytes, lambda notice: None, self.layout)
        self.control.state = State(summary_bytes=os.path.getsize(self.paths[0]))

    def put(self, *events: Event, ring: int = 0, sealed: bool = True) -> None:
        """Publish events."""
        for event in events:
            self.sequence += 1
            self._events.append(event)
            pieces, length, head_offset = record.pack(event)
            size = record.HEADER_BYTES + length + -length % record.ALIGNMENT_BYTES
            position = self._positions[ring]
            data = bytearray(size)
            data[record.HEADER_BYTES : record.HEADER_BYTES + length] = b"".join(pieces)
            body = data[record.HEADER_BYTES :][:head_offset]
            head = pieces[-1]
            assert isinstance(head, bytes)
            crc = record.crc32c(bytes(body)) if sealed else None
            record.write_header(memoryview(data), 0, self.sequence, length, head_offset, head, crc)
            self.store(ring, position, bytes(data))
            self._positions[ring] = position + size
            self.control.words[control.word_of(ring, control.HEAD)] = position + size

    def pad(self, ring: int = 0) -> None:
        """Go on at the start of a ring."""
        position, capacity = self._positions[ring], self.header.ring_bytes
        length = -position % capacity - record.HEADER_BYTES
        data = bytearray(record.HEADER_BYTES)
        record.write_pad(memoryview(data), 0, length)
        self.store(ring, position, bytes(data))
        self._positions[ring] = position + record.HEADER_BYTES + length
        self.control.words[control.word_of(ring, control.HEAD)] = self._positions[ring]

    def store(self, ring: int, position: int, data: bytes) -> None:
        start, capacity = self.header.data_at + ring * self.header.ring_bytes, self.header.ring_bytes
        offset = position % capacity
        first = data[: capacity - offset]
        self.memory[start + offset : start + offset + len(first)] = first
        self.memory[start : start + len(data) - len(first)] = data[len(first) :]

    def commit(self, count: int, releases: bool = True) -> None:
        """Write the next events to the files, as a worker does; `releases` gives all that was published back."""
        state = self.control.state
        for event in self._events[state.sequence : state.sequence + count]:
            job = commit.encode(state.sequence + 1, event, self.paths, lambda notice: None, self.layout)
            state = self._committer.apply(state, [job])
        self.control.state = state
        if releases and state.sequence == self.sequence:
            for ring, position in enumerate(self._positions):
                self.control.words[control.word_of(ring, control.TAIL)] = position

    def kill(self) -> str:
        """Let go of everything without a word; return the path of the ring file."""
        self._committer.close()
        self.control.words.release()
        self.memory.release()
        self._mapped.close()  # it has a copy of the descriptor
        os.close(self.fd)
        return self.path


def expected(
    directory: Path, events: Sequence[Event], dialect: str = "mindspore", **options: object
) -> dict[str, bytes]:
    """The event files of a recorder that committed all of these events."""
    directory.mkdir()
    recorder = Recorder(directory, dialect, **options)  # type: ignore[arg-type]
    recorder.put(*events)
    recorder.commit(len(events))
    os.remove(recorder.kill())
    return contents(directory)


def contents(directory: Path) -> dict[str, bytes]:
    """The bytes of each file of a directory, by name."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}

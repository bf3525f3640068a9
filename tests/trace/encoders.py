"""Our own encoders of the raw files of hosts and of tools, so that tests make their inputs."""

from __future__ import annotations

import csv
import io
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from instrument.trace.events import Problem
from instrument.trace.text import Losses

T = TypeVar("T")

EPOCH_NS = 1_778_000_000_000_000_000

#: Start in ns, duration in the unit of the file, thread (of the CPU only).
Execution = tuple[int, float, int] | tuple[int, float]


def decimal(ns: int, unit_ns: int) -> str:
    """`ns` in units of `unit_ns`, a power of ten, with all its digits."""
    digits = len(str(unit_ns)) - 1
    whole, rest = divmod(abs(ns), unit_ns)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:0{digits}}"


def timestamps(operators: Mapping[str, Sequence[Execution]], kind: str = "HostCpuOps") -> bytes:
    """A line an operator, as `cpu_op_execute_timestamp` and `gpu_op_execute_timestamp` have it."""
    lines = []
    for name, executions in operators.items():
        items = "".join(
            ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in one) + " "
            for one in executions
        )
        lines.append(f"{name};{kind};{items}\n")
    return "".join(lines).encode()


def framework(rows: Iterable[tuple[str, Sequence[str]]], graph: int = 7) -> bytes:
    """A line an execution: short name ("" as PyNative has it) and the shapes of its inputs."""
    lines = []
    for name, shapes in rows:
        inputs = "".join(f"input_{place}:{shape};" for place, shape in enumerate(shapes, 1))
        lines.append(f"{name.split('-op')[0]};{name};{graph};{inputs}\n")
    return "".join(lines).encode()


def table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A CSV file, with quotes where they are needed."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows(rows)
    return text.getvalue().encode()


def mark(start_ns: int, duration_ns: int, name: int, kind: int, number: int = -1, thread: int = 1) -> bytes:
    return struct.pack("<4qIB3x", start_ns, duration_ns, thread, number, name, kind)


def tlv(kind: int, fixed: bytes, texts: Mapping[int, str]) -> bytes:
    """A record of a fixed part and of text fields."""
    fields = b"".join(struct.pack("<HI", field, len(text.encode())) + text.encode() for field, text in texts.items())
    return struct.pack("<HI", kind, len(fixed + fields)) + fixed + fields


def op_range(start: int, end: int, name: str, *, step: int = 1, thread: int = 5) -> bytes:
    fixed = struct.pack("<5Qi3Hb3B", thread, 0, step, start, end, 42, 1, 2, 3, 0, 0, 0, 0)
    return tlv(1, fixed, {13: "short", 14: name})


def memory_usage(time_ns: int, used: int, allocated: int, by_event: int = 0) -> bytes:
    fixed = struct.pack("<i11QI4B", 0, 1, 2, time_ns, 0, 0, used, used, allocated, by_event, 0, 0, 0, 0, 0, 0, 0)
    return tlv(1, fixed, {})


def complete(
    name: str, start_ns: int, duration_ns: int, pid: int, tid: int, as_text: bool = True, **more: object
) -> dict[str, object]:
    """An event of a timeline; its times are text or numbers, both in us with all digits."""
    start, duration = decimal(start_ns, 1000), decimal(duration_ns, 1000)
    times: dict[str, object] = {"ts": start, "dur": duration} if as_text else {"ts": Raw(start), "dur": Raw(duration)}
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, **times, **more}


class Raw(float):
    """A number that is written into JSON with the digits that it was made of."""

    def __new__(cls, digits: str) -> Raw:
        number = super().__new__(cls, digits)
        number.digits = digits
        return number

    digits: str

    def __repr__(self) -> str:
        return self.digits


def process(pid: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


def thread(pid: int, tid: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def dump(value: object) -> bytes:
    """JSON in which `Raw` keeps its digits."""
    if isinstance(value, Raw):
        return value.digits.encode()
    if isinstance(value, Mapping):
        return b"{" + b", ".join(json.dumps(key).encode() + b": " + dump(item) for key, item in value.items()) + b"}"
    if isinstance(value, (list, tuple)):
        return b"[" + b", ".join(dump(item) for item in value) + b"]"
    return json.dumps(value).encode()


def damaged(data: bytes, rng: np.random.Generator, rounds: int) -> Iterator[bytes]:
    """`data` with bytes overwritten, taken out and doubled; and bytes of nothing at all."""
    for _ in range(rounds):
        broken = bytearray(data)
        for _ in range(int(rng.integers(1, 9))):
            place = int(rng.integers(0, len(broken) + 1))
            piece = rng.bytes(int(rng.integers(0, 9)))
            broken[place : place + int(rng.integers(0, 9))] = piece * int(rng.integers(1, 3))
        yield bytes(broken)
        yield rng.bytes(int(rng.integers(0, 200)))


def parsed(parse: Callable[..., T], data: bytes | memoryview, file: str = "f", *more: Any) -> tuple[T, list[Problem]]:
    """What a parser finds in the bytes of a file, and what it could not read."""
    losses = Losses(file)
    return parse(data, losses, *more), losses.problems()

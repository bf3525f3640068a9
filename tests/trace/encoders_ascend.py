"""Our own encoders of the raw files of an Ascend device, so that tests make their inputs."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence

import numpy as np

from instrument.trace.events import MISSING, Integers
from instrument.trace.step_traces import StepTrace

#: An input (0) or output (1), its format and data type as codes, and its dimensions.
Tensor = tuple[int, int, int, Sequence[int]]


def hwts_record(
    kind: int, stream: int = 0, task: int = 0, cycles: int = 0, *, number: int = 0, warning: bool = False,
    magic: int = 0x6BD3,
) -> bytes:  # fmt: skip
    head = kind | warning << 3 | (number & 15) << 4
    return struct.pack("<BBHHHQI", head, 0, magic, 0, task, cycles, stream).ljust(64, b"\0")


def hwts(events: Iterable[tuple[int, int, int, int]]) -> bytes:
    """Records of (kind, stream, task, cycles) with the running number."""
    return b"".join(hwts_record(*event, number=number) for number, event in enumerate(events))


def training_trace(marks: Iterable[tuple[int, int, int]], task: int = 0) -> bytes:
    """Marks of (tag, stream, cycles)."""
    return b"".join(struct.pack("<QHHQ", tag, task, stream, cycles) for tag, stream, cycles in marks)


def ts_track(
    marks: Iterable[tuple[int, int]], *, model: int = 1, index: int = 1, stream: int = 2, task: int = 3, kind: int = 10
) -> bytes:
    """Marks of (tag, cycles) of one model and iteration."""
    return b"".join(
        struct.pack("<BBHIQQQHHHH", 0, kind, 40, 0, cycles, index, model, stream, task, tag, 0) for tag, cycles in marks
    )


def messages(*texts: str) -> bytes:
    return b"".join(text.encode() + b"\0" for text in texts)


def node(name: str, start: int, end: int, extra: str = "") -> str:
    return f"[{start}] Node:{name}, Run start:{start},{extra} Run end:{end}"


def thread(number: int, before: int, after: int, *, device: int = 0) -> str:
    """The message of a task whose ticks are `before` and `after`, put in 1000 ticks before that."""
    return (
        f"Thread[{number:2}] process device[{device}]:aicpu[ 0] task end, tickDrvTopHalf={before - 1000},"
        f"tickDrvBottomHalf={before - 500}, tickBeforeRun={before},tickAfterRun={after}, "
        f"dispatchTime=10 us, totalTime={(after - before + 1000) // 100} us."
    )


def aicpu_record(
    stream: int, task: int, start_cycles: int, end_cycles: int, *, magic: int = 0x5A5A, dispatch_us: int = 5,
    total_us: int = 50,
) -> bytes:  # fmt: skip
    run_us = start_cycles // 100, end_cycles // 100
    return struct.pack(
        "<HHHHQQQQQQQIIQQQQIIIHB9x",
        magic, 60, stream, task, run_us[0], start_cycles, run_us[0], run_us[0], run_us[1], run_us[1], end_cycles, 7, 0,
        max(start_cycles - 20, 0), max(start_cycles - 10, 0), start_cycles, end_cycles, 0, dispatch_us, total_us, 0, 1,
    )  # fmt: skip


def dp_record(time_us: int, source: str, index: int, size: int) -> bytes:
    return struct.pack("<HHIQ16s64sQQ16x", 0x5A5A, 100, 0, time_us, b"dequeue", source.encode(), index, size)


def task_lines(*tasks: tuple[str, int, int, int]) -> bytes:
    """Lines of (full name, block dim, task, stream)."""
    return "".join(f"{name} {block} {task} {stream}\n" for name, block, task, stream in tasks).encode()


def graph_line(name: str, kind: str, tensors: Sequence[tuple[str, str, int, str]]) -> bytes:
    """A line with tensors of (side, format, data type, shape)."""
    items = "".join(
        f' {side}_id:{number} {side}_format:{layout} {side}_data_type:{code} {side}_shape:"{shape}"'
        for number, (side, layout, code, shape) in enumerate(tensors)
    )
    return f"op_name:{name} op_type:{kind}{items}\n".encode()


def _block(text: str | int, size: int) -> bytes:
    """A name in a record: text of kind 1, or a hash of kind 0."""
    if isinstance(text, int):
        return struct.pack("<B7xQ", 0, text).ljust(size, b"\0")
    return (struct.pack("<B7x", 1) + text.encode()).ljust(size, b"\0")


def task_record(
    name: str | int, kind: str | int, stream: int, task: int, *, side: int = 0, iteration: int = 1, model: int = 1
) -> bytes:
    head = struct.pack("<HHI", 0x5A5A, 80, side) + _block(name, 128) + _block(kind, 64)
    return head + struct.pack("<QQIIIIII16x", iteration, 1000, 0, 32, model, stream, task, 555)


def tensor_record(stream: int, task: int, tensors: Sequence[Tensor], *, iteration: int = 1, model: int = 1) -> bytes:
    """Up to five tensors of (0 input or 1 output, format, data type, dimensions)."""
    entries = b"".join(
        struct.pack("<11I", side, layout, code, *dims, *[0] * (8 - len(dims))) for side, layout, code, dims in tensors
    )
    head = struct.pack("<HHIQIIB3x", 0x5A5A, 81, model, iteration, stream, task, len(tensors))
    return (head + entries).ljust(256, b"\0")


def step_record(tag: int, stream: int, task: int) -> bytes:
    return struct.pack("<HHIIIQQIB27x", 0x5A5A, 81, 1, stream, task, 1000, 1, 555, tag)


def host_start(realtime_ns: int, monotonic_ns: int, **values: int) -> bytes:
    fields = {"clock_realtime": realtime_ns, "clock_monotonic_raw": monotonic_ns, **values}
    return "".join(["[Host]\n", *(f"{key} = {value}\n" for key, value in fields.items())]).encode()


def dev_start(monotonic_ns: int, cycles: int) -> bytes:
    return f"clock_monotonic_raw: {monotonic_ns}\ncntvct: {cycles}\n".encode()


def info_json(mhz: object = "100") -> bytes:
    return json.dumps({"DeviceInfo": [{"hwts_frequency": mhz, "ai_core_num": 32}], "rank_id": 3}).encode()


def start_info(epoch_us: int, monotonic_ns: int) -> bytes:
    return json.dumps({"collectionTimeBegin": str(epoch_us), "clockMonotonicRaw": str(monotonic_ns)}).encode()


def step_rows(trace: StepTrace) -> Integers:
    """The steps with forward and backward marks as step traces have always shown them, in cycles.

    Columns: step number, start, end, total, forward start, backward end, iteration interval, forward and backward,
    tail. Only these steps have a row, but each has its number.
    """
    steps = trace.steps[(trace.steps["forward"] != MISSING) & (trace.steps["backward"] != MISSING)]
    start, forward, backward, end = (steps[name] for name in ("start", "forward", "backward", "end"))
    parts = (end - start, forward, backward, forward - start, backward - forward, end - backward)
    return np.stack((steps["step"], start, end, *parts), axis=1)

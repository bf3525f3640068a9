"""Trial without MindSpore: shared memory, worker processes, a forked child, and runs written both ways.

python -m instrument.doctor.recording DIRECTORY RESULT
"""

from __future__ import annotations

import os
import sys
import threading
import time
from functools import partial

import numpy as np

from instrument.doctor.findings import Expected, Failed, attempt, write_result
from instrument.values import ArrayItem, Event
from instrument.write.factory import check_system, default_processes
from instrument.write.file_sink import FileSink
from instrument.write.pool import DEFAULT_RING_BYTES, PoolSink
from instrument.write.pool_memory import map_twice, round_up
from instrument.write.sink import Files, Sink, Target

_STEPS = 1000
_WITHOUT_WORKERS = (
    "instrument records all the same, in the training process (as with num_process=0), which costs it time."
)
_FORK_SECONDS = 20.0


def main() -> None:
    directory, result_path = sys.argv[1:]
    expected: Expected = {}
    findings = [
        attempt("shared memory", _shared_memory, _WITHOUT_WORKERS),
        attempt("worker processes", partial(_workers, os.path.join(directory, "workers"), expected), _WITHOUT_WORKERS),
        attempt("without workers", partial(_in_process, os.path.join(directory, "process"), expected)),
    ]
    if hasattr(os, "fork"):
        findings.append(attempt("fork beside a recorder", partial(_fork, os.path.join(directory, "fork"), expected)))
    write_result(result_path, findings, expected, processes=default_processes())


def _shared_memory() -> str:
    """Map memory twice, as a ring does: what runs over its end must be at its beginning."""
    check_system()
    size = round_up(1 << 20)
    fd = os.memfd_create("instrument", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, size)
        memory = map_twice(fd, 0, size)
        memory[size - 4 : size + 4] = b"overlaps"
        if bytes(memory[:4]) != b"laps":
            raise Failed("memory that is mapped twice does not overlap")
    finally:
        os.close(fd)
    return "anonymous, mapped twice (memfd, eventfd, epoll)"


def _write(sink: Sink, steps: int) -> tuple[float, float]:
    """Write events; return the seconds until the first one is readable, and the seconds of the others."""
    started = time.perf_counter()
    _put(sink, Event(1, time.time(), [], {"value": 1 / 8}))
    sink.flush()
    first = time.perf_counter() - started
    started = time.perf_counter()
    for step in range(2, steps + 1):
        _put(sink, Event(step, time.time(), [], {"value": step / 8}))
    seconds = time.perf_counter() - started
    tensor = np.arange(1 << 16, dtype=np.float32)
    arrays = [ArrayItem("tensor", "tensor", tensor, "float32"), ArrayItem("histogram", "histogram", tensor)]
    _put(sink, Event(steps + 1, time.time(), arrays))
    return first, seconds


def _put(sink: Sink, event: Event) -> None:
    if not sink.write(event):
        error = sink.take_error()
        raise Failed(f"step {event.step} was not taken: {error.reason if error else 'no reason is known'}")


def _expect(expected: Expected, name: str, steps: int) -> None:
    count = 1 << 16
    expected[name] = {
        "scalar": {"value": (steps, sum(range(1, steps + 1)) / 8)},
        "tensor": {"tensor": (1, count * (count - 1) / 2)},
        "histogram": {"histogram": (1, count)},
    }


def _workers(directory: str, expected: Expected) -> str:
    count = default_processes()
    started = time.perf_counter()
    sink = PoolSink(Files(Target(directory)), count, DEFAULT_RING_BYTES)
    opened = time.perf_counter() - started
    first, seconds = _write(sink, _STEPS)
    started = time.perf_counter()
    sink.flush(sync=True)
    synced = time.perf_counter() - started
    sink.close()
    _check(sink, _STEPS + 1)
    _expect(expected, "workers", _STEPS)
    return (
        f"opened in {1e3 * opened:.1f} ms, the first step readable after {1e3 * first:.0f} ms, then "
        f"{1e6 * seconds / (_STEPS - 1):.1f} us a step; all on the disk itself {1e3 * synced:.0f} ms later"
    )


def _in_process(directory: str, expected: Expected) -> str:
    steps = _STEPS // 10
    sink = FileSink(Files(Target(directory)))
    _, seconds = _write(sink, steps)
    sink.close()
    _check(sink, steps + 1)
    _expect(expected, "process", steps)
    return f"{1e6 * seconds / (steps - 1):.1f} us a step"


def _fork(directory: str, expected: Expected) -> str:
    """Fork beside an open recorder: the child must end, and the recorder must go on."""
    steps = 10
    sink = PoolSink(Files(Target(directory)), 1, DEFAULT_RING_BYTES)
    child = os.fork()
    if child == 0:
        os._exit(7 if sink.write(Event(0, time.time(), [], {"value": 0.0})) else 0)
    killer = threading.Timer(_FORK_SECONDS, os.kill, (child, 9))
    killer.start()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    killer.cancel()
    _write(sink, steps)
    sink.close()
    _check(sink, steps + 1)
    _expect(expected, "fork", steps)
    if status:
        raise Failed(f"the child ended with {status}")
    return "the child ends, the recorder goes on"


def _check(sink: Sink, events: int) -> None:
    stats = sink.stats
    if (stats.events, stats.lost, stats.dropped, stats.errors) != (events, 0, 0, 0):
        raise Failed(f"of {events} events not all are written: {stats}")


if __name__ == "__main__":
    main()

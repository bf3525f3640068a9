"""What a process and everything that it started use: CPU time and memory, out of Linux's own accounts."""

from __future__ import annotations

import ctypes
import glob
import os
import resource
import signal
import time
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_SUBREAPER = 36
_MB = 1e6


class Memory(NamedTuple):
    """Megabytes: `pss_mb` counts a page that several processes share once among them, `private_mb` leaves shared
    memory out."""

    pss_mb: float
    private_mb: float


def descendants(pid: int) -> list[int]:
    """Every living process that `pid` started, and those that these started."""
    found: list[int] = []
    queue = [pid]
    while queue:
        for path in glob.glob(f"/proc/{queue.pop()}/task/*/children"):
            try:
                children = [int(word) for word in Path(path).read_text().split()]
            except OSError:
                continue  # it has ended
            found += children
            queue += children
    return found


def helpers_cpu_s() -> float:
    """The CPU time of everything that this process started, whether it lives or was waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(map(_cpu_s, descendants(os.getpid())))


def _cpu_s(pid: int) -> float:
    """The CPU time of a living process, and of those of its children that it waited for."""
    try:
        own = time.clock_gettime(_cpu_clock(pid))
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # it has ended
    return own + (int(fields[13]) + int(fields[14])) / _TICKS


def _cpu_clock(pid: int) -> int:
    """Linux's number for a process's CPU clock, which counts nanoseconds where /proc has ticks of 10 ms."""
    return ~pid << 3 | 2


def machine_busy_s() -> float:
    """The time that all cores together were busy since the machine started, in ticks of 10 ms."""
    user, nice, system, _, _, interrupts, soft_interrupts = Path("/proc/stat").read_text().split()[1:8]
    return sum(map(int, (user, nice, system, interrupts, soft_interrupts))) / _TICKS


def memory(pid: int) -> Memory:
    """What a process has in memory now; nothing if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return Memory(0, 0)
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    pss = kilobytes.get("Pss", 0)
    return Memory(pss * 1024 / _MB, (pss - kilobytes.get("Pss_Shmem", 0)) * 1024 / _MB)


def adopt_orphans() -> None:
    """Become the parent of whatever descendants leave behind, instead of the system's first process."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def end_descendants(patience_s: float) -> int:
    """Wait until this process has no descendants, kill those that are still there then, and return how many."""
    deadline = time.monotonic() + patience_s
    while _reap() and time.monotonic() < deadline:
        time.sleep(0.01)
    killed: set[int] = set()
    while _reap():
        for pid in descendants(os.getpid()):
            killed.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass  # it has ended
        time.sleep(0.05)
    return len(killed)


def _reap() -> bool:
    """Wait for children that have ended; whether others live."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True

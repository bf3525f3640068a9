"""Sample what the host, the process and its device are doing, as numbers by tag: `system/cpu_percent` and so on.

Counters of the system become rates between two samples. The process's figures are those of it and all processes below
it: workers of data sets, and our own. What cannot be had is named once and left out of the sample; the rest is there.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from instrument import framework
from instrument.values import SAMPLED

log = logging.getLogger("instrument")

_LOOPBACK = "lo"


def load_psutil() -> Any:
    """Import psutil.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import psutil
    except ImportError as error:
        raise ImportError("system_metrics needs psutil: pip install psutil") from error
    return psutil


class System:
    """Samples the host and this process; `directory` says which file system is looked at. Needs psutil.

    The first sample is taken at once: rates count from there. Not for several threads at a time.

    Raises:
        ImportError: psutil is not installed.
    """

    def __init__(self, directory: str) -> None:
        self._psutil = load_psutil()
        self._directory = directory
        self._process = self._psutil.Process()
        self._family: list[Any] = []
        self._has_lists = os.path.exists(f"/proc/self/task/{threading.get_native_id()}/children")
        self._device: framework.DeviceMemory | None = None
        self._failed: set[str] = set()
        self._idle_and_whole = (0.0, 0.0)
        self._disks = _Rates()
        self._networks = _Rates()
        self._processors = _Rates()
        self._files = _Rates()
        # The figures of processes need the family, which comes first.
        self._readers: dict[str, Callable[[], Mapping[str, float]]] = {
            "load of the processors": self._cpu,
            "memory of the host": self._memory,
            "room on the disk": self._room,
            "traffic of the disks": self._disk_traffic,
            "traffic of the network": self._network_traffic,
            "processes below this one": self._processes,
            "load by the process": self._process_cpu,
            "memory of the process": self._process_memory,
            "files' traffic of the process": self._process_traffic,
            "memory of the device": self._device_memory,
        }
        self.sample()

    def sample(self) -> dict[str, float]:
        """Return the numbers of this moment by tag; rates (`..._per_second`, `process_cpu_percent`) since the last."""
        numbers: dict[str, float] = {}
        for subject, read in self._readers.items():
            try:
                numbers.update(read())
            except Exception as error:  # noqa: BLE001  the edge: whatever a strange host raises, the others can be had
                self._warn_once_of(subject, error)
        return {SAMPLED + name: float(value) for name, value in numbers.items()}

    def _warn_once_of(self, subject: str, error: Exception) -> None:
        if subject not in self._failed:
            self._failed.add(subject)
            text = "system_metrics: the %s cannot be had (%s: %s). The other metrics are recorded; this is logged once."
            log.warning(text, subject, type(error).__name__, error)

    # ------------------------------------------------------------------ the host

    def _cpu(self) -> dict[str, float]:
        # psutil's own percentage counts from the last call of the same thread.
        times = self._psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        # What guests take is in the times of user and nice as well.
        whole = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        before, self._idle_and_whole = self._idle_and_whole, (idle, whole)
        passed = whole - before[1]
        if not before[1] or passed <= 0:
            return {}
        # Linux's time of waiting for disks may go back a little.
        return {"cpu_percent": min(max(100 * (1 - (idle - before[0]) / passed), 0.0), 100.0)}

    def _memory(self) -> dict[str, float]:
        memory = self._psutil.virtual_memory()
        return {"memory_percent": memory.percent, "memory_used_bytes": memory.total - memory.available}

    def _room(self) -> dict[str, float]:
        room = self._psutil.disk_usage(self._directory)
        return {"disk_percent": room.percent, "disk_free_bytes": room.free}

    def _disk_traffic(self) -> dict[str, float]:
        counted = self._psutil.disk_io_counters(nowrap=False)  # which takes a lock that a forked child would miss
        if counted is None:
            raise OSError("the system counts nothing")
        names = ("disk_read_bytes_per_second", "disk_written_bytes_per_second")
        return self._disks.named(names, {"all": (counted.read_bytes, counted.write_bytes)})

    def _network_traffic(self) -> dict[str, float]:
        counted = self._psutil.net_io_counters(pernic=True, nowrap=False)
        traffic = {name: (card.bytes_recv, card.bytes_sent) for name, card in counted.items() if name != _LOOPBACK}
        names = ("network_received_bytes_per_second", "network_sent_bytes_per_second")
        return self._networks.named(names, traffic)

    # ------------------------------------------------------------------ the process and those below it

    def _processes(self) -> dict[str, float]:
        self._family = [self._process, *self._below()]
        return {"process_count": len(self._family)}

    def _below(self) -> list[Any]:
        """Return the processes below this one. psutil looks through all of the host, perhaps thousands."""
        if not self._has_lists:
            return list(self._process.children(recursive=True))
        earlier = {process.pid: process for process in self._family[1:]}
        processes = []
        for pid in descendants(self._process.pid):
            try:
                processes.append(earlier.get(pid) or self._psutil.Process(pid))
            except self._psutil.NoSuchProcess:
                continue  # it has ended meanwhile
        return processes

    def _each(self, get: Callable[[Any], Any]) -> dict[Any, Any]:
        """Return what `get` returns for each process that has not ended meanwhile."""
        results = {}
        for process in self._family:
            try:
                results[process] = get(process)
            except self._psutil.NoSuchProcess:
                continue
        return results

    def _process_cpu(self) -> dict[str, float]:
        def seconds(process: Any) -> tuple[float]:
            times = process.cpu_times()
            return (100 * (times.user + times.system),)

        return self._processors.named(("process_cpu_percent",), self._each(seconds))

    def _process_memory(self) -> dict[str, float]:
        resident = self._each(lambda process: process.memory_info().rss)
        return {"process_memory_bytes": sum(resident.values())}

    def _process_traffic(self) -> dict[str, float]:
        def counted(process: Any) -> tuple[float, float]:
            counters = process.io_counters()
            return counters.read_bytes, counters.write_bytes

        names = ("process_disk_read_bytes_per_second", "process_disk_written_bytes_per_second")
        return self._files.named(names, self._each(counted))

    # ------------------------------------------------------------------ the device

    def look_at_device(self) -> None:
        """Read its memory for the next samples; for the thread that trains.

        MindSpore answers when all operators have run, and gives what went wrong in one of them to whoever waits: that
        is the training's own error, and raised here.
        """
        if framework.device_target() == "CPU":
            return
        framework.wait_for_operators()
        try:
            self._device = framework.device_memory()
        except Exception as error:  # noqa: BLE001  recording goes on without it
            self._device = None
            self._warn_once_of("memory of the device", error)

    def _device_memory(self) -> dict[str, float]:
        if self._device is None:
            return {}
        names = ("device_memory_allocated_bytes", "device_memory_reserved_bytes")
        return dict(zip(names, self._device, strict=True))


def descendants(pid: int) -> list[int]:
    """Return the processes below one, from the lists that Linux keeps of each thread's children."""
    below: list[int] = []
    queue = [pid]
    while queue:
        parent = queue.pop()
        try:
            for thread in os.listdir(f"/proc/{parent}/task"):
                children = _numbers(f"/proc/{parent}/task/{thread}/children")
                below += children
                queue += children
        except FileNotFoundError:
            continue  # it has ended
    return below


def _numbers(path: str) -> list[int]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []  # the thread has ended
    try:
        pieces = iter(lambda: os.read(fd, 1 << 16), b"")
        return [int(word) for word in b"".join(pieces).split()]
    except ProcessLookupError:
        return []
    finally:
        os.close(fd)


class _Rates:
    """How fast counters grow, the sum over all that are there. One that is new counts from 0, as it did itself."""

    def __init__(self) -> None:
        self._before: Mapping[Hashable, tuple[float, ...]] = {}
        self._at = 0.0

    def named(self, names: tuple[str, ...], counters: Mapping[Hashable, tuple[float, ...]]) -> dict[str, float]:
        """Return the rate of each name, a second, since the last call; nothing the first time."""
        now = time.monotonic()
        before, self._before = self._before, counters
        passed, self._at = now - self._at, now
        if not before or passed <= 0:
            return {}
        zeros = (0.0,) * len(names)
        grown = [
            [_growth(was, is_) for was, is_ in zip(before.get(key, zeros), counts, strict=True)]
            for key, counts in counters.items()
        ]
        return {name: sum(column) / passed for name, *column in zip(names, *grown, strict=True)}


def _growth(before: float, now: float) -> float:
    """Return the growth of a counter, which began anew if it is lower than before."""
    return now - before if now >= before else now

"""Clock logs of a job -> one `Clock` that turns the device's counter into nanoseconds.

Device files count cycles of the system counter (100 MHz unless `info.json` says otherwise). With the counter and the
host's clock read together at the start, times are the host's; with the wall clock beside that, they are times since the
epoch. A job of 2020 has only a `host_start.log`, which names no counter: its times stay the counter's own.
All arithmetic is in integers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from instrument.trace.events import MISSING, Integers, Mask
from instrument.trace.jsontext import Json, mapping
from instrument.trace.records import UNKNOWN_LINES, integer
from instrument.trace.text import Buffer, Losses, decode

DEFAULT_KHZ = 100_000
#: Times stay below this, so that sums and differences of two fit an int64.
_LIMIT_NS = 1 << 61
_SETTING = re.compile(r"([A-Za-z_]\w*)\s*[:=]\s*(\d+)")
_MHZ = re.compile(r"(\d{1,6})(?:\.(\d{1,3})\d{0,12})?")


@dataclass(frozen=True)
class Clock:
    """What one cycle is, and where 0 ns is: `kind` as in `Capture.clock`; ns = cycles * 1e6 / khz + offset_ns."""

    kind: str = "device"
    khz: int = DEFAULT_KHZ
    offset_ns: int = 0

    @property
    def limit_cycles(self) -> int:
        """Counters from here on are no times: in nanoseconds they do not fit 64 bits."""
        return min(_LIMIT_NS * self.khz // 1_000_000, _LIMIT_NS)

    def holds(self, cycles: Integers) -> Mask:
        """Return which of the counters are times, or `MISSING`."""
        return np.asarray((cycles >= MISSING) & (cycles < self.limit_cycles))

    def duration_ns(self, cycles: int) -> int:
        """Convert cycles to nanoseconds, to the nearest one."""
        return (cycles * 1_000_000 + self.khz // 2) // self.khz

    def ns(self, cycles: Integers) -> Integers:
        """Convert counters that `holds` to times in ns, to the nearest; `MISSING` stays `MISSING`."""
        divisor = math.gcd(1_000_000, self.khz)
        factor, den = 1_000_000 // divisor, self.khz // divisor
        if den == 1:
            times = cycles * factor
        else:  # a product of the whole counter would not fit
            whole, rest = np.divmod(cycles, den)
            times = whole * factor + (rest * factor + den // 2) // den
        times += self.offset_ns
        times[cycles == MISSING] = MISSING
        return times

    def ns_of_us(self, us: Integers) -> Integers:
        """Convert times in us on the counter's axis to ns; `MISSING` stays `MISSING`."""
        times = us * 1000 + self.offset_ns
        times[us == MISSING] = MISSING
        return times

    @property
    def limit_us(self) -> int:
        """Times in us from here on are no times."""
        return _LIMIT_NS // 1000


@dataclass(frozen=True)
class StartLog:
    """`host_start.log` or `dev_start.log`: the last section's name, "" without one, and its numbers (ns, cycles)."""

    section: str = ""
    values: Mapping[str, int] = field(default_factory=dict)


class DeviceInfo(NamedTuple):
    """What `info.json` says of the device; None where it does not."""

    hwts_khz: int | None = None
    aic_khz: int | None = None
    host_khz: int | None = None
    ai_core_num: int | None = None
    rank_id: int | None = None
    hostname: str | None = None
    pid: int | None = None


class Moment(NamedTuple):
    """`start_info` or `end_info`: one moment on two clocks; None where it is not told."""

    epoch_us: int | None = None
    monotonic_ns: int | None = None


def start_log(data: Buffer, losses: Losses) -> StartLog:
    """Read `host_start.log` (clock_realtime, clock_monotonic_raw, cntvct, cntvct_diff) or `dev_start.log`."""
    section, values = "", {}
    for line in filter(None, map(str.strip, decode(bytes(data)).split("\n"))):
        match = _SETTING.fullmatch(line)
        value = _time(match[2]) if match else None
        if match and value is not None:
            values[match[1]] = value
        elif line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        else:
            losses.add(UNKNOWN_LINES)
    return StartLog(section, values)


def device_info(data: Buffer, losses: Losses) -> DeviceInfo:
    """Return the fields of `info.json` that clocks need."""
    content = mapping(data, losses)
    device, cpu = _first(content, "DeviceInfo"), _first(content, "CPU")
    hostname = content.get("hostname")
    khz = _khz(device.get("hwts_frequency"))
    losses.add("no frequency of the counter; 100 MHz is taken", bool(content) and not khz)
    return DeviceInfo(
        khz,
        _khz(device.get("aic_frequency")),
        _khz(cpu.get("Frequency")),
        _time(device.get("ai_core_num")),
        _time(content.get("rank_id")),
        hostname if isinstance(hostname, str) else None,
        _time(content.get("pid")),
    )


def moment(data: Buffer, losses: Losses) -> Moment:
    """The two clocks of `start_info` or `end_info`."""
    content = mapping(data, losses)
    epoch = content.get("collectionTimeBegin", content.get("collectionTimeEnd"))
    both = Moment(_time(epoch), _time(content.get("clockMonotonicRaw")))
    losses.add("moments that are not told on both clocks", bool(content) and None in both)
    return both


def clock(host: StartLog, device: StartLog, info: DeviceInfo, start: Moment) -> Clock:
    """The best clock that the logs of one device give."""
    khz = info.hwts_khz or DEFAULT_KHZ
    counter, monotonic = device.values.get("cntvct"), host.values.get("clock_monotonic_raw")
    if counter is None or monotonic is None:
        return Clock("device", khz)
    difference = Clock(khz=info.host_khz or DEFAULT_KHZ).duration_ns(host.values.get("cntvct_diff", 0))
    offset = monotonic + difference - Clock(khz=khz).duration_ns(counter)
    wall = _wall_offset_ns(host, start)
    kind, offset = ("monotonic", offset) if wall is None else ("epoch", offset + wall)
    return Clock(kind, khz, offset) if abs(offset) < _LIMIT_NS else Clock("device", khz)


def _wall_offset_ns(host: StartLog, start: Moment) -> int | None:
    """Return the time since the epoch less the host's monotonic time, ns."""
    if start.epoch_us is not None and start.monotonic_ns is not None:
        return start.epoch_us * 1000 - start.monotonic_ns
    realtime, monotonic = host.values.get("clock_realtime"), host.values.get("clock_monotonic_raw")
    return None if realtime is None or monotonic is None else realtime - monotonic


def _first(content: dict[str, Json], key: str) -> dict[str, Json]:
    items = content.get(key)
    first = items[0] if isinstance(items, list) and items else None
    return first if isinstance(first, dict) else {}


def _time(value: object) -> int | None:
    """Return a number that the logs write as a number or as text; None for what is no time."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    number = integer(value.strip()) if isinstance(value, str) else value
    return number if number is not None and 0 <= number < _LIMIT_NS else None


def _khz(value: object) -> int | None:
    """Return in kHz a frequency in MHz, which is written as a number or as text."""
    match = _MHZ.fullmatch(str(value).strip()) if isinstance(value, int | float | str) else None
    if match is None:
        return None
    return int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0")) or None

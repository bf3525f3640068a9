"""Clock logs: what they say, and the clock that they make."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from instrument.trace import clocks
from instrument.trace.clocks import Clock, DeviceInfo, Moment, StartLog
from instrument.trace.events import MISSING
from instrument.trace.text import Losses
from tests.trace import encoders_ascend as encode

REALTIME_NS, MONOTONIC_NS = 1_591_183_963_784_568_740, 261_003_032_627


def lost(losses: Losses) -> dict[str, int]:
    return {problem.what: problem.amount for problem in losses.problems()}


def test_start_logs_are_read_with_either_separator() -> None:
    """Sections are optional; the last line may lack its end."""
    losses = Losses("log")
    text = b"[Device0]\nclock_realtime: 1591183963784568740\nclock_monotonic_raw = 261003032627\nnoise\ncntvct:5"
    assert clocks.start_log(text, losses) == StartLog(
        "Device0", {"clock_realtime": REALTIME_NS, "clock_monotonic_raw": MONOTONIC_NS, "cntvct": 5}
    )
    assert lost(losses) == {"lines of unknown form": 1}


@pytest.mark.parametrize(("written", "khz"), [("100", 100_000), ("48.5", 48_500), (50, 50_000), (38.4, 38_400)])
def test_the_frequency_is_read_as_text_or_number(written: object, khz: int) -> None:
    """In MHz, with decimals."""
    found = clocks.device_info(encode.info_json(written), Losses("info"))
    assert (found.hwts_khz, found.ai_core_num, found.rank_id) == (khz, 32, 3)


@pytest.mark.parametrize("written", ["", "0", "-1", "1e9", "1e999999999", "9" * 5000, None, True, [1], "NaN"])
def test_no_frequency_is_made_up(written: object) -> None:
    """What is no frequency is not told."""
    assert clocks.device_info(encode.info_json(written), Losses("info")).hwts_khz is None


@pytest.mark.parametrize("data", [b"", b"[1]", b"{", b'{"DeviceInfo": 5, "CPU": [7]}', b"\xff", b"[" * 100_000])
def test_other_json_tells_nothing(data: bytes) -> None:
    """It is counted where it is no object."""
    losses = Losses("info")
    assert clocks.device_info(data, losses) == DeviceInfo()
    assert clocks.moment(data, Losses("moment")) == Moment()
    is_object = data.startswith(b'{"')
    if is_object:
        assert lost(losses) == {"no frequency of the counter; 100 MHz is taken": 1}
    else:
        what = "no JSON object: bytes not read" if data == b"[1]" else "no JSON: bytes not read"
        assert lost(losses) == ({what: len(data)} if data else {})


def test_both_ends_are_moments() -> None:
    """start_info and end_info have the wall clock in us and the monotonic one in ns, as text."""
    end = encode.start_info(1_692_340_082_430_569, 56_638_036_649_460).replace(b"Begin", b"End")
    assert clocks.moment(end, Losses("end")) == Moment(1_692_340_082_430_569, 56_638_036_649_460)


def cycles(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_a_cycle_is_ten_nanoseconds() -> None:
    """Without any log; `MISSING` stays what it is."""
    assert Clock().ns(cycles(0, 1, 38_753_186_165, MISSING)).tolist() == [0, 10, 387_531_861_650, MISSING]
    assert Clock("epoch", offset_ns=7).ns(cycles(1, MISSING)).tolist() == [17, MISSING]
    assert Clock("epoch", offset_ns=7).ns_of_us(cycles(3, MISSING)).tolist() == [3007, MISSING]


def test_other_frequencies_are_exact(rng: np.random.Generator) -> None:
    """Counters as large as they may be are rounded to the nearest ns, without floats."""
    for khz in (1, 3, 38_400, 48_000, 50_000, 99_999, 1_000_000, 999_999_999):
        clock = Clock(khz=khz)
        values = rng.integers(0, clock.limit_cycles, 200)
        exact = [int(Fraction(int(value) * 1_000_000, khz) + Fraction(1, 2)) for value in values]
        assert clock.ns(values).tolist() == exact
        assert clock.holds(np.append(values, [MISSING, clock.limit_cycles, -2])).tolist() == [True] * 201 + [False] * 2


def log(**values: int) -> StartLog:
    return StartLog("", values)


def test_without_a_counter_times_are_the_devices_own() -> None:
    """A host_start.log of 2020 names none; nor does a counter help without the host's time at it."""
    host = log(clock_realtime=REALTIME_NS, clock_monotonic_raw=MONOTONIC_NS)
    assert clocks.clock(host, log(), DeviceInfo(), Moment()) == Clock("device", 100_000, 0)
    assert clocks.clock(log(), log(cntvct=5), DeviceInfo(hwts_khz=50_000), Moment()) == Clock("device", 50_000, 0)


def test_a_counter_and_the_hosts_time_make_the_hosts_clock() -> None:
    """The time at the device's counter is the host's."""
    clock = clocks.clock(log(clock_monotonic_raw=5000), log(cntvct=100), DeviceInfo(), Moment())
    assert (clock.kind, clock.ns(cycles(100, 101)).tolist()) == ("monotonic", [5000, 5010])


def test_a_difference_of_counters_is_added() -> None:
    """In cycles of the host, whose frequency may be told."""
    host = log(clock_monotonic_raw=5000, cntvct_diff=4)
    assert clocks.clock(host, log(cntvct=100), DeviceInfo(), Moment()).ns(cycles(100)).tolist() == [5040]
    info = DeviceInfo(host_khz=1_000_000)
    assert clocks.clock(host, log(cntvct=100), info, Moment()).ns(cycles(100)).tolist() == [5004]


def test_the_wall_clock_is_that_of_start_info_first() -> None:
    """Else that of host_start.log; times are then since the epoch."""
    host = log(clock_realtime=REALTIME_NS, clock_monotonic_raw=5000)
    clock = clocks.clock(host, log(cntvct=100), DeviceInfo(), Moment())
    assert (clock.kind, clock.ns(cycles(100)).tolist()) == ("epoch", [REALTIME_NS])
    clock = clocks.clock(host, log(cntvct=100), DeviceInfo(), Moment(1_692_340_024_324_979, 4000))
    assert (clock.kind, clock.ns(cycles(100)).tolist()) == ("epoch", [1_692_340_024_324_979_000 + 1000])


def test_an_anchor_beyond_any_time_is_none() -> None:
    """Its offset would not fit."""
    start = clocks.clock(log(clock_monotonic_raw=1), log(cntvct=1 << 60), DeviceInfo(hwts_khz=1), Moment())
    assert start == Clock("device", 1, 0)


def test_garbage_does_no_harm(rng: np.random.Generator) -> None:
    """Random bytes tell nothing."""
    for _ in range(20):
        data = rng.bytes(1000)
        clocks.clock(
            clocks.start_log(data, Losses("")), clocks.start_log(data, Losses("")),
            clocks.device_info(data, Losses("")), clocks.moment(data, Losses("")),
        )  # fmt: skip

"""Progress: rate, time left, silence where there is no terminal."""

from __future__ import annotations

import io

from instrument.landscape.compute import Progress, clock_words


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_terminal_sees_rate_and_time_left() -> None:
    """Points of an earlier process count as done, but not for the rate."""
    clock, stream, seen = Clock(), Terminal(), []
    progress = Progress("plane", 100, 20, lambda *all_: seen.append(all_), stream, clock)
    clock.now += 10.0
    progress.step(20)
    assert stream.getvalue() == "\rplane: 40/100 points, 2/s, 30 s left"
    clock.now += 0.01
    progress.step()
    assert len(seen) == 1  # too soon for another line
    progress.close()
    assert stream.getvalue().endswith("\n")
    assert seen == [(40, 100, 30.0)]


def test_the_last_point_is_always_shown() -> None:
    """However soon it comes."""
    clock, stream = Clock(), Terminal()
    progress = Progress("plane", 2, 0, None, stream, clock)
    progress.step()
    progress.step()
    assert stream.getvalue().split("\r")[-1].startswith("plane: 2/2 points")


def test_a_file_sees_nothing() -> None:
    """What is no terminal stays empty."""
    stream = io.StringIO()
    progress = Progress("plane", 2, 0, None, stream)
    progress.step(2)
    progress.close()
    assert stream.getvalue() == ""


def test_times_are_in_words() -> None:
    """Seconds, minutes, hours."""
    assert [clock_words(s) for s in (12.4, 192, 7380)] == ["12 s", "3 min 12 s", "2 h 3 min"]

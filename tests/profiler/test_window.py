"""Spans and marks: what they cost, nest and survive, and the bytes that they become."""

from __future__ import annotations

import gc
import inspect
import pydoc
import threading
import time
import timeit
from collections.abc import Iterator

import numpy as np
import pytest

from instrument import marks, span
from instrument.profiler.window import MARK, mark_records

NAMES = ["start_ns", "duration_ns", "thread", "number", "name", "kind"]


@pytest.fixture
def window() -> Iterator[marks.Window]:
    yield marks.open_window()
    marks.close_window()


def named(window: marks.Window, kind: int = marks.USER) -> list[str]:
    found, names = mark_records(window)
    return [names[one["name"]] for one in found if one["kind"] == kind]


def test_a_record_has_forty_bytes() -> None:
    """As the trace says: start, duration, thread, number (8 bytes each), name (4), kind (1) and 3 bytes of padding."""
    assert MARK.itemsize == 40
    assert [MARK.fields[name][1] for name in NAMES] == [0, 8, 16, 24, 32, 36]  # type: ignore[index]


def test_a_span_is_marked_while_a_window_is_open(window: marks.Window) -> None:
    """Times contain each other where spans nest, and the thread is that of the system."""
    with span("outer"), span("inner"):
        pass
    marks.close_window()
    with span("later"):
        pass
    found, names = mark_records(window)
    assert [names[one["name"]] for one in found] == ["outer", "inner"]
    outer, inner = found
    assert outer["start_ns"] <= inner["start_ns"]
    assert inner["start_ns"] + inner["duration_ns"] <= outer["start_ns"] + outer["duration_ns"]
    assert set(found["thread"].tolist()) == {threading.get_native_id()}
    assert set(found["number"].tolist()) == {-1}
    assert found.tobytes() == found.copy().tobytes()
    assert len(found.tobytes()) == 80


def test_a_span_is_a_decorator(window: marks.Window) -> None:
    """The function keeps its name, arguments, result and exceptions."""

    @span("work")
    def work(number: int, *, fail: bool = False) -> int:
        if fail:
            raise ValueError(number)
        return number + 1

    assert (work(1), work.__name__) == (2, "work")
    with pytest.raises(ValueError, match="3"):
        work(3, fail=True)
    assert named(window) == ["work", "work"]


def test_a_span_refuses_what_it_cannot_time() -> None:
    """The call of a coroutine or generator function says nothing of its work; a name is a text."""

    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    for function in (coroutine, generator):
        with pytest.raises(TypeError, match=f"{function.__name__} returns before its work begins"):
            span("x")(function)
    with pytest.raises(TypeError, match="A span's name is 3 of type int; expected str"):
        span(3)  # type: ignore[arg-type]


def test_threads_have_lanes_of_their_own(window: marks.Window) -> None:
    """Spans of one name in many threads, nested and at once, are each whole."""
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        for _ in range(200):
            with span("a"), span("b"):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found, names = mark_records(window)
    assert sorted(names) == ["a", "b"]
    assert len(found) == 8 * 400
    assert (found["duration_ns"] >= 0).all()
    assert (np.diff(found["start_ns"]) >= 0).all()


def test_spans_may_end_in_another_order(window: marks.Window) -> None:
    """Generators of one thread leave their spans as they like."""
    first, second = span("first"), span("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert named(window) == ["first", "second"]


def test_spans_across_the_borders_of_a_window() -> None:
    """One that began before is not in it; one that is open when it closes has no duration; its end is nothing."""
    before, across = span("before"), span("across")
    before.__enter__()
    window = marks.open_window()
    before.__exit__(None, None, None)
    across.__enter__()
    marks.close_window()
    across.__exit__(None, None, None)
    found, names = mark_records(window)
    assert [(names[one["name"]], int(one["duration_ns"])) for one in found] == [("across", marks.STILL_OPEN)]


def test_windows_do_not_mix() -> None:
    """A thread that marked in one window starts afresh in the next."""
    found = []
    for name in ("one", "two"):
        window = marks.open_window()
        with span(name):
            pass
        marks.close_window()
        found.append(named(window))
    assert found == [["one"], ["two"]]


def test_marks_are_limited() -> None:
    """What is over the limit is counted."""
    window = marks.open_window(max_marks=10)
    for _ in range(25):
        with span("x"):
            pass
    marks.close_window()
    assert (len(mark_records(window)[0]), window.dropped) == (10, 15)


def test_names_are_limited(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A new name each time does not fill the memory: later ones share one, said once."""
    monkeypatch.setattr(marks, "MAX_NAMES", len(marks.span.func.__self__))  # type: ignore[attr-defined]
    window = marks.open_window()
    for number in range(3):
        with span(f"not seen before {number}"):
            pass
    marks.close_window()
    assert named(window) == [f"(one of more than {marks.MAX_NAMES} names)"] * 3
    assert len([one for one in caplog.records if "names of spans" in one.getMessage()]) == 1


# ---------------------------------------------------------------- steps and epochs


def test_a_step_lasts_from_the_end_of_the_one_before(window: marks.Window) -> None:
    """The wait for its data belongs to it; the first one of an epoch begins with the epoch. Many may tell."""
    marks.begin_training()
    for _ in range(2):
        marks.begin_epoch(1)
    for step in (1, 2):
        for _ in range(2):
            marks.begin_step(step)
        for _ in range(2):
            marks.end_step(step)
    for _ in range(2):
        marks.end_epoch(1)
    found, _ = mark_records(window)
    steps, epochs = found[found["kind"] == marks.STEP], found[found["kind"] == marks.EPOCH]
    assert steps["number"].tolist() == [1, 2]
    assert epochs["number"].tolist() == [1]
    assert steps["start_ns"][0] == epochs["start_ns"][0]
    assert steps["start_ns"][1] == steps["start_ns"][0] + steps["duration_ns"][0]
    assert (window.first_step, window.last_step) == (1, 2)


def test_one_source_of_steps_a_window(window: marks.Window) -> None:
    """Who marks the first step marks all."""
    window.add_step("a", 7, 0, 1)
    window.add_step("b", 0, 0, 1)
    window.add_step("a", 8, 1, 2)
    window.add_open_step("b", 1, 5)
    window.add_open_step("a", 9, 5)
    found, _ = mark_records(window)
    assert [(int(one["number"]), int(one["duration_ns"])) for one in found] == [(7, 1), (8, 1), (9, -1)]


def test_hooks_are_marked_by_class_and_name(window: marks.Window) -> None:
    class Callback:
        @marks.hook
        def on_step(self, number: int) -> int:
            return number

    class Mine(Callback):
        pass

    assert Callback().on_step(3) == 3
    assert Mine().on_step(number=4) == 4
    assert named(window, marks.CALLBACK) == ["Callback.on_step", "Mine.on_step"]


def test_help_says_what_a_span_is() -> None:
    """Though `span` is no function of Python's, for speed."""
    text = pydoc.render_doc(span, renderer=pydoc.plaintext)
    assert "span(name)" in text
    assert "as a context manager and as a decorator" in text
    assert str(inspect.signature(span)).startswith("(name: str, /)")


# ---------------------------------------------------------------- cost


def cost_ns(number: int = 20_000) -> float:
    """The least time of an empty span."""
    gc.collect()
    timer = timeit.Timer("with span('cost'): pass", globals={"span": span})
    return min(timer.repeat(9, number)) / number * 1e9


def test_a_clock_that_is_set_neither_loses_nor_stretches_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks are ordered by the monotonic clock; the window tells when the wall clock was set, and by how much."""
    window = marks.open_window()
    try:
        marks.begin_training()
        marks.begin_epoch(1)
        real = time.time_ns
        for step, set_by_s in ((1, 0), (2, -3600), (3, -3600), (4, 3600), (5, 0)):
            monkeypatch.setattr(time, "time_ns", lambda set_by_s=set_by_s: real() + set_by_s * 10**9)
            monkeypatch.setattr(time, "time", lambda: time.time_ns() / 10**9)
            marks.begin_step(step)
            with span(f"step {step}"):
                pass
            marks.end_step(step)
    finally:
        marks.close_window()
    found, names = mark_records(window)
    steps = found[found["kind"] == marks.STEP]
    assert steps["number"].tolist() == [1, 2, 3, 4, 5]
    assert (steps["start_ns"][1:] == steps["start_ns"][:-1] + steps["duration_ns"][:-1]).all()
    assert 0 <= int(steps["duration_ns"].max()) < 60 * 10**9
    assert [names[row["name"]] for row in found[found["kind"] == marks.USER]] == [f"step {n}" for n in range(1, 6)]
    assert [round(change.change_ns / 10**9) for change in window.clock_changes] == [-3600, 7200, -3600]


def test_what_a_span_costs() -> None:
    """At most 1 us while profiling and 0.1 us when off, with room for a busy machine."""
    off_ns = cost_ns()
    marks.open_window()
    try:
        on_ns = cost_ns()
    finally:
        marks.close_window()
    print(f"off {off_ns:.0f} ns, on {on_ns:.0f} ns")
    assert off_ns < 300
    assert on_ns < 3000

"""hwts: pairing by (stream, task), in one piece and in many, and what damaged files give."""

from __future__ import annotations

import numpy as np
import pytest

from instrument.trace import hwts
from instrument.trace.text import Losses
from tests.trace import encoders_ascend as encode

S, E = hwts.START, hwts.END


def decode(*pieces: bytes) -> tuple[hwts.Hwts, dict[str, int]]:
    losses = Losses("hwts")
    found = hwts.decode(pieces, losses)
    return found, {problem.what: problem.amount for problem in losses.problems()}


def rows(found: hwts.Hwts) -> list[tuple[int, ...]]:
    pairs = found.pairs
    columns = (pairs[name].tolist() for name in ("stream", "task", "start_cycles", "end_cycles", "record"))
    return list(zip(*columns, strict=True))


def slow_pairs(events: list[tuple[int, int, int, int]]) -> tuple[list[tuple[int, ...]], int]:
    """The rule, record by record: the pairs by their starts, and how many records have no other half."""
    open_starts: dict[tuple[int, int], tuple[int, int]] = {}
    pairs = []
    for record, (kind, stream, task, cycles) in enumerate(events):
        if kind == S:
            open_starts[stream, task] = cycles, record
        elif kind == E and (stream, task) in open_starts:
            start, first = open_starts.pop((stream, task))
            pairs.append((stream, task, start, cycles, first))
    return sorted(pairs, key=lambda pair: pair[4]), len(events) - 2 * len(pairs)


def test_streams_that_overlap_lose_nothing() -> None:
    """Starts and ends of several streams in between each other are paired by (stream, task)."""
    found, lost = decode(encode.hwts([(S, 1, 5, 100), (S, 2, 5, 110), (S, 1, 6, 120), (E, 2, 5, 130), (E, 1, 5, 140)]))
    assert rows(found) == [(1, 5, 100, 140, 0), (2, 5, 110, 130, 1)]
    assert found.unpaired["task"].tolist() == [6]
    assert found.unpaired["is_end"].tolist() == [False]
    assert lost == {}


def test_a_second_start_leaves_the_first_one_alone() -> None:
    """Of two starts in a row the later one is paired; an end without a start, and a second end, stay alone."""
    found, _ = decode(encode.hwts([(E, 1, 1, 5), (S, 1, 1, 10), (S, 1, 1, 20), (E, 1, 1, 30), (E, 1, 1, 40)]))
    assert rows(found) == [(1, 1, 20, 30, 2)]
    assert found.unpaired["cycles"].tolist() == [5, 10, 40]
    assert found.unpaired["is_end"].tolist() == [True, False, True]


def test_a_key_recurs_with_each_step_and_may_take_no_time() -> None:
    """The same task gives an execution a step, one of 0 cycles too."""
    found, _ = decode(encode.hwts([(S, 9, 1, 10), (E, 9, 1, 10), (S, 9, 1, 30), (E, 9, 1, 31)]))
    assert rows(found) == [(9, 1, 10, 10, 0), (9, 1, 30, 31, 2)]


def test_other_types_are_counted_and_passed_over() -> None:
    """Blocks and unknown types do not come between a start and its end, and are counted."""
    kinds = [(S, 1, 1, 10), (2, 1, 1, 11), (3, 1, 1, 12), (4, 0, 0, 0), (5, 1, 1, 13), (7, 1, 1, 14), (E, 1, 1, 20)]
    found, lost = decode(encode.hwts(kinds))
    assert rows(found) == [(1, 1, 10, 20, 0)]
    assert found.type_counts.tolist() == [1, 1, 1, 1, 1, 1, 0, 1]
    assert lost == {"records of unknown type": 2, "records of blocks, which are parts of tasks": 3}


def test_marks_in_the_first_byte_are_read() -> None:
    """Warnings, foreign words and jumps of the running number are counted; the records still count."""
    data = b"".join(
        [
            encode.hwts_record(S, 1, 1, 10, number=15),
            encode.hwts_record(E, 1, 1, 20, number=0, warning=True),
            encode.hwts_record(S, 1, 2, 30, number=3, magic=7),
        ]
    )
    found, _ = decode(data)
    assert (found.warnings, found.without_magic, found.breaks) == (1, 1, 1)
    assert len(found.pairs) == 1


def test_what_was_never_written_is_no_start() -> None:
    """A record of zeros is no start of task 0, and no jump of the running number."""
    start, end = encode.hwts_record(S, 0, 0, 10, number=4), encode.hwts_record(E, 0, 0, 20, number=5)
    found, lost = decode(start + bytes(128) + end)
    assert rows(found) == [(0, 0, 10, 20, 0)]
    assert (found.breaks, lost) == (0, {"records of zeros": 2})


def test_a_counter_beyond_63_bits_is_no_time() -> None:
    """A record with an impossible counter is left out and counted."""
    found, lost = decode(encode.hwts([(S, 1, 1, 1 << 63), (E, 1, 1, 5)]))
    assert (len(found.pairs), len(found.unpaired)) == (0, 1)
    assert lost == {"records with a counter that is no time": 1}


def test_a_stream_of_32_bits_is_kept() -> None:
    """Streams that differ in their upper bits only are two."""
    found, _ = decode(encode.hwts([(S, 1, 1, 10), (S, 1 + (1 << 16), 1, 11), (E, 1, 1, 12), (E, 1 + (1 << 16), 1, 13)]))
    assert rows(found) == [(1, 1, 10, 12, 0), (65_537, 1, 11, 13, 1)]


def test_a_cut_at_any_byte_loses_the_tail_only() -> None:
    """Each prefix of a file gives the pairs that are whole in it, and says how many bytes are left over."""
    data = encode.hwts([(S, 1, 1, 10), (S, 2, 1, 15), (E, 1, 1, 20), (E, 2, 1, 30)])
    for size in range(len(data) + 1):
        found, lost = decode(data[:size])
        assert len(found.pairs) == max(0, size // 64 - 2)
        assert lost.get("bytes at the end that are no whole record", 0) == size % 64


def test_the_borders_of_pieces_do_not_matter() -> None:
    """A file in pieces of any size gives what it gives in one."""
    data = encode.hwts([(kind, stream, 1, 10 * stream + kind) for kind in (S, E) for stream in range(4)])
    whole = rows(decode(data)[0])
    for size in range(1, 140):
        assert rows(decode(*(data[start : start + size] for start in range(0, len(data), size)))[0]) == whole


def random_events(rng: np.random.Generator, count: int) -> list[tuple[int, int, int, int]]:
    kinds, streams, tasks = rng.integers(0, 2, count), rng.integers(0, 70_000, count) % 7, rng.integers(0, 9, count)
    return list(zip(kinds.tolist(), streams.tolist(), tasks.tolist(), range(1, count + 1), strict=True))


@pytest.mark.parametrize("block", [1, 2, 7, 64, 1 << 17])
def test_pairs_are_those_of_the_slow_rule(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Random starts and ends pair as they do one by one, however large the blocks are that are sorted at a time."""
    monkeypatch.setattr(hwts, "_BLOCK_RECORDS", block)
    events = random_events(rng, 600)
    found, _ = decode(encode.hwts(events))
    expected, alone = slow_pairs(events)
    assert rows(found) == expected
    assert len(found.unpaired) == alone
    assert np.all(np.diff(found.unpaired["record"]) > 0)


def test_garbage_is_counted_record_by_record(rng: np.random.Generator) -> None:
    """Random bytes do no harm; each record is in a pair, alone, or counted."""
    found, lost = decode(rng.bytes(64 * 5000 + 13))
    counted = sum(amount for what, amount in lost.items() if what.startswith("records"))
    assert 2 * len(found.pairs) + len(found.unpaired) + counted == 5000
    assert lost["bytes at the end that are no whole record"] == 13


def test_nothing_but_starts_takes_no_longer(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open starts are sorted again only when as many records have come: the work stays linear."""
    monkeypatch.setattr(hwts, "_BLOCK_RECORDS", 64)
    sorted_records = []
    by_key = hwts._by_key

    def counting(streams: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        sorted_records.append(len(streams))
        return by_key(streams, tasks)

    monkeypatch.setattr(hwts, "_by_key", counting)
    count = 64 * 200
    found, _ = decode(encode.hwts([(S, record, 1, record) for record in range(count)]))
    assert len(found.unpaired) == count
    assert sum(sorted_records) < 5 * count


def unwrapped(*ids: tuple[int, int]) -> list[int]:
    streams, tasks = np.array(ids, np.uint32).reshape(-1, 2).T
    return hwts.unwrapped_tasks(streams, tasks.astype(np.uint16)).tolist()


def test_each_stream_wraps_for_itself() -> None:
    """An id that falls from above 65000 to far below has wrapped, on its own stream only."""
    ids = [(1, 65_534), (2, 65_001), (1, 65_535), (1, 0), (2, 65_002), (1, 1), (2, 3), (1, 65_535), (1, 4)]
    assert unwrapped(*ids) == [65_534, 65_001, 65_535, 65_536, 65_002, 65_537, 65_539, 131_071, 131_076]


def test_ids_that_fall_a_little_have_not_wrapped() -> None:
    """Ids out of order near the border, or from below it, are taken as they are."""
    assert unwrapped((1, 65_100), (1, 65_001), (1, 64_000), (1, 3)) == [65_100, 65_001, 64_000, 3]
    assert unwrapped() == []

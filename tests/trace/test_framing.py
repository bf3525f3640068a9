"""Records of a fixed size, found again after bytes were lost."""

from __future__ import annotations

import numpy as np
import pytest

from instrument.trace import data_preprocess, hwts
from instrument.trace.records import BROKEN_BYTES, LEFT_OVER_BYTES, Word, framed
from instrument.trace.text import Losses
from tests.trace import encoders_ascend as encode

S, E = hwts.START, hwts.END


def log(runs: int) -> bytes:
    """Executions of tasks 1, 2, 3, ... on stream 3, ten cycles each, one after the other."""
    starts = [(1 + run % 500, 1000 + 20 * run) for run in range(runs)]
    return encode.hwts([(kind, 3, task, start + 10 * kind) for task, start in starts for kind in (S, E)])


def decoded(data: bytes, piece: int = 1 << 20) -> tuple[hwts.Hwts, dict[str, int]]:
    losses = Losses("hwts")
    found = hwts.decode([data[start : start + piece] for start in range(0, len(data), piece)], losses)
    return found, {one.what: one.amount for one in losses.problems()}


def pairs(found: hwts.Hwts) -> set[tuple[int, ...]]:
    return set(found.pairs[["task", "start_cycles", "end_cycles"]].tolist())


@pytest.mark.parametrize("missing", [1, 17, 63, 65, 100, 4999])
@pytest.mark.parametrize("piece", [37, 1000, 1 << 20])
def test_bytes_missing_inside_cost_the_records_around_them(missing: int, piece: int) -> None:
    """What follows is read as before, whatever the pieces that the file comes in."""
    whole = log(400)
    cut = 20_000
    found, told = decoded(whole[:cut] + whole[cut + missing :], piece)
    every = pairs(decoded(whole)[0])
    assert pairs(found) <= every
    assert len(every - pairs(found)) <= missing // 128 + 3
    assert 0 < told[BROKEN_BYTES] < 2 * 64
    assert len(found.lost) == 1


def test_random_damage_never_invents_an_execution(rng: np.random.Generator) -> None:
    """Ranges of bytes cut out anywhere: a pair that is not in the whole file goes over a place that is told as lost.

    Or it ends there: a cut of whole records in the middle of two makes one of both, with the time of the second. What
    is missing in multiples of 16 records, where the running number comes round, is not seen by anybody.
    """
    whole = log(300)
    every = pairs(decoded(whole)[0])
    for _ in range(60):
        data = whole
        for _ in range(int(rng.integers(1, 4))):
            start, length = int(rng.integers(0, len(data))), int(rng.integers(1, 3000))
            length += length % (16 * 64) == 0
            data = data[:start] + data[start + length :]
        found, _ = decoded(data, int(rng.integers(10, 5000)))
        for _, begin, end in pairs(found) - every:
            assert any(begin <= lost["end_cycles"] and lost["start_cycles"] <= end for lost in found.lost)


def test_a_missing_slice_that_ends_on_a_record_is_seen_by_the_running_number() -> None:
    """The start before it was paired with a later end of its task: that place is among the lost ones."""
    data = encode.hwts([(S, 3, 1, 100), (E, 3, 1, 110), (S, 3, 1, 120), (E, 3, 1, 130), (S, 3, 2, 140), (E, 3, 2, 150)])
    found, told = decoded(data[:64] + data[3 * 64 :])
    assert pairs(found) == {(1, 100, 130), (2, 140, 150)}
    assert found.lost.tolist() == [(100, 130)]
    assert BROKEN_BYTES not in told


def test_a_file_without_the_word_is_read_as_it_is() -> None:
    """Some builds do not write it; that costs nothing but a count."""
    data = b"".join(encode.hwts_record(kind, 3, 1, 10 + kind, magic=0, number=kind) for kind in (S, E)) * 300
    found, told = decoded(data)
    assert (len(found.pairs), found.without_magic, BROKEN_BYTES in told) == (300, 600, False)


def test_one_damaged_word_costs_no_record() -> None:
    """Its neighbours say where the records begin."""
    data = bytearray(log(50))
    data[64 * 20 + 2] ^= 1
    found, told = decoded(bytes(data))
    assert (len(found.pairs), found.without_magic, BROKEN_BYTES in told) == (50, 1, False)


def test_records_of_the_ai_cpu_are_found_again() -> None:
    """The same for the kinds whose word is their first."""
    whole = b"".join(encode.aicpu_record(3, task, 1000 * task, 1000 * task + 50) for task in range(1, 60))
    losses = Losses("f")
    tasks = data_preprocess.ai_cpu(whole[:3000] + whole[3050:], losses).rows
    assert len(tasks) >= 57
    assert set(tasks["task"].tolist()) <= set(range(1, 60))
    assert (tasks["run_end_cycles"] - tasks["run_start_cycles"] == 50).all()
    assert BROKEN_BYTES in [one.what for one in losses.problems()]


def test_the_rest_of_a_record_is_left_over() -> None:
    """As at the end of every file that was cut."""
    losses = Losses("f")
    assert len(framed(log(1) + b"abc", hwts.RECORD, Word(hwts.MAGIC_WORD, 2), losses)) == 2
    assert [(one.what, one.amount) for one in losses.problems()] == [(LEFT_OVER_BYTES, 3)]

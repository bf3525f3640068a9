"""training_trace: marks in record order become steps and the communications in them."""

from __future__ import annotations

import numpy as np
import pytest

from instrument.trace.events import MISSING
from instrument.trace.step_traces import StepTrace, training_trace
from instrument.trace.text import Losses
from tests.trace import encoders_ascend as encode

Mark = tuple[int, int, int]


def decode(data: bytes, skips_first: bool = False) -> tuple[StepTrace, dict[str, int]]:
    losses = Losses("training_trace")
    found = training_trace(data, losses, skips_first)
    return found, {problem.what: problem.amount for problem in losses.problems()}


def step(start: int, *between: Mark, end_tag: int = 255, job: int = 0) -> list[Mark]:
    """A step that starts at `start`, with its forward mark 10 behind that, the backward one 60, and its end 100."""
    return [(job, 1, start), (1, 1, start + 10), *between, (2, 1, start + 60), (end_tag, 1, start + 100)]


def columns(found: StepTrace) -> list[tuple[int, ...]]:
    return [tuple(row) for row in found.steps[["step", "start", "forward", "backward", "end"]].tolist()]


def test_a_step_starts_at_the_end_of_the_one_before() -> None:
    """The first step starts with its forward pass; the counter of the mark that begins a step is not used."""
    found, lost = decode(encode.training_trace(step(1000) + step(1200)))
    assert columns(found) == [(1, 1010, 1010, 1060, 1100), (2, 1100, 1210, 1260, 1300)]
    assert encode.step_rows(found).tolist() == [
        [1, 1010, 1100, 90, 1010, 1060, 0, 50, 40],
        [2, 1100, 1300, 200, 1210, 1260, 110, 50, 40],
    ]
    assert lost == {}


def test_parts_add_up_to_the_step() -> None:
    """Interval, forward with backward, and tail are the whole of each step."""
    rows = encode.step_rows(decode(encode.training_trace(step(1000) + step(1200) + step(1500)))[0])
    assert np.array_equal(rows[:, 3], rows[:, 6:].sum(axis=1))


def test_record_order_counts_and_not_the_counter() -> None:
    """A file that holds the marks of a step by their kind gives the same steps."""
    marks = [(0, 1, 0), (1, 1, 20), (2, 1, 70), (255, 1, 90), (0, 1, 5), (1, 1, 130), (2, 1, 120), (255, 1, 110)]
    assert columns(decode(encode.training_trace(marks))[0]) == [(1, 20, 20, 70, 90), (2, 90, 130, 120, 110)]


def test_a_step_without_forward_or_backward_is_told() -> None:
    """Such a step has no row in the old table, but its number, its end, and `MISSING` for what it lacks."""
    marks = [*step(0), (0, 1, 200), (2, 1, 260), (255, 1, 300), (0, 1, 300), (1, 1, 310), (255, 1, 400), *step(400)]
    found, _ = decode(encode.training_trace(marks))
    assert columns(found) == [
        (1, 10, 10, 60, 100), (2, 100, MISSING, 260, 300), (3, 300, 310, MISSING, 400), (4, 400, 410, 460, 500),
    ]  # fmt: skip
    assert encode.step_rows(found)[:, 0].tolist() == [1, 4]


def test_a_first_step_without_forward_has_no_start() -> None:
    """Where the first step begins is then not told."""
    assert columns(decode(encode.training_trace([(2, 1, 60), (255, 1, 100)]))[0]) == [(1, MISSING, MISSING, 60, 100)]


def test_the_step_that_sets_up_the_queue_is_skipped() -> None:
    """It uses no number, but the next step starts at its end; what communicates in it is left out with it."""
    marks = step(0, (3, 7, 20), (4, 7, 30)) + step(200, (3, 7, 220), (4, 7, 230))
    found, lost = decode(encode.training_trace(marks), skips_first=True)
    assert columns(found) == [(1, 100, 210, 260, 300)]
    assert found.reduces[["step", "start"]].tolist() == [(1, 220)]
    assert lost == {"steps that set up the queue": 1}


@pytest.mark.parametrize(("end_tag", "job"), [(255, 0), (255, 10_010), (65_535, 70_005)])
def test_both_end_tags_are_told(end_tag: int, job: int) -> None:
    """The later end tag is known by its being there before the second forward mark; 255 is a communication then."""
    found, _ = decode(encode.training_trace(step(0, end_tag=end_tag, job=job) + step(200, end_tag=end_tag, job=job)))
    assert found.steps["end"].tolist() == [100, 300]


def test_a_job_number_like_the_later_end_tag_ends_nothing() -> None:
    """A number of 65535 that first comes after the second forward mark is no end."""
    marks = [(1, 1, 10), (2, 1, 60), (255, 1, 100), (1, 1, 110), (2, 1, 160), (255, 1, 200), (65_535, 1, 210)]
    assert decode(encode.training_trace(marks))[0].steps["end"].tolist() == [100, 200]


def test_communication_pairs_by_stream_and_order() -> None:
    """Two marks in a row of a stream are a pair if the first is odd and the second one more."""
    marks = step(0, (3, 20, 20), (3, 21, 22), (4, 20, 25), (4, 21, 29), (5, 20, 40), (6, 20, 45))
    found, lost = decode(encode.training_trace(marks))
    names = ["step", "stream", "number", "tag", "start", "end"]
    assert found.reduces[names].tolist() == [(1, 20, 0, 3, 20, 25), (1, 20, 1, 5, 40, 45), (1, 21, 0, 3, 22, 29)]
    assert lost == {}


def test_communication_without_its_other_half_is_counted() -> None:
    """An odd number of marks on a stream tells nothing of that stream's; marks that do not fit are no pair."""
    odd = step(0, (3, 20, 20), (4, 20, 25), (5, 20, 40), (3, 21, 20), (4, 21, 30))
    found, lost = decode(encode.training_trace(odd))
    assert found.reduces["stream"].tolist() == [21]
    assert lost == {"communication marks without their other half": 3}
    wrong = step(0, (3, 20, 20), (6, 20, 25), (4, 21, 20), (5, 21, 30), (7, 20, 30), (8, 20, 33))
    found, lost = decode(encode.training_trace(wrong))
    assert found.reduces[["stream", "number"]].tolist() == [(20, 1)]
    assert lost == {"communication marks without their other half": 4}


def test_a_step_that_does_not_end_is_counted() -> None:
    """Marks behind the last end give no step."""
    found, lost = decode(encode.training_trace([*step(0), (0, 1, 100), (1, 1, 110), (3, 1, 120)]))
    assert len(found.steps) == 1
    assert lost == {"marks of a step that does not end": 2}


def test_of_repeated_marks_the_outermost_count() -> None:
    """The first forward and the last backward mark of a step are those of gradients that add up over batches."""
    found, lost = decode(encode.training_trace([(1, 1, 10), (2, 1, 20), (1, 1, 30), (2, 1, 40), (255, 1, 50)]))
    assert columns(found) == [(1, 10, 10, 40, 50)]
    assert lost == {"forward and backward marks that a step has more than once": 2}


def test_a_job_number_that_changes_is_told() -> None:
    """The mark that begins a step carries one number in a whole file."""
    _, lost = decode(encode.training_trace(step(0, job=300) + step(200, job=301)))
    assert lost == {"changes of the job's number, which is one in a whole file": 1}


def test_a_cut_at_any_byte_loses_the_tail_only() -> None:
    """Each prefix of a file gives the steps that are whole in it, and says how many bytes are left over."""
    data = encode.training_trace(step(0) + step(200))
    for size in range(len(data) + 1):
        found, lost = decode(data[:size])
        assert len(found.steps) == size // 80
        assert lost.get("bytes at the end that are no whole record", 0) == size % 20


def test_garbage_does_no_harm(rng: np.random.Generator) -> None:
    """Random bytes, and random tags among the known ones, give steps and counts."""
    decode(rng.bytes(20_011))
    tags, streams, cycles = (rng.integers(0, high, 5000).tolist() for high in (300, 3, 1 << 62))
    found, _ = decode(encode.training_trace(zip(tags, streams, cycles, strict=True)))
    assert len(found.steps) == tags.count(255)

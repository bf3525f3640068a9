"""ts_track: steps of one and of several models, communications, and fetches of data."""

from __future__ import annotations

import numpy as np

from instrument.trace.events import MISSING
from instrument.trace.step_traces import MARK, TS_RECORD, StepTrace, ts_track
from instrument.trace.text import Losses
from tests.trace import encoders_ascend as encode


def decode(data: bytes) -> tuple[StepTrace, dict[str, int]]:
    losses = Losses("ts_track")
    found = ts_track(data, losses)
    return found, {problem.what: problem.amount for problem in losses.problems()}


def step(start: int, index: int = 1, model: int = 1, *between: tuple[int, int]) -> bytes:
    """A model that starts at `start`, with forward and backward marks 10 and 60 behind that, and its end 100."""
    marks = [(0, start), (2, start + 10), *between, (3, start + 60), (4, start + 100), (1, start + 101)]
    return encode.ts_track(marks, model=model, index=index)


def test_steps_know_their_iteration() -> None:
    """A step starts at the end of the one before, and has the number that the device gives it."""
    found, lost = decode(step(1000, 7) + step(1200, 8))
    names = ["step", "start", "forward", "backward", "end", "model", "index"]
    assert found.steps[names].tolist() == [
        (1, 1010, 1010, 1060, 1100, 1, 7), (2, 1100, 1210, 1260, 1300, 1, 8),
    ]  # fmt: skip
    assert lost == {}


def test_models_take_turns() -> None:
    """A step starts where the last one ended, of whatever model; its marks are those of its own model."""
    found, _ = decode(step(0, 1, 11) + step(200, 1, 12) + step(400, 2, 11))
    assert found.steps[["start", "end", "model", "index"]].tolist() == [
        (10, 100, 11, 1), (100, 300, 12, 1), (300, 500, 11, 2),
    ]  # fmt: skip


def test_marks_of_models_do_not_mix() -> None:
    """Where marks of two models lie between each other, each goes to its own step."""
    data = b"".join(
        encode.ts_track([mark], model=model)
        for model, mark in [(1, (2, 10)), (2, (2, 20)), (1, (3, 30)), (1, (4, 40)), (2, (3, 50)), (2, (4, 60))]
    )
    found, _ = decode(data)
    assert found.steps[["start", "forward", "backward", "end", "model"]].tolist() == [
        (10, 10, 30, 40, 1), (40, 20, 50, 60, 2),
    ]  # fmt: skip


def test_a_step_of_inference_has_no_backward() -> None:
    """What is not marked is `MISSING`."""
    found, _ = decode(encode.ts_track([(0, 0), (2, 10), (4, 50), (1, 51)]))
    assert found.steps[["forward", "backward", "end"]].tolist() == [(10, MISSING, 50)]
    assert encode.step_rows(found).tolist() == []


def test_communications_and_fetches_are_pairs() -> None:
    """Even tags start and odd ones end; from 20000 on they are fetches of data."""
    marks = ((10_000, 20), (10_001, 25), (20_000, 26), (10_002, 30), (20_001, 33), (10_003, 41))
    found, lost = decode(step(0, 1, 1, *marks))
    assert found.reduces[["tag", "start", "end"]].tolist() == [(10_000, 20, 25), (10_002, 30, 41)]
    assert found.fetches[["step", "stream", "tag", "start", "end"]].tolist() == [(1, 2, 20_000, 26, 33)]
    assert lost == {}


def test_a_pair_the_wrong_way_round_is_counted() -> None:
    """An odd tag starts nothing here."""
    found, lost = decode(step(0, 1, 1, (10_001, 20), (10_002, 25), (20_000, 30)))
    assert (len(found.reduces), len(found.fetches)) == (0, 0)
    assert lost == {"communication marks without their other half": 2, "fetch marks without their other half": 1}


def test_records_of_other_kinds_are_counted() -> None:
    """Known other kinds, unknown ones and unknown tags are told apart."""
    others = encode.ts_track([(4, 20)], kind=11) + encode.ts_track([(4, 20)], kind=99)
    found, lost = decode(step(0) + others + encode.ts_track([(5, 30), (60_000, 31), (60_001, 32), (60_002, 33)]))
    assert len(found.steps) == 1
    assert lost == {
        "records of memcpy, task types, wrapped ids and blocks": 1,
        "records of unknown type": 1,
        "marks with an unknown tag": 2,
    }


def test_a_cut_at_any_byte_loses_the_tail_only() -> None:
    """Each prefix of a file gives the steps that are whole in it, and says how many bytes are left over."""
    data = step(0) + step(200, 2)
    for size in range(len(data) + 1):
        found, lost = decode(data[:size])
        assert len(found.steps) == (size >= 160) + (size >= 360)
        assert lost.get("bytes at the end that are no whole record", 0) == size % 40


def test_garbage_does_no_harm(rng: np.random.Generator) -> None:
    """Random bytes, and random marks of many models, give steps and counts."""
    decode(rng.bytes(40_017))
    records = np.frombuffer(rng.bytes(40 * 2000), TS_RECORD).copy()
    records["kind"], records["tag"] = MARK, rng.choice([0, 1, 2, 3, 4, 10_000, 10_001, 20_000, 20_001], 2000)
    records["cycles"] &= 0xFFFF_FFFF
    found, _ = decode(records.tobytes())
    assert len(found.steps) == np.count_nonzero(records["tag"] == 4)

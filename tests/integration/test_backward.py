"""Summary operators record where MindSpore's own do: in gradients, and in networks whose gradient is taken."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from instrument import Run
from instrument.codec import histogram as histogram_codec
from instrument.codec import image as image_codec
from tests.integration.conftest import Ran, Script
from tests.integration.scripts.backward import PLACES

#: Neither is compiled with MindSpore's own operators: InsertGradientOf in a branch on a tensor.
REFUSED = {"graph": {"branch"}, "pynative": set[str]()}
#: MindSpore drops an unused element of a tuple with its side effects, its own operators too.
DROPPED = {"graph": {"tuple"}, "pynative": set[str]()}


@pytest.fixture
def ran(script: Script, mode: str) -> Ran:
    return script("backward", mode)


def values(run: Run) -> dict[str, Any]:
    """All that was recorded of a gradient, by kind and step, as plain numbers."""
    found: dict[str, Any] = {kind: {} for kind, tags in run.tags().items() if tags}
    for kind in found:
        for step, _, value in run.points(kind, kind, superseded=True):
            if kind == "image":
                value = image_codec.pixels(value).tolist()
            elif kind == "histogram":
                value = (value.counts.tolist(), value.min, value.max, value.sum)
            elif kind == "tensor":
                value = value.array.tolist()
            found[kind][step] = value
    return found


def expected(place: str, step: int) -> np.ndarray[Any, Any]:
    """Of x * 1 squared and summed, the gradient at x, or x itself in the forward pass."""
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4) * step
    return x if place.startswith("forward") else 2 * x


@pytest.mark.parametrize("place", list(PLACES))
def test_operators_record_wherever_mindspores_do(ran: Ran, mode: str, place: str) -> None:
    """All four kinds, at each step, with the values of the gradient, and never less than MindSpore's own."""
    failed = json.loads((ran.directory / "failed.json").read_text())
    ours, theirs = values(ran.run(f"{place}-ours")), values(ran.run(f"{place}-mindspore"))
    assert {f"{place}-ours" in failed, f"{place}-mindspore" in failed} == {place in REFUSED[mode]}, failed
    assert theirs.items() <= ours.items()
    if place in REFUSED[mode] | DROPPED[mode]:
        assert theirs == {}
        return
    arrays = {step: expected(place, step) for step in (1, 2)}
    histograms = {step: histogram_codec.from_array(array) for step, array in arrays.items()}
    assert ours["scalar"] == {step: array.sum() for step, array in arrays.items()}
    assert ours["tensor"] == {step: array.tolist() for step, array in arrays.items()}
    assert ours["histogram"] == {
        step: (one.counts.tolist(), one.min, one.max, one.sum) for step, one in histograms.items()
    }
    assert set(ours["image"]) == {1, 2}

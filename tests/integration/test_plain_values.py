"""Summary operators that are given numbers, or what is no value at all, in compiled graphs and outside."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Ran, Script


@pytest.fixture(params=["graph", "pynative"])
def ran(script: Script, request: pytest.FixtureRequest) -> Ran:
    return script("plain_values", request.param)


def test_numbers_are_recorded(ran: Ran) -> None:
    """Python numbers and extents are scalars, tensors, histograms; a matrix is a picture, a boxed scalar a number."""
    run = ran.run()
    assert run.tags() == {
        "scalar": ["bool", "boxed", "extent", "float", "int"],
        "image": ["flat"],
        "tensor": ["number"],
        "histogram": ["number"],
    }
    values = {tag: run.scalars(tag).value.tolist() for tag in run.tags()["scalar"]}
    assert values == {
        "bool": [1.0] * 3, "boxed": [0.0, 6.0, 12.0], "extent": [2.0] * 3, "float": [1.5] * 3, "int": [3.0] * 3,
    }  # fmt: skip
    assert [(run.tensors("number")[step].shape, int(run.tensors("number")[step])) for step in range(3)] == [((), 2)] * 3
    assert [(run.histograms("number")[step].min, run.histograms("number")[step].count) for step in range(3)] == [
        (2.5, 1)
    ] * 3


def test_what_is_no_value_is_said_once_and_stops_nothing(ran: Ran) -> None:
    """An empty name, a vector as a scalar, None, a tuple, a picture of the wrong rank."""
    said = ran.said("is not recorded")
    kinds = [
        "scalar summary ''",
        "tensor summary ''",
        "'vector'",
        "'none'",
        "'tuple'",
        "image summary 'number'",
    ]
    assert [sum(kind in line for line in said) for kind in kinds] == [1] * len(kinds)
    assert len(said) == len(kinds)

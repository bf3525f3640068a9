"""Learning rates of every form: what is recorded is what moved the weights, at each step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.integration.conftest import Script

LIST = [0.5, 0.25, 0.125, 0.75, 1.0, 2.0]
HALVED = [0.5 * 0.5 ** (step / 2) for step in range(6)]
STEPPED = [0.5, 0.5, 0.25, 0.25, 0.125, 0.125]

#: What each training's rate is by its definition; two lists where two groups have rates of their own.
RATES: dict[str, list[list[float]]] = {
    "constant": [[0.1] * 6],
    "tensor": [[0.25] * 6],
    "list": [LIST],
    "list, inside the network": [LIST],
    "list, sunk": [LIST],
    "table": [[0.1, 0.1, 0.05, 0.05, 0.025, 0.025]],
    "schedule": [HALVED],
    "schedule, tuple": [HALVED],
    "cosine": [[0.01 + 0.245 * (1 + math.cos(math.pi * step / 6)) for step in range(6)]],
    "own": [[0.125 * (step + 1) for step in range(6)]],
    "grouped constant": [[0.05] * 6, [0.5] * 6],
    "grouped dynamic": [HALVED, [0.25] * 6],
    "grouped list": [LIST, [0.5] * 6],
    "experimental": [STEPPED],
    "experimental grouped": [STEPPED, [rate / 2 for rate in STEPPED]],
}


@pytest.mark.parametrize("name", RATES)
def test_the_rate_is_the_one_that_was_used(script: Script, mode: str, name: str) -> None:
    """At every step the recorded rate is that of its definition, and the distance that the weights moved."""
    ran = script("rates", mode)
    run, expected = ran.run(name), RATES[name]
    grouped = len(expected) > 1
    tags = [f"learning_rate/group{index}/auto" if grouped else "learning_rate/auto" for index in range(len(expected))]
    assert run.tags() == {"scalar": sorted([*tags, "loss/auto"])}
    weights = ran.expected[f"{name}/weights"]
    moved = -np.diff(weights, axis=0, prepend=0)
    for index, tag in enumerate(tags):
        points = run.scalars(tag)
        assert points.step.tolist() == [1, 2, 3, 4, 5, 6]
        np.testing.assert_allclose(points.value, expected[index], rtol=2e-6)
        for column in range(2) if not grouped else (index,):
            np.testing.assert_allclose(points.value, moved[:, column], rtol=3e-6)
    assert run.scalars("loss/auto").value.tolist() == ran.expected[f"{name}/losses"].tolist()


def test_the_rates_are_in_the_lineage(script: Script, mode: str) -> None:
    """The lineage names the optimiser, its first and its last rate, of the first group where there are several."""
    ran = script("rates", mode)
    for name, rates in RATES.items():
        train = ran.run(name).lineage["train"]
        assert train["hyper_parameters"]["optimizer"] == "SGD"
        at_end = rates[0][-1] / (2 if name.startswith("experimental") else 1)  # the scheduler has moved on
        assert train["hyper_parameters"]["learning_rate"] == pytest.approx(rates[0][0], rel=2e-6)
        assert train["algorithm"]["last_learning_rate"] == pytest.approx(at_end, rel=2e-6)
        loss = ran.expected[f"{name}/losses"][-1]
        assert train["algorithm"]["loss"] == pytest.approx(loss, rel=2e-6)


def test_nothing_is_said_about_rates(script: Script, mode: str) -> None:
    """Each of them can be collected: the log has no word on it."""
    assert script("rates", mode).said("SummaryCollector does not collect") == []

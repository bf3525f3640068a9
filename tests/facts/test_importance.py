"""The parameter that decides a metric is found, with its direction."""

from __future__ import annotations

import math

import numpy as np
import pytest

from instrument.facts.importance import importances, spearman


def runs(rng: np.random.Generator, count: int) -> list[dict[str, object]]:
    """Runs whose accuracy depends on the optimiser and falls with log(lr), and on nothing else."""
    rows = []
    for index in range(count):
        row: dict[str, object] = {
            "lr": float(10 ** rng.uniform(-4, -1)),
            "optimizer": str(rng.choice(["Adam", "SGD", "LAMB"])),
            "batch_size": int(rng.choice([16, 32, 64])),
            "momentum": float(rng.random()),
            "name": f"run {index}",
            "epochs": 10,
        }
        effect = {"Adam": 0.2, "SGD": 0.0, "LAMB": 0.1}[str(row["optimizer"])]
        row["accuracy"] = 0.5 + effect - 0.1 * (math.log10(float(str(row["lr"]))) + 2.5) + 0.01 * rng.normal()
        rows.append(row)
    return rows


def test_what_decides_comes_first(rng: np.random.Generator) -> None:
    """Optimiser and learning rate share the variance; a parameter without an effect has next to none."""
    names = ["lr", "optimizer", "batch_size", "momentum", "name", "epochs"]
    found = {row.parameter: row for row in importances(runs(rng, 400), "accuracy", names)}
    assert list(found)[:2] == ["optimizer", "lr"] or list(found)[:2] == ["lr", "optimizer"]
    assert found["lr"].importance > 0.25
    assert found["lr"].correlation < -0.5
    assert found["optimizer"].importance > 0.25
    assert math.isnan(found["optimizer"].correlation)
    assert found["batch_size"].importance < 0.05
    assert found["momentum"].importance < 0.05
    assert (found["name"].note, found["epochs"].note) == ("all_different", "constant")
    assert all(math.isnan(found[name].importance) for name in ("name", "epochs"))


def test_noise_is_not_important(rng: np.random.Generator) -> None:
    """The mean over many draws is near 0, as the number of groups is accounted for."""
    shares = [
        importances([{"x": float(rng.random()), "y": float(rng.random())} for _ in range(40)], "y", ["x"])[0].importance
        for _ in range(200)
    ]
    assert np.mean(shares) < 0.08


def test_an_effect_that_turns_is_seen(rng: np.random.Generator) -> None:
    """A parabola has no rank correlation, and yet decides."""
    rows = [{"x": x, "y": (x - 0.5) ** 2} for x in rng.random(200).tolist()]
    (found,) = importances(rows, "y", ["x"])
    assert found.importance > 0.7
    assert abs(found.correlation) < 0.4


def test_runs_without_a_value_take_no_part() -> None:
    """Neither those that lack the parameter, nor those whose target is missing or not finite."""
    rows: list[dict[str, object]] = [{"x": index % 2, "y": float(index % 2)} for index in range(10)]
    rows += [{"y": 5.0}, {"x": None, "y": 5.0}, {"x": 1}, {"x": 1, "y": math.nan}, {"x": 1, "y": "fast"}]
    (found,) = importances(rows, "y", ["x", "y"])
    assert found[:4] == ("x", 1.0, pytest.approx(1.0), 10)
    (nothing,) = importances([], "y", ["x"])
    assert (nothing.runs, nothing.note) == (0, "constant")
    assert math.isnan(nothing.importance)


def test_few_runs_are_told() -> None:
    """Below eight the figure says little."""
    rows = [{"x": index, "y": float(index)} for index in range(5)]
    (found,) = importances(rows, "y", ["x"])
    assert found.note == "few_runs"


def test_a_constant_metric_depends_on_nothing() -> None:
    """Its variance is 0, of which no parameter has a share."""
    (found,) = importances([{"x": index % 3, "y": 1.0} for index in range(12)], "y", ["x"])
    assert found.importance == 0.0


def test_rank_correlation_equals_scipys(rng: np.random.Generator) -> None:
    """With equal values too."""
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    for _ in range(50):
        a, b = rng.integers(0, 8, 30).astype(float), rng.normal(size=30)
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
    assert math.isnan(spearman(np.ones(5), np.arange(5.0)))
    assert math.isnan(spearman(np.empty(0), np.empty(0)))


def test_numbers_of_any_type() -> None:
    """NumPy's are numbers; an integer beyond the largest float is a text."""
    rows = [{"x": np.float32(index % 2), "y": np.float32(index % 2)} for index in range(10)]
    (found,) = importances(rows, "y", ["x"])
    assert found[:4] == ("x", 1.0, pytest.approx(1.0), 10)
    (huge,) = importances([{"x": 10**400 * (index % 2), "y": float(index % 2)} for index in range(10)], "y", ["x"])
    assert (huge.importance, huge.runs) == (1.0, 10)
    assert math.isnan(huge.correlation)
    (none,) = importances([{"x": 1, "y": 10**400}], "y", ["x"])
    assert none.runs == 0

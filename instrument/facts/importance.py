"""How much each parameter of some runs matters for a metric, and in which direction.

The problem: after a search over hyper-parameters the user asks which of them decided the result.

The strategy: for each parameter, the share of the target's variance that lies between groups of runs with a similar
value (quantile bins for numbers, categories otherwise), less the share that such groups have by chance: adjusted eta
squared. It needs no model, takes milliseconds, and sees effects that are not monotonous. Spearman's rank correlation
beside it gives the direction. Both are computed from the runs that have the parameter and a finite target.

Rejected as the only way: the permutation importance of a random forest. It sees interactions of parameters, but needs
scikit-learn and some hundred runs to be stable, and its figures change with the seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Fewer runs say little; a note says so.
FEW_RUNS = 8
_MOST_BINS = 6
_RUNS_PER_BIN = 4


class Importance(NamedTuple):
    """How much a parameter matters.

    `importance` is from 0 (none) to 1 (decides everything), NaN where it cannot be told. `correlation` is Spearman's,
    from -1 to 1, NaN for categories and constants. `runs` have the parameter and the target. `note` is `"constant"`,
    `"few_runs"`, `"all_different"` (texts that differ in each run) or empty.
    """

    parameter: str
    importance: float
    correlation: float
    runs: int
    note: str = ""


def importances(rows: Sequence[Mapping[str, object]], target: str, parameters: Sequence[str]) -> list[Importance]:
    """Return the importance of each parameter for a column of `rows`, the most important first.

    `rows` are runs with their values by column name. Values may be numbers, booleans, texts or anything with a text;
    None and a missing name mean that the run has none.
    """
    found = [_importance(rows, target, parameter) for parameter in parameters if parameter != target]
    return sorted(found, key=lambda row: (math.isnan(row.importance), -row.importance, -row.runs, row.parameter))


def _importance(rows: Sequence[Mapping[str, object]], target: str, parameter: str) -> Importance:
    pairs = [
        (row[parameter], float(row[target]))  # type: ignore[arg-type]
        for row in rows
        if row.get(parameter) is not None and is_number(row.get(target))
    ]
    values = [value for value, _ in pairs]
    results = np.asarray([result for _, result in pairs], np.float64)
    correlation = math.nan
    if all(map(is_number, values)) and values:
        numbers = np.asarray(values, np.float64)
        groups = _quantile_bins(numbers)
        correlation = spearman(numbers, results)
    else:
        names = [repr(value) for value in values]
        groups = np.unique(np.asarray(names, np.str_), return_inverse=True)[1].reshape(-1)
        if len(set(names)) == len(names) > 1:
            return Importance(parameter, math.nan, math.nan, len(pairs), "all_different")
    if len(set(map(repr, values))) < 2:
        return Importance(parameter, math.nan, math.nan, len(pairs), "constant")
    note = "few_runs" if len(pairs) < FEW_RUNS else ""
    return Importance(parameter, _adjusted_eta_squared(results, groups), correlation, len(pairs), note)


def is_number(value: object) -> bool:
    """Return True for a number or a boolean, NumPy's too, that is finite as a float."""
    if not isinstance(value, int | float | np.number | np.bool_) or isinstance(value, complex | np.complexfloating):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return Spearman's rank correlation of two arrays of equal length, NaN if one is constant or has fewer than 2.

    It is Pearson's correlation of the ranks; equal values share the mean of their ranks.
    """
    ranks = [_ranks(values) for values in (a, b)]
    centred = [rank - rank.mean() if rank.size else rank for rank in ranks]
    norm = math.sqrt(float((centred[0] ** 2).sum()) * float((centred[1] ** 2).sum()))
    return float(np.clip((centred[0] * centred[1]).sum() / norm, -1.0, 1.0)) if norm else math.nan


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each value from 0, the mean of their ranks for equal ones."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    means = np.cumsum(counts) - (counts + 1) / 2
    return np.asarray(means[inverse.reshape(-1)], np.float64)


def _quantile_bins(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bin of each number; equal numbers share one, and few different numbers have one each."""
    different = np.unique(numbers)
    bins = max(2, min(_MOST_BINS, numbers.size // _RUNS_PER_BIN))
    if different.size <= bins:
        return np.searchsorted(different, numbers)
    edges = np.unique(np.quantile(numbers, np.arange(1, bins) / bins, method="higher"))
    return np.searchsorted(edges, numbers, side="left")


def _adjusted_eta_squared(results: NDArray[np.float64], groups: NDArray[np.int64]) -> float:
    """Return the share of the variance between groups, adjusted for their number; NaN if it cannot be told.

    1 - (SS_within / (n - k)) / (SS_total / (n - 1)), Ezekiel's adjustment of eta squared, not below 0.
    """
    n, counts = results.size, np.bincount(groups)
    k = int(np.count_nonzero(counts))
    # Scaled, as the square of a large number is infinite.
    scale = float(np.abs(results).max()) or 1.0
    scaled = results / scale
    total = float(((scaled - scaled.mean()) ** 2).sum())
    if n <= k or total == 0.0:
        return math.nan if total else 0.0
    means = np.bincount(groups, scaled) / np.maximum(counts, 1)
    within = float(((scaled - means[groups]) ** 2).sum())
    return max(0.0, 1.0 - (within / (n - k)) / (total / (n - 1)))

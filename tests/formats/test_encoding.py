"""Plain values as JSON and as cells of CSV."""

from __future__ import annotations

import io
import math

import pytest

from instrument.formats.text import csv_cell, flatten_row, plain, write_csv


def test_json_has_no_nan_and_no_surrogates() -> None:
    """They are texts, at any depth."""
    value = {"a": [math.nan, math.inf, -math.inf, 0.5], "b": {"c": "x\udcff"}, "d": (None, True)}
    assert plain(value) == {"a": ["NaN", "Infinity", "-Infinity", 0.5], "b": {"c": "x\\udcff"}, "d": [None, True]}


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, None), (True, "true"), (3, 3), (0.1, 0.1), (math.nan, "NaN"), ("=1+1", "'=1+1"), ("a", "a"),
        ([1, math.inf], '[1, "Infinity"]'), ({"a": 1}, '{"a": 1}'),
    ],
)  # fmt: skip
def test_a_cell(value: object, cell: object) -> None:
    """Formulas are made texts, lists and dictionaries are JSON."""
    assert csv_cell(value) == cell


def test_a_row_is_flattened_at_any_depth() -> None:
    """Names have dots between."""
    assert flatten_row({"a": 1, "b": {"c": 2, "d": {"e": [3]}}}) == {"a": 1, "b.c": 2, "b.d.e": [3]}


def test_csv_is_quoted_where_it_must_be() -> None:
    """And has the line ends of Unix."""
    file = io.StringIO()
    write_csv(file, [["a", "b"], ["x,y", None], ['"', 1.5]])
    assert file.getvalue() == 'a,b\n"x,y",\n"""",1.5\n'

"""Tables: values stay exact, texts are for people, nothing out of a file can run."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from instrument.analyse import layout
from instrument.analyse.layout import Screen
from instrument.analyse.operators import KeyAverages
from instrument.analyse.table import Table


def table() -> Table:
    columns = {
        "name": ["b", "a", "c"],
        "total_ns": [1_500, None, 2_500_000],
        "share_percent": np.array([1.0, 2.0, 97.0]),
    }
    return Table("things", columns, "Things", ["one note"])


def test_columns_are_exact_and_cannot_be_written() -> None:
    """Integers stay integers, what is not known is masked, and no column can be changed."""
    found = table()
    assert found["total_ns"].dtype == np.int64
    assert found["total_ns"].tolist() == [1_500, None, 2_500_000]
    assert found["total_ns"].sum() == 2_501_500
    for name in found.columns:
        with pytest.raises(ValueError, match="read-only"):
            found[name][0] = found[name][1]
    assert list(found.rows()) == [("b", 1_500, 1.0), ("a", None, 2.0), ("c", 2_500_000, 97.0)]


def test_given_arrays_are_not_made_read_only() -> None:
    """A table takes a view; the array of its maker stays what it was."""
    values = np.arange(3)
    Table("t", {"x": values})
    values[0] = 5
    assert values[0] == 5


def test_a_column_that_is_not_there_is_named() -> None:
    """The message has the names of those that are."""
    with pytest.raises(KeyError, match="no column 'x'; it has name, total_ns, share_percent"):
        table()["x"]


def test_columns_have_one_length() -> None:
    """The message has the lengths."""
    with pytest.raises(ValueError, match="a has 1, b has 2"):
        Table("t", {"a": [1], "b": [1, 2]})


@pytest.mark.parametrize(("descending", "names"), [(True, "cba"), (False, "bca")])
def test_what_is_not_known_sorts_last(descending: bool, names: str) -> None:
    """In both directions."""
    assert "".join(table().sorted_by("total_ns", descending)["name"]) == names


@pytest.mark.parametrize("descending", [True, False])
def test_sorting_keeps_the_order_of_equal_rows(descending: bool) -> None:
    """In both directions."""
    found = Table("t", {"key": [1, 2, 1, 2], "place": [0, 1, 2, 3]}).sorted_by("key", descending)
    assert found["place"].tolist() == ([1, 3, 0, 2] if descending else [0, 2, 1, 3])


def test_text_uses_units_that_read_well() -> None:
    """The heading says which; numbers stand to the right, and what is not known is n/a."""
    assert str(table()) == (
        "Things\n"
        "name  total_ms  share_percent\n"
        "b        0.002          1.000\n"
        "a          n/a          2.000\n"
        "c        2.500         97.000\n"
        "  one note"
    )


def test_differences_share_the_unit_of_the_base() -> None:
    """As does the new one."""
    found = Table("t", {"base_step_ns": [40_000_000], "new_step_ns": [600_000], "difference_ns": [-400_000]})
    assert str(found).splitlines() == [
        "base_step_ms  new_step_ms  difference_ms",
        "      40.000        0.600         -0.400",
    ]


def test_what_is_compared_has_one_unit() -> None:
    """One that can tell the least of both."""
    found = Table("t", {"base_mean_ns": [10_000_000, 3_000], "new_mean_ns": [20_000_000, 900]})
    assert str(found).splitlines() == [
        "base_mean_us  new_mean_us",
        "   10000.000    20000.000",
        "       3.000        0.900",
    ]


def test_parts_share_the_unit_of_the_whole() -> None:
    """Unless they could not be told in it."""
    found = Table("t", {"total_ns": [40_000_000], "tail_ns": [600_000], "idle_ns": [5]})
    assert str(found).splitlines() == ["total_ms  tail_ms  idle_ns", "  40.000    0.600        5"]
    masked = Table("t", {"total_ns": [40_000_000, 1], "tail_ns": [None, 600]}).take(slice(0, 1))
    assert str(masked).splitlines() == ["total_ms  tail_ms", "  40.000      n/a"]


def test_least_and_most_share_the_unit_of_the_mean() -> None:
    """So that they can be compared at a glance."""
    found = Table("t", {"mean_ns": [2_000.0], "min_ns": [1], "max_ns": [5_000_000], "total_ns": [10**9]})
    assert str(found).splitlines() == ["mean_us  min_us    max_us  total_ms", "  2.000   0.001  5000.000  1000.000"]


def test_points_in_time_keep_all_digits() -> None:
    """Nanoseconds since the epoch are not shown in seconds."""
    assert "1778000000000000037" in str(Table("t", {"start_ns": [1_778_000_000_000_000_037]}))


def test_sizes_have_binary_units() -> None:
    """Bytes as KiB, MiB and GiB."""
    assert str(Table("t", {"peak_bytes": [3 * 2**20]})) == "peak_MiB\n   3.000"


def test_long_tables_are_cut_in_texts() -> None:
    """With the number of rows that are left; the table itself has all."""
    found = Table("t", {"x": np.arange(250)})
    assert str(found).endswith("... and 150 more rows")
    assert len(found.text(None).splitlines()) == 251
    assert found._repr_html_().count("<tr>") == 101


def test_html_is_static_and_escaped() -> None:
    """Names with markup, control characters and changes of direction stand as text."""
    found = Table("t", {"name": ["<script>alert(1)</script>", "a\x1b[31m\u202eb"]}, "<b>", ["<i>"])
    page = found._repr_html_()
    assert "<script" not in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page + str(found)
    assert "\u202e" not in page + str(found)


@pytest.mark.parametrize("name", ["Conv2D,op", 'a""b', "x\ny", '"1,3;3,3"', "算子", "", " "])
def test_csv_keeps_every_name(name: str) -> None:
    """Commas, quotes and line ends are quoted, so that no column moves."""
    text = Table("t", {"name": [name], "count": [3], "total_ns": [None]}).to_csv()
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["name", "count", "total_ns"], [name, "3", ""]]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\t=1"])
def test_csv_runs_nothing_in_a_spreadsheet(name: str) -> None:
    """What would be a formula begins with an apostrophe; negative numbers are numbers."""
    rows = list(csv.reader(io.StringIO(Table("t", {"name": [name], "x": [-1]}).to_csv(), newline="")))
    assert rows[1] == ["'" + name, "-1"]


def test_json_has_no_nan() -> None:
    """What is not a number, or not known, is null."""
    found = Table("t", {"x": [float("nan"), 1.5], "y": [None, 2]}, "c", ["n"])
    text = json.dumps(found.to_json(), allow_nan=False)
    assert json.loads(text) == {
        "name": "t", "caption": "c", "columns": ["x", "y"], "notes": ["n"], "rows": [{"x": None, "y": None}, {"x": 1.5, "y": 2}],
    }  # fmt: skip


def test_an_empty_table_says_so() -> None:
    """In all forms."""
    found = Table("t", {"x": np.empty(0, np.int64), "name": []}, "Nothing", ["n/a: a reason."])
    assert str(found) == "Nothing\n(no rows)\n  n/a: a reason."
    assert found.to_csv() == "x,name\n"
    assert found.to_json()["rows"] == []
    assert len(found) == 0


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the extra."""
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        table().to_pandas()


def test_pandas_gets_all_columns() -> None:
    """Gaps in integers stay gaps in integers."""
    pandas = pytest.importorskip("pandas")
    frame = table().to_pandas()
    assert list(frame.columns) == ["name", "total_ns", "share_percent"]
    assert frame["total_ns"].dtype == pandas.Int64Dtype()
    assert frame["total_ns"].sum() == 2_501_500


def test_a_table_is_iterated_by_rows() -> None:
    """As dictionaries, as many as `len` says; `in` asks for a column."""
    table = Table("t", {"name": ["a", "b"], "total_ns": [5, None]})
    assert list(table) == [{"name": "a", "total_ns": 5}, {"name": "b", "total_ns": None}] == table.records()
    assert [row["name"] for row in table if row["total_ns"]] == ["a"]
    assert len(list(table)) == len(table) == 2
    assert "total_ns" in table
    assert "a" not in table
    assert list(KeyAverages(table)) == list(table)


@pytest.mark.parametrize("width", [60, 80, 100, 140, 240])
def test_a_table_fits_a_screen(width: int) -> None:
    """Units, notes and the sentence on further rows too; its first column stays."""
    columns = {f"{name}_ns": [123_456_789, 5] * 60 for name in ("total", "mean", "min", "max", "median", "a_long_name")}
    names = ["Default/network/" * 9 + "conv", "中文/" * 40] * 60
    table = Table("t", {"full_name": names, **columns}, "A caption", ["A note on what is not in the table. " * 9])
    lines = table.text(10, None, Screen(width)).splitlines()
    assert max(map(layout.columns, lines)) <= width
    assert lines[1].split()[0] == "full_name" or lines[2].split()[0] == "full_name"
    assert "... and 110 more rows" in lines

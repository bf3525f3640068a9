"""Text for a terminal."""

from __future__ import annotations

import math

import pytest

from instrument.analyse.layout import columns, escape, name, number
from instrument.show.terminal import table


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain name", "plain name"),
        ("a\nb\tc\x1b[31m\0", r"a\nb\tc\x1b[31m\x00"),
        ("\u202eabc", r"\u202eabc"),
        ("\u2028", r"\u2028"),
        ("\udcff", r"\udcff"),
        ("\N{ROCKET} 中文", "\N{ROCKET} 中文"),
        ("", ""),
        ("it's", "it's"),
        ("it's\n", r"it's\n"),
    ],
)
def test_nothing_that_moves_the_cursor_is_printed(text: str, shown: str) -> None:
    """Control characters, direction marks and lone surrogates stand as escapes; letters of any script stay."""
    assert escape(text) == shown


def test_long_names_are_shortened_in_the_middle() -> None:
    """Where a width is given; both ends remain."""
    assert name("x" * 60, 60) == "x" * 60
    assert name("x" * 600) == "x" * 600
    assert name("a" * 2500 + "b" * 2500, 60) == "a" * 28 + "..." + "b" * 28
    assert name("Gradients/Default/net/" + "long/" * 20 + "conv2/Grad/MatMul-op0", 40) == (
        "Gradients/.../long/conv2/Grad/MatMul-op0"
    )
    assert name("a/" + "b" * 100, 23) == "a/bbbbbbbb...bbbbbbbbbb"
    assert name("\n" * 40, 60) == r"\n" * 14 + "..." + r"\n" * 14


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.0, "0"),
        (-0.0, "-0"),
        (2**53 + 1, "9007199254740993"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (None, "-"),
        (True, "True"),
    ],
)
def test_numbers_have_one_form(value: float | None, shown: str) -> None:
    """Integers whole, floats with seven digits, words for what is no number, a dash for nothing."""
    assert number(value) == shown


def test_a_table_is_aligned() -> None:
    """Texts stand left, numbers right, wide characters count two columns, and no line ends in a space."""
    text = table(["TAG", "N", "NOTE"], [["中文", 5, ""], ["loss", 12345, "x"], ["e\u0301", None, ""]])

    assert text.splitlines() == [
        "TAG       N  NOTE",
        "中文      5",
        "loss  12345  x",
        "e\u0301         -",
    ]


def test_a_table_without_rows_is_its_header() -> None:
    """No rows is no error."""
    assert table(["A", "B"], []) == "A  B"


def test_width_in_columns() -> None:
    """Emoji and East Asian characters take two columns, combining marks none."""
    assert [columns(text) for text in ("abc", "\N{ROCKET}", "中文", "e\u0301", "é")] == [3, 2, 4, 1, 1]


def test_what_is_wrong_has_a_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is asked for; headings are bold, and without colours the text is the same."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    plain = table(["TAG", "NOT FINITE"], [["loss", "1 from step 2"], ["x", ""]])
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert table(["TAG", "NOT FINITE"], [["loss", "1 from step 2"], ["x", ""]]).splitlines() == [
        "\x1b[1mTAG   NOT FINITE\x1b[0m",
        "loss  \x1b[31m1 from step 2\x1b[0m",
        "x",
    ]
    assert plain.splitlines() == ["TAG   NOT FINITE", "loss  1 from step 2", "x"]

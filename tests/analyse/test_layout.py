"""Text in columns for a terminal of any width."""

from __future__ import annotations

import random
import re
import unicodedata

import numpy as np
import pytest

from instrument.analyse.layout import (
    BOLD,
    END,
    RED,
    UNLIMITED,
    WHOLE,
    WRAP,
    Cell,
    Column,
    Screen,
    Styled,
    columns,
    paint,
    prose,
    shortened,
    table,
    wrapped,
)

WIDTHS = (60, 80, 100, 140, 240)
#: Names that a layout by characters gets wrong.
HARD = (
    "loss",
    "train/encoder/layer_11/attention/self/query/kernel:0/" * 4,
    "/home/someone/experiments/2026-01-01/resnet50-momentum-lr0.1/summary_dir_with_a_long_name",
    "訓練/損失関数/第一層の重み/最大値と最小値/" * 3,
    "e\u0301" * 90,
    "\N{ROCKET}" * 50,
    "ไม้เอกไม้โท" * 10,
    r"a\nb\x1b[31m" * 12,
    "",
)
ESCAPE = re.compile(r"\x1b\[\d*m")


def hard_rows(choices: random.Random, count: int) -> list[list[Cell]]:
    return [
        [
            choices.choice(HARD),
            choices.choice([0.1, 2.5e-300, -1.234567e8, None, float("nan")]),
            choices.choice([0, 10**18, -(10**30)]),
            choices.choice(HARD),
            "1..20000",
            choices.random(),
            choices.randrange(10**9),
            "a later start replaced 17 points, 1 damaged place, 2 unfinished ends",
        ]
        for _ in range(count)
    ]


HEADS = (
    Column("TAG", 0), "LAST VALUE", "BYTES SKIPPED", Column("FILE", cut=END), "STEPS", "share_percent", "min_ns",
    Column("NOTES", 1, WRAP),
)  # fmt: skip


@pytest.mark.parametrize("width", [*WIDTHS, 20, 33])
def test_no_line_is_wider_than_the_terminal(width: int, rng: np.random.Generator) -> None:
    """Long tags and paths, wide and combining characters, large numbers, many columns: at any width."""
    choices = random.Random(int(rng.integers(1 << 32)))
    for _ in range(30):
        for screen in (Screen(width), Screen(width, has_style=True)):
            text = ESCAPE.sub("", table(HEADS, hard_rows(choices, 6), screen))
            assert max(map(columns, text.splitlines())) <= width
            assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("width", WIDTHS)
def test_numbers_are_whole_or_hidden(width: int) -> None:
    """At no usual width a number loses a digit: its column stays, or goes and is named."""
    rows = [["x" * 70, *(10**9 + place for place in range(14))]]
    heads = ["NAME", *(f"N{place}" for place in range(14))]
    text = table(heads, rows, Screen(width))
    shown = text.splitlines()[1].split()[1:]
    assert shown == [str(10**9 + place) for place in range(len(shown))]
    hidden = re.search(r"(\d+) columns? hidden: ([^;]*);", text.replace("\n", " "))
    assert (int(hidden[1]) if hidden else 0) == 14 - len(shown)
    if hidden:
        assert hidden[2].split(", ") == heads[1 + len(shown) :]


def test_the_least_important_columns_go_first() -> None:
    """By rank, of equal ones the last; rank 0 stays, whatever its place."""
    heads = [Column("A", 2), Column("B", 9), Column("KEY", 0), Column("C", 1), Column("D", 9)]
    rows = [[1234567890] * 5]
    shown = {width: table(heads, rows, Screen(width)).splitlines()[0].split() for width in (60, 50, 40, 30, 20)}
    assert shown == {
        60: ["A", "B", "KEY", "C", "D"],
        50: ["A", "B", "KEY", "C"],
        40: ["A", "KEY", "C"],
        30: ["KEY", "C"],
        20: ["KEY"],
    }


def test_the_footer_names_what_is_hidden() -> None:
    """And says how to have it."""
    text = table(["A", "BB", "C"], [[123456789012] * 3], Screen(20))
    assert text.splitlines()[2:] == ["2 columns hidden:", "BB, C; widen the", "terminal, or use", "--json"]
    assert table(["A", "B"], [[123456789012] * 2], Screen(20), hint="see table.columns").endswith("see table.columns")


def test_headings_are_folded_before_columns_go() -> None:
    """At spaces and behind underscores; they stand at the bottom."""
    text = table(["part", "iteration_interval_us", "MISSING EVENTS"], [["mean", 12.5, 3]], Screen(32))
    assert text.splitlines() == [
        "      iteration_",
        "       interval_",
        "part          us  MISSING EVENTS",
        "mean        12.5               3",
    ]


def test_a_pipe_gets_everything() -> None:
    """Without a width nothing is shortened, folded or hidden."""
    row = [name or "-" for name in HARD]
    text = table([f"A LONG HEADING {place}" for place in range(len(row))], [row])
    assert all(name in text for name in row)
    assert len(text.splitlines()) == 2


def test_sentences_go_on_in_further_lines() -> None:
    """A column that wraps loses no word; cells beside it stay in its first line."""
    reason = "the checksum of the length is wrong, and nothing that follows it can be found"
    text = table(["AT", Column("REASON", 1, WRAP)], [[17, reason], [18, "short"]], Screen(40))
    lines = text.splitlines()
    assert " ".join(line[4:] for line in lines[1:-1]) == reason
    assert [line[:2] for line in lines[1:]] == ["17", *["  "] * (len(lines) - 3), "18"]


@pytest.mark.parametrize(
    ("text", "width", "cut", "short"),
    [
        ("train/encoder/layer_1/kernel", 22, "middle", "train/.../kernel"),
        ("train/encoder/layer_1/kernel", 26, "middle", "train/.../layer_1/kernel"),
        ("Gradients/Default/network/Conv2DBackpropInput-op0", 31, "middle", ".../Conv2DBackpropInput-op0"),
        ("/home/a/b/summary", 14, "middle", "/.../b/summary"),
        ("abcdefghijklmnop", 11, "middle", "abcd...mnop"),
        ("abcdefghijklmnop", 11, "end", "abcdefgh..."),
        ("損失関数の最大値", 11, "middle", "損失...大値"),
        ("損失関数の最大値", 12, "end", "損失関数..."),
        ("abcdefgh", 8, "middle", "abcdefgh"),
        ("abcdefgh", 5, "middle", "abcde"),
    ],
)
def test_how_texts_are_shortened(text: str, width: int, cut: str, short: str) -> None:
    """By folders or scopes where there are some; by columns of the terminal, not by characters."""
    assert shortened(text, width, cut) == short


def test_a_combining_mark_stays_with_its_letter(rng: np.random.Generator) -> None:
    """Wherever a text is cut."""
    choices = random.Random(int(rng.integers(1 << 32)))
    text = "".join(choices.choice(["e\u0301", "a", "中", "ก\u0e49"]) for _ in range(60))
    for width in range(7, 60):
        for part in shortened(text, width).split("..."):
            assert not part or not unicodedata.category(part[0]).startswith("M")
        assert columns(shortened(text, width)) <= width


def test_prose_is_wrapped_and_words_are_whole() -> None:
    """Line ends stay, further lines are indented, and a path is never broken."""
    path = "/a/very/long/path/" * 5
    text = prose(f"  The file {path} is damaged at byte 17.\nSecond line.", Screen(40), "    ")
    assert text.splitlines() == ["  The file", f"    {path}", "    is damaged at byte 17.", "Second line."]
    assert prose("a b " * 100, UNLIMITED) == "a b " * 100
    assert wrapped("損失" * 8, 10, hard=True) == ["損失損失損", "失損失損失", "損失損失損", "失"]


def test_styles_are_for_screens_that_show_them() -> None:
    """A style takes no room, and a text without one is as it was."""
    rows = [[Styled("fails", RED), 1], ["works", 2]]
    plain, styled = table(["CHECK", "N"], rows), table(["CHECK", "N"], rows, Screen(80, has_style=True))
    assert "\x1b" not in plain
    assert styled.splitlines()[1] == "\x1b[31mfails\x1b[0m  1"
    assert ESCAPE.sub("", styled) == plain
    assert paint("x", BOLD, Screen(80)) == "x"


def test_a_column_that_is_kept_whole() -> None:
    """Its texts are not shortened while another column can be."""
    rows: list[list[Cell]] = [["x" * 50, "0123456789" * 3]]
    assert table(["A", Column("B", 1, WHOLE)], rows, Screen(60)).splitlines()[1].endswith("0123456789" * 3)

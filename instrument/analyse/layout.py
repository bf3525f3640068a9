"""Text in columns that fits a terminal: what `show` prints and what `str(table)` is.

The problem: a table is wider than the terminal, and the terminal then breaks lines inside numbers and words. The
strategy, in this order, and only as far as it is needed:

1. headings take two lines or more,
2. texts are shortened, in the middle (names, paths) or at the end, or go on in further lines (sentences),
3. columns are hidden, the least important first, and a line below the table names them.

Numbers are never shortened while another column can go: a number that lost its end is a wrong number. A screen without
a width, which is what a pipe or a file is, gets every column whole.

Rejected: rich. It shrinks columns and cuts texts at their ends, but hides none, so that a table of 14 numbers at 80
columns is cut inside its numbers. It takes 60 ms to import, and there would be two layouts to test, as it could only be
an optional dependency.

A name out of a file is never printed as it is: control characters, and those that change the direction of writing,
stand as escapes.
"""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Cell = str | int | float | None

#: How a text is made to fit its column: shortened in its middle or at its end, wrapped, or never.
MIDDLE, END, WRAP, WHOLE = "middle", "end", "wrap", "whole"
#: Columns of the terminal that a text keeps before another column of the table is hidden.
_LEAST = {MIDDLE: 20, END: 16, WRAP: 28}
#: A heading that is this short takes one line.
_UNBROKEN = 8
_GAP = "  "
_CUT = "..."
_HINT = "widen the terminal, or use --json"
#: What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
#: Styles of text, as parameters of the escape sequence "select graphic rendition".
BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"


class Screen(NamedTuple):
    """Where text goes: a width in columns, None for a pipe or a file, and whether it shows styles."""

    width: int | None = None
    has_style: bool = False


#: A pipe, a file, a string: no limit and no style.
UNLIMITED = Screen()


class Column(NamedTuple):
    """A column of a table.

    When space is short, columns of the highest `rank` are hidden first, of equal ones the last, and those of rank 0
    stay. Without a rank it is the place of the column: the first one stays, and the last one goes first. `cut` says how
    texts are shortened, and `least` to how many columns of the terminal before another column of the table is hidden.
    """

    heading: str
    rank: int | None = None
    cut: str = MIDDLE
    least: int | None = None


class Styled(str):
    """A text with a style, which a screen without styles leaves out."""

    __slots__ = ("style",)
    style: str

    def __new__(cls, text: str, style: str) -> Styled:
        styled = super().__new__(cls, text)
        styled.style = style
        return styled


def paint(text: str, style: str, screen: Screen) -> str:
    """Return the text with the escape sequences of a style, or as it is where the screen shows none."""
    return f"\x1b[{style}m{text}\x1b[0m" if style and text and screen.has_style else str(text)


# ---------------------------------------------------------------- texts


def escape(text: str) -> str:
    """Return the text on one line, with everything that is not printable as a Python escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def formula_safe(text: str) -> str:
    """Return a text for CSV: one that a spreadsheet would run as a formula begins with an apostrophe."""
    return "'" + text if text.startswith(_FORMULA) else text


def name(text: str, width: int | None = None) -> str:
    """Return a name for a table: escaped, and shortened in the middle where it is longer than `width`."""
    return escape(text) if width is None else shortened(escape(text), width)


def number(value: float | None) -> str:
    """Format a number: seven digits of a float, all of an int, words for NaN and the infinities, a dash for None."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    if math.isfinite(value):
        return f"{value:.7g}"
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


@functools.lru_cache(1 << 12)
def _columns_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me") or "\u1160" <= char <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: East Asian characters and emoji two, combining marks none."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def shortened(text: str, width: int, cut: str = MIDDLE) -> str:
    """Return the text in at most `width` columns of a terminal.

    In the middle, of scopes or folders the first stays and as many of the last as there is room for, or the last one.
    """
    if columns(text) <= width:
        return text
    if width <= 2 * len(_CUT):
        return _head(text, width)
    room = width - len(_CUT)
    if cut == END:
        return _head(text, room) + _CUT
    first, *scopes = text.split("/")
    for place in range(1, len(scopes)):
        short = "/".join([first, _CUT, *scopes[place:]])
        if columns(short) <= width:
            return short
    last = f"{_CUT}/{scopes[-1]}" if scopes else ""
    if 2 * width // 3 <= columns(last) <= width:
        return last
    return _head(text, room // 2) + _CUT + _tail(text, room // 2)


def _head(text: str, width: int) -> str:
    """Return as much of the beginning as fits, combining marks with their letter."""
    if text.isascii():
        return text[:width]
    taken = 0
    for place, char in enumerate(text):
        taken += _columns_of(char)
        if taken > width:
            return text[:place]
    return text


def _tail(text: str, width: int) -> str:
    """Return as much of the end as fits. It does not begin with a combining mark."""
    start, taken = len(text), 0
    while start and taken + _columns_of(text[start - 1]) <= width:
        start -= 1
        taken += _columns_of(text[start])
    while start < len(text) and not _columns_of(text[start]):
        start += 1
    return text[start:]


def wrapped(text: str, width: int | None, indent: str = "", hard: bool = False) -> list[str]:
    """Break a text into lines at its spaces. All lines but the first begin with `indent`.

    A word that is longer than a line stays whole, so that a path can be copied, unless `hard` is true.
    """
    if width is None or columns(text) <= width:
        return [text]
    lines, line = list[str](), ""
    start = re.match(" *", text)
    lead = start[0] if start else ""
    for word in text.split():
        joined = f"{line} {word}" if line.strip() else f"{line or lead}{word}"
        if columns(joined) > width and line.strip():
            lines.append(line)
            joined = f"{indent}{word}"
        while hard and columns(joined) > width:
            part = _head(joined, max(width, len(indent) + 2))
            lines.append(part)
            joined = indent + joined[len(part) :]
        line = joined
    return [*lines, line]


def prose(text: str, screen: Screen, indent: str = "") -> str:
    """Return sentences in lines that fit the screen. Line ends of the text stay."""
    return "\n".join(line for part in text.split("\n") for line in wrapped(part, screen.width, indent))


# ---------------------------------------------------------------- tables


def table(
    header: Sequence[str | Column], rows: Sequence[Sequence[Cell]], screen: Screen = UNLIMITED, hint: str = _HINT
) -> str:
    """Format rows under their headings: texts to the left, columns of numbers only to the right."""
    is_number = [bool(rows) and not any(isinstance(row[column], str) for row in rows) for column in range(len(header))]
    lines = [[cell if isinstance(cell, str) else number(cell) for cell in row] for row in rows]
    return aligned(header, lines, is_number, screen, hint)


def aligned(
    header: Sequence[str | Column],
    rows: Sequence[Sequence[str]],
    is_right: Sequence[bool],
    screen: Screen = UNLIMITED,
    hint: str = _HINT,
) -> str:
    """Format finished texts under their headings. `is_right` says which columns stand to the right.

    No line ends in a space, and none is longer than the screen is wide. Where columns are hidden, the last lines name
    them and give the `hint`.
    """
    heads = [Column(head) if isinstance(head, str) else head for head in header]
    parts = [
        _Part(head, place, [row[place] for row in rows], is_right[place]) for place, head in enumerate(heads)
    ]  # fmt: skip
    shown, widths = _fitted(parts, screen.width)
    lines = [paint(line, BOLD, screen) for line in _heading(shown, widths)]
    blocks = [_block(part, width, screen) for part, width in zip(shown, widths, strict=True)]
    for row in zip(*blocks, strict=True):
        if all(len(cell) == 1 for cell in row):
            lines.append(_GAP.join([cell[0] for cell in row]).rstrip())
        else:
            blank = [" " * width for width in widths]
            lines += [
                _GAP.join(cell[line] if line < len(cell) else blank[place] for place, cell in enumerate(row)).rstrip()
                for line in range(max(map(len, row)))
            ]
    hidden = [part.column.heading for part in parts if part not in shown]
    if hidden:
        count = f"{len(hidden)} column{'s' * (len(hidden) != 1)} hidden: {', '.join(hidden)}; {hint}"
        lines += [paint(line, DIM, screen) for line in wrapped(count, screen.width)]
    return "\n".join(lines)


class _Part:
    """A column with its cells and the widths that it can have."""

    def __init__(self, column: Column, place: int, cells: Sequence[str], is_right: bool) -> None:
        self.column, self.cells, self.is_right = column, cells, is_right
        self.rank = (place if column.rank is None else column.rank, place)
        self.body = max(map(columns, cells), default=0)
        self.natural = max(self.body, columns(column.heading))
        self.word = max(map(columns, _words(column.heading)), default=0)
        if columns(column.heading) <= _UNBROKEN:
            self.word = columns(column.heading)
        is_rigid = is_right or column.cut == WHOLE
        least = self.body if is_rigid else min(self.body, column.least or _LEAST[column.cut])
        self.least = max(least, min(self.word, self.natural))


def _fitted(parts: Sequence[_Part], width: int | None) -> tuple[list[_Part], list[int]]:
    """Choose the columns that are shown, and the width of each."""
    if width is None or _total(part.natural for part in parts) <= width:
        return list(parts), [part.natural for part in parts]
    chosen = [part for part in parts if not part.rank[0]] or list(parts[:1])
    for part in sorted(parts, key=lambda part: part.rank):
        if part not in chosen and _total(other.least for other in (*chosen, part)) <= width:
            chosen.append(part)
    shown = [part for part in parts if part in chosen]
    natural, least = [part.natural for part in shown], [part.least for part in shown]
    room = width - _total(0 for _ in shown)
    if sum(least) > room:
        return shown, _spread([1] * len(shown), natural, max(room, len(shown)))
    bodies = [max(part.body, part.least) for part in shown]
    return shown, _unfolded(_spread(least, bodies, room), natural, room)


def _total(widths: Iterable[int]) -> int:
    """Return the width of a line, with the gaps between its columns."""
    each = list(widths)
    return sum(each) + len(_GAP) * (len(each) - 1)


def _spread(least: list[int], natural: list[int], room: int) -> list[int]:
    """Widen columns from their least width towards their natural one, all at the same pace, while there is room."""
    widths = list(least)
    room -= sum(widths)
    while growing := [place for place, width in enumerate(widths) if width < natural[place]]:
        share = max(room // len(growing), 1)
        for place in growing:
            more = min(share, natural[place] - widths[place], room)
            widths[place] += more
            room -= more
        if not room:
            break
    return widths


def _unfolded(widths: list[int], natural: list[int], room: int) -> list[int]:
    """Give what room is left to headings that are then one line, those that need least of it first."""
    room -= sum(widths)
    for place in sorted(range(len(widths)), key=lambda place: natural[place] - widths[place]):
        more = natural[place] - widths[place]
        if more <= room:
            widths[place] += more
            room -= more
    return widths


def _words(heading: str) -> list[str]:
    """Split a heading where it may be broken: at spaces, and behind underscores."""
    return re.findall(r"[^ _]*_+|[^ _]+", heading)


def _heading(shown: Sequence[_Part], widths: Sequence[int]) -> Iterator[str]:
    """Return the lines of the headings, which stand at the bottom."""
    folded = [_folded(part.column.heading, width) for part, width in zip(shown, widths, strict=True)]
    height = max(map(len, folded), default=0)
    for place in range(height):
        line = [lines[place - height + len(lines)] if place >= height - len(lines) else "" for lines in folded]
        yield _GAP.join(map(_padded, line, widths, (part.is_right for part in shown))).rstrip()


def _folded(heading: str, width: int) -> list[str]:
    if columns(heading) <= width:
        return [heading]
    lines = [""]
    for word in _words(heading):
        gap = " " if lines[-1] and not lines[-1].endswith("_") else ""
        if lines[-1] and columns(lines[-1] + gap + word) > width:
            lines.append("")
            gap = ""
        lines[-1] += gap + word
    return [shortened(line, width, END) for line in lines]


def _block(part: _Part, width: int, screen: Screen) -> list[list[str]]:
    """Return the cells of a column in its width, each as its lines: one, or more where a text is wrapped."""
    if part.body <= width and not screen.has_style and all(map(str.isascii, part.cells)):
        pad = str.rjust if part.is_right else str.ljust
        return [[pad(cell, width)] for cell in part.cells]
    block = []
    for cell in part.cells:
        style = getattr(cell, "style", "")
        texts = [cell] if columns(cell) <= width else _cut(cell, width, part.column.cut)
        block.append([_padded(text, width, part.is_right, style, screen) for text in texts])
    return block


def _cut(cell: str, width: int, cut: str) -> list[str]:
    return wrapped(cell, width, hard=True) if cut == WRAP else [shortened(cell, width, cut)]


def _padded(text: str, width: int, is_right: bool, style: str = "", screen: Screen = UNLIMITED) -> str:
    gap = " " * (width - columns(text))
    text = paint(text, style, screen)
    return gap + text if is_right else text + gap

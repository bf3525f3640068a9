"""Lay out tables and sentences for the terminal or pipe behind standard output, by `instrument.analyse.layout`."""

from __future__ import annotations

from collections.abc import Sequence

from instrument.analyse import layout
from instrument.analyse.layout import (
    BOLD,
    DIM,
    END,
    GREEN,
    MIDDLE,
    RED,
    WHOLE,
    WRAP,
    YELLOW,
    Cell,
    Column,
    Styled,
    columns,
    escape,
    name,
    number,
)
from instrument.show.terminal import screen

#: How columns are laid out wherever they stand; the others go by their place.
_COLUMNS = {
    column.heading: column
    for column in (
        Column("TAG", 0),
        Column("RUN", 0, least=18),
        Column("FILE", 0),
        Column("STEP", 0),
        Column("CHECK", 0, WHOLE),
        Column("KIND", 1, WHOLE),
        Column("NOTES", 1, WRAP, 24),
        Column("REASON", 1, WRAP),
        Column("FOUND", 1, WRAP),
        Column("ERROR", 1, WRAP),
        Column("TEXT", 1, WRAP),
        Column("VALUE", 1, WRAP),
        Column("LAST", 1),
        Column("BEST", 1),
        Column("CURVE", 2, WHOLE),
        Column("NOT FINITE", 2, WHOLE),
        Column("TAGS", 2, END, 18),
        Column("DAMAGED PLACES", 2),
        Column("SHAPE", 2, WHOLE),
        Column("POINTS", 3),
        Column("WRITER", 3, END, 9),
        Column("STEPS", 4, WHOLE),
        Column("RANKS", 5),
        Column("DTYPE", 5, WHOLE),
        Column("TIME", 7, WHOLE),
        Column("LAST TIME", 8, WHOLE),
        Column("SUPERSEDED", 8),
        Column("SECONDS", 8),
        Column("BEST IS", 8),
        Column("MAPPING", 9),
    )
}

#: Columns that report problems, with the colours of their texts.
_STYLES = {"NOT FINITE": RED, "NOTES": YELLOW, "ERROR": RED, "REASON": YELLOW}

__all__ = [
    "BOLD", "DIM", "END", "GREEN", "MIDDLE", "RED", "WHOLE", "WRAP", "YELLOW", "Cell", "Column", "Styled", "columns",
    "escape", "name", "number", "paint", "prose", "table", "width",
]  # fmt: skip


def table(header: Sequence[str | Column], rows: Sequence[Sequence[Cell]], indent: str = "") -> str:
    """Format rows under their headings so that they fit the terminal; a pipe gets every column whole.

    A heading that is a text is laid out as `_COLUMNS` says.
    """
    header = [_COLUMNS.get(head, head) if isinstance(head, str) else head for head in header]
    target = screen()
    if target.width is not None:
        target = target._replace(width=target.width - len(indent))
    if target.has_style:
        styles = [_STYLES.get(head.heading if isinstance(head, Column) else head) for head in header]
        rows = [[_styled(cell, style) for cell, style in zip(row, styles, strict=True)] for row in rows]
    text = layout.table(header, rows, target)
    return "\n".join(indent + line for line in text.splitlines()) if indent else text


def _styled(cell: Cell, style: str | None) -> Cell:
    return Styled(cell, style) if style and isinstance(cell, str) else cell


def prose(text: str, indent: str = "") -> str:
    """Break sentences into lines that fit the terminal; all but the first of a paragraph begin with `indent`."""
    return layout.prose(text, screen(), indent)


def paint(text: str, style: str) -> str:
    """Return a text in a style where standard output shows styles."""
    return layout.paint(text, style, screen())


def width() -> int | None:
    """Return how many columns the terminal has, None for a pipe or a file."""
    return screen().width

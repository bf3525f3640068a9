"""Text for people, laid out for where standard output leads to; the layout itself is `instrument.analyse.layout`."""

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

__all__ = [
    "BOLD", "DIM", "END", "GREEN", "MIDDLE", "RED", "WHOLE", "WRAP", "YELLOW", "Cell", "Column", "Styled", "columns",
    "escape", "name", "number", "paint", "prose", "table", "width",
]  # fmt: skip


def table(header: Sequence[str | Column], rows: Sequence[Sequence[Cell]], indent: str = "") -> str:
    """Format rows under their headings so that they fit the terminal; a pipe gets every column whole."""
    there = screen()
    if there.width is not None:
        there = there._replace(width=there.width - len(indent))
    text = layout.table(header, rows, there)
    return "\n".join(indent + line for line in text.splitlines()) if indent else text


def prose(text: str, indent: str = "") -> str:
    """Break sentences into lines that fit the terminal; all but the first of a paragraph begin with `indent`."""
    return layout.prose(text, screen(), indent)


def paint(text: str, style: str) -> str:
    """Return a text in a style where standard output shows styles."""
    return layout.paint(text, style, screen())


def width() -> int | None:
    """Return how many columns the terminal has, None for a pipe or a file."""
    return screen().width

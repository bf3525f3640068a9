"""Make HTML that opens without a network: every text escaped, tables, and pages with the one style sheet of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape_html
from importlib import resources
from string import Template

from instrument.analyse import layout

_NAME_CHARACTERS = 80


def text(value: object) -> str:
    """Return a text as HTML, with everything that is not printable as an escape."""
    return escape_html(layout.escape(str(value)))


def short(value: str) -> str:
    """Return a name as HTML, shortened in its middle; the pointer shows the whole of it."""
    shown = layout.name(value, _NAME_CHARACTERS)
    return text(shown) if shown == layout.escape(value) else f'<span title="{text(value)}">{text(shown)}</span>'


def cell(content: str, style: str = "") -> str:
    """Return finished HTML as a cell of a table, with the class `style`."""
    return f'<td class="{style}">{content}</td>' if style else f"<td>{content}</td>"


def table(heads: Iterable[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return finished cells under finished heads."""
    title = f"<caption>{caption}</caption>" if caption else ""
    head = "".join(f"<th>{heading}</th>" for heading in heads)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def filled(template: str, **parts: str) -> str:
    """Return a file of this package with finished HTML in its places."""
    return Template(_read(template)).substitute(parts)


def page(template: str, **parts: str) -> str:
    """Return the same with the style sheet."""
    return filled(template, style=_read("page.css"), **parts)


def _read(name: str) -> str:
    return resources.files("instrument.show").joinpath(name).read_text(encoding="utf-8")

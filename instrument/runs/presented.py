"""How what is read shows itself in a notebook: as static HTML."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def html_of(shown: object, view: str) -> str:
    """What `instrument.show.html` makes of an object; by name, as what shows stands above what reads."""
    html: str = getattr(import_module("instrument.show.html"), view)(shown)
    return html


class RunLineage(dict[str, dict[str, Any]]):
    """A dictionary that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return html_of(self, "lineage")

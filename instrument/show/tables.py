"""Text for a terminal; the layout is that of the tables of an analysis."""

from __future__ import annotations

from instrument.analyse.layout import Cell, columns, escape, name, number, table

__all__ = ["Cell", "columns", "escape", "name", "number", "table"]

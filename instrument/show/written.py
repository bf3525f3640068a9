"""What a verb that makes files says of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from instrument.show import forms
from instrument.show.formats import Written
from instrument.show.tables import escape, name, table


def print_written(
    arguments: argparse.Namespace, written: Sequence[Written], left_out: Sequence[str], has_tags: bool = True
) -> None:
    """The files in the form that was asked for; without `has_tags` the table for people has no column for tags."""
    if arguments.json:
        forms.print_json({"written": [one._asdict() for one in written], "left_out": left_out})
    elif arguments.csv:
        forms.print_csv(Written._fields, written)
    elif has_tags:
        rows = [(one.kind, name(one.tag), one.points, escape(one.path)) for one in written]
        print(table(["KIND", "TAG", "POINTS", "FILE"], rows))
    else:
        print(table(["KIND", "POINTS", "FILE"], [(one.kind, one.points, escape(one.path)) for one in written]))

"""Options that several verbs share: `--tag` and `--exclude`, `--max` and `--min`."""

from __future__ import annotations

import argparse

from instrument.facts.directions import Directions
from instrument.facts.tags import TagFilter

_TAG = "only tags that match, as in 'eval/*'"


def add_tag_options(parser: argparse.ArgumentParser, what: str = _TAG) -> None:
    """Add `--tag` and `--exclude`, each of which may be given several times."""
    parser.add_argument("--tag", metavar="GLOB", action="append", default=[], help=f"{what}; may be given again")
    parser.add_argument(
        "--exclude", metavar="GLOB", action="append", default=[], help="no tags that match; may be given again"
    )


def chosen_tags(arguments: argparse.Namespace) -> TagFilter:
    """Return the filter of the options that `add_tag_options` adds."""
    return TagFilter(tuple(arguments.tag), tuple(arguments.exclude))


def add_direction_options(parser: argparse.ArgumentParser) -> None:
    """Add `--max` and `--min`, each of which may be given several times."""
    for option, word in (("--max", "greatest"), ("--min", "least")):
        text = f"of tags that match, the {word} value is the best; without these options the name of a tag decides"
        parser.add_argument(option, metavar="GLOB", action="append", default=[], help=text)


def chosen_directions(arguments: argparse.Namespace) -> Directions:
    """Return the directions of the options that `add_direction_options` adds."""
    return Directions(tuple(arguments.max), tuple(arguments.min))

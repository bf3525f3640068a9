"""`instrument lineage DIR...`: print runs with their hyper-parameters, metrics and data sets, a row each."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from instrument.errors import NoSuchRun
from instrument.facts import directions, query, tags
from instrument.facts.describe import Row, leaves
from instrument.show import options, output
from instrument.show.opened_runs import PATHS, OpenedRuns
from instrument.show.tables import WRAP, Cell, Column, name, number, table

_OWN = ("run", "path")
#: The tags whose best values are shown unless others are named: what is measured beside the training.
_METRICS = ("eval/*",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="DIR", nargs="*", default=["."], help=f"{PATHS} (default: here)")
    expression = "only runs for which this holds, as in 'learning_rate < 0.1 and accuracy > 0.9'"
    parser.add_argument("--where", metavar="EXPRESSION", help=expression)
    parser.add_argument("--sort", metavar="NAME", help="in the order of this column")
    parser.add_argument("--descending", action="store_true", help="with --sort: the greatest first")
    columns = "only these columns, separated by commas; otherwise those in which the runs differ come first"
    parser.add_argument("--columns", metavar="NAMES", help=columns)
    text = f"with the best values of tags that match, and their steps (default: {', '.join(_METRICS)})"
    options.add_tag_options(parser, text)
    options.add_direction_options(parser)
    output.add_output_options(parser, "the runs with all that is known of them")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.descending and arguments.sort is None:
        arguments.wrong_call("--descending is for --sort; give it too")
    runs = OpenedRuns(arguments.paths)
    rows = list(_rows(arguments, runs))
    columns = list(dict.fromkeys(column for row in rows for column in row))
    try:
        chosen = _chosen(arguments, rows, columns)
        wanted = _wanted(arguments, columns)
    except query.NoSuchColumn as error:
        raise NoSuchRun(name(str(error), 2000)) from error
    except query.WrongExpression as error:
        arguments.wrong_call(name(str(error), 2000))
    if not chosen:
        raise NoSuchRun(f"none of {len(rows)} runs in {' '.join(arguments.paths)}: {arguments.where}")
    shown = [*_OWN, *(column for column in wanted or columns if column not in _OWN)]
    if arguments.json:
        output.print_json([{column: row[column] for column in shown if column in row} for row in chosen])
    elif arguments.csv:
        output.print_records(chosen, shown)
    else:
        print("\n\n".join(_texts(chosen, wanted, columns)))
    return runs.status


def _rows(arguments: argparse.Namespace, runs: OpenedRuns) -> Iterator[Row]:
    wanted, direction = options.chosen_tags(arguments), options.chosen_directions(arguments)
    if not arguments.tag:
        wanted = tags.TagFilter(_METRICS, wanted.exclude)
    lacking, count = list[str](), 0
    for run_name, opened in runs:
        count += 1
        names = opened.tags().get("scalar", [])
        if arguments.tag and not wanted(names):
            lacking.append(wanted.no_match(opened, names))
        row = {"run": run_name, "path": opened.path, **dict(leaves(opened.lineage))}
        for tag in wanted(names):
            best = directions.best(opened.scalars(tag), direction(tag))
            row |= {f"{key}.{tag}": best[key] for key in ("best", "best_step")}
        yield row
    if lacking and len(lacking) == count:
        raise NoSuchRun(lacking[-1])


def _chosen(arguments: argparse.Namespace, rows: list[Row], columns: list[str]) -> list[Row]:
    """Return the runs for which the expression holds, in the order of `--sort`, those without a value last."""
    if arguments.where is not None:
        holds = query.Query(arguments.where, columns)
        rows = [row for row in rows if holds(row)]
    if arguments.sort is None:
        return rows
    column = query.resolve(arguments.sort, columns)
    with_value = [row for row in rows if row.get(column) is not None]
    with_value.sort(key=lambda row: query.sort_key(row[column]), reverse=arguments.descending)
    return with_value + [row for row in rows if row.get(column) is None]


def _wanted(arguments: argparse.Namespace, columns: list[str]) -> list[str]:
    if arguments.columns is None:
        return []
    return [query.resolve(column.strip(), columns) for column in arguments.columns.split(",")]


def _texts(rows: list[Row], wanted: list[str], columns: list[str]) -> Iterator[str]:
    """Yield a table of what differs between the runs, and one of what is the same in all of them."""
    recorded = [column for column in columns if column not in _OWN and any(row.get(column) is not None for row in rows)]
    differing = wanted or [column for column in recorded if len({_cell(row.get(column)) for row in rows}) > 1]
    differing = [column for column in differing if column != "run"]
    heads = [Column("RUN", 0), *(Column(_short(column, columns), _rank(column)) for column in differing)]
    yield table(heads, [[name(row["run"]), *(_cell(row.get(column)) for column in differing)] for row in rows])
    same = [] if wanted else [column for column in recorded if column not in differing]
    if same:
        title = "THE SAME IN ALL" if len(rows) > 1 else "OF THIS RUN"
        head = Column(title, 0, least=40)
        yield table([head, Column("VALUE", 0, WRAP)], [[name(column), _text(rows[0][column])] for column in same])
    if not recorded:
        yield "No lineage was recorded."


def _rank(column: str) -> int:
    """Return how early a column is hidden: results last, stages of the data first."""
    section = column.partition(".")[0]
    return {"eval": 1, "best": 1, "train": 2, "custom": 2, "best_step": 4, "dataset": 5, "ran": 6}.get(section, 3)


def _short(column: str, columns: list[str]) -> str:
    """Return the shortest end of a column's name that `--where` and `--sort` take for it."""
    parts = column.split(".")
    ends = (".".join(parts[start:]) for start in range(len(parts) - 1, -1, -1))
    return name(next(end for end in ends if query.resolve(end, columns) == column))


def _cell(value: object) -> Cell:
    """Return a number as it is, so that its column stands to the right, and all else as a text."""
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    return name(str(value))


def _text(value: object) -> str:
    return number(value) if isinstance(value, float) else name(str(value))

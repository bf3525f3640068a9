"""`instrument lineage DIR...`: print runs with their hyper-parameters, metrics and data sets, a row each."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

from instrument.analyse.layout import WRAP, Cell, Column, name, number
from instrument.errors import NoSuchRun
from instrument.facts import query
from instrument.facts.compare import best, is_setup
from instrument.facts.describe import leaves
from instrument.facts.importance import FEW_RUNS, Importance, importances
from instrument.facts.rows import Row
from instrument.facts.selection import TagFilter
from instrument.show.cli import options
from instrument.show.cli.output import put
from instrument.show.terminal import prose, table
from instrument.wording import counted

_OWN = ("run", "path")
#: Sections of the lineage whose values are parameters of a training.
_PARAMETERS = ("train", "dataset", "custom", "hparams")
#: The tags whose best values are shown unless others are named: what is measured beside the training.
_METRICS = ("eval/*",)
_WHERE = "only runs for which this holds, as in 'learning_rate < 0.1 and accuracy > 0.9'"
_IMPORTANCE = "how much each parameter of the runs matters for this column, the most important first"
_COLUMNS = "only these columns, separated by commas; otherwise those in which the runs differ come first"
ARGUMENTS = (
    options.DIRECTORIES,
    options.argument("--where", metavar="EXPRESSION", help=_WHERE),
    options.argument("--sort", metavar="NAME", help="in the order of this column"),
    options.flag("--descending", "with --sort: the greatest first"),
    options.argument("--columns", metavar="NAMES", help=_COLUMNS),
    *options.tags(f"with the best values of tags that match, and their steps (default: {', '.join(_METRICS)})"),
    *options.DIRECTIONS,
    options.argument("--importance", metavar="NAME", help=_IMPORTANCE),
    options.printed("the runs with all that is known of them"),
)
EXAMPLES = (
    ("lineage runs --sort accuracy --descending", "the best run first"),
    ("lineage runs --where 'learning_rate < 0.1'", "some of the runs"),
    ("lineage runs --columns optimizer,accuracy", "some of the columns"),
    ("lineage runs --tag 'loss/*' --sort loss/auto", "by the best value of a tag"),
    ("lineage runs --importance accuracy", "which parameters decide a metric"),
)


def run(arguments: argparse.Namespace) -> int:
    if arguments.descending and arguments.sort is None:
        arguments.wrong_call("--descending is for --sort; give it too")
    if arguments.importance is not None and (arguments.sort or arguments.columns):
        arguments.wrong_call("--importance has an order and columns of its own; leave out --sort and --columns")
    runs = options.OpenedRuns(arguments.paths)
    rows = list(_rows(arguments, runs))
    columns = list(dict.fromkeys(column for row in rows for column in row))
    try:
        chosen = _chosen(arguments, rows, columns)
        wanted = _wanted(arguments, columns)
        target = None if arguments.importance is None else query.resolve(arguments.importance, columns)
    except query.NoSuchColumn as error:
        raise NoSuchRun(name(str(error), 2000)) from error
    except query.WrongExpression as error:
        arguments.wrong_call(name(str(error), 2000))
    if not chosen:
        raise NoSuchRun(f"none of {len(rows)} runs in {' '.join(arguments.paths)}: {arguments.where}")
    if target is not None:
        _print_importances(arguments, chosen, target, columns)
        return runs.status
    shown = [*_OWN, *(column for column in wanted or columns if column not in _OWN)]
    result = [{column: row[column] for column in shown if column in row} for row in chosen]
    put(arguments, result, _texts(chosen, wanted, columns), chosen, shown)
    return runs.status


def _rows(arguments: argparse.Namespace, runs: options.OpenedRuns) -> Iterator[Row]:
    wanted, direction = options.chosen_tags(arguments), options.chosen_directions(arguments)
    if not arguments.tag:
        wanted = TagFilter(_METRICS, wanted.exclude)
    lacking, count = list[str](), 0
    for run_name, opened in runs:
        count += 1
        names = opened.tags().get("scalar", [])
        if arguments.tag and not wanted(names):
            lacking.append(wanted.no_match(opened, names))
        row = {"run": run_name, "path": opened.path, **dict(leaves(opened.lineage))}
        for tag in wanted(names):
            extreme = best(opened.scalars(tag), direction(tag))
            row |= {f"best.{tag}": extreme["best"], f"best_step.{tag}": extreme["best_step"]}
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
    yield table(heads, [[name(str(row["run"])), *(_cell(row.get(column)) for column in differing)] for row in rows])
    same = [] if wanted else [column for column in recorded if column not in differing]
    if same:
        title = "THE SAME IN ALL" if len(rows) > 1 else "OF THIS RUN"
        head = Column(title, 0, least=40)
        yield table([head, Column("VALUE", 0, WRAP)], [[name(column), _text(rows[0][column])] for column in same])
    if not recorded:
        yield "No lineage was recorded."


def _print_importances(arguments: argparse.Namespace, rows: list[Row], target: str, columns: list[str]) -> None:
    parameters = [column for column in columns if column.partition(".")[0] in _PARAMETERS and is_setup(column)]
    result = importances(rows, target, parameters)
    records = [
        {"target": target, **{key: None if value != value else value for key, value in row._asdict().items()}}
        for row in result
    ]
    put(arguments, records, _importance_texts(result, target, columns), records, ("target", *Importance._fields))


def _importance_texts(result: list[Importance], target: str, columns: list[str]) -> Iterator[str]:
    """Yield a table of the parameters that differ, and a sentence on the others."""
    differing = [row for row in result if row.note != "constant"]
    if differing:
        heads = [Column("PARAMETER", 0), Column("IMPORTANCE", 0), Column("CORRELATION", 1), Column("RUNS", 2)]
        cells = [[_short(row.parameter, columns), *map(_share, row[1:3]), row.runs] for row in differing]
        yield f"importance for {name(target)}, from 0 to 1\n{table(heads, cells)}"
    if constant := len(result) - len(differing):
        yield prose(f"{counted(constant, 'parameter')} the same in all runs")
    if differing and max(row.runs for row in differing) < FEW_RUNS:
        yield prose(f"fewer than {FEW_RUNS} runs have a value: these figures say little")


def _share(value: float) -> Cell:
    return None if math.isnan(value) else round(value, 3)


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

"""`instrument profile PATH`: explain where the time of a training goes, as a report, tables or a timeline."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from instrument.analyse import advice, chrome_trace, pipeline, report, save
from instrument.analyse.layout import escape
from instrument.analyse.profile import Profile, profile
from instrument.analyse.table import ROW_LIMIT, Table
from instrument.show.cli import options
from instrument.show.cli.output import put
from instrument.show.terminal import prose, screen, tell

_ADVICE = "advice"
_TIMELINES = (".json", ".json.gz")


class _Tables(NamedTuple):
    """The help of an option, and its tables of a profile."""

    help: str
    of: Callable[[Profile], list[Table]]


_TABLES = {
    "steps": _Tables(
        "the steps and their parts: waiting, forward and backward, tail",
        lambda profile: [profile.step_parts, profile.steps],
    ),
    "ops": _Tables(
        "the operators, by name, by type and by where they run",
        lambda profile: [profile.sides, profile.operator_types, profile.operators],
    ),
    "data": _Tables(
        "the data pipeline: whether the training waits for it, and for which stage",
        lambda profile: [pipeline.queues(profile.capture), profile.batches, profile.pipeline],
    ),
    "memory": _Tables(
        "memory over time, and its peaks",
        lambda profile: [profile.memory_peaks, profile.memory],
    ),
    _ADVICE: _Tables("what to do about it", lambda profile: [_advice(profile)]),
}
#: Reason for which a timeline leaves events out -> in words.
_LEFT_OUT = {
    "zero_timestamp": "events without a start (a time of zero)",
    "open": "events without an end",
    "negative": "events with a negative duration",
    "too_long": "events that last more than eleven days",
}
_SOURCES = "a trace event file, a run, or a directory of raw files (a job's, *_ascend_ms, PROF_*)"
_TIMELINE = "write the timeline for Perfetto to OUT (.json or .json.gz)"
_WINDOW = "which window (default: -1, the last one)"
_DEVICE = "which device, of BASE too (default: the first of each)"
_ROWS = "rows of a table; 0 shows all of them"
ARGUMENTS = (
    options.argument("path", metavar="PATH", help=_SOURCES),
    *(options.flag(f"--{option}", f"show {tables.help}") for option, tables in _TABLES.items()),
    options.argument("--compare", metavar="BASE", help="show the differences from BASE (its last window)"),
    options.argument("--timeline", metavar="OUT", help=_TIMELINE),
    options.printed("the tables of these, or all of the profile,"),
    options.argument("--window", metavar="N", type=int, default=-1, help=_WINDOW),
    options.argument("--device", metavar="N", type=int, help=_DEVICE),
    options.argument("--base-device", metavar="N", type=int, help="with --compare: another device of BASE"),
    options.argument("--rows", metavar="N", type=int, default=ROW_LIMIT, help=_ROWS),
)
EXAMPLES = (
    ("profile runs/adam", "the report: steps, operators, data, advice"),
    ("profile runs/adam --ops --rows 0", "all operators"),
    ("profile runs/new --compare runs/old", "what became faster or slower"),
    ("profile runs/adam --timeline t.json.gz", "a timeline for https://ui.perfetto.dev"),
)


class _Section(NamedTuple):
    """A title and the tables of one option."""

    title: str
    tables: list[Table]


def run(arguments: argparse.Namespace) -> int:
    chosen = [option for option in _TABLES if getattr(arguments, option)]
    wrong = _wrong(arguments)
    if wrong:
        arguments.wrong_call(wrong)
    opened = profile(arguments.path, arguments.window, arguments.device)
    base = _base(arguments)
    sections = [_Section("", _TABLES[option].of(opened)) for option in chosen]
    if base is not None:
        comparison = opened.compare(base)
        sections.append(_Section(comparison.title, [*comparison.tables(), comparison.operators]))
    written = None if arguments.timeline is None else chrome_trace.write(opened.captures, arguments.timeline)
    shown = _shown(opened, sections) if arguments.csv else []
    columns = list(dict.fromkeys(column for table in shown for column in table.columns))
    rows = {table.name: table.records() for table in shown}
    result = _result(opened, base, sections, arguments.timeline, written) if arguments.json else {}
    put(arguments, result, _texts(opened, sections, arguments, written), rows, columns)
    has_report = not sections and written is None
    if not has_report or arguments.json:
        _tell_choice(opened)
    if base is not None:
        _tell_choice(base)
        _tell_devices(opened, base)
    _tell_incomplete(opened, has_report or arguments.advice or arguments.json)
    _tell_losses(opened, written, has_report)
    return 0


def _base(arguments: argparse.Namespace) -> Profile | None:
    """Return the profile to compare with, of the same device unless `--base-device` says another."""
    if arguments.compare is None:
        return None
    device = arguments.device if arguments.base_device is None else arguments.base_device
    return profile(arguments.compare, device=device)


def _wrong(arguments: argparse.Namespace) -> str:
    if arguments.base_device is not None and arguments.compare is None:
        return "--base-device is for --compare; give it too"
    if arguments.timeline is not None and not arguments.timeline.endswith(_TIMELINES):
        expected = " or ".join(_TIMELINES)
        return f"--timeline is {escape(arguments.timeline)}; its name says how it is written, and ends in {expected}"
    if arguments.rows < 0:
        return f"--rows is {arguments.rows}; it is a number of rows, or 0 for all of them"
    return ""


def _texts(
    opened: Profile, sections: list[_Section], arguments: argparse.Namespace, written: chrome_trace.Written | None
) -> Iterator[str]:
    for section in sections:
        yield from filter(None, [prose(escape(section.title))])
        for table in dict.fromkeys(section.tables):
            yield _advice_text(table) if table.name == _ADVICE else table.text(arguments.rows or None, None, screen())
    if written is not None:
        yield prose(f"{escape(arguments.timeline)}: {written.events} events; https://ui.perfetto.dev opens it", "  ")
    elif not sections:
        yield report.text(opened, screen(), has_whole_names=True)


def _shown(opened: Profile, sections: list[_Section]) -> list[Table]:
    """Return the tables that were asked for, each once; all of the profile if none was."""
    return list(dict.fromkeys(table for section in sections for table in section.tables)) or save.tables(opened)


def _result(
    opened: Profile,
    base: Profile | None,
    sections: list[_Section],
    path: str | None,
    written: chrome_trace.Written | None,
) -> dict[str, object]:
    result = _window(opened)
    if base is not None:
        result["base"] = _window(base)
    if sections or written is None:
        result |= {} if sections else save.to_json(opened)
        result["tables"] = {table.name: table.to_json() for table in _shown(opened, sections)}
    if written is not None:
        result["timeline"] = {"file": path, **written._asdict()}
    return result


def _window(opened: Profile) -> dict[str, object]:
    """Return which window of which device a profile is of."""
    run = os.path.basename(os.path.abspath(opened.path))
    where = {"run": run, "path": opened.path, "window": opened.number}
    return {**where, "device": opened.device, "target": opened.target}


def _advice(opened: Profile) -> Table:
    rows = advice.advice(opened)
    return Table(_ADVICE, {"topic": [row.topic for row in rows], "text": [row.text for row in rows]}, "Advice")


def _advice_text(table: Table) -> str:
    """Return the advice as sentences, which a table would cut."""
    sentences = [prose(escape(sentence), "  ") for sentence in table["text"].tolist()]
    return "\n".join(sentences) or prose("No advice: no figure of this profile stands out.")


def _tell_choice(opened: Profile) -> None:
    """Print on stderr which of several windows at the path was chosen."""
    choice = report.choice(opened)
    if choice:
        tell(f"window {opened.number} of {opened.path}, {choice}")


def _tell_devices(opened: Profile, base: Profile) -> None:
    """Warn if the two sides are of different devices."""
    sides = [(side.target, side.device) for side in (opened, base)]
    if sides[0] != sides[1]:
        new, old = (f"{side.target} {side.device} of {side.path}" for side in (opened, base))
        tell(f"{new} is compared with {old}: differences may be those of the devices")


def _tell_incomplete(opened: Profile, is_told: bool) -> None:
    """Print on stderr that a window is not complete, unless the output says so."""
    if opened.metadata.get("complete") is False and not is_told:
        reason = str(opened.metadata.get("reason") or "").rstrip(".")
        tell(f"window {opened.number} is not complete{f': {reason}' if reason else ''}")


def _tell_losses(opened: Profile, written: chrome_trace.Written | None, has_report: bool) -> None:
    """Print what is not in the output, unless the report has said so."""
    for reason, amount in (written.left_out if written is not None else {}).items():
        tell(f"not in the timeline: {_LEFT_OUT.get(reason, reason)}: {amount}")
    count = len(opened.problems)
    if count and not has_report:
        kinds = "1 kind" if count == 1 else f"{count} kinds"
        tell(f"{kinds} of losses in this trace, which the report lists")

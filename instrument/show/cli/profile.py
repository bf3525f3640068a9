"""`instrument profile PATH`: explain where the time of a training goes, as a report, tables or a timeline."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from instrument.analyse import advice, chrome_trace, pipeline, report, save
from instrument.analyse.profile import Profile, profile
from instrument.analyse.table import ROW_LIMIT, Table
from instrument.facts.describe import Row
from instrument.show import output
from instrument.show.tables import escape, prose
from instrument.show.terminal import screen, tell

_ADVICE = "advice"
_TIMELINES = (".json", ".json.gz")
#: Option -> its tables.
_TABLES: dict[str, Callable[[Profile], list[Table]]] = {
    "steps": lambda found: [found.step_parts, found.steps],
    "ops": lambda found: [found.sides, found.operator_types, found.operators],
    "data": lambda found: [pipeline.queues(found.capture), found.batches, found.pipeline],
    "memory": lambda found: [found.memory_peaks, found.memory],
    _ADVICE: lambda found: [_advice(found)],
}
_HELP = {
    "steps": "the steps and their parts: waiting, forward and backward, tail",
    "ops": "the operators, by name, by type and by where they run",
    "data": "the data pipeline: whether the training waits for it, and for which stage",
    "memory": "memory over time, and its peaks",
    _ADVICE: "what to do about it",
}


class _Section(NamedTuple):
    """A title and the tables of one option."""

    title: str
    tables: list[Table]


def configure(parser: argparse.ArgumentParser) -> None:
    sources = "a trace event file, a run, or a directory of raw files (a job's, *_ascend_ms, PROF_*)"
    parser.add_argument("path", metavar="PATH", help=sources)
    for option in _TABLES:
        parser.add_argument(f"--{option}", action="store_true", help=f"show {_HELP[option]}")
    parser.add_argument("--compare", metavar="BASE", help="show the differences from BASE (its last window)")
    parser.add_argument("--timeline", metavar="OUT", help="write the timeline for Perfetto to OUT (.json or .json.gz)")
    output.add_output_options(parser, "the tables of these, or all of the profile,")
    parser.add_argument("--window", metavar="N", type=int, default=-1, help="which window (default: -1, the last one)")
    device = "which device, of BASE too (default: the first of each)"
    parser.add_argument("--device", metavar="N", type=int, help=device)
    parser.add_argument("--base-device", metavar="N", type=int, help="with --compare: another device of BASE")
    parser.add_argument("--rows", metavar="N", type=int, default=ROW_LIMIT, help="rows of a table; 0 shows all of them")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    chosen = [option for option in _TABLES if getattr(arguments, option)]
    wrong = _wrong(arguments)
    if wrong:
        arguments.wrong_call(wrong)
    opened = profile(arguments.path, arguments.window, arguments.device)
    base = _base(arguments)
    sections = [_Section("", _TABLES[option](opened)) for option in chosen]
    if base is not None:
        comparison = opened.compare(base)
        sections.append(_Section(comparison.title, [*comparison.tables(), comparison.operators]))
    written = None if arguments.timeline is None else chrome_trace.write(opened.captures, arguments.timeline)
    if arguments.json:
        output.print_json(_json(opened, base, sections, arguments.timeline, written))
    elif arguments.csv:
        tables = _shown(opened, sections)
        columns = list(dict.fromkeys(column for table in tables for column in table.columns))
        output.print_tables({table.name: table.records() for table in tables}, columns)
    else:
        print("\n\n".join(_texts(opened, sections, arguments, written)))
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


def _json(
    opened: Profile,
    base: Profile | None,
    sections: list[_Section],
    path: str | None,
    written: chrome_trace.Written | None,
) -> Row:
    result = _window(opened)
    if base is not None:
        result["base"] = _window(base)
    if sections or written is None:
        result |= {} if sections else save.to_json(opened)
        result["tables"] = {table.name: table.to_json() for table in _shown(opened, sections)}
    if written is not None:
        result["timeline"] = {"file": path, **written._asdict()}
    return result


def _window(opened: Profile) -> Row:
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


#: Reason for which a timeline leaves events out -> in words.
_LEFT_OUT = {
    "zero_timestamp": "events without a start (a time of zero)",
    "open": "events without an end",
    "negative": "events with a negative duration",
    "too_long": "events that last more than eleven days",
}


def _tell_losses(opened: Profile, written: chrome_trace.Written | None, has_report: bool) -> None:
    """Print what is not in the output, unless the report has said so."""
    for what, amount in (written.left_out if written is not None else {}).items():
        tell(f"not in the timeline: {_LEFT_OUT.get(what, what)}: {amount}")
    count = len(opened.problems)
    if count and not has_report:
        kinds = "1 kind" if count == 1 else f"{count} kinds"
        tell(f"{kinds} of losses in this trace, which the report lists")

"""`instrument doctor`: try what works on this machine; the exit status is 0 if nothing fails, else 1."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from instrument.analyse.layout import GREEN, RED, YELLOW, Styled, escape
from instrument.doctor.examine import PACKAGES, Report, examine
from instrument.doctor.findings import FAILS, NOTE, WORKS, Finding
from instrument.facts.rows import Row
from instrument.show.cli import options
from instrument.show.cli.output import put
from instrument.show.terminal import paint, prose, table

_PLACE = "where to try writing (default: the system's temporary directory); all is removed again"
ARGUMENTS = (options.argument("directory", metavar="DIR", nargs="?", help=_PLACE), options.printed("what was found"))
EXAMPLES = (
    ("doctor", "what works on this machine"),
    ("doctor /data", "try writing there"),
)
_STYLES = {WORKS: GREEN, FAILS: RED, NOTE: YELLOW}


def run(arguments: argparse.Namespace) -> int:
    directory = arguments.directory or tempfile.gettempdir()
    if not os.path.isdir(directory):
        raise NotADirectoryError(f"{directory} is no directory; doctor writes into one that is there")
    report = examine(directory)
    rows: dict[str, Sequence[Row]] = {
        "report": [{"is_well": report.is_well}],
        "system": _named(report.system),
        "versions": _named(report.versions),
        "findings": [finding.to_dict() for finding in report.findings],
    }
    put(arguments, report.to_dict(), _texts(report), rows)
    return 0 if report.is_well else 1


def _named(values: Mapping[str, str | None]) -> list[Row]:
    return [{"name": key, "value": value} for key, value in values.items()]


def _texts(report: Report) -> Iterator[str]:
    rows = list(report.system.items())
    for name, version in report.versions.items():
        rows.append((name, version or f"not installed ({PACKAGES[name] or 'needed'})"))
    yield table(("WHAT", "VERSION"), rows)
    yield table(("CHECK", "", "SECONDS", "FOUND"), [_cells(finding) for finding in report.findings])
    failed = [finding for finding in report.findings if finding.status not in (WORKS, NOTE)]
    last = f"{len(report.findings)} checks, {len(failed)} failed" if failed else "Everything that was tried works here."
    advice = [f"{finding.name}: {escape(finding.advice)}" for finding in report.findings if finding.advice]
    yield "\n".join([*(prose(line, "  ") for line in advice), paint(last, RED if failed else GREEN)])


def _cells(finding: Finding) -> tuple[str, str, str, str]:
    seconds = f"{finding.seconds:.2f}" if finding.seconds >= 0.005 else ""
    status = finding.status.upper() if finding.status == FAILS else finding.status
    return finding.name, Styled(status, _STYLES.get(finding.status, "")), seconds, escape(finding.detail)

"""`instrument doctor`: try what works on this machine; the exit status is 0 if nothing fails, else 1."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping

from instrument.doctor.examine import PACKAGES, Report, examine
from instrument.doctor.findings import FAILS, NOTE, WORKS, Finding
from instrument.show import output
from instrument.show.tables import GREEN, RED, YELLOW, Styled, escape, paint, prose, table

_STYLES = {WORKS: GREEN, FAILS: RED, NOTE: YELLOW}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", metavar="DIR", nargs="?", default=None,
        help="where to try writing (default: the system's temporary directory); all is removed again",
    )  # fmt: skip
    output.add_output_options(parser, "what was found")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    directory = arguments.directory or tempfile.gettempdir()
    if not os.path.isdir(directory):
        raise NotADirectoryError(f"{directory} is no directory; doctor writes into one that is there")
    report = examine(directory)
    if arguments.json:
        output.print_json(report.to_dict())
    elif arguments.csv:
        properties: dict[str, Mapping[str, str | None]] = {"system": report.system, "versions": report.versions}
        tables = {
            sort: [{"name": key, "value": value} for key, value in rows.items()] for sort, rows in properties.items()
        }
        findings = [finding.to_dict() for finding in report.findings]
        output.print_tables({"report": [{"is_well": report.is_well}], **tables, "findings": findings})
    else:
        _show(report)
    return 0 if report.is_well else 1


def _show(report: Report) -> None:
    rows = [(name, value) for name, value in report.system.items()]
    for name, version in report.versions.items():
        rows.append((name, version or f"not installed ({PACKAGES[name] or 'needed'})"))
    print(table(("WHAT", "VERSION"), rows))
    print()
    print(table(("CHECK", "", "SECONDS", "FOUND"), [_cells(finding) for finding in report.findings]))
    print()
    for finding in report.findings:
        if finding.advice:
            print(prose(f"{finding.name}: {escape(finding.advice)}", "  "))
    failed = [finding for finding in report.findings if finding.status not in (WORKS, NOTE)]
    last = f"{len(report.findings)} checks, {len(failed)} failed" if failed else "Everything that was tried works here."
    print(paint(last, RED if failed else GREEN))


def _cells(finding: Finding) -> tuple[str, str, str, str]:
    seconds = f"{finding.seconds:.2f}" if finding.seconds >= 0.005 else ""
    status = finding.status.upper() if finding.status == FAILS else finding.status
    return (
        finding.name,
        Styled(status, _STYLES.get(finding.status, "")),
        seconds,
        escape(finding.detail),
    )

"""Recovery at a recorder's start: what rings of killed recorders in its directory hold goes into their event files."""

from __future__ import annotations

import logging
import os

from instrument.events import Event
from instrument.ringfile import recover
from instrument.ringfile.commit import Notice
from instrument.ringfile.header import Header
from instrument.write.exports import export_tensors

log = logging.getLogger("instrument")

#: Ring files whose problem was logged.
_warned: set[str] = set()


def recover_directory(directory: str) -> None:
    """Recover all rings of a directory that have no living process, and log what became of them.

    It never raises: what an earlier recorder left must not keep this one from recording.
    """

    def export(event: Event, header: Header) -> None:
        export_tensors(event, os.path.join(directory, header.export_directory), failures.append)

    failures: list[Notice] = []
    try:
        results = recover.recover_all(directory, export)
    except OSError:
        return  # it is about to be made, or cannot be listed, by readers neither
    for result in results:
        for reason in result.damage:
            log.warning("%s: %s; that part of what a killed recorder left is lost.", result.path, reason)
        if result.problem and result.path not in _warned:
            _warned.add(result.path)
            log.warning(
                "%s holds what a killed recorder had not written yet, and was left as it is: %s. Readers show what it "
                "holds; `instrument repair %s` appends it to the event files.", result.path, result.problem, directory,
            )  # fmt: skip
        elif result.events:
            log.warning(
                "%d events that a killed recorder had not written yet have been appended to its event files in %s.",
                result.events, directory,
            )  # fmt: skip
    for failure in failures[:1]:
        log.warning("%s cannot be exported again: %s", failure.path, failure.reason)

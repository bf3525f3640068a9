"""Open the sink for a directory: recover what killed recorders left there, then choose between workers and none."""

from __future__ import annotations

import errno
import logging
import os
import select

from instrument import processes
from instrument.events import Event
from instrument.ringfile import recover
from instrument.ringfile.commit import Diagnostic
from instrument.ringfile.header import Header
from instrument.write.file_sink import FileSink
from instrument.write.npy_export import export_tensors
from instrument.write.pool import DEFAULT_RING_BYTES, PoolSink
from instrument.write.sink import Files, Sink, Target

log = logging.getLogger("instrument")

#: More processes than this never help: one encodes a gigabyte a second.
_DEFAULT_PROCESSES = 4
#: Ring files whose problem was logged.
_warned: set[str] = set()


def default_processes() -> int:
    """Return half of the cores that this process may use, at least one and at most four."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(cores // 2, 1), _DEFAULT_PROCESSES)


def check_system() -> None:
    """Raise `OSError` where there is no way to start workers or to share memory with them."""
    for module, name in ((os, "memfd_create"), (os, "eventfd"), (select, "epoll")):
        if not hasattr(module, name):
            raise OSError(errno.ENOSYS, f"this system has no {name}")


def open_sink(target: Target, workers: int, ring_bytes: int = DEFAULT_RING_BYTES, drop_when_full: bool = False) -> Sink:
    """Return the sink for a target: with `workers`, or one that writes in this process for 0 and where none can start.

    Raises:
        OSError: the target's directory cannot be made or written.
        RuntimeError: this program was started as an interpreter for a worker, and is none.
    """
    if processes.was_started_by_us():
        raise RuntimeError(
            f"this program was started as a Python interpreter by process {os.environ[processes.MARK]}, which records, "
            "and is another program. It records nothing. Give programs that are no interpreters names that do not "
            f'begin with "python", or remove {processes.MARK} from the environment if it was set by mistake.'
        )
    recover_directory(target.directory)
    files = Files(target)
    if workers == 0:
        return FileSink(files)
    try:
        check_system()
        return PoolSink(files, workers, ring_bytes, drop_when_full)
    except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
        reason = str(error)  # a log that keeps the error itself would keep what is open open
        log.warning("No worker can be started (%s): %s is written by the training process.", reason, files.summary_path)
        return FileSink(files)


def recover_directory(directory: str) -> None:
    """Recover all rings of a directory that have no living process, and log what became of them.

    It never raises: what an earlier recorder left must not keep this one from recording.
    """

    def export(event: Event, header: Header) -> None:
        export_tensors(event, os.path.join(directory, header.export_directory), failures.append)

    failures: list[Diagnostic] = []
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

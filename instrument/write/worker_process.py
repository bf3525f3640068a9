"""A worker process as its supervisor sees it: its process, its socket, and the records over which workers die."""

from __future__ import annotations

import errno
import json
import socket
import sys
import time
from collections.abc import Sequence

from instrument import processes
from instrument.processes import Process
from instrument.ringfile.commit import Diagnostic, Report
from instrument.undo import UndoOnError
from instrument.write.pool_memory import Config

#: A record that was claimed at this many deaths in a row is left out. Crashes and kills look the same: a worker is no
#: child of its trainer.
DEATHS_OF_A_RECORD = 20
#: This many deaths in a row without anything being committed end the use of workers.
DEATHS_WITHOUT_PROGRESS = 40
_LONGEST_MESSAGE_BYTES = 1 << 16


class WorkerProcess:
    """A worker process and the trainer's end of its socket; it has to be ready at `deadline`."""

    def __init__(self, process: Process, end: socket.socket, ready_seconds: float) -> None:
        self.process = process
        self.socket = end
        self.deadline = time.monotonic() + ready_seconds

    @classmethod
    def start(
        cls, ends: tuple[socket.socket, socket.socket], config: Config, interpreters: Sequence[str],
        fds: Sequence[int], ready_seconds: float,
    ) -> WorkerProcess:  # fmt: skip
        """Start a worker with the first of some interpreters; it inherits `fds` and the second of the `ends`.

        Raises:
            OSError: there is no interpreter, or no process to be had; the ends are closed.
        """
        ours, theirs = ends
        ours.setblocking(False)
        with theirs, UndoOnError(ours.close):
            if not interpreters:
                reason = f"there is no Python interpreter to start; sys.executable is {sys.executable!r}"
                raise FileNotFoundError(errno.ENOENT, reason)
            argument = config._replace(socket=theirs.fileno()).to_argument()
            command = processes.isolated_command(interpreters[0], "instrument.write.worker", argument)
            process = processes.start(command, [*fds, theirs.fileno()], interpreters[0])
        return cls(process, ours, ready_seconds)

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.deadline

    def receive(self, report: Report) -> bool:
        """Take the messages of the worker; return False if its end of the socket is closed."""
        while True:
            try:
                message = self.socket.recv(_LONGEST_MESSAGE_BYTES)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not message:
                return False
            report(Diagnostic(*json.loads(message)))

    def kill(self, seconds: float) -> bool:
        """Kill the process and wait for its end; return False if it stays."""
        self.process.kill()
        return self.process.wait(seconds)

    def disconnect(self, how: int = socket.SHUT_RDWR) -> None:
        """Have the worker see that this is over, even if a forked child holds a copy of this end."""
        disconnect(self.socket, how)

    def close(self) -> None:
        self.socket.close()
        self.process.close()


def disconnect(end: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """Shut an end of a socket pair down, and all copies of it."""
    try:
        end.shutdown(how)
    except OSError:
        pass  # the other side is gone already


class Poison:
    """Counts the deaths of workers by the record that they had claimed, until it is committed.

    A record that kills its worker kills the successor too. It must not be tried for ever, nor be given up because
    somebody kills workers at random.
    """

    def __init__(self) -> None:
        self._deaths: dict[int, int] = {}
        self._committed = -1
        #: Deaths since something was committed last.
        self.deaths_in_a_row = 0

    @property
    def is_crash_loop(self) -> bool:
        """True when workers die without ever committing anything."""
        return self.deaths_in_a_row >= DEATHS_WITHOUT_PROGRESS

    def poisoned(self, deaths: int = DEATHS_OF_A_RECORD) -> list[int]:
        """Return the sequence numbers that were claimed at this number of deaths or more."""
        return [sequence for sequence, count in self._deaths.items() if count >= deaths]

    @property
    def last_suspect(self) -> int:
        """The highest number that was claimed at a death, 0 for none: up to there, records are committed singly."""
        return max(self._deaths, default=0)

    def record_death(self, claimed: int, committed: int) -> None:
        """Count a death over a record (0: none) when everything up to `committed` had been committed."""
        self.deaths_in_a_row = self.deaths_in_a_row + 1 if committed == self._committed else 1
        self._committed = committed
        self._deaths = {sequence: count for sequence, count in self._deaths.items() if sequence > committed}
        if claimed:
            self._deaths[claimed] = self._deaths.get(claimed, 0) + 1

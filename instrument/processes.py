"""Start processes beside a training that the training's own script never sees.

The problem: a plain child changes what a script can observe. Its `os.wait()` returns our process, or never raises
ChildProcessError while a recorder is open. `sys.executable` may be no interpreter at all (an embedding program,
uWSGI, a frozen application), and starting it runs that program again. The user's modules, `sitecustomize` and
PYTHONPATH would run in our process, where a `json.py` of theirs replaces the standard library's.

The strategy:

- `start` has a shell start the command in the background, print its number and end. The shell is waited for here; the
  process itself belongs to init. Where there is no shell, an interpreter does the same.
- `interpreters` lists what may be started: programs whose name begins with "python", never a frozen application. The
  caller counts its attempts. Each process has `MARK` in its environment: a program that was taken for an interpreter,
  and runs the training again, sees it there and starts nothing (`was_started_by_us`).
- `isolated_command` runs one module with `-I -S`: its path has the standard library first, then the folders of the few
  packages that we need, as this process would import them. Folders travel as an argument, so that colons and any bytes
  may be in their names.

Rejected: `fork` (MindSpore has threads), `multiprocessing` (it runs the user's main module again), a child process with
its own exit signal (`clone` cannot be called safely from Python).
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

from instrument.descriptors import above_streams

#: The environment variable that each started process has.
MARK = "INSTRUMENT_STARTED_BY"
#: A launcher prints a number and ends: milliseconds for a shell, some 20 for Python.
_LAUNCH_SECONDS = 10.0
_SHELL = "/bin/sh"
_SHELL_LAUNCH = 'cd / && { "$@" </dev/null >/dev/null & echo $!; }'
_PYTHON_LAUNCH = """
import os, sys
pid = os.fork()
if pid:
    os.write(1, b"%d\\n" % pid)
    os._exit(0)
os.chdir("/")
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 0)
os.dup2(null, 1)
os.execv(sys.argv[1], sys.argv[1:])
"""
#: What an isolated process runs: module, folders of packages, the Python that it has to be, an argument for `main`.
_BOOTSTRAP = """
import sys
module, folders, version, argument = sys.argv[1:]
if sys.implementation.cache_tag != version:
    sys.exit(3)
import json, os
from importlib.machinery import PathFinder
folders = {name: [os.fsdecode(p.encode("latin-1")) for p in paths] for name, paths in json.loads(folders).items()}
class Packages:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, folders[name], target) if path is None and name in folders else None
sys.path += dict.fromkeys(path for paths in folders.values() for path in paths)
sys.meta_path.insert(0, Packages)
import importlib
importlib.import_module(module).main(argument)
"""
_PACKAGES = ("instrument", "numpy", "crc32c", "PIL")
#: What OpenBLAS, MKL and others go by.
_THREAD_COUNTS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_POLL_SECONDS = 0.01


class Process:
    """A process that `start` has started, known by its number and the time of its start, and by a handle if possible.

    Where the process that started it adopts orphans (it is number 1 of a container), its status is collected by `wait`.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = -1
        self._born = _start_time(pid)
        try:
            self._handle = above_streams(os.pidfd_open(pid))
        except (AttributeError, OSError):  # an old kernel, no descriptor to be had, or it has ended
            pass

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the process ends, or -1."""
        return self._handle

    @property
    def is_alive(self) -> bool:
        """True until the process has ended; a zombie has ended."""
        if self._handle >= 0:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            return not poll.poll(0)
        return self._born is not None and _start_time(self.pid) == self._born

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing happens if the process has ended."""
        try:
            if self._handle >= 0:
                signal.pidfd_send_signal(self._handle, number)
            elif self.is_alive:
                os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds; return True if the process has ended."""
        if self._handle >= 0:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            poll.poll(timeout_s * 1000)
        else:
            deadline = time.monotonic() + timeout_s
            while self.is_alive and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        if self.is_alive:
            return False
        try:
            os.waitpid(self.pid, os.WNOHANG)
        except OSError:
            pass  # it was init's to collect, as mostly
        return True

    def close(self) -> None:
        """Close the handle; the process goes on."""
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            os.close(handle)


def _start_time(pid: int) -> str | None:
    """Return when a process was started, in the kernel's ticks; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def interpreters() -> list[str]:
    """Return the Python interpreters that may be started, the most likely first.

    A program whose name does not begin with "python", and a frozen application, are none.
    """
    version = ".".join(map(str, sys.version_info[:2]))
    candidates = []
    if not getattr(sys, "frozen", False):
        candidates += [sys.executable, getattr(sys, "_base_executable", None)]
    for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix):
        candidates += [os.path.join(prefix, "bin", name) for name in (f"python{version}", "python3", "python")]
    paths: dict[str, str] = {}
    for candidate in candidates:
        if candidate and re.match("python|pypy", os.path.basename(candidate)) and _is_program(candidate):
            paths.setdefault(os.path.realpath(candidate), candidate)
    return list(paths.values())


def _is_program(path: str) -> bool:
    return os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK)


def was_started_by_us() -> bool:
    """Return True in a program that was started for an interpreter and is another program."""
    return MARK in os.environ


def environment() -> dict[str, str]:
    """Return the environment of a started process.

    It is that of this process, with `MARK`, without MindSpore's choice of the slow protobuf, and with one thread for
    NumPy's linear algebra, which is never used: some libraries begin with 50 ms of waiting at full speed.
    """
    result = {**os.environ, **dict.fromkeys(_THREAD_COUNTS, "1"), MARK: str(os.getpid())}
    result.pop("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", None)
    return result


def isolated_command(interpreter: str, module: str, argument: str) -> list[str]:
    """Return the command that calls `main(argument)` of a module of ours with nothing of the user's on its path."""
    folders = {name: [os.fsencode(path).decode("latin-1") for path in _folders(name)] for name in _PACKAGES}
    version = sys.implementation.cache_tag or ""
    return [interpreter, "-I", "-S", "-c", _BOOTSTRAP, module, json.dumps(folders), version, argument]


def _folders(name: str) -> list[str]:
    """Return the folders in which a package lies, without importing it; none if it is not installed."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is None:
            return []
        # A package's folder stands in the folder to search; a module is a file there. Namespaces have several.
        places = spec.submodule_search_locations
        inner = [*places] if places is not None else [spec.origin or ""]
    except (ImportError, ValueError, AttributeError, TypeError):  # no `__spec__`, a broken finder, an odd `sys.path`
        return []
    return [os.path.dirname(os.path.abspath(path)) for path in inner if path]


def start(
    command: Sequence[str],
    descriptors: Iterable[int],
    interpreter: str = "",
    environ: Mapping[str, str] | None = None,
) -> Process:
    """Start a command that inherits the descriptors, in `/`, without standard input and output, and not as a child.

    `interpreter` is a Python that launches it where there is no shell, `environ` its environment (default:
    `environment()`).

    Raises:
        OSError: no process is to be had, or the launcher does not answer.
    """
    environ = environment() if environ is None else environ
    try:
        return _launch([_SHELL, "-c", _SHELL_LAUNCH, "sh", *command], descriptors, environ)
    except FileNotFoundError:
        if not interpreter:
            raise
        return _launch([interpreter, "-I", "-S", "-c", _PYTHON_LAUNCH, *command], descriptors, environ)


def _launch(command: list[str], descriptors: Iterable[int], environ: Mapping[str, str]) -> Process:
    """Run a launcher, which prints the number of a process that stays, and wait for the launcher's end."""
    answers, theirs = map(above_streams, os.pipe())
    try:
        try:
            launcher = subprocess.Popen(
                command, pass_fds=tuple(descriptors), stdout=theirs, env=environ, start_new_session=True
            )
        finally:
            os.close(theirs)
        try:
            return Process(_read_number(answers))
        finally:
            launcher.kill()  # it has ended, unless it is none
            launcher.wait()
    finally:
        os.close(answers)


def _read_number(fd: int) -> int:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    deadline = time.monotonic() + _LAUNCH_SECONDS
    answer = b""
    while not answer.endswith(b"\n"):  # not until its end: a child that is forked meanwhile holds a copy of the pipe
        if not poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            raise OSError(errno.ETIMEDOUT, "the launcher of a process does not answer")
        piece = os.read(fd, 64)
        if not piece:
            break
        answer += piece
    if not answer.strip().isdigit():
        raise OSError(errno.ECHILD, "the launcher of a process has started none")
    return int(answer)

"""A worker process: a plain child in a session of its own, which inherits descriptors and `sys.path`.

It is neither forked, since MindSpore has threads, nor started by multiprocessing, which would run the user's main
module again.
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from collections.abc import Iterable

from instrument.write.shared import Config

#: More processes than this never help: one encodes a gigabyte a second.
_DEFAULT_PROCESSES = 4
#: What OpenBLAS, MKL and others go by.
_THREAD_COUNTS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def default_processes() -> int:
    """Half of the cores that this process may use, at least one and at most four."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(cores // 2, 1), _DEFAULT_PROCESSES)


def check_system() -> None:
    """Raises `OSError` where there is no way to start workers or to share memory with them."""
    for module, name in ((os, "memfd_create"), (os, "eventfd"), (select, "epoll")):
        if not hasattr(module, name):
            raise OSError(errno.ENOSYS, f"this system has no {name}")
    if not sys.executable:
        raise OSError(errno.ENOENT, "sys.executable names no interpreter")


def spawn(config: Config, descriptors: Iterable[int]) -> subprocess.Popen[bytes]:
    """Start a worker that inherits the descriptors.

    Raises:
        OSError: no process is to be had.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "instrument.write.worker", config.to_argument()],
        pass_fds=tuple(descriptors),
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",  # `-m` looks for modules in the working directory first, and the user's may hold a json.py
    )


def _environment() -> dict[str, str]:
    """The trainer's environment with its `sys.path`, without MindSpore's choice of the slow protobuf, and with one
    thread for NumPy's linear algebra, which a worker never does: others begin with 50 ms of waiting at full speed."""
    environment = {**os.environ, **dict.fromkeys(_THREAD_COUNTS, "1")}
    environment.pop("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", None)
    # Python itself passes over entries that are no text.
    entries = [entry for entry in sys.path if isinstance(entry, str) and "\0" not in entry]
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, entries))
    return environment


def await_end(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process ends within so long.

    `Popen.wait` looks at ever longer intervals, up to 50 ms too late.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # an old kernel, no descriptor to be had, or somebody else has taken its status
        pass
    else:
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.poll(seconds * 1000)
        finally:
            os.close(handle)
        seconds = 0.0
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def exit_status(process: subprocess.Popen[bytes]) -> int:
    """What a process ends with, as `Popen.wait` says it, which a signal handler cannot call inside itself."""
    try:
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:  # its status has been taken already
        return process.returncode or 0
    assert ended is not None  # without WNOHANG
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

"""What ran: the command, the commit, the versions and the devices of a training, as facts that JSON can hold.

Git's own command is run with a limit of time, as a work tree on a network disk may be slow to compare. What is unknown
is absent. No variable of the environment is recorded, as these hold secrets.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import socket
import subprocess
import sys
from typing import TypedDict

from instrument import framework

#: Packages whose versions are recorded if they are installed.
PACKAGES = ("mindspore", "numpy", "mindspore-instrument")
_GIT_SECONDS = 5.0
#: A larger patch is left out: it is data, and no change of the code.
MOST_PATCH_BYTES = 1 << 20


class Commit(TypedDict, total=False):
    """The state of a git work tree: commit, branch, number of changed files, and the changes as a unified diff."""

    commit: str
    branch: str
    changed_files: int
    patch: str


class Provenance(TypedDict, total=False):
    """What ran, where, and of which versions."""

    command: str
    directory: str
    host: str
    python: str
    platform: str
    versions: dict[str, str]
    device: str
    git: Commit


def provenance(with_patch: bool = False) -> Provenance:
    """Return the facts on this process; `with_patch` adds the uncommitted changes of tracked files."""
    result: Provenance = {"command": shlex.join(sys.orig_argv or sys.argv)}
    try:
        result["directory"] = os.getcwd()
    except OSError:
        pass  # it was removed
    result["host"] = socket.gethostname()
    result["device"] = framework.device_target()
    script = os.path.dirname(os.path.abspath(sys.argv[0])) if sys.argv and os.path.isfile(sys.argv[0]) else os.curdir
    if git := commit_of(script, with_patch):
        result["git"] = git
    result["versions"] = _versions()
    result["python"] = platform.python_version()
    result["platform"] = platform.platform()
    return result


def _versions() -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    result = {}
    for name in PACKAGES:
        try:
            result[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return result


def commit_of(directory: str, with_patch: bool = False) -> Commit:
    """Return the state of the work tree that holds `directory`; empty if there is none, or git cannot tell in time."""
    status = _git(directory, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    if status is None:
        return {}
    result: Commit = {}
    changed = 0
    for line in status.decode(errors="replace").splitlines():
        if line.startswith("# branch.oid ") and "(initial)" not in line:
            result["commit"] = line.removeprefix("# branch.oid ")
        elif line.startswith("# branch.head ") and "(detached)" not in line:
            result["branch"] = line.removeprefix("# branch.head ")
        elif not line.startswith("#"):
            changed += 1
    result["changed_files"] = changed
    if with_patch and changed and "commit" in result:
        patch = _git(directory, "diff", "--no-ext-diff", "--no-color", "--no-textconv", "HEAD")
        if patch and len(patch) <= MOST_PATCH_BYTES:
            result["patch"] = patch.decode(errors="backslashreplace")
    return result


def _git(directory: str, *arguments: str) -> bytes | None:
    """Return what git prints; None if it fails, is absent, or takes too long."""
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", directory, *arguments]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        ended = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout if ended.returncode == 0 else None

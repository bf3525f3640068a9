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
_GIT_PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX")
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
    result: Provenance = {"command": shlex.join(map(str, sys.orig_argv))}
    try:
        result["directory"] = os.getcwd()
    except OSError:
        pass  # it was removed
    result["host"] = socket.gethostname()
    result["device"] = framework.device_target()
    if git := commit_of(_code_directory(), with_patch):
        result["git"] = git
    result["versions"] = _versions()
    result["python"] = platform.python_version()
    result["platform"] = platform.platform()
    return result


def _code_directory() -> str:
    """Return the directory of the script, or the working directory for a notebook, a module or an installed program."""
    script = next(iter(getattr(sys, "argv", ())), "")
    if not isinstance(script, str) or not os.path.isfile(script):
        return os.curdir
    path = os.path.realpath(script)
    installed = [os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)]
    if "site-packages" in path.split(os.sep) or any(path.startswith(os.path.join(prefix, "")) for prefix in installed):
        return os.curdir
    return os.path.dirname(path)


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
    if status is None or b"# branch.oid " not in status:
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
    # A hook of git that starts a training would name its own repository.
    environment = {name: value for name, value in os.environ.items() if name not in _GIT_PLACES}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        ended = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout if ended.returncode == 0 else None

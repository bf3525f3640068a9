"""Examine this machine: installed versions, and trials of recording, training and profiling.

The problem: a user whose records are missing wants to know what does not work here, and pastes the answer into an
issue. MindSpore may end its process, already at its import.

The strategy: trials run in processes of their own. A trial leaves its result as JSON, after each part, so that what
worked is known of one that died; what it recorded is read here as any run is, and compared with what was written. No
text names the user, the host or their directories.

Rejected: asking for versions and drivers alone. They say what is installed, and not whether memory can be mapped twice,
a worker starts, or a profile has steps.
"""

from __future__ import annotations

import getpass
import importlib.util
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata

import numpy as np

from instrument._version import SUPPORTED_MINDSPORE, __version__
from instrument.doctor.findings import FAILS, NOTE, WORKS, Expected, Failed, Finding, Result, attempt
from instrument.runs.run import Run, read_run

#: Distribution -> what it is needed for, where that is no part of the base install.
PACKAGES = {
    "mindspore": "recording a training",
    "numpy": "",
    "protobuf": "MindSpore",
    "crc32c": "",
    "pillow": "pictures",
    "psutil": "system_metrics: the extra `system`",
    "pandas": "to_pandas(): the extra `pandas`",
    "matplotlib": "pictures of landscapes: the extra `plot`",
    "pyarrow": "export to Parquet: the extra `parquet`",
}
_BASE = ("numpy", "crc32c")
_SECONDS = {"recording": 120.0, "training": 600.0}
_LITTLE_ROOM_BYTES = 1 << 30
_SHORT = 3
_BUG = "This is a bug: please open an issue and paste the output above."


@dataclass(frozen=True)
class Report:
    """`system` describes the machine, `versions` has the installed packages (None: not installed)."""

    system: dict[str, str]
    versions: dict[str, str | None]
    findings: list[Finding]

    @property
    def is_well(self) -> bool:
        return all(finding.status != FAILS for finding in self.findings)

    def to_dict(self) -> dict[str, object]:
        findings = [finding.to_dict() for finding in self.findings]
        return {"is_well": self.is_well, "system": self.system, "versions": self.versions, "findings": findings}


def examine(directory: str) -> Report:
    """Try everything in a temporary directory below `directory`, and return the report.

    Raises:
        OSError: nothing can be written there.
    """
    with tempfile.TemporaryDirectory(prefix="instrument-", dir=directory) as place:
        findings = [*_around(directory), *_recording(place), *_training(place)]
    private = _Private(directory, place)
    findings = [
        replace(finding, detail=private(finding.detail), advice=private(finding.advice)) for finding in findings
    ]
    return Report(_system(), versions(), findings)


def versions() -> dict[str, str | None]:
    return {"instrument": __version__, **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _system() -> dict[str, str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
        "cores": str(cores),
    }


# ---------------------------------------------------------------- what is installed


def _around(directory: str) -> Iterator[Finding]:
    lacking = [name for name in _BASE if _version(name) is None]
    if lacking:
        yield Finding("packages", FAILS, f"{', '.join(lacking)} not installed", f"pip install {' '.join(lacking)}")
    if not (3, 10) <= sys.version_info[:2] <= (3, 12):
        yield Finding("python", NOTE, f"{platform.python_version()}; MindSpore has wheels for 3.10 to 3.12")
    yield from _numpy()
    yield attempt("checksums", _checksums, "pip install --force-reinstall crc32c")
    yield _room("disk", directory)
    if os.path.isdir("/dev/shm"):
        yield _room(
            "/dev/shm", "/dev/shm", "MindSpore's data sets with python_multiprocessing need it; instrument does not."
        )


def _numpy() -> Iterator[Finding]:
    """Yield a note if NumPy 2 is installed with a MindSpore that was built for NumPy 1."""
    mindspore, numpy = _version("mindspore"), _version("numpy")
    if mindspore is not None and numpy is not None and int(numpy.partition(".")[0]) >= 2:
        detail = f"{numpy}; MindSpore {mindspore} was built for NumPy 1: some of its operations and data sets fail"
        yield Finding("numpy", NOTE, detail, "For training: pip install 'numpy<2'. Reading works with NumPy 2.")


def _checksums() -> str:
    from instrument.eventfile import crc

    if crc.unmask(crc.masked_crc([b"123456789"])) != 0xE3069283:  # the check value of CRC-32C
        raise Failed("crc32c computes a wrong checksum")
    return "crc32c is right"


def _room(name: str, directory: str, advice: str = "Runs need room; a full disk costs records.") -> Finding:
    free = shutil.disk_usage(directory).free
    detail = f"{free / 1e9:.1f} GB free"
    return Finding(name, WORKS, detail) if free >= _LITTLE_ROOM_BYTES else Finding(name, NOTE, detail, advice)


# ---------------------------------------------------------------- what works


def _recording(place: str) -> list[Finding]:
    result, findings = _trial("recording", place)
    if result:
        processes = Finding("num_process", WORKS, f"{result['processes']} by default: half of the cores, at most 4")
        findings.append(processes)
    return findings


def _training(place: str) -> list[Finding]:
    if importlib.util.find_spec("mindspore") is None:
        first, last = (".".join(map(str, version)) for version in SUPPORTED_MINDSPORE)
        advice = f"Reading works without it. For recording a training: MindSpore {first} to {last}."
        return [Finding("MindSpore", NOTE, "not installed", advice)]
    result, findings = _trial("training", place)
    if result and "profile" in result["expected"]:
        findings.append(attempt("reading the profile", partial(_read_profile, os.path.join(place, "profile"))))
    return findings


def _trial(name: str, place: str) -> tuple[Result | None, list[Finding]]:
    """Run a trial, and read back what it recorded; return its result, None if it failed, and all findings."""
    result_path = os.path.join(place, f"{name}.json")
    failure = _run(f"instrument.doctor.{name}", place, result_path, _SECONDS[name])
    try:
        with open(result_path, encoding="utf-8") as file:
            result: Result | None = json.load(file)
    except (OSError, ValueError):
        result = None
    findings = [Finding(**fields) for fields in result["findings"]] if result else []
    if failure or result is None:
        findings.append(Finding(f"the trial of {name}", FAILS, failure or "it left no result", _BUG))
        return None, findings
    if result["expected"]:
        findings.append(attempt(f"reading {name} back", partial(_read_back, place, result["expected"])))
    return result, findings


def _run(module: str, place: str, result_path: str, seconds: float) -> str:
    """Run a module in a process of its own; return why it failed, an empty text if it did not."""
    entries = [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str) and "\0" not in entry]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entries)}
    environment.pop("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", None)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", module, place, result_path],
            cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it took longer than {seconds:g} s"
    except OSError as error:
        return f"no process can be started: {error.strerror}"
    if ended.returncode == 0:
        return ""
    last = ([line for line in ended.stderr.splitlines() if line.strip()] or ["it said nothing"])[-1]
    return f"it ended with {ended.returncode}: {last:.300}"


def _read_back(place: str, expected: Expected) -> str:
    """Compare every run of a trial with what was written: the number of points of each tag, and their sum.

    Raises:
        Failed: they differ, or the run is damaged.
    """
    points, started = 0, time.perf_counter()
    for directory, kinds in expected.items():
        run = read_run(os.path.join(place, directory))
        if run.damage or run.gaps:
            raise Failed(f"{directory}: {(*run.damage, *run.gaps)[0]}")
        for kind, tags in kinds.items():
            for tag, (count, total) in tags.items():
                read_count, read_total = _sum(run, kind, tag)
                if read_count != count or not np.isclose(read_total, total):
                    read_, written = f"{read_count} points of sum {read_total:g}", f"{count} of sum {total:g}"
                    raise Failed(f"{directory}: {kind} {tag!r} has {read_}; written were {written}")
                points += read_count
    return f"{points} points in {1e3 * (time.perf_counter() - started):.0f} ms, all as they were written"


def _sum(run: Run, kind: str, tag: str) -> tuple[int, float]:
    series = run.points(kind, tag)
    values = [series.decode(index) for index in range(len(series))]
    if kind == "tensor":
        return len(values), sum(float(value.array.sum(dtype=np.float64)) for value in values)
    return len(values), float(sum(value.counts.sum() if kind == "histogram" else value for value in values))


def _read_profile(path: str) -> str:
    profile = read_run(path).profile()
    steps, operators = profile.steps["step"].tolist(), len(profile.operators["full_name"])
    if not steps:
        raise Failed("the profile has no steps")
    return f"steps {steps[0]} to {steps[-1]}, {operators} operators"


# ---------------------------------------------------------------- private names


class _Private:
    """Replaces the names of the user, the host and directories in a text."""

    def __init__(self, directory: str, place: str) -> None:
        paths = ((place, "<trial>"), (os.path.abspath(directory), "<directory>"), (os.path.expanduser("~"), "~"))
        self._paths = [(os.path.realpath(path), word) for path, word in paths] + list(paths)
        names = [(socket.gethostname(), "<host>")]
        try:
            names.append((getpass.getuser(), "<user>"))
        except (KeyError, OSError, ImportError):
            pass  # a user without a name
        # A short name may be anything, but for one that is a part of a path.
        self._words = [
            (
                rf"(?<=/){re.escape(name)}(?=/|$)" if len(name) <= _SHORT else rf"(?<![\w-]){re.escape(name)}(?![\w-])",
                shown,
            )
            for name, shown in names
            if name
        ]

    def __call__(self, text: str) -> str:
        for path, shown in self._paths:
            if len(path) > 1:
                text = re.sub(re.escape(path) + r"(?=[/\s'\":;,.)\]]|$)", shown, text)
        for pattern, shown in self._words:
            text = re.sub(pattern, shown, text)
        return text

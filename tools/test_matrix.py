"""Run the tests against several releases of MindSpore and NumPy, each in a virtual environment of its own.

    python tools/test_matrix.py [NAME ...]     names as the table prints them; none means all

The environments `.venv-matrix-NAME` stay for the next time and are made anew when setup.cfg changes. The exit status
is 0 if every row's tests passed, 1 if not, and 2 for a name that is no row. Needs the standard library only.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "-qq", "install")


@dataclass(frozen=True)
class Row:
    """One combination. The first of `pythons` that this machine has is taken."""

    mindspore: str
    numpy: str
    pythons: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"ms{self.mindspore}-np{self.numpy.partition('.')[0]}"

    @property
    def requirements(self) -> tuple[str, str]:
        return (f"mindspore=={self.mindspore}", f"numpy=={self.numpy}")


ROWS = (
    Row("2.7.2", "1.26.*", ("3.10", "3.11", "3.12")),
    Row("2.9.0", "1.26.*", ("3.11", "3.12", "3.10")),
    Row("2.10.0", "1.26.*", ("3.11", "3.12", "3.10")),
    Row("2.10.0", "2.*", ("3.12", "3.11", "3.10")),
)


@dataclass(frozen=True)
class Outcome:
    """What became of a row; `problem` is empty if its tests ran and passed."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    problem: str = ""


def main(names: list[str]) -> int:
    unknown = set(names) - {row.name for row in ROWS}
    if unknown:
        print(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(row.name for row in ROWS)}")
        return 2
    outcomes = [run(row) for row in ROWS if not names or row.name in names]
    print_table(outcomes)
    return 1 if any(outcome.problem for outcome in outcomes) else 0


def run(row: Row) -> Outcome:
    environment = ROOT / f".venv-matrix-{row.name}"
    print(f"\n== {row.name}: {' '.join(row.requirements)}", flush=True)
    try:
        python = prepared(environment, row)
    except subprocess.CalledProcessError:
        return Outcome(row.name, problem="the environment could not be made, see above")
    except FileExistsError as error:
        return Outcome(row.name, problem=str(error))
    return run_tests(row.name, python, environment / "report.xml")


def prepared(environment: Path, row: Row) -> Path:
    """The environment's Python, after making it unless it stands as setup.cfg and the row want it."""
    python = environment / "bin" / "python"
    wanted = "\n".join((*row.requirements, (ROOT / "setup.cfg").read_text()))
    stamp = environment / "installed"
    if not (stamp.exists() and stamp.read_text() == wanted):
        if environment.exists() and not stamp.exists():
            raise FileExistsError(f"{environment} was not made by this script: move it away, then try again")
        print(f"   installing into {environment.name}", flush=True)
        shutil.rmtree(environment, ignore_errors=True)
        environment.mkdir()
        stamp.touch()
        subprocess.run([find_python(row.pythons), "-m", "venv", str(environment)], check=True)
        mindspore, numpy = row.requirements
        subprocess.run([str(python), *PIP, mindspore, "-e", f"{ROOT}[test]"], check=True)
        # By itself: setup.cfg asks for NumPy 1, and people have NumPy 2 all the same.
        subprocess.run([str(python), *PIP, numpy], check=True)
        stamp.write_text(wanted)
    return python


def find_python(versions: tuple[str, ...]) -> str:
    command = [str(ROOT / "tools" / "find-python"), *versions]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def run_tests(name: str, python: Path, report: Path) -> Outcome:
    report.unlink(missing_ok=True)
    start = time.monotonic()
    status = subprocess.run([str(python), "-m", "pytest", "-q", f"--junitxml={report}"], cwd=ROOT).returncode
    seconds = time.monotonic() - start
    if not report.exists():
        return Outcome(name, seconds=seconds, problem=f"pytest ended with status {status} and no report")
    count = counts(report)
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - failed - count["skipped"]
    problem = "" if status == 0 else f"pytest ended with status {status}"
    return Outcome(name, passed, failed, count["skipped"], seconds, problem)


def counts(report: Path) -> dict[str, int]:
    """Sums over the suites of a JUnit report."""
    suites = ElementTree.parse(report).getroot().findall("testsuite")
    names = ("tests", "failures", "errors", "skipped")
    return {name: sum(int(suite.get(name, "0")) for suite in suites) for name in names}


def print_table(outcomes: list[Outcome]) -> None:
    print(f"\n{'':<14}{'passed':>8}{'failed':>8}{'skipped':>9}{'time (s)':>10}")
    for row in outcomes:
        line = f"{row.name:<14}{row.passed:>8}{row.failed:>8}{row.skipped:>9}{row.seconds:>10.0f}  {row.problem}"
        print(line.rstrip())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

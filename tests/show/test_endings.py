"""How a command ends that somebody or something stops: one line or none, and the status that shells expect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.show.kinds import RUNS, profiled
from tests.show.surfaces import plane, write_run

ROOT = Path(__file__).resolve().parents[2]
CALLS = {
    "ls": "ls RUN", "show": "show RUN", "scalars": "scalars RUN", "compare": "compare RUN RUN",
    "lineage": "lineage RUN",
    "export": "export RUN --to csv -o OUT", "import": "import TENSORBOARD -o OUT", "verify": "verify RUN",
    "repair": "repair RUN -o OUT",
    "report": "report RUN -o OUT.html", "profile": "profile PROFILE", "landscape": "landscape LANDSCAPE",
}  # fmt: skip
#: Sends the signal of Ctrl+C to this process when it opens the first event file: in the middle of the verb.
INTERRUPT = """
import os, signal, sys

def hook(event, arguments, sent=[]):
    if event == "open" and "events.out." in str(arguments[0]) and not sent:
        sent.append(True)
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(hook)
from instrument.__main__ import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("endings")
    return {
        "RUN": RUNS["every kind"](root / "run"),
        "TENSORBOARD": RUNS["tensorboard"](root / "tensorboard"),
        "PROFILE": profiled(root / "profile"),
        "LANDSCAPE": write_run(root / "landscape", plane()),
    }


def words_of(verb: str, places: dict[str, Path], out: Path) -> list[str]:
    return [
        str({**places, "OUT": out, "OUT.html": out.with_suffix(".html")}.get(word, word))
        for word in CALLS[verb].split()
    ]


def start(command: list[str], **options: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.parametrize("verb", CALLS)
def test_interrupted_in_the_middle(verb: str, places: dict[str, Path], tmp_path: Path) -> None:
    """Ctrl+C gives one line and status 130, and no half of a file stays."""
    command = [sys.executable, "-c", INTERRUPT, *words_of(verb, places, tmp_path / "out")]
    with start(command, stdout=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "instrument: interrupted\n")
    assert [path for path in tmp_path.rglob("*") if path.name.endswith(".part")] == []


@pytest.mark.parametrize("verb", CALLS)
def test_a_reader_that_has_gone(verb: str, places: dict[str, Path], tmp_path: Path) -> None:
    """As `| head` does: nothing on stderr, and status 0."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "instrument", *words_of(verb, places, tmp_path / "out")]
    with start(command, stdout=writer) as process:
        os.close(writer)
        _, err = process.communicate(timeout=60)
    said = [line for line in err.splitlines() if not line.startswith("instrument: ")]
    assert (process.returncode, said) == (0, [])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("verb", CALLS)
def test_a_full_disk_behind_stdout(verb: str, places: dict[str, Path], tmp_path: Path) -> None:
    """Status 1 and the reason, once."""
    command = [sys.executable, "-m", "instrument", *words_of(verb, places, tmp_path / "out")]
    with open("/dev/full", "w", encoding="utf-8") as full, start(command, stdout=full) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.splitlines()[-1] == "instrument: No space left on device"
    assert "Traceback" not in err
    assert "Exception ignored" not in err


@pytest.mark.parametrize("closed", ["1", "2", "0 1 2"])
def test_streams_that_are_closed(closed: str, places: dict[str, Path]) -> None:
    """A command whose stdout or stderr was closed before it started does its work."""
    redirections = " ".join(f"{descriptor}>&-" for descriptor in closed.split())
    line = f'"$0" -m instrument verify "$1" {redirections}'
    with start(["sh", "-c", line, sys.executable, str(places["RUN"])], stdout=subprocess.PIPE) as process:
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("call", ["show P", "ls P", "verify P", "profile P", "scalars P", "repair P -o O"])
def test_no_permission_to_read(call: str, tmp_path: Path) -> None:
    """A directory, or a file in it, that may not be read is one sentence with the path."""
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    if drop and subprocess.run([*drop, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs a user without privileges, or setpriv")
    run = RUNS["mindspore"](tmp_path / "run")
    run.chmod(0o000)
    words = [{"P": str(run), "O": str(tmp_path / "out")}.get(word, word) for word in call.split()]
    with start([*drop, sys.executable, "-m", "instrument", *words], stdout=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=60)
    run.chmod(0o755)
    assert (process.returncode, out) == (1, "")
    assert str(run) in err
    assert "Permission denied" in err
    assert all(line.startswith("instrument: ") for line in err.splitlines())

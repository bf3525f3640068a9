"""How far a long command is, on stderr of a terminal."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from instrument.analyse.layout import columns
from instrument.show import terminal as module
from instrument.show.cli import main
from instrument.show.terminal import Progress, in_bytes, tell
from tests.show.kinds import RUNS


class Terminal(io.StringIO):
    """A stream that says that somebody looks at it, and can be waited for."""

    def isatty(self) -> bool:
        return True


def test_the_line_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done, of how much, for how long, and with what; no wider than the terminal."""
    monkeypatch.setenv("COLUMNS", "60")
    times = iter([0.0, 12.4, 13.0])
    progress = Progress("verify", 3 << 20, in_bytes, Terminal(), lambda: next(times))
    progress.advance("a/file\n", 1 << 20)
    assert progress.line() == r"verify: 1.0 MiB of 3.0 MiB (33 %), 12 s, a/file\n"
    progress.advance("中" * 100)
    line = progress.line()
    assert line.startswith("verify: 1.0 MiB of 3.0 MiB (33 %), 13 s, 中")
    assert columns(line) <= 59


@pytest.mark.parametrize(("amount", "shown"), [(5, "5 bytes"), (2048, "2.0 KiB"), (3 << 29, "1.5 GiB")])
def test_sizes_have_a_unit(amount: int, shown: str) -> None:
    """One that suits the number."""
    assert in_bytes(amount) == shown


def test_it_is_drawn_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn by a thread; notes take its place, and nothing of it stays."""
    monkeypatch.setattr(module, "_FIRST_S", 0.0)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("verify", 2, "{} files".format) as progress:
        progress.advance("one")
        while "of 2 files" not in stream.getvalue():
            pass
        tell("a note")
    text = stream.getvalue()
    assert "\r\x1b[Kverify: 0 files of 2 files (0 %)" in text
    assert "\r\x1b[Kinstrument: a note\n" in text
    assert text.endswith(("\r\x1b[K", "a note\n"))


def test_nothing_is_drawn_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even of a command that takes long."""
    monkeypatch.setattr(module, "_FIRST_S", 0.0)
    stream = io.StringIO()
    with Progress("export", 2, stream=stream) as progress:
        progress.advance("one")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("call", ["verify P", "repair P -o O", "export P --to csv -o O", "export P --to npy -o O"])
def test_commands_that_have_it(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins at nothing and ends at the last file or tag; a short command draws none."""
    lines: list[str] = []
    advance = Progress.advance

    def noted(self: Progress, now: str, done: int = 0) -> None:
        advance(self, now, done)
        lines.append(self.line())

    monkeypatch.setattr(Progress, "advance", noted)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "200")
    path = RUNS["every kind"](tmp_path / "run")
    assert main([{"P": str(path), "O": str(tmp_path / "out")}.get(word, word) for word in call.split()]) == 0
    assert f"{call.split()[0]}: 0 " in lines[0]
    assert "(100 %)" in lines[-1] or "tags" in lines[-1]
    assert "%)" not in stream.getvalue()

"""What is known of the terminal at the end of a stream."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios
from collections.abc import Iterator
from typing import IO

import pytest

from instrument.analyse.layout import UNLIMITED, Screen
from instrument.show.terminal import is_terminal, screen


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[IO[str]]:
    """A stream that leads to a terminal of 50 lines and 97 columns."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    leader, follower = pty.openpty()
    resize(follower, 97)
    with open(follower, "w", encoding="utf-8") as stream:
        yield stream
    os.close(leader)


def resize(descriptor: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))


def test_the_width_is_that_of_the_terminal(terminal: IO[str]) -> None:
    """80 where it does not know, and never less than 20."""
    assert screen(terminal) == Screen(97, has_style=True)
    resize(terminal.fileno(), 0)
    assert screen(terminal).width == 80
    resize(terminal.fileno(), 3)
    assert screen(terminal).width == 20


@pytest.mark.parametrize(("value", "width"), [("132", 132), ("0", 97), ("-5", 97), ("wide", 97), ("", 97)])
def test_columns_is_respected(terminal: IO[str], monkeypatch: pytest.MonkeyPatch, value: str, width: int) -> None:
    """Where it is a number of columns."""
    monkeypatch.setenv("COLUMNS", value)
    assert screen(terminal).width == width


def test_a_pipe_has_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever COLUMNS says: a program that reads gets everything."""
    monkeypatch.setenv("COLUMNS", "60")
    closed = io.StringIO()
    closed.close()
    for stream in (io.StringIO(), closed):
        assert screen(stream) == UNLIMITED
        assert not is_terminal(stream)


@pytest.mark.parametrize(
    ("environment", "on_terminal", "in_pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_colours(
    terminal: IO[str], monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], on_terminal: bool, in_pipe: bool
) -> None:
    """On a terminal only; NO_COLOR and FORCE_COLOR decide where they are not empty."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert screen(terminal).has_style is on_terminal
    assert screen(io.StringIO()).has_style is in_pipe

"""What a file is that is no event file."""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest

from instrument.analyse.profile import profile
from instrument.errors import NoSuchRun
from instrument.eventfile.file_kinds import described
from instrument.runs.run import read_run
from instrument.runs.verify import check, repair
from instrument.values import Event
from tests.runs.build import write

TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "aten::add", "ts": 1, "dur": 2}]}).encode()


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.arange(3))
    return file.getvalue()


FILES = {
    "notes.txt": (b"one\ntwo\n", "a text file"),
    "utf8.txt": ("損失関数\n".encode() * 10_000, "a text file"),
    "trace.json": (TRACE, "a trace in Chrome's format"),
    "trace.json.gz": (gzip.compress(TRACE), "compressed with gzip"),
    "list.json": (b"\xef\xbb\xbf[1, 2]", "a JSON file"),
    "page.html": (b"<!DOCTYPE html><html>", "an HTML page"),
    "arrays.npz": (npz(), "a ZIP archive"),
    "cut.gz": (gzip.compress(os.urandom(100_000))[:5], "a file, compressed with gzip"),
    "picture.png": (b"\x89PNG\r\n\x1a\n" + bytes(50), "a PNG picture"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS"),
    "empty": (b"", "an empty file"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_named_by_what_is_in_them(tmp_path: Path, name: str) -> None:
    """Whatever reads them says it, and says it in one sentence."""
    content, words = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert words in described(str(path))
    for attempt in (read_run, check, profile, lambda one: repair(one, str(tmp_path / "out"))):
        with pytest.raises(NoSuchRun, match=words):
            attempt(str(path))
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_opened_is_not_opened(tmp_path: Path) -> None:
    """A pipe would never end; a socket and a device hold no file."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        paths = {tmp_path / "pipe": "a pipe", tmp_path / "socket": "a socket", Path("/dev/null"): "a device"}
        for path, words in paths.items():
            for attempt in (read_run, profile):
                with pytest.raises(NoSuchRun, match=words):
                    attempt(str(path))


def test_an_event_file_under_another_name_is_one(tmp_path: Path) -> None:
    """Its bytes tell nothing of another kind, and it is checked and repaired as ever."""
    file = write(tmp_path, [Event(1, 5.0, (), {"loss": 0.5})]).rename(tmp_path / "renamed.bin")
    assert described(str(file)) == ""
    assert check(str(file)).is_whole
    assert repair(str(file), str(tmp_path / "out.bin")).is_whole

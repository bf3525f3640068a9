"""The index of a tree: quick the second time, and never trusted over the files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from instrument.runs.index import Index
from instrument.runs.run import find_runs
from tests.runs.build import steps, write


def look(root: Path) -> list[str]:
    """For each run whether the index knew it."""
    index = Index(str(root), "test")
    found = []
    for run in find_runs(root):
        facts = index.facts(run)
        if facts is None:
            facts = {"steps": run.scalars("x").step.tolist()}
            index.keep(run, facts)
            found.append("read")
        else:
            found.append("known")
        assert facts == {"steps": run.scalars("x").step.tolist()}
    index.save()
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in "ab":
        write(tmp_path / "root" / name, steps("scalar", "x", range(3), 1.0, start=0.0))
    return tmp_path / "root"


def test_a_second_look_knows_the_runs(root: Path) -> None:
    """Nothing changed: nothing is read."""
    assert look(root) == ["read", "read"]
    assert look(root) == ["known", "known"]


def _grow(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-60])


def _same_size(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    times = os.stat(path)
    with open(path, "r+b") as file:
        file.write(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _replace(path: Path) -> None:
    times = os.stat(path)
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.replace(other, path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _another_file(path: Path) -> None:
    write(path.parent, steps("scalar", "x", [9], 1.0, start=99.0), device=3)


@pytest.mark.parametrize("change", [_grow, _same_size, _replace, _another_file])
def test_a_run_that_changed_is_read(root: Path, change: Callable[[Path], None]) -> None:
    """Its size, its last bytes, its inode, or its files are others: the other run is still known."""
    look(root)
    (path,) = (root / "b").iterdir()
    change(path)
    assert look(root) == ["known", "read"]
    assert look(root) == ["known", "known"]


def test_growth_while_it_is_read_is_seen_next_time(root: Path) -> None:
    """A run is known by how its files were before they were read."""
    index = Index(str(root), "test")
    runs = find_runs(root)
    assert index.facts(runs[0]) is None
    _another_file(root / "a" / "x")
    (path,) = (root / "b").iterdir()
    assert index.facts(runs[1]) is None
    path.write_bytes(path.read_bytes() + path.read_bytes())
    index.keep(runs[1], {"steps": [0, 1, 2]})
    index.save()
    assert look(root) == ["read", "read"]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 5}', "[" * 100_000])
def test_an_index_that_is_none_is_passed_over(root: Path, content: str) -> None:
    """Whatever stands in the file of the index."""
    look(root)
    for path in Path(os.environ["XDG_CACHE_HOME"], "instrument").iterdir():
        path.write_text(content)
    assert look(root) == ["read", "read"]


def test_without_a_cache_all_is_read(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that cannot be written costs time only."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert look(root) == ["read", "read"]
    assert look(root) == ["read", "read"]

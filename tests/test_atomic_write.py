"""Files that are whole or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrument.atomic_write import replacing


def test_a_file_gets_its_name_at_the_end(tmp_path: Path) -> None:
    """One that is there is replaced then, and nothing stays beside it."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replacing(str(path)) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("file", b"new")]


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    """And no temporary one."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), replacing(str(path), "x", encoding="utf-8") as file:
        file.writelines(["new", None])
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("file", b"old")]


def test_an_error_names_the_file_of_the_user(tmp_path: Path) -> None:
    """Not the temporary one."""
    path = str(tmp_path / "absent" / "file")
    with pytest.raises(FileNotFoundError) as caught, replacing(path):
        pass
    assert caught.value.filename == path

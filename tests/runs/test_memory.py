"""What a file can make a reader take: no more memory than its size and 64 MB, and no more time than reading it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.runs import hostile

ROOT = Path(__file__).resolve().parents[2]
_MARGIN_BYTES = 64 << 20
#: The slowest takes a quarter of this on two cores, all of it going field by field.
_MOST_S = 60.0
#: These take some seconds each, in which little happens but that Python goes through their fields.
SLOW = {
    "a graph of empty nodes", "empty tensors in events", "empty tensors", "numbers in events", "no events", "gaps",
    "weights", "lineage events", "custom lineage events", "TensorBoard, floats one by one", "TensorBoard, varints",
    "TensorBoard, sizes", "TensorBoard, nodes", "TensorBoard, inputs", "TensorBoard, hyper-parameters",
    "TensorBoard, starts", "TensorBoard, plugins", "TensorBoard, texts", "TensorBoard, pictures", "pieces of a byte",
    "empty raw files", "windows",
}  # fmt: skip


def check(folder: Path, wanted: Iterable[str]) -> None:
    """Read and verify files of these kinds, each in a process of its own."""
    sizes = {}
    for kind in wanted:
        name, make = hostile.FILES[kind]
        (folder / kind).mkdir()
        sizes[kind] = (folder / kind / name).write_bytes(make())
    command = [sys.executable, "-m", "tests.runs.peaks", *sizes]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["folder"] for one in found] == [kind for kind in sizes for _ in ("read", "verified")], result.stderr
    over = [
        str(one)
        for one in found
        if one.get("failure") or one["peak_bytes"] > sizes[one["folder"]] + _MARGIN_BYTES or one["cpu_s"] > _MOST_S
    ]
    assert not over, "\n".join(over)


def test_no_file_takes_more_than_its_size_and_64_mb(tmp_path: Path) -> None:
    """Resident memory and processor time while all of it is read, and while it is verified."""
    check(tmp_path, (kind for kind in hostile.FILES if kind not in SLOW))


@pytest.mark.slow
def test_no_file_of_many_fields_takes_more_than_its_size_and_64_mb(tmp_path: Path) -> None:
    """The same."""
    check(tmp_path, (kind for kind in hostile.FILES if kind in SLOW))

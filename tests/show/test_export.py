"""Landscapes for other programs: CSV, NPZ, VTP."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from tests.show.surfaces import GRID, line, no_path, plane, written

ODD = "landscape_[1, 4] <b>&\"'$title</script>\x1b[2J算"


def test_csv(tmp_path: Path) -> None:
    """Points of the grid row by row, then the path, then the point of convergence; all digits of all numbers."""
    rows = list(csv.DictReader(io.StringIO(written(tmp_path, plane(), ".csv").decode(), newline="")))
    assert [row["part"] for row in rows] == ["grid"] * 12 + ["path"] * 3 + ["convergence"]
    assert list(rows[0]) == ["part", "number", "x", "y", "loss", "true_loss", "unexplained", "metric_accuracy"]
    assert [list(row.values())[2:5] for row in rows[:5]] == [
        ["-1.0", "-0.5", "4.0"], ["0.0", "-0.5", "2.0"], ["1.0", "-0.5", "8.0"], ["2.0", "-0.5", "nan"],
        ["-1.0", "0.0", "3.0"],
    ]  # fmt: skip
    assert [row["loss"] for row in rows[5:12]] == ["1.0", "3.0", "inf", "6.0", "2.0", "-inf", "9.0"]
    assert [row["metric_accuracy"] for row in rows[:12]] == [str(number / 16) for number in range(12)]
    assert [list(row.values())[1:] for row in rows[12:]] == [
        ["1", "1.5", "0.25", "7.0", "7.5", "0.125", ""],
        ["2", "0.5", "0.5", "5.0", "5.25", "0.25", ""],
        ["4", "0.0", "0.0", "1.0", "1.0", "0.0", ""],
        ["", "0.0", "0.0", "1.0", "", "", ""],
    ]


def test_npz(tmp_path: Path) -> None:
    """Arrays as they are, holes too, without pickles."""
    with np.load(io.BytesIO(written(tmp_path, plane(), ".npz")), allow_pickle=False) as file:
        found = dict(file)
    np.testing.assert_array_equal(found.pop("grid_z"), GRID)
    metadata = json.loads(str(found.pop("metadata")))
    assert metadata == {
        "tag": "landscape_[1, 4]",
        "decomposition": "PCA",
        "unit": "step",
        "step_per_epoch": 2,
        "seed": 7,
    }
    assert {name: values.tolist() for name, values in found.items()} == {
        "grid_x": [-1.0, 0.0, 1.0, 2.0],
        "grid_y": [-0.5, 0.0, 0.5],
        "metric_accuracy": (np.arange(12).reshape(3, 4) / 16).tolist(),
        "numbers": [1, 2, 4],
        "path_x": [1.5, 0.5, 0.0],
        "path_y": [0.25, 0.5, 0.0],
        "path_z": [7.0, 5.0, 1.0],
        "true_loss": [7.5, 5.25, 1.0],
        "unexplained": [0.125, 0.25, 0.0],
        "explained_ratio": [0.75, 0.125, 0.0625],
        "convergence_point": [0.0, 0.0, 1.0],
    }


def test_npz_has_only_what_is_known(tmp_path: Path) -> None:
    """A random plane has no path."""
    with np.load(io.BytesIO(written(tmp_path, no_path(convergence=np.empty(0)), ".npz"))) as file:
        assert sorted(file) == ["grid_x", "grid_y", "grid_z", "metadata"]


class Vtp:
    """A file of VTK's PolyData as its arrays, by the name of their element and their own."""

    def __init__(self, content: bytes) -> None:
        root = ElementTree.fromstring(content)
        assert root.attrib == {
            "type": "PolyData", "version": "1.0", "byte_order": "LittleEndian", "header_type": "UInt64"
        }  # fmt: skip
        (piece,) = root.iterfind("PolyData/Piece")
        self.counts = {name.removeprefix("NumberOf"): int(count) for name, count in piece.attrib.items()}
        self.arrays = {
            (parent.tag, array.attrib["Name"]): self._values(array)
            for parent in piece
            for array in parent.iterfind("DataArray")
        }
        (tag,) = root.iterfind("PolyData/FieldData/Array")
        self.tag = bytes(map(int, str(tag.text).split())).rstrip(b"\0").decode()

    def _values(self, array: ElementTree.Element) -> Any:
        content = base64.b64decode(str(array.text))
        assert int.from_bytes(content[:8], "little") == len(content) - 8
        values = np.frombuffer(content[8:], {"Float64": "<f8", "Int64": "<i8"}[array.attrib["type"]])
        return values.reshape(-1, int(array.attrib.get("NumberOfComponents", 1))).tolist()

    def flat(self, parent: str, name: str) -> list[Any]:
        return [value for (value,) in self.arrays[parent, name]]

    def cells(self, kind: str) -> list[list[Any]]:
        """The points of each cell."""
        ends = [0, *self.flat(kind, "offsets")]
        connectivity = self.flat(kind, "connectivity")
        points = self.arrays["Points", "Points"]
        cells = [[points[one] for one in connectivity[first:last]] for first, last in pairwise(ends)]
        assert (len(cells), ends[-1]) == (self.counts[kind], len(connectivity))
        return cells


def test_vtp(tmp_path: Path) -> None:
    """Finite points of grid and path, faces without a hole at a corner, the path as line and vertices."""
    found = Vtp(written(tmp_path, plane(tag=ODD), ".vtp"))
    path = [[1.5, 0.25, 7.0], [0.5, 0.5, 5.0], [0.0, 0.0, 1.0]]
    assert found.tag == ODD
    assert found.counts == {"Points": 12, "Verts": 3, "Lines": 2, "Strips": 0, "Polys": 3}
    points = found.arrays["Points", "Points"]
    assert points[:5] == [[-1.0, -0.5, 4.0], [0.0, -0.5, 2.0], [1.0, -0.5, 8.0], [-1.0, 0.0, 3.0], [0.0, 0.0, 1.0]]
    assert points[-3:] == path
    assert found.flat("PointData", "loss") == [point[2] for point in points]
    assert found.flat("PointData", "number") == [-1] * 9 + [1, 2, 4]
    assert found.flat("PointData", "true_loss")[-3:] == [7.5, 5.25, 1.0]
    assert np.isnan(found.flat("PointData", "true_loss")[:-3]).all()
    assert found.flat("PointData", "metric_accuracy")[:9] == [number / 16 for number in (0, 1, 2, 4, 5, 6, 8, 9, 11)]
    assert found.cells("Polys") == [
        [[-1.0, -0.5, 4.0], [0.0, -0.5, 2.0], [0.0, 0.0, 1.0], [-1.0, 0.0, 3.0]],
        [[0.0, -0.5, 2.0], [1.0, -0.5, 8.0], [1.0, 0.0, 3.0], [0.0, 0.0, 1.0]],
        [[-1.0, 0.0, 3.0], [0.0, 0.0, 1.0], [0.0, 0.5, 2.0], [-1.0, 0.5, 6.0]],
    ]
    assert found.cells("Verts") == [[point] for point in path]
    assert found.cells("Lines") == [path[:2], path[1:]]


def test_vtp_of_a_line(tmp_path: Path) -> None:
    """Its points are joined, but not across a hole."""
    found = Vtp(written(tmp_path, line(), ".vtp"))
    assert found.counts == {"Points": 5, "Verts": 2, "Lines": 2, "Strips": 0, "Polys": 0}
    assert found.cells("Lines") == [[[-0.5, 0.0, 8.0], [0.0, 0.0, 4.0]], [[0.0, 0.0, 4.0], [1.0, 0.0, 1.0]]]


def test_vtp_of_holes_only(tmp_path: Path) -> None:
    """A path through a hole is two; a surface of nothing else has no points."""
    surface = plane(z=np.full((3, 4), math.nan), path_loss=np.array([7.0, math.inf, 1.0]))
    found = Vtp(written(tmp_path, surface, ".vtp"))
    assert found.counts == {"Points": 2, "Verts": 2, "Lines": 0, "Strips": 0, "Polys": 0}

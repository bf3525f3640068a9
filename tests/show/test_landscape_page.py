"""The page and the picture of a landscape."""

from __future__ import annotations

import base64
import io
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from instrument.values import LossSurface
from tests.show.surfaces import line, no_path, plane, written


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


class Page(HTMLParser):
    """A page's elements with their attributes, and its texts by element."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(content.decode())
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.setdefault(self._open[-1], []).append(data.strip())

    def of(self, tag: str, name: str = "") -> list[dict[str, str | None]]:
        """The attributes of the elements of a tag, and of a class if one is given."""
        return [found for one, found in self.elements if one == tag and name in (found.get("class") or "")]

    @property
    def data(self) -> Any:
        """What the script draws."""
        return json.loads(self.texts["script"][0], parse_constant=refuse)


def test_the_page_is_one_file(tmp_path: Path) -> None:
    """It names no other place, and its policy forbids to load from one."""
    content = written(tmp_path, plane(), ".html")
    page = Page(content)
    assert b"http:" not in content.replace(b"http-equiv", b"")
    assert b"https:" not in content
    for tag, found in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        for attribute in ("src", "href"):
            assert (found.get(attribute) or "data:").startswith("data:")
    policy = page.of("meta")[1]["content"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    assert re.findall(r"url\(([^)]*)\)", content.decode()) == ["#hatching", "#inside"]


def test_the_page_shows_all_that_is_known(tmp_path: Path) -> None:
    """Facts, path, levels, checkpoints, convergence point."""
    page = Page(written(tmp_path, plane(), ".html"))
    assert page.texts["h1"] == ["one, landscape_[1, 4]: steps 1 to 4"]
    cells = page.texts["td"]
    assert {"75 % + 12.5 % = 87.5 %", "3 of 12 points: 1 NaN, 1 Infinity, 1 -Infinity", "0 to 0.6875"} <= set(cells)
    assert cells[-18:-12] == ["1", "1.5", "0.25", "7", "7.5", "0.125"]
    titles = page.texts["title"]
    assert "step 1: loss 7 on the plane" in titles
    assert "convergence point: loss 1" in titles
    assert "3 of 12 points have no finite value and are left empty" in page.texts["figcaption"][0]
    assert len(page.of("circle", "point")) == 3
    assert len(page.of("polyline", "path")) == 1


def test_the_rotating_surface_has_the_shares(tmp_path: Path) -> None:
    """Of the range of losses, holes as null; the path with the losses on the plane and its own."""
    data = Page(written(tmp_path, plane(), ".html")).data
    assert data["x"] == [0.0, 0.3333, 0.6667, 1.0]
    assert data["y"] == [0.0, 0.5, 1.0]
    assert data["z"] == [[0.375, 0.125, 0.875, None], [0.25, 0.0, 0.25, None], [0.625, 0.125, None, 1.0]]
    assert data["path"] == [[0.8333, 0.75, 0.75, 0.8125, 1], [0.5, 1.0, 0.5, 0.5312, 2], [0.3333, 0.5, 0.0, 0.0, 4]]
    assert data["heights"] == [["1", 0.0], ["loss", 0.5], ["9", 1.0]]
    assert [label[0] for label in data["labels"]] == ["-1", "2", "x", "-0.5", "0.5", "y"]
    assert (data["colours"][0], data["colours"][-1], len(data["colours"])) == ("#440154", "#fde725", 64)


def test_the_contour_says_what_it_shows(tmp_path: Path) -> None:
    """Titles of both axes and of the colours, and the numbers of the checkpoints, where there is room for them."""
    texts = Page(written(tmp_path, plane(), ".html", "--scale", "log")).texts["text"]
    for title in ("x (principal axis 1, 75 % of the path)", "y (principal axis 2, 12.5 % of the path)", "loss, log"):
        assert title in texts
    assert texts[-3:] == ["4", "1", "2"]
    count = 200
    along = np.linspace(0, 0.5, count)
    crowd = plane(
        numbers=np.arange(count), path=np.stack([along[::-1], along[::-1] ** 2], 1), path_loss=np.ones(count),
        true_loss=np.ones(count), unexplained=np.zeros(count),
    )  # fmt: skip
    (tmp_path / "out.html").unlink()
    numbers = [
        text for text in Page(written(tmp_path, crowd, ".html")).texts["text"] if text.isdigit() and len(text) > 1
    ]
    assert "199" in numbers
    assert len(numbers) < 30


def test_the_contour_is_a_picture_with_holes(tmp_path: Path) -> None:
    """One pixel a point, the last row of y on top, transparent where there is a hole."""
    pillow = pytest.importorskip("PIL.Image")
    page = Page(written(tmp_path, plane(), ".html"))
    content = base64.b64decode(str(page.of("image")[0]["href"]).removeprefix("data:image/png;base64,"))
    pixels = np.asarray(pillow.open(io.BytesIO(content)))
    assert pixels.shape == (3, 4, 4)
    assert (pixels[..., 3] == 0).tolist() == [[False, False, True, False], [False] * 3 + [True], [False] * 3 + [True]]
    assert pixels[0, 3].tolist() == [0xFD, 0xE7, 0x25, 255]  # the highest
    assert pixels[1, 1].tolist() == [0x44, 0x01, 0x54, 255]  # the lowest


def test_texts_out_of_a_file_are_escaped(tmp_path: Path) -> None:
    """Tag, unit, metadata and names of metrics end no element and begin none."""
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&$title"
    metadata = {"decomposition": evil, "unit": evil, "step_per_epoch": 1, evil: evil}
    surface = plane(tag=evil, metadata=metadata, metrics={evil: np.ones((3, 4))})
    for words in ((), ("--metric", evil)):
        page = Page(written(tmp_path, surface, ".html", *words))
        (tmp_path / "out.html").unlink()
        assert len(page.of("script")) == 2
        assert page.of("img") == []
        assert not any(name.startswith("on") for _, found in page.elements for name in found)
        assert evil in page.texts["h1"][0]
        assert evil in page.texts["td"]


def test_scale_clip_and_metric(tmp_path: Path) -> None:
    """They change what is drawn, and the page says so."""
    clipped = Page(written(tmp_path, plane(), ".html", "--clip", 5, "--scale", "linear"))
    assert clipped.data["z"][0][:3] == [0.75, 0.25, 1.0]
    assert (
        "Colours are loss on a linear scale, on which the 3 of 12 points above 5 look the same;"
        in clipped.texts["figcaption"][0]
    )
    assert "≥ 5" in clipped.texts["text"]
    (tmp_path / "out.html").unlink()
    log = Page(written(tmp_path, plane(), ".html", "--scale", "log"))
    assert log.data["z"][0][0] == round(math.log(4) / math.log(9), 4)
    assert "logarithmic" in log.texts["figcaption"][0]
    (tmp_path / "out.html").unlink()
    metric = Page(written(tmp_path, plane(), ".html", "--metric", "accuracy"))
    assert metric.data["z"][1] == [0.3636, 0.4545, 0.5455, 0.6364]
    assert [place[2:4] for place in metric.data["path"]] == [[None, None]] * 3
    assert metric.texts["h1"] == ["accuracy of one, landscape_[1, 4]: steps 1 to 4"]


@pytest.mark.parametrize(
    "surface",
    [
        no_path(), line(), no_path(convergence=np.empty(0)), plane(z=np.full((3, 4), math.nan)),
        plane(z=np.ones((3, 4))), plane(x=np.array([0.0, 1.0, 4.0, 5.0])),
        no_path(x=np.zeros(1), y=np.zeros(1), z=np.ones((1, 1))),
        no_path(x=np.zeros(1), z=np.ones((3, 1))), plane(path=np.full((3, 2), math.nan)),
    ],
    ids=["no path", "line", "bare", "holes", "flat", "uneven", "point", "column", "lost path"],
)  # fmt: skip
def test_every_landscape_has_a_page_and_a_picture(tmp_path: Path, surface: LossSurface) -> None:
    """Whatever there is of it."""
    page = Page(written(tmp_path, surface, ".html"))
    assert bool(page.of("canvas")) is (len(surface.y) > 1)
    (tmp_path / "out.html").unlink()
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    assert written(tmp_path, surface, ".png").startswith(b"\x89PNG")


def test_a_line_is_drawn_with_a_gap(tmp_path: Path) -> None:
    """Its hole breaks it in two."""
    page = Page(written(tmp_path, line(), ".html"))
    (drawn,) = page.of("path", "path")
    assert str(drawn["d"]).count("M") == 2
    assert page.of("image") == []


# ---------------------------------------------------------------- the picture


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG")]
)
def test_pictures(tmp_path: Path, suffix: str, start: bytes) -> None:
    """With an odd tag too; matplotlib would take dollar signs for a formula."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    surface = plane(tag="landscape_$[1, 4]$_{", metrics={})
    assert written(tmp_path, surface, suffix).startswith(start)


def test_what_the_picture_holds(tmp_path: Path) -> None:
    """A contour whose holes are masked, a surface, the path on both."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from instrument.facts.surface import Drawing, Scale
    from instrument.formats import landscape

    drawing = Drawing(plane(), Scale.of(plane()), "title")
    figure = landscape.figure(drawing)
    contour, bar, surface = figure.axes
    mesh = contour.collections[0]
    assert mesh.get_array().mask.tolist() == [[False] * 3 + [True]] * 2 + [[False, False, True, False]]
    assert contour.lines[1].get_xydata().tolist() == [[1.5, 0.25], [0.5, 0.5], [0.0, 0.0]]
    assert [text.get_text() for text in contour.texts] == ["4", "1", "2"]
    assert [label.get_text() for label in bar.get_yticklabels()] == ["1", "3", "5", "7", "9"]
    assert surface.name == "3d"
    assert contour.get_xlim() == (-1.5, 2.5)
    assert contour.get_ylim() == (-0.75, 0.75)

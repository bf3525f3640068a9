"""`instrument report`: one static page with everything that has a picture, and every text in it harmless."""

from __future__ import annotations

import json
import math
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from instrument.codec import lifecycle
from instrument.show import charts
from instrument.show.cli import main
from instrument.values import Event, Gap, Histogram, MessageItem
from tests.analyse.files import cpu_window, event_file
from tests.runs.build import item, write
from tests.show.runs import EVIL, START, every_kind, lineage, three, training

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "tensorboard"
#: Elements that have no end.
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """A page in pieces: its elements with their attributes, its texts, and whether all that was opened was closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())

    def count(self, tag: str) -> int:
        return sum(one == tag for one, _ in self.elements)


def made(tmp_path: Path, *words: object) -> tuple[str, Page]:
    out = tmp_path / "page.html"
    assert main(["report", *map(str, words), "-o", str(out)]) == 0
    html = out.read_text(encoding="utf-8")
    return html, Page(html)


def section(html: str, name: str) -> str:
    found = re.search(rf'<section id="{name}">(.*?)</section>', html, re.DOTALL)
    return "" if found is None else found[1]


def charts_of(html: str) -> list[ElementTree.Element]:
    """The charts of scalars, each of which is XML by itself."""
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", section(html, "scalars"))]


def test_every_tag_has_a_chart_with_all_runs(tmp_path: Path) -> None:
    """In one scale: equal values of different runs stand at equal heights."""
    html, _ = made(tmp_path, three(tmp_path / "runs"))
    figures = charts_of(html)
    assert [figure.get("aria-label") for figure in figures] == ["eval/accuracy/auto", "loss/auto"]
    loss = {group.findtext("title"): group for group in figures[1].iter("g")}
    assert list(loss) == ["adam", "momentum", "plain"]
    starts = [re.findall(r"M([\d.]+) ([\d.]+)", group.find("path").get("d"))[0] for group in loss.values()]  # type: ignore[union-attr, arg-type]
    assert starts[0] == starts[1]  # 4 at step 1
    assert float(starts[2][1]) > float(starts[0][1])  # 3 is lower, and the y axis of SVG goes down
    best = [one.findtext("title") for one in figures[1].iter("circle")]
    assert best == ["adam: best 1 at step 3", "momentum: best 1 at step 2", "plain: best 3 at step 1"]
    (broken,) = [one for one in figures[1].iter("path") if one.get("class") == "broken"]
    assert broken.findtext("title") == "momentum: not finite"


def test_the_page_is_static_and_needs_no_network(tmp_path: Path) -> None:
    """No script, no address but those inside of it, and a policy that allows no other."""
    run = every_kind(tmp_path / "full")
    event_file(run, [cpu_window(1)])
    _, page = made(tmp_path, run)
    assert page.count("script") == page.count("link") == page.count("iframe") == 0
    policy = [
        attributes for tag, attributes in page.elements if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert [one["content"] for one in policy] == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    addresses = [
        value for _, attributes in page.elements for key, value in attributes.items() if key in ("src", "href")
    ]
    assert all(str(address).startswith(("data:image/", "#")) for address in addresses)
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)


@pytest.mark.parametrize("evil", [*EVIL, "${title}", "</style><b>", "--><b>", "&lt;b&gt;"])
def test_names_cannot_add_to_the_page(tmp_path: Path, evil: str) -> None:
    """Names of runs and tags, hyper-parameters, texts and reasons are words in it, whatever they hold."""
    plain, odd = tmp_path / "plain", tmp_path / f"odd{evil}".replace("/", "_")
    for run, name in ((plain, "name"), (odd, evil)):
        gap = MessageItem("gap", "", lifecycle.encode_gap(Gap(1, 1, 1, name)))
        items = [item("histogram", name, 1.0), item("image", name, 9.0), gap]
        write(tmp_path / run, [Event(1, START, items, {name: 1.0, f"{name}/nan": math.nan})])
        lineage(run, name, 0.5, note=name)
    _, expected = made(tmp_path, plain, "--title=name")
    html, page = made(tmp_path, odd, f"--title={evil}")
    assert [tag for tag, _ in page.elements if tag != "span"] == [tag for tag, _ in expected.elements]
    assert html.replace("\n", "").isprintable()
    assert "".join(char if char.isprintable() else repr(char)[1:-1] for char in evil) in page.texts


def test_health_tells_what_is_wrong(tmp_path: Path) -> None:
    """NaN with their first step, gaps, damage, superseded points; and for a sound run that nothing is."""
    run = training(tmp_path / "bad", [1.0, math.nan, math.inf])
    gap = MessageItem("gap", "", lifecycle.encode_gap(Gap(3, 5, 7, "No space left")))
    later = write(run, [Event(3, START + 60, [gap], {"loss/auto": 0.5})], seconds=int(START) + 50)
    later.write_bytes(later.read_bytes() + b"\x01")
    health = Page(section(made(tmp_path, run)[0], "health")).texts
    for words in ("1 from step 2", "5 to 7", "No space left", "the file ends inside a frame"):
        assert words in health
    sound = section(made(tmp_path, training(tmp_path / "good", [1.0]))[0], "health")
    assert "Every number is finite, and nothing is missing or damaged." in sound


def test_histograms_pictures_texts_and_the_profile(tmp_path: Path) -> None:
    """Each has its section; what has no picture is named with the way to it."""
    run = every_kind(tmp_path / "full")
    event_file(run, [cpu_window(1)])
    html, _ = made(tmp_path, run)
    assert section(html, "histograms").count("<svg") == 1
    assert section(html, "pictures").count("<img") == 2
    assert "The parts of 3 steps" in section(html, "profile")
    assert "full: 1 graph tag: `instrument export` has them" in section(html, "health")
    shutil.copytree(GOLDEN / "torch", tmp_path / "torch")
    assert "<pre>" in section(made(tmp_path, tmp_path / "torch")[0], "texts")


def test_what_was_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text and as JSON; tags are chosen, a name that is no page is a wrong call."""
    root, out = three(tmp_path / "runs"), tmp_path / "page.html"
    words = ["report", str(root), "-o", str(out), "--tag", "loss/*"]
    assert main(words) == 0
    assert capsys.readouterr() == (f"{out}: 3 runs, 1 charts and pictures\n", "")
    assert "accuracy" not in section(out.read_text(encoding="utf-8"), "scalars")
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["written"] == [{"file": str(out), "bytes": out.stat().st_size, "charts": 1}]
    assert [row["run"] for row in report["runs"]] == ["adam", "momentum", "plain"]
    assert main(["report", str(root), "-o", str(tmp_path / "page.txt")]) == 2
    assert "its name ends in .html" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "missing"), "-o", str(tmp_path / "none.html")]) == 1
    assert not (tmp_path / "none.html").exists()


def test_a_long_curve_is_thinned_and_keeps_its_peak(tmp_path: Path) -> None:
    """The page does not grow with the run."""
    values = np.sin(np.arange(100_000) / 1000)
    values[54_321] = 7.0
    line = charts.Line.of("a", 0, 0, (np.arange(100_000), values), None)
    assert len(line.step) < 2000
    assert line.value.max() == 7.0
    svg = ElementTree.fromstring(charts.chart([line], "t"))
    assert len(ElementTree.tostring(svg)) < 40_000


@pytest.mark.parametrize(
    "values",
    [
        [], [math.nan], [math.inf, -math.inf], [1e308, -1e308], [5e-324, 1e-323], [3.0, 3.0], [0.0], [1e-7, 1e5],
        [1e16, 1e16 + 2],
    ],
)  # fmt: skip
def test_any_numbers_can_be_drawn(values: list[float]) -> None:
    """Places are finite and inside of the chart."""
    line = charts.Line.of("a", 11, 1, (np.arange(len(values)), np.array(values)), None)
    svg = ElementTree.fromstring(charts.chart([line], "t"))
    numbers = [
        float(one)
        for path in svg.iter("path")
        for one in re.findall(r"-?[\d.]+(?:e[+-]\d+)?|nan|inf", path.get("d", ""))
    ]
    assert all(-400 <= number <= 400 for number in numbers)


def test_a_wide_range_is_logarithmic() -> None:
    """From three powers of ten on, where all values are positive."""
    for values, expected in (
        ([1.0, 1000.0], True),
        ([1.0, 900.0], False),
        ([-1.0, 1000.0], False),
        ([math.nan], False),
    ):
        line = charts.Line.of("a", 0, 0, (np.arange(len(values)), np.array(values)), None)
        assert charts.is_log([line]) is expected


@pytest.mark.parametrize("width", [0.0, 1e308, math.inf, math.nan])
def test_any_histogram_can_be_drawn(width: float) -> None:
    """One whose buckets have no width, or none that is finite."""
    edges = np.array([-1e308, 0.0, 1.0])
    histogram = Histogram(edges, np.full(3, width), np.array([1, 2, 3]), 6, 0.0, 1.0, 2.0)
    ElementTree.fromstring(charts.ridges([(1, histogram), (2, histogram)], "t", 0))

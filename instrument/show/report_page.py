"""Write runs as one static page: overview, health, and every number, histogram and picture of them.

The problem: a page of many runs must open without a network and without a script, and runs are larger than memory.

The strategy: each run is read, drawn and released before the next one, so that memory grows with what is drawn and not
with what was recorded. Curves are thinned, but keep their extremes; charts of a tag have all runs in one scale. A
policy in the page keeps it from loading anything, and every text out of a file is escaped.

Rejected: a chart library in the page. It needs a script, which mail programs and review tools do not run.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape as escape_html
from importlib import resources
from string import Template
from typing import Any

from instrument._version import __version__
from instrument.analyse import report as profile_report
from instrument.errors import CorruptMessage, InstrumentError
from instrument.facts import compare, describe, directions
from instrument.facts.compare import Side
from instrument.formats.arrays import png
from instrument.runs.points import Scalars, called, clock
from instrument.runs.run import Run
from instrument.show import charts, report_tables
from instrument.show.charts import Line
from instrument.show.tables import escape
from instrument.values import Image
from instrument.wording import listed

#: First bytes of the pictures that every browser draws.
_MEDIA = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}
_PICTURES_OF_A_TAG = 4
#: As many charts need no headings between them.
_UNGROUPED = 12
_PICTURE_BYTES, _ALL_PICTURES_BYTES = 2 << 20, 48 << 20
_TEXT_CHARACTERS = 4000
#: Kinds that have no picture here, with the way to them.
_ELSEWHERE = {
    "tensor": "`instrument show --tag` and `instrument export --to npy` have them",
    "graph": "`instrument export` has them",
    "landscape": "`instrument landscape RUN -o page.html` draws them",
}


@dataclass
class Drawn:
    """The drawn parts of one run."""

    name: str
    path: str
    facts: describe.Row
    losses: str
    side: Side
    lines: dict[str, list[Line]] = field(default_factory=dict)
    broken: list[describe.Row] = field(default_factory=list)
    missing: describe.Row = field(default_factory=dict)
    figures: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    profile: str = ""


@dataclass
class Report:
    """A page, the number of its charts and figures, and in words what was left out."""

    html: str
    charts: int
    left_out: list[str]


def report(
    runs: Iterable[tuple[str, Run]],
    wanted: Callable[[Iterable[str]], list[str]],
    direction: directions.Directions,
    title: str = "",
) -> Report:
    """Draw runs, given with their names, as one page; `wanted` chooses the tags."""
    maker = _Maker(wanted, direction)
    drawn = [maker.drawn(number, name, run) for number, (name, run) in enumerate(runs)]
    names = listed([run.name for run in drawn], 3)
    sections = list(_sections(drawn, maker.left_out))
    tags = {tag for run in drawn for tag in run.lines}
    page = Template(resources.files("instrument.show").joinpath("report.html").read_text(encoding="utf-8"))
    html = page.substitute(
        title=_text(title or names),
        subtitle=_text(f"{len(drawn)} run{'s' * (len(drawn) != 1)}, {len(tags)} scalar tag{'s' * (len(tags) != 1)}"),
        navigation=" ".join(f'<a href="#{_anchor(head)}">{head}</a>' for head, _ in sections),
        sections="\n".join(_section(head, body) for head, body in sections),
        footer=_text(f"instrument {__version__}, {clock(time.time())}"),
    )
    return Report(
        html, len(tags) + sum(len(figures) for run in drawn for figures in run.figures.values()), maker.left_out
    )


class _Maker:
    """Draws one run after the other."""

    def __init__(self, wanted: Callable[[Iterable[str]], list[str]], direction: directions.Directions) -> None:
        self._wanted = wanted
        self._direction = direction
        self._picture_bytes = _ALL_PICTURES_BYTES
        self.left_out: list[str] = []

    def drawn(self, number: int, name: str, run: Run) -> Drawn:
        """Draw a run; nothing that was read of it is kept."""
        side = compare.read_side(name, run, self._wanted, self._direction)
        made = Drawn(name, run.path, describe.listing(run, name), describe.losses_text(run), side)
        made.broken = [row for row in side.scalars if describe.nonfinite_text(row)]
        made.missing = describe.gaps_and_damage(run)
        for tag in self._wanted(run.tags().get("scalar", [])):
            made.lines[tag] = list(self._lines(number, name, run.scalars(tag)))
        draw = {"histogram": self._histograms, "image": self._images, "text": self._texts}
        for kind, tags in run.tags().items():
            chosen = self._wanted(tags)
            if kind in draw:
                made.figures[kind] = [(tag, figure) for tag in chosen for figure in draw[kind](number, name, run, tag)]
            elif kind in _ELSEWHERE and chosen:
                count = f"{len(chosen)} {kind} tag{'s' * (len(chosen) != 1)}"
                self.left_out.append(f"{name}: {count}: {_ELSEWHERE[kind]}")
        made.profile = self._profile(name, run) if run.traces else ""
        return made

    def _lines(self, number: int, name: str, points: Scalars) -> Iterator[Line]:
        series = points.by_writer()
        for place, (writer, part) in enumerate(series.items()):
            best = directions.best(part, self._direction(points.tag))
            label = name if len(series) == 1 else f"{name}, {called(writer)}"
            mark = None if best["best"] is None else (best["best_step"], best["best"])
            yield Line.of(label, number, place, (part.step, part.value), mark)

    def _histograms(self, number: int, name: str, run: Run, tag: str) -> Iterator[str]:
        series = run.histograms(tag).by_writer()
        for writer, points in series.items():
            shown = []
            for place in charts.chosen(len(points)):
                try:
                    shown.append((int(points.step[place]), points.decode(place)))
                except CorruptMessage as error:
                    self.left_out.append(f"{name}: {error}")
            words = f"{len(shown)} of {len(points)} histograms, by step"
            of = name if len(series) == 1 else f"{name}, {called(writer)}"
            if shown:
                yield _figure(tag, f"{of}: {words}", charts.ridges(shown, tag, number))

    def _images(self, _number: int, name: str, run: Run, tag: str) -> Iterator[str]:
        points = run.images(tag)
        pictures = []
        places = charts.chosen(len(points))
        places = places[:: -(-len(places) // _PICTURES_OF_A_TAG) or 1] if len(places) > _PICTURES_OF_A_TAG else places
        for place in sorted({*places, *([len(points) - 1] if len(points) else [])}):
            try:
                source = self._picture(points.decode(place))
            except CorruptMessage as error:
                self.left_out.append(f"{name}: {error}")
                continue
            step = int(points.step[place])
            if source:
                alt = _text(f"{tag} at step {step}")
                pictures.append(f'<div><img src="{source}" alt="{alt}">step {step}</div>')
            else:
                self.left_out.append(f"{name}: image {tag!r} at step {step}: it is too large for this page")
        if pictures:
            words = f"{name}: {len(pictures)} of {len(points)} pictures"
            yield _figure(tag, words, f'<div class="pictures">{"".join(pictures)}</div>')

    def _picture(self, image: Image) -> str:
        """Return an image as an address that holds it, an empty text if it has no room."""
        media = next((name for start, name in _MEDIA.items() if image.data.startswith(start)), "")
        data = image.data if media else png(image)
        if len(data) > min(_PICTURE_BYTES, self._picture_bytes):
            return ""
        self._picture_bytes -= len(data)
        return f"data:image/{media or 'png'};base64,{base64.b64encode(data).decode()}"

    def _texts(self, _number: int, name: str, run: Run, tag: str) -> Iterator[str]:
        points = run.texts(tag)
        place = len(points) - 1
        try:
            text = points.decode(place).text
        except CorruptMessage as error:
            self.left_out.append(f"{name}: {error}")
            return
        more = "" if len(text) <= _TEXT_CHARACTERS else f" ... and {len(text) - _TEXT_CHARACTERS} more characters"
        lines = "\n".join(map(escape, text[:_TEXT_CHARACTERS].splitlines()))
        words = f"{name}: the last of {len(points)} texts, step {points.step[place]}"
        yield _figure(tag, words, f"<pre>{escape_html(lines)}{more}</pre>")

    def _profile(self, name: str, run: Run) -> str:
        try:
            return profile_report.html(run.profile())
        except (InstrumentError, OSError) as error:
            self.left_out.append(f"{name}: its profile: {error}")
            return ""


# ---------------------------------------------------------------- sections


def _sections(drawn: Sequence[Drawn], left_out: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the headings and the bodies of the sections that have something to say."""
    yield "Overview", report_tables.overview([(run.facts, run.losses) for run in drawn])
    yield "Health", report_tables.health([(run.name, run.broken, run.missing, run.facts) for run in drawn], left_out)
    sides = [run.side for run in drawn]
    best = report_tables.best(sides)
    if best:
        yield "Best values", best
    parameters = report_tables.hyper_parameters(sides)
    if parameters:
        yield "Hyper-parameters", parameters
    tags = sorted({tag for run in drawn for tag in run.lines})
    if tags:
        yield "Scalars", report_tables.legend([run.name for run in drawn]) + "".join(_charts(drawn, tags))
    for kind, head in (("histogram", "Histograms"), ("image", "Pictures"), ("text", "Texts")):
        figures = [figure for run in drawn for figure in run.figures.get(kind, ())]
        figures.sort(key=lambda figure: figure[0])  # those of a tag side by side, run by run
        if figures:
            yield head, f'<div class="charts">{"".join(figure for _, figure in figures)}</div>'
    profiles = [(run.name, run.profile) for run in drawn if run.profile]
    if profiles:
        yield "Profile", "".join(_folded(name, body, is_open=len(profiles) == 1) for name, body in profiles)


def _section(head: str, body: str) -> str:
    return f'<section id="{_anchor(head)}"><h2>{head}</h2>\n{body}</section>'


def _charts(drawn: Sequence[Drawn], tags: Sequence[str]) -> Iterator[str]:
    """Yield the charts; many of them in groups of tags that begin alike."""
    groups: dict[str, list[str]] = {}
    for tag in tags:
        groups.setdefault(tag.partition("/")[0] if "/" in tag and len(tags) > _UNGROUPED else "", []).append(tag)
    for group, members in groups.items():
        yield (f"<h3>{_text(group)}</h3>" if group else "") + '<div class="charts">'
        for tag in members:
            lines = [line for run in drawn for line in run.lines.get(tag, ())]
            words = "logarithmic" if charts.is_log(lines) else ""
            yield _figure(tag, words, charts.chart(lines, tag))
        yield "</div>"


def _folded(name: str, body: str, is_open: bool) -> str:
    return f'<details{" open" * is_open}><summary>{_text(name)}</summary><div class="scroll">{body}</div></details>'


def _figure(caption: str, words: str, body: str) -> str:
    small = f" <small>{_text(words)}</small>" if words else ""
    return f"<figure><figcaption>{report_tables.short(caption)}{small}</figcaption>{body}</figure>"


def _anchor(head: str) -> str:
    return head.lower().replace(" ", "-")


def _text(text: Any) -> str:
    return escape_html(escape(str(text)))

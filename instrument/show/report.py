"""Write runs as one static page: overview, health, and every number, histogram and picture of them.

The problem: a page of many runs must open without a network and without a script, and runs are larger than memory.

The strategy: each run is read, drawn and released before the next one, so that memory grows with what is drawn and not
with what was recorded. Curves are thinned, but keep their extremes; charts of a tag have all runs in one scale. A
policy in the page keeps it from loading anything, and every text out of a file is escaped.

Rejected: a chart library in the page. It needs a script, which mail programs and review tools do not run.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from instrument._version import __version__
from instrument.analyse import report as profile_report
from instrument.analyse.layout import number
from instrument.errors import CorruptMessage, InstrumentError
from instrument.eventfile.blocks import Damage
from instrument.facts import compare
from instrument.facts.compare import Directions, Side
from instrument.facts.describe import listing, losses_text, nonfinite_text, tags_text
from instrument.facts.rows import Compared, Listing
from instrument.facts.selection import TagFilter
from instrument.formats.arrays import png
from instrument.runs.points import Scalars, called, clock
from instrument.runs.run import Run
from instrument.show import charts, pages
from instrument.show.charts import Line
from instrument.show.pages import cell, short, text
from instrument.values import Gap, Image
from instrument.wording import counted, listed

#: First bytes of the pictures that every browser draws.
_MEDIA = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}
_PICTURES_OF_A_TAG = 4
#: As many charts need no headings between them.
_UNGROUPED = 12
_PICTURE_BYTES, _ALL_PICTURES_BYTES = 2 << 20, 48 << 20
_TEXT_CHARACTERS = 4000
#: Rows of a table that are shown.
_ROWS = 500
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
    facts: Listing
    losses: str
    gaps: Sequence[Gap]
    damage: Sequence[Damage]
    side: Side
    lines: dict[str, list[Line]] = field(default_factory=dict)
    figures: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    profile: str = ""


@dataclass
class Report:
    """A page, the number of its charts and figures, and in words what was left out."""

    html: str
    charts: int
    left_out: list[str]


def report(runs: Iterable[tuple[str, Run]], wanted: TagFilter, direction: Directions, title: str = "") -> Report:
    """Draw runs, given with their names, as one page; `wanted` chooses the tags."""
    maker = _Maker(wanted, direction)
    drawn = [maker.drawn(number, name, run) for number, (name, run) in enumerate(runs)]
    sections = list(_sections(drawn, maker.left_out))
    tags = {tag for run in drawn for tag in run.lines}
    html = pages.page(
        "report.html",
        title=text(title or listed([run.name for run in drawn], 3)),
        subtitle=text(f"{counted(len(drawn), 'run')}, {counted(len(tags), 'scalar tag')}"),
        navigation=" ".join(f'<a href="#{_anchor(head)}">{head}</a>' for head, _ in sections),
        sections="\n".join(
            f'<section id="{_anchor(head)}"><h2>{head}</h2>\n{body}</section>' for head, body in sections
        ),
        footer=text(f"instrument {__version__}, {clock(time.time())}"),
    )
    figures = sum(len(figures) for run in drawn for figures in run.figures.values())
    return Report(html, len(tags) + figures, maker.left_out)


class _Maker:
    """Draws one run after the other."""

    def __init__(self, wanted: TagFilter, direction: Directions) -> None:
        self._wanted = wanted
        self._direction = direction
        self._picture_bytes = _ALL_PICTURES_BYTES
        self.left_out: list[str] = []

    def drawn(self, number: int, name: str, run: Run) -> Drawn:
        """Draw a run; nothing that was read of it is kept."""
        side = compare.read_side(name, run, self._wanted, self._direction)
        made = Drawn(name, listing(run, name), losses_text(run), run.gaps, run.damage, side)
        for tag in self._wanted(run.tags().get("scalar", [])):
            made.lines[tag] = list(self._lines(number, name, run.scalars(tag)))
        draw = {"histogram": self._histograms, "image": self._images, "text": self._texts}
        for kind, tags in run.tags().items():
            chosen = self._wanted(tags)
            if kind in draw:
                made.figures[kind] = [(tag, figure) for tag in chosen for figure in draw[kind](number, name, run, tag)]
            elif kind in _ELSEWHERE and chosen:
                self.left_out.append(f"{name}: {counted(len(chosen), f'{kind} tag')}: {_ELSEWHERE[kind]}")
        try:
            made.profile = profile_report.html(run.profile()) if run.traces else ""
        except (InstrumentError, OSError) as error:
            self.left_out.append(f"{name}: its profile: {error}")
        return made

    def _lines(self, number: int, name: str, points: Scalars) -> Iterator[Line]:
        series = points.by_writer()
        for place, (writer, part) in enumerate(series.items()):
            best = compare.best(part, self._direction(points.tag))
            value, step = best["best"], best["best_step"]
            label = name if len(series) == 1 else f"{name}, {called(writer)}"
            mark = None if value is None or step is None else (step, value)
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
                alt = text(f"{tag} at step {step}")
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
            content = points.decode(place).text
        except CorruptMessage as error:
            self.left_out.append(f"{name}: {error}")
            return
        more = len(content) - _TEXT_CHARACTERS
        lines = "\n".join(map(text, content[:_TEXT_CHARACTERS].splitlines()))
        lines += f" ... and {more} more characters" if more > 0 else ""
        words = f"{name}: the last of {len(points)} texts, step {points.step[place]}"
        yield _figure(tag, words, f"<pre>{lines}</pre>")


# ---------------------------------------------------------------- sections


def _sections(drawn: Sequence[Drawn], left_out: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the headings and the bodies of the sections that have something to say."""
    yield "Overview", _overview(drawn)
    yield "Health", _health(drawn, left_out)
    sides = [run.side for run in drawn]
    for head, body in (("Best values", _best(sides)), ("Hyper-parameters", _hyper_parameters(sides))):
        if body:
            yield head, body
    tags = sorted({tag for run in drawn for tag in run.lines})
    if tags:
        yield "Scalars", _legend([run.name for run in drawn]) + "".join(_charts(drawn, tags))
    for kind, head in (("histogram", "Histograms"), ("image", "Pictures"), ("text", "Texts")):
        figures = [figure for run in drawn for figure in run.figures.get(kind, ())]
        figures.sort(key=lambda figure: figure[0])  # those of a tag side by side, run by run
        if figures:
            yield head, f'<div class="charts">{"".join(figure for _, figure in figures)}</div>'
    profiles = [(run.name, run.profile) for run in drawn if run.profile]
    if profiles:
        opened = " open" * (len(profiles) == 1)
        yield (
            "Profile",
            "".join(
                f'<details{opened}><summary>{text(name)}</summary><div class="scroll">{body}</div></details>'
                for name, body in profiles
            ),
        )


def _anchor(head: str) -> str:
    return head.lower().replace(" ", "-")


def _overview(drawn: Sequence[Drawn]) -> str:
    """Return a row a run: what it holds, and in words what is missing."""
    has_ranks = any(len(run.facts["ranks"]) > 1 for run in drawn)
    rows = []
    for place, run in enumerate(drawn):
        facts, written, steps = run.facts, "", ""
        if facts["last_wall_time"] is not None:
            steps, written = f"{facts['first_step']} to {facts['last_step']}", clock(facts["last_wall_time"])
        cells = [_long(f"{_swatch(place)}{short(run.name)}<br><small>{text(facts['path'])}</small>")]
        cells += [_number(len(facts["ranks"]))] if has_ranks else []
        rows.append(
            [
                *cells,
                cell(text(tags_text(facts))),
                cell(text(steps)),
                cell(text(written)),
                cell(text(run.losses), "bad"),
            ]
        )
    return _table(["run", *(["ranks"] if has_ranks else []), "tags", "steps", "last written", "missing"], rows)


def _health(drawn: Sequence[Drawn], left_out: Sequence[str]) -> str:
    """Return tables of values that are not finite, gaps, damage, superseded points, and what is not in the report."""
    broken = [
        [_long(short(run.name)), _long(short(row["tag"])), cell(text(nonfinite_text(row)))]
        for run in drawn
        for row in run.side.scalars
        if nonfinite_text(row)
    ]
    gaps = [
        [
            _long(short(run.name)),
            _number(gap.events),
            cell(text(f"{gap.first_step} to {gap.last_step}")),
            _long(text(gap.reason)),
        ]
        for run in drawn
        for gap in run.gaps
    ]
    damage = [
        [
            _long(short(run.name)),
            _long(text(os.path.basename(place.path))),
            _number(place.offset),
            _number(place.bytes_skipped),
            _long(text(place.reason)),
        ]
        for run in drawn
        for place in run.damage
    ]
    counts = [(run.name, run.facts["superseded_points"]) for run in drawn]
    superseded = [[_long(short(name)), _number(count)] for name, count in counts if count]
    tables = (
        ("Numbers that are NaN or infinite", ["run", "tag", "how many"], broken),
        ("Events that the recorder could not write", ["run", "events", "steps", "reason"], gaps),
        ("Places that cannot be read", ["run", "file", "offset", "bytes", "reason"], damage),
        ("Points that a later start, or the same step again, replaced", ["run", "points"], superseded),
    )
    parts = [_table(heads, rows, caption) for caption, heads, rows in tables if rows]
    parts = parts or ["<p>Every number is finite, and nothing is missing or damaged.</p>"]
    if left_out:
        items = "".join(f"<li>{text(reason)}</li>" for reason in left_out[:_ROWS])
        parts.append(f"<details><summary>Not in this page ({len(left_out)})</summary><ul>{items}</ul></details>")
    return "".join(parts)


def _best(sides: Sequence[Side]) -> str:
    """Return the best value of each tag and run with its step, the best run marked, and the last value."""
    by_tag: dict[str, list[Compared]] = {}
    for row in compare.scalars(sides):
        by_tag.setdefault(row["tag"], []).append(row)
    rows = []
    for tag, tag_rows in by_tag.items():
        cells = [_long(short(tag)), cell(text(tag_rows[0]["direction"]))]
        differs = len({row["best"] for row in tag_rows}) > 1  # else none is the best
        for side in sides:
            own = [row for row in tag_rows if row["path"] == side.path]
            is_best = differs and bool(own) and own[0]["best"] == tag_rows[0]["best"]
            words = "<br>".join(_best_text(row, len(own) > 1) for row in own)
            cells.append(cell(words, "n best" if is_best else "n"))
        rows.append(cells)
    heads = ["tag", "best is", *(f"{side.run}: best (step), last" for side in sides)]
    return _table(heads, rows) if rows else ""


def _best_text(row: Compared, has_writers: bool) -> str:
    writer = f"{text(called((row['device'], row['host'])))}: " if has_writers else ""
    return f"{writer}<b>{number(row['best'])}</b> ({number(row['best_step'])}), {number(row['last'])}"


def _hyper_parameters(sides: Sequence[Side]) -> str:
    """Return the hyper-parameters in which the runs differ, and folded away those that all have."""
    differing = {row["name"] for row in compare.hyper_parameters(sides)}
    rows: dict[bool, list[list[str]]] = {True: [], False: []}
    for name in dict.fromkeys(name for side in sides for name in side.setup):
        shown = sides if name in differing else sides[:1]
        values = [name, *(side.setup.get(name) for side in shown)]
        rows[name in differing].append([_long(text(_value_text(value))) for value in values])
    parts = [_table(["name", *(side.run for side in sides)], rows[True])] if rows[True] else []
    if rows[False]:
        same = _table(["name", "value"], rows[False])
        folded = f"<details><summary>The same in all runs ({len(rows[False])})</summary>{same}</details>"
        parts.append(same if len(sides) == 1 else folded)
    return "".join(parts)


def _value_text(value: object) -> str:
    return number(value) if isinstance(value, float) else "" if value is None else str(value)


def _legend(names: Sequence[str]) -> str:
    """Return the colour of each run; an empty text for one run."""
    runs = "".join(f"<span>{_swatch(place)}{text(name)}</span>" for place, name in enumerate(names))
    return f'<div class="legend">{runs}</div>' if len(names) > 1 else ""


def _swatch(place: int) -> str:
    return f'<i class="swatch c{place % charts.COLOURS} d{place // charts.COLOURS % charts.DASHES}"></i>'


def _charts(drawn: Sequence[Drawn], tags: Sequence[str]) -> Iterator[str]:
    """Yield the charts; many of them in groups of tags that begin alike."""
    groups: dict[str, list[str]] = {}
    for tag in tags:
        groups.setdefault(tag.partition("/")[0] if "/" in tag and len(tags) > _UNGROUPED else "", []).append(tag)
    for group, members in groups.items():
        yield (f"<h3>{text(group)}</h3>" if group else "") + '<div class="charts">'
        for tag in members:
            lines = [line for run in drawn for line in run.lines.get(tag, ())]
            words = "logarithmic" if charts.is_log(lines) else ""
            yield _figure(tag, words, charts.chart(lines, tag))
        yield "</div>"


def _figure(caption: str, words: str, body: str) -> str:
    small = f" <small>{text(words)}</small>" if words else ""
    return f"<figure><figcaption>{short(caption)}{small}</figcaption>{body}</figure>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Return finished cells under their heads, in a box that scrolls if it is too wide."""
    more = f"<p>{len(rows) - _ROWS} more rows</p>" if len(rows) > _ROWS else ""
    return f'<div class="scroll">{pages.table(map(text, heads), rows[:_ROWS], text(caption))}</div>{more}'


def _long(content: str) -> str:
    return cell(content, "long")


def _number(value: int) -> str:
    return cell(text(value), "n")

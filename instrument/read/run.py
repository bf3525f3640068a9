"""Open a run: the series, graph and lineage in the event files of one directory.

    run = read("./run")
    run.tags()                       # {"scalar": ["loss"], "histogram": ["conv1.weight"]}
    run.scalars("loss").value        # float64, ordered by step

Files are read whole on first use; what `superseded` means after a restart stands in `instrument.read.points`.
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from instrument.codec import lineage as lineage_codec
from instrument.errors import CorruptMessage, NoSuchRun
from instrument.eventfile import names
from instrument.eventfile.reader import Damage
from instrument.read import contents, folders
from instrument.read.points import Points, Scalars, Series, Tensors, merge, quoted
from instrument.values import KINDS, LINEAGE_KINDS, Gap, Graph, Histogram, Image, Landscape

P = TypeVar("P", bound=Points)

#: Kinds whose points are not a `Series`.
_CLASSES: dict[str, Callable[..., Points]] = {"scalar": Scalars, "tensor": Tensors}
_LINEAGE_KEYS = dict(zip(LINEAGE_KINDS, ("train", "eval", "dataset", "custom"), strict=True))
_NAMED_AT_MOST = 5
_COMPARED_CHARACTERS = 200
#: The search that only serves an error message ends here.
_SEARCHED_FOLDERS = 2000


class Run:
    """What one run recorded: `files` are its event files at `path`, the oldest first."""

    def __init__(self, path: str, files: list[str]) -> None:
        self.path = path
        self.files = files

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.path.basename(os.path.abspath(self.path))

    def tags(self) -> dict[str, list[str]]:
        """The tags of each kind that occurs (of `instrument.values.KINDS`, without those of lineage), sorted."""
        return {kind: self._tags(kind) for kind in KINDS if self._tags(kind)}

    def scalars(self, tag: str, superseded: bool = False) -> Scalars:
        """The numbers of a tag; with `superseded` also those that a restart replaced.

        Raises:
            NoSuchRun: no scalar has that tag; the message names the nearest. The same holds for the other kinds.
        """
        return self._points(Scalars, "scalar", tag, superseded)

    def tensors(self, tag: str, superseded: bool = False) -> Tensors:
        """The tensors of a tag; `[step]` is a NumPy array."""
        return self._points(Tensors, "tensor", tag, superseded)

    def histograms(self, tag: str, superseded: bool = False) -> Series[Histogram]:
        """The histograms of a tag."""
        return self._points(Series[Histogram], "histogram", tag, superseded)

    def images(self, tag: str, superseded: bool = False) -> Series[Image]:
        """The images of a tag, still compressed; `instrument.codec.image.pixels` decodes one."""
        return self._points(Series[Image], "image", tag, superseded)

    def landscapes(self, tag: str, superseded: bool = False) -> Series[Landscape]:
        """The loss landscapes of a tag."""
        return self._points(Series[Landscape], "landscape", tag, superseded)

    def graphs(self, tag: str, superseded: bool = False) -> Series[Graph]:
        """The graphs of a name."""
        return self._points(Series[Graph], "graph", tag, superseded)

    def points(self, kind: str, tag: str, superseded: bool = False) -> Points:
        """The points of a tag of a kind that is given by name, one of the keys of `tags()`."""
        return self._points(_CLASSES.get(kind, Series), kind, tag, superseded)

    def kinds(self, tag: str) -> list[str]:
        """The kinds that have a tag.

        Raises:
            NoSuchRun: none has; the message names the nearest.
        """
        kinds = [kind for kind, tags in self.tags().items() if tag in tags]
        if not kinds:
            tags = sorted({known for tags in self.tags().values() for known in tags})
            raise NoSuchRun(f"run {self.name!r} has no tag {quoted(tag)}; {_nearest(tag, tags)}")
        return kinds

    @property
    def graph(self) -> Graph | None:
        """The graph that was recorded last, whatever its name; None where there is none."""
        recorded = [point for tag in self._tags("graph") for point in self.graphs(tag)]
        return max(recorded, key=lambda point: (point[1], point[0]))[2] if recorded else None

    @functools.cached_property
    def lineage(self) -> dict[str, dict[str, Any]]:
        """Where the run came from, under the keys train, eval, dataset and custom; those not recorded are absent.

        The last one recorded counts; of custom lineage the keys are put together. A message that cannot be parsed is
        left out and listed in `damage`.
        """
        result: dict[str, dict[str, Any]] = {}
        for frame, found in self._contents.lineages:
            try:
                fields = lineage_codec.to_dict(found)
            except CorruptMessage as error:
                self._contents.damage.append(replace(frame, reason=str(error)))
                continue
            key = _LINEAGE_KEYS[found.what]
            result[key] = {**result.get(key, {}), **fields} if key == "custom" else fields
        return result

    @property
    def damage(self) -> list[Damage]:
        """What could not be read: file, offset and size in bytes, and why. An unfinished last frame is `torn`."""
        return self._contents.damage

    @property
    def gaps(self) -> list[Gap]:
        """Where the recorder itself says that events are missing, in file order: how many, of which steps, and why."""
        return self._contents.gaps

    @functools.cached_property
    def _contents(self) -> contents.Contents:
        return contents.load(self.files)

    def _tags(self, kind: str) -> list[str]:
        return sorted(tag for found, tag in self._contents.parts if found == kind)

    def _points(self, cls: Callable[..., P], kind: str, tag: str, superseded: bool) -> P:
        parts = self._contents.parts.get((kind, tag))
        if parts is None:
            raise NoSuchRun(self._lack(kind, tag))
        return merge(cls, kind, tag, parts, superseded)

    def _lack(self, kind: str, tag: str) -> str:
        """Why there is no such series, and which ones come near."""
        sentence = f"run {self.name!r} has no {kind} {quoted(tag)}"
        others = [f"{other}s" for other, tags in self.tags().items() if tag in tags]
        if others:
            return f"{sentence}; that tag is read by {' or '.join(others)}()"
        return f"{sentence}; {_nearest(tag, self._tags(kind))}"

    def __repr__(self) -> str:
        rows = [f"Run {self.name!r}: {len(self.files)} event file{'s' * (len(self.files) != 1)} in {self.path!r}"]
        rows += [f"  {kind:<10}{len(tags):>5}  {_listed(tags)}" for kind, tags in self.tags().items()]
        if self.gaps:
            rows.append(f"  {'gaps':<10}{len(self.gaps):>5}  see .gaps")
        if self.damage:
            rows.append(f"  {'damage':<10}{len(self.damage):>5}  see .damage")
        return "\n".join(rows)


class Runs(list[Run]):
    """The runs of a tree, ordered by path; `notes` say which folders and links were skipped, and why."""

    def __init__(self, runs: Iterable[Run], notes: list[str]) -> None:
        super().__init__(runs)
        self.notes = notes


def read(path: str | os.PathLike[str]) -> Run:
    """Open the run at `path`, an event file or the directory that holds it.

    Raises:
        NoSuchRun: there is no event file; the message says what there is instead.
        OSError: the file or directory cannot be read.
    """
    path = os.fsdecode(path)
    if not os.path.exists(path):
        raise NoSuchRun(f"{path} does not exist; an event file or the directory of one is expected")
    if not os.path.isdir(path):
        return _read_file(path)
    files = folders.event_files(path)
    if not files:
        raise NoSuchRun(_no_event_file(path))
    return Run(path, files)


def _read_file(path: str) -> Run:
    if names.parse(os.path.basename(path)) is None:
        raise NoSuchRun(
            f"{path} is no event file by its name; one is called {names.join('events', 0, 0, names.SUFFIX)} "
            "with other numbers, and read() takes it or its directory"
        )
    if not os.path.isfile(path):
        raise NoSuchRun(f"{path} is no regular file; an event file or the directory of one is expected")
    with open(path, "rb"):  # a run takes a file that cannot be opened for damage; here it is all that was asked for
        return Run(path, [path])


def find_runs(root: str | os.PathLike[str]) -> Runs:
    """The runs at and below `root`, ordered by path and not read yet.

    Links are followed, and each directory is listed once. Raises `NoSuchRun` where `root` is no directory.
    """
    root = os.fsdecode(root)
    if not os.path.isdir(root):
        kind = "is a file" if os.path.exists(root) else "does not exist"
        raise NoSuchRun(f"{root} {kind}; a directory with runs at or below it is expected")
    found = folders.find(root)
    return Runs((Run(folder, files) for folder, files in found.folders.items()), found.notes)


def _no_event_file(directory: str) -> str:
    """Why `read` cannot open a directory, and what to do."""
    found = folders.find(directory, _SEARCHED_FOLDERS)
    if found.folders:
        below = [os.path.relpath(folder, directory) for folder in found.folders]
        return f"{directory} holds no event file itself; runs below it: {_listed(below)}; open one of them"
    notes = f" ({'; '.join(found.notes)})" if found.notes else ""
    return (
        f"no event file in {directory}, nor in the {found.scanned - 1} folders below it{notes}; "
        "give the summary_dir or log_dir of a run"
    )


def _nearest(tag: str, tags: list[str]) -> str:
    # Comparing takes the square of the length: names of thousands of characters would take minutes.
    short = [known for known in tags if len(known) <= _COMPARED_CHARACTERS]
    near = difflib.get_close_matches(tag[:_COMPARED_CHARACTERS], short, _NAMED_AT_MOST, 0.5)
    if not near:
        return f"it has {_listed(tags) or 'none at all'}"
    return f"the nearest {'are' if len(near) > 1 else 'is'} {_listed(near)}"


def _listed(tags: list[str]) -> str:
    shown = ", ".join(map(quoted, tags[:_NAMED_AT_MOST]))
    return shown if len(tags) <= _NAMED_AT_MOST else f"{shown} and {len(tags) - _NAMED_AT_MOST} more"

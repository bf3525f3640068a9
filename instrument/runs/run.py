"""Open a run: the series, graph and lineage in the event files of one directory.

    run = read("./run")
    run.tags()                       # {"scalar": ["loss"], "histogram": ["conv1.weight"]}
    run.scalars("loss").value        # float64, ordered by step

The problem: a run is several files (of ranks, of restarts, of profiles, of two dialects), some of them damaged or still
being written, and a user wants one object with columns of numbers.

The strategy: `Run` is the facade on top. Below it `run_data.RunData` holds what the files contain, `points` makes
series of it (what is superseded after a restart is decided in `starts`), and `tail` follows it. None of these knows
`Run`; `tail` takes the part of it that it needs as a protocol. Files are read whole on first use: then every series is
a view of columns that are there. With `follow` each access first reads what has come since.

Rejected: opening files lazily series by series, as an index in the file would allow. Event files have no index, and
reading a gigabyte's frames once, with all checksums, takes about as long as finding one tag in them.

`Runs`, the list that `find_runs` returns, and the functions that open runs are here because all they return is a `Run`.
"""

from __future__ import annotations

import fnmatch
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from instrument import paths
from instrument.codec import landscape as landscape_codec
from instrument.errors import CorruptMessage, NoSuchRun
from instrument.eventfile import file_kinds, names
from instrument.eventfile.blocks import Damage
from instrument.ringfile import pending
from instrument.runs import folders, tail
from instrument.runs.points import HtmlView, Images, NonFinite, Points, Scalars, Series, Tensors, import_pandas, named
from instrument.runs.run_data import RunData, RunLineage
from instrument.runs.starts import KILLED, RUNNING, RunStart, starts_in, state_of
from instrument.values import FAILED, KINDS, Gap, Graph, Histogram, Landscape, LossSurface, Text
from instrument.wording import natural, nearest, quoted, quoted_list, ranges

if TYPE_CHECKING:
    from instrument.analyse.profile import Profile

P = TypeVar("P", bound=Points)

#: Columns of a frame of many series, in their order.
_COLUMNS = ("run", "tag", "step", "wall_time", "value", "device", "host")

#: Kinds whose points are not a `Series`.
_CLASSES: dict[str, Callable[..., Points]] = {"scalar": Scalars, "tensor": Tensors, "image": Images}


class Run(HtmlView):
    """What one run recorded: `files` are its event files at `path`, the oldest first, `traces` those of profiles.

    With a `rank` only what that rank recorded.
    """

    def __init__(
        self, path: str, files: list[str], traces: Iterable[str] = (), follow: bool = False, rank: int | None = None
    ) -> None:
        self.path = path
        self._rank = rank
        self.files = self._of_rank(files)
        self.traces = self._of_rank(traces)
        self._is_live = follow
        self._read: RunData | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.path.basename(os.path.abspath(self.path))

    @property
    def ranks(self) -> list[int]:
        """The numbers of those that recorded, out of the names of files: ranks, or the device of a single process."""
        return sorted({number for number in map(_rank_of, (*self.files, *self.traces)) if number >= 0})

    def of_rank(self, rank: int) -> Run:
        """Return what one rank recorded as a run of its own; `by_rank()` of a series has all ranks side by side.

        Raises:
            NoSuchRun: no file is of that rank.
        """
        if rank not in self.ranks:
            raise NoSuchRun(f"run {self.name!r} has no rank {rank}; it has {ranges(self.ranks) or 'none'}")
        return Run(self.path, self.files, self.traces, self._is_live, rank)

    def _of_rank(self, files: Iterable[str]) -> list[str]:
        return [path for path in files if self._rank is None or _rank_of(path) == self._rank]

    def tags(self) -> dict[str, list[str]]:
        """Return the tags of each kind that occurs (of `instrument.values.KINDS`, without those of lineage), sorted."""
        tags = self._contents.tags()
        return {kind: sorted(tags[kind], key=natural) for kind in KINDS if kind in tags}

    def scalars(self, tag: str, superseded: bool = False) -> Scalars:
        """Return the numbers of a tag; with `superseded` also those that a restart replaced.

        Raises:
            NoSuchRun: no scalar has that tag; the message names the nearest. The same holds for the other kinds.
        """
        return self._points(Scalars, "scalar", tag, superseded)

    def tensors(self, tag: str, superseded: bool = False) -> Tensors:
        """Return the tensors of a tag; `[step]` is a NumPy array."""
        return self._points(Tensors, "tensor", tag, superseded)

    def histograms(self, tag: str, superseded: bool = False) -> Series[Histogram]:
        """Return the histograms of a tag."""
        return self._points(Series[Histogram], "histogram", tag, superseded)

    def images(self, tag: str, superseded: bool = False) -> Images:
        """Return the images of a tag, still compressed; `.pixels(step)` decodes one."""
        return self._points(Images, "image", tag, superseded)

    def texts(self, tag: str, superseded: bool = False) -> Series[Text]:
        """Return the texts of a tag, which TensorBoard's files have."""
        return self._points(Series[Text], "text", tag, superseded)

    @functools.cached_property
    def landscapes(self) -> list[LossSurface]:
        """The loss landscapes of all tags as arrays, in the order in which they were recorded.

        One that was recorded again, finer, has replaced the earlier one. `points("landscape", tag)` has the messages as
        they stand in the file. One that cannot be read is left out and listed in `damage`.
        """
        recorded = [
            (wall_time, tag, message)
            for tag in self._tags("landscape")
            for _, wall_time, message in self._points(Series[Landscape], "landscape", tag, False)
        ]
        result = []
        for _, tag, message in sorted(recorded, key=lambda entry: entry[0]):
            try:
                result.append(landscape_codec.to_surface(message, tag))
            except CorruptMessage as error:
                where = self.files[0] if len(self.files) == 1 else self.path
                self._contents.note(Damage(where, 0, len(message.data), f"landscape {tag!r}: {error}", False))
        return result

    def graphs(self, tag: str, superseded: bool = False) -> Series[Graph]:
        """Return the graphs of a name."""
        return self._points(Series[Graph], "graph", tag, superseded)

    def points(self, kind: str, tag: str, superseded: bool = False) -> Points:
        """Return the points of a tag; `kind` is one of the keys of `tags()`."""
        return self._points(_CLASSES.get(kind, Series), kind, tag, superseded)

    def kinds(self, tag: str) -> list[str]:
        """Return the kinds that have a tag.

        Raises:
            NoSuchRun: none has; the message names the nearest.
        """
        kinds = [kind for kind, tags in self.tags().items() if tag in tags]
        if not kinds:
            tags = sorted({name for tags in self.tags().values() for name in tags}, key=natural)
            raise NoSuchRun(f"run {self.name!r} has no tag {quoted(tag)}; {nearest(tag, tags)}")
        return kinds

    @property
    def graph(self) -> Graph | None:
        """The graph that was recorded last, whatever its name, of several ranks by the lowest; None without any."""
        series = [of_writer for tag in self._tags("graph") for of_writer in self.graphs(tag).by_writer().items()]
        lowest = min((device for (device, _), _ in series), default=0)
        recorded = [point for (device, _), points in series if device == lowest for point in points]
        return max(recorded, key=lambda point: (point[1], point[0]))[2] if recorded else None

    @property
    def lineage(self) -> dict[str, dict[str, Any]]:
        """The run's origin, under the keys train, eval, dataset, custom and ran; those not recorded are absent.

        Of TensorBoard's files `hparams` are the hyper-parameters.

        The last one recorded counts, of several ranks that of the lowest; of custom lineage the keys are put together.
        A message that cannot be parsed is left out and listed in `damage`.
        """
        _ = self._contents  # up to date
        return self._lineage

    @functools.cached_property
    def _lineage(self) -> RunLineage:
        return self._contents.lineage()

    def profile(self, window: int = -1, device: int | None = None) -> Profile:
        """Explain where the time of the training went, in one window.

        Args:
            window: which one of several, by its number; negative ones count from the end.
            device: which one of several devices the tables are of; by default the first.

        Raises:
            NoSuchRun: there is no profile in this run.
            InstrumentError: there is no such window or device, or nothing of it can be read.
        """
        from instrument.analyse.profile import profile  # only a run with a profile needs it

        return profile(self.path, window, device)

    def to_pandas(self, tags: str | Sequence[str] = "*", kind: str = "scalar", superseded: bool = False) -> Any:
        """Return the points of many series as one `pandas.DataFrame`, a row a point, ordered by tag and step.

        Its columns are run (the name), tag, step, wall_time (UTC), value, device and host, and superseded where those
        points were asked for; all but the first two are those of a series' own `to_pandas`.

        Args:
            tags: a tag, or a pattern such as `"loss/*"`, or several of them.
            kind: one of the keys of `tags()`.
            superseded: also points that a later start, or the same step again, replaced.

        Raises:
            NoSuchRun: there are series of that kind, but none has such a tag.
            ImportError: pandas is not installed.
        """
        return _frame([(self.name, self)], tags, kind, superseded)

    @property
    def starts(self) -> list[RunStart]:
        """The starts of this run, the oldest first, and how each ended; files of others tell of none."""
        return starts_in(self._contents.files)

    @property
    def state(self) -> str:
        """The end of the last start: `"finished"`, `"failed"`, `"killed"`, `"running"`, ...; see `RunStart`.

        Of several ranks the one that needs most attention counts. `"unknown"` where no file tells.
        """
        return state_of(self.starts)

    @property
    def damage(self) -> list[Damage]:
        """Places that could not be read: file, offset, size in bytes, and why. An unfinished last frame is `torn`."""
        damage = self._contents.damage
        folders_of_files = {os.path.dirname(path) for path in (*self.files, *self.traces)}
        return damage + [place for folder in sorted(folders_of_files) for place in pending.damage(folder)]

    @property
    def gaps(self) -> list[Gap]:
        """Events that the recorder says are missing, in file order: how many, of which steps, and why."""
        return self._contents.gaps

    def refresh(self) -> None:
        """Read what has come since: what files have grown by, and new files. Those that are gone are forgotten."""
        if self._read is None:
            self._read = RunData()
        if self.path not in (*self.files, *self.traces):
            self.files, self.traces = map(self._of_rank, _sorted_out(folders.event_files_if_any(self.path)))
        else:
            pending.look_beside(self.path)
        for cached in ("_lineage", "landscapes"):
            self.__dict__.pop(cached, None)
        self._read.read(self.files)

    def follow(self, interval_s: float = 1.0, wait: Callable[[], bool] | None = None) -> Iterator[tail.Point]:
        """Yield each point as it comes, first those that are there, until `wait` returns False.

        Whenever there is nothing new `wait()` is called, and its False ends the iteration. By default it sleeps for
        `interval_s` and the iteration has no end.
        """
        return tail.follow(self, interval_s, wait)

    @property
    def contents(self) -> RunData:
        """The data of the files as they are read."""
        return self._contents

    def extent(self) -> tuple[int, int, float] | None:
        """Return the first and the last step, and the last wall time (seconds since the epoch); None without points."""
        return self._contents.extent()

    def nonfinite(self) -> dict[str, NonFinite]:
        """Return by their tags the scalars with NaN or infinities: how many `points`, and the `first_step` of one."""
        return self._contents.nonfinite()

    @property
    def _contents(self) -> RunData:
        if self._read is None or self._is_live:
            self._load()
        assert self._read is not None
        return self._read

    def _load(self) -> None:
        if self._is_live:
            self.refresh()
        else:
            self._read = RunData()
            self._read.read(self.files)

    def _tags(self, kind: str) -> list[str]:
        return sorted(self._contents.tags().get(kind, ()), key=natural)

    def _points(self, cls: Callable[..., P], kind: str, tag: str, superseded: bool) -> P:
        points = self._contents.points(cls, kind, tag, superseded)
        if points is None:
            raise NoSuchRun(self._lack(kind, tag))
        return points

    def _lack(self, kind: str, tag: str) -> str:
        """Return why there is no such series, and which tags come near."""
        sentence = f"run {self.name!r} has no {kind} {quoted(tag)}"
        others = [f"{other}s" for other, tags in self.tags().items() if tag in tags]
        if others:
            return f"{sentence}; that tag is read by {' or '.join(others)}()"
        return f"{sentence}; {nearest(tag, self._tags(kind))}"

    def __repr__(self) -> str:
        rows = [f"Run {self.name!r}: {len(self.files)} event file{'s' * (len(self.files) != 1)} in {self.path!r}"]
        rows += [f"  {kind:<10}{len(tags):>5}  {quoted_list(tags)}" for kind, tags in self.tags().items()]
        if self.traces:
            rows.append(f"  {'profile':<10}{len(self.traces):>5}  see .profile()")
        writers = sorted({file.name.writer for file in self._contents.files})
        if len(writers) > 1:
            how = ".of_rank(), and .by_rank() of a series" if len(self.ranks) > 1 else ".by_writer() of a series"
            rows.append(f"  {'writers':<10}{len(writers):>5}  {named(writers)}; see {how}")
        replaced = self._contents.replaced(self._contents.keys())
        if (state := self.state) in (RUNNING, FAILED, KILLED):
            rows.append(f"  {'state':<10}{state}; see .starts")
        notes = [("replaced", replaced, "superseded=True of a series"), ("gaps", len(self.gaps), ".gaps")]
        notes.append(("not finite", sum(series.points for series in self.nonfinite().values()), ".nonfinite()"))
        notes.append(("damage", len(self.damage), ".damage"))
        rows += [f"  {name:<10}{count:>5}  see {where}" for name, count, where in notes if count]
        return "\n".join(rows)


class Runs(HtmlView, list[Run]):
    """The runs of a tree, ordered by path; `notes` say which folders and links were skipped, and why.

    `runs["adam"]` is the run of that name: its place below the tree, or the end of that where one run alone ends so.
    """

    def __init__(self, runs: Iterable[Run], notes: list[str], root: str = "") -> None:
        super().__init__(runs)
        self.notes = notes
        self._root = root

    @property
    def names(self) -> list[str]:
        """The name of each run: its place below the tree, or for the tree itself the last part of the path."""
        return [self._name(run) for run in self]

    def _name(self, run: Run) -> str:
        if not self._root:
            return run.name
        below = os.path.relpath(run.path, self._root)
        return run.name if below == os.curdir else below

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> Run: ...
    @overload
    def __getitem__(self, key: slice) -> Runs: ...
    def __getitem__(self, key: SupportsIndex | slice | str) -> Run | Runs:
        if isinstance(key, slice):
            return Runs(super().__getitem__(key), self.notes, self._root)
        return self._named(key) if isinstance(key, str) else super().__getitem__(key)

    def _named(self, name: str) -> Run:
        """Return the run of a name.

        Raises:
            NoSuchRun: there is none, or several end in it; the message names them.
        """
        names = self.names
        matching = [run for run, own in zip(self, names, strict=True) if own == name]
        matching = matching or [run for run, own in zip(self, names, strict=True) if own.endswith(os.sep + name)]
        if len(matching) == 1:
            return matching[0]
        if matching:
            several = [self._name(run) for run in matching]
            raise NoSuchRun(f"{len(matching)} runs end in {name!r}: {', '.join(several)}; give more of the path")
        raise NoSuchRun(f"there is no run {name!r}; {nearest(name, names)}")

    def to_pandas(self, tags: str | Sequence[str] = "*", kind: str = "scalar", superseded: bool = False) -> Any:
        """Return the points of all runs as one `pandas.DataFrame`; arguments and columns are those of `Run.to_pandas`.

        `frame.pivot_table(index="step", columns="run", values="value")` of one tag has a column a run.
        """
        return _frame(zip(self.names, self, strict=True), tags, kind, superseded)


def matches(tag: str, pattern: str) -> bool:
    """Return True where a tag is called like the pattern, or matches it as a glob; `*` stands for `/` as well."""
    return tag == pattern or fnmatch.fnmatchcase(tag, pattern)


def _frame(runs: Iterable[tuple[str, Run]], tags: str | Sequence[str], kind: str, superseded: bool) -> Any:
    """Return the points of runs, given with their names; see `Run.to_pandas`."""
    pandas = import_pandas()
    patterns = [tags] if isinstance(tags, str) else list(tags)
    frames, existing = [], set[str]()
    for name, run in runs:
        of_run = run.tags().get(kind, [])
        existing.update(of_run)
        for tag in of_run:
            if any(matches(tag, pattern) for pattern in patterns):
                points = run.points(kind, tag, superseded).to_pandas()
                points.insert(0, "tag", tag)
                points.insert(0, "run", name)
                if superseded and "superseded" not in points:
                    points["superseded"] = False
                frames.append(points)
    if not frames and existing and patterns != ["*"]:
        wanted = " or ".join(map(quoted, patterns))
        raise NoSuchRun(f"no {kind} has a tag that matches {wanted}; {nearest(patterns[0], sorted(existing))}")
    if not frames:
        return pandas.DataFrame(columns=[*_COLUMNS, *(["superseded"] if superseded else [])])
    return pandas.concat(frames, ignore_index=True)


def read_run(path: str | os.PathLike[str], follow: bool = False) -> Run:
    """Open the run at `path`, an event file or the directory that holds it.

    One that has nothing but profiles is a run without tags. With `follow` the run is up to date whenever it is asked,
    and may have no file yet.

    Raises:
        NoSuchRun: there is no event file; the message says what there is instead.
        OSError: the file or directory cannot be read.
    """
    path = _local(path)
    if follow and (os.path.isdir(path) or not os.path.exists(path)):
        return Run(path, *_sorted_out(folders.event_files_if_any(path)), follow=True)
    if not os.path.exists(path):
        raise NoSuchRun(f"{path} {paths.absent(path)}; an event file or the directory of one is expected")
    if not os.path.isdir(path):
        return _read_file(path, follow)
    files = folders.event_files(path)
    if not files:
        raise NoSuchRun(folders.no_event_file(path))
    return Run(path, *_sorted_out(files))


def read(path: str | os.PathLike[str], follow: bool = False) -> Run | Any:
    """Open what is at `path`: an event file, or the directory of one, as a `Run`.

    A directory that holds no event file itself, but runs below it, gives all of them as `find_runs` does: a list of
    runs, which the type leaves open. With `follow` a run is up to date whenever it is asked, and may have no file yet.

    Raises:
        NoSuchRun: there is no event file; the message says what there is instead.
        OSError: the file or directory cannot be read.
    """
    path = os.fsdecode(path)
    if os.path.isdir(path) and not follow and not folders.event_files(path):
        runs = find_runs(path)
        if runs:
            return runs
    return read_run(path, follow)


def _local(path: str | os.PathLike[str]) -> str:
    path = os.fsdecode(path)
    if paths.is_url(path):
        raise NoSuchRun(f"{path} is a URL; runs are read from directories of this machine: {paths.url_hint(path)}")
    return path


def _rank_of(path: str) -> int:
    name = names.recognise(os.path.basename(path))
    return -1 if name is None else name.device


def _sorted_out(files: list[str]) -> tuple[list[str], list[str]]:
    """Split event files into those of runs and those of profiles."""
    traces = [path for path in files if names.parse(os.path.basename(path), names.PROFILE) is not None]
    return [path for path in files if path not in traces], traces


def _read_file(path: str, follow: bool) -> Run:
    pending.look_beside(path)
    files, traces = _sorted_out([path])
    if files and names.recognise(os.path.basename(path)) is None:
        kind = file_kinds.described(path)
        if kind:
            raise NoSuchRun(f"{path} is {kind}, and no event file")
        raise NoSuchRun(
            f"{path} is no event file by its name; one is called {names.join('events', 0, 0, names.SUFFIX)} "
            "with other numbers, and read() takes it or its directory"
        )
    if not os.path.isfile(path):
        raise NoSuchRun(f"{path} is no regular file; an event file or the directory of one is expected")
    with open(path, "rb"):  # a run takes a file that cannot be opened for damage; here it is all that was asked for
        return Run(path, files, traces, follow)


def find_runs(root: str | os.PathLike[str]) -> Runs:
    """Return the runs at and below `root`, ordered by path and not read yet.

    Links are followed, and each directory is listed once. Raises `NoSuchRun` where `root` is no directory.
    """
    root = _local(root)
    if not os.path.isdir(root):
        kind = "is a file" if os.path.exists(root) else paths.absent(root)
        raise NoSuchRun(f"{root} {kind}; a directory with runs at or below it is expected")
    tree = folders.find(root)
    return Runs((Run(folder, *_sorted_out(files)) for folder, files in tree.folders.items()), tree.notes, root)

"""Events larger than the ring: written while they come in, and byte for byte what they would be as a whole."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from instrument.codec import event as event_codec
from instrument.codec import wire
from instrument.codec.tensor import DTYPE_NUMBERS
from instrument.eventfile import frame
from instrument.values import BFLOAT16, Event, Item, Tensor
from instrument.write import commit, message, stream
from instrument.write.commit import LINEAGE, SUMMARY, Committer, Job, Notice, State
from instrument.write.ring import chunks
from instrument.write.stream import Abandoned, Frame, Later
from tests.write.build import custom, gaps, numbers, records, scalar
from tests.write.conftest import OpenSink

SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (7, 11), (3, 0), (2, 3, 500))
needs_pwritev = pytest.mark.skipif(not hasattr(os, "pwritev"), reason="this system has no pwritev to stand in for")


class Arriving:
    """An event on its way in chunks, which stops before chunk number `stop`; each chunk is valid until the next."""

    def __init__(self, event: Event, chunk_bytes: int, stop: int | None = None) -> None:
        buffers = message.pack_for_stream(event, "", stream.order)
        head_chunks = len(chunks(buffers[:2], chunk_bytes))
        self._chunks = [bytes(chunk) for chunk, _ in chunks(buffers, chunk_bytes)]
        self._stop = len(self._chunks)
        self._last = bytearray()
        self.taken = 0
        self._event, _, self._parts = message.unpack_head(stream.gather_head(self.arrive))
        assert self.taken == head_chunks
        # From here on only the items' chunks are counted.
        del self._chunks[:head_chunks]
        self.taken = 0
        self._stop = len(self._chunks) if stop is None else stop

    def arrive(self) -> memoryview:
        self._last[:] = b"\xee" * len(self._last)
        if self.taken == self._stop:
            raise Abandoned
        self._last = bytearray(self._chunks[self.taken])
        self.taken += 1
        return memoryview(self._last)

    @property
    def count(self) -> int:
        return len(self._chunks)

    @property
    def is_over(self) -> bool:
        return self.taken == len(self._chunks)

    def job(self, paths: tuple[str, str], sequence: int = 1) -> Job:
        """As a worker makes it: tensors are begun, all else is gathered."""
        items = [
            stream.begin_tensor(part) if part.kind == "tensor" and part.length else stream.gather(part, self.arrive)
            for part in self._parts
        ]
        return commit.begin(sequence, self._event._replace(items=items), paths, self.arrive)


class Files:
    """Two files in a directory, and a committer for them."""

    def __init__(self, directory: Path, max_file_bytes: int | None = None) -> None:
        self.paths = (str(directory / "summary"), str(directory / "lineage"))
        self.notices: list[Notice] = []
        self.committer = Committer(max_file_bytes, self.notices.append)

    def contents(self) -> list[bytes]:
        return [Path(path).read_bytes() if os.path.exists(path) else b"" for path in self.paths]

    def whole(self, event: Event) -> list[bytes]:
        """What the event is as a whole, for each file."""
        job = commit.encode(1, event, self.paths, self.notices.append)
        assert not job.failed
        return [b"".join(job.frames[file]) for file in (SUMMARY, LINEAGE)]


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    files = Files(tmp_path)
    yield files
    files.committer.close()


def assert_same(files: Files, event: Event, chunk_bytes: int) -> None:
    """The event, streamed in chunks of that size, is what it is as a whole."""
    arriving = Arriving(event, chunk_bytes)
    job = arriving.job(files.paths)
    expected = files.whole(event)
    assert [job.size_bytes(file) for file in (SUMMARY, LINEAGE)] == list(map(len, expected))
    state = files.committer.apply(State(), [job])
    assert files.contents() == expected
    assert state == State(1, len(expected[0]), len(expected[1]), 1)
    assert arriving.is_over
    assert files.notices == []


def random_bits(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Any bits that the dtype has, NaN, infinities and denormal numbers of floats among them."""
    code = "float32" if dtype == BFLOAT16 else dtype
    raw = rng.integers(0, 2 if dtype == "bool" else 256, (*shape, np.dtype(code).itemsize), np.uint8)
    array = raw.view(code).reshape(shape)
    if dtype == "float16" and array.size:
        array.reshape(-1)[0] = np.nan
    if dtype == BFLOAT16:
        array = (array.view("u4") & np.uint32(0xFFFF0000)).view("f4")
    return array


def tensor(array: NDArray[Any], dtype: str = "", tag: str = "weight") -> Item:
    return Item("tensor", tag, array, dtype or array.dtype.name)


# ---------------------------------------------------------------------- the same bytes


@pytest.mark.parametrize("chunk_bytes", [8, 56, 64, 1000, 4096, 1 << 20])
@pytest.mark.parametrize("dtype", DTYPE_NUMBERS)
def test_a_tensor_of_any_type(files: Files, rng: np.random.Generator, dtype: str, chunk_bytes: int) -> None:
    """Byte for byte what it is as a whole, whatever its type and shape and wherever it is cut in two."""
    arrays = [random_bits(rng, dtype, shape) for shape in SHAPES]
    items = [tensor(array, dtype, f"t{index}") for index, array in enumerate(arrays)]
    items.sort(key=lambda item: item.payload.size > 0)  # type: ignore[union-attr]  # what is gathered comes first
    for item in items:
        Path(files.paths[SUMMARY]).unlink(missing_ok=True)
        assert_same(files, Event(3, 4.0, [item]), chunk_bytes)
    Path(files.paths[SUMMARY]).unlink()
    assert_same(files, Event(-1, 4.0, items, {"loss": 0.1}), chunk_bytes)


def test_half_floats_without_nan(files: Files, rng: np.random.Generator) -> None:
    """That none is NaN is not known when the frame is begun: they stand there twice, and are read as they were."""
    array = rng.normal(size=(40, 30)).astype(np.float16)
    event = Event(3, 4.0, [tensor(array)])
    (expected,) = (len(data) for data in files.whole(event) if data)
    state = files.committer.apply(State(), [Arriving(event, 64).job(files.paths)])
    assert state.summary_bytes >= expected + array.nbytes
    (record,) = records(files.paths[SUMMARY])
    assert isinstance(record.value, Tensor)
    assert (record.step, record.value.dtype, record.value.array.shape) == (3, "float16", (40, 30))
    assert record.value.array.tobytes() == array.tobytes()


@pytest.mark.parametrize("code", [">f4", ">f8", ">i8", ">u2", ">f2"])
def test_an_array_of_the_other_byte_order(files: Files, rng: np.random.Generator, code: str) -> None:
    """Files are little endian, whatever the array is."""
    array = random_bits(rng, np.dtype(code).name, (3, 50)).astype(code)
    assert_same(files, Event(3, 4.0, [tensor(array)]), 80)


@pytest.mark.parametrize("layout", ["transposed", "strided", "Fortran"])
def test_an_array_in_another_layout(files: Files, rng: np.random.Generator, layout: str) -> None:
    """Its values come in the order of its indices."""
    array = rng.normal(size=(20, 30))
    shown = {"transposed": array.T, "strided": array[::2, ::-3], "Fortran": np.asfortranarray(array)}
    assert_same(files, Event(3, 4.0, [tensor(shown[layout])]), 80)


def all_kinds(rng: np.random.Generator) -> Event:
    """An event for both files, with items of all sorts; what has to be gathered comes first."""
    items = [
        Item("graph", "g", rng.bytes(5000)),
        *custom(1, "x" * 3000).items,
        Item("image", "i", rng.integers(0, 256, (3, 3, 20, 30), np.uint8)),
        Item("histogram", "h", rng.normal(size=5000)),
        Item("landscape", "l", rng.bytes(777)),
        Item("tensor", "empty", np.empty((0, 5), np.int64), "int64"),
        tensor(rng.normal(size=(50, 60)), tag="exact"),
        tensor(rng.normal(size=999).astype(np.float32), tag="single"),
        tensor(np.arange(1000), tag="whole"),
    ]
    return Event(1, 2.0, items, {"loss": 0.1, "accuracy": 0.5})


@pytest.mark.parametrize("chunk_bytes", [64, 1000, 1 << 20])
def test_items_of_all_kinds(files: Files, rng: np.random.Generator, chunk_bytes: int) -> None:
    """Graph, image, histogram, landscape, lineage, scalars and tensors of one event, in both files."""
    assert_same(files, all_kinds(rng), chunk_bytes)


@pytest.mark.parametrize("limit", [1000, 20_000, 40_000])
def test_an_event_of_several_frames(
    files: Files, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """What is too much for one payload goes into further ones, as it does as a whole."""
    monkeypatch.setattr(event_codec, "MAX_PAYLOAD_BYTES", limit)
    event = all_kinds(rng)
    assert len(event_codec.encode(event)) > 2
    assert_same(files, event, 64)


def test_an_event_without_arrays(files: Files) -> None:
    """Scalars come with the head: nothing has to arrive."""
    assert_same(files, Event(1, 2.0, (), {f"tag{index}": index / 3 for index in range(1000)}), 64)


def test_a_stream_behind_others(files: Files, rng: np.random.Generator) -> None:
    """It stands behind what is committed, and others behind it."""
    first = commit.encode(1, scalar(1), files.paths, files.notices.append)
    state = files.committer.apply(State(), [first])
    event = Event(2, 2.0, [tensor(np.full(5000, 2.0))])
    state = files.committer.apply(state, [Arriving(event, 64).job(files.paths, 2)])
    state = files.committer.apply(state, [commit.encode(3, scalar(3), files.paths, files.notices.append)])
    assert numbers(files.paths[SUMMARY]) == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert state == State(3, os.path.getsize(files.paths[SUMMARY]), 0, 3)


def test_it_is_never_held_as_a_whole(files: Files) -> None:
    """A tensor of 32 MB, which stands twice in the file, takes no more memory than a few of its chunks."""
    arriving = Arriving(Event(1, 2.0, [tensor(np.ones(1 << 22))]), 1 << 18)
    tracemalloc.start()
    try:
        files.committer.apply(State(), [arriving.job(files.paths)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert os.path.getsize(files.paths[SUMMARY]) > 48 << 20
    assert peak < 2 << 20


# ---------------------------------------------------------------------- the parts


@pytest.mark.parametrize(
    ("item", "count"),
    [
        (Item("graph", "g", b"x"), 1),
        (Item("histogram", "h", np.ones(3)), 1),
        (tensor(np.ones(3, np.float32)), 1),
        (tensor(np.ones(3, np.float32), BFLOAT16), 1),
        (tensor(np.ones(3, np.uint16)), 1),
        (tensor(np.ones(3, np.float16)), 2),
        (tensor(np.ones(3, np.float64)), 2),
        (tensor(np.ones(3, np.int32)), 2),
    ],
    ids=lambda value: f"{value.kind} {value.dtype}" if isinstance(value, Item) else None,
)
def test_passes(item: Item, count: int) -> None:
    """Only a tensor whose float32 may be other numbers is sent twice."""
    assert stream.passes(item) == count


def test_a_frame_of_pieces() -> None:
    """Head, payload and footer are those of the payload as a whole; pieces that are there are handed through."""
    piece = b"abc"
    arrived = iter([memoryview(b"de"), memoryview(b"f")])
    one = Frame([piece, Later(3, "|u1", "|u1"), b"", memoryview(b"g")])
    buffers = list(one.buffers(lambda: next(arrived)))
    assert b"".join(buffers) == b"".join(frame.pack([b"abcdefg"]))
    assert one.size_bytes == wire.size(buffers)  # type: ignore[arg-type]
    assert buffers[1] is piece


def test_gathering_takes_all_passes(rng: np.random.Generator) -> None:
    """A tensor that is wanted as a whole, to be exported, uses up its second pass too."""
    array = rng.normal(size=(10, 20))
    arriving = Arriving(Event(1, 2.0, [tensor(array), Item("graph", "g", b"graph" * 100)]), 64)
    first, second = (stream.gather(part, arriving.arrive) for part in arriving._parts)
    assert (first.kind, first.tag, first.dtype) == ("tensor", "weight", "float64")
    assert np.array_equal(first.payload, array)
    assert second == Item("graph", "g", b"graph" * 100)
    assert arriving.is_over


def test_a_tensor_of_a_type_that_files_lack() -> None:
    """It raises before the frame is begun."""
    arriving = Arriving(Event(1, 2.0, [tensor(np.ones(100, np.complex128))]), 64)
    with pytest.raises(KeyError, match="complex128"):
        arriving.job(("", ""))
    assert arriving.taken == 0


# ---------------------------------------------------------------------- what comes in between


def test_a_stream_that_breaks_off(files: Files, rng: np.random.Generator) -> None:
    """Wherever it does, the files end where they did, and the same event can be written later."""
    event = all_kinds(rng)
    before = files.committer.apply(State(), [commit.encode(1, scalar(1), files.paths, files.notices.append)])
    good = files.contents()
    count = Arriving(event, 2048).count
    assert count > 50
    for stop in range(count):
        arriving = Arriving(event, 2048, stop)
        with pytest.raises(Abandoned):
            files.committer.apply(before, [arriving.job(files.paths, 2)])
        assert arriving.taken == stop
        assert files.contents() == good
    after = files.committer.apply(before, [Arriving(event, 2048).job(files.paths, 2)])
    assert files.contents() == [good[0] + files.whole(event)[0], files.whole(event)[1]]
    assert (after.sequence, after.events) == (2, 2)


def test_another_event_after_one_that_broke_off(files: Files) -> None:
    """Nothing of the first is left behind the second."""
    with pytest.raises(Abandoned):
        files.committer.apply(State(), [Arriving(Event(1, 2.0, [tensor(np.ones(5000))]), 64, 500).job(files.paths)])
    state = files.committer.apply(State(), [commit.encode(1, scalar(1), files.paths, files.notices.append)])
    assert numbers(files.paths[SUMMARY]) == [(1, 1.0)]
    assert state == State(1, os.path.getsize(files.paths[SUMMARY]), 0, 1)


def full_from(call: int) -> Callable[..., int]:
    """A pwritev of a disk that is full from that call on, of which it takes half."""
    real, calls = os.pwritev, [0]

    def pwritev(fd: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        calls[0] += 1
        if calls[0] < call:
            return real(fd, pieces, offset)
        data = b"".join(pieces)
        if calls[0] == call and len(data) > 1:
            return os.pwrite(fd, data[: len(data) // 2], offset)
        raise OSError(errno.ENOSPC, "no")

    return pwritev


@needs_pwritev
@pytest.mark.parametrize("call", [1, 2, 3, 10, 40, 41])
def test_a_disk_that_is_full_in_the_middle(files: Files, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """The error is raised and the file ends where it did; what comes when there is room is whole."""
    state = files.committer.apply(State(), [commit.encode(1, scalar(1), files.paths, files.notices.append)])
    good = files.contents()
    event = Event(2, 2.0, [tensor(np.full(1200, 2.0))])
    arriving = Arriving(event, 512)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full_from(call))
        with pytest.raises(OSError, match="no") as raised:
            files.committer.apply(state, [arriving.job(files.paths, 2)])
    assert raised.value.errno == errno.ENOSPC
    assert arriving.count == 38  # 38 chunks, and five writes of keys, head and footer
    assert files.contents() == good
    state = files.committer.apply(state, [Arriving(event, 512).job(files.paths, 2)])
    assert numbers(files.paths[SUMMARY]) == [(1, 1.0), (2, 2.0)]
    assert state[1:4] == (os.path.getsize(files.paths[SUMMARY]), 0, 2)


def test_a_stream_beyond_the_limit(tmp_path: Path) -> None:
    """Its size is known before its bytes: it is refused without one of them, and the file stays as it was."""
    event = Event(2, 2.0, [tensor(np.ones(1000))])
    exact = Files(tmp_path)
    size = len(exact.whole(event)[0])
    for spare in (-1, 0):
        files = Files(tmp_path, size + spare)
        arriving = Arriving(event, 64)
        state = files.committer.apply(State(), [arriving.job(files.paths)])
        assert state == (State(1, 0, 0, 0, 0, 1 << SUMMARY, 1) if spare < 0 else State(1, size, 0, 1))
        assert arriving.taken == (0 if spare < 0 else arriving.count)
        assert [notice.what for notice in files.notices] == (["limit"] if spare < 0 else [])
        files.committer.close()


# ---------------------------------------------------------------------- through a pool


def test_a_head_larger_than_a_chunk(sink_at: OpenSink) -> None:
    """Thousands of long tags beside a tensor, and alone: all of it arrives, and no worker dies of it."""
    sink = sink_at(1, ring_bytes=64 << 10)
    scalars = {"x" * 100 + str(index): float(index) for index in range(1000)}
    assert sink.write(Event(1, 2.0, [tensor(np.full(20_000, 1.0))], scalars))
    assert sink.write(Event(2, 2.0, (), scalars))
    sink.close()
    found = records(sink.path)
    assert [record.step for record in found] == [1] * 1001 + [2] * 1000
    for start in (0, 1001):
        values = {record.tag: record.value.value for record in found[start : start + 1000]}  # type: ignore[union-attr]
        assert values == scalars
    assert (sink.stats.events, sink.stats.lost, sink.stats.errors) == (2, 0, 0)


def test_a_large_event_that_cannot_be_encoded(sink_at: OpenSink) -> None:
    """It is answered False and counted once, the file says so once, and what comes next is written."""
    sink = sink_at(1, ring_bytes=64 << 10)
    bad = [Item("no kind", "t", np.ones(20_000)), tensor(np.ones(20_000, np.complex128))]
    assert [sink.write(Event(step, 2.0, [item], {"loss": 1.0})) for step, item in enumerate(bad)] == [False, False]
    assert sink.write(Event(2, 2.0, [tensor(np.full(20_000, 2.0))]))
    sink.close()
    assert numbers(sink.path) == [(2, 2.0)]
    assert [(gap.events, gap.first_step) for gap in gaps(sink.path)] == [(1, 0), (1, 1)]
    assert (sink.stats.events, sink.stats.lost, sink.stats.errors) == (1, 2, 2)


def test_items_of_all_kinds_through_a_pool(sink_at: OpenSink, files: Files, rng: np.random.Generator) -> None:
    """What the pool sends is what the worker takes: both files are what they would be as a whole."""
    sink = sink_at(1, ring_bytes=64 << 10)
    begin = os.path.getsize(sink.path)
    event = all_kinds(rng)
    assert sink.write(event)
    sink.close()
    assert Path(sink.path).read_bytes()[begin:] == files.whole(event)[SUMMARY]
    lineage = Path(sink.path.removesuffix("_MS") + "_lineage")
    assert lineage.read_bytes() == files.whole(event)[LINEAGE]

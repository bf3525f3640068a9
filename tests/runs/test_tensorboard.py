"""TensorBoard's event files, made by torch and by TensorBoard itself: every value of both styles."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from instrument import read
from instrument.codec import image, wire
from instrument.codec import tensorboard as tb
from instrument.errors import CorruptMessage
from instrument.eventfile import names
from tests.runs.build import framed, steps, write

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "tensorboard"
DTYPES = [
    "float32",
    "float64",
    "int32",
    "int64",
    "uint8",
    "int8",
    "bool",
    "float16",
    "uint16",
    "uint32",
    "uint64",
    "int16",
]
FILE = "events.out.tfevents.1700000000.host.1.0"


def event(step: int, body: bytes, wall_time: float = 5.0) -> bytes:
    """A frame of TensorBoard's dialect; a step of 0 is left out, as protobuf's third syntax has it."""
    head = wire.double(tb.WALL_TIME, wall_time) + (wire.integer(tb.STEP, step) if step else b"")
    return framed([head + body])


def value(tag: str, content: bytes) -> bytes:
    return wire.delimited(tb.SUMMARY, wire.delimited(1, wire.delimited(tb.TAG, tag.encode()) + content))


def scalar(step: int, tag: str, number: float) -> bytes:
    single = wire.key(tb.SIMPLE_VALUE, wire.FIXED32) + np.float32(number).tobytes()
    return event(step, value(tag, single))


def version(writer: str = "") -> bytes:
    source = wire.delimited(tb.SOURCE_METADATA, wire.delimited(tb.SOURCE_WRITER, writer.encode())) if writer else b""
    return event(0, wire.delimited(tb.FILE_VERSION, tb.VERSION.encode()) + source)


def test_the_old_style_is_read() -> None:
    """Scalars, NaN and infinity among them, a histogram, a picture and a text that torch wrote."""
    run = read(GOLDEN / "torch")

    assert run.tags() == {
        "scalar": ["loss", "wide/long name", "x"],
        "image": ["picture"],
        "histogram": ["weights"],
        "text": ["note/text_summary"],
    }
    assert run.damage == []
    expected = (1 / np.arange(1, 21)).astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(run.scalars("loss").value, expected)
    assert run.scalars("loss").step.tolist() == list(range(20))
    assert run.scalars("loss").wall_time.tolist() == [1000.0 + step for step in range(20)]
    np.testing.assert_array_equal(run.scalars("x").value, [math.nan, math.inf])
    histogram = run.histograms("weights")[3]
    assert (histogram.count, histogram.min) == (100, 0.0)
    assert histogram.max == pytest.approx(0.99)
    assert int(histogram.counts.sum()) == 100
    assert histogram.sum == pytest.approx(49.5)
    pixels = run.images("picture").pixels(5)
    np.testing.assert_array_equal(pixels, (np.arange(60) * 4).astype("u1").reshape(3, 4, 5).transpose(1, 2, 0))
    assert run.texts("note/text_summary")[7].text == "first\nsecond"


def test_the_new_style_is_read() -> None:
    """Tensors become what their plugin says, also where only the first event of a tag names it."""
    run = read(GOLDEN / "styles")

    assert run.damage == []
    expected = (np.arange(30) / 7).astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(run.scalars("accuracy").value, expected)
    assert run.scalars("double").value.tolist() == [0.1, 1.1, 2.1]
    assert run.scalars("integer")[1] == 12345678901.0
    histogram = run.histograms("hist")[2]
    assert (histogram.left.tolist(), histogram.width.tolist(), histogram.counts.tolist()) == ([0, 1], [1, 1], [3, 4])
    picture = run.images("pic")[3]
    assert (picture.height, picture.width, picture.channels) == (4, 5, 1)
    np.testing.assert_array_equal(image.pixels(picture)[:, :, 0], np.arange(20).reshape(4, 5))
    assert run.texts("words")[4].array.tolist() == [["a", "b"], ["c", "é"]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_keep_their_types(dtype: str) -> None:
    """Each type comes back with its values."""
    tensor = read(GOLDEN / "styles").tensors(f"t/{dtype}").values[0]
    assert tensor.dtype == dtype
    assert tensor.array.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(tensor.array, np.array([[1, 0, 2], [3, 4, 5]]).astype(dtype))


def test_hyperparameters_are_lineage() -> None:
    """What torch's `hparams` wrote stands under `hparams`."""
    assert read(GOLDEN / "hparams").lineage == {"hparams": {"lr": 0.1, "name": "sgd", "nesterov": 1.0}}


def test_step_zero_is_a_step(tmp_path: Path) -> None:
    """D-56: a step that the file leaves out is 0, and so is a number of 0.0."""
    (tmp_path / FILE).write_bytes(version() + b"".join(scalar(step, "x", 0.0) for step in range(20)))
    scalars = read(tmp_path).scalars("x")
    assert scalars.step.tolist() == list(range(20))
    assert scalars.value.tolist() == [0.0] * 20


def test_a_graph_has_nodes(tmp_path: Path) -> None:
    """A `GraphDef` is read as a graph of ours."""
    from instrument.codec import graph

    def node(name: str, op: str, *inputs: str) -> bytes:
        texts = [(1, name), (2, op), *((3, one) for one in inputs)]
        return wire.delimited(1, b"".join(wire.delimited(number, text.encode()) for number, text in texts))

    content = node("net/a", "Add") + node("net/b", "Mul", "net/a", "x")
    (tmp_path / FILE).write_bytes(event(0, wire.delimited(tb.GRAPH_DEF, content)))
    found = read(tmp_path).graph
    assert found is not None
    assert [(one.name, one.op_type, one.scope, one.inputs) for one in graph.nodes(found)] == [
        ("net/a", "Add", "net", ()),
        ("net/b", "Mul", "net", ("net/a", "x")),
    ]


def test_our_own_copy_is_not_counted_twice(tmp_path: Path) -> None:
    """A file of ours in TensorBoard's dialect is passed over beside one of MindSpore's, and read where it is alone."""
    write(tmp_path / "both", steps("scalar", "x", range(3), 1.0, start=0.0))
    (tmp_path / "both" / FILE).write_bytes(version(tb.WRITER) + scalar(1, "x", 1.0))
    (tmp_path / "alone").mkdir()
    shutil.copy(tmp_path / "both" / FILE, tmp_path / "alone")
    assert len(read(tmp_path / "both").scalars("x")) == 3
    assert len(read(tmp_path / "alone").scalars("x")) == 1


def test_another_writers_file_is_kept_apart(tmp_path: Path) -> None:
    """Files of TensorBoard beside MindSpore's are another writer's."""
    write(tmp_path, steps("scalar", "x", range(3), 1.0, start=0.0))
    (tmp_path / FILE).write_bytes(version() + scalar(1, "x", 5.0))
    scalars = read(tmp_path).scalars("x")
    assert {writer: points.value.tolist() for writer, points in scalars.by_writer().items()} == {
        (-1, "host"): [5.0],
        (0, "host"): [1.0] * 3,
    }


@pytest.mark.parametrize(
    ("name", "seconds", "host"),
    [
        ("events.out.tfevents.1700000000.my.host.example.42.0", 1700000000, "my.host.example"),
        ("events.out.tfevents.1700000000.host.42.0.v2", 1700000000, "host"),
        ("events.out.tfevents.1700000000.host", 1700000000, "host"),
        ("old.tfevents", 0, ""),
    ],
)
def test_names_say_when_and_where(name: str, seconds: int, host: str) -> None:
    """Seconds and host come out of every form of name that TensorBoard takes."""
    found = names.recognise(name)
    assert found is not None
    assert (found.seconds, found.host, found.device, found.kind) == (seconds, host, -1, names.TENSORBOARD)


@pytest.mark.parametrize(
    ("name", "host", "device"),
    [
        ("events.out.tfevents.1700000000.my.host.42.0.rank3", "my.host", 3),
        ("events.out.tfevents.1700000000.host.42.1.rank0.v2", "host", 0),
        ("events.out.tfevents.1700000000.host.42.1.rank", "host.42.1.rank", -1),
        ("events.out.tfevents.1700000000.host.42.1.frank2", "host.42.1.frank2", -1),
    ],
)
def test_names_may_end_in_a_rank(name: str, host: str, device: int) -> None:
    """As those of a training of several ranks do, and those of whoever gives such a `filename_suffix`."""
    found = names.recognise(name)
    assert found is not None
    assert (found.host, found.device) == (host, device)


def test_many_tags_of_one_length_are_told_apart(tmp_path: Path) -> None:
    """Names of one length, an event each, as layer by layer: every number under its own tag and step."""
    tags = [f"layer_{index:03d}/norm" for index in range(100)]
    frames = [scalar(step, tag, step + index / 100) for step in range(1, 40) for index, tag in enumerate(tags)]
    (tmp_path / FILE).write_bytes(version() + b"".join(frames))
    run = read(tmp_path)
    assert run.tags() == {"scalar": tags}
    for index, tag in enumerate(tags):
        scalars = run.scalars(tag)
        assert scalars.step.tolist() == list(range(1, 40))
        expected = (np.arange(1, 40) + index / 100).astype(np.float32).astype(np.float64)
        np.testing.assert_array_equal(scalars.value, expected)


def test_halves_are_read_as_torch_writes_them(tmp_path: Path) -> None:
    """Their 16 bits, or those of a float32, which torch puts there; a number that a type lacks is refused."""
    halves = np.array([1.5, -0.25, 0.0], np.float16)
    bits = {"own": halves.view(np.uint16), "torch": halves.astype(np.float32).view(np.uint32)}
    content = {tag: tensor_of(19, 13, column.tolist()) for tag, column in bits.items()}
    content |= {"bfloat16": tensor_of(14, 13, bits["torch"].tolist()), "int8": tensor_of(6, 7, [300])}
    frames = [event(1, value(tag, wire.delimited(tb.TENSOR, one))) for tag, one in content.items()]
    (tmp_path / FILE).write_bytes(b"".join([version(), *frames]))
    run = read(tmp_path)
    for tag in ("own", "torch", "bfloat16"):
        assert run.tensors(tag)[1].tolist() == halves.tolist()
    with pytest.raises(CorruptMessage, match="a tensor of int8 holds a number that is none"):
        run.tensors("int8")[1]


def tensor_of(dtype: int, field: int, numbers: list[int]) -> bytes:
    shape = wire.delimited(tb.SHAPE, wire.delimited(tb.DIM, wire.integer(tb.DIM_SIZE, len(numbers))))
    packed = wire.delimited(field, b"".join(map(wire.varint, numbers)))
    return wire.integer(tb.DTYPE, dtype) + shape + packed

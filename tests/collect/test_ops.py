"""Summary operators in PyNative mode: what reaches which recorder, when, and that nobody pays for what nobody reads."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import ops as mindspore_ops

from instrument import SummaryCollector, SummaryRecord, ops, read
from instrument.codec.image import pixels
from instrument.collect import convert
from tests.collect.fake import Loop

Said = Callable[..., list[str]]

PICTURE = np.arange(2 * 1 * 2 * 2, dtype=np.uint8).reshape(2, 1, 2, 2)
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip


def record(directory: Path, **options: Any) -> SummaryRecord:
    return SummaryRecord(directory, num_process=0, **options)


def test_each_operator_records_its_kind(tmp_path: Path) -> None:
    """The four operators, called like MindSpore's, end in the kinds of their names at the step of the record."""
    with record(tmp_path) as recorder:
        ops.ScalarSummary()("a", ms.Tensor(0.5))
        ops.ImageSummary()("b", ms.Tensor(PICTURE))
        ops.TensorSummary()("c", ms.Tensor([[1, 2], [3, 4]], ms.int32))
        ops.HistogramSummary()("d", ms.Tensor([1.0, 2.0, 2.0]))
        assert recorder.record(7)
    run = read(tmp_path)
    assert run.tags() == {"scalar": ["a"], "image": ["b"], "tensor": ["c"], "histogram": ["d"]}
    assert run.scalars("a")[7] == 0.5
    assert pixels(run.images("b")[7])[:, :, 0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert run.tensors("c")[7].tolist() == [[1, 2], [3, 4]]
    assert (run.histograms("d")[7].count, run.histograms("d")[7].sum) == (3, 5.0)


@pytest.mark.parametrize("shape", [(4, 6), (1, 4, 6), (4, 6, 3), (3, 4, 6), (2, 3, 4, 6), (2, 4, 6, 1)])
def test_a_picture_of_any_form(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """One picture or a batch of them, as `add_value` takes them."""
    given = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    with record(tmp_path) as recorder:
        ops.ImageSummary()("operator", ms.Tensor(given))
        recorder.add_value("image", "value", given)
        recorder.record(1)
    run = read(tmp_path)
    assert run.images("operator")[1].data == run.images("value")[1].data


def test_nothing_is_kept_or_said_while_values_are_ignored(tmp_path: Path, said: Said) -> None:
    """What ran before is recorded; inside neither values nor warnings; afterwards all is as before."""
    scalar, image = ops.ScalarSummary(), ops.ImageSummary()
    with record(tmp_path) as recorder:
        scalar("before", ms.Tensor(1.0))
        mindspore_ops.ScalarSummary()("theirs/before", ms.Tensor(1.5))
        with ops.ignored(), ops.ignored():
            scalar("inside", ms.Tensor(2.0))
            image("inside", ms.Tensor(np.zeros((1, 1, 1, 1, 1), np.float32)))
            mindspore_ops.ScalarSummary()("theirs/inside", ms.Tensor(2.5))
        assert said() == []
        image("after", ms.Tensor(np.zeros((1, 1, 1, 1, 1), np.float32)))
        scalar("after", ms.Tensor(3.0))
        recorder.record(1)
    assert read(tmp_path).tags() == {"scalar": ["after", "before", "theirs/before"]}
    assert len(said("the wrong number of dimensions")) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_take_every_dtype(tmp_path: Path, dtype: str) -> None:
    """Tensors come back with their dtype and bits; scalars and histograms hold the numbers."""
    array = np.array([[0, 1], [1, 1]], dtype)
    with record(tmp_path) as recorder:
        ops.TensorSummary()("t", ms.Tensor(array))
        ops.HistogramSummary()("h", ms.Parameter(ms.Tensor(array), name="h"))
        ops.ScalarSummary()("s", ms.Tensor(array[1, 0]))
        recorder.record(1)
    run = read(tmp_path)
    assert (run.tensors("t")[1].dtype, run.tensors("t")[1].tobytes()) == (array.dtype, array.tobytes())
    assert (run.histograms("h")[1].sum, run.scalars("s")[1]) == (3.0, 1.0)


def test_operators_take_bfloat16_and_scalars(tmp_path: Path) -> None:
    """bfloat16 keeps its name as a tensor; 0-d tensors stay 0-d; one element of any shape is a scalar."""
    half = ms.Tensor(np.array([1.0, 257.0], np.float32)).astype(ms.bfloat16)
    with record(tmp_path) as recorder:
        ops.TensorSummary()("half", half)
        ops.TensorSummary()("point", ms.Tensor(2.5))
        ops.TensorSummary()("half point", half[1])
        ops.HistogramSummary()("half", half)
        ops.HistogramSummary()("point", ms.Tensor(2.5))
        ops.ScalarSummary()("half", half[1])
        ops.ScalarSummary()("boxed", ms.Tensor([[[3.5]]]))
        ops.ImageSummary()("half", ms.Tensor(PICTURE / np.float32(8)).astype(ms.bfloat16))
        recorder.record(1)
    run = read(tmp_path)
    assert (run.tensors("half").values[0].dtype, run.tensors("half")[1].tolist()) == ("bfloat16", [1.0, 256.0])
    assert (run.tensors("point")[1].shape, run.tensors("point")[1].item()) == ((), 2.5)
    assert (run.tensors("half point").values[0].dtype, run.tensors("half point")[1].item()) == ("bfloat16", 256.0)
    assert run.tensors("half point")[1].shape == ()
    assert (run.histograms("half")[1].max, run.histograms("point")[1].sum) == (256.0, 2.5)
    assert (run.scalars("half")[1], run.scalars("boxed")[1]) == (256.0, 3.5)
    assert pixels(run.images("half")[1]).max() == round(7 / 8 * 255)


def test_the_value_is_that_of_the_call(tmp_path: Path) -> None:
    """What becomes of the tensor after the call is not recorded."""
    tensor = ms.Tensor(np.zeros(3, np.float32))
    with record(tmp_path) as recorder:
        ops.TensorSummary()("t", tensor)
        ops.HistogramSummary()("h", tensor)
        tensor.asnumpy()[...] = 9
        recorder.record(1)
    run = read(tmp_path)
    assert (run.tensors("t")[1].tolist(), run.histograms("h")[1].max) == ([0, 0, 0], 0.0)


def test_every_open_recorder_gets_the_value(tmp_path: Path) -> None:
    """Recorders open at the time of the call have it, each at its own step; the others have not."""
    scalar = ops.ScalarSummary()
    scalar("s", ms.Tensor(1.0))
    first, second = record(tmp_path / "first"), record(tmp_path / "second")
    scalar("s", ms.Tensor(2.0))
    first.record(10)
    second.record(20)
    first.close()
    scalar("s", ms.Tensor(3.0))
    second.record(21)
    second.close()
    scalar("s", ms.Tensor(4.0))
    with record(tmp_path / "third") as third:
        third.record(30)
    assert read(tmp_path / "first").scalars("s").value.tolist() == [2.0]
    assert read(tmp_path / "second").scalars("s").step.tolist() == [20, 21]
    assert read(tmp_path / "second").scalars("s").value.tolist() == [2.0, 3.0]
    assert read(tmp_path / "third").tags() == {}


def test_a_second_recorder_takes_nothing_from_the_first(tmp_path: Path) -> None:
    """What ran between the opening of two recorders belongs to the first, though nobody had fetched it yet."""
    with record(tmp_path / "first") as first:
        mindspore_ops.ScalarSummary()("s", ms.Tensor(1.5))  # MindSpore keeps it until somebody asks
        with record(tmp_path / "second") as second:
            second.record(1)
        first.record(1)
    assert read(tmp_path / "first").scalars("s")[1] == 1.5
    assert read(tmp_path / "second").tags() == {}


def test_a_value_belongs_to_the_mode_in_which_it_came(tmp_path: Path) -> None:
    """An evaluation between a training step and its record neither drops nor replaces the step's values."""
    with record(tmp_path) as recorder:
        for scalar in (ops.ScalarSummary(), mindspore_ops.ScalarSummary()):
            scalar("s", ms.Tensor(1.0))
            recorder.set_mode("eval")
            scalar("s", ms.Tensor(2.0))
            recorder.set_mode("train")
            recorder.record(1)
    assert read(tmp_path).scalars("s", superseded=True).value.tolist() == [1.0, 1.0]


def test_in_eval_mode_operators_are_passed_over(tmp_path: Path) -> None:
    """Between set_mode("eval") and set_mode("train") values of operators are dropped, not kept for later."""
    scalar = ops.ScalarSummary()
    with record(tmp_path) as recorder:
        for step, mode in enumerate(["train", "eval", "train"]):
            recorder.set_mode(mode)
            scalar("s", ms.Tensor(float(step)))
            recorder.record(step)
        scalar("s", ms.Tensor(9.0))
        recorder.set_mode("eval")
        recorder.record(9)
    assert read(tmp_path).scalars("s").step.tolist() == [0, 2]


def test_plugin_filter_holds_for_operators(tmp_path: Path) -> None:
    """A filter chooses among operators' values too; what it refuses is not kept."""
    with record(tmp_path) as recorder:
        for step in range(2):
            ops.ScalarSummary()("s", ms.Tensor(1.0))
            ops.TensorSummary()("t", ms.Tensor([1.0]))
            recorder.record(step, plugin_filter=("scalar" if step else "tensor").__eq__)
    run = read(tmp_path)
    assert (run.scalars("s").step.tolist(), run.tensors("t").step.tolist()) == ([1], [0])


def test_a_name_used_twice_keeps_the_later(tmp_path: Path, said: Said) -> None:
    """Two calls with one name before a record: the last counts, one warning says so; another kind is another name."""
    with record(tmp_path) as recorder:
        for step in range(3):
            ops.ScalarSummary()("x", ms.Tensor(1.0))
            ops.ScalarSummary()("x", ms.Tensor(2.0 + step))
            ops.TensorSummary()("x", ms.Tensor([1.0]))
            recorder.record(step)
    assert read(tmp_path).scalars("x").value.tolist() == [2.0, 3.0, 4.0]
    assert len(said("The scalar summary 'x' came more than once")) == 1
    assert len(said()) == 1


def test_mindspores_own_operators_are_recorded_too(tmp_path: Path) -> None:
    """`mindspore.ops.ScalarSummary` and its kind, in PyNative mode, end in our files under their names."""
    with record(tmp_path) as recorder:
        mindspore_ops.ScalarSummary()("s", ms.Tensor(1.5))
        mindspore_ops.TensorSummary()("t", ms.Tensor([1.0, 2.0]))
        mindspore_ops.HistogramSummary()("h", ms.Tensor([1.0, 2.0]))
        recorder.record(1)
    run = read(tmp_path)
    assert run.tags() == {"scalar": ["s"], "tensor": ["t"], "histogram": ["h"]}
    assert (run.scalars("s")[1], run.tensors("t")[1].tolist()) == (1.5, [1.0, 2.0])


@pytest.mark.parametrize("name", ["a b", "a/b[:Scalar]", "准确率", "a[#1]", "a\nb", "x" * 300, "[#7bz]"])
def test_operator_names_come_back_as_given(tmp_path: Path, name: str) -> None:
    """Whatever the name looks like, also like the marks that operators put behind it."""
    with record(tmp_path) as recorder:
        ops.ScalarSummary()(name, ms.Tensor(1.0))
        recorder.record(1)
    assert read(tmp_path).tags() == {"scalar": [name]}


def test_without_a_reader_nothing_is_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no recorder, a closed one, one that was dropped, or one in eval mode, an operator copies nothing."""
    converted: list[str] = []
    to_array = convert.to_array
    monkeypatch.setattr(
        convert, "to_array", lambda value, tag, kind: converted.append(tag) or to_array(value, tag, kind)
    )
    value, tensor = ms.Tensor([1.0, 2.0]), ops.TensorSummary()
    tensor("nobody", value)
    recorder = record(tmp_path)
    tensor("open", value)
    recorder.set_mode("eval")
    tensor("eval", value)
    recorder.set_mode("train")
    recorder.close()
    tensor("closed", value)
    dropped = record(tmp_path)
    del dropped
    gc.collect()
    tensor("dropped", value)
    assert converted == ["open"]


# ---------------------------------------------------------------- in a training that is collected


ONLY_METRICS = {"collect_specified_data": {"collect_metric": True}, "keep_default_action": False}


def collector(directory: Path, **options: Any) -> SummaryCollector:
    return SummaryCollector(directory, **{"collect_freq": 1, "num_process": 0, **options})


def test_operators_are_recorded_at_collected_steps_only(tmp_path: Path, said: Said) -> None:
    """Between the collected steps, in an evaluation and outside of steps, summary operators leave nothing."""
    scalar, tensor = ops.ScalarSummary(), ops.TensorSummary()

    def operators(number: float) -> None:
        scalar("s", ms.Tensor(number))
        tensor("t", ms.Tensor([number]))

    one = collector(tmp_path, collect_freq=3, collect_tensor_freq=4, **ONLY_METRICS)
    loop = Loop(one, at_step=lambda step, _: operators(float(step)))
    with loop.entered():
        loop.call("on_train_begin")
        operators(-1.0)
        for step in range(1, 10):
            loop.step(step)
            operators(-1.0)
            if step == 5:
                loop.evaluate({"accuracy": 0.5})
                operators(-1.0)
        loop.call("on_train_epoch_end")
        loop.call("on_train_end")
    operators(-1.0)
    run = read(tmp_path)
    assert run.scalars("s").step.tolist() == run.scalars("s").value.tolist() == [1, 3, 6, 9]
    assert run.tensors("t").step.tolist() == [1, 4, 8]
    assert [run.tensors("t")[step].tolist() for step in (1, 4, 8)] == [[1.0], [4.0], [8.0]]
    assert said("more than once") == []


def test_a_name_twice_in_a_step_keeps_the_later(tmp_path: Path, said: Said) -> None:
    """Two operators with one name: the last value counts, and one warning says so for the whole training."""
    scalar, other = ops.ScalarSummary(), ops.ScalarSummary()

    def twice(step: int, _: Any) -> None:
        scalar("s", ms.Tensor(1.0))
        other("s", ms.Tensor(2.0))

    Loop(collector(tmp_path), at_step=twice).train(range(1, 4))
    assert read(tmp_path).scalars("s").value.tolist() == [2.0] * 3
    assert len(said("'s' came more than once")) == 1


def test_an_operators_value_that_cannot_be_recorded_is_said_once(tmp_path: Path, said: Said) -> None:
    """A vector as a scalar, a complex tensor and a name that is no Unicode stop nothing."""
    scalar, tensor = ops.ScalarSummary(), ops.TensorSummary()

    def odd(step: int, _: Any) -> None:
        scalar("odd/vector", ms.Tensor([1.0, 2.0]))
        tensor("odd/complex", ms.Tensor(np.array([1j], np.complex64)))
        scalar("odd/\udcff", ms.Tensor(1.0))
        scalar("good", ms.Tensor(float(step)))

    Loop(collector(tmp_path, **ONLY_METRICS), at_step=odd).train(range(1, 4))
    assert read(tmp_path).tags()["scalar"] == ["good", "learning_rate/auto", "loss/auto"]
    assert len(said("is not recorded")) == 3

"""Summary operators inside `construct` of a network that is trained by hand: every place, every kind of value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from instrument import Run
from instrument.codec import graph as graph_codec
from instrument.codec import histogram as histogram_codec
from instrument.codec import image as image_codec
from tests.integration.conftest import Ran, Script

STEPS = [1, 2, 3, 4]
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float64",
)  # fmt: skip


@pytest.fixture
def ran(script: Script, mode: str) -> Ran:
    return script("operators", mode)


def given(step: int) -> np.ndarray[Any, Any]:
    """The network's input at a step."""
    return (np.arange(32, dtype=np.float32) / 32).reshape(2, 1, 4, 4) * step


def tensors(run: Run, tag: str, steps: list[int] | None = None) -> list[np.ndarray[Any, Any]]:
    found = run.tensors(tag, superseded=True)
    assert found.step.tolist() == (STEPS if steps is None else steps)
    return [tensor.array for tensor in found.values]


def scalars(run: Run, tag: str) -> list[float]:
    found = run.scalars(tag, superseded=True)
    assert found.step.tolist() == STEPS
    return list(found.value.tolist())


def assert_histogram(run: Run, tag: str, step: int, array: np.ndarray[Any, Any]) -> None:
    found, expected = run.histograms(tag)[step], histogram_codec.from_array(array)
    assert found.left.tolist() == expected.left.tolist()
    assert found.width.tolist() == expected.width.tolist()
    assert found.counts.tolist() == expected.counts.tolist()
    assert (found.count, found.min, found.max, found.sum) == (array.size, expected.min, expected.max, expected.sum)


def test_every_operator_arrives_at_every_step(ran: Ran) -> None:
    """What operators were given is recorded at each step of the training, and nothing at the evaluation."""
    run = ran.run()
    assert {kind: len(tags) for kind, tags in run.tags().items() if kind != "graph"} == {
        "scalar": 8 + len(DTYPES), "image": 2, "tensor": 9 + len(DTYPES), "histogram": 5 + len(DTYPES),
    }  # fmt: skip
    for kind, tags in run.tags().items():
        for tag in tags:
            if kind != "graph" and tag not in ("if", "else"):
                assert run.points(kind, tag, superseded=True).step.tolist() == STEPS, (kind, tag)
    assert "recorded 100 True" in ran.stdout
    assert run.damage == []


@pytest.mark.parametrize("view", ["itself", "flatten", "squeeze", "stop_gradient", "plus_zero"])
def test_views_are_recorded(ran: Ran, view: str) -> None:
    """The outputs of view operators, which MindSpore's own operators lose, with their shapes."""
    shape = {"flatten": (2, 16), "squeeze": (2, 4, 4)}.get(view, (2, 1, 4, 4))
    for step, array in zip(STEPS, tensors(ran.run(), f"view/{view}"), strict=True):
        assert (array.shape, array.dtype) == (shape, np.float32)
        np.testing.assert_array_equal(array.reshape(2, 1, 4, 4), given(step))


def test_views_are_recorded_as_histogram_and_scalar(ran: Ran) -> None:
    """A reshaped tensor's histogram, and a squeezed parameter as a number."""
    run = ran.run()
    for step in STEPS:
        assert_histogram(run, "view/reshape", step, given(step))
    assert scalars(run, "view/squeeze") == [0.0, -1.0, -2.0, -3.0]  # two rows, a rate of 0.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_recorded(ran: Ran, dtype: str) -> None:
    """As a tensor with its dtype and exact values, as a histogram and as a scalar."""
    run = ran.run()
    numpy_dtype = "float32" if dtype == "bfloat16" else dtype
    for step, tensor in zip(STEPS, run.tensors(f"dtype/{dtype}").values, strict=True):
        expected = given(step).astype(numpy_dtype)
        assert (tensor.dtype, tensor.array.dtype) == (dtype, expected.dtype)
        np.testing.assert_array_equal(tensor.array, expected)
        assert_histogram(run, f"dtype/{dtype}", step, expected)
    sums = [float(np.float32(15.5 * step).astype(numpy_dtype)) for step in STEPS]
    assert scalars(run, f"dtype/{dtype}") == sums


def test_constants_are_recorded(ran: Ran) -> None:
    """Tensors that are part of the graph itself."""
    run = ran.run()
    assert scalars(run, "constant") == [0.75] * 4
    for step, array in zip(STEPS, tensors(run, "constant"), strict=True):
        assert array.tolist() == [[1.0, 2.0], [3.0, 4.0]]
        assert_histogram(run, "constant", step, array)


def test_weights_are_recorded_as_they_were_before_the_update(ran: Ran) -> None:
    """A parameter's value is the one that the forward pass saw, though the optimiser changes it in the same step."""
    run, expected = ran.run(), ran.expected
    assert scalars(run, "weight") == expected["one"][:, 0].tolist()
    for step, array in zip(STEPS, tensors(run, "weight"), strict=True):
        np.testing.assert_array_equal(array, expected["weight"][step - 1])
        assert_histogram(run, "weight", step, expected["weight"][step - 1])
    assert expected["weight"][0].tolist() != expected["weight"][3].tolist()


def test_points_without_dimension_stay_so(ran: Ran) -> None:
    """A 0-d tensor has the shape (), its histogram one value, and the scalar its number."""
    run = ran.run()
    sums = [15.5 * step for step in STEPS]
    assert [(array.shape, array.item()) for array in tensors(run, "point")] == [((), number) for number in sums]
    assert scalars(run, "point") == sums
    for step in STEPS:
        assert_histogram(run, "point", step, np.array([15.5 * step], np.float32))


def test_pictures_are_recorded_in_both_layouts(ran: Ran) -> None:
    """Channels second or last, the pixels are those of the batch."""
    for tag in ("image/nchw", "image/nhwc"):
        series = ran.run().images(tag)
        for step in STEPS:
            expected = np.rint(given(step)[:, 0].transpose(1, 0, 2).reshape(4, 8) / 4 * 255)
            np.testing.assert_array_equal(image_codec.pixels(series[step])[:, :, 0], expected)


def test_operators_of_inner_cells_are_recorded(ran: Ran) -> None:
    """In a cell inside the network, under the name as given."""
    run = ran.run()
    assert scalars(run, "inner/max") == [step * 31 / 32 for step in STEPS]
    assert scalars(run, "准确率 %/a:b") == [15.5 * step for step in STEPS]
    for step in STEPS:
        assert_histogram(run, "inner/x", step, given(step))


def test_a_name_used_twice_keeps_the_later(ran: Ran) -> None:
    """Of two operators with one name the one that comes later in the network counts; one warning says so."""
    assert scalars(ran.run(), "twice") == [step * 31 / 32 for step in STEPS]
    assert len(ran.said("'twice' came more than once")) == 1


def test_branches_are_recorded_when_they_are_taken(ran: Ran, mode: str) -> None:
    """Where a branch was taken its value is that step's; a graph repeats the last one where it was not."""
    run = ran.run()
    mean = 15.5 / 32
    taken, other = run.scalars("if", superseded=True), run.tensors("else", superseded=True)
    if mode == "graph":
        assert (taken.step.tolist(), taken.value.tolist()) == ([1, 2, 3, 4], [mean, mean, 3 * mean, 3 * mean])
        assert other.step.tolist() == [2, 3, 4]
        assert [array.array.item() for array in other.values] == [2 * mean, 2 * mean, 4 * mean]
    else:
        assert (taken.step.tolist(), taken.value.tolist()) == ([1, 3], [mean, 3 * mean])
        assert (other.step.tolist(), [array.array.item() for array in other.values]) == ([2, 4], [2 * mean, 4 * mean])


def test_the_networks_graph_is_recorded_once(ran: Ran, mode: str) -> None:
    """`SummaryRecord(network=...)`: five records, one graph, with the first; in PyNative mode one line says why not."""
    run = ran.run()
    lines = ran.said("The network's graph is not recorded yet")
    if mode == "pynative":
        assert (run.graph, len(lines)) == (None, 1)
        return
    assert lines == []
    assert run.graph is not None
    (tag,) = run.tags()["graph"]
    assert run.graphs(tag, superseded=True).step.tolist() == [1]
    operators = {node.op_type for node in graph_codec.nodes(run.graph)}
    assert {"Flatten", "ScalarSummary", "SGD", "Switch"} <= operators


PLACES = {
    "used": [3.0, 1.0], "unused": [4.0, 2.0], "used/twice": [6.0, 2.0], "unused/view": [[4.0], [2.0]],
    "constant/view": [[1.0, 2.0]], "input": [0.0, 1.0, 2.0], "input/view": [[0.0], [1.0], [2.0]], "frozen": 5.0,
    "count": 2, "result": 7.0,
}  # fmt: skip
INSIDE = {
    "inside": {"inside/used": [3.0, 1.0], "inside/unused/view": [[4.0], [2.0]], "inside/result": 7.0},
    "loop": {"inside/used": [3.0, 1.0], "inside/result": 14.0, "inside/index": 1},
}


@pytest.mark.parametrize("kind", ["forward", "training"])
@pytest.mark.parametrize("place", ["plain", "branch", "inside", "loop"])
def test_no_place_in_a_graph_loses_a_value(script: Script, place: str, kind: str) -> None:
    """Parameters, constants, views and results beside and inside of branches and loops, with gradients and without."""
    run = script("places").run(f"{place}-{kind}")
    found: dict[str, Any] = {tag: run.tensors(tag)[1].tolist() for tag in run.tags()["tensor"]}
    found |= {tag: run.scalars(tag)[1] for tag in run.tags()["scalar"]}
    inside = {"inside/input": [0.0, 1.0, 2.0], **INSIDE[place]} if place in INSIDE else {}
    assert found == {**PLACES, **inside}


def test_a_compiled_function_is_waited_for(script: Script) -> None:
    """`ms.jit` in PyNative mode runs on behind Python: every step is there with its own value all the same."""
    run = script("compiled").run()
    steps = list(range(1, 31))
    assert run.scalars("step").step.tolist() == run.scalars("step").value.tolist() == steps
    assert run.tensors("step").step.tolist() == steps
    assert all((tensor.array == step).all() for step, _, tensor in run.tensors("step"))

"""The private names of MindSpore that we rely on: each is there, and one that is missing is told by name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest

from instrument import SummaryCollector, framework
from instrument.errors import FrameworkError
from tests.collect.fake import Loop


def test_every_private_name_is_there() -> None:
    """The installed MindSpore has all of them."""
    assert framework.probe() == []


@pytest.fixture
def without_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """MindSpore without the list in which it keeps what operators left."""
    remembered = (framework._home, framework._summary_caches)
    for one in remembered:
        one.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(framework._PRIVATE, "SUMMARY_TENSOR_CACHE", ("mindspore.no_such_module", "mindspore.ops"))
        yield
    for one in remembered:
        one.cache_clear()


@pytest.mark.usefixtures("without_cache")
def test_a_missing_name_is_told() -> None:
    """A name that a later MindSpore lacks is listed by `probe`, and raises with name and places where it is needed."""
    assert framework.probe() == ["SUMMARY_TENSOR_CACHE"]
    places = r"mindspore\.no_such_module or mindspore\.ops"
    with pytest.raises(FrameworkError, match=f"has no SUMMARY_TENSOR_CACHE in {places}, which instrument relies on"):
        framework.take_summaries()


@pytest.mark.usefixtures("without_cache")
def test_a_missing_name_stops_no_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A collector says once that it cannot record with such a MindSpore; every step is run."""
    reached: list[int] = []
    Loop(SummaryCollector(tmp_path, num_process=0), at_step=lambda step, _: reached.append(step)).train([1, 2])
    assert reached == [1, 2]
    assert [r.getMessage() for r in caplog.records if "SUMMARY_TENSOR_CACHE" in r.getMessage()] != []


_FIRST_OPERATION = """
import mindspore as ms, numpy as np
from instrument import SummaryRecord
ms.set_context(mode=ms.PYNATIVE_MODE)
print(ms.Tensor(np.arange(6, dtype=np.float32)).reshape((3, 2)).asnumpy().tolist())
"""


def test_the_first_operation_in_pynative_mode_works() -> None:
    """With NumPy 2, where MindSpore's own fails, one warning tells of it, in place of NumPy's traceback."""
    ran = subprocess.run(
        [sys.executable, "-c", _FIRST_OPERATION],
        env={**os.environ, "GLOG_v": "3"}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]\n"), ran.stderr
    warnings = [line for line in ran.stderr.splitlines() if "was built for NumPy 1" in line]
    assert len(warnings) == (np.lib.NumpyVersion(np.__version__) >= "2.0.0")
    assert "compiled using NumPy 1.x" not in ran.stderr
    for warning in warnings:
        assert np.__version__ in warning
        assert "pip install 'numpy<2'" in warning


def test_the_device_number_is_that_of_the_context() -> None:
    """Without a distributed run it is the device's number."""
    assert framework.device_number() == ms.get_context("device_id") == 0


def test_there_is_no_graph_in_pynative_mode() -> None:
    """A network that is not compiled has none, and what is no network neither."""
    network = ms.nn.Dense(2, 2)
    assert framework.model_of(network) is None
    assert framework.optimized_model_of(network) is None
    assert framework.model_of(object()) is None


def test_taking_summaries_empties_them() -> None:
    """What operators left is given once."""
    framework.take_summaries()
    ms.ops.ScalarSummary()("s", ms.Tensor(1.5))
    assert [(name, tensor.item()) for name, tensor in framework.take_summaries()] == [("s[:Scalar]", 1.5)]
    assert framework.take_summaries() == []

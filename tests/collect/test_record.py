"""SummaryRecord: steps and answers, modes and filters, several at once, and the files that it makes."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from instrument import SummaryRecord, read
from tests.collect.build import BOTH, Said, points

# ---------------------------------------------------------------- steps and answers


@BOTH
def test_flush_makes_it_readable_before_close(tmp_path: Path, processes: int) -> None:
    """After flush() another reader sees every value, though the recorder is still open."""
    with SummaryRecord(tmp_path, num_process=processes) as record:
        for step in range(1, 101):
            record.add_value("scalar", "loss", step / 4)
            assert record.record(step) is True
        record.flush()
        assert points(tmp_path, "loss") == [(step, step / 4) for step in range(1, 101)]
        record.flush(sync=True)
    assert points(tmp_path, "loss") == [(step, step / 4) for step in range(1, 101)]
    assert (record.stats.events, record.stats.pending, record.stats.lost, record.stats.errors) == (100, 0, 0, 0)


STEPS = [
    1, 0, 2**63 - 1, np.int64(7), np.int32(7), np.uint8(7), np.uint64(7), np.array(7), np.array([7], np.int32),
    ms.Tensor(7), ms.Tensor([7], ms.int32), ms.Parameter(ms.Tensor([7], ms.int32), name="global_step"),
]  # fmt: skip


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_any_integer_is_a_step(tmp_path: Path, step: Any) -> None:
    """Python's and NumPy's integers from 0 to 63 bits, and tensors and arrays that hold one."""
    with SummaryRecord(tmp_path, num_process=0) as record:
        record.add_value("scalar", "loss", 0.5)
        assert record.record(step)
    number = step.asnumpy() if isinstance(step, ms.Tensor) else step
    assert points(tmp_path, "loss") == [(int(np.asarray(number).reshape(-1)[0]), 0.5)]


@pytest.mark.parametrize(
    "step",
    [
        1.0, "1", None, True, np.float64(1), np.bool_(True), 1j, np.array([1, 2]), np.array([], np.int64), [1],
        np.array(1.0), ms.Tensor(1.0), ms.Tensor(True), ms.Tensor([1, 2]), np.array(True), np.array("1"),
    ],
)  # fmt: skip
def test_what_is_no_integer_is_no_step(tmp_path: Path, step: Any) -> None:
    """A float, a text, a flag: TypeError, and what was added waits for the next call."""
    with SummaryRecord(tmp_path, num_process=0) as record:
        record.add_value("scalar", "loss", 0.5)
        with pytest.raises(TypeError, match="expected an integer, or a tensor or array that holds one"):
            record.record(step)
        assert record.record(3)
    assert points(tmp_path, "loss") == [(3, 0.5)]


@pytest.mark.parametrize("step", [2**63, -1, -(2**63) - 1, np.uint64(2**63), np.int8(-1), ms.Tensor(-1)])
def test_a_step_out_of_range_is_refused(tmp_path: Path, step: Any) -> None:
    """Trainings count from 0 on, and the file's field has 64 bits."""
    with (
        SummaryRecord(tmp_path, num_process=0) as record,
        pytest.raises(ValueError, match=r"expected an integer from 0 to 2\*\*63 - 1"),
    ):
        record.record(step)


def test_a_step_that_the_optimizer_counts(tmp_path: Path) -> None:
    """`optimizer.global_step`, as MindSpore has it."""
    optimizer = ms.nn.SGD([ms.Parameter(ms.Tensor([1.0]), name="w")])
    with SummaryRecord(tmp_path, num_process=0) as record:
        record.add_value("scalar", "loss", 0.5)
        assert record.record(optimizer.global_step)
    assert points(tmp_path, "loss") == [(0, 0.5)]


def test_what_is_not_recorded_is_named_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Values that no `record` follows: one warning with file, kinds and tags, from any of the ways to close."""
    with SummaryRecord(tmp_path, num_process=0) as record:
        record.add_value("scalar", "loss", 0.5)
        record.record(1)
        record.add_value("scalar", "late", 0.5)
        record.add_value("tensor", "weights", np.zeros(20_000))
        record.add_value("text", "note", "hello")
    record.close()
    assert caplog.messages == [
        f"Not in {record.log_dir}: scalar 'late', tensor 'weights', text 'note', added after the last record(). Call "
        "record(step) before close()."
    ]
    assert read(tmp_path).tags()["scalar"] == ["loss"]


def test_a_long_list_of_what_is_not_recorded_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Five names and a count, also of a recorder that nobody closed."""
    record = SummaryRecord(tmp_path, num_process=0)
    for number in range(8):
        record.add_value("scalar", f"s{number}", 0.5)
    del record
    gc.collect()
    (message,) = caplog.messages
    assert "scalar 's0', scalar 's1', scalar 's2', scalar 's3', scalar 's4' and 3 more" in message


def test_a_filter_drops_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What `plugin_filter` refuses was asked to be dropped."""
    with SummaryRecord(tmp_path, num_process=0) as record:
        record.add_value("scalar", "loss", 0.5)
        assert record.record(1, plugin_filter=lambda kind: kind != "scalar")
    assert caplog.messages == []


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_recorder_is_not_copied(tmp_path: Path, way: Callable[[Any], Any]) -> None:
    """Open or closed: the error names the class and says what to do."""
    record = SummaryRecord(tmp_path, num_process=0)
    for _ in ("open", "closed"):
        with pytest.raises(
            TypeError, match=r"A SummaryRecord cannot be pickled or copied, .* Make one in each process"
        ):
            way(record)
        record.close()


def test_other_arguments_of_record_are_checked(tmp_path: Path) -> None:
    """A network that is none and a filter that cannot be called are refused."""
    with SummaryRecord(tmp_path, num_process=0) as record:
        with pytest.raises(TypeError, match=r"train_network is a str; expected a mindspore\.nn\.Cell or None"):
            record.record(1, train_network="net")
        with pytest.raises(TypeError, match="plugin_filter is a list; expected a function or None"):
            record.record(1, plugin_filter=["scalar"])
        with pytest.raises(ValueError, match="mode is 'test'; expected 'train' or 'eval'"):
            record.set_mode("test")


@BOTH
def test_the_wall_time_is_the_moment_of_the_call(tmp_path: Path, processes: int) -> None:
    """Each point has the time of its `record`, in seconds since the epoch, whatever the workers do meanwhile."""
    moments = []
    with SummaryRecord(tmp_path, num_process=processes) as record:
        for step in range(5):
            record.add_value("tensor", "w", np.zeros(100_000))
            before = time.time()
            record.record(step)
            moments.append((before, time.time()))
    for wall_time, (before, after) in zip(read(tmp_path).tensors("w").wall_time, moments, strict=True):
        assert before <= wall_time <= after


@BOTH
def test_nothing_added_is_nothing_written(tmp_path: Path, processes: int) -> None:
    """An empty record answers True and makes no event."""
    with SummaryRecord(tmp_path, num_process=processes) as record:
        assert record.record(1)
    assert record.stats.events == 0
    assert read(tmp_path).tags() == {}


@BOTH
def test_a_value_is_copied_when_it_is_added(tmp_path: Path, processes: int) -> None:
    """What becomes of an array, a tensor or a parameter after add_value is not recorded."""
    array = np.arange(4, dtype=np.float32)
    tensor = ms.Tensor(array.copy())
    parameter = ms.Parameter(ms.Tensor(array.copy()), name="w")
    picture = np.full((1, 1, 2, 2), 7, np.uint8)
    with SummaryRecord(tmp_path, num_process=processes) as record:
        for tag, value in (("array", array), ("tensor", tensor), ("parameter", parameter)):
            record.add_value("tensor", tag, value)
            record.add_value("histogram", tag, value)
        record.add_value("image", "picture", picture)
        for changed in (array, tensor.asnumpy(), parameter.asnumpy(), picture):
            changed[...] = 99
        record.record(1)
    run = read(tmp_path)
    for tag in ("array", "tensor", "parameter"):
        assert run.tensors(tag)[1].tolist() == [0, 1, 2, 3]
        assert run.histograms(tag)[1].max == 3
    from instrument.codec.image import pixels

    assert np.unique(pixels(run.images("picture")[1])).tolist() == [7]


@BOTH
def test_the_later_of_two_equal_names_wins(tmp_path: Path, said: Said, processes: int) -> None:
    """One tag twice before a record: the last value is kept, and one warning says so, however often it happens."""
    with SummaryRecord(tmp_path, num_process=processes) as record:
        for step in range(3):
            record.add_value("scalar", "loss", 1.0)
            record.add_value("tensor", "loss", np.zeros(3))  # another plugin's name is its own
            record.add_value("scalar", "loss", 2.0 + step)
            assert record.record(step)
    assert points(tmp_path, "loss") == [(0, 2.0), (1, 3.0), (2, 4.0)]
    assert said("twice") == ["The scalar 'loss' was added twice before a record(); the last one is kept."]


@BOTH
def test_plugin_filter_chooses_what_is_recorded(tmp_path: Path, processes: int) -> None:
    """Values of a plugin that the filter refuses are dropped, not kept for the next step."""
    with SummaryRecord(tmp_path, num_process=processes) as record:
        for step, wanted in enumerate(["scalar", "tensor", None]):
            record.add_value("scalar", "s", step)
            record.add_value("tensor", "t", np.array([step]))
            record.add_value("histogram", "h", np.array([step]))
            plugin_filter = None if wanted is None else wanted.__eq__
            assert record.record(step, plugin_filter=plugin_filter)
    run = read(tmp_path)
    assert run.scalars("s").step.tolist() == [0, 2]
    assert run.tensors("t").step.tolist() == [1, 2]
    assert run.histograms("h").step.tolist() == [2]


def test_modes_change_nothing_for_added_values(tmp_path: Path) -> None:
    """What is added by hand is recorded in `eval` too; the mode is about summary operators."""
    with SummaryRecord(tmp_path, num_process=0) as record:
        for step, mode in enumerate(["train", "eval", "train"]):
            record.set_mode(mode)
            record.add_value("scalar", mode, step)
            record.record(step)
    assert (points(tmp_path, "train"), points(tmp_path, "eval")) == ([(0, 0.0), (2, 2.0)], [(1, 1.0)])


# ---------------------------------------------------------------- several recorders, files


def test_twenty_recorders_within_a_second_keep_everything(tmp_path: Path) -> None:
    """Each recorder has a file of its own, whenever it was opened."""
    for number in range(20):
        with SummaryRecord(tmp_path, num_process=0) as record:
            record.add_value("scalar", "a", float(number))
            record.record(number)
    assert len(list(tmp_path.iterdir())) == 20
    assert points(tmp_path, "a") == [(number, float(number)) for number in range(20)]


@BOTH
def test_several_recorders_at_once_do_not_meet(tmp_path: Path, processes: int) -> None:
    """Three open on one directory and one on another: each value is in its own recorder's file, once."""
    directories = [tmp_path / "a", tmp_path / "a", tmp_path / "a", tmp_path / "b"]
    records = [SummaryRecord(directory, num_process=processes) for directory in directories]
    for step in range(10):
        for number, record in enumerate(records):
            record.add_value("scalar", f"from/{number}", step + number / 10)
            assert record.record(step)
    paths = [record.log_dir for record in records]
    for record in records:
        record.close()
    assert len(set(paths)) == 4
    for number, path in enumerate(paths):
        run = read(path)
        assert run.tags() == {"scalar": [f"from/{number}"]}
        assert run.scalars(f"from/{number}").value.tolist() == [step + number / 10 for step in range(10)]


def test_the_file_is_named_as_mindspores(tmp_path: Path) -> None:
    """`{prefix}.out.events.summary.{seconds}.{device}.{host}{suffix}`, and log_dir is its path."""
    with SummaryRecord(tmp_path, "first", "_last", num_process=0) as record:
        name = os.path.basename(record.log_dir)
    assert name.startswith("first.out.events.summary.")
    assert name.endswith("_last")
    seconds, device = name.split(".")[4:6]
    assert abs(int(seconds) - time.time()) < 60
    assert device == "0"
    assert os.listdir(tmp_path) == [name]


@BOTH
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_modes_of_files_follow_the_umask(tmp_path: Path, processes: int, umask: int) -> None:
    """Directories are 0777 and files 0666 less the umask, exported arrays too, and the umask is left as it was."""
    before = os.umask(umask)
    try:
        options = {"tensor_format": "npy"}
        with SummaryRecord(tmp_path / "new" / "run", num_process=processes, export_options=options) as record:
            record.add_value("tensor", "w", np.ones(3))
            record.add_value("custom_lineage_data", "mine", {"a": 1})
            record.record(1)
    finally:
        assert os.umask(before) == umask
    made = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert sum(path.is_file() for path in made) == 3
    for path in made:
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~umask, path


@BOTH
def test_tensors_are_exported_under_their_tags(tmp_path: Path, processes: int) -> None:
    """With `npy` each tensor is an array file of its own inside the directory, whatever its tag looks like."""
    tags = ["a b", "a:b", "a_b", "a/b", "/a/b", "../../up", "", "é", "x" * 300, "x" * 301, "CON", "%2F", "😀"]
    tags.remove("")
    with SummaryRecord(tmp_path, num_process=processes, export_options={"tensor_format": "npy"}) as record:
        for number, tag in enumerate(tags):
            record.add_value("tensor", tag, np.array([[number, 0.5]]))
            record.add_value("scalar", tag, number)
        record.record(7)
        seconds = os.path.basename(record.log_dir).split(".")[4]
    exported = list((tmp_path / f"export_{seconds}" / "tensor").iterdir())
    assert len(exported) == len(tags) == len(read(tmp_path).tags()["tensor"])
    assert all(path.name.endswith("_7.npy") for path in exported)
    assert sorted(np.load(path)[0].tolist() for path in exported) == [[n, 0.5] for n in range(len(tags))]
    assert np.load(tmp_path / f"export_{seconds}" / "tensor" / "a_b_7.npy").tolist() == [[2, 0.5]]
    assert sorted(path.name for path in tmp_path.iterdir()) == [os.path.basename(record.log_dir), f"export_{seconds}"]

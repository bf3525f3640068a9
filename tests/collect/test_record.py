"""SummaryRecord: steps, answers, modes, several at once, limits, and what happens when something cannot be written."""

from __future__ import annotations

import gc
import os
import shutil
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import psutil
import pytest

from instrument import SummaryRecord, read
from instrument.errors import RecordingError

Said = Callable[..., list[str]]
BOTH = pytest.mark.parametrize("processes", [0, 1], ids=["in this process", "in a worker"])


def points(directory: Path, tag: str) -> list[tuple[int, float]]:
    found = read(directory).scalars(tag)
    return list(zip(found.step.tolist(), found.value.tolist(), strict=True))


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


@pytest.mark.parametrize("step", [1, 0, -5, 2**63 - 1, -(2**63), np.int64(7), np.int32(7), np.uint8(7), np.uint64(7)])
def test_any_integer_is_a_step(tmp_path: Path, step: Any) -> None:
    """Python's and NumPy's integers up to 64 bits, zero and negative ones too."""
    with SummaryRecord(tmp_path, num_process=0) as record:
        record.add_value("scalar", "loss", 0.5)
        assert record.record(step)
    assert points(tmp_path, "loss") == [(int(step), 0.5)]


@pytest.mark.parametrize("step", [1.0, "1", None, True, np.float64(1), np.bool_(True), 1j, np.array([1])])
def test_what_is_no_integer_is_no_step(tmp_path: Path, step: Any) -> None:
    """A float, a text, a flag: TypeError, and what was added waits for the next call."""
    with SummaryRecord(tmp_path, num_process=0) as record:
        record.add_value("scalar", "loss", 0.5)
        with pytest.raises(TypeError, match="expected a Python or NumPy integer"):
            record.record(step)
        assert record.record(3)
    assert points(tmp_path, "loss") == [(3, 0.5)]


@pytest.mark.parametrize("step", [2**63, -(2**63) - 1, np.uint64(2**63)])
def test_a_step_beyond_64_bits_is_refused(tmp_path: Path, step: int) -> None:
    """The file's field has 64 bits."""
    with (
        SummaryRecord(tmp_path, num_process=0) as record,
        pytest.raises(ValueError, match="expected an integer of at most 64 bits"),
    ):
        record.record(step)


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


# ---------------------------------------------------------------- limits


@BOTH
def test_a_full_file_is_told_and_never_exceeded(tmp_path: Path, said: Said, processes: int) -> None:
    """record() answers True for what is in the file and False from the first event that does not fit; one warning."""
    limit = 20_000
    with SummaryRecord(tmp_path, num_process=processes, max_file_size=limit) as record:
        answers = []
        for step in range(40):
            record.add_value("tensor", "w", np.full(200, step, np.float32))
            answers.append(record.record(step))
    kept = read(tmp_path).tensors("w").step.tolist()
    assert answers == [step in kept for step in range(40)]
    assert kept == list(range(len(kept)))
    assert limit - 1000 < os.path.getsize(record.log_dir) <= limit
    assert len(said("is full")) == 1
    assert f"step {len(kept)}" in said("is full")[0]
    assert f"max_file_size is {limit}" in said("is full")[0]


@BOTH
def test_a_value_beyond_every_reader_is_refused_alone(tmp_path: Path, said: Said, processes: int) -> None:
    """Over 500 MB: one warning names tag, step and size, record() answers False, the step's other values are there."""
    huge = np.zeros(130_000_000, np.float32)  # never touched, so it takes no memory
    before = psutil.Process().memory_info().rss
    with SummaryRecord(tmp_path, num_process=processes) as record:
        for step in (4, 5):
            record.add_value("tensor", "huge", huge)
            record.add_value("scalar", "loss", 1.5)
            assert record.record(step) is False
        record.add_value("scalar", "loss", 2.5)
        assert record.record(6) is True
    assert psutil.Process().memory_info().rss - before < 100e6
    assert points(tmp_path, "loss") == [(4, 1.5), (5, 1.5), (6, 2.5)]
    assert read(tmp_path).tags() == {"scalar": ["loss"]}
    (message,) = said("huge")
    assert "The tensor 'huge' of step 4 takes 5200" in message
    assert "500000000" in message
    assert os.path.getsize(record.log_dir) < 1000


def test_a_smaller_value_may_replace_one_that_is_too_large(tmp_path: Path) -> None:
    """The last value of a name counts, for the limit too, in both orders."""
    huge = np.zeros(130_000_000, np.float32)
    with SummaryRecord(tmp_path, num_process=0) as record:
        record.add_value("tensor", "w", huge)
        record.add_value("tensor", "w", np.ones(2))
        assert record.record(1) is True
        record.add_value("tensor", "w", np.ones(2))
        record.add_value("tensor", "w", huge)
        assert record.record(2) is False
        record.add_value("tensor", "w", huge)
        assert record.record(3, plugin_filter="scalar".__eq__) is True
    assert read(tmp_path).tensors("w").step.tolist() == [1]


def test_with_raise_exception_a_value_too_large_raises_behind_the_others(tmp_path: Path) -> None:
    """The step's other values are written, then RecordingError names tag, step and size."""
    with SummaryRecord(tmp_path, num_process=0, raise_exception=True) as record:
        record.add_value("tensor", "huge", np.zeros(130_000_000, np.float32))
        record.add_value("scalar", "loss", 1.5)
        with pytest.raises(RecordingError, match="The tensor 'huge' of step 4 takes 5200"):
            record.record(4)
        record.add_value("scalar", "loss", 2.5)
        assert record.record(5)
    assert points(tmp_path, "loss") == [(4, 1.5), (5, 2.5)]


# ---------------------------------------------------------------- the end


@BOTH
def test_after_close_nothing_is_recorded_and_never_true(tmp_path: Path, said: Said, processes: int) -> None:
    """record() answers False with one warning, flush and a second close do nothing, the file stays as it was."""
    record = SummaryRecord(tmp_path, num_process=processes)
    record.add_value("scalar", "loss", 1.0)
    record.record(1)
    record.close()
    size = os.path.getsize(record.log_dir)
    for step in (2, 3):
        record.add_value("scalar", "loss", 2.0)
        assert record.record(step) is False
    record.flush()
    record.close()
    assert os.path.getsize(record.log_dir) == size
    assert points(tmp_path, "loss") == [(1, 1.0)]
    assert said("is closed") == [f"{record.log_dir} is closed: nothing more is recorded there."]
    assert record.stats.events == 1


@BOTH
def test_a_forked_child_records_nothing(tmp_path: Path, processes: int) -> None:
    """In a fork record() answers False and close() returns; the parent's file has each step once."""
    record = SummaryRecord(tmp_path, num_process=processes)
    record.add_value("scalar", "loss", 0.0)
    record.record(0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            record.add_value("scalar", "loss", 1.0)
            status = 0 if record.record(1) is False else 2
            record.flush()
            record.close()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    record.add_value("scalar", "loss", 2.0)
    assert record.record(2)
    record.close()
    assert points(tmp_path, "loss") == [(0, 0.0), (2, 2.0)]
    assert read(tmp_path).damage == []


@BOTH
def test_a_dropped_recorder_is_closed(tmp_path: Path, processes: int) -> None:
    """Without close, and without anybody holding it, what was recorded is in the file and no process is left."""
    before = {process.pid for process in psutil.Process().children()}
    record = SummaryRecord(tmp_path, num_process=processes)
    record.add_value("scalar", "loss", 1.0)
    record.record(1)
    del record
    gc.collect()
    assert points(tmp_path, "loss") == [(1, 1.0)]
    assert {process.pid for process in psutil.Process().children()} == before


def test_nothing_keeps_a_network_or_an_array_alive(tmp_path: Path) -> None:
    """A recorder holds its network until it is closed, and a recorded array not at all."""
    network = ms.nn.Dense(2, 2)
    array = np.zeros((100, 100))
    alive = [weakref.ref(network), weakref.ref(array)]
    with SummaryRecord(tmp_path, num_process=0, network=network) as record:
        record.add_value("tensor", "w", array)
        record.record(1)
        del array
        gc.collect()
        assert alive[1]() is None
    del network
    gc.collect()
    assert alive[0]() is None


@BOTH
def test_memory_stays_flat(tmp_path: Path, processes: int) -> None:
    """Thousands of scalars and hundreds of pictures leave the process as large as it was after the first tenth."""
    picture = np.zeros((1, 3, 64, 64), np.uint8)
    process = psutil.Process()
    with SummaryRecord(tmp_path, num_process=processes, queue_bytes=1 << 22) as record:
        for step in range(5000):
            record.add_value("scalar", "loss", step)
            if step % 10 == 0:
                record.add_value("image", "i", picture)
            assert record.record(step)
            if step == 500:
                gc.collect()
                before = process.memory_info().rss
        gc.collect()
        grown = process.memory_info().rss - before
    assert grown < 16e6
    assert record.stats.events == 5000


# ---------------------------------------------------------------- errors


@BOTH
def test_with_raise_exception_a_write_error_is_raised(tmp_path: Path, processes: int) -> None:
    """When the directory vanished before the first write, the error names step, file and reason."""
    directory = tmp_path / "run"
    record = SummaryRecord(directory, num_process=processes, raise_exception=True)
    shutil.rmtree(directory)
    record.add_value("scalar", "loss", 1.0)
    with pytest.raises(RecordingError, match=r"Step 7 is not recorded in .*run/events.*: No such file or directory"):
        record.record(7)
        record.flush()
    record.close()
    assert record.stats.lost == 1


@BOTH
def test_without_raise_exception_a_write_error_stops_nothing(tmp_path: Path, said: Said, processes: int) -> None:
    """One message names directory and step, the count is kept, and recording goes on when the directory is back."""
    directory = tmp_path / "run"
    record = SummaryRecord(directory, num_process=processes)
    shutil.rmtree(directory)
    for step in range(3):
        record.add_value("scalar", "loss", 1.0)
        record.record(step)
        record.flush()
    assert len(said("Events are missing")) == 1
    assert "the first at step 0" in said("Events are missing")[0]
    directory.mkdir()
    record.add_value("scalar", "loss", 4.0)
    assert record.record(3)
    record.close()
    assert (record.stats.lost, record.stats.events) == (3, 1)


def test_a_write_error_in_this_process_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without workers record() itself knows: False for what the disk refused, True again when it takes data."""
    record = SummaryRecord(tmp_path, num_process=0)
    full = True

    def pwritev(fd: int, pieces: list[Any], offset: int) -> int:
        if full:
            raise OSError(28, "No space left on device")
        return written(fd, pieces, offset)

    written = os.pwritev
    monkeypatch.setattr(os, "pwritev", pwritev)
    answers = []
    for step in range(4):
        full = step in (1, 2)
        record.add_value("scalar", "loss", float(step))
        answers.append(record.record(step))
    record.close()
    assert answers == [True, False, False, True]
    assert points(tmp_path, "loss") == [(0, 0.0), (3, 3.0)]
    assert record.stats.lost == 2

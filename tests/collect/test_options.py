"""Options of the recorders: each wrong one is refused at construction, and what is left out is MindSpore's default."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from instrument import Profiler, SummaryCollector, SummaryLandscape, SummaryRecord, read
from instrument.collect import options
from instrument.collect.checkpoints import LandscapeOptions
from instrument.collect.options import RecordOptions, Specified
from tests.collect.fake import Loop

#: Option, wrong value, and what the message says about it; of both classes.
BOTH: list[tuple[str, Any, str]] = [
    ("num_process", -1, "num_process is -1; expected an int of at least 0"),
    ("num_process", 1.5, "num_process is 1.5 of type float; expected an int"),
    ("num_process", True, "num_process is True of type bool; expected an int"),
    ("num_process", "2", "num_process is '2' of type str; expected an int"),
    ("max_file_size", 0, "max_file_size is 0; expected an int of at least 1"),
    ("max_file_size", -5, "max_file_size is -5; expected an int of at least 1"),
    ("max_file_size", 1e6, "max_file_size is 1000000.0 of type float; expected an int"),
    ("max_file_size", False, "max_file_size is False of type bool; expected an int"),
    ("export_options", "npy", "export_options is a str; expected a dictionary or None"),
    ("export_options", {"tensor_format": "csv"}, "tensor_format is 'csv'; expected 'npy' or None"),
    ("export_options", {"format": "npy"}, "unknown keys ['format']; expected 'tensor_format'"),
    ("export_options", {1: "npy"}, "unknown keys [1]; expected 'tensor_format'"),
    ("on_full", "wait", "on_full is 'wait'; expected 'block' (wait for room) or 'drop'"),
    ("on_full", None, "on_full is None; expected 'block'"),
]

RECORD: list[tuple[str, Any, str]] = [
    *BOTH,
    ("log_dir", 7, "log_dir is a int; expected the path of a directory"),
    ("log_dir", None, "log_dir is a NoneType; expected the path of a directory"),
    ("log_dir", b"bytes", "log_dir is a bytes; expected the path of a directory"),
    ("log_dir", "", "log_dir is ''; expected the path of a directory"),
    ("log_dir", "a\0b", r"log_dir is 'a\x00b'; expected the path of a directory"),
    ("file_prefix", "a/b", "file_prefix is 'a/b'; expected only letters, digits and the characters . _ -"),
    ("file_prefix", "ü", "file_prefix is 'ü'; expected only letters"),
    ("file_prefix", 3, "file_prefix is a int; expected str"),
    ("file_suffix", "x y", "file_suffix is 'x y'; expected only letters"),
    ("file_suffix", None, "file_suffix is a NoneType; expected str"),
    ("file_suffix", "_lineage", "file_suffix is '_lineage'; expected another end than '_lineage'"),
    ("file_suffix", "_my_lineage", "file_suffix is '_my_lineage'; expected another end than '_lineage'"),
    ("raise_exception", 1, "raise_exception is 1 of type int; expected True or False"),
    ("raise_exception", None, "raise_exception is None of type NoneType; expected True or False"),
    ("queue_bytes", 4096, "queue_bytes is 4096; expected an int of at least 1048576"),
    ("queue_bytes", 2.0**24, "queue_bytes is 16777216.0 of type float; expected an int"),
    ("network", "net", "network is a str; expected a mindspore.nn.Cell or None"),
]

_LANDSCAPE = {"intervals": [[1, 2, 3]]}
_UNKNOWN = "the unknown keys ['collect_everything']; expected some of ['collect_metric', 'collect_graph', "

COLLECTOR: list[tuple[str, Any, str]] = [
    *BOTH,
    ("summary_dir", 7, "summary_dir is a int; expected the path of a directory"),
    ("summary_dir", "", "summary_dir is ''; expected the path of a directory"),
    ("collect_freq", 0, "collect_freq is 0; expected an int of at least 1"),
    ("collect_freq", -1, "collect_freq is -1; expected an int of at least 1"),
    ("collect_freq", 1.5, "collect_freq is 1.5 of type float; expected an int"),
    ("collect_freq", True, "collect_freq is True of type bool; expected an int"),
    ("collect_freq", None, "collect_freq is None of type NoneType; expected an int"),
    ("collect_tensor_freq", 0, "collect_tensor_freq is 0; expected an int of at least 1"),
    ("collect_tensor_freq", 2.0, "collect_tensor_freq is 2.0 of type float; expected an int"),
    ("keep_default_action", 1, "keep_default_action is 1 of type int; expected True or False"),
    ("collect_specified_data", ["collect_metric"], "collect_specified_data is a list; expected a dictionary or None"),
    ("collect_specified_data", {"collect_everything": True}, _UNKNOWN),
    ("collect_specified_data", {"collect_metric": 1}, "collect_metric is 1 of type int; expected True or False"),
    ("collect_specified_data", {"collect_graph": None}, "collect_graph is None of type NoneType; expected True or"),
    ("collect_specified_data", {"collect_input_data": "no"}, "collect_input_data is 'no' of type str; expected True"),
    ("collect_specified_data", {"collect_train_lineage": 0}, "collect_train_lineage is 0 of type int; expected True"),
    ("collect_specified_data", {"collect_eval_lineage": 0}, "collect_eval_lineage is 0 of type int; expected True"),
    ("collect_specified_data", {"collect_dataset_graph": 0}, "collect_dataset_graph is 0 of type int; expected True"),
    ("collect_specified_data", {"histogram_regular": 3}, "histogram_regular is a int; expected a regular expression"),
    ("collect_specified_data", {"histogram_regular": "("}, "histogram_regular is '(', which is no regular expression"),
    ("custom_lineage_data", [("a", 1)], "custom_lineage_data is a list; expected a dictionary or None"),
    ("custom_lineage_data", {1: "a"}, "custom_lineage_data has the key 1 of type int; expected str"),
    ("custom_lineage_data", {"a": [1]}, "custom_lineage_data['a'] is a list; expected str, int or float"),
    ("custom_lineage_data", {"a": None}, "custom_lineage_data['a'] is a NoneType; expected str, int or float"),
]

#: Wrong values of `collect_landscape`.
LANDSCAPE: list[tuple[Any, str]] = [
    (True, "collect_landscape is a bool; expected a dictionary or None"),
    ([[1, 2, 3]], "collect_landscape is a list; expected a dictionary or None"),
    ({"unit": "step"}, "collect_landscape has no intervals; expected lists of steps or epochs"),
    ({**_LANDSCAPE, "colour": 1}, "collect_landscape has the unknown keys ['colour']; expected some of ["),
    ({"intervals": []}, "intervals is []; expected a list of lists of int"),
    ({"intervals": 5}, "intervals is 5; expected a list of lists of int"),
    ({"intervals": [1, 2, 3]}, "intervals holds 1; expected a list of positive int"),
    ({"intervals": [[1, 2.0, 3]]}, "intervals holds [1, 2.0, 3]; expected a list of positive int"),
    ({"intervals": [[0, 1, 2]]}, "intervals holds [0, 1, 2]; expected a list of positive int"),
    ({"intervals": [[True, 2, 3]]}, "intervals holds [True, 2, 3]; expected a list of positive int"),
    ({"intervals": [[1, 2]]}, "intervals holds [1, 2]; expected at least three numbers in ascending order"),
    ({"intervals": [[3, 2, 1]]}, "intervals holds [3, 2, 1]; expected at least three numbers in ascending order"),
    ({"intervals": [[1, 2, 2, 3]]}, "intervals holds [1, 2, 2, 3]; expected at least three numbers in ascending"),
    ({**_LANDSCAPE, "landscape_size": 2}, "landscape_size is 2; expected an int from 3 to 256"),
    ({**_LANDSCAPE, "landscape_size": 257}, "landscape_size is 257; expected an int from 3 to 256"),
    ({**_LANDSCAPE, "landscape_size": 40.0}, "landscape_size is 40.0; expected an int from 3 to 256"),
    ({**_LANDSCAPE, "unit": "batch"}, "unit is 'batch'; expected 'step' or 'epoch'"),
    ({**_LANDSCAPE, "num_samples": 0}, "num_samples is 0; expected an int of at least 1"),
    ({**_LANDSCAPE, "num_samples": "many"}, "num_samples is 'many'; expected an int of at least 1"),
    ({**_LANDSCAPE, "create_landscape": True}, "create_landscape is True; expected a dictionary with the keys"),
    ({**_LANDSCAPE, "create_landscape": {"test": True}}, "expected a dictionary with the keys train and result"),
    ({**_LANDSCAPE, "create_landscape": {"train": 1}}, "create_landscape is {'train': 1}; expected True or False"),
]


def refused(make: Callable[..., Any], message: str, **arguments: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        make(**arguments)
    assert message in str(error.value)


@pytest.mark.parametrize(("option", "value", "message"), RECORD)
def test_record_refuses(tmp_path: Path, option: str, value: Any, message: str) -> None:
    """Each wrong option of SummaryRecord is named with what was given and what is expected, and no file is made."""
    refused(SummaryRecord, message, **{"log_dir": tmp_path / "run", option: value})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("option", "value", "message"), COLLECTOR)
def test_collector_refuses(tmp_path: Path, option: str, value: Any, message: str) -> None:
    """Each wrong option of SummaryCollector is named with what was given and what is expected, and no file is made."""
    refused(SummaryCollector, message, **{"summary_dir": tmp_path / "run", option: value})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("value", "message"), LANDSCAPE)
def test_landscape_refuses(tmp_path: Path, value: Any, message: str) -> None:
    """Each wrong entry of collect_landscape is named with what was given and what is expected."""
    refused(SummaryCollector, message, summary_dir=tmp_path, collect_specified_data={"collect_landscape": value})


@pytest.mark.parametrize(
    "url",
    ["s3://bucket/run", "gs://b/r", "hdfs://host/r", "file:///tmp/r", "S3://b", "obs://b/r", Path("s3://bucket/r")],
)
@pytest.mark.parametrize("make", [SummaryRecord, SummaryCollector, Profiler, SummaryLandscape])
def test_a_url_is_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Any], Any], url: Any
) -> None:
    """Of any scheme, for whatever takes a directory: refused with what to do, and no folder is made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r" is the URL '.*'; expected the path of a directory: (take|give) "):
        make(url)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_looks_like_a_url_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ./ before it, and without where it is there already: what an earlier release has made can be read."""
    monkeypatch.chdir(tmp_path)
    with SummaryRecord("./s3:/bucket", num_process=0) as record:
        record.add_value("scalar", "loss", 0.5)
        record.record(1)
    assert read("s3:/bucket").scalars("loss").value.tolist() == [0.5]
    SummaryRecord("s3:/bucket", num_process=0).close()


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_collector_is_copied_before_a_training_only(tmp_path: Path, way: Callable[[Any], Any]) -> None:
    """While it records the error names the class and says what to do."""
    collector = SummaryCollector(tmp_path, num_process=0)

    def attempt(step: int, _: Any) -> None:
        with pytest.raises(TypeError, match="A SummaryCollector cannot be pickled or copied while it records, "):
            way(collector)

    way(collector)
    Loop(collector, at_step=attempt).train([1])
    way(collector)


def test_an_unknown_argument_is_refused(tmp_path: Path) -> None:
    """A misspelt name is no option, whatever MindSpore would make of it."""
    for make in (SummaryRecord, SummaryCollector):
        with pytest.raises(TypeError, match="collect_frequency"):
            make(tmp_path, collect_frequency=3)


@pytest.mark.parametrize("make", [SummaryRecord, SummaryCollector])
def test_a_directory_that_cannot_be_made_is_an_oserror(make: Callable[..., Any]) -> None:
    """Where no directory can be made, construction raises the system's error with the path and a way out."""
    with pytest.raises(OSError, match="choose another one") as error:
        make("/proc/instrument/run")
    assert error.value.filename == "/proc/instrument/run"
    assert type(error.value) is not OSError


@pytest.mark.parametrize("make", [SummaryRecord, SummaryCollector])
def test_a_file_in_the_way_is_an_oserror(make: Callable[..., Any], tmp_path: Path) -> None:
    """A file where the directory should be, or above it, raises the system's error."""
    (tmp_path / "run").write_text("")
    with pytest.raises(FileExistsError, match="choose another one"):
        make(tmp_path / "run")
    with pytest.raises(NotADirectoryError, match="choose another one"):
        make(tmp_path / "run" / "deeper")
    assert (tmp_path / "run").read_text() == ""


def test_a_directory_may_be_a_path_or_begin_with_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Path objects, `~` and relative paths name the same directory, which is made with its parents."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for given in (tmp_path / "a" / "b", "~/a/b", "a/b", os.path.join("a", "..", "a", "b")):
        with SummaryRecord(given, num_process=0) as record:
            assert os.path.dirname(record.log_dir) == str(tmp_path / "a" / "b")


@pytest.mark.parametrize("name", ["a,b", "a b", "中文 run", "a#b?c=1", "a%2Fb", "a&b", "-x", "a+b", "q'uote", "C:x"])
def test_any_directory_name_serves(name: str, tmp_path: Path) -> None:
    """Commas, blanks, other scripts and what means something in a URL are part of the name, in every process."""
    with SummaryRecord(tmp_path / name, num_process=1) as record:
        record.add_value("scalar", "a", 1.0)
        assert record.record(1)
    assert os.path.dirname(record.log_dir) == str(tmp_path / name)
    assert record.stats.events == 1


# ---------------------------------------------------------------- names, order and defaults


#: Ours where MindSpore's is another: 32 processes that nobody has cores for.
DIFFERENT = {"num_process": None}


@pytest.mark.parametrize(
    ("ours", "theirs"), [(SummaryRecord, ms.SummaryRecord), (SummaryCollector, ms.SummaryCollector)]
)
def test_names_order_and_defaults_are_mindspores(ours: type, theirs: type) -> None:
    """Every argument of MindSpore's class stands in ours at the same place, with the same name and default."""
    own = list(inspect.signature(ours).parameters.values())
    for position, other in enumerate(inspect.signature(theirs).parameters.values()):
        assert own[position].name == other.name
        assert own[position].kind == other.kind
        assert own[position].default == DIFFERENT.get(other.name, other.default)
    more = own[len(inspect.signature(theirs).parameters) :]
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in more)


@pytest.mark.parametrize("method", ["add_value", "record", "set_mode", "flush", "close"])
def test_methods_take_what_mindspores_take(method: str) -> None:
    """The recorder's methods have MindSpore's arguments in their order; ours may have more behind them."""
    own = list(inspect.signature(getattr(SummaryRecord, method)).parameters.values())
    theirs = list(inspect.signature(getattr(ms.SummaryRecord, method)).parameters.values())
    assert [(one.name, one.default) for one in own[: len(theirs)]] == [(one.name, one.default) for one in theirs]
    assert all(one.default is not inspect.Parameter.empty for one in own[len(theirs) :])


def test_defaults_collect_everything_but_a_landscape() -> None:
    """Without options all switches but the patch are on, and the first parameters get histograms."""
    specified = Specified.check(None, True)
    assert {name for name, is_on in specified.switches.items() if not is_on} == {"collect_patch"}
    assert len(specified.switches) == 8
    assert (specified.histograms, specified.histogram_pattern, specified.landscape) == (True, None, None)


def test_without_the_default_action_only_what_is_named_is_collected() -> None:
    """`keep_default_action=False` leaves what is specified and nothing else."""
    specified = Specified.check({"collect_metric": True, "histogram_regular": "conv.*"}, False)
    assert [name for name, on in specified.switches.items() if on] == ["collect_metric"]
    assert specified.histograms
    assert specified.histogram_pattern == re.compile("conv.*")
    nothing = Specified.check(None, False)
    assert (set(nothing.switches.values()), nothing.histograms) == ({False}, False)


@pytest.mark.parametrize("given", [None, {}])
def test_no_landscape_is_no_landscape(given: Any) -> None:
    """None and an empty dictionary ask for nothing, as in MindSpore."""
    assert Specified.check({"collect_landscape": given}, True).landscape is None


def test_landscape_defaults_are_mindspores() -> None:
    """Only the intervals must be given; size, unit, samples and what is drawn have MindSpore's defaults."""
    got = LandscapeOptions.from_dict({"intervals": [[1, 2, 3], (4, 6, 9)]})
    assert got.intervals == ((1, 2, 3), (4, 6, 9))
    assert (got.landscape_size, got.unit, got.num_samples) == (40, "step", 2048)
    assert got.create_landscape == {"train": True, "result": True}


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 1), (3, 1), (4, 2), (8, 4), (64, 4)])
def test_processes_default_to_half_of_the_cores(monkeypatch: pytest.MonkeyPatch, cores: int, expected: int) -> None:
    """At least one, at most four."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert options.default_processes() == expected


def test_checked_options_are_what_was_given() -> None:
    """Nothing is changed on the way but the path, which becomes absolute."""
    got = RecordOptions.check("/a/../b", "p", "_s", 3, 10**9, True, {"tensor_format": "npy"}, "drop", 1 << 22)
    assert got == RecordOptions("/b", "p", "_s", 3, 10**9, True, True, True, 1 << 22)
    plain = RecordOptions.check("/b", "events", "_MS", None, None, False, {"tensor_format": None}, "block", None)
    assert plain == RecordOptions(
        "/b", "events", "_MS", options.default_processes(), None, False, False, False, 24 << 20
    )


def test_numpy_numbers_are_custom_lineage(tmp_path: Path) -> None:
    """NumPy's numbers and text are taken for Python's."""
    SummaryCollector(tmp_path, custom_lineage_data={"a": np.float32(0.5), "b": np.int64(3), "c": np.str_("x"), "d": 1})

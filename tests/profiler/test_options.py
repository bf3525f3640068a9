"""Options: MindSpore's names and values, unknown ones refused by name, what has no effect said once."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import mindspore
import pytest

import instrument
from instrument.profiler import options
from instrument.profiler.options import AicoreMetrics, ExportType, Metadata, Options, ProfilerActivity, ProfilerLevel
from instrument.profiler.profiler import Profiler
from tests.profiler.fake import FakeBackend

LEGACY = [
    "output_path", "start_profile", "activities", "profile_memory", "data_process", "schedule", "on_trace_ready",
    "profiler_level", "aic_metrics", "with_stack", "parallel_strategy", "l2_cache", "hbm_ddr", "pcie", "sys_io",
    "sys_interconnection", "host_sys", "sync_enable", "data_simplification", "record_shapes", "export_type", "mstx",
    "mstx_domain_include", "mstx_domain_exclude",
]  # fmt: skip


def test_the_legacy_names_are_there() -> None:
    """All arguments of MindSpore's Profiler, by keyword behind the first one."""
    parameters = inspect.signature(Profiler).parameters
    assert set(LEGACY) <= set(parameters)
    kinds = {parameters[name].kind for name in LEGACY[1:]}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("name", ["ProfilerLevel", "ProfilerActivity", "AicoreMetrics", "ExportType"])
def test_the_enumerations_are_mindspores(name: str) -> None:
    """Members and values are the same."""
    ours, theirs = getattr(instrument, name), getattr(mindspore.profiler, name)
    assert {one.name: one.value for one in ours} == {one.name: one.value for one in theirs}


@pytest.mark.parametrize(
    ("given", "near"),
    [("profile_memry", "profile_memory"), ("output", "output_path"), ("activity", "activities"), ("pci", "pcie")],
)
def test_unknown_names_are_refused_with_the_nearest(given: str, near: str) -> None:
    with pytest.raises(TypeError, match=f"unknown argument '{given}'; did you mean '{near}'"):
        Profiler(start_profile=False, **{given: True})


def test_positional_arguments_end_behind_the_path() -> None:
    with pytest.raises(TypeError, match="positional"):
        Profiler("./x", False)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"profile_memory": 1}, TypeError, "profile_memory is 1 of type int; expected True or False"),
        ({"data_process": "yes"}, TypeError, "data_process is 'yes'"),
        ({"profiler_level": "Level9"}, ValueError, "profiler_level is 'Level9'; expected one of"),
        ({"activities": [3]}, ValueError, "activities is 3"),
        ({"activities": 3}, TypeError, "activities is 3; expected a list"),
        ({"aic_metrics": 9}, ValueError, "aic_metrics is 9"),
        ({"host_sys": "cpu"}, TypeError, "host_sys is 'cpu'; expected a list"),
        ({"mstx_domain_include": [1]}, TypeError, "mstx_domain_include is"),
        ({"schedule": 3}, TypeError, "schedule is 3"),
        ({"on_trace_ready": "x"}, TypeError, "on_trace_ready is 'x'"),
        ({"output_path": 3}, TypeError, "output_path is a int"),
        ({"output_path": ""}, ValueError, "output_path is ''"),
        ({"keep_raw": None}, TypeError, "keep_raw is None"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Profiler(**{"start_profile": False, **given})


@pytest.mark.parametrize(
    ("value", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError), ("9", TypeError)]
)
def test_wrong_limits_are_refused(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_steps"):
        Options.check({"max_steps": value})


def test_mindspores_members_are_taken() -> None:
    """So are values, single members and the numbers of old versions."""
    theirs = mindspore.profiler
    found = Options.check(
        {
            "activities": [theirs.ProfilerActivity.CPU, theirs.ProfilerActivity.CPU],
            "profiler_level": theirs.ProfilerLevel.Level1,
            "aic_metrics": theirs.AicoreMetrics.AiCoreNone,
            "export_type": "db",
            "host_sys": [theirs.HostSystem.CPU] if hasattr(theirs, "HostSystem") else ["cpu"],
        }
    )
    assert found.activities == (ProfilerActivity.CPU,)
    assert found.profiler_level is ProfilerLevel.Level1
    assert found.aic_metrics is AicoreMetrics.AiCoreNone
    assert found.export_type == (ExportType.Db,)
    assert found.host_sys == ("cpu",)
    assert Options.check({"aic_metrics": 2}).aic_metrics is AicoreMetrics.Memory


def test_outdated_names_are_known(device: FakeBackend, tmp_path: Path, said: Any) -> None:
    """What MindSpore gave up is taken and said; the old name of the metrics is that of the new one."""
    Profiler(tmp_path, start_profile=False, op_time=True, timeline_limit=500, aicore_metrics=1)
    assert said("op_time, timeline_limit") == [
        "Profiler: op_time, timeline_limit: MindSpore gave this up; it has no effect."
    ]


def test_what_has_no_effect_is_said_once(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set of options once, and only options that somebody changed."""
    monkeypatch.setattr(options, "_said", set())
    given = Options.check({"pcie": True, "l2_cache": True, "profile_memory": True, "mstx": False, "keep_raw": True})
    for _ in range(2):
        options.warn_of_no_effect(given, "CPU", {"profile_memory"})
    assert said() == ["Profiler: l2_cache, pcie: no effect on CPU."]
    options.warn_of_no_effect(Options.check({"activities": ["NPU"]}), "CPU", ())
    assert said("lack ProfilerActivity.CPU") != []


def test_metadata_are_text_or_json() -> None:
    metadata = Metadata()
    metadata.add("a", "1")
    metadata.add_json("b", '{"c": [1, 2]}')
    assert metadata.values == {"a": "1", "b": {"c": [1, 2]}}
    with pytest.raises(TypeError, match="value is 1 of type int; expected str"):
        metadata.add("a", 1)
    with pytest.raises(ValueError, match="value of 'd' is no JSON"):
        metadata.add_json("d", "{")
    assert "d" not in metadata.values

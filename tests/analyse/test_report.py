"""The report: what a person reads, on a terminal and in a notebook; and the files beside the trace."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from instrument.analyse import layout, report
from instrument.analyse.layout import Screen
from instrument.analyse.profile import Profile, profile
from instrument.errors import InstrumentError
from tests.analyse.build import T0
from tests.analyse.files import cpu_window, directory_of, event_file


@pytest.fixture
def found(tmp_path: Path) -> Profile:
    return profile(event_file(tmp_path / "run", [cpu_window(7, metadata={"note": "mine"})]))


def test_the_report_says_what_the_window_is(found: Profile) -> None:
    """Path, device, versions, when, and the user's own words."""
    lines = str(found).splitlines()
    assert lines[0] == f"Profile of {found.path}"
    assert lines[1] == "  window 0, device 0, cpu"
    assert lines[2] == "  graph mode on there; instrument 1, mindspore 2.10.0"
    assert lines[3] == "  opened 2026-05-05 16:53:20 UTC, open for 0.000 s"
    assert lines[4] == "  note: mine"


def test_the_report_has_the_step_and_the_operators(found: Profile) -> None:
    """With figures in units that read well."""
    text = str(found)
    lines = [line.split() for line in text.splitlines()]
    assert ["part", "mean_us", "share_percent", "median_us", "min_us", "max_us", "mean_without_first_us"] in lines
    assert ["fp_and_bp", "40.000", "50.000", "40.000", "40.000", "40.000", "40.000"] in lines
    assert ["MatMul", "2", "6", "120.000", "20.000", "20.000", "20.000", "66.667", "2.000"] in lines
    assert "Peaks of memory\n  n/a: the trace has no samples of memory (profile_memory)." in text
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_the_report_says_what_the_parts_of_a_step_are(found: Profile) -> None:
    """Under the table of the parts, on a terminal and in a notebook; what is saved has figures only."""
    notes = ["iteration_interval is from the start", "fp_and_bp is from there to the end of the last gradient operator"]
    parts = str(found).split("\n\n")[1].splitlines()
    assert parts[0] == "The parts of 3 steps"
    assert [line.strip()[: len(note)] for line, note in zip(parts[-2:], notes, strict=True)] == notes
    assert all(found._repr_html_().count(note) == 1 for note in notes)
    assert not any("is from" in note for note in found.step_parts.notes)


def test_what_is_not_known_takes_no_column(found: Profile) -> None:
    """A column without any value and a side that is the only one are not shown; a note says what is missing."""
    for text in (str(found), found._repr_html_()):
        assert "all_reduce is n/a: the trace has no communication." in text
        assert "all_reduce_ns" not in text
        assert "Computing and communication" not in text
        assert "side" not in text


def test_a_window_that_was_cut_short_says_so(tmp_path: Path) -> None:
    """With the reason, and with how many windows there are."""
    windows = [cpu_window(), cpu_window(complete=False, reason="ValueError: no", start_ns=T0 + 10**9)]
    text = str(profile(event_file(tmp_path, windows)))
    assert "  window 1 (there are 0, 1), device 0, cpu" in text
    assert "  NOT COMPLETE: ValueError: no" in text


def test_several_devices_are_compared(tmp_path: Path) -> None:
    """First of all."""
    for rank in (0, 1):
        event_file(tmp_path, [cpu_window(rank=rank)], rank)
    text = str(profile(tmp_path, device=1))
    assert "device 1 (there are 0, 1: --device), cpu" in text
    assert text.index("Ranks\n") < text.index("Steps\n")


def test_names_out_of_the_trace_cannot_disturb(tmp_path: Path) -> None:
    """No control characters on the terminal, no markup in the notebook."""
    names = ("Default/<script>alert(1)</script>-op0", "Default/network/\x1b[31m-op1", "Default/a\u202eb-op2")
    made = profile(directory_of(tmp_path, cpu_window(names=names, reason="<b>\x07", complete=False)))
    page = made._repr_html_()
    assert "<script" not in page
    assert "<b>" not in page
    assert not {"\x1b", "\x07", "\u202e"} & set(page + str(made))


def test_what_is_not_counted_is_named(tmp_path: Path) -> None:
    """At the end of the report, with how many."""
    files = cpu_window()
    name = "FRAMEWORK/cpu_op_execute_timestamp_0.txt"
    files[name] += f"Default/network/Lost-op9;HostCpuOps;0,0.1,0 0,0.2,0 {T0 + 5},-0.3,0 \n".encode()
    text = str(profile(directory_of(tmp_path, files)))
    tail = text[text.index("Not in the tables") :]
    assert "executions without a start (a time of zero), left out of sums       2" in tail
    assert "executions with a negative duration, left out of sums" in tail


# ---------------------------------------------------------------- on disk


def test_saved_files(found: Profile, tmp_path: Path) -> None:
    """The report, all of it as JSON, each table as CSV, and nothing half-written."""
    written = [Path(path) for path in found.save(tmp_path / "out")]
    assert all(path.is_file() for path in written)
    folder = tmp_path / "out" / "profile_0_0"
    assert (folder / "report.txt").read_text() == f"{found}\n"
    told = json.loads((folder / "profile.json").read_text())
    assert told["tables"]["steps"]["rows"][0]["total_ns"] == 80_000
    assert told["tables"]["memory"]["notes"] == ["n/a: the trace has no samples of memory (profile_memory)."]
    rows = list(csv.DictReader((folder / "steps.csv").open(newline="")))
    assert [row["step"] for row in rows] == ["7", "8", "9"]
    assert not (folder / "memory.csv").exists()
    assert [path for path in (tmp_path / "out").rglob("*") if path.name.endswith(".part")] == []
    found.save(tmp_path / "out", pretty=True)
    assert len((folder / "profile.json").read_text().splitlines()) > 50


def test_a_directory_opens_again_after_it_was_saved_to(tmp_path: Path) -> None:
    """What an analysis wrote is no source of the next one."""
    directory = directory_of(tmp_path / "raw", cpu_window())
    first = profile(directory)
    first.save(directory)
    again = profile(directory)
    assert str(again) == str(first)
    assert len(again.windows) == 1


def test_windows_of_several_profilers_keep_their_folders(tmp_path: Path) -> None:
    """Each file of a directory counts its windows from 0; what is saved of one does not replace that of another."""
    paths = [event_file(tmp_path, [cpu_window(10 * n, start_ns=T0 + n * 10**9)], seconds=1000 + n) for n in (1, 2, 3)]
    for path in (*paths, paths[1], tmp_path):  # the last is the third one, opened by the directory
        profile(path).save(tmp_path)
    folders = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("profile_"))
    assert folders == ["profile_0_0", "profile_1_0", "profile_2_0"]
    firsts = [json.loads((tmp_path / name / "profile.json").read_text())["metadata"]["first_step"] for name in folders]
    assert firsts == [10, 20, 30]


def test_a_window_without_a_time_is_known_by_its_place(tmp_path: Path) -> None:
    """As one of MindSpore's own directories; a folder that says nothing is not written over."""
    window = {name: data for name, data in cpu_window().items() if not name.startswith("instrument.")}
    (tmp_path / "out" / "profile_0_0").mkdir(parents=True)
    for name in ("a", "b", "a"):
        profile(directory_of(tmp_path / name, window)).save(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "profile_0_0", "profile_1_0", "profile_2_0", "profiler",
    ]  # fmt: skip
    assert list((tmp_path / "out" / "profile_0_0").iterdir()) == []


def test_nothing_is_left_where_writing_fails(found: Profile, tmp_path: Path) -> None:
    """The error is the system's."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        found.save(tmp_path / "file")


def test_many_ranks_are_named_on_a_short_line(tmp_path: Path) -> None:
    """As ranges: the numbers of 20 ranks in a row are two numbers."""
    for rank in range(20):
        event_file(tmp_path, [cpu_window(rank=rank)], rank)
    lines = str(profile(tmp_path, device=3)).splitlines()
    assert lines[1] == "  window 0, device 3 (there are 0 to 19: --device), cpu"
    with pytest.raises(InstrumentError, match="it has 0 to 19"):
        profile(tmp_path, device=64)


@pytest.mark.parametrize("width", [60, 80, 100, 140, 240])
def test_the_report_fits_a_screen(tmp_path: Path, width: int) -> None:
    """Tables, notes and advice; only a word that is longer than a line is wider."""
    event_file(tmp_path, [cpu_window()])
    lines = report.text(profile(tmp_path), Screen(width), has_whole_names=True).splitlines()
    assert [line for line in lines if layout.columns(line) > width and len(line.split()) > 1] == []

"""`instrument profile`."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from instrument.analyse.profile import profile
from instrument.show.cli import main
from tests.analyse.build import T0
from tests.analyse.files import INTERVAL_NS, NAMES, STEP_NS, cpu_window, directory_of, event_file

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT.parent / "shared" / "traces" / "samples"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"the samples are not there: {SAMPLES}")
SECTIONS = ("--steps", "--ops", "--data", "--memory", "--advice")
ODD = 'Default/network/a\x1b[2J,"算子"\r-op0'


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with two windows of steps 1 to 3 and 11 to 13; the second one is incomplete."""
    later = cpu_window(11, start_ns=T0 + 10**9, complete=False, reason="the training ended", requested=[11, 20])
    event_file(tmp_path / "run", [cpu_window(1), later])
    return tmp_path / "run"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A raw directory whose operator has an odd name."""
    return directory_of(tmp_path / "job", cpu_window(1, names=(ODD, *NAMES[1:])))


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["profile", *map(str, words)]) == 0
    return capsys.readouterr().out


def shown_json(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    return json.loads(shown(capsys, *words, "--json"), parse_constant=refuse)


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """The exit code, and what stderr says; nothing else was printed."""
    code = main(["profile", *map(str, words)])
    out, error = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in error
    return code, error


# ---------------------------------------------------------------- what is shown


def test_the_report(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an option: the report of the last window, as `print(profile(path))` gives it."""
    assert shown(capsys, run) == f"{profile(run)}\n"
    assert "NOT COMPLETE: the training ended" in shown(capsys, run)


def test_a_window_by_its_number(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the start or from the end."""
    for words, first in ((("--window", "0"), 1), (("--window", "-2"), 1), (("--window=1",), 11), ((), 11)):
        rows = shown_json(capsys, run, "--steps", *words)["tables"]["steps"]["rows"]
        assert [row["step"] for row in rows] == [first, first + 1, first + 2]


def test_steps(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The parts on average, and every step."""
    report = shown_json(capsys, run, "--steps")
    assert (report["path"], report["window"], report["device"], report["target"]) == (str(run), 1, 0, "cpu")
    assert set(report) == {"run", "path", "window", "device", "target", "tables"}
    assert set(report["tables"]) == {"steps", "step_parts"}
    for row in report["tables"]["steps"]["rows"]:
        assert (row["total_ns"], row["iteration_interval_ns"]) == (STEP_NS, INTERVAL_NS)
    text = shown(capsys, run, "--steps")
    assert text.startswith("The parts of 3 steps\n")
    assert "\n\nSteps\n" in text


def test_operators(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By side, type and name; `--rows` limits the tables and says what is missing."""
    report = shown_json(capsys, run, "--ops")
    assert [row["full_name"] for row in report["tables"]["operators"]["rows"]] == list(NAMES)
    assert {row["count"] for row in report["tables"]["operators"]["rows"]} == {3}
    text = shown(capsys, run, "--ops", "--rows", 1)
    assert NAMES[2] not in text
    assert "... and 2 more rows" in text
    assert NAMES[2] in shown(capsys, run, "--ops", "--rows", 0)


def test_several_options_follow_each_other(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one output, each once, the report not among them."""
    out = shown(capsys, run, *SECTIONS)
    places = [out.index(part) for part in ("Steps\n", "Operators\n", "Stages of the data", "Memory over", "incomplete")]
    assert places == sorted(places)
    assert "Profile of" not in out


def test_advice(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sentences, or that there is none; topics with them as JSON and CSV."""
    text = (
        "The window is incomplete: steps 11 to 20 were asked for, it holds 11 to 13 (the training ended). Means over "
        "its steps may be of too few of them."
    )
    assert shown(capsys, run, "--advice") == f"{text}\n"
    assert shown_json(capsys, run, "--advice")["tables"]["advice"]["rows"] == [{"topic": "window", "text": text}]
    assert "No advice" in shown(capsys, run, "--advice", "--window", 0)


def test_compare(run: Path, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other profile is the base; what only one of them has is listed."""
    out = shown(capsys, job, "--compare", run)
    assert out.startswith(f"base: {run} (cpu 0, 3 steps), new: {job} (cpu 0, 3 steps)\n")
    report = shown_json(capsys, job, "--compare", run)
    assert [row["difference_ns"] for row in report["tables"]["compared_operators"]["rows"]] == [0.0, 0.0]
    single = [(row["where"], row["full_name"]) for row in report["tables"]["unmatched_operators"]["rows"]]
    assert sorted(single) == [("base only", NAMES[0]), ("new only", ODD)]
    assert [row["step"] for row in report["tables"]["compared_steps"]["rows"]] == [1, 2, 3, 11, 12, 13]
    assert (report["path"], report["base"]["path"], report["base"]["window"]) == (str(job), str(run), 1)
    rows = csv.DictReader(io.StringIO(shown(capsys, job, "--compare", run, "--csv")))
    assert [row["full_name"] for row in rows if row["table"] == "compared_operators"] == [*NAMES[1:]]


def test_a_device_is_that_of_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--device` holds for the base, too, which must have it; two different devices are told."""
    for name in ("base", "two"):
        for rank in (0, 1):
            event_file(tmp_path / name, [cpu_window(1, rank=rank)], rank)
    event_file(tmp_path / "one", [cpu_window(1)])
    words = ["profile", str(tmp_path / "two"), "--json", "--compare"]
    for device in (0, 1):
        assert main([*words, str(tmp_path / "base"), "--device", str(device)]) == 0
        out, err = capsys.readouterr()
        report = json.loads(out)
        assert (report["device"], report["base"]["device"], err) == (device, device, "")
    assert main([*words, str(tmp_path / "one"), "--device", "1"]) == 1
    assert f"{tmp_path / 'one'} has no device 1 in this window; it has 0" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "one"), "--device", "1", "--base-device", "0"]) == 0
    assert capsys.readouterr().err == (
        f"instrument: cpu 1 of {tmp_path / 'two'} is compared with cpu 0 of {tmp_path / 'one'}: differences may be "
        "those of the devices\n"
    )
    assert main(["profile", str(tmp_path / "two"), "--base-device", "0"]) == 2
    assert "--base-device is for --compare" in capsys.readouterr().err


def test_csv(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All tables of the options, all their rows, with odd names escaped; the first column names the table."""
    out = shown(capsys, job, "--ops", "--csv", "--rows", 1)
    found = list(csv.DictReader(io.StringIO(out, newline="")))
    assert list(dict.fromkeys(row["table"] for row in found)) == ["sides", "operator_types", "operators"]
    rows = [row for row in found if row["table"] == "operators"]
    odd = 'Default/network/a\\x1b[2J,"算子"\\r-op0'
    assert sorted(row["full_name"] for row in rows) == sorted((odd, *NAMES[1:]))
    assert {row["total_ns"] for row in rows} == {"60000"}
    steps = csv.DictReader(io.StringIO(shown(capsys, job, "--steps", "--csv")))
    assert [row["total_ns"] for row in steps if row["table"] == "steps"] == [str(STEP_NS)] * 3
    everything = {row["table"] for row in csv.DictReader(io.StringIO(shown(capsys, job, "--csv")))}
    assert {"steps", "operators", "windows"} <= everything


def test_all_as_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without another option: every table of the profile."""
    report = shown_json(capsys, run)
    assert report["window"] == 1
    assert {"steps", "operators", "problems", "windows"} <= set(report["tables"])


def test_of_several_runs_it_says_which_one_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the report, and on stderr beside anything else; so of the base of a comparison."""
    for number, name in enumerate(("b", "a", "c")):
        start_ns = T0 + number * 10**9
        event_file(tmp_path / name, [cpu_window(1, start_ns=start_ns), cpu_window(5, start_ns=start_ns + 10**8)])
    told = "out of 'c'; other windows are out of 'a', 'b': --window chooses"
    assert shown(capsys, tmp_path).splitlines()[2] == f"  {told}"
    err = f"instrument: window 5 of {tmp_path}, {told}\n"
    for words in ([tmp_path, "--ops"], [tmp_path, "--json"], [tmp_path / "a", "--compare", tmp_path]):
        assert main(["profile", *map(str, words)]) == 0
        assert capsys.readouterr().err == err
    assert shown(capsys, tmp_path, "--window", 0).splitlines()[2].startswith("  out of 'b'; other windows ")
    assert main(["profile", str(tmp_path / "a"), "--ops"]) == 0
    assert capsys.readouterr().err == ""


def test_ranks_in_folders_of_their_own_are_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was chosen among them."""
    for rank in (0, 1):
        event_file(tmp_path / f"rank_{rank}", [cpu_window(1, rank=rank)], rank)
    assert main(["profile", str(tmp_path), "--ops"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_timeline(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """The file is written, and the output says how much is in it; with `--json` as JSON."""
    path = tmp_path / name
    events = 3 * (3 + 1 + 4)  # operators, marks, and steps with three parts
    assert shown(capsys, run, "--timeline", path) == f"{path}: {events} events; https://ui.perfetto.dev opens it\n"
    data = path.read_bytes()
    trace = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == events
    report = shown_json(capsys, run, "--timeline", path)
    assert report["timeline"] == {"file": str(path), "events": events, "left_out": {}}


def test_names_cannot_disturb_a_terminal(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are escapes wherever a name is printed; letters stay."""
    for words in ((), *((section,) for section in SECTIONS), ("--compare", job)):
        out = shown(capsys, job, *words)
        assert "\x1b" not in out
        assert "\r" not in out
    assert 'a\\x1b[2J,"算子"\\r-op0' in shown(capsys, job, "--ops")


# ---------------------------------------------------------------- what is refused


def test_usage_errors(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and what would be right."""
    for path in ("t.txt", "json", "t.json.zip"):
        code, error = refused(capsys, run, "--timeline", path)
        assert code == 2
        assert error.startswith("usage: instrument profile ")
        assert error.splitlines()[-1] == (
            f"instrument profile: error: --timeline is {path}; "
            "its name says how it is written, and ends in .json or .json.gz"
        )
    for words in (
        (),
        (run, "--rows", -1),
        (run, "--window", "x"),
        (run, "--json", "--csv", "--ops"),
        (run, "--unknown"),
    ):
        assert refused(capsys, *words)[0] == 2


def test_nothing_to_open(tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and a sentence that names the path, for each kind of input that is none."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "events.out.events.profile.1.0.host_MS").write_bytes(b"")
    (tmp_path / "cpu_op_execute_timestamp_0.txt").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("no profile")
    for name in ("absent", "empty", "events.out.events.profile.1.0.host_MS", "notes.txt"):
        code, error = refused(capsys, tmp_path / name)
        assert code == 1
        assert error.startswith("instrument: ")
        assert str(tmp_path / name) in error
        assert error.count("\n") == 1
    for words in (("--window", 7), ("--device", 3), ("--compare", tmp_path / "absent")):
        assert refused(capsys, run, *words)[0] == 1
    code, error = refused(capsys, run, "--timeline", tmp_path / "absent" / "t.json")
    assert code == 1
    assert error == f"instrument: {tmp_path / 'absent' / 't.json'}: No such file or directory\n"


def test_a_window_that_was_never_closed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its empty directory is all that a training leaves that is killed there, and all there is while it goes on."""
    (tmp_path / "profile_raw_20260101_000000_0_0").mkdir()
    code, error = refused(capsys, tmp_path)
    assert code == 1
    assert "profile_raw_20260101_000000_0_0 is of a window that was not closed: the training is still in it" in error


@pytest.mark.parametrize("words", [("--steps",), ("--ops", "--csv"), ("--memory", "--data")])
def test_an_incomplete_window_is_told(run: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    """On stderr where the output does not say so itself; a complete one is passed over in silence."""
    assert main(["profile", str(run), *words]) == 0
    assert capsys.readouterr().err == "instrument: window 1 is not complete: the training ended\n"
    assert main(["profile", str(run), "--window", "0", *words]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("seed", range(3))
def test_damage_is_a_result_or_one_clear_error(tmp_path: Path, run: Path, seed: int) -> None:
    """An event file that is cut or overwritten anywhere gives what is left, or exit code 1 and one sentence (D-42)."""
    whole = next(run.iterdir()).read_bytes()
    path = tmp_path / "events.out.events.profile.1.0.host_MS"
    codes = set()
    for cut in range(seed * 37, len(whole), 997):
        damaged = whole[:cut] if seed else whole[:cut] + b"\xff" * 9 + whole[cut + 9 :]
        path.write_bytes(damaged)
        codes.add(main(["profile", str(path), "--json"]))
    assert codes <= {0, 1}
    assert 0 in codes


def test_losses_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A part of the profile without the report says on stderr that something is missing, and where to see what."""
    files = cpu_window(1)
    files["instrument.marks.0.bin"] = files["instrument.marks.0.bin"][:-7]
    job = directory_of(tmp_path / "cut", files)
    assert main(["profile", str(job), "--steps"]) == 0
    assert capsys.readouterr().err == "instrument: 1 kind of losses in this trace, which the report lists\n"
    assert main(["profile", str(job)]) == 0
    out, error = capsys.readouterr()
    assert error == ""
    assert "bytes of a mark that is cut off" in out


# ---------------------------------------------------------------- a process of its own


def call(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "instrument", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_as_a_command(run: Path) -> None:
    """A terminal that knows ASCII only shows escapes; help names the verb."""
    result = call("profile", run, "--advice", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("The window is incomplete")
    assert "profile    explain where the time of a training goes" in call("--help").stdout


def test_help_is_light() -> None:
    """Help of the program loads neither NumPy nor the analysis."""
    code = (
        "import sys; from instrument.show.cli import main; main(['--help']); "
        "print(sorted({'numpy', 'instrument.analyse.profile'} & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert result.stdout.splitlines()[-1] == "[]"


# ---------------------------------------------------------------- real files


@needs_samples
@pytest.mark.parametrize(
    "name",
    [
        "cpu_ms210_lenet", "minddata_ms210_map_batch", "minddata_ascend2021_small", "minddata_pipeline_fixture_a",
        "ascend2020_widedeep", "synth_gpu_sync", "synth_gpu_async", "torch_npu2023_kernel_details",
        "ascend2023_prof_alexnet_device0",
    ],
)  # fmt: skip
def test_samples(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every form of output of every sample."""
    assert f"Profile of {SAMPLES / name}" in shown(capsys, SAMPLES / name)
    assert shown(capsys, SAMPLES / name, *SECTIONS)
    assert shown_json(capsys, SAMPLES / name, *SECTIONS, "--timeline", tmp_path / "t.json")["timeline"]["events"] >= 0
    for section in SECTIONS:
        assert shown(capsys, SAMPLES / name, section, "--csv")


@needs_samples
def test_a_slow_map_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline whose map is slow: the verdict and the stage."""
    assert "MapOp (1) holds the others back" in shown(capsys, SAMPLES / "minddata_ms210_map_batch", "--data")

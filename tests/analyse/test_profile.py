"""Opening whatever holds a profile, and what a `Profile` answers."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import instrument
from instrument.analyse import save
from instrument.analyse.profile import Profile, profile
from instrument.codec import event
from instrument.errors import InstrumentError, NoSuchRun
from instrument.trace.events import Capture
from tests.analyse.build import T0, capture, executions, operator, profile_of
from tests.analyse.files import NAMES, STEP_NS, cpu_window, directory_of, event_file
from tests.runs.build import SECONDS, framed

SAMPLES = Path(__file__).resolve().parents[2].parent / "shared" / "traces" / "samples"


def step_numbers(found: Profile) -> list[int]:
    return [int(step) for step in found.steps["step"]]


# ---------------------------------------------------------------- sources


def test_an_event_file_has_its_windows(tmp_path: Path) -> None:
    """The last one by default; each by its number, from the end too."""
    path = event_file(tmp_path, [cpu_window(1), cpu_window(11, start_ns=T0 + 10**9, complete=False, reason="it ended")])
    assert step_numbers(profile(path)) == [11, 12, 13]
    assert step_numbers(profile(path, 0)) == step_numbers(profile(path, -2)) == [1, 2, 3]
    table = profile(path).windows
    assert table["window"].tolist() == [0, 1]
    assert table["is_shown"].tolist() == [False, True]
    assert table["first_step"].tolist() == [1, 11]
    assert table["complete"].tolist() == ["yes", "no"]
    assert table["reason"].tolist() == ["", "it ended"]
    for wrong in (2, -3):
        with pytest.raises(InstrumentError, match=f"has no window {wrong}; it has 0, 1"):
            profile(path, wrong)


def test_a_run_has_its_profile(tmp_path: Path) -> None:
    """`read(path).profile()` and `instrument.profile(path)`, of a directory, of a file, with or without a summary."""
    path = event_file(tmp_path, [cpu_window(1), cpu_window(11, start_ns=T0 + 10**9)])
    for place in (tmp_path, path):
        run = instrument.read(place)
        assert (run.files, run.traces, run.tags()) == ([], [str(path)], {})
        assert step_numbers(run.profile()) == step_numbers(instrument.profile(place)) == [11, 12, 13]
        assert step_numbers(run.profile(window=0, device=0)) == [1, 2, 3]
        assert "profile       1  see .profile()" in repr(run)
    assert isinstance(run.profile(), instrument.Profile)
    (tmp_path / f"events.out.events.summary.{SECONDS}.0.host_MS").write_bytes(framed(event.encode_version(1.0)))
    assert len(instrument.read(tmp_path).files) == len(instrument.read(tmp_path).traces) == 1
    path.unlink()
    with pytest.raises(NoSuchRun, match="holds nothing of a profile"):
        instrument.read(tmp_path).profile()


def test_a_run_has_files_of_several_ranks(tmp_path: Path) -> None:
    """Windows of the same number belong together; the tables are of one device, `devices` compares them."""
    event_file(tmp_path, [cpu_window(1, rank=0), cpu_window(5, rank=0)], 0)
    event_file(tmp_path, [cpu_window(1, 3, 1), cpu_window(5, 4, 1)], 1)
    found = profile(tmp_path)
    assert (found.number, found.device) == (1, 0)
    assert found.devices["device"].tolist() == [0, 1]
    assert found.devices["steps"].tolist() == [3, 4]
    assert found.devices["mean_step_ns"].tolist() == [STEP_NS] * 2
    other = profile(tmp_path, device=1)
    assert (other.device, step_numbers(other)) == (1, [5, 6, 7, 8])
    with pytest.raises(InstrumentError, match="has no device 7 in this window; it has 0, 1"):
        profile(tmp_path, device=7)


def test_windows_of_several_files_are_in_the_order_of_their_opening(tmp_path: Path) -> None:
    """Of a script that was started again, and of several profilers in one process."""
    second = 10**9
    event_file(tmp_path, [cpu_window(1, start_ns=T0), cpu_window(5, start_ns=T0 + 2 * second)], seconds=SECONDS)
    event_file(
        tmp_path, [cpu_window(3, start_ns=T0 + second), cpu_window(7, start_ns=T0 + 3 * second)], seconds=SECONDS + 5
    )
    assert [step_numbers(profile(tmp_path, number))[0] for number in range(4)] == [1, 3, 5, 7]


def test_ranks_may_have_folders_of_their_own(tmp_path: Path) -> None:
    """Below the directory of the run."""
    for rank in (0, 1):
        event_file(tmp_path / f"rank_{rank}", [cpu_window(1, rank=rank)], rank)
    assert profile(tmp_path).devices["device"].tolist() == [0, 1]


def test_a_directory_of_raw_files(tmp_path: Path) -> None:
    """One window; or several in folders of their own, in the order in which they were opened."""
    files = cpu_window(4)
    assert step_numbers(profile(directory_of(tmp_path / "one", files))) == [4, 5, 6]
    directory_of(tmp_path / "many" / "a", cpu_window(9, start_ns=T0 + 10**9))
    directory_of(tmp_path / "many" / "b", files)
    assert step_numbers(profile(tmp_path / "many")) == [9, 10, 11]
    assert step_numbers(profile(tmp_path / "many", 0)) == [4, 5, 6]


def test_one_raw_file_is_enough(tmp_path: Path) -> None:
    """Operators without steps."""
    directory_of(tmp_path, cpu_window())
    found = profile(tmp_path / "FRAMEWORK" / "cpu_op_execute_timestamp_0.txt")
    assert found.operators["count"].tolist() == [3, 3, 3]


def test_nothing_to_open_is_one_clear_error(tmp_path: Path) -> None:
    """Missing, empty, of another kind."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "nothing").write_bytes(b"")
    (tmp_path / "events.out.events.profile.1.0.host_MS").write_bytes(b"")
    for name in ("missing", "empty", "text.txt", "nothing", "events.out.events.profile.1.0.host_MS"):
        with pytest.raises(NoSuchRun, match=name):
            profile(tmp_path / name)


def test_damaged_input_gives_a_result_or_an_error_of_ours(tmp_path: Path) -> None:
    """Cut at any place, or with bytes changed: what is there is shown, and what is not is named."""
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    whole = event_file(tmp_path / "whole", [cpu_window()]).read_bytes()
    path = tmp_path / "events.out.events.profile.1.0.host_MS"
    results, errors = 0, []
    for _ in range(60):
        data = bytearray(whole[: draw.randrange(len(whole))])
        if data and draw.random() < 0.5:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        try:
            found = profile(path)
        except InstrumentError as error:
            errors.append(str(error))
            continue
        results += 1
        assert str(found)
    assert results
    assert all(str(path) in error for error in errors)


def test_raw_files_with_nothing_readable_are_an_error(tmp_path: Path) -> None:
    """The message has the reasons."""
    (tmp_path / "cpu_op_execute_timestamp_0.txt").write_bytes(b"\xff\xfe garbage\n")
    with pytest.raises(InstrumentError, match=r"holds nothing that can be read: cpu_op_execute_timestamp_0\.txt: "):
        profile(tmp_path)


# ---------------------------------------------------------------- answers


@pytest.fixture
def three(tmp_path: Path) -> Profile:
    return profile(event_file(tmp_path / "run", [cpu_window(7, metadata={"note": "mine"})]))


def test_the_parts_of_a_window(three: Profile) -> None:
    """Interval, forward and backward, tail; counts are operators by steps."""
    for name, value in (("iteration_interval_ns", 10_000), ("fp_and_bp_ns", 40_000), ("tail_ns", 30_000)):
        assert three.steps[name].tolist() == [value] * 3
    assert three.operators["count"].tolist() == [3] * 3
    assert three.operators["per_step"].tolist() == [1.0] * 3
    assert three.operators["input_shapes"].tolist() == ["[2, 3];[3, 4]"] * 3
    assert three.sides["total_ns"].tolist() == [9 * 20_000]
    assert three.metadata["metadata"] == {"note": "mine"}
    assert len(three.problems) == 0


def test_of_steps_is_a_profile_of_those_steps(three: Profile) -> None:
    """Sums are of their operators; steps that are not there are an error."""
    part = three.of_steps(8, 20)
    assert step_numbers(part) == [8, 9]
    assert part.operators["count"].tolist() == [2] * 3
    assert part.metadata["steps_shown"] == [8, 20]
    assert step_numbers(three) == [7, 8, 9]
    with pytest.raises(InstrumentError, match="no steps 1 to 2; it has 7 to 9"):
        three.of_steps(1, 2)


def test_op_analyse_and_key_averages(three: Profile) -> None:
    """As MindSpore and torch have them."""
    found = json.loads(three.op_analyse("MatMul", device_id=0))
    assert [one["op_occurrences"] for one in found["MatMul"]] == [6]
    assert (
        NAMES[2] in three.key_averages().table(sort_by="cpu_time_total").replace("...", "")
        or len(three.key_averages()) == 3
    )
    with pytest.raises(InstrumentError, match="no device 3"):
        three.op_analyse("MatMul", device_id=3)


def test_the_timeline_is_written(three: Profile, tmp_path: Path) -> None:
    """Each operator, and each step."""
    three.export_chrome_trace(tmp_path / "timeline.json")
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    names = [one["name"] for one in events if one["ph"] == "X"]
    assert "ProfilerStep#8" in names
    assert sum("MatMul" in name for name in names) >= 6


@pytest.mark.parametrize(
    "given",
    [
        capture(),
        capture(target="ascend", clock="device"),
        capture((operator("Mul"),), executions((T0, 1, 0))),
        capture((operator("Mul"),), executions((0, 0, 0), (-5, 3, 0), (T0, -9, 0))),
        capture(metadata={"start_ns": T0, "stop_ns": T0 + 5, "value": float("nan")}),
    ],
)
def test_whatever_is_missing_is_not_available(given: Capture, tmp_path: Path) -> None:
    """Each table answers, nothing is NaN, and each empty one has its reason."""
    found = profile_of(given)
    text = json.dumps(save.to_json(found), allow_nan=False)
    assert "NaN" not in text
    for name in ("idle", "overlap", "memory", "pipeline", "batches"):
        table = getattr(found, name)
        assert len(table) or any("n/a" in note for note in table.notes) or len(given.executions)
    assert str(found).startswith("Profile of here")
    assert found.save(tmp_path)


def test_a_window_of_many_executions_takes_little_time() -> None:
    """A million of them, in tables."""
    count = 1_000_000
    names = tuple(operator(f"Default/network/Mul-op{place}") for place in range(500))
    rows = executions((T0, 5, 0))
    rows = np.repeat(rows, count)
    rows["start_ns"] += np.arange(count) * 10
    rows["operator"] = np.arange(count) % 500
    found = profile_of(capture(names, rows, target="ascend"))
    assert int(found.operators["count"].sum()) == count
    assert int(found.idle_streams["idle_ns"][0]) == 5 * (count - 1)
    assert len(found.idle) == 1000


@pytest.mark.skipif(not SAMPLES.exists(), reason=f"the samples are not there: {SAMPLES}")
@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.iterdir()) if SAMPLES.exists() else [])
def test_every_sample_opens(name: str, tmp_path: Path) -> None:
    """All tables, the report and what is saved."""
    found = profile(SAMPLES / name)
    assert str(found)
    written = found.save(tmp_path)
    assert json.loads(next(Path(path).read_text() for path in written if path.endswith("profile.json")))["tables"]
    for table in save.tables(found):
        assert "nan" not in table.to_csv().lower()
    known = found.steps
    parts = [known[part] for part in ("iteration_interval_ns", "fp_and_bp_ns", "tail_ns")]
    difference = sum(parts[1:], parts[0]) - known["total_ns"]
    assert not np.ma.compressed(np.ma.asarray(difference)).any()

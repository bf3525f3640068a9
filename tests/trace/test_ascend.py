"""The raw files of one device together."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

import numpy as np
import pytest

from instrument.trace import ascend
from instrument.trace.events import AI_CORE, AI_CPU, EXECUTION, FETCH, MISSING, Capture, Operator
from instrument.trace.kinds import ascend_kind_of
from tests.trace import encoders_ascend as encode

Files = dict[str, bytes]
HWTS_2020, HWTS = "hwts.log.data.45.dev.profiler_default_tag.1", "hwts.data.1"
TASKS_2020, TASKS = "Framework.host.vm.task_desc_info.1", "Framework.task_desc_info.1"
GRAPH_2020 = "Framework.host.vm.graph_desc_info.1"
STEPS_2020, STEPS = "training_trace.46.dev.profiler_default_tag.1", "ts_track.data.1"


def job_2020() -> Files:
    """Two steps of a network of two operators, one on a stream that the framework numbers otherwise; all at 100 MHz."""
    marks = [
        mark
        for start in (1000, 2000)
        for mark in [(0, 5, start), (1, 5, start + 100), (3, 6, start + 200), (4, 6, start + 300),
                     (2, 5, start + 500), (255, 5, start + 1000)]
    ]  # fmt: skip
    tasks = [
        event
        for start in (1000, 2000)
        for event in [(0, 519, 30_001, start + 110), (0, 7, 4, start + 120), (1, 519, 30_001, start + 150),
                      (1, 7, 4, start + 190), (0, 519, 30_002, start + 600), (1, 519, 30_002, start + 650)]
    ]  # fmt: skip
    return {
        HWTS_2020: encode.hwts(tasks),
        STEPS_2020: encode.training_trace(marks),
        TASKS_2020: encode.task_lines(("Default/Conv2D-op1", 1, 30_001, 3), ("Default/Mul-op2", 1, 4, 7)),
        GRAPH_2020: encode.graph_line("Default/Conv2D-op1", "Conv", [("input", "ND", 40, "8,3")]),
        "Framework.host.vm.point.1": b"1 Default/A-op1\n2 Default/B-op2\n3 Default/AllReduce-op9\n",
        "DATA_PREPROCESS.dev.AICPU.1": encode.messages(encode.node("GetNext", 21, 24), encode.thread(12, 1900, 2900)),
        "DATA_PREPROCESS.dev.TDT.1": encode.messages(
            *(f"[{9 + n}] Enqueue data to dp, source:s, index:{n}, size:{n - 1}" for n in (1, 2))
        ),
        "DATA_PREPROCESS.dev.AICPUMI.1": encode.messages("Node:GetNext, Run start:20, Run end:22, queue size:0"),
    }  # fmt: skip


def lost(capture: Capture) -> dict[tuple[str, str], int]:
    return {(problem.file, problem.what): problem.amount for problem in capture.problems}


def executions(capture: Capture) -> list[tuple[object, ...]]:
    return [
        (capture.operators[row["operator"]].name, *row.tolist()[:2], *row.tolist()[3:]) for row in capture.executions
    ]


def test_a_job_is_put_together() -> None:
    """Tasks have names, times one axis, and executions steps."""
    found = ascend.capture(job_2020(), 1)
    assert (found.device, found.target, found.clock) == (1, "ascend", "device")
    assert executions(found) == [
        ("Conv2D-op1", 11_100, 400, 519, 30_001, 1),
        ("Mul-op2", 11_200, 700, 7, 4, 1),
        ("GetNext", 21_000, 3000, 12, MISSING, 2),
        ("Conv2D-op1", 21_100, 400, 519, 30_001, 2),
        ("Mul-op2", 21_200, 700, 7, 4, 2),
    ]
    assert found.operators == (
        Operator("Default/Conv2D-op1", "Conv2D-op1", "Conv", AI_CORE, "8,3"),
        Operator("Default/Mul-op2", "Mul-op2", "Mul", AI_CORE),
        Operator("GetNext", "GetNext", "GetNext", AI_CPU),
    )
    assert found.steps.tolist() == [(1, 11_000, 11_000, 15_000, 20_000, 0), (2, 20_000, 21_000, 25_000, 30_000, 0)]
    assert found.names == ("Default/AllReduce-op9",)
    assert found.reduces.tolist() == [(1, 6, 0, 12_000, 1000), (2, 6, 0, 22_000, 1000)]
    assert found.batches[["time_ns", "batch", "queue_size", "pipeline_ns"]].tolist() == [
        (10_000, 1, 0, MISSING), (11_000, 2, 1, MISSING),
    ]  # fmt: skip
    assert found.fetches.tolist() == [(2, MISSING, 20_000, 2000, 0)]
    assert found.metadata == {
        "fp_start": "Default/A-op1", "bp_end": "Default/B-op2", "steps_from": "training_trace",
    }  # fmt: skip
    assert lost(found) == {
        (HWTS_2020, "executions of tasks that are no operator's"): 2,
        (GRAPH_2020, "operators that it does not describe: their shapes are not known"): 1,
    }


def test_logs_of_clocks_give_the_wall_clock() -> None:
    """All times move by the same amount."""
    realtime_ns = 1_692_340_024_324_979_000
    logs = {
        "host_start.log": encode.host_start(realtime_ns, 777),
        "dev_start.log.1": encode.dev_start(5, 1000),
        "info.json.1": encode.info_json("50"),
    }
    before, found = ascend.capture(job_2020(), 1), ascend.capture(job_2020() | logs, 1)
    assert found.clock == "epoch"
    for name in ("executions", "batches", "fetches"):
        assert len(getattr(found, name)) == len(getattr(before, name))
    assert (found.steps["end_ns"] - realtime_ns).tolist() == [20_000, 40_000]
    assert found.steps["start_ns"][1] == found.steps["end_ns"][0]
    assert found.metadata["device_info"] == {"hwts_khz": 50_000, "ai_core_num": 32, "rank_id": 3}


def pieces_of(data: memoryview) -> Iterator[memoryview]:
    yield from (data[start : start + 50] for start in range(0, len(data), 50))


def test_pieces_and_folders_do_not_matter() -> None:
    """A file may come in pieces, which may be made one by one; names may have folders and a job behind them."""
    whole = ascend.capture(job_2020(), 1)
    pieces = {f"data/{name}.JOBABC": pieces_of(memoryview(data)) for name, data in job_2020().items()}
    found = ascend.capture(pieces, 1)
    for field in dataclasses.fields(Capture):
        if field.name != "problems":
            assert np.array_equal(getattr(whole, field.name), getattr(found, field.name)), field.name


def test_other_devices_are_passed_over() -> None:
    """Their files are not this device's."""
    found = ascend.capture(job_2020(), 2)
    assert (len(found.executions), len(found.steps), found.problems) == (0, 0, ())


def test_a_second_file_of_a_kind_is_told() -> None:
    """Only the first one is read."""
    found = ascend.capture({HWTS_2020: b"", HWTS: encode.hwts([(0, 1, 1, 1)])}, 1)
    assert lost(found) == {(HWTS, "files of a kind that was read from another one"): 1}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hwts.data.0", ("hwts", 0)),
        ("JOBX/data/hwts.log.data.45.dev.profiler_default_tag.12", ("hwts", 12)),
        ("DATA_PREPROCESS.dev.AICPUMI.1", ("aicpumi", 1)),
        ("Framework.host.vm_task_desc_info.7.JOBA", ("task_desc", 7)),
        ("host_start.log.1", ("host_start", 1)),
        ("host_start.log", ("host_start", None)),
        ("minddata_aicpu_1.txt", ("fetch_table", 1)),
        ("dev_start.log", None),
        ("hwts.data.x", None),
        ("hwts.data.0.done", None),
        ("minddata_aicpu_x.txt", None),
        ("kernel_details.csv", None),
        ("", None),
    ],
)
def test_names_are_recognised(name: str, expected: tuple[str, int | None] | None) -> None:
    """By what they have been over the years."""
    assert ascend_kind_of(name) == expected


def test_wrapped_ids_find_their_operator() -> None:
    """Since 2021 ids of 16 bits stand for larger ones; an id that only comes again is taken as it stands."""
    pairs = [(1, 65_530, 10), (1, 3, 20), (1, 65_530, 30), (1, 4, 40)]
    data = encode.hwts([(kind, stream, task, at + kind) for stream, task, at in pairs for kind in (0, 1)])
    tasks = [("A", 65_530), ("B", 65_539), ("C", 4)]
    names = b"".join(encode.task_record(name, "T", 1, task) for name, task in tasks)
    found = ascend.capture({HWTS: data, TASKS: names}, 1)
    assert executions(found) == [
        ("A", 100, 10, 1, 65_530, MISSING),
        ("B", 200, 10, 1, 65_539, MISSING),
        ("A", 300, 10, 1, 65_530, MISSING),
        ("C", 400, 10, 1, 4, MISSING),
    ]


def test_tasks_without_any_names_are_their_own() -> None:
    """Where no file names operators, each task of each stream is one."""
    data = encode.hwts([(0, 5, 1, 10), (1, 5, 1, 20), (0, 6, 1, 30), (1, 6, 1, 40), (0, 5, 1, 50), (1, 5, 1, 60)])
    found = ascend.capture({HWTS: data}, 1)
    assert [row[0] for row in executions(found)] == ["task 1"] * 3
    assert [operator.full_name for operator in found.operators] == ["stream 5 task 1", "stream 6 task 1"]
    assert found.executions["operator"].tolist() == [0, 1, 0]


def test_a_task_of_the_ai_cpu_counts_once() -> None:
    """Where its own file tells it, the device's log of it is left out; a task without a name is its own operator."""
    names = encode.task_record("Default/GetNext-op1", "GetNext", 3, 12, side=1)
    log = encode.hwts([(0, 3, 12, 10), (1, 3, 12, 90)])
    own = encode.aicpu_record(3, 12, 20, 70) + encode.aicpu_record(3, 99, 30, 80)
    found = ascend.capture({HWTS: log, TASKS: names, "DATA_PREPROCESS.AICPU.1": own}, 1)
    assert executions(found) == [
        ("GetNext-op1", 200, 500, 3, 12, MISSING), ("task 99", 300, 500, 3, 99, MISSING),
    ]  # fmt: skip
    assert {operator.side for operator in found.operators} == {AI_CPU}
    assert lost(found) == {(HWTS, "executions that the AI CPU's own file has as well"): 1}


def test_a_file_of_the_ai_cpu_that_covers_less_replaces_only_what_it_has() -> None:
    """Executions are the same by stream, task and time; the others stay those of the device's log."""
    names = encode.task_record("Default/Gen-op1", "Gen", 3, 12, side=1)
    log = encode.hwts([(kind, 3, 12, 1000 * place + 100 * kind) for place in range(1, 11) for kind in (0, 1)])
    own = b"".join(encode.aicpu_record(3, 12, 1000 * place + 5, 1000 * place + 95) for place in (2, 7))
    found = ascend.capture({HWTS: log, TASKS: names, "DATA_PREPROCESS.AICPU.1": own}, 1)
    durations = [duration for _, _, duration, *_ in executions(found)]
    assert durations == [900 if place in (2, 7) else 1000 for place in range(1, 11)]
    assert lost(found) == {(HWTS, "executions that the AI CPU's own file has as well"): 2}


def test_which_executions_are_the_same_is_what_a_plain_search_finds(rng: np.random.Generator) -> None:
    """Random runs of random tasks on both sides."""
    for _ in range(30):
        edges = np.sort(rng.choice(2000, 40, replace=False)).reshape(-1, 2) + 10
        tasks = rng.integers(1, 4, len(edges))
        runs = [(int(task), int(start), int(end)) for task, (start, end) in zip(tasks, edges, strict=True)]
        others = [(int(rng.integers(1, 4)), start, start + int(rng.integers(1, 30))) for _, start, _ in runs[::3]]
        log = encode.hwts([(kind, 3, task, times[kind]) for task, *times in runs for kind in (0, 1)])
        own = b"".join(encode.aicpu_record(3, task, start, end) for task, start, end in others)
        found = ascend.capture({HWTS: log, "DATA_PREPROCESS.AICPU.1": own}, 1)
        latest = [max((one for one in others if one[0] == task and one[1] <= end), key=lambda one: one[1], default=None)
                  for task, _, end in runs]  # fmt: skip
        same = sum(one is not None and one[2] >= start for one, (_, start, _) in zip(latest, runs, strict=True))
        assert len(found.executions) == len(runs) - same + len(others)
        assert lost(found).get((HWTS, "executions that the AI CPU's own file has as well"), 0) == same


def test_tasks_of_the_ai_cpu_without_a_name_are_apart() -> None:
    """As those of the device's log are."""
    own = b"".join(encode.aicpu_record(3, task, start, start + 50) for task, start in ((12, 100), (14, 300), (12, 500)))
    found = ascend.capture({"DATA_PREPROCESS.AICPU.1": own}, 1)
    assert [operator.full_name for operator in found.operators] == ["stream 3 task 12", "stream 3 task 14"]
    assert {operator.side for operator in found.operators} == {AI_CPU}


def test_the_ticks_around_a_task_serve_where_its_run_is_not_told() -> None:
    """A Thread message without a Node message."""
    found = ascend.capture({"DATA_PREPROCESS.dev.AICPU.1": encode.messages(encode.thread(4, 2000, 2500))}, 1)
    assert executions(found) == [("AI CPU task", 20_000, 5000, 4, MISSING, MISSING)]


def test_steps_of_the_later_trace() -> None:
    """They have the device's number, their model, the operator behind each communication, and fetches."""
    marks = [(2, 100), (20_000, 110), (20_001, 130), (10_000, 140), (10_001, 160), (3, 200), (4, 300)]
    data = b"".join(
        encode.ts_track([(tag, at + 1000 * turn) for tag, at in marks], index=7 + turn, model=11) for turn in (0, 1)
    )
    names = encode.task_record("Default/AllReduce-op5", "AllReduce", 2, 4, side=9)
    found = ascend.capture({STEPS: data, TASKS: names, "Framework.step_info.1": encode.step_record(2, 2, 4)}, 1)
    assert found.steps.tolist() == [(7, 1000, 1000, 2000, 3000, 11), (8, 3000, 11_000, 12_000, 13_000, 11)]
    assert found.reduces.tolist() == [(7, 2, 0, 1400, 200), (8, 2, 0, 11_400, 200)]
    assert found.names == ("Default/AllReduce-op5",)
    assert found.fetches.tolist() == [(7, 2, 1100, 200, MISSING), (8, 2, 11_100, 200, MISSING)]
    assert found.metadata == {"fp_start": "Default/AllReduce-op5"}


def test_iterations_of_several_models_are_counted_through() -> None:
    """An iteration's number is its model's own: it does not say which step it is."""
    marks = [(2, 100), (3, 200), (4, 300)]
    data = b"".join(
        encode.ts_track([(tag, at + 1000 * turn) for tag, at in marks], index=5, model=11 + turn) for turn in (0, 1)
    )
    found = ascend.capture({STEPS: data}, 1)
    assert found.steps[["step", "model"]].tolist() == [(1, 11), (2, 12)]


def test_a_step_that_lacks_marks_is_told() -> None:
    """With `MISSING` for what it lacks."""
    marks = [(1, 5, 100), (2, 5, 200), (255, 5, 300), (255, 5, 500), (1, 5, 600), (255, 5, 700)]
    found = ascend.capture({STEPS_2020: encode.training_trace(marks)}, 1)
    assert found.steps.tolist() == [
        (1, 1000, 1000, 2000, 3000, 0), (2, 3000, MISSING, MISSING, 5000, 0), (3, 5000, 6000, MISSING, 7000, 0),
    ]  # fmt: skip


def test_the_first_step_of_a_sink_job_sets_up_the_queue() -> None:
    """The operator that does so says it."""
    names = encode.task_lines(("Default/InitDataSetQueue-op1", 1, 1, 1))
    marks = [(1, 5, 100), (2, 5, 200), (255, 5, 300), (1, 5, 400), (2, 5, 500), (255, 5, 600)]
    found = ascend.capture({STEPS_2020: encode.training_trace(marks), TASKS_2020: names}, 1)
    assert found.steps.tolist() == [(1, 3000, 4000, 5000, 6000, 0)]
    assert lost(found) == {(STEPS_2020, "steps that set up the queue"): 1}


def test_the_table_of_fetches_serves_where_their_own_file_is_empty() -> None:
    """The legacy tools made one of the other."""
    found = ascend.capture({"DATA_PREPROCESS.AICPUMI.1": b"", "minddata_aicpu_1.txt": b"GetNext 10 12 3\n"}, 1)
    assert found.fetches.tolist() == [(MISSING, MISSING, 10_000, 2000, 3)]


def test_a_cut_of_any_file_at_any_byte_gives_the_rest(rng: np.random.Generator) -> None:
    """Never an error; and what is lost of a file of records is said."""
    for name, data in job_2020().items():
        for size in range(0, len(data), 1 + len(data) // 150):
            found = ascend.capture(job_2020() | {name: data[:size]}, 1)
            assert found.executions.dtype == EXECUTION
            assert found.fetches.dtype == FETCH


def test_garbage_does_no_harm(rng: np.random.Generator) -> None:
    """Random bytes in place of any file, or of all, take no longer than real ones."""
    names = [*job_2020(), HWTS, TASKS, STEPS, "DATA_PREPROCESS.AICPU.1", "DATA_PREPROCESS.DP.1", "info.json.1",
             "Framework.tensor_data_info.1", "Framework.step_info.1", "Framework.hash_dic.1", "dev_start.log.1",
             "host_start.log", "start_info.1", "minddata_aicpu_1.txt"]  # fmt: skip
    started = time.process_time()
    for name in names:
        for head in (b"", b"\x5a\x5a"):
            ascend.capture(job_2020() | {name: head + rng.bytes(4000)}, 1)
    found = ascend.capture({name: rng.bytes(20_000) for name in names}, 1)
    assert found.executions["operator"].max(initial=-1) < len(found.operators)
    assert found.executions["operator"].min(initial=0) >= 0
    assert time.process_time() - started < 30

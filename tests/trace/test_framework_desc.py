"""Framework files: text and records, their codes, and the operators that they make together."""

from __future__ import annotations

import numpy as np
import pytest

from instrument.trace import framework_desc as framework
from instrument.trace.ascend_executions import OperatorMap
from instrument.trace.events import AI_CORE, AI_CPU, COMMUNICATION, MISSING, Operator
from instrument.trace.text import Losses
from tests.trace import encoders_ascend as encode

LEFT_OVER = "bytes at the end that are no whole record"


def lost(losses: Losses) -> dict[str, int]:
    return {problem.what: problem.amount for problem in losses.problems()}


def tasks(data: bytes, hashes: dict[int, str] | None = None) -> tuple[framework.Tasks, dict[str, int]]:
    losses = Losses("tasks")
    return framework.tasks(data, losses, hashes), lost(losses)


def find(operators: OperatorMap, *keys: tuple[int, int]) -> list[int]:
    streams, ids = np.array(keys).T
    return operators.find(streams, ids).tolist()


def test_a_line_is_a_task() -> None:
    """Name, block dim, task and stream; a field before them is dropped."""
    found, losses = tasks(encode.task_lines(("Default/Cast-op6", 32, 51_517, 0)) + b"7 Default/Mul-op1 1 5 3\n")
    assert found.rows[["block_dim", "task", "stream"]].tolist() == [(32, 51_517, 0), (1, 5, 3)]
    assert [found.names[row] for row in found.rows["name"]] == ["Default/Cast-op6", "Default/Mul-op1"]
    assert [found.names[row] for row in found.rows["type"]] == ["Cast", "Mul"]
    assert (found.is_text, losses) == (True, {})


def test_lines_that_are_none_are_counted() -> None:
    """Short lines, and such with a word for a number, are no tasks; the last one may be cut."""
    found, losses = tasks(b"a b c d\nDefault/A 1 2\n\nDefault/A 1 2 3\nDefault/B 1 2 3")
    assert len(found.rows) == 1
    assert losses == {LEFT_OVER: 15, "lines of unknown form": 2}


def test_records_are_tasks() -> None:
    """The binary form holds names, or hashes of names that are too long for it."""
    data = encode.task_record("Default/Conv2D-op1", "Conv2D", 1, 4) + encode.task_record(77, 78, 3, 70_000, side=1)
    found, losses = tasks(data, {77: "Default/long-op2", 78: "Long"})
    assert [found.names[row] for row in found.rows["name"]] == ["Default/Conv2D-op1", "Default/long-op2"]
    assert [found.names[row] for row in found.rows["type"]] == ["Conv2D", "Long"]
    assert found.rows[["stream", "task", "kind", "block_dim"]].tolist() == [(1, 4, 0, 32), (3, 70_000, 1, 32)]
    assert (found.is_text, losses) == (False, {})


def test_a_hash_without_a_name_is_counted() -> None:
    """Such a task is not told."""
    found, losses = tasks(encode.task_record(77, "A", 1, 4) + encode.task_record("B", "B", 1, 5) + bytes(3))
    assert [found.names[row] for row in found.rows["name"]] == ["B"]
    assert losses == {LEFT_OVER: 3, "tasks whose name is not told": 1}


def test_a_line_of_the_graph_is_an_operator() -> None:
    """Tensors have formats, types and shapes; an empty shape is a scalar."""
    tensors = [("input", "NC1HWC0", 40, "32,3,-1,224"), ("input", "DefaultFormat", 31, ""), ("output", "ND", 99, "7")]
    losses = Losses("graph")
    (found,) = framework.graph(encode.graph_line("Default/a:b-op1", "a:b", tensors), losses)
    assert (found.name, found.type) == ("Default/a:b-op1", "a:b")
    assert found.inputs == (
        ("NC1HWC0", "NUMBER_TYPE_FLOAT32", (32, 3, -1, 224)), ("DefaultFormat", "NUMBER_TYPE_INT32", ()),
    )  # fmt: skip
    assert found.outputs == (("ND", "UNKNOWN", (7,)),)
    assert lost(losses) == {}


@pytest.mark.parametrize(
    "line",
    [
        b"op_name:a\n",
        b"op_type:a op_name:b\n",
        b"op_name:a op_type:b input_id:0\n",
        b'op_name:a op_type:b input_id:0 output_format:ND input_data_type:1 input_shape:"1"\n',
        b'op_name:a op_type:b input_id:0 input_format:ND input_data_type:1 input_shape:"x"\n',
        b'op_name:a op_type:b other_id:0 other_format:ND other_data_type:1 other_shape:"1"\n',
    ],
)
def test_other_lines_of_the_graph_are_counted(line: bytes) -> None:
    """A line that is no operator's is left out."""
    losses = Losses("graph")
    assert framework.graph(line, losses) == []
    assert lost(losses) == {"lines of unknown form": 1}


def test_codes_have_names() -> None:
    """The three sets of codes do not mix."""
    assert [framework.text_codes("ND", code, False)[1] for code in ("27", "31", "41")] == [
        "NUMBER_TYPE_BOOL", "NUMBER_TYPE_INT32", "NUMBER_TYPE_FLOAT64",
    ]  # fmt: skip
    assert framework.text_codes("29", "26", True) == ("FORMAT_FRACTAL_NZ", "DT_UNDEFINED")
    assert framework.text_codes("7", "5", True) == ("UNKNOWN", "UNKNOWN")
    assert framework.text_codes("NCHW", "0", True)[0] == "NCHW"
    assert framework.binary_codes(203, 242) == framework.binary_codes(3, 42) == ("ND", "FLOAT16")
    assert framework.binary_codes(21, 45) == ("DHWCN", "COMPLEX")
    assert framework.binary_codes(22, 4_000_000_000) == ("UNKNOWN", "UNKNOWN")


def test_tensors_of_several_records_are_one_operator() -> None:
    """Records of one operator go on; those of a later iteration say the same again."""
    one = (0, 4, 43, (32, 3)), (1, 3, 35, ())
    data = encode.tensor_record(1, 4, one) + encode.tensor_record(1, 4, [(0, 4, 43, (7,))])
    data += encode.tensor_record(1, 4, one, iteration=2) + encode.tensor_record(2, 4, [])
    losses = Losses("tensors")
    found = framework.tensors(data, losses)
    assert list(found) == [(1, 4)]
    assert found[1, 4].inputs == (("NCHW", "FLOAT32", (32, 3)), ("NCHW", "FLOAT32", (7,)))
    assert found[1, 4].outputs == (("ND", "INT64", ()),)
    assert lost(losses) == {"records with an impossible number of tensors": 1}


def test_small_tables_are_read() -> None:
    """Marks and hashes have names, and marks have tasks."""
    losses = Losses("tables")
    assert framework.points(b"1 Default/A-op1\nnoise\n2 Default/B-op2\n", losses) == {
        1: "Default/A-op1", 2: "Default/B-op2",
    }  # fmt: skip
    assert framework.hash_dic(f"{2**64 - 1}:Default/a:b\n".encode(), losses) == {2**64 - 1: "Default/a:b"}
    assert framework.step_info(encode.step_record(2, 1, 4) + encode.step_record(3, 1, 12), losses) == {
        2: (1, 4), 3: (1, 12),
    }  # fmt: skip
    assert lost(losses) == {"lines of unknown form": 1}


def test_large_task_ids_of_text_name_their_operator_alone() -> None:
    """From 25000 on the stream is a logical number; below, it counts. The last line wins."""
    lines = [("A", 1, 24_999, 3), ("B", 1, 25_000, 3), ("C", 1, 24_999, 4), ("D", 1, 25_000, 9)]
    operators = OperatorMap(tasks(encode.task_lines(*lines))[0])
    rows = find(operators, (3, 24_999), (4, 24_999), (5, 24_999), (3, 25_000), (519, 25_000), (519, 25_001))
    names = [operators.operators[row].name if row != MISSING else None for row in rows]
    assert names == ["A", "C", None, "D", "D", None]


def test_task_ids_of_records_count_with_their_stream() -> None:
    """However large they are."""
    data = encode.task_record("A", "A", 1, 70_000) + encode.task_record("B", "B", 2, 70_000)
    operators = OperatorMap(tasks(data)[0])
    assert find(operators, (1, 70_000), (2, 70_000), (3, 70_000), (1, 4464)) == [0, 1, MISSING, MISSING]


def test_operators_have_types_sides_and_shapes() -> None:
    """The graph or the tensors give types and shapes, the records where an operator runs."""
    graph = [framework.OperatorDesc("Default/Cast-op6", "CastX", (framework.TensorDesc("", "", (32, 3)),) * 2, ())]
    text = OperatorMap(tasks(encode.task_lines(("Default/Cast-op6", 1, 1, 1), ("X-op7", 1, 2, 1)))[0], graph)
    assert text.operators == [
        Operator("Default/Cast-op6", "Cast-op6", "CastX", AI_CORE, "32,3;32,3"),
        Operator("X-op7", "X-op7", "X", AI_CORE),
    ]
    kinds = [(0, AI_CORE), (1, AI_CPU), (2, AI_CORE), (9, COMMUNICATION), (77, "task type 77")]
    data = b"".join(encode.task_record(f"n{kind}", "T", 1, kind, side=kind) for kind, _ in kinds)
    records = OperatorMap(tasks(data)[0], (), {(1, 9): graph[0]._replace(type="")})
    assert [operator.side for operator in records.operators] == [side for _, side in kinds]
    assert records.operators[3].shapes == "32,3;32,3"
    assert records.operators[3].type == "T"


def test_the_operator_behind_a_mark_is_the_next_on_its_stream() -> None:
    """A mark of the step trace has a task of its own, before that of its operator."""
    data = b"".join(encode.task_record(name, "T", stream, task) for name, stream, task in [("A", 1, 5), ("B", 2, 9)])
    operators = OperatorMap(tasks(data)[0])
    assert [operators.behind(*mark) for mark in [(1, 4), (1, 5), (2, 1), (2, 9)]] == [0, MISSING, 1, MISSING]


def test_an_operator_without_files_is_not_found() -> None:
    """Nothing is named then."""
    assert find(OperatorMap(), (1, 2)) == [MISSING]


def test_cuts_and_garbage_do_no_harm(rng: np.random.Generator) -> None:
    """Each prefix of each file, and random bytes, give what is whole, and counts."""
    record = encode.task_record("A", "A", 1, 4)
    assert [len(tasks((record * 2)[:size])[0].rows) for size in (0, 1, 255, 256, 511, 512)] == [0, 0, 0, 1, 1, 2]
    line = encode.task_lines(("Default/A", 1, 2, 34)) * 2
    assert sum(len(tasks(line[:size])[0].rows) for size in range(len(line))) == len(line) // 2
    readers = (
        framework.tasks,
        framework.graph,
        framework.tensors,
        framework.points,
        framework.hash_dic,
        framework.step_info,
    )
    for data in (rng.bytes(20_000), b"\x5a\x5a" + rng.bytes(20_000), _with_magic(rng.bytes(256 * 80))):
        for read in readers:
            read(data, Losses("garbage"))
        OperatorMap(tasks(data)[0])


def _with_magic(data: bytes) -> bytes:
    """The same bytes with the magic number wherever a record may begin."""
    found = np.frombuffer(data, np.uint8).copy().reshape(-1, 64)
    found[:, :2] = 0x5A
    return found.tobytes()

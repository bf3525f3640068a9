"""Framework files: which operator is behind a (stream, task) of the device, with its type and its shapes.

Text files until early 2021, records of 256 and 64 bytes behind that; which of the two a file is shows in its first
bytes. In the text, a task id from 25000 on names its operator alone: the stream there is a logical number, not the
device's. Of several lines or records for one key the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.trace.events import AI_CORE, AI_CPU, COMMUNICATION, MISSING, Rows
from instrument.trace.records import UNKNOWN_LINES, integer, is_binary, lines, with_magic
from instrument.trace.text import Buffer, Index, Losses, decode

_NAME_BLOCK = [("kind", "u1"), ("reserved", "V7")]
_HASHED, _PLAIN = 0, 1
TASK_RECORD = np.dtype(
    [
        ("magic", "<u2"), ("tag", "<u2"), ("kind", "<u4"), ("name", [*_NAME_BLOCK, ("text", "S120")]),
        ("type", [*_NAME_BLOCK, ("text", "S56")]), ("iteration", "<i8"), ("timestamp", "<i8"), ("shape_type", "<u4"),
        ("block_dim", "<u4"), ("model", "<u4"), ("stream", "<u4"), ("task", "<u4"), ("thread", "<u4"),
        ("reserved", "V16"),
    ]
)  # fmt: skip
_TENSOR = np.dtype([("kind", "<u4"), ("format", "<u4"), ("data_type", "<u4"), ("dims", "<u4", 8)])
TENSOR_RECORD = np.dtype(
    [
        ("magic", "<u2"), ("tag", "<u2"), ("model", "<u4"), ("iteration", "<i8"), ("stream", "<u4"), ("task", "<u4"),
        ("count", "u1"), ("reserved", "V3"), ("tensors", _TENSOR, 5), ("reserved2", "V8"),
    ]
)  # fmt: skip
STEP_RECORD = np.dtype(
    [
        ("magic", "<u2"), ("tag", "<u2"), ("model", "<u4"), ("stream", "<u4"), ("task", "<u4"), ("timestamp", "<i8"),
        ("iteration", "<i8"), ("thread", "<u4"), ("point", "u1"), ("reserved", "V27"),
    ]
)  # fmt: skip

#: One task of the network: `name` and `type` are rows in `Tasks.names`; `kind` says where it runs, as in `SIDES`.
TASK = np.dtype(
    [(field, "i8") for field in ("block_dim", "task", "stream", "model", "iteration", "timestamp", "kind")]
    + [("name", "i4"), ("type", "i4")]
)
SIDES = {0: AI_CORE, 1: AI_CPU, 2: AI_CORE, 4: AI_CORE, 5: AI_CORE, 9: COMMUNICATION}

_TENSOR_KEYS = ("id", "format", "data_type", "shape")
_POINT = re.compile(r"(\d+)\s+(\S.*)")
_HASH = re.compile(r"(\d{1,20}):(.+)")


class TensorDesc(NamedTuple):
    """An input or output of an operator; `shape` is () for a scalar."""

    format: str
    data_type: str
    shape: tuple[int, ...]


class OperatorDesc(NamedTuple):
    """What is known of an operator's tensors; `name` and `type` are empty where only its task is known."""

    name: str
    type: str
    inputs: tuple[TensorDesc, ...]
    outputs: tuple[TensorDesc, ...]


@dataclass(frozen=True, eq=False)
class Tasks:
    """`rows` (dtype TASK) in file order, and the names and types that they index."""

    rows: Rows
    names: Sequence[str]
    is_text: bool


def short_name(full_name: str) -> str:
    """The last part of the path: `Conv2D-op12` of `Default/network/Conv2D-op12`."""
    return full_name.rpartition("/")[2]


def type_of(full_name: str) -> str:
    """Return the type that an operator's name tells: `Conv2D` of `Default/network/Conv2D-op12`."""
    return short_name(full_name).partition("-")[0]


def tasks(data: Buffer, losses: Losses, hashes: Mapping[int, str] | None = None) -> Tasks:
    """Read a `task_desc_info` file of either form; names too long for a record stand in `hashes`."""
    return _binary_tasks(data, losses, hashes or {}) if is_binary(data) else _text_tasks(data, losses)


def _text_tasks(data: Buffer, losses: Losses) -> Tasks:
    """Read lines of `<full name> <block dim> <task> <stream>`, in some builds with a field before them."""
    names, rows = Index[str](), []
    for line in lines(data, losses):
        fields = line.split()
        numbers = [integer(text) for text in fields[-3:]]
        if len(fields) not in (4, 5) or None in numbers:
            losses.add(UNKNOWN_LINES)
            continue
        name = fields[-4]
        rows.append((*numbers, MISSING, MISSING, MISSING, 0, names(name), names(type_of(name))))
    return Tasks(np.array(rows, TASK), names.names, True)


def _binary_tasks(data: Buffer, losses: Losses, hashes: Mapping[int, str]) -> Tasks:
    records = with_magic(data, TASK_RECORD, losses)
    rows = np.empty(len(records), TASK)
    for field in ("block_dim", "task", "stream", "model", "iteration", "timestamp", "kind"):
        rows[field] = records[field]
    names = Index[str]()
    for field in ("name", "type"):
        rows[field] = _texts(records[field], names, hashes, losses)
    is_named = rows["name"] != MISSING
    losses.add("tasks whose name is not told", len(rows) - int(np.count_nonzero(is_named)))
    return Tasks(rows[is_named], names.names, False)


def _texts(blocks: Rows, names: Index[str], hashes: Mapping[int, str], losses: Losses) -> NDArray[np.int32]:
    """Return the rows in `names` of what the blocks say: text or the hash of text; `MISSING` for neither."""
    unique, inverse = np.unique(blocks["text"], return_inverse=True)
    inverse = inverse.reshape(-1)
    plain = np.array([names(decode(bytes(text).split(b"\0")[0])) for text in unique], np.int32)
    numbers = [hashes.get(int.from_bytes(bytes(text)[:8].ljust(8, b"\0"), "little")) for text in unique]
    hashed = np.array([MISSING if text is None else names(text) for text in numbers], np.int32)
    if not len(unique):
        return np.empty(0, np.int32)
    return np.select([blocks["kind"] == _PLAIN, blocks["kind"] == _HASHED], [plain[inverse], hashed[inverse]], MISSING)


def graph(data: Buffer, losses: Losses, is_ge: bool = False) -> list[OperatorDesc]:
    """Read a text `graph_desc_info` file; with `is_ge` its formats and types are GE's codes."""
    operators = [_graph_line(line, is_ge) for line in lines(data, losses)]
    losses.add(UNKNOWN_LINES, sum(operator is None for operator in operators))
    return [operator for operator in operators if operator is not None]


def _graph_line(line: str, is_ge: bool) -> OperatorDesc | None:
    items = [item.partition(":") for item in line.split()]
    if [key for key, _, _ in items[:2]] != ["op_name", "op_type"] or len(items) % 4 != 2:
        return None
    tensors: dict[str, list[TensorDesc]] = {"input": [], "output": []}
    for start in range(2, len(items), 4):
        side = items[start][0].removesuffix("_id")
        keys = [key for key, _, _ in items[start : start + 4]]
        layout, data_type, quoted = (value for _, _, value in items[start + 1 : start + 4])
        shape = _shape(quoted)
        if side not in tensors or shape is None or keys != [f"{side}_{part}" for part in _TENSOR_KEYS]:
            return None
        tensors[side].append(TensorDesc(*text_codes(layout, data_type, is_ge), shape))
    return OperatorDesc(items[0][2], items[1][2], tuple(tensors["input"]), tuple(tensors["output"]))


def _shape(quoted: str) -> tuple[int, ...] | None:
    """Return the shape of `"32,3,224,224"` with its quotes; dynamic dimensions are -1."""
    texts = [text.strip() for text in quoted.strip('"').split(",") if text.strip()]
    numbers = [-1 if text == "-1" else integer(text) for text in texts]
    return None if None in numbers else tuple(number for number in numbers if number is not None)


def tensors(data: Buffer, losses: Losses) -> dict[tuple[int, int], OperatorDesc]:
    """Read a `tensor_data_info` file by (stream, task); of an operator that recurs in each iteration, the first."""
    records = with_magic(data, TENSOR_RECORD, losses)
    good = (records["count"] >= 1) & (records["count"] <= 5)
    losses.add("records with an impossible number of tensors", len(records) - int(np.count_nonzero(good)))
    records = records[good]
    key = records["stream"].astype(np.uint64) << np.uint64(32) | records["task"]
    _, firsts, inverse = np.unique(key, return_index=True, return_inverse=True)
    first = records[firsts[inverse.reshape(-1)]]
    by_task: dict[tuple[int, int], OperatorDesc] = {}
    for record in records[(records["model"] == first["model"]) & (records["iteration"] == first["iteration"])]:
        at = int(record["stream"]), int(record["task"])
        before = by_task.get(at, OperatorDesc("", "", (), ()))
        sides = _tensors_of(record)
        by_task[at] = before._replace(inputs=before.inputs + sides[0], outputs=before.outputs + sides[1])
    return by_task


def _tensors_of(record: np.void) -> tuple[tuple[TensorDesc, ...], tuple[TensorDesc, ...]]:
    """The inputs and the outputs of one record; dimensions that are not used are 0 there."""
    sides: tuple[list[TensorDesc], list[TensorDesc]] = ([], [])
    for tensor in record["tensors"][: record["count"]]:
        shape = tuple(dim for dim in tensor["dims"].tolist() if dim)
        desc = TensorDesc(*binary_codes(int(tensor["format"]), int(tensor["data_type"])), shape)
        sides[int(tensor["kind"] != 0)].append(desc)
    return tuple(sides[0]), tuple(sides[1])


def points(data: Buffer, losses: Losses) -> dict[int, str]:
    """Read a text `point` file: tag of a mark in the step trace -> full name of the operator behind it."""
    return _table(data, _POINT, losses)


def hash_dic(data: Buffer, losses: Losses) -> dict[int, str]:
    """Read a `hash_dic` file: hash -> the name or type that is too long for a record."""
    return _table(data, _HASH, losses)


def _table(data: Buffer, form: re.Pattern[str], losses: Losses) -> dict[int, str]:
    table = {}
    for line in lines(data, losses):
        match = form.fullmatch(line)
        if match and len(match[1]) <= 20:
            table[int(match[1])] = match[2]
        else:
            losses.add(UNKNOWN_LINES)
    return table


def step_info(data: Buffer, losses: Losses) -> dict[int, tuple[int, int]]:
    """Read a `step_info` file: tag of a mark in the step trace -> (stream, task) of the operator behind it."""
    records = with_magic(data, STEP_RECORD, losses)
    return {int(row["point"]): (int(row["stream"]), int(row["task"])) for row in records}


# ---------------------------------------------------------------- codes of data types and formats, in three sets


def _numbered(names: str, first: int = 0) -> dict[int, str]:
    return dict(enumerate(names.split(), first))


_UNKNOWN = "UNKNOWN"
_VM_TYPES = _numbered(
    "BOOL INT INT8 INT16 INT32 INT64 UINT UINT8 UINT16 UINT32 UINT64 FLOAT FLOAT16 FLOAT32 FLOAT64", 27
)
_BINARY_TYPES = _numbered(" ".join((*_VM_TYPES.values(), "COMPLEX")), 30)
#: 5 stands for nothing.
_GE_TYPES = _numbered("FLOAT FLOAT16 INT8 INT32 UINT8") | _numbered(
    """
    INT16 UINT16 UINT32 INT64 UINT64 DOUBLE BOOL STRING DUAL_SUB_INT8 DUAL_SUB_UINT8 COMPLEX64 COMPLEX128 QINT8
    QINT16 QINT32 QUINT8 QUINT16 RESOURCE STRING_REF DUAL UNDEFINED
    """,
    6,
)
_GE_FORMATS = _numbered("NCHW NHWC ND NC1HWC0 FRACTAL_Z NC1C0HWPAD NHWC1C0") | {
    12: "NC1HWC0_C04", 14: "CHWN", 16: "HWCN", 27: "NDHWC", 29: "FRACTAL_NZ", 30: "NCDHW", 31: "DHWCN",
    32: "NDC1HWC0", 33: "FRACTAL_Z_3D",
}  # fmt: skip
_BINARY_FORMATS = _numbered(
    """
    UNKNOWN DEFAULT NC1KHKWHWC0 ND NCHW NHWC HWCN NC1HWC0 FRAC_Z C1HWNCOC0 FRAC_NZ NC1HWC0_C04 FRACTAL_Z_C04 NDHWC
    FRACTAL_ZN_LSTM FRACTAL_ZN_RNN ND_RNN_BIAS NDC1HWC0 NCDHW FRACTAL_Z_3D DHWNC DHWCN
    """
)
#: In the binary form MindSpore's own codes may stand this much higher, apart from those of GE.
_BINARY_OFFSET = 200


def text_codes(layout: str, data_type: str, is_ge: bool) -> tuple[str, str]:
    """Return format and data type of a text file; MindSpore's own backend writes formats by name, GE as codes."""
    if not is_ge or _code(layout) < 0:
        name = _VM_TYPES.get(_code(data_type))
        return layout, f"NUMBER_TYPE_{name}" if name else _UNKNOWN
    form, name = _GE_FORMATS.get(_code(layout)), _GE_TYPES.get(_code(data_type))
    return f"FORMAT_{form}" if form else _UNKNOWN, f"DT_{name}" if name else _UNKNOWN


def binary_codes(layout: int, data_type: int) -> tuple[str, str]:
    """Return format and data type of a record."""
    form, type_ = (code - _BINARY_OFFSET if code >= _BINARY_OFFSET else code for code in (layout, data_type))
    return _BINARY_FORMATS.get(form, _UNKNOWN), _BINARY_TYPES.get(type_, _UNKNOWN)


def _code(text: str) -> int:
    return int(text) if len(text) < 10 and text.isascii() and text.isdecimal() else -1

"""Describe the data pipeline of a lineage, one line a stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: Keys that hold the name of a stage or of an operation in it.
_NAMES = ("op_type", "tensor_op")


def stages(dataset: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each stage, in the order in which data pass through them.

    A stage takes the data of the one before it. One that joins several sources names them.
    Empty parameters are left out of a description.
    """
    yield from _stages(dataset, [0])


def _stages(stage: Mapping[str, Any], last: list[int]) -> Iterator[tuple[str, str]]:
    """Yield the stages below one and itself; `last` holds the number of the last stage so far."""
    inputs = []
    for child in stage.get("children", ()):
        yield from _stages(child, last)
        inputs.append(last[0])
    last[0] += 1
    is_chain = inputs in ([], [last[0] - 1])
    joined = "" if is_chain else f" of {', '.join(f'stage_{number}' for number in inputs)}"
    yield f"stage_{last[0]}", _described({key: value for key, value in stage.items() if key != "children"}) + joined


def _described(stage: Mapping[str, Any]) -> str:
    """Return a stage or an operation as a call: `Batch(batch_size=32, drop_remainder=True)`."""
    name = next((str(stage[key]) for key in _NAMES if stage.get(key)), "")
    parts = [f"{key}={_value(value)}" for key, value in stage.items() if key not in _NAMES and not _is_empty(value)]
    return f"{name}({', '.join(parts)})" if parts else name


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return _described(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, (str, list, tuple, Mapping)) and not value)

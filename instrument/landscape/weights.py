"""Find, load and check the checkpoints that a landscape is drawn from.

What the collector left is `ckpt_dir` with `train_metadata.json`, ours or MindSpore's. A directory may have been moved
or copied: a checkpoint is looked for beside the metadata first, by its file's name, and then where the metadata says.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from instrument import wording
from instrument.errors import InstrumentError

if TYPE_CHECKING:
    from mindspore import Parameter

METADATA = "train_metadata.json"
CKPT_DIR = "ckpt_dir"
_NAMED_AT_MOST = 5
#: Things that the number of a checkpoint may count.
UNITS = ("step", "epoch")
#: The least number of checkpoints that span a plane.
LEAST_POINTS = 3

#: What MindSpore and NumPy raise over a file that is damaged or of another kind.
_READ_ERRORS = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError,
    struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip

Tensors = Mapping[str, NDArray[np.generic]]


class BadCheckpoint(InstrumentError, ValueError):
    """A checkpoint is missing, damaged, not finite, or does not fit to the others or the network."""


@dataclass(frozen=True)
class Source:
    """Where checkpoints are, by their number, and how they were asked for.

    `unit` is "step" or "epoch"; `intervals` are the numbers of one landscape each; `create` says which kinds to make.
    A file is given by its path, or as tensors by name.
    """

    files: Mapping[int, str | Tensors]
    intervals: tuple[tuple[int, ...], ...] = ()
    unit: str = "step"
    steps_per_epoch: int = 0
    size: int = 40
    samples: int = 2048
    create: Mapping[str, bool] | None = None

    def changed(self, **options: Any) -> Source:
        """Return the source with other options; None leaves one as it is."""
        return replace(self, **{name: value for name, value in options.items() if value is not None})


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """`number` is its step or epoch. `tensors` has all that the file holds, by name, as arrays."""

    number: int
    tensors: Tensors


# ---------------------------------------------------------------- where they are


def find(summary_dir: str) -> Source:
    """Return what the collector left in a run's directory.

    Raises:
        FileNotFoundError: there is no metadata; the message says what is there instead.
        BadCheckpoint: the metadata cannot be read.
    """
    directory = os.path.join(summary_dir, CKPT_DIR)
    path = os.path.join(directory, METADATA)
    if not os.path.isfile(path):
        raise FileNotFoundError(_no_metadata(summary_dir, path))
    try:
        with open(path, encoding="utf-8") as file:
            return _source(json.load(file), directory)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadCheckpoint(f"{path} is not what the collector writes: {type(error).__name__}: {error}") from error


def _source(data: Any, directory: str) -> Source:
    files = {int(number): _located(directory, path) for number, path in data["model_params_file_map"].items()}
    intervals = tuple(tuple(int(number) for number in interval) for interval in data["epoch_group"].values())
    create = {str(kind): bool(wanted) for kind, wanted in data["create_landscape"].items()}
    return Source(
        files, intervals, str(data["unit"]), int(data["step_per_epoch"]), int(data["landscape_size"]),
        int(data["num_samples"]), create,
    )  # fmt: skip


def _located(directory: str, path: str) -> str:
    beside = os.path.join(directory, os.path.basename(path.replace("\\", "/")))
    return beside if os.path.exists(beside) else os.path.join(directory, path)


def _no_metadata(summary_dir: str, path: str) -> str:
    if not os.path.isdir(summary_dir):
        return f"{summary_dir} does not exist; the summary_dir of a SummaryCollector is expected."
    directory = os.path.dirname(path)
    files = [name for name in os.listdir(directory) if name.endswith(".ckpt")] if os.path.isdir(directory) else []
    if files:
        return (
            f"{path} does not exist, though {len(files)} checkpoints lie beside it: the training that wrote them did "
            "not end. Give them as checkpoints={number: path, ...}."
        )
    return (
        f"{path} does not exist: no weights were kept in this run. Train with SummaryCollector(..., "
        'collect_specified_data={"collect_landscape": {"intervals": [[1, 2, 3]]}}), or give checkpoints={number: path}.'
    )


def given(checkpoints: object) -> dict[int, str | Tensors]:
    """Check and return the checkpoints that a user gives, by number.

    Raises:
        TypeError: they are no dictionary from int to paths or tensors by name.
    """
    expected = "expected a dictionary from step or epoch (int) to a path, or to arrays by parameter name"
    if not isinstance(checkpoints, Mapping) or not checkpoints:
        raise TypeError(f"checkpoints is a {type(checkpoints).__name__}; {expected}.")
    result: dict[int, str | Tensors] = {}
    for number, file in checkpoints.items():
        if not isinstance(number, (int, np.integer)) or isinstance(number, bool):
            raise TypeError(f"checkpoints has the key {number!r}; {expected}.")
        if not isinstance(file, (str, os.PathLike, Mapping)):
            raise TypeError(f"checkpoint {number} is a {type(file).__name__}; {expected}.")
        result[int(number)] = file if isinstance(file, Mapping) else os.path.abspath(os.fsdecode(os.fspath(file)))
    return result


# ---------------------------------------------------------------- what is in them


def load(source: Source, numbers: Iterable[int]) -> list[Checkpoint]:
    """Load the checkpoints with these numbers, ascending, each number once.

    Raises:
        BadCheckpoint: one is missing, damaged or not finite, or they hold different parameters.
    """
    wanted = sorted(set(numbers))
    check_numbers(source, wanted)
    checkpoints = [Checkpoint(number, read(source.files[number], number, source.unit)) for number in wanted]
    for checkpoint in checkpoints:
        _check_finite(checkpoint, source.unit)
        _check_same(checkpoint, checkpoints[-1], source.unit)
    return checkpoints


def check_numbers(source: Source, numbers: Iterable[int]) -> None:
    """Raise `BadCheckpoint` if there is no checkpoint of one of these numbers."""
    missing = sorted({number for number in numbers if number not in source.files})
    if missing:
        raise BadCheckpoint(
            f"There is no checkpoint for {source.unit} {listed(missing)}: training did not stop there. There are "
            f"those of {source.unit} {listed(sorted(source.files))}."
        )


def chosen_numbers(source: Source, interval: object) -> list[int]:
    """Return the steps or epochs of an interval, ascending; all for None.

    Raises:
        TypeError: they are no numbers.
        BadCheckpoint: there are none, or no such checkpoints.
    """
    if interval is not None:
        if isinstance(interval, str) or not isinstance(interval, Iterable):
            raise TypeError(f"interval is {interval!r}; expected steps or epochs, in a list.")
        interval = list(interval)
        if not all(isinstance(number, Integral) and not isinstance(number, bool) for number in interval):
            raise TypeError(f"{interval} are no steps or epochs; expected numbers (int).")
        check_numbers(source, interval)
    numbers = sorted(set(source.files if interval is None else interval))
    if not numbers:
        raise BadCheckpoint("There is no checkpoint at all; training reached none of the steps that were asked for.")
    return [int(number) for number in numbers]


def read(file: str | Tensors, number: int, unit: str) -> dict[str, NDArray[np.generic]]:
    """Return all arrays of one checkpoint: MindSpore's `.ckpt`, or an `.npz` with an array a parameter."""
    if isinstance(file, Mapping):
        return {str(name): np.asarray(value) for name, value in file.items()}
    if not os.path.isfile(file):
        raise BadCheckpoint(f"The checkpoint of {unit} {number} is gone: {file} does not exist.")
    try:
        tensors = _read_npz(file) if file.endswith(".npz") else _read_ckpt(file)
    except _READ_ERRORS as error:
        reason = str(error).strip().split("\n")[0]
        raise BadCheckpoint(
            f"The checkpoint of {unit} {number} cannot be read: {file} ({os.path.getsize(file)} bytes): "
            f"{type(error).__name__}: {reason}"
        ) from error
    if not tensors:
        raise BadCheckpoint(f"The checkpoint of {unit} {number} holds no parameter: {file}.")
    return tensors


def _read_npz(path: str) -> dict[str, NDArray[np.generic]]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _read_ckpt(path: str) -> dict[str, NDArray[np.generic]]:
    import mindspore

    return {name: _to_numpy(parameter) for name, parameter in mindspore.load_checkpoint(path).items()}


def _to_numpy(parameter: Parameter) -> NDArray[np.generic]:
    import mindspore

    if parameter.dtype == mindspore.bfloat16:
        parameter = parameter.astype(mindspore.float32)
    result: NDArray[np.generic] = parameter.asnumpy()
    return result


def is_float(values: NDArray[np.generic]) -> bool:
    return values.dtype.kind == "f"


def _check_finite(checkpoint: Checkpoint, unit: str) -> None:
    wrong = [name for name, values in checkpoint.tensors.items() if is_float(values) and not np.isfinite(values).all()]
    if wrong:
        raise BadCheckpoint(
            f"The checkpoint of {unit} {checkpoint.number} holds NaN or infinity in {listed(wrong)}: training had "
            "diverged. Leave it out of the interval."
        )


def _check_same(checkpoint: Checkpoint, last: Checkpoint, unit: str) -> None:
    mine, others = ({name: values.shape for name, values in c.tensors.items()} for c in (checkpoint, last))
    differing = sorted(name for name in mine.keys() | others.keys() if mine.get(name) != others.get(name))
    if differing:
        raise BadCheckpoint(
            f"The checkpoints of {unit} {checkpoint.number} and {last.number} differ in {listed(differing)}: they hold "
            f"{len(mine)} and {len(others)} parameters, and are of different networks, or one of them is damaged."
        )


def without_repeated(path: Sequence[Checkpoint], names: Sequence[str]) -> tuple[list[Checkpoint], list[int]]:
    """Return the checkpoints without those that hold the same weights as a later one, and the numbers of these.

    They would be the same point of a path; the last one, the origin, always stays.
    """
    kept: list[Checkpoint] = []
    dropped = []
    for checkpoint in reversed(path):
        if any(all(_same(checkpoint.tensors[name], other.tensors[name]) for name in names) for other in kept):
            dropped.append(checkpoint.number)
        else:
            kept.insert(0, checkpoint)
    return kept, sorted(dropped)


def _same(first: NDArray[np.generic], second: NDArray[np.generic]) -> bool:
    """Return True if two tensors of one shape are equal; a few of their numbers mostly tell."""
    some = slice(None, None, max(first.size // 64, 1))
    return np.array_equal(first.reshape(-1)[some], second.reshape(-1)[some]) and np.array_equal(first, second)


def listed(names: Sequence[object]) -> str:
    """Return the first names, and how many more there are."""
    return wording.listed([str(name) for name in names], _NAMED_AT_MOST)

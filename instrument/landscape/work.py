"""What is kept on disk while a landscape is computed, so that it can be gone on with, and by other processes.

    <directory>/landscape_unfinished/<tag>-<digest>/
        state.json     what the values depend on beside the plane
        samples.npz    the samples of all points
        points.log     one record a finished point, appended as it comes
        plane.npz, callback.pkl     for other processes only

The digest is that of the plane: another question has another folder. A record carries a checksum; a process that was
killed in the middle of one leaves a record that is cut off by the next.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import struct
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.errors import InstrumentError
from instrument.landscape.samples import Samples

FOLDER = "landscape_unfinished"
_STATE, _SAMPLES, _POINTS, _PLANE, _CALLBACK = "state.json", "samples.npz", "points.log", "plane.npz", "callback.pkl"
_CRC = struct.Struct("<I")


class Busy(InstrumentError, RuntimeError):
    """Another process computes the same landscape."""


@dataclass(frozen=True)
class State:
    """What the values depend on: the form of the computation, metrics, versions. `origin` are the values at (0, 0)."""

    graph: bool
    joined: bool
    unfold: bool
    early: bool
    difference: float
    metrics: list[str]
    versions: dict[str, str]
    origin: list[float]
    samples_digest: str


class Work:
    """The folder of one landscape, locked against other processes while it is open.

    Raises:
        Busy: another process has it.
        OSError: it cannot be made or written.
    """

    def __init__(self, directory: str, tag: str, digest: str) -> None:
        slug = re.sub(r"[^A-Za-z0-9_.-]+", "_", tag).strip("_")
        self.path = os.path.join(directory, FOLDER, f"{slug}-{digest[:12]}")
        os.makedirs(self.path, exist_ok=True)
        self._file = os.open(os.path.join(self.path, _POINTS), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise Busy(f"Another process computes {tag} in {directory} at this moment.") from error

    def __enter__(self) -> Work:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def remove(self) -> None:
        """It is finished: nothing of it is needed any more."""
        shutil.rmtree(self.path, ignore_errors=True)
        try:
            os.rmdir(os.path.dirname(self.path))
        except OSError:
            pass  # other landscapes are unfinished

    # ------------------------------------------------------------------ what the values depend on

    def load(self) -> tuple[State, Samples] | None:
        """What an earlier process began with; None where there is nothing that can be gone on with."""
        try:
            with open(os.path.join(self.path, _STATE), encoding="utf-8") as file:
                state = State(**json.load(file))
            with np.load(os.path.join(self.path, _SAMPLES), allow_pickle=False) as arrays:
                samples = Samples.of({name: arrays[name] for name in arrays.files})
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return (state, samples) if samples.digest() == state.samples_digest else None

    def begin(self, state: State, samples: Samples) -> None:
        """Start from nothing."""
        os.ftruncate(self._file, 0)
        self._write(_SAMPLES, lambda path: save_arrays(path, samples.arrays()))
        self._write(_STATE, lambda path: _save_json(path, asdict(state)))

    def share(self, plane: Mapping[str, NDArray[Any]], callback: bytes) -> None:
        """Write what other processes need beside."""
        self._write(_PLANE, lambda path: save_arrays(path, plane))
        self._write(_CALLBACK, lambda path: _save_bytes(path, callback))

    def _write(self, name: str, write: Any) -> None:
        """Whole, or not at all."""
        path = os.path.join(self.path, name)
        write(path + ".part")
        os.replace(path + ".part", path)

    # ------------------------------------------------------------------ finished points

    def add(self, point: int, values: NDArray[np.float64]) -> None:
        """A point is finished; `values` (1 + metrics,)."""
        data = struct.pack("<q", point) + values.astype("<f8").tobytes()
        data += _CRC.pack(zlib.crc32(data))
        try:
            if os.write(self._file, data) == len(data):
                return
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        raise OSError(f"{self.path} is full: what has been computed so far stands there.")

    def finished(self, columns: int, count: int) -> dict[int, NDArray[np.float64]]:
        """The points that are there already, (columns,) each; whatever follows a damaged record is cut off."""
        length = 8 + 8 * columns + _CRC.size
        with open(os.path.join(self.path, _POINTS), "rb") as file:
            data = file.read()
        result, offset = {}, 0
        while offset + length <= len(data):
            body, check = data[offset : offset + length - 4], data[offset + length - 4 : offset + length]
            point = int(struct.unpack_from("<q", body)[0])
            if _CRC.pack(zlib.crc32(body)) != check or not 0 <= point < count:
                break
            result[point] = np.frombuffer(body, "<f8", columns, 8).astype(np.float64)
            offset += length
        os.ftruncate(self._file, offset)
        os.lseek(self._file, 0, os.SEEK_END)
        return result


def shared(directory: str) -> tuple[State, Samples, dict[str, NDArray[Any]], bytes]:
    """What a process that only evaluates needs, out of the folder of another."""
    with open(os.path.join(directory, _STATE), encoding="utf-8") as file:
        state = State(**json.load(file))
    with np.load(os.path.join(directory, _SAMPLES), allow_pickle=False) as arrays:
        samples = Samples.of({name: arrays[name] for name in arrays.files})
    with np.load(os.path.join(directory, _PLANE), allow_pickle=False) as arrays:
        plane = {name: arrays[name] for name in arrays.files}
    with open(os.path.join(directory, _CALLBACK), "rb") as file:
        return state, samples, plane, file.read()


def save_arrays(path: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    named: dict[str, Any] = dict(arrays)  # NumPy 1.26 would take allow_pickle for the name of an array
    with open(path, "wb") as file:
        np.savez(file, **named)


def _save_json(path: str, data: Any) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file)


def _save_bytes(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)

"""Keep an unfinished landscape on disk, to resume it, and to share it with worker processes.

    <directory>/landscape_unfinished/<tag>-<digest>/
        state.json     what the values depend on beside the plane
        samples.npz    the samples of all points
        points.log     one record a finished point, appended as it comes
        plane.pkl, callback.pkl     for other processes only

The digest is that of the job: another job has another folder. A record carries a checksum; a process that was killed in
the middle of one leaves a record that is cut off by the next. Names of files and fields stay as they are: computations
that earlier releases began are resumed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pickle
import re
import shutil
import struct
import zlib
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.atomic_write import replacing
from instrument.errors import InstrumentError
from instrument.landscape.forward import Form
from instrument.landscape.model_parts import Samples
from instrument.landscape.plane import Plane

FOLDER = "landscape_unfinished"
_STATE, _SAMPLES, _POINTS, _PLANE, _CALLBACK = "state.json", "samples.npz", "points.log", "plane.pkl", "callback.pkl"
_CRC = struct.Struct("<I")


class AlreadyComputing(InstrumentError, RuntimeError):
    """Another process computes the same landscape."""


@dataclass(frozen=True)
class StoredState:
    """What the values depend on: the form of the computation, metrics, versions. `origin` are the values at (0, 0).

    The fields are the keys of `state.json`.
    """

    graph: bool
    joined: bool
    unfold: bool
    early: bool
    difference: float
    metrics: list[str]
    versions: dict[str, str]
    origin: list[float]
    samples_digest: str

    @property
    def form(self) -> Form:
        return Form(self.graph, self.joined, self.unfold, self.early)


class CheckpointStore:
    """The folder of one landscape, locked against other processes while it is open.

    Raises:
        AlreadyComputing: another process has it.
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
            raise AlreadyComputing(f"Another process computes {tag} in {directory} at this moment.") from error

    def __enter__(self) -> CheckpointStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def remove(self) -> None:
        """Remove the folder of a finished landscape."""
        shutil.rmtree(self.path, ignore_errors=True)
        try:
            os.rmdir(os.path.dirname(self.path))
        except OSError:
            pass  # other landscapes are unfinished

    # ------------------------------------------------------------------ what the values depend on

    def load(self) -> tuple[StoredState, Samples] | None:
        """Return what an earlier process began with; None if there is nothing to resume."""
        try:
            state, samples = _load(self.path)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return (state, samples) if samples.digest() == state.samples_digest else None

    def begin(self, state: StoredState, samples: Samples) -> None:
        """Remove all points, and store what new ones will depend on."""
        os.ftruncate(self._file, 0)
        arrays: dict[str, Any] = dict(samples.arrays())  # NumPy 1.26 would take allow_pickle for the name of an array
        with replacing(os.path.join(self.path, _SAMPLES)) as file:
            np.savez(file, **arrays)
        self._write(_STATE, json.dumps(asdict(state)).encode())

    def share(self, plane: Plane, callback: bytes) -> None:
        """Write what worker processes need besides."""
        self._write(_PLANE, pickle.dumps(plane))
        self._write(_CALLBACK, callback)

    def _write(self, name: str, data: bytes) -> None:
        with replacing(os.path.join(self.path, name)) as file:
            file.write(data)

    # ------------------------------------------------------------------ finished points

    def add(self, point: int, values: NDArray[np.float64]) -> None:
        """Append a finished point with its `values` (1 + metrics,)."""
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
        """Return the values (columns,) of each stored point, and cut off what follows a damaged record."""
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


def _load(directory: str) -> tuple[StoredState, Samples]:
    with open(os.path.join(directory, _STATE), encoding="utf-8") as file:
        state = StoredState(**json.load(file))
    with np.load(os.path.join(directory, _SAMPLES), allow_pickle=False) as arrays:
        return state, Samples.of({name: arrays[name] for name in arrays.files})


def shared(directory: str) -> tuple[StoredState, Samples, Plane, bytes]:
    """Return state, samples, plane and pickled callback from the folder of another process."""
    state, samples = _load(directory)
    with open(os.path.join(directory, _PLANE), "rb") as plane, open(os.path.join(directory, _CALLBACK), "rb") as file:
        return state, samples, pickle.load(plane), file.read()

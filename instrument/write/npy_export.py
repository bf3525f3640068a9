"""Tensors once more as `.npy` files, beside the event file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from instrument.descriptors import opener
from instrument.events import ArrayItem, Event, StagedItem
from instrument.ringfile.commit import Diagnostic, Report
from instrument.undo import UndoOnError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LONGEST_NAME_BYTES = 200


def export_tensors(event: Event, directory: str, report: Report) -> None:
    """Write each tensor of the event to `{directory}/tensor/{tag}_{step}.npy`; bfloat16 as float32.

    The tag is percent-encoded, so that different tags are different files inside the directory.
    """
    for item in event.items:
        if item.kind != "tensor" or not isinstance(item, (ArrayItem, StagedItem)):
            continue
        array = item.array if isinstance(item, ArrayItem) else item.array.array()
        path = os.path.join(directory, "tensor", f"{_file_stem(item.tag)}_{event.step}.npy")
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _save(path, array)
        except OSError as error:
            report(Diagnostic("export", event.step, path, os.strerror(error.errno or 0)))
        except ValueError as error:  # objects
            report(Diagnostic("export", event.step, path, str(error)))


def _save(path: str, array: NDArray[np.generic]) -> None:
    """Write an `.npy` file, or leave none behind."""
    import numpy as np

    partial = path + ".part"
    with UndoOnError(_remove, partial):
        with open(partial, "wb", opener=opener) as file:
            np.save(file, array, allow_pickle=False)
        os.replace(partial, path)


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.remove(path)


def _file_stem(tag: str) -> str:
    from urllib.parse import quote

    data = tag.encode("utf-8", "surrogatepass")
    stem = quote(data, safe="")
    if len(stem) <= _LONGEST_NAME_BYTES:
        return stem
    from hashlib import sha256

    # "~" is never percent-encoded, but a digest behind it makes a clash with a shorter tag's name impossible in effect.
    return f"{stem[: _LONGEST_NAME_BYTES - 65]}~{sha256(data).hexdigest()}"

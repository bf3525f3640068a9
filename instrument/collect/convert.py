"""Convert tensors, arrays and numbers to NumPy; the only place.

What is refused here never reaches a worker. Results may share memory with what was given; a caller that keeps them
makes a copy. Subclasses of NumPy's array are taken as plain arrays, but for masked ones: what is masked has no value,
so it becomes NaN in a scalar, tensor or picture, and is left out of a histogram.
"""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Sequence
from typing import Any, TypeGuard

import mindspore
import numpy as np
from numpy.typing import NDArray

from instrument.values import BFLOAT16, ArrayItem, ScalarItem, Text

_KINDS = frozenset("biuf")
#: The name of each type that is recorded as it is.
_NATIVE_NAMES = {
    np.dtype(name): name
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    )
}  # fmt: skip
_Tensor, _BFLOAT16_TYPE, _BFLOAT16_BYTES = mindspore.Tensor, mindspore.bfloat16, 2
_TENSORS = (mindspore.Tensor, mindspore.Parameter)
_Masked: Any = np.ma.MaskedArray
_TO_NUMBERS = "Convert it with numpy.asarray(value, numpy.float64)."
_OF_COMPLEX = "Record the parts of a complex value under names of their own."
_OF_TEXTS = "Texts have a kind of their own: add_value('text', name, value)."
_OF_DATES = "A date has no number of its own: record the seconds since another one."
#: What to do with arrays that are no numbers of up to 64 bits, by the kind of their dtype.
_HINTS = {
    "c": _OF_COMPLEX, "U": _OF_TEXTS, "S": _OF_TEXTS, "T": _OF_TEXTS, "M": _OF_DATES, "m": _OF_DATES, "O": _TO_NUMBERS,
    "f": "Convert it with value.astype(numpy.float64), which rounds it.",
    "V": "Record each field of a structured array under a name of its own.",
}  # fmt: skip


def is_tensor(value: object) -> TypeGuard[mindspore.Tensor]:
    """Return True for a MindSpore tensor or parameter, and for the tensors that its operators hand out."""
    return callable(getattr(value, "asnumpy", None))


def to_array(value: Any, tag: str, kind: str = "tensor") -> tuple[NDArray[np.generic], str]:
    """Return a C-contiguous array in native byte order and the name of the recorded dtype.

    `value` is a MindSpore tensor, a NumPy array or number, or a Python number. A bfloat16 tensor comes as float32.
    Masked floats come as NaN; for the kind "histogram", masked values of any type are left out of a flat array.

    Raises:
        TypeError: it is something else, or its numbers are complex, text or objects, or integers that are masked.
    """
    if type(value) in _TENSORS and value.itemsize != _BFLOAT16_BYTES:  # what is usual; to ask for the type takes longer
        array = value.asnumpy()
    elif is_tensor(value):
        if _is_bfloat16(value):
            return np.ascontiguousarray(_as_float32(value)), BFLOAT16
        array = value.asnumpy()
    elif isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        array = np.asarray(_without_mask(value, tag, kind) if isinstance(value, _Masked) else value)
    else:
        raise TypeError(
            f"The value of {tag!r} is a {type(value).__name__}; expected a MindSpore tensor, a NumPy array or a number."
            f"{_hint_of(value)}"
        )
    name = _NATIVE_NAMES.get(array.dtype)
    if name is not None and array.flags.c_contiguous:
        return array, name
    if array.dtype.name == BFLOAT16:
        return np.ascontiguousarray(array.astype(np.float32)), BFLOAT16
    if array.dtype.kind not in _KINDS or array.dtype.itemsize > 8:
        raise TypeError(
            f"The value of {tag!r} has dtype {array.dtype}; expected bool, integers or floats of at most 64 bits. "
            f"{_HINTS.get(array.dtype.kind, _TO_NUMBERS)}"
        )
    native = array.dtype.newbyteorder("=")
    return np.ascontiguousarray(array, native).reshape(array.shape), native.name


def _hint_of(value: object) -> str:
    """Return what to do with an object that is neither a tensor nor an array nor a number, as a sentence."""
    if isinstance(value, (str, bytes)):
        return f" {_OF_TEXTS}"
    if isinstance(value, numbers.Number):
        return f" {_OF_COMPLEX}" if isinstance(value, complex) else " Convert it with float(value)."
    if isinstance(value, (datetime.date, datetime.time, datetime.timedelta)):
        return f" {_OF_DATES}"
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        return f" {_TO_NUMBERS}"
    return ""


def _without_mask(value: Any, tag: str, kind: str) -> NDArray[Any]:
    """Return a plain array of a masked one; see `to_array`."""
    if value.dtype.kind not in _KINDS or not np.ma.is_masked(value):
        result: NDArray[Any] = value.data
    elif kind == "histogram":
        result = value.compressed()
    elif value.dtype.kind == "f":
        result = value.filled(np.nan)
    elif kind == "image" and value.dtype == np.uint8:
        result = value.filled(0)  # black, as NaN is drawn; the other pixels stay as they are
    elif kind in ("scalar", "image"):
        result = value.astype(np.float64).filled(np.nan)
    else:
        raise TypeError(
            f"The value of {tag!r} has masked elements of dtype {value.dtype}, which has no NaN for them; expected "
            "floats, or numbers without a mask. Give them a value with value.filled(n), or take value.astype(float)."
        )
    return result


def _is_bfloat16(tensor: mindspore.Tensor) -> bool:
    dtype = tensor.dtype  # MindSpore has one object a type; to compare two takes as long as a small copy
    return dtype is _BFLOAT16_TYPE if type(tensor) in _TENSORS else bool(dtype == _BFLOAT16_TYPE)


def _as_float32(tensor: mindspore.Tensor) -> NDArray[np.float32]:
    wrapped = tensor if isinstance(tensor, mindspore.Tensor) else mindspore.Tensor(tensor)
    result: NDArray[np.float32] = wrapped.astype(mindspore.float32).asnumpy()
    return result


def to_item(kind: str, tag: str, value: object) -> ScalarItem | ArrayItem:
    """Make a scalar, an image, a tensor or a histogram of a value.

    Raises:
        TypeError, ValueError: as `to_scalar`, `to_image` and `to_array`.
    """
    if kind == "scalar":
        return ScalarItem(tag, to_scalar(value, tag))
    if kind == "image":
        return ArrayItem(kind, tag, to_image(value, tag))
    array, dtype = to_array(value, tag, kind)
    return ArrayItem(kind, tag, array, dtype)


def to_scalar(value: Any, tag: str) -> float:
    """Return the number that is the value, or the only element of a tensor or array.

    Raises:
        TypeError: it is complex, text or no number at all.
        ValueError: there are more elements than one, or none, or an int is beyond float64.
    """
    if type(value) is float:
        return value
    if type(value) is _Tensor and value.itemsize != _BFLOAT16_BYTES:  # what is usual; to ask for the type takes longer
        try:
            number = value.item()
        except ValueError:  # more elements than one, or none; to ask for their number first costs all others time
            number = None
        if type(number) is float:
            return number
    if isinstance(value, int):
        return _int_to_float(value, tag)
    # item() is ten times faster than asnumpy(); of bfloat16 it ends the process with MindSpore 2.10 on NumPy 2.
    if is_tensor(value) and value.size == 1 and not _is_bfloat16(value):
        number = value.item()
        if isinstance(number, (bool, int)):
            return _int_to_float(number, tag)
        if isinstance(number, float):
            return number
    array, _ = to_array(value, tag, "scalar")
    if array.size != 1:
        raise ValueError(
            f"The scalar {tag!r} has shape {array.shape}; expected one element. Record it as a tensor or a histogram, "
            "or reduce it first."
        )
    return float(array.reshape(-1)[0])


def _int_to_float(value: int, tag: str) -> float:
    try:
        return float(value)
    except OverflowError:
        bits = value.bit_length()
        raise ValueError(f"The scalar {tag!r} has {bits} bits; expected what a float64 can hold.") from None


def to_image(value: object, tag: str) -> NDArray[np.generic]:
    """Return pictures as an array of shape (N, C, H, W), C being 1 or 3.

    One picture is (H, W), (C, H, W) or (H, W, C), and a batch (N, C, H, W) or (N, H, W, C). Where both places could be
    that of the channels, it is the earlier one, MindSpore's layout: (3, 8, 3) is 3 channels of 8 x 3 pixels, and
    (3, 8, 8) one picture in colour, not three grey ones.

    Raises:
        TypeError: as `to_array`.
        ValueError: it has another shape, or no pixel.
    """
    array, _ = to_array(value, tag, "image")
    shape = array.shape
    if not 2 <= array.ndim <= 4:
        raise ValueError(
            f"The image {tag!r} has shape {shape}; expected one picture, (H, W), (C, H, W) or (H, W, C), or a batch of "
            "them, (N, C, H, W) or (N, H, W, C)."
        )
    if array.size == 0:
        raise ValueError(f"The image {tag!r} has shape {shape}, which holds no pixel.")
    batch = array.reshape((1,) * (4 - array.ndim) + shape)
    if batch.shape[1] in (1, 3):
        return batch
    if batch.shape[3] in (1, 3):
        return np.ascontiguousarray(batch.transpose(0, 3, 1, 2))
    if array.ndim == 3:
        raise ValueError(
            f"The image {tag!r} has shape {shape}; expected 1 or 3 channels as first or last dimension. Of a batch of "
            "grey pictures give value[:, None], of one with more channels those to be shown."
        )
    raise ValueError(
        f"The image {tag!r} has shape {shape}; expected 1 or 3 channels as second or last dimension. "
        "Take the channels to be shown, for example value[:, :3]."
    )


def to_text(value: object, tag: str) -> Text:
    """Return a text, or a list or array of texts.

    Raises:
        TypeError: it is, or holds, something else.
        ValueError: a text is no valid Unicode.
    """
    if isinstance(value, (list, tuple)):
        value = _objects(value)
    elif isinstance(value, np.ndarray):
        value = value.astype(object)
    elif isinstance(value, str):
        value = np.array(str.__str__(value), object)
    else:
        raise TypeError(f"The text {tag!r} is a {type(value).__name__}; expected a str, or a list or array of str.")
    for index, text in enumerate(value.reshape(-1).tolist()):
        if not isinstance(text, str):
            raise TypeError(f"The text {tag!r} holds a {type(text).__name__}; expected str only.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"Text {index} of {tag!r} is no valid Unicode: {error.reason} at position {error.start}. "
                "Write it with text.encode('utf-8', 'backslashreplace').decode()."
            ) from None
    return Text(value)


def _objects(values: Sequence[object]) -> NDArray[np.object_]:
    """Return a flat array of the elements; NumPy would make more dimensions of elements that are sequences."""
    array = np.empty(len(values), object)
    for index, value in enumerate(values):
        array[index] = value
    return array

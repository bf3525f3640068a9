"""Framework tensor, array or number -> numpy; the only place.

What is refused here never reaches a worker. Results may share memory with what was given; whoever keeps them copies.
"""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
from numpy.typing import NDArray

from instrument.values import BFLOAT16, Item

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


def is_tensor(value: Any) -> bool:
    """Whether `value` is a MindSpore tensor or parameter, or one of the tensors that its operators hand out."""
    return callable(getattr(value, "asnumpy", None))


def to_array(value: Any, tag: str) -> tuple[NDArray[np.generic], str]:
    """A C-contiguous array in native byte order and the name of the recorded dtype.

    `value` is a MindSpore tensor, a NumPy array or number, or a Python number. A bfloat16 tensor comes as float32.

    Raises:
        TypeError: it is something else, or its numbers are complex, text or objects.
    """
    if type(value) in _TENSORS and value.itemsize != _BFLOAT16_BYTES:  # what is usual; to ask for the type takes longer
        array = value.asnumpy()
    elif is_tensor(value):
        if _is_bfloat16(value):
            return np.ascontiguousarray(_as_float32(value)), BFLOAT16
        array = value.asnumpy()
    elif isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        array = np.asarray(value)
    else:
        raise TypeError(
            f"The value of {tag!r} is a {type(value).__name__}; expected a MindSpore tensor, a NumPy array or a number."
        )
    name = _NATIVE_NAMES.get(array.dtype)
    if name is not None and array.flags.c_contiguous:
        return array, name
    if array.dtype.name == BFLOAT16:
        return np.ascontiguousarray(array.astype(np.float32)), BFLOAT16
    if array.dtype.kind not in _KINDS or array.dtype.itemsize > 8:
        raise TypeError(
            f"The value of {tag!r} has dtype {array.dtype}; expected bool, integers or floats of at most 64 bits. "
            "Record the parts of a complex value under names of their own."
        )
    native = array.dtype.newbyteorder("=")
    return np.ascontiguousarray(array, native).reshape(array.shape), native.name


def _is_bfloat16(tensor: Any) -> bool:
    dtype = tensor.dtype  # MindSpore has one object a type; to compare two takes as long as a small copy
    return dtype is _BFLOAT16_TYPE if type(tensor) in _TENSORS else bool(dtype == _BFLOAT16_TYPE)


def _as_float32(tensor: Any) -> NDArray[np.float32]:
    wrapped = tensor if isinstance(tensor, mindspore.Tensor) else mindspore.Tensor(tensor)
    result: NDArray[np.float32] = wrapped.astype(mindspore.float32).asnumpy()
    return result


def to_item(kind: str, tag: str, value: Any) -> Item:
    """A scalar, an image, a tensor or a histogram out of a value.

    Raises:
        TypeError, ValueError: as `to_scalar`, `to_image` and `to_array`.
    """
    if kind == "scalar":
        return Item(kind, tag, to_scalar(value, tag))
    if kind == "image":
        return Item(kind, tag, to_image(value, tag))
    array, dtype = to_array(value, tag)
    return Item(kind, tag, array, dtype)


def to_scalar(value: Any, tag: str) -> float:
    """A number out of a number, or out of a tensor or array with one element.

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
    array, _ = to_array(value, tag)
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


def to_image(value: Any, tag: str) -> NDArray[np.generic]:
    """A batch of pictures as (N, C, H, W), C being 1 or 3.

    (N, H, W, C) is told apart by its last extent; where both second and last could be channels, the second is taken,
    MindSpore's layout.

    Raises:
        TypeError: as `to_array`.
        ValueError: it is no such batch, or has no pixel.
    """
    array, _ = to_array(value, tag)
    shape = array.shape
    if array.ndim != 4:
        raise ValueError(
            f"The image {tag!r} has shape {shape}; expected four dimensions, (N, C, H, W) or (N, H, W, C). "
            "Add the missing ones with numpy.expand_dims or ops.expand_dims."
        )
    if array.size == 0:
        raise ValueError(f"The image {tag!r} has shape {shape}, which holds no pixel.")
    if shape[1] in (1, 3):
        return array
    if shape[3] in (1, 3):
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    raise ValueError(
        f"The image {tag!r} has shape {shape}; expected 1 or 3 channels as second or last dimension. "
        "Take the channels to be shown, for example value[:, :3]."
    )

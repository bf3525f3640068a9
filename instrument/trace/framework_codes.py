"""The numbers that stand for data types and formats in Framework files; there are three sets of them."""

from __future__ import annotations


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


def text(layout: str, data_type: str, is_ge: bool) -> tuple[str, str]:
    """Format and data type of a text file; MindSpore's own backend writes formats by name, GE as codes."""
    if not is_ge or _code(layout) < 0:
        name = _VM_TYPES.get(_code(data_type))
        return layout, f"NUMBER_TYPE_{name}" if name else _UNKNOWN
    form, name = _GE_FORMATS.get(_code(layout)), _GE_TYPES.get(_code(data_type))
    return f"FORMAT_{form}" if form else _UNKNOWN, f"DT_{name}" if name else _UNKNOWN


def binary(layout: int, data_type: int) -> tuple[str, str]:
    """Format and data type of a record."""
    form, type_ = (code - _BINARY_OFFSET if code >= _BINARY_OFFSET else code for code in (layout, data_type))
    return _BINARY_FORMATS.get(form, _UNKNOWN), _BINARY_TYPES.get(type_, _UNKNOWN)


def _code(text: str) -> int:
    return int(text) if len(text) < 10 and text.isascii() and text.isdecimal() else -1

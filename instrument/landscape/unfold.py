"""Convolutions as a matrix product, on the CPU.

MindSpore's kernel for convolutions larger than 1 x 1 does less than one GFLOP a second on a CPU; laying the windows of
the picture out as columns (`ops.unfold`) and multiplying is some twenty times as fast. Cells are changed in place, for
as long as the landscape is computed: they keep their parameters, names and place, and get another `construct`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mindspore import nn, ops


class _Unfolded(nn.Conv2d):
    """`nn.Conv2d` of one group, with its parameters: (N, C, H, W) to (N, O, H', W')."""

    def construct(self, x: Any) -> Any:
        batch, _, height, width = x.shape
        kernel, stride, dilation = self.kernel_size, self.stride, self.dilation
        top, bottom, left, right = _padding(self.pad_mode, self.padding, height, width, kernel, stride, dilation)
        if top + bottom + left + right > 0:
            x = ops.pad(x, (left, right, top, bottom))
        rows = _outputs(height + top + bottom, kernel[0], stride[0], dilation[0])
        columns = _outputs(width + left + right, kernel[1], stride[1], dilation[1])
        windows = ops.unfold(x, kernel, dilation, 0, stride)
        result = ops.matmul(ops.reshape(self.weight, (self.out_channels, -1)), windows)
        if self.has_bias:
            result = result + ops.reshape(self.bias, (1, -1, 1))
        return ops.reshape(result, (batch, self.out_channels, rows, columns))


def _outputs(size: int, kernel: int, stride: int, dilation: int) -> int:
    return (size - dilation * (kernel - 1) - 1) // stride + 1


def _padding(
    mode: str, given: Any, height: int, width: int, kernel: Any, stride: Any, dilation: Any
) -> tuple[int, int, int, int]:
    """Top, bottom, left, right, as MindSpore's own convolution has them."""
    if mode == "same":
        high = _same(height, kernel[0], stride[0], dilation[0])
        wide = _same(width, kernel[1], stride[1], dilation[1])
        return high // 2, high - high // 2, wide // 2, wide - wide // 2
    if mode == "pad":
        if isinstance(given, int):
            return given, given, given, given
        return given[0], given[1], given[2], given[3]
    return 0, 0, 0, 0


def _same(size: int, kernel: int, stride: int, dilation: int) -> int:
    """What is added to a side so that there is one output a stride."""
    wanted = ((size + stride - 1) // stride - 1) * stride + dilation * (kernel - 1) + 1
    return max(wanted - size, 0)


def convolutions(network: Any) -> list[Any]:
    """The cells for which the other form is the same, and faster."""
    return [
        cell
        for _, cell in network.cells_and_names()
        # A user's own class may do something else in its construct.
        if type(cell) is nn.Conv2d
        and cell.group == 1
        and tuple(cell.kernel_size) != (1, 1)
        and getattr(cell, "data_format", "NCHW") == "NCHW"
    ]


@contextmanager
def unfolded(network: Any) -> Iterator[None]:
    """Inside, the network's convolutions are matrix products."""
    cells = convolutions(network)
    try:
        for cell in cells:
            cell.__class__ = _Unfolded
        yield
    finally:
        for cell in cells:
            cell.__class__ = nn.Conv2d

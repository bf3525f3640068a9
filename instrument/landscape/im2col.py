"""im2col: convolutions as a matrix product, on the CPU.

MindSpore's kernel for convolutions larger than 1 x 1 does less than one GFLOP a second on a CPU; laying the windows of
the picture out as columns (`ops.unfold`) and multiplying is some twenty times as fast. Cells are changed in place, for
as long as the landscape is computed: they keep their parameters, names and place, and get another `construct`.

The first convolution has a form of its own. Where it is given the samples as they are, its windows are the same at all
points: NumPy lays them out once, and a point of LeNet-5 takes two thirds of the processor time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from instrument import framework

#: Of an extent down and across.
Pair = tuple[int, int]


class _Im2colConv2d(nn.Conv2d):
    """`nn.Conv2d` of one group, with its parameters: (N, C, H, W) to (N, O, H', W')."""

    def construct(self, x: Tensor) -> Tensor:
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
    mode: str, given: int | tuple[int, ...], height: int, width: int, kernel: Pair, stride: Pair, dilation: Pair
) -> tuple[int, int, int, int]:
    """Return top, bottom, left and right, as MindSpore's own convolution has them."""
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
    """Return what is added to a side so that there is one output a stride."""
    wanted = ((size + stride - 1) // stride - 1) * stride + dilation * (kernel - 1) + 1
    return max(wanted - size, 0)


def convolutions(network: nn.Cell) -> list[nn.Conv2d]:
    """Return the cells for which a matrix product is the same, and faster."""
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
def with_im2col(network: nn.Cell) -> Iterator[None]:
    """Compute the network's convolutions as matrix products inside the block."""
    cells = convolutions(network)
    try:
        for cell in cells:
            cell.__class__ = _Im2colConv2d
        yield
    finally:
        for cell in cells:
            cell.__class__ = nn.Conv2d


# ---------------------------------------------------------------- the first one, of samples that stay the same


class _ColumnsConv2d(nn.Conv2d):
    """`nn.Conv2d` of one group, of windows (N, C * kernel, H' * W') to (N, O, H', W')."""

    def construct(self, windows: Tensor) -> Tensor:
        result = ops.matmul(ops.reshape(self.weight, (self.out_channels, -1)), windows)
        if self.has_bias:
            result = result + ops.reshape(self.bias, (1, -1, 1))
        return ops.reshape(result, (windows.shape[0], self.out_channels, *self.window_places))


class _Captured(Exception):
    """Carries the input of a convolution to where it is caught."""


class _CapturingConv2d(nn.Conv2d):
    def construct(self, x: Tensor) -> Tensor:
        raise _Captured(x)


def first_convolution(network: nn.Cell, forward: Callable[[], object], data: NDArray[np.generic]) -> nn.Conv2d | None:
    """Return the convolution that is given `data` (N, C, H, W) as they are when `forward()` is called, or None."""
    fitting = [cell for cell in convolutions(network) if data.ndim == 4 and cell.in_channels == data.shape[1]]
    if not fitting or data.dtype != np.float32:
        return None
    cell, mode = fitting[0], mindspore.get_context("mode")
    try:
        cell.__class__ = _CapturingConv2d
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
        forward()
    except _Captured as given:
        return cell if np.array_equal(given.args[0].asnumpy(), data) else None
    except framework.OPERATOR_ERRORS:  # layers before the convolution fail: it is not given the data as they are
        return None
    finally:
        cell.__class__ = nn.Conv2d
        mindspore.set_context(mode=mode)
    return None


def im2col(cell: nn.Conv2d, data: NDArray[np.generic]) -> tuple[NDArray[np.generic], Pair]:
    """Return the windows (N, C * kernel, H' * W') of `data` (N, C, H, W), and (H', W')."""
    count, channels, height, width = data.shape
    (high, wide), (down, right), (far, aside) = cell.kernel_size, cell.stride, cell.dilation
    top, bottom, left, beside = _padding(
        cell.pad_mode, cell.padding, height, width, cell.kernel_size, cell.stride, cell.dilation
    )
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, beside)))
    extent = (far * (high - 1) + 1, aside * (wide - 1) + 1)
    windows = sliding_window_view(padded, extent, axis=(2, 3))[:, :, ::down, ::right, ::far, ::aside]
    places = (windows.shape[2], windows.shape[3])
    columns = windows.transpose(0, 1, 4, 5, 2, 3).reshape(count, channels * high * wide, -1)
    return np.ascontiguousarray(columns), places


@contextmanager
def with_columns(cell: nn.Conv2d, places: Pair) -> Iterator[None]:
    """Let the convolution take windows inside the block; there are `places` of them down and across."""
    before = cell.__class__
    cell.window_places = places
    cell.__class__ = _ColumnsConv2d
    try:
        yield
    finally:
        cell.__class__ = before
        del cell.window_places

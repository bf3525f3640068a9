"""The masked CRC-32C of event files."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from importlib.machinery import PathFinder


def _load() -> Callable[..., int]:
    """Return `crc32c.crc32c` of the package's compiled module.

    The package itself asks for its own version when it is imported, which reads the metadata of what is installed: more
    than half of the time that a worker takes to start.
    """
    package = importlib.util.find_spec("crc32c")
    if package is not None and package.submodule_search_locations:
        spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            if callable(getattr(module, "crc32c", None)):
                function: Callable[..., int] = module.crc32c
                return function
    from crc32c import crc32c  # a version that is built otherwise

    return crc32c


crc32c = _load()

MASK_DELTA = 0xA282EAD8


def mask(crc: int) -> int:
    """Rotate right by 15 bits and add a constant, so that a checksum of checksums is no fixed point."""
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def masked_crc(pieces: Iterable[bytes | memoryview]) -> int:
    """Return the masked CRC-32C of the concatenation of `pieces`."""
    crc = 0
    for piece in pieces:
        crc = crc32c(piece, crc)
    return mask(crc)


def unmask(masked: int) -> int:
    """Return the checksum that `mask` made this of."""
    rotated = (masked - MASK_DELTA) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF

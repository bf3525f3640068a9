"""Every error of ours that is not a plain `TypeError` or `ValueError`."""

from __future__ import annotations


class InstrumentError(Exception):
    """Base of all errors raised by `instrument` itself."""


class CorruptFrame(InstrumentError):
    """A frame whose checksum or length is wrong.

    `offset` counts bytes from the start of what was read; `path` is empty where only bytes were given.
    """

    def __init__(self, reason: str, offset: int, path: str = "") -> None:
        super().__init__(f"{path or 'frame'} at byte {offset}: {reason}")
        self.reason = reason
        self.offset = offset
        self.path = path


class CorruptMessage(InstrumentError, ValueError):
    """A payload that is no message of the expected kind."""


class RecordingError(InstrumentError, RuntimeError):
    """Something that was recorded could not be written; raised only with `raise_exception=True`."""


class FrameworkError(InstrumentError, RuntimeError):
    """The installed MindSpore lacks something that we rely on."""


class NoSuchRun(InstrumentError, LookupError):
    """A path that holds no event file, or a run that lacks what was asked for."""

"""The interface of a device's profiler. `instrument.profiler.backends` chooses one."""

from __future__ import annotations

from typing import Protocol


class Backend(Protocol):
    """The profiler of one device. It reads no file that it collects. Each call may raise what MindSpore raises."""

    #: "cpu", "ascend" or "gpu", as the trace has it.
    kind: str
    #: The options that have an effect on this device.
    effective: frozenset[str]

    def prepare(self) -> None:
        """Do what takes time, once."""

    def expect(self, is_next: bool) -> None:
        """Record the data that is loaded for the next step, which opens a window. With False, stop doing so."""

    def start(self, directory: str) -> None:
        """Begin a window whose files go to `directory`, which is empty."""

    def stop(self) -> None:
        """End the window. Its files are complete when this returns."""

    def facts(self) -> dict[str, object]:
        """Return what else is known of the window that has ended, by the keys of the trace's metadata."""

"""A device without a device, an analysis without one, and what tests read back."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.analyse import trace_files
from instrument.profiler.options import Options
from instrument.profiler.window import MARK


class FakeBackend:
    """Writes `files` when a window closes; `fail_start` and `fail_stop` are raised instead of work."""

    kind = "ascend"
    effective = frozenset(Options.__dataclass_fields__)

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"hwts.data.0.slice_0": b"\0" * 64}
        self.fail_start: BaseException | None = None
        self.fail_stop: BaseException | None = None
        self.calls: list[str] = []
        self.directory = Path()

    def prepare(self) -> None:
        self.calls.append("prepare")

    def expect(self, is_next: bool) -> None:
        self.calls.append(f"expect {is_next}")

    def start(self, directory: str) -> None:
        self.directory = Path(directory)
        self.calls.append("start")
        if self.fail_start is not None:
            raise self.fail_start

    def stop(self) -> None:
        self.calls.append("stop")
        if self.fail_stop is not None:
            raise self.fail_stop
        for name, data in self.files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def facts(self) -> dict[str, object]:
        return {}


class FakeProfile:
    """What the analysis is expected to give."""

    def __init__(self, path: str, window: int) -> None:
        self.path, self.window = path, window
        self.calls: list[tuple[Any, ...]] = []

    def save(self, directory: str, pretty: bool) -> None:
        self.calls.append(("save", directory, pretty))

    def of_steps(self, first: int, last: int) -> FakeProfile:
        self.calls.append(("of_steps", first, last))
        return self

    def op_analyse(self, op_name: Any, device_id: int | None) -> str:
        return json.dumps([op_name, device_id])

    def key_averages(self) -> FakeProfile:
        return self

    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        return f"{sort_by} {row_limit}"

    def export_chrome_trace(self, path: Any) -> None:
        Path(path).write_text("{}")


def fake_analysis(monkeypatch: pytest.MonkeyPatch) -> list[FakeProfile]:
    """Put an analysis in the place of the real one; all that it made."""
    made: list[FakeProfile] = []

    def profile(path: str, window: int = -1, device: int | None = None) -> FakeProfile:
        made.append(FakeProfile(path, window))
        return made[-1]

    module = types.ModuleType("instrument.analyse.profile")
    module.profile = profile  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "instrument.analyse", types.ModuleType("instrument.analyse"))
    monkeypatch.setitem(sys.modules, "instrument.analyse.profile", module)
    return made


class Read:
    """A window as a reader sees it."""

    def __init__(self, window: trace_files.StoredWindow) -> None:
        assert window.problems == []
        self.number, self.device, self.kinds = window.number, window.device, window.kinds
        self.files = {name: b"".join(parts) for name, parts in window.files.items()}
        (described,) = [name for name in self.files if name.startswith("instrument.window.")]
        self.rank = int(described.split(".")[2])
        self.about: dict[str, Any] = json.loads(self.files[described])
        self.names: list[str] = json.loads(self.files[f"instrument.names.{self.rank}.json"])
        self.marks = np.frombuffer(self.files[f"instrument.marks.{self.rank}.bin"], MARK)

    def of_kind(self, kind: int) -> list[tuple[str, int]]:
        """Name and number of the marks of a kind, by their starts."""
        return [(self.names[one["name"]], int(one["number"])) for one in self.marks if one["kind"] == kind]

    @property
    def steps(self) -> list[int]:
        return [number for _, number in self.of_kind(1)]

    @property
    def raw(self) -> dict[str, bytes]:
        """The device's own files."""
        return {name: data for name, data in self.files.items() if self.kinds[name] != "instrument"}


def windows(path: Path) -> list[Read]:
    return [Read(one) for one in trace_files.windows(path)]

"""How much memory reading takes: `python -m tests.runs.peaks FOLDER...` reads and checks what is in each.

It prints JSON, a line a folder. Each is read in a process of its own, forked from one that has imported everything, so
that its largest resident memory is what reading it took beyond that.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import PIL.Image
from PIL import PngImagePlugin

from instrument.analyse import trace_files
from instrument.codec import graph, image
from instrument.errors import CorruptMessage, InstrumentError
from instrument.runs import verify
from instrument.runs.run import Run, read_run
from instrument.values import Graph, Image
from tests import protobuf

_DECODED_A_TAG = 3


def read_all(path: str) -> int:
    """How many values were decoded, some of each tag."""
    run, count = read_run(path), 0
    for kind, tags in run.tags().items():
        for tag in tags:
            points = run.points(kind, tag, superseded=True)
            for index in range(min(len(points), _DECODED_A_TAG)):
                count += _decoded(points, index)
    _ = run.lineage, run.damage, run.gaps, run.landscapes, run.extent(), repr(run)
    _windows(run)
    return count


def _decoded(points: Any, index: int) -> bool:
    try:
        value = points.decode(index)
        if isinstance(value, Image):
            image.pixels(value)
        if isinstance(value, Graph):
            for _ in graph.nodes(value):
                pass
    except CorruptMessage:
        return False
    return True


def _windows(run: Run) -> None:
    try:
        for path in run.traces:
            trace_files.windows(path)
    except InstrumentError:
        pass


def _peak_bytes() -> int:
    match = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


def _measure(folder: str) -> None:
    for what in (read_all, lambda path: [verify.check(file) for file in verify.files_at(path)[0]]):
        started, before = time.process_time(), _peak_bytes()
        what(folder)
        figures = {"folder": folder, "peak_bytes": _peak_bytes() - before, "cpu_s": time.process_time() - started}
        print(json.dumps(figures), flush=True)


def main() -> None:
    PIL.Image.init()
    assert PngImagePlugin
    protobuf.message_class("LineageEvent")
    for folder in sys.argv[1:]:
        child = os.fork()
        if not child:
            try:
                _measure(folder)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the figures are missing then
                print(json.dumps({"folder": folder, "failure": f"{type(error).__name__}: {error}"[:500]}), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()

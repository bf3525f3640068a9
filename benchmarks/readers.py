"""One reader on one folder, in this process: `python readers.py READER FOLDER` prints its figures as JSON.

Libraries are imported first. `cpu_s` is processor time from opening the folder until every value can be had, `peak_mb`
the largest resident memory of the process that reads (for rustboard: of its server).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import mmap
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
_PLUGINS = ("scalars", "images", "histograms", "audio", "text", "hparams", "pr_curves", "mesh", "graphs", "weights")
_PATIENCE_S = 600


def _timed(read: Callable[[], int]) -> Figures:
    cpu, wall = time.process_time(), time.perf_counter()
    count = read()
    return {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall, "values": count}


def _ours(folder: Path, decode: bool) -> Figures:
    from instrument.runs import event_file
    from instrument.runs.run import read_run

    assert event_file

    def run() -> int:
        opened = read_run(folder)
        found = [opened.points(kind, tag) for kind, tags in opened.tags().items() for tag in tags]
        if decode:
            for points in found:
                for _ in points:
                    pass
        return sum(map(len, found))

    return _timed(run)


def ours(folder: Path) -> Figures:
    """All numbers as columns, all other values found and checked, every checksum checked."""
    return _ours(folder, decode=False)


def ours_decoded(folder: Path) -> Figures:
    """The same, and then each value as an object of its own."""
    return _ours(folder, decode=True)


def _listed(folder: Path, cache: str) -> Figures:
    """`instrument ls` on a tree, with an index in `cache`."""
    from instrument.runs import event_file
    from instrument.show.cli import ls, main

    assert event_file
    assert ls
    os.environ["XDG_CACHE_HOME"] = cache

    def run() -> int:
        if main(["ls", "--json", str(folder)]):
            raise RuntimeError("nothing was listed")
        return sum(1 for _ in folder.iterdir())

    return _timed(run)


def ours_cold(folder: Path) -> Figures:
    """A tree, listed for the first time: all of it is read."""
    with tempfile.TemporaryDirectory() as cache:
        return _listed(folder, cache)


def ours_again(folder: Path) -> Figures:
    """A tree that was listed before, by another process; its files are looked at, and not read."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        command = [sys.executable, "-m", "instrument", "ls", "--json", str(folder)]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        return _listed(folder, cache)


def accumulator(folder: Path) -> Figures:
    from tensorboard.backend.event_processing import event_accumulator

    def run() -> int:
        box = event_accumulator.EventAccumulator(str(folder), event_accumulator.STORE_EVERYTHING_SIZE_GUIDANCE)
        box.Reload()
        tags = box.Tags()
        kinds = {"scalars": box.Scalars, "histograms": box.Histograms, "tensors": box.Tensors}
        return sum(len(get(tag)) for kind, get in kinds.items() for tag in tags[kind])

    return _timed(run)


def tbparse(folder: Path) -> Figures:
    reader = importlib.import_module("tbparse").SummaryReader

    def run() -> int:
        found = reader(str(folder))
        return len(found.scalars) or len(found.tensors)

    return _timed(run)


def _rustboard(folder: Path, checksum: bool) -> Figures:
    """The data server, all samples kept, until it says that it has read everything; its own time and memory."""
    server = importlib.import_module("tensorboard_data_server").server_binary()
    command = [server, f"--logdir={folder}", "--reload=once", "--port=0", "-v", "-v", "--host=localhost"]
    command += ["--samples-per-plugin=" + ",".join(f"{plugin}=all" for plugin in _PLUGINS)]
    started = time.perf_counter()
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(
            command + ["--checksum"] * checksum, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            while not re.search(r"(?i)finished load cycle", Path(log.name).read_text(errors="replace")):
                if process.poll() is not None or time.perf_counter() - started > _PATIENCE_S:
                    raise RuntimeError(Path(log.name).read_text(errors="replace")[-500:])
                time.sleep(0.002)
            wall_s = time.perf_counter() - started
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.kill()
            process.wait()
    match = re.search(r"VmHWM:\s+(\d+)", status)
    assert match is not None
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return {"cpu_s": cpu_s, "wall_s": wall_s, "peak_mb": int(match[1]) * 1024 / 1e6}


def rustboard(folder: Path) -> Figures:
    return _rustboard(folder, checksum=False)


def rustboard_checksum(folder: Path) -> Figures:
    return _rustboard(folder, checksum=True)


def mindinsight(folder: Path) -> Figures:
    """Its loader with its classes in this process, as many samples kept as it keeps."""
    import numpy as np

    os.environ["MINDINSIGHT_WORKSPACE"] = tempfile.mkdtemp()
    for name, value in (("PINF", np.inf), ("NINF", -np.inf)):
        if not hasattr(np, name):
            setattr(np, name, value)
    loader = importlib.import_module("mindinsight.datavisual.data_transform.data_loader").DataLoader(str(folder))
    executor = importlib.import_module("mindinsight.utils.computing_resource_mgr").Executor
    future = importlib.import_module("concurrent.futures").Future

    class Inline(executor):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            pass

        def __enter__(self) -> Inline:
            return self

        def __exit__(self, *_: object) -> bool:
            return False

        def submit(self, function: Any, *arguments: Any, **named: Any) -> Any:
            result = future()
            result.set_result(function(*arguments, **named))
            return result

        def add_done_callback(self, *_: object) -> None:
            pass

    def run() -> int:
        with Inline() as inline:
            while not loader.load(inline):
                pass
        data = loader.get_events_data()
        return sum(len(data.tensors(tag)) for tag in data._tags)

    return _timed(run)


def plain(folder: Path) -> Figures:
    """The obvious loop: a mapped file, both checksums by the crc32c package, protobuf, lists a tag."""
    crc32c = importlib.import_module("crc32c").crc32c
    event_class: Any = importlib.import_module("tensorboard.compat.proto.event_pb2").Event
    (path,) = folder.iterdir()

    def mask(crc: int) -> int:
        return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF

    def run() -> int:
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        found: dict[str, list[tuple[float, int, Any]]] = {}
        offset = 0
        while offset < len(data):
            length, of_length = struct.unpack_from("<QI", data, offset)
            payload = data[offset + 12 : offset + 12 + length]
            (of_payload,) = struct.unpack_from("<I", data, offset + 12 + length)
            if mask(crc32c(data[offset : offset + 8])) != of_length or mask(crc32c(payload)) != of_payload:
                raise ValueError(offset)
            event = event_class.FromString(payload)
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                content = value.simple_value if kind == "simple_value" else value
                found.setdefault(value.tag, []).append((event.wall_time, event.step, content))
            offset += 16 + length
        return sum(map(len, found.values()))

    return _timed(run)


#: Reader -> (what reads, the dialect it reads, packages whose versions count).
READERS: dict[str, tuple[Callable[[Path], Figures], str, tuple[str, ...]]] = {
    "ours": (ours, "mindspore", ("numpy", "crc32c")),
    "ours_tensorboard": (ours, "tensorboard", ("numpy", "crc32c")),
    "ours_decoded": (ours_decoded, "mindspore", ("numpy", "crc32c")),
    "rustboard": (rustboard, "tensorboard", ("tensorboard-data-server",)),
    "rustboard_checksum": (rustboard_checksum, "tensorboard", ("tensorboard-data-server",)),
    "plain": (plain, "tensorboard", ("protobuf", "crc32c")),
    "accumulator": (accumulator, "tensorboard", ("tensorboard",)),
    "tbparse": (tbparse, "tensorboard", ("tbparse",)),
    "mindinsight": (mindinsight, "mindspore", ("mindinsight",)),
}
#: Those of a tree of runs, in place of `ours`.
TREE_READERS: dict[str, tuple[Callable[[Path], Figures], str, tuple[str, ...]]] = {
    "ours_cold": (ours_cold, "mindspore", ("numpy", "crc32c")),
    "ours_again": (ours_again, "mindspore", ("numpy", "crc32c")),
}


def main() -> None:
    read, _, packages = {**READERS, **TREE_READERS}[sys.argv[1]]
    with contextlib.redirect_stdout(sys.stderr):
        figures = read(Path(sys.argv[2]))
    figures.setdefault("peak_mb", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)
    figures["versions"] = {name: metadata.version(name) for name in packages}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

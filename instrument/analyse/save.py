"""Save a profile: the report, each table as CSV, all of it as JSON, and the folder that MindInsight's pages read."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping

from instrument._version import __version__
from instrument.analyse import advice, mindinsight, report, stragglers
from instrument.analyse.table import Table
from instrument.analyse.tables import ProfileTables
from instrument.atomic_write import replacing
from instrument.trace.jsontext import Json

_IDENTITY = "window.json"
_TABLES = (
    "steps", "step_parts", "operators", "operator_types", "sides", "memory", "memory_peaks", "idle", "idle_streams",
    "overlap", "spans", "pipeline", "batches", "problems", "windows",
)  # fmt: skip


def save(profile: ProfileTables, directory: str, pretty: bool = False) -> list[str]:
    """Write `profile_<window>_<device>/` and `profiler/` below `directory` for each device. Return the paths.

    The first has `report.txt`, `profile.json` and a CSV file for each table that has rows. `window.json` says which
    window it is of. Saved again, the same window replaces its files, each at once. Where another one has its number, as
    of another profiler or an earlier run in the directory, the next free number is taken. The second folder holds the
    window that was saved last.

    Raises:
        OSError: they cannot be written.
    """
    written = []
    devices = profile.each()
    for device in devices:
        identity = _identity(device)
        folder = _folder(directory, device, identity)
        written.append(_write(folder, _IDENTITY, json.dumps(identity)))
        written += [_write(folder, name, text) for name, text in _files(device, pretty)]
        folder = os.path.join(directory, mindinsight.FOLDER)
        written += [_write(folder, name, text) for name, text in mindinsight.files(device, len(devices))]
    return written


def _identity(profile: ProfileTables) -> dict[str, Json]:
    """Return what identifies a window, however it was opened."""
    metadata = profile.metadata
    if isinstance(metadata.get("start_ns"), int):
        return {name: _plain(metadata.get(name)) for name in ("start_ns", "host", "pid")}
    return {"path": os.path.abspath(profile.path), "window": profile.number}


def _folder(directory: str, profile: ProfileTables, identity: dict[str, Json]) -> str:
    for number in itertools.count(profile.number):
        folder = os.path.join(directory, f"profile_{number}_{profile.device}")
        if not os.path.lexists(folder) or _saved_identity(folder) == identity:
            return folder
    raise AssertionError("numbers do not end")


def _saved_identity(folder: str) -> Json:
    try:
        with open(os.path.join(folder, _IDENTITY), encoding="utf-8") as file:
            identity: Json = json.loads(file.read(1 << 16))
            return identity
    except (OSError, ValueError):
        return None


def _files(profile: ProfileTables, pretty: bool) -> Iterator[tuple[str, str]]:
    yield "report.txt", f"{report.text(profile)}\n"
    yield "profile.json", json.dumps(to_json(profile), indent=1 if pretty else None, ensure_ascii=False)
    for table in tables(profile):
        if len(table):
            yield f"{table.name}.csv", table.to_csv()


def tables(profile: ProfileTables) -> list[Table]:
    """Return all tables of a profile."""
    ranks = profile.each()
    spread = stragglers.spread(ranks)
    return [*(getattr(profile, name) for name in _TABLES), stragglers.devices(ranks, spread), spread]


def to_json(profile: ProfileTables) -> dict[str, Json]:
    """Return all of a profile as values that `json.dumps` takes, without NaN."""
    return {
        "instrument": __version__,
        "path": profile.path,
        "window": profile.number,
        "device": profile.device,
        "target": profile.target,
        "clock": profile.capture.clock,
        "metadata": _plain(profile.metadata),
        "left_out": dict[str, Json](profile.counted.left_out),
        "clipped": profile.counted.clipped,
        "clipped_ns": profile.counted.clipped_ns,
        "advice": list[Json](advice.sentences(profile)),
        "tables": {table.name: table.to_json() for table in tables(profile)},
    }


def _plain(value: object) -> Json:
    """Return `value` for JSON: NaN and infinities are None, and what JSON does not know is text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def _write(folder: str, name: str, text: str | Iterable[str]) -> str:
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with replacing(path, "x", encoding="utf-8", errors="backslashreplace", newline="") as file:
        file.writelines([text] if isinstance(text, str) else text)
    return path

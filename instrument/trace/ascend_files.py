"""The names of the raw files of an Ascend device, and what is read from each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from instrument.trace.records import Chunks

#: Kind -> the names it has had, without the number of the device.
_NAMES: dict[str, tuple[str, ...]] = {
    "hwts": ("hwts.log.data.45.dev.profiler_default_tag", "hwts.data"),
    "training_trace": ("training_trace.46.dev.profiler_default_tag",),
    "ts_track": ("ts_track.data",),
    "aicpu": ("DATA_PREPROCESS.dev.AICPU", "DATA_PREPROCESS.AICPU"),
    "aicpumi": ("DATA_PREPROCESS.dev.AICPUMI", "DATA_PREPROCESS.AICPUMI"),
    "dp": ("DATA_PREPROCESS.dev.DP", "DATA_PREPROCESS.DP"),
    "tdt": ("DATA_PREPROCESS.dev.TDT", "DATA_PREPROCESS.TDT"),
    "task_desc": (
        "Framework.host.vm.task_desc_info", "Framework.host.vm_task_desc_info", "Framework.host.task_desc_info",
        "Framework.task_desc_info",
    ),
    "graph_desc": (
        "Framework.host.vm.graph_desc_info", "Framework.host.vm_graph_desc_info", "Framework.host.graph_desc_info",
        "Framework.graph_desc_info",
    ),
    "point": ("Framework.host.vm.point", "Framework.host.vm_point", "Framework.host.point", "Framework.point"),
    "tensor_data": ("Framework.tensor_data_info",),
    "step_info": ("Framework.step_info",),
    "hash_dic": ("Framework.hash_dic",),
    "host_start": ("host_start.log",),
    "dev_start": ("dev_start.log",),
    "info": ("info.json",),
    "start_info": ("start_info",),
    "end_info": ("end_info",),
}  # fmt: skip
#: These are one for the whole job in newer builds: their names then have no device.
_OF_ALL_DEVICES = frozenset({"host_start", "info", "start_info", "end_info"})
_NO_CONTENT = (".done", ".zip", ".join")
_TABLE_OF_FETCHES = "minddata_aicpu_"
_KIND_OF = {name: kind for kind, names in _NAMES.items() for name in names}


class Recognised(NamedTuple):
    """What a file is; `device` is None where it is of all devices."""

    kind: str
    device: int | None


class Source(NamedTuple):
    """A raw file: its name as it was given, and its content."""

    name: str
    data: Chunks


def recognise(name: str) -> Recognised | None:
    """What a raw file is by its name, which may have folders before it; None for what is not read here.

    `hwts.data.0`, `data/hwts.data.0` and `hwts.data.0.JOBABC` are all ("hwts", 0).
    """
    base = name.rpartition("/")[2]
    if base.endswith(_NO_CONTENT):
        return None
    if base.startswith(_TABLE_OF_FETCHES) and base.endswith(".txt"):
        device = base.removeprefix(_TABLE_OF_FETCHES).removesuffix(".txt")
        return Recognised("fetch_table", int(device)) if _is_number(device) else None
    if _KIND_OF.get(base) in _OF_ALL_DEVICES:
        return Recognised(_KIND_OF[base], None)
    parts = base.split(".")
    for place in range(len(parts) - 1, 0, -1):
        kind = _KIND_OF.get(".".join(parts[:place]))
        if kind is not None and _is_number(parts[place]):
            return Recognised(kind, int(parts[place]))
    return None


def sources(files: Mapping[str, Chunks], device: int) -> tuple[dict[str, Source], list[str]]:
    """The file of each kind that is of this device, and the names of those that are of a kind already there.

    A file of the device itself comes before one of all devices; else the first one is taken.
    """
    found: dict[str, Source] = {}
    others = []
    known = [(name, what) for name in files if (what := recognise(name)) is not None]
    for wanted in (device, None):
        for name, what in known:
            if what.device != wanted:
                continue
            if what.kind not in found:
                found[what.kind] = Source(name, files[name])
            elif wanted is not None:
                others.append(name)
    return found, others


def _is_number(text: str) -> bool:
    return len(text) <= 9 and text.isascii() and text.isdecimal()

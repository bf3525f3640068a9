"""What a raw file is, by its name."""

from __future__ import annotations

import re
from typing import NamedTuple

#: Kind of the raw files of an Ascend device, which are read together.
ASCEND = "ascend"
_DEVICE = r"_(?P<device>\d{1,9})"
_ANY = r"(?:[._-][\w.-]*)?"
#: Kind -> the base name; the sources of one thing are in the order in which they are believed, see `load`.
_PATTERNS = {
    "window": r"instrument\.window\.(?P<device>\d{1,9})\.json",
    "marks": r"instrument\.marks\.(?P<device>\d{1,9})\.bin",
    "names": r"instrument\.names\.(?P<device>\d{1,9})\.json",
    "cpu_executions": rf"cpu_op_execute_timestamp{_DEVICE}\.txt",
    "cpu_framework": rf"cpu_framework{_DEVICE}\.txt",
    "cpu_detail": rf"cpu_op_detail_info{_DEVICE}\.csv",
    "cpu_types": rf"cpu_op_type_info{_DEVICE}\.csv",
    "cpu_memory": rf"cpu_ms_memory_record{_DEVICE}\.txt",
    "gpu_executions": rf"gpu_op_execute_timestamp{_DEVICE}\.txt",
    "gpu_framework": rf"gpu_framework{_DEVICE}\.txt",
    "gpu_detail": rf"gpu_op_detail_info{_DEVICE}\.csv",
    "gpu_types": rf"gpu_op_type_info{_DEVICE}\.csv",
    "gpu_kernels": rf"gpu_activity_data{_DEVICE}\.csv",
    "gpu_activities": rf"activity_execute_timestamp{_DEVICE}\.txt",
    "gpu_steps": rf"step_trace_profiling{_DEVICE}\.txt",
    "gpu_start": rf"start_time{_DEVICE}\.txt",
    "pipeline": rf"pipeline_profiling{_DEVICE}\.json",
    "pipeline_table": rf"minddata_pipeline_raw{_DEVICE}\.csv",
    "device_queue": rf"device_queue_profiling{_DEVICE}\.txt",
    "iterator": rf"dataset_iterator_profiling{_DEVICE}\.txt",
    "cpu_use": rf"minddata_cpu_utilization{_DEVICE}\.json",
    "get_next": rf"minddata_getnext_profiling{_DEVICE}\.txt",
    "kernel_details": r"kernel_details\.csv",
    "op_summary": rf"op_summary{_ANY}\.csv",
    "op_statistic": rf"op_statistic{_ANY}\.csv",
    "step_trace_time": r"step_trace_time\.csv",
    "memory_record": rf"memory_record{_ANY}\.csv",
    "operator_memory": rf"operator_memory{_ANY}\.csv",
    "step_trace_raw": rf"step_trace_raw{_DEVICE}_detail_time\.csv",
    "trace_view": r"trace_view\.json",
    "task_time": rf"task_time{_DEVICE}{_ANY}\.json",
    "hccl": rf"hccl{_DEVICE}{_ANY}\.json",
    "step_trace": rf"step_trace{_DEVICE}{_ANY}\.json",
    "msprof": rf"msprof{_ANY}\.json",
    "op_range": r"mindspore\.op_range",
    "memory_usage": r"mindspore\.memory_usage",
    "profiler_info": r"profiler_info(?:_(?P<device>\d{1,9}))?\.json",
    "profiler_metadata": r"profiler_metadata\.json",
}
#: Kind of a raw file of an Ascend device -> the names it has had, without the number of the device.
_ASCEND_NAMES: dict[str, tuple[str, ...]] = {
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
_ASCEND_KINDS = {name: kind for kind, names in _ASCEND_NAMES.items() for name in names}

_COMPILED = [(kind, re.compile(pattern, re.ASCII)) for kind, pattern in _PATTERNS.items()]
_FOLDER_OF_DEVICE = re.compile(r"device_(\d{1,9})", re.ASCII)
#: Kinds whose number is that of the process among all, whatever its device; and kinds that the host writes, whose
#: number may be either.
OF_RANK = frozenset({"window", "marks", "names", "profiler_info"})
OF_HOST = frozenset(
    {
        "cpu_executions", "cpu_framework", "cpu_detail", "cpu_types", "cpu_memory", "pipeline", "pipeline_table",
        "device_queue", "iterator", "cpu_use",
    }
)  # fmt: skip


class Kind(NamedTuple):
    """What a file is; `device` is None where neither its name nor its folder tells, or where it is of all devices."""

    name: str
    device: int | None


def kind_of(path: str) -> Kind | None:
    """Return what the file at `path` ("/" between folders, no `.slice_<n>`) is; None for what is no raw file."""
    *folders, base = path.split("/")
    folder = next((match for part in reversed(folders) if (match := _FOLDER_OF_DEVICE.fullmatch(part))), None)
    device = int(folder[1]) if folder else None
    for kind, pattern in _COMPILED:
        if match := pattern.fullmatch(base):
            number = match.groupdict().get("device")
            return Kind(kind, device if number is None else int(number))
    of_device = ascend_kind_of(path)
    return None if of_device is None else Kind(ASCEND, device if of_device.device is None else of_device.device)


def ascend_kind_of(name: str) -> Kind | None:
    """Return what a raw file of an Ascend device is by its name, which may have folders before it; None for others.

    `hwts.data.0`, `data/hwts.data.0` and `hwts.data.0.JOBABC` are all ("hwts", 0).
    """
    base = name.rpartition("/")[2]
    if base.endswith(_NO_CONTENT):
        return None
    if base.startswith(_TABLE_OF_FETCHES) and base.endswith(".txt"):
        device = base.removeprefix(_TABLE_OF_FETCHES).removesuffix(".txt")
        return Kind("fetch_table", int(device)) if _is_number(device) else None
    if _ASCEND_KINDS.get(base) in _OF_ALL_DEVICES:
        return Kind(_ASCEND_KINDS[base], None)
    parts = base.split(".")
    for place in range(len(parts) - 1, 0, -1):
        kind = _ASCEND_KINDS.get(".".join(parts[:place]))
        if kind is not None and _is_number(parts[place]):
            return Kind(kind, int(parts[place]))
    return None


def _is_number(text: str) -> bool:
    return len(text) <= 9 and text.isascii() and text.isdecimal()

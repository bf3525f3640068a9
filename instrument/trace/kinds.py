"""What a raw file is, by its name."""

from __future__ import annotations

import re
from typing import NamedTuple

from instrument.trace.ascend_files import recognise

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
    """What a file is; `device` is None where neither its name nor its folder tells."""

    name: str
    device: int | None


def kind_of(path: str) -> Kind | None:
    """What the file at `path` ("/" between folders, no `.slice_<n>`) is; None for what is no raw file."""
    *folders, base = path.split("/")
    folder = next((match for part in reversed(folders) if (match := _FOLDER_OF_DEVICE.fullmatch(part))), None)
    device = int(folder[1]) if folder else None
    for kind, pattern in _COMPILED:
        if match := pattern.fullmatch(base):
            number = match.groupdict().get("device")
            return Kind(kind, device if number is None else int(number))
    found = recognise(path)
    return None if found is None else Kind(ASCEND, device if found.device is None else found.device)

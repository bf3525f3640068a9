"""Run by MindInsight's own Python: what its profiler pages read out of a run, as JSON.

mindinsight_pages.py BASE_DIRECTORY DEVICE
"""

import json
import os
import sys

from mindinsight.datavisual.data_transform.summary_watcher import SummaryWatcher
from mindinsight.profiler.analyser.analyser_factory import AnalyserFactory
from mindinsight.profiler.common.util import analyse_device_list_from_profiler_dir, get_parallel_message

OTHER_PAGES = {"ascend": ("aicpu_type", "aicpu_detail")}
PAGES = {
    "cpu": ("cpu_op_type", "cpu_op_info"),
    "gpu": ("gpu_op_type", "gpu_op_info"),
    "ascend": ("aicore_type", "aicore_detail"),
}


def main(base, device):
    runs = SummaryWatcher().list_summary_directories(base)
    listed = [run["relative_path"] for run in runs if run.get("profiler")]
    directory = os.path.join(base, "profiler")
    devices, kind, mode = analyse_device_list_from_profiler_dir(directory)

    def page(name):
        return AnalyserFactory.instance().get_analyser(name, directory, device)

    found = {"listed": listed, "devices": devices, "kind": kind, "mode": mode}
    found["parallel"] = get_parallel_message(directory)
    found["operators"] = {name: page(name).query({}) for name in PAGES[kind]}
    found["ai_cpu"] = {name: page(name).query({}) for name in OTHER_PAGES.get(kind, ())}
    if kind != "cpu":
        timeline = page("timeline")
        found["timeline"] = timeline.get_display_timeline(kind, "0")
        found["timeline_summary"] = timeline.get_timeline_summary(kind)
    if os.path.exists(os.path.join(directory, f"minddata_pipeline_raw_{device}.csv")):
        marked = page("minddata_pipeline").query({"filter_condition": {"threshold": [0.8, 0.2]}})
        found["marked"] = [row[0] for row in marked["object"]]
    if os.path.exists(os.path.join(directory, f"step_trace_raw_{device}_detail_time.csv")):
        steps = page("step_trace")
        found["step"] = steps.query({"filter_condition": {"mode": "step", "step_id": 0}})
        found["summary"] = steps.summary
        found["first"] = steps.query({"filter_condition": {"mode": "step", "step_id": 1}})
    found["pipeline"] = page("minddata_pipeline").query({})
    found["queue"], found["times"] = page("minddata").analyse_device_queue_info()
    json.dump(found, sys.stdout)


main(sys.argv[1], sys.argv[2])

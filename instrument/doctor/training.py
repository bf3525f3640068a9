"""Trial with MindSpore: the names that the package relies on, and short trainings, recorded and profiled.

python -m instrument.doctor.training DIRECTORY RESULT
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any

from instrument._version import SUPPORTED_MINDSPORE
from instrument.doctor.findings import FAILS, NOTE, Expected, Failed, Finding, attempt, write_result

_STEPS = 6
_PROFILED = (3, 4)
_SAMPLES = 5
_GUIDE = (
    "If MindSpore's own run_check() works, please report this: `python -c 'import mindspore; mindspore.run_check()'`."
)


def main() -> None:
    directory, result_path = sys.argv[1:]
    expected: Expected = {}
    findings: list[Finding] = []
    # The next part may end this process: each result is written at once.
    for part in (_mindspore, _names):
        findings.append(part())
        write_result(result_path, findings, expected)
    if findings[0].status != FAILS:
        for mode in ("graph", "PyNative"):
            check = partial(_train, os.path.join(directory, mode), mode, expected)
            findings.append(attempt(f"training in {mode} mode", check, _GUIDE))
            write_result(result_path, findings, expected)
        findings.append(attempt("profiling", partial(_profile, os.path.join(directory, "profile"), expected), _GUIDE))
        findings.append(_system_metrics(directory))
    write_result(result_path, findings, expected)


def _mindspore() -> Finding:
    version: tuple[int, ...] = ()

    def check() -> str:
        nonlocal version
        started = time.perf_counter()
        from instrument import framework

        seconds = time.perf_counter() - started
        version = tuple(int(part) for part in framework.version().split(".")[:2] if part.isdigit())
        return f"{framework.version()} on {framework.device_target()}, imported in {seconds:.1f} s"

    finding = attempt("MindSpore", check, "Install it anew.")
    if finding.status == FAILS:
        return replace(finding, detail=f"import: {finding.detail}")
    first, last = SUPPORTED_MINDSPORE
    if first <= version <= last:
        return finding
    tested = " to ".join(".".join(map(str, release)) for release in SUPPORTED_MINDSPORE)
    return replace(finding, status=NOTE, advice=f"Tested are {tested}; another may work.")


def _names() -> Finding:
    def check() -> str:
        from instrument import framework

        missing = framework.probe()
        if missing:
            raise Failed(f"MindSpore lacks {', '.join(missing)}")
        return "MindSpore has all that are relied on"

    return attempt("MindSpore's inner names", check, "Use a version of MindSpore that is supported.")


def _train(directory: str, mode: str, expected: Expected, *callbacks: Any) -> str:
    """Train a network of one layer in a mode, with the collector; return the time that it took, in words."""
    import mindspore as ms
    import numpy as np
    from mindspore import nn
    from mindspore.dataset import NumpySlicesDataset
    from mindspore.train import Model

    from instrument.collect import ops
    from instrument.collect.collector import SummaryCollector

    class Network(nn.Cell):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(4, 1)
            self.summary = ops.ScalarSummary()

        def construct(self, x: Any) -> Any:
            self.summary("one", x.mean())
            return self.dense(x)

    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    network = Network()
    rows = np.ones((2 * _STEPS, 4), np.float32)
    data = NumpySlicesDataset((rows, rows[:, :1]), ["x", "y"], shuffle=False).batch(2)
    model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.01))
    collector = SummaryCollector(directory, collect_freq=1, collect_specified_data={"collect_input_data": False})
    started = time.perf_counter()
    model.train(1, data, callbacks=[*callbacks, collector], dataset_sink_mode=False)
    seconds = time.perf_counter() - started
    stats = collector.stats
    if stats is None or stats.lost or stats.dropped or stats.errors:
        raise Failed(f"not everything is written: {stats}")
    expected[os.path.basename(directory)] = {"scalar": {"one": (_STEPS, float(_STEPS))}}
    return f"{_STEPS} steps in {seconds:.1f} s, with operators inside the network"


def _profile(directory: str, expected: Expected) -> str:
    from instrument.profiler.callbacks import StopAtStep

    window = StopAtStep(*_PROFILED, directory)
    _train(directory, "graph", expected, window)
    return f"a window of steps {_PROFILED[0]} to {_PROFILED[1]}"


def _system_metrics(directory: str) -> Finding:
    from instrument.collect.system import System, load_psutil

    try:
        load_psutil()
    except ImportError as error:
        return Finding("system metrics", NOTE, "psutil is not installed", f"{error}.")

    def check() -> str:
        system = System(directory)
        system.look_at_device()
        taken = []
        for _ in range(_SAMPLES):
            started = time.thread_time()
            sample = system.sample()
            taken.append(time.thread_time() - started)
        device = "with" if any("device" in tag for tag in sample) else "without"
        return f"{len(sample)} metrics, {device} a device's memory, {1e3 * statistics.median(taken):.1f} ms a sample"

    return attempt("system metrics", check)


if __name__ == "__main__":
    main()

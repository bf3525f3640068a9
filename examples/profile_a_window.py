"""Profile a few steps in two ways: with a callback of `model.train`, and with a schedule.

    python examples/profile_a_window.py [DIRECTORY]

A window of ten steps is enough: the first steps compile and warm up, and the steps after the window are all alike.
"""

from __future__ import annotations

import argparse

import mindspore as ms
from mindspore import nn
from mindspore.train import Model
from small import Net, digits

from instrument import Profiler, StopAtStep, read, schedule, span


def by_callback(directory: str) -> None:
    """Steps 21 to 30 of `model.train`, in graph mode; both are included, and counted from 1."""
    ms.set_context(mode=ms.GRAPH_MODE)
    network = Net()
    model = Model(network, nn.CrossEntropyLoss(), nn.Momentum(network.trainable_params(), 0.1, 0.9))
    profiling = StopAtStep(21, 30, directory)
    model.train(1, digits(training=True), callbacks=[profiling], dataset_sink_mode=False)


def by_schedule(directory: str) -> None:
    """Two windows of five steps of your own loop, in PyNative mode, each looked at when it is there."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    network = Net()
    loss_fn, optimizer = nn.CrossEntropyLoss(), nn.Momentum(network.trainable_params(), 0.1, 0.9)
    step = ms.value_and_grad(lambda x, y: loss_fn(network(x), y), None, optimizer.parameters)
    windows = schedule(skip_first=5, wait=2, warmup=1, active=5, repeat=2)

    def look(profiler: Profiler) -> None:
        steps = profiler.analyse().steps
        print(f"steps {steps['step'][0]} to {steps['step'][-1]}: {steps['total_ns'].mean() / 1e6:.2f} ms each")

    # The profiler comes before the dataset's iterator: so the data pipeline is in the trace, too.
    with Profiler(directory, schedule=windows, on_trace_ready=look) as profiler:
        for x, y in digits(training=True).create_tuple_iterator():
            with span("forward and backward"):
                _, gradients = step(x, y)
            with span("update"):
                optimizer(gradients)
            profiler.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", default="profiled_run")
    arguments = parser.parse_args()
    ms.set_device("CPU")
    ms.set_seed(1)
    by_callback(f"{arguments.directory}/callback")
    print("By a callback:\n")
    print(read(f"{arguments.directory}/callback").profile())
    print("\nBy a schedule:\n")
    by_schedule(f"{arguments.directory}/schedule")
    found = read(f"{arguments.directory}/schedule").profile(window=0)
    print(found.spans)
    found.export_chrome_trace(f"{arguments.directory}/timeline.json.gz")
    print(f"\nThe timeline for https://ui.perfetto.dev is {arguments.directory}/timeline.json.gz.")
    print(f"All of a window:    instrument profile {arguments.directory}/schedule --window 0")
    print(f"Its operators:      instrument profile {arguments.directory}/schedule --ops")


if __name__ == "__main__":
    main()

"""Train with three learning rates, and put curves and results of the runs into a pandas table and a picture.

    python examples/with_pandas.py [DIRECTORY]

Needs pandas and matplotlib: pip install pandas matplotlib. The second half reads only, so it needs neither MindSpore
nor a device and works on any machine that has the files.
"""

from __future__ import annotations

import argparse

import matplotlib as mpl
import pandas as pd

from instrument import Run, read


def train(directory: str, learning_rate: float) -> None:
    import mindspore as ms
    from mindspore import nn
    from mindspore.train import Accuracy, Model
    from small import Net, digits

    from instrument import SummaryCollector

    ms.set_device("CPU")
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)
    network = Net()
    optimizer = nn.SGD(network.trainable_params(), learning_rate)
    model = Model(network, nn.CrossEntropyLoss(), optimizer, metrics={"accuracy": Accuracy()})
    collector = SummaryCollector(directory, collect_freq=2, collect_specified_data={"collect_input_data": False})
    model.fit(2, digits(training=True), digits(training=False), callbacks=[collector], dataset_sink_mode=False)


def losses(runs: list[Run]) -> pd.DataFrame:
    """A row a step, a column a run."""
    return pd.DataFrame({run.name: run.scalars("loss/auto").to_pandas().set_index("step")["value"] for run in runs})


def results(runs: list[Run]) -> pd.DataFrame:
    """A row a run: how it was set up, and what came of it."""
    rows = {run.name: {**run.lineage["train"]["hyper_parameters"], **run.lineage["eval"]["metric"]} for run in runs}
    return pd.DataFrame.from_dict(rows, orient="index")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", default="pandas_runs")
    arguments = parser.parse_args()
    for learning_rate in (0.01, 0.1, 0.5):
        train(f"{arguments.directory}/rate_{learning_rate}", learning_rate)

    runs = read(arguments.directory)  # a directory of runs is a list of them
    table = losses(runs)
    print(table.iloc[[0, len(table) // 2, -1]].round(3))
    print()
    print(results(runs)[["optimizer", "learning_rate", "accuracy"]].sort_values("accuracy", ascending=False).round(3))

    mpl.use("Agg")  # a picture needs no screen
    picture = f"{arguments.directory}/losses.png"
    table.rolling(5, min_periods=1).mean().plot(xlabel="step", ylabel="loss", logy=True).figure.savefig(picture)
    print(f"\nThe curves are in {picture}.")
    print(f"The same on the command line:  instrument lineage {arguments.directory} --sort accuracy --descending")


if __name__ == "__main__":
    main()

"""Train with `model.fit`, evaluate after each epoch, and stop when the evaluation no longer improves.

    python examples/early_stopping.py [DIRECTORY] [--epochs N]

The network sees 200 digits only, few enough to overfit. One callback collects the loss and accuracy of training and
evaluation, and the lineage of the run.
"""

from __future__ import annotations

import argparse

import mindspore as ms
from mindspore import nn
from mindspore.train import Accuracy, EarlyStopping, Model
from small import Net, digits

from instrument import SummaryCollector, read
from instrument.show.cli import main as instrument

TRAINED_WITH = 6  # batches


def train(directory: str, epochs: int) -> None:
    ms.set_seed(1)
    network = Net()
    loss_fn = nn.CrossEntropyLoss()
    optimizer = nn.Adam(network.trainable_params(), learning_rate=0.003)
    model = Model(network, loss_fn, optimizer, metrics={"accuracy": Accuracy()})
    # The input is no picture here, and histograms of weights are left to other examples.
    collector = SummaryCollector(
        directory,
        collect_freq=1,
        collect_specified_data={"collect_metric": True, "collect_train_lineage": True, "collect_eval_lineage": True},
        keep_default_action=False,
        custom_lineage_data={"digits": 32 * TRAINED_WITH},
    )
    stopping = EarlyStopping(monitor="eval_loss", patience=3, min_delta=0.001, verbose=True)
    data = digits(training=True).take(TRAINED_WITH)
    model.fit(epochs, data, digits(training=False), callbacks=[stopping, collector], dataset_sink_mode=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", default="early_stopping_run")
    parser.add_argument("--epochs", type=int, default=60)
    arguments = parser.parse_args()
    ms.set_device("CPU")
    ms.set_context(mode=ms.GRAPH_MODE)
    train(arguments.directory, arguments.epochs)

    run = read(arguments.directory)
    evaluations = run.scalars("eval/eval_loss/auto")
    best = int(evaluations.value.argmin())
    print(f"\n{len(evaluations)} of {arguments.epochs} epochs; the best was epoch {best + 1}:")
    print(f"loss {evaluations.value[best]:.4f}, accuracy {run.scalars('eval/accuracy/auto').value[best]:.3f}\n")
    instrument(["scalars", arguments.directory])
    print()
    instrument(["lineage", arguments.directory])


if __name__ == "__main__":
    main()

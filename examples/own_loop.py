"""Record a training loop of your own in PyNative mode that accumulates the gradients of four batches per update.

    python examples/own_loop.py [DIRECTORY] [--epochs N]

The loop decides what is recorded, and at which step. A step is one update here, so each update has one point, however
many batches it takes.
"""

from __future__ import annotations

import argparse

import mindspore as ms
from mindspore import nn, ops
from small import Net, digits

from instrument import SummaryRecord, read

BATCHES_PER_UPDATE = 4


def train(directory: str, epochs: int) -> None:
    ms.set_seed(1)
    network = Net()
    loss_fn = nn.CrossEntropyLoss()
    optimizer = nn.Adam(network.trainable_params(), learning_rate=0.005)

    def forward(x: ms.Tensor, y: ms.Tensor) -> tuple[ms.Tensor, ms.Tensor]:
        logits = network(x)
        return loss_fn(logits, y) / BATCHES_PER_UPDATE, logits

    gradients_of = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)
    data, held_out = digits(training=True), digits(training=False)
    step, batches, loss, gradients = 0, 0, 0.0, None
    with SummaryRecord(directory) as record:
        for _ in range(epochs):
            for x, y in data.create_tuple_iterator():
                (part, logits), new = gradients_of(x, y)
                gradients = new if gradients is None else [a + b for a, b in zip(gradients, new, strict=True)]
                batches, loss = batches + 1, loss + part.item()
                if batches % BATCHES_PER_UPDATE:
                    continue
                optimizer(tuple(gradients))
                step += 1
                record.add_value("scalar", "loss", loss)
                record.add_value("scalar", "gradient_norm", ops.norm(ops.concat([g.flatten() for g in gradients])))
                if step % 10 == 0:
                    record.add_value("histogram", "logits", logits)
                    record.add_value("histogram", "fc1.weight", network.fc1.weight)
                record.record(step)
                loss, gradients = 0.0, None
            record.add_value("scalar", "accuracy", accuracy(network, held_out))
            record.record(step)


def accuracy(network: Net, data: ms.dataset.Dataset) -> float:
    found = [(network(x).argmax(1) == y).float().mean().item() for x, y in data.create_tuple_iterator()]
    return sum(found) / len(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", default="own_loop_run")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    ms.set_device("CPU")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    train(arguments.directory, arguments.epochs)

    run = read(arguments.directory)
    print(run)
    print(run.scalars("loss"))
    print(run.scalars("accuracy"))
    print(f"\nCurves of all of it:        instrument scalars {arguments.directory}")
    print(f"Every point of a tag:       instrument show {arguments.directory} --tag logits")


if __name__ == "__main__":
    main()

"""Train one network in two processes, each with half of the data, and record both into one directory.

    python examples/several_ranks.py [DIRECTORY] [--ranks N]

The script starts itself again under MindSpore's `msrun`, and shows the run when all ranks have ended:

    msrun --worker_num=2 --local_worker_num=2 --join=True examples/several_ranks.py DIRECTORY

The training code does not name ranks. Each rank writes its own files, and rank 0 records what all ranks share. The last
rank has a slow disk in this example; the profile finds it.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init
from mindspore.dataset import GeneratorDataset
from mindspore.train import Model
from small import Net, rows

from instrument import StopAtStep, SummaryCollector, read
from instrument.show.cli import main as instrument

EPOCHS = 3


def train(directory: str) -> None:
    init()
    rank, ranks = get_rank(), get_group_size()
    ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    ms.set_seed(1)

    def from_disk(picture: np.ndarray) -> np.ndarray:
        time.sleep(0.002 * (rank == ranks - 1))
        return picture

    data = GeneratorDataset(rows(training=True), ["x", "y"], shuffle=True, num_shards=ranks, shard_id=rank)
    data = data.map(from_disk, ["x"], num_parallel_workers=1).batch(32, drop_remainder=True)
    network = Net()
    model = Model(network, nn.CrossEntropyLoss(), nn.Momentum(network.trainable_params(), 0.1, 0.9))
    collector = SummaryCollector(directory, collect_freq=5, collect_specified_data={"collect_input_data": False})
    model.train(EPOCHS, data, callbacks=[StopAtStep(51, 60, directory), collector], dataset_sink_mode=False)


def launch(directory: str, ranks: int) -> None:
    """This script in as many processes, on a port that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    logs = os.path.join(directory, "logs")
    options = {"worker_num": ranks, "local_worker_num": ranks, "join": True, "master_port": port, "log_dir": logs}
    msrun = [sys.executable, "-m", "mindspore.parallel.cluster.run"]  # what the command msrun runs
    command = [*msrun, *(f"--{name}={value}" for name, value in options.items()), __file__, directory]
    # msrun starts "python": let it be this one.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    ran = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, check=False)
    if ran.returncode:
        sys.exit(f"msrun ended with {ran.returncode}; what the ranks said is in {logs}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", default="ranks_run")
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    ms.set_device("CPU")
    ms.set_context(mode=ms.GRAPH_MODE)
    if "RANK_ID" in os.environ:
        train(arguments.directory)
        return
    launch(arguments.directory, arguments.ranks)

    instrument(["scalars", arguments.directory, "--tag", "loss/*"])
    print()
    for rank, loss in read(arguments.directory).scalars("loss/auto").by_rank().items():
        print(f"rank {rank}: loss {loss.value[0]:.3f} at step {loss.step[0]}, {loss.value[-1]:.3f} at {loss.step[-1]}")
    found = read(arguments.directory).profile()
    print()
    print(found.devices, found.spread, sep="\n\n")
    print(f"\nAll of it:              instrument show {arguments.directory}")
    print(f"One rank's:             instrument show {arguments.directory} --rank 1")
    print(f"The profile of a rank:  instrument profile {arguments.directory} --device 1")


if __name__ == "__main__":
    main()

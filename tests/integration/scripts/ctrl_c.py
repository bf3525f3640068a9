"""A training that is stopped by Ctrl+C in the middle, whatever it does at that moment; a flat script.

ctrl_c.py graph|pynative plain|python DIRECTORY
"""

import os
import signal
import sys
import threading
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback, Model

from instrument import SummaryCollector, SummaryRecord

mode, how, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
if how == "python":
    signal.signal(signal.SIGTERM, signal.default_int_handler)


class Own(Callback):
    """Records each step and says which were taken; at step 30 another thread sends the signal, to all processes."""

    def on_train_step_end(self, run_context):
        step = run_context.original_args().cur_step_num
        record.add_value("scalar", "own", float(step))
        if record.record(step):
            os.write(1, f"{step}\n".encode())
        if step == 30:
            threading.Thread(target=os.killpg, args=(os.getpgid(0), signal.SIGINT)).start()


rows = [(np.full(8, number, np.float32),) for number in range(10)]
network = nn.Dense(8, 1)
model = Model(network, optimizer=nn.SGD(network.trainable_params(), 1e-9))
record = SummaryRecord(directory / "own")
collector = SummaryCollector(directory / "run", collect_freq=1, keep_default_action=False,
                             collect_specified_data={"collect_metric": True})  # fmt: skip
try:
    model.train(10_000, GeneratorDataset(rows, ["x"]).batch(2), callbacks=[collector, Own()], dataset_sink_mode=False)
except KeyboardInterrupt:
    os.write(1, b"KeyboardInterrupt\n")

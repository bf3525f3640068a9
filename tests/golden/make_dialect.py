"""Make `tensorboard/dialect.json` with the message classes of TensorBoard 2.21: `make_dialect.py FILE`.

It holds the payloads of events, in hexadecimal, as protobuf itself encodes them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.plugins.hparams import metadata, plugin_data_pb2

TENSOR = summary_pb2.DATA_CLASS_TENSOR


def tensor(array: np.ndarray, dtype: int) -> tensor_pb2.TensorProto:
    proto = tensor_pb2.TensorProto(dtype=dtype, tensor_content=array.tobytes())
    for extent in array.shape:
        proto.tensor_shape.dim.add(size=extent)
    return proto


def value(tag: str, plugin: str, proto: tensor_pb2.TensorProto, content: bytes = b"") -> summary_pb2.Summary.Value:
    data = summary_pb2.SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    described = summary_pb2.SummaryMetadata(plugin_data=data, data_class=TENSOR)
    return summary_pb2.Summary.Value(tag=tag, tensor=proto, metadata=described)


def event(*values: summary_pb2.Summary.Value) -> str:
    return event_pb2.Event(wall_time=1.5, step=3, summary=summary_pb2.Summary(value=values)).SerializeToString().hex()


def text() -> tensor_pb2.TensorProto:
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[b"a", "\u00e9".encode()])
    proto.tensor_shape.dim.add(size=2)
    return proto


def main(out: Path) -> None:
    version = event_pb2.Event(wall_time=1.5, file_version="brain.Event:2")
    version.source_metadata.writer = "instrument"
    picture = summary_pb2.Summary.Image(height=2, width=3, colorspace=1, encoded_image_string=b"PNG")
    start = plugin_data_pb2.HParamsPluginData()
    start.session_start_info.start_time_secs = 1.5
    start.session_start_info.hparams["lr"].number_value = 0.5
    end = plugin_data_pb2.HParamsPluginData()
    end.session_end_info.status, end.session_end_info.end_time_secs = 1, 1.5
    found = {
        "version": version.SerializeToString().hex(),
        "scalars": event(
            summary_pb2.Summary.Value(tag="loss", simple_value=0.25),
            summary_pb2.Summary.Value(tag="zero", simple_value=0.0),
        ),
        "tensor": event(value("t", "tensors", tensor(np.arange(6, dtype="<f8").reshape(2, 3), types_pb2.DT_DOUBLE))),
        "image": event(summary_pb2.Summary.Value(tag="p", image=picture)),
        "text": event(value("words", "text", text())),
        "start": event(
            value("_hparams_/session_start_info", "hparams", metadata.NULL_TENSOR, start.SerializeToString())
        ),
        "end": event(value("_hparams_/session_end_info", "hparams", metadata.NULL_TENSOR, end.SerializeToString())),
    }
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

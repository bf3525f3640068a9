"""TensorBoard's dialect: its names, and the numbers of fields that are read and written by hand.

`tensorboard_outline` says where the values of an event stand, `tensorboard_event` encodes events; `tensorboard_values`,
`graph` and `lineage` have the values.

There are two styles. The old one has a field a kind (`simple_value`, `histo`, `image`); the new one has tensors, and
the metadata of a tag's first value name the plugin that says what they are.

Numbers are those of TensorFlow's event.proto, summary.proto and tensor.proto; `schema` has the other messages.
"""

from __future__ import annotations

from instrument.events import BFLOAT16

VERSION = "brain.Event:2"
#: What our own files say of their writer (`Event.source_metadata.writer`, in the first event). A file that says so and
#: lies beside one of MindSpore's dialect holds the same values once more, and is passed over when both are read.
WRITER = "instrument"

# Event
WALL_TIME, STEP, FILE_VERSION, GRAPH_DEF, SUMMARY, SOURCE_METADATA = 1, 2, 3, 4, 5, 10
LOG_MESSAGE, SESSION_LOG, RUN_METADATA, META_GRAPH_DEF = 6, 7, 8, 9
SOURCE_WRITER = 1
# Summary.Value
TAG, SIMPLE_VALUE, IMAGE, HISTO, AUDIO, TENSOR, METADATA = 1, 2, 4, 5, 6, 8, 9
#: A field of ours, which other readers skip: the double of a scalar that is no float32, or a `Summary.Histogram` of
#: MindSpore's dialect without its buckets, for what TensorBoard's histograms lack.
EXACT = 100
# SummaryMetadata, SummaryMetadata.PluginData
PLUGIN_DATA, PLUGIN_NAME, PLUGIN_CONTENT = 1, 1, 2
DATA_CLASS_TENSOR = 2
# TensorProto, TensorShapeProto, TensorShapeProto.Dim
DTYPE, SHAPE, TENSOR_CONTENT = 1, 2, 4
FLOAT_VAL, DOUBLE_VAL, INT_VAL, INT64_VAL, BOOL_VAL, HALF_VAL, UINT32_VAL, UINT64_VAL = 5, 6, 7, 10, 11, 13, 16, 17
#: Complex numbers, each as two floats or doubles.
SCOMPLEX_VAL, DCOMPLEX_VAL = 9, 12
DIM, DIM_SIZE = 2, 1

SCALARS, IMAGES, HISTOGRAMS, TEXT, HPARAMS, AUDIOS = "scalars", "images", "histograms", "text", "hparams", "audio"
#: TensorBoard has no page for plain tensors; under the name of a plugin its data providers hand them out.
TENSORS = "tensors"
#: Tags of hyper-parameters: their values in this run, and that it ended.
HPARAMS_START, HPARAMS_END = "_hparams_/session_start_info", "_hparams_/session_end_info"

DT_FLOAT, DT_DOUBLE, DT_STRING = 1, 2, 7
#: `DataType` by name; `tensor_content` holds their little-endian bytes.
DTYPE_NUMBERS = {
    "float32": DT_FLOAT, "float64": DT_DOUBLE, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "int64": 9, "bool": 10,
    "complex64": 8, "complex128": 18, BFLOAT16: 14, "uint16": 17, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip

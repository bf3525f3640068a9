"""TensorBoard's dialect: its numbers and names, for both directions.

`tensorboard_outline` says where the values of an event stand, `tensorboard_event` encodes events; `tensorboard_values`,
`graph` and `lineage` have the values.

There are two styles. The old one has a field a kind (`simple_value`, `histo`, `image`); the new one has tensors, and
the metadata of a tag's first value name the plugin that says what they are.

Numbers are those of TensorFlow's event.proto, summary.proto and tensor.proto.
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
# Summary, Summary.Value
VALUE = 1
TAG, SIMPLE_VALUE, IMAGE, HISTO, AUDIO, TENSOR, METADATA = 1, 2, 4, 5, 6, 8, 9
#: A field of ours, which other readers skip: the double of a scalar that is no float32, or a `Summary.Histogram` of
#: MindSpore's dialect without its buckets, for what TensorBoard's histograms lack.
EXACT = 100
# SummaryMetadata, SummaryMetadata.PluginData
PLUGIN_DATA, DISPLAY_NAME, DESCRIPTION, DATA_CLASS = 1, 2, 3, 4
PLUGIN_NAME, PLUGIN_CONTENT = 1, 2
DATA_CLASS_SCALAR, DATA_CLASS_TENSOR, DATA_CLASS_BLOB_SEQUENCE = 1, 2, 3
# HistogramProto
HISTO_MIN, HISTO_MAX, HISTO_NUM, HISTO_SUM, HISTO_SUM_SQUARES, BUCKET_LIMIT, BUCKET = 1, 2, 3, 4, 5, 6, 7
# Summary.Image
HEIGHT, WIDTH, COLORSPACE, ENCODED_IMAGE = 1, 2, 3, 4
# TensorProto, TensorShapeProto, TensorShapeProto.Dim
DTYPE, SHAPE, TENSOR_CONTENT = 1, 2, 4
FLOAT_VAL, DOUBLE_VAL, INT_VAL, STRING_VAL, INT64_VAL, BOOL_VAL, HALF_VAL = 5, 6, 7, 8, 10, 11, 13
UINT32_VAL, UINT64_VAL = 16, 17
#: Complex numbers, each as two floats or doubles.
SCOMPLEX_VAL, DCOMPLEX_VAL = 9, 12
DIM, DIM_SIZE = 2, 1
# GraphDef, NodeDef
NODE = 1
NODE_NAME, NODE_OP, NODE_INPUT, NODE_DEVICE, NODE_ATTRIBUTE = 1, 2, 3, 4, 5

# AttrValue, AttrValue.ListValue, and an entry of NodeDef's map
ATTR_LIST, ATTR_STRING, ATTR_INT, ATTR_FLOAT, ATTR_BOOL, ATTR_TYPE, ATTR_SHAPE = 1, 2, 3, 4, 5, 6, 7
ENTRY_KEY, ENTRY_VALUE = 1, 2

SCALARS, IMAGES, HISTOGRAMS, TEXT, HPARAMS, AUDIOS = "scalars", "images", "histograms", "text", "hparams", "audio"
#: TensorBoard has no page for plain tensors; under the name of a plugin its data providers hand them out.
TENSORS = "tensors"
#: Tags of hyper-parameters: what they are, their values in this run, and that it ended.
HPARAMS_EXPERIMENT, HPARAMS_START = "_hparams_/experiment", "_hparams_/session_start_info"
HPARAMS_END = "_hparams_/session_end_info"
# HParamsPluginData, SessionStartInfo, google.protobuf.Value
EXPERIMENT, SESSION_START_INFO, SESSION_END_INFO = 2, 3, 4
SESSION_HPARAMS, START_TIME = 1, 5
STATUS, END_TIME = 1, 2
STATUS_SUCCESS, STATUS_FAILURE = 1, 2
NUMBER_VALUE, STRING_VALUE, BOOL_VALUE = 2, 3, 4

DT_FLOAT, DT_DOUBLE, DT_STRING = 1, 2, 7
#: `DataType` by name; `tensor_content` holds their little-endian bytes.
DTYPE_NUMBERS = {
    "float32": DT_FLOAT, "float64": DT_DOUBLE, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "int64": 9, "bool": 10,
    "complex64": 8, "complex128": 18, BFLOAT16: 14, "uint16": 17, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip

"""Message classes of MindSpore's summary, lineage and anf_ir protos, built at run time in a pool of our own.

MindSpore registers the same names in protobuf's default pool, where a second definition is a conflict; and generated
code would tie us to one line of protobuf. So the schema is the table below, turned into descriptors on first use:
one source for protobuf 3.20 to 7. Nothing here may be imported before mindspore is (MindSpore 2.7 to 2.9 die when
protobuf comes first), therefore protobuf itself is imported inside `message_class`.

A line of the table is `label type name number`; `map<key, value>` and `[packed]` as in a .proto file.
"""

from __future__ import annotations

import functools
import re
from typing import Any

PACKAGE = "mindspore.irpb"

_SCHEMA = """
message Event
  required double wall_time 1
  optional int64 step 2
  oneof:what string version 3
  oneof:what GraphProto graph_def 4
  oneof:what Summary summary 5
message Summary
  repeated Summary.Value value 1
message Summary.Image
  required int32 height 1
  required int32 width 2
  required int32 colorspace 3
  required bytes encoded_image 4
message Summary.Histogram
  repeated Summary.Histogram.bucket buckets 1
  optional int64 nan_count 2
  optional int64 pos_inf_count 3
  optional int64 neg_inf_count 4
  optional double max 5
  optional double min 6
  optional double sum 7
  optional int64 count 8
message Summary.Histogram.bucket
  required double left 1
  required double width 2
  required int64 count 3
message Summary.Value
  required string tag 1
  oneof:value float scalar_value 3
  oneof:value Summary.Image image 4
  oneof:value TensorProto tensor 8
  oneof:value Summary.Histogram histogram 9
  oneof:value LossLandscape loss_landscape 10
message LossLandscape
  optional LossLandscape.Point landscape 1
  optional LossLandscape.LossPath loss_path 2
  optional LossLandscape.Metadata metadata 3
  optional LossLandscape.Point convergence_point 4
message LossLandscape.Point
  optional TensorProto x 1
  optional TensorProto y 2
  optional TensorProto z 3
message LossLandscape.LossPath
  repeated int32 intervals 1
  optional LossLandscape.Point points 2
message LossLandscape.Metadata
  optional string decomposition 1
  optional string unit 2
  optional int32 step_per_epoch 3

message LineageEvent
  required double wall_time 1
  optional int64 step 2
  oneof:what string version 3
  oneof:what TrainLineage train_lineage 6
  oneof:what EvaluationLineage evaluation_lineage 7
  oneof:what DatasetGraph dataset_graph 9
  oneof:what UserDefinedInfo user_defined_info 10
message UserDefinedInfo
  repeated UserDefinedInfo user_info 1
  map<string, UserDefinedInfo> map_dict 2
  map<string, int32> map_int32 3
  map<string, string> map_str 4
  map<string, double> map_double 5
message TrainLineage
  optional TrainLineage.HyperParameters hyper_parameters 1
  optional TrainLineage.TrainDataset train_dataset 2
  optional TrainLineage.Algorithm algorithm 3
  optional TrainLineage.Model model 4
message TrainLineage.HyperParameters
  optional string optimizer 1
  optional float learning_rate 2
  optional string loss_function 3
  optional int32 epoch 4
  optional string parallel_mode 5
  optional int32 device_num 6
  optional int32 batch_size 8
message TrainLineage.TrainDataset
  optional string train_dataset_path 1
  optional int32 train_dataset_size 2
message TrainLineage.Algorithm
  optional string network 1
  optional float loss 2
message TrainLineage.Model
  optional string path 3
  optional int64 size 4
message EvaluationLineage
  optional string metric 2
  optional EvaluationLineage.ValidDataset valid_dataset 3
message EvaluationLineage.ValidDataset
  optional string valid_dataset_path 1
  optional int32 valid_dataset_size 2
message DatasetGraph
  repeated DatasetGraph children 1
  optional OperationParameter parameter 2
  repeated Operation operations 3
  optional Operation sampler 4
message Operation
  optional OperationParameter operationParam 1
  repeated int32 size 2
  repeated float weights 3
message OperationParameter
  map<string, string> mapStr 1
  map<string, StrList> mapStrList 2
  map<string, bool> mapBool 3
  map<string, int32> mapInt 4
  map<string, double> mapDouble 5
message StrList
  repeated string strValue 1

message ModelProto
  optional int64 ir_version 1
  optional string domain 2
  optional int64 model_version 3
  optional GraphProto graph 4
message GraphProto
  repeated NodeProto node 1
  optional string name 2
  repeated ParameterProto parameters 3
  repeated OutputProto outputs 4
  repeated NamedValueProto const_vals 5
message NodeProto
  repeated InputProto input 1
  optional string name 2
  optional string op_type 3
  optional string scope 4
  repeated AttributeProto attribute 5
  optional TypeProto output_type 6
  optional uint64 output_i 7
  optional string full_name 8
  optional string instance_name 10
message InputProto
  optional string name 1
  optional int32 type 2
message ParameterProto
  optional string name 1
  optional TypeProto type 2
  optional ValueProto default_val 3
message OutputProto
  optional string name 1
  optional TypeProto type 2
message AttributeProto
  optional string name 1
  optional ValueProto value 2
message NamedValueProto
  optional string key 1
  optional ValueProto value 2
message TypeProto
  optional int32 data_type 1
  oneof:value TypeProto.Tensor tensor_type 2
  oneof:value TypeProto.Sequence sequence_type 3
message TypeProto.Tensor
  optional int32 elem_type 1
  optional TensorShapeProto shape 2
message TypeProto.Sequence
  repeated TypeProto elem_types 1
message TensorShapeProto
  repeated TensorShapeProto.Dimension dim 1
message TensorShapeProto.Dimension
  optional int64 size 1
  optional string name 2
message ValueProto
  optional int32 dtype 1
  optional bool bool_val 2
  optional int64 int_val 3
  optional uint64 uint_val 4
  optional float float_val 5
  optional double double_val 6
  optional string str_val 7
  optional TensorProto tensor_val 8
  optional GraphProto graph 9
  repeated bool bool_vals 10
  repeated int64 int_vals 11
  repeated uint64 uint_vals 12
  repeated float float_vals 13
  repeated double double_vals 14
  repeated string str_vals 15
  repeated TensorProto tensor_vals 16
  repeated GraphProto graphs 17
  repeated ValueProto values 18
  repeated NamedValueProto dict_val 19
  optional TypeProto type_val 20
message TensorProto
  repeated int64 dims 1
  optional int32 data_type 2
  repeated float float_data 3 [packed]
  repeated int32 int32_data 4 [packed]
  repeated int64 int64_data 5 [packed]
  repeated double double_data 6 [packed]
  repeated uint64 uint64_data 7 [packed]
  optional bytes raw_data 8
"""

_FIELD = re.compile(r"  (?P<label>\S+) (?P<type>\S+) (?P<name>\w+) (?P<number>\d+)(?P<packed> \[packed\])?")
_MAP = re.compile(r"  map<(?P<key>\w+), (?P<value>[\w.]+)> (?P<name>\w+) (?P<number>\d+)")


def message_class(name: str) -> Any:
    """The class of a message, e.g. `"LineageEvent"` or `"Summary.Value"`. Enumerations are plain int32 fields."""
    return _classes()[name]


@functools.cache
def _classes() -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="instrument/mindspore.proto", package=PACKAGE, syntax="proto2")
    messages: dict[str, Any] = {}
    for line in filter(None, _SCHEMA.splitlines()):
        if line.startswith("message "):
            name = line.removeprefix("message ")
            outer, _, inner = name.rpartition(".")
            siblings = messages[outer].nested_type if outer else file.message_type
            messages[name] = current = siblings.add(name=inner)
        elif (match := _MAP.fullmatch(line)) is not None:
            _add_map(current, name, **match.groupdict())
        else:
            match = _FIELD.fullmatch(line)
            assert match is not None, line
            _add_field(current, **match.groupdict())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    if hasattr(message_factory, "GetMessageClass"):
        make = message_factory.GetMessageClass
    else:  # protobuf 3.20
        make = message_factory.MessageFactory(pool).GetPrototype
    return {name: make(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in messages}


def _add_field(message: Any, label: str, type: str, name: str, number: str, packed: str | None = None) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    label, _, oneof = label.partition(":")
    field = message.field.add(name=name, number=int(number))
    field.label = Field.Label.Value("LABEL_" + ("OPTIONAL" if oneof else label.upper()))
    scalar_type = "TYPE_" + type.upper()
    if scalar_type in Field.Type.keys() and type.islower():
        field.type = Field.Type.Value(scalar_type)
    else:
        field.type = Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{type}"
    if packed:
        field.options.packed = True
    if oneof:
        if not message.oneof_decl:
            message.oneof_decl.add(name=oneof)
        field.oneof_index = 0


def _add_map(message: Any, outer: str, key: str, value: str, name: str, number: str) -> None:
    words = name.split("_")
    entry_name = "".join(word[0].upper() + word[1:] for word in words) + "Entry"
    entry = message.nested_type.add(name=entry_name)
    entry.options.map_entry = True
    _add_field(entry, "optional", key, "key", "1")
    _add_field(entry, "optional", value, "value", "2")
    _add_field(message, "repeated", f"{outer}.{entry_name}", name, number)

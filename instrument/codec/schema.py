"""Tables of messages: MindSpore's summary, lineage and anf_ir protos, TensorBoard's, and the fields of ours in them.

A line of a table is `label type name number`, the label one of optional, required, repeated, packed, oneof:NAME, or map
for a map from texts to `type`. Enumerations are int32. `instrument.codec.message` compiles the tables.
"""

from __future__ import annotations

from instrument.codec.message import Schema

MINDSPORE_TABLE = """
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
  map UserDefinedInfo map_dict 2
  map int32 map_int32 3
  map string map_str 4
  map double map_double 5
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
  map string mapStr 1
  map StrList mapStrList 2
  map bool mapBool 3
  map int32 mapInt 4
  map double mapDouble 5
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
  packed float float_data 3
  packed int32 int32_data 4
  packed int64 int64_data 5
  packed double double_data 6
  packed uint64 uint64_data 7
  optional bytes raw_data 8
"""

#: Fields of ours in MindSpore's messages, which its readers skip.
_EXTENSIONS = """
extend Event
  optional Trace trace 100
  optional Gap gap 101
  optional Start start 102
  optional End end 103
extend Summary.Value
  optional double exact_value 100
  optional Text text 102
extend Summary.Image
  optional string mapping 100
extend TrainLineage
  optional double last_learning_rate 100
extend LossLandscape
  optional bytes details 100
  repeated NamedTensor arrays 101
message NamedTensor
  optional string name 1
  optional TensorProto values 2
message Trace
  optional int64 window 1
  optional string kind 2
  optional int64 device 3
  optional string name 4
  optional int64 offset 5
  optional int64 total_bytes 6
  optional bytes data 7
message Gap
  optional int64 events 1
  optional int64 first_step 2
  optional int64 last_step 3
  optional string reason 4
message Start
  optional string id 1
  optional int64 number 2
  repeated Start.File unfinished 3
message Start.File
  optional string name 1
  optional int64 bytes 2
message End
  optional int32 status 1
  optional string reason 2
message Text
  repeated string elements 1
  repeated int64 dims 2
"""

_TENSORBOARD_TABLE = """
message Summary
  repeated Summary.Value value 1
message Summary.Value
  optional string tag 1
  optional bytes image 4
  optional TensorProto tensor 8
  optional SummaryMetadata metadata 9
  optional bytes exact 100
message SummaryMetadata
  optional SummaryMetadata.PluginData plugin_data 1
  optional int32 data_class 4
message SummaryMetadata.PluginData
  optional string plugin_name 1
  optional bytes content 2
message HistogramProto
  optional double min 1
  optional double max 2
  optional double num 3
  optional double sum 4
  optional double sum_squares 5
  packed double bucket_limit 6
  packed double bucket 7
message TensorProto
  optional int32 dtype 1
  optional TensorShapeProto tensor_shape 2
  optional bytes tensor_content 4
  repeated bytes string_val 8
message TensorShapeProto
  repeated TensorShapeProto.Dim dim 2
message TensorShapeProto.Dim
  optional int64 size 1
message GraphDef
  repeated NodeDef node 1
  optional VersionDef versions 4
message VersionDef
  optional int32 producer 1
message NodeDef
  optional string name 1
  optional string op 2
  repeated string input 3
  map AttrValue attr 5
message AttrValue
  optional AttrValue.ListValue list 1
  optional bytes s 2
  optional int64 i 3
  optional float f 4
  optional bool b 5
  optional int32 type 6
  optional TensorShapeProto shape 7
message AttrValue.ListValue
  repeated bytes s 2
  repeated int64 i 3
  repeated float f 4
  repeated bool b 5
  repeated int32 type 6
  repeated TensorShapeProto shape 7
message HParamsPluginData
  optional SessionStartInfo session_start_info 3
  optional SessionEndInfo session_end_info 4
message SessionStartInfo
  map Value hparams 1
  optional double start_time_secs 5
message SessionEndInfo
  optional int32 status 1
  optional double end_time_secs 2
message Value
  optional double number_value 2
  optional string string_value 3
  optional bool bool_value 4
"""

MINDSPORE = Schema(MINDSPORE_TABLE + _EXTENSIONS)
TENSORBOARD = Schema(_TENSORBOARD_TABLE)

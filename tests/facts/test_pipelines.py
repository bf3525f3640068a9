"""The data pipeline of a lineage, one line a stage."""

from __future__ import annotations

from instrument.facts.describe import leaves

SOURCE = {"op_type": "GeneratorDataset", "num_parallel_workers": 1, "column_names": []}
SHUFFLE = {"op_type": "Shuffle", "buffer_size": 64, "children": [SOURCE]}
RESIZE = {"tensor_op": "Resize", "size": [32, 32], "interpolation": ""}
MAP = {"op_type": "Map", "operations": [RESIZE, {"tensor_op": "HWC2CHW"}], "scale": 0.1, "children": [SHUFFLE]}


def test_a_chain_is_a_line_a_stage() -> None:
    """In the order of the data, the source first; operations stand in their stage, and nothing empty is named."""
    batch = {"op_type": "Batch", "batch_size": 32, "drop_remainder": False, "children": [MAP]}
    assert dict(leaves({"dataset": batch, "train": {"epoch": 2}})) == {
        "dataset.stage_1": "GeneratorDataset(num_parallel_workers=1)",
        "dataset.stage_2": "Shuffle(buffer_size=64)",
        "dataset.stage_3": "Map(operations=[Resize(size=[32, 32]), HWC2CHW], scale=0.1)",
        "dataset.stage_4": "Batch(batch_size=32, drop_remainder=False)",
        "train.epoch": 2,
    }


def test_a_stage_that_joins_others_names_them() -> None:
    """Which stages a joining one takes cannot be seen from the order."""
    joined = {"op_type": "Zip", "children": [SHUFFLE, {"op_type": "MnistDataset", "dataset_dir": "/data"}]}
    assert list(leaves({"dataset": {"op_type": "Repeat", "count": 2, "children": [joined]}})) == [
        ("dataset.stage_1", "GeneratorDataset(num_parallel_workers=1)"),
        ("dataset.stage_2", "Shuffle(buffer_size=64)"),
        ("dataset.stage_3", "MnistDataset(dataset_dir=/data)"),
        ("dataset.stage_4", "Zip of stage_2, stage_3"),
        ("dataset.stage_5", "Repeat(count=2)"),
    ]


def test_what_is_no_pipeline_stays_as_it_is() -> None:
    """A user's own key of that name, or a data set without a description."""
    assert list(leaves({"dataset": "digits"})) == [("dataset", "digits")]
    assert list(leaves({"custom": {"dataset": {"op_type": "x", "n": 1}}})) == [
        ("custom.dataset.op_type", "x"),
        ("custom.dataset.n", 1),
    ]

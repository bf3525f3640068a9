"""Runs with known numbers and lineage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from instrument.codec.lineage import custom_message
from instrument.values import ArrayItem, Event, MessageItem
from tests import protobuf
from tests.runs.build import item, write, write_lineage

#: 2023-11-14 22:13:20 in UTC.
START = 1_700_000_000.0
EVIL = ("<script>alert(1)</script>", '"><svg onload=alert(1)>', "\x1b[31mred", "a\nb", "\u202eabc", "=1+1")


def training(directory: Path, losses: list[float], accuracies: Sequence[float] = (), **known: Any) -> Path:
    """A run with `loss/auto` at steps 1, 2, ... and `eval/accuracy/auto` at 10, 20, ...; `known` is its lineage."""
    events = [Event(step, START + step, (), {"loss/auto": loss}) for step, loss in enumerate(losses, 1)]
    events += [
        Event(10 * count, START + 10 * count, (), {"eval/accuracy/auto": value})
        for count, value in enumerate(accuracies, 1)
    ]
    write(directory, events)
    if known:
        lineage(directory, **known)
    return directory


def lineage(
    directory: Path, optimizer: str = "Adam", rate: float = 0.5, accuracy: float | None = None, **custom: Any
) -> None:
    train = protobuf.message_class("TrainLineage")()
    train.hyper_parameters.optimizer = optimizer
    train.hyper_parameters.learning_rate = rate
    train.hyper_parameters.batch_size = 32
    train.algorithm.loss = 0.25
    messages = [("train_lineage", train.SerializeToString())]
    if accuracy is not None:
        evaluation = protobuf.message_class("EvaluationLineage")()
        evaluation.metric = f'{{"accuracy": {accuracy!r}}}'
        messages.append(("eval_lineage", evaluation.SerializeToString()))
    if custom:
        messages.append(("custom_lineage_data", custom_message(custom)))
    write_lineage(directory, messages)


def three(root: Path) -> Path:
    """A tree of three runs that differ in optimiser, learning rate and results."""
    training(root / "adam", [4.0, 2.0, 1.0], [0.25, 0.5], rate=0.5, accuracy=0.5, seed=1)
    training(root / "momentum", [4.0, 1.0, math.nan], [0.75], optimizer="Momentum", rate=0.25, accuracy=0.75, seed=1)
    training(root / "plain", [3.0])
    return root


def every_kind(directory: Path) -> Path:
    """Two points of each kind but the landscape, numbers of every sort, and a point that a restart replaced."""
    tensor = np.array([[0.1, math.nan, -math.inf], [4, 5, 6]], np.float32)
    big = np.array([2**63 + 1], np.uint64)
    histogram = np.array([1, 2, 3, math.nan, math.inf], np.float32)
    graph = protobuf.message_class("GraphProto")(name="net").SerializeToString()
    first = (
        item("scalar", "loss", 0.1),
        ArrayItem("tensor", "w/a", tensor, "float32"),
        MessageItem("graph", "", graph),
    )
    second = (
        item("scalar", "loss", math.nan), ArrayItem("tensor", "w/a", big, "uint64"), item("image", "i", 9.0),
        ArrayItem("histogram", "h", histogram, "float32"),
    )  # fmt: skip
    third = (item("scalar", "loss", -math.inf), item("image", "i", 7.0))
    write(directory, [Event.of(1, START, first), Event.of(2, START + 1, second), Event.of(3, START + 2, third)])
    write(directory, [Event(3, START + 60, (), {"loss": 0.25})], seconds=1_700_000_060)
    lineage(directory, seed=1, score=math.nan)
    return directory

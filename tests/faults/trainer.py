"""A trainer for `campaign.py`: records random events, and writes down what it was told.

`python -m tests.faults.trainer PLAN` says on standard output that it is open, and at its end, which comes when its
standard input does, what became of its events. Its book has a line an event, written when `record` has returned: step,
answer, and when the call began and ended, in nanoseconds of the monotonic clock.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import select
import signal
import sys
import time
from typing import Any, NamedTuple, Protocol

from instrument import processes
from instrument.values import ArrayItem, Event
from tests.faults import mixes

#: A child that takes longer hangs.
_CHILD_SECONDS = 20


class Plan(NamedTuple):
    """What a trainer does. `front` is "sink" or "record": a sink of its own, or `SummaryRecord`."""

    directory: str
    book: str
    seed: int
    mix: str = "small"
    workers: int = 1
    ring_bytes: int = 24 << 20
    drop_when_full: bool = False
    kind: str = "summary"
    export: bool = False
    front: str = "sink"
    #: So long does a training step take.
    pace_ms: int = 0
    #: The end comes after so many events; never by itself for -1.
    events: int = -1
    flushes: float = 0.0
    dialect: str = "mindspore"
    #: How often it forks a child behind an event, which tries to record.
    forks: float = 0.0

    def event(self, step: int) -> Event:
        return mixes.event(self.mix, self.seed, step)


class Front(Protocol):
    """What user code calls."""

    @property
    def stats(self) -> Any: ...

    def take(self, event: Event) -> bool: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class SinkFront:
    """A sink, as `SummaryRecord` uses one: arrays of every second event are staged, or sent ahead of it."""

    def __init__(self, plan: Plan) -> None:
        from instrument.collect.pending import Pending
        from instrument.write.factory import open_sink
        from instrument.write.sink import Target

        target = Target(plan.directory, kind=plan.kind, export_tensors=plan.export, dialect=plan.dialect)
        self._sink = open_sink(target, plan.workers, plan.ring_bytes, plan.drop_when_full)
        self._added = Pending(self._sink)
        self.flush, self.close = self._sink.flush, self._sink.close

    @property
    def stats(self) -> Any:
        return self._sink.stats

    def take(self, event: Event) -> bool:
        if event.step % 2:
            for item in event.items:
                if isinstance(item, ArrayItem):
                    self._added.add_copy(item.kind, item.tag, item.array, item.dtype, may_stage=True)
                else:
                    self._added.add(item)
            event = event._replace(items=self._added.take()[1])
        return self._sink.write(event)


class RecordFront:
    """What users have."""

    def __init__(self, plan: Plan) -> None:
        from instrument import SummaryRecord

        export = {"tensor_format": "npy"} if plan.export else None
        on_full = "drop" if plan.drop_when_full else "block"
        self._record = SummaryRecord(
            plan.directory, num_process=plan.workers, queue_bytes=plan.ring_bytes, on_full=on_full,
            export_options=export, dialect=plan.dialect,
        )  # fmt: skip
        self.flush, self.close = self._record.flush, self._record.close

    @property
    def stats(self) -> Any:
        return self._record.stats

    def take(self, event: Event) -> bool:
        for tag, number in event.scalars.items():
            self._record.add_value("scalar", tag, number)
        for item in event.items:
            self._record.add_value(item.kind, item.tag, item.array if isinstance(item, ArrayItem) else item[2])
        return self._record.record(event.step)


def arm_workers() -> None:
    """Have workers find the tripwire, which they do not by themselves: nothing of ours is on their path."""
    if "INSTRUMENT_TEST_TRIPWIRE" in os.environ:
        folder = os.path.join(os.path.dirname(__file__), "tripwire")
        arms = f"import sys; sys.path.insert(0, {folder!r}); import sitecustomize; sys.path.pop(0)\n"
        processes._BOOTSTRAP = arms + processes._BOOTSTRAP


def train(plan: Plan) -> None:
    arm_workers()
    book = os.open(plan.book, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    front: Front = {"sink": SinkFront, "record": RecordFront}[plan.front](plan)
    say({"open": True})
    end = select.poll()
    end.register(0, select.POLLIN)
    dice = random.Random(plan.seed)
    for step in itertools.count() if plan.events < 0 else range(plan.events):
        if end.poll(plan.pace_ms):
            break
        event = plan.event(step)
        began = time.monotonic_ns()
        taken = front.take(event)
        os.write(book, f"{step} {taken:d} {began} {time.monotonic_ns()}\n".encode())
        if dice.random() < plan.flushes:
            front.flush()
        if dice.random() < plan.forks:
            fork(front, plan, step)
    front.close()
    say(dataclasses.asdict(front.stats))


def fork(front: Front, plan: Plan, step: int) -> None:
    """Have a child try whatever there is: it must neither write nor hang, nor end the parent's recording."""
    child = os.fork()
    if child == 0:
        signal.alarm(_CHILD_SECONDS)
        taken = front.take(plan.event(step + 1))
        front.flush()
        front.close()
        os._exit(taken)
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"a child's status is {status}")


def say(what: Any) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    train(Plan(*json.loads(sys.argv[1])))

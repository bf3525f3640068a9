"""`StopAtStep` and `StopAtEpoch`: windows of `model.train`, by the number of the step or epoch.

They count as MindSpore does, from 1, and mark steps and epochs. A hook never raises: what goes wrong is logged.
"""

from __future__ import annotations

import logging
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mindspore.train.callback import Callback

from instrument import marks
from instrument.checks import check_int
from instrument.profiler.control import Request
from instrument.profiler.profiler import Profiler, describe
from instrument.profiler.window import WindowRange

if TYPE_CHECKING:
    from mindspore.train.callback import RunContext

log = logging.getLogger("instrument")

#: Arguments of `Profiler` that a callback decides itself.
_OWN = ("schedule", "start_profile")


class _StopAt(Callback):
    """Open one window in each training, and close it whatever happens."""

    def __init__(self, requested: WindowRange, output_path: str | os.PathLike[str], options: dict[str, Any]) -> None:
        super().__init__()
        for name in _OWN:
            if name in options:
                raise TypeError(f"{type(self).__name__} got {name!r}, but says itself when to record; leave it out.")
        self._requested = requested
        #: The profiler behind it, for `analyse()` after the training.
        self.profiler = Profiler(output_path, start_profile=False, **options)
        self._recorder = self.profiler.recorder
        self._entered = 0
        self._reset(0)
        self._is_training = False

    def _reset(self, step: int) -> None:
        self._is_over = False
        self._first_step, self._last_step = step + 1, step
        self._first_epoch: int | None = None
        self._last_epoch = 0

    # ------------------------------------------------------------------ the training

    def on_train_begin(self, run_context: RunContext) -> None:
        marks.begin_training()
        self._reset(int(run_context.original_args().cur_step_num))
        self._is_training = True

    @marks.hook
    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        self._begin_epoch(int(run_context.original_args().cur_epoch_num))

    def _begin_epoch(self, number: int) -> None:
        marks.begin_epoch(number)
        self._first_epoch = number if self._first_epoch is None else self._first_epoch
        self._last_epoch = number

    @marks.hook
    def on_train_step_begin(self, run_context: RunContext) -> None:
        marks.begin_step(int(run_context.original_args().cur_step_num))

    @marks.hook
    def on_train_step_end(self, run_context: RunContext) -> None:
        step = int(run_context.original_args().cur_step_num)
        marks.end_step(step)
        self._last_step = step

    @marks.hook
    def on_train_epoch_end(self, run_context: RunContext) -> None:
        marks.end_epoch(int(run_context.original_args().cur_epoch_num))

    def on_train_end(self, run_context: RunContext) -> None:
        self._end("the training ended")

    def __getstate__(self) -> dict[str, object]:
        self._recorder.check_copied(self)
        return self.__dict__

    def __enter__(self) -> _StopAt:
        self._entered += 1  # once more for an evaluation inside a training
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered -= 1
        if self._entered <= 0:
            self._entered = 0
            self._end("the training ended" if kind is None else describe(kind, error))

    def _end(self, reason: str) -> None:
        if not self._is_training:
            return
        self._is_training = False
        if self._recorder.is_recording:
            self._close(reason)
        elif not self._is_over:
            self._recorder.expect(False)
            self._report()

    def _report(self) -> None:
        ran = "no step ran"
        if self._last_step >= self._first_step:
            ran = f"steps {self._first_step} to {self._last_step} ran"
            ran += f" (epochs {self._first_epoch} to {self._last_epoch})" if self._requested.epochs else ""
        self._recorder.missed = f"the window ({self._requested}) was not reached, {ran}; nothing was recorded."
        log.warning("%s: %s", type(self).__name__, self._recorder.missed)

    # ------------------------------------------------------------------ the window

    def _open(self) -> None:
        self._recorder.request = self._requested
        self._is_over = True  # whatever comes of it: there is one window in a training
        try:
            self._recorder.ask(Request.START)
        except RuntimeError as error:
            self._recorder.missed = f"the window ({self._requested}) is not recorded: {error}"
            log.error("%s: %s", type(self).__name__, self._recorder.missed)

    def _close(self, reason: str = "") -> None:
        self._recorder.ask(Request.EXIT if reason else Request.STOP, reason)


class StopAtStep(_StopAt):
    """Record the steps from `start_step` to `stop_step`, both included, of a `model.train`.

        profiling = StopAtStep(10, 12, "./run")
        model.train(2, dataset, callbacks=[profiling, SummaryCollector("./run")])
        print(profiling.profiler.analyse())

    In data sink mode hooks come once in many steps: the window then holds whole blocks of them. See `StopAtEpoch`.
    Each training has its window. One that ends inside of it, for whatever reason, leaves a trace that says so. A window
    that is not reached is logged.

    Args:
        start_step: the first step, counted from 1 over all epochs.
        stop_step: the last one, the same for a single step.
        output_path: as `Profiler` has it, and so are all further arguments but `start_profile` and `schedule`.

    Raises:
        TypeError, ValueError: an argument is wrong.
    """

    def __init__(
        self, start_step: int, stop_step: int, output_path: str | os.PathLike[str] = "./data", **options: Any
    ) -> None:
        super().__init__(WindowRange(steps=_check_range("step", start_step, stop_step)), output_path, options)
        self._start, self._stop = start_step, stop_step

    def on_train_begin(self, run_context: RunContext) -> None:
        super().on_train_begin(run_context)
        if run_context.original_args().get("dataset_sink_mode"):
            log.warning(
                "StopAtStep: in data sink mode hooks come once in many steps, and the window is made of whole blocks "
                "of them; StopAtEpoch fits better."
            )
        self._look_ahead()

    def _look_ahead(self) -> None:
        if self._start == self._last_step + 1 and not self._is_over:
            self._recorder.expect(True)

    @marks.hook
    def on_train_step_begin(self, run_context: RunContext) -> None:
        step = int(run_context.original_args().cur_step_num)
        if not self._is_over and step >= self._start and self._last_step < self._stop:
            self._open()
        marks.begin_step(step)

    @marks.hook
    def on_train_step_end(self, run_context: RunContext) -> None:
        step = int(run_context.original_args().cur_step_num)
        marks.end_step(step)
        self._last_step = step
        if self._recorder.is_recording and step >= self._stop:
            self._close()
        self._look_ahead()


class StopAtEpoch(_StopAt):
    """Record the epochs from `start_epoch` to `stop_epoch`, both included, of a `model.train`, also in data sink mode.

        model.train(3, dataset, callbacks=[StopAtEpoch(2, 2, "./run", max_steps=100)])

    All else is as for `StopAtStep`.

    Args:
        start_epoch: the first epoch, counted from 1.
        stop_epoch: the last one, the same for a single epoch.
        output_path: as `Profiler` has it, and so are all further arguments but `start_profile` and `schedule`.

    Raises:
        TypeError, ValueError: an argument is wrong.
    """

    def __init__(
        self, start_epoch: int, stop_epoch: int, output_path: str | os.PathLike[str] = "./data", **options: Any
    ) -> None:
        super().__init__(WindowRange(epochs=_check_range("epoch", start_epoch, stop_epoch)), output_path, options)
        self._start, self._stop = start_epoch, stop_epoch

    @marks.hook
    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        number = int(run_context.original_args().cur_epoch_num)
        if not self._is_over and self._start <= number <= self._stop:
            self._open()
        self._begin_epoch(number)

    @marks.hook
    def on_train_epoch_end(self, run_context: RunContext) -> None:
        number = int(run_context.original_args().cur_epoch_num)
        marks.end_epoch(number)
        if self._recorder.is_recording and number >= self._stop:
            is_late = self._first_epoch is not None and self._first_epoch > self._start
            self._close(f"the training began with epoch {self._first_epoch}" if is_late else "")


def _check_range(unit: str, start: object, stop: object) -> tuple[int, int]:
    first = check_int(f"start_{unit}", start, 1)
    last = check_int(f"stop_{unit}", stop, 1)
    if first > last:
        raise ValueError(f"start_{unit} is {first} and stop_{unit} is {last}; expected start <= stop.")
    return first, last

"""`SummaryRecord`: record values that are added by hand, and those of summary operators, into event files.

The problem: `record` runs in the training thread, once a step. It must not wait for a disk, fail because of one bad
value, or change what the training sees. Any thread, a signal handler and a forked child may call it.

The strategy: values are checked and copied when they are added (`convert`, `pending`), as an optimiser changes
parameters in place; operators leave theirs in an inbox (`ops`). `record` makes one event of them and hands it to the
sink, which takes microseconds. A lock keeps threads apart; a signal handler passes it, so one flag guards against
re-entrance: a `record` inside another call is refused and logged. A wrong option raises at construction, a wrong value
when it is added; what goes wrong later is logged once a cause, counted in `stats`, and raised if the user asks for it.

Rejected: to encode in the training thread and give bytes to the workers. The histogram of a large layer would cost
milliseconds a step.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, SupportsIndex

import numpy as np
from mindspore import nn
from numpy.typing import NDArray

from instrument import forks, framework
from instrument.collect import ops, validate
from instrument.collect import system_metrics as metrics_thread
from instrument.collect.convert import to_array, to_image, to_scalar
from instrument.collect.lineage import HparamsSession
from instrument.collect.options import RecordOptions
from instrument.collect.pending import Pending, ValueWarnings, warn_of_unrecorded
from instrument.collect.system_metrics import SystemMetrics
from instrument.errors import RecordingError
from instrument.values import FINISHED, AnyItem, End, Event, Item
from instrument.write import resume
from instrument.write.diagnostics import error_text
from instrument.write.limits import is_too_large
from instrument.write.resume import Ending
from instrument.write.sink import Sink, Stats

_MOST_KNOWN_NAMES = 10_000


class SummaryRecord:
    """Record values into event files, with MindSpore's call forms.

        with SummaryRecord("./run") as record:
            for step in range(1, 101):
                record.add_value("scalar", "loss", loss)
                record.record(step)

    Values are written by worker processes; `record` takes a few microseconds. What `record` answered True for goes to
    the file, in order, whatever becomes of this process, unless the disk is full to the end. Several recorders may be
    open at once, on one directory too.

    Args:
        log_dir: the directory for the event files, made where it is missing (mode 0777 less the umask). A run that is
            there already is continued, which one warning says.
        file_prefix: what the file's name begins with; letters, digits and the characters . _ -
        file_suffix: what the file's name ends with. Readers know `_MS`.
        num_process: worker processes; 0 writes in this process. Default: half of the cores, from 1 to 4.
        network: a compiled network (`nn.Cell`) whose graph is recorded once, with the first `record`.
        max_file_size: the largest size of a file in bytes: when the next event does not fit, one warning says so, and
            `record` answers False from then on.
        raise_exception: raise `RecordingError` when something could not be written, at a following call: `record` does
            not wait for the file. By default it is logged once, counted in `stats`, and training goes on.
        export_options: `{"tensor_format": "npy"}` writes tensors to `export_<seconds>/tensor/<tag>_<step>.npy`, too.
        on_full: what `record` does when the workers cannot keep up: `"block"` waits for room, `"drop"` answers False
            and counts.
        queue_bytes: shared memory between this process and its workers, for what is not written yet; at least 1 MiB, by
            default 24 MiB. What is larger than a worker's share passes through in pieces: a tensor during `add_value`
            (one a step; of more a copy is kept, as of images and histograms, and for TensorBoard's files), a record
            during `record`.
        system_metrics: True, or seconds between samples (True: 5): record what host, process and device are doing, from
            the first `record` on, as scalars `system/...`, for at most 0.5 % of a core. Needs psutil.
        dialect: whose files are written: `"mindspore"` MindInsight's, `"tensorboard"` TensorBoard's, or `"both"`.

    Raises:
        TypeError, ValueError: an option is wrong.
        OSError: the directory cannot be made or written.
        ImportError: `system_metrics` is asked for without psutil.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        file_prefix: str = "events",
        file_suffix: str = "_MS",
        num_process: int | None = None,
        network: nn.Cell | None = None,
        max_file_size: int | None = None,
        raise_exception: bool = False,
        export_options: dict[str, str | None] | None = None,
        *,
        on_full: str = "block",
        queue_bytes: int | None = None,
        system_metrics: bool | float = False,
        dialect: str = "mindspore",
    ) -> None:
        options = RecordOptions.check(
            log_dir, file_prefix, file_suffix, num_process, max_file_size, raise_exception, export_options, on_full,
            queue_bytes, system_metrics, dialect,
        )  # fmt: skip
        self._network = validate.check_network("network", network)
        self._mode = "train"
        self._warnings = ValueWarnings(options.raise_exception)
        self._known_names: set[str] = set()
        self._lock = threading.RLock()
        self._is_busy = self._is_fork = self._is_over = False
        self._raises = options.raise_exception
        self._dialect = options.dialect
        self._session = HparamsSession() if options.dialect != "mindspore" else None
        self._sink = options.open_sink()
        resume.warn_if_resumed(self._sink.path)
        self._pending = Pending(self._sink)
        #: What samples the system for this recorder.
        self.metrics = metrics_thread.start(options.directory, options.system_interval, self._write_sample)
        # At exit, and when dropped.
        self._ending = Ending(options.max_file_bytes)
        self._close_sink = weakref.finalize(self, _close, self._pending, self.metrics, self._sink, self._ending)
        ops.gather()  # whatever ran before this recorder was made is not its business, but that of those open before
        #: Where summary operators leave their values for this recorder.
        self.inbox = ops.Inbox()
        forks.register(self)

    # ------------------------------------------------------------------ what a user calls

    @property
    def log_dir(self) -> str:
        """Return the path of the event file; with `dialect="tensorboard"` of that with scalars."""
        return self._sink.path

    @property
    def stats(self) -> Stats:
        """Return what became of the events so far; see `Stats`."""
        stats = self._sink.stats
        return replace(stats, bytes=stats.bytes + self._ending.bytes) if self._ending.bytes else stats

    def set_mode(self, mode: str) -> None:
        """Set the phase: values of summary operators are recorded in `"train"` and passed over in `"eval"`.

        Raises:
            ValueError: another mode.
        """
        validate.check_mode(mode)
        ops.gather()  # what ran so far belongs to the mode that ends here
        self._mode = mode
        self.inbox.is_open = mode == "train"

    def add_value(self, plugin: str, name: str, value: object) -> None:
        """Add a value to the next `record`. The value is copied: what becomes of it later changes nothing.

        Args:
            plugin: the kind of the value, one of

                - `scalar`: a tensor or array with one element, or a number;
                - `tensor`, `histogram`: a tensor, array or number of any shape;
                - `image`: a picture, (H, W), (C, H, W) or (H, W, C), or a batch, (N, C, H, W) or (N, H, W, C), with 1
                  or 3 channels; of two places that could be the channels' the earlier one is;
                - `text`: a text, or a list or array of texts; TensorBoard shows it as Markdown;
                - `graph`: the serialised `ModelProto` of a network;
                - `train_lineage`, `eval_lineage`, `dataset_graph`, `custom_lineage_data`: a message of MindSpore's
                  lineage proto, or its bytes; a dictionary for the last;
                - `landscape`: a `LossLandscape` message or its bytes, for which TensorBoard's files have no place.
            name: the tag, any text that is not empty. A second value with the same plugin and name before the next
                `record` replaces the first, with one warning.
            value: numbers of bool, integer and float types up to 64 bits, and bfloat16. Elements that are masked are
                NaN, and are left out of histograms.

        Raises:
            ValueError: an unknown plugin, an empty name or one that is not valid Unicode, a value of the wrong shape.
            TypeError: a name that is no text, a value of another type.
            RecordingError: with `raise_exception=True`, the recorder is closed; by default that is logged once.
        """
        if type(name) is not str or name not in self._known_names:
            validate.check_plugin(plugin)
            name = validate.check_name(name)
            if self._is_over:
                self._warnings.refuse_use(self._sink.path, self._is_fork)
                return
            if len(self._known_names) < _MOST_KNOWN_NAMES:
                self._known_names.add(name)
        if plugin == "scalar":
            number = to_scalar(value, name)
            with self._lock:  # another thread may record meanwhile
                scalars = self._pending.scalars
                is_second = name in scalars
                scalars[name] = number
        elif plugin in validate.ARRAY_PLUGINS:
            array, dtype = (to_image(value, name), "") if plugin == "image" else to_array(value, name, plugin)
            is_second = self._add_copy(plugin, name, array, dtype)
        else:
            validate.check_plugin(plugin)
            self.add_item(validate.message_item(plugin, name, value, self._dialect))
            return
        if is_second:
            self._warnings.warn_of_second(plugin, name)

    def record(
        self, step: int, train_network: nn.Cell | None = None, plugin_filter: Callable[[str], bool] | None = None
    ) -> bool:
        """Hand over everything added since the last call, and in mode `"train"` what summary operators left.

        Args:
            step: the number of the training step, from 0 on: a Python or NumPy integer, or a tensor or array that holds
                one, such as `optimizer.global_step`.
            train_network: where the graph is taken from if the constructor's `network` is not compiled.
            plugin_filter: told a plugin's name, says whether its values are recorded; the others are dropped.

        Returns:
            True: all of it was taken and goes to the file, with this moment's time; while the disk is full it waits in
            memory, and is lost only if the disk is still full at the end, which the log then says. Nothing was added:
            True.
            False: it, or a part of it, will not be there; the log says why. Where the disk did not take it, the file
            says that it is missing.

        Raises:
            TypeError: `step` is no integer, or another argument is of the wrong type.
            ValueError: `step` is negative, or beyond 64 bits.
            RecordingError: with `raise_exception=True`, what could not be written, or the recorder is closed.
        """
        number = step if type(step) is int and 0 <= step < 2**63 else validate.check_step(step)
        if train_network is not None or plugin_filter is not None:
            validate.check_record(train_network, plugin_filter)
        if self._raises:
            self._raise_error()
        if self._is_over:
            self._warnings.refuse_use(self._sink.path, self._is_fork)
            return False
        with self._lock:
            if self._is_busy:
                self._warnings.warn_once("nested", "A signal handler's record(), inside another call, is refused.")
                return False
            self._is_busy = True
            try:
                if self.metrics is not None:
                    self.metrics.reach(number)
                return self._record(number, train_network, plugin_filter)
            finally:
                self._is_busy = False

    def _record(self, step: int, train_network: nn.Cell | None, plugin_filter: Callable[[str], bool] | None) -> bool:
        if self._network is not None:
            self._add_graph(train_network)
        ops.gather(step)
        for item in self.inbox.take() if self.inbox.items else ():
            if self._mode == "train":
                self.add_item(item)
        scalars, items = self._pending.take(plugin_filter)
        return self._write(step, items, scalars)

    def flush(self, sync: bool = False) -> None:
        """Return when everything recorded so far can be read by another process.

        With `sync` it also survives a power failure: files and directory are on the disk itself.

        Raises:
            RecordingError: with `raise_exception=True`, what could not be written.
        """
        self._sink.flush(sync)
        self._raise_error()

    def close(self) -> None:
        """Write what was recorded and end the workers. A second call does nothing.

        What was added and not recorded is dropped, and one warning names it. Without a call, the end of the interpreter
        does the same.
        """
        self.close_as(End(FINISHED))

    def __reduce_ex__(self, _protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "A SummaryRecord cannot be pickled or copied, as it holds open files and processes. Make one in each "
            "process that records; several may record into one directory."
        )

    def __enter__(self) -> SummaryRecord:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *traceback: object) -> None:
        self.close_as(resume.end_of(error))

    # ------------------------------------------------------------------ for the collector

    def close_as(self, end: End) -> None:
        """Close the recorder, and write down how it ended."""
        self.inbox.close()
        self._network = None
        if self.metrics is not None:
            self.metrics.stop(waits=not self._is_busy)  # a signal handler may be inside of what that waits for
        if self._session is not None and not self._is_fork:
            self._session.end(self._sink, end.status == FINISHED)
        if self._ending.end is not None:
            self._ending.end = end
        self._end()
        self._close_sink()
        self._raise_error()

    def add_item(self, item: AnyItem) -> None:
        """Add a checked item to the next `record`."""
        with self._lock:
            is_second = self._pending.add(item)
        if is_second:
            self._warnings.warn_of_second(item.kind, item.tag)

    def write(self, step: int, items: list[AnyItem]) -> bool:
        """Hand items over as one event, now; arrays may be views that are valid for the duration of this call."""
        with self._lock:
            self._pending.keep()
        event = Event.of(step, 0.0, items)
        return self._write(step, event.items, event.scalars)

    def abandon(self) -> None:
        """Refuse every call in a forked child; the thread that held the lock in the parent does not exist here."""
        self._is_fork = True
        self._ending.end = None
        self._pending.clear()
        self._end()
        self._lock = threading.RLock()

    # ------------------------------------------------------------------ inside

    def _end(self) -> None:
        self._is_over = True
        self._known_names.clear()  # `add_value` looks only at others whether there is still a recorder

    def _write_sample(self, event: Event) -> None:
        """Write an event of the thread that samples, between those of this recorder; none of its errors is taken."""
        with self._lock:
            self._pending.keep()
            self._sink.write(event, emit=False)
        self._sink.emit()  # a logging handler may want to record something

    def _write(self, step: int, items: Sequence[Item], scalars: Mapping[str, float]) -> bool:
        for item in items:
            if is_too_large(item):
                return self._write_without_large(step, items, scalars)
        if scalars:
            total = sum(scalars.values())
            if total - total != 0.0:  # one of them, or their sum, is NaN or an infinity
                self._warnings.warn_of_nonfinite(step, scalars)
        elif not items:
            return True
        event = Event(step, time.time(), items, scalars)
        self._ending.step = step
        if items and self._session is not None:
            self._session.note(event)
        taken = self._sink.write(event)
        if not taken:
            self._raise_error()
        return taken

    def _write_without_large(self, step: int, items: Sequence[Item], scalars: Mapping[str, float]) -> bool:
        """Write all items but those that readers would skip; return False if there are such."""
        self._write(step, [item for item in items if not is_too_large(item)], scalars)
        self._warnings.refuse_large(step, [item for item in items if is_too_large(item)])
        return False

    def _add_copy(self, kind: str, tag: str, array: NDArray[np.generic], dtype: str) -> bool:
        # What is staged is only valid until the next event is written, by another thread or a signal handler.
        with self._lock:
            is_inside = self._is_busy
            self._is_busy = True
            try:
                return self._pending.add_copy(kind, tag, array, dtype, may_stage=not is_inside)
            finally:
                self._is_busy = is_inside

    def _add_graph(self, train_network: nn.Cell | None) -> None:
        model = framework.optimized_model_of(self._network) or framework.optimized_model_of(train_network)
        if model is not None:
            self._network = None  # once is enough, and the network must not live as long as its recorder
            self.add_value("graph", "train_network", model)
        else:
            text = "The network's graph is not recorded yet: it is not compiled, as in PyNative mode."
            self._warnings.warn_once("graph", text)

    def _raise_error(self) -> None:
        diagnostic = self._sink.take_error() if self._raises else None
        if diagnostic is not None:
            raise RecordingError(error_text(diagnostic))


def _close(pending: Pending, metrics: SystemMetrics | None, sink: Sink, ending: Ending) -> None:
    """Close what a recorder holds, once; the recorder itself may be gone."""
    warn_of_unrecorded(sink.path, pending.keys())
    if metrics is not None:
        metrics.stop()
    sink.close()
    ending.write(sink.path)

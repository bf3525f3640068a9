"""`SummaryRecord`: values by hand, and whatever summary operators leave, into event files."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import mindspore
import numpy as np

from instrument import forks, framework
from instrument.codec import event as event_codec
from instrument.codec import graph as graph_codec
from instrument.codec import lineage as lineage_codec
from instrument.codec import schema
from instrument.collect import convert, lineage, ops
from instrument.collect.options import RecordOptions
from instrument.errors import CorruptMessage, RecordingError
from instrument.values import LINEAGE_KINDS, Event, Item
from instrument.write.pool import open_sink
from instrument.write.sink import Sink, Stats, Target, item_bound_bytes

log = logging.getLogger("instrument")

_to_scalar = convert.to_scalar

_ARRAY_PLUGINS = ("scalar", "image", "tensor", "histogram")
_PLUGINS = (*_ARRAY_PLUGINS, "graph", *LINEAGE_KINDS, "landscape")
_MOST_KNOWN_NAMES = 10_000
#: Arrays from this size on are copied to where the next `record` will need them.
_STAGED_BYTES = 32 << 10
_WHAT_HAPPENED = {
    "gone": "What was recorded before step {} is lost",
    "stalled": "Step {} and what follows cannot be written at the moment",
}
_INT64 = range(-(2**63), 2**63)


class SummaryRecord:
    """Record values into an event file, in MindSpore's dialect and with MindSpore's call forms.

        with SummaryRecord("./run") as record:
            for step in range(1, 101):
                record.add_value("scalar", "loss", loss)
                record.record(step)

    Values are written by worker processes; `record` takes a few microseconds. What `record` answered True for is in the
    file, in order, whatever becomes of this process. Several recorders may be open at once, on one directory too.

    Args:
        log_dir: the directory for the event files; made where it is missing (mode 0777 less the umask).
        file_prefix: what the file's name begins with; letters, digits and the characters . _ -
        file_suffix: what the file's name ends with. Readers know `_MS`.
        num_process: worker processes; 0 writes in this process. Default: half of the cores, at least 1, at most 4.
        network: a compiled network (`nn.Cell`) whose graph is recorded once, with the first `record`.
        max_file_size: no file grows beyond so many bytes: when the next event does not fit, one warning says so, and
            `record` answers False from then on.
        raise_exception: raise `RecordingError` when something could not be written, at a following call: `record` does
            not wait for the file. By default it is logged once, counted in `stats`, and training goes on.
        export_options: `{"tensor_format": "npy"}` also writes each tensor as an array of its own,
            `export_<seconds>/tensor/<tag>_<step>.npy`.
        on_full: what `record` does when the workers cannot keep up: `"block"` waits for room, `"drop"` answers False
            and counts.
        queue_bytes: shared memory between this process and its workers; at least 1 MiB, by default 24 MiB.

    Raises:
        TypeError, ValueError: an option is wrong.
        OSError: the directory cannot be made or written.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        file_prefix: str = "events",
        file_suffix: str = "_MS",
        num_process: int | None = None,
        network: Any = None,
        max_file_size: int | None = None,
        raise_exception: bool = False,
        export_options: dict[str, str | None] | None = None,
        *,
        on_full: str = "block",
        queue_bytes: int | None = None,
    ) -> None:
        options = RecordOptions.check(
            log_dir, file_prefix, file_suffix, num_process, max_file_size, raise_exception, export_options, on_full,
            queue_bytes,
        )  # fmt: skip
        self._options = options
        self._network = _check_network("network", network)
        self._mode = "train"
        self._scalars: dict[str, float] = {}
        self._items: dict[tuple[str, str], Item] = {}
        self._has_staged = False
        self._warned: set[object] = set()
        self._known_names: set[str] = set()
        self._lock = threading.RLock()
        self._is_recording = False
        self._is_fork = self._is_closed = False
        self._raises = options.raise_exception
        self._sink = _open(options)
        self._close_sink = weakref.finalize(self, self._sink.close)  # at exit too, and when the recorder is dropped
        ops.gather()  # whatever ran before this recorder was made is not its business, but that of those open before
        self._inbox = ops.Inbox()
        forks.tell(self)

    # ------------------------------------------------------------------ what a user calls

    @property
    def log_dir(self) -> str:
        """The path of the event file."""
        return self._sink.path

    @property
    def stats(self) -> Stats:
        """What became of the events so far; see `Stats`."""
        return self._sink.stats

    def set_mode(self, mode: str) -> None:
        """Set the phase: values of summary operators are recorded in `"train"` and passed over in `"eval"`.

        Raises:
            ValueError: another mode.
        """
        if mode not in ("train", "eval"):
            raise ValueError(f"mode is {mode!r}; expected 'train' or 'eval'.")
        ops.gather()  # what ran so far belongs to the mode that ends here
        self._mode = mode
        self._inbox.is_open = mode == "train"

    def add_value(self, plugin: str, name: str, value: Any) -> None:
        """Add a value to the next `record`. The value is copied: what becomes of it later changes nothing.

        Args:
            plugin: the kind of the value, one of

                - `scalar`: a tensor or array with one element, or a number;
                - `tensor`, `histogram`: a tensor, array or number of any shape;
                - `image`: a batch of pictures, (N, C, H, W) or (N, H, W, C), with 1 or 3 channels;
                - `graph`: the serialised `ModelProto` of a network;
                - `train_lineage`, `eval_lineage`, `dataset_graph`, `custom_lineage_data`: a message of MindSpore's
                  lineage proto, or its bytes; a dictionary for the last;
                - `landscape`: a `LossLandscape` message of MindSpore's summary proto, or its bytes.
            name: the tag, any text that is not empty. A second value with the same plugin and name before the next
                `record` replaces the first, with one warning.
            value: numbers of bool, integer and float types up to 64 bits, and bfloat16.

        Raises:
            ValueError: an unknown plugin, an empty name or one that is not valid Unicode, a value of the wrong shape.
            TypeError: a name that is no text, a value of another type.
        """
        if plugin == "scalar" and type(name) is str and name in self._known_names:
            number = _to_scalar(value, name)  # the hot path: all else is checked
            with self._lock:  # another thread may record meanwhile
                is_second = name in self._scalars
                self._scalars[name] = number
            if is_second:
                self._warn_of_second(plugin, name)
            return
        _check_plugin(plugin)
        _check_name(name)
        if plugin in _ARRAY_PLUGINS:
            self._add_array(plugin, name, value)
        elif plugin == "graph":
            self.add_item(Item("graph", name, _graph_bytes(value, name)))
        elif plugin == "landscape":
            self.add_item(Item("landscape", name, _message_bytes(value, "LossLandscape", name)))
        else:
            self.add_item(Item(plugin, name, _lineage_bytes(plugin, value, name)))

    def record(
        self,
        step: int,
        train_network: Any = None,
        plugin_filter: Callable[[str], bool] | None = None,
    ) -> bool:
        """Hand over everything added since the last call, and in mode `"train"` what summary operators left.

        Args:
            step: the number of the training step, a Python or NumPy integer.
            train_network: where the graph is taken from if the constructor's `network` is not compiled.
            plugin_filter: told a plugin's name, says whether its values are recorded; the others are dropped.

        Returns:
            True: all of it was taken and goes to the file, with this moment's time; while the disk is full it waits in
            memory, and is lost only if the disk is still full at the end, which the log then says.
            False: it, or a part of it, will not be there; the log says why. Nothing was added: True.

        Raises:
            TypeError: `step` is no integer, or another argument is of the wrong type.
            ValueError: `step` is beyond 64 bits.
            RecordingError: with `raise_exception=True`, what could not be written.
        """
        number = step if type(step) is int and -(2**63) <= step < 2**63 else _check_step(step)
        if train_network is not None:
            _check_network("train_network", train_network)
        if plugin_filter is not None and not callable(plugin_filter):
            raise TypeError(f"plugin_filter is a {type(plugin_filter).__name__}; expected a function or None.")
        if self._raises:
            self._raise_error()
        if self._is_fork or self._is_closed:
            return self._refuse_use()
        with self._lock:
            if self._is_recording:
                self._warn("nested", "A signal handler's record(), inside another one, is refused.")
                return False
            self._is_recording = True
            try:
                return self._record(number, train_network, plugin_filter)
            finally:
                self._is_recording = False

    def _record(self, step: int, train_network: Any, plugin_filter: Callable[[str], bool] | None) -> bool:
        if self._network is not None:
            self._add_graph(train_network)
        ops.gather(step)
        if self._inbox:
            self._add_summaries()
        scalars, self._scalars = self._scalars, {}
        items, self._items = self._items, {}
        self._has_staged = False
        if not (scalars or items):
            return True
        chosen = list(items.values())
        if plugin_filter is not None:
            chosen = [item for item in chosen if plugin_filter(item.kind)]
            scalars = scalars if scalars and plugin_filter("scalar") else {}
        return self._write(Event(step, time.time(), chosen, scalars))

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

        What was added and not recorded is dropped. Without a call, the end of the interpreter does the same.
        """
        self._inbox.close()
        self._network = None
        self._is_closed = True
        self._close_sink()
        self._raise_error()

    def __enter__(self) -> SummaryRecord:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ for the collector

    @property
    def inbox(self) -> ops.Inbox:
        """Where summary operators leave their values for this recorder."""
        return self._inbox

    def add_item(self, item: Item) -> None:
        """Add a checked item to the next `record`."""
        kind, tag, payload, _ = item
        with self._lock:
            if kind == "scalar":
                is_second = tag in self._scalars
                self._scalars[str.__str__(tag)] = payload  # type: ignore[assignment]
            else:
                is_second = self._items.pop((kind, tag), None) is not None
                self._items[kind, tag] = item
        if is_second:
            self._warn_of_second(kind, tag)

    def write(self, step: int, items: list[Item]) -> bool:
        """Hand items over as one event, now; arrays may be views that are valid for the duration of this call."""
        if self._has_staged:
            self._keep_staged()
        return self._write(Event.of(step, time.time(), items))

    def abandon(self) -> None:
        """In a forked child: its `record` will be refused; whoever held the lock in the parent does not exist here."""
        self._is_fork = True
        self._lock = threading.RLock()

    # ------------------------------------------------------------------ inside

    def _write(self, event: Event) -> bool:
        step, _, items, scalars = event
        too_large = [item for item in items if _is_too_large(item)] if items else ()
        if too_large:
            self._write(event._replace(items=[item for item in items if not _is_too_large(item)]))
            return self._refuse(step, too_large)
        if not (items or scalars):
            return True
        total = sum(scalars.values())
        if total - total != 0.0:  # one of them, or their sum, is NaN or an infinity
            self._warn_of_strange(step, scalars)
        taken = self._sink.write(event)
        if not taken:
            self._raise_error()
        return taken

    def _warn_of_strange(self, step: int, scalars: Mapping[str, float]) -> None:
        for tag, number in scalars.items():
            if not math.isfinite(number):
                text = "The scalar %r is %s at step %d. It is recorded as it is; this is said once."
                self._warn(("finite", tag), text, tag, number, step)

    def _warn_of_second(self, kind: str, tag: str) -> None:
        if not self._is_fork:  # what is added there is never recorded
            text = "The %s %r was added twice before a record(); the last one is kept."
            self._warn(("twice", kind, tag), text, kind, tag)

    def _add_array(self, plugin: str, name: str, value: Any) -> None:
        item = ops.make_item(plugin, name, value, copy=False)
        if plugin == "scalar":
            self.add_item(item)
            if len(self._known_names) < _MOST_KNOWN_NAMES:
                self._known_names.add(name)
            return
        if self._is_fork:
            return
        with self._lock:  # what is staged is only valid until the next write, which may be another thread's
            if not _is_too_large(item):  # what `_write` will refuse need not be copied
                item = item._replace(payload=self._copy(item.payload))
            self.add_item(item)

    def _copy(self, array: Any) -> Any:
        if array.nbytes >= _STAGED_BYTES and not self._is_recording:  # as it is where a signal handler adds a value
            staged = self._sink.stage(array)
            if staged is not None:
                self._has_staged = True
                return staged
        return np.array(array)

    def _keep_staged(self) -> None:
        """Something else is written first: copy what waits for the next `record`."""
        with self._lock:
            for key, item in self._items.items():
                if isinstance(item.payload, np.ndarray):
                    self._items[key] = item._replace(payload=np.array(item.payload))
            self._has_staged = False

    def _refuse(self, step: int, too_large: Sequence[Item]) -> bool:
        """Say of values that no reader would take them; False, for whoever asks whether all was recorded."""
        for item in too_large:
            message = (
                f"The {item.kind} {item.tag!r} of step {step} takes {item_bound_bytes(item)} bytes in a file, more "
                f"than the {event_codec.MAX_PAYLOAD_BYTES} that its readers accept: it is not recorded, everything "
                "else of the step is. Record a part of it, or its histogram."
            )
            if self._options.raise_exception:
                raise RecordingError(message)
            self._warn(("large", item.kind, item.tag), "%s", message)
        return False

    def _add_graph(self, train_network: Any) -> None:
        model = framework.optimized_model_of(self._network)
        if model is None and train_network is not None:
            model = framework.optimized_model_of(train_network)
        if model is None:
            self._warn("graph", "The network's graph is not recorded yet: it is not compiled, as in PyNative mode.")
            return
        self._network = None  # once is enough, and the network must not live as long as its recorder
        self.add_value("graph", "train_network", model)

    def _add_summaries(self) -> None:
        for item in self._inbox.take():
            if self._mode == "train":
                self.add_item(item)

    def _refuse_use(self) -> bool:
        if self._is_fork:
            text = "%s was opened by the process that forked this one, which cannot write to it. Open one here."
            self._warn("fork", text, self._sink.path)
        else:
            self._warn("closed", "%s is closed: nothing more is recorded there.", self._sink.path)
        return False

    def _raise_error(self) -> None:
        if not self._raises:
            return
        error = self._sink.take_error()
        if error is not None:
            what = _WHAT_HAPPENED.get(error.what, "Step {} is lost").format(error.step)
            raise RecordingError(f"{what}, in {error.path}: {error.reason}")

    def _warn(self, cause: object, message: str, *arguments: object) -> None:
        if cause not in self._warned:
            self._warned.add(cause)
            log.warning(message, *arguments)


def _is_too_large(item: Item) -> bool:
    payload: Any = item.payload
    # Most are far from it: numbers take at most four times their own bytes in a file, pictures less.
    if not isinstance(payload, bytes) and 10 * payload.nbytes < event_codec.MAX_PAYLOAD_BYTES:
        return False
    return item_bound_bytes(item) > event_codec.MAX_PAYLOAD_BYTES


def _open(options: RecordOptions) -> Sink:
    target = Target(
        options.directory, options.file_prefix, options.file_suffix, framework.device_number(),
        options.max_file_bytes, options.export_tensors,
    )  # fmt: skip
    try:
        return open_sink(target, options.processes, options.queue_bytes, options.drop_when_full)
    except OSError as error:
        # The same class (PermissionError, NotADirectoryError, ...), with what to do about it.
        reason = f"the log directory cannot be written ({error.strerror}); choose another one or change its permissions"
        raise type(error)(error.errno, reason, options.directory) from error


def _check_plugin(plugin: Any) -> None:
    if plugin not in _PLUGINS:
        raise ValueError(f"The plugin is {plugin!r}; expected one of {list(_PLUGINS)}.")


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"The name is {name!r} of type {type(name).__name__}; expected str.")
    if not name:
        raise ValueError("The name is empty; expected at least one character.")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"The name {name!r} is no valid Unicode: {error.reason} at position {error.start}.") from None


def _check_step(step: Any) -> int:
    if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
        raise TypeError(f"step is {step!r} of type {type(step).__name__}; expected a Python or NumPy integer.")
    number = int(step)
    if number not in _INT64:
        raise ValueError(f"step is {number}; expected an integer of at most 64 bits.")
    return number


def _check_network(name: str, network: Any) -> Any:
    if network is not None and not isinstance(network, mindspore.nn.Cell):
        raise TypeError(f"{name} is a {type(network).__name__}; expected a mindspore.nn.Cell or None.")
    return network


def _graph_bytes(value: Any, name: str) -> bytes:
    data = value.SerializeToString() if hasattr(value, "SerializeToString") else value
    if not isinstance(data, (bytes, bytearray)):
        raise TypeError(f"The graph {name!r} is a {type(value).__name__}; expected the bytes of a ModelProto.")
    if getattr(getattr(value, "DESCRIPTOR", None), "name", "") == "GraphProto":
        return bytes(data)
    try:
        return graph_codec.from_model(bytes(data)).data
    except CorruptMessage as error:
        raise ValueError(f"The value of {name!r} is no ModelProto message with a graph: {error}") from error


def _message_bytes(value: Any, message_name: str, name: str) -> bytes:
    """The bytes of a protobuf message, from whatever pool its class comes."""
    given = getattr(getattr(value, "DESCRIPTOR", None), "name", type(value).__name__)
    if isinstance(value, (bytes, bytearray)):
        data = bytes(value)
    elif given == message_name and hasattr(value, "SerializeToString"):
        data = value.SerializeToString()
    else:
        raise TypeError(f"The value of {name!r} is a {given}; expected a {message_name} message or its bytes.")
    try:
        schema.message_class(message_name).FromString(data)
    except Exception as error:  # DecodeError's class depends on protobuf's implementation
        raise ValueError(f"The value of {name!r} is no {message_name} message: {error}") from error
    return data


def _lineage_bytes(plugin: str, value: Any, name: str) -> bytes:
    if plugin == "custom_lineage_data" and isinstance(value, dict):
        return lineage_codec.custom_message(lineage.check_custom(value, name))
    return _message_bytes(value, lineage_codec.MESSAGES[plugin][1], name)

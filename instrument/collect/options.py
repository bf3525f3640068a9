"""Options of the recorders, checked once, at construction; a wrong one is refused with what would be right.

Those of one recorder open its sink.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from instrument import framework
from instrument.checks import check_bool, check_directory, check_int
from instrument.codec.dialects import LAYOUTS, MINDSPORE
from instrument.collect import lineage
from instrument.collect.system_metrics import check_interval
from instrument.write.factory import default_processes, open_sink
from instrument.write.pool import DEFAULT_RING_BYTES
from instrument.write.sink import Sink, Target

_NAME_PART = re.compile(r"[A-Za-z0-9._-]*")
_SWITCHES = (
    "collect_metric",
    "collect_graph",
    "collect_train_lineage",
    "collect_eval_lineage",
    "collect_input_data",
    "collect_dataset_graph",
    "collect_provenance",
)
_LANDSCAPE_KEYS = ("landscape_size", "unit", "num_samples", "create_landscape", "intervals")
_CREATE = {"train": True, "result": True}
_SPECIFIED_KEYS = (*_SWITCHES, "collect_patch", "histogram_regular", "collect_landscape")


#: While records are captured (`instrument.testing`): each opens a sink in memory in place of files, the last one first.
substitutes: list[Callable[[], Sink]] = []


def try_directory(directory: str) -> None:
    """Make the directory and write to it, so that a wrong one is refused before training starts."""
    if substitutes:
        return
    try:
        os.makedirs(directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        reason = f"summary_dir cannot be written ({error.strerror}); choose another one or change its permissions"
        raise type(error)(error.errno, reason, directory) from error


@dataclass(frozen=True)
class RecordOptions:
    """Everything that `SummaryRecord` can be told but its network."""

    directory: str
    file_prefix: str
    file_suffix: str
    processes: int
    max_file_bytes: int | None
    raise_exception: bool
    export_tensors: bool
    drop_when_full: bool
    queue_bytes: int
    #: Seconds between two samples of the system; None for no samples.
    system_interval: float | None = None
    dialect: str = MINDSPORE.dialect

    @classmethod
    def check(
        cls, log_dir: object, file_prefix: object, file_suffix: object, num_process: object, max_file_size: object,
        raise_exception: object, export_options: object, on_full: object, queue_bytes: object,
        system_metrics: object = False, dialect: object = MINDSPORE.dialect,
    ) -> RecordOptions:  # fmt: skip
        """Check the options; raise `TypeError`, `ValueError`, or `ImportError` if psutil is needed and missing."""
        prefix, suffix = _name_part("file_prefix", file_prefix), _name_part("file_suffix", file_suffix)
        if suffix.endswith("_lineage"):
            raise ValueError(f"file_suffix is {suffix!r}; expected another end than '_lineage', which marks lineage.")
        if on_full not in ("block", "drop"):
            raise ValueError(f"on_full is {on_full!r}; expected 'block' (wait for room) or 'drop' (count and go on).")
        if not isinstance(dialect, str) or dialect not in LAYOUTS:
            raise ValueError(
                f"dialect is {dialect!r}; expected 'mindspore' (MindInsight's files), 'tensorboard', or 'both'."
            )
        system_interval = check_interval(system_metrics)
        return cls(
            check_directory("log_dir", log_dir),
            prefix,
            suffix,
            default_processes() if num_process is None else check_int("num_process", num_process, 0),
            None if max_file_size is None else check_int("max_file_size", max_file_size, 1),
            check_bool("raise_exception", raise_exception),
            wants_npy(export_options),
            on_full == "drop",
            DEFAULT_RING_BYTES if queue_bytes is None else check_int("queue_bytes", queue_bytes, 1 << 20),
            system_interval,
            dialect,
        )

    def open_sink(self) -> Sink:
        """Open the sink that these options ask for, or one in memory while records are captured.

        Raises:
            OSError: the directory cannot be made or written.
        """
        for open_in_memory in substitutes[-1:]:
            return open_in_memory()
        target = Target(
            self.directory, self.file_prefix, self.file_suffix, framework.device_number(), self.max_file_bytes,
            self.export_tensors, dialect=self.dialect, rank=framework.rank(), is_start=True,
        )  # fmt: skip
        try:
            return open_sink(target, self.processes, self.queue_bytes, self.drop_when_full)
        except OSError as error:
            # The same class (PermissionError, NotADirectoryError, ...), with what to do about it.
            reason = (
                f"the log directory cannot be written ({error.strerror}); choose another one or change its permissions"
            )
            raise type(error)(error.errno, reason, self.directory) from error


def _name_part(name: str, part: object) -> str:
    if not isinstance(part, str):
        raise TypeError(f"{name} is a {type(part).__name__}; expected str.")
    if _NAME_PART.fullmatch(part) is None:
        raise ValueError(f"{name} is {part!r}; expected only letters, digits and the characters . _ -")
    return part


def wants_npy(export_options: object) -> bool:
    """Return True if tensors are exported as `.npy`; raise for options that do not exist."""
    if export_options is None:
        return False
    if not isinstance(export_options, Mapping):
        raise TypeError(f"export_options is a {type(export_options).__name__}; expected a dictionary or None.")
    unknown = sorted(set(export_options) - {"tensor_format"}, key=str)
    if unknown:
        raise ValueError(f"export_options has the unknown keys {unknown}; expected 'tensor_format'.")
    tensor_format = export_options.get("tensor_format")
    if tensor_format not in ("npy", None):
        raise ValueError(f"export_options' tensor_format is {tensor_format!r}; expected 'npy' or None.")
    return tensor_format == "npy"


@dataclass(frozen=True)
class CollectorOptions:
    """The options of a `SummaryCollector`, checked. `record_arguments` are those of its recorders."""

    directory: str
    record_arguments: Mapping[str, Any]
    system_metrics: bool | float
    collect_freq: int
    tensor_freq: int | None
    specified: Specified
    custom: Mapping[str, str | int | float]
    on_every_rank: bool

    @classmethod
    def check(
        cls, summary_dir: object, collect_freq: object, num_process: object, collect_specified_data: object,
        keep_default_action: object, custom_lineage_data: object, collect_tensor_freq: object, max_file_size: object,
        export_options: object, on_full: object, system_metrics: bool | float, on_every_rank: object, dialect: object,
    ) -> CollectorOptions:  # fmt: skip
        """Raise `TypeError` or `ValueError` for the first wrong option."""
        directory = check_directory("summary_dir", summary_dir)
        RecordOptions.check(
            directory, "events", "_MS", num_process, max_file_size, False, export_options, on_full, None,
            system_metrics, dialect,
        )  # fmt: skip
        arguments = {
            "num_process": num_process, "max_file_size": max_file_size, "export_options": export_options,
            "on_full": on_full, "dialect": dialect,
        }  # fmt: skip
        freq = check_int("collect_freq", collect_freq, 1)
        tensor_freq = None if collect_tensor_freq is None else check_int("collect_tensor_freq", collect_tensor_freq, 1)
        specified = Specified.check(collect_specified_data, keep_default_action)
        everywhere = check_bool("on_every_rank", on_every_rank)
        custom = {} if custom_lineage_data is None else lineage.check_custom(custom_lineage_data, "custom_lineage_data")
        custom = {**lineage.from_environment(), **custom}
        return cls(directory, arguments, system_metrics, freq, tensor_freq, specified, custom, everywhere)


@dataclass(frozen=True)
class Specified:
    """`collect_specified_data`, checked. `histograms` is None where none are wanted, and has no pattern for the first
    five parameters."""

    switches: Mapping[str, bool]
    histograms: bool
    histogram_pattern: re.Pattern[str] | None
    landscape: LandscapeOptions | None

    @classmethod
    def check(cls, given: object, keep_default_action: object) -> Specified:
        """Check the options; raise `TypeError` or `ValueError` for the first wrong entry."""
        keeps = check_bool("keep_default_action", keep_default_action)
        if given is None:
            given = {}
        if not isinstance(given, Mapping):
            raise TypeError(f"collect_specified_data is a {type(given).__name__}; expected a dictionary or None.")
        unknown = sorted(set(given) - set(_SPECIFIED_KEYS), key=str)
        if unknown:
            raise ValueError(
                f"collect_specified_data has the unknown keys {unknown}; expected some of {list(_SPECIFIED_KEYS)}."
            )
        landscape = given.get("collect_landscape")
        return cls(
            {
                **{name: check_bool(name, given.get(name, keeps)) for name in _SWITCHES},
                "collect_patch": check_bool("collect_patch", given.get("collect_patch", False)),
            },
            keeps or "histogram_regular" in given,
            _pattern(given.get("histogram_regular")),
            # An empty dictionary asks for nothing; a landscape's weights are only kept where somebody asks for them.
            LandscapeOptions.from_dict(landscape) if landscape is not None and landscape != {} else None,
        )


def _pattern(given: object) -> re.Pattern[str] | None:
    if given is None:
        return None
    if not isinstance(given, str):
        raise TypeError(f"histogram_regular is a {type(given).__name__}; expected a regular expression or None.")
    try:
        return re.compile(given)
    except re.error as error:
        raise ValueError(f"histogram_regular is {given!r}, which is no regular expression: {error}.") from error


@dataclass(frozen=True)
class LandscapeOptions:
    """`collect_landscape` of `collect_specified_data`, checked. Its defaults are MindSpore's but for `intervals`,
    which must be given: lists of at least three steps or epochs at which the weights are kept."""

    intervals: tuple[tuple[int, ...], ...]
    landscape_size: int = 40
    unit: str = "step"
    num_samples: int = 2048
    create_landscape: Mapping[str, bool] = field(default_factory=lambda: dict(_CREATE))

    @classmethod
    def from_dict(cls, given: object) -> LandscapeOptions:
        """Check the options; raise `TypeError` or `ValueError` for what MindSpore's generator would not take."""
        if not isinstance(given, Mapping):
            raise TypeError(f"collect_landscape is a {type(given).__name__}; expected a dictionary or None.")
        unknown = sorted(set(given) - set(_LANDSCAPE_KEYS), key=str)
        if unknown:
            raise ValueError(
                f"collect_landscape has the unknown keys {unknown}; expected some of {list(_LANDSCAPE_KEYS)}."
            )
        if "intervals" not in given:
            raise ValueError("collect_landscape has no intervals; expected lists of steps or epochs, e.g. [[1, 2, 3]].")
        options = cls(**{**given, "intervals": _intervals(given["intervals"])})
        options._check()
        return replace(options, create_landscape={**_CREATE, **options.create_landscape})

    def _check(self) -> None:
        if not _is_int(self.landscape_size) or not 3 <= self.landscape_size <= 256:
            raise ValueError(f"landscape_size is {self.landscape_size!r}; expected an int from 3 to 256.")
        if self.unit not in ("step", "epoch"):
            raise ValueError(f"collect_landscape's unit is {self.unit!r}; expected 'step' or 'epoch'.")
        if not _is_int(self.num_samples) or self.num_samples < 1:
            raise ValueError(f"num_samples is {self.num_samples!r}; expected an int of at least 1.")
        create = self.create_landscape
        if not isinstance(create, Mapping) or set(create) - set(_CREATE):
            raise ValueError(f"create_landscape is {create!r}; expected a dictionary with the keys train and result.")
        if not all(isinstance(value, bool) for value in create.values()):
            raise TypeError(f"create_landscape is {create!r}; expected True or False as values.")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _intervals(given: object) -> tuple[tuple[int, ...], ...]:
    if not isinstance(given, (list, tuple)) or not given:
        raise TypeError(f"intervals is {given!r}; expected a list of lists of int.")
    result = []
    for interval in given:
        if not isinstance(interval, (list, tuple)) or not all(_is_int(number) and number > 0 for number in interval):
            raise TypeError(f"intervals holds {interval!r}; expected a list of positive int.")
        if len(set(interval)) < 3 or list(interval) != sorted(set(interval)):
            raise ValueError(f"intervals holds {list(interval)}; expected at least three numbers in ascending order.")
        result.append(tuple(interval))
    return tuple(result)

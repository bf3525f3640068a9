"""The options of the profiler, checked once: an unknown name is refused, an option without effect is logged.

The enumerations have MindSpore's names and values; MindSpore's own members are taken as well.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from instrument.checks import check_bool, check_directory, check_int
from instrument.wording import closest

log = logging.getLogger("instrument")

Member = TypeVar("Member", bound=Enum)
Function = TypeVar("Function", bound=Callable[..., object])
#: Takes the name and the value of an option; returns what is stored, or raises `TypeError` or `ValueError`.
Check = Callable[[str, object], Any]


class ProfilerLevel(Enum):
    """How much an Ascend device records."""

    LevelNone = "LevelNone"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class ProfilerActivity(Enum):
    """Whose work is recorded: operators of the host, of an Ascend device, of a GPU."""

    NPU = "NPU"
    GPU = "GPU"
    CPU = "CPU"


class AicoreMetrics(Enum):
    """Which counters of an Ascend device's AI Core are recorded."""

    PipeUtilization = "PipeUtilization"
    ArithmeticUtilization = "ArithmeticUtilization"
    Memory = "Memory"
    MemoryL0 = "MemoryL0"
    MemoryUB = "MemoryUB"
    ResourceConflictRatio = "ResourceConflictRatio"
    L2Cache = "L2Cache"
    MemoryAccess = "MemoryAccess"
    AiCoreNone = "None"


class ExportType(Enum):
    """What an Ascend device's own tools export."""

    Db = "db"
    Text = "text"


#: The numbers that MindSpore 2.0 to 2.2 had for `aicore_metrics`.
_AICORE_NUMBERS = {
    -1: AicoreMetrics.AiCoreNone, 0: AicoreMetrics.ArithmeticUtilization, 1: AicoreMetrics.PipeUtilization,
    2: AicoreMetrics.Memory, 3: AicoreMetrics.MemoryL0, 4: AicoreMetrics.ResourceConflictRatio,
    5: AicoreMetrics.MemoryUB,
}  # fmt: skip
#: Arguments of earlier versions that MindSpore itself ignores by now.
_OUTDATED = ("profile_communication", "op_time", "profile_framework", "host_stack", "timeline_limit")
_BOTH = (ProfilerActivity.CPU, ProfilerActivity.NPU)


@dataclass(frozen=True)
class Options:
    """Options of a profiler beside its schedule, in MindSpore's words. The defaults are MindSpore's.

    `data_process` is None where nobody said: the data pipeline is recorded where that costs nothing, on the CPU.
    """

    start_profile: bool = True
    profile_memory: bool = False
    data_process: bool | None = None
    activities: tuple[ProfilerActivity, ...] = _BOTH
    profiler_level: ProfilerLevel = ProfilerLevel.Level0
    aic_metrics: AicoreMetrics = AicoreMetrics.AiCoreNone
    with_stack: bool = False
    parallel_strategy: bool = False
    l2_cache: bool = False
    hbm_ddr: bool = False
    pcie: bool = False
    sys_io: bool = False
    sys_interconnection: bool = False
    host_sys: tuple[str, ...] = ()
    sync_enable: bool = True
    data_simplification: bool = True
    record_shapes: bool = False
    export_type: tuple[ExportType, ...] = (ExportType.Text,)
    mstx: bool = False
    mstx_domain_include: tuple[str, ...] = ()
    mstx_domain_exclude: tuple[str, ...] = ()
    keep_raw: bool = False
    max_steps: int | None = None

    @classmethod
    def check(cls, given: Mapping[str, object]) -> Options:
        """Check each option. Raise `TypeError` or `ValueError` for the first that is wrong."""
        return cls(**{name: _CHECKS.get(name, check_bool)(name, value) for name, value in given.items()})

    @property
    def changed(self) -> set[str]:
        """The names of the options that differ from their defaults."""
        default = Options()
        names = (option.name for option in fields(self))
        return {name for name in names if getattr(self, name) != getattr(default, name)}


#: The names of the options.
OPTIONS = frozenset(option.name for option in fields(Options))


def from_arguments(arguments: Mapping[str, object], outdated: Mapping[str, object], profiler: type) -> Options:
    """Make options of the arguments of the class `profiler`, and of `outdated` ones, which older MindSpore had.

    Raises:
        TypeError: an argument that no version knows. The message names the nearest one.
        TypeError, ValueError: an argument's value is wrong.
    """
    given = dict(arguments)
    for name, value in outdated.items():
        if name == "aicore_metrics":
            given["aic_metrics"] = value
        elif name not in _OUTDATED:
            raise TypeError(_unknown(name, profiler))
    ignored = sorted(outdated.keys() & set(_OUTDATED))
    if ignored:
        _say_once(f"{', '.join(ignored)}: MindSpore gave this up; it has no effect.")
    return Options.check(given)


def _unknown(name: str, profiler: type) -> str:
    names = [given for given in inspect.signature(profiler).parameters if given not in ("self", "outdated")]
    near = closest(name, names)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"Profiler got an unknown argument {name!r}{hint} It knows {', '.join(names)}."


def warn_of_no_effect(options: Options, target: str, effective: Iterable[str]) -> None:
    """Say once which of the options that somebody set do nothing on this device."""
    without = sorted(options.changed - {"start_profile", "keep_raw", "max_steps", "activities", *effective})
    if without:
        _say_once(f"{', '.join(without)}: no effect on {target}.")
    if target == "CPU" and ProfilerActivity.CPU not in options.activities:
        _say_once("activities lack ProfilerActivity.CPU: no operator is recorded on CPU.")


_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        log.warning("Profiler: %s", text)


# ---------------------------------------------------------------- checks


def _member(kind: type[Member], name: str, value: object) -> Member:
    """Return a member of `kind`, given as such, as MindSpore's member of that name, or by its value."""
    try:
        return kind(value.value if isinstance(value, Enum) else value)
    except ValueError:
        members = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
        raise ValueError(f"{name} is {value!r}; expected one of {members}.") from None


def _members(kind: type[Member], name: str, value: object) -> tuple[Member, ...]:
    if isinstance(value, (str, Enum)):
        value = [value]
    if not isinstance(value, Iterable):
        raise TypeError(f"{name} is {value!r}; expected a list of {kind.__name__}.")
    return tuple(dict.fromkeys(_member(kind, name, item) for item in value))


def _check_aic_metrics(name: str, value: object) -> AicoreMetrics:
    if isinstance(value, int) and not isinstance(value, bool) and value in _AICORE_NUMBERS:
        return _AICORE_NUMBERS[value]
    return _member(AicoreMetrics, name, value)


def _check_texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        raise TypeError(f"{name} is {value!r}; expected a list.")
    texts = tuple(item.value if isinstance(item, Enum) else item for item in value)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{name} is {value!r}; expected a list of str.")
    return texts


def _optional(check: Check) -> Check:
    """Return a check that takes None as well."""
    return lambda name, value: None if value is None else check(name, value)


def _with_default(default: object, check: Check) -> Check:
    """Return a check that takes None for the default."""
    return lambda name, value: check(name, default if value is None else value)


#: The options that are not just True or False.
_CHECKS: dict[str, Check] = {
    "data_process": _optional(check_bool),
    "activities": _with_default(_BOTH, partial(_members, ProfilerActivity)),
    "profiler_level": _with_default(ProfilerLevel.Level0, partial(_member, ProfilerLevel)),
    "aic_metrics": _check_aic_metrics,
    "export_type": _with_default(ExportType.Text, partial(_members, ExportType)),
    "host_sys": _check_texts,
    "max_steps": _optional(lambda name, value: check_int(name, value, 1)),
    "mstx_domain_include": _check_texts,
    "mstx_domain_exclude": _check_texts,
}


def check_output_directory(name: str, value: object) -> str:
    """Return the absolute path of a directory to write to. It is made when there is something to write.

    Raises:
        TypeError, ValueError: the value is no path.
        OSError: the directory cannot be written, or could not be made.
    """
    path = ancestor = check_directory(name, value)
    while not os.path.lexists(ancestor):
        ancestor = os.path.dirname(ancestor)
    try:
        # Tried, since permissions do not tell it everywhere: root may write to /proc, which takes no file.
        os.rmdir(tempfile.mkdtemp(prefix=".instrument-", dir=ancestor))
    except OSError as error:
        reason = f"{name} cannot be written ({error.strerror}); choose another directory or change its permissions"
        raise type(error)(error.errno, reason, path) from error
    return path


def check_steps(value: object) -> list[int]:
    """Return the numbers of steps. Raise `TypeError` for what is no list of such, `ValueError` for a negative one."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        raise TypeError(f"step_list is {value!r}; expected a list of numbers of steps.")
    return [check_int("step_list", number, 0) for number in value]


def check_callable(name: str, value: Function | None) -> Function | None:
    """Return a function or None; raise `TypeError` for anything else."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; expected a function or None.")
    return value


@dataclass
class Metadata:
    """Facts that the user adds to the windows that are closed from then on."""

    values: dict[str, object] = field(default_factory=dict)

    def add(self, key: str, value: str) -> None:
        """Add a text. Raise `TypeError` for anything else."""
        for name, given in (("key", key), ("value", value)):
            if not isinstance(given, str):
                raise TypeError(f"{name} is {given!r} of type {type(given).__name__}; expected str.")
        self.values[key] = value

    def add_json(self, key: str, value: str) -> None:
        """Add what a text holds as JSON. Raise `ValueError` if it is none."""
        self.add(key, value)
        try:
            self.values[key] = json.loads(value)
        except ValueError as error:
            del self.values[key]
            raise ValueError(f"value of {key!r} is no JSON: {error}. Use add_metadata for plain text.") from None

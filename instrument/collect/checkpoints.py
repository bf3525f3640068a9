"""The weights that a loss landscape will need: checkpoints at the given steps or epochs, and what they are.

Files and keys are MindSpore's, so that its landscape generator reads them:
`ckpt_dir/{Network}_{number}_{unit}.ckpt` and `ckpt_dir/train_metadata.json`.
Each is written under a temporary name and renamed when it is whole.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mindspore

from instrument.collect.sources import innermost_network

log = logging.getLogger("instrument")

METADATA = "train_metadata.json"
_KEYS = ("landscape_size", "unit", "num_samples", "create_landscape", "intervals")


@dataclass(frozen=True)
class LandscapeOptions:
    """`collect_landscape` of `collect_specified_data`, checked. Its defaults are MindSpore's but for `intervals`,
    which must be given: lists of at least three steps or epochs at which the weights are kept."""

    intervals: tuple[tuple[int, ...], ...]
    landscape_size: int = 40
    unit: str = "step"
    num_samples: int = 2048
    create_landscape: Mapping[str, bool] = field(default_factory=lambda: {"train": True, "result": True})

    @classmethod
    def from_dict(cls, given: Any) -> LandscapeOptions:
        """Raises `TypeError` or `ValueError` for whatever MindSpore's generator would not take."""
        if not isinstance(given, Mapping):
            raise TypeError(f"collect_landscape is a {type(given).__name__}; expected a dictionary or None.")
        unknown = sorted(set(given) - set(_KEYS), key=str)
        if unknown:
            raise ValueError(f"collect_landscape has the unknown keys {unknown}; expected some of {list(_KEYS)}.")
        if "intervals" not in given:
            raise ValueError("collect_landscape has no intervals; expected lists of steps or epochs, e.g. [[1, 2, 3]].")
        options = cls(**{**given, "intervals": _intervals(given["intervals"])})
        options._check()
        return options

    def _check(self) -> None:
        if not _is_int(self.landscape_size) or not 3 <= self.landscape_size <= 256:
            raise ValueError(f"landscape_size is {self.landscape_size!r}; expected an int from 3 to 256.")
        if self.unit not in ("step", "epoch"):
            raise ValueError(f"collect_landscape's unit is {self.unit!r}; expected 'step' or 'epoch'.")
        if not _is_int(self.num_samples) or self.num_samples < 1:
            raise ValueError(f"num_samples is {self.num_samples!r}; expected an int of at least 1.")
        create = self.create_landscape
        if not isinstance(create, Mapping) or set(create) - {"train", "result"}:
            raise ValueError(f"create_landscape is {create!r}; expected a dictionary with the keys train and result.")
        if not all(isinstance(value, bool) for value in create.values()):
            raise TypeError(f"create_landscape is {create!r}; expected True or False as values.")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _intervals(given: Any) -> tuple[tuple[int, ...], ...]:
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


class Checkpoints:
    """Keeps a network's weights during one training."""

    def __init__(self, directory: str, options: LandscapeOptions) -> None:
        self._directory = os.path.realpath(directory)
        self._options = options
        self._wanted = {number for interval in options.intervals for number in interval}
        self._saved: dict[int, str] = {}

    @property
    def unit(self) -> str:
        return self._options.unit

    def begin(self) -> None:
        """Make the directory and take away what an earlier training left: a landscape of two runs would be wrong.

        Raises:
            OSError: the directory cannot be written.
        """
        os.makedirs(self._directory, exist_ok=True)
        for name in os.listdir(self._directory):
            if name == METADATA or name.endswith((f"_{self.unit}.ckpt", ".part.ckpt")):
                os.remove(os.path.join(self._directory, name))

    def save(self, number: int, network: Any) -> None:
        """Keep the weights after step or epoch `number`, if they are wanted."""
        if number not in self._wanted or number in self._saved:
            return
        backbone = innermost_network(network)
        path = os.path.join(self._directory, f"{type(backbone).__name__}_{number}_{self.unit}.ckpt")
        partial = path.removesuffix(".ckpt") + ".part.ckpt"
        mindspore.save_checkpoint(backbone, partial)
        # MindSpore makes it readable for its owner alone; whoever may read the run may read its weights.
        os.chmod(partial, stat.S_IMODE(os.stat(self._directory).st_mode) & 0o666)
        os.replace(partial, path)
        self._saved[number] = path

    def end(self, steps_per_epoch: int) -> None:
        """Write the metadata, and say which numbers training never reached."""
        missing = sorted(self._wanted - set(self._saved))
        if missing:
            log.warning(
                "No weights were kept for the landscape at %s %s: training did not stop there. Their intervals cannot "
                "be drawn.", self.unit, missing,
            )  # fmt: skip
        options = self._options
        metadata = {
            "epoch_group": {str(index): list(interval) for index, interval in enumerate(options.intervals)},
            "model_params_file_map": {str(number): path for number, path in sorted(self._saved.items())},
            "step_per_epoch": steps_per_epoch,
            "unit": options.unit,
            "num_samples": options.num_samples,
            "landscape_size": options.landscape_size,
            "create_landscape": dict(options.create_landscape),
        }
        path = os.path.join(self._directory, METADATA)
        partial = path + ".part"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(metadata, file)
        os.replace(partial, path)

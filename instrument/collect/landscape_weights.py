"""The weights that a collector keeps for a landscape, over all its trainings."""

from __future__ import annotations

import os
from typing import Any

from instrument import framework
from instrument.collect import sources
from instrument.collect.checkpoints import Checkpoints, LandscapeOptions
from instrument.collect.gatherer import Gatherer
from instrument.collect.options import substitutes


class LandscapeWeights:
    """Keeps weights while a training is under way, on the first rank, if `options` ask for them."""

    def __init__(self, directory: str, options: LandscapeOptions | None) -> None:
        self._directory = os.path.join(directory, "ckpt_dir")
        self._options = options
        self._checkpoints: Checkpoints | None = None
        self._is_open = False

    def begin(self, params: Any, step: int, goes_on: bool, gatherer: Gatherer) -> None:
        """Begin a training behind a step; one that goes on with the last one of this collector leaves its weights."""
        if self._options is None or framework.rank() or substitutes:
            return
        goes_on = goes_on and self._checkpoints is not None
        if self._checkpoints is None or not goes_on:
            self._checkpoints = Checkpoints(self._directory, self._options)
        self._is_open = True
        network, every = sources.get(params, "train_network"), sources.steps_between_hooks(params)
        gatherer.attempt("landscape", self._checkpoints.begin, network, step, every, goes_on)

    def save(self, unit: str, number: int, params: Any, gatherer: Gatherer) -> None:
        """Keep the weights behind a step or an epoch, if those of that number are wanted."""
        checkpoints = self._checkpoints
        if checkpoints is not None and self._is_open and checkpoints.unit == unit:
            gatherer.attempt("landscape", checkpoints.save, number, params.train_network)

    def end(self, params: Any, gatherer: Gatherer) -> None:
        """Return when all weights of a training that has come to its end are written."""
        if self._checkpoints is not None and self._is_open:
            gatherer.attempt("landscape", self._checkpoints.end, int(sources.get(params, "batch_num") or 0))

    def close(self) -> None:
        self._is_open = False

"""Collect what is recorded of a step, an evaluation or a whole training: sources -> items, as far as asked for."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from typing import TypeVar

import mindspore
from mindspore import nn

from instrument import framework
from instrument.codec import graph as graph_codec
from instrument.codec import lineage as lineage_codec
from instrument.collect import convert, lineage, provenance, sources, validate
from instrument.collect.options import Specified
from instrument.collect.sources import CallbackParams
from instrument.values import AnyItem, MessageItem, ScalarItem

log = logging.getLogger("instrument")

Result = TypeVar("Result")
_BATCH_DIMENSIONS = 4


class Collectors:
    """Ask the sources of one training. `custom` are the user's own facts about it.

    Without `tells_run` what is the same on every rank, graphs and lineage, is left to the first one. `history` is what
    the trainings of a collector share.

    What a source cannot give is logged once and not asked for again: nothing that is collected is worth a training.
    """

    def __init__(
        self,
        specified: Specified,
        custom: Mapping[str, str | int | float],
        tells_run: bool = True,
        history: TrainingHistory | None = None,
    ) -> None:
        self._history = history if history is not None else TrainingHistory()
        self._specified = specified
        self._custom = custom
        self._tells_run = tells_run
        self._given_up: set[str] = set()
        self._wanted: list[tuple[str, Callable[[CallbackParams], list[AnyItem]]]] = []
        if specified.switches["collect_input_data"]:
            self._wanted.append(("input data", _input_data))
        if specified.switches["collect_metric"]:
            self._wanted += [("loss", _loss), ("learning rate", self._learning_rates)]
        if specified.histograms:
            self._wanted.append(("histograms of weights", self._histograms))
        self._optimizer: nn.Cell | None = None
        self._weights: list[tuple[str, str, mindspore.Parameter]] | None = None

    def attempt(self, subject: str, get: Callable[..., Result], *arguments: object) -> Result | None:
        """Return what a function returns; None if it raises, now or before."""
        if subject in self._given_up:
            return None
        try:
            return get(*arguments)
        except Exception as error:  # noqa: BLE001  the edge: whatever a user's network, data or metric raises when looked into
            self._given_up.add(subject)
            reason = str(error) if isinstance(error, sources.Uncollectable) else f"{type(error).__name__}: {error}"
            if (subject, reason) not in self._history.warned:
                self._history.warned.add((subject, reason))
                log.warning("SummaryCollector does not collect the %s: %s", subject, reason)
            return None

    # ------------------------------------------------------------------ at a step

    def values(self, params: CallbackParams) -> list[AnyItem]:
        """Return input pictures, loss, learning rate and histograms. Arrays are views: the write copies them."""
        items: list[AnyItem] = []
        for subject, get in self._wanted:
            items += self.attempt(subject, get, params) or ()
        return items

    def _learning_rates(self, params: CallbackParams) -> list[AnyItem]:
        rates = sources.learning_rates(self._optimizer_of(params))
        return [ScalarItem(tag, rate) for tag, rate in rates.items()]

    def _histograms(self, params: CallbackParams) -> list[AnyItem]:
        if self._weights is None:
            chosen = sources.weights(self._optimizer_of(params), self._specified.histogram_pattern)
            self._weights = [(f"histogram {tag!r}", tag, parameter) for tag, parameter in chosen]
        items = [self.attempt(name, _view, "histogram", tag, parameter) for name, tag, parameter in self._weights]
        return [item for item in items if item is not None]

    def _optimizer_of(self, params: CallbackParams) -> nn.Cell:
        """Return the optimiser, which is looked for once: a network may have thousands of cells."""
        if self._optimizer is None:
            self._optimizer = sources.optimizer(params)
        return self._optimizer

    def forget(self) -> None:
        """Let go of the network of a training that is over."""
        self._optimizer = self._weights = None

    # ------------------------------------------------------------------ at an evaluation

    def evaluation(self, params: CallbackParams) -> list[AnyItem]:
        """Return each metric that is a number, and the lineage."""
        items: list[AnyItem | None] = []
        if self._specified.switches["collect_metric"]:
            results = self.attempt("metrics", lambda: _results(params)) or {}
            items += [self._metric(name, value) for name, value in results.items()]
        if self._specified.switches["collect_eval_lineage"] and self._tells_run:
            items.append(self.attempt("evaluation lineage", lambda: lineage.evaluation(params)))
        return [item for item in items if item is not None]

    def _metric(self, name: object, value: object) -> AnyItem | None:
        return self.attempt(f"metric {name!r} as a scalar", lambda: _view("scalar", f"eval/{name}/auto", value))

    # ------------------------------------------------------------------ once in a training

    def at_the_beginning(self, params: CallbackParams) -> list[AnyItem]:
        """Return the lineage that is known before the first step: a training that fails has its hyper-parameters."""
        if not self._tells_run:
            log.info("The first rank records the graph and the lineage; with on_every_rank=True this one does, too.")
            return []
        items: list[AnyItem | None] = []
        if self._specified.switches["collect_dataset_graph"]:
            items.append(self.attempt("dataset graph", lambda: lineage.dataset_graph(params.train_dataset)))
        if self._specified.switches["collect_provenance"] and not self._history.has_provenance:
            self._history.has_provenance = True
            items.append(self.attempt("provenance", self._provenance))
        if self._custom:
            items.append(self.attempt("custom lineage", self._custom_lineage))
        if self._specified.switches["collect_train_lineage"]:
            items.append(self.attempt("train lineage", lambda: self._train_lineage(params)))
        return [item for item in items if item is not None]

    def once(self, params: CallbackParams) -> list[AnyItem]:
        """Return the graph, which there is when the first step has ended."""
        if not (self._tells_run and self._specified.switches["collect_graph"]):
            return []
        item = self.attempt("graph", lambda: _graph(params))
        return [item] if item is not None else []

    def _custom_lineage(self) -> MessageItem:
        return MessageItem("custom_lineage_data", "custom_lineage_data", lineage_codec.custom_message(self._custom))

    def _provenance(self) -> MessageItem:
        facts = provenance.provenance(self._specified.switches["collect_patch"])
        return MessageItem("custom_lineage_data", "custom_lineage_data", lineage_codec.ran_message(facts))

    def at_the_end(self, params: CallbackParams, outputs: object) -> list[AnyItem]:
        """Return the lineage of the training; `outputs` are those of the network in its last step."""
        if not (self._specified.switches["collect_train_lineage"] and self._tells_run):
            return []
        item = self.attempt("train lineage", lambda: self._train_lineage(params, outputs, is_over=True))
        return [item] if item is not None else []

    def loss(self, outputs: object) -> list[AnyItem]:
        """Return the loss in what the network gave, if losses are collected."""
        if not self._specified.switches["collect_metric"] or outputs is None:
            return []
        return self.attempt("loss", _loss_in, outputs) or []

    def _train_lineage(self, params: CallbackParams, outputs: object = None, is_over: bool = False) -> MessageItem:
        optimizer = _if_there(lambda: self._optimizer_of(params))
        loss = _if_there(lambda: sources.loss(outputs)) if outputs is not None else None
        if optimizer is None:
            return lineage.train(params, loss, None)
        initial = self.attempt("initial learning rate", self._history.initial_rate, optimizer)
        return lineage.train(params, loss, optimizer, initial, lineage.first_rate(optimizer) if is_over else None)


class TrainingHistory:
    """What several trainings of one collector share: what was logged, and the first learning rates of optimisers."""

    def __init__(self) -> None:
        #: What is not collected, and why.
        self.warned: set[tuple[str, str]] = set()
        self._rates: list[tuple[weakref.ref[nn.Cell], float]] = []
        #: What ran is the same for all of them, and finding out may take seconds.
        self.has_provenance = False

    def __getstate__(self) -> dict[str, object]:
        # A copy knows no optimisers, and records another run.
        return {**self.__dict__, "_rates": [], "has_provenance": False}

    def initial_rate(self, optimizer: nn.Cell) -> float | None:
        """Return the learning rate that an optimiser had before its first step here, that of a schedule at step 0.

        It is that of the first group where there are several; None for one that cannot be computed.
        """
        for reference, rate in self._rates:
            if reference() is optimizer:
                return rate
        rate_now = lineage.first_rate(optimizer, is_initial=True)
        if rate_now is not None:
            self._rates = [entry for entry in self._rates if entry[0]() is not None]
            self._rates.append((weakref.ref(optimizer), rate_now))
        return rate_now


def _if_there(get: Callable[[], Result]) -> Result | None:
    try:
        return get()
    except sources.Uncollectable:
        return None


def _results(params: CallbackParams) -> dict[str, object]:
    return {**sources.metrics(params), **(sources.get(params, "eval_results") or {})}


def _view(kind: str, tag: str, value: object) -> AnyItem:
    """Return an item under a name that is the user's: one that no file can hold must not take its event along."""
    return convert.to_item(kind, validate.check_name(tag), value)


def _input_data(params: CallbackParams) -> list[AnyItem]:
    images = sources.input_images(params)
    try:
        # What else a recorder takes for one picture is a batch here.
        if getattr(images, "ndim", _BATCH_DIMENSIONS) != _BATCH_DIMENSIONS:
            raise ValueError(
                f"The image 'input_data/auto' has shape {tuple(images.shape)}; expected a batch of pictures, "
                "(N, C, H, W) or (N, H, W, C)."
            )
        return [_view("image", "input_data/auto", images)]
    except (TypeError, ValueError) as error:
        raise sources.Uncollectable(
            f"{error} Where the input is no picture, collect_specified_data={{'collect_input_data': False}} says so."
        ) from error


def _loss(params: CallbackParams) -> list[AnyItem]:
    return _loss_in(sources.get(params, "net_outputs"))


def _loss_in(outputs: object) -> list[AnyItem]:
    return [ScalarItem("loss/auto", sources.loss(outputs))]


def _graph(params: CallbackParams) -> MessageItem:
    model = framework.model_of(params.train_network)
    if model is None:
        raise sources.Uncollectable("the network is not compiled; graphs exist in graph mode only")
    return MessageItem("graph", "train_network/auto", graph_codec.from_model(model).data)

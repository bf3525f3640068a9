"""`SummaryCollector`: callback hooks -> sources -> one event a collected step, by the schedule."""

from __future__ import annotations

import logging
import os
import tempfile
from contextlib import nullcontext
from typing import Any

from mindspore.train.callback import Callback

from instrument import framework, marks
from instrument.collect import lineage, ops, sources
from instrument.collect.checkpoints import Checkpoints
from instrument.collect.gatherer import Gatherer
from instrument.collect.options import RecordOptions, Specified, check_bool, check_directory, check_int
from instrument.collect.record import SummaryRecord
from instrument.collect.schedule import Due, Schedule
from instrument.values import Item
from instrument.write import earlier
from instrument.write.sink import Stats

log = logging.getLogger("instrument")


class SummaryCollector(Callback):
    """Record what a training does, from `model.train`, `model.fit` and `model.eval`.

        model.train(10, dataset, callbacks=[SummaryCollector("./run")])

    Arguments, their order and meanings are those of MindSpore's own collector, with two differences: `num_process`
    works, and a landscape's weights are kept only when `collect_landscape` asks for them.

    At each collected step: the loss (`loss/auto`), the learning rate (`learning_rate/auto`, or
    `learning_rate/group<i>/auto`), histograms of weights (`<parameter>/auto`), the input pictures (`input_data/auto`)
    and whatever summary operators inside the network were given. At each evaluation: every metric that is a number
    (`eval/<metric>/auto`), at the training step that it belongs to. Once: the computational graph (graph mode only),
    the dataset's graph and the lineage. What cannot be collected is logged once; nothing that goes wrong here stops
    training.

    Args:
        summary_dir: the directory for the files of this run; made where it is missing. A run that is there already is
            continued, which one warning says.
        collect_freq: collect every so many steps, and at the first one. In sink mode, whose hooks come once in many
            steps, a hook collects when a multiple lies between it and the one before; there the last one always does.
        num_process: worker processes that write; 0 writes in this process. Default: half of the cores, at most 4.
        collect_specified_data: what to collect, by the keys `collect_metric` (loss, learning rate and evaluation),
            `collect_graph`, `collect_train_lineage`, `collect_eval_lineage`, `collect_input_data`,
            `collect_dataset_graph` (all bool), `histogram_regular` (which parameters get histograms: a regular
            expression matched at the start of their names; None for the first five) and `collect_landscape` (a
            dictionary with `intervals`, and optionally `landscape_size`, `unit`, `num_samples`, `create_landscape`).
        keep_default_action: whether keys that are not specified keep their default, which is to collect.
        custom_lineage_data: facts of your own about the run: a dictionary of str, int and float by name.
            `MINDINSIGHT_HYPER_CONFIG` in the environment adds those of a tuner.
        collect_tensor_freq: how often `TensorSummary` is collected; by default at most 20 steps of a training.
        max_file_size: no file grows beyond so many bytes.
        export_options: `{"tensor_format": "npy"}` also writes each tensor as an `.npy` file.
        on_full: `"block"` lets training wait when the workers cannot keep up, `"drop"` loses the step and counts it.
        system_metrics: True, or seconds between samples (True: 5): during a training, record what the host, the process
            and the device are doing, as scalars `system/...`; see `SummaryRecord`. Needs psutil.
        on_every_rank: in a training of several ranks, whether each records the graph, the dataset's graph and the
            lineage. By default the first does, as they are the same everywhere; take True where they are not, as in
            pipeline parallelism. A landscape's weights are always those of the first.
        dialect: whose files are written: `"mindspore"` MindInsight's, `"tensorboard"` TensorBoard's, or `"both"`.

    Raises:
        TypeError, ValueError: an option is wrong.
        OSError: the directory cannot be made or written.
        ImportError: `system_metrics` is asked for without psutil.
    """

    def __init__(
        self,
        summary_dir: str | os.PathLike[str],
        collect_freq: int = 10,
        num_process: int | None = None,
        collect_specified_data: dict[str, Any] | None = None,
        keep_default_action: bool = True,
        custom_lineage_data: dict[str, str | int | float] | None = None,
        collect_tensor_freq: int | None = None,
        max_file_size: int | None = None,
        export_options: dict[str, str | None] | None = None,
        *,
        on_full: str = "block",
        system_metrics: bool | float = False,
        on_every_rank: bool = False,
        dialect: str = "mindspore",
    ) -> None:
        super().__init__()
        self._directory = check_directory("summary_dir", summary_dir)
        RecordOptions.check(
            self._directory, "events", "_MS", num_process, max_file_size, False, export_options, on_full, None,
            system_metrics, dialect,
        )  # fmt: skip
        self._record_arguments: dict[str, Any] = {
            "num_process": num_process, "max_file_size": max_file_size, "export_options": export_options,
            "on_full": on_full, "dialect": dialect,
        }  # fmt: skip
        self._system_metrics = system_metrics
        self._collect_freq = check_int("collect_freq", collect_freq, 1)
        self._tensor_freq = (
            None if collect_tensor_freq is None else check_int("collect_tensor_freq", collect_tensor_freq, 1)
        )
        self._specified = Specified.check(collect_specified_data, keep_default_action)
        self._on_every_rank = check_bool("on_every_rank", on_every_rank)
        custom = {} if custom_lineage_data is None else lineage.check_custom(custom_lineage_data, "custom_lineage_data")
        self._custom = {**lineage.from_environment(), **custom}
        self._checkpoints: Checkpoints | None = None
        self._record: SummaryRecord | None = None
        self._schedule: Schedule | None = None
        self._gatherer = Gatherer(self._specified, self._custom)
        self._last_step = 0
        self._last_collected = -1
        self._last_evaluation: Any = None
        self._stats: Stats | None = None
        self._entered = 0
        self._is_training = False
        _try_directory(self._directory)

    @property
    def stats(self) -> Stats | None:
        """What became of the events of the current training, or of the last one; None before the first."""
        return self._record.stats if self._record is not None else self._stats

    # ------------------------------------------------------------------ the hooks of a training

    def on_train_begin(self, run_context: Any) -> None:
        marks.begin_training()
        params = run_context.original_args()
        _check_callbacks(params)
        self._last_step = int(params.cur_step_num)
        self._open(self._system_metrics)
        self._reach(self._last_step)
        self._is_training = True
        if self._specified.landscape is not None and not framework.rank():
            checkpoints = Checkpoints(os.path.join(self._directory, "ckpt_dir"), self._specified.landscape)
            self._checkpoints = checkpoints
            network, every = sources.get(params, "train_network"), _steps_between_hooks(params)
            self._gatherer.attempt("landscape", lambda: checkpoints.begin(network, int(params.cur_step_num), every))

    @marks.hook
    def on_train_epoch_begin(self, run_context: Any) -> None:
        marks.begin_epoch(int(run_context.original_args().cur_epoch_num))

    @marks.hook
    def on_train_step_begin(self, run_context: Any) -> None:
        """Take the values of summary operators from here to the end of the step, if the step will be collected."""
        step = int(run_context.original_args().cur_step_num)
        marks.begin_step(step)
        if self._record is None:
            return
        self._reach(step)
        inbox = self._record.inbox
        inbox.is_open = False
        ops.gather()  # what an evaluation left since the last step is no value of this one
        inbox.take()
        due = Due(True, True)
        if self._schedule is not None:
            due = self._schedule.due(step, self._last_step)
        inbox.is_open = bool(due)
        inbox.wants_tensors = due.tensors

    @marks.hook
    def on_train_step_end(self, run_context: Any) -> None:
        params = run_context.original_args()
        step = int(params.cur_step_num)
        marks.end_step(step)
        if self._record is None:
            return
        is_first = self._schedule is None
        if self._schedule is None:
            self._schedule = self._make_schedule(params)
        due = self._schedule.due(step, self._last_step)
        self._last_step = step
        if due:
            self._gatherer.attempt("summary operators' values", ops.gather, step)
        items = self._gatherer.once(params) if is_first else []
        if is_first and self._record_arguments["dialect"] != "mindspore":
            items += self._gatherer.at_the_end(params)  # TensorBoard takes the first hyper-parameters that it is told
        self._write(step, due, items, params)
        if due.values and self._record.beside is not None:
            self._record.beside.look_at_device()
        self._record.inbox.is_open = False
        if self._checkpoints is not None and self._checkpoints.unit == "step":
            self._save_weights(step, params)

    @marks.hook
    def on_train_epoch_end(self, run_context: Any) -> None:
        params = run_context.original_args()
        marks.end_epoch(int(params.cur_epoch_num))
        # `model.fit` evaluates without telling this callback, and leaves the result for the end of the epoch.
        if sources.get(params, "metrics") is not None:
            self._collect_evaluation(params)
        if self._checkpoints is not None and self._checkpoints.unit == "epoch":
            self._save_weights(int(params.cur_epoch_num), params)

    def on_train_end(self, run_context: Any) -> None:
        params = run_context.original_args()
        if self._record is None:
            return
        is_sink_mode = bool(sources.get(params, "dataset_sink_mode"))
        if is_sink_mode and self._schedule is not None and self._last_collected != self._last_step:
            self._write(self._last_step, Due(values=True, tensors=False), [], params)
        self._write_items(self._last_step, self._gatherer.at_the_end(params))
        if self._checkpoints is not None:
            checkpoints, steps = self._checkpoints, int(sources.get(params, "batch_num") or 0)
            self._gatherer.attempt("landscape", lambda: checkpoints.end(steps))
        self._close()

    # ------------------------------------------------------------------ the hooks of an evaluation

    def on_eval_begin(self, run_context: Any) -> None:
        if not self._is_training:  # `model.eval` on its own
            _check_callbacks(run_context.original_args())
            with earlier.continuing() if self._stats is not None else nullcontext():  # of the training before it
                self._open()
        if self._record is not None:
            self._record.set_mode("eval")

    def on_eval_end(self, run_context: Any) -> None:
        if self._record is None:
            return
        self._collect_evaluation(run_context.original_args())
        if self._is_training:
            self._record.set_mode("train")
        else:
            self._close()

    def __getstate__(self) -> dict[str, Any]:
        if self._record is not None:
            raise TypeError(
                f"A {type(self).__name__} cannot be pickled or copied while it records, as it holds open files and "
                "processes. Do it before the training, or make another one."
            )
        return self.__dict__

    def __enter__(self) -> SummaryCollector:
        self._entered += 1  # once more for an evaluation inside a training
        return self

    def __exit__(self, *error: object) -> None:
        """The training is over, by an exception perhaps: what was recorded is written."""
        self._entered -= 1
        if self._entered <= 0:
            self._entered = 0
            self._close(is_success=error[0] is None)

    # ------------------------------------------------------------------ one step

    def _make_schedule(self, params: Any) -> Schedule:
        if sources.get(params, "dataset_sink_mode"):
            log.info(
                "Dataset sink mode: hooks come once in %s steps. collect_freq=%d still counts steps; a hook collects "
                "when a multiple lies between it and the one before.", sources.get(params, "sink_size", "many"),
                self._collect_freq,
            )  # fmt: skip
        epochs, batches = sources.get(params, "epoch_num"), sources.get(params, "batch_num")
        total = epochs * batches if isinstance(epochs, int) and isinstance(batches, int) and batches > 0 else None
        return Schedule(self._collect_freq, self._tensor_freq, self._last_step, total)

    def _write(self, step: int, due: Due, items: list[Item], params: Any) -> None:
        """Collect what is due at `step` into one event, with the summary operators' values."""
        assert self._record is not None
        left = self._record.inbox.take()
        if due:
            items += [item for item in left if (due.tensors if item.kind == "tensor" else due.values)]
        if due.values:
            items += self._gatherer.values(params)
        self._last_collected = step if due.values else self._last_collected
        self._write_items(step, items)

    def _collect_evaluation(self, params: Any) -> None:
        metrics = sources.get(params, "metrics")
        if metrics is None or metrics is self._last_evaluation:
            return  # a subclass of ours is told by both hooks
        self._last_evaluation = metrics
        self._write_items(self._last_step, self._gatherer.evaluation(params))

    def _save_weights(self, number: int, params: Any) -> None:
        checkpoints = self._checkpoints
        if checkpoints is not None:
            self._gatherer.attempt("landscape", lambda: checkpoints.save(number, params.train_network))

    # ------------------------------------------------------------------ the recorder

    def _write_items(self, step: int, items: list[Item]) -> None:
        record = self._record
        if record is not None and items:
            record.write(step, items)

    def _open(self, system_metrics: bool | float = False) -> None:
        self._close()  # a training that ended without its end hook
        # Communication is set up by now, where there is any.
        self._gatherer = Gatherer(self._specified, self._custom, self._on_every_rank or not framework.rank())
        arguments = {**self._record_arguments, "system_metrics": system_metrics}
        self._record = self._gatherer.attempt("run", lambda: SummaryRecord(self._directory, **arguments))

    def _reach(self, step: int) -> None:
        """What the system is doing from now on belongs to this step."""
        if self._record is not None and self._record.beside is not None:
            self._record.beside.step = step

    def _close(self, is_success: bool = True) -> None:
        record, self._record = self._record, None
        self._is_training = False
        self._schedule = None
        self._checkpoints = None
        self._last_evaluation = None
        self._gatherer.forget()
        if record is not None:
            record.close_as(is_success)
            self._stats = record.stats


def _steps_between_hooks(params: Any) -> int:
    """How often step hooks come: in dataset sink mode, once for all steps that are sunk together."""
    if not sources.get(params, "dataset_sink_mode"):
        return 1
    for name in ("sink_size", "batch_num"):
        steps = sources.get(params, name)
        if isinstance(steps, int) and steps > 0:
            return steps
    return 1


def _try_directory(directory: str) -> None:
    """Make the directory and write to it, so that a wrong one is refused before training starts."""
    try:
        os.makedirs(directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        reason = f"summary_dir cannot be written ({error.strerror}); choose another one or change its permissions"
        raise type(error)(error.errno, reason, directory) from error


def _check_callbacks(params: Any) -> None:
    """Refuse a second collector, which would fight over the summary operators' values and the files."""
    callbacks = sources.get(params, "list_callback") or []
    if sum(isinstance(callback, SummaryCollector) for callback in callbacks) > 1:
        raise ValueError(
            "There is more than one SummaryCollector among the callbacks; expected one. Merge their options into it."
        )
    for callback in callbacks:
        if type(callback).__name__ == "SummaryCollector" and not isinstance(callback, SummaryCollector):
            log.warning(
                "MindSpore's SummaryCollector is among the callbacks too; it takes values of summary operators away."
            )

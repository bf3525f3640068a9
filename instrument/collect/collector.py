"""`SummaryCollector`: record a training from the hooks of MindSpore's callbacks, one event a collected step.

The problem: a callback sees a training through hooks that differ by mode. In sink mode they come once in many steps,
`model.fit` evaluates between the last step and the end without telling every callback, a training may stop at any
step, and another may follow. Values have to belong to the right step, and nothing here may stop the training.

The strategy: `training` counts steps over all trainings, knows how far the current one is, and decides which step
collects what; `collectors` asks the sources, once each, and gives up on one that fails; `SummaryRecord` writes.
Operators' values are fetched at the end of a step that is due. The last step is collected at the end of the training,
or before an evaluation changes what there is, since nobody knows earlier that it is the last.

Rejected: to wrap the network or the optimiser, as that changes the compiled graph.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

from mindspore.train.callback import Callback

from instrument import framework, marks
from instrument.collect import ops, sources
from instrument.collect.checkpoints import LandscapeWeights
from instrument.collect.collectors import Collectors, TrainingHistory
from instrument.collect.options import CollectorOptions, try_directory
from instrument.collect.record import SummaryRecord
from instrument.collect.sources import CallbackParams, RunContext
from instrument.collect.training import ContinuedNotice, Schedule, StepCount, StepPlan, Training
from instrument.collect.validate import check_callbacks
from instrument.values import ENDED, FINISHED, AnyItem, End
from instrument.write import resume
from instrument.write.sink import Stats

_FINISHED = End(FINISHED)


class SummaryCollector(Callback):
    """Record what a training does, from `model.train`, `model.fit` and `model.eval`.

        model.train(10, dataset, callbacks=[SummaryCollector("./run")])

    Arguments, their order and meanings are those of MindSpore's own collector, with two differences: `num_process`
    works, and a landscape's weights are kept only when `collect_landscape` asks for them.

    Used by several trainings it goes on counting steps where it stopped, which one message says; `initial_epoch` of
    `model.train` is taken into account.

    At each collected step: the loss (`loss/auto`), the learning rate (`learning_rate/auto`, or
    `learning_rate/group<i>/auto`), histograms of weights (`<parameter>/auto`), the input pictures (`input_data/auto`)
    and whatever summary operators inside the network were given. At each evaluation: every metric that is a number
    (`eval/<metric>/auto`), at the training step that it belongs to. Once: the computational graph (graph mode only),
    the dataset's graph and the lineage, which is completed when the training ends. What cannot be collected is logged
    once; nothing that goes wrong here stops training.

    Args:
        summary_dir: the directory for the files of this run; made where it is missing. A run that is there already is
            continued, which one warning says.
        collect_freq: collect every `collect_freq` steps, and at the first and the last one of a training. In sink mode,
            whose hooks come once in many steps, a hook collects when a multiple lies between it and the one before.
        num_process: worker processes that write; 0 writes in this process. Default: half of the cores, at most 4.
        collect_specified_data: what to collect, by the keys `collect_metric` (loss, learning rate and evaluation),
            `collect_graph`, `collect_train_lineage`, `collect_eval_lineage`, `collect_input_data`,
            `collect_dataset_graph`, `collect_provenance` (what ran: command, git commit, versions, device),
            `collect_patch` (the uncommitted changes too; off by default), all bool; `histogram_regular` (which
            parameters get histograms: a regular expression matched at the start of their names; None for the first
            five) and `collect_landscape` (a dictionary with `intervals`, and optionally `landscape_size`, `unit`,
            `num_samples`, `create_landscape`).
        keep_default_action: whether keys that are not specified keep their default, which is to collect.
        custom_lineage_data: facts of your own about the run: a dictionary of str, int and float by name.
            `MINDINSIGHT_HYPER_CONFIG` in the environment adds those of a tuner.
        collect_tensor_freq: how often `TensorSummary` is collected; by default at most 20 steps of a training.
        max_file_size: the largest size of a file, in bytes.
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
        self._options = options = CollectorOptions.check(
            summary_dir, collect_freq, num_process, collect_specified_data, keep_default_action, custom_lineage_data,
            collect_tensor_freq, max_file_size, export_options, on_full, system_metrics, on_every_rank, dialect,
        )  # fmt: skip
        self._record: SummaryRecord | None = None
        self._schedule: Schedule | None = None
        self._collectors = Collectors(options.specified, options.custom)
        self._history = TrainingHistory()
        self._count = StepCount()
        #: While one is under way.
        self._training: Training | None = None
        self._eval_step = 0
        self._weights = LandscapeWeights(options.directory, options.specified.landscape)
        self._continued = ContinuedNotice()
        self._last_collected = -1
        self._last_evaluation: object = None
        self._stats: Stats | None = None
        self._entered = 0
        try_directory(options.directory)

    @property
    def stats(self) -> Stats | None:
        """Return what became of the events of the current training, or of the last one; None before the first."""
        return self._record.stats if self._record is not None else self._stats

    # ------------------------------------------------------------------ the hooks of a training

    def on_train_begin(self, run_context: RunContext) -> None:
        marks.begin_training()
        params = run_context.original_args()
        check_callbacks(params, SummaryCollector)
        self._open(self._options.system_metrics)
        before = self._count.last
        self._count.begin(int(params.cur_step_num))
        self._continued.look(self._count, before, sources.get(params, "network"), self._options.directory)
        self._begin_step_of_metrics(self._count.last)
        self._training = Training(run_context, self._count.last)
        self._write_items(self._count.last, self._collectors.at_the_beginning(params))
        self._weights.begin(params, self._count.last, self._count.last == before > 0, self._collectors)

    @marks.hook
    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        params = run_context.original_args()
        number, steps = int(params.cur_epoch_num), sources.get(params, "batch_num")
        marks.begin_epoch(number)
        if self._training is not None:
            before = self._count.last
            self._training.begin_epoch(number)
            self._count.begin_epoch(number, steps if isinstance(steps, int) and steps > 0 else None)
            if self._count.last != before:
                self._continued.look_at_epoch(self._count, number - 1)

    @marks.hook
    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Take the values of summary operators from here to the end of the step, if the step will be collected."""
        number = int(run_context.original_args().cur_step_num)
        marks.begin_step(number)
        if self._record is None or self._training is None:
            return
        step = self._count.of(number)
        self._training.begin_step(step)
        self._begin_step_of_metrics(step)
        inbox = self._record.inbox
        inbox.is_open = False
        ops.gather()  # what an evaluation left since the last step is no value of this one
        inbox.take()
        due = StepPlan(True, True)
        if self._schedule is not None:
            due = self._schedule.due(step, self._count.last)
            if not due and self._schedule.is_last(step):  # what it gives waits in the inbox for the training's end
                due = self._schedule.at_the_end
        inbox.is_open = bool(due)
        inbox.wants_tensors = due.tensors

    @marks.hook
    def on_train_step_end(self, run_context: RunContext) -> None:
        params = run_context.original_args()
        number = int(params.cur_step_num)
        marks.end_step(number)
        if self._record is None or self._training is None:
            return
        is_first = self._schedule is None
        if self._schedule is None:
            self._schedule = Schedule.of_training(
                params, self._options.collect_freq, self._options.tensor_freq, self._count.first
            )
        step = self._count.of(number)
        due = self._schedule.due(step, self._count.last)
        if due.tensors and self._schedule.is_last(step):
            due = StepPlan(True, True)
        self._count.last = step
        self._training.end_step(step, number)
        if due or self._schedule.is_last(step) or self._training.is_stopping:
            # Those of the last step wait for the end of the training: an evaluation would write over them.
            self._record.inbox.is_open = self._training.has_values = True
            self._record.inbox.wants_tensors = (due or self._schedule.at_the_end).tensors
            self._collectors.attempt("summary operators' values", ops.gather, number)
        if due:
            self._write(step, due, self._collectors.once(params) if is_first else [], params)
        if due.values and self._record.metrics is not None:
            self._record.metrics.look_at_device()
        self._record.inbox.is_open = False
        self._weights.save("step", step, params, self._collectors)

    @marks.hook
    def on_train_epoch_end(self, run_context: RunContext) -> None:
        params = run_context.original_args()
        number = int(params.cur_epoch_num)
        marks.end_epoch(number)
        if self._training is not None:
            self._count.end_epoch()
            if self._training.is_final_epoch or self._training.is_stopping:
                self._collect_last()
        # `model.fit` evaluates without telling this callback, and leaves the result for the end of the epoch.
        if sources.get(params, "metrics") is not None:
            self._collect_evaluation(self._count.last, params)
        self._weights.save("epoch", self._count.epoch_of(number), params, self._collectors)

    def on_train_end(self, run_context: RunContext) -> None:
        if self._record is None:
            return
        self._finish()
        self._weights.end(run_context.original_args(), self._collectors)
        self._close()

    # ------------------------------------------------------------------ the hooks of an evaluation

    def on_eval_begin(self, run_context: RunContext) -> None:
        if self._training is None:  # `model.eval` on its own
            check_callbacks(run_context.original_args(), SummaryCollector)
            self._open()
            self._eval_step = self._count.last
        else:
            is_last = self._schedule is not None and self._schedule.is_last(self._count.last)
            if self._training.is_stopping or (is_last and self._training.is_final_epoch):
                self._collect_last()  # before the evaluation changes what there is
            self._eval_step = self._training.reached
        if self._record is not None:
            self._record.set_mode("eval")

    def on_eval_end(self, run_context: RunContext) -> None:
        if self._record is None:
            return
        self._collect_evaluation(self._eval_step, run_context.original_args())
        if self._training is not None:
            self._record.set_mode("train")
        else:
            self._close()

    def __getstate__(self) -> dict[str, object]:
        if self._record is not None:
            raise TypeError(
                f"A {type(self).__name__} cannot be pickled or copied while it records, as it holds open files and "
                "processes. Do it before the training, or make another one."
            )
        return self.__dict__

    def __enter__(self) -> SummaryCollector:
        self._entered += 1  # once more for an evaluation inside a training
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *traceback: object) -> None:
        """Write the last step of the training, and how it ended."""
        self._entered -= 1
        if self._entered <= 0:
            self._entered = 0
            if self._record is not None:
                self._finish()
            self._close(resume.end_of(error))
        elif self._record is not None:  # an evaluation inside a training may have raised
            self._record.set_mode("train")

    # ------------------------------------------------------------------ one step

    def _write(self, step: int, due: StepPlan, items: list[AnyItem], params: CallbackParams) -> None:
        """Collect what is due at `step` into one event, with the summary operators' values."""
        assert self._record is not None
        left = self._record.inbox.take()
        if due:
            items += [item for item in left if (due.tensors if item.kind == "tensor" else due.values)]
        if due.values:
            items += self._collectors.values(params)
        self._last_collected = step if due.values else self._last_collected
        self._write_items(step, items)

    def _collect_last(self) -> None:
        """Collect the last step that ended, if it was not due: nobody knew that it would be the last."""
        training, step = self._training, self._count.last
        if training is None or self._schedule is None or self._record is None or self._last_collected == step:
            return
        if training.begun == step:
            if not training.has_values and sources.get(training.params, "metrics") is None:
                self._record.inbox.is_open = True
                self._collectors.attempt("summary operators' values", ops.gather, training.number)
            self._write(step, self._schedule.at_the_end, [], training.params)
            self._record.inbox.is_open = False
        else:  # a further step has begun and failed, and changed what there is but for the loss
            self._last_collected = step
            self._write_items(step, self._collectors.loss(training.outputs))

    def _finish(self) -> None:
        """Write the last step of a training and what its lineage lacked at the beginning."""
        if self._training is not None:
            self._collect_last()
            items = self._collectors.at_the_end(self._training.params, self._training.outputs)
            self._write_items(self._count.last, items)

    def _collect_evaluation(self, step: int, params: CallbackParams) -> None:
        metrics = sources.get(params, "metrics")
        if metrics is None or metrics is self._last_evaluation:
            return  # both hooks of a subclass of ours report it
        self._last_evaluation = metrics
        self._write_items(step, self._collectors.evaluation(params))

    # ------------------------------------------------------------------ the recorder

    def _write_items(self, step: int, items: list[AnyItem]) -> None:
        if self._record is not None and items:
            self._record.write(step, items)

    def _open(self, system_metrics: bool | float = False) -> None:
        self._close(End(ENDED))  # a training that ended without its end hook
        # Communication is set up by now, where there is any.
        options = self._options
        tells_run = options.on_every_rank or not framework.rank()
        self._collectors = Collectors(options.specified, options.custom, tells_run, self._history)
        arguments = {**options.record_arguments, "system_metrics": system_metrics}
        with resume.continuing() if self._stats is not None else nullcontext():  # of what this collector recorded
            self._history.warned = {cause for cause in self._history.warned if cause[0] != "run"}
            self._record = self._collectors.attempt("run", lambda: SummaryRecord(options.directory, **arguments))

    def _begin_step_of_metrics(self, step: int) -> None:
        """Record samples of the system from now on at this step."""
        if self._record is not None and self._record.metrics is not None:
            self._record.metrics.step = step

    def _close(self, end: End = _FINISHED) -> None:
        record, self._record = self._record, None
        self._training = self._schedule = None
        self._weights.close()
        self._last_evaluation = None
        self._collectors.forget()
        if record is not None:
            record.close_as(end)
            self._stats = record.stats

"""What TensorBoard's pages of hyper-parameters, graphs and texts show: `tensorboard_pages.py LOGDIR`, by its Python."""

from __future__ import annotations

import json
import sys
from typing import Any

from google.protobuf import json_format, text_format
from tensorboard import context
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.compat.proto import graph_pb2
from tensorboard.plugins import base_plugin
from tensorboard.plugins.graph import graphs_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups
from tensorboard.plugins.text import text_plugin


def hyperparameters(within: Any) -> dict[str, Any]:
    """The experiment that the page works with, and the sessions in its table."""
    request, ctx = api_pb2.GetExperimentRequest(include_metrics=True), context.RequestContext()
    found = within.hparams_metadata(ctx, "")
    experiment = get_experiment.Handler(ctx, within, "", request).run()
    statuses = [api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE, api_pb2.STATUS_RUNNING]
    asked = api_pb2.ListSessionGroupsRequest(
        experiment_name="", allowed_statuses=statuses, start_index=0, slice_size=100, include_metrics=True
    )
    groups = list_session_groups.Handler(ctx, within, "", asked).run()
    return {
        "runs": sorted(found),
        "experiment": json_format.MessageToDict(experiment),
        "groups": json_format.MessageToDict(groups)["sessionGroups"],
    }


def graph(provider: Any, run: str) -> dict[str, Any]:
    """The nodes of the graph that the page draws, with their inputs."""
    plugin = graphs_plugin.GraphsPlugin(base_plugin.TBContext(data_provider=provider))
    ctx = context.RequestContext()
    body, _ = plugin.graph_impl(ctx, run, None, False, experiment="")
    parsed = text_format.Parse(body, graph_pb2.GraphDef())
    return {
        "runs": {name: row["run_graph"] for name, row in plugin.info_impl(ctx, experiment="").items()},
        "nodes": {node.name: [node.op, *node.input] for node in parsed.node},
    }


def texts(provider: Any) -> dict[str, Any]:
    """Each text of each run as HTML, by tag, with its step."""
    plugin = text_plugin.TextPlugin(base_plugin.TBContext(data_provider=provider))
    ctx = context.RequestContext()
    return {
        run: {
            tag: [(row["step"], row["text"]) for row in plugin.text_impl(ctx, run, tag, "", True)]
            for tag in tags
            if not tag.startswith("lineage/")
        }
        for run, tags in plugin.index_impl(ctx, "").items()
    }


def main(logdir: str) -> None:
    box = plugin_event_multiplexer.EventMultiplexer()
    box.AddRunsFromDirectory(logdir)
    box.Reload()
    provider = data_provider.MultiplexerDataProvider(box, logdir)
    within = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    runs = sorted(box.Runs())
    shown = {"hparams": hyperparameters(within), "graphs": {run: graph(provider, run) for run in runs}}
    print(json.dumps({**shown, "texts": texts(provider)}))


if __name__ == "__main__":
    main(sys.argv[1])

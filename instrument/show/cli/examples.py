"""Examples in the help of each verb: calls, and what they are for."""

from __future__ import annotations

EXAMPLES = {
    "ls": (
        ("ls", "the runs here and below"),
        ("ls runs --json", "the same, for programs"),
    ),
    "show": (
        ("show runs/adam", "tags, files, hyper-parameters"),
        ("show runs/adam --tag loss/auto", "every point of a tag"),
    ),
    "scalars": (
        ("scalars runs --tag 'loss/*'", "the losses of all runs, with curves"),
        ("scalars runs/adam --last 5", "and their last 5 points"),
        ("scalars runs/adam --follow", "as the training goes on"),
        ("scalars runs/adam --csv > adam.csv", "every point, for programs"),
    ),
    "compare": (
        ("compare runs --tag 'eval/*'", "which run was best, and at which step"),
        ("compare runs/adam runs/momentum --sort last", "two of them, by their last values"),
        ("compare runs --max 'reward*'", "where the name does not say which value is best"),
    ),
    "lineage": (
        ("lineage runs --sort accuracy --descending", "the best run first"),
        ("lineage runs --where 'learning_rate < 0.1'", "some of the runs"),
        ("lineage runs --columns optimizer,accuracy", "some of the columns"),
        ("lineage runs --tag 'loss/*' --sort loss/auto", "by the best value of a tag"),
    ),
    "report": (
        ("report runs -o runs.html", "all runs in one page"),
        ("report runs/adam -o adam.html --exclude 'system/*'", "one run, without some of its tags"),
    ),
    "export": (
        ("export runs/adam --to csv -o out", "a CSV file a kind"),
        ("export runs --to parquet -o out", "all runs, a folder each"),
        ("export runs/adam --to tensorboard -o out", "event files for TensorBoard"),
        ("export runs/adam --to npy --tag 'loss/*' -o out", "some of the tags, for NumPy"),
    ),
    "import": (
        ("import logs -o imported", "TensorBoard's runs, for MindInsight and instrument"),
    ),
    "verify": (
        ("verify runs", "all event files at and below a directory"),
        ("verify runs --json", "where each one is damaged, for programs"),
    ),
    "repair": (
        ("repair runs/adam", "append what a killed recorder left in its ring buffer"),
        ("repair runs/adam -o repaired", "new files of what is whole"),
    ),
    "profile": (
        ("profile runs/adam", "the report: steps, operators, data, advice"),
        ("profile runs/adam --ops --rows 0", "all operators"),
        ("profile runs/new --compare runs/old", "what became faster or slower"),
        ("profile runs/adam --timeline t.json.gz", "a timeline for https://ui.perfetto.dev"),
    ),
    "doctor": (
        ("doctor", "what works on this machine"),
        ("doctor /data", "try writing there"),
    ),
    "landscape": (
        ("landscape runs/adam", "the landscapes of a run, in words"),
        ("landscape runs/adam -o plane.html", "a page with the surface"),
        ("landscape runs/adam -o plane.vtp", "the values, for ParaView"),
    ),
}  # fmt: skip

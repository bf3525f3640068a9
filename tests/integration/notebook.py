"""Run a notebook in the folder in which this is started, and write it with what it gave to a file there."""

from __future__ import annotations

import sys

import nbclient
import nbformat

TIMEOUT_SECONDS = 120


def main(source: str, target: str) -> None:
    notebook = nbformat.read(source, as_version=4)
    nbclient.NotebookClient(notebook, timeout=TIMEOUT_SECONDS, kernel_name="python3").execute()
    nbformat.write(notebook, target)


if __name__ == "__main__":
    main(*sys.argv[1:])

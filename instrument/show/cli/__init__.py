"""The command line: `instrument VERB ...`, one module a verb.

A module has `configure(parser)`, which adds its arguments, and `run(arguments)`, which prints and returns the exit
code: 0 for success, 1 where nothing was found or an error is told on stderr, 2 for a wrong call. Only the module of
the verb in use is imported.
"""

from __future__ import annotations

import argparse
import io
import keyword
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from instrument import paths
from instrument._version import __version__
from instrument.errors import InstrumentError
from instrument.show.tables import escape

_VERBS = {
    "ls": "list the runs at or below a directory",
    "show": "show what a run recorded",
    "scalars": "show the numbers of runs, with their curves",
    "compare": "compare the numbers and the hyper-parameters of two runs",
    "lineage": "list runs with their hyper-parameters and metrics, sorted and filtered",
    "export": "write a run into files of another format",
    "import": "write TensorBoard's event files in MindSpore's dialect",
    "verify": "check every frame and every value of event files",
    "repair": "copy what is whole of damaged event files into new ones",
    "profile": "explain where the time of a training goes",
    "doctor": "try what instrument does on this machine, and say what works, what does not, and why",
    "landscape": "show, draw or export the loss landscapes of a run",
}
#: Arguments of verbs that are paths.
_PLACES = ("a", "b", "run", "runs", "path", "directory", "compare", "out", "output", "timeline")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `argv` are the words behind the program's name."""
    words = sys.argv[1:] if argv is None else list(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a name must not stop us
    try:
        arguments = _parser(words).parse_args(words)
        _check_places(arguments)
        code: int = arguments.command(arguments)
        if sys.stdout is not None:  # it was closed before we started
            sys.stdout.flush()
    except SystemExit as stop:  # argparse has printed help, the version or what is wrong
        return int(stop.code or 0)
    except BrokenPipeError:
        # Whoever read has had enough. What is still buffered goes nowhere, and must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (InstrumentError, OSError) as error:
        print(f"instrument: {escape(str(error))}", file=sys.stderr)
        return 1
    return code


def _check_places(arguments: argparse.Namespace) -> None:
    """Raise `OSError` for a URL where a verb takes a path: an output would become a folder of that name."""
    for name in _PLACES:
        value = getattr(arguments, name, None)
        for place in value if isinstance(value, list) else [value]:
            if isinstance(place, str) and paths.is_url(place):
                raise OSError(f"{place} is a URL; expected a path of this machine: {paths.url_hint(place)}")


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="instrument", description="Read what training runs recorded.")
    parser.add_argument("--version", action="version", version=f"instrument {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    chosen = next((word for word in words if not word.startswith("-")), None)
    for verb, summary in _VERBS.items():
        verb_parser = verbs.add_parser(verb, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if verb == chosen:
            module = f"{verb}_" if keyword.iskeyword(verb) else verb
            import_module(f"instrument.show.cli.{module}").configure(verb_parser)
    return parser

"""Run the command line: `instrument VERB ...`, one module a verb.

The problem: fourteen verbs share options, ways to print and ways to fail, and `instrument --help` must answer at once.

The strategy: a module of a verb lists its `ARGUMENTS` and `EXAMPLES`, and has `run(arguments)`, which prints and
returns the exit status. Only the module of the verb in use is imported. A verb that cannot go on raises
`InstrumentError` or `OSError`; `main` alone turns errors into a sentence and a status. A verb reports a wrong call by
`arguments.wrong_call(message)`, which prints its usage and ends it.

Rejected: subparsers of argparse, which build the parsers of all verbs, and so import all modules, for each call; and
click, which would be a dependency of the base install.

Exit statuses: 0 for success; 1 if nothing was found, or something is damaged or cannot be read or written, with one
sentence on stderr; 2 for a wrong call, whatever the data; 130 after Ctrl+C, as shells have it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import keyword
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from instrument import paths
from instrument._version import __version__
from instrument.analyse.layout import RED, WRAP, Column, Screen, prose, table
from instrument.errors import InstrumentError
from instrument.show.terminal import screen, tell
from instrument.wording import did_you_mean

_VERBS = {
    "ls": "list the runs at or below a directory",
    "show": "show what runs recorded",
    "scalars": "show the numbers of runs, with their curves",
    "compare": "compare the best and last numbers and the hyper-parameters of runs",
    "lineage": "list runs with their hyper-parameters and metrics, sorted and filtered",
    "report": "write runs into one page with all their curves, which opens without a network",
    "export": "write runs into files of another format",
    "import": "write TensorBoard's event files in MindSpore's dialect",
    "verify": "check every frame and every value of event files",
    "repair": "append what killed recorders left, or copy what is whole into new event files",
    "profile": "explain where the time of a training goes",
    "doctor": "try what works on this machine, and say what does not, and why",
    "landscape": "show, draw or export the loss landscapes of a run",
    "help": "show this, or the help of a verb",
}
#: Arguments of verbs that are paths.
_PLACES = ("runs", "paths", "path", "directory", "compare", "out", "output", "timeline")
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; `argv` are the words after the program's name."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a name must not stop us
    try:
        status = _run(sys.argv[1:] if argv is None else list(argv))
        if sys.stdout is not None:  # it was closed before we started
            sys.stdout.flush()
    except SystemExit as stop:  # argparse has printed help, the version or what is wrong
        return _end(int(stop.code or 0))
    except KeyboardInterrupt:
        with contextlib.suppress(ValueError):  # only the main thread may; a second Ctrl+C adds nothing
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return _end(_INTERRUPTED, "interrupted")
    except BrokenPipeError:  # the reader has closed the pipe
        return _end(0)
    except (InstrumentError, OSError) as error:
        return _end(1, _sentence(error))
    return status


def _check_places(arguments: argparse.Namespace) -> None:
    """Raise `OSError` for a URL in the place of a path: an output would become a folder of that name."""
    for name in _PLACES:
        value = getattr(arguments, name, None)
        for place in value if isinstance(value, list) else [value]:
            if isinstance(place, str) and paths.is_url(place):
                raise OSError(f"{place} is a URL; expected a path of this machine: {paths.url_hint(place)}")


def _end(status: int, message: str = "") -> int:
    """Print a last line on stderr, leave nothing in a buffer that could fail at exit, and return `status`."""
    with contextlib.suppress(OSError, ValueError):
        if message:
            tell(message, RED)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return status


def _sentence(error: Exception) -> str:
    """Return what an error says; of one of the system the path and the reason, without the number."""
    if isinstance(error, OSError) and error.strerror and error.errno is not None:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error)


def _run(words: list[str]) -> int:
    if not words:
        print(_overview().format_help(), end="", file=sys.stderr)
        return 2
    if words[0] == "help":
        words = [*words[1:2], "--help"]
    verb, *rest = words
    if verb.startswith("-"):
        _overview().parse_args(words)  # prints help, the version, or what is wrong
    if verb not in _VERBS:
        hint = did_you_mean(verb, _VERBS) or f"; there are {', '.join(_VERBS)}"
        _overview().error(f"there is no verb {verb!r}{hint}")
    arguments = _parser(verb).parse_args(rest)
    _check_places(arguments)
    status: int = arguments.command(arguments)
    return status


class _Parser(argparse.ArgumentParser):
    """A parser whose errors propose the option, or the value of one, that was meant."""

    def error(self, message: str) -> NoReturn:
        words = message.partition("unrecognized arguments: ")[2].split()
        wrong = next((word.partition("=")[0] for word in words if word.startswith("--")), "")
        choices = [option for option in self._option_string_actions if option.startswith("--")]
        choice = re.search(r"argument (\S+): invalid choice: '(.*?)' \(", message)
        if choice:
            wrong, choices = choice[2], list(self._option_string_actions[choice[1].partition("/")[0]].choices or ())
        self.print_usage(sys.stderr)
        sentence = f"{self.prog}: error: {message}{did_you_mean(wrong, choices) if wrong else ''}"
        self.exit(2, prose(sentence, screen(sys.stderr), "  ") + "\n")


def _overview() -> argparse.ArgumentParser:
    """Return the parser of what stands before a verb; its help lists the verbs."""
    parser = _Parser(
        prog="instrument",
        usage="instrument [-h] [--version] VERB ...",
        description="Read what training runs recorded.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"instrument {__version__}")
    target = screen()
    width = None if target.width is None else target.width - 2
    rows = table(["VERB", Column("", 0, WRAP)], list(_VERBS.items()), Screen(width)).splitlines()[1:]
    last = prose("`instrument VERB --help` has the options of a verb, and examples.", target)
    parser.epilog = "\n".join(["verbs:", *(f"  {row}" for row in rows), "", last])
    return parser


def _parser(verb: str) -> argparse.ArgumentParser:
    summary = _VERBS[verb]
    parser = _Parser(
        prog=f"instrument {verb}",
        description=f"{summary[0].upper()}{summary[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module = import_module(f"instrument.show.cli.{f'{verb}_' if keyword.iskeyword(verb) else verb}")
    for entry in module.ARGUMENTS:
        group = parser.add_mutually_exclusive_group() if isinstance(entry, list) else parser
        for add in entry if isinstance(entry, list) else [entry]:
            add(group)
    parser.set_defaults(command=module.run, wrong_call=parser.error)
    examples = [f"  # {meaning}\n  instrument {call}" for call, meaning in module.EXAMPLES]
    parser.epilog = "\n\n".join([*filter(None, [getattr(module, "EPILOG", "")]), "examples:", *examples])
    return parser

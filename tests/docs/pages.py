"""Run the examples of pages as a reader would: `python -m tests.docs.pages RESULTS PAGE...`, with one directory a page.

The Python blocks of a page run one after the other and share their names. `$ instrument ...` runs as the command line
does. A page that is not the tutorial begins with what the tutorial's first block defines, as it says, and with a
`model` and a `dataset`. What was printed goes to RESULTS, for `test_pages`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = "docs/tutorial.md"
#: A block that begins so is a script of its own, for a command behind it.
_SCRIPT = re.compile(r"# (\w+\.py)\n")
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the line on which its text begins, and the text."""

    language: str
    line: int
    text: str


def blocks(page: str) -> list[Block]:
    found: list[Block] = []
    inside: tuple[str, str, int] | None = None
    lines: list[str] = []
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        match = _FENCE.match(line)
        if match is None:
            lines.append(line)
        elif inside is None:
            inside, lines = (match["indent"], match["language"], number + 1), []
        else:
            indent, language, start = inside
            found.append(Block(language, start, "\n".join(one.removeprefix(indent) for one in lines) + "\n"))
            inside = None
    assert inside is None, f"{page}: a block does not end"
    return found


@dataclass(frozen=True)
class Command:
    """A line `$ ...` of a console block, and the lines behind it that show what it prints."""

    line: int
    words: list[str]
    shown: list[str]


def commands(block: Block) -> Iterator[Command]:
    command: Command | None = None
    for number, line in enumerate(block.text.splitlines(), block.line):
        if line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(number, shlex.split(line[2:], comments=True), [])
        else:
            assert command is not None, f"line {number}: output before a command"
            command.shown.append(line)
    if command is not None:
        yield command


def _run(page: str, names: dict[str, Any]) -> list[tuple[int, str]]:
    """What each block and command printed, by its line. Raises `SystemExit` for a command that fails."""
    from instrument.show.cli import main

    printed = []
    for block in blocks(page):
        if block.language == "python" and (script := _SCRIPT.match(block.text)):
            Path(script[1]).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                _execute(page, block, names)
            printed.append((block.line, out.getvalue()))
        elif block.language == "console":
            for command in commands(block):
                if command.words[0] == "instrument":
                    with contextlib.redirect_stdout(io.StringIO()) as out:
                        status = main(command.words[1:])
                    if status:
                        raise SystemExit(f"{page}:{command.line}: {shlex.join(command.words)} ended with {status}")
                    printed.append((command.line, out.getvalue()))
                elif command.words[0] == "msrun":
                    subprocess.run(command.words, check=True, timeout=120, stdout=subprocess.DEVNULL)
    return printed


def _execute(page: str, block: Block, names: dict[str, Any]) -> None:
    """Run a block as lines of the page's own file, where MindSpore looks for the source of what it compiles."""
    exec(compile("\n" * (block.line - 1) + block.text, ROOT / page, "exec"), names)


def _names(page: str) -> dict[str, Any]:
    name = re.sub(r"\W", "_", page)
    module = sys.modules[name] = types.ModuleType(name)  # MindSpore imports it
    names = module.__dict__
    if page != TUTORIAL:
        first = next(block for block in blocks(TUTORIAL) if block.language == "python")
        _execute(TUTORIAL, first, names)
        exec("model, dataset = make_model(), digits(training=True)", names)
    return names


def main() -> None:
    results, *pages = sys.argv[1:]
    # Programs beside this Python, as in an environment that is activated; msrun starts `python`.
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    found: dict[str, dict[str, Any]] = {}
    import mindspore

    for page in pages:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            try:
                found[page] = {"printed": _run(page, _names(page)), "error": ""}
            except (Exception, SystemExit):  # noqa: BLE001  whatever an example raises is told
                found[page] = {"printed": [], "error": traceback.format_exc()}
            os.chdir(ROOT)
    Path(results).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Draw docs/figures/terminal.svg, the picture of the README: commands, and what they print on a terminal.

    make demo
    cd build && ../.venv-instrument/bin/python ../tools/draw_terminal.py ../docs/figures/terminal.svg \
        "instrument scalars demo_run" "instrument profile demo_run --ops --rows 4"

Each command runs on a pseudo-terminal, so the picture has the columns and the colours that a user sees.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

COLUMNS = 104
FONT_SIZE, CHARACTER_WIDTH, LINE_HEIGHT = 14, 8.4, 19
MARGIN, TITLE_HEIGHT = 18, 34
BACKGROUND, TITLE_BAR, TEXT, PROMPT = "#1e2329", "#2b313a", "#d8dee6", "#7fc97f"
#: CSS of the styles that the command line uses, by the parameter of "select graphic rendition".
STYLES = {
    "1": "font-weight:bold;fill:#ffffff",
    "2": "fill:#8b95a1",
    "31": "fill:#ff7b72",
    "32": "fill:#7ee787",
    "33": "fill:#f2cc60",
}
_STYLE = re.compile(r"\x1b\[([\d;]*)m")
_CELL = re.compile(r"\S+(?: \S+)*")


class Span(NamedTuple):
    """A text of one style, and the column of the terminal in which it begins."""

    column: int
    text: str
    css: str


def main() -> None:
    out, *commands = sys.argv[1:]
    lines: list[list[Span]] = []
    for command in commands:
        if lines:
            lines.append([])
        lines.append([Span(0, "$", f"fill:{PROMPT}"), Span(2, command, "font-weight:bold;fill:#ffffff")])
        lines.extend(spans(line) for line in run(command).rstrip().split("\n"))
    Path(out).write_text(draw(lines), encoding="utf-8")


def run(command: str) -> str:
    """Run a command on a pseudo-terminal; return what it prints, with the escape sequences."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        shlex.split(command), stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "PATH": path}
    ) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux reports the end of a pseudo-terminal as an error
                break
            if not piece:
                break
            printed += piece
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"{command}: exit status {process.returncode}\n{printed.decode()}")
    return printed.decode().replace("\r\n", "\n")


def spans(line: str) -> list[Span]:
    """Split a line of a terminal into cells: texts of one style without a gap of two blanks."""
    result: list[Span] = []
    column, css = 0, ""
    for index, piece in enumerate(_STYLE.split(line)):
        if index % 2:
            css = ";".join(STYLES[code] for code in piece.split(";") if code in STYLES)
        else:
            result.extend(Span(column + cell.start(), cell[0], css) for cell in _CELL.finditer(piece))
            column += len(piece)
    return result


def draw(lines: list[list[Span]]) -> str:
    """Return a picture of a terminal with these lines, as SVG."""
    width = COLUMNS * CHARACTER_WIDTH + 2 * MARGIN
    height = len(lines) * LINE_HEIGHT + TITLE_HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="Menlo,Consolas,\'DejaVu Sans Mono\',monospace" '
        f'font-size="{FONT_SIZE}" fill="{TEXT}">',
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{BACKGROUND}"/>',
        f'<path d="M0 {TITLE_HEIGHT}V8a8 8 0 0 1 8-8H{width - 8:g}a8 8 0 0 1 8 8V{TITLE_HEIGHT}z" fill="{TITLE_BAR}"/>',
    ]
    for index, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        parts.append(f'<circle cx="{20 + 20 * index}" cy="{TITLE_HEIGHT / 2:g}" r="6" fill="{colour}"/>')
    for row, line in enumerate(lines):
        y = TITLE_HEIGHT + MARGIN + row * LINE_HEIGHT + FONT_SIZE
        parts.extend(_text(span, y) for span in line)
    return "\n".join([*parts, "</svg>", ""])


def _text(span: Span, y: float) -> str:
    """Return the SVG of a text; its length is fixed, so that columns stay aligned in any font."""
    x, length = MARGIN + span.column * CHARACTER_WIDTH, len(span.text) * CHARACTER_WIDTH
    style = f' style="{span.css}"' if span.css else ""
    return f'<text x="{x:g}" y="{y:g}" textLength="{length:g}"{style}>{escape(span.text)}</text>'


if __name__ == "__main__":
    main()

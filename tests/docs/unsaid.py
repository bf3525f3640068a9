"""Run tests, and list the messages of the package that none of them made happen.

    python -m tests.docs.unsaid tests/runs tests/show

The tests run in a copy of the tree, in which each place of tests/docs/messages.py notes in a file what its message was.
It is the source that is changed and no more, so that processes which tests start note theirs too. What was noted by
earlier runs counts as long as their folder stands (`--into`), so that the suite can be run in parts. Tests that read
the package's source fail there. Only the words are noted, not whether a user would have met them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.docs.messages import ROOT, Collector, Place, modules, plain

_LEFT_BEHIND = shutil.ignore_patterns(
    ".git", "__pycache__", ".venv*", ".mypy_cache", ".ruff_cache", ".pytest_cache", "build"
)
_FUTURE = "from __future__ import annotations"
_NOTING = """
import json, os
_seen = set()
def __said__(where, text):
    for one in text if isinstance(text, tuple) else (text,):
        if isinstance(one, (str, Exception)) and (where, str(one)) not in _seen:
            _seen.add((where, str(one)))
            try:
                to = os.open({path!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
                try:
                    os.write(to, json.dumps([where, str(one)[:4000]]).encode() + b"\\n")
                finally:
                    os.close(to)
            except OSError:  # no file to be had: a test of just that
                pass
    return text
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "unsaid", help="where the copy and the notes are")
    parser.add_argument("tests", nargs="*", help="what goes to pytest; with nothing, only what was noted is told")
    arguments, options = parser.parse_known_args()
    notes = arguments.into / "said.jsonl"
    places = [place for place in Collector(modules()).places() if place.texts]
    if arguments.tests:
        copy = arguments.into / "copy"
        make_copy(copy, notes.resolve(), places)
        path = os.pathsep.join([str(copy), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "pytest", "-q", *arguments.tests, *options]
        subprocess.run(command, cwd=copy, env={**os.environ, "PYTHONPATH": path}, check=False)
    for text, place in sorted(unsaid(places, notes).items(), key=lambda one: (one[1].file, one[1].line)):
        print(f"{place.file}:{place.line}: {text}")
    return 0


def make_copy(copy: Path, notes: Path, places: Iterable[Place]) -> None:
    """The tree with places that note what they say."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT, copy, ignore=_LEFT_BEHIND, symlinks=True)
    beside = ROOT.parent / "shared"  # samples that tests look for beside the tree
    if beside.is_dir() and not (copy.parent / "shared").exists():
        (copy.parent / "shared").symlink_to(beside)
    copy.joinpath("instrument", "_said.py").write_text(_NOTING.format(path=str(notes)), encoding="utf-8")
    spots: dict[str, set[tuple[int, int, str]]] = defaultdict(set)
    for place in places:
        for begin, end in place.spans:
            spots[place.file] |= {(*begin, f"__said__({key(place)!r}, ("), (*end, "))")}
    for file, inserted in spots.items():
        lines = [line.encode() for line in (copy / file).read_text(encoding="utf-8").splitlines(keepends=True)]
        for row, column, text in sorted(inserted, reverse=True):
            line = lines[row - 1]
            lines[row - 1] = line[:column] + text.encode() + line[column:]
        source = b"".join(lines).decode()
        importing = "from instrument._said import __said__"
        assert _FUTURE in source, f"{file} has messages and no {_FUTURE!r}"
        (copy / file).write_text(source.replace(_FUTURE, f"{_FUTURE}; {importing}", 1), encoding="utf-8")


def unsaid(places: Iterable[Place], notes: Path) -> dict[str, Place]:
    """The messages of which nothing was noted, each with its first place."""
    said: dict[str, set[str]] = defaultdict(set)
    for line in notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []:
        where, text = json.loads(line)
        said[where].add(" ".join(text.split()))
    never: dict[str, Place] = {}
    heard: set[str] = set()
    for place in places:
        heard |= {one for text in said[key(place)] for one in told(text, place.texts)}
        for text in place.texts:
            never.setdefault(text, place)
    # The parts of a message may belong to another place of its file, as far as the source says.
    noted = {
        file: "\n".join(text for key in said if key.startswith(f"{file} ") for text in said[key])
        for file in {place.file for place in never.values()}
    }
    return {
        text: place
        for text, place in never.items()
        if text not in heard and ("…" in text or text not in noted[place.file])
    }


def key(place: Place) -> str:
    """A place's name that lines above it do not change."""
    return f"{place.file} {place.source}"


def told(text: str, templates: Iterable[str]) -> set[str]:
    """Which of a place's messages a text is: the one that says most of it in its own words, and those inside of it."""
    patterns = {one: ".*?".join(re.escape(part) for part in one.split("…")) for one in templates}
    text = plain(text.replace("%%", "%"))
    whole = [one for one, pattern in patterns.items() if re.fullmatch(pattern, text)]
    inside = {one for one, pattern in patterns.items() if re.search(pattern, text)} - set(whole)
    most = max((len(one) for one in whole), default=0)
    return inside | {one for one in whole if len(one) == most}


if __name__ == "__main__":
    raise SystemExit(main())

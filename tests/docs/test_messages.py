"""docs/messages.md has every message of the package, and none that it does not have."""

from __future__ import annotations

import re

from tests.docs import messages
from tests.docs.messages import ROOT

PAGE = ROOT / "docs" / "messages.md"

_PASSES_ON = "hands on what another place says"
_SYSTEM = "says what the system says"
#: (file, beginning of the source of the place) -> why no text is to be seen there.
WITHOUT_TEXT = {
    ("instrument/analyse/windows.py", "raise NoSuchRun('; '.join(errors))"): _PASSES_ON,
    ("instrument/analyse/chrome_trace.py", "raise type(error)(error.errno"): _SYSTEM,
    ("instrument/collect/system.py", "self._say("): "its function has the text",
    ("instrument/show/cli/repair.py", "tell(note)"): _PASSES_ON,
    ("instrument/show/cli/lineage.py", "arguments.wrong_call(name("): _PASSES_ON,
    ("instrument/show/cli/lineage.py", "raise NoSuchRun(name("): _PASSES_ON,
    ("instrument/show/cli/lineage.py", "raise NoSuchRun(lacking"): _PASSES_ON,
    ("instrument/show/cli/scalars.py", "tell(str(NoSuchRun("): _PASSES_ON,
    ("instrument/show/cli/verify.py", "tell(note)"): _PASSES_ON,
    ("instrument/show/cli/__init__.py", "tell(message, RED)"): _PASSES_ON,
    ("instrument/show/cli/__init__.py", "print(_overview().format_help()"): "the usage",
    ("instrument/show/formats/arrays.py", "job.left_out.append(str(error))"): _PASSES_ON,
    ("instrument/show/formats/pictures.py", "job.left_out.append(str(error))"): _PASSES_ON,
    ("instrument/show/formats/tensorboard.py", "self._job.left_out.append(str(error))"): _PASSES_ON,
    ("instrument/show/live.py", "raise SystemExit(128 + number)"): "a signal ends the program",
    ("instrument/show/report_page.py", "self.left_out.append(f'{name}: {error}')"): _PASSES_ON,
    ("instrument/show/opened_runs.py", "tell(note)"): _PASSES_ON,
    ("instrument/show/opened_runs.py", "tell(problem)"): _PASSES_ON,
    ("instrument/show/terminal.py", "print(paint("): _PASSES_ON,
    ("instrument/doctor/examine.py", "raise Failed(f'{directory}"): _PASSES_ON,
    ("instrument/collect/complaints.py", "self.say(('large'"): "its text is that of the error beside it",
    ("instrument/collect/complaints.py", "self.say('use'"): "its text is that of the error beside it",
    ("instrument/collect/sources.py", "raise Uncollectable(str(error))"): _PASSES_ON,
    ("instrument/profiler/recorder.py", "self._say(logging.WARNING, row.warning)"): "the rows of control.py have it",
    ("instrument/landscape/unfold.py", "raise _Given(x)"): "carries a value to where it is caught",
    ("instrument/runs/event_file.py", "self._note(block, start, length, problem)"): _PASSES_ON,
    ("instrument/runs/event_file.py", "self._note(block, start, length, str(error))"): _PASSES_ON,
    ("instrument/runs/event_file.py", "self._note(block, int(group.starts[0])"): _PASSES_ON,
    ("instrument/runs/verify.py", "Damage(file.path"): _PASSES_ON,
    ("instrument/runs/verify.py", "Damage(report.path"): _PASSES_ON,
    ("instrument/show/notebook.py", "raise ValueError(f'{len(words)} words')"): "printed with the usage of %instrument",
    ("instrument/trace/text.py", "Problem(self.file, what, amount)"): "its callers' texts are found",
    ("instrument/write/npy_export.py", "Diagnostic('export'"): _SYSTEM,
    ("instrument/write/worker_process.py", "Diagnostic(*json.loads(message))"): _PASSES_ON,
    (
        "instrument/write/worker_process.py",
        "raise FileNotFoundError(errno.ENOENT",
    ): "the text stands in the row of the warning",
    ("instrument/write/consumer.py", "Diagnostic('stalled'"): _SYSTEM,
    ("instrument/write/consumer.py", "Diagnostic('lost'"): _SYSTEM,
    ("instrument/write/pool_memory.py", "raise OSError(error, os.strerror(error))"): _SYSTEM,
    ("instrument/write/sink.py", "Diagnostic('sync'"): _SYSTEM,
    ("instrument/write/worker.py", "Diagnostic('stalled'"): _SYSTEM,
}

PLACES = list(messages.Collector(messages.modules()).places())


def listed() -> list[str]:
    """The messages in the first column of the page's tables."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            first = re.split(r"(?<!\\)\|", line)[1].replace("\\|", "|")
            found += [re.sub(r"^(`+) ?(.*?) ?\1$", r"\2", one.strip()) for one in first.split("<br>")]
    return found


def test_every_message_is_on_the_page() -> None:
    """What is raised, logged or printed as an error, from wherever its text comes."""
    known = set(listed())
    missing = {text: f"{place.file}:{place.line}" for place in PLACES for text in place.texts if text not in known}

    assert missing == {}, "put these into a row of docs/messages.md, with cause and cure"


def test_the_page_has_no_message_that_the_package_lacks() -> None:
    """And none twice."""
    found = listed()

    assert sorted(set(found) - {text for place in PLACES for text in place.texts}) == []
    assert sorted(text for text in set(found) if found.count(text) > 1) == []


def test_every_message_has_a_cause_and_what_to_do() -> None:
    """Except beginnings of other messages, and information."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[2:4]] for line in rows]

    assert len(rows) > 100
    assert [cause for cause, _ in cells if not cause] == []
    assert {cause for cause, cure in cells if not cure} == {
        cause for cause, _ in cells if cause.startswith(("Messages of the profiler", "Information:"))
    }


def test_places_without_a_text_are_known() -> None:
    """Where a message cannot be seen in the source, the table above says why; it has no other rows."""
    nameless = [(place.file, place.source) for place in PLACES if not place.texts]
    known = {
        (file, begin): [source for name, source in nameless if name == file and source.startswith(begin)]
        for file, begin in WITHOUT_TEXT
    }

    explained = {(file, source) for (file, _), sources in known.items() for source in sources}
    assert sorted(set(nameless) - explained) == []
    assert [key for key, sources in known.items() if not sources] == []


def test_collector_sees_what_it_is_made_for() -> None:
    """Texts written in place, made by a function, taken from a table, and given by a caller."""
    texts = {text for place in PLACES for text in place.texts}

    assert len(texts) > 400
    assert {
        "on_full is …; expected 'block' (wait for room) or 'drop' (count and go on).",
        "… does not exist; the summary_dir of a SummaryCollector is expected.",
        "… is full: step … and what follows is not recorded (…). Training goes on.",
        "workers die of it",
        "Step … is lost",
    } <= texts

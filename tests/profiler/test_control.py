"""The table: every pair of state and request has a row, and each row is what is written here."""

from __future__ import annotations

from itertools import product

import pytest

from instrument.profiler.control import OCCUPIED, TABLE, Action, ProfilerState, Request, decide, settled

#: One line a state; for each request, in the order of `Request`: the state's first three letters, the actions' first
#: letters (Prepare, Open, Close, Deliver, Report, Explain), and "!" for a refusal or "?" for a warning.
EXPECTED = """
             START      BEGIN      STOP       ANALYSE    EXIT       TO_NONE    TO_WARMUP  TO_RECORD  TO_SAVE
IDLE         REC:O      WAI:       IDL:!      IDL:!      IDL:       IDL:?      IDL:?      IDL:?      IDL:?
DONE         REC:O      WAI:       DON:       DON:E      DON:       DON:       DON:       DON:       DON:
RECORDING    REC:?      REC:?      DON:CD     DON:CDE    DON:CD     WAI:CD?    WAR:CDP?   REC:       SAV:
DELIVERING   DEL:?      DEL:?      DEL:?      DEL:E      DEL:?      DEL:?      DEL:?      DEL:?      DEL:?
WAITING      WAI:?      WAI:?      DON:R      WAI:E      DON:R      WAI:       WAR:P      REC:O      SAV:O
WARMING      WAR:?      WAR:?      DON:R      WAR:E      DON:R      WAI:       WAR:       REC:O      SAV:O
SAVING       SAV:?      SAV:?      DON:CDR    DON:CDE    DON:CDR    WAI:CD     WAR:CDP    REC:CDO    SAV:CDO
"""


def rows() -> dict[tuple[ProfilerState, Request], str]:
    heading, *lines = EXPECTED.strip("\n").splitlines()
    requests = [Request[name] for name in heading.split()]
    found = {}
    for line in lines:
        state, *cells = line.split()
        found.update({(ProfilerState[state], request): cell for request, cell in zip(requests, cells, strict=True)})
    return found


@pytest.mark.parametrize(("state", "request_"), list(product(ProfilerState, Request)), ids=lambda one: one.name)
def test_each_pair(state: ProfilerState, request_: Request) -> None:
    row = TABLE[state][request_]
    mark = "!" if row.refusal else "?" if row.warning else ""
    cell = f"{row.state.name[:3]}:{''.join(action.name[0] for action in row.actions)}{mark}"
    assert cell == rows()[state, request_]


def test_a_refusal_changes_nothing() -> None:
    """Whatever is refused leaves the state and does nothing, and says what to do."""
    for state, row in ((state, row) for state, of_state in TABLE.items() for row in of_state.values() if row.refusal):
        assert (row.state, row.actions, row.warning) == (state, (), "")
        assert "call start()" in row.refusal


def test_a_window_is_never_opened_twice() -> None:
    """Windows are closed before the next one opens, and are open in the states that say so only."""
    is_open = {ProfilerState.RECORDING, ProfilerState.SAVING}
    for state, of_state in TABLE.items():
        for row in of_state.values():
            count = state in is_open
            for action in row.actions:
                count += {Action.OPEN: 1, Action.CLOSE: -1}.get(action, 0)
                assert count in (0, 1)
            assert count == (row.state in is_open) or state is ProfilerState.DELIVERING


@pytest.mark.parametrize(("state", "request_"), list(product(ProfilerState, Request)), ids=lambda one: one.name)
def test_while_another_profiler_records(state: ProfilerState, request_: Request) -> None:
    """A window that another one's keeps from opening is refused by name, or skipped with a word in a schedule."""
    usual, row = decide(state, request_), decide(state, request_, other="./other")
    if Action.OPEN not in usual.actions or Action.CLOSE in usual.actions:
        assert row == usual
    elif request_ is Request.START:
        assert (row.state, row.actions) == (state, ())
        assert "./other" in row.refusal
    else:
        assert (row.state, row.actions) == (ProfilerState.WAITING, ())
        assert "./other" in row.warning
    assert set(OCCUPIED) == {Request.START, Request.TO_RECORD, Request.TO_SAVE}


def test_idle_and_done_differ_by_windows() -> None:
    assert [settled(ProfilerState.DONE, 0), settled(ProfilerState.IDLE, 1)] == [ProfilerState.IDLE, ProfilerState.DONE]
    assert settled(ProfilerState.WAITING, 0) is ProfilerState.WAITING

"""File names: what readers must find in them, and that none is ever used twice."""

from __future__ import annotations

import os
import platform
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from instrument.eventfile import names
from instrument.eventfile.names import EventFileName

SECONDS = 1_700_000_000


@pytest.fixture
def plain_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "my-host.local")


@pytest.mark.usefixtures("plain_host")
@pytest.mark.parametrize(
    "prefix", ["events", "a.b", "", "ünïcode", "with space", "x\ny", "events.out.events.summary.5.0.h"]
)
@pytest.mark.parametrize("device", [0, 7, 1023])
@pytest.mark.parametrize("suffix", ["_MS", "_lineage"])
def test_names_come_back_in_parts(prefix: str, device: int, suffix: str) -> None:
    """Each name that we join is parsed into what it was joined from."""
    name = names.join(prefix, SECONDS, device, suffix)
    parts = names.parse(name)
    assert parts == EventFileName(prefix, SECONDS, device, "my-host.local", suffix == "_lineage")
    assert parts.writer == (device, "my-host.local")


@pytest.mark.usefixtures("plain_host")
def test_the_name_itself() -> None:
    """The order and the dots are MindSpore's."""
    assert names.join("events", SECONDS, 3, "_MS") == "events.out.events.summary.1700000000.3.my-host.local_MS"


@pytest.mark.usefixtures("plain_host")
def test_the_lineage_twin_differs_in_its_suffix_only() -> None:
    """A lineage file stands beside its summary file: same writer, same second."""
    summary = names.join("events", SECONDS, 0, names.SUFFIX)
    lineage = names.join("events", SECONDS, 0, names.LINEAGE_SUFFIX)
    assert lineage == summary.removesuffix("_MS") + "_lineage"
    parsed_summary, parsed_lineage = names.parse(summary), names.parse(lineage)
    assert parsed_summary is not None
    assert parsed_lineage is not None
    assert (parsed_summary.is_lineage, parsed_lineage.is_lineage) == (False, True)
    assert parsed_summary.writer == parsed_lineage.writer


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # MindSpore 2.x, and with another prefix and suffix
        ("events.out.events.summary.1595493426.0.ubuntu_MS", ("events", 1595493426, 0, "ubuntu", False)),
        ("events.out.events.summary.1595493426.0.ubuntu_lineage", ("events", 1595493426, 0, "ubuntu", True)),
        ("my.out.events.summary.1595493426.7.a-b.c_mine", ("my", 1595493426, 7, "a-b.c_mine", False)),
        # MindSpore 1.x had no device
        ("events.out.events.summary.1595493426.ubuntu_MS", ("events", 1595493426, -1, "ubuntu", False)),
        ("events.out.events.summary.1595493426.ubuntu_lineage", ("events", 1595493426, -1, "ubuntu", True)),
        ("events.out.events.summary.1595493426.²³.x", ("events", 1595493426, -1, "²³.x", False)),
        ("events.out.events.summary.1595493426.", ("events", 1595493426, -1, "", False)),
    ],
)
def test_names_of_others_are_parsed(name: str, expected: tuple[str, int, int, str, bool]) -> None:
    """MindSpore's own names give prefix, seconds, device, host and whether they are lineage."""
    assert names.parse(name) == EventFileName(*expected)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "events",
        "events.out.tfevents.1595493426.host",
        "events.out.events.profile.1595493426.0.host_MS",
        "events.out.events.summary.x.0.host_MS",
        "events.out.events.summary..0.host_MS",
        "events.out.events.summary.1595493426",
        "events.out.events.summary.١٢.0.host_MS",
        "ms_output.pb",
    ],
)
def test_other_names_are_none(name: str) -> None:
    """What is no event file's name is not taken for one."""
    assert names.parse(name) is None


@pytest.mark.parametrize(
    ("node", "host"),
    [
        ("plain", "plain"),
        ("A-1.b_2", "A-1.b_2"),
        ("a/../b", "a_.._b"),
        ("a\\b:c*d?", "a_b_c_d_"),
        ("höst 1\n", "h_st_1_"),
        ("", "localhost"),
    ],
)
def test_host_has_safe_characters_only(monkeypatch: pytest.MonkeyPatch, node: str, host: str) -> None:
    """Whatever the machine is called, its name can stand in a file's name."""
    monkeypatch.setattr(platform, "node", lambda: node)
    assert names.host() == host
    assert re.search(r"summary\.\d+", names.join("events", SECONDS, 0, "_MS"))


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_create_respects_the_umask_and_leaves_it(tmp_path: Path, mask: int) -> None:
    """A new file's mode is 0666 less the umask, and the umask is the same afterwards."""
    os.umask(mask)
    path = names.create(str(tmp_path), "events", SECONDS, 0, "_MS")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o666 & ~mask
    assert os.umask(mask) == mask


def test_a_taken_name_gives_the_next_second(tmp_path: Path) -> None:
    """A second writer in the same second sorts behind the first; neither file is touched by the other."""
    first = names.create(str(tmp_path), "events", SECONDS, 0, "_MS")
    Path(first).write_bytes(b"first")
    later = [names.create(str(tmp_path), "events", SECONDS, 0, "_MS") for _ in range(3)]
    parts = [names.parse(os.path.basename(path)) for path in [first, *later]]
    assert [part and part.seconds for part in parts] == [SECONDS, SECONDS + 1, SECONDS + 2, SECONDS + 3]
    assert Path(first).read_bytes() == b"first"
    assert [os.path.getsize(path) for path in later] == [0, 0, 0]


def test_other_devices_and_suffixes_do_not_take_a_name(tmp_path: Path) -> None:
    """Only the whole name counts: ranks and twins of one second all get it."""
    rows = [(0, "_MS"), (1, "_MS"), (0, "_lineage")]
    paths = [names.create(str(tmp_path), "events", SECONDS, device, suffix) for device, suffix in rows]
    assert all(f"summary.{SECONDS}." in path for path in paths)


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="this system has no links")
def test_a_dangling_link_is_a_taken_name(tmp_path: Path) -> None:
    """Creation follows no link to write somewhere else."""
    taken = tmp_path / names.join("events", SECONDS, 0, "_MS")
    taken.symlink_to(tmp_path / "elsewhere")
    assert f"summary.{SECONDS + 1}." in names.create(str(tmp_path), "events", SECONDS, 0, "_MS")
    assert not (tmp_path / "elsewhere").exists()


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    """The directory is not made here; its absence is told with the whole path."""
    with pytest.raises(FileNotFoundError, match="missing"):
        names.create(str(tmp_path / "missing"), "events", SECONDS, 0, "_MS")


CREATE = """
import sys
from instrument.eventfile import names
print("ready", flush=True)
sys.stdin.read()  # ends for all at once, when the pipe is closed
print(names.create(sys.argv[1], "events", 1_700_000_000, 0, "_MS"))
"""


def test_sixteen_processes_get_sixteen_names(tmp_path: Path) -> None:
    """Processes that create files in one directory at the same moment never share one."""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-c", CREATE, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(names.__file__).parents[2])}
    children = [
        subprocess.Popen(command, stdin=read_end, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(16)
    ]
    os.close(read_end)
    assert [child.stdout and child.stdout.readline() for child in children] == ["ready\n"] * 16
    os.close(write_end)
    outputs = [child.communicate(timeout=60)[0].strip() for child in children]
    assert [child.returncode for child in children] == [0] * 16
    assert len(set(outputs)) == 16
    assert {os.path.basename(path) for path in outputs} == set(os.listdir(tmp_path))


def test_a_profile_is_no_summary() -> None:
    """Names of the two kinds are told apart, and no viewer takes a profile for one of its own."""
    profile = names.join("events", SECONDS, 3, "_MS", names.PROFILE)
    assert profile.startswith(f"events.out.events.profile.{SECONDS}.3.")
    assert names.parse(profile) is None
    parsed = names.parse(profile, names.PROFILE)
    assert parsed is not None
    assert (parsed.seconds, parsed.device, parsed.host) == (SECONDS, 3, names.host())
    assert names.parse(names.join("events", SECONDS, 3, "_MS"), names.PROFILE) is None
    assert re.search(r"summary\.\d+", profile) is None
    assert "tfevents" not in profile


def test_a_profiles_name_is_not_used_twice(tmp_path: Path) -> None:
    made = [os.path.basename(names.create(str(tmp_path), "events", SECONDS, 0, "_MS", names.PROFILE)) for _ in range(2)]
    parsed = [names.parse(name, names.PROFILE) for name in made]
    assert [one.seconds for one in parsed if one is not None] == [SECONDS, SECONDS + 1]

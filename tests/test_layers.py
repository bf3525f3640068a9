"""Who may import whom: each import in `instrument/`, wherever it stands, against one table.

Values go down through the writing half and up through the reading half; the halves meet in values, codec, eventfile and
ringfile only. An import under `if TYPE_CHECKING` or in a function counts for the direction, but is not loaded with its
module. In the search for circles a string that is the name of a module counts, too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "instrument"

#: Room -> what it may import: rooms of ours, and packages of others. A room is a package or a module of `instrument`.
ALLOWED: dict[str, set[str]] = {
    "_version": set(),
    "errors": set(),
    "atomic_write": set(),
    "undo": set(),
    "wording": set(),
    "forks": set(),
    "paths": set(),
    "checks": {"paths"},
    "descriptors": set(),
    "processes": {"descriptors"},
    "events": {"numpy"},
    "values": {"events", "numpy"},
    "eventfile": {"errors", "descriptors", "undo", "crc32c", "numpy"},
    "codec": {"values", "events", "errors", "numpy", "PIL"},
    # The ring buffer as a file: workers drain it, readers and the next recorder find what is left in it.
    "ringfile": {"codec", "eventfile", "values", "events", "errors", "descriptors", "undo", "numpy"},
    # the writing half
    "framework": {"errors", "_version", "mindspore", "numpy"},
    "write": {
        "ringfile",
        "codec",
        "eventfile",
        "values",
        "events",
        "errors",
        "forks",
        "descriptors",
        "processes",
        "undo",
        "numpy",
        "crc32c",
    },
    "marked": set(),
    "marks": {"marked"},
    "collect": {
        "checks",
        "wording",
        "write",
        "ringfile",
        "codec",
        "values",
        "errors",
        "forks",
        "framework",
        "marks",
        "paths",
        "mindspore",
        "numpy",
        "psutil",
    },
    # `Profiler.analyse` explains what was recorded; what it imports for that stands in functions.
    "profiler": {
        "checks",
        "analyse",
        "wording",
        "write",
        "codec",
        "eventfile",
        "values",
        "errors",
        "framework",
        "marks",
        "paths",
        "_version",
        "mindspore",
        "numpy",
    },
    # It takes the options that the collector was given, checked by the same code; dill comes with MindSpore.
    "landscape": {
        "checks",
        "atomic_write",
        "wording",
        "collect",
        "write",
        "codec",
        "descriptors",
        "processes",
        "values",
        "errors",
        "framework",
        "_version",
        "mindspore",
        "dill",
        "numpy",
    },
    # For users' own tests: in place of files it gives recorders a sink in memory.
    "testing": {
        "collect",
        "write",
        "ringfile",
        "codec",
        "wording",
        "values",
        "errors",
        "numpy",
    },
    # the reading half
    "trace": {"values", "errors", "numpy"},
    # It reads trace event files itself, so that a run, which has a profile, can stand above it.
    "analyse": {
        "atomic_write",
        "trace",
        "ringfile",
        "codec",
        "eventfile",
        "values",
        "wording",
        "errors",
        "paths",
        "_version",
        "numpy",
        "pandas",
    },
    "runs": {
        "analyse",
        "wording",
        "ringfile",
        "codec",
        "eventfile",
        "values",
        "errors",
        "paths",
        "numpy",
        "crc32c",
        "pandas",
    },
    # Plain values of runs, which every output stands on: no terminal, no HTML, no options.
    "facts": {"wording", "analyse", "runs", "codec", "eventfile", "values", "errors", "paths", "numpy"},
    # Files of other programs; neither the command line nor a terminal is known here.
    "formats": {
        "atomic_write",
        "facts",
        "analyse",
        "runs",
        "codec",
        "eventfile",
        "values",
        "errors",
        "numpy",
        "matplotlib",
        "PIL",
        "pyarrow",
    },
    "show": {
        "wording",
        "atomic_write",
        "formats",
        "facts",
        "analyse",
        "runs",
        "ringfile",
        "codec",
        "eventfile",
        "values",
        "errors",
        "doctor",
        "paths",
        "_version",
        "numpy",
    },
    "__main__": {"show"},
    # Both halves: its trials record in processes of their own, and what they recorded is read back.
    "doctor": {
        "collect",
        "profiler",
        "write",
        "runs",
        "eventfile",
        "values",
        "framework",
        "_version",
        "mindspore",
        "numpy",
    },
}
WRITING = {"framework", "write", "collect", "profiler", "landscape", "testing"}
READING = {"runs", "trace", "analyse", "facts", "formats", "show", "__main__"}


@dataclass(frozen=True)
class Import:
    """One imported module. It is loaded with the module that names it unless it stands in a function."""

    file: str
    line: int
    module: str
    target: str
    is_in_function: bool
    is_for_types: bool
    is_by_name: bool = False

    @property
    def is_loaded(self) -> bool:
        return not (self.is_in_function or self.is_for_types)

    @property
    def room(self) -> str:
        """The room in which the import stands."""
        return room_of(self.module)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.target}"


def room_of(module: str) -> str:
    """`"codec"` for `instrument.codec.wire`, `""` for `instrument` itself, `"PIL"` for `PIL.Image`."""
    first, _, rest = module.partition(".")
    if first == "instrument":
        return rest.partition(".")[0]
    return "google.protobuf" if module.startswith("google.protobuf") else first


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules that a statement names: `from instrument.codec import wire` names `instrument.codec.wire`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, "imports are absolute"
    assert node.module is not None
    inner = [f"{node.module}.{alias.name}" for alias in node.names]
    return [name if name in MODULES else node.module for name in inner]


def walk(node: ast.AST, in_function: bool = False, for_types: bool = False) -> Iterator[tuple[ast.stmt, bool, bool]]:
    """Each import statement below `node`, whether it stands in a function and whether under TYPE_CHECKING."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, in_function, for_types
        elif isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for body, types in ((child.body, True), (child.orelse, for_types)):
                yield from walk(ast.Module(body, []), in_function, types)
        else:
            is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from walk(child, in_function or is_function, for_types)


def imports_of(module: str, path: Path) -> list[Import]:
    """Return the imports of a module by statements, then those by name: `import_module("instrument.codec.wire")`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    file = str(path.relative_to(ROOT))
    by_statement = [
        Import(file, statement.lineno, module, target, in_function, for_types)
        for statement, in_function, for_types in walk(tree)
        if isinstance(statement, (ast.Import, ast.ImportFrom))
        for target in targets(statement)
    ]
    by_name = [
        Import(file, node.lineno, module, node.value, is_in_function=True, is_for_types=False, is_by_name=True)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in MODULES and node.value not in ("instrument", module)
    ]
    return by_statement + by_name


IMPORTS = [one for module, path in MODULES.items() for one in imports_of(module, path)]
#: The root hands out the public names, each on first use; it has a rule of its own.
INNER = [one for one in IMPORTS if one.room and not one.is_by_name]


def lines(imports: list[Import]) -> list[str]:
    return [str(one) for one in imports]


def test_the_parser_sees_what_there_is(tmp_path: Path) -> None:
    """Imports at the top, in functions, in classes, in branches and for types are all seen for what they are."""
    path = PACKAGE / "codec" / "image.py"
    seen = {(one.target, one.is_loaded) for one in imports_of("instrument.codec.image", path)}
    assert {("numpy", True), ("instrument.codec.wire", True), ("PIL", False)} <= seen
    source = """
import a
if TYPE_CHECKING:
    import b
else:
    import c
class C:
    import d
    def f(self):
        if x:
            from e import g
try:
    import h.i
except ImportError:
    pass
"""
    found = [(targets(node)[0], in_function, types) for node, in_function, types in walk(ast.parse(source))]  # type: ignore[arg-type]
    assert found == [
        ("a", False, False),
        ("b", False, True),
        ("c", False, False),
        ("d", False, False),
        ("e", True, False),
        ("h.i", False, False),
    ]


def test_every_room_is_in_the_table() -> None:
    """A new room says here what it may import."""
    assert {room_of(module) for module in MODULES} - {""} <= ALLOWED.keys()


@pytest.mark.parametrize("room", sorted({room_of(module) for module in MODULES} - {""}))
def test_a_room_imports_what_it_may(room: str) -> None:
    """Beside the standard library and itself, a room imports only what the table says."""
    allowed = {*ALLOWED.get(room, set()), room, *sys.stdlib_module_names}
    assert lines([one for one in INNER if one.room == room and room_of(one.target) not in allowed]) == []


def test_the_halves_never_meet() -> None:
    """What writes imports nothing that reads, and the other way round; nor does the table allow it.

    The one exception: a user asks a `Profiler` to explain what it recorded, and gets a `Profile`.
    """
    for half, other in ((WRITING, READING), (READING, WRITING)):
        met = [one for one in INNER if one.room in half and room_of(one.target) in other]
        assert lines([one for one in met if one.module != "instrument.profiler.profiler"]) == []
        assert {room_of(one.target) for one in met} <= {"analyse"}
        assert not any(one.is_loaded for one in met)
        assert {room: ALLOWED[room] & other for room in half if ALLOWED[room] & other} in (
            {},
            {"profiler": {"analyse"}},
        )


def test_mindspore_is_imported_in_its_rooms_only() -> None:
    """Reading, codecs, workers and the command line do without MindSpore."""
    rooms = {"framework", "collect", "profiler", "landscape", "doctor"}
    assert lines([one for one in IMPORTS if room_of(one.target) == "mindspore" and one.room not in rooms]) == []


def test_protobuf_is_never_imported() -> None:
    """Messages have a codec of their own; MindSpore 2.7 to 2.9 end the process when protobuf came before them."""
    assert lines([one for one in IMPORTS if one.target.startswith("google")]) == []


def test_pillow_is_imported_inside_functions_only() -> None:
    """Only pictures need it."""
    assert lines([one for one in IMPORTS if room_of(one.target) == "PIL" and not one.is_in_function]) == []


def test_matplotlib_is_imported_inside_functions_only() -> None:
    """It is an extra, and slow to load."""
    assert lines([one for one in IMPORTS if room_of(one.target) == "matplotlib" and not one.is_in_function]) == []


def test_nobody_inside_imports_the_root() -> None:
    """The root's names are for users: a module of ours names the module that it means."""
    assert lines([one for one in IMPORTS if one.target == "instrument"]) == []


def test_the_root_loads_the_version_only() -> None:
    """`import instrument` loads no other module of ours; everything else is found on first use."""
    loaded = {one.target for one in IMPORTS if not one.room and one.is_loaded}
    assert loaded - sys.stdlib_module_names - {"collections.abc"} == {"instrument._version"}


def circles(imports: list[Import]) -> set[frozenset[str]]:
    """Return the sets of modules that reach each other by imports."""
    needed: dict[str, set[str]] = {module: set() for module in MODULES}
    for one in imports:
        if one.target in MODULES:
            needed[one.module].add(one.target)
    reached = {module: reachable(module, needed) for module in MODULES}
    return {
        frozenset({module} | {other for other in reached[module] if module in reached[other]})
        for module in MODULES
        if module in reached[module]
    }


def reachable(module: str, needed: dict[str, set[str]]) -> set[str]:
    """Return the modules that a module imports, directly or not; itself only in a circle."""
    reached: set[str] = set()
    pending = [module]
    while pending:
        following = needed[pending.pop()] - reached
        reached |= following
        pending += following
    return reached


def test_modules_are_loaded_in_some_order() -> None:
    """Each after those that it loads at its top."""
    assert circles([one for one in IMPORTS if one.is_loaded]) == set()


def test_there_is_no_import_circle() -> None:
    """Imports for types, in functions and by name count: a reader meets them, too.

    The root is left out: it names every public module by its name, so that `import instrument` loads none of them.
    """
    assert [sorted(circle) for circle in circles([one for one in IMPORTS if one.room])] == []


def test_imports_by_name_are_seen() -> None:
    """As of the table of the root, which loads none of what it names."""
    by_name = [one for one in IMPORTS if one.is_by_name and one.target == "instrument.runs.run" and not one.room]
    assert by_name
    assert not any(one.is_loaded for one in by_name)


FRESH = """
import os, sys, threading
def descriptors():
    return os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
before = descriptors()
import {module}
unwanted = {{"mindspore", "google.protobuf", "numpy", "PIL"}} & sys.modules.keys()
print(sorted(unwanted), threading.active_count(), descriptors() == before)
"""
STRICT = ("-W", "error::DeprecationWarning", "-W", "error::ResourceWarning")


def test_importing_the_package_is_light(run_python: Callable[..., str]) -> None:
    """`import instrument` loads neither MindSpore nor protobuf nor NumPy, starts no thread and leaves no file open."""
    assert run_python(FRESH.format(module="instrument"), *STRICT) == "[] 1 True\n"


#: `instrument doctor` imports these, and starts the trials beside them in processes of their own.
EXAMINATION = {"instrument.doctor.examine", "instrument.doctor.findings"}


@pytest.mark.parametrize(
    "module", sorted(module for module in MODULES if room_of(module) in READING - {"__main__"} or module in EXAMINATION)
)
def test_reading_needs_neither_mindspore_nor_protobuf(run_python: Callable[..., str], module: str) -> None:
    """Every module of the reading half can be imported first of all, and loads only NumPy."""
    assert run_python(FRESH.format(module=module), *STRICT) in ("[] 1 True\n", "['numpy'] 1 True\n")


def test_the_worker_needs_neither_mindspore_nor_protobuf(run_python: Callable[..., str]) -> None:
    """A worker that sees only scalars does without NumPy as well."""
    assert run_python(FRESH.format(module="instrument.write.worker"), *STRICT) == "[] 1 True\n"

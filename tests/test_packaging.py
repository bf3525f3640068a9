"""What the distribution says of itself, and that a wheel of it serves a user in a fresh environment."""

from __future__ import annotations

import configparser
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import instrument
from instrument._version import SUPPORTED_MINDSPORE
from instrument.doctor.examine import PACKAGES

ROOT = Path(__file__).resolve().parent.parent
#: What fails with MindSpore 2.10 on NumPy 2: the first operation in PyNative mode, NumPy numbers, rows of numbers.
TRAINING = """
import numpy as np, mindspore as ms
ms.set_context(mode=ms.PYNATIVE_MODE)
assert ms.Tensor(np.ones((2, 3), np.float32)).reshape((3, 2)).shape == (3, 2)
assert (ms.Tensor([1.0]) + np.float32(1)).asnumpy().tolist() == [2.0]
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Model
from instrument import SummaryCollector, read
rows = np.ones((20, 4), np.float32)
network = nn.Dense(4, 1)
model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.01))
data = NumpySlicesDataset((rows, rows[:, 0]), ["x", "y"]).batch(2)
model.train(1, data, callbacks=[SummaryCollector("run", collect_freq=1, system_metrics=True)], dataset_sink_mode=False)
run = read("run")
assert run.scalars("loss/auto").step.tolist() == list(range(1, 11))
assert len(run.scalars("system/cpu_percent")) > 0
print(__import__("instrument").__file__)
"""


@pytest.fixture(scope="module")
def config() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def entries(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def test_the_version_stands_in_one_place(config: configparser.ConfigParser) -> None:
    """In `_version.py`, from where the metadata and the package have it; the changes of a release have its heading."""
    assert config["metadata"]["version"] == "attr: instrument._version.__version__"
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", instrument.__version__)
    assert f"\n## {instrument.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_supported_mindspore_is_the_same_everywhere(config: configparser.ConfigParser) -> None:
    """The range that an installation asks for is the one that the code and the README name."""
    (first, (major, last)) = SUPPORTED_MINDSPORE
    (asked,) = [one for one in entries(config["options"]["install_requires"]) if one.startswith("mindspore")]
    assert asked == f"mindspore>={first[0]}.{first[1]},<{major}.{last + 1}"
    assert f"MindSpore {first[0]}.{first[1]} to {major}.{last}" in (ROOT / "README.md").read_text()


def test_numpy_is_the_one_that_mindspore_is_built_for(config: configparser.ConfigParser) -> None:
    """NumPy 1 is asked for, as no supported MindSpore works with NumPy 2 in all that users do."""
    (asked,) = [one for one in entries(config["options"]["install_requires"]) if one.startswith("numpy")]
    assert asked == "numpy>=1.22,<2"
    assert framework_releases() == SUPPORTED_MINDSPORE[1]


def framework_releases() -> tuple[int, ...]:
    """The last release of MindSpore that the code says is built for NumPy 1."""
    text = (ROOT / "instrument" / "framework.py").read_text()
    (numbers,) = re.findall(r"^_LAST_FOR_NUMPY_1 = \((\d+), (\d+)\)$", text, re.MULTILINE)
    return tuple(map(int, numbers))


def test_nothing_is_installed_by_a_name_that_is_not_published(config: configparser.ConfigParser) -> None:
    """Messages and pages name packages of an index, or a checkout; `all` has every extra of users."""
    extras = config["options.extras_require"]
    named = {"pandas", "plot", "parquet", "system"}
    told = {}
    for folder in ("instrument", "docs", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".md", ".ipynb"):
                found = re.findall(r"pip install [^`\n]*mindspore-instrument[^`\n]*", path.read_text(encoding="utf-8"))
                told.update({str(path): found} if found else {})
    assert told == {}
    code = "".join(path.read_text() for path in (ROOT / "instrument").rglob("*.py"))
    for name in named:
        (package,) = (re.split(r"[>=<]", one)[0] for one in entries(extras[name]))
        assert re.search(rf"pip install '?{package}\b", code), package
    (every,) = entries(extras["all"])
    assert set(every.removeprefix("mindspore-instrument[").removesuffix("]").split(",")) == named
    packages = {re.split(r"[>=<]", one)[0] for name in named for one in entries(extras[name])}
    assert packages <= PACKAGES.keys()


def test_the_package_has_types(config: configparser.ConfigParser) -> None:
    """`py.typed` is there, and goes into the wheel."""
    assert (ROOT / "instrument" / "py.typed").is_file()
    assert "py.typed" in config["options.package_data"]["instrument"]


def test_the_versions_that_mindinsight_needs_are_told() -> None:
    """The page for users names those with which it reads our files in the tests."""
    page = (ROOT / "docs" / "howto" / "elsewhere.md").read_text(encoding="utf-8")
    for line in entries((ROOT / "tools" / "oracle-requirements.txt").read_text()):
        assert f" {line}" in page


MISSING = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import instrument
for name in sys.argv[2:]:
    try:
        getattr(instrument, name)
        print(f"{name} works")
    except ImportError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("absent", "name", "said"),
    [
        (
            "mindspore",
            name,
            f"instrument.{name} needs MindSpore, which is not installed: pip install 'mindspore>=2.7,<2.11'",
        )
        for name in ("SummaryCollector", "SummaryRecord", "SummaryLandscape", "ops", "Profiler", "StopAtStep")
    ]
    + [("mindspore", name, f"{name} works") for name in ("Run", "profile", "read", "span")]
    + [
        ("numpy", "Run", "instrument.Run needs NumPy, which is not installed: pip install 'numpy>=1.22'"),
        ("crc32c", "Run", "instrument.Run needs crc32c, which is not installed: pip install 'crc32c>=2.3'"),
    ],
)
def test_a_name_whose_package_is_missing_says_so(absent: str, name: str, said: str) -> None:
    """As after `pip install --no-deps`: what is missing, and how to install it."""
    ran = subprocess.run(
        [sys.executable, "-c", MISSING, absent, name],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert ran.stdout.startswith(said), ran.stdout


def test_what_a_missing_package_asks_for_is_what_setup_does(config: configparser.ConfigParser) -> None:
    """The same ranges as in setup.cfg."""
    asked = entries(config["options"]["install_requires"])
    for _, command in instrument._PACKAGES.values():
        for requirement in re.findall(r"'([^']+)'", command):
            assert any(one == requirement or one.startswith(requirement.partition("<")[0]) for one in asked)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of a copy of this tree, and the wheel that is built from it; without a warning."""
    if importlib.util.find_spec("build") is None:
        pytest.skip("the package `build` is not installed")
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if files.returncode:
        pytest.skip("this is no git repository: what belongs to the tree is not known")
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in files.stdout.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    ran = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(out), str(tree)],
        # setuptools warns of an environment that wants no compiled modules.
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    # pip's own, about its configuration, are in capitals.
    assert re.findall(".*(?:warning:|Warning|[Dd]eprecat).*", ran.stdout + ran.stderr) == []
    return out


@pytest.mark.slow
def test_the_sdist_holds_what_is_needed(built: Path) -> None:
    """The package, its tests, and all that the targets of the Makefile run; nothing that was made."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    needed = {name for name in tracked if name and not name.startswith(".git")}
    assert needed - names == set()
    assert not [name for name in names if name.endswith((".pyc", ".so")) or "__pycache__" in name]


@pytest.mark.slow
def test_the_wheel_holds_the_package_only(built: Path) -> None:
    """Every module, the page's template, the mark of types; and complete metadata."""
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        (about,) = [name for name in names if name.endswith("METADATA")]
        told = archive.read(about).decode()
    assert {name.partition("/")[0] for name in names} == {
        "instrument", f"mindspore_instrument-{instrument.__version__}.dist-info"
    }  # fmt: skip
    modules = {str(one.relative_to(ROOT)) for one in (ROOT / "instrument").rglob("*.py")}
    assert modules <= set(names)
    assert "instrument/py.typed" in names
    for line in ("License-Expression: Apache-2.0", "Requires-Python: >=3.10", "Description-Content-Type: text/markdown",
                 "Provides-Extra: system", "Classifier: Typing :: Typed"):  # fmt: skip
        assert f"\n{line}\n" in told
    assert "# mindspore-instrument" in told.partition("\n\n")[2]


RECIPE = "## Without MindSpore"
RECORDED = """
import numpy as np, time
from instrument.values import ArrayItem, Event
from instrument.write.factory import open_sink
from instrument.write.sink import Target
sink = open_sink(Target("run"), 0)
for step in range(1, 4):
    tensor = ArrayItem("tensor", "t", np.ones((2, 2), np.float32), "float32")
    sink.write(Event(step, time.time(), [tensor], {"loss": step / 4}))
sink.close()
"""


@pytest.mark.slow
def test_the_recipe_for_a_reader_without_mindspore(tmp_path: Path) -> None:
    """The page's own commands in a fresh environment: reading works, and a recorder says what is missing."""
    page = (ROOT / "docs" / "howto" / "read.md").read_text(encoding="utf-8").partition(RECIPE)[2]
    commands = re.findall(r"^\$ pip (install .*)$", page, re.MULTILINE)
    assert len(commands) == 2
    venv, python = tmp_path / "venv", tmp_path / "venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "instrument", checkout / "instrument", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        (checkout / name).write_bytes((ROOT / name).read_bytes())

    def call(*words: str | Path, cwd: Path = tmp_path) -> str:
        ran = subprocess.run(
            [*map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
        return ran.stdout

    call(sys.executable, "-m", "venv", venv)
    for command in commands:
        call(python, "-m", "pip", "--disable-pip-version-check", "-q", *shlex.split(command), cwd=checkout)
    assert "mindspore " not in call(python, "-m", "pip", "--disable-pip-version-check", "list")
    call(python, "-c", RECORDED)
    assert "loss" in call(venv / "bin" / "instrument", "show", "run")
    call(venv / "bin" / "instrument", "verify", "run")
    call(venv / "bin" / "instrument", "export", "run", "--to", "csv", "-o", "out")
    call(venv / "bin" / "instrument", "doctor")
    told = call(
        python, "-c", "import instrument\ntry: instrument.SummaryCollector\nexcept ImportError as error: print(error)"
    )
    assert told.startswith("instrument.SummaryCollector needs MindSpore, which is not installed: ")


@pytest.mark.slow
def test_a_fresh_environment_with_the_wheel(built: Path, tmp_path: Path) -> None:
    """Installed with its extras from the wheel, far from this tree: doctor, a training and the demo work."""
    (wheel,) = built.glob("*.whl")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    venv, python = tmp_path / "venv", str(tmp_path / "venv" / "bin" / "python")

    def call(*words: str, seconds: float = 600) -> str:
        ran = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
        return ran.stdout

    call(sys.executable, "-m", "venv", str(venv))
    call(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{wheel}[all]", "scikit-learn")
    call(python, "-m", "pip", "check")
    report = json.loads(call(str(venv / "bin" / "instrument"), "doctor", "--json"))
    assert report["is_well"] is True
    assert None not in report["versions"].values()
    assert report["versions"]["instrument"] == instrument.__version__
    assert str(venv) in call(python, "-c", TRAINING)
    assert "loss/auto" in call(python, "-m", "instrument", "show", "run")
    (tmp_path / "lenet5.py").write_bytes((ROOT / "examples" / "lenet5.py").read_bytes())
    shown = call(python, "lenet5.py", "demo", "--epochs", "1")
    assert "eval/accuracy/auto" in shown
    assert "The parts of 10 steps" in shown

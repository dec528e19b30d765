"""Demand read from a Prometheus, and what it may not say."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from cases.deployments import make_hosts

from hetplan.cli.autoscale import _Followed
from hetplan.cli.places import OnHosts
from hetplan.errors import InputError
from hetplan.executor.prometheus import arrived_by_prometheus


class Answers(http.server.BaseHTTPRequestHandler):
    """Gives what the test says, and keeps what it was asked."""

    said: Any = None
    asked: ClassVar[list[str]]

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        self.asked.append(parse_qs(asked.query)["query"][0] if asked.query else asked.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.said).encode())

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def prometheus() -> Iterator[tuple[str, type[Answers]]]:
    class Mine(Answers):
        asked: ClassVar[list[str]] = []

    server = http.server.HTTPServer(("127.0.0.1", 0), Mine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", Mine
    server.shutdown()
    server.server_close()


def vector(*rows: tuple[dict[str, str], str]) -> dict[str, Any]:
    result = [{"metric": labels, "value": [1.7e9, value]} for labels, value in rows]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_the_counters_of_each_application_are_read(prometheus: tuple[str, type[Answers]]) -> None:
    url, answers = prometheus
    answers.said = vector(({"app": "chat"}, "120"), ({"app": "rank"}, "7.0"), ({"app": "gone"}, "NaN"))
    assert arrived_by_prometheus(f"{url}/", "sum by (app) (x)") == {"chat": 120, "rank": 7}
    assert answers.asked == ["sum by (app) (x)"]


def test_what_is_no_counter_per_application_is_said(prometheus: tuple[str, type[Answers]]) -> None:
    url, answers = prometheus
    for said, part in (
        (vector(({"route": "/"}, "1")), "sum by"),
        (vector(({"app": "a", "pod": "1"}, "1"), ({"app": "a", "pod": "2"}, "1")), "sum by"),
        ({"status": "error", "error": "bad query"}, "no vector"),
        ({"status": "success", "data": {"resultType": "matrix", "result": []}}, "no vector"),
        ([], "no vector"),
    ):
        answers.said = said
        with pytest.raises(OSError, match=part):
            arrived_by_prometheus(url, "q")
    with pytest.raises(OSError, match="does not answer"):
        arrived_by_prometheus("http://127.0.0.1:9", "q")


UP = SimpleNamespace(name="w-0", status="ready")


def test_watch_asks_it_in_place_of_the_router(prometheus: tuple[str, type[Answers]], tmp_path: Path) -> None:
    url, answers = prometheus
    answers.said = vector(({"app": "chat"}, "120"), ({"app": "stream"}, "9"))
    hosts = make_hosts(tmp_path, watch={"prometheus": url, "query": "mine"})
    deployment: Any = SimpleNamespace(site=hosts, observe=lambda: [UP], endpoint=lambda: "http://127.0.0.1:9")
    deployed = _Followed(OnHosts(deployment), 0.0, frozenset({"stream"}))
    assert deployed.arrived() == {"chat": 120}
    assert answers.asked == ["mine"]
    assert deployed.under_way() is None, "it counts none that wait"


def test_the_router_says_how_many_wait_too(prometheus: tuple[str, type[Answers]], tmp_path: Path) -> None:
    url, answers = prometheus
    counted = {"chat": (120, 9), "rank": (50, 4), "stream": (7, 2)}
    answers.said = {"apps": {app: {"arrived": came, "under_way": now} for app, (came, now) in counted.items()}}
    runs = [UP]
    deployment: Any = SimpleNamespace(site=make_hosts(tmp_path), observe=lambda: runs, endpoint=lambda: url)
    deployed = _Followed(OnHosts(deployment), 0.0, frozenset({"stream"}))
    assert (deployed.arrived(), deployed.under_way()) == ({"chat": 120, "rank": 50}, 13)
    assert answers.asked == ["/metrics"]
    runs.clear()
    assert (deployed.arrived(), deployed.under_way()) == ({}, None), "nothing runs any more"


def test_site_toml_names_it(tmp_path: Path) -> None:
    assert make_hosts(tmp_path).watch.query == "sum by (app) (hetplan_queries_arrived_total)"
    for watch in ({"prometheus": "here"}, {"prometheus": "http://h", "promql": "x"}):
        with pytest.raises(InputError, match=r"watch"):
            make_hosts(tmp_path, watch=watch)

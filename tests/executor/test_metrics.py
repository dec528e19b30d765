"""Metrics as Prometheus has them: help and type before each, histograms that add up, names that can be read."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from cases.deployments import Client, make_plan, make_worker, wait_for

from hetplan.executor.deployment import Deployment

_SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)$')


def scraped(url: str, accept: str = "text/plain;version=0.0.4") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """A page, held to the format: (name, labels) -> value."""
    with urllib.request.urlopen(urllib.request.Request(url, headers={"accept": accept}), timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    helped: set[str] = set()
    types: dict[str, str] = {}
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, about = line[7:].split(" ", 1)
            assert name not in helped, f"{name} has two helps"
            assert about.endswith(".")
            helped.add(name)
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name in helped
            types[name] = kind
        else:
            matched = _SAMPLE.match(line)
            assert matched, line
            name, labels, value = matched.groups()
            family = re.sub(r"_(bucket|sum|count)$", "", name) if name not in types else name
            assert types.get(family), f"{name} has no type"
            assert types[family] != "counter" or name.endswith("_total")
            pairs = tuple(sorted(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', labels or "")))
            assert (name, pairs) not in found, f"{line} comes twice"
            found[name, pairs] = float(value)
    return found


def total(found: dict[tuple[str, tuple[tuple[str, str], ...]], float], name: str, **labels: str) -> float:
    """The sum of a metric over all other labels."""
    return sum(v for (n, pairs), v in found.items() if n == name and labels.items() <= dict(pairs).items())


@pytest.mark.slow
def test_router_and_workers_count_by_application_worker_and_model(deploy: Callable[..., Deployment]) -> None:
    deployment = deploy(models={"*": {"kind": "sleep", "ms": 3.0}})
    endpoint = deployment.apply(make_plan(make_worker("w1", 2))).endpoint
    for _ in range(6):
        assert Client(endpoint).post()[0] == 200
    router = scraped(f"{endpoint}/metrics")
    assert total(router, "hetplan_queries_arrived_total", app="app") == 6
    assert total(router, "hetplan_queries_total", app="app", outcome="served") == 6
    assert total(router, "hetplan_load_queries_total", load="w1.a", model="m", outcome="served") == 6
    assert total(router, "hetplan_worker_up") == 2
    assert total(router, "hetplan_query_seconds_count", app="app") == 6
    assert total(router, "hetplan_query_seconds_bucket", app="app", le="+Inf") == 6
    assert total(router, "hetplan_query_seconds_bucket", app="app", le="0.002") == 0, "none can be so fast"
    assert total(router, "hetplan_query_seconds_sum", app="app") >= 6 * 0.003
    seen = deployment.observe()

    def served() -> float:
        pages = [scraped(f"http://127.0.0.1:{one.endpoint.port}/metrics") for one in seen if one.endpoint]
        for one, page in zip(seen, pages, strict=True):
            assert total(page, "hetplan_service_seconds_count", worker=one.name, model="m") == total(
                page, "hetplan_load_batches_total", worker=one.name
            )
        return sum(total(page, "hetplan_load_queries_total", outcome="served") for page in pages)

    wait_for(lambda: served() == 6)
    assert "apps" in Client(endpoint).get("/metrics"), "whoever does not ask for text gets JSON"


def test_a_name_with_quotes_is_escaped() -> None:
    from hetplan.executor.serving.metrics import Page

    page = Page()
    page.add("x", "gauge", "What it is.", [({"a": 'quo"te\\ and\nline'}, 1.5)])
    assert page.bytes().decode().splitlines()[-1] == 'x{a="quo\\"te\\\\ and\\nline"} 1.5'


@pytest.mark.parametrize(("accept", "text"), [("application/openmetrics-text;version=1.0.0", True), ("*/*", False)])
def test_prometheus_is_known_by_what_it_accepts(accept: str, text: bool) -> None:
    from hetplan.executor.serving.metrics import wants_prometheus

    assert wants_prometheus("", accept) is text


@pytest.mark.slow
def test_the_dashboard_asks_for_metrics_and_labels_that_there_are(deploy: Callable[..., Deployment]) -> None:
    board = json.loads((Path(__file__).resolve().parents[2] / "examples" / "grafana.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) == 8
    endpoint = deploy(models={"*": {"kind": "sleep", "ms": 1.0}}).apply(make_plan(make_worker("w1", 1))).endpoint
    assert Client(endpoint).post()[0] == 200
    there = {name for name, _ in scraped(f"{endpoint}/metrics")}
    streams = {"hetplan_first_token_seconds_bucket", "hetplan_token_seconds_bucket"}
    assert {name for one in asked for name in re.findall(r"hetplan_[a-z_]+", one)} <= there | streams

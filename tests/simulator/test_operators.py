"""Compound plans played: operators take what was measured, links what they carry, and queries come, live and go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.measure.evaluator_profiler import measuring
from hetplan.measure.journal import Journal
from hetplan.serving.operators import input_bytes, operators_of
from hetplan_papers.datasets.circinus_generator import draw

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "compound"
FILES = (EXAMPLE / "profile.json", EXAMPLE / "slo.json")
MEASURED = EXAMPLE / "measured.json"


def with_lifetimes(seconds: float, streams: int = 1) -> dict[str, Any]:
    slo: dict[str, Any] = json.loads((EXAMPLE / "slo.json").read_text())
    for app in slo["apps"].values():
        app["lifetime_s"], app["streams"] = seconds, streams
    return slo


@pytest.mark.slow
def test_operators_and_links_add_up_to_the_promise() -> None:
    query, journal = draw("DVC", 0), Journal()
    hp.solve(query.profile(), query.slo(), evaluate=measuring(query, journal=journal), options={"max_measurements": 20})
    measured = journal.document()
    plan = hp.solve(query.profile(), query.slo(), measured).require()
    inputs = hp.load(query.profile(), query.slo(), measured)
    rule: Any = plan.dispatch["query"]
    found = operators_of(plan, inputs)
    c = query.configuration(rule.knobs)
    placement = [("device", "mec", "cloud").index(rule.placement[step.name]) for step in query.app.steps]
    k = query.placements.tolist().index(placement)
    promised = next(one.value for one in plan.promises if one.quantity == "response_ms")
    times = sum(one.mean_ms for one in found.values())
    assert times + 1000 * query.transfer_s()[c, k] == pytest.approx(promised)
    assert sorted(one.bytes_out for one in found.values()) == pytest.approx(sorted(query.bytes_out[c]))
    assert input_bytes(plan, inputs, "query") == pytest.approx(1.2 * query.bytes_out[c, 0])


def test_a_simulated_sample_takes_what_the_plan_promises() -> None:
    plan = hp.solve(*FILES, MEASURED).require()
    report = hp.simulate(plan, *FILES, MEASURED, seeds=2)
    assert report.ok
    short = hp.simulate(plan, *FILES, MEASURED, seeds=1, duration_s=5)
    for one in (report, short):
        assert not [code for code, _, _ in one.warnings if code == "W-unstable"], "streams have no queue"
    promised = {one.app: one.value for one in plan.promises if one.quantity == "response_ms"}
    accuracy = {one.app: one.value for one in plan.promises if one.quantity == "quality"}
    assert promised
    for app, value in promised.items():
        assert app is not None
        assert report.apps[app].percentiles_ms[50.0].value == pytest.approx(value)
        assert report.apps[app].figures["accuracy"].value == pytest.approx(accuracy[app])


def test_without_measurements_it_says_where_the_times_are() -> None:
    plan = hp.solve(*FILES, MEASURED).require()
    with pytest.raises(hp.InputError, match="are in its measurements"):
        hp.simulate(plan, *FILES)


@pytest.mark.slow
def test_queries_that_live_longer_or_come_more_often_find_less_room() -> None:
    admitted = []
    for streams in (1, 4):
        slo = with_lifetimes(600.0, streams)
        plan = hp.solve(FILES[0], slo, MEASURED).require()
        report = hp.simulate(plan, FILES[0], slo, MEASURED, seeds=3)
        lines = {(line.app, line.quantity): line.simulated for line in report.lines if line.by == "lifetimes"}
        assert all(found is not None and 0.0 <= found.value <= 1.0 for found in lines.values())
        assert {tier for app, tier in lines if app is None} == {"in use of edge", "in use of cloud"}
        admitted.append({app: found.value for (app, name), found in lines.items() if found and name == "admitted"})
    assert set(admitted[0]) == set(json.loads(FILES[1].read_text())["apps"])
    assert sum(admitted[1].values()) < sum(admitted[0].values()) - 0.2


def test_the_scale_of_time_means_nothing_to_admission() -> None:
    found = []
    for seconds in (60.0, 6000.0):
        slo = with_lifetimes(seconds)
        plan = hp.solve(FILES[0], slo, MEASURED).require()
        report = hp.simulate(plan, FILES[0], slo, MEASURED, seeds=1)
        found.append([line.simulated for line in report.lines if line.by == "lifetimes"])
    assert [one.value for one in found[0] if one] == pytest.approx([one.value for one in found[1] if one])

"""Machines that serve batches and machines that make text: one system, one run, one report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetplan.profiles.operating_points import Limit
from hetplan.profiles.slo import Arrivals
from hetplan.serving.system import App, Group, Load, Route, Rule, Service, Stage, System, Way
from hetplan.serving.tokens import Group as Engines
from hetplan.serving.tokens import Requests, TextCrew, TextSystem, TokenDemand, TokenFleet, TokenLaw
from hetplan.simulator.demand import AppDemand, TextDemand
from hetplan.simulator.report import SimulationReport
from hetplan.simulator.simulate import simulate_system

RATE, LENGTH_S = 8.0, 200.0
LIMITS = (Limit("ttft", 95.0, 150.0, 0), Limit("tpot", 95.0, 14.0, 1))


def text(machines: int = 2, price: float = 3e9) -> TextSystem:
    law = TokenLaw(np.array([[4.0, 0.05, 0.0, 0.2, 0.0], [6.0, 0.0, 0.001, 0.0, 0.0]]), 20_000, most_seqs=6)
    engines = Engines(law, 1)
    crew = TextCrew("gpu", (engines,), machines, price_nanos=price)
    return TextSystem((crew,), TokenFleet((replace(engines, count=machines),), 30.0))


def batches(machines: int = 2, price: int = 2_000_000_000) -> System:
    load = Load("serve", {"ask": Service(np.array([[15.0]]), std_ms=np.array([[6.0]]))})
    return System(
        apps=(App("ask", (Stage("only"),), slo_ms=60.0),),
        groups=(Group("cpu", (load,), count=machines, price_nanos=price),),
        routes=(Route("ask", "only", (Way("cpu", "serve"),), rule=Rule.SHORTEST),),
    )


def of_text(hop_ms: float = 0.0) -> AppDemand:
    sizes = Requests.of([(100, 20), (400, 40)])
    lengths = TokenDemand(sizes, np.array([0.7, 0.3]), np.arange(2), RATE, Arrivals())
    asked = TextDemand(lengths, LIMITS, hop_ms, settles_s=5.0)
    return AppDemand("chat", 1, RATE, Arrivals(), np.inf, 95.0, text=asked)


OF_QUERIES = AppDemand("ask", 0, 90.0, Arrivals(), 60.0, 99.0)


def played(system: System, *demands: AppDemand, seeds: int = 3) -> SimulationReport:
    return simulate_system(system, demands, seeds=seeds, duration_s=LENGTH_S, noise="table")


def test_side_by_side_each_fares_as_it_does_alone_and_their_money_is_added() -> None:
    both = played(replace(batches(), texts={"chat": text()}), OF_QUERIES, of_text())
    queries, texts = played(batches(), OF_QUERIES), played(System((), (), (), texts={"chat": text()}), of_text())
    for name, alone in (("ask", queries), ("chat", texts)):
        assert both.apps[name].as_dict() == alone.apps[name].as_dict()
    assert both.groups == {**queries.groups, **texts.groups}
    assert both.cost_per_hour is not None
    assert both.cost_per_hour.value == pytest.approx(2 * 2.0 + 2 * 3.0)
    assert both.events == queries.events + texts.events
    assert both.timeline.workers == pytest.approx(queries.timeline.workers + texts.timeline.workers)
    came = queries.timeline.rate_qps + texts.timeline.rate_qps
    late = queries.timeline.late * queries.timeline.rate_qps + texts.timeline.late * texts.timeline.rate_qps
    assert (both.timeline.late * both.timeline.rate_qps).sum() == pytest.approx(late.sum(), rel=0.02)
    assert both.timeline.rate_qps == pytest.approx(came)


@pytest.mark.parametrize("of", ["response", "ttft", "tpot"])
def test_a_percentile_of_text_is_that_of_all_runs_together(of: str) -> None:
    """As of other queries: no more than its share takes longer, over all runs, and a little less time is too little."""
    app = played(System((), (), (), texts={"chat": text()}), of_text()).apps["chat"]
    for percentile in (50.0, 95.0):
        found, left = app.percentile(of, percentile), 1.0 - percentile / 100.0
        assert found is not None
        beyond, before = app.missed(found.value, of), app.missed(0.98 * found.value, of)
        assert beyond is not None
        assert before is not None
        assert beyond <= left + 1e-9 < before
        assert found.low <= found.value <= found.high


def test_the_network_is_on_the_way_to_the_first_token_and_to_the_answer_alone() -> None:
    here, there = (played(System((), (), (), texts={"chat": text()}), of_text(hop)).apps["chat"] for hop in (0.0, 25.0))
    for of, more in (("ttft", 25.0), ("response", 25.0), ("tpot", 0.0)):
        one, other = here.percentile(of, 95.0), there.percentile(of, 95.0)
        assert one is not None
        assert other is not None
        assert other.value == pytest.approx(one.value + more)


def test_what_no_machine_serves_is_late_and_never_answered() -> None:
    """The only machine breaks for good after half of the time."""

    def control(run: object) -> None:
        run.texts["chat"].at(500.0 * LENGTH_S, lambda: run.texts["chat"].fail("gpu", 1))  # type: ignore[attr-defined]

    system = System((), (), (), texts={"chat": text(machines=1)})
    report = simulate_system(
        system, [replace(of_text(), from_start=True)], seeds=2, duration_s=LENGTH_S, noise="table", control=control
    )
    app, half = report.apps["chat"], len(report.timeline.late) // 2
    assert app.figures["violations"].value > 0.49
    found = app.percentile("ttft", 95.0)
    assert found is not None
    assert found.value == np.inf
    assert (report.timeline.late[half + 1 :] == 1.0).all()
    assert report.timeline.late[: half - 5].mean() < 0.5

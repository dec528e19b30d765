"""Configurations are measured only while it matters: the same plans for fewer measured seconds."""

from __future__ import annotations

from typing import Any

import pytest

import hetplan as hp
from hetplan.measure.evaluator_profiler import measuring
from hetplan.measure.journal import Journal
from hetplan_papers.datasets.circinus_generator import SyntheticQuery, draw


def solved(query: SyntheticQuery, slo: dict[str, Any] | None = None, **options: Any) -> tuple[hp.Outcome, Journal]:
    journal = Journal()
    measure = measuring(query, journal=journal)
    return hp.solve(
        query.profile(), slo or query.slo(), evaluate=measure, options={"max_measurements": 12, **options}
    ), journal


def cost(outcome: hp.Outcome) -> float:
    return next(one.value for one in outcome.require().promises if one.quantity == "cost_per_hour")


def gpu_s(journal: Journal) -> float:
    return sum(plan.get("gpu_s", 0.0) for plan in journal.document()["apps"]["query"])


@pytest.mark.slow
def test_it_costs_at_most_seven_tenths_at_the_same_result() -> None:
    whole = early = 0.0
    for app, seed in (("SR", 3000), ("VT", 3002)):
        (long, all_of_it), (short, less) = (solved(draw(app, seed), early_stop=on) for on in (False, True))
        assert cost(short) <= cost(long) * (1 + 1e-9)
        whole, early = whole + gpu_s(all_of_it), early + gpu_s(less)
        stopped = [plan for plan in less.document()["apps"]["query"] if "stopped" in plan]
        assert all(not plan["passes"] and plan["verdict"] == "undecided" for plan in stopped)
    assert early <= 0.7 * whole


@pytest.mark.slow
def test_what_was_stopped_was_truly_late_or_dear() -> None:
    query = draw("SR", 3000)
    outcome, journal = solved(query)
    stopped = [plan for plan in journal.document()["apps"]["query"] if "stopped" in plan]
    assert stopped
    for plan in stopped:
        c = query.configuration(plan["knobs"])
        in_time = query.latency_s()[c] <= query.latency_max_s
        assert in_time.any() == ("cheaper" in plan["stopped"])
    assert cost(outcome) >= query.least_cost - 1e-9


@pytest.mark.slow
def test_beside_others_what_is_dear_is_measured_on() -> None:
    """Another application may leave no room for the cheapest plan."""
    query = draw("SR", 3000)
    slo = query.slo()
    slo["apps"]["other"] = slo["apps"]["query"]
    _, journal = solved(query, slo, max_measurements=4)
    assert not any("cheaper" in plan.get("stopped", "") for plan in journal.document()["apps"]["query"])


@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False])
def test_a_search_that_goes_on_from_its_journal_proposes_the_same(early: bool, tmp_path) -> None:
    query = draw("VT", 3002)

    def run(path, steps: int) -> list[Any]:
        journal = Journal(path)
        measure = measuring(query, journal=journal)
        hp.solve(
            query.profile(), query.slo(), evaluate=measure, options={"max_measurements": steps, "early_stop": early}
        )
        journal.close()
        return [plan["knobs"] for plan in journal.document()["apps"]["query"]]

    run(tmp_path / "broken.jsonl", 4)
    assert run(tmp_path / "broken.jsonl", 9) == run(tmp_path / "whole.jsonl", 9)

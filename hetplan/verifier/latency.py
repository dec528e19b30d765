"""Latency targets: every class on every path within them, or no more than the allowed share outside; late queries."""

from __future__ import annotations

from collections.abc import Iterator

from hetplan.planner.tolerances import FEASIBILITY
from hetplan.verifier.demand import response_targets
from hetplan.verifier.facts import Facts
from hetplan.verifier.flow import Flow
from hetplan.verifier.options import option
from hetplan.verifier.report import Violation

__all__ = ["check_late", "check_latency"]


def _given(facts: Facts, name: str, flow: Flow) -> Iterator[Violation]:
    """A table of rates holds under the latencies that it was measured with: no longer ones than are wanted."""
    for load in flow.work:
        seat = facts.seats[load]
        if seat.run is None or seat.run.rate is None or seat.run.latency is not None:
            continue
        given = facts.inputs.profile.tables[seat.run.rate].given
        for target in facts.inputs.slo.apps[name].latency:
            key = f"{target.of}_p{target.percentile:g}_ms"
            if given.get(key, 0.0) > target.max_ms * (1.0 + FEASIBILITY):
                text = f"its rates hold at {key} {given[key]:g}, wanted are {target.max_ms:g}"
                yield Violation("latency", seat.at, text)


def check_latency(facts: Facts, name: str, flow: Flow) -> Iterator[Violation]:
    """The response targets of an application, by the statistic that the plan's options name."""
    yield from _given(facts, name, flow)
    targets = list(response_targets(facts.inputs.slo.apps[name]))
    # At the highest percentile the plan may use no more of what is left than it was asked to tolerate.
    tolerance = option(facts.plan, "violation_tolerance", 0.0)
    targets[-1:] = [(limit_ms, min(left, tolerance)) for limit_ms, left in targets[-1:]]
    for limit_ms, allowed in targets:
        share, last = flow.late_share(limit_ms)
        if share > allowed + FEASIBILITY:
            where = f" up to step {last}" if last is not None else ""
            text = f"a share of {share:.6g}{where} takes longer than {limit_ms:g} ms, {allowed:g} may"
            yield Violation("latency", f"routing.{name}", text)


def check_late(facts: Facts) -> Iterator[Violation]:
    """What is done with late queries is what the wish says, by whatever rule the others are sent."""
    for name, rule in facts.plan.dispatch.items():
        wanted = facts.inputs.slo.apps[name].late
        if rule.late != wanted:
            yield Violation("dispatch", f"dispatch.{name}", f"late queries: {rule.late}, the wish says {wanted}")

"""What the tables of a policy's plan can say in one way only (see `exact`)."""

from __future__ import annotations

from collections.abc import Iterator

from hetplan.profiles.plan_dispatch_further import QueueSlackDispatch
from hetplan.verifier.facts import Facts
from hetplan.verifier.report import Violation

__all__ = ["check_tables"]

_EXPECTED = ("goodput", "violations", "utilisation", "quality")
"""What is promised of the averages that the model of a policy's queue expects."""


def check_tables(facts: Facts) -> Iterator[Violation]:
    """Tables say how many are taken where they end, and what they gain."""
    for app, tables in facts.plan.policies.items():
        for number, table in enumerate(tables):
            at = f"policies.{app}[{number}]"
            if table.otherwise.batch == "max":
                yield Violation("policy", at, "does not say how many are taken where more wait than it has rows for")
            if table.gain is None and any(claim.bound is not None for claim in facts.plan.claims) and table.expected:
                yield Violation("policy", at, "a bound is claimed, and its gain is not said")
        rule = facts.plan.dispatch.get(app)
        if isinstance(rule, QueueSlackDispatch) and rule.estimate != QueueSlackDispatch().estimate:
            yield Violation("dispatch", f"dispatch.{app}", "rates are estimated over another time than is planned with")
        tops = {table.workers: table for table in sorted(tables, key=lambda one: one.rate_qps)}
        said = {one.quantity for one in facts.plan.promises if one.app == app and one.model.startswith("stationary")}
        if tops and all(table.expected is not None for table in tops.values()) and said != set(_EXPECTED):
            text = f"{', '.join(sorted(said ^ set(_EXPECTED)))}: {', '.join(_EXPECTED)} of {app} are expected"
            yield Violation("promise-missing", "promises", text)

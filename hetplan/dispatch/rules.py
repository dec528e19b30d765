"""The closed registry of dispatch rules: one name with a version per rule, as plans write it.

>>> sorted(RULES)
['earliest/1', 'fcfs/1', 'matching/1', 'threshold/1']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, ClassVar, Protocol

from hetplan.dispatch.matching import Matching
from hetplan.dispatch.queue_rules import Earliest, Fcfs, Threshold
from hetplan.dispatch.snapshot import Pair, Snapshot
from hetplan.errors import InputError

__all__ = ["ALIASES", "RULES", "Rule", "compile_kernels", "decide", "rule_name", "rule_of"]


class Rule(Protocol):
    """A dispatch rule: parameters once, then a pure decision per snapshot."""

    name: ClassVar[str]

    def decide(self, snapshot: Snapshot) -> tuple[Pair, ...]:
        """The queries to send now, and where to."""
        ...


RULES: Mapping[str, type[Any]] = {rule.name: rule for rule in (Matching, Fcfs, Threshold, Earliest)}
ALIASES: Mapping[str, str] = {
    "kairos": "matching/1",
    "matching": "matching/1",
    "ribbon": "fcfs/1",
    "fcfs": "fcfs/1",
    "drs": "threshold/1",
    "threshold": "threshold/1",
    "clkwrk": "earliest/1",
    "clockwork": "earliest/1",
    "earliest": "earliest/1",
}
"""Short names and the papers' names; a plan never writes them."""


def rule_name(name: str) -> str:
    """The registry's name of a rule.

    >>> rule_name("kairos"), rule_name("FCFS/1")
    ('matching/1', 'fcfs/1')
    """
    lowered = name.lower()
    found = ALIASES.get(lowered, lowered)
    if found in RULES:
        return found
    near = get_close_matches(lowered, [*RULES, *ALIASES], n=1)
    raise InputError.one(
        file="dispatch",
        path="rule",
        value=name,
        why="is no dispatch rule",
        remedy=f"Did you mean {near[0]}?" if near else f"The rules are {', '.join(sorted(RULES))}.",
    )


def rule_of(name: str, parameters: Mapping[str, Any]) -> Rule:
    """The rule of that name with its parameters.

    >>> rule_of("threshold/1", {"threshold": 64})
    Threshold(threshold=64, base=0)
    """
    rule = RULES[rule_name(name)]
    known = {field.name for field in fields(rule)}
    unknown = sorted(set(parameters) - known)
    if unknown:
        raise InputError.one(
            file="dispatch",
            path=unknown[0],
            value=parameters[unknown[0]],
            why=f"rule {rule.name} has no such parameter",
            remedy=f"It has {', '.join(sorted(known)) or 'none'}.",
        )
    try:
        made: Rule = rule(**parameters)
    except TypeError as error:
        raise InputError.one(file="dispatch", path="rule", value=name, why=str(error), remedy="Give it.") from None
    return made


def decide(snapshot: Snapshot, rule: Rule | str, **parameters: Any) -> tuple[Pair, ...]:
    """Ask a rule: which of the waiting queries are sent now, and where to.

    A small and a large query wait; both instances are idle. The matching sends the small one to the weak type:

    >>> snapshot = Snapshot.of(waited_ms=[0, 0], service_ms=[[10, 20], [40, 200]], kind=[0, 1])
    >>> decide(snapshot, "matching/1", slo_ms=100, weight=(1.0, 0.2))
    (Pair(query=0, instance=1), Pair(query=1, instance=0))
    >>> decide(snapshot, "fcfs/1")
    (Pair(query=0, instance=0), Pair(query=1, instance=1))
    """
    if isinstance(rule, str):
        return rule_of(rule, parameters).decide(snapshot)
    return rule.decide(snapshot)


def compile_kernels() -> None:
    """Decide once by each compiled rule, so that everything is compiled that a router needs."""
    snapshot = Snapshot.of(waited_ms=[0.0, 0.0], service_ms=[[10, 20], [40, 200]], kind=[0, 1])
    decide(snapshot, "matching/1", slo_ms=100.0, weight=(1.0, 0.2))
    decide(snapshot, "earliest/1")

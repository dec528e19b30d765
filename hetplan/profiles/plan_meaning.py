"""What every leaf of a plan is: it `runs`, it `claims`, or it is a `remark`.

What `runs` changes what `hetplan apply` starts or how queries are served. What `claims` is a figure or a name that
`hetplan show` prints as a promise or a claim, or that says how far those hold. A `remark` is neither: a plan without
it, or with another one, is served alike and promises the same. All texts that a plan gives are remarks. The table is
reviewed by hand; a test holds it against the schema of plans, leaf by leaf, so that a new field has to be put
somewhere.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

__all__ = ["CLAIMS", "LEAVES", "REMARKS", "RUNS", "Meaning", "meaning_of"]

Meaning = Literal["runs", "claims", "remark"]

RUNS = """
question requires[] periods[].id periods[].start_s periods[].end_s periods[].parts[]
periods[].failures.*[]
workers[].id workers[].period workers[].hardware workers[].offer workers[].host workers[].count workers[].standby
workers[].queue workers[].loads[].id workers[].loads[].app workers[].loads[].node workers[].loads[].variant
workers[].loads[].at.* workers[].loads[].artifact workers[].loads[].knobs.* workers[].loads[].instances
workers[].loads[].share.gpu workers[].loads[].share.cpu_cores workers[].loads[].share.enforce
workers[].loads[].outcomes.* workers[].loads[].serve.max_batch workers[].loads[].serve.max_wait_ms
workers[].loads[].serve.concurrency workers[].loads[].serve.most_seqs workers[].loads[].serve.most_tokens
routing.*[].when.* routing.*[].after.* routing.*[].prefix[] routing.*[].node routing.*[].to.*
dispatch.*.rule dispatch.*.late dispatch.*.candidate dispatch.*.demand.* dispatch.*.machines.*[] dispatch.*.knobs.*
dispatch.*.placement.* dispatch.*.share.* dispatch.*.slo_ms dispatch.*.xi dispatch.*.weight.* dispatch.*.penalty
dispatch.*.penalty_ms dispatch.*.split_above dispatch.*.predict.* dispatch.*.prefer[] dispatch.*.threshold
dispatch.*.base dispatch.*.balancing dispatch.*.keyed dispatch.*.budget_ms.* dispatch.*.backup[].to
dispatch.*.backup[].node dispatch.*.backup[].left_qps dispatch.*.backup[].latency_ms dispatch.*.backup[].quality
dispatch.*.estimate.window_ms dispatch.*.output_tokens dispatch.*.limit.* dispatch.*.ttft_ms
policies.*[].workers policies.*[].slo_ms policies.*[].rate_qps policies.*[].queue_max policies.*[].slack_ms[]
policies.*[].models[] policies.*[].choice.* policies.*[].batch.* policies.*[].otherwise.model
policies.*[].otherwise.batch
tables.*.quantity tables.*.axes.*[] tables.*.mean tables.*.mean[] tables.*.std tables.*.std[] tables.*.p50
tables.*.p50[] tables.*.p90 tables.*.p90[] tables.*.p95 tables.*.p95[] tables.*.p99 tables.*.p99[] tables.*.max
tables.*.max[] tables.*.outside
actions[].id actions[].do actions[].worker actions[].load actions[].count actions[].host actions[].after[]
actions[].ahead_s commitments[].offer commitments[].count commitments[].term_s parts.*.question
"""
"""Leaves that change what is started or how it serves. An action's `id` is what others come `after`."""

CLAIMS = """
status valid.rate_qps.*[] valid.offers
dispatch.*.label dispatch.*.lost dispatch.*.too_slow
policies.*[].gain policies.*[].expected.accuracy_by_query policies.*[].expected.accuracy_by_decision
policies.*[].expected.violation_by_query policies.*[].expected.violation_by_decision policies.*[].expected.goodput
policies.*[].expected.over_probability policies.*[].expected.utilisation policies.*[].expected.accuracy_p1
policies.*[].expected.accuracy_p50 policies.*[].expected.queue_p50 policies.*[].expected.queue_p99
policies.*[].simulated.* policies.*[].objective policies.*[].batching policies.*[].overload policies.*[].span
promises[].app promises[].period promises[].situation promises[].quantity promises[].percentile promises[].relation
promises[].value promises[].model promises[].extrapolated promises[].seeds promises[].confidence
claims[].about claims[].sense claims[].value claims[].bound claims[].gap claims[].scope claims[].vouched claims[].solve
unserved[].app unserved[].rate_qps
commitments[].upfront commitments[].price_per_hour parts.*.rate_qps.*
bill.currency bill.hours bill.repeats bill.cost_per_hour bill.cost_per_day bill.cost_per_month bill.total bill.apps.*
bill.offers.* bill.idle_per_hour bill.starts_per_hour bill.lines[].period bill.lines[].offer bill.lines[].app
bill.lines[].committed bill.lines[].rented bill.lines[].cost_per_hour bill.lines[].starts_per_hour
bill.levers[].name bill.levers[].about bill.levers[].cost_per_hour bill.levers[].saves_per_hour bill.levers[].verified
bill.levers[].kept
inputs.profile inputs.slo inputs.state inputs.measured inputs.traces.*
summary.status summary.cost_per_month summary.cost_per_hour summary.currency summary.budget_per_hour
summary.machine_count summary.rates_qps.*[] summary.survivors summary.limits[][]
summary.bounds[].objective summary.bounds[].sense summary.bounds[].value summary.bounds[].scope
summary.bounds[].vouched summary.bounds[].bound summary.bounds[].gap
summary.slo[].app summary.slo[].metric summary.slo[].relation summary.slo[].limit summary.slo[].interval[]
summary.slo[].unit summary.slo[].value summary.slo[].basis summary.slo[].verdict summary.slo[].seeds
summary.slo[].confidence summary.slo[].worst[].interval[] summary.slo[].worst[].failure summary.slo[].worst[].hours
summary.machines[].machine summary.machines[].count summary.machines[].model summary.machines[].app
summary.machines[].purchase summary.machines[].least summary.machines[].stage summary.machines[].host
summary.machines[].zone summary.machines[].standby summary.machines[].replicas summary.machines[].batch
summary.machines[].chunk summary.machines[].gpu summary.machines[].cost_per_month
summary.machines[].on_same_machines summary.machines[].share summary.machines[].utilization
summary.hours[].hours summary.hours[].apps.*[].count summary.hours[].apps.*[].machine
summary.hours[].apps.*[].purchase summary.hours[].apps.*[].model summary.hours[].apps.*[].shared
summary.hours[].spot summary.hours[].cost_per_hour
summary.reserved[].count summary.reserved[].machine summary.reserved[].days summary.failures[]
"""
"""Leaves that promise or claim, or say of which files and within which limits that holds."""

REMARKS = """
format digest method.formulation method.like method.options.* unserved[].why warnings[].code warnings[].at
warnings[].text bill.shared
promises[].basis promises[].interval[] claims[].note policies.*[].sweeps
tables.*.samples tables.*.samples[] tables.*.source tables.*.given.* tables.*.interval
tables.*.points[].at.* tables.*.points[].rate_qps tables.*.points[].given.*
solves[].id solves[].form solves[].about solves[].count solves[].rows solves[].columns solves[].size.* solves[].solver
solves[].status solves[].stop solves[].value solves[].bound solves[].vouched solves[].certified_bound
solves[].deterministic solves[].why_not_deterministic solves[].proof.* solves[].binding[].block
solves[].binding[].label solves[].binding[].price solves[].binding[].unit
alternatives[].* attachments.* extensions.*
summary.slo[].note summary.warnings[][] summary.next
"""
"""Leaves that only inform. How a plan was made (`method`), and the log of solves, is what a claim is put to the proof
with: changed, it can at most prove less. `digest` and `format` are held against the file whenever it is read."""


def _steps(path: str) -> list[str]:
    return path.replace("[]", ".[]").split(".")


_OWN: dict[str, Meaning] = {
    **dict.fromkeys(RUNS.split(), "runs"),
    **dict.fromkeys(CLAIMS.split(), "claims"),
    **dict.fromkeys(REMARKS.split(), "remark"),
}

_OF_PARTS = ("method", "valid", "workers", "routing", "dispatch", "policies", "tables", "promises", "claims",
             "warnings", "extensions")  # fmt: skip
"""Sections of a plan that a part has too, and `actions` are also those between periods: they mean the same there."""

LEAVES: dict[str, Meaning] = {
    **_OWN,
    **{f"parts.*.{leaf}": meaning for leaf, meaning in _OWN.items() if _steps(leaf)[0] in _OF_PARTS},
    **{f"periods[].{leaf}": meaning for leaf, meaning in _OWN.items() if leaf.startswith("actions[]")},
}
"""Every leaf of the schema, with what it means; `*` is any name, `[]` any place of a list."""

_FROM_STRONGEST: tuple[Meaning, ...] = ("runs", "claims", "remark")


@cache
def meaning_of(path: str) -> Meaning:
    """The meaning of a place of a plan: of a leaf, or the strongest of the leaves below it.

    >>> meaning_of("workers[].count"), meaning_of("warnings"), meaning_of("routing.a[].to.w1"), meaning_of("solves")
    ('runs', 'remark', 'runs', 'remark')
    """
    steps = _steps(path)
    found = {meaning for leaf, meaning in LEAVES.items() if _under(_steps(leaf), steps)}
    for meaning in _FROM_STRONGEST:
        if meaning in found:
            return meaning
    return "remark"


def _under(leaf: list[str], steps: list[str]) -> bool:
    """Whether a leaf is this place or below it (or this place below a leaf that may hold anything)."""
    return all(one in ("*", other) for one, other in zip(leaf, steps, strict=False)) and (
        len(leaf) >= len(steps) or leaf[-1] == "*"
    )

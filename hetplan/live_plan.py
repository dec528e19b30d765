"""The plan of the queries that run now: each an application of its own, as hosts are to be brought to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hetplan.dispatch.live_packing import Placed
from hetplan.errors import InputError
from hetplan.problems.compound.draft import chosen_of, routes_of, workers_of
from hetplan.problems.compound.form import Asked
from hetplan.problems.compound.wish import Query, Way
from hetplan.profiles.fields import ID
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import InputHashes, Method, Plan
from hetplan.profiles.plan_dispatch_further import ChosenPlanDispatch
from hetplan.profiles.plan_file import OUTCOMES, with_digest

__all__ = ["Running", "check_kinds", "check_name", "live_plan"]

LONGEST = 24
"""A query's name is part of the names of what runs."""


@dataclass(frozen=True)
class Running:
    """A query that runs: of which kind, by which way, on which machines (one per item of the way)."""

    name: str
    kind: str
    way: Way
    placed: Placed


def check_kinds(queries: Sequence[Query]) -> None:
    """Only what was measured says which operators run."""
    for query in queries:
        if any(way.found is None for way in query.ways):
            raise InputError.one(
                file="slo", path=f"$.apps.{query.app_id}.candidates", value="--apply",
                why="stated candidates say what they take, not what runs: nothing can be started",
                remedy="Give the application a pipeline and measurements, or leave --apply out.",
            )  # fmt: skip


def check_name(name: str) -> None:
    """Names of queries become names of workers, loads and routes."""
    if not ID.match(name) or len(name) > LONGEST:
        why = f"what is applied is named by at most {LONGEST} of a-z, 0-9, '.', '_' and '-'"
        raise InputError.one(path="line", value=name, why=why, remedy="Name the query otherwise.")


def live_plan(asked: Asked, running: Mapping[str, Running]) -> tuple[Plan, Inputs]:
    """The plan, and the inputs with an application per query: named after it, like that of its kind.

    Names last: what another query does changes no name of what stays.
    """
    inputs = asked.inputs
    served: list[tuple[Query, Way, ChosenPlanDispatch]] = []
    apps = {name: inputs.slo.apps[one.kind] for name, one in running.items()}
    kinds = {one.app_id: one for one in asked.sought}
    named = {name: replace(kinds[one.kind].app, id=name) for name, one in running.items()}
    sought = tuple(replace(kinds[one.kind], app=named[name]) for name, one in running.items())
    for name, one in running.items():
        assert one.way.found is not None
        machines: dict[str, list[int]] = {}
        for item, machine in zip(one.way.items, one.placed.machines, strict=True):
            machines.setdefault(item.tier, []).append(machine)
        numbered = {tier: tuple(numbers) for tier, numbers in machines.items()}
        served.append((Query(named[name], (one.way,)), one.way, chosen_of(named[name], one.way, numbered)))
    slo = inputs.slo.model_copy(update={"apps": apps})
    known = (inputs.measured or {}).get("apps", {})
    measured = {"apps": {name: known[one.kind] for name, one in running.items() if one.kind in known}}
    inputs = replace(inputs, slo=slo, measured=measured)
    workers = tuple(workers_of(replace(asked, inputs=inputs), served, lasting=True))
    requires = {"chosen-plan/1"} if served else set()
    requires |= {OUTCOMES} if any(load.outcomes for worker in workers for load in worker.loads) else set()
    plan = Plan(
        requires=tuple(sorted(requires)), question="compound", method=Method(formulation="live"), status="feasible",
        inputs=InputHashes(profile=inputs.digests["profile"], slo=inputs.digests["slo"]), workers=workers,
        routing=routes_of(replace(asked, sought=sought), workers, {}),
        dispatch={query.app_id: rule for query, _, rule in served},
    )  # fmt: skip
    return with_digest(plan), inputs

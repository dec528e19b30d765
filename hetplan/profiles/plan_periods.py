"""Plans with periods taken apart: the plan of one period, or of one part, is an ordinary plan (`plan_parts`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Period, Plan, Promise, Valid
from hetplan.profiles.plan_file import PERIODS
from hetplan.profiles.plan_parts import Part
from hetplan.profiles.profile import Offer
from hetplan.profiles.slo import Horizon, Survive
from hetplan.profiles.workers import Worker

__all__ = [
    "inputs_of_part",
    "machines_of",
    "machines_with_users",
    "of_part",
    "of_period",
    "period_at",
    "period_of",
    "text_apps",
    "text_is_shared",
    "users_of",
    "without",
]


def period_of(plan: Plan, period: str) -> Period:
    """A period by its id; raises `InputError` with those that there are."""
    for one in plan.periods:
        if one.id == period:
            return one
    listed = ", ".join(one.id for one in plan.periods)
    raise InputError.one(
        file="plan", path="$.periods", value=period, why="the plan has no such period", remedy=f"Name one of {listed}."
    )


def period_at(plan: Plan, at_s: float) -> Period:
    """The period that holds a moment, in seconds from the start of the first; after the last the first comes again."""
    end = plan.periods[-1].end_s
    moment = at_s % end if end else at_s
    return next(
        (one for one in plan.periods if one.start_s <= moment and (one.end_s is None or moment < one.end_s)),
        plan.periods[-1],
    )


def _parts(plan: Plan, period: Period) -> list[Part]:
    return [(plan.parts or {})[name] for name in period.parts or ()]


def of_period(plan: Plan, period: str | Period) -> Plan:
    """The plan of one period, as an ordinary plan of one period: simulated, exported and applied like any other.

    Its promises are those of its parts, and nothing is claimed of it (`status` heuristic). Its question is the one of
    its parts where they agree, else the plan's. A plan without parts is returned as it is. The plan has no digest:
    nothing but `with_digest` gives one.
    """
    found = period if isinstance(period, Period) else period_of(plan, period)
    if plan.parts is None:
        return plan
    parts = _parts(plan, found)
    return _ordinary(plan, parts, Period(id=found.id, end_s=_length(found)))


def of_part(plan: Plan, part: str, *, period: str | Period | None = None) -> Plan:
    """One part as an ordinary plan of its own question (in a period, or in one without end)."""
    held = (plan.parts or {}).get(part)
    if held is None:
        listed = ", ".join(plan.parts or {}) or "none"
        why, remedy = "the plan has no such part", f"Its parts are: {listed}."
        raise InputError.one(file="plan", path="$.parts", value=part, why=why, remedy=remedy)
    found = Period(id="t0")
    if period is not None:
        one = period if isinstance(period, Period) else period_of(plan, period)
        found = Period(id=one.id, end_s=_length(one))
    return _ordinary(plan, [held], found)


def _length(period: Period) -> float | None:
    return None if period.end_s is None else period.end_s - period.start_s


def _ordinary(plan: Plan, parts: list[Part], period: Period) -> Plan:
    questions = {part.question for part in parts}
    alone = parts[0] if len(parts) == 1 else None
    workers = [worker for worker, _ in machines_with_users(parts)]
    return Plan(
        requires=tuple(one for one in plan.requires if one != PERIODS),
        question=questions.pop() if len(questions) == 1 else plan.question,
        method=alone.method if alone is not None else plan.method,
        status="heuristic",
        inputs=plan.inputs,
        valid=Valid(rate_qps={app: span for part in parts for app, span in part.valid.rate_qps.items()}),
        periods=(period,),
        workers=tuple(worker.model_copy(update={"period": period.id}) for worker in workers),
        routing={app: routes for part in parts for app, routes in part.routing.items()},
        dispatch={app: rule for part in parts for app, rule in part.dispatch.items()},
        policies={app: policies for part in parts for app, policies in part.policies.items()},
        tables={name: table for part in parts for name, table in part.tables.items()},
        promises=tuple(chain.from_iterable(part.promises for part in parts)) if alone else _of_apps(parts),
        claims=alone.claims if alone is not None else (),
        warnings=tuple(dict.fromkeys(chain.from_iterable(part.warnings for part in parts))),
        extensions={name: one for part in parts for name, one in part.extensions.items()} if alone else {},
    )


def _of_apps(parts: list[Part]) -> tuple[Promise, ...]:
    """The promises to applications: what a part says of itself as a whole is not true of several together."""
    return tuple(promise for part in parts for promise in part.promises if promise.app is not None)


def machines_of(plan: Plan, period: str | Period) -> dict[str, int]:
    """How many machines of each offer (of each hardware, where a worker names no offer) run in a period."""
    counts: dict[str, int] = {}
    for worker in of_period(plan, period).workers:
        name = worker.offer or worker.hardware
        counts[name] = counts.get(name, 0) + worker.count + worker.standby
    return counts


def inputs_of_part(inputs: Inputs, rates: Mapping[str, float]) -> Inputs:
    """The inputs of a question that plans only these applications, at these rates, for one period.

    What concerns the whole fleet (survival, limits of money, machines and moves, commitments, quotas) is left out.
    `simulate` of `of_period` or `of_part` takes these inputs.

    >>> from hetplan.profiles.profile import Profile
    >>> from hetplan.profiles.slo import Slo
    >>> slo = Slo.model_validate({"horizon": {"periods": 2}, "apps": {
    ...     "a": {"model": "m", "rate_qps": {"series": [3.0, 5.0]}}}})
    >>> one = inputs_of_part(Inputs(Profile(), slo), {"a": 5.0})
    >>> one.slo.apps["a"].rate_qps, one.slo.apps["a"].series, one.slo.horizon.periods
    (5.0, None, 1)
    """
    slo = inputs.slo
    limits = slo.limits.model_copy(
        update={"cost_per_hour": None, "changes": None, "offers": {}, "spot": None, "on_demand": None,
                "reserved": None, "instances": {}, "only_listed": False,
                "provides": {}, "capacity": {}, "survive": Survive()}
    )  # fmt: skip
    apps = {name: slo.apps[name].at_rate(rate).model_copy(update={"question": None}) for name, rate in rates.items()}
    wish = slo.model_copy(update={"limits": limits, "horizon": Horizon(), "apps": apps})
    offers = {name: _rented(offer) for name, offer in inputs.profile.offers.items()}
    profile = inputs.profile.model_copy(update={"offers": offers, "zones": {}})
    traces = {name: times for name, times in inputs.traces.items() if name in apps and apps[name].trace}
    return replace(inputs, profile=profile, slo=wish, state=None, traces=traces)


def _rented(offer: Offer) -> Offer:
    return offer.model_copy(update={"commit": None})


def users_of(part: Part, worker: Worker) -> tuple[str, ...]:
    """The applications that have loads on a worker, or send queries to them, in order; else all of the part."""
    loads = {load.id for load in worker.loads}
    whose = {load.app for load in worker.loads if load.app is not None}
    whose |= {app for app, routes in part.routing.items() for to in routes if loads & to.to.keys()}
    return tuple(sorted(whose or part.rate_qps))


def machines_with_users(parts: Iterable[Part]) -> list[tuple[Worker, tuple[str, ...]]]:
    """The workers of parts that run together, and whose applications use them.

    A worker that two parts name alike is one group of machines, which holds the loads of both. All who count machines
    of a period read them here.

    >>> from hetplan.profiles.plan_sections import Method
    >>> from hetplan.profiles.workers import Load
    >>> def part(question, app):
    ...     load = Load(id=f"w.{app}", app=app, variant="m")
    ...     return Part(question=question, method=Method(formulation="f"), rate_qps={app: 1.0},
    ...                 workers=(Worker(id="w", hardware="h", count=2, loads=(load,)),))
    >>> ((worker, users),) = machines_with_users([part("pool", "a"), part("llm", "b")])
    >>> worker.count, [load.id for load in worker.loads], worker.queue, users
    (2, ['w.a', 'w.b'], 'per-load', ('a', 'b'))
    """
    found = list[tuple[Worker, tuple[str, ...]]]()
    for part in parts:
        known = {one.id: place for place, (one, _) in enumerate(found)}
        for worker in part.workers:
            users, place = users_of(part, worker), known.get(worker.id)
            if place is None or not _is_one(found[place][0], worker):
                found.append((worker, users))
                continue
            before, others = found[place]
            loads = sorted((*before.loads, *worker.loads), key=lambda load: (len(load.id), load.id))
            both = before.model_copy(update={"queue": "per-load", "loads": tuple(loads)})
            found[place] = both, tuple(sorted({*others, *users}))
    return found


def _is_one(worker: Worker, other: Worker) -> bool:
    """Whether two workers are the same machines, with other loads."""
    alike = {"queue": "shared", "loads": ()}
    return worker.model_copy(update=alike) == other.model_copy(update=alike)


def text_apps(plan: Plan) -> list[str]:
    """The applications whose parts make text."""
    parts = [part for part in (plan.parts or {}).values() if part.question == "llm"]
    return list(dict.fromkeys(app for part in parts for app in part.rate_qps))


def text_is_shared(plan: Plan) -> bool:
    """Whether applications that make text have parts, or machines, with others."""
    several = any(part.question == "llm" and len(part.rate_qps) > 1 for part in (plan.parts or {}).values())
    texts = set(text_apps(plan))
    held = (users for one in plan.periods for _, users in machines_with_users(_parts(plan, one)))
    return several or any(len(users) > 1 and not texts.isdisjoint(users) for users in held)


def without(plan: Plan, inputs: Inputs, apps: Sequence[str]) -> tuple[Plan, Inputs]:
    """A plan with periods and its files without these applications; its bill stays whole."""
    found = {name: _left_of(part, apps) for name, part in (plan.parts or {}).items()}
    parts = {name: part for name, part in found.items() if part.rate_qps}
    periods = tuple(
        one.model_copy(update={"parts": tuple(name for name in one.parts or () if name in parts)})
        for one in plan.periods
    )
    kept = {name: app for name, app in inputs.slo.apps.items() if name not in apps}
    return plan.model_copy(update={"parts": parts, "periods": periods}), inputs.with_slo(apps=kept)


def _left_of(part: Part, apps: Sequence[str]) -> Part:
    """A part without these applications; of a machine that it shares, the loads of the others."""
    if not part.rate_qps.keys() & set(apps):
        return part
    own = ((one, tuple(load for load in one.loads if load.app not in apps)) for one in part.workers)
    kept = {app: rate for app, rate in part.rate_qps.items() if app not in apps}
    update = {
        "rate_qps": kept,
        "valid": part.valid.model_copy(update={"rate_qps": _of(part.valid.rate_qps, kept)}),
        "workers": tuple(one.model_copy(update={"loads": loads}) for one, loads in own if loads),
        "routing": _of(part.routing, kept),
        "dispatch": _of(part.dispatch, kept),
        "policies": _of(part.policies, kept),
        "promises": tuple(one for one in part.promises if one.app in kept),
    }
    return part.model_copy(update=update)


def _of(held: Mapping[str, Any], apps: Mapping[str, float]) -> dict[str, Any]:
    return {app: one for app, one in held.items() if app in apps}

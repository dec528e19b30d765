"""Who chooses the replica: the plan's rule, and the rule that a target keeps in its place.

A target keeps a rule exactly, or keeps another one under which the plan has to be simulated, or cannot keep any: rules
that look at each query need hetplan's router. `choose` says which, and gives the plan as it then is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from hetplan.errors import Fault
from hetplan.executor.render.groups import Application, Fleet, Group
from hetplan.executor.render.names import CannotRender
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_dispatch_rules import (
    FcfsDispatch,
    RoundRobinDispatch,
    WeightedLeastDispatch,
)
from hetplan.profiles.plan_sections import Route, SharesDispatch
from hetplan.profiles.workers import Worker

__all__ = ["FRONTS", "HETPLAN", "OWN", "RULES", "Choice", "choose", "elsewhere", "refused", "speeds", "taken"]

Asked = Literal["split", "weighted-least", "fewest-requests", "round-robin"]
Reason = tuple[str, Sequence[str]]
"""Why a target cannot keep a rule, and ways out beside other rules."""
OWN, HETPLAN = "own", "hetplan"
"""Who picks in place of the target: a router of the user's, or hetplan's in the cluster."""
RULES = ("split", "weighted-least", "fewest-requests", OWN)
"""What a user may ask for in place of the plan's rule; `own`: a router of the user's keeps it, and none is rendered."""

FRONTS: Mapping[str, str] = {
    "haproxy": "haproxy", "compose": "haproxy", "systemd": "haproxy", "kubernetes": "service", "kserve": "weights",
    "llm-d": "weights", "dynamo": "picker", "ray-serve": "weights", "skyserve": "weights",
}  # fmt: skip
"""Target -> what stands in front of its replicas."""

_IN_PARTS = ("kserve", "dynamo")
"""Targets on which some replicas prefill and others decode."""

_ROUTERS: Mapping[str, str] = {"haproxy": "HAProxy", "llm-d": "a picker", "dynamo": "a frontend"}
"""Targets that are nothing without the router that is written with them."""
_WITH = {OWN: ", with a router of yours"}
_STEPS = frozenset({"path-shares/1", "most-accurate-first/1", "chosen-plan/1"})
_HOLDS = "each replica holds several models, and chooses model and batch by its queue"
_ROUTER_WAY = "--set router=hetplan, which runs hetplan's router in the cluster"
_ELSEWHERE = "--to another target"
"""Stands for the targets that take the plan, where there are any."""


def _takes_machines(_: Fleet, group: Group) -> str:
    return f"takes {group.machines_per_worker} machines a replica" if group.machines_per_worker > 1 else ""


def _makes_no_text(_: Fleet, group: Group) -> str:
    return "" if group.makes_text else "makes no text"


def _does_a_part(_: Fleet, group: Group) -> str:
    return "" if group.role == "whole" else f"does {group.role} alone"


def _serves_several(_: Fleet, group: Group) -> str:
    return "serves several applications" if len(group.apps) > 1 else ""


def _serves_none(_: Fleet, group: Group) -> str:
    return "" if group.apps else "serves no application"


def _is_beside_another(fleet: Fleet, group: Group) -> str:
    models = [{one.model for one in fleet.of_app(app)} for app in group.apps]
    return "is beside another model of its application" if any(len(one) > 1 for one in models) else ""


def _is_one_of_several_parts(fleet: Fleet, group: Group) -> str:
    for app in group.apps:
        roles = [one.role for one in fleet.of_app(app)]
        if len(set(roles)) > 1 and (len(roles) > len(set(roles)) or "decode" not in roles):
            return "is one of several groups that prefill or decode: an object has one of each"
    return ""


_REFUSED: Mapping[str, Sequence[Callable[[Fleet, Group], str]]] = {
    "kubernetes": (_takes_machines,),
    "kserve": (_takes_machines, _serves_several, _is_one_of_several_parts),
    "llm-d": (_makes_no_text, _does_a_part, _serves_several, _serves_none),
    "dynamo": (_makes_no_text, _serves_several, _is_beside_another),
    "ray-serve": (_takes_machines, _does_a_part, _serves_several, _serves_none),
    "skyserve": (_takes_machines, _does_a_part, _serves_several, _serves_none),
}
"""What each cluster has no object for."""


def refused(target: str, fleet: Fleet) -> list[Fault]:
    """Every group that the target has no object for, why, and the targets that take all of the plan."""
    return [
        Fault("plan", "$.workers", group.model, f"{group.name} {why}", elsewhere(fleet))
        for group in fleet.groups
        for cause in _REFUSED[target]
        if (why := cause(fleet, group))
    ]


def elsewhere(fleet: Fleet) -> str:
    """What to do about a plan that a target has no objects for."""
    known = _taking(fleet)
    return f"Render for {_or(known)}." if known else "No cluster that is rendered for takes this plan: plan again."


def _taking(fleet: Fleet) -> list[str]:
    """The clusters that have objects for all groups of a plan."""
    return [
        target
        for target, causes in _REFUSED.items()
        if not any(cause(fleet, group) for cause in causes for group in fleet.groups)
        and (target in _IN_PARTS or not any(_does_a_part(fleet, group) for group in fleet.groups))
        and not (FRONTS[target] == "picker" and any(_are_unlike(fleet.of_app(app)) for app in fleet.apps))
    ]


def _or(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]


def _are_unlike(groups: Sequence[Group]) -> bool:
    """Whether replicas of one part are on several machine types."""
    return len({(group.hardware, group.role) for group in groups}) > len({group.role for group in groups})


@dataclass(frozen=True)
class Choice:
    """What a target keeps of a plan: the fleet with the rule of each application, and the plan under these rules.

    `changed` are the applications whose rule is another than the plan's: what it promises is to be simulated anew.
    """

    fleet: Fleet
    plan: Plan
    changed: tuple[str, ...] = ()


def speeds(groups: Sequence[Group]) -> dict[str, float]:
    """How fast one replica of each group answers, the fastest as 1; all alike where no table says.

    >>> fast = Group("a", "app", "m", "t4", ((0.0, 1),), mean_ms=20.0)
    >>> speeds([fast, replace(fast, name="b", mean_ms=80.0)])
    {'a': 1.0, 'b': 0.25}
    """
    rates = {group.name: group.qps for group in groups}
    if None in rates.values():
        return dict.fromkeys(rates, 1.0)
    most = max((rate or 0.0 for rate in rates.values()), default=1.0)
    return {name: (rate or 0.0) / most for name, rate in rates.items()}


def choose(target: str, plan: Plan, fleet: Fleet, asked: str | None = None, *, power: float = 1.0) -> Choice:
    """What a target keeps of each application's rule; `CannotRender` with the ways out where it keeps none.

    A replica of text has its speed to this power as its weight, and its part of a split: both have to be searched.
    """
    faults, rules, kept = list[Fault](), dict[str, str](), dict[str, Asked]()
    if asked == OWN:
        held = [
            Fault("--set", "rule", OWN, why, "Name another rule, or render for another target.")
            for app in fleet.apps.values()
            if (why := _no_own(target, app)) is not None
        ]
        if held:
            raise CannotRender.of(held)
        return Choice(replace(fleet, rules=dict.fromkeys(fleet.apps, OWN)), plan)
    if asked == HETPLAN:
        return Choice(replace(fleet, rules=dict.fromkeys(fleet.apps, HETPLAN)), plan)
    for app in fleet.apps.values():
        groups = fleet.of_app(app.name)
        word, reasons = _kept(target, app, groups, asked)
        if reasons:
            ways = [f"--set rule={rule}{_WITH.get(rule, '')}" for rule in taken(target, app, groups)]
            ways = [*([_ROUTER_WAY] if target == "kubernetes" else ()), *ways]
            others = [f"--to {_or(known)}"] if (known := _taking(fleet)) else []
            for why, further in reasons:
                told = [way for one in further for way in (others if one == _ELSEWHERE else [one])]
                faults.append(_needs_router(app, why, [*ways, *told]))
        elif word is not None:
            kept[app.name] = word
        rules[app.name] = word or app.rule
    if faults:
        raise CannotRender.of(faults)
    weighted = replace(fleet, groups=tuple(_with_weight(group, fleet, kept, power) for group in fleet.groups))
    shared = tuple(_with_shares(group, weighted, kept) for group in weighted.groups)
    by_load = {load: group for group in shared for load in group.loads}
    inside = "shortest_queue" if FRONTS[target] == "haproxy" else None

    def under(workers: Iterable[Worker], routing: Mapping[str, Any], dispatch: Mapping[str, Any]) -> dict[str, Any]:
        """Workers' routes and rules of a plan, or of a part of one, under what the target keeps."""
        routed, ruled = dict(routing), dict(dispatch)
        for app, word in kept.items():
            if app in dispatch or app in routing:
                mine = _Replicas.of(workers, by_load, app)
                ruled[app], routed[app] = _as_planned(word, mine, fleet.apps[app], routing.get(app, ()), inside)
        return {"routing": {app: to for app, to in routed.items() if to}, "dispatch": ruled}

    parts = None
    if plan.parts is not None:
        parts = {
            name: part.model_copy(update=under(part.workers, part.routing, part.dispatch))
            for name, part in plan.parts.items()
        }
    new = plan.model_copy(update={**under(plan.workers, plan.routing, plan.dispatch), "parts": parts})
    return Choice(replace(fleet, rules=rules, groups=shared), new, tuple(kept))


def _with_shares(group: Group, fleet: Fleet, kept: Mapping[str, Asked]) -> Group:
    """A group with what part of each application's queries it gets: of a new split by how fast its replicas are."""
    share = dict(group.share)
    for name in group.apps:
        app = fleet.apps[name]
        if kept.get(name) == "split" and (app.moves or not _is_split(app)):
            rates = {one.name: one.count * one.weight for one in fleet.of_app(name)}
            share[name] = rates[group.name] / (sum(rates.values()) or 1.0)
    return replace(group, share=share)


def _with_weight(group: Group, fleet: Fleet, kept: Mapping[str, Asked], power: float) -> Group:
    """A group with its weight: its speed (of text to some power), but where requests are counted without weights."""
    found = [
        speeds(fleet.of_app(app))[group.name] for app in group.apps if kept.get(app) in ("split", "weighted-least")
    ]
    return replace(group, weight=min(found) ** (power if group.makes_text else 1.0)) if found else group


def _is_split(app: Application) -> bool:
    """Whether the plan itself splits the queries, whatever they are."""
    return app.rule == "shares/1" and app.classes == 1


def taken(target: str, app: Application, groups: Sequence[Group]) -> tuple[str, ...]:
    """The rules that a user may ask this target for in place of the plan's.

    >>> taken("kserve", Application("x", rule="matching/1"), [Group("a", "x", "m", "t4", ((0.0, 1),))])
    ('split', 'weighted-least', 'fewest-requests', 'own')
    >>> unlike = [Group(name, "x", "m", name, ((0.0, 1),)) for name in ("t4", "l4")]
    >>> taken("kserve", Application("x", rule="matching/1"), unlike)
    ('split', 'own')
    """
    return tuple(
        rule
        for rule in RULES
        if (_no_own(target, app) is None if rule == OWN else not _kept(target, app, groups, rule)[1])
    )


def _no_own(target: str, app: Application) -> str | None:
    """Why a router of the user's cannot stand in front here."""
    if app.rule == "queue-slack/1":
        return f"{_HOLDS}: hetplan apply on hosts runs hetplan's router"
    return f"{_ROUTERS[target]} is the router here" if target in _ROUTERS else None


def _kept(
    target: str, app: Application, groups: Sequence[Group], asked: str | None
) -> tuple[Asked | None, list[Reason]]:
    """What the target keeps in place of the plan's rule (None: that), and why it keeps none."""
    front = FRONTS[target]
    if target == "kubernetes" and asked in ("weighted-least", "fewest-requests"):
        front = "haproxy"  # a Deployment of it stands before the pods
    if app.rule == "weighted-least/1" and front == "haproxy" and asked in (None, "weighted-least"):
        return None, []  # with the plan's own weights
    if app.rule in _STEPS or app.steps > 1:
        return None, [("its queries go through several steps", ())]
    if app.rule == "queue-slack/1":
        return None, [(_HOLDS, ())]
    if any(group.role != "whole" for group in groups) and target not in _IN_PARTS:
        return None, [("it prefills and decodes apart", (_ELSEWHERE,))]
    alone = sum(group.most for group in groups) == 1
    if asked is None and alone and app.rule != "matching/1":
        return None, []  # all queries go to one replica in turn; only a matching may take another before the oldest
    unlike = len({(group.model, group.hardware, group.role) for group in groups}) > 1
    if front == "picker":
        if _are_unlike(groups):
            further = (_ELSEWHERE, "--to haproxy", "plan with one machine type")
            return None, [("its frontend takes unlike replicas as equals", further)]
        if asked is not None:
            return None, [(f"rule {asked}: its frontend takes replicas in turns", ("no --set rule=",))]
        return None if app.rule == "round-robin/1" else "round-robin", []
    if app.moves and unlike and (asked == "split" or (asked is None and app.rule == "shares/1")):
        return None, [("its shares change by the hour", ("--set period=ID",))]
    if asked is not None:
        reasons: list[Reason] = []
        if asked != "split" and front != "haproxy" and unlike:
            reasons.append(("nothing in front of its replicas knows that they are unlike", ("--to haproxy",)))
        several = any(group.concurrency > 1 and not group.makes_text for group in groups)
        if asked != "split" and unlike and several:
            why = "replicas that are unlike and serve several queries at a time are simulated under fixed shares alone"
            reasons.append((why, ()))
        return cast("Asked", asked), reasons
    if not alone and (app.classes > 1 or app.rule in ("matching/1", "earliest/1", "threshold/1", "least-work/1")):
        return None, [(f"rule {app.rule} looks at each query", ())]
    if front == "haproxy":
        if app.rule in ("shares/1", "round-robin/1"):
            return None, []
        return "weighted-least" if all(group.concurrency == 1 for group in groups) else "fewest-requests", []
    return None if app.rule == "shares/1" and app.inside is None and not app.moves else "split", []


def _needs_router(app: Application, why: str, ways: Sequence[str]) -> Fault:
    listed = "; ".join([*ways, "hetplan apply on hosts, which runs hetplan's router"])
    return Fault("plan", f"$.dispatch.{app.name}", app.rule, f"{why}, which this target cannot", f"Ways out: {listed}.")


@dataclass(frozen=True)
class _Replicas:
    """The replicas of an application in a plan, or in a part of one: how many of each load, and its group."""

    counts: Mapping[str, int]
    groups: Mapping[str, Group]

    @classmethod
    def of(cls, workers: Iterable[Worker], by_load: Mapping[str, Group], app: str) -> _Replicas:
        """Those of one application."""
        counts: dict[str, int] = {}
        for worker in workers:
            for load in worker.loads:
                if load.id in by_load and app in by_load[load.id].apps:
                    counts[load.id] = counts.get(load.id, 0) + worker.count * load.instances
        return cls(counts, {load: by_load[load] for load in counts})

    @property
    def by_rate(self) -> tuple[Route, ...]:
        """A split by how much each load can answer."""
        rates = {load: count * self.groups[load].weight for load, count in self.counts.items()}
        total = sum(rates.values())
        return (Route(to={load: rate / total for load, rate in rates.items()}),) if total else ()


def _as_planned(
    word: Asked, mine: _Replicas, app: Application, routes: Sequence[Route], inside: Any
) -> tuple[Any, tuple[Route, ...]]:
    """The rule as a plan has it, and its routes."""
    groups = mine.groups.values()
    if word == "split":
        kept = tuple(routes) if _is_split(app) and not app.moves and routes else mine.by_rate
        return SharesDispatch(late=app.late, balancing=inside), kept
    if word == "round-robin":
        return RoundRobinDispatch(late=app.late), tuple(routes)
    if any(group.makes_text for group in groups):
        weight = {load: group.weight for load, group in mine.groups.items()}
        return WeightedLeastDispatch(late=app.late, weight=weight), tuple(routes)
    if all(group.concurrency == 1 for group in groups):
        # Servers of one query at a time are idle or not: the heaviest idle one is next, and all wait in one queue.
        heaviest = sorted(groups, key=lambda group: -group.weight)
        return FcfsDispatch(late=app.late, prefer=tuple(dict.fromkeys(one.hardware for one in heaviest))), tuple(routes)
    # The fewest requests of all is no worse than the fewest of a group of replicas that are alike.
    return SharesDispatch(late=app.late, balancing="shortest_queue"), mine.by_rate

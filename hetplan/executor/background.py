"""What hosts.toml's own profile and SLO files add to a plan: times of loads, qualities, shapes of pipelines, deadlines.

A plan names its pipelines' steps and shares but not how many queries a step sends on, nor how long a model takes. Where
hosts.toml names no files, what the plan itself holds has to do: single steps work, and steps whose shares tell which
step follows which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetplan.errors import InputError
from hetplan.executor.hosts_file import HostsFile
from hetplan.profiles.load import load_slo, read_profile
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Edge, Node, Profile
from hetplan.profiles.slo import Slo
from hetplan.profiles.workers import Load
from hetplan.serving.law import settings_of
from hetplan.serving.runs import run_of, runs_on
from hetplan.serving.targets import strictest
from hetplan.serving.times import law_data, law_of_load

__all__ = ["Background"]

ONLY_STEP = "serve"
"""The name of the one step of an application without a pipeline."""


@dataclass(frozen=True)
class Background:
    """Profile and SLO, where there are any."""

    profile: Profile | None = None
    slo: Slo | None = None
    digest: str | None = None
    """Of the profile, to tell whether the plan was made from it."""

    @classmethod
    def of(cls, hosts: HostsFile) -> Background:
        """The files that hosts.toml names, read and checked."""
        loaded = read_profile(*(hosts.path(name) for name in hosts.profiles)) if hosts.profiles else None
        slo = load_slo(hosts.path(hosts.slo)) if hosts.slo else None
        return cls(loaded.model, slo, loaded.digest) if loaded is not None else cls(None, slo)

    def law(self, plan: Plan, load: Load, hardware: str) -> dict[str, Any] | None:
        """How long a load's batches take: by the profile, else by the table that the plan predicts with."""
        if self.profile is not None and runs_on(self.profile, load.variant, hardware):
            return dict(law_of_load(self.profile, load, hardware, extend=load.app in plan.policies).data)
        for dispatch in plan.dispatch.values():
            found = getattr(dispatch, "predict", {}).get(f"{load.variant}@{hardware}")
            if found in plan.tables:
                return law_data(plan.tables[found], at=self.settings(load, hardware))
        return None

    def settings(self, load: Load, hardware: str) -> dict[str, float]:
        """Where a load is on the axes that no query names, as far as the plan and the profile say."""
        if self.profile is None or not runs_on(self.profile, load.variant, hardware):
            return settings_of(knobs=load.knobs, at=load.at or {}, variant_knobs={})
        run = run_of(self.profile, load, hardware)
        return settings_of(knobs=load.knobs, at=run.at, variant_knobs=self.profile.variants[load.variant or ""].knobs)

    def table(self, name: str) -> dict[str, Any] | None:
        """A table of the profile by its id."""
        table = self.profile.tables.get(name) if self.profile else None
        return None if table is None else law_data(table)

    def predicted(self, plan: Plan, key: str, name: str) -> dict[str, Any]:
        """The law by which the plan's dispatch predicts ("variant@hardware"): a table that the plan carries."""
        if name not in plan.tables:
            raise InputError.one(
                file="plan", path="$.dispatch", value=name, why="the plan predicts with a table that it does not hold",
                remedy="Make the plan anew.",
            )  # fmt: skip
        meant = (
            self.settings(load, worker.hardware)
            for worker in plan.workers
            for load in worker.loads
            if f"{load.variant}@{worker.hardware}" == key
        )
        return law_data(plan.tables[name], at=next(meant, None))

    def quality(self, load: Load) -> float | None:
        """The quality of a load's answers; None where nobody measured it. Additive pipelines weight it (`weight`)."""
        variant = self.profile.variants.get(load.variant or "") if self.profile else None
        if variant is None or variant.quality is None:
            return None
        return variant.quality.value * self.weight(load.app, load.node)

    def weight(self, app: str | None, node: str | None) -> float:
        """What the quality of a step counts where qualities are added."""
        rule = self._pipeline(app or "").get("quality")
        if rule is None or rule.rule != "additive" or node is None:
            return 1.0
        return float(rule.weights.get(node, 1.0))

    def app(self, plan: Plan, app: str) -> dict[str, Any]:
        """What the router must know of an application: steps, joins of qualities, deadline, what comes of late ones."""
        wanted = self.slo.apps.get(app) if self.slo else None
        dispatch = plan.dispatch.get(app)
        target = strictest(wanted) if wanted else None
        tables = [table.slo_ms for table in plan.policies.get(app, ())]
        stated = getattr(dispatch, "slo_ms", None) or min(tables, default=None)
        quality = self._pipeline(app).get("quality")
        return {
            "slo_ms": target.max_ms if target is not None else stated,
            "late": getattr(dispatch, "late", None) or (wanted.late if wanted else "serve"),
            "balancing": getattr(dispatch, "balancing", None) or (wanted.balancing if wanted else None),
            "combine": "additive" if quality is not None and quality.rule == "additive" else "product",
            "paths": dict(quality.paths) if quality is not None else {},
            "nodes": self._nodes(plan, app),
        }

    def _pipeline(self, app: str) -> dict[str, Any]:
        wanted = self.slo.apps.get(app) if self.slo else None
        name = wanted.runs.pipeline if wanted is not None and wanted.runs is not None else None
        if name is None or self.profile is None or name not in self.profile.pipelines:
            return {}
        pipeline = self.profile.pipelines[name]
        return {"nodes": pipeline.nodes, "edges": pipeline.edges, "quality": pipeline.quality}

    def _nodes(self, plan: Plan, app: str) -> dict[str, Any]:
        known = self._pipeline(app)
        if known:
            return {name: _node(name, node, known["edges"]) for name, node in known["nodes"].items()}
        return _nodes_by_routes(plan, app)


def _node(name: str, node: Node, edges: Sequence[Edge]) -> dict[str, Any]:
    """A step: what follows it, and the outcomes by which that may differ."""
    follows: list[dict[str, Any]] = []
    for edge in edges:
        if edge.from_ == name:
            only = {"on": [edge.on]} if edge.on is not None else {}
            follows.append({"to": edge.to, "fanout": _fanout(edge.fanout), **only})
    outcomes = {"outcomes": list(node.outcomes.share)} if node.outcomes is not None else {}
    return {"edges": follows, **outcomes}


def _fanout(given: float | Mapping[str, float]) -> dict[str, float]:
    return dict(given) if isinstance(given, Mapping) else {"*": given}


def _nodes_by_routes(plan: Plan, app: str) -> dict[str, Any]:
    """Which step follows which, by the routes' prefixes and by the outcomes they are for; each sends on one query."""
    held = [load for worker in plan.workers for load in worker.loads]
    node_of = {load.id: load.node or ONLY_STEP for load in held}
    routes = plan.routing.get(app, ())
    nodes: dict[str, Any] = {route.node or ONLY_STEP: {"edges": []} for route in routes}
    if not routes:
        nodes = {load.node or ONLY_STEP: {"edges": []} for load in held if load.app == app}
    for route in routes:
        after = route.after or {}
        named = [node_of[load] for load in route.prefix[-1:] if load in node_of] or list(after)[-1:]
        for parent in named:
            _follows(nodes.setdefault(parent, {"edges": []})["edges"], route.node or ONLY_STEP, after.get(parent))
    for load in held:
        if load.app == app and load.outcomes:
            nodes.setdefault(node_of[load.id], {"edges": []})["outcomes"] = list(load.outcomes)
    return nodes


def _follows(edges: list[dict[str, Any]], child: str, outcome: str | None) -> None:
    """Note that a step follows, after one more outcome; after any where none is named."""
    edge = next((edge for edge in edges if edge["to"] == child), None)
    if edge is None:
        edges.append({"to": child, "fanout": {"*": 1.0}, **({"on": [outcome]} if outcome is not None else {})})
    elif outcome is None:
        edge.pop("on", None)
    elif "on" in edge and outcome not in edge["on"]:
        edge["on"].append(outcome)

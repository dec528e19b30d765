"""What site.toml's own profile and SLO files add to a plan: times of loads, qualities, shapes of pipelines, deadlines.

A plan names its pipelines' steps and shares but not how many queries a step sends on, nor how long a model takes. Where
site.toml names no files, what the plan itself holds has to do: single steps work, and steps whose routes say which
step follows which. Steps, qualities and targets come from the serving floor, as those of the simulator do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.executor.site import Site
from hetplan.executor.words import Split
from hetplan.profiles.engines import Engine
from hetplan.profiles.given_files import sort_files
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import load_inputs
from hetplan.profiles.load_one import load_slo, read_profile
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.slo import App, Slo
from hetplan.profiles.who_answers import pipeline_of
from hetplan.profiles.workers import Load
from hetplan.serving.demand import response_targets, strictest_target
from hetplan.serving.loads import law_of_load, point_text, run_of, same_point
from hetplan.serving.operators import Operator, calls_made, is_operator, operators_of, slowest_of
from hetplan.serving.runs import runs_on
from hetplan.serving.steps import (
    balancing_of,
    combine_of,
    late_of,
    paths_of,
    stages_by_routes,
    stages_of,
    weight_of,
)
from hetplan.serving.system import Stage
from hetplan.serving.table_points import settings_of
from hetplan.serving.times import law_data
from hetplan.serving.tokens import link_ms_per_token

__all__ = ["Background"]


@dataclass(frozen=True)
class Background:
    """Profile and SLO, where there are any."""

    profile: Profile | None = None
    slo: Slo | None = None
    digest: str | None = None
    """Of the profile, by which one sees whether the plan was made from it."""
    inputs: Inputs | None = None
    """Profile and SLO with measurements, where site.toml names some."""

    @classmethod
    def of(cls, site: Site) -> Background:
        """The files that site.toml names, read and checked."""
        if not site.files:
            return cls()
        given = sort_files([site.path(name) for name in site.files], "apply", takes_state=False, profile_alone=True)
        loaded = read_profile(*given.profiles)
        slo = load_slo(given.slo) if given.slo != Path() else None
        if given.measured is None or slo is None:
            return cls(loaded.model, slo, loaded.digest)
        inputs = load_inputs(loaded, slo, measured=given.measured)
        return cls(loaded.model, slo, loaded.digest, inputs)

    def sold(self, offer: str | None) -> tuple[str | None, bool]:
        """In which zone an offer is, and whether its machines are spot machines; nothing where nobody says."""
        found = self.profile.offers.get(offer or "") if self.profile is not None else None
        return (found.zone, found.interruptions_per_hour is not None) if found is not None else (None, False)

    def law(self, plan: Plan, load: Load, hardware: str) -> dict[str, Any] | None:
        """How long a load's batches take: by the profile, else by the table that the plan predicts with."""
        if self._makes_text(plan, load, hardware) or self.is_api(hardware):
            return None
        if self.inputs is not None and is_operator(plan, load.app):
            led = {app for app, routes in plan.routing.items() if any(load.id in route.to for route in routes)}
            if led - {load.app}:
                return None  # samples of one application say nothing of another's
            return _law_of_samples(operators_of(plan, self.inputs)[load.id], load.serve.max_batch)
        if self.profile is not None and runs_on(self.profile, load.variant, hardware):
            return dict(law_of_load(self.profile, load, hardware, extend=load.app in plan.policies).data)
        for dispatch in plan.dispatch.values():
            found = getattr(dispatch, "predict", {}).get(f"{load.variant}@{hardware}")
            if found in plan.tables:
                self._one_run(plan, f"{load.variant}@{hardware}")
                return law_data(plan.tables[found], at=self.settings(load, hardware))
        return None

    def _run(self, load: Load, hardware: str) -> Run | None:
        """The run of a load; None without a profile, or where that knows none."""
        known = self.profile is not None and runs_on(self.profile, load.variant, hardware)
        return run_of(self.profile, load, hardware) if self.profile is not None and known else None

    def _makes_text(self, plan: Plan, load: Load, hardware: str) -> bool:
        """Whether a load is an engine that makes text; a plan of several questions says so by its profile's runs."""
        if plan.question != "fleet":
            return plan.question == "llm"
        run = self._run(load, hardware)
        return run is not None and run.engine is not None

    def engine(self, plan: Plan, load: Load, hardware: str) -> Engine | None:
        """The engine of a load that makes text; InputError where the profile that says its law is not named."""
        if not self._makes_text(plan, load, hardware):
            return None
        run = self._run(load, hardware)
        if self.profile is None or run is None:
            raise InputError.one(
                file="site.toml", path="$.files", value=f"{load.variant} on {hardware}",
                why="the law of this engine is not known", remedy='Name the profile: files = ["profile.json"].',
            )  # fmt: skip
        found = self.profile.engines.get(run.engine or "")
        if found is None:
            raise InputError.one(
                file="plan", path=f"$.workers.{load.id}", value=load.variant or "",
                why="this load makes no tokens: its run names no engine", remedy="Make the plan again.",
            )  # fmt: skip
        return found

    def split(self, engine: Engine, load: Load, hardware: str) -> Split:
        """Over how many GPUs the engine of a load is split, by its run."""
        assert self.profile is not None  # it has the engine
        return Split.of(engine, run_of(self.profile, load, hardware).at, f"$.workers.loads.{load.id}.at")

    def link_ms_per_token(self, plan: Plan, app: str | None) -> float:
        """How long the KV of a token takes from machines that prefill to those that decode; 0 without such."""
        return link_ms_per_token(plan, self.profile, app) if self.profile is not None else 0.0

    def _one_run(self, plan: Plan, key: str) -> None:
        """Without a profile a table is known by "variant@hardware" alone: InputError where two runs are meant."""
        loads = [load for worker in plan.workers for load in worker.loads if f"{load.variant}@{worker.hardware}" == key]
        other = next((load for load in loads if not same_point(load.at or {}, loads[0].at or {})), None)
        if other is not None:
            runs = f"{loads[0].id} at {point_text(loads[0].at or {})}, {other.id} at {point_text(other.at or {})}"
            raise InputError.one(
                file="plan", path="$.dispatch", value=key,
                why=f"one table is named for loads of different runs: {runs}",
                remedy='Name the profile under "files" in site.toml: it has a table for each run.',
            )  # fmt: skip

    def settings(self, load: Load, hardware: str) -> dict[str, float]:
        """Where a load is on the axes that no query names, as far as the plan and the profile say."""
        run = self._run(load, hardware)
        if self.profile is None or run is None:
            return settings_of(knobs=load.knobs, at=load.at or {}, variant_knobs={})
        return settings_of(knobs=load.knobs, at=run.at, variant_knobs=self.profile.variants[load.variant or ""].knobs)

    def gpus(self, hardware: str, stated: int | None) -> int | None:
        """How many GPUs a machine of this hardware has: what site.toml states, else the profile; None: nobody says."""
        if self.is_api(hardware):
            return 0
        known = self.profile.hardware.get(hardware) if self.profile is not None else None
        if stated is not None or known is None:
            return stated
        if "gpu" in known.provides:
            return max(round(known.provides["gpu"]), 0)
        return 0 if known.kind == "cpu" else None

    def is_api(self, name: str) -> bool:
        """Whether this is no hardware but an API."""
        return self.profile is not None and name in self.profile.apis

    def call(self, app: str, node: str, knobs: Mapping[str, Any], api: str) -> dict[str, Any] | None:
        """How often an operator's call of this API that fails is made again, by the profile; None if it calls none."""
        pipeline = pipeline_of(self.profile, self._wanted(app))
        call = calls_made(pipeline, knobs).get(node) if pipeline is not None else None
        if self.profile is None or call is None or call.api != api:
            return None
        known = self.profile.apis[api]
        return {"retries": known.retries, "retry_ms": known.retry_ms}

    def gpu_mem_gib(self, load: Load, hardware: str) -> float | None:
        """What one instance of a load needs of a GPU's memory, by its run; None where nobody measured it."""
        run = self._run(load, hardware)
        return run.needs.get("gpu_mem_gib") if run is not None else None

    def table(self, name: str) -> dict[str, Any] | None:
        """A table of the profile by its id."""
        table = self.profile.tables.get(name) if self.profile else None
        return None if table is None else law_data(table)

    def predicted(self, plan: Plan, key: str, name: str) -> dict[str, Any]:
        """The law by which the plan's dispatch predicts ("variant@hardware"): a table that the plan carries."""
        if name not in plan.tables:
            raise InputError.one(
                file="plan", path="$.dispatch", value=name, why="the plan predicts with a table that it does not hold",
                remedy="Make the plan again.",
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
        return variant.quality.value * weight_of(self.profile, self._wanted(load.app), load.node)

    def app(self, plan: Plan, app: str) -> dict[str, Any]:
        """What the router must know of an application: steps, joins of qualities, deadline, what comes of late ones."""
        wanted, dispatch = self._wanted(app), plan.dispatch.get(app)
        target = strictest_target(wanted) if wanted else None
        tables = [table.slo_ms for table in plan.policies.get(app, ())]
        stated = getattr(dispatch, "slo_ms", None) or min(tables, default=None)
        known = pipeline_of(self.profile, wanted) is not None
        stages = stages_of(self.profile, wanted) if known else stages_by_routes(plan, app)
        late = late_of(dispatch, wanted)
        own = ((worker, load) for worker in plan.workers for load in worker.loads if load.app == app)
        text = plan.question == "llm" or any(self._makes_text(plan, load, worker.hardware) for worker, load in own)
        return {
            "slo_ms": None if text else target.max_ms if target is not None else stated,
            # Plans are sized as if all were served. Where nobody says so, what comes too late is not.
            "late": late or "drop",
            "give_up_ms": given_up_ms(wanted) if wanted is not None and late is None else None,
            "balancing": balancing_of(dispatch, wanted),
            "combine": combine_of(self.profile, wanted).name.lower(),
            "paths": dict(paths_of(self.profile, wanted)),
            "nodes": {stage.id: _node(stage) for stage in stages},
        }

    def _wanted(self, app: str | None) -> App | None:
        return self.slo.apps.get(app or "") if self.slo else None


def given_up_ms(app: App) -> float | None:
    """After how long a query is no use to anybody: the limit of the highest percentile; None without any.

    Where a limit leaves more than a tenth to be later, that tenth counts, with waits that fall off exponentially: a
    median says nothing against the half that it leaves.

    >>> of = lambda **limits: App.model_validate({"model": "m", "latency": limits})
    >>> given_up_ms(of(p99_ms=200, p50_ms=80)), given_up_ms(of(p95_ms=80)), round(given_up_ms(of(p50_ms=80)))
    (200.0, 80.0, 266)
    """
    last = min(response_targets(app), key=lambda target: (-target.percentile, target.max_ms), default=None)
    if last is None or last.left >= 1.0:
        return None
    return last.max_ms if last.left <= 0.1 else last.max_ms * log(0.1) / log(last.left)


def _node(stage: Stage) -> dict[str, Any]:
    """A step: what follows it, and the outcomes by which that may differ."""
    follows: list[dict[str, Any]] = []
    for edge in stage.edges:
        only = {"on": [edge.on]} if edge.on is not None else {}
        follows.append({"to": edge.to, "fanout": dict(edge.by_variant) or {"*": edge.fanout}, **only})
    return {"edges": follows, **({"outcomes": list(stage.outcomes)} if stage.outcomes else {})}


def _law_of_samples(operator: Operator, most: int) -> dict[str, Any]:
    """What an operator takes, as its samples were measured: their mean, how they vary, and the longest.

    A batch takes as long as its slowest member.
    """
    each, growth = operator.each_ms, operator.growth[:most]
    axes = {"batch": list(range(1, len(growth) + 1))}
    alike = {"quantity": "latency_ms", "outside": "clamp", "axes": axes}
    if len(each) < 2 or max(each) == min(each):
        return (
            {"ms": operator.mean_ms} if len(growth) == 1 else alike | {"mean": [operator.mean_ms * g for g in growth]}
        )
    import numpy as np  # a worker is not started by this code

    mean, square = slowest_of(np.array(each), np.ones(len(each)), len(growth))
    std = np.sqrt(np.maximum(square - mean**2, 0.0) * len(each) / (len(each) - 1))
    return alike | {
        "mean": (mean * growth).tolist(), "std": (std * growth).tolist(), "max": [max(each) * g for g in growth]
    }  # fmt: skip

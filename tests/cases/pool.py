"""Pools whose answers are known by hand, and a short way to write more of them down as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import hetplan
from hetplan import registry
from hetplan.planner.answer import Limits
from hetplan.planner.contract import Tools
from hetplan.planner.draft import Draft, Infeasibility
from hetplan.planner.solver_calls import Asking
from hetplan.problems.pool.question import PoolQuestion
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo
from hetplan.solvers.catalog import BoundOrder, Exhaustive

Json = dict[str, Any]

CATALOG = (BoundOrder(), Exhaustive())


def files(
    latency_ms: Mapping[str, Sequence[float]],
    share: Sequence[float],
    *,
    prices: Mapping[str, float | str],
    qos_ms: float,
    bins: Sequence[int] | None = None,
    budget: float | str | None = None,
    rate_qps: float | None = None,
    instances: Mapping[str, Sequence[int | None]] | None = None,
    p99_ms: Mapping[str, Sequence[float]] | None = None,
    stock: Mapping[str, int] | None = None,
) -> tuple[Json, Json]:
    """A profile and an SLO of one variant on hardware named as in `latency_ms`; one offer `<hardware>-od` each."""
    sizes = list(bins) if bins is not None else [10 * (i + 1) for i in range(len(share))]
    tables: Json = {}
    for name, mean in latency_ms.items():
        tables[f"t-{name}"] = {"quantity": "latency_ms", "axes": {"batch": sizes}, "mean": list(mean)}
        if p99_ms is not None:
            tables[f"t-{name}"]["p99"] = list(p99_ms[name])
    profile: Json = {
        "format": "hetplan/profile/1.0",
        "hardware": {name: {"kind": "machine"} for name in latency_ms},
        "offers": {
            f"{name}": {"hardware": name, "price_per_hour": str(prices[name]), "stock": (stock or {}).get(name)}
            for name in latency_ms
        },
        "tasks": {"rank": {}},
        "variants": {
            "m": {"task": "rank", "runs": [{"hardware": name, "latency": f"t-{name}"} for name in latency_ms]}
        },
        "tables": tables,
    }
    limits: Json = {"instances": {name: list(bounds) for name, bounds in (instances or {}).items()}}
    if budget is not None:
        limits["cost_per_hour"] = str(budget)
    slo: Json = {
        "format": "hetplan/slo/1.0",
        "limits": limits,
        "apps": {
            "app": {
                "model": "m",
                "latency": {"p99_ms": qos_ms},
                "rate_qps": "max" if rate_qps is None else rate_qps,
                "mix": {"axes": ["batch"], "bins": [[size] for size in sizes], "share": list(share)},
            }
        },
    }
    return profile, slo


def inputs(profile: Json, slo: Json) -> Inputs:
    """The files as the problem gets them, without a loader in between."""
    return Inputs(
        profile=Profile.model_validate(profile),
        slo=Slo.model_validate(slo),
        digests={"profile": "sha256:p", "slo": "sha256:s"},
        files={"profile": "profile.json", "slo": "slo.json"},
    )


def solve(*asked: Any, options: Mapping[str, Any] | None = None, **how: Any) -> hetplan.Outcome:
    """The whole way, sized as in the paper where no size is named: nothing is simulated."""
    return hetplan.solve(*asked, options={"sizing": "fluid", **(options or {})}, **how)


P3 = [0.5, 0.25, 0.25]
BASE, A, B = [10.0, 20.0, 40.0], [10.0, 60.0, 200.0], [20.0, 200.0, 400.0]


def g1(**wish: Any) -> tuple[Json, Json]:
    """Golden case 1: two bins, a base that is in time for both, an aux for the small one."""
    latency = {"base": [10.0, 40.0], "aux": [20.0, 200.0]}
    return files(latency, [0.75, 0.25], prices={"base": 1, "aux": "0.25"}, qos_ms=100, **wish)


def g2(**wish: Any) -> tuple[Json, Json]:
    """Golden case 2: three bins, base and a."""
    return files({"base": BASE, "a": A}, P3, prices={"base": 1, "a": "0.5"}, qos_ms=100, **wish)


def g3(**wish: Any) -> tuple[Json, Json]:
    """Golden cases 3 and 4: three bins, base, a and b."""
    prices = {"base": 1, "a": "0.5", "b": "0.25"}
    return files({"base": BASE, "a": A, "b": B}, P3, prices=prices, qos_ms=100, **wish)


@dataclass(frozen=True)
class Rated:
    """Counts per hardware and the fluid rate that the golden cases give for them."""

    case: str
    counts: dict[str, int]
    eps: float
    fluid_qps: float


RATED = (
    Rated("g1", {"base": 1, "aux": 1}, 0.0, 85.714286),
    Rated("g1", {"base": 1, "aux": 3}, 0.0, 100.0),
    Rated("g1", {"base": 1, "aux": 3}, 0.01, 104.166667),
    Rated("g2", {"base": 1, "a": 1}, 0.0, 80.0),
    Rated("g2", {"base": 3, "a": 0}, 0.0, 150.0),
    Rated("g3", {"base": 1, "a": 0, "b": 4}, 0.0, 66.666667),
    Rated("g3", {"base": 1, "a": 0, "b": 4}, 0.01, 68.493151),
    Rated("g3", {"base": 1, "a": 1, "b": 4}, 0.0, 88.888889),
    Rated("g3", {"base": 1, "a": 1, "b": 40}, 0.0, 88.888889),
    Rated("g3", {"base": 1, "a": 1, "b": 40}, 0.01, 91.324201),
)

G4_RATES = {1: 50.0, 2: 100.0, 3: 160.0, 4: 220.0}
"""Budget -> the most rate, at least one base."""

G4_COSTS = {100: 2.0, 150: 2.75, 160: 3.0, 161: 3.25, 200: 3.5}
"""Rate -> the least cost, at least one base, derate 1."""

CASES = {"g1": g1, "g2": g2, "g3": g3}


def exactly(case: tuple[Json, Json], counts: Mapping[str, int]) -> tuple[Json, Json]:
    """The case where limits leave these machines alone."""
    profile, slo = case
    instances = {name: [counts.get(name, 0)] * 2 for name in profile["hardware"]}
    return profile, {**slo, "limits": {**slo["limits"], "instances": instances}}


def by_rule(case: tuple[Json, Json], dispatch: str) -> tuple[Json, Json]:
    """The case whose queries find their replicas by a stated rule."""
    profile, slo = case
    apps = {name: {**app, "dispatch": dispatch} for name, app in slo["apps"].items()}
    return profile, {**slo, "apps": apps}


def pose(
    case: tuple[Json, Json], *, formulation: str = "pool-milp", tools: Tools | None = None, **options: Any
) -> PoolQuestion:
    """The problem that a case's files pose: where no size is named, that of the paper, or of a stated rule."""
    if "dispatch" not in case[1]["apps"]["app"]:
        options.setdefault("sizing", "fluid")
    chosen = PoolQuestion.formulations[formulation](**options)
    return PoolQuestion.from_inputs(inputs(*case), chosen, formulation=formulation, tools=tools or Tools())


def decide(
    case: tuple[Json, Json],
    *,
    solver: str | None = None,
    gap: float = 1e-7,
    formulation: str = "pool-milp",
    tools: Tools | None = None,
    **options: Any,
) -> Draft | Infeasibility:
    """What the problem hands back, with the engines of the registry."""
    problem = pose(case, formulation=formulation, tools=tools, **options)
    return problem.decide(Asking([*registry.solvers("milp"), *CATALOG], Limits(gap=gap), solver=solver))


def promise(draft: Draft | Infeasibility, quantity: str) -> float:
    """The value a draft promises of a quantity."""
    assert isinstance(draft, Draft), draft
    (value,) = [float(one.value) for one in draft.promises if one.quantity == quantity]
    return value


def counts(draft: Draft | Infeasibility) -> dict[str, int]:
    """Instances per offer."""
    assert isinstance(draft, Draft), draft
    return {worker.offer or worker.hardware: worker.count for worker in draft.workers}

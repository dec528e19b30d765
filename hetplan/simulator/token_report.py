"""What a plan of machines that make text promises, against a simulation token by token: the report of `simulate`."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.errors import Cancelled, InputError
from hetplan.planner.contract import Event
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.serving.loads import worker_price
from hetplan.serving.tokens import Limit, TokenDemand, TokenFleet, demand_of, fleet_of_plan, limits_of, settling_s
from hetplan.simulator.demand import arrivals_named, checked_trace
from hetplan.simulator.figures import Estimate, estimate
from hetplan.simulator.report import AppReport, GroupReport, Line, SimulationReport, Timeline, Verdict, judge
from hetplan.simulator.runs import seed_of
from hetplan.simulator.tokens import Coming, Played, draw, play

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetplan.planner.spread import Spread

__all__ = [
    "REQUESTS",
    "app_report",
    "as_recorded",
    "missed_of",
    "other_inputs",
    "play_once",
    "rate_of",
    "refuse",
    "simulate_tokens",
    "timeline_of_text",
    "wishes_of_text",
]

REQUESTS = 6000
"""Requests of a run where no duration is asked for."""

MOST_REQUESTS = 20_000_000
_SHOWN = (50.0, 90.0, 95.0, 99.0)
_BUCKETS = 120
_NOT_PLAYED: dict[str, Any] = {
    "misprediction": 0.0, "learn": False, "failures": (), "replan": None, "services": None, "queries_seed": None,
}  # fmt: skip
"""What `simulate` plays other plans with, and the value of each that asks for nothing."""
_OF_NO_MATTER = ("threads", "replan_every_s")


def simulate_tokens(
    plan: Plan,
    inputs: Inputs,
    *,
    seeds: int = 5,
    seed: int = 0,
    duration_s: float | None = None,
    noise: str = "table",
    arrivals: Any = None,
    trace: NDArray[np.float64] | Mapping[str, NDArray[np.float64]] | None = None,
    spread: Spread | None = None,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
    **others: Any,
) -> SimulationReport:
    """Play a plan's machines under its demand, once per seed, and set each wish and promise beside what happened.

    `duration_s` defaults to what takes 6,000 requests, twice the time to fill the fleet, or a cycle of the arrivals:
    the longest. `trace` replaces when requests come, `arrivals` the process.
    """
    refuse(noise, seeds, others)
    app, wanted = next(iter(inputs.slo.apps.items()))
    fleet, demand = fleet_of_plan(plan, inputs, app), demand_of(wanted, rate_of(plan, app, wanted.demand.rate_qps))
    if arrivals is not None:
        demand = replace(demand, arrivals=arrivals_named(arrivals))
    recorded = trace.get(app) if isinstance(trace, Mapping) else trace
    recorded = checked_trace(recorded, app=app) if recorded is not None else None
    if demand.rate_qps <= 0:
        raise InputError.one(
            path="demand", value=0, why="no load to simulate: the rate is 0", remedy="Give a rate."
        )  # fmt: skip
    settles_s = settling_s(demand, limits_of(wanted), [group.law for group in fleet.groups])
    usual = max(REQUESTS, math.ceil(max(2.0 * settles_s, demand.arrivals.cycle_s) * demand.rate_qps))
    count = usual if duration_s is None else round(demand.rate_qps * duration_s)
    if count < 20 or count > MOST_REQUESTS:
        raise InputError.one(
            file="--duration", value=duration_s, why=f"{count} requests would be played; 20 to {MOST_REQUESTS} are",
            remedy="Give a duration with as many.",
        )  # fmt: skip
    run_seeds = tuple(seed_of(seed, number) for number in range(seeds))
    shared = (fleet, demand, count, settles_s, recorded)
    if spread is not None:
        tasks = [{"seed": one, "of": [plan.digest, *inputs.digests.values()]} for one in run_seeds]
        found = spread.all(play_once, shared, tasks, about="runs")
        return _report(plan, inputs, app, fleet, demand, [one["run"] for one in found], run_seeds)
    runs = list[Played]()
    for number, one in enumerate(run_seeds):
        if cancel is not None and cancel.is_set():
            raise Cancelled("the simulation was cancelled")
        runs.append(play_once(shared, {"seed": one})["run"])
        if on_event is not None:
            on_event(Event("simulate", done=(number + 1) / seeds))
    return _report(plan, inputs, app, fleet, demand, runs, run_seeds)


def play_once(
    shared: tuple[TokenFleet, TokenDemand, int, float, NDArray[np.float64] | None],
    task: Mapping[str, Any],
    _cancel: Any = None,
) -> dict[str, Any]:
    """One run of a fleet, as a piece of work for a `Spread`."""
    fleet, demand, count, settles_s, recorded = shared
    number = count if recorded is None else 4 * len(recorded) + 100
    coming = draw(demand, seed=task["seed"], count=number, settles_s=settles_s)
    if recorded is not None:
        coming = as_recorded(coming, recorded)
    return {"run": play(fleet, coming, gaps=True, seed=task["seed"], buckets=_BUCKETS)}


def refuse(noise: str, seeds: int, others: Mapping[str, Any]) -> None:
    """What other plans are played with, and these are not; and what nobody knows."""
    if seeds < 1:
        raise InputError.one(file="--seeds", value=seeds, why="at least one run is needed", remedy="Write 5.")
    if noise != "table":
        raise InputError.one(
            file="--noise", value=noise, why="iterations take what their law says; no noise is played on it",
            remedy="Leave it out, or make the law slower.",
        )  # fmt: skip
    for name, value in others.items():
        if name not in _NOT_PLAYED and name not in _OF_NO_MATTER:
            raise TypeError(f"simulate() got an unexpected keyword argument {name!r}")
        if name in _NOT_PLAYED and value not in (None, _NOT_PLAYED[name], []):
            raise InputError.one(
                file=f"--{name}",
                value=str(value),
                why="not played with machines that make text",
                remedy="Leave it out.",
            )


def rate_of(plan: Plan, app: str, stated: object) -> float:
    """The rate that a plan is played at: what the wish states, else what the plan promises."""
    if isinstance(stated, int | float):
        return float(stated)
    return min((one.value for one in plan.promises if (one.app, one.quantity) == (app, "rate_qps")), default=0.0)


def as_recorded(coming: Coming, times_s: NDArray[np.float64]) -> Coming:
    """Requests of the same lengths, at these times."""
    which = np.arange(len(times_s)) % len(coming.requests)
    return replace(coming, arrival_ms=times_s * 1000.0, requests=coming.requests.taken(which), _columns={})


def _report(
    plan: Plan, inputs: Inputs, app: str, fleet: TokenFleet, demand: TokenDemand, runs: Sequence[Played],
    run_seeds: tuple[int, ...],
) -> SimulationReport:  # fmt: skip
    length_s = max(float(run.arrival_ms[-1]) for run in runs) / 1000.0
    found, shown = app_report(inputs, app, demand.rate_qps, demand.arrivals.process, runs)
    figures, cost = found.figures, _cost(plan, inputs)
    missed = missed_of(inputs, app, runs)
    lines = [*wishes_of_text(inputs, app, shown, figures, missed), *_promises(plan, app, shown, figures, cost, missed)]
    return SimulationReport(
        plan=plan.digest,
        seeds=run_seeds,
        duration_s=length_s,
        noise="table",
        apps={app: found},
        groups=_groups(plan, app, fleet, runs),
        cost_per_hour=Estimate(cost, cost, cost) if cost is not None else None,
        currency=inputs.slo.limits.currency,
        lines=tuple(lines),
        timeline=timeline_of_text(runs, limits_of(inputs.slo.apps[app])),
        events=int(sum(run.rounds.sum() for run in runs)),
        warnings=tuple(other_inputs(plan, inputs)),
    )


Shown = Mapping[tuple[str, float], Estimate]
"""By what a limit is about and its percentile: what was played."""


def app_report(
    inputs: Inputs, app: str, rate_qps: float, arrivals: str, runs: Sequence[Played]
) -> tuple[AppReport, Shown]:
    """The figures of an application, and its times at every percentile that anything is said of."""
    limits, hop = limits_of(inputs.slo.apps[app]), inputs.slo.apps[app].network_ms_per_hop
    shown = {(limit.of, limit.percentile): _percentile(runs, limit, hop) for limit in (*limits, *_usual())}
    found = AppReport(
        id=app,
        offered_qps=rate_qps,
        queries_per_seed=round(sum(len(run.arrival_ms) for run in runs) / len(runs)),
        arrivals=arrivals,
        figures=_figures(runs, limits, shown),
        percentiles_ms={at: shown["response", at] for at in _SHOWN},
    )
    return found, shown


def other_inputs(plan: Plan, inputs: Inputs) -> list[tuple[str, str, str]]:
    """A warning for each file that is not the one which the plan was made from, or that is not played."""
    warned = [
        ("W-other-inputs", name, "the plan was made from another one; this is simulated, not what the plan promised")
        for name, digest in (("profile", plan.inputs.profile), ("slo", plan.inputs.slo))
        if digest and inputs.digests.get(name, digest) != digest
    ]
    if inputs.state is not None and plan.actions:
        warned.append(("W-transition", "state", "of text the way from what runs to the plan is not played"))
    return warned


def _usual() -> list[Limit]:
    return [Limit(of, at, math.inf, -1) for of in ("ttft", "tpot", "response") for at in _SHOWN]


def _percentile(runs: Sequence[Played], limit: Limit, hop: float) -> Estimate:
    values = [run.percentile(limit) + (0.0 if limit.of == "tpot" else hop) for run in runs]
    return _estimate(values)


Missed = Callable[[str, float], float]
"""What a limit is about, and its milliseconds -> the share of the requests that take longer, each run counted alike."""


def missed_of(inputs: Inputs, app: str, runs: Sequence[Played]) -> Missed:
    """What runs say of any limit of an application."""
    hop = inputs.slo.apps[app].network_ms_per_hop

    def missed(of: str, limit_ms: float) -> float:
        limit = Limit(of, 100.0, limit_ms - (0.0 if of == "tpot" else hop), -1)
        return sum(run.beyond(limit) for run in runs) / len(runs)

    return missed


def _estimate(values: Sequence[float]) -> Estimate:
    """The mean over seeds with its interval, which is not below 0; one seed has none."""
    found = estimate(values) if len(values) > 1 else Estimate(values[0], math.nan, math.nan)
    return replace(found, low=max(found.low, 0.0))


def _share(values: Sequence[float]) -> Estimate:
    """A share: its interval is not above 1 either."""
    found = _estimate(values)
    return replace(found, high=min(found.high, 1.0))


def _figures(
    runs: Sequence[Played], limits: Sequence[Limit], shown: Mapping[tuple[str, float], Estimate]
) -> dict[str, Estimate]:
    good = [run.goodput(limits) for run in runs]
    rates = [run.served / max(run.end_ms, 1e-9) * 1000.0 for run in runs]
    gaps = [
        float(np.quantile((run.gap_ms if run.gap_ms is not None else np.zeros(1))[run.judged()], 0.95)) for run in runs
    ]
    figures = {
        "goodput": _share(good),
        "violations": _share([1.0 - share for share in good]),
        "rate_qps": _estimate(rates),
        "goodput_qps": _estimate([rate * share for rate, share in zip(rates, good, strict=True)]),
        "mean_ms": _estimate([float(np.nanmean(run.response_ms)) for run in runs]),
    }
    for of in ("ttft", "tpot"):
        figures |= {f"{of} p{at:g} ms": shown[of, at] for at in _SHOWN}
    return figures | {
        "longest gap p95 ms": _estimate(gaps),
        "preemptions per request": _estimate([float(run.lost.mean()) for run in runs]),
        "largest KV use": _estimate([float(run.most_kv.max()) for run in runs]),
    }


def wishes_of_text(
    inputs: Inputs, app: str, shown: Shown, figures: Mapping[str, Estimate], missed: Missed
) -> Iterator[Line]:
    """A line for each limit and share that was wished."""
    wanted = inputs.slo.apps[app]
    for target in wanted.latency:
        found = shown[target.of, target.percentile]
        verdict = judge(found, "<=", target.max_ms)
        late = missed(target.of, target.max_ms)
        yield Line(app, f"{target.of}_ms", target.percentile, "<=", target.max_ms, "slo", found, verdict, late)
    if wanted.goodput is not None:
        found = figures["goodput"]
        yield Line(app, "goodput", None, ">=", wanted.goodput, "slo", found, judge(found, ">=", wanted.goodput))


def _promises(
    plan: Plan,
    app: str,
    shown: Mapping[tuple[str, float], Estimate],
    figures: Mapping[str, Estimate],
    cost: float | None,
    missed: Missed,
) -> Iterator[Line]:
    for one in plan.promises:
        found: Estimate | None = None
        late = None
        if one.app == app and one.percentile is not None:
            of = one.quantity.removesuffix("_ms")
            found = shown.get((of, one.percentile))
            late = missed(of, one.value) if found is not None else None
        elif one.app == app:
            found = figures.get(one.quantity)
        elif one.quantity == "cost_per_hour" and cost is not None:
            found = Estimate(cost, cost, cost)
        simulated = one.model.startswith("simulation")
        verdict = judge(found, one.relation, one.value) if found is not None and simulated else Verdict.REPORTED
        if found is None and simulated:
            verdict = Verdict.NOT_SIMULATED
        yield Line(one.app, one.quantity, one.percentile, one.relation, one.value, one.model, found, verdict, late)


def _cost(plan: Plan, inputs: Inputs) -> float | None:
    prices = [worker_price(inputs, worker) for worker in plan.workers]
    if any(price is None for price in prices):
        return None
    return sum((price or 0) * worker.count for price, worker in zip(prices, plan.workers, strict=True)) / NANO


def _groups(plan: Plan, app: str, fleet: TokenFleet, runs: Sequence[Played]) -> dict[str, GroupReport]:
    """Utilisation, requests waiting and tokens of an iteration, of each load of the plan."""
    owner = {load.id: worker for worker in plan.workers for load in worker.loads if load.app == app}
    groups, place = {}, 0
    for group in fleet.groups:
        mine = slice(place, place + group.count)
        place += group.count
        worker = owner[group.id]
        groups[worker.id] = GroupReport(
            id=worker.id,
            workers=worker.count,
            utilisation=_share([float((run.busy[mine] / max(run.end_ms, 1e-9)).mean()) for run in runs]),
            waiting=_estimate([float(run.waiting[mine].sum()) for run in runs]),
            batch=_estimate([float(run.tokens[mine].sum() / max(run.rounds[mine].sum(), 1)) for run in runs]),
        )
    return groups


def timeline_of_text(
    runs: Sequence[Played], limits: Sequence[Limit], machines: Sequence[NDArray[np.float64]] | None = None
) -> Timeline:
    """Means over the seeds: besides what every timeline has, sequences that decode and the share of KV in use.

    `machines`: how many instances there are in each stretch of a run, where these come and go.
    """
    rows = []
    for number, run in enumerate(runs):
        width, course = float(run.course[0, 0]), run.course[1:]
        there = machines[number] if machines is not None else np.full(_BUCKETS, float(len(run.busy)))
        place = np.minimum((run.arrival_ms / width).astype(np.int64), _BUCKETS - 1)
        count = np.bincount(place, minlength=_BUCKETS).astype(np.float64)
        late = np.zeros(len(run.arrival_ms), dtype=bool)
        for limit in limits:
            late |= run.of(limit.of) > limit.max_ms
        missed = np.bincount(place, weights=late.astype(np.float64), minlength=_BUCKETS)
        busy = np.minimum(course[:, 0] / width / np.maximum(there, 1e-9), 1.0)
        rows.append(
            [
                course[:, 3] / width, busy, np.divide(missed, count, out=np.zeros(_BUCKETS), where=count > 0),
                count / width * 1000.0, there,
                course[:, 2] / np.maximum(course[:, 0], 1e-9), course[:, 1] / np.maximum(course[:, 0], 1e-9),
            ]
        )  # fmt: skip
    mean = np.mean(np.array(rows), axis=0)
    width_s = float(np.mean([run.course[0, 0] for run in runs])) / 1000.0
    return Timeline(width_s, mean[0], mean[1], mean[2], mean[3], mean[4], mean[5], mean[6])

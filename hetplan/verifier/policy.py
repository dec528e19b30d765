"""The promise of a policy plan, recomputed: what one must write into a plan so that it passes here.

What a plan of question ``policy`` holds, and what is checked of it
-------------------------------------------------------------------
``workers``
    A group per offer and application: ``queue`` shared, a load per model, each with ``app`` and ``variant``; of
    ``serve`` the largest batch is N + 1, and all else the default.
``dispatch[app]``
    ``queue-slack/1`` with ``late`` and ``balancing`` as the SLO has them (``shared_fifo`` only for rules of other
    packages, which may keep one queue for all).
``policies[app]``
    Tables by worker group and load. Queries reach all workers in turn, or groups by the shares of ``routing``, which
    unlike hardware needs; either is what the tables are for. ``slo_ms`` is the response target less the network; the
    top rates of the groups sum to the application's load; ``models`` are in order, fastest first, and are loaded by the
    group. A choice meets the slack of its column, or is the fastest model on all that wait (late: serve), or drops the
    head where no batch of any model fits (late: drop). ``expected`` and ``gain`` are recomputed by
    `policy_chain`, from latencies that `policy_figures` reads from the profile and arrivals as the SLO has them.
``promises``
    ``goodput``, ``quality``, ``violations``, ``utilisation`` of model ``stationary/1``: the expectations at the highest
    load, over the groups by their load.

Not recomputed: simulated figures, policies for fitted shortest-queue rates, and arrivals of more than 2000 stages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.planner.tolerances import VALUE
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_dispatch_rules import QueueSlackDispatch
from hetplan.profiles.plan_policy import PolicyTable
from hetplan.profiles.slo import App
from hetplan.profiles.workers import Serve
from hetplan.verifier.demand import strictest_limit_ms
from hetplan.verifier.policy_chain import NewHeads
from hetplan.verifier.policy_figures import ON_GRID, QUANTILES, Choices, figures_of, has_one_queue, in_turn, latencies_s
from hetplan.verifier.promises import plain_name
from hetplan.verifier.report import Violation

__all__ = ["check", "claimed_tables"]

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def check(plan: Plan, inputs: Inputs) -> list[Violation]:
    """What a policy plan promises beyond the generic check; to be called on a plan whose references are sound."""
    found: list[Violation] = []
    heads = NewHeads()
    for app_id, app in inputs.slo.apps.items():
        tables = [_policy_table(table) for table in plan.policies.get(app_id, ())]
        if not tables:
            found.append(Violation("policy-missing", f"policies.{app_id}", f"{app_id} has no policy"))
            continue
        found += _check_dispatch(plan, app_id, app)
        found += _check_loads(plan, app_id, app, inputs, tables)
        expected: list[tuple[float, dict[str, float]]] = []
        for number, table in enumerate(tables):
            at = f"policies.{app_id}[{number}]"
            found += _check_table(plan, inputs, app_id, table, at)
            top = table.rate_qps == max(other.rate_qps for other in tables if other.workers == table.workers)
            figures = figures_of(plan, inputs, app_id, table, heads) if not found else None
            if figures is not None:
                found += _check_expected(plan, table, figures, at)
                found += _check_overload(plan, inputs, app_id, table, figures["over_probability"])
                expected += [(table.rate_qps, figures)] if top else []
        found += _check_promises(plan, app_id, expected)
        found += _check_targets(plan, app_id, app, tables)
    return [*found, *_check_claims(plan)]


def claimed_tables(plan: Plan, about: str) -> list[tuple[str, PolicyTable]]:
    """The policies that a claim is about, each with its application: the only one, or those that it names."""
    hardware = {worker.id: worker.hardware for worker in plan.workers}
    found = [(app, _policy_table(table)) for app, tables in plan.policies.items() for table in tables]
    named = [f"{app} on {hardware.get(table.workers)}@{in_turn(plan, app, table)[1]:g}qps" for app, table in found]
    if about == plain_name(about):
        return found if len(set(named)) == 1 else []
    return [one for name, one in zip(named, found, strict=True) if about.endswith(f"[{name}]")]


def _check_claims(plan: Plan) -> Iterator[Violation]:
    """The value of a claim about a table is what the table is said to gain."""
    for number, claim in enumerate(plan.claims):
        gains = [table.gain for _, table in claimed_tables(plan, claim.about)] if claim.sense == "max" else []
        said = [gain for gain in gains if gain is not None]
        unsaid = len(said) < len(gains) and claim.bound is None  # what is not bounded need not say its gain
        if gains and not unsaid and not any(math.isclose(claim.value, gain, rel_tol=VALUE) for gain in said):
            text = f"claims {claim.about} {claim.value:.9g}, its table gains {gains[0]}"
            yield Violation("claim", f"claims[{number}]", text)


def _policy_table(table: Any) -> PolicyTable:
    return table if isinstance(table, PolicyTable) else PolicyTable.model_validate(table)


def _check_dispatch(plan: Plan, app_id: str, app: App) -> Iterator[Violation]:
    rule: Any = plan.dispatch.get(app_id)
    at = f"dispatch.{app_id}"
    if not isinstance(rule, QueueSlackDispatch):
        yield Violation("dispatch", at, "a policy is looked up by queue-slack/1")
        return
    may: tuple[str, ...] = (app.balancing,) if app.balancing else ("round_robin", "shortest_queue")
    if has_one_queue(plan, app_id):
        may = ("shared_fifo",)
    if rule.balancing not in may:
        yield Violation("dispatch", at, f"balancing {rule.balancing}, not {' or '.join(may)}")
    if rule.estimate != QueueSlackDispatch().estimate:
        yield Violation("dispatch", at, "rates are estimated over another time than is planned with")


def _slo_ms(app: App) -> float:
    return strictest_limit_ms(app) - app.network_ms_per_hop


def _check_loads(
    plan: Plan, app_id: str, app: App, inputs: Inputs, tables: Sequence[PolicyTable]
) -> Iterator[Violation]:
    """Tables cover the load that is asked for."""
    at = f"policies.{app_id}"
    tops: dict[str, float] = {}
    for table in tables:
        tops[table.workers] = max(tops.get(table.workers, 0.0), table.rate_qps)
    wanted = _highest_load(app, inputs, app_id)
    if wanted is not None and not math.isclose(sum(tops.values()), wanted, rel_tol=VALUE):
        yield Violation("policy-load", at, f"tables for {sum(tops.values()):.6g} qps in all, wanted are {wanted:.6g}")
    if len({(table.workers, table.rate_qps) for table in tables}) < len(tables):
        yield Violation("policy-load", at, "two tables of one group for one load")
    yield from _check_shares(plan, app_id, tops)
    high = plan.valid.rate_qps.get(app_id, (0.0, None))[1]  # whoever runs a plan takes silence for any rate
    if wanted is not None and (high is None or high > wanted * (1 + VALUE)):
        text = f"holds up to {high if high is not None else 'any rate'}, tables reach {wanted:.6g}"
        yield Violation("valid", f"valid.rate_qps.{app_id}", text)


def _check_shares(plan: Plan, app_id: str, tops: Mapping[str, float]) -> Iterator[Violation]:
    """Queries reach each group at the rate that its tables are for: by shares, or in turn as many as it has workers."""
    own = {worker.id: worker for worker in plan.workers if any(load.app == app_id for load in worker.loads)}
    total = sum(tops.values())
    if len(own) < 2 or total <= 0:
        return
    home = {load.id: worker.id for worker in own.values() for load in worker.loads}
    goes: dict[str, float] = {}
    for route in plan.routing.get(app_id, ()):
        for load, share in route.to.items():
            goes[home.get(load, load)] = goes.get(home.get(load, load), 0.0) + share
    if not goes:
        machines = sum(worker.count for worker in own.values())
        goes = {name: worker.count / machines for name, worker in own.items()}
    for name in sorted(own.keys() | goes.keys()):
        share, wanted = goes.get(name, 0.0), tops.get(name, 0.0) / total
        if not math.isclose(share, wanted, rel_tol=VALUE, abs_tol=VALUE):
            text = f"{share:.6g} of the queries reach {name}, its tables are for {wanted:.6g} of them"
            yield Violation("policy-load", f"policies.{app_id}", text)
    if not plan.routing.get(app_id) and len({worker.hardware for worker in own.values()}) > 1:
        yield Violation("policy-load", f"routing.{app_id}", "unlike workers share the load, and no shares are stated")


def _highest_load(app: App, inputs: Inputs, app_id: str) -> float | None:
    if app.stated_qps is not None:
        return app.stated_qps
    if app.range_qps is not None:
        return app.range_qps[1]
    times = inputs.traces.get(app_id)
    return None if times is None else (len(times) - 1) / (float(times[-1]) - float(times[0]))


def _check_table(plan: Plan, inputs: Inputs, app_id: str, table: PolicyTable, at: str) -> Iterator[Violation]:
    """Who runs it, and whether every choice is one that may be made."""
    app = inputs.slo.apps[app_id]
    worker = next((worker for worker in plan.workers if worker.id == table.workers), None)
    if worker is None:
        yield Violation("unknown-reference", at, f"there is no worker group {table.workers}")
        return
    if any(load.serve != Serve(max_batch=table.queue_max + 1) for load in worker.loads):
        yield Violation("policy-models", at, f"{table.workers} takes other batches than {table.queue_max + 1} at most")
    if worker.queue != "shared" or any(load.app is None or load.instances != 1 for load in worker.loads):
        text = "has one queue, and holds each model once for one application"
        yield Violation("policy-models", at, f"a worker of {table.workers} {text}")
    if table.otherwise.batch != "max" and table.otherwise.batch > table.queue_max + 1:
        text = f"takes {table.otherwise.batch} at once where more than {table.queue_max} wait"
        yield Violation("policy-models", at, f"{text}, and {table.queue_max + 1} at most are known")
        return
    missing = set(table.models) - {load.variant for load in worker.loads}
    if missing:
        yield Violation("policy-models", at, f"{table.workers} does not load {', '.join(sorted(missing))}")
        return
    if not math.isclose(table.slo_ms, _slo_ms(app), rel_tol=ON_GRID):
        yield Violation("policy-slo", at, f"made for {table.slo_ms:g} ms, the target leaves {_slo_ms(app):g}")
    if table.slack_ms[0] != 0 or not math.isclose(table.slack_ms[-1], table.slo_ms, rel_tol=ON_GRID):
        yield Violation("policy-grid", at, "slacks run from 0 to the SLO")
        return
    latency = latencies_s(plan, inputs, worker, table)
    if latency is None:
        yield Violation("policy-table", at, "the profile does not give the latencies of every batch")
        return
    if latency[:, 0].argmin() != 0 or table.otherwise.model != table.models[0]:
        yield Violation(
            "policy-models", at, "the first model, which serves what the table does not reach, is not the fastest"
        )
    if not has_one_queue(plan, app_id):
        yield from _check_choices(app, table, latency, at)


_OVERLOADED = 0.5
"""More decisions than this share find the table too short: then it is called overloaded."""


def _check_overload(plan: Plan, inputs: Inputs, app_id: str, table: PolicyTable, over: float) -> Iterator[Violation]:
    """Whether more comes than the fastest model works off, or most of the queue is beyond the table."""
    worker = next(worker for worker in plan.workers if worker.id == table.workers)
    latency = latencies_s(plan, inputs, worker, table)
    assert latency is not None  # else no figures were recomputed
    workers, rate_qps = in_turn(plan, app_id, table)
    rates = workers * np.arange(1, latency.shape[1] + 1) / latency[0]
    # Whoever is beyond the table is served in batches of N + 1, which are not counted on.
    least, most = float(rates[:-1].max()), float(rates.max())
    certain = abs(over - _OVERLOADED) > VALUE and not least * (1 - VALUE) <= rate_qps <= most * (1 + VALUE)
    if certain and table.overload != (over > _OVERLOADED or rate_qps > most):
        text = f"overload {table.overload}: {rate_qps:.6g} qps come, at most {most:.6g} are worked off"
        yield Violation("policy", f"policies.{app_id}", f"{text}, and {over:.3g} of decisions are beyond the table")


def _check_choices(app: App, table: PolicyTable, latency_s: Floats, at: str) -> Iterator[Violation]:
    made = Choices.of(table, latency_s)
    waiting = np.arange(1, table.queue_max + 1)[:, None]
    surely = made.grid_s - ON_GRID * made.grid_s[-1]
    whole = made.batch == waiting
    fits = latency_s[:, 0].min() <= surely  # no batch takes less than one query
    if app.late == "drop":
        lawful = made.in_time | ((made.batch == 0) & ~fits)
    else:
        lawful = made.in_time | (whole & (made.model == 0))
    if table.batching == "max":
        fits_whole = (latency_s[:, :-1].min(axis=0))[:, None] <= surely
        lawful &= whole | ((app.late == "drop") & ~fits_whole)
    if not lawful.all():
        n, j = (int(x) for x in np.argwhere(~lawful)[0])
        what = f"{table.models[made.model[n, j]]} on {made.batch[n, j]} of {n + 1} at slack {table.slack_ms[j]:g} ms"
        yield Violation("policy-choice", at, f"{what} is no choice there")


def _differ(one: float, other: float) -> bool:
    return not math.isclose(one, other, rel_tol=0.0, abs_tol=VALUE)


def _check_expected(plan: Plan, table: PolicyTable, figures: dict[str, float], at: str) -> Iterator[Violation]:
    if table.expected is None:
        yield Violation("policy-expected", at, "no expectation is stated")
        return
    stated = table.expected.model_dump()
    known = figures if figures["violation_by_query"] < 1.0 - VALUE else _without_accuracy(figures)
    for name, value in known.items():
        if name in stated and _differ(stated[name], value):
            yield Violation("policy-expected", at, f"{name} {stated[name]:.9g}, recomputed it is {value:.9g}")
    for name, level in QUANTILES.items():
        below, upto = known.get(f"{name}<", 0.0), known.get(f"{name}<=", 1.0)
        if not below - VALUE <= level <= upto + VALUE:
            text = f"{name} {stated[name]:.9g}: a share of {below:.6g} is below it, of {upto:.6g} no higher"
            yield Violation("policy-expected", at, text)
    options = plan.method.options
    plain = options.get("reward", "accuracy") == "accuracy" and options.get("sweeps") is None
    gain = figures["goodput"] if table.objective == "per_query" else figures["per_decision"]
    if plain and table.gain is not None and _differ(table.gain, gain):
        yield Violation("policy-gain", at, f"gain {table.gain:.9g}, recomputed it is {gain:.9g}")


def _without_accuracy(figures: dict[str, float]) -> dict[str, float]:
    """Where next to nothing is in time, how accurate that is means nothing."""
    return {name: value for name, value in figures.items() if not name.startswith("accuracy")}


def _check_promises(plan: Plan, app_id: str, tops: Sequence[tuple[float, dict[str, float]]]) -> Iterator[Violation]:
    if not tops:
        return
    total = sum(rate for rate, _ in tops)
    mean = {
        name: sum(rate * figures[name] for rate, figures in tops) / total
        for name in ("goodput", "violation_by_query", "utilisation")
    }
    timely = 1.0 - mean["violation_by_query"]
    own = {
        "goodput": mean["goodput"],
        "violations": mean["violation_by_query"],
        "utilisation": mean["utilisation"],
    }
    if timely > VALUE:
        own["quality"] = mean["goodput"] / timely
    for number, promise in enumerate(plan.promises):
        if promise.app == app_id and promise.model.startswith("stationary") and promise.quantity in own:
            value = own[promise.quantity]
            if _differ(promise.value, value) or promise.relation != "=":
                text = f"{promise.quantity} {promise.relation} {promise.value:.9g}, recomputed it is {value:.9g}"
                yield Violation("promise", f"promises[{number}]", text)


def _check_targets(plan: Plan, app_id: str, app: App, tables: Sequence[PolicyTable]) -> Iterator[Violation]:
    """Stated targets hold by what the plan says of its tables: simulated where it was, else expected."""
    limits = (target for target in app.targets if target.of == "response")
    strictest = min(limits, key=lambda target: (target.max_ms, -target.percentile))
    allowed = 1.0 - strictest.percentile / 100.0
    is_warned = any(notice.code == "W-percentile" for notice in plan.warnings)
    for number, table in enumerate(tables):
        at = f"policies.{app_id}[{number}]"
        expected = table.expected
        late = [table.simulated["violation"]] if table.simulated and "violation" in table.simulated else []
        exact = [table.simulated["accuracy"]] if table.simulated and "accuracy" in table.simulated else []
        late = late or ([expected.violation_by_query] if expected is not None else [])
        exact = exact or ([expected.accuracy_by_query] if expected is not None else [])
        if not is_warned and (not late or late[0] > allowed + VALUE):
            yield Violation("policy-target", at, f"violation rate {late[:1]}, the percentile allows {allowed:g}")
        if (
            app.quality is not None
            and app.quality.min is not None
            and (not exact or exact[0] < app.quality.min - VALUE)
        ):
            yield Violation("policy-target", at, f"accuracy {exact[:1]}, wanted is {app.quality.min:g}")

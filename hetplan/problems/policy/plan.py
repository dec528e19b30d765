"""The plan of policies: workers with their models, tables by load, what is expected and claimed, warnings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import numpy as np

from hetplan.planner.certify import Bounding
from hetplan.planner.draft import Draft, Reported
from hetplan.planner.forms.queue_process import Criterion, QueueProcess
from hetplan.planner.promise_figures import on_service_times
from hetplan.planner.transition import Names, transition
from hetplan.problems.policy.group import Group, PolicyProblem, SolvedPolicy, fewest_possible
from hetplan.problems.policy.options import PolicyOptions
from hetplan.problems.policy.request import offers_of_workers
from hetplan.profiles.plan import Claim, Notice, Plan, Promise, Route, Valid
from hetplan.profiles.plan_dispatch_rules import Estimate, QueueSlackDispatch
from hetplan.profiles.plan_policy import Expected, Otherwise, PolicyTable
from hetplan.profiles.workers import Serve, Worker

__all__ = ["bounding_of_claim", "draft_policies"]

_OVER = 1e-6
"""Above this share of decisions beyond the table the table is too short."""


def draft_policies(
    problem: PolicyProblem,
    groups: Sequence[Sequence[SolvedPolicy]],
    *,
    reported: Sequence[Reported] = (),
    notices: Sequence[Notice] = (),
    discipline: Literal["own", "shared_fifo"] = "own",
) -> Draft:
    """The plan of some groups; of each a policy per load, ascending."""
    inputs, options = problem.inputs, problem.options
    apps = list(dict.fromkeys(group[0].group.wish.app.id for group in groups))
    tables: dict[str, list[PolicyTable]] = {app: [] for app in apps}
    workers, shares = list[Worker](), dict[str, dict[str, float]]()
    running = problem.request.running
    names = Names(running)
    for several in groups:
        group, app = several[0].group, several[0].group.wish.app.id
        for offer, count in _offers(problem, group, discipline):
            worker = _worker(len(workers) + 1, group, offer, count)
            worker = names.with_ids(worker) if running else worker
            workers.append(worker)
            part = count / group.workers
            tables[app] += [_table(worker.id, solved, part, options) for solved in several]
            shares.setdefault(app, {})[worker.loads[0].id] = part * group.share
    unlike = [app for app in apps if sum(group[0].group.wish.app.id == app for group in groups) > 1]
    wishes = {group[0].group.wish.app.id: group[0].group.wish for group in groups}
    warnings = [*notices]
    for several in groups:
        warnings += _warnings(several)
    return Draft(
        workers=tuple(workers),
        routing={app: (Route(to=shares[app]),) for app in unlike},
        dispatch={
            app: QueueSlackDispatch(
                late=wishes[app].late,
                balancing="shared_fifo" if discipline == "shared_fifo" else wishes[app].balancing,
                estimate=Estimate(),
            )
            for app in apps
        },
        policies={app: tuple(tables[app]) for app in apps},
        actions=transition(running, workers, offers=inputs.profile.offers, limits=problem.request.instances),
        promises=tuple(promise for app in apps for promise in _promises(app, groups, options.judged_by)),
        reported=tuple(reported) or tuple(_claims(groups, options)),
        warnings=tuple(dict.fromkeys(warnings)),
        valid=Valid(rate_qps={app: (0.0, wishes[app].loads_qps[-1]) for app in apps}),
        requires=("queue-slack/1",),
    )


def _worker(number: int, group: Group, offer: str | None, count: int) -> Worker:
    models, app = group.models, group.wish.app.id
    serve = Serve(max_batch=int(models.latency_s.shape[1]))
    loads = [one.load(id=f"w{number}.{k}", app=app, serve=serve) for k, one in enumerate(models.choices, start=1)]
    return Worker(
        id=f"w{number}",
        hardware=models.hardware,
        offer=offer,
        count=count,
        queue="shared",
        loads=tuple(loads),
    )


def _offers(problem: PolicyProblem, group: Group, discipline: str) -> list[tuple[str | None, int]]:
    """Of which offers the workers of a group come."""
    if group.offer is not None:
        return [(group.offer, group.workers)]
    of_one = discipline == "shared_fifo"
    return offers_of_workers(problem.inputs, problem.request, group.models.hardware, group.workers, of_one=of_one)


def _table(worker: str, solved: SolvedPolicy, part: float, options: PolicyOptions) -> PolicyTable:
    """A policy for the part of its group's workers that come of one offer."""
    form, models = solved.form, solved.group.models
    names = np.array(models.names)
    return PolicyTable(
        workers=worker,
        slo_ms=1000.0 * form.slo_s,
        rate_qps=part * solved.load_qps,
        queue_max=form.queue,
        slack_ms=tuple(float(x) for x in 1000.0 * form.grid_s),
        models=models.names,
        choice=PolicyTable.rows(names[solved.policy.model].tolist()),
        batch=PolicyTable.rows(solved.policy.batch.tolist()),
        otherwise=Otherwise(model=models.names[0], batch=form.over_batch),
        objective=options.objective,
        batching="variable" if form.batching.value == "variable" else "max",
        gain=_gain(solved),
        expected=_averages(solved),
        simulated=None if solved.simulated is None else _simulated(solved.simulated),
        span=_span(solved),
        sweeps=None if solved.answer is None else int(solved.answer.work.get("sweeps", 0)),
        overload=solved.overload,
    )


def _simulated(run: Any) -> dict[str, float]:
    """What a run showed, as a plan states it."""
    figures = ("goodput", "accuracy", "violation", "utilisation", "queries", "seeds")
    shown = {name: float(getattr(run, name)) for name in figures}
    return {**shown, "utilisation": min(shown["utilisation"], 1.0)}


def _gain(solved: SolvedPolicy) -> float | None:
    """The value of the objective: that of the plain accuracies, also where others were raised to keep a percentile."""
    if solved.answer is None:
        return None
    return solved.measures.goodput if solved.shifted and solved.measures is not None else solved.answer.value


def _span(solved: SolvedPolicy) -> float | None:
    """How far any other policy of the same process can be better; None of a policy without a bound."""
    answer = solved.answer
    if answer is None or answer.value is None or answer.bound is None:
        return None
    return max(answer.bound - answer.value, 0.0)


def _averages(solved: SolvedPolicy) -> Expected | None:
    """The long-run averages of the model, as a plan states them."""
    return None if solved.measures is None else Expected.model_validate(solved.measures, from_attributes=True)


def _promises(app: str, groups: Sequence[Sequence[SolvedPolicy]], statistic: str) -> list[Promise]:
    """Averages at the highest load, over the application's groups by their load."""
    tops = [group[-1] for group in groups if group[0].group.wish.app.id == app]
    weights = np.array([top.load_qps for top in tops])
    weights = weights / weights.sum()
    at = f"at {sum(top.load_qps for top in tops):g} qps, {on_service_times(statistic)}"
    found: list[Promise] = []
    if all(top.measures is not None for top in tops):
        each = (top.measures for top in tops)
        rows = [(m.goodput, m.violation_by_query, m.utilisation) for m in each if m is not None]
        goodput, late, busy = (float(x) for x in weights @ np.array(rows))
        quality = goodput / (1 - late) if late < 1 else 0.0
        averages = {"goodput": goodput, "violations": late, "utilisation": busy, "quality": quality}
        basis = f"{at}; an average of the model, no bound"
        found += [
            Promise(app=app, quantity=quantity, relation="=", value=value, model="stationary/1", basis=basis)
            for quantity, value in averages.items()
        ]
    if len(tops) == 1 and tops[0].simulated is not None:
        run = tops[0].simulated
        for quantity, value, interval in (
            ("goodput", run.goodput, run.goodput_interval),
            ("quality", run.accuracy, run.accuracy_interval),
            ("violations", run.violation, run.violation_interval),
        ):
            low, high = min(float(interval[0]), float(value)), max(float(interval[1]), float(value))
            if quantity == "violations":
                # Where none was seen, there may still be some: three in so many, with 95% confidence.
                high = min(max(high, 3.0 / max(float(getattr(run, "queries", 0)), 3.0)), 1.0)
            shown = Promise(
                app=app, quantity=quantity, relation="=", value=float(value), interval=(low, high),
                model="simulation/1", basis=at, seeds=run.seeds,
            )  # fmt: skip
            found.append(shown)
    return found


# -- claims, and what proves them again ------------------------------------------------------------------------------


def _claims(groups: Sequence[Sequence[SolvedPolicy]], options: PolicyOptions) -> Iterator[Reported]:
    """A claim about each policy; groups that are alike have one."""
    seen = set[str]()
    for solved in (solved for group in groups for solved in group):
        made = _claim(solved, options, groups)
        if made.about not in seen:
            yield made
        seen.add(made.about)


def _claim(solved: SolvedPolicy, options: PolicyOptions, groups: Sequence[Sequence[SolvedPolicy]]) -> Reported:
    """The claim about one policy: best of all policies of its model of the queue."""
    about = _objective(solved.form, options)
    if len(groups) > 1 or len(groups[0]) > 1:
        about += f"[{solved.group.id}@{solved.load_qps:g}qps]"
    if solved.answer is None:
        return Reported(about=about, sense="max", scope="none", value=solved.goodput)
    note = _scope(solved.form)
    if solved.shifted:
        note += ", of which this one keeps the percentile"
        return Reported(about=about, sense="max", scope="model", answer=solved.answer, value=_gain(solved), note=note)
    return Reported(about=about, sense="max", scope="model", answer=solved.answer, note=note)


def _objective(form: QueueProcess, options: PolicyOptions) -> str:
    """What is claimed of a policy of this process."""
    if form.criterion is Criterion.HORIZON:
        return f"accuracy_of_{form.horizon}_decisions"
    return "goodput" if options.objective == "per_query" else "accuracy_per_decision"


def _scope(form: QueueProcess) -> str:
    """Of which policies a claim says that none is better."""
    return f"over all policies of {form.batching} batches on {form.slacks} slacks"


def bounding_of_claim(problem: PolicyProblem, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
    """The process of the tables that a claim names; all are of one group at one load."""
    found = [(app, PolicyTable.model_validate(one)) for app, tables in plan.policies.items() for one in tables]
    groups = [(_group_of_table(problem, plan, app, table), table) for app, table in found]
    if (claim.about, claim.sense) == ("servers", "min"):
        alone = claim.scope == "relaxation" and bool(groups)
        top = max((group.loads_qps[-1] for group, _ in groups), default=0.0)
        return [Bounding(bound=float(fewest_possible(groups[0][0], top)))] if alone else []
    if (claim.sense, claim.scope) != ("max", "model"):
        return []
    about, _, named = claim.about.partition("[")
    mine = [(group, table) for group, table in groups if named in ("", f"{group.id}@{group.loads_qps[-1]:g}qps]")]
    if not mine or (not named and len({one.loads_qps for one, _ in mine}) > 1):
        return []
    group, table = mine[0]
    if problem.options.rates == "fitted" and group.wish.balancing == "shortest_queue":
        return None  # its arrivals were fitted to a simulation
    form = group.form(group.loads_qps[-1], problem.options, batching=table.batching)
    is_of_form = about == _objective(form, problem.options) and (claim.note or "").startswith(_scope(form))
    return [Bounding(form, of_plans=True)] if is_of_form else []


def _group_of_table(problem: PolicyProblem, plan: Plan, app: str, table: PolicyTable) -> Group:
    """The group of a table, at the table's load: all like workers of the application, unless groups are by offers."""
    workers = {one.id: one for one in plan.workers}
    own = workers[table.workers]
    group = next(
        one
        for one in problem.groups()
        if (one.wish.app.id, one.models.hardware) == (app, own.hardware) and one.offer in (None, own.offer)
    )
    count = own.count
    if group.offer is None:
        tables = [PolicyTable.model_validate(one) for one in plan.policies[app]]
        mine = {one.workers for one in tables if workers[one.workers].hardware == own.hardware}
        count = sum(workers[name].count for name in mine)
    models = group.models
    if models.names != table.models:
        # Fewer models bound less. Only a set that fits no more beside it may be held.
        kept = [models.names.index(name) for name in table.models]
        if sorted(kept) not in [sorted(one) for one in models.sets]:
            raise ValueError(f"workers for {app} hold other models than the files say")
        models = models.only(kept)
    balancing = cast(Any, plan.dispatch[app]).balancing
    load = float(f"{table.rate_qps * count / own.count:.12g}")
    wish = replace(group.wish, balancing=balancing)
    return replace(group, wish=wish, models=models, workers=count, loads_qps=(load,))


# -- warnings --------------------------------------------------------------------------------------------------------


def _warnings(group: Sequence[SolvedPolicy]) -> list[Notice]:
    found = list(group[0].group.models.notices)
    first, at = group[0].group, f"policies.{group[0].group.wish.app.id}"
    wish = first.wish
    found += wish.notices
    if wish.balancing == "random":
        text = "queries reach a worker by chance: planned as Poisson arrivals"
        found += [Notice(code="W-arrivals-rounded", at=at, text=text)] if wish.shape != 1.0 else []
    elif wish.balancing == "round_robin":
        rounded = wish.stages(first.workers)[2]
        if rounded:
            found.append(Notice(code="W-arrivals-rounded", at=at, text=rounded))
    else:
        text = "shortest-queue arrivals are approximated by a rate per queue length: trust the simulation alone"
        found.append(Notice(code="W-approximate", at=at, text=text))
    least = _widest_batch(first)
    if first.models.latency_s.shape[1] - 1 < least:
        text = f"queue_max is below {least}, the largest batch that meets the SLO"
        found.append(Notice(code="W-short-queue", at=at, text=text))
    for solved in group:
        found += _solved_warnings(solved, at)
    return found + _best_batching(group, at)


def _solved_warnings(solved: SolvedPolicy, at: str) -> list[Notice]:
    found: list[Notice] = []
    load, wish, measures = f"{solved.load_qps:g} qps", solved.group.wish, solved.measures
    if solved.overload:
        found.append(_overload_notice(solved))
    elif measures is not None and measures.over_probability > _OVER:
        text = f"at {load} a share {measures.over_probability:.2g} of the decisions is made"
        text += " with more than queue_max queries waiting"
        found.append(Notice(code="W-over", at=at, text=text))
    if wish.violation_most is None and solved.violation > wish.left:
        text = f"at {load} {solved.violation:.3g} of the queries are late; the percentile allows {wish.left:g}"
        found.append(Notice(code="W-percentile", at=at, text=text))
    return found


def _overload_notice(solved: SolvedPolicy) -> Notice:
    """What to say of a load that the workers cannot carry."""
    group, load = solved.group, solved.load_qps
    per_worker = group.sustainable_qps / group.workers
    need = max(math.floor(load / per_worker) + 1, group.workers + 1)
    text = (
        f"{load:g} qps is more than {group.workers} workers can serve: at most {group.sustainable_qps:.4g} qps with "
        f"{group.models.names[0]}; {need} workers can"
    )
    latency = group.models.latency_s[0, :-1]
    enough = latency[group.workers * np.arange(1, latency.size + 1) / latency > load]
    if enough.size and float(enough.min()) > group.wish.slo_s:
        text += f", and so can these with an SLO of {1000 * float(enough.min()):.4g} ms"
    return Notice(code="W-overload", at=f"policies.{group.wish.app.id}", text=text)


def _best_batching(group: Sequence[SolvedPolicy], at: str) -> list[Notice]:
    """Which batches simulated best, where several kinds were tried."""
    tried = [solved for solved in group if solved.beaten]
    if len(tried) == 1:
        (solved,) = tried
        text = f"at {solved.load_qps:g} qps {solved.form.batching} batches simulate best ({solved.goodput:.6g})"
        return [Notice(code="W-batching", at=at, text=f"{text}; {solved.beaten}")]
    found = []
    for kind in dict.fromkeys(solved.form.batching for solved in tried):
        loads = [f"{solved.load_qps:g}" for solved in tried if solved.form.batching is kind]
        text = f"{kind} batches simulate best at {', '.join(loads)} qps"
        found.append(Notice(code="W-batching", at=at, text=text))
    return found


def _widest_batch(group: Group) -> int:
    """B_w: the largest batch that some model runs within the SLO; counted on the table, so at most N."""
    latency = group.models.latency_s
    fits = np.flatnonzero((latency <= group.wish.slo_s).any(axis=0))
    return int(fits[-1]) + 1 if fits.size else 1

"""From policies to the sections of a plan: workers with their models, tables by load, what is expected and claimed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from hetplan.planner.draft import Draft, Reported
from hetplan.planner.forms.mdp import Criterion
from hetplan.planner.promised import on_service_times
from hetplan.planner.transition import Names, transition
from hetplan.problems.policy.form import Asked, Group, Solved
from hetplan.problems.policy.options import PolicyOptions
from hetplan.problems.policy.why import overload_notice
from hetplan.problems.policy.wish import bought
from hetplan.profiles.plan import Notice, Promise, Route, Valid
from hetplan.profiles.plan_dispatch_further import Estimate, QueueSlackDispatch
from hetplan.profiles.plan_policy import Expected, Otherwise, PolicyTable
from hetplan.profiles.workers import Serve, Worker

__all__ = ["draft"]

_OVER = 1e-6
"""Above this share of decisions beyond the table the table is too short."""


def draft(
    asked: Asked,
    groups: Sequence[Sequence[Solved]],
    *,
    reported: Sequence[Reported] = (),
    notices: Sequence[Notice] = (),
    discipline: Literal["own", "shared_fifo"] = "own",
) -> Draft:
    """The plan of some groups; of each a policy per load, ascending."""
    inputs, options = asked.inputs, asked.options
    apps = list(dict.fromkeys(group[0].group.wish.app.id for group in groups))
    tables: dict[str, list[PolicyTable]] = {app: [] for app in apps}
    workers, shares = list[Worker](), dict[str, dict[str, float]]()
    running = asked.request.running
    names = Names(running)
    for several in groups:
        group, app = several[0].group, several[0].group.wish.app.id
        for offer, count in _offers(asked, group, discipline):
            worker = _worker(len(workers) + 1, group, offer, count)
            worker = names.named(worker) if running else worker
            workers.append(worker)
            part = count / group.workers
            tables[app] += [_table(worker.id, solved, part, options) for solved in several]
            shares.setdefault(app, {})[worker.loads[0].id] = part * group.share
    unlike = [app for app in apps if sum(group[0].group.wish.app.id == app for group in groups) > 1]
    wishes = {group[0].group.wish.app.id: group[0].group.wish for group in groups}
    warnings = [*notices]
    for several in groups:
        warnings += _warnings(several, options)
    return Draft(
        workers=tuple(workers),
        routing={app: (Route(to=shares[app]),) for app in unlike},
        dispatch={app: _dispatch(wishes[app].late, wishes[app].balancing, discipline) for app in apps},
        policies={app: tuple(tables[app]) for app in apps},
        actions=transition(running, workers, offers=inputs.profile.offers, limits=asked.request.instances),
        promises=tuple(promise for app in apps for promise in _promises(app, groups, options.percentile)),
        reported=tuple(reported) or tuple(_claimed(groups, options)),
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


def _offers(asked: Asked, group: Group, discipline: str) -> list[tuple[str | None, int]]:
    """Of which offers the workers of a group come."""
    if group.offer is not None:
        return [(group.offer, group.workers)]
    of_one = discipline == "shared_fifo"
    return bought(asked.inputs, asked.request, group.models.hardware, group.workers, of_one=of_one)


def _table(worker: str, solved: Solved, part: float, options: PolicyOptions) -> PolicyTable:
    """A policy for the part of its group's workers that come of one offer."""
    form, models = solved.form, solved.group.models
    names = np.array(models.names)
    simulated = solved.simulated
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
        expected=_expected(solved),
        simulated=None
        if simulated is None
        else {
            "goodput": float(simulated.goodput),
            "accuracy": float(simulated.accuracy),
            "violation": float(simulated.violation),
            "utilisation": min(float(simulated.utilisation), 1.0),
            "queries": float(simulated.queries),
            "seeds": float(simulated.seeds),
        },
        span=_span(solved),
        sweeps=None if solved.answer is None else int(solved.answer.work.get("sweeps", 0)),
        overload=solved.overload,
    )


def _gain(solved: Solved) -> float | None:
    """The value of the objective: that of the plain accuracies, also where others were raised to keep a percentile."""
    if solved.answer is None:
        return None
    return solved.measures.goodput if solved.shifted and solved.measures is not None else solved.answer.value


def _span(solved: Solved) -> float | None:
    """How far any other policy of the same process can be better; None of a policy without a bound."""
    answer = solved.answer
    if answer is None or answer.value is None or answer.bound is None:
        return None
    return max(answer.bound - answer.value, 0.0)


def _expected(solved: Solved) -> Expected | None:
    m = solved.measures
    if m is None:
        return None
    return Expected(
        accuracy_by_query=m.accuracy_by_query,
        accuracy_by_decision=m.accuracy_by_decision,
        violation_by_query=m.violation_by_query,
        violation_by_decision=m.violation_by_decision,
        goodput=m.goodput,
        over_probability=m.over_probability,
        utilisation=m.utilisation,
        accuracy_p1=m.accuracy_p1,
        accuracy_p50=m.accuracy_p50,
        queue_p50=m.queue_p50,
        queue_p99=m.queue_p99,
    )


def _dispatch(
    late: Literal["serve", "drop"] | None, balancing: Literal["round_robin", "shortest_queue", "random"],
    discipline: str,
) -> QueueSlackDispatch:  # fmt: skip
    kind: Literal["round_robin", "shortest_queue", "shared_fifo", "random"] = (
        "shared_fifo" if discipline == "shared_fifo" else balancing
    )
    return QueueSlackDispatch(late=late, balancing=kind, estimate=Estimate())


def _promises(app: str, groups: Sequence[Sequence[Solved]], statistic: str) -> list[Promise]:
    """Averages at the highest load, over the application's groups by their load."""
    tops = [group[-1] for group in groups if group[0].group.wish.app.id == app]
    weights = np.array([top.load_qps for top in tops])
    weights = weights / weights.sum()
    at = f"at {sum(top.load_qps for top in tops):g} qps, {on_service_times(statistic)}"
    found: list[Promise] = []
    if all(top.measures is not None for top in tops):
        rows = [
            (m.goodput, m.violation_by_query, m.utilisation) for m in (top.measures for top in tops) if m is not None
        ]
        goodput, late, busy = (float(x) for x in weights @ np.array(rows))
        basis = f"{at}; an average of the model, no bound"
        for quantity, value in (("goodput", goodput), ("violations", late), ("utilisation", busy)):
            found.append(
                Promise(app=app, quantity=quantity, relation="=", value=value, model="stationary/1", basis=basis)
            )
        quality = goodput / (1 - late) if late < 1 else 0.0
        found.append(
            Promise(app=app, quantity="quality", relation="=", value=quality, model="stationary/1", basis=basis)
        )
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
            found.append(
                Promise(
                    app=app,
                    quantity=quantity,
                    relation="=",
                    value=float(value),
                    interval=(low, high),
                    model="simulation/1",
                    basis=at,
                    seeds=run.seeds,
                )
            )
    return found


def _claimed(groups: Sequence[Sequence[Solved]], options: PolicyOptions) -> Iterator[Reported]:
    """A claim about each policy; groups that are alike have one."""
    seen = set[str]()
    for solved in (solved for group in groups for solved in group):
        made = _reported(solved, options, groups)
        if made.about not in seen:
            yield made
        seen.add(made.about)


def _reported(solved: Solved, options: PolicyOptions, groups: Sequence[Sequence[Solved]]) -> Reported:
    """The claim about one policy: best of all policies of its model of the queue."""
    about = "goodput" if options.objective == "per_query" else "accuracy_per_decision"
    if solved.form.criterion is Criterion.HORIZON:
        about = f"accuracy_of_{solved.form.horizon}_decisions"
    if len(groups) > 1 or len(groups[0]) > 1:
        about += f"[{solved.group.id}@{solved.load_qps:g}qps]"
    if solved.answer is None:
        return Reported(about=about, sense="max", scope="none", value=solved.goodput)
    note = f"over all policies of {solved.form.batching} batches on {solved.form.slacks} slacks"
    if solved.shifted:
        note += ", of which this one keeps the percentile"
        return Reported(about=about, sense="max", scope="model", answer=solved.answer, value=_gain(solved), note=note)
    return Reported(about=about, sense="max", scope="model", answer=solved.answer, note=note)


def _warnings(group: Sequence[Solved], options: PolicyOptions) -> list[Notice]:
    found = list(group[0].group.models.notices)
    first, at = group[0].group, f"policies.{group[0].group.wish.app.id}"
    wish = first.wish
    found += wish.notices
    if wish.balancing == "random":
        text = "queries reach a worker by chance: planned as Poisson arrivals"
        found += [Notice(code="W-arrivals-rounded", at=at, text=text)] if wish.shape != 1.0 else []
    elif wish.balancing == "round_robin":
        rounded = wish.stages(first.workers, clamp=options.clamp)[2]
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


def _solved_warnings(solved: Solved, at: str) -> list[Notice]:
    found: list[Notice] = []
    load, wish, measures = f"{solved.load_qps:g} qps", solved.group.wish, solved.measures
    if solved.overload:
        found.append(overload_notice(solved))
    elif measures is not None and measures.over_probability > _OVER:
        text = (
            f"at {load} a share {measures.over_probability:.2g} of the decisions is made with more than queue_max "
            "queries waiting"
        )
        found.append(Notice(code="W-over", at=at, text=text))
    if wish.violation_most is None and solved.violation > wish.left:
        allowed = f"the percentile allows {wish.left:g}"
        text = f"at {load} {solved.violation:.3g} of the queries are late; {allowed}"
        found.append(Notice(code="W-percentile", at=at, text=text))
    return found


def _best_batching(group: Sequence[Solved], at: str) -> list[Notice]:
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

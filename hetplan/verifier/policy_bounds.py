r"""What no policy can do better: the decision process behind a table, written down again, and bounds on all policies.

A worker's state is how many wait, n = 1..N, with the slack T_j of the oldest, or "over". An action is a model on a
batch from the head: all n, or fewer where batches are variable, in time where that takes no longer than the slack.
Where no batch is in time the fastest model takes all, late, or the head is dropped (`Process.actions`).

With rewards r, weights w and any numbers h of the states, let R be the largest of r - g w + P h - h over all states and
actions. In the long run the changes of h average to 0, so no policy has more than R beyond g w per decision:

    E[r] / E[w]  <=  g + max(R, 0) / (least E[w])

No h has to be believed, so a plan carries none: h is what its own table leads to, worked out by `policy_chain`. Where R
leaves the bound too far from the value, the table that is best under h takes its place, a few times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hetplan.profiles.plan import Claim, Solve
from hetplan.profiles.plan_policy import PolicyTable
from hetplan.profiles.workers import Worker
from hetplan.verifier.facts import Facts
from hetplan.verifier.policy import claimed_tables, strictest_ms
from hetplan.verifier.policy_chain import Chain, NewHeads, Step
from hetplan.verifier.policy_figures import ON_GRID, accuracy_of, arrivals_of, in_turn, latencies_s, row_of
from hetplan.verifier.promises import plain_name
from hetplan.verifier.references import allows
from hetplan.verifier.rows import NoProof, NotRebuilt

__all__ = ["Process", "proved"]

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

NEAR = 2e-9
"""How near a bound is to be to the value that is claimed, before better tables are looked for."""
ROUNDS = 8
_STEPS, _SETTLED = 6000, 1e-10
_ROUNDING = 1e-12
"""What sums of some thousand products are no better than, relative to the numbers in them."""
_CELL = 12
"""So many slacks are first looked at as one."""
_EQUAL = 1e-13
_IN_TURN = ("cpu_cores", "gpu")
"""Of these a worker needs what the greediest model takes, one running at a time; of all else what all take."""


def proved(facts: Facts, claim: Claim, _: Solve | None) -> float:
    """The bound on what a claim is about, over all policies of its process; NoProof says why there is none."""
    if (claim.about, claim.sense, claim.scope) == ("servers", "min", "relaxation"):
        return _fewest(facts)
    if (claim.sense, claim.scope) != ("max", "model"):
        raise NoProof(f"nothing is known here of the {claim.sense} {claim.about} of a {claim.scope}")
    tables = claimed_tables(facts.plan, claim.about)
    if not tables:
        raise NoProof("it is about no table of the plan")
    shown = max(_bound(facts, claim, app_id, table) for app_id, table in tables)
    # Of shares of queries, which goodput and accuracy are, what is less than this is rounding.
    return claim.bound if claim.bound is not None and abs(shown - claim.bound) <= ON_GRID else shown


def _bound(facts: Facts, claim: Claim, app_id: str, table: PolicyTable) -> float:
    process, sweeps = _process(facts, app_id, table), facts.plan.method.options.get("sweeps")
    name = plain_name(claim.about)
    said = f"over all policies of {table.batching} batches on {len(table.slack_ms)} slacks"
    if claim.note is None or not claim.note.startswith(said):
        raise NoProof(f"it is not said to be {said}")
    if isinstance(sweeps, int) and name == f"accuracy_of_{sweeps}_decisions":
        return process.first_decisions(sweeps)
    if {"goodput": "per_query", "accuracy_per_decision": "per_decision"}.get(name) != table.objective or sweeps:
        raise NoProof(f"its table is made for {table.objective}, not for {name}")
    assert claim.bound is not None
    return process.bound(claim.value, claim.bound)


def _fewest(facts: Facts) -> float:
    """The fewest workers that have the time for what must be in time, at the accuracy wanted.

    Models of accuracy a take c seconds per query at the least, in batches within the limit. For every price p >= 0 of
    accuracy a mean of c, where that of a is wanted, is no less than p wanted + the least of c - p a.
    """
    (worker, *others), inputs = facts.plan.workers, facts.inputs
    ((app_id, app), *more) = inputs.slo.apps.items()
    if more or {one.hardware for one in others} - {worker.hardware}:
        raise NoProof("the fewest workers are sought of one hardware for one application")
    tables, seconds, accuracy = facts.plan.policies[app_id], [], []
    limit_s = tables[0].slo_ms / 1000.0
    for name, variant in inputs.profile.variants.items():
        if allows(app.runs, inputs.profile, None, name, variant):
            for run in (run for run in variant.runs if run.hardware == worker.hardware):
                row = np.array(row_of(facts.plan, inputs, name, run, tables[0].queue_max)[:-1]) / 1000.0
                fits = row <= limit_s * (1.0 + ON_GRID)
                seconds.append((row / np.arange(1, row.size + 1))[fits].min(initial=np.inf))
                accuracy.append(accuracy_of(inputs, name))
    left = [1.0 - t.percentile / 100.0 for t in app.latency if t.of == "response" and t.max_ms == strictest_ms(app)]
    late = app.violations.max if app.violations is not None else min(left)
    wanted = min(app.quality.min or 0.0 if app.quality is not None else 0.0, max(accuracy))
    c, a = np.array(seconds), np.array(accuracy)
    c, a = c[np.isfinite(c)], a[np.isfinite(c)]
    if c.size == 0:
        raise NoProof("no model is in time")
    with np.errstate(divide="ignore", invalid="ignore"):
        prices = ((c[:, None] - c[None, :]) / (a[:, None] - a[None, :])).ravel()
    prices = np.append(prices[np.isfinite(prices) & (prices > 0.0)], 0.0)
    least = float((prices * wanted + (c[None, :] - prices[:, None] * a[None, :]).min(axis=1)).max())
    top = max(in_turn(facts.plan, app_id, table)[1] for table in tables)
    return float(max(1, math.ceil(top * (1.0 - late) * least * (1 - 1e-9))))


# The process, from the files


def _process(facts: Facts, app_id: str, table: PolicyTable) -> Process:
    plan, inputs, options = facts.plan, facts.inputs, facts.plan.method.options
    app, worker = inputs.slo.apps[app_id], next((one for one in plan.workers if one.id == table.workers), None)
    if worker is None:
        raise NoProof(f"there is no worker group {table.workers}")
    latency_s = latencies_s(plan, inputs, worker, table)
    if latency_s is None:
        raise NoProof("the profile does not give the latencies of every batch")
    _check_models(facts, app_id, worker, table, latency_s)
    _check_grid(str(options.get("grid", "union{100}")), np.array(table.slack_ms) / 1000.0, latency_s)
    arrivals = arrivals_of(plan, inputs, app_id, app, table, latency_s)
    if arrivals is None:
        raise NotRebuilt("its arrivals are fitted to a simulation, or come in too many stages")
    over = table.queue_max + (options.get("overflow", "serve_all") == "serve_all")
    if (table.queue_max + 1 if table.otherwise.batch == "max" else table.otherwise.batch) != over:
        raise NoProof(f"beyond the table {over} are taken at once")
    stages, rate_of = arrivals
    chain = Chain(
        latency_s=latency_s,
        grid_s=np.array(table.slack_ms) / 1000.0,
        stages=stages,
        rate_of=rate_of,
        model=np.array(table.model_rows()),
        batch=np.array(table.batch_rows()),
        over_batch=over,
        idle_decides=options.get("empty_state") == "paper",
    )
    return Process(
        chain,
        accuracy=np.array([accuracy_of(inputs, name) for name in table.models]),
        variable=table.batching == "variable",
        drops=app.late == "drop",
        per_query=table.objective == "per_query",
        by_share=options.get("reward") == "b_over_n",
    )


def _check_models(facts: Facts, app_id: str, worker: Worker, table: PolicyTable, latency_s: Floats) -> None:
    """That the process leaves out no model, and no faster run of one, that a worker could hold besides."""
    profile, pareto = facts.inputs.profile, facts.plan.method.options.get("pareto", True)
    there = [(latency_s[m, 0], accuracy_of(facts.inputs, name)) for m, name in enumerate(table.models)]
    held = [facts.seats[load.id].run for load in worker.loads if load.variant in table.models]
    needs = [run.needs for run in held if run is not None]
    for name, variant in profile.variants.items():
        if not allows(facts.inputs.slo.apps[app_id].runs, profile, None, name, variant):
            continue
        runs = [run for run in variant.runs if run.hardware == worker.hardware and run.latency is not None]
        rows = [row_of(facts.plan, facts.inputs, name, run, table.queue_max) for run in runs]
        single = min((row[0] / 1000.0 for row in rows if row), default=np.inf)
        if name in table.models:
            if single < there[table.models.index(name)][0]:
                raise NoProof(f"{name} has a faster run, and its table goes by another")
            continue
        own = accuracy_of(facts.inputs, name)
        beaten = any(s <= single and a >= own and (s < single or a > own) for s, a in there)
        fits = (_fit([*needs, run.needs], profile.hardware[worker.hardware].provides) for run in runs)
        if not (pareto and beaten) and any(fits):
            raise NoProof(f"{name} could run too, and is no model of its table")


def _fit(needs: list[Mapping[str, float]], provides: Mapping[str, float]) -> bool:
    """Whether a worker holds all of them; hardware that says nothing of what it provides holds everything."""
    for resource in {name for one in needs for name in one} if provides else ():
        amounts = [one.get(resource, 0.0) for one in needs]
        room = provides.get(resource, 0.0)
        if (max(amounts) if resource in _IN_TURN else sum(amounts)) > room + ON_GRID * max(room, 1.0):
            return False
    return True


def _check_grid(kind: str, grid_s: Floats, latency_s: Floats) -> None:
    """That the slacks are those that the plan's options say."""
    slo = grid_s[-1]
    name, _, steps = kind.rstrip("}").replace(":", "{").partition("{")
    wanted = [np.array([0.0, slo])]
    if name in ("fld", "union"):
        wanted.append(np.arange(1, int(steps or 100)) * slo / int(steps or 100))
    if name in ("md", "union"):
        wanted.append(latency_s[:, :-1][latency_s[:, :-1] <= slo])
    points = np.sort(np.concatenate(wanted))
    # What differs by rounding is one slack; a plan carries twelve digits.
    off = max(np.abs(points[:, None] - grid_s[None, :]).min(axis=k).max() for k in (0, 1))
    if off > 1e3 * ON_GRID * slo:
        raise NoProof(f"its slacks are not those of {kind}")


# All policies


@dataclass
class Process:
    """A worker's decision process, with some table of it in `chain`. `by_share`: a batch of b out of n earns b / n."""

    chain: Chain
    accuracy: Floats
    variable: bool
    drops: bool
    per_query: bool
    by_share: bool = False
    heads: NewHeads = field(default_factory=NewHeads)

    def bound(self, value: float, wanted: float) -> float:
        """What no policy exceeds: as near to `value` as `wanted`, or as some tables come."""
        best, step = np.inf, Step(self.chain, self.heads)
        for _ in range(ROUNDS):
            worth = self._relative(step, value)
            most, model, batch = self._best(step, worth, value)
            best = min(best, value + max(most, 0.0) / self.least_weight)
            same = np.array_equal(model, step.chain.model) and np.array_equal(batch, step.chain.batch)
            if best <= wanted + NEAR * abs(wanted) or same:
                break
            step = Step(replace(step.chain, model=model, batch=batch), self.heads)
        return best

    def first_decisions(self, count: int) -> float:
        """The most that so many decisions earn from (1, SLO) on."""
        step, states = Step(self.chain, self.heads), self.chain.queue * self.chain.slacks + 2
        worth = np.zeros((states, 1))
        for _ in range(count):
            values, *_ = self._all(step, worth, 0.0)
            worth = values[:, None]
        return float(worth[self.chain.slacks - 1, 0]) * (1.0 + count * _ROUNDING)

    @property
    def least_weight(self) -> float:
        """No policy has less weight per decision: idling, which may weigh nothing, never comes twice in a row."""
        return 0.5 if self.chain.idle_decides and self.per_query else 1.0

    @cached_property
    def others(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Reward and weight where more than N wait, all of them late, and of idling."""
        beyond = float(self.chain.queue + 1) if self.per_query else 1.0
        return (0.0, beyond), (0.0, 0.0 if self.per_query else 1.0)

    def _earned(self, n: Integers, model: Integers, batch: Integers, slack: Integers, gain: float) -> Floats:
        """r - gain w of actions with n waiting."""
        good = self.accuracy[model] * self._in_time(model, batch, slack)
        if self.by_share:
            good = good * batch / n
        return np.asarray(np.maximum(batch, 1) * (good - gain) if self.per_query else good - gain, np.float64)

    def _in_time(self, model: Integers, batch: Integers, slack: Integers) -> Bools:
        """Whether a batch takes no longer than its slack; a drop never does."""
        grid = self.chain.grid_s
        busy = self.chain.latency_s[model, np.maximum(batch, 1) - 1]
        return np.asarray((batch > 0) & (busy <= grid[slack] + ON_GRID * grid[-1]))

    def _relative(self, step: Step, gain: float) -> Floats:
        """The h of the table's own: sums of what comes, until all states go on alike."""
        coming = self._coming(step, gain)[:, None]
        worth = np.zeros_like(coming)
        for _ in range(_STEPS):
            worth += coming - coming.mean()
            coming = step.apply(coming)
            if np.ptp(coming) <= _SETTLED:
                break
        return worth + coming

    def _coming(self, step: Step, gain: float) -> Floats:
        """r - gain w of the table's own action in every state."""
        n, slack = (np.asarray(places, np.int64) for places in np.indices(step.chain.model.shape))
        earned = self._earned(n + 1, step.chain.model, step.chain.batch, slack, gain)
        return np.concatenate([earned.ravel(), [reward - gain * weight for reward, weight in self.others]])

    def actions(self, n: int) -> Iterator[tuple[int, Integers, Integers]]:
        """What may be done with n waiting: batch by batch, the models and the slacks."""
        models, slacks = np.arange(self.accuracy.size)[:, None], np.arange(self.chain.slacks)

        def in_time(batch: int) -> Bools:
            return self._in_time(models, np.array(batch), slacks)

        offered = {b: in_time(b) for b in range(n, 0 if self.variable else n - 1, -1)}
        stuck = ~np.logical_or.reduce([where.any(axis=0) for where in offered.values()])
        if not self.drops:
            offered[n][0] |= stuck | self.variable
        else:
            # The largest smaller batch that is in time with some model, else the head is dropped.
            for b in range(n - 1, 0, -1):
                fits = in_time(b) & stuck
                offered[b] = fits | offered.get(b, False)
                stuck = stuck & ~fits.any(axis=0)
            offered[0] = stuck & (models == 0)
        for b, where in offered.items():
            model, slack = np.nonzero(where)
            if model.size:
                yield b, model, slack

    def _best(self, step: Step, worth: Floats, gain: float) -> tuple[float, Integers, Integers]:
        """The largest change of `worth` by any action, moved up by what rounding may hide; the best table."""
        values, model, batch = self._all(step, worth, gain)
        change = values - worth[:, 0]
        # Only idling leads to the full slack, with one query; and to idle is a state only where it decides.
        change[2 * self.chain.slacks - 1 : -2 : self.chain.slacks] = -np.inf
        change[-1] = change[-1] if self.chain.idle_decides else -np.inf
        return float(change.max()) + _ROUNDING * (1.0 + float(np.abs(worth).max())), model, batch

    def _all(self, step: Step, worth: Floats, gain: float) -> tuple[Floats, Integers, Integers]:
        """The best of all actions under the future `worth`: of every state, and which action it is."""
        chain = self.chain
        _, after_idling, seats, lines = step.ahead(worth)
        model, batch = step.chain.model.copy(), step.chain.batch.copy()
        own = self._coming(step, gain) + step.apply(worth)[:, 0]
        best = own[:-2].reshape(chain.queue, chain.slacks)
        for n in range(1, chain.queue + 1):
            for b, models, slacks in self.actions(n):
                earned = self._earned(np.array(n), models, np.array(b), slacks, gain)
                if b == n:
                    future = self._full(step, n, models, slacks, lines, seats)
                elif n == 1:
                    future = np.broadcast_to(after_idling, earned.shape)
                else:
                    most = earned + step.leaving(n, b, models, slacks, seats, cell=_CELL)[:, 0]
                    kept = most > best[n - 1, slacks]
                    models, slacks, earned = models[kept], slacks[kept], earned[kept]
                    future = step.leaving(n, b, models, slacks, seats)[:, 0]
                for m, j, total in zip(models, slacks, earned + future, strict=True):
                    if total > best[n - 1, j] + _EQUAL:
                        best[n - 1, j], model[n - 1, j], batch[n - 1, j] = total, m, b
        return own, model, batch

    def _full(
        self, step: Step, n: int, models: Integers, slacks: Integers, lines: dict[float, Floats], seats: Floats
    ) -> Floats:
        """The worth of what comes after all n are taken."""
        result = np.empty(slacks.size)
        for m in np.unique(models):
            mine, service = models == m, step.service_of(int(m), n)
            result[mine] = (step.weights[n - 1][slacks[mine]] @ service.worth(lines[service.rate], seats))[:, 0]
        return result

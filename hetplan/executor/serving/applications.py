"""An application in the router: its steps with a chooser each, what it counts, what becomes of late queries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Any

from hetplan.dispatch.decision_kernels import behind
from hetplan.dispatch.monitors import LoadMonitor
from hetplan.dispatch.pipelines import Backups
from hetplan.executor.serving.admission import Admission
from hetplan.executor.serving.choosers import Chooser, EarliestChooser, ShareChooser, TurnChooser
from hetplan.executor.serving.links import Lane
from hetplan.executor.serving.metrics import Histogram
from hetplan.executor.serving.query_tree import Steps, Task
from hetplan.profiles.plan import Route
from hetplan.profiles.plan_dispatch_rules import BackupEntry
from hetplan.serving.system import LATE_POLICIES, Late

if TYPE_CHECKING:
    from hetplan.executor.serving.central_choosers import Deadlines, Times

__all__ = ["Application", "Asks", "Tally"]

_OUTCOMES = ("served", "late", "shed", "dropped", "lost", "failed", "left")


@dataclass
class Tally:
    """What became of an application's queries since the router started."""

    arrived: int = 0
    under_way: int = 0
    by_outcome: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_OUTCOMES, 0))
    edges: dict[str, list[int]] = field(default_factory=dict)
    """Per "variant/child": queries that the variant answered, and queries that it sent on to the child."""
    seconds: Histogram = field(default_factory=Histogram)
    """From the arrival to the answer, of the queries that were answered."""
    first_s: Histogram = field(default_factory=Histogram)
    """From the arrival to the first piece of the answer, of those that came piece by piece."""
    per_token_s: Histogram = field(default_factory=Histogram)
    """The mean time between two pieces of an answer."""


@dataclass(frozen=True)
class Asks:
    """What a chooser may ask the router to do."""

    send: Callable[[Lane, list[Task]], None]
    give_up: Callable[[Task, str], None]
    soon: Callable[[Callable[[], None]], Any]


class Application:
    """One application of the plan in force. Counters and the load monitor live on when a new plan takes over."""

    def __init__(
        self, name: str, entry: Mapping[str, Any], lanes: Sequence[Lane], policies: Mapping[str, Sequence[Any]],
        random: Random, asks: Asks, before: Application | None,
    ) -> None:  # fmt: skip
        self.name, self.entry, self.random, self.asks = name, entry, random, asks
        self.dispatch: Mapping[str, Any] = entry["dispatch"]
        self.tells_rate: bool = self.dispatch["rule"] == "queue-slack/1"
        self.slo_s = entry["slo_ms"] / 1000.0 if entry["slo_ms"] is not None else inf
        given_up_ms = entry.get("give_up_ms")
        self.given_up_s = given_up_ms / 1000.0 if given_up_ms is not None else self.slo_s
        # Without a deadline no query is late.
        self.late: str = "serve" if entry["late"] == "drop" and self.slo_s == inf else entry["late"]
        self.product = entry["combine"] == "product"
        self.paths: Mapping[str, float] = entry["paths"]
        self.steps = Steps(entry["nodes"])
        self.tally: Tally = before.tally if before is not None else Tally()
        window_s = self.dispatch.get("estimate", {}).get("window_ms", 500.0) / 1000.0
        known: LoadMonitor | None = before.monitor if before is not None else None
        same = known is not None and known.window_s == window_s
        self.monitor: LoadMonitor = known if known is not None and same else LoadMonitor(window_s=window_s)
        self._policies = policies
        self._routes = [Route.model_validate(route) for route in entry["routes"]]
        # A load may serve steps of several applications, and several steps of one.
        self._led = [(route.node, load) for route in self._routes for load in route.to]
        named = {load for _, load in self._led}
        self.lanes = [lane for lane in lanes if lane.app == name or lane.name in named]
        table = [BackupEntry.model_validate(entry) for entry in self.dispatch.get("backup", ())]
        self.backups = {node: Backups.of(table, node) for node in self.steps.nodes}
        self.budget_s = {node: ms / 1000.0 for node, ms in self.dispatch.get("budget_ms", {}).items()}
        self.choosers: dict[str, Chooser] = {}
        self.admission: Admission = Admission(
            self.steps, self.lanes_of, self.given_up_s, serves_all=self.late == "serve",
            before=before.admission if before is not None else None,
        )  # fmt: skip
        self._longest_ms: dict[tuple[str, tuple[Any, ...]], tuple[float, float]] = {}
        self._rates: dict[str, float] = {}
        self.arrange()

    def arrange(self) -> None:
        """Make the choosers anew for the workers that are up; what waited stays in line."""
        waiting = [(node, chooser.left()) for node, chooser in self.choosers.items()]
        self._longest_ms.clear()
        self.admission.forget_workers()
        self._rates = self._shares_of_groups()
        self.choosers = {node: self._chooser(node) for node in self.steps.nodes}
        for node, tasks in waiting:
            for task in tasks:
                if node not in self.choosers:
                    self.asks.give_up(task, "the new plan has no such step")
                elif (lane := self.choosers[node].place(task)) is not None:
                    self.asks.send(lane, [task])

    def lanes_of(self, node: str) -> list[Lane]:
        """The workers that serve a step."""
        if self.steps.single:
            return list(self.lanes)
        led, own = {load for step, load in self._led if step == node}, (None, self.name)
        return [x for x in self.lanes if x.name in led or (x.app in own and (x.node or node) == node)]

    def rate_qps(self, lane: Lane) -> float:
        """The load that is seen, as far as it goes to the lane's group of workers."""
        return self.monitor.rate_qps(monotonic()) * self._rates.get(lane.worker, 1.0)

    @property
    def waiting(self) -> int:
        """How many queries wait in the router."""
        return sum(map(len, self.choosers.values()))

    # Late queries

    def give_up_s(self, task: Task, now: float) -> float:
        """By when a query must be done at this step, or be given up there; infinite where it never is."""
        late, is_last = LATE_POLICIES[self.late], not self.steps.nodes[task.node].edges
        deadline_s, budget_s = task.query.deadline_s, self.budget_s.get(task.node, inf)
        if late is Late.DROP:
            deadline_s = task.query.arrived_s + self.given_up_s - self.admission.rest_s(task.node, task.query)
        elif late is Late.REROUTE and not is_last:
            budget_s += self._catch_up_s(task)
        return now - behind(int(late), is_last, now, 0.0, now, deadline_s, budget_s)

    def longest_ms(self, node: str, task: Task) -> tuple[float, float]:
        """The longest and the shortest time of a full batch of this class at a step's workers."""
        key = (node, task.query.kind)
        found = self._longest_ms.get(key)
        if found is None:
            times = [1e3 * lane.mean_s(task.query.at, lane.max_batch) for lane in self.lanes_of(node) if lane.open]
            found = self._longest_ms[key] = (max(times, default=0.0), min(times, default=0.0))
        return found

    def _catch_up_s(self, task: Task) -> float:
        """How much the steps that follow can make up for: the budget of each is made for its longest execution."""
        most = inf
        for edge in self.steps.nodes[task.node].edges:
            if len(self.steps.nodes[edge.to].parents) > 1:
                continue
            longest, shortest = self.longest_ms(edge.to, task)
            entries = self.backups[edge.to].entries
            shortest = min([shortest, *(entry.latency_ms for entry in entries)])
            most = min(most, (longest - shortest) / 1e3)
        return most if most < inf else 0.0

    def drop_hopeless(self, queue: deque[Task], *, all_of_them: bool = False) -> None:
        """Give up those at the head of a queue, or all in it, that no worker could answer in time any more."""
        now = monotonic()

        def hopeless(task: Task) -> bool:
            return self.admission.hopeless(task, now, self.give_up_s(task, task.entered_s))

        for _ in range(len(queue)):
            if hopeless(queue[0]):
                self.give_up(queue.popleft())
            elif all_of_them:
                queue.rotate(-1)
            else:
                return

    def look_through(self) -> None:
        """Give up what waits in vain, though no worker has become free meanwhile."""
        for chooser in self.choosers.values() if self.late != "serve" else ():
            for queue in chooser.queues:
                self.drop_hopeless(queue, all_of_them=True)

    def in_time(self, task: Task, lane: Lane, size: int = 1) -> bool:
        """Whether a worker that begins now answers it in time, in a batch of this size."""
        limit_s = self.give_up_s(task, task.entered_s)
        return limit_s == inf or monotonic() + self.admission.time_s(task.node, task.query, lane, size) <= limit_s

    def give_up(self, task: Task) -> None:
        """It is not served."""
        self.asks.give_up(task, "too late")

    # Choosers

    def _chooser(self, node: str) -> Chooser:
        rule = self.dispatch["rule"]
        lanes = self.lanes_of(node)
        if rule == "queue-slack/1":
            return self._by_policy(node, lanes)
        if rule == "chosen-plan/1" and len({lane.name for lane in lanes}) > 1:
            # Streams of one operator on several machines: each finds an operator that is free, as it has one.
            return TurnChooser(None, lanes, "shortest_queue", self.random)
        if rule not in ("matching/1", "fcfs/1", "threshold/1", "earliest/1"):
            return self._by_share(node, lanes, sheds=rule == "most-accurate-first/1")
        # numpy and the compiled kernels are loaded only for the rules that use them.
        from hetplan.executor.serving.central_choosers import InOrderChooser, Times

        late = self if self.late != "serve" else None
        if rule in ("fcfs/1", "threshold/1"):
            return InOrderChooser(lanes, self.dispatch, self.asks.send, self.asks.soon, late)
        times = Times([lane for lane in lanes if lane.open], self.entry["predict"])
        if rule == "earliest/1":
            return EarliestChooser(lanes, times)
        return self._by_matching(lanes, times, late)

    def _by_matching(self, lanes: Sequence[Lane], times: Times, late: Deadlines | None) -> Chooser:
        from hetplan.executor.serving.central_choosers import DealtChooser, MatchingChooser, parts_of

        up = [lane for lane in lanes if lane.open]
        most = self.dispatch.get("split_above") or max(len(up), 1)
        parts = [
            MatchingChooser(part, times, self.dispatch, self.asks.send, self.asks.soon, late)
            for part in parts_of(up, most, self.dispatch.get("weight", {}))
        ]
        return parts[0] if len(parts) == 1 else DealtChooser(parts)

    def _by_share(self, node: str, lanes: Sequence[Lane], *, sheds: bool = False) -> ShareChooser:
        balancing = self.entry.get("balancing")
        return ShareChooser(self._routes, node, lanes, self.random, balancing=balancing, sheds=sheds)

    def _by_policy(self, node: str, lanes: Sequence[Lane]) -> Chooser:
        balancing = self.dispatch.get("balancing", "round_robin")
        if balancing == "shared_fifo":
            from hetplan.dispatch.policy_lookup import PolicySelector
            from hetplan.executor.serving.central_choosers import PolicyChooser
            from hetplan.profiles.plan_policy import PolicyTable

            groups = list(dict.fromkeys(lane.worker for lane in lanes))
            tables = [PolicyTable.model_validate(t) for group in groups[:1] for t in self._policies.get(group, ())]
            if len(groups) == 1 and tables:
                rate = partial(self.rate_qps, lanes[0])
                return PolicyChooser(
                    lanes, PolicySelector(tables), rate, self.asks.send, self.asks.soon, self.asks.give_up,
                    self if self.late != "serve" else None,
                )  # fmt: skip
        unlike = len({lane.worker for lane in lanes}) > 1 and self._routes
        shares = self._by_share(node, lanes) if unlike else None
        return TurnChooser(shares, lanes, balancing, self.random)

    def _shares_of_groups(self) -> dict[str, float]:
        """The part of the application's queries that each group of workers gets."""
        home = {lane.name: lane.worker for lane in self.lanes}
        shares: dict[str, float] = {}
        entries = [route for route in self._routes if not route.prefix and not route.when] or self._routes[:1]
        for route in entries:
            for load, share in route.to.items():
                if load in home:
                    shares[home[load]] = shares.get(home[load], 0.0) + share
        if not shares:
            units = {(lane.worker, lane.unit) for lane in self.lanes if not lane.standby}
            for worker, _ in units:
                shares[worker] = shares.get(worker, 0.0) + 1.0 / len(units)
        return shares

"""What tables state of service times, held against a wish: what none can keep, and what a promise takes for granted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from hetplan.planner.draft import Draft, Infeasibility, Repair
from hetplan.planner.request import Application, Request, read_request
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.multilinear import OffTable
from hetplan.profiles.plan import Notice
from hetplan.serving.demand import Classes, Target
from hetplan.serving.distribution import PERCENTILES
from hetplan.serving.law import Law

__all__ = ["UnreachableLimit", "assumptions", "infeasible_by_service_times", "unreachable_limits"]

MORE = 1.2
"""Times the limit at which answers that never wait are just in time: some will wait."""
STEPS, WIDEST = 40, 1000.0
HIGHEST = max(percentile for percentile, _ in PERCENTILES.values())
SHOWN = 3


@dataclass(frozen=True)
class UnreachableLimit:
    """A limit on the response time that service times alone pass too often, on every machine that may serve."""

    app: str
    target: Target
    laws: tuple[Law, ...]
    classes: Classes

    @cached_property
    def share(self) -> float:
        """The share of answers that take longer than the limit, though none waits: each class where it is fastest."""
        return self.longer_than(self.target.limit_ms())

    def longer_than(self, limit_ms: float) -> float:
        """The same for another limit."""
        shares = zip(self.classes.points, self.classes.shares, strict=True)
        late = sum(share * self._least(point, limit_ms) for point, share in shares)
        return late / sum(self.classes.shares)

    def _least(self, point: dict[str, float], limit_ms: float) -> float:
        """The least share, over machines and batches as they were measured; 0 where one does not say how it varies."""
        least = 1.0
        for law in self.laws:
            for size in (1,) if "batch" in point else {1, *(int(size) for size in law.axes.get("batch", ()))}:
                if least == 0.0:
                    break
                least = min(least, _longer_than(law, point, size, limit_ms, self.target.percentile))
        return least

    @property
    def why(self) -> str:
        """The same in words."""
        late, may, limit = (f"{x:.3g}" for x in (100.0 * self.share, 100.0 * self.target.left, self.target.max_ms))
        return f"{late}% of the answers of {self.app} take longer than {limit} ms though none waits; {may}% may"

    @property
    def repair(self) -> Repair:
        """A limit that may do."""
        low, high = 1.0, WIDEST
        for _ in range(STEPS):
            times = math.sqrt(low * high)
            late = self.longer_than(times * self.target.limit_ms()) > self.target.left
            low, high = (times, high) if late else (low, times)
        at, now = f"slo.apps.{self.app}.latency.{self.target.key}", self.target.max_ms
        to = now + (MORE * high - 1.0) * self.target.limit_ms()
        return Repair(at, "raise", to - now, to, "ms", f"raise {at} from {now:.6g} to {to:.6g} ms or so")


def _longer_than(law: Law, point: dict[str, float], size: int, limit_ms: float, percentile: float) -> float:
    """The share of times above the limit; 0 where a high enough percentile is within it, or nothing is known."""
    try:
        stated = [name for name, (at, _) in PERCENTILES.items() if at >= percentile and name in law.statistics]
        if any(law.ms(point, size, name) <= limit_ms for name in stated):
            return 0.0
        spread = law.distribution(point, size)
    except OffTable:
        return 0.0
    return 0.0 if spread is None else spread.longer_than(limit_ms)


def unreachable_limits(inputs: Inputs) -> Iterator[UnreachableLimit]:
    """Every latency limit that no usable machine meets even without waiting, by the tables' service times."""
    request = read_request(inputs)
    for name, app in request.apps.items():
        targets = [one for one in app.targets if 0.0 < one.percentile < 100.0 and one.limit_ms() > 0.0]
        for variants in _entries(request, app) if targets and app.rate_qps != 0.0 else ():
            laws = _laws(request, variants)
            found = [UnreachableLimit(name, target, laws, app.classes) for target in targets] if laws else []
            yield from (one for one in found if one.share > one.target.left * (1.0 + 1e-6))


def infeasible_by_service_times(inputs: Inputs) -> Infeasibility | None:
    """Why no plan meets the SLO where answers are late even without waiting; None where they are not."""
    found = tuple(unreachable_limits(inputs))
    if not found:
        return None
    return Infeasibility(why=tuple(one.why for one in found), repairs=tuple(one.repair for one in found))


def _entries(request: Request, app: Application) -> Iterator[Sequence[str]]:
    """Of each step that every query goes through first, the variants that may serve it."""
    pipeline = request.pipeline(app.id)
    if pipeline is None:
        yield app.variants
        return
    inner = {edge.to for edge in pipeline.edges}
    yield from (variants for step, variants in request.steps(app.id).items() if step not in inner)


def _laws(request: Request, variants: Sequence[str]) -> tuple[Law, ...]:
    """The laws of all runs on machines that the wish allows; none where a run is not timed by its latency."""
    may = [one for one in request.choices(variants=variants) if request.may_rent(one.hardware)]
    return tuple(one.law for one in may) if all(one.is_timed for one in may) else ()


def assumptions(inputs: Inputs, draft: Draft) -> Iterator[Notice]:
    """Of each application the highest percentile shown in simulation that no measured time supports."""
    request, shown = read_request(inputs), dict[str, float]()
    for one in draft.promises:
        if one.app is not None and one.percentile is not None and one.model.startswith("simulation"):
            shown[one.app] = max(shown.get(one.app, 0.0), one.percentile)
    for name, percentile in shown.items():
        constant, beyond = set[str](), set[str]()
        for worker in draft.workers:
            for load in worker.loads:
                if load.app not in (None, name) or load.variant is None:
                    continue
                (choice,) = request.meant_by(load, worker.hardware)
                if not choice.is_timed:
                    continue
                if _is_constant(choice.law, request.apps[name], load.serve.max_batch):
                    constant.add(choice.file_path)
                elif percentile > HIGHEST and "max" not in choice.law.statistics:
                    beyond.add(choice.file_path)
        going_on = f"that times go on beyond p{HIGHEST:g} as below, at"
        for code, tables, what in (
            ("W-mean-times", constant, "constant times of"),
            ("W-latency-unchecked", beyond, going_on),  # no measured time is that rare: the plan is not called verified
        ):
            if tables:
                text = f"p{percentile:g} of {name} assumes {what} {_list_cells(tables)}: not measured"
                yield Notice(code=code, at="promises", text=text)


def _is_constant(law: Law, app: Application, most: int) -> bool:
    """Whether some of the times that are drawn have one figure alone: of its table, or of a cell with gaps beside."""
    if not law.has_spread:
        return True
    stated = (law.stated(at, size) for at in app.classes.points for size in range(1, most + 1))
    return any(len(one.keys() - {"max"}) == 1 for one in stated)


def _list_cells(names: set[str]) -> str:
    first = sorted(names)[:SHOWN]
    return ", ".join(first) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")

"""Plan files beside one another: dollars, promises, risk, the steps from one to the other, who does what better.

Nothing is solved and nothing is believed beyond what the plans say; with the files that they were made from, machines
are priced and counted by what those say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from hetplan.errors import InputError
from hetplan.planner.summary import status_of
from hetplan.profiles.arguments import check_arguments
from hetplan.profiles.canonical import rounded
from hetplan.profiles.fields import HOURS_A_MONTH
from hetplan.profiles.given_files import GivenFile, sort_files
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan, Route
from hetplan.profiles.plan_periods import of_period
from hetplan.profiles.read_plan import read_plan
from hetplan.profiles.workers import Worker
from hetplan.serving.demand import classes_of
from hetplan.studies.points import bill

__all__ = ["Figure", "PlansCompared", "compare_plans", "diff", "per_million"]

Best = Literal["low", "high", ""]
Table = tuple[str, tuple[str, ...], list[list[object]]]

_WORDS = {
    "rate_qps": "queries per second", "response_ms": "response ms", "violations": "share late",
    "servers": "machines promised",
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """One figure of every plan; `best` says which end is the better one, "" where neither is."""

    kind: Literal["money", "targets", "risk", "proof"]
    label: str
    values: tuple[float | str | None, ...]
    best: Best = ""

    def winners(self) -> tuple[int, ...]:
        """The plans that are better here than some other."""
        numbers = [value for value in self.values if isinstance(value, int | float)]
        if not self.best or len(numbers) < 2:
            return ()
        at_best = min(numbers) if self.best == "low" else max(numbers)
        if all(_is_alike(value, at_best) for value in numbers):
            return ()
        return tuple(
            n for n, value in enumerate(self.values) if isinstance(value, int | float) and _is_alike(value, at_best)
        )


@dataclass(frozen=True)
class PlansCompared:
    """Plans beside one another, in the order that they were named."""

    names: tuple[str, ...]
    figures: tuple[Figure, ...]
    machines: tuple[tuple[str, str, tuple[int, ...]], ...]
    """What a machine is (its offer or kind), what it runs, and how many of it each plan has."""
    moves: tuple[tuple[str, ...], ...]
    """For every plan but the first, the steps that lead to it from the first, equal ones as one."""
    better: tuple[tuple[str, ...], ...]
    """What each plan does better than some other."""
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        found: dict[str, Any] = rounded({"format": "hetplan/comparison/1.0", **asdict(self)})
        return found

    def tables(self) -> list[Table]:
        """Titles, columns and rows, for a page."""
        titles = {"money": "What it costs", "targets": "What is promised", "risk": "What may go wrong",
                  "proof": "How good it is"}  # fmt: skip
        found: list[Table] = [
            (
                title,
                ("", *self.names),
                [[one.label, *map(_cell, one.values)] for one in self.figures if one.kind == kind],
            )
            for kind, title in titles.items()
        ]
        rows: list[list[object]] = [[what, runs, *counts] for what, runs, counts in self.machines]
        found.append(("Machines", ("machine", "runs", *self.names), rows))
        for name, steps in zip(self.names[1:], self.moves, strict=True):
            found.append((f"From {self.names[0]} to {name}", ("step",), [[step] for step in steps]))
        better: list[list[object]] = [
            [name, text] for name, texts in zip(self.names, self.better, strict=True) for text in texts
        ]
        found.append(("What each does better", ("plan", "does better"), better))
        return [table for table in found if table[2]]


@check_arguments
def diff(*files: GivenFile | Inputs | None) -> PlansCompared:
    """Two plans or more side by side; with the files that they were made from, at the prices of those.

    >>> import hetplan as hp
    >>> def made(budget):
    ...     slo = hp.load("examples/pool/profile.json", "examples/pool/slo.json").slo
    ...     limits = slo.limits.model_copy(update={"cost_per_hour": int(budget * 10**9)})
    ...     wish = slo.model_copy(update={"limits": limits})
    ...     return hp.solve("examples/pool/profile.json", wish, options={"sizing": "fluid"}).require()
    >>> print(hp.diff(made(3), made(2)).better[1][0])
    cost per hour: 2 in place of 2.88
    """
    named = sort_files(files, "diff", plans=(2, max(2, len(files))), needs_inputs=False, in_python=True)
    return compare_plans(named.plans, named.inputs if named.has_inputs else None)


def compare_plans(
    plans: Mapping[str, Plan] | Sequence[str | Path | Plan], inputs: Inputs | None = None
) -> PlansCompared:
    """`diff` of plans by name or by file; `inputs` are the files that prices, rates and interruptions are read from."""
    named = plans if isinstance(plans, Mapping) else _read_plans(plans)
    if len(named) < 2:
        raise InputError.one(file="PLAN", why="two plans or more to compare", remedy="Name another plan file.")
    figures = tuple(_figures(list(named.values()), inputs))
    first, *others = named.values()
    return PlansCompared(
        names=tuple(named),
        figures=figures,
        machines=tuple(_machines(list(named.values()))),
        moves=tuple(tuple(_moves(first, other)) for other in others),
        better=tuple(tuple(_better(figures, place)) for place in range(len(named))),
        notes=tuple(_notes(named)),
    )


def _read_plans(given: Sequence[str | Path | Plan]) -> dict[str, Plan]:
    found: dict[str, Plan] = {}
    for number, one in enumerate(given, start=1):
        name = f"plan {number}" if isinstance(one, Plan) else Path(one).stem
        if name in found:
            name = str(one) if not isinstance(one, Plan) and str(one) not in found else f"{name} ({number})"
        found[name] = one if isinstance(one, Plan) else read_plan(one)
    return found


def _figures(plans: Sequence[Plan], inputs: Inputs | None) -> Iterator[Figure]:
    costs = [_cost(plan, inputs) for plan in plans]
    yield Figure("money", "cost per hour", tuple(costs), "low")
    yield Figure("money", "cost per month", tuple(None if one is None else one * HOURS_A_MONTH for one in costs), "low")
    for what in ("queries", "output tokens"):
        each = [per_million(plan, cost, inputs, what) for plan, cost in zip(plans, costs, strict=True)]
        if any(one is not None for one in each):
            yield Figure("money", f"cost per million {what}", tuple(each), "low")
    yield from _promises(plans)
    yield from _risks(plans, inputs)
    firsts = [plan.claims[0] if plan.claims else None for plan in plans]
    yield Figure("proof", "status", tuple(map(status_of, plans)))
    yield Figure("proof", "gap of the first claim", tuple(map(_gap, plans)), "low")
    yield Figure("proof", "its bound is", tuple(None if one is None else one.vouched for one in firsts))


def _gap(plan: Plan) -> float | None:
    """The gap of the first claim; what rounding leaves is none."""
    gap = plan.claims[0].gap if plan.claims else None
    return 0.0 if gap is not None and gap < 1e-9 else gap


def _cost(plan: Plan, inputs: Inputs | None) -> float | None:
    """The bill at the prices of the files, where they are there; else what the plan says."""
    if inputs is not None and (priced := bill(plan, inputs)) is not None:
        return priced
    return next((one.value for one in plan.promises if one.quantity == "cost_per_hour"), None)


def per_million(plan: Plan, cost: float | None, inputs: Inputs | None, what: str = "queries") -> float | None:
    """What a million queries (or tokens that come out) cost at the rate that is asked for, else that is promised."""
    if cost is None:
        return None
    each_second = 0.0
    apps = {one.app for one in plan.promises if one.app is not None}
    for app in apps:
        promised = [one.value for one in plan.promises if one.app == app and one.quantity == "rate_qps"]
        asked = inputs.slo.apps.get(app) if inputs is not None else None
        rate = asked.stated_qps if asked is not None else None
        rate = rate if rate is not None else min(promised, default=0.0)
        if what != "queries":
            classes = classes_of(asked.mix) if asked is not None else classes_of(None)
            sizes = [point.get("output_tokens", 0.0) for point in classes.points]
            rate *= sum(size * share for size, share in zip(sizes, classes.shares, strict=True))
        each_second += rate
    return cost / (each_second * 3600.0) * 1e6 if each_second > 0 else None


def _promises(plans: Sequence[Plan]) -> Iterator[Figure]:
    """Every promised quantity that is no bill: the same of all plans in one row."""
    found: dict[tuple[str, str, float | None], dict[int, tuple[float, str]]] = {}
    for place, plan in enumerate(plans):
        for one in plan.promises:
            if one.quantity not in ("cost_per_hour", "gross_cost_per_hour"):
                found.setdefault((one.app or "", one.quantity, one.percentile), {})[place] = (one.value, one.relation)
    for (app, quantity, percentile), said in found.items():
        relation = next(iter(said.values()))[1]
        best: Best = "low" if relation == "<=" else "high" if relation == ">=" else _known_best(quantity)
        words = _WORDS.get(quantity, quantity) + (f" p{percentile:g}" if percentile is not None else "")
        values = tuple(said[place][0] if place in said else None for place in range(len(plans)))
        yield Figure("targets", f"{app}: {words}" if app else words, values, best)


def _known_best(quantity: str) -> Best:
    if quantity in ("quality", "goodput", "accuracy", "served"):
        return "high"
    return "low" if quantity in ("servers", "violations", "utilisation") else ""


def _risks(plans: Sequence[Plan], inputs: Inputs | None) -> Iterator[Figure]:
    hours = [_by_period(plan).values() for plan in plans]
    counts = [[sum(worker.count for worker in one.workers) for one in each] for each in hours]
    yield Figure("risk", "machines", tuple(map(max, counts)))
    if inputs is not None:
        taken = [max(_taken_back(one, inputs) for one in each) for each in hours]
        if any(machines for machines, _ in taken):
            yield Figure("risk", "machines that may be taken back", tuple(machines for machines, _ in taken), "low")
            yield Figure("risk", "of them an hour", tuple(often for _, often in taken), "low")
    yield Figure("risk", "largest share on one machine", tuple(map(_most_on_one, hours)), "low")
    yield Figure(
        "risk", "left unserved (qps)", tuple(sum(one.rate_qps for one in plan.unserved) for plan in plans), "low"
    )
    warnings = tuple(", ".join(sorted({one.code for one in plan.warnings})) or "none" for plan in plans)
    yield Figure("risk", "warnings", warnings)


def _taken_back(plan: Plan, inputs: Inputs) -> tuple[float, float]:
    machines, often = 0.0, 0.0
    for worker in plan.workers:
        offer = inputs.profile.offers.get(worker.offer or "")
        if offer is not None and offer.interruptions_per_hour:
            machines += worker.count
            often += worker.count * offer.interruptions_per_hour
    return machines, often


def _by_period(plan: Plan) -> Mapping[str, Plan]:
    """The plan of each period of a fleet; any other plan is the only one."""
    return {"": plan} if plan.parts is None else {one.id: of_period(plan, one) for one in plan.periods}


def _most_on_one(plans: Iterable[Plan]) -> float | None:
    return max((share for one in plans if (share := _on_one(one)) is not None), default=None)


def _on_one(plan: Plan) -> float | None:
    """Of some class of queries, the largest share that is lost with one machine."""
    count = {load.id: worker.count for worker in plan.workers for load in worker.loads}
    routes: list[Route] = [route for routes in plan.routing.values() for route in routes]
    shares = [share / count[load] for route in routes for load, share in route.to.items() if count.get(load)]
    return max(shares, default=None)


def _machine(worker: Worker) -> tuple[str, str]:
    runs = Counter(load.variant or load.node or "" for load in worker.loads for _ in range(load.instances))
    text = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in sorted(runs.items()) if name)
    place = f" on {worker.host}" if worker.host else ""
    return f"{worker.offer or worker.hardware}{place}", text or "-"


def _machines(plans: Sequence[Plan]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for what, period, runs, counts in _counted(plans):
        yield f"{what} in {period}" if period else what, runs, counts


def _counted(plans: Sequence[Plan]) -> Iterator[tuple[str, str, str, tuple[int, ...]]]:
    """What a machine is, in which period ("": there is one), what it runs, and how many of it each plan has."""
    counted: list[Counter[tuple[str, str, str]]] = []
    for plan in plans:
        own: Counter[tuple[str, str, str]] = Counter()
        for period, one in _by_period(plan).items():
            for worker in one.workers:
                what, runs = _machine(worker)
                own[what, period or (worker.period if len(plan.periods) > 1 else ""), runs] += worker.count
        counted.append(own)
    for what, period, runs in sorted(set().union(*counted)):
        yield what, period, runs, tuple(own[what, period, runs] for own in counted)


def _moves(first: Plan, other: Plan) -> Iterator[str]:
    """What is stopped, what is started and how many machines stay as they are."""
    kept: Counter[str] = Counter()
    changes: dict[str, list[str]] = {"stop": [], "start": []}
    for what, period, runs, (before, after) in _counted([first, other]):
        kept[period] += min(before, after)
        if before != after:
            where = f" in {period}" if period else ""
            changes["start" if after > before else "stop"].append(f"{abs(after - before)} x {what}{where} ({runs})")
    for do, machines in changes.items():
        yield from (f"{do} {one}" for one in machines)
    least, most = min(kept.values(), default=0), max(kept.values(), default=0)
    several = f"{least} to {most}" if least != most else str(most)
    yield f"keep {several} machine{'' if several == '1' else 's'}{' in each period' if len(kept) > 1 else ''}"


def _better(figures: Sequence[Figure], place: int) -> Iterator[str]:
    for one in figures:
        if place in one.winners():
            value = one.values[place]
            others = [v for v in one.values if isinstance(v, int | float) and not _is_alike(v, float(value or 0))]
            worst = max(others) if one.best == "low" else min(others)
            yield f"{one.label}: {_cell(value)} in place of {_cell(worst)}"


def _notes(named: Mapping[str, Plan]) -> Iterator[str]:
    profiles = {plan.inputs.profile for plan in named.values()}
    slos = {plan.inputs.slo for plan in named.values()}
    if len(profiles) > 1:
        yield "the plans were made from different profiles: prices and speeds may differ"
    if len(slos) > 1:
        yield "the plans were made for different SLO files"
    if len({plan.question for plan in named.values()}) > 1:
        yield "the plans answer different questions"


def _is_alike(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-9 * max(1.0, abs(one), abs(other))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}" if not value.is_integer() or abs(value) > 1e15 else str(int(value))
    return str(value)

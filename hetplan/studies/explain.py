"""Why a plan has these machines: each question about it is answered by solving again with one thing changed.

- **Why this machine?** The best plan with one fewer of it. Every fleet that is not this one, nor this one with machines
  added, has fewer of something; so the best of these plans is the second-best fleet, the next the third or a worse one.
- **Why not that machine?** The best plan that must have one of it, where its hardware comes under one offer (what it is
  dearer by is the reduced cost of a whole machine); the price at which it is in the best plan, and how much faster it
  would have to be, found by halving.
- **What binds?** Each limit with one more: a unit of money, a machine of stock, a millisecond, a query per second.

The halvings are most of the work: of a fleet, each of whose solves takes seconds, they are done where `thorough` asks
for them.

All of it is asked of the program, whose bounds are certified; simulation would be asked hundreds of times. Where the
program alone takes another fleet than the plan has, a note says so.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from hetplan.api.solve import Source
from hetplan.planner.answer import Limits
from hetplan.planner.spread import Spread
from hetplan.planner.terms import OnEvent
from hetplan.planner.tolerances import VALUE
from hetplan.profiles.arguments import check_arguments
from hetplan.profiles.canonical import rounded
from hetplan.profiles.fields import HOURS_A_MONTH, NANO
from hetplan.profiles.given_files import GivenFile, sort_files
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.read_plan import read_plan
from hetplan.studies.axes import Files, own_prices
from hetplan.studies.comparison import per_million
from hetplan.studies.points import Asked, Task, bill, fleet_of, fleet_text, study_digest, try_changes

__all__ = ["Absent", "Bound", "Explanation", "Other", "explain", "explain_for"]

CHEAPEST = 1e-3
"""The least part of its price at which an offer is tried."""
FASTEST = 0.05
"""The least part of its measured times with which hardware is tried."""
NEAR = 0.0005
"""A place that is looked for by halving is known to this part of itself."""
BESIDE = 1e-5
"""A place that is worked out is tried so near to it on both sides."""

Found = Mapping[str, Any]


@dataclass(frozen=True)
class Other:
    """Another fleet: with one machine fewer of an offer."""

    without_one_of: str
    fleet: dict[str, int] | None
    value: float | None
    worse_by: float | None
    cost_per_hour: float | None
    why: str = ""


@dataclass(frozen=True)
class Absent:
    """An offer that the plan does not take: what one of it would cost, and what would bring it in."""

    offer: str
    worse_by: float | None
    enters_at_price: float | None
    price: float | None
    enters_at_times: float | None
    looked_for: bool = True
    """Whether these places were looked for."""
    taken_by_program: bool = False
    """The program alone takes it; the plan was sized by simulation, and does not."""
    why: str = ""
    not_asked: tuple[str, ...] = ()
    """Of `one`, `price` and `times`, those for which the time was over."""


@dataclass(frozen=True)
class Bound:
    """A limit, and what one more of it brings."""

    limit: str
    now: float
    step: float
    unit: str
    brings: float | None
    fleet: dict[str, int] | None
    why: str = ""


@dataclass(frozen=True)
class Explanation:
    """All that is said about a plan."""

    about: str
    sense: str
    value: float | None
    fleet: dict[str, int]
    cost_per_hour: float | None
    cost_per_month: float | None
    cost_per_million_queries: float | None
    cost_per_million_tokens: float | None
    others: tuple[Other, ...]
    absent: tuple[Absent, ...]
    bounds: tuple[Bound, ...]
    notes: tuple[str, ...] = ()
    plan_value: float | None = None
    """What the plan says its value is, where that is another than `value`, with which the other plans are compared."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        found: dict[str, Any] = rounded({"format": "hetplan/explanation/1.0", **asdict(self)})
        return found


@check_arguments
def explain(
    plan: Source | Plan,
    *files: GivenFile | Inputs | None,
    thorough: bool | None = None,
    time_limit: float | None = None,
    jobs: int = 1,
    on_event: OnEvent | None = None,
    cancel: threading.Event | None = None,
) -> Explanation:
    """Why this plan: around it, with one thing changed at a time.

    `thorough`: whether the prices and times at which other machines come in are looked for; of fleets they are not,
    unless this says so. After `time_limit` seconds no more is asked, and what is missing is named.

    >>> import hetplan as hp
    >>> files = "examples/pool/llm-profile.json", "examples/pool/llm-slo.json"
    >>> found = hp.explain(hp.solve(*files).require(), *files)
    >>> [(one.without_one_of, round(one.worse_by, 2)) for one in found.others]
    [('l4', 0.1), ('a100', 6.9)]
    """
    named = sort_files((plan, *files), "explain", plans=(1, 1), in_python=True)
    spread = Spread(jobs, on_event=on_event, cancel=cancel, seconds=time_limit)
    return explain_for(read_plan(named.plan, trust_digest=True), named.inputs, spread=spread, thorough=thorough)


def explain_for(
    plan: Plan, inputs: Inputs, *, spread: Spread | None = None, thorough: bool | None = None
) -> Explanation:
    """`explain` for what is read already."""
    asked = Asked.of(
        Files.of(inputs), (), question=plan.question, formulation=plan.method.formulation,
        options=dict(plan.method.options),
        limits=Limits(),
    )  # fmt: skip
    spread = spread or Spread()
    spread.of = spread.of or study_digest(asked, ["explain", plan.digest or ""])
    with spread:
        return _Around(plan, asked, spread, plan.question != "fleet" if thorough is None else thorough).said()


@dataclass
class _Place:
    """Where an offer comes in, as far as it is known: it is taken at `low` and not at `high`, parts of what it is."""

    low: float
    high: float = 1.0
    guess: float | None = None
    """Where it should be by what the fleet at `low` costs."""

    @property
    def found(self) -> bool:
        return self.exact or (self.high - self.low <= NEAR * self.low and not self._likely)

    @property
    def exact(self) -> bool:
        return self.guess is not None and self.low < self.guess < self.high and self.high - self.low < 3 * BESIDE

    @property
    def known(self) -> float:
        return self.guess if self.exact and self.guess is not None else self.low

    @property
    def _likely(self) -> bool:
        return self.guess is not None and self.low + BESIDE < self.guess < self.high - BESIDE

    def next(self) -> tuple[float, ...]:
        """What to try: both sides of the guess, and the middle where it is not there."""
        middle = (self.low + self.high) / 2
        if not self._likely or self.guess is None:
            return (middle,)
        return (self.guess - BESIDE, self.guess + BESIDE)


@dataclass
class _Around:
    """The solves around one plan."""

    plan: Plan
    asked: Asked
    spread: Spread
    thorough: bool
    counts: dict[str, int] = field(init=False)
    program: Found = field(init=False)
    base: Found = field(init=False)
    """What the plan is compared with: the program's answer, or the plan in full where its fleet is another one."""
    how: Task = field(init=False)
    late: set[str] = field(init=False)
    """What was not asked, because the time was over."""

    def __post_init__(self) -> None:
        self.counts, self.late = {}, set()
        for worker in self.plan.workers:
            if worker.offer is not None:
                self.counts[worker.offer] = self.counts.get(worker.offer, 0) + worker.count
        if self.plan.parts is not None:
            sold = self.asked.files.inputs.profile.offers
            self.counts = {name: count for name, count in fleet_of(self.plan).items() if name in sold}

    def said(self) -> Explanation:
        (self.program,) = self._all([{}])
        self.base, self.how = self.program, {}
        if self.asked.sizes and self.program["fleet"] != fleet_of(self.plan):
            self.how = {"sized": True}
            (self.base,) = self._all([self.how])
        fewer = [offer for offer in self.counts if self._is_counted_by_stock(offer)]
        absent = [offer for offer in self.asked.files.inputs.profile.offers if offer not in self.counts]
        forced, limits = self._edits_that_force(absent), list(self._limits())
        # All at once, so that what is said of the time that is left is true.
        edits = [["profile", ["offers", one, "stock"], self.counts[one] - 1] for one in fewer]
        edits += [*forced.values(), *(edit for *_, edit in limits)]
        answers = iter(self._try_some([{**self.how, "edits": [edit]} for edit in edits]))
        others, with_one = list(islice(answers, len(fewer))), dict(zip(forced, answers, strict=False))
        inputs, plan = self.asked.files.inputs, self.plan
        cost = bill(plan, inputs)
        return Explanation(
            about=self.base.get("about", ""),
            sense=self.base.get("sense", ""),
            value=self.base.get("value"),
            fleet=fleet_of(plan),
            cost_per_hour=cost,
            cost_per_month=None if cost is None else cost * HOURS_A_MONTH,
            cost_per_million_queries=per_million(plan, cost, inputs),
            cost_per_million_tokens=per_million(plan, cost, inputs, "output tokens"),
            others=tuple(sorted(self._others(fewer, others), key=_by_what_it_costs)),
            absent=tuple(self._absent(absent, with_one)),
            bounds=tuple(self._bounds(limits, list(answers))),
            notes=tuple(self._notes()),
            plan_value=self._said_by_plan(),
        )

    def _said_by_plan(self) -> float | None:
        """The plan's own value, where the program alone comes to another."""
        mine = [one.value for one in self.plan.claims if one.about == self.base.get("about")]
        value = self.base.get("value")
        return None if not mine or value is None or math.isclose(mine[0], value, rel_tol=VALUE) else mine[0]

    def _all(self, tasks: Sequence[Task]) -> list[dict[str, Any]]:
        return self.spread.all(try_changes, self.asked, tasks, about="questions")

    def _try_some(self, tasks: Sequence[Task]) -> list[dict[str, Any] | None]:
        """None for what the time does not allow."""
        return self.spread.some(try_changes, self.asked, tasks, about="questions")

    def _is_counted_by_stock(self, offer: str) -> bool:
        """Whether machines are rented by the offer's stock: hosts that are listed are there already."""
        return not any(host.offer == offer for host in self.asked.files.inputs.profile.hosts.values())

    def _worse(self, found: Found) -> float | None:
        """By how much a value is worse than the plan's, in the unit of the objective."""
        value, base = found.get("value"), self.base.get("value")
        if not found["ok"] or value is None or base is None or found.get("about") != self.base.get("about"):
            return None
        return float(value - base if self.base.get("sense") == "min" else base - value)

    def _others(self, fewer: Sequence[str], answers: Sequence[Found | None]) -> Iterator[Other]:
        for offer, found in zip(fewer, answers, strict=True):
            if found is None:
                self.late.add(f"one fewer of {offer}")
                continue
            why = "" if found["ok"] else found["why"]
            bill = found.get("cost_per_hour")
            yield Other(offer, found["fleet"], found.get("value"), self._worse(found), bill, why)

    def _edits_that_force(self, offers: Sequence[str]) -> dict[str, list[Any]]:
        """Of each offer that is the only one of its hardware: the change by which one of it has to be taken."""
        profile, limits = self.asked.files.inputs.profile, self.asked.files.inputs.slo.limits
        found: dict[str, list[Any]] = {}
        for offer in offers:
            kind = profile.offers[offer].hardware
            if sum(one.hardware == kind for one in profile.offers.values()) == 1 and not limits.instances.get(kind):
                found[offer] = ["slo", ["limits", "instances", kind], [1, None]]
        return found

    def _absent(self, offers: Sequence[str], with_one: Mapping[str, Found | None]) -> Iterator[Absent]:
        out = [offer for offer in offers if not _takes(self.program, offer)]
        searched = out if self.thorough else []
        prices, unpriced = self._find_entry(searched, "price", CHEAPEST)
        times, untimed = self._find_entry(searched, "latency", FASTEST)
        late = (("one", {one for one, at in with_one.items() if at is None}), ("price", unpriced), ("times", untimed))
        for offer in offers:
            price = self._price(offer)
            found = with_one.get(offer)
            if found is not None and found["status"] == "refused":
                found = None  # the question takes no least number
            not_asked = tuple(name for name, of in late if offer in of)
            if not_asked:
                self.late.add(f"what would bring in {offer}")
            if not self.thorough and found is None and offer in out:
                continue  # nothing was tried
            part = prices.get(offer)
            yield Absent(
                offer,
                None if found is None else self._worse(found),
                None if part is None else round(part * price, 9),
                price,
                times.get(offer),
                self.thorough,
                offer not in out,
                "" if found is None or found["ok"] else found["why"],
                not_asked,
            )

    def _find_entry(self, offers: Sequence[str], what: str, least: float) -> tuple[dict[str, float], set[str]]:
        """For each offer the greatest part of its price, or of its times, with which it is in the best plan.

        All offers are looked for side by side: prices where the money of the last plan that took them ends, else by
        halving. Those that are not taken even with the least part are left out, and so are those whose place the time
        did not allow to find: these are the second part.
        """
        places = {one: _Place(least) for one in offers}
        found = dict(zip(offers, self._try_some([self._with(one, what, least) for one in offers]), strict=True))
        late = {one for one, at in found.items() if at is None}
        open_ = [one for one, at in found.items() if at is not None and _takes(at, one)]
        taken = dict.fromkeys(open_, least)
        for one in open_:
            self._note_answer(one, what, places[one], least, found[one])
        while open_:
            asked = [(one, part) for one in open_ for part in places[one].next()]
            answers = self._try_some([self._with(one, what, part) for one, part in asked])
            for (one, part), answer in zip(asked, answers, strict=True):
                if answer is None:
                    late.add(one)
                else:
                    self._note_answer(one, what, places[one], part, answer)
            taken |= {one: places[one].known for one in open_}
            open_ = [one for one in open_ if one not in late and not places[one].found]
        return {one: part for one, part in taken.items() if one not in late}, late

    def _note_answer(self, offer: str, what: str, place: _Place, part: float, found: Found | None) -> None:
        """Note whether the offer is taken with this part, and up to which part its fleet has the money for it."""
        if found is None or not _takes(found, offer):
            place.high = min(place.high, part)
            return
        place.low = max(place.low, part)
        count = sum(many for name, many in found["fleet"].items() if name.split(" ")[0] == offer)
        cost, money = found.get("cost_per_hour"), self._money()
        if what == "price" and cost is not None and money is not None and place.low == part:
            price = self._price(offer)
            place.guess = part + (money - cost) / count / price if price > 0 else None

    def _money(self) -> float | None:
        """What a fleet may cost to be the best: no more than the best one, or than the budget."""
        if self.program.get("about") == "cost_per_hour" and self.program.get("value") is not None:
            return float(self.program["value"])
        most = self.asked.files.inputs.slo.limits.cost_per_hour
        return None if most is None else most / NANO

    def _with(self, offer: str, what: str, part: float) -> Task:
        hardware = self.asked.files.inputs.profile.offers[offer].hardware
        return {"factors": [[f"prices:{offer}" if what == "price" else f"latency:{hardware}", part]]}

    def _price(self, offer: str) -> float:
        """What one machine of an offer costs: the least price of its runs, where all have prices by themselves."""
        profile = self.asked.files.inputs.profile
        own = own_prices(profile, profile.offers[offer].hardware).values()
        paid = [price for price in own if price is not None]
        return (min(paid) if paid and None not in own else profile.offers[offer].price_per_hour) / NANO

    def _bounds(
        self, limits: Sequence[tuple[str, float, float, str, list[Any]]], answers: Sequence[Found | None]
    ) -> Iterator[Bound]:
        for (name, now, step, unit, _), found in zip(limits, answers, strict=True):
            if found is None:
                self.late.add(f"what {name} brings")
                continue
            worse = self._worse(found)
            brings = None if worse is None else 0.0 - worse
            yield Bound(name, now, step, unit, brings, found["fleet"], "" if found["ok"] else found["why"])

    def _limits(self) -> Iterator[tuple[str, float, float, str, list[Any]]]:
        """Every limit of the files that is a number: its name, what it is, the step, the unit, the edit."""
        inputs = self.asked.files.inputs
        limits = inputs.slo.limits
        steps: list[Any]
        if limits.cost_per_hour is not None:
            now = limits.cost_per_hour / NANO
            yield "budget", now, 1.0, "per hour", ["slo", ["limits", "cost_per_hour"], format(now + 1, ".9f")]
        for kind, (least, most) in limits.instances.items():
            if most is not None:
                yield f"most {kind}", most, 1, "machine", ["slo", ["limits", "instances", kind], [least, most + 1]]
            if least > 0:
                steps = ["limits", "instances", kind]
                yield f"least {kind}", least, -1, "machine", ["slo", steps, [least - 1, most]]
        for name, offer in inputs.profile.offers.items():
            if offer.stock is not None and self.counts.get(name, 0) >= offer.stock:
                steps = ["offers", name, "stock"]
                yield f"stock:{name}", offer.stock, 1, "machine", ["profile", steps, offer.stock + 1]
        for name, app in inputs.slo.apps.items():
            for target in app.targets:
                steps = ["apps", name, "latency", target.key]
                label = f"{name}: {target.of} p{target.percentile:g}"
                yield label, target.max_ms, 1.0, "ms", ["slo", steps, target.max_ms + 1.0]
            if (rate := app.stated_qps) is not None and rate > 1:
                steps = ["apps", name, "rate_qps"]
                yield f"{name}: rate", rate, -1.0, "qps", ["slo", steps, rate - 1.0]
            if app.quality is not None and app.quality.min is not None:
                steps, floor = ["apps", name, "quality", "min"], app.quality.min
                yield f"{name}: quality", floor, -0.01, "", ["slo", steps, floor - 0.01]

    def _notes(self) -> Iterator[str]:
        if self.late:
            yield f"not asked within {self.spread.seconds:g} s (--time-limit): {'; '.join(sorted(self.late))}"
        if self.program["fleet"] != fleet_of(self.plan):
            other = fleet_text(self.program["fleet"])
            if not self.how:
                yield f"the program without simulation takes {other}; this page explains that"
            else:
                value = f"{self.program['about']} {self.program['value']:.6g}" if self.program["ok"] else "no plan"
                by = "a formula" if self.plan.method.options.get("sizing") == "formula" else "simulation"
                yield f"without {by} {other} would do ({value}); plans are compared as {by} sizes them"
                if self.thorough:
                    yield f"prices and times at which others come in are those of the program without {by}"
        if self.how and self.base["fleet"] != fleet_of(self.plan):
            yield f"planned anew it is {fleet_text(self.base['fleet'])}"
        if not self.thorough:
            yield "the prices and times at which other machines come in were not looked for: --thorough does, for long"
        if any(not self._is_counted_by_stock(offer) for offer in self.counts):
            yield "hosts that the profile lists are there already: fewer of them were not tried"


def _takes(found: Found, offer: str) -> bool:
    return any(name.split(" ")[0] == offer for name in found["fleet"] or ())


def _by_what_it_costs(one: Other) -> tuple[bool, float, str]:
    return one.worse_by is None, one.worse_by or 0.0, one.without_one_of

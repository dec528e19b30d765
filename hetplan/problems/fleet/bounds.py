"""What no fleet costs less than: the bound of a plan, and how it is proved again from what the plan carries.

**Whose room is left out.** While machines are looked for, these have the room that a formula asks for (or their own
questions, by simulation). It is careful: on fewer machines they may be in time all the same. So a bound of all fleets
asks less of them: each limit is held against service times alone, and a path may use all of it. Where late queries are
dropped, machines answer no more than percentiles ask for.

**What shows it.** Of a small fleet (`formulations.is_one_program`) that is the program of all periods, written again
with the rows that the plan names by the machines of which they are. Of others it carries prices.

Machines of an offer are paid for ahead (R) or rented in a period (N). For any prices pi >= 0 of a machine in a period,
and any prices of the limits, a fleet costs no less than

    sum over applications and periods of the cheapest machines at these prices that carry the rate, after every failure
    + the least of  sum_o cost R_o + sum_op cost N_op - sum_op pi_op (R_o + N_op)  under the limits

The second is a linear program, whose bound is safe from rounding; the first are found in lists, or by small programs
that are proved (`candidate_columns`). Costs of starting only add to it. What machines carry is said by the part of an
application: of pools and text by their linear programs, of variants by what fits on each machine. Applications of other
questions, and those that may share machines without slices, count as free: the bound is true, and lower.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hetplan.errors import Interrupted
from hetplan.planner.certify import Bounding, Split
from hetplan.planner.contract import Ask, Tools
from hetplan.planner.fleet_part import Cone, Part, Table
from hetplan.planner.tolerances import SLIP
from hetplan.problems.fleet.formulations import SAYS_SIZE, Found, find_prices, part_of, search_fleet
from hetplan.problems.fleet.program import form_of
from hetplan.problems.fleet.request import Application, FleetRequest
from hetplan.problems.fleet.search import MISSING, Search, is_over
from hetplan.problems.fleet.sharing import in_slices, who_may_share
from hetplan.profiles.plan_periods import machines_with_users
from hetplan.profiles.validate import validate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetplan.planner.answer import Answer
    from hetplan.planner.contract import Ask
    from hetplan.planner.fleet_part import Part
    from hetplan.planner.forms.milp import Milp
    from hetplan.planner.solver_calls import Asking
    from hetplan.profiles.plan import Claim, Plan
    from hetplan.profiles.plan_parts import Part as PlanPart
    from hetplan.profiles.workers import Worker

__all__ = [
    "PRICES",
    "ROWS",
    "apps_that_drop",
    "bounding",
    "lost_too_much",
    "part_answered",
    "sized_by_formula",
    "with_bound",
]

PRICES, ROWS = "hetplan.prices", "hetplan.rows"
"""Where a plan carries the prices that show its bound, among its extensions."""
Answered = tuple[Found, Mapping[str, Part]]
BARE: Mapping[str, Mapping[str, Any]] = {
    "variants": {"sizing": "fluid"},
    "pipeline": {"sizing": "fluid", "slo_divisor": 1.0},
}
MAY_DROP = ("pool", *BARE)
MOST = 10_000
"""So many machines of each hardware are more than anybody needs."""
NEXT_TO_NONE = 1e-6
"""An application of which next to nothing must be answered is asked for this part of its rate."""


def sized_by_formula(wish: FleetRequest) -> tuple[str, ...]:
    """Applications for which more machines are looked for than their program asks for."""
    return tuple(name for name, question in _played(wish).items() if question in BARE)


def apps_that_drop(wish: FleetRequest) -> tuple[str, ...]:
    """Applications sized by simulation that may drop late queries, or send some where they are late on purpose."""
    apps, found = wish.request.apps, list[str]()
    for name, question in _played(wish).items():
        drops = question in MAY_DROP and apps[name].min_answered_share < 1.0
        if drops or (question in BARE and apps[name].min_attainment < 1.0):
            found.append(name)
    return tuple(found)


def _played(wish: FleetRequest) -> dict[str, str]:
    """The questions of applications that are sized by more than their programs."""
    if wish.options.sizing == "fluid":
        return {}
    said = {name for name, own in wish.options.parts.items() if own.keys() & SAYS_SIZE}
    return {app.name: app.question for app in wish.apps if app.name not in said}


def with_bound(best: Answered, wish: FleetRequest, parts: Mapping[str, Part], ask: Ask) -> Answered:
    """A plan's fleet with a lower bound on the cost of all fleets: of a relaxation without queueing or late queries.

    Without parts, or time, there is none: then the bound is one of fleets that have the room that a formula asks for,
    and those who drop are free.
    """
    mine, drop = sized_by_formula(wish), apps_that_drop(wish)
    found = replace(best[0], formula=mine)
    free = replace(found, shown=found.shown.without(drop))
    if (mine or drop) and parts and not is_over(ask):
        bare = {name: _bare(part) if name in mine else part for name, part in parts.items()}
        bare |= {name: _dropping(wish, part) for name, part in bare.items() if name in drop}
        with suppress(Interrupted):
            least = search_fleet(wish, bare, ask, settle=False, foresee=False)
            if isinstance(least, Found) and not is_over(ask):
                free = replace(found, shown=least.shown, formula=())
    return free, best[1]


def _bare(part: Part) -> Part:
    """The same by service times alone."""
    if isinstance(part, Cone):
        return part.bare or part
    return part.without_answers(options={**part.options, **BARE[part.question]}) if isinstance(part, Table) else part


def _dropping(wish: FleetRequest, part: Part) -> Part:
    """The same, as few answered as may be."""
    if isinstance(part, Cone):
        return part.dropping or part
    if not isinstance(part, Table):
        return part
    least = {name: part_answered(wish, part) * one for name, one in (part.members or {part.app: 1.0}).items()}
    return part.without_answers(members=least)


def part_answered(wish: FleetRequest, part: Table) -> float:
    """Of what machines do where every query is in time, what they do at least where late ones need none."""
    if part.app not in apps_that_drop(wish):
        return 1.0
    files = part.files(1.0, dict.fromkeys(part.hardware, (0, MOST)), None)
    if part.question != "pipeline":
        return NEXT_TO_NONE
    room = "hetplan.problems.pipeline"
    request = import_module(f"{room}.request")
    options = validate(request.ConfigOptions, {**part.options, **BARE["pipeline"]}, file="options")
    (tree,) = request.read_pipelines(files, options).trees
    part_of = import_module(f"{room}.bounds").part_answered
    return max(float(part_of(wish.request.apps[part.app], tree)), NEXT_TO_NONE)


MOST_PROVED = 2_000
"""So many programs are proved of a plan at most: the hours of a week of ten applications, most in a few ms."""
KEPT = 1e-6
"""A plan's machines carry what they are for but for so much of it: digits of a file."""


def bounding(wish: FleetRequest, tools: Tools, claim: Claim, plan: Plan) -> Sequence[Bounding]:
    """The least cost of all fleets, by prices; of a restriction nothing is known, nor of other goals."""
    known = (claim.about, claim.sense) == ("cost_per_hour", "min") and claim.scope in ("problem", "relaxation")
    if not known or wish.most is not None:
        return []
    if claim.bound is not None and claim.bound <= 0.0:  # no prices are needed: nothing costs less than none
        return [Bounding(split=Split(lambda _: 0.0, lambda _: 0.0))]
    priced_by = _Priced(wish, tools, plan)
    rows = plan.extensions.get(ROWS)
    if isinstance(rows, Mapping):
        return [Bounding(form=priced_by.program(rows), scale=1.0 / (wish.hours * wish.periods))]
    return [Bounding(split=Split(priced_by.bound_of_plan_prices, priced_by.bound_of_new_prices))]


def lost_too_much(wish: FleetRequest, tools: Tools, plan: Plan) -> Iterator[tuple[str, str]]:
    """Where those who share machines carry too little without the single machines that hold most of them, and why."""
    single = [one for one in wish.situations if one.hardware is not None]
    known = _Priced(wish, tools, plan)
    if not single:
        return
    for app in (app for app in wish.apps if app.name in known.together and known.has_cone(app)):
        if app.name not in known.wish.slices:
            yield "method.options", f"{app.name} shares machines, and the plan's options say that it does not"
    for number, period in enumerate(plan.periods):
        for app in (app for app in known.wish.apps if app.name in known.wish.slices):
            served = [part for name in period.parts or () if app.name in (part := known.plan_parts[name]).rate_qps]
            for lost in single if served else ():
                cone, wanted = cast(Cone, known.parts[app.name]), app.rates[number] * lost.keep
                left = known.machines(app.name, served[0])
                most = sorted(known.on_one(app.name, served[0], lost.hardware or ""), reverse=True)
                if lost.hardware in left:
                    left[lost.hardware] -= sum(most[: lost.count])
                carried = cone.max_rate([left.get(hardware, 0.0) for hardware in cone.hardware])
                if carried < wanted * (1.0 - KEPT):
                    text = (
                        f"without the machines that it has most of, {app.name} carries {carried:.6g} qps, and "
                        f"{wanted:g} are kept"
                    )
                    yield f"periods.{period.id}.failures.{lost.name}", text


@dataclass(frozen=True)
class _Priced:
    """The applications of a fleet of which it is known what machines carry, beside a plan with prices."""

    asked: FleetRequest
    tools: Tools
    plan: Plan

    def bound_of_plan_prices(self, ask: Asking) -> float:
        """A lower bound on the cost per hour, from the dual prices that the plan file carries."""
        prices = self.plan.extensions.get(PRICES)
        if not isinstance(prices, list):
            raise ValueError("the plan carries no prices")
        return self.bound_at(prices, ask)

    def program(self, rows: Mapping[str, Any]) -> Milp:
        """The one program of all periods, with the rows that the plan names by their machines."""
        self._check_kept()
        search = self._search(None)
        for name, part in search.menus.parts.items():
            assert isinstance(part, Cone)
            part.know(one for one in rows.get(name, ()) if len(one) == len(part.hardware) and min(one) >= 0)
        return form_of(search)

    def bound_of_new_prices(self, ask: Asking) -> float:
        """A lower bound on the cost per hour, from dual prices that are computed again."""
        search = self._search(ask)
        each = search.over(search.equal_periods)
        like = each.over(each.groups)
        if not like.begin():
            raise ValueError("no machines are found for it")
        find_prices(search, each, like)
        return self.bound_at(each.plan_prices(search.equal_periods), ask)

    def bound_at(self, prices: Sequence[Any], ask: Asking) -> float:
        """A lower bound on the cost per hour of all fleets, at these dual prices."""
        self._check_kept()
        wish, search = self.wish, self._search(cast("Asking", _Proving(ask)))
        duals = np.zeros(len(search.bare.row_lower))
        for p, hourly in enumerate(self._hourly(prices, search)):
            duals[search.rows_of(p)] = hourly * wish.length(p)
        total, _ = search.worth(duals)
        if not math.isfinite(total):
            raise ValueError("its prices bound nothing")
        return max(total, 0.0) / (wish.hours * wish.periods) * (1.0 - SLIP)  # nothing costs less than none

    def _search(self, ask: Asking | None) -> Search:
        """The programs of those whose machines have prices; refused where nobody's have."""
        if not self.wish.apps:
            free = ", ".join(app.name for app in self.asked.apps)
            raise ValueError(
                f"no application bounds the fleet; counted as free are {free}, of which it is not known what their "
                "machines carry, or who shares these"
            )
        drop = apps_that_drop(self.asked)
        parts = {
            name: getattr(one, "dropping", None) or one if name in drop else one for name, one in self.parts.items()
        }
        return Search.of(self.wish, parts, cast("Ask", ask))

    def _hourly(self, prices: Sequence[Any], search: Search) -> Iterator[NDArray[np.float64]]:
        """Of each period the prices per hour of machines of each offer, and of each limit."""
        offers = [offer.name for offer in self.wish.offers]
        limits = [f"{limit.name}[{limit.label}]" for limit in search.limits]
        for p in range(self.wish.periods):
            try:
                (mine,) = (one for one in prices if f"p{p}" in one["periods"])
                machines = [float(mine["machines"].get(name, 0.0)) for name in offers]
                said = {str(name): float(price) for name, price in mine["limits"].items()}
            except (KeyError, TypeError, ValueError, AttributeError):
                raise ValueError(f"the plan carries no prices of p{p} that can be read") from None
            if not all(0.0 <= one <= MISSING for one in machines) or not all(map(math.isfinite, said.values())):
                raise ValueError(f"the prices of p{p} are none")
            if unknown := [name for name in said if name not in limits]:
                raise ValueError(f"it prices {unknown[0]}, which the files do not limit")
            yield np.array([*machines, *(said.get(name, 0.0) for name in limits)])

    @cached_property
    def _known(self) -> tuple[FleetRequest, Mapping[str, Part]]:
        """The wish of these applications at the rates that are bounded, with slices, and their parts."""
        wish, tools = self.asked, self.tools
        found = {app.name: part_of(wish, app, tools) for app in wish.apps}
        sliced, parts = in_slices(wish, found, tools)
        free = {app.name for app in who_may_share(sliced, parts)} | {*self.together} - sliced.slices.keys()
        alone = {app.name: self._carrying(app, parts[app.name]) for app in wish.apps if app.name not in free}
        known = {name: one for name, one in alone.items() if one is not None}
        apps = tuple(self._planned(app) for app in wish.apps if app.name in known)
        return replace(sliced, apps=apps), known

    def _carrying(self, app: Application, part: Part) -> Cone | None:
        """What says how much machines carry of an application, or slices; None where nothing does."""
        if not isinstance(part, Cone) or not (self.has_cone(app) or app.question == "variants"):
            return None
        if (bare := part.bare) is None:
            return part
        return replace(part, most=bare.most, anew=bare.anew, dropping=bare.dropping, known={}, cuts={})

    @property
    def wish(self) -> FleetRequest:
        """See `_known`."""
        return self._known[0]

    @property
    def parts(self) -> Mapping[str, Part]:
        """See `_known`."""
        return self._known[1]

    @property
    def plan_parts(self) -> Mapping[str, PlanPart]:
        """The plan's parts."""
        return self.plan.parts or {}

    @cached_property
    def together(self) -> frozenset[str]:
        """Applications with machines that others use too: in one part, or by workers of one name in several."""
        runs = [names for one in self.plan.periods for names in (one.parts or (), *(one.failures or {}).values())]
        groups = [part.rate_qps for part in self.plan_parts.values()]
        groups += [
            dict.fromkeys(users, 0.0)
            for names in runs
            for _, users in machines_with_users(self.plan_parts[name] for name in names)
        ]
        return frozenset(app for group in groups if len(group) > 1 for app in group)

    def has_cone(self, app: Application) -> bool:
        """Whether a program says what machines carry of it, where its options ask for one: of text, of one model."""
        models = self.asked.request.apps[app.name].variants
        return app.question == "llm" or (app.question == "pool" and len(models) == 1)

    def _planned(self, app: Application) -> Application:
        """The application at no more than the plan's machines are for: more is no part of what it answers."""
        more, rates = 1.0 + self.asked.options.headroom, list[float]()
        for rate, period in zip(app.rates, self.plan.periods, strict=True):
            planned = sum(self.plan_parts[name].rate_qps.get(app.name, 0.0) for name in period.parts or ())
            rates.append(min(rate, planned / more))
        return replace(app, rates=tuple(rates))

    def _check_kept(self) -> None:
        """That the plan's own machines carry what they are for, with all that its options keep free beside it."""
        for name, part in self.plan_parts.items():
            for app in part.rate_qps:
                cone, stated = self.parts.get(app), self.asked.options
                if not isinstance(cone, Cone):
                    continue
                # With `simulation` a part is sized otherwise than its bound, by less than it is played with.
                asked = stated.parts.get(app, {}) if stated.sizing == "simulation" else cone.options
                if any(part.method.options.get(key) != value for key, value in asked.items()):
                    raise ValueError(f"part {name} was asked otherwise than the plan's options say")
                if part.rate_qps[app] > 0.0:
                    machines = self.machines(app, part)
                    carried = cone.max_rate([machines.get(hardware, 0.0) for hardware in cone.hardware])
                    if carried < part.rate_qps[app] * (1.0 - KEPT):
                        raise ValueError(f"part {name} keeps less free than the plan's options say")

    def machines(self, app: str, part: PlanPart) -> dict[str, float]:
        """What an application has in a part of each hardware: machines, or slices of those that are shared."""
        found = Counter[str]()
        for worker in part.workers:
            found[worker.hardware] += worker.count * self._held_on(app, worker)
        return {hardware: float(count) for hardware, count in found.items()}

    def on_one(self, app: str, part: PlanPart, hardware: str) -> Iterator[int]:
        """What each machine of a hardware has of an application."""
        for worker in (one for one in part.workers if one.hardware == hardware):
            yield from [self._held_on(app, worker)] * worker.count

    def _held_on(self, app: str, worker: Worker) -> int:
        if worker.hardware not in self.wish.slices.get(app, {}):
            return int(any(load.app in (app, None) for load in worker.loads))
        return sum(load.instances for load in worker.loads if load.app == app)


@dataclass
class _Proving:
    """Asks one program after the other, and believes only what is proved of each."""

    ask: Asking
    left: int = MOST_PROVED

    def all(self, forms: Sequence[Any], *, gap: float, about: str) -> list[Answer[Any]]:
        """The answers, each with the bound that is proved; where none is, what costs nothing bounds it."""
        found = []
        for form in forms:
            self.left -= 1
            if self.left < 0:
                raise ValueError(f"more than {MOST_PROVED} programs of single applications would have to be proved")
            answer = self.ask(form, gap=gap, about=about)
            known = self.ask.record_of(answer)
            bound = known[1].certified_bound if known is not None else None
            found.append(replace(answer, bound=0.0 if bound is None else bound))
        return found

    def note(self, event: Any) -> None:
        """Nobody looks on."""

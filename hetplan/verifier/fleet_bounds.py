r"""What no fleet costs less than: the prices that a plan carries, put to every application, in the verifier's writing.

Machines of an offer are paid for ahead (R) or rented in a period (N), and no application shares one. For any prices
pi >= 0 of a machine in a period, and any prices of the limits, a fleet costs no less than

    sum over applications and periods of the cheapest machines at these prices that carry the rate, after every failure
    + the least of  sum_o cost R_o + sum_op cost N_op - sum_op pi_op (R_o + N_op)  under the limits (`_Market`)

Pools and text that share machines are bounded by slices of them: a slice is what one instance takes where a machine
holds P of any of them, and no P + 1, and costs pi / P. Costs of starting only add to it. What machines carry is bounded
by rows ``sum of w_h m_h >= rate`` (`_cuts`): of pools and of machines that make text from linear programs, whose prices
w are proved for all machines at once; of variants from what an instance serves. The cheapest whole machines are then
found by splitting (`cheapest`). Of other questions nothing is known here, and an application of theirs counts as if it
were free: the bound is true, and lower.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from highspy import Highs, HighsModelStatus, MatrixFormat, ObjSense
from scipy.sparse import csr_array

from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Claim, Period
from hetplan.profiles.plan_parts import Part
from hetplan.profiles.plan_periods import of_part
from hetplan.profiles.slo import Survive, WishLimits
from hetplan.profiles.workers import Worker
from hetplan.verifier.facts import gather, option
from hetplan.verifier.fleet_parts import IN_SLICES, Fleet, alone, lost_in, may_run, one_variant
from hetplan.verifier.llm_machine import Carried
from hetplan.verifier.pool_machine import Carrying
from hetplan.verifier.rows import EPS, NoProof, NotRebuilt, Rows
from hetplan.verifier.slices import parts_of_one
from hetplan.verifier.variants_machine import most_of_a_machine

__all__ = ["PRICES", "instances_of", "proved", "slices_of", "worst_left"]

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_Instance = tuple[Mapping[str, float], int]
"""What an instance takes of a machine, and how many of them one holds."""
PRICES = "hetplan.prices"
"""Where a plan carries its prices, among its extensions: for some periods each, of machines and of limits."""
NODES, ALL_NODES = 2000, 20_000
"""So many boxes are split at most for the cheapest machines of one application, and of all; then the bound is lower."""
ROUNDS = 12
"""So often the cheapest machines ask what they carry, which their rows may not say."""
WRONG = 1e4
"""What it costs a linear program to have zones in another order than they are looked at in."""
_WHOLE, _SAME, _KEPT, _MOST = 1e-7, 1e-9, 1e-6, 1e6


def proved(fleet: Fleet, claim: Claim, *, boxes: int = ALL_NODES) -> float:
    """The bound on the cost per hour that the plan's prices show; NoProof says why there is none.

    At most so many `boxes` of whole machines are split for it.
    """
    if (claim.about, claim.sense) != ("cost_per_hour", "min") or claim.scope not in ("problem", "relaxation"):
        raise NotRebuilt(f"nothing is known here of the {claim.sense} {claim.about} of a {claim.scope}")
    prices = list(_prices(fleet))
    slices = slices_of(fleet)
    cuts = {app: _cuts(fleet, app) for app in fleet.inputs.slo.apps}
    for app, known in cuts.items():
        if known is not None:
            parts = {name: one for name, one in fleet.parts.items() if app in one.rate_qps}
            _keeps(known, app, parts, slices.get(app, {}))
    total, more = _market(fleet, prices), 1.0 + option(fleet.plan, "headroom", 0.0)
    least: dict[tuple[object, ...], float] = {}
    left = [boxes]
    for number, (machines, _) in enumerate(prices):
        for app, rows in cuts.items():
            rate = min(fleet.rates[app][number] * more, _planned(fleet, number, app))
            key = (app, rate, tuple(machines.values()))
            if key not in least:
                each = slices.get(app, {})
                least[key] = (
                    _cheapest(fleet, rows, rate, machines, left, each) if rows is not None and rate > 0.0 else 0.0
                )
            total += fleet.hours * least[key]
    return total / (fleet.hours * len(prices)) * (1.0 - _SAME)


def _planned(fleet: Fleet, number: int, app: str) -> float:
    """The rate that the plan's own machines are for: more than that is no part of what it answers."""
    parts = (fleet.parts[name] for name in fleet.plan.periods[number].parts or ())
    return sum(part.rate_qps.get(app, 0.0) for part in parts)


def _prices(fleet: Fleet) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    """Of each period, in order: prices per hour of a machine of each offer, and of the limits."""
    limits, said = fleet.inputs.slo.limits, fleet.plan.extensions.get(PRICES)
    if not isinstance(said, list):
        raise NoProof("the plan carries no prices")
    offers = [
        name
        for name, one in fleet.inputs.profile.offers.items()
        if not limits.only_listed or one.hardware in limits.instances
    ]
    for period in fleet.plan.periods:
        try:
            (mine,) = (one for one in said if period.id in one["periods"])
            machines = {name: float(mine["machines"].get(name, 0.0)) for name in offers}
            rows = {str(name): float(price) for name, price in mine["limits"].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise NoProof(f"the plan carries no prices of {period.id} that can be read") from None
        if not all(0.0 <= price <= _MOST for price in machines.values()) or not all(map(math.isfinite, rows.values())):
            raise NoProof(f"the prices of {period.id} are none")
        yield machines, rows


# What is bought


def _market(fleet: Fleet, prices: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> float:
    """The least that machines cost beyond what they are worth at these prices, under the limits."""
    program, hours, profile = Rows("min"), fleet.hours, fleet.inputs.profile
    duals: dict[str, float] = {}
    offers = list(prices[0][0])
    sold = [name for name in offers if profile.offers[name].commit is not None]
    for name in offers:
        stock = profile.offers[name].stock
        most = _MOST if stock is None else float(stock)
        if name in sold:
            ahead = sum(fleet.price_ahead(name) - machines[name] for machines, _ in prices) * hours
            program.column(f"ahead {name}", cost=ahead, low=0.0, high=most)
        for number, (machines, _) in enumerate(prices):
            rented = (fleet.price(name) - machines[name]) * hours
            program.column(f"rented {name} in {number}", cost=rented, low=0.0, high=most)
    limits = list(_limits(fleet, offers))
    for number, (_, said) in enumerate(prices):
        for label, low, high, total, ahead_too in limits:
            terms = {f"rented {name} in {number}": amount for name, amount in total.items() if amount}
            both = {name: total.get(name, 0.0) + ahead_too.get(name, 0.0) for name in sold}
            terms |= {f"ahead {name}": amount for name, amount in both.items() if amount}
            program.row(f"{label} in {number}", terms, low=low, high=high)
        duals |= {f"{label} in {number}": price * hours for label, price in said.items()}
    return program.bound(duals)


def _limits(
    fleet: Fleet, offers: Sequence[str]
) -> Iterator[tuple[str, float, float, Mapping[str, float], Mapping[str, float]]]:
    """Each limit of a period: its name and ends, amounts of each machine, and what is added for one paid ahead."""
    profile, limits = fleet.inputs.profile, fleet.inputs.slo.limits
    sold, inf, none = {name: profile.offers[name] for name in offers}, math.inf, dict[str, float]()
    gives = {name: profile.hardware[one.hardware].provides for name, one in sold.items()}
    for name, one in sold.items():
        if one.stock is not None:
            yield f"stock[{name}]", -inf, float(one.stock), {name: 1.0}, none
    for zone, held in profile.zones.items():
        for resource, amount in held.quota.items():
            mine = [name for name, one in sold.items() if one.zone == zone]
            takes = {name: 1.0 if resource == "machines" else gives[name].get(resource, 0.0) for name in mine}
            yield f"quota[{resource} in {zone}]", -inf, amount, takes, none
    for resource, amount in limits.resources.items():
        yield f"resources[{resource}]", -inf, amount, {name: gives[name].get(resource, 0.0) for name in offers}, none
    for hardware, (least, most) in limits.instances.items():
        those = {name: 1.0 for name, one in sold.items() if one.hardware == hardware}
        if most is not None:
            yield f"most[{hardware}]", -inf, float(most), those, none
        if least:
            yield f"least[{hardware}]", float(least), inf, those, none
    if limits.cost_per_hour is not None:
        saved = {name: fleet.price_ahead(name) - fleet.price(name) for name, one in sold.items() if one.commit}
        yield "budget[hour]", -inf, limits.cost_per_hour / NANO, {name: fleet.price(name) for name in offers}, saved
    for kind, limit in limits.offers.items():
        spot = {name: float(one.interruptions_per_hour is not None) for name, one in sold.items()}
        total = {
            "committed": none,
            "spot": spot,
            "on-demand": {name: 1.0 - amount for name, amount in spot.items()},
        }.get(kind, {kind: 1.0})
        ahead = dict.fromkeys(offers, 1.0) if kind == "committed" else none
        if limit.most is not None or limit.least:
            yield f"offers[{kind}]", float(limit.least), inf if limit.most is None else float(limit.most), total, ahead
        if limit.share is not None:
            low, high = limit.share
            less = {name: total.get(name, 0.0) - low for name in offers}
            yield f"share[{kind} at least]", 0.0, inf, less, ahead
            less = {name: total.get(name, 0.0) - high for name in offers}
            yield f"share[{kind} at most]", -inf, 0.0, less, ahead


# What machines carry


@dataclass
class _Cuts:
    """What machines of an application carry: no more than the sum of their rates, by each of `found`.

    A `cone` is the linear program whose prices they are; more are taken from it where machines ask for them.
    """

    found: list[dict[str, float]]
    cone: Any = None
    share: float = 1.0

    def add(self, machines: Mapping[str, float]) -> bool:
        """The prices of the linear program for these machines, proved for all; whether they are new."""
        whole = sum(machines.get(name, 0.0) for name in self.cone.hardware)
        if whole <= 0.0:
            return False
        given = {name: machines.get(name, 0.0) / whole for name in self.cone.hardware}
        duals = self.cone.program({}, given).multipliers()
        prices = {name: max(duals.pop(f"machines[{name}]", 0.0), 0.0) for name in self.cone.hardware}
        # Of one machine in all, whichever it is: what is left over the prices is added to each of them.
        over = max(self.cone.program(prices, None).bound(duals), 0.0)
        made = {name: (price + over) * self.share for name, price in prices.items()}
        if any(all(one[name] <= made[name] * (1.0 + 1e-6) + 1e-6 for name in made) for one in self.found):
            return False
        self.found.append(made)
        return True

    def carried(self, machines: Mapping[str, float]) -> float:
        """The most that these machines carry, by the prices known."""
        return min(sum(one.get(name, 0.0) * n for name, n in machines.items()) for one in self.found)


def _cuts(fleet: Fleet, app: str) -> _Cuts | None:
    """What machines carry of an application; None where nothing is known here of its question."""
    served = {name: part for name, part in fleet.parts.items() if app in part.rate_qps}
    shared = [part for part in served.values() if len(part.rate_qps) > 1 and part.question not in IN_SLICES]
    if not served or shared:  # an application that shares machines counts as free, unless it does so in slices
        return None
    name, part = next(iter(served.items()))
    part = _alone_in(part, app)
    wish = fleet.inputs.slo
    may = [one for one, variant in fleet.inputs.profile.variants.items() if may_run(wish.apps[app], one, variant)]
    files = alone(fleet.inputs, part)
    free = WishLimits(currency=wish.limits.currency, survive=Survive())
    files = replace(files, slo=files.slo.model_copy(update={"limits": free}))
    plan = of_part(fleet.plan, name).model_copy(update={"workers": part.workers})
    planned = plan.method.options.get("size") == "planned"
    try:
        if part.question == "variants":
            return _Cuts([most_of_a_machine(plan, files, app)])
        if part.question == "pool" and len(may) == 1:
            cuts = _Cuts([], Carrying(gather(plan, one_variant(files, part)), planned=planned))
            cuts.share = option(plan, "derate", 1.0) if planned else 1.0
        elif part.question == "llm":
            error = 1.5 if planned and plan.method.options.get("law_error", True) else 0.0
            strict = planned and not plan.method.options.get("sacrifice")
            cuts = _Cuts([], Carried(gather(plan, files), error, strict=strict))
            cuts.share = 1.0 / (1.0 + option(plan, "rate_headroom", 0.0)) if planned else 1.0
        else:
            return None
        cuts.add(dict.fromkeys(cuts.cone.hardware, 1.0))
    except NoProof:
        return None
    return cuts if cuts.found else None


def _alone_in(part: Part, app: str) -> Part:
    """A part with the loads of one application, as far as it has several."""
    if len(part.rate_qps) == 1:
        return part
    own = ((one, tuple(load for load in one.loads if load.app == app)) for one in part.workers)
    workers = tuple(one.model_copy(update={"loads": loads}) for one, loads in own if loads)
    return part.model_copy(update={"workers": workers, "rate_qps": {app: part.rate_qps[app]}})


def slices_of(fleet: Fleet) -> dict[str, dict[str, int]]:
    """Of each pool, or text, that shares machines: how many of its instances are a machine of some hardware.

    A hardware is shared by all of them, where places say what fits of all; else by those of one question: of that of
    which some do, where there are two.
    """
    parts = fleet.sharers
    seen = {app: instances_of(fleet, name, app) for app, name in parts.items()}
    found: dict[str, dict[str, int]] = {app: {} for app in seen}
    for hardware, machine in fleet.inputs.profile.hardware.items():
        there = {app: own[hardware] for app, own in seen.items() if hardware in own}
        ways: dict[str, dict[str, _Instance]] = {}
        for question in ("", *IN_SLICES):
            mine = {app: one for app, one in there.items() if question in ("", fleet.parts[parts[app]].question)}
            needs, rooms = [needs for needs, _ in mine.values()], [room for _, room in mine.values()]
            if len(mine) > 1 and parts_of_one(machine.provides, needs, rooms) > 1:
                ways[question] = mine
        chosen = [""] if "" in ways else [one for one in ways if _is_shared(fleet, one, hardware)] or ways
        for app, (_, room) in ((app, one) for question in chosen for app, one in ways[question].items()):
            found[app][hardware] = room
    return found


def instances_of(fleet: Fleet, name: str, app: str) -> dict[str, _Instance]:
    """What an instance takes of a machine of each hardware, and how many it holds: where all of them take the same."""
    part = _alone_in(fleet.parts[name], app)
    files, free = alone(fleet.inputs, part), WishLimits(currency=fleet.inputs.slo.limits.currency, survive=Survive())
    files = replace(files, slo=files.slo.model_copy(update={"limits": free}))
    plan = of_part(fleet.plan, name).model_copy(update={"workers": part.workers})
    kinds: list[tuple[str, _Instance]]
    if part.question == "pool":
        pools = Carrying(gather(plan, one_variant(files, part)), planned=True).kinds
        kinds = [(one.hardware, (one.run.needs, one.instances)) for one in pools if one.run.price_per_hour is None]
    else:
        types = Carried(gather(plan, files), 0.0, strict=False).types
        kinds = [(one.seat.worker.hardware, (one.needs, one.instances)) for one in types]
    times = Counter(hardware for hardware, _ in kinds)
    return {hardware: one for hardware, one in kinds if times[hardware] == 1}


def _is_shared(fleet: Fleet, question: str, hardware: str) -> bool:
    """Whether a machine of a hardware has several applications of a question."""
    workers = (worker for part in fleet.parts.values() if part.question == question for worker in part.workers)
    return any(one.hardware == hardware and len({load.app for load in one.loads}) > 1 for one in workers)


def _keeps(cuts: _Cuts, app: str, parts: Mapping[str, Part], slices: Mapping[str, int]) -> None:
    """That the plan's own machines carry what they are for, with all that its options keep free beside it."""
    for name, part in parts.items():
        machines: dict[str, float] = {}
        for worker in _alone_in(part, app).workers:
            share = worker.count * _held(worker, slices)
            machines[worker.hardware] = machines.get(worker.hardware, 0.0) + share
        if cuts.cone is not None and cuts.carried(machines) >= part.rate_qps[app] * (1.0 - _KEPT):
            cuts.add(machines)
        if cuts.carried(machines) < part.rate_qps[app] * (1.0 - _KEPT):
            raise NoProof(f"part {name} keeps less free than its options say")


def worst_left(fleet: Fleet) -> Iterator[tuple[Period, str, str, float, float]]:
    """Who shares machines, and carries too little without those single machines that hold most of its instances.

    Of each the period, the failure, the application, the most that is carried then, and what is to be kept.
    """
    single = {name: lost for name, lost in lost_in(fleet).items() if isinstance(lost, tuple)}
    apps = set(fleet.sharers) if single else set[str]()
    slices = slices_of(fleet) if apps else {}
    cuts = {app: known for app in sorted(apps) if (known := _cuts(fleet, app)) is not None}
    for number, period in enumerate(fleet.plan.periods):
        serves = {app: fleet.parts[name] for name in period.parts or () for app in fleet.parts[name].rate_qps}
        for app in (app for app in cuts if app in serves):
            wanted = fleet.rates[app][number] * fleet.inputs.slo.limits.survive.keep
            for name, (hardware, less) in single.items():
                left = _without(_alone_in(serves[app], app), slices.get(app, {}), hardware, less)
                if cuts[app].carried(left) >= wanted * (1.0 - _KEPT):
                    cuts[app].add(left)
                if (carried := cuts[app].carried(left)) < wanted * (1.0 - _KEPT):
                    yield period, name, app, carried, wanted


def _without(part: Part, slices: Mapping[str, int], hardware: str, less: int) -> dict[str, float]:
    """Machines of each hardware that an application has, parts of them too, but those of one that it has most of."""
    found: dict[str, float] = {}
    single = list[float]()
    for one in part.workers:
        found[one.hardware] = found.get(one.hardware, 0.0) + one.count * _held(one, slices)
        single += [_held(one, slices)] * (min(one.count, less) if one.hardware == hardware else 0)
    lost = sum(sorted(single, reverse=True)[:less])
    return {name: share - lost * (name == hardware) for name, share in found.items()}


def _held(worker: Worker, slices: Mapping[str, int]) -> float:
    """How much of a machine the instances on it are."""
    held = sum(load.instances for load in worker.loads)
    return held / slices[worker.hardware] if worker.hardware in slices else 1.0


# The cheapest whole machines


def _cheapest(
    fleet: Fleet, cuts: _Cuts, rate: float, machines: Mapping[str, float], left: list[int], slices: Mapping[str, int]
) -> float:
    """No machines that carry a rate, and what is kept of it after each failure, cost less than this per hour."""
    offers, sold, keep = list(machines), fleet.inputs.profile.offers, fleet.inputs.slo.limits.survive.keep
    # Of single machines that are lost nothing is said here: what they leave is at most all.
    situations: list[tuple[set[str], float]] = [(set(), 1.0)]
    situations += [(lost, keep) for lost in lost_in(fleet).values() if isinstance(lost, set)]
    each = np.array([float(slices.get(sold[name].hardware, 1)) for name in offers])
    stock = each * [_MOST if sold[name].stock is None else float(sold[name].stock or 0) for name in offers]
    prices, best = np.array(list(machines.values())) / each, 0.0
    alike = [(sold[name].hardware, float(price)) for name, price in machines.items()]
    groups = [*{one[0] for one in alike}, *dict.fromkeys(alike)]
    sums = np.array([[float(group in (one, one[0])) for one in alike] for group in sorted(groups, key=str)])
    for _ in range(ROUNDS):
        rows: dict[tuple[float, ...], float] = {}
        for cut in cuts.found:
            rates = np.array([cut.get(sold[name].hardware, 0.0) for name in offers]) / each
            small = rates < 1e-6 * rates.max(initial=0.0)
            for gone, kept in situations:
                row = tuple(0.0 if name in gone else rate for name, rate in zip(offers, rates * ~small, strict=True))
                need = rate * kept * (1.0 - _SAME) - float(rates[small] @ stock[small])
                rows[row] = max(rows.get(row, 0.0), need)
        matrix, wanted, order = np.array(list(rows)), np.array(list(rows.values())), _order(fleet, offers, prices, rows)
        bound, point = cheapest(prices, matrix, wanted, stock, order=order, sums=sums, left=left)
        best = max(best, bound)
        if point is None or cuts.cone is None:
            return best
        more = False
        for gone, kept in situations:
            there: dict[str, float] = {}
            for name, n in zip(offers, point / each, strict=True):
                if n and name not in gone:
                    there[sold[name].hardware] = there.get(sold[name].hardware, 0.0) + float(n)
            if kept > 0.0 and cuts.carried(there) >= rate * kept * (1.0 - _SAME):
                more |= cuts.add(there)
        if not more:
            return best
    return best


def _order(fleet: Fleet, offers: Sequence[str], prices: Floats, rows: Mapping[tuple[float, ...], float]) -> Floats:
    """Rows by which zones that may change places do not: what each has is no less, in some order, than the next has."""
    sold = fleet.inputs.profile.offers
    zones = sorted({one.zone for one in sold.values() if one.zone is not None})

    def kind(place: int) -> tuple[object, ...]:
        one = sold[offers[place]]
        return one.hardware, one.interruptions_per_hour is not None, str(one.stock), float(prices[place])

    mine = [sorted((n for n, name in enumerate(offers) if sold[name].zone == zone), key=kind) for zone in zones]
    found = []
    for first, second in pairwise(mine):
        to = np.arange(len(offers))
        if list(map(kind, first)) != list(map(kind, second)):
            continue
        to[first], to[second] = second, first
        if {tuple(row[n] for n in to): need for row, need in rows.items()} == dict(rows):
            line = np.zeros(len(offers))
            weights = 1.0 + np.arange(len(first)) / (1.0 + len(first))
            line[first], line[second] = weights, -weights
            found.append(line)
    return np.array(found).reshape(len(found), len(offers))


class _Cover:
    """The least prices @ x with rows @ x >= need; `freely` are rows that may be missed, which costs `WRONG`.

    An engine holds the program from box to box, and looks on from the point that it found last. What it says of a box
    is a hint: the bound comes from its prices by arithmetic here.
    """

    def __init__(self, prices: Floats, rows: Floats, need: Floats, freely: Floats) -> None:
        self.prices, self.need, self.lines = prices, need, np.vstack([rows, freely])
        count, width = self.lines.shape
        missed = np.concatenate([np.zeros(len(rows)), np.ones(len(freely))])[:, None]
        held = csr_array(np.hstack([self.lines, missed]))
        open_ended = np.full(count, np.inf)
        self.columns = np.arange(width, dtype=np.int32)
        self.freely = np.arange(len(rows), count, dtype=np.int32)
        self.engine: Any = Highs()
        self.engine.setOptionValue("output_flag", False)
        self.engine.setOptionValue("threads", 1)
        self.engine.setOptionValue("presolve", "off")
        self.engine.passModel(
            width + 1, count, held.nnz, int(MatrixFormat.kRowwise), int(ObjSense.kMinimize), 0.0,
            np.append(prices, WRONG), np.zeros(width + 1), np.full(width + 1, np.inf),
            np.concatenate([need, -open_ended[len(rows) :]]), open_ended,
            held.indptr.astype(np.int32), held.indices.astype(np.int32), held.data, np.zeros(width + 1, dtype=np.int32),
        )  # fmt: skip

    def least(self, low: Floats, high: Floats, least: Floats) -> tuple[float, Floats]:
        """A bound on those in a box with freely @ x >= least, and the point of the linear program."""
        self.engine.changeColsBounds(self.columns.size, self.columns, low, high)
        self.engine.changeRowsBounds(self.freely.size, self.freely, least, np.full(least.size, np.inf))
        self.engine.run()
        if self.engine.getModelStatus() != HighsModelStatus.kOptimal:
            self.engine.clearSolver()
            return float(self.prices @ low) * (1.0 - _SAME), low + 0.5
        solution = self.engine.getSolution()
        wanted = np.concatenate([self.need, least])
        y = np.where(np.isfinite(wanted), np.maximum(solution.row_dual, 0.0), 0.0)
        left = self.prices - y @ self.lines
        off = EPS * (len(y) + 3) * (np.abs(self.prices) + y @ np.abs(self.lines))
        worst = np.minimum(np.minimum((left - off) * low, (left - off) * high), (left + off) * high)
        parts = np.concatenate([y * np.where(np.isfinite(wanted), wanted, 0.0), worst])
        bound = float(parts.sum() - EPS * (parts.size + 4) * 2.0 * np.abs(parts).sum())
        return bound, np.array(solution.col_value[:-1])


def cheapest(
    prices: Floats,
    rows: Floats,
    need: Floats,
    stock: Floats,
    *,
    order: Floats | None = None,
    sums: Floats | None = None,
    left: list[int] | None = None,
) -> tuple[float, Floats | None]:
    """The least prices @ x over whole x >= 0, at most the stock, with rows @ x >= need, and x where it was found.

    `order` may be said of some cheapest x: order @ x >= 0. Boxes are split where a linear program is between whole
    numbers, of the `sums` of machines first, the least box first; each is bounded by its prices, whatever the program
    says of them. `left` counts how many more may be split.

    >>> cheapest(np.array([1.0, 0.3]), np.array([[5.0, 1.0]]), np.array([7.0]), np.array([9.0, 9.0]))[0].__round__(6)
    1.6
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        # More than one row ever asks of a machine alone is never needed of it.
        enough = np.where(rows > 0.0, np.ceil(need[:, None] / rows), 0.0).max(axis=0)
    top = np.minimum(stock, np.maximum(enough, 0.0))
    kept = top > 0.0
    rows, high = rows[:, kept], top[kept]
    if (rows @ high < need * (1.0 - _SAME)).any():
        return math.inf, None
    none = np.zeros((0, top.size))
    order, sums = (none if order is None else order)[:, kept], (none if sums is None else sums)[:, kept]
    rows, need = _rounded(rows, need)
    cover = _Cover(prices[kept], rows, need, np.vstack([order, sums, -sums]))
    whole = np.vstack([sums, np.eye(high.size)])
    number, first, ties = count(), np.concatenate([np.zeros(len(sums)), np.zeros_like(high)]), np.zeros(len(order))
    last = np.concatenate([np.full(len(sums), np.inf), high])

    def box(low: Floats, high: Floats) -> tuple[float, Floats]:
        sides = np.concatenate([ties, low[: len(sums)], -high[: len(sums)]])
        return cover.least(low[len(sums) :], high[len(sums) :], sides)

    bound, point = box(first, last)
    waiting = [(bound, next(number), point, first, last)]
    left = [NODES] if left is None else left
    for _ in range(min(NODES, max(left[0], 1))):
        left[0] -= 1
        if not waiting:
            return math.inf, None
        bound, _, point, first, last = heapq.heappop(waiting)
        values = whole @ point
        between = np.abs(values - np.rint(values))
        if between.max(initial=0.0) <= _WHOLE:
            found = np.zeros_like(top)
            found[kept] = np.rint(point)
            return bound, found
        of_sums = between[: len(sums)].max(initial=0.0) > _WHOLE
        at = int(np.argmax(between[: len(sums)] if of_sums else between))
        for more in (False, True):
            low, high = first.copy(), last.copy()
            if more:
                low[at] = math.floor(values[at]) + 1.0
            else:
                high[at] = math.floor(values[at])
            if (rows @ high[len(sums) :] >= need * (1.0 - _SAME)).all():
                below, inside = box(low, high)
                heapq.heappush(waiting, (max(bound, below), next(number), inside, low, high))
    return (waiting[0][0] if waiting else math.inf), None


def _rounded(rows: Floats, need: Floats) -> tuple[Floats, Floats]:
    """The rows, and what follows from each for whole numbers: divided by one of its numbers, and rounded up."""
    more, wanted = [rows], [need]
    for place in range(rows.shape[1]):
        mine = rows[:, place] > 0.0
        divisor = rows[mine, place]
        more.append(np.ceil(rows[mine] / divisor[:, None]))
        wanted.append(np.ceil(need[mine] / divisor * (1.0 - _SAME)))
    both = np.unique(np.column_stack([np.concatenate(more), np.concatenate(wanted)]), axis=0)
    return both[:, :-1], both[:, -1]

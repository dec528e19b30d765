"""Each line of a fleet's bill, recomputed from the machines that run and those that are paid for; and their sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hetplan.profiles.plan import Period
from hetplan.profiles.plan_parts import BillLine
from hetplan.verifier.fleet_parts import Fleet, is_same
from hetplan.verifier.report import Violation

__all__ = ["check_bill"]


def check_bill(fleet: Fleet) -> Iterator[Violation]:
    """Each line, from the machines that run and those that are paid for; and their sums."""
    bill, idle, starts = fleet.plan.bill, 0.0, 0.0
    assert bill is not None
    keys = Counter((line.period, line.offer, line.app) for line in bill.lines)
    for key in (key for key, times in keys.items() if times > 1):
        yield Violation("bill", "bill.lines", f"two lines of {key[1]} for {key[2] or 'nobody'} in {key[0]}")
    for number, period in enumerate(fleet.plan.periods):
        mine = [line for line in bill.lines if line.period == period.id]
        idle += sum(line.cost_per_hour for line in mine if line.app is None)
        starts += sum(line.starts_per_hour for line in mine)
        if number == 0 and fleet.inputs.state is not None and len(fleet.plan.periods) > 1:
            continue  # The first time it follows what runs: `fleet` checks what that costs in all.
        for offer in dict.fromkeys(line.offer for line in mine):
            starting = _starting(fleet, number, offer)
            lines = {line.app: line for line in mine if line.offer == offer}
            for app, wanted in _lines_by_app(fleet, period, offer, starting).items():
                if app not in lines or not all(map(is_same, _figures(lines[app]), wanted)):
                    text = f"{offer} for {app or 'nobody'} in {period.id} is not what its machines come to"
                    yield Violation("bill", "bill.lines", text)
    count = len(fleet.plan.periods)
    for field, stated, found in (
        ("idle_per_hour", bill.idle_per_hour, idle / count),
        ("starts_per_hour", bill.starts_per_hour, starts / count),
    ):
        if not is_same(stated, found):
            yield Violation("bill", f"bill.{field}", f"{stated:.9g}, and its lines are {found:.9g}")
    if bill.currency != fleet.inputs.slo.limits.currency:
        yield Violation("bill", "bill.currency", f"{bill.currency}, and prices are in another")
    yield from _check_levers(fleet)


def _figures(line: BillLine) -> tuple[float, float, float, float]:
    return line.committed, line.rented, line.cost_per_hour, line.starts_per_hour


def _starting(fleet: Fleet, number: int, offer: str) -> float:
    """What machines of an offer cost per hour of a period while they start."""
    if len(fleet.plan.periods) == 1:
        return 0.0
    ahead = fleet.ahead.get(offer, 0)
    before, now = (max(fleet.totals[fleet.plan.periods[at].id][offer] - ahead, 0.0) for at in (number - 1, number))
    return fleet.start_cost(offer, before, now) / fleet.hours


def _lines_by_app(
    fleet: Fleet, period: Period, offer: str, starting: float
) -> dict[str | None, tuple[float, float, float, float]]:
    """Machines paid ahead and rented, all that they cost, and what of it is for starting: by application."""
    used = {app: counts[offer] for app, counts in fleet.shares(period.parts or ()).items() if counts.get(offer)}
    total, ahead = round(sum(used.values()), 6), fleet.ahead.get(offer, 0)
    by_the_hour = max(total - ahead, 0)
    dear, cheap = fleet.price(offer), fleet.price_ahead(offer) if ahead else 0.0
    found: dict[str | None, tuple[float, float, float, float]] = {}
    for app, count in used.items():
        own, rented, part = (amount * count / total for amount in (min(ahead, total), by_the_hour, starting))
        part = part if by_the_hour else 0.0
        found[app] = (own, rented, own * cheap + rented * dear + part, part)
    idle = max(ahead - total, 0)
    spare = max(fleet.totals[period.id][offer] - max(total, ahead), 0.0)
    left = 0.0 if by_the_hour else starting
    if idle or spare or left:
        found[None] = (float(idle), spare, idle * cheap + spare * dear + left, left)
    return found


def _check_levers(fleet: Fleet) -> Iterator[Violation]:
    """Nobody plans the other ways again to see what they cost; the last is this plan, and what each saves follows."""
    bill, before = fleet.plan.bill, None
    assert bill is not None
    if bill.levers and not is_same(bill.levers[-1].cost_per_hour or 0.0, bill.cost_per_hour):
        yield Violation("bill", "bill.levers", "the last of them is this plan, and costs something else")
    for number, lever in enumerate(bill.levers):
        cost = lever.cost_per_hour
        saves = None if cost is None or before is None else before - cost
        alike = (lever.saves_per_hour is None) == (saves is None) and is_same(lever.saves_per_hour or 0.0, saves or 0.0)
        if not alike:
            yield Violation("bill", f"bill.levers[{number}]", f"{lever.name} saves something else")
        before = before if cost is None else cost

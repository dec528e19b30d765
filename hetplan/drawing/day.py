"""A plan whose machines change by the hour: demand, machines by the way they are paid for, and money, as steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from hetplan.drawing.charts import NARROW, Panel, panels
from hetplan.drawing.summary import SIGNS, Bar
from hetplan.drawing.svg import Picture, short

__all__ = [
    "WAYS",
    "Hour",
    "bill_parts",
    "day_picture",
    "hour_names",
    "hour_rows",
    "hours_of",
    "metric_of",
    "tight_hours",
    "ways_of",
    "ways_words",
]

Document = Mapping[str, Any]

WAYS = {"ahead": "reserved, in use", "idle": "reserved, idle", "demand": "on demand", "spot": "spot"}
"""Ways to pay: the colour, and what it means."""
_PREFIXES = {"response_ms": "p", "ttft_ms": "TTFT p", "tpot_ms": "TPOT p"}
_RATES = ("rate_qps", "planned_qps")


@dataclass(frozen=True)
class Hour:
    """One period: when, at which rates, how many machines of each type are paid for in which way, and money."""

    period: str
    begin_s: float
    end_s: float
    rates: Mapping[str, float]
    machines: Mapping[tuple[str, str], int]
    cost: float | None


def hours_of(plan: Document, spot: Collection[str] = ()) -> list[Hour]:
    """The periods of a plan; `spot` are the offers whose machines may be taken back.

    Reserved machines are used before others of their offer.

    >>> worker = {"id": "w", "hardware": "t4", "offer": "t4", "count": 3}
    >>> period = {"id": "p0", "start_s": 0, "end_s": 3600, "parts": ["a"]}
    >>> plan = {"periods": [period], "parts": {"a": {"workers": [worker]}}}
    >>> plan |= {"commitments": [{"offer": "t4", "count": 2}]}
    >>> hours_of(plan)[0].machines
    {('t4', 'ahead'): 2, ('t4', 'demand'): 1}
    """
    ahead: dict[str, int] = {}
    for one in plan.get("commitments") or ():
        ahead[str(one["offer"])] = ahead.get(str(one["offer"]), 0) + int(one["count"])
    cost: dict[str, float] = {}
    for line in (plan.get("bill") or {}).get("lines") or ():
        cost[line["period"]] = cost.get(line["period"], 0.0) + float(line["cost_per_hour"])
    types = {str(one.get("offer")): str(one.get("hardware")) for one in _all_workers(plan)}
    rates: dict[str, dict[str, float]] = {}
    for one in plan.get("promises") or ():
        if one.get("quantity") in _RATES and one.get("app") and not one.get("situation"):
            rates.setdefault(str(one.get("period")), {}).setdefault(str(one["app"]), float(one["value"]))
    found = []
    for place, period in enumerate(plan.get("periods") or ()):
        begin = float(period.get("start_s") or 0.0)
        end = float(period["end_s"]) if period.get("end_s") is not None else begin + 3600.0
        used: dict[tuple[str, str], int] = {}
        for worker in _workers_in(plan, period):
            key = (str(worker.get("hardware")), str(worker.get("offer")))
            used[key] = used.get(key, 0) + int(worker.get("count", 1)) + int(worker.get("standby") or 0)
        for offer in ahead:
            used.setdefault((types.get(offer, offer), offer), 0)
        machines: dict[tuple[str, str], int] = {}
        for (machine, offer), count in sorted(used.items()):
            held = min(ahead.get(offer, 0), count)
            rented = "spot" if offer in spot else "demand"
            for way, many in (("ahead", held), ("idle", ahead.get(offer, 0) - held), (rented, count - held)):
                if many:
                    machines[machine, way] = machines.get((machine, way), 0) + many
        name = str(period.get("id", place))
        found.append(Hour(name, begin, end, rates.get(name, {}), machines, cost.get(name)))
    return found


def _all_workers(plan: Document) -> Iterator[Document]:
    yield from plan.get("workers") or ()
    for part in (plan.get("parts") or {}).values():
        yield from part.get("workers") or ()


def _workers_in(plan: Document, period: Document) -> list[Document]:
    """The machines of a period; a group that two parts name is one."""
    parts = plan.get("parts") or {}
    if not parts:
        return [one for one in plan.get("workers") or () if one.get("period") == period.get("id")]
    named = [parts[name] for name in period.get("parts") or () if name in parts]
    each = [worker for part in named for worker in part.get("workers") or ()]
    return list({str(worker.get("id", place)): worker for place, worker in enumerate(each)}.values())


def ways_words(spot: Collection[str] | None) -> dict[str, str]:
    """What the ways to pay are called; who does not know which offers are spot calls all that is rented alike."""
    return WAYS if spot is not None else {**WAYS, "demand": "by the hour"}


def bill_parts(plan: Document, spot: Collection[str] | None) -> list[Bar]:
    """The bill of a plan of several periods by ways to pay, as money a month; what is idle is a part of its own."""
    bill = plan.get("bill") or {}
    if not bill or len(plan.get("periods") or ()) < 2:
        return []
    total, idle, starts = (float(bill.get(f"{name}_per_hour") or 0.0) for name in ("cost", "idle", "starts"))
    lasts = [float(one["end_s"]) - float(one.get("start_s") or 0.0) for one in plan["periods"]]
    share = {str(one["id"]): held / sum(lasts) for one, held in zip(plan["periods"], lasts, strict=True)}
    hired = sum(
        share[str(line["period"])] * (float(line["cost_per_hour"]) - float(line.get("starts_per_hour") or 0.0))
        for line in bill.get("lines") or ()
        if line["offer"] in (spot or ())
    )
    ahead = 0.0
    for one in plan.get("commitments") or ():
        hour = float(one["price_per_hour"]) + float(one.get("upfront") or 0.0) / (float(one["term_s"]) / 3600.0)
        ahead += int(one["count"]) * hour
    parts = {"ahead": ahead - idle, "idle": idle, "demand": total - ahead - hired - starts, "spot": hired}
    words = ways_words(spot)
    month = float(bill["cost_per_month"]) / total if total else 0.0
    named = [(words[way], cost, way) for way, cost in parts.items()] + [("while machines start", starts, "k8")]
    sign = SIGNS.get(str(bill.get("currency")), f"{bill.get('currency')} ")
    return [
        Bar(name, cost * month, f"{sign}{cost * month:,.0f}", way) for name, cost, way in named if cost * month >= 0.5
    ]


def ways_of(hours: Sequence[Hour]) -> list[str]:
    """The ways to pay that occur."""
    seen = {way for hour in hours for _, way in hour.machines}
    return [way for way in WAYS if way in seen]


def day_picture(hours: Sequence[Hour], width: float, *, money: str) -> Picture:
    """Demand of each application, machines of each type, money an hour, over one time axis."""
    drawn = []
    for app in dict.fromkeys(app for hour in hours for app in hour.rates):
        values = [hour.rates.get(app, 0.0) for hour in hours]
        drawn.append(Panel(f"{app}, queries/s", [("flow", values)], _span(values), scale=False))
    for machine in dict.fromkeys(machine for hour in hours for machine, _ in sorted(hour.machines)):
        stack = [(way, [float(hour.machines.get((machine, way), 0)) for hour in hours]) for way in WAYS]
        sums = [sum(values) for values in zip(*(each for _, each in stack), strict=True)]
        drawn.append(Panel(f"{machine}, machines", stack, f"{_span(sums)} in all"))
    costs = [hour.cost for hour in hours if hour.cost is not None]
    if len(costs) == len(hours):
        drawn.append(Panel(f"{money} an hour", [("flow", costs)], _span(costs)))
    ends = [*(hour.begin_s for hour in hours), hours[-1].end_s]
    count = 8 if width > NARROW else 4
    marks = [
        (at, _clock(at, ends[-1])) for at in (ends[0] + (ends[-1] - ends[0]) * n / count for n in range(count + 1))
    ]
    label = "Demand, machines by the way they are paid for, and money by the hour; the table below has the numbers."
    return panels(drawn, ends, marks, label=label, width=width)


def _span(values: Sequence[float]) -> str:
    low, high = short(float(f"{min(values):.4g}")), short(float(f"{max(values):.4g}"))
    return low if low == high else f"{low} to {high}"


def _clock(at_s: float, whole_s: float) -> str:
    """
    >>> _clock(3600.0 * 9, 86400.0), _clock(600.0, 3600.0), _clock(86400.0 * 2, 604800.0)
    ('09:00', '10 min', 'day 3')
    """
    if whole_s <= 7200.0:
        return f"{short(at_s / 60.0)} min"
    if whole_s <= 86400.0 * 2:
        return f"{int(at_s // 3600):02d}:{int(at_s % 3600 // 60):02d}"
    return f"day {short(1 + float(f'{at_s / 86400.0:.3g}'))}"


def hour_names(hours: Sequence[Hour]) -> list[str]:
    """When each period begins."""
    return [_clock(hour.begin_s, hours[-1].end_s) for hour in hours]


def hour_rows(hours: Sequence[Hour]) -> tuple[list[str], list[list[str]]]:
    """The same as a table: its columns, and a row for each stretch in which machines and money are the same."""
    keys = sorted({key for hour in hours for key in hour.machines}, key=lambda key: (key[0], list(WAYS).index(key[1])))
    money = all(hour.cost is not None for hour in hours)
    runs, whole = [list(run) for _, run in groupby(hours, lambda hour: (hour.machines, hour.cost))], hours[-1].end_s
    rows = [
        [
            f"{_clock(run[0].begin_s, whole)} to {_clock(run[-1].end_s, whole)}",
            *(str(run[0].machines.get(key, "-")) for key in keys),
            *([f"{run[0].cost:.2f}"] if money else []),
        ]
        for run in runs
    ]
    return ["hours", *(f"{machine}, {WAYS[way]}" for machine, way in keys), *(["an hour"] if money else [])], rows


def metric_of(one: Document) -> str:
    """What a promise, or a line of a simulation, is about, by the name that a summary has for it.

    >>> metric_of({"quantity": "ttft_ms", "percentile": 95.0}), metric_of({"quantity": "violations"})
    ('TTFT p95', 'violation rate')
    """
    quantity, at = str(one.get("quantity")), one.get("percentile")
    if quantity in _PREFIXES and at is not None:
        return f"{_PREFIXES[quantity]}{float(at):g}"
    return {"violations": "violation rate", "goodput": "attainment"}.get(quantity, quantity)


def tight_hours(plan: Document, limits: Mapping[tuple[str, str], float]) -> dict[str, list[float | None]]:
    """Of each application and period the simulated tail in percent of its limit, the closest where it has several.

    `limits` are milliseconds by application and metric ("p99", "TTFT p95").
    """
    found: dict[str, list[float | None]] = {app: [] for app, _ in limits}
    parts = plan.get("parts") or {}
    for period in plan.get("periods") or ():
        shares: dict[str, float] = {}
        named = [parts[name] for name in period.get("parts") or () if name in parts]
        for one in (promise for part in named for promise in part.get("promises") or ()):
            app = str(one.get("app"))
            limit = limits.get((app, metric_of(one)))
            if limit and one.get("interval"):
                shares[app] = max(shares.get(app, 0.0), 100.0 * float(one["interval"][1]) / limit)
        for app, row in found.items():
            row.append(shares.get(app))
    return found

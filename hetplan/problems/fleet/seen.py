"""Machines of which it was seen that they are enough: what a part's own question finds, beside what a fleet has.

Rows of text with margins, whole machines that are worth less, and the formulas of variants and pipelines leave out
machines on which they keep their limits all the same. Their own questions find them, by simulation. Where those cost
less, the fleet is searched again: who was asked may have what was seen to be enough, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf

import numpy as np

from hetplan.planner.bridge import Cone, Table
from hetplan.problems.fleet.menus import surviving
from hetplan.problems.fleet.ways import Found
from hetplan.problems.fleet.wish import HUGE, Application, Wish

__all__ = ["Seen", "seen", "seen_on_stock"]

MOST_ASKED: Mapping[str, int] = {"llm": 6, "variants": 6, "pipeline": 2}
"""So often each question is asked, for the rates that cost most: a pipeline's takes longest."""
CHEAPER = 1e-3
"""By so much it has to cost less."""

Machines = tuple[int, ...]
"""So many of each hardware, or of each offer."""


@dataclass
class Seen(Table):
    """Machines that are enough, by rate: those of `least`, and more of them."""

    def minimal(self, rate: float) -> list[tuple[int, ...]]:
        """What is known."""
        return self.least.get(rate, [])

    def carries(self, machines: Sequence[float], rate: float) -> bool:
        """Whether something that is known is among them."""
        return rate <= 0 or any(
            all(a <= b for a, b in zip(one, machines, strict=True)) for one in self.least.get(rate, ())
        )


def seen(
    found: Found, parts: Mapping[str, Cone | Table], late: Set[tuple[str, float]]
) -> dict[tuple[str, float], Seen]:
    """Of parts, by application and rate: what they have, unless it is late, and cheaper machines.

    `parts` are those who are asked, by simulation. Only who has cheaper ones is named.
    """
    known, left = dict[tuple[str, float], Seen](), dict(MOST_ASKED)
    for app, rate, machines in _dearest(found, parts):
        part, question = parts[app.name], app.question
        least: dict[float, list[Machines]] = {}
        for one in (one for one in found.wish.situations if one.keep > 0):
            has = surviving(found.wish, part, machines, one)
            least.setdefault(rate * one.keep, []).extend([has] if (app.name, rate) not in late else [])
        is_cheaper, left[question] = False, left[question] - len(least)
        for wanted in least if left[question] >= 0 else ():
            own = _fewest(found.wish, part, wanted)
            if own is not None:
                dearer = (_price(found.wish, part, has) for has in least[wanted])
                is_cheaper |= _price(found.wish, part, own) < (1.0 - CHEAPER) * min(dearer, default=inf)
                least |= {other: [*those, own] for other, those in least.items() if other <= wanted}
        if is_cheaper:
            known[app.name, rate] = _of(part, least)
    return known


def seen_on_stock(wish: Wish, parts: Mapping[str, Cone | Table]) -> dict[tuple[str, float], Seen]:
    """Of parts, by application and rate: the machines that their own questions find in stock, after failures too.

    Asked where no fleet was found by what formulas ask for; who finds none is not named.
    """
    known, left = dict[tuple[str, float], Seen](), dict(MOST_ASKED)
    for app in (app for app in wish.apps if app.name in parts):
        part = parts[app.name]
        for rate in {wish.rate(app, p) for p in range(wish.periods) if app.rates[p] > 0}:
            wanted = {rate * one.keep for one in wish.situations if one.keep > 0}
            left[part.question] -= len(wanted)
            if left[part.question] >= 0:
                own = {one: _fewest(wish, part, one) for one in sorted(wanted)}
                least = {one: [machines] for one, machines in own.items() if machines is not None}
                known |= {(app.name, rate): _of(part, least)} if len(least) == len(wanted) else {}
    return known


def _of(part: Cone | Table, least: dict[float, list[Machines]]) -> Seen:
    return Seen(
        part.app,
        part.question,
        part.hardware,
        part.inputs,
        part.options,
        part.solve,
        part.settled,
        otherwise=part.otherwise,
        least=least,
    )


def _dearest(found: Found, parts: Mapping[str, Cone | Table]) -> list[tuple[Application, float, Machines]]:
    """Applications and rates with what they have, those first that cost most over the day; of text what has room."""
    wish, cost = found.wish, dict[tuple[str, float], float]()
    has = dict[tuple[str, float], tuple[Application, Machines]]()
    for app in (app for app in wish.apps if app.name in parts):
        for p in range(wish.periods):
            key = app.name, wish.rate(app, p)
            is_text = isinstance(parts[app.name], Cone) and app.question == "llm"
            if key in wish.given_room or (not is_text and app.rates[p] > 0):
                machines = found.fleet.choices[app.name, p].machines
                cost[key] = cost.get(key, 0.0) + float(np.array(machines) @ wish.prices)
                has.setdefault(key, (app, machines))
    return [(has[key][0], key[1], has[key][1]) for key in sorted(cost, key=lambda key: -cost[key])]


def _fewest(wish: Wish, part: Cone | Table, rate: float) -> Machines | None:
    """The machines that its own question takes for a rate."""
    stock = {one.name: min(one.stock, HUGE) for one in wish.offers if one.machine in part.hardware}
    plan = part.fewest(stock, rate)
    if plan is None:
        return None
    counts = Counter[str]()
    for worker in plan.workers:
        counts[worker.hardware] += worker.count
    return tuple(counts[hardware] for hardware in part.hardware)


def _price(wish: Wish, part: Cone | Table, machines: Machines) -> float:
    """What they cost per hour where each is cheapest."""
    return sum(
        count * min(float(wish.prices[n]) for n in wish.on(hardware))
        for hardware, count in zip(part.hardware, machines, strict=True)
    )

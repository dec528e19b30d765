"""Items placed one by one as they come, never moved: how many machines a rule opens against the least possible."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["OnlinePacking", "PackRule", "online_pack"]

PackRule = Literal["best_fit", "first_fit", "next_fit", "worst_fit"]


@dataclass(frozen=True)
class OnlinePacking:
    """Where each item went, how many machines were opened, and the fewest that their sum allows."""

    machine_of: tuple[int, ...]
    machines: int
    least: int


def online_pack(
    items: Sequence[Mapping[str, float]], room: Mapping[str, float], *, rule: PackRule = "best_fit"
) -> OnlinePacking:
    """Place items (resource -> amount) on machines that have this room each.

    `best_fit` leaves the least room over (L2 norm of what is left, each resource as a share of a machine).

    >>> items = [{"m": 0.6}, {"m": 0.5}, {"m": 0.4}, {"m": 0.5}]
    >>> [online_pack(items, {"m": 1.0}, rule=rule).machines for rule in ("first_fit", "best_fit", "next_fit")]
    [2, 2, 3]
    """
    left: list[dict[str, float]] = []
    placed: list[int] = []
    for number, item in enumerate(items):
        if any(amount > room.get(name, math.inf) * (1 + 1e-9) for name, amount in item.items()):
            raise ValueError(f"item {number} is larger than a whole machine")
        fitting = [k for k, have in enumerate(left) if _fits(item, have)]
        if rule == "next_fit":
            fitting = [k for k in fitting if k == len(left) - 1]
        if not fitting:
            left.append(dict(room))
            chosen = len(left) - 1
        elif rule in ("first_fit", "next_fit"):
            chosen = fitting[0]
        else:
            sign = 1.0 if rule == "best_fit" else -1.0
            chosen = min(fitting, key=lambda k: (sign * _over(item, left[k], room), k))
        for name, amount in item.items():
            if name in left[chosen]:
                left[chosen][name] -= amount
        placed.append(chosen)
    return OnlinePacking(tuple(placed), len(left), _least(items, room))


def _fits(item: Mapping[str, float], have: Mapping[str, float]) -> bool:
    return all(amount <= have[name] + 1e-9 for name, amount in item.items() if name in have)


def _over(item: Mapping[str, float], have: Mapping[str, float], room: Mapping[str, float]) -> float:
    return math.sqrt(sum(((have[name] - item.get(name, 0.0)) / most) ** 2 for name, most in room.items() if most > 0))


def _least(items: Sequence[Mapping[str, float]], room: Mapping[str, float]) -> int:
    totals = [sum(item.get(name, 0.0) for item in items) / most for name, most in room.items() if most > 0]
    return max([math.ceil(total - 1e-9) for total in totals], default=0)

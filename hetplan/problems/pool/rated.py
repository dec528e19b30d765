"""What a pool of given counts carries: its rate, the share of each class per type, and who says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.draft import Reported
from hetplan.problems.pool.counts import flows
from hetplan.problems.pool.form import fluid_at, read_shares
from hetplan.problems.pool.letters import Counts, Matrix, Pool, Vector
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice

if TYPE_CHECKING:
    from hetplan.planner.contract import Ask
    from hetplan.problems.pool.valued import Simulated

__all__ = [
    "GAP",
    "SAME_RATE",
    "Chosen",
    "Rated",
    "backed",
    "carried",
    "holds",
    "rate_at",
    "rated_by",
]

GAP = 1e-4
"""The default gap of the whole-number program."""

SAME_RATE = 1e-6
"""Rates nearer than this (relative) are the same rate: engines stop at 1e-7 per row."""


KEPT = 0.5
"""A class of which less than this is left was on types that are not there."""


@dataclass(frozen=True)
class Rated:
    """Counts per column with the rate lam that they carry, the share of each class per type, and who says so."""

    counts: Counts
    lam: float
    share: Matrix
    answer: Answer[Any]


@dataclass(frozen=True)
class Chosen:
    """What a way of choosing found: a pool, what answers back of it, and what else its plan says."""

    rated: Rated
    backed: tuple[Reported, ...] = ()
    simulated: Simulated | None = None
    alternatives: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[Notice, ...] = ()
    searched: bool = False


def holds(pool: Pool, rated: Rated) -> bool:
    """Whether whole counts keep, exactly, what an engine keeps to within its tolerance."""
    if pool.wish.budget is not None:
        return pool.cost(rated.counts) <= pool.wish.budget
    return rated.lam >= (pool.fluid_target or 0.0) * (1 - SAME_RATE)


def rate_at(pool: Pool, ask: Ask, counts: Counts, *, known: Vector | None = None) -> Rated:
    """The fluid program at these counts: a verdict is taken on whole counts with the flows solved again.

    `known` is a point of a program that has these counts.
    """
    answer = ask(fluid_at(pool, pool.of_type(counts)), about="rate of the chosen pool")
    return rated_by(pool, counts, answer, known=known)


def rated_by(pool: Pool, counts: Counts, answer: Answer[Any], *, known: Vector | None = None) -> Rated:
    """Counts with what an answer to their fluid program says.

    An engine that was stopped early has said nothing about the rate: then what is known of it counts, or flows
    that need no engine.
    """
    per_type = pool.of_type(counts)
    found = [Rated(counts, 0.0, np.zeros_like(pool.L), answer)]
    # A class that nobody serves makes the rate 0, not the hair that an engine's tolerance leaves.
    if not pool.usable[:, per_type > 0].any(axis=1).all():
        return found[0]
    points = [] if answer.point is None else [answer.point]
    if answer.status is not Status.OPTIMAL:
        points += [] if known is None else [known]
        lam, share = flows(pool, per_type)
        found += [carried(pool, counts, share, answer)] if lam > 0 else []
    for point in points:
        shares = _shares_there(pool, point, per_type)
        found += [carried(pool, counts, shares, answer)] if shares is not None else []
    return max(found, key=lambda one: one.lam)


def carried(pool: Pool, counts: Counts, share: Matrix, answer: Answer[Any]) -> Rated:
    """What these shares of each class carry, to the last digit."""
    work = (pool.p[:, None] * share * np.where(pool.served, pool.W, 0.0)).sum(axis=0) / 1000.0
    busy = work > 0
    lam = float((pool.of_type(counts)[busy] / work[busy]).min())
    return Rated(counts, lam, share, answer)


def _shares_there(pool: Pool, point: Vector, per_type: Counts) -> Matrix | None:
    """The shares of a program's point on the types that are there; None where that serves nobody.

    Within a tolerance a class of next to no work may be sent to a type of which there is none: it goes where `flows`
    sends it.
    """
    share = np.where(per_type > 0, read_shares(pool, point), 0.0)
    lost = share.sum(axis=1) < KEPT
    if lost.any():
        lam, other = flows(pool, per_type)
        if lam <= 0:
            return None
        share[lost] = other[lost]
    return np.asarray(share / share.sum(axis=1, keepdims=True), dtype=np.float64)


def backed(pool: Pool, about: Literal["cost_per_hour", "rate_qps"], answer: Answer[Any], rated: Rated) -> Reported:
    """What an answer to the program proves of a pool's cost or planned rate."""
    if about == "cost_per_hour":
        return Reported(about, "min", "problem", answer, value=pool.cost(rated.counts) / NANO)
    derate = pool.options.derate
    return Reported(about, "max", "problem", answer, value=derate * rated.lam, scale=derate)

"""What a problem hands back: a plan without its proof, or the reason why there is none and how to get one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from hetplan.planner.answer import Answer
from hetplan.profiles.plan import Action, Dispatch, Notice, Plan, Promise, Route, Unserved, Valid
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Worker

if TYPE_CHECKING:
    from hetplan.planner.front import FrontOf

__all__ = ["TOGETHER", "Draft", "Edit", "Infeasibility", "Repair", "Reported", "Scope", "without_bound"]

TOGETHER = " (together with the others)"
"""How the text of a repair ends that helps only with all others that end so."""

Scope = Literal["problem", "relaxation", "restriction", "model", "none"]


@dataclass(frozen=True)
class Reported:
    """A value of the plan that an answer backs. make_plan turns it into a claim, with bound and voucher.

    `scale` and `shift` carry the form's objective into the plan's unit: value = scale * objective + shift.
    Without an answer the claim has no bound (a heuristic's word), unless `bound` gives one that was proved elsewhere.
    """

    about: str
    sense: Literal["min", "max"]
    scope: Scope
    answer: Answer[Any] | None = None
    value: float | None = None
    bound: float | None = None
    scale: float = 1.0
    shift: float = 0.0
    vouched: Literal["certified", "claimed"] | None = None
    """Who vouches for `bound`, where it comes from no answer."""
    floor: float = 1e-9
    """Below this a value counts as zero when a gap is taken."""
    note: str | None = None


@dataclass(frozen=True)
class Edit:
    """One place of a file (``slo``, ``profile``) or of the options, and what is to be written there."""

    file: str
    path: tuple[str | int, ...]
    value: Any


@dataclass(frozen=True)
class Repair:
    """The smallest change of an input that would make the wish possible: "raise slo.limits.cost_per_hour to 0.526".

    `edits` are what it changes; those that were tried with all else in place have them. `fails_at` is the nearest to
    `to` that was tried and had no plan: None where that is what is stated, and where several numbers change.
    """

    field: str
    verb: str
    amount: float | None
    to: float | str | None
    unit: str
    text: str
    edits: tuple[Edit, ...] = ()
    fails_at: float | str | None = None


@dataclass(frozen=True)
class Draft:
    """A plan as the problem sees it."""

    workers: tuple[Worker, ...]
    routing: Mapping[str, tuple[Route, ...]] = field(default_factory=dict)
    dispatch: Mapping[str, Dispatch] = field(default_factory=dict)
    policies: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    promises: tuple[Promise, ...] = ()
    reported: tuple[Reported, ...] = ()
    unserved: tuple[Unserved, ...] = ()
    alternatives: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[Notice, ...] = ()
    valid: Valid = field(default_factory=Valid)
    requires: tuple[str, ...] = ()
    target_missed: str = ""
    """A stated target that the plan does not meet: then no plan is written, and `repairs` say what would help."""
    repairs: tuple[Repair, ...] = ()
    extensions: Mapping[str, Any] = field(default_factory=dict)
    """What the plan carries for its reader, by name, beyond its own sections (`Plan.extensions`)."""
    sections: Mapping[str, Any] = field(default_factory=dict)
    """Sections that few plans have, by name: periods, parts, commitments, a bill."""
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """Options that the problem settled itself (a headroom found by simulation); the method of the plan echoes them."""
    searched: bool = False
    """The plan is the best of those measured or simulated, not of all."""
    levels_proved: bool = True
    """Whether later levels of the objective are proved as the first is: where not, the plan is not called optimal."""
    front: FrontOf[Draft] | None = None
    """Where several wishes are sought at once: all points, of which this draft is the first."""
    ways: Mapping[str, Plan] = field(default_factory=dict)
    """Plans of fewer ways to buy, by the names of the bill's levers."""


def without_bound(made: Draft) -> Draft:
    """The same plan, of which nothing says how good it is."""
    unbounded = (Reported(one.about, one.sense, "none", value=one.value) for one in made.reported)
    return replace(made, reported=tuple(unbounded))


@dataclass(frozen=True)
class Infeasibility:
    """No plan can exist (`proved`), or none was found."""

    why: tuple[str, ...]
    repairs: tuple[Repair, ...] = ()
    answer: Answer[Any] | None = None
    proved: bool = True
    warnings: tuple[Notice, ...] = ()

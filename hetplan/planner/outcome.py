"""What `solve` returns: a verified plan, or why there is none and the smallest change that would give one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hetplan.errors import Infeasible, Interrupted, PlanRejected
from hetplan.planner.draft import Repair
from hetplan.planner.status import Exit, Finding, Found, verdict
from hetplan.profiles.plan import Claim, Notice, Plan, Solve

if TYPE_CHECKING:
    from hetplan.planner.front import FrontOf
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan_summary import SloRow, Summary

__all__ = ["Outcome"]


@dataclass(frozen=True, repr=False)
class Outcome:
    """A plan with its proof, or why there is none; printed, it is the first lines of what `hetplan solve` says.

    >>> import hetplan as hp
    >>> outcome = hp.solve("examples/pool/profile.json", "examples/pool/slo.json", options={"sizing": "fluid"})
    >>> outcome.cost_per_hour, outcome.conflict, outcome.require() == outcome.plan
    (2.88, (), True)
    """

    finding: Finding
    plan: Plan | None = None
    why: tuple[str, ...] = ()
    repairs: tuple[Repair, ...] = ()
    solves: tuple[Solve, ...] = ()
    warnings: tuple[Notice, ...] = ()
    violations: tuple[str, ...] = ()
    front: FrontOf[Outcome] | None = None
    """Where several wishes are sought at once: every point, with its plan; `plan` is that of the first."""
    ways: Mapping[str, Plan] = field(default_factory=dict)
    """Of a fleet: the plans behind the levers of its bill, by name; without the last, which is `plan`."""
    inputs: Inputs | None = field(default=None, repr=False, compare=False)
    """What the plan was made from: its summary has prices and limits from there."""

    @property
    def status(self) -> str:
        """The plan's status ("optimal", ...), or what was found instead ("infeasible", "not-found", "nothing")."""
        return self.plan.status if self.plan is not None else str(self.finding.found)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The plan's claims, first the one that answers the objective."""
        return self.plan.claims if self.plan is not None else ()

    @cached_property
    def summary(self) -> Summary | None:
        """What a person checks of the plan; None without one."""
        from hetplan.planner.summary import summarize

        if self.plan is None:
            return None
        found = summarize(self.plan, self.inputs, made_here=True)
        if self.violations or self.finding.violations:
            return replace(found, status="not verified")
        return replace(found, status="a stated target is missed") if self.finding.target_missed else found

    @property
    def cost_per_month(self) -> float | None:
        """Money for 730 hours; None without a plan, or without prices."""
        return None if self.summary is None else self.summary.cost_per_month

    @property
    def cost_per_hour(self) -> float | None:
        """Money per hour."""
        return None if self.summary is None else self.summary.cost_per_hour

    @property
    def bound(self) -> float | None:
        """The bound on the first objective: no plan is better. None where nothing is proved."""
        return self.summary.bounds[0].bound if self.summary is not None and self.summary.bounds else None

    @property
    def gap(self) -> float | None:
        """The part of the larger one that lies between the plan's value and the bound."""
        return self.summary.bounds[0].gap if self.summary is not None and self.summary.bounds else None

    @property
    def slo(self) -> tuple[SloRow, ...]:
        """Each limit of each application, with what was simulated of it and whether that meets it."""
        return () if self.summary is None else self.summary.slo

    @property
    def conflict(self) -> tuple[str, ...]:
        """Where there is no plan: what cannot hold together, in sentences."""
        return self.why

    def __repr__(self) -> str:
        """The first five lines that are printed of it."""
        return "\n".join(self._lines()[:5])

    def _lines(self) -> list[str]:
        if self.summary is None or self.violations:
            repairs = [f"  {number}. {one.text}" for number, one in enumerate(self.repairs, start=1)]
            return [f"{self.status}: {self.reason}", *self.violations, *self.why, *repairs]
        from hetplan.profiles.summary_lines import Closing, summary_lines

        return [line for line in summary_lines(self.summary, Closing(self.verified_how)) if line]

    @property
    def exit_code(self) -> int:
        """What the command line would exit with."""
        return int(verdict(self.finding).exit)

    @property
    def reason(self) -> str:
        """The exit code in words."""
        return verdict(self.finding).reason

    def require(self) -> Plan:
        """The plan; else `Infeasible`, `PlanRejected` or `Interrupted` says why there is none."""
        code = self.exit_code
        if code == Exit.CHECK_FAILED:
            raise PlanRejected((self.reason, *self.violations))
        if self.plan is not None:
            return self.plan
        if code == Exit.INFEASIBLE:
            raise Infeasible((self.reason, *self.why), self.repairs)
        raise Interrupted("; ".join((self.reason, *self.why)), exit_code=code)

    def with_verification(self, *, violations: tuple[str, ...], unchecked: bool, unchecked_allowed: bool) -> Outcome:
        """The outcome with what `verify` found."""
        finding = replace(
            self.finding, violations=len(violations), unchecked=unchecked, unchecked_allowed=unchecked_allowed
        )
        return replace(self, finding=finding, violations=violations)

    def with_simulation(self, *, broken: tuple[str, ...]) -> Outcome:
        """The outcome with what a simulation found: `broken` promises change its status."""
        finding = replace(self.finding, promise_broken=bool(broken))
        return replace(self, finding=finding, violations=(*self.violations, *broken))

    def as_dict(self) -> dict[str, Any]:
        """The outcome as plain data."""
        return {
            "summary": None if self.summary is None else asdict(self.summary),
            "status": self.status,
            "why": list(self.why),
            "repairs": [asdict(repair) for repair in self.repairs],
            "claims": [claim.model_dump(mode="json") for claim in self.claims],
            "warnings": [notice.model_dump(mode="json") for notice in self.warnings],
            "violations": list(self.violations),
            "plan": self.plan.model_dump(mode="json", by_alias=True) if self.plan is not None else None,
        }

    def _repr_html_(self) -> str:
        """The outcome as a notebook shows it: the plan, or why there is none and what would give one."""
        from hetplan.drawing.report import outcome_fragment

        repairs = [one.text for one in self.repairs]
        if self.summary is None or self.plan is None:
            return outcome_fragment([f"{self.status}: {self.reason}", *self.why], repairs)
        from hetplan.profiles.summary_words import summary_text

        told, said = summary_text(self.summary, self.verified_how), [*self.why, *self.violations]
        return outcome_fragment(said, repairs, told, self.plan.model_dump(mode="json", exclude_none=True))

    @property
    def verified_how(self) -> tuple[str, str]:
        """What was verified when the plan was made, and how: a word and a sentence."""
        if self.finding.unchecked:
            return "Checked", "not at all: no verifier checks plans of this problem"
        if self.reason != "verified":
            return "Checked", self.reason
        # The bound is proved again by the program that the planner writes: no code of the verifier's own.
        bound = "bound by the planner's program" if self.finding.proved else "the bound by nobody"
        rows = self.summary.simulated if self.summary is not None else ()
        again = "hetplan verify simulates again" if rows else "no SLO was simulated"
        return "Verified", f"constraints and money by independent code, {bound}; {again}"

    @property
    def found(self) -> Found:
        """Whether there is a plan, and if not, of which kind the absence is."""
        return self.finding.found

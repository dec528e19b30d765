"""Sends programs to solvers within one time limit: answers are certified, recorded, and the best plan is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from hetplan.errors import HetplanError, Interrupted, NoSolver, SolverFailed
from hetplan.planner.answer import Answer, Certificate, Deadline, Limits, Status, Stop, Vouched
from hetplan.planner.forms.form import Form, certify
from hetplan.planner.forms.milp import Milp
from hetplan.planner.terms import Event, OnEvent

if TYPE_CHECKING:
    from hetplan.planner.contract import Engines, Solver
    from hetplan.planner.draft import Draft, Infeasibility

__all__ = ["Asking", "Record"]

X = TypeVar("X")

GRACE_S = 0.5
"""After the deadline, or a cancel, a conversation that holds an answer gets this long in all to make a plan of it."""
LEAST_S, FEW = 0.1, 8
"""So long each of the first few programs of that may take even where a busy machine was slow before: they are small.
Together .8 s: an answer is late by less than a second.
"""


MOST_PLANS = 3
"""So many plans are kept: making the best one may fail where its last programs are cut short."""


@dataclass(frozen=True)
class _Plan:
    """A plan that can be made: its rank is whether simulation confirmed it, then how good it is."""

    rank: tuple[Any, ...]
    make: Callable[[], Draft | Infeasibility]
    value: float | None

    @property
    def simulated(self) -> bool:
        """Whether simulation confirmed it."""
        return bool(self.rank[0])


@dataclass
class Incumbent:
    """The best plans so far, the best one last, and since when one of them is made.

    The rank of the best never falls while the work goes on; of plans of one rank the last counts.
    """

    plans: list[_Plan] = field(default_factory=list)
    since: float | None = None
    programs: int = 0

    @property
    def value(self) -> float | None:
        """The objective of the best, where it is known."""
        return self.plans[-1].value if self.plans else None

    def offer(self, plan: _Plan) -> None:
        """Keep a plan, unless those that are kept are better."""
        self.plans.append(plan)
        self.plans.sort(key=lambda one: one.rank)
        del self.plans[:-MOST_PLANS]


class Stopping(threading.Event):
    """Set once a conversation is over that has a plan to hand out: until then late work is better than none."""

    def __init__(self, deadline: Deadline, incumbent: Incumbent) -> None:
        super().__init__()
        self._deadline, self._incumbent = deadline, incumbent

    def is_set(self) -> bool:
        """Whether the work is to end."""
        return bool(self._incumbent.plans) and self._deadline.is_set()


@dataclass
class Record:
    """One solve, or one family solved together: what was asked, who answered, what of it was re-proved."""

    id: int
    form: Form[Any]
    engine: str
    about: str
    gap: float | None
    answers: list[Answer[Any]]
    certificates: list[Certificate]
    refused: list[str] = field(default_factory=list)


class _Listed:
    """Engines that a caller has at hand, in order of preference, in place of those that load themselves."""

    def __init__(self, engines: Sequence[Solver]) -> None:
        self._engines = tuple(engines)

    def of(self, form: str) -> Iterator[Solver]:
        """Those of one kind of form, as they were listed."""
        return (engine for engine in self._engines if engine.form == form)

    def by_name(self, name: str, form: str) -> Solver | None:
        """The one of this name, where it answers this kind of form."""
        return next((engine for engine in self.of(form) if engine.name == name), None)


class Asking:
    """The `Ask` that make_plan hands to a problem. One deadline covers the whole conversation.

    `engines` in order of preference (a list, or `Engines` that load themselves); `solver` names one to use for its kind
    of form. An engine that fails, or whose answer is refuted, is passed over for the next; a named one is not.
    """

    def __init__(
        self,
        engines: Sequence[Solver] | Engines,
        limits: Limits | None = None,
        *,
        solver: str | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.records: list[Record] = []
        self.warnings: list[str] = []
        if isinstance(engines, Sequence):
            engines = _Listed(engines)
        self._engines: Engines = engines
        self._solver, self._tests, self._proves = solver, True, True
        self._on_event = on_event
        self.deadline = Deadline(self.limits)
        self._incumbent = Incumbent()  # one for all copies of this conversation
        self.stop = Stopping(self.deadline, self._incumbent)

    @property
    def remaining(self) -> float:
        """Seconds left of the one deadline; 0 once cancelled."""
        return self.deadline.remaining

    def is_over(self, reserved: float = 0.0) -> bool:
        """See `Ask.is_over`."""
        return self.deadline.is_near(reserved)

    def fork(self) -> Asking:
        """See `Ask.fork`."""
        other = copy(self)
        other.records, other._incumbent = [], Incumbent()
        return other

    def adopt(self, other: Asking) -> None:
        """Take what was asked beside into this conversation: the plan that is handed out rests on it."""
        for record in other.records:
            record.id = len(self.records) + 1
            self.records.append(record)

    def keep(
        self,
        make: Callable[[], Draft | Infeasibility],
        *,
        simulated: bool = False,
        rank: Sequence[Any] = (),
        value: float | None = None,
    ) -> None:
        """See `Ask.keep`."""
        self._incumbent.offer(_Plan((simulated, *rank), make, value))

    def best(self) -> tuple[Draft | Infeasibility, bool] | None:
        """The best plan so far, and whether simulation confirmed it; to make it engines get a moment more."""
        from hetplan.planner.draft import Infeasibility

        said: tuple[Draft | Infeasibility, bool] | None = None
        for plan in reversed(self._incumbent.plans):
            self._incumbent.since = self.deadline.spent if self._incumbent.since is None else self._incumbent.since
            with suppress(Interrupted):
                made = plan.make()
                if not isinstance(made, Infeasibility):
                    return made, plan.simulated
                said = said or (made, plan.simulated)
        return said

    @property
    def hit_limit(self) -> bool:
        """Whether a limit, and not a cancel, ended some of the work."""
        stops = {answer.stop for record in self.records for answer in record.answers}
        by_time = self.limits.seconds is not None and (self.deadline.heard or Stop.TIME in stops)
        return not self.deadline.cancelled and (by_time or (self.limits.work is not None and Stop.WORK in stops))

    def without_infeasibility_checks(self, *, gap: float | None = None) -> Asking:
        """See `Ask.without_infeasibility_checks`."""
        other = self.without_proofs()
        other._tests, other.limits = False, self.limits if gap is None else replace(self.limits, gap=gap)
        return other

    def without_proofs(self) -> Asking:
        """See `Ask.without_proofs`."""
        other = copy(self)
        other._proves = False
        return other

    def note(self, event: Event) -> None:
        """Pass progress on, stamped with the time."""
        if self._on_event is not None:
            self._on_event(replace(event, seconds=self.deadline.spent, best=self._incumbent.value))

    def __call__(
        self,
        form: Form[X],
        *,
        start: X | None = None,
        gap: float | None = None,
        about: str = "",
        solver: str | None = None,
    ) -> Answer[X]:
        """Ask one form; the answer that comes back was certified."""
        limits = self._limits(gap)

        def run(engine: Solver) -> list[Answer[Any]]:
            answer = engine.solve(form, limits, start=start, on_event=self.note)
            prove = getattr(engine, "prove", None) if self._proves else None
            return [answer if prove is None else prove(form, answer, self._limits(gap))]

        record = self._record([form], run, about=about, limits=limits, solver=solver)
        return self._outcome(record)[0]

    def all(
        self, forms: Iterable[Form[X]], *, gap: float | None = None, about: str = "", solver: str | None = None
    ) -> list[Answer[X]]:
        """Ask a family; one engine answers all of it, warm where it can."""
        family = list(forms)
        if not family:
            return []
        limits = self._limits(gap)

        def run(engine: Solver) -> list[Answer[Any]]:
            return list(engine.solve_all(family, limits, on_event=self.note))

        record = self._record(family, run, about=about, limits=limits, solver=solver)
        return self._outcome(record)

    def is_of(self, record: Record, solver: str) -> bool:
        """Whether this engine gave a record's answers, or the one that takes what it refuses."""
        named = self._engines.by_name(solver, record.form.kind)
        return record.engine in (solver, getattr(named, "instead", "") or solver)

    def record_of(self, answer: Answer[Any]) -> tuple[Record, Certificate] | None:
        """The record and certificate behind an answer that this conversation gave."""
        for record in self.records:
            for given, certificate in zip(record.answers, record.certificates, strict=True):
                if given is answer:
                    return record, certificate
        return None

    def _limits(self, gap: float | None) -> Limits:
        wanted = replace(self.limits, gap=self.limits.gap if self.limits.gap is not None else gap)
        kept = self._incumbent
        if kept.since is None and not self.deadline.is_set():
            return replace(wanted, seconds=None if self.limits.seconds is None else self.remaining)
        if kept.since is None and kept.plans:
            raise Interrupted("the work is over, and there is a plan already")
        if kept.since is None and not any(answer.has_point for one in self.records for answer in one.answers):
            if self.deadline.cancelled:
                raise Interrupted("cancelled before the work was done")
            return replace(wanted, seconds=0.0)
        # There is something to save: what was found still has to be rounded, settled and read.
        spent = self.deadline.spent
        kept.since = spent if kept.since is None else kept.since
        kept.programs += 1
        least = LEAST_S if kept.programs <= FEW else 0.0
        return replace(wanted, seconds=max(least, GRACE_S - (spent - kept.since)), cancel=None)

    def _candidates(self, form: Form[Any], named: str | None) -> tuple[Iterable[Solver], bool]:
        """Engines for the form, best first, and whether somebody named the one; an engine is asked to refuse later."""
        wanted = named or self._solver
        chosen = self._engines.by_name(wanted, form.kind) if wanted is not None else None
        if chosen is not None:
            # What the named engine refuses goes to the one that its package has for such forms.
            instead = getattr(chosen, "instead", "")
            other = self._engines.by_name(instead, form.kind) if instead else None
            return [chosen] if other is None else [chosen, other], True
        if named is not None:
            raise NoSolver(form.kind, {named: "not registered for this kind of form"})
        return (one for one in self._engines.of(form.kind) if not getattr(one, "by_name_only", False)), False

    def _record(
        self,
        forms: list[Form[Any]],
        run: Callable[[Solver], list[Answer[Any]]],
        *,
        about: str,
        limits: Limits,
        solver: str | None,
    ) -> Record:
        engines, was_named = self._candidates(forms[0], solver)
        reasons: dict[str, str] = {}
        refused: list[str] = []
        for engine in engines:
            try:
                reason = engine.refuses(forms[0])
            except Exception as error:
                reason = f"it fails before it begins: {error}"
            if reason:
                reasons[engine.name] = reason
                continue
            self.note(Event("solve", f"{about or forms[0].kind} with {engine.name}"))
            try:
                answers = run(engine)
                certificates = [self._certify(form, a, engine, limits) for form, a in zip(forms, answers, strict=True)]
            except Exception as error:
                # An engine may be anybody's: whatever it throws, the next one is asked.
                if was_named or isinstance(error, Interrupted):
                    raise error if isinstance(error, HetplanError) else SolverFailed(engine.name, str(error)) from error
                refused.append(f"{engine.name}: {error}")
                continue
            faults = [fault for certificate in certificates for fault in certificate.faults]
            if not faults:
                number = len(self.records) + 1
                record = Record(number, forms[0], engine.name, about, limits.gap, answers, certificates)
                record.refused = refused
                self.records.append(record)
                return record
            if was_named:
                raise SolverFailed(engine.name, faults[0])
            refused.append(f"{engine.name}: {faults[0]}")
        if not refused:
            raise NoSolver(forms[0].kind, reasons)
        raise SolverFailed(refused[-1].partition(": ")[0], "; ".join(refused))

    def _certify(self, form: Form[Any], answer: Answer[Any], engine: Solver, limits: Limits) -> Certificate:
        certificate = certify(form, answer)
        unproved = answer.status is Status.INFEASIBLE and certificate.infeasible is not Vouched.CERTIFIED
        if self._tests and unproved and certificate.sound and isinstance(form, Milp):
            from hetplan.planner.check_infeasible import check_infeasible

            return check_infeasible(form, certificate, chain([engine], self._engines.of(form.kind)), limits)
        return certificate

    def _outcome(self, record: Record) -> list[Answer[Any]]:
        for answer in record.answers:
            if answer.stop is Stop.CANCELLED and not answer.has_point:
                raise Interrupted(f"cancelled during {record.about or record.form.kind}")
        return record.answers

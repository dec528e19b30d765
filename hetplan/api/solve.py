"""`solve`: files become problems, problems become plans, plans are checked before they are seen.

Thread-safe and silent: no global state, nothing printed, every choice an argument.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan import registry
from hetplan.errors import InputError, NoSolver
from hetplan.planner.answer import Deadline, Limits
from hetplan.planner.make_plan import all_proved, make_plan
from hetplan.planner.outcome import Outcome
from hetplan.planner.solver_calls import Asking
from hetplan.planner.terms import Formulation, Obstacle, OnEvent, Options, Simulated, Tools, with_logging
from hetplan.profiles.arguments import check_arguments
from hetplan.profiles.given_files import GivenFile, sort_files
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Method, Plan
from hetplan.profiles.read_plan import read_plan
from hetplan.profiles.validate import validate
from hetplan.solvers.engine import without_prints

if TYPE_CHECKING:
    from hetplan.planner.certify import Bounding
    from hetplan.planner.contract import Problem
    from hetplan.profiles.plan import Claim
    from hetplan.verifier.check import Report

__all__ = [
    "Choice",
    "certificate_of",
    "choose",
    "fluid_size",
    "options_of",
    "plan_for",
    "pose",
    "solve",
    "verified",
]

Source = str | Path | Mapping[str, Any]

FLUID = {"sizing": "fluid"}
"""The size by which nothing is simulated."""
ANEW_S = 60.0
"""So long all of a plan's bounds may take; what is open then stays so."""


@dataclass(frozen=True)
class Choice:
    """Which question is asked, by which formulation, with which options."""

    problem: type[Problem]
    formulation: str
    options: Options
    inferred: bool = False

    @property
    def way(self) -> Formulation:
        """The formulation itself."""
        found = registry.formulation(self.problem, self.formulation)
        assert found is not None
        return found

    @property
    def method(self) -> Method:
        """How the plan will say that it was made."""
        return Method(
            formulation=self.formulation,
            like=self.way.like,
            options=self.options.model_dump(mode="json", exclude_none=True),
        )


@check_arguments
def solve(
    *files: GivenFile | Inputs | None,
    formulation: str | None = None,
    options: Mapping[str, Any] | None = None,
    solver: str | None = None,
    start: Source | Plan | None = None,
    time_limit: float | None = None,
    gap: float | None = None,
    seed: int = 0,
    jobs: int = 1,
    require_proof: bool = False,
    evaluate: Callable[..., Any] | None = None,
    cancel: threading.Event | None = None,
    on_event: OnEvent | None = None,
) -> Outcome:
    """Plan: from what was measured and what is wanted to a verified plan, or to why there is none.

    `files` are profiles, an SLO, perhaps a state and measurements: paths, folders, documents or objects, in any order.
    `formulation` names a way to plan ("kairos") or a problem ("pool"); without it the files say which problem they
    state. `start` is a plan to begin from. `evaluate` measures a point of a compound query; `jobs`
    of them are measured at once. After `time_limit` seconds, or once `cancel` is set, the best plan so far is returned.

    >>> import hetplan as hp
    >>> profile = {"format": "hetplan/profile/1.0", "machines": {"gpu": {"price_per_hour": 1}},
    ...     "models": {"m": {"runs": {"gpu": {"batch": [1, 8], "mean_ms": [5, 20]}}}}}
    >>> slo = {"format": "hetplan/slo/1.0", "limits": {"cost_per_hour": "2.5"}, "apps": {"rank": {
    ...     "model": "m", "latency": {"p99_ms": 50},
    ...     "rate_qps": "max", "mix": {"axes": ["batch"], "bins": [[1], [8]], "share": [0.5, 0.5]}}}}
    >>> outcome = hp.solve(slo, profile)
    >>> outcome.status, outcome.require().workers[0].count
    ('best-of-measured', 2)
    """
    named = sort_files(files, "solve", in_python=True)
    if not isinstance(jobs, int) or jobs < 1:
        raise InputError.one(path="jobs", value=jobs, why="a whole number from 1 on", remedy="Write jobs=2.")
    if jobs > 1 and evaluate is None:
        why = "nothing is measured without evaluate"
        raise InputError.one(path="jobs", value=jobs, why=why, remedy="Hand in evaluate=..., or leave it out.")
    return plan_for(
        named.inputs, formulation=formulation, options=options, start=start, solver=solver,
        limits=Limits(seconds=time_limit, gap=gap, seed=seed, cancel=cancel), require_proof=require_proof,
        tools=None if evaluate is None else Tools(evaluate=evaluate, jobs=jobs), on_event=on_event,
    )  # fmt: skip


def choose(
    inputs: Inputs,
    *,
    question: str | None = None,
    formulation: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Choice:
    """The problem that the files state (or the one named), and its options, checked.

    A formulation says its problem; a problem's name stands for its first formulation. Where another package has the
    same name, "problem/name" says which.
    """
    if question is None and formulation is not None:
        question, formulation = _problem_named(formulation)
    kind = registry.problem(question or _infer(inputs))
    if question and (reasons := _in_the_way(kind.question, inputs)):
        from hetplan.api.infer_problem import not_asked

        raise not_asked(kind.question, reasons[0], inputs)
    name, way = _formulation(kind, formulation)
    return Choice(kind, name, options_of(way, options or {}), inferred=not question)


def _problem_named(formulation: str) -> tuple[str | None, str | None]:
    """The problem and the formulation that a text names; None for what it leaves open."""
    problem, slash, name = formulation.partition("/")
    if slash:
        return problem, name
    name = formulation.lower().replace("_", "-")
    return (name, None) if name in registry.problem_names() else (registry.problem_of(name), name)


def _in_the_way(question: str, inputs: Inputs) -> list[Obstacle]:
    """What keeps files from a question that is named."""
    return [one for one in registry.obstacles(question, inputs) if not one.ambiguous]


def pose(inputs: Inputs, choice: Choice, *, tools: Tools | None = None, start: Plan | None = None) -> Problem:
    """The problem itself, ready to decide or to export."""
    try:
        handed = tools or Tools()
        handed = handed if choice.way.decide is None else replace(handed, formulation=choice.way)
        return choice.problem.from_inputs(
            inputs, choice.options, formulation=choice.formulation, tools=handed, start=start
        )
    except InputError as error:
        if choice.inferred:
            error.add_note(f"read as the question {choice.problem.question}; name another with --formulation")
        from hetplan.planner.written_paths import error_as_written

        raise error_as_written(error, inputs.profile) from None


def fluid_size(choice: Choice, inputs: Inputs) -> dict[str, str]:
    """The option by which a problem plans without simulation; none where it has no size, or another was asked for.

    Nor where these files are refused such a size.
    """
    fields = choice.options.__class__.model_fields
    if "sizing" not in fields or "sizing" in choice.options.model_fields_set:
        return {}
    try:
        options_of(choice.way, FLUID)
        pose(inputs, replace(choice, options=choice.options.model_copy(update=FLUID)))
    except InputError as error:
        if any(fault.file == "options" for fault in error.faults):
            return {}
    return FLUID


def options_of(way: Formulation, given: Mapping[str, Any]) -> Options:
    """Typed options; names accept "-" and "_" alike."""
    data = {name.replace("-", "_"): value for name, value in given.items()}
    typed: Options = validate(way.options, data, file="options")
    return typed


@without_prints()
def plan_for(
    inputs: Inputs,
    *,
    question: str | None = None,
    formulation: str | None = None,
    options: Mapping[str, Any] | None = None,
    start: Source | Plan | None = None,
    solver: str | None = None,
    limits: Limits | None = None,
    require_proof: bool = False,
    allow_unchecked: bool = False,
    tools: Tools | None = None,
    on_event: OnEvent | None = None,
    try_repairs: bool = True,
    check: bool = True,
    engines: registry.Engines | None = None,
) -> Outcome:
    """`solve` for inputs that are read already; repairs are tried before they are handed back.

    Without `check` the plan is not verified: who asks for a part of a plan verifies the whole.
    """
    previous = read_plan(start) if start is not None else None
    choice = choose(inputs, question=question, formulation=formulation, options=options)
    engines = engines or registry.Engines()
    _known(engines, solver, "--solver")
    limits = limits or Limits()
    # More threads than cores only cost memory, and an absurd number would take the machine down.
    limits = replace(limits, threads=max(1, min(limits.threads, os.cpu_count() or 1)))
    ask = Asking(engines, limits, solver=solver, on_event=with_logging(on_event))
    simulated = Simulated()
    handed = simulated.counted(registry.tools_of(choice.problem.question, tools, ask.stop))
    handed = replace(handed, repairs=try_repairs)
    ask = ask.without_proofs() if handed.trial else ask  # whether there is a plan, and not how good it is
    problem = pose(inputs, choice, tools=handed, start=previous)
    outcome = make_plan(problem, inputs, ask, method=choice.method, require_proof=require_proof)
    if outcome.repairs and try_repairs and (tools is None or tools.evaluate is None):
        from hetplan.planner.repairs import check_repairs

        again = partial(plan_for, question=choice.problem.question, formulation=choice.formulation, start=start,
            solver=solver, try_repairs=False)  # fmt: skip
        trying = replace(handed, trial=True)
        outcome = check_repairs(outcome, inputs, choice.options, ask, again, trying, simulated)
    if solver is not None and ask.records and not any(ask.is_of(record, solver) for record in ask.records):
        kinds = sorted({record.form.kind for record in ask.records})
        raise NoSolver(" or ".join(kinds), {solver: "it is for another kind of form, and answered nothing here"})
    if try_repairs and (outcome.repairs or outcome.why):
        from hetplan.planner.written_paths import outcome_as_written

        outcome = outcome_as_written(outcome, inputs.profile)
    if outcome.plan is None:
        # Also one that is proved to be impossible may have been explained in part only.
        return replace(outcome, finding=replace(outcome.finding, limited=ask.hit_limit))
    if not check:
        return outcome
    judged = partial(_judged, inputs=inputs, proofs=require_proof, allow_unchecked=allow_unchecked)
    if outcome.front is not None:
        outcome = replace(outcome, front=outcome.front.each(judged))
    return judged(outcome)


def _judged(outcome: Outcome, *, inputs: Inputs, proofs: bool, allow_unchecked: bool) -> Outcome:
    """The outcome after its plan was verified."""
    assert outcome.plan is not None
    if outcome.plan.parts is not None:
        from hetplan.planner.certify import with_vouched_bounds

        plan = with_vouched_bounds(outcome.plan, _Again(outcome.plan, inputs).bounds, Asking(registry.Engines()))
        outcome = replace(outcome, plan=plan, finding=replace(outcome.finding, proved=all_proved(plan.claims)))
    assert outcome.plan is not None
    plan = outcome.plan
    # What was certified a moment ago by the same engine is not solved anew.
    report = verified(plan, inputs, proofs=proofs, prove=False)
    again = zip(outcome.plan.claims, report.claims, strict=False)
    words = {one.word for claim, one in again if claim.bound is not None}
    if words == {"proved again"}:
        outcome = replace(outcome, finding=replace(outcome.finding, proved=True))
    found = tuple(f"{one.code} at {one.at}: {one.text}" for one in report.violations)
    unsure = report.undecided or any(one.code == "W-latency-unchecked" for one in plan.warnings)
    outcome = replace(outcome, finding=replace(outcome.finding, undecided=bool(unsure)), inputs=inputs)
    return outcome.with_verification(violations=found, unchecked=report.unchecked, unchecked_allowed=allow_unchecked)


@without_prints()
def verified(
    plan: Plan,
    inputs: Inputs,
    *,
    proofs: bool = True,
    prove: bool | None = None,
    solver: str | None = None,
    limits: Limits | None = None,
    on_event: OnEvent | None = None,
) -> Report:
    """What the verifier, which never saw how a plan was made, says of it; with `proofs`, its bounds are proved again.

    That is done by the planner's programs: by the multipliers that the plan carries, else, where a bound is called
    certified, by solving its program anew. `prove` does so of every bound that is not shown otherwise (with a `solver`
    that is named, of every bound); False never does.
    """
    from hetplan.verifier.check import verify_plan
    from hetplan.verifier.report import Violation

    engines = registry.Engines()
    _known(engines, solver, "--solver")
    again = _Again(plan, inputs)
    if plan.parts is not None:
        from hetplan.verifier.fleet import verify_fleet

        report = verify_fleet(plan, inputs)
        if "fleet" in report.checked and inputs.slo.limits.survive.machines:
            lost = (Violation("survive", at, text) for at, text in again.lost_too_much())
            report = replace(report, violations=(*report.violations, *lost))
    else:
        report = verify_plan(plan, inputs, registry.check_of(plan.question))
        if reasons := _in_the_way(plan.question, inputs):
            text = f"the files do not ask the question {plan.question}: {reasons[0].why}"
            report = replace(report, violations=(*report.violations, Violation("question", "question", text)))
    if not proofs or not {"claims", "fleet"}.intersection(report.checked):
        return report
    report = _with_summary(report, plan, inputs)
    from hetplan.planner.certify import prove_again

    limits = limits or Limits(seconds=ANEW_S)
    found = prove_again(
        plan, again.bounds, Asking(engines, limits, solver=solver, on_event=with_logging(on_event)),
        anew=prove is not False and not report.violations, every=bool(prove), all_anew=solver is not None,
        deadline=Deadline(limits),
    )  # fmt: skip
    faults = (Violation("proof", at, text) for at, text in found.faults)
    report = replace(
        report,
        violations=(*report.violations, *faults),
        checked=(*report.checked, "proofs"),
        claims=found.claims,
    )
    return _with_open_bounds(report, plan)


def _with_summary(report: Report, plan: Plan, inputs: Inputs) -> Report:
    """The report with what the plan's summary says that does not follow from the plan; of a plan without other faults.

    It is made anew by the code that made it: what it reads of the plan, the verifier has held against the files.
    """
    from hetplan.planner.summary import summary_faults
    from hetplan.verifier.report import Violation

    if plan.summary is None or report.violations:
        return report
    faults = tuple(Violation("summary", at, text) for at, text in summary_faults(plan, inputs))
    return replace(report, violations=faults, checked=(*report.checked, "summary"))


def _with_open_bounds(report: Report, plan: Plan) -> Report:
    """The report, which says so where a bound of all plans, or one that the plan is as good as, is not proved here."""
    is_near = plan.status in ("optimal", "within-gap")
    bounded = {
        f"claims[{number}]"
        for number, claim in enumerate(plan.claims)
        if claim.bound is not None and (is_near or claim.scope != "restriction")
    }
    return replace(report, unproved=any(one.at in bounded and one.word != "proved again" for one in report.claims))


@dataclass(frozen=True)
class _Again:
    """A plan's question, asked again: what its programs say of the plan."""

    plan: Plan
    inputs: Inputs

    @cached_property
    def posed(self) -> tuple[Any, InputError | None]:
        """The problem; else why the question cannot be asked as the plan says that it was."""
        question, formulation = self.plan.question, self.plan.method.formulation
        try:
            options = dict(self.plan.method.options)
            choice = choose(self.inputs, question=question, formulation=formulation, options=options)
            return pose(self.inputs, choice, tools=registry.tools_of(question)), None
        except InputError as error:
            return None, error

    def bounds(self, claim: Claim) -> Iterable[Bounding] | None:
        """The programs that bound a claim; None where nobody here can say."""
        try:
            bounding = getattr(registry.problem(self.plan.question), "bounding", None)
        except InputError:
            bounding = None  # a question that is not installed
        if bounding is None:
            return None
        problem, why_not = self.posed
        if why_not is not None:
            raise why_not
        programs: Iterable[Bounding] | None = bounding(problem, claim, self.plan)
        return programs

    def lost_too_much(self) -> Iterable[tuple[str, str]]:
        """Where single machines of a fleet may be lost, and what is left carries too little, and why."""
        problem, why_not = self.posed
        try:
            if why_not is not None:
                raise why_not
            return list(problem.lost_too_much(self.plan))
        except Exception as error:
            # A plan may say anything, so that anything may go wrong where its question is read by it.
            return [("method", f"the question cannot be asked as the plan says that it was: {error}")]


def certificate_of(plan: Plan, inputs: Inputs, *, number: int = 1) -> tuple[str, str]:
    """The plan's proof of its claim of this number as a VIPR certificate, and what it proves."""
    from hetplan.planner.certify import certificate_text

    return certificate_text(plan, _Again(plan, inputs).bounds, number)


def _infer(inputs: Inputs) -> str:
    """The most specific of hetplan's own questions that fits; where none does, the one of others that does."""
    from hetplan.planner.request import read_request
    from hetplan.problems import infer_problem

    request = read_request(inputs)
    for name in infer_problem.LADDER:
        if not infer_problem.is_ruled_out(name, request) and not registry.obstacles(name, inputs):
            return name
    from hetplan.api.infer_problem import further

    return further(inputs)


def _formulation(kind: type[Problem], name: str | None) -> tuple[str, Formulation]:
    name = next(iter(kind.formulations)) if name is None else name
    found = registry.formulation(kind, name)
    if found is not None:
        return name, found
    from hetplan.api.infer_problem import formulation_meant

    return formulation_meant(kind, name)


def _known(engines: registry.Engines, name: str | None, flag: str) -> None:
    if name is not None and engines.find(name) is None:
        names = ", ".join(registry.solver_names())
        raise InputError.one(path=flag, value=name, why="there is no such solver", remedy=f"Choose one of {names}.")

"""From a problem to a plan with its proof: run the conversation, turn answers into claims, log the solves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from hetplan.errors import Interrupted
from hetplan.planner.answer import Status, Stop, Vouched, relative_gap
from hetplan.planner.draft import Draft, Infeasibility, Reported
from hetplan.planner.forms.milp import Milp
from hetplan.planner.outcome import Outcome
from hetplan.planner.request import read_request
from hetplan.planner.safe_bound import BoundTree, written_tree
from hetplan.planner.solver_calls import Asking, Record
from hetplan.planner.status import Finding, Found, PlanStatus, plan_status
from hetplan.planner.tolerances import BOUND_SLIP, GAP, LARGEST_GAP, PROOF_NUMBERS, PROOF_ROWS, ROUNDING
from hetplan.planner.written_paths import notices_as_written
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Binding, Claim, InputHashes, Method, Notice, Plan, Solve
from hetplan.profiles.plan_file import OUTCOMES, settled, with_summary
from hetplan.profiles.workers import Worker

if TYPE_CHECKING:
    from hetplan.planner.contract import Problem

__all__ = ["all_proved", "assemble_plan", "make_plan"]

MOST_BINDING = 8


def make_plan(problem: Problem, inputs: Inputs, ask: Asking, *, method: Method, require_proof: bool = False) -> Outcome:
    """Let the problem decide, and make what it hands back a plan that says what is proved of it.

    The plan is not verified yet: `api.solve` does so next, with code that never saw the problem.
    """
    result, simulated = _decide(problem, ask, inputs, method)
    interrupted = ask.deadline.cancelled  # during an engine's work, or beside it
    if result is None:
        finding = Finding(Found.NOTHING, interrupted=interrupted)
        return Outcome(finding, solves=tuple(_solve(one) for one in ask.records))
    solves = tuple(_solve(record, proofs=require_proof) for record in ask.records)
    if isinstance(result, Infeasibility):
        found = Found.INFEASIBLE if result.proved else _not_found(ask)
        finding = Finding(found, interrupted=interrupted)
        warnings = (*_notices(inputs, ask), *result.warnings)
        return Outcome(finding, why=result.why, repairs=result.repairs, solves=solves, warnings=warnings)
    made = partial(_plan_outcome, inputs=inputs, ask=ask, named=(problem.question, method), solves=solves,
                   require_proof=require_proof, interrupted=interrupted, simulated=simulated)  # fmt: skip
    outcome = made(result)
    return outcome if result.front is None else replace(outcome, front=result.front.each(made))


def _decide(problem: Problem, ask: Asking, inputs: Inputs, method: Method) -> tuple[Draft | Infeasibility | None, bool]:
    """The end of the conversation, or the best plan until a limit or a cancel ended it; and whether it was played.

    A search that was cut short and found nothing says no more than that: then, too, it is the best plan so far.
    """
    result: Draft | Infeasibility | None = None
    with suppress(Interrupted):
        result = _impossible(inputs, method) or problem.decide(ask)
    empty = not result.proved if isinstance(result, Infeasibility) else result is None or bool(result.target_missed)
    ended = ask.deadline.is_set() or ask.deadline.heard  # in time to make a plan of what is known, too
    best = ask.best() if empty and ended else None
    return best or (result, True)


def _impossible(inputs: Inputs, method: Method) -> Infeasibility | None:
    """Why no plan can keep the wish by the service times alone; asked where a plan is to keep response times."""
    if method.options.get("sizing", "fluid") == "fluid" or method.formulation == "infaas":
        return None
    from hetplan.planner.service_times import infeasible_by_service_times

    return infeasible_by_service_times(inputs)


def _of_times(inputs: Inputs, draft: Draft, options: Mapping[str, object]) -> Iterator[Notice]:
    """What the promised response times take for granted; or that a plan of rates alone promises none."""
    of_apps = [one for one in draft.promises if one.app is not None]
    rated = {one.app for one in of_apps if one.model in ("fluid", "no-queueing")}
    apps = read_request(inputs).apps
    limited = any(apps[app or ""].targets for app in rated)
    said = any(one.code == "W-queueing" for one in draft.warnings)
    if options.get("sizing") == "fluid" and limited and not said:
        text = "sized without queueing: no response time is promised; set sizing to simulation"
        yield Notice(code="W-queueing", at="promises", text=text)
    if any(one.percentile is not None and one.model.startswith("simulation") for one in of_apps):
        from hetplan.planner.service_times import assumptions

        yield from assumptions(inputs, draft)


def _plan_outcome(
    result: Draft, *, inputs: Inputs, ask: Asking, named: tuple[str, Method], solves: tuple[Solve, ...], **how: bool
) -> Outcome:
    """The outcome that a draft comes to."""
    notices = (*_notices(inputs, ask), *_of_times(inputs, result, named[1].options))
    require_proof = how["require_proof"]
    if not how["simulated"]:
        ended = "interrupted" if how["interrupted"] else "the time limit ended"
        short_of = "all was tried" if named[1].options.get("sizing") == "fluid" else "simulation confirmed this plan"
        text = f"{ended} before {short_of}: it is the best so far; run hetplan simulate"
        notices = (*notices, Notice(code="W-unconfirmed", at="promises", text=text))
    claims = tuple(_claim(reported, ask, proved=require_proof) for reported in result.reported)
    used = {claim.solve for claim in claims}  # nobody would prove the other solves again
    solves = tuple(one if one.id in used else one.model_copy(update={"proof": None}) for one in solves)
    first = claims[0] if claims else None
    asked = max((record.gap or GAP for record in ask.records), default=GAP)
    allowed = min(asked, LARGEST_GAP)
    gap = first.gap if first else None
    status = plan_status(gap=gap, scope=first.scope if first else "none", allowed=allowed, searched=result.searched)
    if not result.levels_proved and status is PlanStatus.OPTIMAL:
        status = PlanStatus.WITHIN_GAP  # of the first level of the objective: a later one may be better
    if not how["simulated"]:
        status = PlanStatus.NOT_SIMULATED
    # Simulation asks for more than a relaxation without waiting: no engine closes that gap; of fleets a search may.
    sized = first and first.scope == "relaxation" and any(one.model.startswith("simulation") for one in result.promises)
    if status is PlanStatus.FEASIBLE and gap is not None and gap > allowed and (result.sections or not sized):
        text = f"the gap is {100 * gap:.2g}% (target {100 * allowed:g}%): a better plan may exist"
        notices = (*notices, Notice(code="W-gap", at="claims", text=text))
    plan = assemble_plan(result, inputs, named, status, claims, solves, notices)
    finding = Finding(
        Found.PLAN,
        interrupted=how["interrupted"],
        limited=ask.hit_limit,
        target_missed=bool(result.target_missed),
        gap_asked=ask.limits.gap,
        gap_reached=gap,
        proof_required=require_proof,
        proved=all_proved(claims),
    )
    why = (result.target_missed,) if result.target_missed else ()
    return Outcome(finding, plan, why, result.repairs, solves, plan.warnings, ways=result.ways)


def assemble_plan(
    draft: Draft,
    inputs: Inputs,
    named: tuple[str, Method],
    status: PlanStatus,
    claims: tuple[Claim, ...],
    solves: tuple[Solve, ...],
    notices: tuple[Notice, ...],
) -> Plan:
    """A draft as a plan, with what is claimed of it."""
    question, method = named
    has_outcomes = any(load.outcomes for worker in draft.workers for load in worker.loads)
    requires = {*draft.requires, *(rule.rule for rule in draft.dispatch.values()), *[OUTCOMES] * has_outcomes}
    from hetplan.planner.summary import plan_summary

    plan = settled(
        Plan(
            requires=tuple(sorted(requires)),
            question=question,
            method=method.model_copy(update={"options": {**method.options, **draft.chosen}}),
            status=status.value,
            inputs=InputHashes.model_validate({"traces": dict(inputs.trace_digests), **inputs.digests}),
            valid=draft.valid,
            workers=draft.workers,
            routing=dict(draft.routing),
            dispatch=dict(draft.dispatch),
            policies=dict(draft.policies),
            tables=dict(draft.tables),
            actions=draft.actions,
            promises=draft.promises,
            claims=claims,
            solves=solves,
            unserved=draft.unserved,
            alternatives=tuple(dict(one) for one in draft.alternatives),
            warnings=notices_as_written(
                (*notices, *_taken_back(inputs, draft.workers), *_idle(inputs, draft.workers), *draft.warnings),
                inputs.profile,
            ),
            extensions=dict(draft.extensions),
            **draft.sections,
        )
    )
    # Made of the plan as it is read: of what the file leaves out no figure is told.
    return with_summary(plan, plan_summary(plan, inputs))


def all_proved(claims: tuple[Claim, ...]) -> bool:
    """Whether there is a bound, and every one is proved."""
    bounded = [claim for claim in claims if claim.bound is not None]
    return bool(bounded) and all(claim.vouched == "certified" for claim in bounded)


def _claim(reported: Reported, ask: Asking, *, proved: bool = False) -> Claim:
    """A value with the best bound that its answer has, and whose word the bound is.

    Where only what is `proved` counts, it is the best bound that was, though an engine says that a nearer one holds.
    """
    value, bound, solve = reported.value, reported.bound, None
    vouched: Literal["certified", "claimed", "none"] = reported.vouched or "none"
    if reported.answer is not None and (found := ask.record_of(reported.answer)) is not None:
        record, certificate = found
        solve = record.id
        if value is None and certificate.value is not None:
            value = reported.scale * certificate.value + reported.shift
        proof = certificate.certified_bound
        shown = None if proof is None else reported.scale * proof + reported.shift
        if bound is not None and shown is not None and abs(shown - bound) <= ROUNDING:
            vouched = "certified"  # what the problem knows by itself is what was proved
        if bound is None and certificate.bound is not None:
            bound, vouched = reported.scale * certificate.bound + reported.shift, certificate.vouched.value
            if proved and vouched != "certified" and shown is not None:
                bound, vouched = shown, "certified"
    if value is None:
        raise ValueError(f"the claim about {reported.about} has neither a value nor an answer to take one from")
    note = reported.note
    if bound is not None and (bound - value if reported.sense == "min" else value - bound) > 0:
        # The plan's own value, solved again after rounding, may pass an engine's bound by a hair. By more, the bound
        # was false: nothing is claimed from it.
        if abs(bound - value) <= BOUND_SLIP * max(abs(bound), abs(value), reported.floor):
            bound = value
        else:
            note = f"the bound {bound:.9g} of solve {solve} is refuted by this value"
            bound = None
    return Claim(
        about=reported.about,
        sense=reported.sense,
        value=value,
        bound=bound,
        gap=None if bound is None else relative_gap(value, bound, floor=reported.floor),
        scope=reported.scope if bound is not None else "none",
        vouched=vouched if bound is not None else "none",
        solve=solve,
        note=note,
    )


def _solve(record: Record, *, proofs: bool = False) -> Solve:
    shown = _worst_of(record)
    answer, certificate = record.answers[shown], record.certificates[shown]
    size = record.form.size()
    why = _why_not_deterministic(record)
    return Solve(
        id=record.id,
        form=record.form.kind,
        about=record.about or None,
        count=len(record.answers),
        rows=size.get("rows"),
        columns=size.get("columns"),
        size={name: n for name, n in size.items() if name not in ("rows", "columns")},
        solver=record.engine if len(record.answers) > 1 else answer.engine or record.engine,
        status=str(answer.status),
        stop=None if answer.stop is Stop.FINISHED else str(answer.stop),
        value=certificate.value,
        bound=certificate.bound,
        vouched=str(certificate.vouched),
        certified_bound=certificate.certified_bound,
        deterministic=not why,
        why_not_deterministic=why or None,
        proof=_proof(record, always=proofs),
        binding=_binding_rows(record),
    )


_FROM_BEST_STATUS = (Status.OPTIMAL, Status.FEASIBLE, Status.INFEASIBLE, Status.UNBOUNDED, Status.NO_ANSWER)
_FROM_BEST_VOUCHER = (Vouched.CERTIFIED, Vouched.CLAIMED, Vouched.NONE)


def _worst_of(record: Record) -> int:
    """Of a family solved together, the member of which least was found and proved: the log speaks for all of them."""

    def badness(i: int) -> tuple[int, int, float]:
        status, certificate = record.answers[i].status, record.certificates[i]
        voucher = certificate.infeasible if status is Status.INFEASIBLE else certificate.vouched
        value, bound = certificate.value, certificate.bound
        gap = math.inf if value is None or bound is None else relative_gap(value, bound)
        return _FROM_BEST_STATUS.index(status), _FROM_BEST_VOUCHER.index(voucher), gap

    return max(range(len(record.answers)), key=badness)


def _why_not_deterministic(record: Record) -> str:
    if any(answer.stop is Stop.TIME for answer in record.answers):
        return "a limit in seconds was hit"
    if any(answer.stop is Stop.CANCELLED for answer in record.answers):
        return "the work was interrupted"
    if not all(answer.deterministic for answer in record.answers):
        return "the engine does not promise it"
    return ""


def _proof(record: Record, *, always: bool) -> dict[str, Any] | None:
    """What the bound was re-proved by, by name; left out, and said so, where it is too long for a plan.

    Where an engine says that a nearer bound holds than is proved, the proof is there if it is `always` wanted.
    """
    answer, certificate = record.answers[-1], record.certificates[-1]
    form = record.form
    if len(record.answers) > 1:
        return None
    if not isinstance(form, Milp):
        return form.written_proof(answer) if certificate.vouched is Vouched.CERTIFIED else None
    tree = answer.proof.get("tree")
    if isinstance(tree, BoundTree) and (always or certificate.vouched is Vouched.CERTIFIED):
        numbers = int((tree.leaves != 0.0).sum()) + tree.splits.size
        if numbers > PROOF_NUMBERS:
            return {"left_out": f"tree: {len(tree.leaves)} leaves, {numbers} numbers"}
        return {"tree": written_tree(form, tree)}
    vector, name = (answer.row_duals, "row_duals") if answer.ray is None else (answer.ray, "ray")
    if vector is None or Vouched.CERTIFIED not in (certificate.vouched, certificate.infeasible):
        return None
    nonzero = [int(i) for i in vector.nonzero()[0]]
    if len(nonzero) > PROOF_ROWS:
        return {"left_out": f"{name}: {len(nonzero)} nonzeros"}
    return {name: {form.row_name(i): float(vector[i]) for i in nonzero}}


def _binding_rows(record: Record) -> tuple[Binding, ...]:
    """The dearest rows of a linear program: what one unit more of each would bring."""
    answer, form = record.answers[-1], record.form
    if not isinstance(form, Milp) or answer.row_duals is None or not form.pure_lp or len(record.answers) > 1:
        return ()
    prices: list[Binding] = []
    for block in form.rows:
        for i in range(block.start, block.stop):
            if abs(answer.row_duals[i]) > 1e-12:
                label = block.label(i - block.start)
                prices.append(Binding(block=block.name, label=label, price=float(answer.row_duals[i]), unit=block.unit))
    prices.sort(key=lambda one: (-abs(one.price), one.block, one.label))
    return tuple(prices[:MOST_BINDING])


def _not_found(ask: Asking) -> Found:
    """Without a proof: was it a limit that ended the search, or its own end?"""
    limited = any(answer.stop in (Stop.TIME, Stop.WORK) for record in ask.records for answer in record.answers)
    return Found.NOTHING if limited or ask.remaining <= 0 else Found.NOT_FOUND


def _idle(inputs: Inputs, workers: Sequence[Worker]) -> Iterable[Notice]:
    """Machines with room for more; looked for where an operator is on one, or what needs half of it or less."""
    there = {(load.variant, worker.hardware) for worker in workers for load in worker.loads}
    small = any(name is None for name, _ in there)
    known = read_request(inputs)
    for name, hardware in there:
        for one in known.choices(variants=[name or ""], hardware=hardware):
            computed = ((resource, amount) for resource, amount in one.needs.items() if not resource.endswith("_gib"))
            small |= any(2 * amount <= one.machine.provides.get(resource, 0.0) for resource, amount in computed)
    if small:
        from hetplan.planner.idle_machines import idle_machines

        return idle_machines(inputs, workers)
    return ()


def _taken_back(inputs: Inputs, workers: Sequence[Worker]) -> Iterator[Notice]:
    """Offers under which machines may be taken back (no question keeps spare ones for that), or cost less for long."""
    rented: Counter[str] = Counter()
    for worker in workers:
        if worker.offer is not None:
            rented[worker.offer] += worker.count + worker.standby
    for offer, count in sorted(rented.items()):
        often = inputs.profile.offers[offer].interruptions_per_hour
        if rate := (often or 0.0) * count:
            when = f"1 of {count} spot machines is taken back every {1.0 / rate:.3g} hours"
            when = when if rate < 1.0 else f"{rate:.3g} of {count} spot machines are taken back an hour"
            text = f"{when} on average, no machine is spare"
            yield Notice(code="W-interruptions", at=f"offers.{offer}", text=text)
        if inputs.profile.offers[offer].commit is not None:
            text = "planned by the hour: only a fleet plans reserved machines"
            yield Notice(code="W-commit", at=f"offers.{offer}", text=text)


def _notices(inputs: Inputs, ask: Asking) -> tuple[Notice, ...]:
    read = [Notice(code=code, at=at, text=text) for code, at, text in inputs.warnings]
    passed_over = [
        Notice(code="W-engine", at=f"solves[{record.id}]", text=f"this engine was skipped: {reason}")
        for record in ask.records
        for reason in record.refused
    ]
    return (*read, *passed_over)

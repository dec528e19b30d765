"""`report`: a plan as one page for people, with what was simulated and verified of it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from hetplan.api.solve import Source
from hetplan.api.verify_and_simulate import verify
from hetplan.drawing.report import Documents, report_page
from hetplan.errors import InputError
from hetplan.planner.bound_verdicts import has_unproved_bound, words_of_bounds
from hetplan.planner.summary import summarize
from hetplan.planner.summary_rows import spot_offers
from hetplan.planner.terms import OnEvent, with_logging
from hetplan.profiles.arguments import check_arguments
from hetplan.profiles.given_files import GivenFile, sort_files
from hetplan.profiles.plan import Plan
from hetplan.profiles.read_plan import read_plan
from hetplan.profiles.summary_words import summary_text

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.verifier.report import Report

__all__ = ["documents_of", "report", "with_simulation", "with_verification"]

REFUSED = "the plan is not verified"
"""Of a plan that is wrong no run is shown: what it meets says nothing of what was promised."""


@check_arguments
def report(
    plan: Source | Plan,
    *files: GivenFile | Inputs | None,
    simulate: bool = True,
    on_event: OnEvent | None = None,
    cancel: threading.Event | None = None,
) -> str:
    """A plan as one web page (HTML): its summary, what runs, and what is proved.

    With the `files` that it was made from, it is verified, and simulated unless `simulate` is False.

    >>> import hetplan as hp
    >>> files = "examples/pool/profile.json", "examples/pool/slo.json"
    >>> page = hp.report(hp.solve(*files, options={"sizing": "fluid"}).require(), *files, simulate=False)
    >>> page.startswith("<!doctype html>"), "Verified" in page
    (True, True)
    """
    named = sort_files((plan, *files), "report", plans=(1, 1), needs_inputs=False, in_python=True)
    shown = read_plan(named.plan, trust_digest=True)
    given = documents_of(shown)
    if named.has_inputs:
        given = with_verification(given, shown, named.inputs)
        if simulate and shown.workers:
            try:
                given = with_simulation(given, shown, named.inputs, on_event=with_logging(on_event), cancel=cancel)
            except InputError as error:
                given = replace(given, unplayed=error.faults[0].why)
    return report_page(given)


def documents_of(plan: Plan) -> Documents:
    """What a page says of a plan alone."""
    document = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    told = summary_text(summarize(plan))
    told = replace(told, status=f"{told.status} Nothing was recomputed: the plan alone was given.")
    return Documents(document, told, pictures=_policies(plan))


def with_verification(given: Documents, plan: Plan, inputs: Inputs) -> Documents:
    """The same with what the plan's own files add: limits, money, and the verification."""
    checked = verify(plan, inputs, prove=False)
    verified = {
        "reason": checked.reason,
        "ok": checked.ok and not checked.unchecked,
        "violations": [*map(str, checked.violations), *(str(one) for one in checked.claims if one.refuted)],
        "checked": list(checked.checked),
        "skipped": [str(what) for what in checked.skipped],
        "claims": [{"about": one.about, "word": str(one.word), "text": one.text} for one in checked.claims],
    }
    wish = inputs.slo.model_dump(mode="json", by_alias=True, exclude_none=True)
    summary = summarize(plan, inputs, made_here=checked.reason == "verified")
    summary = replace(summary, proofs=words_of_bounds(checked.claims))
    if not checked.ok:
        summary = replace(summary, status="not verified")
    elif summary.status == "optimal" and has_unproved_bound(plan, checked.claims):
        summary = replace(summary, status="feasible")  # nothing here shows more
    told = summary_text(summary, _checked_words(checked))
    if not checked.ok and given.simulation is not None:
        given = replace(given, simulation=None, baselines={}, unplayed=REFUSED)
    return replace(given, summary=told, slo=wish, verified=verified, spot=spot_offers(inputs))


def with_simulation(
    given: Documents,
    plan: Plan,
    inputs: Inputs,
    *,
    baselines: bool = False,
    on_event: OnEvent | None = None,
    cancel: threading.Event | None = None,
) -> Documents:
    """The same with a simulation of the plan; with `baselines`, also of what people run today.

    A plan that is not verified is not simulated.
    """
    if (given.verified or {}).get("violations"):
        return replace(given, unplayed=REFUSED)
    if baselines:
        from hetplan.simulator.baselines import compare

        ways = {name: one.as_dict() for name, one in compare(plan, inputs, on_event=on_event, cancel=cancel).items()}
        return replace(given, simulation=ways.pop("plan"), baselines=ways)
    from hetplan.simulator.simulate import simulate

    return replace(given, simulation=simulate(plan, inputs, on_event=on_event, cancel=cancel).as_dict(), baselines={})


def _checked_words(checked: Report) -> tuple[str, str]:
    """What separate code found when it recomputed the plan from its files."""
    if checked.reason == "verified":
        return "Verified", "independent arithmetic over the same files finds nothing that contradicts it"
    return "Checked", "; ".join([checked.reason, *map(str, checked.violations[:3])])


def _policies(plan: Plan) -> dict[str, str]:
    """The pictures of a plan's policies: the busiest of each group."""
    if not plan.policies:
        return {}
    from hetplan.planner.plan_policy_picture import busiest_policies, svg_of

    return {"Which model answers which queue": svg_of(busiest_policies(plan), title=", ".join(plan.policies))}

"""The commands that look at plan files: `hetplan show`, `hetplan verify` and `hetplan diff`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import AsJson, PlanAndFiles, Unchecked, file_option, option
from hetplan.cli.output import Exit, Output, number
from hetplan.cli.plan_page import VIEWS, show_plan, show_view
from hetplan.cli.policy_page import draw_policies, write_svg
from hetplan.cli.read_files import plan_from
from hetplan.cli.summary_page import show_summary
from hetplan.errors import InputError
from hetplan.profiles.given_files import sort_files
from hetplan.profiles.summary_lines import Closing

if TYPE_CHECKING:
    from hetplan.planner.bound_verdicts import BoundVerdict
    from hetplan.profiles.plan import Plan
    from hetplan.verifier.promise_verdicts import Tried

__all__ = ["diff", "differences", "show", "verify"]

View = Annotated[
    str, option("--view", "NAME", "summary, machines, hours, routes, bill, policies, proof, warnings, changes or all.")
]
Svg = Annotated[Path | None, option("--svg", "FILE", "Draw the plan, or its policies, into this SVG file.")]
Csv = Annotated[
    Path | None, option("--csv", "FILE", "Write the bill here as CSV: its lines, totals and purchase options.")
]
Load = Annotated[float | None, typer.Option("--load", metavar="QPS", min=0.0, help="Draw the policies for this rate.")]

Prove = Annotated[bool, typer.Option("--prove", help="Solve the program of every bound that the plan does not prove.")]
AnewSolver = Annotated[
    str | None,
    typer.Option("--solver", metavar="NAME", help="With --prove: solve the program of every bound with this solver."),
]
RequireProof = Annotated[bool, typer.Option("--require-proof", help="Exit 4 unless every bound is proved again.")]
NoSimulate = Annotated[bool, typer.Option("--no-simulate", help="Simulate nothing.")]
Gap = Annotated[
    float | None, typer.Option("--gap", min=0.0, max=1.0, help="Exit 4 if a bound is farther from its value.")
]
MOST_SHOWN = 12
"""Simulated promises that are shown to people; `--json` has them all."""


def show(
    files: PlanAndFiles,
    view: View = "summary",
    csv: Csv = None,
    svg: Svg = None,
    load: Load = None,
    as_json: AsJson = False,
) -> None:
    """Print a plan: summary, machines, hours, routes, bill, proof.

    Limits, prices and utilization come from the given files, else from the plan. --view all prints every table.
    --view policies also draws which model answers which queue. PLAN may be - for stdin.
    """
    with Output("show", as_json=as_json) as out:
        from hetplan.cli.fleet_page import bill_csv
        from hetplan.cli.fleet_page import totals as bill_totals
        from hetplan.planner.summary import summarize
        from hetplan.profiles.plan_file import write_atomically

        _check_view(view)
        named = sort_files(files, "show", plans=(1, 1), needs_inputs=False)
        plan, found = named.plan, plan_from(named.plan, warn=out.warn)
        inputs = named.inputs if named.has_inputs else None
        if csv is not None and found.bill is None:
            why, remedy = "the plan has no bill: only plans with periods have one", "Leave --csv out: see the summary."
            raise InputError.one(file=str(plan), path="$.bill", why=why, remedy=remedy)
        for kind, digest in (("profile", found.inputs.profile), ("slo", found.inputs.slo)):
            if inputs is not None and inputs.digests.get(kind) != digest:
                out.warn(f"the plan was made from another {kind}: prices and limits are those of the files")
        summary = summarize(found, inputs)
        document = found.model_dump(mode="json", by_alias=True, exclude_none=True)
        totals = list(bill_totals(found.bill)) if view == "bill" and found.bill is not None else None
        out.end(Exit.OK, "done", summary=asdict(summary), plan=document, **({"totals": totals} if totals else {}))
        if view == "summary":
            closing = Closing(plan="PLAN" if str(plan) == "-" else str(plan))
            show_summary(summary, out.people, closing)
        elif view == "all":
            show_plan(found, summary, out.people)
        else:
            show_view(view, found, summary, out.people)
            absent = {
                "bill": found.bill is None and "bill: only plans with periods have one",
                "hours": found.parts is None and "hours: only plans with periods have some",
                "policies": not found.policies and "policies: only plans that choose a model for each queue have some",
            }.get(view)
            if absent:
                out.people.line(f"The plan has no {absent}. See the summary.")
        if view in ("policies", "all") or load is not None:
            draw_policies(found, out.people, load_qps=load)
        if csv is not None and found.bill is not None:
            write_atomically(csv, bill_csv(found.bill).encode())
            out.people.line(f"written to {csv}")
        if svg is not None:
            write_svg(found, svg, load_qps=load)
            out.note("")
            out.note(f"drawn into {svg}")


def _check_view(view: str) -> None:
    if view not in (names := ("summary", *VIEWS, "all")):
        remedy = f"Choose one of {', '.join(names)}."
        raise InputError.one(path="--view", value=view, why="there is no such view", remedy=remedy)


def verify(
    files: PlanAndFiles,
    prove: Prove = False,
    solver: AnewSolver = None,
    require_proof: RequireProof = False,
    gap: Gap = None,
    no_simulate: NoSimulate = False,
    allow_unchecked: Unchecked = False,
    as_json: AsJson = False,
) -> None:
    """Check a plan again: constraints, cost, bounds, SLOs by simulation.

    Separate code recomputes the plan from the files. It simulates every promise that rests on simulation, with fresh
    seeds, until the result is significant. Exit 6 if a promise is not met, or if a certified bound is not proved.

    For each claim it prints whether hetplan proved the bound again, or only the plan states it. --prove solves the
    programs of the bounds that the plan does not prove. Exit 6 if such a bound is wrong. A bound that the plan calls
    certified is always proved again.

    If its bound is not proved here, a plan is "verified, but for its bound".

    Exit 4 with --require-proof if a bound is not proved again, and with --gap if a gap is larger. PLAN may be - for
    stdin.
    """
    with Output("verify", as_json=as_json) as out:
        from hetplan.api.verify_and_simulate import verify as check_plan
        from hetplan.cli.long_work import interruptible, progress, quiet_engines
        from hetplan.planner.status import UNDECIDED

        named = sort_files(files, "verify", plans=(1, 1))
        given = plan_from(named.plan, warn=out.warn)
        how: dict[str, Any] = {"simulate": not no_simulate, "solver": solver}
        how["prove"] = True if prove or require_proof or solver is not None else None
        with quiet_engines(out), progress(out) as show:
            report = interruptible(
                lambda cancel: check_plan(given, named.inputs, on_event=show, cancel=cancel, **how),
                say=out.note,
                hurry=True,
            )
        for violation in report.violations:
            out.send({"violation": {"code": violation.code, "at": violation.at, "text": violation.text}})
        out.people.table(("violation", "where", "what"), [(v.code, v.at, v.text) for v in report.violations])
        checked = ", ".join(report.checked)
        reason = report.reason
        if reason.startswith("verified") and any(one.code == "W-latency-unchecked" for one in given.warnings):
            reason = UNDECIDED
        out.people.line(reason)
        out.people.line(f"checked: {checked}")
        for what in report.skipped:
            out.people.line(f"not checked: {what}")
        _show_simulated(out, report.simulated)
        code = Exit.OK if report.ok and (allow_unchecked or not report.unchecked) else Exit.CHECK_FAILED
        said = {"checked": list(report.checked), "skipped": [str(what) for what in report.skipped]}
        _show_claims(out, report.claims)
        missing = _missing(given, report.claims, gap) if require_proof or gap is not None else ""
        if code is Exit.OK and missing:
            code, reason = Exit.GAP_NOT_REACHED, missing
        out.end(code, reason, **said)


def _missing(plan: Plan, claims: Sequence[BoundVerdict], gap: float | None) -> str:
    """What is missing where every bound is to be proved, and as near as the gap asks ("" if nothing is)."""
    if not any(claim.bound is not None for claim in plan.claims):
        return "the plan has no bound that could be proved"
    from hetplan.planner.bound_verdicts import has_unproved_bound

    if has_unproved_bound(plan, claims):
        return "not every bound of the plan was proved again"
    wide = [claim for claim in plan.claims if gap is not None and claim.gap is not None and claim.gap > gap]
    if wide:
        return f"the bound of {wide[0].about} has a gap of {wide[0].gap:.2g}, where {gap:g} was asked"
    return ""


def _show_simulated(out: Output, tried: Sequence[Tried]) -> None:
    """What became of each promise that rests on simulation; of many (a fleet's) those that are met are counted."""
    for one in tried:
        said = {"at": one.at, "about": one.about, "word": str(one.word), "queries": one.queries, "text": one.text}
        out.send({"simulated": said})
    shown = [one for one in tried if len(tried) <= MOST_SHOWN or one.word != "met"]
    out.people.table(("promise", "in simulation", "why"), [(one.about, one.word, one.text) for one in shown])
    if len(shown) < len(tried):
        out.people.line(f"{len(tried) - len(shown)} promises are met in simulation")


def _show_claims(out: Output, claims: Sequence[BoundVerdict]) -> None:
    """What each bound is, once it was looked at here."""
    out.people.table(("claim", "bound is", "why"), [(one.about, one.word, one.text) for one in claims])
    for one in claims:
        out.send({"claim": {"at": one.at, "about": one.about, "word": str(one.word), "text": one.text}})


RUNS = (
    "question",
    "requires",
    "periods",
    "workers",
    "routing",
    "dispatch",
    "policies",
    "tables",
    "actions",
    "unserved",
)
"""Keys of a plan that decide what runs; the others say something about it."""

_NAMES = ("id", "app", "about", "quantity", "code")


def diff(
    plans: Annotated[list[Path], typer.Argument(metavar="PLANS...", readable=False, help="The plans to compare.")],
    site: Annotated[Path | None, file_option("--site", "FILE", "Compare with what runs at this site.")] = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 8 if there are differences.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two plans, several side by side, or a plan with what runs.

    Of two plans it prints first what runs, then what the plans state about it. Workers, loads and routes are matched by
    name, not by position. Of more it prints a column per plan: status, cost, bound and machines.
    """
    with Output("diff", as_json=as_json) as out:
        if (len(plans) > 1) + (site is not None) != 1:
            raise InputError.one(
                path="PLAN", why="expected a second plan, or --site",
                remedy="Write hetplan diff old.json new.json, or add --site site.toml.",
            )  # fmt: skip
        if site is not None:
            found = _with_site(out, plans[0], site)
        else:
            found = _with_plan(out, plans) if len(plans) == 2 else _side_by_side(out, plans)
        same = "the plans are the same" if len(plans) > 1 else "what runs matches the plan"
        reason = f"{found} difference{'' if found == 1 else 's'}" if found else same
        if not found:
            out.people.line(reason)
        out.end(Exit.DIFFERENT if exit_code and found else Exit.OK, reason)


def _side_by_side(out: Output, files: list[Path]) -> int:
    """A column per plan; how many of the rows differ between them."""
    plans = [plan_from(file, warn=out.warn) for file in files]
    columns = [_figures(plan) for plan in plans]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [(name, *(_short(column.get(name)) for column in columns)) for name in names]
    for name, *values in rows:
        out.send({"row": {"name": name, "values": dict(zip(map(str, files), values, strict=True))}})
    titles = [str(file) for file in files]
    out.people.table(("", *titles), rows, right=titles)
    return sum(len(set(values)) > 1 for _, *values in rows)


def _figures(plan: Plan) -> dict[str, Any]:
    """What a plan comes to: status, cost, how good it is, and its machines by application and what one of them runs."""
    from hetplan.planner.summary import status_of

    found: dict[str, Any] = {"formulation": plan.method.formulation, "status": status_of(plan)}
    if plan.summary is not None:
        found |= {"cost per month": plan.summary.cost_per_month, "cost per hour": plan.summary.cost_per_hour}
    for claim in plan.claims:
        name = {"servers": "machines"}.get(claim.about, claim.about.replace("_", " "))
        found |= {name: claim.value, f"bound of {name}": claim.bound}
    for row in plan.rows():
        runs = f"{row.replicas} x {row.model}" if row.replicas > 1 else row.model
        where = " ".join(filter(None, (row.app, runs, "on", row.machine, row.purchase, row.hours)))
        found[where] = found.get(where, 0) + row.count
    return found


def _with_plan(out: Output, plans: list[Path]) -> int:
    old, new = (plan_from(plan, warn=out.warn).model_dump(mode="json", by_alias=True) for plan in plans)
    found = [change for change in differences(old, new) if change[0] != "digest"]
    runs = [change for change in found if change[0].split(".")[0].split("[")[0] in RUNS]
    said = [change for change in found if change not in runs]
    for at, was, now in found:
        out.send({"difference": {"at": at, "before": was, "after": now}})
    for title, changes in (("What runs", runs), ("What is said about it", said)):
        if changes:
            out.people.line(f"{title}:")
            out.people.table(("where", "before", "after"), [(at, _short(was), _short(now)) for at, was, now in changes])
    return len(found)


def _with_site(out: Output, plan: Path, site: Path) -> int:
    from hetplan.cli.places import difference_rows, place_of
    from hetplan.executor.site import read_site

    with place_of(out, read_site(site), {}) as place:
        return difference_rows(out, place.difference(plan))


def differences(old: Any, new: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every place where two JSON values differ; members of lists are matched by their names, not their places.

    >>> list(differences({"w": [{"id": "a", "n": 1}]}, {"w": [{"id": "b", "n": 1}, {"id": "a", "n": 2}]}))
    [('w[a].n', 1, 2), ('w[b]', None, {'id': 'b', 'n': 1})]
    """
    if isinstance(old, list) and isinstance(new, list):
        named_old, named_new = _named(old), _named(new)
        if named_old is not None and named_new is not None:
            yield from _of_members(named_old, named_new, lambda name: f"{at}[{name}]")
            return
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _of_members(old, new, lambda name: f"{at}.{name}" if at else str(name))
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield at, old, new


def _of_members(old: dict[Any, Any], new: dict[Any, Any], path: Any) -> Iterator[tuple[str, Any, Any]]:
    for name in [*old, *(name for name in new if name not in old)]:
        yield from differences(old.get(name), new.get(name), path(name))


def _named(members: list[Any]) -> dict[str, Any] | None:
    """Members by name, where each is an object with a name."""
    named: dict[str, Any] = {}
    for member in members:
        if not isinstance(member, dict):
            return None
        name = "/".join(str(member[key]) for key in _NAMES if member.get(key) is not None)
        if not name and "when" in member:
            name = ",".join(f"{axis}={number(value)}" for axis, value in member["when"].items()) or "all"
        if not name or name in named:
            return None
        named[name] = member
    return named


def _short(value: Any) -> str:
    if value is None:
        return "-"
    text = number(value) if isinstance(value, float | int) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."

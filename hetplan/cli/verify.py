"""`hetplan verify`: does a plan keep its promises, by independent arithmetic?"""

from __future__ import annotations

from hetplan.cli.arguments import AsJson, Measured, PlanFile, Profiles, SloFile, StateFile, Unchecked
from hetplan.cli.exits import Exit
from hetplan.cli.output import Output
from hetplan.cli.plan_source import plan_from

__all__ = ["verify"]


def verify(
    plan: PlanFile,
    profiles: Profiles,
    slo: SloFile,
    state: StateFile = None,
    measured: Measured = None,
    allow_unchecked: Unchecked = False,
    as_json: AsJson = False,
) -> None:
    """Recompute a plan's promises from its inputs.

    By code that never saw how the plan was made. Exit 6 when a promise is broken. PLAN may be - for stdin.
    """
    with Output("verify", as_json=as_json) as out:
        from hetplan.front_door import verify as check_plan

        report = check_plan(plan_from(plan, warn=out.warn), profiles, slo, state=state, measured=measured)
        for violation in report.violations:
            out.send({"violation": {"code": violation.code, "at": violation.at, "text": violation.text}})
        out.people.table(("violation", "where", "what"), [(v.code, v.at, v.text) for v in report.violations])
        checked = ", ".join(report.checked)
        if report.violations:
            reason = f"{len(report.violations)} violation{'' if len(report.violations) == 1 else 's'}"
        elif report.unchecked:
            reason = "no check is known for this plan's question: only the parts that all plans share were checked"
        else:
            reason = "verified"
        out.people.line(reason)
        out.people.line(f"checked: {checked}")
        for what in report.skipped:
            out.people.line(f"not checked: {what}")
        sound = not report.violations and (allow_unchecked or not report.unchecked)
        told = {"checked": list(report.checked), "skipped": [str(what) for what in report.skipped]}
        out.end(Exit.OK if sound else Exit.CHECK_FAILED, reason, **told)

"""The programs that bound what a plan of variants claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hetplan.planner.certify import Bounding
from hetplan.planner.next_state import USED
from hetplan.problems.variants.bursts import answering_fewest, in_bursts
from hetplan.problems.variants.busy import leaving_room_to_wait
from hetplan.problems.variants.draft import aim
from hetplan.problems.variants.form import columns, program, why_no_columns
from hetplan.problems.variants.wish import Snapshot
from hetplan.profiles.plan import Claim, Plan

__all__ = ["bounding"]

HAIR = 1e-9


def bounding(v: Snapshot, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
    """The least cost, by configurations or by the whole program, at the shares of instances that the plan says."""
    if (claim.about, claim.sense) != (aim(v), "min") or claim.scope not in ("problem", "relaxation"):
        return []
    v = _asked(v, plan.extensions.get(USED, {}))
    asked = [v]
    # Of other sizes it is machines that are looser, and not who is in time.
    if claim.scope == "relaxation" and v.options.size == "auto" and all(pair.busy == 1.0 for pair in v.serves):
        least, bursty = answering_fewest(v), in_bursts(v)
        asked = [least] if bursty.asked == least.asked else [least, bursty]
    solve = next((one for one in plan.solves if one.id == claim.solve), None)
    if solve is not None and solve.form == "columns":
        return [] if why_no_columns(v) else [Bounding(columns(one), of_plans=claim.scope == "problem") for one in asked]
    if claim.scope == "problem" and solve is not None and solve.about == "least gross cost, machine by machine":
        from hetplan.problems.variants.places import exact

        form = exact(v)
        return None if form is None else [Bounding(form, of_plans=True)]
    return [Bounding(program(one), of_plans=claim.scope == "problem") for one in asked]


def _asked(v: Snapshot, said: object) -> Snapshot:
    """The same, each instance asked for the share of its saturation that the plan says; all of it where it does not.

    A share is no lower than the formula leaves: less would cost more, and bound nothing.
    """
    shares = {name: float(share) for name, share in said.items()} if isinstance(said, dict) else {}
    serves = []
    for pair in v.serves:
        name = f"{v.kinds[pair.kind].id} for {v.asked[pair.app].id}"
        share = shares.get(name, 1.0)
        if share < 1.0:
            (least,) = leaving_room_to_wait(replace(v, serves=(pair,))).serves
            if not share >= least.busy * (1.0 - HAIR):
                raise ValueError(f"{name} is asked for less than its queue allows")
        if not 0.0 < share <= 1.0:
            raise ValueError(f"{name} is asked for {share} of its saturation")
        serves.append(replace(pair, qps=pair.qps * share, busy=share))
    return replace(v, serves=tuple(serves))

"""`verify` and `simulate`: a finished plan, checked or simulated against the files that it was made from."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hetplan.api.solve import ANEW_S, Source, verified
from hetplan.errors import InputError
from hetplan.planner.answer import Limits
from hetplan.planner.terms import OnEvent, with_logging
from hetplan.profiles.arguments import check_arguments
from hetplan.profiles.given_files import GivenFile, sort_files
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.read_plan import read_plan

if TYPE_CHECKING:
    from hetplan.simulator.report import SimulationReport
    from hetplan.simulator.simulate import Failure
    from hetplan.verifier.check import Report

__all__ = ["simulate", "verify"]


@check_arguments
def verify(
    plan: Source | Plan,
    *files: GivenFile | Inputs | None,
    prove: bool | None = None,
    solver: str | None = None,
    simulate: bool = True,
    on_event: OnEvent | None = None,
    cancel: threading.Event | None = None,
) -> Report:
    """Recompute everything a plan promises from the inputs, with code that never saw how it was made.

    `files` are those that the plan was made from. What a plan promises by simulation is simulated again, with fresh
    seeds; `simulate=False` leaves that out, and the report says so. A plan that is wrong without it is not simulated.
    Bounds are proved again by the planner's programs: that is no code of the verifier's own. `prove` solves the program
    of every bound anew that the plan's own proof does not show (with a `solver` that is named, of every bound). None
    does so where a bound is called certified; False never does.

    >>> import hetplan as hp
    >>> files = "examples/pool/profile.json", "examples/pool/slo.json"
    >>> hp.verify(hp.solve(*files, options={"sizing": "fluid"}).require(), *files).ok
    True
    """
    named = sort_files((plan, *files), "verify", plans=(1, 1), in_python=True)
    checked, inputs = read_plan(named.plan, trust_digest=True), named.inputs
    limits = Limits(seconds=ANEW_S, cancel=cancel)
    report = verified(checked, inputs, prove=prove, solver=solver, limits=limits, on_event=on_event)
    if report.ok:
        from hetplan.api.simulated_promises import with_simulated

        report = with_simulated(report, checked, inputs, play=simulate, on_event=with_logging(on_event), cancel=cancel)
    return report


@check_arguments
def simulate(
    plan: Source | Plan,
    *files: GivenFile | Inputs | None,
    seeds: int = 5,
    seed: int = 0,
    duration_s: float | None = None,
    arrivals: str | Mapping[str, Any] | None = None,
    trace: Any = None,
    failures: Sequence[Failure] = (),
    jobs: int = 1,
    on_event: OnEvent | None = None,
    cancel: threading.Event | None = None,
    **rare: Any,
) -> SimulationReport:
    """Run a plan under its demand before any machine does: `seeds` runs, each of `duration_s` seconds.

    `arrivals` replaces the process by which queries come, `trace` the queries (seconds from 0). `rare` settings are
    those of `hetplan.simulator.simulate.simulate`.

    >>> import hetplan as hp
    >>> files = "examples/pool/profile.json", "examples/pool/slo.json"
    >>> plan = hp.solve(*files, options={"sizing": "fluid"}).require()
    >>> hp.simulate(plan, *files, seeds=1, duration_s=2.0).duration_s
    2.0
    """
    from hetplan.simulator.simulate import simulate as play

    for name, value in {"seeds": seeds, "duration_s": duration_s}.items():
        if value is not None and not 0 < value < float("inf"):
            raise InputError.one(path=name, value=value, why="more than 0, and finite", remedy="Leave it out.")
    named = sort_files((plan, *files), "simulate", plans=(1, 1), in_python=True)
    if jobs > 1:
        from hetplan.planner.spread import Spread

        rare["spread"] = Spread(jobs)
    return play(
        read_plan(named.plan, trust_digest=True), named.inputs, seeds=seeds, seed=seed, duration_s=duration_s,
        arrivals=arrivals, trace=trace, failures=failures, on_event=with_logging(on_event), cancel=cancel, **rare,
    )  # fmt: skip

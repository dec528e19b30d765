"""The promise of a pool plan, recomputed: what one must write into a plan so that it passes here.

What a plan of question ``pool`` holds, and what is checked of it
-----------------------------------------------------------------
``workers``
    One group per (offer, or hardware where there is none; and variant) in use, ``count`` machines each, with one load
    per instance that the machine has room for, alike but for their ids (``queue`` is then ``per-load``): ``app``,
    ``variant``, ``instances`` 1, ``serve`` left at its defaults (one query at a time), no ``knobs``.
``routing[app]``
    One route per bin of the mix whose share is positive: ``when`` gives every axis of the mix its value of the bin,
    ``to`` maps load ids to shares that sum to 1. Shares of 0 are left out. A mix without bins: one route, no ``when``.
``dispatch[app]``
    A rule that minds the target (``matching/1``, ``earliest/1``, ``threshold/1``); ``shares/1`` alone where a run gives
    a table of rates; where there is no response target, ``shares/1``, ``fcfs/1`` or ``threshold/1``. Of ``matching/1``
    and ``earliest/1``: ``slo_ms`` is the app's response target; ``xi`` is option ``xi`` where that is given;
    ``predict`` maps ``"variant@hardware"`` of every load to its run's latency table. Of ``matching/1``: ``weight``
    names every hardware of the app's loads, and the base at 1, with weight_j = mean(base, largest bin) / mean(j,
    largest bin). The largest bin is the largest tuple among the bins with a positive share; the base is whichever
    hardware has weight 1. Of ``threshold/1`` the base, and of ``fcfs/1`` all
    that is preferred, is hardware of the app's loads.
``tables``
    Every table named in ``predict``, with the profile's own numbers; statistics nobody needs may be left out.
``promises``
    ``rate_qps`` (``app``, ">=", model ``fluid``): the planned rate, derate x fluid rate. ``fluid_rate_qps`` (``app``,
    ">=", model ``fluid``): what the shares carry. ``cost_per_hour`` (no app, "=" or "<=", model ``no-queueing``), which
    may be left out where the profile has no offers.
    A rate from a simulation has another model; it is not recomputed here, ``fluid_rate_qps`` still is.
    Where a number was read outside a table's grid: ``extrapolated: true`` on both rates, and a warning
    ``W-extrapolated`` at the run in the profile.
``claims``
    ``rate_qps`` (max) in the unit of the promise (derated), or ``fluid_rate_qps`` (max), or ``cost_per_hour`` (min);
    a value equals the promise of the same name. Over all pools (scope ``problem``) speaks only a solve that chooses
    whole counts; the fluid rate of the chosen pool is a ``restriction`` unless formulation ``pool-lp`` was given the
    pool.
``method.options``
    ``statistic`` (auto: the mean), ``derate`` (default 1), ``allow_late`` (default 0), and where used
    ``xi``.
``valid.rate_qps[app]``
    [0, planned rate].
``unserved``
    No rate: a pool that is too small for what is wanted is no plan. Where nothing is wanted, that is said with a rate
    of 0, and neither routing nor dispatch.

The arithmetic
--------------
With p_s the share of bin s, x_sj the routing share of bin s to load j, t_sj its mean service time (ms; 1000 / rate for
a table of rates) and n_j the machines that hold it: fluid rate = min_j n_j / sum_s p_s x_sj t_sj / 1000. The share of
queries sent where ``statistic`` and one network hop exceed the response target is at most ``allow_late``
(and never more than the percentile leaves); a target at a lower percentile may be exceeded by what that percentile
leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hetplan.dispatch.parts import SPLIT_ABOVE
from hetplan.planner.tolerances import VALUE
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Dispatch, MatchingDispatch, Plan
from hetplan.profiles.profile import Run
from hetplan.profiles.workers import Load, Serve
from hetplan.verifier.demand import Classes, classes_of, response_targets
from hetplan.verifier.plan_index import Facts, Seat, gather, option
from hetplan.verifier.report import Violation
from hetplan.verifier.resources import instances_on
from hetplan.verifier.service import service_of

if TYPE_CHECKING:
    from hetplan.profiles.plan_dispatch_rules import EarliestDispatch

__all__ = ["check"]


def _close(left: float, right: float) -> bool:
    return abs(left - right) <= VALUE * max(abs(left), abs(right))


def _seats(facts: Facts, app: str) -> list[Seat]:
    return [seat for seat in facts.seats.values() if seat.load.app == app]


def _is_instance(load: Load) -> bool:
    return load.app is not None and load.instances == 1 and load.serve == Serve() and not load.knobs


def _check_workers(facts: Facts) -> Iterator[Violation]:
    """Loads of an application are alike; each serves one query at a time, as measured; `resources` says what fits."""
    for worker in facts.plan.workers:
        alike = {(load.app, load.variant, tuple(sorted((load.at or {}).items()))) for load in worker.loads}
        runs = [facts.seats[load.id].run for load in worker.loads]
        room, apps = max((instances_on(facts, run) for run in runs if run), default=1), {one[0] for one in alike}
        if not len(alike) == len(apps) > 0 or len(runs) > room or not all(map(_is_instance, worker.loads)):
            text = "an instance of a pool is a load of an application that serves one query at a time as measured"
            yield Violation("pool-worker", f"workers.{worker.id}", text)


def _check_promises(facts: Facts, app: str) -> Iterator[Violation]:
    """The planned rate is the derated fluid rate, and the dispatch says what the wish says."""
    said = {promise.quantity: promise for promise in facts.plan.promises if promise.app == app}
    fluid, planned = said.get("fluid_rate_qps"), said.get("rate_qps")
    if fluid is None or fluid.model != "fluid":
        yield Violation("pool-promise", "promises", f"no fluid rate of {app} is promised by the model fluid")
    elif planned is not None and planned.model == "fluid":
        derate = option(facts.plan, "derate", 1.0)
        if not _close(planned.value, derate * fluid.value):
            text = f"{planned.value:.9g} promised to {app}; the fluid rate derated is {fluid.value * derate:.9g}"
            yield Violation("derate", "promises", text)
    for promise in (fluid, planned):
        if promise is not None and promise.relation != ">=":
            text = f"{promise.quantity} of {app} is promised with {promise.relation}, not with >="
            yield Violation("pool-promise", "promises", text)


def _largest_bin_s(facts: Facts, seat: Seat, hardware: str, classes: Classes) -> float:
    """Mean seconds that the largest bin that comes at all takes on some hardware."""
    elsewhere = seat.worker.model_copy(update={"hardware": hardware})
    service = service_of(facts, Seat(elsewhere, seat.load, _run_on(facts, seat, hardware)), classes)
    largest = max((size, number) for number, size in enumerate(classes.bins) if classes.share[number] > 0.0)
    return service.seconds[largest[1]]


def _run_on(facts: Facts, seat: Seat, hardware: str) -> Run | None:
    """The run on some hardware: that of the plan's load there, else the one measured with one query at a time."""
    for other in facts.seats.values():
        if (other.load.app, other.load.variant, other.worker.hardware) == (seat.load.app, seat.load.variant, hardware):
            return other.run
    variant = facts.inputs.profile.variants[seat.load.variant or ""]
    runs = [run for run in variant.runs if run.hardware == hardware]
    settings = {**variant.knobs, "batch": 1}
    return next((run for run in runs if all(settings.get(k) == v for k, v in run.at.items())), (*runs, None)[0])


def _weight_faults(facts: Facts, app: str, dispatch: MatchingDispatch) -> Iterator[str]:
    """C_j = time of the largest bin on the base / on j; the base is the hardware of weight 1."""
    classes = classes_of(facts.inputs.slo.apps[app])
    base = next((name for name, c in dispatch.weight.items() if c == 1.0), None)
    if base is None:
        yield "no hardware has a weight of 1"
        return
    seats = _seats(facts, app)
    if not seats:
        return
    for hardware in sorted({seat.worker.hardware for seat in seats} - dispatch.weight.keys()):
        yield f"{hardware} has no weight"
    for hardware, weight in dispatch.weight.items():
        own = _largest_bin_s(facts, seats[0], base, classes) / _largest_bin_s(facts, seats[0], hardware, classes)
        # Written so that a time that was not measured (NaN) is no match.
        if not _close(weight, own):
            yield f"the weight of {hardware} is {weight:.9g}, by the tables it is {own:.9g}"


def _prediction_faults(facts: Facts, app: str, dispatch: MatchingDispatch | EarliestDispatch) -> Iterator[str]:
    """What a rule that predicts goes by: the wish's target, the options' xi, the tables that the loads run by."""
    targets = response_targets(facts.inputs.slo.apps[app])
    if not targets or not _close(dispatch.slo_ms, targets[-1][0]):
        yield f"goes by {dispatch.slo_ms:g} ms, which is not the wanted response time"
    if not _close(dispatch.xi, option(facts.plan, "xi", dispatch.xi)):
        yield f"xi is {dispatch.xi:g}, the options say {option(facts.plan, 'xi', dispatch.xi):g}"
    for seat in _seats(facts, app):
        key = f"{seat.load.variant}@{seat.worker.hardware}"
        table = seat.run.latency if seat.run is not None else None
        if dispatch.predict.get(key) != table:
            yield f"predicts {key} by {dispatch.predict.get(key)}, it runs by {table}"


def _may_run(facts: Facts, app: str) -> tuple[str, ...]:
    """The rules by which the promised rate may be served at all: a fluid rate by the first, others by simulation."""
    may: tuple[str, ...] = ("matching/1", "earliest/1", "threshold/1")
    if any(seat.run is not None and seat.run.latency is None for seat in _seats(facts, app)):
        may = ("shares/1",)
    elif not response_targets(facts.inputs.slo.apps[app]):
        may = ("shares/1", "fcfs/1", "threshold/1")
    return may[:1] if _is_fluid(facts, app) else may


def _is_fluid(facts: Facts, app: str) -> bool:
    """Whether the promised rate is one of machines alone, which nobody simulated."""
    rates = [one for one in facts.plan.promises if (one.app, one.quantity) == (app, "rate_qps")]
    return any(one.model == "fluid" for one in rates)


def _dispatch_faults(facts: Facts, app: str, dispatch: Dispatch | None) -> Iterator[str]:
    """The fluid rate holds only where a rule sends queries where they are in time."""
    may = _may_run(facts, app)
    if dispatch is None or dispatch.rule not in may:
        said = dispatch.rule if dispatch is not None else "nothing"
        yield f"{said} sends queries to instances, where {' or '.join(may)} must"
        return
    stated = facts.inputs.slo.apps[app].dispatch
    if stated is not None and dispatch.rule != f"{stated}/1":
        yield f"{dispatch.rule} sends queries to instances, and the SLO states {stated}"
    hardware = {seat.worker.hardware for seat in _seats(facts, app)}
    if dispatch.rule == "matching/1" or dispatch.rule == "earliest/1":
        yield from _prediction_faults(facts, app, dispatch)
    if dispatch.rule == "matching/1":
        yield from _weight_faults(facts, app, dispatch)
        if dispatch.split_above is not None and dispatch.split_above < SPLIT_ABOVE and _is_fluid(facts, app):
            yield f"parts of {dispatch.split_above} instances carry less than the fluid rate of the whole pool"
    if dispatch.rule == "threshold/1" and dispatch.base not in hardware:
        yield f"the base {dispatch.base} is not in the pool"
    if dispatch.rule == "fcfs/1" and not hardware.issuperset(dispatch.prefer):
        yield f"prefers {', '.join(sorted(set(dispatch.prefer) - hardware))}, not in the pool"


def _check_costs(facts: Facts) -> Iterator[Violation]:
    quantities = {promise.quantity for promise in facts.plan.promises if promise.app is None}
    if facts.inputs.profile.offers and "cost_per_hour" not in quantities:
        yield Violation("pool-promise", "promises", "no cost_per_hour is promised")


def check(plan: Plan, inputs: Inputs) -> list[Violation]:
    """What a pool promises beyond the generic check; to be called on a plan whose references are sound."""
    facts = gather(plan, inputs)
    found = [*_check_workers(facts), *_check_costs(facts)]
    if any(entry.rate_qps > 0.0 for entry in plan.unserved):
        found.append(Violation("pool-unserved", "unserved", "a pool carries the rate that is wanted, or it is no plan"))
    for app in plan.routing:
        found += _check_promises(facts, app)
        texts = _dispatch_faults(facts, app, plan.dispatch.get(app))
        found += [Violation("dispatch", f"dispatch.{app}", text) for text in texts]
    return found

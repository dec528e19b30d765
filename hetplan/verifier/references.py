"""What a plan says of itself (features, validity, attachments), and that every name in it is of something that fits."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from hetplan.planner.tolerances import FEASIBILITY
from hetplan.profiles.columns import Statistic
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.pipelines import Node, Pipeline
from hetplan.profiles.plan import Plan, Route
from hetplan.profiles.plan_file import FEATURES, OUTCOMES, SHARED
from hetplan.profiles.profile import Profile, Variant
from hetplan.profiles.slo import App
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Load, Worker
from hetplan.verifier.demand import classes_of
from hetplan.verifier.plan_index import run_of, runs_meant
from hetplan.verifier.report import Violation, unknown_reference

__all__ = ["allows", "check_header", "check_inputs", "check_references", "check_tables"]


# What a plan says of itself


_HASH_NAME = re.compile(r"(sha256:)?[0-9a-f]{64}\Z")
_SECTION = re.compile(r"(policies|tables)\.[a-z0-9][a-z0-9._-]{0,62}\Z")


def _requires(plan: Plan) -> Iterator[Violation]:
    """A plan names every rule that its readers need to know, and no feature that nobody knows."""
    used: set[str] = {dispatch.rule for dispatch in plan.dispatch.values()}
    loads = [load for worker in plan.workers for load in worker.loads]
    if any(load.outcomes for load in loads) or any(one.after for routes in plan.routing.values() for one in routes):
        used.add(OUTCOMES)
    seat = {load.id: (load.app, load.node) for load in loads if load.variant is None and load.app is not None}
    led = [
        ((app, one.node), seat.get(load)) for app, routes in plan.routing.items() for one in routes for load in one.to
    ]
    if any(there not in (None, here) for here, there in led):
        used.add(SHARED)
    for rule in sorted(used - set(plan.requires)):
        yield Violation("requires", "requires", f"the plan uses {rule} and does not say that it must be known")
    for feature in sorted(set(plan.requires) - FEATURES):
        yield Violation("requires", "requires", f"the feature {feature} is unknown")


def _valid(plan: Plan) -> Iterator[Violation]:
    for app, (least, most) in plan.valid.rate_qps.items():
        if most is not None and least > most:
            yield Violation("valid", f"valid.rate_qps.{app}", f"holds from {least:g} up to {most:g}, which is nowhere")
    if plan.valid.offers is not None:
        # No rule says yet what such a hash would be taken of.
        yield Violation("valid", "valid.offers", f"{plan.valid.offers} is a hash of nothing that is known")


def _attachments(plan: Plan) -> Iterator[Violation]:
    for name, section in plan.attachments.items():
        if not _HASH_NAME.match(name):
            yield Violation("attachment", "attachments", f"{name!r} is no name by SHA-256")
        if not _SECTION.match(section):
            yield Violation("attachment", "attachments", f"{section!r} is neither a policy nor a table of the plan")


def check_header(plan: Plan) -> list[Violation]:
    """Everything that can be said of these without the inputs."""
    found = [*_requires(plan), *_valid(plan), *_attachments(plan)]
    if plan.question != "policy":
        text = f"a policy in a plan of question {plan.question}, which no check covers"
        found += [Violation("policies", f"policies.{app}", text) for app in plan.policies]
    return found


# Ids and names


def check_inputs(plan: Plan, inputs: Inputs) -> list[Violation]:
    """The plan was made from these very inputs."""
    stated = {name: getattr(plan.inputs, name) for name in ("profile", "slo", "state", "measured")}
    found = [
        Violation("input-hash", f"inputs.{name}", f"made from {value}, but given {inputs.digests.get(name)}")
        for name, value in stated.items()
        if value != inputs.digests.get(name)
    ]
    if plan.inputs.traces != dict(inputs.trace_digests):
        text = f"made from {plan.inputs.traces}, but given {dict(inputs.trace_digests)}"
        found.append(Violation("input-hash", "inputs.traces", text))
    return found


def _duplicates(kind: str, ids: Iterable[object]) -> Iterator[Violation]:
    for name, count in Counter(ids).items():
        if count > 1:
            yield Violation("duplicate-id", f"{kind}.{name}", f"{count} {kind} have the id {name}")


def _check_ids(plan: Plan) -> Iterator[Violation]:
    yield from _duplicates("workers", (worker.id for worker in plan.workers))
    yield from _duplicates("loads", (load.id for worker in plan.workers for load in worker.loads))
    yield from _duplicates("periods", (period.id for period in plan.periods))
    yield from _duplicates("actions", (action.id for action in plan.actions))
    yield from _duplicates("solves", (solve.id for solve in plan.solves))


def _check_periods(plan: Plan, inputs: Inputs) -> Iterator[Violation]:
    if not plan.periods:
        yield Violation("periods", "periods", "there is no period")
    clock: float | None = 0.0
    for period in plan.periods:
        at = f"periods.{period.id}"
        if period.start_s != clock:
            yield Violation("periods", at, f"starts at {period.start_s} s, where the one before ends at {clock} s")
        if period.end_s is not None and period.end_s <= period.start_s:
            yield Violation("periods", at, f"ends at {period.end_s} s, before it starts")
        clock = period.end_s
    horizon = inputs.slo.horizon
    if clock is not None and clock < horizon.period_s * horizon.periods * (1.0 - FEASIBILITY):
        text = f"the plan ends after {clock:g} s, wanted is one for {horizon.period_s * horizon.periods:g} s"
        yield Violation("periods", "periods", text)


def _has_own_price(profile: Profile, worker: Worker) -> bool:
    """Whether a run of the group has a price of its own, which needs no offer."""
    runs = [run_of(profile, worker, load) for load in worker.loads if load.variant in profile.variants]
    return any(run is not None and run.price_per_hour is not None for run in runs)


def _check_worker(plan: Plan, profile: Profile, worker: Worker) -> Iterator[Violation]:
    at = f"workers.{worker.id}"
    if worker.period not in {period.id for period in plan.periods}:
        yield unknown_reference(at, "period", worker.period)
    if worker.hardware not in profile.hardware:
        yield unknown_reference(at, "hardware", worker.hardware)
    offer = profile.offers.get(worker.offer) if worker.offer is not None else None
    offered = {offer.hardware for offer in profile.offers.values()}
    if worker.offer is not None and offer is None:
        yield unknown_reference(at, "offer", worker.offer)
    elif offer is not None and offer.hardware != worker.hardware:
        text = f"offer {worker.offer} is for {offer.hardware}, not {worker.hardware}"
        yield Violation("offer-hardware", at, text)
    elif (
        offer is None
        and worker.hardware in offered
        and (plan.question == "variants" or not _has_own_price(profile, worker))
    ):
        yield Violation("offer-missing", at, f"{worker.hardware} is to be had under offers, and none is named")
    if worker.host is not None:
        host = profile.hosts.get(worker.host)
        if host is None:
            yield unknown_reference(at, "host", worker.host)
        elif host.offer != worker.offer:
            yield Violation("host-offer", at, f"host {worker.host} is there under {host.offer}, not {worker.offer}")


def allows(app: App | None, profile: Profile, node: str | None, name: str, variant: Variant) -> bool:
    """Whether an application may be answered by this variant, at this step of its pipeline."""
    if app is None or app.candidates:
        return True
    if app.pipeline is not None:
        step = profile.pipelines[app.pipeline].nodes.get(node or "")
        return step is not None and step.task in (None, variant.task)
    if app.named_models is not None:
        return name in app.named_models
    if app.families is not None:
        return variant.family in app.families
    return app.task in (None, variant.task)


def _check_run(profile: Profile, worker: Worker, load: Load, at: str) -> Iterator[Violation]:
    """A load means one run of the profile."""
    meant = runs_meant(profile, worker, load)
    if len(meant) > 1:
        both = " and ".join(json.dumps(run.at) for run in meant)
        yield Violation("run-unclear", at, f"{load.variant} has runs on {worker.hardware} at {both}: it names neither")
    elif not meant:
        point = f" at {json.dumps(load.at)}" if load.at else ""
        yield Violation("no-run", at, f"the profile has no run of {load.variant} on {worker.hardware}{point}")


def _check_load(inputs: Inputs, worker: Worker, load: Load) -> Iterator[Violation]:
    at, profile = f"workers.{worker.id}.loads.{load.id}", inputs.profile
    if load.app is not None and load.app not in inputs.slo.apps:
        yield unknown_reference(at, "application", load.app)
        return
    app = inputs.slo.apps[load.app] if load.app is not None else None
    nodes = profile.pipelines[app.pipeline].nodes if app is not None and app.pipeline is not None else {}
    if load.app is not None and (load.node not in nodes if nodes else load.node is not None):
        yield unknown_reference(at, "pipeline step", load.node)
    if nodes or load.outcomes:
        yield from _check_load_outcomes(at, load, nodes.get(load.node or ""))
    if load.variant is None:
        if load.node is None:
            yield Violation("load-empty", at, "neither a variant nor a step of a pipeline")
        elif load.node in nodes and nodes[load.node].task is not None:
            yield Violation("load-empty", at, f"no variant for the task of step {load.node}")
        return
    variant = profile.variants.get(load.variant)
    if variant is None:
        yield unknown_reference(at, "variant", load.variant)
        return
    if not allows(app, profile, load.node, load.variant, variant):
        yield Violation("variant-not-allowed", at, f"{load.app} may not run {load.variant} here")
    for knob, value in load.knobs.items():
        if variant.knobs.get(knob, value) != value:
            text = f"sets {knob} to {value}; of {load.variant} it is {variant.knobs[knob]}"
            yield Violation("knob", at, text)
    yield from _check_run(profile, worker, load, at)
    sha256 = variant.artifact.sha256 if variant.artifact is not None else None
    if load.artifact is None and sha256 is not None:
        yield Violation("artifact", at, f"names no artifact, and the profile says which file {load.variant} is")
    elif load.artifact is not None and load.artifact.removeprefix("sha256:") != sha256:
        yield Violation("artifact", at, f"artifact {load.artifact}, but the profile's {load.variant} is {sha256}")


def _check_load_outcomes(at: str, load: Load, node: Node | None) -> Iterator[Violation]:
    """A load states how often its answers come to each outcome of its step, as it was measured."""
    stated = load.outcomes or {}
    if node is not None and node.outcomes is not None and node.outcomes.measured and load.variant is None:
        for name in sorted(stated.keys() - set(node.outcomes.measured)):
            yield unknown_reference(at, f"outcome of step {load.node}", name)
        return  # their shares are those of the measurements (`compound`)
    known = node.outcomes.of(load.variant) if node is not None and node.outcomes is not None else {}
    if node is not None and node.outcomes is not None and not known:
        yield Violation("outcomes", at, f"nothing says how often {load.variant} comes to each outcome of {load.node}")
        return
    for name in sorted(stated.keys() - known.keys()):
        yield unknown_reference(at, f"outcome of step {load.node or '-'}", name)
    for name, share in known.items():
        if abs(stated.get(name, 0.0) - share) > FEASIBILITY:
            text = f"states a share of {stated.get(name, 0.0):.6g} for the outcome {name}, measured is {share:.6g}"
            yield Violation("outcomes", at, text)
    if stated and abs(sum(stated.values()) - 1.0) > FEASIBILITY:
        yield Violation("outcomes", at, f"the shares of its outcomes sum to {sum(stated.values()):.9g}, not to 1")


def _check_route_outcomes(at: str, route: Route, pipeline: Pipeline | None) -> Iterator[Violation]:
    """The outcomes that a route is for are of steps before its own, and lead there."""
    into = {edge.to: edge for edge in reversed(pipeline.edges)} if pipeline is not None else {}
    before, node = {}, route.node
    while node in into and into[node].from_ not in before:
        edge = into[node]
        before[edge.from_] = edge.on
        node = edge.from_
    for step, outcome in (route.after or {}).items():
        known = pipeline.nodes[step].outcomes if pipeline is not None and step in pipeline.nodes else None
        if known is None or outcome not in known.names:
            yield unknown_reference(at, f"outcome of step {step}", outcome)
        elif step not in before or before[step] not in (None, outcome):
            yield Violation("route-outcome", at, f"no query comes to step {route.node} after {step}: {outcome}")


def _check_routes(
    inputs: Inputs, app: str, routes: tuple[Route, ...], loads: Mapping[str, Load]
) -> Iterator[Violation]:
    classes, named = classes_of(inputs.slo.apps[app]), inputs.slo.apps[app].pipeline
    pipeline = inputs.profile.pipelines[named] if named is not None else None
    seen: set[tuple[object, ...]] = set()
    for number, route in enumerate(routes):
        at = f"routing.{app}[{number}]"
        if route.when and classes.find(route.when) is None:
            yield Violation("route-class", at, f"no class of the mix is {dict(route.when)}")
        for name in (*route.prefix, *route.to):
            if name not in loads:
                yield unknown_reference(at, "load", name)
        for name in route.to:
            load = loads.get(name)
            if load is not None and (load.app not in (None, app) or load.node != route.node):
                from hetplan.verifier.stations import one_model

                if one_model(inputs, load, pipeline, route.node):
                    continue
                text = (
                    f"{name} serves {load.app or 'all'} at step {load.node or '-'}, the route is at {route.node or '-'}"
                )
                yield Violation("route-target", at, text)
        if route.after:
            yield from _check_route_outcomes(at, route, pipeline)
        after = tuple(sorted((route.after or {}).items()))
        key = (classes.find(route.when) if route.when else None, route.prefix, route.node, after)
        if key in seen:
            yield Violation("route-twice", at, "there is a route of the same class, path, outcomes and step before it")
        seen.add(key)


def _check_apps(plan: Plan, inputs: Inputs) -> Iterator[Violation]:
    named = [(f"{kind}.{app}", app) for kind in ("routing", "dispatch", "policies") for app in getattr(plan, kind)]
    named += [(f"valid.rate_qps.{app}", app) for app in plan.valid.rate_qps]
    named += [(f"promises[{n}]", promise.app) for n, promise in enumerate(plan.promises) if promise.app is not None]
    named += [(f"unserved[{n}]", unserved.app) for n, unserved in enumerate(plan.unserved)]
    for at, app in named:
        if app not in inputs.slo.apps:
            yield unknown_reference(at, "application", app)
    loads = {load.id: load for worker in plan.workers for load in worker.loads}
    for app, routes in plan.routing.items():
        if app in inputs.slo.apps:
            yield from _check_routes(inputs, app, routes, loads)


def _check_solves(plan: Plan) -> Iterator[Violation]:
    known = {solve.id for solve in plan.solves}
    for number, claim in enumerate(plan.claims):
        if claim.solve is not None and claim.solve not in known:
            yield unknown_reference(f"claims[{number}]", "solve", claim.solve)


def check_references(plan: Plan, inputs: Inputs) -> list[Violation]:
    """All ids and names of a plan; the other checks rely on it."""
    found = [*_check_ids(plan), *_check_periods(plan, inputs)]
    for worker in plan.workers:
        found += _check_worker(plan, inputs.profile, worker)
        for load in worker.loads:
            found += _check_load(inputs, worker, load)
    return [*found, *_check_apps(plan, inputs), *_check_solves(plan)]


def _numbers(grid: object) -> list[object]:
    """Nested rows flattened, each opening marked so that rows of different shape never look alike."""
    if isinstance(grid, tuple):
        return ["row", *(number for item in grid for number in _numbers(item))]
    return [grid]


def _is_alike(left: object, right: object) -> bool:
    """Equal as far as the 12 significant digits of a plan can show."""
    first, second = _numbers(left), _numbers(right)
    return len(first) == len(second) and all(
        math.isclose(one, two, rel_tol=1e-11) if isinstance(one, float) and isinstance(two, float) else one == two
        for one, two in zip(first, second, strict=True)
    )


def _differences(carried: Table, measured: Table) -> Iterator[str]:
    for name in ("quantity", "outside"):
        if getattr(carried, name) != getattr(measured, name):
            yield f"{name} is {getattr(carried, name)}, the profile says {getattr(measured, name)}"
    same_points = _is_alike(tuple(carried.axes.values()), tuple(measured.axes.values()))
    if tuple(carried.axes) != tuple(measured.axes) or not same_points:
        yield "its axes are not the profile's"
    for statistic in get_args(Statistic):
        grid = getattr(carried, statistic)
        if grid is not None and not _is_alike(grid, getattr(measured, statistic)):
            yield f"its {statistic} is not the profile's"


def check_tables(plan: Plan, inputs: Inputs) -> list[Violation]:
    """Every carried table equals the profile's; every table that a dispatcher predicts by is carried."""
    profile = inputs.profile
    found: list[Violation] = []
    for name, table in plan.tables.items():
        measured = profile.tables.get(name)
        differences = _differences(table, measured) if measured is not None else ["the profile has no such table"]
        found += [Violation("table", f"tables.{name}", text) for text in differences]
    for app, dispatch in plan.dispatch.items():
        if dispatch.rule == "matching/1" or dispatch.rule == "earliest/1":
            for key, name in dispatch.predict.items():
                at = f"dispatch.{app}.predict.{key}"
                variant, _, hardware = key.partition("@")
                runs = profile.variants[variant].runs if variant in profile.variants else ()
                if not any(run.hardware == hardware and run.latency == name for run in runs):
                    found.append(Violation("predict", at, f"the profile does not run {key} by table {name}"))
                if name not in plan.tables:
                    found.append(Violation("predict", at, f"table {name} is not carried in the plan"))
    return found

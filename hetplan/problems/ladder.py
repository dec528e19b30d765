"""Finds the question that files ask: hetplan's questions are tried in turn, the most specific first.

Each function says everything that keeps the files from asking its question; nothing where they may ask it.
Some obstacles are essential (the pipeline question without a pipeline is another question), the others are one field
that is missing or in the way. The first question without an obstacle is asked. Where there is none, the nearest is the
one with the fewest essential obstacles, then the fewest of all, then the most specific.

Every solve looks here, so nothing heavy is imported: no form, no engine, no numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from hetplan.planner.terms import Obstacle
from hetplan.profiles.slo import RateRange
from hetplan.serving.runs import variants_of

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.profile import Profile
    from hetplan.profiles.slo import App

__all__ = ["LADDER", "compound", "fleet", "llm", "outcomes", "pipeline", "policy", "pool", "variants"]

POLICY_OBJECTIVES = {"quality", "goodput", "violations", "servers"}
ANOTHER = "Take it out, or name another question with --question."


def llm(inputs: Inputs) -> tuple[Obstacle, ...]:
    """What keeps these files from asking for a fleet that makes text."""
    if not inputs.profile.engines:
        text = "the profile has no engines that make tokens"
        missing = Obstacle(text, "$.engines", "Add the laws of engines.", essential=True, file="profile")
        return missing, replace(missing, why="no run names an engine", path="$.variants")
    from hetplan.problems.llm.fits import obstacles

    return tuple(obstacles(inputs))


def _beside(inputs: Inputs) -> Iterator[Obstacle]:
    """What only fleets are planned with, and only the question of text."""
    for name, zone in inputs.profile.zones.items():
        if zone.quota:
            text = "quotas of zones are kept by the question fleet"
            yield Obstacle(text, f"$.zones.{name}.quota", "Take it out, or ask fleet.", file="profile")
    if inputs.profile.engines or any(app.goodput is not None for app in inputs.slo.apps.values()):
        from hetplan.problems.llm.fits import of_another_question

        yield from of_another_question(inputs)


def compound(inputs: Inputs) -> tuple[Obstacle, ...]:
    """What keeps these files from asking for compound plans."""
    return (*_beside(inputs), *_compound(inputs))


def pipeline(inputs: Inputs) -> tuple[Obstacle, ...]:
    """What keeps these files from asking for pipelines."""
    return (*_beside(inputs), *_pipeline(inputs))


def policy(inputs: Inputs) -> tuple[Obstacle, ...]:
    """What keeps these files from asking for a policy."""
    return (*_beside(inputs), *_policy(inputs))


def variants(inputs: Inputs) -> tuple[Obstacle, ...]:
    """What keeps these files from asking for variants."""
    return (*_beside(inputs), *_variants(inputs))


def pool(inputs: Inputs) -> tuple[Obstacle, ...]:
    """What keeps these files from asking for a pool."""
    return (*_beside(inputs), *_pool(inputs))


def fleet(inputs: Inputs) -> tuple[Obstacle, ...]:
    """What keeps these files from asking for machines of several applications over time."""
    slo = inputs.slo
    over_time = slo.horizon.periods > 1 or slo.limits.offers or slo.limits.survive != type(slo.limits.survive)()
    if over_time or _named(slo.apps.values()):
        from hetplan.problems.fleet.fits import obstacles

        return tuple(obstacles(inputs))
    text = "there is one period and nothing that may fail, so each application is a question for itself"
    one = Obstacle(text, "$.horizon.periods", "Name a question.", essential=True, ambiguous=True)
    return (one,) * len(LADDER)  # any other question is nearer


def _named(apps: Iterable[App]) -> bool:
    return any(app.question is not None or app.demand.series is not None for app in apps)


LADDER: dict[str, Callable[[Inputs], tuple[Obstacle, ...]]] = {
    "fleet": fleet,
    "llm": llm,
    "compound": compound,
    "pipeline": pipeline,
    "policy": policy,
    "variants": variants,
    "pool": pool,
}
"""hetplan's own questions, the most specific first."""


def _compound(inputs: Inputs) -> Iterator[Obstacle]:
    for name, app in inputs.slo.apps.items():
        if app.candidates:
            continue
        at = f"$.apps.{name}"
        found = inputs.profile.pipelines.get(app.runs.pipeline or "") if app.runs is not None else None
        if found is None:
            text = f"{name} has neither candidate plans nor a pipeline"
            yield Obstacle(text, at, 'Write "candidates", or "runs": {"pipeline": "..."}.', essential=True)
        elif not any(node.device for node in found.nodes.values()):
            text = f"the pipeline of {name} has tasks with variants, no operators on devices"
            yield Obstacle(text, f"{at}.runs.pipeline", "Name a pipeline of operators.", essential=True)
        yield from outcomes(inputs, app, "compound plans")


def outcomes(inputs: Inputs, app: App, plans: str) -> Iterator[Obstacle]:
    """The steps of an application whose outcomes plans of this kind do not decide on."""
    name = app.runs.pipeline if app.runs is not None else None
    found = inputs.profile.pipelines.get(name or "")
    for step, node in found.nodes.items() if found is not None else ():
        if node.outcomes is not None and not (node.outcomes.measured and node.device and "compound" in plans):
            text = f"{plans} do not depend on the answer of a step"
            remedy = "Drop the outcomes and every `on` of an edge, or name a question that plans with them."
            yield Obstacle(text, f"$.pipelines.{name}.nodes.{step}.outcomes", remedy, file="profile")


def _pipeline(inputs: Inputs) -> Iterator[Obstacle]:
    if not inputs.slo.apps:
        yield _no_application()
    for name, app in inputs.slo.apps.items():
        at = f"$.apps.{name}"
        if app.candidates:
            text = f"{name} has candidate plans, which are for packing"
            yield Obstacle(text, f"{at}.candidates", ANOTHER, essential=True)
            continue
        if app.runs is None or app.runs.pipeline is None:
            text = f"{name} runs no pipeline"
            yield Obstacle(text, f"{at}.runs", 'Write "runs": {"pipeline": "..."}.', essential=True)
            continue
        found = inputs.profile.pipelines.get(app.runs.pipeline)
        if found is None or any(node.task is None for node in found.nodes.values()):
            text = f"the steps of {app.runs.pipeline} are operators with knobs, not tasks with variants"
            yield Obstacle(text, f"{at}.runs.pipeline", "Name a pipeline of tasks.", essential=True)
        yield from outcomes(inputs, app, "plans of pipelines")
        if app.demand.streams is not None:
            text = f"{name} comes in streams, not at a rate"
            yield Obstacle(text, f"{at}.demand.streams", 'Write "rate_qps" in its place.')
        if app.demand.rate_qps == "max":
            yield Obstacle("pipelines are planned for a rate", f"{at}.demand.rate_qps", "Write a number.")


def _policy(inputs: Inputs) -> Iterator[Obstacle]:
    slo = inputs.slo
    terms = {term.max or term.min or "" for term in slo.objective}
    if foreign := sorted(terms - POLICY_OBJECTIVES):
        text = f"a policy is judged by quality or goodput, not by {', '.join(foreign)}"
        yield Obstacle(text, "$.objective", 'Write [{"max": "goodput"}].', essential=True)
    if slo.limits.cost_per_hour is not None:
        text = "a policy is for given workers, so it keeps no budget"
        own = bool(terms) or any(map(_is_of_a_policy, slo.apps.values()))
        yield Obstacle(text, "$.limits.cost_per_hour", "Leave it out.", essential=not own)
    if not slo.limits.instances:
        text = "a policy is for given workers: limits.instances names none"
        yield Obstacle(text, "$.limits.instances", 'Write {"HARDWARE": [1, 8]}.')
    for name, app in slo.apps.items():
        at, demand = f"$.apps.{name}", app.demand
        if app.runs is not None and app.runs.pipeline is not None:
            yield Obstacle(f"{name} runs a pipeline", f"{at}.runs.pipeline", ANOTHER, essential=True)
        if app.candidates or demand.streams is not None or demand.series is not None or demand.mix is not None:
            text = f"{name} comes in streams, series, sizes or with candidates; a policy serves queries that are alike"
            yield Obstacle(text, f"{at}.{_unlike(app)}", ANOTHER, essential=True)
        if not any(target.of == "response" for target in app.latency):
            text = f"{name} has no response target, so there is no slack to decide by"
            yield Obstacle(text, f"{at}.latency", 'Write [{"of": "response", "percentile": 99, "max_ms": 150}].')
        if demand.trace is None and (demand.rate_qps is None or demand.rate_qps == "max"):
            text = f"{name} has no load; a policy is made for one, or for a range"
            yield Obstacle(text, f"{at}.demand.{_amount(app)}", 'Write a rate_qps, or {"low": 60, "high": 300}.')
        if not terms and not _is_of_a_policy(app) and len(variants_of(inputs.profile, app.runs)) < 2:
            text = f"{name} has one model and states neither balancing nor violations"
            yield Obstacle(text, f"{at}.balancing", 'Write "balancing": "round_robin".', essential=True)


def _is_of_a_policy(app: App) -> bool:
    """Whether an application says what only a policy is asked."""
    return isinstance(app.demand.rate_qps, RateRange) or app.balancing is not None or app.violations is not None


def _amount(app: App) -> str:
    """The field that says how much an application asks for."""
    stated = (name for name in ("history_qps", "series") if getattr(app.demand, name) is not None)
    return next(stated, "rate_qps")


def _unlike(app: App) -> str:
    """The field that makes an application's queries differ."""
    stated = (name for name in ("streams", "series", "mix") if getattr(app.demand, name) is not None)
    return "candidates" if app.candidates else f"demand.{next(stated)}"


def _variants(inputs: Inputs) -> Iterator[Obstacle]:
    slo = inputs.slo
    if not slo.apps:
        yield _no_application()
    terms = [term.max or term.min for term in slo.objective]
    if terms not in ([], ["cost"]):
        text = "variants are scaled at least cost, and the objective says otherwise"
        yield Obstacle(text, "$.objective", 'Write [{"min": "cost"}], or leave it out.', essential=True)
    runs = [run for variant in inputs.profile.variants.values() for run in variant.runs]
    if not (any(run.saturation_qps is not None for run in runs) or _batched(inputs)):
        text = "no run states its saturation_qps"
        remedy = "Measure the highest rate of each run; or name the question, and batch / latency is taken."
        yield Obstacle(text, "$.variants", remedy, essential=True, ambiguous=True, file="profile")
    for name, app in slo.apps.items():
        at, rate = f"$.apps.{name}", app.demand.rate_qps
        if app.candidates or app.runs is None:
            text = f"{name} has candidate plans, which are for packing"
            yield Obstacle(text, f"{at}.candidates", ANOTHER, essential=True)
        elif app.runs.pipeline is not None:
            yield Obstacle(f"{name} runs a pipeline", f"{at}.runs.pipeline", ANOTHER, essential=True)
        if rate is None or rate == "max" or isinstance(rate, RateRange):
            text = f"{name} states no load: demand.rate_qps as a number"
            yield Obstacle(text, f"{at}.demand.{_amount(app)}", "Write the queries per second as rate_qps.")
        if app.demand.streams is not None or app.balancing is not None:
            field = "demand.streams" if app.demand.streams is not None else "balancing"
            yield Obstacle(f"{name} comes in streams, or under a balancing policy", f"{at}.{field}", ANOTHER)


def _batched(inputs: Inputs) -> bool:
    """Whether batches are put together by the server: every application's models were measured over batches."""
    apps, variants = inputs.slo.apps.values(), inputs.profile.variants
    names = [name for app in apps for name in variants_of(inputs.profile, app.runs)]
    tables = [
        (run, inputs.profile.tables.get(run.latency or "")) for name in names if name in variants
        for run in variants[name].runs
    ]  # fmt: skip
    return (
        bool(tables)
        and all(app.demand.mix is None for app in apps)
        and all(table is not None and "batch" in table.axes.keys() - run.at.keys() for run, table in tables)
    )


def _pool(inputs: Inputs) -> Iterator[Obstacle]:
    slo = inputs.slo
    if len(slo.apps) != 1:
        text = f"a pool serves one application; the SLO has {len(slo.apps)}"
        yield Obstacle(text, "$.apps", "Give one app per file.", essential=True)
    if foreign := sorted({"quality", "moves"} & {term.max or term.min or "" for term in slo.objective}):
        text = f"a pool gives the most rate for a budget, or the least cost for a rate, and knows no {foreign[0]}"
        yield Obstacle(text, "$.objective", 'Write [{"min": "cost"}], or leave it out.')
    for name, app in slo.apps.items():
        at, demand = f"$.apps.{name}", app.demand
        if slo.limits.cost_per_hour is not None and isinstance(demand.rate_qps, int | float):
            text = f"a budget and a rate ({demand.rate_qps:g} qps) are both given, and a pool is chosen for one of them"
            remedy = 'Remove it for the least cost of that rate, or set rate_qps to "max" for the most rate it buys.'
            yield Obstacle(text, "$.limits.cost_per_hour", remedy)
        if app.runs is not None and app.runs.pipeline is not None:
            text = "a pool runs one model, not a pipeline"
            yield Obstacle(text, f"{at}.runs.pipeline", 'Write "variants": ["..."] in its place.', essential=True)
            continue
        if app.candidates:
            text = "a pool chooses its instances itself, candidates are for packing"
            yield Obstacle(text, f"{at}.candidates", ANOTHER, essential=True)
            continue
        names = variants_of(inputs.profile, app.runs)
        if len(names) != 1:
            text = f"a pool runs one variant; {len(names)} may be run here"
            yield Obstacle(text, f"{at}.runs", 'Name one: "variants": ["..."].', essential=True)
        if isinstance(demand.rate_qps, RateRange):
            text = "a pool is sized for one rate, not for a range"
            yield Obstacle(text, f"{at}.demand.rate_qps", 'Write a number, or "max".')
        if (field := _over_time(inputs, name, app)) is not None:
            text = "a pool is sized for one period with a rate in queries per second"
            yield Obstacle(text, field, 'Write "rate_qps" in its place.')
        if demand.mix is None and any(_varies(inputs.profile, one) for one in names[:1]):
            text = "a pool needs demand.mix, the sizes of queries and their shares"
            remedy = 'Write {"axes": ["batch"], "bins": [[16], [64]], "share": [0.7, 0.3]}.'
            yield Obstacle(text, f"{at}.demand.mix", remedy)


def _over_time(inputs: Inputs, name: str, app: App) -> str | None:
    """The field that asks for more than one rate."""
    if app.demand.streams is not None:
        return f"$.apps.{name}.demand.streams"
    if app.demand.series is not None:
        return f"$.apps.{name}.demand.series"
    return "$.horizon.periods" if inputs.slo.horizon.periods > 1 else None


def _varies(profile: Profile, variant: str) -> bool:
    """Whether any table of the variant has an axis that its run leaves open."""
    runs = profile.variants[variant].runs if variant in profile.variants else ()
    tables = [(run, profile.tables.get(run.latency or run.rate or "")) for run in runs]
    return any(table is not None and not run.at.keys() >= table.axes.keys() for run, table in tables)


def _no_application() -> Obstacle:
    return Obstacle("there is no application", "$.apps", "Write at least one.", essential=True)

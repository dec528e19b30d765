"""What a plan can say in one way only, and says in another: it was edited after it was made.

The other checks ask whether a plan holds. A plan that was given away may be changed where that is no question: backups
are taken out, a queue is of another kind, actions are left away, a promise is called by another model, a warning is
invented. So here is what hetplan's own questions always write, and how each of it follows from the rest of the plan and
from its inputs. What a plan of another question writes is its own.

``actions``
    Numbered from 1, in order. Where something is to run, they say how it comes to run. A `start` has its count; what is
    loaded comes `after` the start of its worker. Only variants load with a count, name what a load replaces, and come
    one `after` the other.
``workers``
    One queue for all loads of a worker (pools, pipelines, policies, and where there are none), or one for each
    (variants, compound, and pools of several instances on a machine). A load of variants takes as many at a time as
    its run was measured with.
``routing``
    A route of a pool names its class in full; a route of a pipeline whose shares go by path names the whole path.
``dispatch``
    Every application with routes has a rule. The budget of a step is its longest execution times option
    ``budget_factor`` (1.5 ``slo_divisor``), and all that is left over is listed as `backup`.
``promises``
    Each quantity has its own relation and models; a wanted rate is promised as it is wanted; a percentile that is kept
    in simulation is one that is wished for, at its limit.
``claims``
    A bound has the voucher of its solve, and the scope that claims of the question have.
``valid``
    From no queries to the promised rate, for each application that is served.
``warnings``
    What reading the inputs and planning warn of, in its words (`warned`).
``policies``
    What the tables of a policy can say in one way only.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from hetplan.planner.answer import relative_gap
from hetplan.planner.tolerances import VALUE
from hetplan.profiles.plan import Action, Promise
from hetplan.profiles.plan_dispatch_further import (
    ChosenPlanDispatch,
    MostAccurateFirstDispatch,
    PathSharesDispatch,
    QueueSlackDispatch,
)
from hetplan.profiles.plan_sections import MatchingDispatch
from hetplan.verifier.demand import classes_of, wanted_rate
from hetplan.verifier.facts import Facts, option, slo_divisor
from hetplan.verifier.flow import why_not_followed
from hetplan.verifier.pipeline import Paths
from hetplan.verifier.promises import Computed, plain_name
from hetplan.verifier.report import Violation
from hetplan.verifier.service import service_of
from hetplan.verifier.variants import batches_of
from hetplan.verifier.warned import check_warnings

__all__ = ["check_exactly", "check_tables"]


_SAME = 1e-9
"""Numbers of a plan have 12 digits; what follows from several of them has a few less."""
_SHARE = 1e-12
"""So exact is a share that is 1 less a percentile of a hundred."""
_GAP = 1e-11
"""A gap is the difference of two numbers of 12 digits."""


_ALWAYS = "t0"
"""The period of a plan that has only one."""


def check_exactly(facts: Facts, computed: Mapping[str, Computed]) -> list[Violation]:
    """Everything of a plan of hetplan's own that says otherwise what can be said in one way only.

    `computed` holds what was recomputed of the applications that can be followed.
    """
    if facts.plan.question not in _QUEUE:
        return []
    every: list[Callable[[Facts], Iterable[Violation]]]
    every = [_queues, _loads, _rules, _promises, _claims, _valid, check_warnings]
    if facts.plan.question != "llm":
        every += [_routes, _budgets, _machines]
    if facts.plan.question != "llm" or facts.inputs.state is not None:
        every.append(_actions)
    if facts.plan.question == "policy":
        every.append(check_tables)
    if facts.plan.question == "variants":
        from hetplan.verifier.exact_variants import check_going_on

        every.append(check_going_on)
    found = [one for part in every for one in part(facts)]
    if len(facts.plan.periods) == 1 and facts.plan.periods[0].id != _ALWAYS:
        found.append(Violation("period-id", "periods", f"the only period is called {_ALWAYS}"))
    return found if facts.plan.question == "llm" else [*found, *_execution(facts, computed)]


# Actions

_WORDS: dict[str, tuple[str, ...]] = {
    "variants": ("start", "stop", "load", "unload", "replicate", "upgrade", "downgrade", "keep", "move")
}
_UP = ("load", "replicate", "upgrade", "downgrade")


def _actions(facts: Facts) -> Iterator[Violation]:
    plan, variants = facts.plan, facts.plan.question == "variants"
    if not plan.actions and any(worker.loads for worker in plan.workers) and facts.inputs.state is None:
        yield Violation("actions-missing", "actions", "nothing says how what is planned comes to run")
    words = _WORDS.get(plan.question, ("start", "stop", "load"))
    running = facts.inputs.state.workers if facts.inputs.state is not None else ()
    words = words if running else ("start", "load")
    started: dict[str, int] = {}
    before: dict[int, set[int]] = {}
    for number, action in enumerate(plan.actions, start=1):
        before[action.id] = set(action.after).union(*(before.get(one, set()) for one in action.after))
        for text in _action(facts, action, number, before[action.id], started):
            yield Violation("action-exact", f"actions.{action.id}", text)
        if action.do not in words:
            text = f"{action.do}, where this plan has {', '.join(words)}"
            yield Violation("action-exact", f"actions.{action.id}", text)
        if variants and action.after != ((number - 1,) if number > 1 else ()):
            text = f"comes after {list(action.after)}, and is one that follows the one before it"
            yield Violation("action-exact", f"actions.{action.id}", text)
        if action.do == "start" and action.worker is not None:
            started[action.worker] = action.id
    if variants and running:
        yield from _gone(facts)
    if not variants and not any(action.do == "stop" for action in plan.actions):
        for action in plan.actions:
            seat = facts.seats.get(action.load or "")
            home = seat.worker.id if seat is not None else None
            wanted = (started[home],) if home in started else ()
            if action.after != wanted:
                text = f"comes after {list(action.after)}, and has to wait for {list(wanted) or 'nothing'}"
                yield Violation("action-exact", f"actions.{action.id}", text)


def _gone(facts: Facts) -> Iterator[Violation]:
    """What goes off a machine is unloaded: before the machine stops, and after it went aside for others."""
    running = facts.inputs.state.workers if facts.inputs.state is not None else ()
    on = {worker.id: {load.id: load.instances for load in worker.loads} for worker in running}
    total = {load.id: worker.count * load.instances for worker in running for load in worker.loads}
    aside: dict[str, Action] = {}
    for action in facts.plan.actions:
        here = on.get(action.worker or "", {})
        if action.do == "unload":
            aside.pop(action.load or "", None)
            for loads in on.values():
                loads.pop(action.load or "", None)
        elif action.do == "move":
            aside[action.load or ""] = action
        elif action.do == "keep" and action.count is not None and action.load in aside:
            if action.count + (aside[action.load].count or 0) == total.get(action.load, 0):
                del aside[action.load]
        elif action.do == "stop" and action.count is None and here:
            text = f"stops {action.worker} while {', '.join(sorted(here))} is on it"
            yield Violation("action-exact", f"actions.{action.id}", text)
        elif action.do == "stop" and action.count is not None:
            # Of a group that shrinks what went aside ends with its machines.
            for load in [load for load, one in aside.items() if one.count == here.get(load, 0) * action.count]:
                del aside[load]
    for load, action in aside.items():
        text = f"{load} goes off its machine and is never unloaded"
        yield Violation("action-exact", f"actions.{action.id}", text)


def _action(facts: Facts, action: Action, number: int, before: set[int], started: Mapping[str, int]) -> Iterator[str]:
    variants = facts.plan.question == "variants"
    if action.id != number:
        yield f"is number {number} of the actions"
    if action.do == "start" and action.count is None:
        yield "does not say how many machines are started"
    if variants and action.do == "unload" and facts.inputs.state is not None:
        there = [
            worker.count * load.instances
            for worker in facts.inputs.state.workers
            for load in worker.loads
            if load.id == action.load
        ]
        if [action.count] != there:
            yield f"unloads {action.count} instances of {there[0] if there else 0}"
    if action.do in ("keep", *_UP) and action.load is not None and action.load not in facts.seats:
        yield f"is to {action.do} {action.load}, which is not in the plan"
    if action.do in _UP and action.load is not None and action.load in facts.seats:
        seat = facts.seats[action.load]
        if (action.count is not None) != variants:
            yield "loads are counted in plans of variants, and only there"
        elif (action.count is not None and action.count > seat.worker.count * seat.load.instances) or (
            action.count is not None
            and facts.inputs.state is None
            and action.count != (seat.worker.count * seat.load.instances)
        ):
            yield f"loads {action.count} instances of {seat.worker.count * seat.load.instances}"
        start = started.get(seat.worker.id)
        if start is not None and start not in before:
            yield f"does not come after action {start}, which starts its worker"


# Workers and routes

_QUEUE = {
    "pool": "shared",
    "pipeline": "shared",
    "policy": "shared",
    "variants": "per-load",
    "compound": "per-load",
    "llm": "per-load",
}


def _queues(facts: Facts) -> Iterator[Violation]:
    running = {worker.id: worker.queue for worker in (facts.inputs.state.workers if facts.inputs.state else ())}
    for worker in facts.plan.workers:
        side_by_side = facts.plan.question in ("pool", "pipeline") and len(worker.loads) > 1
        wanted = "per-load" if side_by_side else _QUEUE[facts.plan.question] if worker.loads else "shared"
        if worker.queue != wanted and running.get(worker.id) != worker.queue:
            text = f"queue {worker.queue}, and workers of question {facts.plan.question} have {wanted}"
            yield Violation("queue", f"workers.{worker.id}", text)


def _loads(facts: Facts) -> Iterator[Violation]:
    """A load names its run. Variants: batches as measured."""
    state = facts.inputs.state
    there = {worker.id for worker in state.workers} if state is not None else set[str]()
    for seat in facts.seats.values():
        if seat.load.at is None and seat.load.variant is not None and facts.plan.format != "hetplan/plan/1.0":
            yield Violation("run-unnamed", seat.at, "names no run of the profile")
        share, variant = seat.load.share, facts.inputs.profile.variants.get(seat.load.variant or "")
        if seat.load.artifact is None and variant is not None and variant.artifact and variant.artifact.sha256:
            text = f"names no artifact, and the profile says which file {seat.load.variant} is"
            yield Violation("artifact", seat.at, text)
        # In a part of a fleet loads are called by their worker.
        named = (f"w-{seat.load.id}", seat.load.id.rpartition(".")[0])
        if facts.plan.question == "llm" and seat.worker.id not in (*named, *there):
            yield Violation("worker-id", seat.at, f"its worker is called {seat.worker.id}, not w-{seat.load.id}")
        if facts.plan.question == "policy" and (seat.load.app is None or seat.load.instances != 1):
            yield Violation("load-app", seat.at, "a worker holds each model once, for one application")
        if facts.plan.question == "pipeline" and seat.load.app is None:
            yield Violation("load-app", seat.at, "a step is of an application, and none is named")
        if share is not None and share.gpu is not None and facts.plan.question == "compound" and share.enforce != "mps":
            yield Violation("share", seat.at, f"a share of a GPU that is enforced by {share.enforce}, not by mps")
    if facts.plan.question != "variants":
        return
    running = {
        load.id: load for worker in (facts.inputs.state.workers if facts.inputs.state else ()) for load in worker.loads
    }
    for name, seat in facts.seats.items():
        before = running.get(name)
        profile, taken = facts.inputs.profile, seat.load.serve.max_batch
        variant = profile.variants[seat.load.variant or ""]
        known = [taken] if seat.run is None else batches_of(profile, facts.inputs.slo, variant, seat.run)
        if taken not in known and (before is None or before.serve != seat.load.serve):
            text = f"takes {taken} at a time, its run was measured with {', '.join(map(str, known))}"
            yield Violation("variants-serve", seat.at, text)


def _routes(facts: Facts) -> Iterator[Violation]:
    for app, routes in facts.plan.routing.items():
        wish = facts.inputs.slo.apps[app]
        if facts.plan.question == "pool" and classes_of(wish).axes:
            for number, route in enumerate(routes):
                if not route.when:
                    yield Violation(
                        "route-class", f"routing.{app}[{number}]", "names no class, and would take them all"
                    )
        rule = facts.plan.dispatch.get(app)
        pipeline = facts.inputs.profile.pipelines.get((wish.runs.pipeline if wish.runs else None) or "")
        if not isinstance(rule, PathSharesDispatch) or pipeline is None:
            continue
        inner = {edge.to for edge in pipeline.edges}
        longest = max((len(route.prefix) for route in routes), default=0)
        if why_not_followed(facts, app):
            continue
        by_path = (
            facts.plan.method.options.get("routing") == "path-shares" and facts.plan.method.formulation != "budget"
        )
        if by_path and rule.keyed != "path":
            yield Violation(
                "route-path", f"dispatch.{app}.keyed", f"shares go by {rule.keyed}, the options say by path"
            )
        of_node = Counter(route.node for route in routes)
        for number, route in enumerate(routes):
            deep = route.node in inner and rule.keyed == "path"
            is_one = deep and of_node[route.node] == 1  # all ways to the step share alike
            if bool(route.prefix) != deep and not is_one:
                text = f"{'names no path' if deep else 'names a path'}, where shares go by {rule.keyed}"
                yield Violation("route-path", f"routing.{app}[{number}]", text)
        if not inner and (rule.keyed == "node") and longest:
            yield Violation("route-path", f"routing.{app}", "shares go by step, and routes name paths")


# Dispatch


def _rules(facts: Facts) -> Iterator[Violation]:
    for app in facts.plan.routing:
        rule = facts.plan.dispatch.get(app)
        if rule is None:
            yield Violation("dispatch", f"dispatch.{app}", "its queries have routes, and no rule sends them")
        elif facts.plan.question == "variants" and rule.rule != "shares/1":
            yield Violation("dispatch", f"dispatch.{app}", f"{rule.rule}, and variants send by shares/1")
        elif facts.plan.question == "variants" and getattr(rule, "balancing", None) != "shortest_queue":
            text = f"balancing {getattr(rule, 'balancing', None)}, and servers of a group get queries by shortest queue"
            yield Violation("dispatch", f"dispatch.{app}", text)
        penalty = facts.plan.method.options.get("penalty", "paper")
        if isinstance(rule, MatchingDispatch) and rule.penalty != penalty:
            yield Violation("dispatch", f"dispatch.{app}", f"penalty {rule.penalty}, the options say {penalty}")
        if isinstance(rule, PathSharesDispatch | MostAccurateFirstDispatch) and rule.balancing != "round_robin":
            text = f"balancing {rule.balancing}, and servers of a group take turns, as was simulated"
            yield Violation("dispatch", f"dispatch.{app}", text)


def _budgets(facts: Facts) -> Iterator[Violation]:
    """Pipelines: budgets and backups are what the servers and the routing make them."""
    factor = option(facts.plan, "budget_factor", 0.0) or 1.5 * slo_divisor(facts.plan)
    for app, rule in facts.plan.dispatch.items():
        if not isinstance(rule, PathSharesDispatch | MostAccurateFirstDispatch) or app not in facts.plan.routing:
            continue
        if why_not_followed(facts, app):
            continue
        paths = Paths(facts, app)
        paths.walk()
        longest: dict[str, float] = defaultdict(float)
        for name in paths.load_qps:
            node = facts.seats[name].load.node or ""
            longest[node] = max(longest[node], paths.ms[name])
        for node in sorted(longest.keys() | rule.budget_ms.keys()):
            stated, own = rule.budget_ms.get(node, math.nan), factor * longest.get(node, math.nan)
            if not math.isclose(stated, own, rel_tol=VALUE):
                text = f"{stated:.6g} ms for step {node}, {factor:g} times its longest execution is {own:.6g}"
                yield Violation("budget", f"dispatch.{app}.budget_ms.{node}", text)
        stated_left = {entry.to: entry.left_qps for entry in rule.backup}
        for name, seat in facts.seats.items():
            if seat.load.app != app:
                continue
            seconds = service_of(facts, seat, classes_of(facts.inputs.slo.apps[app])).seconds[0]
            capacity = seat.worker.count * seat.load.instances / seconds
            left = capacity - paths.load_qps.get(name, 0.0)
            if not math.isclose(stated_left.get(name, 0.0), left, abs_tol=4 * VALUE * capacity):
                text = f"{stated_left.get(name, 0.0):.6g} qps of {name} are said to be left over, {left:.6g} are"
                yield Violation("backup", f"dispatch.{app}.backup", text)


def _machines(facts: Facts) -> Iterator[Violation]:
    """Compound: two operators have the same machine of a tier where they are on one, numbered from 0."""
    numbers: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for app, rule in facts.plan.dispatch.items():
        if not isinstance(rule, ChosenPlanDispatch) or rule.candidate is not None:
            continue
        mine: dict[str | None, list[str]] = defaultdict(list)
        for seat in facts.seats.values():
            if seat.load.app == app:
                mine[seat.load.node] += [seat.worker.id] * seat.load.instances
        wanted: dict[str, list[str]] = defaultdict(list)
        for node, tier in rule.placement.items():
            if node in mine and (node in rule.share or tier in rule.machines):
                wanted[tier] += mine[node]
        for tier in sorted(wanted.keys() | rule.machines.keys()):
            here, said = wanted.get(tier, []), rule.machines.get(tier, ())
            if len(here) != len(said):
                text = f"{len(said)} machines of {tier} are named, {len(here)} operators are there"
                yield Violation("machines", f"dispatch.{app}", text)
            whole = [node for node, where in rule.placement.items() if where == tier and node not in rule.share]
            for worker, number in zip(sorted(here), sorted(said), strict=False) if not whole else ():
                numbers[tier][number].add(worker)
    for tier, by_number in numbers.items():
        workers = set[str]().union(*by_number.values())
        if set(by_number) != set(range(len(by_number))) or len(by_number) != len(workers):
            text = f"{tier} has the machines {sorted(by_number)}: its {len(workers)} workers are numbered from 0"
            yield Violation("machines", "dispatch", text)


# Promises, claims, validity

_ARITHMETIC = ("no-queueing",)
_SAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "rate_qps": (">=", ("fluid", "simulation/1")),
    "fluid_rate_qps": (">=", ("fluid",)),
    "quality": (">=", _ARITHMETIC),
    "service_ms": ("<=", _ARITHMETIC),
    "response_ms": ("<=", ("simulation/1",)),
    "violations": ("<=", ("simulation/1",)),
    "servers": ("=", _ARITHMETIC),
    "moves": ("=", _ARITHMETIC),
    "cost_per_hour": ("=", _ARITHMETIC),
    "gross_cost_per_hour": ("=", _ARITHMETIC),
    "net_cost_per_hour": ("=", _ARITHMETIC),
}
"""How each quantity is promised, and by which models; what is not named here is left to its question."""
_SAYS_OTHERWISE: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {
    **{("policy", name): ("=", ("stationary/1", "simulation/1")) for name in ("goodput", "quality", "violations")},
    ("llm", "goodput"): (">=", ("simulation/1",)),
    ("policy", "utilisation"): ("=", ("stationary/1",)),
    ("compound", "response_ms"): ("<=", ("no-queueing", "measured", "stationary/1", "simulation/1")),
    ("compound", "quality"): ("=", ("measured",)),
    **{("compound", name): ("=", _ARITHMETIC) for name in ("goodput", "served", "candidates_per_hour")},
    **{("compound", name): ("=", _ARITHMETIC) for name in ("cost_per_query", "calls_per_query")},
}
_PROMISED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pool": ((), ("rate_qps", "fluid_rate_qps")),
    "pipeline": (("servers",), ("rate_qps", "quality", "service_ms")),
    "variants": (("cost_per_hour", "gross_cost_per_hour", "net_cost_per_hour"), ("rate_qps", "service_ms")),
    "llm": (("cost_per_hour",), ("rate_qps",)),
}
"""What each question always promises: of the plan as a whole, and of each application that is served."""


def _promises(facts: Facts) -> Iterator[Violation]:
    said = {(promise.app, promise.quantity) for promise in facts.plan.promises}
    whole, of_app = _PROMISED.get(facts.plan.question, ((), ()))
    priced = facts.plan.workers or facts.plan.question == "variants"
    due: set[tuple[str | None, str]] = {(None, quantity) for quantity in whole if priced}
    due |= {(app, quantity) for app in facts.plan.routing for quantity in of_app}
    for one, quantity in sorted(due - said, key=str):
        yield Violation("promise-missing", "promises", f"no {quantity} is promised{f' to {one}' if one else ''}")
    for number, promise in enumerate(facts.plan.promises):
        for text in _promise(facts, promise):
            yield Violation("promise-exact", f"promises[{number}]", text)


def _promise(facts: Facts, promise: Promise) -> Iterator[str]:
    question, quantity = facts.plan.question, promise.quantity
    relation, models = _SAYS_OTHERWISE.get((question, quantity)) or _SAYS.get(quantity, (promise.relation, ()))
    if promise.relation != relation:
        yield f"{quantity} is promised with {promise.relation}, not with {relation}"
    if models and promise.model not in models:
        yield f"{quantity} is promised by the model {promise.model}, not by {' or '.join(models)}"
    app = facts.inputs.slo.apps.get(promise.app or "")
    if app is None:
        return
    wanted = wanted_rate(app)
    if quantity == "rate_qps" and question in ("variants", "pipeline") and wanted is not None:
        left = sum(one.rate_qps for one in facts.plan.unserved if one.app == promise.app)
        if not math.isclose(promise.value + left, wanted, rel_tol=_SAME):
            yield f"{promise.value:.9g} qps are promised and {left:.9g} unserved, wanted are {wanted:.9g}"
    timed = {(f"{one.of}_ms", one.percentile) for one in app.latency}
    if (
        promise.model == "simulation/1"
        and quantity in ("ttft_ms", "tpot_ms")
        and (quantity, promise.percentile) not in timed
    ):
        yield f"p{promise.percentile or 0:g} of {quantity} is no limit that is wished for"
    if promise.model != "simulation/1" or question not in ("variants", "pipeline", "pool", "compound"):
        return
    limits = {(one.percentile, one.max_ms) for one in app.latency if one.of == "response"}
    # A plan is written with twelve digits.
    same = [ms for one, ms in limits if one == promise.percentile and math.isclose(promise.value, ms, rel_tol=_SAME)]
    if quantity == "response_ms" and not same and question != "compound":
        yield f"p{promise.percentile or 0:g} of {promise.value:g} ms is no limit that is wished for"
    allowed = [1.0 - percentile / 100.0 for percentile, _ in limits]
    allowed = [app.violations.max] if app.violations is not None else allowed
    if quantity == "violations" and not any(
        math.isclose(promise.value, one, rel_tol=_SAME, abs_tol=_SHARE) for one in allowed
    ):
        yield f"a share of {promise.value:g} is not what is wished for"


def _execution(facts: Facts, computed: Mapping[str, Computed]) -> Iterator[Violation]:
    """What execution takes is promised as it is, and not as something longer (but where levels are planned with)."""
    if facts.plan.question not in ("variants", "pipeline") or facts.plan.method.formulation == "budget":
        return
    for number, promise in enumerate(facts.plan.promises):
        known = computed.get(promise.app or "")
        own = known.values.get(promise.quantity) if known is not None else None
        if promise.quantity == "service_ms" and own is not None and promise.value > own * (1.0 + VALUE):
            text = f"promises {promise.value:.9g} ms of execution, it takes {own:.9g}"
            yield Violation("promise-exact", f"promises[{number}]", text)


_SCOPES = {
    ("policy", ""): ("model", "relaxation"),
    ("compound", ""): ("problem", "restriction"),
    ("pool", "fluid_rate_qps"): ("problem", "restriction"),
    ("pool", ""): ("problem", "relaxation"),
    ("pipeline", "quality_per_step"): ("model",),
    ("pipeline", ""): ("problem", "relaxation", "restriction"),
    ("variants", ""): ("problem", "relaxation"),
    ("llm", ""): ("problem", "relaxation"),
}
_OF_THE_CHOSEN = ("shares of the chosen servers", "shares that leave most room", "rate of the chosen pool")
_OF_ANY_FLEET = "least cost of any schedule"
_OF_STEPS = "every step on its own"
"""What solves are about, by whose bounds only what was chosen is bounded, every fleet that makes text, or steps
that know nothing of one another."""


def _claims(facts: Facts) -> Iterator[Violation]:
    plan = facts.plan
    if not plan.claims and (plan.workers or plan.dispatch) and plan.status not in ("heuristic", "not-simulated"):
        yield Violation("claim", "claims", f"the plan is called {plan.status}, and claims nothing")
    if plan.question == "pipeline":
        yield from _of_pipelines(facts)
    for number, claim in enumerate(plan.claims):
        at = f"claims[{number}]"
        if claim.bound is None:
            continue
        gaps = [relative_gap(claim.value, claim.bound, floor=floor) for floor in (1e-9, 1.0)]
        if claim.gap is not None and not any(math.isclose(claim.gap, one, rel_tol=VALUE, abs_tol=_GAP) for one in gaps):
            yield Violation("claim", at, f"states a gap of {claim.gap:.9g}, recomputed it is {gaps[0]:.9g}")
        solve = next((one for one in plan.solves if one.id == claim.solve), None)
        # The formulation `fluid-lp` is given its pool: there is no other.
        given = plan.method.formulation == "fluid-lp" and claim.about == "fluid_rate_qps"
        if solve is not None and claim.scope != "restriction" and solve.about in _OF_THE_CHOSEN and not given:
            yield Violation("claim", at, f"a bound of {solve.about}, which says nothing of others")
        if solve is not None and plan.question == "llm" and solve.about != _OF_ANY_FLEET:
            yield Violation("claim", at, f"a bound of {solve.about}, where it is one of {_OF_ANY_FLEET}")
        about = (solve.about or "") if solve is not None else ""
        if plan.question == "pipeline" and (solve is not None or plan.workers):
            from hetplan.verifier.pipeline import may_be_of

            if not may_be_of(facts, claim.scope, about):
                yield Violation("claim", at, f"a bound of scope {claim.scope}, by a solve about {about or 'nothing'}")
        if plan.question == "pipeline" and (about == _OF_STEPS) != (claim.about == "quality_per_step"):
            yield Violation("claim", at, f"a bound on {claim.about}, by a solve about {about}")
        if plan.question == "variants" and (claim.scope == "relaxation") != ((claim.note or "").startswith("bounded ")):
            yield Violation("claim", at, f"a bound of scope {claim.scope}, of which the plan says: {claim.note}")
        if solve is not None and claim.vouched == "claimed" and solve.vouched == "certified":
            yield Violation("claim", at, f"an engine's word, and solve {solve.id} is certified")
        scopes = _SCOPES.get((plan.question, plain_name(claim.about))) or _SCOPES[plan.question, ""]
        if plan.question == "pool" and (len(plan.claims) == 1 or claim.about != "fluid_rate_qps"):
            looser = any(one.code == "W-merged" for one in plan.warnings) or _is_simulated(facts)
            scopes = ("relaxation",) if looser and claim.about != "fluid_rate_qps" else ("problem",)
            if claim.about == "cost_per_hour" and plan.method.options.get("size", "fluid") not in ("fluid", "planned"):
                scopes = ("problem", "relaxation")
            # Where a rate is asked of a given pool, more than that rate is bounded for this pool only.
            scopes += ("restriction",) if given else ()
        if plan.question == "compound":
            by_search = any(isinstance(r, ChosenPlanDispatch) and r.candidate is None for r in plan.dispatch.values())
            listed = all(app.candidates for app in facts.inputs.slo.apps.values())
            # Where a search found no plan for anyone, what is left is the whole problem.
            scopes = ("problem",) if listed else ("restriction",) if by_search else ("problem", "restriction")
            scopes = ("restriction",) if number else scopes
        if claim.scope not in scopes:
            yield Violation("claim", at, f"a bound of scope {claim.scope}, where it is {' or '.join(scopes)}")


_TOGETHER = (
    {"best accuracy in time, however many servers": "quality", "fewest servers": "servers"},
    {"quality, servers in parts": "quality", "servers, servers in parts": "servers"},
)
"""Solves of pipelines whose bounds are claimed together, and what each is a bound of."""


def _of_pipelines(facts: Facts) -> Iterator[Violation]:
    """Where one of the bounds that belong together is claimed, each that was found is."""
    abouts = {solve.id: solve.about for solve in facts.plan.solves}
    rests_on = {abouts.get(claim.solve or 0) for claim in facts.plan.claims}
    claimed = {claim.about for claim in facts.plan.claims}
    for together in _TOGETHER:
        for about in sorted(together.keys() & set(abouts.values()) if together.keys() & rests_on else ()):
            if together[about] not in claimed:
                yield Violation("claim", "claims", f"there is a bound by {about}, and no claim about {together[about]}")


def _is_simulated(facts: Facts) -> bool:
    return any(one.quantity == "rate_qps" and one.model.startswith("simulation") for one in facts.plan.promises)


def _valid(facts: Facts) -> Iterator[Violation]:
    plan = facts.plan
    if plan.question == "compound":
        return
    for app in (*plan.routing, *(one for one in plan.policies if one not in plan.routing)):
        top = facts.promised_rate(app)
        if plan.question == "policy":
            rates: dict[str, float] = {}
            for table in plan.policies.get(app, ()):
                rates[table.workers] = max(rates.get(table.workers, 0.0), table.rate_qps)
            top = sum(rates.values())
        stated = plan.valid.rate_qps.get(app)
        if top is None:
            continue
        if stated is None or stated[0] != 0.0 or stated[1] is None or not math.isclose(stated[1], top, rel_tol=VALUE):
            said = "nothing is said" if stated is None else f"{stated[0]:g} to {stated[1]}"
            text = f"{said} of the rates for which the plan holds: they are 0 to {top:.9g}"
            yield Violation("valid", f"valid.rate_qps.{app}", text)


_EXPECTED = ("goodput", "violations", "utilisation", "quality")
"""What is promised of the averages that the model of a policy's queue expects."""


def check_tables(facts: Facts) -> Iterator[Violation]:
    """Tables say how many are taken where they end, and what they gain."""
    for app, tables in facts.plan.policies.items():
        for number, table in enumerate(tables):
            at = f"policies.{app}[{number}]"
            if table.otherwise.batch == "max":
                yield Violation("policy", at, "does not say how many are taken where more wait than it has rows for")
            if table.gain is None and any(claim.bound is not None for claim in facts.plan.claims) and table.expected:
                yield Violation("policy", at, "a bound is claimed, and its gain is not said")
        rule = facts.plan.dispatch.get(app)
        if isinstance(rule, QueueSlackDispatch) and rule.estimate != QueueSlackDispatch().estimate:
            yield Violation("dispatch", f"dispatch.{app}", "rates are estimated over another time than is planned with")
        tops = {table.workers: table for table in sorted(tables, key=lambda one: one.rate_qps)}
        said = {one.quantity for one in facts.plan.promises if one.app == app and one.model.startswith("stationary")}
        if tops and all(table.expected is not None for table in tops.values()) and said != set(_EXPECTED):
            text = f"{', '.join(sorted(said ^ set(_EXPECTED)))}: {', '.join(_EXPECTED)} of {app} are expected"
            yield Violation("promise-missing", "promises", text)

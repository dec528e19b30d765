"""Tries a draft in simulation: makes a plan that a simulator can read, and reads its response times.

The simulator is handed in (`Tools.simulate`): nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isnan, log10
from typing import Any

from hetplan.errors import InputError
from hetplan.planner.contract import Ask, Tools
from hetplan.planner.draft import Draft, Repair
from hetplan.problems.repairs import change
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import InputHashes, Method, Plan, Promise
from hetplan.profiles.slo import App
from hetplan.serving.demand import response_targets
from hetplan.serving.strictest import late_share, strictest

__all__ = [
    "CHOSEN_AT",
    "CONFIRMED",
    "FRESH",
    "SEARCHED",
    "SEEDS",
    "Played",
    "Shown",
    "check_simulator",
    "plan_to_simulate",
    "play",
    "play_length_s",
    "shown_by",
    "shown_of",
    "together",
    "where_late",
    "with_shown",
]

SEEDS = 5
"""Simulations behind a promise."""
SEARCHED = (2, 30_000)
"""Runs, and queries in each, by which plans are chosen."""
CONFIRMED = (5, 30_000)
"""The same for the plan that is handed out: what it promises rests on these, by seeds that chose nothing."""
CHOSEN_AT = 0.7
"""Of the share that may be late, the part that a chosen plan may use up: a choice is biased towards luck."""
CLOSE = 0.92
"""From this part of what may be late on, the worse end of an interval is near it."""
AT_EDGE = 1.5
"""Times the share that is late: where the interval reaches so far, a few long queues decide, and runs may miss them."""
SEEN = 99.9
"""Of higher percentiles the runs of a play may be too short for an upper end."""
LESS, MORE = 0.75, 1.4
"""Times a rate, and times a limit: the first guess at what helps a plan that is late."""
MOST_OFF = 2.0
"""What ten times a limit counts for, between 1 and this: a percentile that is farther off tells no more."""
FRESH = 1_000_003
"""Between the seeds that choose a plan and those that confirm it."""
SPANS = 100.0
"""A run is so many times as long as the longest limit: long enough for queues to grow."""
CYCLES = 40.0
"""Nor shorter than so many times that a process goes through its states: a burst that comes seldom is seen, too."""
MOST_QUERIES = 4
"""Nor longer than so many times what was asked for."""


@dataclass(frozen=True)
class Shown:
    """What simulation showed: the promises that it backs, and the applications that were late, in the wish's order.

    Of those that were late `unsure` were so only by their interval, which a longer run may draw in.
    """

    promises: tuple[Promise, ...]
    late: tuple[str, ...]
    unsure: tuple[str, ...] = ()


def check_simulator(tools: Tools, size: str = "simulated", *, name: str = "simulate") -> None:
    """Raise where option `size` asks for a simulation and nothing was handed in to simulate with."""
    if (tools.simulate if name == "simulate" else tools.extra.get(name)) is None:
        raise InputError.one(
            file="options",
            path="size",
            value=size,
            why="no simulator was handed in",
            remedy='Hand in Tools(simulate=...), or set size to "planned" or "estimated".',
        )


def shown_by(
    tools: Tools,
    inputs: Inputs,
    plan: Plan,
    ask: Ask,
    *,
    seeds: int = SEEDS,
    seed: int | None = None,
    how: Mapping[str, Any] | None = None,
) -> Shown:
    """The response times that a simulation of the plan shows, of every target that the SLO states.

    Of several runs the upper end of the interval counts: the promise has to hold on other seeds too. One run alone
    promises nothing, since its interval may be infinite. `seed` is by default that of the limits; `how` is handed on.
    """
    assert tools.simulate is not None
    report: Any = tools.simulate(
        plan, inputs, seeds=seeds, seed=ask.limits.seed if seed is None else seed, **(how or {})
    )
    promises, late, surely = list[Promise](), dict[str, None](), set[str]()
    for name, app in inputs.slo.apps.items():
        for target in app.latency if name in report.apps else ():
            if target.of != "response":
                continue
            held = report.apps[name].percentiles_ms[target.percentile]
            if not (held.high if seeds > 1 else held.value) <= target.max_ms:
                late[name] = None
                if not held.value <= target.max_ms:
                    surely.add(name)
            elif seeds > 1:
                promises.append(
                    Promise(
                        app=name,
                        quantity="response_ms",
                        percentile=target.percentile,
                        relation="<=",
                        value=target.max_ms,
                        interval=(held.low, held.high),
                        model="simulation/1",
                        seeds=seeds,
                    )
                )
    return Shown(tuple(promises), tuple(late), tuple(name for name in late if name not in surely))


@dataclass(frozen=True)
class Played:
    """What a counted number of queries showed: late share / allowed share, the worst first; and the promises they back.

    `late` are the applications of which not even the better end of the interval keeps the wish, or the worse end does
    not confirm it. `at_edge` tells that the worse end is near what may be late, or that the runs differ much and it is
    not far from it: more runs may tell otherwise.
    """

    worst: float
    late: tuple[str, ...]
    promises: tuple[Promise, ...]
    at_edge: bool = False
    over: Mapping[str, float] = field(default_factory=dict)
    """By application, how many times its strictest limit that percentile is; infinite where too many are lost."""

    @property
    def good(self) -> bool:
        """Whether the plan may be chosen."""
        return self.worst <= CHOSEN_AT


def play(
    simulate: Callable[..., Any],
    plan: Plan,
    inputs: Inputs,
    how: tuple[int, int],
    *,
    rates_qps: Mapping[str, float],
    seed: int,
    floors: Mapping[str, float] | None = None,
) -> Played:
    """So many runs of a counted number of queries, and what every application's wish says of them.

    `floors` are the least accuracies asked for.
    """
    seeds, queries = how
    asked = {app: rate for app, rate in rates_qps.items() if rate > 0}
    if not asked:
        return Played(0.0, (), ())
    length_s = play_length_s(inputs, asked, queries)
    report = simulate(plan, inputs, seeds=seeds, seed=seed, duration_s=length_s)
    return together(shown_of(inputs, app, report.apps[app], seeds, (floors or {}).get(app)) for app in asked)


def play_length_s(inputs: Inputs, rates_qps: Mapping[str, float], queries: int) -> float:
    """How long a run of so many queries of each application is; these have rates above 0."""
    targets = (target for app in rates_qps for target in response_targets(inputs.slo.apps[app]))
    longest = max((target.max_ms for target in targets), default=0.0)
    cycle_s = max(sum(inputs.slo.apps[app].demand.arrivals.stay_s or ()) for app in rates_qps)
    length_s = max(queries / min(rates_qps.values()), SPANS * longest / 1000.0, CYCLES * cycle_s)
    return min(length_s, MOST_QUERIES * queries / sum(rates_qps.values()))


def together(played: Iterable[Played]) -> Played:
    """What was shown of all applications: the worst, and what each is late in and promises."""
    every = tuple(played)
    return Played(
        max(one.worst for one in every),
        tuple(app for one in every for app in one.late),
        tuple(promise for one in every for promise in one.promises),
        any(one.at_edge for one in every),
        {name: times for one in every for name, times in one.over.items()},
    )


def shown_of(
    inputs: Inputs, name: str, found: Any, seeds: int, floor: float | None, basis: str | None = None
) -> Played:
    """What runs showed of one application; `basis` is what its promises rest on."""
    app = inputs.slo.apps[name]
    lost, allowed = found.figures["violations"], round(late_share(app), 12)
    if isnan(lost.value):
        return Played(0.0, (), ())  # none of its queries came: that shows nothing
    shown = [(target, found.percentiles_ms[target.percentile]) for target in response_targets(app)]
    missed = any(
        not one.value <= target.max_ms or not one.high <= (target.max_ms if target.percentile <= SEEN else inf)
        for target, one in shown
    )
    below = floor is not None and found.figures["accuracy"].high < floor
    worst = lost.value / allowed if allowed > 0 else inf if lost.value > 0 else 0.0
    if worst < 1.0 and allowed < 1.0:
        worst *= (1.0 - allowed) / (1.0 - lost.value)  # As odds: .4 is farther from .5 than .008 from .01.
    # How far a percentile is off says more than that it is. One without end is lost queries, and those were counted.
    over = [one.value / target.max_ms for target, one in shown if not one.value <= target.max_ms]
    off = [min(MOST_OFF, 1.0 + log10(max(times, 1.0))) for times in over if worst <= 1.0 or times < inf]
    worst = max([worst, *off])
    worst = inf if below else worst
    backing: dict[str, Any] = {"app": name, "relation": "<=", "model": "simulation/1", "seeds": seeds}
    if basis is not None:
        backing["basis"] = basis
    # So many in time, at the upper end of the interval of the share, is what the strictest percentile says.
    promises = [
        Promise(quantity="response_ms", percentile=target.percentile, value=target.max_ms,
                interval=(one.low, min(one.high, target.max_ms)), **backing)
        for target, one in shown
        if one.low <= target.max_ms
    ]  # fmt: skip
    promises.append(Promise(quantity="violations", value=allowed, interval=(lost.low, lost.high), **backing))
    late = (missed and len(shown) > 1) or lost.high > allowed or below
    far_apart = lost.high > CHOSEN_AT * allowed and lost.high > AT_EDGE * lost.value
    at_edge = far_apart or lost.high > CLOSE * allowed
    tightest = strictest(app)
    times = next((one.value / target.max_ms for target, one in shown if target == tightest), 1.0)
    return Played(worst, (name,) if late else (), tuple(promises), at_edge, {name: times})


def plan_to_simulate(question: str, formulation: str, made: Draft, options: Mapping[str, Any] | None = None) -> Plan:
    """The draft as something that a simulator can read."""
    return Plan(
        requires=made.requires,
        question=question,
        method=Method(formulation=formulation, options=dict(options or {})),
        inputs=InputHashes(profile="", slo=""),
        workers=made.workers,
        routing=dict(made.routing),
        dispatch=dict(made.dispatch),
        promises=made.promises,
        tables=dict(made.tables),
        unserved=made.unserved,
        valid=made.valid,
    )


def with_shown(made: Draft, shown: Shown) -> Draft:
    """The draft with what simulation showed, and without the advice to simulate it."""
    kept = tuple(notice for notice in made.warnings if notice.code != "W-queueing")
    return replace(made, promises=(*made.promises, *shown.promises), warnings=kept)


def where_late(name: str, app: App, rate_qps: float | None, over: float = 1.0) -> tuple[Repair, ...]:
    """What may help an application whose queries are late in simulation: fewer of them, or more time for each.

    `over`: how many times its strictest limit the percentile was in simulation.

    >>> app = App.model_validate({"runs": {"variants": ["m"]}, "latency": [{"percentile": 99, "max_ms": 80}]})
    >>> [one.text for one in where_late("a", app, 40.0)]  # doctest: +NORMALIZE_WHITESPACE
    ['lower slo.apps.a.demand.rate_qps from 40 to 30 qps or so',
     'raise slo.apps.a.latency[0].max_ms from 80 to 112 ms or so']
    >>> [one.text for one in where_late("a", app, None, over=7.0)]
    ['raise slo.apps.a.latency[0].max_ms from 80 to 400 ms or so']
    """
    repairs = []
    if rate_qps:
        repairs.append(change(f"slo.apps.{name}.demand.rate_qps", rate_qps, LESS * rate_qps, "qps", more=" or so"))
    target = strictest(app)
    if target is not None:
        at = f"slo.apps.{name}.latency[{target.place}].max_ms"
        times = over / MORE if MORE**3 < over < inf else MORE  # nearer ones would be tried in vain
        repairs.append(change(at, target.max_ms, times * target.max_ms, "ms", more=" or so"))
    return tuple(repairs)

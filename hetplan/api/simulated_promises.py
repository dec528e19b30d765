"""A plan's simulated promises put to the test: the plan as it is written is played, with seeds that nobody chose.

`simulate` says what is put beside what (`simulator.report.Line`). Here runs are added one by one, a promise is refuted
as soon as they do (`simulator.sequential` has the mathematics), and the first runs are short: what is far from kept
needs three of them. A chance of 1e-4 that a plan is refused although it keeps all that it says is shared out evenly
over its promises. Seeds follow from the content of plan and files. So the same files give the same verdicts, and no
plan can name its own: whatever it says changes them.

A promised rate stands for the limits of its queries. Parts of a fleet are played one by one, at their rates.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError, Interrupted
from hetplan.planner.confidence import sequence
from hetplan.planner.contract import Event
from hetplan.planner.promise_figures import RATES, service_times_of
from hetplan.planner.sizing import LOOKS
from hetplan.problems.draft_simulation import QUERIES, play_length_s
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan, Promise
from hetplan.profiles.plan_file import plan_digest
from hetplan.profiles.plan_periods import inputs_of_part, of_part
from hetplan.serving.demand import response_targets
from hetplan.simulator.sequential import MOST_RUNS, Evidence
from hetplan.simulator.simulate import demands_of, simulate
from hetplan.verifier.plan_index import judged_statistic
from hetplan.verifier.promise_verdicts import Shown, Tried
from hetplan.verifier.report import Violation

if TYPE_CHECKING:
    from hetplan.planner.terms import OnEvent
    from hetplan.profiles.plan_parts import Part
    from hetplan.simulator.report import Line, SimulationReport
    from hetplan.verifier.report import Report

__all__ = ["simulate_promises", "with_simulated"]

ALPHA = 1e-4
"""The chance that a plan is refused although it keeps all that it says: well below one in a thousand honest plans."""
UNLIKE = 1e-6
"""So seldom do runs differ so much more than others by chance: of normal ones, and shares of bursts are less so."""
BRIEF = 3
"""So many runs are a third as long as those by which plans are confirmed: they can refute, and nothing more."""
TOLD = 0.005
"""A told figure (a policy's, say) may be off by so much of itself, or of all queries, if its interval is as wide."""
ROUNDED = 1e-6
"""And by this where they did not differ: two simulators add up in different orders."""
PLAYED, UNPLAYED = ("pool", "variants", "pipeline"), ("W-queueing", "W-unconfirmed")
"""Questions whose simulated plans promise every limit on response times; and how those that do not say why."""
CONFIRMED = frozenset({*PLAYED, "llm"})
"""Questions whose plans are confirmed by runs (`planner.sizing`)."""
SIMULATED = frozenset({"simulation"})
"""Sizes that rest on simulation."""
BY_FORMULA = frozenset({"fluid", "formula"})
"""Sizes that do not."""
_MISSING = {"<=": ("violations", "violation", "dropped"), ">=": ("goodput", "in_time", "attainment")}
"""Shares of the queries; of the others the complement is judged."""


def rests_on_simulation(promise: Promise) -> bool:
    """Whether a simulation is all that a promise has behind it."""
    return promise.model.startswith("simulation")


@dataclass
class _Unit:
    """What is played together: a plan, or a part of a fleet, with its files and where its promises are."""

    plan: Plan
    inputs: Inputs
    at: str = ""

    @property
    def promises(self) -> list[tuple[str, Promise]]:
        """Those that rest on simulation, and where they are."""
        each = enumerate(self.plan.promises)
        return [(f"{self.at}promises[{place}]", one) for place, one in each if rests_on_simulation(one)]


@dataclass
class _Item:
    """A line of the report of a run, by its place, for the promise that it is judged for."""

    at: str
    about: str
    place: int
    complement: bool
    line: Line
    promise: Promise
    evidence: Evidence
    queries: int = 0


def simulate_promises(
    plan: Plan, inputs: Inputs, *, on_event: OnEvent | None = None, cancel: threading.Event | None = None
) -> tuple[Tried, ...]:
    """What becomes of each promise that rests on simulation; the first that breaks ends it."""
    units = list(_units(plan, inputs))
    alpha = ALPHA / max(sum(_count_of(unit) for unit in units), 1)
    seeds, found = _seeds(plan, inputs), list[Tried]()
    for number, unit in enumerate(units):
        if on_event is not None:
            on_event(Event("simulate", f"promises {number + 1} of {len(units)}", done=number / len(units)))
        for times in dict.fromkeys(_times(unit.plan, one) for _, one in unit.promises):
            mine = [(at, one) for at, one in unit.promises if _times(unit.plan, one) == times]
            found += _played(unit, mine, times, seeds, alpha, cancel)
            if any(one.word is Shown.BROKEN for one in found):
                return tuple(found)
    return tuple(found)


def _count_of(unit: _Unit) -> int:
    """How much is judged, at most: of a rate every limit of its application."""
    wishes = {name: len(app.latency) + 1 for name, app in unit.inputs.slo.apps.items()}
    return sum(wishes.get(one.app or "", 1) if one.quantity in RATES else 1 for _, one in unit.promises)


def _not_tried(plan: Plan, inputs: Inputs) -> tuple[Tried, ...]:
    """The same promises where nothing was played."""
    each = (pair for unit in _units(plan, inputs) for pair in unit.promises)
    return tuple(Tried(at, _said(one), Shown.NOT_SIMULATED, 0, "nothing was simulated") for at, one in each)


def with_simulated(report: Report, plan: Plan, inputs: Inputs, *, play: bool, **how: Any) -> Report:
    """The report with what became of its simulated promises; each that breaks is a violation."""
    shown = simulate_promises(plan, inputs, **how) if play else _not_tried(plan, inputs)
    if plan.status == "not-simulated":
        shown += (Tried("status", "response times", Shown.NOT_SIMULATED, 0, "the plan says so: a formula sized it"),)
    shown += tuple(_unpromised(plan, inputs))
    broken = (one for one in shown if one.word is Shown.BROKEN)
    found = (Violation("simulation", one.at, f"{one.about} is broken: {one.text}") for one in broken)
    more = _said_of_more_runs(plan, inputs)
    return replace(report, simulated=shown, violations=(*report.violations, *more, *found))


def _unpromised(plan: Plan, inputs: Inputs) -> Iterator[Tried]:
    """Limits on response times of which a plan, or a part, that is sized by simulation promises nothing.

    A fleet is sized by simulation where its parts run while nothing failed, whatever they say of themselves. A part
    that only runs after a failure may say that a formula sized it: its response times are not promised.
    """
    if plan.status == "not-simulated":
        return
    every: dict[str, Plan | Part] = {"": plan}
    if plan.parts is not None:
        every = {f"parts.{name}.": part for name, part in plan.parts.items()}
    running = {f"parts.{name}." for period in plan.periods for name in period.parts or ()}
    by_plan = plan.method.options.get("sizing")
    for at, one in every.items():
        own = one.method.options.get("sizing") or by_plan
        is_sized = not {own, by_plan}.isdisjoint(SIMULATED)
        if one.question not in PLAYED or not is_sized:
            continue
        warned = [said.text for said in (*plan.warnings, *one.warnings) if said.code in UNPLAYED]
        word, text = Shown.NOT_SIMULATED, "the plan promises none, though it is said to be sized by simulation"
        text = f"the plan promises none: {warned[0]}" if warned else text
        if own in BY_FORMULA and plan.parts is not None and at not in running:
            word, text = Shown.NOT_PROMISED, f"it runs after failures, and is sized without simulation (sizing={own})"
        promised = {said.app for said in one.promises if said.percentile is not None}
        for name in one.routing:
            if name not in promised and response_targets(inputs.slo.apps[name]):
                yield Tried(f"{at}routing.{name}", f"{at}{name}: response times", word, 0, text)


def _units(plan: Plan, inputs: Inputs) -> Iterator[_Unit]:
    alone = replace(inputs, state=None)  # the way from what runs is not what is promised
    every = [_Unit(plan, alone)]
    if plan.parts is not None:
        every = [
            _Unit(of_part(plan, name), inputs_of_part(alone, part.rate_qps), f"parts.{name}.")
            for name, part in plan.parts.items()
        ]
    for unit in every:
        if unit.promises:
            yield replace(unit, inputs=_as_promised(unit.plan, unit.inputs))


def _as_promised(plan: Plan, inputs: Inputs) -> Inputs:
    """The inputs, at the rates that are promised where these are above the rates that are asked for."""
    if plan.question == "llm":
        return inputs
    asked = {demand.app: demand.rate_qps for demand in demands_of(plan, inputs)}
    said = {one.app: one.value for one in plan.promises if one.quantity in RATES and rests_on_simulation(one)}
    more = {app: max(rate, said.get(app, rate)) for app, rate in asked.items()}
    return inputs_of_part(inputs, more) if any(more[app] > asked[app] * (1.0 + 1e-6) for app in asked) else inputs


def _times(plan: Plan, promise: Promise) -> str:
    """The service times that a promise takes for granted: those of the tables, but where the method says others."""
    said = service_times_of(promise.basis)
    return said if said is not None and said == judged_statistic(plan) else "table"


def _seeds(plan: Plan, inputs: Inputs) -> Iterator[int]:
    """Seeds above all that a person or a planner counts up to."""
    files = "".join(f" {name} {digest}" for name, digest in sorted(inputs.digests.items()))
    first = int.from_bytes(hashlib.sha256(f"{plan_digest(plan)}{files}".encode()).digest()[:4], "big")
    number = (1 << 40) + (first << 8)
    while True:
        yield number
        number += 1


def _played(
    unit: _Unit, promises: Sequence[tuple[str, Promise]], times: str, seeds: Iterator[int], alpha: float,
    cancel: threading.Event | None,
) -> list[Tried]:  # fmt: skip
    """Runs, one after the other, until all is clear or they are ten times the planning's."""
    items: list[_Item] | None = None
    rates = _rates(unit)
    for number in range(BRIEF + MOST_RUNS):
        if cancel is not None and cancel.is_set():
            raise Interrupted("the verification was cancelled")
        queries = QUERIES // 3 if number < BRIEF else QUERIES
        length_s = play_length_s(unit.inputs, rates, queries) if rates else None
        how: dict[str, Any] = {"seeds": 1, "seed": next(seeds), "duration_s": length_s, "noise": times}
        try:
            try:
                report = simulate(unit.plan, unit.inputs, **how)
            except InputError:
                if number or times == "table":
                    raise
                times = "mean"  # what such methods take where a table has no such percentile
                how["noise"] = times
                report = simulate(unit.plan, unit.inputs, **how)
        except InputError as error:
            why = str(error).splitlines()[0]
            return [Tried(at, _said(one), Shown.NOT_SIMULATED, 0, why) for at, one in promises]
        items = list(_items(unit.plan, promises, report, alpha)) if items is None else items
        for item in items:
            _count(item, report, whole=number >= BRIEF)
        if any(item.evidence.refuted for item in items) or all(item.evidence.met for item in items):
            break
    found = [_verdict(item) for item in items or ()]
    known = {one.at for one in found}
    text = "no figure of a run is about it"
    return [
        *found,
        *(Tried(at, _said(one), Shown.NOT_SIMULATED, 0, text) for at, one in promises if at not in known),
    ]


def _rates(unit: _Unit) -> dict[str, float]:
    """By what runs are as long as those by which a plan is confirmed; those of text have a length of their own."""
    if unit.plan.question == "llm":
        return {}
    return {demand.app: demand.rate_qps for demand in demands_of(unit.plan, unit.inputs) if demand.rate_qps > 0}


def _items(
    plan: Plan, promises: Sequence[tuple[str, Promise]], report: SimulationReport, alpha: float
) -> Iterator[_Item]:
    """What is judged of a report: the lines of the promises, and of those of a rate the lines of its application."""
    first = len(report.lines) - len(plan.promises)
    if first < 0:
        return
    wishes = list(enumerate(report.lines[:first]))
    limits = {(line.app, line.quantity, line.percentile, f"{line.promised:.9g}") for _, line in wishes}
    for at, promise in promises:
        own = first + next(place for place, one in enumerate(plan.promises) if one is promise)
        pairs = [(own, report.lines[own])]
        if promise.quantity in RATES:
            pairs = [(place, line) for place, line in wishes if line.app == promise.app]
        for place, line in pairs:
            key = (line.app, line.quantity, line.percentile, f"{line.promised:.9g}")
            made = line.relation == "=" or (line.percentile is not None and key not in limits)
            judged = _evidence(line, promise, alpha, made=made)
            if judged is not None:
                about = _said(promise) + (f" with {_of_line(line)}" if promise.quantity in RATES else "")
                yield _Item(at, about, place, line.relation == ">=", line, promise, judged)


def _evidence(line: Line, promise: Promise, alpha: float, *, made: bool) -> Evidence | None:
    """How a line is judged; None where no figure of a run is about it. `made`: by the planner's own estimate."""
    planned = max(promise.seeds or 1, 1) if made else None
    if line.percentile is not None:
        return Evidence(1.0 - line.percentile / 100.0, alpha, planned) if line.missed is not None else None
    if line.simulated is None or math.isnan(line.simulated.value):
        return None
    if line.relation == "=":
        scale = 1.0 if line.quantity in _MISSING["<="] else abs(line.promised)
        low, high = promise.interval or (line.promised, line.promised)
        near = min(max(high - low, ROUNDED * scale), TOLD * scale)
        return Evidence(line.promised, alpha, planned, equal=True, near=near, close=TOLD * scale)
    if line.quantity not in _MISSING[line.relation] or not 0.0 <= line.simulated.value <= 1.0:
        return None
    return Evidence(1.0 - line.promised if line.relation == ">=" else line.promised, alpha, planned)


def _count(item: _Item, report: SimulationReport, *, whole: bool) -> None:
    line = report.lines[item.place]
    value = line.missed if line.percentile is not None else line.simulated.value if line.simulated is not None else None
    found = report.apps.get(line.app or "") or next(iter(report.apps.values()))
    if value is None or math.isnan(value):
        return  # none of its queries came
    value = 1.0 - value if item.complement and line.percentile is None else value
    item.queries += found.queries_per_seed
    item.evidence.add(value, whole=whole, spans=found.spans)


def _said_of_more_runs(plan: Plan, inputs: Inputs) -> Iterator[Violation]:
    """Promises that are said to be of more runs than confirm any plan."""
    for unit in _units(plan, inputs):
        for at, one in unit.promises if unit.plan.question in CONFIRMED else ():
            if (one.seeds or 0) > LOOKS[-1]:
                text = (
                    f"{_said(one)} is said to be of {one.seeds} runs, and no plan is confirmed by more than {LOOKS[-1]}"
                )
                yield Violation("promise-interval", at, text)


def _is_said_too_surely(item: _Item) -> bool:
    """Whether so many runs, that surely, have a narrower interval than any whose runs differ as ours do.

    An interval of so many runs, so sure, tells how much they differed (`confidence.share_interval`). Ours are as long,
    and how much two sets of runs differ is compared by F.
    """
    promise, shares = item.promise, item.evidence.shares
    if promise.quantity not in ("violations", "goodput") or promise.interval is None or promise.confidence is None:
        return False
    from scipy.special import fdtrc, logit

    (low, high), runs, mean = promise.interval, promise.seeds or 0, sum(shares) / max(len(shares), 1)
    width = sequence(runs, 1.0 - promise.confidence)
    if not 0.0 < low < high < 1.0 or not 0.0 < mean < 1.0 or len(shares) < 2:
        return False
    if math.isinf(width):
        return True
    planned = float(logit(high) - logit(low)) / (2.0 * width)
    ours = math.sqrt(sum((one - mean) ** 2 for one in shares) / (len(shares) - 1)) / (mean * (1.0 - mean))
    return float(fdtrc(len(shares) - 1, runs - 1, (ours / planned) ** 2)) < UNLIKE


def _verdict(item: _Item) -> Tried:
    found, line = item.evidence, item.line
    if _is_said_too_surely(item):
        low, high = item.promise.interval or (0.0, 0.0)
        said = f"{item.promise.seeds} runs, each end {100.0 * (item.promise.confidence or 0.0):g}% sure"
        text = f"{low:.4g} .. {high:.4g} is said to be of {said}; runs differ far more"
        return Tried(item.at, item.about, Shown.BROKEN, item.queries, text)
    word = Shown.BROKEN if found.refuted else Shown.MET if found.met else Shown.UNDECIDED
    over = f"{item.queries} queries in {found.count} runs"
    if found.equal:
        text = f"{found.mean:.6g} in {over}"
    else:
        what = f"take longer than {line.promised:.6g} ms" if line.percentile is not None else "miss it"
        text = f"{100.0 * found.mean:.3g}% of {over} {what}, and {100.0 * found.limit:.4g}% may"
    if word is Shown.UNDECIDED:
        text = f"not refuted by {item.queries} queries: {text}"
    return Tried(item.at, item.about, word, item.queries, text)


def _said(promise: Promise) -> str:
    share = f" p{promise.percentile:g}" if promise.percentile is not None else ""
    app = f"{promise.app}: " if promise.app else ""
    return f"{app}{promise.quantity}{share} {promise.relation} {promise.value:.6g}"


def _of_line(line: Line) -> str:
    share = f" p{line.percentile:g}" if line.percentile is not None else ""
    return f"{line.quantity}{share} {line.relation} {line.promised:.6g}"

"""The first stage: finds plans for each query by search and measurement, with the smallest shares that are in time.

An engine proposes a configuration, its accuracy is measured until a test says on which side of the target it is, the
engine learns, and proposes again. What was measured earlier (a journal, a history of other queries) is read first.

**When sampling ends early.** The first samples are cheap and say what a configuration takes. Once some plan complies,
another configuration is measured only while it matters. It does not any more where it is

late   wherever it runs, its latency is above the limit for sure: it can never comply
dear   at the least that it may cost, it is no cheaper than the plan that complies

The second holds where the least cost alone is sought, for the only application: others may need plans that take less of
what is scarce. Such a configuration passes nothing; its samples are believed like all others. While nothing complies
every one is measured to its end, so that it can be said which target binds.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hetplan.errors import Fault, InputError, Interrupted, SolverFailed
from hetplan.planner.contract import Ask, Tools
from hetplan.planner.draft import Repair
from hetplan.planner.forms.black_box import BlackBox, Measured, OutOfTime, Past, Runs, Verdict
from hetplan.problems.compound.candidates import candidates_of, price_of_shares
from hetplan.problems.compound.pipeline_query import CompoundProblem, PipelineQuery, refuse_to_measure
from hetplan.problems.compound.request import Query, Way
from hetplan.problems.compound.stations import MOST_REPLICAS, QueuedBox
from hetplan.problems.draft_simulation import repairs_if_late
from hetplan.problems.repairs import change
from hetplan.profiles.plan import Notice, Plan

__all__ = ["Stage", "keep_setting", "read_measurements", "repair_of_rate", "resize_stage", "search_all"]

KEEP_WITHIN = 1.05
"""A plan that runs already is kept where it still complies and no other is cheaper by more than this."""
MOST_CONFIRMED = 5
"""So many of the cheapest plans are measured on, until one is confirmed."""
MOST_ROUNDS = 1000
"""So often an operator may have run for a sample."""
MOST_ON_FRONT = 200
"""Ways that the packing may choose from where they trade one figure against another."""
ALIKE = 1.5
"""From here on it is said that samples count for fewer."""
MOST_IN_REPAIRS = 100
"""Replicas of an operator: plans of many more take minutes to play, and each repair is tried."""
HALVES, NEARER = 40, 7
"""A rate is halved at most so often until it is carried, then so often the way back up."""


@dataclass(frozen=True)
class Stage:
    """What the first stage came to for one query: its ways, and what to say of it.

    `broken` is there if the evaluator gave no valid answer about any configuration.
    """

    query: Query
    notices: tuple[Notice, ...]
    broken: SolverFailed | None = None
    whole: bool = False
    chance: float | None = None
    """Of a front: whether every configuration was measured; else how likely none that was not would extend it."""
    form: BlackBox | None = None
    """What was measured, for sizing it anew."""


def search_all(asked: CompoundProblem, ask: Ask, tools: Tools) -> list[Stage]:
    """Every query in turn."""
    history = tools.extra.get("history")
    past = history() if history is not None else None
    return [_search(asked, ask, tools, sought, past) for sought in asked.sought]


def _search(asked: CompoundProblem, ask: Ask, tools: Tools, sought: PipelineQuery, past: Any) -> Stage:
    options, measured = asked.options, asked.inputs.measured
    known = read_measurements(sought, measured, asked.inputs.files.get("measured", "measured"))
    evaluate = tools.evaluate
    if evaluate is None and measured is None:
        raise InputError.one(
            file=asked.inputs.files.get("profile", "profile"), path=f"$.pipelines.{sought.pipeline_id}.evaluator",
            value=sought.pipeline.evaluator or "", why=f"plans of {sought.app_id} have to be measured",
            remedy="Name who measures with --evaluate, or name a file of measurements.",
        )  # fmt: skip
    if evaluate is None:
        journal = {found.configuration: found for found in known}
        form = replace(sought.box(refuse_to_measure, options), placements=sought.reachable_placements, journal=journal)
        return _stage_of(asked, sought, form, measuring=False)
    least = ask.remaining if sought.app.deadline_s is None else min(sought.app.deadline_s, ask.remaining)
    seconds = None if math.isinf(least) else least
    early = EarlyEnd(alone=len(asked.request.apps) == 1)
    measure = evaluate(**sought.setup(options), seconds=seconds, futile=early if options.early_stop else None)
    several = getattr(measure, "several", None)
    form = replace(
        sought.box(lambda c: measure(c, sought.knobs(c)), options, _read_history(sought, past)),
        placements=sought.reachable_placements, old=tuple(known), seconds=seconds, parallel=tools.jobs,
        together=None if several is None else lambda cs: several([(c, sought.knobs(c)) for c in cs]),
    )  # fmt: skip
    early.form = form
    confirmed, chance = False, None
    try:
        running = _incumbent(asked.start, sought, form)
        engine = "random-plans" if options.search == "random" else options.search
        engine = engine if form.space is None else "wide"
        answer = ask(form, start=running, about=f"plans of {sought.app_id}", solver=engine)
        chance = answer.work.get("chance")
        if options.confirm:
            _confirm(form, lambda c: measure(c, sought.knobs(c), confirm=True))
            confirmed = True
    except (Interrupted, OutOfTime):
        pass  # what was measured until then may serve this query, or others; that it was cut short is in the record
    stage = replace(_stage_of(asked, sought, form, measuring=True), chance=chance)
    if options.confirm and not confirmed and stage.query.ways:
        unsure = "measuring ended before its plan was confirmed: it rests on what the search measured"
        stage = _add_notice(stage, "W-unconfirmed", unsure)
    if past is not None and form.space is not None:
        unused = f"the history is not used where settings of {sought.pipeline_id} are drawn instead of listed"
        stage = _add_notice(stage, "W-history", unused)
    elif past is not None and not form.past:
        other = f"no query of the history has the operators and levels of {sought.pipeline_id}"
        stage = _add_notice(stage, "W-history", f"{other}: the search began without a history")
    return stage


def _add_notice(stage: Stage, code: str, text: str) -> Stage:
    one = Notice(code=code, at=f"apps.{stage.query.app_id}", text=text)
    return replace(stage, notices=(*stage.notices, one))


def _failure_of(form: BlackBox, sought: PipelineQuery) -> SolverFailed | None:
    """What to say where every configuration that was tried had to be set aside, whatever ended the trying."""
    if not form.failed or len(form.failed) < len(form.journal):
        return None
    tried = f"none of the {len(form.journal)} configurations of {sought.app_id} that were tried could be measured"
    return SolverFailed(
        f"evaluator {sought.pipeline.evaluator or ''}".strip(),
        f"{tried}: {form.failed[-1].reason}. Mend it; --set retry=true measures again what the journal set aside",
    )


def _confirm(form: BlackBox, measure: Callable[[int], Measured]) -> None:
    """The cheapest plans measured on under the always-valid rule, until one holds."""
    for _ in range(MOST_CONFIRMED):
        passing = [c for c, found in form.journal.items() if found.passes and np.isfinite(form.values(c).min())]
        if not passing:
            return
        best = min(passing, key=lambda c: float(form.values(c).min()))
        found = measure(best)
        form.journal[best] = found
        if found.passes:
            return


def _stage_of(asked: CompoundProblem, sought: PipelineQuery, form: BlackBox, *, measuring: bool) -> Stage:
    """What a query comes to by all that is in the form's journal."""
    # Where nothing complies on the tiers that have machines, plans on others say which machines are missing.
    everywhere = replace(form, placements=sought.placements)
    ways = next((w for f in (form, everywhere) if (w := candidates_of(f, sought, _max_ways(asked, form)))), [])
    kept = _running_way(asked.start, sought, ways)
    notices = [
        Notice(code="W-set-aside", at=f"apps.{sought.app_id}", text=f"{sought.knobs(one.configuration)}: {one.reason}")
        for one in form.failed
    ]
    notices += _doubts(form, sought, kept or ways)
    why, repairs = ("", ()) if ways else _why_none(everywhere, sought)
    query = Query(sought.app, tuple(kept or ways), why, repairs)
    whole = form.complete and not form.failed
    return Stage(query, tuple(notices), _failure_of(form, sought) if measuring else None, whole, form=form)


def _max_ways(asked: CompoundProblem, form: BlackBox) -> int:
    """How many ways the packing may choose from: more where they trade one figure against another."""
    several = len(form.aim.of) > 1 or (form.queued and "latency" in form.aim.of)
    return max(MOST_ON_FRONT, asked.options.alternatives) if several else asked.options.alternatives


def resize_stage(asked: CompoundProblem, sought: PipelineQuery, stage: Stage, slack: float) -> Stage:
    """The stage again for queries at a rate, with this part of the limit left for queueing by the formula."""
    if not isinstance(stage.form, QueuedBox):
        return stage
    form = replace(stage.form, slack=slack)
    ways = candidates_of(form, sought, _max_ways(asked, form)) if stage.query.ways else []
    less = f"leaves its replicas {slack:.2g} busy" if form.fluid else f"takes less than {slack:.2g} of its limit"
    why = (
        f"late in simulation with the replicas of the formula, and no size {less}; raise "
        f"slo.apps.{sought.app_id}.latency, or lower its rate"
    )
    return replace(stage, form=form, query=replace(stage.query, ways=tuple(ways), why_none=stage.query.why_none or why))


def keep_setting(asked: CompoundProblem, sought: PipelineQuery, stage: Stage, way: Way, *, timed: bool) -> Stage:
    """The same with the setting of one way alone; `timed`: that way, and others when sized anew that are as fast."""
    alone = replace(stage, query=replace(stage.query, ways=(way,)))
    if not isinstance(stage.form, QueuedBox) or way.found is None:
        return alone
    c = sought.configuration(dict(way.found.knobs))
    form = replace(stage.form, journal={c: stage.form.journal[c]})
    if timed:
        return replace(alone, form=replace(form, most_s=way.found.latency_s))
    return resize_stage(asked, sought, replace(alone, form=form), 1.0)


def _doubts(form: BlackBox, sought: PipelineQuery, ways: Sequence[Way]) -> list[Notice]:
    """What to say of how well the plans are known, and of who measured them."""
    at, notices = f"apps.{sought.app_id}", []
    known = {json.dumps(sought.knobs(c), default=str): found for c, found in form.journal.items()}
    chosen = ways[:1] if form.aim.cheapest else sorted(ways, key=lambda way: way.figure(form.aim.of[0]))[:1]
    used = [known[json.dumps(dict(way.found.knobs), default=str)] for way in chosen if way.found is not None]
    for found in used:
        if not found.constant and not form.sure(found):
            percentile = 100.0 * max(share for share, _ in form.wishes)
            text = f"{found.samples} samples bound no p{percentile:g}: the longest of them is used; raise samples_max"
            notices.append(Notice(code="W-undecided", at=f"{at}.latency", text=text))
        if found.runs is None and not found.constant:
            text = "only mean times were recorded, which say nothing about percentiles"
            notices.append(Notice(code="W-mean-times", at=f"{at}.latency", text=f"{text}; measure again"))
        if found.alike >= ALIKE:
            text = f"similar samples come in bursts: each counts for 1/{found.alike:.3g} of an independent one"
            notices.append(Notice(code="W-alike", at=f"{at}.quality", text=text))
    again = sum(found.again for found in form.journal.values())
    if again:
        every = again + sum(found.samples for found in form.journal.values())
        first = next(found.again_why for found in form.journal.values() if found.again)
        text = f"{again} of {every} answers made no sense or did not come, and were asked for again: {first}"
        notices.append(Notice(code="W-asked-again", at=at, text=text))
    return notices


def _incumbent(start: Plan | None, sought: PipelineQuery, form: BlackBox) -> int | None:
    """The plan that runs already, as a number of the form."""
    rule = None if start is None else start.dispatch.get(sought.app_id)
    knobs = getattr(rule, "knobs", {})
    placement = getattr(rule, "placement", {})
    if not knobs or set(placement) != set(sought.order):
        return None
    try:
        return sought.configuration(knobs) * len(form.placements) + sought.placement(placement, form.placements)
    except (KeyError, ValueError):
        return None


def _running_way(start: Plan | None, sought: PipelineQuery, ways: Sequence[Way]) -> list[Way]:
    """The running plan alone, where it still complies and is dear by little: changing costs more than it brings."""
    rule = None if start is None else start.dispatch.get(sought.app_id)
    if rule is None or not ways:
        return []
    same = [
        way
        for way in ways
        if sought.aim.cheapest
        and way.found is not None
        and all(dict(getattr(way.found, of)) == getattr(rule, of, None) for of in ("knobs", "placement", "share"))
    ]
    return same if same and price_of_shares(same[0]) <= KEEP_WITHIN * min(map(price_of_shares, ways)) + 1e-12 else []


def _why_none(form: BlackBox, sought: PipelineQuery) -> tuple[str, tuple[Repair, ...]]:
    """Which target binds, and the least relaxation among what was measured."""
    app = f"slo.apps.{sought.app_id}"
    done = form.complete
    known = [found for found in form.journal.values() if found.verdict is not Verdict.SET_ASIDE]
    passing = [found for found in known if found.passes]
    scope = "proved: every configuration was measured" if done else f"not found in {len(form.journal)} measurements"
    if passing:
        least = min(float(form.at_full(found).min()) for found in passing)
        if isinstance(form, QueuedBox) and least <= form.limit_s:
            field = f"{app}.rate_qps"
            calls = [] if form.calls is None else [call.place for call in form.calls.calls if call.gap_s > 0]
            apis = ", ".join(dict.fromkeys(f"profile.apis.{sought.tiers[place].name}" for place in calls))
            why = f"the rate binds ({scope}): it takes more than {MOST_REPLICAS} replicas of an operator"
            if apis:
                why = f"{why}, or calls wait too long for their turn"
            helps = _repairs_of_rate(form, sought, turns=bool(apis))
            return f"{why}; lower {field}" + (f", or raise the limits of {apis}" if apis else ""), helps
        stated = min(target.max_ms for target in sought.app.targets)
        # Where queries wait, a little more than what it takes alone.
        longer = change(f"{app}.latency", stated, 1000 * least, "ms", more=" or so" if form.queued else "")
        text = f"latency binds ({scope}); raise {app}.latency to {1000 * least:.6g} ms"
        return f"{text}, the fastest of those accurate enough", (longer,)
    fast = [found for found in known if float(form.at_full(found).min()) <= form.limit_s] or known
    if not fast:
        reasons = f": {form.failed[-1].reason}" if form.failed else ""
        return f"nothing could be measured ({scope}){reasons}", ()
    best = max(fast, key=lambda found: form.orient(found.mean))
    verb, bound = ("raise", "max") if form.lower else ("lower", "min")
    text = f"accuracy binds ({scope}); {verb} {app}.quality to {best.mean:.6g}, the best in time"
    asked = sought.app.ceiling if form.lower else sought.app.floor
    return text, () if asked is None else (change(f"{app}.quality.{bound}", asked, best.mean),)


def _repairs_of_rate(form: QueuedBox, sought: PipelineQuery, *, turns: bool) -> tuple[Repair, ...]:
    """The highest rate that the formula carries; with more time for each where calls wait for their `turns`."""

    def carries(rate_qps: float) -> bool:
        ways = candidates_of(replace(form, rate_qps=rate_qps), sought, 1)
        return any(
            way.found is not None and max(way.found.replicas.values(), default=0) <= MOST_IN_REPAIRS for way in ways
        )

    low, high = 0.0, form.rate_qps
    for _ in range(HALVES):
        middle = high / 2.0
        if carries(middle):
            low = middle
            break
        high = middle
    for _ in range(NEARER if low else 0):
        middle = (low + high) / 2.0
        low, high = (middle, high) if carries(middle) else (low, middle)
    longer = repairs_if_late(sought.app, None) if turns else ()
    return (*([repair_of_rate(sought.app_id, form.rate_qps, low)] if low else []), *longer)


def repair_of_rate(name: str, stated_qps: float, to_qps: float) -> Repair:
    """Fewer queries of an application, or so."""
    return change(f"slo.apps.{name}.rate_qps", stated_qps, to_qps, "qps", more=" or so")


@dataclass
class EarlyEnd:
    """Says of samples of a configuration why no more are needed; "" while they are. `form` is set once it is made."""

    alone: bool
    form: BlackBox | None = None
    _least: dict[int, float] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self, runs: Runs, configuration: int) -> str:
        """Why no more samples are needed."""
        form = self.form
        if form is None or not np.isfinite(best := self._best(form)):
            return ""
        rows, here = form.tried(runs, configuration), np.isfinite(form.called(configuration))
        each = form.latency_s(rows.seconds, rows.bytes_out, rows.bytes_in)[:, here]
        if (form.judged(each, rows.cases, least=True) > form.limit_s).all():
            return "it is late wherever it runs"
        if self.alone and form.aim.cheapest and _least_cost(form, runs, configuration) >= best:
            return f"it is no cheaper than {best:.6g} per hour, which complies"
        return ""

    def _best(self, form: BlackBox) -> float:
        """The least cost of what complies so far."""
        with self._lock:  # several are measured beside each other
            for c, found in form.journal.items():
                if c not in self._least:
                    self._least[c] = float(form.costs(c).min()) if found.passes else np.inf
            return min(self._least.values(), default=np.inf)


def _least_cost(form: BlackBox, runs: Runs, configuration: int) -> float:
    """The least that a configuration may cost: with every operator as fast as its mean or its median sample."""
    seconds = np.nan_to_num(runs.seconds)  # an operator that did not run took no time
    fast = [np.minimum(held.mean(axis=0), np.median(held, axis=0)) for held in (seconds, runs.bytes_out)]
    arrives = float(min(runs.bytes_in.mean(), np.median(runs.bytes_in)))
    found = Measured(
        configuration, passes=True, verdict=Verdict.PASS, samples=len(runs), seconds=tuple(fast[0].tolist()),
        bytes_out=tuple(fast[1].tolist()), bytes_in=arrives,
    )  # fmt: skip
    return float(replace(form, journal={configuration: found}).costs(configuration).min())


def read_measurements(sought: PipelineQuery, document: Any, file: str) -> list[Measured]:
    """Measurements of this query from a document of measurements, without those that the rules of knobs forbid."""
    if document is None:
        return []
    apps = document.get("apps", {}) if isinstance(document, Mapping) else {}
    faults: list[Fault] = []
    found, first = [], {knob: levels[0] for knob, levels in sought.pipeline.levels.items()}
    for number, plan in enumerate(apps.get(sought.app_id, ())):
        at = f"$.apps.{sought.app_id}[{number}]"
        one = _read_measurement(sought, plan)
        if one is None:
            why = "a configuration with seconds and bytes of every operator, samples, and a mean in the metric's range"
            faults.append(Fault(file, at, "", why, "Use the journal that --evaluate wrote for these inputs."))
        elif sought.pipeline.space is None or not sought.pipeline.space.broken(plan["knobs"], first):
            found.append(one)
    if faults:
        raise InputError(faults)
    return found


def _read_measurement(sought: PipelineQuery, plan: Any) -> Measured | None:
    """One entry of a document of measurements; None where it makes no sense."""
    try:
        c = sought.configuration(plan["knobs"])
        if plan["verdict"] == Verdict.SET_ASIDE:
            return Measured(c, reason=str(plan.get("reason", "set aside")))
        mean, passes = float(plan["mean"]), bool(plan["passes"])
        # A verdict of another target is no verdict here: the mean must be on the right side as well.
        passes = sought.free or (passes and (mean <= sought.target if sought.lower else mean >= sought.target))
        found = Measured(
            c, mean=mean, se=float(plan["se"]), samples=int(plan["samples"]),
            verdict=Verdict(plan["verdict"]), passes=passes,
            seconds=tuple(float(plan["seconds"][name]) for name in sought.order),
            bytes_out=tuple(float(plan["bytes"][name]) for name in sought.order),
            bytes_in=float(plan.get("input_bytes", 0.0)), gpu_s=float(plan.get("gpu_s", 0.0)),
            low=float(plan.get("interval", (math.nan, math.nan))[0]), alike=float(plan.get("alike", 1.0)),
            high=float(plan.get("interval", (math.nan, math.nan))[1]), again=int(plan.get("again", 0)),
            again_why=str(plan.get("why", "")), runs=_read_runs(sought, plan), constant=plan.get("constant") is True,
        )  # fmt: skip
    except (KeyError, ValueError, TypeError):
        return None
    # Only what measuring could have given: a mean in the metric's range, nothing below 0, no NaN.
    amounts = (found.se, found.bytes_in, found.gpu_s, *found.seconds, *found.bytes_out)
    low, high = sought.span[0] - 1e-9, sought.span[1] + 1e-9
    return (
        found if found.samples >= 1 and low <= found.mean <= high and all(0 <= a < math.inf for a in amounts) else None
    )


def _read_runs(sought: PipelineQuery, plan: Mapping[str, Any]) -> Runs | None:
    """What each sample took, where they did not all take the same."""
    if "runs" not in plan:
        if sought.exits:
            raise ValueError("which operators ran is said sample by sample")
        return None
    given = plan["runs"]
    seconds, sizes = ([given[key][name] for name in sought.order] for key in ("seconds", "bytes"))
    seconds = [[math.nan if each is None else each for each in column] for column in seconds]
    runs = Runs(np.array(seconds, float).T, np.array(sizes, float).T, np.array(given["input_bytes"], float))
    if (
        runs.seconds.shape != runs.bytes_out.shape
        or len(runs.seconds) != len(runs)
        or len(runs) != plan.get("before", plan["samples"])
    ):
        raise ValueError("as many samples of every operator as there are")
    took = np.nan_to_num(runs.seconds) if sought.exits else runs.seconds
    ran = np.unique(~np.isnan(runs.seconds), axis=0) if sought.exits else np.zeros((0, len(sought.order)))
    for row in ran:
        if sought.pipeline.way([name for name, there in zip(sought.order, row, strict=True) if there]) is None:
            raise ValueError("no query runs these operators")
    if "rounds" in given:
        often = np.array([given["rounds"][name] for name in sought.order], float).T
        if often.shape != runs.seconds.shape or (often != np.floor(often)).any() or (often > MOST_ROUNDS).any():
            raise ValueError("rounds are whole numbers")
        if ((often < 1) != np.isnan(runs.seconds)).any() or (often < 0).any():
            raise ValueError("what ran did so once at least")
        runs = replace(runs, rounds=often)
    if any(not np.isfinite(held).all() or (held < 0).any() for held in (took, runs.bytes_out, runs.bytes_in)):
        raise ValueError("no time and no size is below 0")
    return runs


def _read_history(sought: PipelineQuery, document: Any) -> tuple[Past, ...]:
    """The queries of a history file that have these operators and levels."""
    if not isinstance(document, Mapping):
        return ()
    past = []
    for name, plans in document.get("apps", {}).items():
        found = [_read_measurement(sought, plan) for plan in plans]
        if found and all(one is not None for one in found):
            past.append(Past(name, tuple(one for one in found if one is not None)))
    return tuple(past)

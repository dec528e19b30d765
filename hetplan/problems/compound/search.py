"""The first stage: finds plans for each query by search and measurement, with the smallest shares that are in time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetplan.errors import Fault, InputError, Interrupted, SolverFailed
from hetplan.planner.contract import Ask, Tools
from hetplan.planner.draft import Repair
from hetplan.planner.forms.black_box import (
    BlackBox,
    Measured,
    OutOfTime,
    Past,
    Runs,
    Verdict,
)
from hetplan.problems.compound.early import Early
from hetplan.problems.compound.form import Asked, Sought, nobody
from hetplan.problems.compound.found import by_share, found_ways
from hetplan.problems.compound.helps import where_rate_binds
from hetplan.problems.compound.options import CompoundOptions
from hetplan.problems.compound.stations import MOST_REPLICAS, Rated
from hetplan.problems.compound.wish import Query, Way
from hetplan.problems.repairs import change
from hetplan.profiles.plan import Notice, Plan

__all__ = ["Stage", "narrowed", "recorded", "search_all", "sized_anew"]

KEEP_WITHIN = 1.05
"""A plan that runs already is kept where it still complies and no other is cheaper by more than this."""

MOST_CONFIRMED = 5
MOST_ROUNDS = 1000
MOST_ON_FRONT = 200
ALIKE = 1.5
"""From here on it is said that samples count for fewer."""


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


def search_all(asked: Asked, ask: Ask, tools: Tools) -> list[Stage]:
    """Every query in turn."""
    history = tools.extra.get("history")
    past = history() if history is not None else None
    return [_one(asked, ask, tools, sought, past) for sought in asked.sought]


def _one(asked: Asked, ask: Ask, tools: Tools, sought: Sought, past: Any) -> Stage:
    options, measured = asked.options, asked.inputs.measured
    known = recorded(sought, measured, asked.inputs.files.get("measured", "measured"))
    evaluate = tools.evaluate
    if evaluate is None and measured is None:
        raise InputError.one(
            file=asked.inputs.files.get("profile", "profile"), path=f"$.pipelines.{sought.pipeline_id}.evaluator",
            value=sought.pipeline.evaluator or "", why=f"plans of {sought.app_id} have to be measured",
            remedy="Name who measures with --evaluate, or name a file of measurements.",
        )  # fmt: skip
    if evaluate is None:
        journal = {found.configuration: found for found in known}
        form = replace(sought.box(nobody, options), placements=sought.reachable, journal=journal)
        return _staged(asked, sought, form, measuring=False)
    seconds = _seconds(options, sought, ask)
    early = Early(alone=len(asked.request.apps) == 1)
    measure = evaluate(**sought.setup(options), seconds=seconds, futile=early if options.early else None)
    several = getattr(measure, "several", None)
    form = replace(
        sought.box(lambda c: measure(c, sought.knobs(c)), options, _past_of(sought, past)),
        placements=sought.reachable, old=tuple(known), drift=options.drift, seconds=seconds,
        together=None if several is None else lambda cs: several([(c, sought.knobs(c)) for c in cs]),
    )  # fmt: skip
    early.form = form
    confirmed, chance = False, None
    try:
        running = _incumbent(asked.start, sought, form)
        answer = ask(
            form, start=running, about=f"plans of {sought.app_id}", solver=_engine(options, wide=form.space is not None)
        )
        chance = answer.work.get("chance")
        if options.confirm:
            _confirm(form, lambda c: measure(c, sought.knobs(c), confirm=True))
            confirmed = True
    except (Interrupted, OutOfTime):
        pass  # what was measured until then may serve this query, or others; that it was cut short is in the record
    stage = replace(_staged(asked, sought, form, measuring=True), chance=chance)
    if options.confirm and not confirmed and stage.query.ways:
        text = "measuring ended before its plan was confirmed: it rests on what the search measured"
        notice = Notice(code="W-unconfirmed", at=f"apps.{sought.app_id}", text=text)
        stage = replace(stage, notices=(*stage.notices, notice))
    if past is not None and form.space is not None:
        text = f"the history is not used where settings of {sought.pipeline_id} are drawn instead of listed"
        notice = Notice(code="W-history", at=f"apps.{sought.app_id}", text=text)
        stage = replace(stage, notices=(*stage.notices, notice))
    elif past is not None and not form.past:
        text = (
            f"no query of the history has the operators and levels of {sought.pipeline_id}: the search began without "
            "a history"
        )
        notice = Notice(code="W-history", at=f"apps.{sought.app_id}", text=text)
        stage = replace(stage, notices=(*stage.notices, notice))
    return stage


def _engine(options: CompoundOptions, *, wide: bool) -> str:
    if wide:
        return "wide"
    return "random-plans" if options.search == "random" else options.search


def _seconds(options: CompoundOptions, sought: Sought, ask: Ask) -> float | None:
    """How long this query may be measured: its own deadline, and what is left of the whole conversation."""
    limits = [s for s in (options.deadline_s, sought.app.deadline_s) if s is not None]
    least = min([*limits, ask.remaining])
    return None if math.isinf(least) else least


def _broken(form: BlackBox, sought: Sought) -> SolverFailed | None:
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


def _staged(asked: Asked, sought: Sought, form: BlackBox, *, measuring: bool) -> Stage:
    # Where nothing complies on the tiers that have machines, plans on others say which machines are missing.
    everywhere = replace(form, placements=sought.placements)
    ways = next((w for f in (form, everywhere) if (w := found_ways(f, sought, _most(asked, form)))), [])
    kept = _kept(asked.start, sought, ways)
    notices = [
        Notice(code="W-set-aside", at=f"apps.{sought.app_id}", text=f"{sought.knobs(one.configuration)}: {one.reason}")
        for one in form.failed
    ]
    notices += _doubts(form, sought, kept or ways)
    why, repairs = ("", ()) if ways else _why(everywhere, sought)
    query = Query(sought.app, tuple(kept or ways), why, repairs)
    whole = form.complete and not form.failed
    return Stage(query, tuple(notices), _broken(form, sought) if measuring else None, whole, form=form)


def _most(asked: Asked, form: BlackBox) -> int:
    """How many ways the packing may choose from: more where they trade one figure against another."""
    several = len(form.aim.of) > 1 or (form.queued and "latency" in form.aim.of)
    return max(MOST_ON_FRONT, asked.options.alternatives) if several else asked.options.alternatives


def sized_anew(asked: Asked, sought: Sought, stage: Stage, slack: float) -> Stage:
    """The same where queries come at a rate, with so much of the limit left to the formula of queues."""
    if not isinstance(stage.form, Rated):
        return stage
    form = replace(stage.form, slack=slack)
    ways = found_ways(form, sought, _most(asked, form)) if stage.query.ways else []
    less = f"leaves its replicas {slack:.2g} busy" if form.fluid else f"takes less than {slack:.2g} of its limit"
    why = (
        f"late in simulation with the replicas of the formula, and no size {less}; raise "
        f"slo.apps.{sought.app_id}.latency, or lower its rate"
    )
    return replace(stage, form=form, query=replace(stage.query, ways=tuple(ways), why_none=stage.query.why_none or why))


def narrowed(asked: Asked, sought: Sought, stage: Stage, way: Way, *, timed: bool) -> Stage:
    """The same with the setting of one way alone; `timed`: that way, and others when sized anew that are as fast."""
    alone = replace(stage, query=replace(stage.query, ways=(way,)))
    if not isinstance(stage.form, Rated) or way.found is None:
        return alone
    c = sought.configuration(dict(way.found.knobs))
    form = replace(stage.form, journal={c: stage.form.journal[c]})
    if timed:
        return replace(alone, form=replace(form, most_s=way.found.latency_s))
    return sized_anew(asked, sought, replace(alone, form=form), 1.0)


def _doubts(form: BlackBox, sought: Sought, ways: Sequence[Way]) -> list[Notice]:
    """What to say of how well the plans are known, and of who measured them."""
    at, notices = f"apps.{sought.app_id}", []
    known = {json.dumps(sought.knobs(c), default=str): found for c, found in form.journal.items()}
    chosen = ways[:1] if form.aim.cheapest else sorted(ways, key=lambda way: way.figure(form.aim.of[0]))[:1]
    used = [known[json.dumps(dict(way.found.knobs), default=str)] for way in chosen if way.found is not None]
    for found in used:
        if not found.constant and not form.sure(found):
            percentile = 100.0 * max(share for share, _ in form.wishes)
            text = f"{found.samples} samples bound no p{percentile:g}: the longest of them is used; raise n_max"
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


def _incumbent(start: Plan | None, sought: Sought, form: BlackBox) -> int | None:
    """The plan that runs already, as a number of the form."""
    rule = None if start is None else start.dispatch.get(sought.app_id)
    knobs = getattr(rule, "knobs", {})
    placement = getattr(rule, "placement", {})
    if not knobs or set(placement) != set(sought.order):
        return None
    names = [tier.name for tier in sought.tiers]
    try:
        c = sought.configuration(knobs)
        tiers = np.array([names.index(placement[name]) for name in sought.order])
    except (KeyError, ValueError):
        return None
    where = np.flatnonzero((form.placements == tiers).all(axis=1))
    if not where.size:
        return None
    return c * len(form.placements) + int(where[0])


def _kept(start: Plan | None, sought: Sought, ways: Sequence[Way]) -> list[Way]:
    """The running plan alone, where it still complies and is dear by little: changing costs more than it brings."""
    rule = None if start is None else start.dispatch.get(sought.app_id)
    if rule is None or not ways:
        return []
    same = (
        []
        if not sought.aim.cheapest
        else [
            way
            for way in ways
            if way.found is not None
            and dict(way.found.knobs) == getattr(rule, "knobs", None)
            and dict(way.found.placement) == getattr(rule, "placement", None)
            and dict(way.found.share) == getattr(rule, "share", None)
        ]
    )
    return same if same and by_share(same[0]) <= KEEP_WITHIN * min(map(by_share, ways)) + 1e-12 else []


def _why(form: BlackBox, sought: Sought) -> tuple[str, tuple[Repair, ...]]:
    """Which target binds, and the least relaxation among what was measured."""
    app = f"slo.apps.{sought.app_id}"
    done = form.complete
    known = [found for found in form.journal.values() if found.verdict is not Verdict.SET_ASIDE]
    passing = [found for found in known if found.passes]
    scope = "proved: every configuration was measured" if done else f"not found in {len(form.journal)} measurements"
    if passing:
        least = min(float(form.at_full(found).min()) for found in passing)
        if isinstance(form, Rated) and least <= form.limit_s:
            field = f"{app}.rate_qps"
            calls = [] if form.calls is None else [call.place for call in form.calls.calls if call.gap_s > 0]
            apis = ", ".join(dict.fromkeys(f"profile.apis.{sought.tiers[place].name}" for place in calls))
            why = f"the rate binds ({scope}): it takes more than {MOST_REPLICAS} replicas of an operator"
            if apis:
                why = f"{why}, or calls wait too long for their turn"
            helps = where_rate_binds(form, sought, turns=bool(apis))
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


def recorded(sought: Sought, document: Any, file: str) -> list[Measured]:
    """Measurements of this query from a document of measurements, without those that the rules of knobs forbid."""
    if document is None:
        return []
    apps = document.get("apps", {}) if isinstance(document, Mapping) else {}
    faults: list[Fault] = []
    found, first = [], {knob: levels[0] for knob, levels in sought.pipeline.levels.items()}
    for number, plan in enumerate(apps.get(sought.app_id, ())):
        at = f"$.apps.{sought.app_id}[{number}]"
        one = _record(sought, plan)
        if one is None:
            why = "a configuration with seconds and bytes of every operator, samples, and a mean in the metric's range"
            faults.append(Fault(file, at, "", why, "Use the journal that --evaluate wrote for these inputs."))
        elif sought.pipeline.space is None or not sought.pipeline.space.broken(plan["knobs"], first):
            found.append(one)
    if faults:
        raise InputError(faults)
    return found


def _record(sought: Sought, plan: Any) -> Measured | None:
    try:
        c = sought.configuration(plan["knobs"])
        if plan["verdict"] == Verdict.SET_ASIDE:
            return Measured(c, reason=str(plan.get("reason", "set aside")))
        found = Measured(
            c, mean=float(plan["mean"]), se=float(plan["se"]), samples=int(plan["samples"]),
            verdict=Verdict(plan["verdict"]), passes=_passes(sought, float(plan["mean"]), bool(plan["passes"])),
            seconds=tuple(float(plan["seconds"][name]) for name in sought.order),
            bytes_out=tuple(float(plan["bytes"][name]) for name in sought.order),
            bytes_in=float(plan.get("input_bytes", 0.0)), gpu_s=float(plan.get("gpu_s", 0.0)),
            low=float(plan.get("interval", (math.nan, math.nan))[0]), alike=float(plan.get("alike", 1.0)),
            high=float(plan.get("interval", (math.nan, math.nan))[1]), again=int(plan.get("again", 0)),
            again_why=str(plan.get("why", "")), runs=_runs(sought, plan), constant=plan.get("constant") is True,
        )  # fmt: skip
    except (KeyError, ValueError, TypeError):
        return None
    return found if _possible(sought, found) else None


def _runs(sought: Sought, plan: Mapping[str, Any]) -> Runs | None:
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


def _possible(sought: Sought, found: Measured) -> bool:
    """Whether measuring could have given these figures: a mean in the metric's range, nothing below 0, no NaN."""
    amounts = (found.se, found.bytes_in, found.gpu_s, *found.seconds, *found.bytes_out)
    low, high = sought.span
    return found.samples >= 1 and low - 1e-9 <= found.mean <= high + 1e-9 and all(0 <= a < math.inf for a in amounts)


def _passes(sought: Sought, mean: float, said: bool) -> bool:
    """A verdict of another target is no verdict here: the mean must be on the right side as well."""
    return sought.free or (said and (mean <= sought.target if sought.lower else mean >= sought.target))


def _past_of(sought: Sought, document: Any) -> tuple[Past, ...]:
    """The queries of a history file that have these operators and levels."""
    if not isinstance(document, Mapping):
        return ()
    past = []
    for name, plans in document.get("apps", {}).items():
        found = [_record(sought, plan) for plan in plans]
        if found and all(one is not None for one in found):
            past.append(Past(name, tuple(one for one in found if one is not None)))
    return tuple(past)

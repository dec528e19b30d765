"""The warnings of a plan: each is of a thing that is there, and what must be warned of is.

Two warnings are the same if their code, place, numbers and names are (`Words`). The words between these are free: an
older plan says the same in other words. What reading the inputs warned of is in the plan. What planning warns of can
often be seen again from the plan and its inputs (`_due`): then it is in the plan, and nothing like it is there without
reason. Of the rest a warning's place is held to what its code is said of (`_PLACES`).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.verifier.demand import classes_of, response_targets
from hetplan.verifier.facts import Facts, Seat, needs_of, option
from hetplan.verifier.report import Violation
from hetplan.verifier.service import service_of
from hetplan.verifier.variants import Reading, is_whole, part_of, worst_ms

__all__ = ["WARNINGS", "Said", "Words", "check_warnings"]

_CODES = """
W-alike W-approximate W-arrivals W-arrivals-change W-arrivals-rounded W-asked-again W-batching W-busy
W-commit W-coverage W-date W-derived-qps W-dominated W-dropped W-engine W-extrapolated W-falling W-free W-gap W-gpu-
W-gpu-share W-history W-id-case W-idle-machine W-interruptions W-journal W-late-cheap W-late-sender W-latency-
W-latency-unchecked W-loading W-mean-times W-merged W-models-held W-near-capacity W-newer W-no- W-no-answer W-no-bound
W-no-latency W-no-offer W-no-plan W-no-price W-no-room W-noisy W-not-all-tried W-not-measured W-not-monotone W-one-seed
W-order W-other- W-other-inputs W-over W-overestimates W-overlap W-overload W-percentile W-percentile-open
W-queueing W-rate-not-played W-rate-table W-routing W-run W-run-price W-set-aside W-set-open W-short-queue
W-short-run W-small-pool W-stale W-statistic W-strata W-streams W-swap W-table-repaired W-too-large W-too-slow
W-too-small W-transition W-unconfirmed W-uncovered W-undecided W-unit W-unknown-running W-unlimited W-unserved
W-unstable W-unused inputs plan share unchecked
"""
WARNINGS = frozenset(_CODES.split())
"""Codes of the warnings that a plan may have."""

_PLACES = """
W-approximate policies. | W-batching policies. | W-over policies. | W-overload policies. | W-percentile policies.
W-set-open policies. | W-short-queue policies. | W-derived-qps variants | W-gpu-share variants
W-extrapolated tables. engines. | W-overlap engines. | W-not-monotone tables. | W-table-repaired tables.
W-gap claims | W-merged claims | W-no-bound claims | W-not-all-tried claims | W-overestimates alternatives
W-idle-machine workers. | W-late-cheap dispatch. | W-routing routing | W-swap actions. | W-no-latency variants.
W-run variants. | W-too-large variants. | W-unlimited slo.limits.capacity | W-unknown-running state.workers.
W-no-offer hardware. | W-no-price hardware. | W-too-small hardware.
W-queueing promises | W-run-price promises | W-small-pool promises | W-mean-times promises
"""
"""Where a code is said, by questions other than compound; a place that ends in a point is the start of one."""
_PLACES_OF = {code: places for line in re.split(r" \| |\n", _PLACES.strip()) for code, *places in [line.split()]}

_PLAIN = 1e-6
"""Of what is nearer to a limit than this nothing is asked: it may be either way for rounding."""
_EXACT = 1e-10
"""What just fits, fits."""
_SMALL, _LEAST_DERATE = 5, 0.5
"""A pool of so few instances, at a derate above this, may queue more than the derate leaves room for."""
_SHOWN = 5
_MOST_BUSY = 0.999999
_POINT = 0.501
"""Percent that a use may be off by, said in whole percents."""


@dataclass(frozen=True)
class _Seen:
    """A warning that follows from plan and inputs: where, and in which words; `sure` where it must be there."""

    code: str
    at: str
    text: str
    sure: bool = True


Said = tuple[str, str | None, tuple[str, ...]]
"""What a warning says: code, place, and the numbers and names in its text."""


@dataclass(frozen=True)
class Words:
    """Reads warnings: what is a name in a plan and its inputs, and what a text says by numbers and names.

    >>> words = Words(frozenset({"web", "t4"}))
    >>> words.figures("web (95%) waits for t4, 0.5 of 2"), words.figures("p99 of the web: 1e-06.")
    (('web', '95', 't4', '0.5', '2'), ('web', '1e-06'))
    """

    names: frozenset[str]

    @classmethod
    def of(cls, plan: Plan, inputs: Inputs) -> Words:
        """The names that this plan and these inputs have."""
        profile = inputs.profile
        kinds: tuple[Iterable[str], ...] = (
            profile.tables, profile.hardware, profile.offers, profile.variants, profile.engines, profile.hosts,
            inputs.slo.apps, plan.policies, plan.dispatch, (worker.id for worker in plan.workers),
            (worker.id for worker in inputs.state.workers) if inputs.state is not None else (),
            *(hardware.provides for hardware in profile.hardware.values()),
        )  # fmt: skip
        return cls(frozenset(chain.from_iterable(kinds)))

    def figures(self, text: str) -> tuple[str, ...]:
        """The numbers and names in a text, in their order."""
        found: list[str] = []
        for word in _WORD.findall(text):
            name = word.rstrip(".-")
            found += [name] if name in self.names else _NUMBER.findall(name)
        return tuple(found)

    def said(self, code: str, at: str | None, text: str) -> Said:
        """What a warning says."""
        return code, at, self.figures(text)

    def all_of(self, plan: Plan) -> list[Said]:
        """What each warning of a plan says."""
        return [self.said(one.code, one.at, one.text) for one in plan.warnings]


_WORD = re.compile(r"[a-zA-Z0-9][\w.+-]*")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")


def check_warnings(facts: Facts) -> Iterator[Violation]:
    """Every warning that is not said, or that says what nobody would."""
    words = Words.of(facts.plan, facts.inputs)
    read, every = {words.said(*one) for one in facts.inputs.warnings}, words.all_of(facts.plan)
    for code, at, _ in sorted(read - set(every)):
        yield Violation("warning", "warnings", f"reading the inputs warns {code} at {at}, and the plan does not say so")
    of_reading, seen = {(code, at) for code, at, _ in read}, list(_due(facts, words))
    alike = {words.said(one.code, one.at, one.text) for one in seen}
    for number, said in enumerate(every):
        if said in read:
            continue
        for text in _odd(facts, said, alike, {one.code for one in seen}):
            yield Violation("warning", f"warnings[{number}]", text)
        if said[0] in WARNINGS and said[:2] in of_reading:
            yield Violation("warning", f"warnings[{number}]", "reading the inputs says this with other figures")
    for one in seen:
        if one.sure and words.said(one.code, one.at, one.text) not in every:
            yield Violation("unwarned", one.at, f"{one.code} is not said: {one.text}")
    # Of one place the same may be said in other words: what was set aside, each with its reason.
    for (code, at, text), count in Counter((one.code, one.at, one.text) for one in facts.plan.warnings).items():
        if count > 1 and words.said(code, at, text) not in read:
            yield Violation("warning", "warnings", f"{code} is said {count} times of {at}")


def _odd(facts: Facts, said: Said, alike: set[Said], seen: set[str]) -> Iterator[str]:
    """What is wrong with a warning by itself."""
    code, at, _ = said
    if code not in WARNINGS:
        yield f"{code} is not a known warning"
        return
    places = _PLACES_OF.get(code, []) if facts.plan.question != "compound" else []
    if places and not any(_is_at(at, place) for place in places):
        yield f"{code} is not said of {at}"
    if at is not None and not _is_there(facts, at):
        yield f"there is no {at}"
    if (code == "W-gap" or (code in seen and code in _SEEN_WHOLE)) and said not in alike:
        yield f"{code} is said of {at}, and that is not so"


_SEEN_WHOLE = ("W-idle-machine", "W-swap", "W-small-pool", "W-queueing")
"""Codes of which all that may be said is seen again, where any is."""


def _is_at(at: str | None, place: str) -> bool:
    return at is not None and (at.startswith(place) if place.endswith(".") else at == place)


def _is_there(facts: Facts, at: str) -> bool:
    """Whether a place is of a thing of the plan or its inputs, where it names one of these."""
    head, _, rest = at.partition(".")
    profile = facts.inputs.profile
    known: dict[str, Iterable[str]] = {
        "tables": profile.tables,
        "hardware": profile.hardware,
        "offers": profile.offers,
        "variants": profile.variants,
        "engines": profile.engines,
        "apps": facts.inputs.slo.apps,
        "policies": facts.plan.policies,
        "dispatch": facts.plan.dispatch,
        "workers": {worker.id for worker in facts.plan.workers},
        "actions": {str(action.id) for action in facts.plan.actions},
    }
    ways = known.get(head, ())
    return not rest or head not in known or any(rest == one or rest.startswith((f"{one}.", f"{one}[")) for one in ways)


def _due(facts: Facts, words: Words) -> Iterator[_Seen]:
    """What is to be warned of, as far as it can be seen again."""
    if any(map(partial(_is_small, facts), facts.seats.values())):
        from hetplan.verifier.room_left import rooms_left

        for at, text, short in rooms_left(facts, hair=_PLAIN):
            yield _Seen("W-idle-machine", at, text, sure=short <= _EXACT)
    yield from _wide(facts, words)
    if facts.plan.question == "variants":
        yield from _unlimited(facts)
        yield from _swaps(facts)
        yield from _several_on_a_card(facts)
        yield from _waiting(facts, words)
    elif facts.plan.question == "pool":
        yield from _small_pool(facts)
        yield from _falling(facts)
    elif facts.plan.question == "policy":
        yield from _repaired(facts)


def _is_small(facts: Facts, seat: Seat) -> bool:
    """Whether a load takes no more than half of something that its machine computes with, by instance."""
    provides, n = facts.inputs.profile.hardware[seat.worker.hardware].provides, seat.load.instances
    computed = ((name, need / n) for name, need in needs_of(facts, seat).items() if not name.endswith("_gib"))
    return any(0 < need <= 0.5 * provides.get(name, 0.0) + _PLAIN for name, need in computed)


def _wide(facts: Facts, words: Words) -> Iterator[_Seen]:
    """A plan is called feasible, and no more, where its gap is above what is allowed; nothing else has that warning.

    Within a restriction no plan is called more than feasible: there the warning may be right, and is not asked for.
    """
    claim = facts.plan.claims[0] if facts.plan.claims else None
    by_play = any(one.model.startswith("simulation") for one in facts.plan.promises)
    if claim is None or claim.gap is None or claim.scope == "none" or facts.plan.status != "feasible":
        return
    gap = f"{claim.gap:.2g}"
    if claim.scope == "relaxation" and by_play:
        return  # Simulation asks for more than that bound knows of.
    texts = [one.text for one in facts.plan.warnings if one.code == "W-gap"]
    said = [text for text in texts if len(shown := words.figures(text)) > 1 and _is_about(shown[0], claim.gap)]
    if said or claim.scope != "restriction":
        yield _Seen("W-gap", "claims", said[0] if said else f"the gap of {gap} is above what is allowed")


def _is_about(shown: str, gap: float) -> bool:
    """Whether these are the two digits of a gap: written before it was rounded, so that the second may be one off."""
    return bool(_NUMBER.fullmatch(shown)) and abs(float(shown) - gap) <= 0.051 * gap


def _unlimited(facts: Facts) -> Iterator[_Seen]:
    """What loads take and nothing limits: asked for where no machine is counted, so that nothing else can limit it."""
    limits, profile = facts.inputs.slo.limits, facts.inputs.profile
    counted = limits.instances or limits.only_listed or profile.hosts
    if counted or any(offer.stock is not None for offer in profile.offers.values()):
        return
    all_runs = [run for variant in profile.variants.values() for run in variant.runs]
    taken = {name for seat in facts.seats.values() if seat.run for name, amount in seat.run.needs.items() if amount > 0}
    lacking, most = taken - set(limits.capacity), {key for run in all_runs for key in run.needs}
    for one in facts.plan.warnings:
        names = Words(frozenset(most)).figures(one.text) if one.code == "W-unlimited" else ()
        if names and lacking <= set(names) <= most - set(limits.capacity) and list(names) == sorted(names):
            yield _Seen(one.code, one.at or "", one.text)
            return
    if lacking:
        text = f"nothing limits {', '.join(sorted(lacking))}: the plan assumes that there is enough"
        yield _Seen("W-unlimited", "slo.limits.capacity", text)


def _swaps(facts: Facts) -> Iterator[_Seen]:
    """What is said of a load that goes off its machine is said of what goes at that action."""
    state = facts.inputs.state
    on = {load.id: load.variant for worker in (state.workers if state else ()) for load in worker.loads}
    of_worker = {worker.id: [load.variant for load in worker.loads] for worker in (state.workers if state else ())}
    stopped: Sequence[str | None] = ()
    for action in facts.plan.actions:
        goes = [on[action.load]] if action.load in on else []
        # Of a group that shrinks all loads end with one action, and what is said of the last stands at the next one.
        before, stopped = stopped, of_worker.get(action.worker or "", ()) if action.do == "stop" else ()
        for variant in [*goes, *stopped, *before]:
            text = "leaves its machine before its replacement is up: there is no room for both"
            yield _Seen("W-swap", f"actions.{action.id}", f"{variant} {text}", sure=False)


def _several_on_a_card(facts: Facts) -> Iterator[_Seen]:
    """Variants that share a card by its memory alone: those that are loaded are among the warned of."""
    reading, start = Reading(facts.plan, facts.inputs), " variants ("
    without = set[str]()
    for held in reading.then:
        needs = held.needs
        on_card = facts.inputs.profile.hardware[held.worker.hardware].kind == "gpu" and (
            not needs or any(name.startswith("gpu") for name in needs)
        )
        beside_others = not is_whole(reading, held) or part_of(reading, held)
        if on_card and beside_others and not {"gpu", "gpu_share"} & needs.keys():
            without.add(held.load.variant or "")
    for one in facts.plan.warnings:
        if one.code == "W-gpu-share" and start in one.text:
            count, _, rest = one.text.partition(start)
            names = rest.partition(")")[0].split(", ")
            known = names == sorted(names) and set(names) <= facts.inputs.profile.variants.keys()
            # At most five are named, and all are counted.
            if known and count == str(len(names)) and without <= set(names) and len(names) < _SHOWN:
                return
            if known and len(names) == _SHOWN and count.isdigit() and int(count) >= len(without | set(names)):
                return
    if without:
        text = f"{', '.join(sorted(without))} take no gpu_share"
        yield _Seen("W-gpu-share", "variants", text)


def _waiting(facts: Facts, words: Words) -> Iterator[_Seen]:
    """Applications that would wait too long at the planned use, by a rule of thumb for queues of little variance."""
    plan, options = facts.plan, facts.plan.method.options
    if options.get("size") != "planned" or options.get("violators") == "count":
        return
    reading = Reading(plan, facts.inputs)
    use, count = defaultdict[object, float](float), defaultdict[object, float](float)
    shares = {app: routes[0].to for app, routes in plan.routing.items() if len(routes) == 1}
    items = {}
    for held in reading.then:
        items[held.load.id] = key = (held.load.app, held.load.variant, held.worker.hardware, held.worker.offer,
                                     held.load.serve.max_batch, str(held.load.at))  # fmt: skip
        count[key] += held.instances
        for app, to in shares.items():
            if held.load.id in to and app in held.qps:
                use[key] += (facts.promised_rate(app) or 0.0) * to[held.load.id] / held.qps[app]
    late: dict[str, float] = {}
    near = set[str]()
    for held in reading.then:
        key = items[held.load.id]
        busy = min(use[key] / count[key], _MOST_BUSY)
        for app in (app for app, to in shares.items() if held.load.id in to and app in held.qps):
            wanted = facts.inputs.slo.apps[app]
            own = worst_ms(reading, held, app)
            limit = min((ms for ms, _ in response_targets(wanted)), default=math.inf) - wanted.network_ms_per_hop
            servers = count[key]
            waits = own * busy ** math.sqrt(2.0 * (servers + 1.0)) / (servers * (1.0 - busy)) / 2.0
            if own + waits > limit * (1.0 - _PLAIN):
                late[app] = max(late.get(app, 0.0), busy)
            if abs(own + waits - limit) <= limit * 1e-3:
                near.add(app)
    if late and not near:
        yield from _said_of(facts, words, late)
    said = [words.figures(notice.text) for notice in plan.warnings if notice.code == "W-queueing"]
    limited = any(response_targets(facts.inputs.slo.apps[app]) for app in shares if facts.promised_rate(app))
    if limited and (near or not late) and not any(said):
        # Where no application is that busy the plan still promises no response time.
        yield _Seen("W-queueing", "promises", "sized by rates alone, as if no query waited")


def _said_of(facts: Facts, words: Words, late: dict[str, float]) -> Iterator[_Seen]:
    """That these are late: the busiest are named, in whatever order where rounding alone tells them apart."""

    def text(named: str) -> str:
        who = "one application" if len(late) == 1 else f"{len(late)} applications"
        return (
            f"at the planned use {who} would wait longer than their SLO leaves room for: {named}; raise "
            "change.slack, or set size to auto, estimated or simulated"
        )

    for notice in facts.plan.warnings:
        named = dict(re.findall(r"(\S+) \((\d+)%\)", notice.text)) if notice.code == "W-queueing" else {}
        known = len(named) == min(len(late), _SHOWN) and named.keys() <= late.keys()
        if known and all(abs(float(named[app]) - 100.0 * late[app]) <= _POINT for app in named):
            others = (busy for app, busy in late.items() if app not in named)
            least = min(late[app] for app in named)
            same = text(", ".join(f"{app} ({percent}%)" for app, percent in named.items()))
            if words.figures(same) == words.figures(notice.text) and all(busy <= least + _PLAIN for busy in others):
                yield _Seen(notice.code, "promises", same)
                return
    worst = sorted(late.items(), key=lambda one: (-one[1], one[0]))
    yield _Seen("W-queueing", "promises", text(", ".join(f"{app} ({busy:.0%})" for app, busy in worst[:_SHOWN])))


def _small_pool(facts: Facts) -> Iterator[_Seen]:
    derate, seats = option(facts.plan, "derate", 0.0), list(facts.seats.values())
    count = sum(seat.worker.count * seat.load.instances for seat in seats)
    text = (
        f"{count} instances: a fixed derate of {derate:g} may promise too much; simulate the plan, or set size to auto"
    )
    timed = all(seat.run is not None and seat.run.rate is None for seat in seats)
    fluid = all(one.model == "fluid" for one in facts.plan.promises if one.quantity == "rate_qps")
    sure = timed and fluid and facts.plan.method.options.get("size") in ("planned", "fluid") and bool(seats)
    if count <= _SMALL and derate > _LEAST_DERATE:
        yield _Seen("W-small-pool", "promises", text, sure=sure)


def _falling(facts: Facts) -> Iterator[_Seen]:
    """Tables by one size that are faster for a larger one, of types that the pool has."""
    done = set[str]()
    for app in facts.inputs.slo.apps.values():
        classes = classes_of(app)
        if len(classes.axes) != 1:
            continue
        order = sorted(range(len(classes.share)), key=lambda k: classes.bins[k][0])
        for seat in facts.seats.values():
            name = seat.run.latency if seat.run is not None and seat.run.rate is None else None
            if name is None or name in done:
                continue
            done.add(name)
            times = [service_of(facts, seat, classes).seconds[k] for k in order]
            falls = [before / after - 1.0 for before, after in pairwise(times) if after > 0]
            if any(fall > _PLAIN for fall in falls):
                text = "a larger bin takes less time than a smaller one"
                yield _Seen("W-not-monotone", f"tables.{name}", text)


def _repaired(facts: Facts) -> Iterator[_Seen]:
    """Tables whose batches leave some out, or end before the longest queue."""
    from hetplan.verifier.readings_beside import measured_batches

    queue, done = facts.plan.method.options.get("queue_max"), set[str]()
    for seat in facts.seats.values():
        name = seat.run.latency if seat.run is not None else None
        batches = (
            measured_batches(facts.plan, facts.inputs.profile, seat.run)
            if seat.run is not None and name is not None
            else ()
        )
        if name is None or name in done or not batches or not isinstance(queue, int):
            continue
        done.add(name)
        if queue > max(batches):
            text = f"batches above {max(batches):g}, the largest measured, are extrapolated"
            yield _Seen("W-extrapolated", f"tables.{name}", text)
        missing = [batch for batch in range(1, min(queue, math.ceil(max(batches)) - 1) + 1) if batch not in batches]
        if missing:
            yield _Seen("W-table-repaired", f"tables.{name}", f"batch {_in_ranges(missing)} filled by regression")


def _in_ranges(numbers: list[int]) -> str:
    """Numbers in words: 3, 5-7."""
    ends = [k for k, number in enumerate(numbers) if k + 1 == len(numbers) or numbers[k + 1] != number + 1]
    starts = [0, *(end + 1 for end in ends[:-1])]
    parts = [(numbers[first], numbers[last]) for first, last in zip(starts, ends, strict=True)]
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)

"""What a plan of variants can say in one way only of what runs already: what stays, what moves aside, and where it is.

``workers``
    Each load has a queue of its own, whatever the state says of it. A machine that is to be had under offers is under
    one. A worker of the state that goes on does so on its host. A load that only one application may use is said to be
    of it.
``actions``
    What stays as it is has one `keep`, without a count. What goes off its machine does so with all that leaves.
``unserved``
    All that is wanted is promised or said to be unserved, in the words that are true of it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from hetplan.verifier.demand import wanted_rate
from hetplan.verifier.facts import Facts
from hetplan.verifier.report import Violation
from hetplan.verifier.variants import Reading

__all__ = ["check_going_on"]

_NOTHING_WANTED = "it has no load: nothing runs for it"
_WHY = re.compile(r"served by (\S+), which runs and breaks the limits \(violators: count\)")
_SAME = 1e-9


def check_going_on(facts: Facts) -> Iterator[Violation]:
    """Everything of it that is said otherwise."""
    for part in (_places, _users, _kept, _unserved):
        yield from part(facts)


def _places(facts: Facts) -> Iterator[Violation]:
    profile = facts.inputs.profile
    offered = {offer.hardware for offer in profile.offers.values()}
    on = {worker.id: worker.host for worker in (facts.inputs.state.workers if facts.inputs.state else ())}
    for worker in facts.plan.workers:
        at = f"workers.{worker.id}"
        if worker.loads and worker.queue != "per-load":
            yield Violation("queue", at, f"queue {worker.queue}, and workers of question variants have per-load")
        if worker.offer is None and worker.hardware in offered:
            yield Violation("offer-missing", at, f"{worker.hardware} is to be had under offers, and none is named")
        if on.get(worker.id) not in (None, worker.host):
            yield Violation("host", at, f"runs on host {on[worker.id]} and goes on, and {worker.host} is named")


def _users(facts: Facts) -> Iterator[Violation]:
    """A load is of all only where several may be served by it; where moves are counted, what runs goes on as it was."""
    options, running = facts.plan.method.options, facts.inputs.state.workers if facts.inputs.state else ()
    as_it_was = {load.id for worker in running for load in worker.loads if load.app is None}
    if facts.inputs.slo.limits.moves is None or options.get("sharing") == "dedicated":
        as_it_was = set()
    # What runs and breaks a limit may be counted, too, for what it serves.
    several = 0 if options.get("sharing") == "dedicated" else 1 if options.get("violators") != "count" else None
    for held in Reading(facts.plan, facts.inputs).then:
        of_one = several is not None and (not several or len(held.qps) == several)
        if held.load.app is None and held.load.id not in as_it_was and of_one:
            at = f"workers.{held.worker.id}.loads.{held.load.id}"
            yield Violation("load-app", at, "only one application may use it, and it is said to be of all")


def _kept(facts: Facts) -> Iterator[Violation]:
    state = facts.inputs.state
    if state is None:
        return
    now = {load.id: worker.count * load.instances for worker in state.workers for load in worker.loads}
    then = {name: seat.worker.count * seat.load.instances for name, seat in facts.seats.items()}
    stays = Counter(name for name, count in now.items() if count and then.get(name) == count)
    said = Counter(one.load or "" for one in facts.plan.actions if one.do == "keep" and one.count is None)
    for name in sorted((stays - said) + (said - stays)):
        text = f"{name or 'a load'} is said to stay as it is {said[name]} times, and is to be {stays[name]} times"
        yield Violation("action-exact", "actions", text)
    for action in facts.plan.actions:
        leaves = now.get(action.load or "", 0) - then.get(action.load or "", 0)
        if action.do == "move" and action.count != leaves:
            text = f"{action.count} instances of {action.load} go off their machine, and {leaves} are to leave"
            yield Violation("action-exact", f"actions.{action.id}", text)


def _unserved(facts: Facts) -> Iterator[Violation]:
    for number, one in enumerate(facts.plan.unserved):
        at, wanted = f"unserved[{number}]", wanted_rate(facts.inputs.slo.apps[one.app])
        left = sum(other.rate_qps for other in facts.plan.unserved if other.app == one.app)
        served = facts.promised_rate(one.app) or 0.0
        if wanted is not None and not math.isclose(served + left, wanted, rel_tol=_SAME, abs_tol=_SAME):
            text = f"{served:.9g} qps of {one.app} are promised and {left:.9g} unserved, wanted are {wanted:.9g}"
            yield Violation("unserved", at, text)
        if (one.why == _NOTHING_WANTED) != (wanted == 0.0):
            yield Violation("unserved", at, f"{one.app} wants {wanted} queries/s, and the plan says: {one.why}")
        said = _WHY.match(one.why)
        if said is not None and (said.end() < len(one.why) or said[1] not in facts.inputs.profile.variants):
            yield Violation("unserved", at, f"unknown reason: {one.why}")

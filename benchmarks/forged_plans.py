"""How many forged figures of the shipped examples' plans, or of random ones, `hetplan verify` notices.

    python benchmarks/forged_plans.py [--only pool] [--every N] [--seed S]
    python benchmarks/forged_plans.py --random [--only pool] [--seconds 60] [--changes 80] [--seed S]

Every number of a plan is raised and lowered by itself. `hetplan.profiles.plan_meaning` says of each leaf whether it
`runs`, `claims` or is a `remark`. Forgeries of the first two are counted: one is noticed where the plan is refused, or
verify finds a violation. No words are changed: verify reads none. Neither are settings that a simulation plays as they
are (`PLAYED`), nor what says less than before. A change that reads as the same plan (a default that is left out) is
none. Policies are sampled by default, as one takes seconds to verify.

With `--random`, plans of random files of each question (those of `certified_share.py`), from a seed on, until so many
CPU seconds are spent; of each at most so many changes, drawn by chance. What passed is listed by leaf.
"""

from __future__ import annotations

import argparse
import copy
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import hetplan as hp
from hetplan.api.solve import plan_for, verified
from hetplan.cli.plan_page import ROUNDING
from hetplan.profiles.plan_file import plan_dict
from hetplan.profiles.plan_meaning import meaning_of
from hetplan.profiles.read_plan import plan_schema, read_plan

EXAMPLES = {
    "pool": ("pool/profile.json", "pool/slo.json", {}),
    "pool-llm": ("pool/llm-profile.json", "pool/llm-slo.json", {}),
    "pipeline": ("pipeline/profile.json", "pipeline/slo.json", {}),
    "pipeline-social": ("pipeline/social-profile.json", "pipeline/social-slo.json", {}),
    "variants": ("variants/profile.json", "variants/slo.json", {}),
    "variants-state": ("variants/profile.json", "variants/slo.json", {"state": "variants/state.json"}),
    "compound": ("compound/profile.json", "compound/slo.json", {"measured": "compound/measured.json"}),
    "compound-candidates": ("compound/candidates-profile.json", "compound/candidates-slo.json", {}),
    "end-to-end": ("end-to-end/profile.json", "end-to-end/slo.json", {}),
    "llm": ("llm/profile.json", "llm/slo.json", {}),
    "llm-disaggregated": ("llm-disaggregated/profile.json", "llm-disaggregated/slo.json", {}),
    "policy": ("policy/profile.json", "policy/slo.json", {}),
    "fleet": ("fleet/profile.json", "fleet/slo.json", {}),
}
SLOW = {"policy": 200, "end-to-end": 4, "fleet": 2000}
"""Examples of which only one forgery in so many is tried, as each takes long."""

Way = tuple[str | int, ...]

WORDS = {
    name: tuple(words)
    for definition in plan_schema()["$defs"].values()
    for name, about in definition.get("properties", {}).items()
    for words in [about.get("enum") or next((one["enum"] for one in about.get("anyOf", ()) if "enum" in one), ())]
    if words
}
"""The words that a field may have, where it may have only some."""


PLAYED = re.compile(
    r"actions\[\]\.(id|after\[\])|dispatch\..*\.(budget_ms|limit|machines)\..*|.*serve\.most_(tokens|seqs)|.*\.ahead_s"
)
"""The order of actions, and settings: whether they do is seen in a simulation, not by arithmetic."""
LESS = re.compile(r"(.*\.)?valid\.rate_qps\..*|.*\.left_qps")
"""Of these a lower number says less, and so does a higher time or rate of violations that is kept to."""


@dataclass(frozen=True)
class Forgery:
    """A changed plan: the leaf by its path in the schema, the way to it, and what was done to it."""

    leaf: str
    way: Way
    change: str
    document: dict[str, Any]

    @property
    def place(self) -> str:
        """The very place, as people read it."""
        return ".".join(map(str, self.way))


def is_counted(forged: Forgery) -> bool:
    """Whether a forgery is one of a figure that says more than the honest plan, or runs something else."""
    if forged.change not in ("raised", "lowered") or meaning_of(forged.leaf) == "remark":
        return False
    leaf = re.sub(r"^(parts\.[^.]*\.|periods\[\]\.)", "", forged.leaf)
    if PLAYED.fullmatch(leaf) or (LESS.fullmatch(leaf) and (forged.change == "lowered" or forged.way[-1] == 0)):
        return False
    at: Any = forged.document
    *before, last = forged.way
    for step in before:
        at = at[step]
    if last == "concurrency" and "most_seqs" in at:
        return False  # what a replica that makes text is sent at once is played as its `most_seqs` are
    return not (last == "value" and forged.change == "raised" and at.get("relation") == "<=")


@cache
def inputs_of(name: str) -> hp.Inputs:
    """The files of an example."""
    profile, slo, more = EXAMPLES[name]
    files = {key: str(ROOT / "examples" / one) for key, one in more.items()}
    return hp.load(str(ROOT / "examples" / profile), str(ROOT / "examples" / slo), *files.values())


@cache
def plan_of(name: str) -> dict[str, Any]:
    """The plan of an example, as JSON data."""
    profile, slo, more = EXAMPLES[name]
    files = {key: str(ROOT / "examples" / one) for key, one in more.items()}
    outcome = hp.solve(str(ROOT / "examples" / profile), str(ROOT / "examples" / slo), *files.values())
    document: dict[str, Any] = outcome.require().model_dump(mode="json", by_alias=True, exclude_none=True)
    return document


def forgeries(document: dict[str, Any], *, chance: random.Random, every: int = 1) -> Iterator[Forgery]:
    """Every leaf changed by itself, or one change in so many."""
    known: dict[str, set[str]] = {}
    for way, value in _parts(document, ()):
        if isinstance(value, str):
            known.setdefault(_leaf(way), set()).add(value)
    for way, value in list(_parts(document, ())):
        leaf = _leaf(way)
        for change, new in _changes(leaf, value, known.get(leaf, set()), chance):
            if chance.randrange(every) == 0:
                yield Forgery(leaf, way, change, _changed(document, way, new))
        if isinstance(way[-1], int) and isinstance(value, dict | list) and chance.randrange(every) == 0:
            yield Forgery(leaf, way, "taken away", _changed(document, way, _Gone))


class _Gone:
    """In place of a value: it is taken away."""


def _changes(leaf: str, value: Any, others: set[str], chance: random.Random) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bool):
        yield "turned", not value
    elif isinstance(value, int):
        yield "raised", value + 1
        if value > 1:
            yield "lowered", value - 1
    elif isinstance(value, float):
        yield "raised", value * 1.3 if value else 0.3
        if value:
            yield "lowered", value * 0.7
    elif isinstance(value, str):
        rest = sorted({*others, *WORDS.get(leaf.rpartition(".")[2], ())} - {value})
        yield "changed", chance.choice(rest) if rest else f"{value}x"
    elif isinstance(value, list) and value:
        yield "emptied", []
        return
    elif isinstance(value, dict) and value:
        yield "emptied", {}
        return
    yield "taken away", _Gone


def _parts(value: Any, way: Way) -> Iterator[tuple[Way, Any]]:
    """Every part of a document: leaves, and what holds them."""
    if way:
        yield way, value
    if isinstance(value, dict):
        for name, inside in value.items():
            yield from _parts(inside, (*way, name))
    elif isinstance(value, list):
        for place, inside in enumerate(value):
            yield from _parts(inside, (*way, place))


def _leaf(way: Way) -> str:
    return ".".join("[]" if isinstance(step, int) else step for step in way).replace(".[]", "[]")


def _changed(document: dict[str, Any], way: Way, new: Any) -> dict[str, Any]:
    """A copy of a document with another value at one place, or with nothing there; it says no more what it was."""
    forged: Any = copy.deepcopy(document)
    if way[0] != "summary":
        forged.pop("summary", None)
    *before, last = way
    inside = forged
    for step in before:
        inside = inside[step]
    if new is _Gone:
        del inside[last]
    else:
        inside[last] = new
    return forged  # type: ignore[no-any-return]


def _printed(plan: hp.Plan) -> hp.Plan:
    """What a plan says: a gap that is nothing but rounding is 0."""
    gaps = [claim.gap if claim.gap is not None and claim.gap > ROUNDING else claim.gap and 0.0 for claim in plan.claims]
    claims = [one.model_copy(update={"gap": gap}) for one, gap in zip(plan.claims, gaps, strict=True)]
    return plan.model_copy(update={"claims": tuple(claims), "digest": None})


def noticed(forged: Forgery, honest: hp.Plan, inputs: hp.Inputs) -> str | None:
    """What was noticed of a forgery ("" if nothing); None where it reads as the same plan."""
    try:
        plan = read_plan(forged.document, trust_digest=True)
        if _printed(plan) == _printed(honest):
            return None
        report = verified(plan, inputs)
    except hp.HetplanError as error:
        return f"refused: {str(error)[:80]}"
    if report.unchecked:
        return "unchecked"
    return "; ".join(f"{one.code} {one.at}" for one in report.violations[:2])


@dataclass
class Tried:
    """What became of a question's random plans: changes noticed and all, by meaning; what passed, by leaf."""

    plans: int = 0
    noticed: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    passed: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def add(self, meaning: str, forged: Forgery, found: str, where: str) -> None:
        """One change that reads as another plan."""
        self.tried[meaning] += 1
        self.noticed[meaning] += bool(found)
        if not found:
            self.passed.setdefault((meaning, forged.leaf), []).append(f"{where}: {forged.place} {forged.change}")

    @property
    def share(self) -> float:
        """Of the changes of what runs or claims, the share that was noticed."""
        counted = ("runs", "claims")
        return sum(self.noticed[one] for one in counted) / max(sum(self.tried[one] for one in counted), 1)


def tried_at_random(
    question: str, seed: int, changes: int, *, seconds: float = math.inf, most: float = math.inf
) -> Tried:
    """Random plans of a question, each changed so many times: at most so many, until so many CPU seconds are spent."""
    from benchmarks.certified_share import QUESTIONS

    drawn, found = QUESTIONS[question], Tried()
    until = time.process_time() + seconds
    while time.process_time() < until and found.plans < most:
        where, how, (profile, slo, *state) = f"seed {seed}", drawn.hows[seed % len(drawn.hows)], drawn.files(seed)
        seed += 1
        inputs = hp.load(hp.Profile.model_validate(profile), slo, *state)
        plan = plan_for(inputs, **how).plan
        if plan is None:
            continue
        document = plan_dict(plan)
        honest = read_plan(document, trust_digest=True)
        report = verified(honest, inputs)
        found.plans += 1
        found.refused += [f"{where}, {dict(how)}: {one}" for one in report.violations]
        chance = random.Random(seed)
        every = [one for one in forgeries(document, chance=chance) if is_counted(one)]
        for forged in chance.sample(every, min(changes, len(every))):
            said = noticed(forged, honest, inputs)
            if said is not None:
                found.add(meaning_of(forged.leaf), forged, said, where)
    return found


def at_random(asked: argparse.Namespace) -> int:
    """The table of all questions, and what passed."""
    from benchmarks.certified_share import QUESTIONS

    wrong = 0
    for question in [one for one in QUESTIONS if asked.only in one]:
        found = tried_at_random(question, asked.seed, asked.changes, seconds=asked.seconds)
        counts = ", ".join(f"{one} {found.noticed[one]} of {found.tried[one]}" for one in ("runs", "claims"))
        print(f"{question:25} {found.plans:4} plans, noticed: {counts}: {found.share:.2%}", flush=True)
        for (meaning, leaf), ones in sorted(found.passed.items(), key=lambda item: -len(item[1])):
            print(f"  {len(ones):4} passed, {meaning}: {leaf} ({'; '.join(ones[:3])})", flush=True)
        for line in found.refused:
            print(f"  an honest plan was refused: {line}", flush=True)
        wrong += bool(found.refused) or found.share < 0.99
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="examples whose names contain this")
    parser.add_argument("--every", type=int, help="try one forgery in so many, of slow examples too")
    parser.add_argument("--seed", type=int, default=0, help="which of them")
    parser.add_argument("--random", action="store_true", help="plans of random files instead")
    parser.add_argument("--seconds", type=float, default=60.0, help="with --random: CPU seconds of each question")
    parser.add_argument("--changes", type=int, default=80, help="with --random: the most changes of a plan")
    asked = parser.parse_args()
    if asked.random:
        return at_random(asked)
    total: Counter[bool] = Counter()
    for name in EXAMPLES:
        if asked.only not in name:
            continue
        document, inputs, count = plan_of(name), inputs_of(name), Counter[bool]()
        honest = read_plan(document, trust_digest=True)
        chance = random.Random(asked.seed)
        for forged in forgeries(document, chance=chance, every=asked.every or SLOW.get(name, 1)):
            found = noticed(forged, honest, inputs) if is_counted(forged) else None
            if found is None:
                continue
            count[bool(found)] += 1
            if not found:
                print(f"{name}: passed: {forged.place} {forged.change}", flush=True)
        print(f"{name:20} {count[True]:5} of {count.total():5} noticed", flush=True)
        total += count
    print(f"score {total[True] / max(total.total(), 1):.2%} of {total.total()} forgeries")
    return 0 if total[True] >= 0.99 * total.total() else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""How many small forgeries of the shipped examples' plans `hetplan verify` notices.

    python benchmarks/forged_plans.py [--only pool] [--every N] [--seed S] [--remarks]

Every leaf of a plan is changed by itself: a number is raised and lowered, a word is put in place of another, an entry
is taken away, a list is emptied. `hetplan.profiles.plan_meaning` says of each leaf whether it `runs`, `claims` or is a
`remark`. Forgeries of the first two are counted: one is noticed where the plan is refused, or verify finds a violation.
A change that reads as the same plan (a default that is left out) is none. Policies are sampled by default, as one takes
seconds to verify.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import hetplan as hp
from hetplan import registry
from hetplan.profiles.plan_meaning import meaning_of
from hetplan.profiles.read_plan import plan_schema
from hetplan.verifier.check import verify_plan

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


@dataclass(frozen=True)
class Forgery:
    """A changed plan: the leaf by its path in the schema, the very place, and what was done to it."""

    leaf: str
    place: str
    change: str
    document: dict[str, Any]


@cache
def inputs_of(name: str) -> hp.Inputs:
    """The files of an example."""
    profile, slo, more = EXAMPLES[name]
    files = {key: str(ROOT / "examples" / one) for key, one in more.items()}
    return hp.load_inputs(str(ROOT / "examples" / profile), str(ROOT / "examples" / slo), **files)


@cache
def plan_of(name: str) -> dict[str, Any]:
    """The plan of an example, as JSON data."""
    profile, slo, more = EXAMPLES[name]
    files = {key: str(ROOT / "examples" / one) for key, one in more.items()}
    outcome = hp.solve(str(ROOT / "examples" / profile), str(ROOT / "examples" / slo), **files)
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
                forged = copy.deepcopy(document)
                _put(forged, way, new)
                yield Forgery(leaf, ".".join(map(str, way)), change, forged)


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


def _put(document: Any, way: Way, new: Any) -> None:
    *before, last = way
    for step in before:
        document = document[step]
    if new is _Gone:
        del document[last]
    else:
        document[last] = new


def noticed(forged: Forgery, honest: hp.Plan, inputs: hp.Inputs) -> str | None:
    """What was noticed of a forgery ("" if nothing); None where it reads as the same plan."""
    try:
        plan = hp.read_plan(forged.document, trust_digest=True)
        if plan == honest:
            return None
        report = verify_plan(plan, inputs, registry.check_of(plan.question))
    except hp.HetplanError as error:
        return f"refused: {str(error)[:80]}"
    if report.unchecked:
        return "unchecked"
    return "; ".join(f"{one.code} {one.at}" for one in report.violations[:2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="examples whose names contain this")
    parser.add_argument("--every", type=int, help="try one forgery in so many, of slow examples too")
    parser.add_argument("--seed", type=int, default=0, help="which of them")
    parser.add_argument("--remarks", action="store_true", help="try remarks as well, and list those that are noticed")
    asked = parser.parse_args()
    total: Counter[bool] = Counter()
    for name in EXAMPLES:
        if asked.only not in name:
            continue
        document, inputs, count = plan_of(name), inputs_of(name), Counter[bool]()
        honest = hp.read_plan(document, trust_digest=True)
        chance = random.Random(asked.seed)
        for forged in forgeries(document, chance=chance, every=asked.every or SLOW.get(name, 1)):
            remark = meaning_of(forged.leaf) == "remark"
            if remark and not asked.remarks:
                continue
            found = noticed(forged, honest, inputs)
            if found is None:
                continue
            if remark:
                if found:
                    print(f"{name}: remark {forged.place} {forged.change}: {found}", flush=True)
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

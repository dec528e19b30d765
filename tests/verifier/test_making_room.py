"""What runs may go first only where there is no room for what is to come; by hand, a machine at a time."""

import pytest
from cases.documents import Json, documents, latency, load, read, spoil, worker

from hetplan.verifier.check import verify_plan


def replaced() -> Json:
    """`old` makes room for `new`, because there is one machine of the offer."""
    run = {"latency": "t"}
    return documents(
        profile={
            "hardware": {"g": {"kind": "gpu"}, "h": {"kind": "gpu"}},
            "offers": {
                "g": {"hardware": "g", "price_per_hour": "1", "stock": 1},
                "g-spot": {"hardware": "g", "price_per_hour": "1", "stock": 1},
                "h": {"hardware": "h", "price_per_hour": "1", "stock": 1},
            },
            "hosts": {"m1": {"offer": "g"}, "m2": {"offer": "g"}},
            "tasks": {"t": {}},
            "variants": {"v": {"task": "t", "runs": [{"hardware": "g", **run}, {"hardware": "h", **run}]}},
            "tables": {"t": latency({"batch": [1]}, [1])},
        },
        slo={"apps": {name: {"task": "t", "rate_qps": 0} for name in ("x", "y")}},
        state={
            "format": "hetplan/state/1.0",
            "workers": [worker("old", "g", "g", 1, load("a", "x", "v"))],
        },
        plan={
            "question": "deployment",
            "method": {"formulation": "by-hand"},
            "workers": [worker("new", "g", "g", 1, load("b", "x", "v"))],
            "routing": {"x": [{"to": {"b": 1.0}}]},
            "actions": steps(
                {"do": "stop", "worker": "old"}, {"do": "start", "worker": "new"}, {"do": "load", "load": "b"}
            ),
        },
    )


def steps(*actions: Json) -> list[Json]:
    return [{"id": number + 1, **action} for number, action in enumerate(actions)]


NO_STOCK = {"profile/offers/g/stock": None}
TOO_SOON = "action @ actions.1"
ON_HOSTS = {**NO_STOCK, "state/workers/0/host": "m1", "plan/workers/0/host": "m1"}
ELSEWHERE = {
    "plan/workers/1": worker("other", "h", "h", 1, load("c", "x", "v")),
    "plan/actions": steps(
        {"do": "stop", "worker": "old"},
        {"do": "start", "worker": "new"},
        {"do": "start", "worker": "other"},
        {"do": "load", "load": "b"},
        {"do": "load", "load": "c"},
    ),
}
"""Another machine is wanted, for which there is room at once."""
IN_PARTS = {"do": "unload", "load": "a"}

# fmt: off
CASES = [
    ("the only machine of the offer", {}, ""),
    ("one of two machines of the offer", {"profile/offers/g/stock": 2}, TOO_SOON),
    ("one of any number", NO_STOCK, TOO_SOON),
    ("the only machine of the hardware", {**NO_STOCK, "slo/limits": {"instances": {"g": [0, 1]}}}, ""),
    ("one of two machines of the hardware", {**NO_STOCK, "slo/limits": {"instances": {"g": [0, 2]}}}, TOO_SOON),
    ("the only machine of another hardware", {**NO_STOCK, "slo/limits": {"instances": {"h": [0, 0]}}}, TOO_SOON),
    ("the only machine of the hardware, under another offer", {"plan/workers/0/offer": "g-spot",
     "slo/limits": {"instances": {"g": [0, 1]}}}, ""),
    ("the only machine of another offer", {"plan/workers/0/offer": "g-spot"}, TOO_SOON),
    ("another hardware", {"plan/workers/0/offer": "h", "plan/workers/0/hardware": "h"}, TOO_SOON),
    ("another hardware, of which there is none", {"plan/workers/0/offer": "h", "plan/workers/0/hardware": "h",
     "slo/limits": {"instances": {"h": [0, 0]}}}, ""),
    ("a machine more than the hardware may have", {"slo/limits": {"instances": {"g": [0, 1]}}, **NO_STOCK,
     "state/workers/1": worker("far", "h", "h", 1, load("f", "y", "v")),
     "plan/workers/1": worker("far", "h", "h", 1, load("f", "y", "v"))}, ""),
    ("machines of another hardware take no room", {"slo/limits": {"instances": {"g": [0, 2]}}, **NO_STOCK,
     "state/workers/1": worker("far", "h", "h", 1, load("f", "y", "v")),
     "plan/workers/1": worker("far", "h", "h", 1, load("f", "y", "v"))}, TOO_SOON),
    ("machines of another offer take no room of this one", {"profile/offers/g/stock": 2,
     "state/workers/1": worker("far", "g", "g-spot", 1, load("f", "y", "v")),
     "plan/workers/1": worker("far", "g", "g-spot", 1, load("f", "y", "v"))}, TOO_SOON),
    ("no offers", {"profile/offers": {}, "profile/hosts": {}, "state/workers/0/offer": None,
     "plan/workers/0/offer": None}, TOO_SOON),
    ("the host that it is on", ON_HOSTS, ""),
    ("another host", {**ON_HOSTS, "plan/workers/0/host": "m2"}, TOO_SOON),
    ("a host, and nothing is on one", {**ON_HOSTS, "state/workers/0/host": None}, TOO_SOON),
    ("a host that it was on", {**ON_HOSTS, "state/workers/1": worker("gone", "g", "g", 1, load("z", "y", "v"),
     host="m2"), "plan/workers/0/host": "m2", "plan/actions": steps({"do": "stop", "worker": "gone"},
     {"do": "stop", "worker": "old"}, {"do": "start", "worker": "new"}, {"do": "load", "load": "b"})},
     "action @ actions.2"),
    ("room for one of two that are missing", ELSEWHERE, TOO_SOON),
    ("room for neither of two that are missing", {**ELSEWHERE, "profile/offers/h/stock": 0},
     "action @ actions.3; stock @ periods.t0"),
    ("nothing is missing", {"plan/workers/0/id": "old", "plan/workers/0/loads/0/id": "b",
     "plan/actions": steps(IN_PARTS, {"do": "load", "load": "b"})}, TOO_SOON),
    ("what goes on is on a host, and the plan names none", {**ON_HOSTS, "plan/workers/0/host": None,
     "plan/workers/0/id": "old", "plan/workers/0/loads/0/id": "b",
     "plan/actions": steps(IN_PARTS, {"do": "load", "load": "b"})}, TOO_SOON),
    ("what goes on is on another host", {**ON_HOSTS, "plan/workers/0/host": "m2",
     "plan/workers/0/id": "old", "plan/workers/0/loads/0/id": "b",
     "plan/actions": steps(IN_PARTS, {"do": "load", "load": "b"})}, f"{TOO_SOON}; actions-end @ workers.old"),
    ("loaded before its machine is up", {"profile/offers/g/stock": 2, "plan/actions": steps(
     {"do": "load", "load": "b"}, IN_PARTS, {"do": "stop", "worker": "old"}, {"do": "start", "worker": "new"})},
     "action @ actions.1; action @ actions.2"),
    ("what another application has is no replacement", {"profile/offers/g/stock": 2, "state/workers/0/loads/1":
     load("c", "y", "v"), "plan/actions": steps(IN_PARTS, {"do": "unload", "load": "c"}, {"do": "start",
     "worker": "new"}, {"do": "load", "load": "b"}, {"do": "stop", "worker": "old"})}, TOO_SOON),
    ("a start that nobody wants changes nothing", {"plan/workers": [], "plan/routing": {},
     "plan/actions": steps({"do": "unload", "load": "a"}, {"do": "start", "worker": "old"})},
     "actions-end @ workers.old"),
]
# fmt: on


@pytest.mark.parametrize(("words", "edits", "expected"), CASES, ids=[words for words, *_ in CASES])
def test_what_runs_goes_first_where_there_is_no_room(words: str, edits: Json, expected: str) -> None:
    codes = ("action", "actions-end", "stock", "input-hash", "unknown-reference")
    found = verify_plan(*read(spoil(replaced(), edits))).violations
    assert sorted(f"{one.code} @ {one.at}" for one in found if one.code in codes) == sorted(
        filter(None, expected.split("; "))
    )

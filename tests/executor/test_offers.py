"""Workers go where their offer is sold: to hosts of its zone, to spot machines or others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hetplan.errors import InputError
from hetplan.executor.site import Site, read_site
from hetplan.executor.wanted import wanted
from hetplan.profiles.plan import InputHashes, Method, Plan
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.plan_sections import Route, SharesDispatch
from hetplan.profiles.workers import Load, Worker

OFFERS = {
    "gpu-a": {"hardware": "gpu", "zone": "a", "price_per_hour": "1"},
    "gpu-b": {"hardware": "gpu", "zone": "b", "price_per_hour": "1"},
    "gpu-b-spot": {"hardware": "gpu", "zone": "b", "price_per_hour": "0.3", "interruptions_per_hour": 0.1},
    "free": {"hardware": "free", "price_per_hour": "1"},
}


def plan(**counts: int) -> Plan:
    """So many workers of each offer; "_" is "-" in its name."""
    offers = {name.replace("_", "-"): count for name, count in counts.items()}
    workers = tuple(
        Worker(id=f"w-{offer}", hardware="free" if offer == "free" else "gpu", offer=offer, count=count,
               loads=(Load(id=f"w-{offer}.1", app="rank", variant="m"),))
        for offer, count in offers.items()
    )  # fmt: skip
    total = sum(offers.values())
    to = {f"w-{offer}.1": count / total for offer, count in offers.items()}
    return with_digest(
        Plan(
            question="variants", method=Method(formulation="by hand"), workers=workers,
            inputs=InputHashes(profile="sha256:01", slo="sha256:02"), routing={"rank": (Route(to=to),)},
            dispatch={"rank": SharesDispatch(rule="shares/1")},
        )
    )  # fmt: skip


def hosts(folder: Path, kind: str = "local", settings: Mapping[str, Any] | None = None, **said: Any) -> Site:
    profile = folder / "profile.json"
    document = {
        "format": "hetplan/profile/1.0",
        "hardware": {name: {"kind": "gpu", "provides": {"gpu": 1}} for name in ("gpu", "free")},
        "offers": OFFERS, "tasks": {"t": {}},
        "variants": {"m": {"task": "t", "runs": [{"hardware": name, "latency": "l"} for name in ("gpu", "free")]}},
        "tables": {"l": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [10]}},
    }  # fmt: skip
    profile.write_text(json.dumps(document))
    listed = {name: {"target": "here", "machines": ["gpu", "free"], "count": 2, **one} for name, one in said.items()}
    return read_site(
        {
            "name": "prod", "files": [str(profile)], "targets": {"here": {"kind": kind, "settings": settings or {}}},
            "hosts": listed, "models": {"*": {"kind": "sleep", "ms": 2.0}},
        }
    )  # fmt: skip


def placed(wish: Plan, where: Site) -> dict[str, Counter[str]]:
    """On how many machines of each host the workers of each offer are."""
    found: dict[str, Counter[str]] = {}
    for unit in wanted(wish, where).units.values():
        found.setdefault(unit.offer or "", Counter())[unit.host] += 1
    return found


def test_workers_go_to_hosts_of_their_zone(tmp_path: Path) -> None:
    two = hosts(tmp_path, first={"zone": "b"}, second={"zone": "a"})
    assert placed(plan(gpu_a=2, gpu_b=1), two) == {"gpu-a": {"second": 2}, "gpu-b": {"first": 1}}
    # An offer of no zone is anywhere.
    assert placed(plan(free=4), two) == {"free": {"first": 2, "second": 2}}


def test_no_room_in_a_zone_is_refused_by_name(tmp_path: Path) -> None:
    two = hosts(tmp_path, first={"zone": "b", "count": 9}, second={"zone": "a"})
    with pytest.raises(
        InputError, match=r"3 of gpu \(offer gpu-a, zone a\)\): the hosts have room for 2 of them \(second"
    ):
        wanted(plan(gpu_a=3), two)
    with pytest.raises(InputError, match=r"no host is for offer gpu-a, zone a: first is zone b; plain is in no zone"):
        wanted(plan(gpu_a=1), hosts(tmp_path, first={"zone": "b"}, plain={}))


def test_hosts_that_say_nothing_take_all(tmp_path: Path) -> None:
    assert placed(plan(gpu_a=1, gpu_b_spot=1), hosts(tmp_path, box={})) == {
        "gpu-a": {"box": 1}, "gpu-b-spot": {"box": 1},
    }  # fmt: skip


def test_spot_machines_are_told_from_others(tmp_path: Path) -> None:
    both = hosts(tmp_path, any={"count": 9}, cheap={"spot": True, "count": 1}, firm={"spot": False})
    # Those that are for few come first, and what they have no room for goes on.
    assert placed(plan(gpu_b_spot=2, gpu_b=3), both) == {
        "gpu-b-spot": {"cheap": 1, "any": 1}, "gpu-b": {"firm": 2, "any": 1},
    }  # fmt: skip
    with pytest.raises(InputError, match=r"no host is for offer gpu-b-spot, zone b, spot: firm is not spot"):
        wanted(plan(gpu_b_spot=1), hosts(tmp_path, firm={"spot": False}))


def test_hosts_of_an_offer_take_no_other(tmp_path: Path) -> None:
    some = hosts(tmp_path, mine={"offers": "gpu-b-spot"}, other={"offers": ["gpu-a", "gpu-b"]})
    assert placed(plan(gpu_a=1, gpu_b_spot=2), some) == {"gpu-a": {"other": 1}, "gpu-b-spot": {"mine": 2}}
    with pytest.raises(InputError, match=r"no host is for offer free: mine is offers gpu-b-spot"):
        wanted(plan(free=1), some)


def test_zones_without_a_profile_that_knows_them_are_refused(tmp_path: Path) -> None:
    bare = hosts(tmp_path, first={"zone": "b"}).model_copy(update={"files": ()})
    with pytest.raises(InputError, match=r"hosts\.first \(found gpu-a\).*no profile says"):
        wanted(plan(gpu_a=1), bare)

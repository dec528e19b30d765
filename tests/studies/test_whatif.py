"""What-if: the places where the fleet changes are found, and are where they are said to be."""

from __future__ import annotations

import copy
import csv
import io
import json
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import hetplan as hp
from hetplan.errors import InputError, Interrupted
from hetplan.planner.repairs import value_at
from hetplan.planner.spread import Spread, doubled
from hetplan.profiles.load import load_inputs
from hetplan.studies import whatif as room
from hetplan.studies.axes import Files, axis_of, change_inputs
from hetplan.studies.robust import robust_for
from hetplan.studies.whatif import WhatIf, whatif_for

PROFILE = {
    "format": "hetplan/profile/1.0",
    "hardware": {"small": {"kind": "gpu"}, "big": {"kind": "gpu"}},
    "offers": {
        "small": {"hardware": "small", "price_per_hour": "1", "stock": 9},
        "big": {"hardware": "big", "price_per_hour": "2.5"},
    },
    "tasks": {"rank": {}},
    "variants": {
        "m": {"task": "rank", "runs": [{"hardware": "small", "latency": "s"}, {"hardware": "big", "latency": "b"}]}
    },
    "tables": {
        "s": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [10, 40]},
        "b": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [4, 14]},
    },
}
SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0",
    "objective": ["min cost"],
    "apps": {
        "web": {
            "model": "m",
            "latency": {"p99_ms": 50},
            "rate_qps": 300,
            "mix": {"axes": ["batch"], "bins": [[1], [8]], "share": [0.5, 0.5]},
        }
    },
}


POOL = Path(__file__).resolve().parents[2] / "examples" / "pool"


def found(*vary: str, **how: Any) -> WhatIf:
    return whatif_for(hp.load(PROFILE, SLO), list(vary), **{"confirm": False, **how})


def least_cost(**changes: Any) -> float:
    inputs = load_inputs(PROFILE, SLO)
    files = Files.of(inputs)
    axis = axis_of(f"{changes['name']}={changes['value']}", files)
    changed = files.inputs_with(axis.written(files.documents, changes["value"]))
    outcome = hp.solve(changed.profile, changed.slo, options={"sizing": "fluid"})
    return outcome.claims[0].value


def test_along_a_price_every_best_fleet_is_found_and_each_place_is_exact() -> None:
    answer = found("price:small=0.1:3:3")
    assert len(answer.breakpoints) >= 2
    assert all(one.exact for one in answer.breakpoints)
    edges = [0.1, *(one.low for one in answer.breakpoints), 3.0]
    fleets = [answer.breakpoints[0].before, *(one.after for one in answer.breakpoints)]
    for (low, high), fleet in zip(pairwise(edges), fleets, strict=True):
        assert fleet is not None
        for part in (0.02, 0.5, 0.98):  # between two places the fleet said to be best costs what the best one costs
            price = low + part * (high - low)
            bill = fleet.get("small", 0) * price + fleet.get("big", 0) * 2.5
            assert least_cost(name="price:small", value=round(price, 9)) == pytest.approx(bill, rel=1e-7)
    assert "every fleet" in answer.notes[-1]


@pytest.mark.slow
def test_along_a_rate_the_bill_steps_where_it_is_said_to() -> None:
    answer = found("rate=100:130:2")
    assert answer.breakpoints
    for one in answer.breakpoints:
        assert 0 < one.high - one.low <= 0.03 + 1e-9
        assert least_cost(name="rate", value=one.low) == pytest.approx(one.value_before)
        assert least_cost(name="rate", value=one.high) == pytest.approx(one.value_after)
        assert (one.value_after or 0) > (one.value_before or 0)
    for one in answer.segments:  # nothing cheaper was left between two points
        assert least_cost(name="rate", value=(one.start + one.end) / 2) == pytest.approx(one.first)


def test_machines_come_one_by_one_and_a_range_may_begin_without_a_plan() -> None:
    slo = {**SLO, "limits": {"instances": {"big": [0, 0]}}}
    answer = hp.whatif(PROFILE, slo, vary="stock:small=0:16:2", confirm=False)
    assert [(one.low, one.high) for one in answer.breakpoints] == [
        (answer.breakpoints[0].low, answer.breakpoints[0].low + 1)
    ]
    assert answer.segments[0].fleet is None
    assert answer.segments[0].why
    assert answer.segments[1].fleet == {"small": int(answer.breakpoints[0].high)}


def test_a_plan_is_kept_while_more_room_brings_nothing() -> None:
    """Two fleets carry the same rate: the dearer one, which a larger budget would allow, is no change."""
    folder = Path(__file__).resolve().parents[2] / "examples" / "pool"
    answer = hp.whatif(folder / "profile.json", folder / "slo.json", vary="budget=1.87:1.99:5", confirm=False)
    assert answer.breakpoints == ()
    assert all(point["cost_per_hour"] <= point["values"][0] for point in answer.points)
    assert len(answer.segments) == 1


def test_two_axes_are_a_line_for_each_value_of_the_second() -> None:
    answer = found("price:small=0.5:1:2", "rate=100,300")
    assert {one.beside for one in answer.segments} == {100.0, 300.0}
    assert found("price:small=0.5:1:2").points == tuple(
        {**point, "values": point["values"][:1], "slopes": point["slopes"][:1]}
        for point in answer.points
        if point["values"][1] == 300.0
    )


def test_ends_and_changes_are_made_in_full() -> None:
    answer = hp.whatif(PROFILE, SLO, vary="price:small=0.5:1:2", options={"sizing": "formula"})
    assert next(point["values"][0] for point in answer.confirmed) == 0.5
    assert {one.low for one in answer.breakpoints} < {point["values"][0] for point in answer.confirmed}
    assert all(point["sized"] for point in answer.confirmed)
    assert hp.whatif(PROFILE, SLO, vary="price:small=0.5:1:2", options={"sizing": "fluid"}).confirmed == ()


def test_what_is_written_can_be_read() -> None:
    answer = found("price:small=0.5:1:2", "rate=100,300")
    rows = list(csv.DictReader(io.StringIO(answer.csv())))
    assert len(rows) == len(answer.points)
    assert float(rows[0]["value"]) == answer.points[0]["value"]
    assert rows[0]["vouched"] == "certified"
    assert json.loads(json.dumps(answer.as_dict()))["objective"] == {"about": "cost_per_hour", "sense": "min"}
    picture = ElementTree.fromstring(answer.svg())
    assert [line.get("class", "")[:5] for line in picture.findall("{*}polyline")].count("curve") == 2


@pytest.mark.slow
def test_results_are_in_the_order_of_tasks_whoever_is_first() -> None:
    tasks = [{"of": number} for number in (5, 1, 5, 3)]
    with Spread(jobs=2) as spread:
        assert spread.all(doubled, 2, tasks) == [{"twice": 10}, {"twice": 2}, {"twice": 10}, {"twice": 6}]


@pytest.mark.slow
@pytest.mark.parametrize("on", [None, "ray"])
def test_work_is_the_same_wherever_it_is_done(on: str | None) -> None:
    if on is not None:
        pytest.importorskip("ray")
    alone = found("price:small=0.5:1:2")
    assert found("price:small=0.5:1:2", spread=Spread(jobs=2, on=on)).as_dict() == alone.as_dict()


def test_work_goes_on_after_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, journal = load_inputs(PROFILE, SLO), tmp_path / "study.jsonl"
    whole = whatif_for(inputs, "stock:small=0:8:2", confirm=False)
    cancel, seen = threading.Event(), []

    def listen(event: hp.Event) -> None:
        seen.append(event.detail)
        if len(seen) == 2:
            cancel.set()

    spread = Spread(journal=journal, on_event=listen, cancel=cancel)
    with pytest.raises(Interrupted, match="journal"):
        whatif_for(inputs, "stock:small=0:8:2", confirm=False, spread=spread)
    assert "left" in seen[0]
    journal.write_bytes(journal.read_bytes() + b'{"task": "half a li')  # killed while writing
    again: list[Any] = []
    monkeypatch.setattr(room, "solve_point", _counted(room.solve_point, again))
    resumed = whatif_for(inputs, "stock:small=0:8:2", confirm=False, spread=Spread(journal=journal))
    assert resumed.as_dict() == whole.as_dict()
    assert len(again) == len(whole.points) - 2
    with pytest.raises(InputError, match="another study"):
        whatif_for(inputs, "stock:small=0:8:2", confirm=False, spread=Spread(journal=journal), options={"derate": 0.7})


def _counted(work: Any, calls: list[Any]) -> Any:
    @wraps(work)  # a journal knows what was done by its name
    def counted(*given: Any) -> Any:
        calls.append(given)
        return work(*given)

    return counted


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ("budget", "NAME=RANGE"),
        ("budget=3:1", "lower to a higher"),
        ("budget=x2", "no number there"),
        ("price:smal=1:2", 'Did you mean "small"'),
        ("p95=1:2", "no limit of that percentile"),
        ("speed=1:2", "no name of something"),
        ("latency:tiny=1:2", "no machine type"),
        ("stock:small=1:nan", "no number"),
        ("rate=1:2:1", "at least 2"),
        ("rate=0:2:3:log", "above 0"),
    ],
)
def test_an_axis_that_cannot_be_read_is_said_to_be_wrong(vary: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        found(vary)


@pytest.mark.parametrize(
    ("place", "planned"),
    [
        ("machines.t4.provides.gpu", ("hardware", "t4", "provides", "gpu")),
        ("machines.t4.startup_s", ("hardware", "t4", "startup_s")),
        ("machines.cpu4.spot.price_per_hour", ("offers", "cpu4-spot", "price_per_hour")),
        ("machines.cpu16.spot.price_per_hour", ("offers", "cpu16-spot", "price_per_hour")),
        ("machines.cpu4.zones.east.price_per_hour", ("offers", "cpu4-east", "price_per_hour")),
        ("models.ranker-l.quality.auc", ("variants", "ranker-l", "quality", "value")),
        ("models.ranker-l.runs.t4.load_s", ("variants", "ranker-l", "runs", 2, "load_s")),
        ("models.ranker-l.runs.t4.mean_ms[0]", ("tables", "ranker-l-t4", "mean", 0)),
    ],
)
def test_a_place_of_a_profile_is_one_of_its_file(place: str, planned: Sequence[Any]) -> None:
    """Whatever varies beside it."""
    files = Files.of(load_inputs(POOL / "profile.json", POOL / "slo.json"))
    two = [axis_of("demand=2", files), axis_of(f"profile.{place}=0.5,1", files), axis_of("prices:t4=2", files)]
    profile = change_inputs(files, two, (2.0, 1.0, 2.0)).profile
    found: Any = profile.model_dump(mode="json", by_alias=True)
    assert float(value_at(found, planned)) == 1.0
    assert float(found["offers"]["t4"]["price_per_hour"]) == 1.2


def test_what_all_runs_share_varies_at_each() -> None:
    files = Files.of(load_inputs(POOL / "profile.json", POOL / "slo.json"))
    profile = change_inputs(files, [axis_of("profile.models.ranker-l.samples=100,200", files)], (100.0,)).profile
    assert {table.samples for table in profile.tables.values()} == {100}


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("models.ranker-l.quality", r"an object.*profile\.models\.ranker-l\.quality\.auc"),
        ("models.ranker-l.batch", r"a list.*profile\.models\.ranker-l\.batch\[0\]"),
        ("models.ranker.x", 'no model ranker.*Did you mean "ranker-l"'),
        ("machines.t5.stock", "no machine type t5.*There are t4, cpu16, cpu4"),
        ("offers.t4.price_per_hour", "no section of profiles offers.*machines, models"),
        ("machines.t4.gpu_type", r"\$\.machines\.t4\.gpu_type"),
        ("models.ranker-l.x", r"\$\.models\.ranker-l\.x"),
    ],
)
def test_a_place_that_is_in_no_profile_file_is_refused_in_its_words(place: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        hp.whatif(POOL / "profile.json", POOL / "slo.json", vary=f"profile.{place}=1,2", confirm=False)


def test_a_value_that_the_files_do_not_take_is_named() -> None:
    with pytest.raises(InputError, match=r"--vary p99=-5"):
        found("p99=-5,10")


def test_factors_change_all_that_they_name() -> None:
    files = Files.of(load_inputs(PROFILE, SLO))
    slower = axis_of("latency:big=2", files).written(files.documents, 2.0)["profile"]["tables"]
    assert slower["m-big"]["mean"] == [8, 28]
    assert slower["m-small"]["mean"] == [10, 40]
    assert axis_of("demand=2", files).written(files.documents, 2.0)["slo"]["apps"]["web"]["rate_qps"] == 600
    dearer = axis_of("prices=1.5", files).written(files.documents, 1.5)["profile"]["offers"]
    assert sorted(offer["price_per_hour"] for offer in dearer.values()) == ["1.5", "3.75"]


PLENTY: dict[str, Any] = copy.deepcopy(PROFILE)
del PLENTY["offers"]["small"]["stock"]
OWN: dict[str, Any] = copy.deepcopy(PLENTY)
for _place, _price in enumerate(("1", "2.5")):
    OWN["variants"]["m"]["runs"][_place]["price_per_hour"] = _price


def test_a_factor_on_prices_is_on_what_is_paid_and_an_offer_that_nobody_pays_is_refused() -> None:
    same = hp.whatif(PLENTY, SLO, vary=["prices:small=0.5,1,2"], confirm=False)
    own = hp.whatif(OWN, SLO, vary=["prices:small=0.5,1,2"], confirm=False)
    assert [point["value"] for point in own.points] == [point["value"] for point in same.points]
    assert len({point["value"] for point in own.points}) > 1
    for name in ("price:small=0.5,1", "profile.machines.small.price_per_hour=0.5,1"):
        with pytest.raises(InputError, match=r"its own price.*prices:small=0.5:2.*runs\.small\.price_per_hour"):
            hp.whatif(OWN, SLO, vary=[name], confirm=False)
    by_path = hp.whatif(OWN, SLO, vary=["profile.models.m.runs.small.price_per_hour=0.5,1,2"], confirm=False)
    assert [point["value"] for point in by_path.points] == [point["value"] for point in own.points]
    one: dict[str, Any] = copy.deepcopy(OWN)
    del one["variants"]["m"]["runs"][0]["price_per_hour"]
    assert len({point["value"] for point in hp.whatif(one, SLO, vary=["price:small=0.5,2"], confirm=False).points}) > 1
    with pytest.raises(InputError, match=r"models\.m\.runs\.(big|small).*its own price"):
        robust_for(hp.load(OWN, SLO))


def test_a_factor_on_prices_is_on_what_is_paid_ahead_too() -> None:
    profile: dict[str, Any] = copy.deepcopy(PROFILE)
    profile["offers"]["big"]["commit"] = {"term_s": 3600, "upfront": "2", "price_per_hour": "1.5"}
    files = Files.of(load_inputs(profile, SLO))
    dearer = axis_of("prices=2", files).written(files.documents, 2.0)["profile"]["offers"]["big"]
    assert (dearer["price_per_hour"], dearer["commit"]["upfront"], dearer["commit"]["price_per_hour"]) == (
        "5",
        "4",
        "3",
    )


def test_ray_that_is_not_there_is_said_so() -> None:
    try:
        import ray  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match="Ray cannot be used here"):
            found("rate=100,200", spread=Spread(on="ray"))
    with pytest.raises(InputError, match="ray or ray:ADDRESS"):
        Spread(on="spark")


def _answers(held: socket.socket, said: bytes) -> None:
    """A server that answers the first words of a caller with these, or with nothing for as long as he waits."""
    caller, _ = held.accept()
    with caller:
        caller.recv(1000)
        if said:
            caller.sendall(said)
        with suppress(ConnectionResetError):
            caller.recv(1000)


@pytest.mark.slow
@pytest.mark.parametrize("named", ["ray:{at}", "ray:ray://{at}", "ray"])
def test_a_cluster_that_does_not_answer_as_ray_does_is_refused_before_ray_waits_for_it(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray itself would try for minutes: it is not even imported."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{held.getsockname()[1]}"
        if named == "ray":
            monkeypatch.setenv("RAY_ADDRESS", at)
        began = time.monotonic()
        with pytest.raises(InputError) as refused:
            Spread(on=named.format(at=at))
        assert time.monotonic() - began < 60
        (fault,) = refused.value.faults
        assert fault.file == "--on"
        assert at in fault.value
        assert "no Ray cluster answers at" in fault.why
        assert "ray start --head" in fault.remedy
        held.listen()
        for said, taken in ((b"\0\0\0\4\0\0\0\0\0", True), (b"HTTP/1.0 400 Bad Request", False), (b"", False)):
            server = threading.Thread(target=_answers, args=(held, said))
            server.start()
            if taken:
                Spread(on=named.format(at=at))
            else:
                with pytest.raises(InputError, match=f"no Ray cluster answers at .*{at}.*"):
                    Spread(on=named.format(at=at))
            server.join()
    with pytest.raises(InputError, match="Port"):
        Spread(on="ray:127.0.0.1:head")
    Spread(on="ray:auto")


@pytest.mark.slow
def test_of_a_fleet_only_the_values_named_are_tried_and_robustness_is_refused() -> None:
    web: Any = SLO["apps"]["web"]  # type: ignore[index]
    app = {**web, "question": "pool", "rate_qps": 60}
    slo = {"format": "hetplan/slo/1.0", "horizon": {"period_s": 3600, "periods": 2}, "apps": {"web": app}}
    found = hp.whatif(PROFILE, slo, vary="price:big=1:5:3", formulation="fleet")
    assert [point["values"] for point in found.points] == [[1.0], [3.0], [5.0]]
    costs = [point["value"] for point in found.points]
    assert costs == sorted(costs)
    assert [point["cost_per_hour"] for point in found.points] == pytest.approx(costs)
    assert len(found.breakpoints) == len({str(point["fleet"]) for point in found.points}) - 1 > 0
    assert "none was tried between" in found.notes[-1]
    with pytest.raises(InputError, match="hundreds of plans"):
        robust_for(hp.load(PROFILE, slo), question="fleet")


def test_a_sized_plan_that_a_harder_value_betters_is_said_so() -> None:
    files = Files.of(load_inputs(PROFILE, SLO))
    sweep = room._Sweep(room.Asked.of(files, [axis_of("rate=100,200,300", files)]), Spread(), 9)

    def at(rate: float, value: float) -> dict[str, Any]:
        return {"values": [rate], "ok": True, "value": value, "sense": "min", "about": "cost_per_hour"}

    assert list(sweep._dearer([at(100, 1.0), at(200, 3.0), at(300, 2.0)])) == [
        "at 200 the plan of 300 does too, and better: cost_per_hour 2"
    ]
    assert list(sweep._dearer([at(100, 1.0), at(200, 2.0), at(300, 2.0)])) == []


TEXT = {"p95_ms": 9000, "ttft_p95_ms": 600, "tpot_p95_ms": 40, "p99.9_ms": 9500}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("ttft_p95:web", "ttft_p95_ms"),
        ("tpot_p95", "tpot_p95_ms"),
        ("response_p95:web", "p95_ms"),
        ("p99.9", "p99.9_ms"),
        ('slo.apps.web.latency["p99.9_ms"]', "p99.9_ms"),
        ("slo.apps.web.latency.p99.9_ms", "p99.9_ms"),
    ],
)
def test_a_limit_is_named_by_its_time_and_percentile(name: str, key: str) -> None:
    slo = {**SLO, "apps": {"web": {**SLO["apps"]["web"], "latency": TEXT}}}
    axis = axis_of(f"{name}=1:5", Files.of(load_inputs(PROFILE, slo)))
    assert axis.path == ("slo", ("apps", "web", "latency", key))


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ("p95:web=1:5", "3 limits of that percentile.*response_p95:web or ttft_p95:web or tpot_p95:web"),
        ("ttft_p99:web=1:5", "no limit of that percentile"),
        ('slo.apps.web.latency["p95_ms=1:5', "a path that can be read"),
        ("slo.apps.[=1:5", "a path that can be read"),
    ],
)
def test_a_name_of_no_one_limit_is_refused(vary: str, said: str) -> None:
    slo = {**SLO, "apps": {"web": {**SLO["apps"]["web"], "latency": TEXT}}}
    with pytest.raises(InputError, match=said):
        axis_of(vary, Files.of(load_inputs(PROFILE, slo)))


@pytest.mark.parametrize("place", ["slo.limits.changes", "slo.limits.survive.machines"])
def test_a_number_that_is_not_there_yet_stays_whole_where_only_those_are_read(place: str) -> None:
    files = Files.of(load_inputs(PROFILE, SLO))
    axis = axis_of(f"{place}=0:3", files)
    assert axis.values == (0.0, 1.0, 2.0, 3.0)
    read = files.inputs_with(axis.written(files.documents, 2.0)).slo.limits
    assert 2 in (read.changes, read.survive.machines)
    assert axis_of("slo.apps.web.network_ms_per_hop=0:3", files).kind == "number"

"""A plan with periods, played: changes of hour, machines that start ahead, zones that fail, spot that is taken back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hetplan as hp
from hetplan.cli.app import build_app
from hetplan.errors import InputError
from hetplan.planner.contract import Event
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_file import PERIODS
from hetplan.profiles.plan_periods import inputs_of_part, of_part
from hetplan.profiles.state import State
from hetplan.simulator.day import HowPlayed, play_day
from hetplan.simulator.simulate import simulate
from hetplan.simulator.spot_record import SpotRecord, read_spot

PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "hardware": {"gpu": {"kind": "gpu", "startup_s": 40}},
    "zones": {"a": {}, "b": {}},
    "offers": {
        "gpu-a": {"hardware": "gpu", "zone": "a", "price_per_hour": "1"},
        "gpu-b-spot": {"hardware": "gpu", "zone": "b", "price_per_hour": "0.3", "interruptions_per_hour": 2},
    },
    "tasks": {"rank": {}},
    "variants": {"m": {"task": "rank", "runs": [{"hardware": "gpu", "latency": "t"}]}},
    "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [10]}},
}
SERIES = (60.0, 60.0, 300.0, 60.0)
SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0",
    "limits": {"survive": {"zones": 1, "serve": 1.0}},
    "horizon": {"period_s": 3600, "periods": 4},
    "apps": {
        "rank": {
            "question": "pool",
            "model": "m",
            "latency": {"p95_ms": 60},
            "rate_qps": {"series": list(SERIES)},
        }
    },
}


def part(rate: float, a: int, b: int) -> dict[str, Any]:
    counts = {"gpu-a": a, "gpu-b-spot": b}
    workers = [
        {"id": f"w-{offer}", "hardware": "gpu", "offer": offer, "count": count,
         "loads": [{"id": f"l-{offer}", "app": "rank", "variant": "m", "at": {}}]}
        for offer, count in counts.items() if count
    ]  # fmt: skip
    return {
        "question": "pool", "method": {"formulation": "pool-milp"}, "rate_qps": {"rank": rate}, "workers": workers,
        "routing": {"rank": [{"to": {f"l-{offer}": n / (a + b) for offer, n in counts.items() if n}}]},
        "dispatch": {"rank": {"rule": "earliest/1", "slo_ms": 60}},
    }  # fmt: skip


def day(counts: tuple[tuple[int, int], ...] = ((1, 1), (1, 1), (5, 1), (1, 1)), **more: Any) -> tuple[Plan, Any]:
    sizes = sorted(set(zip(SERIES, counts, strict=True)))
    names = {size: f"rank-{n}" for n, size in enumerate(sizes)}
    plan = Plan.model_validate(
        {
            "question": "fleet", "requires": [PERIODS], "method": {"formulation": "fleet"},
            "inputs": {"profile": "sha256:0", "slo": "sha256:1"},
            "periods": [
                {"id": f"p{n}", "start_s": 3600.0 * n, "end_s": 3600.0 * n + 3600.0, "parts": [names[size]]}
                for n, size in enumerate(zip(SERIES, counts, strict=True))
            ],
            "parts": {name: part(rate, *count) for (rate, count), name in names.items()},
        }
        | more
    )  # fmt: skip
    return plan, load_inputs(PROFILE, SLO)


HOW = HowPlayed(seeds=2, queries=4e4, situations=())


def test_hours_alike_are_played_once_and_stand_for_all() -> None:
    seen: list[Event] = []
    report = play_day(*day(), HOW, on_event=seen.append)
    assert [one.done for one in seen] == sorted(one.done or 0.0 for one in seen)
    assert len(seen) == report.windows
    assert seen[-1].done == 1.0
    assert [hour.as_played for hour in report.hours] == ["p0", "p0", "p2", "p3"]
    assert report.windows == 3
    assert report.stands_for == pytest.approx(3600 * sum(SERIES))
    assert report.played < 0.5 * report.stands_for
    assert report.ok
    assert all(hour.in_time["rank"].value > 0.97 for hour in report.hours)


def test_machines_start_ahead_of_the_hour() -> None:
    """Five times the load in the third hour: in time from its first minute, though machines take 40 s to start."""
    report = play_day(*day(), HOW)
    assert report.hours[2].in_time["rank"].value > 0.992
    small = play_day(*day(((1, 1), (1, 1), (1, 0), (1, 1))), HOW)
    assert small.hours[2].in_time["rank"].value < 0.7
    assert [one.split(":")[0] for one in small.broken] == ["p2"]
    # What has piled up is answered in the hour after it.
    assert small.hours[3].in_time["rank"].value < small.hours[0].in_time["rank"].value


def test_the_worst_hour_of_a_failure_is_found() -> None:
    """Without zone a, one machine is left of six where 300 a second come; 60 a second are carried by one."""
    report = play_day(*day(), HowPlayed(seeds=2, queries=4e4, situations=("zone a lost", "zone b lost")))
    lost = {one.situation: one for one in report.failures}
    assert lost["zone a lost"].period == "p2"
    assert lost["zone a lost"].after["rank"].value < 0.3
    assert lost["zone b lost"].after["rank"].value > 0.9
    quiet = play_day(*day(), HowPlayed(seeds=2, queries=4e4, situations=("zone a lost",), hour=0))
    assert quiet.failures[0].period == "p0"
    assert quiet.failures[0].after["rank"].value > 0.9
    with pytest.raises(InputError, match="zone a lost; zone b lost"):
        play_day(*day(), HowPlayed(situations=("flood",)))


@pytest.mark.parametrize("hour", [-1, 4, 9])
def test_an_hour_that_the_plan_has_not_is_refused_before_anything_is_played(hour: int) -> None:
    seen: list[Event] = []
    with pytest.raises(InputError, match="0 to 3"):
        play_day(*day(), HowPlayed(situations=("zone a lost",), hour=hour), on_event=seen.append)
    assert not seen


def test_a_machine_that_a_failure_leaves_idle_takes_none_that_works() -> None:
    """Without zone b five machines are left; the plan uses four, whichever those are: all four serve."""
    made, inputs = day(((1, 1), (1, 1), (5, 1), (1, 1)))
    held = made.model_dump(mode="json", exclude={"digest"})
    held["parts"]["left"] = part(300.0, 4, 0)
    held["periods"][2]["failures"] = {"zone b lost": ["left"]}
    how = HowPlayed(seeds=2, queries=4e4, situations=("zone b lost",), hour=2)
    lost = play_day(Plan.model_validate(held), inputs, how).failures[0]
    assert lost.after["rank"].value > 0.95
    held["parts"]["left"] = part(300.0, 3, 0)
    assert play_day(Plan.model_validate(held), inputs, how).failures[0].after["rank"].value < 0.5


def test_a_machine_that_goes_over_to_another_batch_loads_nothing() -> None:
    """Two machines that differ by how they wait for a batch are one group after a failure; their model takes 100 s."""
    made, _ = day()
    held = made.model_dump(mode="json", exclude={"digest"})
    profile = json.loads(json.dumps(PROFILE))
    profile["variants"]["m"]["runs"][0]["load_s"] = 100
    apart = part(60.0, 1, 1)
    (first, spot), serve = apart["workers"], {"max_batch": 1, "max_wait_ms": 1.0, "concurrency": 1}
    load = {**first["loads"][0], "id": "l-other", "serve": serve}
    apart["workers"] = [first, {**first, "id": "w-other", "loads": [load]}, spot]
    apart["routing"]["rank"][0]["to"] = {"l-gpu-a": 0.3, "l-other": 0.3, "l-gpu-b-spot": 0.4}
    held["parts"] = {"apart": apart, "left": part(150.0, 2, 0)}
    for one in held["parts"].values():
        one |= {"question": "variants", "dispatch": {"rank": {"rule": "shares/1"}}}
    held["periods"] = [{**held["periods"][0], "parts": ["apart"], "failures": {"zone b lost": ["left"]}}]
    slo = json.loads(json.dumps(SLO))
    slo["horizon"]["periods"], slo["apps"]["rank"]["rate_qps"] = 1, {"series": [150.0]}
    how = HowPlayed(seeds=2, queries=4e4, situations=("zone b lost",))
    lost = play_day(Plan.model_validate(held), load_inputs(profile, slo), how).failures[0]
    assert lost.after["rank"].value > 0.85


def test_spot_machines_come_and_go_as_recorded(tmp_path: Path) -> None:
    """The one spot machine is gone for the busy hour: three machines carry 300 a second worse than four."""
    file = tmp_path / "spot.json"
    file.write_text(json.dumps({"metadata": {"gap_seconds": 1800}, "data": [16, 16, 16, 16, 0, 0, 16, 16]}))
    record = read_spot(file)
    assert record == SpotRecord(1800.0, (16, 16, 16, 16, 0, 0, 16, 16))
    counts = ((1, 1), (1, 1), (3, 1), (1, 1))
    there = play_day(*day(counts), HOW)
    gone = play_day(*day(counts), HowPlayed(seeds=2, queries=4e4, situations=(), spot={"gpu-b-spot": record}))
    assert gone.taken == 1
    assert gone.hours[2].in_time["rank"].value < there.hours[2].in_time["rank"].value - 0.02
    assert gone.hours[0].in_time["rank"].value == pytest.approx(there.hours[0].in_time["rank"].value, abs=0.02)
    file.write_text('{"data": [1]}')
    with pytest.raises(InputError, match=r"spot\.json"):
        read_spot(file)


def test_spot_machines_are_taken_at_their_rate() -> None:
    """Two an hour over four hours: some eight, each back after 40 s."""
    report = play_day(*day(), HowPlayed(seeds=1, queries=2e4, situations=(), spot_by_rate=True))
    assert 2 <= report.taken <= 16
    assert report.segments >= 4 + report.taken


def test_spot_machines_that_come_back_within_an_hour_serve_again() -> None:
    """Gone for a third of the busy hour, and for all of it: three machines of four cannot carry it."""
    counts = ((1, 1), (1, 1), (3, 1), (1, 1))
    late = [
        1.0 - play_day(*day(counts), replace(HOW, spot={"gpu-b-spot": record})).hours[2].in_time["rank"].value
        for record in (SpotRecord(1200.0, (1,) * 6 + gone + (1,) * 3) for gone in ((0, 1, 1), (0, 0, 0)))
    ]
    assert late[0] < 0.7 * late[1]


def test_with_a_state_machines_that_do_not_run_yet_come_late() -> None:
    """Nothing runs: for 40 s nobody is answered. What runs already, under any name, serves at once."""
    worker = {"id": "old", "hardware": "gpu", "offer": "gpu-a", "count": 1,
              "loads": [{"id": "o", "app": "rank", "variant": "m", "at": {}}]}  # fmt: skip
    shares = []
    for workers in ([], [worker]):
        state = {"format": "hetplan/state/1.0", "workers": workers}
        report = play_day(day()[0], load_inputs(PROFILE, SLO, state=state), HOW)
        shares.append(report.hours[0].in_time["rank"].value)
        assert report.hours[1].in_time["rank"].value > 0.97
    assert shares[0] < shares[1] - 0.005
    assert shares[1] > 0.97


EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fleet"


@pytest.fixture(scope="module")
def text() -> tuple[Plan, Any]:
    """The assistant of the shipped fleet alone, over three hours."""
    slo = json.loads((EXAMPLE / "slo.json").read_text())
    slo["apps"] = {"assistant": slo["apps"]["assistant"]}
    slo["apps"]["assistant"]["rate_qps"] = {"series": [5.0, 12.0, 5.0]}
    slo["horizon"] |= {"periods": 3, "repeats": 240}
    options = {"savings": False, "gap": 0.05}
    plan = hp.solve(str(EXAMPLE / "profile.json"), slo, options=options, formulation="fleet").require()
    return plan, load_inputs(str(EXAMPLE / "profile.json"), slo)


@pytest.mark.slow
def test_text_is_played_within_its_day_as_the_plan_of_its_hour_is(text: tuple[Plan, Any]) -> None:
    plan, inputs = text
    how = HowPlayed(seeds=2, situations=("zone east lost",))
    report = play_day(plan, inputs, how)
    first, second, third = (hour.in_time["assistant"] for hour in report.hours)
    assert first == third
    (name,) = plan.periods[1].parts or ("",)
    alone = simulate(of_part(plan, name), inputs_of_part(inputs, {"assistant": 12.0}), seeds=2)
    assert second.value == pytest.approx(alone.apps["assistant"].figures["goodput"].value, abs=1e-3)
    assert second.value > 0.9
    (lost,) = report.failures
    assert 0.9 < lost.after["assistant"].value < first.value
    assert 0.1 < lost.at_first["assistant"].value < lost.after["assistant"].value, "what a zone was making starts over"
    assert report.ok
    assert plan.parts is not None
    workers = tuple(one.model_copy(update={"count": 1}) for one in plan.parts[name].workers[:1])
    fewer = plan.parts[name].model_copy(update={"workers": workers, "routing": {}})
    small = play_day(
        plan.model_copy(update={"parts": {**plan.parts, name: fewer}}), inputs, replace(how, situations=())
    )
    assert small.hours[1].in_time["assistant"].value < 0.8
    assert small.broken == ("p1: assistant",)


@pytest.mark.slow
def test_text_on_spot_machines_and_from_a_state_has_fewer_machines(text: tuple[Plan, Any]) -> None:
    plan, inputs = text
    offers = {worker.offer for part in (plan.parts or {}).values() for worker in part.workers}
    gone = SpotRecord(3600.0, (1, 0, 1))
    less = play_day(plan, inputs, HowPlayed(seeds=1, situations=(), spot={str(one): gone for one in offers}))
    assert [round(hour.in_time["assistant"].value, 1) for hour in less.hours] == [1.0, 0.0, 1.0]
    nothing = replace(inputs, state=State())
    late = play_day(plan, nothing, HowPlayed(seeds=1, situations=())).hours[0].in_time["assistant"].value
    starts_s = max(inputs.profile.hardware[inputs.profile.offers[str(one)].hardware].startup_s for one in offers)
    assert late == pytest.approx(1.0 - starts_s / 3600.0, abs=0.02)


def test_a_plan_without_parts_is_refused() -> None:
    plan, inputs = day()
    with pytest.raises(InputError, match="hetplan simulate"):
        play_day(plan.model_copy(update={"parts": None}), inputs)


@pytest.mark.slow
def test_the_command_plays_a_day(tmp_path: Path) -> None:
    from hetplan.profiles.plan_file import with_digest, write_plan

    plan, profile, slo = tmp_path / "plan.json", tmp_path / "profile.json", tmp_path / "slo.json"
    write_plan(with_digest(day(((1, 1), (1, 1), (1, 0), (1, 1)))[0]), plan)
    profile.write_text(json.dumps(PROFILE))
    slo.write_text(json.dumps(SLO))
    files = ("simulate", str(plan), str(profile), str(slo))
    found = CliRunner().invoke(build_app(), [*files, "--fail", "zone b lost@2", "--seeds", "2", "--json"])
    assert found.exit_code == 6, found.output
    report = json.loads(found.stdout.splitlines()[-1])["report"]
    assert report["broken"] == ["p2: rank", "p2, zone b lost: rank"]
    assert [one["period"] for one in report["failures"]] == ["p2"]
    shown = CliRunner().invoke(build_app(), [*files, "--spot", "rate", "--seeds", "2"])
    assert "spot machines were taken back" in shown.output
    for more, why in (
        (("--spot", "c=x.json"), "offer"),
        (("--baselines",), "--baselines"),
        (("--replan", "5", "--fail", "zone b lost"), "--fail"),
        (("--fail", "a@x"), "number"),
        (("--fail", "zone b lost@9"), "0 to 3"),
        (("--fail", "zone b lost@4"), "0 to 3"),
        (("--spot", "gpu-b-spot=rate"), "--spot rate"),
        (("--spot", "rate", "--spot", "gpu-b-spot=x.json"), "--spot rate alone"),
    ):
        refused = CliRunner().invoke(build_app(), [*files, *more])
        assert refused.exit_code == 2
        assert why in refused.output

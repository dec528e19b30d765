"""Ways to serve one demand: tuned to one share in time, on the same queries; the order that must come out."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hetplan as hp
from hetplan.cli.app import build_app
from hetplan.dispatch.forecasting import Forecast
from hetplan.errors import InputError
from hetplan.planner.spread import Spread
from hetplan.profiles.load import load_inputs
from hetplan.profiles.rates import read_rates
from hetplan.serving.planned_system import planned_systems
from hetplan.simulator.system_changes import Names
from hetplan.studies import strategies as compared_ways
from hetplan.studies.strategies import WAYS, Compared, compare_ways

POOL = Path(__file__).resolve().parents[2] / "examples" / "pool"


@pytest.fixture(scope="module")
def case() -> tuple[Any, Any]:
    """The shipped pool at the least cost for 80 queries a second, sized by its formula."""
    slo = json.loads((POOL / "slo.json").read_text())
    slo |= {"objective": ["min cost"], "limits": {}}
    slo["apps"]["ranking"]["rate_qps"] = 80
    inputs = load_inputs(str(POOL / "profile.json"), slo)
    return hp.solve(str(POOL / "profile.json"), slo, options={"sizing": "fluid"}).require(), inputs


ALL_WAYS = Compared({"ranking": (40.0, 160.0, 40.0)}, 400.0, {"ranking": (40.0, 160.0, 40.0)}, attain=0.95)
"""Some minutes low, as many high, as many low."""
TWO_WAYS = replace(ALL_WAYS, ways=("plan", "HPA"))


@pytest.fixture(scope="module")
def compared(case: tuple[Any, Any]) -> Any:
    return compare_ways(*case, ALL_WAYS)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ways") / "ways.jsonl"


@pytest.fixture(scope="module")
def two(case: tuple[Any, Any], journal: Path) -> Any:
    return compare_ways(*case, TWO_WAYS, spread=Spread(journal=journal))


@pytest.mark.slow
def test_every_way_reaches_what_is_asked_at_its_cheapest_setting(compared: Any) -> None:
    assert [row.way for row in compared.rows] == list(WAYS)
    for row in compared.rows:
        if row.way == "plan":
            continue
        assert row.best is not None, row.way
        assert row.best.in_time["ranking"] >= 0.95
        reached = [one for one in row.tried if one.in_time["ranking"] >= 0.95]
        assert row.best.cost_per_hour == min(one.cost_per_hour for one in reached)
    money = {row.way: row.nearest.cost_per_hour for row in compared.rows}
    assert compared.least < min(money[way] for way in WAYS if way != "plan")
    assert money["perfect foresight"] < money["static, best mix"] <= money["static, one type"]
    assert len({row.nearest.queries for row in compared.rows}) == 1, "the same queries"


@pytest.mark.slow
def test_a_chosen_setting_is_reported_under_queries_that_it_was_not_tuned_on(case: tuple[Any, Any]) -> None:
    what = Compared({"ranking": (40.0, 160.0)}, 100.0, attain=0.95, ways=("HPA",), seed=3)
    (row,) = compare_ways(*case, what).rows
    assert row.fresh is not None
    assert row.shown is row.fresh
    assert row.best is not None
    assert (row.fresh.setting, row.fresh.value) == (row.best.setting, row.best.value)
    (other,) = compare_ways(*case, replace(what, seed=4, fresh=0)).rows
    assert other.fresh is None
    assert other.shown is other.nearest
    same = next(one for one in other.tried if one.setting == row.fresh.setting)
    assert row.fresh == same, "played as seed 4 plays it"
    assert row.fresh.queries != row.best.queries


@pytest.mark.slow
def test_a_plan_is_played_as_it_is(case: tuple[Any, Any], compared: Any) -> None:
    """Made for 80, it is late under 160; its money is its machines'."""
    (row,) = [one for one in compared.rows if one.way == "plan"]
    bill = next(one.value for one in case[0].promises if one.quantity == "cost_per_hour")
    assert row.nearest.cost_per_hour == pytest.approx(bill, rel=1e-3)


def csv_says_every_setting(compared: Any, ways: int) -> None:
    rows = list(csv.DictReader(io.StringIO(compared.as_csv())))
    assert sum(int(row["chosen"] or 0) for row in rows) == ways
    fresh = [row for row in rows if row["fresh"] == "1"]
    assert len(rows) == 1 + len(fresh) + sum(len(row.tried) for row in compared.rows)
    hpa = next(row for row in compared.rows if row.way == "HPA").best
    said = next(row for row in rows if row["way"] == "HPA" and row["chosen"] == "1")
    timely = hpa.timely * 3  # in twenty minutes
    assert float(said["cost_per_million_in_time"]) == pytest.approx(1e6 * hpa.cost_per_hour / timely)
    assert float(said["cost_per_month"]) == pytest.approx(730 * hpa.cost_per_hour)
    assert compared.as_dict()["ways"][0]["way"] == "plan"


@pytest.mark.slow
def test_csv_and_json_say_every_setting(two: Any) -> None:
    csv_says_every_setting(two, 2)


@pytest.mark.slow
def test_of_all_ways_too_and_each_is_what_it_is_among_few(compared: Any, two: Any) -> None:
    csv_says_every_setting(compared, len(WAYS))
    assert list(two.rows) == [row for row in compared.rows if row.way in TWO_WAYS.ways]


def test_ways_that_a_journal_has_are_not_played_again(
    case: tuple[Any, Any], two: Any, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compared_ways, "_tuned_way", _tuned_way)
    again = compare_ways(*case, TWO_WAYS, spread=Spread(journal=journal))
    assert again.as_csv() == two.as_csv()
    with pytest.raises(InputError, match="another study"):
        compare_ways(*case, replace(TWO_WAYS, seed=3), spread=Spread(journal=journal))


def _tuned_way(*_: Any) -> Any:
    raise AssertionError("played again")


@pytest.mark.slow
def test_ways_side_by_side_say_the_same(case: tuple[Any, Any], compared: Any) -> None:
    assert compare_ways(*case, ALL_WAYS, spread=Spread(jobs=2)).as_csv() == compared.as_csv()


FLEET_PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "hardware": {"gpu": {"kind": "gpu", "startup_s": 2}},
    "zones": {"a": {}, "b": {}},
    "offers": {
        "od": {"hardware": "gpu", "zone": "a", "price_per_hour": "1", "commit": {"term_s": 400, "discount": 0.6}},
        "spot": {"hardware": "gpu", "zone": "b", "price_per_hour": "0.3", "interruptions_per_hour": 0.1, "stock": 1},
    },
    "tasks": {"rank": {}},
    "variants": {"m": {"task": "rank", "runs": [{"hardware": "gpu", "latency": "t"}]}},
    "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [10]}},
}  # fmt: skip
FLEET_SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0",
    "horizon": {"period_s": 200, "periods": 2},
    "apps": {
        name: {"question": "pool", "model": "m", "latency": {"p95_ms": 80},
               "rate_qps": {"series": series}, "mix": {"axes": ["batch"], "bins": [[1]], "share": [1]}}
        for name, series in (("rank", [30.0, 110.0]), ("sort", [30.0, 30.0]))
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def fleet() -> tuple[Any, Any]:
    inputs = load_inputs(FLEET_PROFILE, FLEET_SLO)
    options = {"savings": False, "sizing": "fluid"}
    return hp.solve(FLEET_PROFILE, FLEET_SLO, options=options, formulation="fleet").require(), inputs


FLEET_SERIES = {name: tuple(app["rate_qps"]["series"]) for name, app in FLEET_SLO["apps"].items()}
FLEET_WAYS = ("static, one type", "static, best mix", "HPA", "perfect foresight")


@pytest.mark.slow
def test_a_plan_with_periods_is_played_hour_by_hour_and_costs_its_bill(fleet: tuple[Any, Any]) -> None:
    plan, inputs = fleet
    what = Compared(FLEET_SERIES, 200.0, attain=0.9, ways=("plan",))
    found = compare_ways(plan, inputs, what)
    assert found.rows[0].best is not None
    assert found.rows[0].best.cost_per_hour == pytest.approx(plan.bill.cost_per_hour)
    assert found.least is not None
    assert found.least <= plan.bill.cost_per_hour
    # From the second hour on: the plan is in its second hour, too, at what that hour costs.
    busy = {name: (rates[1],) for name, rates in FLEET_SERIES.items()}
    late = replace(what, series=busy, begin_s=200.0)
    (row,) = compare_ways(plan, inputs, late).rows
    assert row.best is not None
    lines = [line.cost_per_hour for line in plan.bill.lines if line.period == "p1"]
    assert row.best.cost_per_hour == pytest.approx(sum(lines))
    (early,) = compare_ways(plan, inputs, replace(late, begin_s=0.0)).rows
    assert early.best is None, "the machines of its first hour are too few"


@pytest.mark.slow
def test_a_fleet_is_planned_anew_as_its_demand_is_seen(fleet: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plan, inputs = fleet
    monkeypatch.setattr(compared_ways, "MARGINS", ((1.0, 1.3), (0.5, 0.5)))
    what = Compared(FLEET_SERIES, 200.0, attain=0.8, ways=("replanning, ewma", "static, best mix"), fresh=0)
    anew, static = compare_ways(plan, inputs, what).rows
    assert anew.best is not None
    assert static.best is not None
    assert anew.best.cost_per_hour < static.best.cost_per_hour, "fewer machines while few queries come"
    assert anew.best.in_time["rank"] < 1.0, "what grows is seen late"
    assert anew.best.in_time["sort"] > anew.best.in_time["rank"]
    assert min(one.cost_per_hour for one in anew.tried) < anew.best.cost_per_hour, "the bolder setting is too bold"


@pytest.mark.slow
def test_beside_a_plan_with_periods_others_rent_by_the_hour(fleet: tuple[Any, Any]) -> None:
    plan, inputs = fleet
    found = compare_ways(plan, inputs, Compared(FLEET_SERIES, 200.0, attain=0.9, ways=FLEET_WAYS))
    money = {row.way: row.best.cost_per_hour for row in found.rows if row.best is not None}
    assert money.keys() == set(FLEET_WAYS)
    assert found.least is not None
    assert found.least <= plan.bill.cost_per_hour < min(money.values())
    assert money["static, one type"] == pytest.approx(3.0, rel=1e-4), "two machines for 110, one for 30, on demand"
    assert money["static, best mix"] == pytest.approx(3.0, rel=1e-4), "no spot machines either"
    assert money["perfect foresight"] < 3.0, "which may rent a spot machine, by the hour"


@pytest.mark.slow
def test_text_is_compared_with_machines_that_start_and_end_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [str(POOL.parent / "llm" / name) for name in ("profile.json", "slo.json")]
    plan = hp.solve(*files, options={"sizing": "fluid"}).require()
    inputs = load_inputs(*files)
    monkeypatch.setattr(compared_ways, "SHARES", (1.1,))
    monkeypatch.setattr(compared_ways, "MARGINS", ((0.5, 1.1),))
    monkeypatch.setattr(compared_ways, "TEXT_SCALERS", {"HPA": (0.5, 1.0), "concurrency": (0.5,)})
    ways = ("plan", "static, one type", "perfect foresight", "replanning, ewma", "HPA", "concurrency")
    what = Compared({"assistant": (5.0, 25.0)}, 600.0, ways=ways, fresh=0)
    found = compare_ways(plan, inputs, what)
    assert found.attain == {"assistant": 0.9}
    money = {row.way: row.best.cost_per_hour for row in found.rows if row.best is not None}
    bill = next(one.value for one in plan.promises if one.quantity == "cost_per_hour")
    assert money["plan"] == pytest.approx(bill)
    assert found.least is not None
    assert found.least < money["perfect foresight"] < money["static, one type"]
    foreseen, anew = found.rows[2].tried[0], found.rows[3].tried[0]
    assert found.least < anew.cost_per_hour < money["static, one type"]
    assert foreseen.stretches["assistant"][0] == pytest.approx(anew.stretches["assistant"][0], abs=0.02)
    assert anew.stretches["assistant"][1] < foreseen.stretches["assistant"][1], "late until the new machines serve"
    for row in found.rows[4:]:
        assert found.least < row.tried[0].cost_per_hour
        assert row.tried[0].queries == anew.queries, "the same requests"
    dear, cheap = found.rows[4].tried
    assert dear.cost_per_hour > cheap.cost_per_hour
    assert dear.late < cheap.late
    assert "per million tokens in time" in found.rows[0].note
    (small,) = compare_ways(plan, inputs, replace(what, series={"assistant": (60.0,)}, ways=("plan",))).rows
    assert small.best is None, "made for 25 a second, it is late under 60"
    for rates, why in (((25.0,) * 1000, "1.5e+07 requests"), ((0.0, 0.0), "nothing comes")):
        rows = compare_ways(plan, inputs, replace(what, series={"assistant": rates}, ways=("HPA", ways[3]))).rows
        assert all(row.best is None and why in row.note for row in rows)
    with pytest.raises(InputError, match="no rates are given"):
        compare_ways(plan, inputs, replace(what, series={"other": (1.0,)}))
    with pytest.raises(InputError, match="take what their law says"):
        compare_ways(plan, inputs, replace(what, noise="p95"))


@pytest.mark.longest
def test_text_and_others_of_one_fleet_are_tuned_apart_and_their_money_is_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    example = POOL.parent / "fleet"
    slo = json.loads((example / "slo.json").read_text())
    del slo["apps"]["photos"]
    slo["horizon"] |= {"periods": 2, "period_s": 120, "repeats": 21600}
    for name, rates in (("ranking", (20.0, 60.0)), ("assistant", (5.0, 12.0))):
        slo["apps"][name]["rate_qps"] = {"series": list(rates)}
    files = (str(example / "profile.json"), slo)
    plan = hp.solve(*files, options={"savings": False, "gap": 0.05}, formulation="fleet").require()
    inputs = load_inputs(*files)
    monkeypatch.setattr(compared_ways, "SHARES", (1.2,))
    series = {"ranking": (20.0, 60.0), "assistant": (5.0, 12.0)}
    what = Compared(series, 120.0, attain=0.8, ways=("plan", "static, best mix"))
    found = compare_ways(plan, inputs, what)
    assert found.attain == {"ranking": 0.8, "assistant": 0.8}
    ours, static = (row.best for row in found.rows)
    assert ours is not None
    assert plan.bill is not None
    assert ours.cost_per_hour == pytest.approx(plan.bill.cost_per_hour)
    assert ours.in_time.keys() == {"ranking", "assistant"}
    assert static is not None
    assert found.least is not None
    assert found.least < ours.cost_per_hour < static.cost_per_hour
    alone = compare_ways(plan, inputs, replace(what, series={**series, "assistant": (5.0, 90.0)}, ways=("plan",)))
    assert alone.rows[0].best is None, "text of 90 a second is late, whatever the rankings are"
    monkeypatch.setattr(compared_ways, "TARGETS", (0.5,))
    monkeypatch.setattr(compared_ways, "TEXT_SCALERS", {"HPA": (0.5,)})
    (scaled,) = compare_ways(plan, inputs, replace(what, ways=("HPA",), fresh=0)).rows
    assert scaled.tried[0].in_time.keys() == {"ranking", "assistant"}


def test_unknown_ways_and_applications_are_named(case: tuple[Any, Any]) -> None:
    with pytest.raises(InputError, match="no such way"):
        compare_ways(*case, Compared({"ranking": (1.0,)}, 60.0, ways=("hope",)))
    with pytest.raises(InputError, match="no rates are given"):
        compare_ways(*case, Compared({"other": (1.0,)}, 60.0))


def test_rates_in_files(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text("start_s,rate_qps\n0,10\n600,20\n1200,60\n")
    rates = read_rates(file)
    assert (rates.period_s, rates.mean_qps) == (600.0, 30.0)
    assert rates.cut(1 / 6, 1.0).times(2.0).rates_qps == (40.0, 120.0)
    for text, why in (
        ("start_s,rate_qps\n0,1\n600,2\n1300,3\n", "line 4.*not of equal length"),
        ("start_s,rate_qps\n0,1\n600,-2\n", "line 3.*0 or more"),
        ("start_s,rate_qps\n0,1\n600,many\n", "no number"),
        ("time,rate\n0,1\n1,2\n", "columns"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=why):
            read_rates(file)


def test_the_command_shows_and_writes(tmp_path: Path, case: tuple[Any, Any]) -> None:
    plan, slo, rates = tmp_path / "plan.json", tmp_path / "slo.json", tmp_path / "rates.csv"
    from hetplan.profiles.plan_file import write_plan

    write_plan(case[0], plan)
    wish = json.loads((POOL / "slo.json").read_text())
    wish["apps"]["ranking"]["rate_qps"] = 80
    slo.write_text(json.dumps(wish | {"objective": ["min cost"], "limits": {}}))
    rates.write_text("start_s,rate_qps\n0,1\n60,1\n120,1\n180,2\n240,4\n")
    files = (str(plan), str(POOL / "profile.json"), str(slo))
    more = ("--demand", str(rates), "--hours", "0.033:1", "--mean", "40", "--ways", "plan; HPA")
    shown = CliRunner().invoke(build_app(), ["compare", *files, *more, "--svg", str(tmp_path / "a.svg"), "--json"])
    assert shown.exit_code == 0, shown.output
    end = json.loads(shown.stdout.splitlines()[-1])["comparison"]
    assert [row["way"] for row in end["ways"]] == ["plan", "HPA"]
    assert end["hours"] == pytest.approx(0.05)
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    wrong = CliRunner().invoke(build_app(), ["compare", *files, "--hours", "5:3"])
    assert wrong.exit_code == 2
    assert "--hours" in wrong.output


# Forecasts


def test_a_forecast_learns_how_wrong_it_was() -> None:
    """Rates that jump by a half every tenth step, too many for chance: nine of ten forecasts are right."""
    rates = [150.0 if step % 10 == 0 else 100.0 for step in range(400)]
    half, most = (Forecast("ewma", quantile, step_s=1e6, lead_s=1e6, com=1e-9) for quantile in (0.5, 1.0))
    half.before(rates)
    most.before(rates)
    assert half.ahead() == pytest.approx(100.0, rel=1e-3)
    assert most.ahead() == pytest.approx(150.0, rel=1e-3)


def test_a_season_is_seen_coming() -> None:
    """Every day at noon demand trebles: at 11:50 of the third day, only who knows the day says so."""
    day = [300.0 if 72 <= step < 84 else 100.0 for step in range(144)]
    known = [*day, *day, *day[:71]]
    said = {}
    for kind in ("ewma", "seasonal"):
        forecast = Forecast(kind, 0.5, step_s=600.0, lead_s=1200.0)  # type: ignore[arg-type]
        forecast.before(known)
        said[kind] = forecast.ahead()
    assert said["ewma"] == pytest.approx(100.0, rel=0.05)
    assert said["seasonal"] == pytest.approx(300.0, rel=0.05)


# Names


def test_machines_that_are_alike_have_one_name_in_every_system(case: tuple[Any, Any]) -> None:
    plan, inputs = case
    names = Names()
    (first,) = (one.system for one in planned_systems(plan, inputs))
    workers = tuple(
        worker.model_copy(
            update={"id": f"x{n}", "loads": tuple(load.model_copy(update={"id": f"x{n}.z"}) for load in worker.loads)}
        )
        for n, worker in enumerate(plan.workers)
    )
    to = {f"x{n}.z": 1.0 / len(workers) for n in range(len(workers))}
    routing = {"ranking": tuple(route.model_copy(update={"to": to}) for route in plan.routing["ranking"][:1])}
    other = plan.model_copy(update={"workers": workers, "routing": routing})
    (second,) = (one.system for one in planned_systems(other, inputs))
    assert [group.id for group in names.named(first).groups] == [group.id for group in names.named(second).groups]
    assert {way.group for route in names.named(second).routes for way in route.ways} <= {
        group.id for group in names.named(first).groups
    }

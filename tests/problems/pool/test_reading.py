"""What the files may say, what they may not, and how each slip is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cases.pool import Json, by_rule, counts, decide, exactly, files, g1, g3, inputs, pose, promise

import hetplan
from hetplan.errors import InputError
from hetplan.planner.draft import Draft, Infeasibility
from hetplan.problems.pool.options import FluidOptions
from hetplan.problems.pool.question import PoolQuestion
from tests.build import answered

Change = Callable[[Json, Json], Any]


def demand(slo: Json) -> Json:
    return slo["apps"]["app"]  # type: ignore[no-any-return]


BAD: dict[str, tuple[Change, str, str]] = {
    "no budget and no rate": (lambda p, s: s["limits"].pop("cost_per_hour"), "$.limits.cost_per_hour", "neither"),
    "budget and rate": (lambda p, s: demand(s).update(rate_qps=5), "$.limits.cost_per_hour", "both given"),
    "least cost without a rate": (lambda p, s: s.update(objective=["min cost"]), "$.objective", "needs a rate"),
    "another objective": (lambda p, s: s.update(objective=["max quality"]), "$.objective", "most rate"),
    "no target": (lambda p, s: s["apps"]["app"].update(latency={}), "$.apps.app.latency", "latency target"),
    "network": (
        lambda p, s: s["apps"]["app"].update(network_ms_per_hop=100),
        "$.apps.app.network_ms_per_hop",
        "takes the whole",
    ),
    "two variants": (
        lambda p, s: answered(s["apps"]["app"], models=["m", "n"]),
        "$.apps.app.models",
        "one variant",
    ),
    "unknown variant": (lambda p, s: answered(s["apps"]["app"], model="n"), "$.apps.app.model", "one variant"),
    "demanded without a run": (
        lambda p, s: s["limits"].update(instances={"tpu": [1, None]}),
        "$.limits.instances.tpu[0]",
        "has no run on it",
    ),
    "demanded beyond stock": (
        lambda p, s: (p["offers"]["base"].update(stock=2), s["limits"].update(instances={"base": [3, None]})),
        "$.limits.instances.base[0]",
        "in stock",
    ),
    "demanded without an offer": (
        lambda p, s: (p["offers"].pop("aux"), s["limits"].update(instances={"aux": [1, None]})),
        "$.limits.instances.aux[0]",
        "it has no price",
    ),
    "free without limit": (
        lambda p, s: p["offers"]["aux"].update(price_per_hour="0"),
        "$.limits.instances.aux",
        "costs nothing",
    ),
    "price per resource": (
        lambda p, s: p["offers"]["aux"].update(per="gpu"),
        "$.hardware.aux.provides",
        "paid per unit of gpu",
    ),
    "wrong quantity": (
        lambda p, s: p["tables"]["t-aux"].update(quantity="slowdown"),
        "$.tables.t-aux.quantity",
        "latency_ms",
    ),
    "outside the table": (lambda p, s: demand(s)["mix"].update(bins=[[10], [30]]), "$.tables", "outside the table"),
    "axis that the mix does not name": (
        lambda p, s: p["tables"]["t-aux"].update(axes={"resolution": [10, 20]}),
        "$.apps.app.mix.axes",
        "resolution",
    ),
    "only runs of larger batches": (
        lambda p, s: p["variants"]["m"].update(
            runs=[{"hardware": "base", "latency": "t-base", "at": {"batch": n}} for n in (8, 16)]
        ),
        "$.variants.m.runs",
        "none says how long a single query takes",
    ),
    "history": (
        lambda p, s: demand(s).update(rate_qps={"history": [3.0]}),
        "$.apps.app.rate_qps.history",
        "stated rate",
    ),
    "changes": (lambda p, s: s["limits"].update(changes=3), "$.limits.changes", "counts no changes"),
    "survive": (lambda p, s: s["limits"].update(survive={"machines": 1}), "$.limits.survive", "plans for failures"),
    "nothing to rent": (lambda p, s: s["limits"].update(only_listed=True), "$.variants.m.runs", "no machine type"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_slip_is_reported_with_field_and_remedy(name: str) -> None:
    change, path, why = BAD[name]
    profile, slo = g1(budget=5)
    change(profile, slo)
    with pytest.raises(InputError) as caught:
        pose((profile, slo))
    reported = [fault for fault in caught.value.faults if fault.path.startswith(path) or path == "$.tables"]
    assert reported, caught.value
    assert any(why in fault.why for fault in reported)
    assert all(fault.remedy for fault in caught.value.faults)


def test_several_slips_are_reported_at_once() -> None:
    profile, slo = g1(budget=5)
    demand(slo).update(rate_qps=5)
    slo["limits"]["instances"] = {"tpu": [1, 1]}
    slo["limits"]["changes"] = 3
    with pytest.raises(InputError) as caught:
        pose((profile, slo))
    assert len(caught.value.faults) == 3


@pytest.mark.parametrize(
    ("options", "name", "why"),
    [
        ({"allow_late": 0.02}, "allow_late", "percentile 99"),
    ],
)
def test_options_that_do_not_fit_the_files(options: Json, name: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        pose(g1(budget=5), **options)
    assert [fault.path for fault in caught.value.faults] == [name]


def test_a_given_pool_leaves_no_choice() -> None:
    with pytest.raises(InputError, match="a choice"):
        decide(g1(budget=5), formulation="pool-lp")


def test_counts_may_come_from_the_limits() -> None:
    drafted = decide(g1(budget=5, instances={"base": [1, 1], "aux": [1, 1]}), formulation="pool-lp")
    assert promise(drafted, "fluid_rate_qps") == pytest.approx(85.714286, rel=1e-6)


def test_a_run_may_have_its_own_price() -> None:
    profile, slo = g1(budget=5)
    profile["variants"]["m"]["runs"][0]["price_per_hour"] = "0.01"
    assert promise(decide(exactly((profile, slo), {"base": 3}), formulation="pool-lp"), "cost_per_hour") == 0.03


def test_of_several_runs_the_one_of_single_queries_counts() -> None:
    profile, slo = g1(budget=5)
    runs = profile["variants"]["m"]["runs"]
    runs[0]["at"] = {"batch": 1}
    runs.insert(0, {"hardware": "base", "latency": "t-aux", "at": {"batch": 8}})
    assert [kind.table_id for kind in pose((profile, slo)).types] == ["t-base", "t-aux"]


def test_without_any_offer_an_instance_costs_one() -> None:
    profile, slo = g1(budget=2)
    profile["offers"] = {}
    drafted = decide(exactly((profile, slo), {"base": 2}), formulation="pool-lp")
    assert promise(drafted, "cost_per_hour") == 2
    assert isinstance(drafted, Draft)
    assert drafted.workers[0].offer is None


def test_a_price_per_resource_is_for_the_whole_machine() -> None:
    profile, slo = g1(budget=5)
    profile["hardware"]["base"]["provides"] = {"gpu_mem_gib": 16}
    profile["offers"]["base"].update(price_per_hour="0.0331", per="gpu_mem_gib")
    assert promise(decide(exactly((profile, slo), {"base": 2}), formulation="pool-lp"), "cost_per_hour") == 1.0592


def test_hardware_that_is_too_small_is_left_out() -> None:
    profile, slo = g1(budget=1)
    profile["hardware"]["aux"]["provides"] = {"mem_gib": 2}
    profile["variants"]["m"]["runs"][1]["needs"] = {"mem_gib": 3}
    problem = pose((profile, slo))
    assert [kind.hardware for kind in problem.types] == ["base"]
    assert [notice.code for notice in problem.notices] == ["W-too-small"]


def test_stock_and_resources_limit_the_pool() -> None:
    profile, slo = g3(budget=100)
    profile["offers"]["base"]["stock"] = 2
    for name, cores in (("base", 4), ("a", 2), ("b", 1)):
        profile["hardware"][name]["provides"] = {"cpu_cores": cores}
    slo["limits"]["provides"] = {"cpu_cores": 12}
    # Two bases and two a: 160 (golden case 4 at a budget of 3), all twelve cores.
    drafted = decide((profile, slo), derate=1.0)
    assert counts(drafted) == {"base": 2, "a": 2}
    assert promise(drafted, "rate_qps") == pytest.approx(160.0, rel=1e-6)


def test_observed_sizes_round_up_to_a_bin() -> None:
    profile, slo = g1(budget=5)
    demand(slo)["mix"].pop("share")
    demand(slo)["mix"]["observed"] = [[1], [10], [11], [7]]
    assert pose((profile, slo)).p.tolist() == [0.75, 0.25]


def test_bins_that_never_come_play_no_part() -> None:
    latency = {"base": [10.0, 40.0, 999.0], "aux": [20.0, 200.0, 999.0]}
    case = files(latency, [0.75, 0.25, 0.0], prices={"base": 1, "aux": "0.25"}, qos_ms=100, budget=5)
    drafted = decide(exactly(case, {"base": 1, "aux": 1}), formulation="pool-lp")
    assert promise(drafted, "fluid_rate_qps") == pytest.approx(85.714286, rel=1e-6)
    assert isinstance(drafted, Draft)
    assert len(drafted.routing["app"]) == 2


def test_one_bin_and_one_type() -> None:
    drafted = decide(files({"only": [20.0]}, [1.0], prices={"only": "0.5"}, qos_ms=20, budget="1.6"), derate=1.0)
    assert counts(drafted) == {"only": 3}
    assert promise(drafted, "rate_qps") == pytest.approx(150.0)


def test_no_mix_is_one_class() -> None:
    profile, slo = g1(budget=2)
    for name in ("base", "aux"):
        profile["tables"][f"t-{name}"] = {"quantity": "latency_ms", "mean": 25}
    demand(slo).pop("mix")
    assert PoolQuestion.fits(inputs(profile, slo)) == ()
    drafted = decide((profile, slo), derate=1.0)
    assert promise(drafted, "rate_qps") == pytest.approx(320.0)
    assert isinstance(drafted, Draft)
    assert drafted.routing["app"][0].when == {}


def test_numbers_outside_a_table_are_marked() -> None:
    profile, slo = g1(budget=5)
    demand(slo)["mix"]["bins"] = [[10], [25]]
    for name in ("base", "aux"):
        profile["tables"][f"t-{name}"]["outside"] = "linear"
    drafted = decide((profile, slo))
    assert isinstance(drafted, Draft)
    assert "W-extrapolated" in {notice.code for notice in drafted.warnings}
    assert [one.extrapolated for one in drafted.promises if one.app] == [True, True]


def test_noise_and_dips_are_reported() -> None:
    profile, slo = g1(budget=5)
    profile["tables"]["t-base"].update(mean=[50.0, 40.0], std=[10.0, 1.0])
    codes = {notice.code for notice in pose((profile, slo)).notices}
    assert codes == {"W-noisy", "W-not-monotone"}


def test_a_statistic_that_was_not_measured_is_answered_by_the_next_and_said() -> None:
    case = files({"base": [10.0, 40.0]}, [0.75, 0.25], prices={"base": 1}, qos_ms=100, budget=2)
    table = case[0]["tables"]["t-base"]
    table["p99"] = table.pop("mean")
    drafted = decide(case)
    assert isinstance(drafted, Draft)
    assert promise(drafted, "fluid_rate_qps") == pytest.approx(2 * 1000 / 17.5)
    assert [notice.text for notice in drafted.warnings if notice.code == "W-statistic"] == [
        "mean was not measured: p99 is used instead"
    ]


def test_the_point_of_a_run_wins_over_the_knobs_of_its_variant() -> None:
    profile, slo = g1(budget=5)
    profile["tables"]["t-base"] = {
        "quantity": "latency_ms",
        "axes": {"batch": [10, 20], "size": [320, 640]},
        "mean": [[10, 20], [40, 80]],
    }
    (variant,) = profile["variants"].values()
    variant["knobs"] = {"size": 320}
    next(run for run in variant["runs"] if run["latency"] == "t-base")["at"] = {"size": 640}
    problem = pose((profile, slo))
    assert problem.L[:, [kind.hardware for kind in problem.types].index("base")].tolist() == [20.0, 80.0]


def test_the_compared_statistic_decides_what_is_in_time() -> None:
    mean, p99 = {"base": [10.0, 40.0]}, {"base": [12.0, 110.0]}
    case = files(mean, [0.75, 0.25], prices={"base": 1}, qos_ms=100, p99_ms=p99, budget=2)
    assert promise(decide(case, statistic="mean"), "rate_qps") > 0
    assert isinstance(decide(case, statistic="p99"), Infeasibility)
    del case[0]["tables"]["t-base"]["p99"]
    with pytest.raises(InputError, match="statistic asks for p99"):
        pose(case, statistic="p99")


def test_a_quality_that_the_variant_has_not() -> None:
    profile, slo = g1(budget=5)
    profile["metrics"] = {"auc": {}}
    profile["tasks"]["rank"]["metric"] = "auc"
    profile["variants"]["m"]["quality"] = {"value": 0.7}
    slo["apps"]["app"]["quality"] = {"min": 0.75}
    found = decide((profile, slo))
    assert isinstance(found, Infeasibility)
    assert found.repairs[0].to == 0.7
    slo["apps"]["app"]["quality"] = {"min": 0.7}
    assert promise(decide((profile, slo)), "rate_qps") > 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda p, s: s["apps"].update(more=s["apps"]["app"]), "one application"),
        (lambda p, s: answered(s["apps"]["app"], pipeline="x"), "not a pipeline"),
        (lambda p, s: answered(s["apps"]["app"], models=["m", "n"]), "one variant"),
        (lambda p, s: demand(s).update(rate_qps={"low": 1, "high": 2}), "not for a range"),
        (lambda p, s: demand(s).update(streams=3), "queries per second"),
        (lambda p, s: demand(s).pop("mix"), "mix"),
    ],
)
def test_files_that_ask_another_question(change: Change, why: str) -> None:
    profile, slo = g1(budget=5)
    assert PoolQuestion.fits(inputs(profile, slo)) == ()
    change(profile, slo)
    assert why in PoolQuestion.fits(inputs(profile, slo))[0].why


def test_hardware_without_a_needed_resource_is_left_out() -> None:
    profile, slo = g1(budget=2)
    profile["hardware"]["aux"]["provides"] = {"cpu_cores": 4}
    profile["variants"]["m"]["runs"][1]["needs"] = {"gpu_mem_gib": 3}
    problem = pose((profile, slo))
    assert [kind.hardware for kind in problem.types] == ["base"]
    (notice,) = problem.notices
    assert (notice.code, notice.at) == ("W-too-small", "hardware.aux")
    assert "3 gpu_mem_gib, which machines.aux.provides does not list" in notice.text
    # Who says nothing at all is believed.
    profile["hardware"]["aux"]["provides"] = {}
    assert len(pose((profile, slo)).types) == 2


def test_no_hardware_that_is_large_enough() -> None:
    profile, slo = g1(budget=2)
    for run in profile["variants"]["m"]["runs"]:
        run["needs"] = {"gpu_mem_gib": 3}
        profile["hardware"][run["hardware"]]["provides"] = {"cpu_cores": 4}
    with pytest.raises(InputError, match=r"machines\.base\.provides does not list") as caught:
        pose((profile, slo))
    assert "`provides`" in caught.value.faults[0].remedy


@pytest.mark.slow
@pytest.mark.parametrize("needs", [{"cpu_cores": 4}, {"gpu": 1}, {"cpu_cores": 5}])
def test_planner_and_verifier_agree_on_what_fits(needs: Json) -> None:
    profile, slo = g1(budget="1.75")
    profile["hardware"]["aux"]["provides"] = {"cpu_cores": 4}
    profile["variants"]["m"]["runs"][1]["needs"] = needs
    outcome = hetplan.solve(profile, slo)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    assert ("aux" in {worker.hardware for worker in outcome.require().workers}) is (needs == {"cpu_cores": 4})


def test_measurements_that_nobody_reads_are_refused() -> None:
    profile, slo = g1(budget=2)
    with pytest.raises(InputError, match="reads no measurements") as caught:
        hetplan.solve(profile, slo, {"format": "hetplan/measured/1.0", "anything": 1})
    assert caught.value.faults[0].file == "measured"


def test_a_rule_other_than_matching_is_sized_by_simulation() -> None:
    assert pose(by_rule(g1(budget=2), "earliest"), formulation="kairos").options.sizing == "simulation"
    assert FluidOptions().sizing == "simulation"
    with pytest.raises(InputError, match="known by simulation alone"):
        hetplan.solve(*by_rule(g1(budget=2), "threshold"), options={"sizing": "fluid"})
    with pytest.raises(InputError, match="'earliest' or 'threshold'"):
        hetplan.solve(*by_rule(g1(budget=2), "fcfs"))
    with pytest.raises(InputError, match="no rule of a pool"):
        pose(by_rule(g1(budget=2), "random"))


def test_rules_that_do_not_fit_the_queries() -> None:
    profile, slo = g1(budget=2)
    for name in ("base", "aux"):
        table = profile["tables"][f"t-{name}"]
        table.update(axes={"batch": [10, 20], "width": [1]}, mean=[[cell] for cell in table["mean"]])
    demand(slo)["mix"].update(axes=["batch", "width"], bins=[[10, 1], [20, 1]])
    with pytest.raises(InputError, match="one axis"):
        pose(by_rule((profile, slo), "threshold"))
    assert pose(by_rule((profile, slo), "earliest")).wish.dispatch == "earliest"
    profile, slo = g1(budget=2)
    profile["variants"]["m"]["runs"][1] = {"hardware": "aux", "rate": "r"}
    profile["tables"]["r"] = {"quantity": "requests_per_s", "axes": {"batch": [10, 20]}, "mean": [9, 1]}
    with pytest.raises(InputError, match="several queries at once"):
        pose(by_rule((profile, slo), "earliest"))

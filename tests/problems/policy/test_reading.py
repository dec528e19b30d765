"""What the files say: tables repaired, faults reported with place and remedy, what makes them a policy question."""

from typing import Any

import numpy as np
import pytest
from cases.policy import files
from cases.policy_published import DATA, present, tables

from hetplan import registry
from hetplan.errors import InputError
from hetplan.planner.answer import Limits
from hetplan.planner.contract import Tools
from hetplan.planner.draft import Infeasibility
from hetplan.planner.solver_calls import Asking
from hetplan.problems.policy.options import PaperOptions, PolicyOptions
from hetplan.problems.policy.question import Policy
from hetplan.problems.policy.request import capacity_qps, dispersion, pareto, repair
from hetplan.profiles.load import load_inputs
from hetplan.profiles.slo import Rates
from hetplan.verifier.policy_figures import batch_latencies_ms
from hetplan.verifier.service import nearest_statistic


def pose(profile: Any, slo: Any, formulation: str = "policy-mdp", **options: Any) -> Policy:
    kind = Policy.formulations[formulation]
    inputs = load_inputs(profile, slo)
    return Policy.from_inputs(inputs, kind.model_validate(options), formulation=formulation, tools=Tools())


def faults(profile: Any, slo: Any, formulation: str = "policy-mdp", **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        pose(profile, slo, formulation, **options)
    return str(caught.value)


# --- tables ---------------------------------------------------------------------------------------------------------


def test_missing_batches_lie_on_the_regression() -> None:
    values, said = repair(np.array([1.0, 2.0, 4.0]), np.array([10.0, 13.0, 18.0]), queue_max=5, monotone="safe")
    slope, level = np.polyfit([1, 2, 4], [10, 13, 18], 1)
    assert values[2] == pytest.approx(3 * slope + level)
    assert values[4] == pytest.approx(5 * slope + level)
    assert values[5] > values[4]
    assert said == ["batch 3 filled by regression"]


@pytest.mark.parametrize(("monotone", "wanted"), [("safe", [10, 14, 14, 16]), ("optimistic", [10, 12, 12, 16])])
def test_falling_latencies(monotone: str, wanted: list[float]) -> None:
    batches, measured = np.arange(1.0, 5.0), np.array([10.0, 14.0, 12.0, 16.0])
    values, said = repair(batches, measured, queue_max=4, monotone=monotone)
    assert values[:4].tolist() == wanted
    assert monotone in said[0]


def test_beyond_the_queue_never_faster() -> None:
    values, _ = repair(np.arange(1.0, 4.0), np.array([10.0, 30.0, 30.0]), queue_max=3, monotone="safe")
    assert values[3] >= values[2]
    alone, _ = repair(np.array([1.0, 2.0]), np.array([10.0, 17.0]), queue_max=1, monotone="safe")
    assert alone.tolist() == [10.0, 17.0]


@pytest.mark.skipif(not present(), reason="the published measurements are not beside the project")
@pytest.mark.parametrize("task", ["image", "text"])
def test_the_published_repair(task: str) -> None:
    """p95 of the published measurements, repaired as published, is the published table for batches up to 32."""
    import json

    models = json.loads((DATA / "ramsis" / f"{task}_profiles.json").read_text())["models"]
    latency, accuracy = tables(task)
    found = {}
    for model in models.values():
        measured = np.array(model["p95"])
        row, _ = repair(np.array(model["batch"], float), measured, queue_max=32, monotone="optimistic")
        found[round(model["accuracy"], 6)] = row / 1000.0
    for row, exact in zip(latency, accuracy, strict=True):
        mine = found[round(100 * float(exact), 6)]
        assert mine[:32] == pytest.approx(row[:32], rel=1e-5), "published with four decimals of a millisecond"


@pytest.mark.skipif(not present(), reason="the published measurements are not beside the project")
def test_published_front_and_batches() -> None:
    """26 image models leave 9; the largest batches within 150, 300 and 500 ms are 9, 21 and 32 or more."""
    import json

    models = json.loads((DATA / "ramsis" / "image_profiles.json").read_text())["models"].values()
    single = np.array([model["p95"][model["batch"].index(1)] for model in models])
    kept = pareto(single, np.array([model["accuracy"] for model in models]))
    assert (len(single), len(kept)) == (26, 9)
    latency, _ = tables("image")
    widest = [int(np.flatnonzero((latency[:, :32] <= slo).any(axis=0))[-1]) + 1 for slo in (0.15, 0.3, 0.5)]
    assert widest == [9, 21, 32]


def test_the_verifier_reads_the_same_latencies() -> None:
    """Two implementations of the same rules."""
    rng = np.random.default_rng(1)
    for seed in range(20):
        batches = tuple(sorted({1, *rng.integers(2, 12, 4).tolist()}))
        profile, slo = files(batches=batches)
        table = profile["tables"]["t-fast"]
        table["p95"] = [float(x) for x in rng.uniform(5, 30, len(batches))]
        policy = load_inputs(profile, slo).profile
        run = policy.variants["fast"].runs[0]
        monotone = ("safe", "optimistic")[seed % 2]
        theirs = batch_latencies_ms(policy.tables["fast-cpu"], run, statistic="p95", queue_max=9, monotone=monotone)
        mine, _ = repair(np.array(batches, float), np.array(table["p95"]), queue_max=9, monotone=monotone)
        assert theirs == pytest.approx(mine.tolist(), rel=1e-9)


def test_models_stand_fastest_first_and_keep_their_tables() -> None:
    (models,) = pose(*files()).asked.models.values()
    assert models.names == ("fast", "middle", "slow")
    assert [one.at for one in models.choices] == [{}, {}, {}]
    assert models.latency_s[:, 0] == pytest.approx([0.006, 0.013, 0.027])
    assert capacity_qps(models, 0, 0.010) == pytest.approx(3 / 0.010)
    assert capacity_qps(models, 2, 0.010) == 0.0


def test_other_percentiles_and_fixed_axes() -> None:
    profile, slo = files()
    table = profile["tables"]["t-fast"]
    profile["tables"]["t-fast"] = {
        "quantity": "latency_ms",
        "axes": {"batch": table["axes"]["batch"], "resolution": [320, 640]},
        "mean": [[ms / 2, ms] for ms in table["p95"]],
        "p95": [[ms, 2 * ms] for ms in table["p95"]],
    }
    assert "by batch alone" in faults(profile, slo)
    profile["variants"]["fast"]["runs"][0]["at"] = {"resolution": 320}
    (models,) = pose(profile, slo).asked.models.values()
    assert models.latency_s[0, 0] == pytest.approx(0.006)
    assert "which the table lacks" in faults(profile, slo, statistic="p99")


# --- faults ---------------------------------------------------------------------------------------------------------


def wrong_quality(profile: Any, slo: Any) -> str:
    profile["variants"]["fast"]["quality"]["value"] = 60.0
    return "Percent? Write 0.6"


def no_quality(profile: Any, slo: Any) -> str:
    del profile["variants"]["slow"]["quality"]
    return "$.variants.slow.quality"


def one_batch(profile: Any, slo: Any) -> str:
    profile["tables"]["t-fast"].update(axes={"batch": [1]}, p95=[6.0])
    return "one batch size"


def falling(profile: Any, slo: Any) -> str:
    profile["tables"]["t-fast"]["p95"] = [6.0, 5.0, 12.0, 20.0]
    return "latencies grow with the batch"


def no_load(profile: Any, slo: Any) -> str:
    slo["apps"]["a"]["rate_qps"] = 0
    return "a load above 0"


def wrong_range(profile: Any, slo: Any) -> str:
    slo["apps"]["a"]["rate_qps"] = {"low": 200.0, "high": 100.0}
    return "low"


def all_network(profile: Any, slo: Any) -> str:
    slo["apps"]["a"]["network_ms_per_hop"] = 100.0
    slo["apps"]["a"]["latency"]["p50_ms"] = 101.0
    return "takes the whole latency target. Raise latency.p99_ms above it."


def unknown_late(profile: Any, slo: Any) -> str:
    slo["apps"]["a"]["late"] = "reroute"
    return "serves late queries or drops them"


def diurnal(profile: Any, slo: Any) -> str:
    slo["apps"]["a"]["arrivals"] = {"process": "diurnal", "peak": 2.0, "period_s": 60.0}
    return "range of rates"


def bursty(profile: Any, slo: Any) -> str:
    slo["apps"]["a"]["arrivals"] = {"process": "gamma", "shape": 0.1}
    return "burstier than Poisson"


def no_most(profile: Any, slo: Any) -> str:
    slo["limits"]["instances"] = {"cpu": [1, None]}
    return "a given number of workers"


def far_too_much(profile: Any, slo: Any) -> str:
    slo["apps"]["a"]["rate_qps"] = 1e9
    return "Is this per second"


def no_run(profile: Any, slo: Any) -> str:
    profile["hardware"]["gpu"] = {"kind": "gpu"}
    slo["limits"]["instances"] = {"gpu": [1, 1]}
    return "has a run on gpu"


@pytest.mark.parametrize(
    "spoil",
    [
        wrong_quality,
        no_quality,
        one_batch,
        no_load,
        wrong_range,
        all_network,
        unknown_late,
        diurnal,
        bursty,
        far_too_much,
        no_most,
        no_run,
    ],
)
def test_faults_are_reported(spoil: Any) -> None:
    profile, slo = files()
    assert spoil(profile, slo) in faults(profile, slo)


def test_all_faults_at_once() -> None:
    profile, slo = files()
    said = [spoil(profile, slo) for spoil in (no_quality, unknown_late, diurnal)]
    text = faults(profile, slo)
    assert all(words in text for words in said)


def test_dropping_leaves_idling_no_decision() -> None:
    profile, slo = files(late="drop")
    assert "idling is no decision" in faults(profile, slo, empty_state="paper")


def test_stages_are_rounded_with_the_mean_kept() -> None:
    profile, slo = files(rate_qps=100.0, arrivals={"process": "gamma", "shape": 0.4})
    (group,) = pose(profile, slo).asked.groups()
    stages, rates, _ = group.arrivals(100.0, PolicyOptions())
    assert stages == 2
    assert rates[0] / stages == pytest.approx(25.0), "own arrivals per second"
    assert "shape 1.6" in group.wish.stages(4)[2]


def test_arrivals_like_clockwork_are_planned_as_nearly_so() -> None:
    profile, slo = files()
    slo["apps"]["a"]["arrivals"] = {"process": "gamma", "shape": 1e6}
    (group,) = pose(profile, slo).asked.groups()
    stages, rates, _ = group.arrivals(100.0, PolicyOptions())
    assert (stages, rates[0]) == (200, pytest.approx(50.0 * 100.0)), "four workers: every fourth of 100 per second"
    assert "planned as Erlang(200)" in group.wish.stages(4)[2]


def test_recorded_arrivals() -> None:
    rng = np.random.default_rng(0)
    profile, _ = files()
    inputs = load_inputs(profile, files()[1])
    app = inputs.slo.apps["a"].model_copy(update={"rate_qps": Rates.model_validate({"trace": {"file": "t.csv"}})})
    slo_model = inputs.slo.model_copy(update={"apps": {"a": app}})
    times = np.cumsum(rng.gamma(3.0, 1.0 / 300.0, 6000))

    def with_trace(recorded: np.ndarray) -> Policy:
        from dataclasses import replace

        held = replace(inputs, slo=slo_model, traces={"a": recorded})
        return Policy.from_inputs(held, PolicyOptions(), formulation="policy-mdp", tools=Tools())

    (wish,) = with_trace(times).asked.apps
    assert wish.loads_qps[0] == pytest.approx(100.0, rel=0.03)
    assert 2.0 < wish.shape < 4.5
    assert "dispersion" in wish.notices[0].text
    with pytest.raises(InputError, match="say too little"):
        with_trace(times[:500])
    with pytest.raises(InputError, match="in order"):
        with_trace(times[::-1])
    bursts = np.sort(np.concatenate([times, times[times < 10]]))
    assert any("rate changes" in notice.text for notice in with_trace(bursts).asked.apps[0].notices)


def test_dispersion_of_poisson_is_one() -> None:
    times = np.cumsum(np.random.default_rng(1).exponential(0.01, 200_000))
    assert dispersion(times, 0.5) == pytest.approx(1.0, abs=0.05)
    assert np.isnan(dispersion(times[:100], 0.5))


# --- which question, which options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"objective": ["min cost"]}, "not by cost"),
        ({"limits": {}}, "instances names none"),
    ],
)
def test_files_that_ask_another_question(change: Any, why: str) -> None:
    profile, slo = files()
    assert why in Policy.fits(load_inputs(profile, {**slo, **change}))[0].why


@pytest.mark.parametrize(
    ("demand", "why"),
    [
        ({"rate_qps": "max"}, "has no load"),
        ({"streams": 3}, "streams"),
        ({"rate_qps": 5, "mix": {"axes": ["batch"], "bins": [[1]], "share": [1.0]}}, "queries that are alike"),
    ],
)
def test_demands_that_ask_another_question(demand: Any, why: str) -> None:
    profile, slo = files(**demand)
    assert any(why in one.why for one in Policy.fits(load_inputs(profile, slo)))


def test_one_model_needs_more_to_be_a_policy() -> None:
    profile, slo = files(models={"only": (0.8, 5.0, 3.0)})
    assert Policy.fits(load_inputs(profile, slo)) == ()
    slo["objective"], slo["apps"]["a"]["dispatch"] = [], None
    assert "has one model" in Policy.fits(load_inputs(profile, slo))[0].why


@pytest.mark.parametrize("grid", ["fld{10}", "fld:10", "md", "union{50}", "union"])
def test_grids(grid: str) -> None:
    (group,) = pose(*files()).asked.groups()
    form = group.form(100.0, PolicyOptions(grid=grid, queue_max=4), batching="max")
    assert form.grid_s[0] == 0.0
    assert form.grid_s[-1] == 0.1
    latency = group.models.latency_s[:, :-1]
    if grid in ("md", "union{50}", "union"):
        held = group.form(100.0, PolicyOptions(grid=grid), batching="max").grid_s
        wanted = latency[latency <= 0.1]
        above = held[np.searchsorted(held, wanted)] - wanted
        assert above.max() < 1e-9 * 0.1, "every latency is a slack, but for rounding"
    if grid.startswith("fld"):
        assert form.slacks == 11


@pytest.mark.parametrize(
    "options",
    [
        {"grid": "fine"},
        {"grid": "fld:0"},
        {"grid": "union{99999}"},
        {"sweeps": 100},
        {"reward": "b_over_n"},
        {"queue_max": 0},
        {"unknown": 1},
    ],
)
def test_options_that_are_none(options: Any) -> None:
    with pytest.raises(ValueError, match="validation error"):
        PolicyOptions.model_validate(options)


def test_formulations_have_their_own_defaults() -> None:
    paper = PaperOptions()
    assert (paper.objective, paper.grid, paper.batching, paper.monotone) == (
        "per_decision",
        "fld{100}",
        "max",
        "optimistic",
    )
    assert PaperOptions(sweeps=100).sweeps == 100


def test_the_published_service_rate_is_a_rate() -> None:
    """Appendix I's mu: queries per second of the most accurate model that carries the load within the SLO."""
    profile, slo = files(dispatch="shortest-queue", rate_qps=100.0)
    (group,) = pose(profile, slo).asked.groups()
    mu = group.service_rate(100.0)
    assert mu == max(capacity_qps(group.models, m, 0.1) for m in (2,))
    stages, rates, rate_of = group.arrivals(100.0, PolicyOptions(queue_max=6))
    assert stages == 1
    assert rates.tolist() == pytest.approx([25.0, (100.0 / (4 * mu)) ** 4 * mu])
    assert rate_of is not None
    assert rate_of.tolist() == [0, 0, 0, 1, 1, 1, 1, 1]


def test_an_slo_that_no_model_meets() -> None:
    policy = pose(*files(slo_ms=5.0), queue_max=6, grid="fld{10}")
    found = policy.decide(Asking(registry.solvers(), Limits()))
    assert isinstance(found, Infeasibility)
    assert found.proved
    assert "takes 6 ms" in found.why[0]
    # Nothing is simulated here, and no share that may be late is stated: the fastest answer will do.
    (raised,) = found.repairs
    assert raised.to == pytest.approx(6.0)


# --- the serving floor ----------------------------------------------------------------------------------------------


def test_a_table_of_means_alone_is_planned_with_and_said() -> None:
    profile, slo = files()
    table = profile["tables"]["t-fast"]
    profile["tables"]["t-fast"] = {**{k: v for k, v in table.items() if k != "p95"}, "mean": table["p95"]}
    (models,) = pose(profile, slo).asked.models.values()
    assert models.latency_s[0, 0] == pytest.approx(0.006)
    assert [notice.at for notice in models.notices if notice.code == "W-statistic"] == ["tables.fast-cpu"]
    held = load_inputs(profile, slo)
    run = held.profile.variants["fast"].runs[0]
    means = held.profile.tables["fast-cpu"]
    theirs = batch_latencies_ms(means, run, statistic=nearest_statistic(means, "p95"), queue_max=32, monotone="safe")
    assert theirs == pytest.approx((1000 * models.latency_s[0]).tolist(), rel=1e-9)


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_runs_on_one_hardware_the_fastest_is_held_in_any_order(turned: bool) -> None:
    profile, slo = files()
    table = profile["tables"]["t-fast"]
    for name, size, factor in (("t-fast", 320, 1), ("t-careful", 640, 2)):
        axes, times = {**table["axes"], "size": [size]}, [[factor * ms] for ms in table["p95"]]
        profile["tables"][name] = {"quantity": "latency_ms", "axes": axes, "p95": times}
    (run,) = profile["variants"]["fast"]["runs"]
    both = [{**run, "at": {"size": 320}}, {**run, "latency": "t-careful", "at": {"size": 640}}]
    profile["variants"]["fast"]["runs"] = both[::-1] if turned else both
    (models,) = pose(profile, slo).asked.models.values()
    assert models.latency_s[0, 0] == pytest.approx(0.006)
    assert models.choices[0].at == {"size": 320.0}
    assert any(notice.code == "W-run" for notice in models.notices)


def test_a_table_per_batch_is_one_table() -> None:
    profile, slo = files()
    table = profile["tables"].pop("t-fast")
    (run,) = profile["variants"]["fast"]["runs"]
    (whole,) = pose(*files()).asked.models.values()
    runs = []
    for batch, ms in zip(table["axes"]["batch"], table["p95"], strict=True):
        profile["tables"][f"t-fast-{batch}"] = {**table, "axes": {"batch": [batch]}, "p95": [ms]}
        runs.append({**run, "latency": f"t-fast-{batch}", "at": {"batch": batch}})
    profile["variants"]["fast"]["runs"] = runs[::-1]
    (models,) = pose(profile, slo).asked.models.values()
    assert models.latency_s == pytest.approx(whole.latency_s)

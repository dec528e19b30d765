"""INFaaS: the paper's tables come back, in its units; the seeded generator draws what the specification says."""

import itertools

import pytest

from hetplan import load
from hetplan.extend import load_profile
from hetplan_papers.datasets import infaas, infaas_generator
from hetplan_papers.datasets.sources import as_id, read

DATA_SET = "infaas"
with_data = pytest.mark.usefixtures("needs_data")


@with_data
def test_table_2_comes_back():
    needs = {"a": {"cpu_cores": 4.0}, "b": {"inf_cores": 1.0}, "c": {"gpu_share": 1.0}}
    profile, slo, state = infaas.table2(
        10.0, 300.0, load_s=(1, 5, 10), running={"a": 3}, needs=needs, resources={"inf_cores": 1.0}, weight_per_s=0.1
    )
    back = infaas.published(profile, slo, state)
    rows = read("infaas/infaas.json")["table2_resnet50"]
    for row, load_s in zip(rows, (1, 5, 10), strict=True):
        variant = back["variants"][as_id(row["variant"])]
        assert {key: row[key] for key in ("latency_ms", "saturation_qps", "cost_per_s")} == {
            key: variant[key] for key in ("latency_ms", "saturation_qps", "cost_per_s")
        }
        assert variant["hardware"] == infaas.HARDWARE[row["hardware"]]
        assert variant["load_s"] == load_s
        assert variant["needs"] == needs[as_id(row["variant"])]
    assert [variant["running"] for variant in back["variants"].values()] == [3, 0, 0]
    assert (back["slack"], back["lambda"], back["resources"]) == (1.05, 0.1, {"inf_cores": 1.0})
    assert back["apps"]["images"]["load_qps"] == 10.0
    inputs = load(profile, slo, state)
    assert inputs.profile.variants["b"].runs[0].price_per_hour == 3 * 3600 * 10**9
    assert inputs.state.workers[0].count == 3


@with_data
def test_the_cheapest_mixes_are_those_of_table_3():
    for row in read("infaas/infaas.json")["table3_cheapest"]:
        back = infaas.published(*infaas.table2(float(row["qps"]), float(row["slo_ms"]), slack=1.0))
        (app,) = back["apps"].values()
        fit = {name: one for name, one in back["variants"].items() if one["latency_ms"] <= app["slo_ms"]}
        counts = itertools.product(*(range(int(1000 // one["saturation_qps"]) + 2) for one in fit.values()))
        cost, best = min(
            (sum(n * one["cost_per_s"] for n, one in zip(count, fit.values(), strict=True)), count)
            for count in counts
            if sum(n * one["saturation_qps"] for n, one in zip(count, fit.values(), strict=True)) >= app["load_qps"]
        )
        assert cost == row["cost_per_s"]
        found = dict(zip(fit, best, strict=True))
        assert {name.lower(): count for name, count in row["counts"].items() if count} == {
            name: count for name, count in found.items() if count
        }


@with_data
def test_architectures_and_workers_come_back():
    facts = read("infaas/infaas.json")
    profile = load_profile(infaas.architectures())
    assert len(profile.variants) == facts["total_architectures"]
    for row in facts["table8_architectures"]:
        variant = profile.variants[as_id(row["name"])]
        unit = 1.0 if row["metric"].startswith("BLEU") else 0.01
        assert variant.quality.value == pytest.approx(row["accuracy"] * unit)
        assert (variant.task, variant.family) == (row["task"], as_id(row["family"]))
    hardware = load_profile(infaas.workers()).hardware
    assert hardware["p3.2xlarge"].provides == {"cpu_cores": 8, "cpu_mem_gib": 61, "gpu_share": 1, "gpu_mem_gib": 16}
    assert hardware["inf1.2xlarge"].provides["inf_cores"] == 4


def test_the_generator_hashes_as_specified():
    assert infaas_generator.uniform(0, 0, 0, 0) == 0.12964561829974747
    assert infaas_generator.uniform(1, 2, 3, 4) == 0.22670530947316486


def test_the_generator_draws_the_snapshot_of_the_specification():
    made = infaas_generator.make(22, 1)
    assert len(made.variants) == 174
    assert sum(variant.cost_per_s for variant in made.variants) == pytest.approx(180.747255, abs=5e-7)
    assert made.machines == {"gpu": 1, "inferentia": 7, "cpu": 1}


def test_a_generated_snapshot_comes_back():
    made = infaas_generator.make(22, 1)
    profile, slo, state = infaas_generator.inputs(22, 1)
    back = infaas.published(profile, slo, state)
    for architecture in made.architectures:
        app = back["apps"][architecture.name]
        assert (app["load_qps"], app["slo_ms"]) == (architecture.load_qps, architecture.slo_ms)
        chosen, count = architecture.cheapest(architecture.load_before_qps)
        for variant in architecture.variants:
            found = back["variants"][variant.name]
            assert found["latency_ms"] == variant.latency_ms
            assert found["saturation_qps"] == variant.saturation_qps
            assert found["cost_per_s"] == pytest.approx(variant.cost_per_s, rel=1e-15)
            assert found["load_s"] == variant.load_s
            assert tuple(found["needs"].get(name, 0.0) for name in infaas_generator.RESOURCES) == variant.needs
            assert found["running"] == (count if variant is chosen else 0)
    assert back["resources"] == {"cpu_cores": 72, "cpu_mem_gib": 205, "gpu_mem_gib": 16, "inf_cores": 28}
    assert (back["slack"], back["lambda"]) == (1.05, 0.1)
    load(profile, slo, state)


def test_single_machines_and_applications_of_five():
    inputs = load(*infaas_generator.inputs(22, 1, machines=True))
    assert len(inputs.profile.hosts) == 9
    assert inputs.profile.offers["inferentia"].stock == 7
    assert inputs.profile.hardware["gpu"].provides["gpu_mem_gib"] == 16
    made = infaas_generator.make(50, 0)
    profile, slo, _ = infaas_generator.inputs(50, 0, fives=True)
    accuracy = {one.name: one.accuracy / 100 for one in made.architectures}
    eligible = 0
    for number, (name, app) in enumerate(slo["apps"].items()):
        assert name == f"b{number}"
        families = app["family"]
        assert families == [f"a{5 * number + place}" for place in range(5)]
        eligible += sum(
            profile["tables"][variant["runs"][0]["latency"]]["mean"][0] <= app["latency"]["p99_ms"]
            for variant in profile["variants"].values()
            if variant["family"] in families and accuracy[variant["family"]] >= app["quality"]["min"]
        )
    assert eligible == 200

"""Kairos and Ribbon: profile and SLO hold what was published, and give it back."""

import pytest

from hetplan import load
from hetplan_papers.datasets import kairos, ribbon
from hetplan_papers.datasets.sources import read

DATA_SET = "kairos"
pytestmark = pytest.mark.usefixtures("needs_data")


@pytest.mark.parametrize("model", kairos.MODELS)
def test_kairos_comes_back(model: str):
    profile, slo = kairos.inputs(model)
    back = kairos.published(profile, slo)
    instance, latency = read("kairos/kairos_instance.json"), read("kairos/kairos_latency.json")[model]
    used = ("batch", "mean_ms", "std_ms", "p50_ms", "p99_ms", "max_ms", "n_samples")
    assert back["latency"] == {name: {key: latency[name][key] for key in used} for name in instance["types"]}
    assert back["prices"] == instance["prices"]
    mix = read("kairos/batch_size_pmf.json")["kairos"]
    assert back["mix"] == {"batch": mix["batch"], "pmf": mix["pmf"]}
    assert back["qos_ms"] == instance["qos_ms_p99"][model]
    assert back["budget"] == instance["budget_usd_per_hour"]
    assert back["target_qps"] is None
    assert back["base_type"] == instance["base_type"]
    assert back["allocator_profile"] == read("kairos/kairos_allocator_profile.json")[model]


@pytest.mark.parametrize("model", kairos.MODELS)
def test_the_loaded_profile_gives_the_published_rate_of_one_base_instance(model: str):
    inputs = load(*kairos.inputs(model))
    assert not inputs.warnings
    mix = inputs.slo.apps["rank"].mix
    table = inputs.profile.tables[f"{model}-g4dn.xlarge"]
    points = [dict(zip(mix.axes, size, strict=True)) for size in mix.bins]
    mean_ms = sum(share * ms for share, ms in zip(mix.share, table.read(points).values, strict=True))
    published = read(f"kairos/exhaustive_{model}.json")["1,0,0,0"]["lp"]
    assert 1000 / mean_ms == pytest.approx(published, rel=1e-9)


def test_a_rate_in_place_of_a_budget():
    profile, slo = kairos.inputs("dien", target_qps=1000.0, qos_ms=40.0, most={"g4dn.xlarge": 3})
    assert slo["objective"] == ["min cost"]
    back = kairos.published(profile, slo)
    assert (back["target_qps"], back["budget"], back["qos_ms"]) == (1000.0, None, 40.0)
    assert back["max_num"] == {"g4dn.xlarge": 3}
    assert load(profile, slo).slo.limits.instances == {"g4dn.xlarge": (0, 3)}


@pytest.mark.parametrize("model", ribbon.MODELS)
def test_ribbon_comes_back(model: str):
    profile, slo = ribbon.inputs(model)
    back = kairos.published(profile, slo)
    setting = read("kairos/ribbon_qos_lookup.json")["configs"][model]
    latency = read("kairos/ribbon_latency.json")[model]
    assert back["latency"] == {name: latency[name] for name in setting["ins_types"]}
    prices = read("kairos/prices.json")["prices"]
    assert back["prices"] == {name: prices[name] for name in setting["ins_types"]}
    mix = read("kairos/batch_size_pmf.json")["ribbon"]
    assert back["mix"] == {"batch": mix["batch"], "pmf": mix["pmf"]}
    assert back["max_num"] == dict(zip(setting["ins_types"], setting["max_num"], strict=True))
    assert back["qos_ms"] == setting["qos"]
    assert back["target_qps"] == ribbon.target_qps(model) == 1000 / setting["inter_arrival"]
    assert load(profile, slo).profile.hardware.keys() == set(setting["ins_types"])


def test_ribbon_with_every_type_and_a_budget():
    profile, slo = ribbon.inputs("mtwnd", all_types=True, budget="2.5")
    back = kairos.published(profile, slo)
    assert len(back["latency"]) == 8
    assert (back["budget"], back["target_qps"], back["max_num"]) == (2.5, None, {})
    load(profile, slo)

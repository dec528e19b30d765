"""Loki: pipelines, profiles and branching come back; the generator draws what the specification says."""

import itertools

import pytest

from hetplan import load
from hetplan.extend import load_profile
from hetplan_papers.datasets import loki, loki_by_hand, loki_generator
from hetplan_papers.datasets.sources import as_id, read

DATA_SET = "loki"
with_data = pytest.mark.usefixtures("needs_data")


@with_data
@pytest.mark.parametrize("batches", [loki.POWERS, None])
def test_profiles_and_branching_come_back(batches):
    profile, slo = loki.traffic_chain(300.0, batches=batches)
    back = loki.published(profile, slo)
    measured = read("loki/profiles_simulator.json")["tasks"]
    for task, names in (("object_detection", loki.DETECTORS), ("car_classification", measured["car_classification"])):
        assert back["tasks"][task].keys() == {as_id(name) for name in names}
        for name in names:
            found = back["tasks"][task][as_id(name)]
            assert found["accuracy_pct"] == pytest.approx(measured[task][name]["accuracy_pct"], rel=1e-14)
            timed = measured[task][name]["latency"]
            kept = {size: timed[size] for size in timed if batches is None or int(size) in batches}
            assert found["latency"] == ({loki.GPU: kept} if kept else {})
    car = read("loki/branching.json")["ilp_hardcoded_car"]
    assert back["factors"] == {"traffic/detect/car": {name: car[name] for name in loki.DETECTORS}}
    assert back["apps"] == {"cars": {"pipeline": "traffic", "slo_ms": 250.0, "rate_qps": 300.0}}
    assert back["servers"] == {loki.GPU: 20}
    # Some of the published percentiles lie below the mean of their runs.
    assert {code for code, *_ in load(profile, slo).warnings} <= {"W-order"}


@with_data
def test_measured_path_accuracies_come_back():
    profile, slo = loki.traffic_chain(300.0, measured_quality=True)
    paths = loki.published(profile, slo)["path_accuracy"]["traffic"]
    published = read("loki/path_accuracy.json")["paths"]
    assert len(paths) == len(published) == 28
    for path in published:
        assert paths[f"detect={path['detector']}/car={path['classifier']}"] == path["e2e_acc"]
    assert load(profile, slo).profile.pipelines["traffic"].quality.rule == "table"


@with_data
def test_the_swapped_accuracies_can_be_corrected():
    raw = loki.variants("object_detection")["variants"]
    mended = loki.variants("object_detection", corrected=True)["variants"]
    assert mended["yolov5s"]["quality"] == raw["yolov5m"]["quality"]
    assert mended["yolov5m"]["quality"] == raw["yolov5s"]["quality"]
    assert mended["yolov5s"]["runs"] == raw["yolov5s"]["runs"]
    assert mended["yolov5x"] == raw["yolov5x"]


@with_data
def test_the_published_graphs_are_the_tree_and_the_two_tasks_side_by_side():
    tree = load(*loki.traffic_tree(150.0)).profile
    root = read("loki/pipeline_traffic_analysis.json")["app"]["root"]
    nodes = tree.pipelines["traffic"].nodes
    assert {edge.from_ for edge in tree.pipelines["traffic"].edges} == {"detect"}
    assert {nodes[edge.to].task for edge in tree.pipelines["traffic"].edges} == {
        child["task"] for child in root["children"]
    }
    face = read("loki/branching.json")["ilp_hardcoded_face"]
    assert tree.pipelines["traffic"].edges[1].fanout == {name: face[name] for name in loki.DETECTORS}
    social = load(*loki.social([140.0, 150.0])).profile
    root = read("loki/pipeline_social_media.json")["app"]["root"]
    assert {node.task for node in social.pipelines["social"].nodes.values()} == {
        child["task"] for child in root["children"]
    }
    assert not social.pipelines["social"].edges
    for child in root["children"]:
        names = {name for name, variant in social.variants.items() if variant.task == child["task"]}
        assert names == {as_id(name) for name in child["model_variants"]}
    both = load(*loki.both(100.0, 50.0))
    assert both.slo.apps.keys() == {"cars", "posts"}
    assert sum(variant.task == "object_detection" for variant in both.profile.variants.values()) == 5


@with_data
def test_the_capacity_of_the_top_variants_is_the_published_one():
    """Twenty servers split between the two best models, each at its best batch within half the target: 207.964."""
    inputs = load(*loki.traffic_chain(208.0))
    factor = inputs.profile.pipelines["traffic"].edges[0].fanout["yolov5x"]
    tables = [inputs.profile.tables[f"{name}-{loki.GPU}"] for name in ("yolov5x", "efficientnet-b6")]
    speeds = [
        [(ms, 1000 * batch / ms) for batch, ms in zip(table.axes["batch"], table.p50, strict=True)] for table in tables
    ]
    best = max(
        min(first * detector, (20 - first) * classifier / factor)
        for (ms, detector), (more, classifier) in itertools.product(*speeds)
        if ms + more <= 125
        for first in range(1, 20)
    )
    assert best == pytest.approx(207.964, abs=1e-3)


@with_data
def test_models_on_three_kinds_of_hardware_come_back():
    profile = load_profile(loki.proteus())
    published = read("loki/profiles_proteus_3accel.json")["models"]
    assert len(profile.variants) == len(published) == 46
    for name, model in published.items():
        variant = profile.variants[as_id(name)]
        assert variant.quality.value * 100 == pytest.approx(float(model["norm_accuracy"]), rel=1e-14)
        tables = {run.hardware: profile.tables[run.latency] for run in variant.runs}
        assert tables.keys() == {kind for kind, cells in model["latency"].items() if cells}
        for kind, table in tables.items():
            cells = [model["latency"][kind][f"{size:g}"] for size in table.axes["batch"]]
            assert len(cells) == len(model["latency"][kind])
            for theirs, ours in loki.PROTEUS.items():
                assert list(getattr(table, ours)) == [float(one[theirs]) if one[theirs] else None for one in cells]


@with_data
def test_a_trace_becomes_a_rate_per_second():
    demand = loki.twitter("zipf_exponential/300", "bert")
    published = read("loki/traces_twitter_proteus.json")["traces"]["zipf_exponential/300"]["families"]["bert"]
    assert demand["series"] == published["per_second"]
    assert sum(demand["series"]) == published["n"]


def test_the_cases_of_one_page_load():
    for profile, slo in (
        loki_by_hand.tiny(0.2, 31.0),
        loki_by_hand.two_gpus(51.0),
        loki_by_hand.two_sinks(20.0),
        loki_by_hand.two_pipelines(3, equal=True),
        loki_by_hand.depth_3(110.0),
    ):
        inputs = load(profile, slo)
        assert not inputs.warnings
        assert inputs.profile.pipelines
    profile, slo = loki_by_hand.tiny(0.19, 20.0)
    back = loki.published(profile, slo)
    assert back["factors"] == {"p/a/b": {"a1": 2.0, "a2": 1.0}}
    assert back["apps"]["x"]["slo_ms"] == 190.0
    assert [one["accuracy_pct"] for one in back["tasks"]["b"].values()] == [100.0, 90.0]
    assert back["tasks"]["a"]["a2"]["latency"] == {"g": {"1": {"mean_ms": 25, "p50_ms": 25}}}


@pytest.mark.parametrize(
    ("children", "servers", "utilisation", "demand"),
    [(loki_generator.T5, 200, 1.5, 2164.51), (loki_generator.T7, 1000, 2.0, 7574.05)],
)
def test_the_generator_draws_the_demand_of_the_specification(children, servers, utilisation, demand):
    tree = loki_generator.make(children, 1)
    assert loki_generator.demand(tree, servers, utilisation) == pytest.approx(demand, abs=0.005)
    assert all(accuracies[-1] == 1.0 for accuracies in tree.accuracy)
    assert loki_generator.servers_of(200) == {"a": 100, "b": 60, "c": 40}


def test_generated_trees_load():
    inputs = load(*loki_generator.inputs(loki_generator.T5, servers=200, utilisation=1.5))
    tree = loki_generator.make(loki_generator.T5, 1)
    table = inputs.profile.tables["p-t3-v9-c"]
    assert table.p50[3] == pytest.approx((tree.fix_ms[3][9] + tree.per_ms[3][9] * 8) / 2.6)
    assert inputs.profile.pipelines["p"].edges[2].fanout["p-t1-v0"] == tree.factor[1, 3][0]
    shared = load(*loki_generator.shared_cluster())
    assert len(shared.profile.pipelines) == len(shared.slo.apps) == 4
    assert shared.slo.limits.instances == {"a": (0, 1000), "b": (0, 600), "c": (0, 400)}

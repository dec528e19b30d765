"""Plans of pipelines spoilt on purpose are caught and named; sound ones pass."""

import pytest
from cases.pipelines import diamond, fluid, fluid_without_repairs, random_pipeline

import hetplan as hp
from hetplan.profiles.plan import Promise, Route
from hetplan.profiles.plan_file import plan_dict, with_digest
from hetplan_papers.datasets.loki_by_hand import depth_3, tiny


def edited(plan, **changes):
    return with_digest(plan.model_copy(update=changes))


def codes(plan, files):
    return {violation.code for violation in hp.verify(plan, *files).violations}


@pytest.fixture(scope="module")
def sound():
    files = tiny(0.2, 60)
    return fluid(*files).plan, files


@pytest.fixture(scope="module")
def joined():
    files = diamond(100, 100)
    return fluid(*files).plan, files


def load_of(plan, variant):
    return next(w.loads[0].id for w in plan.workers if w.loads[0].variant == variant)


def with_worker(plan, variant, **changes):
    return tuple(w.model_copy(update=changes) if w.loads[0].variant == variant else w for w in plan.workers)


def test_sound(sound, joined):
    for plan, files in (sound, joined):
        assert codes(plan, files) == set()


def test_a_slow_pair(sound):
    plan, (profile, slo) = sound
    tight = {**slo, "apps": {"x": {**slo["apps"]["x"], "latency": {"p99_ms": 139}}}}
    report = hp.verify(plan, profile, tight)
    slow = [one for one in report.violations if one.code == "slow-path"]
    assert slow
    assert "a=a1, b=b2" in slow[0].text
    assert "latency" in {one.code for one in report.violations}


def test_a_tiny_share_on_a_slow_pair_is_caught_too():
    files = tiny(0.19, 20)
    plan = fluid(*files).plan
    wide = fluid(*tiny(0.2, 20)).plan
    workers = (
        *plan.workers,
        *(
            w.model_copy(update={"id": f"s{w.id}", "loads": (w.loads[0].model_copy(update={"id": f"s{n}"}),)})
            for n, w in enumerate(wide.workers)
        ),
    )
    slow_b = next(f"s{n}" for n, w in enumerate(wide.workers) if w.loads[0].variant == "b1")
    routes = tuple(
        r.model_copy(update={"to": {**{k: v * (1 - 1e-8) for k, v in r.to.items()}, slow_b: 1e-8}})
        if r.node == "b" and r.prefix[0] == load_of(plan, "a1")
        else r
        for r in plan.routing["x"]
    )
    assert "slow-path" in codes(edited(plan, workers=workers, routing={"x": routes}), files)


def test_load_over_capacity(sound):
    plan, files = sound
    fewer = with_worker(plan, "b2", count=1)
    assert "capacity" in codes(edited(plan, workers=fewer), files)


def test_shares_that_do_not_add_up(sound):
    plan, files = sound
    first, *rest = plan.routing["x"]
    short = first.model_copy(update={"to": {name: share * 0.9 for name, share in first.to.items()}})
    assert "share-sum" in codes(edited(plan, routing={"x": (short, *rest)}), files)


def test_better_accuracy_than_true(sound):
    plan, files = sound
    promises = tuple(
        p.model_copy(update={"value": p.value + 0.01}) if p.quantity == "quality" else p for p in plan.promises
    )
    assert "promise" in codes(edited(plan, promises=promises), files)


def test_two_batches_of_one_variant(sound):
    plan, files = sound
    worker = plan.workers[0]
    load = worker.loads[0].model_copy(
        update={"id": "extra", "serve": worker.loads[0].serve.model_copy(update={"max_batch": 2})}
    )
    more = (*plan.workers, worker.model_copy(update={"id": "w-extra", "count": 1, "loads": (load,)}))
    assert "one-batch" in codes(edited(plan, workers=more), files)


def test_a_server_of_two_variants(sound):
    plan, files = sound
    first, second, *rest = plan.workers
    both = first.model_copy(update={"loads": (*first.loads, *second.loads)})
    assert "pipeline-worker" in codes(edited(plan, workers=(both, *rest)), files)


def dispatch_with(plan, **changes):
    return {"x": plan.dispatch["x"].model_copy(update=changes)}


def test_a_budget_below_the_execution(sound):
    plan, files = sound
    assert "budget" in codes(edited(plan, dispatch=dispatch_with(plan, budget_ms={"a": 10.0, "b": 200.0})), files)


@pytest.mark.parametrize(
    "changes", [{"left_qps": 1e6}, {"latency_ms": 1.0}, {"quality": 0.99}, {"node": "b"}, {"to": "nowhere"}]
)
def test_a_false_backup(changes):
    files = tiny(0.2, 50)
    plan = fluid(*files).plan
    entry = next(entry for entry in plan.dispatch["x"].backup if entry.node == "a")
    false = entry.model_copy(update=changes if "quality" not in changes else {"quality": entry.quality - 0.3})
    assert "backup" in codes(edited(plan, dispatch=dispatch_with(plan, backup=(false,))), files)


def test_no_dispatch(sound):
    plan, files = sound
    assert "dispatch" in codes(edited(plan, dispatch={}), files)


def test_moves_counted_wrong(sound):
    plan, files = sound
    promises = (*plan.promises, Promise(quantity="changes", relation="=", value=1.0, model="no-queueing"))
    assert "changes" in codes(edited(plan, promises=promises), files)


def test_forgetting_the_path_is_noticed():
    files = depth_3(150)
    plan = fluid(*files).plan
    total: dict = {}
    for route in plan.routing["x"]:
        for name in route.to:
            total.setdefault(route.node, {}).setdefault(name, 0.0)
    share = {"a": {load_of(plan, "a1"): 1 / 3}, "c": {}}
    routes = []
    for node, to in total.items():
        known = share.get(node, {})
        left = 1.0 - sum(known.values())
        others = [name for name in to if name not in known]
        routes.append(Route(node=node, to={**known, **{name: left / len(others) for name in others}}))
    found = codes(edited(plan, routing={"x": tuple(routes)}), files)
    assert found & {"promise", "capacity", "backup"}


SPOILT_JOINS = {
    "capacity": lambda plan: {"workers": tuple(w.model_copy(update={"count": 1}) for w in plan.workers)},
    "share-sum": lambda plan: {
        "routing": {
            "x": tuple(r.model_copy(update={"to": {k: v / 2 for k, v in r.to.items()}}) for r in plan.routing["x"])
        }
    },
    "promise": lambda plan: {
        "promises": tuple(p.model_copy(update={"value": 0.99}) if p.quantity == "quality" else p for p in plan.promises)
    },
}


@pytest.mark.parametrize("code", SPOILT_JOINS)
def test_joins_spoilt(joined, code):
    plan, files = joined
    assert code in codes(edited(plan, **SPOILT_JOINS[code](plan)), files)


def test_joins_too_slow(joined):
    plan, _ = joined
    files = diamond(100, 80)
    assert "slow-path" in codes(plan, files)


def test_the_same_plan_under_a_floor(joined):
    plan, (profile, slo) = joined
    strict = {**slo, "apps": {"x": {**slo["apps"]["x"], "quality": {"min": 0.9}}}}
    assert "quality" in {one.code for one in hp.verify(plan, profile, strict).violations}


def plans(seeds, ease):
    """How many random trees had a plan; each is to be verified twice, in memory and as its file says it."""
    found = 0
    for seed in seeds:
        profile, slo = random_pipeline(seed, gpus=1 + seed % 2, tasks=5)
        slo["apps"]["x"]["rate_qps"] *= ease
        outcome = fluid_without_repairs(profile, slo, formulation=("pipeline-milp", "loki", "loki-budget")[seed % 3])
        if outcome.plan is None:
            assert outcome.exit_code == 3, (seed, outcome.reason)
            continue
        assert outcome.reason == "verified", (seed, outcome.violations)
        report = hp.verify(plan_dict(outcome.plan), profile, slo)
        assert report.ok, (seed, report.violations)
        found += 1
    return found


@pytest.mark.slow
def test_random_trees_pass():
    assert plans(range(33), 0.3) >= 25


@pytest.mark.longest
@pytest.mark.parametrize(("ease", "least"), [(0.1, 180), (0.2, 180), (0.5, 165)])
def test_hundreds_of_random_trees_pass(ease, least):
    """With little, some and much to do: together five hundred plans."""
    assert plans(range(1000, 1210), ease) >= least

"""Variant selection, the state machine, machine rules, the offline gate and online packing: by example and by law."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.dispatch.variants import (
    Machine,
    Observation,
    OnMachine,
    ProfiledVariant,
    VariantQuery,
    VariantSnapshot,
    VariantState,
    get_variant,
    instead_of_interfered,
    next_state,
    offline_allowed,
    online_pack,
    vm_actions,
)
from hetplan.profiles.tables import Table

ACTIVE, OVERLOADED = VariantState.ACTIVE, VariantState.OVERLOADED
INTERFERED, INACTIVE = VariantState.INTERFERED, VariantState.INACTIVE

TABLE_2 = {
    "a": ProfiledVariant("a", "resnet50", "cpu", 200.0, 5.0, 1.0, 1.0),
    "b": ProfiledVariant("b", "resnet50", "inferentia", 20.0, 100.0, 3.0, 5.0),
    "c": ProfiledVariant("c", "resnet50", "gpu", 15.0, 800.0, 16.0, 10.0),
}
MACHINES = {
    "m1": Machine("m1", "inferentia"),
    "m2": Machine("m2", "inferentia"),
    "m3": Machine("m3", "inferentia"),
    "g1": Machine("g1", "gpu"),
}


def snapshot(*pairs, machines=MACHINES):
    return VariantSnapshot(TABLE_2, machines, tuple(pairs))


def test_the_least_loaded_machine_of_the_cheapest_variant():
    two = (OnMachine("b", "m1", ACTIVE, 0.6), OnMachine("b", "m2", ACTIVE, 0.3))
    choice = get_variant(snapshot(*two), VariantQuery("resnet50", slo_ms=50))
    assert (choice.variant, choice.machine, choice.loads) == ("b", "m2", False)


def test_overloaded_pairs_are_passed_over_and_one_is_loaded():
    both = (OnMachine("b", "m1", OVERLOADED), OnMachine("b", "m2", OVERLOADED))
    choice = get_variant(snapshot(*both), VariantQuery("resnet50", slo_ms=50))
    assert (choice.variant, choice.machine, choice.loads) == ("b", "m3", True)
    assert choice.first_delay_ms == pytest.approx(5020)
    without = {name: machine for name, machine in MACHINES.items() if name != "m3"}
    choice = get_variant(snapshot(*both, machines=without), VariantQuery("resnet50", slo_ms=50))
    assert (choice.variant, choice.machine) == ("c", "g1")
    assert choice.first_delay_ms == pytest.approx(10015)


def test_nothing_is_fast_enough():
    choice = get_variant(snapshot(), VariantQuery("resnet50", slo_ms=10))
    assert (choice.variant, choice.suggest, choice.relax) == (None, "c", {"slo_ms": 15.0})


def test_preferences_and_a_named_variant():
    pairs = (OnMachine("b", "m1", ACTIVE), OnMachine("c", "g1", ACTIVE))
    assert get_variant(snapshot(*pairs), VariantQuery(slo_ms=300)).variant == "c"  # 0.02 a query against 0.03
    assert get_variant(snapshot(*pairs), VariantQuery(slo_ms=300), prefer="closest_to_slo").variant == "b"
    assert get_variant(snapshot(*pairs), VariantQuery(slo_ms=300), prefer="fastest").variant == "c"
    assert get_variant(snapshot(*pairs), VariantQuery(slo_ms=300, variant="b")).variant == "b"


def test_a_floor_on_quality():
    good = ProfiledVariant("good", "m", "cpu", 50.0, 10.0, 1.0, quality=0.8)
    poor = ProfiledVariant("poor", "m", "cpu", 5.0, 10.0, 0.1, quality=0.6)
    held = VariantSnapshot({"good": good, "poor": poor}, {"m": Machine("m", "cpu")})
    assert get_variant(held, VariantQuery("m", slo_ms=60, min_quality=0.7)).variant == "good"
    choice = get_variant(held, VariantQuery("m", slo_ms=10, min_quality=0.9))
    assert choice.variant is None
    assert choice.suggest == "poor"  # 0 + 0.5 against 4 + 0.125
    assert choice.relax == {"min_quality": 0.6}


def test_the_time_of_a_sentence():
    table = Table(quantity="latency_ms", axes={"batch": [1, 8], "sentence_len": [10, 50]}, mean=[[10, 50], [40, 200]])
    gnmt = ProfiledVariant("gnmt", "gnmt", "gpu", 10.0, 20.0, 1.0, table=table, at={"batch": 1.0})
    held = VariantSnapshot({"gnmt": gnmt}, {"g": Machine("g", "gpu")}, (OnMachine("gnmt", "g", ACTIVE),))
    assert get_variant(held, VariantQuery("gnmt", slo_ms=35, sizes={"sentence_len": 30})).variant == "gnmt"
    late = get_variant(held, VariantQuery("gnmt", slo_ms=35, sizes={"sentence_len": 50}))
    assert (late.variant, late.relax) == (None, {"slo_ms": 50.0})


def test_room_on_the_machine():
    big = ProfiledVariant("big", "m", "gpu", 5.0, 10.0, 1.0, needs={"gpu_mem_gib": 12.0})
    machines = {"g1": Machine("g1", "gpu", {"gpu": 0.1}, {"gpu_mem_gib": 8.0}),
                "g2": Machine("g2", "gpu", {"gpu": 0.9}, {"gpu_mem_gib": 16.0})}  # fmt: skip
    assert get_variant(VariantSnapshot({"big": big}, machines), VariantQuery("m")).machine == "g2"
    pair = OnMachine("big", "g1", INTERFERED)
    assert instead_of_interfered(VariantSnapshot({"big": big}, machines, (pair,)), pair) == "g2"
    assert (
        instead_of_interfered(VariantSnapshot({"big": big}, machines, (pair,)), OnMachine("big", "g2", INTERFERED))
        == "g2"
    )


@pytest.mark.parametrize(
    ("state", "seen", "then"),
    [
        (INACTIVE, Observation(), INACTIVE),
        (INACTIVE, Observation(loaded=True), ACTIVE),
        (ACTIVE, Observation(rate_qps=5, peak_qps=5), OVERLOADED),
        (OVERLOADED, Observation(rate_qps=4, peak_qps=5), ACTIVE),
        (ACTIVE, Observation(rate_qps=1, peak_qps=5, latency_ms=11, profiled_ms=10), INTERFERED),
        (INTERFERED, Observation(rate_qps=1, peak_qps=5, latency_ms=10, profiled_ms=10), ACTIVE),
        (INTERFERED, Observation(rate_qps=9, peak_qps=5, latency_ms=11, profiled_ms=10), OVERLOADED),
        (OVERLOADED, Observation(unloaded=True), INACTIVE),
    ],
)
def test_states(state, seen, then):
    assert next_state(state, seen) is then


def test_tolerance_of_slowness():
    slow = Observation(rate_qps=1, peak_qps=5, latency_ms=11, profiled_ms=10)
    assert next_state(ACTIVE, slow, tolerance=1.2) is ACTIVE


def gpus(*busy):
    machines = {f"g{n}": Machine(f"g{n}", "gpu", {"gpu": use}) for n, use in enumerate(busy)}
    return VariantSnapshot(TABLE_2, machines)


def test_machines_are_added_where_all_are_busy():
    assert [(one.hardware, one.count) for one in vm_actions(gpus(0.85, 0.90))] == [("gpu", 1)]
    assert vm_actions(gpus(0.85, 0.79)) == ()
    assert vm_actions(gpus(0.80, 0.90)) == ()


@pytest.mark.parametrize(("overloaded", "added"), [(4, 0), (5, 1)])
def test_machines_are_added_where_more_than_four_fifths_are_overloaded(overloaded, added):
    machines = {f"m{n}": Machine(f"m{n}", "cpu") for n in range(5)}
    pairs = tuple(OnMachine("a", f"m{n}", OVERLOADED if n < overloaded else ACTIVE) for n in range(5))
    assert sum(one.count for one in vm_actions(VariantSnapshot(TABLE_2, machines, pairs))) == added


def test_machines_are_added_where_all_are_interfered_and_only_then():
    machines = {"m1": Machine("m1", "inferentia"), "m2": Machine("m2", "inferentia")}
    one = (OnMachine("b", "m1", INTERFERED),)
    assert vm_actions(VariantSnapshot(TABLE_2, machines, one)) == ()
    both = (*one, OnMachine("b", "m2", INTERFERED))
    assert [a.hardware for a in vm_actions(VariantSnapshot(TABLE_2, machines, both))] == ["inferentia"]
    assert vm_actions(VariantSnapshot(TABLE_2, machines)) == ()


def test_an_empty_machine_goes_only_when_asked_and_never_below_the_floor():
    held = gpus(0.1, 0.2)
    assert vm_actions(held) == ()
    assert [(one.count, one.machine) for one in vm_actions(held, idle_machine=True)] == [(-1, "g0")]
    assert vm_actions(held, idle_machine=True, floor={"gpu": 2}) == ()


def test_offline_work_stands_aside():
    machines = {"m": Machine("m", "cpu", {"cpu_cores": 0.40}), "busy": Machine("busy", "cpu", {"cpu_cores": 0.41})}
    fine = OnMachine("a", "m", ACTIVE, latency_ms=200.0)
    assert offline_allowed(VariantSnapshot(TABLE_2, machines, (fine,)), "m")
    assert not offline_allowed(VariantSnapshot(TABLE_2, machines), "busy")
    slow = OnMachine("a", "m", ACTIVE, latency_ms=200.1)
    assert not offline_allowed(VariantSnapshot(TABLE_2, machines, (slow,)), "m")


def test_online_packing_of_the_specification():
    items = [{"m": size} for size in (0.6, 0.5, 0.4, 0.5)]
    used = {rule: online_pack(items, {"m": 1.0}, rule=rule).machines for rule in ("first_fit", "best_fit", "next_fit")}
    assert used == {"first_fit": 2, "best_fit": 2, "next_fit": 3}
    with pytest.raises(ValueError, match="larger than a whole machine"):
        online_pack([{"m": 1.1}], {"m": 1.0})


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=25),
    st.sampled_from(["best_fit", "first_fit", "next_fit", "worst_fit"]),
)
def test_online_packing_never_overfills(sizes, rule):
    items = [{"cpu": cpu, "mem": mem} for cpu, mem in sizes]
    packed = online_pack(items, {"cpu": 1.0, "mem": 1.0}, rule=rule)
    for resource in ("cpu", "mem"):
        held = Counter()
        for item, machine in zip(items, packed.machine_of, strict=True):
            held[machine] += item[resource]
        assert all(amount <= 1 + 1e-6 for amount in held.values())
    assert packed.least <= packed.machines <= max(1, len(items)) or not items


def test_a_choice_keeps_its_limits_whatever_the_snapshot():
    for seed in range(50):
        pairs = [
            OnMachine("abc"[(seed + k) % 3], f"m{1 + k % 3}", (ACTIVE, OVERLOADED, INTERFERED)[(seed * k) % 3])
            for k in range(5)
        ]
        choice = get_variant(snapshot(*pairs), VariantQuery("resnet50", slo_ms=10.0 + 10 * (seed % 5)))
        if choice.variant is not None:
            assert TABLE_2[choice.variant].latency_ms <= 10.0 + 10 * (seed % 5)
            held = {(p.variant, p.machine): p.state for p in pairs}
            state = held.get((choice.variant, choice.machine), INACTIVE)
            assert choice.loads or any(
                (p.variant, p.machine, p.state) == (choice.variant, choice.machine, ACTIVE) for p in pairs
            )
            assert state in (ACTIVE, INACTIVE) or not choice.loads

"""What a plan cannot be: named, with what is missing and the least that would do."""

import json
from pathlib import Path

import pytest
from build import tiny
from cases.random_variants import sharing
from cases.variants import NEEDS, machines, solve, table2

import hetplan as hp
from hetplan import registry
from hetplan.api.solve import plan_for
from hetplan.planner.contract import Tools
from hetplan.planner.draft import Draft
from hetplan.planner.solver_calls import Asking
from hetplan.problems.variants.formulations import cheapest_plan
from hetplan.problems.variants.options import VariantsOptions
from hetplan.problems.variants.request import read_snapshot
from hetplan.profiles.load import load_inputs


@pytest.mark.parametrize("formulation", ["variants-columns", "variants-milp"])
def test_each_type_alone_would_cure_it(formulation):
    documents = table2(1000.0, needs=NEEDS, resources={"inf_cores": 1.0, "cpu_cores": 40.0, "gpus": 1.0})
    found = solve(documents, formulation)
    assert found.exit_code == 3
    assert found.why[0].startswith("950 of 1000 queries/s")
    amounts = {repair.field.rpartition(".")[2]: (repair.verb, repair.amount) for repair in found.repairs}
    assert amounts["cpu_cores"] == ("raise", pytest.approx(40))
    assert amounts["inf_cores"] == ("raise", pytest.approx(1))
    assert amounts["gpus"] == ("raise", pytest.approx(1))
    assert amounts["rate_qps"] == ("lower", pytest.approx(50))


def test_the_repair_does_repair():
    resources = {"inf_cores": 1.0, "cpu_cores": 40.0, "gpus": 1.0}
    for repair in solve(table2(1000.0, needs=NEEDS, resources=resources)).repairs:
        if repair.verb == "raise":
            name = repair.field.rpartition(".")[2]
            assert solve(table2(1000.0, needs=NEEDS, resources={**resources, name: repair.to})).exit_code == 0


def test_nothing_is_fast_enough():
    found = solve(table2(10.0, 10.0))
    assert found.exit_code == 3
    assert "nearest in time is c with 15 ms" in found.why[0]
    assert [(repair.field, repair.to) for repair in found.repairs] == [("slo.apps.images.latency.p99_ms", 15.0)]


def test_every_limit_that_is_too_low_is_raised_at_its_own_place():
    documents = table2(10.0, 10.0)
    limits = [(99, 200), (50, 10), (90, 12)]
    documents[1]["apps"]["images"]["latency"] = {f"p{p:g}_ms": ms for p, ms in limits}
    found = solve(documents)
    (joint,) = found.repairs
    assert {(edit.path, edit.value) for edit in joint.edits} == {
        (("apps", "images", "latency", key), 15.0) for key in ("p50_ms", "p90_ms")
    }
    for key, stated in (("p50_ms", 10), ("p90_ms", 12)):
        assert f"latency.{key} from {stated} to 15 ms (fails at 14." in joint.text
    documents[1]["apps"]["images"]["latency"].update(p50_ms=15, p90_ms=15)
    assert solve(documents).exit_code == 0


def test_nothing_is_both_fast_and_good():
    documents = table2(10.0, 50.0)
    for name, quality in {"a": 0.9, "b": 0.7, "c": 0.6}.items():
        documents[0]["variants"][name]["quality"] = {"value": quality}
    documents[1]["apps"]["images"]["quality"] = {"min": 0.8}
    found = solve(documents)
    assert {(repair.field, repair.to) for repair in found.repairs} == {
        ("slo.apps.images.latency.p99_ms", 200.0),
        ("slo.apps.images.quality.min", 0.7),
    }


def test_one_more_machine_is_the_cure():
    documents = machines({"m": (1, {"units": 6.0})}, {"x-v": ("m", 10.0, 10.0, 1, {"units": 3.0})}, {"x": 30.0})
    found = solve(documents)
    assert found.exit_code == 3
    assert "20 of 30 queries/s" in found.why[0]
    assert found.repairs[0].field == "profile.machines.m.hosts"
    assert found.repairs[0].amount == 1


def test_more_runs_than_there_is_room_for():
    # Six cores hold one; two run. The plan comes back inside.
    documents = machines(
        {"m": (1, {"units": 6.0})}, {"x-v": ("m", 10.0, 10.0, 1, {"units": 4.0})}, {"x": 10.0},
        on={"m-0": {"x-v": 2}},
    )  # fmt: skip
    found = solve(documents)
    assert found.exit_code == 0, found.violations
    assert [(action.do, action.count) for action in found.plan.actions] == [("keep", 1)]


@pytest.mark.parametrize("moves", [0, 1])
def test_too_few_moves_are_named_and_raised_to_the_fewest_that_do(moves):
    folder = Path(__file__).resolve().parents[3] / "examples" / "variants"
    slo = json.loads((folder / "slo.json").read_text())
    slo["limits"] = {"changes": moves}
    files = folder / "profile.json", folder / "state.json"
    found = hp.solve(*files, slo, options={"sizing": "fluid"})
    assert found.exit_code == 3
    assert "slo.limits.changes cannot be met" in found.why
    (repair,) = found.repairs
    assert (repair.field, repair.to) == ("slo.limits.changes", 2)
    slo["limits"]["changes"] = 2
    assert hp.solve(*files, slo, options={"sizing": "fluid"}).exit_code == 0


def test_a_trial_of_which_nobody_hears_why_it_fails_asks_only_whether_there_is_a_plan():
    """A refusal tries some ten numbers for each repair: each one that failed was explained to nobody."""
    wish = tiny("variants").limited(cost=0.01)
    inputs = hp.load(wish.profile, wish.slo)
    heard = {True: [], False: []}
    for explains, programs in heard.items():
        tools = Tools(trial=True, explains=explains)
        events = []
        outcome = plan_for(
            inputs, question="variants", options={"sizing": "fluid"}, tools=tools, try_repairs=False,
            on_event=events.append,
        )  # fmt: skip
        programs += [one.detail for one in events if one.what == "solve"]
        assert outcome.plan is None
        assert bool(outcome.repairs) == explains
    assert len(heard[True]) > 2
    assert heard[False] == heard[True][:1]


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"cost_per_hour": "4"}, "slo.limits.cost_per_hour"),
        ({"provides": {"gpu": 2}}, "slo.limits.provides.gpu"),
        ({"instances": {"h": [0, 2]}}, "slo.limits.instances.h[1]"),
    ],
)
def test_a_plan_that_no_program_made_is_held_to_all_limits_and_the_repair_is_enough(limits, field):
    """Six instances of half a machine; best fit looks at no budget."""
    profile, slo = sharing({"h": (2.0, {"gpu": 1})}, {"m": [("h", 50.0, {"gpu": 0.5})]}, {"m": 300.0})

    def made(limits):
        v = read_snapshot(load_inputs(profile, {**slo, "limits": limits}), VariantsOptions(sizing="fluid"))
        return cheapest_plan(v, Asking(registry.solvers()))

    found = made(limits)
    if field.endswith("[1]"):
        assert "fit on no machine" in found.why[0]
    else:
        assert found.why[0].startswith("the machines that would hold this come to")
    (repair,) = found.repairs
    assert repair.field == field
    (name,) = limits
    enough = {"cost_per_hour": str(repair.to), "provides": {"gpu": repair.to}, "instances": {"h": [0, int(repair.to)]}}
    assert isinstance(made({name: enough[name]}), Draft)

"""The way from what runs to what is planned, followed by hand; each wrong step on it is caught and named.

x goes from `old` on m1 (10 queries/s) to `new` on m2 (20); of three `tiny` (5 each) for y two stay. `old` and `new`
take 4 of the 6 units of a machine, `tiny` one core.
"""

import pytest
from cases.documents import Json, documents, latency, load, promise, read, spoil, worker
from cases.random_variants import random_snapshot

import hetplan as hp
from hetplan.profiles.plan_file import plan_dict
from hetplan.profiles.read_plan import read_plan
from hetplan.verifier.variants import check


def moving() -> Json:
    def variant(hardware: str, family: str, qps: float, **needs: float) -> Json:
        run = {"hardware": hardware, "latency": "t", "saturation_qps": qps, "needs": needs, "price_per_hour": "0"}
        return {"task": "t", "family": family, "runs": [run]}

    return documents(
        profile={
            "hardware": {
                "m": {"kind": "gpu", "provides": {"units": 6}},
                "s": {"kind": "cpu", "provides": {"cores": 2}},
            },
            "offers": {"m": {"hardware": "m", "price_per_hour": "0"}},
            "hosts": {"m1": {"offer": "m"}, "m2": {"offer": "m"}},
            "tasks": {"t": {}},
            "variants": {
                "old": variant("m", "f", 10, units=4),
                "new": variant("m", "f", 20, units=4),
                "tiny": variant("s", "g", 5, cores=1),
            },
            "tables": {"t": latency({"batch": [1]}, [1])},
        },
        slo={
            "limits": {"capacity": {"units": 8}},
            "change": {"slack": 1},
            "apps": {
                "x": {"family": "f", "rate_qps": 10},
                "y": {"family": "g", "rate_qps": 10},
            },
        },
        state={
            "format": "hetplan/state/1.0",
            "workers": [
                worker("wa", "m", "m", 1, load("a", None, "old"), host="m1"),
                worker("wg", "s", None, 3, load("g", "y", "tiny")),
            ],
        },
        plan={
            "question": "variants",
            "method": {"formulation": "variants-milp", "options": {}},
            "workers": [
                worker("wb", "m", "m", 1, load("b", None, "new"), host="m2"),
                worker("wg", "s", None, 2, load("g", "y", "tiny")),
            ],
            "actions": actions(
                {"do": "start", "worker": "wb"},
                {"do": "upgrade", "load": "b"},
                {"do": "unload", "load": "a"},
                {"do": "stop", "worker": "wa"},
                {"do": "stop", "worker": "wg", "count": 1},
            ),
            "promises": [
                promise("gross_cost_per_hour", "=", 0, "no-queueing"),
                promise("net_cost_per_hour", "=", 0, "no-queueing"),
            ],
        },
    )


def actions(*steps: Json) -> list[Json]:
    return [{"id": number + 1, **step} for number, step in enumerate(steps)]


def way(*steps: Json, **edits: object) -> Json:
    return {"plan/actions": actions(*steps), **edits}


START, UP, DOWN = {"do": "start", "worker": "wb"}, {"do": "upgrade", "load": "b"}, {"do": "unload", "load": "a"}
STOP, FEWER = {"do": "stop", "worker": "wa"}, {"do": "stop", "worker": "wg", "count": 1}
IN_PLACE = {"plan/workers/0": worker("wa", "m", "m", 1, load("b", None, "new"), host="m1")}
"""`new` on the machine where `old` was; as a rule there is no room for both."""
ASIDE = {"do": "move", "load": "a"}
SWAP = {"plan/warnings": [{"code": "W-swap", "at": "actions.1", "text": "no room"}]}
G_END = "variants-end @ workers.wg.loads.g"
B_END = "variants-end @ workers.wb.loads.b"
TWICE = {"plan/workers/1/loads/0/instances": 2, "state/workers/1/loads/0/instances": 2}
ALONE = {"state/workers/1/count": 1, "plan/workers/1/count": 1}
"""One machine of `tiny`, which is then as good as named; y wants no more than that."""


# fmt: off
WAYS = [
    ("nothing", {}, ""),
    ("nothing runs", {"state": None}, ""),
    ("down before up", way(START, DOWN, UP, STOP, FEWER), "variants-served @ actions.2"),
    ("stopped before up", way(START, STOP, UP, FEWER), "variants-served @ actions.2"),
    ("fewer down than there are", {"state/workers/0/loads/0/instances": 2, "slo/limits": {},
     "profile/hardware/m/provides/units": 8, **way(START, UP, {**DOWN, "count": 1}, FEWER, STOP)}, ""),
    ("fewer down than there are, and no more", {"state/workers/0/loads/0/instances": 2, "slo/limits": {},
     "profile/hardware/m/provides/units": 8, **way(START, UP, {**DOWN, "count": 1}, FEWER)},
     "variants-end @ workers.wa.loads.a"),
    ("aside, and all down", way(START, UP, {**ASIDE, "count": 1}, {**DOWN, "count": 1}, STOP, FEWER), ""),
    ("stopped without more ado", way(START, UP, STOP, FEWER), ""),
    ("down before up, as was said", {**way(START, DOWN, UP, STOP, FEWER),
     "plan/warnings": [{"code": "W-swap", "at": "actions.2", "text": "no room"}]}, "variants-served @ actions.2"),
    ("down before up, before it was said", {**way(START, DOWN, UP, STOP, FEWER),
     "plan/warnings": [{"code": "W-swap", "at": "actions.3", "text": "no room"}]}, "variants-served @ actions.2"),
    ("down before up, as was said twice", {**way(START, DOWN, UP, STOP, FEWER),
     "plan/warnings": [{"code": "W-swap", "at": f"actions.{n}", "text": "no room"} for n in (4, 2)]},
     "variants-served @ actions.2"),
    ("another warning", {**way(START, DOWN, UP, STOP, FEWER),
     "plan/warnings": [{"code": "W-late", "at": "actions.1", "text": "no room"}]}, "variants-served @ actions.2"),
    ("a warning of no action", {**way(START, DOWN, UP, STOP, FEWER),
     "plan/warnings": [{"code": "W-swap", "at": "actions", "text": "no room"}]}, "variants-served @ actions.2"),
    ("never up", way(START, STOP, FEWER), f"{B_END}; variants-served @ actions.2"),
    ("up twice", way(START, UP, UP, DOWN, STOP, FEWER),
     f"{B_END}; variants-room @ actions.3; variants-room @ actions.3"),
    ("more stopped than is planned", way(START, UP, STOP, {**FEWER, "count": 2}),
     f"{G_END}; variants-served @ actions.4"),
    ("all stopped", way(START, UP, STOP, {"do": "stop", "worker": "wg"}),
     f"{G_END}; variants-served @ actions.4"),
    ("fewer stopped than is planned", way(START, UP, STOP), G_END),
    ("more stopped than are up", way(START, UP, STOP, {**FEWER, "count": 9}),
     f"{G_END}; variants-served @ actions.4"),
    ("kept, as many as are planned", way(START, UP, STOP, {"do": "keep", "load": "g", "count": 2}), ""),
    ("kept, more than there are", way(START, UP, STOP, {"do": "keep", "load": "g", "count": 9}),
     f"{G_END}; variants-end @ actions.4"),
    ("kept, of no number", way(START, UP, STOP, {"do": "keep", "load": "g"}, FEWER), ""),
    ("kept, of none that is there", way(START, UP, STOP, {"do": "keep", "load": "z", "count": 1}, FEWER),
     "variants-end @ actions.4"),
    ("kept too few", way(START, UP, STOP, {"do": "keep", "load": "g", "count": 1}),
     f"{G_END}; variants-served @ actions.4"),
    ("aside, and then stopped", way(START, UP, STOP, {"do": "move", "load": "g", "count": 1}, FEWER), ""),
    ("aside, and more are stopped", way(START, UP, STOP, {"do": "move", "load": "g", "count": 1}, {**FEWER,
     "count": 2}), f"{G_END}; variants-served @ actions.5"),
    ("aside, and stopped twice", way(START, UP, STOP, {"do": "move", "load": "g", "count": 1}, FEWER, FEWER),
     f"{G_END}; variants-served @ actions.6"),
    ("aside to a host is only said", way(START, UP, STOP, {"do": "move", "load": "g", "count": 1, "host": "m1"}, FEWER),
     ""),
    ("aside, all of them", way(START, UP, STOP, {"do": "move", "load": "g"}, FEWER),
     f"{G_END}; variants-served @ actions.4; variants-served @ actions.5"),
    ("aside, more than there are", way(START, UP, STOP, {"do": "move", "load": "g", "count": 9}, FEWER),
     f"{G_END}; variants-end @ actions.4; variants-served @ actions.4; variants-served @ actions.5"),
    ("aside, of none that is there", way(START, UP, {"do": "move", "load": "z"}, STOP, FEWER), ""),
    ("replicated by one", {"state/workers/1/count": 1, **way(START, UP, STOP, {"do": "replicate", "load": "g",
     "count": 1})}, ""),
    ("replicated by more than is planned", {"state/workers/1/count": 1, **way(START, UP, STOP, {"do": "replicate",
     "load": "g", "count": 2})}, G_END),
    ("replicated by all again", {"state/workers/1/count": 1, **way(START, UP, STOP, {"do": "replicate", "load": "g"})},
     G_END),
    ("loads that are not planned are not loaded", way(START, UP, {"do": "load", "load": "a"}, DOWN, STOP, FEWER), ""),
    ("two instances a machine", {**TWICE}, ""),
    ("two instances a machine, and one aside", {**TWICE, **way(START, UP, STOP, {"do": "move", "load": "g", "count": 1},
     FEWER)}, ""),
    ("room for one machine of them in all", {"slo/limits/capacity/units": 7}, "variants-room @ actions.2"),
    ("room but for rounding", {"slo/limits/capacity/units": 7.999993}, ""),
    ("no room but for rounding", {"slo/limits/capacity/units": 7.999991}, "variants-room @ actions.2"),
    ("no room for what runs already", {"slo/limits/capacity/units": 3}, "variants-room @ actions.2"),
    ("no room for what runs already, which goes first", {"slo/limits/capacity/units": 3, **SWAP,
     **way(DOWN, START, UP, STOP, FEWER)}, ""),
    ("a limit of nothing", {"slo/limits/capacity/units": 0, **SWAP, **way(DOWN, START, UP, STOP, FEWER)}, ""),
    ("no limit in all", {"slo/limits": {}}, ""),
    ("a limit on what does not change", {"slo/limits/capacity/cores": 0, **way(START, UP, DOWN, STOP, FEWER)}, ""),
    ("a small limit is kept to what a whole one rounds", {"slo/limits/capacity/units": 0.0079991,
     "profile/variants/old/runs/0/needs/units": 0.004, "profile/variants/new/runs/0/needs/units": 0.004}, ""),
    ("a small limit is broken", {"slo/limits/capacity/units": 0.0079989,
     "profile/variants/old/runs/0/needs/units": 0.004, "profile/variants/new/runs/0/needs/units": 0.004},
     "variants-room @ actions.2"),
    ("both on one machine", {**IN_PLACE, **way(UP, DOWN, FEWER)}, "variants-room @ actions.1"),
    ("both on one machine, and room for both", {**IN_PLACE, **way(UP, DOWN, FEWER),
     "profile/hardware/m/provides/units": 8}, ""),
    ("both on one machine that says nothing of it", {**IN_PLACE, **way(UP, DOWN, FEWER),
     "profile/hardware/m/provides": {}}, ""),
    ("one after the other on one machine", {**IN_PLACE, **way(DOWN, UP, FEWER)}, ""),
    ("one after the other on one machine, which has room for both", {**IN_PLACE, **SWAP, **way(DOWN, UP, FEWER),
     "profile/hardware/m/provides/units": 8}, "variants-served @ actions.1"),
    ("one after the other, where one machine is in stock", {**way(DOWN, STOP, START, UP, FEWER), "slo/limits": {},
     "profile/offers/m/stock": 1}, ""),
    ("one after the other, where two are in stock", {**way(DOWN, STOP, START, UP, FEWER), "slo/limits": {}, **SWAP,
     "profile/offers/m/stock": 2}, "variants-served @ actions.1; variants-served @ actions.2"),
    ("aside on one machine", {**IN_PLACE, **way(ASIDE, UP, DOWN, FEWER)}, ""),
    ("another variant under the same name", {"plan/workers/0": worker("wa", "m", "m", 1, load("a", None, "new"),
     host="m1"), **way({"do": "upgrade", "load": "a"}, FEWER)}, ""),
    ("another variant under the same name, by a count", {"plan/workers/0": worker("wa", "m", "m", 1,
     load("a", None, "new"), host="m1"), **way({"do": "upgrade", "load": "a", "count": 1}, FEWER)}, ""),
    ("another variant under the same name, not loaded", {"plan/workers/0": worker("wa", "m", "m", 1,
     load("a", None, "new"), host="m1"), **way(FEWER)}, ""),
    ("a machine without a name is as good as named", {**ALONE, "slo/apps/y/rate_qps": 5,
     **way(START, UP, DOWN, STOP, {"do": "replicate", "load": "h"}),
     "plan/workers/1/loads/1": load("h", "y", "tiny", instances=2)}, "variants-room @ actions.5"),
    ("machines that are several are not one", {**SWAP,
     **way(START, UP, DOWN, STOP, FEWER, {"do": "replicate", "load": "h"}),
     "plan/workers/1/loads/1": load("h", "y", "tiny", instances=2)}, ""),
    ("several in the state, one in the plan", {"slo/apps/y/rate_qps": 5, "plan/workers/1/count": 1,
     **SWAP, **way(START, UP, DOWN, STOP, {**FEWER, "count": 2}, {"do": "replicate", "load": "h"}),
     "plan/workers/1/loads/1": load("h", "y", "tiny", instances=2)},
     "variants-served @ actions.5"),
    ("several in the plan, one in the state", {"state/workers/1/count": 1, **way(START, UP, DOWN, STOP,
     {"do": "replicate", "load": "g", "count": 1}, {"do": "replicate", "load": "h"}),
     "plan/workers/1/loads/1": load("h", "y", "tiny", instances=2)}, ""),
    ("two loads stopped with their machine", {"state/workers/0/loads/1": load("a2", None, "old"),
     "profile/hardware/m/provides/units": 8, "slo/limits": {}}, ""),
    ("what goes on serves another from now on", {"slo/apps/y/family": ["f", "g"],
     "slo/apps/x/rate_qps": 0, "slo/limits": {}, "state/workers/0/loads/0/app": "x",
     "plan/workers/0/loads/0/app": "x", "plan/workers/1": worker("wa", "m", "m", 1, load("a", "y", "old"),
     host="m1"), **way({"do": "stop", "worker": "wg"}, START, UP)}, ""),
    ("no room at all", {"slo/limits/capacity/disk": 0, "profile/variants/new/runs/0/needs/disk": 0.5,
     "profile/hardware/m/provides/disk": 1}, "variants-room @ actions.2"),
    ("no room at all on a machine", {"profile/hardware/m/provides/disk": 0,
     "profile/variants/new/runs/0/needs/disk": 0.5}, "variants-room @ actions.2"),
    ("what goes on as another variant serves as before", {"slo/apps/y/rate_qps": 0,
     "plan/workers/0": worker("wa", "m", "m", 1, load("a", "y", "new"), host="m1"), "slo/apps/x/rate_qps": 0,
     **way({"do": "upgrade", "load": "a"}, FEWER)}, ""),
]
# fmt: on


@pytest.mark.parametrize(("words", "edits", "expected"), WAYS, ids=[words for words, *_ in WAYS])
def test_the_way_is_followed(words: str, edits: Json, expected: str) -> None:
    found = [f"{one.code} @ {one.at}" for one in check(*read(spoil(moving(), edits)))]
    assert sorted(found) == sorted(filter(None, expected.split("; ")))


def test_what_is_wrong_is_said_in_plain_words() -> None:
    case = spoil(moving(), {**IN_PLACE, **way(UP, DOWN, FEWER), "slo/limits/capacity/units": 5})
    assert [one.text for one in check(*read(case))] == [
        "8 units are taken on m1, there are 6",
        "8 units are taken on all machines, there are 5",
    ]
    case = spoil(moving(), way(START, DOWN, UP, STOP, FEWER))
    assert [one.text for one in check(*read(case))] == ["x is left with 0 queries/s, before and after it has 10"]


@pytest.mark.parametrize(("seed", "level"), [(67, "a group that shrinks"), (449, "some of a load that stay")])
def test_what_ends_with_its_machines_or_stays_in_part_is_no_forgery(seed: int, level: str) -> None:
    profile, slo, state = random_snapshot(seed)
    outcome = hp.solve(profile, slo, state, options={"sizing": "fluid", "level": "machine"})
    plan = outcome.require()
    assert any(action.do == "move" for action in plan.actions), level
    assert hp.verify(plan, profile, slo, state).ok
    document = plan_dict(plan)
    last = max(
        n for n, action in enumerate(document["actions"]) if action["do"] in ("keep", "stop") and "count" in action
    )
    document["actions"][last]["count"] += 1
    assert not hp.verify(read_plan(document, trust_digest=True), profile, slo, state).ok


def test_of_a_group_that_shrinks_those_machines_stay_on_which_something_was_loaded() -> None:
    """Two machines with two instances of one load each become one, with one of that load and one of another."""
    from benchmarks.certified_share import QUESTIONS

    profile, slo, state = QUESTIONS["variants, with a state"].files(5007)
    options = {"sizing": "fluid", "level": "machine", "sharing": "dedicated"}
    outcome = hp.solve(profile, slo, state, options=options, formulation="variants-milp")
    assert outcome.exit_code == 0, outcome.violations


@pytest.mark.parametrize(("seed", "formulation"), [(31087, "variants-milp"), (31143, "variants-columns")])
def test_of_a_group_that_shrinks_and_serves_others_the_rest_is_stopped(seed: int, formulation: str) -> None:
    """Two machines that served one application become one that serves another by the same run."""
    profile, slo, state = random_snapshot(seed)
    options = {"sizing": "fluid", "level": "machine", "sharing": "dedicated"}
    outcome = hp.solve(profile, slo, state, options=options, formulation=formulation)
    assert outcome.exit_code == 0, outcome.violations
    assert any(action.do == "stop" and action.count == 1 for action in outcome.require().actions)


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["variants-milp", "variants-columns"])
def test_the_way_of_random_states_is_one_that_can_be_gone(formulation: str) -> None:
    from benchmarks.certified_share import QUESTIONS

    for seed in range(5000, 5030):
        profile, slo, state = QUESTIONS["variants, with a state"].files(seed)
        for level in ("aggregate", "machine"):
            for sharing in ("dedicated", "shared"):
                options = {"sizing": "fluid", "level": level, "sharing": sharing}
                outcome = hp.solve(profile, slo, state, options=options, formulation=formulation)
                assert outcome.exit_code != 6, (seed, options, outcome.violations)

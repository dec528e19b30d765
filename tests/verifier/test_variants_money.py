"""What instances of variants cost, worked out by hand; a cost that is said otherwise is caught.

Two instances of v run on g1 already: 4 an hour. Planned are, each hour at 0.01 per second of loading and unit of price:

    g1: three of v, half a GPU each at 4 a GPU      6      and one is new: 0.01 x 2 x 36 = 0.72
    g2: one of w at its own price                   3      new: 0.01 x 3 x 18            = 0.54
    h:  v on two machines at 5                     10      new: 0.01 x 5 x 72 x 2        = 7.2
    k:  u on a machine of no offer                  1      new: 0.01 x 1 x 10            = 0.1
    a machine with two GPUs that holds nothing      8
"""

import pytest
from cases.documents import DROP, Json, documents, latency, load, promise, read, spoil, worker

from hetplan.verifier.variants import check


def priced() -> Json:
    g = {"hardware": "g", "latency": "t", "needs": {"gpu": 0.5, "cpu_cores": 2, "mem": 1}}
    return documents(
        profile={
            "hardware": {
                "g": {"kind": "gpu", "provides": {"gpu": 2, "cpu_cores": 8, "mem": 16}},
                "h": {"kind": "cpu"},
                "k": {"kind": "cpu"},
            },
            "offers": {
                "g": {"hardware": "g", "price_per_hour": "4", "per": "gpu"},
                "h": {"hardware": "h", "price_per_hour": "5"},
                "cheap-h": {"hardware": "h", "price_per_hour": "3"},
            },
            "hosts": {"g1": {"offer": "g"}, "g2": {"offer": "g"}, "g3": {"offer": "g"}},
            "tasks": {"t": {}},
            "variants": {
                "v": {
                    "task": "t",
                    "runs": [{**g, "load_s": 36}, {"hardware": "h", "latency": "t", "load_s": 72}],
                },
                "w": {"task": "t", "runs": [{**g, "price_per_hour": "3", "load_s": 18}]},
                "u": {"task": "t", "runs": [{"hardware": "k", "latency": "t", "load_s": 10}]},
            },
            "tables": {"t": latency({"batch": [1]}, [1])},
        },
        slo={"change": {"load_weight_per_s": 0.01}, "apps": {"x": {"rate_qps": 0, "task": "t"}}},
        state={
            "format": "hetplan/state/1.0",
            "workers": [worker("wa", "g", "g", 1, load("v1", None, "v", instances=2), host="g1")],
        },
        plan={
            "question": "variants",
            "method": {"formulation": "variants-milp", "options": {}},
            "workers": [
                worker("wa", "g", "g", 1, load("v1", None, "v", instances=3), host="g1"),
                worker("wb", "g", "g", 1, load("w1", None, "w"), host="g2"),
                worker("wc", "h", "h", 2, load("v2", None, "v")),
                worker("wd", "k", None, 1, load("u1", None, "u")),
                worker("we", "g", "g", 1),
            ],
            "actions": [
                {"id": 1, "do": "replicate", "load": "v1", "count": 1},
                {"id": 2, "do": "load", "load": "w1"},
                {"id": 3, "do": "replicate", "load": "v2"},
                {"id": 4, "do": "load", "load": "u1"},
            ],
            "promises": [
                promise("gross_cost_per_hour", "=", 36.56, "no-queueing"),
                promise("net_cost_per_hour", "=", 32.56, "no-queueing"),
            ],
        },
    )


def costs(gross: float, net: float, **edits: object) -> Json:
    return {"plan/promises/0/value": gross, "plan/promises/1/value": net, **edits}


OFFER, NOW = "profile/offers/g", "state/workers/0"
NOTHING_RUNS = {"state/workers": [], "plan/actions/0/count": DROP}
NAMELESS = "variants-host @ workers.wa"

# fmt: off
RIGHT = [
    ("nothing", {}),
    ("nothing runs", costs(28 + 3 * 0.72 + 7.2 + 0.64, 28 + 3 * 0.72 + 7.2 + 0.64, **NOTHING_RUNS)),
    ("more runs than is planned", costs(35.84, 35.84 - 8, **{f"{NOW}/loads/0/instances": 4,
     "plan/actions/0": {"id": 1, "do": "keep", "load": "v1", "count": 3}})),
    ("two machines run", costs(35.84, 35.84 - 8, **{f"{NOW}/count": 2,
     "plan/actions/0": {"id": 1, "do": "keep", "load": "v1", "count": 3}})),
    ("the same on another hardware counts for itself where machines have names", costs(36.56, 32.56 - 5,
     **{"state/workers/1": worker("wz", "h", "cheap-h", 1, load("z", None, "v")),
     "profile/offers/cheap-h/price_per_hour": "5"})),
    ("the same on the same hardware and offer counts", costs(36.56 - 3.6, 32.56 - 5 - 3.6, **{"state/workers/1":
     worker("wz", "h", "h", 1, load("z", None, "v"))})),
    ("without names a variant counts wherever it runs at one price and time to load", costs(49 + 3.6 + 0.64,
     49 + 3.6 + 0.64 - 4 * 5, **{"state/workers": [worker("wz", "h", "h", 4, load("z", None, "v"))],
     "profile/offers/h/price_per_hour": "5", "profile/offers/g/price_per_hour": "10",
     "profile/variants/v/runs/0/load_s": 72, "plan/actions/0/count": DROP})),
    ("at another price it counts for itself", costs(28 + 3 * 0.72 + 0.64, 28 + 3 * 0.72 + 0.64 - 4 * 5,
     **{"state/workers": [worker("wz", "h", "h", 4, load("z", None, "v"))], "plan/actions/0/count": DROP})),
    ("on hosts the offer is known", costs(36.56, 32.56, **{f"{NOW}/offer": None})),
    ("on hosts the offer is known, in the plan", costs(36.56, 32.56, **{"plan/workers/0/offer": None})),
    ("on hosts the offer is known, though another is before it", costs(36.56, 32.56, **{"plan/workers/0/offer": None,
     "profile/offers/g-big": {"hardware": "g", "price_per_hour": "90"}})),
    ("of several offers the first by name", costs(36.56 - 4 - 2.88, 32.56 - 6.88, **{"plan/workers/2/offer": None})),
    ("a whole machine", costs(36.56 - 6 + 12 + 0.72 - 4, 32.56 - 6 + 12 + 0.72 - 4 - 4, **{f"{OFFER}/per": None})),
    ("by the core", costs(36.56 + 3 * 6 + 0.72 * 3 + 24, 32.56 + 3 * 6 + 0.72 * 3 + 24 - 12,
     **{f"{OFFER}/per": "cpu_cores"})),
    ("by the memory of the whole machine", costs(21.84 + 192 + 23.04 + 64, 21.84 + 192 + 23.04 + 64 - 128,
     **{f"{OFFER}/per": "mem"})),
    ("by something that the machine does not have", costs(21.84 + 12 + 1.44 + 4, 21.84 + 12 + 1.44 + 4 - 8,
     **{f"{OFFER}/per": "disk"})),
    ("by the GPU, of a run that needs none", costs(36.56 + 3 * 6 + 0.72 * 3, 32.56 + 3 * 6 + 0.72 * 3 - 12,
     **{"profile/variants/v/runs/0/needs": {}})),
    ("nothing for loading", costs(28, 24, **{"slo/change/load_weight_per_s": 0})),
    ("idle machines of no offer are free where there are offers", costs(28.56, 24.56, **{"plan/workers/4":
     worker("we", "k", None, 3)})),
    ("three idle machines", costs(52.56, 48.56, **{"plan/workers/4/count": 3})),
    ("an idle machine of an offer for the whole", costs(33.56, 29.56, **{"plan/workers/4": worker("we", "h", "h",
     1)})),
    ("without offers a machine costs 1, idle or not", costs(10 + 0.36 + 2 * 0.72 + 0.54 + 0.1,
     10 + 0.36 + 2 * 0.72 + 0.54 + 0.1 - 2, **{"profile/offers": {}, "profile/hosts": {},
     "plan/workers/0/offer": None, "plan/workers/0/host": None, "plan/workers/1/offer": None,
     "plan/workers/1/host": None, "plan/workers/2/offer": None, "plan/workers/4/offer": None, f"{NOW}/offer": None,
     f"{NOW}/host": None})),
    ("what cannot run where it is costs nothing", costs(36.56, 32.56, **{"state/workers/1": worker("wz", "k", None,
     1, load("z", None, "w"))})),
    ("what nobody knows costs nothing", costs(36.56, 32.56, **{"state/workers/1": worker("wz", "k", None, 1,
     load("z", None, "gone"))})),
    ("another batch counts for itself", costs(36.56 + 1.44, 32.56 + 1.44, **{f"{NOW}/loads/0/serve": {"max_batch": 2},
     "plan/actions/0/count": DROP})),
    ("other knobs count for themselves", costs(36.56 + 1.44, 32.56 + 1.44, **{f"{NOW}/loads/0/knobs": {"size": 2},
     "plan/actions/0/count": DROP})),
    ("as exactly as can be said", costs(36.56003, 32.56003)),
    ("by a plan without hosts as a whole", {"plan/method/options/level": "aggregate", "plan/workers/0/host": None}),
]
WRONG = [
    ("at least so much", {"plan/promises/1/relation": ">="}, 1),
    ("more gross", costs(36.56004, 32.56), 1),
    ("more net", costs(36.56, 32.56004), 1),
    ("less of both", costs(36.5, 32.5), 2),
    ("no gross", {"plan/promises/0": DROP}, 1),
    ("no net", {"plan/promises/1": DROP}, 1),
    ("nothing", {"plan/promises": []}, 2),
]
# fmt: on


@pytest.mark.parametrize(("words", "edits"), RIGHT, ids=[words for words, *_ in RIGHT])
def test_costs_are_added_up(words: str, edits: Json) -> None:
    found = [one for one in check(*read(spoil(priced(), edits))) if one.code == "variants-cost"]
    assert [one.text for one in found] == []


@pytest.mark.parametrize(("words", "edits", "many"), WRONG, ids=[words for words, *_ in WRONG])
def test_a_wrong_cost_is_caught(words: str, edits: Json, many: int) -> None:
    found = [f"{one.code} @ {one.at}" for one in check(*read(spoil(priced(), edits)))]
    assert found == ["variants-cost @ promises"] * many


@pytest.mark.parametrize(
    ("cost", "edits", "right"),
    [(1e-12, {}, True), (3e-12, {}, False)],
)
def test_a_cost_of_nothing_is_reported_as_nothing(cost: float, edits: Json, right: bool) -> None:
    free = {"plan/workers": [], "state/workers": [], "plan/actions": [], **costs(cost, 0)}
    assert (check(*read(spoil(priced(), free | edits))) == []) is right


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({}, []),
        ({"plan/workers/0/host": None}, ["variants-host @ workers.wa"]),
        ({"plan/workers/0/host": None, "plan/method/options/level": "hosts"}, ["variants-host @ workers.wa"]),
        ({"plan/workers/0/host": None, "plan/method/options/level": "aggregate"}, ["variants-host @ workers.wa"]),
        ({"plan/workers/4/loads": [load("w9", None, "w")]}, ["variants-host @ workers.we"]),
    ],
)
def test_machines_known_by_name_are_named(edits: Json, expected: list[str]) -> None:
    found = check(*read(spoil(priced(), edits)))
    assert [f"{one.code} @ {one.at}" for one in found if one.code == "variants-host"] == expected

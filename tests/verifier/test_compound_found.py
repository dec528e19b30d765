"""A plan found by search, its latency worked out by hand: every way of spoiling it is caught and named.

The operators s (a processor of the device), d and b (GPUs of the cloud and the edge, each fed by s), t (device, fed by
both). There is no link from device to cloud: bytes go over the edge.

    s:  200 ms x 2 (the application's own device is twice as slow)                       = 400, ends at 400 ms
        its 50,000 bytes: device - edge at 4 Mbit/s, the application's own link: 100 + 5; edge - cloud at 10: 40 + 10
    d:  400 ms x 0.5 (the cloud is faster) / 0.25 (its share)                             = 800, ends at 1355 ms
    b:  300 ms, batched: its share of 0.5 does not slow it                                = 300, ends at 805 ms
    t:  2,500 bytes of d back: 2 + 10, 5 + 5; of b: 5 + 5 (later is d); 10 ms x 2         = 20, ends at 1397 ms
"""

import pytest
from cases.documents import DROP, Json, documents, load, promise, read, spoil, worker

from hetplan.verifier.compound import check
from tests.build import answered


def found() -> Json:
    sizes = [416, 640]
    return documents(
        profile={
            "tiers": ["device", "edge", "cloud", "far"],
            "links": [
                {"between": ["device", "edge"], "bandwidth_mbps": 1000, "latency_ms": 1},
                {"between": ["edge", "cloud"], "bandwidth_mbps": 10, "latency_ms": 10},
            ],
            "hardware": {
                "phone": {"kind": "cpu", "tier": "device", "relative_time": 3},
                "mini": {"kind": "gpu", "tier": "edge"},
                "a100": {"kind": "gpu", "tier": "cloud", "relative_time": 0.5},
            },
            "metrics": {"f1": {}},
            "pipelines": {
                "track": {
                    "metric": "f1",
                    "nodes": {
                        "t": {"device": "cpu", "share_law": "batch"},
                        "s": {"device": "cpu", "reads": ["size"], "share_law": "batch"},
                        "d": {"device": "gpu", "reads": ["size"]},
                        "b": {"device": "gpu", "share_law": "batch"},
                    },
                    "edges": [{"from": x, "to": y} for x, y in ("sd", "sb", "dt", "bt")],
                    "knobs": {"size": sizes, "rate": [1, 5]},
                    "evaluator": "e",
                }
            },
        },
        slo={
            "apps": {
                "cam": {
                    "pipeline": "track",
                    "latency": {"p99_ms": 1400, "ttft_p99_ms": 1},
                    "quality": {"min": 0.7, "max": 0.9},
                    "device": {
                        "relative_time": 2,
                        "links": [{"between": ["edge", "device"], "bandwidth_mbps": 4, "latency_ms": 5}],
                    },
                    "streams": 1,
                }
            }
        },
        plan={
            "question": "compound",
            "method": {"formulation": "by-hand"},
            "workers": [
                worker("w1", "phone", None, 1, operator("s", knobs={"size": 640}), operator("t")),
                worker("w2", "mini", None, 1, operator("b", share={"gpu": 0.5, "enforce": "mps"})),
                worker(
                    "w3", "a100", None, 1, operator("d", share={"gpu": 0.25, "enforce": "mps"}, knobs={"size": 640})
                ),
            ],
            "routing": {"cam": [{"node": node, "to": {f"cam.{node}": 1}} for node in "sdbt"]},
            "dispatch": {
                "cam": {
                    "rule": "chosen-plan/1",
                    "knobs": {"size": 640, "rate": 5},
                    "placement": {"s": "device", "d": "cloud", "b": "edge", "t": "device"},
                    "share": {"d": 0.25, "b": 0.5},
                }
            },
            "promises": [
                promise("response_ms", "<=", 1397, "measured", "cam") | {"percentile": 99},
                promise("quality", "=", 0.8, "measured", "cam"),
                promise("goodput", "=", 1, "no-queueing"),
                promise("served", "=", 1, "no-queueing"),
            ],
        },
    ) | {"measured": {"apps": {"cam": [OTHER, MEASURED]}}}


def operator(node: str, **more: object) -> Json:
    return load(f"cam.{node}", "cam", None, node=node, **more)


OTHER = {"knobs": {"size": 416, "rate": 5}, "passes": False, "verdict": "fail", "mean": 0.5}
MEASURED = {
    "knobs": {"size": 640, "rate": 5},
    "passes": True,
    "verdict": "pass",
    "mean": 0.8,
    "seconds": {"s": 0.2, "d": 0.4, "b": 0.3, "t": 0.01},
    "bytes": {"s": 50_000, "d": 2_500, "b": 2_500, "t": 1},
}
AT, NOW = "dispatch.cam", "measured/apps/cam/1"
RESPONSE, QUALITY = "plan/promises/0/value", "plan/promises/1/value"
LATER = "promise @ promises"
WITHOUT_HOPS = {
    "profile/links/2": {"between": ["cloud", "device"], "bandwidth_mbps": 4, "latency_ms": 5},
    f"{NOW}/bytes/d": 5_000,
}
"""Straight to the cloud: s reaches d after 105 ms, d ends at 1305, its bytes take 10 + 5, t ends at 1340."""
ON_DEVICE = {
    "plan/workers/2/hardware": "phone",
    "plan/dispatch/cam/placement/d": "device",
}
"""d beside s: 400 x 2 / 0.25 = 3200 ms from 400 on, and no bytes on the way: t ends at 3620."""


DOUBT = {"code": "W-undecided", "at": "apps.cam.quality", "text": "on neither side"}


def wait(ms: float, **edits: object) -> Json:
    """Another latency is promised, and allowed."""
    return {RESPONSE: ms, "slo/apps/cam/latency": {}, **edits}


# fmt: off
SPOILT = [
    ("nothing", {}, ""),
    ("nothing measured is given", {"measured": None}, ""),
    ("nothing measured is given, and not enough promised", {"measured": None, RESPONSE: 1401}, f"latency @ {AT}"),
    ("no pipeline", {"slo/apps/cam": lambda one: answered(one, task="t")}, f"chosen-plan @ {AT}"),
    ("nothing to run", {"slo/apps/cam": lambda one: answered(one, candidates=[{"demand": {"net": 1}}])},
     f"chosen-plan @ {AT}"),
    ("no promise of a latency", {"plan/promises/0": DROP}, "chosen-plan @ promises"),
    ("undecided, and not said", {f"{NOW}/verdict": "undecided"}, "undecided @ warnings"),
    ("undecided, as is said", {f"{NOW}/verdict": "undecided", "plan/warnings": [DOUBT]}, ""),
    ("decided, and in doubt", {"plan/warnings": [DOUBT]}, ""),
    ("a share that nobody enforces", {"plan/workers/2/loads/0/share/enforce": "none"}, f"operator @ {AT}"),
    ("no promise of a quality", {"plan/promises/1": DROP}, "chosen-plan @ promises"),
    ("promises to another", {"plan/promises/0/app": None}, "chosen-plan @ promises"),
    ("a knob that is no level", {"plan/dispatch/cam/knobs/rate": 3}, f"knob @ {AT}"),
    ("a knob left out", {"plan/dispatch/cam/knobs/rate": DROP}, f"knob @ {AT}"),
    ("a knob that a load has otherwise", {"plan/workers/2/loads/0/knobs/size": 416}, f"operator @ {AT}"),
    ("a knob that a load does not have", {"plan/workers/2/loads/0/knobs": {}}, f"operator @ {AT}"),
    ("a knob that an operator does not read", {"plan/workers/1/loads/0/knobs": {"rate": 1}}, ""),
    ("an operator left out", {"plan/workers/1": DROP}, f"operator @ {AT}"),
    ("an operator twice", {"plan/workers/3": worker("w4", "mini", None, 1, load("x", "cam", None, node="b",
     share={"gpu": 0.5, "enforce": "mps"}))}, f"operator @ {AT}"),
    ("an operator twice on its machine", {"plan/workers/1/loads/0/instances": 2}, f"operator @ {AT}"),
    ("an operator on two machines", {"plan/workers/1/count": 2}, f"operator @ {AT}"),
    ("an operator in batches", {"plan/workers/1/loads/0/serve": {"max_batch": 2}}, f"operator @ {AT}"),
    ("several at once in an operator", {"plan/workers/1/loads/0/serve": {"concurrency": 2}}, f"operator @ {AT}"),
    ("no way to an operator", {"plan/routing/cam/2": DROP}, f"operator @ {AT}"),
    ("no way at all", {"plan/routing": {}}, f"operator @ {AT}"),
    ("not all go to an operator", {"plan/routing/cam/2/to/cam.b": 0.95}, f"operator @ {AT}"),
    ("some go elsewhere", {"plan/routing/cam/2/to": {"cam.b": 0.5, "cam.d": 0.5}}, f"operator @ {AT}"),
    ("an operator of another application", {"plan/workers/3": worker("w4", "mini", None, 1, load("x", "other", None,
     node="b"))}, ""),
    ("another tier than it runs in", {"plan/dispatch/cam/placement/b": "cloud"}, f"operator @ {AT}"),
    ("a place of no operator", {"plan/dispatch/cam/placement/z": "cloud"}, f"operator @ {AT}"),
    ("a share of no operator", {"plan/dispatch/cam/share/z": 0.5}, f"operator @ {AT}"),
    ("no tier", {"plan/dispatch/cam/placement/b": DROP}, f"operator @ {AT}"),
    ("another share than it runs with", {"plan/dispatch/cam/share/d": 0.5}, f"operator @ {AT}"),
    ("a share of what has none", {"plan/dispatch/cam/share/s": 0.5}, f"operator @ {AT}"),
    ("a share that is not named", {"plan/dispatch/cam/share/b": DROP}, f"operator @ {AT}"),
    ("more promised than is wanted", {RESPONSE: 1400.0015}, f"latency @ {AT}"),
    ("as much promised as is wanted", {RESPONSE: 1400.0013}, ""),
    ("no latency wanted", {"slo/apps/cam/latency": {}, RESPONSE: 1e6}, ""),
    ("a quality that is too low", {QUALITY: 0.6999989, f"{NOW}/mean": 0.6999989}, f"quality @ {AT}"),
    ("the least quality", {QUALITY: 0.6999991, f"{NOW}/mean": 0.6999991}, ""),
    ("a quality that is too high", {QUALITY: 0.9000011, f"{NOW}/mean": 0.9000011}, f"quality @ {AT}"),
    ("the highest quality", {QUALITY: 0.9000009, f"{NOW}/mean": 0.9000009}, ""),
    ("any quality at least", {"slo/apps/cam/quality": {"max": 0.9}, QUALITY: 0.1, f"{NOW}/mean": 0.1}, ""),
    ("any quality at most", {"slo/apps/cam/quality": {"min": 0.7}, QUALITY: 1.1, f"{NOW}/mean": 1.1}, ""),
    ("any quality", {"slo/apps/cam/quality": DROP, QUALITY: 0.1, f"{NOW}/mean": 0.1}, ""),
    ("of an error, little is good", {"profile/metrics/f1/better": "lower", QUALITY: 0.1, f"{NOW}/mean": 0.1}, ""),
    ("of an error, much is bad", {"profile/metrics/f1/better": "lower", QUALITY: 0.91, f"{NOW}/mean": 0.91},
     f"quality @ {AT}"),
    ("a metric of no name is better when higher", {"profile/pipelines/track/metric": DROP, QUALITY: 0.1,
     f"{NOW}/mean": 0.1}, f"quality @ {AT}"),
    ("nothing was measured of it", {"measured/apps": {}}, f"unmeasured @ {AT}"),
    ("no measurements at all", {"measured": {}}, f"unmeasured @ {AT}"),
    ("other knobs were measured", {f"{NOW}/knobs/rate": 1}, f"unmeasured @ {AT}"),
    ("no times were measured", {f"{NOW}/seconds": DROP}, f"unmeasured @ {AT}"),
    ("what was measured did not pass", {f"{NOW}/passes": False}, f"quality @ {AT}"),
    ("a better quality than was measured", {QUALITY: 0.8000011}, LATER),
    ("a worse quality than was measured", {QUALITY: 0.7999989}, LATER),
    ("the quality that was measured", {QUALITY: 0.8000009}, ""),
    ("a large quality is said in its own digits", {"slo/apps/cam/quality": DROP, QUALITY: 200.0001,
     f"{NOW}/mean": 200}, ""),
    ("a large quality, said wrong", {"slo/apps/cam/quality": DROP, QUALITY: 200.0003, f"{NOW}/mean": 200}, LATER),
    ("a large negative quality is said in its own digits", {"slo/apps/cam/quality": DROP, QUALITY: -200.0001,
     f"{NOW}/mean": -200}, ""),
    ("a wrong quality hides no wrong latency", {QUALITY: 0.81, f"{NOW}/seconds/t": 0.02}, LATER),
    ("faster than it is", {RESPONSE: 1396.99}, LATER),
    ("as fast as it is, said to six digits", {RESPONSE: 1396.999}, ""),
    ("as fast as it is, said to five digits", {RESPONSE: 1396.998}, LATER),
    ("slower than it is", {RESPONSE: 1399}, ""),
    ("s takes longer", {f"{NOW}/seconds/s": 0.20001}, LATER),
    ("d takes longer", {f"{NOW}/seconds/d": 0.40001}, LATER),
    ("b takes longer, nobody waits for it", {f"{NOW}/seconds/b": 0.8}, ""),
    ("b takes so long that t waits for it", {f"{NOW}/seconds/b": 0.8619}, ""),
    ("b takes too long", {f"{NOW}/seconds/b": 0.8621}, LATER),
    ("t takes longer", {f"{NOW}/seconds/t": 0.01001}, LATER),
    ("s sends more", {f"{NOW}/bytes/s": 50_010}, LATER),
    ("d sends more", {f"{NOW}/bytes/d": 2_510}, LATER),
    ("more comes in than s has at hand", {f"{NOW}/input_bytes": 1e9}, ""),
    ("s away from where queries come in", {"plan/workers/0/hardware": "mini", f"{NOW}/input_bytes": 50_000,
     "plan/dispatch/cam/placement/s": "edge", "plan/dispatch/cam/placement/t": "edge", **wait(1177)}, ""),
    ("s away from where queries come in, too late", {"plan/workers/0/hardware": "mini", f"{NOW}/input_bytes": 50_000,
     "plan/dispatch/cam/placement/s": "edge", "plan/dispatch/cam/placement/t": "edge", **wait(1176.99)}, LATER),
    ("nothing said of what comes in", {"plan/workers/0/hardware": "mini", "plan/dispatch/cam/placement/s": "edge",
     "plan/dispatch/cam/placement/t": "edge", **wait(1077)}, ""),
    ("nothing said of what comes in, too late", {"plan/workers/0/hardware": "mini",
     "plan/dispatch/cam/placement/s": "edge", "plan/dispatch/cam/placement/t": "edge", **wait(1076.99)}, LATER),
    ("the device of the profile", {"slo/apps/cam/device/relative_time": DROP, **wait(1607)}, ""),
    ("the device of the profile, too late", {"slo/apps/cam/device/relative_time": DROP, **wait(1606.99)}, LATER),
    ("the links of the profile", {"slo/apps/cam/device/links": [], **wait(1397 - 105 + 1.4 - 10 + 1.02)}, ""),
    ("the links of the profile, too late", {"slo/apps/cam/device/links": [], **wait(1397 - 105 + 1.4 - 10 + 1.01)},
     LATER),
    ("no device of its own", {"slo/apps/cam/device": DROP, **wait(1607 - 105 + 1.4 - 10 + 1.02)}, ""),
    ("no device of its own, too late", {"slo/apps/cam/device": DROP, **wait(1607 - 105 + 1.4 - 10 + 1.01)}, LATER),
    ("a direct link is taken, not the hops", {**WITHOUT_HOPS, **wait(1340)}, ""),
    ("a direct link, too late", {**WITHOUT_HOPS, **wait(1339.99)}, LATER),
    ("on the device, without a way", {**ON_DEVICE, **wait(3620)}, ""),
    ("on the device, too late", {**ON_DEVICE, **wait(3619.99)}, LATER),
    ("a way over a link that is not there", {"profile/links/1": DROP}, f"link @ {AT}"),
    ("an operator that has the machine to itself", {"plan/workers/2/loads/0/share": None,
     "plan/dispatch/cam/share/d": DROP, f"{NOW}/seconds/b": 0.1, RESPONSE: 797}, ""),
    ("an operator that has the machine to itself, too late", {"plan/workers/2/loads/0/share": None,
     "plan/dispatch/cam/share/d": DROP, f"{NOW}/seconds/b": 0.1, RESPONSE: 796.99}, LATER),
]
# fmt: on


@pytest.mark.parametrize(("words", "edits", "expected"), SPOILT, ids=[words for words, *_ in SPOILT])
def test_what_is_promised_was_measured(words: str, edits: Json, expected: str) -> None:
    case = {"": ""} | spoil(found(), edits)
    named = {f"{one.code} @ {one.at}" for one in check(*read(case))}
    assert sorted(named) == sorted(filter(None, expected.split("; ")))


def test_what_is_wrong_is_said_in_plain_words() -> None:
    unlinked = spoil(found(), {"profile/links": [], "slo/apps/cam/device/links": []})
    assert [one.text for one in check(*read(unlinked))] == ["no link joins device and edge, over which the plan goes"]

"""What a machine costs whose price is by the GPU: slices where every load has one, else the whole; by hand."""

import pytest
from cases.documents import DROP, Json, load, read, spoil, worker
from cases.plans_of_pipelines import streams

from hetplan.verifier.check import verify_plan

QUARTER, WHOLE = 0.9175, 3.67
CORES = {"profile/hardware/cloud/provides/cpu_cores": 8}


def beside(**more: object) -> Json:
    """The processor's operator on the machine whose GPU another one has a slice of."""
    return {**CORES, "plan/workers/0/loads/1": load("w2.s", "cam", None, node="s", **more)}


# fmt: off
CASES = [
    ("a slice", {}, QUARTER),
    ("a slice, beside an operator on the processor", beside(), QUARTER),
    ("a slice, beside an operator on the processor that needs none of the GPU",
     {**beside(), "profile/pipelines/track/nodes/s/needs/gpu": 0}, QUARTER),
    ("a slice, beside an operator on the processor that needs the GPU",
     {**beside(), "profile/pipelines/track/nodes/s/needs/gpu": 0.25}, WHOLE),
    ("two slices", beside(share={"gpu": 0.5}), 3 * QUARTER),
    ("an operator without a slice", {"plan/workers/0/loads/0/share": DROP}, WHOLE),
    ("an operator of nobody", {**CORES, "plan/workers/0/loads/1": load("w2.s", None, None, node="s")}, WHOLE),
    ("a variant without a slice", {"plan/workers/0/loads/1": load("w2.y", None, "yolo")}, WHOLE),
    ("a variant without a slice, of an application that has no pipeline", {"slo/apps/one": {"task": "detect",
     "rate_qps": 0}, "plan/workers/0/loads/1": load("w2.y", "one", "yolo")}, WHOLE),
    ("nothing on the machine", {"plan/workers/1": worker("w3", "cloud", "gpu-h", 1)}, QUARTER + WHOLE),
    ("by the core, an operator without a slice", {**beside(), "profile/offers/gpu-h/per": "cpu_cores"}, 8 * WHOLE),
    ("by the core, a slice each, and no less than it needs", {**beside(share={"cpu_cores": 2}),
     "profile/offers/gpu-h/per": "cpu_cores",
     "plan/workers/0/loads/0/share": {"gpu": 0.25, "cpu_cores": 1}}, 4 * WHOLE),
]
# fmt: on


@pytest.mark.parametrize(("words", "edits", "cost"), CASES, ids=[words for words, *_ in CASES])
def test_slices_are_paid_for(words: str, edits: Json, cost: float) -> None:
    case = spoil(streams(), {**edits, "slo/limits": {}, "plan/promises/0/value": cost})
    assert [str(one) for one in verify_plan(*read(case)).violations if "cost" in str(one)] == []
    wrong = spoil(case, {"plan/promises/0/value": cost + 0.001})
    assert "cost_per_hour" in " ".join(str(one) for one in verify_plan(*read(wrong)).violations)

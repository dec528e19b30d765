"""Field by field: what the files say is kept, played or refused by name, as `hetplan.problems.field_marks` declares.

Each field is set in a shipped example. A field that is kept changes the plan (or shows that there is none), one that is
played changes what `simulate` plays, one that is refused is an error that names it, and the others change nothing.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.api.solve import plan_for
from hetplan.problems.field_marks import QUESTIONS, fields_of_slo, mark_of, table
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_file import plan_bytes, with_digest
from hetplan.serving.planned_system import planned_systems
from hetplan.simulator.simulate import demands_of
from tests.build import answered, shipped
from tests.written_profile import written_profile

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
Json = dict[str, Any]


@dataclass(frozen=True)
class Files:
    """An example, with options that make it quick to answer."""

    question: str
    profile: Json
    slo: Json
    state: Json | None = None
    measured: Json | None = None
    options: Json = field(default_factory=dict)

    @property
    def app(self) -> Json:
        return next(iter(self.slo["apps"].values()))


def _read(name: str) -> Json:
    return shipped(EXAMPLES / name)


@cache
def _text(question: str) -> tuple[Any, ...]:
    state, measured, options = None, None, {}
    if question == "variants":
        state, options = _read("variants/state.json"), {"sizing": "fluid"}
    if question in ("pool", "pipeline"):
        options = {"sizing": "fluid"}
    if question == "policy":
        options = {"sizing": "fluid", "queue_max": 6}
    if question == "compound":
        measured = _read("compound/measured.json")
    if question == "llm":
        options = {"sizing": "fluid", "queries": 400}
    if question == "fleet":
        options = {"sizing": "fluid", "savings": False}
    of = "llm" if question == "fleet" else question
    return _read(f"{of}/profile.json"), _read(f"{of}/slo.json"), state, measured, options


def files_of(question: str) -> Files:
    profile, slo, state, measured, options = copy.deepcopy(_text(question))
    if question == "policy":
        slo["apps"]["images"]["rate_qps"] = 300
    if question == "pipeline":
        slo["apps"]["cameras"]["rate_qps"] = {"history": [280, 310, 300]}
    if question == "fleet":
        slo["horizon"] = {"period_s": 3600, "periods": 2}
        slo["apps"]["assistant"]["rate_qps"] = {"series": [5.0, slo["apps"]["assistant"]["rate_qps"]]}
    return Files(question, profile, slo, state, measured, options)


def put(document: Any, path: str, value: object) -> None:
    """Set a value at a path of steps ("apps.a.quality.min")."""
    *steps, last = path.split(".")
    for step in steps:
        document = document[int(step)] if isinstance(document, list) else document.setdefault(step, {})
    document[int(last) if isinstance(document, list) else last] = value


def seen(files: Files) -> tuple[str, Plan | None]:
    """What comes of the files, as text: the plan without its digests and its summary, or why there is none."""
    inputs = load_inputs(files.profile, files.slo, state=files.state, measured=files.measured)
    outcome = plan_for(inputs, question=files.question, options=files.options, try_repairs=False)
    if outcome.plan is None:
        return f"{outcome.status}: {outcome.why}", None
    document = json.loads(plan_bytes(outcome.plan))
    del document["inputs"], document["digest"], document["summary"]
    return f"{outcome.status}: {json.dumps(document, sort_keys=True)}", outcome.plan


def seen_or_refused(files: Files) -> str:
    try:
        return seen(files)[0]
    except hp.InputError as error:
        return f"refused: {error}"


def played(files: Files, plan: Plan) -> str:
    """What a simulation of this plan would play under the files."""
    inputs = load_inputs(files.profile, files.slo, state=files.state, measured=files.measured)
    return repr((planned_systems(plan, inputs), demands_of(plan, inputs)))


HARDWARE = {"pool": "t4", "pipeline": "t4", "policy": "cpu4", "variants": "cpu", "compound": "a100",
            "llm": "l4", "fleet": "l4"}  # fmt: skip
LEAST = {"pool": [3, 4], "pipeline": [0, 5], "policy": [4, 4], "variants": [3, 4], "compound": [1, 1],
         "llm": [2, 3], "fleet": [2, 3]}  # fmt: skip
HIGH = {"pool": 45.0, "pipeline": 30.0, "policy": 60.0, "variants": 35.0, "compound": 1.0,
        "llm": 250.0, "fleet": 250.0}  # fmt: skip
"""Milliseconds of network that leave too little for something."""
LIMIT = {"variants": 12.0}

Try = Callable[[Files], None]


def _rate(files: Files) -> None:
    if files.question == "pool":
        del files.slo["limits"]["cost_per_hour"], files.slo["objective"]
    files.app["rate_qps"] = 70.0
    if files.question == "compound":
        del files.app["streams"]


def _app(path: str, value: object) -> Try:
    return lambda files: put(files.app, path, value)


def _slo(path: str, value: object) -> Try:
    return lambda files: put(files.slo, path, value)


def _candidates(files: Files) -> None:
    if files.question != "compound":
        answered(files.app)
    else:
        for app in files.slo["apps"].values():
            answered(app, candidates=[{"demand": {"gpu": 0.5}}])
    files.app["candidates"] = [{"demand": {"gpu": 1.0}}]


def _runs(files: Files) -> None:
    runs: Json = {
        "pool": {"model": "ranker-s"}, "policy": {"models": ["net-nano", "net-base"]},
        "variants": {"family": "mobilenet"}, "llm": {"models": ["llama-8b", "other"]},
        "fleet": {"models": ["llama-8b", "other"]},
    }.get(files.question, {"pipeline": "other"})  # fmt: skip
    if "pipeline" in runs:
        name = files.app["pipeline"]
        other = copy.deepcopy(files.profile["pipelines"][name])
        other["edges"] = other["edges"][:1]
        kept = {end for edge in other["edges"] for end in (edge["from"], edge["to"])}
        other["nodes"] = {node: one for node, one in other["nodes"].items() if node in kept}
        files.profile["pipelines"]["other"] = other
    if files.question == "pool":
        files.profile["variants"]["ranker-s"] = copy.deepcopy(files.profile["variants"]["ranker-l"])
        files.profile["variants"]["ranker-s"]["runs"].pop()
    answered(files.app, **runs)


def _mix(files: Files) -> None:
    if files.question == "llm":
        files.app["mix"]["share"] = [0.05, 0.15, 0.15, 0.2, 0.25, 0.2]
        return
    axis, bins = ("resolution", [[320.0]]) if files.question == "variants" else ("batch", [[16.0], [64.0]])
    files.app["mix"] = {"axes": [axis], "bins": bins, "share": [1.0 / len(bins)] * len(bins)}


def _slower_target(files: Files) -> None:
    key, limit = next(iter(files.app["latency"].items()))
    files.app["latency"][key] = LIMIT.get(files.question, 0.7 * limit)


def _limited(of: str) -> Try:
    """The limits on the time of the first token, per token or of the response, stricter; one where there was none."""

    def change(files: Files) -> None:
        latency = files.app["latency"]
        mine = {key: 0.7 * ms for key, ms in latency.items() if key.startswith(f"{of}p")}
        files.app["latency"] = {**latency, **mine} if mine else {f"{of}p90_ms": 0.5 * max(latency.values())}

    return change


def _only_listed(files: Files) -> None:
    files.slo.setdefault("limits", {})["only_listed"] = files.question != "pipeline"
    if files.question == "pipeline":
        files.slo["limits"]["only_listed"] = True
        del files.slo["limits"]["instances"]["l4"]


def _objective(files: Files) -> None:
    terms: Any = {
        "pool": ["max rate", "min cost"], "pipeline": ["min machines"], "policy": ["max served"],
        "variants": ["max rate"], "compound": ["min cost"], "llm": ["max rate"],
        "fleet": ["min changes"],
    }  # fmt: skip
    files.slo["objective"] = terms[files.question]


def _links(files: Files) -> None:
    files.profile.setdefault("tiers", ["device", "edge", "cloud"])
    files.app["device"] = {"links": [{"between": ["device", "edge"], "bandwidth_mbps": 0.01, "latency_ms": 90.0}]}


def _budget(files: Files) -> None:
    if not files.profile.get("offers"):
        files.profile["offers"] = {
            name: {"hardware": name, "price_per_hour": "1"} for name in files.profile["hardware"]
        }
    files.slo.setdefault("limits", {})["cost_per_hour"] = "20" if files.question == "pipeline" else "0.9"


def _provided(files: Files) -> None:
    """So little that fewer machines may be had than are wanted; of machines that say what they provide."""
    for hardware in files.profile["hardware"].values():
        hardware.setdefault("provides", {})["watts"] = 300
    put(files.slo, "limits.provides", {"watts": 700})


TRACE = "apps.*.rate_qps.trace"


def _recorded(files: Files, **how: float) -> None:
    stated, trace = files.app.get("rate_qps", {}), {"file": "tests/cases/profiles/azure.csv", **how}
    files.app["rate_qps"] = {**(stated if isinstance(stated, dict) else {"mean": stated}), "trace": trace}


def _of_an_offer(files: Files) -> None:
    sold = {"any": {"hardware": next(iter(files.profile["hardware"])), "price_per_hour": "1"}}
    put(files.slo, "limits.offers", {next(iter(files.profile.setdefault("offers", sold))): {"min": 1}})


SLO_TRIES: dict[str, Try] = {
    "objective": _objective,
    "limits.cost_per_hour": _budget,
    "limits.currency": lambda files: (_budget(files), put(files.slo, "limits.currency", "EUR"))[-1],
    "limits.changes": lambda files: put(files.slo, "limits.changes", 20 if files.question == "pipeline" else 0),
    "limits.instances": lambda files: put(
        files.slo, f"limits.instances.{HARDWARE[files.question]}", LEAST[files.question]
    ),
    "limits.only_listed": _only_listed,
    "limits.provides": _provided,
    "limits.capacity": _slo("limits.capacity", {"gpu": 1, "cpu_cores": 4, "gpu_mem_gib": 2, "mem_gib": 64}),
    "limits.survive.machines": _slo("limits.survive", {"machines": 1}),
    "limits.survive.zones": _slo("limits.survive", {"zones": 1}),
    "limits.survive.spot": _slo("limits.survive", {"spot": "all"}),
    "limits.survive.serve": _slo("limits.survive", {"serve": 0.9}),
    "limits.spot": _slo("limits.spot", {"max": 0}),
    "limits.on_demand": _slo("limits.on_demand", {"min": 1}),
    "limits.reserved": _slo("limits.reserved", {"max": 0}),
    "limits.offers": _of_an_offer,
    "horizon.repeats": _slo("horizon.repeats", 30),
    "horizon.starts": _slo("horizon.starts", False),
    "apps.*.question": lambda files: put(files.app, "question", "compound" if files.question == "fleet" else "pool"),
    f"{TRACE}.file": _recorded,
    f"{TRACE}.period_s": lambda files: _recorded(files, period_s=60.0),
    f"{TRACE}.percentile": lambda files: _recorded(files, percentile=95.0),
    "robust.law": _slo("robust", {"law": False}),
    "change.slack": _slo("change.slack", 1.9),
    "change.slack_qps": _slo("change.slack_qps", 25.0),
    "change.load_weight_per_s": _slo("change.load_weight_per_s", 5.0),
    "change.offline_below": _slo("change.offline_below", 0.9),
    "horizon.period_s": _slo("horizon.period_s", 60.0),
    "horizon.periods": _slo("horizon.periods", 3),
    "apps.*.model": _runs,
    "apps.*.latency.p*_ms": _slower_target,
    "apps.*.latency.ttft_p*_ms": _limited("ttft_"),
    "apps.*.latency.tpot_p*_ms": _limited("tpot_"),
    "apps.*.quality.min": _app("quality", {"min": 0.86}),
    "apps.*.quality.max": _app("quality", {"max": 0.6}),
    "apps.*.attainment": _app("attainment", 0.95),
    "apps.*.weight": _app("weight", 40.0),
    "apps.*.late": _app("late", "drop"),
    "apps.*.dispatch": _app("dispatch", "shortest-queue"),
    "apps.*.network_ms_per_hop": lambda files: put(files.app, "network_ms_per_hop", HIGH[files.question]),
    "apps.*.network_ms_once": lambda files: put(files.app, "network_ms_once", HIGH[files.question]),
    "apps.*.rate_qps": _rate,
    "apps.*.rate_qps.history": _app("rate_qps", {"history": [70.0, 75.0]}),
    "apps.*.rate_qps.series": _app("rate_qps", {"series": [70.0]}),
    "apps.*.streams": _app("streams", 3),
    "apps.*.arrivals": _app("arrivals", {"process": "gamma", "shape": 0.2}),
    "apps.*.mix": _mix,
    "apps.*.lifetime_s": _app("lifetime_s", 60.0),
    "apps.*.deadline_s": _app("deadline_s", 5.0),
    "apps.*.device": _links,
    "apps.*.candidates": _candidates,
}
"""How each field of an SLO is set so that it matters. A new field needs a line here."""


def _two_pipelines(files: Files) -> None:
    files.slo["apps"] = {
        name: {**files.app, "quality": {"min": 0.5}, "rate_qps": rate}
        for name, rate in (("cameras", 200.0), ("doors", 100.0))
    }
    files.slo["limits"]["instances"] = {"t4": [0, 7], "l4": [0, 0]}


def _sizes(files: Files) -> None:
    for one in files.profile["tables"].values():
        one["axes"] = {**one["axes"], "resolution": [320, 640]}
        one["mean"] = [[ms, 4 * ms] for ms in one["mean"]]
    for app in files.slo["apps"].values():
        app["mix"] = {"axes": ["resolution"], "bins": [[320.0], [640.0]], "share": [0.5, 0.5]}
        app["latency"]["p99_ms"] *= 4


def _fewest(files: Files) -> None:
    files.slo["objective"] = ["min machines"]
    files.slo["limits"]["instances"] = {"cpu4": [6, 12]}
    files.app["rate_qps"] = 420.0
    files.app["quality"] = {"min": 0.5}


def _at_a_rate(files: Files) -> None:
    files.slo.clear()
    files.slo.update(_read("compound/rate-slo.json"))


def _played_fleet(files: Files) -> None:
    files.options.update({"sizing": "simulation", "parts": {"assistant": {"queries": 400}}})


def _slow_to_start(files: Files) -> None:
    for one in files.profile["hardware"].values():
        one["startup_s"] = 600.0


_BY_DEFAULT = dict.fromkeys(("pool", "pipeline", "variants"), ("apps.*.arrivals", f"{TRACE}.file"))
"""What a plan depends on where it is played, as it is by default."""

SCENES: dict[tuple[str, str], Try] = {
    ("variants", "apps.*.mix"): _sizes,
    ("pipeline", "apps.*.quality.min"): _app("rate_qps.history", [1450.0, 1500.0]),
    ("variants", "horizon.period_s"): lambda files: files.slo["change"].pop("load_weight_per_s"),
    ("pipeline", "apps.*.weight"): _two_pipelines,
    ("llm", "apps.*.attainment"): lambda files: (
        files.app.pop("attainment"),
        put(files.options, "sizing", "simulation"),
    )[-1],
    ("llm", "apps.*.arrivals"): lambda files: put(files.options, "sizing", "simulation"),
    ("fleet", "limits.survive.serve"): _slo("limits.survive", {"machines": 1}),
    ("fleet", "horizon.starts"): _slow_to_start,
    ("fleet", "apps.*.arrivals"): _played_fleet,
    ("fleet", "apps.*.attainment"): lambda files: (files.app.pop("attainment"), _played_fleet(files))[-1],
    ("compound", "apps.*.arrivals"): _at_a_rate,
    ("compound", f"{TRACE}.file"): _at_a_rate,
    **{
        (question, name): lambda files: files.options.clear()
        for question, names in _BY_DEFAULT.items()
        for name in names
    },
}
"""Where the example has no use for a field, what is set before."""

ELSEWHERE = {
    ("compound", "apps.*.lifetime_s"): "tests/simulator/test_holding.py",
    ("compound", "apps.*.deadline_s"): "tests/problems/compound/test_search.py",
}
"""What takes more than one solve to see, and where it is tried."""

UNTRIED = {"format", "requires", "extensions", *(f"{TRACE}.{one}" for one in ("sha256", "scale", "compress"))}
"""Fields with tests of their own: versions and features, data of the user's own, what is done with a trace."""

LONG = [
    case for case, scene in SCENES.items()
    if case[1] in _BY_DEFAULT["pool"] or scene is _played_fleet
    or (case[0] in ("llm", "pipeline") and case[1] != "apps.*.quality.min")
]  # fmt: skip
"""What is seen only where plans are simulated, or of two pipelines: it takes seconds each."""

FIELDS = [
    pytest.param(question, name, marks=[pytest.mark.slow] if (question, name) in LONG else [])
    for question in QUESTIONS
    for name in fields_of_slo()
    if name not in UNTRIED and (question, name) not in ELSEWHERE
]


@cache
def _before(question: str) -> tuple[str, Plan | None]:
    return seen(files_of(question))


@pytest.mark.quick_sample(20, 60)
@pytest.mark.parametrize(("question", "name"), FIELDS)
def test_each_field_of_an_slo_is_kept_played_or_refused(question: str, name: str) -> None:
    files, mark = files_of(question), mark_of(question, name)
    if (question, name) in SCENES:
        SCENES[question, name](files)
        before, plan = seen(files)
    else:
        before, plan = _before(question)
    calm = copy.deepcopy(files)
    SLO_TRIES[name](files)
    if mark == "refused":
        with pytest.raises(hp.InputError) as caught:
            seen(files)
        steps = [step for step in name.split(".") if step != "*"]
        assert any(any(step in fault.path for step in steps[1:][-2:]) for fault in caught.value.faults)
        assert all(fault.remedy for fault in caught.value.faults)
        return
    after = seen_or_refused(files)
    if mark == "kept" and after.startswith("refused"):
        assert any(step in after for step in name.split(".")[-2:]), "what says why a value cannot be kept reads it"
    if mark == "kept":
        assert after != before
    if mark == "part":
        own = mark_of("llm", name)
        assert after.startswith("refused") if own == "refused" else after != before or own == "played"
    if mark == "played":
        assert plan is not None
        assert after == before
        assert question == "fleet" or played(files, plan) != played(calm, plan)
    if mark in ("holds", "-"):
        assert after == before


@pytest.mark.quick_sample(4)
@pytest.mark.parametrize("sizing", ["fluid", "formula", pytest.param("simulation", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("question", "name"),
    [(question, name) for question in QUESTIONS for name in fields_of_slo() if mark_of(question, name) == "played"],
)
def test_what_is_only_played_moves_no_plan_of_any_size(question: str, name: str, sizing: str) -> None:
    files = files_of(question)
    if question == "compound" and name != "apps.*.lifetime_s":
        _at_a_rate(files)
    files.options.update({"sizing": sizing})
    before = seen(files)[0]
    SLO_TRIES[name](files)
    assert seen(files)[0] == before


def test_the_table_in_the_docs_is_the_declaration() -> None:
    """`python -c "from hetplan.api.solve import plan_for
    from hetplan.problems.field_marks import table; print(table())"` writes it anew."""
    assert table() in (ROOT / "docs" / "reference" / "marks.md").read_text()


@pytest.mark.parametrize("question", ["pipeline", "policy"])
def test_a_metric_that_is_better_when_lower_is_refused_where_the_highest_is_looked_for(question: str) -> None:
    files = files_of(question)
    (name,) = files.profile["metrics"]
    files.profile["metrics"][name]["better"] = "lower"
    with pytest.raises(hp.InputError, match=rf"\$\.metrics\.{name}\.better"):
        seen(files)


def test_machines_that_may_be_taken_back_are_named() -> None:
    files = files_of("pool")
    offers = files.profile["offers"]
    for name in [name for name, offer in offers.items() if "interruptions_per_hour" in offer]:
        del offers[name]
    _, calm = seen(files)
    assert calm is not None
    assert "W-interruptions" not in {warning.code for warning in calm.warnings}
    name, count = calm.workers[0].offer, calm.workers[0].count
    files.profile["offers"][name]["interruptions_per_hour"] = 0.5
    _, plan = seen(files)
    assert plan is not None
    (said,) = [warning for warning in plan.warnings if warning.code == "W-interruptions"]
    assert said.at == f"machines.{name}.spot"
    often = f"{0.5 * count:g} of {count} spot machines are taken back an hour"
    assert (often if count > 1 else "1 of 1 spot machines is taken back every 2 hours") in said.text
    silent = plan.model_copy(update={"warnings": tuple(one for one in plan.warnings if one is not said)})
    report = hp.verify(with_digest(silent), files.profile, files.slo)
    assert [violation.code for violation in report.violations] == ["interruptions"]


@pytest.mark.parametrize("price", ["0.0000000005", 4e-10, "1e-12"])
def test_a_price_too_small_to_count_is_refused(price: object) -> None:
    files = files_of("pool")
    written = written_profile(files.profile)
    next(iter(written["machines"].values()))["price_per_hour"] = price
    files.profile.clear()
    files.profile.update(written)
    with pytest.raises(hp.InputError, match="1e-09"):
        seen(files)


def test_refused_fields_are_named_in_the_order_of_the_format() -> None:
    """Not in that of a set: two runs on the same files named the same faults in another order."""
    files = files_of("pool")
    order = {"weight": 2, "lifetime_s": 3, "deadline_s": 3, "device": {"relative_time": 2.0}}
    files.app.update(reversed(order.items()))
    with pytest.raises(hp.InputError) as refused:
        seen(files)
    assert [fault.path.rsplit(".", 1)[-1] for fault in refused.value.faults] == list(order)

"""Whatever is wrong with a file, `InputError` says where, why and what to do; no other exception comes out."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hetplan.errors import Fault, InputError
from hetplan.profiles import load_inputs, load_profile
from tests.build import answered

CASES = Path(__file__).resolve().parents[1] / "cases"
_spec = importlib.util.spec_from_file_location("malformed", CASES / "malformed.py")
assert _spec is not None
assert _spec.loader is not None
malformed = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(malformed)

PROFILE = json.loads((CASES / "profiles" / "every_key_profile.json").read_text())
SLO = json.loads((CASES / "profiles" / "every_key_slo.json").read_text())
ALL = {name: (profile, slo) for name, profile, slo in malformed.malformed_cases(PROFILE, SLO)}

# Nothing inside these files can be pointed at.
WHOLE_FILE = ("empty", "spaces", "truncated", "UTF", "binary", "twice", "comma", "comment", "quotes", "documents")
WHOLE_FILE += ("None", "5000 digits", "nested", "surrogate")


def test_there_are_enough() -> None:
    assert len(ALL) >= 200
    assert len(set(ALL.values())) == len(ALL)


def test_the_unspoilt_pair_loads(folder: Path) -> None:
    load_inputs(folder / "profile.json", folder / "slo.json")


@pytest.mark.quick_sample(300)
@pytest.mark.parametrize("name", ALL)
def test_malformed(name: str, folder: Path) -> None:
    profile, slo = ALL[name]
    (folder / "profile.json").write_bytes(profile)
    (folder / "slo.json").write_bytes(slo)
    with pytest.raises(InputError) as caught:
        load_inputs(folder / "profile.json", folder / "slo.json")
    kind, what = name.split(": ", 1)
    assert caught.value.faults
    for fault in caught.value.faults:
        assert fault.why
        assert fault.remedy
        assert "hetplan.profiles" not in str(fault)
        assert len(str(fault)) < 700
        assert fault.path.startswith("$") or any(word in what for word in WHOLE_FILE)
    # What goes missing in the profile may show in the SLO only.
    found = {Path(fault.file).name for fault in caught.value.faults}
    assert found == {f"{kind}.json"} or kind == "profile"


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"profile": {"machines": {"g4dn": {"stock": 2**70}}}}, "$.machines.g4dn.stock"),
        ({"profile": {"models": {"rn50": {"batch": [1, 1.6e10]}}}}, "$.models.rn50.batch[1]"),
        ({"state": {"count": 2 * 10**9}}, "$.workers[0].count"),
        ({"state": {"loads": [{"id": "l", "variant": "v", "instances": 2**70}]}}, "$.workers[0].loads[0].instances"),
    ],
)
def test_numbers_that_nothing_real_counts_up_to(changed: dict[str, Any], path: str, folder: Path) -> None:
    documents = {"profile": json.loads(json.dumps(PROFILE)), "slo": SLO}
    for kind, rows in changed.get("profile", {}).items():
        for name, fields in rows.items():
            documents["profile"][kind][name] |= fields
    worker = {"id": "w", "hardware": "g4dn", **changed.get("state", {})}
    with pytest.raises(InputError) as caught:
        load_inputs(documents["profile"], SLO, state={"format": "hetplan/state/1.0", "workers": [worker]})
    assert path in [fault.path for fault in caught.value.faults]


@pytest.mark.parametrize("which", ["profile.json", "slo.json"])
def test_a_directory_or_nothing_at_all(which: str, folder: Path) -> None:
    (folder / which).unlink()
    with pytest.raises(InputError, match="no such file"):
        load_inputs(folder / "profile.json", folder / "slo.json")
    (folder / which).mkdir()
    with pytest.raises(InputError, match="not a directory"):
        load_inputs(folder / "profile.json", folder / "slo.json")


def test_a_near_name_is_reported(folder: Path) -> None:
    with pytest.raises(InputError, match=r"beside it lies profile\.json"):
        load_inputs(folder / "profil.json", folder / "slo.json")


def test_all_faults_of_all_files_at_once(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    profile["models"]["rn50"]["quality"]["top1"] = "good"
    profile["models"]["yolo-n"]["runs"]["g4d"] = profile["models"]["yolo-n"]["runs"].pop("g4dn")
    slo["apps"]["rank"]["latency"]["p99_ms"] = "350"
    answered(slo["apps"]["faces"], models=["rn51"])
    with pytest.raises(InputError) as caught:
        load_inputs(profile, slo)
    found = {fault.path: fault for fault in caught.value.faults}
    assert set(found) == {
        "$.models.rn50.quality.top1",
        "$.models.yolo-n.runs.g4d",
        "$.apps.rank.latency.p99_ms",
        "$.apps.faces.models[0]",
    }
    assert 'Did you mean "g4dn"?' in found["$.models.yolo-n.runs.g4d"].remedy
    assert 'Did you mean "rn50"?' in found["$.apps.faces.models[0]"].remedy
    assert found["$.apps.rank.latency.p99_ms"].remedy == "Write 350 without quotes."


def test_a_thing_with_a_fault_still_counts_as_there(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    profile["machines"]["g4dn"]["startup_s"] = -1
    with pytest.raises(InputError) as caught:
        load_inputs(profile, slo)
    assert [fault.path for fault in caught.value.faults] == ["$.machines.g4dn.startup_s"]


def faults_of(machines: dict[str, Any], models: dict[str, Any], **more: Any) -> list[Fault]:
    """The faults of a profile with these machines, each with a price, and these models."""
    priced = {name: {"price_per_hour": 1, **one} for name, one in machines.items()}
    with pytest.raises(InputError) as caught:
        load_profile({"format": "hetplan/profile/1.0", "machines": priced, "models": models, **more})
    return list(caught.value.faults)


TIMED = {"batch": [1, 8], "mean_ms": [6, 24]}


@pytest.mark.parametrize(
    ("model", "path", "said", "not_said"),
    [
        ({"runs": {"h": {"load_s": 1}}}, "runs.h", "Write mean_ms, mean_qps or law", "engine"),
        ({"runs": {"h": {"law": {"x": 1}}}}, "runs.h.law.x", "base_ms", "batch"),
        ({"runs": {"h": TIMED, "g": {"like": "h", "batch": [1, 2, 4]}}}, "runs.g.batch", "times of its own", "p99"),
        ({"runs": {"h": [TIMED], "g": {"like": "h"}}}, "runs.g.like", "with one run", 'mean "h"'),
        ({"quality": 76.1, "runs": {"h": TIMED}}, "quality", "Write 0.761", "offer"),
        ({"runs": {"h": [TIMED, TIMED]}}, "runs.h[1]", "make it a model of its own", "variant"),
        (
            {"runs": {"h": {"law": [{"base_ms": 9}], "kv_tokens": 9000, "max_tokens": 64, "max_seqs": 65}}},
            "runs.h.max_seqs",
            "raise max_tokens",
            "most_",
        ),
    ],
)
def test_a_fault_of_a_model_is_said_in_the_words_of_its_file(
    model: dict[str, Any], path: str, said: str, not_said: str
) -> None:
    (fault,) = faults_of({"h": {}, "g": {}}, {"m": model})
    assert fault.path == f"$.models.m.{path}"
    assert said in str(fault)
    assert not_said not in str(fault)


def test_a_quality_may_be_beyond_1_where_its_metric_says_so() -> None:
    model = {"quality": {"top1": 76.1}, "runs": {"h": TIMED}}
    machines = {"h": {"price_per_hour": 1}}
    said = {"format": "hetplan/profile/1.0", "machines": machines, "models": {"m": model}}
    assert load_profile({**said, "metrics": {"top1": {"range": [0, 100]}}}).variants["m"].quality.value == 76.1


def test_a_wished_quality_is_a_share_of_1_where_no_metric_is_named() -> None:
    models = {name: {"task": "t", "quality": 0.7, "runs": {"h": TIMED}} for name in ("a", "b")}
    profile = {"format": "hetplan/profile/1.0", "machines": {"h": {"price_per_hour": 1}}, "models": models}
    for one in ({"task": "t"}, {"model": "a"}, {"models": ["a", "b"]}):
        app = {**one, "rate_qps": 1, "quality": {"min": 75}}
        with pytest.raises(InputError) as caught:
            load_inputs(profile, {"format": "hetplan/slo/1.0", "apps": {"x": app}})
        (fault,) = caught.value.faults
        assert fault.path == "$.apps.x.quality.min"
        assert "Write 0.75" in fault.remedy


def test_runs_that_are_like_one_another_have_a_fault_each() -> None:
    faults = faults_of({"h": {}, "g": {}}, {"m": {"runs": {"h": {"like": "g"}, "g": {"like": "h"}}}})
    assert {one.path for one in faults} == {"$.models.m.runs.h.like", "$.models.m.runs.g.like"}


def test_an_old_profile_is_shown_its_own_numbers() -> None:
    """As much of them as a message has room for, and no others."""
    table = {"quantity": "latency_ms", "axes": {"batch": list(range(1, 99))}, "mean": [3.25 + n for n in range(98)]}
    old = {
        "format": "hetplan/profile/1.0",
        "hardware": {"gpu-1": {"kind": "gpu"}},
        "variants": {"ranker": {"task": "rank", "runs": [{"hardware": "gpu-1", "latency": "t"}]}},
        "tables": {"t": table},
        "machines": {},
    }
    with pytest.raises(InputError) as caught:
        load_profile(json.dumps(old).encode())
    assert {fault.path for fault in caught.value.faults} == {"$.hardware", "$.variants", "$.tables"}
    for fault in caught.value.faults:
        assert "for instance" not in fault.remedy
        assert "t4" not in fault.remedy
        assert "[6, 24]" not in fault.remedy
        assert ("ranker" in fault.remedy) == ("1, 2, 3, 4" in fault.remedy) == (fault.path != "$.hardware")
    with pytest.raises(InputError, match='Write for instance "models"'):
        load_profile(json.dumps({**old, "tables": {}}).encode())


@pytest.mark.parametrize(
    ("change", "path", "hint"),
    [
        (lambda p, s: p["models"]["rn50"]["quality"].update(top1=74.9), "$.models.rn50.quality.top1", "0.749"),
        (lambda p, s: s["apps"]["traffic"]["quality"].update(min=80), "$.apps.traffic.quality.min", "0.8"),
        (lambda p, s: s["apps"]["faces"]["quality"].update(min=70), "$.apps.faces.quality.min", "0.7"),
        (
            lambda p, s: s["apps"]["rank"].update(latency={"p0.99_ms": 350}),
            '$.apps.rank.latency["p0.99_ms"]',
            "Write p99_ms",
        ),
        (
            lambda p, s: s["apps"]["rank"]["mix"].update(share=[75, 25]),
            "$.apps.rank.mix.share",
            "percent",
        ),
        (lambda p, s: s["limits"].update(changes=10.0), "$.limits.changes", "Write 10."),
        (lambda p, s: p.update(modles={}), "$.modles", 'Did you mean "models"?'),
        (lambda p, s: p["machines"]["g4dn"].update(price=1), "$.machines.g4dn.price", 'Write "price_per_hour": 1.'),
        (lambda p, s: p["machines"]["g4dn"].update(count=3), "$.machines.g4dn.count", 'Write "stock": 3.'),
        (lambda p, s: p["machines"]["g4dn"].update(gpu="T4"), "$.machines.g4dn.gpu", "Write gpu_type or provides"),
        (lambda p, s: s.update(budget=3), "$.budget", "Write limits: {cost_per_hour: ...}"),
        (lambda p, s: s["apps"]["faces"].update(quality=0.8), "$.apps.faces.quality", "Write {min: ...}"),
        (lambda p, s: p["models"]["rn50"].update(axis={}), "$.models.rn50.axis", 'Did you mean "axes"?'),
        (
            lambda p, s: p["machines"]["g4dn"]["spot"].update(price_per_our=1),
            "$.machines.g4dn.spot.price_per_our",
            'Did you mean "price_per_hour"?',
        ),
        (
            lambda p, s: s["apps"]["images"].update(violations={"max": 0.05}),
            "$.apps.images.violations",
            "Write latency: {p95_ms: 60}",
        ),
        (
            lambda p, s: p.update(format="hetplan/profile/1.9", novelty=1),
            "$.novelty",
            "Upgrade hetplan",
        ),
    ],
)  # fmt: skip
def test_remedies(change: Any, path: str, hint: str, profile: dict[str, Any], slo: dict[str, Any]) -> None:
    change(profile, slo)
    with pytest.raises(InputError) as caught:
        load_inputs(profile, slo)
    found = {fault.path: fault.remedy for fault in caught.value.faults}
    assert hint in found[path]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**320), 10**320)
    | st.integers(-3, 120)
    | st.floats(allow_nan=True)
    | st.sampled_from(["", "max", "yolo-n", "g4dn", "a b", "é", "\ud800", "1e9", "*", "d=x/c=y"])
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_value_anywhere_loads_or_is_refused(data: st.DataObject) -> None:
    profile, slo = json.loads(json.dumps(PROFILE)), json.loads(json.dumps(SLO))
    del slo["apps"]["chat"]["rate_qps"]
    for _ in range(data.draw(st.integers(1, 3))):
        holder: Any = data.draw(st.sampled_from([profile, slo]))
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            inside = holder[key]
            if not isinstance(inside, dict | list) or data.draw(st.integers(0, 4)) == 0:
                holder[key] = data.draw(json_values)
                break
            holder = inside
    faults: tuple[Fault, ...] = ()
    try:
        load_inputs(profile, slo)
    except InputError as error:
        faults = error.faults
    for fault in faults:
        assert fault.file
        assert fault.why
        assert fault.remedy
        str(fault).encode()


@settings(max_examples=150, deadline=None)
@given(where=st.floats(0, 1), junk=st.binary(max_size=4), cut=st.integers(0, 3))
def test_any_bytes_anywhere_load_or_are_refused(where: float, junk: bytes, cut: int) -> None:
    text = json.dumps(PROFILE).encode()
    at = int(where * len(text))
    slo = {"format": "hetplan/slo/1.0", "apps": {"a": {"task": "classify"}}}
    faults: tuple[Fault, ...] = ()
    try:
        load_inputs(text[:at] + junk + text[at + cut :], slo)
    except InputError as error:
        faults = error.faults
    assert all(fault.file and fault.why and fault.remedy for fault in faults)


def test_a_wish_for_nothing_says_so_itself() -> None:
    with pytest.raises(InputError) as caught:
        load_inputs({"format": "hetplan/profile/1.0"}, {"format": "hetplan/slo/1.0", "limits": {"cost_per_hour": 3}})
    (fault,) = caught.value.faults
    assert fault.path == "$.apps"
    assert "at least one application" in fault.why
    assert "model" in fault.remedy


@pytest.mark.parametrize(("near", "remedy"), [("g4d", 'Did you mean "g4dn"? Or add it'), ("tpu", "Add it under")])
def test_a_missing_reference_reads_as_a_sentence(profile: dict[str, Any], near: str, remedy: str) -> None:
    runs = profile["models"]["rn50"]["runs"]
    runs[near] = runs["g4dn"]
    with pytest.raises(InputError) as caught:
        load_profile(profile)
    (found,) = [fault for fault in caught.value.faults if fault.path == f"$.models.rn50.runs.{near}"]
    assert found.remedy.startswith(remedy)


@pytest.mark.parametrize("number", [1e-300, 1e-16, 1e16, 1e308])
def test_numbers_beyond_all_reason_are_reported(profile: dict[str, Any], slo: dict[str, Any], number: float) -> None:
    profile["machines"]["g4dn"]["startup_s"] = number
    profile["models"]["rn50"]["runs"]["c5n"] = {"mean_ms": [1.0, number]}
    with pytest.raises(InputError) as caught:
        load_profile(profile)
    assert {fault.path for fault in caught.value.faults} == {
        "$.machines.g4dn.startup_s",
        "$.models.rn50.runs.c5n.mean_ms[1]",
    }
    assert all("Check the number" in fault.remedy for fault in caught.value.faults)


def test_rates_beyond_all_reason_are_reported() -> None:
    profile = {"format": "hetplan/profile/1.0"}
    app = {"candidates": [{"demand": {"gpu": 1}}]}
    for rate, path in (
        (1e13, "rate_qps"),
        ({"history": [1.0, 1e300]}, "rate_qps.history[1]"),
        ({"series": [1e300]}, "rate_qps.series[0]"),
        ({"mean": 1e13, "trace": {"file": "tests/cases/profiles/azure.csv"}}, "rate_qps.mean"),
    ):
        slo = {"format": "hetplan/slo/1.0", "apps": {"a": {**app, "rate_qps": rate}}}
        with pytest.raises(InputError, match="per second") as caught:
            load_inputs(profile, slo)
        assert caught.value.faults[0].path == f"$.apps.a.{path}"

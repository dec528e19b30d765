"""From files to `Inputs`: the examples with every key, merging, digests, references, warnings."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.errors import InputError
from hetplan.profiles import Profile, Slo, State, load_inputs, load_profile, load_slo, load_state
from hetplan.profiles.fields import money_text
from hetplan.profiles.merge import merge
from tests.build import answered

CASES = Path(__file__).resolve().parents[1] / "cases" / "profiles"
PROFILE = json.loads((CASES / "every_key_profile.json").read_text())


def test_the_examples_with_every_key_load(folder: Path) -> None:
    inputs = load_inputs(folder / "profile.json", folder / "slo.json")
    assert inputs.profile.tables["llama-8b-g4dn"].read(
        [{"input_tokens": 2048, "output_tokens": 64}]
    ).values.tolist() == [2.2]
    assert money_text(inputs.profile.offers["g4dn-spot"].price_per_hour) == "0.1578"
    assert inputs.slo.apps["rank"].rate_qps == "max"
    assert inputs.files == {"profile": str(folder / "profile.json"), "slo": str(folder / "slo.json")}
    assert inputs.warnings == ()
    assert list(inputs.traces) == ["chat"]
    assert inputs.trace_digests["chat"].startswith("sha256:77aa")


def test_the_same_by_path_by_text_by_bytes_by_document_and_by_model(
    folder: Path, profile: dict[str, Any], slo: dict[str, Any]
) -> None:
    (folder / "slo.json").write_text(json.dumps(slo))
    path = folder / "profile.json"
    once = load_inputs(path, slo)
    for source in (str(path), [path], path.read_bytes(), profile, once.profile, (profile,)):
        again = load_inputs(source, once.slo)
        assert again.profile == once.profile
        assert again.slo == once.slo
        assert again.digests == once.digests


def test_reformatting_keeps_the_digest_and_content_changes_it(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    before = load_inputs(profile, slo).digests
    text = json.dumps(profile, indent=7, sort_keys=True, ensure_ascii=True).replace("21,", "2.1e1,")
    assert load_inputs(text.encode(), slo).digests == before
    profile["models"]["rn50"]["runs"]["c5n"]["mean_ms"][1] = 160.5
    assert load_inputs(profile, slo).digests["profile"] != before["profile"]
    assert load_inputs(profile, slo).digests["slo"] == before["slo"]


def test_a_byte_order_mark_is_no_fault(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    assert load_inputs(b"\xef\xbb\xbf" + json.dumps(profile).encode(), slo).digests == load_inputs(profile, slo).digests


def test_models_round_trip(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    inputs = load_inputs(profile, slo)
    for model, kind in ((inputs.profile, Profile), (inputs.slo, Slo)):
        text = model.model_dump_json(by_alias=True)
        assert kind.model_validate_json(text) == model
        assert kind.model_validate(json.loads(text)) == model


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_however_a_profile_is_split_it_merges_back(data: st.DataObject) -> None:
    parts: list[dict[str, Any]] = [{"format": PROFILE["format"]} for _ in range(3)]
    for section, content in PROFILE.items():
        if isinstance(content, dict):
            for name, thing in content.items():
                for part in data.draw(st.sets(st.integers(0, 2), min_size=1)):
                    parts[part].setdefault(section, {})[name] = copy.deepcopy(thing)
        elif section == "links":
            cut = data.draw(st.integers(0, len(content)))
            parts[0][section], parts[1][section] = content[:cut], content[cut:]
        elif section != "format":
            parts[data.draw(st.integers(0, 2))][section] = content
    slo = {"format": "hetplan/slo/1.0", "apps": {"any": {"candidates": [{"demand": {"gpu": 1}}]}}}
    merged, whole = load_inputs(parts, slo), load_inputs(PROFILE, slo)
    assert merged.profile == whole.profile
    assert merged.digests == whole.digests


def test_a_contradiction_names_both_files(folder: Path, profile: dict[str, Any]) -> None:
    prices = {"format": profile["format"], "machines": {"G4DN": {"price_per_hour": "0.526", "stock": 3}}}
    (folder / "prices.json").write_text(json.dumps(prices))
    with pytest.raises(InputError) as caught:
        load_inputs([folder / "profile.json", folder / "prices.json"], folder / "slo.json")
    (fault,) = caught.value.faults
    assert fault.file == f"{folder / 'profile.json'} and {folder / 'prices.json'}"
    assert fault.path == "$.machines.G4DN.stock"
    prices["machines"]["G4DN"]["stock"] = 20
    (folder / "prices.json").write_text(json.dumps(prices))
    load_inputs([folder / "profile.json", folder / "prices.json"], folder / "slo.json")


def test_two_sources_without_names_are_told_to_have_some(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    """It was said of $.sources.source, which nobody wrote."""
    parts = [{"format": profile["format"], "source": {"kind": "measured", "tool": tool}} for tool in ("x", "y")]
    del profile["sources"]
    unnamed = json.loads(re.sub(r'"(quality_)?source": "[^"]*",? ?', "", json.dumps(profile)).replace(", }", "}"))
    with pytest.raises(InputError) as caught:
        load_inputs([unnamed, *parts], slo)
    (fault,) = caught.value.faults
    assert (fault.file, fault.path) == ("profile[1] and profile[2]", "$.source")
    assert fault.remedy == 'Add "name" to each.'
    for part in parts:
        part["source"]["name"] = f"of-{part['source']['tool']}"
    assert set(load_inputs([unnamed, *parts], slo).profile.sources) == {"of-x", "of-y"}
    parts[1]["source"]["date"] = "last May"
    with pytest.raises(InputError) as caught:
        load_inputs([unnamed, *parts], slo)
    assert [(fault.file, fault.path) for fault in caught.value.faults] == [("profile[2]", "$.source.date")]
    parts[1]["source"] = parts[0]["source"]
    assert set(load_inputs([unnamed, *parts], slo).profile.sources) == {"of-x"}


def test_a_fault_is_reported_of_the_file_that_has_it(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    prices = {"format": profile["format"], "machines": {"c5n": {"zones": profile["machines"]["c5n"].pop("zones")}}}
    prices["machines"]["c5n"]["zones"]["a"]["stock"] = -1
    profile["models"]["yolo-n"]["runs"]["g4dn"]["source"] = "m9"
    with pytest.raises(InputError) as caught:
        load_inputs([profile, prices], slo)
    assert {(fault.file, fault.path) for fault in caught.value.faults} == {
        ("profile[1]", "$.machines.c5n.zones.a.stock"),
        ("profile[0]", "$.models.yolo-n.runs.g4dn.source"),
    }


def test_an_app_with_a_fault_is_not_said_to_be_missing() -> None:
    app = {"models": sorted(PROFILE["models"])[:1], "rate_qps": {"low": 0, "high": 300}}
    with pytest.raises(InputError) as caught:
        load_inputs(PROFILE, {"format": "hetplan/slo/1.0", "apps": {"mine": app}})
    assert [fault.path for fault in caught.value.faults] == ["$.apps.mine.rate_qps.low"]
    with pytest.raises(InputError, match="at least one application"):
        load_inputs(PROFILE, {"format": "hetplan/slo/1.0", "apps": {}})


def test_links_and_scalars_must_agree() -> None:
    link = {"between": ["a", "b"], "bandwidth_mbps": 5}
    one = {"format": "hetplan/profile/1.0", "tiers": ["a", "b"], "reference": "x", "links": [link]}
    other = {"format": "hetplan/profile/1.0", "tiers": ["a", "b"], "reference": "y"}
    other["links"] = [{**link, "between": ["b", "a"], "bandwidth_mbps": 6}]
    document, file_of, faults = merge([("one", one), ("other", other)])
    assert [fault.path for fault in faults] == ["$.reference", "$.links"]
    assert all(fault.file == "one and other" for fault in faults)
    assert document["tiers"] == ["a", "b"]
    assert file_of(("reference",)) == "one"
    assert file_of(("no such",)) == "one + other"


def test_the_newest_version_holds_for_the_whole(slo: dict[str, Any]) -> None:
    parts = [{"format": "hetplan/profile/1.9", "novelty": 1}, {"format": "hetplan/profile/1.0"}]
    with pytest.raises(InputError, match="Upgrade hetplan"):
        load_inputs(parts, {"format": "hetplan/slo/1.0", "apps": {"any": {"candidates": [{"demand": {"gpu": 1}}]}}})


def test_a_newer_version_without_new_keys_is_read_with_a_warning(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    profile["format"] = "hetplan/profile/1.9"
    assert [code for code, _, _ in load_inputs(profile, slo).warnings] == ["W-newer"]


def test_ids_are_read_in_lower_case_with_one_warning_each(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    profile["models"]["RN50"] = profile["models"].pop("rn50")
    answered(slo["apps"]["rank"], models=["Yolo-N", "rn50"])
    inputs = load_inputs(profile, slo)
    assert "rn50" in inputs.profile.variants
    assert inputs.slo.apps["rank"].models == ("yolo-n", "rn50")
    assert [(code, at) for code, at, _ in inputs.warnings] == [("W-id-case", "profile"), ("W-id-case", "slo")]


def test_suspicious_numbers_are_warned_of(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    profile["machines"]["c5n"]["zones"]["a"]["price_per_hour"] = "2315"
    profile["machines"]["g4dn"]["provides"]["gpu_mem_gib"] = 15360
    profile["machines"]["c5n"]["startup_s"] = 45000
    profile["links"][0]["bandwidth_mbps"] = 5e7
    profile["models"]["yolo-n"]["runs"]["g4dn"]["load_s"] = 210000
    profile["models"]["yolo-n"]["runs"]["g4dn"]["price_per_hour"] = 4000
    profile["models"]["rn50"]["runs"]["c5n"]["mean_ms"] = [0.021, 0.09]
    slo["apps"]["rank"]["latency"]["p99_ms"] = 0.35
    slo["limits"]["cost_per_hour"] = 200000
    slo["horizon"]["period_s"] = 0.5
    slo["apps"]["faces"]["rate_qps"] = 1e9
    warnings = load_inputs(profile, slo).warnings
    assert {code for code, _, _ in warnings} == {"W-unit"}
    assert [at for _, at, _ in warnings] == [
        "machines.c5n.startup_s",
        "machines.g4dn.provides.gpu_mem_gib",
        "machines.c5n.zones.a.price_per_hour",
        "links[0].bandwidth_mbps",
        "models.yolo-n.runs.g4dn.load_s",
        "models.yolo-n.runs.g4dn.price_per_hour",
        "models.rn50.runs.c5n.mean_ms",
        "limits.cost_per_hour",
        "horizon.period_s",
        "apps.faces",
        "apps.rank.latency.p99_ms",
    ]
    warned = {at: text for _, at, text in warnings}
    assert "month" in warned["machines.c5n.zones.a.price_per_hour"]
    assert "seconds" in warned["apps.rank.latency.p99_ms"]
    assert "MiB" in warned["machines.g4dn.provides.gpu_mem_gib"]


STATE = {
    "format": "hetplan/state/1.0",
    "workers": [
        {
            "id": "w1",
            "hardware": "g4dn",
            "offer": "g4dn",
            "host": "m1",
            "loads": [{"id": "w1.a", "app": "faces", "variant": "rn50", "instances": 2}],
        }
    ],
    "observed": {"w1.a": {"status": "overloaded", "rate_qps": 12.5}, "m1": {"utilisation": 0.83}},
}


def test_a_state_is_read_and_checked_against_the_others(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    inputs = load_inputs(profile, slo, state=STATE, measured={"anything": [1.5]})
    assert inputs.state is not None
    (load,) = inputs.state.workers[0].loads
    assert load.at == {}, "the run that files of version 1.0 leave out"
    unnamed = inputs.state.model_dump(exclude={"workers": {"__all__": {"loads": {"__all__": {"at"}}}}})
    assert State.model_validate(unnamed) == load_state(STATE)
    assert inputs.state.workers[0].loads[0].instances == 2
    assert set(inputs.digests) == {"profile", "slo", "state", "measured"}
    assert inputs.measured == {"anything": [1.5]}


def test_a_state_whose_load_fits_two_runs_is_refused(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    runs = profile["models"]["rn50"]["runs"]
    runs["g4dn"] = [runs["g4dn"], {**runs["g4dn"], "at": {"batch": 8}}]
    with pytest.raises(InputError) as caught:
        load_inputs(profile, slo, state=STATE)
    (fault,) = caught.value.faults
    assert fault.path == "$.workers[0].loads[0].at"
    assert "{}" in fault.why
    assert '{"batch": 8.0}' in fault.why, "both runs are named"
    named = copy.deepcopy(STATE)
    named["workers"][0]["loads"][0]["at"] = {"batch": 8}
    inputs = load_inputs(profile, slo, state={**named, "format": "hetplan/state/1.0"})
    assert inputs.state is not None
    assert inputs.state.workers[0].loads[0].at == {"batch": 8}


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("example", ["compound", "pipeline", "policy", "pool", "variants"])
def test_a_section_that_is_missing_is_one_fault(example: str) -> None:
    whole = json.loads((EXAMPLES / example / "profile.json").read_text())
    slo = EXAMPLES / example / "slo.json"
    for section in set(whole) - {"format", "source", "extensions", "reference", "links", "metrics"}:
        try:
            load_inputs({key: held for key, held in whole.items() if key != section}, slo)
        except InputError as error:
            (fault,) = error.faults
            assert section in f"{fault.why} {fault.remedy}"
        else:
            assert section == "models", "nothing names what is in it"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda s: s["workers"][0].update(hardware="g5"), "$.workers[0].hardware"),
        (lambda s: s["workers"][0].update(offer="g5"), "$.workers[0].offer"),
        (lambda s: s["workers"][0].update(host="m7"), "$.workers[0].host"),
        (lambda s: s["workers"][0]["loads"][0].update(variant="rn51"), "$.workers[0].loads[0].variant"),
        (lambda s: s["workers"][0]["loads"][0].update(app="face"), "$.workers[0].loads[0].app"),
        (lambda s: s["workers"][0]["loads"][0].update(id="w1"), "$.workers[0].loads"),
        (lambda s: s["workers"].append(s["workers"][0]), "$.workers[1]"),
        (lambda s: s["observed"].update({"w1.b": {}}), '$.observed["w1.b"]'),
        (lambda s: s["observed"]["m1"].update(utilisation=83), "$.observed.m1.utilisation"),
        (lambda s: s["observed"]["w1.a"].update(status="asleep"), '$.observed["w1.a"].status'),
    ],
)
def test_states_that_cannot_be(change: Any, path: str, profile: dict[str, Any], slo: dict[str, Any]) -> None:
    state = copy.deepcopy(STATE)
    change(state)
    with pytest.raises(InputError) as caught:
        load_inputs(profile, slo, state=state)
    assert [fault.path for fault in caught.value.faults] == [path]
    assert caught.value.faults[0].file == "state"


def test_a_worker_on_a_host_runs_on_what_the_host_is_of(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    machine = profile["machines"]["g4dn"]
    machine["spot"]["hosts"] = machine.pop("hosts")
    with pytest.raises(InputError) as caught:
        load_inputs(profile, slo, state=STATE)
    (fault,) = caught.value.faults
    assert (fault.file, fault.path) == ("state", "$.workers[0].offer")
    assert "m1 is a machine of g4dn-spot" in fault.why
    profile["machines"]["g5"] = {**machine, "hosts": machine["spot"].pop("hosts")}
    state = copy.deepcopy(STATE)
    del state["workers"][0]["offer"]
    with pytest.raises(InputError) as caught:
        load_inputs(profile, slo, state=state)
    assert [fault.path for fault in caught.value.faults] == ["$.workers[0].hardware"]


@pytest.mark.parametrize("source", [5, None, 2.5, object()])
def test_what_is_no_source_is_reported(source: Any, slo: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="a path, the bytes of a file"):
        load_inputs(source, slo)


def test_documents_are_made_plain_or_refused(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    import numpy as np

    before = load_inputs(profile, slo)
    profile["models"]["rn50"]["runs"]["c5n"]["mean_ms"] = (np.float64(21), np.int64(160))
    assert load_inputs(profile, slo).digests == before.digests
    profile["extensions"] = {"when": {1, 2}}
    with pytest.raises(InputError, match=r"\$\.extensions\.when \(found set\)"):
        load_inputs(profile, slo)
    profile["extensions"] = {5: 1}
    with pytest.raises(InputError, match="keys that are text"):
        load_inputs(profile, slo)


def test_no_profile_at_all_is_reported(slo: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="at least one profile"):
        load_inputs([], slo)


def test_single_files(folder: Path) -> None:
    assert load_profile(folder / "profile.json").variants["rn50"].task == "classify"
    assert load_slo(folder / "slo.json").apps["faces"].quality is not None
    with pytest.raises(InputError, match="a profile file here, not a slo file"):
        load_profile(folder / "slo.json")
    with pytest.raises(InputError, match="there is no machine type"):
        load_profile({"format": "hetplan/profile/1.0", "models": {"v": {"runs": {"g": {"mean_ms": 5}}}}})


def test_the_price_of_importing() -> None:
    """Reading a profile needs no NumPy; naming the floor needs no pydantic."""
    code = (
        "import sys, hetplan.profiles\n"
        "assert 'pydantic' not in sys.modules\n"
        "from hetplan.profiles import load_inputs\n"
        "slo = {'format': 'hetplan/slo/1.0', 'apps': {'a': {'candidates': [{'demand': {'gpu': 1}}]}}}\n"
        f"load_inputs({str(CASES / 'every_key_profile.json')!r}, slo)\n"
        "assert 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_trace_stays_inside_its_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    shutil.move(str(folder / "azure.csv"), outside / "azure.csv")
    (folder / "azure.csv").symlink_to(outside / "azure.csv")
    with pytest.raises(InputError, match="own folder or below"):
        load_inputs(folder / "profile.json", folder / "slo.json")

"""The laws that ship with the package: each is a law that a profile takes, and what it was fitted to says the same."""

from __future__ import annotations

import numpy as np
import pytest

from hetplan.errors import InputError
from hetplan.profiles.cards import cards
from hetplan.profiles.catalogue import known_laws, law_named
from hetplan.profiles.language_models import models
from hetplan.profiles.law_review import DOUBTFUL, doubt_of, review_laws, times_the_floor
from hetplan.profiles.load_one import load_profile, read_profile
from hetplan.serving.tokens import law_of_engine
from tests.cases.grids import DATA, IDENTITY, grids
from tests.written_profile import written_profile


def test_every_law_is_one_that_a_profile_takes() -> None:
    known = list(known_laws())
    engines = {
        f"e{k}": {"law": one.law.model_dump(mode="json"), "kv_tokens": 50_000, "most_tokens": 8192}
        for k, one in enumerate(known)
    }
    profile = load_profile(profile_of(engines))
    assert len(profile.engines) == len(known) == 576
    assert len({one.identity["model"] for one in known}) == 10
    assert len({(*one.identity.values(), one.law.basis) for one in known}) == len(known), "each is there once"
    assert all(one.law.source and one.law.error_mean and one.date for one in known)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the grids are not in {DATA}")
def test_a_law_is_as_near_to_its_grid_as_it_says() -> None:
    laws = {tuple(one.identity[name] for name in IDENTITY): one.law for one in known_laws(("grid",))}
    assert laws.keys() == grids().keys()
    for key, law in laws.items():
        document = {"law": law.model_dump(mode="json"), "kv_tokens": 1, "most_tokens": 8192}
        read = load_profile(profile_of({"e": document})).engines["e-h100"]
        own = law_of_engine(read)
        off = [
            abs(own.iteration_ms(one.tokens, one.kv_tokens, one.sequences, one.pairs) / one.ms - 1.0)
            for one in grids()[key]
        ]
        assert law.fit_error == (pytest.approx(np.mean(off), abs=1e-3), pytest.approx(max(off), abs=2e-3))


NAME = "catalogue/vllm/llama-3.1-8b/bf16/h100x1"


def profile_of(engines: dict[str, object]) -> dict[str, object]:
    """A model of one machine type for each of these."""
    runs = {name: {"task": name, "runs": [{"hardware": "h100", "engine": name}]} for name in engines}
    return written_profile({"hardware": {"h100": {"kind": "gpu"}}, "variants": runs, "engines": engines})


def profile_with(**run: object) -> dict[str, object]:
    machine = {"gpu_type": "h100", "provides": {"gpu": 8}}
    return {"format": "hetplan/profile/1.0", "machines": {"h100": machine}, "models": {"e": {"runs": {"h100": run}}}}


def test_a_law_by_its_name_is_the_law_itself_in_profile_and_digest() -> None:
    named = read_profile(profile_with(law=NAME))
    assert named.model is not None
    engine = named.model.engines["e-h100"]
    (known,) = known_laws(engine="vllm", model="llama-3.1-8b", precision="bf16", gpu="h100", gpus="1")
    assert engine.law == known.law
    assert (engine.tensor, engine.precision, engine.request_ms) == (1, "bf16", 35.0)
    assert 350_000 < engine.kv_tokens < 450_000
    assert engine.kv_error == pytest.approx(0.08, abs=0.01)
    assert named.digest == read_profile(named.model).digest
    assert named.digest == read_profile(profile_with(law=f"{NAME}/tp/0.24.0")).digest
    other = profile_with(law=NAME.replace("h100", "h200"))
    other["machines"] = {"h100": {"gpu_type": "h200", "provides": {"gpu": 8}}}
    assert named.digest != read_profile(other).digest


def test_what_is_stated_beside_a_name_stays() -> None:
    engine = load_profile(profile_with(law=NAME, kv_tokens=5000, request_ms=1.0, max_seqs=8)).engines["e-h100"]
    assert (engine.kv_tokens, engine.kv_error, engine.request_ms, engine.most_seqs) == (5000, None, 1.0, 8)


@pytest.mark.parametrize("other", [{"precision": "fp8"}, {"tensor": 8}, {"pipeline": 2}])
def test_a_law_is_of_the_precision_and_the_degree_that_it_was_measured_with(other: dict[str, object]) -> None:
    (key,) = other
    with pytest.raises(InputError, match=f"is a law of {key}"):
        load_profile(profile_with(law=NAME, **other))
    assert load_profile(profile_with(law=NAME, precision="bf16", tensor=1))


def test_a_law_is_of_the_gpus_that_it_was_measured_on() -> None:
    with pytest.raises(InputError, match="is a law of h200, and these GPUs are h100") as caught:
        load_profile(profile_with(law=NAME.replace("h100", "h200")))
    assert [one.path for one in caught.value.faults] == ["$.models.e.runs.h100.law"]


@pytest.mark.parametrize("rest", ["h200x1", "h100x2", "a100x1/tp/0.24.0", "h100x1/tp/9.9", "h100x1/ep"])
def test_every_part_of_a_name_at_a_model_counts(rest: str) -> None:
    machines = {"h": {"gpu_type": "H100", "provides": {"gpu": 1}}}

    def read(law: str) -> dict[str, object]:
        return {"format": "hetplan/profile/1.0", "machines": machines, "models": {"m": {"law": law}}}

    short = NAME.rpartition("/")[0]
    with pytest.raises(InputError, match="a law of the catalogue that holds on a machine type of this file"):
        load_profile(read(f"{short}/{rest}"))
    assert read_profile(read(f"{NAME}/tp")).digest == read_profile(read(short)).digest


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("catalogue/vllm/llama-3.1-8b/bf16/h10x1", NAME),
        ("catalogue/vlm/deepsek-v3/fp8/h200x8", "catalogue/vllm/deepseek-v3/fp8/h200x8/"),
        ("catalogue/vllm/deepseek-v3/fp8/h200x8", "catalogue/vllm/deepseek-v3/fp8/h200x8/ep"),
        ("catalogue/", "catalogue/"),
    ],
)
def test_a_name_of_no_law_is_refused_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load_profile(profile_with(law=name))
    (fault,) = caught.value.faults
    assert fault.path == "$.models.e.runs.h100.law"
    assert said in fault.remedy


def test_measured_laws_go_before_grids_and_newer_versions_before_older() -> None:
    for one in known_laws(("measured",)):
        found = law_named(one.name.rpartition("/")[0] if one.identity["version"] else one.name)
        assert found.law.basis == "measured"


def test_few_laws_take_many_times_what_the_card_allows() -> None:
    """A table of wrong kernels shows; small models over eight GPUs do too, as each layer waits for all."""
    times = {
        one.name: times_the_floor(
            one.law, models()[one.identity["model"]], one.identity["precision"], cards()[one.identity["gpu"]],
            int(one.identity["gpus"]),
        )
        for one in known_laws()
        if one.identity["parallel"] != "dp+ep"
    }  # fmt: skip
    assert 1.0 < np.median(list(times.values())) < 1.6
    assert sum(one > DOUBTFUL for one in times.values()) < 0.12 * len(times)
    assert doubt_of(times["catalogue/vllm/deepseek-v3/fp8/h200x8/tp/0.24.0"]).startswith("doubtful: 3")
    assert not doubt_of(times["catalogue/vllm/llama-3.1-8b/bf16/h100x1/tp/0.24.0"])


def test_check_says_basis_and_error_and_how_far_a_law_is_from_the_catalogue() -> None:
    (known,) = known_laws(engine="vllm", model="llama-3.1-8b", precision="bf16", gpu="h100", gpus="1")
    numbers = known.law.model_dump(mode="json", exclude_defaults=True)
    slow = {k: v * 1.5 if k.endswith("_ms") else v for k, v in numbers.items()} | {"source": "ours", "error_mean": 0.1}
    machine = {"provides": {"gpu": 1}}
    about = {key: slow.pop(key) for key in ("basis", "error_mean", "fit_error")}
    del slow["form"]
    profile = {
        "format": "hetplan/profile/1.0",
        "machines": {"h100": machine, "h100-x1": machine},
        "models": {
            "llama-3.1-8b": {"runs": {"h100": {"law": slow, **about, "kv_tokens": 9000}, "h100-x1": {"law": NAME}}}
        },
    }
    found = {one.place: one for one in review_laws(load_profile(profile))}
    own, same = found["models.llama-3.1-8b.runs.h100"], found["models.llama-3.1-8b.runs.h100-x1"]
    assert (own.off, own.error, own.apart) == (pytest.approx(0.5), 0.1, True)
    assert own.other.startswith(NAME)
    assert (same.off, same.basis, same.error) == (None, "grid", 0.12)


def test_a_short_name_is_of_the_gpus_of_each_machine_type() -> None:
    """`catalogue/ENGINE/MODEL/PRECISION` at a model: wherever a law of it holds, and KV has room."""
    machines = {"h100": 1, "h100x4": 4, "a100x4": 4, "t4": 1}
    profile = {
        "format": "hetplan/profile/1.0",
        "machines": {
            name: {"gpu_type": name.partition("x")[0], "provides": {"gpu": gpus}, "price_per_hour": 3.67 * gpus}
            for name, gpus in machines.items()
        },
        "models": {f"llama-{size}": {"law": f"catalogue/vllm/llama-3.1-{size}/bf16"} for size in ("8b", "70b")},
    }
    found = load_profile(profile)
    on = {name: {run.hardware for run in one.runs} for name, one in found.variants.items()}
    assert on == {"llama-8b": {"h100", "h100x4"}, "llama-70b": {"a100x4"}}
    assert found.engines["llama-70b-a100x4"].tensor == 4
    assert found.variants["llama-8b"].task == "llama-8b"
    (known,) = known_laws(engine="vllm", model="llama-3.1-8b", precision="bf16", gpu="h100", gpus="1")
    assert found.engines["llama-8b-h100"].law == known.law


@pytest.mark.parametrize(
    ("machine", "at", "remedy"),
    [
        ({"provides": {"gpu": 1}}, "$.models.m.law", 'Say which GPUs machines have: "gpu_type": "h100"'),
        ({"gpu_type": "t4", "provides": {"gpu": 1}}, "$.models.m.law", "hetplan list laws"),
    ],
)
def test_a_short_name_that_holds_nowhere_says_what_is_missing(machine: object, at: str, remedy: str) -> None:
    models = {"m": {"law": "catalogue/vllm/llama-3.1-70b/bf16"}}
    with pytest.raises(InputError) as caught:
        load_profile({"format": "hetplan/profile/1.0", "machines": {"one": machine}, "models": models})
    (fault,) = caught.value.faults
    assert fault.path == at
    assert remedy in fault.remedy

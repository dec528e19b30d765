"""How a model is split over the GPUs of a replica reaches its server as the plan counts on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cases.rendered import random_case
from face import read_objects

from hetplan.errors import InputError
from hetplan.executor.render import render
from hetplan.executor.render.groups import groups
from hetplan.executor.render.names import CannotRender
from hetplan.executor.render.rules import choose
from hetplan.executor.site import read_site
from hetplan.executor.wanted import wanted
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan

GPUS = 8
WAYS: Mapping[str, dict[str, int]] = {
    "tp": {"tensor": GPUS},
    "ep": {"tensor": GPUS, "expert": GPUS},
    "dp-ep": {"tensor": GPUS, "expert": GPUS, "data": GPUS},
}
"""How a run says that it is split; its engine has all GPUs as `tensor`, as those of the catalogue do."""
WORDS = ("--tp={tensor}", "--dp={data}", "--ep={expert}", "--split={parallel}")


def planned(way: str) -> tuple[Plan, Inputs, dict[str, Any]]:
    """A plan whose replicas have eight GPUs each, split in a way, with its files and its site file."""
    plan, inputs, written = random_case(4, text=True, machines={"h200": GPUS})
    at = WAYS[way]
    profile = inputs.profile.model_dump(mode="json", exclude_none=True, by_alias=True)
    for engine in profile["engines"].values():
        engine["tensor"] = GPUS
    for variant in profile["variants"].values():
        for run in variant["runs"]:
            run["at"] = at
    split = [
        worker.model_copy(
            update={"loads": tuple(load.model_copy(update={"at": at, "instances": 1}) for load in worker.loads)}
        )
        for worker in plan.workers
    ]
    plan = plan.model_copy(update={"workers": tuple(split)})
    slo = inputs.slo.model_dump(mode="json", exclude_none=True, by_alias=True)
    return plan, load_inputs(profile, slo), written


def made(target: str, way: str, words: tuple[str, ...] = WORDS) -> list[dict[str, Any]]:
    """The objects of a target for it."""
    plan, inputs, written = planned(way)
    models = {name: {**one, "args": words} for name, one in written["models"].items()}
    site = read_site({**written, "models": models})
    fleet = choose(target, plan, groups(plan, inputs, site), "split").fleet
    text = render(target, fleet, site)[f"{target}.yaml"]
    assert f": {way} over {GPUS} GPUs" in text.split("\napiVersion")[0]
    return read_objects(text)


def on_hosts(way: str, folder: Path, words: tuple[str, ...]) -> list[list[str]]:
    """The commands of its servers where site.toml starts them."""
    plan, inputs, _ = planned(way)
    (folder / "profile.json").write_text(inputs.profile.model_dump_json(exclude_none=True, by_alias=True))
    hosts = read_site(
        {
            "files": [str(folder / "profile.json")], "targets": {"here": {"kind": "local"}},
            "hosts": {"box": {"target": "here", "machines": "h200", "count": 99}},
            "models": {"*": {"command": ["serve", "--port={port}", *words]}},
        }
    )  # fmt: skip
    units = wanted(plan.model_copy(update={"question": "llm"}), hosts).units.values()
    return [list(load.model["command"]) for unit in units for load in unit.loads]


SAID = pytest.mark.parametrize(
    ("way", "words"),
    [
        ("tp", ["--tp=8", "--dp=1", "--ep=1", "--split=tp"]),
        ("ep", ["--tp=8", "--dp=1", "--ep=8", "--split=ep"]),
        ("dp-ep", ["--tp=1", "--dp=8", "--ep=8", "--split=dp-ep"]),
    ],
)


@SAID
def test_a_server_on_a_host_is_told_the_same(way: str, words: list[str], tmp_path: Path) -> None:
    commands = on_hosts(way, tmp_path, WORDS)
    assert commands
    assert all(one == ["serve", "--port={port}", *words] for one in commands)


@SAID
def test_words_and_gpus_say_how_the_plan_splits_a_model(way: str, words: list[str]) -> None:
    pods = [one["spec"]["template"]["spec"] for one in made("kubernetes", way) if one["kind"] == "Deployment"]
    assert pods
    for pod in pods:
        assert pod["containers"][0]["args"] == words
        assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == str(GPUS)


def test_kserve_splits_a_model_as_planned() -> None:
    spread = [one["spec"]["parallelism"] for one in made("kserve", "dp-ep") if "parallelism" in one["spec"]]
    assert spread
    assert all(one == {"tensor": 1, "data": GPUS, "dataLocal": GPUS, "expert": True} for one in spread)


@pytest.mark.parametrize(
    ("way", "said", "remedy"),
    [("dp-ep", "--tp={tensor} --expert", "{data}"), ("ep", "--tp={tensor}", "--enable-expert-parallel")],
)
def test_words_that_would_split_it_otherwise_are_refused(way: str, said: str, remedy: str, tmp_path: Path) -> None:
    with pytest.raises(CannotRender) as refused:
        made("kubernetes", way, tuple(said.split()))
    assert all(remedy in fault.remedy for fault in refused.value.faults)
    with pytest.raises(InputError) as refused_there:
        on_hosts(way, tmp_path, tuple(said.split()))
    assert all(remedy in fault.remedy for fault in refused_there.value.faults)

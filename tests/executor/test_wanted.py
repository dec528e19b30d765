"""From an untrusted plan and a trusted file to units: bounds, names, places."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from cases.deployments import make_hosts, make_plan, make_worker

from hetplan.errors import InputError
from hetplan.executor.serving import http_model
from hetplan.executor.serving.worker import model_of
from hetplan.executor.site import read_site
from hetplan.executor.units import Seen, Unit
from hetplan.executor.wanted import Wanted, wanted
from hetplan.profiles.plan import Route
from hetplan.profiles.plan_file import plan_dict
from hetplan.profiles.plan_policy import Otherwise, PolicyTable
from hetplan.profiles.read_plan import read_plan
from hetplan.profiles.workers import Load, Worker


def hosts(tmp_path: Path, **machines: dict[str, object]) -> object:
    listed = {name: {"target": "here", "machines": ["cpu"], **said} for name, said in machines.items()}
    return make_hosts(tmp_path, hosts=listed)


def test_every_instance_becomes_a_unit(tmp_path: Path) -> None:
    made = wanted(make_plan(make_worker("w1", 2, standby=1), make_worker("w2")), make_hosts(tmp_path))
    assert [(unit.worker, unit.index, unit.standby) for unit in made.units.values()] == [
        ("w1", 0, False), ("w1", 1, False), ("w1", 2, True), ("w2", 0, False),
    ]  # fmt: skip
    assert list(made.apps) == ["app"]


def test_more_than_the_hosts_take_is_refused_with_the_room_there_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"room for 8 of them.*Raise `count`"):
        wanted(make_plan(make_worker("w1", 9)), make_hosts(tmp_path))


def test_a_server_has_the_words_and_variables_that_a_process_may_have(tmp_path: Path) -> None:
    words, env = ["python", "-c", "import x\nx.serve()\n", ""], {"CUDA_VISIBLE_DEVICES": ""}
    site = make_hosts(tmp_path, models={"*": {"command": words, "env": env}})
    (unit,) = wanted(make_plan(make_worker("w1")), site).units.values()
    assert (unit.loads[0].model["command"], unit.loads[0].model["environment"]) == (words, env)


def test_a_huge_count_is_refused_before_anything_is_made_of_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="more than these hosts allow"):
        wanted(make_plan(make_worker("w1", 10**9)), make_hosts(tmp_path))
    with pytest.raises(InputError, match="more than these hosts allow"):
        wanted(make_plan(make_worker("w1", 1, load={"instances": 10**9})), make_hosts(tmp_path))


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"w1\): 2 workers of this id.*\n.*w1\.a\): 2 loads of this id"):
        wanted(make_plan(make_worker("w1"), make_worker("w1", 2)), make_hosts(tmp_path))


def test_routes_and_policies_lead_to_what_is_there(tmp_path: Path) -> None:
    lost = [Route(to={"w1.a": 0.5, "zz": 0.5})]
    with pytest.raises(InputError, match=r"\$\.routing\.app \(found zz\): no worker has this load"):
        wanted(make_plan(make_worker("w1"), routing={"app": lost}), make_hosts(tmp_path))
    table = PolicyTable(
        workers="w1", slo_ms=10.0, rate_qps=1.0, queue_max=1, slack_ms=(0.0, 10.0), models=("other",),
        choice={"1": "otherx2"}, batch={"1": "1x2"}, otherwise=Otherwise(model="other", batch=1), objective="per_query",
        batching="max",
    )  # fmt: skip
    with pytest.raises(InputError, match=r"\$\.policies \(found other\): w1 holds no such model"):
        wanted(make_plan(make_worker("w1"), policies={"app": [table]}), make_hosts(tmp_path))


def test_a_worker_tied_to_a_host_goes_there_and_keeps_its_room(tmp_path: Path) -> None:
    two = hosts(tmp_path, first={"count": 1, "plays": ["m1"]}, second={"count": 1})
    made = wanted(make_plan(make_worker("w1"), make_worker("w2", host="m1")), two)  # type: ignore[arg-type]
    assert {unit.worker: unit.host for unit in made.units.values()} == {"w1": "second", "w2": "first"}
    with pytest.raises(InputError, match=r"no host plays that .*m9"):
        wanted(make_plan(make_worker("w1", host="m9")), two)  # type: ignore[arg-type]


def test_what_runs_stays_where_it_is(tmp_path: Path) -> None:
    two = hosts(tmp_path, first={"count": 4}, second={"count": 4})
    running = [Seen("x", "", "ready", unit=Unit("x", "w1", 0, "cpu", "here", "second"))]
    made = wanted(make_plan(make_worker("w1", 2)), two, running=running)  # type: ignore[arg-type]
    assert [unit.host for unit in made.units.values()] == ["second", "first"]


def test_machines_per_hardware_are_counted_apart(tmp_path: Path) -> None:
    both = make_hosts(
        tmp_path, hosts={"box": {"target": "here", "machines": ["cpu", "gpu"], "count": {"cpu": 1, "gpu": 1}}}
    )
    assert len(wanted(make_plan(make_worker("a"), make_worker("b", hardware="gpu")), both).units) == 2
    with pytest.raises(InputError, match="room for 1 of them"):
        wanted(make_plan(make_worker("a", 2)), both)


HOSTILE = ["../../etc/passwd", "a;reboot", "$(reboot)", "a b", "a\n", "`x`", "/etc", "a|b", "a&b", "-rf", "", "é"]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("field", ["id", "hardware", "host", "variant", "node"])
def test_a_hostile_name_never_gets_past_reading(name: str, field: str) -> None:
    data = plan_dict(make_plan(make_worker("w1")))
    (data["workers"][0]["loads"][0] if field in ("variant", "node") else data["workers"][0])[field] = name
    with pytest.raises(InputError):
        read_plan(data, trust_digest=True)


def test_an_edited_plan_is_refused(tmp_path: Path) -> None:
    data = plan_dict(make_plan(make_worker("w1")))
    data["workers"][0]["count"] = 3
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match="edited or damaged"):
        read_plan(path)


@pytest.mark.parametrize("value", ["../up", "a/b", "$(x)", "a b", "..", "-x", "é"])
def test_a_hostile_knob_reaches_no_path_and_no_command(tmp_path: Path, value: str) -> None:
    """Knobs may hold any text: they are held to plain names where site.toml puts them into a word."""
    worker = Worker(id="w1", hardware="cpu", loads=(Load(id="w1.a", app="app", node="n", knobs={"size": value}),))
    for model in (
        {"kind": "command", "command": ["serve", "--size", "{knobs.size}"]},
        {"kind": "onnx", "path": "models/{knobs.size}.onnx"},
    ):
        with pytest.raises(InputError, match="is no plain name"):
            wanted(make_plan(worker), make_hosts(tmp_path, models={"*": model}))


def test_no_rule_and_no_time_are_reported_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no rule says how.*Add \[models.m\]"):
        wanted(make_plan(make_worker("w1")), make_hosts(tmp_path, models={"other": {"kind": "sleep", "ms": 1}}))
    with pytest.raises(InputError, match="neither the plan nor a profile"):
        wanted(make_plan(make_worker("w1")), make_hosts(tmp_path, models={"*": {"kind": "sleep"}}))


def test_a_plan_from_another_profile_is_remarked_on(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text('{"format": "hetplan/profile/1.0"}')
    with_profile = make_hosts(tmp_path, files=[str(profile)])
    assert any("another profile" in note for note in wanted(make_plan(make_worker("w1")), with_profile).notes)
    assert wanted(make_plan(make_worker("w1")), make_hosts(tmp_path)).notes == ()


RULES = {
    "*": {"ms": 1}, "of-app": {"model": "*", "app": "app", "ms": 2}, "m": {"ms": 3}, "find": {"ms": 4},
    "on-gpu": {"model": ["x", "m"], "machine": "gpu", "ms": 5}, "late": {"stage": "rank", "ms": 6},
}  # fmt: skip


@pytest.mark.parametrize(
    ("load", "names", "ms"),
    [
        ({"variant": "y", "app": "other"}, RULES, 1), ({"variant": "y"}, RULES, 2), ({}, RULES, 3),
        ({"variant": "y", "load": {"node": "find"}}, RULES, 4), ({"hardware": "gpu"}, RULES, 5),
        ({"hardware": "gpu"}, ["*", "of-app"], 2), ({"variant": "y", "load": {"node": "rank"}}, ["late", "*"], 6),
    ],
)  # fmt: skip
@pytest.mark.parametrize("order", [list, reversed])
def test_the_rule_that_fits_most_closely_serves_in_any_order(
    tmp_path: Path, load: Any, names: Any, ms: int, order: Any
) -> None:
    rules = {name: {"kind": "sleep", **RULES[name]} for name in order(list(names))}
    made = wanted(make_plan(make_worker("w", **load)), make_hosts(tmp_path, models=rules))
    (unit,) = made.units.values()
    assert unit.loads[0].model["law"] == {"ms": ms}


def test_every_fault_of_the_file_is_reported_at_once_with_its_place() -> None:
    with pytest.raises(InputError) as caught:
        read_site(
            {
                "targets": {"here": {"kind": "local"}},
                "hosts": {"box": {"target": "here", "machines": ["cpu"], "count": -1, "prots": [1, 2]}},
                "models": {"*": {"kind": "sleep", "ms": 0}},
                "evaluators": {"x": {"command": ["of another tool"]}},
            }
        )
    places = {fault.path for fault in caught.value.faults}
    assert places == {"$.hosts.box.count", "$.hosts.box.prots", '$.models["*"].ms'}


def test_a_host_of_no_target_and_swapped_ports_are_reported() -> None:
    base = {"targets": {"here": {"kind": "local"}}}
    with pytest.raises(InputError, match="there is no target 'there'"):
        read_site({**base, "hosts": {"box": {"target": "there", "machines": "cpu", "count": 1}}})
    with pytest.raises(InputError, match=r"first, last"):
        read_site({**base, "hosts": {"box": {"target": "here", "machines": "cpu", "count": 1, "ports": [9, 2]}}})
    box = {"target": "here", "machines": "cpu", "count": 1}
    for variables in ({"A=B": "x"}, {"": "x"}, {"A": "x\0y"}):
        with pytest.raises(InputError, match="env"):
            read_site({**base, "hosts": {"box": {**box, "env": variables}}})


@pytest.mark.parametrize("question", ["llm", "fleet"])
def test_an_engine_that_makes_text_has_its_law_also_in_a_plan_of_several_questions(
    tmp_path: Path, question: str
) -> None:
    examples = Path(__file__).resolve().parents[2] / "examples" / "llm"
    hosts = make_hosts(
        tmp_path,
        hosts={"box": {"target": "here", "machines": ["a100"], "count": 1}},
        files=[str(examples / "profile.json")],
        models={"*": {"url": "http://127.0.0.1:9"}},
    )
    worker = make_worker("w", hardware="a100", variant="llama-8b", app="chat")
    asked = wanted(make_plan(worker, question=question), hosts)
    (unit,) = asked.units.values()
    assert unit.loads[0].tokens is not None
    assert unit.loads[0].expected is None
    assert asked.apps["chat"]["slo_ms"] is None


def test_engines_of_one_machine_are_told_apart_by_their_gpus_and_their_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two applications on a machine: an engine of two GPUs and one of four; each sees its own alone."""
    engine = {"pieces": [{"base_ms": 8.0, "token_ms": 0.05}], "kv_tokens": 1000, "most_seqs": 8}
    profile = {
        "format": "hetplan/profile/1.0", "hardware": {"cpu": {"kind": "gpu", "provides": {"gpu": 8}}},
        "tasks": {"chat": {}}, "engines": {"a": {**engine, "tensor": 2}, "b": {**engine, "tensor": 4}},
        "variants": {name: {"task": "chat", "runs": [{"hardware": "cpu", "engine": name}]} for name in "ab"},
    }  # fmt: skip
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    loads = tuple(Load(id=f"w.{name}", app=f"of-{name}", variant=name, at={}) for name in "ab")
    plan = make_plan(
        Worker(id="w", hardware="cpu", count=1, queue="per-load", loads=loads), question="llm",
        dispatch={f"of-{name}": {"rule": "round-robin/1"} for name in "ab"},
        routing={f"of-{name}": [{"to": {f"w.{name}": 1.0}}] for name in "ab"},
    )  # fmt: skip

    def asked(**rule: object) -> Wanted:
        said = {"command": ["serve", "{port}"], **rule}
        return wanted(plan, make_hosts(tmp_path, files=[str(tmp_path / "profile.json")], models={"*": said}))

    (unit,) = asked().units.values()
    assert [(load.app, load.instances, load.model["gpus"]) for load in unit.loads] == [("of-a", 1, 2), ("of-b", 1, 4)]
    with pytest.raises(InputError, match=r"a server each, and w\.b would have that of another"):
        asked(port=8000)

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    started: list[object] = []
    monkeypatch.setattr(http_model, "OtherServer", lambda made, more: started.append(more))

    async def models() -> None:
        for number, load in enumerate(unit.loads):
            said = {"model": load.model, "instances": 1, "concurrency": 1}
            model_of(said, cores=(), beside=[2, 4], number=number)

    asyncio.run(models())
    assert started == [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3,4,5"}]

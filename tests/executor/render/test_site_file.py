"""What site.toml says reaches the files, and what it lacks is asked for by its name."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
from cases.rendered import random_case

from hetplan.errors import InputError
from hetplan.executor.render import TARGETS, render
from hetplan.executor.render.groups import groups
from hetplan.executor.render.names import CannotRender
from hetplan.executor.render.rules import choose
from hetplan.executor.render.template import template
from hetplan.executor.site import read_site


def made(target: str, *, of_site: dict[str, Any] | None = None, **of_models: Any) -> dict[str, str]:
    """The files of a plan, with more said in its site file and of each model."""
    plan, inputs, written = random_case(4, text=target in ("llm-d", "dynamo"))
    models = {name: {**one, **of_models} for name, one in written["models"].items()}
    hardware = {name: {} for name in written["machines"]} if target == "systemd" else written["machines"]
    site = read_site({**written, "models": models, "machines": hardware, **(of_site or {})})
    return render(target, choose(target, plan, groups(plan, inputs, site)).fleet, site)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_note_is_at_the_head_of_every_file(target: str) -> None:
    files = made(target, of_site={"note": "ask the shop team"})
    assert all("# note: ask the shop team\n" in text for name, text in files.items() if not name.endswith(".env"))


def test_a_command_under_systemd_has_its_secrets_in_their_variables(tmp_path: Any) -> None:
    secret = {"HF_TOKEN": {"name": "hub", "key": "token"}, "KEY": {"name": "shop", "key": "api.key"}}
    files = made("systemd", secret=secret, command=["/usr/bin/printenv", "HF_TOKEN", "KEY"], args=[])
    units = [text for name, text in files.items() if name.endswith("@.service")]
    assert units
    for number, text in enumerate(units):
        loaded = dict(re.findall(r"^LoadCredential=(\w+):%E/hetplan/secrets/(.*)$", text, re.MULTILINE))
        assert loaded == {"HF_TOKEN": "hub/token", "KEY": "shop/api.key"}
        folder = tmp_path / str(number)
        folder.mkdir()
        for variable in loaded:
            (folder / variable).write_text(f"secret of {variable}\n")
        (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        words = [re.sub(r"\\(.)", r"\1", one) for one in re.findall(r'"((?:[^"\\]|\\.)*)"', line)]
        words = [one.replace("%%", "%").replace("$$", "$") for one in words]
        said = {"CREDENTIALS_DIRECTORY": str(folder)}
        ran = subprocess.run(words, env=said, capture_output=True, text=True, timeout=20)
        assert ran.stdout == "secret of HF_TOKEN\nsecret of KEY\n", ran
        (folder / "KEY").unlink()
        ran = subprocess.run(words, env=said, capture_output=True, text=True, timeout=20)
        assert (ran.returncode != 0, ran.stdout) == (True, "")


@pytest.mark.parametrize("key", ["../token", "..", ".", "a b", "%h"])
def test_a_key_of_a_secret_is_one_name(key: str) -> None:
    with pytest.raises(InputError):
        read_site({"models": {"net": {"secret": {"HF_TOKEN": {"name": "hub", "key": key}}}}})


def test_an_unknown_word_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(CannotRender) as refused:
        made("kubernetes", args=["--seqs={most_seqs}"])
    remedy = refused.value.faults[0].remedy
    for word in ("{max_batch}", "{concurrency}", "{tensor}", "{port}"):
        assert word in remedy
    assert "most_" not in remedy
    assert "max_seqs" not in remedy, "these models make no text"


def test_llm_d_asks_for_its_gateway_and_not_for_fewer_groups() -> None:
    plan, inputs, _ = random_case(4, text=True)
    text = template(plan, inputs.profile, read_site({}), "llm-d")
    assert text.index('gateway = "?"') < text.index("[models")
    with pytest.raises(CannotRender) as refused:
        made("llm-d", of_site={"gateway": None})
    assert {fault.path for fault in refused.value.faults} == {"$.gateway"}
    assert not any("at most" in str(fault) for fault in refused.value.faults)


def test_haproxy_waits_for_the_longest_text_that_is_not_streamed() -> None:
    plan, inputs, written = random_case(4, text=True)
    site = read_site(written)
    text = render("haproxy", choose("haproxy", plan, groups(plan, inputs, site), "split").fleet, site)["haproxy.cfg"]
    waits = [int(ms) for ms in re.findall(r"timeout server (\d+)ms", text)]
    iteration = min(piece.base_ms for engine in inputs.profile.engines.values() for piece in engine.pieces)
    longest = max(size[1] for app in inputs.slo.apps.values() if app.mix for size in app.mix.bins)
    assert waits
    assert min(waits) >= 10 * longest * iteration > 10 * 900, "the limit on the first token is 900 ms"


def test_a_closer_rule_serves_in_a_cluster_as_on_hosts() -> None:
    plan, inputs, written = random_case(4)
    (first, *others) = written["models"]
    models = {"*": {"image": "general:1"}, "big": {"model": [first], "image": "big:1"}}
    site = read_site({**written, "models": models})
    fleet = choose("kubernetes", plan, groups(plan, inputs, site)).fleet
    text = render("kubernetes", fleet, site)["kubernetes.yaml"]
    assert {one.model for one in fleet.groups} >= {first, others[0]}
    images = {one.model: one.server(site).image for one in fleet.groups}
    assert images == {name: "big:1" if name == first else "general:1" for name in images}
    assert text.count('image: "big:1"') == sum(one.model == first for one in fleet.groups) > 0
    machine = next(one.hardware for one in fleet.groups if one.model == first)
    models["near"] = {"model": [first], "machine": [machine], "image": "near:1"}
    site = read_site({**written, "models": models})
    near = [one for one in groups(plan, inputs, site).groups if one.server(site).image == "near:1"]
    assert near
    assert {(one.model, one.hardware) for one in near} == {(first, machine)}


@pytest.mark.parametrize("said", [{"kind": "sleep"}, {"url": "http://127.0.0.1:8000"}])
def test_what_is_for_hosts_only_is_refused_on_platforms(said: dict[str, Any]) -> None:
    plan, inputs, written = random_case(4)
    name = next(iter(written["models"]))
    site = read_site({**written, "models": {**written["models"], name: said}})
    with pytest.raises(CannotRender) as refused:
        groups(plan, inputs, site)
    (fault,) = refused.value.faults
    assert (fault.path, "hosts only" in fault.why) == (f"$.models.{name}.{next(iter(said))}", True)


HOSTS = {"targets": {"here": {"kind": "local"}}, "hosts": {"box": {"target": "here", "machines": ["t4"], "count": 1}}}


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ({"limits": {"start_s": 3}}, "$.limits"),
        ({"router": {"bind": "0.0.0.0"}}, "$.router.bind"),
        ({"router": {"behind_edge": True}}, "$.router.behind_edge"),
        ({"security": {"token_file": "secrets/token"}}, "$.security.token_file"),
        ({**HOSTS, "cloud": "gke"}, "$.cloud"),
        ({**HOSTS, "machines": {"t4": {"gpus": 1}}}, "$.machines"),
        ({**HOSTS, "security": {"token_secret": {"name": "hub", "key": "token"}}}, "$.security.token_secret"),
        *(
            ({**HOSTS, "models": {"net": {"command": ["serve"], key: value}}}, f"$.models.net.{key}")
            for key, value in (
                ("alive_s", 9), ("stop_s", 9), ("image", "net:1"), ("model_uri", "hf://a/b"),
                ("runtime_version", "1"), ("deployment", "m:app"),
            )
        ),
    ],
)  # fmt: skip
def test_a_key_of_hosts_is_refused_on_platforms_and_the_other_way_round(said: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as refused:
        read_site(said)
    (fault,) = refused.value.faults
    assert (fault.path, bool(fault.remedy)) == (path, True)
    assert "a site with targets is hosts" in fault.why or "a site without targets is a platform" in fault.why


@pytest.mark.parametrize(
    ("said", "path", "now"),
    [
        ({"models": {"net": {"kind": "http", "command": ["serve"]}}}, "$.models.net.kind", "Leave kind out"),
        ({"models": {"net": {"kind": "openai", "command": ["serve"]}}}, "$.models.net.kind", 'protocol = "openai"'),
        ({"models": [{"kind": "sleep"}]}, "$.models", "[models.NAME]"),
        ({"models": {"net": {"kind": "sleep", "variant": "a"}}}, "$.models.net.variant", "Write model "),
        ({"models": {"net": {"kind": "sleep", "node": "a"}}}, "$.models.net.node", "Write stage "),
        ({"models": {"net": {"kind": "sleep", "hardware": "a"}}}, "$.models.net.hardware", "Write machine "),
        ({"models": {"net": {"environment": {"A": "b"}}}}, "$.models.net.environment", "Write env "),
        ({"hosts": {"box": {"target": "here", "hardware": ["t4"], "count": 1}}}, "$.hosts.box.hardware", "machines "),
        ({"hosts": {"box": {"target": "here", "machines": 2}}}, "$.hosts.box.machines", "count = 2"),
        ({"slo": "slo.json"}, "$.slo", 'files = ["slo.json"]'),
        ({"hardware": {"t4": {"gpus": 1}}}, "$.hardware", "[machines.NAME]"),
        ({"router": {"token": "secrets/token"}}, "$.router.token", "[security] token_file"),
        ({"router": {"open": True}}, "$.router.open", "[security] open"),
        ({"format": "hetplan/hosts/1.0"}, "$.format", "hetplan/site/1.0"),
        ({"autoscale": {"query": "up"}}, "$.autoscale", "[watch]"),
    ],
)
def test_an_old_word_is_answered_with_the_new_one(said: dict[str, Any], path: str, now: str) -> None:
    with pytest.raises(InputError) as refused:
        read_site(said)
    (fault,) = refused.value.faults
    assert fault.path == path
    assert now in fault.remedy


def test_a_section_of_another_tool_may_hold_what_nobody_filled_in() -> None:
    assert read_site({"evaluators": {"a": {"key": "?"}}, "name": "shop"}).name == "shop"


def test_an_unknown_key_of_a_server_is_answered_with_those_of_servers() -> None:
    with pytest.raises(InputError, match="has no such key") as refused:
        read_site({"models": {"net": {"command": ["serve"], "zzzzzz": 1}}})
    (fault,) = refused.value.faults
    known = set(fault.remedy.removeprefix("Known here: ").rstrip(".").split(", "))
    assert {"image", "command", "args"} <= known
    assert not {"ms", "statistic", "key_file", "providers"} & known


def test_where_the_file_lies_is_no_key_of_it() -> None:
    with pytest.raises(InputError, match="has no such key"):
        read_site({"folder": "/tmp"})

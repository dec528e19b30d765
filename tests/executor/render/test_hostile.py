"""What a plan or a site file says never becomes more than one name, one word or one comment."""

from __future__ import annotations

import re
from typing import Any

import pytest
from cases.rendered import random_case, told
from face import read_objects

from hetplan.errors import InputError
from hetplan.executor.render import TARGETS, read, render
from hetplan.executor.render.groups import groups
from hetplan.executor.render.names import CannotRender, dns_name
from hetplan.executor.render.rules import choose
from hetplan.executor.site import read_site

IDS = (
    ("on", "off"), ("y", "n"), ("null", "true"), ("1e3", "0x1f"), ("1.5", "2024-01-01"), ("a.b", "a_b", "a-b"),
    ("Upper", "lower"), ("x" * 50, "x" * 49 + "y"), ("web_", "web-", "web."), ("edge", "default"), ("no.", "yes_"),
)  # fmt: skip
WORDS = (
    '"; rm -rf /',
    "$(reboot)",
    "`id`",
    "${HOME}",
    "%n %i",
    "a b\tc",
    "import x\nx.serve()\n",
    "X\nExecStart=/bin/evil",
    "a\x7f\u2028b",
    "",
    "\\",
    "{{ x }}",
    "é漢",
    "- x: y",
    "# no",
    "'",
)


@pytest.mark.quick_sample(30)
@pytest.mark.parametrize("target", sorted(TARGETS))
@pytest.mark.parametrize("ids", IDS, ids=lambda ids: ids[0][:8])
def test_odd_ids_come_back_as_they_were(target: str, ids: tuple[str, ...]) -> None:
    for seed in (3, 5):
        plan, inputs, written = random_case(seed, ids=ids)
        site = read_site(written)
        try:
            fleet = choose(target, plan, groups(plan, inputs, site)).fleet
            files = render(target, fleet, site)
        except CannotRender:
            continue
        wanted = told(fleet)
        found = {one["name"]: one for one in read(target, files)}
        assert found.keys() == wanted.keys()
        for name, one in found.items():
            assert (one["model"], one["hardware"]) == (wanted[name]["model"], wanted[name]["hardware"])
        assert all(re.fullmatch(r"[a-z][a-z0-9-]*", name) for name in found)


@pytest.mark.quick_sample(4)
@pytest.mark.parametrize("word", WORDS)
def test_words_of_the_site_reach_kubernetes_and_compose_as_they_are(word: str) -> None:
    plan, inputs, written = random_case(4)
    models = {name: {**one, "args": [word], "env": {"X": word}} for name, one in written["models"].items()}
    site = read_site({**written, "models": models})
    fleet = groups(plan, inputs, site)
    for one in read_objects(render("kubernetes", choose("kubernetes", plan, fleet).fleet, site)["kubernetes.yaml"]):
        if one["kind"] == "Deployment":
            made = one["spec"]["template"]["spec"]["containers"][0]
            assert made["args"] == [word]
            assert made["env"] == [{"name": "X", "value": word}]
    services = read_objects(render("compose", choose("compose", plan, fleet).fleet, site)["compose.yaml"])[0][
        "services"
    ]
    for name, service in services.items():
        if name != "edge":
            assert [text.replace("$$", "$") for text in service["command"]] == [word]
            assert "$" not in service["command"][0].replace("$$", "")


def unquoted(line: str) -> list[str]:
    """The words of a line of a unit, as systemd reads them (systemd.syntax(7), specifiers and variables)."""
    words = [re.sub(r"\\(.)", r"\1", one) for one in re.findall(r'"((?:[^"\\]|\\.)*)"', line)]
    return [one.replace("%%", "%").replace("$$", "$") for one in words]


LINES = [word for word in WORDS if re.search(r"[\x00-\x1f\x7f\u2028]", word)]


@pytest.mark.parametrize("where", ["args", "command", "env"])
@pytest.mark.parametrize("word", LINES)
def test_no_line_of_a_unit_is_ended_by_a_word_of_the_site(word: str, where: str) -> None:
    plan, inputs, written = random_case(4)
    said: dict[str, Any] = {"args": [word], "command": ["/opt/serve", word], "env": {"X": word}}
    models = {name: {"command": ["/opt/serve"], where: said[where]} for name in written["models"]}
    site = read_site({**written, "models": models, "machines": {}})
    fleet = choose("systemd", plan, groups(plan, inputs, site)).fleet
    with pytest.raises(InputError, match="no line break"):
        render("systemd", fleet, site)


@pytest.mark.parametrize("word", [word for word in WORDS if word not in LINES])
def test_words_of_the_site_reach_systemd_as_they_are(word: str) -> None:
    plan, inputs, written = random_case(4)
    models = {name: {**one, "command": ["/opt/serve", word]} for name, one in written["models"].items()}
    site = read_site({**written, "models": models, "machines": {}})
    files = render("systemd", choose("systemd", plan, groups(plan, inputs, site)).fleet, site)
    lines = [line for text in files.values() for line in text.splitlines() if line.startswith('ExecStart="')]
    assert lines
    for line in lines:
        assert unquoted(line)[:2] == ["/opt/serve", word]
        assert not re.search(r"(?<!%)%(?!%)|(?<!\$)\$(?!\$)", line.replace("%%", "").replace("$$", ""))


@pytest.mark.parametrize("bad", ["10.0.0.1:1 weight 9", "a\nserver evil 6.6.6.6:1", "x;y", "{", '"'])
def test_an_address_is_one_word_of_haproxy(bad: str) -> None:
    plan, inputs, written = random_case(4)
    hardware = {name: {**one, "addresses": [bad] * 60} for name, one in written["machines"].items()}

    def made() -> dict[str, str]:
        site = read_site({**written, "machines": hardware})
        return render("haproxy", choose("haproxy", plan, groups(plan, inputs, site)).fleet, site)

    with pytest.raises(InputError):
        made()


def test_a_template_that_nobody_filled_in_is_refused_line_by_line() -> None:
    with pytest.raises(InputError) as refused:
        read_site({"models": {"net": {"image": "?"}}, "machines": {"t4": {"gpus": "?", "addresses": ["?"]}}})
    assert [fault.path for fault in refused.value.faults] == [
        "$.models.net.image", "$.machines.t4.gpus", "$.machines.t4.addresses[0]",
    ]  # fmt: skip


def test_names_are_labels_of_dns() -> None:
    for ids in IDS:
        made: list[str] = []
        for one in ids:
            made.append(dns_name(one, taken=made))
        assert len(set(made)) == len(ids)
        assert all(re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name) for name in made)

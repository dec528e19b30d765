"""`hetplan render` to a platform: what it asks for, what it simulates, what it writes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from build import Files, app, cluster, files, machine, model, tiny
from face import EXIT, Ran, command, solve

from hetplan.executor.render import COMMANDS, TARGETS

LOADED = ("--to", "haproxy", "--site")


def written(folder: Path, wish: Files, site: str, sizing: str = "fluid") -> list[str]:
    """The plan of a wish with its files, and a site file beside them."""
    given = wish.write(folder)
    (folder / "plan.json").write_text(json.dumps(solve(wish, sizing).plan))
    (folder / "site.toml").write_text(site)
    return [str(folder / "plan.json"), *given]


def site_of(wish: Files) -> str:
    """A site file for HAProxy: an image for each model, addresses for each machine type."""
    lines = [f"[models.'{name}']\nimage = 'registry.example/m:1'" for name in wish.profile["variants"]]
    for number, name in enumerate(wish.machine_types):
        addresses = [f"10.{number}.0.{n}" for n in range(1, 200)]
        lines.append(f"[machines.{name}]\naddresses = {json.dumps(addresses)}")
        lines += ["gpus = 1"] if "gpu" not in wish.profile["hardware"][name].get("provides", {}) else []
    return "\n".join(lines)


def rendered(folder: Path, given: list[str], *more: str) -> Ran:
    return command("render", *given, *LOADED, folder / "site.toml", "-o", folder / "made", *more)


def easy() -> Files:
    """A wish with so much room that no rule of dispatch matters."""
    machines = {"small": machine(0.5, provides={"gpu": 1}), "large": machine(0.9, provides={"gpu": 1})}
    net = model({"small": {1: 5}, "large": {1: 4}}, quality=0.8)
    return files(machines=machines, models={"net": net}, apps={"photos": app("net", rate=20.0, limits={99: 200})})


def crowd() -> Files:
    """A pool that takes several replicas, so that somebody has to pick one."""
    wish = tiny("pool")
    for one in wish.slo["apps"].values():
        one["rate_qps"] *= 4
    return wish


def test_a_rule_that_looks_at_each_query_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    wish = crowd()
    ran = rendered(tmp_path, written(tmp_path, wish, site_of(wish)))
    assert ran.code == EXIT["infeasible"]
    assert "matching/1 looks at each query" in ran.err
    assert "--set rule=weighted-least" in ran.err
    assert not (tmp_path / "made").exists()


def test_all_reasons_come_at_once(tmp_path: Path) -> None:
    wish = crowd()
    (name, *_) = wish.machine_types
    ran = rendered(tmp_path, written(tmp_path, wish, f"[machines.{name}]\naddresses = ['10.0.0.1']"))
    assert ran.code == EXIT["infeasible"]
    for words in ("looks at each query", "no more addresses are left"):
        assert words in ran.err


def test_the_platforms_own_command_comes_next(tmp_path: Path) -> None:
    assert COMMANDS.keys() == TARGETS.keys()
    ran = rendered(tmp_path, written(tmp_path, easy(), site_of(easy())))
    assert ran.code == EXIT["ok"], ran
    (line,) = (line for line in ran.out.splitlines() if line.startswith("Next: "))
    words = line.removeprefix("Next: ").split()
    if shutil.which("haproxy") is not None:
        assert subprocess.run(words[: words.index("&&")], capture_output=True, timeout=60).returncode == 0
    assert words[-1] == str(tmp_path / "made" / "haproxy.cfg")


def test_files_of_an_earlier_plan_are_named(tmp_path: Path) -> None:
    given = written(tmp_path, easy(), site_of(easy()))
    how = ("--site", tmp_path / "site.toml", "-o", tmp_path / "made", "--set", "rule=split")
    assert command("render", *given, "--to", "compose", *how).code == EXIT["ok"]
    ran = command("render", *given, "--to", "haproxy", *how)
    assert ran.code == EXIT["ok"]
    assert "compose.yaml is of an earlier plan" in ran.err


@pytest.mark.parametrize("rule", ["weighted-least", "split", "fewest-requests"])
def test_a_plan_is_simulated_under_another_rule_and_refused_if_that_breaks_a_limit(rule: str, tmp_path: Path) -> None:
    wish = crowd()
    ran = rendered(tmp_path, written(tmp_path, wish, site_of(wish)), "--set", f"rule={rule}")
    assert ran.code in (EXIT["ok"], EXIT["infeasible"]), ran
    if ran.code == EXIT["ok"]:
        head = (tmp_path / "made" / "haproxy.cfg").read_text()
        assert f"simulated under {rule}" in head
        assert f"simulated under {rule}" in ran.out
    else:
        assert "violates its limit" in ran.err
        assert "simulated" in ran.err
        assert not (tmp_path / "made").exists()


def test_where_there_is_room_any_rule_keeps_the_limits(tmp_path: Path) -> None:
    given = written(tmp_path, easy(), site_of(easy()))
    for rule in ("split", "fewest-requests", "weighted-least"):
        ran = rendered(tmp_path, given, "--set", f"rule={rule}", "--json")
        assert ran.code == EXIT["ok"], ran
        end = json.loads(ran.out.splitlines()[-1])
        assert end["files"] == ["haproxy.cfg"]
        assert "met" in end["verdicts"]["photos"]


@pytest.mark.slow
def test_text_goes_by_weights_that_were_searched(tmp_path: Path) -> None:
    wish = tiny("llm")
    ran = rendered(tmp_path, written(tmp_path, wish, site_of(wish), "simulation"), "--set", "rule=weighted-least")
    assert ran.code in (EXIT["ok"], EXIT["infeasible"]), ran
    if ran.code == EXIT["ok"]:
        assert "balance leastconn" in (tmp_path / "made" / "haproxy.cfg").read_text()


def test_a_template_has_a_line_for_all_that_is_not_known(tmp_path: Path) -> None:
    wish = easy()
    given = written(tmp_path, wish, "")
    for target, words in (
        ("kubernetes", "instance_type"),
        ("haproxy", "addresses"),
        ("systemd", "command"),
        ("kserve", "model_uri"),
    ):
        ran = command("render", *given, "--to", target, "--site-template")
        assert ran.code == EXIT["ok"], ran
        assert words in ran.out
        (tmp_path / "site.toml").write_text(ran.out)
        again = rendered(tmp_path, given)
        assert again.code == EXIT["bad input"]
        assert "nobody filled this in" in again.err
    filled = site_of(wish)
    (tmp_path / "site.toml").write_text(filled)
    assert rendered(tmp_path, given, "--set", "rule=fewest-requests").code == EXIT["ok"]


def test_files_of_the_site_stand_for_those_of_the_command(tmp_path: Path) -> None:
    wish = easy()
    plan, *_ = written(tmp_path, wish, "files = ['profile.json', 'slo.json']\n" + site_of(wish))
    assert rendered(tmp_path, [plan], "--set", "rule=split").code == EXIT["ok"]
    (tmp_path / "site.toml").write_text(site_of(wish))
    ran = rendered(tmp_path, [plan])
    assert ran.code == EXIT["bad input"]
    assert "a profile and an SLO file are needed" in ran.err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--set", "rule=fastest"), "no such rule"),
        (("--set", "nodes=karpenter"), "no setting of haproxy"),
        (("--to", "kubernetes", "--set", "nodes=mine"), "no such nodes"),
        (("--set", "period=p9"), "no such period"),
        (("--formulation", "pool"), "says nothing of haproxy"),
    ],
)
def test_slips_are_named(more: tuple[str, ...], words: str, tmp_path: Path) -> None:
    ran = rendered(tmp_path, written(tmp_path, easy(), site_of(easy())), *more)
    assert ran.code == EXIT["bad input"]
    assert words in ran.err


def test_a_router_of_ones_own_is_not_haproxy(tmp_path: Path) -> None:
    ran = rendered(tmp_path, written(tmp_path, easy(), site_of(easy())), "--set", "rule=own")
    assert ran.code == EXIT["infeasible"]
    assert "HAProxy is the router here" in ran.err


def test_one_period_of_a_day_is_rendered_by_its_name(tmp_path: Path) -> None:
    wish = tiny("fleet").provides({"gpu": 1})
    labels = {name: {"pool": name} for name in wish.machine_types}
    given = written(tmp_path, wish, cluster(wish, labels))
    last = json.loads((tmp_path / "plan.json").read_text())["periods"][-1]["id"]
    how = ("--to", "compose", "--site", tmp_path / "site.toml", "--set", "rule=own", "-o", tmp_path / "made")
    ran = command("render", *given, *how)
    assert ran.code == EXIT["infeasible"]
    assert "--set period=ID" in ran.err
    assert command("render", *given, *how, "--set", f"period={last}").code == EXIT["ok"]

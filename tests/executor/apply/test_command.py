"""`hetplan apply`, `status` and `down` with `--site`: what is shown, what is done, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from build import Files, app, cluster, files, machine, model
from face import EXIT, Ran, command, solve

Do = Callable[..., Ran]
APPLY_FAILED = 7


def easy(rate: float) -> Files:
    """A wish with so much room that no rule of dispatch matters."""
    machines = {"small": machine(0.5, provides={"gpu": 1})}
    net = model({"small": {1: 5}}, quality=0.8)
    return files(machines=machines, models={"net": net}, apps={"photos": app("net", rate=rate, limits={99: 200})})


@pytest.fixture
def do(tmp_path: Path, request: pytest.FixtureRequest) -> Do:
    """A command on the plan of a wish, in the fake cluster."""
    fake = request.getfixturevalue("cluster")

    def run(verb: str, *more: object, rate: float = 20.0) -> Ran:
        wish = easy(rate)
        given = wish.write(tmp_path)
        (tmp_path / "plan.json").write_text(json.dumps(solve(wish, "fluid").plan))
        named = f"files = {json.dumps([str(one) for one in given])}\n" + cluster(wish, {"small": {"pool": "s"}})
        said = f'[cluster]\nkubectl = "{fake.program}"\ncall_s = 60\n'
        said += '[router]\nimage = "registry.example/h:1"\nopen = true\n'
        (tmp_path / "site.toml").write_text(f"{named}\n{said}")
        plan = [tmp_path / "plan.json"] if verb == "apply" and "--undo" not in more else []
        return command(verb, *plan, "--site", tmp_path / "site.toml", *more)

    return run


@pytest.mark.slow
def test_hetplans_router_comes_and_goes_with_a_plan(do: Do, request: pytest.FixtureRequest) -> None:
    fake = request.getfixturevalue("cluster")
    assert do("apply", "--yes", "--set", "router=hetplan").code == EXIT["ok"]
    assert {"hetplan-router", "photos-net-small"} == set(fake.deployments)
    status = do("status")
    assert (status.code, "photos-net-small" in status.out) == (EXIT["ok"], True)
    assert do("apply", "--yes").code == EXIT["ok"]
    assert set(fake.deployments) == {"photos-net-small"}
    assert not [name for name in fake.objects if "router" in name]
    assert do("down", "--yes").code == EXIT["ok"]


def replicas(fake: Any) -> int:
    return sum(fake.deployments.values())


@pytest.mark.slow
def test_a_plan_is_shown_brought_about_seen_and_taken_down(do: Do, request: pytest.FixtureRequest) -> None:
    fake = request.getfixturevalue("cluster")
    shown = do("apply")
    assert shown.code == EXIT["ok"], shown
    assert "Deployment photos-net-small" in shown.out
    assert "nothing was touched (add --yes)" in shown.out
    assert fake.objects == {}
    assert do("apply", "--yes").code == EXIT["ok"]
    few = replicas(fake)
    assert few > 0
    assert "nothing to do: what runs matches the plan" in do("apply", "--yes").out
    changed = do("apply", rate=900.0)
    assert "~  Deployment photos-net-small" in changed.out
    assert do("apply", "--yes", rate=900.0).code == EXIT["ok"]
    assert replicas(fake) > few
    status = do("status")
    assert (status.code, f"{replicas(fake)} of {replicas(fake)} ready" in status.out) == (EXIT["ok"], True)
    state = json.loads(do("status", "--json").out)
    assert state["workers"][0]["hardware"] == "small"
    fake.play(unready={"photos": {"reason": "CrashLoopBackOff", "message": "it ends"}})
    sick = do("status")
    assert (sick.code, "it ends" in sick.err) == (APPLY_FAILED, True)
    fake.play()
    assert "objects would be deleted (add --yes)" in do("down").out
    assert do("down", "--yes").code == EXIT["ok"]
    assert fake.objects == {}


def test_a_failure_is_told_with_its_reason_and_what_runs_now(do: Do, request: pytest.FixtureRequest) -> None:
    fake = request.getfixturevalue("cluster")
    fake.play(unready={"photos": {"reason": "ImagePullBackOff", "message": "no such image"}})
    ran = do("apply", "--yes")
    assert ran.code == APPLY_FAILED
    assert "no such image" in ran.err
    assert "What ran before runs again" in ran.err
    assert do("apply", "--undo").code == EXIT["ok"]
    assert do("apply", "--undo", "--yes").code == EXIT["ok"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("status", "--over", "2"), "--site site.toml"),
        (("status", "--site", "site.toml", "--hosts", "hosts.toml"), "a cluster by site.toml"),
        (("apply", "--site", "site.toml"), "expected a plan"),
        (("apply", "plan.json", "--site", "site.toml", "--restore"), "--restore: it says nothing with --site"),
        (("apply", "plan.json", "--hosts", "hosts.toml", "--take-over"), "--take-over: it says nothing with --hosts"),
        (("apply", "plan.json", "--hosts", "hosts.toml", "--set", "rule=split"), "--set: it says nothing with --hosts"),
    ],
)
def test_slips_are_named(words: tuple[str, ...], said: str) -> None:
    ran = command(*words)
    assert ran.code == EXIT["bad input"]
    assert said in ran.err

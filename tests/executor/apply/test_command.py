"""`hetplan apply`, `status` and `down` with `--site`: what is shown, what is done, what is refused."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from build import Files, app, cluster, files, machine, model
from face import EXIT, Ran, command, solve

Do = Callable[..., Ran]
APPLY_FAILED, DIFFERENT = 7, 8


def easy(rate: float) -> Files:
    """A wish with so much room that no rule of dispatch matters."""
    machines = {"small": machine(0.5, provides={"gpu": 1})}
    net = model({"small": {1: 5}}, quality=0.8)
    return files(machines=machines, models={"net": net}, apps={"photos": app("net", rate=rate, limits={99: 200})})


@pytest.fixture
def do(tmp_path: Path, request: pytest.FixtureRequest) -> Do:
    """A command on the plan of a wish, in the fake cluster."""
    fake = request.getfixturevalue("cluster")

    def run(verb: str, *more: object, rate: float = 20.0, said: str = "") -> Ran:
        wish = easy(rate)
        given = wish.write(tmp_path)
        (tmp_path / "plan.json").write_text(json.dumps(solve(wish, "fluid").plan))
        named = f"files = {json.dumps([str(one) for one in given])}\n" + cluster(wish, {"small": {"pool": "s"}})
        said += f'[cluster]\nkubectl = "{fake.program}"\ncall_s = 60\n'
        said += '[router]\nimage = "registry.example/h:1"\n[security]\nopen = true\n'
        (tmp_path / "site.toml").write_text(f"{named}\n{said}")
        plan = [tmp_path / "plan.json"] if verb in ("apply", "diff") and "--undo" not in more else []
        plan = list(given) if verb == "autoscale" else plan
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


@pytest.mark.slow
def test_what_runs_in_a_cluster_is_compared_with_a_plan(do: Do) -> None:
    assert do("diff", "--exit-code").code == DIFFERENT
    assert do("apply", "--yes").code == EXIT["ok"]
    same = do("diff", "--exit-code")
    assert (same.code, "what runs matches the plan" in same.out) == (EXIT["ok"], True)
    more = do("diff", rate=900.0)
    assert (more.code, "~  Deployment photos-net-small" in more.out) == (EXIT["ok"], True)


class Prometheus(http.server.BaseHTTPRequestHandler):
    """One that counts so many queries more each time it is asked."""

    counted: ClassVar[dict[str, int]] = {"asked": 0, "more": 0}

    def do_GET(self) -> None:
        self.counted["asked"] += 1
        metric = {"metric": {"app": "photos"}, "value": [1.7e9, str(self.counted["asked"] * self.counted["more"])]}
        self.send_response(200)
        self.end_headers()
        said = {"status": "success", "data": {"resultType": "vector", "result": [metric]}}
        self.wfile.write(json.dumps(said).encode())

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.mark.slow
def test_a_cluster_follows_the_rate_that_a_prometheus_counts(do: Do, request: pytest.FixtureRequest) -> None:
    fake = request.getfixturevalue("cluster")
    assert do("apply", "--yes").code == EXIT["ok"]
    few = replicas(fake)
    ran = do("autoscale", "--once")
    assert (ran.code, "Add [watch] prometheus" in ran.err) == (EXIT["bad input"], True)
    server = http.server.HTTPServer(("127.0.0.1", 0), Prometheus)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        watch = f'[watch]\nprometheus = "http://127.0.0.1:{server.server_port}"\n'
        once = ["autoscale", "--once", "--every", "1", "--json", "--set", "sizing=formula"]
        Prometheus.counted["more"] = 900
        dry = do(*once, "--dry-run", said=watch)
        assert (dry.code, "~ Deployment photos-net-small" in dry.out) == (EXIT["ok"], True), dry
        assert replicas(fake) == few
        ran = do(*once, said=watch)
        assert ran.code == EXIT["ok"], ran
        assert replicas(fake) > few
        grown = replicas(fake)
        Prometheus.counted["more"] = 0
        ran = do(*once, "--hold", "0", said=watch)
        assert ran.code == EXIT["ok"], ran
        assert replicas(fake) < grown
    finally:
        server.shutdown()
        server.server_close()


def test_site_toml_says_how_it_is_rendered_unless_the_command_does(do: Do) -> None:
    shown = do("apply", said='[render]\nrouter = "hetplan"\n')
    assert "Deployment hetplan-router" in shown.out
    assert "hetplan-router" not in do("apply", "--set", "rule=split", said='[render]\nrouter = "hetplan"\n').out
    wrong = do("apply", said='[render]\nrouter = "ours"\n')
    assert (wrong.code, "Choose one of hetplan" in wrong.err) == (EXIT["bad input"], True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("status", "--over", "2"), "--site"),
        (("apply", "--site", "cluster.toml"), "expected a plan"),
        (("apply", "--site", "cluster.toml", "--restore"), "--restore: it says nothing of a cluster"),
        (("apply", "plan.json", "--site", "hosts.toml", "--take-over"), "--take-over: it says nothing of hosts"),
        (("apply", "plan.json", "--site", "hosts.toml", "--set", "rule=split"), "--set: it says nothing of hosts"),
    ],
)
def test_slips_are_named(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    here = '[targets.here]\nkind = "local"\n[hosts.box]\ntarget = "here"\nmachines = "cpu"\ncount = 1\n'
    for name, text in (("cluster", 'namespace = "ours"\n'), ("hosts", here)):
        (tmp_path / f"{name}.toml").write_text(text)
    ran = command(*(tmp_path / word if word.endswith(".toml") else word for word in words))
    assert ran.code == EXIT["bad input"]
    assert said in ran.err

"""Early exit and escalation on real hosts: the model says what its answer comes to, the router follows it."""

from __future__ import annotations

import http.server
import json
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases.cascades import cascade, random_tree
from cases.deployments import Client, make_hosts
from cases.documents import DROP, Json, read, spoil

from hetplan.errors import InputError
from hetplan.executor.deployment import Deployment
from hetplan.executor.serving.choosers import by_outcome
from hetplan.executor.serving.query_tree import Steps
from hetplan.executor.site import read_site
from hetplan.executor.wanted import wanted
from hetplan.profiles.plan import Plan, Route
from hetplan.profiles.plan_file import with_digest

MODEL = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    says = [inputs for inputs in asked["inputs"]]
    print(json.dumps({"outputs": [1] * len(says), "outcomes": says}), flush=True)
"""


def files(case: Json, folder: Path) -> dict[str, Any]:
    """The entries of site.toml that name profile and SLO."""
    for name in ("profile", "slo"):
        (folder / f"{name}.json").write_text(json.dumps(case[name]))
    return {"files": [str(folder / "profile.json"), str(folder / "slo.json")]}


def plan_of(case: Json) -> Plan:
    return with_digest(read(case)[0])


def hosts(**more: Any) -> dict[str, Any]:
    return {"hosts": {"box": {"target": "here", "machines": ["g"], "count": 64}}, **more}


@pytest.mark.slow
def test_sleep_models_leave_early_as_often_as_the_plan_says(deploy: Callable[..., Deployment], tmp_path: Path) -> None:
    case = spoil(cascade(), {f"profile/tables/t-{name}/mean": 1.0 for name in "sbc"})
    deployment = deploy(**hosts(models={"*": {"kind": "sleep"}}, **files(case, tmp_path)))
    client = Client(deployment.apply(plan_of(case)).endpoint)
    said = [client.post("shop") for _ in range(400)]
    assert {status for status, _ in said} == {200}
    ways = [[(hop["node"], hop["load"], hop.get("outcome")) for hop in answer["path"]] for _, answer in said]
    left = [way for way in ways if way == [("small", "a", "sure")]]
    on = [way for way in ways if way[0] == ("small", "a", "unsure") and way[1][0] == "large" and way[1][2] is None]
    assert len(left) + len(on) == 400
    assert len(on) == pytest.approx(120, abs=5 * (400 * 0.3 * 0.7) ** 0.5)
    quality = {("a",): 0.95, ("a", "b"): 0.85, ("a", "c"): 0.9}
    for way, (_, answer) in zip(ways, said, strict=True):
        assert answer["quality"] == pytest.approx(quality[tuple(load for _, load, _ in way)])
    served = client.get("/metrics")["loads"]
    assert served["a"]["served"] == 400
    assert served["b"]["served"] + served["c"]["served"] == len(on)


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False], ids=["with its profile", "by the plan alone"])
def test_the_models_own_word_decides_and_a_wrong_one_is_an_error(
    deploy: Callable[..., Deployment], tmp_path: Path, known: bool
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    models = {
        "small": {"kind": "command", "command": [sys.executable, str(tmp_path / "model.py")]},
        "*": {"kind": "sleep", "ms": 1.0},
    }
    deployment = deploy(**hosts(models=models, **(files(cascade(), tmp_path) if known else {})))
    client = Client(deployment.apply(plan_of(cascade())).endpoint)
    status, text = client.post("shop", {"inputs": "sure"})
    assert (status, [hop["node"] for hop in text["path"]]) == (200, ["small"])
    assert text["quality"] == (0.95 if known else None)
    status, text = client.post("shop", {"inputs": "unsure"})
    assert (status, [hop["node"] for hop in text["path"]]) == (200, ["small", "large"])
    for said, named in (("maybe", "the outcome 'maybe'"), (None, "no outcome"), ("x" * 500, f"'{'x' * 63}'")):
        status, text = client.post("shop", {"inputs": said})
        assert (status, text["outcome"]) == (500, "failed")
        assert text["why"].startswith("the answer of a names ")
        assert named in text["why"]
        assert text["why"].endswith("the plan knows sure, unsure")
    seen = client.get("/metrics")
    assert seen["apps"]["shop"]["failed"] == 3
    assert (seen["loads"]["a"]["served"], seen["loads"]["a"]["failed"]) == (2, 3)


class Verdicts(http.server.BaseHTTPRequestHandler):
    """Answers each query with its own words as the verdict."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = json.dumps({"seen": [{"verdict": asked}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not to the terminal."""


@pytest.mark.slow
def test_the_answer_of_a_server_says_what_it_comes_to(deploy: Callable[..., Deployment], tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Verdicts) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        rule = {"url": f"http://127.0.0.1:{server.server_port}"}
        models = {"small": {**rule, "outcome": "seen.0.verdict"}, "*": {"kind": "sleep", "ms": 1.0}}
        client = Client(deploy(**hosts(models=models)).apply(plan_of(cascade())).endpoint)
        for said, steps in (("sure", ["small"]), ("unsure", ["small", "large"])):
            status, text = client.post("shop", {"inputs": said})
            assert (status, [hop["node"] for hop in text["path"]]) == (200, steps), text
        assert "no outcome" in client.post("shop", {"inputs": {"no": "word"}})[1]["why"]
        with pytest.raises(InputError, match=r"models.small.outcome.*come to sure, unsure, and nothing says"):
            wanted(plan_of(cascade()), make_hosts(tmp_path, **hosts(models={**models, "small": rule})))
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_the_router_weighs_ends_as_the_simulator_does(seed: int) -> None:
    """Random queries sent through `Steps` by hand: the mean of their qualities is that of the verifier's figures."""
    case, figures = random_tree(seed)
    plan, _ = read(case)
    folder_less = read_site(
        {"state_dir": "x", "targets": {"here": {"kind": "local"}}, **hosts(models={"*": {"kind": "sleep", "ms": 1.0}})}
    )
    pipeline = case["profile"]["pipelines"]["tree"]
    from hetplan.executor.background import Background
    from hetplan.profiles.profile import Profile
    from hetplan.profiles.slo import Slo

    known = Background(Profile.model_validate(case["profile"]), Slo.model_validate(case["slo"]))
    table = wanted(with_digest(plan), folder_less, background=known).apps["x"]
    steps, luck = Steps(table["nodes"]), random.Random(seed)
    shares = {load.id: load.outcomes or {"": 1.0} for worker in plan.workers for load in worker.loads}
    routes = [Route.model_validate(route) for route in table["routes"]]

    def follow(node: str, weight: float, outcomes: dict[str, str], way: str) -> float:
        (route,) = (one for one in by_outcome(routes, outcomes) if one.node == node)
        load = luck.choices(list(route.to), list(route.to.values()))[0]
        outcome = luck.choices(list(shares[load]), list(shares[load].values()))[0]
        way += f"{node}={load}:{outcome}" if outcome else f"{node}={load}"
        here = steps.nodes[node]
        weight *= here.worth.get(outcome, 1.0)
        below = here.stage.followed(outcome)
        if not below:
            return weight * float(pipeline["quality"]["paths"][way])
        after = outcomes | ({node: outcome} if outcome else {})
        return sum(follow(edge.to, weight, after, f"{way}/") for edge in below)

    rounds = 1500
    mean = sum(follow("n0", 1.0, {}, "") / steps.sinks for _ in range(rounds)) / rounds
    assert mean == pytest.approx(figures["quality"], abs=5 * 0.35 / rounds**0.5)


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ({"plan/workers/0/loads/0/outcomes": DROP}, r"its answers come to nothing; .* step small: sure, unsure"),
        ({"profile/pipelines/cascade/nodes/small/outcomes": DROP, "profile/pipelines/cascade/edges/0/on": DROP,
          "profile/pipelines/cascade/quality": {"rule": "product"}},
         r"its answers come to sure, unsure; .* step small: nothing"),
    ],
    ids=["the plan does not know them", "the profile does not"],
)  # fmt: skip
def test_a_plan_and_a_profile_that_differ_are_refused(edits: dict[str, Any], words: str, tmp_path: Path) -> None:
    case = spoil(cascade(), edits)
    here = {"state_dir": "x", "targets": {"here": {"kind": "local"}}, **files(case, tmp_path)}
    with pytest.raises(InputError, match=words):
        wanted(plan_of(case), read_site({**here, **hosts(models={"*": {"kind": "sleep", "ms": 1.0}})}))

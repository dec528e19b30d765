"""The examples of `examples/extend`, installed as a package that hetplan finds by its entry points."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from build import Files, app, example, files, machine, model
from cases.deployments import make_hosts
from face import Refused, engines, forged, solve, stopped, verify

from hetplan import extend, registry
from hetplan.dispatch.policy_lookup import PolicySelector
from hetplan.executor.units import LoadSpec, Unit, named
from hetplan.registry import entry_points
from hetplan.testing import check_solver, check_target, solver_checks

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "extend"
MODULES = [path.stem for path in FOLDER.glob("*.py")]
BROUGHT: dict[str, dict[str, str]] = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]["entry-points"]


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder on the path, and metadata with its entry points, as pip leaves them."""
    said = tmp_path / "site" / "hetplan_extend_example-0.1.0.dist-info"
    said.mkdir(parents=True)
    (said / "METADATA").write_text("Metadata-Version: 2.1\nName: hetplan-extend-example\nVersion: 0.1.0\n")
    lines = [
        line
        for group, points in BROUGHT.items()
        for line in (f"[{group}]", *(f"{name} = {where}" for name, where in points.items()))
    ]
    (said / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    entry_points.plugins.cache_clear()
    yield
    entry_points.plugins.cache_clear()
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def wish() -> Files:
    """Two machine types, of which a mixed fleet is the cheapest."""
    return files(
        machines={"small": machine(0.3), "large": machine(1.0)},
        models={"net": model({"small": {1: 20}, "large": {1: 5}})},
        apps={"images": app("net", rate=230.0, limits={99: 200})},
        problem="one-type",
    )


def test_the_package_brings_one_of_each_and_imports_nothing_else_of_hetplan() -> None:
    assert {group.removeprefix("hetplan.") for group in BROUGHT} == {*entry_points.GROUPS} - {"importers"}
    for name in MODULES:
        for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text())):
            of = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            of += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            assert not [one for one in of if one.startswith("hetplan") and one not in ("hetplan", "hetplan.extend")]


@pytest.mark.slow
def test_it_builds_with_its_files_and_its_entry_points(tmp_path: Path) -> None:
    code = f"import hatchling.build as b; print(b.build_wheel({str(tmp_path)!r}))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(tmp_path / ran.stdout.split()[-1]) as wheel:
        assert {f"{name}.py" for name in MODULES} <= set(wheel.namelist())
        (said,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
        points = configparser.ConfigParser()
        points.read_string(wheel.read(said).decode())
    assert {group: dict(points[group]) for group in points.sections()} == BROUGHT


def test_a_question_is_answered_simulated_and_verified(wish: Files) -> None:
    answer = solve(wish)
    assert answer.plan is not None
    assert len({group.machine for group in answer.machines}) == 1
    cost = sum(group.count * wish.price(group.machine) for group in answer.machines)
    assert answer.cost == pytest.approx(cost)
    assert answer.bound is not None
    assert answer.bound <= answer.cost
    judged = verify(answer.plan, wish)
    assert judged.is_ok, judged.findings
    assert judged.verdicts == {"met"}
    assert judged.bounds == ("proved again",)


def test_its_fluid_plan_is_the_cheapest_of_one_type(wish: Files) -> None:
    """230 queries a second are five small machines, or two large ones."""
    answer = solve(wish, "fluid")
    assert {group.machine: group.count for group in answer.machines} == {"small": 5}
    assert answer.cost == pytest.approx(1.5)
    dear = solve(wish.limited(counts={"small": (0, 4)}), "fluid")
    assert {group.machine: group.count for group in dear.machines} == {"large": 2}


def test_its_refusals_say_what_to_change(wish: Files) -> None:
    answer = solve(wish.limited(cost=1.0), "fluid")
    assert answer.plan is None
    assert any("cost_per_hour" in repair for repair in answer.repairs)
    assert any("rate_qps" in repair for repair in answer.repairs)
    with pytest.raises(Refused, match="fast enough"):
        solve(wish.latency({99: 3}))
    sized = app("net", rate=230.0, limits={99: 200}, sizes={1: 0.5, 2: 0.5})
    machines, models = {"small": machine(0.3)}, {"net": model({"small": {1: 20, 2: 40}})}
    with pytest.raises(Refused, match="alike"):
        solve(files(machines=machines, models=models, apps={"images": sized}, problem="one-type"))


@pytest.mark.parametrize("after", [1, 4])
def test_a_limit_that_ends_it_leaves_its_best_plan(wish: Files, after: int) -> None:
    found = stopped(wish, after=after)
    assert found.answer.plan is not None
    assert found.answer.status == "not-simulated"
    assert not found.simulations_after
    assert verify(found.answer.plan, wish).is_ok


def test_its_check_finds_a_second_machine_type(wish: Files) -> None:
    def mix(plan: Any) -> None:
        (group,) = plan["workers"]
        group["count"] -= 1
        (load,) = group["loads"]
        plan["workers"].append({**group, "id": "w", "hardware": "large", "offer": "large", "count": 1})
        plan["workers"][-1]["loads"] = [{**load, "id": "other"}]
        plan["routing"]["images"][0]["to"] = {load["id"]: 0.5, "other": 0.5}

    found = verify(forged(solve(wish, "fluid").plan, mix), wish).findings
    assert any("the machines are of 2 types: large, small [one-type]" in one for one in found)


def test_a_solver_gives_the_plan_of_highs(wish: Files) -> None:
    assert "enumerate" in [one.name for one in engines()]
    wish = wish.limited(cost=5.0)
    ours, theirs = (solve(wish, "fluid", solver=name) for name in ("enumerate", "highs"))
    assert (ours.cost, ours.machines) == (theirs.cost, theirs.machines)
    assert ours.solved_by() == {("milp", "enumerate")}


def test_a_solver_passes_the_conformance_kit_where_all_is_whole() -> None:
    kit = solver_checks(extend.solver("enumerate"))
    skipped = check_solver(extend.solver("enumerate"))
    assert len(skipped) < len(kit)
    assert skipped["answers: optimum of a maximum"].startswith("it tries whole points only")


def test_a_dispatch_policy_is_accurate_while_few_wait_and_fast_otherwise() -> None:
    wish = example("policy")
    answer = solve(wish, "fluid", formulation="calm", options={"few": 2})
    assert answer.plan is not None
    assert verify(answer.plan, wish).is_ok
    (tables,) = extend.Plan.model_validate(answer.plan).policies.values()
    selector = PolicySelector(tables)
    by_quality = sorted(wish.models("images"), key=wish.quality)
    fastest, best = by_quality[0], by_quality[-1]
    for rate in (60.0, 300.0):
        chosen = {n: selector.select(waiting=n, slack_ms=150.0, rate_qps=rate) for n in (1, 2, 3, 8)}
        assert [one.batch for one in chosen.values()] == [1, 2, 3, 8]
        assert {chosen[3].model, chosen[8].model} == {fastest}
        assert chosen[1].model == best
        assert chosen[2].model != fastest
        assert selector.select(waiting=1, slack_ms=0.0, rate_qps=rate).model == fastest


class Tool(threading.Thread):
    """Somebody's deployment tool: it starts what is wanted, and says that it runs. Models of kind "no" do not start."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.wanted, self.running, self.is_over = folder / "wanted", folder / "running", threading.Event()
        self.wanted.mkdir(parents=True)
        self.running.mkdir()

    def run(self) -> None:
        from handover import read, write

        while not self.is_over.wait(0.005):
            wanted, running = read(self.wanted), read(self.running)
            for number, (name, document) in enumerate(wanted.items()):
                loads = document.get("unit", {}).get("loads", [])
                if any(load["model"]["kind"] == "no" for load in loads):
                    said = {"failed": "there is no such model"}
                else:
                    said = {
                        "ready": True,
                        "address": "127.0.0.1",
                        "port": running.get(name, {}).get("port", 9000 + number),
                    }
                write(self.running, name, {**document, **said})
            for name in running.keys() - wanted.keys():
                (self.running / f"{name}.json").unlink()


LOAD = LoadSpec("w1.a", app="app", variant="m", model={"kind": "sleep", "law": {"ms": 1.0}})
UNITS = [named(Unit("", "w1", index, "cpu", "here", "box", loads=(LOAD,))) for index in (0, 1)]
BROKEN = named(Unit("", "bad", 0, "cpu", "here", "box", loads=(replace(LOAD, model={"kind": "no"}),)))


def test_a_target_does_what_targets_do(tmp_path: Path) -> None:
    hosts = make_hosts(tmp_path, targets={"here": {"kind": "handover", "settings": {"folder": str(tmp_path / "site")}}})
    setting = extend.Setting("here", hosts, tmp_path / "own", hosts.targets["here"].settings)
    target = registry.target("handover")(setting)
    assert len(target.check(UNITS)) == 2
    tool = Tool(tmp_path / "site")
    tool.start()
    try:
        check_target(target, UNITS, broken=BROKEN, limit_s=5.0)
    finally:
        tool.is_over.set()
        tool.join()

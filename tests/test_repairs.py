"""Every repair that is printed repairs: the files with it, asked again, have a plan; random files of every question."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases.infeasible import QUESTIONS, asked

import hetplan as hp
from hetplan.api.solve import plan_for
from hetplan.errors import InputError, SolverError
from hetplan.planner.draft import Edit, Repair
from hetplan.planner.repairs import MOST_SKETCHED, Trials, documents, edit_documents, edited_files, edits_of
from hetplan.planner.status import Found
from hetplan.planner.terms import Tools
from tests.build import in_format_1_0, shipped

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
RUNS = int(os.environ.get("HETPLAN_REPAIRS", "14"))
"""Random files per question; HETPLAN_REPAIRS=200 tries more."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "size", "least"),
    # A pool that is played may be late by its queues whatever one number is changed to: some files get no repair.
    [
        *((question, None, 0.8) for question in QUESTIONS if question not in ("pool", "policy")),
        ("pool", "fluid", 0.8),
        pytest.param("pool", None, 0.6, marks=pytest.mark.longest),
        ("policy", "fluid", 0.8),
        pytest.param("policy", None, 0.8, marks=pytest.mark.longest),
    ],
)
def test_every_repair_repairs(question: str, size: str | None, least: float) -> None:
    seen: Counter[str] = Counter()
    # What is played takes seconds a file, and large programs a good part of one.
    runs = RUNS // (3 if question == "pool" and size is None else {"policy": 7, "pipeline": 2}.get(question, 1))
    for seed in range(max(2, runs)):
        profile, slo, state, options = asked(question, seed)
        options = {**options, "sizing": size} if size is not None else options
        if (question, size) == ("policy", "fluid"):
            options = {**options, "queue_max": 8, "batching": "max"}
        try:
            outcome = hp.solve(profile, slo, state, options=options, formulation=question)
        except InputError:
            continue
        if outcome.exit_code == 0:
            continue
        seen["infeasible"] += 1
        given = {**documents(hp.load(profile, slo, state), options), "profile": in_format_1_0(profile)}
        for repair in outcome.repairs:
            assert repair.edits, f"{question} {seed}: {repair.text} was not tried"
            changed = edit_documents(given, repair.edits)
            again = hp.solve(
                changed["profile"], changed["slo"], state, options=changed["options"], formulation=question
            )
            assert again.exit_code == 0, f"{question} {seed}: {repair.text}"
        seen["repaired"] += bool(outcome.repairs)
    assert seen["infeasible"] >= 1
    assert seen["repaired"] >= least * seen["infeasible"], seen


def too_fast_and_too_cheap() -> tuple[dict[str, Any], dict[str, Any]]:
    from cases.pool import files

    return files({"a": [20.0, 80.0], "b": [10.0, 40.0]}, [0.5, 0.5], prices={"a": 1, "b": 3}, qos_ms=30.0, budget=2)


def test_each_trial_is_an_event_and_no_other_begins_once_the_work_is_cancelled() -> None:
    profile, slo, _, options = asked("pipeline", 2)
    heard: list[hp.Event] = []
    whole = hp.solve(profile, slo, options=options, on_event=heard.append, formulation="pipeline")
    trials = [event.detail for event in heard if event.what == "repairs"]
    assert trials[0] == "trial 1 of at most 40 of what may help: lower slo.apps.x.quality.min from 0.753 to 0.518"
    assert len(trials) > 2
    assert not any(repair.text.endswith("(not tried)") for repair in whole.repairs)

    cancel, heard = threading.Event(), []

    def hear(event: hp.Event) -> None:
        heard.append(event)
        if event.what == "repairs":
            cancel.set()

    stopped = hp.solve(profile, slo, options=options, on_event=hear, cancel=cancel, formulation="pipeline")
    assert sum(event.what == "repairs" for event in heard) == 1
    assert stopped.exit_code == whole.exit_code == 3
    assert stopped.repairs
    assert all(repair.text.endswith("(not tried)") for repair in stopped.repairs)


def test_no_trial_begins_once_they_simulated_what_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    profile, slo = (shipped(EXAMPLES / "variants" / f"{name}.json") for name in ("profile", "slo"))
    for app in slo["apps"].values():
        app["latency"] = {name: limit / 3.0 for name, limit in app["latency"].items()}
    whole = hp.solve(profile, slo)
    assert whole.exit_code == 3
    assert not any(repair.text.endswith("(not tried)") for repair in whole.repairs)

    monkeypatch.setattr("hetplan.planner.repairs.MOST_EVENTS", 0)
    heard: list[hp.Event] = []
    brief = hp.solve(profile, slo, on_event=heard.append)
    assert brief.exit_code == 3
    assert brief.why == whole.why
    assert {repair.field for repair in brief.repairs} >= {repair.field for repair in whole.repairs}
    assert any(repair.text.endswith("(not tried)") for repair in brief.repairs)
    trials = sum(event.what == "repairs" for event in heard)
    assert trials <= 2, "as much as the answer itself took, and what began before that"


LIMITED: dict[str, dict[str, list[int]]] = {
    "pool": {"t4": [0, 10], "cpu16": [0, 8], "cpu4": [0, 20]},
    "variants": {"cpu": [0, 6], "gpu": [0, 6], "inferentia": [0, 6]},
    "pipeline": {"t4": [0, 12], "l4": [0, 6]},
    "llm": {"l4": [0, 4], "a10g": [0, 4], "a100": [0, 4], "h100": [0, 4]},
}


@pytest.mark.parametrize(
    "question", [pytest.param(one, marks=pytest.mark.slow) if one == "pipeline" else one for one in LIMITED]
)
def test_a_rate_far_beyond_all_machines_is_answered_without_a_simulation(question: str) -> None:
    folder = Path(__file__).parents[1] / "examples" / question
    profile, slo = (shipped(folder / f"{name}.json") for name in ("profile", "slo"))
    slo["limits"] = {"instances": LIMITED[question]}
    if question == "pool":
        slo["objective"] = "min cost"
    for app in slo["apps"].values():
        rate = app["rate_qps"]
        app["rate_qps"] = 150.0 * (rate if isinstance(rate, int | float) else 600.0)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is simulated")

    tools = Tools(simulate=never, extra={"play_tokens": never, "draw_tokens": never})
    outcome = plan_for(hp.load(profile, slo), question=question, tools=tools)
    assert outcome.exit_code == 3
    assert outcome.finding.found is Found.INFEASIBLE
    assert outcome.repairs
    for repair in outcome.repairs:
        assert repair.text.endswith("(its queues were not played)")
        changed = edit_documents({"profile": in_format_1_0(profile), "slo": slo}, repair.edits)
        assert hp.solve(changed["profile"], changed["slo"], options={"sizing": "formula"}).exit_code == 0


@pytest.mark.slow
def test_where_one_is_not_enough_what_is_missing_is_said_together() -> None:
    (repair,) = hp.solve(*too_fast_and_too_cheap()).repairs
    assert [(edit.path[-1], edit.value) for edit in repair.edits] == [("p99_ms", 40.0), ("cost_per_hour", "3")]
    parts = [
        "raise slo.apps.app.latency.p99_ms from 30 to 40 ms (fails at 39",
        "raise slo.limits.cost_per_hour from 2 to 3 (fails at 2.9",
    ]
    assert all(said.startswith(part) for said, part in zip(repair.text.split(", and "), parts, strict=True)), (
        repair.text
    )


NONE = SimpleNamespace(found=Found.INFEASIBLE)
"""What an answer without a plan has found."""


@pytest.mark.parametrize("proved", [True, False])
def test_only_a_proof_says_without_a_simulation_that_less_fails(proved: bool) -> None:
    """A sketch that ended with an error, or at a limit, was taken for a rate that fails: there was a plan at it."""
    profile, slo = too_fast_and_too_cheap()
    app = next(iter(slo["apps"]))
    slo["apps"][app]["rate_qps"], slo["limits"] = 1000.0, {}
    asked: list[tuple[str, float]] = []

    def again(inputs: Any, options: Any) -> Any:
        sizing, rate = options.get("sizing", "simulation"), inputs.slo.apps[app].rate_qps
        asked.append((sizing, rate))
        most = {"formula": 290.0, "simulation": 306.0 if proved else 360.0, "fluid": 300.0}[sizing]
        if sizing == "fluid" and not proved:
            raise SolverError("it failed")
        plan = rate if rate <= most else None
        return SimpleNamespace(plan=plan, exit_code=0 if plan else 3, repairs=(), warnings=(), finding=NONE)

    edits = (Edit("slo", ("apps", app, "rate_qps"), 290.0),)
    less = Repair(f"slo.apps.{app}.rate_qps", "lower", None, 290.0, "qps", "less", edits)
    trials = Trials(hp.load(profile, slo), {}, again, sketches=True)
    (repair,) = trials.kept([less])
    played = [rate for sizing, rate in asked if sizing == "simulation"]
    assert played
    assert isinstance(repair.to, float)
    assert isinstance(repair.fails_at, float)
    assert repair.to <= (306.0 if proved else 360.0) < repair.fails_at or (proved and repair.fails_at < 312.0)
    assert len(asked) - len(played) <= 2 * MOST_SKETCHED


@pytest.mark.parametrize(("kept", "most"), [(690.0, 8), (640.0, 8), (300.0, 12), (40.0, 14)])
def test_a_number_that_is_said_again_and_again_is_moved_on_by_more(kept: float, most: int) -> None:
    """Each answer says a hundredth less: one after the other used up all trials of an answer."""
    profile, slo = too_fast_and_too_cheap()
    app = next(iter(slo["apps"]))
    slo["apps"][app]["rate_qps"], slo["limits"] = 1000.0, {}
    asked: list[float] = []

    def lower(to: float) -> Repair:
        edits = (Edit("slo", ("apps", app, "rate_qps"), to),)
        return Repair(f"slo.apps.{app}.rate_qps", "lower", None, to, "qps", "less", edits)

    def again(inputs: Any, _: Any) -> Any:
        asked.append(inputs.slo.apps[app].rate_qps)
        plan = asked[-1] if asked[-1] <= kept else None
        return SimpleNamespace(
            plan=plan, exit_code=0 if plan else 3, repairs=(lower(0.99 * asked[-1]),), warnings=(), finding=NONE
        )

    (repair,) = Trials(hp.load(profile, slo), {}, again).kept([lower(700.0)])
    assert isinstance(repair.to, float)
    assert isinstance(repair.fails_at, float)
    assert kept - 0.05 * (1000 - repair.to) <= repair.to <= kept < repair.fails_at
    assert len(asked) <= most


@pytest.mark.parametrize("kept", [0.95, 1.5, 3.0])
def test_a_budget_whose_plans_are_late_in_play_goes_up_until_one_is_not(kept: float) -> None:
    """What is late says lower rates or so: a budget was given up, and rates were cut beside it to a tenth."""
    profile, slo = too_fast_and_too_cheap()
    slo["limits"] = {**slo.get("limits", {}), "cost_per_hour": "0.6"}
    asked: list[float] = []

    def again(inputs: Any, _: Any) -> Any:
        asked.append(inputs.slo.limits.cost_per_hour / 1e9)
        late = Repair("slo.apps.a.rate_qps", "lower", None, 100.0, "qps", "lower it or so")
        done = asked[-1] >= kept
        return SimpleNamespace(
            plan=done or None, exit_code=0 if done else 3, repairs=(late,), warnings=(), finding=NONE
        )

    edits = (Edit("slo", ("limits", "cost_per_hour"), "0.9"),)
    money = Repair("slo.limits.cost_per_hour", "raise", 0.3, 0.9, "USD", "more", edits)
    (repair,) = Trials(hp.load(profile, slo), {}, again).kept([money])
    assert kept <= float(repair.edits[0].value) <= kept + 0.05 * (kept - 0.6) + 0.005 * kept
    assert len(asked) <= 10


def test_what_a_file_does_not_state_is_lowered_where_its_repair_says_so() -> None:
    """It said "raise survive.serve to 0.8", where 1 was meant."""
    profile, slo = too_fast_and_too_cheap()
    repair = Repair("slo.limits.survive.serve", "lower", 0.2, 0.8, "", "")
    inputs = hp.load(profile, slo)
    kept: Any = SimpleNamespace(plan="one", exit_code=0, warnings=())
    (said,) = Trials(inputs, {}, lambda *_: kept).kept([repair])
    assert said.text.startswith("lower slo.limits.survive.serve to 0.")


@pytest.mark.slow
def test_stock_that_is_not_there_is_named() -> None:
    from cases.pool import files

    profile, slo = files({"a": [20.0]}, [1.0], prices={"a": 1}, qos_ms=30.0, rate_qps=10.0, stock={"a": 0})
    (repair,) = hp.solve(profile, slo, options={"sizing": "fluid"}).repairs
    assert repair.edits == (Edit("profile", ("machines", "a", "stock"), 1),)
    # Played with its queues, one machine is late; a rate of 0 is no repair.
    (repair,) = hp.solve(profile, slo).repairs
    assert repair.edits == (Edit("profile", ("machines", "a", "stock"), 2),)


@pytest.mark.slow
def test_numbers_are_other_than_what_is_stated() -> None:
    from cases.pool import files

    profile, slo = files({"a": [40.0000000004]}, [1.0], prices={"a": 1}, qos_ms=40.0, rate_qps=10.0)
    (repair,) = hp.solve(profile, slo, options={"sizing": "fluid"}).repairs
    assert "from 40 to 40.0001 ms" in repair.text
    # Played with its queues, too; a rate of 0 is no repair.
    (repair,) = hp.solve(profile, slo).repairs
    assert "raise slo.apps.app.latency.p99_ms from 40 to 4" in repair.text


def test_edits_are_read_from_fields() -> None:
    slo = {"limits": {"instances": {"a.b": [1, 2]}}, "apps": {"x": {"rate_qps": 8}}}
    given = {"slo": slo, "profile": {}, "options": {}}

    def made(field: str, to: Any) -> tuple[Edit, ...]:
        return edits_of(Repair(field, "raise", 1.0, to, "", ""), given)

    assert made("slo.limits.instances.a.b", 5) == (Edit("slo", ("limits", "instances", "a.b"), [1, 5]),)
    assert made("slo.limits.instances.a.b[0]", 0) == (Edit("slo", ("limits", "instances", "a.b"), [0, 2]),)
    assert made("slo.limits.instances.c[1]", 4) == (Edit("slo", ("limits", "instances", "c"), [0, 4]),)
    assert made("slo.apps.*.rate_qps", 0.5) == (Edit("slo", ("apps", "x", "rate_qps"), 4.0),)
    assert made("options.tolerance", 0.2) == (Edit("options", ("tolerance",), 0.2),)
    assert made("slo.limits.cost_per_hour", None) == ()
    assert made("elsewhere.x", 1.0) == ()


def run(*arguments: str) -> Any:
    from typer.testing import CliRunner

    from hetplan.cli.app import build_app

    return CliRunner().invoke(build_app(), list(arguments))


@pytest.mark.slow
def test_a_repair_is_written_into_the_slo_file(tmp_path: Path) -> None:
    profile, slo = too_fast_and_too_cheap()
    for name, document in (("profile", profile), ("slo", slo)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    files = [str(tmp_path / "profile.json"), str(tmp_path / "slo.json")]
    changed = tmp_path / "changed.json"
    assert run("solve", *files, "--apply-repair", "1", "-o", str(changed)).exit_code == 0
    assert run("solve", files[0], str(changed)).exit_code == 0
    assert json.loads(changed.read_text())["limits"]["cost_per_hour"] == "3"
    assert run("solve", *files, "--apply-repair", "2", "-o", str(changed)).exit_code == 2
    assert run("solve", *files, "--apply-repair", "1").exit_code == 2


@pytest.mark.parametrize(("least", "to", "fails"), [(5, 6.0, 4.0), (3, 4.0, None), (8, 8.0, 6.0)])
def test_a_total_of_resources_is_raised_by_what_machines_provide(least: float, to: float, fails: float | None) -> None:
    """Machines provide 2 or 4 each: it said "raise to 5.5", and a step back did as well."""
    profile, slo = too_fast_and_too_cheap()
    for name, gpus in (("a", 2), ("b", 4)):
        profile["hardware"][name]["provides"] = {"gpu": gpus}
    slo["limits"] = {"provides": {"gpu": 2}}

    def again(inputs: Any, _: Any) -> Any:
        done = inputs.slo.limits.provides["gpu"] >= least
        return SimpleNamespace(plan=done or None, exit_code=0 if done else 3, repairs=(), warnings=(), finding=NONE)

    repair = Repair("slo.limits.provides.gpu", "raise", 3.0, 5.0, "", "more")
    (said,) = Trials(hp.load(profile, slo), {}, again).kept([repair])
    assert (said.to, said.fails_at) == (to, fails), said.text


def few_machines(**about: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A rate for which there are too few machines of the one type, T4, of which more is said."""
    net = {"batch": [1], "needs": {"gpu": 1}, "runs": {"T4": {"mean_ms": [10]}}}
    profile = {"format": "hetplan/profile/1.0", "machines": {"T4": {"provides": {"gpu": 1}, **about}},
               "models": {"net": net}}  # fmt: skip
    wish = {"model": "net", "rate_qps": 250, "latency": {"p99_ms": 500}}
    return profile, {"format": "hetplan/slo/1.0", "objective": ["min cost"], "apps": {"web": wish}}


def written(folder: Path, **files: Any) -> list[str]:
    for name, document in files.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return [str(folder / f"{name}.json") for name in files]


def number_of(profiles: Any, slo: Any, end: str) -> tuple[str, Any]:
    """The number of the repair of a field that ends so, and that field's edit."""
    repairs = hp.solve(*profiles, slo, options=FLUID).repairs
    found = [(n, one) for n, one in enumerate(repairs, start=1) if one.edits[0].path[-1] == end]
    (number, repair), *_ = found
    return str(number), repair


FLUID = {"sizing": "formula"}
BY_FORMULA = ["--set", "sizing=formula"]


def test_a_repair_is_written_where_the_price_stands_by_the_name_there(tmp_path: Path) -> None:
    """Edits have ids in small letters, and a second key `t4` was added; and every file with the machine type got it."""
    profile, slo = few_machines()
    machines = profile["machines"]
    for price, of in (({"price_per_hour": 1, "stock": 1}, "stock"), ({"price_per_hour": 1}, "cost_per_hour")):
        wish = {**slo, "limits": {"cost_per_hour": "1"}} if of == "cost_per_hour" else slo
        prices = {"format": profile["format"], "machines": {"t4": price}}
        files = written(tmp_path, profile=profile, prices=prices, slo=wish)
        number, repair = number_of(files[:2], files[2], of)
        assert run("solve", *files, *BY_FORMULA, "--apply-repair", number, "-o", f"{tmp_path}/changed/").exit_code == 0
        (changed,) = (tmp_path / "changed").glob("*.json")
        document = json.loads(changed.read_text())
        if of == "stock":
            assert changed.name == "prices.json"
            assert document["machines"] == {"t4": {"price_per_hour": 1, "stock": repair.edits[0].value}}
        else:
            assert (changed.name, document["limits"]) == ("slo.json", {"cost_per_hour": repair.edits[0].value})
        changed.unlink()
    machines["T4"] |= {"price_per_hour": 1, "stock": 1}
    files = written(tmp_path, profile=profile, slo=slo)
    number, repair = number_of(files[:1], files[1], "stock")
    changed = tmp_path / "changed.json"
    assert run("solve", *files, *BY_FORMULA, "--apply-repair", number, "-o", str(changed)).exit_code == 0
    assert json.loads(changed.read_text())["machines"] == {"T4": {**machines["T4"], "stock": repair.edits[0].value}}
    assert run("solve", str(changed), files[1], *BY_FORMULA).exit_code == 0


def test_a_stock_that_no_file_says_goes_where_the_price_is(tmp_path: Path) -> None:
    repair = Repair("profile.machines.t4.stock", "raise", 1.0, 3, "machines", "",
                    edits=(Edit("profile", ("machines", "t4", "stock"), 3),))  # fmt: skip
    machines = {"prices": {"T4": {"price_per_hour": 1}}, "more": {"t4": {"provides": {"gpu": 1}}}}
    of = {name: {"format": "hetplan/profile/1.0", "machines": one} for name, one in machines.items()}
    prices, more, slo = map(Path, written(tmp_path, **of, slo={}))
    for order in ((prices, more), (more, prices)):
        (path, content) = next(iter(edited_files(repair, slo, order).items()))
        assert (path, json.loads(content)["machines"]) == (prices, {"T4": {"price_per_hour": 1, "stock": 3}})


@pytest.mark.parametrize("zones", [["a", "b"], {"a": {}, "b": {}}])
def test_a_stock_of_zones_is_changed_where_the_file_says_it(zones: Any, tmp_path: Path) -> None:
    """Of zones that are listed it is said once: machines.t4.zones.a.stock was named, which is in no file."""
    profile, slo = few_machines(price_per_hour=1, stock=1, zones=zones)
    slo["apps"]["web"]["rate_qps"] = 350
    files = written(tmp_path, profile=profile, slo=slo)
    _, repair = number_of(files[:1], files[1], "stock")
    (edit, *more) = repair.edits
    if isinstance(zones, dict):
        assert edit.path == ("machines", "T4", "zones", "a", "stock")
        return
    assert (edit.path, more) == (("machines", "T4", "stock"), [])
    assert repair.field == "profile.machines.T4.stock"
    assert repair.text.startswith(f"raise profile.machines.T4.stock from 1 to {edit.value} machines")
    assert "and" not in repair.text
    profile["machines"]["T4"]["stock"] = edit.value
    assert hp.solve(profile, slo, options=FLUID).exit_code == 0


def test_files_that_a_changed_file_names_go_with_it(tmp_path: Path) -> None:
    profile, slo = few_machines(price_per_hour=1, stock=1)
    del profile["models"]
    (tmp_path / "times.csv").write_text("model,machine,batch,mean_ms\nnet,T4,1,10\n")
    files = written(tmp_path, profile={**profile, "measurements": "times.csv"}, slo=slo)
    number, _ = number_of(files[:1], files[1], "stock")
    changed = tmp_path / "changed"
    command = ["solve", *files, *BY_FORMULA, "--apply-repair", number, "-o", f"{changed}/"]
    assert run(*command).exit_code == 0
    assert run("solve", str(changed / "profile.json"), files[1], *BY_FORMULA).exit_code == 0
    (changed / "times.csv").write_text("")
    assert run(*command).exit_code == 2, "another file of that name is there"

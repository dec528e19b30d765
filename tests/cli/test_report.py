"""`hetplan report` and `hetplan show --svg`: what goes into the page, and what is refused."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.verifier.promise_verdicts import Shown, Tried

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILES = [EXAMPLES / "pool" / "profile.json", EXAMPLES / "pool" / "slo.json"]


@pytest.fixture
def plan(run: Callable[..., Any], tmp_path: Path) -> Path:
    made = tmp_path / "plan.json"
    assert run("solve", *FILES, "--set", "sizing=fluid", "-o", made).code == 0
    return made


def test_a_report_with_the_files_has_limits_money_and_verification(
    run: Callable[..., Any], plan: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    assert run("report", plan, *FILES, "--no-simulation", "-o", page).code == 0
    text = page.read_text()
    assert '<div class="money">$2,102 <span>a month</span></div>' in text
    assert "60 ms" in text
    assert "Bound: no plan serves more than 580 queries/s (exact, certified)." in text, "it was proved again"
    assert "Verified: independent arithmetic" in text
    assert '<th scope="row">max rate_qps</th><td>proved again</td><td>bound 580.097 is proved again' in text
    assert "no SLO was simulated; verified<" in text
    assert "Promised and simulated" not in text
    alone = tmp_path / "alone.html"
    assert run("report", plan, "-o", alone).code == 0
    assert "(exact, not proved here)" in alone.read_text()
    assert '<div class="money">$2,102 <span>a month</span></div>' in alone.read_text()
    assert "60 ms" in alone.read_text()
    assert "This page was made from the plan file alone" in alone.read_text()


def test_a_report_of_a_plan_that_is_wrong_says_so_at_its_head(
    run: Callable[..., Any], plan: Path, tmp_path: Path
) -> None:
    page, wrong = tmp_path / "report.html", json.loads(plan.read_text())
    wrong["workers"][0]["count"] += 1
    plan.write_text(json.dumps(wrong))
    assert run("report", plan, *FILES, "--no-simulation", "-o", page).code == 0
    text = page.read_text()
    assert text.index('class="chip bad">\u2715 NOT VERIFIED<') < text.index("<h2>")
    assert "Verified:" not in text
    assert "Checked: " in text


def test_a_report_of_a_refused_plan_names_what_is_wrong_and_praises_nothing(
    run: Callable[..., Any], plan: Path, tmp_path: Path
) -> None:
    page, wrong = tmp_path / "report.html", json.loads(plan.read_text())
    worker = wrong["workers"][0]
    month = wrong["summary"]["cost_per_month"]
    wrong["workers"] = [{**worker, "count": 1}]
    met = {"app": "ranking", "quantity": "response_ms", "percentile": 99.0, "relation": "<=", "value": 60.0}
    wrong["promises"].append({**met, "model": "simulation", "interval": [50.0, 55.0]})
    plan.write_text(json.dumps(wrong))
    assert run("report", plan, *FILES, "-o", page).code == 0
    text = page.read_text().partition("</style>")[2]
    head = text.partition("<h2>")[0]
    assert text.index("NOT VERIFIED") < text.index('<ul class="notes"><li>') < text.index("<h2>")
    refused = hp.verify(plan, *FILES).violations
    assert refused
    assert all(html.escape(str(one)) in head for one in refused)
    assert "50 .. 55 ms" in text
    assert "<h2>No limit is verified</h2>" in text
    assert "Not simulated for this page: the plan is not verified" in head
    assert "Every limit is met" not in text
    assert ">met<" not in text
    assert not re.search(r'class="[^"]*good', text)
    found = re.search(r'aria-label="What runs where".*?</table>', text, re.DOTALL)
    assert found is not None
    assert f"{month:,.0f}" not in found[0]


def test_a_report_of_a_plan_alone_says_that_nothing_was_recomputed(
    run: Callable[..., Any], plan: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    assert run("report", plan, "-o", page).code == 0
    head = page.read_text().partition("</style>")[2].partition("<h2>")[0]
    assert "as the plan states. Nothing was recomputed: the plan alone was given<" in head
    assert 'class="chip good"' not in head


def test_a_bound_that_was_proved_again_is_so_wherever_it_is_named(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where something else of the plan was not simulated."""
    tried = Tried("promises[0]", "ranking: p99", Shown.NOT_SIMULATED, 0, "nothing plays it")
    monkeypatch.setattr(
        "hetplan.studies.report.verify", lambda *given, **how: replace(hp.verify(*given, **how), simulated=(tried,))
    )
    text = hp.report(plan, *FILES, simulate=False)
    assert "not simulated: nothing else is wrong" in text
    assert '<th scope="row">max rate_qps</th><td>proved again</td>' in text
    assert "(exact, certified)" in text
    assert "not proved here" not in text
    assert "as the plan states" in text


def test_a_simulation_that_fails_is_named_on_the_page(
    run: Callable[..., Any], plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any, **how: Any) -> Any:
        raise InputError.one(why="its demand has no end", remedy="None.")

    monkeypatch.setattr("hetplan.studies.report.with_simulation", fail)
    page = tmp_path / "report.html"
    assert run("report", plan, *FILES, "-o", page).code == 0
    for text in (page.read_text(), hp.report(plan, *FILES)):
        assert "Not simulated for this page: its demand has no end" in text


def test_a_report_takes_what_simulate_and_whatif_wrote(run: Callable[..., Any], plan: Path, tmp_path: Path) -> None:
    found = {"value": 55.0, "interval": [54.0, 56.0]}
    line = {"app": "ranking", "quantity": "response_ms", "percentile": 99.0, "relation": "<=", "promised": 60.0}
    report = {
        "format": "hetplan/simulation/1.0",
        "lines": [line | {"by": "slo", "simulated": found, "verdict": "met"}],
        "apps": {"ranking": {"distribution_ms": [[50.0, 20.0], [99.0, 55.0]], "figures": {}}},
    }
    played = tmp_path / "played.json"
    beside = {"baseline": "static-peak", "report": report | {"cost_per_hour": {"value": 4.8, "interval": [4.8, 4.8]}}}
    played.write_text("\n".join(json.dumps(one) for one in (beside, {"report": report, "exit": {"code": 0}})))
    curves = tmp_path / "whatif.json"
    line_of = {"label": "rate", "x": [1, 2], "y": [3, 4]}
    curves.write_text(json.dumps({"curves": [{"title": "budget", "x": "USD", "y": "qps", "lines": [line_of]}]}))
    ways = tmp_path / "ways.json"
    played_at = {"setting": "3 replicas", "cost_per_hour": 4.8, "cost_per_month": 3504.0, "late": 0.002}
    other = {"way": "autoscaled", "reached": True, "best": played_at, "tried": [played_at, {**played_at, "late": 0.1}]}
    ways.write_text(json.dumps({"comparison": {"ways": [other], "currency": "USD"}}))
    page = tmp_path / "report.html"
    given = "--simulation", played, "--whatif", curves, "--compare", ways
    assert run("report", plan, *given, "-o", page).code == 0
    text = page.read_text()
    shown = "Promised and simulated", "ranking: response_ms p99", "static-peak", "4.8 per hour", "What if", "budget"
    shown += "autoscaled", "3 replicas", "3,504", "money against lateness", "54 .. 56", "simulated for this page"
    for words in shown:
        assert words in text


def test_what_cannot_be_reported_is_refused_before_work(run: Callable[..., Any], plan: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text("{}")
    for given, words in (
        ([plan, FILES[0]], "a profile and an SLO file are needed"),
        ([plan, "--simulation", empty], "there is no simulation in it"),
        ([plan, "--whatif", empty], "it has no curves"),
        ([plan, "-o", tmp_path / "absent" / "x.html"], "there is no folder"),
    ):
        ran = run("report", *given)
        assert ran.code == 2, given
        assert words in ran.err


def test_show_draws_the_fleet(run: Callable[..., Any], plan: Path, tmp_path: Path) -> None:
    drawn = tmp_path / "plan.svg"
    assert run("show", plan, "--svg", drawn).code == 0
    assert drawn.read_text().startswith("<svg ")
    assert "3 x t4" in drawn.read_text()

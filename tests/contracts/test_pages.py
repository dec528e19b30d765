"""What people read says what the plan says: pages of commands, the page of HTML, and programs that are written down.

Figures are compared with the plan's own and with prices of the profile, to the digits that are shown.
"""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from build import PROBLEMS, Files, example, tiny
from face import (
    CHARTS,
    EDITED,
    FLUID,
    PROVED,
    SECTIONS,
    Answer,
    Page,
    command,
    compared,
    misnamed,
    page_of_plan,
    page_of_solve,
    read_range,
    read_summary,
    report,
    simulate,
    solve,
    summary_of_plan,
    thinned,
    vary,
    written_programs,
)

DIGITS = 1e-4
"""Pages show at least four digits."""
HOURS_A_DAY, HOURS_A_MONTH = 24.0, 730.0


@cache
def planned(problem: str) -> tuple[Files, Answer]:
    wish = example("compound-rate") if problem == "compound" else tiny(problem)
    return wish, solve(wish, "fluid")


def number(cell: str) -> float:
    """The first number of a cell: "<= 69.8", "0.537 to 1.074", "61.5%"."""
    return float(cell.replace("<=", "").replace(">=", "").replace("=", "").split()[0].rstrip("%").replace(",", ""))


def check_plan(shown: Page, answer: Answer, problem: str, *, made_here: bool) -> None:
    assert shown.head.startswith(f"{problem} plan by ")
    assert shown.head.endswith(answer.status)
    claims = shown.rows("claims")
    assert len(claims) == len(answer.claims)
    for row, claim in zip(claims, answer.claims, strict=True):
        assert row["claim"] == f"{claim.sense} {claim.objective}"
        assert number(row["value"]) == pytest.approx(claim.value, rel=DIGITS)
        assert number(row["bound"]) == pytest.approx(claim.bound, rel=DIGITS)
        assert number(row["gap"]) == pytest.approx(claim.gap, rel=0.05, abs=1e-9)
        assert row["proved"] == PROVED[claim.is_certified and made_here]
    said = "\n".join(shown.lines["Warnings"])
    assert all(code in said and text in said for code, text in answer.warnings)
    if problem == "fleet":
        return
    rows, lines = shown.rows("machines"), "\n".join(shown.lines["Machines"])
    assert sum(int(row.get("count", 1)) for row in rows) == answer.count()
    for group in answer.machines:
        mine = [row for row in rows if row["machine"].split()[0] == group.machine]
        assert sum(int(row.get("count", 1)) for row in mine) == answer.count(group.machine)
        for replica in group.replicas:
            assert re.search(rf"\b{re.escape(replica.model or replica.stage or '')}\b", lines)
    batches = {replica.max_batch for group in answer.machines for replica in group.replicas}
    assert problem == "llm" or {int(row.get("batch", 1)) for row in rows} <= batches
    for row in shown.rows("routes"):
        shares = [float(word.rstrip("%,")) for word in row["to"].split() if word.rstrip(",").endswith("%")]
        assert sum(shares) == pytest.approx(100.0, abs=0.3)
    told = [(row["quantity"].split()[0], number(row["promised"])) for row in shown.rows("promises")]
    assert told == [(one.quantity, pytest.approx(one.value, rel=DIGITS)) for one in answer.promises]
    limits = [(row["one more of"], number(row["per unit"])) for row in shown.rows("limits")]
    assert bool(limits) == bool(answer.limiting())
    for unit, price in limits:
        assert any(unit == one and price == pytest.approx(worth, rel=DIGITS) for one, worth in answer.limiting())


@pytest.mark.quick_sample(3)
@pytest.mark.parametrize("problem", [*PROBLEMS, "compound"])
def test_pages_of_a_plan_say_what_it_says(problem: str, tmp_path: Path) -> None:
    wish, answer = planned(problem)
    solved = page_of_solve(wish, tmp_path, *FLUID)
    check_plan(solved, answer, problem, made_here=True)
    shown = page_of_plan(answer.plan, None, tmp_path, "show")
    check_plan(shown, answer, problem, made_here=False)
    parts = ("machines", "routes", "tables", "promises", "limits", "hours", "periods", "bill", "savings")
    assert [shown.has(part) for part in parts] == [solved.has(part) for part in parts]
    assert "\nVerified " in solved.summary
    assert "verified" not in summary_of_plan(answer.plan, wish, tmp_path).lower(), "nothing was verified"
    if problem != "llm":  # whose plan has no steps
        assert shown.has("changes" if problem == "fleet" else "steps")


def test_a_bill_adds_up(tmp_path: Path) -> None:
    _, answer = planned("fleet")
    rows = {row["of"]: row for row in page_of_plan(answer.plan, None, tmp_path, "bill").rows("bill")}
    total = number(rows["all"]["hour"])
    assert total == pytest.approx(answer.cost, rel=1e-3)
    for kind in ("application", "offer"):
        assert sum(number(row["hour"]) for of, row in rows.items() if of.startswith(kind)) == pytest.approx(
            total, abs=2e-4
        )
    assert number(rows["while machines start"]["hour"]) == pytest.approx(answer.starts_cost, abs=1e-4)
    for row in rows.values():
        assert number(row["day"]) == pytest.approx(HOURS_A_DAY * number(row["hour"]), abs=0.01)
        assert number(row["month"]) == pytest.approx(HOURS_A_MONTH * number(row["hour"]), abs=0.05)


def test_hours_of_a_fleet_have_the_machines_of_its_plan_and_changes_lead_from_one_to_the_next(tmp_path: Path) -> None:
    _, answer = planned("fleet")
    shown = page_of_plan(answer.plan, None, tmp_path, "show")
    rows = shown.rows("periods")
    names = [row["period"] for row in rows]
    assert [number(row["from, h"]) for row in rows] == [0.0, 1.0, 2.0]
    for row in rows:
        counts = [int(cell) for head, cell in row.items() if head not in ("period", "from, h") and cell != "-"]
        assert sum(counts) == answer.count(period=row["period"])
    started: dict[str, int] = dict.fromkeys(names, 0)
    for row in shown.rows("changes"):
        started[row["period"]] += int(row["count"]) * (1 if row["do"] == "start" else -1)
    for before, after in pairwise(names):
        assert started[after] == answer.count(period=after) - answer.count(period=before)
    savings = [number(row["hourly"]) for row in shown.rows("savings")]
    saved = [number(row["saves"]) for row in shown.rows("savings")[1:]]
    assert savings[-1] == pytest.approx(answer.cost, rel=1e-3)
    assert saved == pytest.approx([a - b for a, b in pairwise(savings)], abs=2e-4)


def test_what_is_simulated_is_shown_beside_what_was_promised(tmp_path: Path) -> None:
    wish, answer = planned("pool")
    shown = page_of_plan(answer.plan, wish, tmp_path, "simulate")
    told = simulate(answer.plan, wish, seeds=5, seed=0)
    assert len(shown.rows("verdicts")) == len(told.verdicts)
    for row, verdict in zip(shown.rows("verdicts"), told.verdicts, strict=True):
        assert row["quantity"].split()[0] == verdict.quantity
        assert number(row["promised"]) == pytest.approx(verdict.limit, rel=DIGITS)
        assert row["verdict"] == verdict.verdict
        if verdict.simulated is None:
            assert row["simulated"] == "-"
        else:
            assert number(row["simulated"]) == pytest.approx(verdict.simulated.value, rel=DIGITS)
    figures = {row["figure"]: row["value"] for row in shown.rows("figures") if "value" in row}
    for name, one in told.figures["ranking"].items():
        assert number(figures[name]) == pytest.approx(one.value, rel=DIGITS)
    for at, one in told.percentiles["ranking"].items():
        assert number(figures[f"response p{at:g} ms"]) == pytest.approx(one.value, rel=DIGITS)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("problem", ["variants", "pool", "llm"])
def test_the_page_of_a_plan_has_its_summary_and_money_in_its_chart(problem: str, tmp_path: Path) -> None:
    wish, answer = planned(problem)
    made = report(answer.plan, wish, tmp_path)
    told = read_summary(summary_of_plan(answer.plan, wish, tmp_path))
    assert told.head.startswith(made.head)
    *rows, total = made.rows("runs")
    assert len(rows) == len(told.machines)
    for shown, row in zip(rows, told.machines, strict=True):
        assert shown["model on machine"].startswith(f"{row['model']} on {row['machine']} for {row['application']}")
        assert (shown["machines"], shown["$ a month"]) == (row["count"], row["$/month"])
    assert number(total["machines"]) == answer.count()
    assert f"${total['$ a month']} a month" == made.head, "the table adds up to what stands largest"
    # Bars are as long as what they say; the longest is some hundred pixels long.
    bars = [(width, note.replace("$", "")) for width, (_, _, note) in ((w, t.partition(": $")) for w, t in made.bars)]
    costs = [(width, number(note)) for width, note in bars if note]
    assert sum(cost for _, cost in costs) == pytest.approx(HOURS_A_MONTH * (answer.cost or 0.0), abs=len(costs))
    longest = max(costs)
    assert longest[0] > 100.0
    for width, cost in costs:
        assert width / longest[0] == pytest.approx(cost / longest[1], abs=0.01)


REPORT = (
    "runs", "costs", "response times", "failures", "cautions", "proof",
)  # fmt: skip


def test_the_page_of_a_pool_has_all_its_parts_in_order_and_response_times_as_simulated(tmp_path: Path) -> None:
    wish, answer = planned("pool")
    made = report(answer.plan, wish, tmp_path)
    assert made.headings == ("ranking: p99 is violated", *(SECTIONS[part] for part in REPORT))
    assert len(made.charts) == len(CHARTS)
    assert all(title.startswith(begins) for title, begins in zip(made.charts, CHARTS, strict=True)), made.charts
    assert made.text.index("Verified: ") < made.text.index("Checked again here: ")
    carried = next(one.value for one in answer.promises if one.quantity == "rate_qps")
    assert f" \u00b7 {carried:.3g} queries/s " in made.text
    assert " 0.1 1 10 100 " in made.text, "the axis of the share of queries that are slower"
    told = simulate(answer.plan, wish, seeds=5, seed=0).percentiles["ranking"]
    shown, places = {}, []
    for x, title in made.points:
        at, found, ms = title.removeprefix("ranking: ").partition(" at ")
        if found:
            shown[round(100.0 - float(at), 6)] = float(ms)
            places.append((float(ms), x))
    assert len(shown) > 10
    for at, one in told.items():
        assert shown[at] == pytest.approx(one.value, rel=0.02), at
    assert [x for _, x in sorted(places)] == sorted(x for _, x in places)


@pytest.mark.parametrize("how", ["show", "verify", "simulate"])
def test_a_plan_that_was_edited_is_said_to_be_and_no_other(how: str, tmp_path: Path) -> None:
    wish, answer = planned("variants")
    files = () if how == "show" else wish.write(tmp_path)
    for plan, edited in ((answer.plan, False), (misnamed(answer.plan), True)):
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        ran = command(how, tmp_path / "plan.json", *files)
        assert (EDITED in ran.err) == edited, ran.err


def test_a_limit_is_drawn_with_what_was_simulated_on_its_side(tmp_path: Path) -> None:
    """Each row has its own scale that begins at 0: twice as much is twice as far."""
    wish, answer = planned("pool")
    told = simulate(answer.plan, wish, seeds=5, seed=0)
    asked = [one for one in told.verdicts if one.quantity == "response_ms" and one.simulated is not None]
    drawn = report(answer.plan, wish, tmp_path).limits
    assert asked
    assert drawn
    for one in drawn:
        low, high = (
            float(word) for word in re.findall(r"\d+\.?\d*", one.said.partition(": ")[2].partition(",")[0])[:2]
        )
        limit = number(one.said.rpartition("limit ")[2])
        assert one.low / one.limit == pytest.approx(low / limit, rel=0.01)
        assert one.high / one.limit == pytest.approx(high / limit, rel=0.01)
        assert any(mine.simulated.low == pytest.approx(low, rel=1e-3) for mine in asked if mine.simulated), one.said


PROGRAMS = {"pool": "pool-milp", "variants": "variants-milp", "llm": "llm-milp"}


def optimum(program: str, kind: str, folder: Path) -> float | None:
    """What HiGHS finds that reads a program from its file; None where no point keeps its rows."""
    import highspy

    path = folder / f"program.{kind}"
    path.write_text(program)
    reader = highspy.Highs()
    reader.setOptionValue("output_flag", False)
    assert reader.readModel(str(path)) == highspy.HighsStatus.kOk
    reader.run()
    if reader.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return None
    assert reader.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(reader.getInfo().objective_function_value)


@pytest.mark.parametrize("kind", ["lp", "mps"])
@pytest.mark.parametrize("problem", PROGRAMS)
def test_a_program_that_is_written_down_has_the_same_value_before_another_reader(
    problem: str, kind: str, tmp_path: Path
) -> None:
    wish = tiny(problem)
    value = solve(wish, "fluid", formulation=PROGRAMS[problem]).solve_values()[0]
    program = written_programs(wish, kind, PROGRAMS[problem])[0]
    assert optimum(program, kind, tmp_path) == pytest.approx(value, rel=DIGITS)


@pytest.mark.slow
def test_both_ways_to_write_a_program_say_the_same(tmp_path: Path) -> None:
    """Of a pipeline, whose rows are of every kind: equal, at least, at most."""
    texts = {kind: written_programs(tiny("pipeline"), kind, "pipeline-milp")[:3] for kind in ("lp", "mps")}
    values = {kind: [optimum(text, kind, tmp_path) for text in written] for kind, written in texts.items()}
    assert any(value is not None for value in values["lp"])
    for written, again in zip(values["lp"], values["mps"], strict=True):
        assert written == (None if again is None else pytest.approx(again, rel=DIGITS))


def test_a_range_says_what_its_ends_cost(tmp_path: Path) -> None:
    wish, _ = planned("variants")
    found = read_range(vary(wish, tmp_path, "rate", "300:600"))
    assert (found[0][0], found[-1][1]) == (300.0, 600.0)
    for rate, cost in ((300.0, found[0][2]), (600.0, found[-1][2])):
        assert number(cost) == pytest.approx(solve(wish.rated(rate), "fluid").cost, rel=DIGITS)


def test_a_fleet_changes_between_what_is_said_of_both_sides(tmp_path: Path) -> None:
    ran = vary(planned("variants")[0], tmp_path, "rate", "300:600")
    sides, changes = read_range(ran), read_range(ran, "changes")
    assert len(sides) > 1
    assert changes == [(one[1], other[0], f"{one[2]} to {other[2]}") for one, other in pairwise(sides)]


def test_a_plan_that_meets_other_files_than_its_own_is_said_to(tmp_path: Path) -> None:
    wish, answer = planned("pool")
    other = wish.scaled_times(1.01)
    assert "W-other-inputs" not in simulate(answer.plan, wish, seeds=1).warned()
    assert "W-other-inputs" in simulate(answer.plan, other, seeds=1).warned()


def test_a_difference_is_what_changed(tmp_path: Path) -> None:
    wish, answer = planned("variants")
    (machine,) = {group.machine for group in answer.machines}
    stops, keeps = compared(tmp_path, answer.plan, thinned(answer.plan, wish))
    assert stops.startswith(f"stop 1 x {machine} ")
    assert keeps.split()[:2] == ["keep", str(answer.count() - 1)]

"""A summary says of each machine, application and limit what the plan and its files say, and praises nothing unseen."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from build import Files, app, example, files, machine, many_applications, model, policy_fleet, tiny
from face import (
    EXIT,
    FLUID,
    RESTATED,
    WORDS,
    Answer,
    SloLine,
    SummaryPage,
    as_sure,
    command,
    page_of_solve,
    read_summary,
    record_of_solve,
    restated,
    simulated_worse,
    solve,
    solved_example,
    stopped,
    summary_of_plan,
    summary_record,
    verify,
    with_late_policy,
)

HOURS_A_MONTH = 730.0


@cache
def planned(problem: str) -> tuple[Files, Answer]:
    wish = tiny(problem)
    return wish, solve(wish, "fluid")


def shown(wish: Files, answer: Answer, folder: Path) -> SummaryPage:
    assert answer.plan is not None
    return read_summary(summary_of_plan(answer.plan, wish, folder))


def percent(cell: str) -> float:
    return float(cell.rstrip("%")) / 100.0


def one_model(rate: float, time_ms: float, batch: int = 1) -> Files:
    return files(
        machines={"t4": machine(0.5)},
        models={"net": model({"t4": {1: time_ms, batch: time_ms * batch / 2} if batch > 1 else {1: time_ms}})},
        apps={"images": app("net", rate=rate, limits={99: 20 * time_ms})},
    )


@pytest.mark.parametrize("rate", [130.0, 470.0])
def test_utilization_is_rate_times_time_over_machines(rate: float, tmp_path: Path) -> None:
    """Of one model on one type, by hand."""
    wish = one_model(rate, 10.0)
    answer = solve(wish, "fluid")
    rows = shown(wish, answer, tmp_path).machines
    replicas = answer.count() * answer.machines[0].replicas[0].count
    assert [percent(row["utilization"]) for row in rows] == [pytest.approx(rate * 0.010 / replicas, abs=0.006)]


def test_utilization_of_a_stage_counts_what_the_stages_before_send_on(tmp_path: Path) -> None:
    """Each stage's queries: the rate, times the fan-outs on the way; each takes a full batch's time over its size."""
    wish = tiny("pipeline")
    answer = solve(wish, "fluid")
    (name,) = wish.apps
    demand = wish.demand(name)
    rates = {demand.stages[0]: answer.promised("rate") or demand.rate}
    for stage in demand.stages:
        for after, factor in wish.fanout(stage).items():
            rates[after] = rates[stage] * factor
    busy: dict[str, float] = {}
    for row in shown(wish, answer, tmp_path).machines:
        batch = int(row.get("batch", 1))
        each = wish.times_ms(row["model"], row["machine"])[batch] / 1000.0 / batch
        busy[row["stage"]] = busy.get(row["stage"], 0.0) + percent(row["utilization"]) * int(row["count"]) / each
    assert set(busy) == set(rates)
    for stage, rate in rates.items():
        assert busy[stage] == pytest.approx(rate, rel=0.03), stage


@pytest.mark.parametrize("problem", ["pool", "variants", "llm"])
def test_money_of_machines_is_their_price_and_adds_up_to_the_month(problem: str, tmp_path: Path) -> None:
    wish, answer = planned(problem)
    page = shown(wish, answer, tmp_path)
    total = 0.0
    for group in answer.machines:
        total += group.count * wish.price(group.offer or group.machine)
    assert page.month == pytest.approx(total * HOURS_A_MONTH, abs=0.51)
    listed = [float(row["$/month"].replace(",", "")) for row in page.machines if "$/month" in row]
    assert sum(listed) == pytest.approx(page.month, abs=len(listed))
    assert sum(int(row["count"]) for row in page.machines if "$/month" in row) == answer.count()


def test_without_prices_machines_are_counted_and_no_money_is_made_up(tmp_path: Path) -> None:
    wish = example("pipeline")
    answer = solved_example("pipeline", "fluid")
    page = shown(wish, answer, tmp_path)
    assert page.month is None
    assert page.head.startswith(f"{answer.count()} machines (no prices given) ")
    assert "$" not in page.text
    assert "month" not in page.text


@pytest.mark.quick_sample(2)
@pytest.mark.parametrize("problem", ["pool", "variants", "pipeline", "llm", "policy"])
def test_no_limit_is_called_met_that_nothing_was_run_for(problem: str, tmp_path: Path) -> None:
    wish, answer = planned(problem)
    page = shown(wish, answer, tmp_path)
    assert page.limits
    assert {one.word for one in page.limits} <= {"", "by formula", "not simulated"}
    assert " met" not in page.head
    assert set(WORDS) >= {one.word for one in page.limits if one.word}


@pytest.mark.parametrize("word", ["met", "undecided", "violated"])
def test_the_word_for_a_limit_follows_from_the_simulated_interval(word: str, tmp_path: Path) -> None:
    """Times are scaled until the interval is below the limit, holds it, or is above it."""
    wish, answer = example("variants"), solved_example("variants")
    limit = wish.limits_ms("faces")[99]

    def line_of_faces(factor: float) -> tuple[SloLine, str]:
        assert answer.plan is not None
        page = read_summary(summary_of_plan(simulated_worse(answer.plan, factor), wish, tmp_path))
        return next(one for one in page.limits if (one.app, one.metric) == ("faces", "p99")), page.head

    low, high = interval(line_of_faces(1.0)[0])
    factor = {"met": 0.99 * limit / high, "undecided": 2.0 * limit / (low + high), "violated": 1.01 * limit / low}[word]
    found, head = line_of_faces(factor)
    assert found.word == word
    assert interval(found) == pytest.approx((factor * low, factor * high), rel=0.01)
    assert "every SLO is met" not in head or word == "met"


@pytest.mark.parametrize(
    ("levels", "said"),
    [((95.0,), "(95% interval)"), ((97.5,), "(97.5% interval)"), ((95.0, 97.5), "(95 to 97.5% intervals)")],
)
def test_the_column_of_intervals_says_how_sure_they_are(levels: tuple[float, ...], said: str, tmp_path: Path) -> None:
    wish, answer = example("variants"), solved_example("variants")
    assert answer.plan is not None
    assert f"simulated {said}" in summary_of_plan(as_sure(answer.plan, *levels), wish, tmp_path)


def test_a_plan_whose_making_was_ended_early_is_called_not_simulated(tmp_path: Path) -> None:
    wish = example("variants")
    found = [stopped(wish, after=after).answer for after in (1, 2)]
    early = [answer for answer in found if answer.plan is not None and answer.status == "not-simulated"]
    assert early, [answer.status for answer in found]
    for answer in early:
        page = shown(wish, answer, tmp_path)
        assert "NOT SIMULATED" in page.head
        assert all(one.word != "met" for one in page.limits)


def interval(line: SloLine) -> tuple[float, float]:
    low, high = map(float, re.findall(r"\d[\d.]*", " ".join(line.found)))
    return low, high


def test_what_solve_and_show_print_is_one_summary(tmp_path: Path) -> None:
    """But for what was proved and checked where the plan was made."""
    wish, answer = planned("variants")
    made = read_summary(page_of_solve(wish, tmp_path, *FLUID).summary)
    again = shown(wish, answer, tmp_path)
    assert (made.limits, made.machines, made.month) == (again.limits, again.machines, again.month)
    assert "not proved here" in again.bounds[0]
    assert "certified" in made.bounds[0]
    assert "Verified" in made.labels
    assert "Verified" not in again.labels
    other = {"Verified", "Checked", "Missing"}
    assert {k: v for k, v in made.labels.items() if k not in other} == {
        k: v for k, v in again.labels.items() if k not in other
    }


@pytest.mark.parametrize("problem", ["pool", "variants", "fleet"])
def test_a_plan_says_the_same_with_its_files_and_without(problem: str, tmp_path: Path) -> None:
    wish, answer = planned(problem)
    assert answer.plan is not None
    alone, beside = read_summary(summary_of_plan(answer.plan, None, tmp_path)), shown(wish, answer, tmp_path)
    assert (alone.limits, alone.machines, alone.hours, alone.month) == (
        beside.limits, beside.machines, beside.hours, beside.month
    )  # fmt: skip
    assert alone.month is not None
    other = {"Routing", "Checked"}
    assert alone.labels.items() - beside.labels.items() <= {(name, alone.labels.get(name)) for name in other}


def forgeries(of: str) -> list[str]:
    """What of a summary can be forged: hours and the fewest machines are of fleets, times of what was simulated."""
    of_fleets = {one for one in RESTATED if "hours" in one} | {"fewest", "worst"}
    simulated = {"interval", "worst", "surer"}
    return [
        one
        for one in RESTATED
        if (of == "fleet" or one not in of_fleets) and (of == "variants" or one not in simulated)
    ]  # fmt: skip


@pytest.mark.quick_sample(30)
@pytest.mark.parametrize(("of", "what"), [(of, what) for of in ("pool", "variants", "fleet") for what in forgeries(of)])
def test_a_summary_that_says_something_else_is_refused(of: str, what: str) -> None:
    wish, answer = (example(of), solved_example(of)) if of == "variants" else planned(of)
    assert answer.plan is not None
    found = verify(restated(answer.plan, what), wish, simulate=False)
    named = [one for one in found.findings if one.startswith("summary.")]
    assert named
    assert all(" says " in one or " no row " in one for one in named)


@pytest.mark.parametrize(
    ("rates", "period_s"),
    [((130.0, 0.0, 470.0), 3600), ((130.0, 470.0), 30), ((130.0, 470.0), 59.5), ((470.0, 130.0, 130.0), 100)],
)
def test_periods_of_any_length_and_without_demand_are_told_as_they_are(
    rates: tuple[float, ...], period_s: float, tmp_path: Path
) -> None:
    wish = files(
        machines={"t4": machine(0.5)}, models={"net": model({"t4": {1: 10.0}})}, periods=len(rates), period_s=period_s,
        apps={"images": app("net", rate=rates, limits={99: 200.0})}, problem="fleet",
    )  # fmt: skip
    answer = solve(wish, "fluid")
    page = shown(wish, answer, tmp_path)
    assert verify(answer.plan, wish, simulate=False).is_ok
    assert len(page.hours) == len({max(rate, 0.0) for rate in rates})
    ends = [end for row in page.hours for run in row["hours"].split(", ") for end in run.split("-")]
    assert len(set(ends)) == len(page.hours) + 1


@pytest.mark.slow
@pytest.mark.parametrize("beside", [False, True])
def test_a_fleet_with_a_policy_has_the_verdict_of_its_worst_hour(beside: bool, tmp_path: Path) -> None:
    wish = policy_fleet([20.0, 40.0], beside=beside)
    answer = solve(wish)
    assert verify(answer.plan, wish, simulate=False).is_ok
    assert answer.plan is not None
    assert "undecided" not in summary_of_plan(answer.plan, wish, tmp_path)
    assert "undecided" in summary_of_plan(with_late_policy(answer.plan, 0.5), wish, tmp_path)


def test_an_honest_summary_is_not_refused_and_a_forged_one_ends_the_command(tmp_path: Path) -> None:
    wish, answer = planned("pool")
    assert answer.plan is not None
    for plan, code in ((answer.plan, EXIT["ok"]), (restated(answer.plan, "count"), EXIT["broken"])):
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        ran = command("verify", tmp_path / "plan.json", *wish.write(tmp_path))
        assert ran.code == code
        assert ("recomputed it is" in ran.out + ran.err) == (code != EXIT["ok"])


def test_python_and_commands_hand_out_one_record(tmp_path: Path) -> None:
    wish, answer = planned("variants")
    assert answer.plan is not None
    made, again = record_of_solve(wish), summary_record(answer.plan, wish, tmp_path)
    differ = {key for key in made if made[key] != again[key]}
    assert differ == {"made_here"}


def test_files_that_the_plan_was_not_made_from_are_said_to_be_others(tmp_path: Path) -> None:
    wish, answer = planned("pool")
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(answer.plan))
    for other, said in ((wish, False), (wish.scaled_prices(2.0), True)):
        assert ("made from another profile" in command("show", path, *other.write(tmp_path)).err) == said


def test_hours_are_those_of_the_plan_and_their_money_is_its_mean(tmp_path: Path) -> None:
    wish, answer = planned("fleet")
    page = shown(wish, answer, tmp_path)
    hours, total = 0.0, 0.0
    counts: list[int] = []
    for row in page.hours:
        length = 0
        for run in row["hours"].split(", "):
            begin, end = (int(one) for one in run.split("-"))
            length += (end - begin) % 3 or 3
        hours += length
        total += length * float(row["$/h"])
        cells = " + ".join(cell for head, cell in row.items() if head not in ("hours", "$/h", "spot"))
        counts += [sum(int(one) for one in re.findall(r"(?:^|[+,] )(\d+) ?", cells))] * length
    assert hours == 3.0
    assert total / hours == pytest.approx(answer.cost, abs=0.006)
    assert sorted(counts) == sorted(answer.count(period=f"p{number}") for number in range(3))
    assert page.month == pytest.approx((answer.cost or 0.0) * HOURS_A_MONTH, abs=0.51)


def test_money_of_a_day_is_named_by_machine_model_and_application(tmp_path: Path) -> None:
    """The parts of an application add up to its money, and all of them to the month."""
    wish, answer = planned("fleet")
    page = shown(wish, answer, tmp_path)
    told = page.text.partition("\nMoney ")[2].partition("\nSaved ")[0].splitlines()
    assert len(told) == len(wish.apps)
    total = 0.0
    for name, line in zip(sorted(wish.apps), told, strict=True):
        head, _, rest = line.strip().partition(" a month: ")
        assert head.startswith(f"{name} $")
        parts = [float(one.replace(",", "")) for one in re.findall(r"\$([\d,]+)", rest)]
        total += float(head.partition("$")[2].replace(",", ""))
        assert sum(parts) == pytest.approx(float(head.partition("$")[2].replace(",", "")), abs=len(parts))
        for group in answer.machines:
            for replica in group.replicas:
                if replica.app == name:
                    assert f"{replica.model} on " in rest
                    assert f"{group.machine} " in rest
    assert total == pytest.approx(page.month, abs=len(told))


@pytest.mark.slow
def test_many_applications_leave_room_for_the_money_of_each_hour(tmp_path: Path) -> None:
    wish = many_applications(9)
    answer = solve(wish, "fluid")
    page = shown(wish, answer, tmp_path)
    lines = page.text.splitlines()
    assert len(lines) <= 28
    assert max(map(len, lines)) <= 120
    assert all(float(row["$/h"]) > 0.0 for row in page.hours if row["hours"][0].isdigit() and "$/h" in row)
    assert sum("$/h" in row for row in page.hours) >= 2
    assert all(name in page.text for name in wish.apps)


def test_every_view_of_a_plan_that_a_summary_names_is_there(tmp_path: Path) -> None:
    _, answer = planned("fleet")
    assert answer.plan is not None
    text = summary_of_plan(answer.plan, None, tmp_path)
    for view in {*re.findall(r"--view (\w+)", text), "machines", "routes", "policies", "hours", "warnings", "proof"}:
        assert command("show", tmp_path / "plan.json", "--view", view).code == 0


@pytest.mark.slow
def test_a_view_has_the_rows_and_columns_that_a_summary_leaves_out(tmp_path: Path) -> None:
    wish = many_applications(6)
    answer = solve(wish, "fluid")
    assert answer.plan is not None
    short = summary_of_plan(answer.plan, wish, tmp_path)
    assert re.search(r"\d+ applications (and \d+ rows )?more: ", short)
    (tmp_path / "plan.json").write_text(json.dumps(answer.plan))
    for view in ("hours", "machines"):
        shown = command("show", tmp_path / "plan.json", *wish.write(tmp_path), "--view", view).out.strip("\n")
        heading, head, *rows = shown.split("\n\n")[0].splitlines()
        assert heading == "Hours"
        assert all(f" {name} " in head.replace("(", " ") for name in wish.apps)
        assert [row.split()[0].rstrip(",") for row in rows] == [
            one["hours"].split(",")[0] for one in summary_record(answer.plan, wish, tmp_path)["hours"]
        ]

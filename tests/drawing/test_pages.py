"""Pictures and pages: what they show, that nothing leaves its frame, and that no document can put code into them."""

from __future__ import annotations

import html
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import hetplan as hp
from hetplan.drawing.charts import Bar, Course, Curve, Judged, bars, courses, curves, judged
from hetplan.drawing.fleet import MOST_GROUPS, fleet_picture
from hetplan.drawing.page import Html
from hetplan.drawing.report import Documents, plan_fragment, report_page
from hetplan.drawing.summary import SummaryText, Table, draw_costs, write_summary
from hetplan.drawing.svg import Picture, ticks
from hetplan.planner.summary import summarize
from hetplan.profiles.load_one import load_slo
from hetplan.profiles.summary_words import summary_text
from hetplan.simulator.figures import Together, responses_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HARM = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b[31m\u202e&amp;"

NOTHING_TOLD = SummaryText("a plan", "", (), (), (), ())


def texts(svg: str) -> list[str]:
    return ["".join(item.itertext()) for item in ElementTree.fromstring(svg).iter() if item.tag.endswith("}text")]


def in_frame(picture: Picture) -> None:
    """Every shape lies in the picture."""
    root = ElementTree.fromstring(picture.svg())
    width, height = (float(value) for value in root.attrib["viewBox"].split()[2:])
    places: list[tuple[float, float]] = []
    for item in root.iter():
        at = item.attrib
        if "points" in at:
            places += [tuple(map(float, pair.split(","))) for pair in at["points"].split()]  # type: ignore[misc]
        if item.tag.endswith("rect"):
            x, y = float(at["x"]), float(at["y"])
            places += [(x, y), (x + float(at["width"]), y + float(at["height"]))]
        if "d" in at:
            numbers = [float(one) for one in re.findall(r"-?[\d.]+", at["d"])]
            places += list(zip(numbers[::2], numbers[1::2], strict=True))
    assert places
    assert all(-0.2 <= x <= width + 0.2 and -0.2 <= y <= height + 0.2 for x, y in places)


def harmed(document: Any) -> Any:
    """The document with harm in every text that a plan may choose freely."""
    if isinstance(document, dict):
        return {key + HARM if key in {"ranking"} else key: harmed(value) for key, value in document.items()}
    if isinstance(document, list):
        return [harmed(value) for value in document]
    return document + HARM if isinstance(document, str) else document


def test_no_text_of_a_plan_becomes_code_or_an_address(document: dict[str, Any]) -> None:
    bad, row = harmed(document), (HARM, HARM)
    told = SummaryText(HARM, HARM, row, row, (Table("Machines", (f"1{HARM}", HARM), (row,), (1,)),), ((HARM, row),),
        costs=(Bar(HARM, 1.0, HARM),))  # fmt: skip
    curve = {"title": HARM, "x": HARM, "y": HARM, "lines": [{"label": HARM, "x": [1, 2], "y": [1, 2]}]}
    page = report_page(Documents(bad, told, slo={"apps": {HARM: {"runs": {}}}}, whatif={"curves": [curve]}))
    assert "alert(1)" in page, "the texts are shown"
    assert "<script" not in page
    assert "<img" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    without = page.replace("http://www.w3.org/2000/svg", "")
    assert "http" not in re.sub(r"http-equiv", "", without), "nothing is fetched from anywhere"
    assert not re.search(r"<[^>]*\s(?:src|href|on\w+)\s*=", without)
    assert "default-src 'none'" in page
    assert "<script" not in plan_fragment(bad)


def test_the_fleet_shows_workers_and_flows(document: dict[str, Any], pool: hp.Plan) -> None:
    slo = load_slo(EXAMPLES / "pool" / "slo.json").model_dump(mode="json", exclude_none=True)
    picture = fleet_picture(document, slo)
    shown = texts(picture.svg())
    for worker in pool.workers:
        assert any(text.startswith(f"{worker.count} x {worker.hardware}") for text in shown)
    assert any(text.startswith("ranking: 580.1 queries") for text in shown)
    ribbons = picture.svg().count('class="ribbon')
    routes = pool.routing["ranking"]
    assert ribbons == len(routes) + sum(len(route.to) for route in routes)
    in_frame(picture)


def test_the_picture_in_the_pages_is_of_the_example(document: dict[str, Any]) -> None:
    held = (EXAMPLES.parent / "docs" / "pictures" / "pool.svg").read_text()
    assert held == fleet_picture(document).svg(alone=True), "draw it anew: hetplan show plan.json --svg"


def test_flows_follow_the_path_where_routes_depend_on_it() -> None:
    def worker(name: str) -> dict[str, Any]:
        return {"id": name, "hardware": "t4", "count": 1, "loads": [{"id": name, "node": name[0]}]}

    routes = [
        {"node": "d", "prefix": [], "to": {"d1": 0.25, "d2": 0.75}},
        {"node": "c", "prefix": ["d1"], "to": {"c1": 1.0}},
        {"node": "c", "prefix": ["d2"], "to": {"c1": 0.5, "c2": 0.5}},
    ]
    plan = {"workers": [worker(name) for name in ("d1", "d2", "c1", "c2")], "routing": {"a": routes}}
    picture = fleet_picture(plan | {"valid": {"rate_qps": {"a": [0, 100]}}})
    in_frame(picture)
    thick = re.findall(r'd="M[\d.]+ ([\d.]+)C[^L]*L[\d.]+ [\d.]+C[\d.]+ [\d.]+ [\d.]+ ([\d.]+)', picture.svg())
    width = [float(low) - float(high) for high, low in thick]
    assert len(width) == 5
    assert width[1] / width[0] == pytest.approx(3, rel=0.02), "three quarters go to d2"
    assert width[2] == pytest.approx(width[0], rel=0.02), "all of d1 goes on to c1"
    assert width[3] == pytest.approx(width[1] / 2, rel=0.02)


@pytest.mark.parametrize("routed", [True, False], ids=["routed", "by a rule"])
def test_beside_classes_of_others_every_application_has_a_box(routed: bool) -> None:
    def worker(name: str, app: str) -> dict[str, Any]:
        return {"id": name, "hardware": "t4", "count": 1, "loads": [{"id": name, "app": app}]}

    routing: dict[str, Any] = {"a": [{"when": {"batch": at}, "to": {"a1": 1.0}} for at in (1, 8)]}
    routing |= {"b": [{"to": {"b1": 1.0}}]} if routed else {}
    plan = {"workers": [worker("a1", "a"), worker("b1", "b")], "routing": routing}
    plan["valid"] = {"rate_qps": {"a": [0, 100], "b": [0, 50]}}
    picture = fleet_picture(plan)
    in_frame(picture)
    assert texts(picture.svg()).count("all queries") == 1
    ends = re.findall(r'd="M([\d.]+) [\d.]+C[^L]*L([\d.]+) ', picture.svg())
    assert len(ends) == 6
    between = {(left, right) for left, right in ends}
    assert len(between) == 2, "every flow goes from one column to the next, behind no box"
    alone = {**plan, "workers": plan["workers"][1:], "routing": {k: v for k, v in routing.items() if k == "b"}}
    assert "all queries" not in texts(fleet_picture(alone).svg())


def test_a_fleet_of_hundreds_is_cut_and_says_so() -> None:
    workers = [{"id": f"w{n}", "hardware": f"h{n}", "loads": [{"id": f"l{n}", "app": "a"}]} for n in range(300)]
    picture = fleet_picture({"workers": workers})
    in_frame(picture)
    assert f"and {300 - MOST_GROUPS} more groups of workers in the plan file" in texts(picture.svg())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, -5.0, 0.0, 1e-300])
def test_odd_figures_stay_in_the_frame(value: float) -> None:
    in_frame(bars([Bar("a", value, "x"), Bar("b", 2.0, "y")], title="t"))
    in_frame(curves([Curve("c", [0.0, 1.0, value], [1.0, None, value])], title="t", x="x", y="y", limits={"l": value}))
    in_frame(judged([Judged("p", "<=", value, value, value, value, "met")], title="t"))
    in_frame(courses([Course("w", [0.0, value, 2.0])], seconds=10.0, title="t"))


def test_ticks_are_round_and_cover() -> None:
    random = np.random.default_rng(5)
    for _ in range(200):
        low, high = sorted(random.normal(0, 10 ** random.uniform(-6, 6), 2).tolist())
        found = ticks(low, high)
        assert found[0] <= low + 1e-9 * abs(low)
        assert found[-1] >= high - 1e-9 * abs(high)
        assert 2 <= len(found) <= 12


def test_a_promise_in_the_middle_has_what_is_broken_on_the_other_side() -> None:
    svg = judged([Judged("p99", "<=", 60.0, 80.0, 75.0, 85.0, "broken")], title="t").svg()
    dot = ElementTree.fromstring(svg).find("{http://www.w3.org/2000/svg}circle")
    assert dot is not None
    middle = (200.0 + 470.0) / 2
    assert float(dot.attrib["cx"]) > middle
    assert dot.attrib["class"] == "bad"


def test_the_report_begins_with_the_summary_and_says_what_the_plan_says(
    document: dict[str, Any], pool: hp.Plan
) -> None:
    told = summary_text(summarize(pool), ("Checked", "nothing"))
    page = report_page(Documents(plan=document, summary=told))
    assert (
        page.index(f"<h1>{told.head}</h1>") < page.index(told.status) < page.index(told.bounds[0]) < page.index("<h2>")
    )
    for table in told.tables:
        for row in table.rows:
            assert "".join(f">{html.escape(cell)}</td>" for cell in row) in re.sub("<td[^>]*|<tr>|</tr>", "", page)
    assert "<li>Checked: nothing</li>" in page
    assert "This page was made from the plan file alone" in page
    assert f">{document['digest'].removeprefix('sha256:')[:8]}<" in page


@pytest.mark.parametrize("ok", [True, False])
def test_a_plan_that_simulation_breaks_looks_wrong_at_its_head(document: dict[str, Any], ok: bool) -> None:
    told = SummaryText("head", "Feasible.", (), (), (), ())
    head = report_page(Documents(document, told, simulation={"ok": ok})).partition("<h2>")[0]
    assert ('<p class="bad">Feasible. Simulated again' in head) != ok
    assert ("<p>Feasible.</p>" in head) == ok


def test_what_is_said_of_a_limit_has_its_colour_and_each_label_its_lines() -> None:
    rows = (("a", "met"), ("b", "violated"), ("c", "met in 2 of 3"), ("d", "by formula"))
    tables = Table("SLO", ("app", "verdict"), rows), Table("Machines", ("machine",), ())
    lines = (("Warnings", ("one", "two")),)
    told = SummaryText("head", "", ("none.",), ("Reserve 2.",), tables, lines, costs=(Bar("t4", 2.0, "$2"),))
    page = Html("")
    write_summary(page, told, level=2)
    draw_costs(page, told)
    shown = page.body()
    for kind, word in (("good", "met"), ("bad", "violated"), ("good", "met in 2 of 3")):
        assert f'<td class="{kind}">{word}</td>' in shown
    assert "<td>by formula</td>" in shown
    assert [line for line in shown.splitlines() if line.startswith("<ul>")] == [
        "<ul><li>Reserve 2.</li></ul>", "<ul><li>Warnings: one</li><li>Warnings: two</li></ul>"
    ]  # fmt: skip
    assert "<p>none</p>" in shown, "no machines"
    assert "money a month" in shown


def test_a_plan_over_the_day_shows_its_largest_fleet_and_its_course() -> None:
    periods = [{"id": f"t{hour}", "start_s": 3600.0 * hour} for hour in range(3)]
    workers = [
        {"id": f"w{hour}", "period": f"t{hour}", "hardware": "a10g", "count": count, "loads": [{"id": f"l{hour}"}]}
        for hour, count in enumerate((2, 7, 3))
    ]
    page = report_page(Documents({"question": "fleet", "periods": periods, "workers": workers}, NOTHING_TOLD))
    assert "The fleet of t1, the largest of 3." in page
    assert "7 x a10g" in page
    assert ">2 x a10g" not in page
    assert "machines over the day" in page


def test_a_plan_of_parts_shows_the_parts_of_its_largest_period() -> None:
    def part(count: int) -> dict[str, Any]:
        worker = {"id": "w", "hardware": "l4", "count": count, "loads": [{"id": "l", "variant": "net"}]}
        return {"workers": [worker], "routing": {"chat": [{"to": {"l": 1.0}}]}}

    periods = [{"id": "p0", "parts": ["night"]}, {"id": "p1", "parts": ["day"], "start_s": 43200.0}]
    plan = {"question": "fleet", "periods": periods, "parts": {"night": part(1), "day": part(6)}, "workers": []}
    for page in (report_page(Documents(plan, NOTHING_TOLD)), plan_fragment(plan)):
        assert "6 x l4" in page
        assert ">1 x l4" not in page
        assert "chat" in page


def test_rates_of_a_fleet_are_those_of_the_period_that_is_drawn() -> None:
    def rate(value: float, hour: int, after: str = "") -> dict[str, Any]:
        made = {"app": "chat", "period": f"p{hour}", "quantity": "rate_qps", "relation": ">=", "value": value}
        return {**made, "model": "fluid"} | ({"situation": after} if after else {})

    def part(count: int) -> dict[str, Any]:
        worker = {"id": "w", "hardware": "l4", "count": count, "loads": [{"id": "l", "variant": "net"}]}
        return {"workers": [worker], "routing": {"chat": [{"to": {"l": 1.0}}]}}

    periods = [{"id": f"p{hour}", "parts": [name]} for hour, name in enumerate(("many", "few", "few"))]
    promises = [rate(38.0, 0, "zone a lost"), rate(77.0, 0), rate(99.0, 1), rate(99.0, 2)]
    plan = {
        "question": "fleet", "periods": periods, "parts": {"many": part(6), "few": part(1)}, "workers": [],
        "promises": promises, "valid": {"rate_qps": {"chat": [0, 99.0]}},
    }  # fmt: skip
    assert "chat: 77 queries/s" in report_page(Documents(plan, NOTHING_TOLD))


def test_a_limit_is_named_at_the_foot_of_its_line() -> None:
    drawn = curves([Curve("a", [10, 60], [1, 99])], title="t", x="ms", y="%", limits={"99% within 60 ms": 60.0})
    (place,) = re.findall(r'<text x="[\d.]+" y="([\d.]+)"[^>]*>(?:<title>[^<]*</title>)?99% within 60 ms', drawn.svg())
    assert float(place) > 200


def test_a_distribution_is_that_of_all_responses() -> None:
    random = np.random.default_rng(3)
    runs = [np.sort(random.exponential(40.0, 5000)) for _ in range(3)]
    together = np.concatenate(runs)
    for percentage, ms in Together([responses_of(run) for run in runs]).distribution():
        assert ms == pytest.approx(np.percentile(together, percentage), rel=0.02 if percentage < 99 else 0.1)


def test_notebooks_show_plans_outcomes_and_verdicts(pool: hp.Plan) -> None:
    files = EXAMPLES / "pool" / "profile.json", EXAMPLES / "pool" / "slo.json"
    assert "3 x t4" in pool._repr_html_()
    verdict = hp.verify(pool, *files)
    assert "proved again" in verdict._repr_html_()
    solved = hp.solve(*files, options={"size": "planned"})._repr_html_()
    assert "<h2>$2,102 a month ($2.88/h of at most $3.00/h) serves 580 queries/s.</h2>" in solved
    assert "3 x t4" in solved
    slow = load_slo(files[1]).model_dump(mode="json", exclude_unset=True)
    slow["apps"]["ranking"]["latency"]["p99_ms"] = 1.0
    shown = hp.solve(files[0], {"format": "hetplan/slo/1.0"} | slow, options={"size": "planned"})._repr_html_()
    assert "infeasible" in shown
    assert "What would make it possible" in shown
    pandas = pytest.importorskip("pandas")
    frame = pool.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["count"].sum() == sum(worker.count for worker in pool.workers)


def test_a_page_escapes_what_it_is_handed() -> None:
    page = Html(HARM)
    page.heading(HARM)
    page.table([HARM], [[HARM]], kinds=["bad"])
    page.items([HARM])
    assert "<script" not in page.html()
    assert "<img" not in page.html()


FRAMED = """<!doctype html><body><script>
const frame = document.createElement("iframe");
frame.width = 360; frame.height = 800; frame.style.border = 0;
frame.srcdoc = %s;
frame.onload = () => {
  const seen = frame.contentDocument;
  document.body.dataset.wide = seen.documentElement.scrollWidth;
  document.body.dataset.ground = frame.contentWindow.getComputedStyle(seen.body).backgroundColor;
  document.body.dataset.high = seen.documentElement.scrollHeight;
  const drawn = [...seen.querySelectorAll("svg")].filter(one => one.getBoundingClientRect().height > 20);
  document.body.dataset.pictures = drawn.length;
};
document.body.append(frame);
</script></body>"""


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "ground"), [(1, "rgb(255, 255, 255)"), (0, "rgb(20, 24, 28)")])
def test_a_browser_shows_the_page_on_a_phone(
    browser: Any, document: dict[str, Any], tmp_path: Path, scheme: int, ground: str
) -> None:
    """Light and dark by the reader's wish, no wider than a phone, all pictures drawn."""
    import json

    page = report_page(Documents(document, NOTHING_TOLD))
    held = tmp_path / "frame.html"
    held.write_text(FRAMED % json.dumps(page).replace("</", "<\\/"))
    shown = browser(f"file://{held}", "--dump-dom", f"--blink-settings=preferredColorScheme={scheme}")
    said = dict(re.findall(r'data-(\w+)="([^"]*)"', shown))
    assert int(said["wide"]) <= 360
    assert said["ground"] == ground
    assert int(said["pictures"]) == page.count("<svg ")
    assert int(said["high"]) > 800

"""Pictures and pages: what they show, that nothing leaves its frame, and that no document can put code into them."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from browser import open_driver, open_tab
from build import tiny
from face import solve

import hetplan as hp
from hetplan.drawing.charts import (
    Curve,
    Panel,
    bar_chart,
    curves,
    length_bar,
    limit_bar,
    money_line,
    panels,
    parts_bar,
    timeline_picture,
)  # fmt: skip
from hetplan.drawing.day import day_picture, hours_of
from hetplan.drawing.page import Html, Row
from hetplan.drawing.report import Documents, plan_fragment, report_page
from hetplan.drawing.routes import MOST_ROWS, route_rows, routes_picture
from hetplan.drawing.summary import Axis, Bar, Limit, SummaryText, Table
from hetplan.drawing.svg import Picture, ticks
from hetplan.planner.summary import summarize
from hetplan.planner.summary_rows import spot_offers
from hetplan.profiles.load import load_inputs
from hetplan.profiles.load_one import load_slo
from hetplan.profiles.plan_summary import Bound, SloRow, Summary
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


def hostile() -> SummaryText:
    """A summary with harm in all its words."""
    row, bar = (HARM, HARM), Bar(HARM, 1.0, HARM, about=HARM)
    tables = [Table(title, (f"1{HARM}", HARM), (row,), (1,)) for title in ("SLO", "Hours", "Policies")]
    machines = Table("Machines", ("machine", "model", "application", f"{HARM}/month"), ((HARM, HARM, HARM, HARM),))
    limit = Limit(HARM, HARM, HARM, HARM, HARM, HARM, "<=", 1.0, 0.5, 0.6, row)
    labels = ("Failures", "Marginal", "Checked", HARM)
    return SummaryText(
        HARM, HARM, row, row, (*tables, machines), tuple((label, row) for label in labels), costs=(bar,), title=HARM,
        money=row, buy=HARM, monthly_bounds=row, axis=Axis("min", (2.0, HARM), (1.0, HARM), (3.0, HARM)),
        limits=(limit,), ways=(bar, bar), cautions=row * 4,
    )  # fmt: skip


def hostile_documents(document: dict[str, Any]) -> dict[str, Any]:
    """What commands write, with harm in all its words."""
    curve = {
        "title": HARM,
        "x": HARM,
        "y": HARM,
        "lines": [{"label": HARM, "x": [1, 2], "y": [1, 2]}],
        "marks": {HARM: 1},
    }
    line = {"app": HARM, "quantity": HARM, "relation": HARM, "promised": 1.0, "by": HARM, "verdict": HARM}
    played = {
        "seeds": [1], "duration_s": 1.0, "noise": HARM, "lines": [line],
        "timeline": {"width_s": 1.0, "waiting": [1, 2]},
        "apps": {HARM: {"distribution_ms": [[50.0, 1.0], [99.0, 2.0]], "figures": {}}},
        "failures": [{"situation": HARM, "at_first": {}, "after": {HARM: {"value": 0.5}}, "verdicts": {HARM: HARM}}],
    }  # fmt: skip
    best = {"setting": HARM, "cost_per_hour": 1.0, "late": 0.1}
    way = {"way": HARM, "note": HARM, "best": best, "tried": [best, best]}
    claims = [{"about": HARM, "word": HARM, "text": HARM}]
    return {
        "slo": {"apps": {HARM: {"latency": {"p99_ms": 2.0}}}}, "simulation": played,
        "baselines": {HARM: played}, "whatif": {"objective": {"sense": HARM}, "curves": [curve]},
        "compared": {"ways": [way], "currency": HARM},
        "verified": {"reason": HARM, "claims": claims, "checked": [HARM], "skipped": [HARM]}, "spot": {HARM},
    }  # fmt: skip


def fleet_of(machines: str) -> dict[str, Any]:
    """A plan of three hours, as a document, with these names for everything."""
    worker = {"id": machines, "hardware": machines, "offer": machines, "count": 2, "loads": []}
    ends = [(3600.0 * hour, 3600.0 * (hour + 1)) for hour in range(3)]
    return {
        "periods": [{"id": f"{machines}{at}", "start_s": begin, "end_s": end, "parts": [machines]}
                    for at, (begin, end) in enumerate(ends)],
        "parts": {machines: {"workers": [worker], "promises": [
            {"app": machines, "quantity": "response_ms", "percentile": 99.0, "interval": [50.0, 55.0]}]}},
        "promises": [{"app": machines, "period": f"{machines}0", "quantity": "rate_qps", "value": 5.0}],
        "workers": [], "question": machines, "digest": machines,
    }  # fmt: skip


def harmless(page: str) -> None:
    """No text of a document is code, an address or a character that turns the line."""
    assert "alert(1)" in page, "the texts are shown"
    assert "<script" not in page
    assert "<img" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    without = page.replace("http://www.w3.org/2000/svg", "")
    assert "http" not in without.replace("http-equiv", ""), "nothing is fetched from anywhere"
    tree = ElementTree.fromstring(re.sub(r"<meta [^>]*>|<!doctype html>", "", page))
    names = {name for item in tree.iter() for name in item.attrib}
    assert not any(name == "src" or name.startswith("on") for name in names)
    assert {item.attrib["href"] for item in tree.iter() if "href" in item.attrib} <= {"#plan", "#look"}


@pytest.mark.parametrize("of", ["pool", "fleet"])
def test_no_text_of_a_plan_becomes_code_or_an_address(document: dict[str, Any], of: str) -> None:
    plan = harmed(document) if of == "pool" else fleet_of(HARM)
    page = report_page(Documents(plan, hostile(), pictures={HARM: "<svg></svg>"}, **hostile_documents(plan)))
    harmless(page)
    assert "default-src 'none'" in page
    assert page.count("alert(1)") > 100
    assert "<script" not in plan_fragment(plan)


@pytest.mark.parametrize("of", ["pool", "fleet"])
def test_a_hostile_name_changes_no_element_of_the_page(document: dict[str, Any], of: str) -> None:
    """The same page with names that are words has the same elements in the same order."""

    def elements(word: str) -> list[str]:
        global HARM
        before, HARM = HARM, word
        try:
            plan = harmed(document) if of == "pool" else fleet_of(word)
            told = Documents(plan, hostile(), **hostile_documents(plan))
            return re.findall(r"<(/?\w+)", re.sub(r"<title>.*?</title>", "", report_page(told), flags=re.S))
        finally:
            HARM = before

    assert elements(HARM) == elements("word" * 16)


def test_each_class_of_queries_shows_which_machines_answer_it(document: dict[str, Any], pool: hp.Plan) -> None:
    slo = load_slo(EXAMPLES / "pool" / "slo.json").model_dump(mode="json", exclude_none=True)
    rows = route_rows(document, slo)
    routes = pool.routing["ranking"]
    assert len(rows) == len(routes)
    groups = {load.id: f"{worker.count} x {worker.hardware}" for worker in pool.workers for load in worker.loads}
    for (name, about, parts), route in zip(rows, routes, strict=True):
        assert name == f"ranking, batch {route.when['batch']:g}"
        assert about.endswith("% of queries")
        told = {load: share for load, share in route.to.items() if share > 0}
        for part, (load, share) in zip(parts, told.items(), strict=True):
            assert part.label.startswith(groups[load])
            assert part.value == share
    picture = routes_picture(document)
    in_frame(picture)
    shown = " ".join(texts(picture.svg()))
    for worker in pool.workers:
        assert f"{worker.count} x {worker.hardware}" in shown


def test_the_picture_in_the_pages_is_of_the_example(document: dict[str, Any]) -> None:
    held = (EXAMPLES.parent / "docs" / "pictures" / "pool.svg").read_text()
    assert held == routes_picture(document).svg(alone=True), "draw it anew: hetplan show plan.json --svg"


def test_routes_that_depend_on_the_path_say_after_which_machines() -> None:
    def worker(name: str) -> dict[str, Any]:
        return {"id": name, "hardware": "t4", "count": 1, "loads": [{"id": name, "node": name[0]}]}

    routes = [
        {"node": "d", "prefix": [], "to": {"d1": 0.25, "d2": 0.75}},
        {"node": "c", "prefix": ["d2"], "to": {"c1": 0.5, "c2": 0.5}},
    ]
    rows = route_rows({"workers": [worker(name) for name in ("d1", "d2", "c1", "c2")], "routing": {"a": routes}})
    assert [name for name, _, _ in rows] == ["a, d", "a, c, after 1 x t4"]
    assert [part.value for part in rows[0][2]] == [0.25, 0.75]


def test_hundreds_of_routes_are_cut_and_the_picture_says_so() -> None:
    workers = [{"id": f"w{n}", "hardware": f"h{n}", "loads": [{"id": f"l{n}", "app": "a"}]} for n in range(300)]
    routes = [{"when": {"size": n}, "to": {f"l{n}": 1.0}} for n in range(300)]
    picture = routes_picture({"workers": workers, "routing": {"a": routes}})
    in_frame(picture)
    assert f"and {300 - MOST_ROWS} more routes in the plan file" in texts(picture.svg())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, -5.0, 0.0, 1e-300])
def test_odd_figures_stay_in_the_frame(value: float) -> None:
    odd = Bar("a", value, "x")
    in_frame(length_bar(odd, 2.0, mark=value))
    in_frame(parts_bar([odd, Bar("b", 2.0, "y")], label="t"))
    in_frame(bar_chart([("a", [Bar("b", 2.0, "y")])], label="t"))
    for relation in ("<=", ">="):
        in_frame(
            limit_bar(Limit("a", "p", "", "", "", "met", relation, abs(value) if value < 1e300 else 1.0, value, value))
        )
    for width in (1000.0, 690.0, 358.0):
        for log in (False, True):
            lines = [Curve("c", [1.0, 2.0, value], [1.0, None, value])]
            in_frame(curves(lines, width, label="t", x="x", y="y", limits={"l": value}, log=log))
        in_frame(
            panels(
                [Panel("w", [("ahead", [0.0, value]), ("spot", [1.0, value])])], [0, 1, 2], [], label="t", width=width
            )
        )
        if 0.0 < value < 1e200:
            in_frame(money_line(Axis("min", (value, "v"), (value / 2, "b"), (2 * value, "e")), width))


@pytest.mark.parametrize(("better", "level"), [("min", 5.0), ("max", 2.0)])
def test_between_two_plans_a_curve_is_at_the_worse_of_them(better: str, level: float) -> None:
    drawn = curves([Curve("a", [0.0, 1.0], [2.0, 5.0], better)], label="t", x="x", y="y").svg()
    (points,) = re.findall(r'<polyline points="([^"]*)" class="curve', drawn)
    heights = [float(pair.split(",")[1]) for pair in points.split()]
    at = {2.0: max(heights), 5.0: min(heights)}
    assert heights == [at[2.0], at[level], at[level], at[5.0]]


def test_panels_stack_what_is_paid_for_in_each_way_to_the_whole() -> None:
    drawn = panels(
        [Panel("m", [("ahead", [2.0, 2.0]), ("spot", [0.0, 1.0])])], [0, 1, 2], [], label="t", width=1000.0
    ).svg()  # fmt: skip
    areas = dict(reversed(one) for one in re.findall(r'<polygon points="([^"]*)" class="(\w+) part"', drawn))
    places = {kind: [tuple(map(float, pair.split(","))) for pair in text.split()] for kind, text in areas.items()}
    high = {kind: max(y for _, y in points) - min(y for _, y in points) for kind, points in places.items()}
    wide = {kind: max(x for x, _ in points) - min(x for x, _ in points) for kind, points in places.items()}
    assert high["ahead"] == pytest.approx(2 * high["spot"], abs=0.3)
    assert wide["ahead"] == pytest.approx(2 * wide["spot"], abs=0.3)


def test_ticks_are_round_and_cover() -> None:
    random = np.random.default_rng(5)
    for _ in range(200):
        low, high = sorted(random.normal(0, 10 ** random.uniform(-6, 6), 2).tolist())
        found = ticks(low, high)
        assert found[0] <= low + 1e-9 * abs(low)
        assert found[-1] >= high - 1e-9 * abs(high)
        assert 2 <= len(found) <= 12


@pytest.mark.parametrize("played", [{"ok": True}, {"ok": False}, {"broken": []}, {"broken": ["p0: chat"]}])
def test_a_plan_that_simulation_breaks_looks_wrong_at_its_head(
    document: dict[str, Any], played: dict[str, Any]
) -> None:
    ok = played.get("ok") is not False and not played.get("broken")
    told = SummaryText("head", "Feasible.", (), (), (), ())
    head = report_page(Documents(document, told, simulation=played)).partition("<h2>")[0]
    assert ('class="chip bad">\u2715 Feasible. Simulated again' in head) != ok
    assert ('class="chip good">\u2713 Feasible<' in head) == ok


@pytest.mark.parametrize(
    ("words", "state"),
    [(("met", "by formula"), "good"), (("met", "met in 2 of 3"), "open"), (("undecided", "met"), "open"),
     (("met", "violated"), "bad"), (("not simulated", "not simulated"), "open")],
)  # fmt: skip
def test_a_plan_that_misses_a_limit_or_was_not_simulated_looks_different_at_first(
    words: tuple[str, ...], state: str
) -> None:
    names = ["quality" if word == "by formula" else f"p9{at}" for at, word in enumerate(words)]
    rows = tuple(SloRow("a", name, "ms", "<=", 60.0, verdict=word) for name, word in zip(names, words, strict=True))
    told = summary_text(Summary(status="feasible", slo=rows, made_here=True))
    page = report_page(Documents({}, told))
    assert f'class="chip {state}"' in page
    heads = {"good": "Every limit is met", "bad": "a: p91 is violated"}
    (title,) = re.findall(r"<h2>([^<]*)</h2>", page)[:1]
    assert (title == heads["good"]) == (state == "good")
    assert (title == heads["bad"]) == (state == "bad")


def test_what_was_not_simulated_is_hatched_and_not_zero() -> None:
    limit = Limit("a", "p99", "", "<= 60 ms", "", "not simulated", "<=", 60.0)
    drawn = limit_bar(limit).svg()
    assert 'class="bar"' not in drawn
    assert drawn.count('class="never"') == 2
    assert ">-<" in report_page(Documents({}, SummaryText("", "", (), (), (), (), limits=(limit,)))).replace(" <", "<")


def test_a_plan_without_simulation_has_the_limits_as_they_were_simulated_for_the_page() -> None:
    limit = Limit("a", "p99", "", "<= 60 ms", "", "not simulated", "<=", 60.0)
    line = {"app": "a", "quantity": "response_ms", "percentile": 99.0, "relation": "<=", "promised": 60.0, "by": "slo"}
    told = SummaryText("", "Feasible.", (), (), (), (), limits=(limit,))
    for ends, word in (([50.0, 55.0], "met"), ([70.0, 71.0], "broken"), ([50.0, None], "undecided")):
        found = {"value": ends[0], "interval": ends}
        page = report_page(
            Documents({}, told, simulation={"ok": True, "lines": [line | {"simulated": found, "verdict": word}]})
        )
        shown = {"met": "Every limit is met", "broken": "a: p99 is violated", "undecided": "a: p99 is undecided"}[word]
        assert f"<h2>{shown}</h2>" in page
        assert "simulated for this page" in page
        assert "Feasible. Simulated for this page, no limit or promise is broken<" in page


def test_rates_and_machines_of_a_day_are_those_of_each_period() -> None:
    hours = hours_of(fleet_of("chat"), spot={"chat"})
    assert [hour.machines for hour in hours] == [{("chat", "spot"): 2}] * 3
    assert [hour.rates for hour in hours] == [{"chat": 5.0}, {}, {}]
    in_frame(day_picture(hours, 358.0, money="USD"))


def test_a_limit_is_named_at_the_foot_of_its_line() -> None:
    drawn = curves([Curve("a", [10, 60], [1, 99])], label="t", x="ms", y="%", limits={"99% within 60 ms": 60.0})
    (place,) = re.findall(r'<text x="[\d.]+" y="([\d.]+)"[^>]*>(?:<title>[^<]*</title>)?99% within 60 ms', drawn.svg())
    assert float(place) > 200


def test_a_long_simulation_is_drawn_as_means() -> None:
    values = [float(at % 2) for at in range(600)]
    drawn = timeline_picture({"width_s": 0.5, "waiting": values})
    assert drawn is not None
    assert drawn.svg().count(" ") < 1000
    assert "300 s" in texts(drawn.svg())


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
    solved = hp.solve(*files, options={"sizing": "fluid"})._repr_html_()
    assert "<h2>$2,102 a month ($2.88/h of at most $3.00/h) serves 580 queries/s.</h2>" in solved
    assert "3 x t4" in solved
    slow = load_slo(files[1]).model_dump(mode="json", exclude_unset=True)
    slow["apps"]["ranking"]["latency"]["p99_ms"] = 1.0
    shown = hp.solve(files[0], {"format": "hetplan/slo/1.0"} | slow, options={"sizing": "fluid"})._repr_html_()
    assert "infeasible" in shown
    assert "What would make it possible" in shown
    pandas = pytest.importorskip("pandas")
    frame = pool.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["count"].sum() == sum(worker.count for worker in pool.workers)


def test_a_page_escapes_what_it_is_handed() -> None:
    page = Html(HARM)
    page.heading(HARM, name=HARM)
    page.answer((HARM, HARM), "good", HARM)
    page.table(HARM, [HARM], [[(HARM, HARM)]], kinds=["bad"], foot=[HARM])
    page.rows([Row(HARM, HARM, None, HARM, HARM, (HARM,), HARM, HARM)])
    page.items([HARM])
    page.heat(HARM, [HARM], [(HARM, [1.0])])
    page.commands([HARM])
    with page.fold(HARM):
        page.text(HARM, HARM)
    harmless(page.html())


LOOK = """const texts = [...document.querySelectorAll("figure svg text")]
  .filter((one) => one.getBoundingClientRect().width);
const bad = [];
for (const one of texts) {
  const at = one.getBoundingClientRect(), frame = one.ownerSVGElement.getBoundingClientRect();
  if (at.left < frame.left - 1 || at.right > frame.right + 1 || at.bottom > frame.bottom + 2) bad.push(one.textContent);
  if (parseFloat(getComputedStyle(one).fontSize) * frame.width / one.ownerSVGElement.viewBox.baseVal.width < 10.9)
    bad.push("small: " + one.textContent);
  for (const other of one.ownerSVGElement.querySelectorAll("text")) {
    if (other === one) break;
    const by = other.getBoundingClientRect();
    if (at.left < by.right - 1 && by.left < at.right - 1 && at.top < by.bottom - 3 && by.top < at.bottom - 3)
      bad.push(one.textContent + " over " + other.textContent);
  }
}
return {bad, wide: document.documentElement.scrollWidth, fetched: performance.getEntriesByType("resource").length,
  ground: getComputedStyle(document.body).backgroundColor,
  cut: [...document.querySelectorAll("main *")].filter((one) => !one.closest(".scroll") && !one.closest("svg")
    && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80)),
  charts: [...document.querySelectorAll("figure")].filter((one) => one.getBoundingClientRect().height > 20).length,
  drawn: document.querySelectorAll("figure").length}"""
REACHED = """const links = [...document.querySelectorAll("a, summary, [tabindex]")];
return links.filter((one) => one.tabIndex < 0).map((one) => one.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def driver() -> Iterator[str]:
    with open_driver() as address:
        yield address


@pytest.mark.slow
@pytest.mark.parametrize("of", ["pool", "fleet", "llm", "pipeline"])
def test_a_browser_shows_every_page_at_three_widths_light_and_dark(driver: str, tmp_path: Path, of: str) -> None:
    """No text of a chart is cut, small or over another; nothing is wider than the screen; axe finds nothing."""
    wish = tiny(of)
    plan = hp.Plan.model_validate(solve(wish, "simulation").plan)
    inputs = load_inputs(wish.profile, wish.slo)
    told = summary_text(summarize(plan, inputs, made_here=True))
    document = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    held = tmp_path / "page.html"
    held.write_text(report_page(Documents(document, told, slo=wish.slo, spot=spot_offers(inputs))))
    with open_tab(driver, tmp_path / "browser") as tab:
        for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(17, 23, 29)")):
            for width in (390, 768, 1280):
                tab.show(width, scheme)
                tab.go(f"file://{held}")
                tab.run("document.querySelectorAll('details').forEach((one) => one.open = true)")
                seen = tab.run(LOOK)
                assert seen["bad"] == [], (width, scheme)
                assert seen["cut"] == [], (width, scheme)
                assert seen["wide"] == width
                assert seen["fetched"] == 0
                assert seen["ground"] == ground
                assert seen["charts"] == seen["drawn"] > 0
                assert tab.run(REACHED) == []
                assert tab.faults() in (None, []), (width, scheme)


def test_what_only_the_plan_states_is_not_praised() -> None:
    rows = SloRow("a", "p99", "ms", "<=", 60.0, interval=(50.0, 55.0), basis="simulation", verdict="met")
    stated = Summary(status="feasible", slo=(rows,))
    page = report_page(Documents({}, summary_text(stated))).partition("</style>")[2]
    assert 'class="chip open"' in page
    assert "<h2>Every limit is met, as the plan states</h2>" in page
    assert not re.search(r'class="[^"]*good', page)
    made = report_page(Documents({}, summary_text(replace(stated, made_here=True)))).partition("</style>")[2]
    assert 'class="chip good"' in made
    assert "<h2>Every limit is met</h2>" in made


def test_a_plan_that_states_more_than_its_bound_allows_contradicts_itself() -> None:
    cost = Bound("cost_per_hour", "min", 6.88, "problem", "certified", 6.88, 0.0)
    rate = Bound("rate_qps", "max", 700.0, "problem", "certified", 580.0, 0.0)
    for bound, per_hour, said in (
        (cost, 1.0, "it states $730 a month, and no plan costs less than $5,022 a month"),
        (rate, 6.88, "it states 700 queries/s, and no plan serves more than 580 queries/s"),
    ):
        forged = Summary(status="optimal", cost_per_hour=per_hour, currency="USD", bounds=(bound,))
        told = summary_text(forged)
        assert (told.state, told.status) == ("bad", f"CONTRADICTS ITSELF: {said}.")
    honest = Summary(status="optimal", cost_per_hour=6.88, currency="USD", bounds=(cost,))
    assert (summary_text(honest).state, summary_text(honest).status) == ("open", "Optimal, as the plan states.")


@pytest.mark.parametrize(
    ("verdicts", "said", "title"),
    [(("violated", "violated", "met"), "1 of 2 SLO limits is violated.", "a: p99, a: violation rate are violated"),
     (("met", "not simulated", "met"), "Feasible; 1 of 2 SLO limits was not simulated.",
      "1 of 2 limits was not simulated in full"),
     (("not simulated", "not simulated", "met"), "Feasible; 1 of 2 SLO limits was not simulated.",
      "1 of 2 limits was not simulated in full")],
)  # fmt: skip
def test_a_percentile_and_the_rate_of_those_beyond_it_are_one_limit(
    verdicts: tuple[str, ...], said: str, title: str
) -> None:
    limits = (("a", "p99", 60.0), ("a", "violation rate", 0.01), ("b", "p99", 60.0))
    rows = tuple(SloRow(*one[:2], "", "<=", one[2], verdict=word) for one, word in zip(limits, verdicts, strict=True))
    told = summary_text(Summary(status="feasible", slo=rows, made_here=True))
    assert told.status == said
    assert f"<h2>{title}</h2>" in report_page(Documents({}, told))


def test_a_plan_for_nothing_has_no_negative_money_and_its_missing_bound_is_named() -> None:
    told = summary_text(Summary(status="feasible", cost_per_month=-0.0, cost_per_hour=-0.0, currency="USD"))
    assert "$0.00 a month ($0.00/h)" in told.head
    assert ">Bound: none is known; a better plan may exist.<" in report_page(Documents({}, told))


def test_each_bound_is_called_what_became_of_it_here() -> None:
    bounds = tuple(Bound(name, "min", 2.0, "problem", "certified", 2.0, 0.0) for name in ("cost_per_hour", "servers"))
    again = {"min cost_per_hour": "proved again", "min servers": "found again by an engine"}
    told = summary_text(Summary(status="feasible", bounds=bounds, proofs=again))
    assert [one.partition("(")[2] for one in told.bounds] == [
        "exact, certified).  Gap 0%.",
        "exact, found again by an engine).  Gap 0%.",
    ]


def test_only_a_run_of_a_plan_that_holds_makes_good_what_it_states() -> None:
    row = SloRow("a", "p99", "ms", "<=", 60.0, interval=(50.0, 55.0), basis="simulation", verdict="met")
    told = summary_text(Summary(status="feasible", slo=(row,)))
    for ok, verdict, state in ((True, "met", "good"), (True, "undecided", "open"), (False, "met", "open")):
        played = {"ok": True, "lines": [{"by": "slo", "app": "a", "verdict": verdict}]}
        page = report_page(Documents({}, told, simulation=played, verified={"ok": ok}))
        assert f'class="chip {state}"' in page, (ok, verdict)

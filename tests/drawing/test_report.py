"""The page of a plan says what the plan's own JSON says: each figure of it is read from the page and compared."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from build import PROBLEMS, example, tiny
from face import solve

import hetplan as hp
from hetplan.drawing.report import Documents, report_page
from hetplan.planner.summary import summarize
from hetplan.planner.summary_rows import spot_offers
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan_summary import Summary
from hetplan.profiles.summary_words import summary_text

HOURS_A_MONTH = 730.0
SLOW = ("pipeline", "policy", "compound")
NEVER = (r"sha256:", r"\[\w+\]", r"gross_|net_cost", r"\bp0\b", r"\.\d{7,}")
"""What is for programs and not for people: digests, names of rows, ids of periods, invented precision."""
PLANS = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in (*PROBLEMS, "compound")]


@dataclass
class Read(HTMLParser):
    """What can be read on a page: texts by the class of their element, tables by their names, labels of charts."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    charts: list[str] = field(default_factory=list)
    headings: list[int] = field(default_factory=list)
    open: list[tuple[str, str]] = field(default_factory=list)
    table: str = ""

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        at = {name: value or "" for name, value in attrs}
        kind = at.get("class", "")
        if tag in ("rect", "polygon", "polyline", "circle", "path", "meta"):
            return
        self.open.append((tag, kind))
        for name in {tag, *kind.split()}:
            self.texts.setdefault(name, []).append("")
        if tag[0] == "h" and tag[1:].isdigit():
            self.headings.append(int(tag[1:]))
        if at.get("role") == "region":
            self.table = at["aria-label"]
            self.tables.setdefault(self.table, [])
        if tag == "tr":
            self.tables[self.table].append([])
        if tag in ("th", "td"):
            self.tables[self.table][-1].append("")
        if at.get("role") == "img":
            self.charts.append(at["aria-label"])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A shape without words."""

    def handle_endtag(self, tag: str) -> None:
        if any(tag == name for name, _ in self.open):
            while self.open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        for name in {name for tag, kind in self.open for name in (tag, *kind.split())}:
            self.texts[name][-1] += data
        if any(tag in ("th", "td") for tag, _ in self.open):
            self.tables[self.table][-1][-1] += data if self.open[-1][0] in ("th", "td") else f" {data}"


@cache
def made(problem: str) -> tuple[dict[str, Any], Summary, str, Read]:
    """A plan as a document, its summary, its page, and what can be read there."""
    wish = example("compound") if problem == "compound" else tiny(problem)
    answer = solve(wish, "simulation")
    inputs = load_inputs(wish.profile, wish.slo, measured=wish.measured)
    plan = hp.Plan.model_validate(answer.plan)
    summary = summarize(plan, inputs, made_here=True)
    document = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    given = Documents(document, summary_text(summary), slo=wish.slo, spot=spot_offers(inputs))
    page = report_page(given)
    read = Read()
    read.feed(page)
    return document, summary, page, read


def number(cell: str) -> float:
    found = re.search(r"\d[\d,]*\.?\d*(?:e-?\d+)?", cell)
    assert found is not None, cell
    return float(found[0].replace(",", ""))


@pytest.mark.parametrize("problem", PLANS)
def test_money_stands_first_and_the_machines_and_the_bill_add_up_to_it(problem: str) -> None:
    document, summary, page, read = made(problem)
    stated = document["summary"]
    assert read.headings[0] == 1
    assert read.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(read.headings, read.headings[1:], strict=False))
    (large,) = read.texts["money"]
    head, *rows, foot = read.tables["What runs where"]
    if stated.get("cost_per_month") is None:
        assert large.startswith(f"{stated['machine_count']} machine")
        assert "$" not in "".join(head)
    else:
        month = stated["cost_per_month"]
        assert large == f"${month:,.{0 if month >= 100 else 2}f} a month"
        assert page.index(large[:4]) < page.index(read.texts["says"][-1].split("(")[0].strip()) < page.index("<h2>")
        at = head.index("$ a month")
        assert sum(number(row[at]) for row in rows if row[at]) == pytest.approx(month, abs=len(rows))
        assert number(foot[at]) == pytest.approx(month, abs=0.5)
        bars = [number(one.partition(": $")[2]) for one in re.findall(r'class="[\w ]+"><title>([^<]*: \$[^<]*)<', page)]
        assert sum(bars) >= month - len(bars)
    assert sum("Gap" in text or "within" in text for text in read.texts["says"]) >= min(len(summary.bounds), 1)


@pytest.mark.parametrize("problem", PLANS)
def test_every_model_machine_and_application_is_a_row_with_its_counts(problem: str) -> None:
    document, _, _, read = made(problem)
    head, *rows, _ = read.tables["What runs where"]
    stated = document["summary"]["machines"]
    assert len(rows) == len(stated)
    for shown, row in zip(rows, stated, strict=True):
        for name in ("model", "machine", "app"):
            assert row.get(name, "") in shown[0]
        if "machines" in head:
            most, least = row["count"], row.get("least", row["count"])
            assert shown[head.index("machines")] in (f"{least}-{most}", str(most), "")
        if "utilization" in head and "utilization" in row:
            assert number(shown[head.index("utilization")]) == pytest.approx(100.0 * row["utilization"], abs=0.5)


@pytest.mark.parametrize("problem", PLANS)
def test_each_limit_has_its_row_with_the_interval_and_the_verdict(problem: str) -> None:
    document, summary, page, read = made(problem)
    names = [text for text in read.texts["name"] if any(text.startswith(f"{row.app}, ") for row in summary.slo)]
    assert len(names) >= len(summary.slo)
    drawn = [label for label in read.charts if ", limit " in label]
    stated = [row for row in document["summary"]["slo"] if row.get("limit") is not None]
    assert stated
    for row in stated:
        place = next(at for at, text in enumerate(read.texts["name"]) if text == f"{row['app']}, {row['metric']}")
        value, words = read.texts["val"][place], read.texts["word"][place]
        scale = 100.0 if row.get("unit") == "share" else 1.0
        assert number(value.partition(" of ")[2]) == pytest.approx(scale * row["limit"], rel=0.01)
        assert words.startswith(row["verdict"])
        if row.get("interval"):
            low, high = (scale * end for end in row["interval"])
            told = [number(end) for end in value.partition(" of ")[0].split("..")]
            assert told[0] == pytest.approx(low, rel=0.01, abs=0.006)
            assert told[-1] == pytest.approx(high, rel=0.01, abs=0.006)
            assert any(label.startswith(f"{row['app']}, {row['metric']}: {value.split(' of ')[0]}") for label in drawn)
        for one in row.get("worst", ()):
            if not one.get("failure"):
                assert f"worst at {one['hours']}" in words
    verdicts = {row["verdict"] for row in stated}
    bad = "violated" in verdicts
    assert ('class="chip bad"' in page) == bad
    assert ('class="chip good"' in page) == (verdicts <= {"met", "by formula"})


def test_the_day_has_the_machines_that_the_bill_says_and_its_parts_are_the_bill() -> None:
    document, _, _, read = made("fleet")
    head, *rows = read.tables["machines by hour"]
    lines = document["bill"]["lines"]
    shown: dict[float, list[str]] = {}
    for row in rows:
        begin, end = (number(word) for word in row[0].split(" to "))
        shown |= {float(at): row for at in range(int(begin), int(end))}
    step = document["periods"][0]["end_s"]
    minutes = "min" in rows[0][0]
    for period in document["periods"]:
        row = shown[period["start_s"] / (60.0 if minutes else 3600.0)]
        mine = [line for line in lines if line["period"] == period["id"]]
        cells = dict(zip(head[1:], row[1:], strict=True))
        counts = {name: 0 if cell == "-" else int(cell) for name, cell in cells.items() if name != "an hour"}
        reserved = sum(count for name, count in counts.items() if "reserved" in name)
        assert reserved == pytest.approx(sum(line["committed"] for line in mine))
        assert sum(counts.values()) - reserved == pytest.approx(sum(line["rented"] for line in mine))
        idle = sum(count for name, count in counts.items() if name.endswith("idle"))
        assert idle == pytest.approx(sum(line["committed"] for line in mine if line.get("app") is None))
        assert number(cells["an hour"]) == pytest.approx(sum(line["cost_per_hour"] for line in mine), abs=0.006)
    assert step > 0
    ways = ("reserved", "on demand", "spot", "while machines start")
    parts = [number(text.partition("$")[2]) for text in read.texts["li"] if text.startswith(ways) and "$" in text]
    assert parts
    assert sum(parts) == pytest.approx(document["bill"]["cost_per_month"], abs=len(parts))


def test_failures_ways_to_buy_and_tight_hours_are_those_of_the_plan() -> None:
    document, summary, _, read = made("fleet")
    for failure in summary.failures:
        assert failure in read.texts["lead"][-1] or any(failure in text for text in read.texts["lead"])
    ways = {lever["name"]: lever["cost_per_hour"] for lever in document["bill"]["levers"] if "cost_per_hour" in lever}
    for place, name in enumerate(read.texts["name"]):
        if name.partition(":")[0] in ways:
            cost = HOURS_A_MONTH * ways.pop(name.partition(":")[0])
            assert number(read.texts["val"][place]) == pytest.approx(cost, abs=0.5)
    assert not ways
    tight = read.tables.get("the tail by period", [])
    for row, period in zip(tight[1:], document["periods"], strict=False):
        for app, cell in zip(tight[0][1:], row[1:], strict=True):
            limits = {one.metric: one.limit for one in summary.slo if one.app == app and one.unit == "ms"}
            tails = [
                100.0 * one["interval"][1] / limits[f"p{one['percentile']:g}"]
                for name in period["parts"]
                for one in document["parts"][name]["promises"]
                if one["quantity"] == "response_ms" and one.get("interval") and one["app"] == app
            ]
            if tails:
                assert number(cell) == pytest.approx(max(tails), abs=0.51)


@pytest.mark.parametrize("problem", PLANS)
def test_a_page_is_small_fetches_nothing_and_has_no_words_for_programs(problem: str) -> None:
    _, summary, page, read = made(problem)
    assert len(page.encode()) < 120_000
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=\"(?!#)|url\((?!#)|https?://(?!www\.w3\.org/2000/svg)", page)
    text = page.partition("</style>")[2].partition("How this is known")[0]
    text = re.sub(r"<[^>]+>", " ", text)
    for word in NEVER:
        assert not re.search(word, text), re.search(word, text)
    assert asdict(summary)
    assert all(label.strip() for label in read.charts)

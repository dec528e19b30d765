"""The desk in a browser: its states at three widths, light and dark, by mouse and by keyboard alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import build
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from browser import Tab, ended, open_driver, open_tab, until

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

WIDE = """return [...document.querySelectorAll("main *, aside *, dialog[open] *")]
  .filter((one) => !one.closest(".scroll") && !one.closest("svg") && one.getBoundingClientRect().right > innerWidth + 1)
  .map((one) => one.outerHTML.slice(0, 80))"""
SEEN = """const text = (name) => document.querySelector(name)?.textContent;
return {chip: text("#plan .chip"), heard: text("#state"), plan: text("#plan"), money: text(".money"),
  delta: text(".delta") || "", old: document.getElementById("plan").className,
  wrong: [...document.querySelectorAll(".wrong")].map((one) => one.textContent).filter(Boolean),
  undo: document.getElementById("undo").disabled, summary: shown && JSON.stringify(shown.summary),
  slo: JSON.stringify(question().slo)}"""
LOW = """return [...document.querySelectorAll("dialog button, dialog input")].filter((one) => one.type !== "checkbox")
  .map((one) => one.getBoundingClientRect().height)"""
FIELD = """[...document.querySelectorAll("input")].find((one) => one.dataset.path === "%s")"""
TYPE = f"""const box = {FIELD}; box.value = "%s"; box.dispatchEvent(new Event("input", {{bubbles: true}}))"""
BUDGET, P99 = "limits/cost_per_hour", "apps/ranking/latency/p99_ms"


@pytest.fixture(scope="module")
def driver() -> Iterator[str]:
    with open_driver() as address:
        yield address


@contextmanager
def desk(*files: object) -> Iterator[str]:
    """The address of a desk with these files."""
    command = [sys.executable, "-m", "hetplan", "desk", *map(str, files), "--port", "0"]
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)), 2) as made:
        assert made.stdout is not None
        yield made.stdout.readline().strip()


@pytest.fixture(scope="module")
def pool() -> Iterator[str]:
    with desk() as address:
        yield address


def told(tab: Tab, *, simulated: bool = True) -> dict[str, Any]:
    """What the page shows once it has its answer."""

    def done(seen: dict[str, Any]) -> bool:
        words = ["Planning", "Simulating", *["no SLO was simulated", "NOT SIMULATED"] * simulated]
        return bool(seen["chip"]) and not any(one in seen["chip"] for one in words)

    time.sleep(0.4)
    seen: dict[str, Any] = until(lambda: tab.run(SEEN), done, 120.0)
    return seen


def looks_whole(tab: Tab, width: int, scheme: str) -> None:
    tab.show(width, scheme)
    assert tab.run(WIDE) == [], (width, scheme)
    assert tab.run("return document.documentElement.scrollWidth") == width
    ground = {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 23, 29)"}[scheme]
    assert tab.run("return getComputedStyle(document.body).backgroundColor") == ground


@pytest.mark.slow
def test_every_state_of_the_desk_looks_whole_and_shows_the_plan(driver: str, pool: str, tmp_path: Path) -> None:
    """Planned, pinned, infeasible, wrong: one chip each, what is shown is what the plan says, and axe finds nothing."""
    with open_tab(driver, tmp_path) as tab:

        def whole() -> None:
            for width in (390, 768, 1280):
                for scheme in ("light", "dark"):
                    looks_whole(tab, width, scheme)
            assert tab.faults() in (None, [])

        tab.show(1280, "light")
        tab.go(pool)
        planned = told(tab)
        summary = json.loads(planned["summary"])
        assert planned["chip"] == planned["heard"] == "\u2713 Feasible: every SLO is met in simulation"
        assert planned["money"] == f"${summary['cost_per_month']:,.0f} a month"
        for row in summary["machines"]:
            assert f"{row['model']} on {row['machine']}" in planned["plan"]
        for row in summary["slo"]:
            assert f"{row['app']}, {row['metric']}" in planned["plan"]
        whole()

        tab.show(1280, "light")
        tab.run("""[...document.querySelectorAll(".step button")]
          .find((one) => one.getAttribute("aria-label") === "one more t4").click()""")
        pinned = told(tab)
        (row,) = (one for one in json.loads(pinned["summary"])["machines"] if one["machine"] == "t4")
        assert row["count"] == 4
        assert pinned["delta"].endswith("than before: 4 t4")
        assert tab.run("return document.querySelector('.pinned output').textContent") == "4"
        whole()

        tab.run(TYPE % (P99, "25"))
        infeasible = told(tab)
        assert infeasible["chip"] == "\u2715 Infeasible"
        assert any(one.endswith("ms would do.") for one in infeasible["wrong"])
        assert "What makes it possible" in infeasible["plan"]
        assert "Before: " in infeasible["plan"]
        whole()
        tab.run("document.querySelector('.fix .main').click()")
        assert told(tab)["chip"].startswith("\u2713"), "what the button does was tried"

        for _ in range(3):
            tab.run("document.getElementById('undo').click()")
        assert told(tab)["slo"] == planned["slo"]
        for word in ("-5", "abc", "", "1e12"):
            tab.run(TYPE % (BUDGET, word))
            wrong = tab.run(SEEN)
            assert wrong["chip"] == "\u26a0 Invalid input. Still the plan for Budget, dollars an hour: 3"
            assert wrong["wrong"] == ["A budget is 0 or more, and at most a million. Write dollars an hour, such as 3."]
            assert (wrong["old"], wrong["money"]) == ("old", planned["money"]), "the old answer stays"
        whole()
        tab.run("document.getElementById('undo').click()")
        back = told(tab)
        assert (back["old"], back["wrong"], back["slo"]) == ("", [], planned["slo"])
        asked = "return performance.getEntriesByType('resource').map((one) => new URL(one.name).host)"
        assert set(tab.run(asked)) == {pool.partition("://")[2].partition("/")[0]}, "nothing is fetched from elsewhere"


@pytest.mark.slow
def test_twenty_changes_are_undone_to_the_same_bytes_and_a_link_has_the_settings(
    driver: str, pool: str, tmp_path: Path
) -> None:
    with open_tab(driver, tmp_path) as tab:
        tab.show(1280, "light")
        tab.go(pool)
        first = until(lambda: tab.run(SEEN), lambda seen: bool(seen["money"]), 120.0)
        for step in range(20):
            tab.run(TYPE % ((BUDGET, P99)[step % 2], 5 + step))
        changed = tab.run(SEEN)["slo"]
        assert json.loads(changed)["limits"]["cost_per_hour"] == "23"
        link = tab.run("""navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); };
          document.getElementById("copy-link").click(); return window.copied""")
        for _ in range(20):
            tab.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'z', ctrlKey: true}))")
        seen = tab.run(SEEN)
        assert (seen["slo"], seen["undo"]) == (first["slo"], True)
        for _ in range(20):
            tab.run("document.getElementById('redo').click()")
        assert tab.run(SEEN)["slo"] == changed
        tab.go("about:blank")
        tab.go(link)
        assert until(lambda: tab.run("return now && fields.length ? JSON.stringify(now.slo) : ''"), bool) == changed


@pytest.mark.slow
def test_on_a_phone_the_question_is_a_sheet_that_the_keyboard_opens_and_leaves(
    driver: str, pool: str, tmp_path: Path
) -> None:
    with open_tab(driver, tmp_path) as tab:
        tab.show(390, "light")
        tab.go(pool)
        until(lambda: tab.run(SEEN), lambda seen: bool(seen["money"]), 120.0)

        def press(key: str, code: int, **more: Any) -> None:
            for kind in ("keyDown", "keyUp"):
                tab.tell("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)

        def focused() -> str:
            return str(tab.run("const one = document.activeElement; return one.id || one.tagName"))

        reached = []
        while "open" not in reached:
            assert len(reached) < 60, reached
            press("Tab", 9)
            reached.append(focused())
        press("Enter", 13, text="\r")
        assert tab.run("return document.querySelector('dialog').open")
        assert min(tab.run(LOW)) >= 38
        while tab.run("return document.activeElement.dataset.path") != BUDGET:
            press("Tab", 9)
        press("a", 65, commands=["selectAll"])
        press("-", 189, text="-")
        assert tab.run(SEEN)["wrong"]
        assert tab.run(WIDE) == []
        assert tab.faults() in (None, [])
        press("Escape", 27)
        until(lambda: tab.run("return document.querySelector('dialog').open"), lambda is_open: not is_open)
        assert focused() == "open"


@pytest.mark.slow
def test_a_day_is_planned_for_more_demand_and_simulated_when_asked(driver: str, tmp_path: Path) -> None:
    wish = build.example("fleet")
    slo = {**wish.slo, "horizon": {"period_s": 3600, "periods": 2, "repeats": 360}}
    slo["apps"] = {"ranking": {**wish.slo["apps"]["ranking"], "rate_qps": {"series": [110.0, 250.0]}}}
    for kind, held in (("profile", build.in_format_1_0(wish.profile)), ("slo", slo)):
        (tmp_path / f"{kind}.json").write_text(json.dumps(held))
    with desk(tmp_path) as address, open_tab(driver, tmp_path / "browser") as tab:
        tab.show(1280, "light")
        tab.go(address)
        told(tab, simulated=False)
        tab.run(TYPE % ("times/ranking", "1.2"))
        more = told(tab, simulated=False)
        assert json.loads(more["slo"])["apps"]["ranking"]["rate_qps"] == {"series": [132, 300]}
        assert more["delta"].endswith("than before: ranking, times: 1.2")
        assert "paid for, and money by the hour" in tab.run("return document.querySelector('#plan').innerHTML")
        for width in (390, 1280):
            looks_whole(tab, width, "dark")
        assert tab.faults() in (None, [])
        tab.run("document.getElementById('simulate').click()")
        assert "no SLO was simulated" not in told(tab)["chip"]


@pytest.mark.slow
def test_a_hostile_name_in_a_file_that_is_opened_is_only_a_name(driver: str, pool: str, tmp_path: Path) -> None:
    name = "<img src=x onerror=document.title='harm'><script>document.title='harm'</script>"
    with open_tab(driver, tmp_path) as tab:
        tab.go(pool)
        until(lambda: tab.run(SEEN), lambda seen: bool(seen["money"]), 120.0)
        tab.run(
            "const slo = structuredClone(files.slo); slo.apps = {[arguments[0]]: slo.apps.ranking};"
            "begin({...files, slo})".replace("arguments[0]", json.dumps(name))
        )
        seen = until(lambda: tab.run(SEEN), lambda seen: seen["chip"] == "\u2715 Invalid input")
        assert name[:40] in seen["plan"]
        assert tab.run("return document.title") == "hetplan desk"
        assert tab.run("return document.querySelectorAll('main img, main script, header img').length") == 0

"""The page in a browser: on a phone, light and dark, and what it says until the planned plan is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from browser import ended, open_driver, open_tab, until

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WIDE = """return [...document.querySelectorAll("main *")].filter((one) => !one.closest(".scroll")
  && one.getBoundingClientRect().right > 360.5).map((one) => one.outerHTML.slice(0, 60))"""
SEEN = """return {wide: document.documentElement.scrollWidth, mark: document.getElementById("mark").textContent,
  ground: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color,
  top: document.querySelector(".state").getBoundingClientRect().top,
  brief: document.getElementById("brief").textContent,
  low: [...document.querySelectorAll("input[type=range]")].map((one) => one.getBoundingClientRect().height),
  boxes: [...document.querySelectorAll(".scroll")].map((one) => getComputedStyle(one).overflowX)}"""
MOVE = """const slide = document.querySelector("input[type=range]"); window.scrollTo(0, 10000);
  window.heard = []; new MutationObserver(() => window.heard.push(document.getElementById("mark").textContent))
    .observe(document.getElementById("mark"), {childList: true, characterData: true, subtree: true});
  slide.value = 1.1 * slide.value; slide.oninput();"""


@pytest.fixture(scope="module")
def driver() -> Iterator[str]:
    with open_driver() as address:
        yield address


@pytest.fixture(scope="module")
def street() -> Iterator[str]:
    """The address of the desk with the example whose exact plan takes long."""
    command = [sys.executable, "-m", "hetplan", "desk", str(EXAMPLES / "pipeline" / "profile.json")]
    command += [str(EXAMPLES / "pipeline" / "slo.json"), "--port", "0"]
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)), 2) as made:
        assert made.stdout is not None
        yield made.stdout.readline().strip()


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "ground"), [(1, "rgb(255, 255, 255)"), (0, "rgb(17, 23, 29)")])
def test_on_a_phone_nothing_is_cut_and_the_page_says_that_it_plans_until_the_plan_is_there(
    driver: str, street: str, tmp_path: Path, scheme: int, ground: str
) -> None:
    phone = {"deviceMetrics": {"width": 360, "height": 740, "pixelRatio": 2.0, "touch": True}}
    colours = f"--blink-settings=preferredColorScheme={scheme}"
    with open_tab(driver, tmp_path, colours, mobileEmulation=phone) as tab:
        tab.go(street)
        until(lambda: tab.run(SEEN)["mark"], lambda mark: mark.startswith(("planned", "confirmed")))
        tab.run(MOVE)
        heard = until(
            lambda: tab.run("return window.heard"), lambda all_: any(one.startswith("planned,") for one in all_)
        )
        assert heard[0] == "planning; below is the plan before"
        seen = tab.run(SEEN)
        assert seen["wide"] <= 360
        assert tab.run(WIDE) == [], "cut at the edge"
        assert seen["ground"] == ground
        assert min(seen["low"]) >= 30, "a finger holds it"
        assert abs(seen["top"]) < 1, "what the plan comes to stays in sight"
        assert re.search(r" serve 5\d\d queries/s\.$", seen["brief"]), seen["brief"]
        assert set(seen["boxes"]) == {"auto"}

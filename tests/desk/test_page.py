"""The page in a browser: on a phone, light and dark, and what it says until the planned plan is there.

chromedriver is asked over HTTP, as WebDriver says; skipped where there is none (Debian's package `chromium-driver`).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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


def _asked(address: str, body: Any = None, *, method: str = "POST") -> Any:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(address, data=data, method=method, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.loads(answer.read())["value"]


def _until(told: Any, wanted: Any, seconds: float = 40.0) -> Any:
    end = time.monotonic() + seconds
    while not wanted(found := told()):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


@contextmanager
def _ended(process: subprocess.Popen[str], signal: int) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.send_signal(signal)
        process.wait(timeout=20)


@pytest.fixture(scope="module")
def driver() -> Iterator[str]:
    """The address of chromedriver."""
    found = shutil.which("chromedriver")
    if found is None:
        pytest.skip("no chromedriver here: install chromium-driver to look at the page on a phone")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with _ended(subprocess.Popen([found, f"--port={port}"], stdout=subprocess.DEVNULL, text=True), 15):
        address = f"http://127.0.0.1:{port}"

        def ready() -> bool:
            try:
                return bool(_asked(f"{address}/status", method="GET")["ready"])
            except OSError:
                return False

        _until(ready, bool)
        yield address


@pytest.fixture(scope="module")
def street() -> Iterator[str]:
    """The address of the desk with the example whose exact plan takes long."""
    command = [sys.executable, "-m", "hetplan", "desk", str(EXAMPLES / "pipeline" / "profile.json")]
    command += [str(EXAMPLES / "pipeline" / "slo.json"), "--port", "0"]
    with _ended(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)), 2) as made:
        assert made.stdout is not None
        yield made.stdout.readline().strip()


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "ground"), [(1, "rgb(255, 255, 255)"), (0, "rgb(20, 24, 28)")])
def test_on_a_phone_nothing_is_cut_and_the_page_says_that_it_plans_until_the_plan_is_there(
    driver: str, street: str, tmp_path: Path, scheme: int, ground: str
) -> None:
    how = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    how += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path}"]
    phone = {"deviceMetrics": {"width": 360, "height": 740, "pixelRatio": 2.0, "touch": True}}
    options = {"args": [*how, f"--blink-settings=preferredColorScheme={scheme}"], "mobileEmulation": phone}
    wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
    session = f"{driver}/session/{_asked(f'{driver}/session', wanted)['sessionId']}"
    try:
        _asked(f"{session}/url", {"url": street})

        def told(script: str) -> Any:
            return _asked(f"{session}/execute/sync", {"script": script, "args": []})

        _until(lambda: told(SEEN)["mark"], lambda mark: mark.startswith(("planned", "confirmed")))
        told(MOVE)
        heard = _until(
            lambda: told("return window.heard"), lambda all_: any(one.startswith("planned,") for one in all_)
        )
        assert heard[0] == "planning; below is the plan before"
        seen = told(SEEN)
        assert seen["wide"] <= 360
        assert told(WIDE) == [], "cut at the edge"
        assert seen["ground"] == ground
        assert min(seen["low"]) >= 30, "a finger holds it"
        assert abs(seen["top"]) < 1, "what the plan comes to stays in sight"
        assert " serve 600 queries/s." in seen["brief"]
        assert set(seen["boxes"]) == {"auto"}
    finally:
        _asked(session, method="DELETE")

"""A headless Chromium that tests ask over HTTP, as WebDriver says; skipped where there is none.

Debian's packages are `chromium` and `chromium-driver`. HETPLAN_AXE names the file `axe.min.js` of the npm package
axe-core; without it pages are not looked at for accessibility.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Tab", "ended", "open_driver", "open_tab", "until"]

QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--hide-scrollbars", "--disable-background-networking", "--disable-component-update",
]  # fmt: skip


def _ask(address: str, body: Any = None, *, method: str = "POST") -> Any:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(address, data=data, method=method, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.loads(answer.read())["value"]


def until(told: Any, wanted: Any, seconds: float = 40.0) -> Any:
    end = time.monotonic() + seconds
    while not wanted(found := told()):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


@contextmanager
def ended(process: subprocess.Popen[str], signal: int) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.send_signal(signal)
        process.wait(timeout=20)


@contextmanager
def open_driver() -> Iterator[str]:
    """The address of chromedriver."""
    found = shutil.which("chromedriver")
    if found is None:
        pytest.skip("no chromedriver here: install chromium-driver to look at pages")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ended(subprocess.Popen([found, f"--port={port}"], stdout=subprocess.DEVNULL, text=True), 15):
        address = f"http://127.0.0.1:{port}"

        def ready() -> bool:
            try:
                return bool(_ask(f"{address}/status", method="GET")["ready"])
            except OSError:
                return False

        until(ready, bool)
        yield address


class Tab:
    """One page."""

    def __init__(self, session: str) -> None:
        self.session = session

    def go(self, address: str) -> None:
        _ask(f"{self.session}/url", {"url": address})

    def run(self, script: str) -> Any:
        return _ask(f"{self.session}/execute/sync", {"script": script, "args": []})

    def tell(self, command: str, **how: Any) -> Any:
        """A command of the DevTools protocol."""
        return _ask(f"{self.session}/goog/cdp/execute", {"cmd": command, "params": how})

    def show(self, width: int, scheme: str) -> None:
        """A screen of this width, light or dark."""
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def faults(self) -> list[str] | None:
        """What axe finds wrong, None without it; a page that found nothing to look at is no page without faults."""
        axe = os.environ.get("HETPLAN_AXE")
        if not axe:
            return None
        self.run(f"{Path(axe).read_text()};window.axe = axe")
        asked = """const done = arguments[0]; axe.run().then((found) => done({passes: found.passes.length,
          faults: found.violations.map((one) => one.id + ": " + one.nodes[0].html.slice(0, 120))}))"""
        found = _ask(f"{self.session}/execute/async", {"script": asked, "args": []})
        assert found["passes"] > 20
        faults: list[str] = found["faults"]
        return faults


@contextmanager
def open_tab(driver: str, folder: Path, *arguments: str, **options: Any) -> Iterator[Tab]:
    """A browser with its own folder."""
    held = {"args": [*QUIET, f"--user-data-dir={folder}", *arguments], **options}
    wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": held}}}
    session = f"{driver}/session/{_ask(f'{driver}/session', wanted)['sessionId']}"
    try:
        yield Tab(session)
    finally:
        _ask(session, method="DELETE")

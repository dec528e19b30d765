"""Demand as a Prometheus knows it: how many queries have arrived, per application."""

from __future__ import annotations

import json
import math
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

__all__ = ["arrived_by_prometheus"]


def arrived_by_prometheus(url: str, query: str, *, limit_s: float = 5.0) -> dict[str, int]:
    """The counters that a query of PromQL gives, by their label `app`; OSError says why there are none."""
    asked = f"{url.rstrip('/')}/api/v1/query?{urlencode({'query': query})}"
    try:
        with urlopen(asked, timeout=limit_s) as answer:
            said: Any = json.loads(answer.read())
    except (URLError, OSError, ValueError) as error:
        raise OSError(f"Prometheus at {url} does not answer: {error}") from None
    data = said.get("data", {}) if isinstance(said, dict) and said.get("status") == "success" else {}
    if data.get("resultType") != "vector":
        raise OSError(f"Prometheus at {url} gives no vector for {query}")
    found = {}
    for one in data["result"]:
        app, value = one["metric"].get("app"), float(one["value"][1])
        if app is None or app in found:
            raise OSError(f"{query} gives no single counter per application: write sum by (app) (...)")
        if math.isfinite(value):
            found[app] = round(value)
    return found

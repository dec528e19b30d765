"""Random cases are the same ones in every run, however slow the machine is; HETPLAN_EXPLORE=1 draws new ones."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "any machine",
    derandomize=not os.environ.get("HETPLAN_EXPLORE"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")

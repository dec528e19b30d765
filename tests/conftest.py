"""Random cases are the same ones in every run; HETPLAN_EXPLORE=1 draws new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("the same cases", derandomize=True)
if not os.environ.get("HETPLAN_EXPLORE"):
    settings.load_profile("the same cases")

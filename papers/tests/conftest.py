"""Random cases are the same ones in every run. What needs published data is skipped where they are absent."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("any machine", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

"""Random cases are the same ones in every run. What needs published data is skipped where they are absent."""

from __future__ import annotations

from build import state_profiles_as_planned
from hypothesis import HealthCheck, settings

state_profiles_as_planned()

settings.register_profile("any machine", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

"""Random fleets: default plans keep their word in every hour and after each failure, on fresh seeds."""

from __future__ import annotations

import pytest

import hetplan as hp
from benchmarks import kept_fleets
from hetplan.simulator.day import HowPlayed, play_day

FEW = (0, 2, 6, 9)
"""Fleets of little work: pipelines beside variants, machines that wait for a failure, pools, a mix."""


def test_a_fleet_is_the_same_each_time_and_fleets_differ() -> None:
    assert kept_fleets.files(3) == kept_fleets.files(3)
    assert kept_fleets.files(3) != kept_fleets.files(4)


@pytest.mark.slow
def test_default_fleets_keep_their_word() -> None:
    for seed in FEW:
        said = kept_fleets.judged(seed)
        assert said["verified"], said
        assert said["broken"] == (), said


@pytest.mark.slow
def test_by_formulas_alone_a_pipeline_is_late() -> None:
    """What would not be seen if nothing were played."""
    profile, slo = kept_fleets.files(0)
    plan = hp.solve(profile, slo, options={"levers": False, "size": "estimated"}).require()
    how = HowPlayed(seeds=2, seed=kept_fleets.UNSEEN, queries=2e5)
    assert any("app2" in one for one in play_day(plan, hp.load_inputs(profile, slo), how).broken)

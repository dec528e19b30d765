"""The sections of the compound reproduction make rows, and what judges them judges."""

from __future__ import annotations

import numpy as np
import pytest

from hetplan import load
from hetplan_papers.datasets.circinus_generator import APPS, draw
from hetplan_papers.reproduce.compound import _judged, sections, show
from hetplan_papers.reproduce.compound_search import four_tiers, run_search
from hetplan_papers.reproduce.compound_settings import goodput, plan_query


def test_every_figure_has_its_section() -> None:
    text = " ".join(title for title, _ in sections(quick=True).values())
    for figure in ("12", "13", "10", "11", "14", "15a", "15b", "15c", "15d", "16", "17"):
        assert figure in text


def test_a_fourth_tier_only_adds_to_what_there_was() -> None:
    query = draw("VT", 500)
    assert load(*four_tiers(query)).profile.tiers == ("device", "near-edge", "mec", "cloud")
    three, four = (plan_query("struct-ci", query, 60.0, tiers=tiers) for tiers in (3, 4))
    assert min(way.price for way in four.ways) <= min(way.price for way in three.ways) + 1e-9
    assert 0.0 <= goodput([three, four], 2) <= 1.0


def test_a_run_tells_when_it_found_what() -> None:
    run = run_search("struct-ci", draw("VT", 500), max_measurements=10)
    assert run.first is not None
    assert run.gpu_s_first is not None
    assert run.gpu_s >= run.gpu_s_first


@pytest.mark.slow
@pytest.mark.parametrize("app", APPS)
def test_a_run_is_judged_by_the_truth_of_what_was_measured(app: str) -> None:
    """Verdicts are nearly always right: many wrong ones are the truth of other configurations."""
    runs = [run_search("random", draw(app, seed), max_measurements=10, seed=seed) for seed in (500, 501, 502)]
    assert sum(run.wrong for run in runs) <= 3


@pytest.mark.parametrize(
    ("packer", "queries", "gap", "ms", "target"),
    [
        ("dual", 10_000, 0.001, 100.0, "kept"),
        ("dual", 10_000, 0.01, 100.0, "MISSED"),
        ("dual", 10_000, 0.001, 900.0, "MISSED"),
        ("dual-core", 10_000, 0.003, 100.0, "MISSED"),
        ("dual-core", 10_000, 0.001, 9000.0, "kept"),
        ("dual", 1000, 0.01, 40.0, "kept"),
        ("dual", 1000, 0.0, 60.0, "MISSED"),
        ("exact", 100, 0.0, 300.0, "kept"),
        ("exact", 100, 0.01, 300.0, "MISSED"),
    ],
)
def test_a_gap_or_a_time_beyond_the_target_is_reported(
    packer: str, queries: int, gap: float, ms: float, target: str
) -> None:
    made = {"kind": "totals", "packer": packer, "queries": queries, "gap": gap, "cpu_ms": ms}
    (row,) = _judged(iter([made]))
    assert row["target"] == target


def test_a_table_says_never_where_it_never_happened(capsys: pytest.CaptureFixture[str]) -> None:
    show("title", [{"near": np.inf, "first": None}])
    assert "never" in capsys.readouterr().out

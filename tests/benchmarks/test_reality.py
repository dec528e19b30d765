"""Cells of real models: which causes explain a difference, and which faults none of them may explain."""

import doctest
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import reality_cells
from benchmarks.reality_cells import Cell, RealCell, heading, write_page
from benchmarks.reality_replay import replayed, spent
from benchmarks.stalls import StallWatch
from hetplan.measure.load_send import Sent
from hetplan.serving.system import App, Group, Load, Pull, Route, Rule, Service, Stage, System, Way

HOP_MS, SLO_MS, QUERIES = 1.0, 100.0, 4000
Times = NDArray[np.float64]


def two_workers() -> System:
    load = Load("m", {"see": Service(np.array([[10.0]]))})
    route = Route("see", "only", (Way("w", "m"),), rule=Rule.CENTRAL, pull=Pull.IN_ORDER)
    app = App("see", (Stage("only"),), slo_ms=SLO_MS, hop_ms=HOP_MS)
    return System((app,), (Group("w", (load,), count=2),), (route,))


def sent_and_taken(seed: int = 1) -> tuple[Times, Times]:
    """60% of two workers: when queries are due, and the times that they take, a tenth of them three times as long."""
    random = np.random.default_rng(seed)
    return np.cumsum(random.exponential(10.0, QUERIES)), random.choice([10.0, 30.0], QUERIES, p=[0.9, 0.1])


def responses(due_ms: Times, took_ms: Times, *, wait_ms: float = 0.0, at_random: bool = False) -> Times:
    """What two workers make of it, by hand; the dispatcher may wait before each query, or not look who is free."""
    random, free_ms, found = np.random.default_rng(2), [0.0, 0.0], []
    for due, took in zip(due_ms, took_ms, strict=True):
        worker = int(random.integers(2)) if at_random else int(np.argmin(free_ms))
        free_ms[worker] = max(due + wait_ms, free_ms[worker]) + took
        found.append(free_ms[worker] - due + HOP_MS)
    return np.array(found)


def cell(measured_ms: Times, due_ms: Times, took_ms: Times) -> RealCell:
    p50_ms, p99_ms = (float(np.percentile(measured_ms, at, method="inverted_cdf")) for at in (50, 99))
    late = float((measured_ms > SLO_MS).mean())
    from_profile = replayed(two_workers(), "see", due_ms, np.full(QUERIES, 10.0))
    served = replayed(two_workers(), "see", due_ms, took_ms)
    return RealCell(
        "onnx", "fcfs", "60%", QUERIES, (from_profile.p99_ms, p99_ms), (from_profile.p99_ms, from_profile.p99_ms),
        (from_profile.p50_ms, p50_ms), (from_profile.violations, late), (0.9, 0.9), 0.1, StallWatch(),
        replays={"served": served, "alone": from_profile}, longer=(0.2, 2.0), ways_ms=(1.0, 1.0),
        deadline_ms=3.1 * p99_ms,
    )  # fmt: skip


def test_the_very_queries_with_the_times_that_they_took() -> None:
    due_ms, took_ms = sent_and_taken()
    by_hand = np.sort(responses(due_ms, took_ms)[100:])
    found = replayed(two_workers(), "see", due_ms, took_ms, warm_up=100)
    assert found.p99_ms == pytest.approx(by_hand[int(0.99 * len(by_hand)) - 1])
    assert found.violations == (by_hand > SLO_MS).mean()


def test_longer_services_are_a_cause() -> None:
    due_ms, took_ms = sent_and_taken()
    found = cell(responses(due_ms, took_ms), due_ms, took_ms)
    assert not found.holds()
    assert found.verdict() == "no: service times +20 %, p99 +200 %"


@pytest.mark.parametrize(
    ("runs_ms", "verdict"),
    [
        ((112.0, 104.0, 98.0, 101.0, 99.0), "yes, by repeats: 97.4 .. 108.2"),
        ((112.0, 113.0, 114.0, 111.0, 115.0), "no (111.5 .. 114.5)"),
        ((112.0, 160.0, 90.0, 70.0, 140.0), "too noisy: 79.7 .. 149.1"),
    ],
)
def test_a_cell_that_is_off_once_is_judged_by_five_runs(runs_ms: tuple[float, ...], verdict: str) -> None:
    first, *others = (
        Cell("pool", "fcfs", "60%", 1000, (100.0, ms), (95.0, 105.0), (9.0, 9.0), (0.0, 0.0), (0.9, 0.9), 0.1,
             StallWatch(), deadline_ms=300.0) for ms in runs_ms
    )  # fmt: skip
    assert not first.holds()
    assert first.repeated(others).verdict() == verdict
    late = [replace(one, violations=(0.0, 0.03)) for one in others]
    assert not first.repeated(late).verdict().startswith("yes")


@pytest.mark.parametrize("fault", [{"wait_ms": 8.0}, {"at_random": True}])
def test_a_dispatcher_that_waits_or_looks_away_is_explained_by_no_service_time(fault: dict[str, float]) -> None:
    due_ms, took_ms = sent_and_taken()
    found = cell(responses(due_ms, took_ms, **fault), due_ms, took_ms)  # type: ignore[arg-type]
    assert found.verdict() == "no"


def test_what_a_response_went_into_and_one_that_was_lost() -> None:
    said = {"ms": 20.0, "path": [{"router_ms": 6.0, "queue_ms": 0.5, "service_ms": 12.0}]}
    two, kinds, response_ms = np.array([0.5, 1.0]), np.zeros(2, np.int32), np.array([np.inf, 23.0])
    sent = Sent("see", two, kinds, two, response_ms, kinds.astype(np.int16), ["", ""], two, 1)
    found = spent(Sent(**{**vars(sent), "bodies": [b"", json.dumps(said).encode()]}))
    assert (found.answered.tolist(), found.due_ms.tolist()) == ([1], [1000.0])
    parts = {"waiting_ms": 6.5, "service_ms": 12.0, "hand_over_ms": 1.5, "beside_ms": 3.0}
    parts |= {"ways_ms": 4.5, "between_ms": 8.0}
    assert {name: one["p99"] for name, one in found.reported().items()} == parts
    with pytest.raises(ValueError, match="no query was answered"):
        spent(Sent(**{**vars(sent), "response_ms": np.full(2, np.inf), "bodies": [b"", b""]}))


def test_the_page_keeps_the_rows_of_other_sets(tmp_path: Path) -> None:
    due_ms, took_ms = sent_and_taken()
    found = cell(responses(due_ms, took_ms), due_ms, took_ms)
    pool = "| pool |" + " 1 |" * (heading("pool").splitlines()[0].count("|") - 3) + " yes |"
    page = tmp_path / "page.md"
    tables = f"{heading('pool')}\n{pool}\n\n{heading('onnx')}\n| onnx | gone |\n"
    page.write_text(f"Words.\n\n<!-- table -->\n\nold\n\n{tables}")
    write_page(page, [found], "Per hop.")
    text = page.read_text()
    assert text.startswith("Words.\n\n<!-- table -->\n\n1 of 2 cells hold (50%), 0 of them by their repeats; 0 too")
    assert "above that: onnx, fcfs, 60%." in text
    assert pool in text
    assert found.row() in text
    assert "gone" not in text
    assert found.row().count("|") == heading("onnx").splitlines()[0].count("|")


def test_examples() -> None:
    assert doctest.testmod(reality_cells).failed == 0

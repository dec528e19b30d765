"""What `hetplan check` finds in inputs that load."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from hetplan.profiles import load_inputs
from hetplan.profiles.lint import lint

PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "sources": {"new": {"kind": "measured", "date": "2026-11"}, "doc": {"kind": "published"}},
    "hardware": {
        "big": {"kind": "gpu", "provides": {"gpu": 1, "gpu_mem_gib": 16}},
        "small": {"kind": "cpu", "provides": {"cpu_cores": 8}},
    },
    "offers": {
        "big": {"hardware": "big", "price_per_hour": "1"},
        "small": {"hardware": "small", "price_per_hour": "0.3"},
    },
    "tasks": {"rank": {}},
    "variants": {
        "dlrm": {
            "task": "rank",
            "runs": [
                {"hardware": "big", "latency": "fast", "needs": {"gpu": 1}},
                {"hardware": "small", "latency": "slow", "needs": {"cpu_cores": 8}},
            ],
        }
    },
    "tables": {
        "fast": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [5, 30], "source": "new"},
        "slow": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [20, 160], "source": "new"},
    },
}
SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0",
    "limits": {"cost_per_hour": 5},
    "apps": {
        "a": {
            "model": "dlrm",
            "latency": {"p99_ms": 200},
            "rate_qps": "max",
            "mix": {"axes": ["batch"], "bins": [[1], [8]], "share": [0.75, 0.25]},
        }
    },
}


def found(change: Any = None, today: date | None = None) -> list[tuple[str, str, str]]:
    import copy

    profile, slo = copy.deepcopy(PROFILE), copy.deepcopy(SLO)
    if change is not None:
        change(profile, slo)
    return list(lint(load_inputs(profile, slo), today=today))


def test_a_sound_pair_has_no_findings() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("change", "code", "at", "says"),
    [
        (lambda p, s: p["sources"]["doc"].update(date="2025-01-31"), "W-stale", "sources.doc.date", "2026-11-01"),
        (lambda p, s: p["sources"]["doc"].update(date="2026-13-40"), "W-date", "sources.doc.date", "not a date"),
        (lambda p, s: p["offers"].pop("small"), "W-no-price", "machines.small", "cannot be used under a budget"),
        (lambda p, s: p["offers"]["big"].update(price_per_hour=0), "W-free", "machines.big.price_per_hour", "0"),
        (lambda p, s: p["hardware"].update(idle={"kind": "gpu"}), "W-unused", "machines.idle", "no model"),
        (
            lambda p, s: p["variants"]["dlrm"]["runs"].pop(),
            "W-unused",
            "machines.small",
            "no model has a run on small",
        ),
        (
            lambda p, s: p["variants"]["dlrm"]["runs"][0]["needs"].update(gpu=2),
            "W-too-large",
            "models.dlrm.runs.big.needs.gpu",
            "provides 1",
        ),
        (
            lambda p, s: p["variants"]["dlrm"]["runs"][1]["needs"].update(mem_gib=2),
            "W-no-room",
            "models.dlrm.runs.small.needs.mem_gib",
            "mem_gib",
        ),
        (
            lambda p, s: p["tables"]["slow"].update(mean=[20, 19]),
            "W-falling",
            "models.dlrm.runs.small.mean_ms",
            "batch 1 and 8",
        ),
        (lambda p, s: p["tables"]["slow"].update(std=[1, 40]), "W-noisy", "models.dlrm.runs.small.std_ms", "p99"),
        (
            lambda p, s: s["apps"]["a"]["mix"].update(bins=[[1], [16]]),
            "W-uncovered",
            "apps.a.mix.bins[1]",
            "batch 16 (25.0% of the queries)",
        ),
        (
            lambda p, s: (p["tables"]["slow"].update(axes={"batch": [1, 4]}, outside="linear"),),
            "W-coverage",
            "models.dlrm.runs.small",
            "are extrapolated",
        ),
        (
            lambda p, s: p["tables"]["slow"].update(axes={"co_load": [1, 4]}),
            "W-coverage",
            "apps.a.mix.axes",
            "co_load",
        ),
        (
            lambda p, s: p["tables"]["slow"].update(mean=[20, None]),
            "W-coverage",
            "models.dlrm.runs.small",
            "not measured",
        ),
        (lambda p, s: s["apps"]["a"]["latency"].update(p99_ms=4), "W-too-slow", "apps.a.latency", "5 ms"),
        (lambda p, s: s["apps"]["a"]["latency"].update(p99_ms=3e6), "W-unit", "apps.a.latency", "seconds"),
        (
            lambda p, s: p["offers"]["small"].update(price_per_hour=1) or clear_needs(p),
            "W-dominated",
            "models.dlrm.runs.small",
            "dlrm on big",
        ),
    ],
)
def test_findings(change: Any, code: str, at: str, says: str) -> None:
    said = {(kind, place): text for kind, place, text in found(change)}
    assert (code, at) in said
    assert says in said[code, at]


def clear_needs(profile: dict[str, Any]) -> None:
    for run in profile["variants"]["dlrm"]["runs"]:
        run["needs"] = {}


def test_one_cause_one_finding() -> None:
    assert len(found(lambda p, s: p["tables"]["slow"].update(mean=[20, 19]))) == 1


def test_sources_are_judged_against_today_where_it_is_given() -> None:
    assert [code for code, _, _ in found(today=date(2028, 1, 1))] == ["W-stale"]
    assert found(today=date(2026, 12, 1)) == []


def test_better_quality_dominates_among_variants_of_a_task_whatever_their_order() -> None:
    def change(profile: dict[str, Any], slo: dict[str, Any]) -> None:
        profile["metrics"] = {"auc": {}}
        profile["tasks"]["rank"]["metric"] = "auc"
        for name, quality, table in (("worse", 0.7, "slow"), ("best", 0.9, "fast"), ("other", 0.95, "slow")):
            run = {"hardware": "big", "latency": table}
            profile["variants"][name] = {"task": "rank", "quality": {"value": quality}, "runs": [run]}

    said = [(code, at) for code, at, _ in found(change) if code == "W-dominated"]
    assert said == [("W-dominated", "models.worse.runs.big")]


def test_prices_per_share_are_no_prices_of_machines() -> None:
    def change(profile: dict[str, Any], slo: dict[str, Any]) -> None:
        clear_needs(profile)
        profile["offers"]["big-gib"] = {"hardware": "big", "price_per_hour": "0.01", "per": "gpu_mem_gib"}

    assert found(change) == []


def warned(change: Any) -> dict[str, str]:
    import copy

    profile, slo = copy.deepcopy(PROFILE), copy.deepcopy(SLO)
    change(profile, slo)
    return {at: f"{code} {text}" for code, at, text in load_inputs(profile, slo).warnings}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"p95": [21, 170], "p99": [20.5, 175]}, "p99 20.5 is below p95 21"),
        ({"p99": [12, 175]}, "p99 12 is below mean 20"),
    ],
)
def test_a_percentile_below_a_smaller_one_is_warned_of_in_every_plan(columns: Any, said: str) -> None:
    at = "models.dlrm.runs.small.p99_ms"
    assert warned(lambda p, s: p["tables"]["slow"].update(columns)) == {at: f"W-order {said}"}


@pytest.mark.parametrize(
    ("price", "currency"),
    # 0.6 an hour is 432 a month; 31 is a hundred times the other; and nobody rents a machine for 200 an hour.
    [("432", "USD"), ("31", "USD"), ("200", "EUR"), ("300000", "JPY")],
)
def test_a_price_per_month_is_reported_at_ordinary_prices(price: str, currency: str) -> None:
    def change(p: Any, s: Any) -> None:
        p["offers"]["big"]["price_per_hour"] = price
        for offer in p["offers"].values():
            offer["currency"] = currency
        s["limits"].update(cost_per_hour=2160, currency=currency)

    (text,) = [text for at, text in warned(change).items() if at == "machines.big.price_per_hour"]
    assert "per month" in text


@pytest.mark.parametrize(("price", "currency"), [("98.32", "USD"), ("29", "USD"), ("4500", "JPY")])
def test_ordinary_prices_are_not_suspected(price: str, currency: str) -> None:
    def change(p: Any, s: Any) -> None:
        p["offers"]["big"]["price_per_hour"] = price
        p["offers"]["small"]["price_per_hour"] = "1" if float(price) > 50 else "0.3"
        if currency == "JPY":
            p["offers"]["small"]["price_per_hour"] = "90"
        for offer in p["offers"].values():
            offer["currency"] = currency
        s["limits"].update(currency=currency)

    assert not warned(change)


def test_a_price_per_core_is_no_outlier_beside_prices_of_machines() -> None:
    def change(p: Any, s: Any) -> None:
        p["offers"]["small"].update(price_per_hour="0.005", per="cpu_cores")

    assert not warned(change)

"""Which run a load means, and the table that it is timed by."""

from __future__ import annotations

from typing import Any

import pytest

from hetplan.errors import InputError
from hetplan.profiles.profile import Profile
from hetplan.profiles.workers import Load
from hetplan.serving.loads import law_of_load, run_of, table_of
from hetplan.serving.runs import at_of, runs_on


def profile(*runs: dict[str, Any], tables: dict[str, Any] | None = None, **variant: Any) -> Profile:
    made = {
        f"t{b}": {"quantity": "latency_ms", "axes": {"batch": [b]}, "mean": [10 * b], "std": [1]} for b in (1, 2, 8)
    }
    return Profile.model_validate(
        {
            "hardware": {"gpu": {"kind": "gpu"}},
            "variants": {"m": {"task": "x", "runs": list(runs), **variant}},
            "tables": {**made, **(tables or {})},
        }
    )


def at(batch: float, table: str = "", **more: Any) -> dict[str, Any]:
    return {"hardware": "gpu", "latency": table or f"t{batch:g}", "at": {"batch": batch, **more.pop("at", {})}, **more}


def load(**more: Any) -> Load:
    return Load(id="w1.a", variant="m", **more)


def test_a_load_names_its_run() -> None:
    both = profile(at(8), at(1))
    for run in runs_on(both, "m", "gpu"):
        assert run_of(both, load(at=at_of(run)), "gpu") is run


def test_one_run_needs_no_name_and_of_two_the_load_says_which() -> None:
    assert run_of(profile(at(8)), load(), "gpu").at == {"batch": 8}
    with pytest.raises(InputError, match=r'fits 2 runs .* at \{"batch": 1\} and at \{"batch": 8\}'):
        run_of(profile(at(8), at(1)), load(), "gpu")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (load(at={"batch": 4}), r'no run of m on gpu at \{"batch": 4\}.*at \{"batch": 8\}'),
        (load(at={}), "no run of m on gpu"),
        (Load(id="a", variant="z"), "no such variant"),
    ],
)
def test_a_run_that_is_not_there(asked: Load, why: str) -> None:
    with pytest.raises(InputError, match=why):
        run_of(profile(at(8)), asked, "gpu")


def test_twelve_digits_of_a_plan_are_enough() -> None:
    third = {"quantity": "latency_ms", "axes": {"size": [1 / 3]}, "mean": [5]}
    known = profile({"hardware": "gpu", "latency": "s", "at": {"size": 1 / 3}}, tables={"s": third})
    assert run_of(known, load(at={"size": 0.333333333333}), "gpu") is known.variants["m"].runs[0]


def test_runs_that_differ_by_batch_are_one_table() -> None:
    known = profile(at(8), at(1), at(2))
    tables = [table_of(known, "m", run) for run in known.variants["m"].runs]
    assert tables[0] == tables[1] == tables[2]
    assert tables[0].axes["batch"] == (1, 2, 8)
    assert tables[0].read([{"batch": 5}]).values.tolist() == [50.0]
    assert tables[0].read([{"batch": 5}], "std").values.tolist() == [1.0]


def test_along_the_right_axis_with_the_statistics_that_all_hold() -> None:
    def grid(batch: int, **more: Any) -> dict[str, Any]:
        cells = [[100 * a + 10 * b + batch for b in (1, 2)] for a in (1, 2)]
        nested = [[[cell] for cell in row] for row in cells]
        axes = {"aa": [1, 2], "ab": [1, 2], "batch": [batch]}
        return {"quantity": "latency_ms", "axes": axes, "mean": nested, **more}

    known = profile(at(1, "g1"), at(4, "g4"), tables={"g1": grid(1, p99=grid(1)["mean"]), "g4": grid(4)})
    joined = table_of(known, "m", known.variants["m"].runs[1])
    assert joined.statistics == ("mean",)
    assert joined.read([{"aa": 2, "ab": 1, "batch": 2}]).values.tolist() == [212.0]


@pytest.mark.parametrize(
    "other",
    [
        at(4, "long"),
        at(8, "other", at={"size": 2}),
        {"hardware": "gpu", "rate": "rate", "at": {"batch": 8}},
        at(8, "clamped"),
    ],
)
def test_what_is_measured_in_another_way_stays_apart(other: dict[str, Any]) -> None:
    tables = {
        "long": {"quantity": "latency_ms", "axes": {"batch": [4, 8]}, "mean": [7, 9]},
        "other": {"quantity": "latency_ms", "axes": {"batch": [8], "size": [2]}, "mean": [[9]]},
        "rate": {"quantity": "requests_per_s", "axes": {"batch": [8]}, "mean": [9]},
        "clamped": {"quantity": "latency_ms", "axes": {"batch": [8]}, "mean": [9], "outside": "clamp"},
    }
    known = profile(at(1), other, tables=tables)
    for run in known.variants["m"].runs:
        assert table_of(known, "m", run) is known.tables[run.latency or run.rate or ""]


def test_a_load_at_batch_8_knows_what_smaller_batches_take() -> None:
    law = law_of_load(profile(at(8), at(1)), load(at={"batch": 8}), "gpu")
    assert [law.ms({}, size) for size in (1, 2, 8)] == [10.0, 20.0, 80.0]

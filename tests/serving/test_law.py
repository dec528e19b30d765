"""The service law: one order of precedence, one interpolation, one rule for a missing statistic."""

from __future__ import annotations

import subprocess
import sys
from typing import Literal

import pytest

from hetplan.errors import InputError
from hetplan.profiles.profile import Profile
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Load
from hetplan.serving.law import Law, OffTable
from hetplan.serving.loads import law_of_load
from hetplan.serving.table_points import ORDER, answering_statistic, settings_of, statistic_of
from hetplan.serving.times import law_of_table


def test_the_first_that_names_an_axis_says_where_on_it() -> None:
    axes = ("a", "b", "c", "d")
    table = {"quantity": "latency_ms", "axes": {axis: [1, 9] for axis in axes}}

    def rows(depth: int, worth: float) -> object:
        # Each axis counts with another power of ten, so that the value names where on each the law read.
        if depth == len(axes):
            return worth
        return [rows(depth + 1, worth + step * 10**depth) for step in (1, 9)]

    known = Profile.model_validate(
        {
            "tables": {"t": {**table, "mean": rows(0, 0.0)}},
            "variants": {
                "m": {
                    "task": "x", "knobs": {"a": 2, "b": 2, "c": 2, "d": 2},
                    "runs": [{"hardware": "gpu", "latency": "t", "at": {"a": 3, "b": 3, "c": 3}}],
                }
            },
        }
    )  # fmt: skip
    law = law_of_load(known, Load(id="l", variant="m", knobs={"a": 4, "b": 4}), "gpu")
    assert law.ms({"a": 5}) == pytest.approx(5 + 4 * 10 + 3 * 100 + 2 * 1000)


def test_words_and_flags_among_the_knobs_are_no_places() -> None:
    assert settings_of(knobs={"mode": "fast"}, at={}, variant_knobs={"size": 3}) == {"size": 3.0}


def test_a_batch_below_the_smallest_takes_as_long_as_that_and_one_beyond_is_refused() -> None:
    law = law_of_table(Table(quantity="latency_ms", axes={"batch": (4, 8)}, mean=[40, 80]))
    assert law.ms({}, 1) == law.ms({}, 4) == 40.0
    with pytest.raises(OffTable, match="outside the table"):
        law.ms({}, 9)


@pytest.mark.parametrize("outside", ["refuse", "linear"])
def test_extended_along_a_line_and_never_to_nothing(outside: Literal["refuse", "linear"]) -> None:
    table = Table(
        quantity="latency_ms", axes={"batch": (1, 4)}, mean=[40, 80], p95=[80, 20], std=[3, 1], outside=outside
    )
    law = law_of_table(table, extend=True)
    assert law.ms({}, 7) == pytest.approx(120.0)
    assert law.ms({}, 7, "p95") == 20.0
    assert law.ms({}, 7, "std") == 0.0
    single = law_of_table(Table(quantity="latency_ms", axes={"batch": (4,)}, mean=[40]), extend=True)
    assert single.ms({}, 9) == 40.0


def test_a_rate_is_the_time_for_which_a_request_occupies_its_server() -> None:
    law = Law({"quantity": "requests_per_s", "axes": {"batch": [1, 2]}, "mean": [50, 0]})
    assert law.ms({}, 1) == 20.0
    assert law.ms({}, 2) == float("inf")


@pytest.mark.parametrize("wanted", ORDER)
def test_the_next_higher_statistic_answers_else_the_next_lower(wanted: str) -> None:
    for number, held in enumerate(ORDER):
        assert answering_statistic([held], wanted) == held
        for other in ORDER[number + 1 :]:
            found = answering_statistic([other, held, "std"], wanted)
            place = ORDER.index(wanted)
            assert found == (held if place <= number else other)


def test_another_statistic_is_said_and_one_named_by_option_is_refused() -> None:
    table = Table(quantity="latency_ms", p50=4.0, p99=9.0).named("t", file="p.json")
    assert statistic_of(table, "p99") == ("p99", ())
    found, (notice,) = statistic_of(table, "p95", at="tables.t")
    assert (found, notice.code, notice.at) == ("p99", "W-statistic", "tables.t")
    with pytest.raises(InputError, match=r"percentile asks for p95.*p50, p99"):
        statistic_of(table, "p95", named="percentile")


def test_a_workers_process_reads_it_without_numpy_and_pydantic() -> None:
    code = "import sys, hetplan.serving.law; print(sorted({'numpy', 'pydantic'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"

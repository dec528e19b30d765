"""Observed sizes counted into bins, and recorded arrivals read, scaled and compressed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.errors import InputError
from hetplan.profiles import load_inputs, load_slo
from hetplan.profiles.mix import AboveLargestBin, count_into_bins
from hetplan.profiles.slo import Mix
from hetplan.profiles.slo_sections import TraceRef
from hetplan.profiles.traces import parse_arrivals, resize


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=50),
    bins=st.lists(st.integers(1, 39), max_size=6, unique=True),
)
def test_one_axis_rounds_up(sizes: list[int], bins: list[int]) -> None:
    ordered = sorted({*bins, 40})
    mix = count_into_bins(
        Mix(axes=("batch",), bins=tuple((size,) for size in ordered), observed=tuple((size,) for size in sizes))
    )
    expected = np.bincount(np.searchsorted(ordered, sizes), minlength=len(ordered)) / len(sizes)
    assert mix.share == pytest.approx(expected.tolist())
    assert mix.observed is None


def test_two_axes_round_up_in_each_and_bins_need_be_no_grid() -> None:
    bins = ((128, 64), (2048, 64), (2048, 512))
    mix = Mix(axes=("input_tokens", "output_tokens"), bins=bins, observed=((100, 64), (129, 1), (5, 65), (2048, 512)))
    assert count_into_bins(mix).share == (0.25, 0.25, 0.5)


def test_a_size_above_every_bin_is_reported() -> None:
    mix = Mix(axes=("batch",), bins=((1,), (8,)), observed=((1,), (9,)))
    with pytest.raises(AboveLargestBin) as caught:
        count_into_bins(mix)
    assert caught.value.number == 1


def test_the_loader_counts_and_keeps_the_digest_of_the_file(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    slo["apps"]["rank"]["mix"] = {"axes": ["batch"], "bins": [[1], [8]], "observed": [[1], [5], [7], [2]]}
    inputs = load_inputs(profile, slo)
    mix = inputs.slo.apps["rank"].mix
    assert mix is not None
    assert mix.share == (0.25, 0.75)
    assert load_slo(slo) == inputs.slo
    assert load_inputs(profile, load_slo(slo)).digests["profile"] == inputs.digests["profile"]


def test_shares_near_1_are_brought_to_1_and_stay() -> None:
    mix = Mix(axes=("batch",), bins=((1,), (8,)), share=(0.3333333, 0.6666665))
    assert mix.share is not None
    assert sum(mix.share) == pytest.approx(1, abs=1e-15)
    assert Mix.model_validate(mix.model_dump()) == mix
    exact = (0.1, 0.2, 0.7)
    assert Mix(axes=("batch",), bins=((1,), (2,), (3,)), share=exact).share == exact


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("0.5\n1\n1\n2.25\n", [0, 0.5, 0.5, 1.75]),
        ("# made up\n\n3\n4\n", [0, 1]),
        ("arrival_s\n1\n2.5\n", [0, 1.5]),
        ("Arrival_ms, tokens\r\n1000, 5\r\n1250, 6\r\n", [0, 0.25]),
        ("tokens,arrival_s\n5,1\n6,2\n", [0, 1]),
        ('name,arrival_s\n"a,b",1\nc,4\n', [0, 3]),
        ("-5\n5\n", [0, 10]),
        ("\ufeff1e1\n2e1\n", [0, 10]),
        ("1,ignored\n2,too\n", [0, 1]),
    ],
)
def test_traces_that_can_be_read(text: str, times: list[float]) -> None:
    assert parse_arrivals(text.encode(), name="t.csv").tolist() == pytest.approx(times)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "at least two arrivals"),
        (b"# only this\n", "at least two arrivals"),
        (b"5\n", "at least two"),
        (b"arrival_s\n", "at least two"),
        (b"arrival_s\n5\n", "at least two"),
        (b"7\n7\n7\n", "3 arrivals at one instant.*no rate"),
        (b"t_s,rate_qps\n0,5\n10,6\n", "arrival_s or arrival_ms.*rate_qps.series"),
        (b"when\n1\n2\n", "arrival_s or arrival_ms.*Name the column"),
        (b"1\n3\n2\n", r"line 3 \(found 2\): arrival times do not fall"),
        (b"1\nnan\n", r"line 2 \(found nan\)"),
        (b"1\ninf\n", "line 2"),
        (b"arrival_s\n1\ntwo\n", "line 3"),
        (b"a,arrival_s\n1,1\n2\n", "line 3"),
        (b"1\n\xff\n", "UTF-8"),
    ],
)
def test_traces_that_cannot(data: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_arrivals(data, name="t.csv")


def test_a_trace_is_hashed_scaled_and_compressed(folder: Path) -> None:
    inputs = load_inputs(folder / "profile.json", folder / "slo.json")
    times = inputs.traces["chat"]
    assert 0 < len(times) < 10
    assert times.max() <= 7.5 / 288
    assert inputs.trace_digests["chat"].startswith("sha256:77aa")
    text = (folder / "azure.csv").read_text()
    (folder / "azure.csv").write_text(text + "9,1,1\n")
    with pytest.raises(InputError, match=r"trace\.sha256 .*: the SHA-256 of azure\.csv, which is"):
        load_inputs(folder / "profile.json", folder / "slo.json")


def test_thinning_keeps_a_poisson_stream_poisson_and_the_rate_scaled() -> None:
    gaps = np.random.default_rng(7).exponential(1.0, 40_000)
    arrivals = np.cumsum(gaps)
    for scale in (0.3, 1.0, 2.5):
        made = resize(arrivals, TraceRef(file="x", scale=scale))
        assert len(made) == pytest.approx(40_000 * scale, rel=0.02)
        assert (np.diff(made) >= 0).all()
        assert made[0] >= arrivals[0]
        assert made[-1] <= arrivals[-1]
        np.testing.assert_array_equal(made, resize(arrivals, TraceRef(file="x", scale=scale)))
    thinned = np.diff(resize(arrivals, TraceRef(file="x", scale=0.3)))
    assert thinned.std() / thinned.mean() == pytest.approx(1, abs=0.05)
    whole = resize(arrivals, TraceRef(file="x", scale=2.0))
    assert len(whole) == 80_000
    assert np.isin(arrivals, whole).all()


def test_compressing_divides_times() -> None:
    made = resize(np.array([0.0, 1.0, 5.0]), TraceRef(file="x", compress=4.0))
    assert made.tolist() == [0, 0.25, 1.25]

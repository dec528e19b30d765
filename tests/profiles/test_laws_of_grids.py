"""Laws of nine numbers fitted to modelled grids of many engines: as near as laws that were fitted apart."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

import hetplan
from hetplan.profiles.engine_law import Iteration, fit_numbers
from hetplan.profiles.engines import IterationLaw
from tests.cases.grids import DATA, DENSE, ROOT, Identity, grids, least, read

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the grids are not in {DATA}")

QUICK = 12


@cache
def published() -> dict[Identity, dict[str, str]]:
    return dict(read("laws_grid"))


def ms_of(law: dict[str, object], one: Iteration) -> float:
    n, names = one.tokens, IterationLaw.model_fields
    a = {name: float(str(law.get(name) or 0)) for name in names if name.endswith(("_ms", "_rate", "_from"))}
    ms = a["base_ms"] + a["chunk_ms"] * (n > one.sequences) + a["experts_ms"] * (1 - np.exp(-a["experts_rate"] * n))
    ms += a["token_ms"] * max(0.0, n - a["tokens_from"]) + a["sequence_ms"] * one.sequences
    return float(ms + a["kv_token_ms"] * one.kv_tokens + a["pair_ms"] * one.pairs)


def fitted(key: Identity) -> tuple[dict[str, object], float, float]:
    """The law, its mean error, and how far its times are from those of the published law on the mean."""
    found = fit_numbers(grids()[key], least=least()[key], experts=key[0] not in DENSE)
    law, other = found.document, published()[key]
    apart = [ms_of(law, one) / ms_of(dict(other), one) - 1.0 for one in grids()[key]]
    for one, off in zip(grids()[key], found.errors, strict=True):
        assert ms_of(law, one) / one.ms - 1.0 == pytest.approx(off, abs=1e-3)
    return law, float(np.abs(found.errors).mean()), float(np.abs(apart).mean())


NAMED: dict[Identity, tuple[float, dict[str, float]]] = {
    ("llama-3.1-8b", "h100", "1", "tp", "bf16", "vllm", "0.24.0"): (
        0.027, {"base_ms": 6.4, "kv_token_ms": 4.4e-5, "token_ms": 0.0210, "tokens_from": 384},
    ),
    ("llama-3.1-70b", "h200", "2", "tp", "fp8", "vllm", "0.24.0"): (
        0.02, {"base_ms": 14.0, "kv_token_ms": 3.8e-5, "token_ms": 0.066},
    ),
    ("qwen3-30b-a3b", "h200", "1", "tp", "bf16", "vllm", "0.24.0"): (
        0.028, {"base_ms": 3.4, "experts_ms": 11.0, "experts_rate": 0.065},
    ),
    ("deepseek-v3", "h200", "8", "tp", "fp8", "vllm", "0.24.0"): (
        0.016, {"base_ms": 14.5, "experts_ms": 20.2, "experts_rate": 0.022},
    ),
}  # fmt: skip


@pytest.mark.parametrize("key", NAMED, ids=lambda key: key[0])
def test_the_numbers_of_known_laws_are_found_again(key: Identity) -> None:
    error, numbers = NAMED[key]
    law, off, apart = fitted(key)
    assert off <= error + 0.001
    assert apart <= 0.02
    assert {name: law[name] for name in numbers} == pytest.approx(numbers, rel=0.06)


@pytest.mark.parametrize(
    "part", [slice(0, QUICK), pytest.param(slice(QUICK, None), marks=pytest.mark.longest)], ids=str
)
def test_every_grid_is_met_as_nearly_as_by_laws_that_were_fitted_apart(part: slice) -> None:
    keys = [key for key in published() if key in grids()]
    keys = [keys[place] for place in np.random.default_rng(0).permutation(len(keys))]
    errors = {key: fitted(key)[1] for key in keys[part]}
    assert np.mean(list(errors.values())) < 0.036
    further = {key: error for key, error in errors.items() if error > float(published()[key]["error_mean"]) + 0.015}
    assert not further


def test_parts_of_an_iteration_add_up_in_the_grid_too() -> None:
    """Prompts beside decodes are in no fit. A roofline of the same numbers, its parts at once, is far off them."""
    key = next(iter(NAMED))
    law = {name: float(value) for name, value in published()[key].items() if name.endswith(("_ms", "_from"))}
    off, overlapped = [], []
    for _, row in (one for one in read("mixed") if one[0] == key):
        chunk, decodes, context = (float(row[name]) for name in ("chunk", "decodes", "context"))
        ms, pairs = float(row["ms"]), chunk * context / 2.0
        one = Iteration(chunk + decodes, decodes * context, decodes, pairs, ms)
        off.append(abs(ms_of(dict(law), one) / ms - 1.0))
        reads = law["base_ms"] + law["sequence_ms"] * decodes + law["kv_token_ms"] * one.kv_tokens
        computes = law["chunk_ms"] + law["token_ms"] * one.tokens + law["pair_ms"] * pairs
        overlapped.append(abs(max(reads, computes) / ms - 1.0))
    assert len(off) == 6
    assert np.mean(off) < 0.03
    assert np.mean(overlapped) > 0.09


def test_no_fleet_is_as_cheap_as_one_whose_h100s_did_two_things_at_once() -> None:
    """100 requests/s of the shipped example, its H100 by the law of the grid: no fleet for 21.45 $/h has the time.

    An iteration takes a + h max(0, n - n1) + f s + d v + e q, so it takes w h n + f s + d v + e q and more, where
    w = a / (h n1): the base pays for the free tokens. Of pieces each is a bound. So each request takes each machine
    at least so long, and a second of a machine costs what it costs.
    """
    law = {name: float(value) for name, value in published()[next(iter(NAMED))].items()
           if name.endswith(("_ms", "_from"))}  # fmt: skip
    profile, slo = (json.loads((ROOT / "examples/llm" / f"{name}.json").read_text()) for name in ("profile", "slo"))
    mix, machines = slo["apps"]["assistant"]["mix"], profile["machines"]
    means = dict.fromkeys(("tokens", "sequences", "kv", "pairs"), 0.0)
    for (inp, out), share in zip(mix["bins"], mix["share"], strict=True):
        means["tokens"] += share * (inp + out - 1)
        means["sequences"] += share * (out - 1)
        means["kv"] += share * (out - 1) * (inp + out / 2)
        means["pairs"] += share * inp * inp / 2

    def least_ms(piece: dict[str, float], free: float = 0.0) -> float:
        part = 1.0 if not free else min(1.0, piece["base_ms"] / (piece["token_ms"] * free))
        return (
            part * piece.get("token_ms", 0.0) * means["tokens"] + piece.get("sequence_ms", 0.0) * means["sequences"]
            + piece.get("kv_token_ms", 0.0) * means["kv"] + piece.get("pair_ms", 0.0) * means["pairs"]
        )  # fmt: skip

    each = {
        name: float(machines[name]["price_per_hour"]) / 1000.0 * max(map(least_ms, run["law"]))
        for name, run in profile["models"]["llama-8b"]["runs"].items()
    }
    each["h100"] = machines["h100"]["price_per_hour"] / 1000.0 * least_ms(law, law["tokens_from"])
    assert 100.0 * min(each.values()) > 21.45
    profile["models"]["llama-8b"]["runs"]["h100"]["law"] = "catalogue/vllm/llama-3.1-8b/bf16/h100x1"
    slo["apps"]["assistant"]["rate_qps"], slo["robust"] = 100.0, {"law": False}
    plan = hetplan.solve(profile, slo).require()
    assert plan.extensions["llm"]["bounds_per_hour"]["any schedule"] >= 100.0 * min(each.values())


@pytest.mark.parametrize("key", NAMED, ids=lambda key: key[0])
def test_whether_a_model_has_experts_shows_where_nobody_says_it(key: Identity) -> None:
    assert (fit_numbers(grids()[key]).numbers["experts_ms"] > 0.0) == (key[0] not in DENSE)

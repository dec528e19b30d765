"""Laws of nine numbers fitted to modelled grids of many engines: as near as laws that were fitted apart."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from hetplan.profiles.engine_law import Iteration, fit_numbers
from hetplan.profiles.engines import IterationLaw
from tests.cases.grids import DATA, DENSE, Identity, grids, least, read

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


@pytest.mark.parametrize("key", NAMED, ids=lambda key: key[0])
def test_whether_a_model_has_experts_shows_where_nobody_says_it(key: Identity) -> None:
    assert (fit_numbers(grids()[key]).numbers["experts_ms"] > 0.0) == (key[0] not in DENSE)

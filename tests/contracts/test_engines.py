"""Every engine gives the objective that the default engine gives, or says by name that it cannot take the program."""

from __future__ import annotations

import pytest
from build import random_files
from face import Refused, engines, solve

CASES = [
    pytest.param(engine, problem, seed, marks=() if seed == 0 else pytest.mark.slow)
    for engine in (one.name for one in engines() if one.form == "milp")
    for problem in ("pool", "variants", "pipeline", "llm")
    for seed in (0, 1, 2)
]


@pytest.mark.quick_sample(16)
@pytest.mark.parametrize(("engine", "problem", "seed"), CASES)
def test_an_engine_agrees_with_the_default_or_refuses_by_name(engine: str, problem: str, seed: int) -> None:
    wish = random_files(problem, seed)
    try:
        other = solve(wish, "fluid", solver=engine)
    except Refused as refusal:
        assert engine in str(refusal)  # noqa: PT017
        return
    first = solve(wish, "fluid")
    # Engines stop within a relative gap of 1e-4; a grid of integers (cp-sat-scaled) and a local search may be worse.
    if engine == "cp-sat-scaled":
        worse = (other.value - first.value) * (1 if first.claims[0].sense == "min" else -1)
        assert worse >= -1e-4 * abs(first.value)
    else:
        assert other.value == pytest.approx(first.value, rel=1e-4)

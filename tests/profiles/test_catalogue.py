"""The laws that ship with the package: each is a law that a profile takes, and what it was fitted to says the same."""

from __future__ import annotations

import numpy as np
import pytest

from hetplan.profiles.catalogue import known_laws
from hetplan.profiles.load_one import load_profile
from hetplan.serving.tokens import law_of_engine
from tests.cases.grids import DATA, IDENTITY, grids


def test_every_law_is_one_that_a_profile_takes() -> None:
    known = list(known_laws())
    engines = {
        f"e{k}": {"law": one.law.model_dump(mode="json"), "kv_tokens": 50_000, "most_tokens": 8192}
        for k, one in enumerate(known)
    }
    profile = load_profile({"format": "hetplan/profile/1.2", "engines": engines})
    assert len(profile.engines) == len(known) == 576
    assert len({one.identity["model"] for one in known}) == 10
    assert len({(*one.identity.values(), one.law.basis) for one in known}) == len(known), "each is there once"
    assert all(one.law.source and one.law.error_mean and one.date for one in known)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the grids are not in {DATA}")
def test_a_law_is_as_near_to_its_grid_as_it_says() -> None:
    laws = {tuple(one.identity[name] for name in IDENTITY): one.law for one in known_laws(("grid",))}
    assert laws.keys() == grids().keys()
    for key, law in laws.items():
        document = {"law": law.model_dump(mode="json"), "kv_tokens": 1, "most_tokens": 8192}
        read = load_profile({"format": "hetplan/profile/1.2", "engines": {"e": document}}).engines["e"]
        own = law_of_engine(read)
        off = [
            abs(own.iteration_ms(one.tokens, one.kv_tokens, one.sequences, one.pairs) / one.ms - 1.0)
            for one in grids()[key]
        ]
        assert law.fit_error == (pytest.approx(np.mean(off), abs=1e-3), pytest.approx(max(off), abs=2e-3))

"""BoTorch's process beside the light one, with the same kernel and fixed width and noise: the reference for it."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from hetplan.planner.answer import Limits
from hetplan.planner.forms.form import certify
from hetplan.solvers.botorch_process import BotorchProcess, CmboBotorch, StructCiBotorch
from hetplan.solvers.gaussian_process import LightProcess
from hetplan.solvers.search import Cmbo, StructCi
from hetplan.testing.black_box_checks import small_box

MISSING = [name for name in ("torch", "botorch", "gpytorch") if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,  # torch alone takes seconds to load
    pytest.mark.skipif(bool(MISSING), reason=f"torch and the extra bayes are not installed: {MISSING}"),
]


@pytest.mark.parametrize("ordered", [(), (True, False, True, False, True)])
@pytest.mark.parametrize(("width", "jitter"), [(0.1, 1e-3), (0.4, 0.01), (2.0, 0.2)])
def test_both_processes_have_the_same_posterior(ordered: tuple[bool, ...], width: float, jitter: float) -> None:
    rng = np.random.default_rng(0)
    points = np.unique(rng.integers(0, 5, (400, 5)), axis=0)
    light = LightProcess(points, ordered, width=width, jitter=jitter)
    reference = BotorchProcess(points, ordered, width=width, jitter=jitter)
    for at in rng.choice(len(points), 20, replace=False):
        value, noise = float(rng.normal(0.7, 0.1)), float(rng.uniform(1e-4, 1e-2))
        light.add(int(at), value, noise)
        reference.add(int(at), value, noise)
    mean, deviation = light.posterior()
    wanted_mean, wanted_deviation = reference.posterior()
    assert mean == pytest.approx(wanted_mean, abs=1e-4)
    assert deviation == pytest.approx(wanted_deviation, abs=2e-4)
    assert np.ptp(mean) > 0.01, "a posterior that says nothing compares nothing"


@pytest.mark.parametrize(("light", "reference"), [(StructCi(), StructCiBotorch()), (Cmbo(), CmboBotorch())])
def test_both_search_the_same_way(light: StructCi, reference: StructCiBotorch) -> None:
    courses = []
    for engine in (light, reference):
        asked: list[int] = []
        form = small_box(limit_s=0.12, asked=asked)
        answer = engine.solve(form, Limits(seed=2))
        assert certify(form, answer).sound
        courses.append((asked, answer.value))
    assert courses[0] == courses[1]

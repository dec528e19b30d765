"""Golden cases on the published services."""

import pytest
from cases import pool_published as published
from cases.pool import counts, decide, exactly, promise

pytestmark = pytest.mark.skipif(not published.present(), reason="../shared/data/kairos is absent")

MOST_RATE = {"ncf": 7428.572397, "rm2": 143.565086, "wnd": 1602.265720, "mtwnd": 1108.210151, "dien": 754.914057}
LEAST_COST = {"candle": (2.6128, [1, 0, 6]), "dien": (1.42, [1, 6, 0]), "mtwnd": (1.271, [1, 0, 5])}


@pytest.mark.parametrize("model", published.KAIROS)
def test_most_rate_for_the_published_budget(model: str) -> None:
    drafted = decide(published.kairos(model, budget="2.5"))
    assert promise(drafted, "fluid_rate_qps") == pytest.approx(MOST_RATE[model], rel=1e-6)
    assert promise(drafted, "cost_per_hour") <= 2.5


def test_least_cost_for_a_rate() -> None:
    drafted = decide(published.kairos("dien", rate_qps=1000), derate=1.0)
    assert promise(drafted, "cost_per_hour") == pytest.approx(3.3660, rel=1e-9)


def test_eight_times_the_budget() -> None:
    drafted = decide(published.kairos("rm2", budget=20))
    assert promise(drafted, "fluid_rate_qps") == pytest.approx(1206.686314, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "pool", "rate"),
    [
        ("rm2", (3, 1, 3, 0), 85.960758),
        ("wnd", (2, 0, 9, 0), 1529.202887),
        ("dien", (2, 0, 9, 0), 754.914057),
        ("mtwnd", (1, 0, 13, 0), 779.423735),
    ],
)
def test_rate_of_published_pools(model: str, pool: tuple[int, ...], rate: float) -> None:
    types = published.load("kairos_instance")["types"]
    given = dict(zip(types, pool, strict=True))
    drafted = decide(exactly(published.kairos(model, budget=20), given), formulation="pool-lp")
    assert promise(drafted, "fluid_rate_qps") == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("model", published.RIBBON)
def test_ribbon_services_cost_least(model: str) -> None:
    cost, pool = LEAST_COST[model]
    drafted = decide(published.ribbon(model), derate=1.0)
    assert promise(drafted, "cost_per_hour") == pytest.approx(cost, rel=1e-9)
    types = published.load("ribbon_qos_lookup")["configs"][model]["ins_types"]
    assert counts(drafted) == {f"{name}": n for name, n in zip(types, pool, strict=True) if n}


@pytest.mark.parametrize("model", published.KAIROS)
@pytest.mark.parametrize("eps", [0.0, 0.01])
def test_a_sample_of_the_stored_rates(model: str, eps: float) -> None:
    stored = published.load("fluid_lp_vs_eq15_budget2.5")[f"{model}|{eps}"]
    types = published.load("kairos_instance")["types"]
    case = published.kairos(model, budget=20)
    for key in list(stored)[::40]:
        given = dict(zip(types, map(int, key.split(",")), strict=True))
        drafted = decide(exactly(case, given), formulation="pool-lp", allow_late=eps)
        assert promise(drafted, "fluid_rate_qps") == pytest.approx(stored[key][0], rel=1e-6)

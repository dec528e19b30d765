"""Formulations of other packages: named, found by their paper, decided by, verified; and what hands them in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from build import EXAMPLES, SHIPPED

import hetplan as hp
from hetplan import extend, registry
from hetplan.registry import entry_points

POOL = [str(SHIPPED / name) for name in EXAMPLES["pool"]]
ONE_TYPE = """
from hetplan import extend


class OneTypeOptions(extend.PoolOptions):
    "`one-type`: machines of the base type alone."

    sizing: extend.Sizing = "fluid"


def rent_base_only(pool, ask):
    found = extend.list_affordable(pool, ask, with_base=True)
    alone = [row for row in found.rows(range(len(found))) if row.sum() == row[pool.base]]
    rated = extend.rate_at(pool, ask, pool.by_offer(alone[-1]))
    return extend.Chosen(rated, (extend.unbounded_claim(pool, rated),))


ONE_TYPE = extend.Formulation(OneTypeOptions, rent_base_only, like="a-paper")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Install a package with a formulation: a module and its metadata, as pip leaves them."""

    def put(name: str) -> None:
        (tmp_path / "one_type.py").write_text(ONE_TYPE)
        said = tmp_path / "one_type-1.dist-info"
        said.mkdir()
        (said / "METADATA").write_text("Metadata-Version: 2.1\nName: one-type\nVersion: 1\n")
        (said / "entry_points.txt").write_text(f"[hetplan.formulations]\n{name} = one_type:ONE_TYPE\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        entry_points.plugins.cache_clear()

    yield put
    entry_points.plugins.cache_clear()
    sys.modules.pop("one_type", None)


@pytest.mark.parametrize("named", ["one-type", "One_Type", "pool/one-type"])
def test_a_formulation_of_another_package_decides(named: str, install: Callable[[str], None]) -> None:
    install("pool/one-type")
    outcome = hp.solve(*POOL, formulation=named)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    plan = outcome.require()
    assert len({worker.hardware for worker in plan.workers}) == 1
    assert (plan.status, plan.method.formulation, plan.method.like) == ("heuristic", "one-type", "a-paper")
    assert hp.verify(plan, *POOL).ok


def test_it_is_listed_last_with_its_options(install: Callable[[str], None]) -> None:
    own = [*registry.formulations(registry.problem("pool"))]
    install("pool/one-type")
    assert [*registry.formulations(registry.problem("pool"))] == [*own, "one-type"]
    with pytest.raises(hp.InputError, match="largest"):
        hp.solve(*POOL, formulation="one-type", options={"largest": 3})


@pytest.mark.parametrize("name", ["fleet/one-type", "variants/one-type"])
def test_it_is_no_formulation_of_another_problem(name: str, install: Callable[[str], None]) -> None:
    install(name)
    with pytest.raises(hp.InputError, match=r"no such formulation|do not ask the question variants"):
        hp.solve(*POOL, formulation="one-type")
    assert "one-type" not in registry.formulations(registry.problem("fleet"))


def test_bounds_of_a_package_that_is_gone_are_not_proved_again(install: Callable[[str], None]) -> None:
    install("pool/one-type")
    plan = hp.solve(*POOL, formulation="one-type").require()
    entry_points.plugins.cache_clear()
    sys.path.pop(0)
    (found,) = hp.verify(plan, *POOL).violations
    assert found.code == "proof"
    assert "no such formulation" in found.text


def test_every_name_is_there() -> None:
    assert set(extend.__all__) <= set(dir(extend))
    for name in extend.__all__:
        assert getattr(extend, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        extend.nothing  # noqa: B018
    with pytest.raises(hp.InputError, match="no such solver"):
        extend.solver("nothing")

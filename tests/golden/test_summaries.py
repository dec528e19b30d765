"""The summaries of the shipped examples keep their shape: labels, order, columns and words, with figures as #.

`python tests/golden/test_summaries.py [NAME ...]` records them anew, after a look at each.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from build import EXAMPLES, example
from face import read_summary, solved_example, summary_of_plan

SHAPES = Path(__file__).with_name("summaries")
QUICK = ("variants", "compound", "compound-rate", "llm-disaggregated")
LONG = ("fleet", "policy", "policy-fewest")
"""Of the others the plan takes up to a minute."""
MOST_LINES, MOST_LETTERS = 28, 120
"""A line about what was written, and an empty one, make thirty."""
HOURS_A_MONTH = 730.0
PERIODS = re.compile(r"\b\d\d(:\d\d)?-\d\d(:\d\d)?\b")
FIGURE = re.compile(r"(?<![\w/-])\d[\d,.]*(?<![,.])(?:e-?\d+)?(?![\w-])")
"""A number that is no part of a name, such as that of t4, llama-8b or matching/1."""


def shape(text: str) -> str:
    """A page with every figure as #, and columns two spaces apart."""
    lines = [re.sub(r"  +", "  ", FIGURE.sub("#", PERIODS.sub("#-#", line))) for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def page_of(name: str, folder: Path) -> str:
    plan = solved_example(name).plan
    assert plan is not None
    return summary_of_plan(plan, example(name), folder)


def cases() -> list[object]:
    """Every example by how long its plan takes."""
    marks = {name: pytest.mark.longest if name in LONG else pytest.mark.slow for name in EXAMPLES if name not in QUICK}
    return [pytest.param(name, marks=marks.get(name, ())) for name in EXAMPLES]


@pytest.mark.parametrize("name", cases())
def test_a_summary_keeps_its_shape(name: str, tmp_path: Path) -> None:
    assert shape(page_of(name, tmp_path)) == (SHAPES / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", cases())
def test_money_bound_applications_models_and_percentiles_are_found(name: str, tmp_path: Path) -> None:
    wish, answer = example(name), solved_example(name)
    page = read_summary(page_of(name, tmp_path))
    lines = page.text.splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= MOST_LETTERS
    if answer.cost is not None:
        assert page.month == pytest.approx(answer.cost * HOURS_A_MONTH, abs=0.51)
    assert answer.bound is not None
    figures = [float(one.replace(",", "")) for line in page.bounds for one in FIGURE.findall(line)]
    whole = {answer.bound, float(-(-answer.bound // 1))}
    assert "every policy" in page.text or any(one == pytest.approx(b, rel=0.01) for one in figures for b in whole)
    told = {(one.app, one.metric) for one in page.limits}
    for app in wish.apps:
        assert app in page.text
        for percentile in wish.limits_ms(app):
            assert any(of == app and metric.endswith(f"p{percentile:g}") for of, metric in told), (app, percentile)
        for model in answer.models(app):
            assert model in page.text


def test_the_shape_of_a_page_has_its_names_and_no_figures() -> None:
    assert shape("t4 3  $2,102.50 a month  p99 57.9 .. 58 ms  22-06  llama-8b  60%\n") == (
        "t4 #  $# a month  p99 # .. # ms  #-#  llama-8b  #%\n"
    )


if __name__ == "__main__":
    import tempfile

    from build import state_profiles_as_planned

    state_profiles_as_planned()

    SHAPES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as where:
        for one in sys.argv[1:] or EXAMPLES:
            (SHAPES / f"{one}.txt").write_text(shape(page_of(one, Path(where))))

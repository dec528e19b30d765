"""The library in somebody else's program: it prints nothing, and says what is wrong with how it is called."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from build import tiny
from face import Refused, planner, solve, verify


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("problem", ["pool", "pipeline"])
def test_nothing_that_a_solver_prints_reaches_standard_output(
    problem: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """HiGHS prints from C where a step goes wrong, whatever its options say: here with every call."""
    import highspy

    libc, run, calls = ctypes.CDLL(None), highspy.Highs.run, []

    def loud(self: Any) -> Any:
        calls.append(libc.puts(b"Warning: printed by a solver"))
        return run(self)

    monkeypatch.setattr(highspy.Highs, "run", loud)
    wish = tiny(problem)
    answer = solve(wish, "fluid")
    assert verify(answer.plan, wish).is_ok
    print("said by the program")
    libc.fflush(None)
    assert calls
    assert capfd.readouterr().out == "said by the program\n"


@pytest.mark.parametrize("deadline", [-1.0, "soon", True])
def test_a_planner_refuses_a_deadline_that_is_none(deadline: Any) -> None:
    wish = tiny("pool")
    with pytest.raises(Refused, match=r"seconds|deadline_s .*a number"):
        planner(wish.profile, wish.slo, deadline_s=deadline)
    assert planner(wish.profile, wish.slo, options={"sizing": "fluid"}).plan().plan is not None

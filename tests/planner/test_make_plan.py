"""From a toy problem to a plan with its proof: claims, solves, digests, bytes, and reading back what none may trust."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from hetplan import errors
from hetplan.errors import InputError
from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.contract import Options
from hetplan.planner.draft import Draft, Infeasibility, Repair, Reported
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.make_plan import make_plan
from hetplan.planner.solver_calls import Asking
from hetplan.planner.status import Exit, Found
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Method
from hetplan.profiles.plan_file import plan_bytes, plan_digest, write_plan
from hetplan.profiles.profile import Profile
from hetplan.profiles.read_plan import plan_schema, read_plan
from hetplan.profiles.slo import Slo
from hetplan.profiles.workers import Worker

INPUTS = Inputs(
    profile=Profile(),
    slo=Slo(),
    digests={"profile": "sha256:00", "slo": "sha256:11"},
    warnings=(("W-note", "$.x", "something to know"),),
)


def machines(*, demand: float = 5.0, whole: bool = True) -> Milp:
    m = Builder("min")
    n = m.columns("machines", ["gpu"], upper=4.0, cost=3.0, whole=whole)
    m.add(m.rows("demand", ["app"], lower=demand, unit="qps"), n, 2.0)
    return m.build()


@dataclass
class Toy:
    """Rents machines; the least that a problem can be."""

    demand: float = 5.0
    whole: bool = True
    target_missed: str = ""
    question: ClassVar[str] = "toy"
    formulations: ClassVar[dict[str, type[Options]]] = {"plain": Options}
    like: ClassVar[dict[str, str]] = {}

    def decide(self, ask: Any) -> Draft | Infeasibility:
        answer = ask(machines(demand=self.demand, whole=self.whole), about="machines", gap=1e-4)
        if answer.status is Status.INFEASIBLE:
            return Infeasibility(("too much",), (Repair("demand", "lower", 1.0, 8.0, "qps", "lower demand to 8 qps"),))
        if answer.point is None:
            return Infeasibility(("no time",), proved=False)
        return Draft(
            workers=(Worker(id="w1", hardware="gpu", count=max(1, round(float(answer.point[0])))),),
            reported=(Reported("cost_per_hour", "min", "problem", answer),),
            target_missed=self.target_missed,
        )


def made(reference: Any, toy: Toy, limits: Limits | None = None, **choices: Any) -> Any:
    return make_plan(
        toy, INPUTS, Asking([reference], limits or Limits()), method=Method(formulation="plain"), **choices
    )


def test_a_plan_says_what_it_claims_and_who_vouches(reference) -> None:
    outcome = made(reference, Toy())
    plan = outcome.require()
    (claim,) = plan.claims
    assert (claim.value, claim.bound, claim.scope, claim.vouched, claim.solve) == (9.0, 9.0, "problem", "claimed", 1)
    assert plan.status == "optimal"
    assert plan.solves[0].solver == "reference"
    assert plan.warnings[0].code == "W-note"
    assert outcome.exit_code == Exit.OK


def test_a_linear_programs_bound_is_certified_with_its_proof_in_the_plan(reference) -> None:
    plan = made(reference, Toy(whole=False)).require()
    assert plan.claims[0].vouched == "certified"
    assert plan.solves[0].proof == {"row_duals": {"demand[app]": 1.5}}
    assert [(b.block, b.label, b.price, b.unit) for b in plan.solves[0].binding] == [("demand", "app", 1.5, "qps")]


@pytest.mark.parametrize("worst_at", [0, 1, 2])
def test_the_log_of_a_family_speaks_for_its_worst_member(reference, worst_at: int) -> None:
    """Of three programs one is infeasible, wherever it is; of three that are optimal one has the widest gap."""

    class Family(Toy):
        def decide(self, ask: Any) -> Draft | Infeasibility:
            wanted = [5.0, 3.0, 7.0]
            wanted[worst_at] = self.demand
            answers = ask.all([machines(demand=one) for one in wanted], about="several demands")
            feasible = next(answer for answer in answers if answer.status is Status.OPTIMAL)
            return Draft(workers=(), reported=(Reported("cost_per_hour", "min", "problem", feasible),))

    def loose(form: Any, limits: Any, **_: Any) -> Any:
        answer = type(reference).solve(reference, form, limits)
        return replace(answer, bound=answer.value - 6.0) if form.row_lower[0] == 8.0 else answer

    (none_for_one,) = made(reference, Family(demand=9.0)).require().solves
    assert (none_for_one.count, none_for_one.status, none_for_one.value) == (3, "infeasible", None)
    reference.solve = loose
    (wide,) = made(reference, Family(demand=8.0)).require().solves
    assert (wide.status, wide.value, wide.bound) == ("optimal", 12.0, 6.0)


def test_require_proof_is_not_met_by_a_word(reference) -> None:
    assert made(reference, Toy(), require_proof=True).exit_code == Exit.GAP_NOT_REACHED
    assert made(reference, Toy(whole=False), require_proof=True).exit_code == Exit.OK


def test_infeasible_has_reasons_and_repairs_and_no_plan(reference) -> None:
    outcome = made(reference, Toy(demand=9.0))
    assert outcome.plan is None
    assert outcome.exit_code == Exit.INFEASIBLE
    assert outcome.repairs[0].text == "lower demand to 8 qps"
    with pytest.raises(errors.Infeasible, match=r"too much.*lower demand") as caught:
        outcome.require()
    assert caught.value.exit_code == 3


def test_a_missed_target_is_infeasible(reference) -> None:
    assert made(reference, Toy(target_missed="accuracy 0.8 < 0.9")).exit_code == Exit.INFEASIBLE


def test_nothing_before_the_limit_is_not_infeasible() -> None:
    class Slow:
        name, form = "slow", "milp"

        def refuses(self, form: Any) -> str:
            return ""

        def solve(self, form: Any, limits: Any, **kw: Any) -> Answer[Any]:
            return Answer(Status.NO_ANSWER, stop=Stop.TIME)

    outcome = made(Slow(), Toy())
    assert outcome.found is Found.NOTHING
    assert outcome.exit_code == Exit.LIMIT
    assert outcome.solves[0].deterministic is False


def test_an_explicit_gap_that_is_missed_is_exit_4(reference) -> None:
    class Loose:
        name, form = "loose", "milp"

        def refuses(self, form: Any) -> str:
            return ""

        def solve(self, form: Any, limits: Any, **kw: Any) -> Answer[Any]:
            return Answer(Status.FEASIBLE, Stop.WORK, point=[3.0], value=9.0, bound=8.0)

    assert made(Loose(), Toy(), Limits(gap=0.01)).exit_code == Exit.GAP_NOT_REACHED
    assert made(Loose(), Toy(), Limits(gap=0.2)).exit_code == Exit.OK
    by_default = made(Loose(), Toy())
    assert by_default.exit_code == Exit.OK
    assert by_default.plan.status == "feasible"
    assert any(warning.code == "W-gap" for warning in by_default.warnings)


def test_the_same_plan_has_the_same_bytes_and_reads_back(reference, tmp_path) -> None:
    one, two = made(reference, Toy()).require(), made(reference, Toy()).require()
    assert plan_bytes(one) == plan_bytes(two)
    path = tmp_path / "plan.json"
    write_plan(one, path)
    assert read_plan(path) == one
    assert plan_digest(read_plan(path)) == one.digest
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (lambda d: d["workers"][0].update(count=4), "$.digest"),
        (lambda d: d.update(requires=["teleport/1"]), "$.requires"),
        (lambda d: d.update(format="hetplan/plan/2.0"), "$.format"),
        (lambda d: d.update(format="hetplan/slo/1.0"), "$.format"),
        (lambda d: d["workers"][0].update(command="rm -rf /"), "$.workers[0].command"),
        (lambda d: d["workers"][0].update(id="../../etc/passwd"), "$.workers[0].id"),
        (lambda d: d["workers"][0].update(count="3"), "$.workers[0].count"),
    ],
)
def test_an_edited_plan_is_refused_by_name(reference, tmp_path, edit, path) -> None:
    data = json.loads(plan_bytes(made(reference, Toy()).require()))
    edit(data)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(data))
    with pytest.raises(InputError) as caught:
        read_plan(file)
    fault = caught.value.faults[0]
    assert fault.path == path
    assert fault.file.endswith("plan.json")
    assert fault.remedy


def test_unknown_keys_that_only_tell_are_ignored(reference, tmp_path) -> None:
    data = json.loads(plan_bytes(made(reference, Toy()).require()))
    data["claims"][0]["colour"] = "blue"
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(data))
    assert read_plan(file, trust_digest=True).claims[0].value == 9.0


def test_a_failed_write_leaves_the_old_file(reference, tmp_path, monkeypatch) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def broken(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="No space"):
        write_plan(made(reference, Toy()).require(), path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


def test_the_schema_is_a_json_schema() -> None:
    schema = plan_schema()
    assert schema["$id"] == "urn:hetplan:schema:plan:1.0"
    assert "workers" in schema["properties"]


def test_a_bound_that_the_plans_own_value_refutes_is_not_claimed(reference) -> None:
    @dataclass
    class Better(Toy):
        """Finds, after rounding, a better value than the engine's bound allows: the bound was false."""

        def decide(self, ask: Any) -> Draft | Infeasibility:
            draft = super().decide(ask)
            assert isinstance(draft, Draft)
            better = Reported("cost_per_hour", "min", "problem", draft.reported[0].answer, value=6.0)
            return Draft(workers=draft.workers, reported=(better,))

    plan = made(reference, Better()).require()
    assert plan.claims[0].bound is None
    assert plan.claims[0].vouched == "none"
    assert "refuted" in (plan.claims[0].note or "")
    assert plan.status == "heuristic"


def test_links_are_followed_and_pipes_written_to(reference, tmp_path) -> None:
    plan = made(reference, Toy()).require()
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    write_plan(plan, link)
    assert link.is_symlink()
    assert read_plan(target) == plan
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(pipe.read_bytes)
        write_plan(plan, pipe)
        assert reading.result(60) == plan_bytes(plan)
    assert pipe.is_fifo()

"""What holds of every kind of program ("form") and of every engine that says it takes that kind.

Each kind has a tiny wish that is planned by it. There an engine of the kind gives a plan that verifies, names the kind
and itself, never claims better than what brute force finds, and, unless it is a heuristic, finds just that. An engine
of another kind is refused by name. Where brute force would repeat a question's whole reading, engines have to agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product

import pytest
from build import Files, app, example, files, machine, model, pipeline, random_files
from face import Answer, Engine, Refused, engines, solve, verify
from truth.closed_forms import late_md1
from truth.worth import least, worth

GAP = 1e-4
"""Engines stop within this share of the optimum."""
FULL = 0.95
"""How much of its throughput a replica is given at fluid rates."""


@dataclass(frozen=True)
class Home:
    """A wish that is planned by one kind of program, and the best value that there is, if the tests can tell."""

    wish: Callable[[], Files]
    formulation: str
    best: Callable[[Files], float] | None = None
    """What brute force or a closed form finds; where there is none, the engines of the kind have to agree."""
    heuristics: tuple[str, ...] = ()
    """Beginnings of the names of engines that may find less than the best."""
    by_option: str = ""
    """Here engines are chosen by an option of this name."""
    rough: float = 1e-4
    """How much worse than the best an engine may be: a share of it. Engines stop within 1e-4."""


def one_model() -> Files:
    """One model on three machine types with different best batches; the cheapest fleet mixes them."""
    machines = {"a": machine(0.5), "b": machine(1.1), "c": machine(2.3)}
    runs = {"a": {1: 10, 4: 31}, "b": {1: 6, 4: 14, 8: 26}, "c": {1: 4, 8: 13, 16: 21}}
    wanted = app("net", rate=1234.0, limits={99: 120.0})
    return files(machines=machines, models={"net": model(runs)}, apps={"ask": wanted}, problem="variants")


def cheapest_that_carries(wish: Files) -> float:
    """The least price of machines that carry the rate with their best batches."""
    (name,), (net,) = wish.apps, wish.models(wish.apps[0])
    each = {on: FULL * max(1e3 * n / ms for n, ms in wish.times_ms(net, on).items()) for on in wish.machine_types}
    most = [math.ceil(wish.demand(name).rate / each[on]) for on in each]
    return min(
        sum(n * wish.price(on) for n, on in zip(counts, each, strict=True))
        for counts in product(*(range(n + 1) for n in most))
        if sum(n * each[on] for n, on in zip(counts, each, strict=True)) >= wish.demand(name).rate
    )


def one_server() -> Files:
    """One model on one machine, for which two queries take twice as long: nothing is better than one after another."""
    net = model({"m": {1: 12.0, 2: 24.0}}, task="classify", quality=0.8)
    wanted = app("classify", rate=50.0, limits={95: 48.0}, by="task") | {"late": "serve"}
    made = files(
        machines={"m": machine(0.2, kind="cpu")}, models={"net": net}, apps={"ask": wanted},
        objective=("max goodput",), problem="policy",
    )  # fmt: skip
    return made.limited(counts={"m": (1, 1)})


def in_time_alone(wish: Files) -> float:
    """Quality times the share of queries that one server answers in time, first come, first served."""
    demand = wish.demand("ask")
    return wish.quality("net") * (1.0 - late_md1(demand.rate / 1e3, wish.times_ms("net", "m")[1], demand.limit_ms))


def two_stages() -> Files:
    """Two stages of two models each on five servers, with time enough for every batch."""
    models = {
        f"{stage}-{number}": model({"m": {1: ms, 4: 2.5 * ms}}, task=stage, quality=quality)
        for stage, first in (("find", 6.0), ("name", 4.0))
        for number, (ms, quality) in enumerate(((first, 0.8), (2.4 * first, 1.0)))
    }
    wanted = app("street", rate=260.0, limits={99: 400.0}, by="pipeline")
    made = files(
        machines={"m": machine(1.0)}, models=models, apps={"ask": wanted}, problem="pipeline",
        pipelines={"street": pipeline([("find", "name", 1.5)], ["find", "name"])}, objective=("max quality",),
    )  # fmt: skip
    return made.limited(counts={"m": (0, 5)})


def best_of_stages(wish: Files) -> float:
    """The highest quality of whole servers for each stage, where a stage may share its queries among its models."""
    rates = (wish.demand("ask").rate, wish.demand("ask").rate * wish.fanout("find")["name"])
    best = 0.0
    for first in range(1, wish.most("m")):
        stages = zip(("find", "name"), (first, wish.most("m") - first), rates, strict=True)
        best = max(best, math.prod(best_of_stage(wish, stage, servers, rate) for stage, servers, rate in stages))
    return best


def best_of_stage(wish: Files, stage: str, servers: int, rate: float) -> float:
    """The highest mean quality of a rate on so many servers, each with one of two models."""
    names = sorted(wish.models(stage), key=wish.quality, reverse=True)
    each = [max(1e3 * n / ms for n, ms in wish.times_ms(name, "m").items()) for name in names]
    best = 0.0
    for good in range(servers + 1):
        share = min(good * each[0] / rate, 1.0)
        if (1.0 - share) * rate <= (servers - good) * each[1] + 1e-9:
            best = max(best, share * wish.quality(names[0]) + (1.0 - share) * wish.quality(names[1]))
    return best


def most_rate() -> Files:
    """A pool that serves as much as it can for a dollar an hour."""
    return random_files("pool", 1).rated("max").limited(cost=1.0)


def scarce() -> Files:
    """Four compound queries, and one machine in the cloud less than they would use."""
    return example("compound").limited(counts={"a100": (0, 0)})


HOMES = {
    "milp": Home(one_model, "variants-milp", cheapest_that_carries, heuristics=("cp-sat-scaled",)),
    "columns": Home(one_model, "variants-columns", cheapest_that_carries),
    "queue-process": Home(one_server, "policy-mdp", in_time_alone, rough=0.005),  # slack is looked at in steps
    "priced": Home(two_stages, "loki-budget", best_of_stages, heuristics=("priced-columns",)),
    "catalog": Home(most_rate, "kairos-plus"),
    "packing": Home(scarce, "compound", heuristics=("dual", "greedy", "fcfs"), by_option="packing"),
}
"""Kind of program -> where it is asked."""
INSIDE = {"black-box"}
"""Kinds that no question asks by an engine's name: the kit in `hetplan.testing` alone judges their engines."""
HANDS_ON = {"cp-sat": "cp-sat-scaled"}
"""Engines behind which another one answers what they cannot take, or cannot prove."""
LONG = {"bound-order", "exhaustive", "queue-structured"}
"""Engines that take more than a second: those of catalogs simulate one pool after the other."""

ALL = engines()


@cache
def planned(form: str, engine: str) -> Answer:
    home = HOMES[form]
    if not home.by_option:
        return solve(home.wish(), "fluid", formulation=home.formulation, solver=engine)
    return solve(home.wish(), "fluid", formulation=home.formulation, options={home.by_option: engine})


def best_of_all(form: str, engine: str) -> float:
    """What another engine finds that tries everything."""
    first, second = {"catalog": ("exhaustive", "bound-order"), "packing": ("exact", "exact-cp-sat")}[form]
    return worth(planned(form, second if engine == first else first))


def test_every_kind_of_program_has_a_home() -> None:
    assert {one.form for one in ALL} == {*HOMES, *INSIDE}


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(one, id=one.name, marks=[pytest.mark.slow] if one.name in LONG else [])
        for one in ALL
        if one.form in HOMES
    ],
)
def test_an_engine_finds_the_best_of_its_kind_or_says_that_it_cannot(engine: Engine) -> None:
    home = HOMES[engine.form]
    wish = home.wish()
    try:
        answer = planned(engine.form, engine.name)
    except Refused as refusal:
        assert f"{engine.name}: " in str(refusal)  # noqa: PT017
        assert "another kind of form" not in str(refusal)  # noqa: PT017
        return
    assert verify(answer.plan, wish, simulate=False).is_ok
    names = {engine.name, HANDS_ON.get(engine.name)}
    assert names & {name for form, name in answer.solved_by() if form == engine.form}
    claim = answer.claim
    assert claim is not None
    if home.best is None:
        best = best_of_all(engine.form, engine.name)
    else:
        best = home.best(wish) * (1.0 if claim.sense == "min" else -1.0)
    assert worth(answer) >= best - GAP * abs(best)
    if answer.bound is not None:
        assert least(answer) <= best + home.rough * abs(best)
    if not engine.name.startswith(home.heuristics or ("-",)):
        assert worth(answer) == pytest.approx(best, rel=home.rough)


@pytest.mark.parametrize(
    "form", [pytest.param(one, marks=[pytest.mark.slow] if one == "queue-process" else []) for one in HOMES]
)
def test_engines_of_another_kind_are_refused_by_name(form: str) -> None:
    home = HOMES[form]
    strangers = {one.form: one.name for one in ALL if one.is_there and one.form != form and one.form not in INSIDE}
    for kind, name in strangers.items():
        if form == "catalog" or (kind == "milp" and form == "priced"):
            continue  # the formulation names a catalog's engine; that of priced columns asks programs of both kinds
        with pytest.raises(Refused, match=f"no solver for a .*{form}.* form .*{name}"):
            solve(home.wish(), "fluid", formulation=home.formulation, solver=name)


def test_two_kinds_of_program_agree_where_no_machine_is_shared() -> None:
    """Columns price sets of replicas, the program counts replicas: one question, written twice."""
    for seed in (0, 1, 2):
        wish = random_files("variants", seed)
        both = [solve(wish, "fluid", formulation=form).value for form in ("variants-columns", "variants-milp")]
        assert both[0] == pytest.approx(both[1], rel=GAP)

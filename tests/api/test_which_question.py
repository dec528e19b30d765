"""Which question files ask: the most specific that fits, whatever else is installed; else the one field to mend."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan import registry
from hetplan.api.solve import choose
from hetplan.errors import Fault
from hetplan.planner.request import read_request
from hetplan.problems.infer_problem import LADDER, is_ruled_out
from hetplan.registry import entry_points
from tests.build import answered

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SHIPPED = {
    "compound/candidates-": "compound",
    "compound/": "compound",
    "end-to-end/": "policy",
    "fleet/": "fleet",
    "llm-disaggregated/": "llm",
    "llm/": "llm",
    "pipeline/": "pipeline",
    "pipeline/social-": "pipeline",
    "policy/": "policy",
    "rag/": "compound",
    "pool/llm-": "pool",
    "pool/": "pool",
    "variants/": "variants",
}
"""Example -> the question that its files ask."""

FIT_ALL = """
class Asks{name}:
    question, formulations, like = "{name}", {{}}, {{}}

    @classmethod
    def fits(cls, inputs):
        return {fits!r}
"""

Place = tuple[str | int, ...]


def files(example: str) -> tuple[dict[str, Any], dict[str, Any]]:
    profile, slo = (json.loads((EXAMPLES / f"{example}{kind}.json").read_text()) for kind in ("profile", "slo"))
    return profile, slo


def places(value: Any, above: Place = ()) -> Iterator[Place]:
    """Every field of a document, sections and what they hold."""
    if above:
        yield above
    if isinstance(value, dict):
        for name, held in value.items():
            yield from places(held, (*above, name))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for number, held in enumerate(value):
            yield from places(held, (*above, number))


def without(document: dict[str, Any], place: Place) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    held: Any = changed
    for step in place[:-1]:
        held = held[step]
    del held[place[-1]]
    return changed


def asked(profile: Any, slo: Any) -> str:
    return choose(hp.load(profile, slo)).problem.question


@pytest.mark.parametrize(("example", "question"), SHIPPED.items())
def test_shipped_examples_ask_their_question(example: str, question: str) -> None:
    assert asked(*files(example)) == question


@pytest.mark.parametrize(("example", "question"), SHIPPED.items())
def test_what_is_written_as_its_default_changes_no_question(example: str, question: str) -> None:
    profile, slo = files(example)
    whole = hp.load(profile, slo).slo.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert len(json.dumps(whole)) > len(json.dumps(slo, separators=(",", ":")))
    assert asked(profile, whole) == question


def test_the_ladder_has_every_question() -> None:
    assert LADDER.keys() == registry.PROBLEMS.keys()
    profile, slo = files("pool/")
    inputs = hp.load(profile, slo)
    for name in LADDER:
        assert tuple(registry.problem(name).fits(inputs)) == registry.obstacles(name, inputs)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(("example", "question"), SHIPPED.items())
def test_a_glance_rules_out_only_what_has_obstacles(example: str, question: str) -> None:
    profile, slo = files(example)
    assert not is_ruled_out(question, read_request(hp.load(profile, slo)))
    for place in places(slo):
        try:
            inputs = hp.load(profile, without(slo, place))
        except hp.InputError:
            continue
        for name in LADDER:
            assert LADDER[name](inputs) or not is_ruled_out(name, read_request(inputs)), (place, name)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("example", SHIPPED)
def test_one_field_taken_out_is_named_where_no_question_is_left(example: str) -> None:
    profile, slo = files(example)
    draw = random.Random(example)
    of_profile = draw.sample(sorted(places(profile), key=str), k=min(60, len(list(places(profile)))))
    cases = [(profile, without(slo, place), place) for place in places(slo)]
    cases += [(without(profile, place), slo, place) for place in of_profile]
    for given_profile, given_slo, place in cases:
        faults = refused(given_profile, given_slo)
        if not faults:
            continue
        (fault,) = faults
        named, taken = fault.path.replace("[", ".").replace("]", ""), ".".join(map(str, ("$", *place)))
        assert named.startswith(taken) or taken.startswith(named), f"without {taken}: {fault}"
        assert fault.remedy


def refused(profile: Any, slo: Any) -> tuple[Fault, ...]:
    """Why no question is asked by files that load; the reader names what those lack that do not."""
    try:
        inputs = hp.load(profile, slo)
    except hp.InputError:
        return ()
    try:
        choose(inputs)
    except hp.InputError as error:
        return error.faults
    return ()


def test_what_is_missing_is_named_with_the_nearest_question() -> None:
    profile, slo = files("policy/")
    del slo["limits"]["instances"]
    with pytest.raises(hp.InputError) as caught:
        asked(profile, slo)
    (fault,) = caught.value.faults
    assert fault.path == "$.limits.instances"
    assert "nearest is policy" in fault.why
    assert "{" in fault.remedy


def test_the_more_specific_question_wins() -> None:
    profile, slo = files("pool/")
    (app,) = slo["apps"].values()
    del slo["objective"], slo["limits"]["cost_per_hour"], app["mix"]
    slo["limits"]["instances"] = {"t4": [1, 1]}
    app.update(dispatch="round-robin", rate_qps=5.0)
    for model in profile["models"].values():
        for run in model["runs"].values():
            run["at"] = {"batch": 16}
    inputs = hp.load(profile, slo)
    assert [name for name in LADDER if not registry.obstacles(name, inputs)] == ["policy", "pool"]
    assert asked(profile, slo) == "policy"


def test_machines_at_a_price_are_no_policy() -> None:
    """Who states a budget chooses machines; who has them and wants a policy hears that the budget is in the way."""
    profile, slo = files("variants/")
    slo["limits"] = {"instances": {"cpu": [0, 9], "gpu": [0, 4]}, "cost_per_hour": "9"}
    slo["apps"] = {"faces": answered(slo["apps"]["faces"], task="classify")}
    assert asked(profile, slo) == "variants"
    profile, slo = files("policy/")
    slo["limits"]["cost_per_hour"] = "9"
    with pytest.raises(hp.InputError, match=r"cost_per_hour.*has no budget"):
        asked(profile, slo)


@pytest.mark.parametrize("change", [{"slack": 1.2}, {}], ids=["a change is planned", "one batch size each"])
def test_a_limit_on_machines_makes_no_policy_of_variants(change: dict[str, float]) -> None:
    """Only who says what a policy is asked hears what a policy lacks."""
    profile, slo = files("variants/")
    slo |= {"limits": {"instances": {"cpu": [0, 9]}}, "change": change}
    assert asked(profile, slo) == "variants"
    for app in slo["apps"].values():
        app["dispatch"] = "round-robin"
    assert asked(profile, slo) == "policy"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install packages with a question each: a module and its metadata, as pip leaves them."""

    def put(**questions: Any) -> None:
        for name, fits in questions.items():
            (tmp_path / f"asks_{name}.py").write_text(FIT_ALL.format(name=name, fits=fits))
            said = tmp_path / f"asks_{name}-1.dist-info"
            said.mkdir()
            (said / "METADATA").write_text(f"Metadata-Version: 2.1\nName: asks-{name}\nVersion: 1\n")
            (said / "entry_points.txt").write_text(f"[hetplan.problems]\n{name} = asks_{name}:Asks{name}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        entry_points.plugins.cache_clear()

    yield put
    entry_points.plugins.cache_clear()
    for name in [name for name in sys.modules if name.startswith("asks_")]:
        del sys.modules[name]


@pytest.mark.parametrize(("example", "question"), SHIPPED.items())
def test_a_package_that_fits_everything_changes_nothing(
    example: str, question: str, install: Callable[..., None]
) -> None:
    install(copycat="", another=())
    assert {"copycat", "another"} <= set(registry.problem_names())
    assert asked(*files(example)) == question
    assert not registry.obstacles("copycat", hp.load(*files(example)))


def test_a_package_is_asked_where_no_own_question_fits(install: Callable[..., None]) -> None:
    profile, slo = files("policy/")
    del slo["limits"]["instances"]
    install(mine="")
    with pytest.raises(StopIteration):  # it is chosen, and has no formulation
        asked(profile, slo)
    install(yours=())
    with pytest.raises(hp.InputError, match="several questions: mine, yours"):
        asked(profile, slo)


def test_a_package_that_says_why_in_one_sentence_is_heard(install: Callable[..., None]) -> None:
    install(mine="these files want no teleport")
    profile, slo = files("policy/")
    with pytest.raises(hp.InputError, match="want no teleport"):
        choose(hp.load(profile, slo), question="mine")
    slo["apps"]["more"] = {**slo["apps"]["images"], "rate_qps": None, "streams": 3}
    slo["apps"]["last"] = {"task": "classify", "streams": 1}
    slo["objective"] = ["min changes"]
    with pytest.raises(hp.InputError, match="nearest is mine, but these files want no teleport"):
        asked(profile, slo)


def test_a_solve_does_not_look_for_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ortools")

    def never(group: str) -> Any:
        raise AssertionError(f"looked for {group}")

    monkeypatch.setattr(entry_points, "plugins", never)
    monkeypatch.setattr(registry, "plugins", never)
    outcome = hp.solve(*files("pool/"), solver="mathopt-scip", options={"sizing": "fluid"})
    assert outcome.exit_code == 0


@pytest.mark.slow
def test_a_solve_imports_the_question_and_the_engine_that_it_asks() -> None:
    code = (
        "import sys, hetplan as hp;"
        "hp.solve('pool/profile.json', 'pool/slo.json', options={'sizing': 'fluid'}).require();"
        "print(*(name for name in sys.modules if name.startswith('hetplan.')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=EXAMPLES, capture_output=True, text=True, check=True)
    loaded = ran.stdout.split()
    engines = {where.partition(":")[0] for _, where in registry.SOLVERS.values()}
    assert engines & set(loaded) == {"hetplan.solvers.highs"}
    rooms = {name.split(".")[2] for name in loaded if name.startswith("hetplan.problems.")}
    assert "pool" in rooms
    assert not rooms & (LADDER.keys() - {"pool"})
    assert not [name for name in loaded if name.split(".")[1] in ("simulator", "measure", "executor", "cli")]


def test_a_question_that_is_named_and_not_asked_is_no_value_of_the_field_to_mend() -> None:
    profile, slo = files("policy/")
    del slo["apps"]["images"]["latency"]
    with pytest.raises(hp.InputError) as raised:
        choose(hp.load(profile, slo), formulation="ramsis")
    (fault,) = raised.value.faults
    assert (fault.path, fault.value) == ("$.apps.images.latency", "")
    assert fault.why.startswith("the files do not ask the question policy: ")


@pytest.mark.parametrize(("question", "example"), [("pipeline", "pipeline/"), ("compound", "compound/")])
def test_a_question_that_plans_without_outcomes_names_the_step(question: str, example: str) -> None:
    """One clear error, whether the question is named or inferred; nothing else about the same files beside it."""
    profile, slo = files(example)
    name, pipeline = next(iter(profile["pipelines"].items()))
    step = next(iter(pipeline["stages"]))
    pipeline["stages"][step]["outcomes"] = {"sure": 0.7, "unsure": 0.3}
    pipeline["quality"] = "product"
    for app in slo["apps"].values():
        app["late"] = "serve"
    for asked in (question, None):
        with pytest.raises(hp.InputError) as raised:
            hp.solve(profile, slo, formulation=asked)
        (fault,) = raised.value.faults
        assert fault.path == f"$.pipelines.{name}.stages.{step}.outcomes"
        assert "the answer of a step" in fault.why

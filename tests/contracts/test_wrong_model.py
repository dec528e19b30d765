"""No application is answered by another's model: who answers is said before and after planning, and doubt is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build import PROBLEMS, Files, app, example, files, llm_app, llm_model, machine, model, tiny
from face import EXIT, Begun, begin, checked, command, solve

DOUBT = "W-which-model"
CONFIGS = {
    "small": {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "intermediate_size": 8192},
    "medium": {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 14336},
    "large": {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "intermediate_size": 28672},
}
MACHINES = {"small": "h100=3.5", "medium": "h100=3.5", "large": "h100x4=14"}
LIMITS = {"ttft": 2000, "tpot": 80}


def config(name: str, folder: Path) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**CONFIGS[name], "num_key_value_heads": 8, "vocab_size": 128256}))
    return path


ORDERS = [("medium", "large"), ("large", "medium"), ("small", "medium"), ("large", "small", "medium")]


def added(order: tuple[str, ...], folder: Path, rate: float = 2) -> Begun:
    """Language models, one after the other, each for an application of its own."""
    for name in order:
        made = begin(
            folder / "all", add=name != order[0], model=name, app=f"{name}-app", rate=rate,
            config=config(name, folder), machines=[MACHINES[name]], **LIMITS,
        )  # fmt: skip
        assert made.code == EXIT["ok"], made.error
    return made


@pytest.mark.parametrize("order", ORDERS)
def test_each_added_language_model_is_said_to_answer_its_own_application(
    order: tuple[str, ...], tmp_path: Path
) -> None:
    made = added(order, tmp_path)
    assert made.answered_by == {f"{name}-app": name for name in order}
    assert DOUBT not in checked(made.files)


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rate", [1, 6])
def test_an_added_language_model_is_planned_for_its_own_application(
    order: tuple[str, ...], rate: float, tmp_path: Path
) -> None:
    found = solve(added(order, tmp_path, rate).files, "fluid")
    assert [found.models(f"{name}-app") for name in order] == [{name} for name in order]
    if "large" in order:  # its weights fit on four cards alone
        assert found.count("h100x4") >= 1


def latencies(models: dict[str, float], folder: Path, quality: bool) -> Path:
    lines = ["model,hardware,batch,mean_ms" + ",quality" * quality]
    for rank, (name, ms) in enumerate(models.items()):
        for batch in (1, 8):
            lines.append(f"{name},t4,{batch},{ms * (1 + 0.3 * (batch - 1))}" + f",{0.6 + 0.1 * rank}" * quality)
    path = folder / "latencies.csv"
    path.write_text("\n".join(lines))
    return path


FOUR = {"nano": 4.0, "base": 9.0, "large": 16.0, "huge": 30.0}


@pytest.mark.slow
@pytest.mark.parametrize("names", [("nano", "huge"), ("base", "nano", "large"), tuple(FOUR)])
def test_a_table_of_several_models_says_that_any_may_answer(names: tuple[str, ...], tmp_path: Path) -> None:
    table = latencies({name: FOUR[name] for name in names}, tmp_path, quality=False)
    said = {"latencies": table, "machines": ["t4=0.526"], "rate": 50, "p99": 150}
    made = begin(tmp_path / "any", **said)
    assumed = made.said.split("Assumed", 1)[1]
    assert all(name in assumed for name in names)
    assert DOUBT in checked(made.files)
    for name in names:  # and takes the one that is named
        one = begin(tmp_path / name, model=name, **said)
        assert one.answered_by == {name: name}
        assert DOUBT not in checked(one.files)
        assert solve(one.files, "fluid").models(name) == {name}
    other = begin(tmp_path / "other", model="another", **said)
    assert (other.code, all(name in other.error for name in names)) == (EXIT["bad input"], True)


def test_models_with_qualities_are_variants_of_one_task(tmp_path: Path) -> None:
    made = begin(
        tmp_path / "f", latencies=latencies(FOUR, tmp_path, quality=True), machines=["t4=0.526"], rate=50, p99=150,
        quality=0.75,
    )  # fmt: skip
    assert DOUBT not in checked(made.files)
    assert solve(made.files, "fluid").models(made.files.apps[0]) <= {"large", "huge"}


def two_in_one_task(kind: str, qualities: tuple[float | None, float | None]) -> Files:
    """Two models in one task, asked for by it, by name, or by two applications."""
    if kind == "text":
        law = {"pieces": [{"base_ms": 3.0, "token_ms": 0.1}], "kv_tokens": 90_000}
        models = {f"m{k}": llm_model({"gpu": law}, task="chat") for k in (0, 1)}
        wanted = llm_app("chat", rate=2, limits={"ttft": (95, 900)}, lengths={(200, 50): 1.0})
    else:
        models = {f"m{k}": model({"gpu": {1: 5, 8: 20}}, task="chat", quality=q) for k, q in enumerate(qualities)}
        wanted = app("chat" if kind == "task" else ["m0", "m1"], rate=20, by="task" if kind == "task" else "variants")
    return files(machines={"gpu": machine(1.0)}, models=models, apps={"a": wanted, "b": wanted})


@pytest.mark.parametrize("kind", ["text", "task", "names"])
@pytest.mark.parametrize("qualities", [(None, None), (0.7, None), (0.7, 0.8)])
def test_several_models_without_stated_quality_are_doubted(kind: str, qualities: tuple[float | None, ...]) -> None:
    stated = kind != "text" and None not in qualities
    assert (DOUBT in checked(two_in_one_task(kind, qualities))) is not stated  # type: ignore[arg-type]


LONG = ("policy", "pipeline", "fleet")


@pytest.mark.parametrize("problem", [pytest.param(one, marks=[pytest.mark.slow] * (one in LONG)) for one in PROBLEMS])
def test_every_answer_names_the_models(problem: str, tmp_path: Path) -> None:
    wish = tiny(problem)
    answer = solve(wish, "fluid")
    models = {name for one in wish.apps for name in answer.models(one)}
    models |= {one.model for group in answer.machines for one in group.replicas if one.model}
    assert models
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(answer.plan))
    page = command("show", plan).out
    assert all(name in page for name in models), page


@pytest.mark.parametrize("name", ["pool", "variants", "pipeline", "policy", "llm", "fleet", "compound"])
def test_shipped_examples_leave_no_doubt(name: str) -> None:
    assert DOUBT not in checked(example(name))

"""A machine counts at a run of its benchmark that keeps the limits, as the tests read the runs by themselves."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from build import Files, llm_app
from face import EXIT, Refused, command, convert, forged, solve, verify

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
Json = dict[str, Any]
MEANT = {"ttft": "ttft", "tpot": "tpot", "response": "e2el"}


def sweep(drawn: random.Random, sizes: list[tuple[int, int]]) -> list[Json]:
    """Runs of a server whose times grow with the requests at a time; which statistics were saved is drawn."""
    kept = [name for name in ("mean", "p50", "p90", "p95", "p99") if drawn.random() < 0.6] or ["p50"]
    runs = []
    for inputs, outputs in sizes:
        for at_once in sorted(drawn.sample([1, 2, 4, 8, 16, 32], drawn.randint(2, 5))):
            busy = 1 + at_once / 6
            run: Json = {
                "model_id": "org/toy", "hardware": "gpu", "completed": 50, "max_concurrency": at_once,
                "total_input_tokens": 50 * inputs, "total_output_tokens": 50 * outputs,
                "request_throughput": round(at_once / (1.2e-3 * (0.2 * inputs + 12 * outputs) * busy**1.5), 6),
            }  # fmt: skip
            for word, base in (("ttft", 0.2 * inputs), ("tpot", 12.0), ("e2el", 0.2 * inputs + 12 * outputs)):
                for name, tail in (("mean", 1.2), ("p50", 1.0), ("p90", 1.9), ("p95", 2.4), ("p99", 3.5)):
                    if name in kept:
                        run[f"{name}_{word}_ms".replace("p50", "median")] = base * busy**1.5 * tail
            runs.append(run)
    drawn.shuffle(runs)
    return runs


def says(run: Json, of: str, percentile: float, limit: float) -> str:
    """What a run says of a limit: keeps, breaks, or nothing."""
    seen = {}
    for key, value in run.items():
        name, _, rest = key.partition("_")
        if rest == f"{MEANT[of]}_ms" and name != "mean":
            seen[50.0 if name == "median" else float(name[1:])] = value
    if any(at <= percentile and ms > limit for at, ms in seen.items()):
        return "breaks"
    if any(at >= percentile and ms <= limit for at, ms in seen.items()):
        return "keeps"
    return "breaks" if percentile >= 90 and run.get(f"mean_{MEANT[of]}_ms", 0) > limit else "nothing"


def counted(runs: list[Json], of: str, percentile: float, limit: float) -> tuple[float, bool]:
    """The rate at which a machine counts for one size (0: not at all), and whether the limit is known to hold."""
    for word in ("keeps", "nothing"):
        rates = [run["request_throughput"] for run in runs if says(run, of, percentile, limit) == word]
        if rates:
            return max(rates), word == "keeps"
    return 0.0, False


def imported(runs: list[Json], folder: Path, price: float = 2.0, **settings: object) -> Files:
    path = folder / "sweep.json"
    path.write_text(json.dumps(runs))
    made = convert(None, path, folder / "out", **settings)
    assert made.code == EXIT["ok"], made.error
    return made.files.priced(dict.fromkeys(made.files.machine_types, price))


@pytest.mark.parametrize("seed", range(24))
def test_a_machine_counts_at_a_run_that_keeps_the_limit(seed: int, tmp_path: Path) -> None:
    drawn = random.Random(seed)
    sizes = drawn.sample([(128, 64), (1024, 128), (4096, 64)], drawn.choice([1, 1, 2]))
    runs = sweep(drawn, sizes)
    of, percentile = drawn.choice(["ttft", "tpot", "response"]), drawn.choice([50, 90, 95, 99])
    limit = drawn.choice([value for run in runs for key, value in run.items() if key.endswith(f"{MEANT[of]}_ms")])
    limit = round(limit * drawn.choice([0.7, 1.001, 1.4]), 3)
    # A client waits for the network until the first token and the end, and no longer between two tokens for it.
    network = drawn.choice([0.0, 35.0])
    seen = limit + (0.0 if of == "tpot" else network)
    wanted = llm_app("toy", rate=40, limits={of: (percentile, seen)}, lengths={size: 1 / len(sizes) for size in sizes})
    wish = imported(runs, tmp_path).serving({"chat": wanted}).networked(network)
    of_size = [
        counted([run for run in runs if run["total_input_tokens"] == 50 * inputs], of, percentile, limit)
        for inputs, _ in sizes
    ]
    if any(rate == 0.0 for rate, _ in of_size):
        with pytest.raises(Refused, match="no measured run"):
            solve(wish, "fluid")
        return
    answer = solve(wish, "fluid", options={"derate": 1.0})
    work = sum(40 / len(sizes) / rate for rate, _ in of_size)
    assert answer.count() == math.ceil(work - 1e-9)
    assert (answer.reason == "verified") is all(known for _, known in of_size)
    assert ("W-latency-unchecked" in answer.warned()) is not all(known for _, known in of_size)
    assert answer.plan is not None
    assert verify(answer.plan, wish).is_ok

    def one_less(plan: Json) -> None:
        plan["workers"][0]["count"] -= 1

    if answer.count() > 1:
        assert not verify(forged(answer.plan, one_less), wish).is_ok


@pytest.mark.parametrize("name", ["p1.2.3", "p.", "p99."])
def test_what_is_no_percentile_says_nothing_of_one(name: str, tmp_path: Path) -> None:
    """A report may name its figures as it likes: such a one neither keeps a limit nor ends the work."""
    run = sweep(random.Random(1), [(128, 64)])[0]
    run = {key: value for key, value in run.items() if not key.endswith("_ms")}
    wanted = llm_app("toy", rate=5, limits={"ttft": (95, 100.0)}, lengths={(128, 64): 1.0})
    answer = solve(imported([{**run, f"{name}_ttft_ms": 1.0}], tmp_path).serving({"chat": wanted}), "fluid")
    assert answer.is_plan, answer
    assert "W-latency-unchecked" in answer.warned()


PUBLISHED = DATA / "benchmark-files" / "inferencex"


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="published runs are not here")
@pytest.mark.parametrize(
    ("percentile", "limit", "rate", "known"),
    [
        (50, 3000, 0.560385, True), (50, 1000, 0.0, False), (50, 20_000, 0.770752, True), (95, 3000, 0.560385, False),
        (99, 3000, 0.0, False), (99, 5000, 0.560385, True), (90, 20_000, 0.745, True), (99, 40_000, 0.770752, True),
    ],
)  # fmt: skip
def test_published_runs_of_a_model(percentile: float, limit: float, rate: float, known: bool, tmp_path: Path) -> None:
    """GLM-5 at 10,240 tokens: .560, .745, .771/s with median TTFT 1.34, 3.14, 15.2 s and p99 4.5, 16.6, 36.3 s."""
    runs = [json.loads(path.read_text()) for path in sorted(PUBLISHED.glob("*isl10240*.json"))]
    wanted = llm_app("glm-5-fp8", rate=30, limits={"ttft": (percentile, limit)}, lengths={(10240, 128): 1.0})
    wish = imported(runs, tmp_path, hardware="h200x8", gpus=8).serving({"chat": wanted})
    if rate == 0.0:
        with pytest.raises(Refused, match=r"0\.5604/s with ttft_p50_ms 1343"):
            solve(wish, "fluid")
        return
    answer = solve(wish, "fluid", options={"derate": 1.0})
    assert answer.count() == math.ceil(30 / rate)
    assert (answer.reason == "verified") is known


ROOMS = {
    "llama2-70b,a100-80gb,4": (68.98, 327_680), "llama2-70b,a100-80gb,8": (68.98, 327_680),
    "bloom-176b,h100-80gb,8": (176.25, 4_014_080), "Llama-3.1-8B,a100-80gb,2": (8.03, 131_072),
    "Llama-3.2-3B,a100-80gb,2": (3.21, 114_688),
}  # fmt: skip
"""1e9 weights and bytes of KV per token, by the models' own config.json."""
GIB = {"a100-80gb": 79.3, "h100-80gb": 79.6}


def measured(model: str, card: str, gpus: int, folder: Path) -> Path:
    """Times of batches of which the largest holds 640 to 5,120 tokens."""
    lines = ["model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,e2e_time,tensor_parallel"]
    for prompt in (128, 512):
        for batch in (1, 4, 8):
            fill, step = 5 + 0.05 * prompt * batch, 12 + 1e-4 * batch * (prompt + 64) + 0.02 * batch
            lines.append(f"{model},{card},{prompt},{batch},128,{fill},{step},{fill + 128 * step},{gpus}")
    path = folder / "times.csv"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("who", ROOMS)
def test_room_for_kv_is_what_fits_and_not_what_was_benchmarked(who: str, tmp_path: Path) -> None:
    model, card, gpus = who.split(",")
    made = convert("sageserve", measured(model, card, int(gpus), tmp_path), tmp_path / "out")
    assert made.code == EXIT["ok"], made.error
    (engine,) = made.files.profile["engines"].values()
    weights, each = ROOMS[who]
    rooms = [(int(gpus) * (GIB[card] * 2**30 * 0.9 - kept) - weights * 2e9) / each for kept in (12e9, 8e9, 4e9)]
    assert engine["kv_tokens"] == pytest.approx(rooms[1], rel=0.02)
    assert engine["kv_tokens"] * (1 + engine["kv_error"]) == pytest.approx(rooms[2], rel=0.03)
    assert f"{engine['kv_tokens']:,}" in made.said


@pytest.mark.parametrize("who", ["toy,a100-80gb,2", "llama2-70b,mystery,4", "llama2-70b-awq,h100,2", "llama2-70b,t4,2"])
def test_a_room_that_nobody_knows_is_asked_for(who: str, tmp_path: Path) -> None:
    model, card, gpus = who.split(",")
    path = measured(model, card, int(gpus), tmp_path)
    made = convert("sageserve", path, tmp_path / "out")
    assert (made.code, path.name in made.error) == (EXIT["bad input"], True)
    advised = made.error.split("add --set ")[1].split("=")[0]
    again = convert("sageserve", path, tmp_path / "out", **{advised: 123_456})
    assert (again.code, "123,456" in again.said) == (EXIT["ok"], True)


@pytest.mark.skipif(not (DATA / "llm").is_dir(), reason="published measurements are not here")
def test_published_times_are_planned_with_the_room_of_their_cards(tmp_path: Path) -> None:
    """40,960 tokens were the most that was benchmarked; four cards hold 458 thousand, and half the machines do."""
    made = convert("sageserve", DATA / "llm" / "sageserve_perf_model.csv", tmp_path / "out")
    wanted = llm_app(
        "llama2-70b", rate=12, limits={"ttft": (95, 3000), "tpot": (95, 100)},
        lengths={(1024, 256): 0.6, (3000, 500): 0.4},
    )  # fmt: skip
    prices = {"a100-80gb-x2": 3.67, "a100-80gb-x4": 7.34, "a100-80gb-x8": 14.68}
    wish = made.files.priced(prices).serving({"chat": wanted})
    cost = solve(wish, "fluid").cost
    assert cost is not None
    assert cost < 75  # 135.79 with the room that was benchmarked
    assert command("check", *wish.write(tmp_path)).code == EXIT["ok"]

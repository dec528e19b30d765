"""`hetplan init` for each question: from somebody's own tables to files that ask it, solved by the printed command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.profiles.language_models import model_of_config
from hetplan.profiles.read_plan import read_plan
from tests.build import planned

STEPS = """step,model,hardware,batch,p50_ms,p95_ms,accuracy
detect,det-s,t4,1,7.1,8.0,0.71
detect,det-s,t4,8,34.4,38.5,0.71
detect,det-x,t4,1,22.5,25.2,1.0
detect,det-x,t4,8,138,154.6,1.0
car,car-0,t4,1,5,6,0.83
car,car-0,t4,8,20,24,0.83
"""
MODELS = "model,hardware,batch,mean_ms,p95_ms,quality\ns,cpu4,1,10,12,0.7\ns,cpu4,8,40,48,0.7\n"
MODELS += "l,cpu4,1,30,33,0.9\nl,cpu4,8,200,210,0.9\n"
SETTINGS = "size,model,detect_ms,track_ms,quality\n640,n,12,30,0.62\n640,x,40,30,0.71\n1280,n,30,30,0.70\n"
RATES = "start_s,rate_qps\n0,40\n3600,90\n7200,60\n"
CONFIG = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
}  # fmt: skip
PRICES = "machine;price;stock\nT4;.526;8\nL4;0.8\n"
CATALOGUE = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region
dear,T4,1,4,16,,0.9,0.2,east
cheap,T4,1,4,16,,0.5,0.2,east
four,T4,4,16,64,,1.6,0.8,east
far,T4,1,4,16,,0.3,0.2,west
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    for name, text in {
        "steps.csv": STEPS, "models.csv": MODELS, "settings.csv": SETTINGS, "rates.csv": RATES,
        "config.json": json.dumps(CONFIG), "prices.csv": PRICES, "vms.csv": CATALOGUE,
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    return tmp_path


def begun(run: Callable[..., Any], mine: Path, words: str, folder: str = "out") -> tuple[list[str], Any]:
    """The next command that `init` prints, in words, and how it ended."""
    ran = run("init", *[mine / word if "." in word and (mine / word).exists() else word for word in shlex.split(words)],
              "-o", mine / folder)  # fmt: skip
    assert ran.code == 0, ran.err
    (line,) = [line for line in ran.out.splitlines() if line.startswith("Next: hetplan ")]
    return shlex.split(line.removeprefix("Next: hetplan ")), ran


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "question"),
    [
        ("--latencies steps.csv --machine t4=0.526 --rate 100 --slo p99=250", "pipeline"),
        ("--latencies steps.csv --machine t4 --rate 100 --slo p99=250 --quality 0.5 --edge detect:car=0.5", "pipeline"),
        ("--latencies models.csv --workers cpu4=2 --rate 40 --slo p99=150", "policy"),
        ("--latencies models.csv --machine cpu4=0.2 --rate 40 --slo p99=150 --quality 0.8", "variants"),
        ("--settings settings.csv --machine a100=3.67 --rate 10 --slo p50=300 --quality 0.7", "compound"),
        ("--settings settings.csv --machine a100=3.67:2 --rate 10 --slo p50=300", "compound"),
        (
            "--config config.json --machine h100=6.88 --machine l4=0.8:4 --rate 2 --slo ttft_p95=800,tpot_p95=100 "
            "--tokens 400:50",
            "llm",
        ),
        (
            "--app photos --latencies models.csv --machine cpu4=0.2 --rates rates.csv --slo p99=150 --quality 0.8",
            "fleet",
        ),
    ],
)
def test_own_tables_become_a_plan_by_the_printed_command(
    words: str, question: str, run: Callable[..., Any], mine: Path
) -> None:
    command, ran = begun(run, mine, words)
    assert "Assumed" in ran.out
    quick = [] if question in ("policy", "compound") else ["--set", "sizing=fluid"]
    solved = run(*command, *(quick if question != "fleet" else ["--set", "sizing=formula"]))
    assert solved.code == 0, solved.err + solved.out
    assert read_plan(mine / "out" / "plan.json").question == question


def test_steps_become_a_chain_or_what_the_edges_say(run: Callable[..., Any], mine: Path) -> None:
    begun(run, mine, "--latencies steps.csv --machine t4=0.526:6 --rate 100 --slo p99=250", "chain")
    profile = json.loads((mine / "chain" / "profile.json").read_text())
    assert profile["pipelines"]["app"]["edges"] == [{"from": "detect", "to": "car", "fanout": 1}]
    assert profile["machines"]["t4"]["stock"] == 6
    begun(run, mine, "--latencies steps.csv --machine t4=0.526 --edge detect:car=1.6 --rate 100 --slo p99=250", "tree")
    profile = json.loads((mine / "tree" / "profile.json").read_text())
    assert profile["pipelines"]["app"]["edges"][0]["fanout"] == 1.6
    assert profile["machines"]["t4"]["stock"] == 20


def test_what_is_added_leaves_what_was_said_once(run: Callable[..., Any], mine: Path) -> None:
    """The source and all that runs share went into every run, and a currency was added."""
    begun(run, mine, "--app photos --latencies models.csv --machine cpu4=0.2 --rate 40 --slo p99=150 --quality 0.8")
    before = json.loads((mine / "out" / "profile.json").read_text())
    begun(run, mine, "--add --app ranking --model ranker --machine t4=0.5 --ms t4:1=5,8=20 --rate 50 --slo p99=100")
    after = json.loads((mine / "out" / "profile.json").read_text())
    assert after.keys() == before.keys()
    assert after["source"] == before["source"]
    assert {name: after["models"][name] for name in before["models"]} == before["models"]
    assert "source" not in after["models"]["ranker"]["runs"]["t4"]


@pytest.mark.slow
def test_a_fleet_grows_by_an_application(run: Callable[..., Any], mine: Path) -> None:
    begun(
        run,
        mine,
        "--app photos --latencies models.csv --machine cpu4=0.2 --rates rates.csv --slo p99=150 --quality 0.8",
    )
    words = "--add --app ranking --model ranker --machine t4=0.5 --ms t4:1=5,8=20 --rate 50 --slo p99=100"
    command, _ = begun(run, mine, words)
    slo = json.loads((mine / "out" / "slo.json").read_text())
    assert slo["apps"]["photos"]["rate_qps"]["series"] == [40, 90, 60]
    assert slo["horizon"] == {"period_s": 3600, "periods": 3, "repeats": 1}
    assert slo["apps"]["ranking"]["rate_qps"] == 50
    assert run(*command, "--set", "sizing=formula").code == 0
    assert {worker.hardware for worker in read_plan(mine / "out" / "plan.json").workers} <= {"t4", "cpu4"}
    again = run("init", *shlex.split(words), "-o", mine / "out")
    assert again.code == 2
    assert "Name this one otherwise: --app NAME." in again.err
    other = run("init", *shlex.split(words.replace("ranking", "r2").replace("t4=0.5", "t4=0.7")), "-o", mine / "out")
    assert other.code == 2
    assert "machines.t4" in other.err
    assert json.loads((mine / "out" / "slo.json").read_text()) == slo


def test_hours_of_a_long_record_are_those_of_the_day(run: Callable[..., Any], mine: Path) -> None:
    lines = [f"{hour * 3600},{100 + hour % 24 + hour // 24}" for hour in range(24 * 5)]
    (mine / "rates.csv").write_text("\n".join(["start_s,rate_qps", *lines]) + "\n")
    begun(run, mine, "--model m --machine t4=1 --ms t4:1=5 --rates rates.csv --slo p99=100")
    slo = json.loads((mine / "out" / "slo.json").read_text())
    series = slo["apps"]["m"]["rate_qps"]["series"]
    # Five days, each one query a second more than the day before: the 95th percentile is at 3.8 of 4.
    assert series == [pytest.approx(100 + hour + 3.8) for hour in range(24)]
    assert slo["horizon"] == {"period_s": 3600, "periods": 24, "repeats": 30}


def test_a_profile_that_is_there_gets_a_wish(run: Callable[..., Any], mine: Path) -> None:
    begun(run, mine, "--latencies models.csv --machine cpu4 --rate 40 --slo p99=150", "measured")
    given = mine / "measured" / "profile.json"
    words = f"--profile {given} --machine cpu4=0.3:9 --rate 40 --slo p99=150 --quality 0.8"
    command, _ = begun(run, mine, words, "asked")
    assert str(given) in command
    assert run(*command, "--set", "sizing=fluid").code == 0
    inputs = hp.load(given, mine / "asked" / "profile.json", mine / "asked" / "slo.json")
    assert [(one.price_per_hour, one.stock) for one in inputs.profile.offers.values()] == [(300_000_000, 9)]


def test_prices_come_from_a_list_or_a_catalogue(run: Callable[..., Any], mine: Path) -> None:
    base = "--model m --ms t4:1=5 --rate 40 --slo p99=100"
    begun(run, mine, f"{base} --prices prices.csv", "list")
    machine = json.loads((mine / "list" / "profile.json").read_text())["machines"]["t4"]
    assert (machine["price_per_hour"], machine["stock"]) == (0.526, 8)
    for region, price in (("east", "0.5"), ("", "0.3")):
        _, ran = begun(run, mine, f"{base} --prices vms.csv --region '{region}'", f"of-{region}")
        assert f": {price} an hour" in ran.out
        machine = json.loads((mine / f"of-{region}" / "profile.json").read_text())["machines"]["t4"]
        assert machine["price_per_hour"] == float(price)
    several = "--model m --ms t4x4:1=5 --rate 40 --slo p99=100 --prices vms.csv"
    begun(run, mine, several, "four")
    assert json.loads((mine / "four" / "profile.json").read_text())["machines"]["t4x4"]["price_per_hour"] == 1.6


def test_the_size_of_a_model_is_that_of_its_config(mine: Path) -> None:
    model = model_of_config(json.loads((mine / "config.json").read_text()), file="config.json")
    # Llama 3.1 8B has 8.03 billion parameters.
    assert model.parameters == pytest.approx(8.03e9, rel=1e-3)
    assert (model.kv_heads, model.head_size, model.kv_bytes_per_token) == (8, 128, 131_072)


NAMES = "--rate 10 --slo ttft_p95=1000,tpot_p95=40 --tokens 512:256=0.6,2000:300=0.4"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["deepseek-v3", "qwen3-235b"])
@pytest.mark.parametrize("gpu", ["h200", "b200"])
def test_names_become_a_plan_that_verifies_and_keeps_its_limits(
    model: str, gpu: str, run: Callable[..., Any], mine: Path
) -> None:
    command, ran = begun(run, mine, f"--model {model} --machine {gpu}=3.50 {NAMES}")
    profile = json.loads((mine / "out" / "profile.json").read_text())
    for engine in planned(profile)["engines"].values():
        assert f": {engine['law']['basis']} (" in ran.out, "every law says its basis"
        assert f"+-{engine['law']['error_mean']:.0%}; KV {engine['kv_tokens']:,} tokens +-" in ran.out
    solved = run(*command)
    assert solved.code == 0, solved.err + solved.out
    files = [mine / "out" / name for name in ("plan.json", "profile.json", "slo.json")]
    plan = read_plan(files[0])
    assert plan.question == "llm"
    assert any(one.code == "W-law" for one in plan.warnings)
    assert run("verify", *files).code == 0
    assert run("simulate", *files, "--seeds", "2").code == 0


def test_degrees_precisions_and_ways_to_split_are_offered(run: Callable[..., Any], mine: Path) -> None:
    begun(run, mine, f"--model qwen3-235b --machine h200=3.50 {NAMES}")
    profile = json.loads((mine / "out" / "profile.json").read_text())
    assert set(profile["machines"]) == {"h200x2", "h200x4", "h200x8"}, "one does not hold the weights"
    prices = {"h200x2": 7, "h200x4": 14, "h200x8": 28}
    assert {name: one["price_per_hour"] for name, one in profile["machines"].items()} == prices
    assert set(profile["models"]) == {"qwen3-235b-a22b-bf16", "qwen3-235b-a22b-fp8"}
    ways = [one.get("at", {}) for one in planned(profile)["variants"]["qwen3-235b-a22b-fp8"]["runs"]]
    assert {"tensor": 4} in ways
    assert {"tensor": 4, "expert": 4} in ways
    assert {"tensor": 8, "expert": 8, "data": 8} in ways
    begun(run, mine, f"--model qwen3-235b-fp8 --machine h200x8=28 {NAMES}", "nodes")
    nodes = json.loads((mine / "nodes" / "profile.json").read_text())
    assert {name: one["price_per_hour"] for name, one in nodes["machines"].items()} == {"h200x8": 28}
    assert {engine["tensor"] for engine in planned(nodes)["engines"].values()} == {2, 4, 8}, (
        "several instances on a node"
    )
    assert {engine["precision"] for engine in planned(nodes)["engines"].values()} == {"fp8"}
    for order in ("--machine h200x8=16 --machine h200=3.50", "--machine h200=3.50 --machine h200x8=16"):
        begun(run, mine, f"--model qwen3-235b-fp8 {order} {NAMES}", order[10:16])
        named = json.loads((mine / order[10:16] / "profile.json").read_text())["machines"]
        assert named["h200x8"]["price_per_hour"] == 16, "what is named has its own price"


@pytest.mark.parametrize(
    ("words", "basis"),
    [
        ("--model llama-3.1-8b-bf16 --machine h100=2", "grid"),
        ("--model llama-3.1-8b-bf16 --machine b200=4", "sibling"),
        ("--model llama-3.1-8b-bf16 --machine mi300x=2", "datasheet"),
        ("--config config.json --machine h100=2:4", "efficiencies"),
    ],
)
def test_a_law_says_what_it_rests_on(words: str, basis: str, run: Callable[..., Any], mine: Path) -> None:
    begun(run, mine, f"{words} --rate 5 --slo ttft_p95=1000,tpot_p95=60")
    profile = json.loads((mine / "out" / "profile.json").read_text())
    first = min(planned(profile)["engines"].values(), key=lambda one: (one["tensor"], one["precision"]))
    assert first["law"]["basis"] == basis
    own = {"grid": 0.12, "sibling": 0.245, "datasheet": 0.32, "efficiencies": first["law"]["error_mean"]}
    assert first["law"]["error_mean"] == pytest.approx(own[basis])


def test_without_prices_gpus_are_counted(run: Callable[..., Any], mine: Path) -> None:
    command, ran = begun(run, mine, "--model llama-3.1-8b --machine h100 --rate 5 --slo ttft_p95=1000,tpot_p95=60")
    assert "the fewest GPUs" in ran.out
    solved = run(*command, "--set", "sizing=fluid")
    assert solved.code == 0, solved.err
    assert "GPU 1.00/h" in solved.out


@pytest.mark.slow
def test_machines_that_prefill_and_decode_apart_are_planned_where_a_network_between_them_is_named(
    run: Callable[..., Any], mine: Path
) -> None:
    words = "--model llama-3.1-8b-bf16 --machine h100x1=6.88 --rate 40 --tokens 2000:100 --slo ttft_p95=600,tpot_p95=16"
    costs = []
    for folder, more in (("whole", ""), ("roles", " --kv-link 200000")):
        command, _ = begun(run, mine, words + more, folder)
        assert run(*command).code == 0
        promises = json.loads(Path(command[-1]).read_text())["promises"]
        costs += [one["value"] for one in promises if one["quantity"] == "cost_per_hour"]
    profile = json.loads((mine / "roles" / "profile.json").read_text())
    roles = {name: one.get("role") for name, one in profile["models"]["llama-3.1-8b"]["runs"].items()}
    assert roles == {"h100x1": None, "h100x1-prefill": "prefill", "h100x1-decode": "decode"}
    assert costs[1] <= costs[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--latencies steps.csv --machine t4=1 --rate 5 --slo p99=90 --edge detect:face", "The table has detect, car."),
        ("--latencies models.csv --machine cpu4=1 --rate 5 --slo p99=90 --edge a:b", "with the column step"),
        ("--latencies steps.csv --machine t4=1 --rate 5 --slo p99=90 --edge detect", "detect:car=1.6"),
        ("--latencies models.csv --workers cpu4 --rate 5 --slo p99=90", "cpu4=6"),
        ("--model m --ms t4:1=6 --workers t4=2 --rate 5 --slo p99=90", "with the column quality"),
        ("--latencies models.csv --workers cpu4=2 --rates rates.csv --slo p99=90", "workers that are there"),
        ("--settings settings.csv --rate 5 --slo p99=90", "one kind of machine"),
        ("--settings models.csv --machine t4=1 --rate 5 --slo p99=90", "Use --latencies for it"),
        ("--settings rates.csv --machine t4=1 --rate 5 --slo p99=90", "columns of knobs, quality"),
        ("--settings settings.csv --machine t4=1 --rates rates.csv --slo p99=90", "one rate"),
        ("--config settings.csv --machine h100=1 --rate 5 --slo ttft_p95=90", "JSON"),
        ("--config config.json --machine b7=1 --rate 5 --slo ttft_p95=90", "Known are t4"),
        ("--config config.json --rate 5 --slo ttft_p95=90", "the GPUs that can be rented"),
        ("--config config.json --machine h100=1 --rate 5 --slo p99=90", "ttft_p95"),
        ("--config config.json --machine h100=1 --rate 5 --slo ttft_p95=90 --tokens 40", "IN:OUT"),
        ("--tokens 40:4 --rate 5 --slo ttft_p95=90", "how long batches take"),
        (
            "--config config.json --settings settings.csv --machine h100=1 --rate 5 --slo ttft_p95=90",
            "one source of times",
        ),
        ("--model m --ms l4:1=6 --prices vms.csv --rate 5 --slo p99=90", "Add --machine l4=PRICE"),
        ("--model m --ms l4:1=6 --prices models.csv --rate 5 --slo p99=90", "machine and price_per_hour"),
        ("--model m --ms l4:1=6 --rate 5 --rates rates.csv --slo p99=90", "Leave one of --rate and --rates out."),
        ("--model m --ms l4:1=6 --rates models.csv --slo p99=90", "a column of times"),
        ("--model qwen9 --machine h200=1 --rate 5 --slo ttft_p95=90", "Known are bloom-176b"),
        ("--model qwen3-235b --machine h300=1 --rate 5 --slo ttft_p95=90", "Known are t4"),
        ("--model qwen3-235b --rate 5 --slo ttft_p95=90", "Add --machine"),
        ("--model qwen3-235b --machine h200=1 --machine b200 --rate 5 --slo ttft_p95=90", "a price of every machine"),
        ("--model qwen3-235b --machine l4=1 --rate 5 --slo ttft_p95=90", "room for 768 tokens"),
        ("--model qwen3-235b-awq --machine h200=1 --rate 5 --slo ttft_p95=90", "16 bits, fp8 or fp4"),
        ("--model qwen3-235b --machine h200=1 --engine llamacpp --rate 5 --slo ttft_p95=90", "Known are vllm"),
        ("--model qwen3-235b --machine h200=1 --rate 5 --slo ttft=90", "Write p99=100"),
        ("--model qwen3-8b --machine h200=1:4 --rate 5 --slo ttft_p95=90 --kv-link 1e5", "no stock beside --kv-link"),
        ("--model qwen3-8b --machine h200=1 --rate 5 --slo ttft_p95=90 --kv-link 0", "--kv-link"),
        ("--add --model m --ms l4:1=6 --rate 5 --slo p99=90", "Begin without --add"),
        (
            "--config config.json --machine h100=1 --rate 5 --slo ttft_p95=600,ttft_p95_ms=500",
            "this one is there twice",
        ),
        ("--model m --ms l4:1=6 --rate 5 --slo p0.99=90", "Write p99=90."),
        ("--model m --ms l4:1=6 --rate 5 --slo p101=90", "from 1 to 100. Write p99=90."),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_written(
    words: str, said: str, run: Callable[..., Any], mine: Path
) -> None:
    given = [mine / word if "." in word and (mine / word).exists() else word for word in shlex.split(words)]
    ran = run("init", *given, "-o", mine / "out")
    assert ran.code == 2
    assert said in ran.err
    assert not (mine / "out").exists()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("settings.csv", "size,a_ms,quality\n1,2,0.5\n1,3,0.6\n", "the same setting as in line 2"),
        ("settings.csv", "size,a_ms,quality\n1,soon,0.5\n", "line 2, a_ms"),
        ("settings.csv", "size,a_ms,quality\n,3,0.5\n", "the value of this knob"),
        ("settings.csv", "size,a_ms,quality\n", "a line per setting"),
        ("settings.csv", "", "the file is empty"),
        ("models.csv", "model,hardware,batch,mean_ms\nm,t4,1,3\nm,t4,1,4\n", "is in line 2 already"),
        ("models.csv", "step,model,hardware,mean_ms\na,m,t4,3\n,n,t4,4\n", "the step of this line"),
        (
            "models.csv",
            "step,model,hardware,batch,mean_ms\na,m,t4,1,3\nb,m,t4,2,4\n",
            "which is a in line 2",
        ),
        ("models.csv", "step,model,hardware,batch,mean_ms\na,m,t4,1,3\na,n,t4,1,4\n", "m: its quality"),
        ("models.csv", 'model,hardware,mean_ms\n"' + "m" * 200_000 + '",t4,3\n', "Save it as CSV anew."),
    ],
)
def test_a_wrong_line_is_named(name: str, text: str, said: str, run: Callable[..., Any], mine: Path) -> None:
    (mine / name).write_text(text)
    source = "--settings" if name == "settings.csv" else "--latencies"
    ran = run("init", source, mine / name, "--machine", "t4=1", "--rate", "5", "--slo", "p99=90", "-o", mine / "out")
    assert ran.code == 2
    assert said in ran.err
    assert not (mine / "out").exists()

"""`hetplan init`: files that solve at once, everything assumed is said, and nothing wrong is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.profiles.first_files import read_machine
from hetplan.profiles.load import load_inputs
from hetplan.profiles.yaml_text import read_yaml

SAID = ["--model", "resnet50", "--machine", "t4=0.526", "--machine", "a10g=1.006:3", "--ms", "t4:1=6,4=14,8=24,16=45"]
SAID += ["--ms", "a10g:1=4,4=8,8=12,16=21", "--rate", "500", "--slo", "p99=100"]
TABLE = """Model,GPU,Batch size,p50_ms,p99 (ms),accuracy,price
small,t4,1,5,6,0.70,0.526
small,t4,8,20,22,0.70,0.526
large,t4,1,9,11,0.80,0.526
large,t4,8,50,55,0.80,0.526
"""


@pytest.mark.slow
def test_what_it_writes_is_solved_with_the_batches_that_were_measured(run: Callable[..., Any], tmp_path: Path) -> None:
    ran = run("init", *SAID, "-o", str(tmp_path / "mine"))
    assert ran.code == 0, ran.err
    assert "Assumed" in ran.out
    assert f"hetplan solve {tmp_path / 'mine' / 'profile.json'}" in ran.out
    outcome = hp.solve(tmp_path / "mine" / "profile.json", tmp_path / "mine" / "slo.json")
    plan = outcome.require()
    assert plan.question == "variants"
    # One query at a time four T4s are needed (2.104); by batches of sixteen one A10G is enough.
    assert [(worker.hardware, worker.count) for worker in plan.workers] == [("a10g", 1)]
    assert plan.workers[0].loads[0].serve.max_batch == 16


def test_a_limit_in_seconds_is_noticed(run: Callable[..., Any], tmp_path: Path) -> None:
    ran = run("init", *SAID[:-1], "p99=0.1", "-o", str(tmp_path / "mine"))
    assert ran.code == 0
    assert "the fastest batch takes 4 ms, and 0.1 ms are wanted" in ran.err
    assert "warning" not in run("init", *SAID, "-o", str(tmp_path / "other")).err


def test_times_in_seconds_are_noticed(run: Callable[..., Any], tmp_path: Path) -> None:
    ran = run("init", "--model", "m", "--machine", "t4=1", "--ms", "t4:1=0.009,8=0.031", "--rate", "9",
              "--slo", "p99=80", "-o", str(tmp_path))  # fmt: skip
    assert ran.code == 0
    assert "the slowest batch takes 0.031 ms, and 80 ms are wanted" in ran.err


def test_no_variant_is_fast_enough_is_said_without_a_quality_that_nobody_asked_for(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    said = (
        "init",
        "--model",
        "m",
        "--machine",
        "t4=1",
        "--ms",
        "t4:1=9",
        "--rate",
        "9",
        "--slo",
        "p99=5",
        "-o",
        str(tmp_path),
    )
    assert run(*said).code == 0
    ran = run("solve", str(tmp_path / "profile.json"), str(tmp_path / "slo.json"))
    assert ran.code == 3
    assert "m: no variant meets 5 ms; nearest in time is m with 9 ms" in ran.out


def test_a_table_names_models_qualities_and_prices(run: Callable[..., Any], tmp_path: Path) -> None:
    table = tmp_path / "measured.csv"
    table.write_text(TABLE.replace("p99 (ms)", "p99_ms"))
    ran = run(
        "init", "--latencies", str(table), "--rate", "40", "--slo", "p95=80", "--quality", "0.75", "-o", str(tmp_path)
    )
    assert ran.code == 0, ran.err
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert profile["models"]["large"]["runs"]["t4"]["p99_ms"] == [11, 55]
    assert profile["machines"]["t4"]["price_per_hour"] == 0.526
    slo = json.loads((tmp_path / "slo.json").read_text())
    assert slo["apps"]["app"]["latency"] == {"p95_ms": 80}
    plan = hp.solve(tmp_path / "profile.json", tmp_path / "slo.json").require()
    assert {load.variant for worker in plan.workers for load in worker.loads} == {"large"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_editors_find_the_schemas_beside_the_files(run: Callable[..., Any], tmp_path: Path, kind: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    assert run("init", *SAID, "-o", str(tmp_path), *(["--yaml"] if kind == "yaml" else [])).code == 0
    for name in ("profile", "slo"):
        given = (tmp_path / f"{name}.{kind}").read_text()
        assert f"schema/{name}.json" in given.split("format", 1)[0], "the reference comes first"
        found = json.loads((tmp_path / "schema" / f"{name}.json").read_text())
        document = json.loads(given) if kind == "json" else read_yaml(given, file="given")
        jsonschema.validate(document, found)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**document, "modles": {}}, found)


def test_the_reference_to_a_schema_is_for_editors_and_changes_no_question(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    assert run("init", *SAID, "-o", str(tmp_path)).code == 0
    profile, slo = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("profile", "slo"))
    bare = load_inputs(profile | {"$schema": "elsewhere"}, {key: slo[key] for key in slo if key != "$schema"})
    assert load_inputs(profile, slo).digests == bare.digests
    with pytest.raises(hp.InputError, match=r"\$schema"):
        load_inputs(profile, slo | {"$schema": 3})


def test_files_that_are_there_are_kept(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "slo.json").write_text("mine")
    ran = run("init", *SAID, "-o", str(tmp_path))
    assert ran.code == 2
    assert "there already" in ran.err
    assert (tmp_path / "slo.json").read_text() == "mine"
    assert not (tmp_path / "profile.json").exists()
    assert run("init", *SAID, "-o", str(tmp_path), "--force").code == 0
    assert (tmp_path / "slo.json").read_text() != "mine"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"--rate": None}, "--rate"),
        ({"--rate": "nan"}, "--rate"),
        ({"--rate": "0"}, "--rate"),
        ({"--slo": None}, "--slo"),
        ({"--slo": "p99=-1"}, "--slo"),
        ({"--slo": "p99=inf"}, "--slo"),
        ({"--machine": "t4=free"}, "--machine"),
        ({"--machine": "t4=1:many"}, "--machine"),
        ({"--machine": "=1"}, "--machine"),
        ({"--machine": "h100=4"}, "h100"),
        ({"--ms": "t4:0=6"}, "--ms"),
        ({"--ms": "t4:1=soon"}, "--ms"),
        ({"--ms": "t4:1=nan"}, "--ms"),
        ({"--ms": ":1=6"}, "--ms"),
        ({"--quality": "0.9"}, "--quality"),
        ({"--budget": "much"}, "cost_per_hour"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(
    changes: dict[str, str | None], said: str, run: Callable[..., Any], tmp_path: Path
) -> None:
    given: dict[str, str | None] = {
        "--machine": "t4=0.5",
        "--ms": "t4:1=6",
        "--rate": "5",
        "--slo": "p99=50",
        **changes,
    }
    words = [word for name, value in given.items() if value is not None for word in (name, value)]
    ran = run("init", *words, "-o", str(tmp_path / "mine"))
    assert ran.code == 2
    assert said in ran.err
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("model;hardware;batch;mean_ms\nm;t4;1;9,5\n", "Write 9.5, with a point."),
        ("model,hardware,batch,mean_ms\nm,t4,1,-3\n", "a number above 0"),
        ("model,hardware,batch,mean_ms\n", "a line of latencies"),
        ("model,hardware,speed\nm,t4,3\n", "no such column: speed"),
        ("model,batch,mean_ms\nm,1,3\n", "the column machine"),
        ("model,hardware,batch,mean_ms\nm,t4,1.5,3\n", "line 2, batch"),
        ("model,hardware,batch,mean_ms\nm,t4,1,fast\n", "line 2, mean_ms"),
        ("model,hardware,batch,mean_ms\nm,t4,1,nan\n", "line 2, mean_ms"),
        ("model,hardware,batch,mean_ms\nm,t4,1,\n", "a time in ms"),
        ("model,hardware,batch,mean_ms\nm,,1,3\n", "the machine of this line"),
        ("model,hardware,batch,mean_ms,p99_ms\nm,t4,1,3,\nm,t4,2,,5\n", "one statistic"),
    ],
)
def test_a_wrong_cell_is_named(text: str, said: str, run: Callable[..., Any], tmp_path: Path) -> None:
    table = tmp_path / "measured.csv"
    table.write_text(text)
    ran = run("init", "--latencies", str(table), "--rate", "4", "--slo", "p99=80", "-o", str(tmp_path / "mine"))
    assert ran.code == 2
    assert said in ran.err
    assert not (tmp_path / "mine").exists()


def test_semicolons_and_a_second_statistic(run: Callable[..., Any], tmp_path: Path) -> None:
    table = tmp_path / "measured.csv"
    table.write_text("hardware;batch;mean_ms;std_ms\nT4 (16 GB);1;3;0.2\nT4 (16 GB);2;5;0.3\n")
    ran = run("init", "--model", "m", "--latencies", str(table), "--rate", "4", "--slo", "p99=80", "-o", str(tmp_path))
    assert ran.code == 0, ran.err
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert profile["models"]["m"]["runs"]["t4-16-gb"]["std_ms"] == [0.2, 0.3]
    assert "always takes the time" not in ran.out


def test_yaml_is_written_with_comments_and_solved_as_json_is(run: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("ruamel.yaml")
    for more, name in ((["--yaml"], "yaml"), ([], "json")):
        assert run("init", *SAID, *more, "-o", str(tmp_path)).code == 0
        ran = run("check", tmp_path / f"profile.{name}", tmp_path / f"slo.{name}")
        assert ran.code == 0, ran.err
    text = (tmp_path / "slo.yaml").read_text()
    assert "# - an instance has its machine to itself" in text
    asked = [hp.load(tmp_path / f"profile.{name}", tmp_path / f"slo.{name}") for name in ("yaml", "json")]
    assert asked[0].digests == asked[1].digests


def test_a_repair_is_written_into_a_yaml_file_beside_its_comments(run: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("ruamel.yaml")
    assert run("init", *SAID, "--yaml", "--budget", "0.2", "-o", str(tmp_path)).code == 0
    files = [tmp_path / "profile.yaml", tmp_path / "slo.yaml"]
    ran = run("solve", *files, "--apply-repair", "1", "-o", tmp_path / "changed.yaml")
    assert ran.code == 0, ran.err
    changed = (tmp_path / "changed.yaml").read_text()
    assert "# what may be spent, at most" in changed
    assert run("solve", files[0], tmp_path / "changed.yaml").code == 0


@pytest.mark.parametrize("example", ["pool", "policy", "pipeline"])
def test_an_example_is_a_folder_of_one_question_in_the_format_that_is_asked_for(
    example: str, run: Callable[..., Any], tmp_path: Path
) -> None:
    """Wishes that are shipped beside were copied too, and the folder could not be checked; --yaml wrote JSON."""
    pytest.importorskip("ruamel.yaml")
    for more, ending in (([], "json"), (["--yaml"], "yaml")):
        folder = tmp_path / ending
        assert run("init", "--example", example, *more, "-o", folder).code == 0
        assert {path.name for path in folder.iterdir()} == {f"profile.{ending}", f"slo.{ending}"}
        assert run("check", folder).code == 0
    asked = [hp.load(tmp_path / one / f"profile.{one}", tmp_path / one / f"slo.{one}") for one in ("json", "yaml")]
    assert asked[0].digests == asked[1].digests


@pytest.mark.parametrize("example", ["pool", "variants", "compound"])
def test_an_example_is_copied_and_solved_by_the_next_command(
    example: str, run: Callable[..., Any], tmp_path: Path
) -> None:
    ran = run("init", "--example", example, "-o", str(tmp_path / "mine"))
    assert ran.code == 0, ran.err
    (line,) = [line for line in ran.out.splitlines() if line.startswith("Next: hetplan ")]
    command = line.removeprefix("Next: hetplan ").split()
    assert run(*command, *(["--set", "sizing=fluid"] if example != "compound" else [])).code == 0
    assert (tmp_path / "mine" / "plan.json").exists()
    again = run("init", "--example", example, "-o", str(tmp_path / "mine"))
    assert again.code == 2
    assert "is there already" in again.err


def test_an_example_that_is_not_shipped_is_answered_by_those_that_are(run: Callable[..., Any], tmp_path: Path) -> None:
    ran = run("init", "--example", "shop", "-o", str(tmp_path / "mine"))
    assert ran.code == 2
    assert "--example (found shop)" in ran.err
    assert "fleet, llm" in ran.err
    assert not (tmp_path / "mine").exists()


def test_all_examples_are_copied_where_a_page_names_one_that_is_not_there(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has only the site and a wheel has no folder `examples`."""
    monkeypatch.chdir(tmp_path)
    asked = ("check", "examples/compound/profile.json", "examples/compound/rate-slo.json")
    missed = run(*asked)
    assert missed.code == 2
    command = missed.err.split("`")[1].removeprefix("hetplan ").split()
    assert run(*command).code == 0
    assert run(*asked).code == 0
    assert (tmp_path / "examples" / "scheduler.py").exists()
    assert "holds files already" in run(*command).err


def test_a_price_may_begin_with_its_point() -> None:
    assert read_machine("t4=.5:3").price == "0.5"

"""The commands beside `solve`."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from hetplan.cli.app import build_app
from hetplan.cli.doctor import clashes
from hetplan.cli.long_work import progress
from hetplan.cli.output import Output, Page, printable
from hetplan.cli.plans import differences
from hetplan.compiled import cache_folder, cache_size
from hetplan.planner.contract import Event
from hetplan.registry import IMPORTERS

NAMES = sorted(get_command(build_app()).list_commands(None))  # type: ignore[attr-defined]
ALONE = {"check", "desk", "doctor", "init"}
"""They do something where nothing is named."""
NEED_ARGUMENTS = [name for name in NAMES if name not in ALONE]


def test_hetplan_alone_says_what_to_do_next(run: Callable[..., Any]) -> None:
    ran = run()
    assert ran.code == 0
    assert "hetplan solve" in ran.out


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_an_example(name: str, run: Callable[..., Any]) -> None:
    ran = run(name, "--help")
    assert ran.code == 0
    assert f"hetplan {name}" in ran.out.split("Examples:")[1]


@pytest.mark.parametrize("name", NEED_ARGUMENTS)
def test_a_command_without_its_arguments_shows_help_and_succeeds(name: str, run: Callable[..., Any]) -> None:
    ran = run(name)
    assert ran.code == 0
    assert "Usage" in ran.out


def test_every_command_is_in_the_list(run: Callable[..., Any]) -> None:
    out = run("--help").out
    assert all(name in out for name in NAMES)
    assert set(NAMES) >= ALONE


def test_the_version(run: Callable[..., Any]) -> None:
    from hetplan import __version__

    assert run("--version").out.strip() == f"hetplan {__version__}"


def test_problems(run: Callable[..., Any]) -> None:
    ran = run("list", "problems")
    assert ran.code == 0
    assert "pool-milp" in ran.out
    assert any(line.get("problem") == "pool" for line in run("list", "problems", "--json").lines)


def test_options(run: Callable[..., Any]) -> None:
    ran = run("list", "options", "pool")
    assert ran.code == 0
    assert "derate" in ran.out
    said = [line["option"] for line in run("list", "options", "pool", "--json").lines if "option" in line]
    assert all(option["meaning"] for option in said)


def test_solvers(run: Callable[..., Any]) -> None:
    ran = run("list", "solvers")
    assert ran.code == 0
    assert "highs" in ran.out
    engines = [line["solver"] for line in run("list", "solvers", "--json").lines if "solver" in line]
    assert engines[0] == "highs"


def test_formats(run: Callable[..., Any]) -> None:
    """Each with the command that reads it."""
    listed = {line["format"]: line["command"] for line in run("list", "formats", "--json").lines if "format" in line}
    assert listed.keys() >= {"profile", "slo", "plan", "state", "rates"}
    assert json.loads(run(*listed["slo"].split()[1:]).out)["type"] == "object"


def test_help_has_the_commands_in_four_groups(run: Callable[..., Any]) -> None:
    found = [line.rstrip(":") for line in run("--help").out.splitlines() if line.endswith(":") and line[0] != " "]
    assert found[-4:] == ["Plan", "Look", "Run", "Files"]


def test_doctor_finds_this_installation_in_order(run: Callable[..., Any]) -> None:
    ran = run("doctor")
    assert ran.code == 0, ran.out
    assert "highspy" in ran.out
    assert run("doctor", "--json").lines[-1]["problems"] == []


def test_doctor_names_plugins_and_those_that_do_not_load(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    brought = {"mine": EntryPoint("mine", "json:loads", "hetplan.solvers"),
               "theirs": EntryPoint("theirs", "no_such_module_here:Engine", "hetplan.solvers")}  # fmt: skip
    monkeypatch.setattr("hetplan.registry.entry_points.plugins", lambda group: brought if group == "solvers" else {})
    ran = run("doctor")
    assert ran.code == 1
    assert "plugin mine of json (solvers): loads" in " ".join(ran.out.split())
    assert "no_such_module_here" in ran.out
    assert [one["remedy"] for one in run("doctor", "--json").lines[-1]["problems"]] == [
        "pip install --upgrade no_such_module_here, or uninstall it"
    ]


def test_doctor_says_where_compiled_code_is_kept_and_compiles_ahead(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr("hetplan.registry.compile_ahead", compiled.append)
    monkeypatch.setattr("hetplan.registry.KERNELS", {"one": "", "two": ""})
    least = cache_size()  # other tests may compile meanwhile
    kept = run("doctor", "--json").lines[-2]["compiled"]
    assert kept["folder"] == cache_folder()
    assert least <= kept["bytes"] <= cache_size()
    assert not compiled
    ran = run("doctor", "--compile")
    assert compiled == ["one", "two"]
    assert "2 of 2: compiling two" in ran.err
    assert f"MB in {cache_folder()}" in ran.out.replace("\n", "")


def test_in_a_pipe_only_compiling_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(Output("simulate", as_json=False)) as show:
        show(Event("simulate", "1 of 5 runs", done=0.2))
        show(Event("compile", "compiling: 10 s"))
    assert capsys.readouterr().err == "compiling: 10 s\n"


def test_doctor_knows_what_clashes() -> None:
    wanted = {"highspy": ">=1.12,!=1.12.7,<1.14", "numpy": ">=1.26"}

    def faults(python: tuple[int, ...] = (3, 11), **versions: str | None) -> str:
        return " | ".join(fault for fault, _ in clashes(versions, python=python, wanted=wanted))

    assert not faults(highspy="1.13.1", ortools="9.15")
    assert "cannot share a process" in faults(highspy="1.15.0", ortools="9.15")
    assert "cannot share a process" not in faults(highspy="1.15.0", ortools=None)
    assert "cannot share a process" not in faults(highspy="1.16.0", ortools="9.15")
    assert "highspy 1.15.0 is outside" in faults(highspy="1.15.0")
    assert "highspy 1.12.7 is outside" in faults(highspy="1.12.7")
    assert "highspy 1.9.0 is outside" in faults(highspy="1.9.0")
    assert not faults(highspy="1.12.0rc1")
    assert "numpy is missing" in faults(numpy=None)
    assert not faults(numpy="2.4.6", torch=None)
    assert "too old" in faults(python=(3, 9))


@pytest.mark.parametrize("kind", ["profile", "slo", "plan", "state"])
def test_schemas_are_json(kind: str, run: Callable[..., Any]) -> None:
    ran = run("check", "--schema", kind)
    assert ran.code == 0
    assert json.loads(ran.out)["type"] == "object"


def test_check_has_nothing_to_say_about_good_files(files: Any, run: Callable[..., Any]) -> None:
    ran = run("check", files.profile, files.slo)
    assert ran.code == 0, ran.err
    assert "1 application, " in ran.out
    assert "machine type" in ran.out
    assert not re.search("hardware|variant|table", ran.out)
    alone = run("check", files.profile)
    assert (alone.code, alone.out.partition(":")[0]) == (0, "nothing to mend")


def test_check_refuses_what_solving_would_refuse(run: Callable[..., Any], tmp_path: Path) -> None:
    profile = {
        "format": "hetplan/profile/1.0",
        "metrics": {"f1": {"range": [0, 1]}},
        "hardware": {"t4": {"kind": "gpu"}},
        "pipelines": {
            "ocr": {"nodes": {"read": {"device": "gpu", "reads": ["model"]}}, "knobs": {"model": ["s"]}, "metric": "f1"}
        },
    }
    app = {"pipeline": "ocr", "latency": {"p95_ms": 500}, "quality": {"min": 0.7}}
    slo = {"format": "hetplan/slo/1.0", "apps": {"docs": {**app, "streams": 1}}}
    for name, text in (("profile", profile), ("slo", slo)):
        (tmp_path / f"{name}.json").write_text(json.dumps(text))
    ran = run("check", tmp_path / "profile.json", tmp_path / "slo.json")
    assert ran.code == 2
    assert "$.tiers" in ran.err


def test_check_finds_faults(files: Any, run: Callable[..., Any]) -> None:
    files.slo_with(lambda slo: slo["apps"]["rank"]["latency"].update(p99_ms=-1))
    ran = run("check", files.profile, files.slo)
    assert ran.code == 2
    assert "p99_ms" in ran.err


def test_a_plan_verifies_and_shows(files: Any, run: Callable[..., Any]) -> None:
    assert run(*files.solve, "-o", files.plan).code == 0
    ran = run("verify", files.plan, files.profile, files.slo)
    assert ran.code == 0, ran.out
    assert "verified" in ran.out
    assert run("verify", files.plan, files.profile, files.slo, "--json").lines[-1]["checked"]
    shown = run("show", files.plan, "--view", "all")
    assert shown.code == 0
    assert "base " in shown.out
    assert run("show", "-", "--view", "all", stdin=files.plan.read_text()).out == shown.out
    views = ("machines", "routes", "proof", "warnings", "changes")
    parts = [run("show", files.plan, "--view", view).out for view in views]
    assert shown.out.partition("\n")[2] == "".join(parts), "the views are the parts of the whole"
    for view in ("hours", "policies", "bill"):
        assert f"The plan has no {view}: only plans" in run("show", files.plan, "--view", view).out
    assert run("show", files.plan, "--view", "nothing").code == 2
    assert run("show", files.plan, files.profile).code == 2
    plan = json.loads(files.plan.read_text())
    assert [line.split()[1] for line in _under("From what runs", shown.out)] == [one["do"] for one in plan["actions"]]
    plan["periods"][0]["actions"] = [{"id": 1, "do": "stop", "worker": "w7", "count": 2}]
    changed = run("show", "-", "--view", "changes", stdin=json.dumps(plan)).out
    assert [line.split() for line in _under("What starts and stops for each period", changed)] == [
        [plan["periods"][0]["id"], "stop", "w7", "2", "-"]
    ]


def _under(heading: str, text: str) -> list[str]:
    """The rows of a table."""
    return text.split(f"{heading}\n")[1].split("\n\n")[0].splitlines()[1:]


def test_a_plan_against_other_inputs_fails_verification(files: Any, run: Callable[..., Any]) -> None:
    assert run(*files.solve, "-o", files.plan).code == 0
    files.slo_with(lambda slo: slo["limits"].update(cost_per_hour="1"))
    ran = run("verify", files.plan, files.profile, files.slo, "--json")
    assert ran.code == 6
    assert any("violation" in line for line in ran.lines)


def test_show_does_not_obey_a_plan(files: Any, run: Callable[..., Any]) -> None:
    assert run(*files.solve, "-o", files.plan).code == 0
    plan = json.loads(files.plan.read_text())
    plan["warnings"] = [{"code": "W-evil", "at": "", "text": "\x1b[2Jgone"}]
    plan["summary"]["warnings"] = [["W-evil", 1, "\x1b[2Jwent"]]
    plan["summary"]["machines"][0]["model"] = "\x1b[2Jleft"
    files.plan.write_text(json.dumps(plan))
    for view, words in (("summary", ("went", "left")), ("warnings", ("gone",)), ("machines", ("left",))):
        ran = run("show", files.plan, "--view", view)
        assert ran.code == 0
        assert "\x1b" not in ran.out
        assert all(word in ran.out for word in words)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"format": "hetplan/plan/9.0"}', '{"format": 7}', "{"])
def test_what_is_no_plan_is_refused(text: str, files: Any, run: Callable[..., Any]) -> None:
    files.plan.write_text(text)
    for command in (["show", files.plan], ["diff", files.plan, files.plan]):
        ran = run(*command)
        assert ran.code == 2
        assert "plan.json" in ran.err


def test_diff_tells_what_runs_from_what_is_reported(files: Any, run: Callable[..., Any]) -> None:
    other = files.folder / "other.json"
    assert run(*files.solve, "-o", files.plan).code == 0
    files.slo_with(lambda slo: slo["limits"].update(cost_per_hour="4"))
    assert run(*files.solve, "-o", other).code == 0
    ran = run("diff", files.plan, other)
    assert "What runs:" in ran.out
    assert "What is said about it:" in ran.out
    assert any(
        line.get("difference", {}).get("at", "").startswith("workers[")
        for line in run("diff", files.plan, other, "--json").lines
    )
    assert "the plans are the same" in run("diff", files.plan, files.plan).out


def test_several_plans_stand_side_by_side(files: Any, run: Callable[..., Any]) -> None:
    paths = [files.folder / f"plan-{rate}.json" for rate in (50, 100, 150)]
    for rate, path in zip((50, 100, 150), paths, strict=True):
        files.slo_with(lambda slo, rate=rate: (slo["apps"]["rank"].update(rate_qps=rate), slo.pop("limits")))
        assert run(*files.solve, "--set", "sizing=fluid", "-o", path).code == 0
    ran = run("diff", *paths, "--exit-code")
    assert ran.code == 8
    head, *rows = ran.out.splitlines()
    assert all(str(path) in head for path in paths)
    assert {"status", "formulation"} <= {row.split()[0] for row in rows if row}
    shown = [line["row"] for line in run("diff", *paths, "--json").lines if "row" in line]
    (cost,) = [one["values"] for one in shown if one["name"] == "cost per hour"]
    costs = [float(cost[str(path)]) for path in paths]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]
    assert not any("_" in one["name"] for one in shown)
    twos = json.loads(paths[0].read_text())
    twos["status"] = "best-of-measured"
    twos["claims"] = [{**one, "gap": 0.5} for one in twos["claims"]]
    for one in twos["summary"]["machines"]:
        one["replicas"] = 2
    paths[1].write_text(json.dumps(twos))
    shown = [line["row"] for line in run("diff", *paths, "--json").lines if "row" in line]
    names = {one["name"]: one["values"][str(paths[1])] for one in shown}
    assert names["status"] == "feasible"
    assert any(" 2 x " in name and count != "-" for name, count in names.items())
    assert run("diff", paths[0], paths[0], paths[0], "--exit-code").code == 0


def test_differences_of_plain_values() -> None:
    assert list(differences({"a": True}, {"a": 1})) == [("a", True, 1)]
    assert list(differences([1, 2], [1, 3], "x")) == [("x", [1, 2], [1, 3])]
    twins = [{"id": "w"}, {"id": "w"}]
    assert list(differences(twins, deepcopy(twins))) == []
    assert list(differences({}, {"new": None})) == []


@pytest.mark.parametrize("form", ["lp", "mps"])
def test_a_rendered_program_reads_back_with_the_same_optimum(
    form: str, files: Any, run: Callable[..., Any], tmp_path: Path
) -> None:
    import highspy

    path = tmp_path / f"pool.{form}"
    assert run("render", files.profile, files.slo, "--to", form, "-o", path).code == 0
    engine = highspy.Highs()
    engine.setOptionValue("output_flag", False)
    assert engine.readModel(str(path)) == highspy.HighsStatus.kOk
    engine.run()
    assert engine.getInfo().objective_function_value == pytest.approx(160, rel=1e-6)
    text = path.read_text()
    assert "base" in text
    assert run("render", files.profile, files.slo, "--to", form).out == text


@pytest.mark.slow
def test_the_programs_of_a_problem_are_counted(files: Any, run: Callable[..., Any]) -> None:
    ran = run("render", files.profile, files.slo, "--to", "lp", "--set", "ask=99")
    assert ran.code == 2
    assert "Choose a number from 1 to" in ran.err


def test_import_writes_both_files_and_never_over_others(run: Callable[..., Any], tmp_path: Path) -> None:
    source = tmp_path / "broken.json"
    source.write_text("{")
    ran = run("import", source, "--as", "melange", "-o", tmp_path / "out")
    assert ran.code == 2
    assert not (tmp_path / "out").exists()


def test_a_page_lines_up_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    Page().table(("name", "count"), [("a", 1), ("long", 20)], right=["count"])
    assert capsys.readouterr().out == "  name  count\n  a         1\n  long     20\n"


class Terminal(io.StringIO):
    """A stream at whose other end a person sits."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_rich_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    page = Page(stream=terminal)
    page.heading("Workers")
    page.table(("name", "count"), [("[bold]a[/bold]", 1), ("\x1b[2J", 20)], right=["count"])
    said = terminal.getvalue()
    assert "\x1b[" in said, "colours"
    assert "[bold]a[/bold]" in said, "what looks like markup is text"
    assert "\x1b[2J" not in said


@pytest.mark.slow
def test_the_shell_completes_commands_and_engines(monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]) -> None:
    def complete(words: str) -> set[str]:
        monkeypatch.setenv("_HETPLAN_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        code = "import sys; sys.argv = ['hetplan']; from hetplan.cli import main; main()"
        return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split())

    assert complete("hetplan so") == {"solve"}
    assert "mathopt-scip" in complete("hetplan solve p.json s.json --solver m")
    assert complete("hetplan list options poo") == {"pool"}


def test_a_muted_page_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page(muted=True)
    page.line("x")
    page.heading("x")
    page.table(("x",), [("y",)])
    assert capsys.readouterr().out == ""


def test_control_characters_never_reach_a_terminal() -> None:
    assert printable("ok\n\tok") == "ok  ok", "nor a line that somebody else wrote"
    assert printable("\x07\x9b\u202e") == "???"


def test_help_names_every_kind(run: Callable[..., Any]) -> None:
    said = run("import", "--help").out.replace(",", " ").split()
    assert set(IMPORTERS) <= set(said)


def test_laws_are_listed_by_words(run: Callable[..., Any]) -> None:
    ran = run("list", "laws", "qwen3-30b-a3b", "h200", "vllm", "bf16", "--json")
    assert ran.code == 0
    said = [json.loads(line) for line in ran.out.splitlines()]
    laws = [one for one in said if "law" in one]
    assert {one["engine"]["gpus"] for one in laws} == {"1", "2", "4", "8"}
    assert all(one["law"]["experts_ms"] > 1.0 for one in laws)
    none = run("list", "laws", "qwen9")
    assert none.code == 2
    assert "no law is of all of these" in none.err


def test_a_profile_alone_is_checked_for_what_its_laws_rest_on(run: Callable[..., Any], tmp_path: Path) -> None:
    law = "catalogue/vllm/llama-3.1-8b/bf16/h100x1"
    path = tmp_path / "profile.json"
    path.write_text(
        json.dumps(
            {
                "format": "hetplan/profile/1.0",
                "machines": {"h100": {}},
                "models": {"e": {"runs": {"h100": {"law": law}}}},
            }
        )
    )
    ran = run("check", path)
    assert ran.code == 0
    assert all(word in ran.out for word in ("models.e.runs.h100", "grid", "12.0%", "+-8%", "aiconfigurator"))

"""The server for agents, asked by the protocol's own client, as an agent's host starts it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from tests.build import shipped

mcp = pytest.importorskip("mcp", reason="needs the extra mcp")

ROOT = Path(__file__).resolve().parents[2]
POOL = ROOT / "examples" / "pool"
PLANNED = {"sizing": "fluid"}
pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the example's files, and beside it one that is nobody's business."""
    (tmp_path / "secret.json").write_text('{"format": "hetplan/slo/1.0", "secret": 1}')
    here = tmp_path / "here"
    here.mkdir()
    for name in ("profile.json", "slo.json"):
        shutil.copy(POOL / name, here)
    (here / "link.json").symlink_to(tmp_path / "secret.json")
    return here


def asked(folder: Path, *calls: tuple[str, dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """The tools that there are, and what each call is answered."""
    from mcp.client.stdio import StdioServerParameters

    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    started = StdioServerParameters(
        command=sys.executable, args=["-m", "hetplan.cli.mcp_server"], cwd=str(folder), env=env
    )

    async def talk() -> tuple[list[Any], list[Any]]:
        async with mcp.Client(started) as client:
            tools = (await client.list_tools()).tools
            return list(tools), [await client.call_tool(name, given) for name, given in calls]

    return asyncio.run(talk())


def test_an_agent_plans_verifies_and_asks_why(folder: Path) -> None:
    named = {"profile": "profile.json", "slo": "slo.json"}
    sent = {name: json.loads((folder / file).read_text()) for name, file in named.items()}
    plan = hp.solve(*sent.values(), options=PLANNED).as_dict()["plan"]
    (folder / "plan.json").write_text(json.dumps({**plan, "workers": plan["workers"][1:]}))
    tools, (by_name, by_document, verified, spoilt, along, why) = asked(
        folder,
        ("solve", {**named, "options": PLANNED}),
        ("solve", {**sent, "options": PLANNED}),
        ("verify", {**sent, "plan": plan}),
        ("verify", {**named, "plan": "plan.json"}),
        ("whatif", {**named, "vary": ["budget=2.5:3:2"]}),
        ("explain", {**sent, "plan": plan}),
    )
    assert {tool.name for tool in tools} == {"solve", "verify", "whatif", "explain"}
    assert all(tool.description and "slo" in tool.input_schema["required"] for tool in tools)
    answers = [one.structured_content for one in (by_name, by_document, verified, along, why)]
    assert not any(one.is_error for one in (by_name, by_document, verified, along, why))
    assert answers[0]["plan"]["workers"] == answers[1]["plan"]["workers"] == plan["workers"]
    assert answers[0]["summary"]
    assert answers[2]["ok"]
    assert answers[3]["segments"]
    assert answers[4]["others"]
    assert spoilt.is_error or not spoilt.structured_content["ok"]


def test_what_is_wrong_is_said_as_every_command_says_it(folder: Path) -> None:
    slo = shipped(folder / "slo.json")
    slo["apps"]["ranking"]["latency"] = {"p99_ms": -1}
    with pytest.raises(hp.InputError) as said:
        hp.solve(folder / "profile.json", slo)
    _, (answer,) = asked(folder, ("solve", {"profile": "profile.json", "slo": slo}))
    assert answer.is_error
    for fault in said.value.faults:
        assert fault.path in answer.content[0].text
        assert fault.remedy in answer.content[0].text


@pytest.mark.parametrize("tool", ["solve", "whatif"])
def test_a_file_that_is_no_object_is_refused(tool: str, folder: Path) -> None:
    (folder / "list.json").write_text("[]")
    more = {"vary": ["budget=1:2"]} if tool == "whatif" else {}
    _, (answer,) = asked(folder, (tool, {"profile": "list.json", "slo": "slo.json", **more}))
    assert answer.is_error
    assert "no JSON object" in answer.content[0].text


def test_nothing_outside_the_folder_is_opened(folder: Path) -> None:
    outside = [
        "../secret.json",
        str(folder.parent / "secret.json"),
        "link.json",
        "-",
        ".",
        "/dev/stdin",
        "a\0b",
        "x" * 5000,
    ]
    calls = [("solve", {"profile": name, "slo": "slo.json"}) for name in outside]
    _, answers = asked(folder, *calls)
    assert len(answers) == len(outside)
    for answer in answers:
        assert answer.is_error
        assert "no file of the folder that this server works in" in answer.content[0].text
        assert 'secret"' not in answer.content[0].text


def test_measurements_are_read_beside_a_profile_that_is_a_file(folder: Path) -> None:
    net = {"format": "hetplan/profile/1.0", "machines": {"t4": {"price_per_hour": 1}}, "measurements": "times.csv"}
    wish = {"model": "net", "rate_qps": 50, "latency": {"p99_ms": 200}}
    slo = {"format": "hetplan/slo/1.0", "objective": ["min cost"], "apps": {"web": wish}}
    (folder / "net.json").write_text(json.dumps(net))
    (folder / "times.csv").write_text("model,machine,batch,mean_ms\nnet,t4,1,6\n")
    _, (named, sent) = asked(folder, *(("solve", {"profile": one, "slo": slo}) for one in ("net.json", net)))
    assert not named.is_error, named.content[0].text
    assert "give the profile as a file" in sent.content[0].text

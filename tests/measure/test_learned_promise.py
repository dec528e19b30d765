"""A plan whose profile is wrong: load says so, learns, and what is planned from the new profile keeps its promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hetplan.cli.app import build_app
from hetplan.profiles.load_one import load_profile

PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "hardware": {"m": {"kind": "cpu"}},
    "offers": {"m": {"hardware": "m", "price_per_hour": "1"}},
    "tasks": {"rank": {}},
    "variants": {"v": {"task": "rank", "runs": [{"hardware": "m", "latency": "v-m"}]}},
    "tables": {"v-m": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [16], "std": [2]}},
}
SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0",
    "objective": ["min cost"],
    "apps": {
        "rank": {
            "model": "v",
            "latency": {"p90_ms": 150},
            "rate_qps": 40,
            "mix": {"axes": ["batch"], "bins": [[1]], "share": [1]},
            "network_ms_per_hop": 1,
        }
    },
}
# What runs here is three times as slow as the profile says.
HOSTS = """
files = ["profile.json", "slo.json"]
router = { port = 0 }
[targets.here]
kind = "local"
[hosts.box]
target = "here"
machines = ["m"]
count = 8
[models."*"]
kind = "sleep"
times = 3
"""


def run(*words: object) -> tuple[int, dict[str, Any]]:
    ran = CliRunner().invoke(build_app(), [*(str(word) for word in words), "--json"])
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert lines, ran.output
    return ran.exit_code, lines[-1]


@pytest.mark.longest
def test_what_was_learned_is_planned_with_and_then_the_promise_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in (("profile.json", PROFILE), ("slo.json", SLO)):
        Path(name).write_text(json.dumps(content))
    Path("site.toml").write_text(HOSTS)

    def loaded(profile: str, *more: str) -> tuple[int, dict[str, Any], int]:
        assert run("solve", profile, "slo.json", "--formulation", "pool", "-o", "plan.json")[0] == 0
        machines = sum(worker["count"] for worker in json.loads(Path("plan.json").read_text())["workers"])
        code, said = run("apply", "plan.json", "--site", "site.toml", "--yes")
        assert code == 0, said
        how = ("--endpoint", said["endpoint"], "--duration", "8", "--tolerance", "40")
        code, said = run("loadtest", "plan.json", profile, "slo.json", *how, *more)
        return code, said["report"], machines

    try:
        code, report, first = loaded("profile.json", "--learn", "learned.json")
        assert code in (6, 9), "the profile was wrong by three times"
        assert report["disagreeing"]
        learned = load_profile("learned.json")
        table = learned.tables[learned.variants["v"].runs[0].latency or ""]
        assert table.mean is not None
        assert table.mean[0] == pytest.approx(48, rel=0.1)
        code, report, second = loaded("learned.json")
        assert (code, report["ok"], report["disagreeing"]) == (0, True, [])
        assert second > first
        assert run("loadtest", "plan.json", "learned.json", "slo.json", "--endpoint", "http://127.0.0.1:9",
                   "--learn", "learned.json")[0] == 2  # fmt: skip
    finally:
        run("down", "--site", "site.toml", "--yes")

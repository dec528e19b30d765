"""Whatever a command reads, a file that is not what it should be ends with exit 2, and the message names the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build import tiny
from face import EXIT, FLAGS, READING, command, solve

SPOILT = {
    "absent": None,
    "empty": "",
    "not-json": "{",
    "a-list": "[]",
    "another-format": '{"format": "somebody/else/1.0"}',
    "nan": '{"format": "hetplan/profile/1.0", "x": NaN}',
    "deep": "[" * 100_000,
    "a-folder": ...,
}
"""What stands in the place of a file."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The sound files of a small pool, by kind."""
    folder = tmp_path_factory.mktemp("sound")
    wish = tiny("pool")
    profile, slo = wish.write(folder)
    plan = folder / "plan.json"
    plan.write_text(json.dumps(solve(wish, "fluid").plan))
    return {"plan": str(plan), "profile": profile, "slo": slo}


@pytest.mark.quick_sample(48)
@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("name", READING)
def test_a_spoilt_file_is_named(name: str, spoilt: str, sound: dict[str, str], tmp_path: Path) -> None:
    for place in range(len(READING[name])):
        path = tmp_path / f"spoilt-{place}.json"
        if SPOILT[spoilt] is ...:
            path.mkdir()
        elif SPOILT[spoilt] is not None:
            path.write_text(SPOILT[spoilt])
        given = [sound[kind] for kind in READING[name]]
        given[place] = str(path)
        ran = command(name, *given, *FLAGS.get(name, ()))
        assert ran.code == EXIT["bad input"], (place, ran)
        assert path.name in ran.err + ran.out, (place, ran)

"""Whatever a command reads, a file that is not what it should be ends with exit 2, and the message names the file."""

from __future__ import annotations

import json
import os
import threading
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


@pytest.mark.parametrize("name", ["solve", "verify", "check", "explain", "show"])
def test_files_come_in_any_order_and_a_folder_stands_for_them(name: str, sound: dict[str, str], tmp_path: Path) -> None:
    """Each file says what it is, also a state and measurements, and what is no file of hetplan is passed over."""
    given = [sound[kind] for kind in dict.fromkeys(("plan", *READING[name])) if kind in READING[name]]
    there = command(name, *given)
    assert there.code == EXIT["ok"], there
    for one in given:
        (tmp_path / Path(one).name).write_bytes(Path(one).read_bytes())
    (tmp_path / "notes.json").write_text('{"format": "somebody/else/1.0"}')
    (tmp_path / "picture.svg").write_text("<svg/>")
    assert command(name, *reversed(given)).out == there.out
    assert command(name, tmp_path).out.replace(str(tmp_path / "plan.json"), sound["plan"]) == there.out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("solve", "profile"), "SLO"),
        (("solve", "slo"), "profile"),
        (("solve", "profile", "slo", "slo"), "a second SLO file"),
        (("solve", "plan", "profile", "slo"), "does not take"),
        (("verify", "profile", "slo"), "a plan file is needed"),
        (("verify", "plan", "plan", "profile", "slo"), "a second plan file"),
        (("show", "plan", "slo"), "or neither"),
    ],
)
def test_too_few_and_too_many_files_are_named(given: tuple[str, ...], said: str, sound: dict[str, str]) -> None:
    name, *kinds = given
    ran = command(name, *(sound[kind] for kind in kinds))
    assert ran.code == EXIT["bad input"]
    assert said in ran.err + ran.out, ran


def test_what_is_named_counts_before_what_is_in_a_folder(sound: dict[str, str], tmp_path: Path) -> None:
    """One file in both is one file; and a plan or a state in a folder is read only where it is of use."""
    for kind in ("profile", "slo", "plan"):
        (tmp_path / f"{kind}.json").write_bytes(Path(sound[kind]).read_bytes())
    (tmp_path / "state.json").write_text('{"format": "hetplan/state/1.0"}')
    assert command("check", tmp_path / "slo.json", tmp_path).code == EXIT["ok"]
    assert command("verify", tmp_path / "plan.json", tmp_path).code == EXIT["ok"], "its state is not the plan's"
    other = tmp_path / "other.json"
    other.write_bytes((tmp_path / "slo.json").read_bytes())
    ran = command("check", tmp_path)
    assert ran.code == EXIT["bad input"]
    assert "other.json" in ran.err
    assert "slo.json" in ran.err, "both are named"
    assert command("check", other, tmp_path).code == EXIT["ok"]


@pytest.mark.parametrize(
    "text",
    [
        '{{"extensions": {{"note": {{"format": "hetplan/profile/1.0"}}}}, {0}}}',
        '{{{0}, "extensions": {{"note": {{"format": "hetplan/profile/1.0"}}}}}}',
    ],
)
def test_the_format_at_the_top_says_what_a_file_is(text: str, sound: dict[str, str], tmp_path: Path) -> None:
    inside = Path(sound["slo"]).read_text().strip()[1:-1]
    (tmp_path / "slo.json").write_text(text.format(inside))
    ran = command("check", sound["profile"], tmp_path / "slo.json")
    assert "a profile and an SLO file are needed" not in ran.err + ran.out, ran


def test_a_pipe_is_read_once(sound: dict[str, str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(Path(sound["profile"]).read_bytes()))
    writer.start()
    ran = command("check", pipe, sound["slo"])
    writer.join()
    assert ran.code == EXIT["ok"], ran

"""Documents are untrusted: none chooses a path, and none writes a line of a page that hetplan did not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from build import PROBLEMS, example, random_files, tiny
from face import (
    EXIT,
    Option,
    Refused,
    command,
    forged,
    options,
    solve,
    starved,
    unlimited,
    verify,
    with_option,
)

CLOSED = re.compile(
    r"(integer|number)( (>=|>|<=|<) [-\d.e+]+(, (<=|<) [-\d.e+]+)?)?|none|name|\{name: .*\}|[a-z0-9][a-z0-9/._-]*"
)
"""Numbers with their ends, switches, names of things in the files, and words of a list."""
OPEN = ("text", "value", "object", "list", "string")


@pytest.fixture(scope="module")
def listed() -> list[Option]:
    return options()


def test_no_option_of_a_problem_takes_free_text(listed: list[Option]) -> None:
    assert {one.problem for one in listed} > set(PROBLEMS)
    free = [
        one
        for one in listed
        if any(word in OPEN or not CLOSED.fullmatch(word) for word in one.takes.split("|"))
    ]  # fmt: skip
    assert not free


def test_an_option_that_takes_a_name_refuses_a_path(listed: list[Option], tmp_path: Path) -> None:
    """Also as the key of a mapping, and within the options of a part of a fleet; and nothing is written."""
    named = {(one.problem, one.name): one for one in listed if "name" in one.takes}
    assert len(named) >= 3
    for one in named.values():
        wish = example("compound") if one.problem == "compound" else tiny(one.problem)
        for path in (str(tmp_path / "chosen"), "../chosen", "a/b"):
            for value in (path, {path: 1}, {"any": path}, {wish.apps[0]: {"checkpoint": path}}):
                with pytest.raises(Refused):
                    solve(wish, "fluid", problem=one.problem, formulation=one.formulation, options={one.name: value})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("problem", "name"),
    [("pool", "checkpoint"), ("pool", "file"), pytest.param("policy", "checkpoint", marks=pytest.mark.slow)],
)
def test_a_plan_chooses_no_file(problem: str, name: str, tmp_path: Path) -> None:
    wish, chosen = tiny(problem), tmp_path / "chosen"
    evil = with_option(solve(wish, "fluid").plan, name, str(chosen))
    (tmp_path / "plan.json").write_text(json.dumps(evil))
    ran = command("explain", tmp_path / "plan.json", *wish.write(tmp_path))
    assert ran.code == EXIT["bad input"], ran
    assert name in ran.err
    assert not chosen.exists()


BREAKS = {"newline": "\n", "return": "\r", "tab-line": "\x0b", "next-line": "\x85", "separator": "\u2028",
          "paragraph": "\u2029", "escape": "\x1b[1A", "backspace": "\b" * 9, "override": "\u202e"}  # fmt: skip
FORGED = "verified: no violations"


def texts(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a document holds text."""
    if isinstance(document, str):
        yield at
    elif isinstance(document, Mapping | list):
        parts = document.items() if isinstance(document, Mapping) else enumerate(document)
        for key, one in parts:
            yield from texts(one, (*at, key))


def spoiler(at: tuple[Any, ...], text: str) -> Callable[[Any], None]:
    def write(document: Any) -> None:
        *way, last = at
        for key in way:
            document = document[key]
        document[last] = f"{document[last]}{text}"

    return write


def check_no_line_is_forged(said: str) -> None:
    lines = re.split("[\n\r\x0b\x0c\x85\u2028\u2029]", said)
    assert not [line for line in lines if line.strip().startswith(FORGED)]
    assert not [
        letter for letter in said if letter != "\n" and (ord(letter) < 32 or letter in "\x85\u2028\u2029\u202e")
    ]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("problem", ["variants", "pool", "pipeline", "llm", "fleet"])
def test_no_text_of_a_plan_writes_a_line_of_its_own(problem: str, tmp_path: Path) -> None:
    """Every place of a plan that holds text in turn, each with another letter: shown as one line, or refused."""
    wish = random_files(problem, 1)
    plan = solve(wish, "fluid").plan
    assert plan is not None
    plan = forged(plan, lambda one: one.setdefault("warnings", []).append({"code": "W-any", "at": "x", "text": "said"}))
    places, shown = list({_kind(at): at for at in texts(plan)}.values()), 0
    for number, at in enumerate(places):
        spoilt = deepcopy(plan)
        spoiler(at, f"{list(BREAKS.values())[number % len(BREAKS)]}{FORGED}")(spoilt)
        (tmp_path / "plan.json").write_text(json.dumps(spoilt))
        ran = command("show", tmp_path / "plan.json")
        shown += ran.code == EXIT["ok"]
        check_no_line_is_forged(ran.out + ran.err)
    assert shown >= 3


@pytest.mark.quick_cases(len(BREAKS))
@pytest.mark.parametrize("letters", BREAKS)
@pytest.mark.parametrize("name", ["show", "verify", "diff", "explain"])
def test_a_warning_writes_no_line_of_its_own(name: str, letters: str, tmp_path: Path) -> None:
    wish = tiny("pool")
    plan = solve(wish, "fluid").plan
    text = f"mind this{BREAKS[letters]}{FORGED}"

    def warn(document: Any) -> None:
        document["warnings"] = [{"code": "W-any", "at": f"x{BREAKS[letters]}{FORGED}", "text": text}]

    (tmp_path / "plan.json").write_text(json.dumps(forged(plan, warn)))
    given = {"show": (), "diff": (tmp_path / "plan.json",)}.get(name) or wish.write(tmp_path)
    ran = command(name, tmp_path / "plan.json", *(given if name != "show" else ()))
    check_no_line_is_forged(ran.out + ran.err)
    assert name != "show" or "mind this" in ran.out


@pytest.mark.parametrize("letters", ["newline", "escape", "separator"])
def test_no_name_in_a_file_that_is_refused_writes_a_line_of_its_own(letters: str, tmp_path: Path) -> None:
    wish = tiny("pool")
    paths = wish.write(tmp_path)
    for at in [("hardware",), ("offers",), ("tables",), ("variants",), ()]:
        spoilt = deepcopy(wish.profile)
        inner = spoilt
        for key in at:
            inner = inner[key]
        inner[f"x{BREAKS[letters]}{FORGED}"] = f"y{BREAKS[letters]}{FORGED}"
        Path(paths[0]).write_text(json.dumps(spoilt))
        ran = command("check", *paths)
        assert ran.code == EXIT["bad input"], ran
        check_no_line_is_forged(ran.out + ran.err)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("problem", ["pool", "llm", "variants", "pipeline", "fleet",
                                     pytest.param("policy", marks=pytest.mark.slow)])  # fmt: skip
def test_a_plan_says_up_to_which_rate_it_holds(problem: str) -> None:
    """Whoever runs a plan takes silence for any rate."""
    wish = random_files(problem, 1)
    plan = solve(wish, "fluid").plan
    assert plan is not None
    assert verify(plan, wish, simulate=False).is_ok
    for silent in unlimited(plan):
        found = verify(silent, wish, simulate=False)
        assert any("any rate" in one for one in found.findings)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("problem", ["pool", "llm", "variants", "pipeline", "fleet",
                                     pytest.param("policy", marks=pytest.mark.slow)])  # fmt: skip
@pytest.mark.parametrize("of", ["GPUs", "cores"])
def test_no_load_is_held_to_less_than_it_was_measured_with(problem: str, of: str) -> None:
    wish = random_files(problem, 1)
    plan = solve(wish, "fluid").plan
    assert plan is not None
    found = verify(starved(plan, of), wish, simulate=False)
    assert any("a share of" in one for one in found.findings)


def _kind(at: tuple[Any, ...]) -> tuple[Any, ...]:
    """Places that are alike: one of a list stands for all."""
    return tuple(0 if isinstance(key, int) else key for key in at)

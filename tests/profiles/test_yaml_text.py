"""YAML says what JSON says: the same documents, the same digests, comments kept, everything else refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.profiles.load_one import load_slo
from hetplan.profiles.yaml_text import edited_yaml, read_yaml, write_yaml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted([*(ROOT / "examples").glob("*/*profile.json"), *(ROOT / "examples").glob("*/*slo.json")])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_example_is_the_same_document_in_yaml(path: Path) -> None:
    document = json.loads(path.read_text())
    assert read_yaml(write_yaml(document), file="x") == document


def test_a_plan_is_the_same_from_either(tmp_path: Path) -> None:
    files = [ROOT / "examples" / "pool" / f"llm-{name}.json" for name in ("profile", "slo")]
    written = []
    for path in files:
        written.append(tmp_path / f"{path.stem}.yaml")
        written[-1].write_text(write_yaml(json.loads(path.read_text()), {(): "by hand", ("format",): "its format"}))
    assert hp.solve(*written).require() == hp.solve(*files).require()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yesterday", "yesterday"),
        ("'yes'", "yes"),
        ('"on"', "on"),
        ("2024-01-01", "2024-01-01"),
        ("012", "012"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("1.50", 1.5),
        ("1e3", 1000.0),
        ("'1'", "1"),
        ("~", None),
        (".inf", ".inf"),
        ("-7", -7),
        ("true", True),
        ("|\n  a\n  b", "a\nb\n"),
    ],
)
def test_scalars_are_read_by_the_rules_of_json(text: str, value: Any) -> None:
    found = read_yaml(f"a: {text}\n", file="x")["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &x 1\nb: *x\n", r"\$\.a \(line 1, column 4\): no anchors"),
        ("a: !thing 1\n", "is a tag"),
        ("a: !!python/name:os.system ''\n", "is a tag"),
        ("a: 1\nb: 2\na: 3\n", r"\$\.a \(line 3, column 1\): every key once"),
        ("a: yes\n", r'\$\.a \(line 1, column 4\): text in quotes; older YAML reads yes.*Write "yes"\.'),
        ("a: True\n", 'Write "True" or true'),
        ("a: Null\n", 'other YAML reads Null as null.*Write "Null" or null'),
        ("a: [NULL]\n", 'Write "NULL" or null'),
        ("true: 1\n", r'Write "true"\.$'),
        ("a: {null: 1}\n", r'Write "null"\.$'),
        ('a: ["\\ud800"]\n', "whole Unicode characters"),
        ("a:\n  on: 1\n", r'\$\.a\.on \(line 2, column 3\): text in quotes.*Write "on"'),
        ("a: 1e999\n", "finite"),
        ("a: [1, 2\nb: 3\n", "YAML; line 2"),
        ("a: 1\n---\nb: 2\n", "YAML"),
        ("? [a, b]\n: 1\n", "keys that are texts"),
        ("# nothing\n", "the file is empty. Give a profile, an SLO, a state or a plan"),
        ("a: " + "[" * 500 + "]" * 500, "nest|deep"),
    ],
)
def test_what_is_no_plain_data_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_yaml(text, file="x.yaml")


def test_a_list_at_the_top_is_answered_in_yaml(tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("- a\n")
    with pytest.raises(InputError, match=r"a YAML object at the top.*Start with the line format: hetplan/slo/"):
        load_slo(slo)


def test_an_edit_keeps_comments_order_and_quotes() -> None:
    text = "# mine\nlimits: # money\n  cost_per_hour: '3' # a day's lunch\napps: {}\n"
    changed = edited_yaml(text, [(("limits", "cost_per_hour"), "4"), (("limits", "changes"), 2)], file="x")
    assert "# mine" in changed
    assert "# a day's lunch" in changed
    assert read_yaml(changed, file="x") == {"limits": {"cost_per_hour": "4", "changes": 2}, "apps": {}}
    assert changed.index("limits") < changed.index("apps")


def test_a_fault_in_a_yaml_file_is_named_as_in_json(tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("format: hetplan/slo/1.0\napps:\n  a:\n    task: t\n    latncy: []\n")
    with pytest.raises(InputError, match=r'slo.yaml: \$.apps.a.latncy.*Did you mean "latency"'):
        load_slo(slo)

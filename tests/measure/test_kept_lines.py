"""Lines that a long computation keeps: whole ones only, and nobody else's file is touched."""

from pathlib import Path

import pytest

from hetplan.errors import InputError
from hetplan.measure.kept_lines import keep_lines


def test_lines_come_back_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    kept = keep_lines(path, "list")
    assert not path.exists()
    kept.append({"a": 1})
    kept.append({"b": [1.5, None]})
    assert kept.lines == keep_lines(path, "list").lines == [{"a": 1}, {"b": [1.5, None]}]


def test_a_line_that_was_cut_off_goes_with_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":')
    kept = keep_lines(path, "list")
    assert kept.lines == [{"a": 1}]
    assert path.read_bytes() == b'{"a":1}\n{"b":'
    kept.append({"c": 2})
    assert path.read_bytes() == b'{"a":1}\n{"c":2}\n'


def test_what_is_no_json_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_bytes(b'{"a":1}\nhello\nunfinished')
    with pytest.raises(InputError, match=r"line 2.*no list of sums") as raised:
        keep_lines(path, "list of sums")
    assert "hello" not in str(raised.value)
    assert path.read_bytes() == b'{"a":1}\nhello\nunfinished'


def test_a_place_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the list cannot be used"):
        keep_lines(tmp_path, "list")
    with pytest.raises(InputError, match="the list cannot be used"):
        keep_lines(tmp_path / "nowhere" / "kept.jsonl", "list").append({})


def test_a_file_without_a_whole_line_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(b'{"somebody":"else"}')
    with pytest.raises(InputError, match="this is no list"):
        keep_lines(path, "list")
    assert path.read_bytes() == b'{"somebody":"else"}'


def test_two_that_write_take_nothing_from_one_another(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    one, other = keep_lines(path, "list"), keep_lines(path, "list")
    for kept, number in ((one, 1), (other, 2), (one, 3)):
        kept.append({"a": number})
    assert [line["a"] for line in keep_lines(path, "list").lines] == [1, 2, 3]

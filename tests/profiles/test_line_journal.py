"""The journal of lines that all long work is kept in: whole lines only, and nobody else's file is touched."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hetplan.errors import InputError
from hetplan.profiles.line_journal import LineJournal, line_bytes, read_lines

HEAD = line_bytes({"format": "list/1.0", "of": "a"})


def opened(path: Path, *, of: str | None = "a", alone: bool = False) -> LineJournal:
    return LineJournal(path, what="list of sums", format="list/1.0", of=of, alone=alone)


def test_lines_come_back_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    kept = opened(path)
    kept.append({"a": 1})
    kept.append({"b": [1.5, None]}, sync=True)
    again = opened(path)
    assert again.lines == [{"a": 1}, {"b": [1.5, None]}]
    assert again.head == {"format": "list/1.0", "of": "a"}
    assert again.warning == ""
    assert path.read_bytes() == HEAD + b'{"a":1}\n{"b":[1.5,null]}\n'


def test_a_kill_at_any_byte_loses_only_the_line_under_way(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    kept = opened(path)
    for number in range(3):
        kept.append({"a": number})
    whole = path.read_bytes()
    for cut in range(len(HEAD), len(whole)):
        path.write_bytes(whole[:cut])
        again = opened(path)
        assert path.read_bytes() == whole[:cut], "a file that is only opened stays as it is"
        assert bool(again.warning) == (whole[cut - 1 : cut] != b"\n")
        for number in range(len(again.lines), 3):
            again.append({"a": number})
        assert path.read_bytes() == whole


def test_what_is_killed_in_earnest_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom hetplan.profiles.line_journal import LineJournal\n"
        "journal = LineJournal(sys.argv[1], what='list', format='list/1.0', alone=True)\n"
        "for number in range(len(journal.lines), 400):\n"
        "    journal.append({'a': number, 'text': 'x' * 200})\n    print(number, flush=True)\n"
    )
    unbroken, path = tmp_path / "unbroken", tmp_path / "kept"
    subprocess.run([sys.executable, "-c", code, str(unbroken)], check=True, capture_output=True)
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 50:
            pass
        process.send_signal(signal.SIGKILL)
    assert len(read_lines(path.read_bytes(), file="x", what="list", format="list/1.0").lines) >= 50
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True)
    assert path.read_bytes() == unbroken.read_bytes()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (HEAD + b'{"a":1}\nhello\nunfinished', r"line 3.*no list of sums.*no JSON"),
        (HEAD + b"[1]\n", r"line 2.*no list of sums.*no JSON object"),
        (b'{"somebody":"else"}', "line 1.*no list of sums, which begins with its format"),
        (b'{"format":"other/1.0"}\n', "which begins with its format"),
        (b"hello\n", "which begins with its format"),
        (b"[1]\n", "which begins with its format"),
        (line_bytes({"format": "list/1.0", "of": "b"}), "written for other inputs"),
    ],
)
def test_what_is_another_s_or_damaged_is_refused_and_left_alone(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=why) as raised:
        opened(path)
    assert str(path) in str(raised.value)
    assert "hello" not in str(raised.value)
    assert path.read_bytes() == content


def test_a_digest_counts_where_both_sides_have_one(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    opened(path, of=None).append({"a": 1})
    assert opened(path, of="b").lines == [{"a": 1}]
    opened(tmp_path / "other.jsonl")
    assert opened(tmp_path / "other.jsonl", of=None).head["of"] == "a"


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere" / "kept.jsonl"):
        with pytest.raises(InputError, match=r"the list of sums (cannot be written|is a file)") as raised:
            opened(path)
        assert str(path) in str(raised.value)


def test_two_that_write_take_nothing_from_one_another(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    one, other = opened(path), opened(path)
    for kept, number in ((one, 1), (other, 2), (one, 3)):
        kept.append({"a": number})
    assert [line["a"] for line in opened(path).lines] == [1, 2, 3]


def test_who_wants_a_file_alone_gets_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    first = opened(path, alone=True)
    with pytest.raises(InputError, match="another process is writing this list of sums"):
        opened(path, alone=True)
    first.close()
    opened(path, alone=True).close()


def test_a_full_disk_is_named_and_what_is_kept_stays_whole(tmp_path: Path) -> None:
    """A real limit of the system: no file may grow beyond so many bytes."""
    path = tmp_path / "kept.jsonl"
    kept = opened(path)
    kept.append({"a": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, before[1]))
    try:
        with pytest.raises(InputError, match=r"kept\.jsonl.*cannot be written: File too large"):
            kept.append({"a": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert opened(path).lines == [{"a": 1}]
    kept.append({"a": 3})
    assert path.read_bytes() == HEAD + b'{"a":1}\n{"a":3}\n'


def test_without_a_path_nothing_is_written() -> None:
    kept = LineJournal(None, what="list", format="list/1.0")
    kept.append({"a": 1})
    assert kept.path is None

"""Bodies of queries: what may stand in one, and that whatever else comes is refused in words."""

import pytest

from hetplan.executor.serving.query_body import BadQuery, packed, read_at, read_query


@pytest.mark.parametrize(
    "body",
    [
        b"no JSON", b"[1]", b'{"at": 3}', b'{"at": {"batch": -1}}', b'{"at": {"batch": true}}',
        b'{"at": {"batch": NaN}}',
        b'{"at": {"batch": 1' + 400 * b"0" + b"}}", b'{"at": {"batch": 1e400}}', b"[" * 100_000, b"\xff\xfe",
        b"\0\0\0\0\5hello", b"\0\0\0\0\2[]", b"\0\xff\xff\xff\xff", b"\0",
    ],
)  # fmt: skip
def test_what_is_no_query_is_refused(body: bytes) -> None:
    with pytest.raises(BadQuery):
        read_query(body)


def test_other_content_travels_with_its_place() -> None:
    query = read_query(packed(read_at("batch=4"), b"\0\1"))
    assert (query.at, query.inputs) == ({"batch": 4.0}, b"\0\1")

"""A load of requests for text: how its streams are read, and what is said of them."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hetplan.measure import load_send
from hetplan.measure.load_send import Marks, Reply, Sent, StreamedConnection
from hetplan.measure.load_text import text_of, text_report, text_target
from hetplan.planner.promise_figures import Verdict
from hetplan.profiles.slo import LatencyTarget
from hetplan.serving.tokens import Requests


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_tokens_are_counted_however_the_stream_is_cut(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(time=lambda: clock.now, now=5.0)
    monkeypatch.setattr(load_send.asyncio, "get_running_loop", lambda: clock)
    replies: list[Reply | None] = []
    connection = StreamedConnection(lambda _one, _request, reply: replies.append(reply))
    transport: Any = SimpleNamespace(write=lambda _data: None, get_extra_info=lambda _name: None, abort=lambda: None)
    connection.connection_made(transport)
    token, used = b'data: {"choices": [{"text": " so"}]}\n\n', b'data: {"choices": [], "usage": {"completion_tokens": 9}}\n\n'  # fmt: skip  # noqa: E501
    for usage, tokens in ((b"", 3), (used, 9)):
        connection.send(0, b"")
        body = token * 3 + usage + b"data: [DONE]\n\n"
        data = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        for at in range(0, len(data), size):
            clock.now += 1.0
            connection.data_received(data[at : at + size])
        marks = replies.pop().marks  # type: ignore[union-attr]
        assert marks is not None
        assert marks.tokens == tokens
        if size == 1:
            assert marks.last_s - marks.first_s == 2 * len(token)
            assert marks.gap_s == len(token)


def made(first_s: list[float | None], tpot_ms: float = 20.0, tokens: int = 11) -> Sent:
    """Requests due every 100 ms, whose first tokens come so much later."""
    due = 0.1 * np.arange(len(first_s))
    after = tpot_ms / 1e3 * (tokens - 1)
    marks = [
        None if one is None else Marks(due[place] + one, due[place] + one + after, tpot_ms / 1e3, tokens)
        for place, one in enumerate(first_s)
    ]
    status = np.array([0 if one is None else 200 for one in first_s], dtype=np.int16)
    none = np.zeros(len(due))
    return Sent("chat", due, np.zeros(len(due), np.int32), none, none, status, (), none, 1, marks=marks)


def test_times_count_from_when_a_request_was_due_and_what_broke_off_was_never_answered() -> None:
    found = text_of(made([0.1, 0.3, None]))
    np.testing.assert_allclose(found.ttft_ms, [100.0, 300.0, math.inf])
    np.testing.assert_allclose(found.tpot_ms[:2], [20.0, 20.0])
    np.testing.assert_allclose(found.response_ms, [300.0, 500.0, math.inf])
    assert found.statuses == {"none": 1, "200": 2}
    assert math.isnan(text_of(made([0.1], tokens=1)).tpot_ms[0]), "one token has no time per token"


LIMITS = (
    LatencyTarget(of="ttft", percentile=95.0, max_ms=250.0),
    LatencyTarget(of="tpot", percentile=95.0, max_ms=25.0),
)


def report_of(sent: Sent, **simulated: float) -> Any:
    promise = SimpleNamespace(
        app="chat", quantity="ttft_ms", percentile=95.0, relation="<=", value=250.0, model="simulation/1"
    )
    plan: Any = SimpleNamespace(promises=[promise], digest="sha256:0")
    beside = {("ttft", 95.0): simulated.get("ttft", 100.0), ("goodput", None): simulated.get("goodput", 1.0)}
    return text_report(
        plan, "chat", text_of(sent), beside, LIMITS, goodput=0.9, duration_s=20.0, tolerance=0.1, judged=slice(10, 190)
    )  # fmt: skip


def test_a_report_judges_limits_and_promises_and_says_where_it_is_far_from_the_simulation() -> None:
    well = report_of(made([0.1] * 200))
    verdicts = {(line.quantity, line.by): line.verdict for line in well.lines}
    assert (
        verdicts["ttft_ms", "slo"] is verdicts["goodput", "slo"] is verdicts["ttft_ms", "simulation/1"] is Verdict.MET
    )
    assert verdicts["tpot_ms", "slo"] is Verdict.MET
    assert (well.ok, well.disagreeing) == (True, ())
    far = report_of(made([0.1] * 200), ttft=80.0, goodput=0.9)
    assert {line.name for line in far.disagreeing} == {"ttft_ms p95", "goodput"}
    late = report_of(made([0.1, 0.3] * 100))
    assert {line.name for line in late.broken} == {"ttft_ms p95", "goodput"}
    lost = report_of(made([0.1] * 150 + [None] * 50))
    assert not lost.ok
    assert [code for code, _, _ in lost.warnings] == ["W-no-answer"]


def test_prompts_are_as_long_as_drawn_and_alike_only_where_they_are_cached() -> None:
    requests = Requests.of([(30, 5, 20), (30, 7, 20)])
    target = text_target("chat", "http://h/v1/completions", np.array([0.0, 1.0]), requests, template={"model": "m"})
    first, second = (json.loads(body) for body in target.bodies)
    assert (len(first["prompt"]), first["max_tokens"], first["model"], first["stream"]) == (30, 5, "m", True)
    assert first["prompt"][:20] == second["prompt"][:20]
    assert first["prompt"][20:] != second["prompt"][20:]
    assert target.fields[0] == "hetplan-at: input_tokens=30;cached_tokens=20"

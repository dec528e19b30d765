"""The engine that keeps a law without computing: request by request what the simulator plays."""

from __future__ import annotations

import heapq
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hetplan.executor.serving.embedded_engine import EmbeddedEngines
from hetplan.executor.serving.openai_words import COMPLETIONS, read_asked
from hetplan.executor.serving.token_engine import Sequence, TokenEngine
from hetplan.serving.tokens import Group, Requests, TokenFleet, TokenLaw
from hetplan.simulator.tokens import Coming, play

LAW = TokenLaw(
    np.array([[4.0, 0.05, 0.0, 0.1, 1e-5], [9.0, 0.0, 0.002, 0.0, 0.0]]), kv_tokens=2500, most_tokens=96, most_seqs=12
)

EXPERTS = replace(LAW, experts_ms=6.0, experts_rate=0.1, chunk_ms=1.5)


def engine_times(law: TokenLaw, arrival_ms: np.ndarray, requests: Requests) -> tuple[np.ndarray, np.ndarray, int]:
    """First and last token of each request, by the engine in a time of its own."""
    engine, number = TokenEngine(law), {}
    first, last = np.full(len(requests), np.nan), np.full(len(requests), np.nan)
    coming, now, until = 0, 0.0, np.inf
    while np.isnan(last).any():
        arrives = arrival_ms[coming] if coming < len(requests) else np.inf
        if arrives <= until:
            now = arrives
            one = Sequence(*(int(row[coming]) for row in (requests.input, requests.output, requests.cached)))
            number[one] = coming
            engine.put(one)
            coming += 1
        else:
            now = until
            for one in engine.end():
                place = number[one]
                first[place] = now if one.made == 1 else first[place]
                last[place] = now if one.made >= one.output else last[place]
            until = np.inf
        if until == np.inf:
            took = engine.begin()
            until = now + took if took is not None else np.inf
    assert (engine.held, engine.read, len(engine.running)) == (0, 0, 0)
    return first, last, sum(one.lost for one in number)


@pytest.mark.parametrize(
    "law",
    [LAW, replace(LAW, reserves=True), replace(LAW, prefill_first=True), replace(LAW, kv_tokens=900), EXPERTS],
    ids=["chunked", "reserves", "prefill-first", "little-room", "experts"],
)
def test_it_makes_every_token_when_the_simulator_does(law: TokenLaw) -> None:
    random = np.random.default_rng(7)
    lengths = np.stack([random.integers(5, 300, 300), random.integers(1, 80, 300), random.integers(0, 40, 300)], axis=1)
    requests, arrival = Requests.of(lengths), np.cumsum(random.exponential(45.0, 300))
    fleet = TokenFleet((Group(law, 1),), output_tokens=40.0)
    played = play(fleet, Coming(arrival, requests, 40.0))
    first, last, lost = engine_times(law, arrival, requests)
    np.testing.assert_allclose(first - arrival, played.ttft_ms, atol=1e-6)
    np.testing.assert_allclose(last - arrival, played.response_ms, atol=1e-6)
    assert lost == played.lost.sum()
    assert lost > 0 or law.kv_tokens > 900, "the last of these has too little room"


@pytest.mark.slow
def test_prefilled_here_and_decoded_there_every_token_is_made_when_the_simulator_does() -> None:
    random = np.random.default_rng(5)
    lengths = np.stack([random.integers(5, 300, 300), random.integers(1, 80, 300)], axis=1)
    requests, arrival = Requests.of(lengths), np.cumsum(random.exponential(40.0, 300))
    link_ms = 0.2
    for room, preempts in ((9000, False), (700, True)):
        fill, make = replace(LAW, role="prefill"), replace(LAW, role="decode", kv_tokens=room)
        fleet = TokenFleet((Group(fill, 1), Group(make, 1)), 40.0, link_ms_per_token=link_ms)
        played = play(fleet, Coming(arrival, requests, 40.0), gaps=True)
        first, last, gap, lost = disaggregated_times(fill, make, link_ms, arrival, requests)
        np.testing.assert_allclose(first - arrival, played.ttft_ms, atol=1e-6)
        np.testing.assert_allclose(last - arrival, played.response_ms, atol=1e-6)
        np.testing.assert_allclose(gap, played.gap_ms, atol=1e-6)
        assert (lost > 0, lost) == (preempts, played.lost.sum())


def disaggregated_times(
    fill: TokenLaw, make: TokenLaw, link_ms: float, arrival_ms: np.ndarray, requests: Requests
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """First and last token and longest gap; the link sends one after the other, and the first token comes with it."""
    first, last, gap = np.full(len(requests), np.nan), np.full(len(requests), np.nan), np.zeros(len(requests))
    before = np.full(len(requests), np.nan)
    engines, until, number = (TokenEngine(fill), TokenEngine(make)), [np.inf, np.inf], {}
    due = [(float(at), place, 0) for place, at in enumerate(arrival_ms)]
    link_free = 0.0
    while np.isnan(last).any():
        side = int(until[1] < until[0])
        if due and due[0][0] <= until[side]:
            now, place, side = heapq.heappop(due)
            one = Sequence(int(requests.input[place]), int(requests.output[place]), made=side, handed=side == 1)
            number[one] = place
            first[place] = before[place] = now if side else np.nan
            engines[side].put(one)
        else:
            now = until[side]
            for one in engines[side].end():
                place = number[one]
                gap[place] = max(gap[place], np.nan_to_num(now - before[place]))
                before[place] = now
                if one.made >= one.output:
                    last[place] = now
                    first[place] = now if one.output == 1 else first[place]
                elif side == 0:
                    link_free = max(link_free, now) + link_ms * one.input
                    heapq.heappush(due, (link_free, place, 1))
            until[side] = np.inf
        if until[side] == np.inf:
            took = engines[side].begin()
            until[side] = now + took if took is not None else np.inf
    assert all((one.held, one.read, len(one.running)) == (0, 0, 0) for one in engines)
    return first, last, gap, sum(one.lost for one in number)


def test_who_hangs_up_before_the_first_iteration_is_not_begun() -> None:
    calls: list[tuple[Any, ...]] = []
    timer = SimpleNamespace(call_at=lambda _at, *call: calls.append(call))
    engines = EmbeddedEngines({"law": replace(LAW, request_ms=30.0).as_dict(), "times": 1.0}, 1, timer, "e")  # type: ignore[arg-type]
    left, stays = (SimpleNamespace(headers={}, on_gone=None) for _ in range(2))
    asked = read_asked(COMPLETIONS, b'{"prompt": [1, 2, 3], "max_tokens": 5, "stream": true}')
    for exchange in (left, stays):
        engines.stream(exchange, COMPLETIONS, asked, 0, lambda _well: None)  # type: ignore[arg-type]
    left.on_gone()  # type: ignore[misc]
    assert engines.open == 1
    assert len(calls) == 2, "nothing runs yet"
    (seen, *first), (_, *second) = calls
    seen(*first)
    assert len(calls) == 2
    seen(*second)
    assert len(calls) == 3, "the first iteration, of the one that is there"


def test_what_is_cancelled_leaves_nothing_behind_wherever_it_is() -> None:
    for law in (LAW, replace(LAW, reserves=True)):
        for rounds in range(12):
            engine = TokenEngine(law)
            here = [Sequence(150, 5), Sequence(40, 5), Sequence(400, 5)]
            for one in here:
                engine.put(one)
            for _ in range(rounds):
                if engine.begin() is not None:
                    engine.end()
            engine.begin()
            for one in here:
                if one.state != "done":
                    engine.cancel(one)
            engine.end()
            assert (engine.held, engine.read, engine.running, engine.begin()) == (0, 0, {}, None)

"""Text while machines come and go: against a play without changes, and against a queue written apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetplan.errors import InputError
from hetplan.serving.system import System
from hetplan.serving.tokens import Group, Requests, TextCrew, TextSystem, TokenFleet, TokenLaw
from hetplan.simulator.system_run import SideBySide
from hetplan.simulator.token_run import TokenRun
from hetplan.simulator.tokens import Coming, play

READY_MS = 700.0


def law_of(kv: int = 3000, **more: int) -> TokenLaw:
    return TokenLaw(np.array([[4.0, 0.02, 0.0, 0.1, 0.0], [6.0, 0.0, 0.001, 0.0, 0.0]]), kv, **more)


def system(count: int, law: TokenLaw, rule: str = "least-work/1", **of_group: float) -> TextSystem:
    group = Group(law, 1, **of_group)
    crew = TextCrew("gpu", (group,), count, READY_MS, price_nanos=2e9)
    return TextSystem((crew,), TokenFleet((replace(group, count=count),), 20.0, rule=rule))


def coming(count: int = 400, length_ms: float = 20_000.0, seed: int = 0) -> Coming:
    random = np.random.default_rng(seed)
    sizes = np.stack([random.integers(1, 200, count), random.integers(1, 60, count)], axis=1)
    return Coming(np.sort(random.random(count) * length_ms), Requests.of(sizes), 20.0)


def begun(first: TextSystem, requests: Coming, app: str = "chat") -> TokenRun:
    return TokenRun(app, first, requests, 0, 20_000.0)


@pytest.mark.parametrize(
    "rule", ["least-work/1", "round-robin/1", "shares/1", "split-then-fewest/1", "weighted-least/1"]
)
def test_a_run_that_is_looked_at_is_the_play_that_is_not(rule: str) -> None:
    requests, first = coming(), system(2, law_of(most_seqs=6, most_tokens=64), rule, share=0.5)
    run = begun(first, requests)
    for now in range(0, 20_000, 333):
        run.until(float(now))
    run.change(system(2, first.crews[0].groups[0].law, rule, share=0.5))
    looked, whole = run.finish(), play(first.fleet, requests, gaps=True)
    for name in ("ttft_ms", "tpot_ms", "response_ms", "gap_ms", "lost"):
        assert np.array_equal(getattr(looked, name), getattr(whole, name), equal_nan=True), name
    assert run.cost_per_hour() == pytest.approx(4.0)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_and_nothing_counted_twice(seed: int) -> None:
    """Preemption, chunks, machines that come, go, and go before they came: at every look all that came is somewhere."""
    law, random = law_of(600, most_seqs=8, most_tokens=64), np.random.default_rng(seed)
    requests = coming(1500, seed=seed)
    run = begun(system(2, law), requests)
    for now in range(0, 20_000, 250):
        run.until(float(now))
        assert run.held() == run.under_way
        assert run.come == np.count_nonzero(requests.arrival_ms < now)
        if random.random() < 0.3:
            run.change(system(int(random.integers(1, 6)), law))
        if random.random() < 0.1 and run.serving("gpu") > 1:
            run.fail("gpu", 1)
    played = run.finish()
    assert run.held() == run.under_way == 0
    assert played.served == run.come == len(requests.arrival_ms)
    assert np.isfinite(played.response_ms).all()
    assert played.lost.sum() > 0, "else no sequence gave way"


def test_who_is_refused_is_not_under_way() -> None:
    law = law_of(600, most_seqs=8, most_tokens=64)
    run = begun(system(1, law, cap=4), coming(1500))
    for now in range(0, 20_000, 250):
        run.until(float(now))
        assert run.held() == run.under_way <= 4
    played = run.finish()
    assert 0 < played.served < run.come == 1500
    assert played.queued_until_ms < np.inf


def test_who_is_asked_for_serves_after_its_start_and_not_before() -> None:
    requests = coming(1000)
    run = begun(system(1, law_of(most_seqs=8)), requests)
    run.at(5000.0, lambda: run.change(system(3, law_of(most_seqs=8))))
    played = run.finish()
    late = requests.arrival_ms[played.machine > 0]
    assert late.min() > 5000.0 + READY_MS, "what comes before that is served by the first machine"
    assert late.min() < 5000.0 + READY_MS + 200.0
    assert run.cost_per_hour() == pytest.approx(2.0 * (1 + 2 * 15_000 / 20_000)), "paid from when they are asked for"
    assert run.open_ms().sum() == pytest.approx(20_000 + 2 * (15_000 - READY_MS))


def by_hand(arrival: np.ndarray, takes: np.ndarray, opens: dict[int, float], shuts: dict[int, float]) -> np.ndarray:
    """When each is done, on machines that serve one at a time, in turn; what waits where one is shut goes on."""
    queues: dict[int, list[int]] = {machine: [] for machine in opens}
    busy: dict[int, tuple[float, int]] = {}
    done, last = np.zeros(len(arrival)), -1

    def send(request: int, now: float) -> None:
        nonlocal last
        machine = last
        while True:
            machine = (machine + 1) % len(opens)
            if opens[machine] <= now and not shuts.get(machine, np.inf) <= now:
                break
        last = machine
        queues[machine].append(request)
        start(machine, now)

    def start(machine: int, now: float) -> None:
        if machine not in busy and queues[machine]:
            request = queues[machine].pop(0)
            busy[machine] = (now + takes[request], request)

    events = sorted([(at, 0, machine) for machine, at in shuts.items()] + [(at, 1, r) for r, at in enumerate(arrival)])
    while events or busy:
        machine = min(busy, key=lambda one: busy[one][0], default=-1)
        if machine >= 0 and (not events or busy[machine][0] < events[0][0]):
            now, request = busy.pop(machine)
            done[request] = now
            start(machine, now)
            continue
        now, what, number = events.pop(0)
        if what == 1:
            send(number, now)
        else:
            waiting, queues[number] = queues[number], []
            for request in waiting:
                send(request, now)
    return done


@pytest.mark.parametrize("seed", range(3))
def test_it_agrees_with_a_queue_written_apart(seed: int) -> None:
    """One machine, then three, then one again: each serves one request at a time."""
    law, requests = law_of(most_seqs=1, most_tokens=10_000), coming(250, seed=seed)
    run = begun(system(1, law, "round-robin/1"), requests)
    run.at(4000.0, lambda: run.change(system(3, law, "round-robin/1")))
    run.at(9000.0, lambda: run.change(system(1, law, "round-robin/1")))
    sizes = zip(requests.requests.input, requests.requests.output, strict=True)
    takes = law.prefill_ms(requests.requests)
    takes += np.array([sum(max(4.12, 6.0 + 0.001 * (i + k)) for k in range(1, o)) for i, o in sizes])
    opens, shuts = {0: 0.0, 1: 4000.0 + READY_MS, 2: 4000.0 + READY_MS}, {1: 9000.0, 2: 9000.0}
    expected = by_hand(requests.arrival_ms, takes, opens, shuts)
    played = run.finish()
    assert played.response_ms + requests.arrival_ms == pytest.approx(expected)
    ends = [max(9000.0, expected[played.machine == machine].max()) for machine in (1, 2)]
    paid = 20_000.0 + sum(end - 4000.0 for end in ends)
    assert max(ends) > 9000.0, "one at least had begun something"
    assert run.cost_per_hour() == pytest.approx(2.0 * paid / 20_000.0)


def test_who_goes_before_it_came_serves_nothing_and_is_paid_until_then() -> None:
    run = begun(system(1, law_of()), coming())
    run.at(5000.0, lambda: run.change(system(4, law_of())))
    run.at(5000.0 + READY_MS / 2, lambda: run.change(system(1, law_of())))
    played = run.finish()
    assert (played.machine == 0).all()
    assert run.cost_per_hour() == pytest.approx(2.0 * (1 + 3 * (READY_MS / 2) / 20_000))


def test_what_a_machine_was_making_when_it_broke_starts_over_on_others() -> None:
    """Two alike machines, three requests, one on a machine by itself: it begins anew behind nobody, at that moment."""
    sizes, law = Requests.of([(100, 50)] * 3), law_of()
    requests = Coming(np.array([0.0, 1.0, 2.0]), sizes, 20.0)
    run = begun(system(2, law, "round-robin/1"), requests)
    run.until(100.0)
    run.fail("gpu", 1)
    played = run.finish()
    machine, alone = played.machine.tolist(), play(TokenFleet((Group(law, 1),), 20.0), requests)
    assert machine == [0, 0, 0], "the second was on the other machine"
    assert played.served == 3
    assert played.ttft_ms[1] > 99.0, "nothing that it had is kept"
    assert played.ttft_ms[0] == alone.ttft_ms[0]
    assert played.response_ms[1] > alone.response_ms[1] + 50.0


def test_where_no_machine_is_left_nothing_that_comes_is_served_until_one_is_there() -> None:
    run = begun(system(1, law_of(kv=50_000)), coming())
    run.until(5_000.0)
    run.fail("gpu", 1)
    run.until(8_000.0)
    run.change(system(1, law_of(kv=50_000)))
    played, arrival = run.finish(), coming().arrival_ms
    served = np.isfinite(played.response_ms)
    assert not served[(arrival > 5_000.0) & (arrival < 8_000.0 + READY_MS)].any()
    assert served[arrival > 8_000.0 + READY_MS].all()
    assert served[arrival < 4_000.0].mean() > 0.95


def test_other_machines_take_over_once_they_serve() -> None:
    """Another engine on another type: the old one serves until the new one does."""
    requests = coming()
    old, new = system(1, law_of(most_seqs=8)), system(1, law_of(most_seqs=16))
    new = TextSystem((replace(new.crews[0], id="other"),), new.fleet)
    run = begun(old, requests)
    run.at(5000.0, lambda: run.change(new))
    run.until(5000.0 + READY_MS - 1.0)
    assert (run.serving("gpu"), run.serving("other"), run.workers("other")) == (1, 0, 1)
    run.until(5000.0 + READY_MS)
    assert (run.serving("gpu"), run.serving("other")) == (0, 1)
    played = run.finish()
    figures = run.crews(played)
    assert figures["gpu"].most == figures["other"].most == 1
    assert np.isfinite(played.response_ms).all()


def test_one_run_keeps_one_rule() -> None:
    run = begun(system(1, law_of()), coming())
    with pytest.raises(InputError, match="one run keeps one rule"):
        run.change(system(1, law_of(), "round-robin/1"))


def test_applications_side_by_side_are_looked_at_in_one_moment() -> None:
    law = law_of(most_seqs=8)
    runs = {name: begun(system(1, law), coming(seed=seed), name) for seed, name in enumerate("ab")}
    both = SideBySide(System((), (), ()), None, runs)
    seen = list[tuple[float, int, int]]()
    both.at(3000.0, lambda: seen.append((runs["b"].now_ms, *both.arrived().values())))
    runs["a"].until(20_000.0)
    assert seen == [(3000.0, *(int((coming(seed=one).arrival_ms < 3000.0).sum()) for one in (0, 1)))]

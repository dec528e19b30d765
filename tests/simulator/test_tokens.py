"""Machines that make text: against closed forms at batch 1, and against a slow simulation written apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hetplan.serving.tokens import Group, Requests, TokenFleet, TokenLaw
from hetplan.simulator.tokens import Coming, Played, play
from tests.cases import slow_tokens

TWO_PIECES = [(2.0, 0.05, 0.0, 0.01, 2e-6), (8.0, 0.0, 0.001, 0.0, 0.0)]


def law_of(pieces: list[tuple[float, ...]], kv: int = 100_000, **more: object) -> TokenLaw:
    return TokenLaw(np.array(pieces), kv, **more)  # type: ignore[arg-type]


def test_one_request_alone_takes_what_the_law_says() -> None:
    law = law_of(TWO_PIECES, most_tokens=64)
    found = played(TokenFleet((Group(law, 1),), 10), np.array([5.0]), Requests.of([(100, 10)]), gaps=True)
    prompt = max(2 + 0.05 * 64 + 2e-6 * 64**2 / 2, 8) + max(2 + 0.05 * 36 + 2e-6 * (100**2 - 64**2) / 2, 8)
    steps = [max(2 + 0.05 + 0.01, 8 + 0.001 * (100 + k)) for k in range(1, 10)]
    assert found.ttft_ms[0] == pytest.approx(prompt)
    assert found.response_ms[0] == pytest.approx(prompt + sum(steps))
    assert found.tpot_ms[0] == pytest.approx(sum(steps) / 9)
    assert found.gap_ms is not None
    assert found.gap_ms[0] == pytest.approx(max(steps))
    assert found.ttft_ms[0] == pytest.approx(law.prefill_ms(Requests.of([(100, 10)]))[0])


def test_experts_and_prompts_add_to_iterations_and_a_request_waits_before_its_first() -> None:
    law = law_of(TWO_PIECES, most_tokens=64, experts_ms=7.0, experts_rate=0.05, chunk_ms=2.0, request_ms=30.0)
    requests = Requests.of([(100, 10)])
    found = played(TokenFleet((Group(law, 1),), 10), np.array([5.0]), requests)
    prompt = max(2 + 0.05 * 64 + 2e-6 * 64**2 / 2, 8) + max(2 + 0.05 * 36 + 2e-6 * (100**2 - 64**2) / 2, 8)
    prompt += 2 * 2.0 + 7 * (2 - math.exp(-0.05 * 64) - math.exp(-0.05 * 36))
    steps = [8 + 0.001 * (100 + k) + 7 * (1 - math.exp(-0.05)) for k in range(1, 10)]
    assert found.ttft_ms[0] == pytest.approx(30.0 + prompt) == law.prefill_ms(requests)[0]
    assert found.tpot_ms[0] == pytest.approx(sum(steps) / 9)
    assert found.response_ms[0] == pytest.approx(30.0 + prompt + sum(steps))
    assert found.busy[0] == pytest.approx(prompt + sum(steps)), "no machine is kept by what waits before it"


def test_requests_one_at_a_time_queue_as_in_lindleys_equation() -> None:
    """A machine of one sequence is a queue with one server: each waits for the one before."""
    law, rng = law_of(TWO_PIECES, most_seqs=1, most_tokens=512), np.random.default_rng(1)
    sizes = np.stack([rng.integers(1, 400, 200), rng.integers(1, 40, 200)], axis=1)
    arrival = np.sort(rng.random(200) * 20_000)
    requests = Requests.of(sizes)
    served = law.prefill_ms(requests)
    served += np.array([sum(max(2.06, 8 + 0.001 * (i + k)) for k in range(1, o)) for i, o in sizes])
    done, free = np.zeros(200), 0.0
    for number in range(200):
        free = max(free, arrival[number]) + served[number]
        done[number] = free
    found = played(TokenFleet((Group(law, 1),), 20), arrival, requests)
    # The last decode of one sequence and the next prompt never share an iteration: there is one place.
    assert found.response_ms == pytest.approx(done - arrival)


def played(fleet: TokenFleet, arrival: np.ndarray, requests: Requests, **how: object) -> Played:
    return play(fleet, Coming(arrival, requests, fleet.output_tokens), **how)  # type: ignore[arg-type]


def compared(machines: list[slow_tokens.Machine], sizes: np.ndarray, arrival: np.ndarray, **how: object) -> tuple:
    slow = [
        slow_tokens.Sequence(n, float(arrival[n]), int(row[0]), int(row[1]), int(row[2]) if len(row) > 2 else 0)
        for n, row in enumerate(sizes)
    ]
    in_turn = bool(how.pop("in_turn", False))
    weights: list[float] | None = how.pop("weights", None)  # type: ignore[assignment]
    ttft_ms = float(how.get("ttft_ms", np.inf))  # type: ignore[arg-type]
    slow_tokens.play(machines, slow, expected=20.0, in_turn=in_turn, ttft_ms=ttft_ms, weights=weights)
    groups = tuple(
        Group(
            law_of(one.pieces, one.kv, most_tokens=one.chunk, most_seqs=one.seqs, prefill_first=one.prefill_first,
                   reserves=one.reserves),
            1,
            limit=one.limit, weight=weights[number] if weights is not None else None,
            cap=None if one.cap == np.inf else int(one.cap),
        )
        for number, one in enumerate(machines)
    )  # fmt: skip
    rule = "weighted-least/1" if weights is not None else "round-robin/1" if in_turn else "least-work/1"
    fast = played(TokenFleet(groups, 20.0, rule=rule, **how), arrival, Requests.of(sizes), gaps=True)  # type: ignore[arg-type]
    return slow, fast


def crommelin(load: float, at: float) -> float:
    """How many service times a request waits at most, of so many in 100, where one is served at a time (M/D/1)."""

    def known(t: float) -> float:
        terms = (
            (-1.0) ** k * math.exp(load * (t - k) + k * math.log(max(load * (t - k), 1e-300)) - math.lgamma(k + 1.0))
            for k in range(int(t) + 1)
        )
        return (1.0 - load) * math.fsum(terms)

    low, high = 0.0, 20.0
    while high - low > 1e-9:
        middle = (low + high) / 2.0
        low, high = (low, middle) if known(middle) >= at / 100.0 else (middle, high)
    return high


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("load", [0.5, 0.7])
def test_requests_alike_one_at_a_time_wait_as_in_crommelins_formula(load: float) -> None:
    """p50 and p95 of TTFT; a time per token that is the law's."""
    law, count, random = law_of([(4.0, 0.05, 0.0, 0.0, 0.0)], most_seqs=1), 300_000, np.random.default_rng(3)
    each = 9.0 + 19 * 4.05
    requests = Requests.of([(100, 20)] * count)
    found = played(TokenFleet((Group(law, 1),), 20), np.cumsum(random.exponential(each / load, count)), requests)
    for at in (50.0, 95.0):
        assert np.percentile(found.ttft_ms, at) == pytest.approx(9.0 + each * crommelin(load, at), rel=0.02)
        assert np.percentile(found.tpot_ms, at) == pytest.approx(4.05)


def test_sequences_that_share_a_machine_take_longer_by_its_load_alone() -> None:
    """Where an iteration is as long as its sequences are many, they share it evenly: o b / (1 - load) on the mean."""
    law, count, random = law_of([(0.0, 0.5, 0.0, 0.0, 0.0)], most_seqs=4096), 60_000, np.random.default_rng(4)
    outputs = random.choice([60, 400], count, p=[0.8, 0.2])
    requests = Requests.of(np.stack([np.ones(count), outputs], axis=1))
    arrival = np.cumsum(random.exponential(outputs.mean() * 0.5 / 0.6, count))
    found = played(TokenFleet((Group(law, 1),), 100), arrival, requests)
    for output in (60, 400):
        mine = found.response_ms[outputs == output]
        assert mine.mean() == pytest.approx(output * 0.5 / 0.4, rel=0.03)
        assert found.tpot_ms[outputs == output].mean() == pytest.approx(0.5 / 0.4, rel=0.03)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("seed", range(12))
def test_it_agrees_with_a_simulation_written_apart(seed: int) -> None:
    """Chunks, prefill first, reserved KV, preemption, caches, unlike machines and all rules, at random."""
    rng = np.random.default_rng(seed)
    machines = []
    for _ in range(int(rng.integers(1, 4))):
        pieces = [tuple(rng.random(5) * scale) for scale in (np.array([6, 0.05, 2e-4, 0.05, 2e-5]),) for _ in range(2)]
        machines.append(
            slow_tokens.Machine(
                pieces=pieces, kv=int(rng.integers(450, 1500)), chunk=int(rng.integers(32, 200)),
                seqs=int(rng.integers(4, 30)), prefill_first=bool(rng.random() < 0.4),
                reserves=bool(rng.random() < 0.3), limit=float(rng.choice([0.3, 1.0])),
            )
        )  # fmt: skip
    count = 300
    sizes = np.stack([rng.integers(1, 300, count), rng.integers(1, 100, count), rng.integers(0, 50, count)], axis=1)
    sizes[:, 2] = np.minimum(sizes[:, 2], sizes[:, 0] - 1)
    arrival = np.sort(rng.random(count) * rng.choice([3000.0, 12_000.0]))
    weights = [float(2 ** rng.integers(0, 3)) for _ in machines] if seed % 4 == 1 else None
    if seed % 2:
        for machine in machines:
            machine.cap = int(rng.integers(2, 30))
    slow, fast = compared(machines, sizes, arrival, ttft_ms=40.0, in_turn=bool(seed % 3 == 0), weights=weights)
    assert fast.machine.tolist() == [one.machine for one in slow]
    taken = np.array([one.machine >= 0 for one in slow])
    assert fast.served == taken.sum() == (count if not seed % 2 else fast.served)
    assert np.isnan(fast.response_ms[~taken]).all()
    assert fast.lost.tolist() == [one.lost for one in slow]
    kept = [one for one in slow if one.machine >= 0]
    assert fast.ttft_ms[taken] == pytest.approx(np.array([one.stamps[0] - one.arrived for one in kept]))
    assert fast.response_ms[taken] == pytest.approx(np.array([one.stamps[-1] - one.arrived for one in kept]))
    gaps = [max(np.diff(one.stamps), default=0.0) for one in kept]
    assert fast.gap_ms is not None
    assert fast.gap_ms[taken] == pytest.approx(np.array(gaps), abs=1e-9)
    assert int(fast.rounds.sum()) == sum(one.rounds for one in machines)


def test_the_fewest_requests_by_weight_are_shared_out_as_a_load_balancer_does() -> None:
    """HAProxy's leastconn with weights 256 and 32 has 36 and 4 of 40 that are open at a time, an idle server first."""
    law = law_of([(10.0, 0.0, 0.0, 0.0, 0.0)], most_seqs=256)
    fleet = TokenFleet((Group(law, 1, weight=32.0), Group(law, 1, weight=256.0)), 500.0, rule="weighted-least/1")
    found = played(fleet, np.arange(40, dtype=np.float64), Requests.of([(10, 500)] * 40))
    assert np.bincount(found.machine).tolist() == [4, 36]
    assert found.machine[0] == 1


def test_a_split_is_kept_whatever_there_is_to_do_and_the_fewest_of_a_group_get_the_next() -> None:
    """Weights of a gateway look at nothing: what their group may not take is refused, though others are idle."""
    law, count = law_of([(10.0, 0.0, 0.0, 0.0, 0.0)], most_seqs=256), 4000
    groups = (Group(law, 2, share=0.375, cap=3), Group(law, 1, share=0.25))
    fleet = TokenFleet(groups, 500.0, rule="split-then-fewest/1")
    found = played(fleet, np.arange(count) * 1e-3, Requests.of([(10, 500)] * count))
    assert np.bincount(found.machine[found.machine >= 0]).tolist()[:2] == [3, 3]
    assert (found.machine == 2).mean() == pytest.approx(0.25, abs=0.02)
    assert (found.machine < 0).mean() == pytest.approx(0.75, abs=0.02)
    assert found.served == (found.machine >= 0).sum()


def test_some_of_these_cases_lose_sequences_for_want_of_room() -> None:
    """Else the comparison above would say nothing of preemption."""
    machine = slow_tokens.Machine(pieces=[(5.0, 0.02, 0.0, 0.0, 0.0)], kv=400, chunk=200, seqs=20)
    sizes = np.array([(100, 90)] * 12)
    slow, fast = compared([machine], sizes, np.arange(12.0))
    assert sum(one.lost for one in slow) > 3
    assert fast.lost.tolist() == [one.lost for one in slow]
    assert fast.most_kv.max() <= 1.0


def test_the_same_seed_gives_the_same_bytes() -> None:
    law, rng = law_of(TWO_PIECES), np.random.default_rng(3)
    requests, arrival = Requests.of(rng.integers(2, 200, (500, 2))), np.sort(rng.random(500) * 5000)
    fleet = TokenFleet((Group(law, 2), Group(law.slower(0.5), 1, share=0.5)), 20.0, rule="shares/1")
    one, same, other = (played(fleet, arrival, requests, seed=seed) for seed in (4, 4, 5))
    assert one.response_ms.tobytes() == same.response_ms.tobytes()
    assert one.response_ms.tobytes() != other.response_ms.tobytes()


def test_prefill_on_one_machine_and_decoding_on_another() -> None:
    """KV moves over a link of the machine that prefilled, one request after the other, and the first token with it."""
    first, after = law_of([(1.0, 0.1, 0, 0, 0)], role="prefill"), law_of([(7.0, 0.0, 0, 0, 0)], role="decode")
    fleet = TokenFleet((Group(first, 1), Group(after, 1)), 5.0, link_ms_per_token=0.5)
    found = played(fleet, np.array([0.0, 0.0]), Requests.of([(100, 5), (40, 3)]))
    # Prompts of 11 and 5 ms, one after the other; then 50 and 20 ms over the link.
    assert found.ttft_ms.tolist() == pytest.approx([61.0, 81.0])
    assert found.response_ms.tolist()[0] == pytest.approx(61.0 + 4 * 7.0)
    assert found.machine.tolist() == [1, 1]


def test_requests_that_no_type_takes_are_not_served() -> None:
    law = law_of(TWO_PIECES, role="decode")
    found = played(TokenFleet((Group(law, 1),), 5.0), np.array([0.0]), Requests.of([(10, 5)]))
    assert found.served == 0
    assert np.isnan(found.ttft_ms).all()

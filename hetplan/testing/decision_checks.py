"""Checks for engines of decision processes: the forms Mdp and QueueProcess.

Known cases have their best values by hand, or from every policy tried one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.planner.answer import Limits, Stop
from hetplan.planner.forms.mdp import Criterion, Mdp
from hetplan.planner.forms.queue_process import Batching, Empty, Late, Overflow, PerWhat, QueuePolicy, QueueProcess
from hetplan.testing.known_case import Check, KnownCase, Skipped, manners

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver

__all__ = ["mdp_cases", "mdp_checks", "queue_process_cases", "queue_process_checks"]

Pair = tuple[float, Sequence[float]]
"""What a pair of state and action earns, and where it leads."""


def mdp_cases() -> list[KnownCase[Mdp]]:
    """Every known case of an explicit process."""
    stay_or_go: list[list[Pair]] = [[(1.0, [1.0, 0.0]), (0.0, [0.0, 1.0])], [(3.0, [0.5, 0.5])]]
    twins: list[list[Pair]] = [[(2.0, [1.0])] * 2]
    short_or_long: list[list[Pair]] = [[(1.0, [1.0]), (3.0, [1.0])]]
    dear: list[list[Pair]] = [[(-5.0, [0.0, 1.0]), (-1.0, [0.5, 0.5])], [(-2.0, [1.0, 0.0])]]
    average = partial(_mdp, stay_or_go)
    return [
        KnownCase("one state, one action", partial(_mdp, [[(3.0, [1.0])]]), 3.0),
        KnownCase("two actions alike", partial(_mdp, twins), 2.0),
        KnownCase("a detour pays", average, 2.0),
        KnownCase("the less bad of two", partial(_mdp, dear), -4.0 / 3.0),
        KnownCase("per weight the short one is better", partial(_mdp, short_or_long, weight=[1.0, 4.0]), 1.0),
        KnownCase("nothing to win", partial(_mdp, [[(0.0, [0.5, 0.5])], [(0.0, [1.0, 0.0])]]), 0.0),
        KnownCase("discounted for ever", partial(_mdp, twins, criterion=Criterion.DISCOUNTED, discount=0.9), 20.0),
        KnownCase("a detour, discounted", partial(average, criterion=Criterion.DISCOUNTED, discount=0.5), 2.4),
        *(
            KnownCase(f"{n} decisions left", partial(average, criterion=Criterion.HORIZON, horizon=n), value)
            for n, value in ((1, 1.0), (2, 3.0), (3, 5.0))
        ),
        *_drawn_mdps(),
    ]


def queue_process_cases() -> list[KnownCase[QueueProcess]]:
    """Every known case of a queue: one worker and one place by hand, others by trying all policies."""
    decision, query = PerWhat.PER_DECISION, PerWhat.PER_QUERY
    by_hand = (
        ("per decision", 0.9, decision, 0.419650769),
        ("per query", 0.9, query, 0.318693942),
        ("per decision, nearly alike", 0.88, decision, 0.412917901),
        ("per query, nearly alike", 0.88, query, 0.315458356),
    )
    sweeps = {"objective": decision, "criterion": Criterion.HORIZON, "horizon": 100}
    return [
        *(KnownCase(name, partial(_by_hand, accuracy, objective=per), value) for name, accuracy, per, value in by_hand),
        KnownCase("a hundred sweeps", partial(_by_hand, 0.9, **sweeps), 42.3374187353523),
        *_drawn_queues(),
    ]


def _mdp(states: Sequence[Sequence[Pair]], *, weight: Sequence[float] | None = None, **how: Any) -> Mdp:
    """A process from the pairs of each state."""
    from scipy.sparse import csr_array

    pairs = [pair for state in states for pair in state]
    return Mdp(
        first=np.concatenate([[0], np.cumsum([len(state) for state in states])]).astype(np.int64),
        moves=csr_array(np.array([moves for _, moves in pairs])),
        reward=np.array([earned for earned, _ in pairs]),
        weight=None if weight is None else np.array(weight),
        **how,
    )


def _drawn_mdps() -> list[KnownCase[Mdp]]:
    cases = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        states = [
            [(float(rng.uniform(-1, 1)), rng.dirichlet(np.ones(4)).tolist()) for _ in range(int(rng.integers(1, 4)))]
            for _ in range(4)
        ]
        weight = rng.uniform(0.5, 2.0, sum(map(len, states))).tolist()
        for name, how in (("drawn", {}), ("drawn, with weights", {"weight": weight})):
            write = partial(_mdp, states, **how)
            cases.append(KnownCase(f"{name} {seed}", write, _tried(write())))
    return cases


def _tried(form: Mdp) -> float:
    """The best long-run ratio of all policies, each by a power of its moves."""
    found = []
    for choice in product(*map(range, form.first[:-1], form.first[1:])):
        chosen = np.array(choice)
        mass = np.linalg.matrix_power(form.moves[chosen].toarray(), 1 << 12)[form.start]
        found.append(float(mass @ form.reward[chosen] / (mass @ form.weights[chosen])))
    return max(found)


def _by_hand(accuracy: float, **how: Any) -> QueueProcess:
    """One worker, a queue of one, slacks 0, 1, 2 of an SLO of 2, load ln 2; a quick model and one of this accuracy."""
    return QueueProcess(
        latency_s=np.array([[1.0, 2.0], [2.0, 3.0]]),
        accuracy=np.array([0.5, accuracy]),
        grid_s=np.array([0.0, 1.0, 2.0]),
        stages=1,
        stage_rates=np.array([np.log(2.0)]),
        **how,
    )


def _drawn_queues() -> list[KnownCase[QueueProcess]]:
    kinds: dict[str, dict[str, Any]] = {
        "whole batches": {},
        "per decision": {"objective": PerWhat.PER_DECISION},
        "any batch": {"batching": Batching.VARIABLE},
        "late ones dropped": {"late": Late.DROP},
        "beyond the queue lost": {"overflow": Overflow.TRUNCATE},
        "idling decides": {"empty": Empty.PAPER},
        "rates by queue": {"rates": 2, "stages": 1, "rate_of": (0, 0, 1, 1)},
    }
    return [
        KnownCase(f"drawn, {kind}", partial(_queue, seed, **how), partial(_best_of_queue, seed, tuple(how.items())))
        for seed, (kind, how) in enumerate(kinds.items())
    ]


@cache
def _best_of_queue(seed: int, how: tuple[tuple[str, Any], ...]) -> float:
    """The best of all policies; every engine is asked the same queues, so it is found once."""
    form = _queue(seed, **dict(how))
    return max(_worth(form, policy) for policy in _policies(form))


def _queue(
    seed: int, *, rates: int = 1, stages: int = 2, rate_of: tuple[int, ...] | None = None, **how: Any
) -> QueueProcess:
    """Two models, a queue of two, three slacks."""
    rng = np.random.default_rng(seed)
    single = np.sort(rng.uniform(0.15, 0.5, 2))
    return QueueProcess(
        latency_s=single[:, None] * (1 + rng.uniform(0.3, 0.8) * np.arange(3)),
        accuracy=np.sort(rng.uniform(0.3, 0.95, 2)),
        grid_s=np.array([0.0, rng.uniform(0.3, 0.7), 1.0]),
        stages=stages,
        stage_rates=rng.uniform(1.0, 3.0, rates) * stages,
        rate_of=None if rate_of is None else np.array(rate_of),
        **how,
    )


def _policies(form: QueueProcess) -> Iterator[QueuePolicy]:
    """Every policy there is."""
    actions = form.actions
    for choice in product(*map(range, actions.first[:-1], actions.first[1:])):
        yield form.policy(np.array(choice))


def _worth(form: QueueProcess, policy: QueuePolicy) -> float:
    chosen = form.chosen(policy)
    return float(form.value_of(form.long_run(chosen), chosen))


def mdp_checks(solver: Solver) -> list[Check]:
    """Every check of an engine of the form Mdp."""
    del solver
    return _checks(mdp_cases, lambda form: [replace(form, reward=share * form.reward) for share in (0.5, 1.0, 2.0)])


def queue_process_checks(solver: Solver) -> list[Check]:
    """Every check of an engine of the form QueueProcess."""
    del solver
    return _checks(
        queue_process_cases,
        lambda form: [replace(form, stage_rates=share * form.stage_rates) for share in (0.5, 1.0, 2.0)],
    )


def _checks(cases: Callable[[], Sequence[KnownCase[Any]]], family: Callable[[Any], list[Any]]) -> list[Check]:
    known = cases()
    return [
        *(Check(f"answers: {case.name}", partial(case.answered_by, exact=True)) for case in known),
        *manners(lambda solver: _last(known, solver).form, family),
        Check("is sound without time", partial(_sound_under, known, Limits(seconds=0.0))),
        Check("is sound without work", partial(_sound_under, known, Limits(work=1))),
        Check("does not go on when cancelled", partial(_cancelled, known)),
    ]


def _last(known: Sequence[KnownCase[Any]], solver: Solver) -> KnownCase[Any]:
    """The last case that the engine takes, for the manners: not the smallest."""
    taken: list[KnownCase[Any]] = [case for case in known if not solver.refuses(case.form)]
    if not taken:
        raise Skipped("it takes none of the cases")
    return taken[-1]


def _sound_under(known: Sequence[KnownCase[Any]], limits: Limits, solver: Solver) -> None:
    case = _last(known, solver)
    case.judge(solver.solve(case.form, limits))


def _cancelled(known: Sequence[KnownCase[Any]], solver: Solver) -> None:
    case, cancel = _last(known, solver), threading.Event()
    cancel.set()
    answer = solver.solve(case.form, Limits(cancel=cancel))
    case.judge(answer)
    assert answer.stop is Stop.CANCELLED, f"it says {answer.stop}"

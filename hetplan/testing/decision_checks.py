"""Checks for engines of decision processes: the form QueueProcess.

Known cases have their best values by hand, or from every policy tried one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.planner.answer import Limits, Stop
from hetplan.planner.forms.queue_process import (
    Batching,
    Criterion,
    Empty,
    Late,
    Overflow,
    PerWhat,
    QueuePolicy,
    QueueProcess,
)
from hetplan.testing.known_case import Check, KnownCase, Skipped, manners

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver

__all__ = ["queue_process_cases", "queue_process_checks"]


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


def queue_process_checks(solver: Solver) -> list[Check]:
    """Every check of an engine of the form QueueProcess."""
    del solver
    known = queue_process_cases()

    def family(form: QueueProcess) -> list[QueueProcess]:
        return [replace(form, stage_rates=share * form.stage_rates) for share in (0.5, 1.0, 2.0)]

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

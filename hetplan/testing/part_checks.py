"""What a question must keep that can be a part of a fleet (`hetplan.planner.fleet_part`).

    for name, check in checks(part, rate=100.0, ask=ask, offers={"gpu": 3}):
        check()

`part` is the part, `offers` are machines that carry the rate, as settling takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from hetplan.planner.answer import Status
from hetplan.planner.contract import Ask
from hetplan.planner.fleet_part import Part
from hetplan.planner.forms.milp import Builder

__all__ = ["checks", "fewest_machines"]

Check = Callable[[], None]


def checks(part: Part, *, rate: float, ask: Ask, offers: Mapping[str, int]) -> Iterator[tuple[str, Check]]:
    """Every check, with its name."""
    yield "it says where it may run", lambda: _has_hardware(part)
    yield "more machines are never worse", lambda: _monotone(part, rate, ask)
    yield "a lower rate is never harder", lambda: _lower(part, rate, ask)
    yield "the cheapest machines carry the rate, and one fewer does not", lambda: _cheapest(part, rate, ask)
    yield "rows hold for machines that carry the rate", lambda: _rows(part, rate, ask)
    yield "machines of use are no more than enough", lambda: _of_use(part, rate, ask)
    yield "nothing carries nothing", lambda: _nothing(part, rate)
    yield "it settles on machines that carry the rate", lambda: _settles(part, rate, offers)


def _has_hardware(part: Part) -> None:
    assert part.hardware, "it says on which hardware it may run"


def fewest_machines(part: Part, rate: float, ask: Ask) -> tuple[int, ...]:
    """The fewest machines: of the rows known, until whole machines that they allow carry the rate."""
    seen = set[tuple[int, ...]]()
    while True:
        m = Builder("min", name="fewest machines")
        most = [count + 1.0 for count in part.of_use(rate)]
        count = m.columns("machines", list(part.hardware), upper=most, cost=1.0, whole=True)
        part.rows(m, [count[place : place + 1] for place in range(len(part.hardware))], rate, "carries")
        answer = ask(m.build(), gap=0.0, about="fewest machines")
        assert answer.point is not None, "some machines carry the rate"
        machines = tuple(int(n) for n in np.rint(answer.point[count]))
        if part.carries(machines, rate):
            return machines
        assert machines not in seen, f"rows allow {machines}, which do not carry it"
        seen.add(machines)


def _monotone(part: Part, rate: float, ask: Ask) -> None:
    machines = fewest_machines(part, rate, ask)
    for place in range(len(machines)):
        more = [count + (number == place) for number, count in enumerate(machines)]
        assert part.carries(more, rate), f"{machines} carry it, and {more} do not"


def _lower(part: Part, rate: float, ask: Ask) -> None:
    assert part.carries(fewest_machines(part, rate, ask), rate / 2)
    assert sum(fewest_machines(part, rate / 2, ask)) <= sum(fewest_machines(part, rate, ask))


def _cheapest(part: Part, rate: float, ask: Ask) -> None:
    machines = fewest_machines(part, rate, ask)
    assert part.carries(machines, rate)
    for place, count in enumerate(machines):
        if count:
            fewer = [n - (number == place) for number, n in enumerate(machines)]
            assert not part.carries(fewer, rate), f"{fewer} would do, and {machines} were called cheapest"


def _rows(part: Part, rate: float, ask: Ask) -> None:
    """Fixed at machines that carry the rate, a program with the rows has a solution."""
    machines = fewest_machines(part, rate, ask)
    m = Builder("min", name="rows of a part")
    counts = [float(count) for count in machines]
    columns = m.columns("machines", list(part.hardware), lower=counts, upper=counts, whole=True)
    m.add(m.rows("any", ["any"], lower=0.0), columns, 1.0)
    part.rows(m, [columns[place : place + 1] for place in range(len(counts))], rate, "checked")
    assert ask(m.build(), about="rows of a part").status is not Status.INFEASIBLE, f"rows cut {machines} off"


def _of_use(part: Part, rate: float, ask: Ask) -> None:
    assert all(count <= most for count, most in zip(fewest_machines(part, rate, ask), part.of_use(rate), strict=True))


def _nothing(part: Part, rate: float) -> None:
    assert not part.carries([0] * len(part.hardware), rate)


def _settles(part: Part, rate: float, offers: Mapping[str, int]) -> None:
    found = part.settle(offers, rate)
    assert found.part is not None, found.why
    assert found.part.question == part.question
    assert found.part.rate_qps == {part.app: rate}
    counts: dict[str, int] = {}
    for worker in found.part.workers:
        counts[worker.offer or ""] = counts.get(worker.offer or "", 0) + worker.count
    assert counts == {name: count for name, count in offers.items() if count}, "on exactly these machines"
    again = part.settle(offers, rate)
    assert again.part == found.part, "the same machines settle alike"

r"""The program of a fleet that makes text: machines of each type that carry all tokens, at least cost.

=========  =================================================  =========  ============================================
letter     meaning                                            letter     meaning
=========  =================================================  =========  ============================================
s          a class of requests, share p_s of the rate lambda   x_st       requests of s per second on type t
t          a type: variant, hardware, degree, role             n_t        instances of t (k_t of them on a machine)
m_t        iterations per second of all instances of t         K_t        room for KV of an instance, in tokens
k          a piece (a, b, c, d, e) of the law of t             T          the limit on the time per token
=========  =================================================  =========  ============================================

A request with i tokens in and o out takes n = i + o - 1 tokens of batches, o - 1 decoding steps, reads v = (o - 1)(i +
o/2) tokens of KV, has w = i^2/2 pairs of prefill attention, and holds kv >= v + i tokens of KV summed over iterations.
Classes take the means of these over their requests (never those of a mean length)::

    min sum_o c_o n_o
    (1) sum_s x_st (b_k n_s + c_k v_s + d_k s_s + e_k w_s) + a_k m_t <= n_t      every piece k of type t
    (2) sum_s x_st kv_s <= K_t m_t
    (3) sum_s x_st n_s  <= most_tokens_t m_t
    (4) sum_s x_st s_s  <= most_seqs_t m_t
    (5) n_t <= T m_t
    (6) sum_t x_st = p_s lambda;   of what is late on its type even alone, no more than each percentile leaves

What experts take is concave in the batch, so of a type with experts z_tb tokens per second are decoded in batches of
low_b to high_b, and the experts of a batch e_t(low_b) at least are busy with each::

    (7) sum_b z_tb >= sum_s x_st s_s;  sum_b z_tb / high_b <= m_t;  (1) takes e_t(low_b) / high_b more for each z_tb
        with a limit T, of tokens in time:  sum_b (iteration_t(low_b) - T) z_tb <= 0;  no more others than may be late

Without (5) every schedule with these laws keeps the rows: the optimum is a bound on the cost. With (5) it is a plan for
engines whose mean iteration is at most T, and no more: queues and bursts are in no row. So the fleet is sized by
simulation, token by token (`sizing`); the plan says both.

`Rows` say what given machines carry at most, by one linear program each. `cheapest_at_once` has fleets for who has no
time to solve the program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask
from hetplan.planner.forms.milp import Builder, Elastic, Milp
from hetplan.planner.machine_limits import PRICE_OF_SLACK
from hetplan.planner.program import Expression, Uses, rent
from hetplan.problems.llm.request import TextRequest
from hetplan.serving.tokens import TokenLaw, Work

__all__ = ["Capacity", "Classes", "Program", "Rows", "cheapest_at_once", "classes_of", "is_empty", "program"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]

SLIP = 1e-6
"""Machines by which the relaxation is off: what engines take for whole."""


@dataclass(frozen=True)
class Classes:
    """The classes of a wish under some laws, each with its share and what it takes of each type on the mean.

    `fits` says, per type and class, whether its requests fit there; `late`, per limit, type and class, whether they
    miss the limit even alone. Classes of the wish are split where such an answer differs within one.
    """

    share: Floats
    input: Floats
    work: tuple[Work, ...]
    fits: Truths
    late: Truths

    def __len__(self) -> int:
        return len(self.share)


def classes_of(wish: TextRequest, laws: Sequence[TokenLaw]) -> Classes:
    """The classes of a wish: those of its mix, split where what a type can do for a request differs."""
    demand, requests = wish.demand, wish.demand.requests
    first = wish.first_token_ms(laws, requests)
    fits = np.isfinite(first)
    late = np.zeros((len(wish.limits), len(laws), len(requests)), dtype=bool)
    slack = 1.0 + 1e-9
    for number, limit in enumerate(wish.limits):
        for place, law in enumerate(laws):
            if limit.of == "ttft":
                late[number, place] = first[place] > limit.max_ms * slack
            elif limit.of == "tpot" and law.role != "prefill":
                late[number, place] = law.decode_ms() > limit.max_ms * slack
            elif limit.of == "response":
                steps = (requests.output - 1) * (law.decode_ms() if law.role != "prefill" else 0.0)
                late[number, place] = first[place] + steps > limit.max_ms * slack
    keys = np.concatenate([demand.kind[None, :], fits, late.reshape(-1, len(requests))]).T
    _, firsts, member = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    member = member.reshape(-1)
    parts = [np.flatnonzero(member == number) for number in range(len(firsts))]
    total = demand.weight.sum()
    weights = [demand.weight[part] for part in parts]
    works = []
    for law in laws:
        each = [law.work(requests.taken(part)).means(weight) for part, weight in zip(parts, weights, strict=True)]
        names = ("tokens", "kv_tokens", "sequences", "pairs", "room")
        works.append(Work(**{name: np.concatenate([getattr(one, name) for one in each]) for name in names}))
    return Classes(
        share=np.array([weight.sum() / total for weight in weights]),
        input=np.array([np.average(requests.input[p], weights=w) for p, w in zip(parts, weights, strict=True)]),
        work=tuple(works),
        fits=fits[:, firsts],
        late=late[:, :, firsts],
    )


@dataclass(frozen=True)
class Program:
    """The program of a wish under some laws: which classes may go where, and the form.

    `mean_tpot` adds rows (5); `allow_late` lets a share be late on their types, as far as each percentile does.
    """

    wish: TextRequest
    laws: tuple[TokenLaw, ...]
    mean_tpot: bool
    allow_late: float

    @cached_property
    def classes(self) -> Classes:
        """The classes under these laws."""
        return classes_of(self.wish, self.laws)

    @cached_property
    def pairs(self) -> tuple[Integers, Integers]:
        """Type and class of each column x."""
        allowed = self.classes.fits.copy()
        if not self.allow_late:
            allowed &= ~self.classes.late.any(axis=0)
        kinds, classes = np.nonzero(allowed)
        return kinds, classes

    def seconds(self, kind: int) -> tuple[Floats, Floats]:
        """Of a type: base seconds of each piece, and per class the seconds of each piece."""
        pieces, work = self.laws[kind].prices / 1000.0, self.classes.work[kind]
        loads = np.stack([work.tokens, work.kv_tokens, work.sequences, work.pairs])
        return pieces[:, 0], pieces[:, 1:] @ loads

    def unserved(self) -> list[int]:
        """Classes that no type may serve."""
        kinds, classes = self.pairs
        roles = np.array([law.role for law in self.laws])[kinds]
        whole, first, after = (set(classes[roles == role].tolist()) for role in ("mixed", "prefill", "decode"))
        return [number for number in range(len(self.classes)) if number not in whole | (first & after)]

    def build(self, *, rate: float | None = None) -> Milp:
        """The form: rows (1) to (6) on machines of each type, and the program that rents them."""
        m = Builder("min", name="llm")
        machines = self.flows(m, rate=rate)
        hardware = [kind.hardware for kind in self.wish.kinds]
        used = {name: Expression(machines[[one == name for one in hardware]]) for name in dict.fromkeys(hardware)}
        most = {name: float(self.wish.largest * hardware.count(name)) for name in used}
        rent(m, self.wish.request, Uses(used, most=most, idle=False), priced=True)
        return m.build()

    def flows(self, m: Builder, *, rate: float | None = None) -> Integers:
        """Columns and rows of what machines of each type do; returns the columns of these machines.

        The rate is the last column.
        """
        wish, kinds = self.wish, self.wish.kinds
        each = [kind.name for kind in kinds]
        n = m.columns("machines", each, upper=wish.largest, whole=True, unit="machines")
        rounds = m.columns("m", each, unit="iterations per second")
        of_kind, of_class = self.pairs
        x = m.columns("x", [f"class {s} on {each[t]}" for t, s in zip(of_kind, of_class, strict=True)], unit="qps")
        wanted = wish.rate_qps if rate is None else rate
        at = f"slo.apps.{wish.app.id}"
        lower = Elastic(PRICE_OF_SLACK, field=f"{at}.rate_qps", verb="lower")
        batches = [self._batches(m, t) for t in range(len(kinds))]
        total = m.columns("rate", ["all"], lower=wanted, upper=wanted, unit="qps", elastic=lower)
        self._capacity(m, n, rounds, x, batches)
        self._served(m, x, total)
        late = [columns[1] for columns in batches if len(columns) > 1]
        if late:
            row = m.rows("late tokens", ["all"], upper=0, equation="(7)")
            m.add(row, np.concatenate(late), 1.0)
            m.add(row, total[0], -self._late_tokens())
        return n

    def _batches(self, m: Builder, t: int) -> tuple[Integers, ...]:
        """Columns of a type with experts: tokens decoded in batches of each size, in time and, with a limit, late."""
        law, name = self.laws[t], self.wish.kinds[t].name
        if not law.experts_ms or law.role == "prefill":
            return ()
        each = [f"{name} in batches of {size:g}" for size in law.batches[1]]
        blocks = ("decoded", "decoded late") if np.isfinite(self.wish.limit_ms("tpot")) else ("decoded",)
        return tuple(m.columns(block, each, unit="tokens per second") for block in blocks)

    def _experts(
        self, m: Builder, t: int, at: tuple[Integers, Integers, Integers], batches: tuple[Integers, ...]
    ) -> None:  # fmt: skip
        """Rows (7): what experts take is concave in the batch, so iterations are told apart by their batches.

        Tokens that keep the limit are made in iterations that keep it on the mean over these tokens.
        """
        busy, rounds, x = at
        law, name, (low, high) = self.laws[t], self.wish.kinds[t].name, self.laws[t].batches
        count, decoded = (m.rows(block, [name], lower=0, equation="(7)") for block in ("rounds", "decoded"))
        m.add(count, rounds, 1.0)
        m.add(decoded, x, -self.classes.work[t].sequences[self.pairs[1][self.pairs[0] == t]])
        for tokens in batches:
            m.add(busy[:, None], tokens, -law.experts(low) / high / 1000.0)
            m.add(count, tokens, -1.0 / high)
            m.add(decoded, tokens, 1.0)
        if len(batches) > 1:
            reads = low * (float(self.wish.demand.requests.input.min()) + 1.0)
            ms = [law.iteration_ms(s, v, s) for s, v in zip(low, reads, strict=True)]
            row = m.rows("in time", [name], upper=0, equation="(7)")
            m.add(row, batches[0], np.array(ms) - self.wish.limit_ms("tpot"))

    def _late_tokens(self) -> float:
        """The most tokens per request that are late by right: those of the longest answers."""
        demand = self.wish.demand
        steps = np.asarray(demand.requests.output - 1, dtype=np.float64)
        order = np.argsort(-steps, kind="stable")
        weight = demand.weight[order] / demand.weight.sum()
        tightest = self.wish.limit_ms("tpot")
        left = min(one.left for one in self.wish.limits if (one.of, one.max_ms) == ("tpot", tightest))
        taken = np.minimum(weight, np.maximum(left - (np.cumsum(weight) - weight), 0.0))
        return float(taken @ steps[order])

    def _capacity(
        self, m: Builder, n: Integers, rounds: Integers, x: Integers, batches: Sequence[tuple[Integers, ...]]
    ) -> None:  # fmt: skip
        """Rows (1) to (5) of each type, and (7) of those with experts."""
        wish, (of_kind, of_class) = self.wish, self.pairs
        for t, (kind, law) in enumerate(zip(wish.kinds, self.laws, strict=True)):
            base, seconds = self.seconds(t)
            mine = np.flatnonzero(of_kind == t)
            served, work = of_class[mine], self.classes.work[t]
            busy = m.rows("busy", [f"{kind.name} piece {k}" for k in range(len(base))], lower=0, equation="(1)")
            m.add(busy, n[t], float(kind.instances))
            m.add(busy, rounds[t], -base)
            m.add(busy[:, None], x[mine], -seconds[:, served])
            if batches[t]:
                self._experts(m, t, (busy, rounds[t : t + 1], x[mine]), batches[t])
            for name, number, most, takes in (
                ("room", "(2)", law.kv_tokens, work.room),
                ("batch", "(3)", law.most_tokens, work.tokens),
                ("sequences", "(4)", law.most_seqs, work.sequences),
            ):
                row = m.rows(name, [kind.name], lower=0, equation=number)
                m.add(row, rounds[t], float(most))
                m.add(row, x[mine], -takes[served])
            tpot = wish.limit_ms("tpot")
            if self.mean_tpot and np.isfinite(tpot) and law.role != "prefill":
                row = m.rows("iteration", [kind.name], lower=0, equation="(5)")
                m.add(row, rounds[t], tpot / 1000.0)
                m.add(row, n[t], -float(kind.instances))
            if law.role == "prefill":
                row = m.rows("link", [kind.name], lower=0)
                m.add(row, n[t], float(kind.instances))
                m.add(row, x[mine], -self.classes.input[served] * wish.link_ms_per_token / 1000.0)

    def _served(self, m: Builder, x: Integers, total: Integers) -> None:
        """Rows (6): every class is served, its first tokens and those after; few enough are late."""
        of_kind, of_class = self.pairs
        classes, roles = self.classes, np.array([law.role for law in self.laws])
        first = m.rows("served", [f"class {s}" for s in range(len(classes))], lower=0, upper=0, equation="(6)")
        begins = np.flatnonzero(roles[of_kind] != "decode")
        m.add(first[of_class[begins]], x[begins], 1.0)
        m.add(first, total[0], -classes.share)
        if (roles == "decode").any():
            after = m.rows("handed over", [f"class {s}" for s in range(len(classes))], lower=0, upper=0)
            for role, sign in (("prefill", -1.0), ("decode", 1.0)):
                mine = np.flatnonzero(roles[of_kind] == role)
                m.add(after[of_class[mine]], x[mine], sign)
        if self.allow_late:
            for number, limit in enumerate(self.wish.limits):
                late = np.flatnonzero(classes.late[number, of_kind, of_class])
                if late.size:
                    row = m.rows("late", [f"{limit.of} p{limit.percentile:g}"], upper=0, equation="(6)")
                    m.add(row, x[late], 1.0)
                    m.add(row, total[0], -min(limit.left, self.allow_late))


def program(
    wish: TextRequest, *, mean_tpot: bool, allow_late: float, laws: Sequence[TokenLaw] | None = None
) -> Program:
    """The program of a wish, under its laws as stated or under others."""
    return Program(wish, tuple(laws or (kind.law for kind in wish.kinds)), mean_tpot, allow_late)


@dataclass(frozen=True)
class Capacity:
    """The most requests per second that some counts carry by rows (1) to (4) and (6), whatever the schedule.

    Whatever the counts n, no more than prices @ n is carried: the prices are those of the rows (1), so they hold for
    any fleet. `full` are the rows without slack, as (block, label).
    """

    rate_qps: float
    prices: Floats
    full: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Rows:
    """The rows that say what given counts carry, ready to be asked for one fleet after another."""

    given: Floats
    matrix: Any
    equal: Truths
    labels: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, what: Program, *, iterations: bool = False) -> Rows:
        """The rows of a program, counts on one side and all else on the other; with rows (5) on request."""
        m = Builder("min", name="llm at given machines")
        counts = what.flows(m, rate=0.0).size
        form = m.build()
        rows = [
            (block.start + place, (block.name, block.label(place)))
            for block in form.rows
            if iterations or block.name != "iteration"
            for place in range(block.size)
        ]
        keep, matrix = [number for number, _ in rows], form.matrix.tocsr()
        given = matrix[keep][:, :counts].toarray()
        low, high = form.row_lower[keep], form.row_upper[keep]
        # Rows with an upper end alone (those of late requests) are turned round.
        turned = np.where(np.isfinite(low), 1.0, -1.0)
        scaled = matrix[keep][:, counts:].multiply(turned[:, None]).tocsr()
        return cls(given * turned[:, None], scaled, low == high, tuple(label for _, label in rows))

    def capacity_of(self, counts: Sequence[int] | Floats) -> Capacity:
        """What so many machines of each type carry."""
        from scipy.optimize import linprog

        room, over = self.given @ np.asarray(counts, dtype=np.float64), ~self.equal
        objective = np.zeros(self.matrix.shape[1])
        objective[-1] = -1.0
        answer: Any = linprog(
            objective,
            A_ub=-self.matrix[over],
            b_ub=room[over],
            A_eq=self.matrix[self.equal],
            b_eq=np.zeros(int(self.equal.sum())),
            method="highs",
        )
        if answer.x is None:
            return Capacity(0.0, np.zeros(self.given.shape[1]), ())
        prices = np.asarray(-answer.ineqlin.marginals @ self.given[over])
        names = [label for label, kept in zip(self.labels, over, strict=True) if kept]
        scale = np.abs(self.matrix[over]).max(axis=1).toarray().ravel()
        tight = answer.ineqlin.residual <= 1e-9 * np.maximum(scale, 1.0)
        return Capacity(
            float(-answer.fun), prices, tuple(name for name, full in zip(names, tight, strict=True) if full)
        )


def is_empty(wish: TextRequest, point: Floats | None) -> bool:
    """Whether a point rents no machine: so few requests are less than what engines tell from none."""
    return point is not None and not np.rint(point[: len(wish.kinds)]).any()


def cheapest_at_once(what: Program, form: Milp, point: Floats | None, ask: Ask) -> Floats | None:
    """The cheapest of a point of the program, if there is one, and the fleets that are found at once.

    For a program that no engine had the time to solve: the first point of an engine that was stopped may rent a hundred
    times what is needed. The relaxation rounded up, and enough machines of one type alone, take a few linear programs;
    the cheapest that the program allows is taken.
    """
    best = None if is_empty(what.wish, point) else point
    for counts in _fleets_at_once(what, form, ask):
        lower, upper = form.lower.copy(), form.upper.copy()
        lower[: counts.size] = upper[: counts.size] = counts
        found = ask(replace(form, lower=lower, upper=upper), gap=1e-6, about="cost of given machines").point
        if found is not None and (best is None or form.value(found) < form.value(best)):
            best = found
    return best


def _fleets_at_once(what: Program, form: Milp, ask: Ask) -> Iterator[Floats]:
    """Machines of each type: the relaxation rounded up, then each type alone that carries the rate."""
    kinds = len(what.wish.kinds)
    relaxed = ask(replace(form, whole=np.zeros_like(form.whole)), gap=1e-6, about="relaxation with headroom").point
    if relaxed is not None and (counts := np.ceil(relaxed[:kinds] - SLIP)).any():
        yield counts
    rows = Rows.of(what, iterations=True)
    for one in np.eye(kinds):
        carried = rows.capacity_of(one).rate_qps
        if carried > 0.0:
            counts = one * math.ceil(what.wish.rate_qps / carried * (1.0 - 1e-9))
            if counts.max() <= what.wish.largest:
                yield counts

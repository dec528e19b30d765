"""Why a form has no solution, and the smallest change that would give it one.

`stretch` lets rows (and column bounds) give way at a price: slack s >= 0 widens them. The cheapest slack says how
far the wish is from possible; the rows that must give way together say what contradicts what.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import TOGETHER, Infeasibility, Repair
from hetplan.planner.forms.milp import Block, Elastic, Milp
from hetplan.planner.tolerances import FEASIBILITY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetplan.planner.forms.milp import Vector

__all__ = ["Knob", "explain", "giving_together", "knobs", "stretch", "stretch_all"]

MOST_KNOBS = 24
"""Single repairs tried one by one; beyond, only the blocks that give way in the cheapest joint relaxation are."""
MOST_NAMED = 5


@dataclass(frozen=True, eq=False)
class Knob:
    """One thing a user stated that may give way: a row or a column bound of an elastic block."""

    block: Block
    elastic: Elastic
    index: int
    is_row: bool

    @property
    def label(self) -> str:
        """How the block calls it."""
        return self.block.label(self.index - self.block.start)

    @property
    def field(self) -> str:
        """The field that the user stated."""
        return self.elastic.field.format(label=self.label)


def knobs(form: Milp) -> list[Knob]:
    """Every row and column bound of the form that may give way."""
    found = []
    for is_row, blocks in ((True, form.rows), (False, form.columns)):
        for block in blocks:
            if block.elastic is not None:
                found += [Knob(block, block.elastic, i, is_row) for i in range(block.start, block.stop)]
    return found


def stretch(form: Milp, loose: Sequence[Knob]) -> tuple[Milp, Callable[[Vector], Vector]]:
    """The form with these knobs loosened, minimising the priced slack, and how to read the slacks off a point."""
    rows = np.array([k.index for k in loose if k.is_row], dtype=np.int64)
    columns = np.array([k.index for k in loose if not k.is_row], dtype=np.int64)
    row_price = np.array([k.elastic.price for k in loose if k.is_row])
    column_price = np.array([k.elastic.price for k in loose if not k.is_row])
    model = _stretch_rows(form, rows, row_price, columns, column_price)
    n, r, c = form.cost.size, rows.size, columns.size
    place = {id(k): p for p, k in enumerate([k for k in loose if k.is_row])}
    place |= {id(k): r + p for p, k in enumerate([k for k in loose if not k.is_row])}

    def read(x: Vector) -> Vector:
        slack = np.concatenate([x[n : n + r] + x[n + r : n + 2 * r], x[n + 2 * r : n + 2 * r + c] + x[n + 2 * r + c :]])
        return np.array([slack[place[id(k)]] for k in loose])

    return model, read


def stretch_all(form: Milp) -> Milp:
    """Every row loosened at price 1: always feasible, and its least value is 0 exactly if the form is feasible.

    This is how a claim of infeasibility is put to the test without trusting the engine that made it.
    """
    rows = np.arange(form.row_lower.size)
    scale = np.ones(rows.size)
    np.maximum.at(scale, form.matrix.indices, np.abs(form.matrix.data))
    model = _stretch_rows(form, rows, 1.0 / scale, np.zeros(0, np.int64), np.zeros(0))
    # Slack without end would leave its least value without a safe bound. This much is what the point nearest to zero
    # may need, so the loosened form stays feasible.
    limits = np.abs(np.where(np.isfinite(form.row_lower), form.row_lower, 0.0))
    limits = np.maximum(limits, np.abs(np.where(np.isfinite(form.row_upper), form.row_upper, 0.0)))
    nearest = np.abs(np.clip(0.0, form.lower, form.upper))
    model.upper[form.cost.size :] = np.tile(1.0 + limits + abs(form.matrix) @ nearest, 2)
    return model


def _stretch_rows(
    form: Milp, rows: NDArray[np.int64], row_price: Vector, columns: NDArray[np.int64], column_price: Vector
) -> Milp:
    from scipy.sparse import block_array, coo_array, csc_array

    n_rows, n = form.matrix.shape
    r, c = rows.size, columns.size
    ones, at = np.ones(r), np.arange(r)
    up = coo_array((-ones, (rows, at)), shape=(n_rows, r))
    down = coo_array((ones, (rows, at)), shape=(n_rows, r))
    pick = coo_array((np.ones(c), (np.arange(c), columns)), shape=(c, n))
    eye = coo_array((np.ones(c), (np.arange(c), np.arange(c))), shape=(c, c))
    matrix = block_array(
        [[form.matrix, up, down, None, None], [pick, None, None, -eye, eye]] if c else [[form.matrix, up, down]],
        format="csc",
    )
    lower, upper = form.lower.copy(), form.upper.copy()
    # A loosened bound moves into a row; the sign of the variable itself is no demand and stays.
    lower[columns] = np.minimum(lower[columns], 0.0)
    upper[columns] = np.inf
    slack = 2 * r + 2 * c
    return Milp(
        sense="min",
        name=f"{form.name} stretched",
        cost=np.concatenate([np.zeros(n), row_price, row_price, column_price, column_price]),
        matrix=csc_array(matrix),
        row_lower=np.concatenate([form.row_lower, form.lower[columns]]),
        row_upper=np.concatenate([form.row_upper, form.upper[columns]]),
        lower=np.concatenate([lower, np.zeros(slack)]),
        upper=np.concatenate([upper, np.full(slack, np.inf)]),
        whole=np.concatenate([form.whole, np.zeros(slack, dtype=bool)]),
        columns=(*form.columns, Block("slack", n, slack)),
        rows=(*form.rows, Block("loosened", n_rows, c)) if c else form.rows,
    )


def explain(
    form: Milp,
    ask: Ask,
    *,
    kept: str = "",
    gap: float | None = None,
    known: Mapping[tuple[str, str], float] | None = None,
) -> Infeasibility:
    """The smallest set of demands that cannot hold together, and the smallest repairs, in the user's units.

    What the block `kept` says does not give way. `gap` is how far from the smallest repairs may be: of large forms they
    need no last digit. Of some rows, by block and label, it is `known` how much they must give alone (infinite: none is
    enough).
    """
    loose = [knob for knob in knobs(form) if knob.block.name != kept]
    if not loose:
        return Infeasibility(why=("no choice satisfies all rows, and none of them may give way",))
    # Of what only helps to explain, no infeasibility is claimed: none is put to the test.
    answer, giving, together, briefly = None, list[Knob](), list[Repair](), ask.without_infeasibility_checks()
    alone = _single_repairs(form, briefly, loose, gap, known or {}) if len(loose) <= MOST_KNOBS else {}
    if not alone:
        answer, slack = giving_together(form, ask, loose, gap)
        if answer.point is None:
            return Infeasibility(
                why=("even with every demand loosened no choice exists",), proved=answer.status is Status.INFEASIBLE
            )
        giving = list(slack)
        if len(loose) > MOST_KNOBS:
            alone = _single_repairs(form, briefly, giving[:MOST_KNOBS], gap, known or {})
        also = TOGETHER if len(giving) > 1 else ""
        together = [_repair(form, k, slack[k], also) for k in giving] if not alone else []
    names = _binding_blocks(form, briefly, loose, [*alone, *(k for k in giving if k not in alone)])
    return Infeasibility(why=tuple(names), repairs=(*alone.values(), *together), answer=answer)


def giving_together(
    form: Milp, ask: Ask, loose: Sequence[Knob], gap: float | None = None
) -> tuple[Answer[Vector], dict[Knob, float]]:
    """The cheapest joint relaxation of these demands, and by how much each of those gives way that do."""
    joint, read = stretch(form, loose)
    answer = ask(joint, gap=gap, about="smallest joint relaxation")
    slack = [] if answer.point is None else zip(loose, read(answer.point).tolist(), strict=True)
    return answer, {knob: more for knob, more in slack if more > FEASIBILITY * _scale(knob, form)}


def _single_repairs(
    form: Milp,
    ask: Ask,
    tried: list[Knob],
    gap: float | None,
    known: Mapping[tuple[str, str], float],
) -> dict[Knob, Repair]:
    """For each knob alone, the least it must give; what cures nothing alone is left out."""
    found = {}
    for knob in tried:
        if ask.remaining <= 0:
            break
        if (slack := known.get((knob.block.name, knob.label))) is not None:
            if math.isfinite(slack):
                found[knob] = _repair(form, knob, slack)
            continue
        model, read = stretch(form, [knob])
        answer: Answer[Vector] = ask(model, gap=gap, about=f"least change of {knob.block.name} {knob.label} alone")
        if answer.point is not None:
            found[knob] = _repair(form, knob, float(read(answer.point)[0]))
    return found


def _binding_blocks(form: Milp, ask: Ask, loose: list[Knob], giving: list[Knob]) -> list[str]:
    """A smallest contradiction among the blocks, by the deletion filter: drop what is not needed to contradict.

    Of a block those are named that give way, in the joint relaxation or alone.
    """
    blocks = list({(k.is_row, k.block.name): k.block for k in loose}.values())
    kept = list(blocks)
    if len(blocks) <= MOST_KNOBS:
        for block in blocks:
            if ask.remaining <= 0:
                break
            freed = [k for k in loose if all(k.block is not other for other in kept if other is not block)]
            # Any point will do: no slack is dear here.
            model = replace(stretch(form, freed)[0], cost=np.zeros(form.cost.size + 2 * len(freed)))
            feasible_without = ask(model, about=f"is {block.name} needed for the contradiction").point is not None
            if not feasible_without:
                kept.remove(block)
    named = list[str]()
    for block in kept:
        helps = [k for k in giving if k.block is block]
        own = sorted(helps, key=lambda k: k.index) or [k for k in loose if k.block is block]
        fields = [k.elastic.field.format(label=k.label) for k in own]
        named += [*fields[:MOST_NAMED], *([f"{len(fields) - MOST_NAMED} more like it"] if fields[MOST_NAMED:] else [])]
    if not named:
        return ["infeasible even if every requirement that can be relaxed is relaxed"]
    *others, last = dict.fromkeys(named)
    return [f"{', '.join(others)} and {last} cannot hold together" if others else f"{last} cannot be met"]


def _scale(knob: Knob, form: Milp) -> float:
    limits = (
        (form.row_lower[knob.index], form.row_upper[knob.index])
        if knob.is_row
        else (form.lower[knob.index], form.upper[knob.index])
    )
    return max([1.0, *(abs(float(limit)) for limit in limits if math.isfinite(limit))])


def _repair(form: Milp, knob: Knob, slack: float, also: str = "") -> Repair:
    elastic = knob.elastic
    per_unit = elastic.per_unit
    if isinstance(per_unit, tuple):
        per_unit = per_unit[knob.index - knob.block.start]
    amount = slack * per_unit
    if elastic.whole:
        amount = float(math.ceil(amount - 1e-9))
    lower, upper = (
        (form.row_lower[knob.index], form.row_upper[knob.index])
        if knob.is_row
        else (form.lower[knob.index], form.upper[knob.index])
    )
    stated = upper if elastic.verb == "raise" else lower
    stated = (stated if math.isfinite(stated) else lower) * per_unit
    to = float(stated + amount if elastic.verb == "raise" else stated - amount)
    to = round(to) if elastic.whole else to
    at = elastic.field.format(label=knob.label)
    unit = f" {elastic.unit}" if elastic.unit else ""
    text = f"{elastic.verb} {at} by {amount:.6g}{unit} to {to:.6g}{unit}{also}"
    return Repair(field=at, verb=elastic.verb, amount=amount, to=to, unit=elastic.unit, text=text)

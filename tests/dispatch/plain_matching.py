"""The matching rule written plainly: what the quick kernel must decide, to the last tie."""

from __future__ import annotations

import numpy as np

from hetplan.dispatch.matching_kernels import Costs, Seen

__all__ = ["plain_mates"]


def plain_mates(seen: Seen, costs: Costs) -> list[int]:
    """The instance of each query that waits, or -1."""
    queries, (_, late_cost, limit_ms, merge) = seen.queries, costs
    chosen = _candidates(seen, merge)
    busy = np.maximum(seen.ends_ms - seen.now_ms, 0.0)
    waited = seen.now_ms - seen.arrived_ms[seen.waiting[:queries]]
    service = seen.service_ms[seen.rows[seen.waiting[:queries]]]
    cost = _costs(busy[chosen], service[:, seen.kind[chosen]], waited, seen.kind[chosen], costs)
    mates = [-1] * queries
    if queries <= len(chosen):
        for k, place in enumerate(_assigned(cost)):
            mates[k] = int(chosen[place])
    else:
        for place, k in enumerate(_assigned(cost.T)):
            mates[k] = int(chosen[place])
    slack = (limit_ms - waited)[:, None] - service
    _older_first(seen, busy, slack, mates)
    if late_cost[0] >= 0.0:
        _late_stand_back(seen, busy, slack, mates)
    return mates


def _candidates(seen: Seen, merge: bool) -> np.ndarray:
    if not merge or seen.queries >= seen.kind.size:
        return np.arange(seen.kind.size)
    types = [np.flatnonzero(seen.kind == t) for t in range(len(seen.first) - 1)]
    return np.concatenate([one[np.argsort(seen.ends_ms[one], kind="stable")[: seen.queries]] for one in types])


def _costs(busy: np.ndarray, service: np.ndarray, waited: np.ndarray, kind: np.ndarray, costs: Costs) -> np.ndarray:
    weight, late_cost, limit_ms, _ = costs
    done = busy + service
    price = weight[kind] * done
    beyond = (price.max() + 1.0) * (min(price.shape) + 1)
    late = price + beyond if late_cost[0] < 0.0 else np.broadcast_to(late_cost[kind], price.shape)
    return np.where(done + waited[:, None] <= limit_ms, price, late)


def _assigned(cost: np.ndarray) -> list[int]:
    """Rows enter one by one by a cheapest path; of columns equally near a free one is taken, else the first."""
    rows, columns = cost.shape
    of_row, of_column = np.zeros(rows), np.zeros(columns)
    column_of, row_of = np.full(rows, -1), np.full(columns, -1)
    for row in range(rows):
        best, via, price = np.full(columns, np.inf), np.full(columns, -1), of_column.copy()
        owner, base, settled = row, 0.0, []
        while True:
            reduced = base + cost[owner] - price
            via[reduced < best] = owner
            best = np.minimum(reduced, best)
            lowest = best.min()
            ties = np.flatnonzero(best == lowest)
            nearest = next((column for column in ties if row_of[column] < 0), ties[0])
            if row_of[nearest] < 0:
                break
            settled.append((nearest, lowest))
            best[nearest], price[nearest] = np.inf, -np.inf
            owner = row_of[nearest]
            base = lowest - of_row[owner]
        of_row[row] = lowest
        for column, distance in settled:
            of_row[row_of[column]] += lowest - distance
            of_column[column] -= lowest - distance
        owner = -1
        while owner != row:
            owner = via[nearest]
            row_of[nearest], before = owner, column_of[owner]
            column_of[owner], nearest = nearest, before
    return column_of.tolist()


def _older_first(seen: Seen, busy: np.ndarray, slack: np.ndarray, mates: list[int]) -> None:
    for younger in range(seen.queries):
        for older in range(younger):
            sooner, later = mates[younger], mates[older]
            if min(sooner, later) < 0 or seen.kind[sooner] != seen.kind[later]:
                continue
            both = slack[[older, younger], seen.kind[sooner]]
            if seen.ends_ms[later] > seen.ends_ms[sooner] and (both.min() >= busy[later] or both.max() < busy[sooner]):
                mates[older], mates[younger] = sooner, later


def _late_stand_back(seen: Seen, busy: np.ndarray, slack: np.ndarray, mates: list[int]) -> None:
    for k, mate in enumerate(mates):
        if mate < 0 or slack[k, seen.kind[mate]] >= busy[mate]:
            continue
        for instance in range(seen.first[seen.kind[mate]], mate):
            if instance not in mates and slack[k, seen.kind[mate]] < busy[instance]:
                mates[k] = instance
                break

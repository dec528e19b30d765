"""The matching of waiting queries to instances, as loops that compile (Kairos, Eqs. 1-8).

`assign_rows` is a shortest-augmenting-path solver of the rectangular assignment problem (Jonker-Volgenant, Hungarian);
`pair_off` writes the costs of Eqs. 2, 5 and 8 and calls it. Both work in `Scratch` arrays made once by `scratch`,
because a simulation calls them millions of times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import bare_kernel, part

__all__ = [
    "IDLE",
    "Costs",
    "Floats",
    "Integers",
    "Scratch",
    "Seen",
    "assign",
    "match",
    "pair_off",
    "pair_quickly",
    "scratch",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Scratch = tuple[Floats, Floats, Integers]
Costs = tuple[Floats, Floats, float, bool]


class Seen(NamedTuple):
    """What a matching looks at: the first `queries` of `waiting`, oldest first, and the instances.

    ``service_ms[rows[i], t]`` is the predicted service time of query i on type t; instances of type t are
    ``first[t] <= j < first[t + 1]`` and ``kind[j]`` is t; ``ends_ms[j]`` is when instance j is expected to be free,
    `IDLE` if it is free.
    """

    now_ms: float
    waiting: Integers
    queries: int
    arrived_ms: Floats
    rows: Integers
    service_ms: Floats
    first: Integers
    kind: Integers
    ends_ms: Floats


IDLE = -1.0
"""In place of the time at which an instance will be free: it is free now."""

LANES = 4
"""Columns come in multiples of this, so that compiled loops over them have no odd ones left to do one by one."""

APART = 1e-9
"""Times the cost of a late pair: sums that differ by less may be told apart by rounding errors alone."""

MOST_LATE = 1e6
"""Times the cost of a pair that is just in time: where a late one costs more, rounding errors may be as large."""

MOST_LENGTHS = 16
"""Services of more lengths are not told apart without a matching."""


def scratch(instances: int, window: int) -> Scratch:
    """Room for matching up to `window` queries with up to `instances` instances."""
    side = LANES * -(-max(instances, window, 1) // LANES)
    return np.zeros((max(min(instances, window), 1), side)), np.zeros((5, side)), np.zeros((5, side), np.int64)


@part
def nearest_open(best: Floats, columns: int) -> float:
    """The least of ``best[:columns]``, whole lanes: four running minima, which a processor finds side by side."""
    one, two, three, four = np.inf, np.inf, np.inf, np.inf
    for column in range(0, columns, LANES):
        one = best[column] if best[column] < one else one
        two = best[column + 1] if best[column + 1] < two else two
        three = best[column + 2] if best[column + 2] < three else three
        four = best[column + 3] if best[column + 3] < four else four
    return min(min(one, two), min(three, four))


@part
def assign_rows(rows: int, columns: int, room: Scratch) -> None:
    """Give each row its own column at least total cost; `rows` must not exceed `columns`.

    Costs are read from ``room[0][:rows, :columns]``; the column of each row is left in ``room[2][0, :rows]``.
    Rows enter one by one; each takes the cheapest path of exchanges to a free column, with the costs reduced by
    prices (`of_row`, `of_column`) that keep every reduced cost at or above zero. A column that is `settled` leaves the
    search by an infinite price, and columns of infinite cost fill up the last lanes, so that the loops have no branch.
    """
    cost, real, whole = room
    of_row, of_column, distance, best, price = real[0], real[1], real[2], real[3], real[4]
    column_of, row_of, via, settled = whole[0], whole[1], whole[2], whole[3]
    given = columns
    columns = (columns + LANES - 1) // LANES * LANES
    for column in range(given, columns):
        for row in range(rows):
            cost[row, column] = np.inf
    for column in range(columns):
        of_column[column] = 0.0
        row_of[column] = -1
    for row in range(rows):
        for column in range(columns):
            best[column] = np.inf
            price[column] = of_column[column]
        owner, base, lowest, count = row, 0.0, 0.0, 0
        while True:
            for column in range(columns):
                reduced = base + cost[owner, column] - price[column]
                better = reduced < best[column]
                via[column] = owner if better else via[column]
                best[column] = reduced if better else best[column]
            lowest = nearest_open(best, columns)
            # Of columns equally near a free one ends the search, else the first is taken: the least of these numbers.
            nearest = 2 * columns - 1
            for column in range(columns):
                place = column if row_of[column] < 0 else columns + column
                nearest = min(nearest, place if best[column] == lowest else 2 * columns - 1)
            nearest = nearest if nearest < columns else nearest - columns
            if row_of[nearest] < 0:
                break
            settled[count] = nearest
            count += 1
            distance[nearest] = lowest
            best[nearest], price[nearest] = np.inf, -np.inf
            owner = row_of[nearest]
            base = lowest - of_row[owner]
        of_row[row] = lowest
        for place in range(count):
            seen = settled[place]
            of_row[row_of[seen]] += lowest - distance[seen]
            of_column[seen] -= lowest - distance[seen]
        while True:
            owner = via[nearest]
            row_of[nearest] = owner
            previous = column_of[owner]
            column_of[owner] = nearest
            if owner == row:
                break
            nearest = previous


@part
def candidates(queries: int, first: Integers, ends: Floats, merge: bool, chosen: Integers) -> int:
    """Write into `chosen` the instances worth looking at, and return how many.

    Of instances of one type, the sooner free is at least as good for every query. So with fewer queries than
    instances, only the `queries` soonest of each type can matter: all others merge into them, idle ones first.
    """
    total = int(first[-1])
    count = 0
    if not merge or queries >= total:
        for instance in range(total):
            chosen[instance] = instance
        return total
    for kind in range(first.shape[0] - 1):
        start = count
        for instance in range(first[kind], first[kind + 1]):
            place = count
            if count - start == queries:
                if ends[instance] >= ends[chosen[count - 1]]:
                    continue
                place -= 1
            else:
                count += 1
            while place > start and ends[chosen[place - 1]] > ends[instance]:
                chosen[place] = chosen[place - 1]
                place -= 1
            chosen[place] = instance
    return count


@part
def busy_ms(ends_ms: float, now_ms: float) -> float:
    """How long an instance is still expected to be busy; one that is overdue is expected to end now."""
    return ends_ms - now_ms if ends_ms > now_ms else 0.0


@part
def slack_of(seen: Seen, k: int, of_type: int, limit_ms: float) -> float:
    """How long the k-th query may still wait for an instance of a type and be served in time."""
    query = seen.waiting[k]
    return float(limit_ms - (seen.now_ms - seen.arrived_ms[query]) - seen.service_ms[seen.rows[query], of_type])


@part
def write_costs(seen: Seen, costs: Costs, chosen: Integers, columns: int, cost: Floats) -> None:
    """Fill in what each pair costs (Eqs. 2, 5, 8): a row per query, or per instance where there are fewer of those."""
    now_ms, queries, kind = seen.now_ms, seen.queries, seen.kind
    waiting, rows, service_ms = seen.waiting, seen.rows, seen.service_ms
    weight, late_cost, limit_ms, _ = costs
    beyond = 0.0
    if late_cost[0] < 0.0:
        # More than all pairs in time can cost together.
        for place in range(columns):
            instance = chosen[place]
            busy = busy_ms(float(seen.ends_ms[instance]), now_ms)
            for k in range(queries):
                done = busy + service_ms[rows[waiting[k]], kind[instance]]
                beyond = max(beyond, weight[kind[instance]] * done)
        beyond = (beyond + 1.0) * (min(queries, columns) + 1)
    for place in range(columns):
        instance = chosen[place]
        busy = busy_ms(float(seen.ends_ms[instance]), now_ms)
        of_type = kind[instance]
        for k in range(queries):
            query = waiting[k]
            done = busy + service_ms[rows[query], of_type]
            price = weight[of_type] * done
            if not done + (now_ms - seen.arrived_ms[query]) <= limit_ms:
                price = price + beyond if beyond > 0.0 else late_cost[of_type]
            if queries <= columns:
                cost[k, place] = price
            else:
                cost[place, k] = price


@part
def older_first(seen: Seen, limit_ms: float, mates: Integers) -> None:
    """Of two queries on instances of one type, the older takes the one that is free sooner, if both stay as timely.

    Such an exchange never changes the cost: without a rule, rounding errors would decide who starts first.
    """
    now_ms, kind, ends_ms = seen.now_ms, seen.kind, seen.ends_ms
    for younger in range(1, seen.queries):
        if mates[younger] < 0:
            continue
        of_type = int(kind[mates[younger]])
        for older in range(younger):
            sooner, later = mates[younger], mates[older]
            if later < 0 or kind[later] != of_type or not ends_ms[later] > ends_ms[sooner]:
                continue
            slack_of_one = slack_of(seen, older, of_type, limit_ms)
            slack_of_other = slack_of(seen, younger, of_type, limit_ms)
            both_timely = min(slack_of_one, slack_of_other) >= busy_ms(float(ends_ms[later]), now_ms)
            both_late = max(slack_of_one, slack_of_other) < busy_ms(float(ends_ms[sooner]), now_ms)
            if both_timely or both_late:
                mates[older], mates[younger] = sooner, later


@part
def late_stand_back(seen: Seen, limit_ms: float, mates: Integers, taken: Integers) -> None:
    """Queries that are late anyway keep to the first instances of their type, where that costs the same.

    Late pairs of one type cost alike, so which instance they hold is a tie. On any idle one they would start at once
    and hinder the timely; on the last to be free they would wait for ever. Keeping to one they are served in turn.
    """
    now_ms, queries, kind, ends_ms = seen.now_ms, seen.queries, seen.kind, seen.ends_ms
    marked = False
    for k in range(queries):
        if mates[k] < 0:
            continue
        of_type = int(kind[mates[k]])
        slack = slack_of(seen, k, of_type, limit_ms)
        if slack >= busy_ms(float(ends_ms[mates[k]]), now_ms):
            continue
        if not marked:
            marked = True
            for instance in range(kind.shape[0]):
                taken[instance] = 0
            for other in range(queries):
                if mates[other] >= 0:
                    taken[mates[other]] = 1
        for instance in range(seen.first[of_type], mates[k]):
            if taken[instance] == 0 and slack < busy_ms(float(ends_ms[instance]), now_ms):
                taken[instance], taken[mates[k]] = 1, 0
                mates[k] = instance
                break


@part
def soonest_first(ends: Floats, chosen: Integers, columns: int, ordered: Integers) -> bool:
    """Write instances in the order in which they will be free; whether no two will be so at the same time."""
    for place in range(columns):
        instance = chosen[place]
        before = place
        while before > 0 and ends[ordered[before - 1]] > ends[instance]:
            ordered[before] = ordered[before - 1]
            before -= 1
        ordered[before] = instance
    apart = True
    for place in range(1, columns):
        apart = apart and ends[ordered[place - 1]] < ends[ordered[place]]
    return bool(apart)


@part
def longest_taken(service: Floats, queries: int, wanted: int, least_apart: float) -> tuple[float, int]:
    """Of the shortest `wanted` services the longest, and how many there are of that length; no such: -1.

    Services of two lengths that are hardly apart are not told apart.
    """
    length, taken = -np.inf, 0
    for _ in range(MOST_LENGTHS):
        following, count = np.inf, 0
        for k in range(queries):
            longer = service[k] > length
            count = 1 if longer and service[k] < following else count + 1 if service[k] == following else count
            following = service[k] if longer and service[k] < following else following
        if following - length <= least_apart:
            break
        length = following
        if taken + count >= wanted:
            for k in range(queries):
                if length < service[k] <= length + least_apart:
                    return -1.0, 0
            return float(length), wanted - taken
        taken += count
    return -1.0, 0


@part
def pair_in_turn(seen: Seen, costs: Costs, columns: int, mates: Integers, room: Scratch) -> bool:
    """The matching where all instances are of one type and no time decides who is late; whether it is so.

    Let each query be either timely on each instance or late on each. What a timely pair costs is a sum of the
    instance's part and the query's, and late pairs cost the same. So the timely queries of the shortest services come
    first, of one length the older, then the oldest late ones; and the timely take the instances that are free soonest.
    Who takes which of these does not change the cost: `older_first` decides. Where two sums are hardly apart rounding
    errors decide, and this function does not.
    """
    weight, late_cost, limit_ms, _ = costs
    ordered, service = room[2][0], room[1][0]
    of_type = int(seen.kind[0])
    worth, late_ms = weight[of_type], late_cost[of_type]
    if not 2.0 <= late_ms / (worth * limit_ms) <= MOST_LATE or not soonest_first(
        seen.ends_ms, room[2][4], columns, ordered
    ):
        return False
    soonest = busy_ms(float(seen.ends_ms[ordered[0]]), seen.now_ms)
    latest = busy_ms(float(seen.ends_ms[ordered[columns - 1]]), seen.now_ms)
    timely = 0
    for k in range(seen.queries):
        query = seen.waiting[k]
        took, waited = seen.service_ms[seen.rows[query], of_type], seen.now_ms - seen.arrived_ms[query]
        slack = slack_of(seen, k, of_type, limit_ms)
        if slack >= latest and latest + took + waited <= limit_ms:
            service[k] = took
            timely += 1
        elif slack < soonest and not soonest + took + waited <= limit_ms:
            service[k] = np.inf
        else:
            return False
    least_apart = APART * late_ms / worth
    first_late = min(timely, columns)
    longest, of_longest = np.inf, 0
    if timely > columns:
        longest, of_longest = longest_taken(service, seen.queries, columns, least_apart)
        if longest < 0.0:
            return False
    elif 0 < timely < columns:
        before, after = seen.ends_ms[ordered[timely - 1]], seen.ends_ms[ordered[timely]]
        if busy_ms(float(after), seen.now_ms) - busy_ms(float(before), seen.now_ms) <= least_apart:
            return False
    placed, placed_late = 0, first_late
    for k in range(seen.queries):
        mates[k] = -1
        if service[k] == np.inf:
            if placed_late < columns:
                mates[k] = ordered[placed_late]
                placed_late += 1
        elif service[k] < longest or (service[k] == longest and of_longest > 0):
            of_longest -= 1 if service[k] == longest else 0
            mates[k] = ordered[placed]
            placed += 1
    return True


@part
def pair_off(seen: Seen, costs: Costs, mates: Integers, room: Scratch) -> None:
    """Match queries with instances; ``mates[k]`` is the instance of the k-th that waits, or -1.

    `costs` are: the weight of each type; what a late pair costs on each type (negative: late pairs count before all
    else); the limit of Eq. 5 in ms; whether to merge alike instances.
    """
    _, late_cost, limit_ms, merge = costs
    queries, cost, whole = seen.queries, room[0], room[2]
    chosen = whole[4]
    columns = candidates(queries, seen.first, seen.ends_ms, merge, chosen)
    write_costs(seen, costs, chosen, columns, cost)
    assign_rows(min(queries, columns), max(queries, columns), room)
    if queries <= columns:
        for k in range(queries):
            mates[k] = chosen[whole[0, k]]
    else:
        for k in range(queries):
            mates[k] = -1
        for place in range(columns):
            mates[whole[0, place]] = chosen[place]
    older_first(seen, limit_ms, mates)
    if late_cost[0] >= 0.0:
        late_stand_back(seen, limit_ms, mates, whole[1])


@part
def pair_quickly(seen: Seen, costs: Costs, mates: Integers, room: Scratch) -> None:
    """The same pairs as `pair_off`, which is called where `pair_in_turn` does not do.

    It pays where queues are long. (In one function with it `pair_off` is not inlined, and each call takes longer.)
    """
    if seen.queries > 1 and seen.kind[0] == seen.kind[-1]:
        columns = candidates(seen.queries, seen.first, seen.ends_ms, costs[3], room[2][4])
        if columns <= seen.queries and pair_in_turn(seen, costs, columns, mates, room):
            late_stand_back(seen, costs[2], mates, room[2][1])
            return
    pair_off(seen, costs, mates, room)


assign = bare_kernel(assign_rows)
"""`assign_rows` for Python to call."""

match = bare_kernel(pair_quickly)
"""`pair_quickly` for Python to call."""

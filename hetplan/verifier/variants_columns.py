r"""Applications that share nothing but rooms, each covered by itself: what prices of the rooms prove of all covers.

An application b needs 1. An instance of item j brings gain_j of it, costs cost_j and takes use_rj of room r; of the
items of a group g those beyond `free` cost `surcharge` more. A *cover* of b is a choice of counts that brings 1. For
any prices mu >= 0 of the rooms, and whatever covers K_b each application keeps::

    L(K, mu) = sum_b min { cost + mu use of the covers in K_b } - mu room

bounds every choice of covers from K. Of all covers the least is found by going down from the items that bring most for
their price (`_Covers`). Where that leaves a gap the plan carries a tree. At prices mu a choice with a cover that is
`slack` dearer than the least of its application costs L + slack at least; the covers that are not so dear are few, and
all of them are found again here. Each split parts them: at least so many of an item, or fewer. Before it those go that
no choice below the tree's `limit` takes, by the split's own prices. So L + slack, the limit, and L of what each leaf
keeps, at the leaf's prices, bound every choice: the least of them does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.verifier.rows import MOST_LEAVES, NoProof

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Kept = NDArray[np.bool_]

__all__ = ["Apart", "Item"]

_SHORT = 2e-9
"""What may be missing of a need that counts as covered: more than a plan's own rounding, so that no cover is missed."""
_ROUNDING = 1e-10
"""Taken off each bound, of the sizes of what it is the sum of."""
_MOST_STEPS, _MOST_PIECES = 2_000_000, 400
_MOST_COVERS = 40_000


@dataclass(frozen=True)
class Item:
    """What there may be of for one application: see the letters above; `most` of it are ever of use."""

    name: str
    gain: float
    cost: float
    group: int
    most: int
    use: Mapping[str, float]


@dataclass(frozen=True)
class Apart:
    """The items of each application that needs something, what is free of groups and costs beyond that, the rooms."""

    items: Sequence[Sequence[Item]]
    free: Mapping[int, int]
    surcharge: Mapping[int, float]
    rooms: Mapping[str, float]

    def shown(self, proof: Mapping[str, Any]) -> float:
        """The bound that a plan's prices show, and its tree where it has one; NoProof where they show none."""
        prices = self._prices(proof.get("prices"))
        left = [_MOST_STEPS]
        least = [self._least(mine, prices, left) for mine in self.items]
        if not all(map(math.isfinite, least)):
            raise NoProof("an application has no instances here that could serve it")
        bound = self._less_rooms(sum(least), prices)
        return max(bound, self._by_tree(proof["tree"], prices, least, bound, left)) if "tree" in proof else bound

    def _prices(self, said: Any) -> dict[str, float]:
        try:
            found = {str(row): float(price) for row, price in said.items()}
        except (AttributeError, TypeError, ValueError):
            raise NoProof("it carries no prices that can be read") from None
        unknown = [row for row in found if row not in self.rooms]
        if unknown:
            raise NoProof(f"it prices {unknown[0]}, which the question does not have as it is rebuilt here")
        if not all(math.isfinite(price) and price >= 0.0 for price in found.values()):
            raise NoProof("its prices are no numbers, or below 0")
        return found

    def _less_rooms(self, total: float, prices: Mapping[str, float]) -> float:
        spent = sum(price * self.rooms[row] for row, price in prices.items())
        size = abs(total) + sum(abs(price * self.rooms[row]) for row, price in prices.items())
        return total - spent - _ROUNDING * size

    @staticmethod
    def _worth(item: Item, prices: Mapping[str, float]) -> float:
        return item.cost + sum(price * item.use.get(row, 0.0) for row, price in prices.items())

    def _least(self, mine: Sequence[Item], prices: Mapping[str, float], left: list[int]) -> float:
        """The least that any cover costs at these prices."""
        worth = [self._worth(item, prices) for item in mine]
        # So many of a group cost least by its cheapest members, the first of them free of the surcharge.
        pieces, free = list[tuple[float, float, int, int]](), dict(self.free)
        for place in sorted(range(len(mine)), key=worth.__getitem__):
            item = mine[place]
            spared = min(item.most, free.get(item.group, 0))
            free[item.group] = free.get(item.group, 0) - spared
            pieces.append((item.gain, worth[place], spared, place))
            dearer = worth[place] + self.surcharge.get(item.group, 0.0)
            pieces.append((item.gain, dearer, item.most - spared, place))
        return _Covers(pieces, left).least()

    def _near(
        self, mine: Sequence[Item], prices: Mapping[str, float], limit: float, left: list[int]
    ) -> list[dict[int, int]]:
        """Every cover that costs at most so much at these prices, as counts by item."""
        worth = [self._worth(item, prices) for item in mine]
        pieces = list[tuple[float, float, int, int]]()
        for place, item in enumerate(mine):
            # Each may have all that is free of its group: too much is found, and looked at again below.
            spared = min(item.most, self.free.get(item.group, 0))
            pieces.append((item.gain, worth[place], spared, place))
            dearer = worth[place] + self.surcharge.get(item.group, 0.0)
            pieces.append((item.gain, dearer, item.most - spared, place))
        found = dict[tuple[tuple[int, int], ...], None]()
        for cover in _Covers(pieces, left).within(limit):
            counts: dict[int, int] = {}
            for place, count in cover:
                counts[place] = counts.get(place, 0) + count
            found[tuple(sorted(counts.items()))] = None
            if len(found) > _MOST_COVERS:
                raise NoProof("there are too many covers to look at")
        return [dict(one) for one in found]

    def _by_tree(
        self, tree: Any, prices: Mapping[str, float], least: Sequence[float], bound: float, left: list[int]
    ) -> float:
        """The least of what the tree's leaves show."""
        said = _Tree.read(tree, list(self.rooms))
        covers = [
            (block, counts)
            for block, mine in enumerate(self.items)
            for counts in self._near(mine, prices, least[block] + said.slack + _SHORT * abs(least[block]), left)
        ]
        near = _Near(self, covers)
        low = min(said.limit, bound + said.slack)
        waiting: list[tuple[int, Kept]] = [(0 if said.splits else -1, np.ones(len(covers), dtype=np.bool_))]
        seen = set[int]()
        while waiting:
            number, kept = waiting.pop()
            if number < 0:
                low = min(low, near.bound(kept, said.leaves[-number - 1]))
                continue
            if number in seen:
                raise NoProof("its splits are no tree")
            seen.add(number)
            item, at_least, more, fewer = said.splits[number]
            kept = near.still(kept, said.of_splits[number], said.limit)
            enough, other = near.parted(said.items[item], at_least)
            waiting += [(more, kept & enough), (fewer, kept & other)]
        return low


class _Covers:
    """Covers of a need of 1 from pieces (gain, cost, most, item), tried from the cheapest gain on."""

    def __init__(self, pieces: Sequence[tuple[float, float, int, int]], left: list[int]) -> None:
        mine = [piece for piece in pieces if piece[2] > 0 and piece[0] > 0.0]
        if len(mine) > _MOST_PIECES:
            raise NoProof("an application has too many kinds of instances to look at")
        self.pieces = sorted(mine, key=lambda one: (one[1] / one[0], -one[0], one[3]))
        self.left = left
        """Steps that may still be taken: shared by all that is looked for."""
        self.limit, self.sink = math.inf, False
        self.found: list[list[tuple[int, int]]] = []
        self.path: list[tuple[int, int]] = []

    def least(self) -> float:
        """What the cheapest costs; infinite where there is none."""
        self.sink = True
        self._on(0, 1.0, 0.0)
        return self.limit

    def within(self, limit: float) -> list[list[tuple[int, int]]]:
        """Those that cost at most so much: (item, count) of each."""
        self.limit = limit
        self._on(0, 1.0, 0.0)
        return self.found

    def _on(self, place: int, missing: float, spent: float) -> None:
        """Go on from a place, with so much still missing and so much spent."""
        self.left[0] -= 1
        if self.left[0] < 0:
            raise NoProof("it takes too long to look at all covers")
        if missing <= _SHORT:
            if self.sink:
                self.limit = min(self.limit, spent)
            else:
                self.found.append([one for one in self.path if one[1]])
            return
        if place == len(self.pieces):
            return
        gain, cost, most, item = self.pieces[place]
        following = self.pieces[place + 1] if place + 1 < len(self.pieces) else None
        rate = following[1] / following[0] if following is not None else math.inf
        for count in range(min(most, math.ceil((missing - _SHORT) / gain)), -1, -1):
            rest = missing - count * gain
            # What is missing then costs as much as the next piece asks for it at least, and more the fewer there are.
            dear = spent + count * cost + ((rest - _SHORT) * rate if rest > _SHORT else 0.0)
            if dear > self.limit or (self.sink and dear >= self.limit):
                # The first count may cover more than is missing, so that one less is cheaper.
                if rest > _SHORT:
                    return
                continue
            self.path.append((item, count))
            self._on(place + 1, rest, spent + count * cost)
            self.path.pop()


@dataclass(frozen=True)
class _Tree:
    slack: float
    limit: float
    items: list[str]
    splits: list[tuple[int, int, int, int]]
    of_splits: Floats
    """Prices of each split, by room; of each leaf below."""
    leaves: Floats

    @classmethod
    def read(cls, tree: Any, rooms: Sequence[str]) -> _Tree:
        """The parts of a tree, with its prices in the order of the rooms; a plan may hold anything."""
        try:
            names, items = [str(one) for one in tree["rows"]], [str(one) for one in tree["items"]]
            splits = [tuple(int(number) for number in str(line).split()) for line in tree["splits"]]
            prices = [
                np.array([[float(n) for n in str(line).split()] for line in tree[key]]).reshape(-1, len(names))
                for key in ("prices_of_splits", "leaves")
            ]
            slack, limit = float(tree["slack"]), float(tree["limit"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise NoProof("it carries no tree that can be read") from None
        if sorted(names) != sorted(rooms):
            raise NoProof("its tree is about other rooms than the question has as it is rebuilt here")
        at = [names.index(room) for room in rooms]
        of_splits, leaves = (one[:, at] for one in prices)
        ends = -len(leaves), len(splits)
        sound = len(of_splits) == len(splits) and 0 < len(leaves) <= MOST_LEAVES and slack >= 0.0
        sound = sound and math.isfinite(slack) and math.isfinite(limit)
        sound = sound and all(bool((np.isfinite(one) & (one >= 0.0)).all()) for one in (of_splits, leaves))
        for number, split in enumerate(splits):
            sound = sound and len(split) == 4 and 0 <= split[0] < len(items) and abs(split[1]) < 2**53
            sound = sound and all(number < side < ends[1] or ends[0] <= side < 0 for side in split[2:])
        if not sound:
            raise NoProof("its splits are no tree")
        return cls(slack, limit, items, splits, of_splits, leaves)  # type: ignore[arg-type]


class _Near:
    """Covers that a choice may take: of which application, what each costs and takes, its counts."""

    def __init__(self, apart: Apart, covers: Sequence[tuple[int, Mapping[int, int]]]) -> None:
        self.apart, self.covers = apart, covers
        self.block = np.array([block for block, _ in covers], dtype=np.int64)
        self.starts = np.unique(self.block, return_index=True)[1]
        self.size = np.diff(np.append(self.starts, self.block.size))
        self.rooms = np.array(list(apart.rooms.values()))
        self.cost, self.use = np.zeros(len(covers)), np.zeros((len(apart.rooms), len(covers)))
        self.place = {item.name: (block, at) for block, mine in enumerate(apart.items) for at, item in enumerate(mine)}
        for number, (block, counts) in enumerate(covers):
            of_group: dict[int, int] = {}
            for at, count in counts.items():
                item = apart.items[block][at]
                of_group[item.group] = of_group.get(item.group, 0) + count
                self.cost[number] += item.cost * count
                self.use[:, number] += [item.use.get(room, 0.0) * count for room in apart.rooms]
            for group, count in of_group.items():
                more = max(count - apart.free.get(group, 0), 0)
                self.cost[number] += apart.surcharge.get(group, 0.0) * more
        if self.starts.size < len(apart.items):
            raise NoProof("its tree leaves an application without a cover")

    def bound(self, kept: Kept, prices: Floats) -> float:
        """L of the covers that are kept; infinite where an application keeps none."""
        worth = np.where(kept, self.cost + prices @ self.use, np.inf)
        total = float(np.minimum.reduceat(worth, self.starts).sum()) if worth.size else 0.0
        spent = float(prices @ self.rooms)
        size = abs(total) + float(prices @ np.abs(self.rooms))
        return total - spent - _ROUNDING * size if math.isfinite(total) else math.inf

    def still(self, kept: Kept, prices: Floats, limit: float) -> Kept:
        """Without those that no choice below the limit takes."""
        worth = np.where(kept, self.cost + prices @ self.use, np.inf)
        least = np.minimum.reduceat(worth, self.starts) if worth.size else np.zeros(0)
        if not np.isfinite(least).all():
            return kept
        return np.asarray(kept & (self.bound(kept, prices) + worth - np.repeat(least, self.size) < limit))

    def parted(self, name: str, at_least: int) -> tuple[Kept, Kept]:
        """Covers with at least so many of an item, and with fewer; those of other applications are among both."""
        if name not in self.place:
            raise NoProof(f"it splits {name}, which the question does not have as it is rebuilt here")
        block, at = self.place[name]
        many = np.array([counts.get(at, 0) >= at_least for _, counts in self.covers], dtype=np.bool_)
        other = self.block != block
        return many | other, ~many | other

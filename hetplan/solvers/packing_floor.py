"""Machines being filled: each item goes where it leaves least room, a new machine only where no other has room."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.packing import Choice, Packing
from hetplan.planner.tolerances import FEASIBILITY

__all__ = ["Floor"]

SLACK = FEASIBILITY / 2

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]
FloorState = tuple[Vector, Integers, Integers | None, list[Vector]]


class Floor:
    """What is left of resources and machines while options are chosen one after the other."""

    def __init__(self, form: Packing) -> None:
        self.form, self.items = form, form.items
        self.left = form.limit[: form.capacity.size] + SLACK * np.maximum(1.0, np.abs(form.limit[: form.capacity.size]))
        self.option = np.full(form.first.size - 1, -1, dtype=np.int64)
        tiers = 0 if form.items is None else form.items.machines.size
        self.free: list[NDArray[np.float64]] = []
        self.used: list[int] = [0] * tiers
        if form.items is not None:
            self.machine = np.full(form.items.tier.size, -1, dtype=np.int64)
            self.free = [np.zeros((0, form.items.room.shape[1])) for _ in range(tiers)]

    def room_left(self) -> NDArray[np.float64]:
        """What is left of each resource and, all machines of a tier together, of the tiers."""
        if self.items is None:
            return self.left
        parts = []
        for tier, free in enumerate(self.free):
            closed = self.items.machines[tier] - len(free)
            with np.errstate(invalid="ignore"):
                fresh = np.where(self.items.room[tier] > 0, closed * self.items.room[tier], 0.0)
            parts.append(free.sum(axis=0) + fresh)
        return np.concatenate([self.left, *parts])

    def add(self, option: int, *, opens: bool = True) -> bool:
        """Choose an option for its group if it fits; `opens` allows machines that are not in use yet."""
        if (self.form.demand[option] > self.left).any():
            return False
        placed: list[tuple[int, int, int]] = []
        if self.items is not None:
            begin, end = int(self.items.first[option]), int(self.items.first[option + 1])
            order = sorted(range(begin, end), key=lambda k: -float(self._items_size(k)))
            for item in order:
                where = self._place(item, opens)
                if where is None:
                    self._undo(placed)
                    return False
                placed.append((item, int(self.items.tier[item]), where))
            for item, _, where in placed:
                self.machine[item] = where
        self.left = self.left - self.form.demand[option]
        self.option[self.form.group[option]] = option
        return True

    def remove(self, group: int) -> None:
        """Take a group's option away again."""
        option = int(self.option[group])
        self.option[group] = -1
        self.left = self.left + self.form.demand[option]
        if self.items is not None:
            for item in range(int(self.items.first[option]), int(self.items.first[option + 1])):
                tier, where = int(self.items.tier[item]), int(self.machine[item])
                self.free[tier][where] += self.items.size[item]
                self.machine[item] = -1

    def state(self) -> FloorState:
        """All of it as it is now, for `restore`."""
        machine = None if self.items is None else self.machine.copy()
        return self.left.copy(), self.option.copy(), machine, [free.copy() for free in self.free]

    def restore(self, state: FloorState) -> None:
        """Back to what it was."""
        self.left, self.option, machine, self.free = state
        if machine is not None:
            self.machine = machine

    def choice(self) -> Choice:
        """What was chosen, machines in use numbered without gaps."""
        if self.items is None:
            return Choice(self.option.copy())
        machine = self.machine.copy()
        for tier in range(len(self.free)):
            here = (self.items.tier == tier) & (machine >= 0)
            machine[here] = np.unique(machine[here], return_inverse=True)[1]
        return Choice(self.option.copy(), machine)

    def _items_size(self, item: int) -> float:
        assert self.items is not None
        room = self.items.room[self.items.tier[item]]
        return float((self.items.size[item] / np.where(room > 0, room, 1.0)).sum())

    def _place(self, item: int, opens: bool) -> int | None:
        assert self.items is not None
        tier, size = int(self.items.tier[item]), self.items.size[item]
        free = self.free[tier]
        fits = np.flatnonzero((free + SLACK >= size).all(axis=1))
        if fits.size:
            where = int(fits[(free[fits] - size).sum(axis=1).argmin()])
        elif opens and len(free) < self.items.machines[tier] and (self.items.room[tier] + SLACK >= size).all():
            self.free[tier] = free = np.concatenate([free, self.items.room[tier][None, :]])
            where = len(free) - 1
        else:
            return None
        free[where] = free[where] - size
        return where

    def _undo(self, placed: list[tuple[int, int, int]]) -> None:
        assert self.items is not None
        for item, tier, where in reversed(placed):
            self.free[tier][where] += self.items.size[item]

"""The door of the question `fleet`: reading the files that ask it, and answering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, cast

from hetplan.planner.contract import Ask, Obstacle, Options, Tools
from hetplan.problems import ladder
from hetplan.problems.faults import Faults
from hetplan.problems.fleet.options import FleetOptions

if TYPE_CHECKING:
    from hetplan.planner.draft import Draft, Infeasible
    from hetplan.problems.fleet.wish import Wish
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan

__all__ = ["FleetQuestion"]


@dataclass(frozen=True)
class FleetQuestion:
    """Machines of several applications over time; the package's page has the letters and the mathematics."""

    question: ClassVar[str] = "fleet"
    aliases: ClassVar[Sequence[str]] = ()
    formulations: ClassVar[Mapping[str, type[Options]]] = {"parts": FleetOptions}
    like: ClassVar[Mapping[str, str]] = {}

    wish: Wish
    tools: Tools = field(default_factory=Tools)

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for a fleet."""
        return ladder.fleet(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> FleetQuestion:
        """Read the files; raises `InputError` with every fault found. Nothing is taken from a previous plan."""
        from hetplan.problems.fleet.wish import read_wish

        del formulation, start
        return cls(read_wish(inputs, cast(FleetOptions, options), Faults.of(inputs)), tools)

    def decide(self, ask: Ask) -> Draft | Infeasible:
        """Prices and menus, then whole machines, then each part by its own question."""
        from hetplan.planner.draft import Infeasible
        from hetplan.problems.fleet.bill import levers_of
        from hetplan.problems.fleet.draft import drafted
        from hetplan.problems.fleet.ways import Found, part_of, parts_of, searched

        wish = self.wish
        if wish.periods == 1:
            from hetplan.problems.fleet.between import answered, is_between

            if is_between(wish):
                best = answered(wish, lambda files, app: part_of(files, app, self.tools), ask)
                return best if isinstance(best, Infeasible) else drafted(best[0], (), best[1])
        parts = parts_of(wish, self.tools)
        found = searched(wish, parts, ask)
        if not isinstance(found, Found):
            return found
        levers = levers_of(found, parts, ask) if wish.options.levers and wish.periods > 1 else ()
        return drafted(found, levers, parts)

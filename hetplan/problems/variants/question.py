r"""Which variants of which models run, how many of each, at least cost: autoscaling with a choice (INFaaS, ATC 2021).

==========  =====================  ====================================================================================
letter      field                  meaning
==========  =====================  ====================================================================================
b           `asked`                application: load L_b, need_b = slack L_b (or L_b + slack), SLO S_b, floor a_b
v           `items`                a way to run a variant on a type of machine (`kinds`); with sharing `dedicated`, of
                                   one application
C_v         `C`                    cost of an instance, currency units per hour
T_bv, Q_bv  `serves`               latency (ms) and saturation rate (queries/s) for the queries of b
Tl_v        `Kind.load_s`          seconds to load it
N_g         `N`                    instances of group g that run now (a variant wherever it runs)
R_v         `Kind.needs`           what an instance takes of each resource
lambda      `weight`               1/s, what a second of loading weighs against a second of serving
x_v         --                     instances that shall run, delta = x - N
p_g         --                     instances to load: max(x - N, 0)
y_bv        --                     queries/s of b served by v, where v may serve several applications
==========  =====================  ====================================================================================

::

    min  sum_v C_v x_v + lambda sum_g C_g Tl_g p_g                                  gross; net = gross - sum C N
    (1)  sum_{v of b alone} Q_bv x_v + sum_{v common} y_bv >= need_b                every load, by eligible variants
    (2)  sum_b y_bv / Q_bv <= x_v                                                   an instance at saturation is full
    (3)  sum_v R_v^type x_v <= R_total^type                                         per type; machines: of each type
    (4)  p_g >= sum_{v of g} x_v - N_g,  p_g >= 0,  x_v whole, 0 <= x_v
    eligible: T_bv <= S_b, quality >= a_b: bounds, not rows

(1) to (4) are Section 4.2.1, with one cover row per application (the paper sums over all models at once) and with gross
cost, whose argmin is that of the paper's net cost but of which a relative gap means something. With machines the plan
is called feasible only once every instance has its machine (`variants_machines`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask, Obstacle, Options, Tools
from hetplan.planner.draft import Draft, Infeasible
from hetplan.problems import ladder
from hetplan.problems.faults import Faults
from hetplan.problems.variants.idle import check_least, idle_of_whole
from hetplan.problems.variants.options import GreedyOptions, PaperOptions, SimpleOptions, VariantsOptions
from hetplan.problems.variants.snapshot import Kind, MachineType, Slot, read_kinds, read_slots, read_types
from hetplan.problems.variants.waiting import leaving_room_to_wait
from hetplan.problems.variants.wish import Asked, Serves, find_serving, read_asked
from hetplan.profiles.collector import collector_at_rest
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice
from hetplan.profiles.workers import Worker

if TYPE_CHECKING:
    from hetplan.problems.variants.milp import Room
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan

__all__ = ["Item", "Variants"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Item:
    """What is counted: a kind, of one application or (`app` None) common to all that it serves."""

    kind: int
    app: int | None
    serves: tuple[Serves, ...]


@dataclass(frozen=True)
class Variants:
    """One snapshot to plan; see the module for the letters."""

    question: ClassVar[str] = "variants"
    aliases: ClassVar[Sequence[str]] = ("infaas",)
    formulations: ClassVar[Mapping[str, type[Options]]] = {
        "columns": VariantsOptions,
        "milp": VariantsOptions,
        "infaas-paper": PaperOptions,
        "greedy": GreedyOptions,
        "replicate-only": SimpleOptions,
        "static": SimpleOptions,
        "brute-force": SimpleOptions,
    }
    like: ClassVar[Mapping[str, str]] = {
        "infaas-paper": "infaas",
        "greedy": "infaas-greedy",
        "replicate-only": "sagemaker",
        "static": "clipper",
    }

    inputs: Inputs
    options: VariantsOptions
    asked: tuple[Asked, ...]
    types: tuple[MachineType, ...]
    kinds: tuple[Kind, ...]
    slots: tuple[Slot, ...]
    serves: tuple[Serves, ...]
    formulation: str = "columns"
    tools: Tools = field(default_factory=Tools)
    notices: tuple[Notice, ...] = ()

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for variants."""
        return ladder.variants(inputs)

    @classmethod
    @collector_at_rest()
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> Variants:
        """Read the files; raises `InputError` with every fault found. The state, not a plan, says what runs."""
        del start
        chosen = cast(VariantsOptions, options)
        faults, notices = Faults.of(inputs), list[Notice]()
        asked = read_asked(inputs, chosen, faults)
        types = read_types(inputs)
        workers = inputs.state.workers if inputs.state is not None else ()
        running = {load.variant or "" for worker in workers for load in worker.loads}
        names = sorted({name for one in asked for name in one.variants} | (running & inputs.profile.variants.keys()))
        kinds = read_kinds(inputs, types, names, faults, notices)
        slots = read_slots(inputs, kinds, notices)
        serves = find_serving(inputs, asked, kinds, chosen, faults, notices, known_machines=_known_machines(types))
        check_least(inputs, types, faults)
        faults.settle()
        if chosen.size != "planned":
            serves = leaving_room_to_wait(serves, asked, kinds)
        return cls(inputs, chosen, asked, types, kinds, slots, serves, formulation, tools, tuple(notices))

    # --- the letters -------------------------------------------------------------------------------------------------

    @property
    def weight(self) -> float:
        """lambda, 1/s."""
        return self.inputs.slo.change.load_weight_per_s

    @cached_property
    def running(self) -> Integers:
        """Instances of each kind that run now."""
        found = np.zeros(len(self.kinds), dtype=np.int64)
        for slot in self.slots:
            if slot.kind is not None:
                found[slot.kind] += slot.instances
        return found

    @cached_property
    def slots_at(self) -> Mapping[tuple[str | None, str | None], tuple[Slot, ...]]:
        """What runs on each machine: by its host, or by the worker of the state where it has no name."""
        found: dict[tuple[str | None, str | None], list[Slot]] = {}
        for slot in self.slots:
            host = slot.worker.host
            found.setdefault((host, None if host is not None else slot.worker.id), []).append(slot)
        return {place: tuple(slots) for place, slots in found.items()}

    @cached_property
    def slots_of_kind(self) -> Mapping[int, tuple[Slot, ...]]:
        """What runs of each kind."""
        found: dict[int, list[Slot]] = {}
        for slot in self.slots:
            if slot.kind is not None:
                found.setdefault(slot.kind, []).append(slot)
        return {kind: tuple(slots) for kind, slots in found.items()}

    @cached_property
    def unnamed(self) -> tuple[tuple[Worker, int], ...]:
        """Running workers without a host, each with its type of machine."""
        state = self.inputs.state
        of_load = {slot.load.id: self.kinds[slot.kind].type for slot in self.slots if slot.kind is not None}
        found = []
        for worker in state.workers if state is not None else ():
            fitting = [of_load[load.id] for load in worker.loads if load.id in of_load] + [
                t for t, kind in enumerate(self.types)
                if kind.hardware == worker.hardware and worker.offer in (None, kind.offer)
            ]  # fmt: skip
            if worker.host is None and fitting:
                found.append((worker, fitting[0]))
        return tuple(found)

    @cached_property
    def eligible(self) -> tuple[Serves, ...]:
        """The pairs of (1): in time and good enough; with violators `count`, also what runs though it is not."""
        if self.options.violators == "ignore":
            return tuple(s for s in self.serves if not s.late)
        return tuple(s for s in self.serves if not s.late or self.running[s.kind] > 0)

    @cached_property
    def serving_of(self) -> Mapping[int, tuple[Serves, ...]]:
        """The eligible pairs of each kind."""
        found: dict[int, list[Serves]] = {}
        for pair in self.eligible:
            found.setdefault(pair.kind, []).append(pair)
        return {kind: tuple(pairs) for kind, pairs in found.items()}

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """What is counted, kinds that serve nobody left out."""
        of_kind = self.serving_of
        if self.options.sharing == "dedicated":
            return tuple(Item(kind, s.app, (s,)) for kind, pairs in sorted(of_kind.items()) for s in pairs)
        return tuple(
            Item(kind, pairs[0].app if len(pairs) == 1 else None, pairs) for kind, pairs in sorted(of_kind.items())
        )

    @cached_property
    def kind_of(self) -> Integers:
        """The kind of each item."""
        return np.array([item.kind for item in self.items], dtype=np.int64)

    @cached_property
    def C(self) -> Vector:
        """Cost of an instance of each item, per hour."""
        return np.array([kind.cost for kind in self.kinds])[self.kind_of]

    def needs(self, resource: str) -> Vector:
        """R of each item."""
        needs = np.array([kind.needs.get(resource, 0.0) for kind in self.kinds])
        return needs[self.kind_of] if len(self.items) else np.zeros(0)

    @cached_property
    def known_rooms(self) -> dict[bool, list[Room]]:
        """The rooms of (3) once they were asked for (`variants_milp.rooms`)."""
        return {}

    @cached_property
    def group_of_kind(self) -> Integers:
        """Kinds whose running instances count together: a variant of one C and Tl, per type of known machines."""
        placed = {self.kinds[s.kind].variant for s in self.slots if s.kind is not None and s.worker.host is not None}
        keys: dict[object, int] = {}
        found = []
        for number, kind in enumerate(self.kinds):
            where = number if kind.variant in placed else -1
            knobs = tuple(sorted(kind.knobs.items()))
            key = (kind.variant, kind.batch, knobs, kind.price, kind.load_s, where)
            found.append(keys.setdefault(key, len(keys)))
        return np.array(found, dtype=np.int64)

    @cached_property
    def group(self) -> Integers:
        """The group of each item."""
        return self.group_of_kind[self.kind_of]

    @cached_property
    def N(self) -> Integers:
        """Running instances of each group."""
        size = int(self.group_of_kind.max(initial=-1)) + 1
        return np.bincount(self.group_of_kind, weights=self.running, minlength=size).astype(np.int64)

    @cached_property
    def loading(self) -> Vector:
        """lambda C Tl: what loading one instance of each item costs."""
        load_s = np.array([kind.load_s for kind in self.kinds])
        return np.asarray(self.weight * self.C * load_s[self.kind_of])

    @cached_property
    def now(self) -> float:
        """sum C N: what runs now costs, per hour."""
        return sum(slot.price * slot.instances for slot in self.slots) / NANO

    @cached_property
    def need(self) -> Vector:
        """need of each application."""
        return np.array([one.need_qps for one in self.asked])

    @property
    def level(self) -> str:
        """How closely machines are looked at."""
        if self.options.level != "auto":
            return self.options.level
        return "machine" if _known_machines(self.types) else "aggregate"

    def steady(self, x: Integers) -> float:
        """sum C x."""
        return float(self.C @ x)

    def gross(self, x: Integers) -> float:
        """sum C x + lambda sum C Tl p, and what idle machines cost that must be there anyway."""
        if not len(self.items):
            return 0.0
        in_group = np.bincount(self.group, weights=x, minlength=self.N.size)
        price = np.zeros(self.N.size)
        price[self.group] = self.loading
        loading = float(price @ np.maximum(in_group - self.N, 0.0))
        return self.steady(x) + loading + idle_of_whole(self, x)

    # --- the conversation --------------------------------------------------------------------------------------------

    def decide(self, ask: Ask) -> Draft | Infeasible:
        """Answer by the chosen formulation."""
        from hetplan.problems.variants import decide as variants_decide
        from hetplan.problems.variants.infeasible import impossible

        if self.formulation not in ("static", "replicate-only") and (reason := impossible(self)) is not None:
            return reason
        ways: dict[str, Callable[[Variants, Ask], Draft | Infeasible]] = variants_decide.WAYS
        if self.options.size == "simulated":
            from hetplan.problems.variants.simulated import sized

            return sized(self, ask, ways[self.formulation])
        with collector_at_rest():
            return ways[self.formulation](self, ask)


def _known_machines(types: tuple[MachineType, ...]) -> bool:
    return any(kind.count is not None and kind.provides for kind in types)

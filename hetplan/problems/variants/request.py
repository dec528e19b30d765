"""Reads the files of variants as a snapshot: applications with rates and limits, what may serve them, what runs.

`read_snapshot` reads the files into it. A *kind* is a way to run a variant (a choice on one type of machine, at one
batch), whose instances are counted; a *slot* is a load that runs now; an *item* is what the program counts: a kind, of
one application or of several. The letters are those of `program`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Fault, InputError
from hetplan.planner.choices import Choice
from hetplan.planner.machine_limits import MachineLimit, keeps, machine_limits
from hetplan.planner.machine_packing import Sharing
from hetplan.planner.request import PLENTY, Application, MachineType, Offer, Request, read_request
from hetplan.problems.faults import Faults, refuse_not_provided, refused_fields
from hetplan.problems.variants.options import VariantsOptions
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Notice
from hetplan.profiles.validate import collector_at_rest
from hetplan.profiles.workers import Load, Share, Worker
from hetplan.serving.law import OffTable
from hetplan.serving.loads import offer_of, same_point
from hetplan.serving.price import Price
from hetplan.serving.runs import machine_price

__all__ = [
    "CEILING",
    "OWN",
    "REFUSED",
    "WHOLE",
    "Asked",
    "Integers",
    "Item",
    "Kind",
    "Serves",
    "Slot",
    "Snapshot",
    "Vector",
    "count_of",
    "read_snapshot",
]

REFUSED = {
    **refused_fields(
        "apps.*.network_ms_once", "limits.survive.machines", "limits.survive.zones", "horizon.periods",
        "apps.*.latency.ttft_p*_ms",
        "apps.*.latency.tpot_p*_ms", "apps.*.dispatch", "apps.*.attainment", "apps.*.lifetime_s", "apps.*.deadline_s",
        "apps.*.device", "apps.*.candidates", "apps.*.rate_qps.series", "apps.*.streams",
    ),
    "apps.*.weight": ("every load is served, so none weighs more than another", "Leave it out."),
    "apps.*.rate_qps.history": ("a load is needed, a number", "Write queries per second: rate_qps."),
}  # fmt: skip
"""Fields of the SLO that this question does not keep: why, and what to write instead."""

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

WHOLE = "machines"
"""The resource of which a machine has one: taken by instances that are priced as a whole machine."""
OWN = "!"
"""Ends the name of machines that hold what is paid by itself: they are used up, and cost nothing."""
CEILING = 1e-9
"""Taken off before rounding up: a quotient that is whole but for rounding."""
HUGE = 1e6
"""More instances than this for one application are a slip of units, not a plan."""


def count_of(kind: MachineType) -> int | None:
    """How many machines of a type may be had (None: as many as are wanted)."""
    return kind.available if kind.available < PLENTY else None


@dataclass(frozen=True, slots=True)
class Kind:
    """A choice on one type of machine, at one batch: the unit whose instances are counted.

    `price` is a count of 1e-9 per hour.
    """

    choice: Choice
    variant: str
    type: int
    hardware: str
    batch: int
    price: int
    needs: Mapping[str, float]
    slowdown: tuple[float, ...] = ()
    share: Share | None = None
    """The slice of a machine that is paid, where prices are by the unit."""
    part: float | None = None
    """The part of a machine that it takes, where instances share machines that are paid whole; `price` is that part's.
    None where it is paid by itself."""

    @property
    def id(self) -> str:
        """What distinguishes it from the other ways to run the variant on this hardware."""
        settings = "".join(f",{name}={value:g}" for name, value in self.choice.knobs.items())
        return f"{self.variant}@{self.hardware}/{self.batch}{settings}"

    @property
    def cost(self) -> float:
        """Currency units per hour; of what shares a machine, its part of it."""
        return self.price / NANO

    @property
    def paid(self) -> float:
        """What an instance costs by itself, per hour: nothing where its machine is paid whole, for all on it."""
        return self.cost if self.part is None else 0.0


@dataclass(frozen=True, slots=True)
class Slot:
    """Running instances: a load of a worker of the state, and which kind it is (None where the profile has no such)."""

    worker: Worker
    load: Load
    kind: int | None
    price: int = 0

    @property
    def instances(self) -> int:
        """How many run."""
        return self.worker.count * self.load.instances


@dataclass(frozen=True)
class Asked(Application):
    """One application: L, need, S and the floor of the specification."""

    load_qps: float
    need_qps: float


@dataclass(frozen=True, slots=True)
class Serves:
    """That kind `kind` serves application `app`: T, Q, and whether it does so only by breaking a limit (`late`).

    `qps` is what is asked of it: `busy` times its saturation, where waiting is to be left room for.
    """

    app: int
    kind: int
    latency_ms: float
    qps: float
    late: bool = False
    beside: int | None = None
    busy: float = 1.0

    @property
    def saturation_qps(self) -> float:
        """The rate at which an instance is full."""
        return self.qps / self.busy

    def at_use(self, busy: float) -> Serves:
        """The same, asked for so much of its saturation."""
        return replace(self, qps=self.saturation_qps * busy, busy=busy)


@dataclass(frozen=True, slots=True)
class Item:
    """What is counted: a kind, of one application or (`app` None) common to all that it serves."""

    kind: int
    app: int | None
    serves: tuple[Serves, ...]


_OF_STATE = ("running", "slots_at", "slots_of_kind", "group_of_kind", "N")
"""What is read off the state and the kinds alone."""


@dataclass(frozen=True)
class Snapshot:
    """One snapshot to plan, in the letters of `program`."""

    inputs: Inputs
    wanted: Request
    """What is asked for and what limits it, machines left out: `request` has those that are of use."""
    options: VariantsOptions
    asked: tuple[Asked, ...]
    types: tuple[MachineType, ...]
    kinds: tuple[Kind, ...]
    slots: tuple[Slot, ...]
    serves: tuple[Serves, ...]
    notices: tuple[Notice, ...] = ()
    repairs: bool = True
    """Whether it is looked for what would help, where there is no plan: a dozen programs more."""
    explains: bool = True
    """Whether anybody hears why there is no plan."""
    only_played: bool = False
    """Whether plans are only simulated: without the steps to them, and without warnings."""
    known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was read off the program of this snapshot, for those who ask again."""

    def kind(self, i: int) -> Kind:
        """The kind of an item."""
        return self.kinds[self.items[i].kind]

    def type_of(self, i: int) -> MachineType:
        """The type of machine of an item."""
        return self.types[self.kind(i).type]

    def pair(self, b: int, i: int) -> Serves:
        """How an item serves an application."""
        return next(s for s in self.items[i].serves if s.app == b)

    def at_saturation(self) -> Snapshot:
        """The same, each instance asked for all that it can serve."""
        return self.asked_for(serves=tuple(pair.at_use(1.0) for pair in self.serves))

    def asked_for(self, **changes: Any) -> Snapshot:
        """The same machines and state, other things asked of them: what is known of what runs stays known."""
        made = replace(self, **changes)
        made.__dict__.update({name: getattr(self, name) for name in _OF_STATE})
        return made

    @cached_property
    def weighs_loading(self) -> bool:
        """Whether loading counts by the paper's weight, and not for its share of the horizon."""
        return self.options.is_as_printed or "load_weight_per_s" in self.wanted.change.model_fields_set

    @cached_property
    def weight(self) -> float:
        """lambda, 1/s: one part of the horizon, or the paper's weight; 0 where all must be loaded in any case."""
        if self.weighs_loading:
            return self.wanted.change.load_weight_per_s
        fresh = not any(worker.loads for worker in self.wanted.running)
        return 0.0 if fresh else 1.0 / self.wanted.horizon.period_s

    def change_s(self, kind: Kind) -> float:
        """Seconds that an instance more costs: to load it, and to start the machine that it takes (or a part of)."""
        if self.weighs_loading or (WHOLE not in kind.needs and kind.part is None):
            return kind.choice.load_s
        return kind.choice.load_s + kind.choice.machine.startup_s

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
    def unnamed_workers(self) -> tuple[tuple[Worker, int], ...]:
        """Running workers without a host, each with its type of machine."""
        of_load = {slot.load.id: self.kinds[slot.kind].type for slot in self.slots if slot.kind is not None}
        found = []
        for worker in self.wanted.running:
            fitting = [of_load[load.id] for load in worker.loads if load.id in of_load] + [
                t for t, kind in enumerate(self.types)
                if kind.hardware == worker.hardware and worker.offer in (None, kind.offers[0].id)
            ]  # fmt: skip
            if worker.host is None and fitting:
                found.append((worker, fitting[0]))
        return tuple(found)

    @cached_property
    def eligible(self) -> tuple[Serves, ...]:
        """The pairs of (1): in time and good enough; of the paper also what runs though it is not."""
        if not self.options.is_as_printed:
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

    @cached_property
    def paid(self) -> Vector:
        """What an instance of each item costs by itself, per hour."""
        return np.array([kind.paid for kind in self.kinds])[self.kind_of]

    @cached_property
    def most(self) -> Vector:
        """No more instances of an item than serve all that it may serve; of violators no more than run."""
        found, need = [], self.need.tolist()
        for item in self.items:
            most = sum([need[s.app] / s.qps for s in item.serves])
            bound = max(1.0, float(math.ceil(most - CEILING))) if most > 0 else 0.0
            if all(s.late for s in item.serves):
                bound = min(bound, float(self.running[item.kind]))
            found.append(bound)
        return np.array(found)

    @cached_property
    def sharing(self) -> Mapping[int, Sharing]:
        """Types whose machines are shared and paid whole, each with the items that share them."""
        found = {}
        for t, items in self._by_type["shared"].items():
            needs = [self.kind(i).needs for i in items]
            found[t] = Sharing(self.types[t].id, self.types[t].provides, items, needs, [self.company[i] for i in items])
        return found

    @cached_property
    def company(self) -> tuple[int, ...]:
        """How many instances a machine may hold with each item on it, itself included."""
        beside = ((s.beside + 1 for s in item.serves if s.beside is not None) for item in self.items)
        return tuple(min(one, default=PLENTY) for one in beside)

    @cached_property
    def whole(self) -> Mapping[int, tuple[int, ...]]:
        """Types of which instances take a machine each, with these items."""
        return self._by_type["whole"]

    @cached_property
    def own(self) -> Mapping[int, tuple[int, ...]]:
        """Types on which instances are paid by themselves, with these items."""
        return self._by_type["own"]

    @cached_property
    def _by_type(self) -> Mapping[str, Mapping[int, tuple[int, ...]]]:
        """The items of each type of machine, by what is paid for them."""
        found: dict[str, dict[int, list[int]]] = {"shared": {}, "whole": {}, "own": {}}
        for i, item in enumerate(self.items):
            kind = self.kinds[item.kind]
            how = "shared" if kind.part is not None else "whole" if WHOLE in kind.needs else "own"
            found[how].setdefault(kind.type, []).append(i)
        return {how: {t: tuple(some) for t, some in sorted(here.items())} for how, here in found.items()}

    @cached_property
    def request(self) -> Request:
        """What may be rented of the types that are of use: machines that are paid whole, or used up."""
        there = self.sharing.keys() | self.whole.keys()
        machines = [kind for t, kind in enumerate(self.types) if t in there or kind.least]
        for kind in (self.types[t] for t in self.used_up):
            name = kind.id + OWN
            machines.append(replace(kind, id=name, offers=(replace(kind.offers[0], machine=name, nanos=0),), least=0))
        return replace(self.wanted, machines=tuple(machines))

    @cached_property
    def used_up(self) -> tuple[int, ...]:
        """Types whose machines count, though instances on them are paid by themselves: they are few, or must be there.

        Where types are taken together those count, too, that nothing runs on.
        """
        here = self.own if self.is_typed or not self.own else range(len(self.types))
        few = {t for t in here if count_of(self.types[t]) is not None and self.types[t].provides}
        return tuple(sorted(few | {t for t in self.own if self.types[t].least}))

    def may_rent(self, machines: Mapping[int, int]) -> bool:
        """Whether so many machines of each type may be rented; money apart."""
        of = {kind.id: machines.get(t, 0) for t, kind in enumerate(self.types)}
        return keeps(self._limits, [of.get(offer.machine, 0) for offer in self.request.offers])

    @cached_property
    def _limits(self) -> tuple[MachineLimit, ...]:
        return tuple(machine_limits(replace(self.request, budget=None)))

    @cached_property
    def group_of_kind(self) -> Integers:
        """Kinds whose running instances count together: a variant of one C and Tl, per type of known machines."""
        placed = {self.kinds[s.kind].variant for s in self.slots if s.kind is not None and s.worker.host is not None}
        keys: dict[object, int] = {}
        found = []
        for number, kind in enumerate(self.kinds):
            where = number if kind.variant in placed else -1
            knobs = tuple(sorted(kind.choice.knobs.items()))
            key = (kind.variant, kind.batch, knobs, kind.price, self.change_s(kind), where)
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
        change_s = np.array([self.change_s(kind) for kind in self.kinds])
        return np.asarray(self.weight * self.C * change_s[self.kind_of])

    @cached_property
    def group_loading(self) -> Vector:
        """The same, by group."""
        found = np.zeros(self.N.size)
        found[self.group] = self.loading
        return found

    @cached_property
    def cost_now(self) -> float:
        """sum C N: what runs now costs, per hour."""
        whole = {  # what workers cost whose machines are paid whole, for all that shares them
            slot.worker.id: slot.worker.count * self.types[self.kinds[slot.kind].type].offers[0].nanos
            for slot in self.slots
            if slot.kind is not None and self.kinds[slot.kind].part is not None
        }
        alone = sum(slot.price * slot.instances for slot in self.slots if slot.worker.id not in whole)
        return (alone + sum(whole.values())) / NANO

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

    @property
    def is_typed(self) -> bool:
        """Whether each type of machine has its own rows."""
        return self.level != "aggregate"

    @property
    def has_machines(self) -> bool:
        """Whether of some type only so many machines may be had."""
        return any(count_of(kind) is not None for kind in self.types)

    def item_name(self, i: int) -> str:
        """An item in words."""
        app = self.items[i].app
        return self.kind(i).id + (f" for {self.asked[app].id}" if app is not None else "")

    def loading_cost(self, x: Integers) -> float:
        """lambda sum C Tl p: what is loaded."""
        if not len(self.items):
            return 0.0
        in_group = np.bincount(self.group, weights=x, minlength=self.N.size)
        return float(self.group_loading @ np.maximum(in_group - self.N, 0.0))

    def may_move(self, x: Integers) -> bool:
        """Whether no more instances are new where they are than may be."""
        most = self.wanted.changes
        then = np.bincount(self.kind_of, weights=x, minlength=len(self.kinds))
        return most is None or float(np.maximum(then - self.running, 0.0).sum()) <= most

    def idle_counts(self, used: Mapping[int, int]) -> dict[int, int]:
        """How many idle machines of each type must be there beside those in use, the cheapest first."""
        found: dict[int, int] = {}
        for hardware, (least, _) in sorted(self.wanted.instances.items()):
            mine = [t for t, kind in enumerate(self.types) if kind.hardware == hardware]
            missing = least - sum(used.get(t, 0) for t in mine)
            for t in sorted(mine, key=lambda t: (self.types[t].offers[0].nanos, t)):
                count = count_of(self.types[t])
                more = missing if count is None else min(missing, count - used.get(t, 0))
                if more > 0:
                    found[t] = more
                    missing -= more
        return found

    def idle_nanos(self, used: Mapping[int, int]) -> int:
        """What the idle machines beside those in use cost per hour."""
        return sum(n * self.types[t].offers[0].nanos for t, n in self.idle_counts(used).items())


@collector_at_rest()
def read_snapshot(inputs: Inputs, options: VariantsOptions) -> Snapshot:
    """Read the files; raises `InputError` with every fault found."""
    faults, notices = Faults.of(inputs), list[Notice]()
    request = read_request(inputs)
    asked = _read_asked(request, options, faults)
    types = _read_types(request)
    running = {load.variant or "" for worker in request.running for load in worker.loads}
    for number, worker in enumerate(request.running):
        if worker.standby:
            why, at = "here all machines that run serve", f"$.workers[{number}].standby"
            file = inputs.files.get("state", "state.json")
            faults.found.append(Fault(file, at, str(worker.standby), why, 'Add them to "count".'))
    names = sorted({name for one in asked for name in one.variants} | (running & request.known.variants))
    shared = options.share_machines and options.level != "aggregate"
    kinds = _Kinds(request, types, faults, notices, shares=shared).of(names)
    slots = _read_slots(request, types, kinds, notices)
    known = _known_machines(types) or any(kind.part is not None for kind in kinds)
    alone = options.level == "aggregate" or (options.level == "auto" and not known)
    serves = _Pairs(options, kinds, faults, notices, alone=alone).of(asked)
    _check_least(request, types, faults)
    refuse_not_provided(request, faults)
    if request.resources and any(kind.part is None and WHOLE not in kind.needs for kind in kinds):
        why = "runs that are paid by themselves, or by the slice, do not say on how many machines they are"
        remedy = "Let offers give the prices of whole machines, or limit what runs take: capacity."
        faults.in_slo("$.limits.provides", why, remedy)
    faults.settle()
    return Snapshot(inputs, request, options, asked, types, kinds, slots, serves, tuple(notices))


def _known_machines(types: tuple[MachineType, ...]) -> bool:
    return any(count_of(kind) is not None and kind.provides for kind in types)


def _read_asked(request: Request, options: VariantsOptions, faults: Faults) -> tuple[Asked, ...]:
    """Every application, in the order of their ids."""
    change = request.change
    faults.refuse(REFUSED)
    if options.sharing == "pooled" and len(request.apps) != 1:
        faults.in_options(
            "sharing", f"pooled is the paper's one row, of one application; here are {len(request.apps)}",
            'Set it to "shared" or "dedicated".', value="pooled",
        )  # fmt: skip
    found = []
    for name, app in sorted(request.apps.items()):
        load = app.rate_qps
        if load is None:
            faults.in_slo(f"$.apps.{name}.rate_qps", "a load is needed, a number", "Write queries per second.")
            continue
        need = load * change.slack if change.slack_qps is None else load + change.slack_qps
        found.append(Asked(name, app.stated, app.variants, load, need if load > 0 else 0.0))
        faults.refuse_all_network(app)
    _check_metrics(request, found, faults)
    return tuple(found)


def _check_metrics(request: Request, asked: list[Asked], faults: Faults) -> None:
    """A floor speaks of one metric."""
    for one in asked:
        metrics = request.known.metrics(one.variants) if one.has_quality_limit else []
        if len(metrics) > 1:
            faults.in_slo(
                f"$.apps.{one.id}.quality", f"its variants are of several metrics ({', '.join(metrics)})",
                "Let it run variants of one task.",
            )  # fmt: skip


@dataclass
class _Pairs:
    """Finds which kind serves which application, and how; those that are late or too poor are kept, and marked."""

    options: VariantsOptions
    kinds: tuple[Kind, ...]
    faults: Faults
    notices: list[Notice]
    alone: bool
    """Nothing is known of machines: an instance is taken to have its machine to itself."""
    derived: set[str] = field(default_factory=set)
    """Kinds whose saturation rate is worked out from their latency."""

    def of(self, asked: tuple[Asked, ...]) -> tuple[Serves, ...]:
        """The pairs of all applications."""
        of_variant: dict[str, list[int]] = {}
        for number, kind in enumerate(self.kinds):
            of_variant.setdefault(kind.variant, []).append(number)
        found: list[Serves] = []
        for b, one in enumerate(asked):
            before = len(found)
            for c in (c for name in one.variants for c in of_variant.get(name, ())):
                try:
                    found.extend(self._pair(one, b, c))
                except InputError as error:
                    self.faults.also(error)
                except OffTable as error:
                    table = self.kinds[c].choice.table_id
                    self.faults.in_profile(f"$.tables.{table}", error.why, error.remedy)
            least = min((one.need_qps / s.qps for s in found[before:] if not s.late), default=0.0)
            if least > HUGE:
                self.faults.in_slo(
                    f"$.apps.{one.id}.rate_qps", f"{least:.3g} instances at the least: is the unit queries/s?",
                    "Check the load, and saturation_qps.", value=one.load_qps,
                )  # fmt: skip
        if self.derived:
            named = ", ".join(sorted(self.derived)[:5])
            text = f"saturation_qps is not stated by runs of {named} ({len(self.derived)}): batch / latency is used"
            self.notices.append(Notice(code="W-derived-qps", at="variants", text=text))
        return tuple(found)

    def _pair(self, one: Asked, b: int, c: int) -> Iterator[Serves]:
        kind = self.kinds[c]
        choice, law = kind.choice, kind.choice.law
        stat, unlike = choice.statistic(self.options)
        self.notices += [notice for notice in unlike if notice not in self.notices]
        times = [law.ms(point, kind.batch, stat) for point in one.classes.points]
        qps = choice.saturation_qps
        if qps is None:
            if "batch" in choice.at or "batch" not in law.axes:
                self.derived.add(kind.id)
            mean = "mean" if "mean" in law.statistics else stat
            means = times if stat == mean else [law.ms(point, kind.batch, mean) for point in one.classes.points]
            together = kind.batch if "batch" in law.axes and "batch" not in one.classes.points[0] else 1
            qps = 1000.0 * together / sum(s * t for s, t in zip(one.classes.shares, means, strict=True))
        poor = False
        if one.has_quality_limit:
            if choice.quality is None:
                self.faults.in_profile(
                    f"$.variants.{kind.variant}.quality", f"{one.id} asks for a quality, and this variant states none",
                    f"State it, or leave the variant out of apps.{one.id}.{one.answered_by}.",
                )  # fmt: skip
                return
            poor = not one.meets_quality(choice.quality, slip=1e-12 * abs(choice.quality))
        beside, factor = _company(kind, max(times), one.limit_ms(), self.alone)
        worst = max(times) * factor
        yield Serves(b, c, worst, qps / factor, late=poor or worst > one.limit_ms() * (1 + 1e-9), beside=beside)


def _company(kind: Kind, time_ms: float, slo_ms: float, alone: bool) -> tuple[int | None, float]:
    """How many others may run beside an instance with it still in time, and how much slower it then is."""
    if not kind.slowdown:
        return None, 1.0
    bearable = [k for k, factor in enumerate(kind.slowdown) if time_ms * factor <= slo_ms * (1 + 1e-9)]
    if alone or not bearable:
        return 0, kind.slowdown[0]
    return bearable[-1], max(kind.slowdown[: bearable[-1] + 1])


def _read_types(request: Request) -> tuple[MachineType, ...]:
    """Every hardware under each of its offers (or none), in the order of hardware and of the ids of offers."""
    profile, found = request.profile, list[MachineType]()
    for hardware, about in profile.hardware.items():
        least, most = request.instances.get(hardware, (0, 0 if request.only_listed else None))
        names = sorted(name for name, offer in profile.offers.items() if offer.hardware == hardware)
        for name in names or [""]:
            offer = Offer(None, hardware, 0 if profile.offers else NANO)
            if name:
                sold = profile.offers[name]
                hosts = tuple(sorted(host for host, at in profile.hosts.items() if at.offer == name))
                known = [n for n in (len(hosts) or None, sold.stock) if n is not None]
                stock = min(known, default=PLENTY)
                offer = Offer(name, name, machine_price(sold, about), stock, hosts[:stock])
            most_here = PLENTY if most is None else most
            found.append(MachineType(offer.machine, (offer,), about.provides, least, most_here, hardware))
    return tuple(found)


@dataclass
class _Kinds:
    """Finds every way to run variants on these types; `shares`: instances may share machines that are paid whole."""

    request: Request
    types: Sequence[MachineType]
    faults: Faults
    notices: list[Notice]
    shares: bool
    unpriced: set[str] = field(default_factory=set)
    """Hardware on which nothing has a price."""

    def of(self, names: list[str]) -> tuple[Kind, ...]:
        """The ways to run these variants, and what is assumed of them."""
        found = [kind for choice in self.request.choices(variants=names) for kind in self._kinds_of(choice)]
        for hardware in sorted(self.unpriced):
            text = f"neither {hardware} nor its runs have a price: a machine costs 1 per hour"
            self.notices.append(Notice(code="W-no-price", at=f"hardware.{hardware}", text=text))
        without = sorted({k.variant for k in found if _is_on_gpu(k) and not {"gpu", "gpu_share"} & k.needs.keys()})
        if without:
            text = (
                f"{len(without)} variants ({', '.join(without[:5])}) take no gpu_share: the plan puts as many replicas "
                "on a GPU as fit its memory, each at full speed"
            )
            self.notices.append(Notice(code="W-gpu-share", at="variants", text=text))
        return tuple(found)

    @cached_property
    def _is_sized(self) -> bool:
        """Whether queries come in sizes along the axis `batch`: where they do, no other batches are chosen."""
        mixes = (app.mix for app in self.request.apps.values())
        return any(mix is not None and "batch" in mix.axes for mix in mixes)

    @cached_property
    def _of_hardware(self) -> Mapping[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, kind in enumerate(self.types):
            found.setdefault(kind.hardware, []).append(number)
        return found

    @cached_property
    def _shared(self) -> frozenset[int]:
        """Types whose machines may hold several instances, and are paid whole."""
        every = enumerate(self.types if self.shares else ())
        return frozenset(t for t, kind in every if self.request.pays_whole(kind.hardware, kind.offers[0].id))

    def _kinds_of(self, choice: Choice) -> Iterator[Kind]:
        if not choice.is_timed:
            text = "a run with a table of rates has no latency to compare with the SLO: left out"
            self.notices.append(Notice(code="W-no-latency", at=choice.path, text=text))
            return
        batches = (choice.at.get("batch", 1.0),) if self._is_sized else choice.batches
        if batches[0] != int(batches[0]):
            self.faults.in_profile(
                f"$.{choice.path}.at.batch", "a batch is a whole number", "Write 1, 2, 4, ...", value=batches[0]
            )
            return
        for number in self._of_hardware.get(choice.hardware, ()):
            type_ = self.types[number]
            price, is_whole = _price(choice, type_)
            if _is_unpriced(choice, type_):
                self.unpriced.add(type_.hardware)
            part = choice.part if is_whole and number in self._shared else None
            needs = {**choice.needs, WHOLE: 1.0} if is_whole and part is None else choice.needs
            nanos = price.nanos if part is None else round(price.nanos * part)
            none_there = count_of(type_) == 0 and not (is_whole or type_.provides)
            if none_there or not self._fits(choice):
                continue
            for batch in map(int, batches):
                yield Kind(
                    choice, choice.variant, number, choice.hardware, batch, nanos, needs, choice.slowdown(batch),
                    price.share, part,
                )  # fmt: skip

    def _fits(self, choice: Choice) -> bool:
        """Whether one machine holds an instance; what is limited in all may be listed by no machine."""
        provides, totals = choice.machine.provides, self.request.capacity
        for resource, room in choice.lacking.items():
            if resource in provides or resource not in totals:
                text = (
                    f"needs {choice.needs[resource]:g} {resource}, one {choice.hardware} provides {room:g}: "
                    "it fits nowhere there"
                )
                self.notices.append(Notice(code="W-too-large", at=choice.path, text=text))
                return False
        return True


def _is_unpriced(choice: Choice, kind: MachineType) -> bool:
    return kind.offers[0].id is None and choice.own_price is None


def _is_on_gpu(kind: Kind) -> bool:
    if kind.choice.machine.kind != "gpu" or WHOLE in kind.needs:
        return False
    # What takes nothing of the card runs on its host.
    return not kind.needs or any(resource.startswith("gpu") for resource in kind.needs)


def _price(choice: Choice, kind: MachineType) -> tuple[Price, bool]:
    """The price of an instance, and whether it is that of a whole machine; where nothing has one, that costs 1."""
    if _is_unpriced(choice, kind):
        return Price(NANO), True
    price = choice.price(kind.offers[0].id)
    return price, choice.own_price is None and price.share is None


def _read_slots(
    request: Request, types: tuple[MachineType, ...], kinds: tuple[Kind, ...], notices: list[Notice]
) -> tuple[Slot, ...]:
    """What runs now, each load with its kind."""
    by_place: dict[tuple[str, str], list[int]] = {}
    for number, kind in enumerate(kinds):
        by_place.setdefault((kind.variant, kind.hardware), []).append(number)
    found: list[Slot] = []
    for worker in request.running:
        offer = offer_of(request.profile, worker)
        for load in worker.loads:
            settings = {**load.knobs, "batch": load.serve.max_batch}
            exact = [
                k for k in by_place.get((load.variant or "", worker.hardware), [])
                if (offer is None or types[kinds[k].type].offers[0].id in (None, offer))
                and same_point(load.at or {}, kinds[k].choice.at)
                and all(settings.get(a) == v for a, v in {**kinds[k].choice.knobs, "batch": kinds[k].batch}.items())
            ]  # fmt: skip
            if not exact:
                text = f"{load.variant or load.node or 'it'} matches no run of these applications: it is stopped"
                notices.append(Notice(code="W-unknown-running", at=f"state.workers.{worker.id}.{load.id}", text=text))
            price = kinds[exact[0]].price if exact else _price_of_unknown(request, types, worker, load)
            found.append(Slot(worker, load, exact[0] if exact else None, price))
    return tuple(found)


def _price_of_unknown(request: Request, types: tuple[MachineType, ...], worker: Worker, load: Load) -> int:
    """What an instance costs that serves nobody here."""
    kind = next((kind for kind in types if kind.hardware == worker.hardware), None)
    found = request.meant_by(load, worker.hardware)
    return _price(found[0], kind)[0].nanos if found and kind is not None else 0


def _check_least(request: Request, types: tuple[MachineType, ...], faults: Faults) -> None:
    """Name hardware of which more machines must be there than can be."""
    for hardware, (least, _) in sorted(request.instances.items()):
        have = sum(kind.offers[0].stock for kind in types if kind.hardware == hardware)
        if least > have:
            faults.in_slo(
                f"$.limits.instances.{hardware}[0]", f"the profile has {have} machines of it to rent or there already",
                f"Ask for at most {have}, or raise the stock.", value=least,
            )  # fmt: skip

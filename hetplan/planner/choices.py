"""Every way to serve: each run of a profile with its machine, law, statistics and price, read once for all questions.

Who plans reads runs and tables here (`Request.choices`), so what a run needs, what its machine lacks, at which batches
it may be planned and how slow it is beside others mean the same in every question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hetplan.profiles.profile import Profile
from hetplan.profiles.workers import Load
from hetplan.serving.loads import law_of_run, slowdown_of, table_of
from hetplan.serving.price import SLICES, Price, price_of
from hetplan.serving.runs import instances_on
from hetplan.serving.table_points import settings_of, statistic_of

if TYPE_CHECKING:
    from hetplan.planner.terms import TableOptions
    from hetplan.profiles.columns import Statistic
    from hetplan.profiles.engines import Engine
    from hetplan.profiles.plan import Notice
    from hetplan.profiles.profile import Hardware, Run
    from hetplan.profiles.tables import Table
    from hetplan.serving.law import Law

__all__ = ["HAIR", "Choice", "Choices"]

HAIR = 1e-9
"""By this part an instance may need more than a machine has: what files say is rounded."""


@dataclass(frozen=True, eq=False)
class Choice:
    """A run of a variant, the one at this `place` in the file, on one `machine` of its hardware; each is made once.

    `needs` is what an instance takes of its machine as it is stated, `own_price` what it costs by itself (a count of
    1e-9 per hour), `saturation_qps` the rate at which it is full, `load_s` how long a machine that is up loads its
    `weights`. Its table has latencies (`is_timed`), or the rates of machines that serve several at once; an engine has
    none (""). The rest is worked out when it is asked for.
    """

    profile: Profile = field(repr=False)
    run: Run = field(repr=False)
    variant: str
    place: int
    hardware: str
    machine: Hardware = field(repr=False)
    at: dict[str, float]
    quality: float | None
    weights: str | None
    needs: Mapping[str, float]
    load_s: float
    saturation_qps: float | None
    own_price: int | None
    table_id: str
    is_timed: bool

    @property
    def path(self) -> str:
        """Where the run is in the profile."""
        return f"variants.{self.variant}.runs[{self.place}]"

    @property
    def file_path(self) -> str:
        """Where in the file the measurements of this choice are."""
        return self.profile.places.text(f"tables.{self.table_id}")

    @cached_property
    def knobs(self) -> dict[str, float]:
        """Where it is, without the batch, which may be chosen."""
        return {axis: value for axis, value in self.at.items() if axis != "batch"}

    def load(self, **said: Any) -> Load:
        """A load of a plan that runs it."""
        return Load(**{"id": "any", "variant": self.variant, "at": self.at, "artifact": self.weights, **said})

    @property
    def own_table(self) -> Table:
        """The table that it names: of a run of one batch, that batch alone."""
        return self.profile.tables[self.table_id]

    @cached_property
    def open_axes(self) -> frozenset[str]:
        """The axes of that table on which the run is at no point: queries, or who plans, say where."""
        return frozenset(self.own_table.axes.keys() - self.at.keys() if self.table_id else ())

    @property
    def has_single_queries(self) -> bool:
        """Whether it was measured one query at a time, with its variant's own settings."""
        own = {**self.profile.variants[self.variant].knobs, "batch": 1}
        return all(own.get(name) == value for name, value in self.at.items())

    @cached_property
    def settings(self) -> dict[str, float]:
        """Where on the axes of its table it is, as far as files say it."""
        return settings_of(knobs={}, at=self.at, variant_knobs=self.profile.variants[self.variant].knobs)

    @cached_property
    def table(self) -> Table:
        """The table by which it is timed: its own, or that of the runs that it is one of (`table_of`)."""
        return table_of(self.profile, self.variant, self.run)

    @cached_property
    def law(self) -> Law:
        """How long batches of queries take by that table."""
        return law_of_run(self.profile, self.variant, self.run)

    def statistic(self, options: TableOptions) -> tuple[Statistic, tuple[Notice, ...]]:
        """The statistic of its table that the options ask for, and the warning where another has to answer for it.

        What the user named is refused where it was not measured.
        """
        wanted = options.judged_by
        if wanted in self.law.statistics:
            return wanted, ()
        named = "" if options.statistic == "auto" else "statistic"
        return statistic_of(self.table, wanted, named=named, at=f"tables.{self.table.name}")

    @property
    def measured_batches(self) -> tuple[float, ...]:
        """The batch sizes of which it is known how long they take: the run's own, or all of its table."""
        return (self.at["batch"],) if "batch" in self.at else tuple(self.own_table.axes.get("batch", (1.0,)))

    @property
    def batches(self) -> tuple[float, ...]:
        """Of these those to choose from: one, where a sibling has another, or a stated saturation holds at one."""
        alike = (run.at for run in self.profile.variants[self.variant].runs if run.hardware == self.hardware)
        siblings = sum({**at, "batch": 0.0} == {**self.at, "batch": 0.0} for at in alike) > 1
        if "batch" in self.at or self.saturation_qps is not None or siblings:
            return (self.at.get("batch", 1.0),)
        return tuple(batch for batch in self.measured_batches if batch == int(batch) >= 1) or (1.0,)

    def slowdown(self, batch: int) -> tuple[float, ...]:
        """By how much an instance is slower beside 0, 1, 2, ... others; () where nothing is known."""
        return slowdown_of(self.profile, self.variant, self.run, batch)

    @property
    def engine(self) -> Engine | None:
        """The engine by whose law it makes tokens."""
        return self.profile.engines.get(self.run.engine or "")

    @cached_property
    def takes(self) -> dict[str, float]:
        """What it needs, without what is 0; an engine has its cards for itself."""
        cards = {} if self.engine is None else {"gpu": float(self.engine.gpus)}
        return {name: amount for name, amount in {**self.needs, **cards}.items() if amount > 0}

    @cached_property
    def lacking(self) -> dict[str, float]:
        """What a machine has of each resource of which it needs more; hardware that lists anything lists all it has."""
        provides = self.machine.provides
        room = {name: provides.get(name, 0.0) for name in self.needs} if provides else {}
        return {name: most for name, most in room.items() if self.needs[name] > most * (1 + HAIR)}

    @cached_property
    def per_machine(self) -> int:
        """How many instances one machine holds side by side."""
        return instances_on(self.run, self.machine)

    @cached_property
    def computes(self) -> frozenset[str]:
        """The resources that it computes with: what has room in memory beside others need not be as fast beside them.

        Of who computes on a card, its processor is not one.
        """
        named = {name for name in self.takes if not name.endswith("_gib")}
        on_card = any(name.startswith("gpu") for name in (*self.needs, *self.takes))
        return frozenset(named - {"cpu_cores"} if on_card else named)

    @cached_property
    def part(self) -> float | None:
        """The largest share of a resource of its machine that it needs; None where nobody says what computes."""
        provides = self.machine.provides
        taken = {name: amount / provides[name] for name, amount in self.needs.items() if provides.get(name)}
        return max(taken.values()) if self.computes & taken.keys() else None

    @cached_property
    def says_all(self) -> bool:
        """Whether it says all that it takes of a machine: what it computes with, and a card where there is one."""
        provides, has_card = self.machine.provides, self.machine.provides.get("gpu", 0.0) > 0
        computes = any(not name.endswith("_gib") for name in self.takes)
        return computes and self.takes.keys() <= provides.keys() and ("gpu" in self.takes or not has_card)

    @property
    def fits_twice(self) -> bool:
        """Whether two would fit in twice the room: what it needs says what fits beside it."""
        return instances_on(self.run, self.machine, times_as_large=2) > 1

    def price(self, offer: str | None) -> Price:
        """What an instance costs under an offer."""
        return price_of(self.profile, self.run, offer)

    @cached_property
    def is_paid(self) -> bool:
        """Whether an instance is paid by itself, and not with its machine: by its own price, or by its slice."""
        per = {offer.per for offer in self.profile.offers.values() if offer.hardware == self.hardware}
        return self.own_price is not None or any(one in SLICES and one in self.needs for one in per)


class Choices:
    """The choices of a profile, each made once."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._of: dict[str, tuple[Choice, ...]] = {}

    def of(self, variant: str) -> tuple[Choice, ...]:
        """The ways to run a variant, in one order; none where the profile knows no such variant."""
        if variant not in self._of:
            self._of[variant] = tuple(self._read_choices(variant))
        return self._of[variant]

    def _read_choices(self, name: str) -> Iterator[Choice]:
        profile, variant = self.profile, self.profile.variants.get(name)
        for place, run in variant.in_order if variant is not None else ():
            yield Choice(
                profile, run, name, place, run.hardware, profile.hardware[run.hardware], dict(run.at),
                self.quality(name), variant.weights if variant is not None else None, run.needs, run.load_s,
                run.saturation_qps, run.price_per_hour, run.latency or run.rate or "", run.latency is not None,
            )  # fmt: skip

    @property
    def variants(self) -> Set[str]:
        """The variants that were measured."""
        return self.profile.variants.keys()

    def quality(self, variant: str) -> float | None:
        """How good the answers of a variant are, where that is stated."""
        known = self.profile.variants.get(variant)
        return known.quality.value if known is not None and known.quality is not None else None

    def family(self, variant: str) -> str:
        """What a variant is a form of."""
        return self.profile.variants[variant].family or variant

    def metrics(self, variants: Iterable[str]) -> list[str]:
        """By which metrics the answers of some variants are judged."""
        tasks = {self.profile.variants[name].task for name in variants} & self.profile.tasks.keys()
        return sorted({str(self.profile.tasks[task].metric) for task in tasks})

    def of_task(self, task: str) -> tuple[str, ...]:
        """The variants that do a task."""
        return tuple(name for name, variant in self.profile.variants.items() if variant.task == task)

    def every(self) -> Iterator[Choice]:
        """All of them."""
        for name in self.profile.variants:
            yield from self.of(name)

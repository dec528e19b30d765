"""Allowable rates by simulation, each pool and rule once in a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hetplan.extend import AllowableRate, RateSearch, allowable_rates
from hetplan_papers.reproduce.pool.services import EXPONENTIAL, Counts, Service, Setting

__all__ = ["QUICK", "THOROUGH", "Effort", "Efforts", "Rates", "Trail"]


@dataclass(frozen=True)
class Effort:
    """How well a rate is found: seeds, queries of a run at least, how a threshold is looked for."""

    seeds: int
    queries: int
    threshold: Literal["sweep", "climb"] = "sweep"

    def of(self, rule: str) -> Effort:
        """The effort for a rule: where its median over three seeds still moves by a quarter, five times the seeds.

        Runs of those rules are cheap.
        """
        return replace(self, seeds=5 * self.seeds) if self.seeds > 1 and rule in UNSTEADY else self


UNSTEADY = ("fcfs", "clkwrk")
"""Rules that run pools near a cliff: a seed's rate differs from the next one's by half."""


@dataclass(frozen=True)
class Efforts:
    """How well what is found: what is said, what is looked up by the searches, what only ranks 331 pools."""

    full: Effort
    search: Effort
    screen: Effort
    finalists: int = 5


THOROUGH = Efforts(full=Effort(3, 20_000), search=Effort(1, 10_000, "climb"), screen=Effort(1, 4_000, "climb"))
"""As the stored figures: three seeds and 20,000 queries (`sim_*`), one seed and 10,000 (`exhaustive_*`)."""

QUICK = Efforts(
    full=Effort(3, 20_000, "climb"), search=Effort(1, 4_000, "climb"), screen=Effort(1, 4_000, "climb"), finalists=2
)


@dataclass
class Rates:
    """What was simulated so far."""

    efforts: Efforts = THOROUGH
    threads: int = 1
    found: dict[tuple[Any, ...], AllowableRate] = field(default_factory=dict)

    def of(
        self,
        service: Service,
        counts: Counts,
        rule: str = "kairos",
        setting: Setting = EXPONENTIAL,
        effort: Effort | None = None,
    ) -> AllowableRate:
        """One pool's rate under a rule."""
        return self.all(service, [counts], rule, setting, effort)[0]

    def all(
        self,
        service: Service,
        pools: Sequence[Counts],
        rule: str = "kairos",
        setting: Setting = EXPONENTIAL,
        effort: Effort | None = None,
    ) -> list[AllowableRate]:
        """Many pools' rates, side by side where there are threads."""
        how = (effort or self.efforts.full).of(rule)
        keys = [(service.key, counts, rule, how, setting) for counts in pools]
        missing = {key: key[1] for key in keys if key not in self.found}
        searches = [
            RateSearch(
                service.pool(counts),
                service.pmf,
                rule,
                seeds=tuple(range(how.seeds)),
                conditions=service.conditions(setting),
                least_queries=how.queries,
                threshold=how.threshold,
            )
            for counts in missing.values()
        ]
        for key, rate in zip(missing, allowable_rates(searches, threads=self.threads), strict=True):
            self.found[key] = rate
        return [self.found[key] for key in keys]

    def best(
        self, service: Service, pools: Sequence[Counts], rule: str, setting: Setting = EXPONENTIAL
    ) -> tuple[Counts, float]:
        """The best of some pools under a rule: the first of equals."""
        rates = [rate.median for rate in self.all(service, pools, rule, setting)]
        at = max(range(len(pools)), key=rates.__getitem__)
        return pools[at], rates[at]

    def finalists(self, service: Service, pools: Sequence[Counts], rule: str) -> list[Counts]:
        """The pools of the highest rates by shorter runs, the cheaper first at a tie."""
        effort = self.efforts.search if rule == "kairos" else self.efforts.screen
        rough = self.all(service, pools, rule, effort=effort)
        order = sorted(range(len(pools)), key=lambda i: (-rough[i].median, service.cost(pools[i])))
        return [pools[i] for i in order[: self.efforts.finalists]]


@dataclass
class Trail:
    """The simulator that a search of hetplan is handed: answers from `rates`, and keeps what was asked, in order."""

    rates: Rates
    service: Service
    rule: str = "kairos"
    setting: Setting = EXPONENTIAL
    tried: list[tuple[Counts, float]] = field(default_factory=list)

    def __call__(self, latency_ms: Any, counts: Counts, pmf: Any, qos_ms: float, **how: Any) -> AllowableRate:
        """As `Tools.simulate` is called; the rule and the seeds are this trail's."""
        del latency_ms, pmf, qos_ms, how
        return self.note(tuple(int(count) for count in counts))

    def note(self, counts: Counts) -> AllowableRate:
        """A pool's rate, noted as tried."""
        rate = self.rates.of(self.service, counts, self.rule, self.setting, self.rates.efforts.search)
        self.tried.append((counts, rate.median))
        return rate

    @property
    def best(self) -> tuple[Counts, float]:
        """The best that was tried; the first of equals."""
        return max(self.tried, key=lambda one: one[1])

    def until(self, value: float) -> int | None:
        """After how many evaluations a value was reached; None where it never was."""
        return next((at for at, (_, found) in enumerate(self.tried, 1) if found >= value), None)

    @property
    def until_best(self) -> int:
        """After how many evaluations the best was reached."""
        return self.until(self.best[1]) or 0

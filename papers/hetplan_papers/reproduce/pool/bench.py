"""What all figures share: the services, the pools that they can afford, the rates found so far, the stored figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from hetplan_papers.datasets.sources import Json, read
from hetplan_papers.reproduce.pool.chosen import affordable, kairos_pick, spelled
from hetplan_papers.reproduce.pool.rates import QUICK, THOROUGH, Efforts, Rates
from hetplan_papers.reproduce.pool.rows import Check
from hetplan_papers.reproduce.pool.services import EXPONENTIAL, MODELS, Counts, Service, Setting, service

__all__ = ["SPREAD", "Bench"]

SPREAD = {"kairos": 0.04, "drs": 0.04, "clkwrk": 0.06, "fcfs": 0.20, "oracle": 0.02}
"""By how much a rule's rate moves with the seeds and the simulator (golden case G12; the oracle's less)."""

STORED = {"kairos": "kairos", "drs": "drs", "clkwrk": "clk", "fcfs": "fcfs"}
"""A rule's name in the stored simulations."""


@dataclass
class Bench:
    """One run of the reproduction."""

    data: Path
    quick: bool = False
    threads: int = 1
    efforts: Efforts | None = None
    rates: Rates = field(init=False)

    def __post_init__(self) -> None:
        self.rates = Rates(self.efforts or (QUICK if self.quick else THOROUGH), self.threads)

    @cached_property
    def services(self) -> list[Service]:
        """The five services, one of them when it has to be quick."""
        return [service(model, self.data) for model in MODELS if not self.quick or model == "rm2"]

    def pools(self, of: Service, rule: str = "kairos") -> list[Counts]:
        """The pools to choose from: all 331, or for slow rules those stored in detail when it has to be quick."""
        if not self.quick or rule not in ("kairos", "drs"):
            return affordable(of)
        return [tuple(int(count) for count in name.split(",")) for name in self.simulated(of)]

    def simulated(self, of: Service) -> Json:
        """The stored simulations: pool -> rule -> (median, least, most) of three seeds."""
        found: Json = read(f"kairos/sim_{of.model}_exp_noise.json", self.data)
        return found

    def stored(self, of: Service, counts: Counts, rule: str) -> tuple[float | None, list[Check]]:
        """The stored rate of a pool under a rule, and what ours may differ by; nothing where it was not simulated."""
        known = self.simulated(of).get(spelled(counts), {})
        wide = SPREAD[rule]
        if rule == "oracle" and "oracle" in known:
            least = most = middle = float(known["oracle"])
        elif rule in STORED and STORED[rule] in known and known[STORED[rule]][0] > 0:
            middle, least, most = known[STORED[rule]]
        else:
            return None, []
        why = (
            "stored: the least and the most of its three seeds, widened by what golden case G12 allows the rule "
            "(4%, CLKWRK 6%, Ribbon 20%, the oracle 2%): two simulators, few seeds, rates found to 0.5%"
        )
        low, high = least * (1 - wide), most * (1 + wide)
        return middle, [Check(f"stored {low:.4g} to {high:.4g}", low, high, why)]

    def pick(self, of: Service) -> Counts:
        """What KAIROS rents without trying anything."""
        return kairos_pick(of)[0]

    def homogeneous(self, of: Service, budget: str = "2.5") -> tuple[Counts, float]:
        """As many base instances as the budget buys, and the factor that scales them to the whole budget."""
        count = int(float(budget) / of.prices[0] + 1e-9)
        counts = (count, *(0,) * (len(of.prices) - 1))
        return counts, float(budget) / of.cost(counts)

    def gain(self, of: Service, counts: Counts, setting: Setting = EXPONENTIAL, budget: str = "2.5") -> float:
        """A pool's rate over the homogeneous pool's, which is scaled to the whole budget; both under KAIROS."""
        alone, scale = self.homogeneous(of, budget)
        rate, base = (rate.median for rate in self.rates.all(of, [counts, alone], setting=setting))
        return rate / (base * scale) if base else float("inf")

"""Fig. 9: KAIROS' dispatch against Ribbon's, DeepRecSys', Clockwork's and the oracle's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from hetplan_papers.reproduce.pool.bench import Bench
from hetplan_papers.reproduce.pool.chosen import spelled
from hetplan_papers.reproduce.pool.rows import Claim, Row, at_least, between, near
from hetplan_papers.reproduce.pool.services import EXPONENTIAL, WHOLE_MS, Counts, Service, Setting

__all__ = ["NAMES", "rows"]

NAMES = {"kairos": "KAIROS", "drs": "DRS", "clkwrk": "CLKWRK", "fcfs": "Ribbon (FCFS)", "oracle": "ORCL"}

AROUND = Claim("For all models ... around 1.5X the throughput of Ribbon", "1.5")
UP_TO_44 = Claim("outperforms the DRS and CLKWRK schemes by up to 44%", "1.44")
SLIGHTLY = Claim("Kairos+ performs slightly better than Kairos")
CLOSE = Claim("close to the Oracle scheme")
BOTH_BEAT = Claim("both DRS and CLKWRK outperform the Ribbon scheme")

WHY_AROUND = "'around 1.5X' for five bars at once: what is nearer to 1.5 than to 1 or 2"
WHY_44 = "golden case G12 allows KAIROS 4% and CLKWRK 6%; together 7%"
WHY_ORDER = "an order without a figure; 2% for rates found to 0.5% with three seeds"

PAPERS_ARRIVALS = (
    "Ribbon sends whatever waits to whatever is idle, and loses more with exponential gaps than with the published "
    "code's smoother arrivals; see 9c"
)
TWO_READINGS = (
    "CLKWRK works near a cliff on this pool: single seeds give 1.26 to 2.0, and the paper's figure is one experiment. "
    "Read the other way ('best ... via Oracle search' as each rule's own best pool, the next row) it is 1.3"
)
SMALL_TARGET = (
    "its target is 5 ms: with gaps of whole milliseconds and thousands of queries per second several queries arrive at "
    "once, and every rule's rate hangs on what happens then (here all arrive, then one dispatch)"
)


def rows(bench: Bench) -> Iterator[Row]:
    """The rules on one pool, and each with the pool that is best for it."""
    for service in bench.services:
        yield from _on_one_pool(bench, service)
    for setting, gaps in ((EXPONENTIAL, "exponential gaps"), (WHOLE_MS, "whole-ms gaps")):
        yield from _compared([_bests(bench, service, setting) for service in bench.services], gaps)


def _on_one_pool(bench: Bench, service: Service) -> Iterator[Row]:
    """The pool that the exact program rents: the best of the stored ones for KAIROS."""
    stored = bench.simulated(service)
    counts = tuple(int(n) for n in max(stored, key=lambda name: stored[name]["kairos"][0]).split(","))
    for rule, name in NAMES.items():
        known, checks = bench.stored(service, counts, rule)
        rate = bench.rates.of(service, counts, rule)
        said = f"{spelled(counts)}  [{rate.min:.4g}, {rate.max:.4g}]"
        yield Row(
            "9a",
            f"{service.model}: {name}",
            "qps",
            rate.median,
            code=known,
            source=f"sim_{service.model}_exp_noise.json",
            said=said if rate.threshold is None else f"{said}  threshold {rate.threshold:g}",
            checks=checks,
        )


@dataclass(frozen=True)
class _Bests:
    """Rates of one service: each rule at its own best pool, and at the oracle's pool; KAIROS at its pick."""

    service: Service
    pick: tuple[Counts, float]
    own: dict[str, tuple[Counts, float]]
    at_oracle: dict[str, float]


def _bests(bench: Bench, service: Service, setting: Setting) -> _Bests:
    """Screened with exponential gaps; the finalists in the setting itself."""
    rates, pick = bench.rates, bench.pick(service)
    oracle = rates.best(service, rates.finalists(service, bench.pools(service, "oracle"), "oracle"), "oracle")
    own = {
        rule: rates.best(service, rates.finalists(service, bench.pools(service, rule), rule), rule, setting)
        for rule in ("kairos", "drs", "clkwrk", "fcfs")
    }
    at_oracle = {rule: rates.of(service, oracle[0], rule, setting).median for rule in ("drs", "clkwrk")}
    return _Bests(
        service, (pick, rates.of(service, pick, setting=setting).median), {**own, "oracle": oracle}, at_oracle
    )


def _compared(all_bests: list[_Bests], gaps: str) -> Iterator[Row]:
    figure = "9b" if gaps.startswith("exp") else "9c"
    for bests in all_bests:
        model, (pick, mine) = bests.service.model, bests.pick
        for rule in ("fcfs", "drs", "clkwrk"):
            pool, rate = bests.own[rule]
            checks = [between("paper", 1.25, 1.75, WHY_AROUND)] if rule == "fcfs" else []
            row = Row(
                figure,
                f"{model}: KAIROS / {NAMES[rule]} at its own best pool",
                "x",
                mine / rate,
                paper=AROUND if rule == "fcfs" else "",
                said=f"{mine:.4g} at {spelled(pick)} / {rate:.4g} at {spelled(pool)}",
                checks=checks,
            )
            yield row.noted_if_off(PAPERS_ARRIVALS if figure == "9b" else SMALL_TARGET if model == "ncf" else "")
        best, top = bests.own["kairos"], bests.own["oracle"]
        yield Row(
            figure,
            f"{model}: Kairos+ / KAIROS",
            "x",
            best[1] / mine,
            paper=SLIGHTLY,
            said=spelled(best[0]),
            checks=[
                between("paper", 1.0 - 0.005, 1.15, "'slightly': within the 15% of the oracle that both are said to be")
            ],
        )
        yield Row(
            figure,
            f"{model}: KAIROS / ORCL",
            "x",
            mine / top[1],
            paper=CLOSE,
            said=f"{top[1]:.4g} at {spelled(top[0])}",
        )
    ribbon = [bests.own["fcfs"][1] for bests in all_bests]
    for rule in ("drs", "clkwrk"):
        worst = min(bests.own[rule][1] / base for bests, base in zip(all_bests, ribbon, strict=True))
        yield Row(
            figure,
            f"least {NAMES[rule]} / Ribbon, each at its best pool",
            "x",
            worst,
            paper=BOTH_BEAT,
            checks=[at_least("paper", 0.98, WHY_ORDER)],
        )
    yield Row(
        figure,
        "middle of KAIROS / Ribbon",
        "x",
        median(bests.pick[1] / base for bests, base in zip(all_bests, ribbon, strict=True)),
        paper=AROUND,
        checks=[between("paper", 1.25, 1.75, WHY_AROUND)],
    )
    yield from _up_to_44(all_bests, figure)


def _up_to_44(all_bests: list[_Bests], figure: str) -> Iterator[Row]:
    """The two readings of 'each scheme with the best heterogeneous configuration obtained via Oracle search'."""
    at_oracle = [
        (b.pick[1] / rate, f"{b.service.model} {NAMES[rule]}") for b in all_bests for rule, rate in b.at_oracle.items()
    ]
    own = [
        (b.pick[1] / b.own[rule][1], f"{b.service.model} {NAMES[rule]}")
        for b in all_bests
        for rule in ("drs", "clkwrk")
    ]
    value, who = max(at_oracle)
    yield Row(
        figure,
        "most of KAIROS / DRS or CLKWRK, those at the oracle's best pool",
        "x",
        value,
        paper=UP_TO_44,
        said=who,
        checks=[near("paper 1.44", 1.44, 0.07, WHY_44)] if figure == "9c" else [],
    ).noted_if_off(TWO_READINGS)
    value, who = max(own)
    yield Row(figure, "most of KAIROS / DRS or CLKWRK, each at its own best pool", "x", value, said=who)

"""Fig. 8: KAIROS' mixed pool against base instances alone."""

from __future__ import annotations

from collections.abc import Iterator

from hetplan_papers.reproduce.pool.bench import Bench
from hetplan_papers.reproduce.pool.chosen import spelled
from hetplan_papers.reproduce.pool.rows import Check, Claim, Row, at_least, near
from hetplan_papers.reproduce.pool.services import EXPONENTIAL, WHOLE_MS, Service

__all__ = ["rows"]

UP_TO_2X = Claim("up to 2X throughput (i.e., RM2 model)", "2")
MORE_THAN = Claim("more than 1.25X in all cases", "> 1.25")
WHY_LEAST = "the paper's own word for all five services, taken as it is"
WHY_TWO = "a rounded figure: 2X is what rounds to 2 in steps of a quarter"

NOISY_PICK = (
    "the similarity rule takes (2,0,8,1), in ours as in the published code; its t3.xlarge is the noisy type, and the "
    "pool ranked first, (2,0,9,0), carries 10% more: with it (and with hetplan's default) the gain is above 1.25"
)


def rows(bench: Bench) -> Iterator[Row]:
    """Rates and gains, with exponential gaps and with the published code's."""
    for service in bench.services:
        yield from _rates(bench, service)
    for setting, gaps in ((EXPONENTIAL, "exponential gaps"), (WHOLE_MS, "whole-ms gaps")):
        for service in bench.services:
            pick = bench.pick(service)
            checks: list[Check] = [at_least("paper", 1.25, WHY_LEAST)]
            paper = MORE_THAN
            if service.model == "rm2":
                checks.append(near("paper 2", 2.0, 0.125, WHY_TWO))
                paper = UP_TO_2X
            gain = bench.gain(service, pick, setting)
            row = Row(
                "8",
                f"{service.model}: gain over homogeneous scaled to the budget, {gaps}",
                "x",
                gain,
                paper=paper,
                code=_stored_gain(bench, service) if setting is EXPONENTIAL else None,
                source=f"sim_{service.model}_exp_noise.json",
                said=f"{spelled(pick)}; not scaled {gain * bench.homogeneous(service)[1]:.3f}",
                checks=checks,
            )
            yield row.noted_if_off(NOISY_PICK if service.model == "mtwnd" else "")


def _rates(bench: Bench, service: Service) -> Iterator[Row]:
    alone, _ = bench.homogeneous(service)
    for counts, name in ((alone, "homogeneous"), (bench.pick(service), "KAIROS' pool")):
        known, checks = bench.stored(service, counts, "kairos")
        rate = bench.rates.of(service, counts)
        yield Row(
            "8",
            f"{service.model}: {name}, exponential gaps",
            "qps",
            rate.median,
            code=known,
            source=f"sim_{service.model}_exp_noise.json",
            said=f"{spelled(counts)}  [{rate.min:.4g}, {rate.max:.4g}]",
            checks=checks,
        )


def _stored_gain(bench: Bench, service: Service) -> float | None:
    alone, scale = bench.homogeneous(service)
    mine, base = (bench.stored(service, counts, "kairos")[0] for counts in (bench.pick(service), alone))
    return mine / (base * scale) if mine and base else None

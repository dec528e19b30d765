"""Machines that are paid whole and shared: what do default plans of `variants` cost beside the cheapest near by?

usage: python benchmarks/kept_whole.py [--instances 30] [--seed 0] [--plays 100] [--each]

Random instances: one to four applications of two to six variants each, on two to four types of machines, of which one
to twenty are rented; deadlines of 1.2 to 5 service times, Poisson and bursty arrivals; some variants are too poor.
Each is solved with `size=planned` and with the default, and both plans are played by five seeds that no solve has seen.

A search by simulation looks for a cheaper plan that keeps its wish. It begins at the default plan, and at the cheapest
plan whose machines each hold one variant alone. Then it goes to cheaper neighbours: one machine less, one exchanged for
another filled with one or two variants, two for one, loads moved into what is free, another batch. It plays each
application of a neighbour by itself. The cheapest plans are then played by the five fresh seeds, until one is kept.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import hetplan as hp
from benchmarks.kept import Instance, is_kept
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan, Route
from hetplan.profiles.workers import Load, Serve, Worker
from hetplan.serving.strictest import late_share
from hetplan.simulator.simulate import simulate

__all__ = ["Judged", "judged", "whole"]

Json = dict[str, Any]
Holds = tuple[tuple[tuple[str, int], int], ...]
"""What is on a machine: (variant, batch) -> instances."""
Machines = tuple[tuple[tuple[str, Holds], int], ...]
"""(Offer, what is on it) -> machines."""

ARRIVALS = (
    {"process": "poisson"},
    {"process": "poisson"},
    {"process": "gamma", "shape": 0.5},
    {"process": "mmpp", "relative_rates": [0.6, 1.8], "stay_s": [2.0, 1.0]},
)
MOST_MACHINES = 24
SEARCHED, QUERIES = 77_000_003, 4_000
"""Seeds of the search, and queries of an application in each of its two runs."""
MARGIN = 0.9
"""Of the share that may be late, what the search lets a plan use up."""
MOST_CONFIRMED = 6


def whole(seed: int) -> Instance:
    """A random instance."""
    rng = random.Random(f"whole {seed}")
    types = [f"h{k}" for k in range(rng.randint(2, 4))]
    profile: Json = {
        "format": "hetplan/profile/1.0", "metrics": {"top1": {"kind": "bernoulli"}},
        "hardware": {name: {"kind": "cpu", "provides": {"part": 1}, "startup_s": 30} for name in types},
        "offers": {}, "tasks": {"t": {"metric": "top1"}}, "variants": {}, "tables": {},
    }  # fmt: skip
    speed = {name: rng.uniform(1.0, 4.0) for name in types}
    for name in types:
        price = speed[name] * rng.uniform(0.6, 1.4)
        profile["offers"][name] = {"hardware": name, "price_per_hour": f"{price:.3f}"}
        if rng.random() < 0.3:
            profile["offers"][f"{name}-spot"] = {
                "hardware": name, "price_per_hour": f"{0.7 * price:.3f}", "stock": rng.randint(1, 4)
            }  # fmt: skip
    apps: Json = {}
    count = rng.choice([1, 1, 2, 2, 3, 4])
    for number in range(count):
        floor = 0.7 if rng.random() < 0.5 else 0.0
        full = list[tuple[float, float]]()
        for k in range(rng.randint(2, 6)):
            name, sizes = f"f{number}-v{k}", [1, 4, 8, 16][: rng.randint(1, 4)]
            quality = 0.75 if k == 0 else round(rng.uniform(0.6, 0.9), 3)
            base, alone, runs = rng.uniform(8, 60), rng.uniform(0.3, 0.9), []
            for where in rng.sample(types, rng.randint(1, 2)):
                part = rng.choice([0.25, 0.5, 1.0])
                first = base / (part * speed[where]) ** 0.8
                means = [round(first * (alone + (1 - alone) * size), 3) for size in sizes]
                table = {"quantity": "latency_ms", "axes": {"batch": sizes}, "mean": means}
                profile["tables"][f"{name}-{where}"] = table
                runs.append({"hardware": where, "latency": f"{name}-{where}", "needs": {"part": part}})
                if quality >= floor:
                    full += [(ms, 1000.0 * size / ms / part) for size, ms in zip(sizes, means, strict=True)]
            profile["variants"][name] = {
                "task": "t", "family": f"f{number}", "quality": {"value": quality}, "runs": runs
            }  # fmt: skip
        limit_ms = round(min(ms for ms, _ in full) * (1.2 + 3.8 * rng.random() ** 2), 2)
        rate = max(qps for ms, qps in full if ms <= limit_ms) * rng.uniform(0.2, 6.0 / count)
        apps[f"a{number}"] = {
            "family": f"f{number}",
            "latency": {f"p{rng.choice([90, 95, 99]):g}_ms": limit_ms},
            "rate_qps": round(rate, 3),
            "arrivals": dict(rng.choice(ARRIVALS)),
        }
        if floor:
            apps[f"a{number}"]["quality"] = {"min": floor}
    return Instance(f"whole {seed}", profile, {"format": "hetplan/slo/1.0", "change": {"slack": 1.0}, "apps": apps})


@dataclass
class Search:
    """Plans near by, each application played by itself, and what was seen of it kept."""

    instance: Instance
    template: Plan
    plays: int
    seen: dict[tuple[str, Machines], float] = field(default_factory=dict)

    @cached_property
    def inputs(self) -> Inputs:
        return hp.load(hp.Profile.model_validate(self.instance.profile), self.instance.slo)

    @cached_property
    def price(self) -> dict[str, float]:
        return {name: float(one["price_per_hour"]) for name, one in self.instance.profile["offers"].items()}

    @cached_property
    def ways(self) -> dict[str, dict[tuple[str, int], list[tuple[str, float, float]]]]:
        """Per application, of each (variant, batch) in time and good enough: offer, part of it, queries/s."""
        found: dict[str, dict[tuple[str, int], list[tuple[str, float, float]]]] = {}
        for app, wish in self.instance.slo["apps"].items():
            mine, (limit_ms,) = found.setdefault(app, {}), wish["latency"].values()
            for name, one in self.instance.profile["variants"].items():
                poor = one["quality"]["value"] < wish.get("quality", {}).get("min", 0.0)
                if one["family"] not in wish["family"] or poor:
                    continue
                for run in one["runs"]:
                    table = self.instance.profile["tables"][run["latency"]]
                    for size, ms in zip(table["axes"]["batch"], table["mean"], strict=True):
                        if ms <= limit_ms:
                            offers = [o for o, sold in self.instance.profile["offers"].items()
                                      if sold["hardware"] == run["hardware"]]  # fmt: skip
                            at = [(offer, run["needs"]["part"], 1000.0 * size / ms) for offer in offers]
                            mine.setdefault((name, size), []).extend(at)
        return found

    @cached_property
    def served(self) -> dict[tuple[tuple[str, int], str], tuple[str, float, float]]:
        """Of a (variant, batch) under an offer: its application, part, queries/s."""
        return {
            (way, offer): (app, part, qps)
            for app, ways in self.ways.items() for way, at in ways.items() for offer, part, qps in at
        }  # fmt: skip

    def cost(self, machines: Machines) -> float:
        return sum(self.price[offer] * count for (offer, _), count in machines)

    def may_be(self, machines: Machines) -> bool:
        """Whether stocks and rooms allow it, and every load can be served."""
        rented, carried = Counter[str](), defaultdict[str, float](float)
        for (offer, holds), count in machines:
            rented[offer] += count
            if sum(n * self.served[way, offer][1] for way, n in holds) > 1 + 1e-9:
                return False
            for way, n in holds:
                app, _, qps = self.served[way, offer]
                carried[app] += n * count * qps
        stock = self.instance.profile["offers"]
        if any(n > stock[offer].get("stock", n) for offer, n in rented.items()):
            return False
        return all(carried[app] > wish["rate_qps"] for app, wish in self.instance.slo["apps"].items())

    def plan(self, machines: Machines, only: str | None = None) -> Plan:
        """The plan of these machines, of one application alone where that is asked for."""
        workers, to = list[Worker](), dict[str, dict[str, float]]()
        for number, ((offer, holds), count) in enumerate(machines):
            loads = []
            for place, (way, n) in enumerate(holds):
                app, _, qps = self.served[way, offer]
                if only in (None, app):
                    loads.append(
                        Load(
                            id=f"m{number}.{place}", app=app, variant=way[0], instances=n, serve=Serve(max_batch=way[1])
                        )
                    )
                    to.setdefault(app, {})[f"m{number}.{place}"] = n * count * qps
            hardware = self.instance.profile["offers"][offer]["hardware"]
            if loads:
                workers.append(
                    Worker(id=f"m{number}", hardware=hardware, offer=offer, count=count, queue="per-load",
                           loads=tuple(loads))
                )  # fmt: skip
        routing = {
            app: (Route(to={name: part / sum(parts.values()) for name, part in parts.items()}),)
            for app, parts in to.items()
        }
        promises = tuple(
            one.model_copy(update={"value": self.cost(machines)}) if one.quantity == "cost_per_hour" else one
            for one in self.template.promises
            if only in (None, one.app) and one.model != "simulation/1"
        )
        return self.template.model_copy(
            update={
                "workers": tuple(workers), "routing": routing, "promises": promises, "actions": (), "claims": (),
                "dispatch": {app: one for app, one in self.template.dispatch.items() if app in routing},
            }
        )  # fmt: skip

    def worst(self, machines: Machines) -> float:
        """Late share / allowed share, of the application that is worst (infinite where plays are used up)."""
        return max(self.late(app, machines) for app in self.instance.slo["apps"])

    def late(self, app: str, machines: Machines) -> float:
        """The same of one application, which its own loads alone decide."""
        own = Counter[tuple[str, Holds]]()
        for (offer, holds), count in machines:
            mine = tuple((way, n) for way, n in holds if self.served[way, offer][0] == app)
            if mine:
                own[offer, mine] += count
        key = (app, tuple(sorted(own.items())))
        if key not in self.seen:
            if self.plays <= 0:
                return float("inf")
            self.plays -= 1
            wish = self.inputs.slo.apps[app]
            rate = self.instance.slo["apps"][app]["rate_qps"]
            length_s = max(QUERIES / rate, 40.0 * sum(wish.arrivals.stay_s or ()))
            report = simulate(self.plan(key[1], app), self.inputs, seeds=2, seed=SEARCHED, duration_s=length_s)
            self.seen[key] = report.apps[app].figures["violations"].value / late_share(wish)
        return self.seen[key]

    def climb(self, start: Machines) -> list[Machines]:
        """Ever cheaper plans that keep their wish by what was played, the cheapest last."""
        found = [start] if self.worst(start) <= MARGIN else []
        best, tried = start, {start}
        while self.plays > 0:
            near = {one for one in self.near(best) if one not in tried and self.may_be(one)}
            limit = self.cost(best) - 1e-9 if found else float("inf")
            following = None
            for one in sorted((one for one in near if self.cost(one) < limit), key=lambda one: (self.cost(one), one)):
                tried.add(one)
                if self.worst(one) <= MARGIN:
                    following = one
                    break
                if self.plays <= 0:
                    break
            if following is None:
                break
            best = following
            found.append(best)
        return found

    def filled(self) -> Iterator[tuple[str, Holds]]:
        """Machines full of one variant, or of two in any parts."""
        by_offer: dict[str, list[tuple[tuple[str, int], float]]] = {}
        for (way, offer), (_, part, _) in self.served.items():
            by_offer.setdefault(offer, []).append((way, part))
        for offer, ways in by_offer.items():
            for at, (way, part) in enumerate(ways):
                most = int(1 / part + 1e-9)
                yield offer, ((way, most),)
                for other, needs in ways[at + 1 :]:
                    for n in range(1, most):
                        if (more := int((1 - n * part) / needs + 1e-9)) > 0:
                            yield offer, tuple(sorted([(way, n), (other, more)]))

    def near(self, machines: Machines) -> Iterator[Machines]:
        """Neighbours, free parts of machines filled up."""
        counts, full = Counter(dict(machines)), list(self.filled())
        less = [Counter({one: 1}) for one in counts]
        less += [Counter([one, other]) for one in counts for other in counts]
        for fewer in less:
            if any(counts[one] < n for one, n in fewer.items()):
                continue
            left = +(counts - fewer)
            if left:
                yield self.full(left)
            for one in full:
                yield self.full(left + Counter([one]))
        for (offer, holds), count in counts.items():
            for place, (way, n) in enumerate(holds):
                app, part, _ = self.served[way, offer]
                for other in self.ways[app]:
                    if other != way and (other, offer) in self.served:
                        room = n * part / self.served[other, offer][1]
                        if room >= 1 - 1e-9:
                            held = Counter({w: k for at, (w, k) in enumerate(holds) if at != place})
                            held[other] += int(room + 1e-9)
                            changed = (offer, tuple(sorted(held.items())))
                            yield self.full(counts - Counter({(offer, holds): count}) + Counter({changed: count}))
                            yield self.full(counts - Counter({(offer, holds): 1}) + Counter({changed: 1}))

    def full(self, counts: Mapping[tuple[str, Holds], int]) -> Machines:
        """The same machines, what is free on them taken by more of what they hold."""
        found = Counter[tuple[str, Holds]]()
        for (offer, holds), count in counts.items():
            held = Counter(dict(holds))
            free = 1.0 - sum(n * self.served[way, offer][1] for way, n in holds)
            for way, _ in sorted(holds, key=lambda one: self.served[one[0], offer][1]):
                more = int(free / self.served[way, offer][1] + 1e-9)
                held[way] += more
                free -= more * self.served[way, offer][1]
            found[offer, tuple(sorted(held.items()))] += count
        return tuple(sorted((one, n) for one, n in found.items() if n > 0))

    def alone(self) -> Iterator[Machines]:
        """The two cheapest ways to serve each application by one kind of machine, and all their combinations."""
        best: list[list[Machines]] = []
        for app, wish in self.instance.slo["apps"].items():
            found = []
            for way, at in self.ways[app].items():
                for offer, part, qps in at:
                    each = int(1 / part + 1e-9)
                    low = int(wish["rate_qps"] / (each * qps)) + 1
                    most = self.instance.profile["offers"][offer].get("stock", MOST_MACHINES)
                    for count in range(low, most + 1):
                        one: Machines = (((offer, ((way, each),)), count),)
                        if found and self.cost(one) >= sorted(map(self.cost, found))[:2][-1] and len(found) > 1:
                            break
                        if self.late(app, one) <= MARGIN:
                            found.append(one)
                            break
            best.append(sorted(found, key=self.cost)[:2])
        for parts in product(*best):
            total = Counter[tuple[str, Holds]]()
            for part in parts:
                total.update(dict(part))
            yield self.full(total)

    def machines_of(self, plan: Plan) -> Machines:
        found = Counter[tuple[str, Holds]]()
        for worker in plan.workers:
            held = Counter[tuple[str, int]]()
            for load in worker.loads:
                held[load.variant or "", load.serve.max_batch] += load.instances
            found[worker.offer or worker.hardware, tuple(sorted(held.items()))] += worker.count
        return tuple(sorted(found.items()))

    def cheapest(self, plan: Plan | None) -> Plan | None:
        """The cheapest plan found that fresh seeds confirm."""
        found = list[Machines]()
        plays = self.plays
        if plan is not None:
            self.plays = plays // 2
            found += self.climb(self.machines_of(plan))
            self.plays += plays - plays // 2
        alone = sorted((one for one in self.alone() if self.may_be(one)), key=self.cost)
        for start in alone[:2]:
            found += self.climb(start)
        ceiling = float("inf") if plan is None else cost_of(plan) - 1e-9
        for one in sorted(set(found), key=self.cost)[:MOST_CONFIRMED]:
            if self.cost(one) < ceiling and is_kept(self.instance, self.plan(one)):
                return self.plan(one)
        return None


def cost_of(plan: Plan) -> float:
    return next(one.value for one in plan.promises if one.quantity == "cost_per_hour")


@dataclass(frozen=True)
class Judged:
    """What came of one instance (ratio: the default's cost / the cheapest found)."""

    instance: str
    planned_kept: bool
    code: int
    kept: bool | None
    ok: bool | None
    machines: int
    cost: float | None
    found: float | None
    seconds: float

    @property
    def ratio(self) -> float | None:
        """The default's cost / the cheapest found."""
        return None if self.cost is None else max(1.0, self.cost / (self.found or self.cost))


def judged(seed: int, plays: int = 100) -> Judged:
    """Solve one instance, play what comes of it, and search near by."""
    instance = whole(seed)
    planned = hp.solve(
        hp.Profile.model_validate(instance.profile), instance.slo, options={"size": "planned"}, formulation="variants"
    ).require()
    begun = time.process_time()
    outcome = hp.solve(hp.Profile.model_validate(instance.profile), instance.slo, formulation="variants")
    seconds = time.process_time() - begun
    plan = outcome.plan if outcome.exit_code == 0 else None
    best = Search(instance, planned, plays).cheapest(plan) if plays else None
    kept = None if plan is None else is_kept(instance, plan)
    ok = None if plan is None else hp.verify(plan, hp.Profile.model_validate(instance.profile), instance.slo).ok
    return Judged(
        instance.name, is_kept(instance, planned), outcome.exit_code, kept, ok,
        sum(worker.count for worker in (plan or planned).workers), None if plan is None else cost_of(plan),
        None if best is None else cost_of(best), seconds,
    )  # fmt: skip


def report(found: list[Judged]) -> str:
    """What came of all, in lines."""
    plans = [one for one in found if one.cost is not None]
    ratios = [one.ratio for one in plans if one.ratio is not None]
    missed = [one.instance for one in found if one.cost is None and one.found is not None]
    return "\n".join(
        [
            f"{len(found)} instances, {sum(not one.planned_kept for one in found)} break their wish as planned",
            f"default: {len(plans)} plans, {sum(bool(one.kept) for one in plans)} kept, "
            f"{sum(bool(one.ok) for one in plans)} verified",
            f"cost / cheapest found: median {statistics.median(ratios):.3f}, worst {max(ratios):.3f}, "
            f"{sum(one > 1.1 for one in ratios)} above 1.1",
            f"none where the search finds one: {', '.join(missed) or 'none'}",
            f"CPU s per solve: median {statistics.median(one.seconds for one in found):.2f}, "
            f"worst {max(one.seconds for one in found):.2f}",
        ]
    )


def main() -> None:
    """Judge so many instances, and print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plays", type=int, default=100, help="plays of one application in a search (0: no search)")
    parser.add_argument("--each", action="store_true", help="a line per instance")
    given = parser.parse_args()
    found = []
    for seed in range(given.seed, given.seed + given.instances):
        found.append(judged(seed, given.plays))
        if given.each:
            print(found[-1], f"{found[-1].ratio or 0:.3f}", flush=True)
    print(report(found))


if __name__ == "__main__":
    main()

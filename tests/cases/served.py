"""Random profiles and wishes in which it matters who reads what: runs, tables, knobs, offers, shares, links, targets.

`documents_of(seed)` gives (question, profile, slo). Every question reads the same kinds of profile: two runs on one
hardware, a table per batch, knobs that name axes, several offers, prices by the unit and of single runs, shares of a
card, links between tiers, tables of percentiles alone, tables that are continued beyond their grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

__all__ = ["QUESTIONS", "documents_of"]

Json = dict[str, Any]
QUESTIONS = ("pool", "pipeline", "variants", "policy")
BATCHES = (1, 2, 4, 8)
PLACES = (160, 320, 640)


def documents_of(seed: int) -> tuple[str, Json, Json]:
    """A question, and a profile and a wish for it."""
    question = QUESTIONS[seed % len(QUESTIONS)]
    random = Random(seed)
    made = _Profile(random, question)
    profile = made.profile()
    return question, profile, _slo(random, question, made)


class _Profile:
    def __init__(self, random: Random, question: str) -> None:
        self.random, self.question = random, question
        self.tables: Json = {}
        self.percentile = random.choice(("p95", "p99")) if question == "policy" else ""
        # A class of query names an axis in some pools and variants; elsewhere the load or the run does.
        self.single = random.random() < 0.5
        self.mixed = question in ("pool", "variants") and random.random() < 0.5

    def profile(self) -> Json:
        random = self.random
        several = self.question != "policy" and random.random() < 0.6
        names = self.names = ["g", "c"] if several else ["g"]
        tasks = ["detect", "name"] if self.question == "pipeline" else ["detect"]
        count = 1 if self.question == "pool" else random.choice((1, 2))
        variants = {
            f"{task}{number}": self._variant(task, names) for task in tasks for number in range(count)
        }  # fmt: skip
        card = {"kind": "gpu", "tier": "edge", "provides": {"gpu": 2, "cpu_cores": 8}}
        hardware: Json = dict.fromkeys(names, card)
        made = {
            "format": "hetplan/profile/1.0",
            "tiers": ["edge", "cloud"],
            "hardware": {**hardware, "far": {"kind": "cpu", "tier": "cloud"}},
            "offers": dict(self._offers(names)),
            "links": [{"between": ["edge", "cloud"], "bandwidth_mbps": 100, "latency_ms": random.choice((1, 5))}],
            "tasks": {task: {} for task in tasks},
            "variants": variants,
            "tables": self.tables,
        }
        if self.question == "pipeline":
            made["pipelines"] = {
                "p": {"nodes": {"d": {"task": "detect"}, "n": {"task": "name"}}, "edges": [{"from": "d", "to": "n"}]}
            }
        return made

    def _offers(self, names: list[str]) -> Iterator[tuple[str, Json]]:
        random = self.random
        for name in names:
            by_unit = random.random() < 0.4
            # Pipelines take prices by the unit, and of single runs, beside a single offer only.
            count = 1 if self.single else random.choice((1, 2))
            by_unit = by_unit and (self.single or self.question != "pipeline")
            for number in range(count):
                offer = {"hardware": name, "price_per_hour": f"{random.randint(1, 3_000_000_000) / 1e9:.9f}"}
                per = {"per": random.choice(("gpu", "cpu_cores"))} if by_unit else {}
                yield f"{name}-{number}", {**offer, **per, "stock": 50}

    def _variant(self, task: str, names: list[str]) -> Json:
        random = self.random
        knob = random.choice(PLACES) if random.random() < 0.5 else None
        knobs = {"mode": "fast", **({"size": knob} if knob is not None else {})}
        runs = [run for name in names for run in self._runs(name, knob)]
        return {"task": task, "quality": {"value": round(random.uniform(0.5, 0.9), 3)}, "knobs": knobs, "runs": runs}

    def _runs(self, hardware: str, knob: int | None) -> list[Json]:
        """One run, two at different sizes, or one per batch, in any order."""
        random = self.random
        shape = random.choice(("one", "two", "per-batch"))
        if shape == "per-batch":
            batches = [1, *sorted(random.sample(BATCHES[1:], random.choice((1, 2))))]
            sized = knob is not None if self.question == "pool" else random.random() < 0.5
            shared = self._how(sized)
            at = {"size": random.choice(PLACES)} if sized and knob is None else {}
            runs = [self._run(hardware, {"batch": batch, **at}, (batch,), **shared) for batch in batches]
        elif shape == "two" and self.question == "pool":
            # A pool takes the run of single queries at the variant's knobs.
            shared = self._how(sized=knob is not None)
            others = [size for size in PLACES if size != knob]
            points = [{"batch": 1}, {"batch": 2}] if knob is None else [{"size": knob}, {"size": others[0]}]
            runs = [self._run(hardware, at, None, **self._at_other_speed(shared)) for at in points]
        elif shape == "two" and not self.mixed:
            shared = self._how(sized=True)
            at = {"batch": 2} if self.question == "variants" else {}
            runs = [
                self._run(hardware, {"size": size, **at}, None, **self._at_other_speed(shared))
                for size in random.sample(PLACES, 2)
            ]
        else:
            sized = knob is not None
            at = {"batch": random.choice((1, 2))} if self.question == "variants" else {}
            runs = [self._run(hardware, at, None, **self._how(sized))]
        random.shuffle(runs)
        return runs

    def _how(self, sized: bool) -> Json:
        random = self.random
        own = random.random() < 0.2 and (self.single or self.question != "pipeline")
        needs = {"needs": {random.choice(("gpu", "cpu_cores")): random.choice((0.25, 0.5, 0.35, 1))}}
        return {
            "sized": sized or self.mixed,
            "base": random.uniform(1, 10),
            "outside": random.choice(("refuse", "refuse", "clamp", "linear")),
            "statistics": self._statistics(),
            "extra": {
                **(needs if random.random() < 0.6 else {}),
                **({"price_per_hour": f"{random.randint(1, 10**9) / 1e9:.9f}"} if own else {}),
                "load_s": random.choice((0, 2.5)),
            },
        }

    def _at_other_speed(self, how: Json) -> Json:
        return {**how, "base": self.random.uniform(1, 10)}

    def _statistics(self) -> tuple[str, ...]:
        random = self.random
        if self.question == "policy":
            return (self.percentile, *random.choice((("mean", "std"), ("mean",), ())))
        return random.choice((("mean",), ("mean", "std"), ("mean", "std", "p95", "p99"), ("mean", "p99")))

    def _run(
        self, hardware: str, at: Json, batches: tuple[int, ...] | None, *, sized: bool, outside: str,
        statistics: tuple[str, ...], extra: Json, base: float,
    ) -> Json:  # fmt: skip
        random = self.random
        axes: Json = {"batch": list(batches or BATCHES[: random.choice((2, 3, 4))])}
        if sized or "size" in at:
            axes["size"] = list(PLACES)
        name = f"t{len(self.tables)}"

        def grid(worth: float) -> list[Any]:
            rows = []
            for batch in axes["batch"]:
                cells = [round(worth * base * (1 + 0.6 * batch) * (1 + place / 400), 6) for place in PLACES]
                rows.append(cells if "size" in axes else cells[0])
            return rows

        worth = {"mean": 1.0, "std": 0.1, "p95": 1.2, "p99": 1.4}
        made = {statistic: grid(worth[statistic]) for statistic in statistics}
        self.tables[name] = {"quantity": "latency_ms", "axes": axes, "outside": outside, **made}
        return {"hardware": hardware, "latency": name, "at": dict(at), **extra}


def _slo(random: Random, question: str, made: _Profile) -> Json:
    percentiles = random.sample((50, 90, 99, 99.9), random.choice((1, 2)))
    latency = {f"p{p:g}_ms": 1000 + 50 * n for n, p in enumerate(sorted(percentiles))}
    app: Json = {"latency": latency, "network_ms_per_hop": random.choice((0, 1.5, 7))}
    rate = random.choice((1, 12.5, 40))
    app["rate_qps"] = rate
    if question == "policy":
        app["rate_qps"] = {"low": rate, "high": 2 * rate}
    if made.mixed:
        sizes = random.sample((160, 200, 320, 500, 640), random.choice((1, 3)))
        shares = [random.randint(1, 9) for _ in sizes]
        mix: Json = {"axes": ["size"], "bins": [[size] for size in sizes]}
        if random.random() < 0.5:
            mix["share"] = [share / sum(shares) for share in shares]
        else:
            mix["observed"] = [[size] for size, share in zip(sizes, shares, strict=True) for _ in range(share)]
        app["mix"] = mix
    app |= {"pipeline": "p"} if question == "pipeline" else {"task": "detect"}
    if question == "pipeline":
        app["quality"] = {"min": 0.1}
    return {
        "format": "hetplan/slo/1.0",
        "limits": {"instances": {name: [0, 20] for name in made.names}} if question == "pipeline" else {},
        "apps": {"a": app},
    }

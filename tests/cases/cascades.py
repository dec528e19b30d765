"""Cascades and trees whose steps have outcomes: one worked out by hand, and random ones with their figures."""

from __future__ import annotations

import random
from itertools import product

from cases.documents import Json, documents, load, promise, worker

RATE_QPS = 100.0


def cascade() -> Json:
    """A small model of 2 ms, sure in 7 queries of 10; the others go on to a large one, big (20 ms) or bigger (40 ms).

    Work per query: a .002, b .3 x .75 x .02, c .3 x .25 x .04 s. Quality .7 x .95 + .3 x .75 x .85 + .3 x .25 x .9 =
    .92375. Late beyond 25 ms are the queries that reach c, .075 of all.
    """
    paths = {"small=s:sure": 0.95, "small=s:unsure/large=b": 0.85, "small=s:unsure/large=c": 0.9}
    return documents(
        profile={
            "hardware": {"g": {"kind": "gpu"}},
            "tasks": {"rank": {}},
            "variants": {name: _variant("rank", 0.8, f"t-{name}") for name in "sbc"},
            "tables": {"t-s": _took(2), "t-b": _took(20), "t-c": _took(40)},
            "pipelines": {
                "cascade": {
                    "nodes": {
                        "small": {"task": "rank", "outcomes": {"share": {"sure": {"s": 0.7}, "unsure": {"s": 0.3}}}},
                        "large": {"task": "rank"},
                    },
                    "edges": [{"from": "small", "to": "large", "on": "unsure"}],
                    "quality": {"rule": "table", "paths": paths},
                }
            },
        },
        slo={
            "apps": {
                "shop": {
                    "pipeline": "cascade",
                    "latency": {"p99_ms": 60},
                    "quality": {"min": 0.92},
                    "rate_qps": RATE_QPS,
                }
            }
        },
        plan={
            "question": "cascade",
            "method": {"formulation": "llm-milp"},
            "requires": ["outcomes/1", "shares/1"],
            "workers": [
                worker(
                    "w-a", "g", None, 1, load("a", "shop", "s", node="small", outcomes={"sure": 0.7, "unsure": 0.3})
                ),
                worker("w-b", "g", None, 1, load("b", "shop", "b", node="large")),
                worker("w-c", "g", None, 1, load("c", "shop", "c", node="large")),
            ],
            "routing": {
                "shop": [
                    {"node": "small", "to": {"a": 1.0}},
                    {"node": "large", "after": {"small": "unsure"}, "to": {"b": 0.75, "c": 0.25}},
                ]
            },
            "dispatch": {"shop": {"rule": "shares/1"}},
            "promises": [
                promise("rate_qps", ">=", RATE_QPS, "fluid", "shop"),
                promise("quality", "=", 0.92375, "no-queueing", "shop"),
                promise("response_ms", "<=", 42.0, "no-queueing", "shop"),
            ],
        },
    )


def _variant(task: str, quality: float, table: str) -> Json:
    return {"task": task, "quality": {"value": quality}, "runs": [{"hardware": "g", "latency": table}]}


def _took(ms: float) -> Json:
    return {"quantity": "latency_ms", "mean": ms}


def random_tree(seed: int) -> tuple[Json, Json]:
    """A random tree with outcomes and a plan for it; and what it comes to, counted way by way.

    The figures: `jobs` per query and load, `quality` (the mean over queries).
    """
    return _Tree(random.Random(seed)).case()


class _Tree:
    """Steps n0, n1 ...; each but the first follows an earlier one, on an outcome of it or always."""

    def __init__(self, luck: random.Random) -> None:
        self.luck = luck
        self.count = luck.randint(2, 6)
        self.parent = {n: luck.randrange(n) for n in range(1, self.count)}
        self.outcomes = {n: [f"o{k}" for k in range(luck.choice((0, 2, 3)))] for n in range(self.count)}
        if not any(self.outcomes.values()):
            self.outcomes[0] = ["o0", "o1"]
        self.variants = {n: [f"v{n}-{k}" for k in range(luck.randint(1, 2))] for n in range(self.count)}
        self.on = {n: luck.choice([None, *self.outcomes[at]]) for n, at in self.parent.items()}
        self.fanout = {n: luck.choice((0.5, 1.0, 1.0, 2.0)) for n in self.parent}
        self.share = {v: self._shares(self.outcomes[n]) for n, named in self.variants.items() for v in named}
        self.split = {n: dict(zip(vs, self._parts(len(vs)), strict=True)) for n, vs in self.variants.items()}
        self.ms = {v: luck.randint(1, 40) for v in self.share}
        self.measured = {path: round(luck.uniform(0.3, 1.0), 3) for path in self._paths(0)}
        # Some steps are routed by what an answer before them came to, where both ways lead to them.
        self.asks = {n: luck.random() < 0.5 and bool(self.outcomes[at]) for n, at in self.parent.items()}

    def _parts(self, count: int) -> list[float]:
        parts = [self.luck.randint(1, 9) for _ in range(count)]
        return [part / sum(parts) for part in parts]

    def _shares(self, names: list[str]) -> dict[str, float]:
        return dict(zip(names, self._parts(len(names)), strict=True))

    def children(self, n: int, outcome: str) -> list[int]:
        return [child for child, at in self.parent.items() if at == n and self.on[child] in (None, outcome)]

    def _paths(self, n: int) -> list[str]:
        found = []
        for variant, outcome in product(self.variants[n], self.outcomes[n] or [""]):
            step = f"n{n}={variant}:{outcome}" if outcome else f"n{n}={variant}"
            below = self.children(n, outcome)
            found += [f"{step}/{rest}" for child in below for rest in self._paths(child)] if below else [step]
        return found

    def turned(self, n: int, outcome: str) -> dict[str, float]:
        """The split of a step that is routed by outcome: turned round after every other one."""
        split = self.split[n]
        if self.asks.get(n) and self.outcomes[self.parent[n]].index(outcome) % 2:
            return dict(zip(split, reversed(split.values()), strict=True))
        return split

    def ends(self, n: int) -> int:
        return max(1, *(sum(map(self.ends, self.children(n, outcome))) for outcome in self.outcomes[n] or [""]))

    def follow(self, n: int, came: str, jobs: float, path: str, figures: Json) -> float:
        """Count the jobs of the loads; the mean quality of what a query of this step comes to."""
        mean = 0.0
        for variant, part in self.turned(n, came).items():
            figures["jobs"][variant] = figures["jobs"].get(variant, 0.0) + jobs * part
            for outcome, share in (self.share[variant] or {"": 1.0}).items():
                here = f"{path}n{n}={variant}:{outcome}" if outcome else f"{path}n{n}={variant}"
                below = self.children(n, outcome)
                total = sum(map(self.ends, below))
                value = sum(
                    self.ends(child) / total
                    * self.follow(child, outcome, jobs * part * share * self.fanout[child], f"{here}/", figures)
                    for child in below
                ) if below else self.measured[here]  # fmt: skip
                mean += part * share * value
        return mean

    def case(self) -> tuple[Json, Json]:
        figures: Json = {"jobs": {}}
        figures["quality"] = self.follow(0, "", 1.0, "", figures)
        nodes = {f"n{n}": {"task": f"t{n}", **self._outcomes(n)} for n in range(self.count)}
        edges = [
            {"from": f"n{at}", "to": f"n{n}", "fanout": self.fanout[n], **({"on": self.on[n]} if self.on[n] else {})}
            for n, at in self.parent.items()
        ]
        loads = [(n, v) for n, vs in self.variants.items() for v in vs]
        workers = []
        for n, v in loads:
            count = max(1, round(RATE_QPS * figures["jobs"].get(v, 0.0) * self.ms[v] / 1000.0 / 0.4))
            stated = {"outcomes": self.share[v]} if self.share[v] else {}
            workers.append(worker(f"w-{v}", "g", None, count, load(v, "x", v, node=f"n{n}", **stated)))
        case = documents(
            profile={
                "hardware": {"g": {"kind": "gpu"}},
                "tasks": {f"t{n}": {} for n in range(self.count)},
                "variants": {v: _variant(f"t{n}", 0.5, f"t-{v}") for n, v in loads},
                "tables": {f"t-{v}": _took(ms) for v, ms in self.ms.items()},
                "pipelines": {
                    "tree": {"nodes": nodes, "edges": edges, "quality": {"rule": "table", "paths": self.measured}}
                },
            },
            slo={"apps": {"x": {"pipeline": "tree", "rate_qps": RATE_QPS}}},
            plan={
                "question": "cascade",
                "method": {"formulation": "llm-milp"},
                "requires": ["outcomes/1", "shares/1"],
                "workers": workers,
                "routing": {"x": [route for n in range(self.count) for route in self._routes(n)]},
                "dispatch": {"x": {"rule": "shares/1"}},
                "promises": [
                    promise("rate_qps", ">=", RATE_QPS, "fluid", "x"),
                    promise("quality", "=", figures["quality"], "no-queueing", "x"),
                ],
            },
        )
        return case, figures

    def _outcomes(self, n: int) -> Json:
        share = {o: {v: self.share[v][o] for v in self.variants[n]} for o in self.outcomes[n]}
        return {"outcomes": {"share": share}} if share else {}

    def _routes(self, n: int) -> list[Json]:
        if not self.asks.get(n):
            return [{"node": f"n{n}", "to": self.split[n]}]
        at = self.parent[n]
        return [
            {"node": f"n{n}", "after": {f"n{at}": outcome}, "to": self.turned(n, outcome)}
            for outcome in self.outcomes[at]
            if self.on[n] in (None, outcome)
        ]

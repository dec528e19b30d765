"""One truth of text: solver, verifier, simulator and executor see the same laws, machines, lengths, prices and links.

As `test_one_truth` does for tables: from each random profile a plan is written by hand, with every engine that the
question knows, and every reader is asked for its figures of that plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from hetplan.executor.background import Background
from hetplan.problems.llm.options import LlmOptions
from hetplan.problems.llm.request import TextRequest, read_text_request
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import InputHashes, Method, Plan
from hetplan.profiles.workers import Load, Serve, Worker
from hetplan.serving import tokens
from hetplan.serving.loads import worker_price
from hetplan.serving.tokens import Requests, TokenLaw, fleet_of_plan, law_of_engine
from hetplan.verifier import llm, resources
from hetplan.verifier.plan_index import gather

QUICK, PROFILES = 60, 1000
Json = dict[str, Any]
Figures = dict[tuple[Any, ...], float]


def documents_of(seed: int) -> tuple[Json, Json]:
    """Two runs on one hardware, machines of several GPUs, prices by the GPU, roles, links, caches, observed lengths."""
    random = Random(seed)
    apart = random.random() < 0.3
    hardware = {
        name: {"kind": "gpu", "tier": tier, **random.choice(({}, {"provides": {"gpu": random.choice((2, 4, 8))}}))}
        for name, tier in (("big", "edge"), ("small", "cloud" if apart else "edge"))
    }
    offers = {
        f"{name}-{number}": {
            "hardware": name,
            "price_per_hour": f"{random.randint(1, 9_000) / 1000}",
            **(random.choice(({}, {"per": "gpu"})) if "provides" in one else {}),
        }
        for name, one in hardware.items()
        for number in range(random.choice((1, 2)))
    }
    runs, engines = [], {}
    for name in hardware:
        for bits in random.sample((4, 8, 16), random.choice((1, 2))):
            role = {"big": "prefill", "small": "decode"}[name] if apart else "mixed"
            engines[f"{name}-{bits}"] = _engine(random, role, 2 if "provides" in hardware[name] else 1)
            runs.append({"hardware": name, "engine": f"{name}-{bits}", "at": {"bits": bits}})
    random.shuffle(runs)
    profile = {
        "format": "hetplan/profile/1.0", "tiers": ["edge", "cloud"], "hardware": hardware, "offers": offers,
        "links": [{"between": ["edge", "cloud"], "bandwidth_mbps": random.choice((1000, 100_000)), "latency_ms": 0}],
        "tasks": {"chat": {}}, "variants": {"m": {"task": "chat", "runs": runs}}, "engines": engines,
    }  # fmt: skip
    sizes = [
        [random.randint(2, 3000), random.randint(1, 400), random.randint(0, 1)] for _ in range(random.randint(1, 4))
    ]
    sizes = [list(size) for size in dict.fromkeys(map(tuple, sizes))]
    weight = [random.randint(1, 9) for _ in sizes]
    mix: Json = {"axes": ["output_tokens", "input_tokens", "cached_tokens"], "bins": [[o, i, c] for i, o, c in sizes]}
    if random.random() < 0.5:
        mix["share"] = [one / sum(weight) for one in weight]
    else:
        mix["observed"] = [mix["bins"][k] for k, n in enumerate(weight) for _ in range(n)]
    app = {
        "model": "m",
        "latency": {"ttft_p95_ms": 60_000},
        "network_ms_per_hop": random.choice((0, 7)),
        "rate_qps": random.randint(1, 90), "mix": mix,
    }  # fmt: skip
    return profile, {"format": "hetplan/slo/1.0", "apps": {"a": app}}


def _engine(random: Random, role: str, gpus: int) -> Json:
    pieces = [
        {"base_ms": random.uniform(1, 30), "token_ms": random.uniform(0, 0.1), "kv_token_ms": random.uniform(0, 1e-4),
         "sequence_ms": random.uniform(0, 0.1), "pair_ms": random.uniform(0, 1e-6)}
        for _ in range(random.choice((1, 2, 3)))
    ]  # fmt: skip
    experts, rate = random.choice(((0, 0), (random.uniform(1, 30), random.uniform(0.01, 0.1))))
    numbers = {
        "form": "iteration/2", **pieces[0], "tokens_from": random.choice((0, 90)), "experts_ms": experts,
        "experts_rate": rate, "chunk_ms": random.choice((0, 2)),
    }  # fmt: skip
    law: Json = random.choice(({"pieces": pieces}, {"law": numbers, "request_ms": random.choice((0, 30))}))
    return {
        **law, "kv_tokens": random.randint(20_000, 90_000), "most_tokens": random.choice((300, 2048, 8192)),
        "most_seqs": random.choice((16, 128)), "tensor": random.choice((1, gpus)), "role": role,
        "kv_bytes_per_token": 1e5, "reserves": random.random() < 0.3,
        "context_tokens": random.choice((None, 5000)),
    }  # fmt: skip


def planned(wish: TextRequest) -> Plan:
    """Two machines of each engine, under the cheapest offer, with half of its batch."""
    workers = [
        Worker(
            id=f"w{k}", hardware=kind.hardware, offer=wish.supply(kind).offers[0].id, count=2,
            loads=(
                Load(
                    id=f"w{k}.a", app="a", variant=kind.variant, at=dict(kind.choice.at), instances=kind.instances,
                    serve=Serve(max_batch=1, most_tokens=_chunk(kind.law), most_seqs=kind.law.most_seqs),
                ),
            ),
        )
        for k, kind in enumerate(wish.kinds)
    ]  # fmt: skip
    hashes = InputHashes(profile="", slo="")
    return Plan(question="llm", method=Method(formulation="by-hand"), inputs=hashes, workers=tuple(workers))


def _chunk(law: TokenLaw) -> int:
    return max(law.most_tokens // 2, law.most_seqs)


def of_law(name: str, law: TokenLaw, requests: Requests, weight: Any) -> Figures:
    """What a law says of requests: each alone, and what all take of each of its rows on the mean."""
    work = law.work(requests).means(weight)
    loads = np.stack([work.tokens, work.kv_tokens, work.sequences, work.pairs])[:, 0]
    low, high = law.batches
    experts = float((law.experts(low) / high).min()) if law.role != "prefill" else 0.0
    rows = [
        *((law.prices[:, 1:] @ loads + experts * work.sequences[0]) / 1000.0),
        work.room[0],
        work.tokens[0],
        work.sequences[0],
    ]
    alone = np.where(law.holds(requests), law.prefill_ms(requests), np.inf)
    return {("alone", name, r): float(ms) for r, ms in enumerate(alone)} | {
        ("row", name, k): float(load) for k, load in enumerate(rows)
    }


def by_solver(wish: TextRequest, plan: Plan) -> Figures:
    figures: Figures = {("link",): wish.link_ms_per_token, ("rate",): wish.rate_qps}
    weight = wish.demand.weight / wish.demand.weight.sum()
    for kind, worker in zip(wish.kinds, plan.workers, strict=True):
        law = kind.law.limited(_chunk(kind.law), kind.law.most_seqs)
        figures |= of_law(worker.id, law, wish.demand.requests, wish.demand.weight)
        figures["count", worker.id] = 2.0 * kind.instances
        figures["price", worker.id] = wish.supply(kind).offers[0].nanos
    sizes = zip(wish.demand.requests.input, wish.demand.requests.output, wish.demand.requests.cached, strict=True)
    for r, (size, share) in enumerate(zip(sizes, weight, strict=True)):
        figures |= {("tokens", r, k): float(n) for k, n in enumerate(size)} | {("share", r): float(share)}
    return figures


def by_simulator(plan: Plan, inputs: Inputs) -> Figures:
    fleet, app = fleet_of_plan(plan, inputs, "a"), inputs.slo.apps["a"]
    demand = tokens.demand_of(app.mix, app.arrivals, float(app.stated_qps))  # type: ignore[arg-type]
    figures: Figures = {("link",): fleet.link_ms_per_token, ("rate",): demand.rate_qps}
    for group, worker in zip(fleet.groups, plan.workers, strict=True):
        figures |= of_law(worker.id, group.law, demand.requests, demand.weight)
        figures["count", worker.id] = group.count
        figures["price", worker.id] = float(worker_price(inputs, worker) or 0)
    return figures


def by_executor(plan: Plan, inputs: Inputs) -> Figures:
    known, app = Background(inputs.profile, inputs.slo), inputs.slo.apps["a"]
    demand = tokens.demand_of(app.mix, app.arrivals, float(app.stated_qps))  # type: ignore[arg-type]
    figures: Figures = {("link",): known.link_ms_per_token(plan, "a")}
    for worker in plan.workers:
        (load,) = worker.loads
        engine = known.engine(plan, load, worker.hardware)
        assert engine is not None
        law = law_of_engine(engine).limited(load.serve.most_tokens or 0, load.serve.most_seqs or 0)
        # As the router gets it: by its state file.
        figures |= of_law(worker.id, TokenLaw.from_dict(law.as_dict()), demand.requests, demand.weight)
    return figures


def by_verifier(plan: Plan, inputs: Inputs) -> Figures:
    facts, figures = gather(plan, inputs), Figures()
    sizes, weights = llm.sizes_of(inputs.slo.apps["a"])
    for r, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        figures |= {("tokens", r, k): n for k, n in enumerate(size)} | {("share", r): weight / sum(weights)}
    for worker in plan.workers:
        (load,) = worker.loads
        seat = facts.seats[load.id]
        assert seat.run is not None
        seated = llm.Seated(worker, load, inputs.profile.engines[seat.run.engine or ""])
        figures |= {("row", worker.id, k): one for k, one in enumerate(llm.row_loads(seated, sizes, weights))}
        if seated.engine.role != "decode":
            figures |= {("alone", worker.id, r): llm.prefill_ms(seated, size) for r, size in enumerate(sizes)}
        figures["count", worker.id] = seated.instances
        figures["price", worker.id] = float(resources.machine_nanos(facts, worker, [seat]) or 0)
    return figures


def differences(seed: int) -> Iterator[str]:
    """What any two readers say differently of a profile."""
    inputs = load_inputs(*documents_of(seed))
    wish = read_text_request(inputs, LlmOptions())
    plan = planned(wish)
    said: dict[tuple[Any, ...], tuple[str, float]] = {}
    for name, figures in {
        "solver": by_solver(wish, plan), "verifier": by_verifier(plan, inputs),
        "simulator": by_simulator(plan, inputs), "executor": by_executor(plan, inputs),
    }.items():  # fmt: skip
        for key, value in figures.items():
            other, before = said.setdefault(key, (name, value))
            if value != pytest.approx(before, rel=1e-9):
                yield f"profile {seed}: {key}: {other} says {before:.9g}, {name} says {value:.9g}"


@pytest.mark.parametrize(
    "seeds", [range(QUICK), pytest.param(range(QUICK, PROFILES), marks=pytest.mark.longest)], ids=str
)
def test_a_thousand_profiles_of_text_are_read_alike(seeds: range) -> None:
    found = [text for seed in seeds for text in differences(seed)]
    assert not found, "\n".join(found[:20])


FAULTS: dict[str, tuple[str, Any]] = {
    "simulator: the first run on the hardware": (
        "hetplan.serving.tokens.run_of",
        lambda profile, load, hardware: next(
            run for run in profile.variants[load.variant].runs if run.hardware == hardware
        ),
    ),
    "simulator: the engine's own batch": ("hetplan.serving.tokens.TokenLaw.limited", lambda law, *_: law),
    "verifier: a cache that saves nothing": (
        "hetplan.verifier.llm._takes", lambda seat, size, own=llm._takes: own(seat, (size[0], size[1], 0)),
    ),
    "verifier: lengths in the order of the file": (
        "hetplan.verifier.llm.sizes_of",
        lambda app: ([tuple(map(round, row)) for row in app.mix.bins], [1.0] * len(app.mix.bins)),
    ),
    "verifier: one GPU for the machine": (
        "hetplan.verifier.resources.machine_nanos",
        lambda facts, worker, seats: facts.inputs.profile.offers[worker.offer].price_per_hour,
    ),
    "executor: no link": ("hetplan.executor.background.link_ms_per_token", lambda *_: 0.0),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_planted_in_a_reader_of_text_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    assert any(next(differences(seed), None) for seed in range(QUICK))

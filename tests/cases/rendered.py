"""Random plans with their files and site.toml, for what is rendered of them."""

from __future__ import annotations

import random
from typing import Any

from hetplan.executor.render.groups import Fleet
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import InputHashes, Method, Period, Plan
from hetplan.profiles.plan_dispatch_rules import RoundRobinDispatch
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.plan_sections import Route, SharesDispatch, Valid
from hetplan.profiles.workers import Load, Serve, Worker

GPUS = ("t4", "l4", "a10g", "l40s", "a100-80", "h100", "h200")
DAY_S = 86_400.0


def random_case(
    seed: int, *, periods: bool = False, ids: tuple[str, ...] = (), machines: dict[str, int] | None = None,
    text: bool = False,
) -> tuple[Plan, Inputs, dict[str, Any]]:  # fmt: skip
    """A plan of several applications, models and machine types, what it was made from, and site.toml as data.

    With `text` its models make text, in turns over their replicas.
    """
    rng = random.Random(seed)
    kinds = rng.sample(GPUS, rng.randint(1, 3)) + ["cpu8"] * rng.randint(0, 1)
    kinds = list(machines) if machines else [kind for kind in kinds if not text or kind != "cpu8"]
    names = list(ids) or [f"app{n}" for n in range(rng.randint(1, 3))]
    hardware = {
        kind: {"kind": "cpu", "provides": {"cpu_cores": 8, "mem_gib": 32}}
        if kind == "cpu8"
        else {
            "kind": "gpu",
            "provides": {
                "gpu": (machines or {}).get(kind) or rng.choice((1, 1, 2, 4, 8)),
                "cpu_cores": 32,
                "mem_gib": 128,
            },
        }
        for kind in kinds
    }
    offers = {
        kind + how: {"hardware": kind, "price_per_hour": f"{rng.randint(10, 999) / 100}",
                          **({"interruptions_per_hour": 0.1} if how else {})}
        for kind in kinds for how in ("", "-spot")
    }  # fmt: skip
    tables = {f"t-{kind}": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [5 + n, 20 + n]}
              for n, kind in enumerate(kinds)}  # fmt: skip
    models = [f"model.{name}"[:60] for name in names]
    engines = {f"e-{kind}": {"pieces": [{"base_ms": 10 + n, "token_ms": 0.05}], "kv_tokens": 100_000, "most_seqs": 64}
               for n, kind in enumerate(kinds)}  # fmt: skip
    runs = [{"hardware": kind, **({"engine": f"e-{kind}"} if text else {"latency": f"t-{kind}"})} for kind in kinds]
    variants = {model: {"task": "t", "runs": runs} for model in models}
    profile = {"format": "hetplan/profile/1.0", "hardware": hardware, "offers": offers, "tasks": {"t": {}},
               "variants": variants, **({"engines": engines} if text else {"tables": tables})}  # fmt: skip
    mix = {"axes": ["input_tokens", "output_tokens"], "bins": [[100, 20], [800, 200]], "share": [0.5, 0.5]}
    limit = {"ttft_p95_ms": 900} if text else {"p99_ms": 400}
    slo = {"format": "hetplan/slo/1.0", "apps": {
        name: {"model": model, "latency": limit,
               "rate_qps": 10.0, **({"mix": mix} if text else {})}
        for name, model in zip(names, models, strict=True)}}  # fmt: skip
    spans = [Period(id="p0")]
    if periods:
        spans = [Period(id=f"p{n}", start_s=n * DAY_S / 4, end_s=(n + 1) * DAY_S / 4) for n in range(4)]
    workers, routing = [], {}
    for name, model in zip(names, models, strict=True):
        chosen = rng.sample(sorted(offers), rng.randint(1, min(3, len(offers))))
        to = {}
        for offer in chosen:
            load, batch = f"{name}-{offer}"[:60], rng.choice((1, 8))
            each = rng.choice((1, hardware[offers[offer]["hardware"]]["provides"].get("gpu", 2)))  # type: ignore[index]
            serve = Serve(max_batch=batch, **({"most_seqs": 32, "most_tokens": 1024} if text else {}))
            to[load] = 1.0 / len(chosen)
            workers += [
                Worker(id=f"w-{load}-{n}"[:63], period=span.id, hardware=str(offers[offer]["hardware"]), offer=offer,
                       count=rng.randint(1, 5), queue="per-load", loads=(
                    Load(id=load, app=name, variant=model, at={}, instances=int(each), serve=serve),))
                for n, span in enumerate(spans)
            ]  # fmt: skip
        routing[name] = (Route(to=to),)
    rule = RoundRobinDispatch() if text else SharesDispatch()
    valid = Valid(rate_qps=dict.fromkeys(names, (0.0, 9.0)))
    made = Plan(
        question="llm" if text else "variants", method=Method(formulation="by hand"), periods=tuple(spans),
        workers=tuple(workers), inputs=InputHashes(profile="sha256:01", slo="sha256:02"), routing=routing,
        dispatch=dict.fromkeys(names, rule), valid=valid,
    )  # fmt: skip
    plan = with_digest(made)
    site = {
        "name": "shop", "cloud": "gke", "gateway": "gate", "namespace": "serving",
        "models": {model: {"image": f"registry.example/m{n}:1", "command": ["/opt/serve", "--port", "{port}"],
                           "args": ["--batch={max_batch}"], "model_uri": "hf://org/model", "deployment": "m.a:app"}
                   for n, model in enumerate(models)},
        "machines": {kind: {"selector": {"pool": kind}, "addresses": [f"10.{n}.0.{1 + i}" for i in range(60)]}
                     for n, kind in enumerate(kinds)},
    }  # fmt: skip
    return plan, load_inputs(profile, slo), site


def told(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """The groups as `read` gives them back."""
    return {
        one.name: {"name": one.name, "app": one.app, "model": one.model, "hardware": one.hardware,
                   "replicas": one.count, "gpus": one.gpus, "concurrency": one.concurrency}
        for one in fleet.groups
    }  # fmt: skip

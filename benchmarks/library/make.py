"""The instances from their seeds: what is written into the folders beside this file, and what is known of each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
from cases.pipelines import diamond, random_pipeline
from cases.policy import files as policy_files
from cases.random_pools import random_pool
from cases.random_variants import random_snapshot

from benchmarks.library.__main__ import HERE, INDEX, ROOT, asked, command_of, found_of
from hetplan_papers.datasets import infaas_generator, loki_by_hand, loki_generator
from tests.written_profile import written_profile

Json = dict[str, Any]
PLANNED = {"sizing": "fluid"}
BIG = 120_000
"""Bytes; a larger instance is no part of the library."""


def made() -> Iterator[tuple[Json, tuple[Json, ...]]]:
    """Instances with their documents; examples that are shipped have none."""
    for name, folder, files in (
        ("pool-shop", "pool", {}),
        ("pool-tokens", "pool", {"profile": "llm-profile.json", "slo": "llm-slo.json"}),
        ("pipeline-cameras", "pipeline", {}),
        ("pipeline-posts", "pipeline", {"profile": "social-profile.json", "slo": "social-slo.json"}),
        ("variants-faces", "variants", {}),
        ("llm-chat", "llm", {}),
        ("llm-apart", "llm-disaggregated", {}),
        ("fleet-day", "fleet", {}),
        ("packed-queries", "compound", {"profile": "candidates-profile.json", "slo": "candidates-slo.json"}),
    ):
        question = {"packed": "compound"}.get(name.split("-")[0], name.split("-")[0])
        options = {} if question == "compound" else PLANNED
        yield _one(name, question, "shipped example", options, folder=f"examples/{folder}", **files), ()
    for number in range(18):
        types, classes, machines = 2 + number % 5, 2 + number % 7, (4, 9, 20)[number % 3]
        seed, rate = 100 + number, number % 2 == 1
        drawn = random_pool(seed, types=types, classes=classes, machines=machines, rate=rate)
        yield _one(f"pool-{number + 1:02}", "pool", f"seed {seed}", PLANNED), drawn
    by_hand = [loki_by_hand.tiny(0.5, demand) for demand in (20, 40, 60)]
    by_hand += [loki_by_hand.two_gpus(60), loki_by_hand.two_sinks(40), loki_by_hand.two_pipelines(4)]
    by_hand += [loki_by_hand.depth_3(demand) for demand in (100, 110, 150)] + [diamond(60, 400)]
    for number, files in enumerate(by_hand):
        yield _one(f"pipeline-{number + 1:02}", "pipeline", "by hand", PLANNED), files
    for number, seed in enumerate((3, 7, 11, 19, 23)):
        drawn = random_pipeline(seed, gpus=1 + number % 2)
        yield _one(f"pipeline-{number + 11:02}", "pipeline", f"seed {seed}", PLANNED), drawn
    for number, tree in enumerate((((1,), ()), ((1, 2), (), ()))):
        drawn = loki_generator.inputs(tree, servers=12, utilisation=1.2, seed=number + 1, variants=3)
        yield _one(f"pipeline-{number + 16:02}", "pipeline", f"tree, seed {number + 1}", PLANNED), drawn
    for number, count in enumerate((2, 3, 4, 5, 6, 8)):
        drawn = infaas_generator.inputs(count, seed=number + 1)
        yield _one(f"variants-{number + 1:02}", "variants", f"seed {number + 1}", PLANNED), drawn
    for number, seed in enumerate((1, 2, 5, 8)):
        yield _one(f"variants-{number + 7:02}", "variants", f"snapshot, seed {seed}", PLANNED), random_snapshot(seed)
    for number, (rate, slo_ms, workers) in enumerate(((40, 60, 1), (100, 100, 4), (160, 80, 4), (300, 50, 8))):
        drawn = policy_files(rate_qps=float(rate), slo_ms=float(slo_ms), workers=(workers, workers))
        yield _one(f"policy-{number + 1:02}", "policy", "three models", {}), drawn
    for number, rate in enumerate((2.0, 10.0, 40.0)):
        profile, slo = (
            json.loads((ROOT / "examples" / "llm" / f"{name}.json").read_text()) for name in ("profile", "slo")
        )
        next(iter(slo["apps"].values()))["rate_qps"] = rate
        yield _one(f"llm-{number + 1:02}", "llm", f"the example at {rate:g}/s", PLANNED), (profile, slo)
    for number, count in enumerate((4, 8, 16, 32)):
        yield _one(f"packed-{number + 1:02}", "compound", f"seed {number + 1}", {}), _packed(count, number + 1)
    for number, (source, drawn) in enumerate(_fleets()):
        yield _one(f"fleet-{number + 1:02}", "fleet", f"the example: {source}", PLANNED), drawn


def _fleets() -> Iterator[tuple[str, tuple[Json, Json]]]:
    """Parts of the shipped fleet: fewer applications, hours and failures; the same machines, for a month."""
    profile, slo = (
        json.loads((ROOT / "examples" / "fleet" / f"{name}.json").read_text()) for name in ("profile", "slo")
    )
    peak, day = (9,), (0, 6, 9, 18)
    lost = {"survive": {"zones": 1, "spot": "all", "serve": 0.9}}
    ranking, photos, text = ({name: slo["apps"][name]} for name in ("ranking", "photos", "assistant"))

    def part(apps: Json, hours: tuple[int, ...], limits: Json) -> tuple[Json, Json]:
        wanted = {
            name: {**app, "rate_qps": {"series": [app["rate_qps"]["series"][hour] for hour in hours]}}
            for name, app in apps.items()
        }
        horizon = {"period_s": 86_400 // len(hours), "periods": len(hours), "repeats": 30}
        return profile, {**slo, "limits": limits, "horizon": horizon, "apps": wanted}

    def rated(rate: float) -> Json:
        return {**photos["photos"], "rate_qps": {"series": [rate] * 24}}

    yield "one application, one period", part(ranking, peak, {})
    yield "one application, a zone or all spot may fail", part(ranking, peak, lost)
    yield "three applications, a zone or all spot may fail", part({**ranking, **photos, **text}, peak, lost)
    yield "text, four periods, half on spot", part(text, day, {**lost, "spot": {"max_share": 0.5}})
    yield "two applications, four periods, failures", part({**ranking, **photos}, day, lost)
    yield "three applications, four periods", part({**ranking, **photos, **text}, day, {})
    yield "three on shared machines", part({f"photos-{rate}": rated(float(rate)) for rate in (120, 90, 60)}, peak, {})
    yield "too little money", part(ranking, peak, {"cost_per_hour": 0.1})


def _one(name: str, question: str, source: str, options: Json, **more: Any) -> Json:
    return {"name": name, "question": question, "source": source, "options": dict(options), **more}


def _packed(count: int, seed: int) -> tuple[Json, Json]:
    """Queries with three candidate plans each, for the same machines and links: which of them are served."""
    rng = np.random.default_rng(seed)
    apps = {
        f"q{number:02}": {
            "candidates": [
                {"demand": {"gpu": round(float(rng.uniform(0.1, 1)), 3), "mbps": round(float(rng.uniform(1, 20)), 2)}}
                for _ in range(3)
            ]
        }
        for number in range(count)
    }
    slo = {
        "format": "hetplan/slo/1.0",
        "objective": ["max served"],
        "limits": {"capacity": {"gpu": round(0.3 * count, 2), "mbps": round(5.0 * count, 2)}},
        "apps": apps,
    }
    return {"format": "hetplan/profile/1.0"}, slo


def make() -> None:
    """Write every folder and the index; an instance that cannot be asked, or is too large, is left out by name."""
    instances = []
    for instance, documents in made():
        folder = HERE / instance["name"]
        if documents:
            instance["folder"] = f"benchmarks/library/{instance['name']}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name, document in zip(("profile", "slo", "state"), documents, strict=False):
                if document:
                    if name == "profile" and "variants" in document:
                        document = written_profile(document)
                    (folder / f"{name}.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")
            instance["state"] = (folder / "state.json").exists()
        try:
            instance["found"] = found_of(asked(instance, require_proof=True))
        except Exception as error:
            print(f"{instance['name']} is left out: {type(error).__name__}: {str(error)[:200]}")
            shutil.rmtree(folder, ignore_errors=True)
            continue
        if documents and sum(file.stat().st_size for file in folder.iterdir()) > BIG:
            print(f"{instance['name']} is left out: too large")
            shutil.rmtree(folder)
            continue
        instance["command"] = command_of(instance)
        instances.append(instance)
        print(instance["name"], instance["found"])
    INDEX.write_text(json.dumps({"instances": instances}, indent=1) + "\n")

"""What engines reach of cards, fitted to the laws of the catalogue: `hetplan/profiles/efficiencies.csv`, written anew.

    python -m benchmarks.llm_efficiencies

Of each GPU, engine and precision the numbers are fitted to all its laws from grids. `error` is how far laws of models
are off that were left out of the fit. Numbers that few laws show are drawn to the usual ones.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares

from hetplan.profiles.cards import cards
from hetplan.profiles.catalogue import Known, known_laws
from hetplan.profiles.engines import IterationLaw
from hetplan.profiles.estimated_laws import (
    DEFAULTS,
    FILE,
    SIBLING_ERROR,
    Efficiencies,
    Way,
    grid_of,
    law_by_formula,
    law_of_sibling,
    reached,
)
from hetplan.profiles.language_models import models
from hetplan.profiles.law_review import iteration_ms

NAMES = [*Efficiencies.__dataclass_fields__]
USUAL = np.log([getattr(DEFAULTS, name) for name in NAMES])
DRAWN = 1.0
"""How much the usual numbers count beside a point of a law."""
POINTS = grid_of(400_000)


def times(known: Known) -> np.ndarray:
    return np.array([iteration_ms(known.law, *at) for at in POINTS])


def by_formula(known: Known, used: Efficiencies) -> np.ndarray:
    of = known.identity
    law = law_by_formula(models()[of["model"]], of["precision"], cards()[of["gpu"]], int(of["gpus"]), used)
    a = {**law}
    n, s, v, q = np.array(POINTS).T
    ms = a["base_ms"] + a["chunk_ms"] * (n > s) - a["experts_ms"] * np.expm1(-a["experts_rate"] * n)
    return ms + a["token_ms"] * np.maximum(0.0, n - a["tokens_from"]) + a["kv_token_ms"] * v + a["pair_ms"] * q


def fitted(laws: Sequence[Known]) -> Efficiencies:
    true = [np.log(times(one)) for one in laws]

    def off(x: np.ndarray) -> np.ndarray:
        used = Efficiencies(**dict(zip(NAMES, np.exp(x).tolist(), strict=True)))
        parts = [np.log(by_formula(one, used)) - log for one, log in zip(laws, true, strict=True)]
        return np.concatenate([*parts, DRAWN * np.sqrt(len(laws)) * (x - USUAL)])

    found = least_squares(off, USUAL, loss="soft_l1", f_scale=0.2).x
    return Efficiencies(**{name: float(f"{v:.4g}") for name, v in zip(NAMES, np.exp(found).tolist(), strict=True)})


def errors(laws: Sequence[Known], used: Efficiencies) -> list[float]:
    return [float(np.abs(by_formula(one, used) / times(one) - 1.0).mean()) for one in laws]


def main() -> None:
    """Write the file."""
    groups: dict[tuple[str, str, str], list[Known]] = defaultdict(list)
    for one in known_laws(("grid",)):
        if one.identity["parallel"] != "dp+ep":
            groups[one.identity["gpu"], one.identity["engine"], one.identity["precision"]].append(one)
    rows, seen = [], defaultdict(list)
    for (gpu, engine, precision), laws in sorted(groups.items()):
        unseen = []
        names = sorted({one.identity["model"] for one in laws})
        for model in names:
            rest = [one for one in laws if one.identity["model"] != model]
            mine = [one for one in laws if one.identity["model"] == model]
            held = errors(mine, fitted(rest) if rest else DEFAULTS)
            unseen += held
            for one, error in zip(mine, held, strict=True):
                seen[gpu, engine, bool(models()[one.identity["model"]].experts)].append(error)
        used = fitted(laws)
        error = round(float(np.mean(unseen)), 4)
        rows.append(
            {"gpu": gpu, "engine": engine, "precision": precision, **vars(used), "error": error, "laws": len(laws)}
        )
        print(
            gpu,
            engine,
            precision,
            f"{len(laws)} laws of {len(names)} models, unseen {error:.3f}, fit {np.mean(errors(laws, used)):.3f}",
        )
    with FILE.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    reached.cache_clear()
    for key in sorted(seen):
        print(*key, f"{np.mean(seen[key]):.3f} ({len(seen[key])})")
    for experts in (False, True):
        print(
            "experts" if experts else "dense",
            f"{np.mean([e for k, v in seen.items() if k[2] == experts for e in v]):.3f}",
        )
    siblings = defaultdict(list)
    for one in known_laws(("grid",)):
        of = one.identity
        way = Way(of["model"], of["precision"], of["gpu"], int(of["gpus"]), of["parallel"], of["engine"])
        found = law_of_sibling(way, models()[way.model])
        if found is not None:
            law = IterationLaw.model_validate(
                {"form": "iteration/2", **found[0], "tokens_from": int(found[0]["tokens_from"])}
            )
            off = [abs(iteration_ms(law, *at) / iteration_ms(one.law, *at) - 1.0) for at in POINTS]
            siblings[way.gpu, way.engine].append(float(np.mean(off)))
    for key in sorted(siblings):
        print("sibling", *key, f"{np.mean(siblings[key]):.3f} worst {max(siblings[key]):.3f} ({len(siblings[key])})")
    every = [e for v in siblings.values() for e in v]
    print("sibling", f"{np.mean(every):.3f} median {np.median(every):.3f}; stated {SIBLING_ERROR}")


if __name__ == "__main__":
    main()

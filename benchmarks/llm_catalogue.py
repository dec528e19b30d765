"""The laws that ship with the package (`hetplan list laws`): fitted to grids and to sweeps of the data, written anew.

    HETPLAN_DATA=../shared/data python -m benchmarks.llm_catalogue

Grids are fitted here; sweeps are fitted in the data, and their numbers taken over.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from hetplan.profiles.catalogue import COLUMNS, FILE, NUMBERS
from hetplan.profiles.engine_law import fit_numbers
from hetplan.profiles.imports.aiconfigurator import REALITY
from tests.cases.grids import DENSE, IDENTITY, grids, least, read

UNSEEN = 0.065
"""How far a law from a sweep is from lengths that the sweep did not have, on the mean of 59."""
DATE = "2026-11-28"


def rows() -> Iterator[dict[str, Any]]:
    """Every law, with its identity and where it comes from."""
    for key, iterations in grids().items():
        law = fit_numbers(iterations, least=least()[key], experts=key[0] not in DENSE).document
        mean, worst = law["fit_error"]  # type: ignore[misc]
        source = f"aiconfigurator 0.12.0, {key[5]} {key[6]} (Apache-2.0)"
        said = {"basis": "grid", "error_mean": REALITY[key[5]], "fit_mean": mean, "fit_worst": worst, "source": source}
        yield {**dict(zip(IDENTITY, key, strict=True)), **law, **said, "date": DATE}
    for _, row in read("laws_measured"):
        if not float(row["base_ms"]):  # a sweep without few requests at a time: nothing says what one takes
            continue
        identity = {name: row[name] for name in ("model", "gpu", "precision", "engine", "version")}
        expert = int(row["expert"])
        identity |= {"gpus": row["tensor"], "parallel": "ep" if expert > 1 else "tp"}
        fits = {"fit_mean": row["error_mean"], "fit_worst": row["error_worst"]}
        source = f"{row['runs']} runs of {row['source']} (Apache-2.0)"
        error = max(UNSEEN, float(row["error_mean"]))
        said = {"basis": "measured", "error_mean": error, "source": source, "date": DATE}
        yield {**identity, **{name: row.get(name, 0) for name in NUMBERS}, **fits, **said}


def main() -> None:
    """Write the file."""
    with FILE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval=0, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows(), key=lambda row: [str(row[name]) for name in (*IDENTITY, "basis")]))


if __name__ == "__main__":
    main()

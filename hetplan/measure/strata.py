"""Samples sorted into strata of alike ones by their features (K-means), small strata joined to their nearest."""

from __future__ import annotations

import csv
import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError

__all__ = ["Strata", "read_features", "stratify"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Strata:
    """Which stratum each sample belongs to, the share of each, and what was joined."""

    of: NDArray[np.int64]
    share: Vector
    joined: tuple[str, ...] = ()

    def order(self, seed: int = 0) -> NDArray[np.int64]:
        """Samples in the order of drawing: from the strata in turn, shuffled within; the same for every plan."""
        rng = np.random.default_rng(seed)
        queues = [rng.permutation(np.flatnonzero(self.of == k)) for k in range(self.share.size)]
        longest = max((queue.size for queue in queues), default=0)
        drawn = [queue[turn] for turn in range(longest) for queue in queues if turn < queue.size]
        return np.array(drawn, dtype=np.int64)


def read_features(path: str | os.PathLike[str]) -> Vector:
    """The features of a CSV file with a header: a row of numbers per sample, which are asked for by their place.

    A column ``id`` may name them and is passed over.
    """
    file = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = f"the feature file cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputError.one(file=file, why=why, remedy="Name a CSV file, relative to the profile.") from None
    header, *rows = [row for row in csv.reader(text.splitlines()) if row] or [[]]
    columns = [n for n, name in enumerate(header) if name.strip().lower() != "id"]
    if not columns or not rows:
        why = "a header and a row of numbers per sample"
        raise InputError.one(file=file, why=why, remedy="Write for instance: id,brightness,motion.")
    values = np.empty((len(rows), len(columns)))
    for number, row in enumerate(rows):
        for place, column in enumerate(columns):
            try:
                values[number, place] = float(row[column])
            except (IndexError, ValueError):
                values[number, place] = math.nan
        if not np.isfinite(values[number]).all() or len(row) != len(header):
            raise InputError.one(
                file=file, path=f"row {number + 2}", value=",".join(row)[:40],
                why=f"a finite number in each of {len(columns)} columns", remedy="Mend the row, or leave it out.",
            )  # fmt: skip
    return values


def stratify(features: Vector, count: int, *, seed: int = 0, least: int = 2) -> Strata:
    """Sort samples (rows of features) into at most `count` strata; those of fewer than `least` samples are joined.

    >>> strata = stratify(np.array([[0.0], [0.1], [9.0], [9.1], [9.2]]), 2)
    >>> sorted(strata.share.tolist()), bool(strata.of[0] == strata.of[1])
    ([0.4, 0.6], True)
    """
    from scipy.cluster.vq import kmeans2

    rows = np.asarray(features, dtype=float).reshape(len(features), -1)
    spread = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    count = max(1, min(count, len(np.unique(scaled, axis=0))))
    centres, of = kmeans2(scaled, count, minit="++", rng=np.random.default_rng(seed))
    of = of.astype(np.int64)
    joined = []
    while True:
        names, sizes = np.unique(of, return_counts=True)
        if names.size < 2 or sizes.min() >= least:
            break
        small = names[sizes.argmin()]
        others = names[names != small]
        nearest = others[np.linalg.norm(centres[others] - centres[small], axis=1).argmin()]
        of[of == small] = nearest
        joined.append(f"stratum {small} with {sizes.min()} samples is joined to stratum {nearest}")
    names, of = np.unique(of, return_inverse=True)
    share = np.bincount(of, minlength=names.size) / len(of)
    return Strata(of.astype(np.int64), share, tuple(joined))

"""Samples sorted into strata of alike ones by their features (K-means), small strata joined to their nearest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Strata", "stratify"]

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

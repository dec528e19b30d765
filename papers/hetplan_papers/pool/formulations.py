"""The formulations of pools, as the entry points `hetplan.formulations` name them."""

from __future__ import annotations

from functools import partial

from hetplan.extend import Formulation, search_pools
from hetplan_papers.pool.enumeration import enumerate_rates
from hetplan_papers.pool.homogeneous import rent_base_only
from hetplan_papers.pool.options import (
    EnumerateOptions,
    ExhaustiveOptions,
    HomogeneousOptions,
    RerankOptions,
    SearchOptions,
)
from hetplan_papers.pool.reranked import rerank_by_rate

__all__ = [
    "ANNEALING",
    "BAYESIAN",
    "ENUMERATE",
    "EXHAUSTIVE",
    "GENETIC",
    "HOMOGENEOUS",
    "RANDOM",
    "RERANK",
]

RERANK = Formulation(RerankOptions, rerank_by_rate, like="kairos")
ENUMERATE = Formulation(EnumerateOptions, enumerate_rates, like="kairos")
HOMOGENEOUS = Formulation(HomogeneousOptions, rent_base_only, like="kairos")
EXHAUSTIVE = Formulation(ExhaustiveOptions, partial(search_pools, solver="exhaustive"))
RANDOM = Formulation(SearchOptions, partial(search_pools, solver="random-order"))
GENETIC = Formulation(SearchOptions, partial(search_pools, solver="genetic"))
ANNEALING = Formulation(SearchOptions, partial(search_pools, solver="annealing"))
BAYESIAN = Formulation(SearchOptions, partial(search_pools, solver="gaussian-process"), like="ribbon")

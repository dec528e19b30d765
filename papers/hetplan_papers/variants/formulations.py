"""The formulations of variants, as the entry points `hetplan.formulations` name them."""

from __future__ import annotations

from hetplan.extend import Formulation
from hetplan_papers.variants.brute_force import try_all_counts
from hetplan_papers.variants.options import BruteForceOptions, GreedyOptions, RuleOptions
from hetplan_papers.variants.rules import keep_running, replicate_only, scale_greedily

__all__ = ["BRUTE_FORCE", "GREEDY", "REPLICATE_ONLY", "STATIC"]

GREEDY = Formulation(GreedyOptions, scale_greedily, like="infaas-greedy")
REPLICATE_ONLY = Formulation(RuleOptions, replicate_only, like="sagemaker", partial=True)
STATIC = Formulation(RuleOptions, keep_running, like="clipper", partial=True)
BRUTE_FORCE = Formulation(BruteForceOptions, try_all_counts)

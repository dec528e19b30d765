"""The formulations of policies, as the entry points `hetplan.formulations` name them."""

from __future__ import annotations

from functools import partial

from hetplan.extend import Formulation, plan_rule
from hetplan_papers.policy.options import RuleOptions, SingleOptions
from hetplan_papers.policy.rules import one_model, serve_greedily, switch_by_percentile, switch_by_throughput

__all__ = ["GREEDY", "JELLYFISH", "MODELSWITCHING", "SINGLE"]

JELLYFISH = Formulation(RuleOptions, partial(plan_rule, rule=switch_by_throughput, one_queue=True), like="jellyfish+")
MODELSWITCHING = Formulation(
    RuleOptions, partial(plan_rule, rule=switch_by_percentile, one_queue=True), like="modelswitching"
)
GREEDY = Formulation(RuleOptions, partial(plan_rule, rule=serve_greedily))
SINGLE = Formulation(SingleOptions, partial(plan_rule, rule=one_model))

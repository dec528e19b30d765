"""The formulations of pipelines, as the entry points `hetplan.formulations` name them."""

from __future__ import annotations

from hetplan.extend import Formulation
from hetplan_papers.pipeline.inferline import fewest_servers, with_fixed_variants
from hetplan_papers.pipeline.options import InferLineOptions, ProteusOptions
from hetplan_papers.pipeline.proteus import plan_each_step, with_own_batches

__all__ = ["INFERLINE", "PROTEUS"]

INFERLINE = Formulation(InferLineOptions, fewest_servers, like="inferline", narrow=with_fixed_variants)
PROTEUS = Formulation(ProteusOptions, plan_each_step, like="proteus", partial=True, narrow=with_own_batches)

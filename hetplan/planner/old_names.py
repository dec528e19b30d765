"""What became of options and formulations that are not taken any more: the new name, or where the same is said."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["OLD_FORMULATIONS", "OLD_OPTIONS", "OLD_SIZINGS"]

CHOSEN = "Leave it out: hetplan chooses it."

OLD_OPTIONS: Mapping[str, str] = {
    "size": "Write sizing: fluid (was planned), formula (was estimated) or simulation (was auto, simulated).",
    "among": CHOSEN,
    "ewma_com": CHOSEN,
    "integers": CHOSEN,
    "levels": CHOSEN,
    "multibatch": CHOSEN,
    "passes": CHOSEN,
    "clamp": CHOSEN,
    "min_gap": CHOSEN,
    "monotone": CHOSEN,
    "simulate": "Write sizing: fluid for a plan without simulation.",
    "workers": "Plan each application with its own limits.instances.",
    "prefixes": CHOSEN,
    "drift": CHOSEN,
    "level": CHOSEN,
    "largest": "Limit the machines in the SLO: limits.instances.",
    "programs": CHOSEN,
    "recipes": CHOSEN,
    "rounds": CHOSEN,
    "sizes": CHOSEN,
    "deadline_s": "Write it in the SLO: apps.APP.deadline_s.",
    "early": "Write early_stop.",
    "evaluations": "Write max_simulations.",
    "simulations": "Write max_simulations.",
    "exhausted": "Write packing: greedy-stop.",
    "norm": "Write packing: greedy-sum, greedy-norm, greedy-max or greedy-l2.",
    "parallel": "Write --jobs N, or jobs=N in Python.",
    "gpu_s": "Write measure_s.",
    "levers": "Write savings.",
    "n_max": "Write samples_max.",
    "n_min": "Write samples_min.",
    "points": "Write front_points.",
    "machines": "Write share_machines: true or false.",
    "law_error": "Write robust.law: false in the SLO.",
    "mean_tpot": "Write margins: none.",
    "rate_headroom": "Write margins: all, laws or none.",
    "requests": "Write queries.",
    "sacrifice": "Write allow_late.",
    "share": "Write share_machines.",
    "samples": "Write samples_min.",
    "steps": "Write max_measurements.",
    "latency_stat": "Write statistic.",
    "quantile": "Write statistic.",
    "percentile": "Write statistic.",
    "violation_tolerance": "Write allow_late.",
    "counts": "Write limits.instances in the SLO: the same least and most of every machine type.",
    "dispatch": "Write apps.APP.dispatch in the SLO: earliest or threshold.",
    "prune_sub": "Write prune: subsets.",
    "loading": "State change.load_weight_per_s in the SLO, or name formulation infaas.",
    "slack_mode": "Write change.slack or change.slack_qps in the SLO.",
    "violators": "Name formulation infaas, which counts them.",
    "penalty": "Write matching_cost.",
    "noise": "Write service_times.",
    "eps": "Write allow_late.",
    "variants": "Write models: all or top.",
    "step1": "Name formulation loki, which has it.",
    "rule": "Write it in the SLO: apps.APP.dispatch.",
    "most_workers": "Limit the machines in the SLO: limits.instances.",
    "budget_factor": "Name formulation loki, which has it.",
}
"""Option -> what to write instead."""

OLD_SIZINGS: Mapping[str, str] = {
    "planned": "fluid", "estimated": "formula", "auto": "simulation", "simulated": "simulation",
}  # fmt: skip
"""Value of `sizing` -> what it is now."""

OLD_FORMULATIONS: Mapping[str, str] = {
    "fluid-milp": "pool-milp",
    "fluid-lp": "pool-lp",
    "eq15": "kairos",
    "config": "pipeline-milp",
    "budget": "loki-budget",
    "reroute": "pipeline-routes",
    "columns": "variants-columns",
    "milp": "variants-milp or llm-milp",
    "infaas-paper": "infaas",
    "per-query": "policy-mdp",
    "fewest-workers": 'policy-mdp, and "objective": ["min machines"] in the SLO',
    "two-stage": "compound",
    "parts": "fleet",
    "paper": "loki, ramsis or circinus",
}
"""Formulation -> the formulation to name instead."""

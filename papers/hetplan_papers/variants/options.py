"""What may be set about the formulations of variants: rules that leave no room to wait and share no machine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hetplan.extend import Sizing, VariantsOptions

__all__ = ["BruteForceOptions", "GreedyOptions", "RuleOptions"]


class BruteForceOptions(VariantsOptions):
    """`brute-force`: every choice of counts."""

    sizing: Sizing = Field(default="fluid", description="how busy instances may be; as in the paper up to saturation")
    share_machines: bool = Field(default=False, description="an instance has its machine alone")


class RuleOptions(BruteForceOptions):
    """Rules that serve what they can."""

    slack: Literal["aimed"] = Field(default="aimed", description="a rule aims at the SLO's slack and promises none")


class GreedyOptions(RuleOptions):
    """`greedy`: Section 4.2.2, with its counters for scaling down."""

    slot_s: float = Field(default=1.0, gt=0, description="seconds between two looks: T_v = ceil(load time / slot)")

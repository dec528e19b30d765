"""The dispatch sections of pipeline plans: how queries go from step to step, and what becomes of late ones."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hetplan.profiles.fields import Fraction, Id, Model, NonNegative, Positive, Real

__all__ = ["BackupEntry", "MostAccurateFirstDispatch", "PathSharesDispatch"]


class BackupEntry(Model):
    """A load with capacity left over: where a late request may still go."""

    to: Id
    node: Id
    left_qps: Positive
    latency_ms: Positive
    quality: Real


class PathSharesDispatch(Model):
    """Queries follow the routing shares of the path that they have taken so far (Loki).

    `keyed` says whether the shares depend on that path ("path") or on the step alone ("node").
    """

    rule: Literal["path-shares/1"] = "path-shares/1"
    late: str = "serve"
    keyed: Literal["path", "node"] = "path"
    budget_ms: dict[Id, Positive] = Field(default_factory=dict, description="time per step, queueing included")
    backup: tuple[BackupEntry, ...] = ()


class MostAccurateFirstDispatch(Model):
    """Routing filled most accurate first (Loki, Algorithm 1); it looks at no path, and may leave demand unserved.

    The shares in `routing` are what the algorithm gives for the planned rate, per load; `lost` is the share of all
    queries that it leaves unserved, `late` paths (pairs over the limit) included in `too_slow`.
    """

    rule: Literal["most-accurate-first/1"] = "most-accurate-first/1"
    late: str = "serve"
    budget_ms: dict[Id, Positive] = Field(default_factory=dict)
    backup: tuple[BackupEntry, ...] = ()
    lost: Fraction = 0.0
    too_slow: NonNegative = 0.0

"""Correct plans worked out by hand, one per feature, with the inputs that they are plans for.

No planner made them. Each comes as four documents, `profile`, `slo`, `state` (or None) and `plan`, as plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cases.documents import Json
from cases.plans_of_machines import hosts, variants
from cases.plans_of_pipelines import chain, pipeline, streams
from cases.plans_of_pools import chat, pool

__all__ = ["CASES"]

CASES: Mapping[str, Callable[[], Json]] = {
    "pool": pool,
    "chat": chat,
    "pipeline": pipeline,
    "chain": chain,
    "variants": variants,
    "hosts": hosts,
    "streams": streams,
}

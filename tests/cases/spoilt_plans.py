"""Correct plans spoilt in one respect each, and what the verifier must say: every violation, and no other.

Each change is (words, edits, expected). Edits are those of `cases.documents.spoil`; expected is "code @ place", several
parted by "; ", or "" where the change is neutral.
"""

from __future__ import annotations

from collections.abc import Mapping

from cases.spoilt_machines import HOSTS, STREAMS, VARIANTS
from cases.spoilt_pool import POOL, Change
from cases.spoilt_promises import TOLD
from cases.spoilt_serving import CHAIN, CHAT, PIPELINE

__all__ = ["CHANGES"]

CHANGES: Mapping[str, list[Change]] = {
    "pool": [*POOL, *TOLD],
    "chat": CHAT,
    "pipeline": PIPELINE,
    "chain": CHAIN,
    "variants": VARIANTS,
    "hosts": HOSTS,
    "streams": STREAMS,
}

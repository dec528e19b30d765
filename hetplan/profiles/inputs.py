"""Everything that a question is asked about: profile, SLO, state, measurements, traces, with their digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo
from hetplan.profiles.state import State

__all__ = ["Inputs"]


@dataclass(frozen=True)
class Inputs:
    """What was measured, what is wanted, what runs.

    `digests` has "profile" and "slo", and "state", "measured" where given: SHA-256 of canonical JSON.
    `files` says which file each came from, for errors found later: {"profile": "a.json + b.json", "slo": "b.json"}.
    `traces` holds arrival times in seconds (scaled and compressed already) per application, `trace_digests` the hashes
    of their files.
    `warnings` are (code, at, text) found while reading.
    """

    profile: Profile
    slo: Slo
    state: State | None = None
    measured: Any = None
    traces: Mapping[str, Any] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    trace_digests: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[tuple[str, str, str], ...] = ()

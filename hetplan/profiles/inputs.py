"""Everything that a question is asked about: profile, SLO, state, measurements, traces, with their digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo

if TYPE_CHECKING:
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

    def with_slo(self, **fields: object) -> Inputs:
        """The same with other fields of the SLO."""
        return replace(self, slo=self.slo.model_copy(update=fields))

    def with_limits(self, **fields: object) -> Inputs:
        """The same with other limits."""
        return self.with_slo(limits=self.slo.limits.model_copy(update=fields))

    def with_app(self, name: str, **fields: object) -> Inputs:
        """The same with other fields of one application."""
        return self.with_slo(apps={**self.slo.apps, name: self.slo.apps[name].model_copy(update=fields)})

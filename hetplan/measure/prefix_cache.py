"""What operators have already computed: two configurations that agree up to an operator share its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["PrefixCache"]


@dataclass
class PrefixCache:
    """Of one query: per operator and the knob values of it and all before it, how many samples it has answered.

    Samples come in the same order for every configuration, so that a count says which ones.

    >>> cache = PrefixCache({"sample": ("rate",), "detect": ("rate", "model")})
    >>> cache.charge({"rate": 1, "model": "s"}, 50, {"sample": 0.1, "detect": 1.0})
    55.0
    >>> cache.charge({"rate": 1, "model": "m"}, 60, {"sample": 0.1, "detect": 1.0})
    61.0
    """

    knobs_of: Mapping[str, Sequence[str]]
    enabled: bool = True
    _have: dict[tuple[object, ...], int] = field(default_factory=dict)

    def have(self, operator: str, knobs: Mapping[str, object]) -> int:
        """How many samples an operator has answered under these knobs."""
        return self._have.get(self._key(operator, knobs), 0) if self.enabled else 0

    def charge(self, knobs: Mapping[str, object], samples: int, seconds: Mapping[str, float]) -> float:
        """Seconds that so many samples take of what is not there yet; from then on it is."""
        total = 0.0
        for operator, each in seconds.items():
            total += max(0, samples - self.have(operator, knobs)) * each
            key = self._key(operator, knobs)
            self._have[key] = max(samples, self._have.get(key, 0))
        return total

    def _key(self, operator: str, knobs: Mapping[str, object]) -> tuple[object, ...]:
        return (operator, *(repr(knobs[knob]) for knob in self.knobs_of[operator]))

"""What planning again need not work out again: plans of parts, and where the search for a fleet ended.

>>> PlanMemory().tools.extra["before"]()
{}
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property
from typing import Any

from hetplan.api.solve import plan_for
from hetplan.planner.outcome import Outcome
from hetplan.planner.terms import Tools
from hetplan.profiles.inputs import Inputs

__all__ = ["PlanMemory"]

MOST_PLANS = 1000
MOST_SECTIONS = 200
ASKED = {"question", "formulation", "options", "try_repairs"}
"""What a text says wholly; who hands in more (tools, a start, limits) is not answered from here."""


class PlanMemory:
    """Plans of parts of fleets that were asked for lately: the same files with the same options have the same plan.

    `before` is where searches of fleets ended, for those that are to give a plan soon.
    """

    def __init__(self, most: int = MOST_PLANS) -> None:
        self.most, self.asked, self.known = most, 0, 0
        self._plans: OrderedDict[tuple[str, ...], Outcome] = OrderedDict()
        self._sections: OrderedDict[int, tuple[object, str]] = OrderedDict()
        self._before: dict[object, Any] = {}
        self._lock = threading.Lock()

    @cached_property
    def tools(self) -> Tools:
        """What a question is handed so that it asks here."""
        return Tools(extra={"plan_for": self.plan_for, "before": lambda: self._before, "written": self._profile})

    def forget(self) -> None:
        """Forget what movements leave to one another, where a plan made with it did not stand its check."""
        self._before.pop("memory", None)

    def plan_for(self, inputs: Inputs, **how: Any) -> Outcome:
        """`api.solve.plan_for`, or what it said of the same before; never with a state, measurements or traces."""
        if inputs.state is not None or inputs.measured is not None or inputs.traces or how.keys() - ASKED:
            return plan_for(inputs, **how)
        key = (self._profile(inputs), repr(inputs.profile.offers), repr(inputs.slo), repr(sorted(how.items())))
        with self._lock:
            self.asked += 1
            if key in self._plans:
                self.known += 1
                self._plans.move_to_end(key)
                return self._plans[key]
        found = plan_for(inputs, **how)
        with self._lock:
            self._plans[key] = found
            while len(self._plans) > self.most:
                self._plans.popitem(last=False)
        return found

    def _profile(self, inputs: Inputs) -> str:
        """All of a profile but its offers, as a text; of each of its sections it is made once for all that share it."""
        profile = inputs.profile
        return "|".join(self._text(getattr(profile, name)) for name in type(profile).model_fields if name != "offers")

    def _text(self, section: object) -> str:
        if not section:
            return repr(section)
        with self._lock:
            held = self._sections.get(id(section))
        if held is None:
            held = section, repr(section)
            with self._lock:
                self._sections[id(section)] = held  # which keeps it alive, so that no other has its number
                while len(self._sections) > MOST_SECTIONS:
                    self._sections.popitem(last=False)
        return held[1]

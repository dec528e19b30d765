"""What a watch knows of plans that are measured: a document or a journal, who measures on, and samples from service."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.cli.measuring import Measurer
    from hetplan.cli.output import Output
    from hetplan.measure.journal import Journal
    from hetplan.measure.live_samples import Drifted, InService
    from hetplan.planner.contract import Event
    from hetplan.planner.outcome import Outcome
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan

__all__ = ["Known", "Measuring", "knowing"]


@dataclass
class Known:
    """Measurements for planning, and the tests of what runs (`hetplan.api.autoscaler.Service`)."""

    inputs: Inputs
    profiles: Sequence[Path]
    slo: Path
    measured: Path | None = None
    measurer: Measurer | None = None
    journal: Journal | None = None
    live: Path | None = None
    _service: InService | None = field(default=None, init=False)
    _why: str = field(default="", init=False)

    @property
    def streams(self) -> frozenset[str]:
        """Applications whose queries come as streams."""
        return frozenset(name for name, app in self.inputs.slo.apps.items() if app.streams is not None)

    @property
    def only_streams(self) -> bool:
        """Whether no application has a rate that could be followed."""
        return len(self.streams) == len(self.inputs.slo.apps)

    def choices(self, how: Mapping[str, Any], cancel: threading.Event) -> dict[str, Any]:
        """What planning is asked beside the wish: measurements, and the evaluator."""
        more = dict(how)
        if self.measurer is not None:
            more["tools"] = self.measurer.tools(cancel, _silent)
            if self.measurer.journal.drifted:
                more["measured"] = self.measurer.journal.known()
        elif self.journal is not None:
            more["measured"] = self.journal.known()
        else:
            more["measured"] = self.measured
        return more

    def signed(self, outcome: Outcome) -> Outcome:
        """The outcome with a plan that names what it was made from."""
        return outcome if self.measurer is None else self.measurer.signed(outcome, self.profiles, self.slo, None)

    def runs(self, plan: Plan) -> None:
        """Test the promises of this plan from now on."""
        if self.live is None or self.journal is None:
            return
        from hetplan.measure.live_samples import InService

        self._service = InService(plan, self.inputs, self.journal)
        self._why = ""
        if self.journal.drifted and plan.inputs.measured not in self._digests():
            self._why = "the inputs of this plan have drifted since"

    def drifted(self) -> str:
        """What has drifted since the plan that runs was made."""
        if self._service is not None and self.live is not None:
            found: Drifted | None = self._service.read(self.live)
            if found is not None:
                self._service.conclude(found)
                self._why = f"{found.quantity} of {found.app} has drifted: {found.why}"
        return self._why

    def _digests(self) -> set[str]:
        from hetplan.profiles.canonical import digest

        assert self.journal is not None
        return {digest(self.journal.document()), digest(self.journal.known())}


def _silent(event: Event) -> None:
    """What happens while plans are measured is in the journal."""
    del event


@dataclass(frozen=True)
class Measuring:
    """What the options of a watch name: measurements, who measures, their journal, samples from service."""

    measured: Path | None = None
    evaluate: Sequence[str] | None = None
    journal: Path | None = None
    live: Path | None = None

    def check(self) -> None:
        """Refuse what does not go together."""
        if self.live is not None and self.journal is None:
            raise InputError.one(file="--live", why="samples need a journal", remedy="Add --journal FILE.")
        if self.journal is not None and not self.evaluate and self.live is None:
            remedy = "Add --evaluate NAME or --live FILE, or name the journal among the files."
            raise InputError.one(file="--journal", value=self.journal, why="nothing would be written", remedy=remedy)
        if self.measured is not None and self.journal is not None:
            why = "the journal has the measurements"
            raise InputError.one(file=str(self.measured), why=why, remedy="Leave one of them out.")


@contextmanager
def knowing(out: Output, profiles: Sequence[Path], slo: Path, site: Path, asked: Measuring) -> Iterator[Known]:
    """What the options name, for as long as the block runs; a bad file ends it before anything is touched."""
    from hetplan.cli.measuring import measuring
    from hetplan.profiles.load import load_inputs

    asked.check()
    inputs = load_inputs(list(profiles), slo, measured=asked.measured)
    known = Known(inputs, profiles, slo, measured=asked.measured, live=asked.live)
    with ExitStack() as stack:
        if asked.evaluate:
            at_work = measuring(
                profiles, slo, names=asked.evaluate, site=site, journal=asked.journal, history=None, out=out
            )  # fmt: skip
            measurer = stack.enter_context(at_work)
            assert measurer is not None
            known = replace(known, measurer=measurer, journal=measurer.journal)
        elif asked.journal is not None:
            from hetplan.measure.journal import Journal
            from hetplan.profiles.sampled import sampled_of

            kept = Journal(asked.journal, of=sampled_of(inputs))
            stack.callback(kept.close)
            known = replace(known, journal=kept)
        yield known

"""What a server answers: a request's document in, a document out. No network is known here."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from hetplan.api.solve import Choice, choose, fluid_size, plan_for
from hetplan.api.verify_and_simulate import simulate, verify
from hetplan.desk.fields import fields_of
from hetplan.desk.work import Allowance, Task
from hetplan.drawing.charts import Curve, curves
from hetplan.drawing.page import Html
from hetplan.drawing.report import Documents, write_plan
from hetplan.errors import Fault, InputError
from hetplan.planner.answer import Limits
from hetplan.planner.contract import Event
from hetplan.planner.outcome import Outcome
from hetplan.planner.repairs import value_at
from hetplan.planner.status import Found
from hetplan.planner.summary_rows import spot_offers
from hetplan.profiles.canonical import digest
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import Loaded, load_inputs
from hetplan.profiles.load_one import read_profile
from hetplan.profiles.plain_data import finite
from hetplan.profiles.profile import Profile
from hetplan.profiles.summary_words import summary_text

__all__ = ["Answers"]

Document = Mapping[str, Any]
MOST_PROFILES = 8
MOST_SEEDS = 20
_FILES = ("profile", "slo", "state", "measured", "plan")
_LIMITS = ("seconds", "work", "gap", "seed")
_AXES = {"rate_qps": "queries/s", "cost_per_hour": "money an hour", "servers": "machines"}
"""What a curve's objective is called."""


class Answers:
    """The answers of one server: a task says whether to stop, and is told what the work is at.

    Profiles that were asked about lately are kept parsed.
    """

    def __init__(self, allowance: Allowance, report: Callable[..., str] | None = None) -> None:
        self.allowance = allowance
        self._report = report
        self._loaded: OrderedDict[str, Loaded[Profile]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def by_path(self) -> Mapping[str, Callable[[Document, Task], dict[str, Any]]]:
        """Which answer each path gives."""
        return {
            "/v1/solve": self.solve,
            "/v1/verify": self.verify,
            "/v1/simulate": self.simulate,
            **({} if self._report is None else {"/v1/report": self.report}),
            "/desk/fields": self.fields,
            "/desk/curve": self.curve,
        }

    def solve(self, asked: Document, task: Task) -> dict[str, Any]:
        """A plan, or why there is none and what would give one.

        `quick` leaves simulation out; `page` adds the plan as a part of a page.
        """
        _known(asked, (*_FILES[:4], "question", "formulation", "options", "limits", "require_proof", "quick", "page"))
        for name in ("quick", "page", "require_proof"):
            if not isinstance(asked.get(name, False), bool):
                raise _wrong(name, asked[name], "true or false", "Leave it out.")
        begun = time.perf_counter()
        outcome = self._outcome(asked, task)
        body = {"exit": outcome.exit_code, "reason": outcome.reason, **outcome.as_dict()}
        if asked.get("page"):
            body |= {"html": self._drawn(asked, outcome), "ms": round(1000 * (time.perf_counter() - begun))}
        return _plain(body)

    def _drawn(self, asked: Document, outcome: Outcome) -> str:
        page = Html("")
        if outcome.plan is None or outcome.summary is None:
            page.heading(", ".join(_file(asked, "slo")["apps"]), 1)
            is_known = outcome.found is Found.INFEASIBLE
            page.answer(("No plan", "meets all requirements" * is_known), "bad", outcome.status.capitalize())
            page.items(outcome.why or (outcome.reason,), "why")
            return page.body()
        inputs, told = self._inputs(asked), summary_text(outcome.summary, outcome.verified_how)
        plan = outcome.plan.model_dump(mode="json", by_alias=True, exclude_none=True)
        write_plan(page, Documents(plan, told, slo=_file(asked, "slo"), spot=spot_offers(inputs)), level=1)
        page.items(outcome.violations, "bad")
        return page.body()

    def verify(self, asked: Document, task: Task) -> dict[str, Any]:
        """What a plan's own files say of it."""
        _known(asked, _FILES)
        report = verify(_file(asked, "plan"), self._inputs(asked), cancel=task.cancel)
        return _plain(
            {
                "ok": report.ok,
                "reason": report.reason,
                "violations": [vars(one) for one in report.violations],
                "checked": list(report.checked),
                "skipped": [str(what) for what in report.skipped],
                "unchecked": report.unchecked,
                "claims": [{**vars(one), "word": str(one.word)} for one in report.claims],
                "simulated": [{**vars(one), "word": str(one.word)} for one in report.simulated],
            }
        )

    def simulate(self, asked: Document, task: Task) -> dict[str, Any]:
        """A plan played under its demand."""
        played = ("seeds", "seed", "duration_s", "noise", "arrivals")
        how: dict[str, Any] = {name: asked[name] for name in played if name in asked}
        _known(asked, (*_FILES, *how))
        kinds = {"seeds": int, "seed": int, "duration_s": (int, float), "noise": str, "arrivals": str}
        for name, value in how.items():
            if isinstance(value, bool) or not isinstance(value, kinds[name]):  # type: ignore[arg-type]
                raise _wrong(name, value, "another kind of value", f"See {name} in /v1/openapi.json.")
        if not 1 <= how.get("seeds", 1) <= MOST_SEEDS or how.get("seed", 0) < 0 or how.get("duration_s", 1) <= 0:
            raise _wrong("seeds", how.get("seeds"), f"1 to {MOST_SEEDS} seeds, and a duration above 0", "Correct it.")
        told = partial(_hear, task)
        report = simulate(_file(asked, "plan"), self._inputs(asked), cancel=task.cancel, on_event=told, **how)
        return _plain(report.as_dict())

    def report(self, asked: Document, task: Task) -> dict[str, Any]:
        """A plan as one page for people, verified and simulated for it."""
        _known(asked, _FILES)
        assert self._report is not None
        told = partial(_hear, task)
        return {"html": self._report(_file(asked, "plan"), self._inputs(asked), cancel=task.cancel, on_event=told)}

    def fields(self, asked: Document, _: Task) -> dict[str, Any]:
        """For the page: what of these files can be changed there."""
        _known(asked, _FILES[:4])
        return _plain({"fields": fields_of(self._inputs(asked), _file(asked, "slo"))})

    def curve(self, asked: Document, task: Task) -> dict[str, Any]:
        """For the page: the objective over one number of the SLO file, with planned sizes."""
        _known(asked, (*_FILES[:4], "path", "values", "label"))
        path, values = asked.get("path"), asked.get("values")
        if not isinstance(path, list) or not path or not isinstance(values, list) or not values:
            raise _wrong("path", path, "path and values are lists", 'Write "path": ["limits", "cost_per_hour"].')
        for value in values:
            if not _is_number(value):
                raise _wrong("values", value, "a number for each point", 'Write "values": [1, 2, 3].')
        if len(values) > self.allowance.points:
            raise _wrong("values", len(values), f"at most {self.allowance.points} points", "Send fewer.")
        found = list[Outcome | None]()
        for value in values:
            changed = _with(_file(asked, "slo"), path, value)
            try:
                found.append(self._outcome({**asked, "slo": changed, "quick": True}, task, repairs=False))
            except InputError:
                found.append(None)
        claims = [one.claims[0] if one is not None and one.plan is not None and one.claims else None for one in found]
        about = next((claim.about for claim in claims if claim is not None), "nothing")
        x, y = [float(value) for value in values], [None if one is None else one.value for one in claims]
        sense = next((claim.sense for claim in claims if claim is not None), "")
        now = value_at(_file(asked, "slo"), path)
        limits = {"now": float(now)} if isinstance(now, int | float | str) and _is_number(now) else {}
        label = str(asked.get("label") or path[-1])
        words = _AXES.get(about, about.partition("[")[0].replace("_", " "))
        draw = partial(
            curves, [Curve(words, x, y, sense)], label=f"{words} over {label}", x=label, y=words, limits=limits
        )
        page = Html("")
        page.chart(draw, "Planned without simulation.")
        return _plain({"html": page.body(), "x": x, "y": y, "about": about})

    def _outcome(self, asked: Document, task: Task, *, repairs: bool = True) -> Outcome:
        options, limits = asked.get("options", {}), asked.get("limits", {})
        for name, held in (("options", options), ("limits", limits)):
            if not isinstance(held, Mapping):
                raise _wrong(name, held, "an object", 'Write {"seconds": 10}.')
        _known(limits, _LIMITS, at="limits.")
        for name, value in limits.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise _wrong(f"limits.{name}", value, "a number, not negative", "Correct it.")
        seconds = min(float(limits.get("seconds", self.allowance.seconds)), self.allowance.seconds)
        choices = {name: asked[name] for name in ("question", "formulation") if asked.get(name) is not None}
        for name, value in choices.items():
            if not isinstance(value, str):
                raise _wrong(name, value, "a text", "Name one that `hetplan list problems` lists.")
        inputs = self._inputs(asked)
        if asked.get("quick"):
            options = {**self._quick(choose(inputs, options=options, **choices), inputs), **options}
        return plan_for(
            inputs,
            options=dict(options),
            limits=Limits(**{**limits, "seconds": seconds, "cancel": task.cancel}),
            require_proof=asked.get("require_proof", False),
            try_repairs=repairs,
            on_event=partial(_hear, task),
            **choices,
        )

    def _quick(self, choice: Choice, inputs: Inputs) -> dict[str, Any]:
        """The options that leave simulation out of planning, and that plan roughly, where the question has such."""
        return {**getattr(choice.options, "rough", {}), **fluid_size(choice, inputs)}

    def _inputs(self, asked: Document) -> Inputs:
        return load_inputs(self._read_profile(asked), _file(asked, "slo"), **_beside(asked))

    def _read_profile(self, asked: Document) -> Loaded[Profile]:
        profile = self._profile(asked)
        key = digest(profile)
        with self._lock:
            loaded = self._loaded.pop(key, None)
        loaded = loaded or read_profile(*(profile if isinstance(profile, list) else [profile]))
        with self._lock:
            self._loaded[key] = loaded
            while len(self._loaded) > MOST_PROFILES:
                self._loaded.popitem(last=False)
        return loaded

    def _profile(self, asked: Document) -> Any:
        """One profile, or a list of them that are merged; never the name of a file."""
        held = asked.get("profile")
        if isinstance(held, Sequence) and not isinstance(held, str) and held and all(isinstance(x, dict) for x in held):
            return list(held)
        return _file(asked, "profile")


def _hear(task: Task, event: Event) -> None:
    """Keep what the work is at; which engine is at it is no matter."""
    if event.what != "incumbent" and event.detail:
        words = event.detail.rpartition(" with ")[0] if event.what == "solve" else event.detail
        task.doing = words if event.done is None else f"{words}, {event.done:.0%}"


def _file(asked: Document, name: str) -> dict[str, Any]:
    """A document of the request; a name of a file would make the server read it."""
    held = asked.get(name)
    if not isinstance(held, dict):
        why = "is missing" if held is None else "a server is handed documents, never names of files"
        raise _wrong(name, "" if held is None else held, why, f"Send the {name} itself, as an object.")
    if name == "slo":
        apps = held.get("apps")
        for app, wanted in apps.items() if isinstance(apps, dict) else ():
            rate = wanted.get("rate_qps") if isinstance(wanted, dict) else None
            if isinstance(rate, dict) and rate.get("trace") is not None:
                remedy = "Say the arrivals as a process, or run `hetplan` where the file is."
                raise _wrong(f"slo.apps.{app}.rate_qps.trace", "a file", "a server reads no files", remedy)
    return held


def _beside(asked: Document) -> dict[str, Any]:
    return {name: _file(asked, name) for name in ("state", "measured") if asked.get(name) is not None}


def _known(asked: Document, names: Sequence[str], *, at: str = "") -> None:
    faults = [
        Fault("request", f"$.{at}{name}", "", "unknown key of this request", f"Known: {', '.join(names)}.")
        for name in asked
        if name not in names
    ]
    if faults:
        raise InputError(faults)


def _wrong(path: str, value: object, why: str, remedy: str) -> InputError:
    found = repr(value)[:60] if value != "" else ""
    return InputError.one(file="request", path=f"$.{path}", value=found, why=why, remedy=remedy)


def _with(document: Any, path: Sequence[Any], value: Any) -> Any:
    """The document with one value changed."""
    if not path:
        return value
    step, *rest = path
    if isinstance(document, list) and isinstance(step, int) and 0 <= step < len(document):
        return [_with(one, rest, value) if number == step else one for number, one in enumerate(document)]
    if isinstance(document, dict) and isinstance(step, str):
        return {**document, step: _with(document.get(step), rest, value)}
    raise _wrong("path", list(path), "no such place in the SLO file", "Name one that is there.")


def _is_number(value: object) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False


def _plain(body: Any) -> dict[str, Any]:
    held: dict[str, Any] = finite(body)
    return held

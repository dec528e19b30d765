"""What a server answers: a request's document in, a document out. No network is known here."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from hetplan.api.judge import simulate, verify
from hetplan.api.solve import choose, fluid_size, plan_for
from hetplan.desk.work import Allowance
from hetplan.drawing.charts import Curve, curves
from hetplan.drawing.page import Html
from hetplan.drawing.report import Documents, write_plan
from hetplan.drawing.svg import short
from hetplan.errors import Fault, InputError, Interrupted
from hetplan.planner.answer import Limits
from hetplan.planner.contract import Event, OnEvent
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
MOST_NAME = 64
SOON_SECONDS = 1.0
"""How long a first plan may take: so long people follow a thought without being held up (Nielsen, 1993, chapter 5)."""
NO_ROUGHER = frozenset({"sizing", "savings"})
"""With these options other than the confirmed plan has, what is impossible is so when it is played, too."""
STAGES = ("soon", "planned", "confirm")
_FILES = ("profile", "slo", "state", "measured", "plan")
_LIMITS = ("seconds", "work", "gap", "seed")


class Answers:
    """The answers of one server; profiles that were asked about lately are kept parsed."""

    def __init__(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self._loaded: OrderedDict[str, Loaded[Profile]] = OrderedDict()
        self._lock = threading.Lock()
        self._first: tuple[Document, Future[dict[str, Any]]] | None = None
        self._doing: dict[str, str] = {}

    @property
    def by_path(self) -> Mapping[str, Callable[[Document, threading.Event], dict[str, Any]]]:
        """Which answer each path gives."""
        return {
            "/v1/solve": self.solve,
            "/v1/verify": self.verify,
            "/v1/simulate": self.simulate,
            "/desk/look": self.look,
            "/desk/curve": self.curve,
        }

    def solve(self, asked: Document, cancel: threading.Event) -> dict[str, Any]:
        """A plan, or why there is none and what would give one."""
        _known(asked, (*_FILES[:4], "question", "formulation", "options", "limits", "require_proof"))
        outcome = self._outcome(asked, cancel)
        body = {"exit": outcome.exit_code, "reason": outcome.reason, **outcome.as_dict()}
        return _plain(body)

    def verify(self, asked: Document, cancel: threading.Event) -> dict[str, Any]:
        """What a plan's own files say of it."""
        _known(asked, _FILES)
        report = verify(_file(asked, "plan"), self._inputs(asked), cancel=cancel)
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

    def simulate(self, asked: Document, cancel: threading.Event) -> dict[str, Any]:
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
        report = simulate(_file(asked, "plan"), self._inputs(asked), cancel=cancel, **how)
        return _plain(report.as_dict())

    def begin(self, asked: Document) -> Callable[[threading.Event], dict[str, Any]]:
        """Work on the first look of a page, before it asks for it; who then asks the same waits for this one."""
        waited: Future[dict[str, Any]] = Future()
        self._first = asked, waited

        def work(cancel: threading.Event) -> dict[str, Any]:
            try:
                waited.set_result(found := self._looked(asked, cancel))
            except BaseException as error:
                waited.set_exception(error)
                raise
            return found

        return work

    def doing(self, name: str) -> str:
        """What the look of this name is at; "" where nothing is known of it."""
        return self._doing.get(name, "")

    def look(self, asked: Document, cancel: threading.Event) -> dict[str, Any]:
        """For the page: the plan as pictures, at one of three stages.

        `soon`: the best plan after a second with planned sizes. `planned`: the same without that limit, nothing
        played. `confirm`: the plan that `hetplan solve` gives. Where a plan is wanted soon and all is done within that
        time, or nothing is there by then, the answer is that of the next stage. `name` is by which `doing` is asked.
        """
        _known(asked, (*_FILES[:4], "stage", "name"))
        name, wanted = asked.get("name", ""), {key: value for key, value in asked.items() if key != "name"}
        if not isinstance(name, str) or len(name) > MOST_NAME:
            raise _wrong("name", name, f"a text of at most {MOST_NAME} characters", "Name the look otherwise.")
        try:
            first = self._first
            if first is not None and first[0] == wanted:
                return self._waited(first[1], name, cancel)
            return self._looked(wanted, cancel, name)
        finally:
            self._doing.pop(name, None)

    def _waited(self, first: Future[dict[str, Any]], name: str, cancel: threading.Event) -> dict[str, Any]:
        """The look that was begun before it was asked for; it is handed out once, and asked anew after that."""
        while not wait([first], timeout=0.05).done:
            if cancel.is_set():
                raise Interrupted("the page asked for something else")
            if name:
                self._doing[name] = self._doing.get("", "")
        self._first = None
        return first.result()

    def _looked(self, asked: Document, cancel: threading.Event, name: str = "") -> dict[str, Any]:
        begun, stage = time.perf_counter(), asked.get("stage", "planned")
        if stage not in STAGES:
            raise _wrong("stage", stage, "there is no such stage", f"Write one of {', '.join(STAGES)}.")
        quick = {} if stage == "confirm" else self._quick(asked)
        wanted, heard = {**asked, "options": quick}, partial(self._heard, name)
        limits = {"seconds": SOON_SECONDS} if stage == "soon" else {}
        outcome = self._outcome({**wanted, "limits": limits}, cancel, heard=heard)
        if stage == "soon" and not outcome.finding.limited:
            stage = "planned"  # all is done, and what is impossible is explained
        elif stage == "soon" and (outcome.plan is None or outcome.violations):
            stage, outcome = "planned", self._outcome(wanted, cancel, heard=heard)
        page = Html("")
        if stage != "soon":
            page.items(self._pins(asked, outcome, quick, cancel))
        if outcome.plan is None:
            page.text(f"{outcome.status}: {outcome.reason}", "bad")
        page.items(outcome.why)
        page.items(outcome.violations)
        page.items(one.text for one in outcome.repairs)
        if outcome.repairs and "sizing" in quick:
            page.text("What would help is worked out for planned sizes: plans that are played may need more.")
        said = outcome.as_dict()
        if outcome.summary is not None:
            told = summary_text(outcome.summary, outcome.checked)
            spot = spot_offers(self._inputs(asked))
            write_plan(page, Documents(said["plan"], told, slo=_file(asked, "slo"), spot=spot))
        return _plain(
            {
                "stage": stage,
                "final": outcome.found is Found.INFEASIBLE and quick.keys() <= NO_ROUGHER,
                "status": outcome.status,
                "summary": said["summary"],
                "html": page.body(),
                "plan": said["plan"],
                "ms": round((time.perf_counter() - begun) * 1000, 1),
            }
        )

    def curve(self, asked: Document, cancel: threading.Event) -> dict[str, Any]:
        """For the page: the objective over one number of the SLO file, with planned sizes."""
        _known(asked, (*_FILES[:4], "path", "values", "label"))
        path, values = asked.get("path"), asked.get("values")
        if not isinstance(path, list) or not path or not isinstance(values, list) or not values:
            raise _wrong("path", path, "path and values are lists", 'Write "path": ["limits", "cost_per_hour"].')
        if len(values) > self.allowance.points:
            raise _wrong("values", len(values), f"at most {self.allowance.points} points", "Send fewer.")
        quick, found = self._quick(asked), list[Outcome | None]()
        for value in values:
            changed = _with(_file(asked, "slo"), path, value)
            try:
                found.append(self._outcome({**asked, "slo": changed, "options": quick}, cancel, repairs=False))
            except InputError:
                found.append(None)
        claims = [one.claims[0] if one is not None and one.plan is not None and one.claims else None for one in found]
        about = next((claim.about for claim in claims if claim is not None), "nothing")
        x, y = [float(value) for value in values], [None if one is None else one.value for one in claims]
        sense = next((claim.sense for claim in claims if claim is not None), "")
        now = value_at(_file(asked, "slo"), path)
        limits = {"now": float(now)} if isinstance(now, int | float | str) and _is_number(now) else {}
        label = str(asked.get("label") or path[-1])
        picture = curves([Curve(about, x, y, sense)], label=f"{about} over {label}", x=label, y=about, limits=limits)
        return _plain({"svg": picture.svg(), "x": x, "y": y, "about": about})

    def _pins(
        self, asked: Document, outcome: Outcome, options: Mapping[str, Any], cancel: threading.Event
    ) -> Iterator[str]:
        """What pinned machines cost: the first claim beside that of the plan without them, both sized alike."""
        slo = _file(asked, "slo")
        limits = slo.get("limits") if isinstance(slo.get("limits"), dict) else {}
        instances = limits.get("instances") if limits else None
        pins = {name: one for name, one in instances.items() if _pinned(one)} if isinstance(instances, dict) else {}
        if not pins or outcome.plan is None or not outcome.claims:
            return
        free = {name: one for name, one in (instances or {}).items() if name not in pins}
        other = {**asked, "slo": {**slo, "limits": {**(limits or {}), "instances": free}}, "options": options}
        try:
            without = self._outcome(other, cancel, repairs=False)
        except InputError:
            return  # the question is about machines that are there: without counts it is none
        named = ", ".join(f"{one[0]} of {name}" for name, one in pins.items())
        if without.plan is None or not without.claims:
            yield f"Pinned: {named}. Without pins there is no plan."
            return
        mine, best = outcome.claims[0], without.claims[0]
        yield f"Pinned: {named}. {mine.about} is {short(mine.value)}; without pins it is {short(best.value)}."

    def _outcome(
        self, asked: Document, cancel: threading.Event, *, repairs: bool = True, heard: OnEvent | None = None
    ) -> Outcome:
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
        return plan_for(
            self._inputs(asked),
            options=dict(options),
            limits=Limits(**{**limits, "seconds": seconds, "cancel": cancel}),
            require_proof=bool(asked.get("require_proof")),
            try_repairs=repairs,
            on_event=heard,
            **choices,
        )

    def _heard(self, name: str, event: Event) -> None:
        """Keep what a look is at."""
        if event.what == "incumbent" or not event.detail:
            return
        words = (
            event.detail.rpartition(" with ")[0] if event.what == "solve" else event.detail
        )  # who solves is no matter
        done = "" if event.done is None else f", {event.done:.0%}"
        self._doing[name] = f"{words}{done}"

    def _quick(self, asked: Document) -> dict[str, Any]:
        """The options that leave simulation out of planning, and that plan roughly, where the question has such."""
        inputs = self._inputs(asked)
        choice = choose(inputs)
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


def _pinned(bounds: object) -> bool:
    """Whether a limit on machines leaves one number of them."""
    return isinstance(bounds, list) and len(bounds) == 2 and bounds[0] == bounds[1]


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
        return not isinstance(value, bool) and float(value) == float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


def _plain(body: Any) -> dict[str, Any]:
    held: dict[str, Any] = finite(body)
    return held

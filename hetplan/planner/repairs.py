"""Repairs that repair: each is written as edits of the files, and tried with all other wishes in place.

A question says what might help (`Repair`: a field, and what it would have to be). Here each becomes edits that the
reader takes back (`edits_of`), its number is rounded to what is printed, and the whole question is asked again with it
(`Trials.kept`). A number that does not do by a hair is moved on by little. Where what is said to help does not do
alone, what the changed files are said to lack is added, until there is a plan: a joint repair, of which no part can be
left out.

A question's number may be far more than is needed: it comes from a formula, or from a coarse search. So between a
number that fails (at first the stated one) and one that does the way is halved, by asking the whole question, until
they are `NEAR`. The repair says both: "lower rate_qps from 1323 to 333 qps (fails at 345)". What cannot be written as
edits, or was not tried as the time was over, or as trials had simulated what they may (`Simulated`), says so.

Simulation takes long, most of all of what is far too little. So where a program proved that there is no plan, what is
asked is first *sketched*, in no time: a number with which the formula for queues has a plan does as a rule, and one
with which there is none though no query waits fails. Only what lies between the two is simulated.
"""

from __future__ import annotations

import copy
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hetplan.errors import HetplanError, InputError
from hetplan.planner.contract import Event, OnEvent, Options, Tools
from hetplan.planner.draft import TOGETHER, Edit, Repair
from hetplan.planner.outcome import Outcome
from hetplan.planner.solver_calls import Asking
from hetplan.planner.status import Found
from hetplan.planner.terms import Simulated
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.json_path import write_at
from hetplan.profiles.profile import Profile
from hetplan.profiles.read_json import read_json
from hetplan.profiles.slo import Slo
from hetplan.profiles.yaml_text import edited_yaml, is_yaml, read_yaml

__all__ = [
    "ABOUT",
    "Trials",
    "check_repairs",
    "documents",
    "edit_documents",
    "edited_files",
    "edits_of",
    "files_beside",
    "is_overload",
    "steps_of",
    "value_at",
]

MOST_TRIALS = 24
"""Questions asked again for one answer to find what does; each may take as long as the first."""
MOST_HALVED = 16
"""Questions asked again, after that, to find how much less would do."""
MOST_SKETCHED = 8
"""Numbers of one repair that a formula is asked for: each goes twice as far as the one before, so 256 times as far."""
MOST_JOINED = 4
NUDGES = (0.0, 1e-4, 1e-2, 0.1, 0.2, 0.5)
"""By how much further a number is moved, in parts of it, where what was worked out does not do by a hair."""
FEW_SAID = 2
"""So often the number that is said next is believed; then it is moved on as far again."""
NEAR = 0.05
"""A number that does is near one that fails where so much of the change lies between them: five trials from afar."""
CLOSE = 0.005
"""Or so much of the number itself: what simulation confirms is not known more closely."""
MOST_BEYOND = 3
"""So often a budget is raised by twice as far, where something else is said to be missing with it."""
DIGITS = 6
HAIR = 1e-7
"""An engine's tolerance: nearer to a rounded number, that one is tried."""
OVERLOAD = 9.0
"""Where the rate is so many times what there is carries, though no query waits, a digit slipped: what would help is
then tried with the formula for queues alone, in no time, which asks for more machines. Simulation takes seconds."""
SHORT = 0.98, 0.99
"""The part of the way that is taken back of what a program says, to see that less fails."""
MOST_EVENTS = 20_000_000
"""Trials may simulate so many events, or as many as the answer itself took. Only the engine of batches is counted: of
pools, text and policies, and of parts of a fleet, `MOST_TRIALS` bounds the trials."""
UNTRIED = " (not tried)"
UNPLAYED = " (its queues were not played)"
ABOUT, MOST_ABOUT = " or so", 4
"""How a repair ends whose number is a guess, and how many numbers of it are tried."""
LESS = " (less may do)"
"""How a repair ends of which it was not tried how much less would do."""
SEVERAL = "several"
"""The field of a repair that changes several at once."""
COUNTS = ("stock", "changes", "machines", "zones", "max_simulations")
"""Fields of whole numbers."""

Step = str | int
Place = tuple[str, tuple[Step, ...]]
"""A file and the steps to a field of it."""
Documents = Mapping[str, Any]


def documents(inputs: Inputs, options: Mapping[str, Any]) -> dict[str, Any]:
    """The files as they were read, as JSON, by the words that fields begin with."""
    return {
        "slo": inputs.slo.model_dump(mode="json", by_alias=True, exclude_unset=True),
        "profile": inputs.profile.model_dump(mode="json", by_alias=True, exclude_unset=True),
        "options": dict(options),
    }


def edit_documents(given: Documents, edits: Sequence[Edit]) -> dict[str, Any]:
    """The documents with these edits; what an edit goes through is made where it is not there.

    >>> edit_documents({"slo": {"limits": {}}}, [Edit("slo", ("limits", "instances", "t4"), (0, 2))])
    {'slo': {'limits': {'instances': {'t4': (0, 2)}}}}
    """
    found = dict(copy.deepcopy(dict(given)))
    for edit in edits:
        at = value_at(found[edit.file], edit.path[:-1])
        written = _beside_trace(at, edit.value) if edit.path[-1] == "rate_qps" else edit.value
        write_at(found[edit.file], edit.path, written)
    return found


def _beside_trace(app: Mapping[str, Any], value: Any) -> Any:
    """A rate takes the place of a forecast or a series; of a trace only where that says the rates of periods."""
    stated = app.get("rate_qps")
    trace = stated.get("trace") if isinstance(stated, Mapping) else None
    return value if trace is None or "period_s" in trace else {"mean": value, "trace": trace}


def _mean(stated: Any) -> float:
    return float(stated["mean"] if isinstance(stated, Mapping) else stated)


def edited_files(repair: Repair, slo: Path, profiles: Sequence[Path]) -> dict[Path, bytes]:
    """The files that a repair changes, with it, as bytes; `InputError` where it is in no file.

    A YAML file is changed in the places that the repair names: its comments stay. Of several profiles all change that
    say the value, else the one that says the price it goes with, else the one that has the object around it.
    """
    where = {"slo": [slo], "profile": list(profiles)}
    documents = {path: _document(path) for file in {edit.file for edit in repair.edits} for path in where.get(file, [])}
    changed: dict[Path, list[Edit]] = {}
    for edit in repair.edits:
        spelt = {path: replace(edit, path=_spelt(documents[path], edit.path)) for path in where.get(edit.file, [])}
        held = {path: value_at(documents[path], one.path[:-1]) for path, one in spelt.items()}
        saying = [path for path, one in spelt.items() if value_at(documents[path], one.path) is not None]
        priced = [path for path, about in held.items() if isinstance(about, Mapping) and "price_per_hour" in about]
        around = [path for path, about in held.items() if about is not None or len(held) < 2]
        those = saying or priced[:1] or around[:1]
        if not those:
            name = ".".join(map(str, (edit.file, *edit.path)))
            why, remedy = f"{name} is in no file that was given: {repair.text}", "Change it by hand."
            if edit.file == "options":
                remedy = f"Add --set {edit.path[-1]}={_file_text(edit.value)} to the command."
            raise InputError.one(file="--apply-repair", why=why, remedy=remedy)
        for one in those:
            changed.setdefault(one, []).append(spelt[one])
    if not changed:
        why = f"this repair was not tried, and changes no file: {repair.text}"
        raise InputError.one(file="--apply-repair", why=why, remedy="Change the file by hand.")
    return {path: _edited_file(path, edits) for path, edits in changed.items()}


def _spelt(document: Any, path: tuple[Step, ...]) -> tuple[Step, ...]:
    """A path with ids as a document spells them, in any letter case.

    >>> _spelt({"machines": {"T4": {}}}, ("machines", "t4", "stock"))
    ('machines', 'T4', 'stock')
    """
    found: list[Step] = []
    for step in path:
        keys = document if isinstance(document, Mapping) and step not in document else ()
        found.append(next((key for key in keys if key.lower() == str(step).lower()), step))
        document = value_at(document, found[-1:])
    return tuple(found)


def files_beside(path: Path) -> tuple[Path, ...]:
    """Files that a profile or an SLO names, from its own folder: measurements and traces."""
    said = _document(path)
    measured = said.get("measurements") or ()
    rates = [app["rate_qps"] for app in said.get("apps", {}).values() if isinstance(app.get("rate_qps"), Mapping)]
    traces = [rate["trace"]["file"] for rate in rates if "trace" in rate]
    return tuple(map(Path, dict.fromkeys([*([measured] if isinstance(measured, str) else measured), *traces])))


def _edited_file(path: Path, edits: Sequence[Edit]) -> bytes:
    if is_yaml(path):
        places = [(edit.path, edit.value) for edit in edits]
        return edited_yaml(path.read_text(encoding="utf-8-sig"), places, file=os.fspath(path)).encode()
    document = edit_documents({edits[0].file: _document(path)}, edits)[edits[0].file]
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _document(path: Path) -> Any:
    name = os.fspath(path)
    return read_yaml(path.read_text(encoding="utf-8-sig"), file=name) if is_yaml(path) else read_json(path, file=name)


def edits_of(repair: Repair, given: Documents) -> tuple[Edit, ...]:
    """What a repair changes in the files; nothing where it cannot be written so.

    >>> slo = {"apps": {"a.b": {"latency": {"p50_ms": 40, "p99_ms": 90}}}}
    >>> edits_of(Repair("slo.apps.a.b.latency", "raise", 10.0, 50.0, "ms", ""), {"slo": slo})
    (Edit(file='slo', path=('apps', 'a.b', 'latency', 'p50_ms'), value=50.0),)
    """
    if repair.edits:
        return repair.edits
    file, _, rest = repair.field.partition(".")
    if file not in given or repair.to is None:
        return ()
    if rest.startswith("apps.*."):
        return tuple(
            Edit(file, ("apps", app, "rate_qps"), _mean(said["rate_qps"]) * float(repair.to))
            for app, said in given[file].get("apps", {}).items()
        )
    under = re.fullmatch(r"hosts \(under (.+)\)", rest)
    if under is not None:
        return _hosts(under[1], given[file], float(repair.amount or 0))
    path = steps_of(rest, given[file])
    if path is None:
        return ()
    now = value_at(given[file], path)
    if path[-1] == "latency" and isinstance(now, dict):
        return tuple(Edit(file, (*path, key), repair.to) for key, max_ms in now.items() if max_ms < float(repair.to))
    if path[0] == "limits" and path[1] == "instances":
        return _instances(file, path, given[file], repair)
    return (Edit(file, path, repair.to),)


def _hosts(offer: str, given: Any, more: float) -> tuple[Edit, ...]:
    """So many more hosts under an offer."""
    known, number, made = given.get("hosts", {}), 0, list[Edit]()
    while len(made) < more:
        number += 1
        name = f"{offer}-more-{number}"
        made += [] if name in known else [Edit("profile", ("hosts", name), {"offer": offer})]
    return tuple(made)


def _instances(file: str, path: tuple[Step, ...], given: Any, repair: Repair) -> tuple[Edit, ...]:
    """A bound on instances: both are written, the other one as it is."""
    if len(path) < 3 or not isinstance(repair.to, int | float):
        return ()
    place = path[3] if len(path) > 3 else 1
    stated = value_at(given, path[:3])
    bounds = [0, None] if stated is None else list(stated) if isinstance(stated, list | tuple) else [0, stated]
    bounds[int(place)] = round(repair.to)
    return (Edit(file, path[:3], bounds),)


_KEY = re.compile(r"[\w:./-]+")
"""A key in a path: of letters, digits and signs that need no quotes in a message."""


def steps_of(text: str, given: Any) -> tuple[Step, ...] | None:
    """The steps of a field, as messages write it; keys may have dots of their own.

    >>> steps_of('apps.web.latency["p99.9_ms"]', {}), steps_of("runs[0]", {}), steps_of(".runs", {})
    (('apps', 'web', 'latency', 'p99.9_ms'), ('runs', 0), None)
    """
    steps: list[Step] = []
    at = given
    while text:
        index = re.match(r"\[(?:([0-9]+)|(\"(?:[^\"\\]|\\.)*\"))\]\.?", text)
        if index is not None:
            try:
                steps.append(json.loads(index[1] or index[2]))
            except ValueError:
                return None
            if index[2] and not _KEY.fullmatch(str(steps[-1])):
                return None
            text = text[index.end() :]
        else:
            known = sorted(at, key=len, reverse=True) if isinstance(at, dict) else []
            key = next((k for k in known if re.match(rf"{re.escape(k)}(\.|\[|$)", text)), None)
            plain = re.match(r"[^.\[]+", text)
            key = key or (plain[0] if plain is not None else "")
            if not _KEY.fullmatch(key):
                return None
            steps.append(key)
            text = text[len(key) :].removeprefix(".")
        at = value_at(at, steps[-1:])
    return tuple(steps)


def value_at(given: Any, path: Sequence[Step]) -> Any:
    """What is there in a document; None where nothing is."""
    for step in path:
        try:
            given = given[step]
        except (KeyError, IndexError, TypeError):
            return None
    return given


def _rounded(value: float, *, up: bool, beside: float | None) -> float:
    """To so many digits that it can be printed, on the side that helps, and other than what is stated.

    >>> _rounded(40.000000004, up=True, beside=40.0), _rounded(0.69999999, up=False, beside=0.8)
    (40.0001, 0.7)
    """
    if value == 0 or not math.isfinite(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - DIGITS + 1)
    near = round(value / unit)
    if abs(near * unit - value) > HAIR * abs(value):
        near = math.ceil(value / unit) if up else math.floor(value / unit)
    found = float(f"{near * unit:.{DIGITS}g}")
    return found if found != beside else float(f"{(near + (1 if up else -1)) * unit:.{DIGITS + 1}g}")


def check_repairs(
    outcome: Outcome, inputs: Inputs, options: Options, ask: Asking, again: Callable[..., Outcome], tools: Tools,
    simulated: Simulated,
) -> Outcome:  # fmt: skip
    """The outcome with the repairs that do; `again` answers the same question for other inputs, with these tools.

    `simulated` is what the answer took so far, and counts on.
    """

    rates = {f"slo.apps.{name}.rate_qps": app.rate_qps for name, app in inputs.slo.apps.items()}
    if (plan_for := tools.extra.get("plan_for")) is not None:
        tools = replace(tools, extra={**tools.extra, "plan_for": _asked_once(plan_for)})
    sketches = outcome.finding.found is Found.INFEASIBLE and getattr(options, "sizing", "") == "simulation"
    sizing = "formula" if sketches and is_overload(outcome.repairs, rates) else None

    def plan(changed: Inputs, chosen: Mapping[str, Any], explains: bool = True) -> Outcome:
        seconds = None if math.isinf(ask.remaining) else max(ask.remaining, 1e-3)
        limits = replace(ask.limits, seconds=seconds)
        return again(changed, options=dict(chosen), limits=limits, tools=replace(tools, explains=explains))

    most = simulated.events + max(simulated.events, MOST_EVENTS)

    def left() -> bool:
        cancel = ask.limits.cancel
        return ask.remaining > 0 and simulated.events < most and not (cancel is not None and cancel.is_set())

    briefly = partial(plan, explains=False)
    trials = Trials(inputs, options.model_dump(exclude_unset=True), plan, left, ask.note, briefly, sizing, sketches)
    return replace(outcome, repairs=trials.kept(outcome.repairs))


def _asked_once(plan_for: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """The same, of like files once: to the parts of a fleet its budget is nothing, and most trials change no more."""
    known = dict[str, Outcome]()

    def ask(files: Inputs, *, tools: Tools, **how: Any) -> Outcome:
        if tools.simulate or tools.evaluate or tools.extra or files.state or files.measured or files.traces:
            return plan_for(files, tools=tools, **how)
        wishes = (files.profile.model_dump_json(), files.slo.model_dump_json())
        key = repr((*wishes, tools.trial, tools.explains, tools.repairs, sorted(how.items(), key=lambda one: one[0])))
        if key not in known:
            known[key] = plan_for(files, tools=tools, **how)
        return known[key]

    return ask


def is_overload(repairs: Iterable[Repair], rates: Mapping[str, Any]) -> bool:
    """Whether some rate would have to be far lower, by a formula; `rates` are those that are asked for, by field."""
    return any(
        one.verb == "lower" and _is_number(one.to) and _is_number(rate) and OVERLOAD * float(one.to) <= float(rate)
        for one in repairs
        if one.to is not None and (rate := rates.get(one.field)) is not None and not one.text.endswith(ABOUT)
    )


@dataclass(frozen=True)
class _Does:
    """Edits with which there is a plan; `fails` are the nearest values without one, other than what is stated."""

    repair: Repair
    edits: tuple[Edit, ...]
    fails: Mapping[Place, Any] = field(default_factory=dict)
    unplayed: bool = False
    """Whether its plan was made without simulation, though the question asks for it."""
    is_guess: bool = False
    """Whether its numbers were guessed: then they are far off, as likely as not."""
    is_near: bool = True
    """Whether little less fails."""
    said: tuple[Edit, ...] = ()
    """What a program said, of queries that do not wait; no less does."""


@dataclass(frozen=True)
class _Ends:
    """One number on the way from what fails to what does; `stated` is where the change begins."""

    edit: Edit
    side: int
    """Which of two bounds it is; of other edits it says nothing."""
    stated: float
    fails: float
    does: float
    step: float
    """Between two numbers that make a difference; 0 where there is no such step."""

    @staticmethod
    def of(edit: Edit, does: _Does, given: Documents) -> _Ends | None:
        """Those of an edit; None where it is no number, or it is not known what is stated."""
        before = _stated_or_begin(edit, does.repair, given)
        side = _side(edit.value, before) if isinstance(edit.value, list) else 0
        fails = does.fails.get(_place(edit), before)
        ends = [one[side] if isinstance(one, list | tuple) else one for one in (before, fails, edit.value)]
        ends[0] = ends[0] if _is_number(ends[0]) else ends[1]
        if not all(_is_number(one) and not isinstance(one, bool) for one in ends):
            return None
        stated, low, high = map(float, ends)
        return _Ends(edit, side, stated, low, high, _step_of(edit, given))

    @property
    def is_near(self) -> bool:
        """Whether so little lies between them that the number that does is said to be the least."""
        least = max(NEAR * abs(self.does - self.stated), CLOSE * abs(self.does), self.step)
        return abs(self.does - self.fails) <= least * (1 + HAIR)

    def at(self, near: float, far: float) -> Edit:
        """The edit with a number between these parts of the way, short where it need not be whole."""
        low, high = sorted(self.fails + part * (self.does - self.fails) for part in (near, far))
        if not self.step:
            return self._with(_shortest(low, high))
        first, last = sorted(round(one / self.step) for one in (self.fails, self.does))
        whole = round(0.5 * (low + high) / self.step)
        return self._with(self.step * min(max(whole, first + 1), last - 1)) if last - first > 1 else self.edit

    def _with(self, number: float) -> Edit:
        value = self.edit.value
        if isinstance(value, list):
            return replace(self.edit, value=[round(number) if i == self.side else v for i, v in enumerate(value)])
        if isinstance(value, str):
            return replace(self.edit, value=_money(number))
        return replace(self.edit, value=round(number) if isinstance(value, int) else number)


@dataclass
class Trials:
    """Tries repairs of one question: `ask` answers it for other inputs and options, while `left` holds.

    `note` hears of each trial before it begins: it may take as long as the question itself.
    """

    inputs: Inputs
    options: Mapping[str, Any]
    ask: Callable[[Inputs, Mapping[str, Any]], Outcome]
    left: Callable[[], bool] = lambda: True
    note: OnEvent = lambda _: None
    briefly: Callable[[Inputs, Mapping[str, Any]], Outcome] | None = None
    """The same where it need not be said what else helps: that may take longer than the answer."""
    sizing: str | None = None
    """How plans are sized, where not as the question says."""
    sketches: bool = False
    """Whether what is tried in simulation is sketched first: a program proved that there is no plan."""
    most: int = MOST_TRIALS
    """How many numbers of one repair are tried."""
    count: int = field(default=0, init=False)
    unplayed: bool = field(default=False, init=False)
    """Whether the last plan that was found was planned without simulation, though the question asks for it."""
    refuted: bool = field(default=False, init=False)
    """Whether it is proved that there is no plan with what was tried last."""

    def kept(self, repairs: Sequence[Repair]) -> tuple[Repair, ...]:
        """Those that do, with the numbers that do; joint ones where none does alone."""
        given = documents(self.inputs, self.options)
        found: list[_Does] = []
        failed: list[tuple[Edit, ...]] = []
        untried: list[Repair] = []
        for repair, edits in _ways(repairs, given, self._edits_of):
            if _asks_nothing(edits):
                continue
            if not edits or not self._may_go_on():
                untried.append(replace(repair, text=repair.text + UNTRIED))
                continue
            done = self._nudge(repair, edits, given)
            if done is None and not self.left():
                untried.append(replace(repair, text=repair.text + UNTRIED))  # stopped before its end
            elif done is None:
                failed.append(next(_moved_edits(edits, given, up=repair.verb == "raise")))
            else:
                found.append(_with_known_end(done))
        if not found:
            found += self._joint(failed, given)
        once: dict[Any, Repair] = {}
        for repair in (*self._least(found, given), *untried):
            at = frozenset((edit.file, edit.path, repr(edit.value)) for edit in repair.edits)
            once.setdefault(at or repair.text, repair)
        return tuple(once.values())

    def _least(self, found: Sequence[_Does], given: Documents) -> Iterator[Repair]:
        """What does, with the least numbers that were found to do; each has a share of the trials that are left."""
        first = self.count
        for number, one in enumerate(found):
            share = (MOST_HALVED - (self.count - first)) // (len(found) - number)
            less = self._halve(one, given, self.count + share)
            said = _repair_text(less, given)
            yield replace(said, text=said.text + UNPLAYED) if less.unplayed else said

    def _halve(self, does: _Does, given: Documents, last: int) -> _Does:
        """The same with numbers near to those that fail: each part of a joint repair by itself, the others as they are.

        `last` is the number of the last trial that it may make.
        """
        parts = [(edit,) for edit in does.edits] if does.repair.field == SEVERAL else [does.edits]
        for part in map(_places, parts):
            while True:
                ends = [_Ends.of(edit, does, given) for edit in does.edits if _place(edit) in part]
                if any(one is None or one.is_near for one in ends):
                    break
                if self.count >= last or not self.left():
                    return replace(does, is_near=False)
                is_first = not does.is_guess and all(one.fails == one.stated for one in ends if one)
                if is_first and self.sizing == "formula":
                    break  # the program's own least: that less fails is not worth its proof
                near, far = (1 - NEAR, 1 - NEAR / 2) if is_first else (0.4, 0.6)
                middle = tuple(one.at(near, far) for one in ends if one)
                tried = _merge_edits([does.edits, middle])
                if self._try_edits(tried, given, ask=self.briefly) is None:
                    does = replace(does, edits=tried, unplayed=self.unplayed, is_guess=True)
                elif self.left():  # else it may be the end of the time that kept it from a plan
                    does = replace(does, fails={**does.fails, **{_place(edit): edit.value for edit in middle}})
        return self._at_what_was_said(does, given) if self.count < last else does

    def _at_what_was_said(self, does: _Does, given: Documents) -> _Does:
        """The same with the program's own numbers, where they lie between what fails and what does, and do."""
        ends = [_Ends.of(edit, does, given) for edit in does.edits]
        said = [_Ends.of(edit, does, given) for edit in does.said]
        pairs = zip(ends, said, strict=False)
        between = (b and c and min(b.fails, b.does) < c.does < max(b.fails, b.does) for b, c in pairs)
        if not does.said or not all(between) or not self.left():
            return does
        if self._try_edits(does.said, given, ask=self.briefly) is None:
            return replace(does, edits=does.said, unplayed=self.unplayed)
        fails = {_place(edit): edit.value for edit in does.said} if self.left() else {}
        return replace(does, fails={**does.fails, **fails})

    def _edits_of(self, repair: Repair, given: Documents) -> tuple[Edit, ...]:
        """`edits_of`; a stock that zones share in the file is changed for all of them."""
        offers, places = self.inputs.profile.offers, self.inputs.profile.places
        found: list[tuple[Edit, ...]] = []
        for edit in edits_of(repair, given):
            stocks = [("offers", name, "stock") for name in offers] if edit.path[0] == "offers" else []
            shared = [at for at in stocks if at[2] == edit.path[-1] and places(at) == places(edit.path)]
            found.append(tuple(replace(edit, path=at) for at in shared) or (edit,))
        return _merge_edits(found)

    def _may_go_on(self) -> bool:
        return self.count < MOST_TRIALS and self.left()

    def _nudge(self, repair: Repair, edits: tuple[Edit, ...], given: Documents) -> _Does | None:
        """The repair with the first number on its way that does.

        After a number that does not, the one that is then said of the same field is taken, or one a little further.
        Where that is said again and again, it goes on by twice as far each time. In simulation no step is less than
        what makes a difference.
        """
        up, sketch = repair.verb == "raise", self._sketch(repair, edits, given)
        moved = _moved_edits(edits, given, up=up) if sketch is None else iter((sketch.edits,))
        first = tried = next(moved, ())
        said_again, beyond, leap, failed = 0, 0, NEAR, tuple[Edit, ...]()
        begun = tuple(replace(edit, value=_stated_or_begin(edit, repair, given)) for edit in edits)
        stated = tuple(replace(edit, value=value_at(given[edit.file], edit.path)) for edit in edits)
        guessed = repair.text.endswith(ABOUT)
        last = self.count + (MOST_ABOUT if guessed else self.most)
        while tried and self._may_go_on() and self.count < last:
            more = self._try_edits(tried, given)
            if more is None and sketch is not None and not failed:
                return replace(sketch, unplayed=self.unplayed)
            if more is None:
                fails = {
                    _place(one): one.value for one, does in zip(failed, tried, strict=False) if one.value != does.value
                }
                sketched = sketch.said if sketch is not None else ()
                return _Does(repair, tried, fails, self.unplayed, guessed, said=sketched)
            failed = tried
            now = edit_documents(given, tried)
            said = [one for one in more if guessed or not one.text.endswith(ABOUT)]
            more_of = (self._edits_of(one, now) for one in said)
            same = [_merge_edits([tried, new]) for new in more_of if new and set(_places(new)) <= set(_places(tried))]
            if more and not same and beyond < MOST_BEYOND and tried[0].path[-1] == "cost_per_hour":
                beyond += 1  # late when it is played: more money buys more room
                moved = _moved_edits(_edits_between(stated, tried, 2.0), given, up=up)
            elif said and not same:
                return None  # something else is missing
            if same and _sizes(same[0], up=up) > _sizes(tried, up=up):
                said_again += 1
                far = _edits_between(first, tried, 2.0) if said_again > FEW_SAID else same[0]
                moved = _moved_edits(max(far, same[0], key=lambda one: _sizes(one, up=up)), given, up=up)
            tried = next(moved, ())
            if sketch is not None:
                far = next(_moved_edits(_edits_between(begun, failed, 1.0 + leap), given, up=up), ())
                tried, leap = max(tried or far, far, key=lambda one: _sizes(one, up=up)), 2.0 * leap
        return None

    def _sketch(self, repair: Repair, edits: tuple[Edit, ...], given: Documents) -> _Does | None:
        """The repair with a number that does by the formula, and one that fails though no query waits."""
        if not self.sketches or self.sizing is not None or repair.text.endswith(ABOUT):
            return None
        rough = replace(self, sizing="formula", note=lambda _: None, most=MOST_SKETCHED)
        found = rough._nudge(repair, edits, given)
        if found is None:
            return None
        least = _Does(repair, next(_moved_edits(edits, given, up=repair.verb == "raise")))
        ends = [_Ends.of(edit, least, given) for edit in least.edits]
        short = tuple(one.at(*SHORT) for one in ends if one)
        if len(short) < len(ends) or short == least.edits:
            return replace(found, fails={})
        at_once = replace(rough, sizing="fluid")
        if at_once._try_edits(short, given, ask=self.briefly) is None:  # it was said from afar
            return replace(found, fails={}, is_guess=True)
        fails = {_place(edit): edit.value for edit in short} if at_once.refuted else {}
        return replace(found, fails=fails, said=least.edits)

    def _try_edits(
        self,
        edits: Sequence[Edit],
        given: Documents,
        ask: Callable[[Inputs, Mapping[str, Any]], Outcome] | None = None,
    ) -> tuple[Repair, ...] | None:
        """None where a plan is found with these edits; else what is said to help then."""
        self.count, self.refuted = self.count + 1, False
        words = _all_said(edits[:1], given) + (f", and {len(edits) - 1} more" if len(edits) > 1 else "")
        self.note(
            Event("repairs", f"trial {self.count} of at most {MOST_TRIALS + MOST_HALVED} of what may help: {words}")
        )
        try:
            changed, inputs = edit_documents(given, edits), self.inputs
            if any(edit.file == "slo" for edit in edits):
                inputs = replace(inputs, slo=Slo.model_validate(changed["slo"]))
            if any(edit.file == "profile" for edit in edits):
                inputs = replace(inputs, profile=Profile.model_validate(changed["profile"]))
            sized = {} if self.sizing is None else {"sizing": self.sizing}
            outcome = (ask or self.ask)(inputs, {**changed["options"], **sized})
        except (HetplanError, ValueError):
            return ()
        if outcome.plan is not None and outcome.exit_code in (0, 4):
            is_played = self.options.get("sizing", "simulation") == "simulation"
            unplayed = self.sizing is not None or any(one.code == "W-queueing" for one in outcome.warnings)
            self.unplayed = is_played and unplayed
            return None
        self.refuted = outcome.finding.found is Found.INFEASIBLE
        return tuple(repair for repair in outcome.repairs if not _asks_nothing(edits_of(repair, changed)))

    def _joint(self, failed: Sequence[tuple[Edit, ...]], given: Documents) -> Iterator[_Does]:
        """From all that do not do together, and from each of them, what else is missing, until a plan is found."""
        together = [list(failed)] if len(failed) > 1 else []
        for edits in [*together, *([first] for first in failed)]:
            if (needed := self._chain(edits, given)) is not None:
                yield _Does(Repair(SEVERAL, "change", None, None, "", ""), needed, unplayed=self.unplayed)
                if edits in together:
                    return

    def _chain(self, edits: list[tuple[Edit, ...]], given: Documents) -> tuple[Edit, ...] | None:
        """With what is said to be missing then, one after another; what changes nothing is taken back."""
        ways: list[tuple[Edit, ...]] = []
        before: set[str] = set()
        for _ in range(len(edits) + MOST_JOINED):
            if not self._may_go_on():
                return None
            joined = _merge_edits(edits)
            more = self._try_edits(joined, given)
            if more is None:
                return _merge_edits(self._needed_parts(edits, given))
            said = {repair.text for repair in more}
            if said == before:
                edits.pop()
            else:
                now = edit_documents(given, joined)
                ways = [
                    next(_moved_edits(e, now, up=r.verb == "raise")) for r, e in _ways(more, now, self._edits_of) if e
                ]
                # What was changed least often is next: a guess that is said again and again would hide the others.
                often = Counter(str(_places(one)) for one in edits)
                ways.sort(key=lambda one: often[str(_places(one))])
                before = said
            if not ways:
                return None
            edits.append(ways.pop(0))
        return None

    def _needed_parts(self, edits: list[tuple[Edit, ...]], given: Documents) -> list[tuple[Edit, ...]]:
        """Without the parts that are not needed."""
        kept = list(edits)
        for one in edits:
            rest = [other for other in kept if other is not one]
            if len(rest) > 0 and self._may_go_on() and self._try_edits(_merge_edits(rest), given) is None:
                kept = rest
        return kept


def _with_known_end(does: _Does) -> _Does:
    """With the number that fails, where who proposed the repair has tried that already: a part of a fleet, alone."""
    fails = does.repair.fails_at
    if fails is None or len(does.edits) != 1 or does.edits != does.repair.edits:
        return does
    return replace(does, fails={_place(does.edits[0]): fails})


def _asks_nothing(edits: Sequence[Edit]) -> bool:
    """A rate of 0 repairs nothing: it gives up what is asked for."""
    return any(edit.path[-1] == "rate_qps" and _is_number(edit.value) and float(edit.value) <= 0 for edit in edits)


def _ways(
    repairs: Sequence[Repair], given: Documents, edits_of: Callable[[Repair, Documents], tuple[Edit, ...]]
) -> list[tuple[Repair, tuple[Edit, ...]]]:
    """Each repair with its edits; those that only help together are one."""
    alone = [(repair, edits_of(repair, given)) for repair in repairs if TOGETHER not in repair.text]
    for of_rates in (False, True):  # limits are one joint change, rates another
        those = (one for one in repairs if TOGETHER in one.text and one.field.endswith("rate_qps") == of_rates)
        joined = [(repair, edits_of(repair, given)) for repair in those]
        if joined and all(edits for _, edits in joined):
            first = replace(joined[0][0], field=SEVERAL, text=", and ".join(repair.text for repair, _ in joined))
            alone.append((first, _merge_edits([edits for _, edits in joined])))
    return alone


def _place(edit: Edit) -> Place:
    return edit.file, edit.path


def _places(edits: Sequence[Edit]) -> list[Place]:
    return [_place(edit) for edit in edits]


def _stated_or_begin(edit: Edit, repair: Repair, given: Documents) -> Any:
    """What is stated where an edit goes; where nothing is, what its repair begins at."""
    stated = value_at(given[edit.file], edit.path)
    if isinstance(edit.value, list):
        return list(stated) if isinstance(stated, list | tuple) else [0, stated]
    if stated is None and repair.amount is not None and isinstance(repair.to, int | float):
        return repair.to - repair.amount * (1 if repair.verb == "raise" else -1)
    return stated


def _step_of(edit: Edit, given: Documents) -> float:
    """The step between two values of a field that make a difference; 0 where any value may."""
    if isinstance(edit.value, int | list) or edit.path[-1] in COUNTS:
        return 1.0
    if edit.path[:2] == ("limits", "provides"):
        provides = [one.get("provides", {}) for one in given["profile"].get("hardware", {}).values()]
        amounts = [float(one[edit.path[2]]) for one in provides if edit.path[2] in one]
        return float(math.gcd(*map(int, amounts))) if all(map(float.is_integer, amounts)) else 0.0
    return 0.0


def _shortest(low: float, high: float) -> float:
    """The number with the fewest digits from `low` to `high`, both above 0.

    >>> _shortest(331.2, 338.0), _shortest(0.5371, 0.5412), _shortest(0.0, 3.0)
    (335.0, 0.54, 1.5)
    """
    if low <= 0 or high - low < HAIR * high:
        return 0.5 * (low + high)
    unit = 10.0 ** math.floor(math.log10(high))
    while True:
        for part in (unit, unit / 2):
            found = float(f"{math.ceil(low / part - HAIR) * part:.12g}")
            if low - HAIR * high <= found <= high:
                return found
        unit /= 10.0


def _sizes(edits: Sequence[Edit], *, up: bool) -> list[float]:
    """How far numbers go; what differs by a hair is alike."""
    given = [edit.value[-1] if isinstance(edit.value, list) else edit.value for edit in edits]
    return [float(f"{float(value):.6g}") * (1 if up else -1) if _is_number(value) else 0.0 for value in given]


def _edits_between(first: Sequence[Edit], second: Sequence[Edit], part: float) -> tuple[Edit, ...]:
    """Edits of the same places with numbers on the way from the first to the second; with more than 1, beyond it.

    >>> _edits_between([Edit("slo", ("a",), 8)], [Edit("slo", ("a",), 11)], 0.5)
    (Edit(file='slo', path=('a',), value=9),)
    >>> _edits_between([Edit("slo", ("a",), 5.0)], [Edit("slo", ("a",), 2.4)], 2.0)  # not below 0: it is halved
    (Edit(file='slo', path=('a',), value=1.2),)
    """

    def way(old: Any, new: Any) -> Any:
        if isinstance(new, list):
            return [way(a, b) for a, b in zip(old, new, strict=True)]
        if isinstance(new, bool) or not (_is_number(old) and _is_number(new)):
            return new
        found = float(old) + part * (float(new) - float(old))
        return type(new)(found if found > 0 else float(new) / 2) or new

    return tuple(replace(b, value=way(a.value, b.value)) for a, b in zip(first, second, strict=True))


def _merge_edits(edits: Sequence[tuple[Edit, ...]]) -> tuple[Edit, ...]:
    """All edits, the last one of each place."""
    last = {(edit.file, edit.path): edit for several in edits for edit in several}
    return tuple(last.values())


def _moved_edits(edits: Sequence[Edit], given: Documents, *, up: bool) -> Iterator[tuple[Edit, ...]]:
    """The edits with their numbers rounded, then moved on by ever more."""
    before: tuple[Edit, ...] = ()
    for nudge in NUDGES:
        made = tuple(_one_moved(edit, given, nudge, up=up) for edit in edits)
        if made and made != before:
            yield made
        before = made


def _one_moved(edit: Edit, given: Documents, nudge: float, *, up: bool) -> Edit:
    value, stated = edit.value, value_at(given[edit.file], edit.path)
    if isinstance(value, list):
        # Bounds on instances: that one is moved that was changed.
        old = list(stated) if isinstance(stated, list | tuple) else [0, stated]
        moved = [v if v == o or v is None else _distance(v, nudge, up=up) for v, o in zip(value, old, strict=True)]
        return replace(edit, value=moved)
    if isinstance(value, bool | dict) or (isinstance(value, str) and not _is_number(value)):
        return edit
    if isinstance(value, int) or (isinstance(stated, int) and float(value).is_integer() and edit.path[-1] in COUNTS):
        return replace(edit, value=_distance(int(value), nudge, up=up))
    beside = float(stated) if isinstance(stated, int | float | str) and _is_number(stated) else None
    step = nudge * abs(float(value))
    new = _rounded(float(value) + (step if up else -step), up=up, beside=beside)
    if step_of := _step_of(edit, given):
        new = step_of * (math.ceil if up else math.floor)(new / step_of + (-HAIR if up else HAIR))
    return replace(edit, value=_money(new) if edit.path[-1] == "cost_per_hour" else new)


def _money(amount: float) -> str:
    return f"{amount:.9f}".rstrip("0").rstrip(".")


def _distance(value: int, nudge: float, *, up: bool) -> int:
    step = math.ceil(nudge * value) if nudge >= 1e-2 else 0
    return value + step if up else max(0, value - step)


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _repair_text(does: _Does, given: Documents) -> Repair:
    """The repair with the numbers that were tried, in words: what does, and what fails near by."""
    repair, edits = does.repair, does.edits
    remark = re.search(r"(: [^,]* serves them in time|, or [^,]*| \((?!fails at)[^()]*\))$", repair.text)
    more = remark[1] if remark is not None and "together" not in remark[1] else ""
    more += "" if does.is_near else LESS
    to, fails_at = _to(does, edits, given), None
    if does.fails and repair.field != SEVERAL:
        failing = tuple(replace(edit, value=does.fails.get(_place(edit), edit.value)) for edit in edits)
        fails_at = _to(does, failing, given)
    amount = repair.amount
    stated = _stated_value(edits[0], given)
    if amount is not None and isinstance(to, int | float) and isinstance(stated, int | float):
        amount = abs(float(to) - float(stated))
    text = _all_said(edits, given, repair, does.fails) + more
    return replace(repair, to=to, amount=amount, text=text, edits=edits, fails_at=fails_at)


def _to(does: _Does, edits: Sequence[Edit], given: Documents) -> float | str | None:
    """What a repair says of edits with one number: that number; the part of all rates; the machines of a mix."""
    repair, value = does.repair, edits[0].value
    if repair.field == SEVERAL or isinstance(value, dict):
        return None
    if "*" in repair.field:
        return float(value) / float(value_at(given[edits[0].file], edits[0].path))
    if isinstance(value, list) and len(edits) > 1:
        return ", ".join(f"{edit.value[1]} {edit.path[-1]}" for edit in edits)
    if isinstance(value, list):
        return int(value[_side(does.edits[0].value, value_at(given[edits[0].file], edits[0].path))])
    if isinstance(repair.to, str) and not _is_number(repair.to):
        return repair.to
    return float(value) if isinstance(repair.to, float) and _is_number(value) else value


def _side(value: Sequence[Any], stated: Any) -> int:
    """Which of two bounds was changed."""
    old = list(stated) if isinstance(stated, list | tuple) else [0, stated]
    return next((side for side in (1, 0) if old[side] != value[side]), 1)


def _stated_value(edit: Edit, given: Documents) -> Any:
    stated = value_at(given[edit.file], edit.path)
    if isinstance(edit.value, list):
        old = list(stated) if isinstance(stated, list | tuple) else [0, stated]
        return next((o for o, v in zip(old, edit.value, strict=True) if o != v), None)
    return stated


def _all_said(
    edits: Sequence[Edit], given: Documents, of: Repair | None = None, fails: Mapping[Place, Any] | None = None
) -> str:
    """Edits in words: what each field is, what it becomes, and what `fails`; of a repair with its unit and its verb."""
    unit, verb = (of.unit, of.verb) if of is not None and of.field != SEVERAL else ("", "set")
    hosts = Counter(edit.value["offer"] for edit in edits if edit.path[0] == "hosts")
    added = [f"add {count} {'host' if count == 1 else 'hosts'} of offer {offer} to profile.hosts"
             for offer, count in hosts.items()]  # fmt: skip
    said = [
        _in_words(edit, given, unit, verb, (fails or {}).get(_place(edit))) for edit in edits if edit.path[0] != "hosts"
    ]
    return ", and ".join([*said, *added])


def _in_words(edit: Edit, given: Documents, unit: str, verb: str, fails: Any) -> str:
    at = edit.file
    for step in edit.path:
        at += f"[{step}]" if isinstance(step, int) else f".{step}"
    stated, value = value_at(given[edit.file], edit.path), edit.value
    if isinstance(value, list):
        side = _side(value, stated)
        old = list(stated) if isinstance(stated, list | tuple) else [0, stated]
        at, stated, value = f"{at}[{side}]", old[side], value[side]
        fails = fails[side] if isinstance(fails, list) else fails
    known = "ms" if edit.path[-2:-1] == ("latency",) else {"rate_qps": "qps"}.get(str(edit.path[-1]))
    unit = known or ("" if unit == edit.path[-1] else unit)
    if _is_number(stated) and _is_number(value):
        verb = "lower" if float(value) < float(stated) else "raise"
    was = "" if stated is None else f" from {_file_text(stated)}"
    less = "" if fails is None else f" (fails at {_file_text(fails)})"
    return f"{verb} {at}{was} to {_file_text(value)}{f' {unit}' if unit else ''}{less}"


def _file_text(value: Any) -> str:
    """A value as the file would have it."""
    if isinstance(value, float):
        return f"{value:.9g}"
    return value if isinstance(value, str) else json.dumps(value)

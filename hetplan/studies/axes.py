"""What is varied: a name or a JSON path of profile or SLO, and the values that it takes.

``budget=1:5`` goes from 1 to 5; ``price:t4=x0.5:x2`` from half of what the file says to twice that;
``stock:a10g=0,4,8`` takes three values. Every value is written into a copy of the files, which is read and checked as
files are.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any

from hetplan.errors import InputError
from hetplan.planner.draft import Edit
from hetplan.planner.repairs import edit_documents, steps_of, value_at
from hetplan.profiles.canonical import digest
from hetplan.profiles.columns import STATISTICS
from hetplan.profiles.fields import MOST, MOST_MONEY, NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.json_path import closest, json_path
from hetplan.profiles.load_one import load_profile
from hetplan.profiles.mix import count_into_bins
from hetplan.profiles.one_order import in_one_order
from hetplan.profiles.profile import Profile
from hetplan.profiles.profile_file import ProfileFile
from hetplan.profiles.slo import LatencyTarget, Slo
from hetplan.profiles.validate import validate

__all__ = ["FACTORS", "Axis", "Files", "axis_of", "change_inputs", "factor", "own_prices"]

POINTS = 5
"""Values of a range that are tried at first; where the fleet changes is then looked for between them."""

FACTORS = ("demand", "latency", "prices")
"""Names that stand for many numbers at once: the value is what each of them is multiplied with."""

SHORT_NAMES = {
    "budget": "slo.limits.cost_per_hour",
    "price:OFFER": "profile.offers.OFFER.price_per_hour",
    "stock:OFFER": "profile.offers.OFFER.stock",
    "rate:APP": "slo.apps.APP.rate_qps",
    "quality:APP": "slo.apps.APP.quality.min",
    "p99:APP, ttft_p95:APP": "the limit of that percentile: slo.apps.APP.latency.p99_ms, ttft_p95_ms",
    "demand, demand:APP": "a factor on the rates of all applications, or of one",
    "latency, latency:HARDWARE": "a factor on measured times, and its inverse on measured rates",
    "prices, prices:OFFER": "a factor on all prices that are paid, or on those of one offer's machines",
}

Documents = dict[str, Any]


@dataclass(frozen=True)
class Files:
    """The files of a question as documents, read once; `inputs_with` reads them again with small changes.

    The profile is among them twice: as it is planned with ("profile"), and as its file has it ("file").
    """

    inputs: Inputs
    documents: Documents

    @classmethod
    def of(cls, inputs: Inputs) -> Files:
        """The documents that these inputs were read from, whatever was left out left out."""
        given = {"slo": _plain(inputs.slo), "profile": _plain(inputs.profile)}
        return cls(inputs, {**given, "file": inputs.profile.places.file})

    def inputs_with(self, documents: Documents) -> Inputs:
        """The inputs of changed documents; InputError where they cannot be read."""
        inputs, digests = self.inputs, dict(self.inputs.digests)
        if documents["slo"] != self.documents["slo"]:
            slo = validate(Slo, documents["slo"], file=inputs.files.get("slo", "slo"))
            inputs, digests["slo"] = replace(inputs, slo=_counted(slo)), digest(documents["slo"])
        if any(documents[name] != self.documents[name] for name in ("profile", "file")):
            profile = self._profile_with(documents)
            inputs, digests["profile"] = replace(inputs, profile=profile), digest(_plain(profile))
        return replace(inputs, digests=digests)

    def _profile_with(self, documents: Documents) -> Profile:
        """The profile of a file that is changed, with what is changed beside it where it is planned with."""
        name, read, planned = self.inputs.files.get("profile", "profile"), self.inputs.profile, documents["profile"]
        if documents["file"] != self.documents["file"]:
            try:
                read = in_one_order(load_profile(documents["file"]))
            except InputError as error:
                raise InputError([replace(one, file=name) for one in error.faults]) from None
            planned = _changed(planned, self.documents["profile"], _plain(read))
        profile = validate(Profile, planned, file=name)
        vars(profile)["places"] = places = read.places
        for table_id, table in profile.tables.items():
            table.named(table_id, file=name, written=places(("tables", table_id)))
        return profile


def _plain(model: Profile | Slo) -> Documents:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _changed(given: Any, before: Any, after: Any) -> Any:
    """What is given, with what differs between two others.

    >>> _changed({"a": 2, "b": 5, "c": 1}, {"a": 1, "b": 5, "c": 1}, {"a": 1, "b": 6})
    {'a': 2, 'b': 6}
    """
    if before == after:
        return given
    if isinstance(given, dict) and isinstance(before, dict) and isinstance(after, dict):
        kept = {key: one for key, one in given.items() if key in after or key not in before}
        new = {key: one for key, one in after.items() if key not in before}
        new |= {key: _changed(one, before[key], after[key]) for key, one in kept.items() if key in before}
        return kept | new
    if all(isinstance(one, list) for one in (given, before, after)) and len(given) == len(before) == len(after):
        return [_changed(*three) for three in zip(given, before, after, strict=True)]
    return after


def _counted(slo: Slo) -> Slo:
    """Observed sizes counted into their bins, as when a file is read."""
    apps = dict(slo.apps)
    for name, app in slo.apps.items():
        mix = app.mix
        if mix is not None and mix.observed is not None and "output_tokens" not in mix.axes:
            apps[name] = app.model_copy(update={"mix": count_into_bins(mix)})
    return slo.model_copy(update={"apps": apps})


@dataclass(frozen=True)
class Axis:
    """One thing that varies: where it is in the files, what it is there now, and the values to begin with."""

    name: str
    path: tuple[str, tuple[str | int, ...]] | None
    now: float | None
    values: tuple[float, ...]
    kind: str = "number"
    """number, whole (of machines), money (a decimal text in the files), factor"""
    unit: str = ""

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the greatest value."""
        return min(self.values), max(self.values)

    @property
    def gives(self) -> int:
        """+1 where more of it only gives room (a budget, a stock, a time), -1 where it only takes it, else 0."""
        if self.path is None:
            return -1 if self.name == "demand" else 0
        if self.path[1][-2:-1] == ("latency",):
            return 1
        return {"cost_per_hour": 1, "stock": 1, "rate_qps": -1, "min": -1}.get(str(self.path[1][-1]), 0)

    def middle(self, low: float, high: float) -> float | None:
        """A value between two others; None where there is none worth trying."""
        if self.kind == "whole":
            found = float(math.floor((low + high) / 2))
        else:
            found = self.rounded((low + high) / 2)
        return found if low < found < high else None

    def rounded(self, value: float) -> float:
        """As it is written: whole numbers whole, money to 1e-9, others to 12 digits."""
        if self.kind == "whole":
            return float(round(value))
        return round(value, 9) if self.kind == "money" else float(f"{value:.12g}")

    def written(self, documents: Documents, value: float) -> Documents:
        """The documents with this value in them."""
        if self.path is None:
            return factor(documents, self.name, value)
        file, steps = self.path
        said: Any = value
        if self.kind == "whole":
            said = round(value)
        elif self.kind == "money":
            said = _money(1, value)
        return edit_documents(documents, [Edit(file, steps, said)])


def change_inputs(files: Files, axes: Sequence[Axis], values: Sequence[float]) -> Inputs:
    """The inputs with these values on these axes."""
    documents = files.documents
    for axis, value in zip(axes, values, strict=True):
        documents = axis.written(documents, value)
    try:
        return files.inputs_with(documents)
    except InputError as error:
        at = ", ".join(f"{axis.name}={value:g}" for axis, value in zip(axes, values, strict=True))
        faults = [replace(one, why=f"{one.why} (with --vary {at})") for one in error.faults]
        raise InputError(faults) from None


def axis_of(text: str, files: Files) -> Axis:
    """The axis of `NAME=RANGE`; InputError says what is wrong with it, and which names there are."""
    name, sign, said = text.partition("=")
    name = name.strip()
    if not sign or not name or not said.strip():
        raise _wrong(text, "NAME=RANGE is what an axis looks like", "Write --vary budget=1:5, or budget=1,2,3.")
    head, _, below = name.partition(":")
    if head in FACTORS:
        of: dict[str, tuple[str, Mapping[str, Any]]] = {
            "demand": ("application", files.inputs.slo.apps),
            "latency": ("machine type", files.inputs.profile.hardware),
            "prices": ("price", files.inputs.profile.offers),
        }
        what, known = of[head]
        if below and below not in known:
            raise _unknown(name, below, what, known)
        return Axis(name, None, 1.0, _values(said, 1.0, "factor", text), "factor", "times")
    file, steps = _place(name, head, below, files)
    for offer in files.inputs.profile.offers:
        at = ("offers", offer, "price_per_hour")
        if steps == (at if file == "profile" else files.inputs.profile.places(at)):
            _refuse_unpaid(name, offer, files.inputs.profile)
    now = value_at(files.documents[file], steps)
    if file == "file" and isinstance(now, dict | list | tuple):
        inside = next(iter(now), "") if isinstance(now, dict) else 0
        why = f"{'an object' if isinstance(now, dict) else 'a list'}, and a number varies"
        raise _wrong(name, why, f"Name a number in it, as {json_path((*steps, inside)).replace('$', 'profile', 1)}.")
    kind = _kind(files, file, steps, now)
    number = _number(now)
    return Axis(name, (file, steps), number, _values(said, number, kind, text), kind, _unit(file, steps, kind))


def _place(name: str, head: str, below: str, files: Files) -> tuple[str, tuple[str | int, ...]]:
    """Where in which file."""
    offers, apps = files.inputs.profile.offers, files.inputs.slo.apps
    if name == "budget":
        return "slo", ("limits", "cost_per_hour")
    if head in ("price", "stock"):
        if below not in offers:
            raise _unknown(name, below, "price", offers)
        return "profile", ("offers", below, "price_per_hour" if head == "price" else "stock")
    limit = LatencyTarget.named(head)
    if head in ("rate", "quality") or limit is not None:
        if not below and len(apps) != 1:
            raise _wrong(name, f"there are {len(apps)} applications", f"Say which: {head}:{next(iter(apps), 'APP')}.")
        app = below or next(iter(apps))
        if app not in apps:
            raise _unknown(name, app, "application", apps)
        if limit is None:
            return "slo", ("apps", app, *(("rate_qps",) if head == "rate" else ("quality", "min")))
        return "slo", ("apps", app, "latency", _limit_meant(name, head, app, limit, apps[app].targets))
    return _by_path(name, files)


def _limit_meant(name: str, head: str, app: str, named: LatencyTarget, targets: Sequence[LatencyTarget]) -> str:
    """The key of the limit that a name means: of any time where it says a percentile alone, if one limit has that."""
    is_bare = head.startswith("p")
    of_it = [one for one in targets if math.isclose(one.percentile, named.percentile)]
    found = [one for one in of_it if is_bare or one.of == named.of]
    if not found:
        raise _wrong(name, f"{app} has no limit of that percentile", "Add one under latency, or vary another.")
    if len(found) > 1:
        # The response time with its word: without it this would be the same name again.
        said = [f"{one.of}_p{one.percentile:.12g}:{app}" for one in found]
        raise _wrong(name, f"{app} has {len(found)} limits of that percentile", f"Say which: {' or '.join(said)}.")
    return found[0].key


def own_prices(profile: Profile, hardware: str) -> dict[str, int | None]:
    """What each run on this hardware costs by itself, by its place in the file; None: it pays what an offer says."""
    return {
        f"profile.{profile.places.text(f'variants.{name}.runs[{place}].price_per_hour')}": run.price_per_hour
        for name, variant in profile.variants.items()
        for place, run in enumerate(variant.runs)
        if run.hardware == hardware
    }


def _refuse_unpaid(name: str, offer: str, profile: Profile) -> None:
    """An offer's price is what nobody pays where all runs on its hardware have prices by themselves."""
    sold = profile.offers.get(offer)
    own = own_prices(profile, sold.hardware) if sold is not None else {}
    if sold is not None and own and None not in own.values():
        why = f"every run on {sold.hardware} has its own price, which is paid instead of the machine's"
        raise _wrong(name, why, f"Vary prices:{offer}=0.5:2, a factor on what is paid, or {next(iter(own))}.")


def _by_path(name: str, files: Files) -> tuple[str, tuple[str | int, ...]]:
    plain = name.removeprefix("$.")
    file, dot, rest = plain.partition(".")
    if file not in ("slo", "profile"):
        known = ", ".join(SHORT_NAMES)
        raise _wrong(name, "no name of something that can vary", f"Known: {known}, or slo.PATH and profile.PATH.")
    file = "file" if file == "profile" else file
    steps = steps_of(rest, files.documents[file]) if dot else None
    if not steps:
        raise _wrong(name, "a path that can be read", "Write it as in messages: slo.apps.web.latency.p99_ms.")
    if file == "file":
        _refuse_unknown(name, steps, files.documents[file])
    return file, steps


def _refuse_unknown(name: str, steps: Sequence[str | int], document: Documents) -> None:
    """A section that profile files do not have, or a machine type or model that is in none."""
    section, *inside = map(str, steps)
    if section not in ProfileFile.model_fields:
        raise _unknown(name, section, "section of profiles", ProfileFile.model_fields)
    what = {"machines": "machine type", "models": "model"}.get(section)
    known = document.get(section, {})
    if what is not None and inside and inside[0] not in known:
        raise _unknown(name, inside[0], what, known)


def _kind(files: Files, file: str, steps: tuple[str | int, ...], now: Any) -> str:
    """Whether whole numbers, money or any number go there: what the reader of the files takes."""
    if steps[-1] in ("price_per_hour", "cost_per_hour"):
        return "money"
    if steps[-1] in ("stock", "least", "most") or "instances" in steps:
        return "whole"
    if now is not None and (isinstance(now, bool) or not isinstance(now, int)):
        return "number"

    def is_read(value: float) -> bool:
        try:
            files.inputs_with(edit_documents(files.documents, [Edit(file, steps, value)]))
        except InputError:
            return False
        return True

    whole = 1 if now is None else now
    return "whole" if not is_read(whole + 0.5) and (now is not None or is_read(whole)) else "number"


def _number(now: Any) -> float | None:
    try:
        return None if now is None or isinstance(now, bool) else float(now)
    except (TypeError, ValueError):
        return None


def _unit(file: str, steps: tuple[str | int, ...], kind: str) -> str:
    last = str(steps[-1])
    if kind == "money":
        return "per hour"
    if steps[-2:-1] == ("latency",):
        return "ms"
    return {"rate_qps": "qps", "stock": "machines"}.get(last, last if isinstance(last, str) else file)


def _values(said: str, now: float | None, kind: str, text: str) -> tuple[float, ...]:
    """The values of a RANGE, rising."""
    said = said.strip()
    if ":" not in said:
        found = [_value(one, now, text) for one in said.split(",")]
    else:
        low, high, *rest = said.split(":")
        ends = _value(low, now, text), _value(high, now, text)
        count = POINTS
        if rest:
            if not rest[0].isdigit() or not 2 <= int(rest[0]) <= 10_000:
                raise _wrong(text, "the third part is how many values: at least 2", "Write 1:5:9.")
            count = int(rest[0])
        if not ends[0] < ends[1]:
            raise _wrong(text, "a range goes from a lower to a higher value", "Write LOW:HIGH.")
        if rest[1:] not in ([], ["log"]) or (rest[1:] and ends[0] <= 0):
            raise _wrong(text, "the fourth part is log, from above 0, or nothing", "Write 1:100:9:log.")
        found = list(_spaced_values(*ends, count, log=bool(rest[1:])))
    most = MOST_MONEY if kind == "money" else MOST
    if any(abs(value) > most for value in found):
        raise _wrong(text, f"no value of it may be above {most:g}", "Write a range within what the files take.")
    axis = Axis("", None, None, (), kind)
    return tuple(sorted({axis.rounded(value) for value in found}))


def _spaced_values(low: float, high: float, count: int, *, log: bool) -> Iterator[float]:
    for place in range(count):
        part = place / (count - 1)
        yield low * (high / low) ** part if log else low + (high - low) * part


def _value(text: str, now: float | None, whole: str) -> float:
    """A number; `x0.5` is half of what is there now, `+20%` a fifth more."""
    text = text.strip()
    relative: Callable[[float], float] | None = None
    body = text
    if text[:1] in ("x", "×"):
        body, relative = text[1:], lambda part: part
    elif text.endswith("%"):
        body, relative = text[:-1], lambda part: 1.0 + part / 100.0
    try:
        number = float(body)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _wrong(whole, f"{text!r} is no number", "Write 0.5, x0.5 (times what it is) or +20%.")
    if relative is None:
        return number
    if now is None:
        raise _wrong(whole, "the files say no number there that could be multiplied", "Write plain numbers.")
    return now * relative(number)


def factor(documents: Documents, name: str, value: float) -> Documents:
    """The documents with all rates, times or prices multiplied.

    >>> documents = {"profile": {"offers": {"a": {"price_per_hour": "0.5"}}}, "slo": {}}
    >>> factor(documents, "prices", 1.1)["profile"]["offers"]["a"]["price_per_hour"]
    '0.55'
    """
    found = copy.deepcopy(documents)
    head, _, below = name.partition(":")
    if head == "prices":
        _dearer(found["profile"], below, value)
    elif head == "demand":
        for app_id, app in found["slo"].get("apps", {}).items():
            if below in ("", app_id):
                _more_demand(app, value)
    else:
        _slower(found["profile"], below, value)
    return found


def _dearer(profile: dict[str, Any], offer_id: str, value: float) -> None:
    """All prices multiplied, or those of one offer and of the runs on its hardware that have prices by themselves."""
    offers = profile.get("offers", {})
    sold = [offers[offer_id]] if offer_id else list(offers.values())
    runs = [run for variant in profile.get("variants", {}).values() for run in variant["runs"]]
    paid = [run for run in runs if not offer_id or run["hardware"] == sold[0]["hardware"]]
    paid += [offer["commit"] for offer in sold if offer.get("commit") is not None]
    for one in [*sold, *paid]:
        for name in ("price_per_hour", "upfront"):
            if one.get(name) is not None:
                one[name] = _money(one[name], value)


def _money(said: Any, value: float) -> str:
    """To 1e-9; an amount that no file takes is written too, and refused where it is read."""
    exact = Context(prec=100)
    amount = exact.multiply(Decimal(str(said)), Decimal(repr(value)))
    return format(amount.quantize(Decimal(1) / NANO, context=exact).normalize(exact), "f")


def _more_demand(app: dict[str, Any], value: float) -> None:
    rate = app.get("rate_qps")
    if isinstance(rate, int | float):
        app["rate_qps"] = rate * value
    elif isinstance(rate, dict):
        for name, said in rate.items():
            if isinstance(said, int | float):
                rate[name] = said * value
            elif isinstance(said, list | tuple):
                rate[name] = [qps * value for qps in said]


def _slower(profile: dict[str, Any], hardware: str, value: float) -> None:
    """Times multiplied, rates divided: of all tables, or of those that runs on one hardware use."""
    runs = [
        run
        for variant in profile.get("variants", {}).values()
        for run in variant["runs"]
        if run["hardware"] == hardware or not hardware
    ]
    used = {run[kind] for run in runs for kind in ("latency", "rate", "engine") if run.get(kind) is not None}
    for name, table in profile.get("tables", {}).items():
        by = {"latency_ms": value, "ttft_ms": value, "tpot_ms": value, "requests_per_s": 1.0 / value}.get(
            table["quantity"]
        )
        if by is not None and (name in used or not hardware):
            for statistic in STATISTICS:
                if table.get(statistic) is not None:
                    table[statistic] = _times(table[statistic], by)
    for name, engine in profile.get("engines", {}).items():
        if name in used or not hardware:
            for law in (*engine.get("pieces", ()), *([engine["law"]] if engine.get("law") else ())):
                law.update({name: _times(number, value) for name, number in law.items() if name.endswith("_ms")})


def _times(grid: Any, by: float) -> Any:
    return [_times(one, by) for one in grid] if isinstance(grid, list | tuple) else None if grid is None else grid * by


def _wrong(value: str, why: str, remedy: str) -> InputError:
    return InputError.one(file="--vary", value=value, why=why, remedy=remedy)


def _unknown(name: str, word: str, what: str, known: Mapping[str, Any]) -> InputError:
    listed = ", ".join(known) or "none"
    return _wrong(name, f"no {what} {json_path([word])[2:]}", f"{closest(word, known)}There are {listed}.")

"""From files (or documents, or models) to `Inputs`: read, merged, validated, cross-checked, hashed.

All faults of all files are raised together, in one `InputError`. A thing with a fault of its own is set aside, and the
references of everything else are still checked. A number in the wrong unit (seconds as ms, a price per month) gives a
plan of no use without any error: so plans warn of what is outside the usual ranges.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import ValidationError

from hetplan.errors import Fault, InputError
from hetplan.profiles.canonical import digest
from hetplan.profiles.columns import Statistic
from hetplan.profiles.dangling import known_ids
from hetplan.profiles.fields import NANO, Model
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.json_path import json_path
from hetplan.profiles.one_order import in_one_order
from hetplan.profiles.places import FileOf, Origins, Places, Steps
from hetplan.profiles.profile import Profile
from hetplan.profiles.read_json import format_faults, is_newer, read_json, source_name
from hetplan.profiles.references import References
from hetplan.profiles.slo import Slo
from hetplan.profiles.tables import Table
from hetplan.profiles.validate import collector_at_rest
from hetplan.profiles.yaml_text import with_lines

if TYPE_CHECKING:
    from hetplan.profiles.state import State
    from hetplan.profiles.validation_faults import Located

__all__ = [
    "Given",
    "Loaded",
    "Suspicion",
    "count_observed",
    "load_inputs",
    "read_kind",
    "suspicious_profile",
    "suspicious_slo",
]


M = TypeVar("M", bound=Model)
N = TypeVar("N", bound=Model)
Given = str | os.PathLike[str] | bytes | Mapping[str, Any] | Model
Warnings = list[tuple[str, str, str]]


@dataclass
class Loaded(Generic[M]):
    """One kind of file, as far as it could be read."""

    name: str
    file_of: FileOf
    model: M | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    warnings: Warnings = field(default_factory=list)
    places: Places = field(default_factory=Places)
    """Where what is planned with stands in the files."""
    set_aside: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Machine types and models of files with faults, of which some are not in the document."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of what was read: what is planned with, however a file says it."""
        return digest(self.document)

    @cached_property
    def suspicions(self) -> Warnings:
        """Numbers of a profile that look like another unit; every plan made from it warns of them."""
        if not isinstance(self.in_order, Profile):
            return []
        return [(code, self.places.text(at), text) for code, at, text in suspicious_profile(self.in_order)]

    @cached_property
    def in_order(self) -> M:
        """The model as it is planned: in one order of keys, however the file lists them."""
        assert self.model is not None
        return in_one_order(self.model)

    @cached_property
    def known(self) -> dict[str, set[str]]:
        """The ids of every section, for references to them."""
        return known_ids(self.document, self.set_aside)


def load_inputs(
    profiles: Given | Sequence[Given] | Loaded[Profile],
    slo: Given,
    *,
    state: Given | None = None,
    measured: Given | None = None,
    folder: Path | None = None,
) -> Inputs:
    """Everything that a question is asked about; each source is a path, the bytes of a file, a document or a model.

    Paths in an SLO (of traces) are relative to `folder`: by default that of its file, or the working directory.
    """
    with collector_at_rest():
        return _load_inputs(profiles, slo, state, measured, folder)


def _load_inputs(
    profiles: Given | Sequence[Given] | Loaded[Profile], slo: Given, state: Any, measured: Any, folder: Path | None
) -> Inputs:
    profile = profiles if isinstance(profiles, Loaded) else read_kind(profiles, "profile", Profile)
    read_slo = read_kind([slo], "slo", Slo)
    read_state = _state(state) if state is not None else None
    faults = profile.faults + read_slo.faults + (read_state.faults if read_state else [])
    warnings = profile.warnings + read_slo.warnings + (read_state.warnings if read_state else [])
    faults += _dangling(profile, read_slo, read_state, profile_checked=isinstance(profiles, Loaded))
    if read_slo.model is not None:
        read_slo.model, not_counted = count_observed(read_slo.model, read_slo.file_of)
        faults += not_counted
    traces, hashes = dict[str, Any](), dict[str, str]()
    if read_slo.model is not None and any(app.trace for app in read_slo.model.apps.values()):
        from hetplan.profiles.traces import read_traces

        folder = folder or (Path(slo).parent if isinstance(slo, str | os.PathLike) else Path.cwd())
        faults += read_traces(read_slo.model, folder, read_slo.name, traces, hashes)
    measured_document = None
    if measured is not None:
        try:
            from hetplan.profiles.measured import measured_document_of

            name = source_name(measured, "measured")
            measured_document = measured_document_of(
                measured, name, lambda: _document(measured, "measured", name, Model)
            )
        except InputError as error:
            faults += error.faults
    if faults or profile.model is None or read_slo.model is None:
        raise InputError(with_lines(dict.fromkeys(faults)))
    read_slo.model, in_order = in_one_order(read_slo.model), profile.in_order
    warnings += [*profile.suspicions, *suspicious_slo(read_slo.model)]
    if any(offer.currency != read_slo.model.limits.currency for offer in in_order.offers.values()):
        from hetplan.profiles.currency import in_their_currency

        read_slo.model = in_their_currency(read_slo.model, in_order)
    read: dict[str, Loaded[Any]] = {"profile": profile, "slo": read_slo}
    read |= {"state": read_state} if read_state is not None else {}
    digests = {name: one.digest for name, one in read.items()}
    files = {name: one.name for name, one in read.items()}
    if measured is not None:
        digests["measured"], files["measured"] = digest(measured_document), source_name(measured, "measured")
    inputs = Inputs(
        profile=in_order,
        slo=read_slo.model,
        state=_state_of(read_state, in_order),
        measured=measured_document,
        traces=traces,
        digests=digests,
        trace_digests=hashes,
        files=files,
        warnings=tuple(dict.fromkeys(warnings)),
    )
    if measured is not None:
        from hetplan.profiles.measured import refuse_malformed_measurements
        from hetplan.profiles.sampled import refuse_foreign_measurements

        refuse_foreign_measurements(inputs)
        refuse_malformed_measurements(inputs)
    return inputs


def _state(state: Given) -> Loaded[State]:
    from hetplan.profiles.state import State

    return read_kind([state], "state", State)


def _state_of(read_state: Loaded[State] | None, profile: Profile) -> State | None:
    if read_state is None or read_state.model is None:
        return None
    from hetplan.profiles.state_references import with_runs

    return with_runs(in_one_order(read_state.model), profile)


def read_kind(sources: Given | Sequence[Given], kind: str, model_type: type[M]) -> Loaded[M]:
    """Read, merge and validate the files of one kind."""
    several = isinstance(sources, Sequence) and not isinstance(sources, str | bytes)
    given: Sequence[Any] = [*sources] if several else [sources]  # type: ignore[misc]
    names = _names(given, kind)
    loaded: Loaded[M] = Loaded(name=" + ".join(names) or kind, file_of=Origins(kind))
    documents: list[tuple[str, Mapping[str, Any]]] = []
    tables: dict[Steps, str] = {}
    if not given:
        loaded.faults.append(
            Fault(file=kind, path="", value="", why=f"at least one {kind}", remedy=f"Give the path of a {kind} file.")
        )
    made = _made_already(given, model_type)
    for name, source in zip(names, given, strict=True):
        try:
            document = _document(source, kind, name, model_type)
            if isinstance(source, Profile) and made is None:  # one of several: as files say it, to be joined with them
                document = _file_of(source, name)
        except InputError as error:
            loaded.faults += error.faults
            continue
        if isinstance(document, Mapping) and isinstance(document.get("$schema"), str):
            # For editors: it says nothing of the question, so it is in no digest either.
            document = {key: value for key, value in document.items() if key != "$schema"}
        faults = format_faults(document, kind, name)
        if kind == "profile" and made is None and not faults:
            document, faults = _with_measurements(document, source, name, tables)
        loaded.faults += faults
        if not faults:
            documents.append((name, document))
            if is_newer(document):
                text = f"the {kind} is of a newer version ({document['format']}); hetplan reads what it knows"
                loaded.warnings.append(("W-newer", f"{kind}.format", text))
    if not documents:
        return loaded
    complete = not loaded.faults
    if len(documents) == 1:
        (name, document), *_ = documents
        loaded.document, loaded.file_of = dict(document), Origins(name)
    else:
        from hetplan.profiles.merge import merge

        loaded.document, loaded.file_of, contradictions = merge(documents)
        loaded.faults += contradictions
    if tables:
        loaded.file_of = _of_tables(loaded.file_of, tables)
    if kind == "profile":
        loaded.model = _planned(loaded, made)
    else:
        model, located = (made, []) if made is not None else _validated(model_type, loaded.document, loaded, kind)
        loaded.faults += [fault for _, fault in located]
        loaded.model = model
    if len(documents) > 1:
        loaded.faults = [_of_its_source(one, dict(documents)) for one in loaded.faults]
    # References into a file that could not be read would all seem to dangle.
    if not complete:
        loaded.model = None
    if isinstance(loaded.model, Profile):
        for table_id, table in loaded.model.tables.items():
            table.named(table_id, file=loaded.name, written=loaded.places(("tables", table_id)))
    return loaded


def _file_of(profile: Profile, name: str) -> dict[str, Any]:
    """The file that a profile was read from."""
    if not profile.places.file:
        why = "a profile that was read from a file or a dict, to be joined with others; this one was made in Python"
        raise InputError.one(file=name, why=why, remedy="Give it by itself, or as the dict of a profile file.")
    return dict(profile.places.file)


def _with_measurements(document: Any, source: Given, name: str, tables: dict[Steps, str]) -> tuple[Any, list[Fault]]:
    """A profile with the measurements of its CSV files in the runs of its models; `tables` hears which are of which."""
    if document.get("measurements") is None:
        return document, []
    from hetplan.profiles.measurement_tables import with_measurements

    # Only who may name the profile's file may have files beside it read: a document comes from anywhere.
    folder = Path(source).parent if isinstance(source, str | os.PathLike) else None
    try:
        document, read = with_measurements(document, folder, name)
    except InputError as error:
        return document, list(error.faults)
    tables |= read
    return document, []


def _of_its_source(fault: Fault, documents: Mapping[str, Mapping[str, Any]]) -> Fault:
    """A fault of the one source of a file where that file has it: several files together have `sources`."""
    source = documents.get(fault.file, {}).get("source")
    name = source.get("name", "source") if isinstance(source, Mapping) else ""
    there = json_path(("sources", name)) if name and isinstance(name, str) else "$$"
    if fault.path != there and not fault.path.startswith(f"{there}."):
        return fault
    return replace(fault, path=f"$.source{fault.path.removeprefix(there)}")


def _of_tables(file_of: FileOf, tables: Mapping[Steps, str]) -> FileOf:
    """The file of a place: of a run that is in a CSV file alone, that one."""
    return lambda steps: tables.get(tuple(str(step).lower() for step in steps[:4])) or file_of(steps)


def _planned(loaded: Loaded[Any], made: Any) -> Any:
    """The profile that is planned with, of a file's document; `made`, where that is one already."""
    from hetplan.profiles.lowering import lower
    from hetplan.profiles.profile_file import ProfileFile

    stated = loaded.document
    if made is not None:
        loaded.document, loaded.places = made.model_dump(mode="json", by_alias=True, exclude_unset=True), made.places
        return made
    from hetplan.profiles.old_sections import faults_of_old_sections

    old = faults_of_old_sections(stated, loaded.file_of)
    if old:
        loaded.faults += old
        return None
    valid, located = _validated(ProfileFile, stated, loaded, "profile")
    loaded.faults += [fault for _, fault in located]
    if valid is None:
        return None
    from hetplan.profiles.validation_faults import left_without

    lowered = lower(left_without(stated, located) if located else stated)
    loaded.document, loaded.places = lowered.document, lowered.places
    if located:
        loaded.set_aside = {
            section: one for section in ("machines", "models") if isinstance(one := stated.get(section), Mapping)
        }
    loaded.faults += lowered.faults_in(loaded.file_of)
    model, located = _validated(Profile, lowered.document, loaded, "profile")
    loaded.faults += [fault for _, fault in located]
    if model is not None:
        vars(model)["places"] = replace(loaded.places, file=stated)
    return model


def _names(sources: Sequence[Given], kind: str) -> list[str]:
    """A name per source; documents without a file are numbered."""
    named = [source_name(source, kind) for source in sources]
    if named.count(kind) < 2:
        return named
    return [f"{kind}[{number}]" if name == kind else name for number, name in enumerate(named)]


def _document(source: Given, kind: str, name: str, model_type: type[Model]) -> Any:
    if isinstance(source, model_type):
        # Only what was set: a model that was read from a file has that file's digest.
        document: dict[str, Any] = source.model_dump(mode="json", by_alias=True, exclude_unset=True)
        # The format is a default in the model, never in a file.
        return read_json({"format": vars(source).get("format"), **document}, file=name)
    if not isinstance(source, str | os.PathLike | bytes | Mapping):
        why, remedy = (
            f"a path, the bytes of a file, a dict or a {model_type.__name__}",
            f"Give the {kind} as one of these.",
        )
        raise InputError.one(file=name, value=type(source).__name__, why=why, remedy=remedy)
    return read_json(source, file=name)


def _made_already(sources: Sequence[Given], model_type: type[M]) -> M | None:
    if len(sources) == 1 and isinstance(sources[0], model_type):
        return sources[0]
    return None


def _validated(
    model_type: type[N], document: Mapping[str, Any], loaded: Loaded[Any], kind: str
) -> tuple[N | None, list[Located]]:
    """The model and its faults; with faults, the model of what is left when the faulty things are set aside."""
    normalised: list[str] = []
    try:
        model = model_type.model_validate(document, context={"normalised": normalised})
    except ValidationError as error:
        from hetplan.profiles.validation_faults import left_without, located_faults

        located = located_faults(error, model_type, document, loaded.file_of, loaded.places)
        try:
            return model_type.model_validate(left_without(document, located)), located
        except ValidationError:
            return None, located
    for name in dict.fromkeys(normalised):
        warning = ("W-id-case", kind, f"id {name!r} is read in lower case, {name.lower()!r}")
        loaded.warnings += [warning] if warning not in loaded.warnings else []
    return model, []


def _dangling(
    profile: Loaded[Profile], slo: Loaded[Slo], state: Loaded[State] | None, *, profile_checked: bool
) -> list[Fault]:
    """The faults of references, of whatever could be read."""
    if profile.model is None:
        return []
    known = profile.known
    faults: list[Fault] = []
    missing: set[str] = set()
    if not profile_checked:
        within = References(profile.model, known, profile.file_of, profile.places)
        within.check_profile()
        missing |= within.absent.keys()
        faults += within.drain()
    if slo.model is not None:
        from_slo = References(profile.model, known, slo.file_of, slo.places)
        from_slo.check_slo(slo.model, complete=not slo.faults)
        absent = from_slo.absent.keys() - missing
        faults += from_slo.drain(said=missing)
        missing |= absent
    if state is not None and state.model is not None:
        from hetplan.profiles.state_references import check_state

        from_state = References(profile.model, known, state.file_of, state.places)
        check_state(from_state, state.model, slo.model if not slo.faults else None, complete=not state.faults)
        faults += from_state.drain(said=missing)
    return faults


def count_observed(slo: Slo, file_of: FileOf) -> tuple[Slo, list[Fault]]:
    """The SLO with observed sizes counted into bins, and the faults of those that fit none."""
    if not any(app.mix is not None and app.mix.observed for app in slo.apps.values()):
        return slo, []
    from hetplan.profiles.mix import count_sizes

    return count_sizes(slo, file_of)


Suspicion = tuple[str, str, str]
"""(code, place, text), as `Inputs.warnings` holds them."""


@dataclass(frozen=True)
class _Usual:
    """The usual range of a key, and what a number outside it might be."""

    low: float
    high: float
    below: str
    above: str

    def complaint(self, value: float) -> str:
        if value and value < self.low:
            return self.below
        return self.above if value > self.high else ""


_LATENCY = _Usual(1.0, 1e5, "are these seconds? {key} is in milliseconds", "is this microseconds?")
_SECONDS = _Usual(0.0, 36_000.0, "", "are these milliseconds? {key} is in seconds")
_MEMORY = _Usual(1e-3, 16_384.0, "is this TiB?", "are these MiB or bytes? {key} is in GiB")
_MEMORY_GPU = _Usual(1e-3, 1024.0, "is this TiB?", "are these MiB or bytes? {key} is in GiB")
_PRICE = _Usual(0.0, 150.0, "", "is this per month or year? Prices are per hour")
"""The dearest machines that can be rented by the hour cost about 100."""
_PRICE_ELSEWHERE = _Usual(0.0, 1e5, "", _PRICE.above)
_LIKE_THE_DOLLAR = frozenset({"USD", "EUR", "GBP", "CHF", "CAD", "AUD", "NZD", "SGD"})
_OUTLIER = 100.0
"""Times the median of the other offers: no profile compares machines so far apart, but a month has 730 hours."""
_BANDWIDTH = _Usual(0.01, 1e6, "is this Gbit/s?", "are these bits per second? {key} is in Mbit/s")


def _unusual(usual: _Usual, value: float | None, at: str, key: str) -> Iterator[Suspicion]:
    complaint = usual.complaint(value) if value is not None else ""
    if complaint:
        yield ("W-unit", at, f"{value:g} is unusual: {complaint.format(key=key)}")


def _memory(needs: dict[str, float], at: str) -> Iterator[Suspicion]:
    for key, amount in needs.items():
        # Nearly all are between what is small and what is large of either kind.
        if key.endswith("_gib") and not _MEMORY_GPU.low <= amount <= _MEMORY_GPU.high:
            yield from _unusual(_MEMORY_GPU if "gpu" in key else _MEMORY, amount, f"{at}.{key}", key)


def suspicious_profile(profile: Profile) -> Iterator[Suspicion]:
    """Numbers of a profile that are possible, but look like another unit, or like two columns exchanged."""
    for name, hardware in profile.hardware.items():
        at = f"hardware.{name}"
        yield from _unusual(_SECONDS, hardware.startup_s, f"{at}.startup_s", "startup_s")
        yield from _memory(hardware.provides, f"{at}.provides")
    yield from _prices(profile)
    for number, link in enumerate(profile.links):
        at = f"links[{number}]"
        yield from _unusual(_BANDWIDTH, link.bandwidth_mbps, f"{at}.bandwidth_mbps", "bandwidth_mbps")
        yield from _unusual(_Usual(0.001, 1e4, "are these seconds?", "is this microseconds?"), link.latency_ms, at, "")
    for name, variant in profile.variants.items():
        for number, run in enumerate(variant.runs):
            at = f"variants.{name}.runs[{number}]"
            if run.load_s > _SECONDS.high:
                yield from _unusual(_SECONDS, run.load_s, f"{at}.load_s", "load_s")
            if run.price_per_hour is not None and run.price_per_hour > _PRICE.high * NANO:
                yield from _unusual(_PRICE, run.price_per_hour / NANO, f"{at}.price_per_hour", "price_per_hour")
            if run.needs:
                yield from _memory(run.needs, f"{at}.needs")
    for name, table in profile.tables.items():
        yield from _suspicious_table(name, table)
    for name, engine in profile.engines.items():
        from hetplan.profiles.engine_faults import suspicions_of_engine

        for steps, text in suspicions_of_engine(engine):
            yield ("W-unit", f"engines.{name}.{'.'.join(map(str, steps))}", text)


def _prices(profile: Profile) -> Iterator[Suspicion]:
    """Prices that no machine has, or that are far above all others of the profile."""
    prices = {name: offer.price_per_hour / NANO for name, offer in profile.offers.items() if offer.per is None}
    for name, offer in profile.offers.items():
        at, price = f"offers.{name}.price_per_hour", offer.price_per_hour / NANO
        usual = _PRICE if offer.currency in _LIKE_THE_DOLLAR else _PRICE_ELSEWHERE
        found = list(_unusual(usual, price, at, "price_per_hour"))
        others = [other for key, other in prices.items() if key != name and other > 0]
        if not found and name in prices and others and price > _OUTLIER * median(others):
            text = f"{price:g} is {price / median(others):.0f} times the median of the other offers: {usual.above}"
            found = [("W-unit", at, text)]
        yield from found


def _suspicious_table(name: str, table: Table) -> Iterator[Suspicion]:
    """A whole table below a tenth of a millisecond, or above an hour, was written in another unit.

    A percentile below a smaller one was mixed up, or misread.
    """
    if table.quantity not in ("latency_ms", "ttft_ms", "tpot_ms"):
        return
    statistic: Statistic = next(one for one in table.statistics if one != "std")
    known = [cell for cell in table.cells(statistic) if cell is not None]
    if known and max(known) < 0.1:
        text = f"every {statistic} is below 0.1 ms: are these seconds? {table.quantity} is in milliseconds"
        yield ("W-unit", f"tables.{name}.{statistic}", text)
    elif known and min(known) > 3.6e6:
        yield ("W-unit", f"tables.{name}.{statistic}", f"every {statistic} is above an hour: is this microseconds?")
    held: list[Statistic] = [kind for kind in table.statistics if kind not in ("mean", "std")]
    # Of times that a batch takes the mean is above the median at times, and hardly ever above a tail.
    above: list[tuple[Statistic, Statistic]] = [("mean", kind) for kind in held if kind != "p50"]
    for lower, upper in (*pairwise(held), *(above if table.mean is not None else ())):
        for low, high in zip(table.cells(lower), table.cells(upper), strict=True):
            if low is not None and high is not None and low > high:
                yield ("W-order", f"tables.{name}.{upper}", f"{upper} {high:g} is below {lower} {low:g}")
                break


def suspicious_slo(slo: Slo) -> Iterator[Suspicion]:
    """Numbers of an SLO that are possible, but look like another unit."""
    if slo.limits.cost_per_hour is not None:
        budget = _Usual(0.0, 1e5, "", "is this per month or year? Budgets are per hour")
        yield from _unusual(budget, slo.limits.cost_per_hour / NANO, "limits.cost_per_hour", "cost_per_hour")
    if slo.horizon.period_s < 1:
        yield ("W-unit", "horizon.period_s", f"{slo.horizon.period_s:g} s is a short period: are these hours or days?")
    for name, app in slo.apps.items():
        for key, max_ms in app.latency.items():
            yield from _unusual(_LATENCY, max_ms, f"apps.{name}.latency.{key}", key)
        for network_ms in (app.network_ms_per_hop, app.network_ms_once):
            yield from _unusual(_Usual(0.0, 1e4, "", "is this microseconds?"), network_ms, f"apps.{name}", "")
        for stated in _rates(app.stated_qps, app.history):
            rates = _Usual(0.0, 1e8, "", "is this per hour or day? Rates are per second")
            yield from _unusual(rates, stated, f"apps.{name}", "rate_qps")


def _rates(rate: float | None, history: tuple[float, ...] | None) -> Iterator[float]:
    if rate is not None:
        yield rate
    if history:
        yield max(history)

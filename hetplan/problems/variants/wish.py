"""What the SLO says to variant autoscaling: per application its load, need, limits, and which kinds may serve it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.problems.faults import Faults
from hetplan.problems.variants.options import VariantsOptions
from hetplan.problems.variants.snapshot import Kind, latency_of
from hetplan.profiles.plan import Notice
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import App, Slo

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs

__all__ = ["Asked", "Serves", "find_serving", "read_asked", "variants_by_app"]

HUGE = 1e6
"""More instances than this for one application are a slip of units, not a plan."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One application: L, need, S and the floor of the specification."""

    id: str
    app: App
    load_qps: float
    need_qps: float
    slo_ms: float
    variants: tuple[str, ...]
    points: tuple[Mapping[str, float], ...]
    share: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Serves:
    """That kind `kind` serves application `app`: T, Q, and whether it does so only by breaking a limit (`late`).

    `qps` is what is asked of it: `busy` times its saturation, where waiting is to be left room for.
    """

    app: int
    kind: int
    latency_ms: float
    qps: float
    late: bool = False
    beside: int | None = None
    busy: float = 1.0

    @property
    def saturation_qps(self) -> float:
        """The rate at which an instance is full."""
        return self.qps / self.busy


def variants_by_app(profile: Profile, slo: Slo) -> dict[str, tuple[str, ...]]:
    """The variants that each application may run."""
    families: dict[str, list[str]] = {}
    tasks: dict[str, list[str]] = {}
    for name, variant in profile.variants.items():
        families.setdefault(variant.family or "", []).append(name)
        tasks.setdefault(variant.task, []).append(name)
    found: dict[str, tuple[str, ...]] = {}
    for name, app in slo.apps.items():
        runs = app.runs
        if runs is None:
            found[name] = ()
        elif runs.variants is not None:
            found[name] = tuple(sorted(runs.variants))
        elif runs.families is not None:
            found[name] = tuple(sorted(v for family in runs.families for v in families.get(family, ())))
        else:
            found[name] = tuple(sorted(tasks.get(runs.task or "", ())))
    return found


def read_asked(inputs: Inputs, options: VariantsOptions, faults: Faults) -> tuple[Asked, ...]:
    """Every application, in the order of their ids."""
    slo = inputs.slo
    _refused(slo, faults)
    if options.sharing == "pooled" and len(slo.apps) != 1:
        faults.in_options(
            "sharing", f"pooled is the paper's one row, of one application; here are {len(slo.apps)}",
            'Set it to "shared" or "dedicated".', value="pooled",
        )  # fmt: skip
    additive = options.slack_mode == "additive" or (options.slack_mode is None and slo.change.slack_qps is not None)
    if additive and slo.change.slack_qps is None:
        faults.in_slo("$.change.slack_qps", "an additive slack is asked for and none is stated", "State it.")
    allowed = variants_by_app(inputs.profile, slo)
    found = []
    for name in sorted(slo.apps):
        app = slo.apps[name]
        load = app.demand.rate_qps
        if not isinstance(load, int | float):
            faults.in_slo(f"$.apps.{name}.demand.rate_qps", "a load is needed, a number", "Write queries per second.")
            continue
        need = load + (slo.change.slack_qps or 0.0) if additive else load * slo.change.slack
        mix = app.demand.mix
        points = (
            [(dict(zip(mix.axes, b, strict=True)), s) for b, s in zip(mix.bins, mix.share or (), strict=True)]
            if mix
            else []
        )
        comes = [(point, share) for point, share in points if share > 0] or [({}, 1.0)]
        found.append(
            Asked(
                name, app, float(load), float(need) if load > 0 else 0.0, _limit_ms(name, app, faults), allowed[name],
                tuple(point for point, _ in comes), tuple(share for _, share in comes),
            )
        )  # fmt: skip
    _comparable(inputs, found, faults)
    return tuple(found)


def _refused(slo: Slo, faults: Faults) -> None:
    if slo.limits.survive.hosts or slo.limits.survive.zones:
        faults.in_slo("$.limits.survive", "no spare machines are planned for failures here", "Leave it out.")
    if slo.horizon.periods > 1:
        faults.in_slo("$.horizon.periods", "a snapshot is planned, one period", "Plan each period by itself.")


def _limit_ms(name: str, app: App, faults: Faults) -> float:
    limits = [target.max_ms for target in app.latency if target.of == "response"]
    for place, target in enumerate(app.latency):
        if target.of != "response":
            faults.in_slo(f"$.apps.{name}.latency[{place}].of", "only response times are judged", 'Write "response".')
    limit = min(limits, default=float("inf")) - app.network_ms_per_hop
    if limit <= 0:
        faults.in_slo(
            f"$.apps.{name}.network_ms_per_hop", "the network alone takes the whole latency target", "Raise max_ms.",
            value=app.network_ms_per_hop,
        )  # fmt: skip
    return limit


def _comparable(inputs: Inputs, asked: list[Asked], faults: Faults) -> None:
    """A floor speaks of one metric."""
    profile = inputs.profile
    for one in asked:
        if one.app.quality is None:
            continue
        metrics = sorted({str(profile.tasks[profile.variants[name].task].metric) for name in one.variants})
        if len(metrics) > 1:
            faults.in_slo(
                f"$.apps.{one.id}.quality", f"its variants are of several metrics ({', '.join(metrics)})",
                "Let it run variants of one task.",
            )  # fmt: skip


def find_serving(
    inputs: Inputs,
    asked: tuple[Asked, ...],
    kinds: tuple[Kind, ...],
    options: VariantsOptions,
    faults: Faults,
    notices: list[Notice],
    *,
    known_machines: bool,
) -> tuple[Serves, ...]:
    """Which kind serves which application, and how; with those that are late or too poor, told apart."""
    alone = options.level == "aggregate" or (options.level == "auto" and not known_machines)
    of_variant: dict[str, list[int]] = {}
    for number, kind in enumerate(kinds):
        of_variant.setdefault(kind.variant, []).append(number)
    found: list[Serves] = []
    derived: set[str] = set()
    for b, one in enumerate(asked):
        before = len(found)
        for name in one.variants:
            for c in of_variant.get(name, ()):
                try:
                    found.extend(_serves(inputs, one, b, c, kinds[c], options, faults, derived, alone))
                except InputError as error:
                    faults.also(error)
        least = min((one.need_qps / s.qps for s in found[before:] if not s.late), default=0.0)
        if least > HUGE:
            faults.in_slo(
                f"$.apps.{one.id}.demand.rate_qps", f"{least:.3g} instances at the least: is the unit queries/s?",
                "Check the load, and saturation_qps.", value=one.load_qps,
            )  # fmt: skip
    if derived:
        text = (
            f"{len(derived)} runs state no saturation_qps: batch / latency is taken ({', '.join(sorted(derived)[:5])})"
        )
        notices.append(Notice(code="W-derived-qps", at="variants", text=text))
    return tuple(found)


def _serves(
    inputs: Inputs,
    one: Asked,
    b: int,
    c: int,
    kind: Kind,
    options: VariantsOptions,
    faults: Faults,
    derived: set[str],
    alone: bool,
) -> Iterator[Serves]:
    run = inputs.profile.variants[kind.variant].runs[kind.run]
    table = inputs.profile.tables[run.latency or ""]
    point: dict[str, Any] = {
        **_numbers(inputs.profile.variants[kind.variant].knobs),
        "batch": float(kind.batch),
        **run.at,
    }
    times = [latency_of(table, {**point, **size}, options.latency_stat) for size in one.points]
    qps = kind.saturation_qps
    if qps is None:
        derived.add(kind.id)
        means = (
            times if options.latency_stat == "mean" else [latency_of(table, {**point, **s}, "mean") for s in one.points]
        )
        together = kind.batch if "batch" in table.axes and "batch" not in one.points[0] else 1
        qps = 1000.0 * together / sum(s * t for s, t in zip(one.share, means, strict=True))
    wanted, poor = one.app.quality, False
    if wanted is not None:
        if kind.quality is None:
            faults.in_profile(
                f"$.variants.{kind.variant}.quality", f"{one.id} asks for a quality, and this variant states none",
                f"State it, or leave the variant out of apps.{one.id}.runs.",
            )  # fmt: skip
            return
        poor = (wanted.min is not None and kind.quality < wanted.min - 1e-12) or (
            wanted.max is not None and kind.quality > wanted.max + 1e-12
        )
    beside, factor = _company(kind, max(times), one.slo_ms, alone)
    worst = max(times) * factor
    yield Serves(b, c, worst, qps / factor, late=poor or worst > one.slo_ms * (1 + 1e-9), beside=beside)


def _company(kind: Kind, time_ms: float, slo_ms: float, alone: bool) -> tuple[int | None, float]:
    """How many others may run beside an instance with it still in time, and how much slower it then is."""
    if not kind.slowdown:
        return None, 1.0
    bearable = [k for k, factor in enumerate(kind.slowdown) if time_ms * factor <= slo_ms * (1 + 1e-9)]
    if alone or not bearable:
        return 0, kind.slowdown[0]
    return bearable[-1], max(kind.slowdown[: bearable[-1] + 1])


def _numbers(knobs: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in knobs.items() if isinstance(value, int | float)}

"""Reading the files: the types that may serve, their offers, the classes of requests, the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.choices import HAIR, Choice
from hetplan.planner.request import Application, MachineType, Request, read_request
from hetplan.problems.faults import Faults, refused_fields
from hetplan.problems.llm.options import LlmOptions
from hetplan.profiles.engines import Engine
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.operating_points import Limit
from hetplan.profiles.profile import Profile
from hetplan.serving.tokens import (
    CACHED,
    INPUT,
    OUTPUT,
    Requests,
    TokenDemand,
    TokenLaw,
    demand_of,
    instances_on,
    law_of_engine,
    link_between,
)

__all__ = ["REFUSED", "Kind", "TextRequest", "read_text_request"]

REFUSED = {
    **refused_fields(
        "apps.*.network_ms_once", "limits.capacity", "change.load_weight_per_s", "horizon.period_s",
        "apps.*.lifetime_s", "apps.*.deadline_s",
    ),
    "change.slack": ("a fleet is sized by simulation, or by a headroom", "Raise the rate instead."),
    "change.slack_qps": ("a fleet is sized by simulation, or by a headroom", "Raise the rate instead."),
    "change.offline_below": ("no offline work is placed on machines of LLMs", "Leave it out."),
    "apps.*.weight": ("a fleet serves one application, so nothing is weighed", "Leave it out."),
    "apps.*.rate_qps.trace": ("requests are drawn from lengths", "Write mix.observed; simulate plays a trace."),
}  # fmt: skip
"""Fields of the SLO that this question does not keep, besides those in `applicability`: why, and what to write."""

RULES = {
    None: "least-work/1", "round-robin": "round-robin/1", "random": "shares/1", "shortest-queue": "weighted-least/1",
    "fewest-requests": "weighted-least/1", "weighted-least": "weighted-least/1",
    "split-then-fewest": "split-then-fewest/1",
}  # fmt: skip
"""Load balancers by their word, and the rule of each. By weights that are all alike, the fewest requests count."""

Floats = NDArray[np.float64]


_SEVERAL, _USUAL_LARGEST, _MOST_LARGEST = 4.0, 1000, 10**6


@dataclass(frozen=True, eq=False)
class Kind:
    """A type of instance: a variant on a hardware, by the law of its engine; so many instances on a machine."""

    choice: Choice
    engine: Engine
    law: TokenLaw
    instances: int

    @property
    def variant(self) -> str:
        """What it runs."""
        return self.choice.variant

    @property
    def hardware(self) -> str:
        """Where it runs."""
        return self.choice.hardware

    @property
    def name(self) -> str:
        """As messages call it."""
        at = "".join(f",{axis}={value:g}" for axis, value in self.choice.at.items())
        return f"{self.variant}@{self.hardware}{at}"


@dataclass(frozen=True)
class TextRequest:
    """One fleet to plan."""

    inputs: Inputs
    options: LlmOptions
    app: Application
    rate_qps: float
    kinds: tuple[Kind, ...]
    request: Request
    demand: TokenDemand
    limits: tuple[Limit, ...]
    link_ms_per_token: float = 0.0

    @property
    def rule(self) -> str:
        """The dispatch rule, as the simulator names it: that of the load balancer that is there, else the router's."""
        return RULES[self.app.dispatch]

    @property
    def may_refuse(self) -> bool:
        """Whether a request may be refused where all replicas have as many as they may."""
        return self.app.late is None

    @property
    def goodput(self) -> float | None:
        """The least share of requests within all limits at once."""
        return self.app.attainment

    def supply(self, kind: Kind) -> MachineType:
        """The machines of a type."""
        return self.request.of(kind.hardware)

    def busy(self, kind: Kind) -> float:
        """How many machines of a type all requests keep busy, in batches as large as can be."""
        ms = np.average(kind.law.busy_ms(kind.law.work(self.demand.requests)), weights=self.demand.weight)
        return self.rate_qps * float(ms) / 1000.0 / kind.instances

    @cached_property
    def largest(self) -> int:
        """The most machines of one type: several times what one type alone is busy with."""
        busy = [one for one in map(self.busy, self.kinds) if np.isfinite(one)]
        return int(np.clip(np.ceil(_SEVERAL * max(busy, default=0.0)), _USUAL_LARGEST, _MOST_LARGEST))

    def limit_ms(self, of: str) -> float:
        """The least limit of a kind; infinite where none is stated."""
        return min((limit.max_ms for limit in self.limits if limit.of == of), default=np.inf)

    @property
    def law_error(self) -> bool:
        """Whether laws are taken to be slower by their stated error."""
        return self.options.is_firm and self.request.law_error

    @cached_property
    def laws(self) -> tuple[TokenLaw, ...]:
        """The laws by which a fleet is sized: slower by their stated error."""
        return self.slower(1.0)

    def slower(self, errors: float) -> tuple[TokenLaw, ...]:
        """The laws, slower by so many times their stated error."""
        return tuple(one.law.slower(errors * one.engine.error) if self.law_error else one.law for one in self.kinds)

    def first_token_ms(self, laws: Sequence[TokenLaw], requests: Requests) -> Floats:
        """Per type and request: the time to the first token on an empty machine; infinite where it does not fit."""
        rows = []
        for law in laws:
            alone = law.prefill_ms(requests) if law.role != "decode" else np.zeros(len(requests))
            if law.role == "prefill":
                alone = alone + requests.input * self.link_ms_per_token
            rows.append(np.where(law.holds(requests), alone, np.inf))
        return np.stack(rows)

    def with_rate(self, rate_qps: float) -> TextRequest:
        """The same for another rate."""
        return replace(self, rate_qps=rate_qps, demand=replace(self.demand, rate_qps=rate_qps))

    def part(self, parts: int) -> TextRequest:
        """What one of so many fleets side by side has to do: its part of the rate, of the machines and of the money."""
        return replace(self.with_rate(self.rate_qps / parts), request=self.request.part(parts))

    def with_limits(self, stated: Mapping[str, float]) -> TextRequest:
        """The same where the limits of these names are stated as so many ms."""
        more = {key: to - self.app.latency[key] for key, to in stated.items()}
        limits = (replace(one, max_ms=one.max_ms + more.get(one.key, 0.0)) for one in self.limits)
        return replace(self, limits=tuple(limits))


def read_text_request(inputs: Inputs, options: LlmOptions) -> TextRequest:
    """Read the files; raises InputError with every fault found."""
    from hetplan.problems.llm.applicability import obstacles

    faults = Faults.of(inputs)
    request = read_request(inputs)
    faults.obstacles(obstacles(request))
    faults.refuse(REFUSED)
    (app,) = request.apps.values()
    assert app.rate_qps is not None
    kinds = _kinds(request, app, faults)
    _check_lengths(app, faults)
    faults.settle()
    request = request.renting(inputs.profile, dict.fromkeys(kind.hardware for kind in kinds))
    offered = {kind.id for kind in request.machines}
    if not offered:
        listed = ", ".join(dict.fromkeys(kind.hardware for kind in kinds))
        faults.in_profile("$.offers", f"no price is stated of {listed}", "Add price_per_hour.")
    kinds = tuple(kind for kind in kinds if kind.hardware in offered)
    link = _link(inputs.profile, kinds, faults)
    faults.settle()
    demand = demand_of(app.mix, app.arrivals, app.rate_qps)
    if (demand.kind < 0).any():
        place = int(np.flatnonzero(demand.kind < 0)[0])
        mix = app.mix
        size = (mix.observed or ())[place] if mix is not None else ()
        why, remedy = "an observed length is above every bin", "Add a bin that holds it."
        faults.in_slo(f"$.apps.{app.id}.mix.observed[{place}]", why, remedy, value=list(size))
    wish = TextRequest(inputs, options, app, app.rate_qps, kinds, request, demand, app.limits, link)
    _check_room(wish, faults)
    faults.settle()
    return wish


def _kinds(request: Request, app: Application, faults: Faults) -> tuple[Kind, ...]:
    found, too_low = list[Kind](), dict[str, None]()
    for one in request.choices(app.id):
        if app.floor is not None and (one.quality is None or one.quality < app.floor):
            too_low[one.variant] = None
        elif one.engine is not None and (instances := _instances(one, one.engine, faults)):
            found.append(Kind(one, one.engine, law_of_engine(one.engine), instances))
    if not found and not faults.found:
        why = f"no variant of quality {app.floor:g} or more makes tokens" if too_low else "nothing here makes tokens"
        remedy = f"Lower it; there are {', '.join(too_low) or 'none'}."
        faults.in_slo(f"$.apps.{app.id}.quality.min", why, remedy, value=app.floor or "")
    roles = {kind.engine.role for kind in found}
    if found and roles in ({"prefill"}, {"decode"}):
        other = "decode" if "prefill" in roles else "prefill"
        why = f"engines that {next(iter(roles))} alone serve no request"
        faults.in_profile("$.engines", why, f'Add laws of role "{other}" or "mixed".')
    return tuple(found)


def _instances(one: Choice, engine: Engine, faults: Faults) -> int:
    """How many run on one machine; a fault where none does."""
    if one.own_price is not None:
        why = "a run that makes tokens has no price of its own"
        faults.in_profile(f"$.{one.path}.price_per_hour", why, "Write the price at its machine type.")
    provides = one.machine.provides
    gpus, instances = provides.get("gpu"), instances_on(provides.get("gpu"), engine)
    if instances < 1:
        says = (
            f"one {one.hardware} has {gpus:g}" if gpus is not None else f"{one.hardware} does not say how many it has"
        )
        remedy = f'Write "provides": {{"gpu": {engine.gpus}}} where that is so, or a smaller degree.'
        why = f"an instance takes {engine.gpus} GPUs, and {says}"
        faults.in_profile(f"$.engines.{one.run.engine}.tensor", why, remedy, value=engine.tensor)
        return 0
    for name, amount in one.takes.items() if provides else ():
        if name != "gpu":
            instances = min(instances, int(provides.get(name, 0.0) / amount + HAIR))
            if name in one.lacking:
                why = f"an instance needs {amount:g} {name}, and one {one.hardware} has {one.lacking[name]:g}"
                faults.in_profile(f"$.{one.path}.needs.{name}", why, "Mend one of them, or leave the run out.")
    return instances


def _check_lengths(app: Application, faults: Faults) -> None:
    mix = app.mix
    assert mix is not None  # `applicability` has it
    for field, sizes in (("bins", mix.bins), ("observed", mix.observed or ())):
        for number, size in enumerate(sizes):
            named = dict(zip(mix.axes, size, strict=True))
            at = f"$.apps.{app.id}.mix.{field}[{number}]"
            if named[INPUT] < 1 or named[OUTPUT] < 1:
                faults.in_slo(
                    at, "a request has at least one token in and one out", "Write 1 or more.", value=list(size)
                )
            elif named.get(CACHED, 0.0) >= named[INPUT]:
                why = "the last token of a prompt is always computed, so fewer are cached than come in"
                faults.in_slo(at, why, f"Write at most {named[INPUT] - 1:g}.", value=list(size))
            if len(faults.found) > 20:
                return


def _link(profile: Profile, kinds: Sequence[Kind], faults: Faults) -> float:
    """How long the KV of a token takes from prefilling to decoding machines, in milliseconds; 0 without such."""
    roles = {role: [kind for kind in kinds if kind.engine.role == role] for role in ("prefill", "decode")}
    found = set[float]()
    variants = sorted({kind.variant for named in roles.values() for kind in named})
    if len(variants) > 1:
        why = (
            f"the KV of one model is of no use to another: {', '.join(variants)} have engines of role prefill or decode"
        )
        faults.in_profile("$.engines", why, 'Give these roles to one model; laws of others have the role "mixed".')
    for one in roles["prefill"]:
        for other in roles["decode"]:
            link = link_between(profile, one.hardware, other.hardware)
            if link is None:
                why = f"KV moves from {one.name} to {other.name}, and no link between their tiers is known"
                faults.in_profile("$.links", why, "Give both hardware a tier, and add the link between the two.")
            elif link.latency_ms > 0:
                why = "how long KV waits for its link is not counted, only how long it is on its way"
                remedy = "Write 0, and add it to network_ms_per_hop of the application."
                faults.in_profile(
                    f"$.links[{profile.links.index(link)}].latency_ms", why, remedy, value=link.latency_ms
                )
            elif one.engine.kv_bytes_per_token is None:
                why = "KV moves over a link, and it is not known how large it is"
                remedy = "Write the bytes of KV of one token."
                faults.in_profile(f"$.engines.{one.choice.run.engine}.kv_bytes_per_token", why, remedy)
            else:
                found.add(one.engine.kv_bytes_per_token * 8.0 / (link.bandwidth_mbps * 1e3))
    if len(found) > 1:
        why = "prefilling and decoding machines are joined by links of different speed"
        faults.in_profile("$.links", why, "Plan for one kind of link at a time.")
    return max(found, default=0.0)


def _check_room(wish: TextRequest, faults: Faults) -> None:
    """Every class fits into the context and the KV of some type."""
    lengths = wish.demand.requests
    fits = np.any([kind.law.holds(lengths) for kind in wish.kinds], axis=0)
    if fits.all():
        return
    place = int(np.flatnonzero(~fits)[0])
    size = int(lengths.input[place] + lengths.output[place])
    room = max(min(kind.law.context_tokens or kind.law.kv_tokens, kind.law.kv_tokens) for kind in wish.kinds)
    why = f"a request of {size} tokens in and out exceeds the context or the KV cache of every type ({room} at most)"
    remedy = f"Cut requests to {room} tokens, or add a type with a larger KV cache."
    faults.in_slo(f"$.apps.{wish.app.id}.mix", why, remedy, value=size)

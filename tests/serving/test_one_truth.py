"""One truth of serving: solver, verifier, simulator and executor see the same times, prices, targets and shares.

Each of 1,000 random profiles becomes the problem of its question, as the solver reads it; from that a plan is written
by hand (one group of workers per way to run), and every reader is asked for its figures of that plan. What two of
them say of the same thing is compared. A difference here is a plan that would be verified and run late.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from cases.served import QUESTIONS, documents_of

from hetplan.errors import InputError
from hetplan.executor.background import Background
from hetplan.executor.serving.law import OffTable, ServiceLaw
from hetplan.planner.contract import Tools
from hetplan.planner.request import read_request
from hetplan.problems.compound import request as compound
from hetplan.problems.faults import Faults
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import InputHashes, Method, Notice, Plan, Route
from hetplan.profiles.workers import Load, Serve, Share, Worker
from hetplan.serving import demand
from hetplan.serving.loads import worker_price
from hetplan.serving.planned_system import planned_systems
from hetplan.simulator.simulate import demands_of
from hetplan.verifier import resources
from hetplan.verifier.demand import classes_of, response_targets
from hetplan.verifier.plan_index import Facts, Seat, gather
from hetplan.verifier.service import service_of

QUICK, PROFILES = 100, 1000
Key = tuple[Any, ...]
Figures = dict[Key, float]


# The plan, and what the solver says of it


class Sought:
    """A plan made by hand of every way to run that a question knows, with the solver's own figures of each."""

    def __init__(self, question: str, inputs: Inputs) -> None:
        self.question, self.inputs = question, inputs
        self.figures: Figures = {}
        self.workers: list[Worker] = []
        self.options: dict[str, Any] = {}
        self.policies: dict[str, Any] = {}
        getattr(self, f"_{question}")()

    def plan(self) -> Plan:
        lacking = [
            Notice(code="W-statistic", text="another is taken")
            for table in self.inputs.profile.tables.values()
            if table.mean is None
        ]
        return Plan(
            question=self.question, method=Method(formulation="by-hand", options=self.options),
            inputs=InputHashes(profile="", slo=""), workers=tuple(self.workers), policies=self.policies,
            routing={"a": tuple(self._routes())},
            warnings=tuple(lacking[:1]),
        )  # fmt: skip

    def _routes(self) -> Iterator[Route]:
        loads = [load for worker in self.workers for load in worker.loads]
        for node in dict.fromkeys(load.node for load in loads):
            here = [load.id for load in loads if load.node == node]
            yield Route(node=node, to=dict.fromkeys(here, 1.0 / len(here)))

    def _worker(
        self, variant: str, run: Any, offer: str | None, batch: int, nanos: int | None, share: Share | None, **more: Any
    ) -> str:
        name = f"w{len(self.workers)}"
        serve = Serve(max_batch=batch)
        knobs = more.pop("knobs", {})
        load = Load(
            id=f"{name}.a", app="a", variant=variant, at=dict(run.at), knobs=knobs, serve=serve, share=share, **more
        )
        self.workers.append(Worker(id=name, hardware=run.hardware, offer=offer, loads=(load,)))
        if nanos is not None:
            self.figures["price", name] = nanos
        return load.id

    def _say(self, load: str, kind: int, batch: int, statistic: str, ms: float) -> None:
        self.figures["ms", load, kind, batch, statistic] = ms

    def _pool(self) -> None:
        from hetplan.problems.pool.options import PoolOptions
        from hetplan.problems.pool.question import PoolQuestion

        pool = PoolQuestion.from_inputs(self.inputs, PoolOptions(), formulation="pool-milp", tools=Tools())
        app = self.inputs.slo.apps["a"]
        points = [tuple(point.values()) for point in pool.wish.points]
        known = [tuple(size) for size in (app.mix.bins if app.mix else ((),))]
        for offer, t in zip(pool.offers, pool.type_of, strict=True):
            load = self._worker(pool.wish.variant, pool.types[t], offer.id, 1, offer.nanos, None)
            for s, point in enumerate(points):
                self._say(load, known.index(point), 1, "mean", float(pool.L[s, t]))
        for target in pool.wish.app.targets:
            self.figures["target", round(target.left, 9)] = target.limit_ms() + app.network_ms_per_hop
        for point, share in zip(points, pool.p, strict=True):
            self.figures["share", known.index(point)] = float(share)
        if pool.wish.rate_qps is not None:
            self.figures["rate"] = pool.wish.rate_qps

    def _pipeline(self) -> None:
        from hetplan.problems.pipeline.request import PipelineOptions, read_pipelines

        wish = read_pipelines(self.inputs, PipelineOptions(statistic="mean"))
        self.options = {"statistic": "mean"}
        (tree,) = wish.trees
        fleet = wish.fleet
        self.figures["rate"] = tree.demand
        app = self.inputs.slo.apps["a"]
        for task in tree.tasks:
            for c in range(task.size):
                choice, hardware = task.choice(c), fleet.hardware[task.hardware[c]]
                fee, batch = fleet.fee_of(choice), int(task.batch[c])
                for offer in fleet.request.of(hardware).offers:
                    nanos = offer.nanos + fee.nanos
                    load = self._worker(choice.variant, choice, offer.id, batch, nanos, fee.share, node=task.id)
                    assert self.workers[-1].hardware == hardware
                    self._say(load, 0, batch, "mean", float(task.ms[c]))
        for sink, limit in tree.limit_ms.items():
            steps = len(tree.path(sink))
            strictest = min(target.max_ms for target in app.targets)
            assert limit == pytest.approx((strictest - steps * app.network_ms_per_hop) / PipelineOptions().slo_divisor)

    def _variants(self) -> None:
        from hetplan.problems.variants.options import VariantsOptions
        from hetplan.problems.variants.request import read_snapshot

        # Each load has a worker of its own here, so each has its machine to itself.
        v = read_snapshot(self.inputs, VariantsOptions(share_machines=False))
        app = self.inputs.slo.apps["a"]
        self.figures["rate"] = v.asked[0].load_qps
        for one in v.serves:
            kind = v.kinds[one.kind]
            load = self._worker(
                kind.variant,
                kind.choice,
                v.types[kind.type].offers[0].id,
                kind.batch,
                kind.price,
                kind.share,
                knobs=dict(kind.choice.knobs),
            )
            self.figures["worst_ms", load, kind.batch] = one.latency_ms
            assert v.asked[one.app].limit_ms() == pytest.approx(
                min(target.max_ms for target in app.targets) - app.network_ms_per_hop
            )

    def _policy(self) -> None:
        from hetplan.problems.policy.options import PolicyOptions
        from hetplan.problems.policy.request import read_models

        statistic = "p95" if any(table.p95 for table in self.inputs.profile.tables.values()) else "p99"
        options = PolicyOptions(statistic=statistic, queue_max=8)
        self.options = {"statistic": statistic}
        self.policies = {"a": ()}
        faults = Faults.of(self.inputs)
        request = read_request(self.inputs)
        # Of models that another one beats, too.
        with patch("hetplan.problems.policy.request.pareto", lambda times, _: list(range(len(times)))):
            models = read_models(request, request.apps["a"], "g", options, faults)
        faults.settle()
        assert models is not None
        for m, choice in enumerate(models.choices):
            load = self._worker(choice.variant, choice, None, 8, None, None)
            for batch in choice.table.axes["batch"]:
                self._say(load, 0, int(batch), statistic, 1000.0 * float(models.latency_s[m, int(batch) - 1]))


# What the others say


def by_simulator(plan: Plan, inputs: Inputs) -> Figures:
    """The system that is played."""
    figures: Figures = {}
    for statistic, noise in (("mean", "table"), ("p95", "p95"), ("p99", "p99")):
        if statistic != "mean" and any(getattr(table, statistic) is None for table in inputs.profile.tables.values()):
            continue
        (period,) = planned_systems(plan, inputs, noise=noise)  # type: ignore[arg-type]
        for group in period.system.groups:
            figures["price", group.id] = group.price_nanos
            for load in group.loads:
                law = load.services["a"]
                for kind, size in np.ndindex(law.mean_ms.shape):
                    figures["ms", load.id, kind, size + 1, statistic] = float(law.mean_ms[kind, size])
                    if law.std_ms is not None:
                        figures["ms", load.id, kind, size + 1, "std"] = float(law.std_ms[kind, size])
    (demand,) = demands_of(plan, inputs)
    if inputs.slo.apps["a"].stated_qps is not None:
        figures["rate"] = demand.rate_qps
    figures["asked ms"] = demand.slo_ms
    figures["deadline"] = period.system.apps[0].slo_ms
    figures["hop"] = period.system.apps[0].hop_ms
    return figures


def by_executor(plan: Plan, inputs: Inputs) -> Figures:
    """The law that a worker's sleep model and the router go by."""
    known = Background(inputs.profile, inputs.slo)
    classes = classes_of(inputs.slo.apps["a"])
    figures: Figures = {"deadline": known.app(plan, "a")["slo_ms"]}
    for worker in plan.workers:
        for load in worker.loads:
            data = known.law(plan, load, worker.hardware)
            assert data is not None
            laws = {"mean": ServiceLaw(data), **{s: ServiceLaw(data, statistic=s) for s in ("p95", "p99") if s in data}}
            for kind, size in enumerate(classes.bins):
                at = dict(zip(classes.axes, size, strict=True))
                for batch in range(1, load.serve.max_batch + 1):
                    for statistic, law in laws.items():
                        figures["ms", load.id, kind, batch, statistic] = law.mean_ms(at, batch)
    return figures


def machine_cost(facts: Facts, worker: Worker) -> Any:
    """What the verifier says that one machine of a group costs."""
    return resources.machine_nanos(facts, worker, [facts.seats[load.id] for load in worker.loads])


def by_verifier(plan: Plan, inputs: Inputs) -> Figures:
    """What a plan is checked by."""
    app = inputs.slo.apps["a"]
    facts, classes = gather(plan, inputs), classes_of(app)
    targets = response_targets(app)
    figures: Figures = {("target", round(left, 9)): limit for limit, left in targets}
    figures |= {("share", kind): share for kind, share in enumerate(classes.share) if share > 0}
    figures["deadline"] = figures["asked ms"] = min(limit for limit, _ in targets)
    if app.stated_qps is not None:
        figures["rate"] = app.stated_qps
    figures["hop"] = app.network_ms_per_hop
    for worker in plan.workers:
        price = machine_cost(facts, worker)
        if price is not None:
            figures["price", worker.id] = int(price)
    for seat in facts.seats.values():
        most = seat.load.serve.max_batch
        for batch in range(1, most + 1):
            load = seat.load.model_copy(update={"serve": Serve(max_batch=batch)})
            service = service_of(facts, Seat(seat.worker, load, seat.run), classes)
            for kind, ms in enumerate(service.latency_ms):
                figures["ms", load.id, kind, batch, "mean"] = ms
            coming = [kind for kind, share in enumerate(classes.share) if share > 0]
            figures["worst_ms", load.id, batch] = max(service.latency_ms[kind] for kind in coming)
    return figures


# Compared


def differences(seed: int) -> Iterator[str]:
    """What any two readers say differently of a profile."""
    question, profile, slo = documents_of(seed)
    inputs = load_inputs(profile, slo)
    sought = Sought(question, inputs)
    plan = sought.plan()
    readers = {"solver": sought.figures}
    for name, read in (("verifier", by_verifier), ("simulator", by_simulator), ("executor", by_executor)):
        readers[name] = read(plan, inputs)
    if question == "policy":
        # The verifier judges policies by their own check, made from the same tables.
        readers["verifier"] = {key: value for key, value in readers["verifier"].items() if key[0] != "ms"}
    said: dict[Key, tuple[str, float]] = {}
    for name, figures in readers.items():
        for key, value in figures.items():
            other, before = said.setdefault(key, (name, value))
            if value != pytest.approx(before, rel=1e-9, nan_ok=True):
                yield f"profile {seed} ({question}): {key}: {other} says {before:.9g}, {name} says {value:.9g}"


@pytest.mark.parametrize(
    "seeds", [range(QUICK), pytest.param(range(QUICK, PROFILES), marks=pytest.mark.longest)], ids=str
)
def test_a_thousand_profiles_are_read_alike(seeds: range) -> None:
    found = [text for seed in seeds for text in differences(seed)]
    assert not found, "\n".join(found[:20])


def test_the_profiles_have_what_rooms_may_read_differently() -> None:
    """Else the test above would compare nothing."""
    seen: dict[str, int] = {}
    for seed in range(200):
        question, profile, slo = documents_of(seed)
        seen[question] = seen.get(question, 0) + 1
        for variant in profile["variants"].values():
            hardware = [run["hardware"] for run in variant["runs"]]
            batches = [run["at"].get("batch") for run in variant["runs"]]
            single = [len(profile["tables"][run["latency"]]["axes"]["batch"]) == 1 for run in variant["runs"]]
            seen["two runs on one hardware"] = seen.get("two runs on one hardware", 0) + (
                len(hardware) > len(set(hardware))
            )
            seen["a table per batch"] = seen.get("a table per batch", 0) + (any(single) and len(set(batches)) > 1)
            seen["knobs on an axis"] = seen.get("knobs on an axis", 0) + ("size" in variant["knobs"])
            seen["own price"] = seen.get("own price", 0) + any("price_per_hour" in run for run in variant["runs"])
            seen["needs a share"] = seen.get("needs a share", 0) + any("needs" in run for run in variant["runs"])
        seen["by the unit"] = seen.get("by the unit", 0) + any("per" in offer for offer in profile["offers"].values())
        seen["several offers"] = seen.get("several offers", 0) + ("g-1" in profile["offers"])
        seen["links"] = seen.get("links", 0) + bool(profile["links"])
        seen["several percentiles"] = seen.get("several percentiles", 0) + (len(slo["apps"]["a"]["latency"]) > 1)
        seen["a mix"] = seen.get("a mix", 0) + ("mix" in slo["apps"]["a"])
        seen["no mean"] = seen.get("no mean", 0) + any("mean" not in table for table in profile["tables"].values())
    assert set(QUESTIONS) <= seen.keys()
    assert min(seen.values()) >= 10, seen


# Compound plans: prices of machines under offers of every kind, and the limit that a search keeps


def compound_differences(seed: int) -> Iterator[str]:
    """What the question says of its tiers and its limit, beside what simulator and verifier say of a plan on them."""
    luck = Random(seed)
    hardware = {
        name: {"kind": "gpu", "tier": name, "provides": {"gpu": luck.choice((1, 4)), "cpu_cores": luck.choice((8, 64))}}
        for name in ("edge", "cloud")
    }
    offers = {
        f"{name}-{number}": {
            "hardware": name,
            "price_per_hour": f"{luck.randint(1, 3_000_000_000) / 1e9:.9f}",
            **luck.choice(({}, {"per": "gpu"}, {"per": "cpu_cores"})),
        }
        for name in hardware
        for number in range(luck.choice((1, 2, 3)))
    }
    latency = {f"p{p:g}_ms": luck.choice((300, 500, 900)) for p in luck.sample((50, 90, 99), 2)}
    app = {"candidates": [{"demand": {"edge": 1}}], "latency": latency, "streams": 1}
    inputs = load_inputs(
        {"format": "hetplan/profile/1.0", "tiers": list(hardware), "hardware": hardware, "offers": offers},
        {"format": "hetplan/slo/1.0", "apps": {"a": app}},
    )
    faults = Faults.of(inputs)
    tiers = compound.read_tiers(inputs.profile, read_request(inputs), faults)
    faults.settle()
    for tier in tiers:
        load = Load(id="l", app="a")
        worker = Worker(id="w", hardware=tier.hardware, offer=tier.offer, loads=(load,))
        plan = Plan(
            question="compound", method=Method(formulation="by-hand"), inputs=InputHashes(profile="", slo=""),
            workers=(worker,),
        )  # fmt: skip
        said = {
            "solver": tier.machine_price * NANO,
            "simulator": worker_price(inputs, worker),
            "verifier": machine_cost(gather(plan, inputs), worker),
        }
        if any(value is None or float(value) != pytest.approx(said["solver"], rel=1e-9) for value in said.values()):
            yield f"profile {seed}: a machine of {tier.name} costs {said}"
        here = {name: offer for name, offer in inputs.profile.offers.items() if offer.hardware == tier.hardware}
        least = min(
            float(worker_price(inputs, worker.model_copy(update={"offer": name})) or 0) for name in here
        )  # fmt: skip
        if tier.machine_price * NANO != pytest.approx(least, rel=1e-9):
            yield f"profile {seed}: a machine of {tier.name} costs {tier.machine_price * NANO}, the cheapest {least}"
    wanted = inputs.slo.apps["a"]
    target = read_request(inputs).apps["a"].strictest
    stated = min(limit for limit, _ in response_targets(wanted))
    if target is None or target.max_ms != stated:
        yield f"profile {seed}: the limit of a search is {target}, of the verifier {stated}"


def test_compound_machines_and_limits_are_read_alike() -> None:
    found = [text for seed in range(200) for text in compound_differences(seed)]
    assert not found, "\n".join(found[:20])


COMPOUND_FAULTS: dict[str, tuple[str, Any]] = {
    "solver: the unit's price for the machine's": (
        "hetplan.problems.compound.request.machine_price", lambda offer, hardware: offer.price_per_hour,
    ),
    "solver: the machine's price for the unit's": (
        "hetplan.problems.compound.request.Tier.machine_price", property(lambda tier: tier.price),
    ),
    "solver: another target": (
        "hetplan.planner.request.strictest_target",
        lambda app: max(demand.response_targets(app), key=lambda target: target.max_ms),
    ),
    "verifier: offers by the unit are paid once": (
        "hetplan.verifier.resources.machine_nanos",
        lambda facts, worker, seats: facts.inputs.profile.offers[worker.offer].price_per_hour,
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", COMPOUND_FAULTS)
def test_a_fault_planted_in_compound_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*COMPOUND_FAULTS[fault])
    assert any(next(compound_differences(seed), None) for seed in range(60))


# A fault planted in each reader must be seen


def _first_run(profile: Any, load: Any, hardware: str, **_: Any) -> Any:
    return next(run for run in profile.variants[load.variant].runs if run.hardware == hardware)


def _knobs_first(*, knobs: Any, at: Any, variant_knobs: Any) -> dict[str, float]:
    return {name: float(value) for name, value in {**at, **variant_knobs, **knobs}.items() if value != "fast"}


def _own_table(profile: Any, variant: str, run: Any) -> Any:
    del variant
    return profile.tables[run.latency].model_copy(update={"outside": "clamp"})


FAULTS: dict[str, tuple[str, Any]] = {
    "simulator: the first run on the hardware": ("hetplan.serving.planned_system.run_of", _first_run),
    "simulator: knobs before the run's point": ("hetplan.serving.service.settings_of", _knobs_first),
    "simulator: the run's own table alone": ("hetplan.serving.service.table_of", _own_table),
    "simulator: another price": ("hetplan.serving.planned_system.worker_price", lambda inputs, worker: NANO),
    "simulator: the widest limit": (
        "hetplan.serving.planned_system.strictest_ms",
        lambda app: max(target.max_ms for target in app.targets),
    ),
    "load generator: twice the rate": (
        "hetplan.simulator.simulate.offered_qps",
        lambda plan, name, app: 2.0 * float(app.stated_qps),
    ),
    "load generator: the widest limit": (
        "hetplan.simulator.simulate.strictest_ms",
        lambda app: 1.0 + max(target.max_ms for target in app.targets),
    ),
    "solver: another rate": ("hetplan.planner.request.Application.rate_qps", property(lambda _: 1.0)),
    "executor: the first run on the hardware": ("hetplan.serving.loads.run_of", _first_run),
    "executor: another statistic": (
        "hetplan.executor.serving.law.answering_statistic",
        lambda held, wanted: list(held)[-1],
    ),
    "executor: no settings": ("hetplan.serving.loads.settings_of", lambda **_: {"size": 200.0}),
    "verifier: the first run on the hardware": (
        "hetplan.verifier.plan_index.run_of",
        lambda profile, worker, load: _first_run(profile, load, worker.hardware),
    ),
    "verifier: the run's own table alone": ("hetplan.verifier.service.table_along_batches", _own_table),
    "verifier: no share is paid": ("hetplan.verifier.slices._slices", lambda *_: None),
    "solver, pool: the first run": (
        "hetplan.problems.pool.request._run_on",
        lambda request, variant, *_: min(request.choices(variants=[variant]), key=lambda one: one.place),
    ),
    "solver, variants: knobs before the run's point": ("hetplan.serving.loads.settings_of", _knobs_first),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_planted_in_a_reader_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    for seed in range(200):
        try:
            if next(differences(seed), None) is not None:
                return
        except (InputError, OffTable):
            return
    pytest.fail("nobody saw it")

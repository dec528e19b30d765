"""Every reference of a profile, an SLO and a state: that it leads somewhere, and to the right kind of thing."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from hetplan.errors import Fault
from hetplan.profiles.inputs import FileOf, Steps
from hetplan.profiles.json_path import closest, json_path, shortened
from hetplan.profiles.profile import Metric, Profile, Run, Variant
from hetplan.profiles.slo import App, Slo
from hetplan.profiles.state import State
from hetplan.profiles.workers import Load

if TYPE_CHECKING:
    from hetplan.profiles.pipelines import Pipeline

__all__ = ["References", "known_ids"]

_SECTIONS = ("sources", "metrics", "hardware", "offers", "hosts", "tasks", "variants", "tables", "pipelines")
_SINGULAR = {
    "sources": "source",
    "metrics": "metric",
    "offers": "offer",
    "hosts": "host",
    "tasks": "task",
    "tiers": "tier",
    "variants": "variant",
    "tables": "table",
    "pipelines": "pipeline",
}
_MOST_SUGGESTIONS = 40
"""Looking for near names costs; a file with more dangling references has one cause, not many slips."""

_MOST_QPS = 1e12
"""A hundred queries per second of every living human: what is above is a slip."""

_QUANTITIES = {"latency": "latency_ms", "rate": "requests_per_s", "bytes_out": "bytes_out", "slowdown": "slowdown"}


def known_ids(document: Mapping[str, object]) -> dict[str, set[str]]:
    """The ids that a profile document defines, per section, also of things that have faults of their own."""
    found: dict[str, set[str]] = {}
    for section in _SECTIONS:
        held = document.get(section)
        found[section] = {str(name).lower() for name in held} if isinstance(held, Mapping) else set()
    return found


class References:
    """Collects the faults of one set of inputs. `known` may name more than `profile` holds (things with faults)."""

    def __init__(self, profile: Profile, known: Mapping[str, set[str]], file_of: FileOf) -> None:
        self.profile, self.known, self.file_of = profile, known, file_of
        self.faults: list[Fault] = []
        self.suggested = 0
        self.absent: dict[str, list[tuple[Steps, str]]] = {}
        """Sections that the profile lacks, and where they are named: one cause, so one fault."""

    def _fault(self, steps: Steps, value: object, why: str, remedy: str) -> None:
        self.faults.append(
            Fault(file=self.file_of(steps), path=json_path(steps), value=shortened(value), why=why, remedy=remedy)
        )

    def _known(self, section: str, name: str | None, *steps: str | int) -> None:
        """A fault unless the section has the name (None names nothing)."""
        if name is None or name in self.known[section]:
            return
        if not self.known[section]:
            self.absent.setdefault(section, []).append((steps, name))
            return
        self.suggested += 1
        near = closest(name, self.known[section]) if self.suggested <= _MOST_SUGGESTIONS else ""
        kind = _SINGULAR.get(section, section)
        add = f"{near}Or add it under {section}." if near else f"Add it under {section}."
        self._fault(steps, name, f"there is no {kind} {name!r} in the profile", add)

    def check_profile(self) -> None:
        """References within the profile."""
        profile = self.profile
        currencies = {offer.currency for offer in profile.offers.values()}
        for name, offer in profile.offers.items():
            self._known("hardware", offer.hardware, "offers", name, "hardware")
            if len(currencies) > 1 and offer.currency != min(currencies):
                listed = " and ".join(sorted(currencies))
                why = f"one currency for all offers, not {listed}"
                self._fault(("offers", name, "currency"), offer.currency, why, "Convert the prices; hetplan does not.")
        for name, host in profile.hosts.items():
            self._known("offers", host.offer, "hosts", name, "offer")
        for name, task in profile.tasks.items():
            self._known("metrics", task.metric, "tasks", name, "metric")
        for name, table in profile.tables.items():
            self._known("sources", table.source, "tables", name, "source")
        self._check_tiers()
        for name, variant in profile.variants.items():
            self._check_variant(name, variant)
        for name, pipeline in profile.pipelines.items():
            self._check_pipeline(name, pipeline)

    def _check_tiers(self) -> None:
        tiers = self.profile.tiers
        if len(set(tiers)) < len(tiers):
            self._fault(("tiers",), list(tiers), "different tiers, from near to far", "Name each once.")
        if not tiers and not self.profile.links:
            return
        for name, hardware in self.profile.hardware.items():
            self._known_tier(hardware.tier, "hardware", name, "tier")
        for number, link in enumerate(self.profile.links):
            for end, tier in enumerate(link.between):
                self._known_tier(tier, "links", number, "between", end)

    def _known_tier(self, tier: str | None, *steps: str | int) -> None:
        if tier is not None and not self.profile.tiers:
            self.absent.setdefault("tiers", []).append((steps, tier))
        elif tier is not None and tier not in self.profile.tiers:
            listed = ", ".join(self.profile.tiers) or "none"
            near = closest(tier, self.profile.tiers)
            self._fault(steps, tier, f"there is no tier {tier!r}", f"{near}Tiers are: {listed}.")

    def _check_variant(self, name: str, variant: Variant) -> None:
        if variant.task not in self.known["tasks"]:
            self._known("tasks", variant.task, "variants", name, "task")
        if variant.quality is not None:
            self._known("sources", variant.quality.source, "variants", name, "quality", "source")
            task = self.profile.tasks.get(variant.task)
            metric = self.profile.metrics.get(task.metric) if task is not None and task.metric is not None else None
            self._in_range(variant.quality.value, metric, "variants", name, "quality", "value")
        for number, run in enumerate(variant.runs):
            self._check_run(run, ("variants", name, "runs", number))

    def _in_range(self, value: float | None, metric: Metric | None, *steps: str | int) -> None:
        if value is None or metric is None or metric.range[0] <= value <= metric.range[1]:
            return
        low, high = metric.range
        remedy = f"Write a quality between {low:g} and {high:g}, or mend the metric's range."
        if low <= value / 100 <= high:
            remedy = f"Percent? Write {value / 100:.12g}, or widen the metric's range."
        self._fault(steps, value, f"a quality in its metric's range, {low:g} to {high:g}", remedy)

    def _check_run(self, run: Run, at: Steps) -> None:
        if run.hardware not in self.known["hardware"]:
            self._known("hardware", run.hardware, *at, "hardware")
        for key, quantity in _QUANTITIES.items():
            table_id = getattr(run, key)
            if table_id is None:
                continue
            table = self.profile.tables.get(table_id)
            if table is None:
                self._known("tables", table_id, *at, key)
            elif table.quantity != quantity:
                why = f"a table of {quantity}; {table_id} is one of {table.quantity}"
                keys = [other for other, held in _QUANTITIES.items() if held == table.quantity]
                remedy = f'Write it under "{keys[0]}".' if keys else "Name another table."
                self._fault((*at, key), table_id, why, remedy)
        if run.at:
            self._check_point(run, at)

    def _check_point(self, run: Run, at: Steps) -> None:
        """The table point of a run lies on axes that its table has."""
        table = self.profile.tables.get(run.latency or run.rate or "")
        if table is None:
            return
        for axis, value in run.at.items():
            if axis not in table.axes:
                listed = ", ".join(table.axes) or "none"
                remedy = f"{closest(axis, table.axes)}Its axes are: {listed}."
                self._fault((*at, "at", axis), value, f"table {run.latency or run.rate} has no axis {axis!r}", remedy)
            elif table.outside == "refuse" and not table.axes[axis][0] <= value <= table.axes[axis][-1]:
                why = f"a point of table {run.latency or run.rate}: {table.axes[axis][0]:g} to {table.axes[axis][-1]:g}"
                self._fault((*at, "at", axis), value, why, 'Measure it, or set "outside" of the table.')

    def _check_pipeline(self, name: str, pipeline: Pipeline) -> None:
        at: Steps = ("pipelines", name)
        self._known("metrics", pipeline.metric, *at, "metric")
        for node_id, node in pipeline.nodes.items():
            self._known("tasks", node.task, *at, "nodes", node_id, "task")
            if node.outcomes is not None:
                where: Steps = (*at, "nodes", node_id, "outcomes")
                self._known("sources", node.outcomes.source, *where, "source")
                for variant_id in sorted(node.outcomes.variants):
                    self._variant_of(variant_id, node.task, (*where, "share"))
        for number, edge in enumerate(pipeline.edges):
            if isinstance(edge.fanout, Mapping):
                task = pipeline.nodes[edge.from_].task
                for variant_id in edge.fanout:
                    if variant_id != "*":
                        self._variant_of(variant_id, task, (*at, "edges", number, "fanout", variant_id))
        for node_id in pipeline.quality.weights:
            self._node_of(node_id, pipeline, (*at, "quality", "weights", node_id))
        for path in pipeline.quality.paths:
            self._check_path(path, pipeline, (*at, "quality", "paths", path))

    def _check_path(self, path: str, pipeline: Pipeline, at: Steps) -> None:
        """Steps, variants and outcomes of a measured path are there, and the outcomes lead along it."""
        steps = [step.partition("=") for step in path.split("/")]
        for number, (node_id, _, named) in enumerate(steps):
            if not self._node_of(node_id, pipeline, at):
                return
            node = pipeline.nodes[node_id]
            variant_id, _, outcome = named.partition(":")
            if node.task is not None:
                self._variant_of(variant_id, node.task, at)
            known = list(node.outcomes.share) if node.outcomes is not None else []
            if outcome not in (known or [""]):
                why = f"{node_id} has no outcome {outcome!r}" if outcome else f"{node_id} has outcomes; which is it?"
                listed = f"Write one: {node_id}={variant_id}:{known[0]}." if known else f"Write {node_id}={variant_id}."
                self._fault(at, named, why, listed)
                return
            follow = {edge.to for edge in pipeline.edges if edge.from_ == node_id and edge.on in (None, outcome)}
            after = steps[number + 1][0] if number + 1 < len(steps) else None
            if known and (after not in follow if after is not None else follow):
                ends = ", ".join(sorted(follow)) or "the end"
                self._fault(at, named, f"after {node_id}:{outcome} comes {ends}", "Write the path as queries take it.")

    def _node_of(self, node_id: str, pipeline: Pipeline, steps: Steps) -> bool:
        if node_id in pipeline.nodes:
            return True
        listed = ", ".join(pipeline.nodes)
        remedy = f"{closest(node_id, pipeline.nodes)}Nodes are: {listed}."
        self._fault(steps, node_id, f"there is no node {node_id!r}", remedy)
        return False

    def _variant_of(self, variant_id: str, task: str | None, steps: Steps) -> None:
        self._known("variants", variant_id, *steps)
        variant = self.profile.variants.get(variant_id)
        if variant is not None and task is not None and variant.task != task:
            why = f"a variant of task {task}; {variant_id} is of {variant.task}"
            self._fault(steps, variant_id, why, "Name a variant of that task.")

    def check_slo(self, slo: Slo, *, complete: bool = True) -> None:
        """References of the SLO into the profile, and that it wishes for anything at all.

        Not `complete` is an SLO of which faulty things were set aside: what is missing there may be in the file.
        """
        if complete and not slo.apps:
            why = "an SLO has at least one application, which says what is to run and how much is asked of it"
            remedy = 'Write "apps": {"mine": {"runs": {"variants": ["..."]}, "demand": {"rate_qps": 100}}}.'
            self._fault(("apps",), {}, why, remedy)
        for name, app in slo.apps.items():
            self._check_rates(app, ("apps", name, "demand"))
        for hardware in slo.limits.instances:
            self._known("hardware", hardware, "limits", "instances", hardware)
        currencies = sorted({offer.currency for offer in self.profile.offers.values()})
        if slo.limits.cost_per_hour is not None and currencies and slo.limits.currency not in currencies:
            why = f"the currency of the offers, {currencies[0]}"
            remedy = f'Convert the limit, and write "currency": "{currencies[0]}".'
            self._fault(("limits", "currency"), slo.limits.currency, why, remedy)
        for name, app in slo.apps.items():
            self._check_app(app, ("apps", name))

    def _check_rates(self, app: App, at: Steps) -> None:
        """No rate is beyond all reason, whether a file states it or a caller."""
        demand = app.demand
        stated: list[tuple[Steps, object]] = [((*at, "rate_qps"), demand.rate_qps)]
        for key, rates in (("history_qps", demand.history_qps), ("series", demand.series)):
            stated += [((*at, key, number), rate) for number, rate in enumerate(rates or ())]
        for steps, rate in stated:
            if isinstance(rate, float) and rate > _MOST_QPS:
                why = f"a rate of at most {_MOST_QPS:g} queries per second"
                self._fault(steps, rate, why, "Check the number; rates are per second.")

    @cached_property
    def _families(self) -> frozenset[str]:
        return frozenset(v.family for v in self.profile.variants.values() if v.family is not None)

    def _check_app(self, app: App, at: Steps) -> None:
        if app.device is not None:
            for number, link in enumerate(app.device.links):
                for end, tier in enumerate(link.between):
                    self._known_tier(tier, *at, "device", "links", number, "between", end)
        if app.runs is None:
            return
        for number, variant in enumerate(app.runs.variants or ()):
            self._known("variants", variant, *at, "runs", "variants", number)
        families = self._families
        for number, family in enumerate(app.runs.families or ()):
            if not self.known["variants"]:
                self._known("variants", family, *at, "runs", "families", number)
            elif family not in families and self.known["variants"] <= self.profile.variants.keys():
                near = closest(family, families)
                remedy = f"{near}Or give variants that family." if near else "Give variants that family."
                self._fault((*at, "runs", "families", number), family, f"no variant is of family {family!r}", remedy)
        self._known("tasks", app.runs.task, *at, "runs", "task")
        self._known("pipelines", app.runs.pipeline, *at, "runs", "pipeline")
        pipeline = self.profile.pipelines.get(app.runs.pipeline or "")
        if app.late == "reroute" and pipeline is not None and pipeline.has_outcomes:
            why = "late queries are not rerouted where a step has outcomes: what follows is not known beforehand"
            self._fault((*at, "late"), app.late, why, 'Write "serve", or one of the rules that drop.')
        if app.quality is not None:
            for metric in self._metrics_of(app):
                self._in_range(app.quality.min, metric, *at, "quality", "min")
                self._in_range(app.quality.max, metric, *at, "quality", "max")

    def _metrics_of(self, app: App) -> Sequence[Metric]:
        """The metric of an app's answers, where it has one (a pipeline may combine several)."""
        assert app.runs is not None
        names: set[str | None] = set()
        variants = self.profile.variants
        tasks = {variants[name].task for name in app.runs.variants or () if name in variants}
        tasks |= {variant.task for variant in variants.values() if variant.family in (app.runs.families or ())}
        tasks |= {app.runs.task} if app.runs.task is not None else set()
        names |= {self.profile.tasks[task].metric for task in tasks if task in self.profile.tasks}
        pipeline = self.profile.pipelines.get(app.runs.pipeline or "")
        if pipeline is not None:
            if pipeline.metric is None:
                return self._combined(pipeline)
            names.add(pipeline.metric)
        found = [self.profile.metrics[name] for name in names if name is not None and name in self.profile.metrics]
        return found if len(found) == 1 else []

    def _combined(self, pipeline: Pipeline) -> Sequence[Metric]:
        """The range of a product of qualities, where every factor has one from 0 up."""
        if pipeline.quality.rule != "product":
            return []
        most = 1.0
        for node in pipeline.nodes.values():
            task = self.profile.tasks.get(node.task or "")
            metric = self.profile.metrics.get(task.metric or "") if task is not None else None
            if metric is None or metric.range[0] < 0:
                return []
            most *= metric.range[1]
        return [Metric(range=(0.0, most))]

    def check_state(self, state: State, slo: Slo | None, *, complete: bool) -> None:
        """References of the state into the profile and the SLO; `complete` says that no worker was set aside."""
        loads = {load.id for worker in state.workers for load in worker.loads}
        observable = sorted(loads | {worker.id for worker in state.workers} | self.known["hosts"])
        for name in state.observed:
            if complete and name not in observable:
                remedy = f"{closest(name, observable)}Name a load or worker of the state, or a host of the profile."
                self._fault(("observed", name), name, f"nothing here has the id {name!r}", remedy)
        for number, worker in enumerate(state.workers):
            at: Steps = ("workers", number)
            self._known("hardware", worker.hardware, *at, "hardware")
            self._known("offers", worker.offer, *at, "offer")
            self._known("hosts", worker.host, *at, "host")
            for place, load in enumerate(worker.loads):
                self._known("variants", load.variant, *at, "loads", place, "variant")
                self._check_run_of(load, worker.hardware, (*at, "loads", place))
                if slo is not None and load.app is not None and load.app not in slo.apps:
                    remedy = f"{closest(load.app, slo.apps)}Name an application of the SLO, or leave it out."
                    self._fault((*at, "loads", place, "app"), load.app, f"the SLO has no app {load.app!r}", remedy)

    def _check_run_of(self, load: Load, hardware: str, at: Steps) -> None:
        """A load that names no run means the only one of its variant on its hardware."""
        variant = self.profile.variants.get(load.variant or "") if load.at is None else None
        runs = [run for run in variant.runs if run.hardware == hardware] if variant is not None else []
        if len(runs) > 1:
            listed = " and ".join(json.dumps(dict(run.at)) for run in runs)
            why = f"{load.variant} has {len(runs)} runs on {hardware}, and the load names none of them: at {listed}"
            self._fault((*at, "at"), load.variant, why, f'Say which one runs: "at": {json.dumps(dict(runs[0].at))}.')

    def drain(self, *, said: Collection[str] = ()) -> Iterator[Fault]:
        """The faults so far, each once; of `said`, sections that are missing, enough has been said."""
        for section, places in self.absent.items():
            if section not in said:
                yield self._missing(section, places)
        yield from dict.fromkeys(self.faults)
        self.faults.clear()
        self.absent.clear()

    def _missing(self, section: str, places: Sequence[tuple[Steps, str]]) -> Fault:
        """A section that is not there at all, by the first place that names something of it."""
        (steps, name), kind = places[0], _SINGULAR.get(section, section)
        why, remedy = f"there is no {kind} {name!r} in the profile", f"Add it under {section}."
        if len(places) > 1:
            why = f"the profile has no section {section!r}, and {len(places)} places, of which this is one, need it"
            remedy = f'Add "{section}" to the profile, or give the file that holds it as a second profile.'
        return Fault(file=self.file_of(steps), path=json_path(steps), value=shortened(name), why=why, remedy=remedy)

"""Every reference of a profile and an SLO: that it leads somewhere, and to the right kind of thing."""

from __future__ import annotations

from hetplan.profiles.dangling import Dangling
from hetplan.profiles.places import Steps
from hetplan.profiles.profile import Run, Variant
from hetplan.profiles.slo import App, Slo

__all__ = ["References"]

_MOST_QPS = 1e12
"""A hundred queries per second of every living human: what is above is a slip."""

_QUANTITIES = {"latency": "latency_ms", "rate": "requests_per_s", "bytes_out": "bytes_out", "slowdown": "slowdown"}


class References(Dangling):
    """Checks of a profile and an SLO; what leads nowhere is collected."""

    def check_profile(self) -> None:
        """References within the profile."""
        profile = self.profile
        currencies = {offer.currency for offer in profile.offers.values()}
        for name, offer in profile.offers.items():
            self.must_know("hardware", offer.hardware, "offers", name, "hardware")
            if len(currencies) > 1 and offer.currency != min(currencies):
                listed = " and ".join(sorted(currencies))
                why = f"one currency for all offers, not {listed}"
                self.fault(("offers", name, "currency"), offer.currency, why, "Convert the prices; hetplan does not.")
        if profile.zones:
            from hetplan.profiles.fleet_references import check_zones

            check_zones(self)
        for name, host in profile.hosts.items():
            self.must_know("offers", host.offer, "hosts", name, "offer")
        for name, task in profile.tasks.items():
            self.must_know("metrics", task.metric, "tasks", name, "metric")
        for name, table in profile.tables.items():
            self.must_know("sources", table.source, "tables", name, "source")
        if profile.engines:
            from hetplan.profiles.engine_faults import check_engine

            for name, engine in profile.engines.items():
                check_engine(self, name, engine)
        if profile.tiers or profile.links:
            from hetplan.profiles.pipeline_references import check_tiers

            check_tiers(self)
        for name, variant in profile.variants.items():
            self._check_variant(name, variant)
        if profile.pipelines:
            from hetplan.profiles.pipeline_references import check_pipeline

            for name, pipeline in profile.pipelines.items():
                check_pipeline(self, name, pipeline)

    def _check_variant(self, name: str, variant: Variant) -> None:
        if variant.task not in self.known["tasks"]:
            self.must_know("tasks", variant.task, "variants", name, "task")
        if variant.quality is not None:
            self.must_know("sources", variant.quality.source, "variants", name, "quality", "source")
            metric = self.profile.metric_of(variant.task)
            if metric is not None and not metric.range[0] <= variant.quality.value <= metric.range[1]:
                from hetplan.profiles.quality_references import in_range

                in_range(self, variant.quality.value, metric, "variants", name, "quality", "value")
        for number, run in enumerate(variant.runs):
            self._check_run(run, ("variants", name, "runs", number))

    def _check_run(self, run: Run, at: Steps) -> None:
        if run.hardware not in self.known["hardware"]:
            self.must_know("hardware", run.hardware, *at, "hardware")
        self.must_know("engines", run.engine, *at, "engine")
        for key, quantity in _QUANTITIES.items():
            table_id = getattr(run, key)
            if table_id is None:
                continue
            table = self.profile.tables.get(table_id)
            if table is None:
                self.must_know("tables", table_id, *at, key)
            elif table.quantity != quantity:
                why = f"a table of {quantity}; {table_id} is one of {table.quantity}"
                keys = [other for other, held in _QUANTITIES.items() if held == table.quantity]
                remedy = f'Write it under "{keys[0]}".' if keys else "Name another table."
                self.fault((*at, key), table_id, why, remedy)
        if run.at or run.saturation_qps is not None:
            from hetplan.profiles.quality_references import check_point

            check_point(self, run, at)

    def check_slo(self, slo: Slo, *, complete: bool = True) -> None:
        """References of the SLO into the profile, and that it wishes for anything at all.

        Not `complete` is an SLO of which faulty things were set aside: what is missing there may be in the file.
        """
        if complete and not slo.apps:
            why = "an SLO has at least one application, which says what is to run and how much is asked of it"
            remedy = 'Write "apps": {"mine": {"model": "...", "rate_qps": 100}}.'
            self.fault(("apps",), {}, why, remedy)
        for name, app in slo.apps.items():
            self._check_rates(app, ("apps", name, "rate_qps"))
        if slo.limits.purchases or slo.limits.survive.zones:
            from hetplan.profiles.fleet_references import check_limits

            check_limits(self, slo)
        for hardware in slo.limits.instances:
            self.must_know("hardware", hardware, "limits", "instances", hardware)
        currencies = sorted({offer.currency for offer in self.profile.offers.values()})
        stated = slo.limits.cost_per_hour is not None or "currency" in slo.limits.model_fields_set
        if stated and currencies and slo.limits.currency not in currencies:
            why = f"the currency of the offers, {currencies[0]}"
            remedy = f'Convert what the SLO says of money, and write "currency": "{currencies[0]}".'
            self.fault(("limits", "currency"), slo.limits.currency, why, remedy)
        for name, app in slo.apps.items():
            self._check_app(app, ("apps", name))

    def _check_rates(self, app: App, at: Steps) -> None:
        """No rate is beyond all reason, whether a file states it or a caller."""
        mean = None if app.rates is None else app.rates.mean
        stated: list[tuple[Steps, object]] = [(at, app.rate_qps), ((*at, "mean"), mean)]
        for key, rates in (("history", app.history), ("series", app.series)):
            stated += [((*at, key, number), rate) for number, rate in enumerate(rates or ())]
        for steps, rate in stated:
            if isinstance(rate, float) and rate > _MOST_QPS:
                why = f"a rate of at most {_MOST_QPS:g} queries per second"
                self.fault(steps, rate, why, "Check the number; rates are per second.")

    def _check_app(self, app: App, at: Steps) -> None:
        if app.device is not None:
            from hetplan.profiles.pipeline_references import check_device

            check_device(self, app.device, (*at, "device"))
        if app.candidates:
            return
        self.must_know("variants", app.model, *at, "model")
        for number, variant in enumerate(app.models or ()):
            self.must_know("variants", variant, *at, "models", number)
        if app.families is not None:
            from hetplan.profiles.quality_references import check_families

            check_families(self, app.families, (*at, "family"))
        self.must_know("tasks", app.task, *at, "task")
        self.must_know("pipelines", app.pipeline, *at, "pipeline")
        pipeline = self.profile.pipelines.get(app.pipeline or "")
        if app.late == "reroute" and pipeline is not None and pipeline.has_outcomes:
            why = "late queries are not rerouted where a step has outcomes: what follows is not known beforehand"
            self.fault((*at, "late"), app.late, why, 'Write "serve", or one of the rules that drop.')
        if app.quality is not None:
            from hetplan.profiles.quality_references import check_wished

            check_wished(self, app, at)

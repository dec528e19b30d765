"""References of a state into the profile and the SLO."""

from __future__ import annotations

import json

from hetplan.profiles.dangling import Dangling
from hetplan.profiles.json_path import closest
from hetplan.profiles.places import Steps
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo
from hetplan.profiles.state import State
from hetplan.profiles.workers import Load, Worker

__all__ = ["check_state", "with_runs"]


def check_state(found: Dangling, state: State, slo: Slo | None, *, complete: bool) -> None:
    """References of the state into the profile and the SLO; `complete` says that no worker was set aside."""
    loads = {load.id for worker in state.workers for load in worker.loads}
    observable = sorted(loads | {worker.id for worker in state.workers} | found.known["hosts"])
    for name in state.observed:
        if complete and name not in observable:
            remedy = f"{closest(name, observable)}Name a load or worker of the state, or a host of the profile."
            found.fault(("observed", name), name, f"nothing here has the id {name!r}", remedy)
    for number, worker in enumerate(state.workers):
        at: Steps = ("workers", number)
        found.must_know("hardware", worker.hardware, *at, "hardware")
        found.must_know("offers", worker.offer, *at, "offer")
        offered = found.profile.offers.get(worker.offer or "")
        if offered is not None and worker.hardware in found.known["hardware"] - {offered.hardware}:
            why = f"the hardware of its offer: {worker.offer} is one of {offered.hardware}"
            found.fault((*at, "hardware"), worker.hardware, why, "Mend one of them.")
        found.must_know("hosts", worker.host, *at, "host")
        _check_host_of(found, worker, at)
        for place, load in enumerate(worker.loads):
            found.must_know("variants", load.variant, *at, "loads", place, "variant")
            _check_run_of(found, load, worker.hardware, (*at, "loads", place))
            if slo is not None and load.app is not None and load.app not in slo.apps:
                remedy = f"{closest(load.app, slo.apps)}Name an application of the SLO, or leave it out."
                found.fault((*at, "loads", place, "app"), load.app, f"the SLO has no app {load.app!r}", remedy)


def _check_host_of(found: Dangling, worker: Worker, at: Steps) -> None:
    """A worker on a host of the profile runs on what the profile says of it: the machine cannot be another one."""
    host = found.profile.hosts.get(worker.host or "")
    if host is None or host.offer not in found.profile.offers:
        return
    hardware = found.profile.offers[host.offer].hardware
    for name, section, runs, stated in (
        ("offer", "offers", worker.offer, host.offer),
        ("hardware", "hardware", worker.hardware, hardware),
    ):
        if runs in found.known[section] and runs != stated:
            why = f"{worker.host} is a machine of {host.offer}, of type {hardware}, where {worker.id} runs"
            remedy = f"Write {stated}, or leave it out; if {worker.host} was replaced, {worker.id} is gone."
            found.fault((*at, name), runs, why, remedy)
            return


def _check_run_of(found: Dangling, load: Load, hardware: str, at: Steps) -> None:
    """A load that names no run means the only one of its variant on its hardware."""
    variant = found.profile.variants.get(load.variant or "") if load.at is None else None
    runs = [run for run in variant.runs if run.hardware == hardware] if variant is not None else []
    if len(runs) > 1:
        listed = " and ".join(json.dumps(dict(run.at)) for run in runs)
        why = f"{load.variant} has {len(runs)} runs on {hardware}, and the load names none of them: at {listed}"
        found.fault((*at, "at"), load.variant, why, f'Say which one runs: "at": {json.dumps(dict(runs[0].at))}.')


def with_runs(state: State, profile: Profile) -> State:
    """The state with the run of each load that fits one only, and the file of its weights, where it leaves them out."""

    def named(load: Load, hardware: str) -> Load:
        variant = profile.variants.get(load.variant or "")
        if variant is None:
            return load
        runs = [run for run in variant.runs if run.hardware == hardware] if load.at is None else []
        left_out = {"at": dict(runs[0].at)} if len(runs) == 1 else {}
        return load.model_copy(update={**left_out, "artifact": load.artifact or variant.weights})

    workers = (
        worker.model_copy(update={"loads": tuple(named(load, worker.hardware) for load in worker.loads)})
        for worker in state.workers
    )
    return state.model_copy(update={"workers": tuple(workers)})

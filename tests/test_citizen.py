"""Public types are plain values: they survive pickling, copying and process pools, and errors keep what they carry."""

from __future__ import annotations

import copy
import ctypes
import importlib
import inspect
import logging
import multiprocessing
import os
import pickle
import pkgutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cases.in_processes import FAULT, PLANNED, plan_in_another_process, raise_it

import hetplan as hp
from hetplan.errors import NoSolver, SolverFailed
from hetplan.profiles.load_one import load_state
from hetplan.solvers.engine import without_prints

POOL = Path(__file__).resolve().parents[1] / "examples" / "pool"
FILES = str(POOL / "profile.json"), str(POOL / "slo.json")


def error_classes() -> list[type[hp.HetplanError]]:
    """Every error of the package, also those of rooms that a caller seldom imports."""
    for found in pkgutil.walk_packages(hp.__path__, "hetplan."):
        if "kernels" not in found.name and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    every, look = [], [hp.HetplanError]
    while look:
        kind = look.pop()
        every.append(kind)
        look += kind.__subclasses__()
    return sorted((kind for kind in every if kind.__module__.startswith("hetplan.")), key=lambda kind: kind.__name__)


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "Infeasible": (["too dear"],),
    "InputError": ([FAULT, FAULT],),
    "NoSolver": ("milp", {"highs": "not installed"}),
    "PlanRejected": (["cost: 3 is above 2"],),
    "SolverFailed": ("highs", "broke"),
}


def made(kind: type[hp.HetplanError]) -> hp.HetplanError:
    """One error of this class, with a word for whatever it wants to be given."""
    if kind.__name__ in ARGUMENTS:
        return kind(*ARGUMENTS[kind.__name__])
    has_its_own = any("__init__" in vars(one) for one in kind.__mro__ if issubclass(one, hp.HetplanError))
    wanted = inspect.signature(kind.__init__).parameters.values() if has_its_own else ()
    needed = [one for one in wanted if one.default is one.empty and one.name not in ("self", "args", "kwargs")]
    named = {one.name: "words" for one in needed if one.kind is one.KEYWORD_ONLY}
    return kind(*("words" for _ in range(len(needed) - len(named) or 1)), **named)


def same(before: BaseException, after: BaseException) -> bool:
    return type(before) is type(after) and str(before) == str(after) and vars(before) == vars(after)


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_errors_survive_pickling_and_copying(kind: type[hp.HetplanError]) -> None:
    error = made(kind)
    assert same(error, pickle.loads(pickle.dumps(error)))
    assert same(error, copy.copy(error))
    assert same(error, copy.deepcopy(error))


def test_an_exit_code_of_its_own_is_kept() -> None:
    assert pickle.loads(pickle.dumps(hp.Interrupted("time is up", exit_code=5))).exit_code == 5


@pytest.mark.slow
def test_errors_and_planners_cross_a_process_pool() -> None:
    planner = hp.Planner(*FILES, options=PLANNED)
    here = plan_in_another_process(planner)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for number, kind in enumerate((NoSolver, SolverFailed, hp.InputError)):
            error = pool.submit(raise_it, number).exception(timeout=60)
            assert type(error) is kind
            if isinstance(error, hp.InputError):
                assert error.faults == (FAULT,)
        assert pool.submit(plan_in_another_process, planner).result(timeout=60) == here


def test_an_error_in_a_pool_of_processes_arrives_and_does_not_hang_it() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for number, kind in enumerate((NoSolver, SolverFailed, hp.InputError)):
            with pytest.raises(kind):
                pool.apply_async(raise_it, (number,)).get(timeout=60)


def examples() -> dict[str, Any]:
    """One value of every public class."""
    inputs = hp.load(*FILES)
    outcome = hp.solve(*FILES, options=PLANNED)
    return {
        "Event": hp.Event("solved", value=1.0),
        "Inputs": inputs,
        "Outcome": outcome,
        "Plan": outcome.require(),
        "Planner": hp.Planner(*FILES),
        "Profile": inputs.profile,
        "Repair": hp.Repair("slo.limits.cost_per_hour", "raise", 1.0, 3.0, "USD", "raise it to 3"),
        "Slo": inputs.slo,
        "State": load_state({"format": "hetplan/state/1.0"}),
    }


def test_every_public_type_survives_pickling_and_copying() -> None:
    values = examples()
    kinds = {
        name
        for name in hp.__all__
        if inspect.isclass(getattr(hp, name)) and not issubclass(getattr(hp, name), Exception)
    }
    assert kinds == set(values)
    for name, value in values.items():
        for again in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
            assert type(again) is type(value), name
            if name not in ("Planner", "Outcome"):
                assert again == value, name
    assert pickle.loads(pickle.dumps(values["Outcome"])).require() == values["Plan"]


@pytest.mark.slow
def test_nothing_is_printed_from_the_library(capfd: pytest.CaptureFixture[str]) -> None:
    """By file descriptor: engines write from C++."""
    for room, options in (("pool", PLANNED), ("variants", {}), ("pipeline", PLANNED)):
        folder = POOL.parent / room
        hp.solve(str(folder / "profile.json"), str(folder / "slo.json"), options=options)
    assert capfd.readouterr() == ("", "")


def test_only_what_c_code_prints_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    """From the outermost solve to its end; what Python writes stays."""
    libc = ctypes.CDLL(None)
    with without_prints():
        with without_prints():
            libc.puts(b"engine")
        libc.puts(b"engine")
        os.write(1, b"python\n")
    libc.puts(b"after")
    libc.fflush(None)
    assert capfd.readouterr() == ("python\nafter\n", "")


def test_events_are_logged_where_somebody_listens(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Any] = []
    hp.solve(*FILES, on_event=events.append, options=PLANNED)
    assert not caplog.records
    with caplog.at_level(logging.INFO, logger="hetplan"):
        hp.solve(*FILES, options=PLANNED)
    assert len(caplog.records) == len(events) > 0
    assert caplog.records[0].name == "hetplan"
    assert caplog.records[0].event.what in caplog.text


def test_a_plan_that_names_what_is_not_there_is_refused_by_simulation() -> None:
    plan = hp.solve(*FILES, options=PLANNED).require()
    first, *rest = plan.workers
    for change, why in (({"hardware": "abacus"}, "no such hardware"), ({"offer": "gift"}, "no such offer")):
        edited = plan.model_copy(update={"workers": (first.model_copy(update=change), *rest)})
        with pytest.raises(hp.InputError, match=why):
            hp.simulate(edited, *FILES, seeds=1)

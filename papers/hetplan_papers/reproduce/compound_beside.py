"""Searches to compare with that hetplan does not ship: at random, Optuna's TPE and NSGA-II, SMAC3, BoTorch.

python -m hetplan_papers.reproduce.compound_beside 1000 10              seeds from 1000 on, so many of each
python -m hetplan_papers.reproduce.compound_beside 1000 10 SR smac3     of this application and search only

All choose configurations only; where these run, and with which shares, is found by the same arithmetic as for
`struct-ci`, so that what is compared is the choice of what to measure. TPE, NSGA-II and SMAC3 minimise the price of the
cheapest compliant plan of a configuration; one that has none counts as 10 more than the dearest, and by how far it
misses its targets. BoTorch's constrained expected improvement has a process for each of price, accuracy and latency.
A search whose package is not installed is left out, with a line.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hetplan.extend import (
    BlackBox,
    BlackBoxEngine,
    BlackBoxSearch,
    LightProcess,
    MakeProcess,
    Measured,
    Verdict,
    solver,
)
from hetplan_papers.datasets.circinus_generator import APPS
from hetplan_papers.reproduce import compound_search


class Configurations(BlackBoxSearch):
    """Any configuration, placed by arithmetic."""

    whole: ClassVar[bool] = True

    def next(self) -> int:
        """Another one at random."""
        return self.first()


class Tpe(Configurations):
    """Optuna's sampler over the levels of the knobs."""

    def __init__(self, form: BlackBox, seed: int = 0, make: MakeProcess = LightProcess) -> None:
        super().__init__(form, seed, make)
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.study = optuna.create_study(sampler=self.sampler(seed))
        self.asked: dict[int, Any] = {}

    def sampler(self, seed: int) -> Any:
        """Of the study."""
        import optuna

        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=5)

    def next(self) -> int:
        """What the sampler proposes; after ten repeats any other one."""
        form = self.form
        for _ in range(10):
            trial = self.study.ask()
            at = tuple(trial.suggest_int(f"k{k}", 0, levels - 1) for k, levels in enumerate(form.levels))
            c = int(np.ravel_multi_index(at, form.levels))
            if self.open[c * len(form.placements)]:
                self.asked[c] = trial
                return c * len(form.placements)
            self.study.tell(trial, self._value(form.journal[c]))
        return self.first()

    def first(self) -> int:
        """The sampler begins at random by itself."""
        return self.next() if self.observed < self.form.first_random else super().first()

    def learn(self, plan: int, found: Measured) -> None:
        """Tell the sampler."""
        trial = self.asked.pop(plan // len(self.form.placements), None)
        if trial is not None:
            self.study.tell(trial, self._value(found))

    def _value(self, found: Measured) -> float:
        form = self.form
        if found.verdict is Verdict.SET_ASIDE:
            return 1e6
        cost = float(form.costs(found.configuration).min())
        late = max(0.0, float(form.at_full(found).min()) / form.limit_s - 1.0)
        return cost if np.isfinite(cost) else float(form.full_price.max()) + 10.0 + late + abs(found.mean - form.target)


class Nsga(Tpe):
    """Optuna's NSGA-II, of one objective, with few at a time: there are only so many steps."""

    def sampler(self, seed: int) -> Any:
        """Of the study."""
        import optuna

        return optuna.samplers.NSGAIISampler(seed=seed, population_size=8)


def _never(config: Any, seed: int) -> float:
    """What SMAC3 would measure by itself; it gets to know what was measured instead."""
    del config, seed
    return 0.0


class Smac(Tpe):
    """SMAC3 (its facade for hyperparameters, a random forest) over the knobs; not among the extras."""

    def __init__(self, form: BlackBox, seed: int = 0, make: MakeProcess = LightProcess) -> None:
        super().__init__(form, seed, make)
        from ConfigSpace import ConfigurationSpace
        from smac.facade.hyperparameter_optimization_facade import HyperparameterOptimizationFacade as Facade
        from smac.scenario import Scenario

        space = ConfigurationSpace({f"k{k}": (0, levels - 1) for k, levels in enumerate(form.levels) if levels > 1})
        folder = Path(tempfile.mkdtemp())
        scenario = Scenario(space, deterministic=True, n_trials=form.most * 20, seed=seed, output_directory=folder)
        begin = Facade.get_initial_design(scenario, n_configs=5)
        self.smac = Facade(scenario, _never, initial_design=begin, logging_level=False)

    def next(self) -> int:
        """What the optimiser proposes; after ten repeats any other one."""
        from smac.main.exceptions import ConfigurationSpaceExhaustedException

        form = self.form
        for _ in range(10):
            try:
                trial = self.smac.ask()
            except (ConfigurationSpaceExhaustedException, StopIteration):
                break
            c = int(np.ravel_multi_index([trial.config.get(f"k{k}", 0) for k in range(len(form.levels))], form.levels))
            if self.open[c * len(form.placements)]:
                self.asked[c] = trial
                return c * len(form.placements)
            self._say(trial, form.journal[c])
        return self.first()

    def learn(self, plan: int, found: Measured) -> None:
        """Tell the optimiser."""
        trial = self.asked.pop(plan // len(self.form.placements), None)
        if trial is not None:
            self._say(trial, found)

    def _say(self, trial: Any, found: Measured) -> None:
        from smac.runhistory import TrialValue

        self.smac.tell(trial, TrialValue(cost=self._value(found)))


class ConstrainedEi(Configurations):
    """BoTorch: a process each for price, accuracy and latency over the knobs, and constrained expected improvement.

    The price is that of the fastest placement in time, or of the fastest one; latency is the log of its part of the
    limit. While nothing complies, the likeliest to comply is asked for. Every configuration is weighed.
    """

    def __init__(self, form: BlackBox, seed: int = 0, make: MakeProcess = LightProcess) -> None:
        super().__init__(form, seed, make)
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        spans = np.maximum(np.array(form.levels) - 1, 1)
        self.points = np.stack(np.unravel_index(np.arange(form.settings), form.levels), axis=1) / spans
        self.seen: list[tuple[int, float, float, float, float]] = []

    def next(self) -> int:
        """Of all configurations that were not measured, the one of the highest value; five are drawn to begin with."""
        left = np.flatnonzero(self.open[:: len(self.form.placements)])
        if len(self.seen) < 5:
            return self.first()
        return int(left[int(np.argmax(self._values(left)))]) * len(self.form.placements)

    def learn(self, plan: int, found: Measured) -> None:
        """Note price, accuracy, its variance and latency."""
        del plan
        form = self.form
        if found.verdict is Verdict.SET_ASIDE:
            return
        fast = form.at_full(found)
        known = replace(form, journal={found.configuration: replace(found, passes=True)})
        price = float(known.costs(found.configuration).min())
        price = price if np.isfinite(price) else float(form.full_price[int(fast.argmin())])
        late = float(np.log(max(fast.min(), 1e-9) / form.limit_s))
        self.seen.append((found.configuration, price, form.orient(found.mean), max(found.se, 1e-3) ** 2, late))

    def _values(self, left: np.ndarray) -> Any:
        """The acquisition of these configurations."""
        import torch
        from botorch.acquisition.analytic import LogConstrainedExpectedImprovement, LogProbabilityOfFeasibility
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import ModelListGP, SingleTaskGP
        from botorch.models.transforms import Standardize
        from gpytorch.mlls import SumMarginalLogLikelihood

        form = self.form
        at, *columns = (np.array(column) for column in zip(*self.seen, strict=True))
        price, accuracy, noise, late = (torch.tensor(column, dtype=torch.double)[:, None] for column in columns)
        points = torch.tensor(self.points[at], dtype=torch.double)
        models = [
            SingleTaskGP(points, price, outcome_transform=Standardize(1)),
            SingleTaskGP(points, accuracy, noise, outcome_transform=Standardize(1)),
            SingleTaskGP(points, late, outcome_transform=Standardize(1)),
        ]
        model = ModelListGP(*models)
        fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
        limits = {1: (form.orient(form.target), None), 2: (None, 0.0)}
        best = min((p for c, p, _, _, late in self.seen if form.journal[c].passes and late <= 0.0), default=None)
        if best is None:
            value = LogProbabilityOfFeasibility(model, limits)
        else:
            value = LogConstrainedExpectedImprovement(model, best, 0, limits, maximize=False)
        with torch.no_grad():
            return value(torch.tensor(self.points[left][:, None, :], dtype=torch.double)).numpy()


class AnyConfigurations(BlackBoxEngine):
    """Random configurations."""

    name: ClassVar[str] = "any-configurations"
    search: ClassVar[type[BlackBoxSearch]] = Configurations


class OptunaTpe(BlackBoxEngine):
    """Optuna's TPE."""

    name: ClassVar[str] = "optuna-tpe"
    search: ClassVar[type[BlackBoxSearch]] = Tpe


class OptunaNsga(BlackBoxEngine):
    """Optuna's NSGA-II."""

    name: ClassVar[str] = "optuna-nsga"
    search: ClassVar[type[BlackBoxSearch]] = Nsga


class Smac3(BlackBoxEngine):
    """SMAC3."""

    name: ClassVar[str] = "smac3"
    search: ClassVar[type[BlackBoxSearch]] = Smac


class BotorchEi(BlackBoxEngine):
    """BoTorch's constrained expected improvement."""

    name: ClassVar[str] = "botorch-cei"
    search: ClassVar[type[BlackBoxSearch]] = ConstrainedEi


NEEDS = {"optuna-tpe": "optuna", "optuna-nsga": "optuna", "smac3": "smac", "botorch-cei": "botorch"}


def main(first: int, count: int, only: Sequence[str] = ()) -> None:
    """Median and 75th percentile of the steps to a compliant plan and to one within 5 %, and measured seconds."""
    engines: dict[str, BlackBoxEngine] = {
        "struct-ci": solver("struct-ci"), "any-configurations": AnyConfigurations(), "optuna-tpe": OptunaTpe(),
        "optuna-nsga": OptunaNsga(), "smac3": Smac3(), "botorch-cei": BotorchEi(),
    }  # fmt: skip
    engines = {name: one for name, one in engines.items() if name in only} or engines
    for name in [name for name in engines if name in NEEDS and find_spec(NEEDS[name]) is None]:
        print(f"{name} is left out: {NEEDS[name]} is not installed", flush=True)
        engines.pop(name)
    for app in [app for app in APPS if app in only] or APPS:
        for name, engine in engines.items():
            # All by the t-test, and set up alike: what is compared is which configurations are measured.
            compound_search.METHODS["struct"] = engine
            runs = compound_search.searched("struct", app, range(first, first + count), kind="t")
            said = []
            for what in ("first", "near"):
                steps = [np.inf if (n := getattr(run, what)) is None else n for run in runs]
                half, most = (np.percentile(steps, percent, method="higher") for percent in (50, 75))
                spent = [np.inf if (s := getattr(run, f"gpu_s_{what}")) is None else s for run in runs]
                half_s, most_s = (np.percentile(spent, percent, method="higher") for percent in (50, 75))
                said.append(f"{what} {half:.0f} (p75 {most:.0f}), GPU-s {half_s:.0f} (p75 {most_s:.0f})")
            print(app, name, "; ".join(said), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1000, int(sys.argv[2]) if sys.argv[2:] else 10, sys.argv[3:])

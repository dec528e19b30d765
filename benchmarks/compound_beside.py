"""Searches to compare with that hetplan does not ship: random configurations, Optuna's TPE and NSGA-II, and SMAC3.

python benchmarks/compound_beside.py 1000 10              seeds from 1000 on, so many of each application
python benchmarks/compound_beside.py 1000 10 SR smac3     of this application and search only (pip install smac)

All choose configurations only; where these run, and with which shares, is found by the same arithmetic as for
`struct-ci`, so that what is compared is the choice of what to measure. The others minimise the price of the
cheapest compliant plan of a configuration; one that has none counts as 10 more than the dearest, and by how far it
misses its targets.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import compound_search
from hetplan.measure.evaluator_synthetic import APPS
from hetplan.planner.forms.black_box import BlackBox, Measured, Verdict
from hetplan.solvers.gaussian_process import LightProcess
from hetplan.solvers.search import Search, SearchEngine, StructCi
from hetplan.solvers.search_beliefs import MakeProcess


class Configurations(Search):
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
        form = self.form
        for _ in range(10):
            trial = self.smac.ask()
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


class AnyConfigurations(SearchEngine):
    """Random configurations."""

    name: ClassVar[str] = "any-configurations"
    search: ClassVar[type[Search]] = Configurations


class OptunaTpe(SearchEngine):
    """Optuna's TPE."""

    name: ClassVar[str] = "optuna-tpe"
    search: ClassVar[type[Search]] = Tpe


class OptunaNsga(SearchEngine):
    """Optuna's NSGA-II."""

    name: ClassVar[str] = "optuna-nsga"
    search: ClassVar[type[Search]] = Nsga


class Smac3(SearchEngine):
    """SMAC3."""

    name: ClassVar[str] = "smac3"
    search: ClassVar[type[Search]] = Smac


def main(first: int, count: int, only: Sequence[str] = ()) -> None:
    """Median and 75th percentile of the steps to a compliant plan, and to one within 5 %."""
    engines: dict[str, SearchEngine] = {
        "struct-ci": StructCi(), "any-configurations": AnyConfigurations(), "optuna-tpe": OptunaTpe(),
        "optuna-nsga": OptunaNsga(), "smac3": Smac3(),
    }  # fmt: skip
    engines = {name: one for name, one in engines.items() if name in only} or engines
    for app in [app for app in APPS if app in only] or APPS:
        for name, engine in engines.items():
            # All by the t-test, and set up alike: what is compared is which configurations are measured.
            compound_search.METHODS["struct"] = engine
            runs = compound_search.searched("struct", app, range(first, first + count), kind="t")
            said = []
            for what in ("first", "near"):
                steps = [np.inf if (n := getattr(run, what)) is None else n for run in runs]
                half, most = (np.percentile(steps, percent, method="higher") for percent in (50, 75))
                said.append(f"{what} {half:.0f} (p75 {most:.0f})")
            print(app, name, *said, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1000, int(sys.argv[2]) if sys.argv[2:] else 10, sys.argv[3:])

"""The structured search as a sampler for Optuna's studies (extra ``optuna``).

An objective says what measuring a trial gave in the trial's user attributes: ``quality``, ``seconds`` by step and,
where wanted, ``latency_s``, ``cost`` and ``error``. What it returns is for Optuna alone.

>>> from hetplan.search import Space, Step, Wish
>>> space = Space({"documents": [2, 4, 8], "model": ["small", "large"]}, [Step("generate", ["documents", "model"])])
>>> def objective(trial):
...     documents = trial.suggest_categorical("documents", [2, 4, 8])
...     model = trial.suggest_categorical("model", ["small", "large"])
...     seconds = 0.05 * documents * (2 if model == "large" else 1)
...     trial.set_user_attr("quality", 0.6 + 0.02 * documents + (0.1 if model == "large" else 0))
...     trial.set_user_attr("seconds", {"generate": seconds})
...     return seconds
>>> import optuna  # doctest: +SKIP
>>> sampler = StructureSampler(space, Wish(goal="latency", least_quality=0.7))  # doctest: +SKIP
>>> optuna.create_study(sampler=sampler).optimize(objective, n_trials=5)  # doctest: +SKIP

All that it knows it reads from the study, so that a study in a database goes on after a kill with the same proposals
(where trials ran one after the other). Trials without ``quality`` count as failed, and so do pruned ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hetplan.errors import HetplanError, InputError
from hetplan.search import Search, Space, Trial, Wish

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
else:
    try:
        from optuna.samplers import BaseSampler
    except ImportError:
        BaseSampler = object

__all__ = ["StructureSampler"]


class StructureSampler(BaseSampler):
    """Proposes what `hetplan.search.Search` proposes; parameters that are no knobs of the space are drawn at random."""

    def __init__(self, space: Space, wish: Wish | None = None, *, seed: int = 0) -> None:
        if BaseSampler is object:
            raise HetplanError("optuna is not installed; run: pip install 'hetplan[optuna]'")
        from optuna.samplers import RandomSampler

        self.space, self.wish, self.seed = space, wish or Wish(), seed
        self._others = RandomSampler(seed)
        self._search = Search(space, self.wish, seed=seed)
        self._seen: list[int] = []

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        """The knobs, with the levels that the space lists."""
        del study, trial
        from optuna.distributions import CategoricalDistribution

        return {knob: CategoricalDistribution(tuple(levels)) for knob, levels in self.space.knobs.items()}

    def sample_relative(self, study: Any, trial: Any, search_space: Mapping[str, Any]) -> dict[str, Any]:
        """A level of every knob; nothing where all settings were tried."""
        del search_space
        trials = study.get_trials(deepcopy=False)
        done = [one for one in trials if one.state.name in ("COMPLETE", "FAIL", "PRUNED")]
        order = [one.number for one in done]
        if order[: len(self._seen)] != self._seen:
            self._search, self._seen = Search(self.space, self.wish, seed=self.seed), []
        for one in done[len(self._seen) :]:
            self._tell(one)
            self._seen.append(one.number)
        running = [one for one in trials if one.state.name == "RUNNING" and one.number != trial.number]
        self._search.forget()
        self._search.hold(one.params for one in running if set(one.params) >= set(self.space.knobs))
        try:
            return dict(self._search.ask().knobs)
        except InputError:
            raise
        except HetplanError:
            return {}

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        """What the space does not list, at random."""
        return self._others.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """For workers that run side by side; the structured search draws nothing after its first settings."""
        self._others.reseed_rng()

    def _tell(self, trial: Any) -> None:
        knobs = {knob: trial.params[knob] for knob in self.space.knobs if knob in trial.params}
        if set(knobs) != set(self.space.knobs) or self._search.knows(knobs):
            return
        said = trial.user_attrs
        place = Trial(trial.number, knobs)
        if trial.state.name != "COMPLETE" or "quality" not in said or "seconds" not in said:
            self._search.tell_failed(place, f"trial {trial.number} is {trial.state.name.lower()} and says no quality")
            return
        more = {name: said[name] for name in ("error", "cost", "latency_s") if name in said}
        self._search.tell(place, said["quality"], said["seconds"], **more)

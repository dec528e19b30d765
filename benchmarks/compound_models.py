"""Which model for which module: six modules, ten models each, qualities that do not add up.

    python benchmarks/compound_models.py [--seeds 20] [--first 300] [--most 60]

Prints, per search, after how many evaluations the setting that it would hand out is truly within 5 % of the best of all
10^6 (the median and the third quartile over seeds, and how many got there within the limit), and how long a proposal
takes. `--speed` prints the processor time of a proposal at 23,000 and at 10^6 settings.

The case is made like those of LLMSelector: a generator, a critic and a refiner, twice; what a critic finds, only a
refiner can mend, a model does not see its own faults well, and neighbours fit one another more or less. Its constants
are hetplan's own. An evaluation answers 400 questions. `tpe` needs optuna.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from hetplan.planner.forms.black_box import Aim, BlackBox, Measured, Operator, Placed, Verdict
from hetplan.planner.forms.space import Space
from hetplan.solvers.search_wide import Wide

MODULES, MODELS, QUESTIONS, NEAR = 6, 10, 400, 0.95
Evaluate = Callable[[tuple[int, ...]], float]


def truth(seed: int) -> np.ndarray:
    """The share of right answers of all 10^6 settings."""
    return np.clip(sum(by_skill_and_fit(seed)), 0.02, 0.98)


def by_skill_and_fit(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of all settings, what follows from how well each model does each module's work, and what neighbours add."""
    rng = np.random.default_rng([seed, 17])
    general = rng.normal(0.0, 0.8, MODELS)
    skill = 1.0 / (1.0 + np.exp(-(general[None, :] + rng.normal(0.0, 0.8, (MODULES, MODELS)))))
    pairs = [rng.normal(0.0, 0.05, (MODELS, MODELS)) - 0.12 * np.eye(MODELS) for _ in range(MODULES - 1)]
    grid = np.indices((MODELS,) * MODULES).reshape(MODULES, -1)
    s = [skill[m][grid[m]] for m in range(MODULES)]
    right = 0.25 + 0.5 * s[0]
    for critic, refiner in ((1, 2), (4, 5)):
        seen = s[critic] * (0.5 if critic == 1 else 0.5 + 0.5 * s[3])
        right = right * (1.0 - 0.15 * (1.0 - seen)) + (1.0 - right) * seen * s[refiner]
    return right, sum(0.3 * fit[grid[m], grid[m + 1]] for m, fit in enumerate(pairs))


def measured(known: np.ndarray, seed: int) -> Evaluate:
    """Evaluations of a case: the same setting, the same answer."""
    space = Space((MODELS,) * MODULES)

    def evaluate(row: tuple[int, ...]) -> float:
        number = space.number(row)
        return float(np.random.default_rng([seed, number]).binomial(QUESTIONS, known[number]) / QUESTIONS)

    return evaluate


def wide(evaluate: Evaluate, seed: int, most: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """hetplan's search."""
    form = box((MODELS,) * MODULES, evaluate, most)
    assert form.space is not None
    search = Wide().begin(form, seed)
    for _ in range(most):
        plan = search.ask(1)[0]
        found = form.observe(plan)
        search.tell(plan, found)
        yield form.space.row(plan), found.mean


def box(levels: tuple[int, ...], evaluate: Evaluate, most: int, tiers: int = 1) -> BlackBox:
    """The form: a chain of operators, each of which reads its own knob; the most quality is sought."""
    space, steps = Space(levels), range(len(levels))

    def measure(c: int) -> Measured:
        score = evaluate(space.row(c))
        spread = float(np.sqrt(max(score * (1 - score), 1e-3) / QUESTIONS))
        ones = (0.01,) * len(levels)
        return Measured(c, score, spread, QUESTIONS, Verdict.PASS, passes=True, seconds=ones, bytes_out=ones)

    same = len(set(levels)) == 1
    return BlackBox(
        levels, tuple(Operator(f"m{k}", (k,), (k - 1,) if k else ()) for k in steps),
        Placed(1.0 + np.arange(tiers)[::-1], np.arange(tiers, dtype=float), *(np.zeros((tiers, tiers)),) * 2),
        0.0, np.inf, measure, np.indices((tiers,) * len(levels)).reshape(len(levels), -1).T,
        aim=Aim(("quality",)), space=space, alike=(tuple(steps),) if same else (), most=most,
    )  # fmt: skip


def at_random(evaluate: Evaluate, seed: int, most: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Any setting."""
    rng = np.random.default_rng([seed, 1])
    for _ in range(most):
        row = tuple(rng.integers(0, MODELS, MODULES).tolist())
        yield row, evaluate(row)


def by_coordinate(evaluate: Evaluate, seed: int, most: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Module after module, every model of it with the others kept: the rule that LLMSelector begins from."""
    rng = np.random.default_rng([seed, 2])
    row = rng.integers(0, MODELS, MODULES).tolist()
    best, spent = -1.0, 0
    while True:
        for module in rng.permutation(MODULES).tolist():
            for model in range(MODELS):
                tried = (*row[:module], model, *row[module + 1 :])
                score = evaluate(tried)
                spent += 1
                yield tried, score
                if score > best:
                    best, kept = score, model
                if spent >= most:
                    return
            row[module] = kept if best >= 0 else row[module]


def tpe(evaluate: Evaluate, seed: int, most: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Optuna's TPE, several variables together."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for _ in range(most):
        trial = study.ask()
        row = tuple(trial.suggest_categorical(f"m{k}", list(range(MODELS))) for k in range(MODULES))
        score = evaluate(row)
        study.tell(trial, score)
        yield row, score


def knowing(evaluate: Evaluate, seed: int, most: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """No search: who knows every model's skill at every module, and not how neighbours fit, asks for the best by it."""
    space = Space((MODELS,) * MODULES)
    for number in np.argsort(-by_skill_and_fit(seed)[0], kind="stable")[:most].tolist():
        yield space.row(number), evaluate(space.row(number))


SEARCHES = {"wide": wide, "tpe": tpe, "coordinate": by_coordinate, "random": at_random, "knowing": knowing}


def until_near(name: str, seed: int, most: int) -> tuple[int | None, float, float]:
    """Evaluations until what would be handed out is near the best (and stays so), its share of it, CPU s each."""
    known = truth(seed)
    space, best = Space((MODELS,) * MODULES), float(known.max())
    shares, top, began = [], (-1.0, -1), time.process_time()
    for row, score in SEARCHES[name](measured(known, seed), seed, most):
        if score > top[0]:
            top = (score, space.number(row))
        shares.append(float(known[top[1]]) / best)
    each = (time.process_time() - began) / most
    near = [share >= NEAR for share in shares]
    if not near[-1]:
        return None, shares[-1], each
    last_far = max((k for k, one in enumerate(near) if not one), default=-1)
    return last_far + 2, shares[-1], each


def speed() -> None:
    """The processor time of a proposal after 20, 40 and 60 evaluations."""
    for levels, tiers in (((10,) * 6, 1), ((4, 6, 8, 120), 1), ((10,) * 6, 2), ((4, 6, 8, 120), 3)):
        form = box(levels, lambda row: 0.5 + 0.4 * np.sin(sum(row)) ** 2, 60, tiers)
        search = Wide().begin(form, 0)
        times = []
        for _ in range(60):
            began = time.process_time()
            plan = search.ask(1)[0]
            times.append(time.process_time() - began)
            search.tell(plan, form.observe(plan // len(form.placements)))
        shown = " ".join(f"{1000 * np.median(times[a:b]):.0f}" for a, b in pairwise((1, 20, 40, 60)))
        print(
            f"{form.settings:>9} settings x {len(form.placements):>4} placements: ms {shown}, {1000 * max(times):.0f}"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=300)
    parser.add_argument("--most", type=int, default=60)
    parser.add_argument("--only", nargs="*", default=list(SEARCHES))
    parser.add_argument("--speed", action="store_true")
    asked = parser.parse_args()
    if asked.speed:
        speed()
        return
    print(f"{'search':12} {'median':>7} {'p75':>5} {'within':>9} {'share at the end':>17} {'CPU ms each':>12}")
    for name in asked.only:
        found = [until_near(name, seed, asked.most) for seed in range(asked.first, asked.first + asked.seeds)]
        steps = np.array([asked.most + 1 if one[0] is None else one[0] for one in found], dtype=float)
        middle, high = np.percentile(steps, (50, 75))
        shown = [f"{value:.0f}" if value <= asked.most else "-" for value in (middle, high)]
        ended = f"{np.median([one[1] for one in found]):.3f}"
        each = 1000 * float(np.mean([one[2] for one in found]))
        within = f"{int((steps <= asked.most).sum())}/{len(steps)}"
        print(f"{name:12} {shown[0]:>7} {shown[1]:>5} {within:>9} {ended:>17} {each:>12.0f}", flush=True)


if __name__ == "__main__":
    main()

"""VIPR certificates: an exact checker accepts what plans carry as proof of whole-number bounds, and no forged one.

The checker here knows the format and fractions, and nothing of hetplan. HETPLAN_VIPRCHK names the project's own checker
(github.com/ambros-gleixner/VIPR, one file of C++ with GMP); where it is named, it has to accept the same.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path

import build
import face
import numpy as np
import pytest

from hetplan.planner.answer import Limits
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.forms.write_vipr import write_vipr
from hetplan.planner.safe_bound import BoundTree, bound_of_tree
from hetplan.solvers.highs import Highs

Row = tuple[str, Fraction, dict[int, Fraction]]
"""Sense, right side, coefficients."""


class Wrong(Exception):
    """What a certificate lacks."""


def accepted(text: str) -> tuple[str, Fraction]:
    """The sense and the bound that a certificate proves; `Wrong` where it does not."""
    try:
        return _accepted(iter(re.sub(r"(?m)^%.*\n", "", text).split()))
    except (StopIteration, ValueError, IndexError, KeyError) as error:
        raise Wrong(f"cannot be read: {error}") from error


def _accepted(words: Iterator[str]) -> tuple[str, Fraction]:
    def expect(word: str) -> None:
        if (found := next(words)) != word:
            raise Wrong(f"{found} in place of {word}")

    def pairs(count: int) -> dict[int, Fraction]:
        held = [(int(next(words)), Fraction(next(words))) for _ in range(count)]
        return {at: value for at, value in held if value}

    def row() -> Row:
        next(words)
        sense, side, count = next(words), Fraction(next(words)), next(words)
        return sense, side, objective if count == "OBJ" else pairs(int(count))

    expect("VER")
    expect("1.0")
    expect("VAR")
    names = [next(words) for _ in range(int(next(words)))]
    expect("INT")
    whole = {int(next(words)) for _ in range(int(next(words)))}
    expect("OBJ")
    goal = next(words)
    objective = pairs(int(next(words)))
    expect("CON")
    count = int(next(words))
    next(words)
    rows = [row() for _ in range(count)]
    assumed: list[frozenset[int]] = [frozenset()] * count
    expect("RTP")
    expect("range")
    ends = next(words), next(words)
    expect("SOL")
    expect("0")
    expect("DER")
    for _ in range(int(next(words))):
        made, at = row(), len(rows)
        expect("{")
        reason = next(words)
        if reason == "asm":
            assumed.append(frozenset({at}))
        elif reason == "lin":
            parts = pairs(int(next(words)))
            if any(part >= at for part in parts) or not dominates(combined(rows, parts), made):
                raise Wrong(f"{at} does not follow")
            assumed.append(frozenset[int]().union(*(assumed[part] for part in parts)))
        elif reason == "uns":
            first, low, second, high = (int(next(words)) for _ in range(4))
            if max(first, low, second, high) >= at or not all(dominates(rows[one], made) for one in (first, second)):
                raise Wrong(f"{at} is not shown on both sides")
            (one, less, of_low), (other, more, of_high) = rows[low], rows[high]
            if (one, other) != ("L", "G") or of_low != of_high or more != less + 1 or less.denominator != 1:
                raise Wrong(f"{at} splits nothing")
            if not of_low.keys() <= whole or any(value.denominator != 1 for value in of_low.values()):
                raise Wrong(f"{at} splits what is not whole")
            assumed.append((assumed[first] - {low}) | (assumed[second] - {high}))
        else:
            raise Wrong(f"no reason: {reason}")
        rows.append(made)
        expect("}")
        next(words)
    if next(words, None) is not None or max([0, *whole]) >= max(len(names), 1):
        raise Wrong("more than a certificate")
    bound = Fraction(ends[0 if goal == "min" else 1])
    if assumed[-1] or not dominates(rows[-1], ("G" if goal == "min" else "L", bound, objective)):
        raise Wrong("the bound is not what comes last")
    return goal, bound


def combined(rows: list[Row], parts: dict[int, Fraction]) -> Row:
    """The sum of rows times multipliers; all of them have to point the same way."""
    ways = {{"G": 1, "L": -1, "E": 0}[rows[at][0]] * (1 if value > 0 else -1) for at, value in parts.items()} - {0}
    if len(ways) > 1:
        raise Wrong("signs that do not go together")
    total: dict[int, Fraction] = {}
    for at, value in parts.items():
        for column, a in rows[at][2].items():
            total[column] = total.get(column, Fraction(0)) + value * a
    side = sum((value * rows[at][1] for at, value in parts.items()), Fraction(0))
    sense = {1: "G", -1: "L"}[ways.pop()] if ways else "E"
    return sense, side, {column: a for column, a in total.items() if a}


def dominates(one: Row, other: Row) -> bool:
    if not one[2] and {"G": one[1] > 0, "L": one[1] < 0, "E": one[1] != 0}[one[0]]:
        return True
    if one[2] != other[2] or one[0] not in ("E", other[0]):
        return False
    return {"G": one[1] >= other[1], "L": one[1] <= other[1], "E": one[1] == other[1]}[other[0]]


def also_by_viprchk(text: str, folder: Path) -> bool:
    """Whether the project's own checker accepts it, where it is named."""
    checker = os.environ.get("HETPLAN_VIPRCHK")
    if not checker:
        return True
    (folder / "proof.vipr").write_text(text)
    ran = subprocess.run([checker, folder / "proof.vipr"], capture_output=True, text=True, check=False)
    return ran.returncode == 0 and "Successfully verified" in ran.stdout


def machines(seed: int) -> Milp:
    """Whole machines of three types, without a limit on most of them, that carry the work of two classes."""
    rng = np.random.default_rng(seed)
    m = Builder("min" if seed % 2 else "max", offset=float(rng.integers(0, 3)))
    price = rng.uniform(0.2, 3.0, 3)
    n = m.columns("n", ["t4", "l4", "cpu"], upper=[np.inf, 4.0, np.inf], whole=True,
                  cost=price if seed % 2 else 0.0)  # fmt: skip
    x = m.columns("x", lambda k: str(k), size=6).reshape(2, 3)
    rate = m.columns("rate", ["rate"], cost=0.0 if seed % 2 else 1.0)
    served = m.rows("served", ["a", "b"], lower=0.0, upper=0.0)
    m.add(served[:, None], x, 1.0)
    m.add(served, rate, -rng.dirichlet(np.ones(2)))
    busy = m.rows("busy", ["t4", "l4", "cpu"], upper=0.0)
    m.add(busy[None, :], x, rng.uniform(0.5, 2.0, (2, 3)))
    m.add(busy, n, -1.0)
    goal = rng.uniform(3, 12)
    if seed % 2:
        m.add(m.rows("target", ["t"], lower=goal), rate, 1.0)
    else:
        m.add(m.rows("budget", ["b"], upper=goal), n, price)
    return m.build()


@cache
def proved(seed: int) -> tuple[Milp, BoundTree, float, str]:
    form, engine = machines(seed), Highs()
    answer = engine.prove(form, engine.solve(form, Limits()), Limits())
    tree = answer.proof.get("tree") or BoundTree(np.zeros((0, 4), dtype=np.int64), np.array([answer.row_duals]))
    assert isinstance(tree, BoundTree)
    wanted = bound_of_tree(form, tree, value=answer.value)
    assert wanted is not None
    assert wanted == pytest.approx(answer.value, rel=1e-6)
    stream = io.StringIO()
    shown = write_vipr(form, tree, stream, wanted=wanted)
    assert float(shown) == pytest.approx(wanted, rel=1e-8)
    return form, tree, wanted, stream.getvalue()


@pytest.mark.quick_sample(8)
@pytest.mark.parametrize("seed", range(30))
def test_an_exact_checker_accepts_the_proof_of_a_whole_number_bound(seed: int, tmp_path: Path) -> None:
    form, _, wanted, text = proved(seed)
    sense, bound = accepted(text)
    assert sense == form.sense
    assert float(bound) + form.offset == pytest.approx(wanted, rel=1e-8)
    assert also_by_viprchk(text, tmp_path)


def forged(text: str, random: random.Random) -> tuple[str, str]:
    """The certificate with one thing changed that it cannot do without, and what."""
    head, _, rest = text.partition("\nDER ")
    kind = random.choice(["bound", "multiplier", "assumption", "left out", "side", "other sign", "cost"])
    if kind == "bound":  # a better one is stated everywhere
        _, bound = accepted(text)
        better = bound + (1 if "OBJ min" in text else -1) * max(abs(bound) / 1000, Fraction(1, 1000))
        return kind, re.sub(rf"(?<=[ ]){re.escape(str(bound))}(?=[ \n])", str(better), text)
    if kind == "cost":
        return kind, re.sub(r"(OBJ (?:min|max)\n\d+ \d+ )(\S+)", lambda m: f"{m[1]}{Fraction(m[2]) * 2}", text)
    count, *lines = rest.splitlines()
    sums = [at for at, line in enumerate(lines) if "{ lin" in line and "OBJ" in line]
    splits = [at for at, line in enumerate(lines) if "{ uns" in line]
    place = random.choice(sums)
    if kind in ("multiplier", "other sign"):
        before, _, held = lines[place].partition("{ lin ")
        words = held.split()
        at = 2 + 2 * random.randrange(int(words[0]))
        words[at] = str(Fraction(words[at]) * (Fraction(98, 97) if kind == "multiplier" else -1))
        lines[place] = f"{before}{{ lin {' '.join(words)}"
    elif kind == "side" and splits:
        lines[splits[-1]] = re.sub(r"uns (\d+) (\d+) (\d+) (\d+)", r"uns \1 \2 \1 \2", lines[splits[-1]])
    elif kind == "assumption" and splits:
        place = next(at for at, line in enumerate(lines) if "{ asm" in line)
        lines[place] = re.sub(r" ([GL]) (-?\d+) ", lambda m: f" {m[1]} {int(m[2]) + 1} ", lines[place], count=1)
    else:
        kind = "left out"
        lines.pop(random.choice([place, *splits]))
    return kind, "\n".join([f"{head}\nDER {count}", *lines]) + "\n"


def test_a_hundred_forged_certificates_are_refused(tmp_path: Path) -> None:
    random_ = random.Random(41)
    kinds: dict[str, int] = {}
    for _ in range(100):
        text = proved(random_.randrange(30))[3]
        kind, changed = forged(text, random_)
        assert changed != text
        with pytest.raises(Wrong):
            accepted(changed)
        if os.environ.get("HETPLAN_VIPRCHK"):
            assert not also_by_viprchk(changed, tmp_path), kind
        kinds[kind] = kinds.get(kind, 0) + 1
    assert len(kinds) == 7, "each kind was drawn"


@pytest.mark.slow
@pytest.mark.parametrize(("of", "claim"), [("pool", 1), ("pool", 2), ("llm", 1), ("variants", 1), ("pipeline", 2)])
def test_the_proof_of_an_example_is_accepted_and_has_the_names_of_its_program(
    of: str, claim: int, tmp_path: Path
) -> None:
    wish = build.example(of)
    answer = face.solve(wish, "fluid")
    assert answer.plan is not None
    text = face.certificate(answer.plan, wish, tmp_path, claim)
    sense, bound = accepted(text)
    stated = answer.plan["claims"][claim - 1]
    assert sense == stated["sense"]
    found = re.match(r"% proves \w+ (\w+) (\S+): (\S+) times its bound, offset (\S+)\n", text)
    assert found is not None
    about, shown, scale, offset = found.groups()
    assert about == stated["about"]
    assert float(scale) * (float(bound) + float(offset)) == pytest.approx(float(shown), rel=1e-8)
    assert float(shown) == pytest.approx(stated["bound"], rel=1e-6)
    assert also_by_viprchk(text, tmp_path)
    if claim == 1:
        names = set(text.partition("\nVAR")[2].partition("\nINT")[0].split()[1:])
        assert names <= set(re.findall(r"[\w.~]+", face.program_as_lp(wish, tmp_path)))


@pytest.mark.parametrize("number", [0, 5])
def test_a_claim_that_is_not_there_is_refused_with_one_that_is(number: int, tmp_path: Path) -> None:
    wish = build.example("pool")
    answer = face.solve(wish, "fluid")
    (tmp_path / "plan.json").write_text(json.dumps(answer.plan))
    for name, document in (("profile", wish.profile), ("slo", wish.slo)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    paths = [tmp_path / f"{name}.json" for name in ("plan", "profile", "slo")]
    ran = face.command("render", *paths, "--to", "vipr", "--set", f"ask={number}")
    assert ran.code == 2
    assert "ask=1" in ran.err
    assert "ask=2" not in ran.err

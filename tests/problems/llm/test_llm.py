"""Fleets that make text: rows against a saturated machine, the search against all counts, what changes nothing."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetplan as hp
from hetplan.api.solve import plan_for
from hetplan.errors import InputError
from hetplan.planner.answer import Answer, Status, Stop
from hetplan.planner.contract import Tools
from hetplan.planner.sizing import CONFIRMING_SEEDS, LOOKS
from hetplan.planner.sizing_search import LATE
from hetplan.planner.solver_calls import Asking
from hetplan.problems.llm import sizing
from hetplan.problems.llm.balancing import Steering, fleet_of
from hetplan.problems.llm.judge import CONFIRMED, Judge
from hetplan.problems.llm.options import LlmOptions
from hetplan.problems.llm.program import Rows, program
from hetplan.problems.llm.request import TextRequest, read_text_request
from hetplan.problems.llm.sizing import Fleets, SizedFleet, judge_of
from hetplan.profiles.load import load_inputs
from hetplan.profiles.operating_points import limits_of
from hetplan.registry import Engines
from hetplan.serving.tokens import Group, Requests, TokenFleet, TokenLaw, demand_of, fleet_of_plan
from hetplan.simulator.tokens import Coming, draw, drawn_at, play
from tests.cases import texts

QUICK = {"queries": 1500}


def solved(profile: dict[str, Any], slo: dict[str, Any], **options: Any) -> Any:
    return hp.solve(profile, slo, options={**QUICK, **options})


def cost_of(outcome: Any) -> float:
    assert outcome.plan is not None, outcome.why
    assert outcome.reason == "verified", outcome
    found: float = next(one.value for one in outcome.plan.promises if one.quantity == "cost_per_hour")
    return found


def wish_of(profile: dict[str, Any], slo: dict[str, Any], **options: Any) -> TextRequest:
    return read_text_request(load_inputs(profile, slo), LlmOptions(**{**QUICK, **options}))


@pytest.mark.parametrize(
    ("lengths", "kv", "within"),
    [((200, 150), 200_000, 0.03), ((900, 200), 200_000, 0.03), ((600, 300), 12_000, 0.07)],
    ids=["short", "long", "kv binds"],
)
def test_rows_say_what_a_saturated_machine_does(lengths: tuple[int, int], kv: int, within: float) -> None:
    """Rows (1) to (4) at the measured length of iterations, in a stationary window."""
    pieces = [[2.0, 0.02, 0, 0, 1e-6], [8.0, 0, 5e-5, 0, 0]]
    law = TokenLaw(np.array(pieces), kv, most_tokens=512, most_seqs=128)
    requests = Requests.of([lengths] * 12_000)
    run = play(TokenFleet((Group(law, 1),), lengths[1]), Coming(np.arange(12_000) * 1e-3, requests, lengths[1]))
    done = np.sort(run.response_ms + run.arrival_ms)
    rate = 6000.0 / (done[9000] - done[3000])
    mean_ms = run.busy[0] / run.rounds[0]
    work = law.work(requests.taken(np.array([0])))
    loads = np.array([work.tokens[0], work.kv_tokens[0], work.sequences[0], work.pairs[0]])
    time = min((1.0 - piece[0] / mean_ms) / (np.array(piece[1:]) @ loads) for piece in pieces if any(piece[1:]))
    rows = min(time, kv / work.room[0] / mean_ms, 512 / work.tokens[0] / mean_ms, 128 / work.sequences[0] / mean_ms)
    assert rate <= rows * 1.005
    assert rate == pytest.approx(rows, rel=within)


def test_the_fleet_is_the_cheapest_of_all_counts() -> None:
    """Every fleet that is cheaper is simulated here in every way that the search knows, and fails."""
    profile, slo = texts.profile(), texts.slo(30.0)
    outcome = solved(profile, slo)
    cost, wish = cost_of(outcome), wish_of(profile, slo)
    judge = judge_of(wish, Tools(extra={"play_tokens": play, "draw_tokens": draw}), 0)
    kept = []
    for counts in itertools.product(range(int(cost / 4) + 1), range(int(cost) + 1)):
        price = 4.0 * counts[0] + counts[1]
        if not sum(counts) or price >= cost:
            continue
        for theta, big, small in itertools.product((1.0, 0.5, 0.25), (512, 1024, 2048), (256, 512)):
            laws = [wish.laws[0].limited(big, 128), wish.laws[1].limited(small, 64)]
            if judge.excess(judge.play_briefly(fleet_of(wish, counts, laws, Steering(theta)))) <= 1.0:
                kept += [counts] if judge.confirm_fleet(fleet_of(wish, counts, laws, Steering(theta))).kept else []
    assert not kept
    assert outcome.plan.claims[0].bound <= cost


def test_a_fleet_that_has_not_filled_yet_confirms_nothing() -> None:
    """Ten machines take 7 requests of 4 s per second each; 6% more come: their first seconds show nothing."""
    slo = texts.slo(80.0)
    slo["apps"]["chat"]["mix"].update(bins=[[200, 500]], share=[1])
    wish = wish_of(texts.profile(), slo, queries=200)
    judge = judge_of(wish, Tools(extra={"play_tokens": play, "draw_tokens": draw}), 0)
    laws = [one.limited(512, 32) for one in wish.laws]
    too_few, enough = (fleet_of(wish, (count, 0), laws, Steering()) for count in (10, 12))
    assert judge.excess(judge.play_briefly(too_few)) == 0.0
    assert judge.excess(judge.play_once(too_few, seed=0)) > 2.0
    assert not judge.confirm_fleet(too_few).kept
    assert judge.confirm_fleet(enough).kept


@pytest.mark.parametrize("machines", [3, 4])
def test_a_percentile_is_that_of_the_requests_of_all_runs(machines: int) -> None:
    """Bursts make runs unlike: the mean of their percentiles is another figure. Requests of one token have no TPOT."""
    slo = texts.slo(20.0, ttft_ms=900.0)
    demand = slo["apps"]["chat"]
    demand["arrivals"] = {"process": "mmpp", "relative_rates": [0.6, 1.6], "stay_s": [12.0, 8.0]}
    demand["mix"].update(bins=[[200, 1], [1000, 120]], share=[0.5, 0.5])
    wish = wish_of(texts.profile(), slo, queries=600)
    judge = judge_of(wish, Tools(extra={"play_tokens": play, "draw_tokens": draw}), 0)
    fleet = fleet_of(wish, (0, machines), wish.laws, Steering())
    shown = judge.confirm_fleet(fleet)
    first = CONFIRMING_SEEDS + LOOKS[-1]
    runs = [judge.play_once(fleet, seed=first + number, times=CONFIRMED) for number in range(shown.seeds)]
    ways = {
        "ttft": [run.ttft_ms[run.judged()] for run in runs],
        "tpot": [run.tpot_ms[run.judged()][~np.isnan(run.tpot_ms[run.judged()])] for run in runs],
    }
    for limit, value, low, high in shown.percentiles:
        times = ways[limit.of]
        assert len({len(one) for one in times}) > 1
        weight = np.concatenate([np.full(len(one), 1.0 / len(one) / len(times)) for one in times])
        order = np.argsort(np.concatenate(times))
        ordered, beyond = np.concatenate(times)[order], 1.0 - np.cumsum(weight[order])
        least = ordered[np.argmax(beyond <= 1.0 - limit.percentile / 100.0 + 1e-12)]
        assert low <= value <= high
        # Each run keeps the share beyond a time to half a percent of itself.
        assert least <= value <= ordered[np.argmax(beyond <= 0.994 * (1.0 - limit.percentile / 100.0))]
        late = [float(np.mean(one > limit.max_ms)) for one in times]
        assert [judge.late_share(run, limit) for run in runs] == pytest.approx(late)


@pytest.mark.parametrize("period_s", [1400.0, 86400.0])
def test_a_day_is_played_whole(period_s: float) -> None:
    """It was judged by its first minutes, the quietest ones; a long one is shortened, with as many late requests."""
    slo = texts.slo(20.0)
    slo["apps"]["chat"]["arrivals"] = {"process": "diurnal", "peak": 2.0, "period_s": period_s}
    wish = wish_of(texts.profile(), slo)
    judge = judge_of(wish, Tools(extra={"play_tokens": play, "draw_tokens": draw}), 0)
    runs = [judge.play_once(fleet_of(wish, counts, wish.laws, Steering()), seed=0) for counts in ((0, 3), (0, 4))]
    assert len(runs[0].arrival_ms) == pytest.approx(30_000, rel=0.1)
    assert judge.late_share(runs[0], wish.limits[0]) == pytest.approx(0.88, abs=0.05)
    assert judge.late_share(runs[1], wish.limits[0]) < 0.15


def of_a_minute(outcome: Any, profile: dict[str, Any], slo: dict[str, Any], times: float) -> float:
    """The share of requests that are in time in a minute of so many times the rate, after a minute of the rate."""
    inputs = load_inputs(profile, slo)
    app, fleet = inputs.slo.apps["chat"], fleet_of_plan(outcome.plan, inputs, "chat")
    rate, random = app.stated_qps or 0.0, np.random.default_rng(5)
    before = np.sort(random.random(int(60.0 * rate))) * 60.0
    minute = 60.0 + np.sort(random.random(int(60.0 * times * rate))) * 60.0
    demand = demand_of(app.mix, app.arrivals, rate)
    run = play(fleet, drawn_at(demand, np.concatenate([before, minute]), seed=6))
    return float(run.within(limits_of(app))[len(before) :].mean())


def test_caps_keep_most_of_what_a_fleet_can_serve_in_a_doubled_minute() -> None:
    """Without them hardly a request is in time. At the rate itself they cost next to nothing."""
    profile, slo = texts.profile(), texts.slo(30.0)
    capped, open_to_all = solved(profile, slo), solved(profile, texts.slo(30.0, late="serve"))
    assert cost_of(capped) == cost_of(open_to_all)
    serves = [[worker.loads[0].serve for worker in one.plan.workers] for one in (capped, open_to_all)]
    assert all(1 < serve.concurrency < serve.most_seqs for serve in serves[0])
    assert all(serve.concurrency == serve.most_seqs for serve in serves[1])
    usual = [of_a_minute(one, profile, slo, 1.0) for one in (capped, open_to_all)]
    doubled = [of_a_minute(one, profile, slo, 2.0) for one in (capped, open_to_all)]
    assert usual[0] > usual[1] - 0.03
    assert doubled[0] > doubled[1] + 0.2
    assert doubled[0] > 0.35
    spoilt = capped.plan.model_dump(mode="json")
    spoilt["workers"][0]["loads"][0]["serve"]["concurrency"] = 10_000
    assert "llm-batch" in {one.code for one in hp.verify(spoilt, profile, slo).violations}
    assert "llm-rule" in {one.code for one in hp.verify(capped.plan, profile, texts.slo(30.0, late="serve")).violations}


@pytest.mark.parametrize(
    ("balancer", "rule"),
    [
        ("fewest-requests", "weighted-least/1"), ("weighted-least", "weighted-least/1"),
        ("split-then-fewest", "shares/1"), ("random", "shares/1"), ("round-robin", "round-robin/1"),
    ],
)  # fmt: skip
def test_a_balancer_that_is_there_is_sized_for(balancer: str, rule: str) -> None:
    """Its fleet keeps what is wished in simulation, and is none that hetplan's router would make cheaper."""
    profile, slo = texts.profile(), texts.slo(20.0, dispatch=balancer)
    outcome = solved(profile, slo)
    assert cost_of(outcome) >= cost_of(solved(profile, texts.slo(20.0)))
    assert outcome.plan.dispatch["chat"].rule == rule
    lines = hp.simulate(outcome.plan, profile, slo, seed=9).lines
    assert {line.verdict for line in lines} <= {"met", "reported"}, lines
    another = texts.slo(20.0, dispatch="random" if balancer == "round-robin" else "round-robin")
    assert "llm-rule" in {one.code for one in hp.verify(outcome.plan, profile, another).violations}


def test_one_unlucky_draw_rules_out_no_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet that keeps every limit on fresh draws is taken though another draw has more late requests than may be."""
    wish = wish_of(texts.profile(), texts.slo(10.0), queries=600)
    judge = judge_of(wish, Tools(extra={"play_tokens": play, "draw_tokens": draw}), 0)
    unlucky = judge.play_once(fleet_of(wish, (2, 2), wish.laws, Steering()), seed=1).arrival_ms
    plain = Judge.excess
    monkeypatch.setattr(Judge, "excess", lambda self, run: 1.5 if run.arrival_ms is unlucky else plain(self, run))
    fleets = Fleets(judge, Asking([]), [[kind.law] for kind in wish.kinds])
    assert fleets.look((2, 2), [""])[""] <= LATE
    assert isinstance(fleets.confirm((2, 2)), SizedFleet)


@pytest.mark.slow
def test_of_fleets_too_many_to_be_listed_those_nearby_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is listed at all: the plan keeps everything, says what was not looked at, and is hardly dearer."""
    profile, slo = texts.profile(), texts.slo(30.0)
    exact = cost_of(solved(profile, slo))
    monkeypatch.setattr(sizing, "MOST_LISTED", 0)
    outcome = solved(profile, slo)
    assert exact <= cost_of(outcome) <= 1.15 * exact
    assert outcome.plan.extensions["llm"]["search"]["complete"] is False
    assert "not every cheaper fleet was checked" in outcome.plan.model_dump_json()
    profile["offers"]["big"]["stock"], profile["offers"]["small"]["stock"] = 0, 30
    scarce = solved(profile, slo)
    assert {worker.hardware for worker in scarce.plan.workers} == {"small"} if scarce.plan is not None else scarce.why


@pytest.mark.slow
def test_a_large_fleet_is_sized_as_several_alike_and_kept_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found for a third of the requests and played together costs as much as what is found for all of them."""
    profile, slo = texts.profile(), texts.slo(60.0)
    whole = cost_of(solved(profile, slo))
    monkeypatch.setattr(sizing, "MOST_BUSY", parts_of_busy(profile, slo) / 3.0)
    outcome = solved(profile, slo)
    assert outcome.plan.extensions["llm"]["search"]["parts"] == 3
    assert whole <= cost_of(outcome) <= 1.2 * whole
    seen = hp.simulate(outcome.plan, profile, slo, seed=77)
    assert {line.verdict for line in seen.lines} == {"met", "reported"}, seen.lines
    slo["limits"] = {"cost_per_hour": 0.8 * whole}
    poor = solved(profile, slo)
    (money,) = (one for one in poor.repairs if one.field == "slo.limits.cost_per_hour")
    slo["limits"]["cost_per_hour"] = money.to
    assert cost_of(solved(profile, slo)) <= money.to


def parts_of_busy(profile: dict[str, Any], slo: dict[str, Any]) -> float:
    """How many machines of the best type are busy all the time."""
    wish = wish_of(profile, slo)
    return min(wish.busy(kind) for kind in wish.kinds)


class Hasty(Engines):
    """Engines of which the first is stopped at its first point: as many machines of the first type as there may be."""

    name, form = "hasty", "milp"

    def of(self, form: str) -> Iterator[Any]:
        if form == self.form:
            yield self
        yield from super().of(form)

    def version(self) -> str:
        return "1"

    def refuses(self, form: Any) -> str:
        is_open = form.whole.any() and form.lower[0] < form.upper[0]
        return "" if is_open else "it is for programs that are not solved at once"

    def solve(self, form: Any, limits: Any, **how: Any) -> Answer[Any]:
        lower = form.lower.copy()
        lower[0] = form.upper[0]
        point = Asking(Engines())(replace(form, lower=lower)).point
        return Answer(Status.FEASIBLE, Stop.TIME, point, form.value(point), engine=self.name)

    def solve_all(self, forms: Any, limits: Any, **how: Any) -> list[Answer[Any]]:
        return [self.solve(form, limits, **how) for form in forms]


def test_a_program_that_is_not_solved_to_its_end_gives_no_absurd_fleet() -> None:
    profile, slo = texts.profile(), texts.slo()
    best = cost_of(solved(profile, slo, sizing="fluid"))
    hasty = plan_for(load_inputs(profile, slo), options={"sizing": "fluid"}, engines=Hasty(), try_repairs=False)
    assert best <= cost_of(hasty) <= 2.0 * best


@pytest.mark.parametrize("rate", [1e-4, 1e-6, 1e-9])
def test_so_few_requests_that_engines_tell_them_from_none_have_a_machine(rate: float) -> None:
    outcome = solved(texts.profile(), texts.slo(rate), sizing="fluid")
    assert outcome.reason == "verified"
    assert sum(worker.count for worker in outcome.require().workers) == 1


@pytest.mark.slow
def test_a_rate_for_thousands_of_machines_has_a_plan() -> None:
    """The program ended at 1000 machines of a type, and called the rate impossible."""
    profile, slo = texts.profile(), texts.slo(20_000.0)
    outcome = solved(profile, slo, sizing="fluid")
    assert sum(worker.count for worker in outcome.plan.workers) > 1000
    slo["limits"] = {"instances": {name: [0, 100] for name in profile["hardware"]}}
    few = solved(profile, slo, sizing="fluid")
    assert few.plan is None


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("rate", "price", "stock", "fleet"),
    [(1e-6, "4", None, {"small": 1}), (20.0, "0", None, {"big": 1}), (60.0, "0", 1, {"big": 1, "small": 2})],
    ids=["next to nothing", "for free", "one for free"],
)
def test_fleets_whose_bound_is_nothing_are_found(
    rate: float, price: str, stock: int | None, fleet: dict[str, int]
) -> None:
    profile = texts.profile()
    profile["offers"]["big"].update({"price_per_hour": price} | ({} if stock is None else {"stock": stock}))
    outcome = solved(profile, texts.slo(rate), queries=800)
    assert {worker.hardware: worker.count for worker in outcome.require().workers} == fleet


def test_rows_bound_what_simulation_serves() -> None:
    """No fleet keeps a rate that its rows exclude."""
    wish = wish_of(texts.profile(), texts.slo())
    rows = Rows.of(program(wish, mean_tpot=False, allow_late=1.0))
    judge = judge_of(wish, Tools(extra={"play_tokens": play, "draw_tokens": draw}), 3)
    for counts in ((1, 0), (0, 3), (1, 2)):
        most = rows.capacity_of(counts).rate_qps
        assert most <= rows.capacity_of((9, 9)).prices @ np.array(counts) * (1 + 1e-9)
        over = wish.with_rate(1.1 * most)
        run = play(fleet_of(over, counts, wish.laws, Steering()), draw(over.demand, seed=1, count=6000))
        served = run.served / run.end_ms * 1000.0
        assert served < 1.02 * most
    del judge


def merged(profile: dict[str, Any]) -> dict[str, Any]:
    profile["hardware"]["big2"] = {"kind": "gpu"}
    profile["offers"]["big2"] = {"hardware": "big2", "price_per_hour": "4"}
    profile["variants"]["m"]["runs"].append({"hardware": "big2", "engine": "fast"})
    return profile


@pytest.mark.slow
def test_alike_classes_merged_and_a_type_split_in_two_change_nothing() -> None:
    slo = texts.slo(30.0)
    cost = cost_of(solved(texts.profile(), slo))
    split = copy.deepcopy(slo)
    mix = split["apps"]["chat"]["mix"]
    mix.pop("share")
    mix["observed"] = [[200, 80]] * 5 + [[1000, 120]] * 4 + [[3000, 60]]
    assert cost_of(solved(texts.profile(), split)) == pytest.approx(cost)
    assert cost_of(solved(merged(texts.profile()), slo)) == pytest.approx(cost)


@pytest.mark.slow
def test_money_falls_in_steps_as_limits_are_loosened() -> None:
    by_tpot = [cost_of(solved(texts.profile(), texts.slo(25.0, tpot_ms=limit))) for limit in (15.0, 30.0, 60.0, 100.0)]
    by_ttft = [cost_of(solved(texts.profile(), texts.slo(25.0, ttft_ms=limit))) for limit in (150.0, 400.0, 2000.0)]
    assert by_tpot == sorted(by_tpot, reverse=True)
    assert by_ttft == sorted(by_ttft, reverse=True)
    assert by_tpot[0] > by_tpot[-1]


def test_the_same_files_give_the_same_bytes() -> None:
    from hetplan.profiles.plan_file import plan_bytes

    one, other = (plan_bytes(solved(texts.profile(), texts.slo()).plan) for _ in range(2))
    assert one == other


def test_a_plan_says_chunks_and_who_shows_its_times() -> None:
    plan = solved(texts.profile(), texts.slo(20.0, attainment=0.93)).plan
    assert {
        load.serve.most_seqs is not None and load.serve.most_tokens is not None
        for w in plan.workers
        for load in w.loads
    } == {True}
    shown = {(one.quantity, one.percentile): one for one in plan.promises if one.model == "simulation/1"}
    assert {("ttft_ms", 95.0), ("tpot_ms", 95.0), ("goodput", None)} == set(shown)
    assert all(one.seeds >= 6 and one.confidence >= 0.975 for one in shown.values())
    assert plan.dispatch["chat"].rule == "least-work/1"
    assert plan.extensions["llm"]["search"]["complete"]
    report = hp.simulate(plan, texts.profile(), texts.slo(20.0, attainment=0.93), seeds=3)
    assert report.ok, report.broken


def test_machines_that_fill_and_make_apart_are_planned_with_chunks_that_serve_the_rate() -> None:
    """With chunks as short as tokens are wanted they serve 30 of 40 requests a second, and the plan was refused."""
    example = Path(__file__).resolve().parents[3] / "examples" / "llm-disaggregated"
    outcome = hp.solve(example / "profile.json", example / "slo.json", options={"sizing": "fluid"})
    assert outcome.exit_code == 0, outcome.violations


def test_planned_says_that_no_queue_was_played() -> None:
    outcome = solved(texts.profile(), texts.slo(), sizing="fluid")
    assert outcome.reason == "verified"
    assert any(one.code == "W-queueing" for one in outcome.plan.warnings)
    assert not [one for one in outcome.plan.promises if one.model.startswith("simulation")]
    free, none = (cost_of(solved(texts.profile(), texts.slo(32.0), sizing="fluid", margins=m)) for m in ("all", "none"))
    assert none < free


@pytest.mark.slow
def test_a_law_with_an_error_is_taken_slower() -> None:
    profile = texts.profile()
    for engine in profile["engines"].values():
        engine["fitted"] = {"error": 0.4}
    exact = cost_of(solved(profile, {**texts.slo(45.0), "robust": {"law": False}}))
    assert cost_of(solved(profile, texts.slo(45.0))) > exact


def test_two_gpus_of_a_node_make_one_instance() -> None:
    profile = texts.profile()
    profile["hardware"]["big"]["provides"] = {"gpu": 8}
    profile["engines"]["fast"]["tensor"] = 2
    profile["offers"]["big"]["price_per_hour"] = "1.5"
    plan = solved(profile, texts.slo(60.0)).plan
    big = [worker for worker in plan.workers if worker.hardware == "big"]
    assert [load.instances for worker in big for load in worker.loads] == [4]


@pytest.mark.slow
def test_a_cache_saves_money_and_a_quality_floor_chooses_the_variant() -> None:
    slo = texts.slo(60.0)
    plain = cost_of(solved(texts.profile(), slo))
    mix = slo["apps"]["chat"]["mix"]
    mix["axes"].append("cached_tokens")
    mix["bins"] = [[i, o, i // 2] for i, o in mix["bins"]]
    assert cost_of(solved(texts.profile(), slo)) < plain
    profile = texts.profile()
    profile["metrics"] = {"score": {"range": [0, 1]}}
    profile["tasks"]["chat"]["metric"] = "score"
    profile["variants"]["m"]["quality"] = {"value": 0.7}
    profile["variants"]["fp8"] = {
        "task": "chat",
        "quality": {"value": 0.6},
        "runs": [{"hardware": "big", "engine": "fp8"}],
    }
    profile["engines"]["fp8"] = {**profile["engines"]["fast"], "pieces": [{"base_ms": 4.0, "token_ms": 0.01}]}
    any_of = texts.slo(60.0, by={"task": "chat"})
    assert cost_of(solved(profile, any_of)) < plain
    best = solved(profile, {**any_of, "apps": {"chat": {**any_of["apps"]["chat"], "quality": {"min": 0.65}}}})
    assert {load.variant for worker in best.plan.workers for load in worker.loads} == {"m"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slo", "field", "emptiest_ms"),
    [
        (texts.slo(tpot_ms=7.0), "slo.apps.chat.latency.tpot_p95_ms", 8.0),
        (texts.slo(ttft_ms=30.0), "slo.apps.chat.latency.ttft_p95_ms", 66.4),
        # An empty machine keeps this one, and no fleet does.
        (texts.slo(tpot_ms=8.01), "slo.apps.chat.latency.tpot_p95_ms", 8.01),
    ],
    ids=["tpot", "ttft", "by a hair"],
)
def test_a_limit_below_what_any_type_does_alone_is_impossible(
    slo: dict[str, Any], field: str, emptiest_ms: float
) -> None:
    """The repair does: with it there is a plan. It is no less than what a machine takes that has nothing else to do."""
    outcome = solved(texts.profile(), slo)
    assert outcome.exit_code == 3
    (repair,) = outcome.repairs
    assert repair.field == field
    assert repair.to is not None
    assert repair.to >= emptiest_ms
    mended = copy.deepcopy(slo)
    mended["apps"]["chat"]["latency"][field.rpartition(".")[2]] = repair.to
    assert solved(texts.profile(), mended).exit_code == 0


@pytest.mark.longest
def test_two_limits_that_are_both_impossible_are_raised_together() -> None:
    outcome = solved(texts.profile(), texts.slo(ttft_ms=30.0, tpot_ms=7.0))
    (repair,) = outcome.repairs
    raised = {edit.path[-1]: edit.value for edit in repair.edits}
    assert set(raised) == {"ttft_p95_ms", "tpot_p95_ms"}
    again = texts.slo(ttft_ms=raised["ttft_p95_ms"], tpot_ms=raised["tpot_p95_ms"])
    assert solved(texts.profile(), again).exit_code == 0


def test_each_rate_has_its_own_draw() -> None:
    """Also where the demand that was drawn from before is gone, and its place in memory is taken."""
    wish = wish_of(texts.profile(), texts.slo())
    judge = judge_of(wish, Tools(extra={"play_tokens": play, "draw_tokens": draw}), 3)
    for rate in (10.0, 20.0, 30.0, 40.0):
        last_ms = judge.requests_of(wish.with_rate(rate).demand, 0, 400).arrival_ms[-1]
        assert last_ms == pytest.approx(400_000 / rate, rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["budget", "stock"])
def test_too_little_money_or_stock_has_a_repair_that_does(what: str) -> None:
    profile, slo = texts.profile(), texts.slo(60.0)
    free = cost_of(solved(profile, slo))
    if what == "budget":
        slo["limits"] = {"cost_per_hour": str(free - 1.5)}
    else:
        profile["offers"]["big"]["stock"] = 1
        profile["offers"]["small"]["stock"] = 0
    outcome = solved(profile, slo)
    assert outcome.plan is None
    repairs = {one.field: one for one in outcome.repairs}
    if what == "budget":
        slo["limits"] = {"cost_per_hour": str(repairs["slo.limits.cost_per_hour"].to)}
    else:
        raised = [one for one in outcome.repairs if one.field.endswith(".stock")]
        assert raised
        for one in raised:
            profile["offers"][one.field.split(".")[2]]["stock"] = int(one.to)  # type: ignore[arg-type]
    assert cost_of(solved(profile, slo)) >= free - 1e-9


def test_melanges_program_is_the_case_of_one_row() -> None:
    """With one piece without a base, and room for everything, rows (1) are Melange's: loads of classes on types."""
    from scipy.optimize import LinearConstraint, milp

    profile, slo = texts.profile(), texts.slo(40.0, ttft_ms=1e6, tpot_ms=1e5)
    for name, token in (("fast", 0.2), ("slow", 0.9)):
        profile["engines"][name].update(
            pieces=[{"token_ms": token}], kv_tokens=10**9, most_tokens=10**8, most_seqs=10**7
        )
    wish = wish_of(profile, slo)
    form = program(wish, mean_tpot=False, allow_late=0.0).build()
    ours = milp(form.cost, constraints=LinearConstraint(form.matrix, form.row_lower, form.row_upper),
                integrality=form.whole, bounds=(form.lower, form.upper)).fun  # fmt: skip
    tokens = np.array([279, 1119, 3059]) * np.array([0.5, 0.4, 0.1]) * 40.0
    busy = [tokens.sum() * token / 1000.0 for token in (0.2, 0.9)]
    best = min(
        4 * big + small
        for big, small in itertools.product(range(20), range(60))
        if big / busy[0] + small / busy[1] >= 1 - 1e-9
    )
    assert ours == pytest.approx(best)


def disaggregated() -> dict[str, Any]:
    """One law whose parts add up, mixed and split over tiers that a link joins."""
    profile = texts.profile()
    one = [{"base_ms": 9.0, "token_ms": 0.03, "kv_token_ms": 5e-5}]
    profile["engines"] = {
        role: {**profile["engines"]["fast"], "pieces": one, "role": role, "kv_bytes_per_token": 131072}
        for role in ("mixed", "prefill", "decode")
    }
    profile["tiers"] = ["fill", "make"]
    profile["links"] = [{"between": ["fill", "make"], "bandwidth_mbps": 200_000}]
    tiers = {"mixed": "make", "prefill": "fill", "decode": "make"}
    profile["hardware"] = {role: {"kind": "gpu", "tier": tiers[role]} for role in tiers}
    profile["offers"] = {role: {"hardware": role, "price_per_hour": "4"} for role in tiers}
    profile["variants"]["m"]["runs"] = [{"hardware": role, "engine": role} for role in tiers]
    return profile


@pytest.mark.slow
def test_prefill_and_decoding_apart_pay_where_parts_add_up_and_tokens_are_urgent() -> None:
    slo, profile = texts.slo(60.0, ttft_ms=600.0, tpot_ms=14.0), disaggregated()
    outcome = solved(profile, slo)
    split = cost_of(outcome)
    assert {worker.hardware for worker in outcome.plan.workers} == {"prefill", "decode"}
    mixed = copy.deepcopy(profile)
    del mixed["variants"]["m"]["runs"][1:]
    assert cost_of(solved(mixed, slo)) > split
    report = hp.simulate(outcome.plan, profile, slo, seeds=3)
    assert report.ok, report.broken


@pytest.mark.parametrize(
    ("spoil", "path"),
    [
        (lambda p: p.pop("links"), "$.links"),
        (lambda p: p["engines"]["prefill"].pop("kv_bytes_per_token"), "$.models.m.runs.prefill.kv_bytes_per_token"),
        (lambda p: p["variants"].update(n={"task": "chat", "runs": p["variants"]["m"]["runs"][1:]}), "$.engines"),
    ],
    ids=["no link", "no size", "another model's"],
)
def test_kv_moves_over_a_link_that_is_known_and_to_the_same_model(spoil: Any, path: str) -> None:
    profile = disaggregated()
    spoil(profile)
    with pytest.raises(InputError) as caught:
        solved(profile, texts.slo(by={"task": "chat"}))
    assert caught.value.faults[0].path == path


def test_a_slow_link_makes_first_tokens_late() -> None:
    """At 10 Gbit/s the KV of 3,000 tokens takes 315 ms: simulated times grow by it."""
    slo, quick, slow = texts.slo(10.0, ttft_ms=2000.0), disaggregated(), disaggregated()
    del quick["variants"]["m"]["runs"][0]
    slow["links"][0]["bandwidth_mbps"] = 10_000
    plan = solved(quick, slo).plan
    times = [
        hp.simulate(plan, profile, slo, seeds=2).apps["chat"].figures["ttft p99 ms"].value for profile in (quick, slow)
    ]
    assert times[1] > times[0] + 250.0


def test_what_is_not_built_is_refused_by_name() -> None:
    from hetplan.simulator.baselines import compare

    plan = solved(texts.profile(), texts.slo()).plan
    inputs = load_inputs(texts.profile(), texts.slo())
    with pytest.raises(InputError, match="not text by laws"):
        compare(plan, inputs)
    for how in ({"noise": "p95"}, {"learn": True}, {"misprediction": 0.2}, {"seeds": 0}):
        with pytest.raises(InputError):
            hp.simulate(plan, texts.profile(), texts.slo(), **{"seeds": 1, **how})
    with pytest.raises(TypeError, match="sedes"):
        hp.simulate(plan, texts.profile(), texts.slo(), sedes=1)
    with pytest.raises(InputError, match="every rate is 0"):
        hp.simulate(plan, texts.profile(), texts.slo(0.0))

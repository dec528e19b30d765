"""The default size: plans that keep their wish while queries wait, found by counted queries, or refused."""

from functools import cache
from pathlib import Path
from time import sleep
from types import SimpleNamespace

import pytest
from cases.pipelines import fluid
from cases.simulated import CONFIRMING, app_saying, report_of

import hetplan as hp
from hetplan.api.solve import choose, plan_for, pose
from hetplan.errors import InputError
from hetplan.planner.answer import Limits
from hetplan.planner.contract import Tools
from hetplan.problems.pipeline import sizing
from hetplan.profiles.load import load_inputs
from hetplan_papers.datasets.loki_by_hand import tiny

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "pipeline"
SHIPPED = {
    "cameras": (EXAMPLES / "profile.json", EXAMPLES / "slo.json", 589.6),
    "posts": (EXAMPLES / "social-profile.json", EXAMPLES / "social-slo.json", 420.0),
}
FRESH_SEEDS = (4001, 4002, 4003, 4004, 4005)


def lost(plan, app, seed):
    """The share of 60,000 queries that is late, dropped or lost."""
    *files, rate = SHIPPED[app]
    report = hp.simulate(plan, *files, seeds=1, seed=seed, duration_s=60_000 / rate)
    return report.apps[app].figures["violations"].value


@cache
def by_default(app):
    *files, _ = SHIPPED[app]
    return hp.solve(*files)


@cache
def to_the_brim(app):
    *files, _ = SHIPPED[app]
    return fluid(*files)


@pytest.fixture(params=[pytest.param("cameras", marks=pytest.mark.slow), "posts"])
def shipped(request):
    return request.param, by_default(request.param)


@pytest.mark.quick_cases(1)
def test_the_default_plan_of_a_shipped_example_keeps_its_wish_on_fresh_seeds(shipped):
    app, outcome = shipped
    assert outcome.exit_code == 0, outcome.why
    assert all(lost(outcome.plan, app, seed) <= 0.01 for seed in FRESH_SEEDS)


@pytest.mark.slow
def test_without_what_is_kept_free_the_wish_is_broken(shipped):
    app, outcome = shipped
    *files, _ = SHIPPED[app]
    options = {**outcome.plan.method.options, "sizing": "fluid", "spare": 0.0, "headroom": 0.0}
    plan = fluid(*files, options=options).plan
    assert all(lost(plan, app, seed) > 0.01 for seed in FRESH_SEEDS[:2])


def test_the_plan_is_nearly_as_good_as_one_that_loses_queries(shipped):
    app, outcome = shipped
    best = to_the_brim(app).plan.claims[0].value
    assert best - 0.01 <= outcome.plan.claims[0].value < best


def test_it_promises_the_share_and_the_percentile_with_what_they_rest_on(shipped):
    app, outcome = shipped
    shown = {one.quantity: one for one in outcome.plan.promises if one.model == "simulation/1"}
    assert set(shown) == {"violations", "response_ms"}
    share = shown["violations"]
    assert (share.app, share.relation, share.value) == (app, "<=", 0.01)
    assert share.seeds >= 6
    assert share.confidence in {1 - 0.05 / 2**tested for tested in range(1, 6)}
    assert 0.0 <= share.interval[0] <= share.interval[1] <= 0.01
    assert share.basis is None  # The tables state a median and a p95: times vary.
    assert shown["response_ms"].percentile == 99
    assert outcome.plan.status == "best-of-measured"
    assert "W-queueing" not in {notice.code for notice in outcome.plan.warnings}
    assert hp.verify(outcome.plan, *SHIPPED[app][:2]).ok


@pytest.mark.slow
def test_from_the_options_that_it_names_the_same_is_found_again_at_once(shipped):
    app, outcome = shipped
    *files, _ = SHIPPED[app]
    tried = []
    again = hp.solve(*files, options=outcome.plan.method.options, on_event=tried.append).require()
    alone = [one for one in again.promises if one.model != "simulation/1"]  # those were put to the test by other seeds
    assert (again.workers, again.routing) == (outcome.plan.workers, outcome.plan.routing)
    assert alone == [one for one in outcome.plan.promises if one.model != "simulation/1"]
    assert [event.what for event in tried].count("simulated") == 1


def test_the_claims_are_bounded_by_servers_in_parts(shipped):
    _, outcome = shipped
    quality, servers = outcome.plan.claims
    assert (quality.about, quality.scope, quality.vouched) == ("quality", "relaxation", "certified")
    assert quality.value < quality.bound < quality.value + 0.02
    assert (servers.about, servers.vouched) == ("servers", "certified")
    assert servers.bound <= servers.value


def test_every_group_in_use_keeps_the_servers_free_that_the_plan_names(shipped):
    app, outcome = shipped
    *files, _ = SHIPPED[app]
    spare = outcome.plan.method.options["spare"]
    assert spare > 0
    inputs = load_inputs(*files)
    tables, variants = inputs.profile.tables, inputs.profile.variants
    backup = {one.to: one.left_qps for one in outcome.plan.dispatch[app].backup}
    for worker in outcome.plan.workers:
        (load,) = worker.loads
        run = next(run for run in variants[load.variant].runs if run.hardware == worker.hardware)
        batches = tables[run.latency].axes["batch"]
        ms = tables[run.latency].p50[batches.index(load.serve.max_batch)]
        assert backup[load.id] * ms / 1000 / load.serve.max_batch >= spare - 1e-6


@pytest.mark.slow
def test_the_same_inputs_give_the_same_plan():
    *files, _ = SHIPPED["posts"]
    assert hp.solve(*files).require().digest == by_default("posts").require().digest


# A simulator that says what it is asked to say


def losing(share_of):
    """A simulator in which a plan with so much room loses so much; and what it was asked."""
    asked = []

    def simulate(plan, inputs, *, seeds, seed, duration_s):
        options = plan.method.options
        asked.append((options["spare"], options["headroom"], seeds, seed, duration_s))
        app = app_saying(share_of(options["spare"], options["headroom"], seed >= CONFIRMING), seeds, in_time_ms=100.0)
        group = SimpleNamespace(waiting=SimpleNamespace(value=1.0))
        groups = {worker.id: group for worker in plan.workers}
        return report_of({"cameras": app}, groups, seeds=seeds, duration_s=duration_s)

    return simulate, asked


def played(share_of, **options):
    simulate, asked = losing(share_of)
    outcome = plan_for(hp.load(*SHIPPED["cameras"][:2]), options=options, tools=Tools(simulate=simulate))
    return outcome, asked


def room(outcome):
    options = outcome.plan.method.options
    return options["spare"], options["headroom"]


@pytest.mark.slow
def test_queries_are_counted_and_the_plan_is_confirmed_by_other_seeds():
    outcome, asked = played(lambda spare, *_: 0.006 if spare >= 0.3 else 0.05, slo_divisor=1.8)
    assert room(outcome) == (0.34, 0.0)
    counted = [(spare, seeds, round(duration_s * 589.6, -2)) for spare, _, seeds, _, duration_s in asked]
    # A first look shows what is hopeless, such as a server fewer or moved; what is not is played in full.
    assert counted[:3] == [(0.2, 1, 10_000), (0.34, 1, 10_000), (0.34, 2, 30_000)]
    assert set(counted[3:-1]) == {(0.0, 1, 10_000)}
    assert counted[-1] == (0.34, 6, 10_000)
    assert {seed for *_, seed, _ in asked[:-1]} == {0}
    assert asked[-1][3] != 0


@pytest.mark.slow
def test_a_better_plan_that_barely_keeps_the_wish_is_chosen_only_if_fresh_seeds_confirm_it():
    """Of .9 the upper end is within what is allowed after some twenty runs, of .99 after no number of them."""
    outcome, asked = played(lambda spare, *_: 0.009 if spare < 0.3 else 0.006, slo_divisor=1.8)
    assert room(outcome) == (0.2, 0.0)
    assert sum(seeds for *_, seeds, seed, _ in asked if seed >= CONFIRMING) >= 15, (
        "luck is not to displace a safer plan"
    )
    outcome, _ = played(lambda spare, *_: 0.0099 if spare < 0.3 else 0.006, slo_divisor=1.8)
    assert room(outcome) == (0.34, 0.0)


@pytest.mark.slow
def test_where_fresh_seeds_disagree_more_is_kept_free():
    outcome, asked = played(lambda spare, _, is_fresh: 0.005 if not is_fresh or spare >= 0.3 else 0.02, slo_divisor=1.8)
    assert outcome.exit_code == 0
    assert room(outcome) == (0.34, 0.0)
    assert (0.2, 6) in {(spare, seeds) for spare, _, seeds, *_ in asked}


@pytest.mark.slow
def test_where_fresh_seeds_leave_it_open_more_of_them_are_played():
    outcome, asked = played(lambda _, __, is_fresh: 0.0093 if is_fresh else 0.005, max_simulations=1)
    assert outcome.exit_code == 0
    assert [seeds for *_, seeds, seed, _ in asked if seed >= CONFIRMING] == [6, 2, 3, 4, 5, 7, 9]
    outcome, asked = played(lambda _, __, is_fresh: 0.0099 if is_fresh else 0.005, max_simulations=1)
    assert outcome.exit_code == 3


@pytest.mark.slow
def test_a_plan_with_much_to_spare_is_followed_by_one_with_less_room():
    outcome, asked = played(lambda spare, *_: 0.002 if spare >= 0.08 else 0.03, slo_divisor=1.8)
    assert outcome.exit_code == 0
    assert 0.08 <= room(outcome)[0] < 0.2
    assert 0.1 in {spare for spare, *_ in asked}


@pytest.mark.longest
def test_where_no_number_of_servers_does_a_share_of_all_capacity_is_kept_free():
    outcome, _ = played(lambda _, headroom, __: 0.004 if headroom >= 0.1 else 0.05)
    assert outcome.exit_code == 0
    spare, headroom = room(outcome)
    assert spare == 0.0
    assert headroom >= 0.1


@pytest.mark.longest
def test_what_is_never_kept_is_exit_3_and_says_why():
    outcome, _ = played(lambda *_: 0.05)
    assert outcome.exit_code == 3
    assert outcome.why[0].startswith("not met: in simulation the violation rate of cameras is 5 times its limit")
    outcome, asked = played(lambda *_: 0.05, max_simulations=2)
    assert outcome.exit_code == 3
    assert "more headroom was not tried" in outcome.why[0]
    # After two plans the question is asked anew, with a repair: a rate in place of the history of the forecast.
    # It begins with the servers that came nearest, dealt without any room.
    assert [spare for spare, *_ in asked[:3]] == [0.2, 0.34, 0.0]


@pytest.mark.slow
def test_where_more_free_capacity_has_no_plan_less_is_tried():
    simulate, _ = losing(lambda *_: 0.001)
    *files, _ = SHIPPED["cameras"]
    slo = load_inputs(*files).slo.model_dump(mode="json", by_alias=True, exclude_none=True)
    slo["apps"]["cameras"]["quality"] = {"min": 0.98}
    outcome = plan_for(hp.load(files[0], slo), tools=Tools(simulate=simulate))
    assert outcome.exit_code == 0
    assert 0.0 < room(outcome)[0] < 0.2


@pytest.mark.slow
def test_what_has_no_plan_at_all_is_explained_as_before():
    outcome = hp.solve(*tiny(0.2, 101))
    assert outcome.exit_code == 3
    assert outcome.repairs


@pytest.mark.slow
def test_a_search_begins_at_what_is_asked_for_and_is_content_with_it():
    for asked_for in ({"spare": 0.5}, {"headroom": 0.1}):
        outcome, asked = played(lambda *_: 0.005, **asked_for)
        wanted = (asked_for.get("spare", 0.0), asked_for.get("headroom", 0.0))
        assert room(outcome) == wanted
        assert {(spare, headroom) for spare, headroom, *_ in asked} == {wanted}


def test_estimated_simulates_nothing():
    simulate, asked = losing(lambda *_: 1.0)
    outcome = plan_for(hp.load(*SHIPPED["posts"][:2]), options={"sizing": "formula"}, tools=Tools(simulate=simulate))
    assert outcome.exit_code == 0
    assert not asked
    assert outcome.plan.method.options["spare"] == sizing.ESTIMATE[0]
    assert outcome.plan.claims[0].vouched == "certified"
    assert all(lost(outcome.plan, "posts", seed) <= 0.01 for seed in FRESH_SEEDS[:2])


@pytest.mark.slow
def test_when_time_is_up_before_fresh_seeds_have_spoken_the_best_plan_so_far_comes_unconfirmed():
    simulate, _ = losing(lambda *_: 0.005)

    def slow(plan, inputs, **how):
        sleep(0.6)
        return simulate(plan, inputs, **how)

    outcome = plan_for(hp.load(*SHIPPED["cameras"][:2]), tools=Tools(simulate=slow), limits=Limits(seconds=0.5))
    assert outcome.exit_code == 5
    assert outcome.plan.status == "not-simulated"
    assert "W-unconfirmed" in {notice.code for notice in outcome.plan.warnings}
    assert not [one for one in outcome.plan.promises if one.model == "simulation/1"]


def test_without_a_simulator_the_default_is_refused():
    inputs = load_inputs(*SHIPPED["posts"][:2])
    problem = pose(inputs, choose(inputs))
    with pytest.raises(InputError, match="simulator"):
        problem.decide(SimpleNamespace())


@pytest.mark.slow
def test_servers_filled_to_the_brim_are_warned_of():
    """By the steps where queries wait; what has room is said to promise no response time, and no more."""
    files = SHIPPED["cameras"][:2]
    roomy = fluid(*files, options={"headroom": 0.3})
    for found, says in ((to_the_brim("cameras"), "queries would wait longer"), (roomy, "no response time is promised")):
        (text,) = [one.text for one in found.require().warnings if one.code == "W-queueing"]
        assert says in text


@pytest.mark.slow
def test_what_simulation_promised_holds_on_other_seeds():
    files = SHIPPED["cameras"][:2]
    plan = hp.solve(*files, options={"sizing": "simulation"}).require()
    report = hp.simulate(plan, *files, seed=4711)
    assert report.apps["cameras"].percentiles_ms[99].value <= 250.0


# Trials of repairs


def tried(share_of, **known):
    """A trial of a repair, with what the refused question left; and how many seeds each play had."""
    simulate, asked = losing(share_of)
    tools = Tools(simulate=simulate, trial=True, known=known)
    outcome = plan_for(load_inputs(*SHIPPED["cameras"][:2]), tools=tools, try_repairs=False)
    return outcome, [seeds for *_, seeds, _, _ in asked]


@pytest.mark.slow
def test_a_trial_ends_with_the_first_plan_that_is_confirmed():
    """It asks whether there is one: less room, or other lengths of paths, would be asked about in vain."""
    outcome, seeds = tried(lambda *_: 0.001)
    assert outcome.exit_code == 0
    assert seeds == [1, 2, 6]


@pytest.mark.slow
def test_a_trial_plays_the_servers_first_that_came_nearest_without_the_repair():
    first, _ = tried(lambda *_: 0.001)
    left = {sizing.NEAREST: [(sizing.Margin(0.0, 0.0, 1.8), first.plan.workers)]}
    outcome, seeds = tried(lambda spare, *_: 0.001 if spare == 0.0 else 0.05, **left)
    assert outcome.exit_code == 0
    assert seeds == [1, 2, 6]


@pytest.mark.slow
def test_what_is_refused_leaves_its_nearest_servers_for_trials():
    room = sizing.Margin(0.0, 0.0, 1.8)
    known = {sizing.NEAREST: [(room, ()), (room, ())]}
    simulate, _ = losing(lambda *_: 0.05)
    tools, options = Tools(simulate=simulate, trial=True, known=known), {"max_simulations": 1, "slo_divisor": 1.8}
    outcome = plan_for(load_inputs(*SHIPPED["cameras"][:2]), options=options, tools=tools, try_repairs=False)
    assert outcome.exit_code == 3
    (_, first), (_, last) = known[sizing.NEAREST]
    assert (first, last) == ((), outcome.plan.workers), "what the question itself left stays"

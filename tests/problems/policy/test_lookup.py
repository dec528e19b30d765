"""The online parts: the look-up, the load monitor, and the tables as they stand in a plan."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.dispatch.monitors import LoadMonitor
from hetplan.dispatch.policy_lookup import PolicySelector
from hetplan.dispatch.rule_kernels import LEEWAY_S, slack_index
from hetplan.errors import InputError
from hetplan.profiles.plan_policy import PolicyTable, read_runs, write_runs


def table(rate_qps: float = 100.0, first: str = "slow", **more: object) -> PolicyTable:
    """Slacks 0, 10, 20 ms; one waiting: fast, fast, `first`; two waiting: fast, slow on one, slow on both."""
    data: dict[str, object] = {
        "workers": "w1",
        "slo_ms": 20.0,
        "rate_qps": rate_qps,
        "queue_max": 2,
        "slack_ms": (0.0, 10.0, 20.0),
        "models": ("fast", "slow"),
        "choice": {"1": f"fastx2 {first}x1", "2": "fastx1 slowx2"},
        "batch": {"1": "0x1 1x2", "2": "2x1 1x1 2x1"},
        "otherwise": {"model": "fast", "batch": 3},
    }
    return PolicyTable.model_validate({**data, **more})


@pytest.mark.parametrize(
    ("waiting", "slack_ms", "model", "batch"),
    [
        (1, 20.0, "slow", 1),
        (1, 19.999, "fast", 1),
        (1, 19.9999999, "slow", 1),
        (1, 1e9, "slow", 1),
        (1, 9.9, "fast", 0),
        (1, 0.0, "fast", 0),
        (1, -5.0, "fast", 0),
        (2, -5.0, "fast", 2),
        (2, 12.0, "slow", 1),
        (2, 20.0, "slow", 2),
        (3, 20.0, "fast", 3),
        (900, -1.0, "fast", 3),
        (0, 20.0, "fast", 0),
        (1, float("-inf"), "fast", 0),
    ],
)
def test_a_look_up(waiting: int, slack_ms: float, model: str, batch: int) -> None:
    selected = PolicySelector([table()]).select(waiting=waiting, slack_ms=slack_ms, rate_qps=50.0)
    assert (selected.model, selected.batch, selected.overload) == (model, batch, False)


def test_the_lowest_table_for_the_load_and_overload_above_all() -> None:
    selector = PolicySelector([table(300.0, "fast"), table(100.0), table(200.0)])
    assert [t.rate_qps for t in selector.tables] == [100.0, 200.0, 300.0]

    def at(rate_qps: float) -> tuple[str, bool]:
        selected = selector.select(waiting=1, slack_ms=20.0, rate_qps=rate_qps)
        return selected.model, selected.overload

    assert at(0.0) == at(100.0) == at(200.0) == ("slow", False)
    assert at(200.1) == at(300.0) == ("fast", False)
    assert at(300.1) == ("fast", True)


def test_another_version_or_another_group_is_refused() -> None:
    with pytest.raises(InputError, match="queue-slack/1"):
        PolicySelector([table()], rule="queue-slack/2")
    with pytest.raises(ValueError, match="one group"):
        PolicySelector([table(), table(workers="w2")])
    with pytest.raises(ValueError, match="one group"):
        PolicySelector([])


@settings(max_examples=50, deadline=None)
@given(
    points=st.lists(st.floats(0.001, 1.0), min_size=1, max_size=20, unique=True),
    slack=st.floats(-0.5, 1.5),
)
def test_simulator_and_selector_read_the_same_slack(points: list[float], slack: float) -> None:
    grid = np.array([0.0, *sorted(points)])
    place = slack_index(slack + LEEWAY_S, grid)
    assert place == max(int(np.searchsorted(grid, slack + 1e-9, side="right")) - 1, 0)


@settings(max_examples=50, deadline=None)
@given(row=st.lists(st.sampled_from(["a", "resnet50x2", "yolo-n", "x"]), min_size=1, max_size=30))
def test_runs_read_back(row: list[str]) -> None:
    assert read_runs(write_runs(row)) == row


@pytest.mark.parametrize("text", ["rn50", "x3", "rn50x0x", "rn50x-1", "rn50x\u0662"])
def test_runs_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="ITEMxCOUNT"):
        read_runs(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"slack_ms": (0.0, 20.0, 10.0)},
        {"choice": {"1": "fastx3"}},
        {"choice": {"1": "fastx3", "2": "fastx2"}},
        {"choice": {"1": "fastx3", "2": "otherx3"}},
        {"batch": {"1": "1x3", "2": "3x3"}},
        {"batch": {"1": "1x3", "2": "-1x3"}},
        {"otherwise": {"model": "other"}},
        {"surprise": 1},
    ],
)
def test_tables_that_are_none(wrong: dict) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=r"validation error"):
        table(**wrong)


def test_a_table_as_rows() -> None:
    held = table()
    assert held.model_rows() == [[0, 0, 1], [0, 1, 1]]
    assert held.batch_rows() == [[0, 1, 1], [2, 1, 2]]
    assert PolicyTable.rows([["a", "a"], ["b", "a"]]) == {"1": "ax2", "2": "bx1 ax1"}


def test_the_monitor_reads_an_even_stream_at_any_moment() -> None:
    monitor = LoadMonitor(window_s=0.5)
    for i in range(400):
        monitor.arrived(i * 0.005)
    assert monitor.rate_qps(1.9975) == pytest.approx(200, rel=0.02)


def test_the_monitor_follows_a_change_within_its_window() -> None:
    monitor = LoadMonitor(window_s=0.5)
    for i in range(100):
        monitor.arrived(i * 0.01)
    for i in range(500):
        monitor.arrived(1.0 + i * 0.001)
    assert monitor.rate_qps(1.5) == pytest.approx(1000, rel=0.02)
    assert monitor.rate_qps(1.75) == pytest.approx(500, rel=0.03)
    assert monitor.rate_qps(2.2) == 0.0
    assert monitor.rate_qps(1e6) == 0.0


def test_the_monitor_at_the_beginning() -> None:
    monitor = LoadMonitor(window_s=0.5)
    assert monitor.rate_qps(5.0) == 0.0
    monitor.arrived(10.0, queries=5)
    assert monitor.rate_qps(10.0) == pytest.approx(20.0), "half a window at least, or the first query is a flood"
    for i in range(1, 41):
        monitor.arrived(10.0 + i * 0.01)
    assert monitor.rate_qps(10.4) == pytest.approx(45 / 0.4)
    with pytest.raises(ValueError, match="window"):
        LoadMonitor(window_s=0.0)


@settings(max_examples=30, deadline=None)
@given(gaps=st.lists(st.floats(0.0, 0.4), min_size=1, max_size=200))
def test_the_monitor_against_counting(gaps: list[float]) -> None:
    """Within a slot's worth of the arrivals that really came in the window."""
    times = np.cumsum(gaps)
    monitor = LoadMonitor(window_s=0.5)
    for time in times:
        monitor.arrived(float(time))
    now = float(times[-1])
    if now - times[0] < 0.5:
        return
    most = int((times > now - 0.51 - 1e-9).sum())
    least = int((times > now - 0.49 + 1e-9).sum())
    assert least / 0.5 - 1e-6 <= monitor.rate_qps(now) <= most / 0.5 + 1e-6

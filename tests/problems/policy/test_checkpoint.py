"""A set of policies that was killed goes on from its checkpoint, to the same tables."""

import json
from pathlib import Path
from typing import Any

import pytest
from cases.policy import files

from hetplan import front_door
from hetplan.errors import InputError
from hetplan.planner.answer import Limits
from hetplan.planner.ask import Asking
from hetplan.planner.contract import Event, Tools
from hetplan.problems.policy.options import PolicyOptions
from hetplan.problems.policy.question import Policy
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.solvers.queue_structured import QueueStructured

SMALL: dict[str, Any] = {
    "queue_max": 4,
    "grid": "fld{10}",
    "queries": 10_000,
    "seeds": 1,
    "accuracy_step": 0.02,
}
RANGE = {"low": 40.0, "high": 240.0}


def made(path: Path | None, *, seed: int = 0, **options: Any) -> tuple[Plan, int]:
    """The plan, and how many processes were solved for it."""
    solved: list[Event] = []
    kept = {} if path is None else {"checkpoint": str(path)}
    outcome = front_door.solve(
        *files(rate_qps=RANGE),
        question="policy",
        options={**SMALL, **kept, **options},
        limits=Limits(seed=seed),
        on_event=lambda event: solved.append(event) if event.what == "policy" else None,
    )
    return outcome.require(), len(solved)


@pytest.mark.slow
@pytest.mark.parametrize("batching", ["auto", "max"])
def test_a_killed_set_goes_on(tmp_path: Path, batching: str) -> None:
    path = tmp_path / "done.jsonl"
    whole, all_of_them = made(path, batching=batching)
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + len(whole.policies["a"])
    path.write_bytes(b"".join(lines[:4]) + lines[4][:50])
    again, others = made(path, batching=batching)
    assert others == all_of_them * (len(lines) - 4) // (len(lines) - 1)
    assert again.policies == whole.policies
    assert path.read_bytes() == b"".join(lines)
    recalled = [claim for claim in again.claims if claim.vouched == "claimed"]
    assert len(recalled) == 3
    assert all("recalled from the checkpoint" in (claim.note or "") for claim in recalled)
    none, nothing = made(path, batching=batching)
    assert (none.policies, nothing) == (whole.policies, 0)


def test_a_checkpoint_leaves_no_trace_in_the_plan(tmp_path: Path) -> None:
    with_one, _ = made(tmp_path / "done.jsonl", batching="max")
    without, _ = made(None, batching="max")
    assert with_one == without


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{}\n", "no checkpoint of policies"),
        (b"hello\n", "no checkpoint of policies"),
        (b'{"format":"hetplan/policies/1.0","of":"x"}\n', "written for another plan"),
        (b"[1]\n", "no checkpoint of policies"),
        (b'{"somebody":"else"}', "no checkpoint of policies"),
    ],
)
def test_another_file_is_refused_and_left_alone(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "done.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=why):
        made(path)
    assert path.read_bytes() == content


def test_other_options_or_seeds_are_another_plan(tmp_path: Path) -> None:
    path = tmp_path / "done.jsonl"
    made(path, batching="max")
    with pytest.raises(InputError, match="another plan"):
        made(path, batching="max", grid="fld{12}")
    with pytest.raises(InputError, match="another plan"):
        made(path, batching="max", seed=1)


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        made(tmp_path / "nowhere" / "done.jsonl")


def test_lines_that_do_not_belong_are_solved_anew(tmp_path: Path) -> None:
    path = tmp_path / "done.jsonl"
    whole, _ = made(path, batching="max")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["batch"] = lines[1]["batch"][:-1]
    del lines[2]["answer"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    again, solved = made(path, batching="max")
    assert solved == 2
    assert again.policies == whole.policies


def test_without_a_place_for_lines_the_option_is_refused(tmp_path: Path) -> None:
    inputs = load_inputs(*files(rate_qps=RANGE))
    options = PolicyOptions(**SMALL, checkpoint=str(tmp_path / "done.jsonl"))
    policy = Policy.from_inputs(inputs, options, formulation="per-query", tools=Tools())
    with pytest.raises(InputError, match="keeps lines"):
        policy.decide(Asking([QueueStructured()], Limits()))
    assert not list(tmp_path.iterdir())

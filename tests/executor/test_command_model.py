"""A command that serves: what it may answer, and that no answer of it costs a server."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hetplan.executor.serving.frames import FAILED, SERVED
from hetplan.executor.serving.models import CommandModel, Result
from hetplan.executor.serving.query_body import Query

ECHO = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    given = asked["inputs"]
    said = given[0] if given else {"outputs": []}
    print(said["raw"] if "raw" in said else json.dumps(said), flush=True)
"""

ENDS = "import json, sys; sys.stdin.readline(); print(json.dumps({}), flush=True); sys.stdin.readline(2)"


def answers(folder: Path, *said: Any, by: str = ECHO) -> list[Result]:
    """What becomes of one query after the other, whose command answers its batch with these."""
    script = folder / "serve.py"
    script.write_text(by)

    async def run() -> list[Result]:
        made = {"command": [sys.executable, str(script)], "timeout_s": 60.0, "environment": {}}
        model = CommandModel(made, load="w.a", knobs={}, servers=1, loop=asyncio.get_running_loop())
        await model.prepare()
        found = []
        for one in said:
            result: asyncio.Future[Sequence[Result]] = asyncio.get_running_loop().create_future()
            model.run([Query({}, one)], result.set_result)
            found += await asyncio.wait_for(result, 60.0)
        model.close()
        for command in model._idle:
            if command is not None:
                await command._process.wait()
        await asyncio.sleep(0.05)  # the loop hears of the ends of all of them before it closes
        return found

    return asyncio.run(run())


def test_outputs_and_children_are_handed_on(tmp_path: Path) -> None:
    (listed, counted) = answers(
        tmp_path, {"outputs": [3], "children": [{"next": [1, 2]}]}, {"outputs": [3], "children": [{"next": 2}]}
    )
    assert listed == Result(SERVED, b'{"next": [1, 2]}', b"3")
    assert counted == Result(SERVED, b'{"next": 2}', b"3")


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize(
    "wrong",
    [
        [1], 7, {"outputs": 3}, {"outputs": [1, 2]}, {"children": {"next": [1]}}, {"children": [[1]]},
        {"children": [{"next": -1}]}, {"children": [{"next": 1e12}]}, {"children": [{"next": "two"}]},
        {"raw": "no JSON"}, {"raw": "[" * 100_000}, {"raw": "{\"outputs\": [" + "[" * 100_000 + "]" * 100_000 + "]}"},
    ],
    ids=lambda wrong: str(wrong)[:40],
)  # fmt: skip
def test_a_wrong_answer_fails_its_batch_and_no_other(tmp_path: Path, wrong: Any) -> None:
    failed, served = answers(tmp_path, wrong, {"outputs": ["fine"]})
    assert failed.outcome == FAILED
    assert failed.body
    assert served == Result(SERVED, b"", b'"fine"')


def test_a_command_that_ends_while_it_is_asked_is_said_to_have_ended(tmp_path: Path) -> None:
    (ended,) = answers(tmp_path, "much more than a pipe holds" * 100_000, by=ENDS)
    assert (ended.outcome, ended.body) == (FAILED, b"the command ended without an answer")


@pytest.mark.parametrize("more", ['{"outputs": ["of nobody"]}', "a word of a library"])
def test_what_a_command_says_unasked_reaches_no_other_query(tmp_path: Path, more: str) -> None:
    """Else each answer from then on would go to the query after its own."""
    first, second, third = answers(
        tmp_path, {"raw": '{"outputs": ["mine"]}\n' + more}, {"outputs": ["second"]}, {"outputs": ["third"]}
    )
    assert [one.body for one in (first, second, third)] == [b'"mine"', b'"second"', b'"third"']

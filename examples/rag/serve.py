"""One step, served: batches in and answers out, a line of JSON each, as `hetplan apply` starts it."""

from __future__ import annotations

import itertools
import json
import sys

import operators

NEXT = {"embed": "search", "search": "rerank", "rerank": "generate"}


def main(step: str) -> None:
    # Who sends no question (a load generator) is given one after the other.
    made_up = ({"question": operators.question(number)[0]} for number in itertools.count(1_000_000))
    for line in sys.stdin:
        asked = json.loads(line)
        knobs = {knob: asked["knobs"][knob] for knob in operators.READS[step]}
        if not asked["inputs"]:
            # Ready means: what the step keeps in memory is there.
            operators.library()
            if "dim" in knobs:
                operators.projection(knobs["dim"]), operators.index(knobs["dim"])
        done = [operators.STEPS[step](given or next(made_up), **knobs) for given in asked["inputs"]]
        answer: dict = {"outputs": [one if step == "generate" else None for one in done]}
        if step in NEXT:
            answer["children"] = [{NEXT[step]: [{"inputs": one}]} for one in done]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[2])

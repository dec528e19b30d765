"""Fleets that make text token by token: which GPUs, how many, how joined, and how they batch.

To read on: `program` has the mathematics. `request` reads the files, `judge` says what a simulation shows of a fleet,
`sizing` looks for the cheapest fleet that keeps every limit, `infeasible` says why there is none, `plan` writes the
plan. `question` is the door, `options` and `applicability` say what it takes, `part` is one such fleet in a larger
one.
"""

"""Which variants of which models run, where and how many of each, at least cost (INFaaS, ATC 2021).

Given: applications with a load, a limit on their latency and a floor on quality; variants with their speed and price on
each hardware; what runs now. Decided: how many instances of each variant run on which machines, and which share of each
load they get.

To read on: `program` has the mathematics. `request` reads the files, `formulations` asks the program or its columns,
`placement` puts instances on machines, `plan` writes the plan with its actions, `infeasible` says why there is none.
Plans that meet the SLO in simulation: `queueing` says how busy instances may be, `units` which plans are near a plan,
`sizing` which of them is taken. `question` is the door, `options` and `applicability` say what it takes, `part` is one
application in a fleet.
"""
